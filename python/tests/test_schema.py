"""Row and Event classes: what becomes of a class body, and what is refused."""

import decimal
import typing
from datetime import datetime, timezone

import pytest

import tidemill as tm
from tidemill.schema import schema_of


def test_every_type_in_order():
    class Everything(tm.Event):
        at: tm.Time = tm.event_time()
        a: int
        b: float = 1
        c: bool = True
        d: str = "x"
        e: bytes = b"\x00\x01"
        f: tm.Decimal(12, 2) = decimal.Decimal("1.5")
        g: int | None
        h: typing.Optional[str] = "y"

    schema = schema_of(Everything)
    assert schema.event_time == "at"
    assert [(f["name"], f["type"]["scalar"]) for f in schema.to_json()] == [
        ("at", {"type": "time", "nullable": False}),
        ("a", {"type": "int", "nullable": False}),
        ("b", {"type": "float", "nullable": False}),
        ("c", {"type": "bool", "nullable": False}),
        ("d", {"type": "str", "nullable": False}),
        ("e", {"type": "bytes", "nullable": False}),
        ("f", {"type": {"decimal": {"digits": 12, "scale": 2}}, "nullable": False}),
        ("g", {"type": "int", "nullable": True}),
        ("h", {"type": "str", "nullable": True}),
    ]
    assert [f.to_column()["default"] for f in schema.fields] == [
        None,
        None,
        {"float": 1.0},
        {"bool": True},
        {"str": "x"},
        {"bytes": [0, 1]},
        {"decimal": 150},
        "null",
        {"str": "y"},
    ]


def test_decimal_annotations():
    class Priced(tm.Row):
        id: int = tm.key()
        a: tm.Decimal(12, 2) | None
        b: typing.Annotated[decimal.Decimal, tm.Decimal(5, 1)] = decimal.Decimal(0)

    assert [str(f.type) for f in schema_of(Priced).fields] == ["int", "Decimal(12, 2) | None", "Decimal(5, 1)"]


def test_lists():
    class Line(tm.Event):
        item: str
        count: int | None

    class Order(tm.Event):
        lines: list[Line]
        tags: list[str]

    assert [f["type"] for f in schema_of(Order).to_json()] == [
        {
            "list": {
                "struct": [("item", {"type": "str", "nullable": False}), ("count", {"type": "int", "nullable": True})]
            }
        },
        {"list": {"scalar": {"type": "str", "nullable": False}}},
    ]


def test_inheritance_and_class_variables():
    class Base(tm.Row):
        id: str = tm.key()
        version: typing.ClassVar[int] = 3

        def double(self):
            return self.balance * 2

    class Account(Base):
        balance: int = 4

    assert [f.name for f in schema_of(Account).fields] == ["id", "balance"]
    assert schema_of(Account).keys == ("id",)
    assert Account(id="a").double() == 8


def test_text_annotations(module):
    loaded = module(
        """
        from __future__ import annotations
        import tidemill as tm

        class Order(tm.Event):
            at: tm.Time = tm.event_time()
            lines: list[Line]
            price: tm.Decimal(9, 2) | None

        class Line(tm.Event):
            item: str

        def inner():
            class Part(tm.Event):
                n: int
            class Whole(tm.Event):
                parts: list[Part]
            return Whole

        Whole = inner()
        """,
        prelude="",
    )
    types = [str(f.type) for f in schema_of(loaded.Order).fields]
    assert types == ["Time", "list[Line]", "Decimal(9, 2) | None"]
    assert str(schema_of(loaded.Whole).fields[0].type) == "list[Part]"


def test_forward_reference_in_quotes():
    class Order(tm.Event):
        lines: list["tm.Nothing"] if False else "list[tm_missing]"

    with pytest.raises(
        tm.SchemaError, match="an annotation of Order cannot be resolved: name 'tm_missing' is not defined"
    ):
        tm.App("a").source(Order)


def test_instances():
    class Transfer(tm.Event):
        at: tm.Time = tm.event_time()
        src: str
        dst: str | None
        amount: int = 1

    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    one = Transfer(at=at, src="a")
    assert (one.dst, one.amount) == (None, 1)
    assert one == Transfer(at=at, src="a", dst=None, amount=1) != Transfer(at=at, src="b")
    assert repr(Transfer(at=1, src="a")) == "Transfer(at=1, src='a', dst=None, amount=1)"
    with pytest.raises(tm.SchemaError, match=r"Transfer\(\) lacks the field 'src'"):
        Transfer(at=at)
    with pytest.raises(tm.SchemaError, match="Transfer has no field 'x'; it has at, src, dst, amount"):
        Transfer(at=at, src="a", x=1)


