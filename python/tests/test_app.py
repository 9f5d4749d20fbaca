"""Declarations, connectors, and what a run is given."""

import json
import linecache
from datetime import timedelta

import pytest
from conftest import PRELUDE

import tidemill as tm
from tidemill import _engine, testing


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0


class CardTransfer(tm.Event):
    at: tm.Time = tm.event_time()
    src: str
    amount: int


class Tick(tm.Event):
    n: int = tm.event_time()


class Plain(tm.Event):
    n: int


@pytest.fixture
def app():
    return tm.App("bank")


@pytest.mark.parametrize(
    ("noun", "plural"),
    [
        ("Fix", "fixes"),
        ("Address", "addresses"),
        ("StockEntry", "stock_entries"),
        ("Day", "days"),
        ("Match", "matches"),
        ("Order", "orders"),
    ],
)
def test_names_are_plurals(app, noun, plural):
    row = type(noun, (tm.Row,), {"__annotations__": {"id": int}, "id": tm.key(), "__module__": __name__})
    event = type(noun, (tm.Event,), {"__annotations__": {"id": int}, "__module__": __name__})
    assert app.table(row).name == app.source(event).name == plural


CELL = """
rows = [{"id": "ada", "balance": 100}]
accounts = app.table(Account, name="more", rows=rows and [dict(row) for row in rows])
transfers = app.source(Transfer, tm.csv("x.csv"), name="payments", lateness="2s")
large = transfers.filter(lambda e: e.amount > LIMIT)
small = transfers.map(lambda e: {"at": e.at, "n": e.amount}, name="small")

@app.transaction(large)
def pay(ev, src=accounts.row("src")):
    src.balance -= ev.amount
    tm.emit(Alert(at=ev.at, text="paid"))

def show(batch):
    seen.append(batch)

app.sink(pay.committed, tm.jsonl("done.jsonl"))
app.sink(pay.committed, show)
app.sink(pay.aborted, seen.append)
late = app.collect(transfers.late)
"""


def test_a_cell_that_runs_again_declares_the_same():
    names = {"__name__": "notebook"}

    def run(cell, file):
        """As a notebook does: each cell is a file of its own, and all share their names."""
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), names)

    run(PRELUDE + "seen = []\nLIMIT = 5\n", "<first>")
    run(CELL, "<cell>")
    once, plan = dict(names), json.loads(names["app"].plan())
    run("\n\n" + CELL, "<the cell, edited>")
    assert json.loads(names["app"].plan()) == plan
    for name in ("accounts", "transfers", "large", "small", "pay", "late"):
        assert names[name] is once[name], name
    # A constant from outside is a part of the body.
    with pytest.raises(tm.PlanError, match="stream 'small': it is declared already, and not as here"):
        run(CELL.replace('"n": e.amount', '"n": LIMIT'), "<another>")


def test_another_body_takes_the_place_of_the_first_where_it_is_said(module):
    loaded = module("""
        def declare(change, **options):
            @app.transaction(transfers, name="pay", **options)
            def pay(ev, src=accounts.row("src")):
                src.balance -= change
            return pay

        def refused():
            @app.transaction(transfers, name="pay", replace=True)
            def pay(ev, src=accounts.row("src")):
                src.nothing -= 1

        first = declare(1)
        app.sink(first.committed, tm.null())
    """)
    assert loaded.declare(1) is loaded.first
    with pytest.raises(tm.PlanError, match="transaction 'pay': it is declared already"):
        loaded.declare(2)
    before = loaded.app.plan()
    with pytest.raises(tm.CompileError, match="nothing"):
        loaded.refused()
    assert loaded.app.plan() == before, "what cannot be compiled takes no place"
    second = loaded.declare(2, replace=True)
    assert loaded.app.transactions == {"pay": second}
    assert len(json.loads(loaded.app.plan())["transactions"]) == 1
    assert loaded.declare(2) is second


