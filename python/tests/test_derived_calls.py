"""Calls whose transaction takes what filters and maps make of them."""

import asyncio
import json

import pytest
from test_server import ask, call, served

import tidemill as tm

SHOP = """
import tidemill as tm

class Item(tm.Row):
    id: str = tm.key()
    rank: int = 0
    total: int = 0

class Price(tm.Event):
    id: str
    price: int
    pieces: int = 1

app = tm.App("shop")
items = app.table(Item)
prices = app.requests(Price, remember="1h")
whole = prices.filter(lambda p: p.price % 1000 == 0)
each = whole.map(lambda p: {"id": p.id, "neg": -(p.price // p.pieces), "price": p.price})

@app.transaction(each)
def put(ev, i=items.row("id", create=True)):
    tm.require(ev.neg < 0, "no price")
    i.rank = ev.neg
    i.total += ev.price
    return {"id": i.id, "rank": i.rank, "total": i.total}
"""
LEFT_OUT = "left out by a filter"

READS = """
import tidemill as tm

class Rate(tm.Row):
    pair: str = tm.key()
    price: int = 0
    least: int = 0

class Owed(tm.Row):
    id: str = tm.key()
    total: int = 0

class Quote(tm.Event):
    pair: str
    price: int
    least: int = 0

class Charge(tm.Event):
    id: str
    pair: str
    pieces: int

app = tm.App("rated")
rates, owed = app.table(Rate), app.table(Owed)
quotes, charges = app.requests(Quote), app.requests(Charge, remember="1h")

@app.transaction(quotes)
def quote(ev, r=rates.row("pair", create=True)):
    r.price = ev.price
    r.least = ev.least

some = charges.filter(lambda c: c.pieces != 13)
priced = some.map(lambda c, r: {"id": c.id, "pair": c.pair, "value": 100 // r.price * c.pieces}, r=rates.read("pair"))
doubled = priced.map(lambda c: {"id": c.id, "pair": c.pair, "value": c.value * 2})
dear = doubled.filter(lambda c, r: c.value >= r.least, r=rates.read("pair"))

@app.transaction(dear)
def charge(ev, o=owed.row("id", create=True)):
    tm.require(ev.value < 1000, "too dear")
    o.total += ev.value
    return {"id": o.id, "value": ev.value, "total": o.total}
"""


@pytest.fixture
def app(module):
    return module(SHOP, prelude="").app


def why(mill, **fields):
    """The reason with which a call aborts; what was seen."""
    with pytest.raises(tm.Aborted) as caught:
        mill.call("put", **fields)
    assert caught.value.epoch > 0
    return caught.value.reason, caught.value.seen


def test_a_map_before_a_source_of_calls_is_still_a_call(app):
    with app.start(workers=1) as mill:
        reply = mill.call(app.transactions["put"], id="a", price=2000, pieces=2)
        assert reply.value == {"id": "a", "rank": -1000, "total": 2000}
        assert mill.row("items", "a") == {"id": "a", "rank": -1000, "total": 2000}


def test_a_call_that_reaches_no_transaction_aborts(app):
    with app.start(workers=1) as mill:
        aborted = mill.follow("put.aborted")
        assert why(mill, id="a", price=1) == (LEFT_OUT, {})
        reason, seen = why(mill, id="a", price=3000, pieces=0)
        assert "division" in reason and seen == {}
        assert why(mill, id="a", price=-1000)[0] == "no price"
        assert len(mill.table("items")) == 0
        mill.flush()
        # Only what the transaction aborts is in its stream.
        assert [event["reason"] for event in aborted.next(timeout=20).to_pylist()] == ["no price"]


def test_among_many_calls_each_has_its_own_outcome(app):
    with app.start(workers=2) as mill:
        events = [
            {"id": f"i{n % 7}", "price": [1000, 1500, 2000, -1000][n % 4], "pieces": [1, 1, 1, 1, 0][n % 5]}
            for n in range(400)
        ]
        outcomes = mill.call_all("put", events)
        totals = {}
        for event, outcome in zip(events, outcomes, strict=True):
            if event["price"] % 1000:
                assert outcome.reason == LEFT_OUT
            elif event["pieces"] == 0:
                assert "division" in outcome.reason
            elif event["price"] < 0:
                assert outcome.reason == "no price"
            else:
                total = totals[event["id"]] = totals.get(event["id"], 0) + event["price"]
                assert outcome.value == {"id": event["id"], "rank": -event["price"], "total": total}
        assert {row["id"]: row["total"] for row in mill.table("items").to_pylist()} == totals


def test_a_retry_gets_the_outcome_again(module, tmp_path):
    def life(retries):
        app = module(SHOP, prelude="").app
        with app.start(state=tmp_path / "state") as mill:
            for _ in range(retries):
                assert why(mill, id="a", price=1, idempotency_key="left out") == (LEFT_OUT, {})
                assert "division" in why(mill, id="a", price=1000, pieces=0, idempotency_key="failed")[0]
                reply = mill.call("put", id="a", price=1000, idempotency_key="taken")
                assert reply.value == {"id": "a", "rank": -1000, "total": 1000}
            mill.savepoint()

    life(2)
    # The outcome comes from the log, and from the checkpoint that a savepoint makes.
    life(1)
    life(1)


