"""Helper functions: plain functions of the user's that bodies, filters, maps, keys and windows call.

A call is compiled by putting the helper in its place. The arguments come first, in order, each once; then the helper's
statements; its result is a local or an expression. Where only expressions can stand, so must the helper be one, and its
arguments stand where it uses them. The names of a helper's locals have a prefix that no name of the body has.
"""

from __future__ import annotations

import ast
import inspect
import os
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .. import bodies, ir
from ..errors import CompileError
from .aggregates import Closed
from .marks import SOURCES_MAX
from .matching import branches
from .scope import Scope
from .source import Definition, Source, assigned, body_of, find, parameters

if TYPE_CHECKING:
    from .expressions import Expressions

_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = ("site-packages", "dist-packages")


def is_helper(function: object) -> bool:
    """Returns whether a function is one that a call of it is compiled with: neither Python's own nor ours."""
    if not isinstance(function, FunctionType) or (function.__module__ or "").partition(".")[0] == "tidemill":
        return False
    file = function.__code__.co_filename
    installed = any(f"{os.sep}{folder}{os.sep}" in file for folder in _INSTALLED)
    return not file.startswith("<frozen") and (installed or not file.startswith(_LIBRARY))


@dataclass(frozen=True)
class Result:
    """The result of a call: no value, one, or several. ``acts`` says whether the helper has statements."""

    values: list[ir.Expr]
    acts: bool


