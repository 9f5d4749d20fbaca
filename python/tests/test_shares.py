"""The share that one client may take, and what is left to others: connections, calls, readers, bytes, descriptors."""

import http.client
import json
import os
import re
import resource
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from server_process import settled, until
from test_postgres import EXECUTE, SYNC, answers, message, parse, startup, tags
from test_server import BANK, ITEMS, ask

import tidemill as tm

psycopg = pytest.importorskip("psycopg")

HEAVY = (
    BANK
    + """
class Work(tm.Event):
    n: int

works = app.requests(Work)

@app.transaction(works)
def work(ev):
    total = 0
    for i in range(ev.n):
        total = (total * 31 + i) % 1000003
    return {"total": total}
"""
)


@pytest.fixture
def bank(module):
    return module(BANK, prelude="").app


def reached(url, from_=None):
    """A connection to a server, from an address of this machine."""
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port), 20, None if from_ is None else (from_, 0))


def asked(one, path="/", more=""):
    """The status of a request on an open connection; none if it is closed."""
    try:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
        response = http.client.HTTPResponse(one)
        response.begin()
        response.read()
    except (OSError, http.client.HTTPException):
        return None
    return response.status


def is_closed(one):
    try:
        one.setblocking(False)
        return one.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_idle_connections_of_one_address_make_way_for_another(bank):
    with bank.start(workers=1) as mill, mill.serve(connections_max=8) as server, ExitStack() as stack:
        idle = [stack.enter_context(reached(server.url)) for _ in range(8)]
        assert [asked(one) for one in idle] == [200] * 8
        # The ninth of the same address has no place; one of another gets that of the one that was idle for longest.
        assert asked(stack.enter_context(reached(server.url))) == 503
        others = [stack.enter_context(reached(server.url, "127.0.0.2")) for _ in range(6)]
        assert [asked(one) for one in others] == [200] * 4 + [503] * 2
        until(lambda: [is_closed(one) for one in idle] == [True] * 4 + [False] * 4)


def greeted(server, from_=None, user="ada"):
    one = reached(server.postgres_url, from_)
    one.sendall(startup(user=user))
    return one, tags(answers(one, b"ZE"))


def test_idle_clients_of_postgres_make_way(bank):
    with bank.start(workers=1) as mill, mill.serve(connections_max=6) as server, ExitStack() as stack:

        def connect(from_=None):
            one, said = greeted(server, from_)
            return stack.enter_context(one), said[-1:]

        idle = [connect() for _ in range(6)]
        assert [said for _, said in idle] == [b"Z"] * 6
        assert connect()[1] == b"E"
        others = [connect("127.0.0.2") for _ in range(5)]
        assert [said for _, said in others] == [b"Z"] * 3 + [b"E"] * 2
        # They are told, and those that are left are served.
        for one, _ in idle[:3]:
            found = answers(one)
            assert tags(found) == b"E" and b"C57P05\0" in found[0][1]
        for one, _ in idle[3:] + others[:3]:
            one.sendall(message(b"Q", b"SELECT balance FROM deposit('ada', 1)\0"))
            assert tags(answers(one)) == b"TDCZ"


def test_a_block_and_a_listener_are_not_idle(bank):
    with bank.start(workers=1) as mill, mill.serve(connections_max=3) as server, ExitStack() as stack:
        one, two, three = (stack.enter_context(greeted(server)[0]) for _ in range(3))
        for at, text in ((one, b"BEGIN"), (two, b'LISTEN "deposit.committed"')):
            at.sendall(message(b"Q", text + b"\0"))
            assert tags(answers(at)) == b"CZ"
        other, said = greeted(server, "127.0.0.2")
        stack.enter_context(other)
        assert said[-1:] == b"Z"
        assert tags(answers(three)) == b"E"
        one.sendall(message(b"Q", b"COMMIT\0"))
        assert tags(answers(one)) == b"CZ"


