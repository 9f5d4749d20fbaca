"""The check of what dependencies may be, ``tools/check_licences.py``."""

import pytest
from conftest import load_tool

check = load_tool("check_licences")

RULES = """
[licenses]
allow = [
    "MIT",  # "GPL-2.0" is not
    "Apache-2.0 WITH LLVM-exception",
]
[bans]
deny = [
    { name = "one", deny-multiple-versions = true },
    { name = "never" },
]
"""


def crate(name="some", version="1.0.0", licence="MIT", source=check.REGISTRY):
    return {"name": name, "version": version, "license": licence, "source": source}


def faults(*crates):
    return [*check.faults_of([*crates], check.read_rules(RULES))]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("mit", False),
        ("GPL-2.0", False),
        ("MIT OR GPL-2.0", True),
        ("GPL-2.0 OR MIT", True),
        ("GPL-2.0/MIT", True),
        ("MIT AND GPL-2.0", False),
        ("GPL-2.0 AND MIT", False),
        ("(MIT OR GPL-2.0) AND MIT", True),
        ("(MIT OR GPL-2.0) AND GPL-2.0", False),
        ("GPL-2.0 AND GPL-2.0 OR MIT", True),
        ("MIT OR GPL-2.0 AND GPL-2.0", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache-2.0", False),
        ("Apache-2.0 WITH Other-exception", False),
        ("Apache-2.0 WITH LLVM-exception AND GPL-2.0", False),
        ("(MIT", False),
        ("MIT)", False),
        ("MIT MIT", False),
        ("MIT AND", False),
    ],
)
def test_an_expression_of_licences(expression, allowed):
    assert check.is_allowed(expression, {"MIT", "Apache-2.0 WITH LLVM-exception"}) is allowed


@pytest.mark.parametrize(
    ("crates", "said"),
    [
        ([crate(licence="GPL-2.0")], "some 1.0.0 has the licence GPL-2.0"),
        ([crate(licence=None)], "some 1.0.0 states no licence"),
        ([crate("never")], "never 1.0.0 is banned"),
        ([crate(source="git+https://host.example/a")], "some 1.0.0 comes from git+https://host.example/a"),
        ([crate("one"), crate("one", "2.0.0")], "one is there in several versions: 1.0.0, 2.0.0"),
    ],
)
def test_what_is_against_the_rules_is_named(crates, said):
    assert faults(*crates) == [said]


def test_the_rest_is_not():
    assert faults(crate(), crate("some", "2.0.0"), crate("one"), crate(source=None)) == []


def test_rules_without_lists_are_refused():
    with pytest.raises(ValueError, match="no list 'allow'"):
        check.read_rules("[licenses]\n")
