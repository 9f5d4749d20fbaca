"""Calls, reads and pushes over HTTP, from clients of every kind, through crashes and to the end."""

import asyncio
import dataclasses
import datetime
import decimal
import http.client
import io
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from server_process import WAIT_SECONDS, least, until

import tidemill as tm
from tidemill.serving import Limits

BANK = """
import tidemill as tm

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0

class Deposit(tm.Event):
    account: str
    amount: int

class Note(tm.Event):
    text: str

app = tm.App("bank")
accounts = app.table(Account)
deposits = app.requests(Deposit)
notes = app.requests(Note)

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True)):
    tm.require(ev.amount > 0, "amount must be positive")
    a.balance += ev.amount
    return {"account": a.id, "balance": a.balance}

@app.transaction(notes)
def note(ev, a=accounts.row("text", create=True)):
    a.balance += 1
"""

ITEMS = """
import tidemill as tm

class Item(tm.Row):
    number: int = tm.key()
    text: str = ""

class Put(tm.Event):
    number: int
    text: str

app = tm.App("items")
items = app.table(Item)
puts = app.source(Put)

@app.transaction(puts)
def put(ev, item=items.row("number", create=True)):
    item.text = ev.text
"""


@pytest.fixture
def app(module):
    return module(BANK, prelude="").app


@contextmanager
def served(app, **options):
    with app.start(workers=1, **options) as mill, mill.serve() as server:
        yield mill, server


