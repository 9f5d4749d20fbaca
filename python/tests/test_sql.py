"""SQL over the tables of a session: embedded, and through the server."""

import datetime
import decimal
import json
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from server_process import WAIT_SECONDS

import tidemill as tm

duckdb = pytest.importorskip("duckdb")


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0
    rate: tm.Decimal(10, 2) = 0
    limit: float = 1.5
    note: str | None = None


class Branch(tm.Row):
    name: str = tm.key()
    accounts: int = 0


class Deposit(tm.Event):
    account: str
    amount: int


class Transfer(tm.Event):
    source: str
    target: str
    amount: int


def bank():
    app = tm.App("bank")
    accounts = app.table(Account)
    branches = app.table(Branch)
    deposits = app.requests(Deposit)
    transfers = app.requests(Transfer)

    @app.transaction(deposits)
    def deposit(ev, a=accounts.row("account", create=True)):
        a.balance += ev.amount
        return {"balance": a.balance}

    @app.transaction(transfers)
    def transfer(ev, s=accounts.row("source"), t=accounts.row("target")):
        s.balance -= ev.amount
        t.balance += ev.amount

    return app, accounts, deposit, transfer


def filled(mill, deposit, count=10):
    mill.call_all(deposit, [{"account": f"a{i}", "amount": i * 10} for i in range(count)])


@pytest.fixture
def mill():
    app, accounts, deposit, _ = bank()
    with app.start() as mill:
        filled(mill, deposit)
        yield mill


