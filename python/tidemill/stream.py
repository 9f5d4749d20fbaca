"""Streams: what flows between sources, filters, maps, transactions and sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import ir
from ._engine import declaration
from .connectors import Connector
from .errors import PlanError
from .names import collection_name
from .notebook import fields_html
from .over import Length
from .schema import Event, RecordSchema, Row

if TYPE_CHECKING:
    from .app import App
    from .table import Table

__all__ = ["Batches", "Clock", "Derived", "Source", "Stream", "StreamJoin", "StreamWindow", "Ticks", "Transaction"]

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Event)


class Stream(Generic[E]):
    """Events of one schema, in order. ``label`` is its name in messages and summaries."""

    def __init__(self, app: App, label: str, ref: ir.StreamRef, analyzed: str | None = None) -> None:
        self._app = app
        self.label = label
        self._ref = ref
        self._analyzed = analyzed or label
        """Its name in the analyzed plan, and so in a run."""

    def __repr__(self) -> str:
        return f"<stream {self.label}>"

    def _repr_html_(self) -> str:
        """Its fields, for notebooks."""
        time = self._app._plan.event_time(self._analyzed)
        return fields_html(repr(self), self._app._plan.schema(self._analyzed), {time: "event time"} if time else {})

    @overload
    def filter(
        self, predicate: Callable[[E], object], *, name: str | None = None, replace: bool = False
    ) -> Derived[E]: ...
    @overload
    def filter(
        self, predicate: Callable[..., object], *, name: str | None = None, replace: bool = False, **roles: Row
    ) -> Derived[E]: ...
    @declaration
    def filter(
        self, predicate: Callable[..., object], *, name: str | None = None, replace: bool = False, **roles: Row
    ) -> Derived[E]:
        """The events for which ``predicate``, a lambda or a def with one expression, is true.

        It is compiled from its syntax tree; raises ``CompileError`` where it cannot be. Events for
        which it fails (an overflow, say) go to ``.failed``. Another predicate under the same ``name`` is
        refused, or with ``replace=True`` takes the place of the first.

        ``roles`` are rows that it reads, each a further parameter of the predicate:
        ``orders.filter(lambda e, r: e.price <= r.price, r=rates.read("pair"))``. They are read at the event's position:
        as transactions on earlier events left them. Where a row is missing the event goes to ``.failed``, or with
        ``rates.read("pair", default=True)`` the row reads as the columns' defaults.
        """
        return self._app._derivation(self, roles, name, replace).filter(predicate)

    @overload
    def map(
        self, function: Callable[[E], object], *, name: str | None = None, replace: bool = False
    ) -> Derived[Any]: ...
    @overload
    def map(
        self, function: Callable[..., object], *, name: str | None = None, replace: bool = False, **roles: Row
    ) -> Derived[Any]: ...
    @declaration
    def map(
        self, function: Callable[..., object], *, name: str | None = None, replace: bool = False, **roles: Row
    ) -> Derived[Any]:
        """One new event, a dict or an instance of an event class, for each event.

        Compiled as ``filter`` is; events for which it fails go to ``.failed``. ``replace`` and ``roles`` are as for
        ``filter``: ``orders.map(lambda e, r: {"at": e.at, "value": e.amount * r.price}, r=rates.read("pair"))``.
        """
        return self._app._derivation(self, roles, name, replace).map(function)

    @declaration
    def top(
        self,
        count: int,
        *,
        by: str,
        per: str | Sequence[str] | None = None,
        ties: bool = False,
        name: str | None = None,
        replace: bool = False,
    ) -> Stream[E]:
        """The greatest events of each instant: those at whose positions the time is the same.

        ``by`` is a field, a number or a time. ``per`` says which events compete with each other: those with one value
        in a field, or in several; without it all of the instant do. The top comes when the instant is over, the
        greatest first; of equals the earlier is greater, and with ``ties`` all that are equal to the last come, too.
        NaN is in no top. Raises ``PlanError``.
        """
        return self._app._top(self, count, by, per, ties, name, replace)

    @declaration
    def first(
        self,
        by: str | Sequence[str],
        *,
        within: Length,
        late: bool = False,
        name: str | None = None,
        replace: bool = False,
    ) -> Stream[E]:
        """The events without their repeats: ``clicks.first("id", within="1h")``.

        ``by`` is a field, or several. An event is a repeat if an event with the same values was passed on less than
        ``within`` before it, by the time of positions; a plain number where the event time is an int. None is a value
        like others. With ``late`` the late events of a source count, too, where they stand: each event comes once,
        however late. Raises ``PlanError``.
        """
        return self._app._first(self, by, within, late, name, replace)

    @declaration
    def latest(self, by: str | Sequence[str], *, name: str | None = None, replace: bool = False) -> Table[Any]:
        """A table with the latest event of each value of ``by``, a field or several: ``quotes.latest("pair")``.

        It is for joins as of an event: ``trades.map(lambda t, q: {"at": t.at, "price": q.price},
        q=quotes.latest("pair").read("pair"))`` gives each trade the last quote that stands before it. The key is
        ``by``, the other columns are the other fields. A transaction of the table's name writes a row for each event,
        so an event with None in ``by`` counts there as aborted. Nothing deletes rows. Without a ``name`` the latest of
        one stream by the same fields are one table. Raises ``PlanError``.
        """
        return self._app._latest(self, by, name, replace)

    @declaration
    def batch(
        self,
        size: Length | None = None,
        *,
        over: Length | None = None,
        origin: Length = 0,
        name: str | None = None,
        replace: bool = False,
    ) -> Batches:
        """A source's events in atomic batches, each an event: ``votes.batch(10)``, ``votes.batch("1s")``.

        A batch has the fields ``batch``, its number from 1, and ``events``, a list of the source's events in their
        order: a transaction on it handles all of them or none. A number is that of the events in a batch; the batch
        stands directly behind its last event, and has the time of that under the name that it has there. A length of
        event time, as ``over`` a plain number where that is an int, makes a batch of the events of each interval that
        has any; it has ``start`` and ``end``, and stands at its end as a tumbling window closes. ``origin`` shifts the
        intervals. Late events are in no batch. Without a ``name`` batches of one kind are one stream.
        Raises ``PlanError``, also where the stream is no source.
        """
        return self._app._batch(self, size, over, origin, name, replace)


class Batches(Stream[Any]):
    """A stream of batches, made by ``source.batch``."""

    def __init__(self, app: App, name: str) -> None:
        super().__init__(app, name, {"named": name})
        self.name = name


class Derived(Stream[E]):
    """The stream of a filter or a map. With ``reads`` it reads rows, and is a transaction of the plan."""

    def __init__(self, app: App, name: str, reads: bool = False) -> None:
        ref: ir.StreamRef = {"committed": name} if reads else {"named": name}
        super().__init__(app, name, ref, f"{name}.committed" if reads else None)
        self._reads = reads

    @property
    def failed(self) -> Stream[Any]:
        """The input's fields and ``reason``, for events for which the expression failed. With roles also
        ``role.column`` of the values seen, as of an aborted transaction."""
        label = f"{self.label}.failed"
        if self._reads:
            return Stream(self._app, label, {"aborted": self.label}, f"{self.label}.aborted")
        return Stream(self._app, label, {"failed": self.label})


class Ticks(Stream[Any]):
    """A stream of ticks of event time, made by ``app.every``: events with the field ``at``, a ``tm.Time``, or an int
    where the period is one."""

    def __init__(self, app: App, name: str) -> None:
        super().__init__(app, name, {"named": name})
        self.name = name


class Source(Stream[E]):
    """A stream from outside, made by ``app.source``."""

    def __init__(
        self,
        app: App,
        name: str,
        schema: RecordSchema,
        connector: Connector | None,
        lateness: int,
        idle: int | None,
        anchored: bool = False,
        remembers: tuple[int, int | None] | None = None,
        ahead: ir.Ahead | None = None,
    ) -> None:
        super().__init__(app, name, {"named": name})
        self.name = name
        self._schema = schema
        self._connector = connector
        self._lateness = lateness
        self._idle = idle
        self._anchored = anchored
        self._remembers = remembers
        self._ahead = ahead

    def _definition(self) -> ir.StreamDef:
        """The plan's ``StreamDef``."""
        source: ir.Source = {
            "schema": self._schema.to_json(),
            "event_time": self._schema.event_time,
            "lateness": self._lateness,
            "anchored": self._anchored,
        }
        if self._remembers is not None:
            source["remembers"], keys = self._remembers
            if keys is not None:
                source["keys_max"] = keys
        if self._ahead is not None:
            source["ahead"] = self._ahead
        if callers := self._schema.callers:
            source["caller"] = callers
        return {"name": self.name, "origin": {"source": source}}

    @property
    def _brings_time(self) -> bool:
        """Returns whether its events have an event time of their own."""
        return self._schema.event_time is not None and not self._anchored

    @property
    def _brought(self) -> RecordSchema:
        """The fields of its events as they are sent or read."""
        schema = self._schema
        if not self._anchored:
            return schema
        return RecordSchema(schema.name, tuple(field for field in schema.fields if not field.event_time))

    @property
    def late(self) -> Stream[E]:
        """Events that came later than the source allows: for sinks, and an input like other streams. Each stands at the
        greatest time that the source had shown before it (docs/language.md)."""
        return Stream(self._app, f"{self.name}.late", {"late": self.name})

    @property
    def bad(self) -> Stream[Any]:
        """Records that could not be decoded: ``origin``, ``line``, ``column``, ``reason``, ``record``."""
        return Stream(self._app, f"{self.name}.bad", {"bad": self.name})