def test_long_idle_clients_of_the_same_address_make_way(bank):
    with bank.start(workers=1) as mill, ExitStack() as stack:
        server = stack.enter_context(mill.serve(connections_max=4, silence_seconds_max=2))
        idle = [stack.enter_context(greeted(server)[0]) for _ in range(4)]
        assert greeted(server)[1] == b"E"

        def makes_way():
            """Returns whether another client has a place."""
            other, said = greeted(server)
            stack.enter_context(other)
            return said[-1:] == b"Z"

        until(makes_way)
        until(lambda: [is_closed(one) for one in idle] == [True, False, False, False])


@pytest.fixture
def users(tmp_path):
    file, secrets = str(tmp_path / "users.json"), {}
    for name in ("ada", "bob"):
        arguments = [sys.executable, "-m", "tidemill", "user", "add", file, name, "--admin"]
        secrets[name] = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()
    return file, secrets


def test_clients_who_say_nothing_lock_no_user_out(bank, users):
    file, secrets = users
    with bank.start(workers=1) as mill, mill.serve(users=file, connections_max=20) as server, ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(reached(server.url))
            stack.enter_context(reached(server.postgres_url))
        for name in ("ada", "bob"):
            with tm.connect(server.url, token=secrets[name]) as client:
                client.deposit(account=name, amount=1)
            with psycopg.connect(server.postgres_url, user=name, password=secrets[name], autocommit=True) as db:
                assert db.execute("SELECT balance FROM deposit(%s, 1)", [name]).fetchone() == (2,)


def test_a_user_has_a_part_of_the_connections(bank, users):
    file, secrets = users
    with bank.start(workers=1) as mill, mill.serve(users=file, connections_max=10) as server, ExitStack() as stack:

        def connect(name):
            db = psycopg.connect(server.postgres_url, user=name, password=secrets[name], autocommit=True)
            return stack.enter_context(db)

        adas = [connect("ada") for _ in range(10)]
        with pytest.raises(psycopg.OperationalError, match="10 connections are open"):
            connect("ada")
        bobs = [connect("bob") for _ in range(5)]
        with pytest.raises(psycopg.OperationalError, match="10 connections are open"):
            connect("bob")
        assert [db.execute("SELECT 1").fetchone() for db in adas[5:] + bobs] == [(1,)] * 10
        # Over HTTP each has a part of its own.
        token = f"Authorization: Bearer {secrets['ada']}\r\n"
        https = [stack.enter_context(reached(server.url)) for _ in range(11)]
        assert [asked(one, "/tables/accounts", token) for one in https].count(200) == 10
        other = stack.enter_context(reached(server.url))
        assert asked(other, "/tables/accounts", f"Authorization: Bearer {secrets['bob']}\r\n") == 200


@pytest.mark.parametrize("protocol", ["http", "postgres"])
def test_calls_of_one_user_leave_places_to_another(module, users, protocol):
    app = module(HEAVY, prelude="").app
    file, secrets = users
    with app.start(workers=1) as mill, mill.serve(users=file, calls_max=8, port=0) as server, ExitStack() as stack:
        body = b'{"n": 3000000}'
        lines = b'{"call": "work", "fields": {"n": 3000000}}\n' * 40
        ada = {"Authorization": f"Bearer {secrets['ada']}"}
        done = []

        def many():
            if protocol == "http":
                _, _, text = ask(server.url, "/calls", lines, headers=ada)
                done.extend(json.loads(line)["status"] for line in text.splitlines())
            else:
                db = psycopg.connect(
                    server.postgres_url, user="ada", password=secrets["ada"], autocommit=True, prepare_threshold=None
                )
                with db, db.pipeline():
                    for _ in range(40):
                        db.execute("SELECT * FROM work(3000000)")
                done.extend([200] * 40)

        thread = threading.Thread(target=many)
        thread.start()
        stack.callback(thread.join)
        until(lambda: "tidemill_calls_in_flight 8\n" in told(server, secrets["bob"]) or done)
        status, _, said = ask(
            server.url, "/call/deposit", b'{"account": "bob", "amount": 1}', headers=bearer(secrets["bob"])
        )
        assert status == 200, said
        status, _, said = ask(server.url, "/call/work", body, headers=bearer(secrets["bob"]))
        assert status == 200, said


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def told(server, secret):
    return ask(server.url, "/metrics", headers=bearer(secret))[2].decode()


