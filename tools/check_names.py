"""Refuses decisions by the spelling of names of tables, streams, transactions and roles.

Run by ``make lint``. Names with a dot are those of the parts of operators. What a part is for is a value (``Owner`` in
``crates/plan/src/operators.rs``): code that takes a name apart goes on to work when the name means something else.
Looked at are the crates that read programs, without their tests; texts of other kinds that are taken apart there are
listed, each with its reason.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CRATES = ["plan", "compile", "durability", "stages", "recovery", "runtime", "reference", "audit", "cli", "server"]
# A text is taken apart at a dot, or by an end that begins with one or with "__", or by a constant whose name says that.
SPELLED = re.compile(
    r"""\b(?:contains|r?find|r?split_once|rsplitn?|splitn?)\(\s*['"]\.['"]
    |\b(?:ends_with|starts_with|strip_suffix|strip_prefix|trim_end_matches)\(\s*&?["'](?:\.[a-z.]+|__\w+)["']
    |\bname\b[^;\n]*\.(?:ends_with|strip_suffix|trim_end_matches)\(\s*(?:\w+::)*[A-Z][A-Z_]+\)""",
    re.VERBOSE,
)
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)
# Folders of tests, and of the catalogs and numbers of another database.
NOT_OURS = {"tests", "postgres"}
# Lines that may, by file: a piece of each, and the reason.
ALLOWED = {
    "plan/src/owners.rs": ["rsplit_once('.')"],  # a state of an earlier program has nothing but names
    "plan/src/analyze/changes.rs": ["name.ends_with(CHANGES)"],  # names that users cannot give to emissions
    "plan/src/analyze/wakes.rs": ["role.name.ends_with(WAITS)"],  # names that users cannot give to roles
    "plan/src/analyze/join/sides.rs": ["name.split_once('.')"],  # `side.field` as a plan has it
    "plan/src/analyze/functions.rs": ["text.split_once('.')"],  # digits of a decimal
    "plan/src/explain/expression.rs": ["field.contains('.')"],  # `side.field` as it is shown
    "plan/src/print.rs": ["name.contains('.')"],  # `side.field` as it is shown
    "durability/src/place.rs": ["text.split_once('.')"],  # the number of an epoch and its course
    "durability/src/view.rs": ['name.ends_with(".new")'],  # names of files
    "durability/src/log/segment.rs": ['name.ends_with(".new")', "name.strip_suffix(ENDING)"],  # names of files
    "durability/src/blocks.rs": ["name.strip_suffix(ENDING)"],  # names of files
    "server/src/identity.rs": ["self.token.contains('.')"],  # a JWT
    "server/src/users/claims.rs": ["rsplit_once('.')", "split_once('.')"],  # a JWT
}


def main() -> int:
    crates = Path(__file__).parent.parent / "crates"
    faults = []
    for crate in CRATES:
        for source in sorted((crates / crate / "src").rglob("*.rs")):
            if source.name == "tests.rs" or NOT_OURS.intersection(source.parts):
                continue
            faults += check(source, source.relative_to(crates).as_posix())
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"{len(faults)} decisions by the spelling of a name")
    return 1 if faults else 0


def check(source: Path, name: str) -> list[str]:
    text = source.read_text(encoding="utf-8")
    if tests := TESTS.search(text):
        text = text[: tests.start()]
    allowed = ALLOWED.get(name, [])
    return [
        f"crates/{name}:{number}: a name is taken apart: {line.strip()}; ask for the owner of the part instead"
        for number, line in enumerate(text.splitlines(), 1)
        if SPELLED.search(line) and not line.lstrip().startswith("//") and not any(piece in line for piece in allowed)
    ]


if __name__ == "__main__":
    sys.exit(main())
