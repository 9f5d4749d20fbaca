"""The package's exceptions. A message states a fact, in lower case, with the names that matter; a hint on what to write
instead follows after a semicolon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ir import Span

__all__ = [
    "Aborted",
    "BusyError",
    "CompileError",
    "LoadError",
    "MissedError",
    "PlanError",
    "RunError",
    "SchemaError",
    "TidemillError",
]

# Tracebacks show the name under which users know the class.
_PUBLIC = "tidemill"


def _joined(message: str, hint: str) -> str:
    return f"{message}; {hint}" if hint else message


class TidemillError(Exception):
    """The base of all errors of the package."""

    __module__ = _PUBLIC


class SchemaError(TidemillError, TypeError):
    """A ``Row`` or ``Event`` class cannot be a schema, or a value does not fit its field.

    Attributes: ``message`` (names class and field) and ``hint`` (what is allowed; may be empty).
    """

    __module__ = _PUBLIC

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(_joined(message, hint))
        self.message = message
        self.hint = hint


class PlanError(TidemillError, ValueError):
    """The parts of an application do not fit together.

    Attributes: ``place`` (such as ``table 'accounts'``), ``message``, ``hint``.
    """

    __module__ = _PUBLIC

    def __init__(self, message: str, hint: str = "", place: str = "") -> None:
        text = _joined(message, hint)
        super().__init__(f"{place}: {text}" if place else text)
        self.message = message
        self.hint = hint
        self.place = place


class CompileError(TidemillError, SyntaxError):
    """A function cannot be compiled. Raised where the function is defined; Python prints the file,
    the line and a mark under the expression at fault.

    Attributes: those of ``SyntaxError`` (``filename``, ``lineno`` 1-based, ``offset`` 1-based, ``text``),
    and ``message``, ``hint`` and ``place`` (such as ``transaction 'transfer'``).
    """

    __module__ = _PUBLIC

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        filename: str | None = None,
        span: Span | None = None,
        text: str | None = None,
        place: str = "",
    ) -> None:
        self.message = message
        self.hint = hint
        self.place = place
        joined = _joined(message, hint)
        if span is None:
            SyntaxError.__init__(self, joined)
            self.filename = filename
            return
        # A mark cannot span lines; it then ends with the first.
        on_one_line = span["end_line"] == span["line"]
        width = len(text.rstrip("\n")) if text is not None else span["column"] + 1
        end = span["end_column"] if on_one_line else width
        place_in_file = (filename, span["line"], span["column"] + 1, text, span["line"], end + 1)
        SyntaxError.__init__(self, joined, place_in_file)


class RunError(TidemillError, RuntimeError):
    """A run could not start or had to stop: a file, a schema or a sink failed."""

    __module__ = _PUBLIC


class Aborted(TidemillError):  # noqa: N818, an outcome and no error
    """A call aborted: it changed nothing.

    Attributes: ``reason``, ``seen`` (by ``role.column``, the values of its rows that the abort shows) and ``epoch``.
    """

    __module__ = _PUBLIC

    def __init__(self, reason: str, seen: Mapping[str, Any], epoch: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seen = dict(seen)
        self.epoch = epoch


class IdempotencyError(TidemillError):
    """The key of a call cannot be taken, and the call was not made: a call with this key had other arguments, or was
    answered by another version of the program; or calls of its source have no keys, or too many are kept."""

    __module__ = _PUBLIC


class BusyError(RunError):
    """A server does not take a request now: it is over a limit, or about to end. Nothing was done, so the same may be
    asked again.

    Attribute: ``retry_after`` (seconds until then).
    """

    __module__ = _PUBLIC

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LoadError(TidemillError):
    """The command line could not find the application in the user's file."""

    __module__ = _PUBLIC


class GoneError(RunError):
    """A stream cannot be followed from a position any more: what comes after it is not kept, or is of another history.

    A history is that of a state until it is put back to a savepoint, or that of a run without a state.

    Attributes: ``stream`` (its label), ``position`` (that was asked for) and ``kept`` (the first position that can be
    given).
    """

    __module__ = _PUBLIC

    def __init__(self, stream: str, position: str, kept: str) -> None:
        first = f"the first position is {kept}"
        if position.partition("@")[2] in ("", kept.partition("@")[2]):
            text = f"events of '{stream}' after position {position} are not kept: {first}"
        else:
            text = (
                f"'{stream}' cannot be followed after position {position}, which is of another state, or of this one "
                f"before it was put back to a savepoint: {first}"
            )
        super().__init__(text)
        self.stream = stream
        self.position = position
        self.kept = kept


class MissedError(RunError):
    """A follower was too slow, and events were left out. It can be read on.

    Attributes: ``stream`` (its label) and ``events`` (how many were left out).
    """

    __module__ = _PUBLIC

    def __init__(self, stream: str, events: int) -> None:
        super().__init__(f"{events} events of '{stream}' were left out: their reader was too slow")
        self.stream = stream
        self.events = events
