"""The checks of ``make lint`` that this project has itself."""

import subprocess
import sys

import pytest
from conftest import TOOLS

CHECK = TOOLS / "check_files.py"

pytestmark = pytest.mark.skipif(not CHECK.is_file(), reason="the tools are not in the package")


@pytest.fixture
def repository(tmp_path):
    """A repository with one file; gives functions to add a file and to check all of them."""

    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    def add(name, size):
        (tmp_path / name).write_bytes(b"x" * size)
        git("add", "--force", name)

    def check():
        done = subprocess.run([sys.executable, CHECK, tmp_path], capture_output=True, text=True)
        return done.returncode, done.stderr

    git("init", "--quiet")
    (tmp_path / ".gitignore").write_text("/*.made\n")
    add("program.py", 10)
    return add, check


def test_tracked_files_are_source(repository):
    _, check = repository
    assert check() == (0, "")


def test_generated_files_are_refused(repository):
    add, check = repository
    add("data.made", 10)
    code, said = check()
    assert code == 1
    assert "data.made is tracked, but .gitignore names it as generated: git rm --cached data.made" in said


def test_large_files_are_refused(repository):
    add, check = repository
    add("allowed.bin", 1_000_000)
    assert check() == (0, "")
    add("large.bin", 1_000_001)
    code, said = check()
    assert code == 1
    assert "large.bin has 1,000,001 bytes; a tracked file has at most 1,000,000" in said
