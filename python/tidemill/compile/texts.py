"""Parts of texts: slices, ``find``, ``replace``, ``zfill``, ``split`` and ``join``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import ir
from ..errors import CompileError
from ..types import INT_MAX
from .scope import UNKNOWN

if TYPE_CHECKING:
    from .expressions import Expressions

_PARTS = "the parts of a text are not a value"
_RUN = 64
"""Parts of a list that are joined before they come to the whole: for 1,000 to 100,000 parts near the best number."""


@dataclass(frozen=True)
class Split:
    """The parts of a text. ``separator`` is the plan's None of white space."""

    node: ast.Call
    text: ir.Expr
    separator: ir.Expr
    most: ir.Expr


class Texts:
    """Translates what one function does with texts."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._scope = expressions.scope

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def _int(self, node: ast.AST, value: int) -> ir.Expr:
        return ir.literal({"int": value}, self._scope.source.span(node))

    def call(self, node: ast.Call) -> ir.Expr | None:
        """``s.find(...)``, ``s.replace(...)``, ``s.zfill(...)``, ``s.join(...)``; None of other calls."""
        if not isinstance(node.func, ast.Attribute):
            return None
        name, owner = node.func.attr, node.func.value
        span = self._scope.source.span(node)
        if name == "find":
            given = self._expressions.operands([owner, *self._arguments(node, name, 1, 3)])
            defaults = [self._int(node, 0), self._int(node, INT_MAX)]
            return ir.call("find", [*given, *defaults[len(given) - 2 :]], span)
        if name == "replace":
            given = self._expressions.operands([owner, *self._arguments(node, name, 2, 3)])
            return ir.call("replace", [*given, *[self._int(node, -1)][len(given) - 3 :]], span)
        if name == "zfill":
            return ir.call("zfill", self._expressions.operands([owner, *self._arguments(node, name, 1, 1)]), span)
        if name == "join":
            (of,) = self._arguments(node, name, 1, 1)
            return self._joined(node, owner, of)
        if name == "split":
            shown = ast.unparse(node)
            raise self._refuse(node, _PARTS, f"take one: {shown}[0]; count them: len({shown}); or loop over them")
        return None

    def _arguments(self, node: ast.Call, name: str, least: int, most: int) -> list[ast.expr]:
        return self._expressions.calls.arguments(node, name, least, most)

    # Places.

    def subscript(self, node: ast.Subscript) -> ir.Expr:
        """``s[i]``, ``s[a:b]`` or ``s.split(",")[i]``."""
        span = self._scope.source.span(node)
        if isinstance(node.slice, ast.Slice):
            return self._slice(node, node.slice)
        split = self.split(node.value)
        if split is not None:
            *parts, index = self._expressions.sequence(
                [lambda: split.text, lambda: split.separator, lambda: split.most, lambda: self._translate(node.slice)]
            )
            return ir.call("split_part", [*parts, index], span)
        return ir.call("at", self._expressions.operands([node.value, node.slice]), span)

    def _translate(self, node: ast.expr) -> ir.Expr:
        return self._expressions.translate(node)

    def _slice(self, node: ast.Subscript, places: ast.Slice) -> ir.Expr:
        step = places.step
        if step is not None and not (isinstance(step, ast.Constant) and (step.value is None or _is_one(step.value))):
            raise self._refuse(step, "a slice with a step cannot be compiled", "leave the step out")
        if self.split(node.value) is not None:
            raise self._refuse(node, _PARTS, f"take one: {ast.unparse(node.value)}[0]; or loop over them")

        def bound(of: ast.expr | None, default: int) -> ir.Expr:
            is_out = of is None or (isinstance(of, ast.Constant) and of.value is None)
            return self._int(node, default) if of is None or is_out else self._translate(of)

        given = self._expressions.sequence(
            [
                lambda: self._translate(node.value),
                lambda: bound(places.lower, 0),
                lambda: bound(places.upper, INT_MAX),
            ]
        )
        return ir.call("slice", given, self._scope.source.span(node))

    # Parts.

    def split(self, node: ast.expr) -> Split | None:
        """The parts where the node is ``s.split(...)``."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split"):
            return None
        if self._scope.static(node.func) is not UNKNOWN:
            return None
        keywords = {k.arg: k.value for k in node.keywords}
        left = {"sep", "maxsplit"} - {*("sep", "maxsplit")[: len(node.args)]}
        if not keywords.keys() <= left or len(node.args) > 2:
            raise self._refuse(node, "split takes a separator and how often", "write s.split(',') or s.split(',', 1)")
        given: dict[str, ast.expr] = {**dict(zip(("sep", "maxsplit"), node.args, strict=False)), **keywords}  # type: ignore[dict-item]
        none = ast.copy_location(ast.Constant(None), node)
        minus_one = ast.copy_location(ast.Constant(-1), node)
        nodes = [node.func.value, given.get("sep", none), given.get("maxsplit", minus_one)]
        text, separator, most = self._expressions.operands(nodes)
        return Split(node, text, separator, most)

    def count(self, split: Split) -> ir.Expr:
        """``len(s.split(...))``"""
        return ir.call("split_count", [split.text, split.separator, split.most], self._scope.source.span(split.node))

    def part(self, split: Split, index: ir.Expr) -> ir.Expr:
        """One of the parts."""
        span = self._scope.source.span(split.node)
        return ir.call("split_part", [split.text, split.separator, split.most, index], span)

    def kept(self, split: Split, before: list[ir.Stmt]) -> Split:
        """The parts of what the text and the separator are now, to be asked for again."""
        values = [split.text, split.separator, split.most]
        text, separator, most = (
            value if self._is_fixed(value) else self._expressions.kept(value, before) for value in values
        )
        return Split(split.node, text, separator, most)

    def _is_fixed(self, value: ir.Expr) -> bool:
        return any(kind in value["node"] for kind in ("literal", "event", "element"))

    # Joins.

    def _joined(self, node: ast.Call, owner: ast.expr, of: ast.expr) -> ir.Expr:
        span = self._scope.source.span(node)
        if isinstance(of, (ast.Tuple, ast.List)):
            separator, *parts = self._expressions.operands([owner, *of.elts])
            return self._concatenated(self._separator(separator), parts, span)
        outside = self._scope.static(of)
        if isinstance(outside, (tuple, list)):
            constants = [self._expressions.constant(of, value) for value in outside]
            return self._concatenated(self._separator(self._translate(owner)), constants, span)
        field = self._scope.event_field(of)
        if field is None:
            hint = "join values, ','.join((a, b)), or a list of texts of the event"
            raise self._refuse(of, f"'{ast.unparse(of)}' cannot be joined", hint)
        before = self._scope.context.before
        if before is None:
            raise self._refuse(node, "a filter, map or key has no loop to join a list", "join it in a transaction")
        return self._joined_list(node, owner, field, before)

    def _separator(self, value: ir.Expr) -> ir.Expr:
        return value if ir.kind_of(value) == "str" else ir.fitted(value, "str", "the separator of join")

    def _concatenated(self, separator: ir.Expr, parts: list[ir.Expr], span: ir.Span) -> ir.Expr:
        if len(parts) < 2:
            # The separator must be a text nevertheless.
            nothing = ir.literal({"str": ""}, span)
            if ir.kind_of(separator) is None:
                zero = ir.literal({"int": 0}, span)
                nothing = ir.call("slice", [separator, zero, zero], span)
            return ir.binary("add", nothing, parts[0], span) if parts else nothing
        joined = parts[0]
        for part in parts[1:]:
            joined = ir.binary("add", ir.binary("add", joined, separator, span), part, span)
        return joined

    def _joined_list(self, node: ast.Call, owner: ast.expr, field: str, before: list[ir.Stmt]) -> ir.Expr:
        """A loop that puts parts together to a run, and runs of ``_RUN`` parts to the whole, each with a separator in
        front: what is joined is copied once for each run, not for each part."""
        span, names = self._scope.source.span(node), self._scope.context.names
        separator = self._expressions.kept(self._separator(self._translate(owner)), before)
        joined, run, count, element = (names.temporary() for _ in range(4))
        whole, here, number = (ir.expr({"local": name}, span) for name in (joined, run, count))
        part = ir.expr({"element": {"variable": element, "field": ""}}, span)

        def assign(name: str, value: ir.Expr) -> ir.Stmt:
            return ir.stmt({"assign": {"name": name, "value": value}}, span)

        def add(left: ir.Expr, right: ir.Expr) -> ir.Expr:
            return ir.binary("add", left, right, span)

        zero, nothing = self._int(node, 0), ir.literal({"str": ""}, span)
        is_full: ir.Operands = {"op": "eq", "left": number, "right": self._int(node, _RUN)}
        ended: ir.If = {
            "condition": ir.expr({"compare": is_full}, span),
            "then": [assign(joined, add(whole, here)), assign(run, nothing), assign(count, zero)],
            "otherwise": [],
        }
        before += [
            *(assign(name, nothing) for name in (joined, run)),
            assign(count, zero),
            ir.for_each(
                element,
                field,
                [
                    assign(run, add(here, add(separator, part))),
                    assign(count, add(number, self._int(node, 1))),
                    ir.stmt({"if": ended}, span),
                ],
                span,
            ),
        ]
        start = ir.call("len", [separator], span)
        return ir.call("slice", [add(whole, here), start, self._int(node, INT_MAX)], span)


def _is_one(value: object) -> bool:
    return isinstance(value, int) and value == 1
