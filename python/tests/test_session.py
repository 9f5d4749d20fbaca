"""``app.start``: sending, flushing, tables, followers, the end of a session."""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from server_process import least, until

import tidemill as tm

pa = pytest.importorskip("pyarrow")


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0


class Transfer(tm.Event):
    src: str
    dst: str
    amount: int


class Timed(tm.Event):
    at: int = tm.event_time()
    account: str
    amount: int


def bank():
    app = tm.App("bank")
    accounts = app.table(Account, rows=[{"id": "ada", "balance": 100}, {"id": "bob"}])
    transfers = app.source(Transfer)

    @app.transaction(transfers)
    def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
        tm.require(src.balance >= ev.amount, "insufficient funds")
        src.balance -= ev.amount
        dst.balance += ev.amount

    return app, accounts, transfers, transfer


def move(amount, src="ada", dst="bob"):
    return {"src": src, "dst": dst, "amount": amount}


def balances(rows):
    return {row["id"]: row["balance"] for row in rows.to_pylist()}


def test_what_is_sent_is_processed_and_can_be_looked_at_while_it_runs():
    app, accounts, transfers, transfer = bank()
    with app.start(workers=1) as mill:
        aborted, committed = mill.follow(transfer.aborted), mill.follow("transfer.committed")
        assert mill.send(transfers, move(30)) == 1
        assert mill.send("transfers", [Transfer(src="bob", dst="ada", amount=5), move(1000)]) == 2
        flushed = mill.flush()
        assert flushed.held == {} and flushed.epoch >= 1
        snapshot = mill.table(accounts)
        assert balances(snapshot) == {"ada": 75, "bob": 25}
        assert snapshot.epoch >= flushed.epoch
        batch = pa.table({"src": ["ada"] * 3, "dst": ["bob"] * 3, "amount": [1, 2, 3]})
        assert mill.send(transfers, batch) == 3
        assert balances(mill.tables()["accounts"]) == {"ada": 69, "bob": 31}
        assert balances(snapshot) == {"ada": 75, "bob": 25}
        released = next(aborted)
        assert [row["reason"] for row in released.to_pylist()] == ["insufficient funds"]
        summary = mill.summary()
        assert (summary.committed, summary.aborted) == (5, {"insufficient funds": 1})
        assert "running" in repr(mill)
    rows = [row["amount"] for batch in committed for row in batch.to_pylist()]
    assert rows == [30, 5, 1, 2, 3]
    assert list(aborted) == []
    assert balances(accounts) == {"ada": 69, "bob": 31}
    assert mill.summary().events == 6 and "over" in repr(mill)


def test_sources_with_connectors_run_beside_what_is_sent(tmp_path):
    file = tmp_path / "more.csv"
    file.write_text("src,dst,amount\n" + "ada,bob,1\n" * 50)
    app, accounts, transfers, transfer = bank()
    more = app.source(Transfer, tm.csv(file), name="more")

    @app.transaction(more)
    def again(ev, src=accounts.row("src"), dst=accounts.row("dst")):
        src.balance -= ev.amount
        dst.balance += ev.amount

    with app.start(workers=1) as mill:
        mill.send(transfers, [move(1)] * 10)
        mill.flush()
        assert mill.summary().transactions[0].committed == 10
    assert balances(accounts) == {"ada": 40, "bob": 60}


def test_event_times_decide_and_what_holds_events_back_is_said():
    app = tm.App("ledger")
    accounts = app.table(Account)
    one, two = app.source(Timed, name="one"), app.source(Timed, name="two", lateness=5)

    @app.transaction(one, two)
    def add(ev, account=accounts.row("account", create=True)):
        account.balance = account.balance * 10 + ev.amount

    with app.start(workers=1) as mill:
        mill.send(one, {"at": 20, "account": "a", "amount": 2})
        assert mill.flush().held == {"one": 1}
        mill.send(two, [{"at": 30, "account": "a", "amount": 3}, {"at": 26, "account": "b", "amount": 1}])
        mill.send(two, {"at": 1, "account": "a", "amount": 9})
        late = mill.flush()
        assert late.held == {"two": 2}
        mill.end(one)
        mill.end(two)
        assert mill.flush().held == {}
    assert balances(accounts) == {"a": 23, "b": 1}
    assert mill.summary().late == 1


