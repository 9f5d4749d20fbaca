"""A state, or what is served, looked at from outside while it runs: ``tail``, ``table``, ``top``, ``app.open``, a copy."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from server_process import until
from test_operate import WAIT_SECONDS, run, until_ready, write
from test_server import BANK, command

import tidemill as tm


@contextmanager
def bank(folder, *options):
    """A server of the bank with a state, and a client."""
    with command(folder, "--state", "state", *options) as (process, url), tm.connect(url) as client:
        until_ready(url)
        yield process, url, client


def opened_with(app, state, balance, account="ada"):
    """The state, once it is known to be durable up to a balance: that is noted when the log is idle."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        opened = app.open(state)
        row = opened.row("accounts", account)
        if row is not None and row["balance"] == balance:
            return opened
        assert time.monotonic() < deadline, row
        time.sleep(0.05)


def lines(ran):
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def app(tmp_path, module):
    return module(BANK, prelude="").app


def test_a_state_that_is_in_use_is_read(tmp_path, app):
    with bank(tmp_path) as (_, _, client):
        for amount in (3, 4):
            client.deposit(account="ada", amount=amount)
        client.deposit(account="bob", amount=1)
        opened = opened_with(app, tmp_path / "state", 1, "bob")
        assert opened.table("accounts").to_pylist() == [{"id": "ada", "balance": 7}, {"id": "bob", "balance": 1}]
        assert opened.row("accounts", "ada") == {"id": "ada", "balance": 7}
        assert opened.row("accounts", "eve") is None
        assert set(opened.tables()) == {"accounts"} and opened.epoch > 0
        client.deposit(account="ada", amount=1)
        assert opened.row("accounts", "ada")["balance"] == 7, "it does not change"
        opened_with(app, str(tmp_path / "state"), 8)
        assert lines(run("table", "state", "accounts", "--json", cwd=tmp_path)) == [
            {"id": "ada", "balance": 8},
            {"id": "bob", "balance": 1},
        ]
    # The run has ended, by a kill or by a checkpoint: the rows are the same.
    assert app.open(tmp_path / "state").row("accounts", "ada")["balance"] == 8


def test_what_is_no_state_of_the_application_is_refused(tmp_path, app, module):
    with pytest.raises(tm.RunError):
        app.open(tmp_path / "none")
    other = module(BANK.replace('App("bank")', 'App("other")'), prelude="").app
    with other.start(state=tmp_path / "state", workers=1):
        pass
    with pytest.raises(tm.RunError, match="is the state of application 'other', and this one is 'bank'"):
        app.open(tmp_path / "state")
    opened = other.open(tmp_path / "state")
    with pytest.raises(tm.RunError, match="no table 'nothing'; tables: accounts"):
        opened.table("nothing")
    with pytest.raises(tm.RunError, match="the key of 'accounts' is id: 2 values were given"):
        opened.row("accounts", "ada", 7)


def test_sql_over_a_state(tmp_path, app):
    pytest.importorskip("duckdb")
    with bank(tmp_path) as (_, _, client):
        client.call_all("deposit", [{"account": f"a{number}", "amount": number} for number in range(1, 6)])
        opened = opened_with(app, tmp_path / "state", 5, "a5")
        assert opened.sql("select sum(balance) as total from accounts").to_pylist() == [{"total": 15}]
        assert opened.duckdb().sql("select count(*) from accounts").fetchall() == [(5,)]
        found = lines(run("table", "state", "accounts", "--where", "balance > 3", "--json", cwd=tmp_path))
        assert sorted(row["balance"] for row in found) == [4, 5]


def test_the_rows_of_a_table_in_each_form(tmp_path, app):
    with bank(tmp_path) as (_, url, client):
        client.deposit(account="ada", amount=30)
        client.deposit(account='b "o", b', amount=4)
        opened_with(app, tmp_path / "state", 4, 'b "o", b')
        for place in ("state", url):
            assert run("table", place, "accounts", cwd=tmp_path).stdout == (
                'id        balance\n--------  -------\nada            30\nb "o", b        4\n'
            )
            assert run("table", place, "accounts", "--format", "csv", cwd=tmp_path).stdout == (
                'id,balance\nada,30\n"b ""o"", b",4\n'
            )
            assert lines(run("table", place, "accounts", "--format", "jsonl", cwd=tmp_path)) == [
                {"id": "ada", "balance": 30},
                {"id": 'b "o", b', "balance": 4},
            ]
            wrong = run("table", place, "accnts", cwd=tmp_path)
            assert wrong.returncode == 1 and "accnts" in wrong.stderr and "accounts" in wrong.stderr


