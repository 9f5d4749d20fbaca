"""SQL over the tables after one epoch, by the user's DuckDB: ``mill.sql``, ``mill.duckdb``, processes of a server."""

from __future__ import annotations

import decimal
import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Literal

from ._engine import Frame
from .errors import RunError
from .results import Rows
from .times import Time

__all__ = ["Parameters", "Queried", "QueryError", "answered", "connected", "prepare", "queried"]

Parameters = Sequence[object] | Mapping[str, object]
"""Values for ``?`` or ``$1`` in order, or for ``$name``."""

Form = Literal["own", "plain", "lists", "columns"]
"""The form of a query's answer for a server (``answered``)."""

_SEALED = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
}
"""Nothing but the tables can be reached: no files, also not for what is larger than memory, no network, no variables of
the program."""

_PLAIN = {
    "boolean": "boolean",
    "tinyint": "bigint",
    "smallint": "bigint",
    "integer": "bigint",
    "bigint": "bigint",
    "utinyint": "bigint",
    "usmallint": "bigint",
    "uinteger": "bigint",
    "ubigint": "bigint",
    "hugeint": "bigint",
    "uhugeint": "bigint",
    "float": "double",
    "double": "double",
    "varchar": "varchar",
    "blob": "blob",
    "timestamp with time zone": "timestamptz",
    "timestamp": "timestamptz",
    "timestamp_s": "timestamptz",
    "timestamp_ms": "timestamptz",
    "timestamp_ns": "timestamptz",
}
"""The type of Tidemill's, in DuckDB's words, that values of a type are written as. All others become text."""

_ITEMS = ("boolean", "bigint", "uinteger", "double")
"""The elements that lists for clients of PostgreSQL keep beside text."""

_ELEMENTS: dict[str, Callable[[str], object]] = {
    "boolean[]": lambda text: text.lower() in ("t", "true", "1"),
    "bigint[]": int,
    "oid[]": int,
    "double precision[]": float,
    "text[]": str,
}
"""The elements of arrays that clients of PostgreSQL give, from their texts."""

_DIGITS_MAX = 18

_ENGINE_DIGITS_MAX = 38
"""Those of DuckDB's decimals."""

_FLOAT_DIGITS_MAX = 17
"""As many digits tell a float from all others."""

_NUMERIC_SCALE = 15
"""Digits after the point of what clients of PostgreSQL cast to ``numeric`` without any; of more in products."""

_WATCH = 0.05
"""Seconds between two looks at whether a query is to go on."""


class QueryError(RunError):
    """A query was not answered: it is wrong, or it would take too much."""


class Queried(Rows):
    """The rows that a query gives, with the types that DuckDB gives them."""

    def __init__(self, epoch: int, complete_until: Time | int | None, frame: Frame) -> None:
        self.epoch = epoch
        """The number of the epoch after which the tables were read."""
        self.complete_until = complete_until
        """Every event with a time below has passed, as ``Snapshot`` says it."""
        self._frame = frame

    def __repr__(self) -> str:
        return f"<{len(self)} rows of a query after epoch {self.epoch}>"


class _Result:
    """A :class:`~tidemill._engine.Frame` of the rows that a connection keeps."""

    table = "tidemill.result"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _relation(self) -> Any:
        return self._connection.table(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None, /) -> object:
        return self._relation().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self._relation().shape[0])

    def to_pylist(self, limit: int | None = None) -> list[dict[str, Any]]:
        relation = self._relation() if limit is None else self._relation().limit(limit)
        names = relation.columns
        return [dict(zip(names, row, strict=True)) for row in relation.fetchall()]


class _Temporary(_Result):
    table = "tidemill_result"


def _duckdb() -> Any:
    try:
        return importlib.import_module("duckdb")
    except ImportError:
        raise RunError("SQL needs DuckDB, which is not installed; pip install 'tidemill[sql]'") from None


def connected(tables: Mapping[str, Frame], epoch: int, config: Mapping[str, Any] | None = None) -> Any:
    """A connection to a DuckDB of its own in memory, with a view of each table.

    ``tidemill_epoch()`` is the number of the epoch. A view reads its frame when it is queried.
    """
    return _with(_duckdb().connect(":memory:", config=dict(config or {})), tables, epoch)


def _with(connection: Any, tables: Mapping[str, Frame], epoch: int) -> Any:
    for name, frame in tables.items():
        connection.register(name, frame)
    connection.execute(f"create temp macro tidemill_epoch() as {epoch}::bigint")
    return connection


def _sealed(threads: int | None, memory_max: int | None) -> Any:
    """A DuckDB in memory that reaches nothing else."""
    config: dict[str, Any] = dict(_SEALED)
    if threads is not None:
        config["threads"] = threads
    if memory_max is not None:
        config["memory_limit"] = f"{memory_max}B"
    return _duckdb().connect(":memory:", config=config)


_SPARE: dict[tuple[int | None, int | None], Any] = {}
"""A sealed connection that nobody has used, by threads and memory. To make one takes longer than most queries."""


