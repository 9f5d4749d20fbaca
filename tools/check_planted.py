"""Refuses a planted bug whose text is not once in its file, or whose test does not exist.

Run by ``make lint``. ``make planted`` plants the bugs (``plant.py``); this keeps rows true while the code changes.
A row, ``[[bug]]`` in a file of ``tools/planted``, has

- ``name``, unique; ``what``: the bug in a sentence, which ``docs/invariants.md`` does not repeat;
- ``file``, below the repository; ``text``, which stands in it once, as rustfmt leaves it; ``planted``, which takes its
  place;
- ``test``, the command that finds it: ``TIDEMILL_SEED=1 cargo test -p PACKAGE --test TARGET NAME``, with ``--lib``
  for the unit tests of a package, and the test's whole name;
- ``symptom``, a regular expression that is found in what the failing test prints, or ``hangs``: in how many seconds
  the test does not end, though it does without the bug.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11; pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
ROWS = "tools/planted"
VARIABLE = re.compile(r"(TIDEMILL_[A-Z_]+)=(\S*)")
OPTIONS = ("-p", "--test", "--features")


class RowError(Exception):
    """A row that names no bug, or no single test."""


class Test(NamedTuple):
    """A test, and how cargo is told to run it."""

    environment: tuple[tuple[str, str], ...]
    package: str
    # A file of tests; none for the unit tests of the package.
    target: str | None
    features: str | None
    name: str

    @classmethod
    def of(cls, command: str) -> Test:
        """Returns the test that a command names."""
        words = shlex.split(command)
        environment = []
        while words and (variable := VARIABLE.fullmatch(words[0])):
            environment.append((variable[1], variable[2]))
            words.pop(0)
        if words[:2] != ["cargo", "test"] or len(words) < 3:
            raise RowError("no cargo test")
        *words, name = words[2:]
        lib = words.count("--lib")
        words = [word for word in words if word != "--lib"]
        options = dict(zip(words[::2], words[1::2], strict=False))
        if len(words) % 2 or not set(options) <= set(OPTIONS) or "-p" not in options:
            raise RowError(f"options other than {', '.join(OPTIONS)} and --lib, or no -p")
        if lib + ("--test" in options) != 1:
            raise RowError("neither --lib nor --test, or both")
        return cls(tuple(environment), options["-p"], options.get("--test"), options.get("--features"), name)

    def target_option(self) -> list[str]:
        """Returns how cargo is told which tests of the package."""
        return ["--test", self.target] if self.target else ["--lib"]

    def __str__(self) -> str:
        settings = [f"{name}={value}" for name, value in self.environment]
        features = ["--features", self.features] if self.features else []
        return " ".join([*settings, "cargo test -p", self.package, *self.target_option(), *features, self.name])

    def crate(self) -> str:
        """Returns the folder of its package, below the repository."""
        return f"crates/{self.package.removeprefix('tidemill-')}"

    def files(self, root: Path) -> list[Path]:
        """Returns the sources that the test may stand in."""
        crate = root / self.crate()
        if self.target is None:
            return sorted(crate.glob("src/**/*.rs"))
        # Modules of the target stand in a folder of its name, or beside it.
        modules = {self.target, self.name.split("::")[0]}
        beside = [source for module in sorted(modules) for source in sorted(crate.glob(f"tests/{module}/**/*.rs"))]
        return [*crate.glob(f"tests/{self.target}.rs"), *beside]


class Bug(NamedTuple):
    """A row."""

    area: str
    name: str
    what: str
    file: str
    text: str
    planted: str
    test: Test
    symptom: str | None
    hangs: int | None


TYPES = {"name": str, "what": str, "file": str, "text": str, "planted": str, "test": str, "symptom": str, "hangs": int}


def bug_of(area: str, row: dict[str, Any]) -> Bug:
    """Returns the bug of a row whose values have the right types."""
    wrong = sorted(key for key, value in row.items() if key not in TYPES or type(value) is not TYPES[key])
    missing = sorted(key for key in set(TYPES) - set(row) if key not in ("symptom", "hangs"))
    if wrong or missing or ("symptom" in row) == ("hangs" in row):
        raise RowError(f"wrong {wrong}, missing {missing}; and it has either a symptom or hangs")
    values = {"symptom": None, "hangs": None, **row, "test": Test.of(str(row["test"]))}
    return Bug(area=area, **values)


def read(root: Path) -> tuple[list[Bug], list[str]]:
    """Returns the bugs of all files, and the faults of rows that are none."""
    bugs, faults = [], []
    for file in sorted((root / ROWS).glob("*.toml")):
        for number, row in enumerate(tomllib.loads(file.read_text(encoding="utf-8")).get("bug", []), 1):
            try:
                bugs.append(bug_of(file.stem, row))
            except RowError as fault:
                faults.append(f"{ROWS}/{file.name}: {row.get('name', f'bug {number}')}: {fault}")
    return bugs, faults


def faults_of(bug: Bug, root: Path, document: str) -> Iterator[str]:
    """Finds what has become untrue of a row."""
    file = root / bug.file
    count = file.read_text(encoding="utf-8").count(bug.text) if file.is_file() else 0
    if count != 1:
        yield f"its text is {count} times in {bug.file}, and not once"
    if bug.text == bug.planted:
        yield "it changes nothing"
    sources = bug.test.files(root)
    function = re.compile(rf"#\[test\]\n(?:\s*#\[.*\]\n)*\s*fn {re.escape(bug.test.name.split('::')[-1])}\(")
    if not any(function.search(source.read_text(encoding="utf-8")) for source in sources):
        yield f"no test of {' '.join([bug.test.package, *bug.test.target_option()])} is {bug.test.name}"
    if bug.symptom is not None and re.search(bug.symptom, ""):
        yield "any text has its symptom"
    if bug.what in document:
        yield "docs/invariants.md says the same"


def check(root: Path) -> tuple[int, list[str]]:
    """Returns the number of rows, and the faults of all."""
    bugs, faults = read(root)
    document = (root / "docs/invariants.md").read_text(encoding="utf-8")
    names = [bug.name for bug in bugs] + [bug.what for bug in bugs]
    faults += [f"two bugs are {name!r}" for name in sorted({name for name in names if names.count(name) > 1})]
    for bug in bugs:
        faults += [f"{ROWS}/{bug.area}.toml: {bug.name}: {fault}" for fault in faults_of(bug, root, document)]
    return len(bugs), faults


def main() -> int:
    count, faults = check(ROOT)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{count} planted bugs, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
