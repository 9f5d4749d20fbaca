"""Days, weeks and months by the clock of a zone, as the plan has them.

The plan holds the changes of the clock from ``FIRST_YEAR`` to ``LAST_YEAR``, as this machine knows them. Before and
after these years the clock stays as it is at their beginning and end.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import cast

from . import ir
from .errors import PlanError
from .times import duration_to_microseconds, parse_duration
from .types import INT_MAX

__all__ = ["FIRST_YEAR", "LAST_YEAR", "is_calendar", "periods", "start", "truncation", "zone"]

FIRST_YEAR, LAST_YEAR = 1900, 2100

_UTC: ir.Zone = {"name": "UTC", "offset": 0, "changes": []}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND = timedelta(seconds=1)
_DAY = 86_400
_MICROSECONDS = 1_000_000
_ERA_DAYS, _ERA_MONTHS = 146_097, 4_800
_MONDAY = 4
"""The first Monday, in days from 1970."""

_LENGTH = re.compile(r"(\d+)\s*(d|w|mo)")


def is_calendar(length: object) -> bool:
    """Returns whether a length is one of a calendar, also without a zone: weeks and months."""
    match = _LENGTH.fullmatch(length.strip()) if isinstance(length, str) else None
    return match is not None and match[2] != "d"


def periods(length: object, tz: object) -> ir.Periods:
    """The periods of a text such as ``1d``, ``1w`` or ``1mo`` in a zone; without one, in UTC. Raises ``PlanError``."""
    match = _LENGTH.fullmatch(length.strip()) if isinstance(length, str) else None
    count = 0 if match is None else int(match[1])
    if match is None or not 0 < 7 * _DAY * _MICROSECONDS * count <= INT_MAX:
        hint = "in a zone windows are of whole days, weeks or months: write '1d', '1w' or '1mo', or leave tz= out"
        raise PlanError(f"{length!r} is not a length of a calendar", hint)
    return {"unit": _unit(count, match[2]), "zone": zone(tz)}


def zone(tz: object) -> ir.Zone:
    """The clock of a zone, given by its name, as a ``ZoneInfo`` or as ``timezone.utc``; without one, of UTC. Raises
    ``PlanError``."""
    return _UTC if tz in (None, timezone.utc, "UTC") else _zone(_name(tz))


def truncation(length: object, tz: object) -> ir.Periods:
    """The periods of any length without a zone, or of days, weeks or months in one. Raises ``PlanError``."""
    if tz is not None or is_calendar(length):
        return periods(length, tz)
    if not isinstance(length, (str, timedelta)):
        raise PlanError(f"the length {length!r} is neither a text nor a timedelta", "write a text such as '1h'")
    try:
        micros = parse_duration(length) if isinstance(length, str) else duration_to_microseconds(length)
    except ValueError as error:
        raise PlanError(f"the length {error}") from None
    if not 0 < micros <= INT_MAX:
        raise PlanError(f"the length {length!r} is out of range", "write a text such as '1h'")
    return {"unit": {"span": {"length": micros, "origin": 0}}, "zone": _UTC}


def start(of: ir.Periods, instant: int) -> int:
    """The first instant of the period that holds an instant: at which the clock shows its beginning or a later time."""
    clock = of["zone"]
    offsets = [clock["offset"], *(offset for _, offset in clock["changes"])]
    # The last local time that the clock shows before each change.
    before = [at - 1 + offset for (at, _), offset in zip(clock["changes"], offsets, strict=False)]
    count = bisect_right(clock["changes"], instant, key=lambda change: change[0])
    shown = max([instant + offsets[count], *before[max(count - 1, 0) : count]])
    begins = _begins(of["unit"], shown)
    count = bisect_left(before, begins)
    return max([begins - offsets[count], *(at for at, _ in clock["changes"][max(count - 1, 0) : count])])


def _begins(unit: ir.Unit, shown: int) -> int:
    """Returns the beginning of the period that a local time lies in."""
    span, months = cast(ir.SpanUnit, unit).get("span"), cast(ir.MonthsUnit, unit).get("months")
    if span is not None:
        return shown - (shown - span["origin"]) % span["length"]
    assert months is not None
    # A local time may be beyond the years of a datetime, so days and months are counted in eras of 400 years from 1970.
    era, day = divmod(shown // (_DAY * _MICROSECONDS), _ERA_DAYS)
    date = _EPOCH + timedelta(days=day)
    month = era * _ERA_MONTHS + (date.year - 1970) * 12 + date.month - 1
    era, month = divmod(month - month % months, _ERA_MONTHS)
    first = datetime(1970 + month // 12, month % 12 + 1, 1, tzinfo=timezone.utc)
    return (era * _ERA_DAYS + (first - _EPOCH).days) * _DAY * _MICROSECONDS


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
