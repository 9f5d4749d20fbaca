"""The call by which a user declares something, so that errors can show its arguments in the user's file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

from ..errors import CompileError
from .source import Source, parse


@dataclass(frozen=True)
class Caller:
    """The place of a call in the user's file. ``end`` is the line and the column, in bytes, where it ends; None
    where Python does not record it, as before 3.11."""

    filename: str
    names: dict[str, Any]
    line: int
    end: tuple[int, int] | None


def caller() -> Caller | None:
    """The innermost call that is not of this package, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "tidemill":
        frame = frame.f_back
    if frame is None:
        return None
    code, end = frame.f_code, None
    if hasattr(code, "co_positions"):
        # An instruction takes two bytes.
        _, end_line, _, end_column = next(islice(code.co_positions(), frame.f_lasti // 2, None))
        end = None if end_line is None or end_column is None else (end_line, end_column)
    return Caller(code.co_filename, frame.f_globals, frame.f_lineno, end)


def call_of(caller: Caller | None, keywords: Collection[str], place: str) -> tuple[Source, ast.Call] | None:
    """The source and the syntax tree of a call with these keywords; None if it cannot be told."""
    if caller is None:
        return None
    try:
        source, tree = parse(caller.filename, caller.names, place)
    except CompileError:
        return None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and {k.arg for k in n.keywords} >= {*keywords}]
    if caller.end is not None:
        found = [n for n in calls if (n.end_lineno, n.end_col_offset) == caller.end]
    else:
        found = [n for n in calls if n.lineno <= caller.line <= (n.end_lineno or n.lineno)]
    return (source, found[0]) if len(found) == 1 else None
