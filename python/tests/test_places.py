"""The places of errors: file, line, column, text; and functions whose source cannot be found."""

import inspect
import subprocess
import sys
import textwrap
import traceback

import pytest
from conftest import PRELUDE_LINES, TRANSACTION

import tidemill as tm

HEAD = PRELUDE_LINES + 4

# A body; the line below the function's head, and the text that is marked.
MARKS = [
    ("x = 1\nwith open('a') as f:\n    pass", 2, "with open('a') as f:"),
    ("x = [1, 2] ", 1, "[1, 2]"),
    ("if ev.amount > 1:\n    x = ev.amount ** 2", 2, "ev.amount ** 2"),
    ("tm.require(ev.amount > 0,\n           ev.src)", 2, "ev.src"),
    ("é = ev.src.split('ü')", 1, "ev.src.split('ü')"),
    ("é = 'ü' + print(ev.src)", 1, "print(ev.src)"),
    ("return {'a': 1, 'b': missing}", 1, "missing"),
    ("src.balance, x = 1, 2", 1, "1, 2"),
    # From the analysis.
    ("x = 1\nx = ev.amout + 1", 2, "ev.amout"),
    ("src.balance = (\n    ev.amount\n    + ev.src\n)", 2, "ev.amount"),
    ("é = 'ü' + ev.amount", 1, "'ü' + ev.amount"),
    ("for line in ev.lines:\n    items.left -= line.count", 2, "line.count"),
]


@pytest.mark.parametrize(("text", "line", "marked"), MARKS, ids=[m[2] for m in MARKS])
def test_marks(module, text, line, marked):
    with pytest.raises(tm.CompileError) as raised:
        module(TRANSACTION + textwrap.indent(text, "    ") + "\n")
    error = raised.value
    assert error.lineno == HEAD - 1 + line
    assert error.text[error.offset - 1 : error.end_offset - 1] == marked
    assert error.place == "transaction 't'"
    assert error.filename.endswith(".py")


def test_printed_as_python_prints_syntax_errors(module):
    with pytest.raises(tm.CompileError) as raised:
        module(TRANSACTION + "    x = ev.amount ** 2\n")
    printed = traceback.format_exception_only(raised.type, raised.value)
    assert printed[1:3] == ["    x = ev.amount ** 2\n", "        ^^^^^^^^^^^^^^\n"]
    assert (
        printed[3]
        == "tidemill.CompileError: the operator ** cannot be compiled; multiply: x * x; for a float write math.pow(x, y)\n"
    )
    assert isinstance(raised.value, SyntaxError)


def test_keys_point_to_their_argument(module):
    with pytest.raises(tm.CompileError) as raised:
        module("@app.transaction(transfers)\ndef t(ev, a=accounts.row('src'), b=accounts.row('source')):\n    pass\n")
    error = raised.value
    assert error.text[error.offset - 1 : error.end_offset - 1] == "'source'"


def test_a_fault_without_a_place_points_to_the_head(module):
    with pytest.raises(tm.CompileError) as raised:
        module("""
            class Other(tm.Event):
                at: tm.Time = tm.event_time()
            others = app.source(Other)

            @app.transaction(transfers, others)
            def t(ev):
                pass
        """)
    assert raised.value.text[raised.value.offset - 1 : raised.value.end_offset - 1] == "def t"
    assert "its inputs differ" in raised.value.message


def test_nested_functions_and_other_decorators_lines(module):
    loaded = module("""
        def build(limit):
            @app.transaction(
                transfers,
                name="built",
            )
            def inner(
                ev,
                src=accounts.row("src"),
            ):
                tm.require(ev.amount < limit, "too much")
            return inner

        t = build(3)
    """)
    assert loaded.t.name == "built"
    assert loaded.t._definition["body"][0]["span"]["line"] == PRELUDE_LINES + 11


def test_a_refused_declaration_leaves_no_trace(module):
    loaded = module("")
    before = loaded.app.plan()
    with pytest.raises(tm.CompileError):
        loaded.transfers.filter(lambda e: e.nothing > 1)
    assert loaded.app.plan() == before


def test_no_source():
    program = textwrap.dedent("""
        import tidemill as tm
        class E(tm.Event):
            n: int
        s = tm.App("a").source(E)
        s.filter(lambda e: e.n > 1)
    """)
    done = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True)
    assert (
        "the source of stream 'es_filter' is not available: it was defined in <stdin>; put it into a file"
        in done.stderr
    )


def test_lambdas_on_one_line_without_positions(tmp_path):
    file = tmp_path / "two.py"
    file.write_text(
        "import tidemill as tm\n"
        "class E(tm.Event):\n"
        "    n: int\n"
        "s = tm.App('a').source(E)\n"
        "same = s.filter(lambda e: e.n > 1), s.filter(lambda e: e.n > 1)\n"
        "two = s.filter(lambda e: e.n > 1), s.filter(lambda e: e.n > 2)\n"
    )
    done = subprocess.run([sys.executable, "-X", "no_debug_ranges", str(file)], capture_output=True, text=True)
    if sys.version_info >= (3, 11):
        assert "line 6" in done.stderr
    assert (
        "several lambdas begin on this line and cannot be told apart; "
        "write it as a def, or put each lambda on a line of its own" in done.stderr
    )


def test_a_changed_file(tmp_path):
    file = tmp_path / "changed.py"
    file.write_text(
        "import tidemill as tm\n"
        "class E(tm.Event):\n"
        "    n: int\n"
        "s = tm.App('a').source(E)\n"
        "open(__file__, 'w').write('# nothing is left of it, whatever was here before the change came along')\n"
        "s.filter(lambda e: e.n > 1)\n"
    )
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True)
    assert "is not what is running; the file was changed after it was loaded: run it again" in done.stderr


def test_body_functions_outside():
    for use in (lambda: tm.require(True, "x"), lambda: tm.abort("x"), lambda: tm.emit("x", {})):
        with pytest.raises(tm.TidemillError, match="has a meaning only inside of a function under @app.transaction"):
            use()


def test_errors_of_declarations_show_the_calls_of_the_user_alone(module):
    loaded = module("""
        def transaction():
            @app.transaction(transfers)
            def t(ev):
                x = ev.amount ** 2

        def derived():
            return transfers.filter(lambda e: e.nothing)

        def table():
            return app.table(int)

    """)
    for name, error in [("transaction", tm.CompileError), ("derived", tm.CompileError), ("table", tm.PlanError)]:
        with pytest.raises(error) as raised:
            getattr(loaded, name)()
        frames = traceback.extract_tb(raised.value.__traceback__)
        assert [frame.name for frame in frames[1:]] == [name], frames
    # An error that is not the user's keeps all its calls.
    with pytest.raises(TypeError) as raised:
        loaded.transfers.filter(1, 2, 3)
    assert raised.value.__traceback__ is not None


def test_declarations_are_functions_to_tools():
    assert tm.App.table.__name__ == "table" and "tm.key()" in tm.App.table.__doc__
    assert list(inspect.signature(tm.Stream.filter).parameters) == ["self", "predicate", "name", "replace", "roles"]
    assert inspect.isroutine(tm.App.sink)
