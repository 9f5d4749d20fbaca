"""Extreme values of each type, through each format and each protocol, a table, and out again: equal or refused."""

import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

PROGRAM = """
import tidemill as tm

app = tm.App("exact")

class Given(tm.Event):
    n: int
    v: TYPE | None

class Kept(tm.Row):
    n: int = tm.key()
    v: TYPE | None = None

given = app.source(GIVEN)
kept = app.table(Kept)

@app.transaction(given)
def keep(ev, row=kept.row("n", create=True)):
    row.v = ev.v
    return {"n": ev.n, "v": row.v}

out = app.collect(keep.committed)
bad = app.collect(given.bad)
"""

FORMATS = {
    "csv": 'csv("{}.csv")',
    "csv with a text for None": 'csv("{}.csv", null="none")',
    "jsonl": 'jsonl("{}.jsonl")',
    "parquet": 'parquet("{}.parquet")',
    "ipc": 'ipc("{}.arrow")',
}


def micros(value):
    return EPOCH + timedelta(microseconds=value)


# The values that each type has, by type.
VALUES = {
    "bool": [True, False],
    "int": [0, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)],
    "float": [
        *(0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308),
        *(0.1, 1e22, 1e23, 9007199254740993.0, math.inf, -math.inf, math.nan),
    ],
    "tm.Decimal(18, 0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1), Decimal(0)],
    "tm.Decimal(18, 18)": [Decimal("0." + "9" * 18), Decimal("-0." + "0" * 17 + "1")],
    "tm.Decimal(4, 2)": [Decimal("99.99"), Decimal("-99.99"), Decimal("0.01"), Decimal("-0.50")],
    "tm.Time": [
        micros(value) for value in (0, -1, 1, -62_135_596_800_000_000, 253_402_300_799_999_999, -9_223_372_036_854_775)
    ],
    "str": [
        "",
        " ",
        "none",
        "None",
        "null",
        "NULL",
        '"',
        '""',
        "a,b",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\x00",
        "\ufeff",
        "\U0010ffff",
        "é" * 100,
    ],
    "bytes": [b"", b"\x00", b"\xff" * 100, b"none"],
}

# The texts that a text format may have but that are no values of the type, by type.
REFUSED = {
    "int": ["9223372036854775808", "-9223372036854775809", "12345678901234567890123456789012345678901", "1e3", "1.0"],
    "float": ["1e309", "-1e400"],
    "tm.Decimal(18, 0)": ["1000000000000000000", "0.5", "1e18"],
    "tm.Decimal(4, 2)": ["100.00", "0.001", "1e-3"],
    "tm.Time": ["9223372036854775808", "-9223372036854775809"],
}


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (one, math.copysign(1, one)) == (
            other,
            math.copysign(1, other),
        )
    return type(one) is type(other) and one == other


@pytest.fixture
def program(module, tmp_path, monkeypatch):
    """Makes a program over values of a type, which reads a file and writes one."""
    monkeypatch.chdir(tmp_path)

    def make(type_, source=None, sink=None):
        given = f"Given, tm.{source}" if source else "Given"
        text = PROGRAM.replace("TYPE", type_).replace("GIVEN", given)
        return module(f"{text}\napp.sink(keep.committed, tm.{sink})\n" if sink else text, prelude="")

    return make


def values_of(loaded, data=None):
    loaded.app.run(data or {})
    assert loaded.bad.to_pylist() == []
    emitted = {row["n"]: row["v"] for row in loaded.out.to_pylist()}
    kept = {row["n"]: row["v"] for row in loaded.kept.to_pylist()}
    assert all(same(kept[n], value) for n, value in emitted.items()) and len(kept) == len(emitted)
    return [kept[n] for n in sorted(kept)]


@pytest.mark.parametrize("type_", VALUES)
@pytest.mark.parametrize("first", FORMATS)
def test_values_come_back(program, type_, first):
    values = [None, *VALUES[type_], None]
    writes = program(type_, sink=FORMATS[first].format("first"))
    values_of(writes, {writes.given: [{"n": n, "v": value} for n, value in enumerate(values)]})
    for second, connector in FORMATS.items():
        passed = values_of(program(type_, FORMATS[first].format("first"), connector.format("second")))
        found = values_of(program(type_, connector.format("second")))
        for value, between, back in zip(values, passed, found, strict=True):
            assert same(value, between) and same(value, back), (second, value, between, back)


