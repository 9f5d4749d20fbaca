"""Turns the data that a user gives for a source or a table into Arrow batches.

Arrow passes through untouched. Python records are turned into columns in batches: a list is cut into pieces,
an iterator's records are taken as they come. A record that does not fit its schema is a bad record, not an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _engine
from .connectors import Connector
from .errors import SchemaError
from .names import type_name
from .schema import FieldSpec, Record, RecordSchema
from .types import ListType

CHUNK_MAX = 8192
"""Most records of a chunk."""

ABSENT = ...
"""Stands in a column for a field that a record does not have."""


def is_arrow(value: object) -> bool:
    """Returns whether a value speaks the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def is_same(one: object, other: object) -> bool:
    """Returns whether two declarations were given the same data: one object, equal connectors, or equal lists of
    records."""
    if one is other:
        return True
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return all(isinstance(record, (dict, Record)) for record in (*one, *other)) and list(one) == list(other)
    return isinstance(one, Connector) and one == other


def batches(data: object, schema: RecordSchema, name: str) -> Iterator[object]:
    """Arrow objects with all of the data. ``name`` is the source or table, for messages.

    Raises ``SchemaError`` if the data has none of the allowed forms.
    """
    if is_arrow(data):
        return iter([data])
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise SchemaError(
            f"'{name}' cannot be read from {type_name(data)}",
            "give Arrow data, an iterable of Arrow batches, or an iterable of dicts",
        )
    if isinstance(data, (list, tuple)):
        return _from_list(data, schema, name)
    return _from_iterable(iter(data), schema, name)


class Records:
    """Records of an iterator, to be taken as it gives them: the native module pulls them one by one and makes a
    batch of those that have come, without waiting for the next one."""

    def __init__(self, items: Iterator[object], schema: RecordSchema, name: str) -> None:
        self._items = items
        self._schema = schema
        self._name = name
        self._next = 1

    def __iter__(self) -> Iterator[object]:
        return self._items

    def batch(self, records: Sequence[object]) -> object:
        """The next records of the iterator as a batch. Raises ``SchemaError`` where one is not a record."""
        first, self._next = self._next, self._next + len(records)
        return _batch(records, self._schema, self._name, first)


def _from_iterable(items: Iterator[object], schema: RecordSchema, name: str) -> Iterator[object]:
    """Arrow objects as they come. From the first record on there are records only."""
    for item in items:
        if not is_arrow(item):
            yield Records(itertools.chain([item], items), schema, name)
            return
        yield item


def _from_list(items: Sequence[object], schema: RecordSchema, name: str) -> Iterator[object]:
    """Yields the batches of a list, which nothing has to wait for."""
    if items and is_arrow(items[0]):
        yield from _from_iterable(iter(items), schema, name)
        return
    for start in range(0, len(items), CHUNK_MAX):
        yield _batch(items[start : start + CHUNK_MAX], schema, name, start + 1)


def _batch(records: Sequence[object], schema: RecordSchema, name: str, first: int) -> object:
    """A batch of records, numbered from ``first``. Raises ``SchemaError`` where one is not a record."""
    if any(is_arrow(record) for record in records):
        raise SchemaError("Arrow batches and records are mixed in one iterable", "give one or the other")
    return _engine.batch(schema.to_json(), _columns(records, schema), name, first)


def _columns(chunk: Sequence[object], schema: RecordSchema) -> list[list[object]]:
    return [[_value(record, spec) for record in chunk] for spec in schema.fields]


def _value(record: object, spec: FieldSpec) -> object:
    default = spec.default if spec.has_default else ABSENT
    if isinstance(record, Mapping):
        value = record.get(spec.name, default)
    elif isinstance(record, Record):
        value = getattr(record, spec.name, default)
    else:
        raise SchemaError(f"a record is {type_name(record)}", "give dicts or instances of the event class")
    if isinstance(spec.type, ListType) and isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_element(element, spec.type) for element in value]
    return value


def _element(element: object, ty: ListType) -> Any:
    """An element of a list: a tuple in the order of its columns, or a plain value."""
    if ty.element is None:
        return element
    if isinstance(element, Mapping):
        return tuple(element.get(name, ABSENT) for name, _ in ty.columns)
    if isinstance(element, Record):
        return tuple(getattr(element, name, ABSENT) for name, _ in ty.columns)
    return element
