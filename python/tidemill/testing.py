"""For the tests of applications: run one on data, or talk to it while the test sets the time. Its sinks stay closed.

from tidemill import testing
from bank import app, holds

def test_transfer():
    done = testing.run(app, {"transfers": [{"at": 0, "src": "ada", "dst": "bob", "amount": 5}]})
    assert done.aborted("transfer")[0]["reason"] == "insufficient funds"

def test_a_hold_expires():
    with testing.start(app) as mill:
        mill.call("hold", seat="1A")
        mill.advance("15m")
        mill.expect_rows(holds, {"seat": "1A", "is_held": False})
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

from . import _engine
from ._engine import Frame
from .app import App, Data
from .errors import PlanError
from .names import foreign
from .options import Epoch, RunOptions
from .stream import Stream
from .summary import RunSummary
from .trial import BEGINNING, Trial

__all__ = ["BEGINNING", "Ran", "Trial", "run", "start"]

Rows = list[dict[str, Any]]


class Ran:
    """The results of a run: every stream, the tables, the summary."""

    def __init__(self, app: App, summary: RunSummary, streams: dict[str, Frame], tables: dict[str, Frame]) -> None:
        self._app = app
        self.summary = summary
        self._streams = streams
        self._tables = tables

    def table(self, name: str) -> Rows:
        """The rows of a table, in the order of their keys. Raises ``PlanError`` for another name."""
        return _find(self._tables, name, "table")

    def stream(self, stream: Stream[Any] | str) -> Rows:
        """The events of a stream, given as itself or by its label, such as ``transfer.committed``."""
        if isinstance(stream, Stream):
            if stream._app is not self._app:
                raise PlanError(*foreign(f"stream '{stream.label}'", stream._app, self._app))
            stream = stream.label
        return _find(self._streams, stream, "stream")

    def committed(self, transaction: str) -> Rows:
        """The committed events of a transaction."""
        return self.stream(f"{transaction}.committed")

    def aborted(self, transaction: str) -> Rows:
        """The aborted events of a transaction."""
        return self.stream(f"{transaction}.aborted")


def _find(frames: dict[str, Frame], name: str, kind: str) -> Rows:
    if name not in frames:
        raise PlanError(f"there is no {kind} '{name}'", f"there is {', '.join(frames)}")
    return frames[name].to_pylist()


def run(app: App, data: Data | None = None, /, *, workers: int | None = 1, epoch: Epoch = "auto") -> Ran:
    """Runs the application on ``data`` (as ``app.run`` takes it, in place of its connectors) and
    collects every stream: of sources (``late``, ``bad``), filters and maps (``failed``) and
    transactions. No sink of the application is opened, and there is no state: nothing outlasts the test."""
    outcome = _engine.run(app._job(data, RunOptions(workers=workers, epoch=epoch), app.streams()))
    return Ran(app, RunSummary.from_json(outcome.summary), outcome.collected, outcome.tables)


def start(
    app: App,
    *,
    now: datetime = BEGINNING,
    state: str | os.PathLike[str] | None = None,
    workers: int | None = 1,
    epoch: Epoch = "auto",
) -> Trial:
    """Starts the application on trial: a session whose time of day is ``now`` until the test lets it pass.

    It runs the real engine. All sources are sent to, also those with a connector, and no sink is written. With
    ``state``, a directory, it may crash and be started again. Raises ``PlanError``, and ``RunError`` where the state
    cannot be opened.
    """
    options = RunOptions(workers=workers, epoch=epoch, state=state)
    return Trial(app, now, options)
