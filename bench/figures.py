"""Draws the results of ``tidemill-bench figures`` and fills in ``docs/figures.md`` and ``docs/windows.md``.

    python bench/figures.py target/figures docs/figures docs/figures.md docs/windows.md

A page has a pair of comments for each of its figures, ``<!-- ms10 -->`` and ``<!-- /ms10 -->``. This script
replaces the text between them by the plot and a table of medians. The plots show every value; a table
has at most about twenty lines. A figure without a file keeps its text.
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

Row = dict[str, str]
MILLION = 1e6
TO_LOOP = "ratio to the loop"
RATIO: dict[str, Any] = {"y": "ratio_to_loop", "scale": 1, "label": TO_LOOP}
COLOURS = [f"C{number}" for number in range(10)]
NAMED = {"loop": "black", "auto": COLOURS[3], "tstream": COLOURS[0], "epoch": "grey", "pat:16": COLOURS[2]}
MEANING = {
    "epoch": "events of an epoch",
    "theta": "θ",
    "abort": "share of aborts",
    "micros": "C, µs",
    "accesses": "r",
    "length": "length",
    "multiple": "share of transactions with all rows",
    "reads": "share of reads",
    "across": "share of transactions on several partitions",
    "partitions": "partitions of a transaction",
    "groups": "groups",
    "seconds": "seconds of a window, or of a gap",
    "late": "share of late events",
    "workers": "workers",
}
SIMULATED = "16"
SCHEMES = ["tstream", "pat:16", "lal", "lwm", "no-lock"]
APPLICATIONS = ["gs", "sl", "ob", "tp"]
KINDS = ["useful_s", "sync_s", "lock_s", "construct_s", "explore_s", "abort_s", "other_s"]


def read(path: Path) -> list[Row]:
    """The lines of a figure."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in the order of first occurrence."""
    return list(dict.fromkeys(values))


def number(text: str) -> float:
    return float(text) if text else math.nan


def colour(series: str, all_series: list[str]) -> Any:
    others = [name for name in all_series if name not in NAMED]
    free = [COLOURS[i] for i in (1, 4, 5, 6, 8, 9, 7)]
    return NAMED.get(series) or free[others.index(series) % len(free)]


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in body)]
    return "\n".join(f"| {line} |" for line in lines)


