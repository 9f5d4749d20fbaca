"""Who may ask: users of a file, by password over the protocol of PostgreSQL and by token over HTTP."""

import asyncio
import base64
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from server_process import until
from test_postgres import BANK, answers, code_of, message, raw, startup, tags

import tidemill as tm

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")


def tidemill(*arguments, code=0):
    ran = subprocess.run(
        [sys.executable, "-m", "tidemill", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout.strip() if code == 0 else ran.stderr


@pytest.fixture
def users(tmp_path):
    file = str(tmp_path / "users.json")
    secrets = {"ada": tidemill("user", "add", file, "ada", "--admin")}
    rights = ["--call", "deposit", "--read", "accounts", "--subscribe", "deposit.committed", "--query"]
    secrets["shop"] = tidemill("user", "add", file, "shop", *rights)
    secrets["none"] = tidemill("user", "add", file, "none")
    secrets["reader"] = tidemill("user", "add", file, "reader", "--read", "accounts")
    return file, secrets


@pytest.fixture
def bank(module, users):
    app = module(BANK, prelude="").app
    with app.start(workers=1) as mill, mill.serve(users=users[0]) as server:
        yield mill, server


def connect(server, user, password, **options):
    return psycopg.connect(server.postgres_url, user=user, password=password, autocommit=True, **options)


def asked(server, path, token=None, body=None, basic=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if basic is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(basic).encode()).decode()
    try:
        with urlopen(Request(server.url + path, body, headers), timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_the_command_adds_lists_and_removes(users, tmp_path):
    file, secrets = users
    assert tidemill("user", "list", file).splitlines() == [
        "ada: admin",
        "shop: call deposit; read accounts; subscribe deposit.committed; query",
        "none: nothing",
        "reader: read accounts",
    ]
    text = open(file, encoding="utf-8").read()
    assert not any(secret in text for secret in secrets.values())
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert "there is a user 'ada' already" in tidemill("user", "add", file, "ada", code=2)
    assert "'a b' is no name" in tidemill("user", "add", file, "a b", code=2)
    tidemill("user", "remove", file, "none")
    assert "there is no user 'none'; users: ada, shop" in tidemill("user", "remove", file, "none", code=2)
    assert "cannot read the users" in tidemill("user", "list", str(tmp_path / "nothing"), code=2)
    assert "tidemill user add users.json ada --admin" in tidemill("user", "add", "--help")


def test_passwords_of_postgresql(bank, users):
    _, server = bank
    _, secrets = users
    with connect(server, "ada", secrets["ada"]) as db:
        assert db.execute("SELECT * FROM deposit('ada', 10)").fetchone() == ("ada", 10)
        assert db.execute("SELECT current_user").fetchone() == ("ada",)
    for user, password in [("ada", "wrong"), ("ada", secrets["shop"]), ("nobody", "wrong"), ("nobody", secrets["ada"])]:
        with pytest.raises(psycopg.OperationalError, match=f"password authentication failed for user .{user}."):
            connect(server, user, password)
    with pytest.raises(psycopg.OperationalError, match="password"):
        connect(server, "ada", None, passfile="/nothing")

    async def main():
        url = urlsplit(server.postgres_url)
        place = {"host": url.hostname, "port": url.port, "database": "bank"}
        db = await asyncpg.connect(user="ada", password=secrets["ada"], **place)
        assert await db.fetchval("SELECT balance FROM accounts WHERE id = 'ada'") == 10
        await db.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(user="ada", password="wrong", **place)

    asyncio.run(main())


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed (postgresql-client)")
def test_psql_with_a_password(bank, users):
    _, server = bank
    url = server.postgres_url.replace("postgresql://", "postgresql://shop@")

    def psql(password):
        return subprocess.run(
            ["psql", "-XAtw", "-c", "CALL deposit('eve', 2)", url],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "LC_ALL": "C", "PGPASSWORD": password},
        )

    assert psql(users[1]["shop"]).stdout == "eve|2\n"
    assert "password authentication failed for user" in psql("wrong").stderr


def test_a_user_has_its_rights_alone(bank, users):
    mill, server = bank
    file, secrets = users
    with connect(server, "shop", secrets["shop"]) as db:
        assert db.execute("SELECT * FROM deposit('ada', 10)").fetchone() == ("ada", 10)
        assert db.execute("SELECT * FROM accounts").fetchone() == ("ada", 10)
        assert db.execute("SELECT sum(balance) FROM accounts").fetchone() == (10,)
        db.execute('LISTEN "deposit.committed"')
        for text, said in [
            ("SELECT * FROM transfer('ada', 'ada', 1)", "user 'shop' has no right to call 'transfer'"),
            ("CALL note('ada')", "call 'note'"),
            ("SELECT * FROM entries", "read 'entries'"),
            ("SELECT * FROM entries WHERE book = 'a' AND number = 1", "read 'entries'"),
            ("SELECT count(*) FROM entries", "read 'entries'"),
            ('SELECT count(*) FROM accounts, "ENTRIES" e', "read 'entries'"),
            ("SELECT (SELECT count(*) FROM public.entries) + 1", "read 'entries'"),
            ("WITH e AS (SELECT * FROM entries) SELECT count(*) FROM e", "read 'entries'"),
            ('LISTEN "transfer.committed"', "subscribe 'transfer.committed'"),
        ]:
            state, diag = code_of(db, text)
            assert (state, said in diag.message_primary) == ("42501", True), (text, diag.message_primary)
        # A query that names a table in a way of the engine's does not find it.
        for text in ["SELECT count(*) FROM query_table('entries')", "SELECT count(*) FROM 'entries'"]:
            assert code_of(db, text)[0] != "00000"
    with connect(server, "none", secrets["none"]) as db:
        assert (
            code_of(db, "SELECT * FROM accounts")[0] == code_of(db, "SELECT sum(balance) FROM accounts")[0] == "42501"
        )
        assert db.execute("SELECT 1").fetchone() == (1,)
    assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 10}]


