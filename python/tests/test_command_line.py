"""The command as others see it: a process with arguments, output, exit codes and signals."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time

import pytest
from server_process import until

COMMAND = [sys.executable, "-m", "tidemill"]

BANK = """
import tidemill as tm

app = tm.App("bank")

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0

class Transfer(tm.Event):
    at: tm.Time = tm.event_time()
    src: str
    dst: str
    amount: int

accounts = app.table(Account, rows=tm.csv("accounts.csv"))
transfers = app.source(Transfer, tm.csv("SOURCE"), lateness="2s")

@app.transaction(transfers)
def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
    tm.require(src.balance >= ev.amount, "insufficient funds")
    src.balance -= ev.amount
    dst.balance += ev.amount
    return {"at": ev.at, "src": src.id, "left": src.balance}

app.sink(transfer.committed, tm.jsonl("SINK"))
app.sink(transfer.aborted, tm.jsonl("rejected.jsonl"))
"""

ACCOUNTS = "id,balance\nada,100\nbob,50\n"

TRANSFERS = """at,src,dst,amount
2024-01-01T00:00:01Z,ada,bob,30
2024-01-01T00:00:09Z,bob,ada,500
2024-01-01T00:00:02Z,ada,bob,1
2024-01-01T00:00:09Z,ada,bob,many
"""

ENDLESS = """
import tidemill as tm

app = tm.App("endless")

class Counter(tm.Row):
    id: int = tm.key()
    count: int = 0

class Tick(tm.Event):
    at: tm.Time = tm.event_time()
    id: int

counters = app.table(Counter)
made = tm.generator(rate=RATE, at=tm.sequence(tm.Time(2024, 1, 1), tm.seconds(1)), id=tm.uniform(0, 9))
ticks = app.source(Tick, made)

@app.transaction(ticks)
def tick(ev, counter=counters.row("id", create=True)):
    counter.count += 1
    return {"at": ev.at, "count": counter.count}

app.sink(tick.committed, tm.jsonl("ticks.jsonl"))
app.sink(ticks, tm.csv("all.csv.gz"))
"""


class Place:
    """A folder to run the command in."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def bank(self, source="transfers.csv", sink="done.jsonl"):
        self.write("bank.py", BANK.replace("SOURCE", source).replace("SINK", sink))
        self.write("accounts.csv", ACCOUNTS)
        self.write("transfers.csv", TRANSFERS)

    def __call__(self, *arguments, stdin="", cwd=None, **environment):
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=cwd or self.folder,
            env={**os.environ, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *arguments, **options):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*COMMAND, *map(str, arguments)], cwd=self.folder, text=True, **{**streams, **options})

    def names(self):
        return sorted(name for name in os.listdir(self.folder) if name != "__pycache__")

    def lines(self, name):
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


# run


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("source", "sink", "reader"),
    [
        ("transfers.csv", "./transfers.csv", "source 'transfers'"),
        ("trans*.csv", "transfers.csv", "source 'transfers'"),
        ("link.csv", "transfers.csv", "source 'transfers'"),
        ("*.csv", "new.csv", "source 'transfers'"),
        ("transfers.csv", "accounts.csv", "table 'accounts'"),
    ],
)
def test_a_sink_never_overwrites_what_is_read(place, command, source, sink, reader):
    place.bank(source, sink)
    os.symlink("transfers.csv", place.folder / "link.csv")
    before = place.names()
    refused = place(command, "bank.py")
    text = f"would overwrite {sink}, which {reader} reads; give the sink another file"
    assert (refused.returncode, refused.stderr.count(text)) == (1, 1), refused.stderr
    assert place.names() == before
    assert (place.folder / "transfers.csv").read_text() == TRANSFERS
    assert (place.folder / "accounts.csv").read_text() == ACCOUNTS


def test_the_file_of_epoch_records_never_overwrites_what_is_read(place):
    place.bank()
    refused = place("run", "bank.py", "--epoch-records", "transfers.csv")
    assert refused.returncode == 1
    assert "the file of epoch records would overwrite transfers.csv, which source 'transfers' reads" in refused.stderr
    assert (place.folder / "transfers.csv").read_text() == TRANSFERS


