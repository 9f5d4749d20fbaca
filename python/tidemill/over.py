"""Windows over streams: which windows a stream's events fall into, and the groups of events that have windows of their
own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from . import ir
from .calendars import is_calendar, periods
from .errors import PlanError
from .names import type_name
from .times import duration_to_microseconds, parse_duration
from .types import INT_MAX

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from .schema import RecordSchema

__all__ = [
    "By",
    "Field",
    "Length",
    "Windows",
    "counting",
    "duration_value",
    "expiry",
    "offset",
    "session",
    "sliding",
    "tumbling",
]

Length = str | timedelta | int
"""A text such as ``10s``, a ``timedelta``; a plain number where the event time is an int."""

Field = str | Callable[..., Any]
"""The name of a field of the stream's events, or a function of the event."""

By = Field | tuple[str, ...] | list[str] | Mapping[str, Field]
"""The group of an event: a field, several fields, a function of the event, or each part by its name."""

START, END = "start", "end"
"""The fields of a close beside the parts of its group."""


@dataclass(frozen=True)
class Windows:
    """Which windows each group of events has: what ``tm.tumbling`` and its kin make. It is given as ``over=`` to
    ``app.window``."""

    _definition: ir.WindowsDef
    _early: ir.DurationValue | ir.IntValue | None = None
    """The interval at which a window gives results before it closes."""

    def __repr__(self) -> str:
        (kind,) = self._definition
        return f"<{kind} windows>"


def tumbling(
    length: Length, *, origin: Length = 0, tz: str | ZoneInfo | None = None, early: Length | None = None
) -> Windows:
    """Windows of a length, one after the other: ``[k * length, (k + 1) * length)`` of event time, from 1970 UTC or 0.

    ``origin`` shifts them: ``tm.tumbling("1d", origin="6h")`` are days that begin at six. With ``tz``, the name of a
    zone, they are days, weeks or months of its calendar: ``tm.tumbling("1d", tz="Europe/Berlin")`` are days from one
    midnight of Berlin to the next; ``"1w"`` begins on Monday, and ``"1mo"`` on the first of a month. Without ``tz``
    weeks and months are those of UTC. ``early``, a part of the length: how often a window gives a result before it
    closes, on ``.early``. Raises ``PlanError``.
    """
    each = None if early is None else duration_value(early, "tumbling", "a distance of early results")
    if tz is not None or is_calendar(length):
        if origin != 0:
            raise PlanError(
                "windows of a calendar have no origin", "leave origin= out, or tz=, and give a length in days"
            )
        return Windows({"calendar": periods(length, tz)}, each)
    value = duration_value(length, "tumbling", "a length")
    return Windows({"tumbling": {"length": value, "origin": offset(origin, value, "tumbling")}}, each)


def sliding(length: Length, *, every: Length, origin: Length = 0, early: Length | None = None) -> Windows:
    """Windows of a length, of which one begins ``every`` so often: an event is in ``length / every`` of them.

    ``every`` divides the length. ``origin`` is as of ``tm.tumbling``. ``early``, a part of ``every``: how often the
    window that closes next gives a result before it does, on ``.early``. Raises ``PlanError``.
    """
    value, slide = duration_value(length, "sliding", "a length"), duration_value(every, "sliding", "a slide")
    each = None if early is None else duration_value(early, "sliding", "a distance of early results")
    return Windows({"sliding": {"length": value, "every": slide, "origin": offset(origin, value, "sliding")}}, each)


def session(gap: Length) -> Windows:
    """Windows of events that follow each other by less than ``gap``.

    A window begins with an event at or beyond the last event + ``gap``, and ends at its last event + ``gap``.
    Raises ``PlanError``.
    """
    return Windows({"session": {"gap": duration_value(gap, "session", "a gap")}})


