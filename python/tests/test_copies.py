"""Copies of a state that is in use, a state that is moved, and a lock that is removed: what begins has a prefix of the
history, and no two servers write one state."""

import json
import shutil
import signal
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from server_process import BANK, WAIT_SECONDS, begun, launched, running, until

SINKS = """
app.sink(deposit.committed, tm.jsonl("done.jsonl"))
"""


@contextmanager
def load(server):
    """Calls, one after the other, each to an account of its own. Gives the list of those that were answered."""
    answered, stop, faults = [], threading.Event(), []

    def go():
        number = 0
        while not stop.is_set():
            try:
                status, reply = server.call("deposit", {"account": f"{number:06}", "amount": 1})
                assert status == 200, reply
            except (OSError, AssertionError) as error:
                faults.append(error)
                return
            answered.append(number)
            number += 1

    thread = threading.Thread(target=go)
    thread.start()
    try:
        while len(answered) < 20:
            time.sleep(0.01)
            assert not faults, faults
        yield answered
    finally:
        stop.set()
        thread.join()
    # One that has ended by itself answers nothing more.
    assert not faults or not server.lives(), faults


def accounts(server):
    return [
        json.loads(line)["id"] for line in server.ask("GET", "/tables/accounts", timeout=WAIT_SECONDS)[1].splitlines()
    ]


def sunk(folder):
    with open(folder / "done.jsonl", encoding="utf-8") as done:
        return [json.loads(line)["account"] for line in done]


def refused(folder, program, *options):
    """Returns the message of a server that does not begin; None if it does. It has ended then."""
    second, file = begun(folder, *options, program=program)
    if second.poll() is None:
        second.send_signal(signal.SIGTERM)
        second.wait(WAIT_SECONDS)
        return None
    said = file.read_text(encoding="utf-8")
    assert second.returncode not in (0, -signal.SIGSEGV), said
    return said


def test_a_copy_of_a_running_state_is_a_prefix_or_refused(tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    with running(first, "--state", "state", program=BANK + SINKS) as server, load(server) as answered:
        began = 0
        for turn in range(6):
            copy, before = tmp_path / f"copy-{turn}", len(answered)
            # Files come and go meanwhile.
            with suppress(shutil.Error, FileNotFoundError):
                shutil.copytree(first, copy, ignore=shutil.ignore_patterns("said*"))
            after = len(answered) + 1
            try:
                other = launched(copy, "--state", "state", program=BANK + SINKS)
            except AssertionError as error:
                # It says which file is not as it should be.
                assert "error" in str(error) and "panicked" not in str(error), error
                continue
            try:
                began += 1
                names = accounts(other)
                assert names == [f"{number:06}" for number in range(len(names))]
                assert before - 1 <= len(names) <= after, (before, len(names), after)
                other.check_end()
                assert sunk(copy) == names
            finally:
                other.process.kill()
                other.process.wait()
    print(f"{began} of 6 copies began")


def test_a_state_that_is_moved_goes_on(tmp_path):
    """Under the run, and to another folder after it."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with running(first, "--state", "state", program=BANK + SINKS) as server:
        for number in range(10):
            assert server.call("deposit", {"account": f"{number:06}", "amount": 1})[0] == 200
        server.check_end()
    first.rename(second)
    with running(second, "--state", "state", program=BANK + SINKS) as server:
        assert accounts(server) == [f"{number:06}" for number in range(10)]
        assert server.call("deposit", {"account": "000010", "amount": 1})[0] == 200
        server.check_end()
    assert sunk(second) == [f"{number:06}" for number in range(11)]


@pytest.mark.parametrize("sinks", ["", SINKS], ids=["without a sink", "with a sink"])
def test_a_lock_that_is_removed_lets_no_second_server_in(tmp_path, sinks):
    second = (tmp_path, BANK + sinks, "--state", "state")
    with running(tmp_path, "--state", "state", program=BANK + sinks) as server:
        with load(server) as answered:
            assert "state" in (refused(*second) or "")
            for lock in (tmp_path / "state" / "lock", *tmp_path.glob(".*tidemill-lock")):
                lock.unlink()
            if refused(*second) is None:
                # Only once the first one has seen it, and has let go.
                until(lambda: not server.lives(), 20)
        # The first one ends rightly, or has ended and said why, and nothing that it answered is lost.
        said = server.said()
        assert server.end() == 0 or "error" in said, said
        assert "panicked" not in server.said()
    with running(tmp_path, "--state", "state", program=BANK + sinks) as server:
        names = accounts(server)
        assert names[: len(answered)] == [f"{number:06}" for number in answered]
        server.check_end()
    assert not sinks or sunk(tmp_path) == names


def test_an_output_that_a_run_holds_is_not_written_by_another(tmp_path):
    """Neither by one with a state of its own nor by one without."""
    with running(tmp_path, "--state", "state", program=BANK + SINKS) as server:
        with load(server) as answered:
            for lock in tmp_path.glob(".*tidemill-lock"):
                lock.unlink()
            for options in (("--state", "other"), ()):
                said = refused(tmp_path, BANK + SINKS, *options)
                if said is None:
                    # Only once the first one has seen that its lock is gone, and has let go.
                    until(lambda: not server.lives(), 20)
                    assert "removed" in server.said()
                    return
                assert "done.jsonl" in said, said
        server.check_end()
    assert sunk(tmp_path) == [f"{number:06}" for number in answered]
