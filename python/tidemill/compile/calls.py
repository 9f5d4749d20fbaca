"""Calls in expressions: the built-in functions, and the methods of text and times."""

from __future__ import annotations

import ast
import builtins
import decimal
import math
from datetime import date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from .. import bodies, ir, times, types
from ..errors import CompileError, TidemillError
from ..literals import is_constant
from ..schema import Record
from .helpers import Helpers, is_helper
from .scope import ROW_OPERATIONS, UNKNOWN, Scope

if TYPE_CHECKING:
    from .expressions import Expressions

# Each with its least and greatest number of arguments.
_FUNCTIONS: dict[Any, tuple[str, int, int]] = {
    builtins.abs: ("abs", 1, 1),
    builtins.min: ("min", 2, 99),
    builtins.max: ("max", 2, 99),
    builtins.round: ("round", 1, 2),
    builtins.int: ("int", 1, 1),
    builtins.float: ("float", 1, 1),
    builtins.str: ("str", 1, 1),
    times.microseconds: ("microseconds", 1, 1),
    times.milliseconds: ("milliseconds", 1, 1),
    times.seconds: ("seconds", 1, 1),
    times.minutes: ("minutes", 1, 1),
    times.hours: ("hours", 1, 1),
    times.days: ("days", 1, 1),
    types.Decimal: ("decimal", 1, 2),
    math.floor: ("floor", 1, 1),
    math.ceil: ("ceil", 1, 1),
    math.trunc: ("trunc", 1, 1),
    math.sqrt: ("sqrt", 1, 1),
    math.fmod: ("fmod", 2, 2),
    math.exp: ("exp", 1, 1),
    math.log: ("log", 1, 2),
    math.log2: ("log2", 1, 1),
    math.log10: ("log10", 1, 1),
    math.pow: ("pow", 2, 2),
    math.sin: ("sin", 1, 1),
    math.cos: ("cos", 1, 1),
    math.tan: ("tan", 1, 1),
    math.atan2: ("atan2", 2, 2),
    math.hypot: ("hypot", 2, 2),
}
_METHODS = {
    "lower": ("lower", 0),
    "upper": ("upper", 0),
    "strip": ("strip", 0),
    "startswith": ("starts_with", 1),
    "endswith": ("ends_with", 1),
    "total_seconds": ("total_seconds", 0),
    "timestamp": ("total_seconds", 0),
    "total_microseconds": ("total_microseconds", 0),
}
_AGGREGATES = ("count", "sum", "mean", "min", "max", "distinct", "variance", "stddev", "pvariance", "pstddev")
_DURATIONS = {times.microseconds, times.milliseconds, times.seconds, times.minutes, times.hours, times.days}
_STATEMENTS = {bodies.require: "tm.require", bodies.abort: "tm.abort", bodies.emit: "tm.emit"}
_UNREPEATABLE = {"time", "random", "datetime", "uuid", "secrets", "os"}
_KNOWN = "allowed are abs, min, max, round, len, int, float, str, what tidemill offers, and plain functions of your own"
_KNOWN_MATH = "of math there are " + ", ".join(f.__name__ for f in _FUNCTIONS if f.__module__ == "math")
_METHODS_KNOWN = (
    "text has lower, upper, strip, startswith, endswith, find, replace, split, join, zfill; "
    "durations have total_seconds; times have weekday, isoweekday, isocalendar, date().isoformat, tz"
)


