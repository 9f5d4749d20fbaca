"""Many calls on one connection: ``POST /calls``, ``Client.call_all``, and the asynchronous client."""

import asyncio
import json
import signal
import socket
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from server_process import until
from test_server import BANK, ask, command, full, hold, served
from test_users import tidemill

import tidemill as tm


@pytest.fixture
def app(module):
    return module(BANK.replace("app.requests(Deposit)", "app.requests(Deposit, remember='1h')"), prelude="").app


class Line:
    """A request with calls that goes on."""

    def __init__(self, url, token=None):
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=30)
        own = f"Authorization: Bearer {token}\r\n" if token else ""
        self.socket.sendall(
            f"POST /calls HTTP/1.1\r\nHost: {place.netloc}\r\n{own}Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self.file.readline()
        self.rest = b""

    def send(self, text):
        text = text.encode()
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(text), text))

    def end(self):
        self.socket.sendall(b"0\r\n\r\n")

    def read(self):
        """The next line; none at the end."""
        while b"\n" not in self.rest:
            size = int(self.file.readline(), 16)
            part = self.file.read(size + 2)[:-2]
            if not size:
                return None
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        said = json.loads(line)
        assert set(said) == {"status", "reply"}
        return said["status"], said["reply"]

    def close(self):
        self.file.close()
        self.socket.close()


def deposit(amount, account="ada", **more):
    return json.dumps({"call": "deposit", "fields": {"account": account, "amount": amount}, **more}) + "\n"


def test_each_line_has_its_answer_in_its_place(app):
    with served(app) as (mill, server):
        line = Line(server.url)
        assert b" 200 OK\r\n" in line.head
        line.send(deposit(5))
        assert line.read() == (200, {"epoch": 1, "committed": {"account": "ada", "balance": 5}})
        # Cut anywhere, also within a line.
        text = deposit(2) + deposit(0) + "\n" + '{"call": "note", "fields": {"text": "eve"}}\n' + deposit(1)
        for at in range(0, len(text), 7):
            line.send(text[at : at + 7])
        replies = [line.read() for _ in range(4)]
        assert [status for status, _ in replies] == [200, 409, 200, 200]
        assert replies[1][1]["aborted"] == "amount must be positive"
        assert [replies[at][1]["committed"]["balance"] for at in (0, 3)] == [7, 8]
        # The last line needs no end.
        line.send(deposit(1).rstrip())
        line.end()
        assert line.read()[1]["committed"]["balance"] == 9
        assert line.read() is None
        line.close()
        assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 9}, {"id": "eve", "balance": 1}]


def test_what_is_wrong_with_a_line_is_said_in_its_place(app):
    with served(app) as (mill, server):
        line = Line(server.url)
        wrong = [
            ("{\n", 400, "give {"),
            ("[]\n", 400, "give {"),
            ('{"call": "deposit"}\n', 400, "missing field `fields`"),
            ('{"call": "deposit", "fields": {}, "more": 1}\n', 400, "unknown field `more`"),
            ('{"call": "deposit", "fields": []}\n', 400, "object"),
            ('{"call": "nothing", "fields": {}}\n', 404, "procedures: deposit, note"),
            ('{"call": "deposit", "fields": {"account": "ada"}}\n', 422, "amount"),
            (deposit("much"), 422, "amount"),
            ('{"call": "note", "fields": {"text": "a"}, "idempotency_key": "k"}\n', 400, "remember="),
            (deposit(1, idempotency_key=""), 400, ""),
        ]
        for text, status, why in wrong:
            line.send(text)
            got, reply = line.read()
            assert got == status and why in json.dumps(reply), (text, got, reply)
        line.send(deposit(1))
        assert line.read()[1]["committed"]["balance"] == 1
        line.send('{"call": "deposit", "fields": {"account": "' + "a" * (1 << 20))
        assert line.read() == (413, {"error": "a line is longer than 1048576 bytes"})
        assert line.read() is None
        line.close()
        assert ask(server.url, "/calls")[0] == 405
        assert ask(server.url, "/calls", "", headers={"Origin": "http://evil.example"})[0] == 403
        assert len(mill.table("accounts")) == 1


def test_a_key_gives_the_first_answer(app):
    with served(app) as (_, server):
        line = Line(server.url)
        [line.send(deposit(3, idempotency_key="k")) for _ in range(3)]
        assert [line.read()[1]["committed"]["balance"] for _ in range(3)] == [3, 3, 3]
        line.send(deposit(4, idempotency_key="k"))
        status, reply = line.read()
        assert status == 422 and reply["idempotency_key"] is False
        line.close()


