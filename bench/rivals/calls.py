"""Calls over the protocol of PostgreSQL: a transfer between two accounts, there and in ``tidemill serve``.

The same ``pgbench`` makes them over loopback, of both in turns, so that both see the same machine. Four parts: calls
that are on disk before the answer; calls that are not, beside Redis with a script in Lua, without a log, asked by
``redis-benchmark``; one client, beside ``select 1`` of the same server; and ``select 1`` of many, the most that can be
reached. Says so where there is no server of PostgreSQL or Redis to start, and leaves out what needs it.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from cluster import Cluster, cluster, programs

PROGRAM = """
import tidemill as tm

app = tm.App("transfers")


class Account(tm.Row):
    id: int = tm.key()
    value: int


class Transfer(tm.Event):
    src: int
    dst: int
    amount: int


accounts = app.table(Account, rows=tm.csv("accounts.csv"))
transfers = app.requests(Transfer)


@app.transaction(transfers)
def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
    tm.require(src.value >= ev.amount, "insufficient funds")
    src.value -= ev.amount
    dst.value += ev.amount
    return {"value": src.value}
"""

SCHEMA = """
CREATE TABLE accounts (id bigint PRIMARY KEY, value bigint NOT NULL);
INSERT INTO accounts SELECT i, {balance} FROM generate_series(0, {last}) i;
CREATE FUNCTION transfer(src bigint, dst bigint, amount bigint, OUT left_over bigint) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET value = value - amount WHERE id = src AND value >= amount RETURNING value INTO left_over;
    IF NOT FOUND THEN RAISE EXCEPTION 'insufficient funds'; END IF;
    UPDATE accounts SET value = value + amount WHERE id = dst;