def two_sources(**options):
    app = tm.App("ledger")
    accounts = app.table(Account)
    one, two = app.source(Timed, name="one"), app.source(Timed, name="two", **options)

    @app.transaction(one, two)
    def add(ev, account=accounts.row("account", create=True)):
        account.balance = account.balance * 10 + ev.amount

    return app, accounts, one, two


def timed(at, amount=1):
    return {"at": at, "account": "a", "amount": amount}


def test_a_silent_source_holds_nothing_back_once_it_says_so(tmp_path):
    app, accounts, one, two = two_sources()
    with app.start(workers=1, state=tmp_path / "state") as mill:
        mill.send(one, [timed(1), timed(5)])
        assert mill.flush().held == {"one": 2}
        assert mill.flush().complete_until is None
        mill.punctuate(two, 3)
        assert mill.flush() == tm.Flushed(mill.table(accounts).epoch - 1, 3, {"one": 1})
        mill.idle(two)
        mill.send(one, timed(9))
        assert mill.flush().held == {}
        mill.send(two, timed(8, 7))
        assert mill.flush().held == {}
        assert [source.late for source in mill.summary().sources] == [0, 1]
        mill.send(two, timed(9, 2))
        assert mill.flush().held == {"two": 1}
        mill.send(one, timed(10))
        assert balances(mill.table(accounts)) == {"a": 1112}
        with pytest.raises(tm.PlanError, match="give an int"):
            mill.punctuate(two, "9")
    app, _, transfers, _ = bank()
    with app.start(workers=1) as mill:
        for refused in (lambda: mill.idle(transfers), lambda: mill.punctuate(transfers, 1)):
            with pytest.raises(tm.PlanError, match="no event time"):
                refused()


def test_a_source_is_silent_after_a_while_by_the_clock():
    app, accounts, one, two = two_sources(idle="20ms")
    with app.start(workers=1) as mill:
        mill.send(one, [timed(1), timed(5)])
        deadline = time.monotonic() + 20
        while mill.flush().held and time.monotonic() < deadline:
            time.sleep(0.01)
        assert balances(mill.table(accounts)) == {"a": 11}


@pytest.mark.parametrize("idle, message", [("soon", "is not a duration"), (3, "is not a duration"), ("0s", "out of")])
def test_wrong_times_of_silence_are_refused(idle, message):
    with pytest.raises(tm.PlanError, match=message):
        two_sources(idle=idle)


def test_the_end_of_a_session_is_a_pause_with_a_state_unless_it_is_final(tmp_path):
    for final, times, sums in ((False, (1, 5), {}), (True, (6, 7), {"a": 1111})):
        app, accounts, one, _ = two_sources()
        with app.start(workers=1, state=tmp_path / "state", final=final) as mill:
            mill.send(one, [timed(at) for at in times])
        assert balances(accounts) == sums


def test_a_reader_that_missed_events_reads_on_with_await():
    app, _, transfers, transfer = bank()

    async def main():
        async with app.start(workers=1) as mill:
            follower = mill.follow(transfer.committed, buffer=1)
            for _ in range(3):
                await mill.send(transfers, move(0))
                await mill.flush()
            with pytest.raises(tm.MissedError):
                await follower.next()
            assert len(await follower.next()) == 1
            with pytest.raises(TimeoutError):
                await follower.next(timeout=0.01)

    asyncio.run(main())


