"""The connectors that data comes from and goes to. A connector is plain data; it is opened when the run starts.

Paths are relative to the current directory. A path may be a glob, whose files are read in the order
of their names; ``-`` is standard input, or output for a sink. Text is decompressed by the name's
ending (``.gz``, ``.zst``) or its first bytes. A sink writes beside the final name and renames at the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from .errors import PlanError

__all__ = [
    "Connector",
    "Csv",
    "Ipc",
    "Jsonl",
    "Null",
    "Parquet",
    "Registered",
    "connector",
    "csv",
    "ipc",
    "jsonl",
    "null",
    "parquet",
]

Path = str | os.PathLike[str]


End = Literal["pause", "last", "follow"]
"""The meaning of the end of a source's input."""


Splits = Literal["files", "whole_files"]
"""The way in which files are read side by side."""


def splits_of(splits: bool | Literal["whole"]) -> Splits | None:
    """Returns the meaning of a connector's argument. Raises ``PlanError``."""
    if splits is True:
        return "files"
    if splits is False:
        return None
    if splits == "whole":
        return "whole_files"
    raise PlanError(f"splits={splits!r} is not a way to read files", "give splits=True, or splits='whole'")


def end_of(last: bool, follow: bool = False) -> End:
    """Returns the meaning of a connector's arguments. Raises ``PlanError``."""
    if last and follow:
        raise PlanError("a source that is followed has no last event", "give last=True or follow=True")
    return "last" if last else "follow" if follow else "pause"


class Connector:
    """The base of connectors. Both texts are JSON that the native module reads."""

    kind: ClassVar[str]

    def _table_spec(self) -> str:
        """As the first rows of a table. Raises ``PlanError`` where it cannot be that."""
        return self._source_spec()

    def _source_spec(self) -> str:
        """As a source. Raises ``PlanError`` where it cannot be one."""
        raise PlanError(f"{self.kind} cannot be a source")

    def _sink_spec(self) -> str:
        """As a sink. Raises ``PlanError`` where it cannot be one."""
        raise PlanError(f"{self.kind} cannot be a sink")


def _paths(paths: Path | Iterable[Path]) -> tuple[str, ...]:
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise PlanError("a connector without paths", "give at least one path")
    return tuple(os.fspath(p) for p in several)


@dataclass(frozen=True)
class _Files(Connector):
    paths: tuple[str, ...]
    end: End = field(default="pause", kw_only=True)
    splits: Splits | None = field(default=None, kw_only=True)

    def _source_options(self) -> dict[str, Any]:
        return {}

    def _sink_options(self) -> dict[str, Any]:
        return {}

    def _table_spec(self) -> str:
        if self.end == "follow":
            raise PlanError("the first rows of a table cannot be followed", "leave out follow=True")
        if self.splits is not None:
            raise PlanError("the first rows of a table are not read in splits", "leave out splits=")
        return self._source_spec()

    def _source_spec(self) -> str:
        end = {} if self.end == "pause" else {"end": self.end}
        splits = {} if self.splits is None else {"splits": self.splits}
        return json.dumps({"kind": self.kind, "paths": list(self.paths), **self._source_options(), **end, **splits})

    def _sink_spec(self) -> str:
        if len(self.paths) != 1:
            raise PlanError(f"a {self.kind} sink has {len(self.paths)} paths", "a sink writes one file")
        if self.end != "pause":
            raise PlanError(f"{self.end}=True is for sources", "leave it out for a sink")
        if self.splits is not None:
            raise PlanError("splits= is for sources", "leave it out for a sink")
        return json.dumps({"kind": self.kind, "path": self.paths[0], **self._sink_options()})


@dataclass(frozen=True)
class _Text(_Files):
    compression: str | None = None

    def _source_options(self) -> dict[str, Any]:
        return {"compression": self.compression}

    def _sink_options(self) -> dict[str, Any]:
        return self._source_options()


@dataclass(frozen=True)
class Csv(_Text):
    """Comma-separated values; see ``tm.csv``."""

    kind: ClassVar[str] = "csv"
    delimiter: str = ","
    null: str = ""

    def _source_options(self) -> dict[str, Any]:
        return {"delimiter": self.delimiter, "null": self.null, "compression": self.compression}


@dataclass(frozen=True)
class Jsonl(_Text):
    """One JSON object per line; see ``tm.jsonl``."""

    kind: ClassVar[str] = "jsonl"


@dataclass(frozen=True)
class _Columnar(_Files):
    compression: str | None = None

    def _sink_options(self) -> dict[str, Any]:
        return {} if self.compression is None else {"compression": self.compression}


@dataclass(frozen=True)
class Parquet(_Columnar):
    """Apache Parquet; see ``tm.parquet``."""

    kind: ClassVar[str] = "parquet"


@dataclass(frozen=True)
class Ipc(_Columnar):
    """Arrow IPC; see ``tm.ipc``."""

    kind: ClassVar[str] = "ipc"


@dataclass(frozen=True)
class Null(Connector):
    """A sink that drops what it gets; see ``tm.null``."""

    kind: ClassVar[str] = "null"

    def _sink_spec(self) -> str:
        """As a sink."""
        return json.dumps({"kind": self.kind})


@dataclass(frozen=True)
class MachineClock(Connector):
    """Ticks of the machine's clock, each so many microseconds; see ``app.clock``."""

    kind: ClassVar[str] = "clock"
    every: int

    def _source_spec(self) -> str:
        return json.dumps({"kind": self.kind, "every": self.every})


