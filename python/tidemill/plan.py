"""The plan of an application as it grows, declaration by declaration.

Each declaration is checked by the analysis as soon as it is made, so that its error appears where it
was written; one that is refused leaves the plan as it was.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from . import _engine
from .errors import PlanError

if TYPE_CHECKING:
    from .compile.functions import Compiled

PLAN_VERSION = 2
"""The format that the native module reads."""

Json = dict[str, Any]

_KINDS = {"tables": "table", "streams": "stream", "transactions": "transaction", "sinks": "sink"}


class PlanBuilder:
    """The declarations so far, as the JSON of the plan."""

    def __init__(self, name: str, schema_version: int = 1) -> None:
        self._plan: Json = {
            "version": PLAN_VERSION,
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
        return json.dumps(self._plan)

    @property
    def plan(self) -> Json:
        """The plan."""
        return self._plan

    def has(self, kind: str, name: str) -> bool:
        """Whether something of the kind (``tables``, …) has the name."""
        return any(d["name"] == name for d in self._plan[kind])

    def free_name(self, kind: str, stem: str) -> str:
        """A name that nothing of the kind has: the stem, or the stem and a number."""
        number = 1
        name = stem
        while self.has(kind, name):
            number += 1
            name = f"{stem}_{number}"
        return name

    def add(self, kind: str, definition: Json, compiled: Compiled | None = None) -> None:
        """Adds a declaration of the kind. ``compiled`` is the function that it was made from, if any.

        Raises ``CompileError`` where the analysis finds fault with a function, else ``PlanError``.
        """
        place = f"{_KINDS[kind]} '{definition['name']}'"
        if self.has(kind, definition["name"]):
            raise PlanError("the name is taken", "give it another with name=", place)
        self._plan[kind].append(definition)
        try:
            self._check(place, compiled)
        except Exception:
            self._plan[kind].pop()
            raise

    def _check(self, place: str, compiled: Compiled | None) -> None:
        program, errors = _engine.analyze(self._plan)
        if program is not None:
            self._program = program
            return
        # The plan was right before, so an error at another place has its cause in this declaration too.
        error = next((e for e in errors if e["place"] == place), errors[0])
        if compiled is not None and error["place"] == place:
            raise compiled.source.error(error["span"] or compiled.head, error["message"], error["hint"])
        raise PlanError(error["message"], error["hint"], error["place"])

    def schema(self, label: str) -> list[Json] | None:
        """The fields of a stream of the plan as of its last declaration, if it was analyzed."""
        streams = self._program["streams"] if self._program else []
        return next((s["schema"] for s in streams if s["name"] == label), None)

    def lists(self, label: str) -> set[str] | None:
        """The list fields of a stream, if they are known."""
        schema = self.schema(label)
        return None if schema is None else {f["name"] for f in schema if "list" in f["type"]}