def test_run(place):
    place.bank()
    ran = place("run", "bank.py")
    assert (ran.returncode, ran.stdout) == (0, "")
    first, *others = ran.stderr.splitlines()
    assert re.fullmatch(r"bank: 2 events in \S+ m?s, \d+ events/s", first)
    assert others[:3] == [
        "  source transfers: 2 events, 1 late, 1 bad",
        "  transaction transfer: 1 committed, 1 aborted",
        "    1 insufficient funds",
    ]
    assert re.fullmatch(r"  \d+ epochs?, latency p50 \S+ .?s, p99 \S+ .?s", others[3])
    assert len(others) == 4
    assert place.lines("done.jsonl") == [{"at": "2024-01-01T00:00:01.000000Z", "src": "ada", "left": 70}]
    assert place.lines("rejected.jsonl")[0]["reason"] == "insufficient funds"
    assert place.names() == ["accounts.csv", "bank.py", "done.jsonl", "rejected.jsonl", "transfers.csv"]


def test_json(place):
    place.bank()
    ran = place("run", "bank.py:app", "--json", "--workers", "2", "--epoch", "1")
    assert (ran.returncode, ran.stderr) == (0, "")
    summary = json.loads(ran.stdout)
    assert ran.stdout.count("\n") == 1
    assert (summary["application"], summary["events"], summary["epochs"]) == ("bank", 2, 2)
    (source,) = summary["sources"]
    assert (source["late"], source["bad"], source["last_time"]) == (1, 1, 1_704_067_209_000_000)
    assert summary["transactions"][0]["reasons"] == [["insufficient funds", 1]]
    assert not summary["stopped"]


def test_epoch_records_are_an_arrow_file_with_a_row_per_epoch(place):
    ipc = pytest.importorskip("pyarrow.ipc")
    place.bank()
    ran = place("run", "bank.py", "--epoch", "1", "--scheduling", "transaction", "--epoch-records", "epochs.arrow")
    assert ran.returncode == 0
    rows = ipc.open_file(place.folder / "epochs.arrow").read_all().to_pylist()
    assert [(row["epoch"], row["events"], row["transactions"]) for row in rows] == [(1, 1, 1), (2, 1, 1)]
    assert {(row["policy"], row["reason"], row["expected_ns"]) for row in rows} == {
        ("transaction", "as asked for", None)
    }
    assert sum(row["aborted"] for row in rows) == 1
    assert all(0 < row["measured_ns"] <= row["access_ns"] for row in rows)
    nowhere = place("run", "bank.py", "--epoch-records", "no/such/folder/epochs.arrow")
    assert nowhere.returncode == 3
    assert "error: sink 'epoch records': no/such/folder/epochs.arrow cannot be written" in nowhere.stderr


