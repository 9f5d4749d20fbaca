"""Connectors written in Python: read on, killed, refused."""

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest

import tidemill as tm

EVENTS = 2000


class Number(tm.Event):
    value: int


PROGRAM = """
    import os, signal, sqlite3, sys
    import tidemill as tm

    place, at, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    def dies(where, value):
        if where == place and value >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    class Number(tm.Event):
        value: int

    class Total(tm.Row):
        id: int = tm.key()
        sum: int = 0

    class Counter(tm.SourceConnector):
        def batches(self, after):
            print("after", after, flush=True)
            for start in range(int(after or 0), end, 50):
                dies("source", start)
                yield [{"value": value} for value in range(start, start + 50)], str(start + 50)

    class Database(tm.SinkConnector):
        def __init__(self):
            self.db = sqlite3.connect("out.db", check_same_thread=False, isolation_level=None)
            self.db.execute("create table if not exists results (value integer, sum integer)")
            self.db.execute("create table if not exists epochs (state text primary key, epoch integer)")

        def committed(self):
            row = self.db.execute("select epoch from epochs where state = ?", (self.state,)).fetchone()
            return row and row[0]

        def write(self, batch, epoch):
            rows = [(row["value"], row["sum"]) for row in batch.to_pylist()]
            last = rows[-1][0] if rows else 0
            self.db.execute("begin")
            self.db.executemany("insert into results values (?, ?)", rows)
            dies("before", last)
            self.db.execute("insert or replace into epochs values (?, ?)", (self.state, epoch))
            self.db.execute("commit")
            dies("behind", last)

    app = tm.App("sums")
    totals = app.table(Total, name="totals")
    numbers = app.source(Number, Counter(), name="numbers")

    @app.transaction(numbers)
    def add(ev, total=totals.row(lambda ev: 0, create=True)):
        total.sum += ev.value
        return {"value": ev.value, "sum": total.sum}

    app.sink(add.committed, Database())
    app.run(state="state", epoch=20, workers=1)
"""


