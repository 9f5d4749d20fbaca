"""Filters and maps that read rows: what comes out is what plain Python makes of the events one by one."""

import random
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from conftest import strip
from test_translation import binary, compare, ev, lit, returned, stmt

import tidemill as tm
from tidemill import testing


class Quote(tm.Event):
    at: int = tm.event_time()
    pair: str
    price: int


class Order(tm.Event):
    at: int = tm.event_time()
    id: int
    pair: str | None
    amount: int


class Rate(tm.Row):
    pair: str = tm.key()
    price: int = 0


def market(orders_first=False):
    """The application of the tests, with rates that transactions on quotes write."""
    app = tm.App("market")
    rates = app.table(Rate)
    sources = {Quote: None, Order: None}
    for event in reversed(sources) if orders_first else sources:
        sources[event] = app.source(event)
    quotes, orders = sources[Quote], sources[Order]

    @app.transaction(quotes)
    def quote(ev, r=rates.row("pair", create=True)):
        r.price = ev.price

    return app, rates, quotes, orders


def trade(seed, count=400):
    """Random quotes and orders, each in the order of their times, with many ties."""
    rng = random.Random(seed)
    quotes, orders, at = [], [], 0
    for number in range(count):
        at += rng.choice([0, 0, 1, 2])
        pair = rng.choice(["usd", "eur", "yen", "chf"])
        if rng.random() < 0.5:
            quotes.append({"at": at, "pair": pair, "price": rng.randrange(1, 50)})
        else:
            amount = rng.randrange(1, 50)
            orders.append({"at": at, "id": number, "pair": rng.choice([pair, pair, None]), "amount": amount})
    return quotes, orders


def history(quotes, orders, orders_first=False):
    """Each order with the price that stands in the table at its position; None where there is no row."""
    sources = [orders, quotes] if orders_first else [quotes, orders]
    positions = [(e["at"], n, i, e) for n, source in enumerate(sources) for i, e in enumerate(source)]
    prices, seen = {}, []
    for *_, event in sorted(positions, key=lambda position: position[:3]):
        if "price" in event:
            prices[event["pair"]] = event["price"]
        else:
            seen.append((event, prices.get(event["pair"])))
    return seen


def test_views_of_ads_by_campaign():
    class Ad(tm.Row):
        ad: int = tm.key()
        campaign: str

    class View(tm.Event):
        at: tm.Time = tm.event_time()
        ad: int

    rng = random.Random(1)
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    rows = [{"ad": ad, "campaign": f"campaign {ad % 7}"} for ad in range(50)]
    data = [{"at": start + timedelta(milliseconds=37 * i), "ad": rng.randrange(60)} for i in range(3000)]

    app = tm.App("ysb")
    ads = app.table(Ad, rows=rows)
    views = app.source(View)

    tagged = views.map(lambda e, ad: {"at": e.at, "campaign": ad.campaign}, ad=ads.read("ad"))

    @app.window(tagged, by="campaign", over=tm.tumbling("10s"))
    def per_campaign(w):
        return {"at": w.end, "campaign": w.campaign, "views": w.count()}

    expected, failed = {}, []
    for view in data:
        if view["ad"] >= 50:
            failed.append(view)
            continue
        group = (view["at"] - start) // timedelta(seconds=10), f"campaign {view['ad'] % 7}"
        expected[group] = expected.get(group, 0) + 1
    closed, missing = app.collect(per_campaign.closed), app.collect(tagged.failed)
    summary = app.run({views: data}, workers=2, epoch=64)
    assert closed.to_pylist() == [
        {"at": start + timedelta(seconds=10 * (window + 1)), "campaign": campaign, "views": views}
        for (window, campaign), views in sorted(expected.items(), key=lambda group: group[0][0])
    ]
    assert [{"at": row["at"], "ad": row["ad"]} for row in missing.to_pylist()] == failed
    assert {row["reason"] for row in missing.to_pylist()} == {"no row in ads for ad"}
    assert summary.aborted == {"no row in ads for ad": len(failed)}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("epoch", [1, 7, 10_000])
