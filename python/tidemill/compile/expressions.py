"""Expressions."""

from __future__ import annotations

import ast
import decimal
import enum
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from .. import ir
from ..errors import CompileError
from ..literals import decimal_text, is_constant, plan_value
from ..names import type_name
from .aggregates import Aggregates
from .calls import Calls
from .dates import Dates
from .scope import ROW_OPERATIONS, UNKNOWN, Scope
from .source import Source
from .texts import Texts

Part = tuple[list[ir.Stmt], ir.Expr]
"""An expression and the statements of its helpers."""

Round = ir.Expr | list[ir.Expr]
"""The value of a round of a loop over values, or those of a tuple."""

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_div",
    ast.Mod: "mod",
}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_OPERATORS = {
    ast.Pow: ("**", "multiply: x * x; for a float write math.pow(x, y)"),
    ast.LShift: ("<<", "multiply by a power of two"),
    ast.RShift: (">>", "divide with // by a power of two"),
    ast.BitOr: ("|", "combine bools with 'or'"),
    ast.BitAnd: ("&", "combine bools with 'and'"),
    ast.BitXor: ("^", "compare bools with '!='"),
    ast.MatMult: ("@", "there are no matrices"),
}
_VALUES_MAX = 1000
"""Most values of a constant to loop over: they are written into the plan."""
_LOOP = "loop over a list of the event: for line in ev.lines:"
_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.ListComp: ("a list comprehension", _LOOP),
    ast.SetComp: ("a set comprehension", _LOOP),
    ast.DictComp: ("a dict comprehension", _LOOP),
    ast.GeneratorExp: ("a generator expression", _LOOP),
    ast.Lambda: ("a lambda in a body", "write its expression where it is used"),
    ast.NamedExpr: ("an assignment inside of an expression", "assign on a line of its own"),
    ast.Await: ("'await'", "a transaction waits for nothing: put what it needs into the event"),
    ast.Yield: ("'yield'", "emit several events with tm.emit(...)"),
    ast.YieldFrom: ("'yield from'", "emit several events with tm.emit(...)"),
    ast.Starred: ("'*'", "write the values one by one"),
    ast.List: ("a list as a value", "values are scalars: use 'x in (a, b)', or emit one event per element"),
    ast.Tuple: ("a tuple as a value", "values are scalars: use one variable for each"),
    ast.Set: ("a set as a value", "values are scalars: use 'x in (a, b)'"),
    ast.Dict: ("a dict as a value", "a dict may be returned or emitted, or kept in a table as rows"),
}


def binary_operator(scope: Scope, node: ast.AST, op: ast.operator) -> str:
    """The plan's operator. Raises ``CompileError`` at ``node``."""
    if type(op) in BINARY:
        return BINARY[type(op)]
    shown, hint = _OPERATORS[type(op)]
    raise scope.source.refuse(node, f"the operator {shown} cannot be compiled", hint)


