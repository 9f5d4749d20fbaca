"""Applications: the declarations of a program, and how it is run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypeVar, cast, overload

from . import _engine, ir
from ._engine import COLLECT, SENT, Input, Job, Outcome, Output, declaration, is_same_output
from .batches import add_batches, batch_size
from .clocks import check_times, period_of, tick_schema
from .compile import Compiled, Joined, Over, compile_conversions, compile_join, compile_transaction, compile_window
from .connectors import Connector, MachineClock
from .data import is_same
from .deriving import Derivation, check_nested, taken
from .errors import PlanError, RunError
from .inputs import declared_schema, first_rows, input_of, kept_events
from .joins import How, On, joining
from .lateness import Duration, Lateness, ahead_of, idle_of, lateness_of, remember_of
from .latest import add_latest
from .names import checked, collection_name, foreign, type_name
from .notebook import table_html
from .opened import Opened
from .options import Epoch, Logging, Path, Proof, RunOptions, Sync
from .over import By, Length, Windows, duration_value, expiry, offset, parts_of
from .own import SinkConnector
from .picked import first_definition, late_inputs, top_definition
from .plan import PlanBuilder
from .results import Collected
from .schema import MISSING, Event, Row
from .selection import Index, indexed
from .serving import Place, serve
from .session import Session
from .stream import Batches, Clock, Derived, Source, Stream, StreamJoin, StreamWindow, Ticks, Transaction
from .summary import RunSummary
from .table import Table

__all__ = ["App"]

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=Row)

SinkFunction = Callable[[Any], object]
"""Takes an Arrow batch (an object with ``__arrow_c_array__``) per epoch."""

Data = Mapping[str, object] | Mapping[Source[Any], object] | Mapping[str | Source[Any], object]
"""The events of sources, by the source or its name."""


class App:
    """A program: tables, sources, transactions and sinks. ``name`` appears in logs and summaries.

    Declarations are checked as they are made. Names default to the plural of the class in snake case
    (``Transfer``: ``transfers``) and to the function's for transactions.

    What is declared a second time as it was is the same: a notebook's cell may run again. What is declared
    otherwise under the same name is refused, unless ``replace=True`` says that it takes the place of the first.

    ``version`` is that of the schema: raise it when tables or events change, and the next run migrates a state
    where that loses nothing (docs/recovery.md).
    """

    def __init__(self, name: str, *, version: int = 1) -> None:
        if not isinstance(name, str) or not name:
            raise PlanError(f"{name!r} is not a name for an application", "write tm.App('bank')")
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 2**63:
            raise PlanError(f"{version!r} is not a version of a schema", "give a number from 1, and raise it")
        self.name = name
        self.version = version
        self._plan = PlanBuilder(name, version)
        self._tables: dict[str, Table[Any]] = {}
        self._sources: dict[str, Source[Any]] = {}
        self._derived: dict[str, Derived[Any]] = {}
        self._ticks: dict[str, Ticks] = {}
        self._batches: dict[str, Batches] = {}
        self._transactions: dict[str, Transaction] = {}
        self._windows: dict[str, StreamWindow] = {}
        self._joins: dict[str, StreamJoin] = {}
        self._picked: dict[str, Stream[Any]] = {}
        self._sinks: dict[str, Output] = {}
        self._collected: dict[str, Collected] = {}

    def __repr__(self) -> str:
        return f"<app {self.name}>"

    def _repr_html_(self) -> str:
        """Its declarations, for notebooks."""
        kinds: dict[str, Collection[str]] = {
            "table": self._tables,
            "source": self._sources,
            "stream": [*self._derived, *self._ticks, *self._batches, *self._picked],
            "transaction": self._transactions,
            "window": self._windows,
            "join": self._joins,
            "sink": [name for name, _ in self._plan.sinks()],
        }
        rows = [(kind, name) for kind, names in kinds.items() for name in names]
        return table_html(repr(self), ("kind", "name"), rows)

    @property
    def tables(self) -> Mapping[str, Table[Any]]:
        """The tables by name."""
        return dict(self._tables)

    @property
    def sources(self) -> Mapping[str, Source[Any]]:
        """The sources by name."""
        return dict(self._sources)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The transactions by name."""
        return dict(self._transactions)

    @property
    def windows(self) -> Mapping[str, StreamWindow]:
        """The functions of windows by name."""
        return dict(self._windows)

    @property
    def joins(self) -> Mapping[str, StreamJoin]:
        """The functions of joins by name."""
        return dict(self._joins)

    def streams(self) -> list[Stream[Any]]:
        """All streams: of sources, ticks, filters, maps, transactions, windows and joins, what each of these puts
        aside, and those of tables."""
        streams: list[Stream[Any]] = []
        for source in self._sources.values():
            streams += [source, source.late, source.bad]
        streams += self._ticks.values()
        streams += self._batches.values()
        for derived in self._derived.values():
            streams += [derived, derived.failed]
        for transaction in self._transactions.values():
            streams += [transaction.committed, transaction.aborted]
            streams += [transaction.emitted(name) for name in transaction._emits]
        for window in self._windows.values():
            streams += [window.closed, window.failed]
            streams += [window.early, window.early_failed] if window._has_early else []
            streams += [window.refused] if window._has_own else []
        for join in self._joins.values():
            streams += [join.joined, join.failed]
        streams += self._picked.values()
        of_tables = [stream for table in self.tables.values() for stream in table._streams()]
        return streams + [stream for stream in of_tables if self._plan.schema(stream.label) is not None]

    # Declarations.

    @declaration
    def table(
        self,
        row: type[R],
        name: str | None = None,
        rows: object = None,
        *,
        indexes: Iterable[Index] = (),
        changes: bool = False,
        was: str | None = None,
        expire: Length | None = None,
        replace: bool = False,
    ) -> Table[R]:
        """A shared table of the rows of a class with at least one ``tm.key()``.

        ``rows`` is its content when a run begins: a connector (``tm.csv(...)``), Arrow data, or an
        iterable of dicts. ``indexes`` are columns by which rows are found (``tm.index``). With ``changes`` the
        stream ``table.changes`` has what is written to it. ``was`` is its name in an earlier version of the schema:
        a state that has no table of this name migrates that one. With ``expire`` rows are deleted so long after their
        last write (``"15m"``, a ``timedelta``, or a number where event times are ints), or at the time in the column of
        that name, and go to ``table.expired``; the table has a column ``gone_at`` with this time. Raises
        ``PlanError``.
        """
        schema = declared_schema(row, Row, "a table", "tm.Row")
        own_name = checked(name or collection_name(row), "table")
        if not schema.keys:
            hint = f"mark a column of {schema.name} with tm.key(), such as 'id: str = tm.key()'"
            raise PlanError("no column is the key", hint, f"table '{own_name}'")
        index, expires = indexed(own_name, schema, indexes), expiry(expire, schema, f"table '{own_name}'")
        table: Table[R] = Table(self, own_name, schema, rows, index, changes, was, expires)
        conversions = compile_conversions(own_name, schema)
        definition = table._definition({column: compiled.node for column, compiled in conversions.items()})

        def same() -> bool:
            return is_same(self._tables[own_name]._given, rows)

        if self._plan.add("tables", definition, conversions=conversions, replace=replace, is_same=same):
            self._tables[own_name] = table
        return self._tables[own_name]

    @declaration
    def source(
        self,
        event: type[E],
        connector: Connector | None = None,
        lateness: Lateness = 0,
        name: str | None = None,
        *,
        idle: Duration | None = None,
        ahead: Duration | None = MISSING,
        remember: Duration | None = None,
        keys: int | None = None,
        replace: bool = False,
    ) -> Source[E]:
        """A stream of events from outside.

        Without a connector its data is given to ``app.run``, or sent to it in a session. Events without an event time
        beside sources with one can only be sent: each follows everything that has passed. ``lateness`` (``"2s"``,
        a ``timedelta``, or a number where the event time is an int) is how much earlier than the
        latest event so far an event may be; one that breaks this goes to ``.late``. Records that
        cannot be decoded go to ``.bad``. ``idle`` (``"30s"`` or a ``timedelta``): without input for so long, the source
        holds no other source back until its next event, which may be late then; with a state such a decision is kept
        like an event. ``ahead`` (``"1d"`` or a ``timedelta``) is how far ahead of the machine's clock the ``tm.Time``
        of an event may be when it is taken, ``None`` for any: what is further ahead is refused to its sender, and goes
        to ``.bad`` where it is read. Without ``ahead`` it is a day for events that are sent and for files that are
        followed, and any elsewhere. ``remember`` and ``keys`` are as of :meth:`requests`: what clients push may have a
        key, and be pushed again with it; it is taken once. Raises ``PlanError``.
        """
        schema = declared_schema(event, Event, "a source", "tm.Event")
        own_name = checked(name or collection_name(event), "source")
        if connector is not None and not isinstance(connector, Connector):
            hint = f"write tm.csv(...) or another connector; give data to app.run({{{own_name!r}: ...}})"
            raise PlanError(f"{type_name(connector)} is not a connector", hint, f"stream '{own_name}'")
        for field in schema.callers.values():
            hint = "declare the source with app.requests(...), or write the field without tm.caller()"
            raise PlanError(
                f"'{field}' has the caller, and events that are no calls have none", hint, f"stream '{own_name}'"
            )
        units = lateness_of(lateness, schema, f"stream '{own_name}'")
        silence = idle_of(idle, schema, f"stream '{own_name}'")
        bound = ahead_of(ahead, schema, f"stream '{own_name}'")
        kept = remember_of(remember, keys, schema, f"stream '{own_name}'") if remember or keys else None
        if kept is not None and connector is not None:
            hint = "leave remember out: nothing is pushed to a source with a connector"
            raise PlanError("a source that is read has no keys", hint, f"stream '{own_name}'")
        source: Source[E] = Source(self, own_name, schema, connector, units, silence, remembers=kept, ahead=bound)
        return self._add_source(source, replace)

    def _add_source(self, source: Source[E], replace: bool) -> Source[E]:
        def same() -> bool:
            known = self._sources[source.name]
            return is_same(known._connector, source._connector) and known._idle == source._idle

        if self._add_stream(source._definition(), replace=replace, is_same=same):
            self._sources[source.name] = source
        return self._sources[source.name]

    @declaration
    def requests(
        self,
        event: type[E],
        name: str | None = None,
        *,
        remember: Duration | None = None,
        keys: int | None = None,
        replace: bool = False,
    ) -> Source[E]:
        """A source fed by clients: each of its events is a call of the one transaction that takes them.

        What the transaction returns is the reply. A call brings no event time: it comes after everything that has
        passed, with its whole cascade. A field ``at: tm.Time = tm.event_time()`` is left out by callers and gets the
        time of what has passed, so that windows over time, and ``wake``, work on calls; then another source brings
        times. A call is made by ``call`` of a session, or over HTTP (``serve``). ``remember`` (``"24h"`` or a
        ``timedelta``): a call may have a key, and be made again with it; for so long it is not run again, but gets the
        reply of the first. ``keys``: so many keys are kept at a time, at most, 1,048,576 unless given; with a state
        they are on the disk. A field that is marked with ``tm.caller()`` has the user who calls. Raises ``PlanError``.
        """
        schema = declared_schema(event, Event, "a source of calls", "tm.Event")
        own_name = checked(name or collection_name(event), "source")
        kept = remember_of(remember, keys, schema, f"stream '{own_name}'")
        source: Source[E] = Source(self, own_name, schema, None, 0, None, schema.event_time is not None, kept)
        return self._add_source(source, replace)

    def retire(self, source: str) -> None:
        """Says that a source of an earlier version is not wanted any more. A state then migrates without it: what is
        held back of it is dropped, and it holds back no other source. Raises ``PlanError``."""
        self._plan.retire(checked(source, "source"))

    @declaration
    def transaction(
        self, *streams: Stream[Any], nested: bool = False, name: str | None = None, replace: bool = False
    ) -> Callable[[Callable[..., Any]], Transaction]:
        """Makes a function the transaction that runs on each event of the streams (of one schema).

        The function's first parameter is the event; the others have roles as defaults, such as
        ``src=accounts.row("src")``. It is compiled from its syntax tree: what its body may contain
        is in docs/language.md. ``nested``: it takes what another transaction returns or emits, and is a part of that
        one: both commit, or neither does, and then the other one aborts with this one's name before the reason.
        Raises ``CompileError`` where something cannot be compiled.
        """
        if not streams or not all(isinstance(s, Stream) for s in streams):
            hint = "write @app.transaction(transfers)"
            raise PlanError("a transaction runs on one or several streams", hint)
        self._check_own(*streams)
        if nested:
            check_nested(streams)

        @declaration
        def declare(function: Callable[..., Any]) -> Transaction:
            own_name = checked(name or str(getattr(function, "__name__", "")), "transaction")
            inputs = [s._ref for s in streams]
            compiled = compile_transaction(self, function, own_name, inputs, self._plan.lists(streams[0]._analyzed))
            if nested:
                compiled.node["nested"] = True

            def same() -> bool:
                return own_name in self._transactions

            if not self._plan.add("transactions", compiled.node, compiled, replace=replace, is_same=same):
                return self._transactions[own_name]
            self._forget_transaction(own_name)
            self._transactions[own_name] = Transaction(self, own_name, compiled.node, function)
            return self._transactions[own_name]

        return declare

    @declaration
    def window(
        self,
        stream: Stream[Any],
        *,
        over: Windows,
        by: By | None = None,
        every: Table[Any] | None = None,
        name: str | None = None,
        replace: bool = False,
    ) -> Callable[[Callable[..., Any]], StreamWindow]:
        """Makes a function the one that runs on each window over a stream when it closes.

        ``over`` says which windows there are: ``tm.tumbling("10s")``, ``tm.sliding("10s", every="2s")``,
        ``tm.session("10s")``, ``tm.counting(100)``. Each group of events has windows of its own: ``by`` is a field
        (``"city"``), several fields (``("city", "street")``), a function of the event, whose value is called ``key``
        (of a def: by its name), or each part by its name (``{"city": "city", "big": lambda e: e.size > 10}``).
        None is a value like others. Without ``by`` there is one group. With ``every``, a table whose key is the group,
        each row of it has a result in each tumbling or sliding window, whether or not events are in it.

        The function's parameter is the window: ``w.city`` of the group, ``w.start``, ``w.end``, and aggregates such
        as ``w.count()``, ``w.price.mean()``. It is compiled as a transaction's body is and has no rows; what it
        returns is an event of ``.closed`` (docs/language.md). Raises ``PlanError``, and ``CompileError`` where
        something cannot be compiled.
        """
        if not isinstance(stream, Stream):
            raise PlanError(f"{type_name(stream)} is not a stream", "write @app.window(bids, over=tm.tumbling('10s'))")
        if not isinstance(over, Windows):
            raise PlanError(f"{type_name(over)} is not a kind of windows", "write over=tm.tumbling('10s')")
        if every is not None and not isinstance(every, Table):
            raise PlanError(f"{type_name(every)} is not a table", "write every=items, with items = app.table(Item)")
        self._check_own(stream)
        if every is not None and every._app is not self:
            raise PlanError(*foreign(f"table '{every.name}'", every._app, self))

        table = None if every is None else every.name

        @declaration
        def declare(function: Callable[..., Any]) -> StreamWindow:
            own_name = checked(name or str(getattr(function, "__name__", "")), "window")
            parts = parts_of(by, f"window '{own_name}'")
            lists = self._plan.lists(stream._analyzed)
            compiled = compile_window(
                function,
                Over(own_name, stream._ref, lists, parts, over._definition, over._early, table),
            )
            if not self._plan.add("transactions", compiled.node, compiled, replace=replace):
                return self._windows[own_name]
            self._forget_transaction(own_name)
            self._windows[own_name] = StreamWindow(self, own_name, compiled.node, function)
            return self._windows[own_name]

        return declare

    @declaration
    def join(
        self,
        left: Stream[Any],
        right: Stream[Any],
        *,
        on: On,
        within: Length | None = None,
        over: Windows | None = None,
        how: How = "inner",
        name: str | None = None,
        replace: bool = False,
    ) -> Callable[[Callable[..., Any]], StreamJoin]:
        """Makes a function the one that runs on each pair of an event of one stream and an event of the other.

        ``on`` says what is equal in a pair: a field of both (``"id"``), a field of the left and one of the right event
        (``("id", "seller")``) or two functions of them, several fields of both (``["id", "city"]``), or fields of the
        left event with those of the right (``{"id": "seller", "city": "town"}``). None is equal to nothing. A pair is
        ``within`` a time, less than this apart (``"1h"``), or in one window: ``over=tm.tumbling("10s")``.

        ``how`` says what becomes of events without a partner. ``"inner"``: nothing. ``"left"``: those of the left
        stream come with a right event of which all fields are None and ``a.exists`` is false. ``"outer"``: those of
        both streams. ``"anti"``: only those of the left stream come, and the function has one parameter.

        The function's parameters are the two events. It is compiled as a transaction's body is and has no rows; what it
        returns is an event of ``.joined`` (docs/language.md). A pair comes with its later event, an event without a
        partner when it can have none any more. Raises ``PlanError``, and ``CompileError`` where something cannot be
        compiled.
        """
        for stream in (left, right):
            if not isinstance(stream, Stream):
                hint = "write @app.join(people, auctions, on=('id', 'seller'), within='1h')"
                raise PlanError(f"{type_name(stream)} is not a stream", hint)
        self._check_own(left, right)

        @declaration
        def declare(function: Callable[..., Any]) -> StreamJoin:
            own_name = checked(name or str(getattr(function, "__name__", "")), "join")
            how_joined = joining(on, over, within, how, f"join '{own_name}'")
            lists = self._plan.lists(left._analyzed), self._plan.lists(right._analyzed)
            compiled = compile_join(function, Joined(own_name, (left._ref, right._ref), lists, how_joined))
            if not self._plan.add("transactions", compiled.node, compiled, replace=replace):
                return self._joins[own_name]
            self._forget_transaction(own_name)
            self._joins[own_name] = StreamJoin(self, own_name, compiled.node, function)
            return self._joins[own_name]

        return declare

    @declaration
    def every(self, period: Length, *, origin: Length = 0, name: str | None = None, replace: bool = False) -> Ticks:
        """A stream of ticks of event time: one at each multiple of the period, from 1970 UTC or 0 on.

        ``origin`` shifts them. A tick is an event with the field ``at``; it comes before all events of its time.
        Without a ``name`` the ticks of one period and origin are one stream. Raises ``PlanError``.
        """
        value = duration_value(period, "every", "a period")
        origin_units = offset(origin, value, "every")
        own_name = checked(name, "ticks") if name else self._plan.free_name("ticks", "streams")
        definition: ir.StreamDef = {
            "name": own_name,
            "origin": {"every": {"period": value, "origin": origin_units}},
        }
        same = None if name else self._plan.find("streams", definition)
        if same is not None:
            return self._ticks[same]
        if self._add_stream(definition, replace=replace):
            self._ticks[own_name] = Ticks(self, own_name)
        return self._ticks[own_name]

    @declaration
    def clock(self, period: Duration, *, name: str | None = None, replace: bool = False) -> Clock:
        """A source of ticks of the machine's clock: an event with the field ``at`` at each multiple of the period.

        With it time passes where all other sources are silent: windows close, rows wake, ticks of ``app.every`` come,
        whether or not anybody takes its events. A tick is an input like an event of any source: it is logged, and a
        replay knows no clock. A source that is silent holds others back as ever, so it needs ``idle``. Ticks that were
        due while the program did not run are left out. A run that reads files does not go on for a clock alone.

        The event times of all sources must be ``tm.Time``. Without a ``name`` the ticks of one period are one source.
        Raises ``PlanError``.
        """
        units = period_of(period)
        own_name = checked(name, "clock") if name else self._plan.free_name("clock", "streams")
        check_times(self._sources.values(), f"clock '{own_name}'")
        clock = Clock(self, own_name, tick_schema(), MachineClock(units), -units, None)
        clocks = [other for other in self._sources if isinstance(self._sources[other], Clock)]
        same = None if name else self._plan.find("streams", clock._definition(), clocks)
        if same is None and self._add_stream(clock._definition(), replace=replace):
            self._sources[own_name] = clock
        return cast(Clock, self._sources[same or own_name])

    def _add_stream(
        self,
        definition: ir.StreamDef,
        compiled: Compiled[Any] | None = None,
        *,
        replace: bool,
        is_same: Callable[[], bool] = lambda: True,
    ) -> bool:
        """As ``PlanBuilder.add``. Another stream that had the name is forgotten."""
        name = definition["name"]
        if name in self._derived and self._derived[name]._reads:
            raise taken(name)
        if not self._plan.add("streams", definition, compiled, replace=replace, is_same=is_same):
            return False
        self._sources.pop(name, None)
        self._ticks.pop(name, None)
        self._batches.pop(name, None)
        self._derived.pop(name, None)
        return True

    def _batch(
        self,
        stream: Stream[Any],
        size: Length | None,
        over: Length | None,
        origin: Length,
        name: str | None,
        replace: bool,
    ) -> Batches:
        """The batches of a source."""
        return add_batches(stream, batch_size(size, over, origin), name, replace)

    def _top(
        self, stream: Stream[E], count: int, by: str, per: object, ties: bool, name: str | None, replace: bool
    ) -> Stream[E]:
        """The top of each instant of a stream."""
        own_name = self._pick_name(stream, "top", name)
        definition = top_definition(own_name, stream._ref, count, by, per, ties)
        ref: ir.EmittedRef = {"emitted": {"transaction": own_name, "name": "top"}}
        return self._pick(definition, ref, name, replace)

    def _first(
        self, stream: Stream[E], by: object, within: Length, late: object, name: str | None, replace: bool
    ) -> Stream[E]:
        """The first events of a stream by fields."""
        own_name = self._pick_name(stream, "first", name)
        inputs = [stream._ref, *late_inputs(own_name, stream, late)]
        definition = first_definition(own_name, inputs, by, within)
        return self._pick(definition, {"committed": own_name}, name, replace)

    def _latest(self, stream: Stream[E], by: object, name: str | None, replace: bool) -> Table[Any]:
        """The table of the latest events of a stream by fields."""
        return add_latest(self, stream, by, name, replace)

    def _pick_name(self, stream: Stream[Any], what: str, name: str | None) -> str:
        stem = f"{stream.label.replace('.', '_')}_{what}"
        return checked(name, what) if name else self._plan.free_name(stem, "transactions", "streams")

    def _pick(self, definition: ir.TransactionDef, ref: ir.StreamRef, name: str | None, replace: bool) -> Stream[Any]:
        """A stream of picked events, perhaps one that is there already if it has no ``name``."""
        own_name = definition["name"]
        same = None if name else self._plan.find("transactions", definition, self._picked)
        if same is None and self._plan.add("transactions", definition, replace=replace):
            self._forget_transaction(own_name)
            self._picked[own_name] = Stream(self, own_name, ref)
        return self._picked[same or own_name]

    def _derivation(
        self, stream: Stream[Any], roles: Mapping[str, object], name: str | None, replace: bool
    ) -> Derivation:
        """Returns an object that declares a filter or a map."""
        return Derivation(stream, roles, name, replace)

    def _forget_transaction(self, name: str) -> None:
        """Before another transaction of the plan takes its name."""
        self._transactions.pop(name, None)
        self._windows.pop(name, None)
        self._joins.pop(name, None)
        self._picked.pop(name, None)
        if name in self._derived and self._derived[name]._reads:
            del self._derived[name]

    @overload
    def sink(self, stream: Stream[Any], to: Connector, name: str | None = None, *, replace: bool = False) -> None: ...
    @overload
    def sink(
        self, stream: Stream[Any], to: SinkFunction, name: str | None = None, *, replace: bool = False
    ) -> None: ...
    @declaration
    def sink(
        self, stream: Stream[Any], to: Connector | SinkFunction, name: str | None = None, *, replace: bool = False
    ) -> None:
        """Sends a stream out: to a connector, or to a function that takes an Arrow batch per epoch.

        The same stream to the same place is one sink, however often it is said; to another place it is another
        sink, unless ``name`` is that of the first. Raises ``PlanError``. What the function raises stops the run.
        """
        if isinstance(to, SinkConnector):
            self._add_sink(stream, to, name, replace)
        elif isinstance(to, Connector):
            self._add_sink(stream, to._sink_spec(), name, replace)
        elif callable(to):
            self._add_sink(stream, to, name, replace)
        else:
            raise PlanError(f"{type_name(to)} is not a sink", "give a connector such as tm.jsonl(...), or a function")

    @declaration
    def collect(self, stream: Stream[Any], name: str | None = None, *, replace: bool = False) -> Collected:
        """Keeps a stream's events in memory; after the run the result holds them as Arrow."""
        name = self._add_sink(stream, COLLECT, name, replace)
        return self._collected.setdefault(name, Collected(stream.label))

    def _add_sink(self, stream: Stream[Any], output: Output, name: str | None, replace: bool) -> str:
        if not isinstance(stream, Stream):
            hint = "write transfer.committed, transfers.late or another stream"
            raise PlanError(f"{type_name(stream)} is not a stream", hint)
        self._check_own(stream)
        own_name = self._sink_name(stream, output) if name is None else name
        taken = (n for n, other in self._sinks.items() if other is output and isinstance(other, SinkConnector))
        if (other := next(taken, own_name)) != own_name:
            raise PlanError(f"the connector is that of sink '{other}'", "make one of its own", f"sink '{own_name}'")

        def same() -> bool:
            return is_same_output(self._sinks[own_name], output)

        if self._plan.add("sinks", {"name": own_name, "stream": stream._ref}, replace=replace, is_same=same):
            self._collected.pop(own_name, None)
            self._sinks[own_name] = output
        return own_name

    def _sink_name(self, stream: Stream[Any], output: Output) -> str:
        """The name of the sink that takes the stream to the same place, if there is one, or else a new name."""
        declared = self._plan.sinks()
        same = (name for name, s in declared if s == stream._ref and is_same_output(self._sinks[name], output))
        return next(same, None) or self._plan.free_name(stream.label, "sinks")

    def _check_own(self, *streams: Stream[Any]) -> None:
        for stream in streams:
            if stream._app is not self:
                raise PlanError(*foreign(f"stream '{stream.label}'", stream._app, self))

    # Running.

    def plan(self) -> str:
        """The plan as JSON: all that was declared."""
        return self._plan.to_json()

    def explain(self) -> str:
        """The flow graph, and each transaction's reads, writes and dependencies, as text."""
        return _engine.explain(self._plan.plan)

    def run(
        self,
        data: Data | None = None,
        *,
        workers: int | None = None,
        epoch: Epoch = "auto",
        latency: str = "10ms",
        scheduling: str = "auto",
        state: Path | None = None,
        sync: Sync | None = None,
        memory: str | None = None,
        logging: Logging | None = None,
        proof: Proof | None = None,
        checkpoint_every: str | None = None,
        checkpoint_bytes: str | None = None,
        checkpoint_replay: str | None = None,
        keys_in_memory: int | None = None,
        savepoint: str | None = None,
        final: bool = False,
        end: str | Collection[str] | None = None,
        seed: Path | None = None,
        epoch_records: Path | None = None,
    ) -> RunSummary:
        """Runs to the end of the input of all sources.

        With a ``state`` the end of the input is a pause: the next run with this state continues, with what was added
        to files and the further events that it is given. Results are those of one run over everything. Events that
        an earlier one may still come before are kept in the state; the summary says which and until when. With
        ``final=True`` the end is the end for good: everything is released, and what comes later is refused.

        ``data`` has the events of sources, by the source or its name: ``app.run({transfers: events})``. They may be
        anything that speaks the Arrow PyCapsule interface, an iterable of such, or an iterable of dicts or events.
        A source that is not in it reads its connector. With a state they follow what was given to the runs before;
        after a crash or Ctrl-C give the same data again: what was taken of it is dropped.

        The other arguments are options, which the command line has under the same names
        (docs/command-line.md). None of them changes results:

        - ``workers``: the most workers, each a thread; one per core unless given, and no more than cores.
        - ``epoch``: ``"auto"``, a number of events, or an age such as ``"20ms"``.
        - ``latency``: while ``epoch`` is ``"auto"``, epochs are as large as lets 99 of 100 events have their results
          within this time.
        - ``scheduling``: ``"auto"``, or a policy such as ``"transaction"``, or with a number of workers,
          ``"transaction@4"``.
        - ``state``: a directory, made if missing, that makes the run durable: after a crash at any moment the next
          run with it continues as if there had been none (docs/recovery.md). It belongs to this application.

        These need a ``state``:

        - ``sync``: when results are released: ``"epoch"`` (unless given) when they are durable; with a time such as
          ``"50ms"`` before that, with a sync that often. What was released since the last sync is then lost if the
          machine stops.
        - ``memory``: the most memory that rows take, such as ``"2GiB"``; the others are read from the state when they
          are needed.
        - ``logging``: ``"border"`` (unless given) logs what the sources gave, of which a replay makes the rest;
          ``"full"`` also logs what each transaction gave, which a replay is compared with.
        - ``proof``: ``"on"`` (unless given) keeps a chain of proof: a hash of each entry of the log, which covers all
          entries before it (docs/recovery.md). ``"off"`` ends the chain that the state has.
        - ``checkpoint_replay``: checkpoints are so frequent that the replay after a crash takes about this time at
          most; ``"30s"`` unless given. ``checkpoint_bytes``: the bytes of log between two, ``"1GiB"`` unless given.
          ``checkpoint_every``: the time between two, such as ``"60s"``, where events come.
        - ``keys_in_memory``: about so many keys of calls are in memory, 1,048,576 unless given; older ones are looked
          up in the state.
        - ``savepoint``: keeps a savepoint of this name: the state as it is when the run begins, and the log after it.
        - ``end``: names of windows, joins and other operators that are others now, or gone: before all else the program
          as it was closes what they have open (docs/recovery.md).

        And these do not:

        - ``final``: whether the end of the input is the end for good, with a state. Without one it always is.
        - ``seed``: a state or a savepoint; the tables begin with the rows of its tables of the same names.
        - ``epoch_records``: an Arrow file for a record of each epoch: sizes, how its transactions were scheduled and
          why, expected and measured times.

        Raises ``PlanError`` where an option is wrong or a source is not known, ``RunError`` where a source or a
        sink fails.
        """
        options = RunOptions(
            workers=workers,
            epoch=epoch,
            latency=latency,
            scheduling=scheduling,
            state=state,
            sync=sync,
            memory=memory,
            logging=logging,
            proof=proof,
            checkpoint_every=checkpoint_every,
            checkpoint_bytes=checkpoint_bytes,
            checkpoint_replay=checkpoint_replay,
            keys_in_memory=keys_in_memory,
            savepoint=savepoint,
            final=final or None,
            end=end or None,
            seed=seed,
            epoch_records=epoch_records,
        )
        outcome = _engine.run(self._job(data, options))
        self._keep(outcome)
        return RunSummary.from_json(outcome.summary)

    def start(
        self,
        data: Data | None = None,
        *,
        workers: int | None = None,
        epoch: Epoch = "auto",
        latency: str = "10ms",
        scheduling: str = "auto",
        state: Path | None = None,
        sync: Sync | None = None,
        memory: str | None = None,
        logging: Logging | None = None,
        proof: Proof | None = None,
        checkpoint_every: str | None = None,
        checkpoint_bytes: str | None = None,
        checkpoint_replay: str | None = None,
        keys_in_memory: int | None = None,
        savepoint: str | None = None,
        final: bool = False,
        end: str | Collection[str] | None = None,
        seed: Path | None = None,
        epoch_records: Path | None = None,
        keep: Mapping[Stream[Any] | str, int] | None = None,
    ) -> Session:
        """Starts the application and gives a session to talk to it, while it runs.

        Sources with a connector, or with ``data``, are read beside what is sent; the others are sent to:

            with app.start(state="./state") as mill:
                mill.send(transfers, {"src": "ada", "dst": "bob", "amount": 5})
                mill.flush()
                print(mill.table(accounts).to_pylist())

        The options are those of ``run``. ``keep``: how many of the last events of a stream are kept, so that it can
        be followed from an earlier position: ``keep={transfer.committed: 100_000}``. With a state they are in its
        checkpoints, and are kept across the end of the session, and across a crash. Raises ``PlanError`` where an
        option is wrong, ``RunError`` where the state, a source or a sink cannot be opened.
        """
        kept = {self._names_of(stream)[1]: kept_events(stream, events) for stream, events in (keep or {}).items()}
        options = RunOptions(
            workers=workers,
            epoch=epoch,
            latency=latency,
            scheduling=scheduling,
            state=state,
            sync=sync,
            memory=memory,
            logging=logging,
            proof=proof,
            checkpoint_every=checkpoint_every,
            checkpoint_bytes=checkpoint_bytes,
            checkpoint_replay=checkpoint_replay,
            keys_in_memory=keys_in_memory,
            savepoint=savepoint,
            final=final or None,
            end=end or None,
            seed=seed,
            epoch_records=epoch_records,
        )
        job = dataclasses.replace(self._job(data, options, sends=True), keep=kept)
        return Session(self, _engine.start(job))

    def open(self, state: Path) -> Opened:
        """Opens a state to be read, also while a run goes on with it:

            opened = app.open("./state")
            print(opened.epoch, opened.row(accounts, "ada"))

        Its tables are as they were after the last epoch that is known to be durable. They are those of the newest
        checkpoint, and what is logged after it is run again for that by a serial interpreter, by the program that the
        state has recorded. Nothing is written. Raises ``RunError`` where it is no state, or that of another
        application.
        """
        return Opened(self, state)

    def _names_of(self, stream: Stream[Any] | str) -> tuple[str, str]:
        """The label of a stream, and its name in the run."""
        if isinstance(stream, Stream):
            if stream._app is not self:
                raise PlanError(*foreign(f"stream '{stream.label}'", stream._app, self))
            stream = stream.label
        return stream, next((s._analyzed for s in self.streams() if s.label == stream), stream)

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8740,
        *,
        postgres: bool = True,
        postgres_port: int | None = None,
        users: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_client_ca: str | os.PathLike[str] | None = None,
        tls_client: Literal["optional", "required"] = "optional",
        jwt_keys: str | os.PathLike[str] | None = None,
        jwt_issuer: str | None = None,
        jwt_audience: str | None = None,
        insecure: bool = False,
        telemetry: bool = False,
        traces: str | None = None,
        traces_share: float = 1.0,
        quiet: bool = False,
        **options: Any,
    ) -> RunSummary:
        """Starts the application and serves it over HTTP, until Ctrl-C, SIGTERM or SIGHUP (docs/server.md).

        Clients of PostgreSQL are served on a port of their own, unless ``postgres`` is ``False``: 5433, or any that is
        free if ``port`` is 0.

        Answers what is under way, then ends as ``start`` does, and gives the summary. ``options`` are those of
        ``start``, and the limits of ``Session.serve``. With ``users``, a file that ``tidemill user`` writes, everybody
        is asked who he is. With ``tls_cert`` and ``tls_key``, a certificate and its key in PEM, all that is sent is
        encrypted. Addresses that other machines reach need both, unless ``insecure`` allows them without. ``telemetry``
        sends what the server counts by OpenTelemetry, ``traces`` spans of calls (``Session.serve``). Raises what
        ``start`` raises, and ``RunError`` where the address cannot be served, or where OpenTelemetry's SDK is missing.

        With ``tls_client_ca``, the certificates of authorities, a client's certificate says which of the users it is by
        its common name; ``tls_client="required"`` refuses clients without. With ``jwt_keys``, a JWKS, JWTs of
        ``jwt_issuer`` for ``jwt_audience`` say it by ``sub``.
        """
        place = Place(
            host,
            port,
            postgres,
            postgres_port,
            users,
            tls_cert,
            tls_key,
            tls_client_ca,
            tls_client,
            jwt_keys,
            jwt_issuer,
            jwt_audience,
            insecure,
            telemetry,
            traces,
            traces_share,
        )
        return serve(self, place, quiet, options)

    def _keep(self, outcome: Outcome) -> None:
        """Keeps the results of a run where users look for them."""
        for name, collected in self._collected.items():
            collected._frame = outcome.collected[name]
        for name, table in self._tables.items():
            table._frame = outcome.tables[name]

    def _job(
        self,
        data: Data | None = None,
        options: RunOptions | None = None,
        collected: Collection[Stream[Any]] | None = None,
        sends: bool = False,
    ) -> Job:
        """All that a run needs, for the engine. If ``collected`` is given, the run collects these streams by their
        labels and has no other sinks. ``sends``: a session sends the events of sources without data."""
        given = self._by_name(data or {})
        plan, sinks = self._plan.plan, dict(self._sinks)
        if collected is not None:
            plan = {**plan, "sinks": [{"name": s.label, "stream": s._ref} for s in collected]}
            sinks = {s.label: COLLECT for s in collected}
        return Job(
            plan=_engine.plan_text(plan),
            sources={name: self._source_input(source, given, sends) for name, source in self._sources.items()},
            tables=self._table_inputs(),
            idle={name: s._idle for name, s in self._sources.items() if s._idle is not None},
            sinks=sinks,
            options=(options or RunOptions()).texts(),
        )

    def _trial_job(self, options: RunOptions, keep: Mapping[str, int]) -> Job:
        """The job of a trial: all sources are sent to, and nothing is written."""
        job = self._job(None, options, (), sends=True)
        return dataclasses.replace(job, sources=dict.fromkeys(self._sources, SENT), keep=keep)

    def _served(self) -> Job:
        """The job of a session, for the command that serves."""
        return self._job(sends=True)

    def _connections(self) -> Job:
        """The job without data, for commands that look at the application and do not run it. Sources without a
        connector are left out."""
        with_connector = {name: s._connector for name, s in self._sources.items() if s._connector is not None}
        return Job(
            plan=self.plan(),
            sources={name: input_of(c, self._sources[name]._schema, name) for name, c in with_connector.items()},
            tables=self._table_inputs(),
            idle={name: s._idle for name, s in self._sources.items() if s._idle is not None},
            sinks=dict(self._sinks),
        )

    def _by_name(self, data: Data) -> dict[str, object]:
        """The data of sources by their names."""
        if not isinstance(data, Mapping):
            hint = "write app.run({transfers: events})"
            raise PlanError(f"{type_name(data)} does not say which source has which data", hint)
        given: dict[str, object] = {}
        for source, events in data.items():
            if isinstance(source, Source):
                self._check_own(source)
            name = source.name if isinstance(source, Source) else source
            if name not in self._sources:
                known = ", ".join(self._sources) or "there is none"
                raise PlanError(f"there is no source {name!r}", f"sources: {known}")
            if name in given:
                raise PlanError(f"source '{name}' has data twice", "give it once: by the source, or by its name")
            given[name] = events
        return given

    def _table_inputs(self) -> dict[str, Input]:
        initial = {name: table._first_rows() for name, table in self._tables.items()}
        given = {name: rows for name, rows in initial.items() if rows is not None}
        schemas = {name: self._tables[name]._schema.without_windows() for name in given}
        return {name: first_rows(rows, schemas[name], name) for name, rows in given.items()}

    def _source_input(self, source: Source[Any], data: Mapping[str, object], sends: bool) -> Input:
        given = data.get(source.name, source._connector)
        has_times = any(other._brings_time for other in self._sources.values())
        # Beside sources with an event time, events without one can be sent only.
        if given is None and (sends or (has_times and not source._brings_time)):
            return SENT
        if given is None:
            hint = f'give it a connector, or data: app.run({{"{source.name}": ...}})'
            raise RunError(f"source '{source.name}' has no data; {hint}")
        return input_of(given, source._schema, source.name)
