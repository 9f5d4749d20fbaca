"""The shop of the examples: calls beside streams, by real clients, through kills, and its page in a real browser."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from browser import CONTRASTS, needs_chromium

import tidemill as tm
from tidemill.loading import load

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("shop.py", "shop_page.py", "shop.html", "datasets.py")

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not in the package")


def copy(folder, **replaced):
    """The shop in a folder of its own, with other times: its hold in seconds, and how long best sellers count."""
    for name in FILES:
        shutil.copy(EXAMPLES / name, folder / name)
    program = (folder / "shop.py").read_text(encoding="utf-8")
    for old, new in {**{"HOLD = 120": f"HOLD = {replaced.pop('hold', 120)}"}, **replaced.pop("text", {})}.items():
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    assert not replaced
    (folder / "shop.py").write_text(program, encoding="utf-8")


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Serves a copy of the shop in this process: its session, its server and a client."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    @contextmanager
    def serve(**replaced):
        copy(tmp_path, **replaced)
        app = load(str(tmp_path / "shop.py"))
        with app.start(state=tmp_path / "state", workers=2) as mill, mill.serve() as server:
            with tm.connect(server.url, timeout=60) as client:
                yield mill, server.url, client

    yield serve
    for name in set(sys.modules) & {"datasets", "shop"} - before:
        del sys.modules[name]


@contextmanager
def process(folder, *arguments):
    """A program of the folder's that says where it serves; and where that is."""
    started = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = started.stdout.readline()
        yield started, re.search(r"http://[\d.:]+", said)[0]
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()
        started.stdout.close()


def command(folder, port=0):
    """The shop as ``tidemill serve`` runs it."""
    serve = ["-m", "tidemill", "serve", "shop.py", "--state", "state", "--no-postgres", "--port", str(port)]
    return process(folder, *serve)


def read(url, table):
    """The rows of a table."""
    with urlopen(f"{url}/tables/{table}", timeout=60) as answer:
        return [json.loads(line, parse_float=Decimal) for line in answer]


def rows(url, table):
    """The rows of a table by the first column of their key."""
    return {next(iter(row.values())): row for row in read(url, table)}


def snapshot(url):
    """The rows of all tables at one moment: two reads of all of them are equal."""
    before = None
    while before != (now := [read(url, table) for table in ("items", "orders", "customers", "lines")]):
        before = now
    return now


def lines(**wanted):
    return [{"item": item, "quantity": quantity} for item, quantity in wanted.items()]


def stock(url, item):
    row = rows(url, "items")[item]
    return row["left"], row["reserved"], row["sold"]


def take(stream, count):
    """The next events of a stream. They come, or the test fails."""
    found = []
    reader = threading.Thread(target=lambda: found.extend(next(stream).value for _ in range(count)), daemon=True)
    reader.start()
    reader.join(60)
    assert len(found) == count, found
    return found


STOCK = {"lamp": 8, "chair": 6, "desk": 2, "clock": 5, "mug": 30}


def check_sums(url, delivered=None, deposited=None):
    """Nothing is lost and nothing is made: items, and money where it is known how much was paid in."""
    items, orders, customers, held = snapshot(url)
    for row in items:
        assert min(row["left"], row["reserved"], row["sold"]) >= 0
        assert row["reserved"] == sum(line["quantity"] for line in held if line["item"] == row["item"])
        if delivered is not None:
            assert row["left"] + row["reserved"] + row["sold"] == STOCK[row["item"]] + delivered.get(row["item"], 0)
    assert {line["order"] for line in held} == {row["order"] for row in orders if row["status"] == "reserved"}
    paid = sum(row["total"] for row in orders if row["status"] == "paid")
    assert paid == sum(row["sold"] * row["price"] for row in items)
    assert all(row["balance"] >= 0 for row in customers)
    if deposited is not None:
        assert sum(row["balance"] for row in customers) + paid == deposited


def test_an_order_is_reserved_and_paid(served):
    with served() as (_, url, shop):
        assert Decimal(str(shop.deposit(customer="ada", amount=100)["balance"])) == 100
        reply = shop.reserve(order="o1", customer="ada", lines=lines(lamp=2, mug=3))
        assert (reply["order"], Decimal(str(reply["total"]))) == ("o1", Decimal("85.30"))
        assert reply["until"] > reply["at"]
        assert (stock(url, "lamp"), stock(url, "mug")) == ((6, 2, 0), (27, 3, 0))
        check_sums(url, {}, 100)
        reply = shop.pay(order="o1", customer="ada", items=["mug", "lamp"])
        assert Decimal(str(reply["left"])) == Decimal("14.70")
        assert (stock(url, "lamp"), stock(url, "mug")) == ((6, 0, 2), (27, 0, 3))
        assert shop.row("orders", "o1")["status"] == "paid"
        check_sums(url, {}, 100)


