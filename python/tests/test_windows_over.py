"""Windows over streams, run: what comes out is what plain Python makes of the same events."""

import math
import random
from collections import defaultdict
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm


class Bid(tm.Event):
    at: int = tm.event_time()
    user: str | None
    price: float
    size: int | None
    big: bool
    name: str | None = None


class Total(tm.Row):
    user: str = tm.key()
    value: int = 0


def bids_of(seed, count=300, step=3):
    """Random events in the order of their times, with ties, pauses, Nones, and times below 0."""
    rng = random.Random(seed)
    events, at = [], -rng.randrange(200)
    for _ in range(count):
        at += rng.choice([0, 0, 1, 1, rng.randrange(step + 1), rng.choice([0, 40])])
        price = rng.choice([0.1, 0.2, 0.3, 1e16, -1e16, 7.5])
        size = rng.choice([None, 1, 2, rng.randrange(-50, 50)])
        events.append(
            {
                "at": at,
                "user": rng.choice(["a", "b", "c", None]),
                "price": price,
                "size": size,
                "big": rng.random() < 0.5,
                "name": rng.choice([None, "b", "bb", "a", ""]),
            }
        )
    return events


# The kinds of windows in plain Python: (start, end, events) of each window of one group, from its events in order.


def tumbling(length, origin=0):
    return sliding(length, length, origin)


def sliding(length, every, origin=0):
    def windows(events, at):
        open_windows = defaultdict(list)
        for event in events:
            last = (at(event) - origin) // every * every + origin
            for start in range(last, last - length, -every):
                open_windows[start].append(event)
        return [(start, start + length, inside) for start, inside in open_windows.items()]

    return windows


def session(gap):
    def windows(events, at):
        found = []
        for event in events:
            if not found or at(event) >= found[-1][1]:
                found.append([at(event), 0, []])
            found[-1][1] = at(event) + gap
            found[-1][2].append(event)
        return [tuple(window) for window in found]

    return windows


def closes(events, by, windows, at=lambda e: e["at"]):
    """(end, start, group, events) of all windows in the order in which they close."""
    groups = defaultdict(list)
    for place, event in enumerate(events):
        groups[by(event)].append((place, event))
    found = []
    for group, of in groups.items():
        for start, end, inside in windows(of, lambda pair: at(pair[1])):
            found.append((end, inside[0][0], start, group, [event for _, event in inside]))
    found.sort(key=lambda close: close[:2])
    return [(end, start, group, inside) for end, _, start, group, inside in found]


def answers(events):
    """Returns what ``asked`` returns of a window."""
    prices = [e["price"] for e in events]
    sizes = [e["size"] for e in events if e["size"] is not None]
    best = max(events, key=lambda e: e["price"])
    least = min(events, key=lambda e: e["price"])
    named = [e for e in events if e["name"] is not None]
    sized = [e for e in events if e["size"] is not None]
    return {
        "n": len(events),
        "sum": math.fsum(prices),
        "mean": math.fsum(prices) / len(prices),
        "low": min(prices),
        "high": max(prices),
        "kinds": len(set(sizes)),
        "sizes": len(sizes),
        "size": sum(sizes),
        "size_mean": sum(sizes) / len(sizes) if sizes else None,
        "size_low": min(sizes, default=None),
        "first": events[0]["size"],
        "last": events[-1]["size"],
        "best": best["at"],
        "best_size": best["size"],
        "least": least["at"],
        "names": len([e for e in events if e["name"] is not None]),
        "shortest": least["name"],
        "alphabet": min(named, key=lambda e: e["name"])["at"] if named else None,
        "smallest": min(sized, key=lambda e: e["size"])["at"] if sized else None,
        "any": any(e["big"] for e in events),
        "all": all(e["big"] for e in events),
    }


def declare(app, bids, over, by="user"):
    @app.window(bids, by=by, over=over)
    def asked(w):
        best = w.argmax("price")
        return {
            "start": w.start,
            "end": w.end,
            "user": w.user,
            "n": w.count(),
            "sum": w.price.sum(),
            "mean": w.price.mean(),
            "low": w.price.min(),
            "high": w.price.max(),
            "kinds": w.size.distinct(),
            "sizes": w.size.count(),
            "size": w.size.sum(),
            "size_mean": w.size.mean(),
            "size_low": w.size.min(),
            "first": w.size.first(),
            "last": w.size.last(),
            "best": best.at,
            "best_size": best.size,
            "least": w.argmin("price").at,
            "names": w.name.count(),
            "shortest": w.argmin("price").name,
            "alphabet": w.argmin("name").at,
            "smallest": w.argmin("size").at,
            "any": w.big.any(),
            "all": w.big.all(),
        }

    return asked


