"""Events that are far ahead of the machine's clock: refused to who sends them, bad where they are read."""

import json
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from server_process import until

import tidemill as tm

pa = pytest.importorskip("pyarrow")

FAR = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


def now(**ahead):
    return datetime.now(timezone.utc) + timedelta(**ahead)


class Tick(tm.Event):
    at: tm.Time = tm.event_time()
    who: str


class Hold(tm.Event):
    at: tm.Time = tm.event_time()
    who: str


class Count(tm.Row):
    who: str = tm.key()
    n: int = 0


def counting(connector=None, **options):
    app = tm.App("ahead")
    counts = app.table(Count)
    ticks = app.source(Tick, connector, **options)

    @app.transaction(ticks)
    def tick(ev, c=counts.row("who", create=True)):
        c.n += 1
        return {"who": ev.who, "at": ev.at}

    return app, counts, ticks, tick


def rows(table):
    return {row["who"]: row["n"] for row in table.to_pylist()}


def test_what_is_sent_too_far_ahead_is_refused_to_the_sender_and_changes_nothing(tmp_path):
    app, counts, ticks, tick = counting()
    late = app.collect(ticks.late)
    with app.start(state=tmp_path / "state") as mill:
        mill.send(ticks, {"at": now(), "who": "good"})
        for far in [FAR, now(days=1, minutes=1), now(days=400)]:
            with pytest.raises(tm.SchemaError) as refused:
                mill.send(ticks, [{"at": now(), "who": "with it"}, {"at": far, "who": "far"}])
            said = str(refused.value)
            assert said.startswith(f"source 'ticks': {far:%Y-%m-%dT%H:%M:%S}"), said
            assert "is too far ahead of the clock: times up to " + f"{now(days=1):%Y-%m-%dT}"[:8] in said, said
            assert 'app.source(..., ahead="7d")' in said
        mill.send(ticks, [{"at": now(), "who": "good"}, {"at": now(hours=23), "who": "ahead"}])
        mill.flush()
        mill.end(ticks)
    # A second session is not led by it, either.
    with app.start(state=tmp_path / "state") as mill:
        mill.send(ticks, {"at": now(hours=23, minutes=1), "who": "good"})
        mill.flush()
        assert rows(mill.table(counts)) == {"good": 3, "ahead": 1}
    assert late.to_pylist() == []


def test_a_bound_can_be_declared_or_left_out():
    for bound, far in [
        ({"ahead": "7d"}, now(days=6)),
        ({"ahead": timedelta(days=7)}, now(days=6)),
        ({"ahead": None}, FAR),
    ]:
        app, counts, ticks, tick = counting(**bound)
        with app.start() as mill:
            mill.send(ticks, {"at": far, "who": "ahead"})
            mill.flush()
            assert rows(mill.table(counts)) == {"ahead": 1}
            if bound["ahead"] is not None:
                with pytest.raises(tm.SchemaError, match="is too far ahead of the clock"):
                    mill.send(ticks, {"at": now(days=8), "who": "far"})
    app, counts, ticks, tick = counting(ahead="10s")
    with app.start() as mill, pytest.raises(tm.SchemaError, match="is too far ahead of the clock"):
        mill.send(ticks, {"at": now(minutes=1), "who": "far"})


class Step(tm.Event):
    n: int = tm.event_time()


def test_ints_are_compared_with_no_clock():
    app = tm.App("ints")
    steps = app.source(Step)
    found = app.collect(steps)
    with app.start() as mill:
        mill.send(steps, {"n": 2**62})
    assert found.to_pylist() == [{"n": 2**62}]


