"""Helper functions: what a program computes with them is what Python computes when it calls them."""

import json
import random
import re

import pytest
from conftest import strip
from test_translation import binary, call, compare, ev, lit, local, stmt

import tidemill as tm

HELPERS = """import random
import tidemill as tm

app = tm.App("pairs")
LIMIT = 100
COLORS = ("red", "green")

class Pair(tm.Event):
    a: int
    b: int
    name: str
    other: str | None
    parts: list[int]

pairs = app.source(Pair)

class Box(tm.Row):
    id: int = tm.key()
    value: int = 0
    seen: int = 0

boxes = app.table(Box)

def double(x):
    return x * 2

def above(x, limit=LIMIT, *, by=1):
    "How far x is above the limit."
    return x > limit * by

def share(a, b):
    if b == 0:
        return 0
    return a // b

def grade(x):
    level = "low"
    if x > 10:
        level = "high"
        if x > 50:
            level = "top"
    return level

def sign(x):
    if x < 0:
        return -1
    elif x > 0:
        return 1
    else:
        return 0

def low_and_high(a, b):
    if a < b:
        return a, b
    return b, a

def total_to(n):
    total = 0
    for i in range(n % 7):
        if i == 5:
            break
        total += i
    return total

def nested(a, b):
    low, high = low_and_high(double(a), b)
    return share(high, low) + total_to(abs(a))

def name_of(e):
    return e.name if e.other is None else f"{e.name}/{e.other.upper()}"

def sum_of(e):
    total = 0
    for part in e.parts:
        total += double(part)
    return total

def own(x):
    x += 1
    x = double(x)
    return x

triple = lambda x: x * 3
"""


@pytest.fixture
def module(module):
    """Modules without the prelude of other tests."""
    return lambda text: module(text, prelude="")


CALLS = [
    ("double(ev.a)", lambda m, e: m.double(e["a"])),
    ("double(double(ev.a) + 1) + double(ev.b)", lambda m, e: m.double(m.double(e["a"]) + 1) + m.double(e["b"])),
    ("triple(ev.a + ev.b)", lambda m, e: m.triple(e["a"] + e["b"])),
    ("share(ev.a, ev.b)", lambda m, e: m.share(e["a"], e["b"])),
    ("share(b=ev.b, a=ev.a) + share(ev.b, b=ev.a)", lambda m, e: m.share(e["a"], e["b"]) + m.share(e["b"], e["a"])),
    ("grade(ev.a) + grade(ev.b + 20)", lambda m, e: m.grade(e["a"]) + m.grade(e["b"] + 20)),
    ("sign(ev.a) - sign(ev.b)", lambda m, e: m.sign(e["a"]) - m.sign(e["b"])),
    ("nested(ev.a, ev.b)", lambda m, e: m.nested(e["a"], e["b"])),
    ("name_of(ev)", lambda m, e: e["name"] if e["other"] is None else e["name"] + "/" + e["other"].upper()),
    ("sum_of(ev)", lambda m, e: sum(2 * p for p in e["parts"])),
    ("own(ev.a) + own(own(ev.b))", lambda m, e: m.own(e["a"]) + m.own(m.own(e["b"]))),
    ("above(ev.a, 10, by=2)", lambda m, e: m.above(e["a"], 10, by=2)),
    ("above(ev.a)", lambda m, e: m.above(e["a"])),
    ("ev.b != 0 and share(ev.a, ev.b) > 1 and sign(ev.a) > 0", lambda m, e: e["b"] != 0 and m.share(e["a"], e["b"]) > 1 and e["a"] > 0),
    ("share(ev.a, ev.b) > 1 or sign(ev.b) > 0 or ev.a == 3", lambda m, e: m.share(e["a"], e["b"]) > 1 or e["b"] > 0 or e["a"] == 3),
    ("share(ev.a, ev.b) if ev.a > 0 else sign(ev.b)", lambda m, e: m.share(e["a"], e["b"]) if e["a"] > 0 else m.sign(e["b"])),
    ("-3 < share(ev.a, ev.b) < sign(ev.a) + 3 < 5", lambda m, e: -3 < m.share(e["a"], e["b"]) < m.sign(e["a"]) + 3 < 5),
    ("share(ev.a, ev.b) in (1, sign(ev.a), 2)", lambda m, e: m.share(e["a"], e["b"]) in (1, m.sign(e["a"]), 2)),
    ("f'{grade(ev.a)}-{share(ev.a, ev.b)}'", lambda m, e: f"{m.grade(e['a'])}-{m.share(e['a'], e['b'])}"),
    ("max(sign(ev.a), share(ev.b, ev.a), ev.a)", lambda m, e: max(m.sign(e["a"]), m.share(e["b"], e["a"]), e["a"])),
]  # fmt: skip


