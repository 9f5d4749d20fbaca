"""The data of TPC-C: its first rows, the calls that terminals make, and the conditions that hold between the tables.

    python examples/tpcc_data.py --small [--calls 200] http://127.0.0.1:8740

It fills a served ``examples/tpcc.py``, makes calls, and checks the conditions. Clause 4.3 of the specification has the
first rows, 2.1.6 the uneven draws, 2.4.1, 2.5.1, 2.7.1 and 2.8.1 the calls, and 3.3.2 the conditions.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from itertools import islice
from typing import Any

import tidemill as tm

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
LETTERS = string.ascii_letters + string.digits
C_LOADED, C_RUN = 157, 223  # The constant C of uneven draws: between the two are 65 to 119, and neither 96 nor 112.
UNUSED_ITEM = 1 << 30


@dataclass(frozen=True)
class Scale:
    """Numbers of rows: those of the specification but for the number of warehouses."""

    warehouses: int = 1
    districts: int = 10
    customers: int = 3000
    items: int = 100_000

    @property
    def delivered(self) -> int:
        """The number of delivered orders among the first ones of a district, which are as many as its customers."""
        return self.customers * 7 // 10


SMALL = Scale(warehouses=2, districts=3, customers=30, items=100)

Row = tuple[object, ...]

COLUMNS = {
    "warehouses": "w_id w_name w_street_1 w_street_2 w_city w_state w_zip w_tax w_ytd",
    "districts": "d_w_id d_id d_name d_street_1 d_street_2 d_city d_state d_zip d_tax d_ytd d_next_o_id",
    "customers": "c_w_id c_d_id c_id c_first c_middle c_last c_street_1 c_street_2 c_city c_state c_zip c_phone c_since"
    " c_credit c_credit_lim c_discount c_balance c_ytd_payment c_payment_cnt c_delivery_cnt c_data",
    "history": "h_c_w_id h_c_d_id h_c_id h_number h_w_id h_d_id h_date h_amount h_data",
    "orders": "o_w_id o_d_id o_id o_c_id o_entry_d o_carrier_id o_ol_cnt o_all_local",
    "new_orders": "no_w_id no_d_id no_o_id",
    "order_lines": "ol_w_id ol_d_id ol_o_id ol_number ol_i_id ol_supply_w_id ol_delivery_d ol_quantity ol_amount"
    " ol_dist_info",
    "items": "i_id i_im_id i_name i_price i_data",
    "stock": "s_w_id s_i_id s_quantity s_dist_01 s_dist_02 s_dist_03 s_dist_04 s_dist_05 s_dist_06 s_dist_07 s_dist_08"
    " s_dist_09 s_dist_10 s_ytd s_order_cnt s_remote_cnt s_data",
}
"""The columns of each table, the key first."""

KEYS = {
    "warehouses": 1,
    "districts": 2,
    "customers": 3,
    "history": 4,
    "orders": 3,
    "new_orders": 3,
    "order_lines": 4,
    "items": 1,
    "stock": 2,
}
"""The number of columns of each key."""

SOURCES = {
    "warehouses": "warehouse_rows",
    "districts": "district_rows",
    "customers": "customer_rows",
    "history": "history_rows",
    "orders": "order_rows",
    "new_orders": "neworder_rows",
    "order_lines": "orderline_rows",
    "items": "item_rows",
    "stock": "stock_rows",
}
"""The sources of ``tpcc.py`` that the rows of each table are pushed into."""


class Dice:
    """The draws of the specification, from a seed."""

    def __init__(self, seed: int, constant: int) -> None:
        self._random = random.Random(seed)
        self._constant = constant
        self._letters = "".join(self._random.choices(LETTERS, k=1 << 16))
        self.chance = self._random.random
        self.permutation = self._random.sample

    def number(self, low: int, high: int) -> int:
        """Returns an even draw."""
        return low + int(self.chance() * (high - low + 1))

    def uneven(self, a: int, low: int, high: int) -> int:
        """Returns a draw by NURand (2.1.6); ``a`` is made as small as a smaller range wants it."""
        while a > high - low:
            a >>= 1
        drawn = (self.number(0, a) | self.number(low, high)) + self._constant % (a + 1)
        return drawn % (high - low + 1) + low

    def text(self, low: int, high: int | None = None) -> str:
        """Returns letters and digits, as many as drawn."""
        length = low if high is None else self.number(low, high)
        begin = int(self.chance() * ((1 << 16) - length))
        return self._letters[begin : begin + length]

    def cents(self, low: int, high: int) -> Decimal:
        """Returns an amount between two numbers of cents."""
        return Decimal(self.number(low, high)).scaleb(-2)

    def rate(self, high: int) -> Decimal:
        """Returns a share between 0 and so many ten-thousandths."""
        return Decimal(self.number(0, high)).scaleb(-4)

    def address(self) -> Row:
        """Returns two streets, a city, a state and a zip code."""
        street = self.text(10, 20)
        return street, self.text(10, 20), self.text(10, 20), self.text(2), f"{self.number(0, 9999):04}11111"

    def data(self) -> str:
        """Returns a text that says ORIGINAL in one of ten cases."""
        text = self.text(26, 50)
        if self.chance() >= 0.1:
            return text
        place = self.number(0, len(text) - 8)
        return text[:place] + "ORIGINAL" + text[place + 8 :]


def last_name(number: int) -> str:
    """Returns the name of three syllables for a number below 1,000."""
    return SYLLABLES[number // 100] + SYLLABLES[number // 10 % 10] + SYLLABLES[number % 10]


def population(scale: Scale, seed: int = 1) -> Iterator[tuple[str, Row]]:
    """The first rows: the name of a table, and the values of its columns."""
    dice = Dice(seed, C_LOADED)
    for i in range(1, scale.items + 1):
        yield "items", (i, dice.number(1, 10_000), dice.text(14, 24), dice.cents(100, 10_000), dice.data())
    for w in range(1, scale.warehouses + 1):
        payments = Decimal(10 * scale.customers)
        yield "warehouses", (w, dice.text(6, 10), *dice.address(), dice.rate(2000), payments * scale.districts)
        for i in range(1, scale.items + 1):
            infos = (dice.text(24) for _ in range(10))
            yield "stock", (w, i, dice.number(10, 100), *infos, 0, 0, 0, dice.data())
        for d in range(1, scale.districts + 1):
            next_order = scale.customers + 1
            yield "districts", (w, d, dice.text(6, 10), *dice.address(), dice.rate(2000), payments, next_order)
            yield from _customers(dice, scale, w, d)
            yield from _orders(dice, scale, w, d)


def _customers(dice: Dice, scale: Scale, w: int, d: int) -> Iterator[tuple[str, Row]]:
    for c in range(1, scale.customers + 1):
        last = last_name(c - 1 if c <= 1000 else dice.uneven(255, 0, 999))
        name = (dice.text(8, 16), "OE", last)
        credit = "BC" if dice.chance() < 0.1 else "GC"
        limit, balance, paid = Decimal(50_000), Decimal(-10), Decimal(10)
        reached = (*dice.address(), "".join(random.Random(c).choices(string.digits, k=16)), START)
        money = (credit, limit, dice.rate(5000), balance, paid)
        yield "customers", (w, d, c, *name, *reached, *money, 1, 0, dice.text(300, 500))
        yield "history", (w, d, c, 1, w, d, START, paid, dice.text(12, 24))


def _orders(dice: Dice, scale: Scale, w: int, d: int) -> Iterator[tuple[str, Row]]:
    customers = dice.permutation(range(1, scale.customers + 1), scale.customers)
    for o, c in enumerate(customers, 1):
        delivered = o <= scale.delivered
        count = dice.number(5, 15)
        yield "orders", (w, d, o, c, START, dice.number(1, 10) if delivered else None, count, 1)
        if not delivered:
            yield "new_orders", (w, d, o)
        for number in range(1, count + 1):
            item = dice.number(1, scale.items)
            amount = Decimal(0) if delivered else dice.cents(1, 999_999)
            line = (item, w, START if delivered else None, 5, amount, dice.text(24))
            yield "order_lines", (w, d, o, number, *line)


def load(push: Callable[[str, list[dict[str, object]]], object], scale: Scale, seed: int = 1, size: int = 500) -> int:
    """Pushes the first rows into the sources of ``tpcc.py``, so many at a time. Returns their number."""
    waiting: dict[str, list[dict[str, object]]] = {table: [] for table in COLUMNS}
    columns = {table: names.split() for table, names in COLUMNS.items()}
    count = 0
    for table, row in population(scale, seed):
        rows = waiting[table]
        rows.append(dict(zip(columns[table], row, strict=True)))
        count += 1
        if len(rows) == size:
            push(SOURCES[table], rows)
            waiting[table] = []
    for table, rows in waiting.items():
        if rows:
            push(SOURCES[table], rows)
    return count


@dataclass(frozen=True)
class Call:
    """A call: the name of the procedure, and its fields in their order."""

    procedure: str
    fields: dict[str, Any]


class Terminal:
    """The calls of one terminal, of its own warehouse. A seed gives the same calls but for their time."""

    def __init__(
        self, scale: Scale, seed: int, warehouse: int | None = None, mix: dict[str, int] | None = None
    ) -> None:
        """``mix`` has the weights of the procedures."""
        self._scale = scale
        self._dice = Dice(seed, C_RUN)
        self._warehouse = warehouse or seed % scale.warehouses + 1
        weights = mix or MIX
        self._cards = [name for name, weight in weights.items() for _ in range(weight)]

    def __iter__(self) -> Iterator[Call]:
        while True:
            yield self.next()

    def next(self) -> Call:
        """Returns the next call."""
        name = self._cards[self._dice.number(0, len(self._cards) - 1)]
        fields: dict[str, Any] = getattr(self, f"_{name}")()
        return Call(name, fields)

    def _other(self) -> int:
        """Returns another warehouse, or the only one."""
        other = self._dice.number(1, max(1, self._scale.warehouses - 1))
        return other + 1 if other >= self._warehouse and self._scale.warehouses > 1 else other

    def _district(self) -> int:
        return self._dice.number(1, self._scale.districts)

    def _customer(self) -> int:
        return self._dice.uneven(1023, 1, self._scale.customers)

    def _new_order(self) -> dict[str, Any]:
        dice = self._dice
        fields: dict[str, Any] = {"w": self._warehouse, "d": self._district(), "c": self._customer(), "at": _now()}
        count = dice.number(5, 15)
        wrong = dice.chance() < 0.01
        lines = [
            {
                "number": number,
                "item": UNUSED_ITEM if wrong and number == count else dice.uneven(8191, 1, self._scale.items),
                "supply": self._other() if dice.chance() < 0.01 else self._warehouse,
                "quantity": dice.number(1, 10),
            }
            for number in range(1, count + 1)
        ]
        return {**fields, "lines": lines}

    def _payment(self) -> dict[str, Any]:
        dice = self._dice
        fields: dict[str, Any] = {"w": self._warehouse, "d": self._district()}
        remote = dice.chance() < 0.15
        fields["cw"] = self._other() if remote else self._warehouse
        fields["cd"] = self._district() if remote else fields["d"]
        names = min(999, self._scale.customers - 1)
        by_name = dice.chance() < 0.6
        fields["c"] = None if by_name else self._customer()
        fields["last"] = last_name(dice.uneven(255, 0, names)) if by_name else None
        return {**fields, "amount": dice.cents(100, 500_000), "at": _now()}

    def _delivery(self) -> dict[str, Any]:
        return {"w": self._warehouse, "carrier": self._dice.number(1, 10), "at": _now()}

    def _stock_level(self) -> dict[str, Any]:
        return {"w": self._warehouse, "d": self._district(), "threshold": self._dice.number(10, 20)}


MIX = {"new_order": 45, "payment": 43, "delivery": 4, "stock_level": 4}
"""The weights of the procedures: those of the specification, without the four hundredths of Order-Status."""


def _now() -> datetime:
    return datetime.now(timezone.utc)


def literal(value: object) -> str | None:
    """Returns a field as the text that it has in a message of PostgreSQL."""
    if value is None:
        return None
    return json.dumps(value) if isinstance(value, list) else str(value)


# Each gives the rows that break a condition of 3.3.2. The last but one is that of a database in which orders were
# delivered: the specification has it for one in which none were.
_PER_DISTRICT = "d.d_w_id = x.w and d.d_id = x.d"
CONDITIONS = {
    1: """select w_id from warehouses left join
        (select d_w_id as w, sum(d_ytd) as total from districts group by d_w_id) x on x.w = w_id
        where x.total is null or w_ytd <> x.total""",
    2: f"""select d_w_id, d_id from districts d left join
        (select o_w_id as w, o_d_id as d, max(o_id) as last from orders group by o_w_id, o_d_id) x on {_PER_DISTRICT}
        left join (select no_w_id as w, no_d_id as d, max(no_o_id) as last from new_orders group by no_w_id, no_d_id) n
        on d.d_w_id = n.w and d.d_id = n.d
        where x.last is null or d_next_o_id - 1 <> x.last or d_next_o_id - 1 <> n.last""",
    3: """select no_w_id, no_d_id from new_orders group by no_w_id, no_d_id
        having max(no_o_id) - min(no_o_id) + 1 <> count(*)""",
    4: """select o.w, o.d from
        (select o_w_id as w, o_d_id as d, sum(o_ol_cnt) as lines from orders group by o_w_id, o_d_id) o left join
        (select ol_w_id as w, ol_d_id as d, count(*) as lines from order_lines group by ol_w_id, ol_d_id) l
        on o.w = l.w and o.d = l.d where l.lines is null or o.lines <> l.lines""",
    5: """select o_w_id, o_d_id, o_id from orders left join new_orders
        on o_w_id = no_w_id and o_d_id = no_d_id and o_id = no_o_id
        where (o_carrier_id is null) <> (no_o_id is not null)
        union all select no_w_id, no_d_id, no_o_id from new_orders left join orders
        on o_w_id = no_w_id and o_d_id = no_d_id and o_id = no_o_id where o_id is null""",
    6: """select o_w_id, o_d_id, o_id from orders left join
        (select ol_w_id, ol_d_id, ol_o_id, count(*) as lines from order_lines group by ol_w_id, ol_d_id, ol_o_id) l
        on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id where lines is null or lines <> o_ol_cnt""",
    7: """select ol_w_id, ol_d_id, ol_o_id, ol_number from order_lines left join orders
        on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id
        where o_id is null or (ol_delivery_d is null) <> (o_carrier_id is null)""",
    8: """select w_id from warehouses left join
        (select h_w_id as w, sum(h_amount) as total from history group by h_w_id) x on x.w = w_id
        where x.total is null or w_ytd <> x.total""",
    9: f"""select d_w_id, d_id from districts d left join
        (select h_w_id as w, h_d_id as d, sum(h_amount) as total from history group by h_w_id, h_d_id) x
        on {_PER_DISTRICT} where x.total is null or d_ytd <> x.total""",
    10: """select c_w_id, c_d_id, c_id from customers
        left join (select o_w_id, o_d_id, o_c_id, sum(ol_amount) as bought from orders join order_lines
            on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id
            where ol_delivery_d is not null group by o_w_id, o_d_id, o_c_id) b
            on c_w_id = o_w_id and c_d_id = o_d_id and c_id = o_c_id
        left join (select h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) as paid from history
            group by h_c_w_id, h_c_d_id, h_c_id) p on c_w_id = h_c_w_id and c_d_id = h_c_d_id and c_id = h_c_id
        where c_balance <> coalesce(bought, 0) - coalesce(paid, 0)""",
    11: f"""select d_w_id, d_id from districts d
        left join (select o_w_id as w, o_d_id as d, count(*) as n from orders group by o_w_id, o_d_id) x
            on {_PER_DISTRICT}
        left join (select no_w_id as w, no_d_id as d, count(*) as n from new_orders group by no_w_id, no_d_id) p
            on d.d_w_id = p.w and d.d_id = p.d
        left join (select c_w_id as w, c_d_id as d, sum(c_delivery_cnt) as n from customers group by c_w_id, c_d_id) c
            on d.d_w_id = c.w and d.d_id = c.d
        where coalesce(x.n, 0) - coalesce(p.n, 0) - coalesce(c.n, 0) <> {{delivered}}""",
    12: """select c_w_id, c_d_id, c_id from customers
        left join (select o_w_id, o_d_id, o_c_id, sum(ol_amount) as bought from orders join order_lines
            on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id
            where ol_delivery_d is not null group by o_w_id, o_d_id, o_c_id) b
            on c_w_id = o_w_id and c_d_id = o_d_id and c_id = o_c_id
        where c_balance + c_ytd_payment <> coalesce(bought, 0)""",
}


def broken(count: Callable[[str], int], scale: Scale) -> dict[int, int]:
    """The conditions that do not hold, with the number of rows that break them. ``count`` answers a query by a number.

    The same SQL is asked of Tidemill and of PostgreSQL.
    """
    found = {
        number: count(f"select count(*) as broken from ({query.format(delivered=scale.delivered)}) q")
        for number, query in CONDITIONS.items()
    }
    return {number: rows for number, rows in found.items() if rows}


def main() -> int:
    """Fills a server, makes calls, and checks the conditions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="of the server, such as http://127.0.0.1:8740")
    parser.add_argument("--small", action="store_true", help="two warehouses with few rows")
    parser.add_argument("--warehouses", type=int, default=1, help="without --small")
    parser.add_argument("--calls", type=int, default=200, help="made one after the other")
    given = parser.parse_args()
    scale = SMALL if given.small else Scale(given.warehouses)
    with tm.connect(given.url, timeout=600) as client:
        if not client.rows("warehouses"):
            print(f"{load(lambda source, rows: client.push(source, rows), scale):,} rows")
        aborted = 0
        for call in islice(Terminal(scale, seed=1), given.calls):
            try:
                client.call(call.procedure, **call.fields)
            except tm.Aborted:
                aborted += 1
        print(f"{given.calls:,} calls, {aborted:,} aborted")
        found = broken(lambda query: int(client.sql(query)[0]["broken"]), scale)
        print(f"conditions broken: {found}" if found else f"{len(CONDITIONS)} conditions hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
