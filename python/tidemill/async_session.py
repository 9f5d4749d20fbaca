"""A session for ``asyncio``: the result of ``async with app.start()``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar, cast

from .errors import Aborted
from .replies import Reply
from .session import Flushed, Follower, Released, Savepoint, Session, Slow, Snapshot
from .sql import Parameters, Queried
from .stream import Source, Stream, Transaction
from .summary import RunSummary
from .table import Table
from .times import Time

__all__ = ["AsyncFollower", "AsyncSession"]

T = TypeVar("T")


class AsyncSession:
    """A session for ``async with app.start() as mill``: its methods are awaited. They wait on threads."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session)

    async def send(
        self, source: Source[Any] | str, data: object, *, timeout: float | None = None, durable: bool = False
    ) -> int:
        """As ``Session.send``."""
        return await asyncio.to_thread(self._session.send, source, data, timeout=timeout, durable=durable)

    async def call(
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
        """As ``Session.call``."""
        call = functools.partial(self._session.call, timeout=timeout, idempotency_key=idempotency_key, durable=durable)
        return await asyncio.to_thread(call, procedure, event, **fields)

    async def call_all(
        self,
        procedure: Transaction | str,
        events: Iterable[object],
        *,
        timeout: float | None = None,
        durable: bool = True,
    ) -> list[Reply | Aborted]:
        """As ``Session.call_all``."""
        call = functools.partial(self._session.call_all, timeout=timeout, durable=durable)
        return await asyncio.to_thread(call, procedure, events)

    async def punctuate(self, source: Source[Any] | str, time: Time | int) -> None:
        """As ``Session.punctuate``."""
        await asyncio.to_thread(self._session.punctuate, source, time)

    async def idle(self, source: Source[Any] | str) -> None:
        """As ``Session.idle``."""
        await asyncio.to_thread(self._session.idle, source)

    async def end(self, source: Source[Any] | str) -> None:
        """As ``Session.end``."""
        await asyncio.to_thread(self._session.end, source)

    async def flush(self, *, timeout: float | None = None) -> Flushed:
        """As ``Session.flush``."""
        return await asyncio.to_thread(self._session.flush, timeout=timeout)

    async def table(self, table: Table[Any] | str, *, timeout: float | None = None) -> Snapshot:
        """As ``Session.table``."""
        return await asyncio.to_thread(self._session.table, table, timeout=timeout)

    async def tables(self, *tables: Table[Any] | str, timeout: float | None = None) -> dict[str, Snapshot]:
        """As ``Session.tables``."""
        return await asyncio.to_thread(self._session.tables, *tables, timeout=timeout)

    async def sql(self, query: str, parameters: Parameters | None = None, *, timeout: float | None = None) -> Queried:
        """``Session.sql``."""
        return await _on_own_thread(lambda: self._session.sql(query, parameters, timeout=timeout))

    async def duckdb(self, *tables: Table[Any] | str, timeout: float | None = None) -> Any:
        """``Session.duckdb``."""
        return await _on_own_thread(lambda: self._session.duckdb(*tables, timeout=timeout))

    async def row(self, table: Table[Any] | str, *key: object, timeout: float | None = None) -> dict[str, Any] | None:
        """As ``Session.row``."""
        return await asyncio.to_thread(self._session.row, table, *key, timeout=timeout)

    async def savepoint(self, name: str | None = None, *, timeout: float | None = None) -> Savepoint:
        """As ``Session.savepoint``."""
        return await asyncio.to_thread(self._session.savepoint, name, timeout=timeout)

    def follow(
        self,
        stream: Stream[Any] | str,
        *,
        after: str | Released | None = None,
        slow: Slow = "miss",
        buffer: int = 1_000_000,
    ) -> AsyncFollower:
        """As ``Session.follow``; for ``async for``."""
        return AsyncFollower(self._session.follow(stream, after=after, slow=slow, buffer=buffer))

    def summary(self) -> RunSummary:
        """As ``Session.summary``; does not wait."""
        return self._session.summary()

    def stop(self) -> None:
        """As ``Session.stop``; does not wait."""
        self._session.stop()


class AsyncFollower:
    """A follower for ``async for``. A wait that is cancelled loses nothing: the next one goes on with it."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._pending: asyncio.Future[Released | None] | None = None

    def __repr__(self) -> str:
        return repr(self._follower)

    def __aiter__(self) -> AsyncIterator[Released]:
        return self

    async def __anext__(self) -> Released:
        released = await self.next()
        if released is None:
            raise StopAsyncIteration
        return released

    async def next(self, timeout: float | None = None) -> Released | None:
        """As ``Follower.next``."""
        if self._pending is None:
            self._pending = _on_own_thread(self._follower.next)
        pending = self._pending
        try:
            return await asyncio.wait_for(asyncio.shield(pending), timeout)
        except asyncio.TimeoutError:
            # Another class than TimeoutError before Python 3.11.
            raise TimeoutError("nothing was released within the given time") from None
        finally:
            if pending.done():
                self._pending = None


def _on_own_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """The result of a call that may wait long: it takes no thread that others wait for, and ends with the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        # The loop may be closed by now: then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, daemon=True).start()
    return future
