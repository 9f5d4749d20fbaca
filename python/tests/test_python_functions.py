"""Loops and functions of the language give what Python gives, on many values."""

import json
import math
import os
import random
import struct
import subprocess
import sys
import textwrap
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

import tidemill as tm

PRELUDE = """
import math
import tidemill as tm

app = tm.App("functions")
"""


@pytest.fixture
def module(module):
    """Modules without the prelude of other tests."""
    return lambda text: module(PRELUDE + text, prelude="")


def in_python(function, *arguments):
    """The value of a function; None where it raises."""
    try:
        return function(*arguments)
    except (ValueError, ArithmeticError, IndexError):
        return None


# Loops.

LOOPS = {
    "collatz": """
        rounds = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            rounds += 1
        return rounds
    """,
    "root": """
        low = 0
        high = n + 1
        while high - low > 1:
            middle = (low + high) // 2
            if middle * middle <= n:
                low = middle
            else:
                high = middle
        return low
    """,
    "leaves": """
        total = 0
        while True:
            n -= 1
            if n < 0:
                break
            if n % 3 == 0:
                continue
            total += n
        return total
    """,
    "inside": """
        total = 0
        while n > 0:
            step = 0
            while step < n % 4 and total < 1000:
                for i in range(step):
                    total += i * n
                step += 1
            n -= 1
        return total
    """,
    "calls": """
        total = 0
        while less(total, n):
            total += 3
        return total
    """,
}
LESS = """
def less(a, b):
    if a < 0:
        return False
    return a < b

class Number(tm.Event):
    n: int

numbers = app.source(Number)
"""


def agrees(module, prelude, body, values):
    """Holds the results of a helper with this body against those of Python."""
    loaded = module(
        f"{prelude}\ndef f(n):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        "@app.transaction(numbers)\ndef t(ev):\n    return {'x': f(ev.n)}\n"
    )
    found = loaded.app.collect(loaded.t.committed)
    loaded.app.run({loaded.numbers: [{"n": n} for n in values]})
    assert [row["x"] for row in found.to_pylist()] == [loaded.f(n) for n in values]


@pytest.mark.parametrize("name", LOOPS)
def test_loops(module, name):
    agrees(module, LESS, LOOPS[name], range(-3, 200))


def test_a_loop_that_never_ends_aborts(module):
    loaded = module(f"""{LESS}
class Kept(tm.Row):
    n: int = tm.key()
    rounds: int = 0

kept = app.table(Kept)

@app.transaction(numbers)
def t(ev, row=kept.row("n", create=True)):
    while row.rounds != ev.n:
        row.rounds += 1
""")
    aborted = loaded.app.collect(loaded.t.aborted)
    loaded.app.run({loaded.numbers: [{"n": n} for n in (3, -1, 2)]})
    assert [(row["n"], row["reason"]) for row in aborted.to_pylist()] == [(-1, "too many steps")]
    assert loaded.kept.to_pylist() == [{"n": 2, "rounds": 2}, {"n": 3, "rounds": 3}]


# Functions of numbers.

EXACT = ["sqrt", "fmod", "floor", "ceil", "trunc"]
NEAR = ["exp", "log", "log2", "log10", "pow", "sin", "cos", "tan", "atan2", "hypot"]
OF_TWO = ["fmod", "pow", "atan2", "hypot"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e22, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 709.78, -745.1]


def place(value):
    """The number of a float in the order of all: neighbours differ by 1."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return bits if bits >= 0 else -(2**63) - bits


def is_near(found, expected, ulps):
    if isinstance(expected, int) or found is None or expected is None:
        return found == expected and type(found) is type(expected)
    if math.isnan(expected) or ulps == 0:
        return struct.pack("<d", found) == struct.pack("<d", expected) or math.isnan(found) and math.isnan(expected)
    return abs(place(found) - place(expected)) <= ulps


def floats(rng, count):
    """Floats of all kinds: those that people use, and those of all bits."""
    for _ in range(count):
        kind = rng.random()
        if kind < 0.2:
            yield rng.choice(SPECIAL)
        elif kind < 0.6:
            yield rng.uniform(-50, 50)
        elif kind < 0.8:
            yield math.ldexp(rng.uniform(-1, 1), rng.randrange(-60, 60))
        else:
            yield struct.unpack("<d", rng.randbytes(8))[0]


def test_functions_of_floats(module):
    maps = [
        f"{name} = points.map(lambda e: {{'n': e.n, 'v': math.{name}(e.x{', e.y' * (name in OF_TWO)})}})"
        for name in EXACT + NEAR
    ]
    loaded = module(
        """
