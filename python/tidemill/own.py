"""Connectors that users write: subclasses of ``SourceConnector`` and ``SinkConnector``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from .connectors import Connector
from .data import batches, is_arrow
from .errors import SchemaError
from .names import type_name
from .schema import RecordSchema

__all__ = ["OpenSource", "SinkConnector", "SourceConnector"]


class SourceConnector(Connector):
    """A source of your own: write ``batches`` in a subclass, and give an instance to ``app.source``.

    With a state a source is read on where it was left: after a crash, after Ctrl-C, and tomorrow.
    """

    kind: ClassVar[str] = "a source connector"
    replays: ClassVar[bool] = True
    """A flag: whether ``batches(offset)`` gives the same events whenever it is asked for them. They are then read
    again after a crash. Otherwise the state keeps them."""

    def batches(self, after: str | None) -> Iterator[tuple[object, str | None]]:
        """Batches, each with the offset after it.

        ``after`` is the offset after which to begin: one that was given before, or None for the beginning. A batch is
        Arrow data, or a list of dicts or events; an empty one says that nothing has come. The end of the iterator is
        that of the input, with a state a pause: the next run asks for what comes after the last offset.

        An offset is a text. It may be None if ``replays`` is False: what a later run is given after None is
        new to it.
        """
        raise NotImplementedError(f"{type(self).__qualname__} needs a method batches(self, after)")

    def _open(self, schema: RecordSchema, name: str) -> OpenSource:
        return OpenSource(self, schema, name)


class SinkConnector(Connector):
    """A sink of your own: write ``write`` in a subclass, and give an instance to ``app.sink``.

    Without ``committed`` results of the last epochs are written again after a crash: at least once. With it each is
    written exactly once.
    """

    kind: ClassVar[str] = "a sink connector"
    state: str | None = None
    """Names the state of the run and the sink, once ``committed`` or ``write`` is called; None without a state.
    Another state counts epochs of its own, and so does one that was put back to a savepoint."""

    def write(self, batch: Any, epoch: int | None) -> None:
        """Stores the events of an epoch: Arrow data with ``to_pylist()``. What it raises stops the run.

        With a state the events are durable in the log, and are not written again once it has returned and ``epoch`` is
        the answer of ``committed``. Numbers of epochs increase; several epochs may be written together, under the
        number of the last. Without a state ``epoch`` is None.

        A sink with ``committed`` stores the events and the number in one transaction, also where there are no events.
        """
        raise NotImplementedError(f"{type(self).__qualname__} needs a method write(self, batch, epoch)")

    def committed(self) -> int | None:
        """The last epoch of ``self.state`` that is stored, or None. Asked once, when the run begins."""
        raise NotImplementedError(f"{type(self).__qualname__} needs a method committed(self)")


class OpenSource:
    """The source that the native module reads for a ``SourceConnector``."""

    def __init__(self, connector: SourceConnector, schema: RecordSchema, name: str) -> None:
        self.class_name = type(connector).__qualname__
        self.replays = bool(connector.replays)
        self._connector = connector
        self._schema = schema
        self._name = name

    def start(self, after: str | None) -> Iterator[tuple[list[object], str | None]]:
        """Arrow objects, and the offset after them. Raises ``SchemaError`` where something else is given."""
        for item in self._connector.batches(after):
            if not isinstance(item, tuple) or len(item) != 2:
                given = type_name(item)
                raise SchemaError(f"{self.class_name}.batches gave {given}", "yield a batch and the offset after it")
            batch, offset = item
            if not isinstance(offset, str) and (self.replays or offset is not None):
                hint = "an offset is a text" if offset is not None else "give an offset, or set replays = False"
                raise SchemaError(f"{self.class_name}.batches gave the offset {offset!r}", hint)
            if not is_arrow(batch) and not isinstance(batch, (list, tuple)):
                hint = "yield Arrow data, or a list of dicts or events"
                raise SchemaError(f"{self.class_name}.batches gave {type_name(batch)} as a batch", hint)
            yield list(batches(batch, self._schema, self._name)), offset