def user_of(event):
    return event["user"]


KINDS = [
    ("tumbling", tm.tumbling(10), tumbling(10)),
    ("tumbling of one", tm.tumbling(1), tumbling(1)),
    ("tumbling with an origin", tm.tumbling(10, origin=3), tumbling(10, 3)),
    ("sliding", tm.sliding(10, every=2), sliding(10, 2)),
    ("sliding over many slides", tm.sliding(40, every=2, origin=-1), sliding(40, 2, -1)),
    ("session", tm.session(4), session(4)),
    ("long session", tm.session(40), session(40)),
]
RUNS = [(1, "auto"), (1, 1), (2, 7), (2, "auto")]


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("kind", "over", "windows"), KINDS, ids=[k[0] for k in KINDS])
def test_windows_of_time(kind, over, windows, workers, epoch):
    for seed in range(3):
        app = tm.App("windows")
        bids = app.source(Bid)
        asked = declare(app, bids, over)
        found, failed = app.collect(asked.closed), app.collect(asked.failed)
        events = bids_of(seed)
        app.run({bids: events}, workers=workers, epoch=epoch)
        expected = [
            {"start": start, "end": end, "user": user, **answers(inside)}
            for end, start, user, inside in closes(events, user_of, windows)
        ]
        assert found.to_pylist() == expected
        assert failed.to_pylist() == []


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_counting_windows(workers, epoch):
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, by="user", over=tm.counting(7))
    def asked(w):
        return {"user": w.user, "n": w.count(), "sum": w.price.sum(), "last": w.argmax("at").at}

    found = app.collect(asked.closed)
    events = bids_of(5)
    app.run({bids: events}, workers=workers, epoch=epoch)
    counted, full = {}, []
    for event in events:
        # A group that was closed begins anew, behind those that are open.
        inside = counted.setdefault(event["user"], [])
        inside.append(event)
        if len(inside) == 7:
            full.append((event["user"], counted.pop(event["user"])))
    # The end of the input closes the rest.
    rest = list(counted.items())

    def row(user, inside):
        return {
            "user": user,
            "n": len(inside),
            "sum": math.fsum(e["price"] for e in inside),
            "last": max(e["at"] for e in inside),
        }

    assert found.to_pylist() == [row(*close) for close in full + rest]


@pytest.mark.parametrize("workers", [1, 2])
def test_groups(workers):
    app = tm.App("windows")
    bids = app.source(Bid)

    def parity(e):
        return e.at % 2

    @app.window(bids, over=tm.tumbling(20))
    def of_all(w):
        return {"end": w.end, "n": w.count()}

    @app.window(bids, by=("user", "big"), over=tm.tumbling(20))
    def of_two(w):
        return {"end": w.end, "user": w.user, "big": w.big, "n": w.count()}

    @app.window(bids, by=parity, over=tm.tumbling(20))
    def of_a_def(w):
        return {"end": w.end, "parity": w.parity, "n": w.count()}

    @app.window(bids, by=lambda e: e.price > 1.0, over=tm.tumbling(20))
    def of_a_lambda(w):
        return {"end": w.end, "key": w.key, "n": w.count()}

    @app.window(bids, by={"who": "user", "odd": lambda e: e.at % 2 == 1}, over=tm.tumbling(20))
    def of_names(w):
        return {"end": w.end, "who": w.who, "odd": w.odd, "n": w.count()}

    @app.window(bids, by="user", over=tm.tumbling(20))
    def never_returns(w):
        tm.require(w.count() > 1, "only one")

    streams = [
        of_all.closed,
        of_two.closed,
        of_a_def.closed,
        of_a_lambda.closed,
        of_names.closed,
        never_returns.closed,
        never_returns.failed,
    ]
    found = [app.collect(stream) for stream in streams]
    events = bids_of(6)
    app.run({bids: events}, workers=workers)

    def rows(by, *names):
        groups = closes(events, lambda e: by(e), tumbling(20))
        return [{"end": end, **dict(zip(names, group)), "n": len(inside)} for end, _, group, inside in groups]

    assert found[0].to_pylist() == rows(lambda e: ())
    assert found[1].to_pylist() == rows(lambda e: (e["user"], e["big"]), "user", "big")
    assert found[2].to_pylist() == rows(lambda e: (e["at"] % 2,), "parity")
    assert found[3].to_pylist() == rows(lambda e: (e["price"] > 1.0,), "key")
    assert found[4].to_pylist() == rows(lambda e: (e["user"], e["at"] % 2 == 1), "who", "odd")
    users = closes(events, user_of, tumbling(20))
    several = [{"user": user, "start": start, "end": end} for end, start, user, inside in users if len(inside) > 1]
    single = [{"user": user, "start": start, "end": end} for end, start, user, inside in users if len(inside) == 1]
    assert several and single
    assert [{k: row[k] for k in ("user", "start", "end")} for row in found[5].to_pylist()] == several
    assert [{k: row[k] for k in ("user", "start", "end")} for row in found[6].to_pylist()] == single
    assert {row["reason"] for row in found[6].to_pylist()} == {"only one"}


