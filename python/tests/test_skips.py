"""Skipped tests: a test that is skipped because the system lacks a program is counted, any other fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import unknown_skips

TESTS = """
import pytest

def test_runs():
    pass

@pytest.mark.skipif(True, reason={reason!r})
def test_is_skipped():
    raise AssertionError
"""


@pytest.mark.parametrize("processes", [(), ("--numprocesses", "2")])
@pytest.mark.parametrize(("reason", "code"), [("psql is not installed", 0), ("not today", 1)])
def test_a_skip_has_a_known_reason(tmp_path, processes, reason, code):
    if processes:
        pytest.importorskip("xdist")
    (tmp_path / "test_two.py").write_text(TESTS.format(reason=reason), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--known-skips", *processes, "--rootdir", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    ran = subprocess.run(
        [*map(str, command), str(tmp_path)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert f"1 skipped, {code} for a reason that is not known" in ran.stdout


def test_a_package_that_cannot_be_imported_is_no_known_reason():
    assert unknown_skips(["could not import 'psycopg': No module named 'psycopg'"])
    assert not unknown_skips(["there is no Chromium; apt install chromium"])