def ask(url, path, body=None, method=None, headers=None):
    """The status, the headers and the text of a response."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def call(url, name, **fields):
    status, _, text = ask(url, f"/call/{name}", json.dumps(fields))
    return status, json.loads(text)


def test_a_call_commits_or_aborts(app):
    with app.start(workers=1) as mill:
        reply = mill.call("deposit", account="ada", amount=10)
        assert (reply.value, reply["balance"]) == ({"account": "ada", "balance": 10}, 10)
        with pytest.raises(tm.Aborted, match="^amount must be positive$") as caught:
            mill.call(app.transactions["deposit"], {"account": "ada", "amount": -1})
        assert caught.value.seen == {"a.balance": 10} or "a.balance" in caught.value.seen or caught.value.seen == {}
        assert caught.value.epoch >= reply.epoch
        assert mill.call("note", text="ada").value is None
        results = mill.call_all("deposit", [{"account": "bob", "amount": n} for n in (1, 0, 2)])
        assert [getattr(r, "value", None) for r in results] == [
            {"account": "bob", "balance": 1},
            None,
            {"account": "bob", "balance": 3},
        ]
        assert isinstance(results[1], tm.Aborted)
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 11}, {"id": "bob", "balance": 3}]


def test_what_cannot_be_called_is_said_at_once(app):
    @app.transaction(app.sources["notes"])
    def also(ev):
        return {"text": ev.text}

    with app.start(workers=1) as mill:
        with pytest.raises(tm.PlanError, match="there is no procedure 'withdraw'; procedures: deposit"):
            mill.call("withdraw", account="ada")
        with pytest.raises(tm.PlanError, match="'notes' reaches several transactions: note, also"):
            mill.call("note", text="x")
        with pytest.raises(tm.SchemaError, match="amount"):
            mill.call("deposit", account="ada", amount="many")


def test_the_time_of_a_call_comes_from_another_source(module):
    with pytest.raises(tm.PlanError, match="its events get the time of their position, but no source brings times"):
        module(
            """
            import tidemill as tm
            class Timed(tm.Event):
                at: int = tm.event_time()
            app = tm.App("x")
            timed = app.requests(Timed)
            app.sink(timed, tm.jsonl("x.jsonl"))
            app.check()
        """,
            prelude="",
        )


def test_calls_are_awaited(app):
    async def main():
        async with app.start(workers=1) as mill:
            calls = [mill.call("deposit", account="ada", amount=1) for _ in range(20)]
            replies = await asyncio.gather(*calls)
            return sorted(reply["balance"] for reply in replies)

    assert asyncio.run(main()) == list(range(1, 21))


def test_calls_over_http(app):
    with served(app) as (_, server):
        status, body = call(server.url, "deposit", account="ada", amount=10)
        assert (status, body["committed"]) == (200, {"account": "ada", "balance": 10})
        status, body = call(server.url, "deposit", account="ada", amount=0)
        assert (status, body["aborted"]) == (409, "amount must be positive")
        assert set(body) == {"aborted", "seen", "epoch"}
        status, body = call(server.url, "note", text="ada")
        assert (status, body["committed"]) == (200, None)


@pytest.mark.parametrize(
    ("body", "status", "field", "error"),
    [
        ('{"account": "ada", "amount": "ten"}', 422, "amount", "wrong type"),
        ('{"account": 7, "amount": 1}', 422, "account", "wrong type"),
        ('{"account": "ada"}', 422, "amount", "a value is missing"),
        ('{"account": "ada", "amount": null}', 422, "amount", "a value is missing"),
        ('{"account": "ada", "amount": 1, "more": 2}', 422, "more", "there is no such field"),
        ('{"account": "ada", "amount": 9223372036854775808}', 422, "amount", ""),
        ("nonsense", 400, None, "not valid JSON"),
        ("[1]", 400, None, "expected an object"),
        ("", 400, None, "there is nothing"),
        (b"\xff\xfe", 400, None, "not valid UTF-8"),
        ('{"account": "ada", "amount": 1} {}', 400, None, "not valid JSON"),
    ],
)
def test_malformed_calls_are_refused_by_field_and_never_run(app, body, status, field, error):
    with served(app) as (mill, server):
        got, _, text = ask(server.url, "/call/deposit", body)
        answer = json.loads(text)
        assert (got, answer.get("field")) == (status, field), answer
        assert error in answer["error"]
        assert len(mill.table("accounts")) == 0


def test_what_is_too_large_unknown_or_asked_wrongly(app):
    with app.start(workers=1) as mill, mill.serve(body_bytes_max=1000) as server:
        assert ask(server.url, "/call/deposit", "x" * 1001)[0] == 413
        status, body = call(server.url, "withdraw", account="ada")
        assert (status, body["error"]) == (404, "there is no procedure 'withdraw'; procedures: deposit, note")
        status, headers, _ = ask(server.url, "/call/deposit")
        assert (status, headers["Allow"]) == (405, "POST")
        assert ask(server.url, "/tables/accounts", method="DELETE")[0] == 405
        assert ask(server.url, "/nothing")[0] == 404
        assert ask(server.url, "/%ff")[0] == 400
        status, _, text = ask(server.url, "/tables/rows")
        assert (status, json.loads(text)["error"]) == (404, "there is no table 'rows'; tables: accounts")
        status, _, text = ask(server.url, "/tables/accounts/a/b")
        assert status == 400 and "/tables/accounts/id" in json.loads(text)["error"]


def test_tables(app):
    pa = pytest.importorskip("pyarrow")
    with served(app) as (_, server):
        epochs = [call(server.url, "deposit", account=name, amount=5)[1]["epoch"] for name in ("bob", "a/ä b")]
        status, headers, text = ask(server.url, "/tables/accounts/bob")
        assert (status, json.loads(text)) == (200, {"id": "bob", "balance": 5})
        assert int(headers["Tidemill-Epoch"].partition("@")[0]) >= epochs[0]
        assert json.loads(ask(server.url, "/tables/accounts/a%2F%C3%A4%20b")[2])["balance"] == 5
        status, _, text = ask(server.url, "/tables/accounts/nobody")
        assert (status, json.loads(text)["error"]) == (404, "table 'accounts' has no row of this key")
        status, headers, text = ask(server.url, "/tables/accounts")
        assert headers["Content-Type"] == "application/x-ndjson"
        assert [json.loads(line)["id"] for line in text.splitlines()] == ["a/ä b", "bob"]
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        status, headers, text = ask(server.url, "/tables/accounts", headers=accept)
        assert (status, headers["Content-Type"]) == (200, accept["Accept"])
        assert pa.ipc.open_stream(io.BytesIO(text)).read_all().to_pylist()[1] == {"id": "bob", "balance": 5}


def events_of(response, count):
    """Reads server-sent events until there are enough, comments aside."""
    events, current = [], {}
    while len(events) < count:
        line = response.readline().decode().rstrip("\n")
        if line == "" and current:
            events.append(current)
            current = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            current[name] = value
    return events


def test_streams_are_read_as_they_are_released(app):
    with served(app) as (_, server):
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        connection.request("GET", "/streams/deposit.committed")
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "text/event-stream"
        epochs = [call(server.url, "deposit", account="ada", amount=n)[1]["epoch"] for n in (1, 2)]
        events = events_of(response, 2)
        assert [json.loads(event["data"])["balance"] for event in events] == [1, 3]
        assert [event["id"].partition("@")[0] for event in events] == [f"{epoch}.1" for epoch in epochs]
        connection.close()
        status, _, text = ask(server.url, "/streams/nothing")
        assert status == 404 and "deposit.aborted" in json.loads(text)["error"]


def test_a_reader_that_was_cut_off_goes_on(app):
    with served(app, keep={"deposit.committed": 10}) as (_, server):
        epochs = [call(server.url, "deposit", account="ada", amount=1)[1]["epoch"] for _ in range(3)]
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        history = ask(server.url, "/tables/accounts/ada")[1]["Tidemill-Epoch"].partition("@")[2]
        connection.request("GET", "/streams/deposit.committed", headers={"Last-Event-ID": f"{epochs[0]}.1@{history}"})
        events = events_of(connection.getresponse(), 2)
        assert [json.loads(event["data"])["balance"] for event in events] == [2, 3]
        connection.close()
        status, _, text = ask(server.url, "/streams/deposit.aborted", headers={"Last-Event-ID": "1.1"})
        assert status == 410 and "without Last-Event-ID" in json.loads(text)["error"]
        assert ask(server.url, "/streams/deposit.committed", headers={"Last-Event-ID": "x"})[0] == 400


def test_events_are_pushed_together_or_not_at_all(app):
    with served(app) as (mill, server):
        lines = "\n".join(json.dumps({"account": "ada", "amount": n}) for n in (1, 2, 3))
        status, _, text = ask(server.url, "/stream/deposits", lines)
        assert (status, json.loads(text)["events"]) == (200, 3)
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 6}]
        status, _, text = ask(server.url, "/stream/deposits", lines + '\n{"account": 1}')
        answer = json.loads(text)
        assert (status, answer["line"], answer["field"]) == (422, 4, "account")
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 6}]
        status, _, text = ask(server.url, "/stream/nothing", lines)
        assert status == 404 and "sources: deposits, notes" in json.loads(text)["error"]


def test_metrics_health_and_the_index(app):
    with served(app) as (_, server):
        for amount in (1, 2, 0):
            call(server.url, "deposit", account="ada", amount=amount)
        text = ask(server.url, "/metrics")[2].decode()
        assert 'tidemill_transactions_total{transaction="deposit",outcome="committed"} 2\n' in text
        assert 'tidemill_aborts_total{transaction="deposit",reason="amount must be positive"} 1\n' in text
        assert "tidemill_calls_total 3\n" in text
        assert "tidemill_calls_in_flight 0\n" in text
        *lines, end = text.splitlines()
        assert end == "# EOF"
        for line in lines:
            assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [\d.e+-]+', line), line
        assert json.loads(ask(server.url, "/health")[2]) == {"status": "ok"}
        index = json.loads(ask(server.url, "/")[2])
        assert index["POST /call/NAME"]["deposit"] == {"account": "str", "amount": "int"}
        assert index["GET /tables/NAME[/KEY]"] == {"accounts": {"id": "str", "balance": "int"}}
        assert "deposit.committed" in index["GET /streams/NAME"]


def test_pages_from_elsewhere_are_refused(app):
    with served(app) as (mill, server):
        body = json.dumps({"account": "ada", "amount": 1})
        for headers in [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]:
            assert ask(server.url, "/call/deposit", body, headers=headers)[0] == 403
        assert ask(server.url, "/call/deposit", body, headers={"Origin": server.url})[0] == 200
        assert len(mill.table("accounts")) == 1


def test_other_addresses_need_a_word(app):
    with app.start(workers=1) as mill:
        with pytest.raises(tm.RunError, match="does not ask who they are.*--insecure"):
            mill.serve("0.0.0.0")
        with pytest.raises(tm.RunError, match="'nowhere' is not an address"):
            mill.serve("nowhere")
        with mill.serve() as server, pytest.raises(tm.RunError, match="cannot serve on .*; give another --port"):
            mill.serve(port=urlsplit(server.url).port)
        with mill.serve("0.0.0.0", insecure=True) as server:
            port = urlsplit(server.url).port
            assert call(f"http://127.0.0.1:{port}", "deposit", account="ada", amount=1)[0] == 200


def test_many_calls_at_once_are_one_after_the_other(app):
    with served(app) as (_, server), tm.connect(server.url) as client:
        balances = []

        def make():
            balances.extend(client.deposit(account="ada", amount=1)["balance"] for _ in range(50))

        threads = [threading.Thread(target=make) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(balances) == list(range(1, 401))


def test_a_client_says_what_is_wrong(app):
    with served(app) as (_, server), tm.connect(server.url) as client:
        assert client.deposit(account="ada", amount=3).value == {"account": "ada", "balance": 3}
        assert client.row("accounts", "ada") == {"id": "ada", "balance": 3}
        assert client.row("accounts", "bob") is None
        with pytest.raises(tm.Aborted, match="amount must be positive"):
            client.deposit(account="ada", amount=0)
        with pytest.raises(tm.SchemaError, match="field 'amount': a value is missing"):
            client.deposit(account="ada")
        with pytest.raises(tm.PlanError, match="there is no procedure 'withdraw'"):
            client.withdraw(account="ada")
    with pytest.raises(tm.RunError, match="no answer from"):
        client.deposit(account="ada", amount=1)


def hold(app, after=lambda: None):
    """Adds a sink that holds each epoch until the event is set that this returns. ``after`` is what it does then.

    Replies do not wait for sinks until 256 epochs wait behind the one that the sink holds.
    """
    held = threading.Event()

    def wait(batch):
        # A test that fails before it sets the event ends all the same.
        held.wait(2 * WAIT_SECONDS)
        after()

    app.sink(app.transactions["deposit"].committed, wait)
    return held


@contextmanager
def full(app, after=lambda: None):
    """Serves with all four places for calls taken; gives the server, and what ends that and gives the replies.

    ``after`` is what the sink does then that holds them.
    """
    held = hold(app, after)
    with app.start(workers=1) as mill, mill.serve(calls_max=4) as server:
        replies = []

        def make():
            replies.append(call(server.url, "deposit", account="ada", amount=1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for _ in range(257):
            mill.call("deposit", account="ada", amount=1)
        [thread.start() for thread in threads]
        until(lambda: b"tidemill_calls_in_flight 4\n" in ask(server.url, "/metrics")[2])

        def end():
            held.set()
            [thread.join() for thread in threads]
            return replies

        yield server, end


def test_too_many_calls_are_refused_at_once(app):
    with full(app) as (server, end):
        status, headers, text = ask(server.url, "/call/deposit", '{"account": "ada", "amount": 1}')
        assert (status, headers["Retry-After"]) == (503, "1"), text
        assert json.loads(text) == {"error": "4 calls wait for their replies; try again", "retry_after": 1}
        assert [status for status, _ in end()] == [200] * 4


def test_slow_and_vanished_clients_harm_nobody(app):
    with served(app) as (_, server):
        place = urlsplit(server.url)
        address = (place.hostname, place.port)
        # One reads a stream and never looks; one stops within a head, one within a body; some call and go.
        silent = socket.create_connection(address)
        silent.sendall(b"GET /streams/deposit.committed HTTP/1.1\r\nHost: localhost\r\n\r\n")
        halves = [b"POST /call/dep", b"POST /call/deposit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"]
        held = [socket.create_connection(address) for _ in halves]
        [one.sendall(half) for one, half in zip(held, halves, strict=True)]
        for _ in range(20):
            body = b'{"account": "gone", "amount": 1}'
            head = f"POST /call/deposit HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            with socket.create_connection(address) as gone:
                gone.sendall(head.encode() + body)
        for n in range(1, 201):
            assert call(server.url, "deposit", account="ada", amount=1)[1]["committed"]["balance"] == n
        assert b"tidemill_calls_in_flight 0\n" in ask(server.url, "/metrics")[2]
        [one.close() for one in [silent, *held]]


# The command, in a process of its own.


@contextmanager
def started(folder, *options, program=BANK, port=0):
    """The process, and the line that says where it listens."""
    (folder / "bank.py").write_text(program, encoding="utf-8")
    arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--port", str(port), "--workers", "1", *options]
    process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = line = ""
        while "serving" not in line:
            line = process.stderr.readline()
            said += line
            assert line, said
        yield process, line
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def command(folder, *options, program=BANK, port=0):
    """The process, and its address."""
    with started(folder, *options, program=program, port=port) as (process, line):
        yield process, re.search(r"http://\S+", line)[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_answers_what_is_under_way_and_ends(tmp_path, number):
    with command(tmp_path, "--state", "state") as (process, url), tm.connect(url) as client:
        answered, over = [], []

        def make():
            try:
                while True:
                    answered.append(client.deposit(account="ada", amount=1)["balance"])
            except tm.RunError as error:
                over.append(error)

        threads = [threading.Thread(target=make) for _ in range(4)]
        [thread.start() for thread in threads]
        while len(answered) < 20:
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        [thread.join() for thread in threads]
        assert process.returncode == 0, said
        assert len(over) == 4
    with command(tmp_path, "--state", "state") as (_, url):
        balance = json.loads(ask(url, "/tables/accounts/ada")[2])["balance"]
        # A call whose connection was closed before the reply was read is the only one that may be unknown.
        assert len(answered) <= balance <= len(answered) + 4
        assert sorted(answered) == sorted(set(answered))


def test_open_connections_are_told_of_the_end(app):
    """None is cut off while it asks: the last answer on it says that it closes."""
    ends, asking = [], threading.Barrier(9)

    def ask_on(place):
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        try:
            for turn in range(1_000_000):
                connection.request("POST", "/call/deposit", b'{"account": "ada", "amount": 1}')
                response = connection.getresponse()
                text = response.read()
                if turn == 10:
                    asking.wait()
                if response.status != 200 or response.will_close:
                    ends.append((response.status, response.headers["Connection"], text))
                    return
                time.sleep(0.005)
        except Exception as error:
            ends.append(error)
        finally:
            connection.close()

    with app.start(workers=1) as mill:
        server = mill.serve()
        threads = [threading.Thread(target=ask_on, args=(urlsplit(server.url),)) for _ in range(8)]
        [thread.start() for thread in threads]
        asking.wait()
        server.stop()
        [thread.join() for thread in threads]
    assert len(ends) == 8
    for status, connection, text in ends:
        assert connection == "close" and (status == 200 or (status == 503 and b"about to end" in text)), (status, text)


def kill_amid(process, work, done, count):
    """Kills a server while four threads ``work``, each by its number, once so many more are ``done``."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    before = len(done)
    [thread.start() for thread in threads]
    while len(done) < before + count:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    [thread.join() for thread in threads]