def test_tables_sources_and_sinks_are_replaced(app):
    class Other(tm.Row):
        id: str = tm.key()
        funds: int = 0

    app.table(Account)
    assert app.table(Other, name="accounts", replace=True) is app.tables["accounts"]
    rows = [{"id": "a"}]
    table = app.table(Other, name="accounts", rows=rows, replace=True)
    assert app.table(Other, name="accounts", rows=[{"id": "a"}]) is table is app.tables["accounts"]
    source = app.source(Plain, tm.csv("a.csv"))
    assert app.source(Plain, tm.csv("a.csv")) is source
    assert app.source(Plain, tm.csv("b.csv"), replace=True) is app.sources["plains"] is not source
    app.sink(source, tm.csv("x.csv"), name="out")
    app.sink(source, tm.csv("y.csv"), name="out", replace=True)
    assert json.loads(app._sinks["out"])["path"] == "y.csv"
    # Without a name another place is another sink, and the same place is the same.
    for _ in range(2):
        for path in ("u.csv", "v.csv"):
            app.sink(source, tm.csv(path))
    assert list(app._sinks) == ["out", "plains", "plains_2"]


def test_functions_that_take_other_values_are_other_sinks(app):
    source = app.source(Plain)
    for number in range(2):
        app.sink(source, lambda batch, number=number: print(number))
        app.sink(source, (lambda value: lambda batch: print(value))(number))
    assert len(app._sinks) == 4


def test_names(app):
    assert app.table(Account).name == "accounts"
    assert app.source(CardTransfer).name == "card_transfers"
    assert app.source(CardTransfer, name="more").label == "more"
    assert list(app.tables) == ["accounts"]
    assert list(app.sources) == ["card_transfers", "more"]


@pytest.mark.parametrize(
    ("cls", "lateness", "units"),
    [
        (CardTransfer, "2s", 2_000_000),
        (CardTransfer, "500ms", 500_000),
        (CardTransfer, "3 h", 3 * 3_600_000_000),
        (CardTransfer, timedelta(minutes=1), 60_000_000),
        (CardTransfer, 0, 0),
        (Tick, 5, 5),
        (Plain, 0, 0),
    ],
)
def test_lateness(app, cls, lateness, units):
    app.source(cls, lateness=lateness)
    assert json.loads(app.plan())["streams"][0]["origin"]["source"]["lateness"] == units


OTHERWISE = (
    "it is declared already, and not as here; give this one another name with name=, "
    "or put it in the place of that one with replace=True"
)


def one(event):
    return {"n": 1}


def two(event):
    return {"n": 2}


