"""Where data comes from and goes to. A connector is plain data; it is opened when the run starts.

Paths are relative to the current directory. A path may be a glob, whose files are read in the order
of their names; ``-`` is standard input, or output for a sink. Text is decompressed by the name's
ending (``.gz``, ``.zst``) or its first bytes. A sink writes beside the final name and renames at the end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import PlanError

__all__ = ["Connector", "Csv", "Ipc", "Jsonl", "Null", "Parquet", "csv", "ipc", "jsonl", "null", "parquet"]

Path = str | os.PathLike[str]


class Connector:
    """The base of connectors. Both texts are JSON that the native module reads."""

    kind: ClassVar[str]

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

    def _source_options(self) -> dict[str, Any]:
        return {}

    def _sink_options(self) -> dict[str, Any]:
        return {}

    def _source_spec(self) -> str:
        return json.dumps({"kind": self.kind, "paths": list(self.paths), **self._source_options()})

    def _sink_spec(self) -> str:
        if len(self.paths) != 1:
            raise PlanError(f"a {self.kind} sink has {len(self.paths)} paths", "a sink writes one file")
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


def _choice(compression: str | None, allowed: tuple[str, ...]) -> str | None:
    if compression is not None and compression not in allowed:
        raise PlanError(f"there is no compression {compression!r}", f"choose one of {', '.join(allowed)}")
    return compression


def csv(paths: Path | Iterable[Path], *, delimiter: str = ",", null: str = "", compression: str | None = None) -> Csv:
    """CSV files with a header line that names the columns, in any order.

    ``null`` is the unquoted text that stands for None. ``compression`` is ``none``, ``gzip`` or
    ``zstd``; unless given it is told by the name and the first bytes.
    """
    if len(delimiter) != 1 or not delimiter.isascii():
        raise PlanError(f"the delimiter {delimiter!r} is not one ASCII character")
    return Csv(_paths(paths), _choice(compression, ("none", "gzip", "zstd")), delimiter, null)


def jsonl(paths: Path | Iterable[Path], *, compression: str | None = None) -> Jsonl:
    """Files with one JSON object per line. ``compression`` as for ``tm.csv``."""
    return Jsonl(_paths(paths), _choice(compression, ("none", "gzip", "zstd")))


def parquet(paths: Path | Iterable[Path], *, compression: str | None = None) -> Parquet:
    """Apache Parquet files. ``compression`` of a sink is ``none``, ``snappy``, ``lz4``, ``gzip`` or
    ``zstd`` (the default)."""
    return Parquet(_paths(paths), _choice(compression, ("none", "snappy", "lz4", "gzip", "zstd")))


def ipc(paths: Path | Iterable[Path], *, compression: str | None = None) -> Ipc:
    """Arrow IPC files, in the file or the stream format. ``compression`` of a sink is ``none`` (the
    default), ``lz4`` or ``zstd``."""
    return Ipc(_paths(paths), _choice(compression, ("none", "lz4", "zstd")))


def null() -> Null:
    """A sink that drops what it gets: for benchmarks."""
    return Null()