def test_each_answered_call_is_there_once_after_a_kill(tmp_path):
    answered = []
    for life in range(3):
        with command(tmp_path, "--state", "state") as (process, url), tm.connect(url) as client:

            def make(number, life=life, client=client):
                try:
                    for n in range(10_000):
                        name = f"{life}.{number}.{n}"
                        assert client.deposit(account=name, amount=1)["balance"] == 1
                        answered.append(name)
                except tm.RunError:
                    pass

            kill_amid(process, make, answered, 30)
    with command(tmp_path, "--state", "state") as (_, url):
        rows = [json.loads(line) for line in ask(url, "/tables/accounts")[2].splitlines()]
        balances = {row["id"]: row["balance"] for row in rows}
        assert all(balances.get(name) == 1 for name in answered)
        assert len(answered) <= len(balances) <= len(answered) + 12
        assert set(balances.values()) == {1}


def test_each_line_of_an_acknowledged_push_is_there_once_after_a_kill(tmp_path):
    made, acknowledged = [], []
    for life in range(2):
        with command(tmp_path, "--state", "state", program=PUSHED) as (process, url), tm.connect(url) as client:

            def push(number, life=life, client=client):
                try:
                    for n in range(10_000):
                        lines = [f"{life}.{number}.{n}.{line}" for line in range(3)]
                        made.extend(lines)
                        client.push("votes", [{"choice": line} for line in lines])
                        acknowledged.extend(lines)
                except tm.RunError:
                    pass

            kill_amid(process, push, acknowledged, 90)
    with command(tmp_path, "--state", "state", program=PUSHED) as (_, url):
        rows = [json.loads(line) for line in ask(url, "/tables/choices")[2].splitlines()]
    assert {row["votes"] for row in rows} == {1}
    assert set(acknowledged) <= {row["name"] for row in rows} <= set(made)


