"""Decimals at the edge of their digits and floats of every kind in windows: exact, rounded once, or refused."""

import decimal
import math
import random
from fractions import Fraction

import pytest

import tidemill as tm

RUNS = [(1, "auto"), (1, 1), (2, 3)]
DIGITS = 18
CENT = decimal.Decimal("0.01")
LIMIT = 10**DIGITS


class Payment(tm.Event):
    at: int = tm.event_time()
    who: str
    amount: tm.Decimal(DIGITS, 2)


class Level(tm.Event):
    at: int = tm.event_time()
    who: str
    value: float


def cents(number):
    return number * CENT


def payments_of(seed):
    rng = random.Random(seed)
    some = [0, 1, -1, 5, -10, 99, LIMIT - 1, 1 - LIMIT, LIMIT // 2, -LIMIT // 2, LIMIT // 3]
    amounts = [(rng.choice("abcdef"), rng.choice([rng.choice(some), rng.randrange(-1000, 1000)])) for _ in range(90)]
    return [{"at": at // 3, "who": who, "amount": cents(amount)} for at, (who, amount) in enumerate(amounts)]


def grouped(events, value):
    """Returns the values of each window and name, by the window's end and the name, in the order in which the
    windows close."""
    groups = {}
    for event in events:
        groups.setdefault(((event["at"] // 10 + 1) * 10, event["who"]), []).append(event[value])
    return sorted(groups.items(), key=lambda group: group[0][0])


def rounded(number):
    """A fraction of cents, half to even."""
    return cents(round(number))


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_decimals_are_summed_exactly_or_refused(workers, epoch):
    for seed in range(3):
        app = tm.App("payments")
        payments = app.source(Payment)

        @app.window(payments, by="who", over=tm.tumbling(10))
        def asked(w):
            return {"who": w.who, "sum": w.amount.sum(), "mean": w.amount.mean(), "least": w.amount.min()}

        closed, failed = app.collect(asked.closed), app.collect(asked.failed)
        events = payments_of(seed)
        app.run({payments: events}, workers=workers, epoch=epoch)
        right, wrong = [], []
        for (end, who), amounts in grouped(events, "amount"):
            whole = sum(int(amount / CENT) for amount in amounts)
            if abs(whole) >= LIMIT:
                wrong.append((end, who))
                continue
            mean = rounded(Fraction(whole, len(amounts)))
            right.append({"who": who, "sum": cents(whole), "mean": mean, "least": min(amounts)})
        assert closed.to_pylist() == right
        assert [(row["end"], row["who"]) for row in failed.to_pylist()] == wrong
        assert all("decimal overflow" in row["reason"] for row in failed.to_pylist())
        assert right and wrong


class Account(tm.Row):
    who: str = tm.key()
    sum: tm.Decimal(DIGITS, 2) = 0


def test_a_quotient_that_does_not_fit_undoes_its_transaction():
    app = tm.App("accounts")
    accounts, payments = app.table(Account), app.source(Payment)

    @app.transaction(payments)
    def add(ev, a=accounts.row("who", create=True)):
        a.sum += ev.amount
        return {"who": ev.who, "third": a.sum / tm.Decimal("3.00"), "short": round(a.sum, 1)}

    added, aborted = app.collect(add.committed), app.collect(add.aborted)
    amounts = [LIMIT - 1, 1, 5, -10, 1 - LIMIT, 99]
    events = [{"at": at, "who": "aabbcc"[at], "amount": cents(amount)} for at, amount in enumerate(amounts)]
    app.run({payments: events})
    kept = [(who, amount) for who, amount in zip("abbc", [1, 5, -5, 99], strict=True)]
    assert added.to_pylist() == [
        {
            "who": who,
            "third": (cents(amount) / 3).quantize(decimal.Decimal("0.000001"), decimal.ROUND_HALF_EVEN),
            "short": round(cents(amount), 1),
        }
        for who, amount in kept
    ]
    assert [(row["who"], row["amount"]) for row in aborted.to_pylist()] == [
        ("a", cents(LIMIT - 1)),
        ("c", cents(1 - LIMIT)),
    ]
    assert all("decimal overflow" in row["reason"] for row in aborted.to_pylist())


FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 2.5, -2.5, 5e-324, -5e-324, 1e308, -1e308, math.inf, -math.inf, math.nan]


def levels_of(seed):
    rng = random.Random(seed)
    tame = [value for value in FLOATS if math.isfinite(value)]
    few = [0.0, -0.0]
    return [
        {"at": at // 4, "who": who, "value": rng.choice({"a": tame, "b": FLOATS, "c": few, "d": tame}[who])}
        for at, who in enumerate(rng.choice("abcd") for _ in range(160))
    ]


def total(values):
    """The sum, rounded once; and the quotient by their number."""
    if any(math.isnan(value) for value in values) or {math.inf, -math.inf} <= set(values):
        return math.nan, math.nan
    if infinite := [value for value in values if math.isinf(value)]:
        return infinite[0], infinite[0]
    exact = sum(Fraction(value) for value in values)
    try:
        whole = float(exact)
    except OverflowError:
        return (math.inf if exact > 0 else -math.inf), float(exact / len(values))
    return whole, whole / len(values)


def extreme(values, choose):
    if any(math.isnan(value) for value in values):
        return math.nan
    return choose(values, key=lambda value: (value, math.copysign(1.0, value)))


def bits(row):
    return {name: value.hex() if isinstance(value, float) else value for name, value in row.items()}


@pytest.mark.parametrize(("workers", "epoch"), RUNS)
def test_floats_have_signs_of_zero_and_nan(workers, epoch):
    for seed in range(3):
        app = tm.App("levels")
        levels = app.source(Level)

        @app.window(levels, by="who", over=tm.tumbling(10))
        def asked(w):
            return {
                "who": w.who,
                "low": w.value.min(),
                "high": w.value.max(),
                "sum": w.value.sum(),
                "mean": w.value.mean(),
            }

        zeros = app.collect(levels.filter(lambda level: level.value == 0.0))
        nans = app.collect(levels.filter(lambda level: level.value != level.value))
        mapped = levels.map(lambda e: {"high": max(e.value, 0.0), "low": min(e.value, 0.0), "round": round(e.value)})
        made, failed = app.collect(mapped), app.collect(mapped.failed)
        closed = app.collect(asked.closed)
        events = levels_of(seed)
        app.run({levels: events}, workers=workers, epoch=epoch)
        expected = []
        for (_, who), values in grouped(events, "value"):
            whole, mean = total(values)
            low, high = extreme(values, min), extreme(values, max)
            expected.append({"who": who, "low": low, "high": high, "sum": whole, "mean": mean})
        assert [bits(row) for row in closed.to_pylist()] == [bits(row) for row in expected]
        values = [event["value"] for event in events]
        assert [row["value"].hex() for row in zeros.to_pylist()] == [value.hex() for value in values if value == 0.0]
        assert len(nans.to_pylist()) == len([value for value in values if math.isnan(value)])
        fits = [value for value in values if math.isfinite(value) and abs(value) < 2**63]
        assert [bits(row) for row in made.to_pylist()] == [
            bits({"high": max(value, 0.0), "low": min(value, 0.0), "round": round(value)}) for value in fits
        ]
        assert len(failed.to_pylist()) == len(values) - len(fits)
