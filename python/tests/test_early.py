"""Early results of windows: what comes out is what plain Python makes of the same events."""

import random
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (2, 1), (3, 7)]


class Click(tm.Event):
    at: int = tm.event_time()
    page: str | None
    size: int


def clicks_of(seed, count=120):
    rng = random.Random(seed)
    at, clicks = rng.choice([0, -37, 1_000]), []
    for _ in range(count):
        at += rng.choice([0, 0, 1, 1, 2, 5, rng.choice([3, 40])])
        clicks.append({"at": at, "page": rng.choice(["a", "b", "c", None]), "size": rng.randrange(9)})
    return clicks


def results(clicks, length, early, origin):
    """Returns the results by definition, in order: when each result stands, whether it is early, its page, start,
    end, count and sum."""
    windows = {}
    for click in clicks:
        start = (click["at"] - origin) // length * length + origin
        windows.setdefault(start, []).append(click)
    found = []
    for start, events in windows.items():
        groups = list(dict.fromkeys(event["page"] for event in events))
        for stands in range(start + early, start + length + 1, early):
            for page in groups:
                seen = [event["size"] for event in events if event["page"] == page and event["at"] < stands]
                if seen:
                    is_early = stands < start + length
                    found.append((stands - 1, is_early, page, start, start + length, len(seen), sum(seen)))
    return sorted(found, key=lambda result: result[0])


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("length", "early", "origin"), [(10, 5, 0), (10, 2, 3), (60, 10, -7), (3, 1, 0)])
def test_early_results_are_those_of_plain_python(workers, epoch, length, early, origin):
    for seed in range(3):
        clicks = clicks_of(seed)
        app = tm.App("early")
        source = app.source(Click)

        @app.window(source, by="page", over=tm.tumbling(length, early=early, origin=origin))
        def hourly(w):
            return {"page": w.page, "start": w.start, "end": w.end, "n": w.count(), "size": w.size.sum()}

        closed, given = app.collect(hourly.closed), app.collect(hourly.early)
        app.run({source: clicks}, workers=workers, epoch=epoch)
        expected = results(clicks, length, early, origin)
        for is_early, rows in [(True, given), (False, closed)]:
            found = [tuple(row.values()) for row in rows.to_pylist()]
            assert found == [result[2:] for result in expected if result[1] == is_early]


def sliding_results(clicks, length, every, early):
    """Returns the results of sliding windows, of which the one that closes next has early results, by page, start
    and sizes."""
    found = []
    stands = clicks[0]["at"] // early * early + early
    while stands < clicks[-1]["at"] + length + every:
        end = -(-stands // every) * every
        seen = [click for click in clicks if end - length <= click["at"] < stands]
        for page in dict.fromkeys(click["page"] for click in seen):
            sizes = [click["size"] for click in seen if click["page"] == page]
            last, best = sizes[-1], max(sizes)
            found.append(
                (stands < end, page, end - length, len(sizes), sum(sizes), last, best, sum(sizes) / len(sizes))
            )
        stands += early
    return found


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("length", "every", "early"), [(10, 5, 1), (12, 4, 2), (60, 10, 5), (6, 3, 1)])
def test_early_results_of_sliding_windows_are_those_of_plain_python(workers, epoch, length, every, early):
    for seed in range(3):
        clicks = clicks_of(seed)
        app = tm.App("early")
        source = app.source(Click)

        @app.window(source, by="page", over=tm.sliding(length, every=every, early=early))
        def hourly(w):
            return {
                "page": w.page,
                "start": w.start,
                "n": w.count(),
                "size": w.size.sum(),
                "last": w.size.last(),
                "best": w.argmax("size").size,
                "mean": w.size.mean(),
            }

        closed, given = app.collect(hourly.closed), app.collect(hourly.early)
        app.run({source: clicks}, workers=workers, epoch=epoch)
        expected = sliding_results(clicks, length, every, early)
        for is_early, rows in [(True, given), (False, closed)]:
            found = [tuple(row.values()) for row in rows.to_pylist()]
            assert found == [result[1:] for result in expected if result[0] == is_early] and found


class Total(tm.Row):
    id: str = tm.key()
    results: int = 0
    clicks: int = 0