def test_what_is_refused_changes_nothing_and_says_why(served):
    with served() as (_, url, shop):

        def refused(reason, call, **fields):
            with pytest.raises(tm.Aborted, match=f"^{reason}$"):
                call(**fields)

        shop.deposit(customer="ada", amount=50)
        shop.reserve(order="o1", customer="ada", lines=lines(lamp=1))
        before = snapshot(url)
        refused("sold out", shop.reserve, order="o2", customer="ada", lines=lines(mug=1, desk=3))
        refused("order exists", shop.reserve, order="o1", customer="ada", lines=lines(mug=1))
        refused("basket is empty", shop.reserve, order="o2", customer="ada", lines=[])
        refused("quantity must be positive", shop.reserve, order="o2", customer="ada", lines=lines(mug=0))
        refused("item is listed twice", shop.reserve, order="o2", customer="ada", lines=2 * lines(mug=1))
        refused("no row in items for item", shop.reserve, order="o2", customer="ada", lines=lines(car=1))
        refused("no row in customers for customer", shop.reserve, order="o2", customer="eve", lines=lines(mug=1))
        refused("amount must be positive", shop.deposit, customer="ada", amount=0)
        refused("no row in orders for order", shop.pay, order="o2", customer="ada", items=["mug"])
        refused("items are not those of the order", shop.pay, order="o1", customer="ada", items=["lamp", "mug"])
        refused("no row in lines for line", shop.pay, order="o1", customer="ada", items=["mug"])
        with pytest.raises(tm.SchemaError, match="quantity"):
            shop.reserve(order="o2", customer="ada", lines=[{"item": "mug", "quantity": "many"}])
        assert snapshot(url) == before
        shop.deposit(customer="bob", amount=1)
        refused("order of another customer", shop.pay, order="o1", customer="bob", items=["lamp"])
        shop.reserve(order="o3", customer="bob", lines=lines(mug=1))
        refused("balance is too low", shop.pay, order="o3", customer="bob", items=["mug"])
        shop.pay(order="o1", customer="ada", items=["lamp"])
        refused("order is paid already", shop.pay, order="o1", customer="ada", items=["lamp"])
        check_sums(url, {}, 51)


def test_a_reservation_that_is_not_paid_expires(served):
    with served(hold=1) as (_, url, shop), tm.connect(url, timeout=60).follow("expire.committed") as expired:
        shop.deposit(customer="ada", amount=500)
        reply = shop.reserve(order="o1", customer="ada", lines=lines(desk=2, lamp=1))
        found = take(expired, 2)
        assert found == [{"at": reply["until"], "order": "o1", "item": item} for item in ("desk", "lamp")]
        assert (stock(url, "desk"), stock(url, "lamp")) == ((2, 0, 0), (8, 0, 0))
        with pytest.raises(tm.Aborted, match="^reservation has expired$"):
            shop.pay(order="o1", customer="ada", items=["desk", "lamp"])
        check_sums(url, {}, 500)
        # Items that were given back can be had again.
        shop.reserve(order="o2", customer="ada", lines=lines(desk=1))
        try:
            shop.pay(order="o2", customer="ada", items=["desk"])
        except tm.Aborted as aborted:
            # A machine under load may take longer than the reservation lasts.
            assert aborted.reason == "reservation has expired"
            return
        shop.reserve(order="o3", customer="ada", lines=lines(lamp=1))
        assert take(expired, 1)[0]["order"] == "o3"
        assert shop.row("orders", "o2")["status"] == "paid"
        assert stock(url, "desk") == (1, 0, 1)


def test_no_item_is_sold_twice(served):
    async def rush(url):
        async with tm.connect(url, timeout=60) as shop:
            await shop.deposit(customer="ada", amount=10_000)

            async def buy(number):
                try:
                    await shop.reserve(order=f"o{number}", customer="ada", lines=lines(lamp=1, mug=1))
                    await shop.pay(order=f"o{number}", customer="ada", items=["lamp", "mug"])
                except tm.Aborted as aborted:
                    return aborted.reason
                return "paid"

            return await asyncio.gather(*(buy(number) for number in range(40)))

    with served() as (_, url, _):
        outcomes = asyncio.run(rush(url))
        assert sorted(outcomes) == ["paid"] * 8 + ["sold out"] * 32
        assert stock(url, "lamp") == (0, 0, 8)
        check_sums(url, {}, 10_000)


