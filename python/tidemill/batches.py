"""Atomic batches: the events of a source, some at a time."""

from __future__ import annotations

from typing import Any

from . import ir
from .errors import PlanError
from .names import checked
from .over import Length, duration_value, offset
from .stream import Batches, Stream
from .types import INT_MAX

__all__ = ["add_batches", "batch_size"]


def batch_size(size: Length | None, over: Length | None, origin: Length) -> ir.BatchSize:
    """Which events are a batch. Raises ``PlanError``."""
    place = "batch"
    if (size is None) == (over is None):
        raise PlanError("it is of a number of events or of a length of time", 'write batch(10) or batch("1s")', place)
    if over is None and isinstance(size, int) and not isinstance(size, bool):
        if origin != 0:
            raise PlanError("an origin is of batches by time", 'write batch("1h", origin="30m")', place)
        if not 1 <= size <= INT_MAX:
            raise PlanError(f"{size} is not a number of events", "write one of at least 1: batch(10)", place)
        return {"count": size}
    length = duration_value(size if over is None else over, place, "a length")
    return {"time": {"length": length, "origin": offset(origin, length, place)}}


def add_batches(stream: Stream[Any], size: ir.BatchSize, given_name: str | None, replace: bool) -> Batches:
    """The stream of batches; without a name, one that is the same is taken."""
    app = stream._app
    stem = f"{stream.label.replace('.', '_')}_batch"
    name = checked(given_name, "batch") if given_name else app._plan.free_name(stem, "streams")
    definition: ir.StreamDef = {"name": name, "origin": {"batch": {"input": stream._ref, "size": size}}}
    same = None if given_name else app._plan.find("streams", definition)
    if same is None and app._add_stream(definition, replace=replace):
        app._batches[name] = Batches(app, name)
    return app._batches[same or name]
