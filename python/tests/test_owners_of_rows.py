"""Keys that read chosen rows: a row for each of them, which means what plain Python does."""

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0
    above: str | None = None


class Order(tm.Row):
    id: int = tm.key()
    owner: str | None
    price: int
    left: int


class Limit(tm.Event):
    id: int
    owner: str | None
    side: str
    price: int
    amount: int


def has(account: Any, least: int) -> bool:
    return account.balance >= least  # type: ignore[no-any-return]


def exchange(indexes: list[tm.Index]) -> tuple[tm.App, Any, Any, Any, Any]:
    app = tm.App("exchange")
    accounts = app.table(Account)
    book = app.table(Order, "book", indexes=indexes)
    limits = app.source(Limit)

    @app.transaction(limits)
    def trade(  # type: ignore[no-untyped-def]
        ev,
        buyer=accounts.row("owner", create=True),
        own=book.row("id"),
        asks=book.between("price", high="price").first("price", 4),
        seller=accounts.row("asks.owner", create=True),
        partner=accounts.row(lambda e, asks, seller: f"{seller.above}/{len(asks)}", create=True),
    ):
        if ev.side == "sell":
            own.insert(owner=ev.owner, price=ev.price, left=ev.amount)
            if ev.owner is not None:
                buyer.above = "x" if ev.amount % 2 == 0 else None
            return
        left = ev.amount
        for ask in asks:
            taken = min(left, ask.left)
            left -= taken
            ask.left -= taken
            buyer.balance -= taken * ask.price
            seller.balance += taken * ask.price
            partner.balance += 1
            tm.require(has(seller, -500), "the seller is in debt")
            if ask.left == 0:
                ask.delete()
        tm.require(left == 0, "too few orders")

    return app, accounts, book, limits, trade


class Plain:
    """The program by dictionaries; a transaction that returns a reason leaves nothing behind."""

    def __init__(self) -> None:
        self.accounts: dict[str, list[Any]] = {}
        self.book: dict[int, list[Any]] = {}

    def run(self, event: dict[str, Any]) -> tuple[str | None, str | None, int | None]:
        """Why it aborts, with the seller and its balance that are shown then."""
        before = {k: list(v) for k, v in self.accounts.items()}, {k: list(v) for k, v in self.book.items()}
        reason, seller = self._run(event)
        if reason is None:
            return None, None, None
        self.accounts, self.book = before
        shown = None if seller is None else self.accounts.get(seller, [None])[0]
        return reason, seller, shown

    def _account(self, name: str) -> list[Any]:
        return self.accounts.setdefault(name, [0, None])

    def _run(self, event: dict[str, Any]) -> tuple[str | None, str | None]:
        fit = [(row[1], key) for key, row in self.book.items() if row[1] <= event["price"]]
        asks = [key for _, key in sorted(fit)[:4]]
        owners = [self.book[key][0] for key in asks]
        above = [None if o is None else self.accounts.get(o, [0, None])[1] for o in owners]
        if event["side"] == "sell":
            if event["id"] in self.book:
                return "row exists in book for own", None
            self.book[event["id"]] = [event["owner"], event["price"], event["amount"]]
            if event["owner"] is not None:
                self._account(event["owner"])[1] = "x" if event["amount"] % 2 == 0 else None
            return None, None
        left = event["amount"]
        for key, owner, name in zip(asks, owners, above, strict=True):
            order = self.book[key]
            taken = min(left, order[2])
            left -= taken
            order[2] -= taken
            if event["owner"] is None:
                return "key of buyer is None", owner
            self._account(event["owner"])[0] -= taken * order[1]
            if owner is None:
                return "key of seller is None", owner
            self._account(owner)[0] += taken * order[1]
            # The key is made before, where `above` is None it has no text.
            if name is None:
                return "key of partner is None", owner
            self._account(f"{name}/{len(asks)}")[0] += 1
            if self.accounts[owner][0] < -500:
                return "the seller is in debt", owner
            if order[2] == 0:
                del self.book[key]
        return (None, None) if left == 0 else ("too few orders", None)


