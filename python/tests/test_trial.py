"""Applications on trial: time that a test sets, streams that it looks at, crashes."""

import time
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm
from tidemill import testing

START = datetime(2026, 1, 1, tzinfo=timezone.utc)

HOLDS = """
class Hold(tm.Event):
    at: tm.Time = tm.event_time()
    seat: str

class Payment(tm.Event):
    at: tm.Time = tm.event_time()
    seat: str
    amount: int

class Seat(tm.Row):
    seat: str = tm.key()
    is_held: bool = False
    holds: int = 0

class Total(tm.Row):
    start: tm.Time = tm.key()
    amount: int = 0

app = tm.App("holds")
seats = app.table(Seat)
totals = app.table(Total)
clock = app.clock("1s")
holds = app.requests(Hold, remember="1h")
payments = app.source(Payment, tm.csv("there is no such file.csv"), ahead="1m")

@app.transaction(holds)
def hold(ev, s=seats.row("seat", create=True)):
    tm.require(not s.is_held, "the seat is held")
    s.is_held = True
    s.holds += 1
    s.wake(ev.at + tm.minutes(15))
    return {"seat": s.seat, "until": ev.at + tm.minutes(15)}

@app.transaction(seats.woken)
def expire(ev, s=seats.row("seat")):
    s.is_held = False
    return {"seat": s.seat, "at": ev.at}

@app.transaction(payments)
def pay(ev, s=seats.row("seat")):
    tm.require(s.is_held, "nobody holds the seat")
    return {"seat": ev.seat, "amount": ev.amount}

@app.window(payments, over=tm.tumbling("1m"))
def paid(w):
    return {"start": w.start, "amount": w.amount.sum()}

@app.transaction(paid.closed)
def add(ev, t=totals.row("start", create=True)):
    t.amount = ev.amount

app.sink(pay.committed, tm.csv("/there is no such folder/paid.csv"))
"""


@pytest.fixture
def app(module):
    return module(HOLDS, prelude="import tidemill as tm\n").app


def test_time_stands_still_until_it_is_advanced(app):
    with testing.start(app) as mill:
        assert mill.now == START
        reply = mill.call("hold", seat="1A")
        assert reply["until"] == START + timedelta(minutes=15)
        with pytest.raises(tm.Aborted, match="the seat is held"):
            mill.call("hold", seat="1A")
        mill.expect_rows("seats", {"seat": "1A", "is_held": True})
        mill.advance("14m")
        mill.expect_rows("seats", {"seat": "1A", "is_held": True})
        began = time.monotonic()
        mill.advance(timedelta(minutes=1))
        mill.expect_rows("seats", {"seat": "1A", "is_held": False, "holds": 1})
        assert time.monotonic() - began < 30
        mill.expect("expire.committed", {"seat": "1A", "at": START + timedelta(minutes=15)})
        assert mill.call("hold", seat="1A")["until"] == START + timedelta(minutes=30)
        assert mill.now == START + timedelta(minutes=15)


def test_another_beginning(app):
    far = datetime(2090, 6, 1, 12, tzinfo=timezone.utc)
    with testing.start(app, now=far) as mill:
        mill.send("payments", {"seat": "1A", "amount": 5})
        mill.advance("1m")
        mill.expect("paid.closed", {"start": far, "amount": 5})
        mill.expect("pay.aborted", {"seat": "1A", "reason": "no row in seats for s"})
        # Too far ahead of the time that is set, and not of the machine's.
        with pytest.raises(tm.SchemaError, match="ahead"):
            mill.send("payments", {"at": far + timedelta(minutes=3), "seat": "1A", "amount": 5})


def test_windows_close_as_time_passes(app):
    with testing.start(app) as mill:
        mill.call("hold", seat="1A")
        for amount in (1, 2, 3):
            mill.send("payments", {"seat": "1A", "amount": amount})
            mill.advance("25s")
        mill.expect("pay.committed", *({"amount": amount} for amount in (1, 2, 3)))
        mill.expect("paid.closed", {"start": START, "amount": 6})
        mill.send("payments", [{"seat": "1A", "amount": 4}, {"at": START, "seat": "1A", "amount": 9}])
        mill.advance("1m")
        mill.expect("paid.closed", {"start": START + timedelta(minutes=1), "amount": 4})
        mill.expect("payments.late", {"at": START, "amount": 9})
        mill.expect_rows("totals", {"amount": 6}, {"amount": 4})
        assert [event["amount"] for event in mill.events("paid.closed")] == [6, 4]


