"""The messages between clients and the server (docs/server.md): requests to send, answers to read."""

from __future__ import annotations

import base64
import decimal
import importlib
import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, cast
from urllib.parse import quote

from . import _engine
from .data import is_arrow
from .declared import Columns, Types, loads, values
from .errors import BusyError, GoneError, IdempotencyError, MissedError, PlanError, RunError, SchemaError
from .replies import Reply, result_of

FOUND = 200
TYPES = "tidemill-types"
"""The header with the types of the columns of a query."""
_ARROW = "application/vnd.apache.arrow.stream"
_NOT_FOUND, _ABORTED, _GONE, _WRONG = 404, 409, 410, (400, 422)


@dataclass(frozen=True)
class Request:
    """A request over HTTP."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The whole response of a server."""

    url: str
    status: int
    text: bytes
    known: dict[str, Any] | None = None
    """The object that it is, if that is known."""
    types: str | None = None
    """The types of its columns as JSON, where it has some of its own (``TYPES``)."""

    def object(self) -> dict[str, Any]:
        """The JSON object that it is. Anything else is an error."""
        if self.known is not None:
            return self.known
        try:
            return cast("dict[str, Any]", loads(self.text))
        except ValueError:
            return {"error": self.text.decode(errors="replace")}

    def failure(self) -> RunError:
        """Returns the error of a server that does not do what it was asked for."""
        said = self.object()
        message = f"{self.url} answers {self.status}: {said.get('error', 'nothing more')}"
        return BusyError(message, said["retry_after"]) if "retry_after" in said else RunError(message)


@dataclass(frozen=True)
class Streamed:
    """An event of a stream: ``event["amount"]`` is one of its values."""

    value: dict[str, Any]
    position: str
    """The position after it, such as ``7.2@00c0ffee00c0ffee``: its epoch, a number of the epoch's events, and its
    history."""

    def __getitem__(self, field: str) -> Any:
        return self.value[field]


@dataclass(frozen=True)
class Kept:
    """A savepoint that a server has made."""

    name: str
    epoch: int
    """The released epoch that it is of. It contains everything that was answered before."""


class Events:
    """Puts the events of a stream together from its bytes (server-sent events)."""

    def __init__(self, stream: str, types: Types) -> None:
        self._stream, self._types = stream, types.of_stream(stream)
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._clear()

    def _clear(self) -> None:
        self._kind, self._position, self._data = "", "", ""

    def feed(self, part: bytes) -> None:
        """Adds what has come."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        self._lines.extend(lines)

    def next(self) -> Streamed | None:
        """The next event that is whole, if there is one. Raises ``MissedError``, and goes on after it."""
        while self._lines:
            name, _, value = self._lines.popleft().decode().rstrip("\r").partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._kind = value
            elif name == "id":
                self._position = value
            elif name == "data":
                self._data += value
            elif not name and not value and self._data:
                kind, position, data = self._kind, self._position, loads(self._data)
                self._clear()
                if kind == "missed":
                    raise MissedError(self._stream, data["events"])
                return Streamed(values(self._types, data), position)
        return None


def call(procedure: str, fields: Mapping[str, Any], key: str | None, durable: bool) -> Request:
    """To call a transaction, perhaps with a key."""
    own = _span() if key is None else {"Idempotency-Key": _header(key), **_span()}
    return _post(f"/call/{quote(procedure, safe='')}{'' if durable else '?durable=false'}", _json(fields), own)


def calls() -> Request:
    """To make many calls, each a :func:`line` of the body, which goes on."""
    return Request("POST", "/calls", None, {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"})


def _span() -> dict[str, str]:
    """The headers that say the span in which this thread or task is, where OpenTelemetry is in use."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    carrier: dict[str, str] = {}
    importlib.import_module("opentelemetry.propagate").inject(carrier)
    return {name: value for name, value in carrier.items() if name in ("traceparent", "tracestate")}


def line(procedure: str, fields: Mapping[str, Any], key: str | None, durable: bool) -> bytes:
    """A call among many."""
    said: dict[str, Any] = {"call": procedure, "fields": fields}
    if not durable:
        said["durable"] = False
    if key is not None:
        said["idempotency_key"] = _header(key)
    if parent := _span().get("traceparent"):
        said["traceparent"] = parent
    return _json(said) + b"\n"


