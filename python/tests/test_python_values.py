"""The table of values in docs/language.md: as Python has them, and as a run gives them."""

import ast
import json
import math
import re
from decimal import Decimal
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
ROW = re.compile(r"^\| `(.*)` \| (.*?) \| (.*?) \|$")
FAILS = "fails"

PRELUDE = """
import math

import tidemill as tm

app = tm.App("values")

class Given(tm.Event):
    {fields}

given = app.source(Given)
"""


def rows():
    """The expression, the value here, and the value in Python of each row."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Values as in Python\n")[1].split("\n## ")[0]
    return [match.groups() for line in section.splitlines() if (match := ROW.match(line))]


class Split(ast.NodeTransformer):
    """Takes the constants out of an expression: they become fields of an event."""

    def __init__(self, row):
        self.row, self.fields = row, {}

    def field(self, ty, value):
        name = f"f{self.row}_{len(self.fields)}"
        self.fields[name] = (ty, value)
        return ast.parse(f"e.{name}", mode="eval").body

    def visit_Constant(self, node):  # noqa: N802
        return node if node.value is None else self.field(type(node.value).__name__, node.value)

    def visit_UnaryOp(self, node):  # noqa: N802
        value = ast.literal_eval(node)
        return self.field(type(value).__name__, value)

    def visit_Call(self, node):  # noqa: N802
        if isinstance(node.func, ast.Name) and node.func.id == "D":
            return self.field("tm.Decimal(9, 2)", Decimal(node.args[0].value))
        return self.generic_visit(node)


def value(cell):
    return FAILS if cell == FAILS else cell.strip("`")


def shown(result):
    return json.dumps(result) if isinstance(result, str) else str(result)


def in_python(expression):
    try:
        return shown(eval(expression, {"D": Decimal, "math": math}))
    except (ValueError, ArithmeticError, LookupError):
        return FAILS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Returns the result of a run for each row."""
    splits = []
    for number, (expression, _, _) in enumerate(rows()):
        split = Split(number)
        body = ast.unparse(split.visit(ast.parse(expression, mode="eval")))
        splits.append((split.fields, body))
    fields = {name: field for of, _ in splits for name, field in of.items()}
    program = PRELUDE.format(fields="\n    ".join(f"{name}: {ty}" for name, (ty, _) in fields.items()))
    for number, (_, body) in enumerate(splits):
        program += f"out{number} = given.map(lambda e: {{'v': {body}}})\n"
    path = tmp_path_factory.mktemp("values") / "program.py"
    path.write_text(program, encoding="utf-8")
    names = {}
    exec(compile(program, str(path), "exec"), names)
    app = names["app"]
    collected = [app.collect(names[f"out{number}"]) for number in range(len(splits))]
    given = {name: value for of, _ in splits for name, (_, value) in of.items()}
    app.run({names["given"]: [given]})
    return [[row["v"] for row in of.to_pylist()] for of in collected]


def test_the_table_says_what_python_does():
    assert len(rows()) > 25
    for expression, _, python in rows():
        assert in_python(expression) == value(python), expression


def test_the_table_says_what_a_run_does(found):
    for (expression, here, _), values in zip(rows(), found, strict=True):
        assert [shown(one) for one in values] == ([] if here == FAILS else [value(here)]), expression
