"""docs/language.md and the compiler agree, word for word.

Run as a script it writes the compiler's messages into the tables of refusals.
"""

import re
import sys
import textwrap
import types
from pathlib import Path

import pytest
from conftest import PRELUDE, TRANSACTION

import tidemill as tm

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
ALLOWING = ("Meaning", "Meaning in a window", "Meaning in a join")
DECLARED = "Refused where it is declared"
REFUSING = ("Refused with", "Refused in a window", "Refused in a join", DECLARED)
ROW = re.compile(r"^\| `(.*?)` \| (.*?)\s*\|$")


def rows():
    """(kind, code, message, line number) of each row of the tables."""
    kind = None
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines()):
        if line.startswith("| ") and "|---" not in line and not ROW.match(line):
            kind = line.split("|")[2].strip()
        match = ROW.match(line)
        if match and kind in (*ALLOWING, *REFUSING):
            cell = match[2].strip()
            message = cell[3:-3] if cell.startswith("`` ") else cell.strip("`")
            message = message.replace("\\|", "|")
            yield kind, match[1].replace("↵", "\n").replace("\\|", "|"), message, number


WINDOW = """
@app.window(transfers, by=("src", "dst"), over=tm.tumbling("10s"))
def t(w):
"""


JOIN = """
@app.join(transfers, transfers, on=("dst", "src"), within="1h", how="left")
def t(p, a):
"""


OTHER = """
class Reading(tm.Event):
    n: int = tm.event_time()

other = tm.App("other")
other.source(Reading)

class Plain(tm.Event):
    n: int

class Speed(tm.Row):
    car: str = tm.key()
    recent: tm.Window[int] = tm.window("5m", slide="1m")

speeds = app.table(Speed)
"""


def program(code, kind):
    """A module in which the code stands where it belongs."""
    if kind == DECLARED:
        return f"{PRELUDE}{OTHER}\n{code}\n"
    if "window" in kind:
        return PRELUDE + WINDOW + textwrap.indent(code, "    ") + "\n"
    if "join" in kind:
        return PRELUDE + JOIN + textwrap.indent(code, "    ") + "\n"
    if code.startswith(("def t(", "async def t(")):
        return f"{PRELUDE}\n@app.transaction(transfers)\n{code}\n"
    if code.startswith(("transfers.", "def two")):
        return f"{PRELUDE}\n{code}\n"
    return PRELUDE + TRANSACTION + textwrap.indent(code, "    ") + "\n"


def execute(code, kind, folder):
    file = Path(folder) / "program.py"
    file.write_text(program(code, kind), encoding="utf-8")
    module = types.ModuleType("program")
    module.__file__ = str(file)
    sys.modules["program"] = module
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    finally:
        del sys.modules["program"]


ALL = list(rows())
ALLOWED = [(code, kind) for kind, code, _, _ in ALL if kind in ALLOWING]
REFUSED = [(code, kind, message) for kind, code, message, _ in ALL if kind in REFUSING]


def test_the_tables_were_found():
    assert len(ALLOWED) > 30
    assert len(REFUSED) > 120


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(("code", "kind"), ALLOWED, ids=[a[0] for a in ALLOWED])
def test_allowed(code, kind, tmp_path):
    execute(code, kind, tmp_path)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(("code", "kind", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(code, kind, message, tmp_path):
    if kind == DECLARED:
        with pytest.raises((tm.CompileError, tm.PlanError)) as declared:
            execute(code, kind, tmp_path)
        found = declared.value
        assert (found.msg if isinstance(found, tm.CompileError) else str(found)) == message
        return
    with pytest.raises(tm.CompileError) as error:
        execute(code, kind, tmp_path)
    assert error.value.msg == message
    assert error.value.lineno is not None or "has no Python source" in message


def write():
    """Puts the messages into the page."""
    import tempfile
    import warnings

    warnings.simplefilter("ignore")
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for kind, code, _, number in rows():
        if kind not in REFUSING:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                execute(code, kind, folder)
            message = "NOT REFUSED"
        except tm.CompileError as error:
            message = error.msg
        except tm.PlanError as error:
            message = str(error)
        except Exception as error:
            message = f"NOT REFUSED BUT {error!r}"
        if "NOT REFUSED" in message:
            print(code, message)
        shown = ROW.match(lines[number])[1]
        message = message.replace("|", "\\|")
        fence = "``" if "`" in message else "`"
        space = " " if "`" in message else ""
        lines[number] = f"| `{shown}` | {fence}{space}{message}{space}{fence} |"
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
