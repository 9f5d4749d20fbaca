"""A check that one serial order explains all that clients saw of calls and reads.

The tables say in which order requests committed, so nothing is searched: the order is replayed in memory. What was
answered must be what the replay gives. What aborted or was read must have a place between two commits at which it had
this answer. And what was answered before something else began stands before it
(Herlihy and Wing, Linearizability, TOPLAS 1990, §2).
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol


@dataclass(frozen=True)
class Seen:
    """Something that a client did: a call or a read."""

    request: Hashable
    start: float
    """The time when it was begun, in seconds of one clock."""
    end: float
    """The time when it was answered; infinity if it never was."""
    answer: Any


class Model(Protocol):
    """The program in memory."""

    def answer(self, request: Any) -> tuple[bool, Any]:
        """Returns whether a request would commit now, and its answer. Changes nothing."""

    def apply(self, request: Any) -> None:
        """Does what a request does."""


class DisagreementError(AssertionError):
    """No serial order explains what was seen."""


def check(model: Model, order: list[Any], seen: list[Seen]) -> None:
    """Checks a history.

    ``order`` has the requests that committed, as the tables have them. ``seen`` has the calls and the reads, one of each
    request; a call that was not answered may have committed or not.
    """
    if len(set(order)) != len(order):
        raise DisagreementError("a request committed twice")
    place = {request: number for number, request in enumerate(order)}
    committed = [op for op in seen if op.request in place]
    if missing := place.keys() - {op.request for op in committed}:
        raise DisagreementError(f"nobody made {missing}")
    others = sorted((op for op in seen if op.request not in place and op.end < math.inf), key=lambda op: op.start)
    _check_real_time(committed, place)

    between = _Between(committed, place)
    begins: dict[int, list[int]] = {}
    for number, op in enumerate(others):
        begins.setdefault(between(op)[0], []).append(number)
    possible: list[list[int]] = [[] for _ in others]
    running: list[int] = []
    answers = {op.request: op for op in committed if op.end < math.inf}
    for number in range(len(order) + 1):
        running = [at for at in running if between(others[at])[1] >= number] + begins.get(number, [])
        for at in running:
            if model.answer(others[at].request) == (False, others[at].answer):
                possible[at].append(number)
        if number < len(order):
            commits, answer = model.answer(order[number])
            op = answers.get(order[number])
            if not commits or (op is not None and op.answer != answer):
                raise DisagreementError(f"number {number}, {order[number]}, gives {answer}, and not as in {op}")
            model.apply(order[number])
    _check_others(others, possible)


def _check_real_time(committed: list[Seen], place: dict[Hashable, int]) -> None:
    latest = -math.inf
    for op in sorted(committed, key=lambda op: place[op.request]):
        latest = max(latest, op.start)
        if op.end < latest:
            raise DisagreementError(f"{op} was answered before something began that stands before it")


class _Between:
    """Gives the least and the greatest number of commits that can stand before something."""

    def __init__(self, committed: list[Seen], place: dict[Hashable, int]) -> None:
        by_end = sorted(committed, key=lambda op: op.end)
        self.ends = [op.end for op in by_end]
        self.before = list(accumulate((place[op.request] + 1 for op in by_end), max, initial=0))
        by_start = sorted(committed, key=lambda op: op.start)
        self.starts = [op.start for op in by_start]
        behind = accumulate((place[op.request] for op in reversed(by_start)), min, initial=len(place))
        self.behind = list(behind)[::-1]

    def __call__(self, op: Seen) -> tuple[int, int]:
        return self.before[bisect_left(self.ends, op.start)], self.behind[bisect_right(self.starts, op.end)]


def _check_others(others: list[Seen], possible: list[list[int]]) -> None:
    """Gives each the least place that it can have, in the order in which they began."""
    running: list[tuple[float, int]] = []
    least = 0
    for op, places in zip(others, possible, strict=True):
        while running and running[0][0] < op.start:
            least = max(least, heapq.heappop(running)[1])
        at = bisect_left(places, least)
        if at == len(places):
            raise DisagreementError(f"{op} has no place from {least} on: {places}")
        heapq.heappush(running, (op.end, places[at]))
