"""Replies to calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import Aborted

__all__ = ["BOTH", "Reply", "result_of"]

BOTH = ("a call has an event and fields", "give one of them")
"""The error of a call that is given too much, and a hint."""


@dataclass(frozen=True)
class Reply:
    """The reply to a call that committed: ``reply["balance"]`` is a value of the record that it returned."""

    value: dict[str, Any] | None
    """The record, ``None`` if the transaction returned none."""
    epoch: int
    """The number of its epoch."""

    def __getitem__(self, field: str) -> Any:
        if self.value is None:
            raise KeyError(f"{field}: the transaction returned no record")
        return self.value[field]


def result_of(epoch: int, committed: Mapping[str, Any] | None, aborted: tuple[str, Mapping[str, Any]] | None) -> Reply:
    """The reply. Raises ``Aborted``."""
    if aborted is not None:
        reason, seen = aborted
        raise Aborted(reason, seen, epoch)
    return Reply(None if committed is None else dict(committed), epoch)
