"""Events without their repeats: what comes out is what plain Python makes of the same events."""

import random

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (2, 1), (3, 7)]


class Click(tm.Event):
    at: int = tm.event_time()
    id: str | None
    page: int
    number: int
    tags: list[int]


def clicks_of(seed, count=300):
    rng = random.Random(seed)
    at, clicks = rng.choice([0, -1000]), []
    for number in range(count):
        at += rng.choice([0, 0, 1, 1, 2, 9, 40])
        click = {"at": at, "id": rng.choice(["a", "b", "c", None]), "page": rng.randrange(2), "number": number}
        clicks.append({**click, "tags": [number] * rng.randrange(3)})
    return clicks


def first_clicks(clicks, by, within):
    """Returns the first clicks by definition: an event with no equal that was passed on less than ``within`` before."""
    passed, found = {}, []
    for click in clicks:
        key = tuple(click[field] for field in by)
        if key not in passed or click["at"] - passed[key] >= within:
            passed[key] = click["at"]
            found.append(click)
    return found


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("within", [1, 2, 7, 8, 9, 100, 10**6, 2**62])
def test_first_events_are_those_of_plain_python(workers, epoch, within):
    for seed, by in enumerate([["id"], ["id", "page"], ["page"]]):
        clicks = clicks_of(seed)
        app = tm.App("first")
        source = app.source(Click)
        found = app.collect(source.first(by[0] if len(by) == 1 else by, within=within))
        app.run({source: clicks}, workers=workers, epoch=epoch)
        assert found.to_pylist() == first_clicks(clicks, by, within)


class Page(tm.Row):
    page: int = tm.key()
    clicks: int = 0
    tags: int = 0


def counting():
    """An application that counts the clicks of pages without repeats, and what it uses."""
    app = tm.App("pages")
    source, pages = app.source(Click), app.table(Page)
    first = source.first("id", within=50, name="first_clicks")

    @app.transaction(first)
    def click(ev, p=pages.row("page", create=True)):
        p.clicks += 1

    @app.window(first, by="page", over=tm.tumbling(20))
    def twenty(w):
        return {"page": w.page, "end": w.end, "n": w.count()}

    return app, source, pages, twenty


def test_first_events_feed_transactions_and_windows():
    clicks = clicks_of(3)
    app, source, pages, twenty = counting()
    windows = app.collect(twenty.closed)
    app.run({source: clicks}, workers=2)
    expected = first_clicks(clicks, ["id"], 50)
    counts = {row["page"]: row["clicks"] for row in pages.to_pylist()}
    assert counts == {page: sum(click["page"] == page for click in expected) for page in counts}
    assert sum(row["n"] for row in windows.to_pylist()) == len(expected)
    for row in windows.to_pylist():
        inside = [c for c in expected if c["page"] == row["page"] and row["end"] - 20 <= c["at"] < row["end"]]
        assert row["n"] == len(inside)


def test_first_events_go_on_where_a_run_ended(tmp_path):
    clicks = clicks_of(4)
    cuts = [0, 40, 41, 150, len(clicks)]
    found = []
    for begin, end in zip(cuts, cuts[1:], strict=False):
        app, source, _, _ = counting()
        picked = app.collect(source.first("id", within=50, name="first_clicks"))
        with app.start(state=str(tmp_path / "state")) as mill:
            mill.send(source, clicks[begin:end])
        found += picked.to_pylist()
    assert found == first_clicks(clicks, ["id"], 50)


def test_explain_says_what_is_kept():
    app, _, _, _ = counting()
    assert "first_clicks: the first events within 50 of" in app.explain()


def test_what_cannot_be():
    app = tm.App("refused")
    source = app.source(Click)
    with pytest.raises(tm.PlanError, match="'1 d' is not the name of a field"):
        source.first("1 d", within=5)
    with pytest.raises(tm.PlanError, match="the time of first events .soon. is not a duration"):
        source.first("id", within="soon")
    with pytest.raises(tm.PlanError, match="the event time is an int, but the time of first events is"):
        source.first("id", within="1h")


class Beat(tm.Event):
    at: int = tm.event_time()
    id: str
    number: int


def beats_of(seed, count=200):
    rng = random.Random(seed)
    clock, beats = -50, []
    for number in range(count):
        clock += rng.choice([0, 1, 1, 2, 7])
        delay = rng.choice([0, 0, rng.randrange(6), rng.randrange(20)])
        beats.append({"at": clock - delay, "id": rng.choice("abcd"), "number": number})
    return beats


def positioned(beats, lateness):
    """The events in the order of their positions, each with its time there: of a late one, what its source has shown."""
    greatest, found = None, []
    for beat in beats:
        late = greatest is not None and beat["at"] < greatest - lateness
        position = greatest if late else beat["at"]
        greatest = position if greatest is None else max(greatest, position)
        found.append({**beat, "position": position})
    return sorted(found, key=lambda beat: beat["position"])


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize("within", [1, 8, 50, 10**6])
def test_late_events_count_where_they_stand(workers, epoch, within):
    lateness, came_late = 5, 0
    for seed in range(3):
        beats = beats_of(seed)
        app = tm.App("late")
        source = app.source(Beat, lateness=lateness)
        found = app.collect(source.first("id", within=within, late=True))
        app.run({source: beats}, workers=workers, epoch=epoch)
        passed, expected = {}, []
        for beat in positioned(beats, lateness):
            before = passed.get(beat["id"])
            if before is None or beat["position"] - before >= within:
                passed[beat["id"]] = beat["position"]
                came_late += beat["position"] > beat["at"]
                expected.append({name: beat[name] for name in ("at", "id", "number")})
        assert found.to_pylist() == expected
    assert came_late > 0 or within > 8


def test_late_events_are_of_a_source():
    app = tm.App("late")
    source = app.source(Beat, name="beats")
    some = source.filter(lambda beat: beat.at > 0, name="some")
    with pytest.raises(tm.PlanError, match="'some' is no source, and has no late events; leave out late=True"):
        some.first("id", within=5, late=True)
    with pytest.raises(tm.PlanError, match="late=1 is an int; write late=True"):
        source.first("id", within=5, late=1)
