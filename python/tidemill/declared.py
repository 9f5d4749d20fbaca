"""Values as they are declared, from what a server writes as JSON: decimals, instants and bytes as in ``mill.call``."""

from __future__ import annotations

import base64
import decimal
import functools
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

__all__ = ["Columns", "Types", "loads", "values"]

Convert = Callable[[Any], Any]
Columns = Mapping[str, str]
"""The types of values by name, in the words of a server."""


class _Digits(str):
    """A number with a fraction or an exponent, as it is written: it may be a decimal."""

    __slots__ = ()


def loads(text: str | bytes) -> Any:
    """JSON, in which numbers that are no ints keep their digits."""
    return json.loads(text, parse_float=_Digits)


class Types:
    """The types of an application that a server describes (``GET /``)."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._tables = cast("Mapping[str, Columns]", said.get("GET /tables/NAME[/KEY]", {}))
        self._streams = cast("Mapping[str, Columns]", said.get("GET /streams/NAME", {}))

    def of_committed(self, procedure: str) -> Columns:
        """Returns the types of the record that a transaction returns."""
        return self._streams.get(f"{procedure}.committed", {})

    def of_seen(self, procedure: str) -> Columns:
        """The values of rows that an abort shows."""
        return self._streams.get(f"{procedure}.aborted", {})

    def of_table(self, table: str) -> Columns:
        """The columns of a table."""
        return self._tables.get(table, {})

    def of_stream(self, stream: str) -> Columns:
        """The fields of a stream's events."""
        return self._streams.get(stream, {})


def values(types: Columns, said: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an object. One whose type is not known is as JSON has it."""
    return {name: None if value is None else _converter(types.get(name, ""))(value) for name, value in said.items()}


@functools.lru_cache(maxsize=1024)
def _converter(kind: str) -> Convert:
    kind = kind.removesuffix(" | None")
    if kind.startswith("list[{"):
        inner = dict(_members(kind[len("list[{") : -len("}]")]))
        return lambda items: [values(inner, item) for item in items]
    if kind.startswith("list["):
        item = _converter(kind[len("list[") : -1])
        return lambda items: [None if one is None else item(one) for one in items]
    if kind.startswith("Decimal("):
        return decimal.Decimal
    converters: dict[str, Convert] = {"float": float, "Time": _time, "bytes": base64.b64decode}
    return converters.get(kind, _plain)


def _members(text: str) -> list[tuple[str, str]]:
    """The members of a record: names with their types, which may have commas inside."""
    members, depth, start = [], 0, 0
    for place, sign in enumerate(text + ","):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            name, _, kind = text[start:place].strip().partition(": ")
            members.append((name, kind))
            start = place + 1
    return members


def _time(text: str) -> datetime | str:
    """An instant; the text of one that Python has no value for."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, _Digits):
        return float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
