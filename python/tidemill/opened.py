"""A state that is read: what ``app.open`` gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _engine
from ._engine import Frame
from .errors import PlanError, RunError
from .names import foreign
from .session import Snapshot
from .sql import Parameters, Queried, connected, queried
from .table import Table

if TYPE_CHECKING:
    from .app import App

__all__ = ["Opened"]


class Opened:
    """The tables of a state after the last epoch that was known to be durable when it was opened. They do not change.

    A run may go on with the state meanwhile: it is not disturbed, and nothing is written.
    """

    def __init__(self, app: App, state: str | os.PathLike[str]) -> None:
        name, self.epoch, self._frames = _engine.read_state(os.fspath(state))
        if name != app.name:
            raise RunError(f"{os.fspath(state)} is the state of application {name!r}, and this one is {app.name!r}")
        self._app = app

    epoch: int
    """The number of the epoch, counted from the beginning of the state."""

    def __repr__(self) -> str:
        return f"<state of {self._app.name} after epoch {self.epoch}>"

    def table(self, table: Table[Any] | str) -> Snapshot:
        """The rows of a table, sorted by key. Raises ``RunError`` where the state has no such table."""
        name = self._name(table)
        return Snapshot(name, self.epoch, None, self._frames[name])

    def tables(self) -> dict[str, Snapshot]:
        """All tables by name."""
        return {name: self.table(name) for name in self._frames}

    def row(self, table: Table[Any] | str, *key: object) -> dict[str, Any] | None:
        """The row of a key, such as ``opened.row(accounts, "ada")``; ``None`` if there is none.

        A value for each column of the key. The rows are looked through: for many keys, take ``table``.
        """
        name = self._name(table)
        declared = self._app.tables.get(name)
        if declared is None:
            raise RunError(f"the application has no table {name!r} any more, so its key is not known")
        columns = declared._schema.keys
        if len(columns) != len(key):
            raise RunError(f"the key of {name!r} is {', '.join(columns)}: {len(key)} values were given")
        wanted = dict(zip(columns, key, strict=True))
        rows = self._frames[name].to_pylist()
        return next((row for row in rows if all(row[column] == value for column, value in wanted.items())), None)

    def sql(self, query: str, parameters: Parameters | None = None, *, timeout: float | None = None) -> Queried:
        """The rows that a query over the tables gives, as ``mill.sql`` does. Needs DuckDB."""
        return Queried(self.epoch, None, queried(self._frames, self.epoch, query, parameters, timeout=timeout))

    def duckdb(self) -> Any:
        """A ``duckdb`` connection with a view of each table. Needs DuckDB."""
        return connected(self._frames, self.epoch)

    def _name(self, table: Table[Any] | str) -> str:
        if isinstance(table, Table) and table._app is not self._app:
            raise PlanError(*foreign(f"table '{table.name}'", table._app, self._app))
        name = table.name if isinstance(table, Table) else table
        if name not in self._frames:
            known: Mapping[str, Frame] = self._frames
            raise RunError(f"the state has no table {name!r}; tables: {', '.join(known) or 'none'}")
        return name