class Calls:
    """Translates the calls of one function."""

    def __init__(self, scope: Scope, expressions: Expressions) -> None:
        self._scope = scope
        self._expressions = expressions
        self.helpers = Helpers(expressions)

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def expression(self, node: ast.Call) -> ir.Expr:
        """A call whose value is used."""
        function = self._scope.static(node.func)
        if function is UNKNOWN:
            return self._method(node)
        if function is times.truncate:
            return self._expressions.dates.truncated(node)
        shown = ast.unparse(node.func)
        if _is_in(function, _DURATIONS) or function in (timedelta, datetime, decimal.Decimal):
            constant = self._constructed(node, function)
            if constant is not UNKNOWN:
                return self._expressions.constant(node, constant)
        if _is_in(function, _FUNCTIONS):
            return self._function(node, function, shown)
        if function is len:
            return self._length(node)
        if is_helper(function) and not _is_in(function, _STATEMENTS) and _module(function) not in _UNREPEATABLE:
            return self.helpers.value(node, function)
        raise self._unknown(node, function, shown)

    def _constructed(self, node: ast.Call, function: Any) -> Any:
        """The value of a call of constants, such as ``timedelta(minutes=5)``; else ``UNKNOWN``."""
        positional = [self._constant(a) for a in node.args]
        named = {k.arg: self._constant(k.value) for k in node.keywords if k.arg is not None}
        if len(named) < len(node.keywords) or any(a is UNKNOWN for a in (*positional, *named.values())):
            return UNKNOWN
        try:
            return function(*positional, **named)
        except (TypeError, ValueError, ArithmeticError, TidemillError) as error:
            raise self._refuse(node, f"{ast.unparse(node)} fails: {error}") from None

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._constant(node.operand)
            return -value if isinstance(value, (int, float)) else UNKNOWN
        value = self._scope.static(node)
        return value if is_constant(value) or isinstance(value, tzinfo) else UNKNOWN

    def arguments(self, node: ast.Call, shown: str, least: int, most: int) -> list[ast.expr]:
        """The positional arguments, if their number is right and there are no others."""
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                raise self._refuse(
                    argument, f"'*' in a call of {shown} cannot be compiled", "write the values one by one"
                )
        for keyword in node.keywords:
            name = f"'{keyword.arg}='" if keyword.arg else "'**'"
            raise self._refuse(keyword.value, f"{name} in a call of {shown} cannot be compiled", "leave it out")
        if not least <= len(node.args) <= most:
            count = f"{least}" if least == most else f"{least} or more" if most == 99 else f"{least} to {most}"
            raise self._refuse(node, f"{shown} takes {count} argument{'s' * (count != '1')}, not {len(node.args)}")
        return node.args

    def _function(self, node: ast.Call, function: Any, shown: str) -> ir.Expr:
        name, least, most = _FUNCTIONS[function]
        arguments = self.arguments(node, shown, least, most)
        if len(arguments) == 2 and name in ("round", "decimal"):
            scale = self._constant(arguments[1])
            if not isinstance(scale, int) or isinstance(scale, bool):
                raise self._refuse(arguments[1], f"the second argument of {shown} must be a constant int")
        if name == "decimal" and len(arguments) == 1 and not isinstance(self._constant(arguments[0]), str):
            hint = "write tm.Decimal('9.99') for a constant, tm.Decimal(n, 2) for an int"
            raise self._refuse(node, f"{shown} with one argument takes a constant text", hint)
        span = self._scope.source.span(node)
        date = self._expressions.dates.date_of(arguments[0]) if name == "str" else None
        if date is not None:
            return date
        operands = self._expressions.operands(arguments)
        if name == "log" and len(operands) == 2:
            of, base = (ir.call(name, [operand], span) for operand in operands)
            return ir.binary("div", of, base, span)
        return ir.call(name, operands, span)

    def _length(self, node: ast.Call) -> ir.Expr:
        (argument,) = self.arguments(node, "len", 1, 1)
        span = self._scope.source.span(node)
        rows = self._scope.scan(argument)
        if rows is not None:
            return ir.expr({"rows": rows}, span)
        field = self._scope.event_field(argument)
        if field is not None and self._scope.is_list(field):
            return ir.expr({"length": field}, span)
        split = self._expressions.texts.split(argument)
        if split is not None:
            return self._expressions.texts.count(split)
        return ir.call("len", [self._expressions.translate(argument)], span)

    def _method(self, node: ast.Call) -> ir.Expr:
        if not isinstance(node.func, ast.Attribute):
            raise self._refuse(node, "only functions with a name can be called", _KNOWN)
        name, owner = node.func.attr, node.func.value
        aggregates = self._expressions.aggregates
        asked = aggregates.call(node) if aggregates is not None else None
        asked = asked or self._expressions.texts.call(node) or self._expressions.dates.call(node)
        if asked is not None:
            return asked
        if self._scope.is_role(owner) and name in ROW_OPERATIONS:
            raise self._refuse(node, f"'{name}' has no value", "write it on a line of its own")
        window = self.window(node)
        if window is not None:
            return window
        if name not in _METHODS:
            raise self._refuse(node, f"the method '{name}' cannot be compiled", _METHODS_KNOWN)
        function, count = _METHODS[name]
        arguments = self.arguments(node, name, count, count)
        operands = self._expressions.operands([owner, *arguments])
        return ir.call(function, operands, self._scope.source.span(node))

    def window(self, node: ast.Call) -> ir.Expr | None:
        """An aggregate of a windowed column, ``row.column.mean()``, or of a part of it,
        ``row.column.window("5m").mean()``; None if the call is neither."""
        assert isinstance(node.func, ast.Attribute)
        name, owner = node.func.attr, node.func.value
        part: ir.WindowPart | None = None
        if (
            isinstance(owner, ast.Call)
            and isinstance(owner.func, ast.Attribute)
            and owner.func.attr in ("window", "last")
        ):
            if self.column(owner.func.value) is None:
                return None
            part = self._window_part(owner, owner.func.attr)
            owner = owner.func.value
        column = self.column(owner)
        if column is None or name not in (*_AGGREGATES, "add", "window", "last"):
            return None
        shown = ast.unparse(owner)
        if name == "add":
            raise self._refuse(node, "'add' has no value", "write it on a line of its own")
        if name not in _AGGREGATES:
            hint = f"ask for an aggregate: {ast.unparse(node)}.mean()"
            raise self._refuse(node, f"a part of '{shown}' is not a value", hint)
        self.arguments(node, name, 0, 0)
        asked: ir.Window = {"role": self._scope.roles[column[0]], "column": column[1], "part": part, "aggregate": name}
        return ir.expr({"window": asked}, self._scope.source.span(node))

    def column(self, node: ast.expr) -> tuple[str, str] | None:
        """Role and column of ``row.column``."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and self._scope.is_role(node.value):
            return node.value.id, node.attr
        return None

    def _window_part(self, node: ast.Call, kind: str) -> ir.WindowPart:
        (argument,) = self.arguments(node, kind, 1, 1)
        value = self._expressions.translate(argument)
        count: int | None = ir.constant(value, "int")
        if kind == "last":
            if count is None:
                raise self._refuse(argument, "last takes a constant int", "write last(10)")
            return {"last": count}
        if count is not None:
            return {"span": {"int": count}}
        text: str | None = ir.constant(value, "str")
        try:
            span = ir.constant(value, "duration") if text is None else times.parse_duration(text)
        except ValueError as error:
            raise self._refuse(argument, f"the span {error}") from None
        if span is None:
            hint = "write a text such as '5m', or an int where the event time is one"
            raise self._refuse(argument, "window takes a constant span", hint)
        return {"span": {"duration": span}}

    def _unknown(self, node: ast.Call, function: Any, shown: str) -> CompileError:
        if _is_in(function, _STATEMENTS):
            return self._refuse(node, f"'{shown}' has no value", "write it on a line of its own")
        if isinstance(function, type) and issubclass(function, Record):
            return self._refuse(node, "an event is not a value here", f"return it or emit it: tm.emit({shown}(...))")
        if function is bool:
            return self._refuse(
                node, "bool() cannot be compiled", "write the comparison: x != 0, x != '', x is not None"
            )
        if function is timedelta:
            hint = "write tm.seconds(n), tm.minutes(n) and so on"
            return self._refuse(node, "timedelta takes constants only", hint)
        if function is print:
            return self._refuse(node, "print() cannot be compiled", "emit what you want to see: tm.emit('log', {...})")
        if _module(function) in _UNREPEATABLE or getattr(function, "__self__", None) in (date, datetime):
            hint = "take it from the event: its time, or a field that the source fills"
            return self._refuse(node, f"'{shown}' would give another value in each run", hint)
        known = _KNOWN_MATH if _module(function) == "math" else _KNOWN
        return self._refuse(node, f"the function '{shown}' cannot be compiled", known)


def _is_in(value: object, known: Any) -> bool:
    """Returns whether a value is in a collection; a value without a hash never is."""
    try:
        return value in known
    except TypeError:
        return False


def _module(function: Any) -> str:
    module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return str(module).partition(".")[0]
