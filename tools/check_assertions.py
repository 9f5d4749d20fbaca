"""Refuses an area of the engine with fewer assertions than RATE_MIN per thousand lines of code.

Run by ``make lint``. In these areas a broken fact shows late: in other rows, after a crash, in another run. So what
the lines rely on is asserted where it is made. ``assert!`` and its kin count, ``debug_assert!`` too, and
``unreachable!``. Lines of code are neither blank nor comments; tests (``#[cfg(test)]``) are not looked at.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from rust_source import NOISE, without

RATE_MIN = 15

# The files of each area, as patterns below the repository.
AREAS = {
    "gate": [
        "crates/stages/src/gate/mod.rs",
        "crates/stages/src/gate/queue.rs",
        "crates/stages/src/gate/choose.rs",
        "crates/runtime/src/gather.rs",
        "crates/runtime/src/cutter.rs",
        "crates/runtime/src/decide.rs",
        "crates/runtime/src/decide/*.rs",
        "crates/runtime/src/entrance.rs",
        "crates/runtime/src/inputs.rs",
        "crates/runtime/src/agenda.rs",
        "crates/stages/src/due.rs",
        "crates/stages/src/tasks.rs",
    ],
    "recovery": ["crates/recovery/src/*.rs"],
    "log": ["crates/durability/src/log/*.rs", "crates/recovery/src/logger.rs"],
    "buffer manager": [
        "crates/recovery/src/buffer_manager.rs",
        "crates/recovery/src/eviction.rs",
        "crates/state/src/evict.rs",
        "crates/state/src/evicted.rs",
    ],
    "table": ["crates/state/src/table.rs", "crates/state/src/nodes.rs", "crates/state/src/rows.rs"],
    "executor": ["crates/schedule/src/executor*", "crates/schedule/src/participant.rs"],
}

TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\][^{;]*[{;]")
ASSERTION = re.compile(r"\b(?:(?:debug_)?assert(?:_eq|_ne)?|unreachable)!")


def code_of(text: str) -> str:
    """Source without comments, and without items that only tests have; a text in quotes is reduced to its quotes."""
    text = NOISE.sub(lambda noise: "" if noise[0].startswith("/") else '""', text)
    return without(TEST, text)


def count(text: str) -> tuple[int, int]:
    """Lines of code and assertions of a source."""
    code = code_of(text)
    return sum(1 for line in code.splitlines() if line.strip()), len(ASSERTION.findall(code))


def areas(repository: Path) -> Iterator[tuple[str, int, int]]:
    """Lines of code and assertions of each area."""
    for area, patterns in AREAS.items():
        files = {file for pattern in patterns for file in repository.glob(pattern) if file.is_file()}
        counts = [count(file.read_text(encoding="utf-8")) for file in sorted(files)]
        yield area, sum(lines for lines, _ in counts), sum(assertions for _, assertions in counts)


def rate(lines: int, assertions: int) -> float:
    return 1000 * assertions / max(lines, 1)


def check(repository: Path) -> list[str]:
    faults = []
    for area, lines, assertions in areas(repository):
        if lines == 0:
            faults.append(f"area {area}: none of its files is there")
        elif rate(lines, assertions) < RATE_MIN:
            has = f"{rate(lines, assertions):.1f} assertions per thousand lines of code"
            faults.append(f"area {area}: {has}; at least {RATE_MIN} are wanted")
    return faults


def main() -> int:
    repository = Path(__file__).parents[1]
    print(f"{'area':<16}{'lines':>7}{'assertions':>12}{'per 1,000':>11}")
    for area, lines, assertions in areas(repository):
        print(f"{area:<16}{lines:>7,}{assertions:>12}{rate(lines, assertions):>11.1f}")
    faults = check(repository)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
