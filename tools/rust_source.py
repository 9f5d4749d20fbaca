"""Rust source as text, for the checks of this folder."""

from __future__ import annotations

import re

# Comments, and texts in quotes; an apostrophe begins a character or a lifetime.
NOISE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^\\'\n])'""",
    re.DOTALL,
)


def without(item: re.Pattern[str], text: str) -> str:
    """Source without the items that a pattern finds. It matches an item's head through its ``{`` or ``;``. Source has
    no comments and no texts in quotes."""
    while found := item.search(text):
        depth, end = int(text[found.end() - 1] == "{"), found.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[end:]
    return text
