"""A bank that serves deposits and transfers. Put your own application in its place."""

import tidemill as tm

app = tm.App("bank")


class Account(tm.Row):
    """Money, in cents."""

    id: str = tm.key()
    balance: int = 0


class Deposit(tm.Event):
    """Money from outside."""

    account: str
    amount: int


class Transfer(tm.Event):
    """Money from one account to another."""

    src: str
    dst: str
    amount: int


accounts = app.table(Account)
deposits = app.requests(Deposit)
transfers = app.requests(Transfer)


@app.transaction(deposits)
def deposit(ev, account=accounts.row("account", create=True)):
    """Adds to an account, and opens it where there is none."""
    tm.require(ev.amount > 0, "amount must be positive")
    account.balance += ev.amount
    return {"account": account.id, "balance": account.balance}


@app.transaction(transfers)
def transfer(ev, src=accounts.row("src"), dst=accounts.row("dst")):
    """Moves money that is there."""
    tm.require(ev.amount > 0, "amount must be positive")
    tm.require(src.balance >= ev.amount, "insufficient funds")
    src.balance -= ev.amount
    dst.balance += ev.amount
    return {"left": src.balance}
