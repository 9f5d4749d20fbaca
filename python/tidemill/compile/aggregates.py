"""Windows over streams, as their functions see them: the parts of the group, start and end are values; of the
other fields of the events there are aggregates."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import ir
from ..errors import CompileError
from ..over import END, START

if TYPE_CHECKING:
    from .expressions import Expressions

# Of the values of a field.
_OF_FIELD = (
    *("count", "sum", "mean", "min", "max", "first", "last", "distinct", "any", "all"),
    *("variance", "stddev", "pvariance", "pstddev"),
)
# Of the events: which one's fields are asked for, by the name in the plan.
_PICKS = {"argmax": "arg_max", "argmin": "arg_min"}
_OTHER_NAMES = {
    "average": "mean",
    "avg": "mean",
    "total": "sum",
    "size": "count",
    "len": "count",
    "length": "count",
    "nunique": "distinct",
    "n_unique": "distinct",
    "unique": "distinct",
    "minimum": "min",
    "maximum": "max",
    "var": "variance",
    "std": "stddev",
    "stdev": "stddev",
    "pstdev": "pstddev",
    "arg_max": "argmax",
    "arg_min": "argmin",
    "max_by": "argmax",
    "min_by": "argmin",
}


@dataclass(frozen=True)
class Pick:
    """An event of the window: the one whose field ``by`` is the greatest or the least."""

    function: str
    by: ir.Expr


@dataclass
class Closed:
    """The window of a window function. ``group`` are the names of the group's parts, ``picks`` the locals that stand
    for an event, as far as they are known at a place."""

    group: Collection[str]
    picks: dict[str, Pick] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    """The locals that stand for an event at some place."""

    def is_value(self, name: str) -> bool:
        """Whether ``w.name`` has one value."""
        return name in self.group or name in (START, END)


class Aggregates:
    """Translates what one window function asks about its window."""

    def __init__(self, closed: Closed, expressions: Expressions) -> None:
        self._closed = closed
        self._expressions = expressions
        self._scope = expressions.scope

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def value(self, node: ast.Attribute) -> ir.Expr | None:
        """``w.name`` of the group, ``best.name``, ``w.argmax("price").name``; None where it is neither."""
        if self._scope.is_event(node.value):
            return self._of_window(node)
        owner = node.value
        if isinstance(owner, ast.Attribute) and self._scope.is_event(owner.value) and node.attr in _OF_FIELD:
            shown = ast.unparse(node)
            raise self._refuse(node, f"'{shown}' is an aggregate", f"call it: {shown}()")
        pick = self.pick(owner)
        if isinstance(owner, ast.Name) and owner.id in self._closed.bound:
            pick = self._closed.picks.get(owner.id)
            if pick is None:
                hint = "it was assigned in a branch: assign it before"
                raise self._refuse(owner, f"'{owner.id}' may not be assigned here", hint)
        if pick is None:
            return None
        span = self._scope.source.span(node)
        asked: ir.Aggregate = {"function": pick.function, "value": ir.expr({"event": node.attr}, span), "by": pick.by}
        return ir.expr({"aggregate": asked}, span)

    def _of_window(self, node: ast.Attribute) -> ir.Expr:
        if self._closed.is_value(node.attr):
            return ir.expr({"event": node.attr}, self._scope.source.span(node))
        shown = ast.unparse(node)
        if node.attr in ("count", *_PICKS):
            raise self._refuse(node, f"'{shown}' is an aggregate", f"call it: {shown}({self._sample(node.attr)})")
        values = ", ".join((*self._closed.group, START, END))
        hint = f"ask for an aggregate, such as {shown}.max(); a window has {values}"
        raise self._refuse(node, f"'{shown}' has a value for each event of the window", hint)

    @staticmethod
    def _sample(name: str) -> str:
        return "" if name == "count" else '"price"'

    def call(self, node: ast.Call) -> ir.Expr | None:
        """An aggregate: ``w.count()``, ``w.price.sum()``; None where the call is none."""
        if not isinstance(node.func, ast.Attribute):
            return None
        name, owner = node.func.attr, node.func.value
        if self._scope.is_event(owner):
            return self._of_events(node, node.func)
        if not (isinstance(owner, ast.Attribute) and self._scope.is_event(owner.value)):
            return None
        if name not in _OF_FIELD:
            if self._closed.is_value(owner.attr):
                return None
            raise self._unknown(node, ast.unparse(owner), name, _OF_FIELD)
        if owner.attr in self._closed.group:
            shown = ast.unparse(owner)
            hint = "write w.count() for the number of events" if name == "count" else f"write {shown}"
            raise self._refuse(node, f"'{shown}' is the same in all events of the group", hint)
        self._expressions.calls.arguments(node, name, 0, 0)
        value = ir.expr({"event": owner.attr}, self._scope.source.span(owner))
        return self._aggregate(node, name, value)

    def _of_events(self, node: ast.Call, function: ast.Attribute) -> ir.Expr:
        name, window = function.attr, ast.unparse(function.value)
        if name == "count":
            self._expressions.calls.arguments(node, name, 0, 0)
            return self._aggregate(node, name, None)
        if name in _PICKS:
            self.pick(node)
            shown = ast.unparse(node)
            raise self._refuse(node, f"'{shown}' is an event of the window, not a value", f"take a field: {shown}.name")
        if name in _OF_FIELD:
            given = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
            hint = f"write {window}.{given if isinstance(given, str) else 'price'}.{name}()"
            raise self._refuse(node, f"'{name}' is asked of a field", hint)
        raise self._unknown(node, window, name, ("count", *_PICKS))

    def _aggregate(self, node: ast.Call, function: str, value: ir.Expr | None) -> ir.Expr:
        asked: ir.Aggregate = {"function": function, "value": value, "by": None}
        return ir.expr({"aggregate": asked}, self._scope.source.span(node))

    def _unknown(self, node: ast.Call, shown: str, name: str, known: Collection[str]) -> CompileError:
        close = _OTHER_NAMES.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
        hint = f"there are {', '.join(known)}"
        if close is not None and close in known:
            hint = f"did you mean {shown}.{close}({self._sample(close) if close in _PICKS else ''})?"
        return self._refuse(node, f"'{name}' is not an aggregate", hint)

    def bind(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether an assignment gives an event of the window a name, which is then known."""
        pick = self.pick(value)
        if pick is None or not isinstance(target, ast.Name):
            return False
        name = target.id
        if self._scope.locals[name] > 1:
            hint = "use a name for each event"
            raise self._refuse(target, f"'{name}' is an event of the window and is assigned more than once", hint)
        self._closed.picks[name] = pick
        self._closed.bound.add(name)
        return True

    def picked(self, node: ast.expr) -> Pick | None:
        """The event of the window that the node is, under a name or not."""
        if isinstance(node, ast.Name):
            return self._closed.picks.get(node.id)
        return self.pick(node)

    def pick(self, node: ast.expr) -> Pick | None:
        """The event that ``w.argmax("price")`` or ``w.argmin("price")`` means; None of everything else."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return None
        function = _PICKS.get(node.func.attr)
        if function is None or not self._scope.is_event(node.func.value):
            return None
        (by,) = self._expressions.calls.arguments(node, node.func.attr, 1, 1)
        name = by.value if isinstance(by, ast.Constant) else None
        if not isinstance(name, str) or not name.isidentifier():
            hint = f'write {ast.unparse(node.func)}("{by.attr if isinstance(by, ast.Attribute) else "price"}")'
            raise self._refuse(by, f"{node.func.attr} takes the name of a field", hint)
        return Pick(function, ir.expr({"event": name}, self._scope.source.span(by)))
