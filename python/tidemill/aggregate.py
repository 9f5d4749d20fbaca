"""``Aggregate``: aggregates of windows that users write."""

from __future__ import annotations

from typing import Any, ClassVar

from .schema import BodyOnlyError, Record

__all__ = ["Aggregate"]


class Aggregate(Record):
    """The base of aggregates over the events of a window, which is asked with ``w.aggregate(Range)``.

    Each annotated name is a part of the state, with the value that it begins with. ``add`` is run on each event of the
    window, in order, and sets the state; ``value`` returns what is asked for. Windows that slide need ``merge``, too.
    All are compiled as a transaction's body is. Raises ``SchemaError`` where the class is defined.

        class Range(tm.Aggregate):
            low: float | None = None
            high: float | None = None

            def add(self, e):
                if self.low is None or e.price < self.low:
                    self.low = e.price
                if self.high is None or e.price > self.high:
                    self.high = e.price

            def value(self):
                return self.high - self.low
    """

    _tidemill_kind: ClassVar[str] = "aggregate"

    def add(self, e: Any) -> None:
        """Adds an event."""
        raise BodyOnlyError("add()")

    def merge(self, later: Any) -> None:
        """Adds the state ``later`` of the events that come after those of this state. Sliding windows keep a state for
        each slide, and merge them from the oldest on."""
        raise BodyOnlyError("merge()")

    def value(self) -> Any:
        """The value that the window is asked for."""
        raise BodyOnlyError("value()")