def test_queries_over_tables_are_a_right_of_their_own(bank, users):
    """The catalogs need none, and show what the user may see."""
    _, server = bank
    file, secrets = users
    assert "reader: read accounts\n" in tidemill("user", "list", file) + "\n"
    assert "query" in tidemill("user", "list", file).split("shop: ")[1].split("\n")[0]
    seen = {"reader": ["accounts"], "none": [], "shop": ["accounts"], "ada": ["accounts", "entries"]}
    called = {"reader": set(), "none": set(), "shop": {"deposit"}}
    for user, tables in seen.items():
        with connect(server, user, secrets[user]) as db:
            rows = db.execute("SELECT relname FROM pg_class WHERE relkind = 'r' ORDER BY 1").fetchall()
            assert [name for (name,) in rows] == tables
            (there,) = db.execute("SELECT to_regclass('public.entries') IS NOT NULL").fetchone()
            assert there == ("entries" in tables)
            listed = db.execute("SELECT table_name FROM information_schema.tables").fetchall()
            assert {name for (name,) in listed} == set(tables)
            procedures = {name for (name,) in db.execute("SELECT proname FROM pg_proc").fetchall()}
            assert user not in called or procedures & {"deposit", "transfer", "note"} == called[user]
    with connect(server, "reader", secrets["reader"]) as db:
        assert db.execute("SELECT * FROM accounts").fetchall() == []
        for text in [
            "SELECT sum(balance) FROM accounts",
            "SELECT count(*) FROM accounts a, pg_class c",
            "SELECT * FROM pg_class WHERE relname IN (SELECT id FROM public.accounts)",
        ]:
            state, diag = code_of(db, text)
            assert (state, "no right to ask queries" in diag.message_primary) == ("42501", True), diag.message_primary
        assert db.execute("SELECT 1 AS accounts, count(*) > 0 FROM pg_type").fetchone() == (1, True)
    status, text = asked(server, "/query", secrets["reader"], b"select 1")
    assert (status, "no right to ask queries" in text) == (403, True)


