"""Users that certificates of clients and JWTs name: over HTTP and the protocol of PostgreSQL, with keys and tokens that
other libraries make."""

import base64
import datetime
import hmac
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from server_process import add_user, running, until
from test_callers import PROGRAM

import tidemill as tm

jwt = pytest.importorskip("jwt")
psycopg = pytest.importorskip("psycopg")
trustme = pytest.importorskip("trustme")
primitives = pytest.importorskip("cryptography.hazmat.primitives")

from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: E402

ISSUER = "https://id.example"


class Signer:
    """A key of an identity provider."""

    KINDS = {
        "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate,
    }

    def __init__(self, algorithm, name):
        self.algorithm, self.name = algorithm, name
        self.key = self.KINDS[algorithm]()

    def public(self):
        written = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.key.public_key())
        return {**json.loads(written), "kid": self.name}

    def pem(self):
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form)

    def token(self, name=None, **changed):
        return jwt.encode(claims(**changed), self.key, self.algorithm, headers={"kid": name or self.name})


def claims(**changed):
    return {"iss": ISSUER, "aud": "bank", "sub": "ada", "exp": int(time.time()) + 3_600, **changed}


def forged(header, content, sign):
    """A token whose signature is ``sign`` of the rest."""
    parts = [json.dumps(part).encode() for part in (header, content)]
    message = b".".join(base64url(part) for part in parts)
    return (message + b"." + base64url(sign(message))).decode()


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def write_keys(folder, *signers):
    part = folder / "jwks.part"
    part.write_text(json.dumps({"keys": [signer.public() for signer in signers]}), encoding="utf-8")
    part.chmod(0o600)
    os.replace(part, folder / "jwks.json")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    """The certificate of a server, and certificates of clients that its authority, another one and time have."""
    folder = tmp_path_factory.mktemp("named")
    server, clients, other = trustme.CA(), trustme.CA(), trustme.CA()
    server.cert_pem.write_to_path(str(folder / "ca.pem"))
    clients.cert_pem.write_to_path(str(folder / "clients.pem"))
    other.cert_pem.write_to_path(str(folder / "other-clients.pem"))
    now = datetime.datetime.now(datetime.timezone.utc)
    issued = {
        "server": server.issue_cert("127.0.0.1"),
        "ada": clients.issue_cert(common_name="ada"),
        "till": clients.issue_cert(common_name="till"),
        "stranger": clients.issue_cert(common_name="stranger"),
        "other": other.issue_cert(common_name="ada"),
        "over": clients.issue_cert(
            common_name="ada", not_before=now - datetime.timedelta(days=9), not_after=now - datetime.timedelta(days=1)
        ),
    }
    for name, one in issued.items():
        (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in one.cert_chain_pems))
        one.private_key_pem.write_to_path(str(folder / f"{name}-key.pem"))
        (folder / f"{name}-key.pem").chmod(0o600)
    return folder


@pytest.fixture
def secret(tmp_path):
    """The secret of ada, in a file with till, which has none."""
    add_user(tmp_path, "till", "--no-secret", "--call", "write")
    return add_user(tmp_path, "ada", "--admin")


@pytest.fixture
def session(module):
    app = module(PROGRAM, prelude="").app
    with app.start(workers=1) as mill:
        yield mill


def encrypted(authorities):
    return {"tls_cert": authorities / "server.pem", "tls_key": authorities / "server-key.pem"}


def pair(authorities, name):
    return authorities / f"{name}.pem", authorities / f"{name}-key.pem"


def ask(server, path, body=None, token=None, cert=None, ca=None):
    """The status, the text and the headers of a response."""
    place = urlsplit(server.url)
    if place.scheme == "https":
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(*cert)
        client = http.client.HTTPSConnection(place.hostname, place.port, timeout=20, context=context)
    else:
        client = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        client.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        response = client.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        client.close()


def connect(server, user, ca, cert=None, password=None):
    options = {} if cert is None else {"sslcert": str(cert[0]), "sslkey": str(cert[1])}
    return psycopg.connect(
        server.postgres_url.split("?")[0],
        user=user,
        password=password,
        sslmode="verify-full",
        sslrootcert=str(ca),
        autocommit=True,
        passfile="/nothing",
        **options,
    )