def test_quiet(place):
    place.bank()
    ran = place("run", "bank.py", "--quiet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_paths_are_those_of_the_current_directory(place, tmp_path_factory):
    place.bank()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    ran = place("run", place.folder / "bank.py", cwd=elsewhere)
    assert ran.returncode == 3
    assert ran.stderr.startswith("error: source 'transfers': transfers.csv cannot be opened: No such file")
    for name in ("accounts.csv", "transfers.csv"):
        (elsewhere / name).write_text((place.folder / name).read_text())
    assert place("run", place.folder / "bank.py", cwd=elsewhere).returncode == 0
    assert (elsewhere / "done.jsonl").exists()
    assert "done.jsonl" not in place.names()


def test_standard_streams(place):
    place.bank(source="-", sink="-")
    ran = place("run", "bank.py", stdin=TRANSFERS)
    assert ran.returncode == 0
    assert [json.loads(line)["left"] for line in ran.stdout.splitlines()] == [70]
    assert ran.stderr.startswith("bank: 2 events in")
    ran = place("run", "bank.py", "--json", stdin=TRANSFERS)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert (
        ran.stderr
        == "error: --json and sink 'transfer.committed' would both write to standard output; give the sink a file\n"
    )


def test_standard_input_that_trickles(place):
    """Results come while the input is still open."""
    place.bank(source="-", sink="-")
    text = BANK.replace("SOURCE", "-").replace("SINK", "-").replace(', lateness="2s"', "")
    place.write("bank.py", text)
    process = place.start("run", "bank.py", stdin=subprocess.PIPE)
    header, first, second, *_ = TRANSFERS.splitlines(keepends=True)
    process.stdin.write(header + first)
    process.stdin.flush()
    assert select.select([process.stdout], [], [], 20)[0]
    assert json.loads(process.stdout.readline())["left"] == 70
    process.stdin.write(second)
    process.stdin.close()
    assert process.stdout.read() == ""
    assert process.wait(20) == 0
    assert len(place.lines("rejected.jsonl")) == 1


def test_a_reader_that_goes_away(place):
    place.write("endless.py", ENDLESS.replace("RATE", "1000").replace("ticks.jsonl", "-"))
    process = place.start("run", "endless.py")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 3
    assert "error: sink 'tick.committed': standard output cannot be written: Broken pipe" in process.stderr.read()


# Exit codes.


def test_the_program_is_wrong(place):
    def said(text):
        place.write("program.py", text)
        ran = place("run", "program.py")
        assert (ran.returncode, ran.stdout) == (1, "")
        return ran.stderr

    assert said("") == "error: program.py has no application; write 'app = tm.App(\"name\")' in it\n"
    assert said("import nothing_of_that_name").endswith(
        "error: ModuleNotFoundError: No module named 'nothing_of_that_name'\n"
    )
    assert said(BANK.replace("src.balance -= ev.amount", "src.balance **= 2")).splitlines()[-1].startswith("error: ")
    assert said(BANK.replace("src.balance -=", "src.limit -=")).splitlines()[-1].startswith("error: ")
    no_data = said(BANK.replace(', tm.csv("SOURCE")', ""))
    assert (
        no_data
        == "error: source 'transfers' has no data; give it a connector, or data: app.run({\"transfers\": ...})\n"
    )
    both = BANK.replace("accounts.csv", "-").replace("SOURCE", "-")
    assert said(both) == "error: table 'accounts' and source 'transfers' both read standard input\n"
    both = BANK.replace("rejected.jsonl", "-").replace("SINK", "-")
    assert said(both).startswith("error: sink 'transfer.aborted' and sink 'transfer.committed' both write")
    ran = place("run", "nowhere.py")
    assert (ran.returncode, ran.stderr) == (1, "error: there is no file nowhere.py\n")


def test_the_command_line_is_wrong(place):
    place.bank()
    for arguments in (
        [],
        ["walk"],
        ["run"],
        ["run", "bank.py", "--workers", "0"],
        ["run", "bank.py", "--workers", "many"],
        ["run", "bank.py", "--epoch", "5 parsecs"],
        ["run", "bank.py", "--scheduling", "fair"],
        ["check", "bank.py", "--yaml"],
    ):
        ran = place(*arguments)
        assert (ran.returncode, ran.stdout) == (2, ""), arguments
        assert "error: " in ran.stderr or not arguments
    assert (
        "give auto, a number of events such as 1000, or an age such as 20ms"
        in place("run", "bank.py", "--epoch", "x").stderr
    )


def test_policies_are_named_and_change_nothing(place):
    place.bank()
    results = set()
    for policy in (
        *("auto", "epoch", "transaction", "transaction,dfs", "transaction,versions"),
        *("chain", "chain,dfs,lazy", "operation,bfs", "operation,eager"),
    ):
        ran = place("run", "bank.py", "--workers", "2", "--scheduling", policy, "--explain-scheduling")
        assert ran.returncode == 0
        why = "no epoch has been looked at yet|.* too few to share out" if policy == "auto" else "as asked for"
        name = "epoch" if policy == "auto" else policy
        on = "" if name == "epoch" else " on 2 workers"
        again = "(; 1 transaction run again after an abort)?"
        line = rf"    \d epochs? as {name}{on}, [0-9.]+ .s of access: ({why}){again}\n"
        assert re.search(line, ran.stderr), ran.stderr
        results.add(str(place.lines("done.jsonl") + place.lines("rejected.jsonl")))
    assert len(results) == 1
    wrong = place("run", "bank.py", "--scheduling", "fair")
    assert "say auto; epoch; transaction, then versions, then bfs or dfs; or chain or operation" in wrong.stderr


def test_the_run_fails(place):
    place.bank(source="none*.csv")
    ran = place("run", "bank.py")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr == "error: source 'transfers': no file matches 'none*.csv'\n"
    place.bank(sink="no/such/folder/done.jsonl")
    ran = place("run", "bank.py")
    assert ran.returncode == 3
    assert ran.stderr.startswith("error: sink 'transfer.committed': no/such/folder/done.jsonl cannot be written")
    place.bank(source="transfers.csv.gz")
    place.write("transfers.csv.gz", "this is no gzip")
    assert place("run", "bank.py").returncode == 3
    assert place.names() == ["accounts.csv", "bank.py", "transfers.csv", "transfers.csv.gz"]


def test_python_in_a_sink_fails(place):
    place.bank()
    place.write("bank.py", (place.folder / "bank.py").read_text() + "app.sink(transfers, lambda batch: 1 / 0)\n")
    ran = place("run", "bank.py")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith("error: sink 'transfers': ZeroDivisionError: division by zero\n  File ")
    assert 'bank.py", line 28, in <lambda>' in ran.stderr
    assert place.names() == ["accounts.csv", "bank.py", "transfers.csv"]


def test_the_schema_is_wrong(place):
    place.bank()
    place.write("transfers.csv", "at,src,dst\n")
    ran = place("run", "bank.py")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr.startswith("error: source 'transfers': transfers.csv: ")
    assert "'amount'" in ran.stderr
    assert ran.stderr.count("\n") == 1
    place.bank()
    place.write("accounts.csv", "id,balance\nada,much\n")
    ran = place("run", "bank.py")
    assert ran.returncode == 4
    assert ran.stderr.startswith("error: table 'accounts': accounts.csv, line 2, column 'balance': expected an integer")
    place.write("accounts.csv", "id,balance\nada,1\nada,2\n")
    ran = place("run", "bank.py")
    assert (ran.returncode, ran.stderr) == (4, "error: table 'accounts' is given two rows with the key \"ada\"\n")
    assert place.names() == ["accounts.csv", "bank.py", "transfers.csv"]


def test_ctrl_c(place):
    place.write("endless.py", ENDLESS.replace("RATE", "3000"))
    process = place.start("run", "endless.py")
    hidden = lambda: [n for n in place.names() if n.startswith(".ticks") and (place.folder / n).stat().st_size > 1000]
    until(hidden)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    # The file is whole: every line parses, and times follow on one another.
    ticks = place.lines("ticks.jsonl")
    assert place.names() == ["all.csv.gz", "endless.py", "ticks.jsonl"]
    import gzip

    copies = gzip.decompress((place.folder / "all.csv.gz").read_bytes()).decode().splitlines()
    assert [row.split(",")[0] for row in copies[1:]] == [t["at"] for t in ticks]
    count, last = len(ticks), ticks[-1]["at"]
    assert f"  transaction tick: {count:,} committed, 0 aborted\n" in err
    assert "stopped before the end; the last epoch is whole and all sinks are closed\n" in err
    assert f"  source ticks stopped after {count:,} events, at {last}" in err.splitlines()[-1]


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]

