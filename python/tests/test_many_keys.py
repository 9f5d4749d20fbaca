"""More keys of calls than are in memory: the others are on the disk, and a call that is made again gets its answer from there."""

import threading
import time

import pytest
from server_process import until
from test_operate import metrics
from test_retries import bank
from test_server import BANK, command

import tidemill as tm

SERVED = BANK.replace("app.requests(Deposit)", 'app.requests(Deposit, remember="1h", keys=2_000)')
"""The bank of ``test_server``, which keeps 2,000 keys of deposits."""

FEW = ("--no-postgres", "--state", "state", "--keys-in-memory", "40")


def outcome(mill, deposit, number):
    """The reply of a call: those of amount 1 have no reply, those of 0 abort."""
    try:
        return mill.call(deposit, account="ada", amount=number % 3, idempotency_key=f"{number}")
    except tm.Aborted as aborted:
        return aborted.epoch, str(aborted)


def test_answers_come_from_the_disk_in_later_sessions_too(tmp_path):
    calls = 300
    said = {}
    for _ in range(3):
        app, deposit = bank(keys=10_000)
        with app.start(state=tmp_path / "state", keys_in_memory=10) as mill:
            for number in range(calls):
                first = outcome(mill, deposit, number)
                assert said.setdefault(number, first) == first
            for number in range(calls):
                assert outcome(mill, deposit, number) == said[number]
            with pytest.raises(tm.IdempotencyError, match="had other arguments"):
                mill.call(deposit, account="ada", amount=9, idempotency_key="7")
            assert mill.row("accounts", "ada")["balance"] == sum(number % 3 for number in range(calls))


def test_calls_that_wait_keep_their_order(tmp_path):
    """Some of the calls that are made together have keys that are looked up, and others follow them."""
    app, deposit = bank(keys=10_000)
    with app.start(state=tmp_path / "state", keys_in_memory=10) as mill, mill.serve() as server:
        with tm.connect(server.url) as client:
            for number in range(200):
                client.deposit(account="old", amount=2, idempotency_key=f"{number}")
            for turn in range(20):
                before = (client.row("accounts", "new") or {"balance": 0})["balance"]
                accounts = ["old", "new", "old", "new", "new"]
                keys = ["3", f"a {turn}", "90", f"b {turn}", f"c {turn}"]
                events = [{"account": account, "amount": 2} for account in accounts]
                replies = client.call_all("deposit", events, idempotency_keys=keys)
                balances = [reply["balance"] for reply in replies]
                assert balances == [8, before + 2, 182, before + 4, before + 6]


def are_on_disk(counts):
    return counts.one("tidemill_keys_in_memory") < 200 < counts.one("tidemill_keys_on_disk")


def test_a_server_keeps_more_keys_than_are_in_memory_across_kills(tmp_path):
    done = {}
    calls = 1_200

    def client(url, numbers):
        with tm.connect(url) as client:
            for number in numbers:
                reply = client.deposit(account=f"{number % 7}", amount=1, idempotency_key=f"{number}")
                assert done.setdefault(number, reply) == reply

    for life in range(3):
        with command(tmp_path, *FEW, program=SERVED) as (process, url):
            # The first of these are on the disk since lives before.
            numbers = range(calls * (life + 1) // 3)
            threads = [threading.Thread(target=client, args=(url, numbers[k::4])) for k in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert len(done) == len(numbers)
            with tm.connect(url) as reader:
                # A checkpoint is due with an epoch, which a read makes.
                until(lambda reader=reader, url=url: reader.row("accounts", "0") and are_on_disk(metrics(url)), 60)
            counts = metrics(url)
            # About two bytes a key, and some for each run.
            filters = counts.one("tidemill_keys_filter_bytes")
            assert 0 < filters < 4 * counts.one("tidemill_keys_on_disk") + 4_096
            if life:
                assert counts.one("tidemill_key_lookups_total") > 100
            with tm.connect(url) as last:
                balances = sum((last.row("accounts", f"{k}") or {"balance": 0})["balance"] for k in range(7))
                assert balances == len(numbers)
            process.kill()
            process.wait(10)


def test_beyond_the_bound_new_keys_are_refused(tmp_path):
    program = SERVED.replace("2_000", "100")
    with command(tmp_path, *FEW, program=program) as (_, url), tm.connect(url) as client:
        replies = [client.deposit(account="ada", amount=1, idempotency_key=f"{k}") for k in range(100)]
        with pytest.raises(tm.IdempotencyError, match="too many idempotency keys are kept; try again later"):
            client.deposit(account="ada", amount=1, idempotency_key="one more")
        assert [client.deposit(account="ada", amount=1, idempotency_key=f"{k}") for k in range(100)] == replies
        assert client.deposit(account="ada", amount=1)["balance"] == 101
        assert metrics(url).one("tidemill_keys_refused_total") == 1


@pytest.mark.parametrize(
    ("keys", "message"), [(0, "out of range"), (1 << 31, "out of range"), (True, "not a number"), ("9", "not a number")]
)
def test_wrong_numbers_of_keys_are_refused(keys, message):
    with pytest.raises(tm.PlanError, match=message):
        bank(keys=keys)
    with pytest.raises(tm.PlanError, match="keys without remember"):
        bank(remember=None, keys=7)


def test_keys_are_forgotten_on_the_disk_too(tmp_path):
    app, deposit = bank(remember="1s", keys=1_000)
    with app.start(state=tmp_path / "state", keys_in_memory=10) as mill:
        for k in range(100):
            mill.call(deposit, account="ada", amount=2, idempotency_key=f"{k}")
        time.sleep(1.2)
        assert mill.call(deposit, account="ada", amount=2, idempotency_key="3")["balance"] == 202
