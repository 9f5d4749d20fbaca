"""Rows that expire: what is left, and what comes out, is what plain Python makes of the same events."""

import random
import re
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm
from tidemill import testing

RUNS = [(1, None), (2, None), (2, 1), (3, 7)]
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Touch(tm.Event):
    at: int = tm.event_time()
    room: str
    seat: int
    what: str
    until: int


class Seat(tm.Row):
    room: str = tm.key()
    seat: int = tm.key()
    holds: int = 0
    until: int | None = None


class Count(tm.Row):
    id: str = tm.key()
    n: int = 0


def application(expire, apart=False):
    """Seats that expire. All that happens is counted, so that numbers say in which order; or, ``apart``, what expires is
    counted in a table of its own, so that it may run within an epoch."""
    app = tm.App("seats")
    touches, seats, counts = app.source(Touch), app.table(Seat, expire=expire), app.table(Count)
    others = app.table(Count, name="others") if apart else counts

    @app.transaction(touches)
    def touch(ev, s=seats.row("room", "seat", create=True), c=counts.row(lambda e: "all", create=True)):
        was = 0
        if s.exists:
            was = s.holds
        if ev.what == "free":
            if s.exists:
                s.delete()
        elif ev.what == "again":
            if s.exists:
                s.delete()
            s.holds = 1
            s.until = ev.until
        elif ev.what == "open":
            s.holds += 1
            s.until = None
        elif ev.what != "look":
            s.holds += 1
            s.until = ev.until
            tm.require(ev.what != "fail", "as asked")
        c.n += 1
        return {"at": ev.at, "was": was, "n": c.n}

    @app.transaction(seats.expired)
    def told(ev, c=others.row(lambda e: "all", create=True)):
        c.n += 1
        return {"gone_at": ev.gone_at, "room": ev.room, "seat": ev.seat, "holds": ev.holds, "until": ev.until, "n": c.n}

    return app, touches, seats, app.collect(touch.committed), app.collect(told.committed)


def touches_of(seed, count=400):
    rng = random.Random(seed)
    at, events = -20, []
    whats = ["hold", "hold", "hold", "look", "look", "free", "again", "open", "fail"]
    for _ in range(count):
        at += rng.choice([0, 0, 1, 1, 2, 9])
        room, seat = rng.choice(["a", "b", "", "ü"]), rng.randrange(3)
        until = at + rng.choice([-5, 0, 1, 4, 20])
        events.append({"at": at, "room": room, "seat": seat, "what": rng.choice(whats), "until": until})
    return events


def expected(events, expire):
    """Events one after the other, over a table that is looked through for each."""
    rows, found, gone = {}, [], []

    def due(at, until):
        if expire != "until":
            return at + expire
        return None if until is None else max(until, at + 1)

    def count():
        return len(found) + len(gone) + 1

    for event in events:
        at, key = event["at"], (event["room"], event["seat"])
        while over := [(row["due"], key[0].encode(), key) for key, row in rows.items() if row["due"] is not None]:
            when, _, old = min(over)
            if when > at:
                break
            row = rows.pop(old)
            n, (room, seat) = count(), old
            gone.append(
                {"gone_at": when, "room": room, "seat": seat, "holds": row["holds"], "until": row["until"], "n": n}
            )
        row = rows.get(key, {"holds": 0})
        what, until = event["what"], event["until"]
        if what == "fail":
            continue
        found.append({"at": at, "was": row["holds"], "n": count()})
        if what == "free":
            rows.pop(key, None)
        elif what != "look":
            until = None if what == "open" else until
            rows[key] = {"holds": 1 if what == "again" else row["holds"] + 1, "until": until, "due": due(at, until)}
    left = [
        {"room": room, "seat": seat, "holds": row["holds"], "until": row["until"], "gone_at": row["due"]}
        for (room, seat), row in sorted(rows.items(), key=lambda item: (item[0][0].encode(), item[0][1]))
    ]
    return found, gone, left


@pytest.mark.parametrize("expire", [15, 2, "until"])
@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_expire_when_they_are_due(seed, workers, epoch, expire):
    app, touches, seats, found, gone = application(expire)
    events = touches_of(seed)
    app.run({touches: events}, workers=workers, epoch=epoch)
    assert len(gone) > 20
    assert (found.to_pylist(), gone.to_pylist(), seats.to_pylist()) == expected(events, expire)


