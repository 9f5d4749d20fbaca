"""What a served application bears: calls alone, in excess, with keys, beside queries and beside a stream.

    make release && .venv/bin/python bench/served.py

Calls are transfers between accounts over the protocol of PostgreSQL, and the application has a state. The client writes
messages that it made before, many at a time, and counts the replies that come back, so that it needs less of the
machine than the server. All is measured in rounds, one after the other; the medians are told. One line a figure.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import re
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

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

BALANCE = 1_000_000_000
QUERY = "select id % 10 as part, sum(value) as total from accounts group by part"
COMMITTED, REFUSED = b"SELECT 1\0", b"C53"
"""What a reply contains: the end of a result, and the first characters of the code of an error."""


def message(tag: bytes, body: bytes = b"") -> bytes:
    """One of the protocol of PostgreSQL."""
    return tag + struct.pack("!I", len(body) + 4) + body


SYNC = message(b"S")
READY = message(b"Z", b"I")


class Served:
    """``tidemill serve``, with clients of its own."""

    def __init__(self, process: subprocess.Popen[str], http: str, postgres: str, rows: int) -> None:
        self.process = process
        self.http, self.postgres = (
            (place.hostname or "", place.port or 0) for place in map(urlsplit, (http, postgres))
        )
        self.rows = rows
        self.keys = 0

    def requests(self, count: int, has_keys: bool) -> bytes:
        """Calls, one after the other."""
        made = []
        for _ in range(count):
            values = [str(random.randrange(self.rows)).encode() for _ in range(2)] + [b"1"]
            if has_keys:
                self.keys += 1
                values.append(str(self.keys).encode())
            body = b"\0\0" + struct.pack("!HH", 0, len(values))
            body += b"".join(struct.pack("!I", len(value)) + value for value in values) + b"\0\0"
            made.append(message(b"B", body) + message(b"E", b"\0" * 5) + SYNC)
        return b"".join(made)

    def connect(self, has_keys: bool) -> socket.socket:
        """A connection with a statement."""
        one = socket.create_connection(self.postgres)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(struct.pack("!II", 18, 3 << 16) + b"user\0any\0\0")
        parameters = "$1, $2, $3" + (", $4" if has_keys else "")
        parse = message(b"P", f"\0SELECT * FROM transfer({parameters})\0\0\0".encode())
        said = b""
        one.sendall(parse + SYNC)
        while said.count(READY) < 2:
            said += one.recv(1 << 16)
        return one

    def calls(self, seconds: float, clients: int, each: int, has_keys: bool = False) -> tuple[int, int, list[float]]:
        """Calls by ``clients`` connections, each with ``each`` under way: those that committed and that were refused, a
        second, and how many seconds those that a connection made together took."""
        # A key that comes again would run nothing.
        parts = [self.requests(each, has_keys) for _ in range(int(seconds * 200_000 / each) if has_keys else 50)]
        committed = refused = sent = 0
        times: list[float] = []
        got: Counter[socket.socket] = Counter()
        begun: dict[socket.socket, float] = {}
        tails: dict[socket.socket, bytes] = {}
        with selectors.DefaultSelector() as selector:

            def send(one: socket.socket) -> None:
                nonlocal sent
                begun[one] = time.monotonic()
                one.sendall(parts[sent % len(parts)])
                sent += 1

            for _ in range(clients):
                one = self.connect(has_keys)
                tails[one] = b""
                selector.register(one, selectors.EVENT_READ)
            begin = time.monotonic()
            for one in tails:
                send(one)
            while time.monotonic() < begin + seconds and not (has_keys and sent >= len(parts)):
                for key, _ in selector.select(0.1):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    said = tails[one] + one.recv(1 << 18)
                    # Up to the last reply that is whole.
                    end = said.rfind(READY) + len(READY)
                    if end < len(READY):
                        tails[one] = said
                        continue
                    whole, tails[one] = said[:end], said[end:]
                    committed += whole.count(COMMITTED)
                    refused += whole.count(REFUSED)
                    got[one] += whole.count(READY)
                    if got[one] == each:
                        got[one] = 0
                        times.append(time.monotonic() - begun[one])
                        send(one)
            took = time.monotonic() - begin
            [one.close() for one in tails]
        return round(committed / took), round(refused / took), times

    def ask(self, method: str, path: str, body: str = "") -> bytes:
        """Another request."""
        connection = http.client.HTTPConnection(*self.http, timeout=120)
        try:
            connection.request(method, path, body)
            return connection.getresponse().read()
        finally:
            connection.close()

    def events(self) -> int:
        """The events that the stream has brought."""
        found = re.search(rb'tidemill_events_total\{source="deposits"\} (\d+)', self.ask("GET", "/metrics"))
        return int(found[1]) if found else 0

    def memory_and_time(self) -> tuple[float, float]:
        """Its memory in MiB, and the seconds that it has had of the processors."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20), (int(stat[11]) + int(stat[12])) / ticks


