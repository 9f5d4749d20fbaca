"""Windows over streams and ticks as the plan's JSON, and what is refused before the analysis."""

import json
from datetime import timedelta

import pytest
from conftest import strip
from test_translation import binary, call, compare, ev, lit, local, returned, stmt

import tidemill as tm

BIDS = """
class Bid(tm.Event):
    at: tm.Time = tm.event_time()
    auction: int
    bidder: str | None
    price: float
    start: int
    size: int
    page: str
    last: bool

bids = app.source(Bid)
"""


def aggregate(function, value=None, by=None):
    fields = {"value": value and ev(value), "by": by and ev(by), "argument": None}
    return {"node": {"aggregate": {"function": function, **fields}}}


@pytest.fixture
def window(module):
    """The plan's window of a body, with ``w.auction``, ``w.bidder`` and ``w.page``."""

    def compile_window(text, head="by=('auction', 'bidder', 'page'), over=tm.tumbling('10s')"):
        body = "\n".join(f"    {line}" for line in text.splitlines())
        return strip(module(f"{BIDS}\n@app.window(bids, {head})\ndef f(w):\n{body}\n").f._definition)

    return compile_window


WINDOWS = [
    ("tm.tumbling('10s')", {"tumbling": {"length": {"duration": 10_000_000}, "origin": 0}}),
    (
        "tm.tumbling(timedelta(days=1), origin='6h')",
        {"tumbling": {"length": {"duration": 86_400_000_000}, "origin": 21_600_000_000}},
    ),
    (
        "tm.tumbling('1d', origin=timedelta(hours=-6))",
        {"tumbling": {"length": {"duration": 86_400_000_000}, "origin": -21_600_000_000}},
    ),
    ("tm.tumbling(10, origin=-3)", {"tumbling": {"length": {"int": 10}, "origin": -3}}),
    (
        "tm.sliding('10s', every='2s')",
        {"sliding": {"length": {"duration": 10_000_000}, "every": {"duration": 2_000_000}, "origin": 0}},
    ),
    ("tm.sliding(10, every=5, origin=1)", {"sliding": {"length": {"int": 10}, "every": {"int": 5}, "origin": 1}}),
    ("tm.session('10s')", {"session": {"gap": {"duration": 10_000_000}}}),
    ("tm.session(3)", {"session": {"gap": {"int": 3}}}),
    ("tm.counting(100)", {"counting": {"count": 100}}),
]


@pytest.mark.parametrize(("text", "plan"), WINDOWS, ids=[w[0] for w in WINDOWS])
def test_kinds(text, plan):
    over = eval(text, {"tm": tm, "timedelta": timedelta})
    assert over._definition == plan
    assert repr(over) == f"<{next(iter(plan))} windows>"


NO_WINDOWS = [
    ("tm.tumbling('soon')", "a length of tumbling 'soon' is not a duration"),
    ("tm.tumbling(1.5)", "1.5 is not a length; write tm.tumbling('10s'), or an int where the event time is one"),
    ("tm.tumbling(True)", "True is not a length"),
    ("tm.tumbling(0)", "0 is not a length; it is greater than 0, and fits 64 bits"),
    ("tm.tumbling('0s')", "'0s' is not a length"),
    ("tm.session(-1)", "-1 is not a gap"),
    ("tm.tumbling('10s', origin=5)", "5 is not an origin of tumbling; give a text such as '6h', or a timedelta"),
    ("tm.tumbling(10, origin='5s')", "'5s' is not an origin of tumbling; give an int, as the length is"),
    ("tm.sliding('10s', every='2s', origin='soon')", "the origin of sliding 'soon' is not a duration"),
    ("tm.sliding('10s', every=None)", "None is not a slide; write tm.sliding('10s')"),
    ("tm.session(None)", "None is not a gap"),
    ("tm.counting(0)", "0 is not a number of events; write tm.counting(100)"),
    ("tm.counting('5')", "'5' is not a number of events"),
]


@pytest.mark.parametrize(("text", "message"), NO_WINDOWS, ids=[w[0] for w in NO_WINDOWS])
def test_kinds_that_are_none(text, message):
    with pytest.raises(tm.PlanError) as error:
        eval(text)
    assert message in str(error.value)


