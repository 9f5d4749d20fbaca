"""The functions of joins: transactions of the plan without roles, on pairs of events.

In the plan the fields of a pair have the name of their side too: ``p.id``, ``a.seller``, ``a.exists``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast

from .. import ir
from ..deep import with_room
from ..joins import Joining, Key
from .expressions import Expressions
from .functions import Compiled, argument_of, check_signature, compiled, of_one_event
from .lambdas import expression_of
from .scope import Context, Scope
from .source import Source, assigned, find, parameters
from .statements import Statements


@dataclass(frozen=True)
class Joined:
    """A join that a function runs on: its name, the two streams with their list fields, if known, and how they are
    joined."""

    name: str
    inputs: tuple[ir.StreamRef, ir.StreamRef]
    lists: tuple[Collection[str] | None, Collection[str] | None]
    joining: Joining

    @property
    def place(self) -> str:
        """In messages."""
        return f"join '{self.name}'"


def compile_join(function: Callable[..., Any], of: Joined) -> Compiled[ir.TransactionDef]:
    """A plan's ``TransactionDef`` that runs on the pairs of a join. Raises ``CompileError``."""
    return with_room(lambda: _compile(function, of))


def _compile(function: Callable[..., Any], of: Joined) -> Compiled[ir.TransactionDef]:
    context = Context()
    source, definition = find(function, of.place)
    source = context.sources.add(source)
    if not isinstance(definition, ast.FunctionDef):
        what = "'async' cannot be compiled" if isinstance(definition, ast.AsyncFunctionDef) else "it is a lambda"
        raise source.refuse(definition, what, "write a plain def of both events: def f(p, a): ...")
    sides = _sides(source, definition, of)
    scope = Scope(
        source,
        cast(FunctionType, function),
        context,
        set(sides),
        {},
        assigned(definition.body),
        _lists(sides, of),
        sides={name: name for name in sides},
    )
    context.names.add([*sides, *scope.locals])
    on = [
        (_key(left, 0, scope, definition, of), _key(right, 1, scope, definition, of)) for left, right in of.joining.on
    ]
    join: ir.JoinDef = {
        "left": sides[0],
        "right": sides[1] if len(sides) == 2 else None,
        "on": on,
        "bound": of.joining.bound,
        "how": of.joining.how,
    }
    node: ir.TransactionDef = {
        "name": of.name,
        "inputs": list(of.inputs),
        "over": None,
        "join": join,
        "nested": False,
        "roles": [],
        "body": Statements(scope).translate(definition.body),
    }
    return compiled(node, scope, definition)


def _sides(source: Source, definition: ast.FunctionDef, of: Joined) -> list[str]:
    """The parameters: the left event, and the right one where there can be one."""
    check_signature(source, definition, "a join has no roles: let a transaction run on what it returns")
    names = parameters(definition)
    if of.joining.how == "anti":
        if len(names) != 1:
            at = names[1] if names else definition
            hint = "write 'def f(p): ...'; it runs on left events that have no partner"
            raise source.refuse(at, "the function of an anti join takes the left event and nothing else", hint)
    elif len(names) != 2:
        at = names[2] if len(names) > 2 else definition
        hint = "write 'def f(p, a): ...'; rows are read by a transaction that runs on what it returns"
        raise source.refuse(at, "the function of a join takes the left and the right event and nothing else", hint)
    defaults = [*definition.args.defaults, *(d for d in definition.args.kw_defaults if d is not None)]
    if defaults:
        hint = "a join has no roles: let a transaction run on what it returns"
        raise source.refuse(defaults[0], "a parameter of a join has no default", hint)
    return [name.arg for name in names]


def _lists(sides: list[str], of: Joined) -> Collection[str] | None:
    """The list fields of both sides as the plan names them, if they are known."""
    named: set[str] = set()
    for side, lists in zip(sides, of.lists, strict=False):
        if lists is None:
            return None
        named.update(f"{side}.{name}" for name in lists)
    return named


def _key(key: Key, side: int, join: Scope, definition: ast.FunctionDef, of: Joined) -> ir.Expr:
    """The value of a part of the key on one side."""
    if isinstance(key, str):
        return ir.expr({"event": key}, join.source.span(argument_of(definition, "on", key)))
    place = f"{of.place}, the key of its {('left', 'right')[side]} side"
    scope, function = of_one_event(key, place, of.lists[side], join.context, "key")
    return Expressions(scope).translate(expression_of(scope.source, function))
