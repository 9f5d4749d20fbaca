"""Filters and maps of an application. One with roles is a transaction of the plan, the others are streams of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import ir
from .compile import (
    Compiled,
    Passed,
    Reading,
    compile_filter,
    compile_map,
    compile_reading_filter,
    compile_reading_map,
)
from .compile.callers import caller
from .errors import PlanError
from .names import checked
from .roles import Role
from .stream import Derived, Stream

if TYPE_CHECKING:
    from .app import App


def check_nested(streams: Sequence[Stream[Any]]) -> None:
    """Checks the inputs of a nested transaction, as far as the plan does not tell: a filter or map with roles is a
    transaction there. Raises ``PlanError``."""
    for stream in streams:
        if isinstance(stream, Derived) and stream._reads:
            hint = "read the rows in the nested transaction, or leave out nested=True"
            raise PlanError(f"'{stream.label}' reads rows, and nothing is nested in a filter or map", hint)


@dataclass(frozen=True)
class Derivation:
    """A filter or map that is declared on a stream: its roles, and the name if one is given."""

    stream: Stream[Any]
    roles: Mapping[str, Any]
    given_name: str | None
    replace: bool

    @property
    def _app(self) -> App:
        return self.stream._app

    def filter(self, predicate: Callable[..., Any]) -> Derived[Any]:
        """The stream of the events for which the predicate is true."""
        app, stream, name = self._app, self.stream, self._name("filter")
        if self.roles:
            schema = app._plan.schema(stream._analyzed)
            assert schema is not None, "a stream that was declared was analyzed"
            passed = Passed(schema, app._plan.event_time(stream._analyzed))
            return self._add_reading(compile_reading_filter(predicate, self._reading(name), passed))
        compiled = compile_filter(predicate, f"stream '{name}'", app._plan.lists(stream._analyzed))
        origin: ir.FilterOrigin = {"filter": {"input": stream._ref, "predicate": compiled.node}}
        return self._add({"name": name, "origin": origin}, compiled)

    def map(self, function: Callable[..., Any]) -> Derived[Any]:
        """The stream of the new events."""
        app, stream, name = self._app, self.stream, self._name("map")
        if self.roles:
            return self._add_reading(compile_reading_map(function, self._reading(name)))
        compiled = compile_map(function, f"stream '{name}'", app._plan.lists(stream._analyzed))
        origin: ir.MapOrigin = {"map": {"input": stream._ref, "record": compiled.node}}
        return self._add({"name": name, "origin": origin}, compiled)

    def _name(self, kind: str) -> str:
        if isinstance(self.given_name, Role):
            hint = f"give it another name in the call and in the {kind}"
            raise PlanError("a role of a filter or map cannot be called 'name'", hint)
        if self.given_name:
            return checked(self.given_name, kind)
        stem = f"{self.stream.label.replace('.', '_')}_{kind}"
        return self._app._plan.free_name(stem, "streams", "transactions")

    def _reading(self, name: str) -> Reading:
        stream = self.stream
        lists = self._app._plan.lists(stream._analyzed)
        return Reading(self._app, name, stream._ref, lists, self.roles, caller())

    def _add(self, definition: ir.StreamDef, compiled: Compiled[Any]) -> Derived[Any]:
        """Without a name, a stream that is the same is taken."""
        app, name = self._app, definition["name"]
        same = None if self.given_name else app._plan.find("streams", definition)
        if same is not None:
            return app._derived[same]
        if app._add_stream(definition, compiled, replace=self.replace):
            app._derived[name] = Derived(app, name)
        return app._derived[name]

    def _add_reading(self, compiled: Compiled[ir.TransactionDef]) -> Derived[Any]:
        """Adds a filter or map with roles."""
        app, definition = self._app, compiled.node
        name = definition["name"]
        reading = {name for name, derived in app._derived.items() if derived._reads}
        same = None if self.given_name else app._plan.find("transactions", definition, reading)
        if same is not None:
            return app._derived[same]
        if app._plan.has("streams", name):
            raise taken(name)
        if app._plan.add(
            "transactions",
            definition,
            compiled,
            replace=self.replace,
            is_same=lambda: name in reading,
            shown=f"stream '{name}'",
        ):
            app._forget_transaction(name)
            app._derived[name] = Derived(app, name, reads=True)
        return app._derived[name]


def taken(name: str) -> PlanError:
    """The refusal where one of a filter or map with roles and another stream has the other's name."""
    hint = "give this one another name with name="
    return PlanError("it is declared already, and not as here", hint, f"stream '{name}'")
