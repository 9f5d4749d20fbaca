"""Tables of HTML for notebooks: small, and with every text escaped.

Notebooks ask an object for ``_repr_html_``. The classes that have it say what is shown, and this module writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from . import ir

__all__ = ["ROWS_MAX", "fields_html", "rows_html", "table_html"]

ROWS_MAX = 20
"""Rows that are shown."""

_TEXT_MAX = 200
"""Characters of one value that are shown."""


def table_html(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """A table with a caption, and a note below it."""
    head = "".join(f"<th>{_shown(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_shown(value)}</td>" for value in row) + "</tr>" for row in rows)
    below = f"<p>{_shown(note)}</p>" if note else ""
    table = f"<table><caption>{_shown(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{table}{below}</div>"


def rows_html(caption: str, rows: Sequence[Mapping[str, Any]], count: int) -> str:
    """The first rows of so many."""
    shown = "" if len(rows) == count else f", the first {len(rows)} of them shown"
    columns = list(rows[0]) if rows else []
    note = f"{count} row{'s' * (count != 1)}{shown}"
    return table_html(caption, columns, ([row[column] for column in columns] for row in rows), note)


def fields_html(caption: str, schema: ir.Schema | None, marks: Mapping[str, str], note: str = "") -> str:
    """Fields and their types. ``marks`` says more of some of them."""
    fields = [(field["name"], _type_text(field), marks.get(field["name"], "")) for field in schema or []]
    return table_html(caption, ("name", "type", ""), fields, note)


def _shown(value: object) -> str:
    text = "None" if value is None else str(value)
    return escape(text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…")


def _type_text(field: ir.Field) -> str:
    ty: Mapping[str, Any] = field["type"]
    if "list" not in ty:
        return _column_text(ty["scalar"])
    item: Mapping[str, Any] = ty["list"]
    if "struct" not in item:
        return f"list[{_column_text(item['scalar'])}]"
    return f"list[{', '.join(f'{name}: {_column_text(column)}' for name, column in item['struct'])}]"


def _column_text(column: ir.ColumnType) -> str:
    ty = column["type"]
    if isinstance(ty, str):
        name = {"time": "Time"}.get(ty, ty)
    else:
        name = f"Decimal({ty['decimal']['digits']}, {ty['decimal']['scale']})"
    return name + (" | None" if column["nullable"] else "")
