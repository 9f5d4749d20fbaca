"""The chain of proof of a state, by the command and by a server."""

import json
import subprocess
import sys
import textwrap
from urllib.request import urlopen

import pytest

import tidemill as tm

PROGRAM = """
    import tidemill as tm

    app = tm.App("bank")

    class Account(tm.Row):
        id: str = tm.key()
        balance: int = 0

    class Transfer(tm.Event):
        src: str
        dst: str
        amount: int
        note: str

    accounts = app.table(Account, rows=[{"id": "ada"}, {"id": "bob"}])
    transfers = app.source(Transfer, tm.csv("transfers.csv"))

    @app.transaction(transfers)
    def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
        src.balance -= ev.amount
        dst.balance += ev.amount
"""

HEADER = "src,dst,amount,note\n"


class Bank:
    """A bank in a folder, by the command."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bank.py").write_text(textwrap.dedent(PROGRAM))
        self.write("ada,bob,5,rent\nbob,ada,2,books\n")

    def write(self, rows):
        (self.folder / "transfers.csv").write_text(HEADER + rows)

    def __call__(self, *arguments, code=0):
        command = [sys.executable, "-m", "tidemill", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, *arguments):
        return self("run", "bank.py", "--state", "state", "--epoch", "1", *arguments)

    def head(self):
        return json.loads(self("verify", "state", "--json").splitlines()[0])["proof"]["head"]


@pytest.fixture
def bank(tmp_path):
    return Bank(tmp_path)


def other(head):
    return ("0" if head[0] != "0" else "1") + head[1:]


def test_a_head_that_was_noted_is_an_anchor(bank):
    bank.run("--savepoint", "start")
    head = bank.head()
    said = bank("verify", "state", "--from", "start", "--anchor", head)
    assert f"proof: head {head}; " in said and "the chain begins after epoch 0" in said
    assert "every head from epoch" in said and "not shown: who wrote the inputs" in said
    assert "is not the one that was written then" in bank("verify", "state", "--anchor", other(head), code=5)
    bank.write("ada,bob,5,rent\nbob,ada,2,books\nada,bob,1,tea\n")
    bank.run()
    assert bank.head() != head
    said = bank("verify", "state", "--anchor", head)
    assert "the anchor is before the checkpoint of epoch" in said and "shown is that" in said
    bank("verify", "state", "--from", "start", "--anchor", other(head), code=5)
    bank("savepoint", "remove", "state", "start")
    bank.write("ada,bob,5,rent\nbob,ada,2,books\nada,bob,1,tea\nada,bob,1,milk\n")
    bank.run()
    assert "the log between them is gone" in bank("verify", "state", "--anchor", head, code=3)
    assert "is no head of a chain" in bank("verify", "state", "--anchor", "monday", code=2)


def test_a_file_that_was_changed_under_the_log_is_found(bank):
    bank.run("--savepoint", "start")
    assert "no difference" in bank("verify", "state", "--from", "start")
    # No transaction reads the note.
    bank.write("ada,bob,5,rent\nbob,ada,2,boots\n")
    said = bank("verify", "state", "--from", "start", code=5)
    assert "source 'transfers': it gives other records than it gave for epoch" in said


def test_without_proof_there_is_no_chain(bank):
    bank.run("--proof", "off")
    assert "proof: none is kept" in bank("verify", "state")
    assert "has no chain of proof" in bank("verify", "state", "--anchor", f"{'0' * 64}@1", code=3)
    bank.write("ada,bob,5,rent\nbob,ada,2,books\nada,bob,1,tea\n")
    bank.run()
    begins = json.loads(bank("verify", "state", "--json").splitlines()[0])["proof"]["begins"]
    assert begins > 0, "it begins when the state is opened"
    assert "it needs a state" in bank("run", "bank.py", "--proof", "off", code=2)


class Deposit(tm.Event):
    account: str
    amount: int


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0


def test_a_server_shows_the_head_of_what_is_durable(tmp_path):
    app = tm.App("bank")
    accounts = app.table(Account)
    requests = app.requests(Deposit, name="deposits")

    @app.transaction(requests)
    def deposit(ev, account=accounts.row("account", create=True)):
        account.balance += ev.amount
        return {"balance": account.balance}

    state = tmp_path / "state"
    with app.start(state=state, savepoint="start") as mill, mill.serve() as server:
        heads = []
        for amount in (1, 2):
            mill.call(deposit, account="ada", amount=amount)
            heads.append(json.load(urlopen(f"{server.url}/health"))["head"])
    assert heads[0] != heads[1]
    for head in heads:
        command = [sys.executable, "-m", "tidemill", "verify", state, "--from", "start", "--anchor", head]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    with app.start() as mill, mill.serve() as server:
        assert "head" not in json.load(urlopen(f"{server.url}/health"))
