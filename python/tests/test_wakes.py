"""Rows that wake: what comes out is what plain Python makes of the same events."""

import heapq
import random
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm

RUNS = [(1, None), (2, None), (2, 1), (3, 7)]


class Ask(tm.Event):
    at: int = tm.event_time()
    room: str
    seat: int
    what: str
    minutes: int


class Seat(tm.Row):
    room: str = tm.key()
    seat: int = tm.key()
    holds: int = 0


class Count(tm.Row):
    id: str = tm.key()
    n: int = 0


def application():
    """Seats that are held for a while. A seat that wakes with more than two holds asks to be woken again."""
    app = tm.App("seats")
    asks, seats, counts = app.source(Ask), app.table(Seat), app.table(Count)

    @app.transaction(asks)
    def ask(ev, s=seats.row("room", "seat", create=True)):
        if ev.what == "free":
            if s.exists:
                s.delete()
        elif ev.what == "keep":
            s.wake(None)
        else:
            s.holds += 1
            s.wake(ev.at + ev.minutes)
            tm.require(ev.what != "fail", "as asked")

    @app.transaction(seats.woken)
    def expire(ev, s=seats.row("room", "seat"), c=counts.row(lambda e: "all", create=True)):
        c.n += 1
        if s.holds > 2:
            s.wake(ev.at + 7)
        s.holds = s.holds // 2
        return {"at": ev.at, "room": ev.room, "seat": ev.seat, "holds": s.holds, "n": c.n}

    return app, asks, app.collect(expire.committed)


def asks_of(seed, count=400):
    rng = random.Random(seed)
    at, events = -20, []
    for _ in range(count):
        at += rng.choice([0, 0, 1, 1, 2, 9])
        what = rng.choice(["hold", "hold", "hold", "free", "keep", "fail"])
        room, seat = rng.choice(["a", "b", "", "ü"]), rng.randrange(3)
        events.append({"at": at, "room": room, "seat": seat, "what": what, "minutes": rng.choice([-3, 0, 1, 5, 20])})
    return events


def expected(events):
    """A heap of what is to come, one event at a time."""
    holds, wakes, heap, found = {}, {}, [], []

    def wake(key, at):
        wakes[key] = at
        heapq.heappush(heap, (at, key[0].encode(), key))

    def pass_until(now):
        while heap and heap[0][0] <= now:
            at, _, key = heapq.heappop(heap)
            if wakes.get(key) != at:
                continue
            del wakes[key]
            if holds[key] > 2:
                wake(key, at + 7)
            holds[key] //= 2
            room, seat = key
            found.append({"at": at, "room": room, "seat": seat, "holds": holds[key], "n": len(found) + 1})

    for event in events:
        pass_until(event["at"])
        key = event["room"], event["seat"]
        if event["what"] == "free":
            holds.pop(key, None)
            wakes.pop(key, None)
        elif event["what"] == "keep":
            wakes.pop(key, None)
        elif event["what"] == "hold":
            holds[key] = holds.get(key, 0) + 1
            wake(key, max(event["at"] + event["minutes"], event["at"] + 1))
    return found


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_wake_when_they_asked_to(seed, workers, epoch):
    app, asks, found = application()
    events = asks_of(seed)
    app.run({asks: events}, workers=workers, epoch=epoch)
    assert len(found) > 30
    assert found.to_pylist() == expected(events)


def test_a_wake_is_kept_in_the_state(tmp_path):
    events = asks_of(7)
    found = []
    for part in (events[:100], events[100:250], events[250:]):
        app, asks, rows = application()
        app.run({asks: part}, state=tmp_path / "state", workers=2, final=part[-1] is events[-1])
        found += rows.to_pylist()
    assert found == expected(events)


def test_a_session_shows_what_wakes():
    app, asks, _ = application()
    seats = app.tables["seats"]
    with app.start() as mill:
        follower = mill.follow(seats.woken)
        at = {"room": "a", "seat": 1, "what": "hold", "minutes": 5}
        mill.send(asks, [{"at": 1, **at}, {"at": 30, **at}])
        assert follower.next(timeout=30).to_pylist() == [{"room": "a", "seat": 1, "at": 6}]


class Order(tm.Event):
    at: tm.Time = tm.event_time()
    items: list[str]


class Item(tm.Row):
    item: str = tm.key()


def test_rows_of_a_list_wake_at_times():
    app = tm.App("orders")
    orders, items = app.source(Order), app.table(Item)

    @app.transaction(orders)
    def order(ev, row=items.row("items", create=True)):
        for _ in ev.items:
            row.wake(ev.at + tm.minutes(5))

    woken = app.collect(items.woken)
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    later = at + timedelta(minutes=9)
    app.run({orders: [{"at": at, "items": ["pen", "ink"]}, {"at": later, "items": []}]})
    due = at + timedelta(minutes=5)
    assert woken.to_pylist() == [{"item": "ink", "at": due}, {"item": "pen", "at": due}]
    assert items.to_pylist() == [{"item": "ink"}, {"item": "pen"}]


def test_explain_speaks_of_wakes():
    app, _, _ = application()
    text = app.explain()
    assert "__wakes" not in text
    assert "s (wake)" in text
    assert "s (no wake)" in text


def test_what_wakes_nothing_is_refused():
    app = tm.App("seats")
    seats = app.table(Seat)
    with pytest.raises(tm.CompileError, match=r"no row of 'seats' is ever woken; declare a transaction"):

        @app.transaction(seats.woken)
        def expire(ev, s=seats.row("room", "seat")):
            s.holds = 0
