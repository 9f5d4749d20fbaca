"""Serving a session over HTTP and to clients of PostgreSQL (docs/server.md)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._engine import NativeServer
from .summary import RunSummary
from .telemetry import Telemetry

if TYPE_CHECKING:
    from .app import App

__all__ = ["Place", "Server", "serve"]

POSTGRES_PORT = 5433


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