class Point(tm.Event):
    n: int
    x: float
    y: float

points = app.source(Point)
"""
        + "\n".join(maps)
    )
    rng = random.Random(34)
    points = [(n, x, y) for n, (x, y) in enumerate(zip(floats(rng, 20_000), floats(rng, 20_000), strict=True))]
    collected = {name: loaded.app.collect(getattr(loaded, name)) for name in EXACT + NEAR}
    loaded.app.run({loaded.points: [{"n": n, "x": x, "y": y} for n, x, y in points]})
    for name, of in collected.items():
        found = {row["n"]: row["v"] for row in of.to_pylist()}
        assert 1000 < len(found) < len(points) or name in ("atan2", "hypot"), f"{name} fails now and then"
        for n, x, y in points:
            arguments = (x, y) if name in OF_TWO else (x,)
            expected = in_python(getattr(math, name), *arguments)
            if isinstance(expected, int) and not -(2**63) <= expected < 2**63:
                expected = None
            ulps = 0 if name in EXACT else 1
            assert is_near(found.get(n), expected, ulps), (name, arguments, found.get(n), expected)


# Texts.

TEXTS = [
    "e.s.find(e.t)",
    "e.s.find(e.t, e.i)",
    "e.s.find(e.t, e.i, e.j)",
    "e.s.replace(e.t, e.u)",
    "e.s.replace(e.t, e.u, e.i)",
    "e.s.replace('a', '')",
    "e.s.replace('', e.t, e.j)",
    "e.s[e.i]",
    "e.s[-1]",
    "e.s[e.i:e.j]",
    "e.s[e.i:]",
    "e.s[:e.j]",
    "e.s[:]",
    "e.s[1:3] + e.s[-3:-1]",
    "e.s.zfill(e.i)",
    "e.s.zfill(6)",
    "len(e.s.split())",
    "len(e.s.split(e.t))",
    "len(e.s.split(',', e.i))",
    "e.s.split()[e.i]",
    "e.s.split(',')[e.i]",
    "e.s.split(e.t)[-1]",
    "e.s.split(e.t, e.j)[e.i]",
    "e.s.split(None, e.j)[e.i]",
    "e.s.split(sep=',', maxsplit=1)[1]",
    "e.t.join((e.s, e.u, e.s))",
    "e.t.join([e.s])",
    "'-'.join(COLORS)",
    "('%' + e.s).lower()[1:].replace('a', 'b').find('b')",
]
PARTS = {
    "words": """
        longest = ""
        for word in e.s.split():
            if len(word) > len(longest):
                longest = word
        return longest
    """,
    "fields": """
        text = e.s
        total = 0
        for field in text.split(","):
            if field == "a":
                continue
            text = text + field
            total = total * 31 + len(field)
            if total > 10_000:
                break
        return f"{total}{text}"
    """,
    "pair": """
        left, right = e.s.split(",")
        return right + left
    """,
    "first": """
        s = e.s
        s, rest = s.split(" ", 1)
        return f"{s}/{rest}"
    """,
    "joined": """
        return e.t.join(e.parts) + e.u
    """,
}
ALPHABET = "aab,,  \u00e9\U0001f980\u0085\x1f+-"
WORD = """
COLORS = ("red", "green")

class Word(tm.Event):
    n: int
    s: str
    t: str
    u: str
    i: int
    j: int
    parts: list[str]