FIRST = BANK.replace("app.requests(Deposit)", 'app.requests(Deposit, remember="1h")')
# A column more, and a procedure that does more.
SECOND = (
    FIRST.replace('tm.App("bank")', 'tm.App("bank", version=2)')
    .replace("    balance: int = 0\n", "    balance: int = 0\n    deposits: int = 0\n", 1)
    .replace("    a.balance += ev.amount\n", "    a.balance += ev.amount\n    a.deposits += 1\n", 1)
)


def test_a_newer_program_is_deployed_under_load(tmp_path):
    """Clients make each call again with its key until it is answered: each is there once, whichever program ran it."""
    place, is_over = {}, threading.Event()
    answered = [[] for _ in range(4)]

    def make(number):
        for n in range(100_000):
            if is_over.is_set():
                return
            # The key is the call's own; the account is shared, so that a call that runs twice is seen.
            while True:
                try:
                    with tm.connect(place["url"], timeout=20) as client:
                        reply = client.deposit(account=f"a{number}", amount=1, idempotency_key=f"{number}.{n}")
                    break
                except tm.RunError:
                    time.sleep(0.01)
            answered[number].append(reply["balance"])

    def wait_for_more():
        before = [len(of) for of in answered]
        while any(len(of) < count + 15 for of, count in zip(answered, before, strict=True)):
            time.sleep(0.005)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    with command(tmp_path, "--state", "state", program=FIRST) as (process, place["url"]):
        [thread.start() for thread in threads]
        wait_for_more()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said
    by_first = [len(of) for of in answered]
    with command(tmp_path, "--state", "state", program=SECOND) as (_, place["url"]):
        wait_for_more()
        is_over.set()
        [thread.join() for thread in threads]
        rows = [json.loads(line) for line in ask(place["url"], "/tables/accounts")[2].splitlines()]
        assert [row["balance"] for row in rows] == [len(of) for of in answered]
        # Each reply was that of its own call.
        assert all(of == list(range(1, len(of) + 1)) for of in answered)
        # The new procedure counts those that it ran: all but those that the first had run, answered or not.
        for row, count in zip(rows, by_first, strict=True):
            assert 0 < row["deposits"] and row["balance"] - row["deposits"] in (count, count + 1), (row, count)


ROOMS = """
import tidemill as tm

class Room(tm.Row):
    id: int = tm.key()
    taken: int = 0

class Take(tm.Event):
    at: int = tm.event_time()
    room: int

app = tm.App("rooms")
rooms = app.table(Room)
takes = app.source(Take)

@app.transaction(takes)
def take(ev, r=rooms.row("room", create=True)):
    tm.require(ev.room > 0, "no such room")
    r.taken += 1

@app.window(takes, by="room", over=tm.tumbling(10))
def busy(w):
    return {"room": w.room, "count": w.count()}
"""


@pytest.mark.parametrize("way", ["server-sent events", "LISTEN", "client"])
def test_what_is_late_aborted_and_closed_is_followed(module, way):
    names = ("takes.late", "take.aborted", "busy.closed")
    with served(module(ROOMS, prelude="").app) as (mill, server), ExitStack() as opened:
        if way == "LISTEN":
            psycopg = pytest.importorskip("psycopg")
            db = opened.enter_context(psycopg.connect(server.postgres_url, autocommit=True))
            for name in names:
                db.execute(f'LISTEN "{name}"')
        elif way == "client":
            client = opened.enter_context(tm.connect(server.url))
            followed = {name: opened.enter_context(client.follow(name)) for name in names}
        else:
            place, followed = urlsplit(server.url), {}
            for name in names:
                connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
                opened.callback(connection.close)
                connection.request("GET", f"/streams/{name}")
                followed[name] = connection.getresponse()
        with tm.connect(server.url) as pushing:
            pushing.push("takes", [{"at": 1, "room": 7}, {"at": 2, "room": 7}, {"at": 3, "room": 0}])
            pushing.push("takes", [{"at": 25, "room": 7}])
            pushing.push("takes", [{"at": 4, "room": 7}])
        if way == "LISTEN":
            said = list(db.notifies(timeout=20, stop_after=4))
            found = {name: [json.loads(one.payload) for one in said if one.channel == name] for name in names}
        elif way == "client":
            wanted = {"takes.late": 1, "take.aborted": 1, "busy.closed": 2}
            found = {name: [next(followed[name]).value for _ in range(count)] for name, count in wanted.items()}
        else:
            wanted = {"takes.late": 1, "take.aborted": 1, "busy.closed": 2}
            events = {name: events_of(followed[name], count) for name, count in wanted.items()}
            found = {name: [json.loads(event["data"]) for event in of] for name, of in events.items()}
        assert [(event["at"], event["room"]) for event in found["takes.late"]] == [(4, 7)]
        assert [(event["at"], event["reason"]) for event in found["take.aborted"]] == [(3, "no such room")]
        counts = [(event["room"], event["count"]) for event in found["busy.closed"]]
        assert sorted(counts) == [(0, 1), (7, 2)]


def test_the_command_refuses_other_addresses(tmp_path):
    (tmp_path / "bank.py").write_text(BANK, encoding="utf-8")
    arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--host", "0.0.0.0", "--port", "0"]
    ran = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "0.0.0.0 is reachable from other machines" in ran.stderr
    assert "--insecure" in ran.stderr


