"""The text of ``GET /metrics``, read."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["Samples", "samples"]

_LINE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

Labels = Mapping[str, str]


class Samples:
    """The samples of a text, by the name of their metric."""

    def __init__(self, found: Mapping[str, list[tuple[Labels, float]]]) -> None:
        self._found = found

    def of(self, name: str) -> list[tuple[Labels, float]]:
        """The samples of a name: their labels and values."""
        return self._found.get(name, [])

    def one(self, name: str, labels: Labels | None = None) -> float:
        """The value with these labels; 0 if there is none."""
        return next((value for known, value in self.of(name) if known == (labels or {})), 0.0)


def samples(text: str) -> Samples:
    """Reads a text in the format of OpenMetrics. Lines that are no samples are passed over."""
    found: dict[str, list[tuple[Labels, float]]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match is not None:
            labels = {name: _plain(value) for name, value in _LABEL.findall(match["labels"] or "")}
            found.setdefault(match["name"], []).append((labels, float(match["value"])))
    return Samples(found)


def _plain(text: str) -> str:
    return re.sub(r"\\[n\"\\]", lambda escape: _ESCAPES[escape[0]], text)
