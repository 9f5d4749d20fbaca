"""A source of made-up events, for demos and benchmarks: the same seed gives the same events."""

from __future__ import annotations

import base64
import decimal
import enum
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from .connectors import Connector
from .errors import PlanError
from .names import type_name
from .times import duration_to_microseconds, time_to_microseconds

__all__ = ["Generated", "Generator", "choice", "constant", "generator", "nullable", "sequence", "uniform", "zipf"]


@dataclass(frozen=True)
class Generated:
    """The way in which the values of one field are made; from ``tm.sequence``, ``tm.uniform``, ``tm.zipf``,
    ``tm.choice``, ``tm.constant`` or ``tm.nullable``."""

    _spec: dict[str, Any]


@dataclass(frozen=True)
class Generator(Connector):
    """Made-up events; see ``tm.generator``."""

    kind: ClassVar[str] = "generator"
    events: int | None
    rate: float | None
    seed: int
    columns: tuple[tuple[str, Generated], ...]

    def _source_spec(self) -> str:
        """As a source."""
        return json.dumps(
            {
                "kind": self.kind,
                "events": self.events,
                "rate": self.rate,
                "seed": self.seed,
                "columns": [[name, column._spec] for name, column in self.columns],
            }
        )


def generator(
    *, events: int | None = None, rate: float | None = None, seed: int = 0, **fields: Generated | object
) -> Generator:
    """Made-up events, one keyword per field: ``amount=tm.uniform(1, 100)``. A plain value is the
    same for all events.

    ``events`` is how many (none: no end), ``rate`` how many per second (none: as fast as they are
    taken). Raises ``PlanError`` where a value cannot be one of a field.
    """
    if events is not None and events < 0:
        raise PlanError(f"events={events} is negative", "leave it out for no end")
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise PlanError(f"rate={rate} is not a rate", "give events per second, or leave it out")
    columns = [(n, f if isinstance(f, Generated) else constant(f)) for n, f in fields.items()]
    return Generator(events, rate, seed, tuple(columns))


def sequence(start: object = 0, step: object = 1, *, format: str | None = None) -> Generated:
    """``start``, ``start + step``, … For int, float, Decimal, Time (the step a ``timedelta``), and
    for str with a ``format`` such as ``"acct-{}"``."""
    return _generated("sequence", format, start=_literal(start), step=_literal(step))


def uniform(low: object, high: object, *, format: str | None = None) -> Generated:
    """Any value from ``low`` to ``high``, both included (floats stay below ``high``), all as likely.
    For int, float, Decimal, Time, and str with a ``format``."""
    return _generated("uniform", format, low=_literal(low), high=_literal(high))


def zipf(count: int, theta: float, *, format: str | None = None) -> Generated:
    """An int from 0 to ``count - 1``, each ``k`` with weight ``1 / (k + 1) ** theta``; 0 is uniform.
    For int, and str with a ``format``."""
    return _generated("zipf", format, count=count, theta=theta)


def choice(values: Iterable[object], *, weights: Iterable[float] | None = None) -> Generated:
    """One of the values, with weights all the same unless given."""
    given = {} if weights is None else {"weights": [float(w) for w in weights]}
    return Generated({"kind": "choice", "values": [_literal(v) for v in values], **given})


def constant(value: object) -> Generated:
    """Always the same value."""
    return Generated({"kind": "constant", "value": _literal(value)})


def nullable(probability: float, values: Generated) -> Generated:
    """None with a probability from 0 to 1, else as ``values`` says."""
    return Generated({"kind": "nullable", "probability": probability, "values": values._spec})


def _generated(kind: str, format: str | None, **options: object) -> Generated:
    return Generated({"kind": kind, **options, **({} if format is None else {"format": format})})


def _literal(value: object) -> Any:
    """A value as the JSON of the native module: times in microseconds, decimals as text, bytes in base64."""
    if isinstance(value, enum.Enum):
        return _literal(value.value)
    if isinstance(value, datetime):
        return time_to_microseconds(value)
    if isinstance(value, timedelta):
        return duration_to_microseconds(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise PlanError(f"{value!r} is {type_name(value)}, which cannot be generated", "give a value of the field's type")