def test_an_application_serves_itself(tmp_path):
    (tmp_path / "bank.py").write_text(BANK + "\nsummary = app.serve(port=0)\nprint(summary.events)\n", "utf-8")
    process = subprocess.Popen(
        [sys.executable, "bank.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        url = re.search(r"serving bank on (http://\S+)", process.stderr.readline())[1]
        assert call(url, "deposit", account="ada", amount=10)[0] == 200
        process.send_signal(signal.SIGTERM)
        printed, said = process.communicate(timeout=30)
        assert (process.returncode, printed) == (0, "1\n"), said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(tmp_path):
    with command(tmp_path) as (_, url):

        def curl(*arguments):
            return subprocess.run(
                ["curl", "-s", *arguments], capture_output=True, text=True, timeout=20, check=True, env={**os.environ}
            ).stdout

        reply = json.loads(curl("-d", '{"account": "ada", "amount": 10}', f"{url}/call/deposit"))
        assert reply["committed"] == {"account": "ada", "balance": 10}
        assert json.loads(curl(f"{url}/tables/accounts/ada")) == {"id": "ada", "balance": 10}


def test_a_client_pushes(module):
    app = module(PUSHED, prelude="").app
    with served(app) as (mill, server), tm.connect(server.url) as client:
        epoch = client.push("votes", [{"choice": "tea"}, {"choice": "milk"}, {"choice": "tea"}])
        assert mill.table("choices").epoch >= epoch
        assert client.row("choices", "tea") == {"name": "tea", "votes": 2}
        with pytest.raises(tm.SchemaError, match="line 2, field 'choice': "):
            client.push("votes", [{"choice": "tea"}, {"choice": 7}])
        assert client.row("choices", "tea") == {"name": "tea", "votes": 2}
        with pytest.raises(tm.PlanError, match="no source 'nothing'|sources: votes"):
            client.push("nothing", [])


def test_a_client_pushes_arrow(module):
    app = module(PUSHED, prelude="").app
    pa = pytest.importorskip("pyarrow")
    with served(app) as (mill, server), tm.connect(server.url) as client:
        epoch = client.push("votes", pa.table({"choice": ["tea", "milk", "tea"]}))
        assert mill.table("choices").epoch >= epoch
        assert client.row("choices", "tea") == {"name": "tea", "votes": 2}
        # Dictionaries and views, a batch, and one without rows.
        client.push("votes", pa.table({"choice": pa.array(["tea", "tea"]).dictionary_encode()}))
        client.push("votes", pa.record_batch({"choice": pa.array(["tea"], pa.string_view())}))
        client.push("votes", pa.table({"choice": pa.array([], pa.string())}))
        assert client.row("choices", "tea") == {"name": "tea", "votes": 5}
        for wrong, says in (
            ({"choice": [1]}, "field 'choice'"),
            ({"choice": ["tea", None]}, "line 2, field 'choice': a value is missing"),
            ({"choice": ["tea"], "colour": ["red"]}, "field 'colour': the event has no such field"),
            ({"colour": ["red"]}, "field 'colour'"),
        ):
            with pytest.raises(tm.SchemaError, match=says):
                client.push("votes", pa.table(wrong))
        for wrong in ("tea", {"choice": "tea"}, 7):
            with pytest.raises(tm.SchemaError, match="source 'votes': a .* is no events"):
                client.push("votes", wrong)
        assert client.row("choices", "tea") == {"name": "tea", "votes": 5}

    async def asynchronously(url):
        async with tm.connect(url) as client:
            await client.push("votes", pa.table({"choice": ["water"]}))
            assert await client.row("choices", "water") == {"name": "water", "votes": 1}

    with served(module(PUSHED, prelude="").app) as (_, server):
        asyncio.run(asynchronously(server.url))


ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def test_what_is_no_arrow_stream_is_refused(module):
    pa = pytest.importorskip("pyarrow")
    out = io.BytesIO()
    events = pa.table({"choice": ["tea", "milk"]})
    with pa.ipc.new_stream(out, events.schema) as writer:
        writer.write_table(events)
    stream = out.getvalue()
    with served(module(PUSHED, prelude="").app) as (mill, server):
        assert ask(server.url, "/stream/votes", stream, headers=ARROW)[0] == 200
        for wrong in (b"", b'{"choice": "tea"}', stream[:100], stream[100:], b"\xff" * 64):
            status, _, text = ask(server.url, "/stream/votes", wrong, headers=ARROW)
            assert status == 400 and "not an Arrow stream" in json.loads(text)["error"], (wrong, text)
        # As lines it is nothing, either.
        assert ask(server.url, "/stream/votes", stream)[0] == 400
        assert ask(server.url, "/health")[0] == 200


PUSHED = """
import tidemill as tm

class Choice(tm.Row):
    name: str = tm.key()
    votes: int = 0

class Vote(tm.Event):
    choice: str

app = tm.App("votes")
choices = app.table(Choice)
votes = app.source(Vote)

@app.transaction(votes)
def vote(ev, c=choices.row("choice", create=True)):
    c.votes += 1
    return {"choice": c.name, "votes": c.votes}
"""


def test_a_client_follows_and_goes_on(module):
    app = module(PUSHED, prelude="").app
    with served(app, keep={"vote.committed": 1000}) as (_, server), tm.connect(server.url) as client:
        with client.follow("vote.committed") as events:
            client.push("votes", [{"choice": "tea"} for _ in range(5)])
            seen = [next(events) for _ in range(3)]
            assert [event["votes"] for event in seen] == [1, 2, 3]
            assert events.position == seen[-1].position
        client.push("votes", [{"choice": "tea"}])
        with client.follow("vote.committed", after=seen[-1].position) as events:
            assert [next(events)["votes"] for _ in range(3)] == [4, 5, 6]
        with pytest.raises(tm.PlanError, match="no stream 'nothing'"):
            client.follow("nothing")
    assert list(events) == []


def test_a_client_is_told_what_is_gone(module):
    app = module(PUSHED, prelude="").app
    with served(app, keep={"vote.committed": 3}) as (_, server), tm.connect(server.url) as client:
        for _ in range(10):
            client.push("votes", [{"choice": "tea"}])
        with pytest.raises(tm.GoneError) as gone:
            client.follow("vote.committed", after="0.0")
        with client.follow("vote.committed", after=gone.value.kept) as events:
            assert [next(events)["votes"] for _ in range(3)] == [8, 9, 10]


def test_the_events_of_a_stream_are_put_together_from_any_parts():
    from tidemill.declared import Types
    from tidemill.exchange import Events

    whole = b':\n\nid: 1.1\ndata: {"n":1}\n\nevent: missed\ndata: {"events":7}\n\n:\r\n\r\nid: 2.1\ndata: {"n":2}\n\n'
    for size in range(1, len(whole)):
        events, seen = Events("s", Types({})), []
        for start in range(0, len(whole), size):
            events.feed(whole[start : start + size])
            while True:
                try:
                    if (event := events.next()) is None:
                        break
                    seen.append((event.position, event["n"]))
                except tm.MissedError as missed:
                    seen.append(missed.events)
        assert seen == [("1.1", 1), 7, ("2.1", 2)], size


def test_an_asynchronous_client(app):
    async def main(url):
        async with tm.connect(url) as client:
            events = await client.follow("deposit.committed")
            replies = await asyncio.gather(*(client.deposit(account="ada", amount=1) for _ in range(300)))
            assert sorted(reply["balance"] for reply in replies) == list(range(1, 301))
            assert await client.row("accounts", "ada") == {"id": "ada", "balance": 300}
            assert await client.row("accounts", "bob") is None
            with pytest.raises(tm.Aborted, match="amount must be positive"):
                await client.deposit(account="ada", amount=0)
            with pytest.raises(tm.SchemaError, match="field 'amount'"):
                await client.deposit(account="ada")
            with pytest.raises(tm.PlanError, match="no procedure 'withdraw'"):
                await client.withdraw(account="ada")
            with pytest.raises(tm.PlanError, match="no stream"):
                await client.follow("nothing")
            seen = [(await anext(events))["balance"] for _ in range(300)]
            assert seen == list(range(1, 301))
            # A call that is given up takes its connection with it.
            waiting = asyncio.ensure_future(client.deposit(account="eve", amount=1))
            await asyncio.sleep(0)
            waiting.cancel()
            assert (await client.deposit(account="bob", amount=2))["balance"] == 2
        with pytest.raises(tm.RunError, match="no answer from"):
            async with tm.connect("http://127.0.0.1:1") as client:
                await client.deposit(account="ada", amount=1)

    with served(app) as (_, server):
        asyncio.run(main(server.url))


def test_an_asynchronous_client_sees_the_end(app):
    async def main(mill, server):
        async with tm.connect(server.url) as client:
            async with await client.follow("deposit.committed") as events:
                await client.deposit(account="ada", amount=1)
                assert (await anext(events))["balance"] == 1
                await asyncio.to_thread(server.stop)
                assert [event async for event in events] == []

    with served(app) as (mill, server):
        asyncio.run(main(mill, server))


def read_beside(url, count):
    """Reads a table while another client reads rows. Returns the times of the head, of the whole and of the rows, and the
    body."""
    place, answered, is_over = urlsplit(url), [], threading.Event()

    def others():
        with tm.connect(url) as client:
            while not is_over.is_set():
                before = time.monotonic()
                client.row("items", 1)
                answered.append(time.monotonic() - before)

    other = threading.Thread(target=others)
    other.start()
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    before = time.monotonic()
    connection.request("GET", "/tables/items")
    response = connection.getresponse()
    begun = time.monotonic() - before
    body = response.read()
    took = time.monotonic() - before
    is_over.set()
    other.join()
    connection.close()
    assert (response.status, response.headers["Transfer-Encoding"]) == (200, "chunked")
    assert response.headers["Tidemill-Rows"] == str(count)
    return begun, took, answered, body


def test_others_are_answered_while_a_table_is_read(module):
    """Rows are written beside the thread of the connections, and sent as they are written."""
    items, count = module(ITEMS, prelude="").app, 400_000
    pa = pytest.importorskip("pyarrow")
    with items.start(workers=1) as mill, mill.serve() as server:
        mill.send("puts", pa.table({"number": range(count), "text": ['"quoted" ' * 20] * count}))
        ask(server.url, "/tables/items?limit=1")  # The table is copied.

        def waited():
            """Returns the part of the time of a read for which its head, or another client, waits."""
            begun, took, answered, body = read_beside(server.url, count)
            numbers = [json.loads(line)["number"] for line in body.splitlines()]
            assert numbers == list(range(count))
            return max(begun, *answered) / took

        # A response that is written as a whole is written before its first byte is sent, while nobody else is answered.
        assert least(waited, 0.5) < 0.5
        _, headers, stream = ask(server.url, "/tables/items", headers={"Accept": ARROW["Content-Type"]})
        assert headers["Transfer-Encoding"] == "chunked"
        assert pa.ipc.open_stream(stream).read_all()["number"].to_pylist() == list(range(count))
        assert ask(server.url, f"/tables/items?offset={count - 10}&limit=50")[2].count(b"\n") == 10
        assert ask(server.url, "/tables/items?limit=0")[2] == b""


def test_limits_have_names(app):
    """Each limit refuses requests over HTTP, and says so."""
    limits = {"readers_max": 1, "asks_max": 0, "queries_max": 0, "queries_waiting_max": 0}
    with app.start(workers=1) as mill, mill.serve(**limits) as server, tm.connect(server.url) as client:
        with client.follow("deposit.committed"):
            assert ask(server.url, "/streams/deposit.committed")[0] == 503
        for path, body in (("/tables/accounts", None), ("/tables/accounts/ada", None), ("/query", "select 1")):
            status, headers, text = ask(server.url, path, body)
            assert (status, headers["Retry-After"]) == (503, "1"), (path, text)
        assert client.deposit(account="ada", amount=1)["balance"] == 1


def test_a_read_of_a_table_has_a_limit_of_its_own(module):
    items = module(ITEMS, prelude="").app
    psycopg = pytest.importorskip("psycopg")
    with items.start(workers=1) as mill, mill.serve(table_rows_max=5, query_rows_max=3) as server:
        mill.send("puts", [{"number": number, "text": "x"} for number in range(6)])
        status, _, text = ask(server.url, "/tables/items")
        assert status == 400 and "6 rows were asked for, and 5 are given" in json.loads(text)["error"]
        assert ask(server.url, "/tables/items?limit=5")[2].count(b"\n") == 5
        assert ask(server.url, "/tables/items?offset=1")[2].count(b"\n") == 5
        assert ask(server.url, "/query", "select * from items where number < 4")[0] == 400
        with psycopg.connect(server.postgres_url, autocommit=True) as db:
            for in_block in (False, True):
                with db.transaction() if in_block else nullcontext():
                    assert len(db.execute("select number from items limit 5").fetchall()) == 5
                with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="6 rows, and 5"):
                    with db.transaction() if in_block else nullcontext():
                        db.execute("select * from items")
            assert db.execute("select text from items where number = 5").fetchall() == [("x",)]


def test_silence_ends_a_connection(app):
    with app.start(workers=1) as mill, mill.serve(silence_seconds_max=0.2) as server:
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), timeout=20) as silent:
            silent.sendall(b"POST /call/deposit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            assert silent.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_the_end_waits_no_longer_than_it_may(app, monkeypatch):
    # If the limit had no effect, the end would take as long as a loaded machine does not.
    monkeypatch.setattr(Limits.__init__, "__defaults__", (*Limits.__init__.__defaults__[:-1], WAIT_SECONDS))
    assert Limits() == dataclasses.replace(Limits(), drain_seconds_max=WAIT_SECONDS)
    with app.start(workers=1) as mill:
        server = mill.serve(drain_seconds_max=0.2)
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), timeout=20) as half:
            half.sendall(b"POST /call/deposit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            time.sleep(0.1)
            before = time.monotonic()
            server.stop()
            assert time.monotonic() - before < WAIT_SECONDS / 2


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"readers": 1}, "there is no limit 'readers'"),
        ({"readers_max": -1}, "readers_max=-1 is not a limit"),
        ({"calls_max": 1.5}, "calls_max=1.5 is not a limit"),
        ({"drain_seconds_max": float("nan")}, "drain_seconds_max=nan is not a limit"),
        ({"asks_max": True}, "asks_max=True is not a limit"),
    ],
)
def test_what_is_no_limit_is_refused(app, limits, says):
    with app.start(workers=1) as mill, pytest.raises(tm.PlanError, match=says):
        mill.serve(**limits)