@pytest.mark.parametrize("with_users", [False, True])
def test_heavy_calls_of_one_do_not_hold_up_another(module, users, with_users):
    app = module(HEAVY, prelude="").app
    file, secrets = users if with_users else (None, {"ada": "", "bob": ""})
    with app.start(workers=1) as mill, mill.serve(users=file) as server:

        def alone():
            began = time.monotonic()
            ask(server.url, "/call/work", b'{"n": 20000000}', headers=bearer(secrets["ada"]))
            return time.monotonic() - began

        one = min(alone() for _ in range(3))
        lines = b'{"call": "work", "fields": {"n": 20000000}}\n' * 24
        thread = threading.Thread(target=ask, args=(server.url, "/calls", lines, None, bearer(secrets["ada"])))
        all_began = time.monotonic()
        thread.start()
        waits = []
        while thread.is_alive():
            time.sleep(one / 4)
            began = time.monotonic()
            fields = b'{"account": "bob", "amount": 1}'
            assert ask(server.url, "/call/deposit", fields, headers=bearer(secrets["bob"]))[0] == 200
            waits.append(time.monotonic() - began)
        # One that has begun is waited for, and perhaps one more. Without turns it is all of them, and nothing comes after.
        total = time.monotonic() - all_began
        assert len(waits) > 1 and statistics.median(waits) < total / 3, (one, total, waits)
        balance = json.loads(ask(server.url, "/tables/accounts/bob", headers=bearer(secrets["bob"]))[2])["balance"]
        assert balance == len(waits)


def test_calls_that_wait_for_their_turn_are_as_others(module):
    """Replies, errors and the order of a line, where most calls wait."""
    app = module(HEAVY, prelude="").app
    with app.start(workers=1) as mill, mill.serve() as server:
        lines, wanted = [], []
        for number in range(600):
            if number % 3 == 0:
                lines.append({"call": "work", "fields": {"n": number * 100}})
                wanted.append((200, None))
            elif number % 7 == 0:
                lines.append({"call": "deposit", "fields": {"account": "ada", "amount": "x"}})
                wanted.append((422, None))
            elif number % 11 == 0:
                lines.append({"call": "deposit", "fields": {"account": "ada", "amount": 0}})
                wanted.append((409, None))
            else:
                lines.append({"call": "deposit", "fields": {"account": "ada", "amount": 1}})
                wanted.append((200, sum(balance is not None for _, balance in wanted) + 1))
        body = "".join(json.dumps(line) + "\n" for line in lines)
        _, _, text = ask(server.url, "/calls", body)
        replies = [json.loads(line) for line in text.splitlines()]
        got = [(one["status"], (one["reply"].get("committed") or {}).get("balance")) for one in replies]
        assert got == wanted


def test_readers_of_one_address_leave_places_to_another(bank):
    with bank.start(workers=1) as mill, mill.serve(readers_max=4) as server, ExitStack() as stack:

        def reads(from_):
            one = stack.enter_context(reached(server.url, from_))
            one.sendall(b"GET /streams/deposit.committed HTTP/1.1\r\nHost: localhost\r\n\r\n")
            response = http.client.HTTPResponse(one)
            response.begin()
            return response.status

        def listens(from_):
            one, _ = greeted(server, from_)
            stack.enter_context(one)
            one.sendall(message(b"Q", b'LISTEN "deposit.committed"\0'))
            return tags(answers(one))

        assert [reads("127.0.0.1"), reads("127.0.0.1")] == [200, 200]
        assert [listens("127.0.0.1") for _ in range(2)] == [b"CZ"] * 2
        # There are four readers of both protocols together, and another address has two.
        assert (reads("127.0.0.1"), listens("127.0.0.1")) == (503, b"EZ")
        assert (listens("127.0.0.2"), reads("127.0.0.2")) == (b"CZ", 200)
        assert (reads("127.0.0.2"), listens("127.0.0.2")) == (503, b"EZ")


