"""Columns whose values a function converts when the state of an earlier version is migrated."""

import re
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal

import pytest

import tidemill as tm

RATE = 100


def rounded(value):
    return round(value)


def checked_cents(value):
    tm.require(value >= 0.0, "it is negative")
    return round(value * RATE)


def to_cents(amount: float):
    """A helper is called, and a constant from outside is used."""
    return checked_cents(amount)


def to_size(amount: float | None):
    """Statements, several ends, and a parameter that is assigned to."""
    if amount is None:
        return "none"
    amount = amount * 2.0
    if amount > 10.0:
        return "large"
    return "small"


def to_number(name: str):
    return int(name.strip())


def to_money(value: tm.Decimal(9, 2)):
    return value + tm.Decimal("0.005")


def to_time(seconds: int):
    return EPOCH + tm.seconds(seconds)


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Old(tm.Row):
    id: str = tm.key()
    amount: float | None = None
    total: float = 0.0
    name: str = "0"
    money: tm.Decimal(9, 2) = Decimal("1.25")
    at: int = 0
    open: bool = True


class New(tm.Row):
    id: str = tm.key()
    cents: int | None = tm.column(was="amount", convert=to_cents)
    total: int = tm.column(convert=lambda v: rounded(v * 10.0), old=float)
    number: int = tm.column(was="name", convert=to_number)
    money: tm.Decimal(12, 3) = tm.column(convert=to_money)
    since: tm.Time = tm.column(was="at", convert=to_time)
    state: str = tm.column(was="open", convert=lambda v: "open" if v else "closed", old=bool)


class Sized(tm.Row):
    id: str = tm.key()
    size: str = tm.column(was="amount", convert=to_size)


class Tick(tm.Event):
    id: int


ROWS = [
    {"id": "a", "amount": 1.25, "total": 0.25, "name": " 7", "at": 60, "open": False},
    {"id": "b", "amount": None, "total": -3.0, "money": Decimal("2.50")},
    {"id": "c", "amount": 9.5, "name": "-12 "},
]


def application(row, version, rows=(), name="bank"):
    app = tm.App(name, version=version)
    table = app.table(row, name="accounts", rows=list(rows))
    app.source(Tick, name="ticks")
    return app, table


def run(state, row, version, rows=(), **options):
    app, table = application(row, version, rows)
    app.run({"ticks": []}, state=state, **options)
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def begin(state, rows=ROWS, row=Old):
    return run(state, row, 1, rows)


def test_each_column_is_converted_by_its_function(tmp_path):
    begin(tmp_path)
    with pytest.raises(tm.RunError, match=re.escape("cents: float | None is converted to int | None by its function")):
        run(tmp_path, New, 1)
    rows = run(tmp_path, New, 2)
    assert rows == [
        {
            "id": "a",
            "cents": 125,
            "total": 2,
            "number": 7,
            "money": Decimal("1.255"),
            "since": datetime(1970, 1, 1, 0, 1, tzinfo=timezone.utc),
            "state": "closed",
        },
        {
            "id": "b",
            "cents": None,
            "total": -30,
            "number": 0,
            "money": Decimal("2.505"),
            "since": EPOCH,
            "state": "open",
        },
        {
            "id": "c",
            "cents": 950,
            "total": 0,
            "number": -12,
            "money": Decimal("1.255"),
            "since": EPOCH,
            "state": "open",
        },
    ]
    # The functions may stay in the program: what is converted is not converted again.
    assert run(tmp_path, New, 2) == rows
    assert run(tmp_path, New, 3) == rows


def test_none_is_given_to_a_function_that_takes_it(tmp_path):
    begin(tmp_path)
    rows = run(tmp_path, Sized, 2, workers=2)
    assert [row["size"] for row in rows] == ["small", "none", "large"]


def test_a_value_that_cannot_be_converted_leaves_the_state_as_it_was(tmp_path):
    before = begin(tmp_path, [*ROWS, {"id": "d", "amount": -0.5}, {"id": "0", "amount": -1.5}])
    with pytest.raises(tm.RunError) as refused:
        run(tmp_path, New, 2)
    why = "table accounts cannot be migrated: amount = -1.5 of the row 0: it is negative; another row fails too"
    assert why in str(refused.value)
    assert run(tmp_path, Old, 1) == before


