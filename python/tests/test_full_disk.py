"""A disk that is full under a served application: what was acknowledged stays, what can be read is read, what is wrong is
said, and a signal ends the server. It needs a file system of its own, so root."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from server_process import BANK, WAIT_SECONDS, Messages, launched, message, running, until

SIZE_MB = 96
SINKS = """
app.sink(deposit.committed, tm.jsonl("done.jsonl"))
"""
READ_SECONDS = 30.0
"""Within which a read is answered, also on a loaded machine."""


@pytest.fixture
def disk(tmp_path):
    """A small file system in memory."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk):
    """Takes all the room that there is."""
    with open(disk / "ballast", "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC


def deposit(server, number, timeout=1.0):
    """The balance after a call with a key of its own; None where it is not answered in time, or refused."""
    fields = {"account": f"a{number % 5}", "amount": 1}
    try:
        status, reply = server.call("deposit", fields, timeout, **{"Idempotency-Key": f"k{number}"})
    except OSError:
        return None
    return reply["committed"]["balance"] if status == 200 else None


def is_full(server):
    """Returns whether a server says that it has no room."""
    status, said = server.ask("GET", "/health", timeout=READ_SECONDS)
    return status == 503 and b"room" in said


def filled_up(server, disk, said):
    """Fills the disk and makes calls until one is not answered. ``said``: the balance that each call was answered with."""
    fill(disk)
    deadline = time.monotonic() + 4 * WAIT_SECONDS
    for number in range(len(said), 100_000):
        # One that only takes long is made again, with the same key.
        while (balance := deposit(server, number)) is None and not is_full(server):
            assert server.lives() and time.monotonic() < deadline, server.said()
        fill(disk)
        if balance is None:
            return
        said[number] = balance
    pytest.fail("the disk does not become full")


def check_again(disk, said):
    """All that was answered is there, once, and is answered in the same way."""
    with running(disk, "--state", "state", program=BANK + SINKS, said=disk.parent / "again") as server:
        assert {number: deposit(server, number, 20) for number in said} == said
        server.check_end()
    with open(disk / "done.jsonl", encoding="utf-8") as done:
        seen = [(line["account"], line["balance"]) for line in map(json.loads, done)]
    assert len(set(seen)) == len(seen)
    assert {(f"a{number % 5}", balance) for number, balance in said.items()} <= set(seen)


@pytest.fixture
def full(disk):
    """A server whose disk is full, and what it has answered before."""
    said = {}
    server = launched(disk, "--state", "state", program=BANK + SINKS, said=disk.parent / "said")
    try:
        for number in range(30):
            said[number] = deposit(server, number, 20)
        filled_up(server, disk, said)
        yield server, disk, said
    finally:
        if server.lives():
            server.process.kill()
        server.process.wait()


def over_postgres(server, text):
    with Messages(server.postgres, timeout=READ_SECONDS) as one:
        one.send(message(b"Q", text + b"\0"))
        return one.answers()


READS = {
    "key": lambda server: server.ask("GET", "/tables/accounts/a1", timeout=READ_SECONDS)[0] == 200,
    "table": lambda server: server.ask("GET", "/tables/accounts", timeout=READ_SECONDS)[1].count(b"\n") == 5,
    "query": lambda server: (
        server.ask("POST", "/query", "select count(*) as c from accounts", timeout=READ_SECONDS) == (200, b'{"c":5}\n')
    ),
    "key over postgresql": lambda server: (
        over_postgres(server, b"SELECT * FROM accounts WHERE id = 'a1'") == (b"TDCZ", [])
    ),
    "table over postgresql": lambda server: over_postgres(server, b"SELECT * FROM accounts") == (b"TDDDDDCZ", []),
    "query over postgresql": lambda server: (
        over_postgres(server, b"SELECT count(*) FROM accounts a JOIN accounts b USING (id)") == (b"TDCZ", [])
    ),
}


@pytest.mark.parametrize("kind", READS)
def test_reads_are_answered(full, kind):
    server, _, _ = full
    try:
        answered = READS[kind](server)
    except TimeoutError:
        answered = False
    assert answered


def test_what_is_wrong_is_said(full):
    server, disk, _ = full
    assert is_full(server)
    (disk / "ballast").unlink()
    until(lambda: server.ask("GET", "/health", timeout=READ_SECONDS)[0] == 200)


@pytest.mark.parametrize("waiting", ["nothing", "a call", "a read", "a query"])
def test_a_signal_ends_it_without_loss(full, waiting):
    server, disk, said = full
    waits = {
        "nothing": None,
        "a call": lambda: deposit(server, 1_000_000, 30),
        "a read": lambda: server.ask("GET", "/tables/accounts", timeout=30),
        "a query": lambda: server.ask("POST", "/query", "select count(*) from accounts", timeout=30),
    }[waiting]

    def wait():
        try:
            waits()
        except (OSError, ValueError):
            pass  # The server ends meanwhile.

    thread = threading.Thread(target=wait)
    if waits is not None:
        thread.start()
        time.sleep(0.3)
    code = server.end(signal.SIGTERM, WAIT_SECONDS)
    if code is None:
        server.process.kill()
    if waits is not None:
        thread.join(WAIT_SECONDS)
    (disk / "ballast").unlink()
    check_again(disk, said)
    assert code is not None, f"it goes on, {WAIT_SECONDS} s after the signal"


def test_it_goes_on_when_there_is_room(full):
    server, disk, said = full
    (disk / "ballast").unlink()
    number = len(said)
    until(lambda: deposit(server, number, 5) is not None)
    # It is the answer of the call that was made before, or of the one that was made again.
    said[number] = deposit(server, number, 20)
    assert server.end() == 0, server.said()
    check_again(disk, said)


def test_a_kill_on_a_full_disk_loses_nothing(full):
    server, disk, said = full
    server.process.kill()
    server.process.wait()
    (disk / "ballast").unlink()
    check_again(disk, said)


def test_a_run_that_finds_no_room_says_why_and_can_be_ended(full):
    """A run waits for room or ends at once."""
    server, disk, said = full
    server.process.kill()
    server.process.wait()
    arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--state", "state", "--port", "0", "-q"]
    said_at = disk.parent / "begun"
    with open(said_at, "wb") as file:
        begun = subprocess.Popen(arguments, cwd=disk, stdout=subprocess.DEVNULL, stderr=file)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while begun.poll() is None and time.monotonic() < deadline:
            if re.search("space|room", said_at.read_text(encoding="utf-8")):
                begun.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        says = said_at.read_text(encoding="utf-8")
        assert begun.poll() is not None and re.search("space|room", says), f"{begun.poll()}, and it says {says!r}"
    finally:
        begun.kill()
        begun.wait()
        (disk / "ballast").unlink()
    check_again(disk, said)
