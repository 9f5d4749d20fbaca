"""Views that notebooks show of tables, streams, applications and summaries."""

import pytest

import tidemill as tm
from tidemill.notebook import ROWS_MAX


class Note(tm.Event):
    at: tm.Time = tm.event_time()
    id: int
    text: str | None
    tags: list[str]


class Kept(tm.Row):
    id: int = tm.key()
    text: str | None = None


@pytest.fixture
def app():
    app = tm.App("notes")
    kept, notes = app.table(Kept, name="kept"), app.source(Note)

    @app.transaction(notes)
    def keep(ev, k=kept.row("id", create=True)):
        tm.require(ev.id >= 0, "no <such> note")
        k.text = ev.text

    return app


def notes(count):
    return [{"at": n, "id": n, "text": "<b>&amp;</b>", "tags": []} for n in range(count)]


def html(value):
    text = value._repr_html_()
    assert text.startswith("<div><table>") and text.endswith("</div>")
    assert text.count("<table>") == 1 and "<b>" not in text and "<such>" not in text
    return text


def test_a_table_shows_its_columns_and_after_a_run_its_first_rows(app):
    table = app.tables["kept"]
    assert "<td>text</td><td>str | None</td>" in html(table)
    app.run({"notes": notes(50)})
    text = html(table)
    assert text.count("<tr>") == 1 + ROWS_MAX
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in text
    assert "50 rows, the first 20 of them shown" in text


def test_a_stream_shows_its_fields(app):
    text = html(app.sources["notes"])
    assert "<td>at</td><td>Time</td><td>event time</td>" in text
    assert "<td>tags</td><td>list[str]</td>" in text
    aborted = html(app.transactions["keep"].aborted)
    assert "<td>reason</td><td>str</td>" in aborted


def test_what_is_collected_shows_rows(app):
    aborted = app.collect(app.transactions["keep"].aborted)
    assert "no rows before app.run()" in html(aborted)
    app.run({"notes": [{"at": 0, "id": -1, "text": "x" * 1000, "tags": ["a"]}]})
    text = html(aborted)
    assert "1 row<" in text and "no &lt;such&gt; note" in text
    assert "x" * 200 + "…" in text and "x" * 201 not in text


def test_an_application_shows_its_declarations(app):
    text = html(app)
    assert "<td>table</td><td>kept</td>" in text
    assert "<td>source</td><td>notes</td>" in text
    assert "<td>transaction</td><td>keep</td>" in text


def test_a_summary_shows_what_was_done(app):
    text = html(app.run({"notes": [*notes(1234), {"at": 2000, "id": -1, "text": None, "tags": []}]}))
    assert "<td>events of notes</td><td>1,235</td>" in text
    assert "<td>keep: committed</td><td>1,234</td>" in text
    assert "<td>aborted: no &lt;such&gt; note</td><td>1</td>" in text


def test_a_session_shows_tables_and_queries(app):
    with app.start() as mill:
        mill.send("notes", notes(30))
        text = html(mill.table("kept"))
        assert text.count("<tr>") == 1 + ROWS_MAX and "30 rows" in text
        pytest.importorskip("duckdb")
        answer = html(mill.sql("select id from kept order by id"))
        assert answer.count("<tr>") == 1 + ROWS_MAX and "30 rows" in answer
        assert "0 rows" in html(mill.sql("select id from kept where id < 0"))
