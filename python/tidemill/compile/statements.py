"""Statements."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from .. import bodies, ir
from ..errors import CompileError
from ..names import collection_name
from ..schema import Event
from .expressions import Expressions, Round, binary_operator
from .helpers import Returns, is_helper
from .matching import branches
from .records import Records
from .scope import UNKNOWN, Element, Scope
from .source import Definition
from .texts import Split

_REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("'try'", "nothing raises here: what fails aborts the transaction; test before with 'if'"),
    ast.Raise: ("'raise'", 'abort with a reason: tm.abort("reason")'),
    ast.With: ("'with'", "a transaction is all or nothing by itself: leave it out"),
    ast.AsyncWith: ("'async with'", "a transaction is all or nothing by itself: leave it out"),
    ast.AsyncFor: ("'async for'", "write 'for line in ev.lines:'"),
    ast.FunctionDef: ("a function inside of a body", "define it outside, and call it"),
    ast.AsyncFunctionDef: ("a function inside of a body", "define it outside, and call it"),
    ast.ClassDef: ("a class inside of a body", "define it before the function"),
    ast.Import: ("'import'", "import at the top of the file"),
    ast.ImportFrom: ("'import'", "import at the top of the file"),
    ast.Global: ("'global'", "keep what lasts in a table"),
    ast.Nonlocal: ("'nonlocal'", "keep what lasts in a table"),
    ast.Delete: ("'del'", "delete a row with role.delete()"),
    ast.Assert: ("'assert'", 'write tm.require(condition, "reason")'),
}

_ROUNDS = 2**62
"""The rounds of a range that takes the place of 'while': more than the limit of steps can be."""


class Statements:
    """Translates the statements of one transaction body."""

    def __init__(self, scope: Scope, results: list[str] | None = None) -> None:
        self._scope = scope
        self._expressions = Expressions(scope)
        self._records = Records(self._expressions)
        self._results = results
        """The locals of the plan that hold what a helper returns; None in what is no helper."""
        self._by_type: dict[type[ast.AST], Callable[[Any], list[ir.Stmt]]] = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.If: self._if,
            ast.Match: lambda node: self.translate(branches(self._scope, node)),
            ast.For: self._for,
            ast.While: self._while,
            ast.Break: lambda node: [self._stmt(node, "break")],
            ast.Continue: lambda node: [self._stmt(node, "continue")],
            ast.Pass: lambda node: [],
            ast.Return: self._return,
            ast.Expr: self._expression,
        }

    def translate(self, nodes: list[ast.stmt]) -> list[ir.Stmt]:
        """The plan's statements. Raises ``CompileError``."""
        return [translated for node in nodes for translated in self._with_helpers(node)]

    def _with_helpers(self, node: ast.stmt) -> list[ir.Stmt]:
        """A statement, and before it those of the helpers that it calls."""
        context = self._scope.context
        outer, context.before = context.before, []
        try:
            statements = self._one(node)
            return [*context.before, *statements]
        finally:
            context.before = outer

    def _one(self, node: ast.stmt) -> list[ir.Stmt]:
        translate = self._by_type.get(type(node))
        if translate is not None:
            return translate(node)
        name = type(node).__name__
        what, hint = _REFUSED.get(type(node), (f"'{name.lower()}'", ""))
        if name == "TryStar":
            what, hint = _REFUSED[ast.Try]
        raise self._refuse(node, f"{what} cannot be compiled", hint)

    def _refuse(self, node: ast.AST, message: str, hint: str = "") -> CompileError:
        return self._scope.source.refuse(node, message, hint)

    def _stmt(self, node: ast.AST, what: ir.StmtNode) -> ir.Stmt:
        return ir.stmt(what, self._scope.source.span(node))

    # Assignments.

    def _assign(self, node: ast.Assign) -> list[ir.Stmt]:
        if len(node.targets) > 1:
            raise self._refuse(
                node, "several targets of one assignment cannot be compiled", "write one assignment for each"
            )
        return self._assigned(node, node.targets[0], node.value)

    def _unpack(self, node: ast.AST, target: ast.Tuple, call: ast.Call, function: FunctionType) -> list[ir.Stmt]:
        values = self._expressions.calls.helpers.call(call, function).values
        if len(values) != len(target.elts):
            count = f"{len(values)} value{'s' * (len(values) != 1)}" if values else "no value"
            raise self._refuse(target, f"{ast.unparse(call.func)}() returns {count}, not {len(target.elts)}")
        before = self._scope.context.before
        assert before is not None
        names = {self._scope.local(t.id) for t in target.elts if isinstance(t, ast.Name)}
        for i, value in enumerate(values):
            # One that is read after another was stored.
            if not self._expressions.is_stable(value) or ir.name_of(value, "local") in names:
                values[i] = self._expressions.kept(value, before)
        return [self._store(node, t, value) for t, value in zip(target.elts, values, strict=True)]

    def _unpack_parts(self, node: ast.AST, target: ast.Tuple, split: Split) -> list[ir.Stmt]:
        """``a, b = s.split(...)``: aborts where there are more parts or fewer."""
        span, texts = self._scope.source.span(node), self._expressions.texts
        before = self._scope.context.before
        assert before is not None
        split = texts.kept(split, before)
        count = len(target.elts)
        operands: ir.Operands = {"op": "eq", "left": texts.count(split), "right": ir.literal({"int": count}, span)}
        reason = f"not {count} parts in {ast.unparse(split.node)}"
        checked = self._stmt(node, {"require": {"condition": ir.expr({"compare": operands}, span), "reason": reason}})
        parts = [texts.part(split, ir.literal({"int": i}, span)) for i in range(count)]
        return [checked, *(self._store(node, t, part) for t, part in zip(target.elts, parts, strict=True))]

    def _annotated(self, node: ast.AnnAssign) -> list[ir.Stmt]:
        if node.value is None:
            return []
        return self._assigned(node, node.target, node.value)

    def _assigned(self, node: ast.AST, target: ast.expr, value: ast.expr) -> list[ir.Stmt]:
        aggregates = self._expressions.aggregates
        if aggregates is not None and aggregates.bind(target, value):
            return []
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
            function = self._scope.static(value.func)
            if is_helper(function):
                return self._unpack(node, target, value, function)
            split = self._expressions.texts.split(value)
            if split is not None:
                return self._unpack_parts(node, target, split)
        return [self._store(node, target, self._expressions.translate(value))]

    def _augmented(self, node: ast.AugAssign) -> list[ir.Stmt]:
        self._check_target(node.target)
        op = binary_operator(self._scope, node, node.op)
        before, after = self._expressions.operands([cast(ast.expr, node.target), node.value])
        value = ir.binary(op, before, after, self._scope.source.span(node))
        return [self._store(node, node.target, value)]

    def _store(self, node: ast.AST, target: ast.expr, value: ir.Expr) -> ir.Stmt:
        self._check_target(target)
        if isinstance(target, ast.Name):
            return self._stmt(node, {"assign": {"name": self._scope.local(target.id), "value": value}})
        assert isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
        role = self._scope.roles[target.value.id]
        return self._stmt(node, {"set": {"role": role, "column": target.attr, "value": value}})

    def _check_target(self, target: ast.expr) -> None:
        scope = self._scope
        if isinstance(target, (ast.Tuple, ast.List)):
            raise self._refuse(
                target, "several targets of one assignment cannot be compiled", "write one assignment for each"
            )
        if isinstance(target, ast.Name):
            self._check_name(target, target.id)
        elif isinstance(target, ast.Attribute) and scope.is_role(target.value):
            if target.attr == "exists":
                raise self._refuse(target, "'exists' cannot be set", "write role.insert(...) or role.delete()")
        elif isinstance(target, ast.Attribute) and self._is_read_only(target.value):
            what = "events" if scope.closed is None else "windows"
            raise self._refuse(target, f"{what} cannot be changed", "use a local variable, or return a new event")
        else:
            hint = "assign to a local variable or to a column of a role"
            raise self._refuse(target, f"'{ast.unparse(target)}' cannot be assigned to", hint)

    def _is_read_only(self, node: ast.expr) -> bool:
        return self._scope.is_event(node) or (isinstance(node, ast.Name) and node.id in self._scope.elements)

    def _check_name(self, node: ast.AST, name: str) -> None:
        if name in self._scope.events:
            raise self._refuse(
                node, f"'{name}' is the {self._scope.event_kind} and cannot be assigned to", "use another name"
            )
        if name in self._scope.roles:
            hint = f"set its columns: {name}.column = ..."
            raise self._refuse(node, f"'{name}' is a row and cannot be assigned to", hint)
        if name in self._scope.elements:
            raise self._refuse(node, f"'{name}' is an element of a list and cannot be assigned to", "use another name")

    # Branches and loops.

    def _block(self, nodes: list[ast.stmt]) -> list[ir.Stmt]:
        """The statements of a branch or loop, which may not run: events of the window named there are known there."""
        closed = self._scope.closed
        if closed is None:
            return self.translate(nodes)
        before = dict(closed.picks)
        statements = self.translate(nodes)
        closed.picks = before
        return statements

    def _if(self, node: ast.If) -> list[ir.Stmt]:
        branches: ir.If = {
            "condition": self._expressions.translate(node.test),
            "then": self._block(node.body),
            "otherwise": self._block(node.orelse),
        }
        return [self._stmt(node, {"if": branches})]

    def _no_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise self._refuse(
                node.orelse[0], "'else' of a loop cannot be compiled", "set a local variable before 'break'"
            )

    def _while(self, node: ast.While) -> list[ir.Stmt]:
        """A range that ends where the condition does not hold at the start of a round."""
        self._no_else(node)
        span = self._scope.source.span(node.test)
        rounds, test = self._expressions.apart(lambda: self._expressions.translate(node.test))
        if not (isinstance(node.test, ast.Constant) and node.test.value is True):
            ends: ir.If = {"condition": ir.unary("not", test, span), "then": [ir.stmt("break", span)], "otherwise": []}
            rounds = [*rounds, ir.stmt({"if": ends}, span)]
        loop: ir.ForRange = {
            "variable": self._scope.context.names.temporary(),
            "start": ir.literal({"int": 0}, span),
            "stop": ir.literal({"int": _ROUNDS}, span),
            "step": 1,
            "body": [*rounds, *self._block(node.body)],
        }
        return [self._stmt(node, {"for_range": loop})]

    def _for(self, node: ast.For) -> list[ir.Stmt]:
        self._no_else(node)
        values = self._expressions.listed(node.iter)
        if values is not None:
            return self._for_values(node, values)
        if not isinstance(node.target, ast.Name):
            raise self._refuse(
                node.target, "a loop has one variable", "write 'for line in ev.lines:' and use line.name"
            )
        self._check_name(node.target, node.target.id)
        if isinstance(node.iter, ast.Call) and self._scope.static(node.iter.func) is range:
            return [self._for_range(node, node.target.id, node.iter)]
        rows = self._scope.scan(node.iter)
        if rows is not None:
            return [self._for_rows(node, node.target.id, rows)]
        split = self._expressions.texts.split(node.iter)
        if split is not None:
            return self._for_parts(node, node.target.id, split)
        list_name = self._scope.event_field(node.iter)
        if list_name is None:
            lists = "a list of the event or over " if self._scope.closed is None else ""
            hint = f"loop over {lists}range(...)"
            raise self._refuse(node.iter, f"'{ast.unparse(node.iter)}' cannot be looped over", hint)
        return [self._for_each(node, node.target.id, list_name)]

    def _for_each(self, node: ast.For, variable: str, list_name: str) -> ir.Stmt:
        name = self._scope.local(variable)
        self._scope.elements[variable] = Element(name, list_name)
        body = self._block(node.body)
        del self._scope.elements[variable]
        return ir.for_each(name, list_name, body, self._scope.source.span(node))

    def _for_rows(self, node: ast.For, variable: str, role: str) -> ir.Stmt:
        scope = self._scope
        scope.roles[variable] = role
        scope.scanned.add(variable)
        body = self._block(node.body)
        scope.scanned.remove(variable)
        del scope.roles[variable]
        return ir.for_rows(scope.local(variable), role, body, scope.source.span(node))

    def _for_range(self, node: ast.For, variable: str, bounds: ast.Call) -> ir.Stmt:
        arguments = self._expressions.calls.arguments(bounds, "range", 1, 3)
        zero = ir.literal({"int": 0}, self._scope.source.span(bounds))
        start, stop = [zero, *self._expressions.operands(arguments[:2])][-2:]
        step = self._step(arguments[2]) if len(arguments) == 3 else 1
        loop: ir.ForRange = {
            "variable": self._scope.local(variable),
            "start": start,
            "stop": stop,
            "step": step,
            "body": self._block(node.body),
        }
        return self._stmt(node, {"for_range": loop})

    def _for_values(self, node: ast.For, rounds: list[Round]) -> list[ir.Stmt]:
        """A loop over values that are written out: over their places, each of which has some."""
        span = self._scope.source.span(node.iter)
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        for target in targets:
            self._check_target(target)
            if not isinstance(target, ast.Name):
                raise self._refuse(target, "a loop sets local variables", "assign in the body of the loop")
        values = self._unpacked(node, rounds, len(targets))
        for i, target in enumerate(targets):
            kinds = sorted({kind for of in values if (kind := ir.kind_of(of[i])) is not None})
            if len(kinds) > 1:
                message = f"'{ast.unparse(target)}' is {' and '.join(kinds)} in '{ast.unparse(node.iter)}'"
                raise self._refuse(node.iter, message, "give values of one type")
        if not values:
            return []
        before: list[ir.Stmt] = []
        values = [[self._expressions.as_of(value, before) for value in of] for of in values]
        place = self._scope.context.names.temporary()
        assigned = [
            ir.stmt({"assign": {"name": self._scope.local(cast(ast.Name, target).id), "value": value}}, span)
            for i, target in enumerate(targets)
            for value in [self._expressions.chosen(place, [of[i] for of in values], 0, span)]
        ]
        loop: ir.ForRange = {
            "variable": place,
            "start": ir.literal({"int": 0}, span),
            "stop": ir.literal({"int": len(values)}, span),
            "step": 1,
            "body": [*assigned, *self._block(node.body)],
        }
        return [*before, self._stmt(node, {"for_range": loop})]

    def _unpacked(self, node: ast.For, rounds: list[Round], count: int) -> list[list[ir.Expr]]:
        """Returns the values of each round: of tuples if and only if the target is one. Raises ``CompileError``."""
        shown, values = ast.unparse(node.iter), list[list[ir.Expr]]()
        for of in rounds:
            if not isinstance(node.target, ast.Tuple):
                if isinstance(of, list):
                    message = f"'{shown}' has a tuple in a round, which is not a value"
                    names = ": for a, in ..." if len(of) == 1 else ""
                    raise self._refuse(node.target, message, f"give the loop a variable for each{names}")
                values.append([of])
            elif not isinstance(of, list):
                message = f"'{shown}' has a value in a round that is no tuple"
                raise self._refuse(node.target, message, "give the loop one variable")
            elif len(of) != count:
                message = f"'{shown}' has {len(of)} value{'s' * (len(of) != 1)} in a round, not {count}"
                raise self._refuse(node.target, message, "give the loop a variable for each")
            else:
                values.append(of)
        return values

    def _for_parts(self, node: ast.For, variable: str, split: Split) -> list[ir.Stmt]:
        """A loop over the parts of a text: over their places, each of which is asked for."""
        span, texts = self._scope.source.span(node.iter), self._expressions.texts
        before: list[ir.Stmt] = []
        split = texts.kept(split, before)
        place = self._scope.context.names.temporary()
        part = texts.part(split, ir.expr({"local": place}, span))
        loop: ir.ForRange = {
            "variable": place,
            "start": ir.literal({"int": 0}, span),
            "stop": texts.count(split),
            "step": 1,
            "body": [
                self._stmt(node, {"assign": {"name": self._scope.local(variable), "value": part}}),
                *self._block(node.body),
            ],
        }
        return [*before, self._stmt(node, {"for_range": loop})]

    def _step(self, node: ast.expr) -> int:
        step: int | None = ir.constant(self._expressions.translate(node), "int")
        if not step:
            raise self._refuse(node, "the step of a range must be a constant int other than zero")
        return step

    # Ends, and calls that stand alone.

    def _return(self, node: ast.Return) -> list[ir.Stmt]:
        if self._results is not None:
            return self._result(node, self._results)
        none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        record = None if none else self._records.translate(cast(ast.expr, node.value))
        return [self._stmt(node, {"return": {"record": record}})]

    def _result(self, node: ast.Return, names: list[str]) -> list[ir.Stmt]:
        """The end of a path of a helper."""
        span = self._scope.source.span(node)
        nodes = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] if node.value else []
        values = self._expressions.operands(nodes) or [ir.literal("null", span) for _ in names]
        assert len(values) == len(names)
        return [ir.stmt({"assign": {"name": n, "value": v}}, span) for n, v in zip(names, values, strict=True)]

    def _expression(self, node: ast.Expr) -> list[ir.Stmt]:
        value = node.value
        if isinstance(value, ast.Constant) and (isinstance(value.value, str) or value.value is ...):
            return []
        if isinstance(value, ast.Call):
            return self._call(node, value)
        # An expression that could not be compiled anyway has a reason of its own.
        self._expressions.translate(value)
        raise self._refuse(value, "an expression on its own has no effect", "assign it, or leave it out")

    def _call(self, node: ast.Expr, call: ast.Call) -> list[ir.Stmt]:
        if isinstance(call.func, ast.Attribute) and self._scope.is_role(call.func.value):
            return [self._row_call(node, call, call.func)]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add":
            column = self._expressions.calls.column(call.func.value)
            if column is not None:
                (value,) = self._expressions.calls.arguments(call, "add", 1, 1)
                role, name = self._scope.roles[column[0]], column[1]
                added: ir.ToCell = {"role": role, "column": name, "value": self._expressions.translate(value)}
                return [self._stmt(node, {"add": added})]
        function = self._scope.static(call.func)
        if function is bodies.require:
            return [self._require(node, call)]
        if function is bodies.abort:
            (reason,) = self._expressions.calls.arguments(call, "abort", 1, 1)
            return [self._stmt(node, {"abort": {"reason": self._reason(reason)}})]
        if function is bodies.emit:
            return [self._emit(node, call)]
        if is_helper(function) and self._expressions.calls.helpers.call(call, function).acts:
            return []
        if isinstance(function, type) and issubclass(function, Event):
            raise self._refuse(call, "an event that goes nowhere", f"emit it: tm.emit({ast.unparse(call.func)}(...))")
        self._expressions.translate(call)
        raise self._refuse(call, "an expression on its own has no effect", "assign it, or leave it out")

    def _row_call(self, node: ast.Expr, call: ast.Call, method: ast.Attribute) -> ir.Stmt:
        name = cast(ast.Name, method.value).id
        role = self._scope.roles[name]
        if method.attr == "delete":
            self._expressions.calls.arguments(call, "delete", 0, 0)
            return self._stmt(node, {"delete": {"role": role}})
        if method.attr == "wake":
            (at,) = self._expressions.calls.arguments(call, "wake", 1, 1)
            cancels = isinstance(at, ast.Constant) and at.value is None
            time = None if cancels else self._expressions.translate(at)
            return self._stmt(node, {"wake": {"role": role, "at": time}})
        if method.attr != "insert":
            hint = "rows have insert(...), delete() and wake(at)"
            raise self._refuse(call, f"a row has no operation '{method.attr}'", hint)
        if call.args:
            raise self._refuse(
                call.args[0], "the columns of insert() are given by name", f"write {name}.insert(column=value)"
            )
        columns: list[str] = []
        for keyword in call.keywords:
            if keyword.arg is None:
                raise self._refuse(keyword.value, "'**' in insert() cannot be compiled", "write the columns one by one")
            columns.append(keyword.arg)
        given = self._expressions.operands([keyword.value for keyword in call.keywords])
        values = list(zip(columns, given, strict=True))
        return ir.insert(role, values, self._scope.source.span(node))

    def _require(self, node: ast.Expr, call: ast.Call) -> ir.Stmt:
        if len(call.args) == 1 and not call.keywords:
            raise self._refuse(call, "require lacks a reason", 'write tm.require(condition, "reason")')
        condition, reason = self._expressions.calls.arguments(call, "require", 2, 2)
        requirement: ir.Require = {"condition": self._expressions.translate(condition), "reason": self._reason(reason)}
        return self._stmt(node, {"require": requirement})

    def _reason(self, node: ast.expr) -> str:
        value = node.value if isinstance(node, ast.Constant) else self._scope.static(node)
        value = getattr(value, "value", value) if value is not UNKNOWN else value
        if not isinstance(value, str) or not value:
            hint = "the values that the transaction saw are on the aborted stream anyway"
            raise self._refuse(node, "a reason must be a constant text", hint)
        return value

    def _emit(self, node: ast.Expr, call: ast.Call) -> ir.Stmt:
        if self._scope.sides:
            raise self._refuse(call, "a join emits nothing but what its function returns", "return the event")
        if self._scope.closed is not None:
            raise self._refuse(call, "a window emits nothing but what its function returns", "return the event")
        first, *rest = self._expressions.calls.arguments(call, "emit", 1, 2)
        cls = self._records.event_class(first)
        if rest:
            name = self._emit_name(first)
            record = self._records.translate(rest[0])
        elif cls is not None:
            name = collection_name(cls)
            record = self._records.translate(first)
        else:
            hint = 'write tm.emit("alerts", {...}) or tm.emit(Alert(...))'
            raise self._refuse(call, "an emission without the name of its stream", hint)
        return self._stmt(node, {"emit": {"name": name, "record": record}})

    def _emit_name(self, node: ast.expr) -> str:
        name = node.value if isinstance(node, ast.Constant) else self._scope.static(node)
        if not isinstance(name, str) or not name.isidentifier():
            hint = 'write tm.emit("alerts", ...)'
            raise self._refuse(node, "the name of an emitted stream must be a constant name", hint)
        return name


class HelperBody:
    """Translates the statements of a helper where it is called. ``shown`` is how the call names it."""

    def __init__(self, scope: Scope, shown: str) -> None:
        self._scope = scope
        self._returns = Returns(scope, shown)
        self._shown = shown

    def translate(self, body: list[ast.stmt], definition: Definition) -> tuple[list[ir.Stmt], list[ir.Expr]]:
        """The plan's statements, and the values after them. Raises ``CompileError``."""
        source = self._scope.source
        width = self._returns.width(body)
        body = self._returns.at_ends(self._returns.branched(body))
        if width and not self._returns.ends(body):
            hint = "let each end in a 'return' with a value"
            raise source.refuse(definition, f"not every path of {self._shown}() returns a value", hint)
        # No local of the helper has such a name.
        results = [self._scope.local("return" if width == 1 else f"{i}_return") for i in range(width)]
        statements = Statements(self._scope, results).translate(body)
        span = source.span(body[-1] if body else definition)
        return statements, [ir.expr({"local": name}, span) for name in results]
