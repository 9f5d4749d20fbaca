"""Queries are answered in processes whose end is not the server's."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from server_process import until

from tidemill import query_process

pytest.importorskip("duckdb")

BOUND_SECONDS = 20.0
"""Seconds within which a query of a few seconds is ended on a loaded machine; without a limit of its own it takes longer."""

APP = """
import tidemill as tm

class Account(tm.Row):
    id: int = tm.key()
    balance: int = 0
    text: str = ""

class Deposit(tm.Event):
    account: int
    amount: int

app = tm.App("bank")
accounts = app.table(Account)
deposits = app.requests(Deposit)

@app.transaction(deposits)
def deposit(ev, a=accounts.row("account", create=True)):
    a.balance += ev.amount
    return {"balance": a.balance}
"""


@pytest.fixture
def mill(module):
    with module(APP, prelude="").app.start() as mill:
        yield mill


def ask(server, query, timeout=60):
    request = urllib.request.Request(f"{server.url}/query", query.encode())
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error"]


def processes(of=None):
    """The numbers of the processes that answer queries for a process."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
            with open(f"/proc/{number}/cmdline", "rb") as line:
                is_one = b"tidemill.query_process" in line.read()
        except OSError:
            continue
        if is_one and state != "Z" and int(parent) == (of or os.getpid()):
            found.append(int(number))
    return sorted(found)


def used(numbers):
    """Returns the time that these processes have computed, in ticks."""
    ticks = 0
    for number in numbers:
        with open(f"/proc/{number}/stat", encoding="utf-8") as stat:
            ticks += sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))
    return ticks


def test_each_query_has_a_process_of_its_own(mill):
    with mill.serve(queries_max=3) as server:
        assert ask(server, "select 1 as one") == (200, '{"one":1}\n')
        until(lambda: len(processes()) == 3)
        before = processes()
        mill.call("deposit", account=1, amount=5)
        assert ask(server, "select sum(balance) as s from accounts") == (200, '{"s":5}\n')
        assert processes() == before
    assert processes() == []


CHAIN = "with t0 as (select 1)" + "".join(f", t{i} as (select * from t{i - 1})" for i in range(1, 3000))
POISON = {
    "parens": "select " + "(" * 3000 + "1" + ")" * 3000,
    "chain": CHAIN + " select * from t2999",
    "lambdas": "select " + "list_transform([1], lambda x: " * 600 + "1" + ")" * 600,
    "cases": "select " + "case when balance > 1 then " * 900 + "1" + " end" * 900 + " from accounts",
    "coalesce": "select " + "coalesce(" * 900 + "balance" + ",1)" * 900 + " from accounts",
    "joins": "select 1 from accounts" + " cross join accounts" * 900,
    "unions": "select 1" + " union select 1" * 900,
    "lists": "select " + "[" * 700 + "1" + "]" * 700,
    "types": "select null::bigint" + "[]" * 700,
    "texts": "select sum(length(repeat('a', 200000000))) from range(50)",
    "distance": "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
}


@pytest.mark.parametrize("name", POISON)
def test_no_query_ends_the_server_or_goes_on_past_its_time(mill, name):
    with mill.serve(query_seconds_max=2, query_memory_max=256 << 20) as server:
        assert ask(server, "select 1 as one")[0] == 200
        begun = time.monotonic()
        status, text = ask(server, POISON[name])
        assert time.monotonic() - begun < BOUND_SECONDS
        assert status in (200, 400), text
        assert mill.call("deposit", account=1, amount=1).value == {"balance": 1}
        until(lambda: ask(server, "select count(*) as c from accounts") == (200, '{"c":1}\n'))


def test_a_process_that_is_killed_is_made_anew(mill):
    slow = "select count(*) as c from range(100000000) a, range(100000) b"
    with mill.serve() as server, ThreadPoolExecutor(1) as beside:
        assert ask(server, "select 1 as one")[0] == 200
        until(lambda: len(processes()) == 2)
        before = processes()
        ticks = used(before)
        asked = beside.submit(ask, server, slow)
        until(lambda: used(before) > ticks + 5)
        for number in before:
            os.kill(number, signal.SIGKILL)
        status, text = asked.result()
        assert (status, "has ended the process" in text, "killed" in text) == (400, True, True)
        assert ask(server, "select 2 as two") == (200, '{"two":2}\n')
        assert not set(processes()) & set(before)
        ended = "tidemill_query_processes_ended_total"
        metrics = urllib.request.urlopen(f"{server.url}/metrics").read().decode()
        assert any(line.startswith(ended) and float(line.split()[1]) >= 1 for line in metrics.splitlines())


