"""New events: a dict, or a call of an event class."""

from __future__ import annotations

import ast
from typing import Any

from .. import ir
from ..errors import CompileError
from ..literals import column_value
from ..schema import Event, FieldSpec, Record, RecordSchema, resolved_schema
from ..types import ScalarType
from .expressions import Expressions
from .scope import UNKNOWN

_FORMS = "write a dict {'name': value, ...} or an event class Alert(name=value, ...)"


class Records:
    """Translates the new events of one function."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._scope = expressions.scope

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def event_class(self, node: ast.expr) -> type[Event] | None:
        """The class where the node is a call of an event class."""
        function = self._scope.static(node.func) if isinstance(node, ast.Call) else UNKNOWN
        return function if isinstance(function, type) and issubclass(function, Event) else None

    def translate(self, node: ast.expr) -> ir.Record:
        """The plan's ``Record``. Raises ``CompileError``."""
        if isinstance(node, ast.Dict):
            return self._from_dict(node)
        cls = self.event_class(node)
        if cls is not None:
            assert isinstance(node, ast.Call)
            return self._from_class(node, cls)
        if self._scope.is_event(node) and self._scope.closed is not None:
            hint = "return what is to be known of it: {'at': w.end, ...}"
            raise self._refuse(node, "the window as a whole cannot be passed on", hint)
        if self._scope.is_event(node) and self._scope.sides:
            hint = f"return what is to be known of it: {{'at': {ast.unparse(node)}.at, ...}}"
            raise self._refuse(node, "the event as a whole cannot be passed on", hint)
        if self._scope.is_event(node):
            hint = "return nothing: a transaction that never returns an event passes its input on"
            raise self._refuse(node, "the event as a whole cannot be passed on", hint)
        function = self._scope.static(node.func) if isinstance(node, ast.Call) else UNKNOWN
        if isinstance(function, type) and issubclass(function, Record):
            raise self._refuse(node, f"{function.__name__} is a row, not an event", "make it a subclass of tm.Event")
        raise self._refuse(node, f"'{ast.unparse(node)}' is not an event", _FORMS)

    def _from_dict(self, node: ast.Dict) -> ir.Record:
        names: list[str] = []
        for name, value in zip(node.keys, node.values, strict=True):
            if name is None:
                raise self._refuse(value, "'**' in a dict cannot be compiled", "write the fields one by one")
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                raise self._refuse(name, "the name of a field must be a text", "write it in quotes")
            if name.value in names:
                raise self._refuse(name, f"the field '{name.value}' is there twice")
            names.append(name.value)
        if not names:
            raise self._refuse(node, "an event without fields", _FORMS)
        fields = list(zip(names, self._expressions.operands(node.values), strict=True))
        return {"fields": fields, "schema": None, "event_time": None}

    def _from_class(self, node: ast.Call, cls: type[Event]) -> ir.Record:
        schema = resolved_schema(cls)
        if node.args:
            raise self._refuse(
                node.args[0], f"the fields of {schema.name} are given by name", f"write {schema.name}(name=value)"
            )
        names: list[str] = []
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self._refuse(keyword.value, "'**' in an event cannot be compiled", "write the fields one by one")
            if schema.field(keyword.arg) is None:
                known = ", ".join(f.name for f in schema.fields)
                raise self._refuse(keyword.value, f"{schema.name} has no field '{keyword.arg}'", f"it has {known}")
            names.append(keyword.arg)
        values = self._expressions.operands([keyword.value for keyword in node.keywords])
        given = dict(zip(names, values, strict=True))
        fields = [(f.name, given[f.name] if f.name in given else self._default(node, schema, f)) for f in schema.fields]
        return {"fields": fields, "schema": schema.to_json(), "event_time": schema.event_time}

    def _default(self, node: ast.Call, schema: RecordSchema, field: FieldSpec) -> ir.Expr:
        if not field.has_default:
            raise self._refuse(node, f"{schema.name} lacks the field '{field.name}'", f"write {field.name}=...")
        assert isinstance(field.type, ScalarType)
        value: Any = column_value(field.default, field.type)
        if isinstance(value, dict) and "decimal" in value:
            return self._expressions.constant(node, field.default)
        return ir.literal(value, self._scope.source.span(node))
