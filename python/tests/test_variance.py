"""Variances and standard deviations of windows, against exact fractions and Python's statistics."""

import math
import random
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

import pytest

import tidemill as tm

Cents = Annotated[Decimal, tm.Decimal(9, 2)]


class Reading(tm.Event):
    at: int = tm.event_time()
    room: int
    heat: float
    visits: int
    cost: Cents
    draft: float | None


class Room(tm.Row):
    room: int = tm.key()
    heats: tm.Window[float] = tm.window(last=3)


def variance_of(values, less):
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    return sum((value - mean) ** 2 for value in exact) / (len(exact) - less)


def root(exact):
    """The float nearest to the root of a fraction."""
    if exact == 0:
        return 0.0
    scale = 2 ** (2 * 1200)
    near = math.isqrt(exact.numerator * scale // exact.denominator)
    # One more bit says that there is more below.
    more = exact.denominator * near**2 != exact.numerator * scale
    return float(Fraction(2 * near + more, 2 * 2**1200))


def variance(values, less):
    """The variance as a float, rounded once; None of too few values."""
    if len(values) <= less:
        return None
    if not all(math.isfinite(value) for value in values):
        return math.nan
    try:
        return float(variance_of(values, less))
    except OverflowError:
        return math.inf


def readings(rng, floats, count=80):
    def value():
        return floats(rng)

    at, events = 0, []
    for _ in range(count):
        at += rng.choice([0, 0, 1, 3, rng.choice([0, 30])])
        cost = Decimal(rng.randrange(-500, 500)).scaleb(-2)
        big = rng.choice([0, 0, 2**62])
        events.append(
            {
                "at": at,
                "room": rng.randrange(3),
                "heat": value(),
                "visits": rng.randrange(-9, 9) + big,
                "cost": cost,
                "draft": rng.choice([None, value()]),
            }
        )
    return events


FLOATS = [
    lambda rng: rng.uniform(-40.0, 40.0),
    lambda rng: rng.choice([1e200, -1e200, 1e-200, 3e-200, 0.0, -0.0, 5e-324, 1.7e308]),
    lambda rng: 1e15 + rng.randrange(3) / 8,
    lambda rng: rng.choice([1.0, 2.0, 4.0, math.nan, math.inf, -math.inf]) if rng.random() < 0.2 else rng.random(),
]
OVER = {
    "tumbling": tm.tumbling(10),
    "sliding": tm.sliding(12, every=4),
    "session": tm.session(3),
    "counting": tm.counting(4),
}


def windows_of(kind, events):
    """The events of each window, by room and start or end."""
    found: dict[tuple[int, int], list[dict[str, object]]] = {}
    if kind in ("tumbling", "sliding"):
        length, every = (10, 10) if kind == "tumbling" else (12, 4)
        for event in events:
            last = event["at"] // every * every
            for start in range(last, last - length, -every):
                found.setdefault((event["room"], start), []).append(event)
        return found
    for room in range(3):
        rows = [event for event in events if event["room"] == room]
        window: list[dict[str, object]] = []
        windows = [window]
        for event in rows:
            full = len(window) == 4 if kind == "counting" else window and event["at"] - window[-1]["at"] >= 3
            if full:
                window = []
                windows.append(window)
            window.append(event)
        found.update({(room, number): window for number, window in enumerate(windows) if window})
    return found


def same(a, b):
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("floats", range(len(FLOATS)))
@pytest.mark.parametrize("kind", OVER)
def test_windows_have_exact_variances(kind, floats):
    app = tm.App("rooms")
    source = app.source(Reading, name="readings")

    @app.window(source, by="room", over=OVER[kind])
    def spread(w):
        return {
            "room": w.room,
            "at": w.start,
            "n": w.count(),
            "heat": w.heat.variance(),
            "heat_p": w.heat.pvariance(),
            "visits": w.visits.variance(),
            "cost_p": w.cost.pvariance(),
            "cost": w.cost.variance(),
            "draft": w.draft.variance(),
            "draft_p": w.draft.pvariance(),
            "heat_s": w.heat.stddev(),
            "heat_ps": w.heat.pstddev(),
        }

    found = app.collect(spread.closed)
    events = readings(random.Random(floats), FLOATS[floats])
    app.run({source: events}, workers=2)
    windows = windows_of(kind, events)
    rows = found.to_pylist()
    assert len(rows) == len(windows)
    numbers = dict.fromkeys(range(3), 0)
    for row in rows:
        number = row["at"]
        if kind in ("session", "counting"):
            number, numbers[row["room"]] = numbers[row["room"]], numbers[row["room"]] + 1
        of = windows[row["room"], number]
        heats, costs, visits = ([event[name] for event in of] for name in ("heat", "cost", "visits"))
        drafts = [event["draft"] for event in of if event["draft"] is not None]
        assert row["n"] == len(of)
        assert same(row["heat"], variance(heats, 1)) and same(row["heat_p"], variance(heats, 0)), heats
        assert row["cost"] == variance(costs, 1) and row["cost_p"] == variance(costs, 0), costs
        assert row["visits"] == variance(visits, 1), visits
        assert same(row["draft"], variance(drafts, 1)) and same(row["draft_p"], variance(drafts, 0)), drafts
        if not all(math.isfinite(heat) for heat in heats):
            continue
        if len(heats) > 1:
            assert row["heat_s"] == root(variance_of(heats, 1))
        else:
            assert row["heat_s"] is None
        assert row["heat_ps"] == root(variance_of(heats, 0))


def test_whole_numbers_of_the_full_range():
    app = tm.App("counts")
    source = app.source(Reading)

    @app.window(source, over=tm.tumbling(10))
    def spread(w):
        return {"one": w.room.variance(), "all": w.room.pvariance()}

    found = app.collect(spread.closed)
    rooms = [2**63 - 1, -(2**63), 0, 2**62 + 1]
    rest = {"heat": 0.0, "visits": 0, "cost": Decimal("0.00"), "draft": None}
    app.run({source: [{"at": 1, "room": room, **rest} for room in rooms]})
    assert found.to_pylist() == [{"one": variance(rooms, 1), "all": variance(rooms, 0)}]


def test_the_last_values_of_a_column():
    app = tm.App("rooms")
    rooms, source = app.table(Room), app.source(Reading, name="readings")

    @app.transaction(source)
    def keep(ev, r=rooms.row("room", create=True)):
        r.heats.add(ev.heat)
        return {
            "room": ev.room,
            "variance": r.heats.variance(),
            "stddev": r.heats.stddev(),
            "two": r.heats.last(2).pvariance(),
        }

    found = app.collect(keep.committed)
    events = readings(random.Random(7), FLOATS[0])
    app.run({source: events})
    kept = {room: [] for room in range(3)}
    for event, row in zip(events, found.to_pylist(), strict=True):
        heats = kept[event["room"]]
        heats.append(event["heat"])
        last = heats[-3:]
        assert row["variance"] == variance(last, 1)
        if len(last) > 1:
            assert row["stddev"] == root(variance_of(last, 1))
            assert math.isclose(row["stddev"], statistics.stdev(last), rel_tol=1e-15)
        assert row["two"] == variance(heats[-2:], 0)
