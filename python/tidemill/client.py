"""A client of a served application: ``tm.connect(url)``. It needs the standard library alone."""

from __future__ import annotations

import base64
import decimal
import json
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote, urlsplit

from .errors import PlanError, RunError, SchemaError
from .replies import Reply, result_of

__all__ = ["Client", "connect"]

_SILENT_MAX = 30.0
"""Seconds after which a connection is not used again: the server closes silent ones."""

_FOUND, _ABORTED, _NOT_FOUND, _WRONG = 200, 409, 404, (400, 422)


class Client:
    """Calls a served application: ``client.deposit(account="ada", amount=10)``. Threads may share it.

    A call raises ``Aborted`` where the transaction aborts, ``SchemaError`` where the fields are wrong, ``PlanError``
    where there is no such procedure, and ``RunError`` where the server cannot be reached or refuses. If a connection
    fails during a call, the call may have run or not.
    """

    def __init__(self, url: str, timeout: float | None = None) -> None:
        place = urlsplit(url)
        if place.scheme != "http" or not place.hostname:
            raise RunError(f"{url!r} is not where an application is served; give http://ADDRESS:PORT")
        self._host, self._port, self._timeout = place.hostname, place.port or 80, timeout
        self._url = url
        self._free: list[tuple[float, HTTPConnection]] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<client of {self._url}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., Reply]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(**fields: Any) -> Reply:
            return self.call(name, **fields)

        call.__name__ = name
        return call

    def call(self, procedure: str, /, **fields: Any) -> Reply:
        """Calls a transaction by its name."""
        body = json.dumps(fields, default=_json).encode()
        status, answer = self._ask("POST", f"/call/{quote(procedure, safe='')}", body)
        if status == _ABORTED:
            return result_of(answer["epoch"], None, (answer["aborted"], answer["seen"]))
        if status in _WRONG:
            field = f"field '{answer['field']}': " if "field" in answer else ""
            raise SchemaError(f"{field}{answer['error']}")
        if status == _NOT_FOUND:
            raise PlanError(answer["error"])
        if "committed" not in answer:
            raise RunError(f"{self._url} answers {status}: {answer.get('error', 'nothing more')}")
        return result_of(answer["epoch"], answer["committed"], None)

    def row(self, table: str, *key: object) -> dict[str, Any] | None:
        """The row of a table by its key; ``None`` if there is none."""
        parts = [quote(table, safe=""), *(quote(_text(part), safe="") for part in key)]
        status, answer = self._ask("GET", "/tables/" + "/".join(parts), None)
        if status == _NOT_FOUND and "no row" in answer["error"]:
            return None
        if "error" in answer:
            raise RunError(f"{self._url} answers {status}: {answer['error']}")
        return answer

    def sql(self, query: str, parameters: list[Any] | dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows that a query over the tables gives, with values as in JSON Lines."""
        asked = json.dumps({"sql": query, "parameters": parameters}, default=_json).encode()
        status, text = self._text("POST", "/query", asked)
        if status != _FOUND:
            raise RunError(f"{self._url} answers {status}: {_object(text).get('error', 'nothing more')}")
        return [json.loads(line) for line in text.splitlines()]

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            free, self._free = self._free, []
        for _, connection in free:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
        status, text = self._text(method, path, body)
        return status, _object(text)

    def _text(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            response: HTTPResponse = connection.getresponse()
            text = response.read()
        except (OSError, HTTPException) as error:
            connection.close()
            raise RunError(f"no answer from {self._url}: {error or type(error).__name__}") from error
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._free.append((time.monotonic(), connection))
        return response.status, text

    def _connection(self) -> HTTPConnection:
        with self._lock:
            while self._free:
                since, connection = self._free.pop()
                if time.monotonic() - since < _SILENT_MAX:
                    return connection
                connection.close()
        return HTTPConnection(self._host, self._port, timeout=self._timeout)


def connect(url: str, *, timeout: float | None = None) -> Client:
    """A client of the application that is served at ``url``, such as ``http://127.0.0.1:8740``.

    ``timeout``: seconds that an answer may take.
    """
    return Client(url, timeout)


def _object(text: bytes) -> dict[str, Any]:
    """What was answered as JSON; anything else is an error."""
    try:
        return cast("dict[str, Any]", json.loads(text))
    except ValueError:
        return {"error": text.decode(errors="replace")}


def _json(value: object) -> object:
    """How values are written that JSON has no form for."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise SchemaError(f"{type(value).__name__} is no value of a field")


def _text(value: object) -> str:
    return str(_json(value)) if isinstance(value, datetime) else str(value)