FOLLOWED = """
import tidemill as tm

app = tm.App("followed")

class Number(tm.Event):
    n: int

numbers = app.source(Number, tm.csv("numbers.csv", follow=True))
app.sink(numbers, tm.jsonl("out.jsonl"))
app.sink(numbers, tm.jsonl("-"))
"""


@pytest.mark.parametrize("state", [[], ["--state", "state"]])
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_a_run_with_whole_outputs(place, number, code, state):
    place.write("followed.py", FOLLOWED)
    place.write("numbers.csv", "n\n1\n2\n")
    process = place.start("run", "followed.py", *state)
    assert [process.stdout.readline() for _ in range(2)] == ['{"n":1}\n', '{"n":2}\n']
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "stopped before the end; the last epoch is whole and all sinks are closed\n" in err
    assert place.lines("out.jsonl") == [{"n": 1}, {"n": 2}]
    assert not [name for name in place.names() if "tidemill-tmp" in name]


def test_a_signal_that_is_ignored_stays_so(place):
    place.write("followed.py", FOLLOWED)
    place.write("numbers.csv", "n\n1\n")
    process = place.start("run", "followed.py", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.stdout.readline() == '{"n":1}\n'
    process.send_signal(signal.SIGHUP)
    with (place.folder / "numbers.csv").open("a") as file:
        file.write("2\n")
    assert process.stdout.readline() == '{"n":2}\n'
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143


def test_a_terminal_that_is_closed_may_say_so_twice(place):
    place.bank()
    place.write(
        "bank.py",
        (place.folder / "bank.py").read_text()
        + "import time\napp.sink(transfers, lambda b: (print('in', flush=True), time.sleep(1.5)))\n",
    )
    process = place.start("run", "bank.py")
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=20)
    assert process.returncode == 129
    assert "done.jsonl" in place.names()


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-", "<&-"])
@pytest.mark.parametrize("standard", ["-", "/dev/stdout"])
def test_closed_streams_are_not_other_files(place, closed, standard):
    """The number of a closed stream is given to no file: what a sink writes to it would go into another output."""
    place.bank(sink="done.jsonl")
    text = (place.folder / "bank.py").read_text()
    place.write("bank.py", f"{text}app.sink(transfers, tm.csv({standard!r}))\n")
    run = ["sh", "-c", f"exec {sys.executable} -m tidemill run bank.py --quiet {closed}"]
    ran = subprocess.run(run, cwd=place.folder, capture_output=True, text=True, timeout=60)
    names = place.names()
    if closed == "<&-":
        assert (ran.returncode, len(place.lines("done.jsonl"))) == (0, 1)
        return
    assert (ran.returncode, ran.stdout) == (3, "")
    name = "standard output" if standard == "-" else standard
    assert ran.stderr == (
        "" if "2>" in closed else f"error: sink 'transfers': {name} cannot be written: it is closed\n"
    )
    assert "done.jsonl" not in names
    # Without such a sink nothing is lost.
    place.write("bank.py", text)
    ran = subprocess.run(run, cwd=place.folder, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, len(place.lines("done.jsonl"))) == (0, 1)


