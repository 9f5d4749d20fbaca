"""The border to the native module: nothing else in the package calls it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeVar, cast

from . import _native, ir
from .deep import with_room
from .errors import PlanError

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


class OwnSource(Protocol):
    """A ``tidemill.own.OpenSource``."""

    class_name: str
    replays: bool

    def start(self, after: str | None) -> Iterator[tuple[list[object], str | None]]:
        """Arrow objects, and the offset after them."""


class OwnSink(Protocol):
    """A ``tidemill.own.SinkConnector``."""

    def write(self, batch: Any, epoch: int | None) -> None:
        """Stores the events of an epoch."""


Input = str | Iterator[object] | OwnSource
"""The JSON text of a connector, an iterator of objects with ``__arrow_c_array__`` or ``__arrow_c_stream__``, or a
connector in Python."""

Output = str | Callable[[Any], object] | OwnSink
"""The JSON text of a connector, a callable that takes a batch with ``__arrow_c_array__``, or a connector in Python."""


def is_same_output(one: Output, other: Output) -> bool:
    """Returns whether a stream would go to the same place. A function that was defined again as it was is the same."""
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        same_names = one.__globals__ is other.__globals__ and not _is_bound(one) and not _is_bound(other)
        return one is other or (same_names and _instructions(one.__code__) == _instructions(other.__code__))
    return one == other


def _is_bound(function: FunctionType) -> bool:
    """Returns whether a function was defined with values that another of the same code may not have."""
    return bool(function.__closure__ or function.__defaults__ or function.__kwdefaults__)


def _instructions(code: CodeType) -> tuple[object, ...]:
    """Returns the instructions of code, wherever it stands."""
    constants = [_instructions(c) if isinstance(c, CodeType) else (type(c), c) for c in code.co_consts]
    return code.co_name, code.co_code, code.co_names, code.co_varnames, constants


COLLECT = '{"kind": "collect"}'
"""The output that keeps a stream in memory, for ``Outcome.collected``."""


class Frame(Protocol):
    """Rows that the native module holds, as Arrow."""

    def __arrow_c_stream__(self, requested_schema: object = None, /) -> object:
        """The Arrow PyCapsule of all rows."""

    def __len__(self) -> int:
        """The number of rows."""

    def to_pylist(self, limit: int | None = None) -> list[dict[str, Any]]:
        """One dict per row, of so many rows at most."""


SENT = '{"kind": "sent"}'
"""The input that a session sends."""


NativeSession = _native.Session
"""A running application."""

NativeServer = _native.Server
NativeMetrics = _native.Metrics
"""A server of a session."""

NativeFollower = _native.Follower
"""A reader of a stream."""


@dataclass(frozen=True)
class Job:
    """All that a run needs. The native module reads the attributes by these names."""

    plan: str
    sources: Mapping[str, Input]
    tables: Mapping[str, Input]
    sinks: Mapping[str, Output]
    idle: Mapping[str, int] = field(default_factory=dict)
    """Microseconds without input after which a source holds no other back, by its name."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those that are given, by name, as the command line has them."""
    keep: Mapping[str, int] = field(default_factory=dict)
    """The number of the last events of a stream that a session keeps, by its label."""
    time: int | None = None
    """The time of day at the beginning, microseconds since 1970, which a session sets by hand from then on."""


@dataclass(frozen=True)
class Outcome:
    """The results of a run: the summary, collected streams by sink, and the tables."""

    summary: Json
    collected: dict[str, Frame] = field(default_factory=dict)
    tables: dict[str, Frame] = field(default_factory=dict)


def declaration(function: F) -> F:
    """Decorates the functions that users declare with: a ``TidemillError`` shows the user's calls and no others."""
    return cast(F, functools.update_wrapper(_native.Declaration(function), function))


def check_options(options: Mapping[str, str]) -> None:
    """Checks the options of a run. Raises ``PlanError`` with the name of the one that is wrong."""
    wrong = _native.check_options(dict(options))
    if wrong is not None:
        option, message = wrong
        raise PlanError(message, place=option)


