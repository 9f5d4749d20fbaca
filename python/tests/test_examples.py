"""The examples, each on all of its data, against the same computation in plain Python or polars."""

import csv
import json
import sys
from collections import Counter, defaultdict, deque
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tidemill.loading import load

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not in the package")


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Runs an example; gives its tables as dicts of rows by key, and the summary."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def run(name):
        app = load(str(EXAMPLES / f"{name}.py"))
        summary = app.run()
        return {n: {next(iter(r.values())): r for r in t.to_pylist()} for n, t in app.tables.items()}, summary

    yield run
    for name in set(sys.modules) & {"datasets", "bank", "flights", "orders", "ads", "tolls", "leaderboard"} - before:
        del sys.modules[name]


def written(path):
    """The records of a JSON Lines file that an example wrote."""
    with (EXAMPLES / "out" / path).open(encoding="utf-8") as file:
        return [json.loads(line, parse_float=Decimal) for line in file]


def counts(summary):
    return {t.name: (t.committed, dict(t.reasons)) for t in summary.transactions}


def read_ledger():
    """The ledger in the order of its times, and how many records are late and bad."""
    late, bad, movements, latest = 0, 0, [], datetime.min
    with (EXAMPLES / "data" / "ledger.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row["at"]).replace(tzinfo=None)
            if not row["amount"].isdigit():
                bad += 1
            elif at < max(latest, datetime.min + timedelta(1)) - timedelta(seconds=2):
                late += 1
            else:
                latest = max(latest, at)
                movements.append((at, row["src"], row["dst"], int(row["amount"]), int(row["quantity"])))
    return sorted(movements, key=lambda movement: movement[0]), late, bad


def test_bank(ran):
    tables, summary = ran("bank")
    movements, late, bad = read_ledger()
    balances, quantities = defaultdict(int), defaultdict(int)
    deposits, transfers, reasons = 0, 0, Counter()
    for _, src, dst, amount, quantity in movements:
        if not src:
            deposits += 1
        elif balances[src] < amount:
            reasons["insufficient funds"] += 1
            continue
        elif quantities[src] < quantity:
            reasons["insufficient assets"] += 1
            continue
        else:
            transfers += 1
            balances[src] -= amount
            quantities[src] -= quantity
        balances[dst] += amount
        quantities[dst] += quantity

    accounts = {key: row["balance"] for key, row in tables["accounts"].items()}
    assets = {key: row["quantity"] for key, row in tables["assets"].items()}
    assert (summary.late, summary.bad, summary.events) == (late, bad, len(movements))
    assert late == 100 and bad == 10 and len(movements) == 1_000_000 - 110
    assert counts(summary) == {"deposit": (deposits, {}), "transfer": (transfers, dict(reasons))}
    assert min(reasons.values()) > 1000
    # Accounts that only ever failed to pay exist in the plain loop, with nothing in them.
    assert accounts == {key: balance for key, balance in balances.items() if key in accounts}
    assert not any(balance for key, balance in balances.items() if key not in accounts)
    assert assets == {key: quantity for key, quantity in quantities.items() if key in assets}
    assert min(accounts.values()) >= 0 and min(assets.values()) >= 0

    paid_in = written("bank/deposits.jsonl")
    assert len(paid_in) == deposits
    assert sum(accounts.values()) == sum(event["amount"] for event in paid_in)
    assert sum(assets.values()) == sum(event["quantity"] for event in paid_in)
    assert len(written("bank/transfers.jsonl")) == transfers
    assert Counter(event["reason"] for event in written("bank/rejected.jsonl")) == reasons
    assert len(written("bank/late.jsonl")) == late
    assert {event["column"] for event in written("bank/bad.jsonl")} == {"amount"}


def test_flights(ran):
    pl = pytest.importorskip("polars")
    tables, summary = ran("flights")
    table = pl.read_parquet(EXAMPLES / "data" / "flights.parquet").sort("at", maintain_order=True)
    assert summary.events == len(table) == 336_776
    assert (summary.late, summary.bad) == (0, 0)

    # The verdicts, one by one: they depend on those before.
    lands, impossible = {}, []
    for tail, departed, minutes in table.select("tailnum", "departed", "air_time").iter_rows():
        flew = tail is not None and departed is not None
        impossible.append(flew and tail in lands and lands[tail] > departed)
        if flew and not impossible[-1]:
            lands[tail] = departed + timedelta(minutes=minutes or 0)

    # The totals, by polars.
    table = table.with_columns(pl.Series("impossible", impossible))
    grounded = table.filter(pl.col("departed").is_null() | pl.col("tailnum").is_null())
    flown = table.filter(pl.col("departed").is_not_null() & pl.col("tailnum").is_not_null())
    done = flown.filter(~pl.col("impossible"))
    assert counts(summary) == {
        "fly": (len(done), {"still in the air": len(flown) - len(done)}),
        "cancel": (len(grounded), {}),
        "complain": (len(flown) - len(done), {}),
    }
    assert len(flown) - len(done) == 117

    def by(frame, key, **totals):
        """Totals of a frame by key, as dicts."""
        return {row[key]: row for row in frame.group_by(key).agg(**totals).iter_rows(named=True)}

    planes = by(done, "tailnum", flights=pl.len(), miles=pl.col("distance").sum())
    assert tables["aircraft"] == {tail: {**row, "lands": lands[tail]} for tail, row in planes.items()}
    check = [
        ("carriers", "carrier", "flights", done, pl.len()),
        ("carriers", "carrier", "minutes", done, pl.col("air_time").sum()),
        ("carriers", "carrier", "cancelled", grounded, pl.len()),
        ("carriers", "carrier", "unnamed", grounded, pl.col("tailnum").null_count()),
        ("carriers", "carrier", "impossible", flown, pl.col("impossible").sum()),
        ("airports", "dest", "arrived", done, pl.col("air_time").count()),
        ("airports", "dest", "diverted", done, pl.col("air_time").null_count()),
        ("airports", "dest", "cancelled", grounded, pl.len()),
    ]
    for name, key, column, frame, total in check:
        totals = by(frame, key, total=total)
        expected = {code: totals[code]["total"] if code in totals else 0 for code in tables[name]}
        assert {code: row[column] for code, row in tables[name].items()} == expected, (name, column)
    assert set(tables["carriers"]) == set(table["carrier"]) and set(tables["airports"]) == set(table["dest"])

    # Nothing is dropped.
    assert len(grounded) == len(pl.read_parquet(EXAMPLES / "out" / "flights" / "grounded.parquet"))
    told = written("flights/impossible.jsonl")
    assert [event["flight"] for event in told] == flown.filter(pl.col("impossible"))["flight"].to_list()


def test_orders(ran):
    tables, summary = ran("orders")
    events = []
    for number, kind in enumerate(("orders", "restocks", "prices")):
        with (EXAMPLES / "data" / f"{kind}.jsonl").open(encoding="utf-8") as file:
            read = [json.loads(line) for line in file]
        events += [(datetime.fromisoformat(event["at"]), number, kind, event) for event in read]
    events.sort(key=lambda event: event[:2])

    left, price = defaultdict(int), {}
    with (EXAMPLES / "data" / "stock.jsonl").open(encoding="utf-8") as file:
        for item in map(json.loads, file):
            left[item["item"]], price[item["item"]] = item["left"], Decimal(item["price"])
    spent, bought, reasons, invoices, unknown = defaultdict(Decimal), Counter(), Counter(), [], 0
    for _, _, kind, event in events:
        if kind == "restocks":
            left[event["item"]] += event["quantity"]
        elif kind == "prices":
            if event["item"] in left:
                price[event["item"]] = Decimal(event["price"])
            else:
                unknown += 1
        else:
            wanted, total, reason = Counter(), Decimal("0.00"), None
            for line in event["lines"]:
                item = line["item"]
                wanted[item] += line["quantity"]
                if item not in left:
                    reason = "missing"
                elif item not in price:
                    reason = "no price yet"
                elif left[item] < wanted[item]:
                    reason = "out of stock"
                if reason:
                    break
                total += price[item] * line["quantity"]
            if reason:
                reasons[reason] += 1
                continue
            for item, quantity in wanted.items():
                left[item] -= quantity
            spent[event["customer"]] += total
            bought[event["customer"]] += 1
            invoices.append((event["id"], total))

    assert {key: row["left"] for key, row in tables["stock"].items()} == left
    assert {key: row["price"] for key, row in tables["stock"].items() if row["price"] is not None} == price
    assert {key: row["spent"] for key, row in tables["customers"].items()} == spent
    assert {key: row["orders"] for key, row in tables["customers"].items()} == bought
    assert min(left.values()) >= 0
    assert [(event["id"], event["total"]) for event in written("orders/invoices.jsonl")] == invoices

    ordered = next(t for t in summary.transactions if t.name == "order")
    aborted = dict(ordered.reasons)
    assert aborted.pop("out of stock") == reasons["out of stock"] > 100
    assert aborted.pop("no price yet") == reasons["no price yet"] > 0
    assert list(aborted.values()) == [reasons["missing"]]
    assert (ordered.committed, ordered.aborted) == (len(invoices), sum(reasons.values()))
    assert sum(t.aborted for t in summary.transactions if t.name == "reprice") == unknown


def in_csv(name):
    """The records of a data file, and their times without a zone."""
    with (EXAMPLES / "data" / name).open(encoding="utf-8", newline="") as file:
        return [(datetime.fromisoformat(row["at"]).replace(tzinfo=None), row) for row in csv.DictReader(file)]


def text(at):
    """A time as a sink writes it."""
    return f"{at.isoformat(timespec='microseconds')}Z"


def test_ads(ran):
    tables, summary = ran("ads")
    punctual, late, latest = [], [], datetime.min + timedelta(1)
    for at, row in in_csv("ads.csv"):
        if at < latest - timedelta(seconds=2):
            late.append((latest, at, row))
        else:
            punctual.append((at, row))
        latest = max(latest, at)
    punctual.sort(key=lambda event: event[0])
    assert summary.events == len(punctual) + len(late) and summary.late == len(late) == 100

    # In the order of the ends; the campaigns of a window in the order of their first views.
    views = defaultdict(int)
    for at, row in punctual:
        if row["kind"] == "view":
            end = at - timedelta(seconds=at.second % 10, microseconds=at.microsecond) + timedelta(seconds=10)
            views[end, row["campaign"]] += 1
    with (EXAMPLES / "data" / "campaigns.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: (int(row["price"]), int(row["left"])) for row in csv.DictReader(file)}
    left = {campaign: budget for campaign, (_, budget) in rows.items()}
    charged, unpaid, stopped, corrected = [], [], {}, []
    late_views = deque((stands, at, row["campaign"]) for stands, at, row in late if row["kind"] == "view")

    def correct(until):
        """Charges the late views that stand before a time."""
        while late_views and late_views[0][0] < until:
            _, at, campaign = late_views.popleft()
            if campaign not in stopped and left[campaign] >= rows[campaign][0]:
                left[campaign] -= rows[campaign][0]
                corrected.append((text(at), campaign, left[campaign]))

    for (end, campaign), count in views.items():
        correct(end)
        cost = count * rows[campaign][0]
        if campaign in stopped or left[campaign] < cost:
            unpaid.append((text(end), campaign, "stopped" if campaign in stopped else "budget spent"))
            stopped.setdefault(campaign, (text(end), left[campaign]))
        else:
            left[campaign] -= cost
            charged.append((text(end), campaign, count, left[campaign]))
    correct(datetime.max)
    assert 10 < len(corrected) < 100
    assert 10 < len(stopped) < 90 and len(views) > 10_000

    def of(name, *fields):
        return [tuple(event[field] for field in fields) for event in written(f"ads/{name}.jsonl")]

    assert of("views", "at", "campaign", "views") == [(text(end), c, n) for (end, c), n in views.items()]
    assert of("charged", "at", "campaign", "views", "left") == charged
    assert of("unpaid", "at", "campaign", "reason") == unpaid
    assert of("stopped", "campaign", "at", "left") == [(campaign, *seen) for campaign, seen in stopped.items()]
    assert of("corrected", "at", "campaign", "left") == corrected
    assert of("late", "at", "campaign", "kind") == [(text(at), row["campaign"], row["kind"]) for _, at, row in late]
    assert {key: (row["left"], row["stopped"]) for key, row in tables["campaigns"].items()} == {
        key: (left[key], key in stopped) for key in rows
    }


def test_tolls(ran):
    tables, summary = ran("tolls")
    minute, reports = timedelta(minutes=1), []
    for at, row in in_csv("reports.csv"):
        reports.append((at, *(int(row[name]) for name in ("car", "road", "seg", "speed"))))
    assert summary.events == len(reports) > 100_000 and (summary.late, summary.bad) == (0, 0)

    # The windows by their ends, the segments of each in the order of their first reports.
    windows = defaultdict(lambda: defaultdict(list))
    for at, car, road, seg, speed in reports:
        end = at - timedelta(seconds=at.second) + minute
        for later in range(5):
            windows[end + later * minute][road, seg].append((car, speed))
    traffic, tolls = [], []
    segments, places, crossings, balances = {}, {}, Counter(), Counter()

    def close(end):
        for (road, seg), inside in windows.pop(end).items():
            segments[road, seg] = sum(speed for _, speed in inside) / len(inside), len({car for car, _ in inside})
            traffic.append((text(end), road, seg, *segments[road, seg]))

    for at, car, road, seg, _ in reports:
        for end in sorted(end for end in windows if end <= at):
            close(end)
        if places.get(car) != (road, seg):
            places[car] = road, seg
            crossings[car] += 1
            speed, cars = segments.get((road, seg), (0.0, 0))
            due = 2 * (cars - 50) ** 2 if speed < 40 and cars > 50 else 0
            balances[car] -= due
            if due:
                tolls.append((text(at), car, road, seg, due, balances[car]))
    for end in sorted(windows):
        close(end)

    assert len(traffic) > 1000 and 1000 < len(tolls) < sum(crossings.values())
    events = written("tolls/traffic.jsonl")
    assert [(e["at"], e["road"], e["seg"], float(e["speed"]), e["cars"]) for e in events] == traffic
    assert [tuple(event.values()) for event in written("tolls/tolls.jsonl")] == tolls
    assert {car: (row["road"], row["seg"]) for car, row in tables["cars"].items()} == places
    assert {car: row["crossings"] for car, row in tables["cars"].items()} == crossings
    assert {car: row["balance"] for car, row in tables["cars"].items()} == balances


def test_leaderboard(ran):
    tables, summary = ran("leaderboard")
    order, votes, is_in = list(range(25)), [0] * 25, [True] * 25
    voted, counted, refused, eliminated = {}, [], [], []
    with (EXAMPLES / "data" / "votes.csv").open(encoding="utf-8", newline="") as file:
        for vote in csv.DictReader(file):
            phone, who = int(vote["phone"]), int(vote["contestant"])
            if not is_in[who]:
                refused.append("out of the show")
            elif phone in voted and is_in[voted[phone]]:
                refused.append("has voted")
            else:
                voted[phone] = who
                counted.append(who)
                first = next(rank for rank, other in enumerate(order) if votes[other] == votes[who])
                here = order.index(who)
                order[here], order[first] = order[first], who
                votes[who] += 1
                if len(counted) % 20_000 == 0:
                    last = [other for other in order if is_in[other]][-1]
                    is_in[last] = False
                    eliminated.append((len(counted), last, votes[last]))
    assert len(eliminated) == 3 and Counter(refused)["out of the show"] > 1000
    assert [tuple(event.values()) for event in written("leaderboard/eliminated.jsonl")] == eliminated
    assert [event["reason"] for event in written("leaderboard/refused.jsonl")] == refused
    contestants = tables["contestants"]
    assert [contestants[who]["votes"] for who in range(25)] == votes
    assert [contestants[who]["is_in"] for who in range(25)] == is_in
    trend = Counter(counted[-100:])
    assert {who: row["trend"] for who, row in contestants.items() if row["trend"]} == trend
    assert [tables["places"][rank]["contestant"] for rank in range(25)] == order
    assert all(contestants[who]["rank"] == rank for rank, who in enumerate(order))
    assert {phone: row["contestant"] for phone, row in tables["phones"].items()} == voted
    assert counts(summary)["validate"] == (len(counted), dict(Counter(refused).most_common()))
