"""Functions that convert the values of a column when a state is migrated."""

from __future__ import annotations

import ast

from .. import ir
from ..deep import with_room
from ..names import conversion_place
from ..schema import Conversion, RecordSchema
from .expressions import Expressions
from .functions import Compiled, check_signature, compiled
from .scope import Context, Scope
from .source import Definition, Source, assigned, body_of, find, parameters
from .statements import HelperBody


def compile_conversions(table: str, schema: RecordSchema) -> dict[str, Compiled[ir.ConvertDef]]:
    """A plan's ``ConvertDef`` for each column that has a conversion, by its name. Raises ``CompileError``."""

    def translate() -> dict[str, Compiled[ir.ConvertDef]]:
        fields = ((f.name, f.conversion) for f in schema.fields)
        return {name: _compile(of, conversion_place(table, name)) for name, of in fields if of is not None}

    return with_room(translate)


def _compile(conversion: Conversion, place: str) -> Compiled[ir.ConvertDef]:
    context = Context()
    source, definition = find(conversion.function, place)
    source = context.sources.add(source)
    if isinstance(definition, ast.AsyncFunctionDef):
        raise source.refuse(definition, "'async' cannot be compiled", "write a plain def")
    parameter = _parameter(source, definition)
    names = assigned(definition.body if isinstance(definition, ast.FunctionDef) else [])
    scope = Scope(source, conversion.function, context, locals=names)
    context.names.add([parameter.arg, *names])
    given = ir.expr({"event": "value"}, source.span(parameter))
    statements: list[ir.Stmt] = []
    if parameter.arg in names:
        scope.bound.add(parameter.arg)
        statements.append(ir.stmt({"assign": {"name": scope.local(parameter.arg), "value": given}}, given["span"]))
    else:
        scope.values[parameter.arg] = given
    body, value = _body(scope, definition)
    node: ir.ConvertDef = {"from": conversion.old.to_json(), "body": [*statements, *body], "value": value}
    return compiled(node, scope, definition)


def _parameter(source: Source, definition: Definition) -> ast.arg:
    check_signature(source, definition, "write 'def convert(value: float): ...'")
    names = parameters(definition)
    if len(names) != 1 or definition.args.defaults or definition.args.kw_defaults:
        message = "a function that converts a column takes one value, and nothing else"
        at = names[1] if len(names) > 1 else definition
        raise source.refuse(at, message, "write 'def convert(value: float): ...'")
    return names[0]


def _body(scope: Scope, definition: Definition) -> tuple[list[ir.Stmt], ir.Expr]:
    """Its statements, and the value after them."""
    body = body_of(definition)
    shown = getattr(definition, "name", "the lambda")
    if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
        node = body[0].value
        before = scope.context.before = []
        values = Expressions(scope).operands(node.elts if isinstance(node, ast.Tuple) else [node])
        scope.context.before = None
        statements = list(before)
    else:
        statements, values = HelperBody(scope, shown).translate(body, definition)
    if len(values) != 1:
        what = f"{len(values)} values" if values else "no value"
        raise scope.source.refuse(definition, f"{shown} gives {what}, and the column has one", "return one value")
    return statements, values[0]
