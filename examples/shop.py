"""An online shop: customers call it, the warehouse streams into it, and reservations expire by themselves.

    tidemill serve examples/shop.py --state examples/out/shop/state
    python examples/shop_page.py

The first command serves the shop's calls, the second one its page. A reservation takes items off the shelf,
all of an order or nothing. The customer pays within two minutes, or the items go back. Calls, deliveries and
expired reservations are one history over the same rows, so no item is sold twice. A reply comes when it is
durable: kill the server and start it again, and every order that was answered is there, once.
"""

import datasets
import tidemill as tm

HOLD = 120  # Seconds that a reservation lasts.

app = tm.App("shop")
out = datasets.out("shop")


class Item(tm.Row):
    """An item of the shop: how many are on the shelf, reserved, sold, and sold in the last ten minutes."""

    item: str = tm.key()
    price: tm.Decimal(8, 2) = 0
    left: int = 0
    reserved: int = 0
    sold: int = 0
    recent: int = 0


class Customer(tm.Row):
    """A customer's money."""

    name: str = tm.key()
    balance: tm.Decimal(10, 2) = 0


class Order(tm.Row):
    """The state of an order: ``reserved``, ``paid`` or ``expired``."""

    order: str = tm.key()
    customer: str = ""
    lines: int = 0
    total: tm.Decimal(10, 2) = 0
    until: tm.Time | None
    status: str = "reserved"


class Line(tm.Row):
    """Some of an item that an order has reserved. It is deleted when the order is paid or expires."""

    order: str = tm.key()
    item: str = tm.key()
    quantity: int = 0


class Deposit(tm.Event):
    """A call: a customer pays money in."""

    customer: str
    amount: tm.Decimal(8, 2)


class Wanted(tm.Event):
    """Some of an item, in a reservation."""

    item: str
    quantity: int


class Reservation(tm.Event):
    """A call: a customer wants all of these items, or none. The customer's program chooses the order's name."""

    at: tm.Time = tm.event_time()
    order: str
    customer: str
    lines: list[Wanted]


class Payment(tm.Event):
    """A call: a customer pays an order. It names the order's items, since the event says which rows are touched."""

    at: tm.Time = tm.event_time()
    order: str
    customer: str
    items: list[str]


class Delivery(tm.Event):
    """The warehouse has brought some of an item."""

    at: tm.Time = tm.event_time()
    id: str
    item: str
    quantity: int


GOODS = [("lamp", "29.90", 8), ("chair", "74.50", 6), ("desk", "189.00", 2), ("clock", "42.00", 5), ("mug", "8.50", 30)]

items = app.table(Item, rows=[{"item": item, "price": tm.Decimal(price), "left": left} for item, price, left in GOODS])
customers = app.table(Customer)
orders = app.table(Order)
lines = app.table(Line)
app.clock("1s")  # Time passes, and reservations expire, also while nobody calls.
# Clients feed these. Deposits, reservations and payments are called. Deliveries are pushed, as JSON lines.
deposits = app.requests(Deposit, remember="1d")  # Made again with its key, a deposit is answered and not paid in twice.
reservations = app.requests(Reservation)
payments = app.requests(Payment)
deliveries = app.requests(Delivery)


def show(item):
    tm.emit("shelf", {"item": item.item, "left": item.left, "reserved": item.reserved, "recent": item.recent})


@app.transaction(deposits)
def deposit(ev, customer=customers.row("customer", create=True)):
    tm.require(ev.amount > 0, "amount must be positive")
    customer.balance += ev.amount
    return {"customer": ev.customer, "balance": customer.balance}


@app.transaction(reservations)
def reserve(
    ev,
    order=orders.row("order", create=True),
    customer=customers.read("customer"),
    item=items.row("lines.item"),
    line=lines.row("order", "lines.item", create=True),
):
    tm.require(not order.exists, "order exists")
    tm.require(len(ev.lines) > 0, "basket is empty")
    until = ev.at + tm.seconds(HOLD)
    order.insert(customer=customer.name, lines=len(ev.lines), until=until)
    for wanted in ev.lines:
        tm.require(wanted.quantity > 0, "quantity must be positive")
        tm.require(not line.exists, "item is listed twice")
        tm.require(item.left >= wanted.quantity, "sold out")
        item.left -= wanted.quantity
        item.reserved += wanted.quantity
        order.total += item.price * wanted.quantity
        line.quantity = wanted.quantity
        line.wake(until)
        show(item)
    return {"at": ev.at, "order": ev.order, "total": order.total, "until": until}


@app.transaction(payments)
def pay(
    ev,
    order=orders.row("order"),
    customer=customers.row("customer"),
    item=items.row("items"),
    line=lines.row("order", "items"),
):
    tm.require(order.customer == ev.customer, "order of another customer")
    tm.require(order.status != "expired", "reservation has expired")
    tm.require(order.status != "paid", "order is paid already")
    tm.require(order.lines == len(ev.items), "items are not those of the order")
    tm.require(customer.balance >= order.total, "balance is too low")
    customer.balance -= order.total
    order.status = "paid"
    for name in ev.items:
        item.reserved -= line.quantity
        item.sold += line.quantity
        tm.emit("sale", {"at": ev.at, "item": name, "quantity": line.quantity})
        line.delete()  # It is not woken any more.
        show(item)
    return {"at": ev.at, "order": ev.order, "customer": ev.customer, "total": order.total, "left": customer.balance}


@app.transaction(lines.woken)
def expire(ev, line=lines.row("order", "item"), order=orders.row("order"), item=items.row("item")):
    item.reserved -= line.quantity
    item.left += line.quantity
    order.status = "expired"
    line.delete()
    show(item)
    return {"at": ev.at, "order": ev.order, "item": ev.item}


@app.transaction(deliveries.first("id", within="1d"))  # The warehouse sends again what it is not sure of.
def deliver(ev, item=items.row("item")):
    tm.require(ev.quantity > 0, "quantity must be positive")
    item.left += ev.quantity
    show(item)


@app.window(pay.emitted("sale"), by="item", over=tm.sliding("10m", every="10s"))
def sales(w):
    return {"at": w.end, "item": w.item, "sold": w.quantity.sum()}


@app.transaction(sales.closed)
def rise(ev, item=items.row("item")):
    item.recent = ev.sold
    item.wake(ev.at + tm.seconds(10))  # The next window with sales of it closes before.
    show(item)


@app.transaction(items.woken)
def fade(ev, item=items.row("item")):
    item.recent = 0
    show(item)


@app.transaction(*(change.emitted("shelf") for change in (reserve, pay, expire, deliver, rise, fade)))
def shelf(ev):
    pass


app.sink(pay.committed, tm.jsonl(out / "invoices.jsonl"))
app.sink(sales.closed.top(3, by="sold", per="at"), tm.jsonl(out / "best.jsonl"))
app.sink(expire.committed, tm.jsonl(out / "expired.jsonl"))
app.sink(reserve.aborted, tm.jsonl(out / "refused.jsonl"))
app.sink(deliver.aborted, tm.jsonl(out / "undelivered.jsonl"))