def test_each_call_needs_the_right(app, tmp_path):
    file = str(tmp_path / "users.json")
    shop = tidemill("user", "add", file, "shop", "--call", "deposit")
    with app.start(workers=1) as mill, mill.serve(users=file) as server:
        assert b" 401 " in Line(server.url).head
        line = Line(server.url, shop)
        line.send(deposit(1) + '{"call": "note", "fields": {"text": "a"}}\n' + deposit(1))
        assert [line.read()[0] for _ in range(3)] == [200, 403, 200]
        tidemill("user", "remove", file, "shop")

        def refused():
            line.send(deposit(1))
            status, said = line.read()
            return said if status == 401 else None

        assert until(refused) == {"error": "no user has this token any more"}
        assert line.read() is None
        line.close()


async def awaited(url, **fields):
    async with tm.connect(url) as client:
        return await client.deposit(**fields)


def test_one_who_was_not_served_can_tell_whether_the_call_may_have_run(app):
    """Too many calls: nothing was done. The run ends before the replies: nobody knows."""

    def fail():
        raise OSError("no room")

    one = {"account": "ada", "amount": 1}
    with pytest.raises(OSError, match="no room"), full(app, fail) as (server, end):
        line = Line(server.url)
        line.send(deposit(1))
        assert line.read() == (503, {"error": "4 calls wait for their replies; try again", "retry_after": 1})
        with tm.connect(server.url) as client:
            with pytest.raises(tm.BusyError, match="4 calls wait for their replies") as busy:
                client.deposit(**one)
            [among_many] = client.call_all("deposit", [one])
            with pytest.raises(tm.BusyError) as awaiting:
                asyncio.run(awaited(server.url, **one))
            assert [error.retry_after for error in (busy.value, among_many, awaiting.value)] == [1] * 3
            lost = end()
            assert [(status, set(said)) for status, said in lost] == [(503, {"error"})] * 4, lost
            with pytest.raises(tm.RunError) as over:
                client.deposit(**one)
            assert not isinstance(over.value, tm.BusyError)
        line.close()


def test_calls_keep_their_order_while_the_engine_has_no_room(app):
    """A sink holds every epoch. Calls fill the way to the gate one by one; then those of one request come together."""
    held = hold(app)
    with app.start(workers=1) as mill, mill.serve() as server, ExitStack() as stack:
        stack.callback(held.set)
        for _ in range(257):
            mill.call("deposit", account="bob", amount=1)
        line = Line(server.url)
        for _ in range(300):
            line.send(deposit(1))
            # The way has room for far fewer messages.
            time.sleep(0.002)
        line.send(deposit(1) * 600)
        until(lambda: b"tidemill_calls_in_flight 900\n" in ask(server.url, "/metrics")[2])
        held.set()
        replies = [line.read() for _ in range(900)]
        assert [(status, said["committed"]["balance"]) for status, said in replies] == [
            (200, n + 1) for n in range(900)
        ]
        line.close()


def test_who_vanishes_harms_nobody(app):
    with served(app) as (mill, server):
        for _ in range(20):
            line = Line(server.url)
            # Together fewer than may be under way.
            line.send(deposit(1) * 400 + deposit(1)[:20])
            line.close()
        with tm.connect(server.url) as client:
            assert client.deposit(account="eve", amount=1)["balance"] == 1
        until(lambda: b"tidemill_calls_in_flight 0\n" in ask(server.url, "/metrics")[2])
        # Those of a line that did not come whole were not made.
        assert dict((row["id"], row["balance"]) for row in mill.table("accounts").to_pylist())["ada"] <= 8_000


def test_the_synchronous_client_makes_many(app):
    with served(app) as (_, server), tm.connect(server.url) as client:
        events = [{"account": "ada", "amount": number % 10} for number in range(3_000)]
        outcomes = client.call_all("deposit", events)
        sums, expected = 0, []
        for number in range(3_000):
            sums += number % 10
            expected.append(sums if number % 10 else None)
        assert [None if isinstance(one, tm.Aborted) else one["balance"] for one in outcomes] == expected
        assert outcomes[0].reason == "amount must be positive"
        keys = [f"k{number}" for number in range(300)]
        first = client.call_all("deposit", events[1:301], idempotency_keys=keys)
        again = client.call_all("deposit", events[1:301], idempotency_keys=keys)
        assert [str(one) for one in first] == [str(one) for one in again]
        assert client.call_all("deposit", []) == []
        wrong, right = client.call_all("deposit", [{"account": 1}, {"account": "bob", "amount": 1}])
        assert isinstance(wrong, tm.SchemaError) and right["balance"] == 1
        with pytest.raises(ValueError, match="shorter"):
            client.call_all("deposit", events, idempotency_keys=keys)
    with pytest.raises(tm.RunError, match="no answer from"):
        tm.connect(server.url).call_all("deposit", events)