def without_numbers(rows):
    return [{name: value for name, value in row.items() if name != "n"} for row in rows]


@pytest.mark.parametrize("expire", [15, 2, "until"])
@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_expire_within_an_epoch(seed, workers, epoch, expire):
    app, touches, seats, found, gone = application(expire, apart=True)
    assert "where rows expire within the epoch" in app.explain()
    events = touches_of(seed)
    app.run({touches: events}, workers=workers, epoch=epoch)
    touched, deleted, left = expected(events, expire)
    assert without_numbers(found.to_pylist()) == without_numbers(touched)
    assert without_numbers(gone.to_pylist()) == without_numbers(deleted)
    assert [row["n"] for row in gone.to_pylist()] == list(range(1, len(deleted) + 1))
    assert seats.to_pylist() == left


@pytest.mark.parametrize("expire", [15, "until"])
@pytest.mark.parametrize("memory", [None, "32MiB"])
def test_they_expire_over_restarts(tmp_path, expire, memory):
    events = touches_of(7)
    found, gone, seats = [], [], None
    for part in (events[:100], events[100:101], events[101:250], events[250:]):
        app, touches, seats, rows, deleted = application(expire)
        is_last = part[-1] is events[-1]
        app.run({touches: part}, state=tmp_path / "state", workers=2, final=is_last, memory=memory)
        found += rows.to_pylist()
        gone += deleted.to_pylist()
    assert (found, gone, seats.to_pylist()) == expected(events, expire)


class Message(tm.Event):
    at: tm.Time = tm.event_time()
    who: str


class Session(tm.Row):
    who: str = tm.key()
    messages: int = 0


def sessions(expire="15m", version=1):
    app = tm.App("chat", version=version)
    app.clock("1s")
    messages = app.requests(Message)
    sessions = app.table(Session, expire=expire)

    @app.transaction(messages)
    def message(ev, s=sessions.row("who", create=True)):
        s.messages += 1
        return {"messages": s.messages}

    return app, sessions


def test_time_that_a_test_sets_has_them_expire():
    app, table = sessions()
    with testing.start(app) as mill:
        assert mill.call("message", who="ada")["messages"] == 1
        mill.advance("14m")
        assert mill.call("message", who="ada")["messages"] == 2
        mill.advance("14m")
        gone_at = START + timedelta(minutes=29)
        mill.expect_rows(table, {"who": "ada", "messages": 2, "gone_at": gone_at})
        mill.expect(table.expired)
        mill.advance("1m")
        mill.expect_rows(table)
        mill.expect(table.expired, {"who": "ada", "messages": 2, "gone_at": gone_at})
        assert mill.call("message", who="ada")["messages"] == 1


def test_they_expire_after_a_crash(tmp_path):
    app, table = sessions()
    with testing.start(app, state=tmp_path / "state") as mill:
        mill.call("message", who="ada")
        mill.advance("5m")
        mill.call("message", who="bob")
        mill.crash()
        mill.restart()
        mill.advance("10m")
        mill.expect_rows(table, {"who": "bob"})
        mill.crash()
        mill.restart()
        mill.advance("5m")
        mill.expect_rows(table)


def test_the_program_is_scheduled_as_without():
    app, _ = sessions()
    text = app.explain()
    assert "rows expire 15m after their last write" in text
    assert "whole epochs at a time" in text
    assert "sessions.gone" not in text
    assert "one event at a time" not in text
    assert "expired' has no sink" not in text


def test_a_reader_of_a_session_follows_what_expires():
    app, touches, seats, *_ = application(5)
    with app.start() as mill:
        follower = mill.follow(seats.expired)
        touch = {"room": "a", "seat": 1, "what": "hold", "until": 9}
        mill.send(touches, [{"at": 1, **touch}, {"at": 30, **touch}])
        gone = {"room": "a", "seat": 1, "holds": 1, "until": 9, "gone_at": 6}
        assert follower.next(timeout=30).to_pylist() == [gone]


