"""Parts of times, in UTC and in zones: ``ev.at.hour``, ``ev.at.tz("Europe/Berlin").weekday()``."""

from __future__ import annotations

import ast
from datetime import timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from .. import ir
from ..calendars import truncation, zone
from ..errors import CompileError, PlanError
from .scope import UNKNOWN

if TYPE_CHECKING:
    from .expressions import Expressions

_ATTRIBUTES = ("year", "month", "day", "hour", "minute", "second", "microsecond")
_METHODS = {"weekday": "weekday", "isoweekday": "iso_weekday"}
_ISO = ("iso_year", "iso_week", "iso_weekday")
_ISO_NAMES = {"year": "iso_year", "week": "iso_week", "weekday": "iso_weekday"}
_ZONES = ("tz", "astimezone")


class Dates:
    """Translates what one function asks of times."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._scope = expressions.scope

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def attribute(self, node: ast.Attribute) -> ir.Expr | None:
        """``time.year`` or ``time.isocalendar().week``; None of other attributes."""
        owner = _call_of(node.value, "isocalendar")
        if owner is not None:
            if node.attr not in _ISO_NAMES:
                message = f"isocalendar() has no '{node.attr}'"
                raise self._refuse(node, message, f"it has {', '.join(_ISO_NAMES)}")
            return self._part(node, _ISO_NAMES[node.attr], owner)
        return self._part(node, node.attr, node.value) if node.attr in _ATTRIBUTES else None

    def subscript(self, node: ast.Subscript) -> ir.Expr | None:
        """``time.isocalendar()[1]``; None of other subscripts."""
        owner = _call_of(node.value, "isocalendar")
        if owner is None:
            return None
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(index, int) or isinstance(index, bool) or index not in range(3):
            raise self._refuse(node, "isocalendar() has year, week and weekday", "write time.isocalendar().week")
        return self._part(node, _ISO[index], owner)

    def call(self, node: ast.Call) -> ir.Expr | None:
        """``time.weekday()``, ``time.date().isoformat()``; None of other calls."""
        function = node.func
        if not isinstance(function, ast.Attribute):
            return None
        name, owner = function.attr, function.value
        if name in _METHODS:
            self._no_arguments(node, name)
            return self._part(node, _METHODS[name], owner)
        date = _call_of(owner, "date") if name == "isoformat" else None
        if date is not None:
            self._no_arguments(node, name)
            return self._date_text(node, date)
        if name in ("date", "isocalendar") and not node.args:
            shown = ast.unparse(owner)
            hint = f"take its parts: {shown}.year; or its text: {shown}.date().isoformat()"
            if name == "isocalendar":
                hint = f"take one of its values: {shown}.isocalendar().week"
            raise self._refuse(node, f"{name}() is not a value here", hint)
        if name in _ZONES:
            hint = f"ask for a part of it: {ast.unparse(node)}.hour"
            raise self._refuse(node, "a time in a zone is not a value", hint)
        return None

    def date_of(self, node: ast.expr) -> ir.Expr | None:
        """The text of a date: of ``time.date()``; None of others."""
        date = _call_of(node, "date")
        return None if date is None else self._date_text(node, date)

    def _no_arguments(self, node: ast.Call, name: str) -> None:
        self._expressions.calls.arguments(node, name, 0, 0)

    def _part(self, node: ast.expr, part: str, owner: ast.expr) -> ir.Expr:
        clock, time = self._placed(owner)
        return self._of(part, clock, self._expressions.translate(time), self._scope.source.span(node))

    def _of(self, part: str, clock: ir.Zone, time: ir.Expr, span: ir.Span) -> ir.Expr:
        return ir.expr({"date_part": {"part": part, "zone": clock, "time": time}}, span)

    def _date_text(self, node: ast.expr, owner: ast.expr) -> ir.Expr:
        """Year, month and day, as ``2026-03-29``."""
        clock, where = self._placed(owner)
        span = self._scope.source.span(node)
        time = self._expressions.translate(where)

        def text(part: str, width: int) -> ir.Expr:
            digits = ir.call("str", [self._of(part, clock, time, span)], span)
            return ir.call("zfill", [digits, ir.literal({"int": width}, span)], span)

        joined, dash = text("year", 4), ir.literal({"str": "-"}, span)
        for part in ("month", "day"):
            joined = ir.binary("add", ir.binary("add", joined, dash, span), text(part, 2), span)
        return joined

    def _placed(self, node: ast.expr) -> tuple[ir.Zone, ast.expr]:
        """The zone and the time of ``time.tz("Europe/Berlin")``; UTC of other times."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ZONES:
            (argument,) = self._expressions.calls.arguments(node, node.func.attr, 1, 1)
            return self._zone(argument), node.func.value
        return zone(None), node

    def _zone(self, node: ast.expr) -> ir.Zone:
        """The zone that a name, a ``ZoneInfo``, or a call that makes one, means."""
        value = self._constant(node)
        if isinstance(node, ast.Call) and _is_zone_info(self._scope.static(node.func)) and len(node.args) == 1:
            value = self._constant(node.args[0])
        if value is UNKNOWN:
            raise self._refuse(node, "a zone is a constant", "write its name: time.tz('Europe/Berlin')")
        if value is None:
            hint = "write its name: time.tz('Europe/Berlin'); or leave it out, for UTC"
            raise self._refuse(node, "None is the zone of a machine", hint)
        try:
            return zone(value)
        except PlanError as error:
            raise self._refuse(node, error.message, error.hint) from None

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        value = self._scope.static(node)
        return value if isinstance(value, (str, tzinfo)) else UNKNOWN

    def truncated(self, node: ast.Call) -> ir.Expr:
        """``tm.truncate(time, "1d")``"""
        keywords = {k.arg: k.value for k in node.keywords}
        if len(node.args) != 2 or not keywords.keys() <= {"tz"}:
            hint = "write tm.truncate(time, '1d') or tm.truncate(time, '1d', tz='Europe/Berlin')"
            raise self._refuse(node, f"{ast.unparse(node)} cannot be compiled", hint)
        given = self._expressions.translate(node.args[1])
        text: str | None = ir.constant(given, "str")
        micros: int | None = ir.constant(given, "duration")
        if text is None and micros is None:
            raise self._refuse(node.args[1], "truncate takes a constant length", "write a text such as '1h'")
        length = text if micros is None else timedelta(microseconds=micros)
        tz = self._constant(keywords["tz"]) if "tz" in keywords else None
        if tz is UNKNOWN:
            raise self._refuse(keywords["tz"], "a zone is a constant", "write its name: tz='Europe/Berlin'")
        try:
            periods = truncation(length, tz)
        except PlanError as error:
            raise self._refuse(node, error.message, error.hint) from None
        time = ir.fitted(self._expressions.translate(node.args[0]), "time", "the first argument of tm.truncate")
        return ir.expr({"period": {"edge": "start", "periods": periods, "time": time}}, self._scope.source.span(node))


def _call_of(node: ast.expr, name: str) -> ast.expr | None:
    """Returns the object of a call of the method without arguments; None where the node is no such call."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    return node.func.value if is_call and not node.args and not node.keywords else None  # type: ignore[attr-defined]


def _is_zone_info(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, tzinfo) and value.__name__ == "ZoneInfo"
