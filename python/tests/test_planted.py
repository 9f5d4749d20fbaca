"""tools/plant.py says of each bug whether its test finds it, and tools/check_planted.py keeps the rows true."""

import shutil
import subprocess

import pytest
from conftest import TOOLS, load_tool

check_planted = load_tool("check_planted")
plant = load_tool("plant")

SOURCE = """pub fn double(x: u32) -> u32 {
    x + x
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_doubles() {
        assert_eq!(super::double(3), 6, "three");
    }

    #[test]
    fn it_fails() {
        panic!("always");
    }
}
"""


def row(name, planted, test="it_doubles", seen="symptom = 'three'", text="x + x"):
    return f"""
[[bug]]
name = "{name}"
what = "the bug {name}"
file = "crates/small/src/lib.rs"
text = "{text}"
planted = "{planted}"
test = "cargo test -p tidemill-small --lib tests::{test}"
{seen}
"""


ROWS = {
    "found": row("found", "x * x"),
    "not found": row("in-vain", "x + x + x - x"),
    "another symptom": row("other", "x + x + 1", seen="symptom = 'four'"),
    "does not compile": row("wrong", "x +"),
    "hangs": row("endless", "loop { std::thread::park() }", seen="symptom = 'three'"),
    "fails without a bug": row("uncontrolled", "x * x", test="it_fails", seen="symptom = 'always'"),
}


@pytest.fixture
def tree(tmp_path):
    """A repository with one crate, and what it says of planted bugs."""
    files = {
        "Cargo.toml": '[workspace]\nmembers = ["crates/small"]\nresolver = "2"\n',
        "crates/small/Cargo.toml": '[package]\nname = "tidemill-small"\nversion = "0.1.0"\nedition = "2021"\n',
        "crates/small/src/lib.rs": SOURCE,
        "docs/invariants.md": "",
        "tools/planted/small.toml": "".join(ROWS.values()),
    }
    for name, text in files.items():
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    subprocess.run(["git", "init", "--quiet", tmp_path / "tree"], check=True)
    return tmp_path / "tree"


def faults(tree):
    return [fault.partition(": ")[2] for fault in check_planted.check(tree)[1]]


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
@pytest.mark.parametrize("together", [True, False])
def test_each_outcome_is_told_apart(tree, tmp_path, monkeypatch, capsys, together):
    """Compiled together, or one by one where one of them does not compile."""
    monkeypatch.setattr(plant, "SECONDS_MAX", 30)
    expected = [outcome for outcome in ROWS if outcome != "does not compile" or not together]
    (tree / "tools/planted/small.toml").write_text("".join(ROWS[outcome] for outcome in expected))
    bugs, none = plant.read(tree)
    bugs += [
        bug._replace(name="endless, as it should", symptom=None, hangs=15) for bug in bugs if bug.name == "endless"
    ]
    assert none == []
    outcomes = plant.try_all(plant.Field(tree, tmp_path / "target", bugs), bugs)
    assert [outcome.value for outcome in outcomes.values()] == [*expected, "found"]
    assert ("each bug is compiled by itself" in capsys.readouterr().out) != together
    assert (tree / "crates/small/src/lib.rs").read_text() == SOURCE


SWITCHED = """
pub const fn constant(x: u32) -> u32 { x + x }
fn unnamed() -> impl Iterator<Item = u32> { [1 - 1].into_iter() }
unsafe fn outer(of: [u8; 3], f: impl Fn(u32) -> u32) -> u32 {
    fn inner() -> char { '{' /* } */ }
    let s = "}"; // {
    f(1 * 2)
}
"""


@pytest.mark.parametrize(("text", "taken"), [("x + x", False), ("1 - 1", False), ("1 * 2", True), ("3]", False)])
def test_a_bug_gets_a_switch_where_its_function_may_be_written_twice(tree, text, taken):
    [bug] = [bug for bug in plant.read(tree)[0] if bug.name == "found"]
    source, names = plant.switched(SWITCHED, [bug._replace(text=text, planted="PLANTED")])
    assert names == ({"found"} if taken else set())
    if taken:
        body = SWITCHED[SWITCHED.index("-> u32 {\n") + 8 : -2]
        planted = body.replace("1 * 2", "PLANTED")
        assert f"-> u32 {{ if planted_bug::is({plant.number_of(bug)}) {{{planted}}} else {{{body}}} }}" in source
    else:
        assert source == SWITCHED


def test_bugs_are_chosen_by_area_and_name(tree):
    bugs, _ = plant.read(tree)
    assert plant.chosen(bugs, []) == bugs == plant.chosen(bugs, ["small"])
    assert [bug.name for bug in plant.chosen(bugs, ["wrong", "found"])] == ["found", "wrong"]
    with pytest.raises(SystemExit, match="no area and no bug is large"):
        plant.chosen(bugs, ["large"])


def test_rows_that_are_true_have_no_faults(tree):
    assert check_planted.check(tree) == (len(ROWS), [])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("x + x\n", "x * 2\n", "its text is 0 times in crates/small/src/lib.rs, and not once"),
        ("x + x\n", "x + x // x + x\n", "its text is 2 times in crates/small/src/lib.rs, and not once"),
        ("fn it_fails", "fn it_has_failed", "no test of tidemill-small --lib is tests::it_fails"),
        ("#[test]\n    fn it_fails", "fn it_fails", "no test of tidemill-small --lib is tests::it_fails"),
    ],
)
def test_code_that_leaves_its_row_is_noticed(tree, old, new, fault):
    source = tree / "crates/small/src/lib.rs"
    source.write_text(source.read_text().replace(old, new))
    assert any(found.endswith(fault) for found in faults(tree))


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (row("a", "x + x"), "a: it changes nothing"),
        (row("a", "x", seen="symptom = '.*'"), "a: any text has its symptom"),
        (row("a", "x", seen=""), "a: wrong [], missing []; and it has either a symptom or hangs"),
        (row("a", "x", seen="hangs = '3'"), "a: wrong ['hangs'], missing []; and it has either a symptom or hangs"),
        (row("a", "x").replace("--lib", ""), "a: neither --lib nor --test, or both"),
        (
            row("a", "x").replace("--lib", "--lib --release"),
            "a: options other than -p, --test, --features and --lib, or no -p",
        ),
    ],
)
def test_a_row_that_says_too_little_is_refused(tree, wrong, fault):
    (tree / "tools/planted/small.toml").write_text(wrong)
    assert faults(tree) == [fault]


def test_a_bug_is_told_once(tree):
    (tree / "tools/planted/small.toml").write_text(ROWS["found"] + ROWS["found"])
    (tree / "docs/invariants.md").write_text("| the bug found | somewhere |\n")
    told = check_planted.check(tree)[1]
    assert told[:2] == ["two bugs are 'found'", "two bugs are 'the bug found'"]
    assert told[2].endswith("docs/invariants.md says the same")


def test_the_rows_of_this_repository_are_true():
    count, told = check_planted.check(TOOLS.parent)
    assert count > 0 and told == []