def test_tokens_of_http(bank, users):
    mill, server = bank
    _, secrets = users
    body = b'{"account": "ada", "amount": 1}'
    for path, data in [
        ("/", None),
        ("/call/deposit", body),
        ("/tables/accounts", None),
        ("/console", None),
        ("/metrics", None),
    ]:
        assert asked(server, path, None, data)[0] == 401, path
        assert asked(server, path, "wrong", data)[0] == 401, path
    assert asked(server, "/health") == (200, '{"status":"ok"}\n')
    assert asked(server, "/call/deposit", secrets["ada"], body)[0] == 200
    assert asked(server, "/call/deposit", secrets["shop"], body)[0] == 200
    assert asked(server, "/tables/accounts/ada", basic=("shop", secrets["shop"]))[0] == 200
    assert asked(server, "/tables/accounts/ada", basic=("ada", secrets["shop"]))[0] == 401
    status, text = asked(server, "/tables/entries", secrets["shop"])
    assert (status, json.loads(text)) == (403, {"error": "user 'shop' has no right to read 'entries'"})
    for path, data in [
        ("/call/note", b'{"text": "x"}'),
        ("/stream/deposits", body),
        ("/streams/deposits", body),
        ("/streams/transfer.committed", None),
        ("/console", None),
        ("/console/live", None),
    ]:
        assert asked(server, path, secrets["shop"], data)[0] == 403, path
    assert asked(server, "/console", secrets["ada"])[0] == 200
    assert asked(server, "/query", secrets["shop"], b"select sum(balance) as s from accounts") == (200, '{"s":2}\n')
    status, text = asked(server, "/query", secrets["shop"], b"select count(*) from entries")
    assert status == 400 and "entries" in text
    assert mill.table("accounts").to_pylist() == [{"id": "ada", "balance": 2}]


def test_the_client_of_python_has_a_token(bank, users):
    _, server = bank
    file, secrets = users
    with tm.connect(server.url, token=secrets["shop"]) as client:
        assert client.deposit(account="ada", amount=3).value == {"account": "ada", "balance": 3}
        assert client.row("accounts", "ada") == {"id": "ada", "balance": 3}
        with pytest.raises(tm.RunError, match="no right to call 'note'"):
            client.note(text="x")
    with tm.connect(server.url) as client, pytest.raises(tm.RunError, match="asks who you are"):
        client.deposit(account="ada", amount=3)

    async def main():
        async with tm.connect(server.url, token=secrets["shop"]) as client:
            assert (await client.deposit(account="ada", amount=1)).value["balance"] == 4

    asyncio.run(main())
    # Who is removed is not let in any more, while the server runs.
    tidemill("user", "remove", file, "shop")
    assert asked(server, "/tables/accounts", secrets["shop"])[0] == 401
    with pytest.raises(psycopg.OperationalError):
        connect(server, "shop", secrets["shop"])
    # While the file cannot be read, nobody is.
    with open(file, "w", encoding="utf-8") as broken:
        broken.write("{}}")
    assert asked(server, "/tables/accounts", secrets["ada"])[0] == 503
    with pytest.raises(psycopg.OperationalError):
        connect(server, "ada", secrets["ada"])


