"""Calls, reads and snapshots under kills of the server: one serial order explains all that clients saw."""

import math
import os
import random
import re
import signal
import threading
import time
from dataclasses import dataclass, field

import pytest
from call_history import DisagreementError, Seen, check
from server_process import until
from test_server import started

import tidemill as tm

PROGRAM = """
import tidemill as tm

app = tm.App("bank")


class Account(tm.Row):
    id: int = tm.key()
    balance: int = 100
    gifts: int = 0


class Count(tm.Row):
    id: int = tm.key()
    n: int = 0


class Entry(tm.Row):
    n: int = tm.key()
    request: str = ""


class Transfer(tm.Event):
    request: str
    src: int
    dst: int
    amount: int


accounts = app.table(Account)
counts = app.table(Count)
entries = app.table(Entry, "entries")
transfers = app.requests(Transfer, remember="1h")


@app.transaction(transfers)
def transfer(ev, src=accounts.row("src", create=True), count=counts.row(lambda e: 0, create=True)):
    src.balance -= ev.amount
    count.n += 1
    tm.require(src.balance >= 0, "too little")
    return {"n": count.n, "request": ev.request, "dst": ev.dst, "amount": ev.amount, "rest": src.balance}


@app.transaction(transfer.committed, nested=True)
def give(ev, dst=accounts.row("dst", create=True)):
    dst.balance += ev.amount
    dst.gifts += 1
    tm.require(dst.balance % 7 != 3, "unlucky")
    return {"n": ev.n, "request": ev.request}


@app.transaction(give.committed, nested=True)
def enter(ev, entry=entries.row("n", create=True)):
    entry.request = ev.request
"""
"""Each transfer is three steps that commit or abort as one. The last gives it its number."""

ACCOUNTS = 6
REASONS = {"too little", "give: unlucky"}
"""The reasons for which transfers abort."""


@dataclass
class Plain:
    """The model in memory. A request is a name, two accounts and an amount; an account; or the name of a snapshot."""

    accounts: dict = field(default_factory=dict)
    n: int = 0

    def _of(self, account):
        return self.accounts.get(account, (100, 0))

    def answer(self, request):
        if isinstance(request, str):
            return False, (self.n, tuple(sorted((account, *row) for account, row in self.accounts.items())))
        if len(request) == 2:
            return False, self.accounts.get(request[1])
        _, src, dst, amount = request
        rest = self._of(src)[0] - amount
        if rest < 0:
            return False, "too little"
        if ((rest if src == dst else self._of(dst)[0]) + amount) % 7 == 3:
            return False, "give: unlucky"
        return True, (self.n + 1, rest)

    def apply(self, request):
        _, src, dst, amount = request
        balance, gifts = self._of(src)
        self.accounts[src] = (balance - amount, gifts)
        balance, gifts = self._of(dst)
        self.accounts[dst] = (balance + amount, gifts + 1)
        self.n += 1


class Clients:
    """Threads that call and read until they are told to end; each makes a call until it is answered."""

    def __init__(self):
        self.seen, self.failed, self.ends, self.place = [], [], threading.Event(), {}
        kinds = [self.call_by_http] * 4 + [self.call_by_postgres] * 2 + [self.read, self.look]
        self.threads = [threading.Thread(target=self.run, args=(kind, k)) for k, kind in enumerate(kinds)]

    def run(self, kind, seed):
        rng, number = random.Random(seed), 0
        try:
            while not self.ends.is_set():
                number += 1
                kind(rng, f"{seed}.{number}")
        except Exception as error:
            self.failed.append(error)
            raise

    def again(self, request, make, errors):
        """Makes a request until it is answered."""
        start, until = time.monotonic(), time.monotonic() + 60
        while True:
            try:
                answer = make()
            except errors:
                assert time.monotonic() < until, f"{request} has no answer"
                time.sleep(0.02)
                continue
            self.seen.append(Seen(request, start, time.monotonic(), answer))
            return

    def have(self, before, wanted):
        """Returns whether so many calls have committed since then that a life may end, and others have these answers."""
        calls = [op for op in self.seen[before:] if not isinstance(op.request, str) and len(op.request) == 4]
        committed = [op for op in calls if isinstance(op.answer, tuple)]
        return len(committed) > 20 and len(self.seen) >= before + 60 and wanted <= {op.answer for op in self.seen}

    @staticmethod
    def drawn(rng, name):
        return name, rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randrange(1, 60)

    def call_by_http(self, rng, name):
        request = self.drawn(rng, name)
        _, src, dst, amount = request

        def make():
            with tm.connect(self.place["http"], timeout=5) as client:
                try:
                    reply = client.transfer(request=name, src=src, dst=dst, amount=amount, idempotency_key=name)
                except tm.Aborted as aborted:
                    return aborted.reason
            return reply["n"], reply["rest"]

        self.again(request, make, tm.RunError)

    def call_by_postgres(self, rng, name):
        psycopg = pytest.importorskip("psycopg")
        request = self.drawn(rng, name)
        sql = "select n, rest from transfer(%s, %s, %s, %s, idempotency_key => %s)"

        def make():
            with psycopg.connect(self.place["postgresql"], autocommit=True, connect_timeout=5) as db:
                try:
                    return db.execute(sql, (*request, name)).fetchone()
                except psycopg.errors.RaiseException as aborted:
                    return aborted.diag.message_primary

        self.again(request, make, psycopg.OperationalError)

    def read(self, rng, name):
        account = rng.randrange(ACCOUNTS)

        def make():
            with tm.connect(self.place["http"], timeout=5) as client:
                row = client.row("accounts", account)
            return row and (row["balance"], row["gifts"])

        self.again((name, account), make, tm.RunError)
        time.sleep(0.005)

    def look(self, rng, name):
        """Reads all tables in a block, twice."""
        psycopg = pytest.importorskip("psycopg")

        def once(db):
            (n,) = db.execute("select coalesce(max(n), 0) from counts").fetchone()
            rows = db.execute("select id, balance, gifts from accounts order by id").fetchall()
            ((entries,),) = db.execute("select count(*) from entries").fetchall()
            assert entries == n
            return n, tuple(rows)

        def make():
            with psycopg.connect(self.place["postgresql"], connect_timeout=5) as db:
                first = once(db)
                assert once(db) == first, "reads of a block are repeatable"
                return first

        self.again(name, make, psycopg.OperationalError)
        time.sleep(0.05)