words = app.source(Word)
"""


class Record:
    def __init__(self, fields):
        vars(self).update(fields)


def words(count):
    rng = random.Random(4)
    text = lambda most: "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(most)))
    place = lambda: rng.choice([0, 1, -1, rng.randrange(-9, 9), -(2**63), 2**63 - 1])
    return [
        {
            "n": n,
            "s": text(9),
            "t": text(3),
            "u": text(4),
            "i": place(),
            "j": place(),
            "parts": [text(4) for _ in range(rng.randrange(4))],
        }
        for n in range(count)
    ]


def test_texts(module):
    maps = [f"m{i} = words.map(lambda e: {{'n': e.n, 'v': {text}}})" for i, text in enumerate(TEXTS)]
    loaded = module(WORD + "\n".join(maps))
    collected = [loaded.app.collect(getattr(loaded, f"m{i}")) for i in range(len(TEXTS))]
    events = words(3000)
    loaded.app.run({loaded.words: events})
    names = {"COLORS": ("red", "green")}
    for text, of in zip(TEXTS, collected, strict=True):
        found = {row["n"]: row["v"] for row in of.to_pylist()}
        code = compile(text, text, "eval")
        assert len(found) > 300, f"{text} has values"
        for event in events:
            if "zfill" in text and event["i"] > 2**60:
                # Python has no such text either.
                assert (event["n"] in found) == ("6" in text)
                continue
            expected = in_python(lambda: eval(code, {**names, "e": Record(event)}))  # noqa: B023
            assert found.get(event["n"]) == expected, (text, event)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_texts(module, name):
    loaded = module(
        f"{WORD}\ndef f(e):\n{textwrap.indent(textwrap.dedent(PARTS[name]), '    ')}\n"
        "@app.transaction(words)\ndef t(ev):\n    return {'n': ev.n, 'v': f(ev)}\n"
    )
    found, aborted = loaded.app.collect(loaded.t.committed), loaded.app.collect(loaded.t.aborted)
    events = words(2000)
    loaded.app.run({loaded.words: events})
    values = {row["n"]: row["v"] for row in found.to_pylist()}
    for event in events:
        assert values.get(event["n"]) == in_python(loaded.f, Record(event)), event
    assert len(values) > 100
    reasons = {row["reason"] for row in aborted.to_pylist()}
    expected = {"pair": {"not 2 parts in e.s.split(',')"}, "first": {"not 2 parts in s.split(' ', 1)"}}
    assert reasons == expected.get(name, set())


def test_lists_are_joined(module):
    loaded = module(f"""{WORD}
@app.transaction(words)
def t(ev):
    return {{"v": ev.t.join(ev.parts)}}
""")
    found, aborted = (loaded.app.collect(of) for of in (loaded.t.committed, loaded.t.aborted))
    event = {"n": 0, "s": "", "u": "", "i": 0, "j": 0}
    lengths = [0, 1, 2, 63, 64, 65, 127, 128, 129, 1000, 20_000]
    joined = [(t, [f"{n:09}" for n in range(length)]) for length in lengths for t in (",", "", "\U0001f980\u00e9")]
    joined += [("-", ["", ""]), ("-", [""] * 65)]
    events = [{**event, "t": t, "parts": parts} for t, parts in (*joined, (",", ["x" * 9] * 40_000))]
    loaded.app.run({loaded.words: events})
    assert [row["v"] for row in found.to_pylist()] == [t.join(parts) for t, parts in joined]
    assert [row["reason"] for row in aborted.to_pylist()] == ["too much memory"]


def test_texts_that_are_too_long(module):
    loaded = module(f"""{WORD}
long = words.map(lambda e: {{'v': len(e.s.replace("", e.t).replace("", e.t).replace("", e.t))}})
wide = words.map(lambda e: {{'v': len(e.s.zfill(e.i))}})
""")
    failed = [loaded.app.collect(of) for of in (loaded.long.failed, loaded.wide.failed)]
    event = {"n": 0, "s": "x" * 1000, "t": "y" * 1000, "u": "", "i": 2**62, "j": 0, "parts": []}
    loaded.app.run({loaded.words: [event]})
    assert [row["reason"] for of in failed for row in of.to_pylist()] == ["too much memory"] * 2


# Times.

DATES = [
    *(f"e.at.{part}" for part in ("year", "month", "day", "hour", "minute", "second", "microsecond")),
    *(
        "e.at.weekday()",
        "e.at.isoweekday()",
        "e.at.isocalendar().week",
        "e.at.isocalendar()[0]",
        "e.at.isocalendar()[2]",
    ),
    *("e.at.date().isoformat()", "str(e.at.date())"),
    *(f"e.at.astimezone(BERLIN).{part}" for part in ("year", "month", "day", "hour", "minute", "weekday()")),
    "e.at.astimezone(ZoneInfo('Asia/Kathmandu')).minute",
    "e.at.astimezone(ZoneInfo('America/St_Johns')).date().isoformat()",
    "e.at.astimezone(timezone.utc).isocalendar().year",
    "tm.truncate(e.at, '15m').minute",
    "tm.truncate(e.at, '1d', tz=timezone.utc).day",
    "(tm.truncate(e.at, '1d', tz=BERLIN) - e.at).total_seconds()",
    "(tm.truncate(e.at, '1w', tz='America/New_York') - e.at).total_seconds()",
    "(tm.truncate(e.at, '1mo', tz='Asia/Kathmandu') - e.at).total_seconds()",
    "(tm.truncate(e.at, '3mo') - e.at).total_seconds()",
    "(tm.truncate(e.at, timedelta(hours=7)) - e.at).total_seconds()",
]
MOMENT = """
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

