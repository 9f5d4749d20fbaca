"""The load that a served application bears: calls alone, in excess, with keys, beside queries and beside a stream.

    make release && .venv/bin/python bench/served.py

Calls are transfers between accounts over the protocol of PostgreSQL, and the application has a state. All is measured
in rounds, one after the other; the medians are told. One line a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from threading import Event, Thread

from serving import Call, Served, measure, served

import tidemill as tm

PROGRAM = """
import os

import tidemill as tm

app = tm.App("transfers")
LAST = int(os.environ["ROWS"]) - 1
RATE = float(os.environ["RATE"])


class Account(tm.Row):
    id: int = tm.key()
    value: int


class Transfer(tm.Event):
    src: int
    dst: int
    amount: int


class Deposit(tm.Event):
    account: int
    amount: int


accounts = app.table(Account, rows=tm.csv("accounts.csv"))
transfers = app.requests(Transfer, remember="10m")


@app.transaction(transfers)
def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
    tm.require(src.value >= ev.amount, "insufficient funds")
    src.value -= ev.amount
    dst.value += ev.amount
    return {"value": src.value}


if RATE:
    deposits = app.source(Deposit, tm.generator(rate=RATE, account=tm.uniform(0, LAST), amount=1))

    @app.transaction(deposits)
    def deposit(ev, account=accounts.row("account")):
        account.value += ev.amount
