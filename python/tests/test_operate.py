"""The view that an operator has of a run: its log, its counts, its settings."""

import http.client
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone

import pytest
from operated import WAIT_SECONDS, logged
from server_process import until
from test_no_room import deposit, fill, small_disk, until_it_waits, until_ready
from test_server import BANK

import tidemill as tm
from tidemill.openmetrics import samples

PIPED = """
import tidemill as tm

class Count(tm.Row):
    id: int = tm.key()
    count: int = 0

class Click(tm.Event):
    at: tm.Time = tm.event_time()
    id: int

app = tm.App("clicks")
counts = app.table(Count)
clicks = app.source(Click, tm.jsonl("-"))

@app.transaction(clicks)
def click(ev, c=counts.row("id", create=True)):
    c.count += 1
    return {"id": ev.id}

app.sink(click.committed, SINK)
"""

TWO = """
import tidemill as tm

class Seen(tm.Row):
    id: int = tm.key()
    count: int = 0

class Left(tm.Event):
    at: tm.Time = tm.event_time()
    id: int

class Right(tm.Event):
    at: tm.Time = tm.event_time()
    id: int

app = tm.App("two")
seen = app.table(Seen)
left = app.source(Left)
right = app.source(Right)

@app.transaction(left)
def on_left(ev, s=seen.row("id", create=True)):
    s.count += 1

@app.transaction(right)
def on_right(ev, s=seen.row("id", create=True)):
    s.count += 1
"""


def run(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )


def metrics(url):
    with urllib.request.urlopen(url if url.endswith("/metrics") else f"{url}/metrics", timeout=20) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        text = response.read().decode()
    assert text.endswith("# EOF\n")
    return samples(text)


def served(log):
    return re.search(r"serving \w+ on (http://\S+)", log.says("serving ")["message"])[1]


def text_of(time):
    return time.isoformat().replace("+00:00", "Z")


def click(at, number=0):
    return json.dumps({"at": text_of(at), "id": number}) + "\n"