def ask(url, body, **headers):
    request = urllib.request.Request(f"{url}/query", body.encode() if isinstance(body, str) else body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def lines(answer):
    status, _, body = answer
    assert status == 200, body
    return [json.loads(line) for line in body.splitlines()]


def test_a_query_gives_rows(mill):
    rows = mill.sql("select id, balance from accounts where balance > 60 order by balance desc")
    assert rows.to_pylist() == [{"id": "a9", "balance": 90}, {"id": "a8", "balance": 80}, {"id": "a7", "balance": 70}]
    assert len(rows) == 3
    assert pa.table(rows).column_names == ["id", "balance"]
    assert pa.table(rows).num_rows == 3  # more than once
    assert rows.to_arrow().num_rows == 3


def test_groups_joins_subselects_and_windows(mill):
    (row,) = mill.sql("select sum(balance) as total, avg(balance) as mean, count(*) as n from accounts").to_pylist()
    assert row == {"total": 450, "mean": 45.0, "n": 10}
    joined = mill.sql(
        "select a.id, rank() over (order by a.balance desc) as place, case when b.name is null then 'none' else b.name end"
        " as branch from accounts a left join branches b on b.name = a.id"
        " where a.balance > (select avg(balance) from accounts) order by place limit 2"
    )
    assert joined.to_pylist() == [
        {"id": "a9", "place": 1, "branch": "none"},
        {"id": "a8", "place": 2, "branch": "none"},
    ]


def test_parameters(mill):
    assert mill.sql("select balance from accounts where id = ?", ["a3"]).to_pylist() == [{"balance": 30}]
    assert mill.sql("select balance from accounts where id = $id", {"id": "a4"}).to_pylist() == [{"balance": 40}]
    assert mill.sql("select balance from accounts where id = ?", ["a' or 1=1 --"]).to_pylist() == []


def test_parameters_that_are_none(mill):
    with pytest.raises(tm.RunError, match="the parameters are the text 'ada'; give a list or a dict"):
        mill.sql("select balance from accounts where id = ?", "ada")
    with mill.serve() as server:
        for wrong in ({"numeric": "x"}, {"micros": 10**18}, {"bytes": [300]}):
            body = json.dumps({"sql": "select ?", "parameters": [wrong]})
            status, _, text = ask(server.url, body, **{"Content-Type": "application/json"})
            assert status == 400 and "a parameter is not a value" in json.loads(text)["error"]


NUMBERS = [
    # The number as it is written, and as it comes back, if it is answered.
    ("9223372036854775807", "9223372036854775807"),
    ("9223372036854775808", None),
    ("12345678901234567890123456789012345678901", None),
    ("-340282366920938463463374607431768211456", None),
    ("0.1", "0.1"),
    ("1e308", "1e308"),
    ("1e400", None),
    ("-1e400", None),
    # Floats, which are written with as many digits as tell them from all others.
    ("123456789012345.125", "123456789012345.12"),
    ("0.12345678901234567", "0.12345678901234566"),
    ("0.123456789012345678", "0.123456789012345678"),
    ("1234567890123456789012345678901.1234567890", None),
]


@pytest.mark.parametrize(("written", "answer"), NUMBERS)
@pytest.mark.parametrize("parameters", ["[{}]", '{{"1": {}}}'])
def test_numbers_of_parameters_are_exact_or_refused(mill, written, answer, parameters):
    body = f'{{"sql": "select $1 as x", "parameters": {parameters.format(written)}}}'
    with mill.serve() as server:
        status, _, text = ask(server.url, body, **{"Content-Type": "application/json"})
    if answer is None:
        assert status == 400, text
    else:
        assert status == 200 and decimal.Decimal(json.loads(text, parse_float=str, parse_int=str)["x"]) == (
            decimal.Decimal(answer)
        )


def test_decimals_that_duckdb_would_take_as_floats_are_refused(mill):
    for fits in ("1" * 38, "-0." + "1" * 38, "1e37"):
        (row,) = mill.sql("select $x as x", {"x": decimal.Decimal(fits)}).to_pylist()
        assert row["x"] == decimal.Decimal(fits)
    for beyond in ("1" * 39, "0." + "1" * 39, "1e38", "1e-39"):
        for parameter in (decimal.Decimal(beyond), [decimal.Decimal(beyond)]):
            with pytest.raises(tm.RunError, match="has more than 38 digits"):
                mill.sql("select ? as x", [parameter])


def test_deep_parameters_are_refused(mill):
    body = '{"sql": "select ?", "parameters": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with mill.serve() as server:
        assert ask(server.url, body, **{"Content-Type": "application/json"})[0] == 400


def test_types(mill):
    (row,) = mill.sql('select rate, "limit", note, now() as at from accounts limit 1').to_pylist()
    assert row["rate"] == decimal.Decimal("0.00") and row["limit"] == 1.5 and row["note"] is None
    assert row["at"].tzinfo is not None and abs(row["at"] - datetime.datetime.now(datetime.timezone.utc)).days == 0


def test_the_epoch(mill):
    answer = mill.sql("select tidemill_epoch() as epoch")
    assert answer.to_pylist() == [{"epoch": answer.epoch}]
    assert answer.epoch >= 1
    assert f"after epoch {answer.epoch}" in repr(answer)


def test_a_query_sees_what_was_sent_before():
    app, accounts, deposit, _ = bank()
    with app.start() as mill:
        for n in range(20):
            mill.call(deposit, account="ada", amount=1)
            assert mill.sql("select balance from accounts").to_pylist() == [{"balance": n + 1}]


def test_names_are_found_in_any_case(mill):
    assert mill.sql("SELECT COUNT(*) AS n FROM Accounts").to_pylist() == [{"n": 10}]
    assert {row["name"] for row in mill.sql("show tables").to_pylist()} == {"accounts", "branches"}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("selec 1", "syntax error"),
        ("select * from nowhere", "nowhere"),
        ("select nothing from accounts", "nothing"),
        ("", "0 statements"),
        ("select 1; select 2", "2 statements"),
        ("insert into accounts values ('x')", "INSERT is not answered: tables are read with SELECT"),
        ("drop view accounts", "DROP is not answered"),
        ("create table x(i int)", "CREATE is not answered"),
        ("set threads = 8", "SET is not answered"),
        ("copy accounts to 'stolen.csv'", "COPY is not answered"),
        ("attach 'other.db'", "ATTACH is not answered"),
        ("install httpfs", "not answered"),
        ("select * from '/etc/passwd'", "/etc/passwd"),
        ("select * from read_csv('/etc/passwd')", "file system operations are disabled"),
        ("select * from read_text('/etc/passwd')", "file system operations are disabled"),
        ("select * from glob('/*')", "file system operations are disabled"),
        ("select getenv('HOME')", "getenv"),
        ("select * from os", "os"),
        ("select 1 / 'x'", "x"),
        ("select ?", "parameter"),
    ],
)
def test_refusals(mill, query, says):
    os = "a variable of the program"
    with pytest.raises(tm.RunError, match="(?i)" + says.replace("(", r"\(")):
        mill.sql(query)
    assert mill.sql("select 1 as one").to_pylist() == [{"one": 1}]


def test_a_query_that_takes_too_long(mill):
    with pytest.raises(tm.RunError, match="took more than 0.2 seconds"):
        mill.sql(
            "select count(*) from range(10000000) a, range(1000000) b where a.range % 7 = b.range % 11", timeout=0.2
        )