def test_deliveries_are_a_stream_beside_the_calls(served):
    with served() as (_, url, shop), tm.connect(url, timeout=60).follow("shelf.committed") as shelf:
        pushed = b'{"id": "d1", "item": "desk", "quantity": 3}\n{"id": "d2", "item": "lamp", "quantity": 1}\n'
        for _ in range(2):  # The second time nothing of it is new.
            with urlopen(f"{url}/stream/deliveries", pushed, timeout=60) as answer:
                assert json.load(answer)["events"] == 2
        shop.deposit(customer="ada", amount=1)
        shop.reserve(order="o1", customer="ada", lines=lines(desk=5))
        assert take(shelf, 3) == [
            {"item": "desk", "left": 5, "reserved": 0, "recent": 0},
            {"item": "lamp", "left": 9, "reserved": 0, "recent": 0},
            {"item": "desk", "left": 0, "reserved": 5, "recent": 0},
        ]
        with pytest.raises(HTTPError, match="422"):
            urlopen(f"{url}/stream/deliveries", b'{"id": "d3", "item": "desk"}', timeout=60)
        shop.push("deliveries", [{"id": "d3", "item": "car", "quantity": 1}])
        check_sums(url, {"desk": 3, "lamp": 1}, 1)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_is_a_client(served):
    with served() as (_, url, _):

        def curl(path, body):
            asked = ["curl", "-s", "-d", body, f"{url}{path}"]
            return json.loads(subprocess.run(asked, capture_output=True, timeout=60, check=True).stdout)

        assert curl("/call/deposit", '{"customer": "ada", "amount": 10}')["committed"]["customer"] == "ada"
        wanted = '{"order": "o1", "customer": "ada", "lines": [{"item": "desk", "quantity": 3}]}'
        assert curl("/call/reserve", wanted)["aborted"] == "sold out"


def test_tables_are_read_by_sql(served):
    pytest.importorskip("duckdb")
    with served() as (_, url, shop):
        shop.deposit(customer="ada", amount=100)
        shop.reserve(order="o1", customer="ada", lines=lines(lamp=1, mug=1))
        query = (
            "select i.item, l.quantity * i.price as value from lines l join items i using (item) order by value desc"
        )
        assert [(row["item"], float(row["value"])) for row in shop.sql(query)] == [("lamp", 29.9), ("mug", 8.5)]