def write(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")


def test_all_that_a_server_says_is_json(tmp_path):
    write(tmp_path, "bank.py", BANK)
    with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", "state") as log:
        url = served(log)
        log.says("the run is ready")
        with tm.connect(url) as client:
            client.deposit(account="ada", amount=1)
        log.process.send_signal(signal.SIGTERM)
        log.ended()
    begun, asked, ended = log.says("the run has begun"), log.says("asked to stop"), log.says("the run has ended")
    assert (begun["application"], begun["sources"], begun["state"]) == ("bank", 2, "state")
    assert (asked["by"], ended["events"], ended["stopped"]) == ("SIGTERM", 1, False)
    assert len({line["run"] for line in log.lines}) == 1
    for line in log.lines:
        assert datetime.fromisoformat(line["time"].replace("Z", "+00:00")).year >= 2024
        assert line["level"] in ("debug", "info"), line


def test_the_text_of_a_server_has_times(tmp_path):
    write(tmp_path, "bank.py", BANK)
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill", "serve", "bank.py", "--port", "0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z (info |warn )\s*\S.* run=[0-9a-f]{12}\n")
        first = [process.stderr.readline() for _ in range(2)]
        assert all(line.fullmatch(one) for one in first), first
        assert any("serving bank on http://" in one for one in first)
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[1]
        assert "the run has ended" in rest and "bank: 0 events in" in rest
    finally:
        process.kill()
        process.wait()


def test_an_error_is_a_line_of_the_log(tmp_path):
    write(tmp_path, "bank.py", BANK)
    ran = run("serve", "bank.py", "--log-format", "json", "--host", "0.0.0.0", cwd=tmp_path)
    assert ran.returncode == 2
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    (error,) = [line for line in lines if line["level"] == "error"]
    assert "reachable from other machines" in error["message"]


def test_a_slow_sink_is_told_once(tmp_path):
    sink = "lambda batch: __import__('time').sleep(1.6)"
    write(tmp_path, "clicks.py", PIPED.replace("SINK", sink))
    with logged(tmp_path, "run", "clicks.py", stdin=subprocess.PIPE) as log:
        now = datetime.now(timezone.utc)
        for number in range(3):
            log.process.stdin.write(click(now + timedelta(seconds=number), number))
            log.process.stdin.flush()
            time.sleep(0.2)
        told = log.until(lambda line: line.get("incident") == "slow_sink")
        log.process.stdin.close()
        log.ended()
    assert (told["level"], told["sink"]) == ("warn", "click.committed")
    assert log.incidents().count("slow_sink") == 1


def test_a_source_that_stands_still_is_told_and_counted(tmp_path):
    write(tmp_path, "two.py", TWO)
    with logged(tmp_path, "serve", "two.py", "--port", "0", "--stuck-seconds", "1") as log:
        url = served(log)
        with tm.connect(url) as client:
            client.push("rights", [{"at": "2024-01-01T00:00:01Z", "id": 1}])
            client.push("lefts", [{"at": f"2024-01-01T00:00:0{second}Z", "id": 1} for second in range(1, 6)])
            told = log.until(lambda line: line.get("incident") == "stuck_stream")
            assert (told["source"], told["held_by"], told["mark"]) == ("lefts", "rights", "2024-01-01T00:00:01.000000Z")
            assert metrics(url).one("tidemill_incidents_open", {"incident": "stuck_stream"}) == 1
            client.push("rights", [{"at": "2024-01-01T00:01:00Z", "id": 1}])
            client.push("lefts", [{"at": "2024-01-01T00:02:00Z", "id": 1}])
            log.until(
                lambda line: line["message"].startswith("the source is not held back") and line["source"] == "lefts"
            )
            counts = metrics(url)
            assert counts.one("tidemill_incidents_total", {"incident": "stuck_stream"}) >= 1
            marks = dict((labels["source"], value) for labels, value in counts.of("tidemill_watermark_seconds"))
            assert marks["rights"] == datetime(2024, 1, 1, 0, 1, tzinfo=timezone.utc).timestamp()


def test_late_and_bad_records_beyond_a_rate_are_told(tmp_path):
    write(tmp_path, "clicks.py", PIPED.replace("SINK", 'tm.jsonl("out.jsonl")'))
    with logged(tmp_path, "run", "clicks.py", stdin=subprocess.PIPE) as log:
        now = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
        log.process.stdin.write("".join(click(now, number) for number in range(50)))
        log.process.stdin.write("".join(click(now - timedelta(hours=1), number) for number in range(20)))
        log.process.stdin.write("nonsense\n" * 20)
        log.process.stdin.flush()
        for incident in ("late", "bad"):
            told = log.until(lambda line, kind=incident: line.get("incident") == kind)
            assert (told["source"], told["number"]) == ("clicks", 20) and told["of"] >= 20, told
        log.process.stdin.close()
        log.ended()
    warned = log.says("of source 'clicks' were late")
    assert "20 of 70 events" in warned["message"] and "'clicks.late'" in warned["message"]


def test_a_source_that_falls_behind_the_clock_is_told(tmp_path):
    write(tmp_path, "clicks.py", PIPED.replace("SINK", 'tm.jsonl("out.jsonl")'))
    with logged(tmp_path, "run", "clicks.py", "--lag-seconds", "3", stdin=subprocess.PIPE) as log:
        log.process.stdin.write(click(datetime.now(timezone.utc)))
        log.process.stdin.flush()
        told = log.until(lambda line: line.get("incident") == "lag")
        assert told["source"] == "clicks" and told["lag_seconds"] > 3
        log.process.stdin.write(click(datetime.now(timezone.utc)))
        log.process.stdin.flush()
        log.says("the source has caught up")
        log.process.stdin.close()
        log.ended()


def test_a_full_disk_is_told_and_its_end(tmp_path):
    write(tmp_path, "bank.py", BANK)
    with small_disk(tmp_path / "disk") as disk:
        state = disk / "state"
        with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", state) as log:
            url = served(log)
            until_ready(url)
            assert deposit(url)[0] == 200
            ballast = fill(disk)
            until_it_waits(url)
            told = log.until(lambda line: line.get("incident") == "full_disk")
            assert (told["level"], told["waits"]) == ("warn", "log")
            ballast.unlink()
            log.says("the disk has room again")
            assert metrics(url).one("tidemill_incidents_open", {"incident": "full_disk"}) == 0
            log.process.send_signal(signal.SIGTERM)
            log.ended()


def savepoint(url):
    """Asks for a savepoint. Whether it was made."""
    request = urllib.request.Request(f"{url}/console/savepoint", b"", method="POST")
    try:
        urllib.request.urlopen(request, timeout=WAIT_SECONDS).read()
    except urllib.error.HTTPError:
        return False
    return True


def test_a_checkpoint_without_room_is_told_and_its_end(tmp_path):
    write(tmp_path, "bank.py", BANK)
    with small_disk(tmp_path / "disk") as disk:
        with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", disk / "state") as log:
            url = served(log)
            until_ready(url)
            with tm.connect(url) as client:
                client.call_all("deposit", [{"account": f"{number:0400}", "amount": 1} for number in range(10_000)])
            ballast = fill(disk)
            # Room for the log, and not for the rows.
            os.truncate(ballast, ballast.stat().st_size - (1 << 20))
            assert not savepoint(url)
            told = log.until(lambda line: line.get("incident") == "checkpoint_without_room")
            assert told["level"] == "warn"
            assert metrics(url).one("tidemill_checkpoints_without_room_total") >= 1
            ballast.unlink()
            assert savepoint(url)
            log.says("a checkpoint is done")
            deadline = time.monotonic() + WAIT_SECONDS
            while metrics(url).one("tidemill_incidents_open", {"incident": "checkpoint_without_room"}) != 0:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_a_lack_of_descriptors_is_told_and_its_end(tmp_path):
    write(tmp_path, "bank.py", BANK)
    with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", "state") as log:
        url, process = served(log), log.process.pid
        until_ready(url)
        # A connection that is open already.
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=WAIT_SECONDS)
        connection.request("POST", "/call/deposit", '{"account": "ada", "amount": 1}')
        assert connection.getresponse().read()
        most = resource.prlimit(process, resource.RLIMIT_NOFILE)
        taken = {int(number) for number in os.listdir(f"/proc/{process}/fd")}
        first_free = next(number for number in range(len(taken) + 1) if number not in taken)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (first_free, most[1]))
        # A checkpoint opens files.
        connection.request("POST", "/console/savepoint", b"")
        told = log.until(lambda line: line.get("incident") == "no_descriptors")
        assert told["level"] == "warn"
        resource.prlimit(process, resource.RLIMIT_NOFILE, most)
        assert connection.getresponse().status == 200
        connection.close()
        log.says("there are descriptors again")
        assert metrics(url).one("tidemill_incidents_open", {"incident": "no_descriptors"}) == 0