def prepare(memory_max: int) -> None:
    """Makes ready what the next query of a server needs, which has so many bytes of memory."""
    key = _threads(), memory_max
    if key not in _SPARE:
        _SPARE.clear()
        _SPARE[key] = _sealed(*key)


def _threads() -> int:
    """The threads that a query of a server has."""
    return max(1, (os.cpu_count() or 1) // 4)


_LOCKED = "set global TimeZone = 'UTC'; set lock_configuration = true"


@lru_cache(maxsize=4)
def _set_up(setup: str, threads: int | None, memory_max: int | None) -> Any:
    """One with tables and functions that many queries need. Each query has a cursor of it, with tables of its own; they
    share its memory."""
    connection = _sealed(threads, memory_max)
    connection.execute(setup)
    connection.execute(_LOCKED)
    return connection


def queried(
    tables: Mapping[str, Frame],
    epoch: int,
    query: str,
    parameters: Parameters | None = None,
    *,
    timeout: float | None = None,
    rows_max: int | None = None,
    threads: int | None = None,
    memory_max: int | None = None,
    is_wanted: Callable[[], bool] | None = None,
    setup: str | None = None,
) -> _Result:
    """The rows of one query, which reaches nothing but the tables.

    ``timeout``: seconds. ``rows_max``: a query that gives more rows is refused. ``threads``: the most that DuckDB may
    have. ``memory_max``: bytes, beside the tables. ``is_wanted``: asked now and then, whether to go on. ``setup``:
    statements that make other tables and functions, which are kept for the next query that needs them. Raises
    ``QueryError``, and ``RunError`` without DuckDB.
    """
    if isinstance(parameters, (str, bytes)):
        raise QueryError(f"the parameters are the text {parameters!r}; give a list or a dict of them")
    duckdb = _duckdb()
    if setup is None:
        fresh = _SPARE.pop((threads, memory_max), None) or _sealed(threads, memory_max)
        connection = _with(fresh, tables, epoch)
        # Answers are kept in a schema of their own, so that `show tables` has those of the application alone.
        connection.execute(f"create schema tidemill; {_LOCKED}")
    else:
        connection = _with(_set_up(setup, threads, memory_max).cursor(), tables, epoch)
    with _told(duckdb, connection, timeout, is_wanted):
        _check(duckdb, connection, query)
        given = dict(parameters or {}) if parameters is None or isinstance(parameters, Mapping) else list(parameters)
        _check_decimals(given)
        if setup is None:
            relation = connection.sql(query, params=given or None)
            if rows_max is not None:
                relation = relation.limit(rows_max + 1)
            relation.create(_Result.table)
        else:
            # The table belongs to this cursor alone; only a statement makes such a table.
            limit = "" if rows_max is None else f" limit {rows_max + 1}"
            connection.execute(
                f"create temp table {_Temporary.table} as from (\n{_bare(query)}\n){limit}", given or None
            )
    result = _Result(connection) if setup is None else _Temporary(connection)
    if rows_max is not None and len(result) > rows_max:
        raise QueryError(f"the query gives more than {rows_max} rows; add a limit, or aggregate them")
    return result


def _check_decimals(value: object) -> None:
    """Refuses decimals that DuckDB would take as floats."""
    if isinstance(value, decimal.Decimal):
        _, digits, exponent = value.as_tuple()
        if isinstance(exponent, int) and max(len(digits) + exponent, len(digits), -exponent) > _ENGINE_DIGITS_MAX:
            raise QueryError(f"the parameter {value} has more than {_ENGINE_DIGITS_MAX} digits")
    elif isinstance(value, Mapping):
        for part in value.values():
            _check_decimals(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_decimals(part)


def _bare(query: str) -> str:
    return query.rstrip().rstrip(";")


def _check(duckdb: Any, connection: Any, query: str) -> None:
    """Refuses what is not one query."""
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise QueryError(f"{len(statements)} statements were given; give one query")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise QueryError(
            f"{kind.name} is not answered: tables are read with SELECT, and changed by the application's transactions "
            "alone"
        )


@contextmanager
def _told(
    duckdb: Any, connection: Any, timeout: float | None = None, is_wanted: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Says what went wrong in words of its own. Interrupts the connection after ``timeout`` seconds, and soon after
    nobody wants the answer any more."""
    is_done, is_late = threading.Event(), threading.Event()

    def watch() -> None:
        end = None if timeout is None else time.monotonic() + timeout
        while not is_done.wait(_WATCH if end is None else min(_WATCH, max(0.0, end - time.monotonic()))):
            if end is not None and time.monotonic() >= end:
                is_late.set()
            if is_late.is_set() or (is_wanted is not None and not is_wanted()):
                connection.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    if timeout is not None or is_wanted is not None:
        watcher.start()
    try:
        yield
    except duckdb.OutOfMemoryException:
        (limit,) = connection.execute("select current_setting('memory_limit')").fetchone()
        raise QueryError(f"the query takes more memory than it may have, {limit}; ask for less at once") from None
    except duckdb.Error as error:
        if is_late.is_set():
            raise QueryError(f"the query took more than {timeout:g} seconds") from None
        raise QueryError(_first_line(error)) from None
    finally:
        is_done.set()
        if watcher.ident is not None:
            # It must not interrupt what comes after.
            watcher.join()


def _first_line(error: Exception) -> str:
    """Returns the message of DuckDB, without the picture of the place that follows it."""
    return str(error).strip().split("\n", 1)[0]


def answered(
    tables: Mapping[str, Frame],
    epoch: int,
    query: str,
    parameters: str | None,
    form: Form,
    limits: tuple[float, int, int],
    is_wanted: Callable[[], bool],
    setup: str | None = None,
) -> Frame:
    """Answers a query for a server. ``parameters`` are a JSON array or object; ``limits``: seconds, rows and bytes of
    memory.

    ``form``: with the columns that DuckDB gives; with those of Tidemill's types; with lists of those, too; or the
    latter without rows. ``setup``: as for ``queried``. Raises ``QueryError`` for a number that none of these types
    holds.
    """
    try:
        given = _parameters(None if parameters is None else json.loads(parameters, parse_float=_fraction))
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise QueryError(f"a parameter is not a value: {error}") from None
    timeout, rows_max, memory_max = limits
    if form == "columns":
        query, rows_max = f"select * from (\n{_bare(query)}\n) limit 0", 0
    result = queried(
        tables,
        epoch,
        query,
        given,
        timeout=timeout,
        rows_max=rows_max,
        threads=_threads(),
        memory_max=memory_max,
        is_wanted=is_wanted,
        setup=setup,
    )
    return result if form == "own" else _plain(result, form != "plain")


def _parameters(given: object) -> Parameters | None:
    if isinstance(given, list):
        return [_value(value) for value in given]
    if isinstance(given, dict):
        return {name: _value(value) for name, value in given.items()}
    if given is None:
        return None
    raise QueryError("the parameters are neither a list nor an object")


def _fraction(text: str) -> float | decimal.Decimal:
    """A number of JSON that is not whole: the nearest float, unless it has more digits than floats have."""
    value, exact = float(text), decimal.Decimal(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is beyond the largest float")
    return value if len(exact.as_tuple().digits) <= _FLOAT_DIGITS_MAX or exact == decimal.Decimal(value) else exact


def _value(value: object) -> object:
    """A value, also one that JSON has no form for (``Query`` of the server)."""
    match value:
        case {"numeric": str(text)}:
            return decimal.Decimal(text)
        case {"float": str(text)}:
            return float(text)
        case {"micros": int(micros)}:
            return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
        case {"bytes": list(numbers)}:
            return bytes(numbers)
        case {"list": list(texts), "of": str(kind)}:
            of = _ELEMENTS[kind]
            return [None if text is None else of(text) for text in texts]
    return value


def _plain(result: _Result, is_for_wire: bool) -> Frame:
    relation = result._relation()
    with _told(_duckdb(), result._connection):
        scales = _scales(result) if is_for_wire else {}
        listed = ", ".join(
            f"{_quoted(name)}::{scales.get(name) or _plain_type(kind, is_for_wire)} as {_quoted(name)}"
            for name, kind in zip(relation.columns, relation.types, strict=True)
        )
        result._connection.execute(f"create temp table {_Plain.table} as select {listed} from {result.table}")
    return _Plain(result._connection)


def _scales(result: _Result) -> dict[str, str]:
    """The types of columns that are ``numeric`` without digits: as many after the point as their values have."""
    relation = result._relation()
    found = [
        name
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if kind.id == "decimal" and _is_numeric(*(value for _, value in kind.children))
    ]
    if not found:
        return {}
    digits = "max(length(rtrim(split_part({}::varchar, '.', 2), '0')))"
    asked = ", ".join(digits.format(_quoted(name)) for name in found)
    row = result._connection.execute(f"select {asked} from {result.table}").fetchone()
    scales = [scale or 0 for scale in row]
    types = [f"decimal({_DIGITS_MAX}, {scale})" if scale <= _DIGITS_MAX else "varchar" for scale in scales]
    return dict(zip(found, types, strict=True))


def _is_numeric(digits: int, scale: int) -> bool:
    return digits == _ENGINE_DIGITS_MAX and scale >= _NUMERIC_SCALE


class _Plain(_Result):
    table = "tidemill_plain"


def _plain_type(kind: Any, is_for_wire: bool) -> str:
    if is_for_wire and kind.id == "uinteger":
        # The numbers of objects, as the catalogs have them.
        return "uinteger"
    if is_for_wire and kind.id == "list":
        item = _plain_type(kind.child, is_for_wire)
        return f"{item if item in _ITEMS else 'varchar'}[]"
    if kind.id == "decimal":
        digits, scale = (value for _, value in kind.children)
        return f"decimal({min(digits, _DIGITS_MAX)}, {scale})" if scale <= _DIGITS_MAX else "varchar"
    return _PLAIN.get(kind.id, "varchar")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
