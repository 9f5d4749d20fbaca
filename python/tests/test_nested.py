"""Nested transactions: they commit or abort as one, and what comes out is what plain Python makes of the same events."""

import random
from datetime import datetime, timedelta, timezone

import pytest
from test_splits import verified

import tidemill as tm

RUNS = [(1, None), (2, None), (2, 1), (3, 7)]


class Vote(tm.Event):
    phone: int
    contestant: int
    weight: int


class Caller(tm.Row):
    phone: int = tm.key()
    votes: int = 0


class Contestant(tm.Row):
    id: int = tm.key()
    votes: int = 0
    heaviest: int = 0


class Total(tm.Row):
    id: int = tm.key()
    n: int = 0
    seen: int = 0


def application(source=tm.App.source):
    """A vote, its count and two steps that follow: any of the four can refuse all of them."""
    app = tm.App("contest")
    votes = source(app, Vote)
    callers, contestants, totals = app.table(Caller), app.table(Contestant), app.table(Total)

    @app.transaction(votes)
    def validate(ev, caller=callers.row("phone", create=True)):
        tm.require(caller.votes < 9, "has voted")
        caller.votes += 1
        tm.emit("checked", {"contestant": ev.contestant, "weight": ev.weight})
        return {"phone": ev.phone, "contestant": ev.contestant, "votes": caller.votes}

    @app.transaction(validate.emitted("checked"), nested=True)
    def count(ev, who=contestants.row("contestant", create=True)):
        tm.require(ev.weight != 3, "no such weight")
        who.votes += ev.weight
        return {"contestant": ev.contestant, "votes": who.votes}

    @app.transaction(count.committed, nested=True)
    def rank(ev, who=contestants.row("contestant"), total=totals.row(lambda e: 0, create=True)):
        total.n += 1
        tm.require(ev.votes % 7 != 0, "sevens are skipped")
        who.heaviest = max(who.heaviest, ev.votes)
        tm.emit("ranked", {"contestant": ev.contestant, "n": total.n})

    @app.transaction(validate.committed, nested=True)
    def check(ev, total=totals.row(lambda e: 0, create=True)):
        tm.require(total.n % 11 != 5, "the line is busy")

    @app.transaction(rank.emitted("ranked"))
    def look(ev, total=totals.row(lambda e: 0, create=True)):
        total.seen += 1
        return {"n": ev.n, "seen": total.seen}

    return app, votes, (validate, count, rank, check, look)


def votes_of(seed, count=600):
    rng = random.Random(seed)
    return [
        {"phone": rng.randrange(60), "contestant": rng.randrange(4), "weight": rng.choice([1, 1, 2, 3])}
        for _ in range(count)
    ]


class Plain:
    """The program in a loop."""

    def __init__(self):
        self.callers, self.contestants, self.heaviest = {}, {}, {}
        self.n = self.seen = 0
        self.counted, self.refused, self.looks = [], [], []

    def vote(self, phone, contestant, weight):
        """The reply, or a reason."""
        before = (dict(self.callers), dict(self.contestants), dict(self.heaviest), self.n)
        reason = self._vote(phone, contestant, weight)
        if reason is None:
            self.seen += 1
            self.counted.append({"contestant": contestant, "votes": self.contestants[contestant]})
            self.looks.append({"n": self.n, "seen": self.seen})
            return {"phone": phone, "contestant": contestant, "votes": self.callers[phone]}
        self.callers, self.contestants, self.heaviest, self.n = before
        seen = self.callers.get(phone)
        self.refused.append((phone, contestant, weight, reason, seen))
        return reason

    def _vote(self, phone, contestant, weight):
        if self.callers.get(phone, 0) >= 9:
            return "has voted"
        self.callers[phone] = self.callers.get(phone, 0) + 1
        if weight == 3:
            return "count: no such weight"
        self.contestants[contestant] = self.contestants.get(contestant, 0) + weight
        self.n += 1
        if self.contestants[contestant] % 7 == 0:
            return "rank: sevens are skipped"
        self.heaviest[contestant] = max(self.heaviest.get(contestant, 0), self.contestants[contestant])
        return "check: the line is busy" if self.n % 11 == 5 else None


def plain_run(votes):
    plain = Plain()
    for vote in votes:
        plain.vote(**vote)
    return plain