def test_several_threads_send():
    app, accounts, transfers, _ = bank()
    with app.start(workers=2) as mill:

        def send(dst):
            for _ in range(50):
                mill.send(transfers, [move(0), move(0, "bob", dst)])

        threads = [threading.Thread(target=send, args=(dst,)) for dst in ("ada", "bob", "ada")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert mill.summary().committed == 300


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"src": "ada", "dst": "bob"}, "amount"),
        ([move(1), move("much")], "record 2 cannot be an event of 'transfers', column 'amount'"),
        (7, "cannot be read from"),
        (pa.table({"src": ["ada"]}), "dst"),
    ],
)
def test_what_cannot_be_an_event_is_refused_at_once(wrong, message):
    app, accounts, transfers, _ = bank()
    with app.start(workers=1) as mill:
        with pytest.raises(tm.SchemaError, match=message):
            mill.send(transfers, wrong)
        mill.send(transfers, move(1))
    assert balances(accounts) == {"ada": 99, "bob": 1}


def test_what_is_not_there_is_named():
    app, _, transfers, transfer = bank()
    _, others, _, _ = bank()
    with app.start(workers=1) as mill:
        with pytest.raises(tm.PlanError, match="no source 'moves'"):
            mill.send("moves", [])
        with pytest.raises(tm.PlanError, match="no table 'moves'"):
            mill.table("moves")
        with pytest.raises(tm.PlanError, match="belongs to"):
            mill.table(others)
        with pytest.raises(tm.RunError, match="no stream 'moves'"):
            mill.follow("moves")
        with pytest.raises(tm.PlanError, match="slow follower"):
            mill.follow(transfer.committed, slow="never")
        with pytest.raises(TimeoutError):
            mill.follow(transfer.committed).next(timeout=0.01)
    with pytest.raises(tm.RunError, match="the session is over"):
        mill.send(transfers, move(1))
    with pytest.raises(tm.RunError, match="the session is over"):
        mill.flush()


def test_a_slow_follower_is_told_what_it_missed():
    app, _, transfers, transfer = bank()
    with app.start(workers=1) as mill:
        slow, sure = mill.follow(transfer.committed, buffer=3), mill.follow(transfer.committed, buffer=3, slow="wait")
        got = []
        reader = threading.Thread(target=lambda: got.extend(row for b in sure for row in b.to_pylist()))
        reader.start()
        for _ in range(10):
            mill.send(transfers, move(0))
            mill.flush()
        with pytest.raises(tm.MissedError, match="7 events of 'transfer.committed'") as missed:
            next(slow)
        assert (missed.value.events, missed.value.stream) == (7, "transfer.committed")
        assert len(next(slow)) == 1
    reader.join()
    assert len(got) == 10


def amounts(follower):
    return [row["amount"] for released in follower for row in released.to_pylist()]


def test_a_kept_stream_is_followed_from_an_earlier_position():
    app, _, transfers, transfer = bank()
    with app.start(workers=2, keep={transfer.committed: 5, "transfers": 100}) as mill:
        first = mill.follow(transfer.committed)
        assert first.position is None
        for amount in range(4):
            mill.send(transfers, move(amount))
            mill.flush()
        got = next(first)
        place, at, history = got.position.partition("@")
        assert (place, at, first.position) == (f"{got.epoch}.1", "@", got.position)
        assert len(history) == 16
        later = [mill.follow(transfer.committed, after=after) for after in (got, first.position)]
        assert later[0].position == got.position
        for _ in range(3):
            next(first)
        # The reader has everything of all epochs released so far.
        assert int(first.position.partition("@")[0]) >= got.epoch + 3
        everything = mill.follow("transfers", after="0")
        mill.send(transfers, [move(amount) for amount in range(4, 9)])
        mill.flush()
        with pytest.raises(tm.GoneError, match="after position") as gone:
            mill.follow(transfer.committed, after=got)
        assert (gone.value.stream, gone.value.position) == ("transfer.committed", got.position)
        last = mill.follow(transfer.committed, after=gone.value.kept)
    assert [amounts(follower) for follower in later] == [list(range(1, 9))] * 2
    assert amounts(first) == list(range(4, 9))
    assert amounts(everything) == list(range(9))
    assert amounts(last)[-1] == 8


def epoch_of(position):
    return int(position.partition("@")[0].partition(".")[0])


