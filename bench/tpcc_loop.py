"""The calls of TPC-C as one would write them without a database: one thread, dicts of Python, nothing on the disk."""

from __future__ import annotations

import bisect
from collections import defaultdict
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from tpcc_data import COLUMNS, KEYS, Call, Scale, population

Row = dict[str, Any]


class Loop:
    """The tables, each a dict of rows by their keys, and the procedures."""

    def __init__(self, scale: Scale, seed: int = 1) -> None:
        self.tables: dict[str, dict[tuple[Any, ...], Row]] = {table: {} for table in COLUMNS}
        self._named: dict[tuple[int, int, str], list[tuple[str, int]]] = defaultdict(list)
        self._pending: dict[tuple[int, int], list[int]] = defaultdict(list)
        columns = {table: names.split() for table, names in COLUMNS.items()}
        for table, values in population(scale, seed):
            row: Row = dict(zip(columns[table], values, strict=True))
            self.tables[table][values[: KEYS[table]]] = row
            if table == "customers":
                named = self._named[row["c_w_id"], row["c_d_id"], row["c_last"]]
                bisect.insort(named, (row["c_first"], row["c_id"]))
            elif table == "new_orders":
                self._pending[row["no_w_id"], row["no_d_id"]].append(row["no_o_id"])

    def call(self, call: Call) -> Row | None:
        """Returns the reply of a call; None if it aborted."""
        reply: Row | None = getattr(self, call.procedure)(**call.fields)
        return reply

    def new_order(self, w: int, d: int, c: int, at: datetime, lines: list[Row]) -> Row | None:
        tables = self.tables
        # Nothing is written before it is known that all items are there, so nothing is undone.
        if any((line["item"],) not in tables["items"] for line in lines):
            return None
        district, customer = tables["districts"][w, d], tables["customers"][w, d, c]
        o = district["d_next_o_id"]
        district["d_next_o_id"] += 1
        total, local = Decimal(0), 1
        for line in lines:
            shelf, price = tables["stock"][line["supply"], line["item"]], tables["items"][line["item"],]["i_price"]
            left = shelf["s_quantity"] - line["quantity"]
            shelf["s_quantity"] = left + 91 if left < 10 else left
            shelf["s_ytd"] += line["quantity"]
            shelf["s_order_cnt"] += 1
            if line["supply"] != w:
                shelf["s_remote_cnt"] += 1
                local = 0
            amount = price * line["quantity"]
            total += amount
            values = (line["item"], line["supply"], None, line["quantity"], amount, shelf[f"s_dist_{d:02}"])
            self._insert("order_lines", w, d, o, line["number"], *values)
        self._insert("orders", w, d, o, c, at, None, len(lines), local)
        self._insert("new_orders", w, d, o)
        self._pending[w, d].append(o)
        tax = 1 + tables["warehouses"][w,]["w_tax"] + district["d_tax"]
        total = (total * (1 - customer["c_discount"]) * tax).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
        return {"o_id": o, "c_last": customer["c_last"], "c_credit": customer["c_credit"], "total": total}

    def payment(
        self, w: int, d: int, cw: int, cd: int, c: int | None, last: str | None, amount: Decimal, at: datetime
    ) -> Row:
        if c is None:
            named = self._named[cw, cd, last or ""]
            c = named[(len(named) + 1) // 2 - 1][1]
        warehouse, district = self.tables["warehouses"][w,], self.tables["districts"][w, d]
        customer = self.tables["customers"][cw, cd, c]
        warehouse["w_ytd"] += amount
        district["d_ytd"] += amount
        customer["c_balance"] -= amount
        customer["c_ytd_payment"] += amount
        customer["c_payment_cnt"] += 1
        if customer["c_credit"] == "BC":
            customer["c_data"] = f"{c} {cd} {cw} {d} {w} {amount}|{customer['c_data']}"[:500]
        data = f"{warehouse['w_name']}    {district['d_name']}"
        self._insert("history", cw, cd, c, customer["c_payment_cnt"], w, d, at, amount, data)
        return {"c_id": c, "c_balance": customer["c_balance"]}

    def delivery(self, w: int, carrier: int, at: datetime) -> Row:
        for d in range(1, 11):
            if not self._pending[w, d]:
                continue
            o = self._pending[w, d].pop(0)
            del self.tables["new_orders"][w, d, o]
            order = self.tables["orders"][w, d, o]
            order["o_carrier_id"] = carrier
            customer = self.tables["customers"][w, d, order["o_c_id"]]
            for number in range(1, order["o_ol_cnt"] + 1):
                line = self.tables["order_lines"][w, d, o, number]
                line["ol_delivery_d"] = at
                customer["c_balance"] += line["ol_amount"]
            customer["c_delivery_cnt"] += 1
        return {"w": w, "carrier": carrier}

    def stock_level(self, w: int, d: int, threshold: int) -> Row:
        end = self.tables["districts"][w, d]["d_next_o_id"]
        items = set()
        for o in range(max(1, end - 20), end):
            for number in range(1, self.tables["orders"][w, d, o]["o_ol_cnt"] + 1):
                items.add(self.tables["order_lines"][w, d, o, number]["ol_i_id"])
        return {"low_stock": sum(self.tables["stock"][w, item]["s_quantity"] < threshold for item in items)}

    def _insert(self, table: str, *values: object) -> None:
        row = dict(zip(COLUMNS[table].split(), values, strict=True))
        self.tables[table][values[: KEYS[table]]] = row
