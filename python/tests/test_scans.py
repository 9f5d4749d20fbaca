"""Transactions that read all rows of a table: what they see is what plain Python sees."""

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
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
    """Runs a plain loop over a dict on the same orders."""
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


class Choice(tm.Row):
    """The choice of a phone."""

    phone: int = tm.key()
    contestant: str | None


class Contestant(tm.Row):
    name: str = tm.key()
    votes: int = 0
    last: tm.Time | None


class Ballot(tm.Event):
    at: tm.Time = tm.event_time()
    phone: int
    contestant: str | None
    since: tm.Time | None


@pytest.mark.parametrize("indexes", [[], [tm.index("contestant")]])
def test_a_leaderboard_has_the_first_by_votes(indexes: list[tm.Index]) -> None:
    app = tm.App("board")
    choices = app.table(Choice, indexes=indexes)
    contestants = app.table(Contestant, rows=[{"name": name} for name in "dcba"])
    ballots = app.source(Ballot)

    @app.transaction(ballots)
    def vote(
        ev,  # type: ignore[no-untyped-def]
        choice=choices.row("phone", create=True),
        before=contestants.row("choice.contestant"),
        now=contestants.row("contestant"),
        mine=choices.where("contestant"),
        board=contestants.top(3, by="votes"),
        late=contestants.between("last", "since"),
    ):
        if before.exists:
            before.votes -= 1
        if now.exists:
            now.votes += 1
            now.last = ev.at
        choice.contestant = ev.contestant
        order = ""
        for one in board:
            order = order + one.name
        phones = 0
        for one in mine:
            phones += one.phone
        recent = ""
        for one in late:
            recent = recent + one.name
        tm.require(ev.phone < 90, "a wrong number")
        return {"order": order, "among": len(mine), "phones": phones, "recent": recent}

    start = dt.datetime(2026, 11, 26, tzinfo=dt.timezone.utc)
    rng = random.Random(3)
    given: list[dict[str, Any]] = []
    for number in range(300):
        at = start + dt.timedelta(seconds=number)
        contestant = rng.choice(["a", "b", "c", "d", None])
        since = rng.choice([None, at - dt.timedelta(seconds=4)])
        given.append({"at": at, "phone": rng.randrange(100), "contestant": contestant, "since": since})
    board = app.collect(vote.committed)
    app.run({ballots: given}, workers=2, epoch=16)

    voted: dict[int, str | None] = {}
    last: dict[str, dt.datetime] = {}
    wanted = []
    for event in given:
        if event["phone"] >= 90:
            continue
        votes = Counter(voted.values())
        order = sorted("abcd", key=lambda name: (-votes[name], name))
        same = [phone for phone, contestant in sorted(voted.items()) if contestant == event["contestant"]]
        since = event["since"] or start
        recent = [name for name in "abcd" if name in last and last[name] >= since]
        wanted.append({"order": "".join(order[:3]), "among": len(same), "phones": sum(same), "recent": "".join(recent)})
        voted[event["phone"]] = event["contestant"]
        if event["contestant"] is not None:
            last[event["contestant"]] = event["at"]
    assert board.to_pylist() == wanted
    assert any(event["recent"] == "" for event in wanted)


class Offer(tm.Row):
    id: int = tm.key()
    item: str
    price: tm.Decimal(9, 2)
    left: int


class Bid(tm.Event):
    id: int
    item: str
    most: tm.Decimal(9, 2)
    amount: int


@pytest.mark.parametrize("indexes", [[], [tm.index("price"), tm.index("item")]])
def test_an_order_book_gives_the_least_price_first(indexes: list[tm.Index]) -> None:
    app = tm.App("book")
    offers = [
        {"id": number, "item": "tea" if number % 3 else "salt", "price": Decimal(price), "left": 2}
        for number, price in enumerate(["2.50", "2.00", "2.50", "3.00", "1.00", "2.00", "0.50"])
    ]
    book = app.table(Offer, "book", rows=offers, indexes=indexes)
    bids = app.source(Bid)

    @app.transaction(bids)
    def find(ev, offers=book.where("item").between("price", high="most").first("price", 2)):  # type: ignore[no-untyped-def]
        tm.require(len(offers) > 0, "nothing so cheap")
        for offer in offers:
            return {"bid": ev.id, "offer": offer.id, "amount": min(ev.amount, offer.left)}

    @app.transaction(find.committed, nested=True)
    def take(ev, offer=book.row("offer")):  # type: ignore[no-untyped-def]
        offer.left -= ev.amount
        if offer.left == 0:
            offer.delete()

    given = app.collect(find.committed)
    refused = app.collect(find.aborted)
    made = [
        ("tea", "2.20", 1),
        ("tea", "9", 5),
        ("tea", "0.90", 1),
        ("salt", "9", 2),
        ("salt", "2.50", 2),
        ("tea", "9", 1),
    ]
    app.run({bids: [{"id": n, "item": i, "most": Decimal(m), "amount": a} for n, (i, m, a) in enumerate(made)]})
    assert [(event["bid"], event["offer"], event["amount"]) for event in given.to_pylist()] == [
        (0, 4, 1),
        (1, 4, 1),
        (3, 6, 2),
        (4, 0, 2),
        (5, 1, 1),
    ]
    assert [event["id"] for event in refused.to_pylist()] == [2]
    assert [row["id"] for row in book.to_pylist()] == [1, 2, 3, 5]


