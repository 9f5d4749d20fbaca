"""Joins of streams, run: what comes out is what plain Python makes of the same events."""

import random
import re
from datetime import timedelta

import pytest

import tidemill as tm


class Person(tm.Event):
    at: int = tm.event_time()
    id: int | None
    name: str
    number: int


class Auction(tm.Event):
    at: int = tm.event_time()
    seller: int | None
    item: str | None
    number: int


def events_of(rng, fields, count=60):
    """Random events in the order of their times, with ties, pauses, Nones, and times below 0."""
    at, events = -rng.randrange(60), []
    for number in range(count):
        at += rng.choice([0, 0, 1, 1, 2, rng.choice([0, 40])])
        events.append({"at": at, **fields(rng), "number": number})
    return events


def people_of(seed, count=60):
    rng = random.Random(seed)
    return events_of(rng, lambda r: {"id": r.choice([None, 1, 2, 3]), "name": r.choice(["", "ann", "Ü"])}, count)


def auctions_of(seed, count=60):
    rng = random.Random(seed + 1000)
    return events_of(rng, lambda r: {"seller": r.choice([None, 1, 2, 4]), "item": r.choice([None, "pen"])}, count)


def within(length):
    return lambda a, b: abs(a - b) < length, lambda at: at + length - 1


def over(length, origin=0):
    def window(at):
        return (at - origin) // length

    return lambda a, b: window(a) == window(b), lambda at: (window(at) + 1) * length + origin - 1


def joined(people, auctions, reach, how):
    """(left, right) of all pairs and of what is alone, in order."""
    reaches, last = reach
    arrivals = [(p["at"], 0, p) for p in people] + [(a["at"], 1, a) for a in auctions]
    arrivals.sort(key=lambda arrival: arrival[:2])

    def key(side, event):
        return event["id" if side == 0 else "seller"]

    def meet(one, other):
        same = key(*one[1:]) is not None and key(*one[1:]) == key(*other[1:])
        return one[1] != other[1] and same and reaches(one[0], other[0])

    def pair(one, other=None):
        events = {one[1]: one[2]}
        if other is not None:
            events[other[1]] = other[2]
        return events.get(0), events.get(1)

    found = []
    if how != "anti":
        for i, later in enumerate(arrivals):
            found += [(later[0], 1, 0, pair(later, earlier)) for earlier in arrivals[:i] if meet(earlier, later)]
    waits = {"inner": (), "left": (0,), "anti": (0,), "outer": (0, 1)}[how]
    alone = [a for a in arrivals if a[1] in waits and not any(meet(a, other) for other in arrivals)]
    for one in alone:
        together = [(last(a[0]), key(*a[1:])) for a in alone]
        found.append((last(one[0]), 2, together.index((last(one[0]), key(*one[1:]))), pair(one)))
    return [pair for *_, pair in sorted(found, key=lambda each: each[:3])]


def declare(app, people, auctions, bound, how):
    arguments = {"on": ("id", "seller"), "how": how, **bound}
    if how == "anti":

        @app.join(people, auctions, **arguments)
        def alone(p):
            return {"left": p.number, "name": p.name}

        return alone
    if how == "inner":

        @app.join(people, auctions, **arguments)
        def pairs(p, a):
            return {"left": p.number, "name": p.name, "right": a.number, "item": a.item}

        return pairs
    if how == "left":

        @app.join(people, auctions, **arguments)
        def left(p, a):
            return {"left": p.number, "name": p.name, "right": a.number, "item": a.item, "there": a.exists}

        return left

    @app.join(people, auctions, **arguments)
    def outer(p, a):
        there = p.exists and a.exists
        return {"left": p.number, "name": p.name, "right": a.number, "item": a.item, "there": there}

    return outer


def row(how, left, right):
    of = {"left": left and left["number"], "name": left and left["name"]}
    if how != "anti":
        of |= {"right": right and right["number"], "item": right and right["item"]}
    if how in ("left", "outer"):
        of["there"] = left is not None and right is not None
    return of