BERLIN = ZoneInfo("Europe/Berlin")

class Moment(tm.Event):
    n: int
    at: tm.Time

moments = app.source(Moment)
"""


def moments(count):
    rng = random.Random(3)
    hour = timedelta(hours=1)
    for n in range(count):
        at = datetime(1901, 1, 1, tzinfo=timezone.utc) + timedelta(days=rng.random() * 72_000)
        if rng.random() < 0.4:
            # Near the hours at which clocks of Europe and America change.
            year, month = rng.randrange(1980, 2090), rng.choice([3, 4, 10, 11])
            at = datetime(year, month, 1, tzinfo=timezone.utc) + rng.randrange(24 * 31) * hour
            at += rng.choice([timedelta(0), timedelta(microseconds=-1), timedelta(minutes=30)])
        if rng.random() < 0.2:
            at = datetime(
                rng.randrange(1910, 2090),
                rng.choice([1, 12]),
                rng.choice([1, 2, 3, 4, 28, 29, 30, 31]),
                tzinfo=timezone.utc,
            )
        yield {"n": n, "at": at}


def test_dates(module):
    maps = [f"m{i} = moments.map(lambda e: {{'n': e.n, 'v': {text}}})" for i, text in enumerate(DATES)]
    loaded = module(MOMENT + "\n".join(maps))
    collected = [loaded.app.collect(getattr(loaded, f"m{i}")) for i in range(len(DATES))]
    events = list(moments(4000))
    loaded.app.run({loaded.moments: events})
    for text, of in zip(DATES, collected, strict=True):
        code = compile(text, text, "eval")
        for row, event in zip(of.to_pylist(), events, strict=True):
            assert row["v"] == eval(code, {**vars(loaded), "e": Record(event)}), (text, event)


def test_a_zone_by_its_name(module):
    loaded = module(f"""{MOMENT}
named = moments.map(lambda e: {{"v": e.at.tz("Europe/Berlin").hour, "date": e.at.tz(BERLIN).date().isoformat()}})
""")
    found = loaded.app.collect(loaded.named)
    events = list(moments(500))
    loaded.app.run({loaded.moments: events})
    local = [event["at"].astimezone(ZoneInfo("Europe/Berlin")) for event in events]
    assert found.to_pylist() == [{"v": at.hour, "date": at.date().isoformat()} for at in local]


def test_truncated_times_are_midnights():
    berlin, seen = ZoneInfo("Europe/Berlin"), 0
    for event in moments(4000):
        local = event["at"].astimezone(berlin)
        days = {"1d": 0, "1w": local.weekday(), "1mo": local.day - 1}
        for length, back in days.items():
            day = datetime(local.year, local.month, local.day, tzinfo=timezone.utc) - timedelta(days=back)
            midnight = day.replace(tzinfo=berlin)
            if (
                midnight.astimezone(timezone.utc).astimezone(berlin) == midnight
                and midnight.utcoffset() == midnight.replace(fold=1).utcoffset()
            ):
                seen += 1
                assert tm.truncate(event["at"], length, tz="Europe/Berlin") == midnight, (event, length)
    assert seen > 11_000


def test_utc_needs_no_data_of_zones():
    program = """
import sys
sys.modules["tzdata"] = None
import zoneinfo
from datetime import datetime, timezone
zoneinfo.reset_tzpath(to=[])
import tidemill as tm
from tidemill.calendars import zone
for tz in (timezone.utc, "UTC", None):
    assert zone(tz) == {"name": "UTC", "offset": 0, "changes": []}
    assert tm.truncate(datetime(2026, 3, 29, 12), "1mo", tz=tz) == datetime(2026, 3, 1)
try:
    zone("Europe/Berlin")
except tm.PlanError:
    print("none")