def test_checkpoints_are_told(tmp_path):
    write(tmp_path, "bank.py", BANK)
    with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", "state") as log:
        url = served(log)
        until_ready(url)
        assert savepoint(url)
        begun, done = log.says("a checkpoint has begun"), log.says("a checkpoint is done")
        assert begun["epoch"] == done["epoch"] and done["seconds"] >= 0
        counts = metrics(url)
        assert counts.one("tidemill_checkpoint_epoch") == done["epoch"]
        assert counts.one("tidemill_checkpoint_seconds_count") == 1
        assert counts.one("tidemill_checkpoint_age_seconds") >= 0


def test_a_server_counts_what_it_does(tmp_path):
    write(tmp_path, "bank.py", BANK)
    with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", "state") as log:
        url = served(log)
        until_ready(url)
        with tm.connect(url) as client:
            for amount in (1, 2, 0):
                deposit(url, amount)
            client.call_all("deposit", [{"account": "bob", "amount": 1}] * 20)
        # A reply waits for no release.
        until(lambda: metrics(url).one("tidemill_event_latency_seconds_count") == 23)
        counts = metrics(url)
    assert counts.one("tidemill_calls_total") == 23
    assert counts.one("tidemill_call_seconds_count", {"procedure": "deposit"}) == 23
    assert counts.one("tidemill_call_seconds_bucket", {"procedure": "deposit", "le": "+Inf"}) == 23
    assert counts.one("tidemill_call_seconds_sum", {"procedure": "deposit"}) > 0
    epochs = counts.one("tidemill_epochs_total")
    for stage in ("wait", "prepare", "access", "finish", "log", "release"):
        assert 0 < counts.one("tidemill_stage_seconds_count", {"stage": stage}) <= epochs + 1, stage
    assert counts.one("tidemill_event_latency_seconds_count") == 23
    assert counts.one("tidemill_log_sync_seconds_count") > 0
    assert counts.one("tidemill_log_appended_bytes_total") > 0
    assert counts.one("tidemill_log_bytes") > 0
    assert counts.one("tidemill_table_slots", {"table": "accounts"}) == 2
    assert counts.one("tidemill_table_bytes", {"table": "accounts"}) > 0
    assert counts.one("process_resident_memory_bytes") > 1 << 20
    assert counts.one("process_cpu_seconds_total") > 0
    ((build, one),) = counts.of("tidemill_build_info")
    assert one == 1 and set(build) == {"version", "target", "profile"}
    aborted = {"transaction": "deposit", "reason": "amount must be positive"}
    assert counts.one("tidemill_aborts_total", aborted) == 1


