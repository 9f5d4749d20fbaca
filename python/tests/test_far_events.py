"""One event of a far-off time from one client: it is refused, and makes nobody else's events late."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from server_process import running, until

FAR = """
import tidemill as tm

class Tick(tm.Event):
    at: tm.Time = tm.event_time()
    who: str

class Hold(tm.Event):
    at: tm.Time = tm.event_time()
    who: str

class Count(tm.Row):
    who: str = tm.key()
    count: int = 0

app = tm.App("far")
counts = app.table(Count)
ticks = app.source(Tick)
holds = app.requests(Hold)

@app.transaction(ticks)
def tick(ev, c=counts.row("who", create=True)):
    c.count += 1
    return {"who": ev.who, "at": ev.at}

@app.transaction(holds)
def hold(ev, c=counts.row("who", create=True)):
    c.count += 1
    return {"who": ev.who, "at": ev.at}

app.sink(ticks.late, tm.jsonl("late.jsonl"))
app.sink(tick.committed, tm.jsonl("ticks.jsonl"))
"""


def at(**ahead):
    return (datetime.now(timezone.utc) + timedelta(**ahead)).isoformat()


def push(server, time, who="good", source="ticks"):
    status, said = server.ask("POST", f"/stream/{source}", json.dumps({"at": time, "who": who}))
    return status, json.loads(said)


def count(server):
    status, said = server.ask("GET", "/tables/counts/good")
    return json.loads(said)["count"] if status == 200 else 0


@pytest.mark.parametrize(
    "far", ["9999-12-31T23:59:59Z", "262142-12-31T23:59:59Z", {"days": 30}, {"days": 1, "hours": 1}]
)
def test_a_far_off_event_is_refused_and_others_are_in_time(tmp_path, far):
    far = far if isinstance(far, str) else at(**far)
    with running(tmp_path, "--state", "state", program=FAR) as server:
        assert push(server, at(seconds=-20))[0] == 200
        status, said = push(server, far, "evil")
        # A time that no clock has is no time at all.
        assert status in (400, 422), said
        # One that is refused takes none of its push with it, and the next ones are as if it had not been.
        lines = "\n".join(json.dumps({"at": time, "who": "evil"}) for time in (at(seconds=-1), far))
        assert server.ask("POST", "/stream/ticks", lines)[0] in (400, 422)
        for second in range(10):
            assert push(server, at(seconds=second - 15))[0] == 200
        status, reply = server.call("hold", {"who": "caller"}, 5)
        assert status == 200 and reply["committed"]["at"] < at(seconds=5), reply
        server.check_end()
    with running(tmp_path, "--state", "state", program=FAR) as server:
        assert push(server, at(seconds=1))[0] == 200
        server.check_end()
    with open(tmp_path / "ticks.jsonl", encoding="utf-8") as ticks:
        assert [json.loads(line)["who"] for line in ticks] == ["good"] * 12
    late = tmp_path / "late.jsonl"
    assert not late.exists() or late.read_text(encoding="utf-8") == ""


def test_an_hour_ahead_and_numbers_are_taken(tmp_path):
    """The control: a clock may differ by less than a day, and numbers are no times."""
    with running(tmp_path, program=FAR) as server:
        assert push(server, at(hours=1))[0] == 200
        until(lambda: count(server) == 1, 10)
        server.check_end()
    numbered = FAR.replace("at: tm.Time", "at: int")
    with running(tmp_path, program=numbered) as server:
        assert push(server, 10**15)[0] == 200
        assert push(server, 10**15 + 1)[0] == 200
        until(lambda: count(server) == 2, 10)
        server.check_end()