"""
    env = {**os.environ, "PYTHONTZPATH": ""}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert (done.stdout, done.returncode) == ("none\n", 0), done.stderr


def test_periods_at_the_ends_of_the_years(module):
    loaded = module(f"""{MOMENT}
months = moments.map(lambda e: {{"v": tm.truncate(e.at, "1mo", tz="Asia/Tokyo"), "w": tm.truncate(e.at, "7mo")}})
""")
    found = loaded.app.collect(loaded.months)
    utc = timezone.utc
    times = [
        datetime(9999, 12, 31, 23, tzinfo=utc),
        datetime(9999, 12, 31, 14, tzinfo=utc),
        datetime(1, 12, 31, 23, tzinfo=utc),
        datetime(1600, 2, 29, 14, tzinfo=utc),
        datetime(2400, 2, 29, 16, tzinfo=utc),
    ]
    loaded.app.run({loaded.moments: [{"n": n, "at": at} for n, at in enumerate(times)]})
    truncated = [{"v": tm.truncate(at, "1mo", tz="Asia/Tokyo"), "w": tm.truncate(at, "7mo")} for at in times]
    assert found.to_pylist() == truncated
    assert truncated[0]["v"] == datetime(9999, 12, 31, 15, tzinfo=utc)
    first = datetime(1, 1, 1, tzinfo=utc)
    for length, tz in (("1mo", "America/New_York"), ("5d", None)):
        with pytest.raises(
            tm.PlanError, match=r"^the period of 0001-01-01 .* begins before the year 1; give a later time"
        ):
            tm.truncate(first, length, tz=tz)


def test_lengths_that_are_none():
    for length in (5, 1.5, None):
        with pytest.raises(tm.PlanError, match=f"^the length {length} is neither a text nor a timedelta; write a text"):
            tm.truncate(datetime(2026, 3, 29), length)


def test_times_without_a_zone_stay_without():
    assert tm.truncate(datetime(2026, 3, 29, 12, 34), "1h") == datetime(2026, 3, 29, 12)
    assert tm.truncate(datetime(2026, 3, 29, 12, 34), "1mo") == datetime(2026, 3, 1)


# Cases, and loops over values.

BRANCHES = {
    "cases": """
        match n:
            case 1 | 2:
                return 10
            case 7 if LEAST < n:
                return 20
            case -3:
                return 30
            case other if other > 100:
                return other
            case _:
                n = n * 2
        return n
    """,
    "computed": """
        x = 0
        match n % 4:
            case 0:
                match n // 4 % 3:
                    case 0:
                        x = 1
                    case 1:
                        x = 5
            case 3 as rest:
                x = rest + n
        return x
    """,
    "changed": """
        match n:
            case 1:
                n = 2
            case 2:
                n = 3
            case n:
                n = n + 1
        return n
    """,
    "effects": """
        match less(n, 50) and n > 10:
            case True:
                return 1
            case False if less(n, 3):
                return 2
        return 3
    """,
    "names": """
        value1 = n * 100
        value2 = n * 200
        value3 = n * 300
        match n + 1:
            case 1:
                x = 1
            case _:
                x = 2
        return value1 + value2 + value3 + x
    """,
    "inside": """
        if n > 0:
            match n:
                case 1:
                    return 1
                case 2 if less(n, 3):
                    match n + 1:
                        case 3:
                            return 5
                        case _:
                            return 6
                case _:
                    return 2
        return 3
    """,
    "single": """
        total = 0
        for (prime,) in SINGLES:
            total += prime * n
        for (name,) in (("a",), ("b",)):
            total += NAMES_LENGTH if name == "a" else 0
        return total
    """,
    "constants": """
        total = 0
        for prime in PRIMES:
            if prime > n:
                break
            if prime == 5:
                continue
            total += prime
        return total
    """,
    "pairs": """
        text = ""
        for name, value in NAMES.items():
            if n % value == 0:
                text += name
        for name in NAMES:
            text += name
        for value in NAMES.values():
            text += str(value)
        return text
    """,
    "values": """
        total = 0
        for a, b in ((n, 1), (n + 1, 2), (total, 3)):
            n += 1
            total = total * 10 + a * b + n
        for x in [n, total]:
            total += x
            n = 0
        for x in ():
            total = 0
        return total
    """,
}
MATCHES = (
    LESS
    + """
