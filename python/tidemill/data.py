"""What may stand for the events of a source or the rows of a table, as Arrow batches.

Arrow passes through untouched. Python records are turned into columns chunk by chunk; a record that
does not fit its schema is a bad record, not an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import _engine
from .errors import SchemaError
from .names import type_name
from .schema import FieldSpec, Record, RecordSchema
from .types import ListType

CHUNK_MAX = 8192
"""Most records of a chunk."""

ABSENT = ...
"""Stands in a column for a field that a record does not have."""


def is_arrow(value: object) -> bool:
    """Whether a value speaks the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def batches(data: object, schema: RecordSchema, name: str) -> Iterator[object]:
    """Arrow objects with all of the data. ``name`` is the source or table, for messages.

    Raises ``SchemaError`` where the data is nothing of what is allowed.
    """
    if is_arrow(data):
        return iter([data])
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise SchemaError(
            f"'{name}' cannot be read from {type_name(data)}",
            "give Arrow data, an iterable of Arrow batches, or an iterable of dicts",
        )
    return _from_iterable(iter(data), schema, name)


def _from_iterable(items: Iterator[object], schema: RecordSchema, name: str) -> Iterator[object]:
    first = 1
    for item in items:
        if is_arrow(item):
            yield item
            continue
        chunk = [item, *itertools.islice(_until_arrow(items), CHUNK_MAX - 1)]
        yield _engine.batch(schema.to_json(), _columns(chunk, schema), name, first)
        first += len(chunk)


def _until_arrow(items: Iterator[object]) -> Iterator[object]:
    for item in items:
        if is_arrow(item):
            raise SchemaError("Arrow batches and records are mixed in one iterable", "give one or the other")
        yield item


def _columns(chunk: list[object], schema: RecordSchema) -> list[list[object]]:
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
