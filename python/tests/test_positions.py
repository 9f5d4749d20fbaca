"""Positions name their history: one of another state, or of before a return to a savepoint, is refused, never skipped over."""

import json
import subprocess
import sys

import pytest
from test_server import ask, served

import tidemill as tm

KEEP = {"deposit.committed": 1000}
COUNTER = """
import tidemill as tm

app = tm.App("counter")

class Account(tm.Row):
    id: str = tm.key()
    count: int = 0

class Deposit(tm.Event):
    account: str

accounts = app.table(Account)
deposits = app.requests(Deposit)

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True)):
    a.count += 1
    return {"count": a.count}
"""


@pytest.fixture
def app(module):
    return module(COUNTER, prelude="").app


def savepoint(*words):
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", "savepoint", *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def deposited(app, state, count):
    """The positions after some calls of a state that was never put back."""
    with app.start(workers=1, keep=KEEP, state=state) as mill:
        for _ in range(count):
            mill.call("deposit", account="ada")
        follower = mill.follow("deposit.committed", after="0")
        return [next(follower).position for _ in range(count)]


@pytest.fixture
def restored(app, tmp_path):
    """A state that was put back to a savepoint and has gone on, and a position of before, which has events after it there too."""
    state = tmp_path / "state"
    deposited(app, state, 3)
    savepoint("create", state, "then")
    position = deposited(app, state, 5)[-1]
    savepoint("restore", state, "then")
    with app.start(workers=1, keep=KEEP, state=state) as mill:
        for _ in range(20):
            mill.call("deposit", account="bob")
    return state, position


def test_a_position_of_before_a_restore_is_refused(app, restored):
    state, position = restored
    with served(app, state=state, keep=KEEP) as (mill, server), tm.connect(server.url) as client:
        with pytest.raises(tm.GoneError, match="before it was put back to a savepoint") as gone:
            mill.follow("deposit.committed", after=position)
        kept = gone.value.kept
        assert kept.endswith("-1")
        with pytest.raises(tm.GoneError, match="before it was put back to a savepoint"):
            client.follow("deposit.committed", after=position)
        status, _, text = ask(server.url, "/streams/deposit.committed", headers={"Last-Event-ID": position})
        assert status == 410
        assert json.loads(text)["kept"] == kept
        # A place without a history could be one of before.
        place = position.partition("@")[0]
        assert ask(server.url, "/streams/deposit.committed", headers={"Last-Event-ID": place})[0] == 410
        with client.follow("deposit.committed", after=kept) as events:
            assert next(events).position.partition("@")[2] == kept.partition("@")[2]


def test_a_position_of_another_state_or_run_is_refused(app, tmp_path):
    position = deposited(app, tmp_path / "one", 3)[0]
    for state in (tmp_path / "other", None):
        with served(app, state=state, keep=KEEP) as (mill, server):
            for _ in range(10):
                mill.call("deposit", account="ada")
            assert ask(server.url, "/streams/deposit.committed", headers={"Last-Event-ID": position})[0] == 410


def test_a_read_gives_a_position_to_follow_from(app, tmp_path):
    with served(app, state=tmp_path / "state", keep=KEEP) as (mill, server), tm.connect(server.url) as client:
        mill.call("deposit", account="ada")
        position = ask(server.url, "/tables/accounts/ada")[1]["Tidemill-Epoch"]
        mill.call("deposit", account="ada")
        with client.follow("deposit.committed", after=position) as events:
            assert next(events)["count"] == 2


def test_listen_refuses_a_position_of_before_a_restore(app, restored):
    psycopg = pytest.importorskip("psycopg")
    state, position = restored
    with (
        served(app, state=state, keep=KEEP) as (_, server),
        psycopg.connect(server.postgres_url, autocommit=True) as db,
    ):
        with pytest.raises(psycopg.Error, match="before it was put back") as refused:
            db.execute(f'LISTEN "deposit.committed after {position}"')
        assert refused.value.sqlstate == "22023"
