"""A state goes on with a changed program: windows, joins, tops, first events, batches and ticks that are others now."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm


class Reading(tm.Event):
    at: int = tm.event_time()
    k: str
    x: int
    y: int


class Total(tm.Row):
    k: str = tm.key()
    sum: int = 0


def readings(*rows):
    return [{"at": at, "k": k, "x": x, "y": 10 * x} for at, k, x in rows]


FIRST = readings((1, "a", 1), (12, "a", 2), (13, "b", 4))
REST = readings((15, "a", 8), (16, "b", 16), (55, "a", 32))


def program(declare, version=1, out=None):
    """An application of the source ``readings`` and what ``declare`` adds, whose stream goes to ``out``."""
    app = tm.App("changed", version=version)
    source = app.source(Reading, name="readings")
    stream = declare(app, source)
    app.sink(stream, tm.jsonl(str(out)) if out else tm.null(), name="out")
    return app


def window(over, give="count", by="k", where=None, **options):
    def declare(app, source):
        stream = source if where is None else source.filter(where)
        of = {"over": over, "by": by, "name": "win", **options}
        if give == "count":

            @app.window(stream, **of)
            def closed(w):
                return {"s": w.start, "e": w.end, "n": w.count()}

        elif give == "twice":

            @app.window(stream, **of)
            def closed(w):
                n = w.count()
                return {"e": w.end, "n": n + n, "s": w.start}

        elif give == "sum":

            @app.window(stream, **of)
            def closed(w):
                return {"s": w.start, "n": w.count(), "sum": w.x.sum()}

        elif give == "other sum":

            @app.window(stream, **of)
            def closed(w):
                return {"s": w.start, "n": w.count(), "sum": w.y.sum()}

        else:

            @app.window(stream, **of)
            def closed(w):
                return {"sum": w.x.sum(), "s": w.start, "n": w.count()}

        return closed.closed

    return declare


def join(within=100, on="k", how="inner", other="y"):
    def declare(app, source):
        right = source.filter(lambda e: e.x > 1, name="large")
        if other == "y":

            @app.join(source, right, on=on, within=within, how=how, name="pairs")
            def pairs(a, b):
                return {"x": a.x, "y": b.y}

        elif other == "more":

            @app.join(source, right, on=on, within=within, how=how, name="pairs")
            def pairs(a, b):
                return {"x": a.x, "y": b.y, "other": b.x}

        else:

            @app.join(source, right, on=on, within=within, how=how, name="pairs")
            def pairs(one, two):
                return {"y": two.y, "x": one.x, "larger": one.x > two.y}

        return pairs.joined

    return declare


def first(within=100, by="k"):
    return lambda app, source: source.first(by=by, within=within, name="once")


def top(count=1, by="x", ties=False):
    return lambda app, source: source.top(count, by=by, ties=ties, name="best")


def batch(size=100):
    def declare(app, source):
        batches = source.batch(size, name="some")

        @app.transaction(batches)
        def pass_on(ev):
            n = 0
            for e in ev.events:
                n += e.x
            return {"batch": ev.batch, "n": n}

        return pass_on.committed

    return declare


def run(declare, state, data, version=1, out=None, **options):
    return program(declare, version, out).run({"readings": data}, state=state, **options)


def files(folder):
    """The files of a state but for its lock."""
    paths = (path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


TUMBLING = window(tm.tumbling(30))
CHANGES = {
    "length": (TUMBLING, window(tm.tumbling(60)), "its windows: tumbling windows of 30 in the state"),
    "origin": (TUMBLING, window(tm.tumbling(30, origin=10)), "tumbling windows of 30 from 10 on in the program"),
    "kind": (TUMBLING, window(tm.session(30)), "sessions with gaps of 30 in the program"),
    "slide": (TUMBLING, window(tm.sliding(30, every=10)), "sliding windows of 30 each 10 in the program"),
    "gap": (window(tm.session(5)), window(tm.session(20)), "sessions with gaps of 5 in the state"),
    "count": (window(tm.counting(5)), window(tm.counting(2)), "windows of 5 events in the state"),
    "early": (TUMBLING, window(tm.tumbling(30, early=10)), "its early results: none in the state, each 10"),
    "group": (TUMBLING, window(tm.tumbling(30), by={"k": "k", "x": "x"}), "its group: k in the state, k, x in"),
    "group by another": (
        window(tm.tumbling(30), by={"g": lambda e: e.x}),
        window(tm.tumbling(30), by={"g": lambda e: e.y}),
        "its group: g = ev.x in the state, g = ev.y in the program",
    ),
    "filter": (TUMBLING, window(tm.tumbling(30), where=lambda e: e.x > 1), "readings where ev.x > 1 in the program"),
    "filter by another": (
        window(tm.tumbling(30), where=lambda e: e.x > 0),
        window(tm.tumbling(30), where=lambda e: e.x >= 0),
        "readings where ev.x > 0 in the state, readings where ev.x >= 0 in the program",
    ),
    "aggregate added": (
        TUMBLING,
        window(tm.tumbling(30), "sum"),
        "it is to keep values of x, which the state does not",
    ),
    "aggregate of another": (window(tm.tumbling(30), "sum"), window(tm.tumbling(30), "other sum"), "values of y"),
    "within": (join(), join(within=50), "its reach: within 100 in the state, within 50 in the program"),
    "how": (join(), join(how="left"), "its kind: inner in the state, left in the program"),
    "on": (join(), join(on="x"), "its key: ev.k == ev.k in the state, ev.x == ev.x in the program"),
    "field of a side": (join(), join(other="more"), "its fields of the right: y: int in the state, x: int, y: int in"),
    "first within": (first(), first(within=50), "its time: 100 in the state, 50 in the program"),
    "first by": (first(), first(by="x"), "its group: ev.k in the state, ev.x in the program"),
    "batch": (batch(), batch(2), "its size: 100 events in the state, 2 events in the program"),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_open_is_not_taken_over(tmp_path, name, version):
    """Neither under the same version nor under another. Where nothing is open the new definition begins."""
    was, declared, said = CHANGES[name]
    state = tmp_path / "state"
    run(was, state, FIRST)
    before = files(state)
    with pytest.raises(tm.RunError, match="has rows open that mean nothing to the program") as refused:
        run(declared, state, REST, version)
    assert said in str(refused.value) and "--end" in str(refused.value)
    assert files(state) == before
    # The program as it was goes on.
    run(was, state, REST)
    out, alone = tmp_path / "out.jsonl", tmp_path / "alone.jsonl"
    run(was, tmp_path / "closed", [], final=False)
    run(declared, tmp_path / "closed", FIRST, version, out, final=True)
    run(declared, tmp_path / "new", FIRST, version, alone, final=True)
    assert lines(out) == lines(alone) != []


def test_a_top_of_an_open_instant_is_not_taken_over(tmp_path):
    state = tmp_path / "state"
    run(top(), state, readings((1, "a", 1), (1, "a", 2)))
    with pytest.raises(
        tm.RunError, match="top best, 1 row is open:\n    its places: 1 by ev.x in the state, 2 by ev.x"
    ):
        run(top(2), state, [])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("was", "declared"),
    [
        (TUMBLING, window(tm.tumbling(30), "twice")),
        (window(tm.session(30)), window(tm.session(30), "twice")),
        (window(tm.tumbling(30), "sum"), window(tm.tumbling(30), "sum first")),
        (window(tm.tumbling(30), "sum"), TUMBLING),
        (window(tm.sliding(30, every=10), "sum"), window(tm.sliding(30, every=10))),
        (join(), join(other="names")),
    ],
)
def test_the_function_is_no_part_of_the_definition(tmp_path, was, declared, version):
    """Also where it asks in another order, or for less."""
    run(was, tmp_path / "state", FIRST)
    out, alone = tmp_path / "out.jsonl", tmp_path / "alone.jsonl"
    run(declared, tmp_path / "state", REST, version, out, final=True)
    run(declared, tmp_path / "alone", FIRST + REST, version, alone, final=True)
    of_rest = lines(alone)[len(lines(alone)) - len(lines(out)) :]
    assert lines(out) == of_rest != []


def test_ticks_go_on_after_the_last(tmp_path):
    def ticks(period):
        return lambda app, source: app.every(period, name="beat")

    out = tmp_path / "out.jsonl"
    run(ticks(10), tmp_path / "state", readings((1, "a", 1), (25, "a", 1)))
    run(
        ticks(7),
        tmp_path / "state",
        readings(
            (43, "a", 1),
        ),
        1,
        out,
        final=True,
    )
    # 25 has passed.
    assert lines(out) == [{"at": 28}, {"at": 35}, {"at": 42}]


def test_another_name_keeps_what_was_open_in_a_savepoint(tmp_path):
    def renamed(app, source):
        @app.window(source, over=tm.tumbling(60), by="k", name="other")
        def closed(w):
            return {"s": w.start, "e": w.end, "n": w.count()}

        return closed.closed

    state = tmp_path / "state"
    run(TUMBLING, state, FIRST)
    with pytest.raises(tm.RunError, match="window win is in the state, not in the program"):
        run(renamed, state, REST)
    with pytest.warns(UserWarning, match="(?s)window win is in the state.*before-version-2"):
        run(renamed, state, REST, 2, tmp_path / "out.jsonl", final=True)
    assert [line["n"] for line in lines(tmp_path / "out.jsonl")] == [2, 1]


def test_what_is_open_can_be_ended(tmp_path):
    """Its results have the ends as they were declared, and go where the program as it was sent them. Held events stay held."""
    state, out = tmp_path / "state", tmp_path / "out.jsonl"
    run(TUMBLING, state, FIRST, out=out)
    run(window(tm.tumbling(20)), state, REST, 2, out, end="win", final=True)
    assert lines(out) == [
        {"s": 0, "e": 30, "n": 2},
        {"s": 0, "e": 30, "n": 1},
        {"s": 0, "e": 20, "n": 1},
        {"s": 0, "e": 20, "n": 1},
        {"s": 40, "e": 60, "n": 1},
    ]


@pytest.mark.parametrize("name", [name for name in CHANGES if not name.startswith("batch")])
def test_each_change_can_be_ended(tmp_path, name):
    """The ended operator gives what it would give at the end of its input; the new one is as from the beginning."""
    was, declared, _ = CHANGES[name]
    out, old, new = (tmp_path / f"{file}.jsonl" for file in ("out", "old", "new"))
    ended = (
        "once" if name.startswith("first") else "pairs" if name in ("within", "how", "on", "field of a side") else "win"
    )
    # An output has one form, and some changes give events of another.
    after = tmp_path / "after.jsonl" if name in ("aggregate added", "how", "field of a side") else out
    run(was, tmp_path / "state", FIRST, 1, out)
    run(declared, tmp_path / "state", REST, 2, after, end=[ended], final=True)
    run(was, tmp_path / "old", FIRST, 1, old, final=True)
    run(declared, tmp_path / "new", REST, 1, new, final=True)
    given = lines(out) if after == out else lines(out) + lines(after)
    assert given == lines(old) + lines(new)


def test_held_events_stay_held(tmp_path):
    def late(over):
        def declare(app, source):
            return window(over)(app, app.source(Reading, name="late", lateness=20))

        return declare

    state, out = tmp_path / "state", tmp_path / "out.jsonl"
    data = readings((1, "a", 1), (30, "a", 2), (45, "a", 4), (50, "a", 8))
    program(late(tm.tumbling(20)), 1, out).run({"late": data, "readings": readings((100, "z", 0))}, state=state)
    changed = program(late(tm.tumbling(10)), 2, out)
    changed.run({"late": [], "readings": []}, state=state, end="win", final=True)
    assert [(line["s"], line["e"], line["n"]) for line in lines(out)] == [
        (0, 20, 1),
        (20, 40, 1),
        (40, 50, 1),
        (50, 60, 1),
    ]


def test_what_cannot_be_ended_is_named(tmp_path):
    state = tmp_path / "state"
    run(TUMBLING, state, FIRST)
    before = files(state)
    with pytest.raises(tm.RunError, match="has no window, join or other operator wni .*; these are: win"):
        run(window(tm.tumbling(60)), state, REST, end="wni")
    with pytest.raises(tm.RunError, match="there is none"):
        run(TUMBLING, state, REST, end="win")
    with pytest.raises(tm.PlanError, match="it needs a state"):
        run(TUMBLING, None, REST, end="win")
    assert files(state) == before


def test_what_goes_by_the_time_of_results_keeps_them_from_being_ended(tmp_path):
    def over_closes(length):
        def declare(app, source):
            closed = window(tm.tumbling(length))(app, source)

            @app.window(closed, over=tm.tumbling(1000), name="all")
            def of_all(w):
                return {"n": w.n.sum()}

            return of_all.closed

        return declare

    out = tmp_path / "out.jsonl"
    run(over_closes(30), tmp_path / "state", FIRST, 1, out)
    before = files(tmp_path / "state")
    with pytest.raises(tm.RunError, match="window all takes what it gives, and goes by its time: end all, too"):
        run(over_closes(60), tmp_path / "state", REST, 2, out, end="win")
    assert files(tmp_path / "state") == before


def test_a_table_takes_over_the_rows_of_another_name(tmp_path):
    def bank(name, was=None):
        def declare(app, source):
            totals = app.table(Total, name=name, was=was, rows=[{"k": "z", "sum": 7}])

            @app.transaction(source)
            def add(ev, total=totals.row("k", create=True)):
                total.sum += ev.x

            return add.committed

        return declare

    state = tmp_path / "state"
    run(bank("totals"), state, FIRST)
    with pytest.raises(tm.RunError, match="table totals becomes sums"):
        run(bank("sums", "totals"), state, REST)
    with pytest.raises(tm.RunError, match="table sums was total by the program; the state has neither"):
        run(bank("sums", "total"), state, REST, 2)
    app = program(bank("sums", "totals"), 2)
    app.run({"readings": REST}, state=state, final=True)
    rows = {row["k"]: row["sum"] for row in app.tables["sums"].to_pylist()}
    assert rows == {"a": 43, "b": 20, "z": 7}
    # The earlier name may stay in the program.
    run(bank("sums", "totals"), state, [], 2)


def test_a_source_is_retired(tmp_path):
    def two(app, source):
        app.source(Reading, name="more")
        return source

    state, out = tmp_path / "state", tmp_path / "out.jsonl"
    program(two, 1, out).run({"readings": FIRST, "more": readings((2, "c", 1))}, state=state)
    one = program(lambda app, source: source, 2, out)
    with pytest.raises(tm.RunError, match="source more is in the state, not in the program, which does not retire it"):
        one.run({"readings": REST}, state=state)
    one.retire("more")
    with pytest.warns(UserWarning, match="(?s)source more is retired.*before-version-2"):
        one.run({"readings": REST}, state=state, final=True)
    assert [line["at"] for line in lines(out)] == [1, 12, 13, 15, 16, 55], "it holds nothing back any more"
    with pytest.raises(tm.PlanError, match="it is retired, and declared"):
        one.retire("readings")


SCRIPT = """
import os, tidemill as tm
app = tm.App("w", version=int(os.environ.get("V", "1")))
class R(tm.Event):
    at: tm.Time = tm.event_time()
    k: str
