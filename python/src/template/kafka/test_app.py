"""A test of the application on a few transfers, without a broker."""

from tidemill import testing

from app import app


def transfer(src, dst, amount, at=0):
    """An event."""
    return {"at": at, "src": src, "dst": dst, "amount": amount}


def test_money_moves():
    """A transfer changes both accounts."""
    done = testing.run(app, {"transfers": [transfer("bank", "ada", 100), transfer("ada", "bob", 30)]})
    balances = {row["id"]: row["balance"] for row in done.table("accounts")}
    assert (balances["ada"], balances["bob"]) == (70, 30)
    assert [event["left"] for event in done.committed("transfer")] == [-100, 70]


def test_what_is_not_there_cannot_be_spent():
    """A rejected transfer says why, and changes nothing."""
    done = testing.run(app, {"transfers": [transfer("ada", "bob", 1), transfer("bank", "ada", 0)]})
    assert [event["reason"] for event in done.aborted("transfer")] == ["insufficient funds", "no amount"]
    assert sum(row["balance"] for row in done.table("accounts")) == 0