BOUNDS = [
    ("within 1", {"within": 1}, within(1)),
    ("within 5", {"within": 5}, within(5)),
    ("within 50", {"within": 50}, within(50)),
    ("windows of 10", {"over": tm.tumbling(10)}, over(10)),
    ("windows of 7 from 3", {"over": tm.tumbling(7, origin=3)}, over(7, 3)),
]
RUNS = [(1, "auto"), (1, 1), (2, 7), (2, "auto")]


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("how", ["inner", "left", "outer", "anti"])
@pytest.mark.parametrize(("bound", "reach"), [b[1:] for b in BOUNDS], ids=[b[0] for b in BOUNDS])
def test_joins(bound, reach, how, workers, epoch):
    for seed in range(2):
        app = tm.App("joins")
        people, auctions = app.source(Person, name="people"), app.source(Auction)
        asked = declare(app, people, auctions, bound, how)
        found, failed = app.collect(asked.joined), app.collect(asked.failed)
        data = people_of(seed), auctions_of(seed)
        app.run({people: data[0], auctions: data[1]}, workers=workers, epoch=epoch)
        assert found.to_pylist() == [row(how, *pair) for pair in joined(*data, reach, how)]
        assert failed.to_pylist() == []


def test_a_stream_with_itself():
    app = tm.App("joins")
    people = app.source(Person, name="people")

    @app.join(people, people, on="id", within=3)
    def twice(p, q):
        if p.number != q.number:
            return {"left": p.number, "right": q.number}

    found = app.collect(twice.joined)
    events = people_of(3)
    app.run({people: events})
    expected = []
    for i, later in enumerate(events):
        near = [e for e in events[:i] if e["id"] == later["id"] is not None and later["at"] - e["at"] < 3]
        # The event comes to the left side first.
        expected += [{"left": later["number"], "right": e["number"]} for e in near]
        expected += [{"left": e["number"], "right": later["number"]} for e in near]
    assert found.to_pylist() == expected


def test_keys():
    app = tm.App("joins")
    people, auctions = app.source(Person, name="people"), app.source(Auction)

    @app.join(people, auctions, on=(lambda p: p.number % 3, lambda a: a.number % 3), within=4)
    def computed(p, a):
        return {"left": p.number, "right": a.number}

    @app.join(people, auctions, on={"id": "seller", "name": "item"}, within=40)
    def several(p, a):
        return {"left": p.number, "right": a.number}

    @app.join(people, auctions, on=["number", "at"], within=1)
    def same(p, a):
        return {"at": p.at, "number": a.number}

    found = [app.collect(join.joined) for join in (computed, several, same)]
    data = people_of(5), [{**a, "item": a["item"] and "ann"} for a in auctions_of(5)]
    app.run({people: data[0], auctions: data[1]})

    def pairs(equal, length):
        every = [(p, a) for p in data[0] for a in data[1] if equal(p, a) and abs(p["at"] - a["at"]) < length]
        return sorted((p["number"], a["number"]) for p, a in every)

    def numbers(rows):
        return sorted((row["left"], row["right"]) for row in rows.to_pylist())

    assert numbers(found[0]) == pairs(lambda p, a: p["number"] % 3 == a["number"] % 3, 4)
    both = pairs(
        lambda p, a: None not in (p["id"], a["item"]) and p["id"] == a["seller"] and p["name"] == a["item"], 40
    )
    assert both and numbers(found[1]) == both
    assert [r["number"] for r in found[2].to_pylist()] == [
        n for n, _ in pairs(lambda p, a: p["number"] == a["number"], 1)
    ]


class Count(tm.Row):
    id: int = tm.key()
    pairs: int = 0


