"""Runs with a state: gone on with, killed, refused."""

import gzip
import random
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict

import pytest
from server_process import WAIT_SECONDS, until

import tidemill as tm
from tidemill import _engine, testing
from tidemill.options import RunOptions


class Account(tm.Row):
    id: int = tm.key()
    balance: int = 0


class Transfer(tm.Event):
    at: int = tm.event_time()
    src: int
    dst: int
    amount: int


class Renamed(tm.Row):
    id: int = tm.key()
    funds: int = 0


def bank(state, row=Account, name="bank", **options):
    app = tm.App(name)
    accounts = app.table(row, name="accounts", rows=[{"id": i} for i in range(10)])
    transfers = app.source(Transfer, name="transfers")
    if row is Account:

        @app.transaction(transfers)
        def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
            src.balance -= ev.amount
            dst.balance += ev.amount

    def run(count, **more):
        return app.run({"transfers": events(count)}, state=state, **options, **more)

    return app, accounts, run


EVENT = {"src": 0, "dst": 0, "amount": 0}


def events(count):
    """So many events, or those of a range of times."""
    times = range(count) if isinstance(count, int) else count
    return [{"at": at, "src": at % 10, "dst": at * 7 % 10, "amount": at} for at in times]


def test_a_run_goes_on_where_the_one_before_it_ended(tmp_path):
    app, accounts, run = bank(None)
    run(150)
    expected = accounts.to_pylist()
    app, accounts, run = bank(tmp_path / "state")
    assert run(100).events == 100
    app, accounts, run = bank(tmp_path / "state")
    assert run(0).events == 0
    assert run(range(100, 150)).events == 50, "these follow"
    assert accounts.to_pylist() == expected


def test_the_end_is_a_pause_unless_it_is_final(tmp_path):
    """An event that is still to come may be earlier than the last ones, which are kept for it."""

    def ran(state, *days, **options):
        app = tm.App("bank")
        transfers = app.source(Transfer, lateness=5)
        taken = []
        app.sink(transfers, lambda batch: taken.extend(row["at"] for row in batch.to_pylist()))
        return [app.run({transfers: [EVENT | {"at": at} for at in day]}, state=state, **options) for day in days], taken

    _, expected = ran(None, [1, 9, 12, 10, 20])
    (monday,), taken = ran(tmp_path / "state", [1, 9, 12])
    source = monday.sources[0]
    assert (taken, source.events, source.held, source.paused) == ([1], 1, 2, True)
    assert (source.held_until, source.held_by, source.held_from) == (12, "transfers", 7)
    assert source.waits.startswith("2 events held, up to 12: transfers may still have an event from 7 on; more events")
    (tuesday,), more = ran(tmp_path / "state", [10, 20])
    assert (more, tuesday.sources[0].held) == ([9, 10, 12], 1)
    (final,), last = ran(tmp_path / "state", [], final=True)
    assert taken + more + last == expected
    assert (final.sources[0].held, final.sources[0].waits, final.sources[0].paused) == (0, None, False)
    (after,), _ = ran(tmp_path / "state", [])
    assert after.sources[0].ended_before
    with pytest.raises(tm.RunError, match="'transfers': it has ended for good"):
        ran(tmp_path / "state", [30])
    with pytest.raises(tm.PlanError, match="is not a bool"):
        ran(tmp_path / "state", [], final="yes")


def test_a_grown_file_is_read_on(tmp_path):
    def ran(**more):
        app = tm.App("bank")
        transfers = app.source(Transfer, tm.csv(tmp_path / "*.csv", **more), lateness=2)
        collected = app.collect(transfers)
        return app.run(state=tmp_path / "state"), [row["at"] for row in collected.to_pylist()]

    first = tmp_path / "a.csv"
    first.write_text("at,src,dst,amount\n1,0,0,0\n2,0,0,0\n5,0,0,0\n6,0")
    summary, taken = ran()
    assert (taken, summary.sources[0].held, summary.bad) == ([1, 2], 1, 0), "an incomplete line is waited for"
    with first.open("a") as file:
        file.write(",0,0\n9,0,0,0\n")
    assert ran()[1] == [5, 6]
    (tmp_path / "b.csv").write_text("at,src,dst,amount\n8,0,0,0\n")
    summary, taken = ran(last=True)
    assert (taken, summary.sources[0].held) == ([8, 9], 0)
    (tmp_path / "c.csv").write_text("at,src,dst,amount\n10,0,0,0\n")
    with pytest.raises(tm.RunError, match="has ended for good"):
        ran()


