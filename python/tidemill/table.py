"""Shared tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from . import ir
from .errors import PlanError
from .results import Rows
from .roles import Key, Role, Value
from .schema import RecordSchema, Row
from .stream import Stream

if TYPE_CHECKING:
    from .app import App

__all__ = ["Table"]

R = TypeVar("R", bound=Row)
R_co = TypeVar("R_co", bound=Row, covariant=True)


class AllRows(Protocol[R_co]):
    """All rows of a table, in the body of a transaction."""

    def __iter__(self) -> Iterator[R_co]:
        """The rows in the order of their keys."""
        ...

    def __len__(self) -> int:
        """How many there are before the transaction."""
        ...


class Table(Rows, Generic[R]):
    """A table of an application, made by ``app.table``. After a run it holds the rows of its end.

    Its methods make roles: the defaults of a transaction's parameters. A key is given column by
    column: as the path of a field of the event (``"src"``), as a function of the event
    (``lambda e: e.src.lower()``), or, for a row per element of a list, as ``"lines.item"``
    (``"ids"`` where the elements are plain values), or as a function of the event and an element
    with ``over="lines"``.
    """

    def __init__(self, app: App, name: str, schema: RecordSchema, rows: object = None) -> None:
        self._app = app
        self.name = name
        self._schema = schema
        self._given = rows
        self._initial = rows

    def __repr__(self) -> str:
        return f"<table {self.name}>"

    def _first_rows(self) -> object:
        """The rows before the first event. An iterator's rows are kept, as each run begins with them."""
        if isinstance(self._initial, Iterator):
            self._initial = list(self._initial)
        return self._initial

    def _definition(self, conversions: Mapping[str, ir.ConvertDef]) -> ir.TableDef:
        """The plan's ``TableDef``, given the conversions of its columns as they were compiled."""
        columns = [f.to_column(conversions.get(f.name)) for f in self._schema.fields]
        return {"name": self.name, "columns": columns, "groups": self._schema.groups}

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

    def all(self) -> AllRows[R]:
        """All rows of the table as they are before the transaction, to loop over in the order of their keys, and to
        count with ``len``. The loop only reads; rows that the transaction has deleted are passed over.

        Each transaction of the program then runs one event at a time, and the rows are found and sorted for each event:
        for small tables."""
        # A role, with what can be done with it in the eyes of editors and type checkers.
        return cast(AllRows[R], Role(self._app, self.name, (), "all"))

    @property
    def woken(self) -> Stream[Any]:
        """The rows that wake, as a transaction asked with ``role.wake(at)``: the columns of the key, and ``at``."""
        return Stream(self._app, f"{self.name}.woken", {"woken": self.name})

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
