"""Days, weeks and months of a zone, run: they begin and end where ``datetime`` and ``zoneinfo`` say."""

import json
import random
from bisect import bisect_right
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

import tidemill as tm
from tidemill import calendars


class View(tm.Event):
    at: tm.Time = tm.event_time()
    ad: str
    cost: int


UTC = timezone.utc
INSTANT = timedelta(microseconds=1)


def starts(first, dates, zone):
    """The starts of the periods that begin on these dates of a zone, from a time before ``first`` on.

    A midnight that comes twice counts when it comes first. One that is skipped stands, by the clock as it was before, at
    the instant at which it was skipped. A day without an instant starts with the next one.
    """
    midnights = (datetime(day.year, day.month, day.day, tzinfo=zone) for day in dates)
    return sorted({midnight.astimezone(UTC) for midnight in midnights})


def days_around(first, last):
    return [first + timedelta(days=day) for day in range(-2, (last - first).days + 3)]


def run(over, events, **options):
    """Start, end, group, number and sum of all windows, as they close."""
    app = tm.App("calendar")
    views = app.source(View)

    @app.window(views, by="ad", over=over)
    def totals(w):
        return {"start": w.start, "end": w.end, "ad": w.ad, "views": w.count(), "cost": w.cost.sum()}

    found = app.collect(totals.closed)
    app.run({views: events}, **options)
    return [tuple(row.values()) for row in found.to_pylist()]


def expected(begins, events):
    windows = {}
    for event in events:
        place = bisect_right(begins, event["at"])
        key = (begins[place - 1], begins[place], event["ad"])
        windows.setdefault(key, []).append(event)
    # Windows of one end close in the order of their first events.
    rows = [(*key, len(inside), sum(e["cost"] for e in inside)) for key, inside in windows.items()]
    return sorted(rows, key=lambda row: row[1])


def events_around(begins, rng):
    """Events at each start, just before it and between."""
    edges = [start + shift for start in begins[1:-1] for shift in (-INSTANT, timedelta(0), INSTANT)]
    hours = (begins[-1] - begins[0]) // timedelta(hours=1)
    middle = [begins[0] + timedelta(hours=hour, minutes=rng.randrange(60)) for hour in range(hours)]
    chosen = edges + rng.sample(middle, min(len(middle), 150))
    times = sorted(at for at in chosen if begins[0] <= at < begins[-1])
    return [{"at": at, "ad": rng.choice("abc"), "cost": rng.randrange(100)} for at in times]


DAYS = [
    ("Europe/Berlin", date(2026, 3, 28), date(2026, 3, 30), {23, 24}),
    ("Europe/Berlin", date(2026, 10, 24), date(2026, 10, 26), {24, 25}),
    # Midnight is skipped, or 23 o'clock comes twice.
    ("America/Sao_Paulo", date(2018, 11, 2), date(2018, 11, 5), {23, 24}),
    ("America/Sao_Paulo", date(2018, 2, 16), date(2018, 2, 19), {24, 25}),
    # Midnight comes twice, or is skipped.
    ("America/Havana", date(2018, 11, 3), date(2018, 11, 6), {24, 25}),
    ("America/Havana", date(2018, 3, 10), date(2018, 3, 13), {23, 24}),
    # There was no 30th of December.
    ("Pacific/Apia", date(2011, 12, 28), date(2012, 1, 2), {24}),
    # The clock is set back a minute after midnight.
    ("America/St_Johns", date(2006, 10, 27), date(2006, 10, 31), {24, 25}),
    ("Australia/Lord_Howe", date(2026, 4, 4), date(2026, 4, 6), {24, 24.5}),
    ("Europe/Berlin", date(1945, 5, 22), date(1945, 5, 26), {23, 24}),
    # The clock is set at another hour than in most zones, or at midnight itself.
    ("Europe/Lisbon", date(1945, 3, 9), date(1945, 3, 12), {23, 24}),
    ("Europe/Lisbon", date(1996, 10, 26), date(1996, 10, 28), {24, 25}),
    ("America/Santiago", date(1968, 11, 2), date(1968, 11, 4), {23, 24}),
    ("America/Santiago", date(1999, 4, 3), date(1999, 4, 5), {24, 25}),
    ("Asia/Beirut", date(1999, 3, 27), date(1999, 3, 29), {23, 24}),
    ("Asia/Beirut", date(1999, 10, 30), date(1999, 11, 1), {24, 25}),
    # It is set back in summer for a month.
    ("Africa/Casablanca", date(1945, 11, 16), date(1945, 11, 20), {24, 25}),
    ("Africa/Casablanca", date(2024, 3, 9), date(2024, 4, 15), {23, 24, 25}),
    ("Asia/Kathmandu", date(2024, 2, 27), date(2024, 3, 1), {24}),
    ("Asia/Kathmandu", date(1985, 12, 30), date(1986, 1, 2), {23.75, 24}),
    ("Asia/Kolkata", date(1969, 12, 30), date(1970, 1, 2), {24}),
    ("UTC", date(1969, 12, 30), date(1970, 1, 2), {24}),
]


