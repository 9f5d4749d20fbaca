"""Commands on a durable state: it is verified, looked at, kept, returned to, changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from server_process import until

import tidemill as tm

PROGRAM = """
    import sys
    import tidemill as tm

    app = tm.App("bank", version={version})

    class Account(tm.Row):
        id: str = tm.key()
        {columns}

    class Transfer(tm.Event):
        at: int = tm.event_time()
        src: str
        dst: str
        amount: int

    accounts = app.table(Account, rows=[{{"id": "ada", "balance": 100}}, {{"id": "bob"}}])
    transfers = app.source(Transfer, tm.csv("{source}"))

    @app.transaction(transfers)
    def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
        tm.require(src.balance >= ev.amount, "insufficient funds")
        src.balance -= ev.amount
        dst.balance += ev.amount{extra}

    app.sink(transfer.committed, tm.jsonl("done{version}.jsonl"), name="done")
    app.sink(transfer.aborted, tm.jsonl("rejected{version}.jsonl"), name="rejected")
"""

TRANSFERS = "1,ada,bob,70\n2,ada,bob,70\n20,bob,ada,50\n3,bob,ada,1\n"


class Bank:
    """A bank in a folder, by the command."""

    def __init__(self, folder):
        self.folder = folder
        self.write()

    def write(self, version=1, columns="balance: int = 0", extra="", source="-"):
        text = textwrap.dedent(PROGRAM).format(version=version, columns=columns, extra=extra, source=source)
        (self.folder / "bank.py").write_text(text)

    def lines(self):
        """Returns the number of events that the sinks have, finished or not."""
        count = 0
        for path in ("done1.jsonl", "rejected1.jsonl", "done2.jsonl", "rejected2.jsonl"):
            part = self.folder / f".{path}.tidemill-part"
            path = part if part.exists() else self.folder / path
            count += path.read_bytes().count(b"\n") if path.exists() else 0
        return count

    def feed(self, rows, *arguments, state="state", file="bank.py"):
        """Runs with these transfers on standard input, and is stopped when their results are out."""
        before, expected = self.lines(), sum(not row.startswith("3,") for row in rows.splitlines())
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemill", "run", file, "--state", state, *arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdin.write("at,src,dst,amount\n" + rows)
        process.stdin.flush()
        deadline = time.monotonic() + 40
        while process.poll() is None and self.lines() != before + expected and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        # The input must not end meanwhile: the run would end by itself.
        process.wait(timeout=40)
        text = process.communicate()[1]
        assert process.returncode == 130, text
        return text

    def run_and_kill(self, state, *arguments):
        """Kills a run when some of what it took is in the log, and most of the input is not done."""
        command = [sys.executable, "-m", "tidemill", "run", "bank.py", "--state", state, *arguments]
        half = (self.folder / "transfers.csv").read_bytes().count(b"\n") / 2
        is_logged = lambda: any(p.stat().st_size > 6000 for p in self.folder.glob(f"{state}/log/*.log"))
        for _ in range(3):
            process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE)
            until(lambda process=process: process.poll() is not None or is_logged(), pause=0.002)
            process.send_signal(signal.SIGKILL)
            said = process.communicate()[1]
            assert process.returncode in (0, -signal.SIGKILL) and is_logged(), said
            if process.returncode != 0 and self.lines() < half:
                return
            # This process had to wait meanwhile.
            shutil.rmtree(self.folder / state)
            for name in ("done1.jsonl", "rejected1.jsonl"):
                for file in self.folder.glob(f"*{name}*"):
                    file.unlink()
        raise AssertionError("runs end before they can be killed")

    def command(self, *arguments, code=0):
        done = self.done(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def done(self, *arguments):
        command = [sys.executable, "-m", "tidemill", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def run(self, *arguments, code=0):
        return self.command("run", "bank.py", "--state", "state", *arguments, code=code)

    def balances(self, name):
        folder = self.folder / f"tables-{name}"
        self.command("savepoint", "export", "state", name, str(folder))
        pq = pytest.importorskip("pyarrow.parquet")
        return {row["id"]: row["balance"] for row in pq.read_table(folder / "accounts.parquet").to_pylist()}


@pytest.fixture
def bank(tmp_path):
    return Bank(tmp_path)


WRITER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("at,src,dst,amount\\n" + sys.argv[1], end="", flush=True)
time.sleep(60)
"""


