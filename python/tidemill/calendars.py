"""Days, weeks and months by the clock of a zone, as the plan has them.

The plan holds the changes of the clock from ``FIRST_YEAR`` to ``LAST_YEAR``, as this machine knows them. Before and
after these years the clock stays as it is at their beginning and end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cache

from . import ir
from .errors import PlanError
from .types import INT_MAX

__all__ = ["FIRST_YEAR", "LAST_YEAR", "is_calendar", "periods"]

FIRST_YEAR, LAST_YEAR = 1900, 2100

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = timedelta(seconds=1)
_DAY = 86_400
_MICROSECONDS = 1_000_000
_MONDAY = 4
"""The first Monday, in days from 1970."""

_LENGTH = re.compile(r"(\d+)\s*(d|w|mo)")


def is_calendar(length: object) -> bool:
    """Whether a length is one of a calendar, also without a zone: weeks and months."""
    match = _LENGTH.fullmatch(length.strip()) if isinstance(length, str) else None
    return match is not None and match[2] != "d"


def periods(length: object, tz: object) -> ir.Periods:
    """The periods of a text such as ``1d``, ``1w`` or ``1mo`` in a zone; without one, in UTC. Raises ``PlanError``."""
    match = _LENGTH.fullmatch(length.strip()) if isinstance(length, str) else None
    count = 0 if match is None else int(match[1])
    if match is None or not 0 < 7 * _DAY * _MICROSECONDS * count <= INT_MAX:
        hint = "in a zone windows are of whole days, weeks or months: write '1d', '1w' or '1mo', or leave tz= out"
        raise PlanError(f"{length!r} is not a length of a calendar", hint)
    return {"unit": _unit(count, match[2]), "zone": _zone("UTC" if tz is None else _name(tz))}


def _unit(count: int, unit: str) -> ir.Unit:
    if unit == "mo":
        return {"months": count}
    day = _DAY * _MICROSECONDS
    if unit == "w":
        return {"span": {"length": 7 * day * count, "origin": _MONDAY * day}}
    return {"span": {"length": day * count, "origin": 0}}


def _name(tz: object) -> str:
    name = getattr(tz, "key", tz)
    if not isinstance(name, str):
        raise PlanError(f"{tz!r} is not a zone", "write its name: tz='Europe/Berlin'")
    return name


@cache
def _zone(name: str) -> ir.Zone:
    # Few programs need it, and it takes memory.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = "write a name such as 'Europe/Berlin'; a system without zones has them with the package tzdata"
        raise PlanError(f"no zone {name!r} is known", hint) from None
    first, last = (
        (datetime(year, 1, 1, tzinfo=timezone.utc) - _EPOCH) // _SECOND for year in (FIRST_YEAR, LAST_YEAR + 1)
    )

    def ahead(second: int) -> int:
        offset = (_EPOCH + second * _SECOND).astimezone(zone).utcoffset()
        assert offset is not None, "the zone of a time says how far it is ahead"
        return offset // _SECOND

    changes = [(at * _MICROSECONDS, ahead(at) * _MICROSECONDS) for at in _changes(ahead, first, last)]
    return {"name": name, "offset": ahead(first) * _MICROSECONDS, "changes": changes}


def _changes(ahead: Callable[[int], int], first: int, last: int) -> Iterator[int]:
    """The seconds at which a clock changes. It does not change twice in a day and is then as before."""
    at, now = first, ahead(first)
    while at < last:
        later = min(at + _DAY, last)
        then = ahead(later)
        if then != now:
            later = _first_change(ahead, at, later)
            yield later
            then = ahead(later)
        at, now = later, then


def _first_change(ahead: Callable[[int], int], low: int, high: int) -> int:
    """The first second at which a clock is not as it is at ``low``; it is not at ``high``."""
    now = ahead(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ahead(middle) == now else (low, middle)
    return high
