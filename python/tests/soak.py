"""An hour of a server under attack, beside clients who are honest: what was acknowledged to them is there, once, and they get
what they get when they are alone.

    python python/tests/soak.py --seconds 3600

Attackers come from other addresses of this machine, in processes of their own with a lower priority: idle and greedy ones,
some that take nothing, statements and messages of every shape. Processes that answer queries are killed, and the server too,
which begins again with its state. Every ten seconds a line says how it goes. It fails where an acknowledged call is missing,
doubled or answered otherwise, where memory or descriptors are out of bounds, where goodput falls below its share, or where
the server does not end when it is told to.
"""

import argparse
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import sql_grammar
import test_messages
from server_process import Messages, add_user, launched, message, resident, startup, until

GOODPUT_MIN = 0.9
"""The share of what they have alone that honest clients have beside attackers."""
HELPERS_MAX = 2_000
"""MiB of all processes that answer queries, together."""
CONNECTIONS_MAX = 400
"""The number of connections of each protocol."""
RESIDENT_MAX = 200 + 256 + 512 + (4 + 1) * CONNECTIONS_MAX
"""MiB of the server: what it has without clients, tables in responses, prepared statements, and of each connection one message
of 1 MiB, which takes four times that where it is a body of events, as docs/server.md bounds them."""
DESCRIPTORS_MAX = 2 * CONNECTIONS_MAX + 200
GAP = 0.05
"""Seconds from one order of a client to the next: each becomes a call, whenever those before it are answered."""
GOOD_SECONDS = 1.0
"""The greatest delay of an answer to an order that counts for goodput, seconds."""
CLIENTS = 6
REPORT = 10.0
POISON = [
    "select " + "[" * 700 + "1" + "]" * 700,
    "select null::bigint" + "[]" * 700,
    "select " + "list_transform([1], lambda x: " * 600 + "1" + ")" * 600,
    "select 1 from accounts" + " cross join accounts" * 900,
    "select sum(length(repeat('a', 200000000))) from range(50)",
    "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "select count(*) from range(100000000) a, range(100000) b",
    "select list(x) from (select repeat('abc', 1000) x from range(10000000))",
]


class Honest(threading.Thread):
    """A client who gets an order each gap, and makes a call of it, with a key, until it is answered; one after the other."""

    def __init__(self, number, places, secret, stop):
        super().__init__(daemon=True)
        self.number, self.places, self.secret, self.stop = number, places, secret, stop
        self.acknowledged, self.made = {}, 0
        self.good = 0
        self.fault, self.slowest = None, 0.0
        self._connection = None

    def run(self):
        due = time.monotonic()
        while not self.stop.is_set():
            name = f"{self.number}.{self.made}"
            begun = time.monotonic()
            while not self.stop.is_set():
                try:
                    balance = self._call(name)
                except (OSError, http.client.HTTPException, ValueError):
                    self._close()
                    time.sleep(0.05)
                    continue
                if balance is not None:
                    self.acknowledged[name] = balance
                    self.made += 1
                    now = time.monotonic()
                    self.good += now - due < GOOD_SECONDS
                    self.slowest = max(self.slowest, now - begun)
                    break
                time.sleep(0.02)
            # Orders that came while there was no server went elsewhere.
            due = max(due + GAP, self.places["since"])
            self.stop.wait(max(0.0, due - time.monotonic()))
        self._close()

    def _call(self, name):
        """The answer; None where it may be asked again."""
        if self._connection is None:
            place = self.places["http"]
            self._connection = http.client.HTTPConnection(*place, timeout=10)
        headers = {"Authorization": f"Bearer {self.secret}", "Idempotency-Key": name}
        body = json.dumps({"account": name, "amount": 1})
        self._connection.request("POST", "/call/deposit", body, headers)
        response = self._connection.getresponse()
        reply = json.loads(response.read())
        if response.will_close:
            self._close()
        if response.status == 200:
            return reply["committed"]["balance"]
        if response.status != 503:
            self.fault = f"{name}: {response.status} {reply}"
        return None

    def _close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# The attackers. Each is a function of the places, the secret, and a source of numbers, and is called again and again.


def elsewhere(rng):
    return f"127.0.0.{rng.randrange(2, 6)}"