GROUPS = [
    ("by='auction'", [["auction", ev("auction")]]),
    ("by=('auction', 'bidder')", [["auction", ev("auction")], ["bidder", ev("bidder")]]),
    ("by=['auction']", [["auction", ev("auction")]]),
    ("by=lambda e: e.price > 5.0", [["key", compare("gt", ev("price"), lit(float=5.0))]]),
    ("by=cheap", [["cheap", compare("lt", ev("price"), lit(float=5.0))]]),
    (
        "by={'of': 'auction', 'rest': lambda e: e.auction % LIMIT}",
        [["of", ev("auction")], ["rest", binary("mod", ev("auction"), lit(int=100))]],
    ),
    ("by=None", []),
    ("by=()", []),
]


@pytest.mark.parametrize(("by", "parts"), GROUPS, ids=[g[0] for g in GROUPS])
def test_groups(module, by, parts):
    loaded = module(f"""{BIDS}
def cheap(e):
    return e.price < 5.0

@app.window(bids, {by}, over=tm.counting(3))
def f(w):
    return {{"at": w.end, "n": w.count()}}
""")
    assert strip(loaded.f._definition["over"]) == {
        "by": parts,
        "windows": {"counting": {"count": 3}},
        "early": None,
        "every": None,
        "top": None,
        "first": None,
        "own": [],
    }


NO_GROUPS = [
    ("by='the auction'", "'the auction' is not the name of a field; write by='city'"),
    ("by=('auction', 'auction')", "'auction' is twice in the group; write it once"),
    ("by=('auction', lambda e: 1)", "is not the name of a field; give what is computed a name: by={"),
    ("by=5", "an int does not make groups; write by='city', by=('city', 'street'), or by=lambda e: ..."),
    ("by={'a b': 'auction'}", "'a b' is not a name of a part of the group"),
    ("by={'a': 5}", "5 is not a part of a group"),
    (
        "by='start'",
        "'start' is the start of the window and cannot be a part of the group; give it another name: by={'start_of': 'start'}",
    ),
    ("by={'end': 'auction'}", "'end' is the end of the window and cannot be a part of the group"),
]


@pytest.mark.parametrize(("by", "message"), NO_GROUPS, ids=[g[0] for g in NO_GROUPS])
def test_groups_that_are_none(window, by, message):
    with pytest.raises(tm.PlanError) as error:
        window("pass", f"{by}, over=tm.counting(3)")
    assert message in str(error.value)
    assert error.value.place == "window 'f'"


VALUES = [
    ("w.auction", ev("auction")),
    ("w.start", ev("start")),
    ("w.end", ev("end")),
    ("w.count()", aggregate("count")),
    *[
        (f"w.price.{name}()", aggregate(name, "price"))
        for name in ("count", "sum", "mean", "min", "max", "first", "last")
    ],
    ("w.last.any()", aggregate("any", "last")),
    ("w.last.all()", aggregate("all", "last")),
    ("w.size.distinct()", aggregate("distinct", "size")),
    ("w.start.min()", aggregate("min", "start")),
    ("w.argmax('price').bidder", aggregate("arg_max", "bidder", "price")),
    ("w.argmin('price').price", aggregate("arg_min", "price", "price")),
    ("w.price.sum() / w.count()", binary("div", aggregate("sum", "price"), aggregate("count"))),
    ("max(w.price.sum(), 1.0)", call("max", aggregate("sum", "price"), lit(float=1.0))),
    ("w.bidder is None", {"node": {"is_null": ev("bidder")}}),
    ("w.page.lower()", call("lower", ev("page"))),
    ("w.end + tm.seconds(1)", binary("add", ev("end"), lit(duration=1_000_000))),
    ("f'{w.count()}'", call("str", aggregate("count"))),
    ("LIMIT", lit(int=100)),
]


@pytest.mark.parametrize(("text", "plan"), VALUES, ids=[v[0] for v in VALUES])
def test_values(window, text, plan):
    assert window(f"x = {text}")["body"] == [stmt(assign={"name": "x", "value": plan})]


