"""Functions of hundreds of branches and terms compile and run. Beyond the stated limits they are refused where they are
too deep."""

import types

import pytest

import tidemill as tm
from tidemill import testing

PRELUDE = """
import tidemill as tm

class Tick(tm.Event):
    id: int
    n: int

class Cell(tm.Row):
    id: int = tm.key()
    n: int = 0

app = tm.App("deep")
ticks = app.source(Tick)
cells = app.table(Cell)
"""
TRANSACTION = "@app.transaction(ticks)\ndef t(ev, c=cells.row('id', create=True)):\n"


def load(tmp_path, code):
    """The module of an application, from a file of its own."""
    file = tmp_path / "deep.py"
    file.write_text(PRELUDE + code, encoding="utf-8")
    module = types.ModuleType("deep")
    module.__file__ = str(file)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    return module


def cells_after(module, numbers):
    done = testing.run(module.app, {module.ticks: [{"id": i, "n": n} for i, n in enumerate(numbers)]})
    return [row["n"] for row in done.table("cells")]


def elifs(count):
    lines = ["    if ev.n == 0:", "        c.n = 7"]
    for i in range(1, count):
        lines += [f"    elif ev.n == {i}:", f"        c.n = {2 * i}"]
    return TRANSACTION + "\n".join([*lines, "    else:", "        c.n = -1", ""])


def ifs(count):
    lines = [f"{'    ' * min(i + 1, 90)}if ev.n > {i}:" for i in range(count)]
    return TRANSACTION + "\n".join([*lines, "    " * (count + 1) + "c.n = 5", ""])


def test_three_hundred_elifs(tmp_path):
    assert cells_after(load(tmp_path, elifs(300)), [0, 1, 299, 300]) == [7, 2, 598, -1]


def test_five_hundred_terms(tmp_path):
    terms = " + ".join(["ev.n"] * 500)
    code = f"some = ticks.filter(lambda e: {terms.replace('ev', 'e')} < 5000)\n"
    code += TRANSACTION.replace("(ticks)", "(some)") + f"    c.n = {terms}\n"
    assert cells_after(load(tmp_path, code), [1, 10, 3]) == [500, 1500]


def test_ninety_ifs_and_parentheses_in_each_other(tmp_path):
    assert cells_after(load(tmp_path, ifs(90)), [90, 89]) == [5]
    nested = "(1 + " * 150 + "ev.n" + ")" * 150
    assert cells_after(load(tmp_path, TRANSACTION + f"    c.n = {nested}\n"), [3]) == [153]


def test_thousands_of_constants_in_a_test(tmp_path):
    numbers = ", ".join(str(i) for i in range(3000))
    code = f"some = ticks.filter(lambda e: e.n in ({numbers}))\n" + TRANSACTION.replace("(ticks)", "(some)")
    assert cells_after(load(tmp_path, code + "    c.n = ev.n\n"), [2999, 3000]) == [2999]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (elifs(402), "blocks are in each other here, more than 400 deep"),
        (TRANSACTION + f"    c.n = {' + '.join(['ev.n'] * 700)}\n", "operations are in each other here, more than 600"),
        (
            f"ticks.filter(lambda e: {' + '.join(['e.n'] * 700)} > 0)\n",
            "operations are in each other here, more than 600",
        ),
    ],
)
def test_deeper_is_refused_with_its_place(tmp_path, code, message):
    with pytest.raises(tm.CompileError) as raised:
        load(tmp_path, code)
    assert message in str(raised.value)
    assert raised.value.lineno > len(PRELUDE.splitlines())
