"""Shared tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from . import ir
from .errors import PlanError
from .notebook import table_html
from .results import Rows
from .roles import Key, Role, Value
from .schema import RecordSchema, Row
from .selection import SelectedRows, Selection
from .stream import Stream

if TYPE_CHECKING:
    from .app import App

__all__ = ["Table"]

R = TypeVar("R", bound=Row)


class Table(Rows, Generic[R]):
    """A table of an application, made by ``app.table``. After a run it holds the rows of its end.

    Its methods make roles: the defaults of a transaction's parameters. A key is given column by
    column: as the path of a field of the event (``"src"``), as a function of the event
    (``lambda e: e.src.lower()``), or, for a row per element of a list, as ``"lines.item"``
    (``"ids"`` where the elements are plain values), or as a function of the event and an element
    with ``over="lines"``. What is read from the row of an earlier parameter is part of a key, too: ``"src.owner"``,
    ``lambda e, src: ...``; where that is several rows, there is a row for each of them.
    """

    def __init__(
        self,
        app: App,
        name: str,
        schema: RecordSchema,
        rows: object = None,
        indexes: tuple[tuple[str, ...], ...] = (),
        changes: bool = False,
        was: str | None = None,
        expire: ir.ExpireAfter | ir.ExpireAt | None = None,
    ) -> None:
        self._app = app
        self.name = name
        self._schema = schema
        self._given = rows
        self._initial = rows
        self._indexes = indexes
        self._changes = changes
        self._was = was
        self._expire = expire

    def __repr__(self) -> str:
        return f"<table {self.name}>"

    def _repr_html_(self) -> str:
        """Its rows after a run, its columns before one, for notebooks."""
        if self._frame is not None:
            return super()._repr_html_()
        columns = [(f.name, str(f.type), "key" if f.key else "") for f in self._schema.fields]
        return table_html(repr(self), ("column", "type", ""), columns)

    def _first_rows(self) -> object:
        """The rows before the first event. An iterator's rows are kept, as each run begins with them."""
        if isinstance(self._initial, Iterator):
            self._initial = list(self._initial)
        return self._initial

    def _definition(self, conversions: Mapping[str, ir.ConvertDef]) -> ir.TableDef:
        """The plan's ``TableDef``, given the conversions of its columns as they were compiled."""
        columns = [f.to_column(conversions.get(f.name)) for f in self._schema.fields]
        indexes = [list(columns) for columns in self._indexes]
        return {
            "name": self.name,
            "columns": columns,
            "indexes": indexes,
            "changes": self._changes,
            "groups": self._schema.groups,
            "was": self._was,
            "expire": self._expire,
        }

    def row(self, *key: Key, create: bool = False, over: str | None = None) -> R:
        """A row that the transaction may read and write. Touching a missing row aborts; with
        ``create=True`` it reads as the columns' defaults and the first write inserts it."""
        return self._role(key, "create" if create else "row", over)

    def read(self, *key: Key, default: bool = False, over: str | None = None) -> R:
        """A row that the transaction may only read. Reading a missing row aborts; with
        ``default=True`` it reads as the columns' defaults."""
        return self._role(key, "read_default" if default else "read", over)

    def new(self, *key: Key, over: str | None = None, **columns: Value) -> R:
        """A row that is inserted before the body begins; the transaction aborts where it exists.

        ``columns`` are paths of fields, functions of the event, or constants other than text;
        columns that are not given have their defaults.
        """
        for name in columns:
            spec = self._schema.field(name)
            if spec is None or spec.key:
                known = ", ".join(f.name for f in self._schema.fields if not f.key)
                what = "is a key column" if spec else "is not a column"
                raise PlanError(f"'{name}' {what}", f"columns are {known}", f"table '{self.name}'")
        return self._role(key, "row", over, columns)

    def all(self) -> SelectedRows[R]:
        """All rows of the table that there are before the transaction, to loop over in the order of their keys, and to
        count with ``len``. The loop may set their columns and delete them; rows that are deleted by then are passed
        over.

        Each transaction of the program then runs one event at a time, and the rows are found and sorted for each event:
        for small tables."""
        return self._selection()

    def where(self, /, *columns: str, **values: Value) -> SelectedRows[R]:
        """As ``all``, but only rows whose columns have these values: ``where("contestant")`` those whose ``contestant``
        is the event's field of that name, ``where(contestant="choice")`` those where it is the event's ``choice``.

        Values are paths of fields or of an earlier role's columns, functions of the event, or constants other than
        text. ``None`` finds the rows without a value."""
        return self._selection().where(*columns, **values)

    def between(self, column: str, low: Value = None, high: Value = None) -> SelectedRows[R]:
        """As ``all``, but only rows whose column is no less than ``low`` and no greater than ``high``, which are given
        as in ``where``. A bound that is left out or ``None`` bounds nothing; rows without a value are left out."""
        return self._selection().between(column, low, high)

    def first(self, column: str, n: int = 1, *, descending: bool = False) -> SelectedRows[R]:
        """The ``n`` rows with the least values of a column, or with ``descending=True`` the greatest, in this order.
        Those of equal values are in the order of their keys; rows without a value come last. An index that has the
        column after those of ``where`` gives them without a look at others."""
        return self._selection().first(column, n, descending=descending)

    def top(self, n: int, *, by: str) -> SelectedRows[R]:
        """The ``n`` rows with the greatest values of a column: ``first(by, n, descending=True)``."""
        return self._selection().top(n, by=by)

    def _selection(self) -> SelectedRows[R]:
        # A role, with what can be done with it in the eyes of editors and type checkers.
        return cast(SelectedRows[R], Selection(self._app, self.name, (), "all", schema=self._schema))

    def _streams(self) -> list[Stream[Any]]:
        """Its streams, whether or not the plan has them."""
        return [self.woken, self.changes, self.expired]

    @property
    def woken(self) -> Stream[Any]:
        """The rows that wake, as a transaction asked with ``role.wake(at)``: the columns of the key, and ``at``."""
        return Stream(self._app, f"{self.name}.woken", {"woken": self.name})

    @property
    def changes(self) -> Stream[Any]:
        """The rows that committed transactions have written or deleted, of a table that is declared with
        ``changes=True``: the columns, of which those that are no part of the key are ``None`` in a row that is gone,
        and ``deleted``. Windowed columns are left out."""
        return Stream(self._app, f"{self.name}.changes", {"changes": self.name})

    @property
    def expired(self) -> Stream[Any]:
        """The rows that have expired, of a table that is declared with ``expire=``, as they were when they were
        deleted: the columns, and as ``gone_at`` the time of that. Windowed columns are left out."""
        return Stream(self._app, f"{self.name}.expired", {"expired": self.name})

    def _role(self, key: tuple[Key, ...], access: str, over: str | None, values: dict[str, Value] | None = None) -> R:
        wanted = self._schema.keys
        if len(key) != len(wanted):
            names = ", ".join(wanted)
            hint = f"give one for each of: {names}"
            message = f"the key has {len(wanted)} column{'s' * (len(wanted) != 1)}, not {len(key)}"
            raise PlanError(message, hint, f"table '{self.name}'")
        for part in key:
            if not isinstance(part, (str, Callable)):  # type: ignore[arg-type]
                hint = 'write the path of a field, such as "src", or a lambda'
                raise PlanError(f"{part!r} is not a key", hint, f"table '{self.name}'")
        # A role has the columns of the row class in the eyes of editors and type checkers.
        return cast(R, Role(self._app, self.name, key, access, over, values is not None, values or {}))
