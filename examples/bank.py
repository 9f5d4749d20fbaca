"""A bank: a million deposits and transfers over accounts and the assets in them.

    tidemill run examples/bank.py

A deposit touches two rows, a transfer four, all or nothing: a transfer that either side of cannot be
covered aborts and is put aside with its reason and the balances that it saw. The ledger's times are a
little out of order; what comes more than two seconds late is put aside too, and so are records that
cannot be read. This is the Streaming Ledger of the benchmarks.
"""

import datasets
import tidemill as tm

app = tm.App("bank")
out = datasets.out("bank")


class Account(tm.Row):
    """Money, in cents."""

    id: str = tm.key()
    balance: int = 0


class Asset(tm.Row):
    """Shares."""

    id: str = tm.key()
    quantity: int = 0


class Movement(tm.Event):
    """A transfer, or a deposit where ``src`` is None."""

    at: tm.Time = tm.event_time()
    src: str | None
    dst: str
    amount: int
    quantity: int


accounts = app.table(Account)
assets = app.table(Asset)
movements = app.source(Movement, tm.csv(datasets.ledger()), lateness="2s")


@app.transaction(movements.filter(lambda m: m.src is None))
def deposit(ev, account=accounts.row("dst", create=True), asset=assets.row("dst", create=True)):
    account.balance += ev.amount
    asset.quantity += ev.quantity


@app.transaction(movements.filter(lambda m: m.src is not None))
def transfer(
    ev,
    payer=accounts.row("src", create=True),
    payee=accounts.row("dst", create=True),
    giver=assets.row("src", create=True),
    taker=assets.row("dst", create=True),
):
    tm.require(payer.balance >= ev.amount, "insufficient funds")
    tm.require(giver.quantity >= ev.quantity, "insufficient assets")
    payer.balance -= ev.amount
    payee.balance += ev.amount
    giver.quantity -= ev.quantity
    taker.quantity += ev.quantity
    return {"at": ev.at, "src": ev.src, "dst": ev.dst, "amount": ev.amount, "left": payer.balance}


app.sink(deposit.committed, tm.jsonl(out / "deposits.jsonl"))
app.sink(transfer.committed, tm.jsonl(out / "transfers.jsonl"))
app.sink(transfer.aborted, tm.jsonl(out / "rejected.jsonl"))
app.sink(movements.late, tm.jsonl(out / "late.jsonl"))
app.sink(movements.bad, tm.jsonl(out / "bad.jsonl"))