def test_killed_anywhere_each_result_is_written_once(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    begun = []

    def run(place, at, end):
        """A run over the events up to ``end``, which is killed at a place by an event from ``at``."""
        arguments = [sys.executable, str(script), place, str(at), str(end)]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        code = 0 if place == "nowhere" else -signal.SIGKILL
        assert done.returncode == code, done.stdout + done.stderr
        begun.append(done.stdout.split())

    run("source", 300, 600)
    run("before", 500, 600)
    run("nowhere", 0, 700)
    run("behind", 800, 1000)
    run("source", 1100, 1500)
    run("behind", 1101, 1300)
    run("before", 1999, EVENTS)
    run("nowhere", 0, EVENTS)
    run("nowhere", 0, EVENTS)
    db = sqlite3.connect(tmp_path / "out.db")
    sums = [(value, value * (value + 1) // 2) for value in range(EVENTS)]
    assert db.execute("select value, sum from results order by rowid").fetchall() == sums
    assert begun[0] == ["after", "None"] and begun[3] == ["after", "700"]
    assert begun[-1] == ["after", str(EVENTS)], "the end of the input is a pause, after which it is asked for more"


class Numbers(tm.SourceConnector):
    """Integers up to a number; the offset is the next one."""

    def __init__(self, end):
        self.end = end

    def batches(self, after):
        for value in range(int(after or 0), self.end, 2):
            yield [{"value": v} for v in range(value, min(value + 2, self.end))], str(min(value + 2, self.end))


class Kept(tm.SinkConnector):
    """Keeps what it is given, in memory. Fails where it is told to."""

    def __init__(self, fails=()):
        self.calls = []
        self.fails = list(fails)

    def write(self, batch, epoch):
        values = [row["value"] for row in batch.to_pylist()]
        if any(value in self.fails for value in values):
            raise OSError("the disk is gone")
        self.calls.append((values, epoch))

    @property
    def values(self):
        return [value for values, _ in self.calls for value in values]


class Known(Kept):
    """Keeps the epoch, too."""

    epochs: dict[str, int]

    def __init__(self, epochs, fails=()):
        super().__init__(fails)
        self.epochs = epochs

    def committed(self):
        return self.epochs.get(self.state)

    def write(self, batch, epoch):
        super().write(batch, epoch)
        self.epochs[self.state] = epoch


def app_of(source, sink):
    app = tm.App("own")
    numbers = app.source(Number, source, name="numbers")
    app.sink(numbers, sink)
    return app


def test_without_a_state_a_sink_is_given_no_epochs():
    sink = Kept()
    summary = app_of(Numbers(7), sink).run(epoch=3)
    assert sink.values == list(range(7))
    assert {epoch for _, epoch in sink.calls} == {None}
    assert summary.events == 7


@pytest.mark.parametrize("form", ["list", "events", "arrow", "frames"])
def test_a_batch_is_what_a_run_takes_as_data(form):
    class Given(tm.SourceConnector):
        def batches(self, after):
            rows = [{"value": 1}, {"value": "many"}, {"value": 2}]
            if form == "events":
                rows = [Number(value=1), Number(value=2)]
            elif form == "arrow":
                rows = pytest.importorskip("pyarrow").table({"value": [1, 2]})
            elif form == "frames":
                pa = pytest.importorskip("pyarrow")
                rows = [pa.record_batch({"value": [1]}), pa.record_batch({"value": [2]})]
            yield [], "a"
            yield rows, "b"

    sink = Kept()
    app = app_of(Given(), sink)
    bad = app.collect(app.sources["numbers"].bad)
    app.run()
    assert sink.values == [1, 2]
    assert len(bad) == (1 if form == "list" else 0)


def test_it_is_the_first_rows_of_a_table():
    class Row(tm.Row):
        value: int = tm.key()

    app = tm.App("own")
    rows = app.table(Row, name="rows", rows=Numbers(5))
    app.source(Number, Numbers(1), name="numbers")
    app.run()
    assert [row["value"] for row in rows.to_pylist()] == [0, 1, 2, 3, 4]


def test_the_next_run_goes_on_after_the_last_offset(tmp_path):
    first, second = Kept(), Kept()
    app_of(Numbers(5), first).run(state=tmp_path / "state")
    app_of(Numbers(9), second).run(state=tmp_path / "state")
    assert (first.values, second.values) == ([0, 1, 2, 3, 4], [5, 6, 7, 8])


def test_after_a_failure_what_is_committed_is_not_written_again(tmp_path):
    epochs, runs = {}, []
    for fails in ([31], [70], []):
        runs.append(Known(epochs, fails))
        app = app_of(Numbers(100), runs[-1])
        if fails:
            with pytest.raises(OSError, match="the disk is gone"):
                app.run(state=tmp_path / "state", epoch=10, workers=1)
        else:
            app.run(state=tmp_path / "state", epoch=10, workers=1)
    assert [value for run in runs for value in run.values] == list(range(100))
    assert len(runs[0].values) <= 31 and len(runs[2].values) >= 30
    # Another state begins anew, whatever the epochs of the first one.
    other = Known(epochs)
    app_of(Numbers(4), other).run(state=tmp_path / "other")
    assert other.values == [0, 1, 2, 3] and len(epochs) == 2


def test_without_committed_the_last_epochs_are_written_again(tmp_path):
    runs = [Kept([31]), Kept()]
    with pytest.raises(OSError, match="the disk is gone"):
        app_of(Numbers(100), runs[0]).run(state=tmp_path / "state", epoch=10, workers=1)
    app_of(Numbers(100), runs[1]).run(state=tmp_path / "state", epoch=10, workers=1)
    assert runs[1].values == list(range(100))
    assert all(values for values, _ in runs[1].calls), "it is not called for nothing"


def test_events_that_cannot_be_asked_for_again_are_kept_by_the_state(tmp_path):
    class Queue(tm.SourceConnector):
        replays = False

        def __init__(self, *values):
            self.values = values

        def batches(self, after):
            assert after is None
            for value in self.values:
                yield [{"value": value}], None

    epochs, runs = {}, []
    runs.append(Known(epochs, [3]))
    with pytest.raises(OSError, match="the disk is gone"):
        app_of(Queue(1, 2, 3, 4), runs[-1]).run(state=tmp_path / "state", epoch=1, workers=1)
    runs.append(Known(epochs))
    app_of(Queue(7), runs[-1]).run(state=tmp_path / "state")
    values = [value for run in runs for value in run.values]
    assert values in ([1, 2, 3, 7], [1, 2, 3, 4, 7])


def test_a_changed_program_after_a_crash_is_refused(tmp_path):
    with pytest.raises(OSError, match="the disk is gone"):
        app_of(Numbers(100), Kept([31])).run(state=tmp_path / "state", epoch=10, workers=1)
    app = tm.App("own")
    app.sink(app.source(Number, Numbers(100), name="numbers").filter(lambda n: n.value > 3), Kept())
    with pytest.raises(tm.RunError, match="no connector 'python:Numbers'"):
        app.run(state=tmp_path / "state")


def test_events_that_the_state_kept_are_replayed_by_the_program_as_it_was(tmp_path):
    class Queue(tm.SourceConnector):
        replays = False

        def batches(self, after):
            for value in range(100):
                if value == 50 and fails:
                    time.sleep(0.5)
                    raise OSError("the line is cut")
                yield [{"value": value}], None

    fails = True
    out = tmp_path / "out.jsonl"
    with pytest.raises(OSError, match="the line is cut"):
        app_of(Queue(), tm.jsonl(out)).run(state=tmp_path / "state", epoch=1)
    fails = False
    app = tm.App("own")
    numbers = app.source(Number, Queue(), name="numbers")
    app.sink(numbers, tm.jsonl(out))
    app.sink(numbers.filter(lambda n: n.value > 90), tm.jsonl(tmp_path / "new.jsonl"))
    app.run(state=tmp_path / "state")
    values = [json.loads(line)["value"] for line in out.read_text().splitlines()]
    assert values == [*range(50), *range(100)], "what the state kept, and what is new to it"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([[{"value": 1}]], "gave a list; yield a batch and the offset after it"),
        ([([{"value": 1}], 5)], "gave the offset 5; an offset is a text"),
        ([([{"value": 1}], None)], "gave the offset None; give an offset, or set replays = False"),
        ([({"value": 1}, "a")], "gave a dict as a batch; yield Arrow data, or a list of dicts or events"),
        ([([5], "a")], "a record is an int"),
    ],
)
def test_what_is_no_batch_is_refused(items, message):
    class Wrong(tm.SourceConnector):
        def batches(self, after):
            yield from items

    with pytest.raises(tm.SchemaError, match=message):
        app_of(Wrong(), tm.null()).run()


@pytest.mark.parametrize("epoch", ["5", True, -1, 1.5])
def test_what_is_no_epoch_is_refused(tmp_path, epoch):
    class Wrong(Kept):
        def committed(self):
            return epoch

    with pytest.raises(TypeError, match=r"committed\(\) gave"):
        app_of(Numbers(3), Wrong()).run(state=tmp_path / "state")


def test_one_object_is_not_two_sinks():
    app = tm.App("own")
    numbers, kept = app.source(Number, Numbers(3), name="numbers"), Kept()
    app.sink(numbers, kept)
    app.sink(numbers, kept)
    with pytest.raises(tm.PlanError, match="the connector is that of sink 'numbers'"):
        app.sink(numbers.late, kept)


def test_two_sinks_keep_their_epochs_apart(tmp_path):
    epochs = {}
    app = tm.App("own")
    numbers = app.source(Number, Numbers(30), name="numbers")
    app.sink(numbers, Known(epochs), name="one")
    app.sink(numbers, Known(epochs), name="two")
    app.run(state=tmp_path / "state")
    assert sorted(state.split(" ")[-1] for state in epochs) == ["one", "two"]


def test_what_is_not_written_is_named(tmp_path):
    class Nothing(tm.SourceConnector):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing needs a method batches\(self, after\)"):
        app_of(Nothing(), Kept()).run()


def test_the_wrong_way_round_is_refused():
    app = tm.App("own")
    with pytest.raises(tm.PlanError, match="a source connector cannot be a sink"):
        app.sink(app.source(Number), Numbers(3))
    app = tm.App("own")
    app.source(Number, Kept())
    with pytest.raises(tm.PlanError, match="a sink connector cannot be a source"):
        app.run()


COMMAND = """
import tidemill as tm

class Number(tm.Event):
    value: int

class Numbers(tm.SourceConnector):
    def batches(self, after):
        for value in range(int(after or 0), 5):
            yield [{"value": value}], str(value + 1)

class Nowhere(tm.SinkConnector):
    def write(self, batch, epoch):
        pass

app = tm.App("own")
app.sink(app.source(Number, Numbers()), Nowhere())
"""


def command(folder, *arguments):
    ran = subprocess.run(
        [sys.executable, "-m", "tidemill", *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_the_command_knows_them(tmp_path):
    (tmp_path / "app.py").write_text(COMMAND)
    code, text = command(tmp_path, "check", "app.py")
    assert code == 0 and "source numbers: Numbers of the program" in text and "to Nowhere of the program" in text, text
    code, text = command(tmp_path, "run", "app.py", "--state", "state")
    assert code == 0, text
    code, text = command(tmp_path, "check", "app.py", "--state", "state")
    assert code == 0 and "source numbers goes on after offset '5'" in text, text


def test_an_unknown_kind_is_named_with_those_that_there_are(tmp_path):
    (tmp_path / "app.py").write_text(COMMAND.replace("Numbers()", 'tm.connector("pulsar", topic="numbers")'))
    code, text = command(tmp_path, "check", "app.py")
    known = "there is no connector 'pulsar'; there are clock, csv, generator, ipc, jsonl, kafka, null, parquet"
    assert code != 0 and f"source 'numbers': {known}" in text, text
    (tmp_path / "app.py").write_text(COMMAND.replace("Numbers()", 'tm.connector("csv", paths=["a"], delimiter=5)'))
    code, text = command(tmp_path, "check", "app.py")
    assert code != 0 and "source 'numbers': csv, option 'delimiter': invalid type" in text, text


def test_a_connector_by_its_kind(tmp_path):
    (tmp_path / "numbers.csv").write_text("value\n1\n2\n")
    sink = Kept()
    app_of(tm.connector("csv", paths=[str(tmp_path / "numbers.csv")]), sink).run()
    assert sink.values == [1, 2]
    with pytest.raises(tm.PlanError, match="are not JSON"):
        tm.connector("csv", paths={1})
    with pytest.raises(tm.PlanError, match="not a kind"):
        tm.connector("")
