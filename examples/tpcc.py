"""The order desk of a wholesaler: the tables of TPC-C and four of its five transactions, as calls.

    tidemill serve examples/tpcc.py --state examples/out/tpcc/state
    python examples/tpcc_data.py --small http://127.0.0.1:8740

The first command serves it, without rows. The second one fills it by pushes, makes some calls, and checks the
conditions that hold between the tables. Names and rules are those of TPC-C, revision 5.11: clause 1.3 has the tables,
2.4 New-Order, 2.5 Payment, 2.7 Delivery and 2.8 Stock-Level. Order-Status (2.6) is missing: its rows are chosen by
rows that are chosen themselves. ``bench/tpcc.py`` measures it beside PostgreSQL.

An order has the next number of its district, which is known when the transaction runs. So the rows of its lines are
named by a nested transaction, which takes the number from an event for each line: all commit, or none does.
"""

import tidemill as tm

DISTRICTS = 10  # Of a warehouse, by the specification.

app = tm.App("tpcc")


class Warehouse(tm.Row):
    """A warehouse: where it is, its sales tax, and what it was paid in the year."""

    w_id: int = tm.key()
    w_name: str
    w_street_1: str
    w_street_2: str
    w_city: str
    w_state: str
    w_zip: str
    w_tax: tm.Decimal(4, 4)
    w_ytd: tm.Decimal(12, 2)


class District(tm.Row):
    """A district of a warehouse, and the number of its next order."""

    d_w_id: int = tm.key()
    d_id: int = tm.key()
    d_name: str
    d_street_1: str
    d_street_2: str
    d_city: str
    d_state: str
    d_zip: str
    d_tax: tm.Decimal(4, 4)
    d_ytd: tm.Decimal(12, 2)
    d_next_o_id: int


class Customer(tm.Row):
    """A customer of a district. ``c_credit`` is GC or BC, good or bad."""

    c_w_id: int = tm.key()
    c_d_id: int = tm.key()
    c_id: int = tm.key()
    c_first: str
    c_middle: str
    c_last: str
    c_street_1: str
    c_street_2: str
    c_city: str
    c_state: str
    c_zip: str
    c_phone: str
    c_since: tm.Time
    c_credit: str
    c_credit_lim: tm.Decimal(12, 2)
    c_discount: tm.Decimal(4, 4)
    c_balance: tm.Decimal(12, 2)
    c_ytd_payment: tm.Decimal(12, 2)
    c_payment_cnt: int
    c_delivery_cnt: int
    c_data: str


class History(tm.Row):
    """A payment. The specification gives it no key; here that is the customer's, and the number of the payment."""

    h_c_w_id: int = tm.key()
    h_c_d_id: int = tm.key()
    h_c_id: int = tm.key()
    h_number: int = tm.key()
    h_w_id: int
    h_d_id: int
    h_date: tm.Time
    h_amount: tm.Decimal(6, 2)
    h_data: str


class Order(tm.Row):
    """An order. Its carrier is None until it is delivered."""

    o_w_id: int = tm.key()
    o_d_id: int = tm.key()
    o_id: int = tm.key()
    o_c_id: int
    o_entry_d: tm.Time
    o_carrier_id: int | None
    o_ol_cnt: int
    o_all_local: int


class NewOrder(tm.Row):
    """An order that is not delivered."""

    no_w_id: int = tm.key()
    no_d_id: int = tm.key()
    no_o_id: int = tm.key()


class OrderLine(tm.Row):
    """Some of an item, in an order."""

    ol_w_id: int = tm.key()
    ol_d_id: int = tm.key()
    ol_o_id: int = tm.key()
    ol_number: int = tm.key()
    ol_i_id: int
    ol_supply_w_id: int
    ol_delivery_d: tm.Time | None
    ol_quantity: int
    ol_amount: tm.Decimal(6, 2)
    ol_dist_info: str


class Item(tm.Row):
    """An item that all warehouses sell."""

    i_id: int = tm.key()
    i_im_id: int
    i_name: str
    i_price: tm.Decimal(5, 2)
    i_data: str