def wait(read, wanted, seconds=60):
    """Reads until there is what is wanted."""
    deadline = time.monotonic() + seconds
    while not wanted(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_best_sellers_come_and_go(served, tmp_path):
    faster = {'tm.sliding("10m", every="10s")': 'tm.sliding("20s", every="1s")', "tm.seconds(10)": "tm.seconds(1)"}
    with served(text=faster) as (_, url, shop):
        shop.deposit(customer="ada", amount=1000)
        sold = {"mug": 4, "clock": 1, "lamp": 3, "chair": 2}
        for item, quantity in sold.items():
            shop.reserve(order=item, customer="ada", lines=lines(**{item: quantity}))
            shop.pay(order=item, customer="ada", items=[item])

        def recent():
            return {item: row["recent"] for item, row in rows(url, "items").items() if row["recent"]}

        wait(recent, lambda found: found == sold)
        wait(recent, lambda found: not found)
        assert {item: row["sold"] for item, row in rows(url, "items").items() if row["sold"]} == sold
    best = [json.loads(line) for line in (tmp_path / "out/shop/best.jsonl").read_text("utf-8").splitlines()]
    tops = {}
    for event in best:
        tops.setdefault(event["at"], []).append((event["item"], event["sold"]))
    assert [("mug", 4), ("lamp", 3), ("chair", 2)] in tops.values()


class Buyer(threading.Thread):
    """Calls the shop until it is killed, and notes what was answered, and which call was not."""

    def __init__(self, url, name):
        super().__init__()
        self.url, self.customer = url, name
        self.deposited, self.reserved, self.paid, self.expired, self.pushed = 0, {}, [], [], []
        self.unsure = None
        self.start()

    def run(self):
        rng = random.Random(self.customer)
        try:
            with tm.connect(self.url, timeout=60) as shop:
                self.unsure = ("deposit", 50)
                shop.deposit(customer=self.customer, amount=50)
                self.deposited += 50
                for number in range(10_000):
                    self.buy(shop, f"{self.customer}.{number}", rng)
        except Exception as end:
            self.end = end

    def buy(self, shop, order, rng):
        wanted = {item: rng.randrange(1, 3) for item in rng.sample(["lamp", "clock", "mug"], rng.randrange(1, 4))}
        self.unsure = ("reserve", order)
        try:
            shop.reserve(order=order, customer=self.customer, lines=lines(**wanted))
        except tm.Aborted as aborted:
            assert aborted.reason == "sold out"
            self.unsure = ("push", order)
            self.pushed.append([{"id": f"{order}.{item}", "item": item, "quantity": 2} for item in wanted])
            shop.push("deliveries", self.pushed[-1])
            return
        self.reserved[order] = wanted
        if rng.random() < 0.7:
            self.unsure = ("pay", order)
            try:
                shop.pay(order=order, customer=self.customer, items=list(wanted))
                self.paid.append(order)
            except tm.Aborted as aborted:
                if aborted.reason == "balance is too low":
                    self.unsure = ("deposit", 50)
                    shop.deposit(customer=self.customer, amount=50)
                    self.deposited += 50
                else:
                    assert aborted.reason == "reservation has expired"
                    self.expired.append(order)


def test_each_answered_call_is_there_once_after_a_kill(tmp_path):
    copy(tmp_path, hold=1)
    buyers = []
    for life in range(2):
        with command(tmp_path) as (server, url):
            present = [Buyer(url, f"{life}.{number}") for number in range(4)]
            wait(lambda: sum(len(buyer.paid) for buyer in present), lambda paid: paid >= 10)
            server.send_signal(signal.SIGKILL)
            for buyer in present:
                buyer.join()
                assert type(buyer.end) is tm.RunError, buyer.end
            buyers += present
    with command(tmp_path) as (server, url), tm.connect(url, timeout=60) as shop:
        _, orders, customers, _ = snapshot(url)
        orders, customers = ({next(iter(row.values())): row for row in table} for table in (orders, customers))
        spent = dict.fromkeys(customers, 0)
        for row in orders.values():
            if row["status"] == "paid":
                spent[row["customer"]] += row["total"]
        for buyer in buyers:
            what, unsure = buyer.unsure
            known = buyer.deposited, buyer.deposited + (unsure if what == "deposit" else 0)
            if buyer.customer in customers:
                assert customers[buyer.customer]["balance"] + spent[buyer.customer] in known
            else:
                assert buyer.deposited == 0
            own = {name for name, row in orders.items() if row["customer"] == buyer.customer}
            assert set(buyer.reserved) <= own <= set(buyer.reserved) | {unsure}
            paid = {name for name in own if orders[name]["status"] == "paid"}
            assert set(buyer.paid) <= paid <= set(buyer.paid) | {unsure}
            assert {orders[name]["status"] for name in buyer.expired} <= {"expired"}
            # A request without a reply is sent again: it is there already, or it is done now.
            if what == "reserve":
                try:
                    shop.reserve(order=unsure, customer=buyer.customer, lines=lines(mug=1))
                except tm.Aborted as aborted:
                    assert aborted.reason == ("order exists" if unsure in own else "sold out")
        check_sums(url)
        # All deliveries are pushed again, since that of a server that was killed may be missing. None counts twice.
        pushed = [delivery for buyer in buyers for part in buyer.pushed for delivery in part]
        shop.push("deliveries", pushed)
        delivered = Counter()
        for delivery in pushed:
            delivered[delivery["item"]] += delivery["quantity"]
        check_sums(url, delivered)
        # Reservations expire in this life too.
        wait(lambda: rows(url, "lines"), lambda found: not found)
        check_sums(url, delivered)
        orders = rows(url, "orders")
        server.send_signal(signal.SIGTERM)
        said, _ = server.communicate(timeout=60)
        assert server.returncode == 0, said
    out = tmp_path / "out" / "shop"
    invoices = [json.loads(line)["order"] for line in (out / "invoices.jsonl").read_text("utf-8").splitlines()]
    assert sorted(invoices) == sorted(name for name, row in orders.items() if row["status"] == "paid")
    expired = [json.loads(line) for line in (out / "expired.jsonl").read_text("utf-8").splitlines()]
    assert len({(event["order"], event["item"]) for event in expired}) == len(expired)
    assert {event["order"] for event in expired} == {n for n, row in orders.items() if row["status"] == "expired"}


# The page.


def page(folder, url):
    """The program that serves the page."""
    return process(folder, "shop_page.py", "0", url)


def test_the_page_asks_the_shop_and_nothing_else_does(tmp_path):
    copy(tmp_path)
    with command(tmp_path) as (server, shop), page(tmp_path, shop) as (_, url):
        with urlopen(url, timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
            text = answer.read().decode()
        assert text == (EXAMPLES / "shop.html").read_text(encoding="utf-8")
        # It is one file: it loads nothing.
        assert not re.search(r"\b(?:src|href)=[\"'](?!#|data:)|@import|https?://(?!www\.w3\.org/2000/svg)", text)
        assert rows(url, "items").keys() == STOCK.keys()

        def ask(path, body=None, **headers):
            try:
                with urlopen(Request(f"{url}{path}", body, headers), timeout=60) as answer:
                    return answer.status, json.load(answer)
            except HTTPError as refused:
                return refused.code, json.load(refused)

        deposit = b'{"customer": "ada", "amount": 10}'
        assert ask("/call/deposit", deposit, Origin=url)[0] == 200
        assert ask("/call/reserve", b"{}")[0] == 422
        status, refused = ask("/call/deposit", deposit, Origin="http://evil.example")
        assert status == 403 and "evil.example" in refused["error"]
        assert ask("/tables/items", Host="evil.example")[0] == 403
        assert [ask(path)[0] for path in ("/console", "/metrics", "/shop.py", "/../shop.py")] == [404] * 4
        assert ask("/console/savepoint", b"")[0] == ask("/query", b"select 1")[0] == 404
        with tm.connect(url, timeout=60) as client, client.follow("shelf.committed") as shelf:
            client.reserve(order="o1", customer="ada", lines=lines(mug=1))
            assert take(shelf, 1)[0]["reserved"] == 1
        server.kill()
        server.wait()
        assert ask("/tables/customers/ada") == (502, {"error": "the shop is not there"})


@contextmanager
def shown(folder, **replaced):
    """The shop and its page: where both are."""
    copy(folder, **replaced)
    with command(folder) as (_, shop), page(folder, shop) as (_, url):
        yield shop, url


def open_shop(browser, url, **window):
    browser.open(url, **window)
    browser.until("document.querySelectorAll('#items > li').length === 5")


def shows(browser, item, stock):
    """Waits until the stock of an item is shown."""
    shown = f"document.querySelector('#items [data-key={item}] .stock').innerText.trim().split(/\\s+/).join(' ')"
    browser.until(f"{shown} === {json.dumps(stock)}")


@needs_chromium
def test_a_customer_buys_on_the_page(tmp_path, browser):
    with shown(tmp_path) as (shop, url):
        open_shop(browser, url)
        browser.write("#customer", "ada")
        browser.click("Pay in")
        browser.until("document.querySelector('#balance strong').innerText === '100.00'")
        browser.click("Add lamp")
        browser.click("Add mug")
        browser.click("One more mug")
        assert browser.text("#total .number") == "46.90"
        browser.click("^Reserve$")
        browser.until("document.querySelector('#orders .badge').innerText === 'reserved'")
        assert browser.text("#basket") == ""
        assert re.match(r"[12]:\d\d to pay", browser.text("#orders .left"))
        assert browser.text("#orders .soft") == "1 × lamp, 2 × mug"
        browser.click("^Pay order")
        browser.until("document.querySelector('#orders .badge').innerText === 'paid'")
        browser.until("document.querySelector('#balance strong').innerText === '53.10'")
        assert "Paid 46.90" in browser.text("#said")
        assert (stock(shop, "lamp"), stock(shop, "mug")) == ((7, 0, 1), (28, 0, 2))
        browser.until("document.querySelector('#best').innerText.includes('2 sold')")
        assert browser.is_well()
        check_sums(shop, {}, 100)


@needs_chromium
def test_the_page_shows_what_others_do_and_why_it_is_refused(tmp_path, browser):
    with shown(tmp_path) as (shop, url), tm.connect(shop, timeout=60) as other:
        open_shop(browser, url)
        browser.write("#customer", "ada")
        browser.click("Pay in")
        browser.click("Add desk")
        browser.click("One more desk")
        other.deposit(customer="bob", amount=1000)
        other.reserve(order="bob1", customer="bob", lines=lines(desk=1))
        shows(browser, "desk", "1 left 1 reserved")
        browser.click("^Reserve$")
        browser.until("document.querySelector('#refused strong').innerText === 'sold out'")
        assert "Nothing of the basket was reserved" in browser.text("#said")
        other.push("deliveries", [{"id": "d1", "item": "desk", "quantity": 4}])
        shows(browser, "desk", "5 left 1 reserved")
        browser.click("^Reserve$")
        browser.click("^Pay order")
        browser.until("document.querySelector('#refused strong').innerText === 'balance is too low'")
        assert "bob1" not in browser.text("#orders")
        assert browser.is_well()


@needs_chromium
def test_a_reservation_expires_on_the_page(tmp_path, browser):
    with shown(tmp_path, hold=3) as (shop, url):
        open_shop(browser, url)
        browser.click("Pay in")
        browser.until("document.querySelector('#balance strong').innerText === '100.00'")
        browser.click("Add clock")
        browser.click("^Reserve$")
        browser.until("document.querySelector('#orders .badge').innerText === 'expired'")
        assert stock(shop, "clock") == (5, 0, 0)
        shows(browser, "clock", "5 left")
        assert browser.run("document.querySelector('#orders button').hidden")


@needs_chromium
def test_the_page_goes_on_after_a_kill(tmp_path, browser):
    copy(tmp_path)
    with command(tmp_path) as (server, shop), page(tmp_path, shop) as (_, url):
        open_shop(browser, url)
        browser.click("Pay in")
        browser.click("Add chair")
        browser.click("^Reserve$")
        browser.until("document.querySelector('#orders .badge').innerText === 'reserved'")
        server.kill()
        server.wait()
        browser.until("document.querySelector('#live').className === 'off'")
        browser.click("Pay in")
        browser.until("document.querySelector('#refused strong').innerText.length > 0")
        with command(tmp_path, port=shop.rpartition(":")[2]) as (_, again), tm.connect(again, timeout=60) as other:
            browser.until("document.querySelector('#live').innerText === 'live'")
            other.push("deliveries", [{"id": "d1", "item": "mug", "quantity": 12}])
            shows(browser, "mug", "42 left")
            browser.click("^Pay order")
            browser.until("document.querySelector('#orders .badge').innerText === 'paid'")
            check_sums(again, {"mug": 12}, 100)


MARKUP = "<img src=x onerror='document.title=1'>"


@needs_chromium
@pytest.mark.parametrize(("width", "theme"), [(1180, "light"), (360, "dark")])
def test_the_page_can_be_used_by_all(tmp_path, browser, width, theme):
    with shown(tmp_path) as (shop, url), tm.connect(shop, timeout=60) as other:
        other.deposit(customer=MARKUP, amount=500)
        other.reserve(order=MARKUP, customer=MARKUP, lines=lines(chair=1, lamp=1))
        open_shop(browser, url, width=width, height=760, theme=theme)
        browser.write("#customer", MARKUP)
        browser.until("document.querySelector('#orders h3').innerText.includes('onerror')")
        # Text is never markup.
        assert browser.text("#orders h3") == MARKUP
        assert browser.run("document.title + document.querySelectorAll('img').length") == "Shop0"
        # Nothing is wider than the window.
        assert browser.run("document.documentElement.scrollWidth") <= width
        # Each control has a name and is large enough for a finger.
        found = browser.send("Accessibility.getFullAXTree")["nodes"]
        controls = [node for node in found if node.get("role", {}).get("value") in ("button", "textbox")]
        assert len(controls) >= 7 and all(node["name"]["value"] for node in controls)
        small = (
            "[...document.querySelectorAll('button, input')].filter(b => b.offsetParent && b.offsetHeight < 40).length"
        )
        assert browser.run(small) == 0
        assert browser.run("document.querySelector('#said').ariaLive") == "polite"
        # The keyboard reaches the first item, and the focus stays where it is while the stock changes.
        browser.run("document.querySelector('#items button').focus()")
        other.push("deliveries", [{"id": "d1", "item": "lamp", "quantity": 90}])
        shows(browser, "lamp", "97 left 1 reserved")
        assert browser.run("document.activeElement.ariaLabel").startswith("Add ")
        assert browser.run(CONTRASTS) == []
