"""A state that goes on with a changed program: lateness, options of a run, and schemas under a raised version."""

import subprocess
import sys

import pytest

import tidemill as tm
from tidemill.schema import schema_of


class Account(tm.Row):
    id: int = tm.key()
    saldo: int = 7
    note: str | None = None


class Renamed(tm.Row):
    number: int = tm.key(was="id")
    balance: int = tm.column(default=0, was="saldo")


class Saldo(tm.Row):
    """A new column has the name of one that was renamed."""

    id: int = tm.key()
    note: str | None = None
    balance: float = tm.column(was="saldo", default=0.0)
    saldo: int = 3


class Misspelt(tm.Row):
    id: int = tm.key()
    balance: int = tm.column(default=0, was="sald")


class Retyped(tm.Row):
    id: int = tm.key()
    balance: str = tm.column(default="", was="saldo")


class Deposit(tm.Event):
    at: int = tm.event_time()
    id: int
    amount: int


class Visit(tm.Row):
    id: int = tm.key()


def bank(row=Account, version=1, column="saldo", lateness=0, visits=False, idle=None):
    app = tm.App("bank", version=version)
    accounts = app.table(row, name="accounts")
    if visits:
        app.table(Visit, name="visits", rows=[{"id": 1}])
    deposits = app.source(Deposit, name="deposits", lateness=lateness, idle=idle)
    if column == "saldo":

        @app.transaction(deposits)
        def deposit(ev, to=accounts.row("id", create=True)):
            to.saldo += ev.amount

    else:

        @app.transaction(deposits)
        def deposit(ev, to=accounts.row("id", create=True)):
            to.balance += ev.amount

    return app, accounts


def deposits(*times, amount=10):
    return [{"at": at, "id": at % 2, "amount": amount} for at in times]


def run(state, *times, amount=10, **options):
    """Runs the bank; its accounts and the summary."""
    own = {name: options.pop(name) for name in ("workers", "memory", "final") if name in options}
    app, accounts = bank(**options)
    summary = app.run({"deposits": deposits(*times, amount=amount)}, state=state, **own)
    return sorted(accounts.to_pylist(), key=lambda row: next(iter(row.values()))), summary


def test_lateness_and_options_change_freely(tmp_path):
    rows, summary = run(tmp_path, 10, 20, 12, lateness=5, workers=1)
    assert (summary.late, summary.sources[0].held) == (1, 1), "12 came after 20"
    # The mark stays at 15 though the lateness grows: what comes below it is still late.
    rows, summary = run(tmp_path, 14, 15, 21, lateness=50, workers=2, memory="64MB", idle="30s")
    assert (summary.late, summary.sources[0].held) == (1, 2), "20 and 21 are held back"
    # It stays there though the lateness shrinks: 16 is not late, and the next event raises it.
    rows, summary = run(tmp_path, 16, 30, 22, lateness=0, workers=1)
    assert (summary.late, summary.sources[0].held) == (1, 0), "22 came after 30"
    assert rows == [{"id": 0, "saldo": 47, "note": None}, {"id": 1, "saldo": 27, "note": None}]


def test_columns_and_tables_are_dropped_under_a_raised_version(tmp_path):
    run(tmp_path, 1, 2, 3, visits=True)
    with pytest.raises(tm.RunError, match="(?s)table visits is in the state, not in the program"):
        run(tmp_path, 4)
    with pytest.warns(UserWarning, match="(?s)table visits is in the state.*savepoint 'before-version-2' has it"):
        rows, _ = run(tmp_path, 4, version=2)
    assert rows == [{"id": 0, "saldo": 27, "note": None}, {"id": 1, "saldo": 27, "note": None}]
    # A table that was dropped begins anew.
    app, _ = bank(version=3, visits=True)
    app.run({"deposits": []}, state=tmp_path)