def counting(count: int) -> Windows:
    """Windows of so many events of the group, one after the other. Raises ``PlanError``."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= INT_MAX:
        raise PlanError(f"{count!r} is not a number of events", "write tm.counting(100)")
    return Windows({"counting": {"count": count}})


def duration_value(length: object, function: str, what: str) -> ir.DurationValue | ir.IntValue:
    """The plan's value of a length of event time. Raises ``PlanError``."""
    if isinstance(length, int) and not isinstance(length, bool):
        return {"int": _in_range(length, length, what)}
    try:
        if isinstance(length, str):
            return {"duration": _in_range(parse_duration(length), length, what)}
        if isinstance(length, timedelta):
            return {"duration": _in_range(duration_to_microseconds(length), length, what)}
    except ValueError as error:
        raise PlanError(f"{what} of {function} {error}") from None
    hint = f"write tm.{function}('10s'), or an int where the event time is one"
    hints = {
        "every": "write app.every('1m')",
        "batch": "write batch('1s'), or batch(over=60) where the event time is an int",
        "clock": "write app.clock('1s')",
        "expire": "write expire='15m', an int where event times are ints, or the name of a column of event times",
        "within": "write within='1h', or an int where the event time is one",
    }
    raise PlanError(f"{length!r} is not {what}", hints.get(function, hint))


def expiry(expire: object, schema: RecordSchema, place: str) -> ir.ExpireAfter | ir.ExpireAt | None:
    """The time at which rows expire: so long after their last write, or that in a column. Raises ``PlanError``."""
    if expire is None:
        return None
    if isinstance(expire, str) and (expire.isidentifier() or schema.field(expire) is not None):
        if schema.field(expire) is None:
            columns = ", ".join(field.name for field in schema.fields)
            hint = f"write a length such as expire='15m', or a column: {columns}"
            raise PlanError(f"its rows expire by '{expire}', which is no column", hint, place)
        return {"at": expire}
    try:
        return {"after": duration_value(expire, "expire", "a length")}
    except PlanError as error:
        raise PlanError(error.message, error.hint, place) from None


def _in_range(units: int, given: object, what: str) -> int:
    if not 0 < units <= INT_MAX:
        raise PlanError(f"{given!r} is not {what}", "it is greater than 0, and fits 64 bits")
    return units


def offset(origin: object, length: ir.DurationValue | ir.IntValue, function: str) -> int:
    """An origin in the unit of a length; 0 has every unit. Raises ``PlanError``."""
    if isinstance(origin, int) and not isinstance(origin, bool) and (origin == 0 or "int" in length):
        units = origin
    elif isinstance(origin, (str, timedelta)) and "duration" in length:
        try:
            units = parse_duration(origin) if isinstance(origin, str) else duration_to_microseconds(origin)
        except ValueError as error:
            raise PlanError(f"the origin of {function} {error}") from None
    else:
        unit = "an int, as the length is" if "int" in length else "a text such as '6h', or a timedelta"
        raise PlanError(f"{origin!r} is not an origin of {function}", f"give {unit}")
    if not -INT_MAX <= units <= INT_MAX:
        raise PlanError(f"the origin {origin!r} is out of range")
    return units


def parts_of(by: By | None, place: str) -> dict[str, Field]:
    """The parts of a group by their names. Raises ``PlanError``."""
    parts = _named(by, place)
    for name, part in parts.items():
        if isinstance(part, str) and not part.isidentifier():
            hint = "write by='city', or a function of the event: by=lambda e: ..."
            raise PlanError(f"{part!r} is not the name of a field", hint, place)
        if not isinstance(name, str) or not name.isidentifier():
            raise PlanError(f"{name!r} is not a name of a part of the group", "write a name such as 'city'", place)
        if name in (START, END):
            hint = f"give it another name: by={{'{name}_of': '{name}'}}"
            raise PlanError(f"'{name}' is the {name} of the window and cannot be a part of the group", hint, place)
        if not isinstance(part, str) and not callable(part):
            hint = "write the name of a field, or a function of the event"
            raise PlanError(f"{part!r} is not a part of a group", hint, place)
    return parts


def _named(by: By | None, place: str) -> dict[str, Field]:
    if by is None:
        return {}
    if isinstance(by, Mapping):
        return dict(by)
    if isinstance(by, str):
        return {by: by}
    if isinstance(by, (tuple, list)):
        for i, name in enumerate(by):
            if not isinstance(name, str):
                hint = "give what is computed a name: by={'city': 'city', 'big': lambda e: ...}"
                raise PlanError(f"{name!r} is not the name of a field", hint, place)
            if name in by[:i]:
                raise PlanError(f"'{name}' is twice in the group", "write it once", place)
        return {name: name for name in by}
    if callable(by):
        name = getattr(by, "__name__", "")
        return {name if name.isidentifier() else "key": by}
    hint = "write by='city', by=('city', 'street'), or by=lambda e: ..."
    raise PlanError(f"{type_name(by)} does not make groups", hint, place)
