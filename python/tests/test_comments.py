"""tools/check_comments.py finds comments that begin with a question word, and refuses more of them than before."""

from conftest import TOOLS, load_tool

check_comments = load_tool("check_comments")

RUST = """//! How a module begins,
//! Where it goes on.

/// Whether it is counted.
// What a comment of another kind says.
fn f() {
    // Bytes, However and Often are other words.
    let url = "https://what.example"; // Of no interest: it is after code.
    //What has no space.
    g();
    // The same again,
    // By two lines.
}
//////////// When
"""

PYTHON = '''"""What a module does."""

# However
# By two lines.
#: By source.
LIMIT = 3
"""Of a name."""


def f():
    """
    Whether the first word is on the next line.
    """
    text = "What is no comment"
    return text  # Where it is after code
'''


def faults_of(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    return [number for number, _ in check_comments.faults_of(file)]


def test_rust_comments_are_seen_by_their_first_word(tmp_path):
    assert faults_of(tmp_path, "some.rs", RUST) == [1, 4, 5, 9, 11]


def test_python_comments_and_docstrings_are_seen_by_their_first_word(tmp_path):
    assert faults_of(tmp_path, "some.py", PYTHON) == [1, 7, 11]
    assert faults_of(tmp_path, "other.py", "x = 1\n#: By source.\n#  Of it.\ny = 2\n    \n# When\n") == [2, 6]


def test_more_than_before_are_refused(monkeypatch):
    monkeypatch.setattr(check_comments, "COUNT_MAX", 2)
    assert check_comments.check(2) == []
    [fault] = check_comments.check(3)
    assert "3 comments" in fault
    assert "1 more" in fault


def test_the_check_fails_on_one_comment_more(monkeypatch, capsys):
    monkeypatch.setattr(check_comments.sys, "argv", ["check_comments.py"])
    assert check_comments.main() == 0, capsys.readouterr().err
    [count] = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("all ")]
    count = int(count.replace(",", ""))
    monkeypatch.setattr(check_comments, "COUNT_MAX", count - 1)
    assert check_comments.main() == 1
    assert "1 more" in capsys.readouterr().err
