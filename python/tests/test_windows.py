"""Windowed columns from Python: what is declared, what is said, what is refused."""

import math
import random
import statistics
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm


def at(seconds):
    return datetime(2024, 5, 1, 9, tzinfo=timezone.utc) + timedelta(seconds=seconds)


class Segment(tm.Row):
    id: int = tm.key()
    speed: tm.Window[float] = tm.window("5m", slide="1m")
    cars: tm.Window[str] = tm.window("5m", slide="1m", distinct=True)
    last: tm.Window[int] = tm.window(last=2)
    reports: int = 0


class Report(tm.Event):
    at: tm.Time = tm.event_time()
    segment: int
    car: str
    speed: float


EVENTS = [(0, "a", 10.0), (30, "b", 20.0), (60, "a", 60.0), (359, "c", -1.0), (359, "c", 30.0), (330, "a", 50.0)]


def run(workers, rows=None):
    app = tm.App("tolls")
    segments = app.table(Segment, rows=rows)
    reports = app.source(Report, lateness="2m", name="reports")

    @app.transaction(reports)
    def toll(ev, seg=segments.row("segment", create=True)):
        seg.speed.add(ev.speed)
        seg.cars.add(ev.car)
        seg.last.add(int(ev.speed))
        seg.reports += 1
        tm.require(ev.speed >= 0.0, "negative speed")
        return {
            "mean": seg.speed.mean(),
            "now": seg.speed.window("1m").count(),
            "fastest": seg.speed.window(tm.minutes(2)).max(),
            "cars": seg.cars.distinct(),
            "last": seg.last.sum(),
            "one": seg.last.last(1).mean(),
        }

    events = [{"at": at(seconds), "segment": 1, "car": car, "speed": speed} for seconds, car, speed in EVENTS]
    said, rejected = app.collect(toll.committed), app.collect(toll.aborted)
    app.run({"reports": events}, workers=workers)
    assert [row["reason"] for row in rejected.to_pylist()] == ["negative speed"]
    assert "seg.reports" in rejected.to_pylist()[0] and "seg.speed" not in rejected.to_pylist()[0]
    return said.to_pylist(), segments.to_pylist()


@pytest.mark.parametrize("workers", [1, 2])
def test_windows_move_with_the_events(workers):
    said, segments = run(workers)
    lines = [tuple(row.values()) for row in said]
    assert lines == [
        (10.0, 1, 10.0, 1, 10, 10.0),
        (15.0, 2, 20.0, 2, 30, 20.0),
        (30.0, 1, 60.0, 2, 80, 60.0),
        # The first minute is gone, and b with it; what came late stands in its place.
        (55.0, 1, 50.0, 1, 110, 50.0),
        (140 / 3, 2, 50.0, 2, 80, 30.0),
    ]
    (row,) = segments
    assert row["reports"] == 5


def test_rows_begin_with_empty_windows():
    said, segments = run(1, rows=[{"id": 1, "reports": 7}, {"id": 2}])
    assert said[0]["mean"] == 10.0
    assert {row["id"]: row["reports"] for row in segments} == {1: 12, 2: 0}
    assert {row["id"]: len(row["speed"]) for row in segments} == {1: 112, 2: 0}


class Measured(tm.Row):
    id: int = tm.key()
    recent: tm.Window[float] = tm.window(10, slide=5)
    last: tm.Window[float] = tm.window(last=7)
    counts: tm.Window[int] = tm.window(last=7)


class Measurement(tm.Event):
    at: int = tm.event_time()
    id: int
    value: float
    count: int


def measured(values, counts):
    """Sum and mean of the last two slices of five values, of the last seven, and the mean of the last seven counts."""
    app = tm.App("measures")
    rows = app.table(Measured)
    measurements = app.source(Measurement, name="measurements")

    @app.transaction(measurements)
    def measure(ev, row=rows.row("id", create=True)):
        row.recent.add(ev.value)
        row.last.add(ev.value)
        row.counts.add(ev.count)
        return {
            "recent": row.recent.sum(),
            "recent_mean": row.recent.mean(),
            "last": row.last.sum(),
            "last_mean": row.last.mean(),
            "counted": row.counts.mean(),
        }

    said = app.collect(measure.committed)
    pairs = enumerate(zip(values, counts, strict=True))
    events = [{"at": at, "id": 1, "value": value, "count": count} for at, (value, count) in pairs]
    app.run({"measurements": events})
    return [tuple(row.values()) for row in said.to_pylist()]


def test_sums_are_those_of_fsum():
    draw = random.Random(20)
    kinds = [
        lambda: draw.gauss(60.0, 20.0),
        lambda: draw.choice([0.1, 0.2, -0.3, 1e16, -1e16, 1.0, -0.0]),
        lambda: math.ldexp(draw.uniform(-1, 1), draw.randrange(-1080, 1010)),
        lambda: draw.choice([5e-324, -5e-324, 2.0**-28, -(2.0**71), 2.0**53, 1.0, 1e300, -1e300]),
    ]
    values = [draw.choice(kinds[at // 100 : at // 100 + 2])() for at in range(400)]
    counts = [draw.choice([draw.randrange(-100, 100), draw.randrange(-(2**60), 2**60)]) for _ in values]
    for at, line in enumerate(measured(values, counts)):
        recent = values[max(0, at // 5 * 5 - 5) : at + 1]
        last, counted = values[max(0, at - 6) : at + 1], counts[max(0, at - 6) : at + 1]
        expected = (
            math.fsum(recent),
            statistics.fmean(recent),
            math.fsum(last),
            statistics.fmean(last),
            sum(counted) / len(counted),
        )
        assert line == expected, at


def test_sums_where_fsum_fails():
    line = measured([1e308, 1e308, -1e308], [1, 2, 4])[-1]
    assert line[:2] == (1e308, 1e308 / 3)
    line = measured([1e308, 1e308, 1e308], [1, 2, 4])[-1]
    assert line[:2] == (math.inf, 1e308)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: tm.window(), "a window has a span or keeps the last values"),
        (lambda: tm.window("5m", last=3), "a window has a span or keeps the last values"),
        (lambda: tm.window(last=3, slide="1m"), "a window of the last values has no slide"),
        (lambda: tm.window("soon"), "the span 'soon' is not a duration"),
        (lambda: tm.window(1.5), "1.5 is not a span"),
    ],
)
def test_spans_that_are_none(declare, message):
    with pytest.raises(tm.SchemaError, match=message):
        declare()


def test_declarations_that_do_not_fit():
    with pytest.raises(tm.SchemaError, match=r"Bare\.speed is a window without a span"):

        class Bare(tm.Row):
            speed: tm.Window[float]

    with pytest.raises(tm.SchemaError, match=r"Plain\.speed is declared with tm\.window"):

        class Plain(tm.Row):
            speed: float = tm.window("5m")

    with pytest.raises(tm.SchemaError, match=r"Happened\.speed is a window, which events cannot hold"):

        class Happened(tm.Event):
            speed: tm.Window[float] = tm.window("5m")


def test_a_window_is_asked_in_bodies_only():
    with pytest.raises(tm.SchemaError, match="'mean\\(\\)' has a meaning only inside of a transaction body"):
        tm.Window().mean()
