"""Functions that are one expression: those of filters, maps and keys."""

from __future__ import annotations

import ast

from .source import Definition, Source, body_of


def expression_of(source: Source, definition: Definition) -> ast.expr:
    """The expression that a lambda, or a def with nothing but a ``return``, gives. Raises ``CompileError``."""
    if isinstance(definition, ast.AsyncFunctionDef):
        raise source.refuse(definition, "'async' cannot be compiled", "write a plain def")
    body = body_of(definition)
    if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
        return body[0].value
    at_fault = next((s for s in body if not isinstance(s, ast.Return)), definition)
    hint = "write 'return' and one expression; a transaction may hold statements"
    raise source.refuse(at_fault, "a filter, map or key is one expression", hint)