def test_one_order_explains_what_was_seen_under_kills(tmp_path):
    pytest.importorskip("psycopg")
    pytest.importorskip("duckdb")
    kills = int(os.environ.get("TIDEMILL_SERVER_KILLS", "5"))
    rng = random.Random(kills)
    clients = Clients()
    for life in range(kills + 1):
        with started(tmp_path, "--state", "state", program=PROGRAM) as (process, said):
            clients.place = {what: re.search(rf"{what}://\S+", said)[0] for what in ("http", "postgresql")}
            if life == 0:
                [thread.start() for thread in clients.threads]
            before = len(clients.seen)
            wanted = REASONS if life == kills else set()
            until(lambda before=before, wanted=wanted: clients.failed or clients.have(before, wanted))
            time.sleep(rng.random() / 2)
            if life < kills and not clients.failed:
                process.send_signal(signal.SIGKILL)
                process.wait(10)
                continue
            clients.ends.set()
            [thread.join() for thread in clients.threads]
            assert not clients.failed
            with tm.connect(clients.place["http"]) as client:
                rows = client.sql("select n, request from entries order by n")
    assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
    by_name = {op.request[0]: op.request for op in clients.seen if len(op.request) == 4}
    check(Plain(), [by_name[row["request"]] for row in rows], clients.seen)
    assert len(rows) > 20 * kills
    assert REASONS <= {op.answer for op in clients.seen if isinstance(op.answer, str)}


ONE, TWO, POOR = ("one", 0, 1, 10), ("two", 0, 1, 20), ("poor", 0, 1, 95)
"""From account 0, which has 100, to account 1, which has as much: the third is possible before the others alone."""


def answers(*ops):
    return [Seen(*op) for op in ops]


@pytest.mark.parametrize(
    ("order", "seen"),
    [
        pytest.param([ONE, TWO], answers((ONE, 0, 1, (1, 90)), (TWO, 2, 3, (2, 70))), id="one after the other"),
        pytest.param([TWO, ONE], answers((ONE, 0, 3, (2, 70)), (TWO, 2, 4, (1, 80))), id="at the same time"),
        pytest.param([ONE], answers((ONE, 0, math.inf, None)), id="never answered, and done"),
        pytest.param([], answers((ONE, 0, math.inf, None)), id="never answered, and not done"),
        pytest.param(
            [ONE, TWO],
            answers(
                (ONE, 0, 1, (1, 90)), (TWO, 2, 5, (2, 70)), (("r", 1), 3, 4, (110, 1)), (("s", 1), 4.5, 6, (130, 2))
            ),
            id="reads beside a call",
        ),
        pytest.param([ONE], answers((ONE, 0, 1, (1, 90)), (POOR, 0.5, 3, "too little")), id="aborted beside a call"),
    ],
)
def test_the_checker_agrees(order, seen):
    check(Plain(), order, seen)


@pytest.mark.parametrize(
    ("order", "seen", "message"),
    [
        ([ONE, ONE], answers((ONE, 0, 1, (1, 90))), "committed twice"),
        ([ONE, TWO], answers((ONE, 0, 1, (1, 90))), "nobody made"),
        ([TWO, ONE], answers((ONE, 0, 1, (2, 70)), (TWO, 2, 3, (1, 80))), "stands before it"),
        ([ONE], answers((ONE, 0, 1, (1, 80))), r"gives \(1, 90\)"),
        ([POOR, TWO], answers((POOR, 0, 9, (1, 5)), (TWO, 0, 9, (2, 0))), "gives too little"),
        ([], answers((ONE, 0, 1, (1, 90))), "has no place"),
        ([ONE], answers((ONE, 0, 1, (1, 90)), (("r", 1), 2, 3, None)), "has no place"),
        ([ONE], answers((ONE, 2, 3, (1, 90)), (("r", 1), 0, 1, (110, 1))), "has no place"),
        ([ONE], answers((ONE, 0, 9, (1, 90)), (("r", 0), 1, 2, (90, 0)), (("s", 0), 3, 4, None)), "has no place"),
        ([ONE], answers((ONE, 0, 9, (1, 90)), ("look", 1, 2, (1, ((0, 90, 0),)))), "has no place"),
        ([ONE], answers((ONE, 2, 3, (1, 90)), (POOR, 0, 1, "too little")), "has no place"),
    ],
)
def test_the_checker_disagrees(order, seen, message):
    with pytest.raises(DisagreementError, match=message):
        check(Plain(), order, seen)
