"""Serving a session over HTTP and to clients of PostgreSQL (docs/server.md)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._engine import NativeServer
from .errors import PlanError
from .summary import RunSummary
from .telemetry import Telemetry

if TYPE_CHECKING:
    from .app import App

__all__ = ["Limits", "Place", "Server", "serve"]

POSTGRES_PORT = 5433


@dataclass(frozen=True)
class Limits:
    """How much clients may make pile up; beyond it a request is refused (docs/server.md#limits)."""

    calls_max: int = 10_000
    """Calls without a reply."""
    asks_max: int = 1_000
    """Reads and pushes without an answer."""
    connections_max: int = 1_000
    """Open connections of each protocol."""
    readers_max: int = 100
    """Readers of streams, of both protocols together."""
    body_bytes_max: int = 1 << 20
    """Bytes of a request's body, or of a message."""
    queries_max: int = 4
    """Queries that run at once."""
    queries_waiting_max: int = 16
    """Queries that wait until they may run, each for as long as a query may run."""
    query_seconds_max: float = 30.0
    """How long a query may run."""
    query_rows_max: int = 100_000
    """Rows that a query may give."""
    table_rows_max: int = 10_000_000
    """Rows of a table that a read may give which is no query."""
    query_memory_max: int = 1 << 30
    """Bytes of memory of all queries together, beside the tables that they read: each has an equal part."""
    silence_seconds_max: float = 60.0
    """How long a connection may be silent, and a body or a message may take."""
    drain_seconds_max: float = 10.0
    """How long the end waits for what is under way."""

    @staticmethod
    def of(given: Mapping[str, Any]) -> tuple[Limits, dict[str, Any]]:
        """The limits among options, and the other options."""
        names = {field.name for field in fields(Limits)}
        others = {name: value for name, value in given.items() if name not in names}
        limits = Limits(**{name: value for name, value in given.items() if name in names})
        for name, value in asdict(limits).items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not value >= 0 or (isinstance(value, float) and "seconds" not in name):
                what = "seconds" if "seconds" in name else "a whole number"
                raise PlanError(f"{name}={value!r} is not a limit", f"give {what} from 0")
        return limits, others


class Server:
    """A session that is served, until the ``with`` block is left or ``stop`` is called."""

    def __init__(self, native: NativeServer, telemetry: Telemetry | None = None) -> None:
        self._native = native
        self._telemetry = telemetry
        self.url = native.url
        """Where it is served, such as ``http://127.0.0.1:8740``."""
        self.postgres_url = native.postgres_url
        """Where clients of PostgreSQL connect to, such as ``postgresql://127.0.0.1:5433/bank``, if they are served."""

    def __repr__(self) -> str:
        return f"<server on {self.url}>"

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes no more requests, answers those that are under way, and ends. The session goes on."""
        self._native.stop()
        if self._telemetry is not None:
            self._telemetry.stop()
            self._telemetry = None


@dataclass(frozen=True)
class Place:
    """Where an application is served."""

    host: str
    port: int
    postgres: bool
    postgres_port: int | None
    users: str | os.PathLike[str] | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    insecure: bool
    telemetry: bool


def serve(app: App, place: Place, quiet: bool, options: Mapping[str, Any]) -> RunSummary:
    """``App.serve``."""
    # One who wants any port has several servers, perhaps.
    default = POSTGRES_PORT if place.port else 0
    postgres_port = default if place.postgres_port is None else place.postgres_port
    limits, options = Limits.of(options)
    with interruptible(), app.start(**options) as mill:
        try:
            served = mill.serve(
                place.host,
                place.port,
                postgres=place.postgres,
                postgres_port=postgres_port,
                users=place.users,
                tls_cert=place.tls_cert,
                tls_key=place.tls_key,
                insecure=place.insecure,
                telemetry=place.telemetry,
                **asdict(limits),
            )
            with served as server:
                if not quiet:
                    postgres = f" and {server.postgres_url}" if server.postgres_url else ""
                    sys.stderr.write(f"serving {app.name} on {server.url}{postgres}\n")
                server._native.wait()
        except KeyboardInterrupt:
            pass
        if any(source._connector is not None for source in app.sources.values()):
            # They may never end.
            mill.stop()
        return mill.close()


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM is as Ctrl-C meanwhile, where signals are handled at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