def connected(place, rng, buffer=None):
    one = socket.socket()
    if buffer is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    one.settimeout(3)
    one.bind((elsewhere(rng), 0))
    one.connect(place)
    return one


def head(line, secret, *more):
    lines = [f"{line} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {secret}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def idle(places, secret, rng):
    """Many who say nothing, or half of something."""
    held = []
    try:
        for _ in range(600):
            protocol = rng.choice(["http", "postgresql"])
            with suppress(OSError):
                one = connected(places[protocol], rng)
                held.append(one)
                one.sendall(rng.choice([b"", b"GET /hea" if protocol == "http" else startup(user="eve")]))
        time.sleep(rng.uniform(2, 8))
    finally:
        [one.close() for one in held]


def takers_of_nothing(places, secret, rng):
    """They ask for tables and streams, and take nothing of them."""
    held = []
    try:
        for _ in range(60):
            with suppress(OSError):
                one = connected(places["http"], rng, 4096)
                held.append(one)
                path = rng.choice(["/tables/items", "/tables/items", "/streams/deposit.committed", "/tables/accounts"])
                one.sendall(head(f"GET {path}", secret))
        time.sleep(rng.uniform(2, 8))
    finally:
        [one.close() for one in held]


def greedy(places, secret, rng):
    """More calls than are allowed, heavy ones among them."""
    heavy = rng.random() < 0.3
    fields = {"turns": 5_000_000} if heavy else {"account": "the greedy", "amount": 1}
    line = json.dumps({"call": "work" if heavy else "deposit", "fields": fields}) + "\n"
    body = (line * (50 if heavy else 5_000)).encode()
    with suppress(OSError), connected(places["http"], rng) as one:
        one.sendall(head("POST /calls", secret, f"Content-Length: {len(body)}") + body)
        if rng.random() < 0.5:
            one.settimeout(20)
            while one.recv(1 << 16):
                pass


def poison(places, secret, rng):
    """Queries that take too much."""
    text = rng.choice(POISON).encode()
    with suppress(OSError), connected(places["http"], rng) as one:
        one.sendall(head("POST /query", secret, f"Content-Length: {len(text)}") + text)
        one.settimeout(rng.choice([0.2, 20]))
        one.recv(1 << 16)


def statements(places, secret, rng):
    """Statements of every shape."""
    text = sql_grammar.statement(rng.randrange(1 << 30)).postgres.replace("\0", "").encode("utf-8", "replace")
    with suppress(OSError, AssertionError), Messages(places["postgresql"], "eve", secret, 10, elsewhere(rng)) as one:
        one.send(message(b"Q", text + b"\0"))
        one.answers()


def messages(places, secret, rng):
    """Messages of every shape."""
    over_http = rng.random() < 0.5
    try:
        if over_http:
            content, _ = rng.choice(test_messages.HTTP)(rng, test_messages.Requests(secret))
            with connected(places["http"], rng) as one:
                test_messages.exchange(one, content, 0.05)
        else:
            content, _ = rng.choice(test_messages.POSTGRES)(rng)
            with Messages(places["postgresql"], "eve", secret, 10, elsewhere(rng)) as one:
                test_messages.exchange(one.socket, content, 0.0)
    except (OSError, AssertionError):
        return  # The server may have been killed meanwhile.


def kept(places, secret, rng):
    """Statements and portals that are kept."""
    text = b"SELECT '" + b"x" * 500_000 + b"'\0"
    rows = b"SELECT repeat('x', 900) || i FROM range(20000) t(i)\0"
    with suppress(OSError, AssertionError), Messages(places["postgresql"], "eve", secret, 10, elsewhere(rng)) as one:
        for number in range(200):
            name = b"p%d\0" % number
            one.send(message(b"P", name + rng.choice([text, rows]) + b"\0\0") + message(b"B", name * 2 + b"\0" * 6))
            one.send(message(b"E", name + b"\0\0\0\1") + message(b"H"))
            tag = b""
            while tag not in (b"s", b"C", b"E"):
                tag, _ = one.next()
                if not tag:
                    return
        time.sleep(2)


ATTACKS = [idle, takers_of_nothing, greedy, poison, statements, messages, kept]


def attack(name, places_file, secret):
    """The work of one process of attackers: goes on until it is ended. ``places_file`` has where the server is now."""
    os.nice(10)
    rng = random.Random(name)
    do = next(one for one in ATTACKS if one.__name__ == name)
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            places = {what: tuple(place) for what, place in json.loads(Path(places_file).read_text()).items()}
            do(places, secret, rng)
        except (OSError, ValueError):
            time.sleep(0.2)


class Soak:
    """The run: a server, honest clients, attackers, and what was measured."""

    def __init__(self, folder, seconds, seed):
        self.folder, self.seconds, self.rng = folder, seconds, random.Random(seed)
        self.secrets = {
            "shop": add_user(folder, "shop", "--call", "deposit", "--read", "accounts", "--query"),
            "eve": add_user(folder, "eve", "--call", "*", "--read", "*", "--query", "--push", "*", "--subscribe", "*"),
            "ada": add_user(folder, "ada", "--admin"),
        }
        self.options = ("--state", "state", "--users", "users.json", "--query-seconds-max", "2")
        self.options += ("--silence-seconds-max", "10", "--connections-max", str(CONNECTIONS_MAX))
        self.stop, self.faults = threading.Event(), []
        self.most = {"resident": 0, "helpers": 0, "descriptors": 0}
        self.kills = {"server": 0, "queries": 0}
        self.down = 0.0
        self.places, self.attackers = {}, []
        self.server = None
        self.begin()

    def begin(self):
        """Begins the server, on ports of its own."""
        self.server = launched(self.folder, *self.options)
        until(self.is_ready, 120)
        places = {"http": self.server.http, "postgresql": self.server.postgres}
        self.places.update(**places, since=time.monotonic())
        made = self.folder / "places.new"
        made.write_text(json.dumps(places))
        made.replace(self.folder / "places")

    def is_ready(self):
        """Returns whether the server has replayed its log: a load balancer sends it calls from then on."""
        with suppress(OSError, http.client.HTTPException):
            return self.server.ask("GET", "/readyz")[0] == 200
        return False

    def kill_server(self):
        begun = time.monotonic()
        self.server.process.kill()
        self.server.process.wait()
        self.begin()
        self.kills["server"] += 1
        # Connections are made anew, and what waited is asked again.
        self.down += time.monotonic() - begun + 0.2

    def measure(self):
        """Looks at the server from outside."""
        with suppress(OSError):
            helpers = 0
            for number in self.server.query_processes():
                with suppress(OSError):
                    helpers += resident(number)
            now = {"resident": self.server.resident(), "helpers": helpers, "descriptors": self.server.descriptors()}
            self.most = {name: max(self.most[name], value) for name, value in now.items()}
            return now
        return dict.fromkeys(self.most, 0)

    def phase(self, clients, seconds, is_attacked):
        """Goes on for so long; gives the orders that were answered in time in a second in which there was a server."""
        begun, before, down = time.monotonic(), sum(client.good for client in clients), self.down
        reported, killed, helper_killed = begun, begun, begun
        pause = min(30.0, max(5.0, seconds / 8))
        while (now := time.monotonic()) < begun + seconds:
            time.sleep(0.25)
            seen = self.measure()
            if not self.server.lives():
                self.faults.append(
                    f"the server has ended with {self.server.process.poll()}: {self.server.said()[-500:]}"
                )
                self.begin()
            if is_attacked and now > helper_killed + pause / 3:
                for number in self.server.query_processes()[:1]:
                    with suppress(OSError):
                        os.kill(number, 9)
                        self.kills["queries"] += 1
                helper_killed = now
            if is_attacked and now > killed + pause and now < begun + seconds - 3:
                self.kill_server()
                killed = time.monotonic()
            if now > reported + REPORT:
                up = now - begun - (self.down - down)
                rate = (sum(client.good for client in clients) - before) / up
                print(
                    f"{now - begun:6.0f} s: {rate:6.1f} calls/s of honest clients, server {seen['resident']} MiB, queries "
                    f"{seen['helpers']} MiB, {seen['descriptors']} descriptors, kills {self.kills}",
                    flush=True,
                )
                reported = now
        up = time.monotonic() - begun - (self.down - down)
        return (sum(client.good for client in clients) - before) / up

    def attack(self):
        for one in ATTACKS:
            arguments = [sys.executable, __file__, "--attack", one.__name__, str(self.folder / "places")]
            environment = {**os.environ, "SOAK_SECRET": self.secrets["eve"]}
            self.attackers.append(subprocess.Popen(arguments, env=environment))

    def calm(self):
        for one in self.attackers:
            one.kill()
            one.wait()
        self.attackers = []

    def fill(self):
        """A table that is worth reading."""
        headers = {"Authorization": f"Bearer {self.secrets['ada']}"}
        for at in range(0, 10_000, 500):
            lines = (json.dumps({"number": number, "text": "x" * 1_000}) for number in range(at, at + 500))
            status, said = self.server.ask("POST", "/stream/stocks", "\n".join(lines).encode(), headers)
            assert status == 200, said

    def run(self):
        self.fill()
        clients = [Honest(number, self.places, self.secrets["shop"], self.stop) for number in range(CLIENTS)]
        [client.start() for client in clients]
        try:
            alone = self.phase(clients, min(60.0, max(10.0, self.seconds / 6)), False)
            print(f"alone: {alone:.1f} calls/s", flush=True)
            self.attack()
            beside = self.phase(clients, self.seconds, True)
        finally:
            self.calm()
            self.stop.set()
            [client.join(20) for client in clients]
        self.faults += [client.fault for client in clients if client.fault]
        self.settle()
        self.check(clients)
        begun = time.monotonic()
        code = self.server.end()
        if code != 0:
            self.faults.append(f"SIGTERM: exit code {code} after {time.monotonic() - begun:.1f} s")
        self.say(alone, beside, clients)

    def settle(self):
        """Waits until what attackers held is given back."""
        deadline = time.monotonic() + 20
        while self.server.descriptors() > 40 and time.monotonic() < deadline:
            time.sleep(0.2)
        if self.server.descriptors() > 40:
            self.faults.append(f"{self.server.descriptors()} descriptors are open when all clients are gone")

    def check(self, clients):
        """Holds what was acknowledged against the table: each name is an account with one deposit."""
        headers = {"Authorization": f"Bearer {self.secrets['ada']}"}
        status, text = self.server.ask("GET", "/tables/accounts", headers=headers, timeout=60)
        assert status == 200, text[:500]
        rows = {row["id"]: row["balance"] for row in map(json.loads, text.splitlines())}
        for client in clients:
            for name, balance in client.acknowledged.items():
                if balance != 1 or rows.get(name) != 1:
                    self.faults.append(f"call {name} was answered with {balance}, and the table has {rows.get(name)}")
        doubled = [name for name, balance in rows.items() if name[:1].isdigit() and "." in name and balance != 1]
        self.faults += [f"{name} was done {rows[name]} times" for name in doubled[:10]]

    def say(self, alone, beside, clients):
        goodput = beside / alone
        limits = {"resident": RESIDENT_MAX, "helpers": HELPERS_MAX, "descriptors": DESCRIPTORS_MAX}
        for name, most in limits.items():
            if self.most[name] > most:
                self.faults.append(f"{name}: {self.most[name]}, and {most} are allowed")
        if goodput < GOODPUT_MIN:
            self.faults.append(
                f"goodput: {goodput:.1%} of what honest clients have alone, and {GOODPUT_MIN:.0%} are wanted"
            )
        print(
            f"goodput {goodput:.1%} ({beside:.1f} of {alone:.1f} calls/s), slowest call "
            f"{max(client.slowest for client in clients):.2f} s; at most {self.most['resident']} MiB of the server, "
            f"{self.most['helpers']} MiB of queries, {self.most['descriptors']} descriptors; kills {self.kills}, "
            f"{self.down:.1f} s until there was a server again; "
            f"{sum(len(client.acknowledged) for client in clients)} calls acknowledged"
        )


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seconds", type=float, default=3600.0)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--attack", nargs=2, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.attack:
        attack(*given.attack, os.environ["SOAK_SECRET"])
        return 0
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), given.seconds, given.seed)
        try:
            soak.run()
        finally:
            soak.calm()
            if soak.server.lives():
                soak.server.process.kill()
            soak.server.process.wait()
    for fault in soak.faults[:20]:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
