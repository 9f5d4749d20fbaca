"""SQLite: WAL, synchronous=FULL, one transaction per event, in this process."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path

import ledger


def main() -> None:
    """Measures."""
    arguments = ledger.arguments("Streaming Ledger in SQLite")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        database = sqlite3.connect(folder / "ledger.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        rows = [(key, ledger.BALANCE) for key in range(arguments.rows // 2)]
        for table in ("accounts", "assets"):
            database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)")
            database.execute("BEGIN")
            database.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
            database.execute("COMMIT")
        events = ledger.events(arguments.events, arguments.rows)

        def run() -> int:
            committed = 0
            for event in events:
                database.execute("BEGIN IMMEDIATE")
                good = ledger.apply(lambda sql, values: database.execute(sql, values).rowcount, event)
                database.execute("COMMIT" if good else "ROLLBACK")
                committed += good
            return committed

        ledger.report(f"SQLite {sqlite3.sqlite_version}", run, arguments.events)
        database.close()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