class Stock(tm.Row):
    """The shelf of an item in a warehouse."""

    s_w_id: int = tm.key()
    s_i_id: int = tm.key()
    s_quantity: int
    s_dist_01: str
    s_dist_02: str
    s_dist_03: str
    s_dist_04: str
    s_dist_05: str
    s_dist_06: str
    s_dist_07: str
    s_dist_08: str
    s_dist_09: str
    s_dist_10: str
    s_ytd: int
    s_order_cnt: int
    s_remote_cnt: int
    s_data: str


warehouses = app.table(Warehouse)
districts = app.table(District)
customers = app.table(Customer, indexes=[tm.index("c_w_id", "c_d_id", "c_last", "c_first")])
history = app.table(History, name="history")
orders = app.table(Order)
new_orders = app.table(NewOrder, indexes=[tm.index("no_w_id", "no_d_id", "no_o_id")])
order_lines = app.table(OrderLine, indexes=[tm.index("ol_w_id", "ol_d_id", "ol_o_id")])
items = app.table(Item)
stock = app.table(Stock, name="stock")


class Wanted(tm.Event):
    """A line of an order: its place, the item, the warehouse that supplies it, and how many."""

    number: int
    item: int
    supply: int
    quantity: int


class NewOrderCall(tm.Event):
    """A call: a customer of a district orders five to fifteen items."""

    w: int
    d: int
    c: int
    at: tm.Time
    lines: list[Wanted]


class PaymentCall(tm.Event):
    """A call: a customer of any warehouse, given by number or by last name, pays at a district."""

    w: int
    d: int
    cw: int
    cd: int
    c: int | None
    last: str | None
    amount: tm.Decimal(6, 2)
    at: tm.Time


class DeliveryCall(tm.Event):
    """A call: a carrier takes the oldest order of each district of a warehouse."""

    w: int
    carrier: int
    at: tm.Time


class StockLevelCall(tm.Event):
    """A call: how many items of the last twenty orders of a district are below a threshold in stock."""

    w: int
    d: int
    threshold: int


def dist_info(shelf, district):
    if district == 1:
        return shelf.s_dist_01
    if district == 2:
        return shelf.s_dist_02
    if district == 3:
        return shelf.s_dist_03
    if district == 4:
        return shelf.s_dist_04
    if district == 5:
        return shelf.s_dist_05
    if district == 6:
        return shelf.s_dist_06
    if district == 7:
        return shelf.s_dist_07
    if district == 8:
        return shelf.s_dist_08
    if district == 9:
        return shelf.s_dist_09
    return shelf.s_dist_10


def next_order(ev, district):
    return district.d_next_o_id


@app.transaction(app.requests(NewOrderCall))
def new_order(
    ev,
    warehouse=warehouses.read("w"),
    district=districts.row("w", "d"),
    customer=customers.read("w", "d", "c"),
    order=orders.row("w", "d", next_order),
    pending=new_orders.row("w", "d", next_order),
    item=items.read("lines.item"),
    shelf=stock.row("lines.supply", "lines.item"),
):
    o_id = district.d_next_o_id
    district.d_next_o_id += 1
    pending.insert()
    total = tm.Decimal("0.00")
    all_local = 1
    for line in ev.lines:
        tm.require(item.exists, "item number is not valid")
        shelf.s_quantity -= line.quantity
        if shelf.s_quantity < 10:
            shelf.s_quantity += 91
        shelf.s_ytd += line.quantity
        shelf.s_order_cnt += 1
        if line.supply != ev.w:
            shelf.s_remote_cnt += 1
            all_local = 0
        amount = item.i_price * line.quantity
        total += amount
        tm.emit(
            "line",
            {
                "w": ev.w,
                "d": ev.d,
                "o": o_id,
                "number": line.number,
                "item": line.item,
                "supply": line.supply,
                "quantity": line.quantity,
                "amount": amount,
                "info": dist_info(shelf, ev.d),
            },
        )
    order.insert(o_c_id=ev.c, o_entry_d=ev.at, o_ol_cnt=len(ev.lines), o_all_local=all_local)
    tax = 1 + warehouse.w_tax + district.d_tax
    return {
        "o_id": o_id,
        "c_last": customer.c_last,
        "c_credit": customer.c_credit,
        "total": round(total * (1 - customer.c_discount) * tax, 2),
    }


