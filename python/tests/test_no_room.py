"""A server whose disk is full: what was answered can be read, and a signal ends it without loss."""

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
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
    while ask(url, "/health")[0] != 200:
        time.sleep(0.01)


def deposit(url, amount=1):
    return ask(url, "/call/deposit", json.dumps({"account": "ada", "amount": amount}), timeout=1.0)


def until_it_waits(url):
    """Deposits until no more is answered; how many were."""
    answered = 0
    while (reply := deposit(url)) is not None:
        assert reply[0] == 200, reply
        answered += 1
    return answered


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
            status, text = ask(url, "/health")
            assert status == 503 and "the disk is full" in text, text
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