def test_a_table_with_changes_tells_of_rows_that_expire():
    app = tm.App("seats")
    touches, seats = app.source(Touch), app.table(Seat, expire=5, changes=True)

    @app.transaction(touches)
    def touch(ev, s=seats.row("room", "seat", create=True)):
        s.holds += 1

    changes = app.collect(seats.changes)
    one = {"room": "a", "seat": 1, "what": "hold", "until": 0}
    app.run({touches: [{"at": 1, **one}, {"at": 2, **one}, {"at": 30, **one}]})
    shown = [(change["holds"], change["gone_at"], change["deleted"]) for change in changes.to_pylist()]
    assert shown == [(1, 6, False), (2, 7, False), (None, None, True), (1, 35, False)]


def test_rows_that_loops_and_lists_write_expire():
    class Order(tm.Event):
        at: int = tm.event_time()
        items: list[str]

    class Item(tm.Row):
        item: str = tm.key()
        n: int = 0

    app = tm.App("orders")
    orders, items = app.source(Order), app.table(Item, expire=10)

    @app.transaction(orders)
    def order(ev, row=items.row("items", create=True)):
        for _ in ev.items:
            row.n += 1

    @app.transaction(orders)
    def refresh(ev, rows=items.all()):
        for row in rows:
            if row.n > 1:
                row.n += 10

    gone = app.collect(items.expired)
    events = [{"at": 1, "items": ["pen", "ink"]}, {"at": 5, "items": ["pen"]}, {"at": 8, "items": []}]
    app.run({orders: [*events, {"at": 40, "items": []}]})
    assert gone.to_pylist() == [{"item": "ink", "n": 1, "gone_at": 11}, {"item": "pen", "n": 22, "gone_at": 18}]
    assert items.to_pylist() == []


def test_a_row_that_wakes_expires_too():
    app = tm.App("both")
    touches, seats = app.source(Touch), app.table(Seat, expire=10)

    @app.transaction(touches)
    def touch(ev, s=seats.row("room", "seat", create=True)):
        s.wake(ev.at + ev.until)

    woken, gone = app.collect(seats.woken), app.collect(seats.expired)
    touch_of = {"room": "a", "seat": 1, "what": ""}
    later = {"room": "b", "seat": 1, "what": ""}
    app.run(
        {touches: [{"at": 1, "until": 4, **touch_of}, {"at": 2, "until": 30, **later}, {"at": 60, "until": 1, **later}]}
    )
    assert woken.to_pylist() == [{"room": "a", "seat": 1, "at": 5}]
    assert [row["gone_at"] for row in gone.to_pylist()] == [11, 12]


@pytest.mark.parametrize(
    ("expire", "gone", "left"),
    [(10, [(3, 110)], {1: None, 2: None, 4: 310}), ("until", [(1, 5), (3, 101)], {2: None, 4: 301})],
)
def test_first_rows_expire_by_their_column(expire, gone, left):
    rows = [{"room": "a", "seat": 1, "until": 5}, {"room": "a", "seat": 2}, {"room": "a", "seat": 3, "until": 500}]
    for epoch in (1, None):
        app = tm.App("seats")
        touches, seats = app.source(Touch), app.table(Seat, expire=expire, rows=rows)

        @app.transaction(touches)
        def touch(ev, s=seats.row("room", "seat", create=True)):
            s.holds += 1
            s.until = ev.until

        expired = app.collect(seats.expired)
        events = [(100, 3), (300, 4)]
        app.run(
            {touches: [{"at": at, "room": "a", "seat": seat, "what": "", "until": 0} for at, seat in events]},
            epoch=epoch,
        )
        assert [(row["seat"], row["gone_at"]) for row in expired.to_pylist()] == gone
        assert {row["seat"]: row["gone_at"] for row in seats.to_pylist()} == left


# Other versions of a program over a state of one.


def live(path, expire, version, events):
    """The rows that are left, and the seats and times of those that are gone."""
    app = tm.App("seats", version=version)
    touches, seats = app.source(Touch), app.table(Seat, expire=expire)

    @app.transaction(touches)
    def touch(ev, s=seats.row("room", "seat", create=True)):
        if ev.what == "hold":
            s.holds += 1
            s.until = ev.until

    gone = app.collect(seats.expired) if expire else None
    at = [{"at": at, "room": "a", "seat": seat, "what": what, "until": at + 3} for at, seat, what in events]
    app.run({touches: at}, state=path, final=False)
    times = {row["seat"]: row.get("gone_at", "") for row in seats.to_pylist()}
    return times, [(row["seat"], row["gone_at"]) for row in gone.to_pylist()] if gone else []