@app.transaction(new_order.emitted("line"), nested=True)
def enter(ev, line=order_lines.row("w", "d", "o", "number")):
    line.insert(
        ol_i_id=ev.item,
        ol_supply_w_id=ev.supply,
        ol_quantity=ev.quantity,
        ol_amount=ev.amount,
        ol_dist_info=ev.info,
    )


def book(ev, warehouse, district, customer, entry):
    warehouse.w_ytd += ev.amount
    district.d_ytd += ev.amount
    customer.c_balance -= ev.amount
    customer.c_ytd_payment += ev.amount
    customer.c_payment_cnt += 1
    if customer.c_credit == "BC":
        paid = f"{customer.c_id} {ev.cd} {ev.cw} {ev.d} {ev.w} {ev.amount}|{customer.c_data}"
        customer.c_data = paid[:500]
    data = f"{warehouse.w_name}    {district.d_name}"
    entry.insert(h_w_id=ev.w, h_d_id=ev.d, h_date=ev.at, h_amount=ev.amount, h_data=data)


@app.transaction(app.requests(PaymentCall))
def payment(
    ev,
    warehouse=warehouses.row("w"),
    district=districts.row("w", "d"),
    customer=customers.row("cw", "cd", "c"),
    entry=history.row("cw", "cd", "c", lambda e, customer: customer.c_payment_cnt + 1),
    named=customers.where(c_w_id="cw", c_d_id="cd", c_last="last").first("c_first", 1000),
    named_entry=history.row("named.c_w_id", "named.c_d_id", "named.c_id", lambda e, named: named.c_payment_cnt + 1),
):
    c_id = 0
    balance = tm.Decimal("0.00")
    if ev.last is None:
        book(ev, warehouse, district, customer, entry)
        c_id = customer.c_id
        balance = customer.c_balance
    else:
        tm.require(len(named) > 0, "no customer has this name")
        middle = (len(named) + 1) // 2
        place = 0
        for one in named:
            place += 1  # noqa: SIM113
            if place == middle:
                book(ev, warehouse, district, one, named_entry)
                c_id = one.c_id
                balance = one.c_balance
    return {"c_id": c_id, "c_balance": balance}


@app.transaction(app.requests(DeliveryCall))
def delivery(ev):
    for d in range(1, DISTRICTS + 1):
        tm.emit("district", {"w": ev.w, "d": d, "carrier": ev.carrier, "at": ev.at})
    return {"w": ev.w, "carrier": ev.carrier}


@app.transaction(delivery.emitted("district"), nested=True)
def take(
    ev,
    oldest=new_orders.where(no_w_id="w", no_d_id="d").first("no_o_id"),
    order=orders.row("oldest.no_w_id", "oldest.no_d_id", "oldest.no_o_id"),
):
    for pending in oldest:
        order.o_carrier_id = ev.carrier
        tm.emit("taken", {"w": ev.w, "d": ev.d, "o": pending.no_o_id, "c": order.o_c_id, "at": ev.at})
        pending.delete()


@app.transaction(take.emitted("taken"), nested=True)
def bill(
    ev,
    lines=order_lines.where(ol_w_id="w", ol_d_id="d", ol_o_id="o"),
    customer=customers.row("w", "d", "c"),
):
    for line in lines:
        line.ol_delivery_d = ev.at
        customer.c_balance += line.ol_amount
    customer.c_delivery_cnt += 1


@app.transaction(app.requests(StockLevelCall))
def stock_level(
    ev,
    district=districts.read("w", "d"),
    lines=order_lines.where(ol_w_id="w", ol_d_id="d")
    .between("ol_o_id", lambda e, district: district.d_next_o_id - 20)
    .first("ol_i_id", 300),
    shelf=stock.read("w", "lines.ol_i_id"),
):
    low = 0
    last = 0
    for line in lines:  # By item: one that is there again follows itself.
        if line.ol_i_id != last and shelf.s_quantity < ev.threshold:
            low += 1
        last = line.ol_i_id
    return {"low_stock": low}


def loads(row):
    """Returns a source of rows of a table. It has the table's columns as fields, and is fed by pushes."""
    event = type(f"Load{row.__name__}", (tm.Event,), {"__annotations__": dict(row.__annotations__)})
    return app.source(event, name=f"{row.__name__.lower()}_rows")