@pytest.mark.parametrize("orders_first", [False, True])
def test_orders_at_the_rates_of_their_positions(orders_first, epoch, workers):
    app, rates, quotes, orders = market(orders_first)
    priced = orders.map(lambda e, r: {"at": e.at, "id": e.id, "value": e.amount * r.price}, r=rates.read("pair"))
    quoted, ordered = trade(2)
    done = testing.run(app, {quotes: quoted, orders: ordered}, workers=workers, epoch=epoch)
    seen = history(quoted, ordered, orders_first)
    assert done.stream(priced) == [
        {"at": e["at"], "id": e["id"], "value": e["amount"] * price} for e, price in seen if price is not None
    ]
    missing = [e for e, price in seen if price is None]
    reasons = ["key of r is None" if e["pair"] is None else "no row in rates for r" for e in missing]
    assert len(set(reasons)) == 2
    failed = [(row["id"], row["reason"]) for row in done.stream(priced.failed)]
    assert failed == [(e["id"], reason) for e, reason in zip(missing, reasons, strict=True)]


@pytest.mark.parametrize(("orders_first", "expected"), [(False, [2, 2, 9]), (True, [7, 2, 2])])
def test_what_stands_before_is_seen_and_what_comes_later_is_not(orders_first, expected):
    app, rates, quotes, orders = market(orders_first)
    priced = orders.map(lambda e, r: {"price": r.price}, r=rates.read("pair"))
    quoted = [{"at": at, "pair": "usd", "price": price} for at, price in [(0, 7), (5, 2), (9, 9)]]
    ordered = [{"at": at, "id": at, "pair": "usd", "amount": 1} for at in (5, 8, 9)]
    done = testing.run(app, {quotes: quoted, orders: ordered})
    assert [row["price"] for row in done.stream(priced)] == expected


def test_a_missing_row_reads_as_the_defaults():
    app, rates, quotes, orders = market()
    priced = orders.map(
        lambda e, r: {"id": e.id, "price": r.price, "known": r.exists}, r=rates.read("pair", default=True)
    )
    quoted, ordered = trade(3)
    done = testing.run(app, {quotes: quoted, orders: ordered})
    seen = history(quoted, ordered)
    assert any(price is None for _, price in seen)
    assert done.stream(priced) == [
        {"id": e["id"], "price": price or 0, "known": price is not None} for e, price in seen
    ]
    assert done.stream(priced.failed) == []