def behind_a_writer(bank, text, options=""):
    """A run behind a program that writes these transfers and lives on."""
    (bank.folder / "writer.py").write_text(WRITER)
    run = f"{sys.executable} -m tidemill run bank.py {options}"
    return subprocess.Popen(
        ["sh", "-c", f"{sys.executable} writer.py '{text}' | {run}"],
        cwd=bank.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted_pipe(bank, text):
    """Takes these transfers from a pipe; then both its programs are interrupted, as by Ctrl-C."""
    before = bank.lines()
    process = behind_a_writer(bank, text, "--state state")
    deadline = time.monotonic() + 40
    while process.poll() is None and bank.lines() == before and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=40)[1]


def test_a_pipe_that_is_interrupted_with_its_writer_has_not_ended(bank):
    interrupted_pipe(bank, "1,ada,bob,70\n")
    # The last amount is torn.
    text = interrupted_pipe(bank, "2,ada,bob,20\n3,ada,bob,1")
    assert "had ended before" not in text and bank.lines() == 2, text
    bank.feed("4,ada,bob,10\n")
    assert bank.lines() == 3


def test_a_torn_record_of_an_interrupted_pipe_is_not_taken(bank):
    program = bank.folder / "bank.py"
    program.write_text(program.read_text().replace('"done1.jsonl"', '"-"'))
    process = behind_a_writer(bank, "1,ada,bob,70\n2,ada,bob,20\n3,ada,bob,1")
    first = process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    lines = [first, *process.stdout]
    process.communicate(timeout=40)
    assert [json.loads(line)["amount"] for line in lines] == [70, 20]


def test_a_run_is_verified_from_a_savepoint(bank):
    bank.feed(TRANSFERS, "--savepoint", "start")
    text = bank.command("verify", "state", "--from", "start")
    assert "bank: " in text and "no difference" in text
    assert "and the tables of the newest checkpoint" in text
    verified = json.loads(bank.command("verify", "state", "--from", "start", "--json"))
    assert verified["events"] == 3 and verified["outputs"]["done"]["events"] == 2
    nothing = bank.done("verify", "state")
    assert nothing.stdout.startswith("bank: nothing to run again after epoch ")
    assert "no difference" not in nothing.stdout, "nothing was compared"
    assert "drops the log before it; verify from a savepoint, which keeps it: start" in nothing.stderr
    bank.command("savepoint", "remove", "state", "start")
    assert "begin the next run with a savepoint" in bank.command("verify", "state")


def test_the_same_input_gives_the_same_digests(tmp_path):
    digests = []
    for workers in ("1", "2"):
        folder = tmp_path / workers
        folder.mkdir()
        bank = Bank(folder)
        bank.write(source="transfers.csv")
        (folder / "transfers.csv").write_text("at,src,dst,amount\n" + TRANSFERS)
        bank.run("--workers", workers, "--epoch", workers)
        digests.append(json.loads(bank.command("verify", "state", "--json")))
    assert digests[0]["tables"] == digests[1]["tables"] and digests[0]["outputs"] == digests[1]["outputs"]