@contextmanager
def served(folder: Path, rows: int, rate: float = 0) -> Iterator[Served]:
    """A server with so many accounts, and deposits at a rate."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        place = Path(own)
        (place / "transfers.py").write_text(PROGRAM)
        lines = "".join(f"{key},{BALANCE}\n" for key in range(rows))
        (place / "accounts.csv").write_text(f"id,value\n{lines}")
        command = [sys.executable, "-m", "tidemill", "serve", "transfers.py", "--port", "0", "--postgres-port", "0"]
        environment = {**os.environ, "ROWS": str(rows), "RATE": str(rate)}
        options = {"cwd": own, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
        with subprocess.Popen([*command, "--state", "state"], text=True, **options) as process:
            assert process.stdout is not None
            try:
                line = next(line for line in process.stdout if "serving" in line)
                Thread(target=process.stdout.read, daemon=True).start()
                http, postgres = (re.search(rf"{what}://\S+", line)[0] for what in ("http", "postgresql"))
                yield Served(process, http, postgres, rows)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=120)


def tail(times: list[float]) -> float:
    """The 99th percentile in milliseconds."""
    return sorted(times)[len(times) * 99 // 100] * 1000


def idle(given: argparse.Namespace) -> None:
    with served(given.folder, 1000) as server:
        time.sleep(2)
        _, before = server.memory_and_time()
        time.sleep(given.seconds)
        memory, after = server.memory_and_time()
        print(f"idle: {memory:.0f} MiB, {(after - before) / given.seconds:.2%} of a core")


def alone(given: argparse.Namespace) -> None:
    plain, excess, refusals, keys, tails = [], [], [], [], []
    with served(given.folder, 100_000) as server:
        server.calls(1, 4, 64)
        for _ in range(given.rounds):
            plain.append(server.calls(given.seconds, 4, 250)[0])
            committed, refused, _ = server.calls(given.seconds, 100, 1000)
            excess.append(committed)
            refusals.append(refused)
            keys.append(server.calls(given.seconds, 4, 250, has_keys=True)[0])
            tails.append(tail(server.calls(given.seconds, 32, 1)[2]))
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
    with served(given.folder, 5_000_000) as server:
        server.ask("POST", "/query", QUERY)
        for _ in range(given.rounds):
            without.append(server.calls(given.seconds, 4, 250)[0])
            ends = Event()

            def look(ends: Event = ends) -> None:
                while not ends.is_set():
                    begin = time.monotonic()
                    assert b"total" in server.ask("POST", "/query", QUERY)
                    scans.append(time.monotonic() - begin)
                    ends.wait(max(0, 1 - scans[-1]))

            reader = Thread(target=look)
            reader.start()
            beside.append(server.calls(given.seconds, 4, 250)[0])
            ends.set()
            reader.join()
    rate, other = statistics.median(without), statistics.median(beside)
    print(
        f"beside a sum by group of 5 million rows each second: {other:,.0f} of {rate:,.0f} calls/s, {other / rate:.2f}"
    )
    scan = statistics.median(scans) * 1000
    print(f"such a query: {scan:.0f} ms; by DuckDB alone on one thread: {duckdb_alone():.0f} ms")


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
    with served(given.folder, 100_000, rate=1e9) as server:
        time.sleep(1)
        before, begin = server.events(), time.monotonic()
        time.sleep(given.seconds)
        peak = (server.events() - before) / (time.monotonic() - begin)
    with served(given.folder, 100_000) as server:
        server.calls(1, 4, 64)
        few = server.calls(given.seconds, 4, 64)[0]
    with served(given.folder, 100_000, rate=peak / 2) as server:
        server.calls(1, 4, 64)
        before, begin = server.events(), time.monotonic()
        committed, _, times = server.calls(given.seconds, 4, 64)
        flow = (server.events() - before) / (time.monotonic() - begin)
    print(f"alone: a stream of {peak:,.0f} events/s; {few:,.0f} calls/s, 256 under way")
    print(
        f"the stream at half of its rate: {flow / (peak / 2):.2f} of that is reached, beside {committed:,} calls/s",
        end="",
    )
    print(f" ({committed / few:.2f}), p99 {tail(times):.1f} ms")


PARTS = {"idle": idle, "alone": alone, "queries": beside_queries, "stream": beside_a_stream}


def main() -> int:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs, of which the median is told")
    parser.add_argument("--folder", type=Path, default=Path("target/served"), help="on the disk to be measured")
    parser.add_argument("--parts", default=",".join(PARTS), help="what is measured (default: %(default)s)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for part in given.parts.split(","):
        PARTS[part](given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
