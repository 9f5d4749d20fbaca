"""Windows of events that come out of order: they are those of the events in order, without those that come too late."""

import random

import pytest
from test_windows_over import closes, session, sliding, tumbling

import tidemill as tm

LATENESS = 6


class Reading(tm.Event):
    at: int = tm.event_time()
    sensor: str
    value: int


def readings_of(seed, count=250):
    """Random readings around a clock that goes on, some of them later than may be, from times below 0 on."""
    rng = random.Random(seed)
    clock, readings = -250, []
    for value in range(count):
        clock += rng.choice([0, 1, 1, 2, rng.choice([0, 30])])
        delay = rng.choice([0, 0, 1, rng.randrange(LATENESS + 1), rng.randrange(20)])
        readings.append({"at": clock - delay, "sensor": rng.choice("abc"), "value": value})
    return readings


def parted(readings):
    """Those in time, in the order of their times, and those that come too late."""
    greatest, punctual, late = None, [], []
    for reading in readings:
        if greatest is not None and reading["at"] < greatest - LATENESS:
            late.append(reading)
            continue
        greatest = reading["at"] if greatest is None else max(greatest, reading["at"])
        punctual.append(reading)
    return sorted(punctual, key=lambda reading: reading["at"]), late


KINDS = [
    (tm.session(5), session(5)),
    (tm.session(12), session(12)),
    (tm.tumbling(10, origin=3), tumbling(10, 3)),
    (tm.sliding(15, every=5, origin=2), sliding(15, 5, 2)),
]


@pytest.mark.parametrize(("workers", "epoch"), [(1, "auto"), (1, 1), (2, 7), (2, "auto")])
@pytest.mark.parametrize(("over", "windows"), KINDS, ids=["session 5", "session 12", "tumbling", "sliding"])
def test_windows_are_those_of_the_events_in_order(over, windows, workers, epoch):
    for seed in range(4):
        readings = readings_of(seed)
        app = tm.App("disorder")
        source = app.source(Reading, lateness=LATENESS)

        @app.window(source, by="sensor", over=over)
        def asked(w):
            return {
                "sensor": w.sensor,
                "start": w.start,
                "end": w.end,
                "count": w.count(),
                "sum": w.value.sum(),
                "first": w.value.first(),
                "last": w.value.last(),
            }

        closed, late = app.collect(asked.closed), app.collect(source.late)
        app.run({source: readings}, workers=workers, epoch=epoch)
        punctual, too_late = parted(readings)
        assert len(too_late) > 10 and punctual != sorted(punctual, key=lambda reading: reading["value"])
        assert late.to_pylist() == too_late
        expected = [
            {
                "sensor": sensor,
                "start": start,
                "end": end,
                "count": len(inside),
                "sum": sum(reading["value"] for reading in inside),
                "first": inside[0]["value"],
                "last": inside[-1]["value"],
            }
            for end, start, sensor, inside in closes(punctual, lambda reading: reading["sensor"], windows)
        ]
        assert closed.to_pylist() == expected


@pytest.mark.parametrize("epoch", ["auto", 1, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_number_far_ahead_makes_the_rest_late_and_few_ticks(workers, epoch):
    """Numbers have no clock to be compared with, so a far one counts; what is late is kept, and ticks are bounded."""
    far = 10**15
    times = [0, 60, 120, far, 180, 240, 300]
    app = tm.App("far")
    source = app.source(Reading, lateness=100)
    ticks = app.every(60)

    @app.window(source, by="sensor", over=tm.tumbling(60))
    def counted(w):
        return {"start": w.start, "count": w.count()}

    passed = app.collect(ticks.map(lambda tick: {"at": tick.at}))
    closed, late = app.collect(counted.closed), app.collect(source.late)
    readings = [{"at": at, "sensor": "a", "value": at} for at in times]
    summary = app.run({source: readings}, workers=workers, epoch=epoch)
    assert closed.to_pylist() == [{"start": at // 60 * 60, "count": 1} for at in times[:4]]
    assert late.to_pylist() == readings[4:] and summary.late == 3
    assert 2 < len(passed.to_pylist()) <= 10_003
    assert sum(left.times for left in summary.left_out) > 10**12


@pytest.mark.parametrize("epoch", ["auto", 1])
def test_a_source_without_events_holds_nothing_back_once_it_has_ended(tmp_path, epoch):
    (tmp_path / "full.csv").write_text("at,sensor,value\n1,x,0\n5,x,0\n12,x,0\n", encoding="utf-8")
    (tmp_path / "empty.csv").write_text("at,sensor,value\n", encoding="utf-8")
    app = tm.App("beside")
    full = app.source(Reading, tm.csv(tmp_path / "full.csv"), name="full")
    app.source(Reading, tm.csv(tmp_path / "empty.csv"), name="empty")

    @app.window(full, by="sensor", over=tm.tumbling(10))
    def counted(w):
        return {"start": w.start, "count": w.count()}

    closed = app.collect(counted.closed)
    app.run(epoch=epoch)
    assert closed.to_pylist() == [{"start": 0, "count": 2}, {"start": 10, "count": 1}]
