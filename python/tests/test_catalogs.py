"""The catalogs of PostgreSQL, as its clients ask for them."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote, unquote_plus

import pytest
from test_jdbc import needs_pgjdbc, run_java
from test_postgres import BANK, connect

psycopg = pytest.importorskip("psycopg")
asyncpg = pytest.importorskip("asyncpg")
pytest.importorskip("duckdb")
Int8 = pytest.importorskip("psycopg.types.numeric").Int8

CAPTURED = json.loads((Path(__file__).parent / "catalog_queries.json").read_text(encoding="utf-8"))
"""The queries that clients have sent to a PostgreSQL 15 with the tables of ``BANK`` and the function ``deposit``,
and the names of the columns that it gave. Numbers of objects are 16384 instead. psql 15.18: its commands from \\d
to \\dp; pgjdbc 42.5.5: each method of ``DatabaseMetaData`` with rows; psycopg 3.3 and asyncpg 0.32: their
questions about types. DBeaver 24.2.4, its model without windows, by pgjdbc 42.7.2: connecting, each node of the
tree with its properties and its text, rows of a table, search, statistics, sessions and locks; ``reads`` is how
it read the columns, and numbers of objects are those of ``BANK``."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    import importlib.util

    path = tmp_path_factory.mktemp("catalogs") / "bank.py"
    path.write_text(BANK, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("catalogs_bank", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.app.start(workers=1) as mill, mill.serve(port=0, postgres_port=0) as served:
        mill.call(module.deposit, account="ada", amount=10)
        yield served


@pytest.mark.parametrize("query", CAPTURED, ids=[f"{q['client']}-{n}" for n, q in enumerate(CAPTURED)])
def test_captured_queries_are_answered(server, query):
    with connect(server, cursor_factory=psycopg.RawCursor) as db:
        found = asked(db, query)
        # The engine numbers the later of several columns with the same name.
        names = [column.name for column in found.description or ()]
        plain = [re.sub(r"_\d+$", "", name) if name not in query["columns"] else name for name in names]
        # A hidden column of PostgreSQL is not hidden here.
        assert [name for name in plain if name != "tableoid"] == query["columns"]


def asked(db, query):
    """The answer to a captured query. Numbers are bound as pgJDBC binds them."""
    given = [Int8(value) if isinstance(value, int) else value for value in query["parameters"]]
    return db.execute("\n".join(query["sql"]), given or None)


DBEAVER = [query for query in CAPTURED if query["client"] == "dbeaver"]
DEPOSIT = """CREATE OR REPLACE FUNCTION public.deposit(account text, amount bigint)
 RETURNS TABLE(account text, balance bigint)
 LANGUAGE tidemill
AS $function$deposit$function$
"""
DBEAVER_FINDS = {
    "databases": ("datname datallowconn", [("bank", "true")]),
    "database": ("current_database", [("bank",)]),
    "schemas": ("oid nspname", [("13000", "information_schema"), ("11", "pg_catalog"), ("2200", "public")]),
    "current schema": ("current_schema", [("public",)]),
    "search path": ("search_path", [("public",)]),
    "a setting": ("name setting", [("standard_conforming_strings", "on")]),
    "roles": ("rolname", [("tidemill",)]),
    "tablespaces": ("spcname", [("pg_default",), ("pg_global",)]),
    "languages": ("lanname", [("internal",), ("tidemill",)]),
    "access methods": ("amname", [("heap",), ("btree",)]),
    "collations": ("collname", [("default",), ("C",)]),
    "tables": ("oid relname relkind", [("16384", "accounts", "r"), ("16388", "entries", "r")]),
    "columns": (
        "attname attnum atttypid attnotnull def_value",
        [("id", "1", "25", "true", "null"), ("balance", "2", "20", "true", "null")],
    ),
    "constraints": ("conname contype conkey", [("accounts_pkey", "p", "{1}")]),
    "constraints of a schema": (
        "conname tabrelname conkey",
        [("accounts_pkey", "accounts", "{1}"), ("entries_pkey", "entries", "{1,2}")],
    ),
    "definition of a constraint": ("pg_get_constraintdef", [("PRIMARY KEY (id)",)]),
    "indexes": ("relname indisprimary indisunique keys", [("accounts_pkey", "true", "true", "{1}")]),
    "indexes of a schema": (
        "relname tabrelname relam keys",
        [("accounts_pkey", "accounts", "403", "{1}"), ("entries_pkey", "entries", "403", "{1,2}")],
    ),
    "definition of an index": (
        "pg_get_indexdef",
        [("CREATE UNIQUE INDEX accounts_pkey ON public.accounts USING btree (id)",)],
    ),
    "dependencies": ("refname deptype type", [("accounts_pkey", "a", "Cp"), ("accounts", "i", "y")]),
    "functions": (
        "proname prokind prorettype proretset proargtypes",
        [
            ("deposit", "f", "2249", "true", "25 20"),
            ("many", "f", "20", "true", "25 114"),
            ("note", "f", "2278", "false", "25"),
            ("post", "f", "2249", "true", "25 20 16 701 1700 1184 17 25"),
            ("transfer", "f", "20", "true", "25 25 20"),
        ],
    ),
    "definition of a function": ("pg_get_functiondef", [(DEPOSIT,)]),
    "privileges on tables": ("table_name privilege_type", [("accounts", "SELECT"), ("entries", "SELECT")]),
    "search for tables": ("oid relname", [("16384", "accounts")]),
    "search for constraints": ("conname", [("accounts_pkey",), ("entries_pkey",)]),
    "search for columns": (
        "attrelid attname",
        [("16388", "at"), ("16384", "balance"), ("16388", "flag"), ("16388", "rate"), ("16388", "raw")],
    ),
    "rows": ("id balance", [("ada", "10")]),
    "chosen rows": ("id balance", [("ada", "10")]),
    "count": ("count", [("1",)]),
    "count of chosen rows": ("count", [("1",)]),
    "values of a column": ("id count", [("ada", "1")]),
    "chosen values of a column": ("id count", [("ada", "1")]),
}
"""Some columns of each answer, and their values as texts, by the subject of the query."""


def check_dbeaver(found):
    for what, (names, rows) in DBEAVER_FINDS.items():
        assert sorted(tuple(row[name] for name in names.split()) for row in found[what]) == sorted(rows), what
    columns = [(row["attname"], row["atttypmod"], row["attnotnull"]) for row in found["columns of a schema"]]
    assert len(columns) == 10 and ("price", "786438", "true") in columns and ("note", "-1", "false") in columns
    assert {"int8", "numeric", "timestamptz", "bytea", "json"} <= {row["typname"] for row in found["types"]}
    executed = [row["specific_name"].split("_")[0] for row in found["privileges on functions"]]
    assert sorted(executed) == ["deposit", "many", "note", "post", "transfer"]


def test_dbeaver_finds_what_there_is(server):
    found = {}
    with connect(server, cursor_factory=psycopg.RawCursor) as db:
        for query in DBEAVER:
            if "what" in query:
                found[query["what"]] = texts(asked(db, query))
    check_dbeaver(found)


@needs_pgjdbc
def test_dbeaver_reads_it_by_pgjdbc(server):
    def line(query):
        sql = re.sub(r"\$\d+", "?", "\n".join(query["sql"]))
        given = [f"{'n' if isinstance(value, int) else 't'}{quote(str(value))}" for value in query["parameters"]]
        return "\t".join([quote(sql), " ".join(given), " ".join(map(quote, query["reads"]))])

    *rows, end = run_java(server, "Dbeaver.java", "\n".join(map(line, DBEAVER)))
    assert end == f"end {len(DBEAVER)}"
    found = {query["what"]: [] for query in DBEAVER if "what" in query}
    for row in rows:
        number, *values = row.split(" ")
        query = DBEAVER[int(number)]
        if "what" in query:
            names = [read.split(" ")[1] for read in query["reads"]]
            found[query["what"]].append(dict(zip(names, map(unquote_plus, values), strict=True)))
    check_dbeaver(found)


def texts(found):
    """Rows by the names of columns, each value as the text that Java has for it."""
    if found.description is None:
        return []
    names = [column.name for column in found.description]

    def text(row, place):
        value = found.pgresult.get_value(row, place)
        if value is None:
            return "null"
        return (
            {"t": "true", "f": "false"}[value.decode()] if found.description[place].type_code == 16 else value.decode()
        )

    return [{name: text(row, place) for place, name in enumerate(names)} for row in range(found.pgresult.ntuples)]


def psql(server, *commands):
    shown = [part for command in commands for part in ("-c", command)]
    ran = subprocess.run(
        ["psql", "-X", *shown, server.postgres_url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "LC_ALL": "C", "PAGER": ""},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


EXPECTED = """
                       Table "public.entries"
 Column |           Type           | Collation | Nullable | Default
--------+--------------------------+-----------+----------+---------
 book   | text                     |           | not null |
 number | bigint                   |           | not null |
 flag   | boolean                  |           | not null |
 rate   | double precision         |           | not null |
 price  | numeric(12,2)            |           | not null |
 at     | timestamp with time zone |           | not null |
 raw    | bytea                    |           | not null |
 note   | text                     |           |          |
Indexes:
    "entries_pkey" PRIMARY KEY, btree (book, number)
"""

needs_psql = pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed (postgresql-client)")


@needs_psql
def test_psql_describes_a_table(server):
    shown = [line.rstrip() for line in psql(server, r"\d entries").splitlines()]
    assert "\n".join(shown).strip() == EXPECTED.strip()


@needs_psql
def test_psql_lists_what_there_is(server):
    listed = psql(server, r"\dt")
    assert re.findall(r"public \| (\w+) +\| table", listed) == ["accounts", "entries"]
    functions = psql(server, r"\df")
    assert "account text, amount bigint" in functions and "TABLE(account text, balance bigint)" in functions
    assert re.findall(r"^ public \| (\w+)", functions, re.M) == ["deposit", "many", "note", "post", "transfer"]
    assert re.search(r"^ bank +\| tidemill", psql(server, r"\l"), re.M)
    assert "tidemill" in psql(server, r"\du") and re.search(r"^ public +\| tidemill", psql(server, r"\dn"), re.M)
    for command in (r"\d", r"\d+ accounts", r"\di", r"\dT", r"\dx", r"\dp", r"\df+ deposit", r"\dt+", r"\d acc*"):
        assert psql(server, command)


def test_names_and_numbers_of_objects(server):
    with connect(server) as db:
        assert db.execute("SELECT 'accounts'::regclass").fetchone() == ("accounts",)
        assert db.execute("SELECT 'accounts'::regclass::text, 'int8'::regtype::text").fetchone() == (
            "accounts",
            "bigint",
        )
        (number,) = db.execute("SELECT oid FROM pg_class WHERE relname = 'accounts'").fetchone()
        assert db.execute("SELECT %s::regclass::oid = 'accounts'::regclass", [number]).fetchone() in ((True,), (False,))
        assert db.execute("SELECT to_regclass('nothing')").fetchone() == (None,)
        with pytest.raises(psycopg.Error, match='relation "nothing" does not exist'):
            db.execute("SELECT 'nothing'::regclass")
        assert db.execute("SELECT format_type(1700, 786438), format_type(25, NULL)").fetchone() == (
            "numeric(12,2)",
            "text",
        )
        row = db.execute(
            "SELECT current_database(), current_user, current_setting('server_version_num') || ''"
        ).fetchone()
        assert row == ("bank", db.info.user, "150000")
        # Catalogs and tables stand in one query, and those of an application come first.
        query = "SELECT c.relname, a.balance FROM pg_class c, public.accounts a WHERE c.relname = 'accounts'"
        assert db.execute(query).fetchall() == [("accounts", 10)]
        assert db.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'pg\\_%'").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM pg_class WHERE relname ~ 'count'").fetchone() == (2,)


def test_the_schema_of_information(server):
    with connect(server) as db:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name"
        assert db.execute(query).fetchall() == [("accounts",), ("entries",)]
        query = """SELECT column_name, data_type, is_nullable, numeric_precision, numeric_scale
            FROM information_schema.columns WHERE table_name = 'entries' ORDER BY ordinal_position"""
        rows = db.execute(query).fetchall()
        assert rows[1] == ("number", "bigint", "NO", 64, 0)
        assert rows[4] == ("price", "numeric", "NO", 12, 2)
        assert rows[7] == ("note", "text", "YES", None, None)
        query = """SELECT k.column_name FROM information_schema.table_constraints t
            JOIN information_schema.key_column_usage k USING (constraint_name)
            WHERE t.table_name = 'entries' ORDER BY k.ordinal_position"""
        assert db.execute(query).fetchall() == [("book",), ("number",)]


@pytest.mark.parametrize("binary", [False, True])
def test_arrays_go_and_come(server, binary):
    with connect(server) as db:
        row = db.execute(
            "SELECT array_agg(x), array_agg(x || '\"a,') FROM generate_series(1, 2) AS g(x)", binary=binary
        )
        assert row.fetchone() == ([1, 2], ['1"a,', '2"a,'])
        query = "SELECT typname FROM pg_type WHERE oid = ANY(%s::oid[]) ORDER BY 1"
        assert db.execute(query, [[16, 25]], binary=binary).fetchall() == [("bool",), ("text",)]
        row = db.execute(
            "SELECT conkey, ARRAY[NULL, 0.5::float8] FROM pg_constraint WHERE conname = 'entries_pkey'", binary=binary
        )
        assert row.fetchone() == ([1, 2], [None, 0.5])


def test_asyncpg_asks_for_types(server):
    async def main():
        db = await asyncpg.connect(server.postgres_url)
        try:
            await db.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            assert await db.fetchval("SELECT typname FROM pg_type WHERE oid = ANY($1::oid[])", [20]) == "int8"
            assert await db.fetchval("SELECT conkey FROM pg_constraint WHERE conname = 'entries_pkey'") == [1, 2]
            assert await db.fetchval("SELECT 20 = ANY($1::bigint[])", [1, 20, None]) is True
            await db.reload_schema_state()
        finally:
            await db.close()

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_sqlalchemy_reflects(server, driver):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = server.postgres_url.replace("postgresql://", f"postgresql+{driver}://ada@")

    def look(connection):
        inspector = sqlalchemy.inspect(connection)
        assert inspector.get_schema_names() == ["information_schema", "public"]
        assert sorted(inspector.get_table_names()) == ["accounts", "entries"]
        assert inspector.get_view_names() == inspector.get_sequence_names() == inspector.get_enums() == []
        columns = {column["name"]: column for column in inspector.get_columns("entries")}
        assert repr(columns["price"]["type"]) == "NUMERIC(precision=12, scale=2)"
        assert repr(columns["at"]["type"]) == "TIMESTAMP(timezone=True)"
        assert [name for name, column in columns.items() if column["nullable"]] == ["note"]
        key = inspector.get_pk_constraint("entries")
        assert (key["constrained_columns"], key["name"]) == (["book", "number"], "entries_pkey")
        assert inspector.get_indexes("entries") == inspector.get_foreign_keys("entries") == []
        assert inspector.get_check_constraints("entries") == inspector.get_unique_constraints("entries") == []
        assert inspector.has_table("accounts") and not inspector.has_table("nothing")
        with pytest.raises(sqlalchemy.exc.NoSuchTableError):
            inspector.get_columns("nothing")
        tables = sqlalchemy.MetaData()
        tables.reflect(connection)
        accounts = tables.tables["accounts"]
        assert connection.execute(sqlalchemy.select(accounts.c.balance).where(accounts.c.id == "ada")).scalar() == 10
        assert connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(accounts)).scalar() == 1

    if driver == "psycopg":
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            look(connection)
        engine.dispose()
        return
    pytest.importorskip("greenlet")
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main():
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            await connection.run_sync(look)
        await engine.dispose()

    asyncio.run(main())


COMMANDS = (
    r"\d \d+ \da \dA \db \dc \dC \dd \dD \ddp \des \det \deu \dew \df \df+ \dF \dFd \dFp \dFt \dg \di \dl \dL \dm \dn"
    r" \do \dO \dp \dP \drds \dRp \dRs \ds \dS \dt \dt+ \dT \du \dv \dx \dX \dy \l \z"
).split()


@needs_psql
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_that_describes_is_answered(server, command):
    ran = subprocess.run(
        ["psql", "-X", "-c", command, server.postgres_url], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ran.returncode, "ERROR" in ran.stderr) == (0, False), ran.stderr
