"""Plants bugs in a copy of the tree, and sees the tests find them. Run by ``make planted``.

``plant.py`` takes all bugs of ``tools/planted``, ``plant.py txn chain-backwards`` those of an area or of a name.
``check_planted.py`` says what a row has. First each test must pass without a bug (the control); then each bug by itself
must make its test fail with the bug's symptom, or hang. What is printed meanwhile lies in ``target/planted/logs``.

Most of the time would go into compiling, so bugs are compiled together: a function with a bug is there twice, with it
and without, and a variable of the environment says which bug of the program is switched on, if any (:func:`switched`).
A bug that is not inside of one function, and all of a package if they do not compile together, are compiled one by one.

The tree itself stays as it is. The copy and what is built of it are kept, so that a next run builds what has changed.
"""

from __future__ import annotations

import argparse
import enum
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from check_planted import ROOT, Bug, Test, read
from rust_source import NOISE

# A test that takes longer hangs, where the row says no shorter time.
SECONDS_MAX = 900
# The variable that says which bug is switched on, by its number.
SWITCH = "TIDEMILL_PLANTED"
# The end of a file with switched bugs.
READ_SWITCH = f"""
#[allow(missing_docs)]
mod planted_bug {{
    static ON: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("{SWITCH}").map_or(0, |bug| bug.parse().expect("a number")));
    pub fn is(bug: u32) -> bool {{
        *ON == bug
    }}
}}
"""
HEAD = re.compile(r"(\bconst\s+)?(?:\bunsafe\s+)?\bfn\s+\w+")


class Outcome(enum.Enum):
    """The result of a test, or of a planted bug."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_BUILT = "does not compile"
    HANGS = "hangs"
    FOUND = "found"
    NOT_FOUND = "not found"
    OTHER = "another symptom"
    NO_CONTROL = "fails without a bug"


class Body(NamedTuple):
    """The places of a function's body in a source: after its ``{``, and of its ``}``."""

    start: int
    end: int


def bodies(source: str) -> list[Body]:
    """Returns the bodies of the functions that may be written twice: neither constant, nor of an unnamed type."""
    code = NOISE.sub(lambda noise: " " * len(noise[0]), source)
    found = []
    for head in HEAD.finditer(code):
        # The head without its arguments.
        depth, at, beside = 0, head.end(), ""
        while depth or code[at] not in "{;":
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[at], 0)
            beside += "" if depth else code[at]
            at += 1
        if code[at] == ";" or head[1] or re.search(r"\bimpl\b", beside):
            continue
        depth, end = 1, at + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        found.append(Body(at + 1, end - 1))
    return found


def number_of(bug: Bug) -> int:
    """Returns the number by which a bug is switched on: the same whichever other bugs there are."""
    return zlib.crc32(bug.name.encode())


def switched(source: str, bugs: Iterable[Bug]) -> tuple[str, set[str]]:
    """Returns a source with these bugs, each behind a switch, and the names of those that have one."""
    all_bodies, taken = bodies(source), set()
    changed: dict[Body, list[tuple[int, Bug]]] = {}
    for bug in bugs:
        at = source.find(bug.text)
        around = [body for body in all_bodies if body.start <= at and at + len(bug.text) <= body.end]
        if at >= 0 and around:
            changed.setdefault(max(around), []).append((at, bug))
            taken.add(bug.name)
    # A function in another one would be written anew twice.
    for body in sorted(changed, reverse=True):
        if any(other.start < body.start and body.end < other.end for other in changed):
            taken -= {bug.name for _, bug in changed.pop(body)}
    for body in sorted(changed, reverse=True):
        plain, text = source[body.start : body.end], ""
        for at, bug in changed[body]:
            before, after = source[body.start : at], source[at + len(bug.text) : body.end]
            text += f"if planted_bug::is({number_of(bug)}) {{{before}{bug.planted}{after}}} else "
        source = f"{source[: body.start]} {text}{{{plain}}} {source[body.end :]}"
    return source + READ_SWITCH if taken else source, taken


def copy_tree(root: Path, copy: Path, changed: dict[str, str]) -> None:
    """Makes a copy of the files of a repository that git does not ignore, but for those that are changed.

    A file of the copy that is the same already is not touched, so that nothing is compiled for it.
    """
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    wanted = {copy / name: name for name in names if name and (root / name).is_file()}
    for file in [file for file in copy.rglob("*") if file.is_file() and file not in wanted]:
        file.unlink()
    for file, name in wanted.items():
        content = changed[name].encode() if name in changed else (root / name).read_bytes()
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


