"""Changes of tables as a stream: whoever applies them to an empty table has the table."""

import random
from typing import Any

import pytest
from test_server import served

import tidemill as tm


class Item(tm.Row):
    name: str = tm.key()
    left: int = 0
    note: str | None = None
    recent: tm.Window[int] = tm.window(last=5)


class Line(tm.Event):
    name: str
    amount: int


class Order(tm.Event):
    at: tm.Time = tm.event_time()
    name: str
    amount: int
    what: str
    lines: list[Line]


class Count(tm.Row):
    name: str = tm.key()
    changes: int = 0


def applied(changes: list[dict[str, Any]]) -> dict[str, tuple[int, str | None]]:
    """The table that changes come to."""
    rows: dict[str, tuple[int, str | None]] = {}
    for change in changes:
        if change["deleted"]:
            assert (change["left"], change["note"]) == (None, None)
            # It may have come and gone in one transaction.
            rows.pop(change["name"], None)
        else:
            rows[change["name"]] = (change["left"], change["note"])
    return rows


def orders_of(count: int) -> list[dict[str, Any]]:
    chance = random.Random(3)
    name = lambda: chance.choice("abcdef")  # noqa: E731
    return [
        {
            "at": n * 1_000_000,
            "name": name(),
            "amount": chance.randint(-3, 9),
            "what": chance.choice(["put", "put", "drop", "lines", "clear", "first", "return"]),
            "lines": [{"name": name(), "amount": chance.randint(-2, 5)} for _ in range(chance.randint(0, 4))],
        }
        for n in range(count)
    ]


def application() -> tuple[tm.App, Any, Any, Any]:
    app = tm.App("stock")
    items = app.table(Item, changes=True)
    orders = app.source(Order)

    @app.transaction(orders)
    def work(  # type: ignore[no-untyped-def]
        ev,
        item=items.row("name", create=True),
        line_item=items.row("lines.name", create=True),
        all_items=items.all(),
        least=items.all().first("left", 2),
    ):
        if ev.what == "put":
            item.left += ev.amount
            item.recent.add(ev.amount)
            item.note = "put"
        elif ev.what == "drop":
            if item.exists:
                item.left = 0
                item.delete()
        elif ev.what == "lines":
            for line in ev.lines:
                if line.amount == 0:
                    continue
                line_item.left += line.amount
                if line.amount == 1 and line_item.exists:
                    line_item.delete()
                if line.amount == 5:
                    break
        elif ev.what == "clear":
            for one in all_items:
                if one.left < 0:
                    one.delete()
        elif ev.what == "first":
            for one in least:
                one.left += 1
                one.note = None
                if one.left > 20:
                    item.left = one.left
                    return {"name": one.name}
        else:
            item.left += 1
            if ev.amount > 5:
                return {"name": ev.name}
            item.note = "returned"
        tm.require(item.left < 30, "full")
        return {"name": ev.name}

    return app, items, orders, work


@pytest.mark.parametrize("workers", [1, 2])
def test_changes_come_to_the_table(workers: int) -> None:
    app, items, orders, work = application()
    changes, aborted = app.collect(items.changes), app.collect(work.aborted)
    app.run({orders: orders_of(2000)}, workers=workers)
    seen = changes.to_pylist()
    assert applied(seen) == {row["name"]: (row["left"], row["note"]) for row in items.to_pylist()}
    assert len(aborted) > 20
    assert sum(change["deleted"] for change in seen) > 50
    assert list(seen[0]) == ["name", "left", "note", "deleted"]


def test_a_row_is_told_once_at_the_end() -> None:
    app, items, orders, _ = application()
    changes = app.collect(items.changes)

    def order(n: int, **fields: Any) -> dict[str, Any]:
        return {"at": n * 1_000_000, "name": "a", "amount": 1, "lines": [], **fields}

    app.run(
        {
            orders: [
                order(0, what="put", amount=4),
                order(1, what="put", amount=100),
                order(2, what="lines", lines=[{"name": "b", "amount": 2}, {"name": "a", "amount": 3}]),
                order(3, what="drop", name="b"),
                order(4, what="drop", name="c"),
            ]
        }
    )
    told = [(change["name"], change["left"], change["deleted"]) for change in changes.to_pylist()]
    assert told == [("a", 4, False), ("b", 2, False), ("a", 7, False), ("b", None, True)]


def test_changes_of_several_transactions_feed_others() -> None:
    app = tm.App("several")
    items = app.table(Item, changes=True)
    counts = app.table(Count)
    orders = app.source(Order)

    @app.transaction(orders)
    def put(ev, item=items.row("name", create=True)):  # type: ignore[no-untyped-def]
        item.left += ev.amount

    @app.transaction(orders)
    def note(ev, item=items.row("name")):  # type: ignore[no-untyped-def]
        item.note = ev.what

    @app.transaction(items.changes)
    def count(ev, row=counts.row("name", create=True)):  # type: ignore[no-untyped-def]
        row.changes += 1

    given = orders_of(300)
    app.run({orders: given})
    expected = {name: 2 * sum(order["name"] == name for order in given) for name in "abcdef"}
    assert {row["name"]: row["changes"] for row in counts.to_pylist()} == expected


def test_changes_are_followed(module: Any) -> None:
    app = module(
        """
import tidemill as tm

app = tm.App("bank")

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0

class Deposit(tm.Event):
    account: str
    amount: int

accounts = app.table(Account, changes=True)
deposits = app.requests(Deposit)

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True)):
    a.balance += ev.amount
    tm.require(a.balance >= 0, "too little")
    return {"balance": a.balance}
""",
        prelude="",
    ).app
    with served(app, keep={"accounts.changes": 100}) as (mill, server), tm.connect(server.url) as client:
        for amount in [5, -9, 7]:
            try:
                client.deposit(account="ada", amount=amount)
            except tm.Aborted:
                assert amount == -9
        with client.follow("accounts.changes", after="0") as events:
            assert [next(events).value for _ in range(2)] == [
                {"id": "ada", "balance": balance, "deleted": False} for balance in (5, 12)
            ]


def test_what_has_no_changes() -> None:
    app = tm.App("none")
    items = app.table(Item)
    with pytest.raises(tm.PlanError, match="the changes of 'items' are no stream"):
        app.collect(items.changes)

    class Gone(tm.Row):
        name: str = tm.key()
        deleted: bool = False

    with pytest.raises(tm.PlanError, match="it has a column 'deleted'"):
        app.table(Gone, changes=True)