@pytest.fixture
def items(module):
    """A table of about 16 MB, which changes."""
    app = module(ITEMS, prelude="").app
    with app.start(workers=1) as mill:
        rows = [{"number": number, "text": "x" * 2_000} for number in range(8_000)]
        for at in range(0, len(rows), 1_000):
            mill.send(app.sources["puts"], rows[at : at + 1_000])
        mill.flush()
        yield mill


def stalled(server, stack, path="/tables/items"):
    """A connection that asks and takes only the head of the response."""
    place = urlsplit(server.url)
    one = stack.enter_context(socket.socket())
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    one.settimeout(20)
    one.connect((place.hostname, place.port))
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += one.recv(1)
    return one, int(head.split()[1])


def held(server):
    text = ask(server.url, "/metrics")[2].decode()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("tidemill_responses_bytes ")))


def test_a_client_that_takes_nothing_is_cut_off(items):
    with items.serve(silence_seconds_max=3) as server, ExitStack() as stack:
        one, status = stalled(server, stack)
        assert status == 200 and held(server) > 10_000_000
        until(lambda: held(server) == 0)
        # Bytes that the system had come first, and then the end.
        taken = 0
        try:
            while more := one.recv(1 << 20):
                taken += len(more)
        except ConnectionError:
            pass
        assert taken < 8_000_000


def test_a_slow_client_is_served_to_the_end(items):
    silence = 3
    with items.serve(silence_seconds_max=silence) as server, ExitStack() as stack:
        one, status = stalled(server, stack)
        assert status == 200
        began, taken, last = time.monotonic(), 0, b""
        # For longer than it may take nothing, it takes little; then the rest.
        while time.monotonic() - began < 1.5 * silence:
            taken += len(one.recv(1 << 14))
            time.sleep(0.05)
        assert taken < 4_000_000
        one.settimeout(60)
        while not last.endswith(b"0\r\n\r\n"):
            more = one.recv(1 << 20)
            assert more
            taken, last = taken + len(more), (last + more)[-16:]
        assert taken > 16_000_000


def test_responses_hold_so_many_bytes(items):
    with items.serve(responses_bytes_max=40_000_000) as server, ExitStack() as stack:
        statuses = []
        for number in range(5):
            # Each reader has a copy of its own.
            assert ask(server.url, "/stream/puts", json.dumps({"number": number, "text": "y"}))[0] == 200
            statuses.append(stalled(server, stack)[1])
        assert statuses == [200, 200, 503, 503, 503]
        assert held(server) <= 40_000_000
        # Rows by key and parts of the table are small, and another address has its part.
        assert ask(server.url, "/tables/items/7")[0] == 200
        assert ask(server.url, "/tables/items?limit=10")[0] == 200
        with reached(server.url, "127.0.0.2") as other:
            assert asked(other, "/tables/items") == 200
        # So it is for clients of PostgreSQL, who hear of it.
        with psycopg.connect(server.postgres_url, autocommit=True) as db:
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="responses hold 40000000 bytes"):
                db.execute("SELECT * FROM items")
            assert db.execute("SELECT number FROM items WHERE number = 7").fetchone() == (7,)


def test_one_copy_of_a_table_counts_once(items):
    with items.serve(responses_bytes_max=40_000_000) as server, ExitStack() as stack:
        assert [stalled(server, stack)[1] for _ in range(6)] == [200] * 6
        assert held(server) < 40_000_000


