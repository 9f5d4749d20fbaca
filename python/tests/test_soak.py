"""The faults that the soak finds in a server that loses, doubles or contradicts calls, or gives honest clients too
little: a check that cannot fail shows nothing."""

import json
from types import SimpleNamespace

import pytest
from soak import DESCRIPTORS_MAX, GOODPUT_MIN, RESIDENT_MAX, Soak


def soaked(rows, **most):
    """A run that is over, with these accounts in the table."""
    soak = object.__new__(Soak)
    text = "\n".join(json.dumps({"id": name, "balance": balance}) for name, balance in rows.items())
    soak.server = SimpleNamespace(ask=lambda *_, **__: (200, text))
    soak.secrets, soak.faults = {"ada": ""}, []
    soak.down = 0.0
    soak.kills = {"server": 1, "queries": 1}
    soak.most = {"resident": 100, "helpers": 100, "descriptors": 50} | most
    return soak


def client(**acknowledged):
    names = {name.replace("_", ".")[1:]: balance for name, balance in acknowledged.items()}
    return SimpleNamespace(acknowledged=names, slowest=0.1)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"0.0": 1, "0.1": 1}, None),
        ({"0.0": 1, "0.1": 1, "0.2": 1, "the greedy": 70}, None),
        ({"0.0": 1}, "call 0.1 was answered with 1, and the table has None"),
        ({"0.0": 1, "0.1": 2}, "call 0.1 was answered with 1, and the table has 2"),
        ({"0.0": 1, "0.1": 1, "0.2": 2}, "0.2 was done 2 times"),
    ],
    ids=["as answered", "one more that was not answered", "lost", "doubled", "doubled and not answered"],
)
def test_calls_are_held_against_the_table(rows, says):
    soak = soaked(rows)
    soak.check([client(c0_0=1, c0_1=1)])
    assert soak.faults[:1] == ([says] if says else [])


def test_an_answer_that_is_not_the_first_one_is_noticed():
    soak = soaked({"0.0": 1})
    soak.check([client(c0_0=2)])
    assert soak.faults == ["call 0.0 was answered with 2, and the table has 1"]


@pytest.mark.parametrize(
    ("most", "share", "says"),
    [
        ({}, GOODPUT_MIN, None),
        ({}, GOODPUT_MIN - 0.01, "goodput"),
        ({"resident": RESIDENT_MAX + 1}, 1.0, "resident"),
        ({"descriptors": DESCRIPTORS_MAX + 1}, 1.0, "descriptors"),
    ],
)
def test_what_is_out_of_bounds_is_a_fault(most, share, says):
    soak = soaked({}, **most)
    soak.say(100.0, 100.0 * share, [client()])
    assert [fault.split(":")[0] for fault in soak.faults] == ([says] if says else [])
