"""Writes the licences of the crates that are in the native module, which those who pass it on must pass on, too.

    python3 tools/notices.py FILE

Run by ``make wheel``. Crates with the same text share it. The sources of C that a crate brings have their licences in
a folder of it. A crate without a file of its licence has its expression and authors. Crates of this workspace, of
builds alone and of other systems are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)\b.*", re.IGNORECASE)
LINE = "-" * 80


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: notices.py FILE", file=sys.stderr)
        return 2
    linked = linked_crates()
    text = notices([package for package in packages() if (package["name"], package["version"]) in linked])
    Path(arguments[0]).write_text(text, encoding="utf-8")
    print(f"{len(linked)} crates, {len(text):,} characters")
    return 0


def packages() -> list[dict[str, Any]]:
    """Returns all crates that may be needed, as ``cargo metadata`` describes them."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    listed: list[dict[str, Any]] = json.loads(found)["packages"]
    return listed


def linked_crates() -> set[tuple[str, str]]:
    """Returns the names and versions of the crates that the native module is made of."""
    command = ["cargo", "tree", "--locked", "--package", "tidemill-python", "--edges", "normal", "--prefix", "none"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    found = (re.match(r"(\S+) v(\S+)", line) for line in lines)
    return {(crate[1], crate[2]) for crate in found if crate and not crate[1].startswith("tidemill-")}


def notices(crates: list[dict[str, Any]]) -> str:
    """Returns the licences of crates, each text once, below the crates that have it."""
    sharing: dict[str, list[str]] = defaultdict(list)
    for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
        folder = Path(crate["manifest_path"]).parent
        found = [*folder.iterdir(), *folder.glob("*/*")]
        files = sorted(file for file in found if file.is_file() and NAMES.fullmatch(file.name))
        texts = [file.read_text(encoding="utf-8", errors="replace").strip() for file in files]
        authors = ", ".join(crate["authors"]) or f"the authors of {crate['name']}"
        for text in dict.fromkeys(texts) or [f"Licence: {crate['license']}\nBy {authors}"]:
            sharing[text].append(f"{crate['name']} {crate['version']} ({crate['license']})")
    parts = ["The native module of Tidemill contains these works of others.\n"]
    parts += [f"{LINE}\n{chr(10).join(names)}\n{LINE}\n\n{text}\n" for text, names in sharing.items()]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
