"""The top of each instant: what comes out is what plain Python makes of the same events."""

import random

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (2, 1), (3, 7)]


class Bid(tm.Event):
    at: int = tm.event_time()
    house: str | None
    number: int
    price: float
    size: int


def bids_of(seed, count=150):
    rng = random.Random(seed)
    at, bids = rng.choice([0, -20]), []
    for number in range(count):
        at += rng.choice([0, 0, 0, 0, 1, 3])
        price = rng.choice([0.0, -0.0, 1.5, 2.5, float("inf"), float("nan")])
        house = rng.choice(["a", "b", None])
        bids.append({"at": at, "house": house, "number": number, "price": price, "size": rng.randrange(4)})
    return bids


def tops(bids, count, by, per, ties):
    """Returns the tops by definition: instant by instant, groups in the order of their first events."""
    found = []
    for at in dict.fromkeys(bid["at"] for bid in bids):
        groups = {}
        for bid in bids:
            if bid["at"] == at:
                groups.setdefault(tuple(bid[field] for field in per), []).append(bid)
        for group in groups.values():
            ranked = sorted((bid for bid in group if bid[by] == bid[by]), key=lambda bid: -bid[by])
            equal = [bid for bid in ranked[count:] if ties and bid[by] == ranked[count - 1][by]]
            found += ranked[:count] + equal
    return found


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("count", "by"), [(1, "size"), (2, "price"), (3, "size"), (1000, "size")])
def test_tops_are_those_of_plain_python(workers, epoch, ties, count, by):
    for seed, per in enumerate([None, "house", ("house", "size")]):
        bids = bids_of(seed)
        app = tm.App("tops")
        source = app.source(Bid)
        found = app.collect(source.top(count, by=by, per=per, ties=ties))
        app.run({source: bids}, workers=workers, epoch=epoch)
        fields = [] if per is None else [per] if isinstance(per, str) else per
        numbers = [bid["number"] for bid in tops(bids, count, by, fields, ties)]
        assert [row["number"] for row in found.to_pylist()] == numbers
        assert all(repr(row) == repr(bids[row["number"]]) for row in found.to_pylist())


class Total(tm.Row):
    id: str = tm.key()
    bids: int = 0


def test_a_top_stands_at_the_end_of_its_instant():
    bids = bids_of(5)
    app = tm.App("order")
    source, totals = app.source(Bid), app.table(Total)
    best = source.top(1, by="size", name="best")

    @app.transaction(best)
    def seen(ev, t=totals.row(lambda e: "all", create=True)):
        return {"number": ev.number, "bids": t.bids}

    @app.transaction(source)
    def bid(ev, t=totals.row(lambda e: "all", create=True)):
        t.bids += 1

    @app.window(best, over=tm.tumbling(5))
    def five(w):
        return {"start": w.start, "n": w.count()}

    found, windows = app.collect(seen.committed), app.collect(five.closed)
    app.run({source: bids}, workers=2)
    expected = tops(bids, 1, "size", [], False)
    assert [(row["number"], row["bids"]) for row in found.to_pylist()] == [
        (best["number"], sum(bid["at"] <= best["at"] for bid in bids)) for best in expected
    ]
    starts = [best["at"] // 5 * 5 for best in expected]
    assert [(row["start"], row["n"]) for row in windows.to_pylist()] == [
        (start, starts.count(start)) for start in dict.fromkeys(starts)
    ]


class Basket(tm.Event):
    at: tm.Time = tm.event_time()
    n: int
    maybe: int | None
    text: str
    items: list[int]


def plain(source):
    return source.map(lambda e: {"at": e.at, "n": e.n, "maybe": e.maybe, "text": e.text})


REFUSED = [
    (
        lambda s: s.top(1, by="n"),
        "its events have the list 'items'; a top keeps no lists: leave it out with a map before",
    ),
    (lambda s: plain(s).top(0, by="n"), "the top has 0 places; give 1 to 1000"),
    (lambda s: plain(s).top(1001, by="n"), "the top has 1001 places; give 1 to 1000"),
    (
        lambda s: plain(s).top(1, by="text"),
        "the top is by str, which has no order here; rank by a number or a time that is never None",
    ),
    (
        lambda s: plain(s).top(1, by="maybe"),
        "the top is by int | None, which has no order here; rank by a number or a time that is never None",
    ),
    (lambda s: plain(s).top(1, by="m"), "no event field 'm'; known: at, n, maybe, text"),
    (lambda s: plain(s).top("1", by="n"), "'1' is not a number of events; write bids.top(3, by='price')"),
    (lambda s: plain(s).top(1, by=3), "3 is not the name of a field; write bids.top(3, by='price', per='at')"),
    (
        lambda s: plain(s).top(1, by="n", per=("at", 3)),
        "3 is not the name of a field; write bids.top(3, by='price', per='at')",
    ),
    (lambda s: plain(s).top(1, by="n", ties=1), "ties=1 is an int; write ties=True"),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED)
def test_wrong_tops_are_refused(declare, message):
    app = tm.App("refused")
    with pytest.raises(tm.PlanError) as refused:
        declare(app.source(Basket))
    assert str(refused.value).partition("': ")[2] == message


def test_the_same_top_is_declared_once():
    app = tm.App("same")
    source = app.source(Bid)
    top = source.top(1, by="size")
    assert source.top(1, by="size") is top and top.label == "bids_top"
    assert source.top(2, by="size").label == "bids_top_2"
    assert top.label in {stream.label for stream in app.streams()}
    assert "bids_top: the top of each instant of bids" in app.explain()


def test_tops_go_on_over_runs(tmp_path):
    bids = bids_of(6)
    app = tm.App("runs")
    source = app.source(Bid)
    top, found = app.collect(source.top(2, by="size", per="house", ties=True)), []
    for first, last in [(0, 40), (40, 41), (41, 150)]:
        app.run({source: bids[first:last]}, state=tmp_path / "state", final=last == 150)
        found += [row["number"] for row in top.to_pylist()]
    assert found == [bid["number"] for bid in tops(bids, 2, "size", ["house"], True)]