class Clock(Source[Any]):
    """A source of ticks of the machine's clock, made by ``app.clock``: events with the field ``at``, a ``tm.Time``."""


class Transaction:
    """A compiled transaction: what ``@app.transaction`` makes of a function."""

    def __init__(self, app: App, name: str, definition: ir.TransactionDef, function: Callable[..., Any]) -> None:
        self._app = app
        self.name = name
        self._definition = definition
        self._emits = ir.emitted_names(definition["body"])
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __repr__(self) -> str:
        return f"<transaction {self.name}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Refuses: a transaction runs on the events of its streams."""
        raise TypeError(f"transaction '{self.name}' is compiled and cannot be called; app.run() runs it")

    @property
    def committed(self) -> Stream[Any]:
        """The events that the body returned; its input events if it never returns one."""
        return Stream(self._app, f"{self.name}.committed", {"committed": self.name})

    @property
    def aborted(self) -> Stream[Any]:
        """The input's fields, ``reason``, and ``role.column`` of the values seen."""
        return Stream(self._app, f"{self.name}.aborted", {"aborted": self.name})

    def emitted(self, stream: str | type[F]) -> Stream[F]:
        """The events that the body emitted under a name, or of an event class. Raises ``PlanError`` if it
        never does."""
        name = stream if isinstance(stream, str) else collection_name(stream)
        if name not in self._emits:
            known = f"it emits {', '.join(self._emits)}" if self._emits else "its body has no tm.emit(...)"
            raise PlanError(f"nothing is emitted as '{name}'", known, f"transaction '{self.name}'")
        ref: ir.EmittedRef = {"emitted": {"transaction": self.name, "name": name}}
        return Stream(self._app, f"{self.name}.emitted.{name}", ref)