END $$;
VACUUM ANALYZE;
CHECKPOINT;
"""

# Accounts in one order, so that PostgreSQL has no deadlocks.
CALL = r"""
\set a random(0, {last})
\set b random(0, {last})
\set src least(:a, :b)
\set dst greatest(:a, :b)
SELECT * FROM transfer(:src, :dst, 1);
"""

SELECT = "SELECT 1;\n"

# Scripts of Redis: they fill the accounts, and transfer between two of them.
FILL = "for i = 0, ARGV[1] - 1 do redis.call('SET', string.format('%012d', i), ARGV[2]) end"
TRANSFER = """
local left = tonumber(redis.call('GET', KEYS[1])) - ARGV[1]
if left < 0 then return redis.error_reply('insufficient funds') end
redis.call('DECRBY', KEYS[1], ARGV[1])
redis.call('INCRBY', KEYS[2], ARGV[1])
return left
"""

BALANCE = 1_000_000_000

Figures = tuple[float, float, float]
"""Calls a second, and the median and 99th percentile of their latency, milliseconds."""


@dataclass(frozen=True)
class Place:
    """A server that ``pgbench`` speaks to: the options that say where it is, and its database."""

    cluster: Cluster
    client: list[str]
    database: str

    def measured(self, clients: int, seconds: int, script: str = "call.sql", durable: bool = True) -> Figures:
        """Returns the rate and latencies of this many clients, each of which makes one call after the other."""
        for log in self.cluster.folder.glob("calls.*"):
            log.unlink()
        count = ["-c", str(clients), "-j", "1", "-T", str(seconds), "-l", "--log-prefix", self.cluster.folder / "calls"]
        options = f"PGOPTIONS=-c synchronous_commit={'on' if durable else 'off'}"
        command = ["env", options, "pgbench", *self.client, *map(str, count), "-n", "-M", "prepared"]
        said = self.cluster.run(*command, "-f", self.cluster.folder / script, self.database)
        rate = float(re.search(r"tps = ([\d.]+)", said)[1])
        logs = self.cluster.folder.glob("calls.*")
        lines = [line.split() for log in logs for line in log.read_text().splitlines()]
        times = sorted(int(line[2]) / 1000 for line in lines)
        return rate, times[len(times) // 2], times[len(times) * 99 // 100]


@dataclass(frozen=True)
class Redis:
    """A server of Redis that keeps nothing, with a script for a transfer."""

    port: str
    rows: int

    def run(self, program: str, *arguments: str) -> str:
        """Returns the output of one of its programs."""
        where = ["-h", "127.0.0.1", "-p", self.port]
        return subprocess.run([program, *where, *arguments], capture_output=True, text=True, check=True).stdout

    def measured(self, clients: int, seconds: int) -> Figures:
        """Returns the rate and latencies of this many clients. ``redis-benchmark`` makes a number of calls: some, then
        as many as take long."""
        script = self.run("redis-cli", "SCRIPT", "LOAD", TRANSFER).strip()
        calls, found = 20_000, {}
        for _ in range(2):
            size = ["-c", str(clients), "-n", str(calls), "-r", str(self.rows), "--csv"]
            said = self.run("redis-benchmark", *size, "EVALSHA", script, "2", "__rand_int__", "__rand_int__", "1")
            found = list(csv.DictReader(said.splitlines()))[-1]
            calls = int(float(found["rps"]) * seconds)
        return float(found["rps"]), float(found["p50_latency_ms"]), float(found["p99_latency_ms"])


@contextmanager
def redis(rows: int) -> Iterator[Redis | None]:
    """A server with so many accounts; none where Redis is not installed."""
    missing = [name for name in ("redis-server", "redis-cli", "redis-benchmark") if shutil.which(name) is None]
    if missing:
        print(f"Redis: skipped, as there is no {' and no '.join(missing)} (Debian: redis-server, redis-tools)")
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    options = ["--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"]
    with subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL) as process:
        try:
            own = Redis(port, rows)
            deadline = time.monotonic() + 20
            while subprocess.run(["redis-cli", "-p", port, "PING"], capture_output=True).returncode:
                if time.monotonic() > deadline:
                    sys.exit("redis-server does not answer")
                time.sleep(0.05)
            own.run("redis-cli", "EVAL", FILL, "0", str(rows), str(BALANCE))
            yield own
        finally:
            process.terminate()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="accounts")
    parser.add_argument("--seconds", type=int, default=5, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs, of which the median is told")
    parser.add_argument("--clients", default="1,8,32", help="numbers of clients")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--folder", type=Path, default=Path("target/rivals"), help="on the disk to be measured")
    return parser.parse_args()


@contextmanager
def tidemill(folder: Path, rows: int) -> Iterator[list[str]]:
    """``tidemill serve`` in a folder, with a state there; gives the options of clients that say where it is."""
    (folder / "transfers.py").write_text(PROGRAM)
    lines = "".join(f"{key},{BALANCE}\n" for key in range(rows))
    (folder / "accounts.csv").write_text(f"id,value\n{lines}")
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "serve",
        "transfers.py",
        "--port",
        "0",
        "--postgres-port",
        "0",
        "--state",
        "state",
    ]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            url = next(url for line in process.stdout for url in re.findall(r"postgres(?:ql)?://\S+", line))
            place = urlsplit(url)
            yield ["-h", place.hostname, "-p", str(place.port), "-U", "ledger"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def median(runs: list[Figures]) -> Figures:
    """Returns the median of each figure by itself."""
    rate, middle, tail = (statistics.median(figures) for figures in zip(*runs, strict=True))
    return rate, middle, tail


def in_turns(rounds: int, *measures: Callable[[], Figures]) -> list[Figures]:
    """The medians of each."""
    runs = [[measure() for measure in measures] for _ in range(rounds)]
    return [median(list(own)) for own in zip(*runs, strict=True)]


def text(figures: Figures) -> str:
    """Returns the figures as a part of a line."""
    rate, middle, tail = figures
    return f"{rate:,.0f} ({middle:.2f} / {tail:.2f})"


def durable(given: argparse.Namespace, theirs: Place, ours: Place) -> None:
    """Compares calls that are on disk before the answer."""
    for clients in numbers(given):
        sides = [partial(place.measured, clients, given.seconds) for place in (theirs, ours)]
        rival, own = in_turns(given.rounds, *sides)
        print(f"durable, {clients} clients: {text(rival)} and {text(own)}, {own[0] / rival[0]:.2f} times as many")


def executed(given: argparse.Namespace, theirs: Place, ours: Place) -> None:
    """Answered before they are on disk; Redis keeps nothing."""
    with redis(given.rows) as memory:
        for clients in numbers(given):
            sides = [partial(place.measured, clients, given.seconds, durable=False) for place in (theirs, ours)]
            if memory is not None:
                sides.append(partial(memory.measured, clients, given.seconds))
            rival, own, *other = in_turns(given.rounds, *sides)
            print(f"not durable, {clients} clients: {text(rival)} and {text(own)}", end="")
            print(*(f"; Redis {text(one)}, {own[0] / one[0]:.2f} times as many" for one in other))


def one_client(given: argparse.Namespace, theirs: Place, ours: Place) -> None:
    """Measures how long one client waits, beside the least that the server can do."""
    seconds = given.seconds
    for name, place in (("PostgreSQL", theirs), ("Tidemill", ours)):
        select, soon, late = in_turns(
            given.rounds,
            partial(place.measured, 1, seconds, "select.sql"),
            partial(place.measured, 1, seconds, durable=False),
            partial(place.measured, 1, seconds),
        )
        print(f"one client of {name}, p50 in ms: select 1 {select[1]:.3f}, ", end="")
        print(f"not durable {soon[1]:.3f} ({soon[1] / select[1]:.1f} x), durable {late[1]:.3f}")
    print(f"a sync of 4 KiB that were appended: {sync(given.folder):.3f} ms")


def bound(given: argparse.Namespace, theirs: Place, ours: Place) -> None:
    """Measures the most that pgbench and the connections let through: ``select 1``, which no engine has a part in."""
    for clients in numbers(given):
        sides = [partial(place.measured, clients, given.seconds, "select.sql") for place in (theirs, ours)]
        rival, own = in_turns(given.rounds, *sides)
        print(f"select 1, {clients} clients: {text(rival)} and {text(own)}, {own[0] / rival[0]:.2f} times as many")


def sync(folder: Path, count: int = 1000) -> float:
    """The median time in milliseconds, in a file that grows."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(count):
            begin = time.monotonic()
            os.write(file.fileno(), b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append((time.monotonic() - begin) * 1000)
    return statistics.median(times)


PARTS = {"durable": durable, "executed": executed, "one": one_client, "bound": bound}


def numbers(given: argparse.Namespace) -> list[int]:
    """The numbers of clients."""
    return [int(number) for number in given.clients.split(",")]


def main() -> int:
    """Measures, where there is a server."""
    given = arguments()
    binaries = programs()
    if binaries is None:
        print("PostgreSQL: skipped, as no server is installed (Debian: postgresql); its pgbench makes all calls")
        return 0
    last = given.rows - 1
    with cluster(given.folder, binaries) as server, tempfile.TemporaryDirectory(dir=given.folder) as own:
        server.sql(SCHEMA.format(balance=BALANCE, last=last))
        (server.folder / "call.sql").write_text(CALL.format(last=last))
        (server.folder / "select.sql").write_text(SELECT)
        with tidemill(Path(own), given.rows) as client:
            print(f"PostgreSQL {server.version()} and Tidemill, calls/s, p50 and p99 in ms, medians of {given.rounds}")
            theirs, ours = Place(server, server.loopback, "postgres"), Place(server, client, "transfers")
            for part in given.parts.split(","):
                PARTS[part](given, theirs, ours)
    return 0


if __name__ == "__main__":
    sys.exit(main())