ROWS = "int, float, bool, str, bytes, tm.Time, tm.Decimal(digits, scale), and 'X | None' of these"
EVENTS = ROWS + ", list[...] of a scalar or of an event class"
REFUSED = [
    ("Row", "a: complex", f"X.a has the type complex; allowed are {ROWS}, tm.Window[...] of a scalar"),
    ("Event", "a: dict[str, int]", f"X.a has the type dict[str, int]; allowed are {EVENTS}"),
    ("Event", "a: int | str", f"X.a has the type int | str; allowed are {EVENTS}"),
    (
        "Row",
        "a: list[int]",
        "X.a is a list, which rows cannot hold; keep a table with a row per element, or put the list into an event",
    ),
    ("Event", "a: list", "X.a is a list of nothing; write list[int] or list[Line]"),
    ("Event", "a: list[Outer]", None),
    ("Event", "a: int = tm.key()", "X.a is marked as a key, which events do not have; use tm.Row for tables"),
    ("Row", "a: int = tm.event_time()", "X.a is marked as event time, which rows do not have; use tm.Event for events"),
    (
        "Row",
        "a: float = tm.key()",
        "X.a is a key of type float; keys are int, bool, str, bytes, tm.Time or tm.Decimal(...), without None",
    ),
    (
        "Row",
        "a: int | None = tm.key()",
        "X.a is a key of type int | None; keys are int, bool, str, bytes, tm.Time or tm.Decimal(...), without None",
    ),
    (
        "Event",
        "a: str = tm.event_time()",
        "X.a is an event time of type str; event times are tm.Time or int, without None",
    ),
    (
        "Event",
        "a: int = tm.event_time()\n    b: int = tm.event_time()",
        "X has several event times: a, b; mark one of them",
    ),
    ("Row", "a = 0", "X.a has a value but no type; write 'a: int = ...'"),
    ("Row", "a: int = 'x'", "X.a: the default 'x' does not fit int: it is a str"),
    ("Row", "a: int = None", "X.a: the default None does not fit int: it is None"),
    ("Row", "a: int = 2**63", f"X.a: the default {2**63} does not fit int: the integer {2**63} does not fit 64 bits"),
    ("Row", "a: bool = 1", "X.a: the default 1 does not fit bool: it is an int"),
    ("Row", "a: float = float('nan')", "X.a: the default nan does not fit float: the float nan cannot be a constant"),
    (
        "Row",
        "a: tm.Decimal(4, 2) = tm.Decimal('1.234')",
        "X.a: the default Decimal('1.234') does not fit Decimal(4, 2): it has more than 2 digits after the point",
    ),
    ("Row", "a: tm.Decimal(4, 2) = 100", "X.a: the default 100 does not fit Decimal(4, 2): it has more than 4 digits"),
    (
        "Row",
        "a: tm.Decimal(4, 2) = 1.5",
        "X.a: the default 1.5 does not fit Decimal(4, 2): write an int or a tm.Decimal('...')",
    ),
    (
        "Row",
        "a: tm.Decimal(19, 2)",
        "Decimal(19, 2) is not a decimal type; write tm.Decimal(digits, scale) with 1 to 18 digits and scale at most digits",
    ),
    ("Row", "exists: bool", "X.exists has the name of an operation on rows; choose another name"),
    ("Event", "a: list[int] = []", "X.a is a list with a default; lists have none; leave it out"),
    ("Row", "a: str = tm.key(groups=2)", "X.a is a key of type str in 2 groups; an int column has from 2 to 8 groups"),
    ("Row", "a: int = tm.key(groups=9)", "X.a is a key of type int in 9 groups; an int column has from 2 to 8 groups"),
    ("Row", "pass", "X has no fields; annotate some, such as 'amount: int'"),
]


@pytest.mark.parametrize(("base", "fields", "message"), REFUSED, ids=[r[1] for r in REFUSED])
def test_refused(base, fields, message):
    source = f"import tidemill as tm\nclass Inner(tm.Event):\n    x: list[int]\nOuter = Inner\nclass X(tm.{base}):\n    {fields}\n"
    with pytest.raises(tm.SchemaError) as error:
        exec(source, {"__name__": __name__})
    if message is None:
        assert "is a list of" in str(error.value) and "make it a subclass of tm.Event with scalar fields" in str(
            error.value
        )
    else:
        assert str(error.value) == message


def test_body_only():
    class Account(tm.Row):
        id: str = tm.key()

    for use in (lambda a: a.exists, lambda a: a.insert(), lambda a: a.delete()):
        with pytest.raises(tm.SchemaError, match="has a meaning only inside of a transaction body"):
            use(Account(id="a"))
