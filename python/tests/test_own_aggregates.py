"""Aggregates that users write, against the same classes run by plain Python."""

from decimal import Decimal
from typing import Annotated

import pytest
from test_windows_over import KINDS, RUNS, Bid, bids_of, closes, user_of

import tidemill as tm

Cents = Annotated[Decimal, tm.Decimal(9, 2)]


class Range(tm.Aggregate):
    low: float | None = None
    high: float | None = None
    seen: bool = False

    def add(self, e):
        if self.low is None or e.price < self.low:
            self.low = e.price
        if self.high is None or e.price > self.high:
            self.high = e.price
        self.seen = True

    def merge(self, later):
        if self.low is None or later.low < self.low:
            self.low = later.low
        if self.high is None or later.high > self.high:
            self.high = later.high

    def value(self):
        if self.low == self.high:
            return 0.0
        return self.high - self.low


class Runs(tm.Aggregate):
    """The number of changes of the name, which depends on the order of events, and the longest text so far."""

    first: str | None = None
    last: str | None = None
    changes: int = -1
    longest: str = ""
    cents: Cents = Decimal("0.10")

    def add(self, e):
        name = named(e.name)
        if self.changes < 0:
            self.first = name
            self.changes = 0
        elif self.last != name:
            self.changes += 1
        self.last = name
        if len(name) > len(self.longest):
            self.longest = name
        self.cents += tm.Decimal("0.01")

    def merge(self, later):
        self.changes += later.changes
        if self.last != later.first:
            self.changes += 1
        self.last = later.last
        if len(later.longest) > len(self.longest):
            self.longest = later.longest
        self.cents += later.cents - tm.Decimal("0.10")

    def value(self):
        return self.changes


class Longest(Runs):
    def value(self):
        return self.longest


class Cost(Runs):
    def value(self):
        return self.cents


def named(name):
    return name if name is not None else "none"


def folded(cls, events):
    """Returns the result of Python's own run of the class."""
    state = cls()
    for event in events:
        state.add(Bid(**event))
    return state.value()


def test_types_of_the_state_are_checked_where_the_class_is_defined():
    with pytest.raises(tm.SchemaError, match="Wrong"):

        class Wrong(tm.Aggregate):
            low: list[int]


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("kind", "over", "windows"), KINDS, ids=[k[0] for k in KINDS])
def test_aggregates_are_those_of_python(kind, over, windows, workers, epoch):
    for seed in range(3):
        app = tm.App("windows")
        bids = app.source(Bid)

        @app.window(bids, by="user", over=over)
        def asked(w):
            spread = w.aggregate(Range)
            return {
                "end": w.end,
                "user": w.user,
                "range": spread,
                "again": w.aggregate(Range),
                "n": w.count(),
                "changes": w.aggregate(Runs),
                "longest": w.aggregate(Longest),
                "cost": w.aggregate(Cost),
            }

        found = app.collect(asked.closed)
        failed, refused = app.collect(asked.failed), app.collect(asked.refused)
        events = bids_of(seed)
        app.run({bids: events}, workers=workers, epoch=epoch)
        expected = [
            {
                "end": end,
                "user": user,
                "range": folded(Range, inside),
                "again": folded(Range, inside),
                "n": len(inside),
                "changes": folded(Runs, inside),
                "longest": folded(Longest, inside),
                "cost": Decimal("0.10") + len(inside) * Decimal("0.01"),
            }
            for end, _, user, inside in closes(events, user_of, windows)
        ]
        assert found.to_pylist() == expected
        assert failed.to_pylist() == [] and refused.to_pylist() == []


class Mean(tm.Aggregate):
    """A sum of floats, in the order of events: without merge."""

    total: float = 0.0
    count: int = 0

    def add(self, e):
        self.total += e.price
        self.count += 1

    def value(self):
        return self.total / self.count


@pytest.mark.parametrize("over", [tm.tumbling(10), tm.session(4), tm.counting(5)])
def test_without_merge(over):
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=over)
    def asked(w):
        return {"mean": w.aggregate(Mean), "start": w.start, "n": w.count()}

    found = app.collect(asked.closed)
    events = bids_of(1)
    app.run({bids: events}, workers=2)
    at, rows = 0, found.to_pylist()
    for row in rows:
        assert row["mean"] == folded(Mean, events[at : at + row["n"]])
        at += row["n"]
    assert at == len(events) and rows


BIG = 2**57


class Strict(tm.Aggregate):
    total: int = 0

    def add(self, e):
        tm.require(e.size is not None, "no size")
        self.total += e.size * BIG

    def value(self):
        tm.require(self.total >= 0, "less than nothing")
        return self.total


def test_events_that_are_refused_are_in_no_window():
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=tm.tumbling(10))
    def asked(w):
        return {"total": w.aggregate(Strict), "n": w.count()}

    closed, failed, refused = (app.collect(s) for s in (asked.closed, asked.failed, asked.refused))
    rest = {"user": None, "price": 0.0, "big": False, "name": None}
    sizes = [1, None, 2, 63, -4, 100]
    app.run({bids: [{"at": 1 + 10 * (size == -4), "size": size, **rest} for size in sizes[:5]]})
    assert closed.to_pylist() == [{"total": 3 * 2**57, "n": 2}]
    reasons = [(r["size"], r["reason"].partition(" in ")[0]) for r in refused.to_pylist()]
    assert reasons == [(None, "no size"), (63, "integer overflow")]
    assert refused.to_pylist()[1]["reason"] == f"integer overflow in Strict.total + ev.size * {BIG}"
    assert [r["reason"] for r in failed.to_pylist()] == ["less than nothing"]


