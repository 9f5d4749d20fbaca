"""Tables of the latest events: what a join as of an event gives is what plain Python makes of the events one by one."""

import random
from datetime import datetime, timezone

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (2, 1), (3, 7)]


class Quote(tm.Event):
    at: int = tm.event_time()
    pair: str
    place: int
    price: int
    note: str | None


class Trade(tm.Event):
    at: int = tm.event_time()
    id: int
    pair: str
    place: int


def market(seed, count=300):
    """Random quotes and trades with many ties."""
    rng = random.Random(seed)
    quotes, trades, at = [], [], -20
    for number in range(count):
        at += rng.choice([0, 0, 1, 2])
        where = {"at": at, "pair": rng.choice(["usd", "eur", "yen"]), "place": rng.randrange(2)}
        if rng.random() < 0.5:
            quotes.append({**where, "price": rng.randrange(1, 50), "note": rng.choice([None, "firm"])})
        else:
            trades.append({**where, "id": number})
    return quotes, trades


def as_of(quotes, trades, by, quotes_first):
    """Joins by definition: a trade has the last quote before it; of one time the source that is declared first is
    first."""
    for trade in trades:
        before = [
            quote
            for quote in quotes
            if all(quote[field] == trade[field] for field in by)
            and (quote["at"] < trade["at"] or (quotes_first and quote["at"] == trade["at"]))
        ]
        yield trade, before[-1] if before else None


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("quotes_first", [True, False])
def test_a_trade_has_the_last_quote_before_it(workers, epoch, quotes_first):
    for seed, by in enumerate([["pair"], ["pair", "place"], ["place"]]):
        given = market(seed)
        app = tm.App("market")
        sources = {event: app.source(event) for event in ([Quote, Trade] if quotes_first else [Trade, Quote])}
        latest = sources[Quote].latest(by[0] if len(by) == 1 else by)
        priced = sources[Trade].map(lambda t, q: {"id": t.id, "price": q.price, "note": q.note}, q=latest.read(*by))
        found, missing = app.collect(priced), app.collect(priced.failed)
        app.run({sources[Quote]: given[0], sources[Trade]: given[1]}, workers=workers, epoch=epoch)
        expected = list(as_of(*given, by, quotes_first))
        known = [{"id": t["id"], "price": q["price"], "note": q["note"]} for t, q in expected if q]
        assert found.to_pylist() == known
        assert [event["id"] for event in missing.to_pylist()] == [t["id"] for t, q in expected if not q]
        rows = {tuple(quote[field] for field in by): quote for quote in given[0]}
        assert {tuple(row[field] for field in by): row for row in latest.to_pylist()} == rows


def test_where_no_quote_is_there_it_may_say_so():
    app = tm.App("market")
    quotes, trades = app.source(Quote), app.source(Trade)
    last = quotes.latest("pair").read("pair", default=True)
    priced = trades.map(lambda t, q: {"id": t.id, "price": q.price if q.exists else None}, q=last)
    found = app.collect(priced)
    app.run(
        {
            quotes: [{"at": 2, "pair": "usd", "place": 0, "price": 0, "note": None}],
            trades: [{"at": at, "id": at, "pair": "usd", "place": 0} for at in (1, 2, 3)],
        }
    )
    assert found.to_pylist() == [{"id": 1, "price": None}, {"id": 2, "price": 0}, {"id": 3, "price": 0}]


def test_it_is_a_table_like_others():
    class Everything(tm.Event):
        at: tm.Time = tm.event_time()
        id: str | None
        yes: bool
        rate: float
        cost: tm.Decimal(8, 2)
        data: bytes
        size: int | None

    app = tm.App("all")
    events = app.source(Everything)
    latest = events.latest("id")
    assert latest.name == "latest_everythings"
    assert events.latest("id") is latest
    assert events.latest("yes").name == "latest_everythings_2"
    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    event = {"at": at, "id": "a", "yes": True, "rate": 0.5, "cost": tm.Decimal("1.25"), "data": b"x", "size": None}
    with app.start() as mill:
        mill.send(events, event)
        mill.send(events, {**event, "id": None})
        mill.flush()
        assert mill.table(latest).to_pylist() == [{"id": "a", **event}]
        assert mill.sql("SELECT cost FROM latest_everythings").to_pylist() == [{"cost": tm.Decimal("1.25")}]


def test_keys_alone_are_a_set():
    class Seen(tm.Event):
        id: int

    app = tm.App("seen")
    events = app.source(Seen)
    known = events.latest("id")
    app.run({events: [{"id": number % 3} for number in range(10)]})
    assert sorted(row["id"] for row in known.to_pylist()) == [0, 1, 2]


def test_a_window_s_results_have_a_latest_too():
    app = tm.App("windows")
    quotes = app.source(Quote)

    @app.window(quotes, by="pair", over=tm.tumbling(10))
    def mean(w):
        return {"end": w.end, "pair": w.pair, "price": w.price.mean()}

    known = mean.closed.latest("pair")
    prices = [(1, 4), (2, 6), (11, 8), (12, 10)]
    app.run({quotes: [{"at": at, "pair": "usd", "place": 0, "price": price, "note": None} for at, price in prices]})
    assert known.to_pylist() == [{"pair": "usd", "end": 20, "price": 9.0}]


class Basket(tm.Event):
    id: str
    items: list[int]


REFUSED = [
    (lambda app: app.source(Quote).latest("pare"), "'pare' is not a field of 'quotes'"),
    (lambda app: app.source(Quote).latest([]), "no field says of what an event is the latest"),
    (lambda app: app.source(Quote).latest(5), "5 is not a field of 'quotes'"),
    (lambda app: app.source(Basket).latest("id"), "'items' of 'baskets' is a list, which a table does not keep"),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refusals(declare, message):
    with pytest.raises(tm.PlanError, match=message.replace("[", r"\[")):
        declare(tm.App("refused"))


def test_a_name_that_is_taken_is_refused_and_leaves_the_plan_as_it_was():
    app = tm.App("names")
    quotes = app.source(Quote)

    @app.transaction(quotes)
    def last(ev):
        pass

    plan = app.plan()
    with pytest.raises(tm.PlanError, match="declared already"):
        quotes.latest("pair", name="last")
    assert app.plan() == plan
    assert list(app.tables) == []
    assert quotes.latest("pair", name="lately").name == "lately"
    assert quotes.latest("pair", name="lately") is app.tables["lately"]
    with pytest.raises(tm.PlanError, match="declared already"):
        quotes.latest("place", name="lately")
    again = quotes.latest("place", name="lately", replace=True)
    assert again is app.tables["lately"]
    assert quotes.latest("place", name="lately", replace=True) is again
    app.run({quotes: [{"at": 1, "pair": pair, "place": 1, "price": 2, "note": None} for pair in ("usd", "eur")]})
    assert again.to_pylist() == [{"place": 1, "at": 1, "pair": "eur", "price": 2, "note": None}]
