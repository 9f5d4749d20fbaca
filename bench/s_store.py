"""S-Store's experiments (Meehan et al., PVLDB 8(13), 2015, sections 4.1 and 4.2): the leaderboard, and triggers.

    make release && .venv/bin/python bench/s_store.py

The leaderboard is ``examples/leaderboard.py``, with a state: by stream, each vote as one nested transaction and as a
chain of transactions, beside a loop in Python whose board must be the same; then by calls. Triggers: a chain of
procedures that follow from one call (PE), and procedures that are one transaction (EE), beside a client that calls one
after the other. The paper's client is asynchronous only where the engine keeps the order of the steps, so one that
calls each step itself waits for it. Medians of rounds. One line a figure.
"""

from __future__ import annotations

import argparse
import random
import runpy
import statistics
import sys
import tempfile
import time
from collections import deque
from itertools import count
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from serving import READY, Call, measure, served

EXAMPLE = Path(__file__).parents[1] / "examples" / "leaderboard.py"
CONTESTANTS, ROUND, RECENT = 25, 20_000, 100
KEYS = 100_000
"""The rows of each table of the triggers."""


def leaderboard(source: str, is_nested: bool) -> str:
    """The program of the example with another source and without files."""
    text = EXAMPLE.read_text(encoding="utf-8")
    for old, new in {
        "import datasets\n": "",
        'out = datasets.out("leaderboard")\n': "",
        "app.source(Vote, tm.csv(datasets.votes()))": source,
        'app.sink(validate.aborted, tm.jsonl(out / "refused.jsonl"))\n': "",
        'app.sink(eliminate.committed, tm.jsonl(out / "eliminated.jsonl"))\n': "",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text if is_nested else text.replace(", nested=True", "")


def votes(number: int) -> tuple[list[int], list[int]]:
    """The phones and the contestants of votes; a third of them comes from phones that have voted."""
    dice = random.Random(9)
    liked = [dice.uniform(1, 3) for _ in range(CONTESTANTS)]
    phones = [dice.randrange(number) for _ in range(number)]
    return phones, dice.choices(range(CONTESTANTS), liked, k=number)


def loop(phones: list[int], chosen: list[int]) -> list[tuple[int, int, int, bool]]:
    """Runs the example by hand: the votes, the trend, the rank of each contestant, and whether he is in."""
    voted: dict[int, int] = {}
    counts, trend, is_in = [0] * CONTESTANTS, [0] * CONTESTANTS, [True] * CONTESTANTS
    ranks, places = list(range(CONTESTANTS)), list(range(CONTESTANTS))
    first, many = {0: 0}, {0: CONTESTANTS}
    recent: deque[int] = deque()
    last, number = CONTESTANTS - 1, 0
    for phone, who in zip(phones, chosen, strict=True):
        if not is_in[who]:
            continue
        before = voted.get(phone)
        if before is not None and is_in[before]:
            continue
        voted[phone] = who
        number += 1
        if len(recent) == RECENT:
            trend[recent.popleft()] -= 1
        recent.append(who)
        trend[who] += 1
        had = counts[who]
        top, own = first[had], ranks[who]
        other = places[top]
        places[own], ranks[other] = other, own
        places[top], ranks[who] = who, top
        if not many.get(had + 1):
            first[had + 1], many[had + 1] = top, 0
        many[had + 1] += 1
        first[had] += 1
        many[had] -= 1
        counts[who] = had + 1
        if number % ROUND == 0:
            gone = places[last]
            is_in[gone] = False
            many[counts[gone]] -= 1
            last -= 1
    return list(zip(counts, trend, ranks, is_in, strict=True))


def run(is_nested: bool, phones: list[int], chosen: list[int], folder: Path) -> tuple[float, object]:
    """Votes a second of the example over them, with a state, and the board."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        given = Path(own) / "votes.parquet"
        parquet.write_table(pa.table({"phone": phones, "contestant": chosen}), given)
        program = leaderboard(f"app.source(Vote, tm.parquet({str(given)!r}))", is_nested)
        (Path(own) / "app.py").write_text(program)
        app = runpy.run_path(str(Path(own) / "app.py"))
        begin = time.monotonic()
        app["app"].run(state=Path(own) / "state")
        took = time.monotonic() - begin
        rows = app["contestants"].to_pylist()
    return len(phones) / took, [tuple(row[name] for name in ("votes", "trend", "rank", "is_in")) for row in rows]


def by_stream(given: argparse.Namespace) -> None:
    phones, chosen = votes(given.votes)
    rates: dict[str, list[float]] = {"loop": [], "nested": [], "chain": []}
    for _ in range(given.rounds):
        begin = time.monotonic()
        board = loop(phones, chosen)
        rates["loop"].append(len(phones) / (time.monotonic() - begin))
        for name in ("nested", "chain"):
            rate, ours = run(name == "nested", phones, chosen, given.folder)
            assert ours == board, f"{name}: another board than the loop's"
            rates[name].append(rate)
    plain, nested, chain = (statistics.median(rates[name]) for name in rates)
    print(f"leaderboard by stream, durable: {nested:,.0f} votes/s nested, {chain:,.0f} votes/s chained", end="")
    print(f"; a loop in Python without a state: {plain:,.0f}")


def by_calls(given: argparse.Namespace) -> None:
    dice = random.Random(9)
    phones = count()
    call = Call("validate", lambda: (next(phones), dice.randrange(CONTESTANTS)), again=False)
    rates = []
    with served(given.folder, {"app.py": leaderboard("app.requests(Vote)", True)}) as server:
        for _ in range(given.rounds):
            # Votes for one who is out abort, and are work as well.
            votes, _, _ = server.calls(call, given.seconds, 4, 250, READY)
            rates.append(votes)
    print(f"leaderboard by calls, durable, 1,000 under way: {statistics.median(rates):,.0f} votes/s")


def steps(number: int, follow: bool, is_nested: bool = False) -> str:
    """A program with so many procedures, each of which writes a table of its own. They follow from each other, or are
    called each by itself."""
    text = """
import tidemill as tm

app = tm.App("steps")


class Item(tm.Event):
    id: int


class Row(tm.Row):
    id: int = tm.key()
    value: int = 0

"""
    for step in range(number):
        is_called = step == 0 or not follow
        text += f"""
rows{step} = app.table(Row, "rows{step}")
stream{step} = {f'app.requests(Item, "items{step}")' if is_called else f"step{step - 1}.committed"}


@app.transaction(stream{step}{", nested=True" if is_nested and not is_called else ""})
def step{step}(ev, row=rows{step}.row("id", create=True)):
    row.value += 1
    return {{"id": ev.id}}
"""
    return text


def triggers(given: argparse.Namespace) -> None:
    dice = random.Random(9)

    def call(step: int) -> Call:
        return Call(f"step{step}", lambda: (dice.randrange(KEYS),))

    for number in map(int, given.steps.split(",")):
        programs = {
            "PE": steps(number, follow=True),
            "EE": steps(number, follow=True, is_nested=True),
            "trips": steps(number, follow=False),
        }
        many, one = {}, {}
        for name, program in programs.items():
            with served(given.folder, {"app.py": program}) as server:
                made = [call(step) for step in range(number if name == "trips" else 1)]
                rates = [server.one_by_one(made, given.seconds) for _ in range(given.rounds)]
                one[name] = statistics.median(rates)
                if name != "trips":
                    rates = [server.calls(call(0), given.seconds, 4, 250)[0] for _ in range(given.rounds)]
                    many[name] = statistics.median(rates)
        trips = one["trips"]
        print(f"{number} procedures, by a client that calls each: {trips:,.0f} rounds/s")
        for name in ("PE", "EE"):
            print(f"  {name} triggers: one under way {one[name]:,.0f} ({one[name] / trips:.1f} times)", end="")
            print(f"; 1,000 under way {many[name]:,.0f} ({many[name] / trips:,.0f} times)")


PARTS = {"stream": by_stream, "calls": by_calls, "triggers": triggers}


def main() -> int:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--votes", type=int, default=1_000_000, help="of the leaderboard by stream")
    parser.add_argument("--steps", default="1,2,5,10", help="numbers of procedures (default: %(default)s)")
    return measure(parser, PARTS)


if __name__ == "__main__":
    sys.exit(main())
