"""Late events as inputs: what follows from them is what plain Python makes of the same events in the order of positions."""

import json
import random
import subprocess
import sys
import textwrap
from collections import defaultdict

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (2, 1), (3, 7)]
LATENESS = 3


class Click(tm.Event):
    at: int = tm.event_time()
    campaign: int
    cost: int
    tags: list[int]


class Campaign(tm.Row):
    id: int = tm.key()
    left: int = 60
    spent: int = 0
    late: int = 0


def clicks_of(seed, count=200):
    rng = random.Random(seed)
    at, clicks = rng.choice([0, -1000]), []
    for number in range(count):
        at += rng.choice([0, 0, 1, 1, 2, 9])
        old = at - rng.choice([0, 0, 1, 3, 4, 9, 60])
        click = {"at": old, "campaign": rng.randrange(4), "cost": rng.randrange(1, 4)}
        clicks.append({**click, "tags": [number] * rng.randrange(3)})
    return clicks


def placed(sources):
    """The events of sources in the order of positions: where each stands, whether it is late, and the event."""
    found = []
    for number, events in enumerate(sources):
        greatest = None
        for offset, event in enumerate(events):
            is_late = greatest is not None and event["at"] < greatest - LATENESS
            stands = greatest if is_late else event["at"]
            if not is_late:
                greatest = stands if greatest is None else max(greatest, stands)
            found.append((stands, number, offset, is_late, event))
    found.sort(key=lambda placed: placed[:3])
    return [(stands, is_late, event) for stands, _, _, is_late, event in found]


def late_of(clicks):
    return [(stands, event) for stands, is_late, event in placed([clicks]) if is_late]


def campaigns_of(name, sources=2):
    """Punctual clicks are paid for, late ones afterwards; who cannot pay is noted."""
    app = tm.App(name)
    rows = [{"id": i} for i in range(4)]
    campaigns = app.table(Campaign, rows=rows, name="campaigns")
    clicks = [app.source(Click, name=f"clicks{i}", lateness=LATENESS) for i in range(sources)]

    @app.transaction(*clicks)
    def pay(ev, c=campaigns.row("campaign")):
        tm.require(c.left >= ev.cost, "no money")
        c.left -= ev.cost
        c.spent += ev.cost

    @app.transaction(*[source.late for source in clicks])
    def correct(ev, c=campaigns.row("campaign")):
        tm.require(c.left >= 2 * ev.cost, "no money")
        c.left -= 2 * ev.cost
        for tag in ev.tags:
            c.late += tag
        return {"at": ev.at, "campaign": ev.campaign, "left": c.left, "spent": c.spent}

    @app.transaction(correct.aborted)
    def note(ev, c=campaigns.row("campaign")):
        c.left += 5
        return {"at": ev.at, "campaign": ev.campaign, "left": c.left}

    @app.transaction(correct.committed.filter(lambda e: e.left % 2 == 0))
    def even(ev, c=campaigns.row("campaign")):
        c.spent += 1000

    return app, clicks, campaigns, correct, note


def plain(sources):
    """Returns the results by definition."""
    rows = {i: {"id": i, "left": 60, "spent": 0, "late": 0} for i in range(4)}
    corrected, noted = [], []
    for _, is_late, ev in placed(sources):
        row, cost = rows[ev["campaign"]], ev["cost"]
        found = {"at": ev["at"], "campaign": ev["campaign"]}
        if not is_late and row["left"] >= cost:
            row["left"] -= cost
            row["spent"] += cost
        elif is_late and row["left"] >= 2 * cost:
            row["left"] -= 2 * cost
            row["late"] += sum(ev["tags"])
            corrected.append({**found, "left": row["left"], "spent": row["spent"]})
            row["spent"] += 1000 * (row["left"] % 2 == 0)
        elif is_late:
            row["left"] += 5
            noted.append({**found, "left": row["left"]})
    return list(rows.values()), corrected, noted


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_corrections_are_transactions_at_their_place(workers, epoch):
    for seed in range(6):
        sources = [clicks_of(seed), clicks_of(100 + seed)]
        app, clicks, campaigns, correct, note = campaigns_of("corrections")
        corrected, noted = app.collect(correct.committed), app.collect(note.committed)
        late = app.collect(clicks[0].late)
        summary = app.run(dict(zip(clicks, sources, strict=True)), workers=workers, epoch=epoch)
        rows, wanted, refused = plain(sources)
        assert len(wanted) > 5 and len(refused) > 1
        assert campaigns.to_pylist() == rows
        assert corrected.to_pylist() == wanted
        assert noted.to_pylist() == refused
        assert late.to_pylist() == [event for _, event in late_of(sources[0])]
        assert summary.late == sum(len(late_of(events)) for events in sources)
        assert summary.events == sum(map(len, sources))


