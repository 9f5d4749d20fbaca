"""NAME: transfers between accounts, from a topic of Kafka to another. Each happens as a whole or not at all, and its
result is in the topic once.

The topics are transfers, done, rejected and bad; KAFKA says where the broker is. Run it with
`tidemill run app.py --state state`; test it with `pytest`, which needs no broker.
"""

import os

import tidemill as tm

SERVERS = os.environ.get("KAFKA", "localhost:9092")

app = tm.App("NAME")


class Account(tm.Row):
    """An account. It is made by the first transfer to it."""

    id: str = tm.key()
    balance: int = 0


class Transfer(tm.Event):
    """Money from one account to another; from the account bank it comes from outside."""

    at: tm.Time = tm.event_time()
    src: str
    dst: str
    amount: int


def topic(name, key=None):
    """A topic of the broker."""
    return tm.kafka(name, servers=SERVERS, key=key)


accounts = app.table(Account)
transfers = app.source(Transfer, topic("transfers"), lateness="2s", idle="5s")


@app.transaction(transfers)
def transfer(ev, src=accounts.row("src", create=True), dst=accounts.row("dst", create=True)):
    """Moves the amount if it is there."""
    tm.require(ev.amount > 0, "no amount")
    tm.require(ev.src == "bank" or src.balance >= ev.amount, "insufficient funds")
    src.balance -= ev.amount
    dst.balance += ev.amount
    return {"at": ev.at, "src": ev.src, "dst": ev.dst, "amount": ev.amount, "left": src.balance}


app.sink(transfer.committed, topic("done", key="src"))
app.sink(transfer.aborted, topic("rejected"))
app.sink(transfers.bad, topic("bad"))
