"""Checkpoints are taken by time, by bytes of log, and by what a crash would cost."""

import pytest
from test_server import BANK, command

import tidemill as tm


@pytest.fixture
def app(module):
    return module(BANK, prelude="").app


def checkpoints_amid(app, state, until=lambda number, taken: number >= 200, **options):
    """The checkpoints while a run has calls, one after the other, until that is enough: each is named by the manifest."""
    with app.start(state=state, workers=1, **options) as mill:
        mill.call("deposit", account="ada", amount=1)
        manifests = {(state / "manifest").read_bytes()}
        number = 0
        while not until(number, len(manifests) - 1):
            mill.call("deposit", account=f"account {number % 7}", amount=1)
            number += 1
            manifests.add((state / "manifest").read_bytes())
    return len(manifests) - 1


def test_unless_asked_there_is_none_soon(app, tmp_path):
    assert checkpoints_amid(app, tmp_path / "state") == 0


@pytest.mark.parametrize(
    ("option", "value"), [("checkpoint_every", "50ms"), ("checkpoint_bytes", "1KiB"), ("checkpoint_replay", "1ms")]
)
def test_there_are_some_by_each_measure(app, tmp_path, option, value):
    # Else it would never end.
    assert checkpoints_amid(app, tmp_path / "state", lambda _, taken: taken >= 3, **{option: value}) >= 3


@pytest.mark.parametrize("option", ["checkpoint_every", "checkpoint_bytes", "checkpoint_replay"])
def test_a_measure_that_is_large_makes_no_difference(app, tmp_path, option):
    value = "1TiB" if option == "checkpoint_bytes" else "3600s"
    assert checkpoints_amid(app, tmp_path / "state", **{option: value}) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"checkpoint_every": "5"}, "is not a time"),
        ({"checkpoint_every": "0s"}, "is not a time"),
        ({"checkpoint_replay": "2h"}, "is not a time"),
        ({"checkpoint_bytes": "0MiB"}, "is not a size of a log"),
        ({"checkpoint_bytes": "12"}, "is not a size of a log"),
    ],
)
def test_what_is_no_measure_is_refused(app, tmp_path, options, says):
    with pytest.raises(tm.PlanError, match=says):
        app.start(state=tmp_path / "state", **options)
    with pytest.raises(tm.PlanError, match="it needs a state"):
        app.start(checkpoint_every="1s")


@pytest.mark.parametrize("options", [("--checkpoint-bytes", "2KiB"), ("--checkpoint-replay", "1ms"), ()])
def test_a_kill_costs_what_came_since_the_last_checkpoint(app, tmp_path, options):
    calls = 300
    served = [*options, "--state", "state"]
    with command(tmp_path, *served) as (process, url), tm.connect(url) as client:
        for _ in range(calls):
            client.deposit(account="ada", amount=1)
        process.kill()
    with app.start(state=tmp_path / "state") as mill:
        assert mill.row("accounts", "ada") == {"id": "ada", "balance": calls}
    replayed = mill.summary().durability.replayed_events
    assert replayed <= calls if options == () else replayed < calls