def test_one_transaction_takes_both():
    class Order(tm.Row):
        id: int = tm.key()
        last: int = 0

    clicks = clicks_of(7)
    app = tm.App("both")
    source, orders = app.source(Click, lateness=LATENESS), app.table(Order)

    @app.transaction(source, source.late)
    def note(ev, o=orders.row("campaign", create=True)):
        before = o.last
        o.last = ev.at
        return {"campaign": ev.campaign, "before": before, "at": ev.at}

    noted = app.collect(note.committed)
    app.run({source: clicks}, epoch=5)
    last, expected = defaultdict(int), []
    for _, _, event in placed([clicks]):
        campaign = event["campaign"]
        expected.append({"campaign": campaign, "before": last[campaign], "at": event["at"]})
        last[campaign] = event["at"]
    assert noted.to_pylist() == expected


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_filters_maps_windows_and_joins(workers, epoch):
    clicks = clicks_of(3, 400)
    app = tm.App("streams")
    source = app.source(Click, lateness=LATENESS)
    dear = source.late.filter(lambda e: e.cost > 1).map(
        lambda e: {"at": e.at, "campaign": e.campaign, "tags": e.tags}, name="dear"
    )

    @app.window(source.late, by="campaign", over=tm.tumbling(20))
    def late(w):
        return {"campaign": w.campaign, "end": w.end, "n": w.count(), "oldest": w.at.min()}

    @app.window(dear, over=tm.tumbling(50))
    def dears(w):
        return {"end": w.end, "n": w.count()}

    @app.join(source, source.late, on=("campaign", "campaign"), within=5)
    def pairs(p, q):
        return {"campaign": p.campaign, "at": p.at, "late": q.at}

    found = [app.collect(s) for s in (dear, late.closed, dears.closed, pairs.joined)]
    once = app.collect(source.late.first("campaign", within=30))
    app.run({source: clicks}, workers=workers, epoch=epoch)

    lates = late_of(clicks)
    assert len(lates) > 50
    chosen = [(stands, e) for stands, e in lates if e["cost"] > 1]
    assert found[0].to_pylist() == [{k: e[k] for k in ("at", "campaign", "tags")} for _, e in chosen]
    windows, totals = defaultdict(list), defaultdict(int)
    for stands, event in lates:
        windows[stands // 20 * 20 + 20, event["campaign"]].append(event["at"])
    for stands, _ in chosen:
        totals[stands // 50 * 50 + 50] += 1
    wanted = [
        {"campaign": campaign, "end": end, "n": len(ats), "oldest": min(ats)}
        for (end, campaign), ats in windows.items()
    ]
    assert found[1].to_pylist() == wanted
    assert found[2].to_pylist() == [{"end": end, "n": n} for end, n in totals.items()]

    order, partners = placed([clicks]), []
    for i, (now, is_late, event) in enumerate(order):
        for then, was_late, other in order[:i]:
            if was_late != is_late and now - then < 5 and event["campaign"] == other["campaign"]:
                old, new = (event, other) if is_late else (other, event)
                partners.append({"campaign": event["campaign"], "at": new["at"], "late": old["at"]})
    assert found[3].to_pylist() == partners

    passed, firsts = {}, []
    for stands, event in lates:
        if event["campaign"] not in passed or stands - passed[event["campaign"]] >= 30:
            passed[event["campaign"]] = stands
            firsts.append(event)
    assert once.to_pylist() == firsts


def test_a_state_goes_on_with_late_events_that_wait(tmp_path):
    """The late events of one source wait for the other, from session to session."""
    sources = [clicks_of(11), clicks_of(12)]
    cuts = [0, 30, 31, 90, 200]
    corrected = []
    for begin, end in zip(cuts, cuts[1:], strict=False):
        app, clicks, campaigns, correct, _ = campaigns_of("goes_on")
        found = app.collect(correct.committed)
        with app.start(state=str(tmp_path / "state")) as mill:
            mill.send(clicks[0], sources[0][begin:end])
            # The other is behind.
            other = slice(begin // 2, end // 2 if end < 200 else 200)
            mill.send(clicks[1], sources[1][other])
            if end == 200:
                mill.flush()
        corrected += found.to_pylist()
    app, clicks, campaigns, correct, _ = campaigns_of("goes_on")
    found = app.collect(correct.committed)
    app.run({clicks[0]: [], clicks[1]: []}, state=str(tmp_path / "state"), final=True)
    rows, wanted, _ = plain(sources)
    assert corrected + found.to_pylist() == wanted
    assert campaigns.to_pylist() == rows


def test_another_program_goes_on_with_late_events_that_wait(tmp_path):
    """Late events that wait go to the sinks of their stream if they are no inputs any more; and the other way round."""
    state = str(tmp_path / "state")

    def program(corrects):
        app = tm.App("changes")
        campaigns = app.table(Campaign, name="campaigns")
        clicks = [app.source(Click, name=f"clicks{i}", lateness=LATENESS) for i in range(2)]

        @app.transaction(clicks[0])
        def pay(ev, c=campaigns.row("campaign", create=True)):
            c.spent += 1

        if corrects:

            @app.transaction(clicks[0].late)
            def correct(ev, c=campaigns.row("campaign", create=True)):
                c.late += 1

        return app, clicks, campaigns, app.collect(clicks[0].late)

    def click(at):
        return {"at": at, "campaign": 1, "cost": 1, "tags": []}

    app, clicks, _, late = program(True)
    with app.start(state=state) as mill:
        mill.send(clicks[1], [click(0)])
        mill.send(clicks[0], [click(at) for at in (10, 2, 20, 3)])
    assert late.to_pylist() == []
    app, clicks, campaigns, late = program(False)
    with app.start(state=state) as mill:
        mill.send(clicks[0], [click(at) for at in (30, 4)])
    assert [event["at"] for event in late.to_pylist()] == [2, 3, 4]
    app, clicks, campaigns, late = program(True)
    with app.start(state=state) as mill:
        mill.send(clicks[0], [click(at) for at in (40, 5)])
    assert late.to_pylist() == []
    app.run({clicks[0]: [click(6)], clicks[1]: [click(50)]}, state=state, final=True)
    assert [event["at"] for event in late.to_pylist()] == [5, 6]
    assert campaigns.to_pylist() == [{"id": 1, "left": 60, "spent": 4, "late": 2}]


PROGRAM = """
import tidemill as tm

class Click(tm.Event):
    at: int = tm.event_time()
    campaign: int

class Campaign(tm.Row):
    id: int = tm.key()
    late: int = 0

app = tm.App("shown")
campaigns = app.table(Campaign)
clicks = app.source(Click, tm.csv("clicks.csv"), lateness=2)

@app.transaction(clicks.late)
def correct(ev, c=campaigns.row("campaign", create=True)):
    c.late += 1

app.sink(correct.committed, tm.jsonl("corrected.jsonl"))
"""


def command(*words, at):
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", *map(str, words)], cwd=at, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_show_and_verify_know_late_events(tmp_path):
    (tmp_path / "app.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "clicks.csv").write_text("at,campaign\n10,1\n3,2\n11,1\n12,1\n8,2\n")
    command("run", "app.py", "--state", "state", "--savepoint", "start", at=tmp_path)
    shown = command("txn", "show", "state", "clicks:1", at=tmp_path)
    assert "clicks:1 at 10, in epoch" in shown
    assert "where it stands, as it came too late: its at is more than 2 before the greatest" in shown
    assert "transaction correct: committed" in shown and "wrote c.late = 1" in shown
    assert "time of the position" not in shown
    assert "no difference" in command("verify", "state", "--from", "start", at=tmp_path)
    command("run", "app.py", "--state", "state", "--final", at=tmp_path)
    lines = (tmp_path / "corrected.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"at": 3, "campaign": 2}, {"at": 8, "campaign": 2}]
    assert "clicks.late" in command("explain", "app.py", at=tmp_path)


def test_what_cannot_be():
    class Plain(tm.Event):
        n: int

    app = tm.App("refused")
    plain = app.source(Plain, name="plain")
    with pytest.raises(tm.PlanError, match="the events of 'plain' bring no event time, so none is late"):
        plain.late.first("n", within=5)
    with pytest.raises(tm.CompileError, match="the events of 'plain' bring no event time, so none is late"):

        @app.transaction(plain.late)
        def never(ev):
            pass