def refusals(frame):
    return [(e["phone"], e["contestant"], e["weight"], e["reason"], e["caller.votes"]) for e in frame.to_pylist()]


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("seed", range(3))
def test_as_a_loop_does_it(workers, epoch, seed):
    app, votes, (validate, count, rank, check, look) = application()
    collected = [app.collect(s) for s in (count.committed, validate.aborted, look.committed, count.aborted)]
    given = votes_of(seed)
    summary = app.run({votes: given}, workers=workers, epoch=epoch)
    plain = plain_run(given)
    assert collected[0].to_pylist() == plain.counted
    assert refusals(collected[1]) == plain.refused
    assert collected[2].to_pylist() == plain.looks
    assert collected[3].to_pylist() == []
    assert {r["phone"]: r["votes"] for r in app.tables["callers"].to_pylist()} == plain.callers
    rows = app.tables["contestants"].to_pylist()
    assert {r["id"]: r["votes"] for r in rows} == plain.contestants
    assert {r["id"]: r["heaviest"] for r in rows} == plain.heaviest
    counts = {t.name: (t.committed, t.aborted) for t in summary.transactions}
    committed = len(plain.counted)
    assert counts["validate"] == (committed, len(plain.refused))
    assert [counts[name] for name in ("count", "rank", "check", "look")] == [(committed, 0)] * 4


def test_calls_are_answered_with_the_root_or_the_step(tmp_path):
    app, _, (validate, *_) = application(tm.App.requests)
    plain = Plain()
    with app.start(state=tmp_path / "state") as mill:
        for vote in votes_of(7, 200):
            expected = plain.vote(**vote)
            try:
                assert mill.call(validate, **vote).value == expected
            except tm.Aborted as aborted:
                assert aborted.reason == expected
    with app.start(state=tmp_path / "state") as mill:
        rows = mill.table(app.tables["callers"]).to_pylist()
        assert {r["phone"]: r["votes"] for r in rows} == plain.callers


def test_what_explain_says():
    app, _, _ = application()
    text = app.explain()
    assert "one event at a time, as one with count, rank, check: all commit or none does" in text
    assert "one event at a time, nested in validate, which aborts if it does" in text
    assert "rank: sevens are skipped" in text


def test_what_is_refused():
    app, votes, (validate, *_) = application()

    def step(ev):
        pass

    with pytest.raises(tm.CompileError, match="no transaction returns or emits 'votes'"):
        app.transaction(votes, nested=True)(step)
    with pytest.raises(tm.CompileError, match="with an abort of 'validate' all of them end"):
        app.transaction(validate.aborted, nested=True)(step)
    reading = validate.committed.map(lambda e, c: {"n": c.votes}, c=app.tables["callers"].read("phone"))
    with pytest.raises(tm.PlanError, match="reads rows, and nothing is nested in a filter or map"):
        app.transaction(reading, nested=True)(step)


class Board(tm.Row):
    contestant: int = tm.key()
    votes: int = 0
    n: int = 0
    notes: int = 0


def diamond():
    """A vote; its count and its number, in either order; a board that needs both. What follows from a step is after it."""
    app = tm.App("diamond")
    votes = app.source(Vote)
    callers, contestants = app.table(Caller), app.table(Contestant)
    totals, boards = app.table(Total), app.table(Board)

    @app.transaction(votes)
    def validate(ev, caller=callers.row("phone", create=True)):
        tm.require(caller.votes < 3, "has voted")
        caller.votes += 1
        return {"contestant": ev.contestant, "weight": ev.weight}

    @app.transaction(validate.committed, nested=True)
    def count(ev, who=contestants.row("contestant", create=True)):
        tm.require(ev.weight != 3, "no such weight")
        who.votes += ev.weight
        return {"contestant": ev.contestant}

    @app.transaction(validate.committed, nested=True)
    def number(ev, total=totals.row(lambda e: 0, create=True)):
        total.n += 1
        tm.require((total.n + ev.weight) % 11 != 5, "the line is busy")

    @app.transaction(validate.committed, nested=True)
    def publish(
        ev,
        who=contestants.read("contestant"),
        total=totals.read(lambda e: 0),
        board=boards.row("contestant", create=True),
    ):
        tm.require((who.votes + total.n) % 7 != 0, "sevens are skipped")
        board.votes = who.votes
        board.n = total.n
        return {"contestant": ev.contestant, "votes": board.votes, "n": board.n, "notes": board.notes}

    @app.transaction(count.committed, nested=True)
    def note(ev, board=boards.row("contestant")):
        board.notes += board.votes

    return app, votes, (validate, publish)


