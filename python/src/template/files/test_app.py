"""A test of the application, on a few transfers and on its own data."""

from tidemill import csv, testing

from app import HERE, app


def transfer(src, dst, amount, at=0):
    """An event."""
    return {"at": at, "src": src, "dst": dst, "amount": amount}


def test_money_moves():
    """A transfer changes both accounts."""
    done = testing.run(app, {"transfers": [transfer("ada", "bob", 30)]})
    balances = {row["id"]: row["balance"] for row in done.table("accounts")}
    assert (balances["ada"], balances["bob"]) == (70, 80)
    assert [event["left"] for event in done.committed("transfer")] == [70]


def test_what_is_not_there_cannot_be_spent():
    """A rejected transfer says why, and changes nothing."""
    tried = [transfer("ada", "bob", 101), transfer("ada", "nobody", 1)]
    done = testing.run(app, {"transfers": tried})
    reasons = [event["reason"] for event in done.aborted("transfer")]
    assert reasons == ["insufficient funds", "no row in accounts for dst"]
    assert sum(row["balance"] for row in done.table("accounts")) == 150


def test_the_data():
    """The transfers that came with the application: money is neither made nor lost."""
    done = testing.run(app, {"transfers": csv(HERE / "transfers.csv")})
    assert (done.summary.committed, done.summary.late, done.summary.bad) == (5, 1, 1)
    assert sum(row["balance"] for row in done.table("accounts")) == 150
