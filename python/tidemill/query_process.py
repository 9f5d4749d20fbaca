"""A process that answers the queries of a server, and what a server starts it with (docs/server.md#processes)."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import signal
import sys

from . import _engine, sql

__all__ = ["launch", "run"]

_KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME")
"""The variables of the environment that a process keeps: those that programs are found and begun by. All others may be
secrets."""


_BEGIN = """
import sys, types
sys.path[:] = {path!r}
package = sys.modules["tidemill"] = types.ModuleType("tidemill")
package.__path__ = {package!r}
from tidemill.query_process import run
run(int(sys.argv[1]))
"""
"""Imports of the package what queries need alone: the whole of it would take a third of the time until the first."""


def launch() -> tuple[str, list[str], dict[str, str]] | None:
    """The program, the arguments and the environment of such a process; None where there is no DuckDB or no program."""
    if importlib.util.find_spec("duckdb") is None or not sys.executable:
        return None
    # The process imports from where this program does, whatever has changed its path since it began.
    path = [os.path.abspath(entry) for entry in sys.path]
    code = _BEGIN.format(path=path, package=[os.path.dirname(os.path.abspath(__file__))])
    environment = {name: value for name in _KEPT if (value := os.environ.get(name)) is not None}
    # A thread of the allocator's own takes address space that the process cannot have.
    return sys.executable, ["-I", "-c", code], {**environment, "MALLOC_ARENA_MAX": "2"}


def run(memory_max: int) -> None:
    """Answers queries until the server ends. ``memory_max``: the bytes of address space beside what the process has."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The server says when it ends.
        signal.signal(ignored, signal.SIG_IGN)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    _warm()
    _engine.answer_queries_with(sql.answered, sql.prepare, memory_max)


def _warm() -> None:
    """Asks what imports and begins all that queries need: later nothing can be opened any more."""
    limits = (60.0, 10, 1 << 28)
    parameters = (
        '[1, 1.5, "a", null, true, {"numeric": "1.25"}, {"micros": 0}, {"bytes": [1]}, {"list": ["1"], "of": "text[]"}]'
    )
    values = ", ".join(f"? as c{column}" for column in range(9))
    frame = sql.answered({}, 1, f"select {values}, now()", parameters, "lists", limits, lambda: True)
    frame.__arrow_c_stream__()
    with contextlib.suppress(sql.QueryError):
        sql.answered({}, 1, "select 1 from nowhere", None, "own", limits, lambda: True)
