"""Atomic batches of a source's events: what transactions on them see is what plain Python makes of the same events."""

import random
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill import testing

RUNS: list[tuple[int, Any]] = [(1, "auto"), (2, 1), (3, 7)]


class Contestant(tm.Row):
    id: int = tm.key()
    votes: int = 0


class Vote(tm.Event):
    phone: str
    contestant: int


class TimedVote(tm.Event):
    at: tm.Time = tm.event_time()
    contestant: int


class Counted(tm.Event):
    n: int = tm.event_time()
    contestant: int


def votes_of(seed: int, count: int = 103) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [{"phone": f"{rng.randrange(20):02}", "contestant": rng.randrange(5)} for _ in range(count)]


def in_tens(size: int = 10) -> tuple[tm.App, Any, Any, Any]:
    """Each batch counts for its contestants, or not at all where one phone votes twice in it."""
    app = tm.App("votes")
    contestants = app.table(Contestant)
    votes = app.source(Vote)
    batches = votes.batch(size)

    @app.transaction(batches)
    def count(ev, each=contestants.row("events.contestant", create=True)):  # type: ignore[no-untyped-def]
        phones = ""
        for vote in ev.events:
            tm.require(vote.phone not in phones, "votes twice")
            phones = phones + "," + vote.phone
            each.votes += 1
        return {"batch": ev.batch, "votes": len(ev.events)}

    return app, contestants, votes, count


def by_hand(votes: list[dict[str, Any]], size: int = 10) -> tuple[list[tuple[int, int]], list[int], dict[int, int]]:
    """The numbers and sizes of batches that count, the numbers of the others, and the counts. The last may be short."""
    committed, aborted, counts = [], [], dict[int, int]()
    for number, start in enumerate(range(0, len(votes), size), 1):
        batch = votes[start : start + size]
        if len({vote["phone"] for vote in batch}) < len(batch):
            aborted.append(number)
            continue
        committed.append((number, len(batch)))
        for vote in batch:
            counts[vote["contestant"]] = counts.get(vote["contestant"], 0) + 1
    return committed, aborted, counts


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("size", [1, 3, 10, 200])
def test_a_batch_counts_as_a_whole_or_not_at_all(workers: int, epoch: Any, size: int) -> None:
    app, contestants, votes, count = in_tens(size)
    given = votes_of(size)
    ran = testing.run(app, {"votes": given}, workers=workers, epoch=epoch)
    committed, aborted, counts = by_hand(given, size)
    assert [(event["batch"], event["votes"]) for event in ran.stream(count.committed)] == committed
    assert [(event["batch"], event["reason"]) for event in ran.stream(count.aborted)] == [
        (n, "votes twice") for n in aborted
    ]
    assert {row["id"]: row["votes"] for row in ran.table("contestants")} == counts
    if size == 3:
        assert committed and aborted


def test_what_is_begun_goes_on_in_the_next_run(tmp_path: Path) -> None:
    given, seen = votes_of(3, 60), []
    for start in range(0, 60, 7):
        app, _, votes, count = in_tens(3)
        done = app.collect(count.committed)
        app.run({votes: given[start : start + 7]}, state=tmp_path / "state", workers=2, final=start + 7 >= 60)
        seen += [(event["batch"], event["votes"]) for event in done.to_pylist()]
    assert seen == by_hand(given, 3)[0]


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_batches_of_a_length_of_time(workers: int, epoch: Any) -> None:
    app = tm.App("votes")
    contestants = app.table(Contestant)
    votes = app.source(Counted, lateness=2)
    batches = votes.batch(over=10, origin=5)

    @app.transaction(batches)
    def count(ev, each=contestants.row("events.contestant", create=True)):  # type: ignore[no-untyped-def]
        first = -100
        for vote in ev.events:
            each.votes += 1
            first = vote.n if first == -100 else first
        return {"batch": ev.batch, "start": ev.start, "end": ev.end, "votes": len(ev.events), "first": first}

    rng = random.Random(4)
    given = [{"n": n // 3 + rng.randrange(-2, 1) + 30 * (n // 50), "contestant": n % 3} for n in range(150)]
    ran = testing.run(app, {votes: given}, workers=workers, epoch=epoch)
    intervals: dict[int, list[dict[str, int]]] = {}
    for vote in sorted(given, key=lambda vote: vote["n"]):
        intervals.setdefault((vote["n"] - 5) // 10 * 10 + 5, []).append(vote)
    expected = [
        {"batch": number, "start": start, "end": start + 10, "votes": len(batch), "first": batch[0]["n"]}
        for number, (start, batch) in enumerate(sorted(intervals.items()), 1)
    ]
    assert ran.stream(votes.late) == []
    assert list(ran.stream(count.committed)) == expected


def test_a_batch_goes_to_a_sink_as_it_is() -> None:
    app = tm.App("votes")
    votes = app.source(TimedVote)
    pairs, seconds = votes.batch(2), votes.batch("1s")
    assert votes.batch(2) is pairs
    at = [datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc) for second in (1, 1, 3)]
    ran = testing.run(app, {votes: [{"at": time, "contestant": n} for n, time in enumerate(at)]})
    pair, rest = ran.stream(pairs)
    assert (pair["batch"], rest["batch"]) == (1, 2)
    assert [event["contestant"] for event in rest["events"]] == [2]
    assert [event["contestant"] for event in pair["events"]] == [0, 1]
    assert pair["at"] == pair["events"][1]["at"]
    first, second = ran.stream(seconds)
    assert [event["contestant"] for event in first["events"]] == [0, 1]
    assert (first["end"] - first["start"]).total_seconds() == 1
    assert [event["contestant"] for event in second["events"]] == [2]


def test_batches_are_of_calls_too() -> None:
    app = tm.App("votes")
    contestants = app.table(Contestant)
    votes = app.requests(Vote)

    @app.transaction(votes)
    def vote(ev):  # type: ignore[no-untyped-def]
        return {"contestant": ev.contestant}

    @app.transaction(votes.batch(3))
    def count(ev, each=contestants.row("events.contestant", create=True)):  # type: ignore[no-untyped-def]
        for one in ev.events:
            each.votes += 1
        return {"batch": ev.batch}

    with app.start() as mill:
        for n in range(7):
            assert mill.call(vote, phone="1", contestant=n % 2).value == {"contestant": n % 2}
        rows = {row["id"]: row["votes"] for row in mill.table(contestants).to_pylist()}
    assert rows == {0: 3, 1: 3}


REFUSED = [
    (lambda votes: votes.filter(lambda e: e.contestant > 0).batch(10), "is of 'votes_filter', which is no source"),
    (lambda votes: votes.batch("0s"), "'0s' is not a length; it is greater than 0"),
    (lambda votes: votes.batch(0), "0 is not a number of events; write one of at least 1"),
    (lambda votes: votes.batch(), "it is of a number of events or of a length of time"),
    (lambda votes: votes.batch(2, over="1s"), "it is of a number of events or of a length of time"),
    (lambda votes: votes.batch(2, origin=1), "an origin is of batches by time"),
    (lambda votes: votes.batch("1s"), "it is by time, and the events of 'votes' have none"),
    (lambda votes: votes.batch(2, name="pairs") and votes.batch(3, name="pairs"), "it is declared already"),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED)
def test_what_cannot_be_is_refused(declare: Any, message: str) -> None:
    votes = tm.App("votes").source(Vote)
    with pytest.raises(tm.PlanError, match=message):
        declare(votes)
