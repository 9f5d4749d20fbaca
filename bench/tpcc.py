"""TPC-C beside PostgreSQL: the same calls of the same clients, of both servers in turns, and of a loop over dicts.

    make release && .venv/bin/python bench/tpcc.py
    .venv/bin/python bench/tpcc.py --warehouses 1 --seconds 5 --rounds 1 --clients 8 --folder /mnt/disk

``examples/tpcc.py`` is served with a state, so a reply is on the disk. PostgreSQL has the same tables and the same
procedures in PL/pgSQL, over the same protocol and on the same disk, twice: as it is installed (read committed, with
``FOR UPDATE``), and serializable, which is what Tidemill promises; what fails there for reasons of concurrency is made
again. The mix is that of the specification without Order-Status; no terminal waits or thinks, so these are no tpmC. The
loop runs the same calls on one thread, keeps everything in dicts of Python, and nothing on the disk. In the end the
conditions between the tables are checked in both servers. Needs ``psycopg``, and a server of PostgreSQL to start.
"""

from __future__ import annotations

import argparse
import re
import selectors
import socket
import statistics
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench" / "rivals")]

from cluster import Cluster, cluster, programs  # noqa: E402
from serving import READY, SYNC, Served, message, served  # noqa: E402
from tpcc_loop import Loop  # noqa: E402

import tidemill as tm  # noqa: E402
from tpcc_data import COLUMNS, KEYS, MIX, SMALL, SOURCES, Call, Scale, Terminal, broken, literal, load  # noqa: E402

AGAIN = (b"40001", b"40P01")
"""The codes of errors after which a call is made again: a serialization failure, and a deadlock."""

SETTINGS = ("shared_buffers=1GB", "max_wal_size=4GB")
"""The settings of PostgreSQL that are not those of an installation: all rows fit into its memory, as into ours."""

FIELDS = {"new_order": 5, "payment": 8, "delivery": 3, "stock_level": 3}
"""The number of arguments of each procedure."""


def column(name: str) -> str:
    """Returns a column as PostgreSQL declares it: ``bigint`` unless its name is that of another type."""
    types = {
        r"._tax|c_discount": "numeric(4, 4)",
        r"[wd]_ytd|c_credit_lim|c_balance|c_ytd_payment": "numeric(12, 2)",
        r"h_amount|ol_amount": "numeric(6, 2)",
        r"i_price": "numeric(5, 2)",
        r"c_since|h_date|o_entry_d|ol_delivery_d": "timestamptz",
        r"._(name|street_.|city|state|zip|first|middle|last|phone|credit|data)|.._dist_info|s_dist_..": "text",
    }
    found = next((kind for pattern, kind in types.items() if re.fullmatch(pattern, name)), "bigint")
    return f"{name} {found}"


def schema() -> str:
    """Returns the statements that make the tables of PostgreSQL."""
    statements = []
    for table, names in COLUMNS.items():
        columns = names.split()
        key = ", ".join(columns[: KEYS[table]])
        statements.append(f"CREATE TABLE {table} ({', '.join(map(column, columns))}, PRIMARY KEY ({key}));")
    return "\n".join(statements) + PROCEDURES


