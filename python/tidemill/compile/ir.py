"""The nodes of the plan, as the JSON that ``crates/plan/src/plan.rs`` reads. One function per node."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def expr(node: Any, span: Json) -> Json:
    """An expression with its place."""
    return {"node": node, "span": span}


def stmt(node: Any, span: Json) -> Json:
    """A statement with its place."""
    return {"node": node, "span": span}


def literal(value: Any, span: Json) -> Json:
    """A constant, given as a plan value."""
    return expr({"literal": value}, span)


def call(function: str, arguments: list[Json], span: Json) -> Json:
    """A built-in function."""
    return expr({"call": {"function": function, "arguments": arguments}}, span)


def unary(op: str, value: Json, span: Json) -> Json:
    """``-x`` or ``not x``."""
    return expr({"unary": {"op": op, "value": value}}, span)


def binary(op: str, left: Json, right: Json, span: Json) -> Json:
    """Arithmetic."""
    return expr({"binary": {"op": op, "left": left, "right": right}}, span)


def compare(op: str, left: Json, right: Json, span: Json) -> Json:
    """One comparison."""
    return expr({"compare": {"op": op, "left": left, "right": right}}, span)


def record(fields: list[tuple[str, Json]], schema: list[Json] | None = None, event_time: str | None = None) -> Json:
    """A new event."""
    return {"fields": [[name, value] for name, value in fields], "schema": schema, "event_time": event_time}


def for_each(variable: str, list_name: str, body: list[Json], span: Json) -> Json:
    """A loop over a list field."""
    return stmt({"for_each": {"variable": variable, "list": list_name, "body": body}}, span)


def insert(role: str, values: list[tuple[str, Json]], span: Json) -> Json:
    """Makes a role's row exist."""
    return stmt({"insert": {"role": role, "values": [[name, value] for name, value in values]}}, span)