def test_what_a_connector_may_say_of_its_end():
    with pytest.raises(tm.PlanError, match="a source that is followed has no last event"):
        tm.csv("a.csv", last=True, follow=True)
    app = tm.App("bank")
    with pytest.raises(tm.PlanError, match="last=True is for sources"):
        app.sink(app.source(Transfer), tm.jsonl("a.jsonl", last=True))
    app.table(Account, rows=tm.csv("a.csv", follow=True))
    with pytest.raises(tm.PlanError, match="the first rows of a table cannot be followed"):
        app.run({"transfers": []})


def test_the_summary_tells_of_the_log_the_weaker_mode_and_the_memory(tmp_path):
    app, _, run = bank(None)
    assert run(100).durability is None
    app, _, run = bank(tmp_path / "plain")
    did = run(100, epoch=10).durability
    assert (did.epoch, did.checkpoints) == (10, 1)
    assert did.log_bytes > 0
    assert did.sync_seconds is None and did.memory is None
    app, _, run = bank(tmp_path / "other", sync="50ms", memory="32MiB")
    did = run(100).durability
    assert (did.sync_seconds, did.lost_epochs) == (0.05, 0)
    assert did.memory.limit == 32 << 20
    assert 0 < did.memory.peak <= did.memory.limit
    assert did.memory.fetched >= 10, "all rows begin on the medium"
    assert (did.memory.evicted, did.memory.spilled) == (0, 0)


def test_the_summary_tells_what_was_replayed(tmp_path):
    def full(batch):
        raise OSError("the disk is full")

    app, _, run = bank(tmp_path / "state")
    app.sink(app.transactions["transfer"].committed, full, name="done")
    with pytest.raises(OSError):
        run(100, epoch=10)
    app, _, run = bank(tmp_path / "state")
    app.sink(app.transactions["transfer"].committed, lambda batch: None, name="done")
    again = run(100, epoch=10)
    did = again.durability
    assert did.replayed_epochs >= 1, "results are released when their epoch is durable"
    # An epoch ends early where its source is slow.
    assert 0 < did.replayed_events <= 10 * did.replayed_epochs
    assert did.replayed_events + again.events == again.sources[0].events == 100
    # Events that were taken, and are in no epoch, are given again, too.
    assert did.replayed_events <= again.sources[0].again <= 100, "it was given the same data again"
    assert did.recovery_seconds > 0
    assert not again.sources[0].ended_before
    app, _, run = bank(tmp_path / "state")
    app.sink(app.transactions["transfer"].committed, lambda batch: None, name="done")
    after = run(0)
    assert (after.events, after.durability.replayed_epochs, after.sources[0].ended_before) == (0, 0, False)


def paths(value, path=""):
    """Returns the paths of the fields of a summary that are not empty, such as ``sources.late``."""
    if isinstance(value, dict):
        return {p for name, inner in value.items() for p in {path + name} | paths(inner, f"{path}{name}.")}
    if isinstance(value, (list, tuple)):
        return {p for inner in value for p in paths(inner, path)}
    return set()


def test_nothing_of_the_summary_is_dropped(tmp_path):
    app, _, _ = bank(None)
    options = RunOptions(workers=2, epoch=100, state=tmp_path / "state", sync="50ms", memory="32MiB")
    given = _engine.run(app._job({"transfers": events(1000)}, options)).summary
    kept = paths(asdict(tm.RunSummary.from_json(given)))
    assert "durability.memory.peak" in kept
    assert paths(given) - kept == set()