def test_rights_change_while_a_client_is_connected(bank, users):
    _, server = bank
    file, passwords = Path(users[0]), users[1]
    with connect(server, "shop", passwords["shop"]) as shop, connect(server, "shop", passwords["shop"]) as other:
        balance = [0]

        def deposit():
            balance[0] += 1
            assert shop.execute("select balance from deposit('ada', 1)").fetchone() == (balance[0],)

        deposit()
        text = json.loads(file.read_text())
        (known,) = [user for user in text["users"] if user["name"] == "shop"]
        del known["call"]
        file.write_text(json.dumps(text))
        # The file is looked at once a second.
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            until(deposit)
        balance[0] -= 1
        assert shop.execute("select balance from accounts where id = 'ada'").fetchone() == (balance[0],)
        # A file that cannot be read takes nothing from those who are connected, and lets nobody in.
        file.write_text("{")
        with pytest.raises(psycopg.OperationalError):
            until(lambda: connect(server, "shop", passwords["shop"]).close())
        time.sleep(1.1)
        assert shop.execute("select balance from accounts where id = 'ada'").fetchone() == (balance[0],)
        text["users"].remove(known)
        file.write_text(json.dumps(text))
        for connection in (shop, other):
            with pytest.raises(psycopg.OperationalError, match="user 'shop' was removed"):
                until(lambda connection=connection: connection.execute("select 1") is None)
            assert connection.closed


def test_a_reader_of_a_stream_loses_its_right(bank, users):
    _, server = bank
    file, tokens = Path(users[0]), users[1]
    text = json.loads(file.read_text())
    (known,) = [user for user in text["users"] if user["name"] == "shop"]
    right = known.pop("subscribe")

    def reading():
        headers = {"Authorization": f"Bearer {tokens['shop']}"}
        return urlopen(Request(f"{server.url}/streams/deposit.committed", headers=headers), timeout=20)

    with reading() as first:
        with tm.connect(server.url, token=tokens["ada"]) as client:
            client.deposit(account="ada", amount=1)
        assert first.readline().startswith(b"id: ")
        file.write_text(json.dumps(text))
        rest = first.read()
        assert b"event: refused" in rest
        assert b"has no right to subscribe" in rest
    known["subscribe"] = right
    file.write_text(json.dumps(text))
    with reading() as second:
        text["users"].remove(known)
        file.write_text(json.dumps(text))
        assert b'event: refused\ndata: {"error":"user \'shop\' was removed"}' in second.read()


def test_addresses_and_files(module, users, tmp_path):
    app = module(BANK, prelude="").app
    with app.start(workers=1) as mill:
        with pytest.raises(tm.RunError, match="not encrypted.*--insecure"):
            mill.serve("0.0.0.0", users=users[0])
        with pytest.raises(tm.RunError, match="does not ask who they are.*--insecure"):
            mill.serve("0.0.0.0")
        with pytest.raises(tm.RunError, match="cannot read the users in .*nothing"):
            mill.serve(users=tmp_path / "nothing")
        (tmp_path / "wrong").write_text('{"users": [{"name": "ada", "scram": "x", "token": "y"}]}', encoding="utf-8")
        with pytest.raises(tm.RunError, match="the verifier of 'ada'"):
            mill.serve(users=tmp_path / "wrong")


def test_a_file_that_others_may_write_is_refused(bank, module, users):
    mill, server = bank
    file, secrets = users
    for mode in (0o664, 0o606, 0o666):
        os.chmod(file, mode)
        with pytest.raises(tm.RunError, match="others may write .*chmod go-w"):
            mill.serve(users=file)
        # One that has become so lets nobody in, while the server runs.
        assert asked(server, "/tables/accounts", secrets["ada"])[0] == 503
        assert "others may write" in tidemill("user", "list", file, code=2)
    os.chmod(file, 0o644)
    assert asked(server, "/tables/accounts", secrets["ada"])[0] == 200
    with mill.serve(users=file):
        pass


def salt_of(server, user):
    with asking(server, user) as one:
        one.sendall(initial())
        return answers(one, b"R")[0][1][4:].split(b",")[1]


def test_salts_are_the_same_after_a_restart(module, users):
    app, file = module(BANK, prelude="").app, users[0]
    seen = []
    # Meanwhile another user comes, and one goes.
    changes = [("add", file, "new"), ("remove", file, "none")]
    with app.start(workers=1) as mill:
        for change in [*changes, ("list", file)]:
            with mill.serve(users=file) as server:
                seen.append({user: salt_of(server, user) for user in ("ada", "nobody", "another")})
            tidemill("user", *change)
    assert seen[0] == seen[1] == seen[2] and len(set(seen[0].values())) == 3


