"""Roles: the rows that a transaction names in its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import TidemillError

if TYPE_CHECKING:
    from .app import App

__all__ = ["Key", "Role", "Value"]

Key = str | Callable[..., Any]
"""A part of a key: the path of an event's field (``"src"``, ``"lines.item"``), or of a column of the row of
an earlier parameter (``"src.owner"``), or a function of the event (``lambda e: e.src.lower()``), of the event and the
rows of earlier parameters by their names (``lambda e, page: page.number + 1``), or with ``over=`` of the event and an
element. Where an earlier parameter is several rows, its column is that of each."""

Value = str | Callable[..., Any] | int | float | bool | bytes | None
"""A column's value in ``table.new``: as a key, or a constant that is not a text."""


@dataclass(frozen=True, eq=False)
class Role:
    """A row, or a row per element of a list, that a transaction may touch.

    ``table`` is the name of a table of ``app``, and ``access`` the plan's name for what may be done.
    With ``new`` set, the row is inserted before the body begins, with the columns of ``values``.
    """

    app: App
    table: str
    keys: tuple[Key, ...]
    access: str
    over: str | None = None
    new: bool = False
    values: dict[str, Value] = field(default_factory=dict)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TidemillError(f"a row of '{self.table}' has no '{name}' outside of a transaction body")