REFUSED = [
    (
        lambda a: a.source(CardTransfer, lateness=5),
        "stream 'card_transfers': the lateness 5 has no unit; write a text such as '2s'",
    ),
    (
        lambda a: a.source(CardTransfer, lateness="2 weeks"),
        "stream 'card_transfers': the lateness '2 weeks' is not a duration; write a whole number and us, ms, s, m, h or d, such as '2s'",
    ),
    (
        lambda a: a.source(Tick, lateness="2s"),
        "stream 'ticks': the lateness '2s' is a duration but the event time 'n' is an int; write a number in the unit of the event time",
    ),
    (
        lambda a: a.source(Plain, lateness="2s"),
        "stream 'plains': a lateness without an event time; mark a field of Plain with tm.event_time(), or leave lateness out",
    ),
    (
        lambda a: a.source(CardTransfer, lateness=-timedelta(1)),
        "stream 'card_transfers': the lateness datetime.timedelta(days=-1) is out of range",
    ),
    (lambda a: a.source(Account), "Account cannot be a source; make it a subclass of tm.Event"),
    (lambda a: a.table(Plain), "Plain cannot be a table; make it a subclass of tm.Row"),
    (
        lambda a: a.source(Plain, "x.csv"),
        "stream 'plains': a str is not a connector; write tm.csv(...) or another connector; give data to app.run({'plains': ...})",
    ),
    (lambda a: (a.source(Plain), a.source(Tick, name="plains")), f"stream 'plains': {OTHERWISE}"),
    (lambda a: (a.source(Plain), a.source(Plain, tm.csv("x.csv"))), f"stream 'plains': {OTHERWISE}"),
    (lambda a: (a.table(Account), a.table(Account, rows=[{"id": "a"}])), f"table 'accounts': {OTHERWISE}"),
    (lambda a: [a.sink(a.source(Plain), to, name="out") for to in (print, repr)], f"sink 'out': {OTHERWISE}"),
    (lambda a: [a.source(Plain).map(f, name="m") for f in (one, two)], f"stream 'm': {OTHERWISE}"),
    (
        lambda a: a.source(Plain, name="a b"),
        "source: 'a b' is not a name; write letters, digits and _, such as 'transfers'",
    ),
    (lambda a: a.transaction(), "a transaction runs on one or several streams; write @app.transaction(transfers)"),
    (
        lambda a: a.transaction(tm.App("other").source(Plain)),
        "stream 'plains' belongs to the application 'other', not to 'bank'; an application uses what is declared on it",
    ),
    (
        lambda a: a.collect(tm.App("bank").source(Plain)),
        "stream 'plains' belongs to another application that is called 'bank' too; tm.App(...) has run again since it was declared: declare it again",
    ),
    (
        lambda a: a.sink(1, tm.csv("x")),
        "an int is not a stream; write transfer.committed, transfers.late or another stream",
    ),
    (
        lambda a: a.sink(a.source(Plain), 1),
        "an int is not a sink; give a connector such as tm.jsonl(...), or a function",
    ),
    (lambda a: a.sink(a.source(Plain), tm.csv(["a", "b"])), "a csv sink has 2 paths; a sink writes one file"),
    (lambda a: a.sink(a.source(Plain), tm.generator()), "generator cannot be a sink"),
    (lambda a: a.source(Plain, tm.null()) and a._job(), "null cannot be a source"),
    (
        lambda a: a.table(Account).row("a", "b"),
        "table 'accounts': the key has 1 column, not 2; give one for each of: id",
    ),
    (
        lambda a: a.table(Account).row(1),
        "table 'accounts': 1 is not a key; write the path of a field, such as \"src\", or a lambda",
    ),
    (lambda a: a.table(Account).new("a", owner="b"), "table 'accounts': 'owner' is not a column; columns are balance"),
    (lambda a: a.table(Account).new("a", id="b"), "table 'accounts': 'id' is a key column; columns are balance"),
    (lambda a: a.run({"x": []}), "there is no source 'x'; sources: there is none"),
    (lambda a: tm.csv([]), "a connector without paths; give at least one path"),
    (lambda a: tm.csv("a", delimiter=";;"), "the delimiter ';;' is not one ASCII character"),
    (lambda a: tm.jsonl("a", compression="lzma"), "there is no compression 'lzma'; choose one of none, gzip, zstd"),
    (
        lambda a: tm.generator(n=object),
        "<class 'object'> is a type, which cannot be generated; give a value of the field's type",
    ),
    (lambda a: tm.App(""), "'' is not a name for an application; write tm.App('bank')"),
]


