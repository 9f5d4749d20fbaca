"""The most frequent values of windows, against plain Python: of those as frequent, the one that came first is first."""

from collections import Counter

import pytest
from test_windows_over import KINDS, RUNS, Bid, bids_of, closes, user_of

import tidemill as tm


def ranked(values, count):
    """Values and how often each is there; ``most_common`` keeps the order of first appearance among equals."""
    found = Counter(value for value in values if value is not None).most_common(count)
    return found + [(None, 0)] * (count - len(found))


def answers(events):
    sizes, names = ranked([e["size"] for e in events], 3), ranked([e["name"] for e in events], 2)
    (time, times), *_ = ranked([e["at"] for e in events], 1)
    return {
        "n": len(events),
        **{f"size{i}": size for i, (size, _) in enumerate(sizes)},
        **{f"sizes{i}": count for i, (_, count) in enumerate(sizes)},
        "name": names[0][0],
        "names": names[0][1],
        "other": names[1][0],
        "time": time,
        "times": times,
    }


def declare(app, bids, over):
    @app.window(bids, by="user", over=over)
    def asked(w):
        size = w.size.top(3)
        return {
            "end": w.end,
            "user": w.user,
            "n": w.count(),
            "size0": size[0].value,
            "size1": size[1].value,
            "size2": size[2].value,
            "sizes0": size[0].count,
            "sizes1": size[1].count,
            "sizes2": size[2].count,
            "name": w.name.top(2)[0].value,
            "names": w.name.top(2)[0].count,
            "other": w.name.top(2)[1].value,
            "time": w.at.top(1)[0].value,
            "times": w.at.top(1)[0].count,
        }

    return asked


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
@pytest.mark.parametrize(("kind", "over", "windows"), KINDS, ids=[k[0] for k in KINDS])
def test_the_most_frequent_values(kind, over, windows, workers, epoch):
    for seed in range(3):
        app = tm.App("windows")
        bids = app.source(Bid)
        found = app.collect(declare(app, bids, over).closed)
        events = bids_of(seed)
        app.run({bids: events}, workers=workers, epoch=epoch)
        expected = [
            {"end": end, "user": user, **answers(inside)} for end, _, user, inside in closes(events, user_of, windows)
        ]
        assert found.to_pylist() == expected


def test_windows_by_count():
    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=tm.counting(5))
    def asked(w):
        often = w.name.top(1)
        return {"name": often[0].value, "times": often[0].count}

    found = app.collect(asked.closed)
    events = bids_of(7)
    app.run({bids: events})
    windows = [events[i : i + 5] for i in range(0, len(events), 5)]
    expected = [ranked([e["name"] for e in window], 1)[0] for window in windows]
    assert [(row["name"], row["times"]) for row in found.to_pylist()] == expected


def test_a_helper_takes_the_most_frequent_values():
    def share(often, all_of_them):
        return often[0].count * 100 // all_of_them

    app = tm.App("windows")
    bids = app.source(Bid)

    @app.window(bids, over=tm.tumbling(1000, origin=-500))
    def asked(w):
        often = w.name.top(2)
        return {"share": share(often, w.count())}

    found = app.collect(asked.closed)
    event = {"user": None, "price": 0.0, "size": None, "big": False}
    app.run({bids: [{"at": i, "name": "ab"[i % 3 == 0], **event} for i in range(6)]})
    assert found.to_pylist() == [{"share": 66}]


def test_unknown_ranks_are_refused():
    app = tm.App("windows")
    bids = app.source(Bid)
    with pytest.raises(tm.CompileError, match="none of the 2 most frequent values"):

        @app.window(bids, over=tm.tumbling(10))
        def asked(w):
            return {"x": w.name.top(2)[-1].value}
