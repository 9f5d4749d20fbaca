"""Joins of streams: which events meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import ir
from .errors import PlanError
from .names import type_name
from .over import Windows, duration_value

__all__ = ["How", "Key", "On"]

How = Literal["inner", "left", "outer", "anti"]
"""The treatment of events without a partner."""

Key = str | Callable[..., Any]
"""The name of a field, or a function of the event."""

On = str | tuple[Key, Key] | list[str] | Mapping[str, str]
"""The values that are equal in a pair: a field of both, a field of the left and one of the right event, several
fields of both, or fields of the left event with those of the right."""

_HOWS: tuple[How, ...] = ("inner", "left", "outer", "anti")


@dataclass(frozen=True)
class Joining:
    """The way in which two streams are joined."""

    on: tuple[tuple[Key, Key], ...]
    bound: ir.JoinBound
    how: How


def joining(on: object, over: object, within: object, how: object, place: str) -> Joining:
    """Returns the join that the arguments declare. Raises ``PlanError``."""
    known = next((known for known in _HOWS if known == how), None)
    if known is None:
        raise PlanError(f"how={how!r} is no kind of join", f"there are {', '.join(_HOWS)}", place)
    return Joining(_keys(on, place), _bound(over, within, place), known)


def _bound(over: object, within: object, place: str) -> ir.JoinBound:
    if (over is None) == (within is None):
        message = "a join has no bound" if over is None else "a join has both 'within' and 'over'"
        hint = "say how far apart in time its events may be: within='1h', or over=tm.tumbling('10s')"
        raise PlanError(message, hint, place)
    if over is None:
        return {"within": duration_value(within, "within", "a length")}
    if not isinstance(over, Windows) or "tumbling" not in over._definition:
        shown = repr(over) if isinstance(over, Windows) else type_name(over)
        hint = "write over=tm.tumbling('10s'), or within= for events that are less than so far apart"
        raise PlanError(f"a join is over tumbling windows, not {shown}", hint, place)
    if over._early is not None:
        raise PlanError("a join has no early results", "leave early= out: pairs come with their later events", place)
    return {"over": over._definition}


def _keys(on: object, place: str) -> tuple[tuple[Key, Key], ...]:
    hint = "write on='id', on=('id', 'seller') or on={'id': 'seller', 'city': 'city'}"
    pairs: list[tuple[object, object]]
    if isinstance(on, str):
        pairs = [(on, on)]
    elif isinstance(on, tuple) and len(on) == 2:
        pairs = [(on[0], on[1])]
    elif isinstance(on, list) and on:
        pairs = [(name, name) for name in on]
    elif isinstance(on, Mapping) and on:
        pairs = list(on.items())
    else:
        raise PlanError(f"{on!r} does not say what is equal in a pair", hint, place)
    return tuple((_key(left, hint, place), _key(right, hint, place)) for left, right in pairs)


def _key(key: object, hint: str, place: str) -> Key:
    if isinstance(key, str):
        if not key.isidentifier():
            raise PlanError(f"{key!r} is not the name of a field", hint, place)
        return key
    if not callable(key):
        raise PlanError(f"{key!r} is not the name of a field", hint, place)
    return key
