"""tools/check_assertions.py counts assertions in code, and nowhere else."""

from conftest import TOOLS, load_tool

check_assertions = load_tool("check_assertions")

SOURCE = """//! assert!(no) in a comment

/* assert!(no)
   assert!(no) */
fn f<'a>(x: &'a str) -> char {
    assert!(x.len() > 1, "assert!(no) {{ in a text");
    debug_assert_eq!(x.len(), 2);
    match x.chars().next() {
        Some('{') => '"', // assert!(no)
        _ => unreachable!("a brace"),
    }
}

#[cfg(test)]
impl F {
    fn g(&self) {
        assert!(self.is_no_assertion_of_the_engine());
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod more_tests {
    fn f() {
        assert!(true);
    }
}
"""


def test_assertions_are_counted_in_code_alone():
    assert check_assertions.count(SOURCE) == (8, 3)


def test_an_area_with_too_few_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(check_assertions, "AREAS", {"gate": ["gate*.rs"]})
    assert check_assertions.check(tmp_path) == ["area gate: none of its files is there"]
    (tmp_path / "gate.rs").write_text("assert!(one);\n" * 3 + "more();\n" * 197)
    assert check_assertions.check(tmp_path) == []
    (tmp_path / "gate_more.rs").write_text("more();\n")
    [fault] = check_assertions.check(tmp_path)
    assert fault == "area gate: 14.9 assertions per thousand lines of code; at least 15 are wanted"


def test_every_area_of_the_engine_has_enough():
    assert check_assertions.check(TOOLS.parent) == []
