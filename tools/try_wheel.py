"""Installs the wheel into an empty environment, and runs the bank of README.md from it.

    python3 tools/try_wheel.py [--unoptimized] FOLDER [PYTHON ...]

FOLDER has one wheel. It is installed for each PYTHON, this one by default, without packages of others and without an
index. Refused are a wheel that is larger than 20 MB, is for one version of Python or of no stated system, has symbols
or lacks a file or metadata; a result that differs from what README.md shows; and a first result later than two
seconds after the command was started, of three starts the fastest. One that is compiled as the tests are
(``--unoptimized``) may be larger, have symbols, and be for this machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
BYTES_MAX = 20_000_000
FIRST_RESULT_SECONDS_MAX = 2.0
STARTS = 3
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"tidemill-[\w.]+-cp310-abi3-((many|musl)linux\w+\.?)+\.whl")
FILES = (
    "tidemill/_native.abi3.so",
    "tidemill/_native.pyi",
    "tidemill/py.typed",
    "tidemill/THIRD-PARTY.txt",
)
FIELDS = ("Name", "Version", "Summary", "Keywords", "License-Expression", "Requires-Python", "Description-Content-Type")


def main(arguments: list[str]) -> int:
    unoptimized = arguments[:1] == ["--unoptimized"]
    arguments = arguments[unoptimized:]
    wheels = sorted(Path(arguments[0]).glob("*.whl")) if arguments else []
    if len(wheels) != 1:
        print("usage: try_wheel.py [--unoptimized] FOLDER [PYTHON ...], where FOLDER has one wheel", file=sys.stderr)
        return 2
    faults = [*content_faults(wheels[0])]
    faults += [] if unoptimized else [*form_faults(wheels[0])]
    for python in arguments[1:] or [sys.executable]:
        faults += [f"{python}: {fault}" for fault in use_faults(wheels[0], python)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


def form_faults(wheel: Path) -> Iterator[str]:
    """Yields what keeps a wheel from being passed on: its size, what it is for, symbols."""
    size = wheel.stat().st_size
    if size > BYTES_MAX:
        yield f"the wheel has {size:,} bytes; at most {BYTES_MAX:,} are allowed"
    if not NAME.fullmatch(wheel.name):
        yield f"{wheel.name} is not for the stable ABI of Python 3.10 and a stated system"
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            if name.endswith(".so") and b".symtab\0" in content.read(name):
                yield f"{name} has symbols"


def content_faults(wheel: Path) -> Iterator[str]:
    """Yields which files and which metadata a wheel lacks."""
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        for name in names:
            if name.endswith(".so"):
                print(f"{name}: {content.getinfo(name).file_size / 1e6:.1f} MB")
        yield from (f"the wheel has no {name}" for name in FILES if name not in names)
        stated = Parser().parsestr("")
        for name in names:
            if name.endswith(".dist-info/METADATA"):
                stated = Parser().parsestr(content.read(name).decode())
    yield from (f"the metadata has no {field}" for field in FIELDS if not stated[field])


def use_faults(wheel: Path, python: str) -> Iterator[str]:
    """Yields what is wrong with the wheel once it is installed for a Python."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        subprocess.run([python, "-m", "venv", environment], check=True)
        begin = time.monotonic()
        pip = [environment / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--no-cache-dir"]
        subprocess.run([*pip, "--disable-pip-version-check", wheel], check=True)
        print(f"installed for {python} in {time.monotonic() - begin:.1f} s")
        fastest = float("inf")
        for start in range(STARTS):
            bank = Path(folder) / f"bank{start}"
            bank.mkdir()
            differing, seconds = run_readme(bank, environment)
            yield from differing
            print(f"first result after {seconds:.2f} s")
            fastest = min(fastest, seconds)
        if fastest > FIRST_RESULT_SECONDS_MAX:
            yield f"the first result came after {fastest:.2f} s; at most {FIRST_RESULT_SECONDS_MAX} are allowed"


def run_readme(folder: Path, environment: Path) -> tuple[list[str], float]:
    """Does what README.md shows, in an empty folder. Returns what differs, and the seconds of the first command."""
    files, shown = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own["PATH"] = os.pathsep.join([str(environment / "bin"), own.get("PATH", "")])
    faults, seconds = [], []
    for command, printed in shown:
        begin = time.monotonic()
        done = subprocess.run(command, shell=True, cwd=folder, env=own, capture_output=True, text=True)
        seconds.append(time.monotonic() - begin)
        output = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).strip().splitlines())
        if done.returncode or not re.fullmatch(pattern(printed), output, re.DOTALL):
            faults.append(
                f"$ {command} printed, with exit code {done.returncode},\n{output}\nand README.md shows\n{printed}"
            )
    return faults or ([] if shown else ["README.md shows no command"]), seconds[0] if seconds else 0.0


def blocks(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Returns the files of a document by name, and its commands with what each prints."""
    files, commands = {}, []
    for language, name, content in BLOCK.findall(text):
        if name:
            files[name] = content
        elif language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                commands.append((command, printed))
    return files, commands


def pattern(printed: str) -> str:
    """Returns an expression for what a document shows, in which ``...`` is anything."""
    return "".join(".*" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", printed.strip()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
