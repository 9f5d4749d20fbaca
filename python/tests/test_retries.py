"""Calls with a key, which may be made again: within a program, over HTTP and PostgreSQL, after restarts and kills."""

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from server_process import until
from test_server import BANK, command

import tidemill as tm

pa = pytest.importorskip("pyarrow")

REMEMBERING = BANK.replace("app.requests(Deposit)", 'app.requests(Deposit, remember="1h")')
"""The bank of ``test_server``, whose deposits may be made again."""


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0


class Deposit(tm.Event):
    account: str
    amount: int


class Renamed(tm.Event):
    account: str
    idempotency_key: str


def bank(remember="1h", row=Account, event=Deposit, version=1, keys=None):
    """A bank: a deposit of 1 has no reply, one of 0 aborts."""
    app = tm.App("bank", version=version)
    accounts = app.table(row, "accounts")
    deposits = app.requests(event, "deposits", remember=remember, keys=keys)

    @app.transaction(deposits)
    def deposit(ev, a=accounts.row("account", create=True)):
        tm.require(ev.amount > 0, "amount must be positive")
        a.balance += ev.amount
        if ev.amount > 1:
            return {"account": a.id, "balance": a.balance}

    return app, deposit


def ask(url, body, headers):
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        connection.putrequest("POST", "/call/deposit")
        for name, value in [("Content-Length", str(len(body))), *headers]:
            connection.putheader(name, value)
        connection.endheaders(body.encode())
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def post(url, body, key):
    return ask(url, json.dumps(body), [("Idempotency-Key", key)])


def test_a_call_with_a_key_runs_once():
    app, deposit = bank()
    with app.start() as mill:
        first = mill.call(deposit, account="ada", amount=10, idempotency_key="a")
        assert first.value == {"account": "ada", "balance": 10}
        assert mill.call(deposit, account="ada", amount=10)["balance"] == 20
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="a") == first
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="b")["balance"] == 30
        assert mill.row("accounts", "ada") == {"id": "ada", "balance": 30}


def test_aborts_and_calls_without_a_reply_are_remembered_too():
    app, deposit = bank()
    with app.start() as mill:
        for _ in range(2):
            with pytest.raises(tm.Aborted, match="amount must be positive") as aborted:
                mill.call(deposit, account="ada", amount=0, idempotency_key="none")
            assert aborted.value.epoch == 1
        silent = [mill.call(deposit, account="ada", amount=1, idempotency_key="one") for _ in range(2)]
        assert silent[0] == silent[1]
        assert silent[0].value is None
        assert mill.row("accounts", "ada")["balance"] == 1


def test_other_arguments_are_refused():
    app, deposit = bank()
    with app.start() as mill:
        mill.call(deposit, account="ada", amount=10, idempotency_key="a")
        with pytest.raises(tm.IdempotencyError, match="had other arguments"):
            mill.call(deposit, account="ada", amount=11, idempotency_key="a")
        assert mill.row("accounts", "ada")["balance"] == 10


def test_keys_are_refused_that_cannot_be_kept():
    app, deposit = bank(remember=None)
    with app.start() as mill, pytest.raises(tm.IdempotencyError, match=r"remember="):
        mill.call(deposit, account="ada", amount=10, idempotency_key="a")
    app, deposit = bank()
    with app.start() as mill:
        for key in ("k" * 600, ""):
            with pytest.raises(tm.IdempotencyError, match=f"a key of {len(key)} bytes"):
                mill.call(deposit, account="ada", amount=10, idempotency_key=key)
        with pytest.raises(tm.IdempotencyError, match="1 keys for 2 calls"):
            mill.call(deposit, pa.table({"account": ["ada", "bob"], "amount": [1, 1]}), idempotency_key="a")
        assert mill.row("accounts", "ada") is None


@pytest.mark.parametrize(
    ("remember", "message"),
    [("0s", "out of range"), (timedelta(0), "out of range"), (7, "not a duration"), ("soon", "remember")],
)
def test_wrong_times_are_refused(remember, message):
    with pytest.raises(tm.PlanError, match=message):
        tm.App("bank").requests(Deposit, remember=remember)