PROCEDURES = """
CREATE INDEX ON customers (c_w_id, c_d_id, c_last, c_first);

CREATE FUNCTION new_order(w bigint, d bigint, c bigint, at timestamptz, lines json,
    OUT o_id bigint, OUT c_last text, OUT c_credit text, OUT total numeric) LANGUAGE plpgsql AS $$
DECLARE
    line record; shelf record; price numeric; tax numeric; discount numeric; own numeric; local bigint := 1;
    left_over bigint;
BEGIN
    SELECT w_tax INTO tax FROM warehouses WHERE w_id = w;
    UPDATE districts SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
        RETURNING d_next_o_id - 1, d_tax INTO o_id, own;
    SELECT customers.c_last, customers.c_credit, c_discount INTO c_last, c_credit, discount
        FROM customers WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    IF EXISTS (SELECT FROM json_to_recordset(lines) AS l(supply bigint) WHERE supply <> w) THEN local := 0; END IF;
    INSERT INTO orders VALUES (w, d, o_id, c, at, NULL, json_array_length(lines), local);
    INSERT INTO new_orders VALUES (w, d, o_id);
    total := 0;
    -- Shelves are locked in one order, so that two orders do not wait for each other.
    FOR line IN SELECT * FROM json_to_recordset(lines)
        AS l(number bigint, item bigint, supply bigint, quantity bigint) ORDER BY supply, item
    LOOP
        SELECT i_price INTO price FROM items WHERE i_id = line.item;
        IF NOT FOUND THEN RAISE EXCEPTION 'item number is not valid'; END IF;
        SELECT * INTO shelf FROM stock WHERE s_w_id = line.supply AND s_i_id = line.item FOR UPDATE;
        left_over := shelf.s_quantity - line.quantity;
        UPDATE stock SET s_quantity = CASE WHEN left_over < 10 THEN left_over + 91 ELSE left_over END,
            s_ytd = s_ytd + line.quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (line.supply <> w)::int
            WHERE s_w_id = line.supply AND s_i_id = line.item;
        total := total + price * line.quantity;
        INSERT INTO order_lines VALUES (w, d, o_id, line.number, line.item, line.supply, NULL, line.quantity,
            price * line.quantity, CASE d WHEN 1 THEN shelf.s_dist_01 WHEN 2 THEN shelf.s_dist_02
            WHEN 3 THEN shelf.s_dist_03 WHEN 4 THEN shelf.s_dist_04 WHEN 5 THEN shelf.s_dist_05
            WHEN 6 THEN shelf.s_dist_06 WHEN 7 THEN shelf.s_dist_07 WHEN 8 THEN shelf.s_dist_08
            WHEN 9 THEN shelf.s_dist_09 ELSE shelf.s_dist_10 END);
    END LOOP;
    total := round(total * (1 - discount) * (1 + tax + own), 2);
END $$;

CREATE FUNCTION payment(w bigint, d bigint, cw bigint, cd bigint, c bigint, last text, amount numeric, at timestamptz,
    OUT c_id bigint, OUT c_balance numeric) LANGUAGE plpgsql AS $$
DECLARE
    warehouse text; district text; one record; number bigint;
BEGIN
    UPDATE warehouses SET w_ytd = w_ytd + amount WHERE w_id = w RETURNING w_name INTO warehouse;
    UPDATE districts SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d RETURNING d_name INTO district;
    IF last IS NULL THEN
        c_id := c;
    ELSE
        SELECT x.c_id INTO c_id FROM (
            SELECT y.c_id, row_number() OVER (ORDER BY c_first, y.c_id) AS place, count(*) OVER () AS among
            FROM customers y WHERE c_w_id = cw AND c_d_id = cd AND c_last = last) x WHERE place = (among + 1) / 2;
        IF NOT FOUND THEN RAISE EXCEPTION 'no customer has this name'; END IF;
    END IF;
    UPDATE customers x SET c_balance = x.c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1, c_data = CASE WHEN c_credit = 'BC'
            THEN left(concat(x.c_id, ' ', cd, ' ', cw, ' ', d, ' ', w, ' ', amount, '|', c_data), 500)
            ELSE c_data END
        WHERE c_w_id = cw AND c_d_id = cd AND x.c_id = payment.c_id
        RETURNING x.c_balance, c_payment_cnt INTO c_balance, number;
    INSERT INTO history VALUES (cw, cd, c_id, number, w, d, at, amount, warehouse || '    ' || district);
END $$;

CREATE FUNCTION delivery(w bigint, carrier bigint, at timestamptz, OUT taken bigint) LANGUAGE plpgsql AS $$
DECLARE
    o bigint; c bigint; bought numeric;
BEGIN
    taken := 0;
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO o FROM new_orders WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_orders WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO c;
        UPDATE order_lines SET ol_delivery_d = at WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        SELECT sum(ol_amount) INTO bought FROM order_lines WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        UPDATE customers SET c_balance = c_balance + bought, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = w AND c_d_id = d AND c_id = c;
        taken := taken + 1;
    END LOOP;
END $$;

CREATE FUNCTION stock_level(w bigint, d bigint, threshold bigint, OUT low_stock bigint) LANGUAGE plpgsql AS $$
DECLARE
    next bigint;
BEGIN
    SELECT d_next_o_id INTO next FROM districts WHERE d_w_id = w AND d_id = d;
    SELECT count(DISTINCT s_i_id) INTO low_stock FROM order_lines, stock
        WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= next - 20 AND s_w_id = w AND s_i_id = ol_i_id
        AND s_quantity < threshold;
END $$;
"""


@dataclass
class Round:
    """A run of some seconds: the milliseconds that each call took by procedure, and how many aborted or came again."""

    seconds: float
    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MIX})
    aborted: int = 0
    again: int = 0

    def rate(self) -> float:
        """New-Orders that were committed, a minute."""
        return (len(self.times["new_order"]) - self.aborted) * 60 / self.seconds


