"""Finding the application in a file, and the command's answers to the user's mistakes."""

import sys

import pytest

import tidemill as tm
from tidemill import __main__ as command
from tidemill.loading import load

ONE = "import tidemill as tm\napp = tm.App('one')\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def file(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    yield file
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_only_application(write):
    assert load(write(ONE + "same = app\n")).name == "one"


def test_by_name(write):
    path = write(ONE + "other = tm.App('two')\nnumber = 3\n")
    assert load(path, "other").name == "two"
    for name, message in [("x", "'x' in .* is not defined"), ("number", "'number' in .* is an int, not a tm.App")]:
        with pytest.raises(tm.LoadError, match=message):
            load(path, name)
    with pytest.raises(tm.LoadError, match=r"has several applications: app, other; choose one: .*:app"):
        load(path)


def test_nothing_to_load(write, tmp_path):
    with pytest.raises(tm.LoadError, match=r"has no application; write 'app = tm.App\(\"name\"\)' in it"):
        load(write("x = 1\n"))
    with pytest.raises(tm.LoadError, match="there is no file .*nothing.py$"):
        load(str(tmp_path / "nothing.py"))
    with pytest.raises(tm.LoadError, match="did you mean .*program.py"):
        load(str(tmp_path / "program"))


def test_neighbours_can_be_imported(write):
    write("NAME = 'three'\n", "settings_of_this_test.py")
    path = write("import tidemill as tm\nimport settings_of_this_test as s\napp = tm.App(s.NAME)\n")
    assert load(path).name == "three"


def test_a_file_named_like_a_module(write):
    assert load(write(ONE, "json.py")).name == "one"


def test_errors_of_the_command(write, tmp_path, monkeypatch, capsys):
    def run(path):
        monkeypatch.setattr(command._native, "main", lambda arguments, load: load(path, None))
        assert command.main() == 1
        return capsys.readouterr().err

    path = write(ONE + "class E(tm.Event):\n    n: int\napp.source(E).filter(lambda e: e.n ** 2 > 1)\n")
    printed = run(path)
    assert f'File "{path}", line 5' in printed
    assert "^^^^^^^^" in printed
    assert printed.endswith(
        "\nerror: the operator ** cannot be compiled; multiply: x * x; for a float write math.pow(x, y)\n"
    )
    assert run(str(tmp_path / "missing.py")) == f"error: there is no file {tmp_path / 'missing.py'}\n"
    path = write(ONE + "def wrong():\n    return app.nothing\nwrong()\n", "raises.py")
    lines = run(path).splitlines()
    assert f'  File "{path}", line 5, in <module>' in lines
    assert lines[-1] == "error: AttributeError: 'App' object has no attribute 'nothing'"
    path = write("x = (\n", "broken.py")
    printed = run(path)
    assert f'File "{path}", line 1' in printed
    assert printed.endswith("error: SyntaxError: '(' was never closed\n")
    path = write(ONE + "app.table(1)\n", "plan.py")
    printed = run(path)
    assert f'File "{path}", line 3' in printed
    assert printed.endswith("error: 1 cannot be a table; make it a subclass of tm.Row\n")


def test_interrupted_while_loading(monkeypatch, capsys):
    def main(arguments, load):
        raise KeyboardInterrupt

    monkeypatch.setattr(command._native, "main", main)
    assert command.main() == 130
    assert capsys.readouterr().err == "error: interrupted before the first event\n"
