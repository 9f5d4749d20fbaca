"""Clients of a served application: ``tm.connect(url)``. They need the standard library alone."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from . import exchange
from .declared import Types
from .errors import RunError, SchemaError, TidemillError
from .exchange import Answer, Kept, Request, Streamed
from .own_names import hides_no_procedure
from .replies import BOTH, Reply

__all__ = ["AsyncClient", "AsyncStreaming", "Client", "Streaming", "connect"]

T = TypeVar("T")

CertificateFiles = tuple[str | os.PathLike[str], str | os.PathLike[str]]
"""A certificate of the client in PEM, and its key."""

_SILENT_MAX = 30.0
"""Seconds after which a connection is not used again: the server closes silent ones."""

_TOGETHER = 250
"""Calls that are sent together; twice as many are under way, fewer than the server reads ahead."""

_LINE_MAX = 1 << 26
"""Bytes of the longest line that an asynchronous client reads."""


class Client:
    """Calls a served application: ``client.deposit(account="ada", amount=10)``. Threads may share it.

    A call raises ``Aborted`` where the transaction aborts, ``SchemaError`` where the fields are wrong, ``PlanError``
    where there is no such procedure, ``BusyError`` where the server is over a limit or about to end, and ``RunError``
    where it cannot be reached or its run is over. After a ``BusyError`` nothing was done, and the call may be made
    again. After another ``RunError`` the call may have run or not; one with an ``idempotency_key=`` may be made again.

    A procedure may have the name of a method of the client: ``client.close(account="ada")`` calls it, since ``close``
    takes no ``account``, and ``client.call("close")`` does in any case.

    ``async with tm.connect(url) as client`` gives an :class:`AsyncClient`.
    """

    def __init__(
        self,
        url: str,
        timeout: float | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        cert: CertificateFiles | None = None,
    ) -> None:
        self._place = _place(url)
        self._ca, self._cert = ca, cert
        self._tls = _tls(self._place, ca, cert)
        self._url, self._timeout = url, timeout
        self._token = token
        self._own = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._free: list[tuple[float, HTTPConnection]] = []
        self._lock = threading.Lock()
        self._asynchronous: AsyncClient | None = None
        self._types: Types | None = None

    def __repr__(self) -> str:
        return f"<client of {self._url}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncClient:
        self._asynchronous = AsyncClient(self._url, self._timeout, token=self._token, ca=self._ca, cert=self._cert)
        return self._asynchronous

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._asynchronous is not None:
            await self._asynchronous.close()

    def __getattr__(self, name: str) -> Callable[..., Reply]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(**fields: Any) -> Reply:
            return self.call(name, **fields)

        call.__name__ = name
        return call

    @hides_no_procedure
    def call(
        self,
        procedure: str,
        event: Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        durable: bool = True,
        **fields: Any,
    ) -> Reply:
        """Calls a transaction by its name: with these fields, or with those of an event, which may have any name.

        The reply comes when the call is durable; with ``durable=False`` as soon as it has run: a crash of the server
        may then take it back.

        With ``idempotency_key`` the call may be made again, when its reply was lost: it runs once, and each call with
        the key gets the reply of the first, for as long as ``app.requests(..., remember=...)`` says. Raises
        ``IdempotencyError`` where the key cannot be taken.
        """
        types, given = self._declared(), _given(event, fields)
        return exchange.reply(self._ask(exchange.call(procedure, given, idempotency_key, durable)), procedure, types)

    @hides_no_procedure
    def call_all(
        self,
        procedure: str,
        events: Iterable[Mapping[str, Any]],
        *,
        idempotency_keys: Iterable[str] | None = None,
        durable: bool = True,
    ) -> list[Reply | TidemillError]:
        """Calls a transaction with each of these events, in their order, on one connection.

        Hundreds of them are under way at once. What became of each: its reply, or the error that ``call`` would raise.
        ``idempotency_keys`` has a key for each event; ``durable`` is as for ``call``. Raises ``RunError`` where the
        server cannot be reached: then any of them may have run.
        """
        events = list(events)
        keys = [None] * len(events) if idempotency_keys is None else list(idempotency_keys)
        lines = [exchange.line(procedure, event, key, durable) for event, key in zip(events, keys, strict=True)]
        parts = [lines[first : first + _TOGETHER] for first in range(0, len(lines), _TOGETHER)]
        types = self._declared()
        connection = self._new()
        try:
            return self._read(lambda: self._called(connection, procedure, types, parts))
        finally:
            connection.close()

    def _declared(self) -> Types:
        """The types of the application, which are asked for once."""
        if self._types is None:
            self._types = exchange.types(self._ask(exchange.described()))
        return self._types

    def _called(
        self, connection: HTTPConnection, procedure: str, types: Types, parts: list[list[bytes]]
    ) -> list[Reply | TidemillError]:
        request = exchange.calls()
        connection.putrequest(request.method, request.path)
        for name, value in {**request.headers, **self._own}.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        if response.status != exchange.FOUND:
            raise Answer(self._url, response.status, response.read()).failure()
        outcomes: list[Reply | TidemillError] = []

        def answered(part: list[bytes]) -> None:
            for _ in part:
                line = response.readline()
                if not line:
                    raise EOFError("the connection was closed")
                try:
                    outcomes.append(exchange.reply(exchange.answer_of(self._url, line), procedure, types))
                except TidemillError as error:
                    outcomes.append(error)

        # While a part runs, the next one is sent.
        for number, part in enumerate(parts):
            connection.send(exchange.chunk(b"".join(part)))
            if number > 0:
                answered(parts[number - 1])
        if parts:
            answered(parts[-1])
        connection.send(exchange.chunk(b""))
        return outcomes

    @hides_no_procedure
    def push(
        self, source: str, events: Iterable[dict[str, Any]] | object, *, idempotency_key: str | None = None
    ) -> int:
        """Sends events to a source without a connector; all of them, or none where one is wrong.

        They are dicts, or an Arrow object: whatever has ``__arrow_c_stream__``, such as a table of pyarrow or a frame
        of polars, with a column for each field of the event.

        They are in the history when it returns: the number of an epoch that follows them. With an ``idempotency_key``
        the same events may be pushed again: they are taken once, and each push with the key gets the number of the
        first, for as long as ``app.source(..., remember=...)`` says. Raises ``SchemaError`` for a wrong event, and as a
        call does.
        """
        return exchange.pushed(self._ask(exchange.push(source, events, idempotency_key)))

    @hides_no_procedure
    def row(self, table: str, *key: object) -> dict[str, Any] | None:
        """The row of a table by its key; ``None`` if there is none."""
        types = self._declared()
        return exchange.row(self._ask(exchange.ask_row(table, key)), table, types)

    @hides_no_procedure
    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, sorted by key. Raises ``RunError``."""
        types = self._declared()
        return exchange.all_rows(self._ask(exchange.ask_rows(table)), table, types)

    @hides_no_procedure
    def metrics(self) -> str:
        """Returns the server's metrics, in the format of OpenMetrics. Raises ``RunError``."""
        return exchange.counted(self._ask(exchange.metrics()))

    @hides_no_procedure
    def sql(self, query: str, parameters: list[Any] | dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows that a query over the tables gives: decimals, instants and bytes are those of Python."""
        return exchange.rows(self._ask(exchange.query(query, parameters)))

    @hides_no_procedure
    def savepoint(self, name: str | None = None) -> Kept:
        """Makes a savepoint of the state that is served, of an epoch that contains everything that was answered before.

        Without a name it is ``epoch-`` and the epoch's number. Raises ``RunError`` where none is made: without a state,
        for a name that is taken or none, without the right, where the disk is full.
        """
        return exchange.kept(self._ask(exchange.savepoint(name)))

    @hides_no_procedure
    def follow(self, stream: str, after: str | None = None) -> Streaming:
        """The events of a stream as they are released, from now on or after a position, until the server ends.

        Raises ``GoneError`` where the events after the position are not kept any more.
        """
        types = self._declared()
        connection = self._new()
        try:
            response = self._sent(connection, exchange.follow(stream, after))
            if response.status != exchange.FOUND:
                raise exchange.no_stream(Answer(self._url, response.status, response.read()), stream, after)
        except BaseException:
            connection.close()
            raise
        # Its headers are here, so it follows from now on.
        return Streaming(stream, types, connection, lambda: self._read(response.read1))

    @hides_no_procedure
    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            free, self._free = self._free, []
        for _, connection in free:
            connection.close()

    def _ask(self, request: Request) -> Answer:
        connection = self._connection()
        try:
            response = self._sent(connection, request)
            text = self._read(response.read)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._free.append((time.monotonic(), connection))
        return Answer(self._url, response.status, text, types=response.headers.get(exchange.TYPES))

    def _sent(self, connection: HTTPConnection, request: Request) -> HTTPResponse:
        def send() -> HTTPResponse:
            is_used = connection.sock is not None
            headers = {**request.headers, **self._own}
            try:
                connection.request(request.method, request.path, request.body, headers)
            except ConnectionError:
                if not is_used:
                    raise
                # The server had closed it, and so has not heard the whole request: nothing was done.
                connection.close()
                connection.request(request.method, request.path, request.body, headers)
            return connection.getresponse()

        return self._read(send)

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (OSError, EOFError, HTTPException) as error:
            # It may be served anew, with other types.
            self._types = None
            raise _unreachable(self._url, error) from error

    def _connection(self) -> HTTPConnection:
        with self._lock:
            while self._free:
                since, connection = self._free.pop()
                if time.monotonic() - since < _SILENT_MAX:
                    return connection
                connection.close()
        return self._new()

    def _new(self) -> HTTPConnection:
        host, port = self._place.hostname or "", _port(self._place)
        if self._tls is None:
            return HTTPConnection(host, port, timeout=self._timeout)
        return HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)


class Streaming:
    """The events of a stream: an iterator of :class:`~tidemill.exchange.Streamed`. Leaving its ``with`` block, or
    ``close``, ends it.

    Raises ``MissedError`` where events were left out because this reader was too slow; it may be read on after that.
    """

    def __init__(self, stream: str, types: Types, connection: HTTPConnection, read: Callable[[], bytes]) -> None:
        self._stream, self._connection, self._read = stream, connection, read
        self._events = exchange.Events(stream, types)
        self.position: str | None = None
        """The position after the last event that was read: ``follow(stream, after=...)`` goes on there."""

    def __repr__(self) -> str:
        return f"<events of {self._stream}>"

    def __enter__(self) -> Streaming:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Streaming:
        return self

    def __next__(self) -> Streamed:
        while (event := self._events.next()) is None:
            part = self._read()
            if not part:
                self.close()
                raise StopIteration
            self._events.feed(part)
        self.position = event.position
        return event

    def close(self) -> None:
        """Follows no more."""
        self._connection.close()


class AsyncClient:
    """A client for ``asyncio``: its methods are awaited, and what is awaited together is on its way together.

    It belongs to one event loop. ``connections_max``: the most connections for reads, pushes and queries; more wait.
    """

    def __init__(
        self,
        url: str,
        timeout: float | None = None,
        connections_max: int = 64,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        cert: CertificateFiles | None = None,
    ) -> None:
        self._place = _place(url)
        self._tls = _tls(self._place, ca, cert)
        self._url, self._timeout = url, timeout
        self._own = {"Host": self._place.netloc} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._free: list[tuple[float, _Connection]] = []
        self._room = asyncio.Semaphore(connections_max)
        self._calls: _Calls | None = None
        self._types: asyncio.Future[Types] | None = None

    def __repr__(self) -> str:
        return f"<client of {self._url}>"

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Reply]]:
        if name.startswith("_"):
            raise AttributeError(name)

        async def call(**fields: Any) -> Reply:
            return await self.call(name, **fields)

        call.__name__ = name
        return call

    @hides_no_procedure
    async def call(
        self,
        procedure: str,
        event: Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        durable: bool = True,
        **fields: Any,
    ) -> Reply:
        """``Client.call``. The calls that are under way share a connection, and run in the order in which they were
        made."""
        line = exchange.line(procedure, _given(event, fields), idempotency_key, durable)
        if self._calls is None or self._calls.is_over():
            self._calls = _Calls(self)
        # It is made at once, so that calls keep their order.
        made = self._calls.make(line)
        answer = await self._waited(made)
        return exchange.reply(answer, procedure, await self._declared())

    async def _declared(self) -> Types:
        """The types of the application, which are asked for once."""
        if self._types is None or (self._types.done() and self._types.exception() is not None):
            self._types = asyncio.ensure_future(self._asked())
        return await asyncio.shield(self._types)

    async def _asked(self) -> Types:
        return exchange.types(await self._ask(exchange.described()))

    @hides_no_procedure
    async def push(
        self, source: str, events: Iterable[dict[str, Any]] | object, *, idempotency_key: str | None = None
    ) -> int:
        """``Client.push``."""
        return exchange.pushed(await self._ask(exchange.push(source, events, idempotency_key)))

    @hides_no_procedure
    async def row(self, table: str, *key: object) -> dict[str, Any] | None:
        """``Client.row``."""
        types = await self._declared()
        return exchange.row(await self._ask(exchange.ask_row(table, key)), table, types)

    @hides_no_procedure
    async def sql(self, query: str, parameters: list[Any] | dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """``Client.sql``."""
        return exchange.rows(await self._ask(exchange.query(query, parameters)))

    @hides_no_procedure
    async def savepoint(self, name: str | None = None) -> Kept:
        """``Client.savepoint``."""
        return exchange.kept(await self._ask(exchange.savepoint(name)))

    @hides_no_procedure
    async def follow(self, stream: str, after: str | None = None) -> AsyncStreaming:
        """``Client.follow``: ``async for event in await client.follow(stream)``."""
        types = await self._declared()
        connection = await self._new()
        try:
            status, headers = await self._waited(connection.ask(self._own, exchange.follow(stream, after)))
            if status != exchange.FOUND:
                text = await self._waited(connection.body(headers))
                raise exchange.no_stream(Answer(self._url, status, text), stream, after)
        except BaseException:
            connection.close()
            raise
        return AsyncStreaming(stream, types, connection, lambda: self._waited(connection.chunk()))

    @hides_no_procedure
    async def close(self) -> None:
        """Closes the connections."""
        free, self._free = self._free, []
        for _, connection in free:
            connection.close()
        if self._calls is not None:
            await self._calls.close()

    async def _ask(self, request: Request) -> Answer:
        async with self._room:
            connection = self._idle() or await self._new()
            try:
                status, headers = await self._waited(connection.ask(self._own, request))
                text = await self._waited(connection.body(headers))
            except BaseException:
                # Also where the caller waits no longer: the rest of the answer is nobody's.
                connection.close()
                raise
            if headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                self._free.append((time.monotonic(), connection))
            return Answer(self._url, status, text, types=headers.get(exchange.TYPES))

    def _idle(self) -> _Connection | None:
        while self._free:
            since, connection = self._free.pop()
            if time.monotonic() - since < _SILENT_MAX and not connection.is_closed():
                return connection
            connection.close()
        return None

    async def _new(self) -> _Connection:
        host, port = self._place.hostname, _port(self._place)
        opening = asyncio.open_connection(host, port, limit=_LINE_MAX, ssl=self._tls)
        return _Connection(*await self._waited(opening))

    async def _waited(self, what: Awaitable[Any]) -> Any:
        try:
            return await asyncio.wait_for(what, self._timeout)
        except asyncio.TimeoutError as error:
            raise _unreachable(self._url, "timed out") from error
        except (OSError, EOFError, ValueError) as error:
            # It may be served anew, with other types.
            self._types = None
            raise _unreachable(self._url, error) from error


class _Calls:
    """The calls on one connection: each a line of one request; its answer is the line of the response in that place."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._unsent: list[bytes] = []
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._connection: _Connection | None = None
        self._wakes = asyncio.Event()
        self._heard = time.monotonic()
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def is_over(self) -> bool:
        """Returns whether no call can be made any more: it was closed, or nobody has used it for so long that the
        server may be about to close it."""
        is_silent = not self._waiting and time.monotonic() - self._heard > _SILENT_MAX
        if is_silent:
            self._task.cancel()
        return self._is_over or is_silent

    def make(self, line: bytes) -> asyncio.Future[Answer]:
        """Makes a call."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._unsent.append(line)
        self._waiting.append(answer)
        self._wakes.set()
        return answer

    async def close(self) -> None:
        """Closes the connection."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        error: BaseException = EOFError("the connection was closed")
        sending = None
        try:
            self._connection = await self._client._new()
            status, headers = await self._connection.ask(self._client._own, exchange.calls())
            if status != exchange.FOUND:
                # None of them was made: each has the answer.
                answer = Answer(self._client._url, status, await self._connection.body(headers))
                self._is_over = True
                self._give([answer] * len(self._waiting))
                return
            sending = asyncio.get_running_loop().create_task(self._send(self._connection))
            rest = b""
            while part := await self._connection.chunk():
                *lines, rest = (rest + part).split(b"\n")
                self._heard = time.monotonic()
                self._give([exchange.answer_of(self._client._url, line) for line in lines])
        except (OSError, EOFError, ValueError, RunError) as failed:
            error = failed
        finally:
            self._is_over = True
            if sending is not None:
                sending.cancel()
            if self._connection is not None:
                self._connection.close()
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(error)

    def _give(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            waiting = self._waiting.popleft()
            # Somebody may not wait any more.
            if not waiting.done():
                waiting.set_result(answer)

    async def _send(self, connection: _Connection) -> None:
        while True:
            await self._wakes.wait()
            self._wakes.clear()
            unsent, self._unsent = self._unsent, []
            await connection.send(exchange.chunk(b"".join(unsent)))


class AsyncStreaming:
    """``Streaming`` for ``async for``."""

    def __init__(
        self, stream: str, types: Types, connection: _Connection, read: Callable[[], Awaitable[bytes]]
    ) -> None:
        self._stream, self._connection, self._read = stream, connection, read
        self._events = exchange.Events(stream, types)
        self.position: str | None = None
        """As ``Streaming.position``."""

    def __repr__(self) -> str:
        return f"<events of {self._stream}>"

    async def __aenter__(self) -> AsyncStreaming:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncStreaming:
        return self

    async def __anext__(self) -> Streamed:
        while (event := self._events.next()) is None:
            part = await self._read()
            if not part:
                self.close()
                raise StopAsyncIteration
            self._events.feed(part)
        self.position = event.position
        return event

    def close(self) -> None:
        """Follows no more."""
        self._connection.close()


class _Connection:
    """One request at a time, by HTTP 1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, own: Mapping[str, str], request: Request) -> tuple[int, dict[str, str]]:
        """Sends a request: the status and the headers of its response."""
        headers = {**own, **request.headers}
        if request.body is not None:
            headers["Content-Length"] = str(len(request.body))
        lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + (request.body or b""))
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        return int(head[0].split(" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def send(self, part: bytes) -> None:
        """Sends more of a request."""
        self._writer.write(part)
        await self._writer.drain()

    async def body(self, headers: dict[str, str]) -> bytes:
        """All of a response."""
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length", 0)))
        chunks = []
        while chunk := await self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    async def chunk(self) -> bytes:
        """The next part of a response that comes in parts; nothing at its end."""
        size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()


def connect(
    url: str,
    *,
    timeout: float | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: CertificateFiles | None = None,
) -> Client:
    """A client of the application that is served at ``url``, such as ``http://127.0.0.1:8740``.

    With ``async with tm.connect(url) as client`` its methods are awaited. ``timeout``: seconds that an answer may take.
    ``token``: the user's secret, where the server asks who one is (``tidemill user add``), or a JWT.
    ``ca``: of a server with TLS, a file in PEM with the certificates that are trusted, if not those of the system.
    ``cert``: the files in PEM of a certificate that says who one is, and of its key.
    """
    return Client(url, timeout, token, ca, cert)


def _given(event: Mapping[str, Any] | None, fields: dict[str, Any]) -> Mapping[str, Any]:
    """The fields of a call."""
    if event is None:
        return fields
    if fields:
        raise SchemaError(*BOTH)
    return event


def _place(url: str) -> SplitResult:
    place = urlsplit(url)
    if place.scheme not in ("http", "https") or not place.hostname:
        raise RunError(f"{url!r} is not where an application is served; give http://ADDRESS:PORT")
    return place


def _port(place: SplitResult) -> int:
    return place.port or (443 if place.scheme == "https" else 80)


def _tls(place: SplitResult, ca: str | os.PathLike[str] | None, cert: CertificateFiles | None) -> ssl.SSLContext | None:
    if place.scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise RunError(f"cannot read the certificates in {os.fspath(ca or '')!r}: {error}") from None
    if cert is not None:
        try:
            context.load_cert_chain(*cert)
        except (OSError, ssl.SSLError) as error:
            files = " and ".join(repr(os.fspath(file)) for file in cert)
            raise RunError(f"cannot use the certificate and key in {files}: {error}") from None
    return context


def _unreachable(url: str, error: object) -> RunError:
    return RunError(f"no answer from {url}: {str(error) or type(error).__name__}")
