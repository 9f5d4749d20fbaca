"""Room for functions that are deep: a sum of five hundred terms, a chain of three hundred ``elif``.

The translation recurs over the syntax tree, and Python ends a recursion at a thousand calls. How deep a function may
be is the analysis's to say, which names the place.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_RECURSION_MAX = 100_000
_STACK_BYTES = 256 << 20

T = TypeVar("T")


def with_room(work: Callable[[], T]) -> T:
    """Returns the result of ``work``. Where it recurs deeper than Python lets it, it is called again on a thread
    with a larger stack, so it must have no effects that a second call would repeat."""
    try:
        return work()
    except RecursionError:
        return _on_large_stack(work)


def _on_large_stack(work: Callable[[], T]) -> T:
    results: list[T] = []
    raised: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            raised.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
    sys.setrecursionlimit(max(limit, _RECURSION_MAX))
    try:
        thread = threading.Thread(target=target, name="tidemill translation")
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    if raised:
        raise raised[0]
    return results[0]