def plain_diamond(votes):
    """Runs the program in a loop. Returns what was published, the reasons, and the boards."""
    callers, contestants, notes = {}, {}, {}
    numbers, published, reasons, boards = 0, [], [], {}
    for vote in votes:
        phone, who = vote["phone"], vote["contestant"]
        count, number = contestants.get(who, 0) + vote["weight"], numbers + 1
        if callers.get(phone, 0) >= 3:
            reasons.append("has voted")
        elif vote["weight"] == 3:
            reasons.append("count: no such weight")
        elif (number + vote["weight"]) % 11 == 5:
            reasons.append("number: the line is busy")
        elif (count + number) % 7 == 0:
            reasons.append("publish: sevens are skipped")
        else:
            callers[phone] = callers.get(phone, 0) + 1
            contestants[who], numbers = count, number
            published.append({"contestant": who, "votes": count, "n": number, "notes": notes.get(who, 0)})
            notes[who] = notes.get(who, 0) + count
            boards[who] = (count, number, notes[who])
    return published, reasons, boards


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("seed", range(3))
def test_a_diamond_runs_both_steps_before_the_last(tmp_path, workers, epoch, seed):
    app, votes, (validate, publish) = diamond()
    published, aborted = app.collect(publish.committed), app.collect(validate.aborted)
    given = votes_of(seed, 300)
    app.run({votes: given}, workers=workers, epoch=epoch, state=tmp_path / "state", savepoint="start", final=True)
    expected = plain_diamond(given)
    assert published.to_pylist() == expected[0]
    assert [event["reason"] for event in aborted.to_pylist()] == expected[1]
    steps = {"count: no such weight", "number: the line is busy", "publish: sevens are skipped"}
    assert set(expected[1]) == {"has voted"} | steps
    boards = app.tables["boards"].to_pylist()
    assert {row["contestant"]: (row["votes"], row["n"], row["notes"]) for row in boards} == expected[2]
    assert verified(tmp_path / "state", "start") == len(given)


class Sold(tm.Event):
    at: tm.Time = tm.event_time()
    item: str
    price: int


class Sum(tm.Row):
    item: str = tm.key()
    total: int = 0


@pytest.mark.parametrize("workers, epoch", RUNS)
def test_a_step_of_a_window_runs_as_it_closes_and_its_abort_is_the_windows(workers, epoch):
    app = tm.App("sales")
    sold, sums = app.source(Sold), app.table(Sum)

    @app.window(sold, by="item", over=tm.tumbling("1s"))
    def second(w):
        return {"item": w.item, "total": w.price.sum()}

    @app.transaction(second.closed, nested=True)
    def add(ev, row=sums.row("item", create=True)):
        tm.require(ev.total < 20, "too much")
        row.total += ev.total

    begin = datetime(2024, 1, 1, tzinfo=timezone.utc)
    events = [
        {"at": begin + timedelta(milliseconds=200 * number), "item": "ab"[number % 2], "price": number}
        for number in range(60)
    ]
    closes, failures, aborts = (app.collect(stream) for stream in (second.closed, second.failed, add.aborted))
    app.run({sold: events}, workers=workers, epoch=epoch)
    expected, closed, failed = {}, [], []
    for first in range(0, 60, 5):
        # Groups close in the order of their first events.
        for item in "ab" if first % 2 == 0 else "ba":
            total = sum(number for number in range(first, first + 5) if "ab"[number % 2] == item)
            if total < 20:
                expected[item] = expected.get(item, 0) + total
                closed.append({"item": item, "total": total})
            else:
                failed.append((item, "add: too much"))
    assert {row["item"]: row["total"] for row in sums.to_pylist()} == expected
    assert closes.to_pylist() == closed
    assert [(row["item"], row["reason"]) for row in failures.to_pylist()] == failed
    assert aborts.to_pylist() == []
    assert expected and failed
