"""Windows with a result for each row of a table: what comes out is what plain Python makes of the same events."""

import random
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (2, 1), (3, 7)]
ITEMS = ["a", "b", "d", "é"]


class Item(tm.Row):
    id: str = tm.key()
    price: int = 0


class Bid(tm.Event):
    at: int = tm.event_time()
    item: str | None
    size: int


class Range(tm.Aggregate):
    low: int | None = None
    high: int | None = None
    seen: int = 7

    def add(self, e):
        self.seen += 1
        if self.low is None or e.size < self.low:
            self.low = e.size
        if self.high is None or e.size > self.high:
            self.high = e.size

    def merge(self, later):
        self.seen += later.seen - 7
        if later.low is not None and (self.low is None or later.low < self.low):
            self.low = later.low
        if later.high is not None and (self.high is None or later.high > self.high):
            self.high = later.high

    def value(self):
        return None if self.low is None or self.high is None else self.high - self.low + self.seen


def bids_of(seed, count=80):
    rng = random.Random(seed)
    at, bids = rng.choice([0, -37, 1_000]), []
    for _ in range(count):
        at += rng.choice([0, 0, 1, 1, 2, 5, rng.choice([3, 40])])
        bids.append({"at": at, "item": rng.choice(["a", "b", "c", None]), "size": rng.randrange(9)})
    return bids


def results(bids, length, every, origin):
    """Returns the results of all windows by definition, in order."""
    least, horizon = bids[0]["at"], bids[-1]["at"]
    found = []
    start = (least - origin) // every * every + origin - length
    while start <= horizon:
        inside = [bid for bid in bids if start <= bid["at"] < start + length]
        groups = list(dict.fromkeys(bid["item"] for bid in inside))
        if start > least:
            groups += [item for item in sorted(ITEMS) if item not in groups]
        for item in groups:
            sizes = [bid["size"] for bid in inside if bid["item"] == item]
            best = max(sizes, default=None)
            spread = None if best is None else best - min(sizes) + len(sizes) + 7
            mean = sum(sizes) / len(sizes) if sizes else None
            first, last = (sizes[0], sizes[-1]) if sizes else (None, None)
            found.append(
                (item, start, len(sizes), sum(sizes), mean, first, last, best, any(s > 3 for s in sizes), spread)
            )
        start += every
    return found


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("length", "every", "origin"), [(10, 10, 0), (10, 2, 1), (60, 20, -7), (1, 1, 0)])
def test_each_row_has_a_result_in_each_window(workers, epoch, length, every, origin):
    for seed in range(3):
        bids = bids_of(seed)
        app = tm.App("rows")
        items = app.table(Item, rows=[{"id": item, "price": 1} for item in ITEMS])
        source = app.source(Bid)
        large = source.map(lambda e: {"at": e.at, "item": e.item, "size": e.size, "large": e.size > 3})
        over = tm.tumbling(length, origin=origin) if length == every else tm.sliding(length, every=every, origin=origin)

        @app.window(large, by="item", over=over, every=items)
        def heat(w):
            return {
                "item": w.item,
                "start": w.start,
                "n": w.count(),
                "sum": w.size.sum(),
                "mean": w.size.mean(),
                "first": w.size.first(),
                "last": w.size.last(),
                "best": w.argmax("size").size,
                "large": w.large.any(),
                "range": w.aggregate(Range),
            }

        found = app.collect(heat.closed)
        app.run({source: bids}, workers=workers, epoch=epoch)
        assert [tuple(row.values()) for row in found.to_pylist()] == results(bids, length, every, origin)


def test_rows_of_two_columns_that_transactions_change():
    class Segment(tm.Row):
        road: int = tm.key()
        seg: str = tm.key()

    class Report(tm.Event):
        at: tm.Time = tm.event_time()
        road: int
        seg: str
        speed: float

    app = tm.App("roads")
    segments = app.table(Segment)
    reports = app.source(Report)

    @app.transaction(reports)
    def known(ev, s=segments.row("road", "seg", create=True)):
        if not s.exists:
            s.insert()

    @app.window(reports, by=("road", "seg"), over=tm.tumbling("1m"), every=segments)
    def traffic(w):
        return {"at": w.end, "road": w.road, "seg": w.seg, "n": w.count(), "speed": w.speed.max()}

    found = app.collect(traffic.closed)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    given = [(0, 2, "x"), (10, 1, "y"), (130, 1, "b"), (150, 2, "x"), (200, 1, "a")]
    app.run({reports: [{"at": start + timedelta(seconds=s), "road": r, "seg": g, "speed": 1.5} for s, r, g in given]})
    rows = [
        ((row["at"] - start).total_seconds() / 60, row["road"], row["seg"], row["n"], row["speed"])
        for row in found.to_pylist()
    ]
    # The first window begins before, or with, the first event. The rows are those of the window's end.
    assert rows == [
        (1, 2, "x", 1, 1.5),
        (1, 1, "y", 1, 1.5),
        (2, 1, "y", 0, None),
        (2, 2, "x", 0, None),
        (3, 1, "b", 1, 1.5),
        (3, 2, "x", 1, 1.5),
        (3, 1, "y", 0, None),
        (4, 1, "a", 1, 1.5),
        (4, 1, "b", 0, None),
        (4, 1, "y", 0, None),
        (4, 2, "x", 0, None),
    ]
    assert "gives a result for each row of Segment" in app.explain() or "for each row of segments" in app.explain()


def test_rows_go_on_over_runs(tmp_path):
    for cut in [1, 40, 79]:
        bids = bids_of(cut)
        app = tm.App("rows")
        items = app.table(Item, rows=[{"id": item, "price": 1} for item in ITEMS])
        source = app.source(Bid)

        @app.window(source, by="item", over=tm.sliding(30, every=3), every=items)
        def heat(w):
            return {"item": w.item, "start": w.start, "n": w.count()}

        found, rows = app.collect(heat.closed), []
        state = tmp_path / str(cut)
        for part, final in [(bids[:cut], False), (bids[cut:], True)]:
            app.run({source: part}, state=state, final=final)
            rows += [tuple(row.values()) for row in found.to_pylist()]
        assert rows == [result[:3] for result in results(bids, 30, 3, 0)]


def windowed(**more):
    app = tm.App("refused")
    bids = app.source(Bid)
    items = app.table(Item)
    given = {"by": "item", "over": tm.tumbling(10), "every": items, **more}

    @app.window(bids, **given)
    def heat(w):
        return {"n": w.count()}

    app.explain()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"every": "items"}, "a str is not a table; write every=items, with items = app.table"),
        ({"over": tm.session(5)}, "sessions have no results for each row of"),
        ({"over": tm.counting(5)}, "windows by count have no results for each row of"),
        ({"by": None}, "there are no groups, but the key of"),
        ({"by": ("item", "size")}, "the group has 2 parts, but the key of"),
        ({"by": "size"}, "'size' of the group is int, but the key column 'id' of"),
    ],
)
def test_what_has_no_rows_is_refused(more, message):
    with pytest.raises((tm.PlanError, tm.CompileError), match=message.replace("(", r"\(")):
        windowed(**more)


def test_a_table_of_another_application_is_refused():
    other = tm.App("other").table(Item)
    with pytest.raises(tm.PlanError, match="belongs to the application 'other', not to 'refused'"):
        windowed(every=other)
