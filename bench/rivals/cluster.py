"""A PostgreSQL server of our own, as installed, in a folder on the disk to be measured."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


def programs() -> Path | None:
    """Returns the folder of ``initdb`` and its kin, the newest of Debian; None where there is no server to start."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    initdb = found[-1] if found else shutil.which("initdb")
    binaries = Path(initdb).resolve().parent if initdb else None
    has_all = binaries is not None and (binaries / "pg_ctl").exists() and shutil.which("pgbench") is not None
    return binaries if has_all else None


@dataclass(frozen=True)
class Cluster:
    """A server that runs."""

    folder: Path
    port: int
    user: dict[str, str]

    @property
    def client(self) -> list[str]:
        """The options of clients that say where it is: over a local socket."""
        return ["-h", str(self.folder), "-p", str(self.port), "-U", "ledger"]

    @property
    def loopback(self) -> list[str]:
        """The options with which clients connect over loopback."""
        return ["-h", "127.0.0.1", *self.client[2:]]

    def run(self, *command: str | Path, text: str | None = None) -> str:
        """Returns the output of a command. Ends this program where it fails."""
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=self.folder, **self.user)
        if done.returncode:
            sys.exit(f"{command[0]} failed: {done.stderr}")
        return done.stdout

    def sql(self, text: str) -> str:
        """Returns the output of statements."""
        return self.run("psql", *self.client, "-q", "-d", "postgres", text=text)

    def version(self) -> str:
        """Its version."""
        return self.run("psql", "--version").split()[2]


@contextmanager
def cluster(folder: Path, binaries: Path, *settings: str) -> Iterator[Cluster]:
    """A server in a new folder, which speaks over a local socket in it and over loopback, and is removed at the end.

    ``settings`` are written as in its configuration: ``shared_buffers=1GB``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=folder)).resolve()
    # It refuses to run as root.
    user = {"user": "postgres"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(place, "postgres")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = Cluster(place, port, user)
    data = place / "data"
    try:
        own.run(binaries / "initdb", "-D", data, "-A", "trust", "-U", "ledger", "--no-sync")
        options = f"-k {place} -c listen_addresses=127.0.0.1 -p {port}"
        options += "".join(f" -c {setting}" for setting in settings)
        own.run(binaries / "pg_ctl", "-D", data, "-w", "-l", place / "log", "-o", options, "start")
        try:
            yield own
        finally:
            own.run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(place)