def test_the_command_has_all_limits(tmp_path):
    names = [field.name for field in dataclasses.fields(Limits)]
    said = subprocess.run([sys.executable, "-m", "tidemill", "serve", "--help"], capture_output=True, text=True).stdout
    here = os.path.dirname(__file__)
    documents = [Path(here, "../../docs", name).read_text("utf-8") for name in ("server.md", "command-line.md")]
    for name in names:
        option = "--" + name.replace("_", "-")
        assert option in said and all(option in text for text in documents), option
    with started(tmp_path, "--readers-max", "0") as (_, line):
        url = re.search(r"http://\S+", line)[0]
        assert ask(url, "/streams/deposit.committed")[0] == 503


KEYED = """

class Entry(tm.Row):
    book: str = tm.key()
    number: int = tm.key()
    at: tm.Time = tm.key()
    price: tm.Decimal(12, 2) = tm.key()
    raw: bytes = tm.key()
    flag: bool = tm.key()
    count: int = 0

class Post(tm.Event):
    book: str
    number: int
    at: tm.Time
    price: tm.Decimal(12, 2)
    raw: bytes
    flag: bool

app = tm.App("books")
entries = app.table(Entry, name="entries")
posts = app.requests(Post)

@app.transaction(posts)
def post(ev, e=entries.row("book", "number", "at", "price", "raw", "flag", create=True)):
    e.count += 1
"""


