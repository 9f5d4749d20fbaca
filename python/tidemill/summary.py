"""The summary of a run, as typed Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from .notebook import table_html

__all__ = [
    "DurabilitySummary",
    "FailedSummary",
    "LatencySummary",
    "LeftOutSummary",
    "MemorySummary",
    "PolicySummary",
    "RunSummary",
    "SourceSummary",
    "TransactionSummary",
]

T = TypeVar("T")


@dataclass(frozen=True)
class SourceSummary:
    """The counts of a source."""

    name: str = ""
    events: int = 0
    """Events that went through; with a state, those of earlier runs too."""
    late: int = 0
    """Events that broke the source's promise about time."""
    bad: int = 0
    """Records that could not be decoded."""
    last_time: int | None = None
    """The event time of the last event that went through, in its unit."""
    again: int = 0
    """Events of what the run was given that an earlier run over the same state took, which crashed or was stopped: they
    were dropped."""
    held: int = 0
    """Events that were read but not processed: an earlier one may still come, or the run was stopped. With a state
    they are kept for the next run."""
    held_until: int | None = None
    """The event time of the last of those that the state keeps, in its unit."""
    held_by: str | None = None
    """The source that holds them back: it may still have an earlier event."""
    held_from: int | None = None
    """The earliest event time that such an event may have; ``None`` while that source has had no event."""
    waits: str | None = None
    """A text that says what they wait for and what releases them; ``None`` where the state keeps none."""
    paused: bool = False
    """A flag: whether its input came to an end that is a pause: a later run with the same state continues it."""
    ended_before: bool = False
    """A flag: whether it had ended for good in an earlier run over the same state: it had nothing new."""


@dataclass(frozen=True)
class TransactionSummary:
    """The numbers of events of a transaction that committed and aborted; a filter or map with roles is one."""

    name: str = ""
    committed: int = 0
    aborted: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Aborts by reason, most frequent first."""
    mean_ns: float | None = None
    """Nanoseconds that one took in the access stage on average, by those that were timed; ``None`` where none was."""


@dataclass(frozen=True)
class FailedSummary:
    """Events for which a filter's or map's expression failed."""

    stream: str = ""
    events: int = 0


@dataclass(frozen=True)
class LeftOutSummary:
    """Times that were left out, as more than 10,000 lay between two events."""

    stream: str = ""
    """Ticks, or ``NAME.rows`` of a window with ``every=``."""
    times: int = 0
    """Those beyond the first 10,000 of each gap."""


@dataclass(frozen=True)
class LatencySummary:
    """From an event's arrival at the gate to the release of its epoch's results, in milliseconds."""

    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


@dataclass(frozen=True)
class PolicySummary:
    """The work done under one policy on one number of workers."""

    policy: str = ""
    """As ``--scheduling`` takes it."""
    workers: int = 1
    """The most workers that took part in access."""
    group: str | None = None
    """The group of transactions, where groups that share no row were scheduled by themselves."""
    epochs: int = 0
    transactions: int = 0
    redone: int = 0
    """Transactions that were run again because of an abort, as often as they were."""
    access_seconds: float = 0.0
    """Seconds of the epochs' access stage."""
    why: str = ""
    """Why it was chosen the last time."""


@dataclass(frozen=True)
class MemorySummary:
    """The effect of a memory limit on a run."""

    limit: int = 0
    """Bytes that rows may take in memory, with the indexes by which they are found."""
    peak: int = 0
    """The most bytes that these took."""
    fetched: int = 0
    """Rows that were read because an epoch needed them; one that it needs several times may count as often."""
    evicted: int = 0
    """Rows whose memory others got."""
    spilled: int = 0
    """Those of them that were written for it, as they had changed."""


@dataclass(frozen=True)
class DurabilitySummary:
    """The log, replay and losses of a run with a state."""

    epoch: int = 0
    """The last epoch, counted from the state's beginning."""
    log_bytes: int = 0
    """Bytes appended to the log."""
    checkpoints: int = 0
    """Checkpoints that were taken."""
    replayed_epochs: int = 0
    """Epochs of an earlier run that were replayed."""
    replayed_events: int = 0
    """Their events, which are not among this run's."""
    lost_epochs: int = 0
    """Epochs whose results an earlier run had released before they were durable, and which a crash has taken:
    their input was taken again where that can be done."""
    sync_seconds: float | None = None
    """Seconds between syncs where results are released before they are durable; ``None`` where they are not."""
    recovery_seconds: float = 0.0
    """Seconds until the first new event could be taken."""
    is_behind: bool = False
    """A flag: whether there was no room for a last checkpoint: the next run replays the log after the checkpoint
    before."""
    memory: MemorySummary | None = None
    """The effect of the memory limit; ``None`` without one."""