@dataclass(frozen=True)
class Place:
    """A server: where its clients connect, and what they say then."""

    address: tuple[str, int]
    startup: Mapping[str, str]

    def connect(self) -> socket.socket:
        """A connection with a statement for each procedure, which has its name."""
        one = socket.create_connection(self.address)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = b"".join(f"{name}\0{value}\0".encode() for name, value in self.startup.items()) + b"\0"
        one.sendall(struct.pack("!II", len(said) + 8, 3 << 16) + said)
        answered(one)
        for name, count in FIELDS.items():
            given = ", ".join(f"${number + 1}" for number in range(count))
            one.sendall(message(b"P", f"{name}\0SELECT * FROM {name}({given})\0".encode() + b"\0\0") + SYNC)
            answered(one)
        return one


def answered(one: socket.socket) -> bytes:
    """Returns an answer, which is no error."""
    said = b""
    while not said.endswith(READY):
        part = one.recv(1 << 16)
        assert part, said
        said += part
    assert b"ERROR\0" not in said, said
    return said


def execute(call: Call) -> bytes:
    """Returns the messages of a call."""
    values = [literal(value) for value in call.fields.values()]
    body = b"\0" + call.procedure.encode() + b"\0" + struct.pack("!HH", 0, len(values))
    for value in values:
        text = None if value is None else value.encode()
        body += struct.pack("!i", -1) if text is None else struct.pack("!i", len(text)) + text
    return message(b"B", body + b"\0\0") + message(b"E", b"\0" * 5) + SYNC


@dataclass
class Client:
    """A client: its connection, its terminal, and the call that is under way."""

    connection: socket.socket
    terminal: Terminal
    said: bytes = b""
    sent: bytes = b""
    name: str = ""
    begun: float = 0

    def make(self) -> None:
        """Makes the next call."""
        call = self.terminal.next()
        self.name, self.sent = call.procedure, execute(call)
        self.begun = time.perf_counter()
        self.connection.sendall(self.sent)

    def take(self, into: Round) -> None:
        """Takes what has come of the answer. When that is whole, makes the next call, or the same again."""
        part = self.connection.recv(1 << 16)
        assert part, "the server has closed the connection"
        self.said += part
        if not self.said.endswith(READY):
            return
        failed = re.search(rb"\0C([0-9A-Z]{5})\0", self.said) if b"SERROR\0" in self.said else None
        said, self.said = self.said, b""
        if failed and failed[1] in AGAIN:
            into.again += 1
            self.connection.sendall(self.sent)
            return
        if failed:
            assert failed[1] == b"P0001" and self.name == "new_order", said
            into.aborted += 1
        into.times[self.name].append((time.perf_counter() - self.begun) * 1000)
        self.make()


def measured(place: Place, scale: Scale, clients: int, seconds: float, seed: int) -> Round:
    """The calls of so many clients, each with one under way."""
    with selectors.DefaultSelector() as selector:
        all_of_them = [Client(place.connect(), Terminal(scale, seed * 1000 + number)) for number in range(clients)]
        for client in all_of_them:
            selector.register(client.connection, selectors.EVENT_READ, client)
        into, begin = Round(seconds), time.perf_counter()
        for client in all_of_them:
            client.make()
        while time.perf_counter() < begin + seconds:
            for key, _ in selector.select(0.1):
                key.data.take(into)
        into.seconds = time.perf_counter() - begin
        for client in all_of_them:
            client.connection.close()
    return into


def looped(loop: Loop, scale: Scale, seconds: float, seed: int) -> Round:
    """The calls of one client, made by the loop; drawing them is not timed."""
    terminal, into, spent = Terminal(scale, seed * 1000), Round(seconds), 0.0
    while spent < seconds:
        call = terminal.next()
        begin = time.perf_counter()
        committed = loop.call(call)
        took = time.perf_counter() - begin
        spent += took
        into.aborted += not committed
        into.times[call.procedure].append(took * 1000)
    into.seconds = spent
    return into


@contextmanager
def tidemill(folder: Path, scale: Scale) -> Iterator[tuple[Place, Callable[[str], int]]]:
    """``examples/tpcc.py``, served and filled: where it is, and what answers a query by a number."""
    files = {"app.py": (ROOT / "examples" / "tpcc.py").read_text(encoding="utf-8")}
    options = ("--query-memory-max", "4GiB", "--query-seconds-max", "300")
    with served(folder, files, *options) as server, tm.connect(url(server), timeout=600) as client:
        load(client.push, scale)
        yield (
            Place(server.postgres, {"user": "any", "database": "tpcc"}),
            lambda query: int(client.sql(query)[0]["broken"]),
        )