def test_ctrl_c_with_json(place):
    place.write("endless.py", ENDLESS.replace("RATE", "3000"))
    process = place.start("run", "endless.py", "--json")
    until(lambda: any(n.startswith(".ticks") for n in place.names()))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    summary = json.loads(out)
    assert summary["stopped"]
    assert summary["events"] == len(place.lines("ticks.jsonl"))


def test_ctrl_c_while_input_waits(place):
    place.bank(source="-")
    text = (place.folder / "bank.py").read_text()
    place.write("bank.py", f"{text}app.sink(transfer.committed, lambda b: print('in', flush=True))\n")
    process = place.start("run", "bank.py", stdin=subprocess.PIPE)
    process.stdin.write(TRANSFERS)
    process.stdin.flush()
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    err = process.stderr.read()
    process.stdin.close()
    assert [t["left"] for t in place.lines("done.jsonl")] == [70]
    # The second event waits for those that may still come before it.
    assert err.splitlines()[-1] == (
        "  source transfers stopped after 1 event, at 2024-01-01T00:00:01.000000Z; 1 more were read but not processed"
    )


def test_ctrl_c_while_python_waits(place):
    place.bank()
    more = """
import time

def wait():
    yield {"at": 0, "src": "ada", "dst": "bob", "amount": 1}
    time.sleep(600)

job = app._job
app._job = lambda: job({"transfers": wait()})
"""
    place.write("bank.py", (place.folder / "bank.py").read_text() + more)
    process = place.start("run", "bank.py")
    until(lambda: any(n.startswith(".done") for n in place.names()))
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert "stopped before the end" in process.stderr.read()


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_before_the_first_event(place, number, code):
    place.write("slow.py", "import time\nprint('loading', flush=True)\nfor _ in range(600):\n    time.sleep(0.1)\n")
    process = place.start("run", "slow.py")
    assert process.stdout.readline() == "loading\n"
    process.send_signal(number)
    assert process.wait(20) == code
    assert process.stderr.read() == "error: interrupted before the first event\n"