"""

KEYS = count()
BALANCE = 1_000_000_000
ROWS = 100_000
QUERY = "select id % 10 as part, sum(value) as total from accounts group by part"


def transfer(rows: int) -> Call:
    """A transfer between any two accounts."""
    return Call("transfer", lambda: (random.randrange(rows), random.randrange(rows), 1))


def with_keys(rows: int) -> Call:
    """Returns a transfer with a key of its own. One that came again would run nothing."""
    return Call("transfer", lambda: (random.randrange(rows), random.randrange(rows), 1, next(KEYS)), again=False)


def transfers(folder: Path, rows: int, rate: float = 0) -> AbstractContextManager[Served]:
    """A server with so many accounts, and deposits at a rate."""
    lines = "".join(f"{key},{BALANCE}\n" for key in range(rows))
    files = {"app.py": PROGRAM, "accounts.csv": f"id,value\n{lines}"}
    return served(folder, files, environment={"ROWS": str(rows), "RATE": str(rate)})


def tail(times: list[float]) -> float:
    """The 99th percentile in milliseconds."""
    return sorted(times)[len(times) * 99 // 100] * 1000


def idle(given: argparse.Namespace) -> None:
    with transfers(given.folder, 1000) as server:
        time.sleep(2)
        _, before = server.memory_and_time()
        time.sleep(given.seconds)
        memory, after = server.memory_and_time()
        print(f"idle: {memory:.0f} MiB, {(after - before) / given.seconds:.2%} of a core")


def alone(given: argparse.Namespace) -> None:
    plain, excess, refusals, keys, tails = [], [], [], [], []
    with transfers(given.folder, ROWS) as server:
        server.calls(transfer(ROWS), 1, 4, 64)
        for _ in range(given.rounds):
            plain.append(server.calls(transfer(ROWS), given.seconds, 4, 250)[0])
            committed, refused, _ = server.calls(transfer(ROWS), given.seconds, 100, 1000)
            excess.append(committed)
            refusals.append(refused)
            keys.append(server.calls(with_keys(ROWS), given.seconds, 4, 250)[0])
            tails.append(tail(server.calls(transfer(ROWS), given.seconds, 32, 1)[2]))
    rate = statistics.median(plain)
    print(f"1,000 calls under way: {rate:,.0f} calls/s")
    print(f"with keys: {statistics.median(keys):,.0f} calls/s, {statistics.median(keys) / rate:.2f}")
    print(
        f"100,000 under way: {statistics.median(excess):,.0f} calls/s, {statistics.median(excess) / rate:.2f}", end=""
    )
    print(f", beside {statistics.median(refusals):,.0f} refusals/s")
    print(f"32 clients with one call each: p99 {statistics.median(tails):.2f} ms")


def beside_queries(given: argparse.Namespace) -> None:
    without, beside, scans = [], [], []
    with transfers(given.folder, 5_000_000) as server:
        call = transfer(5_000_000)
        server.ask("POST", "/query", QUERY)
        for _ in range(given.rounds):
            without.append(server.calls(call, given.seconds, 4, 250)[0])
            ends = Event()

            def look(ends: Event = ends) -> None:
                while not ends.is_set():
                    begin = time.monotonic()
                    assert b"total" in server.ask("POST", "/query", QUERY)
                    scans.append(time.monotonic() - begin)
                    ends.wait(max(0, 1 - scans[-1]))

            reader = Thread(target=look)
            reader.start()
            beside.append(server.calls(call, given.seconds, 4, 250)[0])
            ends.set()
            reader.join()
    rate, other = statistics.median(without), statistics.median(beside)
    print(
        f"beside a sum by group of 5 million rows each second: {other:,.0f} of {rate:,.0f} calls/s, {other / rate:.2f}"
    )
    scan = statistics.median(scans) * 1000
    print(f"such a query: {scan:.0f} ms; by DuckDB alone on one thread: {duckdb_alone():.0f} ms")


def over_http(given: argparse.Namespace) -> None:
    """Lines of one request by a client that made them before, and calls of the asynchronous client."""

    def line() -> bytes:
        src, dst = random.randrange(ROWS), random.randrange(ROWS)
        return b'{"call":"transfer","fields":{"src":%d,"dst":%d,"amount":1}}\n' % (src, dst)

    async def calls(url: str, under_way: int) -> float:
        done, end = 0, time.monotonic() + given.seconds

        async def one() -> None:
            nonlocal done
            while time.monotonic() < end:
                await client.transfer(src=random.randrange(ROWS), dst=random.randrange(ROWS), amount=1)
                done += 1

        async with tm.connect(url) as client:
            begin = time.monotonic()
            await asyncio.gather(*(one() for _ in range(under_way)))
            return done / (time.monotonic() - begin)

    with transfers(given.folder, ROWS) as server:
        url = "http://{}:{}".format(*server.http)
        for clients, each in ((1, 64), (4, 250)):
            rates = [server.lines(line, given.seconds, clients, each) for _ in range(given.rounds)]
            print(f"over HTTP, {clients * each} under way: {statistics.median(rates):,.0f} calls/s")
        for under_way in (64, 1000):
            rates = [asyncio.run(calls(url, under_way)) for _ in range(given.rounds)]
            print(f"by the client in Python, {under_way} under way: {statistics.median(rates):,.0f} calls/s")


def duckdb_alone() -> float:
    """Milliseconds of the query over a table of Arrow."""
    import duckdb
    import pyarrow as pa

    accounts = pa.table({"id": pa.array(range(5_000_000)), "value": pa.array([BALANCE] * 5_000_000)})
    connection = duckdb.connect(config={"threads": 1})
    connection.register("accounts", accounts)
    times = []
    for _ in range(5):
        begin = time.monotonic()
        connection.sql(QUERY).fetchall()
        times.append((time.monotonic() - begin) * 1000)
    return statistics.median(times)


def beside_a_stream(given: argparse.Namespace) -> None:
    """Each at half of what it reaches alone."""
    with transfers(given.folder, ROWS, rate=1e9) as server:
        time.sleep(1)
        before, begin = server.events("deposits"), time.monotonic()
        time.sleep(given.seconds)
        peak = (server.events("deposits") - before) / (time.monotonic() - begin)
    with transfers(given.folder, ROWS) as server:
        server.calls(transfer(ROWS), 1, 4, 64)
        few = server.calls(transfer(ROWS), given.seconds, 4, 64)[0]
    with transfers(given.folder, ROWS, rate=peak / 2) as server:
        server.calls(transfer(ROWS), 1, 4, 64)
        before, begin = server.events("deposits"), time.monotonic()
        committed, _, times = server.calls(transfer(ROWS), given.seconds, 4, 64)
        flow = (server.events("deposits") - before) / (time.monotonic() - begin)
    print(f"alone: a stream of {peak:,.0f} events/s; {few:,.0f} calls/s, 256 under way")
    print(
        f"the stream at half of its rate: {flow / (peak / 2):.2f} of that is reached, beside {committed:,} calls/s",
        end="",
    )
    print(f" ({committed / few:.2f}), p99 {tail(times):.1f} ms")


PARTS = {"idle": idle, "alone": alone, "http": over_http, "queries": beside_queries, "stream": beside_a_stream}


def main() -> int:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    return measure(parser, PARTS)


if __name__ == "__main__":
    sys.exit(main())