@pytest.mark.parametrize(("workers", "epoch"), [(1, "auto"), (2, 5)])
@pytest.mark.parametrize(("zone", "first", "last", "hours"), DAYS, ids=[f"{d[0]} {d[1]}" for d in DAYS])
def test_days(zone, first, last, hours, workers, epoch):
    begins = starts(first, days_around(first, last), ZoneInfo(zone))
    events = events_around(begins, random.Random(zone))
    found = run(tm.tumbling("1d", tz=zone), events, workers=workers, epoch=epoch)
    assert found == expected(begins, events)
    assert {(end - start) / timedelta(hours=1) for start, end, *_ in found} == hours


def test_a_day_that_is_skipped_has_no_window():
    apia = ZoneInfo("Pacific/Apia")
    events = [{"at": datetime(2011, 12, 29, tzinfo=apia) + timedelta(days=d), "ad": "a", "cost": 1} for d in range(5)]
    found = run(tm.tumbling("1d", tz=apia), events)
    # Adding days to a time of a zone goes by its calendar: the 30th is the instant of the 31st.
    days = [(start.astimezone(apia).date().isoformat(), views) for start, _, _, views, _ in found]
    assert days == [("2011-12-29", 1), ("2011-12-31", 2), ("2012-01-01", 1), ("2012-01-02", 1)]


MONTHS = [(None, "UTC"), ("Europe/Berlin", "Europe/Berlin"), ("America/Havana", "America/Havana")]


