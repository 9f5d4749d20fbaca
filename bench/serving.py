"""A served application, and a client of it that needs less of the machine than the server.

The client speaks the protocol of PostgreSQL, or HTTP. It writes messages that it made before, many at a time, and
counts the replies that come back.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

CALLS_ONCE = 300_000
"""The number of calls made that may not be made again: three rounds have fewer than keys are kept."""

COMMITTED, REFUSED = b"SELECT 1\0", b"C53"
"""The marks of a reply: the end of a result, and the first characters of the code of an error."""


def message(tag: bytes, body: bytes = b"") -> bytes:
    """One of the protocol of PostgreSQL."""
    return tag + struct.pack("!I", len(body) + 4) + body


SYNC = message(b"S")
READY = message(b"Z", b"I")


@dataclass
class Call:
    """A procedure, what gives the values of its next call, and whether the same calls may be made again."""

    procedure: str
    values: Callable[[], Sequence[object]]
    again: bool = True

    def parse(self, name: bytes) -> bytes:
        """Returns the message that prepares it as a statement of this name."""
        parameters = ", ".join(f"${number + 1}" for number in range(len(self.values())))
        text = f"SELECT * FROM {self.procedure}({parameters})".encode()
        return message(b"P", name + b"\0" + text + b"\0\0\0")

    def execute(self, name: bytes) -> bytes:
        """The next call, by the statement of this name."""
        values = [str(value).encode() for value in self.values()]
        body = b"\0" + name + b"\0" + struct.pack("!HH", 0, len(values))
        body += b"".join(struct.pack("!I", len(value)) + value for value in values) + b"\0\0"
        return message(b"B", body) + message(b"E", b"\0" * 5) + SYNC


class Served:
    """``tidemill serve``, with clients of its own."""

    def __init__(self, process: subprocess.Popen[str], http: str, postgres: str) -> None:
        self.process = process
        self.http, self.postgres = (
            (place.hostname or "", place.port or 0) for place in map(urlsplit, (http, postgres))
        )

    def connect(self, calls: Sequence[Call]) -> socket.socket:
        """A connection with a statement for each of these: ``0``, ``1`` and so on."""
        one = socket.create_connection(self.postgres)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(struct.pack("!II", 18, 3 << 16) + b"user\0any\0\0")
        one.sendall(b"".join(call.parse(b"%d" % number) for number, call in enumerate(calls)) + SYNC)
        said = b""
        while said.count(READY) < 2:
            said += one.recv(1 << 16)
        return one

    def calls(
        self, call: Call, seconds: float, clients: int, each: int, counted: bytes = COMMITTED
    ) -> tuple[int, int, list[float]]:
        """Calls by ``clients`` connections, each with ``each`` under way: those whose reply has what is ``counted``,
        and those that were refused, a second, and how many seconds those that a connection made together took."""
        count = 50 if call.again else CALLS_ONCE // each
        parts = [b"".join(call.execute(b"0") for _ in range(each)) for _ in range(count)]
        done = refused = sent = 0
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
                one = self.connect([call])
                tails[one] = b""
                selector.register(one, selectors.EVENT_READ)
            begin = time.monotonic()
            for one in tails:
                send(one)
            while time.monotonic() < begin + seconds and (call.again or sent < len(parts)):
                for key, _ in selector.select(0.1):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    said = tails[one] + one.recv(1 << 18)
                    # The last reply that is whole ends here.
                    end = said.rfind(READY) + len(READY)
                    if end < len(READY):
                        tails[one] = said
                        continue
                    whole, tails[one] = said[:end], said[end:]
                    done += whole.count(counted)
                    refused += whole.count(REFUSED)
                    got[one] += whole.count(READY)
                    if got[one] == each:
                        got[one] = 0
                        times.append(time.monotonic() - begun[one])
                        send(one)
            took = time.monotonic() - begin
            [one.close() for one in tails]
        return round(done / took), round(refused / took), times

    def lines(self, call: Callable[[], bytes], seconds: float, clients: int, each: int) -> float:
        """Calls a second over HTTP, each a line of ``POST /calls``. ``clients`` connections have ``each`` under way."""
        parts = [b"".join(call() for _ in range(each)) for _ in range(50)]
        done = sent = 0
        with selectors.DefaultSelector() as selector:

            def send(one: socket.socket) -> None:
                nonlocal sent
                one.sendall(b"%x\r\n%b\r\n" % (len(parts[sent % 50]), parts[sent % 50]))
                sent += 1

            got: Counter[socket.socket] = Counter()
            for _ in range(clients):
                one = socket.create_connection(self.http)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                one.sendall(b"POST /calls HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
                selector.register(one, selectors.EVENT_READ)
                got[one] = 0
            begin = time.monotonic()
            for one in got:
                send(one)
            while time.monotonic() < begin + seconds:
                for key, _ in selector.select(0.1):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    committed = one.recv(1 << 18).count(b'"status":200,')
                    done += committed
                    got[one] += committed
                    if got[one] == each:
                        got[one] = 0
                        send(one)
            took = time.monotonic() - begin
            [one.close() for one in got]
        return done / took

    def one_by_one(self, calls: Sequence[Call], seconds: float) -> float:
        """Rounds of these calls a second by one client, which makes each when it has the reply of the one before."""
        parts = [call.execute(b"%d" % number) for number, call in enumerate(calls)]
        rounds = 0
        with self.connect(calls) as one:
            begin = time.monotonic()
            while time.monotonic() < begin + seconds:
                for part in parts:
                    one.sendall(part)
                    said = b""
                    while not said.endswith(READY):
                        said += one.recv(1 << 16)
                    assert COMMITTED in said, said
                rounds += 1
            return rounds / (time.monotonic() - begin)

    def ask(self, method: str, path: str, body: str = "") -> bytes:
        """Another request."""
        connection = http.client.HTTPConnection(*self.http, timeout=120)
        try:
            connection.request(method, path, body)
            return connection.getresponse().read()
        finally:
            connection.close()

    def events(self, source: str) -> int:
        """The events that a source has brought."""
        found = re.search(rf'tidemill_events_total{{source="{source}"}} (\d+)'.encode(), self.ask("GET", "/metrics"))
        return int(found[1]) if found else 0

    def memory_and_time(self) -> tuple[float, float]:
        """Its memory in MiB, and the seconds that it has had of the processors."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = os.sysconf("SC_CLK_TCK")
        return int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20), (int(stat[11]) + int(stat[12])) / ticks


