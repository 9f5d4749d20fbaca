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
from .own import OwnCompiler, Owns

if TYPE_CHECKING:
    from .expressions import Expressions

# The aggregates of the values of a field.
_OF_FIELD = (
    *("count", "sum", "mean", "min", "max", "first", "last", "distinct", "any", "all"),
    *("variance", "stddev", "pvariance", "pstddev"),
)
# The approximate aggregates of the values of a field, with a sample of what they are asked with.
_APPROX = {"approx_distinct": "", "approx_quantile": "0.99", "approx_count": "'value'"}
_SEVERAL = "top"
_OWN = "aggregate"
_ALL = (*_OF_FIELD, _SEVERAL, *_APPROX)
# The aggregates that pick the event whose fields are asked for, with their names in the plan.
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
    "quantile": "approx_quantile",
    "percentile": "approx_quantile",
    "most_common": "top",
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


@dataclass(frozen=True)
class Top:
    """The most frequent values of a field, at most so many."""

    value: ir.Expr
    count: int


_TOP_FIELDS = {"value": "top_value", "count": "top_count"}
TOP_MAX = 1000


@dataclass
class Closed:
    """The window of a window function. ``group`` are the names of the group's parts, ``picks`` the locals that stand
    for an event or for the most frequent values, as far as they are known at a place."""

    group: Collection[str]
    picks: dict[str, Pick | Top] = field(default_factory=dict)
    bound: dict[str, Pick | Top] = field(default_factory=dict)
    """The locals that stand for such at some place."""
    owns: Owns = field(default_factory=Owns)

    def is_value(self, name: str) -> bool:
        """Returns whether ``w.name`` has one value."""
        return name in self.group or name in (START, END)


