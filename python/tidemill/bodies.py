"""The functions of transaction bodies: ``require``, ``abort``, ``emit``.

Called as Python functions they raise; the compiler gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, overload

from .errors import TidemillError
from .schema import Event

__all__ = ["abort", "emit", "require"]


def _body_only(name: str) -> TidemillError:
    return TidemillError(f"tm.{name}() has a meaning only inside of a function under @app.transaction")


def require(condition: bool, reason: str, /) -> None:
    """Aborts the transaction with ``reason``, a constant text, unless the condition holds.

    Raises ``TidemillError`` outside of a transaction body.
    """
    raise _body_only("require")


def abort(reason: str, /) -> NoReturn:
    """Aborts the transaction with ``reason``, a constant text: nothing that it did remains.

    Raises ``TidemillError`` outside of a transaction body.
    """
    raise _body_only("abort")


@overload
def emit(event: Event, /) -> None: ...
@overload
def emit(name: str, event: Event | Mapping[str, Any], /) -> None: ...
def emit(*arguments: Any) -> None:
    """Emits an event on a stream of the transaction, if the transaction commits.

    ``tm.emit(Alert(at=ev.at))`` goes to the stream of the class, ``txn.emitted(Alert)``;
    ``tm.emit("alerts", {"at": ev.at})`` to ``txn.emitted("alerts")``.
    Raises ``TidemillError`` outside of a transaction body.
    """
    raise _body_only("emit")
