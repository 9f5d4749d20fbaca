"""Calls over the protocol of PostgreSQL: a transfer between two accounts, there and in ``tidemill serve``.

The same ``pgbench`` makes them, of both in turns, so that both see the same machine. Both have a transfer on disk
before they answer. PostgreSQL is spoken to over a local socket, Tidemill over loopback. Says so and does nothing where
there is no server of PostgreSQL to start.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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

BALANCE = 1_000_000_000


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="accounts")
    parser.add_argument("--seconds", type=int, default=5, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs, of which the median is told")
    parser.add_argument("--clients", default="1,8,32", help="numbers of clients")
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


def measured(
    server: Cluster, client: list[str], database: str, clients: int, seconds: int
) -> tuple[float, float, float]:
    """Calls a second, and the median and 99th percentile of their latency, milliseconds."""
    for log in server.folder.glob("calls.*"):
        log.unlink()
    count = ["-c", str(clients), "-j", "1", "-T", str(seconds), "-l", "--log-prefix", server.folder / "calls"]
    script = ["-n", "-M", "prepared", "-f", server.folder / "call.sql"]
    said = server.run("pgbench", *client, *map(str, count), *map(str, script), database)
    rate = float(re.search(r"tps = ([\d.]+)", said)[1])
    lines = [line.split() for log in server.folder.glob("calls.*") for line in log.read_text().splitlines()]
    times = sorted(int(line[2]) / 1000 for line in lines)
    return rate, times[len(times) // 2], times[len(times) * 99 // 100]


def median(runs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Of each figure by itself."""
    rate, middle, tail = (statistics.median(figures) for figures in zip(*runs, strict=True))
    return rate, middle, tail


def main() -> int:
    """Measures, where there is a server."""
    given = arguments()
    binaries = programs()
    if binaries is None:
        print("PostgreSQL: skipped, as no server is installed (Debian: postgresql)")
        return 0
    last = given.rows - 1
    with cluster(given.folder, binaries) as server, tempfile.TemporaryDirectory(dir=given.folder) as own:
        server.sql(SCHEMA.format(balance=BALANCE, last=last))
        (server.folder / "call.sql").write_text(CALL.format(last=last))
        with tidemill(Path(own), given.rows) as client:
            print(f"PostgreSQL {server.version()} and Tidemill, calls/s, p50 and p99 in ms, medians of {given.rounds}")
            for clients in map(int, given.clients.split(",")):
                rivals, ours = [], []
                for _ in range(given.rounds):
                    rivals.append(measured(server, server.client, "postgres", clients, given.seconds))
                    ours.append(measured(server, client, "transfers", clients, given.seconds))
                (rate, *times), (own_rate, *own_times) = median(rivals), median(ours)
                print(
                    f"{clients} clients: {rate:,.0f} ({times[0]:.2f} / {times[1]:.2f}) and "
                    f"{own_rate:,.0f} ({own_times[0]:.2f} / {own_times[1]:.2f}), {own_rate / rate:.1f} times as many"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