def test_a_process_that_hangs_is_ended(mill):
    """Whatever holds it: here it is stopped, and hears no interrupt."""
    with mill.serve(query_seconds_max=1) as server:
        assert ask(server, "select 1 as one")[0] == 200
        until(lambda: len(processes()) == 2)
        before = processes()
        for number in before:
            os.kill(number, signal.SIGSTOP)
        begun = time.monotonic()
        assert ask(server, "select 1 as one") == (400, "the query took more than 1 seconds")
        assert time.monotonic() - begun < BOUND_SECONDS
        assert ask(server, "select 1 as one") == (200, '{"one":1}\n')
        # The other one is asked by nobody, and ends with the server.
        until(lambda: len(set(processes()) & set(before)) == 1)
    assert processes() == []


def test_catalogs_wait_for_no_queries_over_tables(mill):
    psycopg = pytest.importorskip("psycopg")
    slow = "select count(*) as c from accounts, range(100000000) a, range(100000) b"
    mill.call("deposit", account=1, amount=1)
    with mill.serve(query_seconds_max=20) as server, ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask, server, slow)
        until(lambda: "tidemill_queries_in_flight 1" in urllib.request.urlopen(f"{server.url}/metrics").read().decode())
        with psycopg.connect(server.postgres_url, autocommit=True) as db:
            tables = db.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()
            assert tables == [("accounts",)] and not asked.done()
            for number in processes():
                os.kill(number, signal.SIGKILL)
        asked.result()


def test_a_query_ends_with_who_asks(mill):
    slow = "select count(*) as c from range(100000000) a, range(100000) b"
    # If it went on, the next one would wait for it for longer than for an answer.
    with mill.serve(query_seconds_max=600) as server:
        assert ask(server, "select 1 as one")[0] == 200
        with pytest.raises(TimeoutError):
            ask(server, slow, timeout=0.3)
        until(lambda: ask(server, "select 1 as one")[0] == 200)


def test_a_table_is_shared_and_bounded(mill):
    mill.call_all("deposit", [{"account": number, "amount": 1} for number in range(200_000)])
    query = "select sum(balance) as s from accounts"
    with mill.serve(query_memory_max=64 << 20) as server:
        assert ask(server, query) == (200, '{"s":200000}\n')
        mill.call("deposit", account=1, amount=1)
        assert ask(server, query) == (200, '{"s":200001}\n')
    with mill.serve(query_memory_max=6 << 20) as server:
        status, text = ask(server, query)
        assert (status, "--query-memory-max" in text and "accounts" in text) == (400, True), text
        # A query that needs no table is answered.
        assert ask(server, "select 1 as one") == (200, '{"one":1}\n')


SERVE = """
import sys
from bank import app
with app.start() as mill, mill.serve(port=0, postgres=False, query_seconds_max=600) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


def test_processes_end_with_a_server_that_is_killed(tmp_path):
    (tmp_path / "bank.py").write_text(APP)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "A_SECRET": "of-the-server"}
    begun = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = begun.stdout.readline().strip()
        until(lambda: len(processes(begun.pid)) == 2)
        numbers = processes(begun.pid)
        ready = urllib.request.Request(f"{url}/query", b"select 1 as one")
        assert urllib.request.urlopen(ready, timeout=60).read() == b'{"one":1}\n'
        for number in numbers:
            with open(f"/proc/{number}/environ", "rb") as secrets:
                assert b"of-the-server" not in secrets.read()
            opened = [os.readlink(f"/proc/{number}/fd/{fd}") for fd in os.listdir(f"/proc/{number}/fd")]
            kinds = {"socket:" if name.startswith("socket:") else name.split(" ")[0] for name in opened}
            own = f"/proc/{number}/statm"
            assert kinds <= {"socket:", "/memfd:tidemill-tables", "/memfd:tidemill-said", own}, opened
        # A query goes on in one of them meanwhile, for longer than it is waited for.
        endless = urllib.request.Request(f"{url}/query", b"select count(*) from range(100000000) a, range(100000) b")
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(endless, timeout=0.3)
        begun.kill()
        begun.wait()
        until(lambda: not any(os.path.exists(f"/proc/{number}/exe") for number in numbers))
    finally:
        begun.kill()
        begun.wait()


TRY = """
import sys; sys.path[:] = {path!r}
import ctypes, json, os, socket, subprocess, threading
from tidemill import _engine, sql
tried = {{}}

def attempt(name, do):
    try:
        do()
        tried[name] = "done"
    except BaseException as error:
        tried[name] = type(error).__name__

