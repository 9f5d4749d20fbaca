"""A server that encrypts: over HTTP and the protocol of PostgreSQL, with certificates that a test authority signs."""

import asyncio
import json
import os
import random
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from test_postgres import BANK, raw, startup

import tidemill as tm

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")
trustme = pytest.importorskip("trustme")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of an authority, and of a certificate of 127.0.0.1 with its key."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in own.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    trustme.CA().cert_pem.write_to_path(str(folder / "other-ca.pem"))
    trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(str(folder / "other-key.pem"))
    return folder


@pytest.fixture
def bank(module, files):
    app = module(BANK, prelude="").app
    with app.start(workers=1) as mill:
        with mill.serve(tls_cert=files / "cert.pem", tls_key=files / "key.pem") as server:
            yield mill, server


def test_clients_of_http(bank, files):
    mill, server = bank
    assert server.url.startswith("https://")
    with tm.connect(server.url, ca=files / "ca.pem") as client:
        assert client.deposit(account="ada", amount=10)["balance"] == 10
        with client.follow("deposit.committed") as events:
            for amount in range(1, 200):
                client.deposit(account="ada", amount=amount)
                assert next(events)["balance"] == 10 + amount * (amount + 1) // 2
        names = [f"a{number}" for number in range(5000)]
        mill.call_all("deposit", [{"account": name, "amount": 1} for name in names])
        with urlopen(
            server.url + "/tables/accounts", context=ssl.create_default_context(cafile=files / "ca.pem")
        ) as rows:
            assert len(rows.read().splitlines()) == 5001
        with pytest.raises(tm.Aborted, match="amount must be positive"):
            client.deposit(account="ada", amount=0)

    async def asynchronous():
        async with tm.connect(server.url, ca=files / "ca.pem") as client:
            replies = await asyncio.gather(*(client.deposit(account="bob", amount=1) for _ in range(300)))
            return sorted(reply["balance"] for reply in replies)

    assert asyncio.run(asynchronous()) == list(range(1, 301))


def test_certificates_are_looked_at(bank, files):
    _, server = bank
    for client in (tm.connect(server.url), tm.connect(server.url, ca=files / "other-ca.pem")):
        with client, pytest.raises(tm.RunError, match="certificate verify failed"):
            client.deposit(account="ada", amount=1)
    with pytest.raises(tm.RunError, match="cannot read the certificates in .*nothing"):
        tm.connect(server.url, ca=files / "nothing")


def test_who_does_not_encrypt_is_refused(bank):
    _, server = bank
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.endswith(
        b"\r\n\r\nthis server speaks TLS: ask with https://\n"
    )
    with pytest.raises(tm.RunError, match="this server speaks TLS"):
        tm.connect(server.url.replace("https", "http")).deposit(account="ada", amount=1)
    with pytest.raises(psycopg.OperationalError, match="this server speaks TLS only"):
        psycopg.connect(server.postgres_url, sslmode="disable")


def test_clients_of_postgres(bank, files):
    _, server = bank
    root = str(files / "ca.pem")
    with psycopg.connect(server.postgres_url, sslmode="verify-full", sslrootcert=root, autocommit=True) as client:
        assert client.execute("SELECT balance FROM deposit('ada', 10)").fetchone() == (10,)
        with client.pipeline():
            cursors = [client.execute("SELECT balance FROM deposit(%s, 1)", [f"a{n}"]) for n in range(3000)]
            assert all(cursor.fetchone() == (1,) for cursor in cursors)
        assert len(client.execute("SELECT * FROM accounts").fetchall()) == 3001
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        other = str(files / "other-ca.pem")
        psycopg.connect(server.postgres_url, sslmode="verify-full", sslrootcert=other)

    async def asynchronous():
        tls = ssl.create_default_context(cafile=root)
        client = await asyncpg.connect(server.postgres_url.split("?")[0], ssl=tls)
        try:
            return await client.fetchval("SELECT balance FROM deposit($1, $2)", "eve", 7)
        finally:
            await client.close()

    assert asyncio.run(asynchronous()) == 7


@pytest.mark.skipif(shutil.which("psql") is None, reason="there is no psql")
def test_psql(bank, files):
    _, server = bank
    command = ["psql", f"{server.postgres_url}", "-Atc", "SELECT balance FROM deposit('ada', 10)"]
    settings = {**os.environ, "PGSSLMODE": "verify-full", "PGSSLROOTCERT": str(files / "ca.pem")}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=settings)
    assert (ran.stdout, ran.returncode) == ("10\n", 0), ran.stderr


