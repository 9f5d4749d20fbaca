"""Tolls: cars report where they are, and a car that enters a crowded segment of a road pays for it.

    tidemill run examples/tolls.py

Each minute a window closes for each segment with reports in the last five: how fast the cars were, and
how many. A transaction publishes this in a table. A report from another segment than the car's last one
is a crossing: its toll depends on what the table says at that time. This is Linear Road (Arasu et al.,
VLDB 2004) without accidents. Windows, published rows and tolls are one serial history: a crossing at
8:05:00 sees the window that ends at 8:05, whatever the number of workers.
"""

import datasets
import tidemill as tm

FREE = 50  # So many cars on a segment drive for nothing.
SLOW = 40.0  # Miles per hour. On a segment that is faster all do.

app = tm.App("tolls")
out = datasets.out("tolls")


class Segment(tm.Row):
    """A mile of a road in the last five minutes in which it had a car."""

    road: int = tm.key()
    seg: int = tm.key()
    speed: float = 0.0
    cars: int = 0


class Car(tm.Row):
    """The last place of a car, and its balance, which tolls make negative."""

    id: int = tm.key()
    road: int | None
    seg: int | None
    crossings: int = 0
    balance: int = 0


class Report(tm.Event):
    """A car's position and its speed, in miles per hour."""

    at: tm.Time = tm.event_time()
    car: int
    road: int
    seg: int
    speed: int


class Toll(tm.Event):
    """The toll that a car paid to enter a segment, and its balance after that."""

    at: tm.Time = tm.event_time()
    car: int
    road: int
    seg: int
    toll: int
    balance: int


segments = app.table(Segment)
cars = app.table(Car)
reports = app.source(Report, tm.csv(datasets.reports()))


@app.window(reports, by=("road", "seg"), over=tm.sliding("5m", every="1m"))
def traffic(w):
    return {"at": w.end, "road": w.road, "seg": w.seg, "speed": w.speed.mean(), "cars": w.car.distinct()}


@app.transaction(traffic.closed)
def publish(ev, segment=segments.row("road", "seg", create=True)):
    segment.speed = ev.speed
    segment.cars = ev.cars


def toll(segment):
    """The toll of Linear Road: none, or twice the square of the cars that are too many."""
    if segment.speed >= SLOW or segment.cars <= FREE:
        return 0
    return 2 * (segment.cars - FREE) * (segment.cars - FREE)


@app.transaction(reports)
def drive(ev, car=cars.row("car", create=True), segment=segments.read("road", "seg", default=True)):
    if car.road != ev.road or car.seg != ev.seg:
        car.road = ev.road
        car.seg = ev.seg
        car.crossings += 1
        due = toll(segment)
        car.balance -= due
        if due > 0:
            tm.emit(Toll(at=ev.at, car=ev.car, road=ev.road, seg=ev.seg, toll=due, balance=car.balance))


app.sink(traffic.closed, tm.jsonl(out / "traffic.jsonl"))
app.sink(drive.emitted(Toll), tm.jsonl(out / "tolls.jsonl"))
