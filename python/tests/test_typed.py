"""Type checkers accept what the documents show: each annotation of a field, and bodies with types."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = "## Type checkers"
PRELUDE = """
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import tidemill as tm

Money = Annotated[Decimal, tm.Decimal(12, 2)]
"""
KNOWN = {"tm", "datetime", "Decimal", "Annotated", "Any"}

pytest.importorskip("mypy")


def check(path):
    """Returns the output of mypy for a file."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--config-file", "", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=path.parent, env={"MYPYPATH": str(ROOT / "python")}
    )
    return done.returncode, done.stdout + done.stderr


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def is_declared(node):
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return any(base in ("tm.Row", "tm.Event") for base in bases)


def declared(block):
    """The classes of a block with their fields. Defaults that need more than is known are left out."""
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return ""
    kept = []
    for node in filter(is_declared, tree.body):
        fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
        for field in fields:
            names = {n.id for n in ast.walk(field.value) if isinstance(n, ast.Name)} if field.value else set()
            if not names <= KNOWN:
                field.value = None
        node.body = fields or [ast.Pass()]
        kept.append(node)
    return "\n\n".join(map(ast.unparse, kept))


def test_every_annotation_that_the_documents_show_is_accepted(tmp_path):
    count = 0
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            classes = declared(block)
            if classes:
                count += classes.count("class ")
                name = f"{page.stem.replace('-', '_')}_{number}.py"
                (tmp_path / name).write_text(PRELUDE + "\n\n" + classes + "\n", encoding="utf-8")
    assert count > 40
    (tmp_path / "program.py").write_text("\n".join(f"import {path.stem}" for path in sorted(tmp_path.glob("*.py"))))
    code, said = check(tmp_path / "program.py")
    assert code == 0, said


def typed():
    """The programs of the section about type checkers."""
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    section = page[page.index(HEADING) :]
    return BLOCK.findall(section[: section.index("\n## ", 1)])


def test_bodies_with_types_are_accepted_and_compiled(tmp_path, monkeypatch):
    programs = typed()
    assert programs
    for number, program in enumerate(programs):
        path = tmp_path / f"typed_{number}.py"
        path.write_text(program, encoding="utf-8")
        code, said = check(path)
        assert code == 0, said
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_a_mistake_in_a_typed_body_is_found(tmp_path):
    path = tmp_path / "wrong.py"
    program = typed()[0]
    assert "a.balance += ev.amount" in program
    path.write_text(program.replace("a.balance += ev.amount", "a.balance += ev.account"), encoding="utf-8")
    code, said = check(path)
    assert code == 1 and "Unsupported operand types" in said


def test_the_short_form_is_no_type_to_type_checkers(tmp_path):
    """If this fails, the documents may show the short form again."""
    path = tmp_path / "short.py"
    path.write_text(
        "import tidemill as tm\n\nclass Payment(tm.Event):\n    amount: tm.Decimal(12, 2)\n", encoding="utf-8"
    )
    code, said = check(path)
    assert code == 1 and "Invalid type comment or annotation" in said