def test_a_test_leaves_the_state_alone(tmp_path):
    app, accounts, run = bank(tmp_path / "state", sync="50ms", memory="32MiB", logging="full")
    for _ in range(2):
        assert testing.run(app, {"transfers": events(10)}).summary.events == 10, "it begins without what was run before"
    assert not (tmp_path / "state").exists()
    run(5)
    before = accounts.to_pylist()
    kept = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    ran = testing.run(app, {"transfers": events(10)})
    assert (ran.summary.events, ran.summary.durability) == (10, None)
    assert {path: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()} == kept
    assert accounts.to_pylist() == before


def test_another_program_is_refused_with_the_difference(tmp_path):
    app, _, run = bank(tmp_path / "state")
    run(5)
    app, _, run = bank(tmp_path / "state", name="shop")
    with pytest.raises(tm.RunError, match="belongs to the application 'bank'; this is 'shop'"):
        run(5)
    app, _, run = bank(tmp_path / "state", row=Renamed)
    columns = r"table accounts: balance: int is in the state, not in the program"
    with pytest.raises(tm.RunError, match=columns):
        run(5)


def test_a_directory_with_other_things_is_no_state(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    app, _, run = bank(tmp_path)
    with pytest.raises(tm.RunError, match="holds other things, such as 'letter.txt'"):
        run(5)


BANK = """
    import os
    import sys

    import tidemill as tm

    class Account(tm.Row):
        id: int = tm.key()
        balance: int = 1000

    class Transfer(tm.Event):
        at: int = tm.event_time()
        src: int
        dst: int
        amount: int

    app = tm.App("bank")
    accounts = app.table(Account, rows=[{"id": i} for i in range(100)])
    transfers = app.source(Transfer, tm.csv(INPUT))

    @app.transaction(transfers)
    def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
        tm.require(src.balance >= ev.amount, "insufficient")
        src.balance -= ev.amount
        dst.balance += ev.amount
        return {"at": ev.at, "left": src.balance}
"""

PROGRAM = (
    BANK
    + """
    app.sink(transfer.committed, tm.jsonl("done.jsonl"))
    app.sink(transfer.aborted, tm.csv("rejected.csv.gz"))
    app.sink(transfers.bad, tm.csv("bad.csv"))
    app.run(state=sys.argv[1] or None)
"""
)


def length(file):
    return file.stat().st_size if file.exists() else 0


def ends_by(process, number, condition):
    """Sends a signal to a run once a condition holds. Returns whether it ended by it, and not by itself before."""
    until(lambda: process.poll() is not None or condition(), pause=0.002)
    process.send_signal(number)
    said = process.communicate(timeout=WAIT_SECONDS)[1]
    assert process.returncode in (0, -signal.SIGKILL, 128 + signal.SIGINT, -signal.SIGINT), said
    return process.returncode != 0


def at_most_thrice(tmp_path, do, is_right):
    """Does something in a new folder, up to three times: a run may end before it is killed, where this process waits."""
    for number in range(3):
        folder = tmp_path / f"durable{number}"
        folder.mkdir()
        if is_right(do(folder)):
            return folder
    raise AssertionError("runs end before they can be killed")


@pytest.mark.parametrize("compressed", [False, True])
def test_killed_again_and_again_it_ends_with_the_same_outputs(tmp_path, compressed):
    chance = random.Random(7)
    for part in range(3):
        lines = ["at,src,dst,amount"]
        for at in range(part * 100_000, (part + 1) * 100_000):
            src = "x" if at % 1000 == 13 else chance.randrange(100)
            lines.append(f"{at},{src},{chance.randrange(100)},{chance.randrange(300)}")
        text = "\n".join(lines) + "\n"
        name = f"part{part}.csv{'.gz' if compressed else ''}"
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data, 1) if compressed else data)
    program = textwrap.dedent(PROGRAM).replace("INPUT", repr(str(tmp_path / "part*.csv*")))
    script = tmp_path / "program.py"
    script.write_text(program)

    def start(folder, state):
        folder.mkdir(exist_ok=True)
        return subprocess.Popen([sys.executable, str(script), state], cwd=folder, stderr=subprocess.PIPE)

    whole = start(tmp_path / "whole", "")
    assert whole.wait(WAIT_SECONDS) == 0, whole.stderr.read()
    size = (tmp_path / "whole" / "done.jsonl").stat().st_size

    def kills(folder):
        """Kills runs at parts of the output, and leaves the last one alone. Returns the number of those that were killed."""
        part, killed = folder / ".done.jsonl.tidemill-part", 0
        for of_ten in (1, 3, 5, 8, 11):
            process = start(folder, "state")
            killed += ends_by(process, signal.SIGKILL, lambda of_ten=of_ten: length(part) >= size * of_ten / 10)
            if process.returncode == 0:
                break
        return killed

    durable = at_most_thrice(tmp_path, kills, lambda killed: killed > 0)
    for name in ["done.jsonl", "bad.csv"]:
        assert (durable / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    rejected = [gzip.decompress((run / "rejected.csv.gz").read_bytes()) for run in (durable, tmp_path / "whole")]
    assert rejected[0] == rejected[1]


SHOWING = (
    BANK
    + """
    shown = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def show(rejected):
        os.write(shown, "".join(f"{row['at']},{row['reason']}\\n" for row in rejected.to_pylist()).encode())

    app.sink(transfer.committed, tm.jsonl("-"))
    app.sink(transfer.aborted, show)
    app.run(state=sys.argv[1] or None)
"""
)


def test_what_cannot_be_taken_back_is_shown_at_least_once(tmp_path):
    """Standard output and a function: whatever kills the process, what one showed goes on without a gap, in order."""
    chance = random.Random(9)
    lines = ["at,src,dst,amount"]
    lines += [f"{at},{chance.randrange(100)},{chance.randrange(100)},{chance.randrange(300)}" for at in range(400_000)]
    (tmp_path / "input.csv").write_text("\n".join(lines) + "\n")
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SHOWING).replace("INPUT", repr(str(tmp_path / "input.csv"))))

    def start(folder, name, state):
        with open(folder / f"{name}.out", "wb") as out:
            arguments = [sys.executable, str(script), state, str(folder / f"{name}.function")]
            return subprocess.Popen(arguments, cwd=folder, stdout=out, stderr=subprocess.PIPE)

    whole = start(tmp_path, "whole", "")
    assert whole.wait(WAIT_SECONDS) == 0, whole.stderr.read()
    tenth = length(tmp_path / "whole.out") / 10

    def runs(folder):
        """Kills runs in turns with asking them to stop, and leaves the last one alone. Returns how many there were."""
        for attempt in range(8):
            process = start(folder, f"run{attempt}", "state")
            out = folder / f"run{attempt}.out"
            # One that is asked to stop leaves a checkpoint: the next does not begin at the start.
            number = signal.SIGINT if attempt % 2 == 1 else signal.SIGKILL
            if not ends_by(process, number, lambda out=out, attempt=attempt: attempt < 7 and length(out) >= tenth):
                break
        return attempt + 1

    durable = at_most_thrice(tmp_path, runs, lambda count: count > 2)
    for kind in ["out", "function"]:
        expected = (tmp_path / f"whole.{kind}").read_bytes()
        reached, begins = 0, set()
        for file in sorted(durable.glob(f"run*.{kind}")):
            shown = file.read_bytes()
            first, ends, _ = shown.partition(b"\n")
            if ends:
                at = 0 if expected.startswith(first + b"\n") else expected.index(b"\n" + first + b"\n") + 1
                assert expected[at:].startswith(shown), "what is shown is in order"
                assert at <= reached, "nothing is left out"
                reached = max(reached, at + len(shown))
                begins.add(at)
        assert len(begins) > 1, "some run began behind a checkpoint"
        assert reached == len(expected), kind