LEAST = 5
PRIMES = [2, 3, 5, 7, 11, 13]
NAMES = {"a": 2, "b": 3, "c": 5}
NAMES_LENGTH = 3
SINGLES = ((2,), (3,))
"""
)


@pytest.mark.parametrize("name", BRANCHES)
def test_cases_and_values(module, name):
    agrees(module, MATCHES, BRANCHES[name], range(-5, 130))


def test_a_constant_is_not_the_value_of_a_match(module):
    loaded = module(f"""{LESS}
value1 = 1000
value2 = 2000

def first(n):
    match n + 1:
        case 1:
            return value2
        case _:
            return value1

@app.transaction(numbers)
def t(ev):
    match ev.n + 1:
        case 1:
            x = 1
        case _:
            x = 2
    return {{"x": value1 + x, "y": first(ev.n) - value2}}
""")
    found = loaded.app.collect(loaded.t.committed)
    loaded.app.run({loaded.numbers: [{"n": n} for n in (0, 5)]})
    assert found.to_pylist() == [{"x": 1001, "y": 0}, {"x": 1002, "y": -1000}]


# Statements that Python does not do so.
REFUSED = {
    "for c in ONE: pass": "'ONE' has a tuple in a round, which is not a value; "
    "give the loop a variable for each: for a, in ...",
    "for c in TUPLES: pass": "'TUPLES' has a tuple in a round, which is not a value",
    "for c in NAMED.items(): pass": "'NAMED.items()' has a tuple in a round",
    "for (c,) in (1, 2): pass": "'(1, 2)' has a value in a round that is no tuple; give the loop one variable",
    "for a, b in ((1, 2), (3, 4, 5)): pass": "has 3 values in a round, not 2",
    "for v in (9007199254740993, 0.5): pass": "'v' is float and int in '(9007199254740993, 0.5)'; "
    "give values of one type",
    "for v in MIXED: pass": "'v' is float and int in 'MIXED'",
    "for v in (True, 2): pass": "'v' is bool and int in '(True, 2)'",
    "for v in (Decimal('0.5'), 2): pass": "'v' is Decimal and int",
    "for a, b in ((1, 'a'), (2.0, 'b')): pass": "'a' is float and int",
    "x = ev.at.astimezone(None).hour": "None is the zone of a machine; "
    "write its name: time.tz('Europe/Berlin'); or leave it out, for UTC",
    "x = ev.at.tz(None).hour": "None is the zone of a machine",
    "x = tm.truncate(ev.n, '1h')": "the first argument of tm.truncate is Time but ev.n is int",
    "x = tm.truncate(ev.s, '1h')": "the first argument of tm.truncate is Time but ev.s is str",
    "x = ev.s.split(',', sep=';')[0]": "split takes a separator and how often",
    "x = ev.s.split(',', 1, maxsplit=1)[0]": "split takes a separator and how often",
    "x = ev.s[::1.0]": "a slice with a step cannot be compiled",
    "x = ev.n.join(())": "the separator of join is str but ev.n is int",
    "x = ev.n.join((ev.s,))": "the separator of join is str but ev.n is int",
    "x = ev.n.join((1, 2))": "the separator of join is str but ev.n is int",
    "x = ev.n.join(ev.ids)": "the separator of join is str but ev.n is int",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(module, text):
    with pytest.raises(tm.CompileError) as error:
        module(f"""
from decimal import Decimal

ONE = (("red",), ("green",))
TUPLES = {{("a",): 1, "b": 2}}
NAMED = {{"a": 1}}
MIXED = [1, None, 0.5]

class Said(tm.Event):
    at: tm.Time
    n: int
    s: str
    ids: list[str]

said = app.source(Said)

@app.transaction(said)
def t(ev):
    {text}
""")
    assert REFUSED[text] in error.value.msg


def test_a_case_of_none(module):
    loaded = module("""
class Said(tm.Event):
    word: str | None

said = app.source(Said)

@app.transaction(said)
def t(ev):
    match ev.word:
        case None:
            x = "nothing"
        case "a" | "b" as word:
            x = word + "!"
        case word:
            x = "else"
    return {"x": x}
""")
    found = loaded.app.collect(loaded.t.committed)
    loaded.app.run({loaded.said: [{"word": word} for word in (None, "a", "b", "c")]})
    assert [row["x"] for row in found.to_pylist()] == ["nothing", "a!", "b!", "else"]
