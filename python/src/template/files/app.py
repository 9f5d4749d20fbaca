"""NAME: transfers between accounts. Each transfer happens as a whole or not at all.

Run it with `tidemill run app.py`; test it with `pytest`.
"""

from pathlib import Path

import tidemill as tm

HERE = Path(__file__).parent

app = tm.App("NAME")


class Account(tm.Row):
    """An account; its rows before the first event are in accounts.csv."""

    id: str = tm.key()
    balance: int = 0


class Transfer(tm.Event):
    """Money from one account to another."""

    at: tm.Time = tm.event_time()
    src: str
    dst: str
    amount: int


accounts = app.table(Account, rows=tm.csv(HERE / "accounts.csv"))
transfers = app.source(Transfer, tm.csv(HERE / "transfers.csv"), lateness="2s")


@app.transaction(transfers)
def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
    """Moves the amount if it is there."""
    tm.require(ev.amount > 0, "no amount")
    tm.require(src.balance >= ev.amount, "insufficient funds")
    src.balance -= ev.amount
    dst.balance += ev.amount
    return {"at": ev.at, "src": ev.src, "dst": ev.dst, "left": src.balance}


app.sink(transfer.committed, tm.jsonl(HERE / "done.jsonl"))
app.sink(transfer.aborted, tm.jsonl(HERE / "rejected.jsonl"))
app.sink(transfers.late, tm.jsonl(HERE / "late.jsonl"))
app.sink(transfers.bad, tm.jsonl(HERE / "bad.jsonl"))
