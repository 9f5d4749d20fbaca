"""The plan of an application as it grows, declaration by declaration.

Each declaration is checked by the analysis as soon as it is made, so that its error appears where it
was written; one that is refused leaves the plan as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _engine, ir
from .compile.marks import remove_marks
from .deep import with_room
from .errors import PlanError

if TYPE_CHECKING:
    from .compile.functions import Compiled

Json = dict[str, Any]

Kind = Literal["tables", "streams", "transactions", "sinks"]

_KINDS: dict[Kind, str] = {"tables": "table", "streams": "stream", "transactions": "transaction", "sinks": "sink"}


def _place(kind: Kind, definition: ir.Definition) -> str:
    """As the analysis says it."""
    what = "window" if cast(Json, definition).get("over") else _KINDS[kind]
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
        }
        self._program: Json | None = None

    def to_json(self) -> str:
        """The plan as text."""
        return _engine.plan_text(self._plan)

    @property
    def plan(self) -> ir.Plan:
        """The plan."""
        return self._plan

    def has(self, kind: Kind, name: str) -> bool:
        """Whether something of the kind (``tables``, …) has the name."""
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
        replace: bool = False,
        is_same: Callable[[], bool] = lambda: True,
        shown: str | None = None,
    ) -> bool:
        """Adds a declaration of the kind. ``compiled`` is the function that it was made from, if any; ``shown`` is what
        messages call it, where that is not what the plan does.

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
        if before and _is_same(before[0], definition) and is_same():
            return False
        if before and not replace:
            raise _declared_otherwise(shown or place)
        declared[at : at + 1] = [definition]
        try:
            self._check(place, compiled)
            if compiled is not None and len(compiled.sources.all) > 1:
                remove_marks(definition)
        except Exception:
            declared[at : at + 1] = before
            raise
        return True

    def _check(self, place: str, compiled: Compiled[Any] | None) -> None:
        program, errors = _engine.analyze(self._plan)
        if program is not None:
            self._program = program
            return
        # The plan was right before, so an error at another place has its cause in this declaration too.
        error = next((e for e in errors if e["place"] == place), errors[0])
        if compiled is not None and error["place"] == place:
            raise compiled.error(error["span"], error["message"], error["hint"])
        raise PlanError(error["message"], error["hint"], error["place"])

    def schema(self, label: str) -> ir.Schema | None:
        """The fields of a stream of the plan as of its last declaration, if it was analyzed."""
        streams = self._program["streams"] if self._program else []
        return next((s["schema"] for s in streams if s["name"] == label), None)

    def event_time(self, stream: ir.StreamRef) -> str | None:
        """The field of a stream that is its event time, if it is known and in one place in all of its events."""
        ((kind, of),) = cast(Json, stream).items()
        if kind == "emitted":
            return self._time_of_records(self._transaction(of["transaction"]), of["name"])
        if kind == "committed":
            return self._time_of_records(self._transaction(of), None)
        if kind == "aborted":
            return self._time_of_inputs(self._transaction(of))
        definition = next((s for s in self._plan["streams"] if s["name"] == of), None)
        if kind != "named" or definition is None:
            return None
        ((origin, content),) = cast(Json, definition["origin"]).items()
        if origin == "filter":
            return self.event_time(content["input"])
        return "at" if origin == "every" else cast(Json, content.get("record", content))["event_time"]

    def _transaction(self, name: str) -> ir.TransactionDef | None:
        return next((t for t in self._plan["transactions"] if t["name"] == name), None)

    def _time_of_records(self, definition: ir.TransactionDef | None, emitted: str | None) -> str | None:
        """Of what a transaction emits under a name, or returns."""
        record = None if definition is None else next(ir.records(definition["body"], emitted), None)
        return self._time_of_inputs(definition) if record is None else record["event_time"]

    def _time_of_inputs(self, definition: ir.TransactionDef | None) -> str | None:
        """Of a transaction's own events, or of the closes of a window."""
        if definition is None:
            return None
        if definition["over"] is not None:
            return "end"
        times = {self.event_time(stream) for stream in definition["inputs"]}
        return times.pop() if len(times) == 1 else None

    def lists(self, label: str) -> set[str] | None:
        """The list fields of a stream, if they are known."""
        schema = self.schema(label)
        return None if schema is None else {f["name"] for f in schema if "list" in f["type"]}