class Field:
    """The copy in which bugs are planted."""

    def __init__(self, root: Path, target: Path, bugs: list[Bug]):
        self.root, self.tree, self.logs = root, target / "tree", target / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        # All of them are in the copy, whichever are tried, so that another choice compiles nothing.
        self.bugs = bugs
        given = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
        # A trace would only take time.
        self.environment = {**given, "CARGO_TARGET_DIR": str(target / "build"), "RUST_BACKTRACE": "0"}

    def plant_switched(self, bugs: list[Bug]) -> set[str]:
        """Makes the copy anew with these bugs behind switches; returns the names of those that have one."""
        taken: set[str] = set()
        changed = {}
        for name in {bug.file for bug in bugs if (self.root / bug.file).is_file()}:
            source = (self.root / name).read_text(encoding="utf-8")
            changed[name], names = switched(source, [bug for bug in bugs if bug.file == name])
            taken |= names
        copy_tree(self.root, self.tree, changed)
        return taken

    def build_switched(self, package: str, tests: set[Test]) -> tuple[dict[Test, Path], set[str]]:
        """Builds tests of a package with the bugs that have a switch, or if these do not compile together, with none.

        Returns the programs, and the names of the bugs in them.
        """
        log = self.logs / f"{package}.build.log"
        for bugs in (self.bugs, []):
            begun = time.monotonic()
            taken = self.plant_switched(bugs)
            if programs := self.build(tests, log):
                say(Outcome.PASSED, begun, f"{package}: built with {len(taken)} switches")
                return programs, taken
            say(Outcome.NOT_BUILT, begun, f"{package}: with {len(taken)} switches, so each bug is compiled by itself")
        raise SystemExit(f"error: the tests of {package} do not compile without a bug ({log})")

    def build(self, tests: set[Test], log: Path) -> dict[Test, Path] | None:
        """Builds tests of one package, and returns their programs; none if they do not compile."""
        some = next(iter(tests))
        command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", "-p", some.package]
        for target in sorted({tuple(test.target_option()) for test in tests}):
            command += target
        command += ["--features", some.features] if some.features else []
        with log.open("wb") as errors:
            built = subprocess.run(command, cwd=self.tree, env=self.environment, stdout=subprocess.PIPE, stderr=errors)
        if built.returncode != 0:
            return None
        messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith(b"{")]
        made = {target_of(message): Path(message["executable"]) for message in messages if message.get("executable")}
        return {test: made[test.target] for test in tests}

    def run(self, test: Test, program: Path, log: Path, seconds: int, switch: int = 0) -> Outcome:
        """Runs a test, and ends it and all that it has started after so many seconds."""
        crate = self.tree / test.crate()
        settings = {**dict(test.environment), SWITCH: str(switch), "CARGO_MANIFEST_DIR": str(crate)}
        command = [str(program), "--exact", test.name]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=crate,
                env={**self.environment, **settings},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                return Outcome.FAILED if process.wait(seconds) else Outcome.PASSED
            except subprocess.TimeoutExpired:
                return Outcome.HANGS
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def control(self, test: Test, program: Path, seconds: int) -> Outcome:
        """Runs a test without a bug. One that ran nothing has not passed."""
        log = self.logs / f"control-{test.package}-{test.name}.log"
        log.write_bytes(b"")
        outcome = self.run(test, program, log, seconds)
        ran = re.search(r"^test result: ok\. 1 passed", log.read_text(errors="replace"), re.MULTILINE)
        return Outcome.FAILED if outcome is Outcome.PASSED and not ran else outcome

    def try_bug(self, bug: Bug, program: Path, switch: int = 0) -> Outcome:
        """Runs the test of a bug that is planted."""
        log = self.logs / f"{bug.name}.log"
        log.write_bytes(b"")
        outcome = self.run(bug.test, program, log, bug.hangs or SECONDS_MAX, switch)
        return judge(bug, outcome, log.read_text(errors="replace"))

    def plant_alone(self, bug: Bug) -> Outcome:
        """Plants a bug in the copy, builds its test and runs it."""
        source = (self.root / bug.file).read_text(encoding="utf-8")
        if source.count(bug.text) != 1:
            return Outcome.NOT_BUILT
        copy_tree(self.root, self.tree, {bug.file: source.replace(bug.text, bug.planted)})
        programs = self.build({bug.test}, self.logs / f"{bug.name}.build.log")
        return self.try_bug(bug, programs[bug.test]) if programs else Outcome.NOT_BUILT


