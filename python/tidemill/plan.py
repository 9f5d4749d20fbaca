"""The plan of an application as it grows, declaration by declaration.

Each declaration is checked by the analysis as soon as it is made, so that its error appears where it
was written; one that is refused leaves the plan as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _engine, ir
from .compile.marks import remove_marks
from .deep import with_room
from .errors import PlanError
from .names import conversion_place

if TYPE_CHECKING:
    from .compile.functions import Compiled

Json = dict[str, Any]

Kind = Literal["tables", "streams", "transactions", "sinks"]

_KINDS: dict[Kind, str] = {"tables": "table", "streams": "stream", "transactions": "transaction", "sinks": "sink"}


def _place(kind: Kind, definition: ir.Definition) -> str:
    """As the analysis says it."""
    of = cast(Json, definition)
    what = "window" if of.get("over") else "join" if of.get("join") else _KINDS[kind]
    return f"{what} '{definition['name']}'"


def _declared_otherwise(place: str) -> PlanError:
    """The refusal of a second declaration of a name."""
    return PlanError(
        "it is declared already, and not as here",
        "give this one another name with name=, or put it in the place of that one with replace=True",
        place,
    )


def _content(node: Any) -> Any:
    """A part of the plan without the places in the file."""
    if isinstance(node, dict):
        return {key: _content(value) for key, value in node.items() if key != "span"}
    return [_content(value) for value in node] if isinstance(node, (list, tuple)) else node


def _is_same(one: object, other: object) -> bool:
    return with_room(lambda: bool(_content(one) == _content(other)))


class PlanBuilder:
    """The declarations so far, as the JSON of the plan."""

    def __init__(self, name: str, schema_version: int = 1) -> None:
        self._plan: ir.Plan = {
            "version": ir.PLAN_VERSION,
            "name": name,
            "schema_version": schema_version,
            "tables": [],
            "streams": [],
            "transactions": [],
            "sinks": [],
            "retired": [],
        }
        self._program: Json | None = None

    def to_json(self) -> str:
        """The plan as text."""
        return _engine.plan_text(self._plan)

    @property
    def plan(self) -> ir.Plan:
        """The plan."""
        return self._plan

    def retire(self, source: str) -> None:
        """Adds a source of an earlier version that is not wanted any more."""
        retired = self._plan["retired"]
        if source not in retired:
            retired.append(source)
            try:
                self._check(f"stream '{source}'", {})
            except Exception:
                retired.remove(source)
                raise

    def has(self, kind: Kind, name: str) -> bool:
        """Returns whether something of the kind (``tables``, …) has the name."""
        return any(d["name"] == name for d in self._declared(kind))

    def sinks(self) -> list[tuple[str, ir.StreamRef]]:
        """The sinks: the name of each, and the stream that goes there."""
        return [(sink["name"], sink["stream"]) for sink in self._plan["sinks"]]

    def _declared(self, kind: Kind) -> list[ir.Definition]:
        return cast(list[ir.Definition], self._plan[kind])

    def find(self, kind: Kind, definition: ir.Definition, among: Collection[str] | None = None) -> str | None:
        """The name of a declaration of the kind that is the same but for its name and place in the file. ``among``:
        the names that are looked at, if not all."""
        nameless = {**definition, "name": ""}
        declared = [d for d in self._declared(kind) if among is None or d["name"] in among]
        return next((str(d["name"]) for d in declared if _is_same({**d, "name": ""}, nameless)), None)

    def free_name(self, stem: str, *kinds: Kind) -> str:
        """A name that nothing of the kinds has: the stem, or the stem and a number."""
        number = 1
        name = stem
        while any(self.has(kind, name) for kind in kinds):
            number += 1
            name = f"{stem}_{number}"
        return name

    def add(
        self,
        kind: Kind,
        definition: ir.Definition,
        compiled: Compiled[Any] | None = None,
        *,
        conversions: Mapping[str, Compiled[Any]] | None = None,
        replace: bool = False,
        is_same: Callable[[], bool] = lambda: True,
        shown: str | None = None,
    ) -> bool:
        """Adds a declaration of the kind. ``compiled`` is the function that it was made from, if any; ``conversions``
        are those of a table's columns, by their names; ``shown`` is what messages call it, where that is not what the
        plan does.

        What is declared again as it was, such as by a notebook's cell that runs again, is left as it is; then the
        answer is False. ``is_same`` says whether what is not in the plan, such as the rows of a table, is as it was
        too. What differs from the declaration of that name takes its place with ``replace``.
        Raises ``CompileError`` where the analysis finds fault with a function, else ``PlanError``.
        """
        declared = self._declared(kind)
        name = definition["name"]
        place = _place(kind, definition)
        at = next((i for i, d in enumerate(declared) if d["name"] == name), len(declared))
        before = declared[at : at + 1]
        functions = {conversion_place(name, column): of for column, of in (conversions or {}).items()}
        if compiled is not None:
            functions[place] = compiled
        if before and _is_same(before[0], definition) and is_same():
            return False
        if before and not replace:
            raise _declared_otherwise(shown or place)
        declared[at : at + 1] = [definition]
        try:
            self._check(place, functions)
            if any(len(function.sources.all) > 1 for function in functions.values()):
                remove_marks(definition)
        except Exception:
            declared[at : at + 1] = before
            raise
        return True

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Takes back what was added within, where something of it is refused."""
        before = {kind: list(self._declared(kind)) for kind in _KINDS}
        program = self._program
        try:
            yield
        except Exception:
            for kind, declared in before.items():
                self._declared(kind)[:] = declared
            self._program = program
            raise

    def _check(self, place: str, functions: Mapping[str, Compiled[Any]]) -> None:
        program, errors = _engine.analyze(self._plan)
        if program is not None:
            self._program = program
            return
        # The plan was right before, so an error at another place has its cause in this declaration too.
        error = next((e for e in errors if e["place"] == place or e["place"] in functions), errors[0])
        function = functions.get(error["place"])
        if function is not None:
            raise function.error(error["span"], error["message"], error["hint"])
        raise PlanError(error["message"], error["hint"], error["place"])

    def _stream(self, label: str) -> Json:
        streams = self._program["streams"] if self._program else []
        return next((s for s in streams if s["name"] == label), {})

    def schema(self, label: str) -> ir.Schema | None:
        """The fields of a stream of the plan as of its last declaration, if it was analyzed."""
        return self._stream(label).get("schema")

    def event_time(self, label: str) -> str | None:
        """The field of a stream that is its event time, if it was analyzed and one is."""
        return self._stream(label).get("event_time")

    def lists(self, label: str) -> set[str] | None:
        """The list fields of a stream, if they are known."""
        schema = self.schema(label)
        return None if schema is None else {f["name"] for f in schema if "list" in f["type"]}
