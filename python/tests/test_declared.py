"""A client of a server has the values that a session has: as they are declared, to the last digit."""

import asyncio
import datetime
import decimal
import math
import random

import pytest

import tidemill as tm
from tidemill.declared import loads, values

UTC = datetime.timezone.utc

APP = """
import tidemill as tm

class Entry(tm.Row):
    id: str = tm.key()
    price: tm.Decimal(18, 6) = 0
    at: tm.Time | None
    raw: bytes | None
    rate: float = 0.0
    count: int = 0
    flag: bool = False

class Put(tm.Event):
    id: str
    price: tm.Decimal(18, 6)
    at: tm.Time | None
    raw: bytes | None
    rate: float
    count: int
    flag: bool
    prices: list[tm.Decimal(10, 2)]

app = tm.App("values")
entries = app.table(Entry, name="entries")
puts = app.requests(Put)

@app.transaction(puts)
def put(ev, e=entries.row("id", create=True)):
    tm.require(ev.count >= 0, "negative")
    e.price = ev.price
    e.at = ev.at
    e.raw = ev.raw
    e.rate = ev.rate
    e.count = ev.count
    e.flag = ev.flag
    return {
        "id": ev.id, "price": e.price, "at": e.at, "raw": e.raw, "rate": e.rate, "count": e.count, "flag": e.flag,
        "prices": ev.prices,
    }
"""

GREATEST = decimal.Decimal("999999999999.999999")
EDGES = {
    "price": [GREATEST, -GREATEST, decimal.Decimal("0.000001"), decimal.Decimal(0), decimal.Decimal("1.10")],
    "at": [
        None,
        datetime.datetime(1, 1, 1, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
    "raw": [None, b"", b"\x00\xff", bytes(range(256))],
    "rate": [0.0, -0.0, 1e300, 5e-324, 0.1, math.inf, -math.inf, math.nan, 2.0**53 + 2],
    "count": [0, 1, 2**63 - 1],
    "flag": [True, False],
    "prices": [[], [decimal.Decimal("1.10"), decimal.Decimal("-99999999.99")]],
}


def events(count=60):
    chosen = random.Random(7)
    return [
        {"id": f"é{number}"}
        | {name: edges[number] if number < len(edges) else chosen.choice(edges) for name, edges in EDGES.items()}
        for number in range(count)
    ]


def same(one, other):
    """Equal, of one type, with NaN equal to itself and the signs of zeros."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (repr(one) == repr(other) if isinstance(one, float) else one == other)


@pytest.fixture
def served(module):
    app = module(APP, prelude="").app
    with app.start() as mill, mill.serve() as server:
        yield mill, server.url


def test_replies_rows_and_events_have_the_values_of_a_session(served):
    mill, url = served
    with tm.connect(url) as client, client.follow("put.committed") as followed:
        replies = client.call_all("put", events())
        for event, reply in zip(events(), replies, strict=True):
            assert same(reply.value, event), (reply, event)
            assert same(client.put(**event).value, event)
            assert same(mill.call("put", **event).value, event)
            row = client.row("entries", event["id"])
            assert same(row, mill.row("entries", event["id"])), row
        for event in events():
            assert same(next(followed).value, event)
        with pytest.raises(tm.Aborted) as here:
            client.put(**{**events()[0], "count": -1})
        with pytest.raises(tm.Aborted) as there:
            mill.call("put", **{**events()[0], "count": -1})
        assert same(dict(here.value.seen), dict(there.value.seen)), here.value.seen


def test_an_asynchronous_client_has_the_same(served):
    mill, url = served

    async def main():
        async with tm.connect(url) as client:
            followed = await client.follow("put.committed")
            replies = await asyncio.gather(*(client.put(**event) for event in events()))
            for event, reply in zip(events(), replies, strict=True):
                assert same(reply.value, event)
                assert same(await client.row("entries", event["id"]), mill.row("entries", event["id"]))
            for event in events():
                assert same((await followed.__anext__()).value, event)

    asyncio.run(main())


def test_queries_have_the_values_that_their_columns_have(served):
    pytest.importorskip("duckdb")
    mill, url = served
    mill.call_all("put", events())
    query = 'select id, price, "at", raw, rate, count, flag from entries order by id'
    with tm.connect(url) as client:
        rows = client.sql(query)
        for row in rows:
            assert same(row, mill.row("entries", row["id"])), row
        assert len(rows) == len(events())
        asked = "select 0.1::decimal(4, 2) as \"é\", 0.1::double as f, true as b, null as n, 'x' as s, 12345678901234567 as i"
        expected = {"é": decimal.Decimal("0.10"), "f": 0.1, "b": True, "n": None, "s": "x", "i": 12345678901234567}
        assert same(client.sql(asked), [expected])

        async def main():
            async with tm.connect(url) as other:
                assert same(await other.sql(asked), [expected])
                assert same(await other.sql(query), rows)

        asyncio.run(main())


def test_values_of_types_that_are_not_known_are_as_json_has_them():
    said = loads('{"a": 1.5, "b": [1, {"c": 2e400}], "d": "x", "e": null, "f": 3}')
    assert values({}, said) == {"a": 1.5, "b": [1, {"c": math.inf}], "d": "x", "e": None, "f": 3}
    record = {"l": "list[{a: Decimal(3, 1), b: list[Time] | None, c: float}]"}
    got = values(record, loads('{"l": [{"a": 1.0, "b": ["2024-01-01T00:00:00Z", null], "c": 1}]}'))
    instant = datetime.datetime(2024, 1, 1, tzinfo=UTC)
    assert same(got, {"l": [{"a": decimal.Decimal("1.0"), "b": [instant, None], "c": 1.0}]})
