"""Data frames of pandas as events, and tables and results as data frames."""

from datetime import datetime, timezone

import pytest

import tidemill as tm

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")


class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0
    last: str | None = None


class Deposit(tm.Event):
    at: tm.Time = tm.event_time()
    account: str
    amount: int
    note: str | None


def test_frames_go_in_and_come_out():
    app = tm.App("bank")
    accounts = app.table(Account)
    deposits = app.source(Deposit, lateness="5s")

    @app.transaction(deposits)
    def deposit(ev, account=accounts.row("account", create=True)):
        account.balance += ev.amount
        account.last = ev.note
        return {"account": account.id, "balance": account.balance}

    done = app.collect(deposit.committed)
    frame = pandas.DataFrame(
        {
            "at": pandas.to_datetime(["2024-05-01T09:00:02", "2024-05-01T09:00:01"], utc=True),
            "account": ["ada", "bob"],
            "amount": [5, 7],
            "note": [None, "rent"],
        }
    )
    summary = app.run({deposits: frame})
    assert summary.sources[0].bad == 0
    assert summary.sources[0].last_time == int(datetime(2024, 5, 1, 9, 0, 2, tzinfo=timezone.utc).timestamp()) * 10**6
    rows = pyarrow.table(accounts).to_pandas()
    assert rows["id"].tolist() == ["ada", "bob"]
    assert rows["balance"].tolist() == [5, 7]
    assert rows["last"].isna().tolist() == [True, False]
    assert pandas.DataFrame(done.to_pylist())["balance"].tolist() == [7, 5]
