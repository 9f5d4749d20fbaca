"""``tidemill txn show`` of calls: the time at which they stand."""

import subprocess
import sys
from datetime import datetime, timezone

import pytest

HALL = """
import tidemill as tm

class Seat(tm.Row):
    id: str = tm.key()
    count: int = 0

class Minute(tm.Event):
    at: tm.Time = tm.event_time()

class Hold(tm.Event):
    at: tm.Time = tm.event_time()
    seat: str

class Note(tm.Event):
    seat: str

app = tm.App("hall")
seats = app.table(Seat)
minutes = app.source(Minute)
holds = app.requests(Hold)
notes = app.requests(Note)

@app.transaction(holds)
def hold(ev, s=seats.row("seat", create=True)):
    s.count += 1
    return {"at": ev.at}

@app.transaction(notes)
def note(ev, s=seats.row("seat", create=True)):
    s.count += 1
"""
UNTIMED = (
    HALL.replace("    at: tm.Time = tm.event_time()\n", "")
    .replace('    return {"at": ev.at}\n', "")
    .replace("class Minute(tm.Event):\n", "class Minute(tm.Event):\n    number: int\n")
)


def shown(state, position):
    command = [sys.executable, "-m", "tidemill", "txn", "show", str(state), position]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def test_a_call_stands_at_the_time_of_what_has_passed(module, state):
    with module(HALL, prelude="").app.start(state=state, workers=1) as mill:
        mill.savepoint("start")
        for minute in (1, 2):
            mill.send("minutes", [{"at": datetime(2024, 5, 1, 12, minute, tzinfo=timezone.utc)}])
            mill.flush()
            mill.call("hold", seat=f"hold {minute}")
            mill.call("note", seat=f"note {minute}")
    for number in (0, 1):
        time = f"2024-05-01T12:0{number + 1}:00.000000Z"
        hold, note = shown(state, f"holds:{number}"), shown(state, f"notes:{number}")
        assert hold.startswith(f"holds:{number} at {time}, in epoch "), hold
        assert f'\n  at = {time}, seat = "hold {number + 1}"\n' in hold
        assert note.startswith(f"notes:{number} at {time}, in epoch "), note
        # Found by it, too.
        assert shown(state, f"holds@{time}") == hold


def test_without_times_there_is_none_to_show(module, state):
    with module(UNTIMED, prelude="").app.start(state=state, workers=1) as mill:
        mill.savepoint("start")
        mill.call("hold", seat="a")
    assert shown(state, "holds:0").startswith("holds:0, in epoch ")
