"""A server whose disk is full: what was answered can be read, and a signal ends it without loss."""

import http.client
import json
import os
import select
import signal
import subprocess
import threading
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest
from server_process import until
from test_server import command

import tidemill as tm


@contextmanager
def small_disk(folder):
    """A file system of 80 MiB, for those who may mount one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("it needs a file system of its own")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(folder):
    """Takes all the room that is left; gives it back when the file is removed."""
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        except OSError:
            pass
        try:
            while os.write(file.fileno(), bytes(1 << 12)):
                pass
        except OSError:
            pass
    return ballast


def ask(url, path, body=None, timeout=5.0):
    """The status and the text of an answer; none if it does not come in time."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def until_ready(url):
    until(lambda: (ask(url, "/health") or [None])[0] == 200, pause=0.01)


def deposit(url, amount=1):
    return ask(url, "/call/deposit", json.dumps({"account": "ada", "amount": amount}), timeout=20.0)


def is_full(url):
    """Returns whether a server says that it has no room."""
    status, text = ask(url, "/health") or (None, "")
    return status == 503 and "the disk is full" in text


def until_it_waits(url):
    """Deposits until one is not answered, since the disk is full; how many were."""
    place, answered = urlsplit(url), 0
    body = json.dumps({"account": "ada", "amount": 1})
    while True:
        with closing(http.client.HTTPConnection(place.hostname, place.port, timeout=20)) as connection:
            connection.request("POST", "/call/deposit", body)
            is_answered = lambda seconds, of=connection.sock: bool(select.select([of], [], [], seconds)[0])
            # An answer that only takes long is not given up.
            until(lambda is_answered=is_answered: is_answered(0.1) or is_full(url))
            if not is_answered(1.0):
                return answered
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
        answered += 1


def test_what_was_answered_is_read_while_the_disk_is_full(tmp_path):
    with small_disk(tmp_path / "disk") as folder:
        with command(folder, "--state", "state") as (process, url):
            until_ready(url)
            for _ in range(3):
                assert deposit(url)[0] == 200
            ballast = fill(folder)
            balance = 3 + until_it_waits(url)
            for _ in range(3):
                status, row = ask(url, "/tables/accounts/ada")
                assert (status, json.loads(row)) == (200, {"id": "ada", "balance": balance})
                status, rows = ask(url, "/tables/accounts")
                assert (status, json.loads(rows)) == (200, {"id": "ada", "balance": balance})
            assert is_full(url)
            ballast.unlink()
            # The one that waited runs as well: nobody has taken it back.
            assert json.loads(deposit(url)[1])["committed"]["balance"] == balance + 2
            assert ask(url, "/health")[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


@pytest.mark.parametrize("reads", [False, True])
def test_a_signal_ends_a_server_whose_disk_is_full(tmp_path, reads):
    with small_disk(tmp_path / "disk") as folder:
        with command(folder, "--state", "state") as (process, url):
            assert deposit(url)[0] == 200
            ballast = fill(folder)
            balance = 1 + until_it_waits(url)
            readers = [threading.Thread(target=ask, args=(url, "/tables/accounts")) for _ in range(8 if reads else 0)]
            [reader.start() for reader in readers]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) != 0, "it says that it could not log what waited"
            [reader.join() for reader in readers]
            ballast.unlink()
        with command(folder, "--state", "state") as (process, url), tm.connect(url) as client:
            assert client.deposit(account="ada", amount=1)["balance"] == balance + 1