def test_without_duckdb(mill, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(tm.RunError, match=r"needs DuckDB.*pip install 'tidemill\[sql\]'"):
        mill.sql("select 1")
    with mill.serve() as server:
        status, _, body = ask(server.url, "select 1")
        assert status == 501 and "DuckDB" in json.loads(body)["error"]


def test_tables_that_are_not_named_are_not_read(mill):
    _, _, tables = mill._native.reads(None)
    read = []

    class Watched:
        def __init__(self, name, frame):
            self.name, self.frame = name, frame

        def __arrow_c_schema__(self):
            return self.frame.__arrow_c_schema__()

        def __arrow_c_stream__(self, requested_schema=None):
            read.append(self.name)
            return self.frame.__arrow_c_stream__(requested_schema)

    from tidemill.sql import queried

    watched = {name: Watched(name, frame) for name, frame in tables.items()}
    assert queried(watched, 1, "select count(*) from accounts").to_pylist() == [{"count_star()": 10}]
    assert set(read) == {"accounts"}


def test_duckdb_of_the_user(mill):
    connection = mill.duckdb("accounts")
    assert connection.sql("select sum(balance) from accounts").fetchall() == [(450,)]
    connection.execute("create table mine as select * from accounts where balance > 50")
    assert connection.sql("select count(*) from mine").fetchall() == [(4,)]
    with pytest.raises(duckdb.CatalogException):
        connection.sql("select * from branches")
    assert mill.duckdb().sql("select count(*) from branches").fetchall() == [(0,)]


def test_whole_and_of_one_epoch_while_transactions_run():
    app, accounts, deposit, transfer = bank()
    random_of = random.Random(7)
    stop = threading.Event()
    with app.start(workers=2) as mill:
        mill.call_all(deposit, [{"account": f"a{i}", "amount": 100} for i in range(20)])

        def moves():
            while not stop.is_set():
                pairs = [(random_of.randrange(20), random_of.randrange(20)) for _ in range(50)]
                mill.call_all(
                    transfer, [{"source": f"a{s}", "target": f"a{t}", "amount": 1} for s, t in pairs if s != t]
                )

        mover = threading.Thread(target=moves)
        mover.start()
        try:
            seen, epochs = set(), []
            deadline = time.monotonic() + WAIT_SECONDS
            while len(epochs) < 15 or (len(seen) == 1 and time.monotonic() < deadline):
                answer = mill.sql("select sum(balance) as total, min(balance) as least from accounts")
                (row,) = answer.to_pylist()
                assert row["total"] == 2000
                seen.add(row["least"])
                epochs.append(answer.epoch)
            assert epochs == sorted(epochs) and len(seen) > 1
        finally:
            stop.set()
            mover.join()


def test_asynchronously():
    import asyncio

    async def main():
        app, accounts, deposit, _ = bank()
        async with app.start() as mill:
            await mill.call(deposit, account="ada", amount=3)
            answer = await mill.sql("select balance from accounts where id = ?", ["ada"])
            connection = await mill.duckdb()
            return answer.to_pylist(), connection.sql("select count(*) from accounts").fetchall()

    assert asyncio.run(main()) == ([{"balance": 3}], [(1,)])


def test_over_http(mill):
    with mill.serve() as server:
        answer = ask(server.url, "select id, balance from accounts where balance >= 80 order by id")
        assert lines(answer) == [{"id": "a8", "balance": 80}, {"id": "a9", "balance": 90}]
        headers = {name.lower(): value for name, value in answer[1].items()}
        assert headers["content-type"] == "application/x-ndjson"
        asked = ask(server.url, "select tidemill_epoch() as e")
        headers = {name.lower(): value for name, value in asked[1].items()}
        assert lines(asked) == [{"e": int(headers["tidemill-epoch"].partition("@")[0])}]
        body = json.dumps({"sql": "select balance from accounts where id = ?", "parameters": ["a5"]})
        assert lines(ask(server.url, body, **{"Content-Type": "application/json"})) == [{"balance": 50}]
        named = json.dumps({"sql": "select $x::bigint + 1 as y", "parameters": {"x": 41}})
        assert lines(ask(server.url, named, **{"Content-Type": "application/json; charset=utf-8"})) == [{"y": 42}]


def test_values_over_http(mill):
    query = """select true as b, 1::tinyint as i, 2::hugeint as h, 1.5::float as f, 'x"y' as s, '\\xAA'::blob as raw,
        1.25::decimal(10,2) as d, sum(1.5::decimal(10,1)) as total, timestamptz '2026-01-02 03:04:05.000006+00' as at,
        timestamp '2026-01-02 00:00:00' as plain, date '2026-01-02' as day, [1, 2] as list, null as nothing"""
    with mill.serve() as server:
        (row,) = lines(ask(server.url, query))
    assert row == {
        "b": True,
        "i": 1,
        "h": 2,
        "f": 1.5,
        "s": 'x"y',
        "raw": "qg==",
        "d": 1.25,
        "total": 1.5,
        "at": "2026-01-02T03:04:05.000006Z",
        "plain": "2026-01-02T00:00:00.000000Z",
        "day": "2026-01-02",
        "list": "[1, 2]",
        "nothing": None,
    }


def test_arrow_over_http(mill):
    with mill.serve() as server:
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        status, headers, body = ask(server.url, "select id, sum(balance) as total from accounts group by all", **accept)
        assert status == 200
        table = pa.ipc.open_stream(body).read_all()
        assert table.num_rows == 10 and sum(table["total"].to_pylist()) == 450
        empty = pa.ipc.open_stream(ask(server.url, "select id from accounts where false", **accept)[2]).read_all()
        assert empty.num_rows == 0 and empty.column_names == ["id"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        ("selec 1", {}, 400, "syntax error"),
        ("select * from read_text('/etc/passwd')", {}, 400, "disabled"),
        ("select 1; drop view accounts", {}, 400, "2 statements"),
        (b"\xff", {}, 400, "UTF-8"),
        ('{"sql": 1}', {"Content-Type": "application/json"}, 400, "sql"),
        ('{"sql": "select 1", "more": 1}', {"Content-Type": "application/json"}, 400, "more"),
        (
            '{"sql": "select ?", "parameters": 7}',
            {"Content-Type": "application/json"},
            400,
            "neither a list nor an object",
        ),
        ("select * from range(1001)", {}, 400, "more than 1000 rows"),
        ("select count(*) from range(100000000) a, range(100000) b", {}, 400, "took more than 0.5 seconds"),
        ("select 10000000000000000000000::hugeint as big", {}, 400, "out of range|Type"),
        ("select 12345678901234567890.5::decimal(30, 1) as big", {}, 400, "(?i)cast|range"),
    ],
)
def test_refusals_over_http(mill, body, headers, status, says):
    import re

    with mill.serve(query_rows_max=1000, query_seconds_max=0.5) as server:
        got, _, text = ask(server.url, body, **headers)
        assert got == status and re.search(says, json.loads(text)["error"]), text
        assert lines(ask(server.url, "select 1 as one")) == [{"one": 1}]
        assert len(lines(ask(server.url, "select * from range(1000)"))) == 1000


