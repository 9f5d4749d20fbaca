"""Calls and reads over the protocol of PostgreSQL, by its clients and by bytes that no client sends."""

import asyncio
import contextlib
import decimal
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

import pytest
from test_server import full, hold, kill_amid, started

import tidemill as tm

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")

BANK = """
import tidemill as tm
from datetime import datetime, timezone

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0

class Entry(tm.Row):
    book: str = tm.key()
    number: int = tm.key()
    flag: bool = False
    rate: float = 0.0
    price: tm.Decimal(12, 2) = 0
    at: tm.Time = datetime(2020, 1, 1, tzinfo=timezone.utc)
    raw: bytes = b""
    note: str | None = None

class Deposit(tm.Event):
    account: str
    amount: int

class Transfer(tm.Event):
    src: str
    dst: str
    amount: int

class Note(tm.Event):
    text: str

class Post(tm.Event):
    book: str
    number: int
    flag: bool
    rate: float
    price: tm.Decimal(12, 2)
    at: tm.Time
    raw: bytes
    note: str | None

class Many(tm.Event):
    account: str
    amounts: list[int]

app = tm.App("bank")
accounts = app.table(Account)
entries = app.table(Entry, name="entries")
deposits = app.requests(Deposit)
transfers = app.requests(Transfer)
notes = app.requests(Note)
posts = app.requests(Post)
manies = app.requests(Many)

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True)):
    tm.require(ev.amount > 0, "amount must be positive")
    a.balance += ev.amount
    return {"account": a.id, "balance": a.balance}

@app.transaction(transfers)
def transfer(ev, s=accounts.row("src"), d=accounts.row("dst")):
    tm.require(s.balance >= ev.amount, "insufficient funds")
    s.balance -= ev.amount
    d.balance += ev.amount
    return {"left": s.balance}

@app.transaction(notes)
def note(ev, a=accounts.row("text", create=True)):
    a.balance += 1

@app.transaction(posts)
def post(ev, e=entries.row("book", "number", create=True)):
    e.flag = ev.flag
    e.rate = ev.rate
    e.price = ev.price
    e.at = ev.at
    e.raw = ev.raw
    e.note = ev.note
    return {
        "number": e.number, "flag": e.flag, "rate": e.rate, "price": e.price, "at": e.at, "raw": e.raw, "note": e.note
    }

@app.transaction(manies)
def many(ev, a=accounts.row("account", create=True)):
    for amount in ev.amounts:
        a.balance += amount
    return {"balance": a.balance}
"""


@pytest.fixture
def app(module):
    return module(BANK, prelude="").app


@contextmanager
def served(app, state=None, **options):
    with app.start(state, workers=1) if state else app.start(workers=1) as mill, mill.serve(**options) as server:
        yield mill, server


@pytest.fixture
def bank(app):
    with served(app) as (mill, server):
        yield mill, server