def test_a_broken_handshake_harms_nobody(bank, files):
    _, server = bank
    random.seed(1)
    places = [urlsplit(server.url), urlsplit(server.postgres_url)]
    request = tls_request()
    open_ones = []
    for trial in range(60):
        place = places[trial % 2]
        one = socket.create_connection((place.hostname, place.port), timeout=20)
        if trial % 2:
            one.sendall(request)
            assert one.recv(1) == b"S"
        one.sendall(b"\x16" + random.randbytes(random.randrange(300)))
        if trial % 3:
            one.close()
        else:
            # Silent in the middle of its handshake.
            open_ones.append(one)
    with tm.connect(server.url, ca=files / "ca.pem") as client:
        assert client.deposit(account="ada", amount=1)["balance"] == 1
    root = str(files / "ca.pem")
    with psycopg.connect(server.postgres_url, sslrootcert=root, autocommit=True) as client:
        assert client.execute("SELECT balance FROM deposit('ada', 1)").fetchone() == (2,)
    for one in open_ones:
        one.close()


def tls_request():
    return (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")


def test_a_connection_is_encrypted_once(bank, files):
    _, server = bank
    place = urlsplit(server.postgres_url)
    tls = ssl.create_default_context(cafile=files / "ca.pem")
    with socket.create_connection((place.hostname, place.port), timeout=20) as plain:
        # Bytes that follow the question in clear are not taken for encrypted ones (CVE-2021-23214).
        plain.sendall(tls_request() + startup())
        assert b"bytes follow a question for encryption" in plain.recv(1000)
    with socket.create_connection((place.hostname, place.port), timeout=20) as plain:
        plain.sendall(tls_request())
        assert plain.recv(1) == b"S"
        with tls.wrap_socket(plain, server_hostname="127.0.0.1") as inner:
            inner.sendall(tls_request())
            assert b"this question for encryption was answered before" in inner.recv(1000)


def test_a_server_without_a_certificate_says_no(module):
    app = module(BANK, prelude="").app
    with app.start(workers=1) as mill, mill.serve() as server:
        with raw(server) as plain:
            plain.sendall(tls_request())
            assert plain.recv(1) == b"N"
        with psycopg.connect(server.postgres_url, sslmode="prefer", autocommit=True) as client:
            assert client.execute("SELECT balance FROM deposit('ada', 1)").fetchone() == (1,)


def tidemill(*arguments, code):
    command = [sys.executable, "-m", "tidemill", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == code, ran.stderr
    return ran


def test_other_machines_are_served_with_users_and_a_certificate(module, files, tmp_path):
    users = tmp_path / "users.json"
    secret = tidemill("user", "add", users, "ada", "--admin", code=0).stdout.strip()
    app = module(BANK, prelude="").app
    tls = {"tls_cert": files / "cert.pem", "tls_key": files / "key.pem"}
    with app.start(workers=1) as mill:
        with pytest.raises(tm.RunError, match="does not ask who they are"):
            mill.serve("0.0.0.0", **tls)
        with mill.serve("0.0.0.0", users=users, **tls) as server:
            url = f"https://127.0.0.1:{urlsplit(server.url).port}"
            with tm.connect(url, ca=files / "ca.pem", token=secret) as client:
                assert client.deposit(account="ada", amount=1)["balance"] == 1
            with tm.connect(url, ca=files / "ca.pem", token="wrong") as client, pytest.raises(tm.RunError, match="401"):
                client.deposit(account="ada", amount=1)
            port = urlsplit(server.postgres_url).port
            place = f"postgresql://ada@127.0.0.1:{port}/bank"
            root = str(files / "ca.pem")
            with psycopg.connect(place, password=secret, sslmode="verify-full", sslrootcert=root) as client:
                assert client.execute("SELECT balance FROM accounts WHERE id = 'ada'").fetchone() == (1,)


def test_a_renewed_certificate_is_taken(module, files, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def renew():
        own = authority.issue_cert("127.0.0.1")
        (tmp_path / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
        (tmp_path / "key.pem").write_bytes(own.private_key_pem.bytes())

    def shown(server):
        place = urlsplit(server.url)
        return ssl.get_server_certificate((place.hostname, place.port), ca_certs=str(tmp_path / "ca.pem"))

    renew()
    app = module(BANK, prelude="").app
    with (
        app.start(workers=1) as mill,
        mill.serve(tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem") as server,
        tm.connect(server.url, ca=tmp_path / "ca.pem") as client,
    ):
        before = shown(server)
        assert client.deposit(account="ada", amount=1)["balance"] == 1
        # Neither one file without the other, nor what is no certificate, is taken.
        (tmp_path / "key.pem").write_bytes((files / "other-key.pem").read_bytes())
        assert shown(server) == before
        (tmp_path / "cert.pem").write_text("no certificate")
        assert shown(server) == before
        renew()
        after = shown(server)
        assert after != before
        assert after.strip() in (tmp_path / "cert.pem").read_text()
        # A connection that is open goes on.
        assert client.deposit(account="ada", amount=1)["balance"] == 2
        url = f"{server.postgres_url.split('?')[0]}?sslmode=verify-ca&sslrootcert={tmp_path / 'ca.pem'}"
        with psycopg.connect(url, autocommit=True) as db:
            assert db.execute("select balance from deposit('ada', 1)").fetchone() == (3,)


def test_wrong_files_are_named(module, files, tmp_path):
    app = module(BANK, prelude="").app
    cert, key = files / "cert.pem", files / "key.pem"
    (tmp_path / "empty.pem").write_text("nothing", encoding="utf-8")
    with app.start(workers=1) as mill:
        with pytest.raises(tm.PlanError, match="a certificate comes with its key"):
            mill.serve(tls_cert=cert)
        for wrong, message in [
            ((tmp_path / "none.pem", key), "cannot read the certificate in '.*none.pem'"),
            ((tmp_path / "empty.pem", key), "there is no certificate in it"),
            ((cert, tmp_path / "empty.pem"), "there is no key in it"),
            ((cert, files / "other-key.pem"), "cannot be used with the key in '.*other-key.pem'"),
        ]:
            with pytest.raises(tm.RunError, match=message):
                mill.serve(tls_cert=wrong[0], tls_key=wrong[1])


def test_the_command_serves_encrypted(files, tmp_path):
    (tmp_path / "bank.py").write_text(BANK, encoding="utf-8")
    bank = tmp_path / "bank.py"
    assert "--tls-key" in tidemill("serve", bank, "--tls-cert", files / "cert.pem", code=2).stderr
    wrong = tidemill("serve", bank, "--tls-cert", tmp_path / "none", "--tls-key", files / "key.pem", code=2)
    assert "cannot read the certificate" in wrong.stderr
    arguments = ["--port", "0", "--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")]
    command = [sys.executable, "-m", "tidemill", "serve", str(bank), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        url = line.split(" on ")[1].split(" and ")[0]
        assert url.startswith("https://") and "sslmode=require" in line
        context = ssl.create_default_context(cafile=files / "ca.pem")
        with urlopen(url + "/health", context=context, timeout=20) as answer:
            assert json.loads(answer.read())
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def test_a_password_is_bound_to_the_certificate(module, files, tmp_path):
    file = str(tmp_path / "users.json")
    command = [sys.executable, "-m", "tidemill", "user", "add", file, "ada", "--admin"]
    secret = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    app = module(BANK, prelude="").app
    with app.start(workers=1) as mill:
        options = {"tls_cert": files / "cert.pem", "tls_key": files / "key.pem", "users": file}
        with mill.serve(**options) as server:

            def connect(**more):
                return psycopg.connect(server.postgres_url, user="ada", autocommit=True, **more)

            for binding in ("require", "prefer", "disable"):
                with connect(password=secret, channel_binding=binding) as db:
                    assert db.execute("SELECT balance FROM deposit('ada', 1)").fetchone() is not None
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                connect(password="wrong", channel_binding="require")
            # Who terminates TLS in between has another certificate.
            with between(server, files) as port, pytest.raises(psycopg.OperationalError):
                psycopg.connect(
                    f"postgresql://127.0.0.1:{port}/bank?sslmode=require",
                    user="ada",
                    password=secret,
                    channel_binding="require",
                )
            with between(server, files) as port:
                unbound = psycopg.connect(
                    f"postgresql://127.0.0.1:{port}/bank?sslmode=require",
                    user="ada",
                    password=secret,
                    channel_binding="disable",
                )
                unbound.close()

        async def main(url):
            db = await asyncpg.connect(url, user="ada", password=secret, ssl="require")
            assert await db.fetchval("SELECT balance FROM deposit('eve', 1)") == 1
            await db.close()

        with mill.serve(**options) as server:
            asyncio.run(main(server.postgres_url.split("?")[0]))
        with mill.serve(users=file) as server, pytest.raises(psycopg.OperationalError):
            # Without a certificate there is nothing to bind to.
            psycopg.connect(server.postgres_url, user="ada", password=secret, channel_binding="require")


@contextmanager
def between(server, files):
    """One in between, who has a certificate of its own and passes on what is said."""
    own = trustme.CA().issue_cert("127.0.0.1")
    shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.configure_cert(shows)
    trusts = ssl.create_default_context(cafile=files / "ca.pem")
    place = urlsplit(server.postgres_url)
    question = struct.pack("!II", 8, 80877103)

    def passes(*pair):
        for one in pair:
            one.settimeout(0.02)
        while True:
            for source, target in (pair, pair[::-1]):
                try:
                    data = source.recv(1 << 16)
                except TimeoutError:
                    continue
                if not data:
                    return
                target.sendall(data)

    def serve():
        client, _ = listener.accept()
        client.recv(8)
        client.sendall(b"S")
        client = shows.wrap_socket(client, server_side=True)
        real = socket.create_connection((place.hostname, place.port))
        real.sendall(question)
        real.recv(1)
        real = trusts.wrap_socket(real, server_hostname="127.0.0.1")
        with client, real, suppress(OSError):
            passes(client, real)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()