def short(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Panel:
    """One plot: which rows it takes, the columns of its axes, and a series per scheduling."""

    def __init__(self, title: str, where: Callable[[Row], bool], x: str, **options: Any):
        self.title, self.where, self.x = title, where, x
        self.y = options.get("y", "events_per_second")
        self.scale = options.get("scale", MILLION)
        self.log_x, self.log_y = options.get("log_x", 0), options.get("log_y", False)
        self.label = options.get("label", "million events/s")

    def draw(self, axis: Any, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
        rows = [row for row in rows if self.where(row)]
        series = distinct(row["scheduling"] for row in rows)
        along = distinct(row[self.x] for row in rows)
        values = {(row["scheduling"], row[self.x]): number(row[self.y]) / self.scale for row in rows}
        is_number = all(re.fullmatch(r"[-\d.e]+", x) for x in along)
        for name in series:
            height = [values.get((name, x), math.nan) for x in along]
            style = {"color": colour(name, series), "label": name, "marker": "o", "markersize": 3}
            if name == "loop":
                style |= {"linestyle": ":", "marker": None}
            axis.plot([float(x) for x in along] if is_number else along, height, **style)
        if self.log_x:
            axis.set_xscale("log", base=self.log_x)
        if self.log_y:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.set(title=self.title, xlabel=MEANING.get(self.x, self.x), ylabel=self.label)
        axis.legend(fontsize=6)
        body = [[x, *(short(values.get((name, x), math.nan)) for name in series)] for x in along]
        return [MEANING.get(self.x, self.x), *series], body


def panels(axes: Any, rows: list[Row], all_panels: list[Panel]) -> str:
    texts = []
    for axis, panel in zip(axes, all_panels, strict=True):
        head, body = panel.draw(axis, rows)
        texts.append(f"{panel.title}, {panel.label}:\n\n{table(head, body)}")
    return "\n\n".join(texts)


def bars(axis: Any, rows: list[Row], title: str, along: str, value: Callable[[Row], float], label: str) -> str:
    """A group of bars per value of a column, a bar per scheduling."""
    groups, series = distinct(row[along] for row in rows), distinct(row["scheduling"] for row in rows)
    values = {(row["scheduling"], row[along]): value(row) for row in rows}
    width = 0.8 / len(series)
    for number_, name in enumerate(series):
        places = [group + (number_ - len(series) / 2) * width for group in range(len(groups))]
        heights = [values.get((name, group), math.nan) for group in groups]
        axis.bar(places, heights, width, label=name, color=colour(name, series))
    axis.set_xticks(range(len(groups)), groups)
    axis.set(title=title, ylabel=label)
    axis.legend(fontsize=6, ncol=2)
    body = [[group, *(short(values.get((name, group), math.nan)) for name in series)] for group in groups]
    return f"{title}, {label}:\n\n{table([along, *series], body)}"


def breakdown(axis: Any, rows: list[Row], title: str) -> str:
    """Draws the time that workers spent in access per event, by kind. The table has the rows of two workers."""
    names = [f"{row['scheduling']}, {row['workers']}" for row in rows]
    below = [0.0] * len(rows)
    body = [[name] for name in names]
    for kind in KINDS:
        heights = [number(row[kind]) / float(row["events"]) * 1e6 for row in rows]
        axis.bar(names, heights, bottom=below, label=kind.removesuffix("_s"))
        below = [a + b for a, b in zip(below, heights, strict=True)]
        for line, height in zip(body, heights, strict=True):
            line.append(short(height))
    axis.tick_params(axis="x", rotation=60, labelsize=6)
    axis.set(title=title, ylabel="µs of workers per event")
    axis.legend(fontsize=6)
    body = [line for line, row in zip(body, rows, strict=True) if row["workers"] == "2"]
    return f"{title}, µs of workers per event:\n\n{table(['', *(k.removesuffix('_s') for k in KINDS)], body)}"


def at(**columns: str) -> Callable[[Row], bool]:
    return lambda row: all(row[name] == value for name, value in columns.items())


def engine(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["scheduling"] != "loop"]


def per_second(row: Row) -> float:
    return number(row["events_per_second"]) / MILLION


def ratio(row: Row) -> float:
    return number(row["ratio_to_loop"])


def costs(rows: list[Row]) -> list[str]:
    return distinct(row["micros"] for row in rows)


def ms10(rows: list[Row], axes: list[Any]) -> str:
    return bars(axes[0], rows, "Streaming Ledger, by C (µs)", "micros", ratio, TO_LOOP)


def ms11(rows: list[Row], axes: list[Any]) -> str:
    order = sorted(engine(rows), key=per_second, reverse=True)
    axes[0].barh([row["scheduling"] for row in order], [per_second(row) for row in order])
    axes[0].invert_yaxis()
    axes[0].tick_params(axis="y", labelsize=6)
    axes[0].set(title="the whole run", xlabel="million events/s")
    whole = table(
        ["", "ratio to the loop", "p99 ms", "policies"],
        [
            [r["scheduling"], short(number(r["ratio_to_loop"])), short(number(r["p99_ms"])), r["policies"]]
            for r in order[:8]
        ],
    )
    some = [row for row in order if row["scheduling"] in ("auto", "morphstream", "tstream", "pat:16", "lal", "epoch")]
    return f"The fastest over the whole run:\n\n{whole}\n\n{breakdown(axes[1], some, 'Figure 13a')}"


def latency(row: Row) -> float:
    """Returns the time from the arrival of an epoch's oldest event to the end of the epoch, ms."""
    return (number(row["waited_s"]) + number(row["took_s"])) * 1e3


def ms11_time(rows: list[Row], axes: list[Any]) -> str:
    series = distinct(row["scheduling"] for row in rows)
    for name in series:
        own = [row for row in rows if row["scheduling"] == name]
        share = [(i + 1) / len(own) * 4 for i in range(len(own))]
        times = [0.0, *(number(row["finished_s"]) for row in own)]
        window = 4
        rate = [
            sum(number(r["events"]) for r in own[max(0, i - window + 1) : i + 1])
            / max(1e-9, times[i + 1] - times[max(0, i - window + 1)])
            / MILLION
            for i in range(len(own))
        ]
        axes[0].plot(share, rate, label=name, color=colour(name, series))
        axes[1].plot(share, [latency(row) for row in own], color=colour(name, series))
        axes[2].plot(share, [number(row["access_s"]) * 1e3 for row in own], color=colour(name, series))
    labels = ("million events/s", "latency, ms", "access of an epoch, ms")
    for axis, label in zip(axes, labels, strict=True):
        [axis.axvline(phase, color="lightgrey", linewidth=0.5) for phase in (1, 2, 3)]
        axis.set(xlabel="phase", ylabel=label, ylim=(0, None))
    axes[0].legend(fontsize=6)
    rates, late = ([[name] for name in series] for _ in range(2))
    for rate_line, late_line, name in zip(rates, late, series, strict=True):
        own = [row for row in rows if row["scheduling"] == name]
        quarter = max(1, len(own) // 4)
        for phase in range(4):
            part = own[phase * quarter : (phase + 1) * quarter]
            access = sum(number(row["access_s"]) for row in part)
            events = sum(number(row["events"]) for row in part)
            rate_line.append(short(events / access / MILLION if access else math.nan))
            late_line.append(short(median(latency(row) for row in part)))
    head = ["", "1", "2", "3", "4"]
    return (
        f"Million events per second of access, by phase:\n\n{table(head, rates)}\n\n"
        f"Figure 11b: latency of an epoch's oldest event, ms, median by phase:\n\n{table(head, late)}"
    )


def ms12(rows: list[Row], axes: list[Any]) -> str:
    fast = [Panel(f"C = {c} µs", at(micros=c), "abort", **RATIO) for c in costs(rows)]
    late = [Panel(f"C = {c} µs", at(micros=c), "abort", y="p99_ms", scale=1, label="p99, ms") for c in costs(rows)]
    panels(axes[len(fast) :], engine(rows), late)
    return panels(axes[: len(fast)], engine(rows), fast)


def ms13b(rows: list[Row], axes: list[Any]) -> str:
    series = distinct(row["scheduling"] for row in rows)
    body = []
    for name in series:
        line = [name]
        for axis, epoch in zip(axes, distinct(row["epoch"] for row in rows), strict=True):
            own = [row for row in rows if row["scheduling"] == name and row["epoch"] == epoch]
            held = [number(row["mib"]) for row in own]
            axis.plot([number(row["seconds"]) for row in own], held, label=name, color=colour(name, series))
            axis.set(title=f"epochs of {epoch}", xlabel="seconds", ylabel="MiB")
            line.append(short(max(held)))
        body.append(line)
    for axis in axes:
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=6, loc="lower right")
    head = ["", *(f"epochs of {epoch}" for epoch in distinct(row["epoch"] for row in rows))]
    return f"The most that was held, MiB:\n\n{table(head, body)}"


def simple(title: str, x: str, **options: Any) -> Callable[[list[Row], list[Any]], str]:
    return lambda rows, axes: panels(axes, engine(rows), [Panel(title, lambda row: True, x, **options)])


def ms16a(rows: list[Row], axes: list[Any]) -> str:
    kinds = [Panel(name, at(acyclic=flag), "accesses") for name, flag in (("with cycles", "0"), ("without", "1"))]
    return panels(axes, engine(rows), kinds)


def by_cost(x: str) -> Callable[[list[Row], list[Any]], str]:
    def draw(rows: list[Row], axes: list[Any]) -> str:
        return panels(
            axes,
            rows,
            [Panel(f"C = {c} µs", at(micros=c), x, **RATIO) for c in costs(rows)],
        )

    return draw


def ts8(rows: list[Row], axes: list[Any]) -> str:
    series = distinct(row["scheduling"] for row in engine(rows))
    body = []
    for axis, (app, cost) in zip(axes, [(a, c) for c in costs(rows) for a in APPLICATIONS], strict=False):
        own = [r for r in engine(rows) if r["workload"] == app and r["micros"] == cost]
        bars(axis, own, f"{app}, C = {cost} µs", "workers", ratio, TO_LOOP)
        ratios = {(r["workers"], r["scheduling"]): ratio(r) for r in own}
        for workers in distinct(r["workers"] for r in own):
            body.append([cost, app, workers, *(short(ratios.get((workers, name), math.nan)) for name in series)])
    dear = costs(rows)[-1]
    ledger = [r for r in engine(rows) if r["workload"] == "sl" and r["micros"] == dear]
    two = [r for r in engine(rows) if r["workers"] == "2" and r["micros"] == dear]
    texts = [
        f"Figure 8, {TO_LOOP}:\n\n{table(['C, µs', 'workload', 'workers', *series], body)}",
        breakdown(axes[8], ledger, f"Figure 9: sl, C = {dear} µs"),
        bars(axes[9], two, f"Figure 13: p99, C = {dear} µs", "workload", lambda r: number(r["p99_ms"]), "ms"),
    ]
    return "\n\n".join(texts)


def ts12(rows: list[Row], axes: list[Any]) -> str:
    high = [Panel(f"{app}: throughput", at(workload=app), "epoch", log_x=2) for app in APPLICATIONS]
    late = [
        Panel(f"{app}: p99", at(workload=app), "epoch", y="p99_ms", scale=1, label="ms", log_x=2)
        for app in APPLICATIONS
    ]
    panels(axes, engine(rows), [*high, *late])
    auto = {(row["epoch"], row["workload"]): row for row in rows if row["scheduling"] == "auto"}
    body = []
    for epoch in distinct(epoch for epoch, _ in auto):
        own = [auto[epoch, app] for app in APPLICATIONS]
        body.append([epoch, *(f"{short(per_second(row))} ({short(number(row['p99_ms']))})" for row in own)])
    head = [MEANING["epoch"], *APPLICATIONS]
    return f"`auto`: throughput, million events/s (p99, ms):\n\n{table(head, body)}"


def ts14(rows: list[Row], axes: list[Any]) -> str:
    return bars(axes[0], engine(rows), "by application", "workload", ratio, TO_LOOP)


def ts19_10(rows: list[Row], axes: list[Any]) -> str:
    kinds = [("1", "0"), ("0", "0.6"), ("0", "0.8")]
    texts = []
    for place, (reads, theta) in enumerate(kinds):
        own = [row for row in engine(rows) if (row["reads"], row["theta"]) == (reads, theta)]
        title = f"{'reads' if reads == '1' else 'writes'} only, θ = {theta}"
        texts.append(bars(axes[place], own, f"Figure 10: {title}", "workers", per_second, "million events/s"))
        texts.append(breakdown(axes[3 + place], own, f"Figure 11: {title}"))
    return "\n\n".join(texts)


def ts19_12(rows: list[Row], axes: list[Any]) -> str:
    whole = panels(axes[:1], engine(rows), [Panel("θ = 0.6", lambda row: True, "reads")])
    return f"{whole}\n\n{breakdown(axes[1], [row for row in rows if row['scheduling'] == 'tstream'], 'tstream')}"


def ts19_13(rows: list[Row], axes: list[Any]) -> str:
    return bars(axes[0], engine(rows), "10,000 rows, half reads", "workers", per_second, "million events/s")


def ts19_18(rows: list[Row], axes: list[Any]) -> str:
    texts = []
    for axis, cost in zip(axes, costs(rows), strict=True):
        own = [row for row in engine(rows) if row["micros"] == cost]
        texts.append(bars(axis, own, f"C = {cost} µs", "workload", ratio, TO_LOOP))
    return "\n\n".join(texts)


def seconds(row: Row) -> str:
    """The shortest and the longest run."""
    return f"{short(number(row['seconds_min']))} to {short(number(row['seconds_max']))}"


def geometric(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def grid(rows: list[Row], axes: list[Any]) -> str:
    knobs = ["workload", "rows", "theta", "abort", "length", "micros", "accesses", "epoch", "reads"]
    points: dict[tuple[str, ...], dict[str, Row]] = defaultdict(dict)
    for row in engine(rows):
        points[tuple(row[knob] for knob in knobs)][row["scheduling"]] = row
    found = []
    of_policy: dict[str, list[float]] = defaultdict(list)
    for point, ways in points.items():
        if len(runs := {way["runs"] for way in ways.values()}) > 1:
            raise ValueError(f"some policies ran more often than others at {point}: {runs}")
        auto, fixed = ways["auto"], {name: way for name, way in ways.items() if name != "auto"}
        best = max(fixed, key=lambda name: per_second(fixed[name]))
        for name, way in fixed.items():
            of_policy[name].append(per_second(way) / per_second(fixed[best]))
        found.append((per_second(auto) / per_second(fixed[best]), point, best, fixed[best], auto))
    found.sort(key=lambda f: f[0])
    ratios = [ratio for ratio, *_ in found]
    decided = max(number(auto["decide_s"]) / number(auto["access_s"]) for *_, auto in found)
    axes[0].plot(ratios, marker="o", markersize=3)
    axes[0].axhline(1.0, color="black", linewidth=0.5)
    axes[0].axhline(0.85, color="red", linewidth=0.5)
    axes[0].set(title="auto over the best fixed policy", xlabel="point, from the worst", ylabel="ratio", ylim=(0, None))
    worst = [
        [*point, best, seconds(way), seconds(auto), auto["policies"], short(ratio)]
        for ratio, point, best, way, auto in found[:6]
    ]
    winners: dict[str, int] = defaultdict(int)
    for _, _, best, _, _ in found:
        winners[best] += 1
    won = "; ".join(f"{name} at {count}" for name, count in sorted(winners.items(), key=lambda w: -w[1]))
    means = {name: geometric(ratios) for name, ratios in of_policy.items()}
    overall = max(means, key=lambda name: means[name])
    head = [*knobs, "best", "its runs, s", "runs of auto, s", "epochs of auto", "ratio"]
    return (
        f"{len(found)} points. `auto` over the best fixed policy at each: {geometric(ratios):.3f} on geometric "
        f"average, {ratios[0]:.2f} at the worst point; deciding took at most {decided * 100:.1f} % of access. "
        f"`{overall}`, the best fixed policy over all points, comes to {means[overall]:.3f} on average and "
        f"{min(of_policy[overall]):.2f} at its worst point. Best were: {won}.\n\nThe worst points:\n\n"
        + table(head, worst)
    )


def over_workers(axis: Any, rows: list[Row], column: str, **style: Any) -> None:
    unit = MILLION if column.endswith("_per_second") else 1
    axis.plot([int(row["workers"]) for row in rows], [number(row[column]) / unit for row in rows], **style)


def scaling(rows: list[Row], axes: list[Any]) -> str:
    """Throughput over workers, then latency: an axis per point of each. What was not measured or predicted is empty."""

    def point(row: Row) -> tuple[str, str, str]:
        return row["workload"], row["micros"], row["theta"]

    def having(lines: list[Row], column: str) -> list[Row]:
        return [row for row in lines if row[column]]

    points = distinct(map(point, rows))
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    reached: list[list[str]] = []
    for axis, late, at_point in zip(axes[: len(points)], axes[len(points) :], points, strict=True):
        own = [row for row in rows if point(row) == at_point]
        series = distinct(row["scheduling"] for row in own)
        for name in series:
            line = [row for row in own if row["scheduling"] == name]
            here = having(line, "measured_per_second")
            style = {"color": colour(name, series), "linestyle": "--" if name in SCHEMES else "-", "linewidth": 1}
            over_workers(axis, having(line, "predicted_per_second"), "predicted_per_second", label=name, **style)
            over_workers(axis, here, "measured_per_second", marker="o", markersize=3, **style | {"linestyle": ""})
            over_workers(late, here, "p99_ms", marker="o", markersize=3, label=name, **style)
            for row in having(here, "predicted_per_second"):
                ratio = number(row["predicted_per_second"]) / number(row["measured_per_second"])
                errors[name, row["workers"]].append(abs(math.log(ratio)))
        simulated = [row for row in having(own, "predicted_per_second") if row["workers"] == SIMULATED]
        reached.append([*at_point, *(short(number(row["predicted_per_second"]) / MILLION) for row in simulated)])
        # The bounds by critical path and work: of transactions on rows, of parts on versions, of parts that wait for no
        # verdict.
        for name, of, style_of in [
            ("transaction", "chains", "--"),
            ("transaction,versions", "versions", "-."),
            ("operation,eager", "versions, eager", ":"),
        ]:
            bounds = [row for row in own if row["scheduling"] == name]
            over_workers(
                axis, bounds, "bound_per_second", color="k", linestyle=style_of, linewidth=0.7, label=f"bound of {of}"
            )
        title = ", ".join((at_point[0], f"C = {at_point[1]} µs", f"θ = {at_point[2]}"))
        for drawn, words in [(axis, "million events/s"), (late, "p99, ms")]:
            drawn.set_xscale("log", base=2)
            drawn.set_yscale("log", base=2)
            drawn.set(title=title, xlabel="workers", ylabel=words)
    axes[0].legend(fontsize=5)
    axes[len(points)].legend(fontsize=5)
    names = distinct(row["scheduling"] for row in having(rows, "predicted_per_second"))

    def off(values: list[float]) -> float:
        return math.exp(sum(values) / len(values)) - 1

    by_workers = []
    for workers in distinct(row["workers"] for row in having(rows, "measured_per_second")):
        own_errors = [errors[name, workers] for name in names]
        every = [error for of_name in own_errors for error in of_name]
        by_workers.append(f"{off(every):.1%} with {workers} ({math.exp(max(every)) - 1:.0%} at most)")
        who = "1 worker" if workers == "1" else f"{workers} workers"
        reached.append([f"off, {who}", "", "", *(f"{off(of_name):.0%}" for of_name in own_errors)])
    return (
        f"By workers, predicted over measured is off by {' and '.join(by_workers)} on average; the last lines have the "
        f"averages of each. Predicted with {SIMULATED} workers, million events/s:\n\n"
        + table(["workload", "C, µs", "θ", *names], reached)
    )


WINDOW_KNOBS = ["workload", "events", "groups", "theta", "seconds", "late"]
BASELINES = ["up", "late", "global"]
WAY_COLOURS = {"columns": "lightgrey", "loop": "black", "up": "C0", "late": "C2", "global": "C1", "engine": "C3"}
SHOWN = ["columns, 1", "loop", *(f"{name}, 2" for name in BASELINES), "engine, 1", "engine, 2"]
# Percent of the reading of memory by eight threads, as the thesis gives them: UP, LM, GM (§3.4.2.1).
THESIS = {"ysb": "68.5, 91.4, 91", "lrb-speeds": "15, 48, 67", "nyt": "69, 80, 94"}


def of_windows(rows: list[Row]) -> list[Row]:
    """Returns the rows with only the faster of a point's loops; each row with the name of its series."""
    points: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        points[tuple(row[knob] for knob in WINDOW_KNOBS)].append(row)
    named = []
    for of_point in points.values():
        loops = [row for row in of_point if row["way"] in ("map", "array")]
        named.append(max(loops, key=per_second) | {"way": "loop", "scheduling": "loop"})
        others = (row for row in of_point if row not in loops)
        named += [row | {"scheduling": f"{row['way']}, {row['workers']}"} for row in others]
    return named


def way_colour(series: str) -> str:
    return WAY_COLOURS[series.split(",")[0]]


def thesis(rows: list[Row], axes: list[Any]) -> str:
    rows = of_windows(rows)
    found = {(row["workload"], row["scheduling"]): per_second(row) for row in rows}
    counts = distinct(row["workers"] for row in rows if row["way"] == "engine")
    rates, shares = [], []
    for axis, app in zip(axes, distinct(row["workload"] for row in rows), strict=True):
        own = [row["scheduling"] for row in rows if row["workload"] == app]
        axis.bar(own, [found[app, name] for name in own], color=[way_colour(name) for name in own])
        axis.tick_params(axis="x", rotation=60, labelsize=6)
        axis.set(title=app, ylabel="million events/s")
        for count in counts:
            limit, *ways = (found.get((app, f"{way}, {count}"), math.nan) for way in ["columns", *BASELINES, "engine"])
            rates.append([app, count, *map(short, [limit, found[app, "loop"], *ways])])
            percent = [short(way / limit * 100) for way in ways]
            shares.append([app, count, *percent, THESIS.get(app, ""), *(short(way / ways[0]) for way in ways[1:])])
    of_up = [f"{way} over up" for way in [*BASELINES[1:], "engine"]]
    rate_head = ["workload", "workers", "columns", "loop", *BASELINES, "engine"]
    share_head = ["workload", "workers", *BASELINES, "engine", "thesis: UP, LM, GM", *of_up]
    return (
        f"Million events/s:\n\n{table(rate_head, rates)}\n\n"
        f"Percent of the columns' reading by as many workers; the thesis' percent of its limit, with eight threads; "
        f"and how many times as fast as `up`:\n\n{table(share_head, shares)}"
    )


def draw_ways(axis: Any, rows: list[Row], x: str, log_x: int, title: str) -> str:
    """A line for each series over a column; the same as a table."""
    series, along = distinct(row["scheduling"] for row in rows), distinct(row[x] for row in rows)
    values = {(row["scheduling"], row[x]): per_second(row) for row in rows}
    for name in series:
        height = [values.get((name, place), math.nan) for place in along]
        style = ":" if name == "loop" else "--" if name == "engine, 1" else "-"
        axis.plot(list(map(float, along)), height, style, label=name, color=way_colour(name), marker="o", markersize=3)
    axis.set_yscale("log")
    if log_x:
        axis.set_xscale("log", base=log_x)
    axis.set(title=title, xlabel=MEANING[x], ylabel="million events/s")
    axis.legend(fontsize=6)
    body = [[place, *(short(values.get((name, place), math.nan)) for name in series)] for place in along]
    return f"{title}, million events/s:\n\n{table([MEANING[x], *series], body)}"


def sweep(x: str, log_x: int, *apart: str) -> Callable[[list[Row], list[Any]], str]:
    """A panel for each combination of values of the columns `apart`."""

    def draw(rows: list[Row], axes: list[Any]) -> str:
        rows = [row for row in of_windows(rows) if row["scheduling"] in SHOWN]
        rows.sort(key=lambda row: SHOWN.index(row["scheduling"]))
        by_title: dict[str, list[Row]] = {}
        for row in rows:
            title = ", ".join([row["workload"], *(f"{row[name]} {name}" for name in apart)])
            by_title.setdefault(title, []).append(row)
        parts = zip(axes, by_title.items(), strict=True)
        return "\n\n".join(draw_ways(axis, own, x, log_x, title) for axis, (title, own) in parts)

    return draw


def by_workers(rows: list[Row], axes: list[Any]) -> str:
    texts = []
    rows = of_windows(rows)
    for axis, app in zip(axes, distinct(row["workload"] for row in rows), strict=True):
        own = [row | {"scheduling": row["way"]} for row in rows if row["workload"] == app]
        [loop] = [row for row in own if row["way"] == "loop"]
        others = [row for row in own if row["way"] != "loop"]
        loops = [loop | {"workers": workers} for workers in distinct(row["workers"] for row in others)]
        texts.append(draw_ways(axis, [*loops, *others], "workers", 2, app))
    return "\n\n".join(texts)


def kinds(rows: list[Row], axes: list[Any]) -> str:
    rows = of_windows(rows)
    found = {(row["workload"], row["scheduling"]): row for row in rows}
    apps = distinct(row["workload"] for row in rows)
    body = []
    for app in apps:
        loop, *ways = (found[app, name] for name in ("loop", "engine, 1", "engine, 2"))
        rates = (short(per_second(row)) for row in (found[app, "columns, 1"], loop, *ways))
        memory = (ways[0][name] for name in ("results", "tables_kib", "peak_mib"))
        body.append([app, KINDS_OF_WINDOWS[app], *rates, *(f"{ratio(way):.3f}" for way in ways), *memory])
    places = range(len(apps))
    for shift, name in ((-0.2, "engine, 1"), (0.2, "engine, 2")):
        heights = [ratio(found[app, name]) for app in apps]
        axes[0].bar([place + shift for place in places], heights, 0.4, label=name)
    axes[0].axhline(1.0, color="black", linewidth=0.5)
    axes[0].set_xticks(places, apps, rotation=60, fontsize=6)
    axes[0].set(title="the engine over the loop", ylabel=TO_LOOP)
    axes[0].legend(fontsize=6)
    head = ["workload", "windows", "columns", "loop", "engine, 1", "engine, 2", "1 over loop", "2 over loop"]
    return f"Million events/s:\n\n{table([*head, 'results', 'tables, KiB', 'peak, MiB'], body)}"


KINDS_OF_WINDOWS = {
    "ysb": "tumbling",
    "ysb-join": "tumbling, after a lookup",
    "nyt": "tumbling",
    "lrb-speeds": "tumbling",
    "cm": "tumbling",
    "q7": "tumbling, no group",
    "nb7": "tumbling",
    "q15": "tumbling, a day, no group",
    "q17": "tumbling, a day",
    "q5-counts": "sliding",
    "nbq5": "sliding",
    "q5": "sliding, then a top",
    "q11": "sessions",
    "nb11": "sessions of two kinds",
    "q8": "tumbling, a join",
    "nb8": "tumbling, a join",
    "ro": "none: a transaction",
}

FIGURES: dict[str, tuple[int, Callable[[list[Row], list[Any]], str]]] = {
    "ms10": (1, ms10),
    "ms11": (2, ms11),
    "ms11-costs": (1, simple("epochs of 1,024", "micros", log_x=10, **RATIO)),
    "ms11-time": (3, ms11_time),
    "ms12": (4, ms12),
    "ms13b": (3, ms13b),
    "ms15a": (1, simple("θ = 0", "epoch", log_x=2)),
    "ms15b": (1, simple("epochs of 10,240", "theta")),
    "ms16a": (2, ms16a),
    "ms16b": (1, simple("r = 1", "epoch", log_x=2)),
    "ms16c": (1, simple("r = 4", "multiple")),
    "ms17a": (1, simple("60 % aborts", "micros", **RATIO)),
    "ms17b": (2, by_cost("abort")),
    "ts8": (10, ts8),
    "ts10a": (
        1,
        simple("transactions on six partitions, others on one", "across", **RATIO),
    ),
    "ts10b": (1, simple("half of the transactions on several", "partitions", **RATIO)),
    "ts11a": (1, simple("θ = 0", "reads")),
    "ts11b": (1, simple("writes only", "theta")),
    "ts12": (8, ts12),
    "ts14": (1, ts14),
    "ts19-10": (6, ts19_10),
    "ts19-12": (2, ts19_12),
    "ts19-13": (1, ts19_13),
    "ts19-18": (2, ts19_18),
    "grid": (1, grid),
    "scaling": (32, scaling),
    "thesis": (3, thesis),
    "windows-kinds": (1, kinds),
    "windows-groups": (4, sweep("groups", 10)),
    "windows-skew": (4, sweep("theta", 0, "groups")),
    "windows-length": (4, sweep("seconds", 2)),
    "windows-late": (3, sweep("late", 0)),
    "windows-workers": (4, by_workers),
}


def save(figure: Any, file: Path) -> None:
    """Saves a figure in few colours: a third of the size."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    Image.open(drawn).convert("RGB").quantize(64).save(file, optimize=True)


def main(source: Path, target: Path, pages: list[Path]) -> None:
    """Draws every figure that has a file."""
    target.mkdir(parents=True, exist_ok=True)
    texts = {page: page.read_text() for page in pages}
    for name, (count, draw) in FIGURES.items():
        file = source / f"{name}.csv"
        if not file.exists():
            print(f"{name}: not measured")
            continue
        columns = min(count, 4)
        lines = math.ceil(count / columns)
        figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 3.2 * lines), squeeze=False)
        flat = list(axes.flat)
        words = draw(read(file), flat)
        [axis.remove() for axis in flat if not axis.has_data()]
        figure.tight_layout()
        save(figure, target / f"{name}.png")
        plt.close(figure)
        block = f"<!-- {name} -->\n![{name}]({target.name}/{name}.png)\n\n{words}\n<!-- /{name} -->"
        place = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", flags=re.DOTALL)
        if not any(place.search(text) for text in texts.values()):
            print(f"{name}: no place in any page")
        texts = {page: place.sub(lambda _: block, text) for page, text in texts.items()}  # noqa: B023
    for page, text in texts.items():
        page.write_text(text)


if __name__ == "__main__":
    source, target, *pages = map(Path, sys.argv[1:])
    main(source, target, pages)
