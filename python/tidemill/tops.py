"""The top of each instant of a stream."""

from __future__ import annotations

from typing import cast

from . import ir
from .errors import PlanError
from .names import type_name

__all__ = ["top_definition"]


def top_definition(
    name: str, ref: ir.StreamRef, count: object, by: object, per: object, ties: object
) -> ir.TransactionDef:
    """The plan's ``TransactionDef``. Raises ``PlanError``."""
    place = f"window '{name}'"
    if isinstance(count, bool) or not isinstance(count, int):
        raise PlanError(f"{count!r} is not a number of events", "write bids.top(3, by='price')", place)
    parts = [] if per is None else list(per) if isinstance(per, (tuple, list)) else [per]
    for field in (by, *parts):
        if not isinstance(field, str) or not field.isidentifier():
            raise PlanError(f"{field!r} is not the name of a field", "write bids.top(3, by='price', per='at')", place)
    if not isinstance(ties, bool):
        raise PlanError(f"ties={ties!r} is {type_name(ties)}", "write ties=True", place)
    top: ir.TopDef = {"count": count, "by": _field(str(by)), "ties": ties}
    over: ir.OverDef = {
        "by": [(f"part{number}", _field(str(part))) for number, part in enumerate(parts)],
        "windows": {"counting": {"count": 1}},
        "early": None,
        "top": top,
    }
    return {"name": name, "inputs": [ref], "over": over, "join": None, "nested": False, "roles": [], "body": []}


def _field(name: str) -> ir.Expr:
    return cast(ir.Expr, {"node": {"event": name}})