def test_what_a_typo_drops_is_in_a_savepoint(tmp_path):
    """The program as it was goes back to it."""
    state = tmp_path / "state"
    rows, _ = run(state, 1, 2, 3)
    typo = {"row": Renamed, "column": "balance"}
    with pytest.warns(UserWarning, match="note: str"):
        run(state, 4, version=2, **typo)
    restore = [sys.executable, "-m", "tidemill", "savepoint", "restore", str(state), "before-version-2"]
    ran = subprocess.run(restore, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    again, _ = run(state, version=1)
    assert again == rows
    # Nothing has changed since, so that the savepoint is the one that is there.
    with pytest.warns(UserWarning, match="before-version-2'"):
        run(state, version=2, **typo)


def test_columns_are_renamed_keys_too(tmp_path):
    run(tmp_path, 1, 2, 3)
    options = {"row": Renamed, "column": "balance"}
    with pytest.raises(tm.RunError) as refused:
        run(tmp_path, 4, **options)
    for line in (
        "is of another schema, under the same version 1",
        "table accounts: id becomes number",
        "table accounts: saldo becomes balance",
        "table accounts: note: str | None is in the state, not in the program",
        "raise the version of the application to 2, and the state will be changed: what is not in the program is dropped",
    ):
        assert line in str(refused.value)
    with pytest.warns(UserWarning, match="note: str"):
        rows, _ = run(tmp_path, 4, version=2, **options)
    assert rows == [{"number": 0, "balance": 27}, {"number": 1, "balance": 27}]
    # The names that the columns had may stay in the program.
    rows, _ = run(tmp_path, 5, 6, version=2, **options)
    assert rows == [{"number": 0, "balance": 37}, {"number": 1, "balance": 37}]
    rows, _ = run(tmp_path, 7, version=3, **options)
    assert rows == [{"number": 0, "balance": 37}, {"number": 1, "balance": 47}]


def test_a_renamed_column_leaves_its_name_to_a_new_one(tmp_path):
    run(tmp_path, 1, 2, 3)
    rows, _ = run(tmp_path, 4, row=Saldo, version=2)
    assert rows == [
        {"id": 0, "note": None, "balance": 17.0, "saldo": 13},
        {"id": 1, "note": None, "balance": 27.0, "saldo": 3},
    ]
    rows, _ = run(tmp_path, 5, row=Saldo, version=2)
    assert rows[1] == {"id": 1, "note": None, "balance": 27.0, "saldo": 13}


def test_what_a_column_was_must_be_there_and_fit(tmp_path):
    run(tmp_path, 1)
    with pytest.raises(tm.RunError, match="balance was sald by the program; the state has neither"):
        run(tmp_path, 2, row=Misspelt, column="balance", version=2)
    app = tm.App("bank", version=2)
    app.table(Retyped, name="accounts")
    app.source(Deposit, name="deposits")
    with pytest.raises(tm.RunError, match="balance is int in the state, and str in the program"):
        app.run({"deposits": []}, state=tmp_path)
    rows, _ = run(tmp_path, 3)
    assert rows == [{"id": 1, "saldo": 27, "note": None}], "nothing was changed"


def test_what_a_class_may_say_of_its_columns():
    assert [spec.was for spec in schema_of(Renamed).fields] == ["id", "saldo"]
    assert Renamed(number=1).balance == 0

    class Windowed(tm.Row):
        id: int = tm.key()
        recent: tm.Window[int] = tm.window(last=3, was="latest")
        note: str | None = tm.column(was="comment")

    assert [spec.was for spec in schema_of(Windowed).fields] == [None, "latest", "comment"]
    assert schema_of(Windowed).fields[2].default is None
    with pytest.raises(tm.SchemaError, match=r"which events do not have; write '= value'"):

        class Wrong(tm.Event):
            amount: int = tm.column(default=1)

    with pytest.raises(tm.SchemaError, match="was 3, which is no name of a column"):

        class Number(tm.Row):
            id: int = tm.key(was=3)