def said_on(one, *messages):
    one.sendall(b"".join(messages) + SYNC)
    return answers(one)


def bind(portal, statement=b""):
    return message(b"B", portal + b"\0" + statement + b"\0" + b"\0\0" * 3)


def test_portals_hold_rows_until_they_are_sent(items):
    with items.serve(responses_bytes_max=40_000_000) as server, ExitStack() as stack:
        one, _ = greeted(server)
        stack.enter_context(one)
        one.sendall(message(b"Q", b"BEGIN\0"))
        assert tags(answers(one)) == b"CZ"
        first = message(b"E", b"p\0" + struct.pack("!I", 1))
        found = said_on(one, parse(b"SELECT * FROM items"), bind(b"p"), first)
        assert tags(found) == b"12DsZ" and 10_000_000 < held(server) < 40_000_000
        rest = message(b"E", b"p\0" + struct.pack("!I", 0))
        assert tags(said_on(one, rest))[-2:] == b"CZ"
        # It is still there, and holds nothing.
        assert held(server) == 0
        found = said_on(one, rest)
        assert found[0] == (b"C", b"SELECT 0\0")


def test_statements_take_so_many_bytes(bank):
    with bank.start(workers=1) as mill, mill.serve(prepared_bytes_max=8_000_000) as server, ExitStack() as stack:
        large = b"SELECT '" + b"x" * 100_000 + b"'"

        def prepared(from_=None):
            """Returns the number of statements that one connection may have, and why not more."""
            one, _ = greeted(server, from_)
            stack.enter_context(one)
            for number in range(100):
                found = said_on(one, parse(large, b"s%d" % number))
                if tags(found) != b"1Z":
                    assert b"C53400\0" in found[0][1]
                    return one, number, found[0][1]
            raise AssertionError("there is no limit")

        # A connection may have an eighth, and all of one address together the whole.
        first, count, why = prepared()
        assert 3 <= count <= 5 and b"of this connection" in why
        counts = [prepared()[1] for _ in range(12)]
        assert counts[:6] == [count] * 6 and counts[-1] == 0
        other, others, _ = prepared("127.0.0.2")
        assert others == count
        other.close()
        # Without a name a statement takes the place of the one before, and a closed one gives its place back.
        for _ in range(20):
            assert tags(said_on(first, parse(b"SELECT 1"), bind(b""), EXECUTE)) == b"12DCZ"
        closed = b"".join(message(b"C", b"Ss%d\0" % number) for number in range(count))
        assert tags(said_on(first, closed)) == b"3" * count + b"Z"
        until(lambda: tags(said_on(first, parse(large, b"again"))) == b"1Z")


def test_connections_leave_descriptors_to_the_engine(tmp_path):
    (tmp_path / "bank.py").write_text(BANK)
    arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--port", "0", "--state", "state"]

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))

    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=limit)
    with process, ExitStack() as stack:
        stack.callback(process.kill)
        said = [process.stderr.readline() for _ in range(2)]
        assert "may open 400 files" in said[0] and "and not 1000" in said[0], said
        url, postgres = (re.search(rf"{scheme}://[^\s,]+", said[1])[0] for scheme in ("http", "postgresql"))
        idle = []
        for _ in range(600):
            for place in (url, postgres):
                idle.append(stack.enter_context(reached(place)))
        opened = lambda: len(os.listdir(f"/proc/{process.pid}/fd"))
        settled(opened)
        until(lambda: opened() <= 260)
        # The engine writes its log and its checkpoints, and one that connects after the others have gone is served.
        [one.close() for one in idle]
        with tm.connect(url) as client:
            until(lambda: can_call(client))
        process.terminate()
        assert process.wait(30) == 0
    assert Path(tmp_path, "state").exists()


def can_call(client):
    try:
        return client.deposit(account="ada", amount=1)["balance"] >= 1
    except tm.BusyError:
        return False