class Expressions:
    """Translates the expressions of one function."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.calls = Calls(scope, self)
        self.dates = Dates(self)
        self.texts = Texts(self)
        self._shared: dict[int, ir.Expr | None] = {}
        """The middles of chains of comparisons, which are evaluated once for both sides."""
        self.aggregates = None if scope.closed is None else Aggregates(scope.closed, self)
        self._by_type: dict[type[ast.AST], Callable[[Any], ir.Expr]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.BoolOp: self._bool,
            ast.Compare: self._compare,
            ast.IfExp: self._if_else,
            ast.JoinedStr: self._f_string,
            ast.Call: self.calls.expression,
            ast.Subscript: self._subscript,
        }

    # Order: what a helper does comes before the expression that calls it, so what stands left of the call, and may be
    # changed or fail, has to come before that.

    def sequence(self, parts: Sequence[Callable[[], ir.Expr]]) -> list[ir.Expr]:
        """Expressions that are evaluated one after the other."""
        before, values = self.scope.context.before, list[ir.Expr]()
        for part in parts:
            at = len(before or ())
            value = part()
            if before is not None and len(before) > at:
                kept: list[ir.Stmt] = []
                values = [self._kept(v, kept) for v in values]
                before[at:at] = kept
            values.append(value)
        return values

    def operands(self, nodes: Sequence[ast.expr]) -> list[ir.Expr]:
        """The plan's expressions of nodes that are evaluated one after the other."""
        return self.sequence([partial(self.translate, node) for node in nodes])

    def is_stable(self, value: ir.Expr) -> bool:
        """Returns whether an expression cannot fail, and no statement of a helper changes it."""
        node = value["node"]
        return any(kind in node for kind in ("literal", "event", "element", "local"))

    def _kept(self, value: ir.Expr, statements: list[ir.Stmt]) -> ir.Expr:
        """The value, as of the statements that are given, to which its assignment to a local is added."""
        return value if self.is_stable(value) else self.kept(value, statements)

    def kept(self, value: ir.Expr, statements: list[ir.Stmt]) -> ir.Expr:
        """A new local with the value, and in the statements its assignment."""
        name = self.scope.context.names.temporary()
        statements.append(ir.stmt({"assign": {"name": name, "value": value}}, value["span"]))
        return ir.expr({"local": name}, value["span"])

    def apart(self, part: Callable[[], ir.Expr]) -> Part:
        """An expression, and what its helpers do, which may not happen."""
        context = self.scope.context
        if context.before is None:
            return [], part()
        outer, context.before = context.before, []
        try:
            value = part()
            return context.before, value
        finally:
            context.before = outer

    def _branch(self, condition: ir.Expr, then: Part, otherwise: Part, span: ir.Span) -> ir.Expr:
        """``then`` or ``otherwise`` where helpers do something in one of them: a local, set in two branches."""
        before, name = self.scope.context.before, self.scope.context.names.temporary()
        assert before is not None

        def block(part: Part) -> list[ir.Stmt]:
            return [*part[0], ir.stmt({"assign": {"name": name, "value": part[1]}}, span)]

        branches: ir.If = {"condition": condition, "then": block(then), "otherwise": block(otherwise)}
        before.append(ir.stmt({"if": branches}, span))
        return ir.expr({"local": name}, span)

    def _stops(self, kind: Literal["all", "any"], parts: list[Part], span: ir.Span) -> ir.Expr:
        """``a and b and ...`` or ``a or b or ...``, of which the parts after the one that decides do not happen."""
        first = next((i for i, part in enumerate(parts) if i > 0 and part[0]), None)
        if parts[0][0]:
            assert self.scope.context.before is not None
            self.scope.context.before.extend(parts[0][0])
            parts = [([], parts[0][1]), *parts[1:]]
        head = [value for _, value in parts[:first]]
        joined = head[0] if len(head) == 1 else ir.expr({"all": head} if kind == "all" else {"any": head}, span)
        if first is None:
            return joined
        rest = parts[first:]
        after = self.apart(lambda: self._stops(kind, rest, span))
        decided: Part = ([], ir.literal({"bool": kind == "any"}, span))
        then, otherwise = (after, decided) if kind == "all" else (decided, after)
        return self._branch(joined, then, otherwise, span)

    def translate(self, node: ast.expr) -> ir.Expr:
        """The plan's expression. Raises ``CompileError``."""
        if id(node) not in self._shared:
            return self._translate(node)
        known, before = self._shared[id(node)], self.scope.context.before
        if known is None:
            at = len(before or ())
            known = self._translate(node)
            if before is not None and len(before) > at:
                known = self.kept(known, before)
            self._shared[id(node)] = known
        return known

    def _translate(self, node: ast.expr) -> ir.Expr:
        translate = self._by_type.get(type(node))
        if translate is not None:
            return translate(node)
        what, hint = _REFUSED.get(type(node), (type(node).__name__, ""))
        raise self._refuse(node, f"{what} cannot be compiled", hint)

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self.scope.source.refuse(node, message, hint)

    def constant(self, node: ast.expr, value: object) -> ir.Expr:
        """A Python constant as a literal at ``node``."""
        return self.constant_of(self.scope.source, node, value)

    def constant_of(self, source: Source, node: ast.AST, value: object) -> ir.Expr:
        """A Python constant as a literal at ``node`` of a source."""
        span = source.span(node)
        if isinstance(value, enum.Enum):
            value = value.value
        try:
            if isinstance(value, decimal.Decimal):
                return ir.call("decimal", [ir.literal({"str": decimal_text(value)}, span)], span)
            return ir.literal(plan_value(value), span)
        except ValueError as error:
            raise source.refuse(node, str(error)) from None

    def _constant(self, node: ast.Constant) -> ir.Expr:
        if not is_constant(node.value):
            raise self._refuse(node, f"the constant {node.value!r} cannot be compiled")
        return self.constant(node, node.value)

    def _name(self, node: ast.Name) -> ir.Expr:
        scope, span = self.scope, self.scope.source.span(node)
        if node.id in scope.events:
            raise self._refuse(
                node, f"the {scope.event_kind} as a whole is not a value", f"use its fields: {node.id}.name"
            )
        if scope.scan(node) is not None:
            use = f"use a column of one: {node.id}.name" if node.id in scope.at_hand else "loop over them"
            hint = f"count them with len({node.id}), or {use}"
            raise self._refuse(node, f"'{node.id}' is rows of a table, not a value", hint)
        if node.id in scope.roles:
            raise self._refuse(node, "a row as a whole is not a value", f"use its columns: {node.id}.name")
        if node.id in scope.elements:
            return ir.expr({"element": {"variable": scope.elements[node.id].variable, "field": ""}}, span)
        if node.id in scope.values:
            return ir.expr(scope.values[node.id]["node"], span)
        if scope.closed is not None and node.id in scope.closed.bound:
            assert self.aggregates is not None
            raise self.aggregates.not_a_value(node, node.id, scope.closed.bound[node.id])
        if scope.is_local(node.id):
            return ir.expr({"local": scope.local(node.id)}, span)
        return self._outside(node, scope.static(node))

    def _outside(self, node: ast.expr, value: object) -> ir.Expr:
        if is_constant(value):
            return self.constant(node, value)
        shown = ast.unparse(node)
        if isinstance(value, (list, tuple, set, frozenset)):
            hint = f"it may be used after 'in': x in {shown}"
            raise self._refuse(node, f"'{shown}' is {type_name(value)}, which is not a value here", hint)
        hint = "constants are int, float, bool, str, bytes, None, Decimal, datetime, timedelta and enums of these"
        raise self._refuse(node, f"'{shown}' is {type_name(value)}, which cannot be used as a value", hint)

    def _attribute(self, node: ast.Attribute) -> ir.Expr:
        scope, span = self.scope, self.scope.source.span(node)
        asked = self.aggregates.value(node) if self.aggregates is not None else None
        if asked is not None:
            return asked
        if isinstance(node.value, ast.Name):
            name = node.value.id
            if name in scope.events:
                return ir.expr({"event": scope.field_of(name, node.attr)}, span)
            if scope.scan(node.value) is not None and name not in scope.at_hand:
                hint = f"loop over them: 'for row in {name}:' and use row.{node.attr}"
                raise self._refuse(node, f"'{name}' is rows of a table, not one", hint)
            if name in scope.roles:
                if node.attr in ROW_OPERATIONS:
                    raise self._refuse(
                        node, f"'{node.attr}' is an operation on a row", f"call it: {name}.{node.attr}()"
                    )
                if node.attr == "exists":
                    return ir.expr({"exists": scope.roles[name]}, span)
                return ir.expr({"cell": {"role": scope.roles[name], "column": node.attr}}, span)
            if name in scope.elements:
                return ir.expr({"element": {"variable": scope.elements[name].variable, "field": node.attr}}, span)
        value = scope.static(node)
        if value is not UNKNOWN:
            return self._outside(node, value)
        part = self.dates.attribute(node)
        if part is not None:
            return part
        if isinstance(node.value, ast.Name) and scope.is_inside(node.value.id):
            hint = "the element of a list is known inside of its loop only; other locals are plain values"
            raise self._refuse(node, f"'{node.value.id}' has no attributes here", hint)
        hint = "only the event, roles and elements of its lists have attributes"
        raise self._refuse(node, f"the attribute '{node.attr}' cannot be compiled", hint)

    def _unary(self, node: ast.UnaryOp) -> ir.Expr:
        span = self.scope.source.span(node)
        if isinstance(node.op, ast.Not):
            return ir.unary("not", self.translate(node.operand), span)
        if isinstance(node.op, ast.USub):
            number = node.operand.value if isinstance(node.operand, ast.Constant) else None
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                return self.constant(node, -number)
            return ir.unary("neg", self.translate(node.operand), span)
        shown, hint = ("+", "leave it out") if isinstance(node.op, ast.UAdd) else ("~", "write -x - 1")
        raise self._refuse(node, f"the operator {shown} in front of a value cannot be compiled", hint)

    def _binary(self, node: ast.BinOp) -> ir.Expr:
        text = isinstance(node.left, ast.JoinedStr) or isinstance(getattr(node.left, "value", None), str)
        if isinstance(node.op, ast.Mod) and isinstance(node.left, (ast.Constant, ast.JoinedStr)) and text:
            raise self._refuse(node, "formatting with % cannot be compiled", "write an f-string: f'{x} left'")
        op = binary_operator(self.scope, node, node.op)
        left, right = self.operands([node.left, node.right])
        return ir.binary(op, left, right, self.scope.source.span(node))

    def _bool(self, node: ast.BoolOp) -> ir.Expr:
        parts = [self.apart(partial(self.translate, value)) for value in node.values]
        return self._stops("all" if isinstance(node.op, ast.And) else "any", parts, self.scope.source.span(node))

    def _if_else(self, node: ast.IfExp) -> ir.Expr:
        condition, span = self.translate(node.test), self.scope.source.span(node)
        then, otherwise = (self.apart(partial(self.translate, of)) for of in (node.body, node.orelse))
        if then[0] or otherwise[0]:
            return self._branch(condition, then, otherwise, span)
        branches: ir.IfElse = {"condition": condition, "then": then[1], "otherwise": otherwise[1]}
        return ir.expr({"if_else": branches}, span)

    def _compare(self, node: ast.Compare) -> ir.Expr:
        operands = [node.left, *node.comparators]
        if len(node.ops) == 1:
            return self._comparison(node, node.ops[0], *operands)
        self._shared.update({id(operand): None for operand in operands[1:-1]})
        comparisons = zip(node.ops, operands, operands[1:], strict=False)
        parts = [self.apart(partial(self._comparison, node, *of)) for of in comparisons]
        return self._stops("all", parts, self.scope.source.span(node))

    def _comparison(self, node: ast.Compare, op: ast.cmpop, left: ast.expr, right: ast.expr) -> ir.Expr:
        span = self.scope.source.span(node)
        if len(node.ops) > 1:
            first, last = self.scope.source.span(left), self.scope.source.span(right)
            span = {**first, "end_line": last["end_line"], "end_column": last["end_column"]}
        if isinstance(op, (ast.In, ast.NotIn)):
            test = self._membership(node, left, right, span)
            return test if isinstance(op, ast.In) else ir.unary("not", test, span)
        if isinstance(op, (ast.Is, ast.IsNot)):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise self._refuse(node, "'is' compares with None only", "compare values with ==")
            test = ir.expr({"is_null": self.translate(left)}, span)
            return test if isinstance(op, ast.Is) else ir.unary("not", test, span)
        before, after = self.operands([left, right])
        operands: ir.Operands = {"op": _COMPARE[type(op)], "left": before, "right": after}
        return ir.expr({"compare": operands}, span)

    def _membership(self, node: ast.Compare, left: ast.expr, right: ast.expr, span: ir.Span) -> ir.Expr:
        if isinstance(right, (ast.Tuple, ast.List, ast.Set)):
            value, *options = self.operands([left, *right.elts])
        else:
            outside = self.scope.static(right)
            if not isinstance(outside, (tuple, list, set, frozenset)):
                part, whole = self.operands([left, right])
                return ir.call("contains", [whole, part], span)
            ordered = sorted(outside, key=repr) if isinstance(outside, (set, frozenset)) else outside
            value, options = self.translate(left), [self._option(right, option) for option in ordered]
        if not options:
            raise self._refuse(node, "nothing is in an empty collection", "leave the test out")
        return ir.expr({"in": {"value": value, "options": options}}, span)

    def _option(self, node: ast.expr, value: object) -> ir.Expr:
        if not is_constant(value):
            raise self._refuse(node, f"'{ast.unparse(node)}' holds {type_name(value)}", "it may hold constants only")
        return self.constant(node, value)

    # Values that are written out, to loop over.

    def listed(self, node: ast.expr) -> list[Round] | None:
        """The rounds of a loop over a tuple or list, or a constant one or dict; None of other loops."""
        if isinstance(node, (ast.Tuple, ast.List)):
            rows = [row.elts if isinstance(row, ast.Tuple) else [row] for row in node.elts]
            values = iter(self.operands([value for row in rows for value in row]))
            return [
                [next(values) for _ in row.elts] if isinstance(row, ast.Tuple) else next(values) for row in node.elts
            ]
        view = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            view, node = node.func.attr, node.func.value
        outside = self.scope.static(node)
        if isinstance(outside, dict) and view in (None, "keys", "values", "items"):
            outside = list(getattr(outside, view or "keys")())
        elif view is not None or not isinstance(outside, (tuple, list)):
            return None
        option = partial(self._option, node)
        return [
            [option(value) for value in row] if isinstance(row, tuple) else option(row)
            for row in self._few(node, outside)
        ]

    def _few(self, node: ast.expr, values: Sequence[object]) -> Sequence[object]:
        if len(values) > _VALUES_MAX:
            hint = "keep them in a table, and loop over its rows"
            raise self._refuse(node, f"'{ast.unparse(node)}' has more than {_VALUES_MAX} values", hint)
        return values

    def as_of(self, value: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """A value as it is before what follows."""
        is_fixed = any(kind in value["node"] for kind in ("literal", "event", "element"))
        return value if is_fixed else self.kept(value, before)

    def chosen(self, place: str, values: list[ir.Expr], first: int, span: ir.Span) -> ir.Expr:
        """That of some values whose number, from ``first`` on, a local has."""
        if len(values) == 1:
            return values[0]
        middle = len(values) // 2
        operands: ir.Operands = {
            "op": "lt",
            "left": ir.expr({"local": place}, span),
            "right": ir.literal({"int": first + middle}, span),
        }
        branches: ir.IfElse = {
            "condition": ir.expr({"compare": operands}, span),
            "then": self.chosen(place, values[:middle], first, span),
            "otherwise": self.chosen(place, values[middle:], first + middle, span),
        }
        return ir.expr({"if_else": branches}, span)

    def _f_string(self, node: ast.JoinedStr) -> ir.Expr:
        span = self.scope.source.span(node)
        parts = self.sequence([partial(self._f_string_part, node, value, span) for value in node.values])
        joined = parts[0] if parts else ir.literal({"str": ""}, span)
        for part in parts[1:]:
            joined = ir.binary("add", joined, part, span)
        return joined

    def _f_string_part(self, node: ast.JoinedStr, part: ast.expr, span: ir.Span) -> ir.Expr:
        if isinstance(part, ast.Constant):
            return ir.literal(plan_value(part.value), span)
        assert isinstance(part, ast.FormattedValue)
        if part.format_spec is not None:
            raise self._refuse(
                node, "a format such as {x:.2f} cannot be compiled", "round the number first: round(x, 2)"
            )
        if part.conversion not in (-1, ord("s")):
            raise self._refuse(node, f"the conversion !{chr(part.conversion)} cannot be compiled", "leave it out")
        if sys.version_info < (3, 12):
            # The parts of an f-string do not know their places there.
            for inner in ast.walk(part.value):
                ast.copy_location(inner, node)
        return ir.call("str", [self.translate(part.value)], span)

    def _subscript(self, node: ast.Subscript) -> ir.Expr:
        if self.scope.is_event(node.value) or self.scope.is_role(node.value):
            name = ast.unparse(node.value)
            field = str(node.slice.value) if isinstance(node.slice, ast.Constant) else "name"
            raise self._refuse(node, "fields are attributes, not items", f"write {name}.{field}")
        part = self.dates.subscript(node)
        if part is not None:
            return part
        outside = self.scope.static(node.value)
        if isinstance(outside, dict):
            raise self._refuse(node, "a dict cannot be looked up", "keep it in a table, and read the row as a role")
        values = self.scope.event_field(node.value)
        if isinstance(outside, (list, tuple, set)) or (values is not None and self.scope.is_list(values)):
            hint = "loop over the list, or keep the values in a table"
            raise self._refuse(node, "an element of a list cannot be taken by its place", hint)
        return self.texts.subscript(node)