def test_a_run_goes_on_tomorrow(bank):
    """Over a file that grows, with what is held back between; it can be verified and shown, and check says what comes."""
    source, header = bank.folder / "in.csv", "at,src,dst,amount\n"
    source.write_text(header + "1,ada,bob,70\n2,ada,bob,7")
    bank.write(source="in*.csv")
    program = bank.folder / "bank.py"
    program.write_text(program.read_text().replace('.csv"))', '.csv"), lateness=5)'))
    text = bank.run("--savepoint", "monday")
    assert "1 event held, up to 1: transfers may still have an event from -4 on; more events of transfers" in text
    text = bank.command("check", "bank.py", "--state", "state")
    assert (
        f"source transfers continues in.csv at byte {len(header) + 13}, line 3, 11 new bytes\n    1 event held" in text
    )
    with source.open("a") as file:
        file.write("0\n20,bob,ada,50\n3,bob,ada,1\n")
    summary = json.loads(bank.run("--json"))["sources"][0]
    assert (summary["events"], summary["late"], summary["held"], summary["held_until"]) == (2, 1, 1, 20)
    assert bank.lines() == 2
    text = bank.command("verify", "state", "--from", "monday")
    assert "2 events" in text, text
    shown = bank.command("txn", "show", "state", "transfers:1")
    assert "insufficient funds" in shown, shown
    (bank.folder / "in1.csv").write_text(header + "21,bob,ada,1\n")
    text = bank.command("check", "bank.py", "--state", "state")
    assert "has nothing new in in.csv after byte" in text and "then reads in1.csv (31 bytes) from the beginning" in text
    text = bank.run("--final")
    assert "held" not in text and bank.lines() == 4, text
    assert "source transfers has ended for good" in bank.command("check", "bank.py", "--state", "state")
    assert "4 events" in bank.command("verify", "state", "--from", "monday")
    assert "0 events" in bank.run()
    (bank.folder / "in2.csv").write_text(header + "30,bob,ada,1\n")
    assert "it has ended for good, by --final" in bank.run(code=3)
    (bank.folder / "in0.csv").write_text(header + "30,bob,ada,1\n")
    text = bank.run(code=3)
    assert "in0.csv is new and comes before in1.csv, which was read already" in text, text


def test_a_pipe_that_has_ended_for_good_may_be_empty(bank):
    def pipe(text, *arguments):
        command = [sys.executable, "-m", "tidemill", "run", "bank.py", "--state", "state", *arguments]
        return subprocess.run(command, cwd=bank.folder, input=text, capture_output=True, text=True, timeout=60)

    header = "at,src,dst,amount\n"
    assert pipe(header + "1,ada,bob,70\n").returncode == 0
    assert pipe(header + "2,ada,bob,70", "--final").returncode == 0, "a pipe's last line is whole"
    assert bank.lines() == 2
    again = pipe("")
    assert again.returncode == 0 and "it had ended for good before" in again.stderr
    assert "it has ended for good, by --final" in pipe(header + "3,ada,bob,70\n").stderr


def test_a_file_is_followed_until_the_run_is_stopped(bank):
    source = bank.folder / "in.csv"
    source.write_text("at,src,dst,amount\n1,ada,bob,70\n")
    bank.write(source='in.csv", follow=True, delimiter=",')

    def follow(write, lines):
        command = [sys.executable, "-m", "tidemill", "run", "bank.py", "--state", "state"]
        process = subprocess.Popen(command, cwd=bank.folder, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 40
        for row in write:
            with source.open("a") as file:
                file.write(row)
            time.sleep(0.05)
        while bank.lines() != lines and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=40)[1] and process.returncode == 130
        assert bank.lines() == lines

    follow(["2,ada,bob,70\n3,bo", "b,ada,50\n"], 3)
    source.rename(bank.folder / "in.csv.1")
    source.write_text("at,src,dst,amount\n4,bob,ada,1\n")
    text = bank.run(code=3)
    assert "in.csv is not the file that it was" in text, text
    (bank.folder / "in.csv.1").rename(source)
    follow(["5,bob,ada,1\n"], 4)


