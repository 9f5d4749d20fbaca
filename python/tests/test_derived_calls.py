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
