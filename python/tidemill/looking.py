"""``tidemill tail``, ``tidemill table`` and ``tidemill top``: a state, or what is served, looked at from outside."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _engine, exchange
from .client import Client, connect
from .errors import MissedError, PlanError, RunError
from .openmetrics import Samples, samples
from .sql import queried

__all__ = ["At", "table", "tail", "top"]

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
_AGAIN = 0.5
"""Seconds between two looks at the log of a state."""
_CLEAR = "\x1b[H\x1b[2J"
"""Makes a terminal empty."""


@dataclass(frozen=True)
class At:
    """A state or a server, and who asks."""

    place: str
    token: str | None = None
    ca: str | None = None

    def is_served(self) -> bool:
        """Returns whether it is a server."""
        return self.place.startswith(("http://", "https://"))

    def client(self) -> Client:
        """A client of the server."""
        if not self.is_served():
            raise RunError(f"{self.place!r} is not where an application is served; give http://ADDRESS:PORT")
        return connect(self.place, token=self.token, ca=self.ca)


def _interruptible(work: Callable[[], None]) -> int:
    try:
        work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more.
        sys.stdout = None
    return 0


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def tail(at: At, stream: str, after: str | None, follows: bool) -> int:
    """Prints the events of a stream, a JSON object a line with its place; the exit code."""
    places = _tailed(at, stream, after) if at.is_served() else _logged(at, stream, after, follows)

    def work() -> None:
        for place, event in places:
            _print(exchange.text({"position": place, "event": event}) + "\n")

    return _interruptible(work)


def _tailed(at: At, stream: str, after: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with at.client() as client, client.follow(stream, after) as events:
        while True:
            try:
                for event in events:
                    yield event.position, event.value
                return
            except MissedError as missed:
                sys.stderr.write(f"warning: {missed}\n")


def _logged(at: At, stream: str, after: str | None, follows: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if after is not None and not after.isdecimal():
        raise PlanError(f"{after!r} is no number of an epoch; give one such as 7")
    last, is_first = int(after or 0), True
    while True:
        begun, through, epochs = _engine.read_stream(at.place, stream, last)
        if begun > last and (after is not None or not is_first):
            gone = f"events of epochs {last + 1} to {begun} are not in the log any more"
            sys.stderr.write(f"warning: {gone}: a checkpoint has taken their place\n")
        is_first = False
        for epoch, frame in epochs:
            for number, event in enumerate(frame.to_pylist(), 1):
                yield f"{epoch}.{number}", event
        last = max(last, through)
        if not follows:
            return
        time.sleep(_AGAIN)


def table(at: At, name: str, condition: str | None, form: str) -> int:
    """Prints the rows of a table; the exit code."""
    rows = _served_rows(at, name, condition) if at.is_served() else _state_rows(at, name, condition)
    return _interruptible(lambda: _print(_FORMS[form](rows)))


def _query(name: str, condition: str | None) -> str:
    quoted = name.replace('"', '""')
    return f'select * from "{quoted}"' + ("" if condition is None else f" where ({condition}\n)")


def _served_rows(at: At, name: str, condition: str | None) -> list[dict[str, Any]]:
    with at.client() as client:
        return client.rows(name) if condition is None else client.sql(_query(name, condition))


def _state_rows(at: At, name: str, condition: str | None) -> list[dict[str, Any]]:
    _, epoch, tables = _engine.read_state(at.place)
    if name not in tables:
        raise RunError(f"{at.place} has no table {name!r}; tables: {', '.join(tables) or 'none'}")
    if condition is None:
        return tables[name].to_pylist()
    return queried(tables, epoch, _query(name, condition)).to_pylist()


def _as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(exchange.text(row) + "\n" for row in rows)


def _as_csv(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return out.getvalue()


def _as_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "no rows\n"
    lines = [[*rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    is_number = [all(isinstance(row[name], (int, float)) for row in rows) for name in rows[0]]
    lines.insert(1, ["-" * width for width in widths])

    def shown(line: list[str]) -> str:
        cells = zip(line, widths, is_number, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()

    return "".join(shown(line) + "\n" for line in lines)


def _cell(value: object) -> str:
    """A value as a word: as in JSON, without quotes, and nothing for None."""
    if value is None:
        return ""
    text = exchange.text(value)
    return json.loads(text) if text.startswith('"') else text


_FORMS: Mapping[str, Callable[[list[dict[str, Any]]], str]] = {
    "table": _as_table,
    "jsonl": _as_lines,
    "csv": _as_csv,
}


def top(at: At, seconds: float, is_once: bool, is_json: bool) -> int:
    """Shows what a server does, again and again; the exit code."""

    def work() -> None:
        with at.client() as client:
            before, since = samples(client.metrics()), time.monotonic()
            while True:
                time.sleep(seconds)
                now, at_time = samples(client.metrics()), time.monotonic()
                look = _look(before, now, at_time - since)
                if is_json:
                    _print(json.dumps(look) + "\n")
                else:
                    _print(("" if is_once or not sys.stdout.isatty() else _CLEAR) + _shown(at.place, look))
                if is_once:
                    return
                before, since = now, at_time

    return _interruptible(work)


def _look(before: Samples, now: Samples, seconds: float) -> dict[str, Any]:
    """Returns what a server did between two looks, and its state now."""

    def rates(metric: str, label: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for labels, value in now.of(metric):
            name = labels.get(label, "")
            found[name] = found.get(name, 0.0) + (value - before.one(metric, labels)) / seconds
        return {name: round(rate, 1) for name, rate in found.items()}

    def levels(metric: str, label: str) -> dict[str, float]:
        return {labels.get(label, ""): value for labels, value in now.of(metric)}

    outcomes = [({**labels}, value) for labels, value in now.of("tidemill_transactions_total")]
    transactions: dict[str, dict[str, float]] = {}
    for labels, value in outcomes:
        rate = (value - before.one("tidemill_transactions_total", labels)) / seconds
        transactions.setdefault(labels["transaction"], {})[labels["outcome"]] = round(rate, 1)
    lags = [(labels["source"], value) for labels, value in now.of("tidemill_lag_seconds")]
    return {
        "events_per_second": rates("tidemill_events_total", "source"),
        "late_per_second": rates("tidemill_late_events_total", "source"),
        "bad_per_second": rates("tidemill_bad_records_total", "source"),
        "held": levels("tidemill_held_events", "source"),
        "lag_seconds": {source: max(lag for other, lag in lags if other == source) for source, _ in lags},
        "transactions_per_second": transactions,
        "epochs_per_second": rates("tidemill_epochs_total", "").get("", 0.0),
        "latency_seconds": levels("tidemill_latency_seconds", "quantile"),
        "calls_per_second": rates("tidemill_calls_total", "").get("", 0.0),
        "calls_in_flight": now.one("tidemill_calls_in_flight"),
        "connections": now.one("tidemill_connections") + now.one("tidemill_postgres_connections"),
        "sink_events_per_second": rates("tidemill_sink_events_total", "sink"),
        "log_bytes": now.one("tidemill_log_bytes"),
        "checkpoint_age_seconds": round(now.one("tidemill_checkpoint_age_seconds"), 1),
        "memory_bytes": now.one("process_resident_memory_bytes"),
        "incidents": {name: count for name, count in levels("tidemill_incidents_open", "incident").items() if count},
    }


def _shown(place: str, look: Mapping[str, Any]) -> str:
    latency = look["latency_seconds"]
    lines = [
        f"{place}: {sum(look['events_per_second'].values()):,.0f} events/s, {look['epochs_per_second']:,.0f} epochs/s",
        f"  latency p50 {_ms(latency.get('0.5'))}, p99 {_ms(latency.get('0.99'))} since the start",
        f"  calls {look['calls_per_second']:,.0f}/s, {look['calls_in_flight']:,.0f} in flight, "
        f"{look['connections']:,.0f} connections",
        f"  memory {look['memory_bytes'] / 2**20:,.0f} MiB, log {look['log_bytes'] / 2**20:,.1f} MiB, "
        f"checkpoint {look['checkpoint_age_seconds']:,.0f} s ago",
    ]
    for source, rate in look["events_per_second"].items():
        lag = look["lag_seconds"].get(source)
        behind = "" if lag is None else f", {lag:,.1f} s behind the clock"
        late, bad = look["late_per_second"].get(source, 0), look["bad_per_second"].get(source, 0)
        held = look["held"].get(source, 0)
        lines.append(f"  source {source}: {rate:,.0f}/s, {late:,.0f} late, {bad:,.0f} bad, {held:,.0f} held{behind}")
    for name, rates in look["transactions_per_second"].items():
        committed, aborted = rates.get("committed", 0), rates.get("aborted", 0)
        lines.append(f"  transaction {name}: {committed:,.0f} committed/s, {aborted:,.0f} aborted/s")
    lines.extend(f"  sink {name}: {rate:,.0f}/s" for name, rate in look["sink_events_per_second"].items())
    lines.extend(f"  INCIDENT {name}: {count:,.0f}" for name, count in look["incidents"].items())
    return "\n".join(lines) + "\n"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:,.1f} ms"
