"""The lateness of events, in the unit of their source's event time; other durations of sources."""

from __future__ import annotations

from datetime import datetime, timedelta

from .errors import PlanError
from .ir import Ahead
from .schema import MISSING, RecordSchema
from .times import duration_to_microseconds, parse_duration, time_to_microseconds
from .types import INT_MAX

Lateness = str | timedelta | int
"""A text such as ``2s``, a ``timedelta``; a plain number for event times that are ints."""

Duration = str | timedelta
"""A text such as ``30s``, or a ``timedelta``."""

KEY = "idempotency_key"
"""The name under which a call gives its key."""

KEYS_MAX = 1 << 30
"""The number of keys that may be kept at a time."""


def lateness_of(value: Lateness, schema: RecordSchema, place: str) -> int:
    """Microseconds for a ``tm.Time``, the event time's own unit for an int. Raises ``PlanError``."""
    field = schema.field(schema.event_time or "")
    units = 0
    if isinstance(value, int) and not isinstance(value, bool):
        units = value
        if value and field is not None and str(field.type) != "int":
            raise PlanError(f"the lateness {value} has no unit", "write a text such as '2s'", place)
    elif isinstance(value, (str, timedelta)):
        try:
            units = parse_duration(value) if isinstance(value, str) else duration_to_microseconds(value)
        except ValueError as error:
            raise PlanError(f"the lateness {error}", "", place) from None
        if units and field is not None and str(field.type) == "int":
            message = f"the lateness {value!r} is a duration but the event time '{field.name}' is an int"
            raise PlanError(message, "write a number in the unit of the event time", place)
    else:
        raise PlanError(f"the lateness {value!r} is not a duration", "write a text such as '2s'", place)
    if units and field is None:
        hint = f"mark a field of {schema.name} with tm.event_time(), or leave lateness out"
        raise PlanError("a lateness without an event time", hint, place)
    if not 0 <= units <= INT_MAX:
        raise PlanError(f"the lateness {value!r} is out of range", "", place)
    return units


def idle_of(value: Duration | None, schema: RecordSchema, place: str) -> int | None:
    """Microseconds of the clock. Raises ``PlanError``."""
    if value is None:
        return None
    if schema.event_time is None:
        raise PlanError("idle without an event time", "a source without one holds no other back: leave idle out", place)
    return _microseconds(value, "idle", "30s", place)


def ahead_of(value: Duration | None, schema: RecordSchema, place: str) -> Ahead | None:
    """Returns how far ahead of the clock events may be, where that is declared. Raises ``PlanError``."""
    if value is MISSING:
        return None
    if value is None:
        return "unbounded"
    field = schema.field(schema.event_time or "")
    if field is None or str(field.type) == "int":
        message = "ahead without an event time that is a tm.Time"
        raise PlanError(message, "only a tm.Time is compared with the clock: leave ahead out", place)
    return {"most": _microseconds(value, "ahead", "1d", place)}


def remember_of(
    value: Duration | None, keys: int | None, schema: RecordSchema, place: str
) -> tuple[int, int | None] | None:
    """For how long keys are kept, in microseconds of the clock, and how many, if that is said. Raises ``PlanError``."""
    if schema.field(KEY) is not None:
        raise PlanError(f"a field '{KEY}' of calls", "calls give their key under this name: rename it", place)
    if value is None:
        if keys is not None:
            raise PlanError("keys without remember", 'say for how long they are kept: remember="24h"', place)
        return None
    if keys is not None:
        if not isinstance(keys, int) or isinstance(keys, bool):
            raise PlanError(f"keys {keys!r} is not a number", "write how many are kept: keys=50_000_000", place)
        if not 0 < keys <= KEYS_MAX:
            raise PlanError(f"keys {keys} is out of range", f"give a number from 1 to {KEYS_MAX:,}", place)
    return _microseconds(value, "remember", "24h", place), keys


def _microseconds(value: Duration, name: str, example: str, place: str) -> int:
    if not isinstance(value, (str, timedelta)):
        raise PlanError(f"{name} {value!r} is not a duration", f"write a text such as '{example}'", place)
    try:
        units = parse_duration(value) if isinstance(value, str) else duration_to_microseconds(value)
    except ValueError as error:
        raise PlanError(f"{name} {error}", "", place) from None
    if not 0 < units <= INT_MAX:
        raise PlanError(f"{name} {value!r} is out of range", "", place)
    return units


def mark_of(value: object, schema: RecordSchema, place: str) -> int:
    """A time as the event time of a schema has it: microseconds since 1970 UTC, or an int. Raises ``PlanError``."""
    field = schema.field(schema.event_time or "")
    if field is None:
        raise PlanError("it has no event time", "nothing waits for its events: leave the call out", place)
    if str(field.type) == "int" and isinstance(value, int) and not isinstance(value, bool):
        if not -INT_MAX <= value <= INT_MAX:
            raise PlanError(f"{value} is out of range", "", place)
        return value
    if str(field.type) != "int" and isinstance(value, datetime):
        return time_to_microseconds(value)
    wanted = "an int" if str(field.type) == "int" else "a datetime"
    raise PlanError(f"{value!r} is not a time of '{field.name}'", f"give {wanted}", place)
