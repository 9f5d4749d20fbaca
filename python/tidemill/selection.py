"""Which rows of a table a role is that is not one row, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from .errors import PlanError
from .roles import Role, Value
from .schema import RecordSchema, Row

__all__ = ["Between", "Index", "Order", "Same", "SelectedRows", "Selection", "index"]

R_co = TypeVar("R_co", bound=Row, covariant=True)


class SelectedRows(Protocol[R_co]):
    """Rows of a table, in the body of a transaction, and what chooses among them before."""

    def __iter__(self) -> Iterator[R_co]:
        """The rows in their order."""
        ...

    def __len__(self) -> int:
        """Returns the number of rows before the transaction."""
        ...

    def where(self, /, *columns: str, **values: Value) -> SelectedRows[R_co]:
        """See ``Table.where``."""
        ...

    def between(self, column: str, low: Value = None, high: Value = None) -> SelectedRows[R_co]:
        """See ``Table.between``."""
        ...

    def first(self, column: str, n: int = 1, *, descending: bool = False) -> SelectedRows[R_co]:
        """See ``Table.first``."""
        ...

    def top(self, n: int, *, by: str) -> SelectedRows[R_co]:
        """See ``Table.top``."""
        ...


@dataclass(frozen=True)
class Index:
    """An index of a table, made by ``tm.index``."""

    columns: tuple[str, ...]


def index(*columns: str) -> Index:
    """An index of one column or several, declared with the table:
    ``app.table(Order, indexes=[tm.index("side", "price")])``.

    ``where`` on its first columns, and ``between``, ``first`` or ``top`` on the next one, then look only at the rows
    that they find. It changes no result. It costs memory, and time for each row that may be written. Not for floats and
    windowed columns.
    """
    return Index(columns)


def indexed(table: str, schema: RecordSchema, indexes: Iterable[Index]) -> tuple[tuple[str, ...], ...]:
    """The columns of a table's indexes. Raises ``PlanError``."""
    place = f"table '{table}'"
    if isinstance(indexes, Index | str) or not all(isinstance(index, Index) for index in indexes):
        raise PlanError("its indexes are not a list of indexes", 'write indexes=[tm.index("column")]', place)
    of = tuple(index.columns for index in indexes)
    for column in (column for columns in of for column in columns):
        check_column(schema, column, place)
    return of


def check_column(schema: RecordSchema, column: object, place: str) -> None:
    """Refuses what is no name of a column."""
    if not isinstance(column, str) or schema.field(column) is None:
        known = ", ".join(f.name for f in schema.fields)
        raise PlanError(f"{column!r} is not a column", f"columns are {known}", place)


@dataclass(frozen=True)
class Same:
    """The column has this value."""

    column: str
    value: Value


@dataclass(frozen=True)
class Between:
    """The column has a value within bounds, both included; ``None`` bounds nothing."""

    column: str
    low: Value
    high: Value


@dataclass(frozen=True)
class Order:
    """The first ``count`` rows by a column."""

    column: str
    count: int
    descending: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Selection(Role):
    """A role that is rows of its table, and not one row."""

    schema: RecordSchema
    conditions: tuple[Same | Between, ...] = ()
    order: Order | None = None

    def where(self, /, *columns: str, **values: Value) -> Selection:
        """Chooses, of these rows, those whose columns have these values."""
        if not columns and not values:
            hint = 'name a column, as in where("contestant"), or give it a value, as in where(contestant="choice")'
            raise PlanError("'where' has no column", hint, self._place)
        return self._with(*(Same(name, name) for name in columns), *(Same(*given) for given in values.items()))

    def between(self, column: str, low: Value = None, high: Value = None) -> Selection:
        """Chooses, of these rows, those whose column is within bounds."""
        if low is None and high is None:
            raise PlanError("'between' has no bound", "give low or high, or both", self._place)
        return self._with(Between(column, low, high))

    def first(self, column: str, n: int = 1, *, descending: bool = False) -> Selection:
        """Chooses, of these rows, the first by a column."""
        check_column(self.schema, column, self._place)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise PlanError(f"{n!r} is not a number of rows", "give 1 or more", self._place)
        if self.order is not None:
            raise PlanError("its rows are in an order already", "choose the first or the top once", self._place)
        return replace(self, order=Order(column, n, descending))

    def top(self, n: int, *, by: str) -> Selection:
        """Chooses, of these rows, those with the greatest values of a column."""
        return self.first(by, n, descending=True)

    @property
    def _place(self) -> str:
        return f"table '{self.table}'"

    def _with(self, *conditions: Same | Between) -> Selection:
        if self.order is not None:
            hint = "say the conditions before: where(...).first(...)"
            raise PlanError("rows are chosen after the first of them were taken", hint, self._place)
        for condition in conditions:
            check_column(self.schema, condition.column, self._place)
        return replace(self, conditions=(*self.conditions, *conditions))