def test_one_transaction_is_shown(bank):
    bank.feed(TRANSFERS, "--savepoint", "start")
    text = bank.command("txn", "show", "state", "transfers:1")
    assert "transaction transfer: aborted, and nothing of it was done: insufficient funds" in text
    assert 'read src.balance = 30 of accounts "ada"' in text
    assert "required src.balance >= ev.amount, which did not hold" in text
    assert 'wrote dst.balance = 80 of accounts "ada"' in bank.command("txn", "show", "state", "transfers@20")
    assert "came too late" in bank.command("txn", "show", "state", "transfers:3")
    assert "is not a position" in bank.command("txn", "show", "state", "noon", code=2)
    assert "is not in the log" in bank.command("txn", "show", "state", "transfers:9", code=3)


WINDOWS = """
    import tidemill as tm

    app = tm.App("limits")

    class Card(tm.Row):
        id: str = tm.key()
        spent: tm.Window[int] = tm.window("1m")
        shops: tm.Window[str] = tm.window("1h", slide="1m", distinct=True)
        last: tm.Window[float] = tm.window(last=2)

    class Payment(tm.Event):
        at: tm.Time = tm.event_time()
        card: str
        amount: int
        shop: str

    cards = app.table(Card)
    payments = app.source(Payment, tm.csv("payments.csv"), lateness="1500ms")

    @app.transaction(payments)
    def pay(ev, card=cards.row("card", create=True)):
        tm.require(card.spent.sum() + ev.amount <= 100, "more than 100 within a minute")
        card.spent.add(ev.amount)
        card.shops.add(ev.shop)
        card.last.add(float(ev.amount))
"""


def test_windows_and_times_are_shown_as_people_write_them(bank):
    (bank.folder / "limits.py").write_text(textwrap.dedent(WINDOWS))
    payments = [("09:00:00", 60, "a"), ("09:00:30", 30, "b"), ("09:00:40", 20, "c"), ("09:00:20", 1, "d")]
    rows = "".join(f"2024-05-01T{at}Z,k1,{amount},{shop}\n" for at, amount, shop in payments)
    (bank.folder / "payments.csv").write_text("at,card,amount,shop\n" + rows)
    bank.command("run", "limits.py", "--state", "state", "--savepoint", "start")

    def shown(position, code=0):
        return bank.command("txn", "show", "state", position, code=code)

    first, second = shown("payments:0"), shown("payments@2024-05-01T09:00:30Z")
    assert "read card.spent = an empty window of cards" in first
    assert "wrote card.spent = a window of 1 value (sum 60, least 60, greatest 60) of cards" in first
    assert "wrote card.spent = a window of 2 values (sum 90, least 30, greatest 60) of cards" in second
    assert 'wrote card.shops = a window of 2 values (newest first: "b", "a") of cards' in second
    assert "wrote card.last = a window of 2 values (newest first: 30.0, 60.0) of cards" in second
    assert "payments:1 at 2024-05-01T09:00:30.000000Z" in second
    assert "its at is more than 1.5 s before the greatest" in shown("payments@2024-05-01T09:00:20Z")
    missing = shown("payments@2024-05-01T10:00:00Z", code=3)
    assert "error: payments@2024-05-01T10:00:00.000000Z is not in the log" in missing


def test_without_event_times_an_event_is_found_by_its_number(bank):
    program = textwrap.dedent(PROGRAM).format(version=1, columns="balance: int = 0", extra="", source="transfers.csv")
    (bank.folder / "bank.py").write_text(program.replace("at: int = tm.event_time()", "at: int"))
    (bank.folder / "transfers.csv").write_text("at,src,dst,amount\n" + TRANSFERS)
    bank.run("--savepoint", "start")
    refused = bank.command("txn", "show", "state", "transfers@2", code=3)
    assert "the events of 'transfers' have no event time; give the number of one, such as transfers:17" in refused
    assert "transaction transfer: aborted" in bank.command("txn", "show", "state", "transfers:1")