@pytest.mark.parametrize("workers", [1, 2])
def test_having(workers):
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, by="user", over=tm.sliding(20, every=5))
    def asked(w):
        n = w.count()
        if n < 3:
            return
        if w.price.max() > 1.0:
            return {"end": w.end, "user": w.user, "n": n, "note": f"high {n}"}
        return {"end": w.end, "user": w.user, "n": n, "note": "low"}

    found = app.collect(asked.closed)
    events = bids_of(7)
    app.run({bids: events}, workers=workers)
    expected = []
    for end, _, user, inside in closes(events, user_of, sliding(20, 5)):
        if len(inside) >= 3:
            high = max(e["price"] for e in inside) > 1.0
            expected.append(
                {"end": end, "user": user, "n": len(inside), "note": f"high {len(inside)}" if high else "low"}
            )
    assert expected and found.to_pylist() == expected


def test_a_window_of_what_filters_and_maps_leave():
    app = tm.App("windows")
    bids = app.source(Bid)
    sized = bids.filter(lambda e: e.size is not None and e.size > 0).map(
        lambda e: {"who": e.user, "cents": e.price * 100.0}
    )

    @app.window(sized, by="who", over=tm.tumbling(10))
    def asked(w):
        return {"end": w.end, "who": w.who, "cents": w.cents.sum()}

    found = app.collect(asked.closed)
    events = bids_of(8)
    app.run({bids: events})
    kept = [e for e in events if e["size"] is not None and e["size"] > 0]
    assert found.to_pylist() == [
        {"end": end, "who": user, "cents": math.fsum(e["price"] * 100.0 for e in inside)}
        for end, _, user, inside in closes(kept, user_of, tumbling(10))
    ]


