"""Bodies, filters, maps and roles as the plan's JSON."""

import json
import sys

import pytest
from conftest import PRELUDE_LINES, TRANSACTION, strip


def lit(**value):
    ((kind, v),) = value.items()
    return {"node": {"literal": {kind: v}}}


def ev(name):
    return {"node": {"event": name}}


def cell(column, role="src"):
    return {"node": {"cell": {"role": role, "column": column}}}


def local(name):
    return {"node": {"local": name}}


def binary(op, left, right):
    return {"node": {"binary": {"op": op, "left": left, "right": right}}}


def compare(op, left, right):
    return {"node": {"compare": {"op": op, "left": left, "right": right}}}


def call(function, *arguments):
    return {"node": {"call": {"function": function, "arguments": list(arguments)}}}


def unary(op, value):
    return {"node": {"unary": {"op": op, "value": value}}}


def element(field, variable="line"):
    return {"node": {"element": {"variable": variable, "field": field}}}


NULL = {"node": {"literal": "null"}}

# An expression of the body, and its plan.
EXPRESSIONS = [
    ("1", lit(int=1)),
    ("-1", lit(int=-1)),
    ("-9223372036854775808", lit(int=-(2**63))),
    ("1.5", lit(float=1.5)),
    ("True", lit(bool=True)),
    ("'a'", lit(str="a")),
    ("b'a\\x00'", lit(bytes=[97, 0])),
    ("LIMIT", lit(int=100)),
    ("-ev.amount", unary("neg", ev("amount"))),
    ("ev.amount + 1", binary("add", ev("amount"), lit(int=1))),
    ("ev.amount - 1 * 2", binary("sub", ev("amount"), binary("mul", lit(int=1), lit(int=2)))),
    ("ev.amount / 2", binary("div", ev("amount"), lit(int=2))),
    ("ev.amount // 2", binary("floor_div", ev("amount"), lit(int=2))),
    ("ev.amount % 2", binary("mod", ev("amount"), lit(int=2))),
    ("src.balance == 1", compare("eq", cell("balance"), lit(int=1))),
    ("src.balance != 1", compare("ne", cell("balance"), lit(int=1))),
    (
        "0 < ev.amount <= 5",
        {"node": {"all": [compare("lt", lit(int=0), ev("amount")), compare("le", ev("amount"), lit(int=5))]}},
    ),
    (
        "not ev.amount > 1 and ev.amount >= 2",
        {
            "node": {
                "all": [unary("not", compare("gt", ev("amount"), lit(int=1))), compare("ge", ev("amount"), lit(int=2))]
            }
        },
    ),
    (
        "src.exists or ev.amount == 1",
        {"node": {"any": [{"node": {"exists": "src"}}, compare("eq", ev("amount"), lit(int=1))]}},
    ),
    (
        "1 if src.exists else 2",
        {"node": {"if_else": {"condition": {"node": {"exists": "src"}}, "then": lit(int=1), "otherwise": lit(int=2)}}},
    ),
    ("src.owner is None", {"node": {"is_null": cell("owner")}}),
    ("src.owner is not None", unary("not", {"node": {"is_null": cell("owner")}})),
    ("ev.amount in (1, LIMIT)", {"node": {"in": {"value": ev("amount"), "options": [lit(int=1), lit(int=100)]}}}),
    ("ev.src not in ['a']", unary("not", {"node": {"in": {"value": ev("src"), "options": [lit(str="a")]}}})),
    ("ev.src in COLORS", {"node": {"in": {"value": ev("src"), "options": [lit(str="red"), lit(str="green")]}}}),
    ("'x' in ev.src", call("contains", ev("src"), lit(str="x"))),
    ("min(ev.amount, 1, 2)", call("min", ev("amount"), lit(int=1), lit(int=2))),
    ("max(ev.amount, 1)", call("max", ev("amount"), lit(int=1))),
    ("abs(ev.amount)", call("abs", ev("amount"))),
    ("round(ev.rate)", call("round", ev("rate"))),
    ("round(ev.price, 1)", call("round", ev("price"), lit(int=1))),
    ("len(ev.src)", call("len", ev("src"))),
    ("len(ev.lines)", {"node": {"length": "lines"}}),
    ("int(ev.rate)", call("int", ev("rate"))),
    ("float(ev.amount)", call("float", ev("amount"))),
    ("str(ev.amount)", call("str", ev("amount"))),
    ("ev.src.lower()", call("lower", ev("src"))),
    ("ev.src.upper()", call("upper", ev("src"))),
    ("ev.src.strip()", call("strip", ev("src"))),
    ("ev.src.startswith('a')", call("starts_with", ev("src"), lit(str="a"))),
    ("ev.src.endswith('a')", call("ends_with", ev("src"), lit(str="a"))),
    ("(ev.at - src.opened).total_seconds()", call("total_seconds", binary("sub", ev("at"), cell("opened")))),
    ("(ev.at - src.opened).total_microseconds()", call("total_microseconds", binary("sub", ev("at"), cell("opened")))),
    ("ev.at.timestamp()", call("total_seconds", ev("at"))),
    ("ev.at + tm.seconds(5)", binary("add", ev("at"), lit(duration=5_000_000))),
    ("ev.at + tm.seconds(0.5)", binary("add", ev("at"), lit(duration=500_000))),
    ("ev.at + tm.minutes(ev.amount)", binary("add", ev("at"), call("minutes", ev("amount")))),
    ("ev.at - timedelta(days=1)", binary("sub", ev("at"), lit(duration=86_400_000_000))),
    ("ev.at > datetime(1970, 1, 2, tzinfo=timezone.utc)", compare("gt", ev("at"), lit(time=86_400_000_000))),
    ("ev.at > tm.Time(1970, 1, 2)", compare("gt", ev("at"), lit(time=86_400_000_000))),
    ("ev.price + tm.Decimal('1.50')", binary("add", ev("price"), call("decimal", lit(str="1.50")))),
    ("ev.price + decimal.Decimal('1.50')", binary("add", ev("price"), call("decimal", lit(str="1.50")))),
    ("tm.Decimal(ev.amount, 2)", call("decimal", ev("amount"), lit(int=2))),
    (
        "f'{ev.src}-{ev.amount}!'",
        binary(
            "add",
            binary("add", binary("add", call("str", ev("src")), lit(str="-")), call("str", ev("amount"))),
            lit(str="!"),
        ),
    ),
    ("f'x'", lit(str="x")),
    ("f'{ev.src!s}'", call("str", ev("src"))),
]