def test_a_failed_event_shows_what_was_seen():
    app, rates, quotes, orders = market()
    ratio = orders.map(lambda e, r: {"id": e.id, "ratio": e.amount // r.price}, r=rates.read("pair"))
    order = {"at": 1, "id": 1, "pair": "usd", "amount": 5}
    done = testing.run(app, {quotes: [{"at": 0, "pair": "usd", "price": 0}], orders: [order]})
    (failed,) = done.stream(ratio.failed)
    assert {name: failed[name] for name in order} == order
    assert (failed["reason"], failed["r.price"]) == ("division by zero in ev.amount // r.price", 0)


def test_a_filter_passes_whole_events_on():
    app, rates, quotes, orders = market()
    dear = orders.filter(lambda e, r: e.amount >= r.price, r=rates.read("pair"))
    quoted, ordered = trade(4)
    done = testing.run(app, {quotes: quoted, orders: ordered}, epoch=5)
    seen = history(quoted, ordered)
    assert done.stream(dear) == [e for e, price in seen if price is not None and e["amount"] >= price]
    assert [row["id"] for row in done.stream(dear.failed)] == [e["id"] for e, price in seen if price is None]


def test_a_filter_keeps_types_and_the_event_time(module):
    """Lists, decimals and Nones pass, and windowed columns downstream have the time of the event."""
    loaded = module("""
        known = transfers.filter(lambda e, a: a.balance >= e.amount, a=accounts.read("src"))
        again = known.filter(lambda e, a: a.exists, a=accounts.read("src"), name="again")

        @app.transaction(again)
        def drive(ev, s=segments.row("src", create=True)):
            s.cars.add(ev.store)
            return {"at": ev.at, "cars": s.cars.distinct()}
    """)
    app, line = loaded.app, {"item": 1, "quantity": 2}
    loaded.accounts._initial = [{"id": "ada", "balance": 10}]
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    transfer = {"src": "ada", "dst": None, "amount": 5, "price": 0, "rate": 0.5, "lines": [line], "ids": ["x", "y"]}
    events = [transfer | {"at": start + timedelta(minutes=4 * i), "store": str(i)} for i in range(3)]
    done = testing.run(app, {"transfers": [*events, events[-1] | {"amount": 11}]})
    assert app._plan.event_time(loaded.again._analyzed) == "at"
    assert app._plan.schema("again.committed") == app._plan.schema("transfers")
    assert [row | {"price": 0} for row in done.stream(loaded.again)] == events
    assert [row["cars"] for row in done.committed("drive")] == [1, 2, 2]


def test_chained_into_all_that_takes_streams(tmp_path):
    class Total(tm.Row):
        pair: str = tm.key()
        value: int = 0

    app, rates, quotes, orders = market()
    totals = app.table(Total)
    priced = orders.map(
        lambda e, r: {"at": e.at, "pair": e.pair, "value": e.amount * r.price}, r=rates.read("pair"), name="priced"
    )

    @app.transaction(priced)
    def book(ev, t=totals.row("pair", create=True)):
        t.value += ev.value
        return {"at": ev.at, "pair": ev.pair, "total": t.value}

    @app.window(priced, by="pair", over=tm.tumbling(10))
    def per_pair(w):
        return {"at": w.end, "pair": w.pair, "value": w.value.sum()}

    large = priced.filter(lambda e: e.value > 500).map(lambda e: {"value": e.value})
    share = per_pair.closed.map(
        lambda e, t: {"at": e.at, "of": t.value, "value": e.value}, t=totals.read(lambda e: e.pair)
    )
    again = priced.filter(
        lambda e, r, t: e.value > r.price * 10 + t.value, r=rates.read("pair"), t=totals.read("pair", default=True)
    )
    app.sink(priced, tm.jsonl(tmp_path / "priced.jsonl"))
    quoted, ordered = trade(5)
    data = {quotes: quoted, orders: ordered}
    done = testing.run(app, data, workers=2, epoch=16)

    seen = [(e["at"], e["pair"], e["amount"] * p, p) for e, p in history(quoted, ordered) if p is not None]
    total, booked, windows, passed = {}, [], {}, []
    for at, pair, value, price in seen:
        # The transaction on the same event was declared before the filter.
        total[pair] = total.get(pair, 0) + value
        booked.append({"at": at, "pair": pair, "total": total[pair]})
        if value > price * 10 + total[pair]:
            passed.append(value)
        windows.setdefault((at // 10 * 10 + 10, pair), []).append(value)
    assert done.committed("book") == booked
    assert done.stream(large) == [{"value": value} for _, _, value, _ in seen if value > 500]
    assert [row["value"] for row in done.stream(again)] == passed
    sums = {group: sum(values) for group, values in windows.items()}
    assert {(row["at"], row["pair"]): row["value"] for row in done.stream(per_pair.closed)} == sums
    until = [
        (end, value, sum(v for at, p, v, _ in seen if p == pair and at < end)) for (end, pair), value in sums.items()
    ]
    assert [(row["at"], row["value"], row["of"]) for row in done.stream(share)] == sorted(until, key=lambda u: u[0])
    app.run(data)
    assert len((tmp_path / "priced.jsonl").read_text().splitlines()) == len(seen)


def test_what_the_same_event_writes_is_seen_after_it_in_the_program():
    app, rates, quotes, orders = market()
    before = orders.map(lambda e, r: {"price": r.price}, r=rates.read("pair"))

    @app.transaction(orders)
    def raise_price(ev, r=rates.row("pair")):
        r.price += ev.amount

    after = orders.map(lambda e, r: {"price": r.price + 0}, r=rates.read("pair"))
    order = {"at": 1, "id": 1, "pair": "usd", "amount": 5}
    done = testing.run(app, {quotes: [{"at": 0, "pair": "usd", "price": 10}], orders: [order]})
    assert (done.stream(before), done.stream(after)) == ([{"price": 10}], [{"price": 15}])


def test_several_rows_and_one_that_another_names():
    class Clerk(tm.Row):
        name: str = tm.key()
        boss: str | None = None
        wage: int = 0

    class Shift(tm.Event):
        name: str

    app = tm.App("staff")
    staff = app.table(Clerk, rows=[{"name": "ada", "wage": 5}, {"name": "bob", "boss": "ada", "wage": 3}])
    shifts = app.source(Shift)
    paid = shifts.map(
        lambda e, worker, boss: {"name": e.name, "wage": worker.wage, "above": boss.wage},
        boss=staff.read("worker.boss", default=True),
        worker=staff.read("name"),
    )
    done = testing.run(app, {shifts: [{"name": "bob"}, {"name": "eve"}, {"name": "ada"}]})
    assert done.stream(paid) == [
        {"name": "bob", "wage": 3, "above": 5},
        {"name": "ada", "wage": 5, "above": 0},
    ]


def test_a_run_in_parts_is_one(tmp_path):
    quoted, ordered = trade(6)
    parts = [(0, 60), (60, 150), (150, 10**9)]

    def ran(state, parts):
        taken = {"priced": [], "failed": [], "closed": []}
        for low, high in parts:
            app, rates, quotes, orders = market()
            priced = orders.map(
                lambda e, r: {"at": e.at, "id": e.id, "value": e.amount * r.price}, r=rates.read("pair")
            )
            known = priced.filter(lambda e, r: r.exists, r=rates.read(lambda e: "usd", default=True))

            @app.window(known, over=tm.tumbling(25))
            def sums(w):
                return {"at": w.end, "value": w.value.sum()}

            for name, stream in [("priced", priced), ("failed", priced.failed), ("closed", sums.closed)]:
                app.sink(stream, lambda batch, name=name: taken[name].extend(batch.to_pylist()), name=name)
            data = {s: [e for e in of if low <= e["at"] < high] for s, of in [(quotes, quoted), (orders, ordered)]}
            app.run(data, state=state, epoch=8, final=state is not None and high == 10**9)
        return taken, rates.to_pylist()

    expected = ran(None, [(0, 10**9)])
    assert all(expected[0].values())
    assert ran(tmp_path / "state", parts) == expected


def test_a_session_follows_it():
    class Ask(tm.Event):
        pair: str

    app = tm.App("asks")
    rates = app.table(Rate, rows=[{"pair": "usd", "price": 3}])
    asks = app.source(Ask)
    told = asks.map(lambda e, r: {"price": r.price}, r=rates.read("pair"), name="told")
    with app.start() as mill:
        followers = [mill.follow(told), mill.follow("told"), mill.follow(told.failed)]
        mill.send(asks, [{"pair": "usd"}, {"pair": "eur"}])
        mill.flush()
        mill.close()
        prices, same, failed = ([row for released in f for row in released.to_pylist()] for f in followers)
    assert prices == same == [{"price": 3}]
    assert [row["pair"] for row in failed] == ["eur"]


# As the plan has it.

ROLE = 'orders.map(lambda e, r: {"id": e.id, "price": r.price * 2}, r=rates.read("pair"))'

MARKET = """
import tidemill as tm

class Quote(tm.Event):
    at: int = tm.event_time()
    pair: str
    price: int
    tags: list[str]

class Rate(tm.Row):
    pair: str = tm.key()
    price: int = 0
    next: str | None = None

app = tm.App("market")
rates = app.table(Rate)
orders = app.source(Quote, name="orders")
FACTOR = 2

def twice(x):
    return x * FACTOR

def worth(e, r):
    return twice(r.price) > e.price

"""


def cell(role, column):
    return {"node": {"cell": {"role": role, "column": column}}}


@pytest.fixture
def declared(module):
    return lambda text: module(text, prelude=MARKET)


def plan_of(loaded, name):
    (found,) = [t for t in strip(loaded.app._plan.plan)["transactions"] if t["name"] == name]
    return found


def test_a_map_is_a_transaction_of_the_plan(declared):
    loaded = declared('priced = orders.map(lambda e, r: {"price": r.price}, r=rates.read("pair", default=True))')
    assert plan_of(loaded, "orders_map") == {
        "name": "orders_map",
        "inputs": [{"named": "orders"}],
        "over": None,
        "join": None,
        "nested": False,
        "derives": True,
        "roles": [{"name": "r", "table": "rates", "key": [ev("pair")], "over": None, "access": "read_default"}],
        "body": [returned([["price", cell("r", "price")]])],
    }
    assert (loaded.priced._ref, loaded.priced.failed._ref) == ({"committed": "orders_map"}, {"aborted": "orders_map"})
    assert "r = rates[ev.pair], read only, a missing row reads as the defaults" in loaded.app.explain()
    assert not loaded.app.transactions
    labels = [stream.label for stream in loaded.app.streams()]
    assert labels[-2:] == ["orders_map", "orders_map.failed"]


def test_a_filter_is_a_transaction_that_returns_its_event(declared):
    loaded = declared('some = orders.filter(worth, r=rates.read("pair"), name="some")')
    (branch,) = plan_of(loaded, "some")["body"]
    doubled = binary("mul", cell("r", "price"), lit(int=2))
    fields = [[name, ev(name)] for name in ("at", "pair", "price", "tags")]
    record = {"fields": fields, "schema": loaded.app._plan.schema("orders"), "event_time": "at"}
    condition = compare("gt", doubled, ev("price"))
    then = [stmt(**{"return": {"record": record}})]
    assert branch == stmt(**{"if": {"condition": condition, "then": then, "otherwise": []}})


def test_names(declared):
    loaded = declared(
        f"""
        first = {ROLE}
        same = {ROLE}
        plain = orders.map(lambda e: {{"id": e.price}})
        other = orders.map(lambda e, r: {{"price": r.price}}, r=rates.read("pair"))
        named = orders.map(lambda e, r: {{"price": r.price}}, r=rates.read("pair"), name="named")
    """.replace("e.id", "e.price")
    )
    assert loaded.same is loaded.first
    labels = [s.label for s in (loaded.first, loaded.plain, loaded.other, loaded.named)]
    assert labels == ["orders_map", "orders_map_2", "orders_map_3", "named"]


def test_a_transaction_of_the_same_body_is_another(declared):
    loaded = declared("""
        @app.transaction(orders)
        def t(ev, r=rates.read("pair")):
            return {"price": r.price}

        priced = orders.map(lambda ev, r: {"price": r.price}, r=rates.read("pair"))
    """)
    assert list(loaded.app.transactions) == ["t"] and loaded.priced.label == "orders_map"


AGAIN = 'x = orders.map(lambda e, r: {"price": r.price * FACTOR}, r=rates.read("pair"), name="x"'
OTHERWISE = "it is declared already, and not as here; give this one another name with name="
REPLACE = ", or put it in the place of that one with replace=True"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{AGAIN})\n{AGAIN.replace('FACTOR', '3')})", f"stream 'x': {OTHERWISE}{REPLACE}"),
        (f"{AGAIN})\norders.map(lambda e: {{'a': e.price}}, name='x')", f"stream 'x': {OTHERWISE}"),
        (f"{AGAIN})\napp.source(Quote, name='x')", f"stream 'x': {OTHERWISE}"),
        (f"{AGAIN})\napp.every(5, name='x')", f"stream 'x': {OTHERWISE}"),
        (f"orders.map(lambda e: {{'a': e.price}}, name='x')\n{AGAIN})", f"stream 'x': {OTHERWISE}"),
        (f"{AGAIN.replace('name=', 'replace=True, name=')})\n@app.transaction(orders)\ndef x(ev): pass", f"transaction 'x': {OTHERWISE}{REPLACE}"),
        (
            "@app.transaction(orders)\ndef x(ev, r=rates.read('pair')):\n    return {'price': r.price * FACTOR}\n"
            f"{AGAIN})",
            f"stream 'x': {OTHERWISE}{REPLACE}",
        ),
        (
            'orders.map(lambda e, name: {"price": name.price}, name=rates.read("pair"))',
            "a role of a filter or map cannot be called 'name'; give it another name in the call and in the map",
        ),
    ],
)  # fmt: skip
def test_names_that_are_taken(declared, text, message):
    with pytest.raises(tm.PlanError) as error:
        declared(text)
    assert str(error.value) == message


