"""Shared by the tests: modules made of texts, so that errors have a file, lines and columns."""

import importlib.util
import re
import signal
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest
from browser import Browser

# Who was started in the background may have been told to ignore it; tests interrupt runs.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

PRELUDE = """
import decimal
import enum, math
import random
import time
from datetime import datetime, timedelta, timezone; from zoneinfo import ZoneInfo
import tidemill as tm

class Account(tm.Row):
    id: str = tm.key()
    balance: int = 0
    owner: str | None = None
    limit: tm.Decimal(12, 2) = 0
    opened: tm.Time = datetime(2020, 1, 1)

class Stock(tm.Row):
    store: str = tm.key()
    item: int = tm.key()
    left: int = 0

class Line(tm.Event):
    item: int
    quantity: int

class Transfer(tm.Event):
    at: tm.Time = tm.event_time()
    src: str
    dst: str | None
    store: str
    amount: int
    price: tm.Decimal(12, 2)
    rate: float
    lines: list[Line]
    ids: list[str]

class Alert(tm.Event):
    at: tm.Time = tm.event_time()
    text: str
    level: int = 3

app = tm.App("bank")
accounts = app.table(Account)
stock = app.table(Stock)
transfers = app.source(Transfer)
LIMIT = 100
COLORS = ("red", "green")

class Segment(tm.Row):
    id: str = tm.key()
    speed: tm.Window[float] = tm.window("5m", slide="1m")
    cars: tm.Window[str] = tm.window("5m", slide="1m", distinct=True)
    last: tm.Window[int] = tm.window(last=10)

segments = app.table(Segment)
"""

_numbers = count()

# The reasons for which `make test` may skip a test: it needs something of the system that no package of Python brings.
OF_THE_SYSTEM = (
    r"there is no (Chromium|Java|Maven|libfaketime|node and npm|psql|python3\.10|/.*\.jar)",
    r"(actionlint|curl|docker-compose|helm|promtool|psql|systemd-analyze) is not installed",
    r"Python 3\.10 does not say",
    r"(it needs )?a file system of its own",
    r"no file system can be mounted",
    r"this process may have \d+ descriptors",
)


def pytest_addoption(parser):
    parser.addoption(
        "--known-skips",
        action="store_true",
        help="fail if a test is skipped for another reason than a program that the system lacks",
    )


def pytest_terminal_summary(terminalreporter, config):
    """Counts the skipped tests by their reasons; a reason that is not known fails the run."""
    if not config.getoption("known_skips"):
        return
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())]
    unknown = unknown_skips(reasons)
    terminalreporter.write_line(f"{len(reasons)} skipped, {len(unknown)} for a reason that is not known")
    for reason in unknown:
        terminalreporter.write_line(f"error: a test is skipped for a reason that is not known: {reason}", red=True)
    if unknown and terminalreporter._session.exitstatus == pytest.ExitCode.OK:
        terminalreporter._session.exitstatus = pytest.ExitCode.TESTS_FAILED


def unknown_skips(reasons):
    """Returns the reasons that are not for what a system may lack."""
    return [reason for reason in reasons if not any(re.match(known, reason) for known in OF_THE_SYSTEM)]


TOOLS = Path(__file__).parents[2] / "tools"


def load_tool(name):
    """A program of tools/ as a module. Skips the tests where there are no tools."""
    file = TOOLS / f"{name}.py"
    if not file.is_file():
        pytest.skip("the tools are not in the package", allow_module_level=True)
    if str(TOOLS) not in sys.path:
        sys.path.append(str(TOOLS))
    spec = importlib.util.spec_from_file_location(name, file)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.fixture
def module(tmp_path):
    """Imports a text as a module of its own, below the prelude; gives the module."""
    made = []

    def load(text, prelude=PRELUDE):
        name = f"_test_module_{next(_numbers)}"
        file = tmp_path / f"{name}.py"
        file.write_text(prelude + textwrap.dedent(text), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def browser(tmp_path):
    (tmp_path / "browser").mkdir()
    made = Browser(tmp_path / "browser")
    yield made
    made.close()


TRANSACTION = """
@app.transaction(transfers)
def t(ev, src=accounts.row("src"), items=stock.row("store", "lines.item"), seg=segments.row("src")):
"""


@pytest.fixture
def body(module):
    """The plan's transaction for a body, with the roles src, items and seg."""

    def compile_body(text):
        loaded = module(TRANSACTION + textwrap.indent(textwrap.dedent(text), "    "))
        return loaded.t._definition

    return compile_body


def strip(node):
    """A plan without places."""
    if isinstance(node, dict):
        return {k: strip(v) for k, v in node.items() if k != "span"}
    if isinstance(node, (list, tuple)):
        return [strip(n) for n in node]
    return node


PRELUDE_LINES = PRELUDE.count("\n")