class Limit(tm.Event):
    id: int
    side: str
    price: int
    amount: int
    whole: bool


class Resting(tm.Row):
    id: int = tm.key()
    side: str
    price: int
    left: int


def matched(
    orders: list[dict[str, Any]],
) -> tuple[list[tuple[int, int, int]], list[int], dict[int, tuple[str, int, int]]]:
    """Runs an order book by a plain loop: each order's amount and price that was paid, those refused, the book."""
    book: dict[int, tuple[str, int, int]] = {}
    done, refused = [], []
    for order in orders:
        sign = 1 if order["side"] == "buy" else -1
        others = [(sign * price, key) for key, (side, price, _) in book.items() if side != order["side"]]
        taken, left, paid = {}, order["amount"], 0
        for ranked, key in sorted(others)[:5]:
            if ranked <= sign * order["price"] and left:
                taken[key] = min(left, book[key][2])
                left -= taken[key]
                paid += taken[key] * book[key][1]
        if left and order["whole"]:
            refused.append(order["id"])
            continue
        for key, amount in taken.items():
            side, price, before = book.pop(key)
            if before > amount:
                book[key] = (side, price, before - amount)
        if left:
            book[order["id"]] = (order["side"], order["price"], left)
        done.append((order["id"], order["amount"] - left, paid))
    return done, refused, book


@pytest.mark.parametrize("indexes", [[], [tm.index("side", "price")], [tm.index("price")], [tm.index("side")]])
def test_an_order_book_in_one_transaction(indexes: list[tm.Index], tmp_path: Path) -> None:
    app = tm.App("exchange")
    book = app.table(Resting, "book", indexes=indexes)
    orders = app.source(Limit)

    @app.transaction(orders)
    def match(  # type: ignore[no-untyped-def]
        ev,
        asks=book.where(side=lambda e: "sell" if e.side == "buy" else "nobody").first("price", 5),
        bids=book.where(side=lambda e: "buy" if e.side == "sell" else "nobody").top(5, by="price"),
        own=book.row("id"),
    ):
        left = ev.amount
        paid = 0
        for other in asks:
            if other.price <= ev.price:
                taken = min(left, other.left)
                other.left -= taken
                left -= taken
                paid += taken * other.price
                if other.left == 0:
                    other.delete()
        for other in bids:
            if other.price >= ev.price:
                taken = min(left, other.left)
                other.left -= taken
                left -= taken
                paid += taken * other.price
                if other.left == 0:
                    other.delete()
        tm.require(left == 0 or not ev.whole, "not all of it")
        if left > 0:
            own.insert(side=ev.side, price=ev.price, left=left)
        return {"id": ev.id, "amount": ev.amount - left, "paid": paid}

    done, aborted = app.collect(match.committed), app.collect(match.aborted)
    chance = random.Random(7)
    given = [
        {
            "id": number,
            "side": chance.choice(["buy", "sell"]),
            "price": chance.randint(90, 110),
            "amount": chance.randint(1, 30),
            "whole": chance.random() < 0.3,
        }
        for number in range(3000)
    ]
    # A second run goes on with the book of the first.
    app.run({orders: given[:2000]}, state=tmp_path / "state")
    first, first_aborted = done.to_pylist(), aborted.to_pylist()
    app.run({orders: given[2000:]}, state=tmp_path / "state")
    expected, refused, left = matched(given)
    found = [(event["id"], event["amount"], event["paid"]) for event in first + done.to_pylist()]
    assert found == expected
    assert [event["id"] for event in first_aborted + aborted.to_pylist()] == refused
    assert {row["id"]: (row["side"], row["price"], row["left"]) for row in book.to_pylist()} == left
    assert len(refused) > 50
    assert len(left) > 20


class Page(tm.Row):
    number: int = tm.key()
    next: int | None
    seen: int = 0


class Visit(tm.Event):
    number: int
    step: int


