"""Procedures and fields whose names a client has uses for."""

import asyncio

import pytest
from test_server import served

import tidemill as tm
from tidemill.client import AsyncClient

OWN = ["call", "call_all", "push", "row", "rows", "metrics", "sql", "savepoint", "follow", "close"]

PROGRAM = """
import tidemill as tm

class Counter(tm.Row):
    id: str = tm.key()
    count: int = 0

class Ask(tm.Event):
    account: str

class Odd(tm.Event):
    timeout: int
    event: int
    durable: int
    self: int
    client: int
    procedure: int

app = tm.App("names")
counters = app.table(Counter)
"""
PROCEDURE = """
{name}s = app.requests(Ask, "{name}s")

@app.transaction({name}s)
def {name}(ev, c=counters.row("account", create=True)):
    c.count += 1
    return {{"said": "{name}", "count": c.count}}
"""
ODD = """
odds = app.requests(Odd)

@app.transaction(odds)
def odd(ev):
    return {"sum": ev.timeout + ev.event + ev.durable + ev.self + ev.client + ev.procedure}
"""
FIELDS = {"timeout": 1, "event": 2, "durable": 3, "self": 4, "client": 5, "procedure": 6}


@pytest.fixture
def app(module):
    return module(PROGRAM + "".join(PROCEDURE.format(name=name) for name in OWN) + ODD, prelude="").app


def public(client):
    return [name for name in vars(client) if not name.startswith("_")]


def test_all_methods_are_tested():
    assert sorted(public(tm.Client)) == sorted(OWN)
    assert set(public(AsyncClient)) <= set(OWN)


def test_a_method_of_the_client_hides_no_procedure(app):
    with served(app) as (_, server), tm.connect(server.url) as client:
        for number, name in enumerate(OWN):
            account = f"account {number}"
            assert getattr(client, name)(account=account).value == {"said": name, "count": 1}
            assert client.call(name, account=account).value == {"said": name, "count": 2}
            assert client.call(name, {"account": account})["count"] == 3
        # The client's own methods work under their names.
        assert client.row("counters", "account 0") == {"id": "account 0", "count": 3}
        assert client.sql(query="select count(*) as n from counters") == [{"n": len(OWN)}]
        assert [reply["count"] for reply in client.call_all("row", [{"account": "b"}] * 2)] == [1, 2]
        with pytest.raises(TypeError):
            client.row("counters", account="ada")
        client.close()
        assert client.close(account="b")["count"] == 3


def test_the_same_of_the_asynchronous_client(app):
    async def awaited(url):
        async with tm.connect(url) as client:
            for number, name in enumerate(public(AsyncClient)):
                account = f"account {number}"
                assert (await getattr(client, name)(account=account)).value == {"said": name, "count": 1}
                assert (await client.call(name, account=account))["count"] == 2
            assert (await client.row("counters", "account 0"))["count"] == 2
            followed = await client.follow("call.committed")
            await client.call(account="b")
            assert (await anext(followed))["said"] == "call"

    with served(app) as (_, server):
        asyncio.run(awaited(server.url))


def test_fields_may_have_any_name(app):
    with served(app) as (mill, server), tm.connect(server.url) as client:
        assert mill.call("odd", FIELDS)["sum"] == 21
        assert client.call("odd", FIELDS)["sum"] == 21

        async def awaited():
            async with tm.connect(server.url) as client:
                return (await client.call("odd", FIELDS))["sum"]

        assert asyncio.run(awaited()) == 21
        for caller in (mill, client):
            with pytest.raises(tm.SchemaError, match="a call has an event and fields; give one of them"):
                caller.call("odd", FIELDS, timeouts=1)