def test_a_window_is_a_transaction_of_the_plan(window):
    assert window("return {'at': w.end}") == {
        "name": "f",
        "inputs": [{"named": "bids"}],
        "over": {
            "by": [["auction", ev("auction")], ["bidder", ev("bidder")], ["page", ev("page")]],
            "windows": {"tumbling": {"length": {"duration": 10_000_000}, "origin": 0}},
            "early": None,
            "every": None,
            "top": None,
            "first": None,
            "own": [],
        },
        "join": None,
        "nested": False,
        "roles": [],
        "body": [returned([["at", ev("end")]])],
    }


def test_statements(window):
    body = window("n = w.count()\ntm.require(n < LIMIT, 'too many')\nif n > 2:\n    return {'at': w.end, 'n': n}")[
        "body"
    ]
    n = local("n")
    assert body == [
        stmt(assign={"name": "n", "value": aggregate("count")}),
        stmt(require={"condition": compare("lt", n, lit(int=100)), "reason": "too many"}),
        stmt(
            **{
                "if": {
                    "condition": compare("gt", n, lit(int=2)),
                    "then": [returned([["at", ev("end")], ["n", n]])],
                    "otherwise": [],
                }
            }
        ),
    ]


def test_an_event_of_the_window_has_a_name(window):
    body = window(
        "best = w.argmax('price')\nleast: object = w.argmin('price')\nx = best.bidder\ny = least.at\nz = best.start"
    )["body"]
    values = [s["node"]["assign"]["value"] for s in body]
    assert values == [
        aggregate("arg_max", "bidder", "price"),
        aggregate("arg_min", "at", "price"),
        aggregate("arg_max", "start", "price"),
    ]


def test_an_event_is_known_in_its_branch(window):
    (branch,) = window("if w.count() > 1:\n    best = w.argmax('price')\n    x = best.bidder")["body"]
    assert branch["node"]["if"]["then"] == [
        stmt(assign={"name": "x", "value": aggregate("arg_max", "bidder", "price")})
    ]


