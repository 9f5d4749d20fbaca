"""Tidemill: events in, state transactions over shared tables, results out.

    import tidemill as tm

    app = tm.App("bank")
    accounts = app.table(Account)
    transfers = app.source(Transfer, tm.csv("transfers.csv"), lateness="2s")

    @app.transaction(transfers)
    def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
        tm.require(src.balance >= ev.amount, "insufficient funds")
        src.balance -= ev.amount
        dst.balance += ev.amount

A transaction's function is compiled from its syntax tree to native code; what cannot be compiled is
refused where the function is defined.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._native import __version__
from .aggregate import Aggregate
from .app import App
from .bodies import abort, emit, require
from .connectors import Connector, connector, csv, ipc, jsonl, null, parquet
from .errors import (
    Aborted,
    BusyError,
    CompileError,
    GoneError,
    IdempotencyError,
    LoadError,
    MissedError,
    PlanError,
    RunError,
    SchemaError,
    TidemillError,
)
from .generator import Generated, choice, constant, generator, nullable, sequence, uniform, zipf
from .opened import Opened
from .over import Windows, counting, session, sliding, tumbling
from .own import SinkConnector, SourceConnector
from .replies import Reply
from .results import Collected
from .schema import Event, Row, caller, column, event_time, key
from .selection import Index, index
from .serving import Server
from .session import Flushed, Follower, Released, Savepoint, Session, Snapshot
from .stream import Clock, Derived, Source, Stream, StreamJoin, StreamWindow, Ticks, Transaction
from .summary import RunSummary
from .table import Table
from .times import Time, days, hours, microseconds, milliseconds, minutes, seconds, truncate
from .topics import kafka
from .types import Decimal
from .windows import Window, window

if TYPE_CHECKING:
    from .async_session import AsyncSession
    from .client import Client, connect

__all__ = [
    "Aborted",
    "Aggregate",
    "App",
    "AsyncSession",
    "BusyError",
    "Client",
    "Clock",
    "Collected",
    "CompileError",
    "Connector",
    "Decimal",
    "Derived",
    "Event",
    "Flushed",
    "Follower",
    "Generated",
    "GoneError",
    "IdempotencyError",
    "Index",
    "LoadError",
    "MissedError",
    "Opened",
    "PlanError",
    "Released",
    "Reply",
    "Row",
    "RunError",
    "RunSummary",
    "Savepoint",
    "SchemaError",
    "Server",
    "Session",
    "SinkConnector",
    "Snapshot",
    "Source",
    "SourceConnector",
    "Stream",
    "StreamJoin",
    "StreamWindow",
    "Table",
    "Ticks",
    "TidemillError",
    "Time",
    "Transaction",
    "Window",
    "Windows",
    "__version__",
    "abort",
    "caller",
    "choice",
    "column",
    "connect",
    "connector",
    "constant",
    "counting",
    "csv",
    "days",
    "emit",
    "event_time",
    "generator",
    "hours",
    "index",
    "ipc",
    "jsonl",
    "kafka",
    "key",
    "microseconds",
    "milliseconds",
    "minutes",
    "null",
    "nullable",
    "parquet",
    "require",
    "seconds",
    "sequence",
    "session",
    "sliding",
    "truncate",
    "tumbling",
    "uniform",
    "window",
    "zipf",
]

_LATER = {"AsyncSession": ".async_session", "Client": ".client", "connect": ".client"}
"""The modules of these names. They need asyncio, HTTP or TLS, which take much memory and which a server of ours does
not use."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)