def target_of(message: dict[str, Any]) -> str | None:
    """Returns the file of tests that cargo has built; none for unit tests."""
    target = message["target"]
    return str(target["name"]) if "test" in target["kind"] else None


def judge(bug: Bug, outcome: Outcome, printed: str) -> Outcome:
    """Says whether a test that was run with a bug has found it."""
    if outcome is Outcome.PASSED:
        return Outcome.NOT_FOUND
    if outcome is Outcome.HANGS:
        return Outcome.FOUND if bug.hangs else Outcome.HANGS
    return Outcome.FOUND if bug.symptom and re.search(bug.symptom, printed) else Outcome.OTHER


def chosen(bugs: list[Bug], words: list[str]) -> list[Bug]:
    """Returns the bugs of these areas and names; all if there is no word."""
    unknown = set(words) - {bug.area for bug in bugs} - {bug.name for bug in bugs}
    if unknown:
        raise SystemExit(f"error: no area and no bug is {', '.join(sorted(unknown))}")
    return [bug for bug in bugs if not words or bug.area in words or bug.name in words]


def try_all(field: Field, bugs: list[Bug]) -> dict[str, Outcome]:
    """Runs the controls, then the tests of each bug whose control has passed. Returns the outcome of each bug."""
    outcomes: dict[str, Outcome] = {}
    alone = []
    for package, features in dict.fromkeys((bug.test.package, bug.test.features) for bug in bugs):
        group = [bug for bug in bugs if (bug.test.package, bug.test.features) == (package, features)]
        programs, switches = field.build_switched(package, {bug.test for bug in group})
        passed = set()
        for test in dict.fromkeys(bug.test for bug in group):
            begun = time.monotonic()
            outcome = field.control(test, programs[test], min(b.hangs or SECONDS_MAX for b in group if b.test == test))
            passed |= {test} if outcome is Outcome.PASSED else set()
            say(outcome, begun, f"control: {test}")
        for bug in group:
            begun = time.monotonic()
            if bug.test not in passed:
                outcomes[bug.name] = Outcome.NO_CONTROL
            elif bug.name in switches:
                outcomes[bug.name] = field.try_bug(bug, programs[bug.test], number_of(bug))
            else:
                alone.append(bug)
                continue
            say(outcomes[bug.name], begun, f"{bug.name}: {bug.what}")
    for bug in alone:
        begun = time.monotonic()
        outcomes[bug.name] = field.plant_alone(bug)
        say(outcomes[bug.name], begun, f"{bug.name}: {bug.what}")
    return {bug.name: outcomes[bug.name] for bug in bugs}


def say(outcome: Outcome, begun: float, what: str) -> None:
    taken = round(time.monotonic() - begun)
    print(f"{outcome.value:<20}{taken // 60:>3}:{taken % 60:02}  {what}", flush=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description="Plants bugs in a copy of the tree, and sees the tests find them.")
    arguments.add_argument("--list", action="store_true", help="print the bugs, and plant none")
    arguments.add_argument("bugs", nargs="*", help="areas or names of bugs; all if there is none")
    given = arguments.parse_args()
    rows, faults = read(ROOT)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    bugs = chosen(rows, given.bugs)
    if given.list:
        print("\n".join(f"{bug.area:<10}{bug.name:<28}{bug.what}" for bug in bugs))
        return 1 if faults else 0
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "planted"
    outcomes = try_all(Field(ROOT, target, rows), bugs)
    missed = {name: outcome for name, outcome in outcomes.items() if outcome is not Outcome.FOUND}
    print(f"\n{len(outcomes) - len(missed)} of {len(outcomes)} planted bugs were found")
    for name, outcome in missed.items():
        print(f"error: {name}: {outcome.value} ({target / 'logs'}/{name}.log)", file=sys.stderr)
    return 1 if missed or faults else 0


if __name__ == "__main__":
    sys.exit(main())
