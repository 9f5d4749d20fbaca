"""Serving a session over HTTP and to clients of PostgreSQL (docs/server.md)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal

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
    """The most of each resource that clients may occupy; beyond it a request is refused (docs/server.md#limits)."""

    calls_max: int = 10_000
    """Calls without a reply."""
    asks_max: int = 1_000
    """Reads and pushes without an answer."""
    connections_max: int = 1_000
    """Open connections of each protocol."""
    readers_max: int = 100
    """Readers of streams, of both protocols together."""
    responses_bytes_max: int = 1 << 28
    """Bytes of tables that responses hold until their clients take them."""
    prepared_bytes_max: int = 1 << 29
    """Bytes of statements and portals of clients of PostgreSQL; of one connection, an eighth."""
    body_bytes_max: int = 1 << 20
    """Bytes of a request's body, or of a message."""
    queries_max: int = 2
    """Queries that run at once, each in a process of its own. Of several, one is for those over the catalogs alone."""
    queries_waiting_max: int = 16
    """Queries that wait until they may run, each for as long as a query may run."""
    query_seconds_max: float = 30.0
    """The longest time that a query may run."""
    query_rows_max: int = 100_000
    """Rows that a query may give."""
    table_rows_max: int = 10_000_000
    """Rows of a table that a read may give which is no query."""
    query_memory_max: int = 1 << 30
    """Bytes of memory of all queries together: half for the tables that they read, half in equal parts for each."""
    silence_seconds_max: float = 60.0
    """The longest time for which a connection may be silent, a body or a message may take, and a client may take
    nothing."""
    drain_seconds_max: float = 10.0
    """The longest time that the end waits for what is under way."""

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
        """The URL of the server, such as ``http://127.0.0.1:8740``."""
        self.postgres_url = native.postgres_url
        """The URL for clients of PostgreSQL, such as ``postgresql://127.0.0.1:5433/bank``, if they are served."""
        if native.notice is not None:
            sys.stderr.write(f"{native.notice}\n")

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
    """The address at which an application is served."""

    host: str
    port: int
    postgres: bool
    postgres_port: int | None
    users: str | os.PathLike[str] | None
    tls_cert: str | os.PathLike[str] | None
    tls_key: str | os.PathLike[str] | None
    tls_client_ca: str | os.PathLike[str] | None
    tls_client: Literal["optional", "required"]
    jwt_keys: str | os.PathLike[str] | None
    jwt_issuer: str | None
    jwt_audience: str | None
    insecure: bool
    telemetry: bool
    traces: str | None
    traces_share: float


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
                tls_client_ca=place.tls_client_ca,
                tls_client=place.tls_client,
                jwt_keys=place.jwt_keys,
                jwt_issuer=place.jwt_issuer,
                jwt_audience=place.jwt_audience,
                insecure=place.insecure,
                telemetry=place.telemetry,
                traces=place.traces,
                traces_share=place.traces_share,
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
        # A disk that is full may stay so: what the log has no room for was not answered.
        return mill._close(gives_up=True)


class Interrupted(KeyboardInterrupt):
    """A signal that ends a run as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP are as Ctrl-C meanwhile, where signals are handled at all. One that is ignored stays so, as
    ``nohup`` wants it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGTERM, signal.SIGHUP] if hasattr(signal, "SIGHUP") else [signal.SIGTERM]
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, _interrupt) for number in handled]
    try:
        yield
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)
