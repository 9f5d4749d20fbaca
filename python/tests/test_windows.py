"""Windowed columns from Python: what is declared, what is said, what is refused."""

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
    assert {row["id"]: len(row["speed"]) for row in segments} == {1: 96, 2: 0}


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
