"""A state that is kept and looked at while a run goes on with it."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import tidemill as tm


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0


class Deposit(tm.Event):
    account: str
    amount: int


def bank():
    app = tm.App("bank")
    accounts = app.table(Account)
    deposits = app.source(Deposit)

    @app.transaction(deposits)
    def deposit(ev, account=accounts.row("account", create=True)):
        account.balance += ev.amount

    return app, accounts, deposits


def one(amount, account="ada"):
    return {"account": account, "amount": amount}


def command(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def balance(state, name):
    """The balance that a savepoint has, in a state of its own."""
    app, accounts, _ = bank()
    app.run({"deposits": []}, seed=state / "savepoint" / name)
    return {row["id"]: row["balance"] for row in accounts.to_pylist()}


def test_savepoints_are_made_while_a_session_runs(tmp_path):
    app, accounts, deposits = bank()
    made, state = {}, tmp_path / "state"
    with app.start(state=state, workers=1) as mill:
        over = threading.Event()

        def load():
            while not over.is_set():
                mill.send(deposits, [one(1, "load")] * 100)

        sender = threading.Thread(target=load)
        sender.start()
        for number in range(1, 6):
            mill.send(deposits, one(1))
            savepoint = mill.savepoint(f"day-{number}")
            assert (savepoint.name, savepoint.complete_until) == (f"day-{number}", None)
            made[savepoint.name] = (number, savepoint.epoch)
        over.set()
        sender.join()
        unnamed = mill.savepoint(timeout=30)
        assert unnamed.name == f"epoch-{unnamed.epoch}"
        with pytest.raises(tm.RunError, match="there is a savepoint 'day-1' already"):
            mill.savepoint("day-1")
        with pytest.raises(tm.RunError, match="is no name for a savepoint"):
            mill.savepoint("../day")
        listed = command("savepoint", "list", state)
    epochs = [epoch for _, epoch in made.values()]
    assert epochs == sorted(epochs) and len(set(epochs)) == 5
    for name, (number, epoch) in made.items():
        assert f"{name}: epoch {epoch:,}" in listed.replace("\u202f", ",")
        assert balance(state, name)["ada"] == number
        assert f"after epoch {epoch:,} run again; no difference" in command("verify", state, "--from", name)
    command("savepoint", "restore", state, "day-3")
    with app.start(state=state, workers=1) as mill:
        assert {row["id"]: row["balance"] for row in mill.table(accounts).to_pylist()}["ada"] == 3


def test_a_run_without_a_state_makes_no_savepoint():
    app, _, _ = bank()
    with app.start(workers=1) as mill:
        with pytest.raises(tm.RunError, match="the run has no state to make a savepoint of: begin it with one"):
            mill.savepoint()


def test_savepoints_are_awaited(tmp_path):
    app, _, deposits = bank()

    async def main():
        async with app.start(state=tmp_path, workers=1) as mill:
            await mill.send(deposits, one(5))
            return await mill.savepoint("awaited")

    assert asyncio.run(main()).epoch >= 1
    assert balance(tmp_path, "awaited") == {"ada": 5}


def test_a_state_is_read_while_a_run_goes_on_with_it(tmp_path):
    app, _, deposits = bank()
    with app.start(state=tmp_path, workers=1) as mill:
        mill.send(deposits, [one(1), one(2)], durable=True)
        mill.savepoint("begin")
        through = 0
        for _ in range(5):
            mill.send(deposits, [one(3), one(4)], durable=True)
            told = command("verify", tmp_path, "--from", "begin")
            assert "no difference" in told
            assert f"in use by process {os.getpid()}" in told
            epoch = int(told.split(": epoch ")[1].split(" is the last one that was known to be durable")[0])
            assert epoch >= through
            through = epoch
        mill.flush()
        assert "epoch" in command("txn", "show", tmp_path, "deposits:2")
        missing = command("txn", "show", tmp_path, "deposits:999", code=3)
        assert f"by what was known to be durable: it is in use by process {os.getpid()}" in missing
        assert "begin: epoch" in command("savepoint", "list", tmp_path)
        refused = command("savepoint", "create", tmp_path, "other", code=3)
        assert "call savepoint('other') of its session" in refused
        command("savepoint", "remove", tmp_path, "begin", code=3)
        mill.send(deposits, one(1), durable=True)
    assert "verified" not in command("verify", tmp_path, "--from", "begin")


def test_damage_is_reported_beside_the_run(tmp_path):
    app, _, deposits = bank()
    with app.start(state=tmp_path, workers=1) as mill:
        mill.savepoint("begin")
        for _ in range(3):
            mill.send(deposits, [one(1)] * 50, durable=True)
        (segment,) = [path for path in sorted((tmp_path / "log").iterdir())][-1:]
        with segment.open("r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        assert "is damaged" in command("verify", tmp_path, "--from", "begin", code=3)


ACKNOWLEDGED = """
    import sys
    sys.path.insert(0, {folder!r})
    from test_living import bank, one
    app, _, deposits = bank()
    with app.start(state={state!r}, workers=1) as mill:
        while True:
            mill.send(deposits, [one(1)] * 3, durable=True)
            print("sent", flush=True)
"""


def test_nothing_that_was_acknowledged_is_lost(tmp_path):
    acknowledged = 0
    text = textwrap.dedent(ACKNOWLEDGED).format(folder=os.path.dirname(__file__), state=str(tmp_path))
    for kill in range(5):
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        for _ in range(3 + 7 * kill):
            assert process.stdout.readline() == "sent\n"
            acknowledged += 3
        process.send_signal(signal.SIGKILL)
        acknowledged += 3 * process.stdout.read().count("sent")
        process.wait()
        app, accounts, _ = bank()
        with app.start(state=tmp_path, workers=1) as mill:
            (row,) = mill.table(accounts).to_pylist()
        # The batch that was not acknowledged may be there, in part or whole, of each of the processes.
        assert acknowledged <= row["balance"] <= acknowledged + 3 * (kill + 1)
