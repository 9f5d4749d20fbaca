"""PostgreSQL: one transaction per event over a local socket, as installed, with a server of its own.

The events are drawn by ``pgbench``, which speaks the protocol in C; each is one call of a function, so one round
trip. Says so and does nothing where there is no server to start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ledger

SCHEMA = """
CREATE TABLE accounts (id bigint PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE assets (id bigint PRIMARY KEY, value bigint NOT NULL);
INSERT INTO accounts SELECT i, {balance} FROM generate_series(0, {last}) i;
INSERT INTO assets SELECT i, {balance} FROM generate_series(0, {last}) i;
CREATE FUNCTION deposit(a bigint, b bigint, n bigint, q bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET value = value + n WHERE id = a;
    UPDATE assets SET value = value + q WHERE id = b;
END $$;
CREATE FUNCTION transfer(a bigint, b bigint, c bigint, d bigint, n bigint, q bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM accounts WHERE id = a AND value >= n FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM 1 FROM assets WHERE id = b AND value >= q FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE accounts SET value = value - n WHERE id = a;
    UPDATE assets SET value = value - q WHERE id = b;
    UPDATE accounts SET value = value + n WHERE id = c;
    UPDATE assets SET value = value + q WHERE id = d;
    RETURN true;
END $$;
VACUUM ANALYZE;
CHECKPOINT;
"""

EVENT = r"""
\set a random(0, {last})
\set b random(0, {last})
\set c random(0, {last})
\set d random(0, {last})
\set n random(1, 100)
\set q random(1, 100)
\set kind random(1, 200)
\if :kind > 100
SELECT deposit(:a, :b, :n, :q);
\elif :kind > 1
SELECT transfer(:a, :b, :c, :d, :n, :q);
\else
SELECT transfer(:a, :b, :c, :d, {too_much}, :q);
\endif
"""


def programs() -> Path | None:
    """Where ``initdb``, ``pg_ctl`` and ``pgbench`` are; the newest of Debian's versions."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    path = shutil.which("initdb")
    return Path(path).resolve().parent if path else None


def main() -> int:
    """Measures, where there is a server."""
    arguments = ledger.arguments("Streaming Ledger in PostgreSQL")
    binaries = programs()
    if binaries is None or not (binaries / "pg_ctl").exists() or shutil.which("pgbench") is None:
        print("PostgreSQL: skipped, as no server is installed (Debian: postgresql)")
        return 0
    arguments.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder)).resolve()
    # It refuses to run as root.
    user = {"user": "postgres"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(folder, "postgres")
    data = folder / "data"

    def run(*command: str | Path, text: str | None = None) -> str:
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=folder, **user)
        if done.returncode:
            sys.exit(f"{command[0]} failed: {done.stderr}")
        return done.stdout

    try:
        run(binaries / "initdb", "-D", data, "-A", "trust", "-U", "ledger", "--no-sync")
        options = f"-k {folder} -c listen_addresses=''"
        run(binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            last = arguments.rows // 2 - 1
            client = ["-h", folder, "-U", "ledger"]
            run("psql", *client, "-q", "-d", "postgres", text=SCHEMA.format(balance=ledger.BALANCE, last=last))
            (folder / "event.sql").write_text(EVENT.format(last=last, too_much=ledger.TOO_MUCH))
            for clients in (1, 8):
                count = ["-c", str(clients), "-j", "1", "-t", str(arguments.events // clients)]
                script = ["-n", "-M", "prepared", "-f", folder / "event.sql"]
                said = run("pgbench", *client, *count, *script, "postgres")
                rate = float(re.search(r"tps = ([\d.]+)", said)[1])
                version = run("psql", "--version").split()[2]
                print(f"PostgreSQL {version}, {clients} clients: {arguments.events} transactions, {rate:,.0f}/s")
        finally:
            run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
