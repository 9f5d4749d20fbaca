"""Calls that hold the time of their position: windows over time and wakes run on them."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

import tidemill as tm

pytest.importorskip("pyarrow")


class Seat(tm.Row):
    seat: str = tm.key()
    holder: str | None = None


class Hold(tm.Event):
    seat: str
    at: int = tm.event_time()
    who: str


class Minute(tm.Event):
    at: int = tm.event_time()


def theatre():
    app = tm.App("theatre")
    seats = app.table(Seat)
    minutes = app.source(Minute)
    holds = app.requests(Hold)

    @app.transaction(holds)
    def hold(ev, s=seats.row("seat", create=True)):
        tm.require(s.holder is None, "seat is taken")
        s.holder = ev.who
        s.wake(ev.at + 15)
        return {"seat": s.seat, "until": ev.at + 15}

    @app.transaction(seats.woken)
    def expire(ev, s=seats.row("seat")):
        s.holder = None
        return {"seat": ev.seat, "at": ev.at}

    @app.window(holds, by="who", over=tm.tumbling(10))
    def busy(w):
        return {"who": w.who, "end": w.end, "holds": w.count()}

    app.sink(expire.committed, lambda batch: None)
    return app, minutes, hold, expire, busy


def rows(follower):
    return [row for batch in follower for row in batch.to_pylist()]


def test_windows_and_wakes_run_on_calls(tmp_path):
    state = tmp_path / "state"
    app, minutes, hold, expire, busy = theatre()
    with app.start(workers=1, state=state) as mill:
        expired, closed = mill.follow(expire.committed), mill.follow(busy.closed)
        mill.send(minutes, {"at": 3})
        assert mill.call(hold, seat="a1", who="ada").value == {"seat": "a1", "until": 18}
        with pytest.raises(tm.Aborted, match="seat is taken"):
            mill.call(hold, seat="a1", who="bob")
        mill.send(minutes, {"at": 12})
        mill.flush()
        assert mill.call(hold, seat="a2", who="ada").value == {"seat": "a2", "until": 27}
    first = (rows(expired), rows(closed))
    assert first == ([], [{"who": "ada", "end": 10, "holds": 1}, {"who": "bob", "end": 10, "holds": 1}])
    # The time of a call is still that of what has passed, before another event comes.
    app, minutes, hold, expire, busy = theatre()
    with app.start(workers=1, state=state) as mill:
        expired, closed = mill.follow(expire.committed), mill.follow(busy.closed)
        assert mill.call(hold, seat="a3", who="eve").value == {"seat": "a3", "until": 27}
        mill.send(minutes, {"at": 30})
        mill.flush()
        assert mill.call(hold, seat="a1", who="bob").value == {"seat": "a1", "until": 45}
    assert rows(expired) == [{"seat": "a1", "at": 18}, {"seat": "a2", "at": 27}, {"seat": "a3", "at": 27}]
    assert rows(closed) == [{"who": "ada", "end": 20, "holds": 1}, {"who": "eve", "end": 20, "holds": 1}]


def test_callers_leave_the_time_out():
    app, minutes, *_ = theatre()
    with app.start(workers=1) as mill, mill.serve() as server:
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)

        def ask(method, path, body=None):
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

        mill.send(minutes, {"at": 7})
        # The window over the calls is a transaction that nobody calls.
        assert ask("GET", "/")[1]["POST /call/NAME"] == {"hold": {"seat": "str", "who": "str"}}
        assert ask("POST", "/call/busy.add", json.dumps({"seat": "a1", "who": "ada"}))[0] == 404
        status, reply = ask("POST", "/call/hold", json.dumps({"seat": "a1", "who": "ada"}))
        assert (status, reply["committed"]) == (200, {"seat": "a1", "until": 22})
        status, reply = ask("POST", "/call/hold", json.dumps({"seat": "a2", "who": "ada", "at": 100}))
        assert status == 422 and "at" in json.dumps(reply)
        connection.close()


def test_a_call_waits_for_the_first_time():
    app, minutes, hold, *_ = theatre()
    with app.start(workers=1) as mill:
        with pytest.raises(TimeoutError):
            mill.call(hold, seat="a1", who="ada", timeout=0.2)
        mill.send(minutes, {"at": 5})
        mill.flush()
        with pytest.raises(tm.Aborted, match="seat is taken"):
            mill.call(hold, seat="a1", who="bob")


def test_calls_with_times_cannot_be_read():
    app, *_ = theatre()
    with pytest.raises(tm.RunError, match="they can be sent to a session, and not be read"):
        app.run({"minutes": [{"at": 1}], "holds": [{"seat": "a1", "who": "ada"}]}, workers=1)