def test_keys_are_functions_of_earlier_rows() -> None:
    app = tm.App("pages")
    pages = app.table(Page, rows=[{"number": n, "next": n * 3 % 7 if n else None} for n in range(7)])
    visits = app.source(Visit)

    @app.transaction(visits)
    def visit(  # type: ignore[no-untyped-def]
        ev,
        page=pages.read("number"),
        after=pages.row(lambda e, page: page.next + e.step),
        back=pages.read(lambda e, after, page: after.number if after.seen > page.seen else e.number, default=True),
    ):
        after.seen += 1
        return {"after": after.number, "back": back.number}

    seen, lost = app.collect(visit.committed), app.collect(visit.aborted)
    app.run({visits: [{"number": n, "step": s} for n, s in [(1, 0), (1, 0), (3, 1), (0, 1), (9, 0), (2, 5)]]})
    assert [(event["after"], event["back"]) for event in seen.to_pylist()] == [(3, 1), (3, 3), (3, 3)]
    assert [event["reason"] for event in lost.to_pylist()] == ["key of after is None"] * 2 + [
        "no row in pages for after"
    ]
    assert {row["number"]: row["seen"] for row in pages.to_pylist() if row["seen"]} == {3: 3}


def test_values_are_those_of_earlier_rows_functions_and_constants() -> None:
    app = tm.App("values")
    accounts = app.table(Account, rows=[{"id": i, "number": n, "balance": n % 3} for i in "ab" for n in range(6)])
    orders = app.source(Order)

    @app.transaction(orders)
    def work(  # type: ignore[no-untyped-def]
        ev,
        own=accounts.read("id", "number"),
        alike=accounts.where(balance="own.balance"),
        named=accounts.where(id=lambda e: e.id.lower(), balance=1),
        noted=accounts.where(note=None),
        some=accounts.between("number", lambda e: e.number, 4),
        most=accounts.all().first("balance", descending=True),
    ):
        best = -1
        for row in most:
            best = row.number
        return {"a": len(alike), "b": len(named), "c": len(noted), "d": len(some), "e": best}

    given = app.collect(work.committed)
    app.run({orders: [{"id": "a", "number": n, "what": "", "by": 0} for n in (2, 9)]})
    assert given.to_pylist() == [
        {"a": 4, "b": 2, "c": 12, "d": 6, "e": 2},
        {"a": 0, "b": 2, "c": 12, "d": 0, "e": 2},
    ]


def test_explain_names_the_columns_that_are_searched() -> None:
    app = tm.App("searched")
    accounts = app.table(Account)
    orders = app.source(Order)

    @app.transaction(orders)
    def work(ev, some=accounts.where("id").between("number", "by").top(2, by="balance")):  # type: ignore[no-untyped-def]
        return {"count": len(some)}

    text = app.explain()
    what = "rows of accounts whose id is ev.id and whose number is at least ev.by, the 2 of the greatest balance"
    assert f"some = {what}, found by a search of all rows, read only" in text
    assert "one event at a time, as some searches balance, id, number of accounts" in text


def refused(choose: Any) -> str:
    app = tm.App("refused")
    accounts = app.table(Account)
    with pytest.raises(tm.PlanError) as error:
        choose(accounts)
    return str(error.value)


def test_choices_without_a_meaning_are_refused() -> None:
    assert "'where' has no column" in refused(lambda table: table.where())
    assert "'name' is not a column; columns are id, number, balance, note" in refused(lambda t: t.where("name"))
    assert "'between' has no bound" in refused(lambda table: table.between("number"))
    assert "0 is not a number of rows" in refused(lambda table: table.first("number", 0))
    assert "rows are chosen after the first of them" in refused(lambda t: t.top(3, by="balance").where("id"))
    assert "in an order already" in refused(lambda table: table.top(3, by="balance").first("number"))


def test_an_index_is_shown_and_begins_anew_in_each_run(tmp_path: Any) -> None:
    found = []
    for run, indexes in enumerate([[], [tm.index("note")], [tm.index("note"), tm.index("balance")], []]):
        app = tm.App("indexed")
        accounts = app.table(Account, indexes=indexes)
        orders = app.source(Order)

        @app.transaction(orders)
        def work(ev, own=accounts.row("id", "number", create=True), same=accounts.where(note="what")):  # type: ignore[no-untyped-def]
            seen = len(same)
            own.note = ev.what
            tm.require(ev.by >= 0, "no")
            return {"seen": seen}

        given = app.collect(work.committed)
        app.run({orders: orders_of(run, 100)}, state=tmp_path / "state")
        found += [event["seen"] for event in given.to_pylist()]
        assert ("found by the index of note" in app.explain()) == bool(indexes)
        assert ("index of note\n" in app.explain()) == bool(indexes)
    notes: dict[tuple[str, int], str] = {}
    wanted = []
    for run in range(4):
        for order in orders_of(run, 100):
            if order["by"] >= 0:
                wanted.append(sum(note == order["what"] for note in notes.values()))
                notes[order["id"], order["number"]] = order["what"]
    assert found == wanted


def test_indexes_without_a_meaning_are_refused() -> None:
    for indexes, why in [
        ([tm.index("nothing")], "'nothing' is not a column"),
        ("balance", "its indexes are not a list of indexes"),
        ([tm.index("note"), tm.index("note")], "index of 'note' is declared twice"),
    ]:
        app = tm.App("refused")
        with pytest.raises(tm.TidemillError, match=why):
            app.table(Account, indexes=indexes)  # type: ignore[arg-type]
            app.explain()
