"""Sources whose files are splits: read side by side, joined, followed, refused."""

import json
import subprocess
import sys

import pytest
from server_process import until

import tidemill as tm


class Seen(tm.Row):
    id: int = tm.key()
    value: int = 0


class Tick(tm.Event):
    at: int = tm.event_time()
    n: int


class Sum(tm.Event):
    n: int
    value: int


HEADER = "at,n\n"
SILENT = "1500ms"
"""The time after which a file is silent: longer than a loaded machine keeps a reader from one that has records."""


def csv(path, *rows):
    path.write_text(HEADER + "".join(f"{at},{n}\n" for at, n in rows))


def grow(path, *rows):
    with path.open("a") as file:
        file.write("".join(f"{at},{n}\n" for at, n in rows))


def parquet(path, *rows):
    app = tm.App("write")
    app.sink(app.source(Tick, name="ticks"), tm.parquet(path))
    app.run({"ticks": [{"at": at, "n": n} for at, n in rows]})


def application(connector, out, lateness=0, idle=None):
    """Each transaction depends on all before it."""
    app = tm.App("splits")
    sums = app.table(Seen, name="sums")
    ticks = app.source(Tick, connector, name="ticks", lateness=lateness, idle=idle)

    @app.transaction(ticks)
    def add(ev, row=sums.row(lambda ev: ev.n % 1, create=True)) -> Sum:
        row.value = (row.value * 31 + ev.n) % 1_000_003
        return Sum(n=ev.n, value=row.value)

    app.sink(add.committed, tm.jsonl(out))
    app.sink(ticks.late, tm.jsonl(out.with_name("late.jsonl")))
    app.sink(ticks.bad, tm.jsonl(out.with_name("bad.jsonl")))
    return app


def order(out):
    """The numbers in the order in which they were processed, and those that came too late."""
    late = out.with_name("late.jsonl")
    numbers = [[json.loads(line)["n"] for line in file.read_text().splitlines()] for file in (out, late)]
    return tuple(numbers)


