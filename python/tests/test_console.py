"""The console: what the page asks for, and the page in a real browser."""

import html
import http.client
import json
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from urllib.parse import quote, urlsplit

import pytest
from browser import CHROMIUM, CONTRASTS, needs_chromium

MARKUP = "<img src=x onerror=\"document.title='taken'\">"

MARKET = f"""
import tidemill as tm

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0

class Seat(tm.Row):
    number: int = tm.key()
    held: int = 0

class Order(tm.Event):
    at: int = tm.event_time()
    number: int
    account: str
    amount: int

class Payment(tm.Event):
    at: int = tm.event_time()
    number: int
    paid: int

class Deposit(tm.Event):
    account: str
    amount: int
    note: str | None = None

app = tm.App("market")
accounts, seats = app.table(Account), app.table(Seat)
orders, payments = app.source(Order, lateness=2), app.source(Payment)
deposits = app.requests(Deposit)
large = orders.filter(lambda e: e.amount >= 5, name="large")
cheap = large.map(lambda e: {{"account": e.account, "tenth": e.amount // 10}}, name="cheap")
ticks = app.every(10)

@app.transaction(large)
def buy(ev, a=accounts.row("account", create=True), s=seats.row("number", create=True)):
    tm.require(ev.amount < 100, {MARKUP!r})
    a.balance -= ev.amount
    s.held += 1
    s.wake(ev.at + 5)
    return {{"account": ev.account, "amount": ev.amount}}

@app.transaction(seats.woken)
def free(ev, s=seats.row("number")):
    s.held = 0

@app.window(buy.committed, by=("account",), over=tm.tumbling(10))
def spent(w):
    return {{"account": w.account, "amount": w.amount.sum()}}

@app.join(orders, payments, on="number", within=4)
def paid(o, p):
    return {{"account": o.account, "paid": p.paid}}

@app.transaction(paid.joined)
def settle(ev, a=accounts.row("account", create=True)):
    a.balance += ev.paid

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True), bank=accounts.read(lambda e: "bank", default=True)):
    tm.require(ev.amount > 0, "amount must be positive")
    a.balance += ev.amount
    return {{"balance": a.balance}}

@app.transaction(ticks)
def count(ev, bank=accounts.row(lambda e: "bank", create=True)):
    bank.balance += 1

app.sink(spent.closed, lambda batch: None, name="totals")
app.sink(buy.aborted, lambda batch: None, name="refusals")
"""


@pytest.fixture
def app(module):
    return module(MARKET, prelude="").app


@contextmanager
def served(app, **options):
    with app.start(workers=1, **options) as mill, mill.serve() as server:
        yield mill, server


