"""Topics of Apache Kafka as connectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from .connectors import Connector, End, end_of
from .errors import PlanError
from .times import time_to_microseconds

__all__ = ["Kafka", "kafka"]

Format = Literal["json", "raw"]
"""The form of the values of records."""


@dataclass(frozen=True)
class Kafka(Connector):
    """A topic of Apache Kafka; see ``tm.kafka``."""

    kind: ClassVar[str] = "kafka"
    topic: str
    servers: str
    format: Format = "json"
    key: str | None = None
    timestamp: str | None = None
    partition: str | None = None
    offset: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    start: str | dict[str, int] = "earliest"
    only: int | None = None
    end: End = "follow"
    id: str | None = None
    exactly_once: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"kind": self.kind, "topic": self.topic, "servers": self.servers}
        options |= {"format": self.format}
        for name in ("key", "timestamp"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
        for name in ("headers", "settings"):
            if getattr(self, name):
                options[name] = dict(getattr(self, name))
        return options

    def _refuse(self, names: tuple[str, ...], what: str, instead: str) -> None:
        """Refuses what was given and has no meaning here."""
        plain = Kafka(self.topic, self.servers)
        for name in names:
            if getattr(self, name) != getattr(plain, name):
                raise PlanError(f"{name}= of a topic is for {what}", instead)

    def _source_spec(self) -> str:
        """As a source."""
        self._refuse(("id", "exactly_once"), "sinks", "leave it out for a source")
        options = self._options() | {"start": self.start, "end": self.end}
        for name in ("partition", "offset", "only"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
        return json.dumps(options)

    def _sink_spec(self) -> str:
        """As a sink."""
        self._refuse(("partition", "offset", "start", "only"), "sources", "leave it out for a sink")
        if self.end != "follow":
            raise PlanError("the end of a topic is for sources", "leave out follow= and last= for a sink")
        options = self._options() | {"exactly_once": self.exactly_once}
        if self.id is not None:
            options["id"] = self.id
        return json.dumps(options)

    def _table_spec(self) -> str:
        """As the first rows of a table."""
        raise PlanError("the first rows of a table are not read from a topic", "read them from a file")


def kafka(
    topic: str,
    *,
    servers: str | Iterable[str],
    format: Format = "json",
    key: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
    offset: str | None = None,
    headers: Mapping[str, str] | None = None,
    start: Literal["earliest", "latest"] | datetime = "earliest",
    only: int | None = None,
    follow: bool = True,
    last: bool = False,
    id: str | None = None,
    exactly_once: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Kafka:
    """A topic of Apache Kafka, as a source or as a sink: ``tm.kafka("transfers", servers="localhost:9092")``.

    A record's value has the fields as a JSON object, or with ``format="raw"`` one field of ``str``, ``bytes`` or
    ``int`` as it is. ``key``, ``timestamp`` and ``headers`` name fields that are other parts of the record: the
    key, the timestamp (in milliseconds), and headers (``{"trace": "traceparent"}`` has the header ``traceparent``
    in the field ``trace``). In a source they are read from there and not from the value; in a sink with JSON they
    are in the value, too. ``settings`` are those of librdkafka; ``env:NAME`` stands for the value of an environment
    variable, so that no secret is in the program.

    **As a source** all partitions are read side by side, in the order of event time, which the source must declare;
    each has its own lateness, and one without records holds the others back for as long as ``idle=`` of the source
    says. With ``only=3`` one partition is read as one stream, which needs no event time. ``partition`` and
    ``offset`` name fields that have the record's place. The first run begins at the ``start``: ``"earliest"``,
    ``"latest"`` (the records from then on), or a time. Later runs go on after the last record that was taken, which
    the state knows; what a group has committed is not looked at. If records that were not taken are gone, the run
    is refused. New partitions join. Only what transactions have committed is read. A record that cannot be decoded,
    or has no value, is on the ``bad`` stream, with the topic and partition as ``origin`` and the offset as
    ``line``. A topic has no end: a run waits for more. With ``follow=False`` it ends with what is there, and a
    later run goes on; with ``last=True`` that is the end for good.

    **As a sink** of a run with a state each commit is a transaction of Kafka: readers with
    ``isolation.level=read_committed`` see each event once, whatever crashes. The topic must be there; the topic
    ``tidemill-progress`` is made for the marks of what is committed. Records with the same key are in one
    partition, in order. Two sinks into one topic need an ``id`` each. With ``exactly_once=False``, and in a run
    without a state, records are written without transactions: they are seen at once, and may be there twice after a
    crash.
    """
    if not isinstance(topic, str) or not topic:
        raise PlanError(f"{topic!r} is no topic", 'write tm.kafka("transfers", servers="localhost:9092")')
    given = servers if isinstance(servers, str) else ",".join(servers)
    if not given:
        raise PlanError("a topic without servers", 'give servers="localhost:9092"')
    if format not in ("json", "raw"):
        raise PlanError(f"there is no format {format!r} of records", 'choose one of "json", "raw"')
    end = end_of(last) if last or not follow else "follow"
    begin: str | dict[str, int]
    if isinstance(start, datetime):
        begin = {"time": time_to_microseconds(start)}
    elif start in ("earliest", "latest"):
        begin = start
    else:
        raise PlanError(f"start={start!r} is no place in a topic", 'choose "earliest", "latest", or a datetime')
    return Kafka(
        topic,
        given,
        format,
        key,
        timestamp,
        partition,
        offset,
        dict(headers or {}),
        begin,
        only,
        end,
        id,
        exactly_once,
        dict(settings or {}),
    )