@pytest.mark.parametrize(("text", "plan"), EXPRESSIONS, ids=[e[0] for e in EXPRESSIONS])
def test_expression(body, text, plan):
    (statement,) = strip(body(f"x = {text}")["body"])
    assert statement == {"node": {"assign": {"name": "x", "value": plan}}}


def stmt(**node):
    return {"node": node}


def returned(fields, schema=None, event_time=None):
    return stmt(**{"return": {"record": {"fields": fields, "schema": schema, "event_time": event_time}}})


END = stmt(**{"return": {"record": None}})
STATEMENTS = [
    ("pass", []),
    ("'''A docstring.'''\n...", []),
    (
        "x: int = 1\nx += ev.amount",
        [
            stmt(assign={"name": "x", "value": lit(int=1)}),
            stmt(assign={"name": "x", "value": binary("add", local("x"), ev("amount"))}),
        ],
    ),
    (
        "src.balance -= ev.amount",
        [stmt(set={"role": "src", "column": "balance", "value": binary("sub", cell("balance"), ev("amount"))})],
    ),
    ("src.owner = None", [stmt(set={"role": "src", "column": "owner", "value": NULL})]),
    (
        "if ev.amount > 1:\n    return\nelif src.exists:\n    pass\nelse:\n    tm.abort('no')",
        [
            stmt(
                **{
                    "if": {
                        "condition": compare("gt", ev("amount"), lit(int=1)),
                        "then": [END],
                        "otherwise": [
                            stmt(
                                **{
                                    "if": {
                                        "condition": {"node": {"exists": "src"}},
                                        "then": [],
                                        "otherwise": [stmt(abort={"reason": "no"})],
                                    }
                                }
                            )
                        ],
                    }
                }
            )
        ],
    ),
    (
        "for line in ev.lines:\n    if line.quantity > items.left:\n        break\n    items.left -= line.quantity\n    continue",
        [
            stmt(
                for_each={
                    "variable": "line",
                    "list": "lines",
                    "body": [
                        stmt(
                            **{
                                "if": {
                                    "condition": compare("gt", element("quantity"), cell("left", "items")),
                                    "then": [{"node": "break"}],
                                    "otherwise": [],
                                }
                            }
                        ),
                        stmt(
                            set={
                                "role": "items",
                                "column": "left",
                                "value": binary("sub", cell("left", "items"), element("quantity")),
                            }
                        ),
                        {"node": "continue"},
                    ],
                }
            )
        ],
    ),
    (
        "for i in ev.ids:\n    x = i",
        [
            stmt(
                for_each={
                    "variable": "i",
                    "list": "ids",
                    "body": [stmt(assign={"name": "x", "value": element("", "i")})],
                }
            )
        ],
    ),
    (
        "for i in range(ev.amount):\n    pass\nfor i in range(10, 0, -2):\n    x = i",
        [
            stmt(for_range={"variable": "i", "start": lit(int=0), "stop": ev("amount"), "step": 1, "body": []}),
            stmt(
                for_range={
                    "variable": "i",
                    "start": lit(int=10),
                    "stop": lit(int=0),
                    "step": -2,
                    "body": [stmt(assign={"name": "x", "value": local("i")})],
                }
            ),
        ],
    ),
    (
        "tm.require(src.balance >= ev.amount, 'insufficient funds')",
        [stmt(require={"condition": compare("ge", cell("balance"), ev("amount")), "reason": "insufficient funds"})],
    ),
    (
        "src.insert(balance=1, owner='x')",
        [stmt(insert={"role": "src", "values": [["balance", lit(int=1)], ["owner", lit(str="x")]]})],
    ),
    ("src.delete()", [stmt(delete={"role": "src"})]),
    (
        "tm.emit('notes', {'n': 1})",
        [stmt(emit={"name": "notes", "record": {"fields": [["n", lit(int=1)]], "schema": None, "event_time": None}})],
    ),
    ("return {'at': ev.at, 'lines': ev.lines}", [returned([["at", ev("at")], ["lines", ev("lines")]])]),
    ("return None", [END]),
]