def test_keys_are_forgotten_when_their_time_is_over(app):
    with testing.start(app) as mill:
        assert mill.call("hold", seat="1A", idempotency_key="k")["seat"] == "1A"
        mill.advance("59m")
        assert mill.call("hold", seat="1A", idempotency_key="k")["until"] == START + timedelta(minutes=15)
        mill.expect_rows("seats", {"holds": 1})
        mill.advance("2m")
        assert mill.call("hold", seat="1A", idempotency_key="k")["until"] == START + timedelta(minutes=76)
        mill.expect_rows("seats", {"holds": 2})


@pytest.mark.parametrize("crashes", [True, False])
def test_what_was_acknowledged_outlasts_an_end(app, tmp_path, crashes):
    with testing.start(app, state=tmp_path / "state") as mill:
        for number in range(20):
            mill.call("hold", seat=f"{number:02}")
        mill.advance("10m")
        mill.call("hold", seat="99")
        mill.expect("hold.committed", *({"seat": f"{number:02}"} for number in range(20)), {"seat": "99"})
        if crashes:
            mill.crash()
            with pytest.raises(tm.RunError):
                mill.call("hold", seat="77")
        mill.restart()
        assert mill.now == START + timedelta(minutes=10)
        mill.expect("hold.committed")
        assert len(mill.rows("seats")) == 21
        mill.advance("5m")
        mill.expect("expire.committed", *({"seat": f"{number:02}"} for number in range(20)))
        assert [row["seat"] for row in mill.rows("seats") if row["is_held"]] == ["99"]


def test_each_event_is_seen_once_over_crashes_at_any_time(app, tmp_path):
    """Calls that nobody waits for to be durable: each is lost or is there, in the table as in the stream."""
    with testing.start(app, state=tmp_path / "state") as mill:
        for course in range(6):
            for number in range(5):
                mill.call("hold", seat=f"{course}.{number}", durable=False)
            mill.crash()
            mill.restart()
        seats = [row["seat"] for row in mill.rows("seats")]
        assert [event["seat"] for event in mill.events("hold.committed")] == seats == sorted(set(seats))


def test_what_is_not_as_expected_is_shown(app):
    with testing.start(app) as mill:
        mill.call("hold", seat="1A")
        with pytest.raises(AssertionError) as failed:
            mill.expect("hold.committed", {"seat": "1B"}, {"seat": "1C"})
        said = str(failed.value)
        assert "stream 'hold.committed'" in said and "expected {'seat': '1B'}" in said and "'seat': '1A'" in said
        assert "found    nothing" in said
        # Events that were shown count as seen.
        mill.expect("hold.committed")
        with pytest.raises(AssertionError, match="table 'seats'"):
            mill.expect_rows("seats")


def test_what_cannot_be_tried_is_refused(app, module):
    with testing.start(app) as mill:
        for call in (mill.crash, mill.restart):
            with pytest.raises(tm.PlanError, match="without a state"):
                call()
        for wrong in ("15 parsecs", "-1s", timedelta(seconds=-1), 15):
            with pytest.raises(tm.PlanError):
                mill.advance(wrong)
        with pytest.raises(tm.PlanError, match="there is no stream"):
            mill.events("nothing")
    plain = tm.App("plain")

    class Put(tm.Event):
        id: str

    plain.requests(Put)
    with testing.start(plain) as mill, pytest.raises(tm.PlanError, match="no time passes"):
        mill.advance("1s")


def test_a_long_time_is_quick_and_has_the_last_ticks(app):
    with testing.start(app) as mill:
        mill.call("hold", seat="1A")
        mill.advance("400d")
        mill.expect("expire.committed", {"at": START + timedelta(minutes=15)})


def test_the_plugin_starts_applications(app, trial):
    mill = trial(app, durable=True)
    mill.call("hold", seat="1A")
    mill.crash()
    mill.restart()
    mill.expect_rows("seats", {"seat": "1A"})


def test_time_passes_without_a_clock():
    class Reading(tm.Event):
        at: tm.Time = tm.event_time()
        watts: int

    app = tm.App("meters")
    readings = app.source(Reading)

    @app.window(readings, over=tm.tumbling("10m"))
    def load(w):
        return {"end": w.end, "watts": w.watts.sum()}

    with testing.start(app) as mill:
        mill.send(
            readings, [{"watts": 1}, Reading(at=START, watts=2), {"at": START + timedelta(minutes=5), "watts": 4}]
        )
        mill.advance("9m")
        mill.expect(load.closed)
        mill.send(readings, ({"watts": watts} for watts in (8, 16)))
        mill.advance("1m")
        mill.expect(load.closed, {"end": START + timedelta(minutes=10), "watts": 31})
        mill.send(readings, {"watts": 32})
        mill.advance("10m")
        mill.expect(load.closed, {"watts": 32})
        mill.expect(readings.late)
