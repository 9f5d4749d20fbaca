"""Two runs that write one output: the second one is refused, whatever state either has."""

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import tidemill as tm

class Number(tm.Event):
    number: int

app = tm.App("{name}")
numbers = app.source(Number, tm.csv("{input}", follow={follows}))
app.sink(numbers, tm.jsonl("out.jsonl"))
"""


@pytest.fixture
def folder(tmp_path):
    for name, follows in [("first", True), ("second", False)]:
        program = PROGRAM.format(name=name, input=f"{name}.csv", follows=follows)
        (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    (tmp_path / "first.csv").write_text("number\n1\n", encoding="utf-8")
    (tmp_path / "second.csv").write_text("number\n777\n", encoding="utf-8")
    return tmp_path


def command(name, *options):
    return [sys.executable, "-m", "tidemill", "run", f"{name}.py", "--quiet", *options]


@pytest.mark.parametrize("second", [(), ("--state", "other")], ids=["without a state", "with a state"])
@pytest.mark.parametrize("first", [(), ("--state", "state")], ids=["beside none", "beside a state"])
def test_an_output_belongs_to_one_run(folder, first, second):
    running = subprocess.Popen(command("first", *first), cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        # It holds the output once there is something of it, also under a hidden name.
        until = time.monotonic() + 60
        while not list(folder.glob("*out.jsonl*")) + list(folder.glob(".*out.jsonl*")):
            assert running.poll() is None, running.stderr.read()
            assert time.monotonic() < until, sorted(folder.iterdir())
            time.sleep(0.02)
        refused = subprocess.run(
            command("second", *second), cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert refused.returncode == 3, refused
        assert "out.jsonl cannot be written: another sink is writing it" in refused.stderr
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 130
    output = folder / "out.jsonl"
    assert not output.exists() or "777" not in output.read_text(encoding="utf-8")
    # It is free again.
    done = subprocess.run(
        command("second", *second), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert output.read_text(encoding="utf-8") == '{"number":777}\n'
