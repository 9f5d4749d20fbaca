"""Ticks of gaps in which there are too many: the first come, and the others are counted."""

import random
import subprocess
import sys

import pytest

import tidemill as tm


class Beat(tm.Event):
    at: int = tm.event_time()


def beating(period, origin):
    """An application that counts ticks, and what it uses."""
    app = tm.App("beats")
    beats = app.source(Beat)
    ticks = app.every(period, origin=origin)

    @app.transaction(ticks)
    def tick(ev):
        pass

    return app, beats


def ticks_by_definition(times, period, origin):
    """The ticks that come, and those that are left out: of each gap between two times the first 10,000 come."""
    come = left_out = 0
    shown = sorted(set(times))
    for before, time in zip(shown, shown[1:], strict=False):
        count = (time - origin) // period - (before - origin) // period
        come += min(count, 10_000)
        left_out += max(count - 10_000, 0)
    return come, left_out


def left_out_of(summary):
    return {of.stream: of.times for of in summary.left_out}


@pytest.mark.parametrize(("workers", "epoch"), [(1, "auto"), (2, 1), (3, 7)])
def test_ticks_of_long_gaps_are_counted(workers, epoch):
    rng = random.Random(workers)
    for gaps in ([0, 1, 9_999, 10_000], [3, 10_001, 30_000, 0, 2**40, 1]):
        at, times = rng.randrange(-50, 50), []
        for gap in rng.sample(gaps, len(gaps)):
            at += gap
            times.append(at)
        period, origin = rng.choice([1, 3, 10_000]), rng.randrange(3)
        come, left_out = ticks_by_definition(times, period, origin)
        app, beats = beating(period, origin)
        summary = app.run({beats: [{"at": at} for at in times]}, workers=workers, epoch=epoch)
        assert next(of.committed for of in summary.transactions if of.name == "tick") == come
        assert left_out_of(summary) == ({"ticks": left_out} if left_out else {})


GREATEST = 2**63 - 1


@pytest.mark.parametrize(("workers", "epoch"), [(1, "auto"), (2, 1)])
@pytest.mark.parametrize("period", [1, 7, 2**62, 2**63 - 1])
@pytest.mark.parametrize("less", [0, 1, 6, 7, 30])
def test_ticks_end_with_the_greatest_time(workers, epoch, period, less):
    times = [GREATEST - 100, GREATEST - less, GREATEST - less]
    app, beats = beating(period, 3)
    summary = app.run({beats: [{"at": at} for at in times]}, workers=workers, epoch=epoch)
    come, left_out = ticks_by_definition(times, period, 3)
    assert next(of.committed for of in summary.transactions if of.name == "tick") == come
    assert left_out_of(summary) == ({"ticks": left_out} if left_out else {})


def test_the_last_tick_of_all_comes_once_in_several_runs(tmp_path):
    state = tmp_path / "state"
    for run, (times, come) in enumerate([([GREATEST - 9, GREATEST - 2], 1), ([GREATEST - 2], 0), ([GREATEST], 0)]):
        app, beats = beating(7, 2)
        summary = app.run({beats: [{"at": at} for at in times]}, state=state)
        assert next(of.committed for of in summary.transactions if of.name == "tick") == come, run


def test_ticks_of_a_gap_between_two_runs_are_counted_once(tmp_path):
    times = [0, 5, 30_000, 30_001, 90_000]
    for pause in range(1, 5):
        state = tmp_path / str(pause)
        found = []
        for part in (times[:pause], times[pause:]):
            app, beats = beating(1, 0)
            summary = app.run({beats: [{"at": at} for at in part]}, state=state)
            found += left_out_of(summary).values()
        assert sum(found) == ticks_by_definition(times, 1, 0)[1]


class Item(tm.Row):
    id: int = tm.key()


class Sale(tm.Event):
    at: int = tm.event_time()
    item: int


def test_closes_of_rows_without_events_are_counted_too():
    app = tm.App("rows")
    items = app.table(Item, rows=[{"id": 1}])
    sales = app.source(Sale)

    @app.window(sales, by="item", over=tm.tumbling(1), every=items)
    def sold(w):
        return {"at": w.end, "sales": w.count()}

    found = app.collect(sold.closed)
    summary = app.run({sales: [{"at": at, "item": 1} for at in (0, 25_000)]})
    # One for each end up to 25,000, of which the first has an event; and that of the last event.
    assert len(found.to_pylist()) == 10_000 + 1
    assert left_out_of(summary) == {"sold.rows": 15_000}


def test_the_command_says_so(tmp_path):
    program = tmp_path / "beats.py"
    program.write_text(
        """
import tidemill as tm

class Beat(tm.Event):
    at: int = tm.event_time()

app = tm.App("beats")
beats = app.source(Beat, tm.csv("beats.csv"))
app.sink(app.every(1), tm.jsonl("ticks.jsonl"))
"""
    )
    (tmp_path / "beats.csv").write_text("at\n0\n1010000\n")
    ran = subprocess.run(
        [sys.executable, "-m", "tidemill", "run", "beats.py"], cwd=tmp_path, timeout=60, capture_output=True, text=True
    )
    assert "stream ticks: 1,000,000 ticks left out, in long gaps" in ran.stdout + ran.stderr, ran
