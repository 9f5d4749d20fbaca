"""An application on trial: a session of the real engine whose time the test sets, and which the test may crash."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _engine
from .errors import PlanError
from .options import RunOptions
from .schema import Event, Row
from .session import Follower, Session
from .stream import Clock, Source, Stream
from .summary import RunSummary
from .table import Table
from .times import duration_to_microseconds, parse_duration, time_of_microseconds, time_to_microseconds

if TYPE_CHECKING:
    from .app import App

__all__ = ["Trial"]

BEGINNING = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""The time of day at which a trial begins, unless it is told another."""

_TICKS_MAX = 10_000
"""The most ticks of a clock in one step, as many as follow from one event (docs/formalism.md)."""
_KEPT = 1_000_000
"""The number of the last events of each stream that a trial can look back on."""
_SEEN_SECONDS = 30.0
"""The time that a trial waits for events that the run has released, seconds."""


class Trial(Session):
    """A session for the test of an application, which :func:`tidemill.testing.start` gives.

    It is a :class:`~tidemill.session.Session` of the real engine, with these differences. The time of day stands still
    until :meth:`advance` is called; ``app.clock`` ticks by it, and so do ``idle=``, ``ahead=`` and ``remember=``. No
    connector is opened: all sources are sent to, and no sink is written. What each stream has given is in
    :meth:`events`. With a state the run may :meth:`crash` and :meth:`restart`.
    """

    def __init__(self, app: App, now: datetime, options: RunOptions) -> None:
        self._options = options
        self._microseconds = time_to_microseconds(now)
        self._clocks = [source for source in app._sources.values() if isinstance(source, Clock)]
        others = [source for source in app._sources.values() if source not in self._clocks]
        self._timed = [source for source in others if source._brings_time and _is_time(source)]
        self._last_ticks: dict[str, int] = {}
        self._followers: dict[str, Follower] = {}
        self._events: dict[str, list[dict[str, Any]]] = {stream.label: [] for stream in app.streams()}
        self._expected: dict[str, int] = {}
        self._is_down = False
        self._begin(app)

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_down:
            super().__exit__(kind, error, traceback)

    @property
    def now(self) -> datetime:
        """The time of day."""
        return time_of_microseconds(self._microseconds)

    def advance(self, duration: str | timedelta) -> None:
        """Lets time pass: clocks tick, all sources have shown that nothing earlier comes, what became due has run.

        ``duration`` is a text such as ``15m``, or a ``timedelta``. Of each clock at most 10,000 ticks come, the last
        ones. Without a clock, what is due at this very instant comes with the next event. Raises ``PlanError`` where no
        source has an event time that is a ``tm.Time``: then no time passes.
        """
        units = _microseconds(duration)
        if not self._timed and not self._clocks:
            hint = "declare app.clock('1s'), or a source with an event time that is a tm.Time"
            raise PlanError("no time passes in this application", hint, f"app '{self._app.name}'")
        self._microseconds += units
        self._native.pass_until(self._microseconds)
        self._show()

    def send(
        self, source: Source[Any] | str, data: object, *, timeout: float | None = None, durable: bool = False
    ) -> int:
        """Sends events, as ``Session.send`` does. A dict without its event time, a ``tm.Time``, has that of now."""
        target = self._source(source)
        name = target._schema.event_time
        if name is not None and target._brings_time and _is_time(target):
            data = _timed(data, name, self.now)
        return super().send(target, data, timeout=timeout, durable=durable)

    def events(self, stream: Stream[Any] | str) -> list[dict[str, Any]]:
        """The events of a stream since the trial began, in their order, over crashes too.

        All that was sent has run before.
        """
        label = self._label(stream)
        if not self._is_down:
            self._look()
        return list(self._events[label])

    def rows(self, table: Table[Any] | str) -> list[dict[str, Any]]:
        """The rows of a table, in the order of their keys, after all that was sent."""
        return self.table(table).to_pylist()

    def expect(self, stream: Stream[Any] | str, *events: Mapping[str, Any] | Event) -> None:
        """Checks that these, and no others, came on a stream since it was last asked for.

        Of an event as a dict only the fields that it has are compared. Raises ``AssertionError`` that shows both.
        """
        label = self._label(stream)
        found = self.events(stream)[self._expected.get(label, 0) :]
        self._expected[label] = self._expected.get(label, 0) + len(found)
        _check(f"stream '{label}'", found, events)

    def expect_rows(self, table: Table[Any] | str, *rows: Mapping[str, Any] | Row) -> None:
        """Checks that a table has these rows, in the order of their keys, and no others.

        Of a row as a dict only the columns that it has are compared. Raises ``AssertionError`` that shows both.
        """
        _check(f"table '{self._table(table)}'", self.rows(table), rows)

    def crash(self) -> None:
        """Ends the run as ``kill -9`` would: what is in the state's directory now is all that is left.

        What was acknowledged is there then; the rest is lost, or is found. :meth:`restart` goes on. Raises
        ``PlanError`` without a state.
        """
        state = self._state("crash")
        left = state.with_name(state.name + ".crashed")
        # Events that streams give from here on may be lost.
        self._drain()
        # The run goes on: if a file is replaced or removed while it is copied, all is copied again.
        while True:
            shutil.rmtree(left, ignore_errors=True)
            try:
                shutil.copytree(state, left)
                break
            except (shutil.Error, FileNotFoundError):
                continue
        self.stop()
        self._end()
        shutil.rmtree(state)
        left.rename(state)

    def restart(self) -> None:
        """Begins the run again from its state; ends it before, if it has not crashed.

        Raises ``PlanError`` without a state.
        """
        self._state("restart")
        if not self._is_down:
            self._look()
            self._end()
        self._begin(self._app)

    def close(self) -> RunSummary:
        """Processes what was sent, ends the run, and gives its summary. What the streams gave stays."""
        if not self._is_down and self._closed is None:
            self._look()
        return super().close()

    def _state(self, act: str) -> Path:
        state = self._options.state
        if state is None:
            raise PlanError(
                f"a trial without a state cannot {act}", "give testing.start(app, state=tmp_path / 'state')"
            )
        return Path(os.fspath(state))

    def _begin(self, app: App) -> None:
        labels = list(self._events)
        job = app._trial_job(self._options, {app._names_of(label)[1]: _KEPT for label in labels})
        native = _engine.start(dataclasses.replace(job, time=self._microseconds))
        super().__init__(app, native)
        self._is_down = False
        after = {label: follower.position for label, follower in self._followers.items()}
        self._followers = {label: self.follow(label, after=after.get(label), buffer=_KEPT) for label in labels}
        self._show()

    def _end(self) -> None:
        super().close()
        self._is_down = True

    def _show(self) -> None:
        """Sends the ticks that are due, of each clock; all other sources show that no event before now comes."""
        for clock in self._clocks:
            period = -clock._lateness
            last = self._microseconds - self._microseconds % period
            first = self._last_ticks.get(clock.name, last - period) + period
            first = max(first, last - (_TICKS_MAX - 1) * period)
            field = clock._schema.event_time or ""
            ticks = [{field: time_of_microseconds(tick)} for tick in range(first, last + 1, period)]
            if ticks:
                super().send(clock, ticks)
                self._last_ticks[clock.name] = last
        for source in self._timed:
            # One that is silent does not hold the last tick either, and its next event may be of the same instant.
            if self._clocks:
                self._native.idle(source.name)
            else:
                self._native.punctuate(source.name, self._microseconds)
        self.flush()

    def _look(self) -> None:
        """Takes what the streams gave, after all that was sent."""
        epoch = self.flush().epoch
        end = time.monotonic() + _SEEN_SECONDS
        for label, follower in self._followers.items():
            while not _has_come(follower, epoch):
                self._take(label, follower, max(0.0, end - time.monotonic()))

    def _drain(self) -> None:
        """Takes what the streams gave so far."""
        for label, follower in self._followers.items():
            while self._take(label, follower, 0.0):
                pass

    def _take(self, label: str, follower: Follower, timeout: float) -> bool:
        try:
            released = follower.next(timeout)
        except TimeoutError:
            if timeout > 0:
                raise
            return False
        if released is None:
            return False
        self._events[label] += released.to_pylist()
        return True

    def _label(self, stream: Stream[Any] | str) -> str:
        label, _ = self._app._names_of(stream)
        if label not in self._events:
            raise PlanError(f"there is no stream '{label}'", f"streams: {', '.join(self._events)}")
        return label