class Helpers:
    """Compiles the calls of helpers in one function."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._scope = expressions.scope

    def call(self, node: ast.Call, function: FunctionType) -> Result:
        """Puts a helper in the place of a call. Raises ``CompileError``."""
        shown = ast.unparse(node.func)
        source, definition = self.found(node, function, shown)
        inner = self._scope_of(node, function, shown, source, definition)
        body = body_of(definition)
        if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            return Result(_values(inner, body[0].value), False)
        before = self._scope.context.before
        if before is None:
            hint = f"write {shown}() as one 'return', or call it in a transaction"
            message = f"{shown}() has statements, which a filter, map or key cannot have"
            raise self._scope.source.refuse(node, message, hint)
        from .statements import HelperBody

        statements, values = HelperBody(inner, shown).translate(body, definition)
        before.extend(statements)
        return Result(values, True)

    def value(self, node: ast.Call, function: FunctionType) -> ir.Expr:
        """The value of a call that is an expression."""
        values = self.call(node, function).values
        if len(values) == 1:
            return values[0]
        shown = ast.unparse(node.func)
        if not values:
            raise self._scope.source.refuse(node, f"{shown}() returns no value", "write it on a line of its own")
        names = ", ".join("abcdefgh"[: len(values)])
        hint = f"write {names} = {shown}(...)"
        raise self._scope.source.refuse(node, f"{shown}() returns {len(values)} values", hint)

    def found(self, node: ast.Call, function: FunctionType, shown: str) -> tuple[Source, Definition]:
        """The source, with a prefix of its own, and the syntax tree of a function that a call is replaced by."""
        scope = self._scope
        code = function.__code__
        if code in scope.stack:
            names = [c.co_name for c in scope.stack[scope.stack.index(code) :]]
            circle = " -> ".join([*names, code.co_name])
            raise scope.source.refuse(node, f"{shown}() calls itself: {circle}", "write a loop")
        if scope.context.sources.is_full():
            message = f"more than {SOURCES_MAX} calls of helpers in one function"
            raise scope.source.refuse(node, message, "each is compiled in its place: call fewer")
        known = scope.context.found.get(code)
        if known is None:
            try:
                known = find(function, f"{shown}()")
            except CompileError as error:
                raise scope.source.refuse(node, error.message, error.hint) from None
            scope.context.found[code] = known
        source, definition = known
        if isinstance(definition, ast.AsyncFunctionDef):
            raise scope.source.refuse(node, f"{shown}() is 'async', which cannot be compiled", "write a plain def")
        line = scope.source.plain_span(node)["line"]
        note = f"in {shown}(), called at line {line}" + (f", {scope.source.note}" if scope.source.note else "")
        prefix = scope.context.names.prefix(shown)
        placed = replace(source, place=scope.source.place, note=note, prefix=prefix, helper=shown)
        return scope.context.sources.add(placed), definition

    def _scope_of(
        self, node: ast.Call, function: FunctionType, shown: str, source: Source, definition: Definition
    ) -> Scope:
        """The names of a helper: its parameters stand for what the arguments are."""
        scope = self._scope
        given = self._arguments(node, function, shown, source, definition)
        closed = None if scope.closed is None else Closed(scope.closed.group, owns=scope.closed.owns)
        inner = Scope(
            source,
            function,
            locals=assigned(definition.body if isinstance(definition, ast.FunctionDef) else []),
            lists=scope.lists,
            closed=closed,
            context=scope.context,
            stack=(*scope.stack, function.__code__),
        )
        plain = {name: of for name, of in given.items() if not self._stands_for(inner, name, of)}
        values = self._expressions.sequence([lambda of=of: self._argument(of) for of in plain.values()])  # type: ignore[misc]
        for name, value in zip(plain, values, strict=True):
            before = scope.context.before
            if before is None or (name not in inner.locals and self._expressions.is_stable(value)):
                inner.values[name] = value
            else:
                inner.bound.add(name)
                before.append(ir.stmt({"assign": {"name": inner.local(name), "value": value}}, value["span"]))
        return inner

    def _arguments(
        self, node: ast.Call, function: FunctionType, shown: str, source: Source, definition: Definition
    ) -> dict[str, Any]:
        """Returns what is given for each parameter, in the order of evaluation: the nodes of arguments, and
        constants."""
        scope = self._scope
        for extra, stars in ((definition.args.vararg, "*"), (definition.args.kwarg, "**")):
            if extra is not None:
                raise source.refuse(extra, f"'{stars}{extra.arg}' cannot be compiled", "name each parameter")
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                hint = "write the values one by one"
                raise scope.source.refuse(argument, f"'*' in a call of {shown} cannot be compiled", hint)
        named: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                hint = "write the values one by one"
                raise scope.source.refuse(keyword.value, f"'**' in a call of {shown} cannot be compiled", hint)
            named[keyword.arg] = keyword.value
        signature = inspect.signature(function, follow_wrapped=False)
        try:
            given = signature.bind(*node.args, **named).arguments
        except TypeError as error:
            raise scope.source.refuse(node, f"{shown}() cannot be called so: {error}") from None
        order = {name: of for name, of in given.items() if name not in named}
        order.update({name: given[name] for name in named})
        for parameter in parameters(definition):
            if parameter.arg not in order:
                default = signature.parameters[parameter.arg].default
                order[parameter.arg] = _Default(parameter, default, source)
        return order

    def _stands_for(self, inner: Scope, name: str, of: Any) -> bool:
        """Makes a parameter stand for the event, a row, an element or an event of a window, where it is given one."""
        scope = self._scope
        aggregates = self._expressions.aggregates
        pick = aggregates.picked(of) if aggregates is not None and isinstance(of, ast.expr) else None
        if pick is not None and inner.closed is not None:
            inner.closed.picks[name] = pick
            inner.closed.bound[name] = pick
            return True
        if not isinstance(of, ast.Name):
            return False
        if scope.is_event(of):
            inner.events.add(name)
            if of.id in scope.sides:
                inner.sides[name] = scope.sides[of.id]
        elif of.id in scope.roles:
            inner.roles[name] = scope.roles[of.id]
            if of.id in scope.scanned:
                inner.scanned.add(name)
            if of.id in scope.at_hand:
                inner.at_hand.add(name)
        elif of.id in scope.elements and name not in inner.locals:
            inner.elements[name] = scope.elements[of.id]
        else:
            return False
        return True

    def _argument(self, of: Any) -> ir.Expr:
        if isinstance(of, _Default):
            return self._expressions.constant_of(of.source, of.node, of.value)
        return self._expressions.translate(of)


@dataclass(frozen=True)
class _Default:
    """The default of a parameter."""

    node: ast.arg
    value: object
    source: Source


def _values(scope: Scope, node: ast.expr) -> list[ir.Expr]:
    from .expressions import Expressions

    expressions = Expressions(scope)
    return expressions.operands(node.elts if isinstance(node, ast.Tuple) else [node])


class Returns:
    """The shape of a helper's body: with each ``return`` at the end of its path, and as many values in each."""

    def __init__(self, scope: Scope, shown: str) -> None:
        self._scope = scope
        self._shown = shown

    def width(self, body: list[ast.stmt]) -> int:
        """Returns the number of values that the helper returns."""
        found = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Return)]
        widths = {
            id(n): len(n.value.elts) if isinstance(n.value, ast.Tuple) else int(n.value is not None) for n in found
        }
        width = max(widths.values(), default=0)
        for node in found:
            if widths[id(node)] != width and (width > 1 or widths[id(node)] > 1):
                message = f"{self._shown}() returns {width} values elsewhere, here {widths[id(node)]}"
                raise self._scope.source.refuse(node, message, "return as many on each path")
        return width

    def branched(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the same statements with branches for each ``match`` outside of loops. Raises ``CompileError``."""
        found: list[ast.stmt] = []
        for node in nodes:
            if isinstance(node, ast.Match):
                found += self.branched(branches(self._scope, node))
            elif isinstance(node, ast.If):
                branch = ast.If(node.test, self.branched(node.body), self.branched(node.orelse))
                found.append(ast.copy_location(branch, node))
            else:
                found.append(node)
        return found

    def at_ends(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        """Returns these statements with nothing after a ``return``, and none a ``match`` with one: what
        follows an ``if`` that returns goes into its other branch. Raises ``CompileError`` where that cannot be."""
        for i, node in enumerate(nodes):
            rest = nodes[i + 1 :]
            if isinstance(node, ast.Return):
                return nodes[: i + 1]
            if isinstance(node, (ast.For, ast.While)) and (inside := _return_in(node)) is not None:
                hint = "set a local variable and 'break', and return it after the loop"
                raise self._scope.source.refuse(inside, f"a return inside of a loop of {self._shown}()", hint)
            if isinstance(node, ast.If) and (inside := _return_in(node)) is not None:
                then, otherwise = node.body, node.orelse
                if self.ends(then):
                    otherwise = [*otherwise, *rest]
                elif self.ends(otherwise):
                    then = [*then, *rest]
                elif rest:
                    hint = "let the whole branch return, or assign a local and return it at the end"
                    raise self._scope.source.refuse(inside, f"{self._shown}() goes on after this branch", hint)
                branch = ast.If(node.test, self.at_ends(then), self.at_ends(otherwise))
                return [*nodes[:i], ast.copy_location(branch, node)]
        return nodes

    def ends(self, nodes: list[ast.stmt]) -> bool:
        """Returns whether every path through a block ends in a ``return`` or an abort."""
        last = nodes[-1] if nodes else None
        if isinstance(last, ast.If):
            return self.ends(last.body) and self.ends(last.orelse)
        call = last.value if isinstance(last, ast.Expr) else None
        aborts = isinstance(call, ast.Call) and self._scope.static(call.func) is bodies.abort
        return isinstance(last, ast.Return) or aborts


def _return_in(node: ast.stmt) -> ast.Return | None:
    return next((n for n in ast.walk(node) if isinstance(n, ast.Return)), None)