def test_what_is_joined_feeds_everything():
    app = tm.App("joins")
    people, auctions = app.source(Person, name="people"), app.source(Auction)
    counts = app.table(Count)

    @app.join(people, auctions, on=("id", "seller"), within=5)
    def sales(p, a):
        tm.require(p.name != "Ü", "no such name")
        return {"id": p.id, "left": p.number, "right": a.number}

    @app.transaction(sales.joined.filter(lambda s: s.left % 2 == 0))
    def count(ev, c=counts.row("id", create=True)):
        c.pairs += 1
        return {"id": ev.id, "pairs": c.pairs}

    @app.window(sales.joined, by="id", over=tm.tumbling(20))
    def busy(w):
        return {"end": w.end, "id": w.id, "n": w.count()}

    @app.join(busy.closed, auctions, on=("id", "seller"), within=20, how="left")
    def after(w, a):
        if not a.exists:
            return {"end": w.end, "id": w.id, "n": w.n}

    found = [app.collect(s) for s in (sales.joined, sales.failed, busy.closed, after.joined)]
    counted = app.collect(count.committed)
    data = people_of(6), auctions_of(6)
    app.run({people: data[0], auctions: data[1]}, workers=2, epoch=5)
    pairs = joined(*data, within(5), "inner")
    good = [(p, a) for p, a in pairs if p["name"] != "Ü"]
    assert [(r["left"], r["right"]) for r in found[0].to_pylist()] == [(p["number"], a["number"]) for p, a in good]
    bad = found[1].to_pylist()
    assert [(r["p.number"], r["a.number"], r["at"], r["reason"]) for r in bad] == [
        (p["number"], a["number"], max(p["at"], a["at"]), "no such name") for p, a in pairs if p["name"] == "Ü"
    ]
    tallies = {}
    for p, _ in good:
        tallies[p["id"]] = tallies.get(p["id"], 0) + (p["number"] % 2 == 0)
    assert {r["id"]: r["pairs"] for r in counted.to_pylist()} == {k: n for k, n in tallies.items() if n}
    # The time of a pair is that of its later event.
    windows = {}
    for p, a in good:
        end = max(p["at"], a["at"]) // 20 * 20 + 20
        windows[end, p["id"]] = windows.get((end, p["id"]), 0) + 1
    assert [(r["end"], r["id"], r["n"]) for r in found[2].to_pylist()] == sorted(
        ((end, who, n) for (end, who), n in windows.items()), key=lambda r: r[0]
    )
    lonely = [
        (end, who, n)
        for (end, who), n in windows.items()
        if not any(a["seller"] == who and abs(a["at"] - (end - 1)) < 20 for a in data[1])
    ]
    assert sorted((r["end"], r["id"], r["n"]) for r in found[3].to_pylist()) == sorted(lonely)


def test_a_state_goes_on(tmp_path):
    def program():
        app = tm.App("joins")
        people, auctions = app.source(Person, name="people"), app.source(Auction)
        asked = declare(app, people, auctions, {"within": 30}, "outer")
        return app, people, auctions, app.collect(asked.joined)

    data = people_of(8), auctions_of(8)
    whole = [row("outer", *pair) for pair in joined(*data, within(30), "outer")]
    found = []
    for part in (20, 40, 60):
        app, people, auctions, rows = program()
        app.run(
            {people: data[0][part - 20 : part], auctions: data[1][part - 20 : part]},
            state=tmp_path / "state",
            final=part == 60,
        )
        found += rows.to_pylist()
    assert found == whole