def test_each_key_is_found_by_each_client(module):
    """A key that a session finds, a client finds: also texts that a path has other uses for."""
    app = module(KEYED, prelude="import tidemill as tm").app
    utc = datetime.timezone.utc
    instants = [
        datetime.datetime(1, 1, 1, tzinfo=utc),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=utc),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=utc),
    ]
    texts = [
        "",
        " ",
        "/",
        "//",
        "a/b",
        ".",
        "..",
        "../accounts",
        "%",
        "%2F",
        "?offset=1",
        "#",
        "+",
        "ä\u0000ö",
        "\r\n",
        "x" * 500,
    ]
    keys = [
        (text, number, instants[place % 3], price, raw, flag)
        for place, (text, number, price, raw, flag) in enumerate(
            zip(
                texts,
                itertools.cycle([0, -1, 2**63 - 1, -(2**63)]),
                itertools.cycle([decimal.Decimal("0.00"), decimal.Decimal("-9999999999.99"), decimal.Decimal("0.10")]),
                itertools.cycle([b"", b"\x00\xff/+", b"a"]),
                itertools.cycle([True, False]),
                strict=False,
            )
        )
    ]
    with app.start() as mill, mill.serve() as server, tm.connect(server.url) as client:
        for key in keys:
            mill.call("post", **dict(zip(["book", "number", "at", "price", "raw", "flag"], key, strict=True)))
        for key in keys:
            assert mill.row("entries", *key)["count"] == 1, key
            found = client.row("entries", *key)
            assert found is not None and found["count"] == 1 and found["book"] == key[0], key
            assert client.row("entries", key[0] + "!", *key[1:]) is None
        for wrong in ["x", "1.5", "", '1,"a":2', "9223372036854775808", "true"]:
            with pytest.raises(tm.RunError, match="key column 'number'"):
                client.row("entries", "a", wrong, *keys[0][2:])


def raw(url, text, more=b"", seconds=20):
    """Returns the bytes that a server answers, up to the end of the connection or of the time."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=seconds) as one:
        one.sendall(text)
        said = b""
        try:
            while got := one.recv(1 << 16):
                said += got
        except TimeoutError:
            pass
        one.sendall(more)
    return said


def head(*lines):
    return "\r\n".join([*lines, "", ""]).encode()


def test_health_says_whether_it_lives_and_is_ready(app):
    with served(app) as (mill, server):
        mill.call("deposit", account="ada", amount=1)
        for path, status in (("/health", "ok"), ("/readyz", "ok"), ("/healthz", "alive")):
            found, headers, text = ask(server.url, path)
            assert (found, json.loads(text)) == (200, {"status": status})
            assert ask(server.url, path, b"", "POST")[0] == 405
        mill.close()
        assert [ask(server.url, path)[0] for path in ("/health", "/readyz", "/healthz")] == [503] * 3


def within(seconds, holds):
    """Waits for what is to come true."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)


def test_health_is_no_sooner_than_the_first_epoch(tmp_path):
    """A run that is refused since its output was finished by a later one was never ready."""
    program = BANK + '\napp.sink(deposit.committed, tm.jsonl("done.jsonl"))\n'
    with command(tmp_path, "--state", "state", program=program) as (_, url), tm.connect(url) as client:
        client.deposit(account="ada", amount=1)
        # A reply waits for no sink.
        within(20, (tmp_path / "state" / "sinks").exists)
    shutil.copytree(tmp_path / "state", tmp_path / "before")
    with command(tmp_path, "--state", "state", program=program) as (process, url):
        with tm.connect(url) as client:
            [client.deposit(account="ada", amount=1) for _ in range(3)]
        process.terminate()
        assert process.wait(30) == 0
    for _ in range(5):
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(tmp_path / "before", tmp_path / "state")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--state", "state", "--no-postgres"]
        arguments += ["--port", str(port)]
        process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        seen = []
        end = time.monotonic() + 60
        while process.poll() is None:
            assert time.monotonic() < end, process.kill()
            try:
                seen.append(ask(f"http://127.0.0.1:{port}", "/health")[0])
            except OSError:
                pass
        assert process.wait() != 0 and 200 not in seen, process.stderr.read()


