"""Methods of a client whose names procedures of an application may have, too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

__all__ = ["hides_no_procedure"]

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


def hides_no_procedure(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Lets a method of a client be the procedure of its name, too: where it is given fields alone that are not its own
    parameters, as in ``client.close(account="ada")``."""
    signature, name = inspect.signature(method), method.__name__

    @functools.wraps(method)
    def either(client: Any, /, *args: Any, **fields: Any) -> Any:
        if fields and not args and not _takes(signature, client, fields):
            return client.call(name, **fields)
        return method(client, *args, **fields)

    return either


def _takes(signature: inspect.Signature, client: object, fields: Mapping[str, Any]) -> bool:
    """Returns whether these can be the arguments of a method."""
    try:
        signature.bind(client, **fields)
    except TypeError:
        return False
    return True