rs = app.source(R, tm.csv("r.csv"))
@app.window(rs, by="k", over=eval(os.environ["OVER"]))
def win(w):
    return {"s": w.start, "e": w.end, "n": w.count()}
app.sink(win.closed, tm.jsonl("out.jsonl"))
"""


@pytest.fixture
def tidemill(tmp_path):
    (tmp_path / "w.py").write_text(SCRIPT)
    (tmp_path / "r.csv").write_text("at,k\n2024-01-01T00:00:01Z,a\n2024-01-01T00:00:12Z,a\n2024-01-01T00:00:13Z,b\n")

    def call(*arguments, over="tm.tumbling('1m')", version="1", code=0):
        environment = {**os.environ, "OVER": over, "V": version}
        command = [sys.executable, "-m", "tidemill", *arguments]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    return call


def test_the_commands_say_what_is_open(tmp_path, tidemill):
    tidemill("run", "w.py", "--state", "st", "--quiet")
    (tmp_path / "r.csv").rename(tmp_path / "gone.csv")
    hour = {"over": "tm.tumbling('1h')", "version": "2"}
    text = tidemill("check", "w.py", "--state", "st", **hour, code=3)
    assert "window win: its windows: tumbling windows of 1m in the state, tumbling windows of 1h in the program" in text
    assert "window win: 2 rows are open" in text and "--end win" in text
    (tmp_path / "gone.csv").rename(tmp_path / "r.csv")
    assert "--end win" in tidemill("run", "w.py", "--state", "st", **hour, code=3)
    text = tidemill("run", "w.py", "--state", "st", "--end", "win", **hour)
    assert "window win: 2 rows are open; the program as it was has closed them" in text
    assert [line["n"] for line in lines(tmp_path / "out.jsonl")] == [2, 1]
    assert lines(tmp_path / "out.jsonl")[0]["e"].startswith("2024-01-01T00:01:00")
    assert "a run continues from it" in tidemill("check", "w.py", "--state", "st", **hour)