class Spent(tm.Aggregate):
    total: Cents = Decimal("0.00")
    half: float = 0.5

    def add(self, e):
        self.total += Decimal("4000000.00") if e.size == 4 else Decimal("0.01")

    def merge(self, later):
        self.total += later.total
        self.half = 1

    def value(self):
        return self.half + float(self.total)


@pytest.mark.parametrize(
    ("size", "stream", "reason"),
    [
        (1, "closed", None),
        (4, "failed", "decimal overflow in Spent.total + later.total"),
    ],
)
def test_what_is_merged_fits_the_state(size, stream, reason):
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=tm.sliding(10, every=5))
    def asked(w):
        return {"cost": w.aggregate(Spent)}

    closed, failed, refused = (app.collect(s) for s in (asked.closed, asked.failed, asked.refused))
    rest = {"user": None, "price": 0.0, "big": False, "name": None, "size": size}
    app.run({bids: [{"at": at, **rest} for at in [0, 1, 5, 6]]})
    assert refused.to_pylist() == []
    if reason is None:
        # The oldest slide is not merged; merging sets the half to a float.
        assert [row["cost"] for row in closed.to_pylist()] == [0.52, 1.04, 0.52]
    else:
        assert [row["reason"] for row in failed.to_pylist()] == [reason]
        assert [row["cost"] for row in closed.to_pylist()] == [8000000.5, 8000000.5]


class Full(tm.Aggregate):
    total: int = BIG

    def add(self, e):
        self.total += e.size

    def merge(self, later):
        self.total += later.total

    def value(self):
        return self.total


def test_reasons_name_the_state_as_it_was_written():
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=tm.sliding(10, every=5))
    def asked(w):
        return {"total": w.aggregate(Full)}

    failed, refused = app.collect(asked.failed), app.collect(asked.refused)
    rest = {"user": None, "price": 0.0, "big": False, "name": None}
    sizes = [2**63 - 1, None, 2**62, 2**62]
    app.run({bids: [{"at": 4 * n, "size": size, **rest} for n, size in enumerate(sizes)]})
    assert [row["reason"] for row in refused.to_pylist()] == [
        "integer overflow in Full.total + ev.size",
        "None in ev.size",
    ]
    assert {row["reason"] for row in failed.to_pylist()} == {"integer overflow in Full.total + later.total"}


def refuse(body, over, message):
    app = tm.App("windows")
    bids = app.source(Bid)
    with pytest.raises(tm.CompileError) as raised:
        app.window(bids, over=over)(body)
    assert message in str(raised.value)


class Summing(Mean):
    def merge(self, later):
        self.total += later.total
        self.count += later.count


class Hidden(Summing):
    def add(self, e):
        sum_so_far = self.total
        bigger = sum_so_far + e.price
        self.total = bigger

    def merge(self, later):
        if later.count > 0:
            self.total = later.total


class NoAdd(tm.Aggregate):
    n: int = 0

    def value(self):
        return self.n


class NoStart(tm.Aggregate):
    n: int

    def add(self, e):
        self.n += 1

    def value(self):
        return self.n


class Unknown(Mean):
    def add(self, e):
        self.totl = e.price


class Returns(Mean):
    def add(self, e):
        return e.price


class Wide(Mean):
    def value(self, w):
        return self.total


def test_what_is_refused():
    def mean(w):
        return {"x": w.aggregate(Mean)}

    def summing(w):
        return {"x": w.aggregate(Summing)}

    def hidden(w):
        return {"x": w.aggregate(Hidden)}

    def no_add(w):
        return {"x": w.aggregate(NoAdd)}

    def no_start(w):
        return {"x": w.aggregate(NoStart)}

    def unknown(w):
        return {"x": w.aggregate(Unknown)}

    def returns(w):
        return {"x": w.aggregate(Returns)}

    def wide(w):
        return {"x": w.aggregate(Wide)}

    tumbling, sliding = tm.tumbling(10), tm.sliding(10, every=5)
    refuse(mean, sliding, "give it a merge(self, later)")
    rounds = "computes with a float of its state: merged, it would round otherwise"
    refuse(summing, sliding, rounds)
    refuse(hidden, tumbling, rounds)
    refuse(no_add, tumbling, "NoAdd has no add()")
    refuse(no_start, tumbling, "NoStart.n has no value to begin with")
    refuse(unknown, tumbling, "did you mean 'total'?")
    refuse(returns, tumbling, "Returns.add() returns a value")
    refuse(wide, tumbling, "Wide.value() has other parameters")


def test_only_windows_with_such_aggregates_refuse_events():
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=tm.tumbling(10))
    def asked(w):
        return {"n": w.count()}

    with pytest.raises(tm.PlanError, match="it refuses no events"):
        _ = asked.refused