@pytest.mark.parametrize(("text", "plan"), STATEMENTS, ids=[s[0].partition("\n")[0] for s in STATEMENTS])
def test_statement(body, text, plan):
    assert strip(body(text)["body"]) == plan


ALERT = [
    {"name": "at", "type": {"scalar": {"type": "time", "nullable": False}}},
    {"name": "text", "type": {"scalar": {"type": "str", "nullable": False}}},
    {"name": "level", "type": {"scalar": {"type": "int", "nullable": False}}},
]


def test_event_classes(body):
    definition = strip(body("tm.emit(Alert(text='x', at=ev.at))\nreturn Alert(level=1, at=ev.at, text='y')"))
    fields = [["at", ev("at")], ["text", lit(str="x")], ["level", lit(int=3)]]
    assert definition["body"] == [
        stmt(emit={"name": "alerts", "record": {"fields": fields, "schema": ALERT, "event_time": "at"}}),
        returned([["at", ev("at")], ["text", lit(str="y")], ["level", lit(int=1)]], ALERT, "at"),
    ]


def test_roles_and_head(body):
    definition = strip(body("pass"))
    assert (definition["name"], definition["inputs"]) == ("t", [{"named": "transfers"}])
    assert definition["roles"] == [
        {"name": "src", "table": "accounts", "key": [ev("src")], "over": None, "access": "row"},
        {
            "name": "items",
            "table": "stocks",
            "key": [ev("store"), element("item", "lines")],
            "over": "lines",
            "access": "row",
        },
        {"name": "seg", "table": "segments", "key": [ev("src")], "over": None, "access": "row"},
    ]


ROLES = [
    ("accounts.row('src', create=True)", {"access": "create"}),
    ("accounts.read('src')", {"access": "read"}),
    ("accounts.read('src', default=True)", {"access": "read_default"}),
    ("accounts.row('ids')", {"key": [element("", "ids")], "over": "ids"}),
    ("accounts.row(lambda e: e.src.lower())", {"key": [call("lower", ev("src"))]}),
    ("accounts.row(lambda e, i: i.upper(), over='ids')", {"key": [call("upper", element("", "ids"))], "over": "ids"}),
    ("stock.row('store', lambda e: LIMIT)", {"key": [ev("store"), lit(int=100)]}),
]