@contextmanager
def asking(server, user="ada"):
    with raw(server) as one:
        one.sendall(startup(user=user))
        assert answers(one, b"R")[0][1][:4] == struct.pack("!I", 10)
        yield one


FIRST = b"n,,n=,r=abc"


def initial(text=FIRST, mechanism=b"SCRAM-SHA-256"):
    return message(b"p", mechanism + b"\0" + struct.pack("!I", len(text)) + text)


def test_what_is_no_conversation_is_refused(bank):
    _, server = bank
    for sent in [
        message(b"Q", b"SELECT 1\0"),
        message(b"p"),
        message(b"p", b"secret\0"),
        initial(mechanism=b"PLAIN"),
        initial(b""),
        initial(b"p=tls-unique,,n=,r=abc"),
        initial(b"\xff\xfe"),
        message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", 2**31) + FIRST),
        b"p" + struct.pack("!I", 2**31),
        b"p" + struct.pack("!I", 3),
        initial() + message(b"p", b"\xff"),
    ]:
        with asking(server) as one:
            one.sendall(sent)
            found = answers(one, b"E")
            assert tags(found)[-1:] == b"E" and b"FATAL" in found[-1][1] and tags(found[:-1]) in (b"", b"R"), sent
    # One who is not known is told the same, and has the same salt each time.
    salts = set()
    for user in ("nobody", "nobody", "ada"):
        with asking(server, user) as one:
            one.sendall(initial())
            ((tag, body),) = answers(one, b"R")
            nonce, salt, count = body[4:].split(b",")
            salts.add(salt)
            assert (tag, nonce[:5], count) == (b"R", b"r=abc", b"i=4096")
            proof = base64.b64encode(bytes(32))
            one.sendall(message(b"p", b"c=biws," + nonce + b",p=" + proof))
            found = answers(one, b"E")
            assert b"C28P01\0" in found[-1][1]
    assert len(salts) == 2


def test_random_conversations_let_nobody_in(bank, users):
    _, server = bank
    seeded = random.Random(3)
    good = startup(user="ada") + initial() + message(b"p", b"c=biws,r=abc,p=" + base64.b64encode(bytes(32)))
    for _ in range(150):
        with raw(server) as one:
            sent = bytearray(good)
            for _ in range(seeded.randrange(0, 5)):
                sent[seeded.randrange(len(sent))] = seeded.randrange(256)
            one.sendall(bytes(sent[: seeded.randrange(1, len(sent) + 1)]))
            one.shutdown(socket.SHUT_WR)
            assert b"Z" not in tags(answers(one, b""))
    with connect(server, "ada", users[1]["ada"]) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_random_requests_of_http_harm_nobody(bank, users):
    mill, server = bank
    place = urlsplit(server.url)
    seeded = random.Random(4)

    def request(line, body=b"", token=users[1]["ada"]):
        head = f"{line} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n"
        return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body

    requests = [
        request("POST /call/note", b'{"text": "x"}'),
        request("POST /query", b"select count(*) from accounts"),
        request("GET /tables/accounts/ada") + request("GET /"),
        request("GET /metrics", token="wrong"),
    ]
    for turn in range(200):
        sent = bytearray(requests[turn % len(requests)])
        for _ in range(seeded.randrange(0, 5)):
            sent[seeded.randrange(len(sent))] = seeded.randrange(256)
        with socket.create_connection((place.hostname, place.port), timeout=20) as one:
            one.sendall(bytes(sent[: seeded.randrange(1, len(sent) + 1)]))
            one.shutdown(socket.SHUT_WR)
            while one.recv(1 << 16):
                pass
    assert asked(server, "/call/deposit", users[1]["ada"], b'{"account": "ada", "amount": 1}')[0] == 200
    assert {"id": "ada", "balance": 1} in mill.table("accounts").to_pylist()