def test_kept_events_outlast_the_end_of_a_run(tmp_path):
    def started(keep):
        app, _, transfers, transfer = bank()
        return app.start(workers=2, state=tmp_path / "state", keep={transfer.committed: keep}), transfers, transfer

    mill, transfers, transfer = started(100)
    with mill:
        first = mill.follow(transfer.committed)
        mill.send(transfers, [move(amount) for amount in range(3)])
        mill.flush()
        got = next(first)
        mill.send(transfers, [move(amount) for amount in range(3, 6)])
    mill, transfers, transfer = started(100)
    with mill:
        everything, rest = (mill.follow(transfer.committed, after=after) for after in ("0", got))
        mill.send(transfers, move(6))
    assert amounts(everything) == list(range(7))
    assert amounts(rest) == list(range(len(got), 7))
    # A run that keeps fewer loses the others, and one that keeps none loses all.
    mill, transfers, transfer = started(1)
    with mill, pytest.raises(tm.GoneError) as gone:
        mill.follow(transfer.committed, after=got)
    with bank()[0].start(workers=2, state=tmp_path / "state") as mill:
        mill.send("transfers", move(7))
    mill, transfers, transfer = started(100)
    with mill, pytest.raises(tm.GoneError) as again:
        mill.follow(transfer.committed, after=gone.value.kept)
    assert epoch_of(again.value.kept) > epoch_of(gone.value.kept)


def test_a_position_must_be_one_of_a_kept_stream():
    app, _, transfers, transfer = bank()
    with pytest.raises(tm.PlanError, match="0 is not a number of events to keep"):
        app.start(keep={transfers: 0})
    with pytest.raises(tm.RunError, match="no stream 'moves' to keep"):
        app.start(keep={"moves": 1})
    with app.start(keep={transfers: 1}) as mill:
        with pytest.raises(tm.PlanError, match="no events of stream 'transfer.committed' are kept"):
            mill.follow(transfer.committed, after="1")
        with pytest.raises(tm.PlanError, match="'seven' is no place in a stream"):
            mill.follow(transfers, after="seven")
        with pytest.raises(tm.PlanError, match="7 is not a position"):
            mill.follow(transfers, after=7)


def test_a_reader_goes_on_in_the_next_session(tmp_path):
    positions, got = ["0"], []
    for amount in range(3):
        app, _, transfers, transfer = bank()
        with app.start(state=tmp_path / "state", keep={transfer.committed: 100}) as mill:
            reader = mill.follow(transfer.committed, after=positions[-1])
            mill.send(transfers, move(amount), durable=True)
        got += amounts(reader)
        positions.append(reader.position)
    assert got == [0, 1, 2]
    app, _, transfers, transfer = bank()
    with app.start(state=tmp_path / "state", keep={transfer.committed: 100}) as mill:
        reader = mill.follow(transfer.committed, after=positions[1])
    assert amounts(reader) == [1, 2]


class Asked(tm.Event):
    account: str
    amount: int


def test_events_without_a_time_are_sent_beside_events_with_one(tmp_path):
    def app_with(connector=None):
        app = tm.App("mixed")
        accounts = app.table(Account)
        timed = app.source(Timed)
        asked = app.source(Asked, connector, name="asked")

        @app.transaction(timed)
        def move_timed(ev, a=accounts.row("account", create=True)):
            a.balance += ev.amount

        @app.transaction(asked)
        def move_asked(ev, a=accounts.row("account", create=True)):
            tm.require(a.balance >= ev.amount, "too little")
            a.balance -= ev.amount
            return {"left": a.balance}

        return app, accounts, timed, asked, move_asked

    app, accounts, timed, asked, move_asked = app_with()
    with app.start(workers=2) as mill:
        answers = mill.follow(move_asked.committed)
        mill.send(timed, [{"at": 1, "account": "ada", "amount": 10}, {"at": 2, "account": "ada", "amount": 5}])
        mill.flush()
        mill.send(asked, {"account": "ada", "amount": 3})
        mill.flush()
        assert next(answers).to_pylist() == [{"left": 12}]
    assert accounts.to_pylist() == [{"id": "ada", "balance": 12}]
    # Nobody sends to a run, so what could be sent has ended.
    app, accounts, timed, asked, _ = app_with()
    app.run({timed: [{"at": 1, "account": "bob", "amount": 1}]})
    assert accounts.to_pylist() == [{"id": "bob", "balance": 1}]
    path = tmp_path / "asked.csv"
    path.write_text("account,amount\nada,1\n")
    app, accounts, timed, asked, _ = app_with(tm.csv(path))
    with pytest.raises(tm.RunError, match="source 'asked' has no event time, but source 'timeds' has one"):
        app.run({timed: []})