def history(events, closed):
    """Events and closes in the order of positions: (time, whether it is a close, what)."""
    both = [(e["at"], False, i, e) for i, e in enumerate(events)] + [
        (c[0] - 1, True, i, c) for i, c in enumerate(closed)
    ]
    return [(is_close, what) for _, is_close, _, what in sorted(both, key=lambda entry: entry[:3])]


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("over", "windows"), [k[1:] for k in KINDS], ids=[k[0] for k in KINDS])
def test_closes_feed_transactions_in_one_history(over, windows, workers, epoch):
    app = tm.App("windows")
    totals = app.table(Total)
    bids = app.source(Bid)

    @app.window(bids, by="user", over=over)
    def asked(w):
        return {"end": w.end, "user": w.user, "n": w.count()}

    @app.transaction(bids)
    def added(ev, t=totals.row(lambda e: "none" if e.user is None else e.user, create=True)):
        t.value = (t.value * 3 + 1) % 1_000_003
        return {"user": ev.user, "value": t.value}

    @app.transaction(asked.closed)
    def folded(ev, t=totals.row(lambda e: "none" if e.user is None else e.user, create=True)):
        t.value = (t.value * 5 + ev.n) % 1_000_003
        return {"end": ev.end, "user": ev.user, "value": t.value}

    seen = [app.collect(added.committed), app.collect(folded.committed)]
    events = bids_of(9)
    app.run({bids: events}, workers=workers, epoch=epoch)
    values, of_events, of_closes = defaultdict(int), [], []
    for is_close, what in history(events, closes(events, user_of, windows)):
        user = what[2] if is_close else what["user"]
        if is_close:
            values[user] = (values[user] * 5 + len(what[3])) % 1_000_003
            of_closes.append({"end": what[0], "user": user, "value": values[user]})
        else:
            values[user] = (values[user] * 3 + 1) % 1_000_003
            of_events.append({"user": user, "value": values[user]})
    assert seen[0].to_pylist() == of_events
    assert seen[1].to_pylist() == of_closes
    assert {row["user"]: row["value"] for row in totals.to_pylist()} == {
        user or "none": v for user, v in values.items()
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_transactions_feed_windows(workers):
    app = tm.App("windows")
    totals = app.table(Total)
    bids = app.source(Bid)

    @app.transaction(bids)
    def counted(ev, t=totals.row(lambda e: "none" if e.user is None else e.user, create=True)):
        tm.require(not ev.big, "too big")
        t.value += 1
        return {"user": ev.user, "value": t.value}

    @app.window(counted.committed, by="user", over=tm.tumbling(10))
    def asked(w):
        return {"end": w.end, "user": w.user, "from": w.value.first(), "to": w.value.last()}

    found = app.collect(asked.closed)
    events = bids_of(10)
    app.run({bids: events}, workers=workers)
    values, committed = defaultdict(int), []
    for event in events:
        if not event["big"]:
            values[event["user"]] += 1
            committed.append({**event, "value": values[event["user"]]})
    assert found.to_pylist() == [
        {"end": end, "user": user, "from": inside[0]["value"], "to": inside[-1]["value"]}
        for end, _, user, inside in closes(committed, user_of, tumbling(10))
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_windows_over_windows(workers):
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, by="user", over=tm.tumbling(10))
    def inner(w):
        return {"user": w.user, "n": w.count(), "from": w.start}

    @app.window(inner.closed, by="user", over=tm.tumbling(30))
    def outer(w):
        return {"end": w.end, "user": w.user, "n": w.n.sum(), "windows": w.count(), "last": w.argmax("from").n}

    @app.window(inner.closed, over=tm.session(15))
    def pauses(w):
        return {"start": w.start, "end": w.end, "n": w.n.sum()}

    found = [app.collect(outer.closed), app.collect(pauses.closed)]
    events = bids_of(11)
    app.run({bids: events}, workers=workers)
    # The time of a close is that of its position: the last unit of its window.
    inside = [
        {"at": end - 1, "user": user, "n": len(of), "from": start}
        for end, start, user, of in closes(events, user_of, tumbling(10))
    ]
    assert found[0].to_pylist() == [
        {
            "end": end,
            "user": user,
            "n": sum(e["n"] for e in of),
            "windows": len(of),
            "last": max(of, key=lambda e: e["from"])["n"],
        }
        for end, _, user, of in closes(inside, user_of, tumbling(30))
    ]
    assert found[1].to_pylist() == [
        {"start": start, "end": end, "n": sum(e["n"] for e in of)}
        for end, start, _, of in closes(inside, lambda e: None, session(15))
    ]


def test_a_sum_that_does_not_fit_fails_its_window():
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, by="user", over=tm.tumbling(10))
    def asked(w):
        return {"user": w.user, "size": w.size.sum()}

    found, failed = app.collect(asked.closed), app.collect(asked.failed)
    huge = 2**63 - 1
    sizes = [("a", huge), ("a", huge), ("a", -huge), ("b", huge), ("b", 1)]
    app.run({bids: [{"at": 1, "user": user, "price": 0.0, "size": size, "big": False} for user, size in sizes]})
    assert found.to_pylist() == [{"user": "a", "size": huge}]
    assert [(row["user"], row["start"], row["end"]) for row in failed.to_pylist()] == [("b", 0, 10)]


def test_no_events_no_windows():
    app = tm.App("windows")
    bids = app.source(Bid)
    found = app.collect(declare(app, bids, tm.tumbling(10)).closed)
    app.run({bids: []})
    assert found.to_pylist() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_late_events_are_in_no_window(workers):
    app = tm.App("windows")
    bids = app.source(Bid, lateness=5)

    @app.window(bids, over=tm.tumbling(10))
    def asked(w):
        return {"end": w.end, "n": w.count()}

    found, late = app.collect(asked.closed), app.collect(bids.late)
    rng = random.Random(12)
    events = [{**event, "at": event["at"] - rng.randrange(9)} for event in bids_of(12)]
    app.run({bids: events}, workers=workers)
    assert sum(row["n"] for row in found.to_pylist()) + len(late.to_pylist()) == len(events)
    assert late.to_pylist()


