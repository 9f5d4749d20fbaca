"""The queries of ``tidemill-bench windows`` in DuckDB and polars, over the whole input as one batch.

The benchmark runs its loop and its engine, and writes its input as Arrow IPC files; every rival reads them into memory
before anything is timed. Each runs on one thread and on all, in a process of its own, and must give our results; q7's
auction is left out, as of equal prices they may take any. Bytewax runs ``ysb`` on one thread where it is
installed, on few events, with a rate and no results to compare.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RIVALS = ("duckdb", "polars")
BYTEWAX_EVENTS = 60_000


def main() -> None:
    """Measures, or is one of the processes that do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=Path("target/release/tidemill-bench"))
    parser.add_argument(
        "--folder", type=Path, default=Path("target/rivals"), help="where the files are put, and removed"
    )
    parser.add_argument("--workloads", type=lambda text: text.split(","), help="by default all that rivals have")
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS, metavar=("RIVAL", "THREADS", "WORKLOAD", "LENGTH"))
    given = parser.parse_args()
    if given.one:
        rival, threads, workload, length = given.one
        print(json.dumps(run_one(rival, int(threads), workload, int(length), given.folder, given.runs)))
        return
    sys.exit(compare(given))


def compare(given: argparse.Namespace) -> int:
    """Prints a line for each workload: million events/s of each program."""
    import queries

    known = [*queries.SQL, *queries.SAME]
    workloads = given.workloads or known
    if unknown := [workload for workload in workloads if workload not in known]:
        sys.exit(f"{unknown[0]} is no query of rivals; there are {', '.join(known)}")
    threads = os.cpu_count() or 1
    given.folder.mkdir(parents=True, exist_ok=True)
    columns = ["loop", "ours 1", f"ours {threads}", *(f"{rival} {n}" for rival in RIVALS for n in (1, threads))]
    print(f"million events/s, {given.events:,} events, medians of {given.runs} runs on 1 and {threads} threads")
    print(f"{'':>9} | " + " ".join(f"{column:>10}" for column in columns))
    is_same = True
    for workload in workloads:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        try:
            rates, length = ours(given, workload, threads, folder)
            for rival in RIVALS:
                for count in (1, threads):
                    outcome = rivals_run(given, rival, count, workload, length, folder / workload)
                    rates.append(given.events / outcome["seconds"] / 1e6)
                    if outcome["differs"]:
                        print(f"{workload}: {rival} on {count} differs: {outcome['differs']}")
                        is_same = False
            print(f"{workload:>9} | " + " ".join(f"{rate:>10.2f}" for rate in rates), flush=True)
            if workload == "ysb" and importlib.util.find_spec("bytewax"):
                seconds = rivals_run(given, "bytewax", 1, workload, length, folder / workload)["seconds"]
                print(
                    f"{'':>9} | bytewax on one thread, {BYTEWAX_EVENTS:,} events: {BYTEWAX_EVENTS / seconds / 1e6:.3f}"
                )
        finally:
            shutil.rmtree(folder)
    return 0 if is_same else 1


def ours(given: argparse.Namespace, workload: str, threads: int, folder: Path) -> tuple[list[float], int]:
    """Million events/s of the faster loop, of one worker and of all; the length of windows, milliseconds."""
    options = ["--workloads", workload, "--events", str(given.events), "--runs", str(given.runs)]
    options += ["--workers", f"1,{threads}", "--csv", "--save", str(folder)]
    lines = list(csv.DictReader(run(given.program, "windows", *options).splitlines()))
    rate = {(line["way"], line["workers"]): float(line["events_per_second"]) / 1e6 for line in lines}
    loop = max(of for (way, _), of in rate.items() if way in ("map", "array"))
    return [loop, rate["engine", "1"], rate["engine", str(threads)]], int(lines[0]["seconds"]) * 1000


def rivals_run(
    given: argparse.Namespace, rival: str, threads: int, workload: str, length: int, folder: Path
) -> dict[str, Any]:
    """Returns the report of a process of one rival."""
    one = ["--one", rival, str(threads), workload, str(length), "--folder", str(folder), "--runs", str(given.runs)]
    return json.loads(run(sys.executable, __file__, *one, POLARS_MAX_THREADS=str(threads)))