def test_what_is_pushed_over_http_too_far_ahead_is_answered_with_400(tmp_path):
    from tidemill.client import connect

    app, counts, ticks, tick = counting()
    holds = app.requests(Hold)

    @app.transaction(holds)
    def hold(ev, c=counts.row("who", create=True)):
        c.n += 1
        return {"at": ev.at}

    with app.start(state=tmp_path / "state") as mill, mill.serve() as server, connect(server.url) as client:
        begin = now()
        client.push("ticks", [{"at": begin, "who": "good"}])
        events = [{"at": begin, "who": "with it"}, {"at": FAR, "who": "far"}]
        arrow = pa.table(
            {
                "at": pa.array([event["at"] for event in events], pa.timestamp("us", "UTC")),
                "who": pa.array([event["who"] for event in events]),
            }
        )
        for pushed in [events, arrow]:
            with pytest.raises(tm.SchemaError) as refused:
                client.push("ticks", pushed)
            assert "source 'ticks': 9999-12-31T23:59:59.000000Z is too far ahead of the clock" in str(refused.value)
        client.push("ticks", [{"at": begin + timedelta(seconds=1), "who": "good"}])
        assert client.row("counts", "good")["n"] == 2
        # A call's time is that of the greatest position, which nobody has moved.
        reply = client.call("hold", who="x")
        assert datetime.fromisoformat(str(reply["at"]).replace("Z", "+00:00")) == begin + timedelta(seconds=1)
        # None of what came with it was taken.
        mill.flush()
        assert {row["who"] for row in mill.table(counts).to_pylist()} <= {"good", "x"}
    verified = subprocess.run(
        [sys.executable, "-m", "tidemill", "verify", tmp_path / "state"], timeout=60, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def lines(*events):
    return "".join(json.dumps({"at": at.isoformat(), "who": who}) + "\n" for at, who in events)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_files_have_a_bound_where_one_is_declared(tmp_path):
    file, begin = tmp_path / "ticks.jsonl", now()
    file.write_text(lines((begin, "a"), (FAR, "far"), (begin, "b")))
    app, counts, ticks, tick = counting(tm.jsonl(file))
    late = app.collect(ticks.late)
    app.run()
    assert [row["who"] for row in late.to_pylist()] == ["b"], "without a bound it is an event like others"
    app, counts, ticks, tick = counting(tm.jsonl(file), ahead="1d")
    late, bad, done = app.collect(ticks.late), app.collect(ticks.bad), app.collect(tick.committed)
    app.run(state=tmp_path / "state")
    assert late.to_pylist() == []
    assert [row["who"] for row in done.to_pylist()] == ["a", "b"]
    [record] = bad.to_pylist()
    assert record["column"] == "at"
    assert record["reason"].startswith("9999-12-31T23:59:59.000000Z is too far ahead of the clock: when it came, ")
    assert json.loads(record["record"]) == {"at": "9999-12-31T23:59:59.000000Z", "who": "far"}
    # It grows; a record in it was taken once.
    with file.open("a") as more:
        more.write(lines((begin + timedelta(seconds=1), "c"), (FAR, "far again")))
    app.run(state=tmp_path / "state", final=True)
    assert [row["who"] for row in done.to_pylist()] == ["c"]
    assert [json.loads(row["record"])["who"] for row in bad.to_pylist()] == ["far again"]


@pytest.mark.parametrize("splits", [False, True])
def test_files_that_are_followed_have_a_bound_of_a_day(tmp_path, splits):
    file, begin = tmp_path / "ticks.jsonl", now()
    file.write_text(lines((begin, "a"), (FAR, "far")))
    for name in ["done.jsonl", "late.jsonl", "bad.jsonl"]:
        assert not (tmp_path / name).exists()

    def begun():
        app, counts, ticks, tick = counting(
            tm.jsonl(str(tmp_path / "t*.jsonl") if splits else file, follow=True, splits=splits)
        )
        seen = {"done": [], "late": [], "bad": []}
        app.sink(tick.committed, lambda batch: seen["done"].extend(batch.to_pylist()))
        app.sink(ticks.late, lambda batch: seen["late"].extend(batch.to_pylist()))
        app.sink(ticks.bad, lambda batch: seen["bad"].extend(batch.to_pylist()))
        return app, seen

    app, seen = begun()
    with app.start(state=tmp_path / "state") as mill:
        until(lambda: seen["done"] and (seen["bad"] or splits))
        with file.open("a") as more:
            more.write(lines((begin + timedelta(seconds=1), "b"), (begin + timedelta(seconds=2), "c")))
        until(lambda: len(seen["done"]) >= 3 and seen["bad"])
        assert [row["who"] for row in seen["done"]] == ["a", "b", "c"]
        assert [json.loads(row["record"])["who"] for row in seen["bad"]] == ["far"]
        assert seen["late"] == []
        mill.stop()
    verified = subprocess.run(
        [sys.executable, "-m", "tidemill", "verify", tmp_path / "state"], timeout=60, capture_output=True, text=True
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_killed_run_over_a_followed_file_goes_on_with_what_it_refused(tmp_path):
    file, begin = tmp_path / "ticks.jsonl", now()
    (tmp_path / "app.py").write_text(
        """
import tidemill as tm

class Tick(tm.Event):
    at: tm.Time = tm.event_time()
    who: str

class Count(tm.Row):
    who: str = tm.key()
    n: int = 0

app = tm.App("killed")
counts = app.table(Count)
ticks = app.source(Tick, tm.jsonl("ticks.jsonl", follow=True))

@app.transaction(ticks)
def tick(ev, c=counts.row("who", create=True)):
    c.n += 1
    return {"who": ev.who, "n": c.n}

app.sink(tick.committed, tm.jsonl("done.jsonl"))
app.sink(ticks.late, tm.jsonl("late.jsonl"))
app.sink(ticks.bad, tm.jsonl("bad.jsonl"))
"""
    )
    session = """
import os, signal, sys, time
from app import app, counts
with app.start(state="state") as mill:
    while sum(row["n"] for row in mill.table(counts).to_pylist()) < int(sys.argv[1]):
        time.sleep(0.01)
    if sys.argv[2:] == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    mill.stop()
"""
    file.write_text("")
    for life in range(3):
        at = begin + timedelta(seconds=life)
        with file.open("a") as more:
            more.write(lines((at, "a"), (FAR, f"far {life}"), (at, "b")))
        arguments = [str(2 * life + 2), *(["kill"] if life < 2 else [])]
        subprocess.run([sys.executable, "-c", session, *arguments], cwd=tmp_path, timeout=60, check=life == 2)
    assert [row["n"] for row in read(tmp_path / "done.jsonl")] == [1, 1, 2, 2, 3, 3]
    assert [json.loads(row["record"])["who"] for row in read(tmp_path / "bad.jsonl")] == ["far 0", "far 1", "far 2"]
    assert read(tmp_path / "late.jsonl") == []
    command = [sys.executable, "-m", "tidemill", "verify", "state"]
    verified = subprocess.run(command, cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_plan_has_the_bound_and_explain_says_it():
    def said(**bound):
        app, counts, ticks, tick = counting(lateness="2s", **bound)
        return app.explain()

    assert "ahead of the clock" not in said()
    assert "by event time at, at most 2 s late, at most 90 s ahead of the clock" in said(ahead="90s")
    assert "by event time at, at most 2 s late, however far ahead of the clock" in said(ahead=None)


REFUSED = [
    (lambda app: app.source(Tick, ahead="soon"), "ahead 'soon' is not a duration"),
    (lambda app: app.source(Tick, ahead=5), "ahead 5 is not a duration; write a text such as '1d'"),
    (lambda app: app.source(Tick, ahead="0s"), "ahead '0s' is out of range"),
    (
        lambda app: app.source(Step, ahead="1d"),
        "ahead without an event time that is a tm.Time; only a tm.Time is compared with the clock: leave ahead out",
    ),
    (
        lambda app: app.source(Untimed, ahead="1d"),
        "ahead without an event time that is a tm.Time; only a tm.Time is compared with the clock: leave ahead out",
    ),
]


class Untimed(tm.Event):
    n: int


@pytest.mark.parametrize(("declare", "message"), REFUSED)
def test_wrong_bounds_are_refused(declare, message):
    with pytest.raises(tm.PlanError) as refused:
        declare(tm.App("refused"))
    assert message in str(refused.value)


def test_a_source_that_is_declared_again_with_another_bound_is_another():
    app = tm.App("again")
    app.source(Tick, ahead="1d")
    app.source(Tick, ahead="1d")
    with pytest.raises(tm.PlanError):
        app.source(Tick, ahead="2d")
