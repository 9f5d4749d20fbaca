"""A machine's clock that steps under a served application: by libfaketime, which shows another time of day to one process."""

import glob
import time

import pytest
from server_process import running, until

LIBRARIES = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
pytestmark = pytest.mark.skipif(not LIBRARIES, reason="there is no libfaketime; apt install faketime")

HOLDS = """
import tidemill as tm

class Hold(tm.Event):
    at: tm.Time = tm.event_time()
    seat: str

class Seat(tm.Row):
    seat: str = tm.key()
    holds: int = 0
    is_held: bool = False

app = tm.App("holds")
seats = app.table(Seat)
clock = app.clock("100ms")
requests = app.requests(Hold, remember="1h")

@app.transaction(requests)
def hold(ev, s=seats.row("seat", create=True)):
    tm.require(not s.is_held, "the seat is held")
    s.is_held = True
    s.holds += 1
    s.wake(ev.at + tm.minutes(15))
    return {"holds": s.holds}

@app.transaction(seats.woken)
def expire(ev, s=seats.row("seat")):
    s.is_held = False
"""
HOUR, DAY, YEAR = 3_600, 86_400, 31_536_000
STEP_SECONDS = 0.5
"""The time for which a step is watched, seconds."""


class Clock:
    """The time of day of one process, which is so many seconds from that of the machine."""

    def __init__(self, folder):
        self._file = folder / "time"
        self.environment = {
            "LD_PRELOAD": LIBRARIES[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self.shows(0)

    def shows(self, seconds):
        made = self._file.with_suffix(".new")
        made.write_text(f"{seconds:+d}s\n")
        made.replace(self._file)


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def hold(server, seat, key=None):
    headers = {} if key is None else {"Idempotency-Key": key}
    status, reply = server.call("hold", {"seat": seat}, timeout=10, **headers)
    return status, (reply.get("committed") or {}).get("holds")


def serving(folder, clock):
    return running(folder, "--state", "state", program=HOLDS, environment=clock.environment)


@pytest.mark.parametrize("seconds", [HOUR // 2, -HOUR // 2, 2 * DAY, -2 * DAY, 100 * YEAR, -60 * YEAR])
def test_a_clock_that_steps_and_comes_back_leads_to_no_loss(tmp_path, clock, seconds):
    with serving(tmp_path, clock) as server:
        assert hold(server, "A", "a") == (200, 1)
        clock.shows(seconds)
        time.sleep(STEP_SECONDS)
        # A retry is the call that it repeats, and others go on.
        assert hold(server, "A", "a") == (200, 1)
        assert hold(server, "B", "b") == (200, 1)
        clock.shows(0)
        time.sleep(STEP_SECONDS)
        assert hold(server, "C", "c") == (200, 1)
        assert [hold(server, seat, seat.lower()) for seat in "ABC"] == [(200, 1)] * 3
        if abs(seconds) > DAY:
            # The clock was not believed: no hold has ended by it.
            assert [hold(server, seat)[0] for seat in "AC"] == [409] * 2
        server.check_end()
    with serving(tmp_path, clock) as server:
        assert [hold(server, seat, seat.lower()) for seat in "ABC"] == [(200, 1)] * 3
        assert hold(server, "D", "d") == (200, 1)
        server.check_end()


def test_time_goes_on_after_a_step_of_a_century(tmp_path, clock):
    """The clock shows the year 2126 for a moment. The next half hour of the true time ends holds as if it had not."""
    with serving(tmp_path, clock) as server:
        assert hold(server, "A") == (200, 1)
        clock.shows(100 * YEAR)
        time.sleep(STEP_SECONDS)
        clock.shows(HOUR // 2)
        until(lambda: hold(server, "A")[0] == 200, 20)
        server.process.kill()
        server.process.wait()
    with serving(tmp_path, clock) as server:
        assert hold(server, "A")[0] == 409
        clock.shows(HOUR)
        until(lambda: hold(server, "A")[0] == 200, 20)
        server.check_end()