@dataclass(frozen=True)
class RunSummary:
    """The summary of a run."""

    application: str = ""
    events: int = 0
    """Events that went through, of all sources."""
    sources: tuple[SourceSummary, ...] = ()
    transactions: tuple[TransactionSummary, ...] = ()
    failed: tuple[FailedSummary, ...] = ()
    left_out: tuple[LeftOutSummary, ...] = ()
    """The times that were left out, by stream of ticks, and of windows with ``every=``."""
    epochs: int = 0
    policies: tuple[PolicySummary, ...] = ()
    """The policies by which they were scheduled, in the order in which the policies were first used."""
    seconds: float = 0.0
    """Wall time, from the start to the end of the last sink."""
    events_per_second: float = 0.0
    latency: LatencySummary = LatencySummary()
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds that workers spent in each stage, all together."""
    access_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds that workers spent in the access stage, by kind: useful, sync, lock, construct, explore, abort, other."""
    stopped: bool = False
    """A flag: whether the run was stopped before its sources ended."""
    durability: DurabilitySummary | None = None
    """The log, replay and losses of the run; ``None`` without a state."""

    @property
    def committed(self) -> int:
        """Transactions that committed."""
        return sum(t.committed for t in self.transactions)

    @property
    def aborted(self) -> dict[str, int]:
        """Transactions that aborted, by reason."""
        reasons: dict[str, int] = {}
        for transaction in self.transactions:
            for reason, count in transaction.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + count
        return reasons

    @property
    def late(self) -> int:
        """Events that broke their source's promise about time."""
        return sum(s.late for s in self.sources)

    @property
    def bad(self) -> int:
        """Records that could not be decoded."""
        return sum(s.bad for s in self.sources)

    def _repr_html_(self) -> str:
        """The numbers that matter most, for notebooks."""
        rows: list[tuple[str, object]] = [(f"events of {source.name}", f"{source.events:,}") for source in self.sources]
        rows += [(f"{of.name}: committed", f"{of.committed:,}") for of in self.transactions]
        rows += [(f"aborted: {reason}", f"{count:,}") for reason, count in self.aborted.items()]
        counts = {"late": self.late, "bad": self.bad, "failed": sum(f.events for f in self.failed)}
        rows += [(name, f"{count:,}") for name, count in counts.items() if count]
        rows += [("seconds", f"{self.seconds:.3f}"), ("events a second", f"{self.events_per_second:,.0f}")]
        latency = self.latency
        rows += [("latency, median", f"{latency.p50_ms:.1f} ms"), ("latency, 99 %", f"{latency.p99_ms:.1f} ms")]
        return table_html(f"run of {self.application}", (), rows, "it was stopped" if self.stopped else "")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSummary:
        """From the native module's summary; keys of a newer module are passed over."""
        transactions = [{**t, "reasons": dict(t.get("reasons", ()))} for t in data.get("transactions", ())]
        parts = {
            "sources": tuple(_known(SourceSummary, s) for s in data.get("sources", ())),
            "transactions": tuple(_known(TransactionSummary, t) for t in transactions),
            "policies": tuple(_known(PolicySummary, p) for p in data.get("policies", ())),
            "left_out": tuple(_known(LeftOutSummary, o) for o in data.get("left_out", ())),
            "failed": tuple(_known(FailedSummary, f) for f in data.get("failed", ())),
            "latency": _known(LatencySummary, data.get("latency", {})),
            "durability": _durability(data.get("durability")),
        }
        return _known(cls, {**data, **parts})


def _durability(data: Mapping[str, Any] | None) -> DurabilitySummary | None:
    if data is None:
        return None
    memory = data.get("memory")
    memory = None if memory is None else _known(MemorySummary, memory)
    return _known(DurabilitySummary, {**data, "memory": memory})


def _known(cls: type[T], data: Mapping[str, Any]) -> T:
    names = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in data.items() if name in names})