def test_a_run_serves_its_counts(tmp_path):
    write(tmp_path, "clicks.py", PIPED.replace("SINK", 'tm.jsonl("out.jsonl")'))
    with logged(tmp_path, "run", "clicks.py", "--metrics", "127.0.0.1:0", stdin=subprocess.PIPE) as log:
        url = re.search(r"http://\S+", log.says("serving metrics on")["message"])[0]
        log.process.stdin.write("".join(click(datetime.now(timezone.utc), number) for number in range(10)))
        log.process.stdin.flush()
        deadline = time.monotonic() + WAIT_SECONDS
        while (counts := metrics(url)).one("tidemill_events_total", {"source": "clicks"}) < 9:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert counts.one("tidemill_transactions_total", {"transaction": "click", "outcome": "committed"}) >= 9
        assert counts.one("tidemill_sink_events_total", {"sink": "click.committed"}) >= 9
        assert counts.one("tidemill_calls_total") == 0 and not counts.of("tidemill_calls_total")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/tables"), timeout=20)
        stranger = urllib.request.Request(url, headers={"Host": "bank.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(stranger, timeout=20)
        log.process.stdin.close()
        log.ended()


def test_counts_are_not_served_to_other_machines(tmp_path):
    write(tmp_path, "clicks.py", PIPED.replace("SINK", 'tm.jsonl("out.jsonl")'))
    ran = run("run", "clicks.py", "--metrics", "0.0.0.0:0", cwd=tmp_path)
    assert ran.returncode == 2 and "--insecure" in ran.stderr, ran.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert run("run", "clicks.py", "--metrics", "0.0.0.0:0", "--insecure", cwd=tmp_path).returncode == 0


GENERATED = """
import tidemill as tm

class Count(tm.Row):
    id: int = tm.key()
    count: int = 0

class Click(tm.Event):
    id: int

app = tm.App("generated")
counts = app.table(Count)
clicks = app.source(Click, tm.generator(events=100, id=tm.uniform(0, 9)))

@app.transaction(clicks)
def click(ev, c=counts.row("id", create=True)):
    c.count += 1
"""


def summary(*arguments, cwd, **environment):
    ran = run("run", "generated.py", "--json", "--quiet", *arguments, cwd=cwd, **environment)
    return ran.returncode, json.loads(ran.stdout) if ran.returncode == 0 else ran.stderr


def test_settings_come_from_the_command_line_the_environment_and_a_file_in_this_order(tmp_path):
    write(tmp_path, "generated.py", GENERATED)
    write(tmp_path, "mill.toml", 'epoch = 10\nport = 9000\n[run]\nworkers = 1\n[serve]\nhost = "127.0.0.1"\n')

    def epochs(*arguments, **environment):
        code, said = summary(*arguments, cwd=tmp_path, **environment)
        assert code == 0, said
        return said["epochs"]

    assert epochs("--config", "mill.toml") == 10
    assert epochs(TIDEMILL_CONFIG="mill.toml") == 10
    assert epochs("--config", "mill.toml", TIDEMILL_EPOCH="20") == 5
    assert epochs("--config", "mill.toml", "--epoch", "50", TIDEMILL_EPOCH="20") == 2
    assert epochs(TIDEMILL_EPOCH="25") == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed = 1", "'speed' is no option of run and serve"),
        ("[run]\nport = 1", "'port' is no option of run"),
        ("workers = 0", "'0' is not a number of threads"),
        ("workers = [1]", "'workers' is a text or a number"),
        ('insecure = "yes"', "'insecure' is true or false"),
        ("workers", "mill.toml: "),
        ("", "it cannot be read"),
    ],
)
def test_a_file_of_settings_that_is_wrong_is_named(tmp_path, text, said):
    write(tmp_path, "generated.py", GENERATED)
    if text:
        write(tmp_path, "mill.toml", text)
    code, error = summary("--config", "mill.toml", cwd=tmp_path)
    assert code == 2 and "mill.toml" in error and said in error, error


def test_a_setting_of_the_environment_that_is_wrong_is_refused(tmp_path):
    write(tmp_path, "generated.py", GENERATED)
    code, error = summary(cwd=tmp_path, TIDEMILL_WORKERS="many")
    assert code == 2 and "'many'" in error and "--workers" in error


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell):
    script = run("completions", shell)
    assert script.returncode == 0 and "tidemill" in script.stdout and "savepoint" in script.stdout
    assert "metrics" in script.stdout


def test_bash_takes_its_completions():
    script = run("completions", "bash").stdout
    words = "COMP_WORDS=(tidemill sa); COMP_CWORD=1; _tidemill tidemill sa tidemill; echo ${COMPREPLY[@]}"
    completed = subprocess.run(["bash", "-c", f"{script}\n{words}"], capture_output=True, text=True, timeout=60)
    assert completed.stdout.split() == ["savepoint"], completed