@pytest.mark.parametrize(("text", "parts"), ROLES, ids=[r[0] for r in ROLES])
def test_role(module, text, parts):
    loaded = module(f"@app.transaction(transfers)\ndef t(ev, *, r={text}):\n    pass\n")
    (role,) = strip(loaded.t._definition["roles"])
    assert {k: role[k] for k in parts} == parts


def test_new(module):
    loaded = module("""
        @app.transaction(transfers)
        def t(ev, made=accounts.new("src", owner="dst", balance=5), more=stock.new("store", "lines.item", left="lines.quantity")):
            made.balance += 1
    """)
    first, second, third = strip(loaded.t._definition["body"])
    assert first == stmt(insert={"role": "made", "values": [["owner", ev("dst")], ["balance", lit(int=5)]]})
    insert = stmt(insert={"role": "more", "values": [["left", element("quantity", "lines")]]})
    assert second == stmt(for_each={"variable": "lines", "list": "lines", "body": [insert]})


def test_spans_are_those_of_the_file(module):
    loaded = module(TRANSACTION + "    x = 1\n    é = 'ü' + ev.src\n    src.owner = é\n")
    head = PRELUDE_LINES + 4
    assignment = loaded.t._definition["body"][1]
    assert assignment["span"] == {"line": head + 1, "column": 4, "end_line": head + 1, "end_column": 20}
    right = assignment["node"]["assign"]["value"]["node"]["binary"]["right"]
    assert right["span"] == {"line": head + 1, "column": 14, "end_line": head + 1, "end_column": 20}
    key = loaded.t._definition["roles"][1]["key"][1]
    assert (key["span"]["line"], key["span"]["column"]) == (head - 1, 60)


def test_constants_are_taken_from_closures_and_attributes(module):
    loaded = module("""
        class Color(enum.Enum):
            RED = "red"

        class Settings:
            limit = 7

        def make(limit):
            local_decimal = tm.Decimal("2.5")
            @app.transaction(transfers)
            def inner(ev):
                a = limit
                b = Color.RED
                c = Color.RED.name
                d = Settings.limit
                e = local_decimal
            return inner

        t = make(9)
    """)
    values = [s["node"]["assign"]["value"] for s in strip(loaded.t._definition["body"])]
    assert values == [lit(int=9), lit(str="red"), lit(str="RED"), lit(int=7), call("decimal", lit(str="2.5"))]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not say where a lambda stands")
def test_lambdas_on_one_line(module):
    loaded = module(
        "small, large = transfers.filter(lambda e: e.amount < 1), transfers.filter(lambda e: e.amount > 1)\n"
    )
    streams = {s["name"]: strip(s["origin"]) for s in json.loads(loaded.app.plan())["streams"]}
    assert streams["transfers_filter"]["filter"]["predicate"] == compare("lt", ev("amount"), lit(int=1))
    assert streams["transfers_filter_2"]["filter"]["predicate"] == compare("gt", ev("amount"), lit(int=1))


def test_filter_and_map(module):
    loaded = module("""
        big = transfers.filter(lambda e: e.amount > LIMIT, name="big")

        def alert(e):
            "An alert."
            return Alert(at=e.at, text=e.src)

        alerts = big.map(alert)
    """)
    streams = {s["name"]: strip(s["origin"]) for s in json.loads(loaded.app.plan())["streams"]}
    assert streams["big"] == {
        "filter": {"input": {"named": "transfers"}, "predicate": compare("gt", ev("amount"), lit(int=100))}
    }
    assert streams["big_map"]["map"]["record"]["fields"] == [
        ["at", ev("at")],
        ["text", ev("src")],
        ["level", lit(int=3)],
    ]
    assert loaded.alerts.failed._ref == {"failed": "big_map"}


def test_streams_between_transactions(module):
    loaded = module("""
        @app.transaction(transfers)
        def first(ev):
            tm.emit(Alert(at=ev.at, text=ev.src))

        @app.transaction(first.emitted(Alert), name="second_one")
        def second(ev, src=accounts.row("text")):
            src.balance += ev.level
    """)
    assert loaded.second._definition["inputs"] == [{"emitted": {"transaction": "first", "name": "alerts"}}]
    assert loaded.second.name == "second_one"
    assert loaded.first.emitted("alerts")._ref == loaded.first.emitted(loaded.Alert)._ref