@pytest.mark.parametrize("type_", REFUSED)
def test_what_no_value_stands_for_is_bad(program, tmp_path, type_):
    texts = REFUSED[type_]
    (tmp_path / "a.csv").write_text("n,v\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {n}, "v": {text}}}\n' for n, text in enumerate(texts)))
    for name in ("csv", "jsonl"):
        loaded = program(type_, FORMATS[name].format("a"))
        loaded.app.run()
        assert loaded.out.to_pylist() == []
        assert [row["column"] for row in loaded.bad.to_pylist()] == ["v"] * len(texts)


def test_spark_s_times_are_exact(program):
    """The times have 96 bits, in a file that says nothing of Arrow."""
    times = [micros(value) for value in (-62_135_596_800_000_000, -1, 0, 253_402_300_799_999_999)]
    table = pa.table({"n": list(range(4)), "v": pa.array(times, pa.timestamp("us", "UTC"))})
    pq.write_table(table, "spark.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile("spark.parquet").schema.column(1).physical_type == "INT96"
    assert values_of(program("tm.Time", 'parquet("spark.parquet")')) == times


def test_nanoseconds_are_dropped_downwards_in_every_format(program, tmp_path):
    nanos = [-1, -999, -1000, -1001, 999, 1_000_000_001, -(2**63), 2**63 - 1]
    expected = [micros(value // 1000) for value in nanos]
    table = pa.table({"n": list(range(len(nanos))), "v": pa.array(nanos, pa.timestamp("ns"))})
    pq.write_table(table, "a.parquet")
    with pa.ipc.new_file("a.arrow", table.schema) as writer:
        writer.write_table(table)

    def text(value):
        seconds, rest = divmod(value, 10**9)
        return f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"

    lines = [(n, text(value)) for n, value in enumerate(nanos)]
    (tmp_path / "a.csv").write_text("n,v\n" + "".join(f"{n},{at}\n" for n, at in lines))
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n":{n},"v":"{at}"}}\n' for n, at in lines))
    for connector in FORMATS.values():
        assert values_of(program("tm.Time", connector.format("a"))) == expected, connector


def test_quotes_tell_the_empty_text_from_none(program, tmp_path):
    (tmp_path / "a.csv").write_text('n,v\n0,\n1,""\n2," "\n3,"a"\n')
    assert values_of(program("str", 'csv("a.csv")', 'csv("b.csv")')) == [None, "", " ", "a"]
    assert (tmp_path / "b.csv").read_text() == 'n,v\n0,\n1,""\n2, \n3,a\n'


CALLED = """
import tidemill as tm

app = tm.App("exact")

class Given(tm.Event):
    n: int
    v: TYPE | None

class Kept(tm.Row):
    n: int = tm.key()
    v: TYPE | None = None

given = app.requests(Given)
kept = app.table(Kept)

@app.transaction(given)
def put(ev, row=kept.row("n", create=True)):
    row.v = ev.v
    return {"n": ev.n, "v": row.v}
"""


@pytest.mark.parametrize("type_", VALUES)
def test_values_come_back_over_each_protocol(module, type_):
    psycopg = pytest.importorskip("psycopg")
    values = [*VALUES[type_], None]
    app = module(CALLED.replace("TYPE", type_), prelude="").app
    with app.start(workers=1) as mill, mill.serve(postgres_port=0) as server, tm.connect(server.url) as client:
        with psycopg.connect(server.postgres_url, autocommit=True) as db:

            def over_postgres(n, value):
                fields = db.execute("SELECT n, v FROM put(%s, %s)", (n, value)).fetchone()
                return dict(zip(("n", "v"), fields, strict=True))

            ways = [
                lambda n, value: mill.call("put", n=n, v=value).value,
                lambda n, value: client.put(n=n, v=value).value,
                lambda n, value: client.call_all("put", [{"n": n, "v": value}])[0].value,
                over_postgres,
            ]
            taken = {}
            for value in values:
                for way in ways:
                    n = len(taken)
                    # A text of PostgreSQL has no zero: its clients and we refuse it.
                    if way is over_postgres and value == "\x00":
                        with pytest.raises(psycopg.DataError, match="NUL"):
                            way(n, value)
                        continue
                    reply = way(n, value)
                    assert reply["n"] == n and same(reply["v"], value), (way, reply, value)
                    taken[n] = value
            for n, value in taken.items():
                assert same(mill.row("kepts", n)["v"], value) and same(client.row("kepts", n)["v"], value)
                if value != "\x00":
                    shown = db.execute("SELECT v FROM kepts WHERE n = %s", (n,)).fetchone()[0]
                    assert same(shown, value), (shown, value)
            query = "SELECT n, v FROM kepts ORDER BY n"
            for rows in (mill.sql(query).to_pylist(), client.sql(query), client.rows("kepts")):
                found = {row["n"]: row["v"] for row in rows}
                assert found.keys() == taken.keys()
                assert all(same(found[n], value) for n, value in taken.items()), (found, taken)
