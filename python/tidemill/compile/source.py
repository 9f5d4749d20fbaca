"""The source text of functions: their syntax trees, with places relative to the file.

The whole file is parsed, not the function's lines, so that places need no shifting and lambdas can
be found where they stand.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import Counter
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from .. import ir
from ..errors import CompileError
from ..names import a
from .marks import marked

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Source:
    """The text of a file, and the place (such as ``transaction 'transfer'``) that is compiled."""

    filename: str
    lines: list[str]
    place: str
    number: int = 0
    """Among the sources of a part of the plan (``marks``)."""
    note: str = ""
    """The way in which a helper was called."""
    prefix: str = ""
    """The prefix that the names of a helper's locals have in the plan."""
    helper: str = ""
    """The name that the call has for a helper."""

    def numbered(self, number: int) -> Source:
        """Returns the text as a source of that number."""
        return replace(self, number=number)

    def in_words(self, message: str) -> str:
        """A message of the analysis, with the helper's names for its locals."""
        if not self.prefix:
            return message
        message = re.sub(rf"\b{self.prefix}(\d+_)?return\b", f"{self.helper}()", message)
        return re.sub(rf"\b{self.prefix}", "", message)

    def span(self, node: ast.AST) -> ir.Span:
        """The plan's ``Span`` of a node, with the number of the source."""
        return marked(self.plain_span(node), self.number)

    def plain_span(self, node: ast.AST) -> ir.Span:
        """The place of a node: 1-based lines, 0-based columns in characters."""
        line, column = _start(node)
        end_line, end_column = _end(node)
        return {
            "line": line,
            "column": self._characters(line, column),
            "end_line": end_line,
            "end_column": self._characters(end_line, end_column),
        }

    def _characters(self, line: int, column: int) -> int:
        """The syntax tree counts the bytes of UTF-8."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return column if text.isascii() else len(text.encode()[:column].decode(errors="ignore"))

    def refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        """The error that refuses a node."""
        return self.error(self.plain_span(node), message, hint)

    def error(self, span: ir.Span | None, message: str, hint: str = "") -> CompileError:
        """The error at a span that has no number."""
        text = None
        if self.note:
            message = f"{message} ({self.note})"
        if span is not None and 1 <= span["line"] <= len(self.lines):
            text = self.lines[span["line"] - 1]
        return CompileError(message, hint, filename=self.filename, span=span, text=text, place=self.place)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 1), getattr(node, "col_offset", 0)


def _end(node: ast.AST) -> tuple[int, int]:
    line, column = _start(node)
    return getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or column


def find(function: object, place: str) -> tuple[Source, Definition]:
    """The source and the syntax tree of a function. Raises ``CompileError``."""
    if not isinstance(function, FunctionType):
        kind = type(function).__name__
        raise CompileError(f"{a(kind)} has no Python source", "write a def or a lambda", place=place)
    code = function.__code__
    source, tree = parse(code.co_filename, function.__globals__, place)
    wanted = ast.Lambda if code.co_name == "<lambda>" else (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in ast.walk(tree) if isinstance(n, wanted) and _first_line(n) == code.co_firstlineno]
    found = [n for n in found if isinstance(n, ast.Lambda) or n.name == code.co_name]
    if not found:
        raise CompileError(
            f"the source of {place} in {source.filename} is not what is running",
            "the file was changed after it was loaded: run it again",
            filename=source.filename,
            place=place,
        )
    definition = _choose(found, code)
    if definition is None:
        hint = "write it as a def, or put each lambda on a line of its own"
        raise source.refuse(found[0], "several lambdas begin on this line and cannot be told apart", hint)
    return source, definition


def parameters(definition: Definition) -> list[ast.arg]:
    """The parameters of a function but those with stars."""
    arguments = definition.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def body_of(definition: Definition) -> list[ast.stmt]:
    """The statements of a function but its docstring; of a lambda, the ``return`` of its expression."""
    if isinstance(definition, ast.Lambda):
        return [ast.copy_location(ast.Return(definition.body), definition.body)]
    return [s for s in definition.body if not _is_docstring(s)]


def _is_docstring(statement: ast.stmt) -> bool:
    constant = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)


def assigned(body: list[ast.stmt]) -> Counter[str]:
    """The names that a body assigns to, with how often: as in Python these are local everywhere in it."""
    nodes = [n for s in body for n in ast.walk(s)]
    names = Counter(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return names + Counter(n.name for n in nodes if isinstance(n, ast.MatchAs) and n.name is not None)


def parse(filename: str, names: dict[str, Any], place: str) -> tuple[Source, ast.Module]:
    """The text and the syntax tree of a file; ``names`` are the globals of its code. Raises ``CompileError``."""
    linecache.checkcache(filename)
    lines = linecache.getlines(filename, names)
    if not lines:
        raise CompileError(
            f"the source of {place} is not available: it was defined in {filename}",
            "put it into a file",
            place=place,
        )
    try:
        return Source(filename, lines, place), ast.parse("".join(lines))
    except SyntaxError:
        raise CompileError(
            f"the source of {place} in {filename} cannot be read any more",
            "the file was changed after it was loaded: run it again",
            place=place,
        ) from None


def _first_line(node: Definition) -> int:
    """The line that the code object of the node has as its first: that of the first decorator."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])


def _choose(found: list[Definition], code: CodeType) -> Definition | None:
    """The one definition that the code was made from; None if that cannot be decided."""
    if len(found) > 1:
        extent = _extent(code)
        if extent is not None:
            found = [n for n in found if _contains(n, extent)]
            # The innermost of several nested lambdas that contain the code was it.
            innermost = max(((n.lineno, n.col_offset) for n in found), default=None)
            found = [n for n in found if (n.lineno, n.col_offset) == innermost]
    same = {ast.dump(n) for n in found}
    return found[0] if len(same) == 1 else None


def _extent(code: CodeType) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Returns the place of the code's instructions in the file; None before Python 3.11, which does not record it."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    spans = [p for p in positions() if None not in p and p[3] > 0]
    if not spans:
        return None
    return min((p[0], p[2]) for p in spans), max((p[1], p[3]) for p in spans)


def _contains(node: Definition, extent: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    body = node.body if isinstance(node, ast.Lambda) else node
    return _start(body) <= extent[0] and extent[1] <= _end(body)
