"""Savepoints of a state that is served: by the command, over HTTP, by SQL and by both clients, for those who may."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from test_server import BANK, ask
from test_users import tidemill

import tidemill as tm


@pytest.fixture
def app(module):
    return module(BANK, prelude="").app


def connect(server, **options):
    psycopg = pytest.importorskip("psycopg")
    return psycopg.connect(server.postgres_url, autocommit=True, **options)


def listed(state):
    return subprocess.run(
        [sys.executable, "-m", "tidemill", "savepoint", "list", str(state)], capture_output=True, text=True, check=True
    ).stdout


def post(url, path, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, _, text = ask(url, path, "", "POST", headers)
    return status, json.loads(text)


def test_a_savepoint_has_what_was_answered_before(app, module, tmp_path):
    state = tmp_path / "state"
    with app.start(state=state) as mill, mill.serve() as server, tm.connect(server.url) as client:
        epoch = client.deposit(account="ada", amount=10).epoch
        status, made = post(server.url, "/savepoints/monday")
        assert status == 200 and made["savepoint"] == "monday" and made["epoch"] >= epoch
        client.deposit(account="ada", amount=5)
        kept = client.savepoint("tuesday")
        assert kept.name == "tuesday" and kept.epoch > made["epoch"]
        client.deposit(account="ada", amount=1)
        status, unnamed = post(server.url, "/savepoints")
        assert status == 200 and unnamed["savepoint"] == f"epoch-{unnamed['epoch']}"

        async def awaited():
            async with tm.connect(server.url) as client:
                return await client.savepoint("async")

        assert asyncio.run(awaited()).name == "async"
        assert ask(server.url, "/savepoints/monday")[0] == 405
    assert {"monday", "tuesday", "async", unnamed["savepoint"]} == {
        line.split(":")[0] for line in listed(state).splitlines()
    }
    subprocess.run(
        [sys.executable, "-m", "tidemill", "savepoint", "restore", str(state), "monday"],
        check=True,
        capture_output=True,
    )
    with module(BANK, prelude="").app.start(state=state) as mill:
        assert mill.row("accounts", "ada") == {"id": "ada", "balance": 10}


@pytest.mark.parametrize("name", ["taken", "a b", ".hidden", "%2E%2E", "a%2Fb", "x" * 300])
def test_a_name_that_cannot_be_is_refused(app, tmp_path, name):
    with app.start(state=tmp_path / "state") as mill, mill.serve() as server, tm.connect(server.url) as client:
        client.savepoint("taken")
        status, said = post(server.url, f"/savepoints/{name.replace(' ', '%20')}")
        assert status == 409 and ("already" in said["error"] or "no name for a savepoint" in said["error"])
        with pytest.raises(tm.RunError, match="409"):
            client.savepoint("taken")
    assert len(listed(tmp_path / "state").splitlines()) == 1


def test_without_a_state_there_is_none(app):
    with app.start() as mill, mill.serve() as server, tm.connect(server.url) as client:
        status, said = post(server.url, "/savepoints/monday")
        assert status == 409 and "--state" in said["error"]
        with pytest.raises(tm.RunError, match="no state"):
            client.savepoint()


def test_by_sql(app, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    with app.start(state=tmp_path / "state") as mill, mill.serve() as server, connect(server) as client:
        name, epoch = client.execute("SELECT * FROM tidemill_savepoint('monday')").fetchone()
        assert name == "monday" and epoch > 0
        assert client.execute("SELECT tidemill_savepoint(%s)", ["tuesday"]).fetchone()[0] == "tuesday"
        assert client.execute("SELECT epoch FROM tidemill_savepoint(name => 'third')").fetchone()[0] > epoch
        assert client.execute("SELECT savepoint FROM tidemill_savepoint()").fetchone()[0].startswith("epoch-")
        for sql, code in [
            ("SELECT tidemill_savepoint('monday')", "22023"),
            ("SELECT tidemill_savepoint('a b')", "22023"),
            ("SELECT tidemill_savepoint('a', 'b')", "42883"),
        ]:
            with pytest.raises(psycopg.Error) as caught:
                client.execute(sql)
            assert caught.value.sqlstate == code, sql
    assert {"monday", "tuesday", "third"} < {line.split(":")[0] for line in listed(tmp_path / "state").splitlines()}
    with app.start() as mill, mill.serve() as server, connect(server) as client:
        with pytest.raises(psycopg.Error) as caught:
            client.execute("SELECT tidemill_savepoint('monday')")
        assert caught.value.sqlstate == "0A000"


def create(place, name, token=None):
    environment = {**os.environ, **({"TIDEMILL_TOKEN": token} if token else {})}
    command = [sys.executable, "-m", "tidemill", "savepoint", "create", str(place), name]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_by_the_command(app, tmp_path):
    state = tmp_path / "state"
    with app.start(state=state) as mill, mill.serve() as server:
        mill.call("deposit", account="ada", amount=10)
        done = create(server.url, "monday")
        assert done.returncode == 0 and done.stdout.startswith("savepoint monday: epoch "), done
        again = create(server.url, "monday")
        assert again.returncode == 3 and "there is a savepoint 'monday' already" in again.stderr
        of_state = create(state, "tuesday")
        assert of_state.returncode == 3 and "give the URL of the server" in of_state.stderr
    gone = create(server.url, "tuesday")
    assert gone.returncode == 3 and gone.stderr.startswith("error: "), gone
    assert listed(state).startswith("monday: epoch ")


def test_a_right_guards_it(app, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    users = tmp_path / "users.json"
    keeper = tidemill("user", "add", users, "keeper", "--savepoint").strip()
    shop = tidemill("user", "add", users, "shop", "--call", "*", "--read", "*", "--query").strip()
    admin = tidemill("user", "add", users, "admin", "--admin").strip()
    assert "keeper: savepoint" in tidemill("user", "list", users)
    with app.start(state=tmp_path / "state") as mill, mill.serve(users=users) as server:
        assert post(server.url, "/savepoints/a")[0] == 401
        status, said = post(server.url, "/savepoints/a", shop)
        assert status == 403 and said["error"] == "user 'shop' has no right to make savepoints"
        assert post(server.url, "/savepoints/a", keeper)[0] == 200
        assert post(server.url, "/savepoints/b", admin)[0] == 200
        assert create(server.url, "c").returncode == 3
        assert "no right" in create(server.url, "c", shop).stderr
        assert create(server.url, "c", keeper).returncode == 0
        with connect(server, user="shop", password=shop) as client, pytest.raises(psycopg.Error) as caught:
            client.execute("SELECT tidemill_savepoint('d')")
        assert caught.value.sqlstate == "42501"
        with connect(server, user="keeper", password=keeper) as client:
            assert client.execute("SELECT tidemill_savepoint('d')").fetchone()[0] == "d"
    assert [line.split(":")[0] for line in listed(tmp_path / "state").splitlines()] == ["a", "b", "c", "d"]