def test_another_method(mill):
    with mill.serve() as server:
        request = urllib.request.Request(f"{server.url}/query")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 405 and refused.value.headers["Allow"] == "POST"


def test_too_many_queries_at_once(mill):
    slow = "select count(*) from range(100000000) a, range(100000) b"
    # One of five is kept for queries that read no tables.
    with mill.serve(query_seconds_max=3, queries_max=5, queries_waiting_max=0) as server:
        threads = [threading.Thread(target=ask, args=(server.url, slow)) for _ in range(4)]
        for thread in threads:
            thread.start()
        metric = "tidemill_queries_in_flight 4"
        for _ in range(200):
            if metric in urllib.request.urlopen(f"{server.url}/metrics").read().decode():
                break
            threading.Event().wait(0.01)
        status, headers, body = ask(server.url, "select 1")
        assert (
            status == 503
            and {n.lower(): v for n, v in headers.items()}["retry-after"] == "1"
            and "5 queries" in json.loads(body)["error"]
        )
        for thread in threads:
            thread.join()
        assert lines(ask(server.url, "select 1 as one")) == [{"one": 1}]


def test_a_few_queries_wait(mill):
    """A page of six panels asks all of them at once."""
    with mill.serve() as server, ThreadPoolExecutor(6) as panels:
        asked = ["select count(*) as rows from range(20000000) where range % 3 = 0"] * 6
        answers = list(panels.map(lambda query: ask(server.url, query), asked))
        assert [lines(answer) for answer in answers] == [[{"rows": 6666667}]] * 6


HUGE = "select range, hash(range) as order_by, repeat('x', 50) as text from range(20000000) order by order_by"


def test_a_query_that_takes_too_much_memory(mill, tmp_path, monkeypatch):
    """It is refused, puts nothing into files, and calls and other queries go on."""
    monkeypatch.chdir(tmp_path)
    with mill.serve(query_memory_max=128 << 20) as server, tm.connect(server.url) as client:
        with ThreadPoolExecutor(1) as beside:
            huge = beside.submit(ask, server.url, f"select count(text) as texts from ({HUGE} limit 19999999)")
            calls = 0
            while not huge.done():
                calls += 1
                assert client.deposit(account="beside", amount=1)["balance"] == calls
        status, _, body = huge.result()
        assert status == 400 and "more memory than it may have, 32.0 MiB" in json.loads(body)["error"], body
        assert calls > 0 and list(tmp_path.iterdir()) == []
        assert client.sql("select balance from accounts where id = 'a2'") == [{"balance": 20}]


def test_the_client(mill):
    with mill.serve() as server, tm.connect(server.url) as client:
        assert client.sql("select balance from accounts where id = ?", ["a2"]) == [{"balance": 20}]
        with pytest.raises(tm.RunError, match="syntax error"):
            client.sql("selec 1")