def ask(url, path, body=None, method=None, headers=None):
    """The status, the headers and the text of a response."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def live(url, after=0):
    return json.loads(ask(url, f"/console/live.json?after={after}")[2])


def order(at, number=1, account="ada", amount=7):
    return {"at": at, "number": number, "account": account, "amount": amount}


def test_the_graph_has_what_was_declared_and_no_part_of_it(app):
    with served(app) as (_, server):
        program = json.loads(ask(server.url, "/console/program.json")[2])
        index = json.loads(ask(server.url, "/")[2])
    nodes = [(node["kind"], node["name"]) for node in program["nodes"]]
    assert sorted(nodes) == sorted(
        [
            *[("table", name) for name in ("accounts", "seats")],
            *[("source", name) for name in ("orders", "payments", "deposits")],
            *[("transaction", name) for name in ("buy", "free", "settle", "deposit", "count")],
            *[("sink", name) for name in ("totals", "refusals")],
            ("filter", "large"),
            ("map", "cheap"),
            ("ticks", "ticks"),
            ("window", "spent"),
            ("join", "paid"),
        ]
    )
    edges = {(nodes[e["from"]][1], nodes[e["to"]][1], e["kind"], e["stream"]) for e in program["edges"]}
    assert edges == {
        ("orders", "large", "events", "orders"),
        ("large", "cheap", "events", "large"),
        ("large", "buy", "events", "large"),
        ("buy", "spent", "events", "buy.committed"),
        ("orders", "paid", "events", "orders"),
        ("payments", "paid", "events", "payments"),
        ("paid", "settle", "events", "paid.joined"),
        ("deposits", "deposit", "events", "deposits"),
        ("ticks", "count", "events", "ticks"),
        ("seats", "free", "wakes", "seats.woken"),
        ("spent", "totals", "events", "spent.closed"),
        ("buy", "refusals", "events", "buy.aborted"),
        *[(name, "accounts", "writes", None) for name in ("buy", "settle", "deposit", "count")],
        *[(name, "seats", "writes", None) for name in ("buy", "free")],
    }
    assert program["procedures"] == [
        {
            "name": "deposit",
            "fields": [
                {"name": "account", "type": "str", "optional": False},
                {"name": "amount", "type": "int", "optional": False},
                {"name": "note", "type": "str", "optional": True},
            ],
        }
    ]
    assert [table["name"] for table in program["tables"]] == ["accounts", "seats"]
    assert program["tables"][0]["columns"][0] == {"name": "id", "type": "str", "key": True}
    refused = {one["stream"]: one["position"] for one in program["refused"]}
    assert refused["buy.aborted"] == refused["orders.late"] == {"source": "orders", "field": "at"}
    assert refused["deposit.aborted"] is None and "large.failed" in refused
    # The index lists the same streams, none of which is a part of a window, a join or ticks.
    listed = list(index["GET /streams/NAME"])
    assert listed == [stream["name"] for stream in program["streams"]]
    parts = re.compile(r"\.(add|next|due|freed|pairs|left|right|free|input\d+)\b")
    assert not [name for name in listed if parts.search(name)]
    assert {"orders", "large", "ticks", "seats.woken", "spent.closed", "paid.joined", "buy.aborted"} <= set(listed)


def test_counts_follow_the_edges(app):
    with served(app) as (mill, server):
        live(server.url)
        mill.send("orders", [order(1), order(2, 2, amount=3), order(3, 3, amount=200), order(4, 4), order(30, 5)])
        mill.send("payments", [{"at": 3, "number": 1, "paid": 2}, {"at": 40, "number": 9, "paid": 2}])
        assert ask(server.url, "/call/deposit", '{"account": "ada", "amount": 0}')[0] == 409
        mill.end("orders"), mill.end("payments")
        mill.flush()
        program = json.loads(ask(server.url, "/console/program.json")[2])
        document = live(server.url)
        names = [node["name"] for node in program["nodes"]]
        counts = {
            (names[edge["from"]], names[edge["to"]]): count
            for edge, count in zip(program["edges"], document["edges"], strict=True)
        }
        assert counts["orders", "large"] == counts["orders", "paid"] == 5
        assert (counts["large", "buy"], counts["buy", "spent"], counts["buy", "refusals"]) == (4, 3, 1)
        assert (counts["payments", "paid"], counts["paid", "settle"], counts["deposits", "deposit"]) == (2, 1, 1)
        assert (counts["spent", "totals"], counts["seats", "free"]) == (2, 3)
        assert counts["buy", "accounts"] is None and counts["large", "cheap"] is None
        buy = next(of for of in document["transactions"] if of["name"] == "buy")
        assert (buy["committed"], buy["aborted"], buy["reasons"]) == (3, 1, [[MARKUP, 1]])
        assert not [of for of in document["transactions"] if "." in of["name"]]
        assert document["events"] == 8 and document["calls"]["made"] == 1
        last = document["recent"][-1]
        assert last["epoch"] == document["epochs"] and last["policy"] == "epoch" and last["why"]
        assert set(document["under_way"]) == {"gathered", "preparing", "prepared", "accessing", "accessed"}


def test_refused_events_come_with_their_reasons_and_once(app):
    with served(app) as (mill, server):
        assert live(server.url)["refused"] == []
        mill.send("payments", [{"at": 90, "number": 1, "paid": 2}])
        mill.send("orders", [order(50, 2**53 + 1, amount=200), order(10, 2), order(99, 3)])
        found, last, deadline = [], 0, time.monotonic() + 20
        while len(found) < 2:
            assert time.monotonic() < deadline, found
            refused = live(server.url, last)["refused"]
            found += refused
            last = max([last, *(event["number"] for event in refused)])
        by_stream = {event["stream"]: event for event in found}
        assert by_stream["buy.aborted"]["event"]["reason"] == MARKUP
        assert by_stream["buy.aborted"]["event"]["number"] == 2**53 + 1
        assert by_stream["orders.late"]["event"]["at"] == 10
        assert live(server.url, last)["refused"] == []
        # A page that has seen more than there was is one of an earlier server.
        assert len(live(server.url, 10**9)["refused"]) == 2
        assert ask(server.url, "/console/live.json?after=x")[0] == 400


def test_the_tail_of_a_flood_is_its_end(app):
    with served(app) as (mill, server):
        live(server.url)
        events = [{"account": str(n), "amount": 0} for n in range(5000)]
        mill.send("deposits", events)
        mill.flush()
        seen, deadline = [], time.monotonic() + 20
        while not seen or seen[-1] != "4999":
            assert time.monotonic() < deadline, seen[-3:]
            seen = [event["event"]["account"] for event in live(server.url)["refused"]]
        assert len(seen) == 50 and seen == sorted(seen, key=int)


def test_hot_rows_are_named_while_somebody_looks(module):
    bank = module(
        """
        import tidemill as tm
        from datetime import datetime, timezone

        class Account(tm.Row):
            branch: str = tm.key()
            since: tm.Time = tm.key()
            balance: int = 0

        class Deposit(tm.Event):
            branch: str
            since: tm.Time
            amount: int

        app = tm.App("bank")
        accounts, deposits = app.table(Account), app.requests(Deposit)

        @app.transaction(deposits)
        def deposit(ev, a=accounts.row("branch", "since", create=True)):
            tm.require(ev.amount > 0, "amount must be positive")
            a.balance += ev.amount
        """,
        prelude="",
    ).app
    with served(bank) as (mill, server):
        assert live(server.url)["hot"] == []
        for n in range(40):
            since = datetime(2026, 1, 1 if n % 4 else 2 + n // 4, tzinfo=timezone.utc)
            mill.send("deposits", [{"branch": "north", "since": since, "amount": 1}])
            mill.flush()
        hot = live(server.url)["hot"]
        assert [(row["table"], row["key"]) for row in hot] == [("accounts", ["north", "2026-01-01T00:00:00.000000Z"])]
        # An event and the flush after it are one epoch or two, so not all of them are among those that are sampled.
        assert hot[0]["share"] == pytest.approx(0.75, abs=0.05)
        for _ in range(70):
            mill.flush()
        mill.send("deposits", [{"branch": "south", "since": since, "amount": 1}] * 200)
        mill.flush()
        # Nobody looked at the last epochs, so they were not sampled.
        assert live(server.url)["hot"] == hot


def test_hot_rows_of_a_program_that_follows_each_event_through_are_named(module):
    """Those of nested steps and of dependent keys are among them."""
    bank = module(
        """
        import tidemill as tm

        class Branch(tm.Row):
            name: str = tm.key()
            head: str = "main"
            balance: int = 0

        class Total(tm.Row):
            id: int = tm.key()
            n: int = 0

        class Deposit(tm.Event):
            branch: str

        app = tm.App("bank")
        names = ["main", "north", *(f"b{n}" for n in range(10))]
        branches = app.table(Branch, rows=[{"name": name} for name in names])
        totals = app.table(Total, rows=[{"id": 0}])
        deposits = app.requests(Deposit)

        @app.transaction(deposits)
        def deposit(ev, b=branches.row("branch"), head=branches.row("b.head")):
            b.balance += 1
            head.balance += 1
            return {"branch": ev.branch}

        @app.transaction(deposit.committed, nested=True)
        def count(ev, total=totals.row(lambda e: 0), all_of_them=branches.all()):
            total.n += len(all_of_them)
        """,
        prelude="",
    ).app
    with served(bank) as (mill, server):
        assert live(server.url)["hot"] == []
        for n in range(40):
            mill.send("deposits", [{"branch": "north" if n % 4 else f"b{n // 4}"}])
            mill.flush()
        document = live(server.url)
    shares = {(row["table"], *row["key"]): row["share"] for row in document["hot"]}
    expected = {("branches", "north"): 1 / 4, ("branches", "main"): 1 / 3, ("totals", "0"): 1 / 3}
    assert shares == pytest.approx(expected, abs=0.03)
    assert document["critical"] == [] and document["contention"] is None


@pytest.mark.parametrize("workers", [1, 2])
def test_contention_is_told(module, workers):
    """Half of the transactions touch one row, and take turns; the others are spread."""
    bank = module(
        """
        import tidemill as tm

        class Account(tm.Row):
            id: int = tm.key()
            value: int = 0

        class Change(tm.Event):
            account: int

        app = tm.App("bank")
        accounts, changes = app.table(Account), app.source(Change)

        @app.transaction(changes)
        def change(ev, a=accounts.row("account", create=True)):
            value = a.value
            for i in range(300):
                value = (value * 31 + i) % 1000003
            a.value = value
        """,
        prelude="",
    ).app
    events = [{"account": 0 if n % 2 else n} for n in range(4000)]
    with bank.start(workers=workers) as mill, mill.serve() as server:
        deadline = time.monotonic() + 60
        while (found := live(server.url)["contention"]) is None:
            assert time.monotonic() < deadline
            mill.send("changes", events)
            mill.flush()
    assert found["transactions"] == found["operations"] > 100
    assert found["longest"] / found["operations"] == pytest.approx(0.5, abs=0.05)
    assert found["rows"] / found["operations"] == pytest.approx(0.5, abs=0.05)
    # Half of the work is done one after the other, however it is run: each transaction writes what the last one wrote.
    assert found["critical"] == pytest.approx(0.5, abs=0.1)
    assert found["critical_of_writes"] == pytest.approx(0.5, abs=0.1)


def test_rows_along_the_critical_path_are_named(module):
    bank = module(
        """
        class Account(tm.Row):
            id: str = tm.key()
            balance: int = 0

        class Move(tm.Event):
            src: str
            dst: str

        app = tm.App("moves")
        accounts, moves = app.table(Account), app.requests(Move)

        @app.transaction(moves)
        def move(ev, src=accounts.row("src", create=True), dst=accounts.row("dst", create=True)):
            src.balance -= 1
            dst.balance += 1
        """
    ).app
    apart = [{"src": f"a{n}", "dst": f"b{n}"} for n in range(40)]
    # Two rows are touched ten times each, one after the other: twenty steps. A third is touched fifteen times, beside them.
    chain = [{"src": "left" if n < 10 else "right", "dst": "right" if n == 9 else f"c{n}"} for n in range(20)]
    beside = [{"src": "other", "dst": f"d{n}"} for n in range(15)]
    with served(bank) as (mill, server):
        assert live(server.url)["critical"] == []
        mill.send("moves", [*apart, *beside, *chain])
        mill.flush()
        critical = live(server.url)["critical"]
        assert sorted((row["table"], *row["key"]) for row in critical) == [("accounts", "left"), ("accounts", "right")]
        assert sum(row["share"] for row in critical) == pytest.approx(1.0)


def test_a_query_reaches_the_console(app):
    pytest.importorskip("duckdb")
    with served(app) as (_, server):
        ask(server.url, "/call/deposit", '{"account": "ada", "amount": 5}')
        status, _, text = ask(server.url, "/query", "select id, balance from accounts")
        assert (status, json.loads(text)) == (200, {"id": "ada", "balance": 5})


def test_pages_of_rows(app):
    with served(app) as (_, server):
        for name in "abcde":
            ask(server.url, "/call/deposit", json.dumps({"account": name, "amount": 1}))

        def rows(query):
            status, headers, text = ask(server.url, f"/tables/accounts{query}")
            assert (status, headers["Tidemill-Rows"]) == (200, "5")
            return [json.loads(line)["id"] for line in text.splitlines()]

        assert rows("") == list("abcde")
        assert rows("?limit=2") == ["a", "b"]
        assert rows("?offset=3&limit=2") == ["d", "e"]
        assert rows("?offset=4") == ["e"]
        assert rows("?offset=99&limit=2") == rows("?limit=0") == []
        assert ask(server.url, "/tables/accounts?limit=many")[0] == 400


def test_the_page_is_there_for_browsers_and_nothing_else_loads(app):
    with served(app) as (_, server):
        accept = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        status, headers, page = ask(server.url, "/", headers=accept)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert ask(server.url, "/console")[2] == page
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy and "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        for path in re.findall(r'(?:src|href)="(/console/[^"]+)"', page):
            status, headers, text = ask(server.url, path)
            assert status == 200 and text, path
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert json.loads(ask(server.url, "/")[2])["application"] == "market"
        assert ask(server.url, "/console/../Cargo.toml")[0] == 404
        assert ask(server.url, "/console/nothing.js")[0] == 404
        assert ask(server.url, "/console", method="DELETE")[0] == 405
        for headers in [{"Host": "evil.example"}, {"Origin": "http://evil.example"}]:
            for path in ("/console", "/console/live.json", "/console/program.json"):
                assert ask(server.url, path, headers=headers)[0] == 403


def test_a_savepoint_and_a_transaction_step_by_step(app, tmp_path):
    with served(app, state=tmp_path / "state") as (mill, server):
        mill.send("orders", [order(50, 7, amount=200)])
        ask(server.url, "/call/deposit", '{"account": "ada", "amount": 5}')
        ask(server.url, "/call/deposit", '{"account": "ada", "amount": 6}')
        status, _, text = ask(server.url, "/console/transaction/deposits:1")
        assert status == 200, text
        assert "transaction deposit: committed" in text and "wrote a.balance = 11 of accounts" in text
        status, _, text = ask(server.url, "/console/transaction/deposits:9")
        assert status == 404 and "deposits:9 is not in the log" in json.loads(text)["error"]
        status, _, text = ask(server.url, "/console/transaction/deposits")
        assert status == 400 and "is not a position" in json.loads(text)["error"]
        evil = {"Origin": "http://evil.example"}
        assert ask(server.url, "/console/savepoint", "", headers=evil)[0] == 403
        assert ask(server.url, "/console/savepoint")[0] == 405
        status, _, text = ask(server.url, "/console/savepoint", "")
        made = json.loads(text)
        assert (status, made["savepoint"]) == (200, f"epoch-{made['epoch']}")
    assert [path for path in tmp_path.rglob(made["savepoint"]) if path.is_dir()]


def test_without_a_state_there_is_nothing_to_recall(app):
    with served(app) as (_, server):
        for path, body in [("/console/savepoint", ""), ("/console/transaction/orders:1", None)]:
            status, _, text = ask(server.url, path, body)
            assert status == 409 and "--state DIR" in json.loads(text)["error"]


# In a browser.


def shown(url, part, milliseconds=8000):
    """The page as its scripts have made it."""
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += [f"--user-data-dir={profile}", f"--virtual-time-budget={milliseconds}", "--enable-logging=stderr"]
        done = subprocess.run(
            [*command, "--dump-dom", f"{url}/console#{part}"], capture_output=True, text=True, timeout=120
        )
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert said == []
    return done.stdout


def text_of(page):
    """The text of a page, and of its markup the elements with attributes that run scripts."""
    assert not re.search(r"<[^>]*\son\w+\s*=", re.sub(r'"[^"]*"', '""', page))
    assert '<img src="x"' not in page and "<title>taken" not in page
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


@needs_chromium
def test_text_is_never_markup(app):
    with served(app) as (mill, server):
        live(server.url)
        ask(server.url, "/call/deposit", json.dumps({"account": MARKUP, "amount": 2**53 + 1}))
        mill.send("payments", [{"at": 90, "number": 1, "paid": 2}])
        mill.send("orders", [order(50, account=MARKUP, amount=200), order(99, 2)])
        mill.flush()
        tables = shown(server.url, "tables/accounts")
        assert MARKUP in text_of(tables)
        # A number that a double cannot hold is shown digit by digit.
        assert str(2**53 + 1) in tables
        refused = text_of(shown(server.url, "refused"))
        assert refused.count(MARKUP) >= 3
        assert MARKUP in text_of(shown(server.url, "flow"))


@needs_chromium
def test_every_part_of_the_console_is_shown(app, tmp_path):
    with served(app, state=tmp_path / "state") as (_, server):
        for amount in (5, 6, 0):
            ask(server.url, "/call/deposit", json.dumps({"account": "ada", "amount": amount}))
        page = shown(server.url, "flow")
        for name in ("orders", "payments", "large", "buy", "spent", "paid", "settle", "accounts", "totals"):
            assert f">{name}</text>" in page
        assert "market – Tidemill" in page and "running for" in text_of(page)
        epochs = text_of(shown(server.url, "epochs"))
        assert "Back-pressure" in epochs and "each event is followed through before the next" in epochs
        assert "Call deposit" in text_of(shown(server.url, "calls"))
        steps = text_of(shown(server.url, f"transaction/{quote('deposits:1', safe='')}"))
        assert "wrote a.balance = 11 of accounts" in steps


# A text of each part of the console, by its place in the address.
PARTS = {
    "flow": "settle",
    "epochs": "each event is followed through before the next",
    "refused": "amount must be positive",
    "tables/accounts": "after epoch",
    "calls": "Call deposit",
    "transaction/deposits%3A1": "wrote a.balance = 11 of accounts",
}
# The controls that are too small for a finger; in lines of text and in drawings they may be.
SMALL = """
[...document.querySelectorAll("button, select, textarea, input:not([type=checkbox]), #tabs a, .chip")]
  .filter((node) => node.offsetParent && node.offsetHeight < 40).map((node) => node.outerHTML)
