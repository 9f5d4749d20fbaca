"""Serving a session over HTTP (docs/server.md)."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._engine import NativeServer
from .summary import RunSummary

if TYPE_CHECKING:
    from .app import App

__all__ = ["Server", "serve"]


class Server:
    """A session that is served, until the ``with`` block is left or ``stop`` is called."""

    def __init__(self, native: NativeServer) -> None:
        self._native = native
        self.url = native.url
        """Where it is served, such as ``http://127.0.0.1:8740``."""

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


def serve(app: App, host: str, port: int, insecure: bool, quiet: bool, options: Mapping[str, Any]) -> RunSummary:
    """``App.serve``."""
    with interruptible(), app.start(**options) as mill:
        try:
            with mill.serve(host, port, insecure=insecure) as server:
                if not quiet:
                    sys.stderr.write(f"serving {app.name} on {server.url}\n")
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
