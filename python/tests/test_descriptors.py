"""A server whose clients would take all descriptors that the process may have: its log, checkpoints and sinks need some."""

import json
import resource
import signal
import socket
import time
from contextlib import ExitStack, closing

import pytest
from server_process import ANSWER_SECONDS, BANK, WAIT_SECONDS, add_user, running, settled, startup, until

LIMIT = 1_024
"""The usual number."""
SINKS = """
app.sink(deposit.committed, tm.jsonl("done.jsonl"))
app.sink(deposit.committed, tm.csv("done.csv"))
"""
OWN = 200
"""Descriptors that stay for the engine."""


@pytest.fixture(autouse=True)
def enough():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * LIMIT:
        pytest.skip(f"this process may have {hard} descriptors, and the test needs {4 * LIMIT}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silent(server, stack, counts):
    """Connects so many clients, as far as they are taken, and waits until the server has seen to them."""
    for place, count, first in zip((server.http, server.postgres), counts, (b"", startup(user="ada")), strict=True):
        left_out = 0
        for _ in range(count):
            try:
                one = stack.enter_context(closing(socket.create_connection(place, 1)))
                one.sendall(first)
            except OSError:
                # It is refused, or not taken.
                left_out += 1
                if left_out == 3:
                    break
    settled(server.descriptors)
    until(lambda: server.descriptors() <= LIMIT - OWN // 2)


def deposits(server, numbers, **headers):
    """Makes calls on connections of their own, each to a new account. Checks that one of them is answered in time."""

    def deposit(number):
        begun = time.monotonic()
        status, reply = server.call("deposit", {"account": f"a{number}", "amount": 1}, WAIT_SECONDS, **headers)
        assert status == 200, reply
        return time.monotonic() - begun

    assert min(deposit(number) for number in numbers) < ANSWER_SECONDS


@pytest.mark.parametrize("users", [False, True], ids=["without users", "with users"])
def test_silent_clients_leave_descriptors_to_the_run(tmp_path, users):
    options, headers = ["--state", "state"], {}
    if users:
        options += ["--users", "users.json"]
        headers = {"Authorization": f"Bearer {add_user(tmp_path, 'ada', '--admin')}"}
    with running(tmp_path, *options, program=BANK + SINKS, descriptors=LIMIT) as server, ExitStack() as stack:
        kept = stack.enter_context(closing(Kept(server, headers)))
        assert kept.deposit(0) == 200
        silent(server, stack, (1_000, 900))
        # One who was there before is served, with all that a run does meanwhile: epochs, checkpoints, savepoints, queries.
        assert [kept.deposit(number) for number in range(1, 40)] == [200] * 39
        assert kept.ask("POST", "/console/savepoint", "")[0] == 200
        assert kept.ask("POST", "/query", "select count(*) as c from accounts") == (200, b'{"c":40}\n')
        assert kept.deposit(40) == 200
        assert server.lives() and "panicked" not in server.said()
        assert server.end(signal.SIGTERM) == 0, server.said()
    with running(tmp_path, *options, program=BANK + SINKS) as server:
        deposits(server, range(41, 44), **headers)
        assert server.ask("POST", "/query", "select count(*) as c from accounts", headers) == (200, b'{"c":44}\n')
        server.check_end()
    with open(tmp_path / "done.jsonl", encoding="utf-8") as done:
        assert [json.loads(line)["account"] for line in done] == [f"a{number}" for number in range(44)]


def test_a_run_that_finds_no_descriptor_waits_for_one(tmp_path):
    """The process has none left, as where something else has taken them; then it has some again."""
    with running(tmp_path, "--state", "state", program=BANK + SINKS) as server:
        with closing(Kept(server, {})) as kept:
            assert kept.deposit(0) == 200
            soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (server.descriptors(), hard))
            # Calls that need no descriptor are answered; those that wait for one are answered later, or not at all.
            said = [kept.deposit(number, timeout=3) for number in range(1, 5)]
            assert set(said) <= {200, 503, None} and server.lives(), server.said()
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
            deadline = time.monotonic() + WAIT_SECONDS
            while kept.deposit(9, timeout=3) != 200:
                assert server.lives() and time.monotonic() < deadline, server.said()
        server.check_end()


class Kept:
    """A client with a connection that stays open, and is opened again after a time-out alone."""

    def __init__(self, server, headers):
        self._server, self._headers, self._socket = server, headers, None

    def ask(self, method, path, body, timeout=20):
        if self._socket is None:
            self._socket = socket.create_connection(self._server.http, 5)
        self._socket.settimeout(timeout)
        content = body.encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        try:
            self._socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
            return self._answer()
        except OSError:
            self.close()
            return None, b""

    def _answer(self):
        said = b""
        while b"\r\n\r\n" not in said:
            said += self._more()
        head, _, body = said.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        names = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"content-length" in names:
            while len(body) < int(names[b"content-length"]):
                body += self._more()
            return status, body
        # In parts.
        while not body.endswith(b"0\r\n\r\n"):
            body += self._more()
        text, rest = b"", body
        while rest and (size := int(rest.split(b"\r\n", 1)[0], 16)):
            rest = rest.split(b"\r\n", 1)[1]
            text, rest = text + rest[:size], rest[size + 2 :]
        return status, text

    def _more(self):
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionResetError
        return part

    def deposit(self, number, timeout=WAIT_SECONDS):
        return self.ask("POST", "/call/deposit", json.dumps({"account": f"a{number}", "amount": 1}), timeout)[0]

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None
