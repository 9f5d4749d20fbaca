"""The rows that exist after a run, as Arrow."""

from __future__ import annotations

import importlib
from typing import Any

from ._engine import Frame
from .errors import RunError
from .notebook import ROWS_MAX, rows_html, table_html

__all__ = ["Collected", "Rows"]


class Rows:
    """Rows that exist after a run. Anything that speaks the Arrow PyCapsule interface takes them:
    ``pyarrow.table(rows)``, ``polars.DataFrame(rows)``."""

    _frame: Frame | None = None

    def _rows(self) -> Frame:
        if self._frame is None:
            raise RunError(f"{self!r} has no rows before app.run()")
        return self._frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule of all rows. Raises ``RunError`` before the run."""
        return self._rows().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``, without a copy. Needs pyarrow; raises ``RunError`` before the run."""
        rows = self._rows()
        try:
            pyarrow = importlib.import_module("pyarrow")
        except ImportError:
            raise RunError("to_arrow() needs pyarrow; pip install pyarrow, or use to_pylist()") from None
        return pyarrow.table(rows)

    def to_pylist(self) -> list[dict[str, Any]]:
        """One dict per row. Raises ``RunError`` before the run."""
        return self._rows().to_pylist()

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        if self._frame is None:
            return table_html(repr(self), (), (), "no rows before app.run()")
        return rows_html(repr(self), self._frame.to_pylist(ROWS_MAX), len(self._frame))

    def __len__(self) -> int:
        """The number of rows. Raises ``RunError`` before the run."""
        return len(self._rows())

    def __bool__(self) -> bool:
        return True


class Collected(Rows):
    """The events of a stream, kept in memory: what ``app.collect(stream)`` gives."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __repr__(self) -> str:
        return f"<collected {self._label}>"