def test_manual_pages(tmp_path):
    page = run("man").stdout
    assert page.lstrip().startswith((".ie", ".TH")) and "tidemill" in page and "EXIT" not in page[:40]
    assert run("man", tmp_path).returncode == 0
    pages = sorted(path.name for path in tmp_path.iterdir())
    assert {"tidemill.1", "tidemill-run.1", "tidemill-savepoint-create.1"} <= set(pages), pages
    assert "metrics" in (tmp_path / "tidemill-run.1").read_text(encoding="utf-8")
    nowhere = run("man", tmp_path / "none")
    assert nowhere.returncode == 3 and "takes no pages" in nowhere.stderr


def test_every_command_that_prints_has_an_object(tmp_path):
    write(tmp_path, "generated.py", GENERATED)

    def printed(*arguments):
        ran = run(*arguments, "--json", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    assert printed("run", "generated.py", "--state", "state", "--savepoint", "start")["events"] == 100
    checked = printed("check", "generated.py", "--state", "state")
    assert checked["application"] == "generated" and [table["name"] for table in checked["tables"]] == ["counts"]
    assert (checked["state"]["exists"], checked["state"]["fit"]) == (True, "same")
    assert checked["state"]["checkpoint_bytes"] > 0 and checked["state"]["checkpoint_time"].endswith("Z")
    assert printed("check", "generated.py", "--state", "none")["state"] == {"path": "none", "exists": False}
    explained = printed("explain", "generated.py")
    assert "transaction click" in explained["explanation"] and explained["code"]["functions"] > 0
    assert printed("savepoint", "create", "state", "monday")["savepoint"] == "monday"
    assert {found["name"] for found in printed("savepoint", "list", "state")["savepoints"]} == {"start", "monday"}
    (table,) = printed("savepoint", "export", "state", "monday", "tables")["tables"]
    assert (table["table"], table["rows"]) == ("counts", 10)
    assert printed("savepoint", "remove", "state", "monday") == {"removed": "monday"}
    assert printed("txn", "show", "state", "clicks:3")["position"] == "clicks:3"
    assert printed("verify", "state", "--from", "start")["events"] == 100
    assert printed("savepoint", "restore", "state", "start")["restored"] == "start"
    added = printed("user", "add", "users.json", "ada", "--admin")
    assert added["user"] == "ada" and len(added["secret"]) > 20
    (user,) = printed("user", "list", "users.json")["users"]
    assert (user["name"], user["admin"]) == ("ada", True) and "scram" not in user and "token" not in user
    assert printed("user", "remove", "users.json", "ada") == {"removed": "ada"}


def test_verify_that_finds_a_difference_has_an_exit_code_of_its_own(tmp_path):
    write(
        tmp_path,
        "clicks.py",
        PIPED.replace('tm.jsonl("-")', 'tm.jsonl("in.jsonl")').replace("SINK", 'tm.jsonl("o.jsonl")'),
    )
    now = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    write(tmp_path, "in.jsonl", "".join(click(now + timedelta(seconds=number), number) for number in range(9)))
    assert run("run", "clicks.py", "--state", "state", "--savepoint", "start", cwd=tmp_path).returncode == 0
    assert run("verify", "state", "--from", "start", cwd=tmp_path).returncode == 0
    # The file is read again: what it gave was one other event.
    text = (tmp_path / "in.jsonl").read_text(encoding="utf-8")
    write(tmp_path, "in.jsonl", text.replace('"id": 4', '"id": 5'))
    differs = run("verify", "state", "--from", "start", cwd=tmp_path)
    assert differs.returncode == 5 and "it gives other records than it gave" in differs.stderr, differs


def test_check_says_what_a_state_takes(tmp_path):
    write(tmp_path, "generated.py", GENERATED)
    assert run("run", "generated.py", "--state", "state", cwd=tmp_path).returncode == 0
    checked = run("check", "generated.py", "--state", "state", cwd=tmp_path).stdout
    assert re.search(r"\n  checkpoint [\d.]+ \w+, taken at 20\S+Z; log [\d.]+ \w+; savepoints 0 B\n", checked), checked


def test_check_is_silent_about_what_callers_are_told(tmp_path):
    write(tmp_path, "bank.py", BANK)
    checked = run("check", "bank.py", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.endswith("no errors, no warnings\n")
    assert "warning" not in run("explain", "bank.py", cwd=tmp_path).stdout