def test_early_results_stand_at_their_grid_before_what_comes_then():
    clicks = clicks_of(7)
    app = tm.App("order")
    source, totals = app.source(Click), app.table(Total)

    @app.window(source, over=tm.tumbling(10, early=5))
    def hourly(w):
        return {"end": w.end, "n": w.count()}

    @app.transaction(hourly.early, hourly.closed)
    def result(ev, t=totals.row(lambda e: "all", create=True)):
        t.results += 1
        return {"end": ev.end, "n": ev.n, "clicks": t.clicks, "number": t.results}

    @app.transaction(source)
    def click(ev, t=totals.row(lambda e: "all", create=True)):
        t.clicks += 1

    @app.window(hourly.early, over=tm.tumbling(20))
    def many(w):
        return {"start": w.start, "n": w.count()}

    found, outer = app.collect(result.committed), app.collect(many.closed)
    app.run({source: clicks}, workers=2)
    expected = results([{**click, "page": None} for click in clicks], 10, 5, 0)
    before = [sum(click["at"] <= stands for click in clicks) for stands, *_ in expected]
    assert [(row["end"], row["n"], row["clicks"]) for row in found.to_pylist()] == [
        (end, n, seen) for (_, _, _, _, end, n, _), seen in zip(expected, before, strict=True)
    ]
    # A window over early results has those that stand in it.
    starts = [stands // 20 * 20 for stands, is_early, *_ in expected if is_early]
    assert [(row["start"], row["n"]) for row in outer.to_pylist()] == [
        (start, starts.count(start)) for start in dict.fromkeys(starts)
    ]


def test_a_function_that_returns_nothing_gives_the_windows():
    app = tm.App("plain")
    source = app.source(Click)

    @app.window(source, by="page", over=tm.tumbling(10, early=5))
    def hourly(w):
        tm.require(w.count() < 3, "too many")

    early, closed = app.collect(hourly.early), app.collect(hourly.closed)
    failed, early_failed = app.collect(hourly.failed), app.collect(hourly.early_failed)
    clicks = [(1, "a"), (2, "b"), (3, "b"), (4, "b"), (7, "a"), (8, "a")]
    app.run({source: [{"at": at, "page": page, "size": 0} for at, page in clicks]})
    assert early.to_pylist() == [{"page": "a", "start": 0, "end": 10}]
    assert closed.to_pylist() == []
    assert [row["page"] for row in failed.to_pylist()] == ["a", "b"]
    assert [(row["page"], row["start"], row["reason"]) for row in early_failed.to_pylist()] == [("b", 0, "too many")]
    assert {hourly.early.label, hourly.early_failed.label} <= {stream.label for stream in app.streams()}
    assert "gives early results each 5" in app.explain()


def test_early_results_go_on_over_runs(tmp_path):
    clicks = clicks_of(9)
    app = tm.App("runs")
    source = app.source(Click)

    @app.window(source, by="page", over=tm.tumbling(30, early=3))
    def hourly(w):
        return {"page": w.page, "start": w.start, "end": w.end, "n": w.count(), "size": w.size.sum()}

    given, found = app.collect(hourly.early), []
    for first, last in [(0, 40), (40, 41), (41, 120)]:
        app.run({source: clicks[first:last]}, state=tmp_path / "state", final=last == 120)
        found += [tuple(row.values()) for row in given.to_pylist()]
    assert found == [result[2:] for result in results(clicks, 30, 3, 0) if result[1]]


def at(seconds):
    return datetime(2024, 5, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


class Hit(tm.Event):
    at: tm.Time = tm.event_time()
    page: str


def windowed(app, source, over):
    @app.window(source, by="page", over=over)
    def hourly(w):
        return {"at": w.end, "n": w.count()}

    return hourly


REFUSED = [
    (
        lambda app, hits: windowed(app, hits, tm.tumbling("1h", early="7m")),
        "early results each minutes(7) do not divide the windows; "
        "give a part of their length, of which they have a whole number",
    ),
    (
        lambda app, hits: windowed(app, hits, tm.tumbling("1h", early="1h")),
        "early results each hours(1) do not divide the windows; "
        "give a part of their length, of which they have a whole number",
    ),
    (
        lambda app, hits: windowed(app, hits, tm.tumbling("1d", early="1s")),
        "a window has 86399 early results; give at least a part in 10000 of the length",
    ),
    (
        lambda app, hits: windowed(app, hits, tm.sliding("1h", every="10m", early="20m")),
        "early results each minutes(20) do not divide the slides of the windows; "
        "give a part of their length, of which they have a whole number",
    ),
    (
        lambda app, hits: windowed(app, hits, tm.tumbling("1h", early=5)),
        "the event time is a Time, but the distance of the early results of the windows is 5; give a duration",
    ),
    (
        lambda app, hits: windowed(app, hits, tm.tumbling("1h", early="soon")),
        "a distance of early results of tumbling 'soon' is not a duration; "
        "write a whole number and us, ms, s, m, h or d, such as '2s'",
    ),
    (
        lambda app, hits: windowed(app, hits, tm.tumbling("1h")).early,
        "window 'hourly': it has no early results; give it windows with early=: tm.tumbling('1h', early='1m')",
    ),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED)
def test_wrong_early_results_are_refused(declare, message):
    app = tm.App("refused")
    with pytest.raises((tm.PlanError, tm.CompileError)) as refused:
        declare(app, app.source(Hit))
    found = refused.value
    assert (found.msg if isinstance(found, tm.CompileError) else str(found)) == message


def test_a_join_has_no_early_results():
    app = tm.App("joins")
    hits = app.source(Hit)
    with pytest.raises(tm.PlanError, match="a join has no early results; leave early= out"):

        @app.join(hits, hits, on="page", over=tm.tumbling("1h", early="1m"))
        def pairs(a, b):
            return {"page": a.page}