@pytest.mark.parametrize(("tz", "zone"), MONTHS)
@pytest.mark.parametrize(("length", "count"), [("1mo", 1), ("3mo", 3), ("12mo", 12)])
def test_months(tz, zone, length, count):
    for year in (1967, 2023, 2098):
        firsts = [date(year + month // 12, month % 12 + 1, 1) for month in range(0, 37, count)]
        begins = starts(firsts[0], firsts, ZoneInfo(zone))
        events = events_around(begins, random.Random(year))
        found = run(tm.tumbling(length, tz=tz), events)
        assert found == expected(begins, events)
        if count == 1 and tz is None:
            # Neither 2098 nor 2100 is a leap year.
            lengths = {28, 30, 31} if year == 2098 else {28, 29, 30, 31}
            assert {(end - start).days for start, end, *_ in found} == lengths


def test_weeks_begin_on_monday():
    for tz, zone in ((None, UTC), ("Europe/Berlin", ZoneInfo("Europe/Berlin"))):
        mondays = [date(2026, 3, 9) + timedelta(days=7 * week) for week in range(6)]
        assert {day.isoweekday() for day in mondays} == {1}
        begins = starts(mondays[0], mondays, zone)
        events = events_around(begins, random.Random(7))
        assert run(tm.tumbling("1w", tz=tz), events) == expected(begins, events)


def test_several_days_are_counted_from_1970():
    zone = ZoneInfo("Europe/Berlin")
    pairs = [date(1970, 1, 1) + timedelta(days=2 * pair) for pair in range(10_308, 10_320)]
    begins = starts(pairs[0], pairs, zone)
    events = events_around(begins, random.Random(8))
    assert run(tm.tumbling("2d", tz=zone), events) == expected(begins, events)


@pytest.mark.parametrize("first", [date(2026, 3, 27), date(1969, 12, 30)])
def test_events_are_folded(first):
    """Many events of few groups in an epoch, over a change of the clock, and over 1970."""
    zone = ZoneInfo("Europe/Berlin")
    begins = starts(first, [first + timedelta(days=day) for day in range(6)], zone)
    rng = random.Random(1)
    seconds = [begins[0] + timedelta(seconds=20 * number) for number in range(20_000)]
    events = [{"at": at, "ad": "a", "cost": rng.randrange(100)} for at in seconds]
    app = tm.App("calendar")
    views = app.source(View)

    @app.window(views, by=lambda e: e.cost % 8, over=tm.tumbling("1d", tz=zone))
    def totals(w):
        return {"start": w.start, "end": w.end, "key": w.key, "n": w.count(), "last": w.at.max(), "cost": w.cost.sum()}

    assert "each worker folds the events of an epoch" in app.explain()
    found = app.collect(totals.closed)
    app.run({views: events}, workers=2)
    windows = {}
    for event in events:
        place = bisect_right(begins, event["at"])
        windows.setdefault((begins[place - 1], begins[place], event["cost"] % 8), []).append(event)
    # They come by their ends, in the order of the first events.
    rows = [(*key, len(of), of[-1]["at"], sum(event["cost"] for event in of)) for key, of in windows.items()]
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_what_is_said_of_them():
    app = tm.App("calendar")
    views = app.source(View, name="views")
    for name, over in (("days", tm.tumbling("1d", tz="Europe/Berlin")), ("months", tm.tumbling("1mo"))):

        @app.window(views, by="ad", over=over, name=name)
        def totals(w):
            return {"end": w.end, "n": w.count()}

    assert "days: tumbling windows of days(1) in Europe/Berlin of views, by ad" in app.explain()
    assert "months: tumbling windows of months(1) in UTC of views, by ad" in app.explain()


def test_a_zone_that_changes_is_another_definition(tmp_path, monkeypatch):
    """A machine that learns of another clock of a zone: what is open ends as it was declared, if that is asked for."""
    hours = datetime(2026, 10, 25, tzinfo=UTC), timedelta(hours=1)

    def ran(*at, tz="Europe/Berlin", **options):
        app = tm.App("calendar")
        views = app.source(View)

        @app.window(views, over=tm.tumbling("1d", tz=tz))
        def totals(w):
            return {"start": w.start, "end": w.end, "views": w.count()}

        app.sink(totals.closed, tm.jsonl(str(tmp_path / "totals.jsonl")))
        events = [{"at": hours[0] + hour * hours[1], "ad": "a", "cost": 1} for hour in at]
        app.run({views: events}, state=tmp_path / "state", **options)
        lines = (tmp_path / "totals.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        edges = [
            [(datetime.fromisoformat(row[edge][:19] + "+00:00") - hours[0]) / hours[1] for edge in ("start", "end")]
            for row in rows
        ]
        return [(*edge, row["views"]) for edge, row in zip(edges, rows, strict=True)]

    assert ran(0, 20) == []
    known = calendars.periods("1d", "Europe/Berlin")
    summer = dict(
        known["zone"], changes=[change for change in known["zone"]["changes"] if change[0] < 1_790_000_000_000_000]
    )
    monkeypatch.setattr(calendars, "_zone", lambda name: dict(summer, name=name))
    with pytest.raises(tm.RunError, match="its clock changed: the clock of Europe/Berlin"):
        ran(22.5, 46)
    with pytest.raises(tm.RunError, match="tumbling windows of 1d in Europe/Paris in the program"):
        ran(22.5, 46, tz="Europe/Paris")
    assert ran(22.5, 46, end="totals") == [(-2, 23, 2), (22, 46, 1)]
    assert ran(47, final=True) == [(-2, 23, 2), (22, 46, 1), (46, 70, 2)]


EDGES = [
    # After the years that the plan knows the clock stays.
    (datetime(2150, 7, 1, 22, 30, tzinfo=UTC), datetime(2150, 6, 30, 23, tzinfo=UTC)),
    (datetime(2100, 7, 1, 22, 30, tzinfo=UTC), datetime(2100, 7, 1, 22, tzinfo=UTC)),
    # And before them; Berlin has had the clock of its zone since 1893.
    (datetime(1850, 7, 1, 22, 30, tzinfo=UTC), datetime(1850, 6, 30, 23, tzinfo=UTC)),
]


@pytest.mark.parametrize(("at", "start"), EDGES)
def test_the_plan_knows_the_clock_for_two_centuries(at, start):
    ((found, *_),) = run(tm.tumbling("1d", tz="Europe/Berlin"), [{"at": at, "ad": "a", "cost": 1}])
    assert found == start


ZONES = ["Europe/Berlin", "Africa/Casablanca", "America/St_Johns", "Asia/Manila", "Antarctica/Troll", "Pacific/Apia"]


@pytest.mark.parametrize("name", ZONES)
def test_the_plan_has_what_the_machine_knows(name):
    zone, rng = ZoneInfo(name), random.Random(name)
    plan = calendars.periods("1d", name)["zone"]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    changes = [(epoch + at * INSTANT, ahead * INSTANT) for at, ahead in plan["changes"]]
    instants = [at for at, _ in changes]
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in (calendars.FIRST_YEAR, calendars.LAST_YEAR + 1))
    tried = [at + shift * timedelta(seconds=1) for at in instants for shift in (-1, 0, 1)]
    tried += [first + rng.random() * (last - first) for _ in range(2_000)]
    for at in tried:
        place = bisect_right(instants, at)
        ahead = plan["offset"] * INSTANT if place == 0 else changes[place - 1][1]
        assert at.astimezone(zone).utcoffset() == ahead, at


NO_CALENDARS = [
    (
        "tm.tumbling('36h', tz='Europe/Berlin')",
        "'36h' is not a length of a calendar; in a zone windows are of whole days",
    ),
    ("tm.tumbling('0d', tz='UTC')", "'0d' is not a length of a calendar"),
    ("tm.tumbling('0mo')", "'0mo' is not a length of a calendar"),
    ("tm.tumbling(timedelta(days=1), tz='UTC')", "datetime.timedelta(days=1) is not a length of a calendar"),
    ("tm.tumbling(10, tz='UTC')", "10 is not a length of a calendar"),
    ("tm.tumbling('99999999999d', tz='UTC')", "'99999999999d' is not a length of a calendar"),
    ("tm.tumbling('1d', tz='Europe/Berlni')", "no zone 'Europe/Berlni' is known; write a name such as 'Europe/Berlin'"),
    ("tm.tumbling('1d', tz='../etc/passwd')", "no zone '../etc/passwd' is known"),
    ("tm.tumbling('1d', tz='Europe')", "no zone 'Europe' is known"),
    ("tm.tumbling('1d', tz='')", "no zone '' is known"),
    ("tm.tumbling('1d', tz=2)", "2 is not a zone; write its name: tz='Europe/Berlin'"),
    ("tm.tumbling('1d', tz=timezone(timedelta(hours=1)))", "is not a zone; write its name: tz='Europe/Berlin'"),
    ("tm.tumbling('1d', tz='UTC', origin='6h')", "windows of a calendar have no origin; leave origin= out"),
    ("tm.tumbling('1mo', origin='6h')", "windows of a calendar have no origin"),
    ("tm.sliding('1mo', every='1d')", "a length of sliding '1mo' is not a duration"),
]


@pytest.mark.parametrize(("text", "message"), NO_CALENDARS, ids=[n[0] for n in NO_CALENDARS])
def test_calendars_that_are_none(text, message):
    with pytest.raises(tm.PlanError) as error:
        eval(text)
    assert message in str(error.value)