@pytest.mark.parametrize(("number", "code"), SIGNALS[:2])
def test_ctrl_c_twice(place, number, code):
    place.bank()
    place.write(
        "bank.py",
        (place.folder / "bank.py").read_text()
        + "import time\napp.sink(transfers, lambda b: (print('in', flush=True), time.sleep(60)))\n",
    )
    process = place.start("run", "bank.py")
    assert process.stdout.readline() == "in\n"
    process.send_signal(number)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == code
    assert process.stderr.read() == "error: stopped at once; the sinks are not finished\n"
    assert "done.jsonl" not in place.names()


# The progress bar.


def test_progress_on_a_terminal(place):
    place.write("endless.py", ENDLESS.replace("rate=RATE", "rate=20_000, events=20_000"))
    screen, shown = pty.openpty()
    process = place.start("run", "endless.py", stderr=shown)
    os.close(shown)
    text = b""
    with contextlib.suppress(OSError):
        while part := os.read(screen, 10_000):
            text += part
    os.close(screen)
    assert process.wait(20) == 0
    text = text.decode()
    assert re.search(r"\d+% [\d,]+ events, \d+ thousand events/s, [\d]+ epochs", text)
    assert "endless: 20,000 events in" in text


def test_no_progress_where_nobody_looks(place):
    place.bank()
    assert "%" not in place("run", "bank.py").stderr


# check, explain, new


def test_check(place):
    place.bank()
    checked = place("check", "bank.py")
    assert (checked.returncode, checked.stderr) == (0, "")
    out = checked.stdout
    assert "table accounts: csv accounts.csv\n  id: str (key)\n  balance: int = 0\n" in out
    assert "source transfers: csv transfers.csv\n  at: Time (event time)\n  src: str\n" in out
    assert "transaction transfer on transfers\n  transfer.committed {at: Time, src: str, left: int}\n" in out
    assert "sink transfer.committed of transfer.committed to jsonl done.jsonl\n" in out
    assert out.endswith("\nbank: 1 table, 1 source, 1 transaction, 2 sinks; no errors, no warnings\n")
    assert place.names() == ["accounts.csv", "bank.py", "transfers.csv"]


def test_check_warns(place):
    text = BANK.replace('app.sink(transfer.aborted, tm.jsonl("rejected.jsonl"))', "").replace("SINK", "no/done.jsonl")
    place.write("bank.py", text.replace("SOURCE", "transfers.csv"))
    place.write("transfers.csv", "at,src,dst\n")
    checked = place("check", "bank.py")
    assert checked.returncode == 0
    warnings = checked.stderr.splitlines()
    assert all(w.startswith("warning: ") for w in warnings)
    assert "stream 'transfer.aborted' has no sink and nothing reads it" in warnings[0]
    assert "table 'accounts': accounts.csv cannot be opened" in warnings[1]
    assert "source 'transfers': transfers.csv: " in warnings[2]
    assert "sink 'transfer.committed': there is no directory no" in warnings[3]
    assert checked.stdout.endswith("; no errors, 4 warnings\n")


def test_check_needs_no_data(place):
    text = BANK.replace(', tm.csv("SOURCE")', "").replace('tm.csv("accounts.csv")', '[{"id": "a"}]')
    place.write("bank.py", text)
    checked = place("check", "bank.py")
    assert checked.returncode == 0
    assert "table accounts: data of the program\n" in checked.stdout
    assert "source transfers: data given to the run\n" in checked.stdout


