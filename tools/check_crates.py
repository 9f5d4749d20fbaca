"""Holds the crates to their order: dependencies only point up the list.

Run by ``make lint``. Tests stand above everything: what only they need is not looked at, but for
``histories`` and ``sim``, which nothing else may use, and ``reference``, which shares nothing with
what is held against it: only ``audit``, which does that, has it. It also sees to it that the core
crates deny what clippy.toml disallows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ORDER = [
    "random",
    "exact",
    "model",
    "io",
    "plan",
    "reference",
    "state",
    "compile",
    "txn",
    "schedule",
    "durability",
    "stages",
    "recovery",
    "runtime",
    "connect",
    "kafka",
    "audit",
    "server",
    "cli",
    "python",
    "bench",
    "histories",
    "sim",
]
CORE = ORDER[: ORDER.index("runtime") + 1]
FOR_TESTS = {"reference", "histories", "sim"}
HELD_AGAINST = {"reference": "audit"}
DENIES = "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]"
PREFIX = "tidemill-"


def main() -> int:
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    faults = [fault for package in metadata["packages"] for fault in check(package)]
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(metadata['packages'])} crates, {len(faults)} out of order")
    return 1 if faults else 0


def check(package: dict) -> list[str]:
    name = package["name"].removeprefix(PREFIX)
    if name not in ORDER:
        return [f"crate {name} has no place in the order of tools/check_crates.py"]
    faults = []
    for dependency in package["dependencies"]:
        other = dependency["name"].removeprefix(PREFIX)
        if other == dependency["name"] or dependency["kind"] == "dev":
            continue
        if HELD_AGAINST.get(other) == name:
            continue
        if other in FOR_TESTS and name not in FOR_TESTS:
            faults.append(f"crate {name} depends on {other}, which is for tests only")
        elif ORDER.index(other) >= ORDER.index(name):
            faults.append(f"crate {name} depends on {other}, which comes after it")
    source = Path(package["manifest_path"]).parent / "src" / "lib.rs"
    if name in CORE and DENIES not in source.read_text(encoding="utf-8"):
        faults.append(f"crate {name} lacks {DENIES} in its lib.rs")
    return faults


if __name__ == "__main__":
    sys.exit(main())
