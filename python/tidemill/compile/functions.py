"""Whole functions: transactions, filters, maps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .. import ir
from ..deep import with_room
from ..errors import CompileError
from ..names import foreign, type_name
from ..over import Field
from ..roles import Role
from .aggregates import Closed
from .expressions import Expressions
from .lambdas import expression_of
from .marks import Sources, unmarked
from .records import Records
from .roles import RoleCompiler
from .scope import Context, Scope
from .source import Definition, Source, assigned, find, parameters
from .statements import Statements

if TYPE_CHECKING:
    from ..app import App

N = TypeVar("N")


@dataclass(frozen=True)
class Compiled(Generic[N]):
    """A part of the plan, the span of the function's head for what concerns it as a whole, and the sources to which its
    spans refer."""

    node: N
    head: ir.Span
    sources: Sources

    def error(self, span: ir.Span | None, message: str, hint: str) -> CompileError:
        """The error at a span of the part; without one, at the function's head."""
        number, plain = unmarked(span or self.head)
        for source in self.sources.all:
            message = source.in_words(message)
        return self.sources.all[number].error(plain, message, hint)


def compile_filter(function: Callable[..., Any], place: str, lists: Collection[str] | None) -> Compiled[ir.Expr]:
    """The predicate of a filter: a plan's ``Expr``. Raises ``CompileError``."""

    def translate() -> Compiled[ir.Expr]:
        scope, definition = of_one_event(function, place, lists)
        expression = Expressions(scope).translate(expression_of(scope.source, definition))
        return compiled(expression, scope, definition)

    return with_room(translate)


def compile_map(function: Callable[..., Any], place: str, lists: Collection[str] | None) -> Compiled[ir.Record]:
    """The new event of a map: a plan's ``Record``. Raises ``CompileError``."""

    def translate() -> Compiled[ir.Record]:
        scope, definition = of_one_event(function, place, lists)
        records = Records(Expressions(scope))
        return compiled(records.translate(expression_of(scope.source, definition)), scope, definition)

    return with_room(translate)


def compile_transaction(
    app: App, function: Callable[..., Any], name: str, inputs: list[ir.StreamRef], lists: Collection[str] | None
) -> Compiled[ir.TransactionDef]:
    """A plan's ``TransactionDef``, of ``app``. ``lists`` are the list fields of the inputs' events, if known.

    Raises ``CompileError``.
    """
    return with_room(lambda: _compile_transaction(app, function, name, inputs, lists))


def _compile_transaction(
    app: App, function: Callable[..., Any], name: str, inputs: list[ir.StreamRef], lists: Collection[str] | None
) -> Compiled[ir.TransactionDef]:
    context = Context()
    source, definition = find(function, f"transaction '{name}'")
    source = context.sources.add(source)
    if isinstance(definition, ast.AsyncFunctionDef):
        hint = "a transaction waits for nothing: write a plain def"
        raise source.refuse(definition, "'async' cannot be compiled", hint)
    function = cast(FunctionType, function)
    roles = _roles(source, definition, function)
    check_owner(app, source, roles)
    event = _event_parameter(source, definition, roles)
    body = definition.body if isinstance(definition, ast.FunctionDef) else []
    if isinstance(definition, ast.Lambda):
        raise source.refuse(definition, "a transaction cannot be a lambda", "write a def")
    names = list(roles)
    plan_roles = {name: name for name in names}
    scope = Scope(source, function, context, {event}, plan_roles, assigned(body), lists)
    context.names.add([*roles, *scope.locals])
    context.scans.update(name for name, (role, _) in roles.items() if role.access == "all")
    compilers = [RoleCompiler(scope, n, *roles[n], earlier=names[:i]) for i, n in enumerate(names)]
    definitions = [compiler.definition() for compiler in compilers]
    inserts = [insert for compiler in compilers for insert in compiler.inserts()]
    statements = inserts + Statements(scope).translate(body)
    node: ir.TransactionDef = {
        "name": name,
        "inputs": inputs,
        "over": None,
        "join": None,
        "nested": False,
        "roles": definitions,
        "body": statements,
    }
    return compiled(node, scope, definition)


