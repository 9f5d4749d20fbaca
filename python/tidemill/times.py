"""Instants and durations: microseconds underneath, ``datetime`` and ``timedelta`` on the surface.

The functions here mean the same inside a compiled body and outside of it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo

from .errors import PlanError

__all__ = [
    "Time",
    "days",
    "hours",
    "microseconds",
    "milliseconds",
    "minutes",
    "seconds",
    "truncate",
]

Time = datetime
"""The type of an instant: microseconds, UTC. A ``datetime`` without a zone is taken as UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|min|m|h|d)")


def microseconds(n: int) -> timedelta:
    """A duration of ``n`` microseconds."""
    return timedelta(microseconds=n)


def milliseconds(n: float) -> timedelta:
    """A duration of ``n`` milliseconds."""
    return timedelta(milliseconds=n)


def seconds(n: float) -> timedelta:
    """A duration of ``n`` seconds."""
    return timedelta(seconds=n)


def minutes(n: float) -> timedelta:
    """A duration of ``n`` minutes."""
    return timedelta(minutes=n)


def hours(n: float) -> timedelta:
    """A duration of ``n`` hours."""
    return timedelta(hours=n)


def days(n: float) -> timedelta:
    """A duration of ``n`` days of 24 hours."""
    return timedelta(days=n)


def truncate(time: datetime, length: str | timedelta, tz: str | tzinfo | None = None) -> datetime:
    """The start of the period that holds a time: of a length such as ``15m`` or ``1h``, from 1970 on; with ``tz=``, the
    name of a zone, of days (``1d``), weeks from Monday (``1w``) or months (``1mo``) by its clock, as windows of a
    calendar have them. Without ``tz=`` weeks and months are those of UTC.

    Raises ``PlanError`` where there are no such periods, and where one begins before the year 1.
    """
    from .calendars import start, truncation

    try:
        begun = time_of_microseconds(start(truncation(length, tz), time_to_microseconds(time)))
    except OverflowError:
        raise PlanError(f"the period of {time} begins before the year 1", "give a later time") from None
    return begun if time.tzinfo is not None else begun.replace(tzinfo=None)


def time_to_microseconds(value: datetime) -> int:
    """Microseconds since 1970 UTC. Exact; no float is involved. Raises ``ValueError`` for pandas' ``NaT``."""
    if value != value:
        raise ValueError(f"{value} is not an instant")
    aware = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // _MICROSECOND


def time_of_microseconds(value: int) -> datetime:
    """The instant of so many microseconds since 1970 UTC, with its zone. Raises ``OverflowError`` beyond its years."""
    return _EPOCH + value * _MICROSECOND


def duration_to_microseconds(value: timedelta) -> int:
    """Microseconds of a duration. Exact."""
    return value // _MICROSECOND


def parse_duration(text: str) -> int:
    """Microseconds of a text such as ``2s``, ``500ms``, ``5m``, ``1h``, ``1d``.

    Raises ``ValueError`` where it is none.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a whole number and us, ms, s, m, h or d, such as '2s'")
    return int(match[1]) * _UNITS[match[2]]
