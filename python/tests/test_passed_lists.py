"""Lists that a transaction passes on: later transactions, filters and maps open them as the first one did."""

import pytest

import tidemill as tm


class Line(tm.Event):
    item: str
    quantity: int


class Order(tm.Event):
    id: int
    customer: str
    lines: list[Line]
    tags: list[str]


class Stock(tm.Row):
    item: str = tm.key()
    left: int = 100


class Count(tm.Row):
    name: str = tm.key()
    n: int = 0


def order(number, quantities, tags=()):
    lines = [{"item": item, "quantity": quantity} for item, quantity in quantities.items()]
    return {"id": number, "customer": f"c{number % 2}", "lines": lines, "tags": list(tags)}


ORDERS = [order(1, {"a": 3, "b": 50}, ["new"]), order(2, {}), order(3, {"b": 60}, ["new", "big"]), order(4, {"a": 1})]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_list_that_was_passed_on_is_opened(nested, workers):
    app = tm.App("shop")
    stock, customers, tags = (
        app.table(Stock, name="stock"),
        app.table(Count, name="customers"),
        app.table(Count, name="tags"),
    )
    orders = app.source(Order)

    @app.transaction(orders)
    def accept(ev, customer=customers.row("customer", create=True)):
        customer.n += 1
        return {"id": ev.id, "parts": ev.lines, "tags": ev.tags}

    @app.transaction(accept.committed, nested=nested)
    def ship(ev, row=stock.row("parts.item", create=True)):
        total = 0
        for part in ev.parts:
            tm.require(row.left >= part.quantity, "out of stock")
            row.left -= part.quantity
            total += part.quantity
            tm.emit("shipped", {"item": part.item, "tags": ev.tags})
        return {"id": ev.id, "total": total, "lines": len(ev.parts), "tags": ev.tags}

    @app.transaction(ship.emitted("shipped"))
    def count(ev, tag=tags.row("tags", create=True)):
        for name in ev.tags:
            tag.n += len(name)
        return {"tags": ",".join(ev.tags)}

    tagged = ship.committed.filter(lambda e: len(e.tags) > 0).map(
        lambda e: {"id": e.id, "n": len(e.tags)}, name="tagged"
    )
    shipped, counted, many = (app.collect(stream) for stream in (ship.committed, count.committed, tagged))
    with app.start(workers=workers) as mill:
        mill.send(orders, ORDERS)
        mill.flush()
        tables = {name: mill.table(name).to_pylist() for name in ("stock", "tags", "customers")}
    read = {name: dict(tuple(row.values()) for row in rows) for name, rows in tables.items()}
    assert read["stock"] == {"a": 96, "b": 50}
    assert read["tags"] == {"new": 6}
    assert read["customers"] == ({"c1": 1, "c0": 2} if nested else {"c1": 2, "c0": 2})
    assert shipped.to_pylist() == [
        {"id": 1, "total": 53, "lines": 2, "tags": ["new"]},
        {"id": 2, "total": 0, "lines": 0, "tags": []},
        {"id": 4, "total": 1, "lines": 1, "tags": []},
    ]
    assert counted.to_pylist() == [{"tags": "new"}, {"tags": "new"}, {"tags": ""}]
    assert many.to_pylist() == [{"id": 1, "n": 1}]
