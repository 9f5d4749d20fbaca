"""TPC-C of the examples: what it leaves is what a loop over dicts leaves, and the conditions of the specification hold,
with calls of many clients and after kills; each of them is seen to fail where the program has a fault."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from server_process import running
from test_server import kill_amid

import tidemill as tm
from tidemill.loading import load

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not (ROOT / "examples").is_dir(), reason="the examples are not in the package")
pytest.importorskip("duckdb")


@pytest.fixture
def data(monkeypatch):
    """The modules ``tpcc_data`` and ``tpcc_loop``."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.syspath_prepend(ROOT / "bench")
    import tpcc_loop

    import tpcc_data

    yield tpcc_data, tpcc_loop
    for name in ("tpcc", "tpcc_data", "tpcc_loop"):
        sys.modules.pop(name, None)


def program():
    return (ROOT / "examples" / "tpcc.py").read_text(encoding="utf-8")


def filled(mill, data):
    """Loads the first rows of the small scale."""
    count = data.load(lambda source, rows: mill.send(source, rows), data.SMALL)
    mill.flush()
    return count


def broken(mill, data):
    return data.broken(lambda query: mill.sql(query).to_pylist()[0]["broken"], data.SMALL)


def made(mill, calls):
    """Makes calls one by one; gives the replies, None for an abort, and the reasons."""
    replies, reasons = [], Counter()
    for call in calls:
        try:
            replies.append(mill.call(call.procedure, **call.fields).value)
        except tm.Aborted as aborted:
            replies.append(None)
            reasons[aborted.reason] += 1
    return replies, reasons


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_do_what_a_loop_over_dicts_does(data, workers):
    data, tpcc_loop = data
    app, loop = load(str(ROOT / "examples" / "tpcc.py")), tpcc_loop.Loop(data.SMALL)
    calls = list(islice(data.Terminal(data.SMALL, seed=4), 400))
    assert {call.procedure for call in calls} == set(data.MIX)
    with app.start(workers=workers) as mill:
        assert filled(mill, data) == sum(map(len, loop.tables.values()))
        replies, reasons = made(mill, calls)
        assert replies == [loop.call(call) for call in calls]
        assert set(reasons) == {"item number is not valid"}
        for table, rows in loop.tables.items():
            columns = data.COLUMNS[table].split()
            found = {tuple(row.values())[: data.KEYS[table]]: row for row in mill.table(table).to_pylist()}
            assert found == {key: dict(zip(columns, row.values())) for key, row in rows.items()}, table
        assert broken(mill, data) == {}


def test_the_conditions_hold_with_many_clients_and_after_kills(data, tmp_path):
    data, _ = data
    ordered, done = [], []
    for life in range(3):
        with running(tmp_path, "--state", "state", "--no-postgres", program=program()) as server:
            with tm.connect(server.url, timeout=60) as client:
                if life == 0:
                    data.load(client.push, data.SMALL)

                def work(number, life=life, client=client):
                    try:
                        for call in data.Terminal(data.SMALL, seed=10 * life + number):
                            try:
                                reply = client.call(call.procedure, **call.fields)
                            except tm.Aborted as aborted:
                                assert aborted.reason == "item number is not valid"
                            else:
                                if call.procedure == "new_order":
                                    ordered.append((call.fields["w"], call.fields["d"], reply["o_id"]))
                            done.append(number)
                    except tm.RunError:
                        pass

                kill_amid(server.process, work, done, 150)
    with running(tmp_path, "--state", "state", "--no-postgres", program=program()) as server:
        with tm.connect(server.url, timeout=60) as client:
            assert data.broken(lambda query: client.sql(query)[0]["broken"], data.SMALL) == {}
            orders = {(row["o_w_id"], row["o_d_id"], row["o_id"]) for row in client.rows("orders")}
        server.check_end()
    assert len(ordered) == len(set(ordered)) > 100
    assert orders >= set(ordered)


FAULTS = {
    "the warehouse does not book a payment": ("    warehouse.w_ytd += ev.amount\n", "", {1, 8}),
    "the district does not book a payment": ("    district.d_ytd += ev.amount\n", "", {1, 9}),
    "an order of an item that there is not is left half done": (
        'tm.require(item.exists, "item number is not valid")',
        "if not item.exists:\n            return",
        {4, 5, 7, 11},
    ),
    "the number of the next order goes on by two": (
        "    district.d_next_o_id += 1\n",
        "    district.d_next_o_id += 2\n",
        {2, 3},
    ),
    "the newest order is delivered": ('.first("no_o_id")', '.top(1, by="no_o_id")', {3}),
    "an order counts a line too many": ("o_ol_cnt=len(ev.lines)", "o_ol_cnt=len(ev.lines) + 1", {4, 6}),
    "a delivered order is not taken away": ("        pending.delete()\n", "", {5, 10, 11, 12}),
    "a line is not delivered": ("        line.ol_delivery_d = ev.at\n", "", {7, 10, 12}),
    "the customer does not book a payment": ("    customer.c_balance -= ev.amount\n", "", {10, 12}),
    "a delivery is not counted": ("    customer.c_delivery_cnt += 1\n", "", {11}),
    "a delivery is not charged": ("        customer.c_balance += line.ol_amount\n", "", {10, 12}),
    "the customer's payments are not added up": ("    customer.c_ytd_payment += ev.amount\n", "", {12}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_program_breaks_conditions(data, tmp_path, fault):
    data, _ = data
    old, new, conditions = FAULTS[fault]
    text = program()
    assert text.count(old) == 1
    (tmp_path / "tpcc.py").write_text(text.replace(old, new), encoding="utf-8")
    with load(str(tmp_path / "tpcc.py")).start(workers=1) as mill:
        filled(mill, data)
        made(mill, islice(data.Terminal(data.SMALL, seed=4), 300))
        assert set(broken(mill, data)) == conditions


def test_the_benchmark_ends_with_tables_that_hold_the_conditions(tmp_path):
    """Runs it on few rows, also beside PostgreSQL where there is a server of it. A folder of the tests is closed to
    the user that runs that server."""
    pytest.importorskip("psycopg")
    folder = Path("/tmp" if os.geteuid() == 0 else tmp_path) / f"tpcc-{os.getpid()}"
    size = ["--small", "--seconds", "0.5", "--rounds", "1", "--clients", "1,4"]
    command = [sys.executable, ROOT / "bench" / "tpcc.py", *size, "--folder", folder]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert ran.returncode == 0, ran.stderr
    assert "Tidemill: all conditions hold" in ran.stdout