@dataclass(frozen=True)
class Over:
    """Whose windows a window function runs on: its name, the stream and its list fields, if known, the parts of the
    group, the kind of windows, and the table of which each row has a result."""

    name: str
    input: ir.StreamRef
    lists: Collection[str] | None
    group: Mapping[str, Field]
    windows: ir.WindowsDef
    early: ir.Value | None = None
    every: str | None = None


def compile_window(function: Callable[..., Any], over: Over) -> Compiled[ir.TransactionDef]:
    """A plan's ``TransactionDef`` that runs on windows. Raises ``CompileError``."""
    return with_room(lambda: _compile_window(function, over))


def _compile_window(function: Callable[..., Any], over: Over) -> Compiled[ir.TransactionDef]:
    context = Context()
    source, definition = find(function, f"window '{over.name}'")
    source = context.sources.add(source)
    if not isinstance(definition, ast.FunctionDef):
        what = "'async' cannot be compiled" if isinstance(definition, ast.AsyncFunctionDef) else "it is a lambda"
        raise source.refuse(definition, what, "write a plain def of the window: def f(w): ...")
    names = parameters(definition)
    check_signature(source, definition, "a window has no roles: let a transaction run on what it returns")
    if len(names) != 1:
        at = names[1] if names else definition
        hint = "write 'def f(w): ...'; rows are read by a transaction that runs on what it returns"
        raise source.refuse(at, "a function of windows takes the window and nothing else", hint)
    function = cast(FunctionType, function)
    closed = Closed(over.group)
    scope = Scope(source, function, context, {names[0].arg}, {}, assigned(definition.body), (), closed=closed)
    context.names.add(scope.locals)
    by = [(name, _part(part, name, over.lists, scope, definition)) for name, part in over.group.items()]
    body = Statements(scope).translate(definition.body)
    node: ir.TransactionDef = {
        "name": over.name,
        "inputs": [over.input],
        "over": {
            "by": by,
            "windows": over.windows,
            "early": over.early,
            "every": over.every,
            "top": None,
            "first": None,
            "own": list(closed.owns.definitions.values()),
        },
        "join": None,
        "nested": False,
        "roles": [],
        "body": body,
    }
    return compiled(node, scope, definition)


def _part(part: Field, name: str, lists: Collection[str] | None, window: Scope, definition: ast.FunctionDef) -> ir.Expr:
    """The value of a part of a group."""
    if isinstance(part, str):
        return ir.expr({"event": part}, window.source.span(argument_of(definition, "by", part)))
    place = f"{window.source.place}, '{name}' of its group"
    scope, of = of_one_event(part, place, lists, window.context)
    return Expressions(scope).translate(expression_of(scope.source, of))


def argument_of(definition: ast.FunctionDef, keyword: str, name: str) -> ast.AST:
    """Returns the place where a name is written in an argument of the decorator, if that can be seen."""
    calls = [d for d in definition.decorator_list if isinstance(d, ast.Call)]
    given = next((k.value for call in calls for k in call.keywords if k.arg == keyword), None)
    nodes = [] if given is None else ast.walk(given)
    return next((n for n in nodes if isinstance(n, ast.Constant) and n.value == name), given or definition)


def compiled(node: N, scope: Scope, definition: Definition) -> Compiled[N]:
    """A part of the plan that was made from a function."""
    head = scope.source.span(definition)
    if not isinstance(definition, ast.Lambda):
        # From 'def' to the end of the name.
        width = len("def ") + len(definition.name)
        head = {**head, "end_line": head["line"], "end_column": head["column"] + width}
    return Compiled(node, head, scope.context.sources)


