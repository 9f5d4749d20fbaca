"""The package works on the oldest Python that it says it does."""

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tidemill"


def bases(node):
    """The names of a class's bases, without their parameters."""
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        yield base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_no_class_has_bases_that_python_3_10_refuses(file):
    """Python 3.11 is the first that lets a ``NamedTuple`` or a ``TypedDict`` be generic. Neither ruff nor mypy knows."""
    classes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    both = [c.name for c in classes if "Generic" in bases(c) and {"NamedTuple", "TypedDict"} & set(bases(c))]
    assert both == []


def test_every_module_is_imported_by_python_3_10():
    python = shutil.which("python3.10")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip("there is no python3.10")
    files = [file.relative_to(PACKAGE.parent).with_suffix("") for file in sorted(PACKAGE.rglob("*.py"))]
    names = [".".join(file.parts).removesuffix(".__init__") for file in files if file.name != "__main__"]
    code = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)\n"
    environment = os.environ | {"PYTHONPATH": os.fspath(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
