"""Names made from other names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .errors import PlanError

if TYPE_CHECKING:
    from .app import App

_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """``CardTransfer`` as ``card_transfer``."""
    return _BOUNDARY.sub("_", name).lower()


def plural(noun: str) -> str:
    """The plural of an English noun, as far as it is regular: ``fixes``, ``entries``, ``days``."""
    if re.search(r"[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")


def collection_name(cls: type) -> str:
    """The name of a table, source or stream of a class unless one is given: ``Transfer`` is ``transfers``."""
    return plural(snake_case(cls.__name__))


def a(noun: str) -> str:
    """The noun with its article: ``an int``, ``a str``."""
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def type_name(value: object) -> str:
    """A value's type, with the article; ``None`` for None."""
    return "None" if value is None else a(type(value).__name__)


def conversion_place(table: str, column: str) -> str:
    """Returns the words that messages have for the function that converts a column."""
    return f"conversion '{table}.{column}'"


def checked(name: str, place: str) -> str:
    """The name, if it can stand in a program. Raises ``PlanError``."""
    if not isinstance(name, str) or not name.isidentifier():
        raise PlanError(f"{name!r} is not a name", "write letters, digits and _, such as 'transfers'", place)
    return name


def foreign(what: str, owner: App, app: App) -> tuple[str, str]:
    """The message and the hint where something of the application ``owner`` is given to ``app``."""
    if owner.name == app.name:
        message = f"{what} belongs to another application that is called '{app.name}' too"
        return message, "tm.App(...) has run again since it was declared: declare it again"
    message = f"{what} belongs to the application '{owner.name}', not to '{app.name}'"
    return message, "an application uses what is declared on it"