def command(*arguments, code=0):
    line = [sys.executable, "-m", "tidemill", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def verified(state, savepoint):
    """Returns the number of events that were run again by the reference interpreter, with the same results."""
    found = json.loads(command("verify", state, "--from", savepoint, "--json"))
    assert found["tables_compared"], found
    return found["events"]


def test_files_are_read_side_by_side(tmp_path):
    csv(tmp_path / "b.csv", (1, 10), (4, 11), (9, 12), (3, 13))
    csv(tmp_path / "a.csv", (2, 20), (4, 21), (7, 22))
    csv(tmp_path / "c.csv", (4, 30), (5, 31))
    out = tmp_path / "out.jsonl"
    summary = application(tm.csv(tmp_path / "*.csv", splits=True), out).run()
    # At 4 by the files; 3 is late in its own file.
    assert order(out) == ([10, 20, 21, 11, 30, 31, 22, 12], [13])
    assert [(s.events, s.late) for s in summary.sources] == [(8, 1)]


def test_late_and_bad_records_come_in_the_order_of_their_positions(tmp_path):
    # Each stands where its file has come to: at 9, 9 and 20; at 4, 4 and 15; at 15.
    a = [(9, 1), (3, 2), ("x", 3), (20, 4), (19, 5)]
    b = [(4, 11), (1, 12), ("x", 13), (15, 14), (14, 15)]
    c = [(15, 21), (2, 22), ("x", 23)]
    files = dict(zip("abc", (a, b, c), strict=True))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    app = application(tm.csv(tmp_path / "*.csv", splits=True), out)
    bad = lambda: [json.loads(line)["record"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    for count in (2, 3, 5):
        for name, rows in files.items():
            csv(tmp_path / f"{name}.csv", *rows[:count])
        app.run(state=state)
        if count == 2:
            # Events after 4 wait for b.csv.
            assert order(out) == ([11], [12])
    app.run(state=state, final=True)
    assert order(out) == ([11, 1, 14, 21, 4], [12, 2, 15, 22, 5])
    assert bad() == ["x,13", "x,3", "x,23"]


def test_a_file_that_was_read_is_silent_while_others_are_read(tmp_path):
    csv(tmp_path / "a.csv", (1, 1), (5, 2))
    csv(tmp_path / "b.csv", *((at, 10_000 + at) for at in range(20_000)))
    for idle, passed in ((None, 7), (SILENT, 20_001)):
        folder = tmp_path / str(idle)
        folder.mkdir()
        app = application(tm.csv(tmp_path / "*.csv", splits=True), folder / "out.jsonl", idle=idle)
        source = app.run(state=folder / "state").sources[0]
        # The last event of b.csv waits: a.csv, which was raised to its time, may have one of that time.
        assert source.events == passed


def test_splits_are_verified_and_shown(tmp_path):
    csv(tmp_path / "a.csv", (1, 1), (10, 2), (2, 3), ("x", 4))
    csv(tmp_path / "b.csv", (3, 11), (5, 12), (20, 13))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    app = application(tm.csv(tmp_path / "*.csv", splits=True), out)
    app.run(state=state, savepoint="start")
    csv(tmp_path / "0.csv", (9, 21), (10, 22), (12, 23))
    grow(tmp_path / "a.csv", (15, 5))
    app.run(state=state, savepoint="second")
    grow(tmp_path / "b.csv", (21, 14), (4, 15))
    app.run(state=state, final=True)
    assert order(out) == ([1, 11, 12, 2, 22, 23, 5, 13, 14], [3, 21, 15])

    # In one run all files are there from the start, and 9 is not late.
    whole = tmp_path / "whole"
    app = application(tm.csv(tmp_path / "*.csv", splits=True), tmp_path / "whole.jsonl")
    app.run(state=whole, savepoint="start", final=True)
    for folder, savepoint, events in ((state, "start", 9), (state, "second", 5), (whole, "start", 10)):
        assert verified(folder, savepoint) == events
    shown = lambda position, code=0: command("txn", "show", state, position, code=code)
    assert "ticks/a.csv:1 at 10" in shown("ticks/a.csv:1")
    assert "at = 5, n = 12" in shown("ticks/b.csv:1")
    assert "at = 5, n = 12" in shown(f"ticks/{tmp_path}/b.csv:1")
    assert "ticks/0.csv:0 came too late" in shown("ticks/0.csv:0")
    assert "at = 10, n = 22" in shown("ticks@10")
    assert "at = 10, n = 22" in shown("ticks/0.csv@10")
    assert "at = 10, n = 2\n" in shown("ticks/a.csv@10")
    assert "each counts its own events; name one, such as ticks/a.csv:17" in shown("ticks:1", code=3)
    assert "has no split 'c.csv'; splits: " in shown("ticks/c.csv:1", code=3)
    assert "is not in the log" in shown("ticks/a.csv:17", code=3)


def test_parquet_files_are_read_side_by_side_and_new_ones_join(tmp_path):
    parquet(tmp_path / "a.parquet", (1, 1), (8, 2), (20, 3))
    parquet(tmp_path / "b.parquet", (5, 11), (30, 12))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    app = application(tm.parquet(tmp_path / "*.parquet", splits=True), out)
    # A file that was read cannot grow: its end lets the others go on.
    assert app.run(state=state).sources[0].held == 0
    # Before all others by its name, and the last by its number.
    parquet(tmp_path / "0.parquet", (29, 21), (30, 22), (31, 23))
    assert app.run(state=state).sources[0].late == 1
    assert app.run(state=state).events == 0
    assert app.run(state=state, final=True).events == 0
    assert order(out) == ([1, 11, 2, 3, 12, 22, 23], [21])


def test_all_files_grow_and_new_ones_join(tmp_path):
    a, b, c = (tmp_path / name for name in ("a.csv", "b.csv", "0.csv"))
    csv(a, (1, 1), (10, 2))
    csv(b, (3, 11), (5, 12), (20, 13))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    app = application(tm.csv(tmp_path / "*.csv", splits=True), out)
    # Events after 10 may have an event of a.csv before them.
    assert app.run(state=state).sources[0].held == 1
    grow(a, (15, 3))
    csv(c, (9, 21), (10, 22), (12, 23))
    assert app.run(state=state).sources[0].held == 2
    grow(b, (21, 14))
    grow(c, (40, 24))
    assert app.run(state=state, final=True).sources[0].held == 0
    assert order(out) == ([1, 11, 12, 2, 22, 23, 3, 13, 14, 24], [21])


def test_whole_files_let_the_others_go_on(tmp_path):
    csv(tmp_path / "a.csv", (1, 1), (10, 2))
    csv(tmp_path / "b.csv", (3, 11), (20, 13))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    app = application(tm.csv(tmp_path / "*.csv", splits="whole"), out)
    assert app.run(state=state).sources[0].held == 0
    csv(tmp_path / "c.csv", (25, 21))
    assert app.run(state=state).sources[0].held == 0
    assert order(out) == ([1, 11, 2, 13, 21], [])
    grow(tmp_path / "a.csv", (30, 3))
    with pytest.raises(tm.RunError, match="ended for good"):
        app.run(state=state)


def test_a_followed_file_falls_silent(tmp_path):
    csv(tmp_path / "a.csv", (1, 1), (10, 2))
    csv(tmp_path / "b.csv", (3, 11))
    out = tmp_path / "out.jsonl"
    app = application(tm.csv(tmp_path / "*.csv", splits=True, follow=True), out, idle=SILENT)
    with app.start(workers=1, state=tmp_path / "state") as mill:
        # b.csv holds 10 back until it was silent for a while.
        until(lambda: mill.summary().sources[0].events == 3)
        mill.stop()
    assert order(out) == ([1, 11, 2], [])


def test_new_files_join_while_the_others_are_followed(tmp_path):
    a, b, c = (tmp_path / name for name in ("a.csv", "b.csv", "0.csv"))
    csv(a, (1, 1), (10, 2))
    csv(b, (3, 11))
    out = tmp_path / "out.jsonl"
    app = application(tm.csv(tmp_path / "*.csv", splits=True, follow=True), out, idle=SILENT)
    state = tmp_path / "state"
    with app.start(workers=1, state=state, savepoint="start") as mill:

        def stands(events, held):
            now = mill.flush().held.get("ticks", 0)
            return (mill.summary().sources[0].events, now) == (events, held)

        until(lambda: stands(3, 0))
        # It begins at 10, and its 12 waits for what a.csv, which is before it, may still have at 12.
        csv(c, (9, 21), ("x", 0), (12, 22))
        until(lambda: stands(3, 1))
        # One file grows at a time: those that are silent are raised to it.
        grow(a, (15, 3))
        until(lambda: stands(5, 0))
        grow(b, (16, 12))
        until(lambda: stands(5, 1))
        grow(c, (18, 23))
        until(lambda: stands(6, 1))
        grow(a, (20, 4))
        until(lambda: stands(8, 0))
        mill.stop()
    assert order(out) == ([1, 11, 2, 22, 3, 12, 23, 4], [21])
    assert verified(state, "start") == 8


def test_whole_parquet_files_are_watched_for(tmp_path):
    parquet(tmp_path / "a.parquet", (1, 1), (5, 2))
    out = tmp_path / "out.jsonl"
    app = application(tm.parquet(tmp_path / "*.parquet", splits=True, follow=True), out)
    with app.start(workers=1, state=tmp_path / "state") as mill:
        until(lambda: mill.summary().sources[0].events == 2)
        parquet(tmp_path / "b.parquet", (6, 3), (9, 4))
        until(lambda: mill.summary().sources[0].events == 4)
        mill.stop()
    assert order(out) == ([1, 2, 3, 4], [])


def test_many_files_are_read_with_few_open(tmp_path):
    count = 300
    for number in range(count):
        csv(tmp_path / f"{number:03}.csv", *((at, number * 1000 + at) for at in range(80)))
    out = tmp_path / "out.jsonl"
    app = application(tm.csv(tmp_path / "*.csv", splits=True), out)
    app.run(state=tmp_path / "state", final=True)
    numbers, _ = order(out)
    assert numbers == [number * 1000 + at for at in range(80) for number in range(count)]


def test_files_that_changed_are_refused(tmp_path):
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    csv(a, (1, 1), (10, 2))
    csv(b, (3, 11), (5, 12))
    out, state = tmp_path / "out.jsonl", tmp_path / "state"
    app = application(tm.csv(tmp_path / "*.csv", splits=True), out)
    app.run(state=state)
    text = b.read_text()
    b.write_text(HEADER + "3,11\n")
    with pytest.raises(tm.RunError, match=r"b\.csv is not the file that it was: .* it has only"):
        app.run(state=state)
    b.unlink()
    with pytest.raises(tm.RunError, match=r"b\.csv was read before and is not there any more"):
        app.run(state=state)
    b.write_text(text)
    one_stream = application(tm.csv(tmp_path / "*.csv"), out)
    with pytest.raises(tm.RunError, match="read in several splits"):
        one_stream.run(state=state)
    assert app.run(state=state, final=True).events == 1


def test_what_splits_cannot_be_is_refused(tmp_path):
    csv(tmp_path / "a.csv", (1, 1))
    state = tmp_path / "state"
    application(tm.csv(tmp_path / "*.csv"), tmp_path / "out.jsonl").run(state=state)
    with pytest.raises(tm.RunError, match="read as one stream"):
        application(tm.csv(tmp_path / "*.csv", splits=True), tmp_path / "out.jsonl").run(state=state)
    with pytest.raises(tm.PlanError, match="is not a way to read files"):
        tm.csv("a.csv", splits="side by side")
    with pytest.raises(tm.PlanError, match="give splits=True with follow=True"):
        tm.parquet("a.parquet", follow=True)
    app = tm.App("none")

    class Plain(tm.Event):
        n: int

    (tmp_path / "plain.csv").write_text("n\n1\n")
    plain = app.source(Plain, tm.csv(tmp_path / "plain.csv", splits=True), name="plain")
    app.sink(plain, tm.jsonl(tmp_path / "plain.jsonl"))
    with pytest.raises(tm.RunError, match="declare an event time"):
        app.run()