@pytest.mark.parametrize(
    ("old", "value", "new", "function", "why"),
    [
        (float, 1e300, int, lambda v: round(v), r"conversion failed in round\(ev\.value\)"),
        (int, 0, int, lambda v: 10 // v, "division by zero"),
        (int, 2**62, int, lambda v: v * 4, "overflow"),
        (str, "x", int, lambda v: int(v), r"conversion failed in int\(ev\.value\)"),
        (int, 10**6, tm.Decimal(5, 2), lambda v: tm.Decimal(v, 2), "conversion failed|overflow"),
    ],
)
def test_what_fails_is_named(tmp_path, old, value, new, function, why):
    class Before(tm.Row):
        id: int = tm.key()
        value: old

    class After(tm.Row):
        id: int = tm.key()
        result: new = tm.column(was="value", convert=function, old=old)

    before = run(tmp_path, Before, 1, [{"id": 7, "value": value}])
    with pytest.raises(tm.RunError, match=rf"table accounts cannot be migrated: value = .* of the row 7: .*{why}"):
        run(tmp_path, After, 2)
    assert run(tmp_path, Before, 1) == before


def test_a_time_is_named_as_a_time(tmp_path):
    class Before(tm.Row):
        at: tm.Time = tm.key()
        value: tm.Time

    class After(tm.Row):
        at: tm.Time = tm.key()
        value: int = tm.column(convert=lambda v: 1 // v.total_microseconds(), old=tm.Time)

    run_rows = [{"at": EPOCH, "value": EPOCH}]
    app, _ = application(Before, 1, run_rows)
    app.run({"ticks": []}, state=tmp_path)
    app, _ = application(After, 2)
    why = "value = 1970-01-01T00:00:00Z of the row 1970-01-01T00:00:00Z: "
    with pytest.raises(tm.RunError, match=re.escape(why)):
        app.run({"ticks": []}, state=tmp_path)


def test_a_function_takes_the_type_that_the_state_has(tmp_path):
    class Other(tm.Row):
        id: str = tm.key()
        cents: int = tm.column(was="amount", convert=lambda v: v, old=int)

    class Lacks(tm.Row):
        id: str = tm.key()
        cents: int = tm.column(was="amount", convert=to_cents)

    class Plain(tm.Row):
        id: str = tm.key()
        amount: int | None

    before = begin(tmp_path)
    for row, why in (
        (Other, "cents is float | None in the state, and its function takes int"),
        (Lacks, "its function takes float: None stays None, which int cannot be"),
        (Plain, "amount is float | None in the state, and int | None in the program; a function given as convert="),
    ):
        with pytest.raises(tm.RunError, match=re.escape(why)):
            run(tmp_path, row, 2)
    assert run(tmp_path, Old, 1) == before


def test_a_savepoint_is_returned_to_by_the_newer_program(tmp_path):
    state = tmp_path / "state"
    app, _ = application(Old, 1, ROWS)
    app.run({"ticks": []}, state=state, savepoint="start")
    first = run(state, New, 2, memory="64MB")
    assert [row["cents"] for row in first] == [125, None, 950]
    code, text = command(tmp_path, "savepoint", "restore", "state", "start")
    assert code == 0, text
    assert [row["size"] for row in run(state, Sized, 2)] == ["small", "none", "large"]


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda: tm.column(convert=to_cents, old=int), "a function of float, and had the type int by old="),
        (lambda: tm.column(convert=lambda v: v), "does not say what type it takes"),
        (lambda: tm.column(convert=int), "which has no Python source"),
        (lambda: tm.column(old=int), "says what type it had, and not how it is converted"),
    ],
)
def test_what_a_class_may_not_say(declare, why):
    with pytest.raises(tm.SchemaError, match=re.escape(why)):

        class Wrong(tm.Row):
            id: int = tm.key()
            value: int = declare()


def two(a: int, b: int):
    return a + b


def pair(a: int):
    return a, a


def nothing(a: int):
    tm.require(a > 0, "no")


def some(a: int):
    if a > 0:
        return a


def emits(a: int):
    tm.emit("x", {"a": a})
    return a


def text(a: int):
    b = a + "x"
    return b


def same(a: int):
    return a


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (two, "takes one value, and nothing else"),
        (pair, "pair gives 2 values, and the column has one"),
        (nothing, "nothing gives no value"),
        (some, "not every path of some() returns a value"),
        (emits, "a conversion emits nothing"),
        (text, "str"),
    ],
)
def test_what_a_function_may_not_do(function, why):
    class Row(tm.Row):
        id: int = tm.key()
        value: float = tm.column(was="v", convert=function)

    with pytest.raises(tm.CompileError) as refused:
        application(Row, 1)
    assert why in str(refused.value)
    assert refused.value.filename == __file__


def test_a_column_of_its_own_type_is_renamed():
    class Row(tm.Row):
        id: int = tm.key()
        value: int = tm.column(convert=same)

    with pytest.raises(tm.CompileError, match="nothing says whether it was converted"):
        application(Row, 1)


def test_rows_that_seed_a_table_are_converted(tmp_path):
    begin(tmp_path / "old")
    app, table = application(New, 1)
    app.run({"ticks": []}, seed=tmp_path / "old")
    assert sorted(row["number"] for row in table.to_pylist()) == [-12, 0, 7]


PROGRAM = """
import tidemill as tm

class Account(tm.Row):
    id: str = tm.key()
    {column}

class Tick(tm.Event):
    id: int

app = tm.App("bank", version={version})
accounts = app.table(Account, name="accounts", rows=[{{"id": "a", "{name}": {value}}}])
ticks = app.source(Tick, tm.csv("ticks.csv"), name="ticks")
"""


def command(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tidemill", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("value", "code"), [(1.5, 0), (-1.0, 1)])
def test_check_says_that_a_column_will_be_converted(tmp_path, value, code):
    (tmp_path / "ticks.csv").write_text("id\n1\n")
    old = PROGRAM.format(column="amount: float", version=1, name="amount", value=value)
    convert = 'tm.column(was="amount", convert=lambda v: 100 // int(v + 1.0), old=float)'
    new = PROGRAM.format(column=f"share: int = {convert}", version=2, name="share", value=0)
    (tmp_path / "old.py").write_text(old)
    (tmp_path / "new.py").write_text(new)
    assert command(tmp_path, "run", "old.py", "--state", "state")[0] == 0
    checked, text = command(tmp_path, "check", "new.py", "--state", "state")
    assert checked == 0, text
    assert "it is migrated to version 2:\n    table accounts: amount becomes share\n" in text
    assert "table accounts: share: float is converted to int by its function, row by row" in text
    ran, text = command(tmp_path, "run", "new.py", "--state", "state")
    assert (ran != 0) == bool(code), text
    assert ("amount = -1.0 of the row a: division by zero" in text) == bool(code), text
    assert command(tmp_path, "run", "new.py" if not code else "old.py", "--state", "state")[0] == 0