def test_calls_that_are_awaited_together_share_a_connection_and_keep_their_order(app):
    async def many(url):
        async with tm.connect(url) as client:
            amounts = [number % 5 for number in range(5_000)]
            made = [client.deposit(account="ada", amount=amount) for amount in amounts]
            outcomes = await asyncio.gather(*made, return_exceptions=True)
            loop = asyncio.get_running_loop()
            said = await loop.run_in_executor(None, lambda: ask(url, "/metrics")[2])
            return amounts, outcomes, said

    with served(app) as (_, server):
        amounts, outcomes, said = asyncio.run(many(server.url))
        assert b"tidemill_connections 3\n" in said, "those of calls, of the types of values, and of /metrics"
        balance = 0
        for amount, outcome in zip(amounts, outcomes):
            balance += amount
            if amount:
                assert outcome["balance"] == balance
            else:
                assert isinstance(outcome, tm.Aborted)


def test_an_asynchronous_call_that_nobody_waits_for_leaves_the_others(app):
    async def run(url):
        async with tm.connect(url, timeout=10) as client:
            await client.deposit(account="ada", amount=1)
            tasks = [asyncio.create_task(client.deposit(account="ada", amount=1)) for _ in range(100)]
            await asyncio.sleep(0)
            [task.cancel() for task in tasks[::2]]
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, False] * 50
            return (await client.deposit(account="ada", amount=1))["balance"], [one["balance"] for one in done[1::2]]

    with served(app) as (_, server):
        last, balances = asyncio.run(run(server.url))
        assert balances == sorted(balances) and last > balances[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_end_answers_what_was_made(tmp_path, number):
    async def run(process, url):
        answered = 0
        async with tm.connect(url) as client:
            try:
                while True:
                    made = [client.deposit(account="ada", amount=1) for _ in range(50)]
                    for outcome in await asyncio.gather(*made, return_exceptions=True):
                        if isinstance(outcome, BaseException):
                            raise outcome
                        answered += 1
                    if answered == 500:
                        process.send_signal(number)
            except tm.RunError as error:
                return answered, str(error)

    with command(tmp_path, "--state", "state") as (process, url):
        idle = Line(url)
        answered, why = asyncio.run(run(process, url))
        assert process.wait(15) == 0
        assert idle.read() is None
        idle.close()
    assert answered >= 500
    assert "no answer" in why or "about to end" in why, why
    with command(tmp_path, "--state", "state") as (_, url):
        assert json.loads(ask(url, "/tables/accounts/ada")[2])["balance"] >= answered


def test_after_a_restart_the_asynchronous_client_connects_again(tmp_path):
    async def run(url, ends, begins):
        async with tm.connect(url) as client:
            await client.deposit(account="ada", amount=1)
            ends()
            with pytest.raises(tm.RunError):
                await client.deposit(account="ada", amount=1)
            begins()
            return (await client.deposit(account="ada", amount=1))["balance"]

    with command(tmp_path, "--state", "state") as (process, url):
        port = urlsplit(url).port

        def ends():
            process.send_signal(signal.SIGTERM)
            process.wait(15)

        again = command(tmp_path, "--state", "state", "--postgres-port", "0", port=port)
        try:
            assert asyncio.run(run(url, ends, again.__enter__)) == 2
        finally:
            again.__exit__(None, None, None)


def test_without_a_right_to_ask_every_call_fails_alike(app, tmp_path):
    file = str(tmp_path / "users.json")
    tidemill("user", "add", file, "shop", "--call", "deposit")

    async def run(url):
        async with tm.connect(url, token="wrong") as client:
            made = [client.deposit(account="ada", amount=1) for _ in range(3)]
            return await asyncio.gather(*made, return_exceptions=True)

    with app.start(workers=1) as mill, mill.serve(users=file) as server:
        outcomes = asyncio.run(run(server.url))
        assert all(isinstance(one, tm.RunError) and "401" in str(one) for one in outcomes), outcomes
