"""How late an event may be, in the unit of its source's event time."""

from __future__ import annotations

from datetime import timedelta

from .errors import PlanError
from .schema import RecordSchema
from .times import duration_to_microseconds, parse_duration
from .types import INT_MAX

Lateness = str | timedelta | int
"""A text such as ``2s``, a ``timedelta``; a plain number for event times that are ints."""


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
