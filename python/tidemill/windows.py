"""Windowed columns: rows that remember the values that were added to them recently."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from . import ir
from .errors import SchemaError
from .times import duration_to_microseconds, parse_duration
from .types import ScalarType

__all__ = ["Window", "WindowSpec", "WindowType", "window"]

T = TypeVar("T")

Span = str | timedelta | int
"""A text such as ``5m``, a ``timedelta``; a plain number where the event time is an int."""


class Window(Generic[T]):
    """The type of a windowed column, such as ``speed: tm.Window[float] = tm.window("5m")``.

    What is declared here is what a transaction's body may do with the column.
    """

    def add(self, value: T) -> None:
        """Adds a value at the event's time."""
        raise _body_only("add()")

    def window(self, span: Span) -> Window[T]:
        """The part of the last ``span``, a whole number of slides."""
        raise _body_only("window()")

    def last(self, count: int) -> Window[T]:
        """The last ``count`` values, of a window that keeps the last values."""
        raise _body_only("last()")

    def count(self) -> int:
        """Returns the number of values."""
        raise _body_only("count()")

    def sum(self) -> T:
        """Their sum, 0 of none. Aborts where it does not fit."""
        raise _body_only("sum()")

    def mean(self) -> Any:
        """Their mean: a float, of decimals a decimal of the same scale. None of none."""
        raise _body_only("mean()")

    def min(self) -> T | None:
        """The least. None of none."""
        raise _body_only("min()")

    def max(self) -> T | None:
        """The greatest. None of none."""
        raise _body_only("max()")

    def distinct(self) -> int:
        """Returns the number of different values."""
        raise _body_only("distinct()")

    def variance(self) -> float | None:
        """The variance of a sample, as ``statistics.variance``: of a window that keeps the last values. None of one."""
        raise _body_only("variance()")

    def stddev(self) -> float | None:
        """The root of ``variance()``, as ``statistics.stdev``."""
        raise _body_only("stddev()")

    def pvariance(self) -> float | None:
        """The variance of all there is, as ``statistics.pvariance``: of a window that keeps the last values."""
        raise _body_only("pvariance()")

    def pstddev(self) -> float | None:
        """The root of ``pvariance()``, as ``statistics.pstdev``."""
        raise _body_only("pstddev()")


@dataclass(frozen=True)
class WindowSpec:
    """The specification that ``window()`` leaves in a class body: the plan's ``WindowDef``."""

    _definition: ir.WindowDef
    _was: str | None = None
    """The column's name in an earlier version of the schema."""


@dataclass(frozen=True)
class WindowType:
    """A windowed column's type: that of its values."""

    value: ScalarType

    def __str__(self) -> str:
        return f"Window[{self.value}]"


def window(
    span: Span | None = None,
    *,
    slide: Span | None = None,
    distinct: bool = False,
    last: int | None = None,
    was: str | None = None,
) -> Any:
    """Which of the values added to a column are kept.

    ``tm.window("5m")`` keeps count, sum, least and greatest of the values of the last five minutes, as of the
    event's time: of times t with now - 5m < t <= now. With ``slide="1m"`` the window moves on by whole minutes:
    it is the minute of the event and the four before it, and no more than five summaries are kept.
    ``distinct=True`` keeps the distinct values instead. ``tm.window(last=10)`` keeps the last ten values.
    ``was`` is as of ``tm.column``.
    """
    if (span is None) == (last is None):
        raise SchemaError("a window has a span or keeps the last values", 'write tm.window("5m") or tm.window(last=10)')
    if last is not None:
        if slide is not None or distinct:
            raise SchemaError("a window of the last values has no slide and keeps all of them", "leave out the rest")
        if not isinstance(last, int) or isinstance(last, bool):
            raise SchemaError(f"last={last!r} is not a number of values", "write tm.window(last=10)")
        return WindowSpec({"last": last}, was)
    assert span is not None
    slide_value = None if slide is None else span_value(slide)
    return WindowSpec({"span": {"span": span_value(span), "slide": slide_value, "distinct": bool(distinct)}}, was)


def span_value(span: Span) -> ir.Value:
    """The plan's value of a span. Raises ``SchemaError``."""
    if isinstance(span, int) and not isinstance(span, bool):
        return {"int": span}
    try:
        if isinstance(span, str):
            return {"duration": parse_duration(span)}
        if isinstance(span, timedelta):
            return {"duration": duration_to_microseconds(span)}
    except ValueError as error:
        raise SchemaError(f"the span {error}") from None
    raise SchemaError(f"{span!r} is not a span", "write a text such as '5m', or an int where the event time is one")


def _body_only(what: str) -> SchemaError:
    return SchemaError(f"'{what}' has a meaning only inside of a transaction body")
