"""What a run leaves behind: its summary, and rows as Arrow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ._engine import Frame
from .errors import RunError

__all__ = ["Collected", "Rows", "RunSummary"]


@dataclass(frozen=True)
class RunSummary:
    """What a run did. Times are seconds; latency is from the gate of an epoch to its release."""

    events: int = 0
    """Events that were taken from sources, late ones included, bad records not."""
    committed: int = 0
    """Transactions that committed."""
    aborted: Mapping[str, int] = field(default_factory=dict)
    """Transactions that aborted, by reason."""
    late: int = 0
    """Events that broke their source's promise."""
    bad: int = 0
    """Records that could not be decoded."""
    failed: int = 0
    """Events for which a filter or map failed."""
    epochs: int = 0
    """Epochs that were executed."""
    seconds: float = 0.0
    """Time from the first event to the last result."""
    events_per_second: float = 0.0
    """Throughput over that time."""
    latency_p50: float | None = None
    """The median latency, in seconds."""
    latency_p99: float | None = None
    """The latency that one result in a hundred exceeds, in seconds."""
    stopped: str | None = None
    """Where an interrupted run stopped; none where it ran to its end."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSummary:
        """From the native module's summary; keys of a newer module are passed over."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


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
