"""What clients and the server say to each other (docs/server.md): requests to send, answers to read."""

from __future__ import annotations

import base64
import decimal
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, cast
from urllib.parse import quote

from . import _engine
from .data import is_arrow
from .errors import BusyError, GoneError, IdempotencyError, MissedError, PlanError, RunError, SchemaError
from .replies import Reply, result_of

FOUND = 200
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

    def object(self) -> dict[str, Any]:
        """The JSON object that it is. Anything else is an error."""
        if self.known is not None:
            return self.known
        try:
            return cast("dict[str, Any]", json.loads(self.text))
        except ValueError:
            return {"error": self.text.decode(errors="replace")}

    def failure(self) -> RunError:
        """Of a server that does not do what it was asked for."""
        said = self.object()
        message = f"{self.url} answers {self.status}: {said.get('error', 'nothing more')}"
        return BusyError(message, said["retry_after"]) if "retry_after" in said else RunError(message)


@dataclass(frozen=True)
class Streamed:
    """An event of a stream: ``event["amount"]`` is one of its values, as in JSON Lines."""

    value: dict[str, Any]
    position: str
    """The position after it, such as ``7.2``: its epoch, and a number of the epoch's events."""

    def __getitem__(self, field: str) -> Any:
        return self.value[field]


class Events:
    """Puts the events of a stream together from its bytes (server-sent events)."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
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
                kind, position, data = self._kind, self._position, json.loads(self._data)
                self._clear()
                if kind == "missed":
                    raise MissedError(self._stream, data["events"])
                return Streamed(data, position)
        return None


def call(procedure: str, fields: Mapping[str, Any], key: str | None, durable: bool) -> Request:
    """To call a transaction, perhaps with a key."""
    own = {} if key is None else {"Idempotency-Key": _header(key)}
    return _post(f"/call/{quote(procedure, safe='')}{'' if durable else '?durable=false'}", _json(fields), own)


def calls() -> Request:
    """To make many calls, each a :func:`line` of the body, which goes on."""
    return Request("POST", "/calls", None, {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"})


def line(procedure: str, fields: Mapping[str, Any], key: str | None, durable: bool) -> bytes:
    """A call among many."""
    said: dict[str, Any] = {"call": procedure, "fields": fields}
    if not durable:
        said["durable"] = False
    if key is not None:
        said["idempotency_key"] = _header(key)
    return _json(said) + b"\n"


def chunk(part: bytes) -> bytes:
    """A part of a body that comes in parts."""
    return b"%x\r\n%b\r\n" % (len(part), part)


def answer_of(url: str, line: bytes) -> Answer:
    """The answer to a call among many."""
    said = json.loads(line)
    return Answer(url, said["status"], b"", said["reply"])


def _header(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or key != key.strip():
        raise IdempotencyError(f"the key {key!r} is not of visible ASCII")
    return key


def reply(answer: Answer) -> Reply:
    """The reply to a call. Raises ``Aborted``, ``SchemaError``, ``PlanError``, ``BusyError``, ``RunError``."""
    said = _accepted(answer)
    if answer.status == _ABORTED:
        return result_of(said["epoch"], None, (said["aborted"], said["seen"]))
    if "committed" not in said:
        raise answer.failure()
    return result_of(said["epoch"], said["committed"], None)


def push(source: str, events: Iterable[Mapping[str, Any]] | object) -> Request:
    """To push events into a source: dicts, or an Arrow object. Raises ``SchemaError`` where it is neither."""
    path = f"/stream/{quote(source, safe='')}"
    if is_arrow(events):
        try:
            return Request("POST", path, _engine.arrow_stream(events), {"Content-Type": _ARROW})
        except ValueError as error:
            raise SchemaError(f"source '{source}': {error}") from None
    if isinstance(events, (str, bytes, Mapping)) or not isinstance(events, Iterable):
        hint = "give dicts, or an object with __arrow_c_stream__, such as a table of pyarrow or a frame of polars"
        raise SchemaError(f"source '{source}': a {type(events).__name__} is no events", hint)
    return _post(path, b"\n".join(_json(event) for event in events))


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


def row(answer: Answer) -> dict[str, Any] | None:
    """The row, if there is one. Raises ``RunError``."""
    said = answer.object()
    if answer.status == _NOT_FOUND and "no row" in said["error"]:
        return None
    if answer.status != FOUND:
        raise answer.failure()
    return said


def query(sql: str, parameters: list[Any] | dict[str, Any] | None) -> Request:
    """To ask for the rows of a query."""
    return _post("/query", _json({"sql": sql, "parameters": parameters}))


def rows(answer: Answer) -> list[dict[str, Any]]:
    """The rows of a query. Raises ``RunError``."""
    if answer.status != FOUND:
        raise answer.failure()
    return [json.loads(line) for line in answer.text.splitlines()]


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
    """What a server says that found nothing wrong with the request."""
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


def _json(value: object) -> bytes:
    return json.dumps(value, default=_written).encode()


def _written(value: object) -> object:
    """How values are written that JSON has no form for."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise SchemaError(f"{type(value).__name__} is no value of a field")


def _text(value: object) -> str:
    return str(_written(value)) if isinstance(value, datetime) else str(value)
