"""``match`` on values, as the branches that it stands for."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from .scope import Scope

_KINDS = {
    ast.MatchSequence: "a sequence",
    ast.MatchMapping: "a mapping",
    ast.MatchClass: "a class",
    ast.MatchStar: "a sequence",
}


def branches(scope: Scope, node: ast.Match) -> list[ast.stmt]:
    """Statements that do what a ``match`` does. Raises ``CompileError``."""
    subject, before = node.subject, list[ast.stmt]()
    if not _is_plain(subject) or any(isinstance(n, ast.Call) for c in node.cases if c.guard for n in ast.walk(c.guard)):
        name = _unused(scope)
        scope.bound.add(name)
        before = [_assign(name, subject)]
        subject = ast.copy_location(ast.Name(name, ast.Load()), subject)
    return [*before, *_Cases(scope, subject).branches(node.cases)]


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))


def _unused(scope: Scope) -> str:
    """Returns a name that the function says nowhere, neither for a local nor for a constant from outside."""
    code = scope.function.__code__
    said = {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}
    return next(name for name in iter(scope.context.names.temporary, "") if name not in said)


def _assign(name: str, value: ast.expr) -> ast.stmt:
    target = ast.copy_location(ast.Name(name, ast.Store()), value)
    return ast.copy_location(ast.Assign([target], value), value)


@dataclass
class _Cases:
    scope: Scope
    subject: ast.expr

    def branches(self, cases: list[ast.match_case]) -> list[ast.stmt]:
        if not cases:
            return []
        case, rest = cases[0], cases[1:]
        pattern, bound = case.pattern, list[ast.stmt]()
        if isinstance(pattern, ast.MatchAs) and pattern.name is not None:
            bound = [_assign(pattern.name, ast.copy_location(self.subject, pattern))]
            if pattern.pattern is not None and case.guard is not None:
                hint = f"test the value itself in the guard, without 'as {pattern.name}'"
                raise self.scope.source.refuse(pattern, "a pattern with a name and a guard cannot be compiled", hint)
            pattern = pattern.pattern or ast.copy_location(ast.MatchAs(), pattern)
        test = self.test(pattern)
        if test is None and case.guard is None:
            return [*bound, *case.body]
        if test is None:
            assert case.guard is not None
            return [*bound, self.branch(case.guard, case.body, rest)]
        both = test if case.guard is None else ast.copy_location(ast.BoolOp(ast.And(), [test, case.guard]), case.guard)
        return [self.branch(both, [*bound, *case.body], rest)]

    def branch(self, test: ast.expr, body: list[ast.stmt], rest: list[ast.match_case]) -> ast.stmt:
        return ast.copy_location(ast.If(test, body, self.branches(rest)), test)

    def test(self, pattern: ast.pattern) -> ast.expr | None:
        """Returns the test that the subject matches; None where every subject does."""
        if isinstance(pattern, ast.MatchValue):
            return self.compare(pattern, ast.Eq(), pattern.value)
        if isinstance(pattern, ast.MatchSingleton):
            op: ast.cmpop = ast.Is() if pattern.value is None else ast.Eq()
            return self.compare(pattern, op, ast.copy_location(ast.Constant(pattern.value), pattern))
        if isinstance(pattern, ast.MatchOr):
            tests = [self.test(inner) for inner in pattern.patterns]
            return None if None in tests else ast.copy_location(ast.BoolOp(ast.Or(), tests), pattern)  # type: ignore[arg-type]
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
            return None
        kind = _KINDS.get(type(pattern), "a name inside of others")
        raise self.scope.source.refuse(pattern, f"a pattern of {kind} cannot be compiled", "match values: case 1 | 2:")

    def compare(self, pattern: ast.pattern, op: ast.cmpop, value: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Compare(self.subject, [op], [value]), pattern)