"""
# The texts that are cut off.
CUT = """
[...document.querySelectorAll("#tabs, .tile p")].filter((node) => node.scrollWidth > node.clientWidth).map((node) => node.outerHTML)
"""


@needs_chromium
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_part_can_be_used_on_a_phone(app, tmp_path, browser, theme):
    with served(app, state=tmp_path / "state") as (mill, server):
        for amount in (5, 6, 0):
            ask(server.url, "/call/deposit", json.dumps({"account": "ada", "amount": amount}))
        mill.send("orders", [order(50, 7, amount=200)])
        for part, text in PARTS.items():
            browser.open(f"{server.url}/console#{part}", width=360, height=760, theme=theme)
            browser.until(f"document.querySelector('#view').textContent.includes({json.dumps(text)})")
            browser.until("document.querySelector('#tiles').innerText.includes('transactions')")
            # Nothing is wider than the window; tables and the graph are scrolled in their cards.
            assert browser.run("document.documentElement.scrollWidth") <= 360, part
            assert browser.run(SMALL) == [], part
            assert browser.run(CUT) == [], part
            assert browser.run(CONTRASTS) == [], part
            browser.picture(tmp_path / f"{part.partition('/')[0]}.png")
        browser.click("Make a savepoint")
        browser.until("document.querySelector('#savepoint').innerText.startsWith('Made epoch-')")
        name = browser.text("#savepoint").removeprefix("Made ")
        assert [path for path in (tmp_path / "state").rglob(name) if path.is_dir()]
        assert browser.is_well()
