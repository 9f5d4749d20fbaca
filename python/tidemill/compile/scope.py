"""The meaning of names in a compiled function: the event, a role, a local, the element of a loop, or a
constant from outside, whose value is taken when the function is defined."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..literals import is_constant
from .source import Source

if TYPE_CHECKING:
    from .aggregates import Closed

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN"})()
"""Stands for a value that is not known while compiling."""


@dataclass
class Element:
    """A loop variable that stands for the elements of a list."""

    variable: str
    list_name: str


@dataclass
class Scope:
    """The names of one function. ``lists`` are the list fields of the event, or none if not known."""

    source: Source
    function: FunctionType
    event: str
    roles: Collection[str] = ()
    locals: Mapping[str, int] = field(default_factory=dict)
    """With how often the body assigns to each."""
    lists: Collection[str] | None = None
    elements: dict[str, Element] = field(default_factory=dict)
    closed: Closed | None = None
    """Of a window function, whose ``event`` is the window."""

    def is_parameter(self, name: str) -> bool:
        """Whether the name is the event or a role."""
        return name == self.event or name in self.roles

    def is_event(self, node: ast.AST) -> bool:
        """Whether the node is the event itself."""
        return isinstance(node, ast.Name) and node.id == self.event

    def is_role(self, node: ast.AST) -> bool:
        """Whether the node is a role itself."""
        return isinstance(node, ast.Name) and node.id in self.roles

    def event_field(self, node: ast.AST) -> str | None:
        """The field where the node is ``ev.field``; a window has none."""
        if self.closed is not None:
            return None
        return node.attr if isinstance(node, ast.Attribute) and self.is_event(node.value) else None

    def is_list(self, name: str) -> bool:
        """Whether a field of the event is known to be a list."""
        return self.lists is not None and name in self.lists

    def static(self, node: ast.AST) -> Any:
        """The object that a name or dotted name outside of the function means; ``UNKNOWN`` for
        everything else."""
        if isinstance(node, ast.Name):
            inside = self.is_parameter(node.id) or node.id in self.locals or node.id in self.elements
            return UNKNOWN if inside else self._outside(node)
        if isinstance(node, ast.Attribute):
            base = self.static(node.value)
            # The methods of constants are functions of the language, not attributes of objects.
            if base is UNKNOWN or (is_constant(base) and not hasattr(type(base), "__members__")):
                return UNKNOWN
            value = getattr(base, node.attr, UNKNOWN)
            if value is UNKNOWN:
                shown = getattr(base, "__name__", type(base).__name__)
                raise self.source.refuse(node, f"{shown} has no attribute '{node.attr}'")
            return value
        return UNKNOWN

    def _outside(self, node: ast.Name) -> Any:
        function, name = self.function, node.id
        free = function.__code__.co_freevars
        if name in free and function.__closure__ is not None:
            try:
                return function.__closure__[free.index(name)].cell_contents
            except ValueError:
                hint = "constants are taken when the function is defined: define it before"
                raise self.source.refuse(node, f"'{name}' has no value yet", hint) from None
        for names in (function.__globals__, vars(builtins)):
            if name in names:
                return names[name]
        raise self.source.refuse(node, f"the name '{name}' is not defined", "define it before the function")
