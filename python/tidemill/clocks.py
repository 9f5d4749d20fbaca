"""Sources of ticks of the machine's clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from . import ir
from .errors import PlanError
from .over import duration_value
from .schema import Event, RecordSchema, event_time, resolved_schema
from .stream import Source
from .times import Time

__all__ = ["check_times", "period_of", "tick_schema"]

_LEAST = 1_000
"""Microseconds."""


class Tick(Event):
    """A tick of a clock."""

    at: Time = event_time()


def tick_schema() -> RecordSchema:
    """The schema of a clock's events."""
    return resolved_schema(Tick)


def period_of(period: object) -> int:
    """Microseconds of a clock's period. Raises ``PlanError``."""
    if isinstance(period, int) and not isinstance(period, bool):
        raise PlanError(f"the period {period!r} of a clock has no unit", "write app.clock('1s')")
    units = cast(ir.DurationValue, duration_value(period, "clock", "a period"))["duration"]
    if units < _LEAST:
        raise PlanError(f"the period {period!r} of a clock is too short", "give a millisecond or more")
    return units


def check_times(sources: Iterable[Source[Any]], place: str) -> None:
    """Refuses a clock beside event times that are no times. Raises ``PlanError``."""
    for source in sources:
        field = source._schema.field(source._schema.event_time or "")
        if field is not None and str(field.type) == "int":
            message = f"a clock gives Times, and the event time '{field.name}' of '{source.name}' is an int"
            raise PlanError(message, f"declare '{field.name}' as tm.Time, or leave the clock out", place)
