"""A server in a process of its own, and what is looked at from outside while it is attacked: whether it lives and answers,
its memory, its descriptors, and the processes that answer its queries."""

import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

ANSWER_SECONDS = 2.0
"""The time that a call may take on a loaded machine, whatever others do, seconds. One call may be slow because the machine
stalls: ``least`` makes several."""
WAIT_SECONDS = 60.0
"""The time that something may take on a loaded machine that comes at once elsewhere, seconds: more is a hang."""
END_SECONDS = 30.0
"""The time that an end by a signal may take, seconds."""

BANK = """
import tidemill as tm

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0

class Item(tm.Row):
    number: int = tm.key()
    text: str = ""

class Deposit(tm.Event):
    account: str
    amount: int

class Put(tm.Event):
    number: int
    text: str

class Work(tm.Event):
    turns: int

class Many(tm.Event):
    account: str
    amounts: list[int]

class Click(tm.Event):
    account: str
    times: int

app = tm.App("bank")
accounts = app.table(Account)
items = app.table(Item)
deposits = app.requests(Deposit, remember="1h")
puts = app.requests(Put)
works = app.requests(Work)
manies = app.requests(Many)
clicks = app.source(Click)
stocks = app.source(Put, name="stocks")

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True)):
    tm.require(ev.amount > 0, "amount must be positive")
    a.balance += ev.amount
    return {"account": a.id, "balance": a.balance}

@app.transaction(puts)
def put(ev, i=items.row("number", create=True)):
    i.text = ev.text
    return {"number": i.number}

@app.transaction(works)
def work(ev):
    total = 0
    for turn in range(ev.turns):
        total = (total * 31 + turn) % 1000003
    return {"total": total}

@app.transaction(manies)
def many(ev, a=accounts.row("account", create=True)):
    for amount in ev.amounts:
        a.balance += amount
    return {"balance": a.balance}

@app.transaction(clicks)
def click(ev, a=accounts.row("account", create=True)):
    a.balance += ev.times

@app.transaction(stocks)
def stock(ev, i=items.row("number", create=True)):
    i.text = ev.text
"""


class Running:
    """A server that runs."""

    def __init__(self, process, said, folder):
        self.process = process
        self.folder = folder
        self._said = said
        self.http = self._place("http")
        self.postgres = self._place("postgresql")
        self.url = f"http://{self.http[0]}:{self.http[1]}"

    def _place(self, scheme):
        found = re.search(rf"{scheme}://\S+", self.said())
        place = urlsplit(found[0]) if found else None
        return (place.hostname, place.port) if place else None

    def said(self):
        """Returns the text that the server has written on standard error."""
        with open(self._said, encoding="utf-8", errors="replace") as file:
            return file.read()

    def lives(self):
        return self.process.poll() is None

    def resident(self):
        """The memory of the server, in MiB."""
        return resident(self.process.pid)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def query_processes(self):
        """The numbers of the processes that answer its queries."""
        return children(self.process.pid)

    def ask(self, method, path, body=None, headers=None, timeout=20, source=None):
        """The status and the text of a response. ``source``: the address to ask from, of this machine."""
        connection = http.client.HTTPConnection(*self.http, timeout=timeout, source_address=source and (source, 0))
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def is_well(self):
        """Returns whether it says so of itself."""
        status, text = self.ask("GET", "/health")
        return (status, json.loads(text)["status"]) == (200, "ok")

    def call(self, name, fields, timeout=20, source=None, **headers):
        status, text = self.ask("POST", f"/call/{name}", json.dumps(fields), headers, timeout, source)
        return status, json.loads(text)

    def end(self, number=signal.SIGTERM, seconds=END_SECONDS):
        """Ends it by a signal. Gives the exit code, which is None if it goes on."""
        self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def check_end(self):
        """Ends it, and checks that it ends well, with nothing left."""
        helpers = self.query_processes()
        begun = time.monotonic()
        code = self.end()
        assert code == 0, f"exit code {code} after {time.monotonic() - begun:.1f} s: {self.said()[-2000:]}"
        assert "panicked" not in self.said(), self.said()[-2000:]
        until(lambda: not any(lives(number) for number in helpers), 20)


