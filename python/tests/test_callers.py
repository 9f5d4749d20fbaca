"""Who makes a call: the fields that the server fills in."""

import json
import subprocess
import sys

import pytest
from server_process import add_user, running

import tidemill as tm
from tidemill import testing
from tidemill.loading import load

PROGRAM = """
import tidemill as tm

class Note(tm.Row):
    id: str = tm.key()
    by: str | None = None
    over: str | None = None

class Write(tm.Event):
    id: str
    by: str | None = tm.caller()
    over: str | None = tm.caller("protocol")

class Sign(tm.Event):
    user: str = tm.caller()
    id: str

app = tm.App("notes")
notes = app.table(Note)
writes = app.requests(Write, remember="1h")
signs = app.requests(Sign)

@app.transaction(writes)
def write(ev, n=notes.row("id", create=True)):
    n.by = ev.by
    n.over = ev.over
    return {"id": n.id, "by": n.by}

@app.transaction(signs)
def sign(ev, n=notes.row("id")):
    tm.require(ev.user == n.by, "another has written it")
    return {"user": ev.user}
"""


def of(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_the_server_says_who_calls(tmp_path):
    psycopg = pytest.importorskip("psycopg")
    rights = ("--call", "*", "--push", "*", "--read", "*", "--savepoint")
    ada, bob = (add_user(tmp_path, name, *rights) for name in ("ada", "bob"))
    with running(tmp_path, "--users", "users.json", "--state", "state", program=PROGRAM) as server:
        # It keeps the log.
        assert server.ask("POST", "/savepoints/start", headers=of(ada))[0] == 200
        status, reply = server.call("write", {"id": "a"}, **of(ada))
        assert (status, reply["committed"]) == (200, {"id": "a", "by": "ada"})
        # Nobody says that he is another.
        for field in ("by", "over"):
            status, reply = server.call("write", {"id": "b", field: "bob"}, **of(ada))
            assert status == 422, reply
            assert "no such field" in reply["error"]
        lines = "".join(json.dumps({"call": "write", "fields": {"id": name}}) + "\n" for name in "bc")
        status, replies = server.ask("POST", "/calls", lines.encode(), of(bob))
        assert [json.loads(line)["reply"]["committed"]["by"] for line in replies.splitlines()] == ["bob", "bob"]
        with psycopg.connect(
            host=server.postgres[0], port=server.postgres[1], user="bob", password=bob, autocommit=True
        ) as db:
            assert db.execute("select * from write('d')").fetchall() == [("d", "bob")]
            assert db.execute("select by, over from notes where id = 'd'").fetchall() == [("bob", "postgresql")]
            with pytest.raises(psycopg.Error, match="write"):
                db.execute("select * from write('e', by => 'ada')")
            with pytest.raises(psycopg.Error, match="another has written it"):
                db.execute("select * from sign('a')")
        # A push is a call that nobody waits for.
        assert server.ask("POST", "/stream/writes", b'{"id": "p"}', of(bob))[0] == 200
        status, text = server.ask("POST", "/stream/writes", b'{"id": "p", "by": "ada"}', of(bob))
        assert status == 422, text
        assert json.loads(server.ask("GET", "/tables/notes/p", headers=of(bob))[1])["by"] == "bob"
        assert server.call("sign", {"id": "a"}, **of(ada))[1]["committed"] == {"user": "ada"}
        assert server.call("sign", {"id": "a"}, **of(bob))[0] == 409
        with tm.connect(server.url, token=ada) as client:
            assert client.write(id="x").value == {"id": "x", "by": "ada"}
        assert "by" not in json.loads(server.ask("GET", "/", headers=of(ada))[1])["POST /call/NAME"]["write"]
        paths = json.loads(server.ask("GET", "/openapi.json", headers=of(ada))[1])["paths"]
        asked = paths["/call/write"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert list(asked["properties"]) == ["id"]
        server.check_end()
    arguments = [sys.executable, "-m", "tidemill", "txn", "show", "state", "writes:0"]
    shown = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "ada" in shown, shown


def test_a_key_of_another_caller_is_another_call(tmp_path):
    psycopg = pytest.importorskip("psycopg")
    ada, bob = (add_user(tmp_path, name, "--call", "*") for name in ("ada", "bob"))
    with running(tmp_path, "--users", "users.json", "--state", "state", program=PROGRAM) as server:
        key = {"Idempotency-Key": "one"}
        for _ in range(2):
            for name, secret in (("ada", ada), ("bob", bob)):
                status, reply = server.call("write", {"id": "a"}, **of(secret), **key)
                assert (status, reply["committed"]["by"]) == (200, name)
        # A call with the same key by another protocol.
        with psycopg.connect(
            host=server.postgres[0], port=server.postgres[1], user="ada", password=ada, autocommit=True
        ) as db:
            assert db.execute("select * from write('a', idempotency_key => 'one')").fetchall() == [("a", "ada")]


def test_calls_of_nobody(tmp_path):
    with running(tmp_path, program=PROGRAM) as server:
        assert server.call("write", {"id": "a"})[1]["committed"] == {"id": "a", "by": None}
        status, reply = server.call("sign", {"id": "a"})
        assert status == 403
        assert "'user'" in reply["error"]
        assert server.ask("POST", "/stream/signs", b'{"id": "a"}')[0] == 403
        assert json.loads(server.ask("GET", "/tables/notes/a")[1])["over"] == "http"


def test_a_program_says_itself_who_calls(tmp_path):
    (tmp_path / "notes.py").write_text(PROGRAM, encoding="utf-8")
    with testing.start(load(str(tmp_path / "notes.py"))) as trial:
        assert trial.call("write", id="a").value == {"id": "a", "by": None}
        assert trial.call("write", id="a", by="ada").value == {"id": "a", "by": "ada"}
        assert trial.call("sign", id="a", user="ada").value == {"user": "ada"}
        with pytest.raises(tm.SchemaError, match="user"):
            trial.call("sign", id="a")


def declared(**fields):
    types = {name: of for name, (of, _) in fields.items()}
    values = {name: value for name, (_, value) in fields.items()}
    return type("Ask", (tm.Event,), {"__annotations__": types, **values})


def test_what_a_caller_is_not():
    with pytest.raises(tm.SchemaError, match="caller of type int"):
        declared(by=(int, tm.caller()))
    with pytest.raises(tm.SchemaError, match="several callers: a, b"):
        declared(a=(str, tm.caller()), b=(str, tm.caller()))
    with pytest.raises(tm.SchemaError, match="no 'address'"):
        tm.caller("address")
    with pytest.raises(tm.SchemaError, match="rows do not have"):
        type("Sat", (tm.Row,), {"__annotations__": {"id": str, "by": str}, "id": tm.key(), "by": tm.caller()})
    app = tm.App("a")
    with pytest.raises(tm.PlanError, match="'by' has the caller, and events that are no calls have none"):
        app.source(declared(by=(str, tm.caller())))