def plan_text(plan: ir.Plan) -> str:
    """A plan as JSON, however deep its expressions are."""
    return with_room(lambda: json.dumps(plan))


def analyze(plan: ir.Plan) -> tuple[Json | None, list[ir.Fault]]:
    """The streams of a plan's program, or what is wrong with the plan (its ``PlanError``s)."""
    answer = json.loads(_native.analyze(plan_text(plan)))
    return answer.get("program"), answer.get("errors", [])


def explain(plan: ir.Plan) -> str:
    """The flow graph and the transactions of a plan, as text. Raises ``PlanError``."""
    try:
        return _native.explain(plan_text(plan))
    except ValueError as error:
        raise PlanError(str(error)) from None


def run(job: Job) -> Outcome:
    """Runs a job to its end. Raises ``RunError``."""
    outcome = _native.run(job)
    return Outcome(json.loads(outcome.summary), dict(outcome.collected), dict(outcome.tables))


def start(job: Job) -> NativeSession:
    """Starts a job as a session. Raises ``RunError``."""
    return _native.start(job)


def arrow_stream(data: object) -> bytes:
    """The bytes of an Arrow stream with an Arrow object's rows, as a server takes them. Raises ``ValueError``."""
    return _native.arrow_stream(data)


def serve(
    session: NativeSession,
    host: str,
    port: int,
    postgres_port: int | None,
    users: str | None,
    tls: tuple[str, str] | None,
    clients: tuple[str, bool] | None,
    jwt: tuple[str, str, str] | None,
    insecure: bool,
    traces: tuple[str, float] | None,
    limits: Mapping[str, float],
    launch: tuple[str, list[str], dict[str, str]] | None,
) -> NativeServer:
    """Serves a session. ``tls``: the files of a certificate and its key. ``clients``: the file of the authorities of
    clients, and whether each client needs a certificate. ``jwt``: the file of keys, the issuer, the audience.
    ``traces``: the URL of a collector, and the share of calls that are traced. ``limits``: those of ``serving.Limits``
    by name. ``launch``: what processes of queries are started with. Raises ``RunError``."""
    return _native.serve(session, host, port, postgres_port, users, tls, clients, jwt, insecure, traces, limits, launch)


def answer_queries_with(answered: Callable[..., object], prepare: Callable[[int], None], memory_max: int) -> None:
    """Answers the queries of the server that has started this process, until it ends. ``prepare`` is called after each
    with the memory that it had."""
    _native.answer_queries_with(answered, prepare, memory_max)


def read_state(path: str) -> tuple[str, int, dict[str, Frame]]:
    """A state as it stands: the application's name, the last epoch that was known to be durable, and its tables by
    name. Raises ``RunError``."""
    name, epoch, tables = _native.read_state(path)
    return name, epoch, dict(tables)


def read_stream(path: str, stream: str, after: int) -> tuple[int, int, list[tuple[int, Frame]]]:
    """The events of a stream that a state's log has after an epoch: the epoch of the newest checkpoint, the last one
    that was known to be durable, and the events by epoch. Raises ``RunError``."""
    begun, through, epochs = _native.read_stream(path, stream, after)
    return begun, through, list(epochs)


def close(session: NativeSession, gives_up: bool) -> Outcome:
    """Waits for the end of a session. Raises ``RunError``."""
    outcome = session.close(gives_up)
    return Outcome(json.loads(outcome.summary), dict(outcome.collected), dict(outcome.tables))


def summary_of(session: NativeSession) -> Json:
    """The summary of a session so far."""
    return cast(Json, json.loads(session.summary()))


def batch(schema: ir.Schema, columns: list[list[object]], origin: str, first: int) -> object:
    """A batch of Python values, by column. A row that does not fit becomes a bad record of
    ``origin`` with its number, counted from ``first``."""
    return _native.batch_from_columns(json.dumps(schema), columns, origin, first)