def of_one_event(
    function: Callable[..., Any],
    place: str,
    lists: Collection[str] | None,
    outer: Context | None = None,
    kind: str = "group",
) -> tuple[Scope, Definition]:
    """The names of a filter or map; with the context ``outer`` of a window or join, of a function of its group or
    key."""
    context = outer or Context()
    source, definition = find(function, place)
    source = context.sources.add(source)
    check_signature(source, definition)
    names = parameters(definition)
    if outer is None:
        event = event_of(source, definition, ())
    elif len(names) == 1 and not definition.args.defaults:
        event = names[0].arg
    else:
        message = f"a function of a {kind} takes the event and nothing else"
        raise source.refuse(definition, message, "write 'lambda e: ...'")
    return Scope(source, cast(FunctionType, function), context, {event}, lists=lists), definition


def event_of(source: Source, definition: Definition, roles: Collection[str]) -> str:
    """The parameter of a filter or map that is the event; the others are its roles. Raises ``CompileError``."""
    arguments = definition.args
    names = parameters(definition)
    if not names:
        hint = f"write 'lambda {', '.join(['ev' if 'e' in roles else 'e', *roles])}: ...'"
        raise source.refuse(definition, "a filter or map takes the event as its first parameter", hint)
    event, *others = names
    for default in [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]:
        hint = "roles are given beside the function: stream.map(f, r=table.read('key'))"
        raise source.refuse(default, "a parameter of a filter or map has no default", hint)
    if event.arg in roles:
        hint = "write 'def f(ev, ...)', with another name for the role"
        raise source.refuse(event, f"'{event.arg}' is the event, not a role", hint)
    for other in others:
        if other.arg not in roles:
            hint = f"give it one beside the function: {other.arg}=table.read('key')"
            raise source.refuse(other, f"the parameter '{other.arg}' has no role", hint)
    return event.arg


def check_signature(
    source: Source, definition: Definition, hint: str = "name each role: src=accounts.row('src')"
) -> None:
    """Refuses parameters with stars."""
    for extra, stars in ((definition.args.vararg, "*"), (definition.args.kwarg, "**")):
        if extra is not None:
            raise source.refuse(extra, f"'{stars}{extra.arg}' cannot be compiled", hint)


def _event_parameter(source: Source, definition: Definition, roles: Collection[str]) -> str:
    names = [a for a in parameters(definition) if a.arg not in roles]
    if not names:
        raise source.refuse(
            definition, "a transaction needs the event as its first parameter", "write 'def f(ev, ...)'"
        )
    if len(names) > 1:
        hint = f"write {names[1].arg}=table.row('key')"
        raise source.refuse(names[1], f"the parameter '{names[1].arg}' is not a role", hint)
    return names[0].arg


def _roles(source: Source, definition: Definition, function: FunctionType) -> dict[str, tuple[Role, ast.expr]]:
    """The roles by parameter, each with its default's syntax tree."""
    check_signature(source, definition)
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    values = dict(zip([a.arg for a in reversed(positional)], reversed(function.__defaults__ or ()), strict=False))
    values.update(function.__kwdefaults__ or {})
    nodes: dict[str, ast.expr] = dict(
        zip([a.arg for a in reversed(positional)], reversed(arguments.defaults), strict=False)
    )
    nodes.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None})
    roles: dict[str, tuple[Role, ast.expr]] = {}
    for parameter in parameters(definition):
        if parameter.arg in values:
            roles[parameter.arg] = (_role(source, nodes[parameter.arg], parameter.arg, values), nodes[parameter.arg])
    return roles


def _role(source: Source, node: ast.expr, name: str, values: dict[str, Any]) -> Role:
    value = values[name]
    if not isinstance(value, Role):
        hint = "roles are table.row(...), .read(...), .new(...), .all(), .where(...); for a constant use a name outside"
        raise source.refuse(node, f"the default of '{name}' is {type_name(value)}, not a role", hint)
    return value


def check_owner(app: App, source: Source, roles: Mapping[str, tuple[Role, ast.expr]]) -> None:
    """Refuses rows of another application's tables: the plan would take its own of the same name."""
    for role, node in roles.values():
        if role.app is not app:
            raise source.refuse(node, *foreign(f"table '{role.table}'", role.app, app))
