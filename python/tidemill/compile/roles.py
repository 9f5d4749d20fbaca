"""The keys of roles, and the inserts of ``table.new``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, Literal

from .. import ir
from ..errors import CompileError
from ..roles import Key, Role, Value
from ..selection import Between, Same, Selection
from .expressions import Expressions
from .lambdas import expression_of
from .scope import Element, Scope
from .source import find


class RoleCompiler:
    """Translates one role. ``default`` is the parameter's default in the syntax tree, ``earlier`` are the
    names of the roles before it."""

    def __init__(self, scope: Scope, name: str, role: Role, default: ast.expr, earlier: Collection[str] = ()) -> None:
        self._scope = scope
        self._name = name
        self._role = role
        self._default = default
        self._over = role.over
        self._earlier = earlier

    def definition(self) -> ir.RoleDef:
        """The plan's ``RoleDef``."""
        key = [self._part(part, self._node_of(part)) for part in self._role.keys]
        role: ir.RoleDef = {
            "name": self._name,
            "table": self._role.table,
            "key": key,
            "over": self._over,
            "access": self._role.access,
        }
        if (rows := self._rows_read(key)) is not None:
            role["each"] = self._scope.context.each[self._name] = rows
        if isinstance(self._role, Selection):
            role["selection"] = self._selection(self._role)
        return role

    def _selection(self, role: Selection) -> ir.SelectionDef:
        """Which rows a role is that is not one row."""
        conditions = [self._condition(condition) for condition in role.conditions]
        order = role.order
        if order is None:
            return {"conditions": conditions, "order": None}
        direction: Literal["Ascending", "Descending"] = "Descending" if order.descending else "Ascending"
        by: ir.OrderDef = {"column": order.column, "direction": direction, "count": order.count}
        return {"conditions": conditions, "order": by}

    def _condition(self, condition: Same | Between) -> ir.ConditionDef:
        if isinstance(condition, Same):
            return {"column": condition.column, "test": {"same": self._chosen_by(condition.column, condition.value)}}
        bounds: ir.Bounds = {
            "low": None if condition.low is None else self._chosen_by("low", condition.low),
            "high": None if condition.high is None else self._chosen_by("high", condition.high),
        }
        return {"column": condition.column, "test": {"between": bounds}}

    def _chosen_by(self, keyword: str, value: Value) -> ir.Expr:
        """A value in a selection, given by keyword or not."""
        expression = self._value(keyword, value)
        if self._over is not None:
            node = self._node_of(value, keyword)
            message = f"the rows of '{self._name}' are chosen by an element of '{self._over}'"
            raise self._refuse(node, message, "choose them by a field of the event; a loop may pass over the others")
        if (rows := self._rows_read([expression])) is not None:
            message = f"the rows of '{self._name}' are chosen by each row of '{rows}'"
            raise self._refuse(
                self._node_of(value, keyword), message, "choose them by a row that is one, or by the event"
            )
        return expression

    def _rows_read(self, values: list[ir.Expr]) -> str | None:
        """The role of rows of a table of which the values read the row at hand, if any."""
        context = self._scope.context
        of = {role: role for role in context.scans} | context.each
        read = [of[role] for role in dict.fromkeys(ir.roles_read(values)) if role in of]
        for rows in read[1:]:
            if rows != read[0]:
                message = f"role '{self._name}' is a row for each of '{read[0]}' and of '{rows}'"
                raise self._refuse(self._default, message, "use a role for each")
        return read[0] if read else None

    def inserts(self) -> list[ir.Stmt]:
        """The statements that a ``new`` role begins the body with. After ``definition``."""
        if not self._role.new:
            return []
        span = self._scope.source.span(self._default)
        values = [(name, self._value(name, value)) for name, value in self._role.values.items()]
        insert = ir.insert(self._name, values, span)
        context = self._scope.context
        if self._name in context.each:
            return [ir.for_rows(context.names.temporary(), context.each[self._name], [insert], span)]
        return [insert] if self._over is None else [ir.for_each(self._over, self._over, [insert], span)]

    def _value(self, name: str, value: Any) -> ir.Expr:
        node = self._node_of(value, name)
        if isinstance(value, str) or callable(value):
            return self._part(value, node)
        return Expressions(self._scope).constant(node, value)

    def _part(self, part: Key, node: ast.expr) -> ir.Expr:
        if isinstance(part, str):
            return self._path(part, node)
        return self._function(part, node)

    def _path(self, path: str, node: ast.expr) -> ir.Expr:
        span = self._scope.source.span(node)
        first, dot, rest = path.partition(".")
        if not all(p.isidentifier() for p in path.split(".")) or "." in rest:
            element, row = '"lines.name" for a field of each element', '"row.name" for a column of a row'
            hint = f'write "name" for a field, {element}, {row}'
            raise self._refuse(node, f"{path!r} is not a path of a field", hint)
        if dot and first in self._earlier and not self._scope.is_list(first):
            return ir.expr({"cell": {"role": first, "column": rest}}, span)
        if dot and first in self._scope.roles and not self._scope.is_list(first):
            message = f"the row of '{first}' is not known before '{self._name}'"
            raise self._refuse(node, message, f"put the parameter '{first}' first")
        if dot or self._scope.is_list(first):
            self._set_over(first, node)
            return ir.expr({"element": {"variable": first, "field": rest}}, span)
        return ir.expr({"event": first}, span)

    def _set_over(self, name: str, node: ast.expr) -> None:
        if self._over is not None and self._over != name:
            message = f"role '{self._name}' runs over two lists, '{self._over}' and '{name}'"
            raise self._refuse(node, message, "use a role for each")
        self._over = name

    def _function(self, function: Callable[..., Any], node: ast.expr) -> ir.Expr:
        source, definition = find(function, self._scope.source.place)
        event, *others = [a.arg for a in definition.args.args] or [""]
        if self._role.over is None:
            for name in others:
                if name not in self._earlier:
                    hint = "a function of a role takes the event, and roles before it by their names"
                    raise source.refuse(definition, f"no role '{name}' before '{self._name}'", hint)
        if not event or (self._role.over is not None and len(others) != 1):
            takes = "the event" if self._role.over is None else "the event and an element of the list"
            count = len(definition.args.args)
            raise source.refuse(definition, f"a function of a role takes {takes}, not {count} arguments")
        assert isinstance(function, FunctionType)
        context = self._scope.context
        scope = Scope(context.sources.add(source), function, context, events={event}, lists=self._scope.lists)
        if self._role.over is None:
            scope.roles.update((name, name) for name in others)
            scope.at_hand.update(others)
        else:
            scope.elements[others[0]] = Element(self._role.over, self._role.over)
        return Expressions(scope).translate(expression_of(source, definition))

    def _node_of(self, part: object, keyword: str | None = None) -> ast.expr:
        """Returns the place where a part of the role is written: its own argument if that can be seen."""
        call: ast.expr = self._default
        # A selection is a chain of calls.
        while isinstance(call, ast.Call):
            for given in call.keywords:
                if given.arg == keyword and keyword is not None:
                    return given.value
            if keyword is None or isinstance(self._role, Selection):
                for argument in call.args:
                    if isinstance(argument, ast.Constant) and argument.value == part:
                        return argument
            call = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        return self._default

    def _refuse(self, node: ast.AST, message: str, hint: str) -> CompileError:
        return self._scope.source.refuse(node, message, hint)