def answered(*arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    def from_another_thread(do):
        thread = threading.Thread(target=attempt, args=("thread", do))
        thread.start()
        thread.join()
    attempt("open", lambda: open("/etc/passwd"))
    attempt("write", lambda: open({folder!r} + "/made", "w"))
    attempt("list", lambda: os.listdir("/"))
    attempt("make", lambda: os.mkdir({folder!r} + "/made"))
    attempt("remove", lambda: os.unlink({folder!r} + "/there"))
    attempt("rename", lambda: os.rename({folder!r} + "/there", {folder!r} + "/other"))
    attempt("cut", lambda: os.truncate({folder!r} + "/there", 0))
    attempt("tables", lambda: os.ftruncate(1, 0))
    attempt("rights", lambda: os.chmod({folder!r} + "/there", 0o777))
    attempt("internet", lambda: socket.socket())
    attempt("pair", lambda: socket.socketpair())
    attempt("program", lambda: os.execv("/bin/true", ["true"]))
    attempt("spawn", lambda: subprocess.run(["/bin/true"]))
    attempt("kill", lambda: os.kill(os.getppid(), 0))
    attempt("memory", lambda: bytearray(1 << 32))
    attempt("again", lambda: open("/proc/self/mem"))
    from_another_thread(lambda: open("/etc/passwd"))
    raise sql.QueryError(json.dumps(tried))

os.closerange(3, 1000)
_engine.answer_queries_with(answered, print, 1 << 30)
"""


def test_a_process_reaches_nothing(tmp_path):
    """A query that had taken over the whole process could open, change and send nothing."""
    (tmp_path / "there").write_text("as before")
    path = [os.path.abspath(entry) for entry in sys.path]
    ours, theirs = socket.socketpair()
    tables = os.memfd_create("tables")
    read_only = os.open(f"/proc/self/fd/{tables}", os.O_RDONLY)
    code = TRY.format(path=path, folder=str(tmp_path))
    begun = subprocess.Popen([sys.executable, "-I", "-c", code], stdin=theirs, stdout=read_only, cwd="/")
    theirs.close()
    try:
        ours.settimeout(60)

        def say(message):
            text = json.dumps(message).encode()
            ours.sendall(struct.pack(">II", len(text), len(text)) + text)

        def hear():
            lengths = b""
            while len(lengths) < 8:
                lengths += ours.recv(8 - len(lengths))
            text = b""
            while len(text) < struct.unpack(">II", lengths)[0]:
                text += ours.recv(1 << 16)
            return json.loads(text)

        say({"Tables": []})
        assert hear() == "Ready"
        limits = {"seconds_max": 30.0, "rows_max": 10, "memory_max": 1 << 28}
        say(
            {"Query": {"sql": "", "parameters": None, "form": "Own", "tables": [], "setup": None, "epoch": 1, **limits}}
        )
        tried = json.loads(hear()["Failed"]["failure"]["Refused"])
        assert "done" not in tried.values() and len(tried) == 17, tried
        assert tried["memory"] == "MemoryError"
        ours.close()
        assert begun.wait(30) == 0
    finally:
        begun.kill()
        begun.wait()
    assert (tmp_path / "there").read_text() == "as before" and os.listdir(tmp_path) == ["there"]


def test_without_a_program_there_is_no_process(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    assert query_process.launch() is None


def test_a_process_that_cannot_begin_says_why(mill, monkeypatch):
    program, arguments, environment = query_process.launch()
    broken = [*arguments[:-1], "raise SystemExit('no such module')"]
    monkeypatch.setattr(query_process, "launch", lambda: (program, broken, environment))
    with mill.serve() as server:
        status, text = ask(server, "select 1")
        assert (status, "no such module" in text) == (501, True), text
        assert mill.call("deposit", account=1, amount=1).value == {"balance": 1}


WORN_OUT = """
import sys; sys.path[:] = {path!r}
from tidemill import query_process, sql
answered, worn_out = sql.answered, []

def wears_out(*arguments):
    if "the last" in arguments[2]:
        worn_out.append(arguments)
    if worn_out:
        raise RuntimeError("can't start new thread")
    return answered(*arguments)

sql.answered = wears_out
query_process.run(int(sys.argv[1]))
"""


@pytest.mark.parametrize("table", ["", " from accounts"])
def test_a_process_that_can_answer_nothing_more_is_made_anew(mill, monkeypatch, table):
    """Its address space may be used up by what its allocator keeps: then it goes on, and each query fails."""
    program, arguments, environment = query_process.launch()
    code = WORN_OUT.format(path=[os.path.abspath(entry) for entry in sys.path])
    monkeypatch.setattr(query_process, "launch", lambda: (program, [*arguments[:-1], code], environment))
    with mill.serve() as server:
        query = f"select 1 as one{table}"
        assert ask(server, query)[0] == 200
        status, text = ask(server, f"select 'the last' as one{table}")
        assert status == 400, (status, text)
        # The run goes on: nobody is told that it is over.
        until(lambda: ask(server, query)[0] == 200)
