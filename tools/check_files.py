"""Refuses files that do not belong into the repository: generated ones, and those larger than 1 MB.

Run by ``make lint``. A file counts as generated if .gitignore names it, so that one that was added by
accident, or before its pattern was, is found.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BYTES_MAX = 1_000_000


def listed(folder: Path, *options: str) -> list[str]:
    """The paths that ``git ls-files`` lists."""
    command = ["git", "-C", str(folder), "ls-files", "-z", *options]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [path for path in found.split("\0") if path]


def faults_of(folder: Path) -> list[str]:
    """Returns the faults of the tracked files of a folder, a line each."""
    ignored = listed(folder, "--cached", "--ignored", "--exclude-standard")
    faults = [f"{path} is tracked, but .gitignore names it as generated: git rm --cached {path}" for path in ignored]
    for path in listed(folder):
        file = folder / path
        size = file.lstat().st_size if file.is_symlink() or file.is_file() else 0
        if size > BYTES_MAX:
            faults.append(f"{path} has {size:,} bytes; a tracked file has at most {BYTES_MAX:,}")
    return faults


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if subprocess.run(["git", "-C", str(folder), "rev-parse"], capture_output=True).returncode != 0:
        print("skipped: this is no git repository, so that nothing is tracked")
        return 0
    faults = faults_of(folder)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(listed(folder))} tracked files, {len(faults)} out of place")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
