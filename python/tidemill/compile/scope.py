"""The meaning of names in a compiled function: the event, a role, a local, the element of a loop, or a
constant from outside, whose value is taken when the function is defined."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from .. import ir
from ..literals import is_constant
from .marks import Sources
from .source import Definition, Source

if TYPE_CHECKING:
    from .aggregates import Closed

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN"})()
"""Stands for a value that is not known while compiling."""

ROW_OPERATIONS = ("insert", "delete", "wake")
"""The operations that a row has as statements."""


@dataclass
class Element:
    """A loop variable that stands for the elements of a list."""

    variable: str
    list_name: str


@dataclass
class Names:
    """The names of locals in the plan: those of the body, and others that are apart from these."""

    taken: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    """The prefixes of helpers' locals: none begins with another, and no name of the body with one."""
    heads: set[str] = field(default_factory=set)
    """The beginnings of names and prefixes, each up to a ``_``."""
    numbers: Counter[str] = field(default_factory=Counter)

    def add(self, names: Iterable[str]) -> None:
        """Takes the names of a body."""
        self.taken.update(names)
        self.heads.update(head for name in self.taken for head in _heads(name))

    def prefix(self, helper: str) -> str:
        """A new prefix for the locals of a helper: ``fee_``, for further calls ``fee2_``, ``fee3_``."""
        stem = helper.replace(".", "_")
        while True:
            self.numbers[stem] += 1
            number = self.numbers[stem]
            prefix = f"{stem}{number if number > 1 else ''}_"
            if not self.prefixes.isdisjoint(_heads(prefix)):
                stem = f"_{stem}"
            elif prefix not in self.heads:
                break
        self.prefixes.add(prefix)
        self.heads.update(_heads(prefix))
        return prefix

    def temporary(self) -> str:
        """A name for a local that no function has. Without a ``_``, it begins with no prefix."""
        while True:
            self.numbers[""] += 1
            name = f"value{self.numbers['']}"
            if name not in self.taken:
                return name


def _heads(name: str) -> list[str]:
    return [name[: i + 1] for i, character in enumerate(name) if character == "_"]


@dataclass
class Context:
    """The state that the scopes of one part of the plan share."""

    sources: Sources = field(default_factory=Sources)
    before: list[ir.Stmt] | None = None
    """The statements to put before the one that is being translated; None where there are expressions only."""
    found: dict[CodeType, tuple[Source, Definition]] = field(default_factory=dict)
    """The helpers that were called."""
    names: Names = field(default_factory=Names)
    scans: set[str] = field(default_factory=set)
    """The roles of the plan that are rows of a table, not one."""
    each: dict[str, str] = field(default_factory=dict)
    """The roles of the plan that are a row for each row of another, with that one."""


@dataclass
class Scope:
    """The names of one function. In that of a helper, a parameter may stand for the event, a row, an element or a value
    of its caller."""

    source: Source
    function: FunctionType
    context: Context
    events: set[str] = field(default_factory=set)
    """The names of the event."""
    roles: dict[str, str] = field(default_factory=dict)
    """The roles of the plan by their names."""
    locals: Mapping[str, int] = field(default_factory=dict)
    """The names that the function assigns to, with how often it does."""
    lists: Collection[str] | None = None
    """The list fields of the event, or none if not known."""
    elements: dict[str, Element] = field(default_factory=dict)
    scanned: set[str] = field(default_factory=set)
    """The variables of loops over rows of a table: each stands for the row at hand."""
    at_hand: set[str] = field(default_factory=set)
    """In the function of a key: the names of rows of a table, each of which has the columns of the row at hand."""
    sides: dict[str, str] = field(default_factory=dict)
    """The names of a join's events in its function, with the sides of the plan for which they stand."""
    closed: Closed | None = None
    """The close that a window function runs on; its event is the window."""
    values: dict[str, ir.Expr] = field(default_factory=dict)
    """The parameters of a helper that stand for a value."""
    bound: set[str] = field(default_factory=set)
    """The parameters of a helper that are locals of the plan."""
    stack: tuple[CodeType, ...] = ()
    """The function and those that called it."""

    def is_inside(self, name: str) -> bool:
        """Returns whether the name means something of the function, not a constant from outside."""
        known = self.events, self.roles, self.elements, self.values, self.bound, self.locals
        return any(name in names for names in known)

    def is_local(self, name: str) -> bool:
        """Returns whether the name is a local of the plan."""
        return name in self.locals or name in self.bound

    def local(self, name: str) -> str:
        """The plan's name of a local."""
        return self.source.prefix + name

    def is_event(self, node: ast.AST) -> bool:
        """Returns whether the node is the event itself."""
        return isinstance(node, ast.Name) and node.id in self.events

    def is_role(self, node: ast.AST) -> bool:
        """Returns whether the node is a role itself."""
        return isinstance(node, ast.Name) and node.id in self.roles

    def scan(self, node: ast.AST) -> str | None:
        """The plan's name of a role that is rows of a table, where the node is that role itself."""
        if not isinstance(node, ast.Name) or node.id in self.scanned:
            return None
        role = self.roles.get(node.id)
        return role if role in self.context.scans else None

    def event_field(self, node: ast.AST) -> str | None:
        """The field where the node is ``ev.field``; a window has none."""
        if self.closed is not None:
            return None
        if isinstance(node, ast.Name) and node.id in self.values:
            return ir.name_of(self.values[node.id], "event")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and self.is_event(node.value):
            return self.field_of(node.value.id, node.attr)
        return None

    def field_of(self, event: str, name: str) -> str:
        """A field of an event as the plan names it: one of a join's sides has the name of the side too."""
        return f"{self.sides[event]}.{name}" if event in self.sides else name

    @property
    def event_kind(self) -> str:
        """Returns the word that messages have for the event."""
        return "event" if self.closed is None else "window"

    def is_list(self, name: str) -> bool:
        """Returns whether a field of the event is known to be a list."""
        return self.lists is not None and name in self.lists

    def static(self, node: ast.AST) -> Any:
        """The object that a name or dotted name outside of the function means; ``UNKNOWN`` for
        everything else."""
        if isinstance(node, ast.Name):
            return UNKNOWN if self.is_inside(node.id) else self._outside(node)
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