def test_savepoints_are_made_listed_returned_to_and_removed(bank):
    bank.feed(TRANSFERS)
    bank.command("savepoint", "create", "state", "monday")
    assert "there is a savepoint 'monday' already" in bank.command("savepoint", "create", "state", "monday", code=3)
    before = (bank.folder / "done1.jsonl").read_text()
    bank.feed("30,bob,ada,10\n31,ada,bob,80\n")
    bank.command("savepoint", "create", "state", "tuesday")
    assert bank.balances("monday") == {"ada": 80, "bob": 20}
    assert bank.balances("tuesday") == {"ada": 10, "bob": 90}
    listed = bank.command("savepoint", "list", "state")
    assert "monday: epoch" in listed and "schema version 1, keeps the log after it" in listed
    after = (bank.folder / "done1.jsonl").read_text()
    assert after.startswith(before) and len(after) > len(before)
    # Back, and on with other input: what came behind is forgotten, and outputs begin anew.
    assert "outputs begin anew" in bank.command("savepoint", "restore", "state", "monday")
    for name in ("done1.jsonl", "rejected1.jsonl"):
        (bank.folder / name).unlink()
    bank.feed("40,ada,bob,30\n")
    assert [json.loads(line)["at"] for line in (bank.folder / "done1.jsonl").read_text().splitlines()] == [40]
    assert "no difference" in bank.command("verify", "state", "--from", "monday")
    gone = bank.command("verify", "state", "--from", "tuesday", code=3)
    assert "the log after savepoint 'tuesday' is gone" in gone
    # And forth again: the files of the first course are still its own.
    bank.command("savepoint", "restore", "state", "tuesday")
    bank.command("savepoint", "create", "state", "again")
    assert bank.balances("again") == {"ada": 10, "bob": 90}
    bank.command("savepoint", "remove", "state", "monday")
    refused = bank.command("savepoint", "restore", "state", "monday", code=3)
    assert "no savepoint 'monday'; there are again, tuesday" in refused


def test_a_savepoint_seeds_another_application(bank):
    bank.feed(TRANSFERS)
    bank.command("savepoint", "create", "state", "monday")
    bank.write(source="other.csv")
    (bank.folder / "other.py").write_text((bank.folder / "bank.py").read_text().replace('"bank"', '"other"'))
    (bank.folder / "other.csv").write_text("at,src,dst,amount\n50,bob,ada,20\n")
    seeded = bank.command("run", "other.py", "--seed", "state/savepoint/monday", "--state", "other")
    assert "table accounts begins with 2 rows of state/savepoint/monday" in seeded
    assert "1 committed, 0 aborted" in seeded

    class Account(tm.Row):
        id: str = tm.key()
        balance: int = 0

    app = tm.App("third")
    accounts = app.table(Account)
    app.run(seed=bank.folder / "state" / "savepoint" / "monday")
    assert accounts.to_pylist() == [{"id": "ada", "balance": 80}, {"id": "bob", "balance": 20}]