@contextmanager
def served(
    folder: Path, files: Mapping[str, str], *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """A server of ``app.py`` among these files, with a state. ``folder`` is on the disk to be measured."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        for name, text in files.items():
            (Path(own) / name).write_text(text)
        command = [sys.executable, "-m", "tidemill", "serve", "app.py", "--port", "0", "--postgres-port", "0"]
        with subprocess.Popen(
            [*command, "--state", "state", *options],
            cwd=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                line = next(line for line in process.stdout if "serving" in line)
                Thread(target=process.stdout.read, daemon=True).start()
                http, postgres = (re.search(rf"{what}://\S+", line)[0] for what in ("http", "postgresql"))
                yield Served(process, http, postgres)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=120)


def measure(parser: argparse.ArgumentParser, parts: Mapping[str, Callable[[argparse.Namespace], None]]) -> int:
    """Measures the parts that the command line names, with ``seconds``, ``rounds`` and ``folder`` for each."""
    parser.add_argument("--seconds", type=float, default=3, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs, of which the median is told")
    parser.add_argument("--folder", type=Path, default=Path("target/served"), help="on the disk to be measured")
    parser.add_argument("--parts", default=",".join(parts), help="what is measured (default: %(default)s)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for part in given.parts.split(","):
        parts[part](given)
    return 0