@app.transaction(loads(Warehouse))
def load_warehouse(ev, row=warehouses.row("w_id")):
    row.insert(
        w_name=ev.w_name,
        w_street_1=ev.w_street_1,
        w_street_2=ev.w_street_2,
        w_city=ev.w_city,
        w_state=ev.w_state,
        w_zip=ev.w_zip,
        w_tax=ev.w_tax,
        w_ytd=ev.w_ytd,
    )


@app.transaction(loads(District))
def load_district(ev, row=districts.row("d_w_id", "d_id")):
    row.insert(
        d_name=ev.d_name,
        d_street_1=ev.d_street_1,
        d_street_2=ev.d_street_2,
        d_city=ev.d_city,
        d_state=ev.d_state,
        d_zip=ev.d_zip,
        d_tax=ev.d_tax,
        d_ytd=ev.d_ytd,
        d_next_o_id=ev.d_next_o_id,
    )


@app.transaction(loads(Customer))
def load_customer(ev, row=customers.row("c_w_id", "c_d_id", "c_id")):
    row.insert(
        c_first=ev.c_first,
        c_middle=ev.c_middle,
        c_last=ev.c_last,
        c_street_1=ev.c_street_1,
        c_street_2=ev.c_street_2,
        c_city=ev.c_city,
        c_state=ev.c_state,
        c_zip=ev.c_zip,
        c_phone=ev.c_phone,
        c_since=ev.c_since,
        c_credit=ev.c_credit,
        c_credit_lim=ev.c_credit_lim,
        c_discount=ev.c_discount,
        c_balance=ev.c_balance,
        c_ytd_payment=ev.c_ytd_payment,
        c_payment_cnt=ev.c_payment_cnt,
        c_delivery_cnt=ev.c_delivery_cnt,
        c_data=ev.c_data,
    )


@app.transaction(loads(History))
def load_history(ev, row=history.row("h_c_w_id", "h_c_d_id", "h_c_id", "h_number")):
    row.insert(h_w_id=ev.h_w_id, h_d_id=ev.h_d_id, h_date=ev.h_date, h_amount=ev.h_amount, h_data=ev.h_data)


@app.transaction(loads(Order))
def load_order(ev, row=orders.row("o_w_id", "o_d_id", "o_id")):
    row.insert(
        o_c_id=ev.o_c_id,
        o_entry_d=ev.o_entry_d,
        o_carrier_id=ev.o_carrier_id,
        o_ol_cnt=ev.o_ol_cnt,
        o_all_local=ev.o_all_local,
    )


@app.transaction(loads(NewOrder))
def load_new_order(ev, row=new_orders.row("no_w_id", "no_d_id", "no_o_id")):
    row.insert()


@app.transaction(loads(OrderLine))
def load_order_line(ev, row=order_lines.row("ol_w_id", "ol_d_id", "ol_o_id", "ol_number")):
    row.insert(
        ol_i_id=ev.ol_i_id,
        ol_supply_w_id=ev.ol_supply_w_id,
        ol_delivery_d=ev.ol_delivery_d,
        ol_quantity=ev.ol_quantity,
        ol_amount=ev.ol_amount,
        ol_dist_info=ev.ol_dist_info,
    )


@app.transaction(loads(Item))
def load_item(ev, row=items.row("i_id")):
    row.insert(i_im_id=ev.i_im_id, i_name=ev.i_name, i_price=ev.i_price, i_data=ev.i_data)


@app.transaction(loads(Stock))
def load_stock(ev, row=stock.row("s_w_id", "s_i_id")):
    row.insert(
        s_quantity=ev.s_quantity,
        s_dist_01=ev.s_dist_01,
        s_dist_02=ev.s_dist_02,
        s_dist_03=ev.s_dist_03,
        s_dist_04=ev.s_dist_04,
        s_dist_05=ev.s_dist_05,
        s_dist_06=ev.s_dist_06,
        s_dist_07=ev.s_dist_07,
        s_dist_08=ev.s_dist_08,
        s_dist_09=ev.s_dist_09,
        s_dist_10=ev.s_dist_10,
        s_ytd=ev.s_ytd,
        s_order_cnt=ev.s_order_cnt,
        s_remote_cnt=ev.s_remote_cnt,
        s_data=ev.s_data,
    )