def test_the_events_of_a_state(tmp_path, app):
    with bank(tmp_path) as (_, _, client):
        for amount in (1, 0, 2):
            try:
                client.deposit(account="ada", amount=amount)
            except tm.Aborted:
                pass
        opened_with(app, tmp_path / "state", 3)
        found = lines(run("tail", "state", "deposit.committed", cwd=tmp_path))
        assert [line["event"]["balance"] for line in found] == [1, 3]
        (aborted,) = lines(run("tail", "state", "deposit.aborted", cwd=tmp_path))
        assert aborted["event"]["reason"] == "amount must be positive"
        after = found[0]["position"].split(".")[0]
        later = lines(run("tail", "state", "deposit.committed", "--after", after, cwd=tmp_path))
        assert [line["event"]["balance"] for line in later] == [3]
        wrong = run("tail", "state", "deposit.comitted", cwd=tmp_path)
        assert wrong.returncode == 1 and "streams: " in wrong.stderr and "deposit.committed" in wrong.stderr
        assert run("tail", "state", "deposit.committed", "--after", "7.2", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("is_served", [True, False])
def test_events_are_followed_until_ctrl_c(tmp_path, is_served):
    with bank(tmp_path) as (_, url, client):
        place = [url] if is_served else ["state", "--follow"]
        arguments = [sys.executable, "-m", "tidemill", "tail", place[0], "deposit.committed", *place[1:]]
        process = subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        is_over = threading.Event()

        def deposits():
            while not is_over.wait(0.1):
                client.deposit(account="ada", amount=1)

        calls = threading.Thread(target=deposits)
        calls.start()
        try:
            found = [json.loads(process.stdout.readline()) for _ in range(3)]
            first = found[0]["event"]["balance"]
            assert [line["event"]["balance"] for line in found] == [first, first + 1, first + 2]
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 130, process.stderr.read()
        finally:
            is_over.set()
            calls.join()
            process.kill()
            process.communicate()


def test_top(tmp_path):
    with bank(tmp_path) as (_, url, client):
        is_over = threading.Event()

        def deposits():
            while not is_over.is_set():
                client.deposit(account="ada", amount=1)

        calls = threading.Thread(target=deposits)
        calls.start()
        looks = []

        def has_calls():
            """Returns whether calls were answered while it looked."""
            looks[:] = lines(run("top", url, "--once", "--json", "--interval", "0.5"))
            return looks[0]["calls_per_second"] > 0 and looks[0]["transactions_per_second"]["deposit"]["committed"] > 0

        try:
            until(has_calls)
            text = run("top", url, "--once", "--interval", "0.5").stdout
        finally:
            is_over.set()
            calls.join()
        (look,) = looks
        assert look["events_per_second"]["deposits"] > 0
        assert look["memory_bytes"] > 1 << 20 and look["incidents"] == {}
        assert f"{url}: " in text and "transaction deposit:" in text and "source deposits:" in text
    gone = run("top", url, "--once")
    assert gone.returncode == 1 and "no answer from" in gone.stderr
    assert run("top", "state", "--once").returncode == 1


def test_a_copy_of_a_running_state_is_a_state(tmp_path, app):
    """A copy that ``cp -r`` makes file by file has what was answered before it began, or is refused."""
    with bank(tmp_path) as (_, url, client):
        made, is_over = [0], threading.Event()

        def deposits():
            while not is_over.is_set():
                client.deposit(account="ada", amount=1)
                made[0] += 1

        calls = threading.Thread(target=deposits)
        calls.start()
        whole = 0
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while made[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            while whole < 5 and time.monotonic() < deadline:
                before = made[0]
                copy = tmp_path / f"copy{whole}"
                shutil.rmtree(copy, ignore_errors=True)
                subprocess.run(["cp", "-r", tmp_path / "state", copy], check=False, capture_output=True)
                after = made[0] + 1
                try:
                    row = app.open(copy).row("accounts", "ada")
                except tm.RunError:
                    continue
                assert row is not None and before <= row["balance"] <= after
                whole += 1
        finally:
            is_over.set()
            calls.join()
        assert whole == 5
    verified = run("verify", tmp_path / "copy4")
    assert verified.returncode == 0, verified.stderr
    with app.start(state=tmp_path / "copy4", workers=1) as mill:
        assert mill.row("accounts", "ada")["balance"] > 0
