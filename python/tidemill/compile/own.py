"""Aggregates that users write: the methods of a subclass of ``tm.Aggregate``, compiled where a window asks for it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING

from .. import ir
from ..aggregate import Aggregate
from ..schema import schema_of
from .scope import Scope
from .source import assigned, body_of, parameters

if TYPE_CHECKING:
    from .expressions import Expressions

LATER = "later"
"""The name of the other state of a merge in the plan."""


@dataclass
class Owns:
    """The aggregates that one window function asks for, by the names of their classes."""

    definitions: dict[str, ir.OwnDef] = field(default_factory=dict)
    classes: dict[str, type[Aggregate]] = field(default_factory=dict)


class OwnCompiler:
    """Compiles ``w.aggregate(Range)`` in one function."""

    def __init__(self, owns: Owns, expressions: Expressions) -> None:
        self._owns = owns
        self._expressions = expressions
        self._scope = expressions.scope

    def value(self, node: ast.Call) -> ir.Expr:
        """The value of the aggregate that the call asks for. Raises ``CompileError``."""
        (given,) = self._expressions.calls.arguments(node, "aggregate", 1, 1)
        cls = self._scope.static(given)
        shown = ast.unparse(given)
        refuse = self._scope.source.refuse
        if not (isinstance(cls, type) and issubclass(cls, Aggregate) and cls is not Aggregate):
            hint = "write a subclass of tm.Aggregate, and give the class: w.aggregate(Range)"
            raise refuse(given, f"'{shown}' is no class of aggregates", hint)
        name = cls.__name__
        if self._owns.classes.setdefault(name, cls) is not cls:
            raise refuse(given, f"two aggregates of the window are called {name}", "give one of them another name")
        if self._scope.context.before is None:
            raise refuse(node, "an aggregate of your own is asked for in a filter, map or key", "ask in the window")
        if name not in self._owns.definitions:
            # An aggregate may not ask for others, so there is no circle.
            self._owns.definitions[name] = self._definition(node, cls)
        statements, values = self._placed(node, cls, "value", 1)
        if len(values) != 1:
            what = f"{len(values)} values" if values else "no value"
            raise refuse(node, f"{name}.value() returns {what}", "return one value")
        self._scope.context.before.extend(statements)
        return values[0]

    def _definition(self, node: ast.Call, cls: type[Aggregate]) -> ir.OwnDef:
        name = cls.__name__
        schema = schema_of(cls)
        for of in schema.fields:
            if not of.has_default:
                hint = f"write what it begins with: {of.name}: {of.type} = 0"
                raise self._scope.source.refuse(node, f"{name}.{of.name} has no value to begin with", hint)
        merge = None
        if cls.merge is not Aggregate.merge:
            merge = self._acts(node, cls, "merge")
        return {
            "name": name,
            "state": [of.to_column() for of in schema.fields],
            "add": self._acts(node, cls, "add"),
            "merge": merge,
        }

    def _acts(self, node: ast.Call, cls: type[Aggregate], method: str) -> list[ir.Stmt]:
        statements, values = self._placed(node, cls, method, 2)
        if values:
            hint = "set the state: self.total = ..."
            raise self._scope.source.refuse(node, f"{cls.__name__}.{method}() returns a value", hint)
        return statements

    def _placed(
        self, node: ast.Call, cls: type[Aggregate], method: str, count: int
    ) -> tuple[list[ir.Stmt], list[ir.Expr]]:
        """The statements of a method, and what it returns after them."""
        from .statements import HelperBody

        shown = f"{cls.__name__}.{method}"
        function = getattr(cls, method)
        if not isinstance(function, FunctionType) or function is getattr(Aggregate, method):
            raise self._scope.source.refuse(
                node, f"{cls.__name__} has no {method}()", f"write 'def {_HEADS[method]}: ...'"
            )
        source, definition = self._expressions.calls.helpers.found(node, function, shown)
        names = [parameter.arg for parameter in parameters(definition)]
        if len(names) != count or definition.args.vararg or definition.args.kwarg or definition.args.defaults:
            raise source.refuse(definition, f"{shown}() has other parameters", f"write 'def {_HEADS[method]}: ...'")
        body = body_of(definition)
        scope = Scope(
            source,
            function,
            context=self._scope.context,
            events=set(names[1:]) if method == "add" else set(),
            roles={names[0]: cls.__name__, **({names[1]: LATER} if method == "merge" else {})},
            locals=assigned(body),
            stack=(*self._scope.stack, function.__code__),
        )
        return HelperBody(scope, shown).translate(body, definition)


_HEADS = {"add": "add(self, e)", "merge": "merge(self, later)", "value": "value(self)"}
