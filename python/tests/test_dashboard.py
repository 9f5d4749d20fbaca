"""The dashboard and the rules for alarms name metrics and incidents that there are."""

import json
import re
import time
import urllib.request
from pathlib import Path

from operated import WAIT_SECONDS, logged
from test_operate import deposit, metrics, served, until_ready, write
from test_server import BANK

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "deploy" / "grafana"
NAMES = re.compile(r"\b(?:tidemill|process)_[a-z_]+\b")


def asked():
    """The names of metrics that dashboard and rules ask for, without what histograms add."""
    board = json.loads((GRAFANA / "tidemill.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions.append("\n".join(re.findall(r"expr: (.*)", (GRAFANA / "alerts.yml").read_text(encoding="utf-8"))))
    return {name for expression in expressions for name in NAMES.findall(expression)}


def test_the_dashboard_asks_for_what_is_counted(tmp_path):
    write(tmp_path, "bank.py", BANK + '\napp.sink(deposit.committed, tm.jsonl("out.jsonl"))\n')
    with logged(tmp_path, "serve", "bank.py", "--port", "0", "--state", "state") as log:
        url = served(log)
        until_ready(url)
        assert deposit(url)[0] == 200
        # The reply may come before the sink's commit.
        deadline = time.monotonic() + WAIT_SECONDS
        while metrics(url).one("tidemill_sink_bytes_total", {"sink": "deposit.committed"}) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        text = urllib.request.urlopen(f"{url}/metrics", timeout=20).read().decode()
    declared = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    for name in asked():
        base = name.removesuffix("_bucket").removesuffix("_total")
        assert base in declared, name


def test_each_incident_has_a_paragraph():
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    code = (ROOT / "crates" / "recovery" / "src" / "vitals.rs").read_text(encoding="utf-8")
    incidents = set(re.findall(r'Incident::\w+ => "(\w+)"', code))
    assert len(incidents) == 8
    told = set(re.findall(r"\b[a-z_]+\b", " ".join(re.findall(r"^\*\*(.*?)\.\*\*", text, re.MULTILINE))))
    assert incidents <= told, incidents - told