def run(*command: str | Path, **environment: str) -> str:
    """Returns the output of a command. Ends this program where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr}")
    return done.stdout


def run_one(rival: str, threads: int, workload: str, length: int, folder: Path, runs: int) -> dict[str, Any]:
    """The median seconds of a rival, and in what its results differ from ours."""
    import polars as pl
    import queries

    frames = {path.stem: pl.read_ipc(path.read_bytes()) for path in folder.glob("*.arrow")}
    expected = frames.pop("results")
    if rival == "bytewax":
        return {"seconds": run_bytewax(frames["events"], length), "differs": ""}
    query = queries.SAME.get(workload, workload)
    once = (in_duckdb if rival == "duckdb" else in_polars)(query, frames, length, threads)
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = once()
        seconds.append(time.perf_counter() - start)
    left_out = queries.ANY_OF_EQUALS.get(workload, [])
    return {
        "seconds": statistics.median(seconds),
        "differs": difference(result.drop(left_out), expected.drop(left_out)),
    }


def in_duckdb(query: str, frames: dict[str, Any], length: int, threads: int) -> Callable[[], Any]:
    """A run of DuckDB over tables of its own; results as Arrow."""
    import duckdb
    import polars as pl
    import queries

    database = duckdb.connect(config={"threads": threads})
    for name, frame in frames.items():
        database.register("given", frame.to_arrow())
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        database.unregister("given")
    frames.clear()
    # AT is a reserved word since DuckDB 2.0.
    text = re.sub(r"\bat\b", '"at"', queries.SQL[query].replace("{length}", str(length)))

    def once() -> pl.DataFrame:
        frame = pl.from_arrow(database.execute(text).to_arrow_table())
        assert isinstance(frame, pl.DataFrame)
        return frame

    return once


def in_polars(query: str, frames: dict[str, Any], length: int, threads: int) -> Callable[[], Any]:
    """A run of polars, on as many threads as the process has."""
    import polars as pl
    import queries

    assert pl.thread_pool_size() == threads, f"{pl.thread_pool_size()} threads, not {threads}"
    lazy = {name: frame.lazy() for name, frame in frames.items()}
    return lambda: queries.POLARS[query](lazy, length).collect()


def difference(result: Any, expected: Any) -> str:
    """Returns in what a result differs from what is expected, in any order; floats in their last digits do not."""
    import polars as pl
    from polars.testing import assert_frame_equal

    names = sorted(expected.columns)
    if sorted(result.columns) != names:
        return f"columns {result.columns}, not {expected.columns}"
    ints = {name for name in names if not expected.schema[name].is_float()}

    def ordered(frame: pl.DataFrame) -> pl.DataFrame:
        typed = frame.select(pl.col(name).cast(pl.Int64 if name in ints else pl.Float64) for name in names)
        return typed.sort([*sorted(ints), *(name for name in names if name not in ints)])

    try:
        assert_frame_equal(ordered(result), ordered(expected), rel_tol=1e-12, abs_tol=0.0)
    except AssertionError as error:
        return str(error)
    return ""


def run_bytewax(events: Any, length: int) -> float:
    """Yahoo's query in Bytewax, on the first events; seconds."""
    from datetime import datetime, timedelta, timezone

    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import windowing
    from bytewax.testing import TestingSink, TestingSource, run_main

    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    rows = events.head(BYTEWAX_EVENTS).select("at", "campaign", "event_type").rows()
    rows = [(epoch + timedelta(milliseconds=at), str(campaign), kind) for at, campaign, kind in rows]
    counts: list[Any] = []
    flow = Dataflow("ysb")
    given = op.input("events", flow, TestingSource(rows, batch_size=1000))
    views = op.filter("views", given, lambda row: row[2] == 0)
    # Its watermark also moves with the clock of the machine: with less to wait, events of a slow run are late.
    clock = windowing.EventClock(lambda row: row[0], wait_for_system_duration=timedelta(minutes=10))
    windower = windowing.TumblingWindower(length=timedelta(milliseconds=length), align_to=epoch)
    counted = windowing.count_window("count", views, clock, windower, lambda row: row[1])
    op.output("counts", counted.down, TestingSink(counts))
    start = time.perf_counter()
    run_main(flow)
    seconds = time.perf_counter() - start
    assert sum(count for _, (_, count) in counts) == sum(row[2] == 0 for row in rows), "a view is missing"
    return seconds


if __name__ == "__main__":
    main()
