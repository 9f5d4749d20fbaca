"""Ticks of the machine's clock: given ones, so that results are known, and those of the real clock."""

import json
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest
from server_process import until

import tidemill as tm

START = datetime(2024, 5, 1, tzinfo=timezone.utc)


def at(seconds):
    return START + timedelta(seconds=seconds)


def now():
    return datetime.now(timezone.utc)


class Click(tm.Event):
    at: tm.Time = tm.event_time()
    page: str


class Page(tm.Row):
    id: str = tm.key()
    ticks: int = 0


def counted(app, clicks, length="10s"):
    """Clicks by page."""

    @app.window(clicks, by="page", over=tm.tumbling(length))
    def hourly(w):
        return {"at": w.end, "page": w.page, "clicks": w.count()}

    return hourly


def given_clicks(*clicks):
    return [{"at": at(seconds), "page": page} for seconds, page in clicks]


def given_ticks(*seconds):
    return [{"at": at(s)} for s in seconds]


@pytest.mark.parametrize(("workers", "epoch"), [(1, "auto"), (2, 1), (2, 3)])
def test_ticks_are_events_at_their_positions(workers, epoch):
    app = tm.App("ticks")
    clicks, pages = app.source(Click), app.table(Page)
    clock = app.clock("5s")
    hourly = counted(app, clicks)

    @app.transaction(clock)
    def beat(ev, page=pages.row(lambda e: "all", create=True)):
        page.ticks += 1

    @app.transaction(hourly.closed)
    def seen(ev, page=pages.row(lambda e: "all", create=True)):
        return {"at": ev.at, "page": ev.page, "clicks": ev.clicks, "ticks": page.ticks}

    found = app.collect(seen.committed)
    data = {clicks: given_clicks((1, "a"), (9, "b"), (12, "a"), (31, "b")), clock: given_ticks(0, 5, 10, 20, 25)}
    app.run(data, workers=workers, epoch=epoch)
    # The close of [0, 10) stands before the tick at 10, that of [10, 20) before the one at 20.
    assert [(row["page"], row["clicks"], row["ticks"]) for row in found.to_pylist()] == [
        ("a", 1, 2),
        ("b", 1, 2),
        ("a", 1, 3),
        ("b", 1, 5),
    ]


def test_ticks_that_are_too_near_are_late():
    app = tm.App("near")
    clock = app.clock("5s")
    kept, late = app.collect(clock), app.collect(clock.late)
    app.run({clock: given_ticks(0, 4, 5, 20, 24, 26)})
    assert [row["at"] for row in kept.to_pylist()] == [at(0), at(5), at(20), at(26)]
    assert [row["at"] for row in late.to_pylist()] == [at(4), at(24)]


def test_ticks_move_time_where_nothing_else_does(tmp_path):
    app = tm.App("silence")
    clicks = app.source(Click)
    clock = app.clock("5s")
    found = app.collect(counted(app, clicks).closed)
    # The end of input is a pause: it closes nothing. Without a tick after 10 the window stays open.
    app.run({clicks: given_clicks((1, "a"), (3, "a"), (12, "a")), clock: given_ticks(0)}, state=tmp_path / "one")
    assert found.to_pylist() == []
    app.run({clicks: [], clock: given_ticks(5, 10)}, state=tmp_path / "one")
    assert [(row["at"], row["clicks"]) for row in found.to_pylist()] == [(at(10), 2)]


@pytest.mark.parametrize("state", [None, "state"])
def test_a_real_clock_closes_windows_while_all_is_silent(tmp_path, state):
    app = tm.App("real")
    clicks = app.source(Click, idle="100ms")
    app.clock("20ms")
    hourly = counted(app, clicks, "200ms")
    closed, sent, late = [], [], []
    app.sink(hourly.closed, lambda batch: closed.append(batch))
    app.sink(clicks.late, lambda batch: late.extend(batch.to_pylist()))
    with app.start(state=state and tmp_path / state) as mill:

        def is_closed():
            """Returns whether a window has closed. An event is sent again only if no window has one."""
            if len(late) == len(sent):
                # The machine may stall for longer than until then: it is too late.
                sent.append({"at": now() + timedelta(milliseconds=300), "page": "a"})
                mill.send(clicks, sent[-1])
            return closed

        until(is_closed)
        assert mill.summary() is not None


def test_events_wait_for_no_tick():
    app = tm.App("hours")
    clicks = app.source(Click, idle="50ms")
    app.clock("1h")
    kept = []
    app.sink(clicks, lambda batch: kept.append(batch))
    late = []
    app.sink(clicks.late, lambda batch: late.append(batch))
    with app.start() as mill:
        mill.send(clicks, {"at": now() - timedelta(milliseconds=1), "page": "a"})
        # The next tick comes in up to an hour. No earlier event of the clock can come.
        until(lambda: kept)
        time.sleep(0.2)
        # It was silent, and is not raised to a tick that has not come.
        mill.send(clicks, {"at": now() - timedelta(milliseconds=1), "page": "b"})
        until(lambda: len(kept) == 2)
    assert late == []


def test_a_run_over_files_does_not_go_on_for_its_clock(tmp_path):
    (tmp_path / "clicks.csv").write_text("at,page\n2024-05-01T00:00:01Z,a\n2024-05-01T00:00:12Z,b\n")
    app = tm.App("files")
    clicks = app.source(Click, tm.csv(tmp_path / "clicks.csv"))
    clock = app.clock("1h")
    found, ticks = app.collect(counted(app, clicks).closed), app.collect(clock)
    app.run()
    assert [row["page"] for row in found.to_pylist()] == ["a", "b"]
    assert len(ticks.to_pylist()) <= 2
    # With a state the end is a pause for the clock, too; with final=True both end for good.
    for final in [False, False, True, True, False]:
        app.run(state=tmp_path / "state", final=final)