@pytest.fixture
def without_duckdb(app, monkeypatch):
    """A server without an engine for queries refuses those that it does not understand."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with served(app) as (mill, server):
        yield mill, server


def connect(server, **options):
    return psycopg.connect(server.postgres_url, autocommit=True, **options)


def code_of(connection, text, values=None, **options):
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(text, values, **options)
    return caught.value.sqlstate, caught.value.diag


def test_a_call_commits_or_aborts(bank):
    mill, server = bank
    with connect(server) as db:
        assert db.execute("SELECT * FROM deposit('ada', 10)").fetchall() == [("ada", 10)]
        assert db.execute("SELECT deposit('ada', 1)").fetchone() == ("ada", 11)
        assert db.execute("CALL deposit('ada', 1)").fetchone() == ("ada", 12)
        assert db.execute("SELECT * FROM deposit(amount => 1, account => 'ada')").fetchone() == ("ada", 13)
        assert db.execute("SELECT * FROM deposit('ada', amount := %s)", [2]).fetchone() == ("ada", 15)
        assert db.execute('SELECT d.balance AS "Now" FROM public.deposit(%s, %s) AS d', ["ada", 5]).fetchone() == (20,)
        state, said = code_of(db, "SELECT * FROM transfer('ada', 'ada', 100)")
        assert (state, said.message_primary) == ("P0001", "insufficient funds")
        assert json.loads(said.message_detail) == {"s.id": "ada", "s.balance": 20, "d.id": "ada", "d.balance": 20}
        cursor = db.execute("CALL note('ada')")
        assert (cursor.description, cursor.statusmessage) == (None, "CALL")
        cursor = db.execute("SELECT * FROM note('ada')")
        assert cursor.statusmessage == "SELECT 0"
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 22}]


FULL = {
    "book": "a",
    "number": -5,
    "flag": True,
    "rate": 0.1,
    "price": decimal.Decimal("-1234567.89"),
    "at": datetime(2013, 1, 1, 5, 15, 0, 120000, tzinfo=timezone.utc),
    "raw": b"\x00\xff'",
    "note": 'ä"\\',
}
POST = "SELECT * FROM post(%(book)s, %(number)s, %(flag)s, %(rate)s, %(price)s, %(at)s, %(raw)s, %(note)s)"


@pytest.mark.parametrize("results_in_binary", [False, True])
@pytest.mark.parametrize("form", ["%s", "%b", "%t"])
def test_values_of_all_types_go_and_come(bank, results_in_binary, form):
    _, server = bank
    text = re.sub(r"%\((\w+)\)s", lambda found: f"%({found[1]}){form[1]}", POST)
    values = [
        FULL,
        {**FULL, "note": None, "rate": 1e300, "price": decimal.Decimal("0.00"), "number": 2**40},
        {**FULL, "rate": float("-inf"), "price": decimal.Decimal("9999999999.99"), "flag": False, "raw": b""},
        {**FULL, "at": datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=timezone(timedelta(hours=5)))},
    ]
    with connect(server) as db, db.cursor(binary=results_in_binary) as cursor:
        for value in values:
            wanted = tuple(value[name] for name in list(FULL)[1:])
            assert cursor.execute(text, value).fetchall() == [wanted]
            row = cursor.execute("SELECT * FROM entries WHERE number = %s AND book = %s", [value["number"], "a"])
            assert row.fetchall() == [("a", *wanted)]
        assert [column.name for column in cursor.description] == list(FULL)


def test_random_values_go_and_come(bank):
    mill, server = bank
    seeded = random.Random(7)
    with connect(server) as db:
        for number in range(300):
            value = {
                "book": "".join(
                    chr(seeded.choice([39, 92, 97, 228, 8364, 128512])) for _ in range(seeded.randrange(5))
                ),
                "number": number if seeded.random() < 0.5 else seeded.randrange(-(2**63), 2**63),
                "flag": seeded.random() < 0.5,
                "rate": struct.unpack("d", seeded.randbytes(8))[0],
                "price": decimal.Decimal(seeded.randrange(-(10**12) + 1, 10**12)).scaleb(-2),
                "at": datetime(1, 1, 2, tzinfo=timezone.utc) + timedelta(microseconds=seeded.randrange(3 * 10**17)),
                "raw": seeded.randbytes(seeded.randrange(6)),
                "note": seeded.choice([None, "", "x"]),
            }
            if value["rate"] != value["rate"]:
                value["rate"] = 0.5
            with db.cursor(binary=seeded.random() < 0.5) as cursor:
                got = cursor.execute(POST.replace(")s", ")b") if seeded.random() < 0.5 else POST, value).fetchone()
            assert got == tuple(value[name] for name in list(FULL)[1:])
        assert len(mill.table("entries")) > 290


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("SELECT * FROM deposit('ada')", "amount", "argument 'amount' of deposit"),
        ("SELECT balance FROM deposit(account => 'ada')", "amount", "argument 'amount' of deposit"),
        ("SELECT * FROM deposit(account => 'ada', money => 1)", "money", "has no argument 'money'"),
        ("SELECT * FROM deposit('ada', 1, 'k', 5)", None, "is given 4 arguments"),
        ("SELECT deposit('ada')", "amount", "argument 'amount' of deposit"),
        ("SELECT deposit() AS one", "account", "argument 'account' of deposit"),
        ("CALL deposit('ada')", "amount", "argument 'amount' of deposit"),
        ("SELECT * FROM \"deposit\"('ada') AS d", "amount", "argument 'amount' of deposit"),
    ],
)
def test_wrong_arguments_have_one_code_beside_an_engine(bank, text, column, said):
    pytest.importorskip("duckdb")
    mill, server = bank
    with connect(server) as db:
        for prepare in (False, True):
            got, diag = code_of(db, text, prepare=prepare)
            assert (got, diag.column_name) == ("42883", column), diag.message_primary
            assert said in diag.message_primary
        assert db.execute("SELECT 1").fetchone() == (1,)
    assert len(mill.table("accounts")) == 0


def test_lists_are_json(bank):
    _, server = bank
    with connect(server) as db:
        assert db.execute("SELECT * FROM many('ada', '[1, 2, 3]')").fetchone() == (6,)
        assert db.execute("SELECT * FROM many('ada', %s::json)", ["[4]"]).fetchone() == (10,)
        assert code_of(db, "SELECT * FROM many('ada', %s)", ['[1], "account": "eve", "amounts": [5]'])[0] == "22P02"
        assert code_of(db, "SELECT * FROM many('ada', %s)", ['["x"]'])[0] == "22P02"


@pytest.mark.parametrize(
    ("text", "values", "state", "column", "said"),
    [
        (
            "SELECT * FROM withdraw('ada', 1)",
            None,
            "42883",
            None,
            "there is no procedure 'withdraw'; procedures: deposit",
        ),
        ("SELECT * FROM deposit('ada', 'ten')", None, "22P02", "amount", "expected an integer, found 'ten'"),
        ("SELECT * FROM deposit('ada', 9223372036854775808)", None, "22003", "amount", "out of range"),
        ("SELECT * FROM deposit('ada', 1.5)", None, "42804", "amount", "expected int"),
        ("SELECT * FROM deposit('ada', NULL)", None, "23502", "amount", "a value is missing"),
        ("SELECT * FROM deposit('ada')", None, "42883", "amount", "argument 'amount' of deposit"),
        ("SELECT * FROM deposit('ada', 1, 2)", None, "42883", None, "is given 3 arguments"),
        ("SELECT * FROM deposit('ada', money => 2)", None, "42883", "money", "has no argument 'money'"),
        ("SELECT * FROM deposit('ada', 1, account => 'x')", None, "42883", "account", "given twice"),
        ("SELECT * FROM deposit(account => 'ada', 1)", None, "42601", None, "follows one with a name"),
        ("SELECT * FROM deposit(%s, %s)", ["ada", 1.5], "42804", "amount", "found double precision"),
        ("SELECT * FROM deposit(%s, %s)", ["ada", None], "23502", "amount", "a value is missing"),
        ("SELECT * FROM deposit(%s, %s)", ["ada", 2**63], "22003", "amount", "out of range"),
        ("SELECT * FROM deposit(%s, %s)", ["ada", "x"], "22P02", "amount", "expected an integer"),
        ("SELECT * FROM deposit('ada', 1 + 1)", None, "0A000", "amount", "the expression 1 + 1"),
        ("SELECT money FROM deposit('ada', 1)", None, "42703", "money", "columns: account, balance"),
        ("SELECT * FROM deposit('ada', 1) LIMIT 1", None, "0A000", None, "LIMIT of a call"),
        ("SELECT * FROM deposit('ada', 1), accounts", None, "0A000", None, "joins"),
        ("SELECT deposit('ada', 1), 2", None, "0A000", None, "in an expression"),
        ("INSERT INTO accounts VALUES ('ada', 1)", None, "0A000", None, "INSERT"),
        ("UPDATE accounts SET balance = 1", None, "0A000", None, "UPDATE"),
        ("DELETE FROM accounts", None, "0A000", None, "DELETE"),
        ("SELECT * FROM rows", None, "42P01", None, "there is no table 'rows'; tables: accounts, entries"),
        ("SELECT count(*) FROM accounts", None, "0A000", None, "among columns"),
        ("SELECT * FROM accounts ORDER BY id", None, "0A000", None, "ORDER BY"),
        ("SELECT * FROM accounts WHERE balance = 1", None, "0A000", None, "the key"),
        ("SELECT * FROM accounts WHERE id > 'a'", None, "0A000", None, "the key"),
        ("SELECT * FROM accounts WHERE id = 'a' OR id = 'b'", None, "0A000", None, "the key"),
        ("SELECT * FROM entries WHERE book = 'a'", None, "0A000", None, "the key"),
        ("SELECT * FROM accounts LIMIT 1 OFFSET 1", None, "0A000", None, "OFFSET"),
        ("SELECT * FROM accounts LIMIT -1", None, "2201W", None, "not negative"),
        ("SELECT DISTINCT id FROM accounts", None, "0A000", None, "DISTINCT"),
        ("SELECT id FROM accounts UNION SELECT id FROM accounts", None, "0A000", None, "UNION"),
        ("SELECT id FROM accounts FOR UPDATE", None, "0A000", None, "FOR UPDATE"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", None, "0A000", None, "WITH"),
        ("SELEC 1", None, "42601", None, "syntax error"),
        ("SELECT 'open", None, "42601", None, "syntax error"),
        ("CREATE TABLE t (a int)", None, "0A000", None, "CREATE"),
        ("LISTEN deposit", None, "42704", None, "there is no stream 'deposit'; streams: deposits, deposits.late"),
        ("SHOW nothing", None, "42704", None, "there is no setting 'nothing'"),
        ("SET TimeZone = 'Europe/Berlin'", None, "0A000", None, "timezone"),
        ("SET client_encoding = 'LATIN1'", None, "0A000", None, "client_encoding"),
    ],
)
def test_what_is_wrong_is_refused_and_never_runs(without_duckdb, text, values, state, column, said):
    mill, server = without_duckdb
    with connect(server) as db:
        got, diag = code_of(db, text, values)
        assert (got, diag.column_name) == (state, column), diag.message_primary
        assert said in diag.message_primary
        if state == "0A000" and text[:6] in ("INSERT", "UPDATE", "DELETE"):
            assert "there are: deposit, transfer, note" in diag.message_hint
        assert db.execute("SELECT 1").fetchone() == (1,)
        assert len(mill.table("accounts")) == 0


def test_reads(bank):
    _, server = bank
    with connect(server) as db:
        for name in ("bob", "ada", "cy"):
            db.execute("CALL deposit(%s, 5)", [name])
        assert db.execute("SELECT * FROM accounts").fetchall() == [("ada", 5), ("bob", 5), ("cy", 5)]
        assert db.execute("SELECT balance, id AS name FROM accounts LIMIT 2").fetchall() == [(5, "ada"), (5, "bob")]
        assert db.execute("SELECT a.balance FROM accounts a WHERE a.id = 'bob'").fetchall() == [(5,)]
        assert db.execute("SELECT * FROM accounts WHERE ('bob' = id)").fetchall() == [("bob", 5)]
        assert db.execute("SELECT * FROM accounts WHERE id = %s", ["nobody"]).fetchall() == []
        assert db.execute("SELECT * FROM accounts WHERE id = %s", [None]).fetchall() == []
        assert db.execute("SELECT * FROM accounts WHERE id = %s LIMIT %s", ["bob", 0]).fetchall() == []
        assert db.execute("SELECT * FROM accounts LIMIT NULL").rowcount == 3
        assert db.execute("SELECT * FROM Accounts", binary=True).rowcount == 3


def test_what_clients_ask_of_a_server(bank):
    _, server = bank
    with connect(server, application_name="test") as db:
        assert db.info.server_version == 150000
        assert db.execute("select pg_catalog.version()").fetchone()[0].startswith("PostgreSQL 15.0 (Tidemill")
        assert db.execute("select current_schema()").fetchone() == ("public",)
        assert db.execute("select current_database(), current_user, 1, 'x', true, null").fetchone() == (
            "bank",
            db.info.user,
            1,
            "x",
            True,
            None,
        )
        assert db.execute("show transaction isolation level").fetchone() == ("serializable",)
        assert db.execute("show standard_conforming_strings").fetchone() == ("on",)
        assert db.execute("SHOW application_name").fetchone() == ("test",)
        db.execute("SET application_name TO 'other'; SET search_path = public; SET client_encoding TO 'UTF8'")
        assert db.info.parameter_status("application_name") == "other"
        db.execute("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;")
        assert db.execute("SHOW application_name").fetchone() == ("test",)
        db.execute("DISCARD ALL")
        assert db.execute("").statusmessage in ("", None)


def test_a_block_takes_effect_at_once_and_says_so(bank):
    mill, server = bank
    with psycopg.connect(server.postgres_url) as db:
        # It opens a block by itself.
        assert db.execute("SELECT * FROM deposit('ada', 10)").fetchone() == ("ada", 10)
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 10}]
        db.commit()
        db.execute("SELECT * FROM accounts")
        db.rollback()
        db.execute("CALL deposit('ada', 1)")
        with pytest.raises(psycopg.Error) as caught:
            db.rollback()
        assert caught.value.sqlstate == "2D000"
        assert re.fullmatch(r"committed: deposit \(epoch \d+\)", caught.value.diag.message_detail)
        assert db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        # An error fails the block, as elsewhere; nothing else runs in it.
        assert code_of(db, "CALL deposit('ada', 0)")[0] == "P0001"
        assert code_of(db, "CALL deposit('ada', 100)")[0] == "25P02"
        db.rollback()
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 11}]
        db.read_only = True
        assert code_of(db, "CALL deposit('ada', 100)")[0] == "25006"
        db.rollback()
        assert db.execute("SHOW transaction_read_only").fetchone() == ("on",)
        db.rollback()


def test_reads_of_a_block_share_a_snapshot(bank):
    mill, server = bank
    deposits = tm.connect(server.url).deposit
    with psycopg.connect(server.postgres_url) as db, connect(server) as other:
        other.execute("CALL deposit('ada', 1)")
        one, whole = "SELECT balance FROM accounts WHERE id = 'ada'", "SELECT * FROM accounts"
        total = "SELECT sum(balance), tidemill_epoch() FROM accounts"
        # psycopg opens a block by itself. The first read may be of one row.
        assert db.execute(one).fetchone() == (1,)
        deposits(account="ada", amount=10)
        deposits(account="bob", amount=100)
        assert db.execute(one).fetchone() == (1,)
        assert db.execute(whole).fetchall() == [("ada", 1)]
        (total_before, epoch) = db.execute(total).fetchone()
        assert total_before == 1
        assert other.execute(total).fetchone()[0] == 111
        deposits(account="ada", amount=1000)
        assert db.execute(total, binary=True).fetchone() == (1, epoch)
        assert db.execute("SELECT * FROM accounts WHERE id = 'bob'").fetchall() == []
        # A call takes effect at once, and what is read after it contains it.
        assert db.execute("SELECT * FROM deposit('eve', 5)").fetchone() == ("eve", 5)
        assert db.execute(whole).fetchall() == [("ada", 1011), ("bob", 100), ("eve", 5)]
        deposits(account="bob", amount=1)
        now, later = db.execute(total).fetchone()
        assert now == 1116 and later > epoch
        db.commit()
        assert db.execute(total).fetchone()[0] == 1117
        # After its failure a block reads nothing; another one begins anew.
        assert code_of(db, "SELECT nothing FROM accounts")[0] == "42703"
        db.rollback()
        deposits(account="bob", amount=1)
        with db.transaction():
            assert db.execute(total).fetchone()[0] == 1118
            deposits(account="bob", amount=1)
            assert db.execute(one).fetchone() == (1011,)
            assert db.execute(total).fetchone()[0] == 1118


def test_random_blocks_read_one_state(bank):
    # Money only moves, so the sum is the same after each epoch, and no two reads of a block may be of two epochs.
    _, server = bank
    names = [f"a{n}" for n in range(8)]
    with connect(server) as db:
        for name in names:
            db.execute("CALL deposit(%s, 100)", [name])
    done = threading.Event()

    def move(seed):
        seeded = random.Random(seed)
        with connect(server) as db:
            while not done.is_set():
                source, target = seeded.sample(names, 2)
                with contextlib.suppress(psycopg.Error):
                    db.execute("CALL transfer(%s, %s, %s)", [source, target, seeded.randrange(1, 20)])

    movers = [threading.Thread(target=move, args=(seed,)) for seed in range(2)]
    [mover.start() for mover in movers]
    try:
        seeded = random.Random(5)
        for _ in range(30):
            with psycopg.connect(server.postgres_url) as db:
                order = seeded.sample(names, len(names))
                rows = [
                    db.execute("SELECT balance FROM accounts WHERE id = %s", [name]).fetchone()[0] for name in order
                ]
                assert sum(rows) == 800
                assert dict(db.execute("SELECT * FROM accounts").fetchall()) == dict(zip(order, rows, strict=True))
                assert db.execute("SELECT sum(balance) FROM accounts").fetchone() == (800,)
    finally:
        done.set()
        [mover.join() for mover in movers]


def test_savepoints(bank):
    mill, server = bank
    with psycopg.connect(server.postgres_url) as db:
        with db.transaction():
            with pytest.raises(psycopg.Error), db.transaction():
                db.execute("SELECT nonsense FROM accounts")
            db.execute("CALL deposit('ada', 1)")
            with pytest.raises(psycopg.errors.RaiseException), db.transaction():
                db.execute("CALL deposit('ada', 0)")
            # psycopg prefers the error of its own block, and logs that it could not be undone.
            with pytest.raises(ValueError), db.transaction("inner"):
                db.execute("CALL deposit('ada', 1)")
                raise ValueError("the client's own")
            assert db.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
            state, said = code_of(db, "ROLLBACK TO SAVEPOINT inner")
            assert (state, said.message_detail[:25]) == ("2D000", "committed: deposit (epoch")
            assert code_of(db, "SELECT 1")[0] == "25P02"
            db.execute("COMMIT")
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 2}]


def test_pipelines_keep_their_order(bank):
    mill, server = bank
    with connect(server) as db, db.cursor() as cursor:
        # One sync at the end.
        cursor.executemany("SELECT * FROM deposit(%s, %s)", [("ada", n) for n in range(1, 401)], returning=True)
        balances = []
        while True:
            balances.append(cursor.fetchone()[1])
            if not cursor.nextset():
                break
        assert balances == [n * (n + 1) // 2 for n in range(1, 401)]
        # Two procedures: each transfer needs the deposit before it.
        with db.pipeline():
            made = []
            for _ in range(200):
                made.append(db.execute("SELECT * FROM deposit(%s, %s)", ["bob", 1]))
                made.append(db.execute("SELECT * FROM transfer(%s, %s, %s)", ["bob", "ada", 1]))
        assert [cursor.fetchone() for cursor in made] == [("bob", 1), (0,)] * 200


def test_an_abort_in_a_pipeline_says_what_became_of_the_rest(bank):
    mill, server = bank
    with connect(server) as db:
        with pytest.raises(psycopg.Error) as caught, db.cursor() as cursor:
            cursor.executemany("CALL deposit(%s, %s)", [("ada", n) for n in (1, 0, 5, 0, 6)])
        assert (caught.value.sqlstate, caught.value.diag.message_primary) == ("P0001", "amount must be positive")
        ran = int(re.search(r"made after it: (\d+)", caught.value.diag.message_hint or "made after it: 0")[1])
        balance = mill.table("accounts").to_pylist()[0]["balance"]
        assert balance == 1 + {0: 0, 1: 5, 2: 5, 3: 11}[ran]
    # In a block nothing runs after the first abort.
    with psycopg.connect(server.postgres_url) as db:
        with pytest.raises(psycopg.Error) as caught, db.cursor() as cursor:
            cursor.executemany("CALL deposit(%s, %s)", [("eve", n) for n in (1, 0, 5)])
        assert caught.value.diag.message_hint is None
        db.execute("COMMIT")
        assert mill.table("accounts").to_pylist()[1] == {"id": "eve", "balance": 1}


def test_asyncpg(bank):
    _, server = bank

    async def main():
        async with asyncpg.create_pool(server.postgres_url, min_size=2, max_size=8) as pool:
            calls = [pool.fetchrow("SELECT * FROM deposit($1, $2)", "ada", 1) for _ in range(200)]
            balances = sorted(row["balance"] for row in await asyncio.gather(*calls))
            assert balances == list(range(1, 201))
            async with pool.acquire() as db:
                values = {**FULL}
                places = ", ".join(f"${n}" for n in range(1, 9))
                row = await db.fetchrow(f"SELECT * FROM post({places})", *values.values())
                assert dict(row) == {name: value for name, value in values.items() if name != "book"}
                row = await db.fetchrow("SELECT * FROM entries WHERE number = $1 AND book = $2", -5, "a")
                assert dict(row) == values
                with pytest.raises(asyncpg.RaiseError, match="amount must be positive"):
                    await db.fetchrow("SELECT * FROM deposit($1, $2)", "ada", 0)
                with pytest.raises(asyncpg.UndefinedFunctionError, match="procedures: deposit"):
                    await db.fetchrow("SELECT * FROM withdraw($1)", "ada")
                await db.executemany("SELECT * FROM deposit($1, $2)", [("bob", 1)] * 100)
                assert await db.fetchval("SELECT balance FROM accounts WHERE id = 'bob'") == 100
                async with db.transaction():
                    rows = [row["id"] async for row in db.cursor("SELECT id FROM accounts", prefetch=1)]
                assert rows == ["ada", "bob"]

    asyncio.run(main())


needs_psql = pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed (postgresql-client)")


@needs_psql
def test_psql(bank):
    _, server = bank

    def psql(*arguments, code=0):
        ran = subprocess.run(
            ["psql", "-X", "-At", *arguments, server.postgres_url],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        assert ran.returncode == code, ran.stderr
        return ran.stdout, ran.stderr

    assert psql("-c", "SELECT * FROM deposit('ada', 10)") == ("ada|10\n", "")
    assert psql("-c", "CALL deposit('ada', 1)")[0] == "ada|11\n"
    assert psql("-c", "SELECT * FROM accounts; SELECT 1")[0] == "ada|11\n1\n"
    said = psql("-v", "VERBOSITY=verbose", "-c", "CALL transfer('ada', 'ada', 100)", code=1)[1]
    assert "ERROR:  P0001: insufficient funds" in said
    assert psql("-c", "SELECT id, sum(balance) AS total FROM accounts GROUP BY id ORDER BY id")[0] == "ada|11\n"
    said = psql("-1", "-c", "CALL deposit('ada', 1)", "-c", "CALL deposit('ada', 0)", code=1)[1]
    assert "amount must be positive" in said


def test_queries(bank):
    mill, server = bank
    with connect(server) as db:
        for name, amount in [("ada", 10), ("bob", 20), ("eve", 30)]:
            db.execute("CALL deposit(%s, %s)", [name, amount])
        rows = db.execute("SELECT id, balance FROM accounts WHERE balance > 15 ORDER BY balance DESC").fetchall()
        assert rows == [("eve", 30), ("bob", 20)]
        total = db.execute("SELECT sum(balance) AS total, avg(balance) AS mean, count(*) AS n FROM accounts")
        assert [column.name for column in total.description] == ["total", "mean", "n"]
        assert total.fetchone() == (60, 20.0, 3)
        query = """WITH rich AS (SELECT * FROM accounts WHERE balance >= %s)
            SELECT a.id, CASE WHEN r.id IS NULL THEN 'poor' ELSE 'rich' END AS kind,
                row_number() OVER (ORDER BY a.balance) AS place
            FROM accounts a LEFT JOIN rich r USING (id) ORDER BY place -- and no more"""
        for binary in (False, True):
            found = db.execute(query, [20], binary=binary).fetchall()
            assert found == [("ada", "poor", 1), ("bob", "rich", 2), ("eve", "rich", 3)]
        assert db.execute("SELECT count(*) FROM accounts WHERE id = %s OR id = %s", ["ada", "x"]).fetchone() == (1,)
        assert db.execute("SELECT tidemill_epoch() >= 3").fetchone() == (True,)
        assert db.execute("SELECT lower('ABC')").fetchone() == ("abc",)
        assert db.execute("SELECT id FROM accounts WHERE false ORDER BY 1").fetchall() == []
        # A call stays a call, and a wrong query says so.
        assert code_of(db, "SELECT * FROM deposit('ada', 1) LIMIT 1")[0] != "00000"
        assert code_of(db, "SELECT sum(nothing) FROM accounts")[0] == "42703"
        assert code_of(db, "SELECT * FROM nowhere ORDER BY 1")[0] == "42P01"
        assert code_of(db, "SELECT * FROM nowhere")[0] == "42P01"
        assert code_of(db, "SELECT withdraw('ada')")[1].message_primary.startswith("there is no procedure 'withdraw'")
        assert code_of(db, "SELECT (id::int) + 1 FROM accounts")[0] == "22P02"
        assert code_of(db, "SELECT * FROM read_text('/etc/passwd') ORDER BY 1")[0] == "42000"
        assert code_of(db, "SELECT count(*) FROM accounts WHERE balance > %s", ["x"])[0] in ("42703", "22P02")
        assert db.execute("SELECT sum(balance) FROM accounts").fetchone() == (60,)
        assert len(mill.table("accounts")) == 3


def test_queries_of_values_of_all_types(bank):
    at = datetime(2024, 5, 1, 9, 0, 0, 123, tzinfo=timezone.utc)
    given = {"book": "b", "number": 7, "flag": True, "rate": 0.5, "price": decimal.Decimal("12.34"), "at": at}
    given |= {"raw": b"\x00\xff", "note": None}
    _, server = bank
    with connect(server) as db:
        names = ", ".join(f"{name} => %({name})s" for name in given)
        db.execute(f"SELECT * FROM post({names})", given)
        for binary in (False, True):
            (row,) = db.execute("SELECT * FROM entries ORDER BY number", binary=binary).fetchall()
            assert row == tuple(given.values())
            for name in ("number", "flag", "rate", "price", "raw"):
                query = f"SELECT count(*) FROM entries WHERE {name} = %s AND number > 0"
                assert db.execute(query, [given[name]], binary=binary).fetchone() == (1,), name
            query = 'SELECT count(*) FROM entries e WHERE e."at" = %s AND number > 0'
            assert db.execute(query, [at], binary=binary).fetchone() == (1,)


def test_queries_of_asyncpg(bank):
    _, server = bank

    async def main():
        db = await asyncpg.connect(server.postgres_url)
        try:
            for name, amount in [("ada", 10), ("bob", 20)]:
                await db.fetchrow("SELECT * FROM deposit($1, $2)", name, amount)
            query = "SELECT id, balance * 2 AS twice FROM accounts WHERE balance > $1::bigint AND id <> $2 ORDER BY id"
            rows = await db.fetch(query, 5, "bob")
            assert [dict(row) for row in rows] == [{"id": "ada", "twice": 20}]
            assert await db.fetchval("SELECT sum(balance) FROM accounts") == 30
            with pytest.raises(asyncpg.PostgresError):
                await db.fetch("SELECT sum(nothing) FROM accounts")
            assert await db.fetchval("SELECT max(balance) FROM accounts") == 20
        finally:
            await db.close()

    asyncio.run(main())


@contextlib.contextmanager
def canceling(cancel):
    """Cancels what runs meanwhile, again and again: the first time may come before it has begun."""
    is_over = threading.Event()

    def again():
        while not is_over.wait(0.3):
            cancel()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_query_that_waits_is_canceled(bank):
    _, server = bank
    with connect(server) as db:
        with canceling(db.cancel):
            state, said = code_of(db, SLOW)
        assert state == "57014" and "seconds" not in said.message_primary, said.message_primary
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_a_cancel_without_a_call_does_nothing(bank):
    _, server = bank
    with connect(server) as db:
        db.cancel_safe()
        assert db.execute("SELECT * FROM deposit('ada', 1)").fetchone() == ("ada", 1)


def wait_for_the_sink(mill):
    """Makes calls until the next one waits for a sink that holds an epoch: 256 epochs are then behind it."""
    for _ in range(256):
        mill.call("deposit", account="bob", amount=1)


@pytest.mark.parametrize("in_block", [False, True])
def test_a_call_that_waits_is_canceled(app, in_block):
    held = hold(app)
    with served(app) as (mill, server), psycopg.connect(server.postgres_url, autocommit=not in_block) as db:
        assert db.execute("SELECT * FROM deposit('ada', 1)").fetchone() == ("ada", 1)
        wait_for_the_sink(mill)
        with canceling(db.cancel_safe):
            state, said = code_of(db, "SELECT * FROM deposit(%s, %s)", ["ada", 2])
        assert (state, said.message_primary) == ("57014", "deposit is not waited for any more")
        if in_block:
            state, said = code_of(db, "ROLLBACK")
            assert (state, "canceled" in said.message_detail) == ("2D000", True)
        held.set()
        # It ran all the same.
        assert db.execute("SELECT balance FROM accounts WHERE id = 'ada'").fetchone() == (3,)


SLOW = "SELECT count(*) FROM range(10000000) a, range(100000) b WHERE a.range % 7 = b.range % 11"


@pytest.mark.parametrize("timeout", ["300", "'300ms'", "'0.3s'"])
def test_a_statement_has_the_time_that_its_client_gives_it(bank, timeout):
    _, server = bank
    with connect(server) as db:
        db.execute(f"SET statement_timeout = {timeout}")
        assert db.execute("SHOW statement_timeout").fetchone() == ("300ms",)
        state, said = code_of(db, SLOW)
        assert (state, said.message_primary) == ("57014", "canceling statement due to statement timeout")
        state, _ = code_of(db, SLOW, prepare=True)
        assert state == "57014"
    with connect(server, options="-c statement_timeout=300ms") as db:
        assert code_of(db, SLOW)[0] == "57014"


def test_the_time_is_for_each_statement_and_not_for_all_together(bank):
    _, server = bank
    with connect(server) as db:
        db.execute("SET statement_timeout = '3s'")
        for _ in range(4):
            db.execute("SELECT count(*) FROM accounts, range(1000)")
            time.sleep(0.8)
        assert db.execute("SELECT * FROM deposit('ada', 1)").fetchone() == ("ada", 1)
        assert code_of(db, "SET statement_timeout = 'soon'")[0] == "22023"


def test_the_lesser_time_of_server_and_client_holds(app):
    with served(app, query_seconds_max=0.3) as (_, server), connect(server) as db:
        db.execute("SET statement_timeout = '1h'")
        state, said = code_of(db, SLOW)
        assert (state, said.message_primary) == ("57014", "the query took more than 0.3 seconds")


@pytest.mark.parametrize("way", ["simple", "in a block", "pipeline"])
def test_a_call_is_waited_for_no_longer_than_its_client_says(app, way):
    held = hold(app)
    with served(app) as (mill, server), connect(server) as db:
        assert db.execute("SELECT * FROM deposit('ada', 1)").fetchone() == ("ada", 1)
        wait_for_the_sink(mill)
        with (
            db.transaction() if way == "in a block" else contextlib.nullcontext(),
            pytest.raises(psycopg.Error) as late,
        ):
            # In a block, after its begin: the call is the only statement with so little time.
            db.execute("SET statement_timeout = 300")
            with db.pipeline() if way == "pipeline" else contextlib.nullcontext():
                values = None if way == "simple" else ["ada", 2]
                db.execute("SELECT * FROM deposit('ada', 2)" if way == "simple" else CALL, values)
        assert late.value.sqlstate == "57014", late.value
        held.set()
        db.execute("RESET statement_timeout")
        # It ran all the same.
        assert db.execute("SELECT balance FROM accounts WHERE id = 'ada'").fetchone() == (3,)


CALL = "SELECT * FROM deposit(%s, %s)"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT balance * 2 FROM deposit('ada', 1)",
        "SELECT * FROM deposit('ada', 1) WHERE balance > 0",
        "SELECT a.id FROM accounts a JOIN deposit('ada', 1) d ON a.id = d.account",
        "SELECT deposit('ada', 1), 2",
        "SELECT * FROM accounts WHERE balance > (SELECT balance FROM deposit('ada', 1))",
    ],
)
def test_a_call_stands_alone(bank, text):
    mill, server = bank
    with connect(server) as db:
        state, said = code_of(db, text)
        assert (state, said.message_primary) == (
            "0A000",
            "a call stands alone: deposit(...) is no part of a query",
        )
        assert "FROM deposit(...)" in said.message_hint
        assert len(mill.table("accounts")) == 0


def test_copy_says_what_to_do_instead(bank):
    _, server = bank
    with connect(server) as db:
        state, said = code_of(db, "COPY accounts TO STDOUT")
        assert state == "0A000" and "SELECT" in said.message_hint and "changed" not in said.message_hint
        state, said = code_of(db, "COPY accounts FROM STDIN")
        assert state == "0A000" and "rows are changed by procedures" in said.message_hint


def test_a_search_path_has_public(bank):
    _, server = bank
    with connect(server) as db:
        for path in ('public, "$user"', '"$user", public', "a, b, public", "'public'"):
            db.execute(f"SET search_path = {path}")
            assert db.execute("SHOW search_path").fetchone() == ("public",)
        assert code_of(db, "SET search_path = a, b")[0] == "0A000"


# Events.


def test_psycopg_listens(bank):
    mill, server = bank
    with connect(server) as db, connect(server) as other:
        assert db.execute('LISTEN "deposit.committed"').statusmessage == "LISTEN"
        db.execute('LISTEN "deposit.committed"')
        db.execute('LISTEN "transfer.aborted"')
        for n in range(1, 201):
            other.execute("CALL deposit('ada', %s)", [n])
        with pytest.raises(psycopg.Error):
            other.execute("CALL transfer('ada', 'ada', 1000000)")
        # A query between notifications is answered between them.
        assert db.execute("SELECT count(*) FROM accounts").fetchone() == (1,)
        found = list(db.notifies(timeout=20, stop_after=201))
        assert [json.loads(one.payload) for one in found[:200]] == [
            {"account": "ada", "balance": n * (n + 1) // 2} for n in range(1, 201)
        ]
        assert [one.channel for one in found] == ["deposit.committed"] * 200 + ["transfer.aborted"]
        assert json.loads(found[200].payload)["reason"] == "insufficient funds"
        assert db.execute('UNLISTEN "deposit.committed"').statusmessage == "UNLISTEN"
        other.execute("CALL deposit('ada', 1)")
        with pytest.raises(psycopg.Error):
            other.execute("CALL transfer('ada', 'ada', 1000000)")
        assert [one.channel for one in db.notifies(timeout=20, stop_after=1)] == ["transfer.aborted"]
        db.execute("UNLISTEN *")
        assert list(db.notifies(timeout=0.2)) == []
        state, said = code_of(db, 'LISTEN "nothing"')
        assert (state, "deposit.committed" in said.message_primary) == ("42704", True)


def test_psycopg_listens_after_a_place(app):
    keep = {"deposit.committed": 4}
    with app.start(keep=keep) as mill, mill.serve() as server, connect(server) as db, connect(server) as other:
        for n in range(3):
            other.execute("CALL deposit('ada', %s)", [n + 1])
        db.execute('LISTEN "deposit.committed after 0"')
        first = [json.loads(one.payload) for one in db.notifies(timeout=20, stop_after=3)]
        assert [one["event"]["balance"] for one in first] == [1, 3, 6]
        last = first[0]["position"]
        for n in range(3, 6):
            other.execute("CALL deposit('ada', %s)", [n + 1])
        assert [json.loads(one.payload)["event"]["balance"] for one in db.notifies(timeout=20, stop_after=3)] == [
            10,
            15,
            21,
        ]
        state, said = code_of(db, f'LISTEN "deposit.committed after {last}"')
        assert state == "22023", said
        assert "kept" in said.message_primary
        state, said = code_of(db, 'LISTEN "deposit.committed after noon"')
        assert (state, "is no place" in said.message_primary) == ("22023", True)


def test_replies_that_do_not_wait_for_the_disk(app, tmp_path):
    with app.start(state=tmp_path / "state") as mill, mill.serve() as server, connect(server) as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
        db.execute("SET synchronous_commit = off")
        for n in range(1, 50):
            assert db.execute("SELECT balance FROM deposit('ada', 1)").fetchone() == (n,)
        with pytest.raises(psycopg.errors.RaiseException):
            db.execute("CALL transfer('ada', 'ada', 1000000)")
        state, said = code_of(db, "SET synchronous_commit = sometimes")
        assert (state, said.message_hint) == ("22023", "it may be on or off")
        db.execute("RESET synchronous_commit")
        assert db.execute("SELECT balance FROM deposit('ada', 1)").fetchone() == (50,)
        with tm.connect(server.url) as client:
            assert client.call("deposit", durable=False, account="ada", amount=1)["balance"] == 51
            several = client.call_all("deposit", [{"account": "ada", "amount": 1}] * 3, durable=False)
            assert [reply["balance"] for reply in several] == [52, 53, 54]
        assert mill.call("deposit", durable=False, account="ada", amount=1)["balance"] == 55
        (reply,) = mill.call_all("deposit", [{"account": "ada", "amount": 1}], durable=False)
        assert reply["balance"] == 56
        request = urllib.request.Request(f"{server.url}/call/deposit?durable=maybe", data=b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert "durable=false" in json.loads(refused.value.read())["error"]


def test_asyncpg_listens(bank):
    _, server = bank

    async def main():
        db, other = await asyncpg.connect(server.postgres_url), await asyncpg.connect(server.postgres_url)
        heard = asyncio.Queue()
        await db.add_listener("deposit.committed", lambda *event: heard.put_nowait(event[2:]))
        for _ in range(3):
            await other.fetch("SELECT * FROM deposit('ada', 5)")
        found = [await asyncio.wait_for(heard.get(), 20) for _ in range(3)]
        assert found == [("deposit.committed", f'{{"account":"ada","balance":{n}}}') for n in (5, 10, 15)]
        await db.close()
        await other.close()

    asyncio.run(main())


def test_a_slow_listener_is_told_and_felt_by_nobody(app):
    # More than the 64 messages that are kept for it, and than what sockets hold.
    rounds, count, name = 90, 200, "x" * 4_000
    with served(app) as (mill, server), greeted(server) as slow, connect(server) as db:
        slow.sendall(message(b"Q", b'LISTEN "deposit.committed"\0'))
        assert tags(answers(slow)) == b"CZ"
        db.execute('LISTEN "deposit.committed"')
        for _ in range(rounds):
            mill.call_all(app.transactions["deposit"], [{"account": name, "amount": 1}] * count)
            assert len(list(db.notifies(timeout=20, stop_after=count))) == count
        found = answers(slow, b"E")
        assert b"C53400\0" in found[-1][1] and b"does not keep up" in found[-1][1]
        assert set(tags(found[:-1])) == {ord("A")} and 0 < len(found) < rounds * count
        assert slow.recv(1) == b""
        # The events that it got have no gap.
        balances = [json.loads(body[4:].split(b"\0")[1])["balance"] for _, body in found[:-1]]
        assert balances == list(range(1, len(found)))


# Bytes that no client sends.


def raw(server):
    place = urlsplit(server.postgres_url)
    return socket.create_connection((place.hostname, place.port), timeout=20)


def startup(**parameters):
    body = struct.pack("!I", 3 << 16) + b"".join(f"{n}\0{v}\0".encode() for n, v in parameters.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def message(tag, body=b""):
    return tag + struct.pack("!I", len(body) + 4) + body


def parse(text, name=b""):
    return message(b"P", name + b"\0" + text + b"\0\0\0")


def bind(*values):
    body = b"\0\0" + struct.pack("!HH", 0, len(values))
    return message(b"B", body + b"".join(struct.pack("!I", len(v)) + v for v in values) + b"\0\0")


EXECUTE = message(b"E", b"\0\0\0\0\0")
SYNC = message(b"S")


def read_exactly(one, count):
    data = b""
    while len(data) < count:
        more = one.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def answers(one, until=b"Z"):
    """The tags and bodies of messages, up to one of these, or to the end."""
    found = []
    while (head := read_exactly(one, 5)) is not None:
        body = read_exactly(one, struct.unpack("!I", head[1:])[0] - 4)
        found.append((head[:1], body))
        if head[:1] in until:
            break
    return found


@contextmanager
def greeted(server):
    with raw(server) as one:
        one.sendall(startup(user="ada"))
        assert answers(one)[0][0] == b"R"
        yield one


def tags(found):
    return b"".join(tag for tag, _ in found)


def test_a_connection_is_asked_for_in_every_way(bank):
    _, server = bank
    with raw(server) as one:
        for code in (80877104, 80877103):
            one.sendall(struct.pack("!II", 8, code))
            assert one.recv(1) == b"N"
        one.sendall(startup(user="ada", _pq_="x"))
        assert tags(answers(one))[-1:] == b"Z"
    with raw(server) as one:
        # A client of a later minor version with an option is told what is spoken.
        body = struct.pack("!I", (3 << 16) + 2) + b"user\0ada\0_pq_.new\0x\0\0"
        one.sendall(struct.pack("!I", len(body) + 4) + body)
        (tag, told), *_ = answers(one)
        assert (tag, told) == (b"v", struct.pack("!II", 0, 1) + b"_pq_.new\0")
    for first in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("!II", 8, 2 << 16), struct.pack("!I", 7), b"\xff" * 64):
        with raw(server) as one:
            one.sendall(first)
            found = answers(one)
            assert tags(found) == b"E" and b"FATAL" in found[0][1]


def test_messages_come_in_pieces_and_without_sync(bank):
    _, server = bank
    with greeted(server) as one:
        whole = parse(b"SELECT * FROM deposit($1, $2)") + message(b"D", b"S\0")
        for byte in whole + message(b"H"):
            one.sendall(bytes([byte]))
        assert tags(answers(one, b"T")) == b"1tT"
        one.sendall(bind(b"ada", b"5") + EXECUTE + message(b"H"))
        assert tags(answers(one, b"C")) == b"2DC"
        # Two units, many calls, in order.
        one.sendall((bind(b"ada", b"1") + EXECUTE + SYNC) * 100)
        for n in range(100):
            found = answers(one)
            assert tags(found) == b"2DCZ"
            assert found[1][1].endswith(str(6 + n).encode())


def test_what_was_asked_before_the_end_is_answered(bank):
    """A client may send all that it has to say at once, and then say goodbye or nothing more."""
    _, server = bank
    whole = startup(user="ada") + (parse(b"SELECT * FROM deposit('ada', 1)") + (bind() + EXECUTE) * 100 + SYNC)
    for turn in range(20):
        with raw(server) as one:
            one.sendall(whole + (message(b"X") if turn % 2 == 0 else b""))
            one.shutdown(socket.SHUT_WR)
            found = answers(one, b"")
        assert tags(found).endswith(b"Z1" + b"2DC" * 100 + b"Z")
        assert found[-2][0] == b"C" and found[-3][1].endswith(str(100 * (turn + 1)).encode())


def test_after_an_error_messages_are_left_out_up_to_sync(bank):
    mill, server = bank
    with greeted(server) as one:
        one.sendall(parse(b"SELECT * FROM deposit('ada', $1)") + SYNC)
        assert tags(answers(one)) == b"1Z"
        one.sendall(bind(b"1") + EXECUTE + bind(b"x") + EXECUTE + bind(b"1") + EXECUTE + SYNC)
        assert tags(answers(one)) == b"2DCEZ"
        # An abort, and what is sent after it is known.
        one.sendall(bind(b"0") + EXECUTE + message(b"H"))
        assert tags(answers(one, b"E")) == b"2E"
        one.sendall(bind(b"7") + EXECUTE + message(b"Q", b"SELECT 1\0") + SYNC)
        assert tags(answers(one)) == b"Z"
        # One call of a portal is one call.
        one.sendall(bind(b"1") + EXECUTE + EXECUTE + SYNC)
        assert tags(answers(one)) == b"2DCCZ"
        for wrong in (
            message(b"B", b"\0none\0\0\0\0\0\0\0"),
            message(b"E", b"none\0\0\0\0\0"),
            message(b"D", b"Pnone\0"),
        ):
            one.sendall(wrong + SYNC)
            assert tags(answers(one)) == b"EZ"
        one.sendall(bind() + SYNC + bind(b"1", b"2") + SYNC)
        assert tags(answers(one)) + tags(answers(one)) == b"EZEZ"
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 2}]


WRONG = [
    message(b"?"),
    b"Q" + struct.pack("!I", 3),
    b"Q" + struct.pack("!I", 2**31),
    b"B" + struct.pack("!I", 2**32 - 1),
    message(b"Q", b"no end"),
    message(b"Q", b"\xff\0"),
    message(b"B", b"\0\0\0\0\0\1" + struct.pack("!I", 2**31 - 1)),
    message(b"B", b"\0\0\xff\xff"),
    message(b"B", b"\0\0\0\1\0\7\0\0\0\0"),
    message(b"P", b"\0SELECT 1\0\xff\xff"),
    message(b"D", b"Xa\0"),
    message(b"S", b"more"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_what_is_no_message_ends_its_connection_alone(bank, wrong):
    mill, server = bank
    with greeted(server) as other, greeted(server) as one:
        # The requests before the wrong one are answered.
        one.sendall(parse(b"SELECT * FROM deposit('ada', $1)") + bind(b"1") + EXECUTE + wrong + SYNC)
        found = answers(one)
        assert tags(found) == b"12DCE" and b"FATAL" in found[-1][1]
        assert one.recv(1) == b""
        other.sendall(message(b"Q", b"CALL deposit('bob', 1)\0"))
        assert tags(answers(other)) == b"TDCZ"
        assert len(mill.table("accounts")) == 2


def test_random_bytes_harm_nobody(bank):
    mill, server = bank
    seeded = random.Random(11)
    oids = struct.pack("!IIIII", 1, 0, 26, 1, 1) + struct.pack("!II", 4, 20)
    conversations = [
        parse(b"SELECT * FROM note($1)") + bind(b"1") + EXECUTE + SYNC + message(b"Q", b"SELECT 1; SHOW ALL\0"),
        message(b"Q", b'LISTEN "note.committed"; BEGIN; SELECT * FROM accounts\0')
        + message(b"Q", b"COMMIT; UNLISTEN *\0"),
        parse(b"SELECT typname FROM pg_type WHERE oid = ANY($1::oid[])")
        + message(b"B", b"\0\0" + struct.pack("!HHHI", 1, 1, 1, len(oids)) + oids + struct.pack("!HH", 1, 1))
        + EXECUTE
        + SYNC,
        parse(b"SELECT $1::text[]") + bind(b'{"a\\"b",NULL}') + EXECUTE + SYNC,
    ]
    with greeted(server) as other:
        for turn in range(200):
            with greeted(server) as one:
                bytes_ = bytearray(conversations[turn % len(conversations)])
                for _ in range(seeded.randrange(1, 6)):
                    bytes_[seeded.randrange(len(bytes_))] = seeded.randrange(256)
                one.sendall(bytes(bytes_[: seeded.randrange(1, len(bytes_))]))
                one.shutdown(socket.SHUT_WR)
                answers(one, b"")
        other.sendall(message(b"Q", b"CALL deposit('bob', 1)\0"))
        assert tags(answers(other)) == b"TDCZ"
        assert {"id": "bob", "balance": 1} in mill.table("accounts").to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT " + b"(" * 100_000 + b"1" + b")" * 100_000,
        b"SELECT " + b"1+" * 100_000 + b"1",
        b"SELECT 1" + b" UNION SELECT 1" * 50_000,
        b"SELECT " + b"- " * 200_000 + b"1",
        b"SELECT '" + b"x" * 900_000 + b"'",
        b"SELECT " + b"1+" * 2_990 + b"1",
        b"SELECT " + b"NOT " * 2_000 + b"true",
        b"SELECT * FROM accounts WHERE " + b"id = 'a' AND " * 1_000 + b"id = 'a'",
        b"SELECT " + b"(" * 60 + b"1" + b")" * 60,
        b";" * 100_000,
    ],
)
def test_long_and_deep_statements_harm_nobody(bank, text):
    _, server = bank
    with greeted(server) as one:
        one.sendall(message(b"Q", text + b"\0") + parse(text) + SYNC)
        assert tags(answers(one))[-1:] == b"Z"
        assert tags(answers(one))[-1:] == b"Z"


def test_limits(app):
    with app.start(workers=1) as mill, mill.serve(connections_max=2, body_bytes_max=1000) as server:
        with greeted(server) as one, greeted(server):
            with raw(server) as third:
                third.sendall(startup(user="ada"))
                found = answers(third)
                assert tags(found) == b"E" and b"C53300\0" in found[0][1] and b"try again after 1 s\0" in found[0][1]
            one.sendall(message(b"Q", b"SELECT '" + b"x" * 1000 + b"'\0"))
            found = answers(one)
            assert tags(found) == b"E" and b"C54000\0" in found[0][1]
        deadline = time.monotonic() + 20
        while True:
            with raw(server) as again:
                again.sendall(startup(user="ada"))
                if tags(answers(again))[-1:] == b"Z":
                    break
            assert time.monotonic() < deadline


def test_one_over_a_limit_learns_when_to_ask_again(app):
    with full(app) as (server, end), connect(server) as db:
        state, said = code_of(db, "SELECT * FROM deposit('ada', 1)")
        assert (state, said.message_primary) == ("53400", "4 calls wait for their replies")
        assert said.message_hint == "this was not done; try again after 1 s"
        end()
        assert db.execute("SELECT * FROM deposit('ada', 1)").fetchone() == ("ada", 262)


def test_slow_and_vanished_clients_harm_nobody(bank):
    mill, server = bank
    with greeted(server) as silent, raw(server) as half:
        half.sendall(b"\0\0")
        # One asks for much and reads nothing.
        silent.sendall(parse(b"SELECT * FROM deposit('x', 1)") + (bind() + EXECUTE) * 5_000 + SYNC)
        for _ in range(20):
            with greeted(server) as gone:
                gone.sendall(parse(b"SELECT * FROM deposit('gone', 1)") + bind() + EXECUTE + SYNC)
        with connect(server) as db:
            for n in range(1, 101):
                assert db.execute("SELECT * FROM deposit('ada', 1)").fetchone() == ("ada", n)
        assert tags(answers(silent)).count(b"D") == 5_000


# The command, in a process of its own.


@contextmanager
def command(folder, *options):
    """The process, and its address for clients of PostgreSQL, if it has one."""
    with started(folder, *options, program=BANK) as (process, line):
        found = re.search(r"postgresql://\S+/bank", line)
        yield process, found and found[0]


def test_the_command_says_where_and_ends_with_what_is_under_way(tmp_path):
    with command(tmp_path, "--state", "state") as (process, url):
        answered, over = [], []

        def make():
            try:
                with psycopg.connect(url, autocommit=True) as db:
                    while True:
                        answered.append(db.execute("SELECT * FROM deposit('ada', 1)").fetchone()[1])
            except psycopg.Error as error:
                over.append(error)

        threads = [threading.Thread(target=make) for _ in range(4)]
        [thread.start() for thread in threads]
        while len(answered) < 20:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        [thread.join() for thread in threads]
        assert process.returncode == 0, said
        assert [error.sqlstate for error in over] == ["57P01"] * 4
    with command(tmp_path, "--state", "state") as (_, url), psycopg.connect(url, autocommit=True) as db:
        # Each call was answered, or told that the server ends.
        assert db.execute("SELECT balance FROM accounts WHERE id = 'ada'").fetchone() == (len(answered),)
        assert sorted(answered) == list(range(1, len(answered) + 1))
    with command(tmp_path, "--no-postgres") as (_, url):
        assert url is None


def test_each_answered_call_is_there_once_after_a_kill(tmp_path):
    answered = []
    for life in range(3):
        with command(tmp_path, "--state", "state") as (process, url):

            def make(number, life=life, url=url):
                try:
                    with psycopg.connect(url, autocommit=True) as db:
                        for n in range(10_000):
                            name = f"{life}.{number}.{n}"
                            assert db.execute("SELECT * FROM deposit(%s, 1)", [name]).fetchone() == (name, 1)
                            answered.append(name)
                except psycopg.Error:
                    pass

            kill_amid(process, make, answered, 30)
    with command(tmp_path, "--state", "state") as (_, url), psycopg.connect(url, autocommit=True) as db:
        balances = dict(db.execute("SELECT id, balance FROM accounts").fetchall())
        assert all(balances.get(name) == 1 for name in answered)
        assert len(answered) <= len(balances) <= len(answered) + 12
        assert set(balances.values()) == {1}


# The casts to numeric without digits, and their values; none where the cast is refused.
NUMERICS = [
    ("'1.23456'::numeric", "1.23456"),
    ("1.23456::numeric", "1.23456"),
    ("cast('-0.000001' as numeric)", "-0.000001"),
    ("numeric '1.50'", "1.50"),
    ("'1.5e-4'::decimal", "0.00015"),
    ("5::pg_catalog.numeric", "5"),
    ("123456789012345678::numeric", "123456789012345678"),
    ("'0.123456789012345678'::numeric", "0.123456789012345678"),
    ("'1234567890123456789.5'::numeric", None),
    ("'12345678901234567890123456789012345678901'::numeric", None),
    ("'x'::numeric", None),
    ("balance::numeric", "12"),
    ("(balance / 8.0)::numeric", "1.5"),
    ("rate::numeric", "0.3"),
    ("price::numeric", "1234567890.12"),
    ("note::numeric", "7.1234567"),
    ("(note || '0000000000000001')::numeric", None),
    ("round(rate::numeric, 2)", "0.30"),
    ("sum(price::numeric)", "1234567890.12"),
    ("price::numeric * 2 + 1", "2469135781.24"),
    ("balance::numeric * rate::numeric", "3.6"),
    ("null::numeric", "None"),
    ("1.005::numeric(10, 2)", "1.01"),
]


@pytest.mark.parametrize(("cast", "value"), NUMERICS)
@pytest.mark.parametrize("how", ["simple", "prepared"])
def test_numerics_without_digits_are_exact_or_refused(bank, cast, value, how):
    mill, server = bank
    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    mill.call("deposit", account="ada", amount=12)
    entry = {
        "flag": True,
        "rate": 0.1 + 0.2,
        "price": decimal.Decimal("1234567890.12"),
        "at": at,
        "raw": b"",
        "note": "7.1234567",
    }
    mill.call("post", book="a", number=1, **entry)
    with connect(server) as db, db.cursor() as cursor:
        query = f"select {cast} as x from accounts, entries"
        # With the extended protocol the columns are asked for before the rows.
        run = lambda: cursor.execute(query, prepare=how == "prepared", binary=how == "prepared").fetchone()
        if value is None:
            with pytest.raises(psycopg.Error):
                run()
        else:
            (found,) = run()
            assert str(found) == value or decimal.Decimal(found) == decimal.Decimal(value)


@pytest.mark.parametrize("number", ["1e400", "-1E+400", "1234567890123456789012345678901.1234567890", "0." + "1" * 39])
def test_numbers_that_duckdb_would_take_as_others_are_refused(bank, number):
    _, server = bank
    with connect(server) as db:
        for query in ("select {} as x", "select * from entries where rate < {}", "select {}::numeric as x"):
            assert code_of(db, query.format(number))[0] == "22003", query
        assert db.execute("select 1e308 as x, 0.1 as y").fetchone() == (1e308, decimal.Decimal("0.1"))


def test_a_numeric_of_more_digits_is_text(bank):
    _, server = bank
    with connect(server) as db:
        # Not so where the columns were told before.
        query = "select '0.1234567890123456789'::numeric as x"
        assert psycopg.ClientCursor(db).execute(query).fetchone() == ("0.1234567890123456789",)
        assert code_of(db, query, prepare=True, binary=True)[0] == "42804"


@pytest.mark.parametrize("text", ["1.23456", "-12345.678901234567", "0.000000000000001", "1e3", "99999999999999999"])
def test_numeric_parameters_are_exact(bank, text):
    _, server = bank
    with connect(server) as db:
        for query in ("select %s::numeric as x", "select %b::numeric as x", "select %t::numeric as x"):
            for value in (decimal.Decimal(text), text):
                if isinstance(value, str) and "%b" in query:
                    continue
                (found,) = db.execute(query, [value]).fetchone()
                assert decimal.Decimal(found) == decimal.Decimal(text), (query, value)
