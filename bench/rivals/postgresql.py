"""PostgreSQL: one transaction per event over a local socket, as installed, with a server of its own.

The events are drawn by ``pgbench``, which speaks the protocol in C; each is one call of a function, so one round
trip. Says so and does nothing where there is no server to start.
"""

from __future__ import annotations

import re
import sys

import ledger
from cluster import cluster, programs

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


def main() -> int:
    """Measures, where there is a server."""
    arguments = ledger.arguments("Streaming Ledger in PostgreSQL")
    binaries = programs()
    if binaries is None:
        print("PostgreSQL: skipped, as no server is installed (Debian: postgresql)")
        return 0
    with cluster(arguments.folder, binaries) as server:
        last = arguments.rows // 2 - 1
        server.sql(SCHEMA.format(balance=ledger.BALANCE, last=last))
        (server.folder / "event.sql").write_text(EVENT.format(last=last, too_much=ledger.TOO_MUCH))
        for clients in (1, 8):
            count = ["-c", str(clients), "-j", "1", "-t", str(arguments.events // clients)]
            script = ["-n", "-M", "prepared", "-f", server.folder / "event.sql"]
            said = server.run("pgbench", *server.client, *count, *script, "postgres")
            rate = float(re.search(r"tps = ([\d.]+)", said)[1])
            print(f"PostgreSQL {server.version()}, {clients} clients: {arguments.events} transactions, {rate:,.0f}/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
