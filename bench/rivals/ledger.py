"""Streaming Ledger as the rivals see it: the events, and the SQL of one of them."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TOO_MUCH = 1 << 60
BALANCE = 1_000_000_000


@dataclass(frozen=True)
class Event:
    """A deposit, or a transfer; as in the benchmark's own workload."""

    transfer: bool
    account: int
    asset: int
    to_account: int
    to_asset: int
    amount: int
    quantity: int


def arguments(description: str) -> argparse.Namespace:
    """The command line that all rivals have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows in both tables together")
    parser.add_argument("--events", type=int, default=20_000, help="events, one transaction each")
    parser.add_argument("--folder", type=Path, default=Path("target/rivals"), help="on the disk to be measured")
    return parser.parse_args()


def events(count: int, rows: int) -> list[Event]:
    """Half deposits, half transfers of which one in a hundred asks for too much; rows drawn evenly."""
    draw = random.Random(42)
    keys = rows // 2

    def event() -> Event:
        transfer = draw.random() < 0.5
        doomed = transfer and draw.random() < 0.01
        key = [draw.randrange(keys) for _ in range(4)]
        return Event(transfer, *key, TOO_MUCH if doomed else draw.randint(1, 100), draw.randint(1, 100))

    return [event() for _ in range(count)]


def apply(execute: Callable[[str, tuple[int, ...]], int], event: Event) -> bool:
    """Runs an event inside a transaction that is open; ``execute`` gives the number of rows changed.

    Returns whether it is to be committed.
    """
    add = "UPDATE {} SET value = value + ? WHERE id = ?"
    if not event.transfer:
        execute(add.format("accounts"), (event.amount, event.account))
        execute(add.format("assets"), (event.quantity, event.asset))
        return True
    take = "UPDATE {} SET value = value - ? WHERE id = ? AND value >= ?"
    if not execute(take.format("accounts"), (event.amount, event.account, event.amount)):
        return False
    if not execute(take.format("assets"), (event.quantity, event.asset, event.quantity)):
        return False
    execute(add.format("accounts"), (event.amount, event.to_account))
    execute(add.format("assets"), (event.quantity, event.to_asset))
    return True


def report(name: str, run: Callable[[], int], count: int) -> None:
    """Runs and prints the rate; ``run`` gives how many were committed."""
    start = time.perf_counter()
    committed = run()
    seconds = time.perf_counter() - start
    rate = count / seconds
    print(f"{name}: {count} transactions in {seconds:.2f} s, {rate:,.0f}/s; {committed} committed")
