"""Which source a span of the plan belongs to.

A part of the plan may be made from several functions, of several files, and from one function several times; a span has
lines and columns only. So while a part is checked, the lines of its spans carry the number of their source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import ir
from ..deep import with_room

if TYPE_CHECKING:
    from .source import Source

LINES_MAX = 1 << 20
"""More than any file has."""

SOURCES_MAX = 4095
"""As many as lines of 32 bits have room for."""


@dataclass
class Sources:
    """The sources of a part of the plan, by their numbers."""

    all: list[Source] = field(default_factory=list)

    def add(self, source: Source) -> Source:
        """The source with the next number."""
        assert len(self.all) <= SOURCES_MAX
        self.all.append(source.numbered(len(self.all)))
        return self.all[-1]

    def is_full(self) -> bool:
        """Returns whether there can be no further source."""
        return len(self.all) > SOURCES_MAX


def marked(span: ir.Span, number: int) -> ir.Span:
    """The span as one of the source of that number."""
    shift = number * LINES_MAX
    return {**span, "line": span["line"] + shift, "end_line": span["end_line"] + shift} if number else span


def unmarked(span: ir.Span) -> tuple[int, ir.Span]:
    """The number of the source, and the span in it."""
    number, line = divmod(span["line"], LINES_MAX)
    return number, {**span, "line": line, "end_line": span["end_line"] % LINES_MAX}


def remove_marks(definition: Any) -> None:
    """Takes the numbers out of all spans of a part of the plan."""
    with_room(lambda: _walk(definition))


def _walk(node: Any) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "span" and isinstance(value, dict) and "line" in value:
                node[key] = unmarked(value)[1]  # type: ignore[arg-type]
            else:
                _walk(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            _walk(value)