class _OverStreams:
    """A compiled function over streams, which the engine runs."""

    _kind: str

    def __init__(self, app: App, name: str, definition: ir.TransactionDef, function: Callable[..., Any]) -> None:
        self._app = app
        self.name = name
        self._definition = definition
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __repr__(self) -> str:
        return f"<{self._kind} {self.name}>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Refuses: the engine runs the function."""
        raise TypeError(f"{self._kind} '{self.name}' is compiled and cannot be called; app.run() runs it")


class StreamWindow(_OverStreams):
    """A compiled function of windows over a stream: what ``@app.window`` makes of a function."""

    _kind = "window"

    @property
    def closed(self) -> Stream[Any]:
        """The events that the function returned. If it never returns one, the closes: the parts of the group,
        ``start`` and ``end``."""
        return Stream(self._app, f"{self.name}.closed", {"committed": self.name})

    @property
    def failed(self) -> Stream[Any]:
        """The parts of the group, ``start``, ``end`` and ``reason``, for windows for which the function failed, or
        aborted with ``tm.require`` or ``tm.abort``."""
        return Stream(self._app, f"{self.name}.failed", {"aborted": self.name})

    @property
    def _has_own(self) -> bool:
        over = self._definition["over"]
        return over is not None and bool(over["own"])

    @property
    def refused(self) -> Stream[Any]:
        """The events that no window has, since an aggregate of the user's failed or aborted on them, and ``reason``.
        Raises ``PlanError`` where the function asks for no such aggregate."""
        if not self._has_own:
            hint = "only aggregates of your own refuse events: w.aggregate(Range)"
            raise PlanError("it refuses no events", hint, f"window '{self.name}'")
        return Stream(self._app, f"{self.name}.refused", {"aborted": f"{self.name}.add"})

    @property
    def _has_early(self) -> bool:
        over = self._definition["over"]
        return over is not None and over["early"] is not None

    def _early(self) -> str:
        if not self._has_early:
            hint = "give it windows with early=: tm.tumbling('1h', early='1m')"
            raise PlanError("it has no early results", hint, f"window '{self.name}'")
        return f"{self.name}.early"

    @property
    def early(self) -> Stream[Any]:
        """The events that the function returned before windows closed, each of what the window had then: events as of
        ``.closed``. Raises ``PlanError`` where the windows have no early results."""
        name = self._early()
        return Stream(self._app, name, {"committed": name})

    @property
    def early_failed(self) -> Stream[Any]:
        """As ``.failed``, of early results."""
        name = self._early()
        return Stream(self._app, f"{name}.failed", {"aborted": name})


class StreamJoin(_OverStreams):
    """A compiled function of a join of two streams: what ``@app.join`` makes of a function."""

    _kind = "join"

    @property
    def joined(self) -> Stream[Any]:
        """The events that the function returned, each at the position of the later event of its pair; what has no
        partner, when no event can be one any more."""
        return Stream(self._app, f"{self.name}.joined", {"committed": self.name})

    @property
    def failed(self) -> Stream[Any]:
        """For pairs for which the function failed, or aborted with ``tm.require`` or ``tm.abort``: the fields that it
        names, as ``p.id`` and ``a.seller``, the time ``at`` of the pair, and ``reason``."""
        return Stream(self._app, f"{self.name}.failed", {"aborted": self.name})