LEFT_OPEN = """
import time
import tidemill as tm
from test_session import Transfer, bank, move
app, accounts, transfers, transfer = bank()
more = app.source(Transfer, name="more")

@app.transaction(more)
def again(ev, src=accounts.row("src")):
    src.balance -= 1

def endless():
    while True:
        time.sleep(0.001)
        yield move(0)

app.sink(transfer.committed, lambda batch: None)
mill = app.start({more: endless()}, workers=1)
for _ in range(100):
    mill.send(transfers, move(0))
print("done")
"""


@pytest.mark.parametrize("ends", ["", "del mill", "raise SystemExit(0)"])
def test_a_session_that_is_left_open_ends_with_the_interpreter(ends, tmp_path):
    program = tmp_path / "left_open.py"
    program.write_text(LEFT_OPEN + ends)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    for _ in range(3):
        command = [sys.executable, "-W", "default::ResourceWarning", str(program)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr
        assert "the session of bank was not closed" in ran.stderr


def test_an_exception_in_the_block_stops_the_run():
    app, _, transfers, _ = bank()
    with pytest.raises(KeyError), app.start(workers=1) as mill:
        mill.send(transfers, move(1))
        raise KeyError("x")
    assert mill.summary().stopped


def test_a_failing_sink_is_raised():
    app, _, transfers, transfer = bank()

    def fail(batch):
        raise OSError("no more paper")

    app.sink(transfer.committed, fail)
    with pytest.raises(OSError, match="no more paper"), app.start(workers=1) as mill:
        mill.send(transfers, move(1))
        for _ in range(1000):
            mill.flush()
            time.sleep(0.01)


def test_a_state_keeps_what_was_sent(tmp_path):
    state = tmp_path / "state"
    for day in (1, 2):
        app, accounts, transfers, transfer = bank()
        with app.start(state=state, workers=1) as mill:
            assert mill.send(transfers, [move(10)] * 2, durable=True) == 2
            assert balances(mill.table(accounts)) == {"ada": 100 - 20 * day, "bob": 20 * day}


GONE = """
import os
from test_session import counting

app, sent = counting({timed})
mill = app.start(workers=1, state={state!r})
mill.send(sent, [{{"at": n, "account": "ada", "amount": 1}} for n in range(3)], durable=True)
{ends}
"""


def counting(timed: bool):
    """An application that counts the amounts of one source, whose events have times or not."""
    app = tm.App("counting")
    accounts = app.table(Account, name="accounts")
    fields = {"at": tm.event_time()} if timed else {}
    event = type("Amount", (tm.Event,), {"__annotations__": {"at": int, "account": str, "amount": int}, **fields})
    sent = app.source(event, name="sent")

    @app.transaction(sent)
    def count(ev, account=accounts.row("account", create=True)):
        account.balance += ev.amount

    return app, sent


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("ends", ["mill.stop(); mill.close()", "mill.close()", "os._exit(0)"])
def test_what_was_sent_is_not_given_again(timed, ends, tmp_path):
    state = str(tmp_path / "state")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", GONE.format(timed=timed, state=state, ends=ends)]
    subprocess.run(command, env=environment, check=True, timeout=60)
    app, sent = counting(timed)
    summary = app.run({sent: [{"at": 10 + n, "account": "ada", "amount": 1} for n in range(4)]}, workers=1, state=state)
    assert [(of.events, of.again) for of in summary.sources] == [(7, 0)]
    assert app.tables["accounts"].to_pylist() == [{"id": "ada", "balance": 7}]


def test_a_full_follower_stops_nobody_from_leaving():
    app, _, transfers, transfer = bank()
    with pytest.raises(KeyError), app.start(workers=1) as mill:
        follower = mill.follow(transfer.committed, slow="wait", buffer=1)
        mill.send(transfers, [move(0)] * 10)
        mill.flush()
        # Nothing comes for the follower, so its being full holds nothing up.
        mill.flush(timeout=20)
        mill.send(transfers, [move(0)] * 10)
        with pytest.raises(TimeoutError):
            mill.flush(timeout=0.2)
        raise KeyError("x")
    assert next(follower).epoch == 1
    with app.start(workers=1) as mill:
        follower = mill.follow(transfer.committed, slow="wait", buffer=1)
        mill.send(transfers, [move(0)] * 10)
        mill.flush()
        mill.send(transfers, [move(0)] * 10)
        del follower
        mill.flush(timeout=20)


def test_what_a_full_engine_took_is_said():
    app, _, transfers, transfer = bank()
    with app.start(workers=1) as mill:
        follower = mill.follow(transfer.committed, slow="wait", buffer=1)
        many = pa.table({"src": ["ada"] * 10**6, "dst": ["bob"] * 10**6, "amount": [0] * 10**6})

        def said():
            """Returns whether an error tells of events that were sent. None are, where the machine stalls for so long."""
            try:
                mill.send(transfers, many, timeout=0.3)
            except TimeoutError as error:
                return re.search(r"the engine was full: [1-9]\d* events were sent", str(error))

        until(said)
        mill.stop()
    assert follower.next().epoch == 1


def test_nothing_is_sent_after_the_end_was_said():
    app, accounts, one, two = two_sources()
    with app.start(workers=1) as mill:
        mill.end(two)
        mill.send(one, [timed(1), timed(5)])
        with pytest.raises(tm.RunError, match="its end was said before"):
            mill.send(two, timed(3))
        assert balances(mill.table(accounts)) == {"a": 11}


@pytest.mark.parametrize("order", ["one", "two"])
def test_a_silent_source_beside_a_file_stops_neither(tmp_path, order):
    file = tmp_path / "two.csv"
    file.write_text("at,account,amount\n" + "".join(f"{at},a,1\n" for at in range(20_000)))
    app = tm.App("ledger")
    accounts = app.table(Account)
    connectors = {"one": None, "two": tm.csv(file)} if order == "one" else {"one": tm.csv(file), "two": None}
    sources = {name: app.source(Timed, connector, name=name) for name, connector in connectors.items()}

    @app.transaction(*sources.values())
    def add(ev, account=accounts.row("account", create=True)):
        account.balance += ev.amount

    with app.start(workers=1) as mill:
        mill.idle(order)
        deadline = time.monotonic() + 20
        while mill.summary().events < 19_000 and time.monotonic() < deadline:
            mill.flush()
        assert mill.summary().events >= 19_000


def test_a_source_is_read_after_it_was_sent_to(tmp_path):
    def both():
        app, accounts, sent, transfer = bank()
        read = app.source(Transfer, name="read")

        @app.transaction(read)
        def again(ev, src=accounts.row("src"), dst=accounts.row("dst")):
            src.balance -= ev.amount
            dst.balance += ev.amount

        return app, accounts, sent, read

    app, accounts, sent, read = both()
    with app.start({read: [move(1)] * 20}, workers=1, state=tmp_path / "state") as mill:
        mill.send(sent, [move(1)] * 5)
        mill.flush()
        mill.send(sent, [move(1)] * 5)
    app, accounts, sent, read = both()
    summary = app.run({sent: [move(1)] * 10, read: [move(1)] * 10}, workers=1, state=tmp_path / "state", final=True)
    assert [(source.name, source.events) for source in summary.sources] == [("transfers", 20), ("read", 30)]
    assert balances(accounts) == {"ada": 50, "bob": 50}


def test_the_same_with_await():
    app, accounts, transfers, transfer = bank()

    async def main():
        async with app.start(workers=1) as mill:
            follower = mill.follow(transfer.committed)
            await mill.send(transfers, [move(1), move(2)])
            assert (await mill.flush()).held == {}
            assert balances(await mill.table(accounts)) == {"ada": 97, "bob": 3}
            first = await follower.next()
            assert len(first) == 2 and mill.summary().committed == 2
            with pytest.raises(asyncio.TimeoutError):
                await follower.next(timeout=0.01)
            await mill.send(transfers, move(3))
            assert [row["amount"] for row in (await follower.next()).to_pylist()] == [3]
        return [row async for batch in follower for row in batch.to_pylist()]

    assert asyncio.run(main()) == []


def test_the_latency_of_a_light_load_is_low():
    app, _, transfers, transfer = bank()
    with app.start(workers=1) as mill:
        follower = mill.follow(transfer.committed)

        def once():
            start = time.perf_counter()
            mill.send(transfers, move(0))
            next(follower)
            return time.perf_counter() - start

        # A generous bound: half of them take less than 0.5 ms where nothing else runs.
        assert least(lambda: statistics.median(once() for _ in range(200)), 0.05, tries=5) < 0.05


class Number(tm.Row):
    id: int = tm.key()
    sum: int = 0


class Add(tm.Event):
    id: int
    n: int


def test_tables_larger_than_the_memory_limit_are_copied_whole(tmp_path):
    app = tm.App("numbers")
    numbers, adds = app.table(Number), app.source(Add)

    @app.transaction(adds)
    def add(ev, number=numbers.row("id", create=True)):
        number.sum += ev.n

    rows = 1_500_000
    events = pa.table({"id": pa.array(range(rows)), "n": pa.array(range(rows))})
    with app.start(state=tmp_path / "state", memory="32MiB", workers=2) as mill:
        mill.send(adds, events)
        mill.send(adds, events.slice(0, 100_000))
        copied = pa.table(mill.table(numbers))
    assert mill.summary().durability.memory.evicted > 0
    assert copied["id"].to_pylist() == list(range(rows))
    doubled = [2 * n if n < 100_000 else n for n in range(rows)]
    assert copied["sum"].to_pylist() == doubled


class Seat(tm.Row):
    hall: str = tm.key()
    number: int = tm.key()
    free: bool = True
    taken: int = 0


class Take(tm.Event):
    hall: str
    number: int


@pytest.mark.parametrize("memory", [None, "32MiB"])
def test_a_row_is_read_as_it_is_after_what_was_sent(tmp_path, memory):
    app = tm.App("seats")
    seats = app.table(Seat)
    takes = app.source(Take)

    @app.transaction(takes)
    def take(ev, s=seats.row("hall", "number", create=True)):
        s.taken += 1

    options = {} if memory is None else {"memory": memory, "state": tmp_path / "state"}
    count = 1_000 if memory is None else 600_000
    with app.start(workers=1, **options) as mill:
        for numbers in (range(count), range(0, count, 7)):
            mill.send(takes, pa.table({"hall": ["a"] * len(numbers), "number": numbers}))
        for number in (0, 1, 7, count - 1, count // 2):
            row = {"hall": "a", "number": number, "free": True, "taken": 2 if number % 7 == 0 else 1}
            assert mill.row(seats, "a", number) == row
        assert mill.row(seats, "b", 0) is None
        assert mill.row(seats, "a", -1) is None
        with pytest.raises(
            tm.PlanError, match="the key has 2 columns, not 1; give one value for each of: hall, number"
        ):
            mill.row(seats, "a")
        with pytest.raises(tm.PlanError, match="key column 'number'"):
            mill.row(seats, "a", "x")
    assert memory is None or mill.close().durability.memory.evicted > 0
