"""Python records and Arrow data as batches, and frames as Arrow and as dicts."""

import decimal
from datetime import datetime, timedelta, timezone

import pytest

import tidemill as tm
from tidemill.data import batches
from tidemill.schema import schema_of


class Line(tm.Event):
    item: int
    note: str | None


class Everything(tm.Event):
    at: tm.Time = tm.event_time()
    a: int
    b: float
    c: bool
    d: str
    e: bytes
    f: tm.Decimal(6, 2)
    g: int | None
    lines: list[Line]
    ids: list[str]


AT = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone.utc)
GOOD = {
    "at": AT,
    "a": -(2**63),
    "b": 1.5,
    "c": True,
    "d": "é",
    "e": b"\x00",
    "f": decimal.Decimal("12.50"),
    "g": None,
    "lines": [{"item": 1, "note": "x"}, {"item": 2, "note": None}],
    "ids": ["a", "b"],
}


def frames(data, cls=Everything):
    return list(batches(data, schema_of(cls), "here"))


def test_round_trip():
    (frame,) = frames([GOOD, {**GOOD, "at": AT.replace(tzinfo=None), "b": 2, "f": 3, "lines": [], "ids": ["c"]}])
    assert frame.bad == []
    second = {**GOOD, "b": 2.0, "f": decimal.Decimal("3.00"), "lines": [], "ids": ["c"]}
    assert frame.to_pylist() == [GOOD, second]


def test_events_and_times_in_microseconds():
    event = Everything(**{**GOOD, "at": 5, "lines": [Line(item=7)]})
    (frame,) = frames([event])
    (row,) = frame.to_pylist()
    assert row["at"] == datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=5)
    assert row["lines"] == [{"item": 7, "note": None}]


BAD = [
    ({"a": "1"}, "a", "int is wanted, not str"),
    ({"a": 1.0}, "a", "int is wanted, not float"),
    ({"a": True}, "a", "int is wanted, not bool"),
    ({"a": 2**63}, "a", "the integer does not fit 64 bits"),
    ({"a": None}, "a", "int is wanted, not None"),
    ({"b": "x"}, "b", "float is wanted, not str"),
    ({"b": decimal.Decimal(1)}, "b", "float is wanted, not Decimal"),
    ({"c": 1}, "c", "bool is wanted, not int"),
    ({"d": b"x"}, "d", "str is wanted, not bytes"),
    ({"d": "\ud800"}, "d", "the text is not UTF-8"),
    ({"e": "x"}, "e", "bytes is wanted, not str"),
    ({"f": 1.5}, "f", "Decimal(6, 2) is wanted, not float"),
    ({"f": decimal.Decimal("1.234")}, "f", "1.234 does not fit Decimal(6, 2)"),
    ({"f": 10_000}, "f", "10000 does not fit Decimal(6, 2)"),
    ({"at": "2024"}, "at", "Time is wanted, not str"),
    ({"lines": 5}, "lines", "a list is wanted, not int"),
    ({"lines": [5]}, "lines", "an element is int"),
    ({"lines": [{"note": "x"}]}, "lines", "an element's 'item': it is missing"),
    ({"ids": [1]}, "ids", "str is wanted, not int"),
    ({"d": ...}, "d", "the column is missing"),
]


@pytest.mark.parametrize(("change", "column", "reason"), BAD, ids=[r[2] + str(i) for i, r in enumerate(BAD)])
def test_bad_records(change, column, reason):
    (frame,) = frames([GOOD, {**GOOD, **change}, GOOD])
    assert len(frame) == 2
    (bad,) = frame.bad
    assert (bad["origin"], bad["line"], bad["column"], bad["reason"]) == ("here", 2, column, reason)
    assert bad["record"].startswith("{'at': ")


def test_missing_and_defaulted_fields():
    class Small(tm.Event):
        a: int
        b: int = 7
        c: str | None

    (frame,) = frames([{"a": 1}, {"b": 1}], Small)
    assert frame.to_pylist() == [{"a": 1, "b": 7, "c": None}]
    assert [(b["line"], b["column"], b["reason"]) for b in frame.bad] == [(2, "a", "the column is missing")]


def test_lists_are_cut_and_iterators_taken_as_they_come():
    class Small(tm.Event):
        a: int

    records = [{"a": "bad" if i == 15_000 else i} for i in range(20_000)]
    first, *rest = batches(records, schema_of(Small), "here")
    assert len(first) == 8192
    assert [b["line"] for f in rest for b in f.bad] == [15_001]
    assert len(first) + sum(len(f) for f in rest) == 19_999
    taken = []
    (come,) = batches((taken.append(i) or {"a": i} for i in range(3)), schema_of(Small), "here")
    assert len(taken) == 1, "no more than tells what it is"
    assert [len(come.batch([record])) for record in come] == [1, 1, 1]
    assert [b["line"] for b in come.batch([{"a": None}]).bad] == [4]


def test_arrow_passes_through():
    pyarrow = pytest.importorskip("pyarrow")
    batch = pyarrow.record_batch({"a": [1, 2]})
    table = pyarrow.table({"a": [1]})
    assert frames(table) == [table]
    assert [b is batch for b in frames(iter([batch, batch]))] == [True, True]


def test_frames_are_arrow():
    pyarrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    (frame,) = frames([GOOD])
    schema = pyarrow.schema(frame)
    assert schema.field("at").type == pyarrow.timestamp("us", tz="UTC")
    assert schema.field("f").type == pyarrow.decimal128(6, 2)
    assert pyarrow.table(frame).to_pylist() == pyarrow.record_batch(frame).to_pylist() == [GOOD]
    assert polars.DataFrame(frame)["lines"].to_list() == [GOOD["lines"]]


@pytest.mark.parametrize("data", [5, "x.csv", {"a": 1}, None])
def test_what_is_no_data(data):
    with pytest.raises(tm.SchemaError, match="'here' cannot be read from"):
        frames(data)


def test_what_is_no_record():
    with pytest.raises(tm.SchemaError, match="a record is an int; give dicts or instances of the event class"):
        frames([1])