def until(condition, seconds=WAIT_SECONDS, pause=0.02):
    """Waits for what is to come true. Returns it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it does not come true"
        time.sleep(pause)
    return found


def settled(measure, seconds=0.5):
    """Returns what is measured, once it stays as it is for so long."""
    before = None
    while before != (now := measure()):
        before = now
        time.sleep(seconds)
    return now


def least(measure, bound, tries=3):
    """Returns the first of several measurements that is below a bound, or else the least of them.

    A machine that stalls makes one of them large, a fault makes all.
    """
    found = []
    while len(found) < tries and not (found and found[-1] < bound):
        found.append(measure())
    return min(found)


def resident(number):
    with open(f"/proc/{number}/status", encoding="ascii", errors="replace") as status:
        found = re.search(r"VmRSS:\s*(\d+) kB", status.read())
    return int(found[1]) >> 10 if found else 0


def lives(number):
    return os.path.exists(f"/proc/{number}/exe")


def children(of):
    """The numbers of the processes that a process has begun and that have not ended."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if state != "Z" and int(parent) == of:
            found.append(int(number))
    return sorted(found)


def begun(folder, *options, program=BANK, descriptors=None, said=None, environment=None):
    """Begins a server. Gives the process once it listens or has ended, and the file with what it has said.

    ``descriptors``: how many it may have. ``environment``: what is set there.
    """
    (folder / "bank.py").write_text(program, encoding="utf-8")
    arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--workers", "1"]
    if "--port" not in options:
        arguments += ["--port", "0"]
    limit = descriptors and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)))
    said = said or folder / f"said-{time.monotonic_ns()}"
    # A file, and no pipe, which could be full.
    with open(said, "wb") as file:
        process = subprocess.Popen(
            [*arguments, *options],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=file,
            preexec_fn=limit,
            env={**os.environ, **(environment or {})},
        )
    try:
        until(lambda: process.poll() is not None or "serving" in said.read_text(encoding="utf-8"))
        return process, said
    except BaseException:
        process.kill()
        process.wait()
        raise


def launched(folder, *options, **how):
    """Begins a server; gives it once it listens."""
    process, said = begun(folder, *options, **how)
    assert process.poll() is None, said.read_text(encoding="utf-8")
    return Running(process, said, folder)


@contextmanager
def running(folder, *options, **how):
    """A server, which is killed at the end if it has not ended."""
    server = launched(folder, *options, **how)
    try:
        yield server
    finally:
        if server.lives():
            server.process.kill()
        server.process.wait()


def add_user(folder, name, *rights):
    """Adds a user; gives the secret."""
    arguments = [sys.executable, "-m", "tidemill", "user", "add", "users.json", name, *rights]
    ran = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.strip()


# The protocol of PostgreSQL, as bytes.


def startup(**parameters):
    body = struct.pack("!I", 3 << 16) + b"".join(f"{n}\0{v}\0".encode() for n, v in parameters.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def message(tag, body=b""):
    return tag + struct.pack("!I", len(body) + 4) + body


class Messages:
    """A connection of PostgreSQL's protocol."""

    def __init__(self, place, user="ada", secret=None, timeout=20, source=None):
        self.socket = socket.create_connection(place, timeout, source and (source, 0))
        self.file = self.socket.makefile("rb")
        try:
            self._greet(user, secret)
        except BaseException:
            self.close()
            raise

    def _greet(self, user, secret):
        self.send(startup(user=user, database="bank"))
        tag, body = self.next()
        if tag == b"R" and body[:4] == struct.pack("!I", 10):
            self._prove(secret)
        while tag not in (b"Z", b""):
            assert tag != b"E", body
            tag, body = self.next()
        assert tag == b"Z", "the connection ended before it began"

    def _prove(self, secret):
        """Shows that the secret is known, without sending it (RFC 5802, section 3)."""
        bare = b"n=,r=of-the-client"
        first = b"n,," + bare
        self.send(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first))
        tag, body = self.next()
        assert (tag, body[:4]) == (b"R", struct.pack("!I", 11)), body
        parts = dict(part.split(b"=", 1) for part in body[4:].split(b","))
        salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), base64.b64decode(parts[b"s"]), int(parts[b"i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = b"c=biws,r=" + parts[b"r"]
        signed = hmac.digest(hashlib.sha256(key).digest(), bare + b"," + body[4:] + b"," + last, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signed, strict=True))
        self.send(message(b"p", last + b",p=" + base64.b64encode(proof)))

    def send(self, content):
        self.socket.sendall(content)

    def next(self):
        """The tag and the body of the next message; an empty tag at the end of the connection."""
        try:
            head = self.file.read(5)
            if len(head) < 5:
                return b"", b""
            body = self.file.read(struct.unpack("!I", head[1:])[0] - 4)
        except ConnectionError:
            return b"", b""
        return head[:1], body

    def answers(self, until=b"Z"):
        """The tags of messages up to this one or the end of the connection, and the codes of errors."""
        tags, codes, tag = b"", [], None
        while tag not in (until, b""):
            tag, body = self.next()
            tags += tag
            if tag == b"E":
                codes.append(re.search(rb"\0C([0-9A-Z]{5})\0", b"\0" + body)[1].decode())
        return tags, codes

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
