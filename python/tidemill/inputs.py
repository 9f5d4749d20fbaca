"""The inputs that the engine reads sources and tables from, and the schemas of their records."""

from __future__ import annotations

from typing import Any

from ._engine import Input
from .connectors import Connector
from .data import batches
from .errors import PlanError
from .own import SourceConnector
from .schema import Record, RecordSchema, resolved_schema
from .stream import Stream

__all__ = ["declared_schema", "first_rows", "input_of", "kept_events"]


def input_of(given: object, schema: RecordSchema, name: str) -> Input:
    """Returns the input that the engine reads a source from, given what its user gave."""
    if isinstance(given, SourceConnector):
        return given._open(schema, name)
    return given._source_spec() if isinstance(given, Connector) else batches(given, schema, name)


def first_rows(rows: object, schema: RecordSchema, name: str) -> Input:
    """Returns the input that the engine reads the first rows of a table from."""
    if isinstance(rows, Connector) and not isinstance(rows, SourceConnector):
        return rows._table_spec()
    return input_of(rows, schema, name)


def declared_schema(cls: type[Record], base: type[Record], what: str, base_name: str) -> RecordSchema:
    """The schema of a class of the right kind. Raises ``PlanError``, and ``SchemaError`` where it cannot be one."""
    if not (isinstance(cls, type) and issubclass(cls, base)):
        shown = cls.__name__ if isinstance(cls, type) else repr(cls)
        raise PlanError(f"{shown} cannot be {what}", f"make it a subclass of {base_name}")
    return resolved_schema(cls)


def kept_events(stream: Stream[Any] | str, events: object) -> int:
    """Returns the number of events of a stream that are kept. Raises ``PlanError``."""
    if isinstance(events, bool) or not isinstance(events, int) or events < 1:
        label = stream if isinstance(stream, str) else stream.label
        raise PlanError(f"{events!r} is not a number of events to keep", "give an int from 1", f"stream '{label}'")
    return events