REFUSED = [
    ("x = w", "w", "the window as a whole is not a value; use its fields: w.name"),
    ("x = w.price", "w.price", "'w.price' has a value for each event of the window; ask for an aggregate, such as w.price.max(); a window has auction, bidder, page, start, end"),
    ("x = w.price + 1.0", "w.price", "'w.price' has a value for each event of the window; ask for an aggregate, such as w.price.max(); a window has auction, bidder, page, start, end"),
    ("x = w.count", "w.count", "'w.count' is an aggregate; call it: w.count()"),
    ("x = w.argmax", "w.argmax", "'w.argmax' is an aggregate; call it: w.argmax(\"price\")"),
    ("x = w.price.sum", "w.price.sum", "'w.price.sum' is an aggregate; call it: w.price.sum()"),
    ("x = w.price.sums()", "w.price.sums()", "'sums' is not an aggregate; did you mean w.price.sum()?"),
    ("x = w.price.avg()", "w.price.avg()", "'avg' is not an aggregate; did you mean w.price.mean()?"),
    ("x = w.price.wild()", "w.price.wild()", "'wild' is not an aggregate; there are count, sum, mean, min, max, first, last, distinct, any, all, variance, stddev, pvariance, pstddev, top, approx_distinct, approx_quantile, approx_count"),
    ("x = w.price.sum(1)", "w.price.sum(1)", "sum takes 0 arguments, not 1"),
    ("x = w.sum('price')", "w.sum('price')", "'sum' is asked of a field; write w.price.sum()"),
    ("x = w.size()", "w.size()", "'size' is not an aggregate; did you mean w.count()?"),
    ("x = w.max_by('price')", "w.max_by('price')", "'max_by' is not an aggregate; did you mean w.argmax(\"price\")?"),
    ("x = w.count('price')", "w.count('price')", "count takes 0 arguments, not 1"),
    ("x = w.auction.max()", "w.auction.max()", "'w.auction' is the same in all events of the group; write w.auction"),
    ("x = w.auction.count()", "w.auction.count()", "'w.auction' is the same in all events of the group; write w.count() for the number of events"),
    ("x = w.argmax('price')\ny = x", "x", "'x' is an event of the window, not a value; take a field: x.name"),
    ("x = 1 + w.argmax('price')", "w.argmax('price')", "'w.argmax('price')' is an event of the window, not a value; take a field: w.argmax('price').name"),
    ("w.argmax('price')", "w.argmax('price')", "'w.argmax('price')' is an event of the window, not a value; take a field: w.argmax('price').name"),
    ("x = w.argmax(w.price)", "w.price", "argmax takes the name of a field; write w.argmax(\"price\")"),
    ("x = w.argmax('price', 'at')", "w.argmax('price', 'at')", "argmax takes 1 argument, not 2"),
    ("best = w.argmax('price')\nbest = w.argmin('price')", "best", "'best' is an event of the window and is assigned more than once; use a name for each event"),
    ("best = w.argmax('price')\nbest = 1", "best", "'best' is an event of the window and is assigned more than once; use a name for each event"),
    ("if w.count() > 1:\n    best = w.argmax('price')\nx = best.at", "best", "'best' may not be assigned here; it was assigned in a branch: assign it before"),
    ("w.count()", "w.count()", "an expression on its own has no effect; assign it, or leave it out"),
    ("w.total = 1", "w.total", "windows cannot be changed; use a local variable, or return a new event"),
    ("w = 1", "w", "'w' is the window and cannot be assigned to; use another name"),
    ("for x in w.price: pass", "w.price", "'w.price' cannot be looped over; loop over range(...)"),
    ("return w", "w", "the window as a whole cannot be passed on; return what is to be known of it: {'at': w.end, ...}"),
    ("tm.emit('a', {'at': w.end})", "tm.emit('a', {'at': w.end})", "a window emits nothing but what its function returns; return the event"),
    ("return w.count()", "w.count()", "'w.count()' is not an event; write a dict {'name': value, ...} or an event class Alert(name=value, ...)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "marked", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(window, text, marked, message):
    with pytest.raises(tm.CompileError) as raised:
        window(text)
    error = raised.value
    assert error.msg == message
    assert error.text[error.offset - 1 : error.end_offset - 1] == marked
    assert error.place == "window 'f'"


FUNCTIONS = [
    ("async def f(w): pass", "'async' cannot be compiled; write a plain def of the window: def f(w): ..."),
    ("def f(): pass", "a function of windows takes the window and nothing else; write 'def f(w): ...'"),
    (
        "def f(w, a=accounts.row('auction')): pass",
        "a function of windows takes the window and nothing else; write 'def f(w): ...'",
    ),
    (
        "def f(w, *rest): pass",
        "'*rest' cannot be compiled; a window has no roles: let a transaction run on what it returns",
    ),
]


@pytest.mark.parametrize(("text", "message"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_functions_that_are_refused(module, text, message):
    with pytest.raises(tm.CompileError) as error:
        module(f"{BIDS}\n@app.window(bids, over=tm.counting(3))\n{text}\n")
    assert message in error.value.msg


def test_a_function_of_the_group_is_an_expression(module):
    with pytest.raises(tm.CompileError, match="a function of a group takes the event and nothing else"):
        module(f"{BIDS}\n@app.window(bids, by=lambda a, b: 1, over=tm.counting(3))\ndef f(w): pass\n")


def test_declarations(module):
    loaded = module(BIDS)
    app, bids = loaded.app, loaded.bids
    for stream, over, message in [
        ("bids", tm.counting(1), "a str is not a stream; write @app.window(bids, over=tm.tumbling('10s'))"),
        (bids, "10s", "a str is not a kind of windows; write over=tm.tumbling('10s')"),
        (tm.App("other").every("1s"), tm.counting(1), "belongs to the application 'other'"),
    ]:
        with pytest.raises(tm.PlanError) as error:
            app.window(stream, over=over)
        assert message in str(error.value)


def test_streams_of_a_window(module):
    loaded = module(f"""{BIDS}
@app.window(bids, by="auction", over=tm.tumbling("10s"), name="heat")
def f(w):
    "How hot it is."
    return {{"at": w.end, "auction": w.auction, "bids": w.count()}}

@app.transaction(f.closed)
def keep(ev, a=accounts.row(lambda e: str(e.auction), create=True)):
    a.balance = ev.bids

app.sink(f.closed, tm.null())
app.collect(f.failed)
""")
    heat = loaded.f
    assert loaded.app.windows == {"heat": heat} and "heat" not in loaded.app.transactions
    assert (heat.closed._ref, heat.failed._ref) == ({"committed": "heat"}, {"aborted": "heat"})
    assert loaded.keep._definition["inputs"] == [{"committed": "heat"}]
    labels = [stream.label for stream in loaded.app.streams()]
    assert {"heat.closed", "heat.failed"} < set(labels)
    assert (repr(heat), heat.__doc__) == ("<window heat>", "How hot it is.")
    with pytest.raises(TypeError, match="window 'heat' is compiled and cannot be called"):
        heat(1)


AGAIN = """
@app.window(bids, over=tm.counting({count}){more})
def f(w):
    return {{"n": w.count()}}
"""


def test_a_window_again(module):
    loaded = module(BIDS + AGAIN.format(count=1, more="") + "first = f\n" + AGAIN.format(count=1, more=""))
    assert loaded.f is loaded.first
    with pytest.raises(tm.PlanError, match="window 'f': it is declared already, and not as here"):
        module(BIDS + AGAIN.format(count=1, more="") + AGAIN.format(count=2, more=""))
    loaded = module(BIDS + AGAIN.format(count=1, more="") + AGAIN.format(count=2, more=", replace=True"))
    assert loaded.f._definition["over"]["windows"] == {"counting": {"count": 2}}
    loaded = module(BIDS + AGAIN.format(count=1, more="") + "@app.transaction(bids, replace=True)\ndef f(ev): pass\n")
    assert not loaded.app.windows and list(loaded.app.transactions) == ["f"]


def every(app):
    streams = json.loads(app.plan())["streams"]
    return {s["name"]: s["origin"]["every"] for s in streams if "every" in s["origin"]}


def test_ticks():
    app = tm.App("ticks")
    minutes = app.every("1m")
    assert app.every(timedelta(minutes=1)) is minutes
    shifted = app.every("1m", origin="5s")
    named = app.every("1h", name="hours")
    assert every(app) == {
        "ticks": {"period": {"duration": 60_000_000}, "origin": 0},
        "ticks_2": {"period": {"duration": 60_000_000}, "origin": 5_000_000},
        "hours": {"period": {"duration": 3_600_000_000}, "origin": 0},
    }
    assert app.streams() == [minutes, shifted, named]
    assert (type(named), repr(named), named._ref) == (tm.Ticks, "<stream hours>", {"named": "hours"})
    numbers = tm.App("numbers")
    numbers.every(10, origin=3)
    assert every(numbers) == {"ticks": {"period": {"int": 10}, "origin": 3}}


def test_ticks_again():
    app = tm.App("ticks")
    ticks = app.every("1m", name="ticks")
    assert app.every("1m", name="ticks") is ticks
    with pytest.raises(tm.PlanError, match="stream 'ticks': it is declared already, and not as here"):
        app.every("2m", name="ticks")
    app.every("2m", name="ticks", replace=True)
    assert every(app) == {"ticks": {"period": {"duration": 120_000_000}, "origin": 0}}


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.every("often"), "a period of every 'often' is not a duration"),
        (lambda app: app.every(0), "0 is not a period"),
        (lambda app: app.every(1.0), "1.0 is not a period; write app.every('1m')"),
        (lambda app: app.every("1m", origin=1), "1 is not an origin of every; give a text such as '6h'"),
        (lambda app: app.every("1m", name="a b"), "'a b' is not a name"),
    ],
)
def test_ticks_that_are_refused(declare, message):
    with pytest.raises(tm.PlanError) as error:
        declare(tm.App("ticks"))
    assert message in str(error.value)
