"""Transactions that read all rows of a table: what they see is what plain Python sees."""

import random
from typing import Any

import pytest

import tidemill as tm

RUNS: list[tuple[int, Any]] = [(1, "auto"), (2, 1), (3, 7)]


class Account(tm.Row):
    id: str = tm.key()
    number: int = tm.key()
    balance: int = 0
    note: str | None = None


class Order(tm.Event):
    id: str
    number: int
    what: str
    by: int


def orders_of(seed: int, count: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    whats = ["add", "add", "add", "delete", "refuse"]
    return [
        {
            "id": rng.choice("abcÄ"),
            "number": rng.randrange(-2, 3),
            "what": rng.choice(whats),
            "by": rng.randrange(-3, 9),
        }
        for _ in range(count)
    ]


def application() -> tuple[tm.App, Any, Any, Any]:
    app = tm.App("scans")
    accounts = app.table(Account)
    orders = app.source(Order)

    @app.transaction(orders)
    def work(ev, own=accounts.row("id", "number", create=True), rows=accounts.all()):  # type: ignore[no-untyped-def]
        if ev.what == "delete":
            tm.require(own.exists, "nothing to delete")
            own.delete()
        else:
            own.balance += ev.by
        total = 0
        order = ""
        best = -1000
        for row in rows:
            order = order + row.id + str(row.number)
            if row.note is not None:
                continue
            total += row.balance
            best = max(best, row.balance)
            if total > 60:
                break
        tm.require(ev.what != "refuse" or total % 2 == 0, "odd")
        return {"total": total, "order": order, "best": best, "count": len(rows)}

    return app, accounts, orders, work


def by_hand(orders: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str], dict[tuple[str, int], int]]:
    """What a plain loop over a dict makes of the same orders."""
    balances: dict[tuple[str, int], int] = {}
    committed, reasons = [], []
    for order in orders:
        key = (order["id"], order["number"])
        before = sorted(balances, key=lambda k: (k[0].encode(), k[1]))
        after = dict(balances)
        if order["what"] == "delete":
            if key not in after:
                reasons.append("nothing to delete")
                continue
            del after[key]
        else:
            after[key] = after.get(key, 0) + order["by"]
        total, shown, best = 0, "", -1000
        for row in before:
            if row in after:
                shown += row[0] + str(row[1])
                total += after[row]
                best = max(best, after[row])
                if total > 60:
                    break
        if order["what"] == "refuse" and total % 2 != 0:
            reasons.append("odd")
            continue
        balances = after
        committed.append({"total": total, "order": shown, "best": best, "count": len(before)})
    return committed, reasons, balances


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_all_rows_are_those_of_plain_python(workers: int, epoch: Any) -> None:
    seen = set()
    for seed in range(5):
        app, accounts, orders, work = application()
        given, refused = app.collect(work.committed), app.collect(work.aborted)
        app.run({orders: orders_of(seed)}, workers=workers, epoch=epoch)
        committed, reasons, balances = by_hand(orders_of(seed))
        assert given.to_pylist() == committed
        assert [event["reason"] for event in refused.to_pylist()] == reasons
        rows = accounts.to_pylist()
        assert {(row["id"], row["number"]): row["balance"] for row in rows} == balances
        seen.update(reasons)
    assert seen == {"odd", "nothing to delete"}


def test_a_state_goes_on_with_all_rows(tmp_path: Any) -> None:
    committed, _, _ = by_hand(orders_of(9))
    found: list[Any] = []
    for part in (orders_of(9)[:80], orders_of(9)[80:]):
        app, _, orders, work = application()
        given = app.collect(work.committed)
        app.run({orders: part}, state=tmp_path / "state")
        found.extend(given.to_pylist())
    assert found == committed


def test_a_helper_is_given_a_row_or_all_rows() -> None:
    app = tm.App("scans")
    accounts = app.table(Account, rows=[{"id": "a", "number": n, "balance": n * n} for n in range(5)])
    orders = app.source(Order)

    def doubled(row):  # type: ignore[no-untyped-def]
        return row.balance * 2

    def sum_of(rows):  # type: ignore[no-untyped-def]
        total = 0
        for row in rows:
            total += doubled(row)
        return total

    @app.transaction(orders)
    def work(ev, rows=accounts.all()):  # type: ignore[no-untyped-def]
        pairs = 0
        total = sum_of(rows)
        return {"total": total, "count": len(rows), "pairs": pairs}

    given = app.collect(work.committed)
    app.run({orders: orders_of(1, 1)})
    assert given.to_pylist() == [{"total": 60, "count": 5, "pairs": 0}]


def test_explain_says_why_events_run_one_by_one() -> None:
    app, *_ = application()
    text = app.explain()
    assert "rows = all rows of accounts, read only" in text
    assert "one event at a time, as rows is all rows of accounts" in text


def test_a_memory_limit_is_refused(tmp_path: Any) -> None:
    app, _, orders, _ = application()
    with pytest.raises(tm.TidemillError, match="transaction 'work' reads all rows of table 'accounts'"):
        app.run({orders: orders_of(1)}, state=tmp_path / "state", memory="64MiB")