def _has_come(follower: Follower, epoch: int) -> bool:
    position = follower.position
    return position is not None and int(position.split("@")[0].split(".")[0]) >= epoch


def _is_time(source: Source[Any]) -> bool:
    field = source._schema.field(source._schema.event_time or "")
    return field is not None and str(field.type) != "int"


def _timed(data: object, name: str, now: datetime) -> object:
    """Events with a time, where a dict has none."""
    if isinstance(data, Mapping):
        return data if name in data else {**data, name: now}
    if isinstance(data, (list, tuple, Iterator)):
        return (_timed(item, name, now) for item in data)
    return data


def _microseconds(duration: str | timedelta) -> int:
    try:
        units = parse_duration(duration) if isinstance(duration, str) else duration_to_microseconds(duration)
    except (ValueError, TypeError) as error:
        raise PlanError(f"the duration {error}", "write a text such as '15m', or a timedelta") from None
    if units < 0:
        raise PlanError(f"the duration {duration!r} is negative", "time does not go back")
    return units


def _check(place: str, found: list[dict[str, Any]], wanted: Iterable[Mapping[str, Any] | Event | Row]) -> None:
    rows = [dict(one) if isinstance(one, Mapping) else vars(one) for one in wanted]
    seen = [{name: row[name] for name in one if name in row} for one, row in zip(rows, found, strict=False)]
    if len(found) == len(rows) and seen == rows:
        return
    lines = [f"{place} has not what is expected"]
    for at in range(max(len(found), len(rows))):
        has, wants = (some[at] if at < len(some) else None for some in (found, rows))
        mark = " " if wants is not None and has is not None and seen[at] == wants else "!"
        lines.append(f"{mark} {at}: expected {wants if wants is not None else 'nothing'}")
        lines.append(f"{mark}    found    {has if has is not None else 'nothing'}")
    raise AssertionError("\n".join(lines))