class Aggregates:
    """Translates what one window function asks about its window."""

    def __init__(self, closed: Closed, expressions: Expressions) -> None:
        self._closed = closed
        self._expressions = expressions
        self._scope = expressions.scope
        self._own = OwnCompiler(closed.owns, expressions)

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def value(self, node: ast.Attribute) -> ir.Expr | None:
        """``w.name`` of the group, ``best.name``, ``w.argmax("price").name``, ``w.page.top(3)[0].count``; None where
        it is none of these."""
        if self._scope.is_event(node.value):
            return self._of_window(node)
        owner = node.value
        if isinstance(owner, ast.Attribute) and self._scope.is_event(owner.value) and node.attr in _ALL:
            shown = ast.unparse(node)
            raise self._refuse(node, f"'{shown}' is an aggregate", f"call it: {shown}({self._sample(node.attr)})")
        if isinstance(owner, ast.Subscript):
            top = self._known(owner.value)
            return self._of_top(node, owner, top) if isinstance(top, Top) else None
        pick = self._known(owner)
        if pick is None:
            return None
        if isinstance(pick, Top):
            raise self.not_a_value(owner, ast.unparse(owner), pick)
        span = self._scope.source.span(node)
        asked: ir.Aggregate = {
            "function": pick.function,
            "value": ir.expr({"event": node.attr}, span),
            "by": pick.by,
            "argument": None,
        }
        return ir.expr({"aggregate": asked}, span)

    def _known(self, node: ast.expr) -> Pick | Top | None:
        """Returns the meaning of the node; a name must be known at its place."""
        if isinstance(node, ast.Name) and node.id in self._closed.bound:
            known = self._closed.picks.get(node.id)
            if known is None:
                hint = "it was assigned in a branch: assign it before"
                raise self._refuse(node, f"'{node.id}' may not be assigned here", hint)
            return known
        return self.pick(node)

    def _of_top(self, node: ast.Attribute, place: ast.Subscript, top: Top) -> ir.Expr:
        """``top[0].value`` or ``top[0].count``."""
        shown = ast.unparse(place)
        function = _TOP_FIELDS.get(node.attr)
        if function is None:
            hint = f"write {shown}.value or {shown}.count"
            raise self._refuse(node, f"'{shown}' is a value and how often it is there; it has no '{node.attr}'", hint)
        rank = self._int(place.slice)
        if rank is None or not 0 <= rank < top.count:
            hint = f"write {ast.unparse(place.value)}[0] to {ast.unparse(place.value)}[{top.count - 1}]"
            raise self._refuse(place.slice, f"'{shown}' is none of the {top.count} most frequent values", hint)
        span = self._scope.source.span(node)
        rank_of = ir.literal({"int": rank}, span)
        asked: ir.Aggregate = {"function": function, "value": top.value, "by": None, "argument": rank_of}
        return ir.expr({"aggregate": asked}, span)

    def _int(self, node: ast.expr) -> int | None:
        """The value of a constant int."""
        value = node.value if isinstance(node, ast.Constant) else self._scope.static(node)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def not_a_value(self, node: ast.AST, shown: str, known: Pick | Top) -> CompileError:
        """Refuses what stands for an event or for the most frequent values."""
        if isinstance(known, Top):
            hint = f"take one of them: {shown}[0].value, {shown}[0].count"
            return self._refuse(node, f"'{shown}' stands for the most frequent values, and is not a value", hint)
        return self._refuse(node, f"'{shown}' is an event of the window, not a value", f"take a field: {shown}.name")

    def _of_window(self, node: ast.Attribute) -> ir.Expr:
        if self._closed.is_value(node.attr):
            return ir.expr({"event": node.attr}, self._scope.source.span(node))
        shown = ast.unparse(node)
        if node.attr in ("count", *_PICKS, _OWN):
            raise self._refuse(node, f"'{shown}' is an aggregate", f"call it: {shown}({self._sample(node.attr)})")
        values = ", ".join((*self._closed.group, START, END))
        hint = f"ask for an aggregate, such as {shown}.max(); a window has {values}"
        raise self._refuse(node, f"'{shown}' has a value for each event of the window", hint)

    @staticmethod
    def _sample(name: str) -> str:
        samples = {_OWN: "Range", _SEVERAL: "3", **dict.fromkeys(_PICKS, '"price"'), **_APPROX}
        return samples.get(name, "")

    def call(self, node: ast.Call) -> ir.Expr | None:
        """An aggregate: ``w.count()``, ``w.price.sum()``; None where the call is none."""
        if not isinstance(node.func, ast.Attribute):
            return None
        name, owner = node.func.attr, node.func.value
        if self._scope.is_event(owner):
            return self._of_events(node, node.func)
        if not (isinstance(owner, ast.Attribute) and self._scope.is_event(owner.value)):
            return None
        if name not in _ALL:
            if self._closed.is_value(owner.attr):
                return None
            raise self._unknown(node, ast.unparse(owner), name, _ALL)
        if owner.attr in self._closed.group:
            shown = ast.unparse(owner)
            hint = "write w.count() for the number of events" if name == "count" else f"write {shown}"
            raise self._refuse(node, f"'{shown}' is the same in all events of the group", hint)
        top = self.pick(node)
        if top is not None:
            raise self.not_a_value(node, ast.unparse(node), top)
        count = int(bool(_APPROX.get(name)))
        given = self._expressions.calls.arguments(node, name, count, count)
        value = ir.expr({"event": owner.attr}, self._scope.source.span(owner))
        return self._aggregate(node, name, value, self._asked_with(node, name, given))

    def _asked_with(self, node: ast.Call, name: str, given: list[ast.expr]) -> ir.Expr | None:
        """Returns the argument with which an approximate aggregate is asked."""
        if name not in _APPROX:
            return None
        if not given:
            return ir.literal({"int": 0}, self._scope.source.span(node))
        if name == "approx_quantile":
            of = given[0].value if isinstance(given[0], ast.Constant) else self._scope.static(given[0])
            if isinstance(of, bool) or not isinstance(of, (int, float)) or not 0 <= of <= 1:
                hint = f"write {ast.unparse(node.func)}(0.99)"
                raise self._refuse(given[0], "a quantile is a constant from 0 to 1", hint)
            return self._expressions.constant(given[0], float(of))
        return self._expressions.translate(given[0])

    def _of_events(self, node: ast.Call, function: ast.Attribute) -> ir.Expr:
        name, window = function.attr, ast.unparse(function.value)
        if name == "count":
            self._expressions.calls.arguments(node, name, 0, 0)
            return self._aggregate(node, name, None)
        if name == _OWN:
            return self._own.value(node)
        pick = self.pick(node)
        if pick is not None:
            raise self.not_a_value(node, ast.unparse(node), pick)
        if name in _ALL:
            given = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
            hint = f"write {window}.{given if isinstance(given, str) else 'price'}.{name}({self._sample(name)})"
            raise self._refuse(node, f"'{name}' is asked of a field", hint)
        raise self._unknown(node, window, name, ("count", *_PICKS, _OWN))

    def _aggregate(
        self, node: ast.Call, function: str, value: ir.Expr | None, argument: ir.Expr | None = None
    ) -> ir.Expr:
        asked: ir.Aggregate = {"function": function, "value": value, "by": None, "argument": argument}
        return ir.expr({"aggregate": asked}, self._scope.source.span(node))

    def _unknown(self, node: ast.Call, shown: str, name: str, known: Collection[str]) -> CompileError:
        close = _OTHER_NAMES.get(name) or next(iter(difflib.get_close_matches(name, known, 1)), None)
        hint = f"there are {', '.join(known)}"
        if close is not None and close in known:
            hint = f"did you mean {shown}.{close}({self._sample(close)})?"
        return self._refuse(node, f"'{name}' is not an aggregate", hint)

    def bind(self, target: ast.expr, value: ast.expr) -> bool:
        """Returns whether an assignment gives an event of the window, or the most frequent values, a name: it is
        then known."""
        pick = self.pick(value)
        if pick is None or not isinstance(target, ast.Name):
            return False
        name = target.id
        if self._scope.locals[name] > 1:
            what = "an event of the window" if isinstance(pick, Pick) else "the most frequent values"
            hint = "use a name for each event" if isinstance(pick, Pick) else "use a name for each of them"
            raise self._refuse(target, f"'{name}' is {what} and is assigned more than once", hint)
        self._closed.picks[name] = pick
        self._closed.bound[name] = pick
        return True

    def picked(self, node: ast.expr) -> Pick | Top | None:
        """Returns the meaning of the node, under a name or not: an event of the window, or the most frequent values."""
        if isinstance(node, ast.Name):
            return self._closed.picks.get(node.id)
        return self.pick(node)

    def _top(self, node: ast.Call, owner: ast.Attribute) -> Top:
        (given,) = self._expressions.calls.arguments(node, _SEVERAL, 1, 1)
        count = self._int(given)
        if count is None or not 1 <= count <= TOP_MAX:
            hint = f"write {ast.unparse(owner)}.{_SEVERAL}(3)"
            raise self._refuse(given, f"{_SEVERAL} takes a constant number of values, from 1 to {TOP_MAX}", hint)
        return Top(ir.expr({"event": owner.attr}, self._scope.source.span(owner)), count)

    def pick(self, node: ast.expr) -> Pick | Top | None:
        """The event that ``w.argmax("price")`` or ``w.argmin("price")`` means, or what ``w.page.top(3)`` does; None of
        everything else."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return None
        owner = node.func.value
        if node.func.attr == _SEVERAL and isinstance(owner, ast.Attribute) and self._scope.is_event(owner.value):
            if owner.attr in self._closed.group:
                shown = ast.unparse(owner)
                raise self._refuse(node, f"'{shown}' is the same in all events of the group", f"write {shown}")
            return self._top(node, owner)
        function = _PICKS.get(node.func.attr)
        if function is None or not self._scope.is_event(node.func.value):
            return None
        (by,) = self._expressions.calls.arguments(node, node.func.attr, 1, 1)
        name = by.value if isinstance(by, ast.Constant) else None
        if not isinstance(name, str) or not name.isidentifier():
            hint = f'write {ast.unparse(node.func)}("{by.attr if isinstance(by, ast.Attribute) else "price"}")'
            raise self._refuse(by, f"{node.func.attr} takes the name of a field", hint)
        return Pick(function, ir.expr({"event": name}, self._scope.source.span(by)))