@pytest.mark.parametrize(("declare", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused(app, declare, message):
    with pytest.raises(tm.PlanError) as error:
        declare(app)
    assert str(error.value) == message


def test_what_another_application_declared_is_refused(module):
    """Also where this one has a table of that name, which the plan would take silently."""
    loaded = module("""
        other = tm.App("other")
        theirs = other.table(Account)
        again = tm.App("bank").table(Account)
    """)
    for table, owner in [
        ("theirs", "the application 'other', not to 'bank'"),
        ("again", "another application that is called 'bank' too"),
    ]:
        with pytest.raises(tm.CompileError) as error:
            module(
                f"""
                from {loaded.__name__} import app, {table}, transfers

                @app.transaction(transfers)
                def t(ev, src={table}.row("src")):
                    src.balance += ev.amount
            """,
                prelude="",
            )
        assert f"table 'accounts' belongs to {owner}" in str(error.value)
        assert error.value.text[error.value.offset - 1 : error.value.end_offset - 1] == f'{table}.row("src")'


def test_a_test_looks_at_streams_of_its_application(app, engine):
    app.source(Tick)
    ran = testing.run(app, {"ticks": []})
    with pytest.raises(tm.PlanError, match="stream 'ticks' belongs to another application"):
        ran.stream(tm.App("bank").source(Tick))


def test_no_key(app):
    class Log(tm.Row):
        text: str

    with pytest.raises(tm.PlanError, match="table 'logs': no column is the key; mark a column of Log with tm.key"):
        app.table(Log)


CONNECTORS = [
    (
        tm.csv("a.csv"),
        {"kind": "csv", "paths": ["a.csv"], "delimiter": ",", "null": "", "compression": None},
        {"kind": "csv", "path": "a.csv", "delimiter": ",", "null": "", "compression": None},
    ),
    (
        tm.csv("a", delimiter=";", null="-", compression="gzip"),
        {"kind": "csv", "paths": ["a"], "delimiter": ";", "null": "-", "compression": "gzip"},
        None,
    ),
    (
        tm.csv(["a*.csv", "b"]),
        {"kind": "csv", "paths": ["a*.csv", "b"], "delimiter": ",", "null": "", "compression": None},
        None,
    ),
    (
        tm.jsonl("-"),
        {"kind": "jsonl", "paths": ["-"], "compression": None},
        {"kind": "jsonl", "path": "-", "compression": None},
    ),
    (tm.parquet("p"), {"kind": "parquet", "paths": ["p"]}, {"kind": "parquet", "path": "p"}),
    (
        tm.parquet("p", compression="lz4"),
        {"kind": "parquet", "paths": ["p"]},
        {"kind": "parquet", "path": "p", "compression": "lz4"},
    ),
    (tm.ipc("i"), {"kind": "ipc", "paths": ["i"]}, {"kind": "ipc", "path": "i"}),
    (
        tm.generator(
            events=10,
            rate=2.5,
            seed=3,
            at=tm.sequence(tm.Time(1970, 1, 2), tm.seconds(1)),
            src=tm.zipf(100, 0.99, format="acct-{}"),
            amount=tm.uniform(1, 5),
            price=tm.choice([tm.Decimal("1.50"), None], weights=[1, 2]),
            raw=tm.nullable(0.5, tm.constant(b"a")),
            kind="x",
        ),
        {
            "kind": "generator",
            "events": 10,
            "rate": 2.5,
            "seed": 3,
            "columns": [
                ["at", {"kind": "sequence", "start": 86_400_000_000, "step": 1_000_000}],
                ["src", {"kind": "zipf", "count": 100, "theta": 0.99, "format": "acct-{}"}],
                ["amount", {"kind": "uniform", "low": 1, "high": 5}],
                ["price", {"kind": "choice", "values": ["1.50", None], "weights": [1.0, 2.0]}],
                ["raw", {"kind": "nullable", "probability": 0.5, "values": {"kind": "constant", "value": "YQ=="}}],
                ["kind", {"kind": "constant", "value": "x"}],
            ],
        },
        None,
    ),
]


@pytest.mark.parametrize(("connector", "source", "sink"), CONNECTORS, ids=[repr(c[0])[:40] for c in CONNECTORS])
def test_connectors(connector, source, sink):
    assert json.loads(connector._source_spec()) == source
    if sink is not None:
        assert json.loads(connector._sink_spec()) == sink


SUMMARY = {
    "application": "bank",
    "events": 2,
    "sources": [{"name": "ticks", "events": 2, "late": 1, "bad": 3, "last_time": None, "held": 0}],
    "transactions": [
        {"name": "t", "committed": 1, "aborted": 2, "reasons": [["no", 2]]},
        {"name": "u", "committed": 4, "aborted": 3, "reasons": [["no", 1], ["never", 2]]},
    ],
    "latency": {"p50_ms": 1.5, "p99_ms": 2.5},
    "of_a_newer_module": 1,
}


@pytest.fixture
def engine(monkeypatch):
    """Stands in for a run: keeps the job, and gives empty frames."""
    jobs = []

    def run(job):
        jobs.append(job)
        frame = _engine.batch([{"name": "n", "type": {"scalar": {"type": "int"}}}], [[1, 2]], "x", 1)
        plan = json.loads(job.plan)
        return _engine.Outcome(
            SUMMARY,
            {s["name"]: frame for s in plan["sinks"]},
            {t["name"]: frame for t in plan["tables"]},
        )

    monkeypatch.setattr(_engine, "run", run)
    return jobs


def test_run(app, engine):
    accounts = app.table(Account, rows=[{"id": "a"}])
    ticks = app.source(Tick)
    app.source(Tick, tm.csv("p.csv"), name="plains")
    app.sink(ticks, print)
    app.sink(ticks.late, tm.jsonl("late.jsonl"))
    bad = app.collect(ticks.bad)
    with pytest.raises(tm.RunError, match="has no rows before"):
        bad.to_pylist()
    with pytest.raises(
        tm.RunError, match=r"source 'ticks' has no data; give it a connector, or data: app.run\({\"ticks\": ...}\)"
    ):
        app.run()
    summary = app.run({"ticks": [{"n": 1}]}, workers=2, epoch=100)
    (job,) = engine
    assert job.options == {"workers": "2", "epoch": "100", "latency": "10ms", "scheduling": "auto"}
    assert job.sinks["ticks"] is print
    assert json.loads(job.sinks["ticks.late"])["kind"] == "jsonl"
    assert json.loads(job.sinks["ticks.bad"]) == {"kind": "collect"}
    assert json.loads(job.sources["plains"])["paths"] == ["p.csv"]
    assert [b.to_pylist() for b in job.sources["ticks"]] == [[{"n": 1}]]
    assert [b.to_pylist() for b in job.tables["accounts"]] == [[{"id": "a", "balance": 0}]]
    assert (summary.events, summary.committed, summary.aborted) == (2, 5, {"no": 3, "never": 2})
    assert (summary.late, summary.bad, summary.latency.p99_ms) == (1, 3, 2.5)
    assert summary.sources[0].name == "ticks"
    assert bad.to_pylist() == accounts.to_pylist() == [{"n": 1}, {"n": 2}]
    assert len(bad) == 2


def test_collected_rows_are_arrow(app, engine):
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    collected = app.collect(app.source(Tick))
    app.run({"ticks": []})
    assert pyarrow.table(collected).to_pylist() == [{"n": 1}, {"n": 2}]
    assert polars.DataFrame(collected)["n"].to_list() == [1, 2]
    assert collected.to_arrow().num_rows == 2


def test_testing_collects_everything(app, engine):
    ticks = app.source(Tick, tm.csv("never-opened.csv"))
    app.sink(ticks, tm.csv("never-opened-either.csv"))
    some = ticks.filter(lambda e: e.n > 1)
    ran = testing.run(app, {"ticks": [{"n": 1}]})
    assert set(engine[0].sinks) == {"ticks", "ticks.late", "ticks.bad", "ticks_filter", "ticks_filter.failed"}
    assert ran.stream(some) == ran.stream("ticks.bad") == [{"n": 1}, {"n": 2}]
    with pytest.raises(tm.PlanError, match="there is no table 'x'"):
        ran.table("x")


def test_emitted_names(module):
    loaded = module("""
        @app.transaction(transfers)
        def t(ev):
            if ev.amount > 1:
                for i in range(2):
                    tm.emit("a", {"i": i})
            tm.emit(Alert(at=ev.at, text="x"))
    """)
    assert loaded.t._emits == ["a", "alerts"]
    with pytest.raises(tm.PlanError, match="transaction 't': nothing is emitted as 'b'; it emits a, alerts"):
        loaded.t.emitted("b")
    with pytest.raises(TypeError, match="transaction 't' is compiled and cannot be called"):
        loaded.t(1)


def test_explain_names_streams(app):
    app.source(Tick)
    assert "ticks" in app.explain()


def test_summary_of_nothing():
    assert tm.RunSummary.from_json({}) == tm.RunSummary()
