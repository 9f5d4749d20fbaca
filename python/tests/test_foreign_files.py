"""Files as other programs write them: each record is an event as it was meant, or bad, and none is lost."""

import gzip
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm

PROGRAM = """
import tidemill as tm

app = tm.App("foreign")

class Record(tm.Event):
    FIELDS

records = app.source(Record, tm.SOURCE)
out = app.collect(records)
bad = app.collect(records.bad)
"""


@pytest.fixture
def read(module, tmp_path, monkeypatch):
    """Reads a source: the events as tuples, and the lines, columns and reasons of what is bad."""
    monkeypatch.chdir(tmp_path)

    def run(source, workers=1, epoch="auto", **fields):
        listed = "\n    ".join(f"{name}: {ty}" for name, ty in fields.items())
        loaded = module(PROGRAM.replace("FIELDS", listed).replace("SOURCE", source), prelude="")
        loaded.app.run(workers=workers, epoch=epoch)
        events = [tuple(row.values()) for row in loaded.out.to_pylist()]
        return events, [(row["line"], row["column"], row["reason"]) for row in loaded.bad.to_pylist()]

    return run


def test_csv_of_spreadsheets(read, tmp_path):
    """A byte order mark, line ends of two characters, quotes over lines, and no line end at the last one."""
    (tmp_path / "a.csv").write_bytes(
        '\ufeff"id",n,note\r\n"1\r\n2",1,"the ""best"""\r\n\r\n3, 2 ,"4,5"\r\n6,3,'.encode()
    )
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress("\ufeffnote,more,id,n\n,x,é,4\n".encode()))
    events, bad = read('csv(["a.csv", "b.csv.gz"])', id="str", n="int", note="str | None")
    assert events == [("1\r\n2", 1, 'the "best"'), ("3", 2, "4,5"), ("6", 3, None), ("é", 4, None)]
    assert bad == []


@pytest.mark.parametrize(("workers", "epoch"), [(1, "auto"), (2, 1)])
def test_an_open_quote_takes_no_other_record_with_it(read, tmp_path, workers, epoch):
    (tmp_path / "a.csv").write_text('id,note\n1,5" wide\n2,"one\nline"\n3,"never closed\n4,plain\n5,good\n')
    events, bad = read('csv("a.csv")', workers, epoch, id="str", note="str")
    assert events == [("1", '5" wide'), ("2", "one\nline"), ("4", "plain"), ("5", "good")]
    assert bad == [(5, None, "a quote is opened and never closed")]


def test_numbers_and_keys_of_json(read, tmp_path):
    lines = [
        ('{"n": 9223372036854775807, "f": -0.0}', (2**63 - 1, -0.0, None)),
        ('{"n": -9223372036854775809}', "n"),
        ('{"n": 1, "f": -1e309}', "f"),
        ('{"n": 1, "n": 3, "s": "a", "s": null}', (3, None, None)),
        ('{"n": 9007199254740993, "other": {"n": [1, {"n": 2}]}, "f": "Infinity"}', (2**53 + 1, float("inf"), None)),
        ('{"n": 4.0}', "n"),
        ('{"n": "4"}', "n"),
        ('{"n": 5, "s": "\\ud83c\\udf0a\\u0000"}', (5, None, "🌊\0")),
        ('{"n": 5, "s": "\\ud83c"}', "s"),
        ('{"n": 6} {"n": 7}', None),
        ("[6]", None),
        ('{"n": 8, "f": 1e-400}', (8, 0.0, None)),
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{line}\n" for line, _ in lines))
    events, bad = read('jsonl("a.jsonl")', n="int", f="float | None", s="str | None")
    assert events == [found for _, found in lines if isinstance(found, tuple)]
    assert [line for line, _, _ in bad] == [
        number for number, (_, found) in enumerate(lines, 1) if not isinstance(found, tuple)
    ]
    named = [
        (column, found)
        for (_, column, _), found in zip(bad, (f for _, f in lines if not isinstance(f, tuple)), strict=True)
    ]
    assert all(column == found for column, found in named if column is not None)


def test_columns_in_any_order_and_of_like_types(read):
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    one = {
        "more": ["x"],
        "at": pa.array([-1], pa.timestamp("ns", "Europe/Berlin")),
        "k": ["a"],
        "n": pa.array([1], pa.uint8()),
    }
    two = {"n": pa.array([2]), "f": pa.array([0.5], pa.float32()), "k": pa.array(["b"]).dictionary_encode()}
    one["f"], two["at"] = pa.array([None], pa.float64()), pa.array([epoch.date()], pa.date32())
    for name, columns in (("a", one), ("b", two)):
        pq.write_table(pa.table(columns), f"{name}.parquet")
    events, bad = read('parquet(["a.parquet", "b.parquet"])', n="int", k="str", f="float | None", at="tm.Time")
    assert events == [(1, "a", None, epoch - timedelta(microseconds=1)), (2, "b", 0.5, epoch)]
    assert bad == []


def test_texts_that_look_alike_are_other_keys():
    class Seen(tm.Event):
        k: str

    class Count(tm.Row):
        k: str = tm.key()
        n: int = 0

    app = tm.App("keys")
    seen, counts = app.source(Seen), app.table(Count)

    @app.transaction(seen)
    def add(ev, row=counts.row("k", create=True)):
        row.n += 1

    texts = ["é", "e\u0301", "é", "a", "a\0", "a\0b", "", " ", "İ", "ı", "ß", "ẞ", "👨\u200d👩\u200d👧"]
    app.run({seen: [{"k": text} for text in texts]}, epoch=3)
    assert {row["k"]: row["n"] for row in counts.to_pylist()} == {text: texts.count(text) for text in texts}


def test_stripped_texts():
    """All characters that are white space to Python, and only these."""
    spaces = [chr(code) for code in range(0x11_0000) if not 0xD800 <= code < 0xE000 and chr(code).isspace()]
    assert len(spaces) >= 29

    class Text(tm.Event):
        s: str

    app = tm.App("strip")
    texts = app.source(Text)
    found = app.collect(texts.map(lambda e: {"s": e.s.strip()}))
    others = ["\u200b", "\ufeff", "\u180e", "\0", "_"]
    app.run({texts: [{"s": f"{one}x{one}"} for one in [*spaces, *others]]})
    assert [row["s"] for row in found.to_pylist()] == ["x"] * len(spaces) + [f"{one}x{one}" for one in others]