BEFORE = [(1, 1, "hold"), (5, 2, "hold")]


def test_a_table_that_gets_it_begins_with_the_next_write(tmp_path):
    assert live(tmp_path, None, 1, BEFORE) == ({1: "", 2: ""}, [])
    with pytest.raises(tm.RunError, match="gone_at"):
        live(tmp_path, 10, 1, [])
    times, gone = live(tmp_path, 10, 2, [(30, 2, "hold"), (35, 3, "hold"), (42, 9, "look")])
    assert (times, gone) == ({1: None, 3: 45}, [(2, 40)])


def test_a_table_that_gets_it_by_a_column_is_refused(tmp_path):
    live(tmp_path, None, 1, BEFORE)
    for version in (1, 2):
        with pytest.raises(tm.RunError, match="rows expire by until in the program"):
            live(tmp_path, "until", version, [])
    assert live(tmp_path, None, 1, []) == ({1: "", 2: ""}, [])


def test_a_table_that_loses_it_keeps_its_rows(tmp_path):
    assert live(tmp_path, 10, 1, BEFORE) == ({1: 11, 2: 15}, [])
    with pytest.raises(tm.RunError, match="rows do not expire any more"):
        live(tmp_path, None, 1, [])
    assert live(tmp_path, None, 2, [(99, 9, "look")]) == ({1: "", 2: ""}, [])


def test_a_table_that_gets_another_keeps_the_times_that_were_given(tmp_path):
    assert live(tmp_path, 10, 1, BEFORE) == ({1: 11, 2: 15}, [])
    with pytest.raises(tm.RunError, match="rows expire 20 after their next write"):
        live(tmp_path, 20, 1, [])
    times, gone = live(tmp_path, 20, 2, [(8, 1, "hold"), (27, 9, "look")])
    assert (times, gone) == ({1: 28}, [(2, 15)])


# Declarations that are refused.


@pytest.mark.parametrize(
    ("expire", "message"),
    [
        (
            "soon",
            "its rows expire by 'soon', which is no column; write a length such as expire='15m', or a column: room",
        ),
        ("room", "its rows expire by 'room', which is str; use a column of event times"),
        (0, "0 is not a length"),
        ("-5m", "is not a duration"),
        (1.5, "1.5 is not a length; write expire='15m'"),
    ],
)
def test_what_is_no_expiry_is_refused(expire, message):
    app = tm.App("seats")
    app.source(Touch)
    with pytest.raises(tm.PlanError, match=re.escape(message)):
        app.table(Seat, expire=expire)


def test_the_unit_is_that_of_event_times():
    app = tm.App("seats")
    app.source(Touch)
    with pytest.raises(tm.PlanError, match="its rows expire after 15m, and event times are int; give a number"):
        app.table(Seat, expire="15m")


def test_without_event_times_it_is_refused():
    class Plain(tm.Event):
        room: str

    class Room(tm.Row):
        room: str = tm.key()
        n: int = 0

    app = tm.App("rooms")
    plains, rooms = app.source(Plain), app.table(Room, expire="15m")
    with pytest.raises(tm.CompileError, match=r"rows of 'rooms' expire, but no source has an event time; .*app.clock"):

        @app.transaction(plains)
        def enter(ev, r=rooms.row("room", create=True)):
            r.n += 1


def test_events_without_the_time_of_their_position_are_refused():
    app = tm.App("seats")
    touches, seats = app.source(Touch, lateness=5), app.table(Seat, expire=5)
    with pytest.raises(tm.CompileError, match="rows of 'seats' expire, but its events do not hold the time of their"):

        @app.transaction(touches.late)
        def touch(ev, s=seats.row("room", "seat", create=True)):
            s.holds += 1


def test_a_stream_of_rows_that_stay_is_refused():
    app = tm.App("seats")
    app.source(Touch)
    seats = app.table(Seat)
    with pytest.raises(tm.PlanError, match="the rows of 'seats' do not expire; declare the table with expire="):
        app.collect(seats.expired)


def test_a_column_of_that_name_is_refused():
    class Gone(tm.Row):
        id: str = tm.key()
        gone_at: int = 0

    app = tm.App("seats")
    app.source(Touch)
    with pytest.raises(tm.PlanError, match="it has a column 'gone_at'.*give the column another name"):
        app.table(Gone, expire=5)
