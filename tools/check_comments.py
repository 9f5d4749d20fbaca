"""Refuses more than COUNT_MAX comments that begin with a question word, in Rust and Python.

Run by ``make lint``. A comment that begins with "What", "Whether" or "By" leaves out the noun: the reader must find in
the code what the thing is. "Returns …", "The sources' batches, by source number" and "A flag: whether …" are understood
at once. COUNT_MAX may only be lowered. With files or folders as arguments the comments there are listed.

A comment is a run of lines that begin with ``//``, ``///``, ``//!`` or ``#``, or a docstring; only its first word is
looked at. A comment after code on the same line is not.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

COUNT_MAX = 0

FOLDERS = ["bench", "crates", "deploy", "examples", "fuzz", "python", "tools"]
WORDS = re.compile(r"(?:What|Whether|How|By|Of|Where|When|The same)\b")
RUST_COMMENT = re.compile(r"\s*(//[/!]?)(?!/)\s*(.*)")


def rust_comments(text: str) -> Iterator[tuple[int, str]]:
    """The line number and the first line of each comment of a Rust source."""
    above = None
    for number, line in enumerate(text.splitlines(), 1):
        found = RUST_COMMENT.match(line)
        if found and found[1] != above:
            yield number, found[2]
        above = found[1] if found else None


def python_comments(text: str) -> Iterator[tuple[int, str]]:
    """The line number and the first line of each comment and docstring of a Python source."""
    above = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            if token.start[0] != above + 1:
                yield token.start[0], token.string.lstrip("#!: ")
            above = token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.lstrip()


def faults_of(file: Path) -> list[tuple[int, str]]:
    """The comments of a file that begin with one of WORDS: their line numbers and first lines."""
    comments = rust_comments if file.suffix == ".rs" else python_comments
    found = comments(file.read_text(encoding="utf-8"))
    return sorted((number, text.partition("\n")[0]) for number, text in found if WORDS.match(text))


def sources(places: list[Path]) -> Iterator[Path]:
    """The Rust and Python files among some files and below some folders."""
    for place in places:
        yield from [place] if place.is_file() else sorted([*place.rglob("*.rs"), *place.rglob("*.py")])


def check(count: int) -> list[str]:
    if count <= COUNT_MAX:
        return []
    return [
        f"{count:,} comments begin with a question word, {count - COUNT_MAX:,} more than COUNT_MAX in this file: begin "
        'them with a verb ("Returns …") or a noun; `python3 tools/check_comments.py FILE ...` lists those of a file'
    ]


def main() -> int:
    if sys.argv[1:]:
        for file in sources([Path(place) for place in sys.argv[1:]]):
            for number, text in faults_of(file):
                print(f"{file}:{number}: {text}")
        return 0
    repository = Path(__file__).parents[1]
    counts: Counter[str] = Counter()
    for file in sources([repository / folder for folder in FOLDERS]):
        counts["/".join(file.relative_to(repository).parts[:2])] += len(faults_of(file))
    for folder, count in counts.items():
        if count:
            print(f"{folder:<24}{count:>6,}")
    print(f"{'all':<24}{counts.total():>6,}")
    faults = check(counts.total())
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    if counts.total() < COUNT_MAX:
        print(f"COUNT_MAX in tools/check_comments.py can be lowered to {counts.total()}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
