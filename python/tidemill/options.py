"""The options of a run, as ``app.run`` takes them."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Literal

from . import _engine
from .errors import PlanError
from .names import type_name

__all__ = ["Epoch", "Logging", "Path", "Proof", "RunOptions", "Sync"]

Path = str | os.PathLike[str]

Epoch = Literal["auto"] | str | int
"""``"auto"``, a number of events, or an age such as ``"20ms"``."""

Sync = Literal["epoch"] | str
"""``"epoch"``, or a time between syncs such as ``"50ms"``."""

Logging = Literal["border", "full"]

Proof = Literal["on", "off"]


@dataclass(frozen=True)
class RunOptions:
    """The options of a run: those of ``app.run``, which says what they mean. None is the default.

    They are checked here, by the rules of the command line. Raises ``PlanError``.
    """

    workers: int | None = None
    epoch: Epoch | None = None
    latency: str | None = None
    scheduling: str | None = None
    state: Path | None = None
    sync: Sync | None = None
    memory: str | None = None
    logging: Logging | None = None
    proof: Proof | None = None
    checkpoint_every: str | None = None
    checkpoint_bytes: str | None = None
    checkpoint_replay: str | None = None
    keys_in_memory: int | None = None
    savepoint: str | None = None
    final: bool | None = None
    end: str | Collection[str] | None = None
    seed: Path | None = None
    epoch_records: Path | None = None

    def __post_init__(self) -> None:
        _engine.check_options(self.texts())

    def texts(self) -> dict[str, str]:
        """The options that are given, as the command line would have them."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _text(name, value) for name, value in given.items() if value is not None}


_PATHS = ("state", "seed", "epoch_records")


def _text(option: str, value: object) -> str:
    """The text of an option. Any value has one, so where each text is right the type is looked at."""
    if option in _PATHS:
        if not isinstance(value, (str, bytes, os.PathLike)):
            raise PlanError(f"{type_name(value)} is not a path", "give a str or a pathlib.Path", option)
        return os.fsdecode(value)
    if option == "final" and not isinstance(value, bool):
        raise PlanError(f"{type_name(value)} is not a bool", "give True or False", option)
    if option == "end":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
            raise PlanError(f"{type_name(value)} is no name", "give the name of a window or join, or several", option)
        return ",".join(names)
    if option == "savepoint" and not isinstance(value, str):
        raise PlanError(f"{type_name(value)} is not a name", "give a str", option)
    return str(value)