def test_a_field_of_the_name_is_refused():
    for remember in ("1h", None):
        with pytest.raises(tm.PlanError, match="idempotency_key"):
            tm.App("bank").requests(Renamed, remember=remember)


def test_a_key_is_forgotten_after_its_time():
    app, deposit = bank(remember="50ms")
    with app.start() as mill:
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="a")["balance"] == 10
        time.sleep(0.2)
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="a")["balance"] == 20


def test_answers_outlive_sessions_and_runs(tmp_path):
    state = tmp_path / "state"
    said = []
    for life in range(25):
        app, deposit = bank()
        with app.start(state=state) as mill:
            said.append(mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {life}"))
            again = [mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {k}") for k in range(life + 1)]
            assert again == said
            with pytest.raises(tm.IdempotencyError, match="had other arguments"):
                mill.call(deposit, account="ada", amount=11, idempotency_key="key 0")
    # A run without a session keeps them, too.
    app, deposit = bank()
    app.run({"deposits": [{"account": "bob", "amount": 5}]}, state=state)
    app, deposit = bank()
    with app.start(state=state) as mill:
        assert [mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {k}") for k in range(25)] == said
        assert mill.row("accounts", "ada")["balance"] == 250


class Account2(tm.Row):
    id: str = tm.key()
    balance: int = 0
    more: int = 0


class Account3(tm.Row):
    id: str = tm.key()
    balance: int = 0
    more: int = 0
    most: int = 0


@pytest.mark.parametrize("lives", [3, 16, 40])
def test_answers_outlive_migrations(tmp_path, lives):
    state = tmp_path / "state"
    said = []

    def again(mill, deposit):
        for k, reply in enumerate(said):
            assert mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {k}") == reply
        with pytest.raises(tm.Aborted):
            mill.call(deposit, account="ada", amount=0, idempotency_key="zero")

    for life in range(lives):
        app, deposit = bank()
        with app.start(state=state) as mill:
            said.append(mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {life}"))
            if life == 0:
                with pytest.raises(tm.Aborted):
                    mill.call(deposit, account="ada", amount=0, idempotency_key="zero")
    for version, row in ((2, Account2), (3, Account3)):
        app, deposit = bank(row=row, version=version)
        with app.start(state=state) as mill:
            again(mill, deposit)
            said.append(mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {len(said)}"))
    app, deposit = bank(row=Account3, version=3)
    with app.start(state=state) as mill:
        again(mill, deposit)
        assert mill.row("accounts", "ada")["balance"] == 10 * len(said)


class Noted(tm.Event):
    account: str
    amount: int
    note: str | None


def test_a_field_that_is_added_changes_no_key(tmp_path):
    state = tmp_path / "state"
    app, deposit = bank()
    with app.start(state=state) as mill:
        first = mill.call(deposit, account="ada", amount=10, idempotency_key="a")
    app, deposit = bank(event=Noted, version=2)
    with app.start(state=state) as mill:
        assert mill.call(deposit, account="ada", amount=10, note=None, idempotency_key="a") == first
        with pytest.raises(tm.IdempotencyError, match="had other arguments"):
            mill.call(deposit, account="ada", amount=10, note="new", idempotency_key="a")


def test_answers_in_another_form_are_refused(tmp_path):
    state = tmp_path / "state"
    app, deposit = bank()
    with app.start(state=state) as mill:
        mill.call(deposit, account="ada", amount=10, idempotency_key="a")
    app = tm.App("bank")
    accounts = app.table(Account)
    deposits = app.requests(Deposit, remember="1h")

    @app.transaction(deposits)
    def deposit(ev, a=accounts.row("account", create=True)):
        a.balance += ev.amount
        return {"half": a.balance / 2}

    with app.start(state=state) as mill:
        with pytest.raises(tm.IdempotencyError, match="another version of the program"):
            mill.call(deposit, account="ada", amount=10, idempotency_key="a")
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="b")["half"] == 10.0


def test_a_savepoint_has_the_answers_of_its_time(tmp_path):
    state = tmp_path / "state"
    app, deposit = bank()
    with app.start(state=state) as mill:
        first = mill.call(deposit, account="ada", amount=10, idempotency_key="a")
        mill.savepoint("then")
        mill.call(deposit, account="ada", amount=10, idempotency_key="b")
    ran = subprocess.run(
        [sys.executable, "-m", "tidemill", "savepoint", "restore", str(state), "then"],
        capture_output=True,
        text=True,
        check=False,
        input="y\n",
    )
    assert ran.returncode == 0, ran.stderr
    app, deposit = bank()
    with app.start(state=state) as mill:
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="a") == first
        assert mill.call(deposit, account="ada", amount=10, idempotency_key="b")["balance"] == 20


def test_callers_of_one_key_at_the_same_time_get_one_answer():
    app, deposit = bank()
    with app.start() as mill:
        said = []

        def call():
            said.extend(mill.call(deposit, account="ada", amount=10, idempotency_key=f"key {k}") for k in range(50))

        threads = [threading.Thread(target=call) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(said) == 400
        assert len({reply["balance"] for reply in said}) == 50
        assert mill.row("accounts", "ada")["balance"] == 500


def test_retries_over_http():
    app, _ = bank()
    with app.start() as mill, mill.serve() as server:
        body = {"account": "ada", "amount": 10}
        first = post(server.url, body, "a")
        assert first == (200, {"committed": {"account": "ada", "balance": 10}, "epoch": 1})
        assert post(server.url, body, "a") == first
        status, said = post(server.url, {**body, "amount": 11}, "a")
        assert (status, said["idempotency_key"]) == (422, False)
        aborted = post(server.url, {**body, "amount": 0}, "zero")
        assert aborted[0] == 409
        assert post(server.url, {**body, "amount": 0}, "zero") == aborted
        assert post(server.url, body, "")[0] == 400
        assert post(server.url, body, "é")[0] == 400
        several = ask(server.url, json.dumps(body), [("Idempotency-Key", "a"), ("Idempotency-Key", "b")])
        assert several == (400, {"idempotency_key": False, "error": "there are several Idempotency-Keys"})
        # A wrong call does not take the key.
        assert post(server.url, {"account": "ada"}, "b")[0] == 422
        assert post(server.url, body, "b")[1]["committed"]["balance"] == 20


def test_clients_in_python_retry():
    app, _ = bank()
    with app.start() as mill, mill.serve() as server, tm.connect(server.url) as client:
        first = client.deposit(account="ada", amount=10, idempotency_key="a")
        assert client.call("deposit", account="ada", amount=10, idempotency_key="a") == first
        with pytest.raises(tm.IdempotencyError, match="had other arguments"):
            client.deposit(account="ada", amount=11, idempotency_key="a")
        for key in ("", "é", "two\nlines", " "):
            with pytest.raises(tm.IdempotencyError, match="visible ASCII"):
                client.deposit(account="ada", amount=10, idempotency_key=key)

        async def again():
            async with tm.connect(server.url) as several:
                calls = [several.deposit(account="ada", amount=10, idempotency_key="a") for _ in range(20)]
                return await asyncio.gather(*calls)

        assert asyncio.run(again()) == [first] * 20
        # Calls within the program, where nobody has a name, repeat the answer for the same key.
        assert mill.call("deposit", account="ada", amount=10, idempotency_key="a") == first


def test_a_call_under_way_is_answered_to_all_who_make_it():
    app, _ = bank()
    with app.start() as mill, mill.serve() as server:

        async def calls():
            async with tm.connect(server.url) as client:
                keys = [f"key {k % 10}" for k in range(300)]
                return await asyncio.gather(*[client.deposit(account="ada", amount=2, idempotency_key=k) for k in keys])

        replies = asyncio.run(calls())
        assert sorted({reply["balance"] for reply in replies}) == list(range(2, 21 + 1, 2))
        for k in range(10):
            assert len({reply["balance"] for reply in replies[k::10]}) == 1


def test_clients_of_postgres_retry():
    psycopg = pytest.importorskip("psycopg")
    app, _ = bank()
    with app.start() as mill, mill.serve() as server, psycopg.connect(server.postgres_url, autocommit=True) as db:
        ask = "select balance from deposit(%s, %s, idempotency_key => %s)"
        assert db.execute(ask, ("ada", 10, "a")).fetchone() == (10,)
        assert db.execute(ask, ("ada", 10, "a")).fetchone() == (10,)
        assert db.execute(ask, ("ada", 10, None)).fetchone() == (20,)
        assert db.execute("select balance from deposit('ada', 10, 'a')").fetchone() == (10,)
        with pytest.raises(psycopg.Error, match="a key of 0 bytes"):
            db.execute(ask, ("ada", 10, ""))
        assert db.execute("call deposit('ada', 10)").fetchone() == ("ada", 30)
        with pytest.raises(psycopg.Error, match="had other arguments") as refused:
            db.execute(ask, ("ada", 11, "a"))
        assert refused.value.sqlstate == "22023"
        for _ in range(2):
            with pytest.raises(psycopg.errors.RaiseException, match="amount must be positive"):
                db.execute(ask, ("ada", 0, "zero"))
        assert mill.call("deposit", account="ada", amount=10, idempotency_key="a")["balance"] == 10
        key = uuid.UUID(int=7)
        for given in (key, str(key)):
            assert db.execute(ask, ("ada", 2, given)).fetchone() == (32,)


def test_users_have_keys_of_their_own(tmp_path):
    users = tmp_path / "users.json"
    tokens = {}
    for name in ("ada", "bob"):
        add = [sys.executable, "-m", "tidemill", "user", "add", str(users), name, "--call", "deposit"]
        tokens[name] = subprocess.run(add, capture_output=True, text=True, check=True).stdout.split()[-1]
    app, _ = bank()
    with app.start() as mill, mill.serve(users=users) as server:
        for k, name in enumerate(("ada", "bob", "ada")):
            with tm.connect(server.url, token=tokens[name]) as client:
                reply = client.deposit(account="shared", amount=10, idempotency_key="a")
                assert reply["balance"] == (10, 20, 10)[k]


def test_nothing_runs_twice_when_clients_retry_after_kills(tmp_path):
    """Clients make each call until it is answered; the server is killed under them, again and again."""
    count, lives = 8, 4
    done, next_call = {}, [0]
    lock, ends = threading.Lock(), threading.Event()
    place = {}
    deadline = time.monotonic() + 180

    def client():
        while not ends.is_set():
            with lock:
                number = next_call[0]
                next_call[0] += 1
            while number not in done and time.monotonic() < deadline:
                try:
                    with tm.connect(place["url"], timeout=5) as client:
                        reply = client.deposit(account=f"account {number % 7}", amount=2, idempotency_key=f"{number}")
                        done[number] = reply
                except tm.RunError:
                    time.sleep(0.05)

    threads = [threading.Thread(target=client) for _ in range(count)]
    for life in range(lives):
        with command(tmp_path, "--no-postgres", "--state", "state", program=REMEMBERING) as (process, url):
            place["url"] = url
            before = len(done)
            if life == 0:
                [thread.start() for thread in threads]
            until(lambda before=before: len(done) > before + 15)
            if life + 1 == lives:
                ends.set()
                [thread.join() for thread in threads]
                assert sorted(done) == list(range(next_call[0]))
                with tm.connect(url) as last:
                    for number, reply in done.items():
                        name = f"account {number % 7}"
                        assert last.deposit(account=name, amount=2, idempotency_key=f"{number}") == reply
                    for k in range(7):
                        calls = [number for number in done if number % 7 == k]
                        row = last.row("accounts", f"account {k}")
                        assert (row or {"balance": 0})["balance"] == 2 * len(calls)
                        balances = sorted(done[number]["balance"] for number in calls)
                        assert balances == list(range(2, 2 * len(calls) + 1, 2))
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0
            else:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
    assert len(done) > 50
