"""A year of flights: the 336,776 that left New York City in 2013.

    pip install --no-deps -r examples/requirements.txt
    tidemill run examples/flights.py

Each flight is a transaction over its aircraft, its carrier and its destination. The records are not
without faults: by some of them an aircraft departs while it is still in the air by its last record.
Those abort, and the carrier that reported them is told.

Nothing is dropped. A flight that never left, or of an aircraft without a number, goes a way of its own;
one that was diverted has no time in the air, which is counted. The file is in the order of the schedule,
the event time is the departure: a day of lateness puts the flights in order.
"""

import datasets
import tidemill as tm

app = tm.App("flights")
out = datasets.out("flights")


class Aircraft(tm.Row):
    """An aircraft, until when it is in the air, and what it did."""

    tailnum: str = tm.key()
    lands: tm.Time | None
    flights: int = 0
    miles: int = 0


class Carrier(tm.Row):
    """The flights of an airline, and its reports that cannot be."""

    code: str = tm.key()
    flights: int = 0
    minutes: int = 0
    cancelled: int = 0
    unnamed: int = 0
    impossible: int = 0


class Airport(tm.Row):
    """The flights that came in, and those that did not."""

    code: str = tm.key()
    arrived: int = 0
    diverted: int = 0
    cancelled: int = 0


class Flight(tm.Event):
    """A record. ``departed`` is None where it never left, ``air_time`` (minutes) where it did not
    arrive as planned."""

    at: tm.Time = tm.event_time()
    departed: tm.Time | None
    tailnum: str | None
    carrier: str
    flight: int
    dest: str
    air_time: int | None
    distance: int


aircraft = app.table(Aircraft, name="aircraft")
carriers = app.table(Carrier)
airports = app.table(Airport)
flights = app.source(Flight, tm.parquet(datasets.flights()), lateness="1d")

flown = flights.filter(lambda f: f.departed is not None and f.tailnum is not None, name="flown")
grounded = flights.filter(lambda f: f.departed is None or f.tailnum is None, name="grounded")


@app.transaction(flown)
def fly(
    ev,
    plane=aircraft.row("tailnum", create=True),
    carrier=carriers.row("carrier", create=True),
    to=airports.row("dest", create=True),
):
    tm.require(plane.lands is None or plane.lands <= ev.departed, "still in the air")
    if ev.air_time is None:
        plane.lands = ev.departed  # When and where it landed was not written down.
        to.diverted += 1
    else:
        plane.lands = ev.departed + tm.minutes(ev.air_time)
        carrier.minutes += ev.air_time
        to.arrived += 1
    plane.flights += 1
    plane.miles += ev.distance
    carrier.flights += 1


@app.transaction(grounded)
def cancel(ev, carrier=carriers.row("carrier", create=True), to=airports.row("dest", create=True)):
    carrier.cancelled += 1
    to.cancelled += 1
    if ev.tailnum is None:
        carrier.unnamed += 1


@app.transaction(fly.aborted)
def complain(ev, carrier=carriers.row("carrier", create=True)):
    carrier.impossible += 1


app.sink(fly.aborted, tm.jsonl(out / "impossible.jsonl"))
app.sink(cancel.committed, tm.parquet(out / "grounded.parquet"))
