"""A running application to talk to: what ``app.start()`` gives."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import _engine, query_process
from ._engine import Frame, NativeFollower, NativeSession
from .data import batches, is_arrow
from .errors import Aborted, MissedError, PlanError, RunError, SchemaError
from .lateness import mark_of
from .names import foreign
from .replies import BOTH, Reply, result_of
from .results import Rows
from .schema import Event
from .serving import Limits, Server
from .sql import Parameters, Queried, connected, queried
from .stream import Source, Stream, Transaction
from .summary import RunSummary
from .table import Table
from .telemetry import Telemetry
from .times import Time, time_of_microseconds

if TYPE_CHECKING:
    from .app import App
    from .async_session import AsyncSession

__all__ = ["Flushed", "Follower", "Released", "Savepoint", "Session", "Snapshot"]

Outcome = tuple[int, dict[str, Any] | None, tuple[str, dict[str, Any]] | None]
"""The outcome of a call: its epoch; the record that it returned; if it aborted, the reason and the values seen."""

Slow = Literal["miss", "wait"]
"""The consequence of a follower that is slower than the run: it misses events and is told how many, or the run
waits."""


class Snapshot(Rows):
    """The rows of a table after one epoch: everything that was released until then, and nothing after it."""

    def __init__(self, name: str, epoch: int, complete_until: Time | int | None, frame: Frame) -> None:
        self.name = name
        self.epoch = epoch
        """The number of the epoch, counted from the beginning of the state."""
        self.complete_until = complete_until
        """Every event with a time below has passed. ``None`` before each source has shown a time, and without times."""
        self._frame = frame

    def __repr__(self) -> str:
        return f"<table {self.name} after epoch {self.epoch}>"


class Released(Rows):
    """Events of a followed stream that were released together, in order; at least one."""

    def __init__(self, label: str, epoch: int, complete_until: Time | int | None, position: str, frame: Frame) -> None:
        self._label = label
        self.epoch = epoch
        """The number of their epoch."""
        self.complete_until = complete_until
        """Every event with a time below has passed, as ``Snapshot`` says it."""
        self.position = position
        """The position after the last of them, such as ``7.12@00c0ffee00c0ffee``: its epoch, a number of events, and
        its history."""
        self._frame = frame

    def __repr__(self) -> str:
        return f"<events of {self._label}, epoch {self.epoch}>"


@dataclass(frozen=True)
class Flushed:
    """The result of ``flush``."""

    epoch: int
    """The released epoch that contains everything that was sent before and may pass."""
    complete_until: Time | int | None = None
    """Every event with a time below is released, and none comes any more. ``None`` before each source has shown a time,
    and in applications without event times."""
    held: Mapping[str, int] = field(default_factory=dict)
    """The number of events that wait, by source: because of its lateness or because another source has not come as
    far."""


@dataclass(frozen=True)
class Savepoint:
    """A savepoint that a session has made."""

    name: str
    epoch: int
    """The released epoch that it is of. It contains everything that was sent before and may pass."""
    complete_until: Time | int | None = None
    """Every event with a time below has passed, as ``Snapshot`` says it."""


class Follower:
    """Reads a stream as it is released: an iterator of :class:`Released`. It ends with the session.

    Raises ``MissedError`` where events were left out because it was too slow; it may be read on after that.
    """

    def __init__(self, label: str, app: App, native: NativeFollower) -> None:
        self._label = label
        self._app = app
        self._native = native

    def __repr__(self) -> str:
        return f"<follower of {self._label}>"

    def __iter__(self) -> Iterator[Released]:
        return self

    def __next__(self) -> Released:
        released = self.next()
        if released is None:
            raise StopIteration
        return released

    def next(self, timeout: float | None = None) -> Released | None:
        """The next events; ``None`` if the session is over and everything was read.

        ``timeout``: seconds. Raises ``TimeoutError`` if nothing is released in time, ``MissedError`` as above.
        """
        item = self._native.next(timeout)
        if item is None:
            return None
        number, complete, place, frame = item
        if frame is None:
            raise MissedError(self._label, number)
        return Released(self._label, number, _time(self._app, complete), place, frame)

    @property
    def position(self) -> str | None:
        """The position after everything that was read: ``mill.follow(stream, after=...)`` goes on there.

        It moves on with released epochs that have no events of the stream. ``None`` before anything was released.
        """
        return self._native.place()


class Session:
    """A running application. Its methods may be called by several threads.

    Leaving its ``with`` block processes what was sent, waits until the sources with connectors have ended, and closes
    the sinks; an exception in the block stops the run after the current epoch instead. A failure of the run is raised
    by the call that meets it. The function of a sink must not wait for the session, as the run waits for the function.
    """

    def __init__(self, app: App, native: NativeSession) -> None:
        self._app = app
        self._native = native
        self._closed: RunSummary | None = None
        # Threads of a run must not call Python while the interpreter ends.
        self._forgotten = weakref.finalize(self, _end, native, app.name)

    def __repr__(self) -> str:
        return f"<session of {self._app.name}, {'over' if self._native.over else 'running'}>"

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self.stop()
        try:
            self.close()
        except Exception:
            # The exception of the block says more.
            return

    async def __aenter__(self) -> AsyncSession:
        # Few programs wait so, and asyncio takes much memory.
        from .async_session import AsyncSession

        return AsyncSession(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from asyncio import to_thread

        await to_thread(self.__exit__, kind, error, traceback)

    def send(
        self, source: Source[Any] | str, data: object, *, timeout: float | None = None, durable: bool = False
    ) -> int:
        """Sends events to a source without a connector, in their order; returns their number.

        ``data`` is an event, a dict, an iterable of either, or anything that speaks the Arrow PyCapsule interface.
        Events of a source with an event time take their places by it; others run after everything that has passed, in
        the order in which they were sent. Waits while the engine is full.

        ``timeout``: seconds; what was sent until then stays sent, and the error says how much. ``durable``: also
        waits until the results are released; with a state they are then as durable as ``sync`` says.

        Raises ``SchemaError`` if something is not an event of the source: then nothing of the same chunk of 8,192 was
        sent. Raises ``TimeoutError``, and ``RunError`` if the run has failed or is over.
        """
        target = self._source(source)
        sent, end = 0, None if timeout is None else time.monotonic() + timeout
        for item in _items(data, target):
            taken, is_all = self._native.send(target.name, item, _left(end))
            sent += taken
            if not is_all:
                raise TimeoutError(f"the engine was full: {sent} events were sent within the given time")
        if durable:
            self.flush(timeout=_left(end))
        return sent

    def call(
        self,
        procedure: Transaction | str,
        event: object = None,
        /,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        durable: bool = True,
        **fields: Any,
    ) -> Reply:
        """Calls a transaction on the events of ``app.requests``, and waits for its reply.

            reply = mill.call(deposit, account="ada", amount=10)

        The fields are those of the event; or ``event`` is one, whose fields may have any name.

        With a state the reply comes when the call is as durable as ``sync`` says; with ``durable=False`` as soon as it
        has run, and a crash may then take it back. Raises
        ``Aborted`` where the transaction aborts, ``SchemaError`` where the fields are not those of the event,
        ``PlanError`` where the procedure cannot be called; and ``TimeoutError`` after ``timeout`` seconds, when the
        call may still run.

        With ``idempotency_key`` the call may be made again, in a later session of the state, too: it runs once, and
        each call with the key gets the reply of the first, for as long as ``app.requests(..., remember=...)`` says.
        Raises ``IdempotencyError`` where the key cannot be taken.
        """
        if event is not None and fields:
            raise SchemaError(*BOTH)
        events = [fields if event is None else event]
        (outcome,) = self._calls(procedure, events, timeout, durable, idempotency_key)
        return result_of(*outcome)

    def call_all(
        self,
        procedure: Transaction | str,
        events: Iterable[object],
        *,
        timeout: float | None = None,
        durable: bool = True,
    ) -> list[Reply | Aborted]:
        """Calls a transaction once for each event, in their order, without waiting in between; the results in order."""
        results: list[Reply | Aborted] = []
        for outcome in self._calls(procedure, list(events), timeout, durable):
            try:
                results.append(result_of(*outcome))
            except Aborted as aborted:
                results.append(aborted)
        return results

    def _calls(
        self,
        procedure: Transaction | str,
        events: list[object],
        timeout: float | None,
        durable: bool,
        key: str | None = None,
    ) -> list[Outcome]:
        if isinstance(procedure, Transaction):
            if procedure._app is not self._app:
                raise PlanError(*foreign(f"transaction '{procedure.name}'", procedure._app, self._app))
            procedure = procedure.name
        source = self._source(self._native.source_of(procedure))
        end = None if timeout is None else time.monotonic() + timeout
        items = list(_items(events, source))
        call = functools.partial(self._native.call, procedure)
        return [outcome for item in items for outcome in call(item, key, not durable, _left(end))]

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        postgres: bool = True,
        postgres_port: int = 0,
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
        **limits: float,
    ) -> Server:
        """Serves the session over HTTP, on any free port unless one is given; use it in a ``with`` block.

        So are clients of PostgreSQL, on a port of their own, unless ``postgres`` is ``False``.

        With ``users``, a file that ``tidemill user`` writes, everybody is asked who he is. With ``tls_cert`` and
        ``tls_key``, a certificate and its key in PEM, all that is sent is encrypted. ``limits`` are those of ``tidemill
        serve``, such as ``calls_max=100`` or ``query_seconds_max=5`` (docs/server.md#limits). Raises ``RunError`` where
        the address cannot be served: one that other machines reach needs users and a certificate, or ``insecure=True``.
        With ``telemetry``, what the server counts is sent by OpenTelemetry, to where its environment variables say;
        ``RunError`` where its SDK is missing. With ``traces``, the URL of a collector of OpenTelemetry, the spans of
        calls are sent there: of those whose clients keep their trace, and of ``traces_share`` of the others
        (docs/server.md#traces).

        With ``tls_client_ca``, the certificates of authorities, a client's certificate says which of the users it is by
        its common name; ``tls_client="required"`` refuses clients without. With ``jwt_keys``, a JWKS, JWTs of
        ``jwt_issuer`` for ``jwt_audience`` say it by ``sub``.
        """
        wanted, others = Limits.of(limits)
        if others:
            names = ", ".join(field.name for field in fields(Limits))
            raise PlanError(f"there is no limit {next(iter(others))!r}", f"limits: {names}")
        file = None if users is None else os.fspath(users)
        if (tls_cert is None) != (tls_key is None):
            raise PlanError("a certificate comes with its key", "give both tls_cert= and tls_key=")
        tls = None if tls_cert is None or tls_key is None else (os.fspath(tls_cert), os.fspath(tls_key))
        if tls_client_ca is not None and tls is None:
            raise PlanError("certificates of clients are shown over TLS", "give tls_cert= and tls_key=")
        if tls_client not in ("optional", "required"):
            raise PlanError(f"tls_client={tls_client!r} is neither 'optional' nor 'required'")
        clients = None if tls_client_ca is None else (os.fspath(tls_client_ca), tls_client == "required")
        jwt = None
        if jwt_keys is not None and jwt_issuer is not None and jwt_audience is not None:
            jwt = (os.fspath(jwt_keys), jwt_issuer, jwt_audience)
        elif (jwt_keys, jwt_issuer, jwt_audience) != (None, None, None):
            raise PlanError(
                "JWTs are of an issuer and for an audience", "give jwt_keys=, jwt_issuer= and jwt_audience="
            )
        own_port = postgres_port if postgres else None
        native = _engine.serve(
            self._native,
            host,
            port,
            own_port,
            file,
            tls,
            clients,
            jwt,
            insecure,
            None if traces is None else (traces, traces_share),
            asdict(wanted),
            query_process.launch(),
        )
        if not telemetry:
            return Server(native)
        try:
            return Server(native, Telemetry(native.metrics(), self._app.name))
        except RunError:
            native.stop()
            raise

    def punctuate(self, source: Source[Any] | str, time: Time | int) -> None:
        """Promises that no event of a source with a time below will be sent any more.

        What other sources hold back for it may pass then. ``time`` is a ``datetime``, or an ``int`` where the event
        time is one. Events that break the promise go to ``.late``. Raises ``PlanError`` where the source has no event
        time.
        """
        target = self._source(source)
        self._native.punctuate(target.name, mark_of(time, target._schema, f"stream '{target.name}'"))

    def idle(self, source: Source[Any] | str) -> None:
        """Says that nothing is sent to a source for now: until its next event no other source waits for it.

        That event may be late, as the others have gone on. ``app.source(..., idle="30s")`` does the same by the clock.
        """
        target = self._source(source)
        if not target._brings_time:
            raise PlanError("it has no event time", "no other source waits for it", f"stream '{target.name}'")
        self._native.idle(target.name)

    def end(self, source: Source[Any] | str) -> None:
        """Says that nothing more is sent to a source in this session.

        Without a state no other source waits for it any more. With one this is a pause: what waits for it stays in the
        state until the source goes on. Call ``idle`` before, or give ``final=True`` to ``start``, if it is not to wait.
        """
        self._native.end(self._source(source).name)

    def flush(self, *, timeout: float | None = None) -> Flushed:
        """Waits until everything that was sent before is processed and released, as far as it may pass.

        ``timeout``: seconds. Raises ``TimeoutError``, and ``RunError`` if the run has failed or is over.
        """
        epoch, complete, held = self._native.flush(timeout)
        return Flushed(epoch, _time(self._app, complete), held)

    def table(self, table: Table[Any] | str, *, timeout: float | None = None) -> Snapshot:
        """The rows of a table, sorted by key, after an epoch that contains everything that was sent before."""
        (snapshot,) = self.tables(table, timeout=timeout).values()
        return snapshot

    def tables(self, *tables: Table[Any] | str, timeout: float | None = None) -> dict[str, Snapshot]:
        """Several tables after one and the same epoch, by name; all of them if none is given."""
        names = [self._table(table) for table in tables] or list(self._app.tables)
        epoch, complete, frames = self._native.tables(names, timeout)
        until = _time(self._app, complete)
        return {name: Snapshot(name, epoch, until, frame) for name, frame in zip(names, frames, strict=True)}

    def sql(self, query: str, parameters: Parameters | None = None, *, timeout: float | None = None) -> Queried:
        """The rows that a query over the tables gives, after an epoch that contains everything that was sent before.

            mill.sql("select owner, sum(balance) as total from accounts where balance > ? group by all", [0])

        DuckDB answers it (``pip install 'tidemill[sql]'``), on this thread, while the run goes on; a table that the
        query does not name is not read. ``tidemill_epoch()`` is the number of the epoch. ``timeout``: seconds, each for
        the epoch and for the query. Raises ``RunError`` where the query is wrong or takes too long, and without DuckDB.
        """
        epoch, complete, tables = self._native.reads(timeout)
        return Queried(epoch, _time(self._app, complete), queried(tables, epoch, query, parameters, timeout=timeout))

    def duckdb(self, *tables: Table[Any] | str, timeout: float | None = None) -> Any:
        """A ``duckdb`` connection with a view of each table after one epoch, or of those that are given.

        The rows are copied now, and do not change: ask for another connection to see what came after. Needs DuckDB.
        """
        copies = self.tables(*tables, timeout=timeout)
        epoch = next(iter(copies.values())).epoch if copies else self.flush(timeout=timeout).epoch
        return connected({name: copy._rows() for name, copy in copies.items()}, epoch)

    def row(self, table: Table[Any] | str, *key: object, timeout: float | None = None) -> dict[str, Any] | None:
        """The row of a key, such as ``mill.row(accounts, "ada")``, after everything that was sent before.

        A value for each column of the key; ``None`` if there is no such row. The table is not copied.
        """
        return self._native.row(self._table(table), list(key), timeout)

    def savepoint(self, name: str | None = None, *, timeout: float | None = None) -> Savepoint:
        """Makes a savepoint of the state, after an epoch that contains everything that was sent before.

        The run goes on meanwhile. Without a name it is ``epoch-`` and the epoch's number. ``timeout``: seconds; the
        savepoint may be made after them. Raises ``TimeoutError``, and ``RunError`` without a state, for a name that is
        taken or none, where the disk is full, and if the run has failed or is over.
        """
        made, epoch, complete = self._native.savepoint(name, timeout)
        return Savepoint(made, epoch, _time(self._app, complete))

    def follow(
        self,
        stream: Stream[Any] | str,
        *,
        after: str | Released | None = None,
        slow: Slow = "miss",
        buffer: int = 1_000_000,
    ) -> Follower:
        """Follows a stream: gets its events when they are released.

        It begins with what is released next, or ``after`` a position that a follower of the stream gave, also in an
        earlier session on the same state: then it gets each event after that once. Such a stream must be kept,
        ``app.start(keep={stream: 100_000})``. Raises ``GoneError`` where the events after the position are not kept any
        more, and ``PlanError`` where none of the stream are kept or ``after`` is no position.

        ``buffer``: the number of events that the follower may be behind. If it is further behind, the oldest are left
        out and it is told (``slow="miss"``), or the run waits for it (``slow="wait"``).
        """
        stream, name = self._app._names_of(stream)
        if slow not in ("miss", "wait"):
            raise PlanError(f"{slow!r} is not what a run does with a slow follower", 'give "miss" or "wait"')
        if isinstance(buffer, bool) or not isinstance(buffer, int) or buffer < 1:
            raise PlanError(f"{buffer!r} is not a size of a buffer", "give a number of events from 1")
        place = after.position if isinstance(after, Released) else after
        if place is not None and not isinstance(place, str):
            raise PlanError(f"{place!r} is not a position", "give the position of a follower, or what it gave")
        try:
            native = self._native.follow(name, place, slow == "wait", buffer)
        except ValueError as error:
            raise PlanError(str(error), "give the position of a follower, or what it gave") from None
        return Follower(stream, self._app, native)

    def summary(self) -> RunSummary:
        """Counts, rates and latency of what was released so far."""
        return self._closed or RunSummary.from_json(_engine.summary_of(self._native))

    def stop(self) -> None:
        """Ends the run after the current epoch. Returns at once; what is still on its way is not processed."""
        self._native.stop()

    def close(self) -> RunSummary:
        """Processes what was sent, waits for the end of the run, and gives its summary.

        The tables of the application then hold their rows, and collected streams their events. Raises what the run
        has failed with. A second call gives the same summary.
        """
        return self._close(gives_up=False)

    def _close(self, gives_up: bool) -> RunSummary:
        """Closes the session; if it gives up, it stops a run that waits for room on the disk or for file
        descriptors."""
        if self._closed is None:
            self._forgotten.detach()
            outcome = _engine.close(self._native, gives_up)
            self._app._keep(outcome)
            self._closed = RunSummary.from_json(outcome.summary)
        return self._closed

    def _source(self, source: Source[Any] | str) -> Source[Any]:
        if isinstance(source, Source):
            self._app._check_own(source)
            return source
        if source not in self._app.sources:
            known = ", ".join(self._app.sources) or "there is none"
            raise PlanError(f"there is no source {source!r}", f"sources: {known}")
        return self._app.sources[source]

    def _table(self, table: Table[Any] | str) -> str:
        if isinstance(table, Table):
            if table._app is not self._app:
                raise PlanError(*foreign(f"table '{table.name}'", table._app, self._app))
            return table.name
        if table not in self._app.tables:
            raise PlanError(f"there is no table {table!r}", f"tables: {', '.join(self._app.tables) or 'there is none'}")
        return table


def _left(end: float | None) -> float | None:
    """The seconds until a time of the clock."""
    return None if end is None else max(0.0, end - time.monotonic())


def _end(native: NativeSession, app: str) -> None:
    """Ends a session that was forgotten, or that is open when the interpreter ends."""
    native.stop()
    # An error of the run has nobody to go to.
    with contextlib.suppress(Exception):
        native.close(False)
    warnings.warn(f"the session of {app} was not closed; use it in a with block", ResourceWarning, stacklevel=2)


def _time(app: App, mark: int | None) -> Time | int | None:
    """A punctuation as the event times of an application are: all of one type."""
    types = [str(field.type) for s in app.sources.values() if (field := s._schema.field(s._schema.event_time or ""))]
    if mark is None or not types or types[0] == "int":
        return mark
    try:
        return time_of_microseconds(mark)
    except OverflowError:
        # Beyond the years of a datetime.
        return None


def _items(data: object, source: Source[Any]) -> Iterator[object]:
    """Arrow objects with all of the data. Raises ``SchemaError`` at a record that is not an event of the source."""
    if isinstance(data, (Event, Mapping)):
        data = [data]
    elif isinstance(data, Iterable) and not isinstance(data, (str, bytes, list, tuple)) and not is_arrow(data):
        data = list(data)
    for item in batches(data, source._brought, source.name):
        bad = getattr(item, "bad", None)
        if bad:
            raise SchemaError(*_refusal(source, bad[0]))
        yield item


def _refusal(source: Source[Any], bad: Mapping[str, Any]) -> tuple[str, str]:
    column = f", column '{bad['column']}'" if bad["column"] else ""
    return f"record {bad['line']} cannot be an event of '{source.name}'{column}: {bad['reason']}", ""
