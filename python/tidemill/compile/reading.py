"""Filters and maps that read rows: transactions of the plan that read and return an event.

A map returns its new event. A filter returns the fields of its input where its condition holds, and nothing elsewhere.
So the rows are read at the position of the event, after what stands before it in the order and before what comes later.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from .. import ir
from ..deep import with_room
from ..names import type_name
from ..roles import Role
from .callers import Caller, call_of
from .expressions import Expressions
from .functions import Compiled, check_owner, check_signature, compiled, event_of
from .lambdas import expression_of
from .records import Records
from .roles import RoleCompiler
from .scope import Context, Scope
from .source import Definition, Source, find, parameters

if TYPE_CHECKING:
    from ..app import App


@dataclass(frozen=True)
class Reading:
    """A filter or map with roles: its name, its input with the list fields, if these are known, the roles by their
    names, and where the user declares it."""

    app: App
    name: str
    input: ir.StreamRef
    lists: Collection[str] | None
    roles: Mapping[str, Any]
    caller: Caller | None

    @property
    def place(self) -> str:
        """In messages."""
        return f"stream '{self.name}'"


@dataclass(frozen=True)
class Passed:
    """The fields of the events that a filter passes on, and which of them is the event time."""

    schema: ir.Schema
    event_time: str | None


def compile_reading_map(function: Callable[..., Any], of: Reading) -> Compiled[ir.TransactionDef]:
    """A map with roles as a plan's ``TransactionDef``. Raises ``CompileError``."""

    def body(scope: Scope, node: ast.expr) -> ir.Stmt:
        record = Records(Expressions(scope)).translate(node)
        return ir.stmt({"return": {"record": record}}, scope.source.span(node))

    return with_room(lambda: _compile(function, of, body))


def compile_reading_filter(function: Callable[..., Any], of: Reading, passed: Passed) -> Compiled[ir.TransactionDef]:
    """A filter with roles as a plan's ``TransactionDef``. Raises ``CompileError``."""

    def body(scope: Scope, node: ast.expr) -> ir.Stmt:
        span = scope.source.span(node)
        fields = [(f["name"], ir.expr({"event": f["name"]}, span)) for f in passed.schema]
        record: ir.Record = {"fields": fields, "schema": passed.schema, "event_time": passed.event_time}
        passes = ir.stmt({"return": {"record": record}}, span)
        condition = Expressions(scope).translate(node)
        return ir.stmt({"if": {"condition": condition, "then": [passes], "otherwise": []}}, span)

    return with_room(lambda: _compile(function, of, body))


def _compile(
    function: Callable[..., Any], of: Reading, body: Callable[[Scope, ast.expr], ir.Stmt]
) -> Compiled[ir.TransactionDef]:
    context = Context()
    source, definition = find(function, of.place)
    source = context.sources.add(source)
    check_signature(source, definition, "name each role, and give it beside the function: r=table.read('key')")
    at, nodes = _given(source, definition, of, context)
    event = event_of(source, definition, of.roles)
    names = [p.arg for p in parameters(definition)[1:]]
    for name, written in nodes.items():
        if name not in names:
            hint = f"write 'lambda {', '.join([event, *names, name])}: ...', or leave the role out"
            raise at.refuse(written, f"the function has no parameter for the role '{name}'", hint)
    roles = {name: (_checked_role(at, nodes[name], name, of.roles[name]), nodes[name]) for name in names}
    check_owner(of.app, at, roles)
    scope = Scope(source, cast(FunctionType, function), context, {event}, {n: n for n in names}, lists=of.lists)
    outside = replace(scope, source=at)
    definitions = [
        RoleCompiler(outside, name, *role, earlier=names[:i]).definition()
        for i, (name, role) in enumerate(roles.items())
    ]
    for role in definitions:
        if role["over"] is not None:
            hint = "let a transaction loop over the list"
            message = f"'{role['name']}' is a row for each element of '{role['over']}', and a filter or map has no loop"
            raise at.refuse(nodes[role["name"]], message, hint)
    node: ir.TransactionDef = {
        "name": of.name,
        "inputs": [of.input],
        "over": None,
        "join": None,
        "nested": False,
        "derives": True,
        "roles": definitions,
        "body": [body(scope, expression_of(scope.source, definition))],
    }
    return compiled(node, scope, definition)


def _given(source: Source, definition: Definition, of: Reading, context: Context) -> tuple[Source, dict[str, ast.expr]]:
    """Returns the places where the roles are written, by their names: in the call, or if that cannot be found, at
    the function."""
    found = call_of(of.caller, of.roles, of.place)
    if found is None:
        stand_in = ast.copy_location(ast.Constant(None), definition)
        return source, dict.fromkeys(of.roles, stand_in)
    at, call = found
    return context.sources.add(at), {k.arg: k.value for k in call.keywords if k.arg is not None and k.arg in of.roles}


def _checked_role(source: Source, node: ast.expr, name: str, role: object) -> Role:
    """Refuses what is no role, and roles that write."""
    if not isinstance(role, Role):
        hint = f"write {name}=table.read('key'); for a constant use a name outside"
        raise source.refuse(node, f"'{name}' is {type_name(role)}, not a role", hint)
    if role.new:
        hint = "let a transaction insert it, and read it here with table.read(...)"
        raise source.refuse(node, f"'{name}' is a row that is inserted, and a filter or map only reads", hint)
    if role.access == "all":
        hint = "let a transaction loop over them"
        raise source.refuse(node, f"'{name}' is rows of a table, not one, and a filter or map has no loop", hint)
    if role.access not in ("read", "read_default"):
        key = ", ".join(repr(part) if isinstance(part, str) else "..." for part in role.keys)
        default = ", default=True" if role.access == "create" else ""
        hint = f"write {name}={role.table}.read({key}{default}); a transaction may write it"
        raise source.refuse(node, f"'{name}' is a row that may be written, and a filter or map only reads", hint)
    return role