def test_again_and_in_the_place_of_the_first(declared):
    loaded = declared(f"""
{AGAIN})
first = x
{AGAIN})
same = x
app.sink(x, tm.null())
{AGAIN.replace("FACTOR", "3")}, replace=True)
""")
    assert loaded.same is loaded.first and loaded.x is not loaded.first
    (role,) = plan_of(loaded, "x")["body"][0]["node"]["return"]["record"]["fields"]
    assert role[1] == binary("mul", cell("r", "price"), lit(int=3))
    assert loaded.app.streams()[-2] is loaded.x
    loaded = declared(f"{AGAIN})\n@app.transaction(orders, replace=True)\ndef x(ev): pass")
    assert list(loaded.app.transactions) == ["x"]
    assert "x" not in [stream.label for stream in loaded.app.streams()]
    loaded = declared(f"@app.transaction(orders)\ndef x(ev): pass\n{AGAIN}, replace=True)")
    assert not loaded.app.transactions and loaded.app.streams()[-2] is loaded.x


# The programs that are refused, and the places of the errors.

ONLY_READS = "and a filter or map only reads"
REFUSED = [
    (
        'orders.map(lambda e, r: {"v": r.price}, r=rates.row("pair"))',
        'rates.row("pair")',
        f"'r' is a row that may be written, {ONLY_READS}; write r=rates.read('pair'); a transaction may write it",
    ),
    (
        'orders.filter(lambda e, r: r.exists, r=rates.row("pair", create=True))',
        'rates.row("pair", create=True)',
        f"'r' is a row that may be written, {ONLY_READS}; write r=rates.read('pair', default=True); a transaction may write it",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price}, r=rates.new("pair", price=1))',
        'rates.new("pair", price=1)',
        f"'r' is a row that is inserted, {ONLY_READS}; let a transaction insert it, and read it here with table.read(...)",
    ),
    (
        'orders.map(lambda e, r: {"v": r}, r=5)',
        "5",
        "'r' is an int, not a role; write r=table.read('key'); for a constant use a name outside",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price}, r=rates)',
        "rates",
        "'r' is a Table, not a role; write r=table.read('key'); for a constant use a name outside",
    ),
    (
        'orders.map(lambda e, r, s: {"v": r.price}, r=rates.read("pair"))',
        "s",
        "the parameter 's' has no role; give it one beside the function: s=table.read('key')",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price})',
        "r",
        "the parameter 'r' has no role; give it one beside the function: r=table.read('key')",
    ),
    (
        'orders.map(lambda e, r: {"v": 1}, r=rates.read("pair"), s=rates.read("pair"))',
        'rates.read("pair")',
        "the function has no parameter for the role 's'; write 'lambda e, r, s: ...', or leave the role out",
    ),
    (
        'orders.map(lambda e, r: {"v": 1}, e=rates.read("pair"), r=rates.read("pair"))',
        "e",
        "'e' is the event, not a role; write 'def f(ev, ...)', with another name for the role",
    ),
    (
        'orders.map(lambda: {"v": 1}, r=rates.read("pair"))',
        'lambda: {"v": 1}',
        "a filter or map takes the event as its first parameter; write 'lambda e, r: ...'",
    ),
    (
        'orders.map(lambda e, r=rates.read("pair"): {"v": r.price})',
        'rates.read("pair")',
        "a parameter of a filter or map has no default; roles are given beside the function: stream.map(f, r=table.read('key'))",
    ),
    (
        'orders.map(lambda e, *r: {"v": 1}, r=rates.read("pair"))',
        "r",
        "'*r' cannot be compiled; name each role, and give it beside the function: r=table.read('key')",
    ),
    (
        'orders.map(lambda e, r: {"v": 1}, r=rates.read("tags"))',
        'rates.read("tags")',
        "'r' is a row for each element of 'tags', and a filter or map has no loop; let a transaction loop over the list",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price}, r=tm.App("market").table(Rate).read("pair"))',
        'tm.App("market").table(Rate).read("pair")',
        "table 'rates' belongs to another application that is called 'market' too; tm.App(...) has run again since it was declared: declare it again",
    ),
    (
        'orders.map(lambda e, r, s: {"v": r.price}, r=rates.read("s.next"), s=rates.read("pair"))',
        '"s.next"',
        "the row of 's' is not known before 'r'; put the parameter 's' first",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price}, r=rates.read("a.b.c"))',
        '"a.b.c"',
        "'a.b.c' is not a path of a field; write \"name\" for a field, \"lines.name\" for a field of each element, \"row.name\" for a column of a row",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price}, r=rates.read(lambda e: e.pear))',
        "e.pear",
        "no event field 'pear'; did you mean 'pair'?",
    ),
    (
        'orders.map(lambda e, r: {"v": r.price}, r=rates.read("price"))',
        '"price"',
        "key column 'pair' is str but ev.price is int; write str(ev.price)",
    ),
    (
        'orders.map(lambda e, r: {"v": r.prize}, r=rates.read("pair"))',
        "r.prize",
        "no column in table 'rates' called 'prize'; did you mean 'price'?",
    ),
    (
        'orders.map(lambda e, r: {"v": r}, r=rates.read("pair"))',
        "r",
        "a row as a whole is not a value; use its columns: r.name",
    ),
    (
        'orders.map(lambda e, r: r.price, r=rates.read("pair"))',
        "r.price",
        "'r.price' is not an event; write a dict {'name': value, ...} or an event class Alert(name=value, ...)",
    ),
    (
        'orders.filter(lambda e, r: r.price, r=rates.read("pair"))',
        "r.price",
        "r.price is int, not a condition; write `r.price != 0`",
    ),
    (
        'orders.filter(lambda e, r: e.price + r.pair > 1, r=rates.read("pair"))',
        "e.price + r.pair",
        "int + str has no meaning, in ev.price + r.pair; write str(ev.price)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "marked", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(declared, text, marked, message):
    with pytest.raises(tm.CompileError) as raised:
        declared(text)
    error = raised.value
    assert error.msg == message
    assert error.text[error.offset - 1 : error.end_offset - 1] == marked
    assert error.place in ("stream 'orders_map'", "stream 'orders_filter'")
    assert error.lineno == MARKET.count("\n") + 1


def test_a_role_is_found_in_a_call_of_several_lines(declared):
    before = MARKET.count("\n")
    with pytest.raises(tm.CompileError) as raised:
        declared("""
            both = (orders
                .filter(lambda e, r: r.exists, r=rates.read("pair"))
                .filter(
                    worth,
                    r=rates.read(
                        "pear"))
                .map(lambda e, r: {"ö": r.exists}, r=rates.read("pair")))
        """)
    assert (raised.value.lineno, raised.value.msg) == (before + 7, "no event field 'pear'; did you mean 'pair'?")


def test_a_call_that_cannot_be_found_is_shown_at_its_function(declared):
    with pytest.raises(tm.CompileError, match="'r' is a row that may be written") as raised:
        declared('roles = {"r": rates.row("pair")}\norders.filter(worth, **roles)')
    assert raised.value.lineno == MARKET.splitlines().index("def worth(e, r):") + 1


def test_an_error_in_a_helper_names_the_call(declared):
    with pytest.raises(tm.CompileError, match=r"has statements, which a filter, map or key cannot have"):
        declared("""
            def change(r):
                r.price = 1
                return 2

            orders.map(lambda e, r: {"v": change(r)}, r=rates.read("pair"))
        """)


def test_a_refused_one_leaves_no_trace(declared):
    loaded = declared("")
    before = loaded.app.plan()
    with pytest.raises(tm.CompileError):
        loaded.orders.filter(lambda e, r: r.nothing, r=loaded.rates.read("pair"))
    assert loaded.app.plan() == before and loaded.app.streams()[-1].label == "orders.bad"


def test_places_without_positions(tmp_path):
    """As before Python 3.11, which does not record where calls end."""
    file = tmp_path / "market.py"
    file.write_text(MARKET + 'orders.filter(\n    worth,\n    r=rates.read("pear"),\n)\n')
    done = subprocess.run([sys.executable, "-X", "no_debug_ranges", str(file)], capture_output=True, text=True)
    assert f"line {MARKET.count(chr(10)) + 3}" in done.stderr
    assert "no event field 'pear'; did you mean 'pair'?" in done.stderr