def test_check_refuses(place):
    place.write("bank.py", BANK.replace("ev.amount", "ev.amounts"))
    checked = place("check", "bank.py")
    assert (checked.returncode, checked.stdout) == (1, "")
    assert f'File "{place.folder / "bank.py"}", line 21' in checked.stderr
    assert checked.stderr.splitlines()[-1].startswith("error: ")


def test_explain(place):
    place.bank()
    explained = place("explain", "bank.py")
    assert (explained.returncode, explained.stderr) == (0, "")
    for part in ("application bank", "src.balance >= ev.amount", "aliasing", "temporal", "machine code"):
        assert part in explained.stdout
    assert re.search(r"\ncompiled\n  \d+ functions?, [\d,]+ bytes of machine code\n", explained.stdout)


def test_new(place):
    made = place("new", "my-bank")
    assert (made.returncode, made.stdout) == (0, "")
    assert "tidemill run my-bank/app.py" in made.stderr
    assert sorted(os.listdir(place.folder / "my-bank")) == ["accounts.csv", "app.py", "test_app.py", "transfers.csv"]
    ran = place("run", "my-bank/app.py", "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    summary = json.loads(ran.stdout)
    assert (summary["application"], summary["transactions"][0]["committed"]) == ("my-bank", 5)
    assert place("check", "my-bank/app.py").stdout.endswith("no errors, no warnings\n")
    for folder, arguments in [(place.folder, ["my-bank"]), (place.folder / "my-bank", [])]:
        options = ["-q", "-p", "no:cacheprovider", *arguments]
        tested = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=folder, capture_output=True, text=True)
        assert tested.returncode == 0, tested.stdout
        assert "3 passed" in tested.stdout


def test_new_from_topic_to_topic(place):
    made = place("new", "bank", "--template", "kafka")
    assert (made.returncode, made.stdout) == (0, "")
    assert sorted(os.listdir(place.folder / "bank")) == ["app.py", "test_app.py"]
    checked = place("check", "bank/app.py")
    assert (checked.returncode, "no errors" in checked.stdout) == (0, True), checked.stderr
    options = ["-q", "-p", "no:cacheprovider", "bank"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=place.folder, capture_output=True, text=True
    )
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    # The broker that it asks is not there.
    ran = place("run", "bank/app.py", KAFKA="127.0.0.1:9")
    assert ran.returncode == 3
    assert "cannot reach Kafka at 127.0.0.1:9" in ran.stderr


def test_new_leaves_what_is_there(place):
    (place.folder / "bank").mkdir()
    place.write("file", "precious")
    for name in ("bank", "file"):
        made = place("new", name)
        assert made.returncode == 2
        assert made.stderr == f"error: {name} cannot be created: it exists already; choose another name\n"
    assert os.listdir(place.folder / "bank") == []
    made = place("new", "1 bank")
    assert made.returncode == 2
    assert "'1 bank' ends in no name for an application" in made.stderr
    assert place("new", "no/such/place").returncode == 3


# Help.


@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["explain"], ["new"]])
def test_help_has_an_example(place, command):
    asked = place(*command, "--help")
    assert (asked.returncode, asked.stderr) == (0, "")
    assert re.search(r"\nExamples?:\n  tidemill ", asked.stdout)


def test_help_lists_the_exit_codes(place):
    asked = place("--help").stdout
    for code in ("0", "1", "2", "3", "4", "129", "130", "143"):
        assert re.search(rf"\n  {code} +\S", asked), code
    assert place("--version").stdout.startswith("tidemill ")


def test_the_installed_command():
    script = os.path.join(os.path.dirname(sys.executable), "tidemill")
    if not os.path.exists(script):
        pytest.skip("the package is not installed beside this interpreter")
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout.startswith("tidemill ")


def test_two_at_once(place):
    """Some of several runs that write one output at once are refused, and the output is that of one of them."""
    place.bank()
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(place("run", "bank.py", "--json").returncode)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) <= {0, 3} and 0 in results
    assert len(place.lines("done.jsonl")) == 1