@dataclass(frozen=True)
class Registered(Connector):
    """A connector of the native module by its kind; see ``tm.connector``."""

    kind: ClassVar[str] = "connector"
    options: str

    def _source_spec(self) -> str:
        return self.options

    def _sink_spec(self) -> str:
        return self.options


def _choice(compression: str | None, allowed: tuple[str, ...]) -> str | None:
    if compression is not None and compression not in allowed:
        raise PlanError(f"there is no compression {compression!r}", f"choose one of {', '.join(allowed)}")
    return compression


def connector(kind: str, **options: Any) -> Registered:
    """The connector of a kind with its options as they are in JSON, such as ``tm.connector("csv", paths=["a.csv"])``:
    for connectors that were added in Rust. Kind and options are checked when the application is run or looked at."""
    if not isinstance(kind, str) or not kind:
        raise PlanError(f"{kind!r} is not a kind of connector", 'write tm.connector("csv", paths=["a.csv"])')
    try:
        return Registered(json.dumps({"kind": kind, **options}, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise PlanError(f"the options of connector '{kind}' are not JSON: {error}") from None


def csv(
    paths: Path | Iterable[Path],
    *,
    delimiter: str = ",",
    null: str = "",
    compression: str | None = None,
    last: bool = False,
    follow: bool = False,
    splits: bool | Literal["whole"] = False,
) -> Csv:
    """CSV files with a header line that names the columns, in any order.

    ``null`` is the unquoted text that stands for None. Without one an empty field is None, and an empty field in quotes
    is a text; a column that may not be None has a text or bytes of no length for both. Blank lines are skipped, but
    for a lone column of text or bytes, where they are None. ``compression`` is ``none``, ``gzip`` or
    ``zstd``; unless given it is told by the name and the first bytes.

    In a run with a state the end of the files is a pause: the next run reads what was added to the last file, and
    new files of a glob that sort after it. A last line without a line end is waited for. With ``last=True`` their
    end is the end of the source for good. With ``follow=True`` a run stays and watches: it takes what is added to
    the last file as it comes, the new file where that one is renamed, and new files of a glob, until it is stopped. It
    fails where a file is written anew in its place.

    With ``splits=True`` the files are read side by side, in the order of event time, which the source must declare:
    each file is a split, with its own lateness. All files may grow then, and new ones may have any name. One that
    comes after the first run has begun joins with what may still come: what it has before is late. A file holds the
    others back for as long as it may have an earlier event; with ``splits="whole"`` it is complete when it is first
    seen, and its end lets the others go on. Where the source has ``idle``, a file that was read to its end is silent
    while others are read. What is late or bad waits as well, and comes in order.
    """
    if len(delimiter) != 1 or not delimiter.isascii():
        raise PlanError(f"the delimiter {delimiter!r} is not one ASCII character")
    compressed = _choice(compression, ("none", "gzip", "zstd"))
    end = end_of(last, follow)
    return Csv(_paths(paths), compressed, delimiter, null, end=end, splits=splits_of(splits))


def jsonl(
    paths: Path | Iterable[Path],
    *,
    compression: str | None = None,
    last: bool = False,
    follow: bool = False,
    splits: bool | Literal["whole"] = False,
) -> Jsonl:
    """Files with one JSON object per line. ``compression``, ``last``, ``follow`` and ``splits`` as for ``tm.csv``."""
    compressed = _choice(compression, ("none", "gzip", "zstd"))
    return Jsonl(_paths(paths), compressed, end=end_of(last, follow), splits=splits_of(splits))


def parquet(
    paths: Path | Iterable[Path],
    *,
    compression: str | None = None,
    last: bool = False,
    follow: bool = False,
    splits: bool = False,
) -> Parquet:
    """Apache Parquet files. ``compression`` of a sink is ``none``, ``snappy``, ``lz4``, ``gzip`` or
    ``zstd`` (the default). ``last`` as for ``tm.csv``; a file that was read cannot grow. With
    ``splits=True`` the files are read side by side, as by ``tm.csv`` with ``splits="whole"``; then new files can be
    watched for with ``follow=True``."""
    allowed = ("none", "snappy", "lz4", "gzip", "zstd")
    end = _end_of_whole(last, follow, splits)
    return Parquet(_paths(paths), _choice(compression, allowed), end=end, splits=splits_of(splits))


def ipc(
    paths: Path | Iterable[Path],
    *,
    compression: str | None = None,
    last: bool = False,
    follow: bool = False,
    splits: bool = False,
) -> Ipc:
    """Arrow IPC files, in the file or the stream format. ``compression`` of a sink is ``none`` (the
    default), ``lz4`` or ``zstd``. ``last`` as for ``tm.csv``; a file that was read cannot grow.
    ``splits`` and ``follow`` as for ``tm.parquet``."""
    end = _end_of_whole(last, follow, splits)
    return Ipc(_paths(paths), _choice(compression, ("none", "lz4", "zstd")), end=end, splits=splits_of(splits))


def _end_of_whole(last: bool, follow: bool, splits: bool) -> End:
    if follow and not splits:
        raise PlanError("files of this format cannot grow while they are read", "give splits=True with follow=True")
    return end_of(last, follow)


def null() -> Null:
    """A sink that drops what it gets: for benchmarks."""
    return Null()