def test_it_is_called_over_http_and_by_both_clients(app):
    with served(app) as (_, server):
        assert call(server.url, "put", id="a", price=1000, pieces=1)[1]["committed"]["total"] == 1000
        status, said = call(server.url, "put", id="a", price=1, pieces=1)
        assert (status, said["aborted"], said["seen"]) == (409, LEFT_OUT, {})
        lines = "".join(
            json.dumps({"call": "put", "fields": {"id": "b", "price": price, "pieces": 1}}) + "\n"
            for price in (1000, 1, 2000)
        )
        answers = [json.loads(line) for line in ask(server.url, "/calls", lines)[2].splitlines()]
        assert [answer["status"] for answer in answers] == [200, 409, 200]
        with tm.connect(server.url) as client:
            assert client.put(id="c", price=1000, pieces=1)["total"] == 1000
            with pytest.raises(tm.Aborted, match=LEFT_OUT):
                client.put(id="c", price=1, pieces=1)

        async def awaited():
            async with tm.connect(server.url) as client:
                assert (await client.put(id="c", price=1000, pieces=1))["total"] == 2000
                with pytest.raises(tm.Aborted, match=LEFT_OUT):
                    await client.put(id="c", price=1, pieces=1)

        asyncio.run(awaited())


def test_several_transactions_on_one_source_of_calls_are_no_procedure(app):
    @app.transaction(app.sources["prices"].filter(lambda p: p.price > 5))
    def dear(ev):
        return {"id": ev.id}

    with app.start(workers=1) as mill:
        with pytest.raises(tm.PlanError, match="'prices' reaches several transactions: put, dear"):
            mill.call("put", id="a", price=1, pieces=1)
        with pytest.raises(tm.PlanError, match="'prices' reaches several transactions: put, dear"):
            mill.call("dear", id="a", price=1, pieces=1)


@pytest.fixture
def rated(module):
    return module(READS, prelude="").app


def test_a_map_that_reads_rows_before_calls_is_still_a_call(rated):
    with rated.start(workers=2) as mill:
        mill.call("quote", pair="x", price=10, least=40)
        mill.call("quote", pair="zero", price=0)
        outcomes = mill.call_all(
            "charge",
            [
                {"id": "a", "pair": pair, "pieces": pieces}
                for pair, pieces in [("x", 2), ("y", 2), ("x", 13), ("x", 1), ("zero", 2), ("x", 99), ("x", 3)]
            ],
        )
        assert outcomes[0].value == {"id": "a", "value": 40, "total": 40}
        assert outcomes[6].value == {"id": "a", "value": 60, "total": 100}
        reasons = [outcome.reason for outcome in outcomes[1:6]]
        assert reasons[1:3] == [LEFT_OUT, LEFT_OUT] and reasons[4] == "too dear", reasons
        assert "row" in reasons[0] and "division" in reasons[3], reasons
        with pytest.raises(tm.PlanError, match="there is no procedure .priced."):
            mill.call("priced", id="a", pair="x", pieces=1)


def test_calls_with_rows_before_them_over_all_protocols(rated):
    psycopg = pytest.importorskip("psycopg")
    with served(rated) as (mill, server):
        mill.call("quote", pair="x", price=10, least=40)
        assert call(server.url, "charge", id="a", pair="x", pieces=2)[1]["committed"] == {
            "id": "a",
            "value": 40,
            "total": 40,
        }
        status, said = call(server.url, "charge", id="a", pair="x", pieces=1)
        assert (status, said["aborted"], said["seen"]) == (409, LEFT_OUT, {})
        with tm.connect(server.url) as client:
            assert client.charge(id="b", pair="x", pieces=3)["total"] == 60
        with psycopg.connect(server.postgres_url, autocommit=True) as db:
            rows = db.execute("SELECT total FROM charge(%s, %s, 2)", ("b", "x")).fetchall()
            assert rows == [(100,)]
            with pytest.raises(psycopg.Error, match=LEFT_OUT):
                db.execute("SELECT * FROM charge('b', 'x', 1)")


def test_a_retry_of_a_call_with_rows_before_it_gets_the_outcome_again(module, tmp_path):
    def life(price):
        app = module(READS, prelude="").app
        with app.start(state=tmp_path / "state") as mill:
            mill.call("quote", pair="x", price=price, least=40)
            for _ in range(2):
                reply = mill.call("charge", id="a", pair="x", pieces=2, idempotency_key="taken")
                assert reply.value == {"id": "a", "value": 40, "total": 40}
                with pytest.raises(tm.Aborted, match=LEFT_OUT):
                    mill.call("charge", id="a", pair="x", pieces=1, idempotency_key="left out")
            mill.savepoint()

    # The rates of later lives would give other outcomes.
    for price in (10, 5, 1):
        life(price)


def test_rows_read_beside_calls_do_not_hide_the_procedure(rated):
    rated.collect(rated.sources["quotes"].map(lambda q, r: {"was": r.price}, r=rated.tables["rates"].read("pair")))
    with rated.start(workers=1) as mill:
        assert mill.call("quote", pair="x", price=10).epoch > 0