def test_a_state_in_use_is_left_alone(bank):
    bank.feed(TRANSFERS)
    bank.command("savepoint", "create", "state", "monday")
    command = [sys.executable, "-m", "tidemill", "run", "bank.py", "--state", "state"]
    process = subprocess.Popen(command, cwd=bank.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while f"process {process.pid} " not in (bank.folder / "state" / "lock").read_text():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        assert "is in use by process" in bank.command("savepoint", "restore", "state", "monday", code=3)
    finally:
        process.kill()
        process.communicate()


def test_a_changed_program_goes_on(bank):
    bank.feed(TRANSFERS)
    bank.write(extra="\n    tm.require(ev.amount < 1000, 'too much')")
    assert "the schema is the same; what the program does is not" in bank.command(
        "check", "bank.py", "--state", "state"
    )
    bank.feed("30,bob,ada,10\n")
    bank.command("savepoint", "create", "state", "end")
    assert bank.balances("end") == {"ada": 90, "bob": 10}


def test_what_a_crash_left_is_replayed_by_the_program_as_it_was(bank):
    rows = "".join(f"{at},{'ada' if at % 2 else 'bob'},{'bob' if at % 2 else 'ada'},1\n" for at in range(300_000))
    (bank.folder / "transfers.csv").write_text("at,src,dst,amount\n1,ada,bob,50\n" + rows[rows.index("1,") :])
    bank.write(source="transfers.csv")
    bank.run_and_kill("state", "--epoch", "500")
    # Committed transfers come out otherwise now: the old ones as they were, the new ones as they are.
    negated = '\n    return {"at": ev.at, "src": ev.src, "dst": ev.dst, "amount": 0 - ev.amount}'
    bank.write(extra=negated, source="transfers.csv")
    looked = bank.command("check", "bank.py", "--state", "state")
    assert "the log is replayed by the program as it was" in looked
    assert "epochs were replayed by the program as it was" in bank.run()
    done = [json.loads(line) for line in (bank.folder / "done1.jsonl").read_text().splitlines()]
    assert len(done) == 300_000
    signs = [event["amount"] > 0 for event in done]
    assert signs == sorted(signs, reverse=True), "first those of the old program, then those of the new"
    assert True in signs and False in signs


def test_full_logging_has_what_each_transaction_gave(bank):
    assert "is not a way of logging" in bank.run("--logging", "all", code=2)
    rows = "".join(f"{at},{'ada' if at % 2 else 'bob'},{'bob' if at % 2 else 'ada'},1\n" for at in range(100_000))
    bank.write(source="transfers.csv")
    (bank.folder / "transfers.csv").write_text("at,src,dst,amount\n" + rows)
    bank.run_and_kill("state", "--logging", "full", "--savepoint", "start", "--epoch", "500")
    ran = json.loads(bank.command("run", "bank.py", "--state", "state", "--logging", "full", "--json"))
    logged = ran["durability"]["log_bytes"] / ran["events"]
    assert logged > 3, "a source that can be read again is logged by its position; what it came to by value"
    verified = bank.command("verify", "state", "--from", "start")
    assert "100,000 events" in verified and "no difference" in verified
    assert bank.lines() == 100_000


def test_a_schema_migrates_under_a_raised_version(bank):
    bank.feed(TRANSFERS)
    columns = "balance: float = 0.0\n    limit: int = 500\n    note: str | None = None"
    bank.write(columns=columns)
    refused = bank.run(code=3)
    assert "is of another schema, under the same version 1" in refused
    assert "table accounts: balance: int becomes float" in refused
    assert "raise the version of the application to 2" in refused
    bank.write(version=2, columns=columns)
    looked = bank.command("check", "bank.py", "--state", "state")
    assert "it is migrated to version 2" in looked
    assert "table accounts: new limit: int, its default in every row" in looked
    assert "the state was migrated to version 2" in bank.feed("30,bob,ada,10\n")
    bank.command("savepoint", "create", "state", "end")
    assert bank.balances("end") == {"ada": 90.0, "bob": 10.0}
    bank.write()
    assert "is of version 2 of the schema; this program is version 1" in bank.run(code=3)
    dropped = "table accounts: note: str | None is in the state, not in the program: it is dropped with what is in it"
    renamed = "table accounts: limit becomes most"
    bank.write(version=2, columns="balance: float = 0.0\n    most: int = tm.column(default=500, was='limit')")
    assert "raise the version of the application to 3" in bank.run(code=3)
    bank.write(version=3, columns="balance: float = 0.0\n    most: int = tm.column(default=500, was='limit')")
    looked = bank.command("check", "bank.py", "--state", "state")
    assert "it is migrated to version 3" in looked and dropped in looked and renamed in looked
    assert "a savepoint, 'before-version-3', keeps the state as it is before" in looked
    command = [sys.executable, "-m", "tidemill", "run", "bank.py", "--state", "state", "--quiet"]
    ran = subprocess.run(command, cwd=bank.folder, input="at,src,dst,amount\n", capture_output=True, text=True)
    # The loss of a column is reported, with the way back, even with --quiet.
    assert ran.returncode == 0 and dropped in ran.stderr and renamed not in ran.stderr, ran.stderr
    assert "tidemill savepoint restore state before-version-3" in ran.stderr
    assert "before-version-3" in bank.command("savepoint", "list", "state")
    bank.write(version=4, columns="most: int = 500\n    balance: int = 0")
    assert "cannot become version 4" in bank.command("check", "bank.py", "--state", "state", code=3)


def test_a_program_that_was_changed_at_a_savepoint_is_not_verified_from_there(bank):
    bank.feed(TRANSFERS)
    bank.command("savepoint", "create", "state", "monday")
    bank.write(version=2, columns="balance: float = 0.0")
    bank.feed("30,bob,ada,10\n")
    done = bank.done("verify", "state", "--from", "monday")
    # The log goes on.
    assert done.stdout.startswith("bank: nothing to run again after epoch ") and "newest" not in done.stdout
    assert "the program was changed after epoch " in done.stderr
    assert "drops the log" not in done.stderr


def test_the_weaker_mode_is_named_and_loses_nothing_when_the_process_ends(bank):
    assert "results were released before they were durable: a sync every" in bank.feed(TRANSFERS, "--sync", "50ms")
    assert "is not a mode of syncing" in bank.run("--sync", "never", code=2)
    rows = "".join(f"{at},ada,bob,1\n" for at in range(30, 100_000))
    bank.write(source="transfers.csv")
    (bank.folder / "transfers.csv").write_text("at,src,dst,amount\n" + rows)
    other = [sys.executable, "-m", "tidemill", "run", "bank.py", "--state", "other", "--sync", "1h"]
    assert subprocess.run(other, cwd=bank.folder, capture_output=True, timeout=60, check=False).returncode == 2
    bank.run_and_kill("other", "--sync", "3600s", "--epoch", "100")
    summary = json.loads(bank.command("run", "bank.py", "--state", "other", "--json"))
    assert summary["durability"]["lost_epochs"] == 0
    ended = [bank.folder / name for name in ("done1.jsonl", "rejected1.jsonl")]
    assert sum(path.read_bytes().count(b"\n") for path in ended) == 99_970


def test_a_migration_comes_behind_all_that_may_fail_before_a_run(bank):
    bank.feed(TRANSFERS)
    bank.write(version=2, columns="balance: float = 0.0", source="missing.csv")
    assert "missing.csv" in bank.run("--savepoint", "before", code=3)
    bank.write(version=2, columns="balance: float = 0.0", extra="\n    return {'balance': src.balance}")
    text = (bank.folder / "bank.py").read_text()
    (bank.folder / "bank.py").write_text(text.replace("done2.jsonl", "done1.jsonl"))
    assert "cannot go on as" in bank.run("--savepoint", "before", code=3)
    # Neither has changed the state.
    bank.write()
    bank.feed("30,bob,ada,10\n", "--savepoint", "before")


def test_what_an_option_needs_is_said(bank):
    for option in ("--sync 5ms", "--logging full"):
        run = [sys.executable, "-m", "tidemill", "run", "bank.py", *option.split()]
        refused = subprocess.run(run, cwd=bank.folder, capture_output=True, text=True, check=False, timeout=60)
        assert (refused.returncode, "needs a state" in refused.stderr) == (2, True), refused.stderr
    bank.feed(TRANSFERS)
    bank.command("savepoint", "create", "state", "end")
    seed = ("--seed", "state/savepoint/end")
    other = (bank.folder / "bank.py").read_text().replace("class Account", "class Other").replace("(Account", "(Other")
    (bank.folder / "other.py").write_text(other)
    said = bank.command("run", "other.py", *seed, code=1)
    assert "has no rows for any table of the program (others)" in said
    assert "the state has begun, so that nothing is taken of state/savepoint/end" in bank.feed("30,bob,ada,10\n", *seed)