def test_a_certificate_names_a_user(session, authorities, secret, tmp_path):
    ca = authorities / "ca.pem"
    options = {**encrypted(authorities), "users": tmp_path / "users.json", "tls_client_ca": authorities / "clients.pem"}
    with session.serve(**options) as server:
        ada, till = pair(authorities, "ada"), pair(authorities, "till")
        for cert, name in ((ada, "ada"), (till, "till")):
            status, text, _ = ask(server, "/call/write", {"id": name}, cert=cert, ca=ca)
            assert (status, json.loads(text)["committed"]["by"]) == (200, name)
            with connect(server, name, ca, cert) as db:
                assert db.execute("SELECT by FROM write('p')").fetchone() == (name,)
        with tm.connect(server.url, ca=ca, cert=till) as client:
            assert client.write(id="c")["by"] == "till"
            assert [reply["by"] for reply in client.call_all("write", [{"id": "d"}, {"id": "e"}])] == ["till"] * 2
        # Rights are those of the file.
        assert ask(server, "/tables/notes", cert=ada, ca=ca)[0] == 200
        assert ask(server, "/tables/notes", cert=till, ca=ca)[0] == 403
        with connect(server, "till", ca, till) as db, pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("SELECT * FROM notes")
        # One who has none is asked for the secret.
        assert ask(server, "/tables/notes", ca=ca)[0] == 401
        assert ask(server, "/tables/notes", token=secret, ca=ca)[0] == 200
        with connect(server, "ada", ca, password=secret) as db:
            assert db.execute("SELECT current_user").fetchone() == ("ada",)
        # Nobody is another one than the certificate says.
        assert ask(server, "/tables/notes", token=secret, cert=ada, ca=ca)[0] == 200
        for cert in (till, pair(authorities, "stranger")):
            assert ask(server, "/tables/notes", token=secret, cert=cert, ca=ca)[0] == 401
            with pytest.raises(psycopg.OperationalError, match="certificate authentication failed for user .ada."):
                connect(server, "ada", ca, cert, secret)
        assert ask(server, "/call/write", {"id": "s"}, cert=pair(authorities, "stranger"), ca=ca)[0] == 401
        assert ask(server, "/tables/notes", token="wrong", cert=ada, ca=ca)[0] == 401
        for name in ("other", "over"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                ask(server, "/health", cert=pair(authorities, name), ca=ca)
            with pytest.raises(psycopg.OperationalError):
                connect(server, "ada", ca, pair(authorities, name), secret)


def test_a_certificate_may_be_required(session, authorities, secret, tmp_path):
    ca, authority = authorities / "ca.pem", tmp_path / "clients.pem"
    authority.write_bytes((authorities / "clients.pem").read_bytes())
    options = {**encrypted(authorities), "users": tmp_path / "users.json", "tls_client_ca": authority}
    with session.serve(**options, tls_client="required") as server:
        assert ask(server, "/health", cert=pair(authorities, "ada"), ca=ca)[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(server, "/health", token=secret, ca=ca)
        with pytest.raises(psycopg.OperationalError):
            connect(server, "ada", ca, password=secret)
        # Another authority counts from the next connection on.
        authority.write_bytes((authorities / "other-clients.pem").read_bytes())
        assert until(lambda: is_let_in(server, authorities, "other"))
        assert not is_let_in(server, authorities, "ada")


def is_let_in(server, authorities, name):
    try:
        return ask(server, "/tables/notes", cert=pair(authorities, name), ca=authorities / "ca.pem")[0] == 200
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_jwt_names_a_user(session, authorities, secret, tmp_path, algorithm):
    signer, other = Signer(algorithm, "a"), Signer("EdDSA", "b")
    write_keys(tmp_path, signer, other)
    ca = authorities / "ca.pem"
    options = {
        **encrypted(authorities),
        "users": tmp_path / "users.json",
        "jwt_keys": tmp_path / "jwks.json",
        "jwt_issuer": ISSUER,
        "jwt_audience": "bank",
    }
    with session.serve(**options) as server:
        for name in ("ada", "till"):
            status, text, _ = ask(server, "/call/write", {"id": name}, signer.token(sub=name), ca=ca)
            assert (status, json.loads(text)["committed"]["by"]) == (200, name)
        till = signer.token(sub="till")
        with tm.connect(server.url, ca=ca, token=till) as client:
            assert client.write(id="c")["by"] == "till"
        assert ask(server, "/tables/notes", token=till, ca=ca)[0] == 403
        assert ask(server, "/tables/notes", token=signer.token(aud=["shop", "bank"]), ca=ca)[0] == 200
        assert ask(server, "/tables/notes", token=secret, ca=ca)[0] == 200
        with connect(server, "till", ca, password=till) as db:
            assert db.execute("SELECT by FROM write('p')").fetchone() == ("till",)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute("SELECT * FROM notes")
        # A user with a secret gives that one, and a token names its own user.
        with connect(server, "ada", ca, password=secret) as db:
            assert db.execute("SELECT current_user").fetchone() == ("ada",)
        for user, password in (("ada", signer.token()), ("till", signer.token()), ("till", secret), ("till", "x")):
            with pytest.raises(psycopg.OperationalError, match=f"password authentication failed for user .{user}."):
                connect(server, user, ca, password=password)
        expired = signer.token(sub="till", exp=int(time.time()) - 120)
        with pytest.raises(psycopg.OperationalError, match="the token has expired"):
            connect(server, "till", ca, password=expired)
        for token in wrong_tokens(signer, other):
            status, text, headers = ask(server, "/call/write", {"id": "w"}, token, ca=ca)
            assert (status, json.loads(text)["error"]) == (401, "no user has this token"), token
            assert headers.get_all("WWW-Authenticate")[0].startswith('Bearer error="invalid_token"')
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                connect(server, "till", ca, password=token)
        for changed, why in (
            ({"exp": int(time.time()) - 120}, "the token has expired"),
            ({"nbf": int(time.time()) + 3_000}, "the token is not valid yet"),
        ):
            status, text, headers = ask(server, "/call/write", {"id": "w"}, signer.token(**changed), ca=ca)
            assert (status, json.loads(text)["error"]) == (401, why)
            assert why in headers.get_all("WWW-Authenticate")[0]


def wrong_tokens(signer, other):
    """Tokens that name till or nobody, and must not be taken."""
    till = claims(sub="till")
    head = {"alg": signer.algorithm, "kid": signer.name}
    secret = signer.pem()
    good = signer.token(sub="till")
    yield signer.token(sub="till", aud="shop")
    yield signer.token(sub="till", iss="https://other.example")
    yield signer.token(sub="nobody")
    yield signer.token("unknown", sub="till")
    yield other.token(signer.name, sub="till")
    yield Signer(signer.algorithm, signer.name).token(sub="till")
    yield forged({**head, "alg": "none"}, till, lambda _: b"")
    yield forged(head, till, lambda _: b"")
    yield forged({**head, "alg": "HS256"}, till, lambda message: hmac.digest(secret, message, "sha256"))
    yield good.rsplit(".", 1)[0] + "."
    yield good.split(".")[0] + "." + base64url(json.dumps(till).encode()).decode() + "." + good.split(".")[2]
    yield good + "x" * 9_000
    yield ".."
    yield signer.token(sub="till", exp=int(time.time()) - 120, aud="shop")


def test_keys_are_replaced_while_it_runs(session, secret, tmp_path):
    first, second = Signer("ES256", "first"), Signer("EdDSA", "second")
    write_keys(tmp_path, first)
    keys = tmp_path / "jwks.json"
    options = {"users": tmp_path / "users.json", "jwt_keys": keys, "jwt_issuer": ISSUER, "jwt_audience": "bank"}
    with session.serve(**options) as server:

        def status(signer):
            return ask(server, "/tables/notes", token=signer.token())[0]

        assert (status(first), status(second)) == (200, 401)
        write_keys(tmp_path, first, second)
        assert until(lambda: status(second) == 200)
        assert status(first) == 200
        write_keys(tmp_path, second)
        assert until(lambda: status(first) == 401)
        assert status(second) == 200
        # Without keys nothing is known of a token, and secrets are as before.
        keys.write_text("{}", encoding="utf-8")
        assert until(lambda: status(second) == 503)
        assert ask(server, "/tables/notes", token=secret)[0] == 200
        write_keys(tmp_path, second)
        assert until(lambda: status(second) == 200)
        # A token is never sent where it could be heard.
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.postgres_url, user="till", password=second.token(sub="till"), passfile="/nothing")
        # A user that is removed is not let in by a token either.
        assert ask(server, "/call/write", {"id": "t"}, second.token(sub="till"))[0] == 200
        command = [sys.executable, "-m", "tidemill", "user", "remove", str(tmp_path / "users.json"), "till"]
        subprocess.run(command, check=True)
        assert until(lambda: ask(server, "/call/write", {"id": "t"}, second.token(sub="till"))[0] == 401)


def test_wrong_settings_are_named(session, authorities, secret, tmp_path):
    write_keys(tmp_path, Signer("EdDSA", "a"))
    users, keys = tmp_path / "users.json", tmp_path / "jwks.json"
    named = {"jwt_issuer": ISSUER, "jwt_audience": "bank"}
    with pytest.raises(tm.PlanError, match="of an issuer and for an audience"):
        session.serve(users=users, jwt_keys=keys)
    with pytest.raises(tm.PlanError, match="shown over TLS"):
        session.serve(users=users, tls_client_ca=authorities / "clients.pem")
    with pytest.raises(tm.PlanError, match="neither 'optional' nor 'required'"):
        session.serve(users=users, **encrypted(authorities), tls_client="perhaps")
    with pytest.raises(tm.RunError, match="give it with --users"):
        session.serve(jwt_keys=keys, **named)
    with pytest.raises(tm.RunError, match="cannot read the keys of JWTs in .*nothing"):
        session.serve(users=users, jwt_keys=tmp_path / "nothing", **named)
    with pytest.raises(tm.RunError, match="cannot read the certificate in '.*nothing'"):
        session.serve(users=users, **encrypted(authorities), tls_client_ca=tmp_path / "nothing")
    keys.chmod(0o622)
    with pytest.raises(tm.RunError, match="others may write .*jwks.json"):
        session.serve(users=users, jwt_keys=keys, **named)
    keys.chmod(0o600)
    keys.write_text('{"keys": [{"kty": "oct", "k": "AAAA"}]}', encoding="utf-8")
    with pytest.raises(tm.RunError, match="it has no key of RSA"):
        session.serve(users=users, jwt_keys=keys, **named)
    with pytest.raises(tm.RunError, match="cannot use the certificate and key in .*ada.pem.*nothing"):
        tm.connect("https://127.0.0.1:1", cert=(authorities / "ada.pem", tmp_path / "nothing"))


def test_the_command_takes_jwts(secret, tmp_path):
    signer = Signer("ES256", "a")
    write_keys(tmp_path, signer)
    command = [sys.executable, "-m", "tidemill", "serve", "x.py", "--users", "users.json", "--jwt-keys", "jwks.json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "--jwt-audience" in ran.stderr
    options = ("--users", "users.json", "--jwt-keys", "jwks.json", "--jwt-issuer", ISSUER, "--jwt-audience", "bank")
    with running(tmp_path, *options, program=PROGRAM) as server:
        bearer = {"Authorization": f"Bearer {signer.token(sub='till')}"}
        status, reply = server.call("write", {"id": "a"}, **bearer)
        assert (status, reply["committed"]["by"]) == (200, "till")
        lines = json.dumps({"call": "write", "fields": {"id": "b"}}).encode()
        status, replies = server.ask("POST", "/calls", lines, bearer)
        assert (status, json.loads(replies)["reply"]["committed"]["by"]) == (200, "till")
        assert server.ask("GET", "/tables/notes", headers=bearer)[0] == 403