REFUSED = [
    (
        "on='id'",
        "a join has no bound; say how far apart in time its events may be: within='1h', or over=tm.tumbling('10s')",
    ),
    (
        "on='id', within='1h', over=tm.tumbling('10s')",
        "a join has both 'within' and 'over'; say how far apart in time its events may be: within='1h', or over=tm.tumbling('10s')",
    ),
    (
        "on='id', over=tm.session('10s')",
        "a join is over tumbling windows, not <session windows>; write over=tm.tumbling('10s'), or within= for events that are less than so far apart",
    ),
    (
        "on=3, within=5",
        "3 does not say what is equal in a pair; write on='id', on=('id', 'seller') or on={'id': 'seller', 'city': 'city'}",
    ),
    (
        "on='a b', within=5",
        "'a b' is not the name of a field; write on='id', on=('id', 'seller') or on={'id': 'seller', 'city': 'city'}",
    ),
    ("on='at', within=-1", "-1 is not a length; it is greater than 0, and fits 64 bits"),
    ("on='at', within=2.5", "2.5 is not a length; write within='1h', or an int where the event time is one"),
    ("on='at', within=5, how='full'", "how='full' is no kind of join; there are inner, left, outer, anti"),
    ("on='at', within='5s'", "the event time is an int, but the join is within seconds(5); give an int"),
    (
        "on='at', within=5, how='anti'",
        "the function of an anti join takes the left event and nothing else; write 'def f(p): ...'; it runs on left events that have no partner",
    ),
    (
        "on=('name', 'number'), within=5",
        "the key is ev.name on the left, which is str, and ev.number on the right, which is int; give both one type, in a map of one of the streams",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_no_join_is(module, arguments, message):
    source = "\n".join(
        [
            "class Person(tm.Event):",
            "    at: int = tm.event_time()",
            "    name: str",
            "    number: int",
            "people = app.source(Person)",
            f"@app.join(people, people, {arguments})",
            "def f(p, a):",
            "    return {'n': p.number}",
            "",
        ]
    )
    with pytest.raises((tm.PlanError, tm.CompileError), match=re.escape(message)):
        module(source, prelude="import tidemill as tm\napp = tm.App('joins')\n")


def test_what_is_not_a_stream():
    app = tm.App("joins")
    people = app.source(Person, name="people")
    with pytest.raises(tm.PlanError, match="'int' object is not a stream|int is not a stream|an int is not a stream"):
        app.join(people, 3, on="id", within=5)
    other = tm.App("others").source(Person)
    with pytest.raises(tm.PlanError, match="belongs to the application 'others'"):
        app.join(people, other, on="id", within=5)


def test_declared_again_and_replaced():
    app = tm.App("joins")
    people, auctions = app.source(Person, name="people"), app.source(Auction)

    def pairs(p, a):
        return {"left": p.number}

    first = app.join(people, auctions, on=("id", "seller"), within=5)(pairs)
    assert app.join(people, auctions, on=("id", "seller"), within=5)(pairs) is first
    with pytest.raises(tm.PlanError, match="join 'pairs': it is declared already, and not as here"):
        app.join(people, auctions, on=("id", "seller"), within=6)(pairs)
    second = app.join(people, auctions, on=("id", "seller"), within=6, replace=True)(pairs)
    assert app.joins == {"pairs": second}
    assert [s.label for s in app.streams()][-2:] == ["pairs.joined", "pairs.failed"]
    with pytest.raises(TypeError, match="join 'pairs' is compiled and cannot be called"):
        second(1, 2)


def test_times_and_explain():
    class Click(tm.Event):
        at: tm.Time = tm.event_time()
        user: str

    app = tm.App("joins")
    clicks = app.source(Click)

    @app.join(clicks, clicks, on="user", within=timedelta(seconds=5), how="left")
    def next_click(p, a):
        return {"user": p.user, "after": a.at}

    text = app.explain()
    assert "next_click: clicks with clicks, on user = user, less than seconds(5) apart" in text
    assert "keeps p.user, a.at by key, for seconds(5) and at most twice as long" in text
    assert "an event without a partner comes seconds(5) after it, between epochs: an epoch ends where one may" in text
    assert "-> join next_click" in text


def test_fields_that_may_be_missing():
    class Payment(tm.Event):
        at: int = tm.event_time()
        src: str
        dst: str
        amount: int

    app = tm.App("joins")
    payments = app.source(Payment)

    def share(payment, of):
        return payment.amount * 100 // of.amount

    @app.join(payments, payments, on=("dst", "src"), within=10, how="left")
    def passed_on(p, a):
        if not a.exists or a.amount < p.amount:
            return {"account": p.dst, "came": p.amount, "went": a.amount}

    @app.join(payments, payments, on=("dst", "src"), within=10, how="left")
    def shares(p, a):
        return {"percent": share(a, p)}

    found = [app.collect(s) for s in (passed_on.joined, shares.joined, shares.failed)]
    app.run(
        {
            payments: [
                {"at": 1, "src": "a", "dst": "b", "amount": 10},
                {"at": 3, "src": "b", "dst": "c", "amount": 4},
                {"at": 5, "src": "b", "dst": "c", "amount": 12},
                {"at": 11, "src": "b", "dst": "c", "amount": 1},
            ]
        }
    )
    rows = [{"account": "b", "came": 10, "went": 4}]
    rows += [{"account": "c", "came": n, "went": None} for n in (4, 12, 1)]
    assert found[0].to_pylist() == rows
    assert found[1].to_pylist() == [{"percent": 40}, {"percent": 120}]
    failed = found[2].to_pylist()
    assert [(r["p.amount"], r["a.amount"], r["a.exists"] if "a.exists" in r else None, r["at"]) for r in failed] == [
        (n, None, False, at + 9) for n, at in ((4, 3), (12, 5), (1, 11))
    ]
    assert {r["reason"] for r in failed} == {"None in a.amount"}