# The proposal's programs, with times that are instants.


def instant(seconds):
    return datetime(2024, 5, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


class Offer(tm.Event):
    at: tm.Time = tm.event_time()
    auction: int
    bidder: int
    price: float


@pytest.mark.parametrize("workers", [1, 2])
def test_bids(workers):
    rng = random.Random(13)
    events, at = [], 0
    for _ in range(400):
        at += rng.choice([0, 0, 0, 1, 2, rng.choice([0, 12])])
        events.append(
            {
                "at": instant(at),
                "auction": rng.randrange(5),
                "bidder": rng.randrange(9),
                "price": float(rng.randrange(20)),
            }
        )
    app = tm.App("bids")
    bids = app.source(Offer, name="bids")

    @app.window(bids, by="auction", over=tm.sliding("10s", every="2s"))
    def heat(w):
        return {"at": w.end, "auction": w.auction, "bids": w.count()}

    @app.window(bids, over=tm.tumbling("10s"))
    def highest(w):
        best = w.argmax("price")
        return {"at": w.end, "auction": best.auction, "price": best.price}

    @app.window(bids, by="bidder", over=tm.session("10s"))
    def visits(w):
        return {"bidder": w.bidder, "start": w.start, "end": w.end, "bids": w.count()}

    found = [app.collect(window.closed) for window in (heat, highest, visits)]
    app.run({bids: events}, workers=workers)

    def seconds(event):
        return int((event["at"] - instant(0)).total_seconds())

    # The day begins at a multiple of all lengths.
    assert found[0].to_pylist() == [
        {"at": instant(end), "auction": auction, "bids": len(of)}
        for end, _, auction, of in closes(events, lambda e: e["auction"], sliding(10, 2), seconds)
    ]
    best = [
        (end, max(of, key=lambda e: e["price"]))
        for end, _, _, of in closes(events, lambda e: None, tumbling(10), seconds)
    ]
    assert found[1].to_pylist() == [
        {"at": instant(end), "auction": e["auction"], "price": e["price"]} for end, e in best
    ]
    assert found[2].to_pylist() == [
        {"bidder": bidder, "start": instant(start), "end": instant(end), "bids": len(of)}
        for end, start, bidder, of in closes(events, lambda e: e["bidder"], session(10), seconds)
    ]


def test_windows_in_a_session():
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, by="user", over=tm.tumbling(10))
    def asked(w):
        tm.require(w.count() > 1, "only one")
        return {"end": w.end, "user": w.user, "n": w.count()}

    with app.start() as session:
        for stream in app.streams():
            session.follow(stream)
        closed, failed = session.follow(asked.closed), session.follow(asked.failed)
        bid = {"price": 0.0, "size": None, "big": False}
        session.send(bids, [{"at": at, "user": user, **bid} for at, user in [(1, "a"), (2, "b"), (3, "a"), (12, None)]])
        assert closed.next(timeout=30).to_pylist() == [{"end": 10, "user": "a", "n": 2}]
        assert [(row["user"], row["reason"]) for row in failed.next(timeout=30).to_pylist()] == [("b", "only one")]


# Ticks.


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_ticks_come_before_the_events_of_their_time(workers, epoch):
    app = tm.App("ticks")
    totals = app.table(Total)
    bids = app.source(Bid)
    tens = app.every(10, origin=3)

    @app.transaction(bids)
    def counted(ev, t=totals.row(lambda e: "all", create=True)):
        t.value += 1

    @app.transaction(tens)
    def told(ev, t=totals.row(lambda e: "all", create=True)):
        return {"at": ev.at, "before": t.value}

    found = app.collect(told.committed)
    events = bids_of(14)
    app.run({bids: events}, workers=workers, epoch=epoch)
    first, last = events[0]["at"], events[-1]["at"]
    ticks = [at for at in range(first + 1, last + 1) if (at - 3) % 10 == 0]
    assert ticks
    assert found.to_pylist() == [{"at": at, "before": sum(e["at"] < at for e in events)} for at in ticks]


def test_ticks_of_time():
    app = tm.App("ticks")
    offers = app.source(Offer, name="offers")
    found = app.collect(app.every("1m"))
    app.collect(offers)
    app.run({offers: [{"at": instant(s), "auction": 1, "bidder": 1, "price": 1.0} for s in (59, 60, 200)]})
    assert found.to_pylist() == [{"at": instant(60)}, {"at": instant(120)}, {"at": instant(180)}]