def test_ticks_are_logged_and_go_on(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(
        """
import tidemill as tm

class Page(tm.Row):
    id: str = tm.key()
    ticks: int = 0

class Click(tm.Event):
    at: tm.Time = tm.event_time()
    page: str

app = tm.App("logged")
pages = app.table(Page)
clicks = app.source(Click, idle="10ms")
clock = app.clock("10ms")

@app.transaction(clock)
def beat(ev, page=pages.row(lambda e: "all", create=True)):
    page.ticks += 1
    return {"at": ev.at, "n": page.ticks}

app.sink(beat.committed, tm.jsonl("beats.jsonl"))
"""
    )
    session = f"""
import sys, time
sys.path.insert(0, {str(tmp_path)!r})
from app import app, pages, clicks
with app.start(state="state") as mill:
    mill.idle(clicks)
    while not (rows := mill.table(pages).to_pylist()) or rows[0]["ticks"] < int(sys.argv[1]):
        time.sleep(0.01)
    if sys.argv[2:] == ["kill"]:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
"""
    for arguments in [["5"], ["15", "kill"], ["25"]]:
        subprocess.run(
            [sys.executable, "-c", session, *arguments], cwd=tmp_path, timeout=60, check="kill" not in arguments
        )
    beats = [json.loads(line) for line in (tmp_path / "beats.jsonl").read_text().splitlines()]
    assert [beat["n"] for beat in beats] == list(range(1, len(beats) + 1))
    times = [beat["at"] for beat in beats]
    assert len(beats) >= 25 and times == sorted(set(times))
    verify = [sys.executable, "-m", "tidemill", "verify", "state"]
    verified = subprocess.run(verify, cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    check = [sys.executable, "-m", "tidemill", "check", "app.py", "--state", "state"]
    checked = subprocess.run(check, cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert "source clock: a clock, a tick each 10ms" in checked.stdout, checked.stdout + checked.stderr
    assert "goes on with the time of the machine's clock" in checked.stdout, checked.stdout


def test_clocks_of_one_period_are_one():
    app = tm.App("same")
    clock = app.clock("1s")
    assert app.clock(timedelta(seconds=1)) is clock and clock.name == "clock"
    assert app.clock("2s").name == "clock_2"
    assert app.clock("1s", name="beats").name == "beats"
    assert isinstance(clock, tm.Clock) and isinstance(clock, tm.Source)
    assert "by event time at, at least 1.0 s apart" in app.explain() or "at least 1 s apart" in app.explain()


class Reading(tm.Event):
    n: int = tm.event_time()


class Order(tm.Event):
    item: str


REFUSED = [
    (lambda app: app.clock(5), "the period 5 of a clock has no unit; write app.clock('1s')"),
    (
        lambda app: app.clock("soon"),
        "a period of clock 'soon' is not a duration; write a whole number and us, ms, s, m, h or d, such as '2s'",
    ),
    (lambda app: app.clock(None), "None is not a period; write app.clock('1s')"),
    (lambda app: app.clock("0s"), "a period of clock '0s' is not a period; it is greater than 0, and fits 64 bits"),
    (lambda app: app.clock("999us"), "the period '999us' of a clock is too short; give a millisecond or more"),
    (
        lambda app: app.clock("1s", name="a b"),
        "clock: 'a b' is not a name; write letters, digits and _, such as 'transfers'",
    ),
    (
        lambda app: (app.source(Reading), app.clock("1s")),
        "clock 'clock': a clock gives Times, and the event time 'n' of 'readings' is an int; "
        "declare 'n' as tm.Time, or leave the clock out",
    ),
    (
        lambda app: (app.clock("1s"), app.source(Reading)),
        "stream 'readings': it has an event time that is an int, but source 'clock' has an event time; "
        "declare all event times in one unit",
    ),
    (
        lambda app: (app.clock("1s"), app.every(10)),
        "stream 'ticks': it has an event time that is an int, but source 'clock' has an event time; "
        "declare all event times in one unit",
    ),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED)
def test_wrong_clocks_are_refused(declare, message):
    with pytest.raises(tm.PlanError) as refused:
        declare(tm.App("refused"))
    assert str(refused.value) == message


def test_events_without_a_time_cannot_be_read_beside_a_clock():
    app = tm.App("untimed")
    orders = app.source(Order)
    app.clock("1s")
    with pytest.raises(tm.RunError, match="event time"):
        app.run({orders: [{"item": "a"}]})


def test_a_session_with_nothing_but_a_clock_ends():
    app = tm.App("alone")
    app.clock("10ms")
    minutes = app.every("20ms")
    ticks = []
    app.sink(minutes, lambda batch: ticks.append(batch))
    with app.start() as mill:
        until(lambda: ticks)
        assert mill.summary() is not None


class Event(tm.Event):
    at: tm.Time = tm.event_time()


def test_an_idle_source_does_not_stop_timers_while_another_moves():
    app = tm.App("moves")
    still, moving = app.source(Event, name="still"), app.source(Event, name="moving")
    pages = app.table(Page)

    @app.transaction(moving)
    def ask(ev, page=pages.row(lambda e: "all", create=True)):
        page.wake(ev.at + tm.seconds(5))

    minutes, woken = [], []
    app.sink(app.every("10s"), lambda batch: minutes.append(batch))
    app.sink(pages.woken, lambda batch: woken.append(batch))
    with app.start() as mill:
        mill.send(still, {"at": at(1)})
        mill.idle(still)
        mill.send(moving, [{"at": at(2)}, {"at": at(31)}])
        # Ticks at 10, 20 and 30, and the row wakes at 7.
        until(lambda: len(minutes) == 3 and len(woken) == 1)