def chunk(part: bytes) -> bytes:
    """A part of a body that comes in parts."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def answer_of(url: str, line: bytes) -> Answer:
    """The answer to a call among many."""
    said = loads(line)
    return Answer(url, said["status"], b"", said["reply"])


def described() -> Request:
    """To ask for the types of an application."""
    return Request("GET", "/", None, {"Accept": "application/json"})


def types(answer: Answer) -> Types:
    """The types of an application. Raises ``RunError``."""
    if answer.status != FOUND:
        raise answer.failure()
    return Types(answer.object())


def _header(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or key != key.strip():
        raise IdempotencyError(f"the key {key!r} is not of visible ASCII")
    return key


def reply(answer: Answer, procedure: str, types: Types) -> Reply:
    """The reply to a call. Raises ``Aborted``, ``SchemaError``, ``PlanError``, ``BusyError``, ``RunError``."""
    said = _accepted(answer)
    if answer.status == _ABORTED:
        return result_of(said["epoch"], None, (said["aborted"], values(types.of_seen(procedure), said["seen"])))
    if "committed" not in said:
        raise answer.failure()
    committed = said["committed"]
    return result_of(said["epoch"], committed and values(types.of_committed(procedure), committed), None)


def push(source: str, events: Iterable[Mapping[str, Any]] | object, key: str | None) -> Request:
    """To push events into a source: dicts, or an Arrow object. Raises ``SchemaError`` where it is neither."""
    path = f"/stream/{quote(source, safe='')}"
    own = {} if key is None else {"Idempotency-Key": _header(key)}
    if is_arrow(events):
        try:
            return Request("POST", path, _engine.arrow_stream(events), {"Content-Type": _ARROW, **own})
        except ValueError as error:
            raise SchemaError(f"source '{source}': {error}") from None
    if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
        hint = "give dicts, or an object with __arrow_c_stream__, such as a table of pyarrow or a frame of polars"
        raise SchemaError(f"source '{source}': a {type(events).__name__} is no events", hint)
    return _post(path, b"\n".join(_json(event) for event in events), own)


def pushed(answer: Answer) -> int:
    """The epoch that follows what was pushed. Raises as :func:`reply`."""
    said = _accepted(answer)
    if answer.status != FOUND:
        raise answer.failure()
    return cast(int, said["epoch"])


def ask_row(table: str, key: Iterable[object]) -> Request:
    """To ask for the row of a key."""
    parts = [quote(table, safe=""), *(quote(_text(part), safe="") for part in key)]
    return Request("GET", "/tables/" + "/".join(parts))


def row(answer: Answer, table: str, types: Types) -> dict[str, Any] | None:
    """The row, if there is one. Raises ``RunError``."""
    said = answer.object()
    if answer.status == _NOT_FOUND and "no row" in said["error"]:
        return None
    if answer.status != FOUND:
        raise answer.failure()
    return values(types.of_table(table), said)


def ask_rows(table: str) -> Request:
    """To ask for all rows of a table."""
    return Request("GET", f"/tables/{quote(table, safe='')}")


def all_rows(answer: Answer, table: str, types: Types) -> list[dict[str, Any]]:
    """The rows. Raises ``RunError``."""
    if answer.status != FOUND:
        raise answer.failure()
    columns = types.of_table(table)
    return [values(columns, loads(line)) for line in answer.text.split(b"\n") if line]


def metrics() -> Request:
    """To ask for what a server counts."""
    return Request("GET", "/metrics")


def counted(answer: Answer) -> str:
    """Returns the metrics in an answer. Raises ``RunError``."""
    if answer.status != FOUND:
        raise answer.failure()
    return answer.text.decode()


def query(sql: str, parameters: list[Any] | dict[str, Any] | None) -> Request:
    """To ask for the rows of a query."""
    return _post("/query", _json({"sql": sql, "parameters": parameters}))


def rows(answer: Answer) -> list[dict[str, Any]]:
    """The rows of a query. Raises ``RunError``."""
    if answer.status != FOUND:
        raise answer.failure()
    types: Columns = json.loads(answer.types or "{}")
    return [values(types, loads(line)) for line in answer.text.split(b"\n") if line]


def savepoint(name: str | None) -> Request:
    """To make a savepoint."""
    return _post("/savepoints" if name is None else f"/savepoints/{quote(name, safe='')}", b"")


def kept(answer: Answer) -> Kept:
    """The savepoint that was made. Raises ``BusyError``, ``RunError``."""
    if answer.status != FOUND:
        raise answer.failure()
    said = answer.object()
    return Kept(said["savepoint"], said["epoch"])


def follow(stream: str, after: str | None) -> Request:
    """To follow a stream."""
    headers = {} if after is None else {"Last-Event-ID": after}
    return Request("GET", f"/streams/{quote(stream, safe='')}", None, headers)


def no_stream(answer: Answer, stream: str, after: str | None) -> Exception:
    """Why a stream is not followed."""
    said = answer.object()
    if answer.status == _GONE and after is not None and "kept" in said:
        return GoneError(stream, after, said["kept"])
    return PlanError(said["error"]) if answer.status == _NOT_FOUND else answer.failure()


def _accepted(answer: Answer) -> dict[str, Any]:
    """Returns the object of an answer that found nothing wrong with the request."""
    said = answer.object()
    if "idempotency_key" in said:
        raise IdempotencyError(said["error"])
    if answer.status in _WRONG:
        places = [f"{name} {said[name]!r}" for name in ("line", "field") if name in said]
        place = ", ".join(places) + ": " if places else ""
        raise SchemaError(f"{place}{said['error']}")
    if answer.status == _NOT_FOUND:
        raise PlanError(said["error"])
    return said


def _post(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Request:
    return Request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})


def text(value: object) -> str:
    """A value as a server would take it: JSON in which decimals and instants are texts, and bytes base64."""
    return _json(value).decode()


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, default=_written, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_named(value), default=_written).encode()


def _named(value: object) -> object:
    """Replaces the floats that JSON has no numbers for by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {name: _named(item) for name, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, (list, tuple)) else value


def _written(value: object) -> object:
    """Returns the text of a value that JSON has no form for."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise SchemaError(f"{type(value).__name__} is no value of a field")


def _text(value: object) -> str:
    """A value of a key as a part of a path."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else str(_written(value))
