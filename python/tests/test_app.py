"""Declarations, connectors, and what a run is given."""

import json
from datetime import timedelta

import pytest

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


REFUSED = [
    (
        lambda a: a.source(CardTransfer, lateness=5),
        "stream 'card_transfers': the lateness 5 has no unit; write a text such as '2s'",
    ),
    (
        lambda a: a.source(CardTransfer, lateness="2 weeks"),
        "stream 'card_transfers': the lateness '2 weeks' is no duration; write a whole number and us, ms, s, m, h or d, such as '2s'",
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
        "stream 'plains': a str is no connector; write tm.csv(...) or another connector; give data to app.run(plains=...)",
    ),
    (lambda a: (a.source(Plain), a.source(Plain)), "stream 'plains': the name is taken; give it another with name="),
    (
        lambda a: a.source(Plain, name="a b"),
        "source: 'a b' is no name; write letters, digits and _, such as 'transfers'",
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
        "an int is no stream; write transfer.committed, transfers.late or another stream",
    ),
    (lambda a: a.sink(a.source(Plain), 1), "an int is no sink; give a connector such as tm.jsonl(...), or a function"),
    (lambda a: a.sink(a.source(Plain), tm.csv(["a", "b"])), "a csv sink has 2 paths; a sink writes one file"),
    (lambda a: a.sink(a.source(Plain), tm.generator()), "generator cannot be a sink"),
    (lambda a: a.source(Plain, tm.null()) and a.job(), "null cannot be a source"),
    (
        lambda a: a.table(Account).row("a", "b"),
        "table 'accounts': the key has 1 column, not 2; give one for each of: id",
    ),
    (
        lambda a: a.table(Account).row(1),
        "table 'accounts': 1 is no key; write the path of a field, such as \"src\", or a lambda",
    ),
    (lambda a: a.table(Account).new("a", owner="b"), "table 'accounts': 'owner' is no column; columns are balance"),
    (lambda a: a.table(Account).new("a", id="b"), "table 'accounts': 'id' is a key column; columns are balance"),
    (lambda a: a.run(x=[]), "there is no source 'x'; sources: there is none"),
    (lambda a: tm.csv([]), "a connector without paths; give at least one path"),
    (lambda a: tm.csv("a", delimiter=";;"), "the delimiter ';;' is not one ASCII character"),
    (lambda a: tm.jsonl("a", compression="lzma"), "there is no compression 'lzma'; choose one of none, gzip, zstd"),
    (
        lambda a: tm.generator(n=object),
        "<class 'object'> is a type, which cannot be generated; give a value of the field's type",
    ),
    (lambda a: tm.App(""), "'' is no name for an application; write tm.App('bank')"),
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
    ran = testing.run(app, ticks=[])
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
    assert json.loads(connector.source_spec()) == source
    if sink is not None:
        assert json.loads(connector.sink_spec()) == sink


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
        tm.RunError, match=r"source 'ticks' has no data; give it a connector, or data: app.run\(ticks=...\)"
    ):
        app.run()
    summary = app.run(ticks=[{"n": 1}], workers=2, epoch=100)
    (job,) = engine
    assert (job.workers, job.epoch) == (2, "100")
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
    app.run(ticks=[])
    assert pyarrow.table(collected).to_pylist() == [{"n": 1}, {"n": 2}]
    assert polars.DataFrame(collected)["n"].to_list() == [1, 2]
    assert collected.to_arrow().num_rows == 2


def test_testing_collects_everything(app, engine):
    ticks = app.source(Tick, tm.csv("never-opened.csv"))
    app.sink(ticks, tm.csv("never-opened-either.csv"))
    some = ticks.filter(lambda e: e.n > 1)
    ran = testing.run(app, ticks=[{"n": 1}])
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
    assert loaded.t.emits == ["a", "alerts"]
    with pytest.raises(tm.PlanError, match="transaction 't': nothing is emitted as 'b'; it emits a, alerts"):
        loaded.t.emitted("b")
    with pytest.raises(TypeError, match="transaction 't' is compiled and cannot be called"):
        loaded.t(1)


def test_explain_names_streams(app):
    app.source(Tick)
    assert "ticks" in app.explain()


def test_summary_of_nothing():
    assert tm.RunSummary.from_json({}) == tm.RunSummary()