def test_a_request_names_one_host(app):
    with served(app) as (_, server):
        for lines in (
            ["GET / HTTP/1.1", "Host: localhost", "Host: localhost"],
            ["GET / HTTP/1.1", "Host: localhost", "Host: evil.example"],
            ["GET http://evil.example/ HTTP/1.1", "Host: localhost"],
        ):
            assert raw(server.url, head(*lines, "Connection: close")).startswith(b"HTTP/1.1 400 "), lines
        assert (
            raw(server.url, head("GET / HTTP/1.1", "Host: localhost", "Connection: close"))[:15] == b"HTTP/1.1 200 OK"
        )


def test_pages_of_other_sites_are_refused_however_they_ask(app):
    with served(app) as (_, server):
        own = server.url.replace("127.0.0.1", "localhost")
        host = {"Host": urlsplit(own).netloc}
        for headers, status in (
            ({"Origin": own}, 200),
            ({"Origin": own.replace("http:", "https:")}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
            ({"Sec-Fetch-Site": "none"}, 200),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ):
            assert ask(server.url, "/tables/accounts", headers={**host, **headers})[0] == status, headers
            body = '{"account": "ada", "amount": 1}'
            assert ask(server.url, "/call/deposit", body, headers={**host, **headers})[0] == status, headers
        # A link to the console.
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
        assert ask(server.url, "/", headers=link)[0] == 200


def test_no_response_is_taken_for_other_content(app):
    with app.start(workers=1) as mill, mill.serve(body_bytes_max=100, connections_max=2) as server:
        place = urlsplit(server.url)
        for path, body, status in (
            ("/", None, 200),
            ("/health", None, 200),
            ("/metrics", None, 200),
            ("/tables/accounts", None, 200),
            ("/tables/accounts/x", None, 404),
            ("/nothing", None, 404),
            ("/console/page.js", None, 200),
            ("/call/deposit", b"{}", 422),
            ("/call/deposit", b" " * 200, 413),
            ("/calls", b"{}\n", 200),
            ("/query", b"selec 1", 400),
        ):
            found, headers, _ = ask(server.url, path, body)
            if (found, path) == (501, "/query"):
                continue
            assert (found, headers["X-Content-Type-Options"]) == (status, "nosniff"), path
        with ExitStack() as stack:

            def follows():
                """Returns whether a connection has a place: those that were closed may still have theirs."""
                one = stack.enter_context(socket.create_connection((place.hostname, place.port)))
                one.sendall(head("GET /streams/deposit.committed HTTP/1.1", "Host: localhost"))
                said = one.recv(1 << 12)
                assert b"nosniff" in said
                return b" 200 " in said

            for _ in range(2):
                until(follows)
            full = raw(server.url, b"")
            assert b" 503 " in full and b"X-Content-Type-Options: nosniff" in full


def test_a_body_that_is_too_large_is_not_asked_for(app):
    with app.start(workers=1) as mill, mill.serve(body_bytes_max=1000) as server:
        for path in ("/call/deposit", "/query"):
            lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Length: 100000", "Expect: 100-continue"]
            said = raw(server.url, head(*lines), seconds=5)
            assert said.startswith(b"HTTP/1.1 413 ") and b"100 Continue" not in said
        # One that is small is asked for, and answered.
        body = b'{"account": "ada", "amount": 1}'
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), timeout=20) as one:
            lines = ["POST /call/deposit HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
            one.sendall(head(*lines, "Expect: 100-continue"))
            assert one.recv(1 << 12).startswith(b"HTTP/1.1 100 ")
            one.sendall(body)
            assert one.recv(1 << 12).startswith(b"HTTP/1.1 200 ")


def test_a_key_that_is_there_twice_is_refused(module):
    app = module(BANK + "\npushed = app.source(Note, name='pushed')\n", prelude="").app
    with served(app) as (mill, server):
        twice = '{"account": "ada", "amount": 1, "amount": 2}'
        status, _, text = ask(server.url, "/call/deposit", twice)
        assert (status, json.loads(text)["field"]) == (422, "amount") and b"twice" in text
        lines = f'{{"call": "deposit", "fields": {twice}}}\n'
        lines += '{"call": "deposit", "call": "note", "fields": {"account": "ada", "amount": 1}}\n'
        lines += '{"call": "deposit", "fields": {"account": "ada", "amount": 5}}\n'
        replies = [json.loads(line) for line in ask(server.url, "/calls", lines)[2].splitlines()]
        assert [reply["status"] for reply in replies] == [422, 400, 200]
        assert replies[2]["reply"]["committed"]["balance"] == 5
        status, _, text = ask(server.url, "/stream/pushed", '{"text": "a"}\n{"text": "a", "text": "a"}\n')
        assert (status, json.loads(text)["line"]) == (422, 2)
        for body in (
            '{"sql": "select 1", "sql": "select 2"}',
            '{"sql": "select $a", "parameters": {"a": 1, "a": 2}}',
            '{"sql": "select 1", "parameters": [{"a": [{"b": 1, "b": 1}]}]}',
        ):
            status, _, text = ask(server.url, "/query", body, headers={"Content-Type": "application/json"})
            assert status == 400 and (b"twice" in text or b"duplicate" in text), text


@pytest.mark.parametrize(
    "parameters",
    ['"a"', "7", "true", "[1e400]", "[[1, 2]", '[{"numeric": "x"}]', '[{"bytes": [1.5]}]', '[{"bytes": [256]}]']
    + [
        '[{"micros": 1000000000000000000000000}]',
        '[{"list": ["1"], "of": "nothing"}]',
        '[{"list": [1], "of": "oid[]"}]',
    ]
    + ['["\\ud800"]', "[1, 2]", "[]", '{"a": 1}', "[" + "[" * 200 + "]" * 201, '[{"list": "x", "of": 3}, 2]'],
)
def test_errors_of_parameters_are_those_of_the_client(app, parameters):
    pytest.importorskip("duckdb")
    with served(app) as (_, server):
        body = f'{{"sql": "select ? + 1", "parameters": {parameters}}}'
        status, _, text = ask(server.url, "/query", body, headers={"Content-Type": "application/json"})
        assert status == 400, text
