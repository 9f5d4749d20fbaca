"""Streams of events that are picked out of others: the top of each instant, the first of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from . import ir
from .errors import PlanError
from .names import type_name
from .over import Length, duration_value
from .stream import Source, Stream

__all__ = ["first_definition", "late_inputs", "top_definition"]

ANY: ir.WindowsDef = {"counting": {"count": 1}}
"""Windows that do not matter."""


def top_definition(
    name: str, ref: ir.StreamRef, count: object, by: object, per: object, ties: object
) -> ir.TransactionDef:
    """The plan's ``TransactionDef``. Raises ``PlanError``."""
    place = f"window '{name}'"
    if isinstance(count, bool) or not isinstance(count, int):
        raise PlanError(f"{count!r} is not a number of events", "write bids.top(3, by='price')", place)
    hint = "write bids.top(3, by='price', per='at')"
    (value,) = _fields([by], hint, place)
    parts = [] if per is None else _fields(per, hint, place)
    if not isinstance(ties, bool):
        raise PlanError(f"ties={ties!r} is {type_name(ties)}", "write ties=True", place)
    top: ir.TopDef = {"count": count, "by": value, "ties": ties}
    return _definition(
        name,
        [ref],
        {"by": _parts(parts), "windows": ANY, "early": None, "every": None, "top": top, "first": None, "own": []},
    )


def late_inputs(name: str, stream: Stream[Any], late: object) -> list[ir.StreamRef]:
    """The late events that count beside those of a stream. Raises ``PlanError``."""
    place = f"window '{name}'"
    if not isinstance(late, bool):
        raise PlanError(f"late={late!r} is {type_name(late)}", "write late=True", place)
    if not late:
        return []
    if not isinstance(stream, Source):
        raise PlanError(f"'{stream.label}' is no source, and has no late events", "leave out late=True", place)
    return [stream.late._ref]


def first_definition(name: str, inputs: list[ir.StreamRef], by: object, within: Length) -> ir.TransactionDef:
    """The plan's ``TransactionDef``. Raises ``PlanError``."""
    parts = _fields(by, "write clicks.first('id', within='1h')", f"window '{name}'")
    span = duration_value(within, "first events", "the time")
    return _definition(
        name,
        inputs,
        {"by": _parts(parts), "windows": ANY, "early": None, "every": None, "top": None, "first": span, "own": []},
    )


def _definition(name: str, inputs: list[ir.StreamRef], over: ir.OverDef) -> ir.TransactionDef:
    return {"name": name, "inputs": inputs, "over": over, "join": None, "nested": False, "roles": [], "body": []}


def _fields(names: object, hint: str, place: str) -> list[ir.Expr]:
    """The values of a field, or of several."""
    several: Sequence[object] = list(names) if isinstance(names, (tuple, list)) else [names]
    for field in several:
        if not isinstance(field, str) or not field.isidentifier():
            raise PlanError(f"{field!r} is not the name of a field", hint, place)
    return [cast(ir.Expr, {"node": {"event": field}}) for field in several]


def _parts(values: list[ir.Expr]) -> list[tuple[str, ir.Expr]]:
    """The parts of a group, which nobody sees."""
    return [(f"part{number}", value) for number, value in enumerate(values)]