def limits_of(seed: int, count: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "id": number if rng.random() < 0.95 else number // 2,
            "owner": rng.choice(["ada", "bob", "eve", "ÿ", "", None] if rng.random() < 0.3 else ["ada", "bob", "eve"]),
            "side": rng.choice(["sell", "sell", "buy"]),
            "price": rng.randint(1, 9),
            "amount": rng.choice([2, 4, 6, 8, 8, 3]),
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("indexes", [[], [tm.index("price")]])
def test_the_owners_of_the_orders_that_are_taken_are_paid(indexes: list[tm.Index], tmp_path: Path) -> None:
    app, accounts, book, limits, trade = exchange(indexes)
    aborted = app.collect(trade.aborted)
    given = limits_of(3, 2000)
    app.run({limits: given[:1200]}, state=tmp_path / "state")
    lost = aborted.to_pylist()
    app.run({limits: given[1200:]}, state=tmp_path / "state")
    lost += aborted.to_pylist()
    plain = Plain()
    outcomes = [plain.run(event) for event in given]
    expected = [outcome for outcome in outcomes if outcome[0] is not None]
    found = [(event["reason"], event["seller.id"], event["seller.balance"]) for event in lost]
    assert found == expected
    assert {row["id"]: [row["balance"], row["above"]] for row in accounts.to_pylist()} == plain.accounts
    assert {row["id"]: [row["owner"], row["price"], row["left"]] for row in book.to_pylist()} == plain.book
    reasons = [reason for reason, _, _ in expected]
    assert {"key of seller is None", "key of partner is None", "too few orders"} <= set(reasons)
    assert len(given) - len(expected) > 500
    assert any(account[0] for name, account in plain.accounts.items() if name.startswith("x/"))


def test_explain_says_which_rows_a_role_is_for() -> None:
    app, *_ = exchange([])
    text = app.explain()
    assert "seller = accounts[asks.owner] for each of asks, found when that is read, read and write" in text
    assert "seller and partner may be one row of accounts" in text
    assert "two elements of seller may be one row of accounts" in text
    assert "one event at a time" in text


class Item(tm.Row):
    name: str = tm.key()
    kind: str
    times: int = 0


class Kind(tm.Row):
    kind: str = tm.key()
    many: int = tm.key(groups=2)
    items: int = 0
    first: str | None = None


class Ask(tm.Event):
    at: tm.Time = tm.event_time()
    kind: str


def kind_of(item: Any) -> str:
    return item.kind  # type: ignore[no-any-return]


def test_a_row_is_inserted_for_each_of_some_rows_and_woken() -> None:
    app = tm.App("made")
    items = app.table(Item, rows=[{"name": name, "kind": name[0]} for name in ("a1", "a2", "b1", "c1", "c2")])
    kinds = app.table(Kind)
    marks = app.table(Item, "marks")
    asks = app.source(Ask)

    @app.transaction(asks)
    def make(  # type: ignore[no-untyped-def]
        ev,
        some=items.where("kind"),
        mark=marks.new("some.name", kind="kind"),
        kind=kinds.row(lambda e, some: kind_of(some), lambda e, some: len(some), create=True),
    ):
        for one in some:
            kind.items += 1
            if kind.first is None:
                kind.first = one.name
            mark.times = kind.items
            kind.wake(ev.at + tm.minutes(1))
            for line in range(2):
                one.times += line + 1

    @app.transaction(kinds.woken)
    def woken(ev, kind=kinds.row("kind", "many")):  # type: ignore[no-untyped-def]
        kind.items += 100

    lost = app.collect(make.aborted)
    noon = dt.datetime(2024, 5, 1, 12)
    at = [noon + dt.timedelta(seconds=s) for s in (0, 1, 2, 600)]
    app.run({asks: [{"at": a, "kind": k} for a, k in zip(at, "cacb", strict=True)]})
    assert [(event["reason"], event["mark.name"]) for event in lost.to_pylist()] == [
        ("row exists in marks for mark", "c1")
    ]
    made = [(row["kind"], row["many"], row["items"], row["first"]) for row in kinds.to_pylist()]
    assert made == [("a", 2, 102, "a1"), ("b", 1, 1, "b1"), ("c", 2, 102, "c1")]
    assert [(row["name"], row["times"]) for row in marks.to_pylist()] == [
        ("a1", 1),
        ("a2", 2),
        ("b1", 1),
        ("c1", 1),
        ("c2", 2),
    ]


def test_a_memory_limit_is_refused(tmp_path: Path) -> None:
    app, _, _, limits, _ = exchange([])
    with pytest.raises(tm.TidemillError, match="memory"):
        app.run({limits: []}, state=tmp_path / "state", memory="64MiB")