def url(server: Served) -> str:
    return "http://{}:{}".format(*server.http)


def fill(server: Cluster, scale: Scale) -> None:
    """Fills the tables of PostgreSQL by ``COPY``."""
    import psycopg

    tables = {source: table for table, source in SOURCES.items()}
    with psycopg.connect(host="127.0.0.1", port=server.port, user="ledger", dbname="postgres") as db:

        def push(source: str, rows: list[dict[str, object]]) -> None:
            with db.cursor() as cursor, cursor.copy(f"COPY {tables[source]} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(list(row.values()))

        load(push, scale, size=5000)
    server.sql("VACUUM ANALYZE; CHECKPOINT;")


def line(name: str, rounds: list[Round]) -> str:
    """Returns the figures of a side as a row of a table: the medians, and for the rate the least and the greatest."""
    rates = [one.rate() for one in rounds]
    parts = [f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"]
    for procedure in MIX:
        times = [sorted(one.times[procedure]) for one in rounds if one.times[procedure]]
        half = statistics.median(of[len(of) // 2] for of in times) if times else 0
        tail = statistics.median(of[len(of) * 99 // 100] for of in times) if times else 0
        parts.append(f"{half:.2f} / {tail:.2f}")
    parts.append(f"{statistics.median(one.again for one in rounds):,.0f}")
    return f"| {name} | {' | '.join(parts)} |"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warehouses", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="few rows, to see that it runs")
    parser.add_argument("--clients", default="1,8,32", help="numbers of clients (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="of each run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, in turns (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("target/tpcc"), help="on the disk to be measured")
    return parser.parse_args()


def sides(server: Cluster | None, own: Place) -> dict[str, Place]:
    """The servers that are measured, by their names in the table."""
    found = {"Tidemill": own}
    if server is not None:
        for level in ("read committed", "serializable"):
            options = "-c default_transaction_isolation=" + level.replace(" ", "\\ ")
            startup = {"user": "ledger", "database": "postgres", "options": options}
            found[f"PostgreSQL, {level}"] = Place(("127.0.0.1", server.port), startup)
    return found


def compare(given: argparse.Namespace, scale: Scale, places: Mapping[str, Place]) -> None:
    """Measures all sides in turns, and prints the table."""
    print(f"{scale.warehouses} warehouses, {given.rounds} rounds of {given.seconds:g} s; p50 / p99 in ms")
    print(f"| | New-Orders a minute | {' | '.join(MIX)} | made again |\n|{'---|' * (len(MIX) + 3)}")
    for clients in map(int, given.clients.split(",")):
        rounds: dict[str, list[Round]] = {name: [] for name in places}
        for number in range(given.rounds):
            for name, place in places.items():
                rounds[name].append(measured(place, scale, clients, given.seconds, 100 * clients + number))
        for name, own in rounds.items():
            print(line(f"{name}, {clients} clients", own), flush=True)
    loop = Loop(scale)
    print(line("a loop over dicts", [looped(loop, scale, given.seconds, number) for number in range(given.rounds)]))


def main() -> int:
    """Measures, and checks the conditions. The exit code is 1 if one does not hold."""
    given = arguments()
    scale = SMALL if given.small else Scale(given.warehouses)
    given.folder.mkdir(parents=True, exist_ok=True)
    failed: Counter[str] = Counter()

    def check(name: str, count: Callable[[str], int]) -> None:
        found = broken(count, scale)
        failed[name] = len(found)
        print(f"{name}: {f'conditions broken: {found}' if found else 'all conditions hold'}", flush=True)

    binaries = programs()
    with tidemill(given.folder, scale) as (own, ask):
        if binaries is None:
            print("PostgreSQL: skipped, as no server is installed (Debian: postgresql)")
            compare(given, scale, sides(None, own))
        else:
            with cluster(given.folder, binaries, *SETTINGS) as server:
                server.sql(schema())
                fill(server, scale)
                print(f"PostgreSQL {server.version()} with {', '.join(SETTINGS)}")
                compare(given, scale, sides(server, own))
                quiet = ("-q", "-t", "-A", "-d", "postgres")
                check("PostgreSQL", lambda query: int(server.run("psql", *server.client, *quiet, "-c", query)))
        check("Tidemill", ask)
    return 1 if any(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
