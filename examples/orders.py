"""A shop: orders with several lines each, over stock and customers.

    tidemill run examples/orders.py

An order touches its customer's row and one row of stock per line, however many there are; if one line
cannot be had, nothing of the order happens. Prices change and shelves are filled between the orders,
from other files: all three are one stream in the order of their times.
"""

import datasets
import tidemill as tm

app = tm.App("orders")
out = datasets.out("orders")


class Item(tm.Row):
    """The number of an item on the shelf, and its price."""

    item: str = tm.key()
    left: int = 0
    price: tm.Decimal(8, 2) | None


class Customer(tm.Row):
    """The orders of a customer so far."""

    id: str = tm.key()
    orders: int = 0
    spent: tm.Decimal(12, 2) = 0


class Line(tm.Event):
    """Some of an item."""

    item: str
    quantity: int


class Order(tm.Event):
    """The items that a customer wants, all or nothing."""

    at: tm.Time = tm.event_time()
    id: int
    customer: str
    lines: list[Line]


class Restock(tm.Event):
    """Some of an item, put on the shelf."""

    at: tm.Time = tm.event_time()
    item: str
    quantity: int


class Price(tm.Event):
    """The price of an item from now on."""

    at: tm.Time = tm.event_time()
    item: str
    price: tm.Decimal(8, 2)


stock = app.table(Item, name="stock", rows=tm.jsonl(datasets.stock()))
customers = app.table(Customer)
orders = app.source(Order, tm.jsonl(datasets.orders()))
restocks = app.source(Restock, tm.jsonl(datasets.restocks()))
prices = app.source(Price, tm.jsonl(datasets.prices()))


@app.transaction(orders)
def order(ev, customer=customers.row("customer", create=True), items=stock.row("lines.item")):
    total = tm.Decimal("0.00")
    for line in ev.lines:
        tm.require(items.price is not None, "no price yet")
        tm.require(items.left >= line.quantity, "out of stock")
        items.left -= line.quantity
        total += items.price * line.quantity
    customer.orders += 1
    customer.spent += total
    return {"at": ev.at, "id": ev.id, "customer": ev.customer, "total": total}


@app.transaction(restocks)
def restock(ev, shelf=stock.row("item", create=True)):
    shelf.left += ev.quantity


@app.transaction(prices)
def reprice(ev, shelf=stock.row("item")):
    shelf.price = ev.price


app.sink(order.committed, tm.jsonl(out / "invoices.jsonl"))
app.sink(order.aborted, tm.jsonl(out / "refused.jsonl"))
app.sink(reprice.aborted, tm.jsonl(out / "unknown.jsonl"))