def pairs_of(seed, count=60):
    rng = random.Random(seed)
    number = lambda: rng.choice([0, 1, -1, rng.randrange(-100, 100)])
    return [
        {
            "a": number(),
            "b": number(),
            "name": rng.choice("xyz"),
            "other": rng.choice([None, "o"]),
            "parts": [number() for _ in range(rng.randrange(4))],
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize(("text", "expected"), CALLS, ids=[c[0] for c in CALLS])
def test_values(module, text, expected):
    loaded = module(f"""{HELPERS}
@app.transaction(pairs)
def t(ev):
    return {{"x": {text}}}
""")
    found = loaded.app.collect(loaded.t.committed)
    events = pairs_of(text)
    loaded.app.run({loaded.pairs: events})
    assert [row["x"] for row in found.to_pylist()] == [expected(loaded, e) for e in events]


def test_statements(module):
    loaded = module(f"""{HELPERS}
def put(box, x):
    if x < 0:
        tm.abort("negative")
    box.seen += 1
    if x == 0:
        return
    box.value += x

def taken(box, x):
    tm.require(box.value >= x, "too little")
    box.value -= x
    return box.value

@app.transaction(pairs)
def t(ev, one=boxes.row(lambda e: 1, create=True), two=boxes.row(lambda e: 2, create=True)):
    put(one, ev.a)
    put(box=two, x=double(ev.b))
    for i in range(sign(ev.b)):
        put(one, i + 1)
    if taken(one, 4) > 5 and taken(two, 2) > 5:
        two.value += taken(two, 1)
    low, one.seen = low_and_high(one.seen, 5)
    one.value, two.value = low_and_high(one.value, two.value)
    tm.emit("lows", {{"low": low, "next": total_to(low)}})
    return {{"one": one.value, "two": two.value, "seen": one.seen}}
""")
    rng = random.Random(1)
    events = [
        {**e, "a": abs(e["a"]) % 9 if rng.random() < 0.8 else e["a"], "b": abs(e["b"]) % 2} for e in pairs_of(2, 200)
    ]
    one, two, expected, reasons, lows = [0, 0], [0, 0], [], [], []

    class Aborted(Exception):
        pass

    def put(box, x):
        if x < 0:
            raise Aborted("negative")
        box[1] += 1
        box[0] += x

    def taken(box, x):
        if box[0] < x:
            raise Aborted("too little")
        box[0] -= x
        return box[0]

    for e in events:
        before = [*one], [*two]
        try:
            put(one, e["a"])
            put(two, 2 * e["b"])
            for i in range(loaded.sign(e["b"])):
                put(one, i + 1)
            if taken(one, 4) > 5 and taken(two, 2) > 5:
                held = two[0]
                two[0] = held + taken(two, 1)
            low, one[1] = loaded.low_and_high(one[1], 5)
            one[0], two[0] = loaded.low_and_high(one[0], two[0])
            lows.append({"low": low, "next": loaded.total_to(low)})
            expected.append({"one": one[0], "two": two[0], "seen": one[1]})
        except Aborted as error:
            one, two = before
            reasons.append(str(error))
    assert len(set(reasons)) == 2 and expected
    seen = [loaded.app.collect(s) for s in (loaded.t.committed, loaded.t.aborted, loaded.t.emitted("lows"))]
    loaded.app.run({loaded.pairs: events})
    assert seen[0].to_pylist() == expected
    assert [row["reason"] for row in seen[1].to_pylist()] == reasons
    assert seen[2].to_pylist() == lows


ORDERS = [
    # An operand left of a helper has the value that it had before the helper.
    ("return {'x': box.value + add(box, 5) + box.value}", [10 + 15 + 15]),
    ("box.value += add(box, 5)\nreturn {'x': box.value}", [10 + 15]),
    ("return {'x': box.value, 'y': add(box, 5), 'z': box.value}", [10, 15, 15]),
    ("return {'x': pair(box.value, add(box, 1), box.value)}", [10 * 10000 + 11 * 100 + 11]),
    ("x, y = both(box.value, add(box, 1))\nreturn {'x': x, 'y': y}", [10, 11]),
    ("x = 1\ny = 2\nx, y = both(y, x)\nreturn {'x': x, 'y': y}", [2, 1]),
    ("return {'x': box.value == 10 and add(box, 1) == 11 and box.value == 11}", [True]),
    # Nothing happens on the way not taken.
    ("x = box.value == 11 and add(box, 5) > 0\nreturn {'x': x, 'y': box.value}", [False, 10]),
    ("x = box.value == 10 or add(box, 5) > 0\nreturn {'x': x, 'y': box.value}", [True, 10]),
    ("x = 1 if box.value == 10 else add(box, 5)\nreturn {'x': x, 'y': box.value}", [1, 10]),
    ("x = 20 < box.value < add(box, 5)\nreturn {'x': x, 'y': box.value}", [False, 10]),
    ("x = 5 < add(box, 5) < 20\nreturn {'x': x, 'y': box.value}", [True, 15]),
    # Arguments are evaluated once, before the helper, also where it does not use them.
    (
        "tm.require(ignores(1, 1 // (box.value - 10)) == 1, 'no')\nreturn {'x': 1}",
        "division by zero in 1 // (box.value - 10)",
    ),
    ("x = fails(box) + 1 // (box.value - 10)\nreturn {'x': x}", "failed"),
    ("x = 1 // (box.value - 10) + fails(box)\nreturn {'x': x}", "division by zero in 1 // (box.value - 10)"),
]


@pytest.mark.parametrize(("text", "expected"), ORDERS, ids=[o[0] for o in ORDERS])
def test_order(module, text, expected):
    body = "\n".join(f"    {line}" for line in text.splitlines())
    loaded = module(f"""{HELPERS}
def add(box, n):
    box.value += n
    return box.value

def pair(a, b, c):
    return a * 10000 + b * 100 + c

def both(a, b):
    return a, b

def ignores(a, b):
    return a

def fails(box):
    box.seen += 1
    tm.abort("failed")
    return 1

@app.transaction(pairs)
def t(ev, box=boxes.row("a", create=True)):
    box.value = 10
{body}
""")
    said, aborted = loaded.app.collect(loaded.t.committed), loaded.app.collect(loaded.t.aborted)
    loaded.app.run({loaded.pairs: [{"a": 1, "b": 2, "name": "x", "other": None, "parts": []}]})
    if isinstance(expected, str):
        assert [row["reason"] for row in aborted.to_pylist()] == [expected]
    else:
        assert [list(row.values()) for row in said.to_pylist()] == [expected]


def test_in_filters_maps_and_keys(module):
    loaded = module(f"""{HELPERS}
def twice(x):
    return double(double(x))

def to_key(e):
    return sign_of(e.a)

sign_of = lambda x: -1 if x < 0 else 1

large = pairs.filter(lambda e: above(e.a, 10))
mapped = large.map(lambda e: {{"x": twice(e.a) + LIMIT, "name": name_of(e), "n": len_of(e.parts)}})

def len_of(parts):
    return len(parts)

@app.transaction(pairs)
def t(ev, box=boxes.row(lambda e: to_key(e), create=True)):
    box.value += 1
""".replace("large =", "def len_of(parts):\n    return len(parts)\n\nlarge ="))  # fmt: skip
    found = loaded.app.collect(loaded.mapped)
    events = pairs_of(3)
    loaded.app.run({loaded.pairs: events})
    named = lambda e: e["name"] if e["other"] is None else e["name"] + "/" + e["other"].upper()
    assert found.to_pylist() == [
        {"x": 4 * e["a"] + 100, "name": named(e), "n": len(e["parts"])} for e in events if e["a"] > 10
    ]
    rows = {row["id"]: row["value"] for row in loaded.boxes.to_pylist()}
    assert rows == {-1: sum(e["a"] < 0 for e in events), 1: sum(e["a"] >= 0 for e in events)}


def body_of(loaded):
    return strip(loaded.t._definition["body"])


def test_as_the_plan_has_it(module):
    loaded = module(f"""{HELPERS}
@app.transaction(pairs)
def t(ev, box=boxes.row("a")):
    x = 1
    y = double(x) + double(box.value)
    z = share(ev.a, x)
""")
    value, a, b, result = local("value1"), ev("a"), local("x"), "share_return"
    cell = {"node": {"cell": {"role": "box", "column": "value"}}}
    zero = stmt(assign={"name": result, "value": lit(int=0)})
    shared = stmt(assign={"name": result, "value": binary("floor_div", a, b)})
    assert body_of(loaded)[1:] == [
        # Locals and fields stand for themselves; what may fail or change comes before, what is left of it too.
        stmt(assign={"name": "value1", "value": binary("mul", local("x"), lit(int=2))}),
        stmt(assign={"name": "double2_x", "value": cell}),
        stmt(assign={"name": "y", "value": binary("add", value, binary("mul", local("double2_x"), lit(int=2)))}),
        stmt(**{"if": {"condition": compare("eq", b, lit(int=0)), "then": [zero], "otherwise": [shared]}}),
        stmt(assign={"name": "z", "value": local(result)}),
    ]
    spans = re.findall(r'"line": (\d+)', json.dumps(loaded.t._definition))
    assert max(map(int, spans)) < 1000


def test_helpers_of_windows(module):
    loaded = module(f"""{HELPERS}
def ratio(w):
    return w.a.sum() / w.count()

def named(best):
    return best.name

@app.window(pairs, by="b", over=tm.counting(2))
def t(w):
    best = w.argmax("a")
    return {{"b": w.b, "x": ratio(w), "best": named(best), "least": named(w.argmin("a"))}}
""")
    aggregate = lambda function, value=None, by=None: {
        "node": {
            "aggregate": {"function": function, "value": value and ev(value), "by": by and ev(by), "argument": None}
        }
    }
    fields = dict(body_of(loaded)[0]["node"]["return"]["record"]["fields"])
    assert fields == {
        "b": ev("b"),
        "x": binary("div", aggregate("sum", "a"), aggregate("count")),
        "best": aggregate("arg_max", "name", "a"),
        "least": aggregate("arg_min", "name", "a"),
    }


def test_names_are_apart(module):
    loaded = module(f"""{HELPERS}
def inner_total_of(x):
    x += 1
    return x

def inner(x):
    total = inner_total_of(x)
    for i in range(2):
        total += i
    return total

@app.transaction(pairs)
def t(ev):
    total = 5
    i = 7
    inner_total = 3
    value1 = 4
    x = inner(i) + inner(x=total + value1)
    return {{"total": total, "i": i, "x": x, "mine": inner_total + value1}}
""")
    found = loaded.app.collect(loaded.t.committed)
    loaded.app.run({loaded.pairs: pairs_of(4, 1)})
    assert found.to_pylist() == [{"total": 5, "i": 7, "x": 9 + 11, "mine": 7}]


REFUSED = [
    ("x = again(ev.a)", "return again(x - 1)", "again(x - 1)", "again() calls itself: again -> again (in again(), called at line {t}); write a loop"),
    ("x = odd(ev.a)", "return odd(x - 1)", "odd(x - 1)", "odd() calls itself: odd -> even -> odd (in even(), called at line {h}, in odd(), called at line {t}); write a loop"),
    ("x = power(ev.a)", "x ** 2", "x ** 2", "the operator ** cannot be compiled (in power(), called at line {t}); multiply: x * x; for a float write math.pow(x, y)"),
    ("x = powers(ev.a)", "x ** 2", "x ** 2", "the operator ** cannot be compiled (in power(), called at line {h}, in powers(), called at line {t}); multiply: x * x; for a float write math.pow(x, y)"),
    ("x = double()", "double()", "double()", "double() cannot be called so: missing a required argument: 'x'"),
    ("x = double(1, 2)", "double(1, 2)", "double(1, 2)", "double() cannot be called so: too many positional arguments"),
    ("x = double(y=1)", "double(y=1)", "double(y=1)", "double() cannot be called so: {missing}"),
    ("x = double(*COLORS)", "*COLORS", "*COLORS", "'*' in a call of double cannot be compiled; write the values one by one"),
    ("x = double(**COLORS)", "**COLORS", "COLORS", "'**' in a call of double cannot be compiled; write the values one by one"),
    ("x = many(1, 2)", "def many(*xs)", "xs", "'*xs' cannot be compiled (in many(), called at line {t}); name each parameter"),
    ("x = waits(1)", "waits(1)", "waits(1)", "waits() is 'async', which cannot be compiled; write a plain def"),
    ("x = low_and_high(1, 2)", "low_and_high(1, 2)", "low_and_high(1, 2)", "low_and_high() returns 2 values; write a, b = low_and_high(...)"),
    ("a, b, c = low_and_high(1, 2)", "a, b, c", "a, b, c", "low_and_high() returns 2 values, not 3"),
    ("a, b = double(1)", "a, b", "a, b", "double() returns 1 value, not 2"),
    ("x = nothing(1)", "nothing(1)", "nothing(1)", "nothing() returns no value; write it on a line of its own"),
    ("double(1)", "double(1)", "double(1)", "an expression on its own has no effect; assign it, or leave it out"),
    ("x = partly(1)", "def partly", "def partly(x):", "not every path of partly() returns a value (in partly(), called at line {t}); let each end in a 'return' with a value"),
    ("x = uneven(1)", "return 1", "return 1", "uneven() returns 2 values elsewhere, here 1 (in uneven(), called at line {t}); return as many on each path"),
    ("x = crossed(1, 2)", "return 1", "return 1", "crossed() goes on after this branch (in crossed(), called at line {t}); let the whole branch return, or assign a local and return it at the end"),
    ("x = looped(ev)", "return part", "return part", "a return inside of a loop of looped() (in looped(), called at line {t}); set a local variable and 'break', and return it after the loop"),
    ("x = unknown(1)", "return missing", "missing", "the name 'missing' is not defined (in unknown(), called at line {t}); define it before the function"),
    ("x = random.shuffle(COLORS)", "random", "random.shuffle(COLORS)", "'random.shuffle' would give another value in each run; take it from the event: its time, or a field that the source fills"),
    ("x = textwrap.dedent(ev.name)", "textwrap", "textwrap.dedent(ev.name)", "the function 'textwrap.dedent' cannot be compiled; allowed are abs, min, max, round, len, int, float, str, what tidemill offers, and plain functions of your own"),
    # From the analysis.
    ("x = double(1)\ny = double(ev.other)", "return x * 2", None, "called at line {t2})"),
    ("x = grade(ev.a) + 1", "grade(ev.a) + 1", "grade(ev.a) + 1", "str + int has no meaning, in grade() + 1; write str(1)"),
    ("x = mixed(ev.a)", "return 'a'", None, "called at line {t})"),
]  # fmt: skip

WRONG = """
import textwrap

def again(x):
    return again(x - 1)

def odd(x):
    return even(x)

def even(x):
    return odd(x - 1)

def power(x):
    return x ** 2

def powers(x):
    return power(x)

def many(*xs):
    return 1

async def waits(x):
    return x

def nothing(x):
    tm.require(x > 0, "no")

def partly(x):
    if x > 0:
        return 1

def uneven(x):
    if x > 0:
        return 1, 2
    return 1

def crossed(x, y):
    if x > 0:
        if y > 0:
            return 1
    return 2

def looped(e):
    for part in e.parts:
        if part > 0:
            return part
    return 0

def unknown(x):
    return missing

def mixed(x):
    if x > 0:
        return 1
    return 'a'

@app.transaction(pairs)
def t(ev):
"""


@pytest.mark.parametrize(("text", "line", "marked", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(module, text, line, marked, message):
    body = "\n".join(f"    {line}" for line in text.splitlines())
    with pytest.raises(tm.CompileError) as raised:
        module(HELPERS + WRONG + body + "\n")
    error = raised.value
    first = (HELPERS + WRONG).count("\n") + 1
    lines = [
        i
        for i, of in enumerate((HELPERS + WRONG).splitlines(), 1)
        if of in ("    return even(x)", "    return power(x)")
    ]
    # Python 3.10 to 3.14 do not say this in the same words.
    message = message.replace("{missing}", error.message.partition("so: ")[2])
    places = {"t": first, "t2": first + 1, "h": lines["power" in text] if "odd" in text or "powers" in text else 0}
    message = message.format(**places)
    if marked is None:
        assert message in error.msg
    else:
        assert error.msg == message
        assert error.text[error.offset - 1 : error.end_offset - 1] == marked
    assert line in error.text
    assert not re.search(r"_(return|x)\b", error.msg)
    assert error.place == "transaction 't'"


def test_a_helper_with_statements_is_no_expression(module):
    with pytest.raises(tm.CompileError) as error:
        module(f"{HELPERS}\npairs.filter(lambda e: share(e.a, e.b) > 1)\n")
    assert (
        error.value.msg
        == "share() has statements, which a filter, map or key cannot have; write share() as one 'return', or call it in a transaction"
    )
    with pytest.raises(tm.CompileError) as error:
        module(f"{HELPERS}\ndef deep(x):\n    return share(x, 2)\n\npairs.filter(lambda e: deep(e.a) > 1)\n")
    assert "(in deep(), called at line" in error.value.msg


def test_errors_point_into_the_file_of_the_helper(module, tmp_path):
    module("")
    (tmp_path / "rates_of_mine.py").write_text("def rate(x):\n    return x + 'a'\n")
    with pytest.raises(tm.CompileError) as error:
        module(f"""{HELPERS}
import importlib.util
spec = importlib.util.spec_from_file_location("rates_of_mine", {str(tmp_path / "rates_of_mine.py")!r})
rates = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rates)

@app.transaction(pairs)
def t(ev):
    x = rates.rate(ev.a)
""")
    assert error.value.filename.endswith("rates_of_mine.py")
    assert (error.value.lineno, error.value.text) == (2, "    return x + 'a'\n")
    assert "in rates.rate(), called at line" in error.value.msg


def test_too_many_calls(module):
    chain = "\n".join(f"def f{i + 1}(x):\n    return f{i}(x) + f{i}(x)\n" for i in range(20))
    with pytest.raises(tm.CompileError, match="more than 4095 calls of helpers in one function"):
        module(
            f"{HELPERS}\ndef f0(x):\n    return x\n\n{chain}\n@app.transaction(pairs)\ndef t(ev):\n    x = f20(ev.a)\n"
        )
