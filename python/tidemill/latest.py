"""The latest event of each key of a stream, as a table that a transaction of the plan writes."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from . import ir
from .errors import PlanError
from .names import checked
from .schema import FieldSpec, RecordSchema
from .table import Table
from .types import ScalarType

if TYPE_CHECKING:
    from .app import App
    from .stream import Stream

__all__ = ["add_latest"]

_DEFAULTS: dict[str, object] = {
    "bool": False,
    "int": 0,
    "float": 0.0,
    "decimal": decimal.Decimal(0),
    "time": datetime(1970, 1, 1, tzinfo=timezone.utc),
    "str": "",
    "bytes": b"",
}

_ROW = "row"


def add_latest(app: App, stream: Stream[Any], by: object, given_name: str | None, replace: bool) -> Table[Any]:
    """The table; without a name, one that is the same is taken. Raises ``PlanError``."""
    stem = f"latest_{stream.label.replace('.', '_')}"
    name = checked(given_name, "latest") if given_name else app._plan.free_name(stem, "tables", "transactions")
    table = Table[Any](app, name, _schema(app, stream, by, f"table '{name}'"))
    definition, writer = table._definition({}), _writer(name, stream._ref, table._schema)
    among = [name] if given_name else list(app._tables)
    same = next((other for other in among if _is_same(app, other, definition, writer)), None)
    if same is not None:
        return app._tables[same]
    with app._plan.all_or_nothing():
        if replace and name in app._tables:
            # A transaction that writes other columns than there will be does not stand in the way.
            app._plan.add("transactions", {**writer, "roles": [], "body": []}, replace=True)
        app._plan.add("tables", definition, replace=replace)
        app._plan.add("transactions", writer, replace=replace)
    app._forget_transaction(name)
    app._tables[name] = table
    return table


def _is_same(app: App, name: str, definition: ir.TableDef, writer: ir.TransactionDef) -> bool:
    """Returns whether the table of a name is the same, with the transaction of its name."""
    found = app._plan.find("tables", definition, [name])
    own: ir.TransactionDef = {**writer, "roles": [{**role, "table": name} for role in writer["roles"]]}
    return found is not None and app._plan.find("transactions", own, [name]) is not None


def _schema(app: App, stream: Stream[Any], by: object, place: str) -> RecordSchema:
    """The columns: those of the key in the order given, then the other fields of the stream."""
    names: Sequence[object] = list(by) if isinstance(by, (tuple, list)) else [by]
    fields = app._plan.schema(stream._analyzed) or []
    known = {field["name"]: field["type"] for field in fields}
    if not names:
        raise PlanError("no field says of what an event is the latest", "write quotes.latest('pair')", place)
    for key in names:
        if not isinstance(key, str) or key not in known:
            raise PlanError(f"{key!r} is not a field of '{stream.label}'", f"fields are {', '.join(known)}", place)
    columns: list[FieldSpec] = []
    for name in [*dict.fromkeys(str(key) for key in names), *(name for name in known if name not in names)]:
        field = known[name]
        if "list" in field:
            hint = "open it in a transaction before, and keep what that emits"
            raise PlanError(f"'{name}' of '{stream.label}' is a list, which a table does not keep", hint, place)
        column = field["scalar"]
        columns.append(_column(name, column, name in names))
    return RecordSchema(stream.label, tuple(columns))


def _column(name: str, column: ir.ColumnType, key: bool) -> FieldSpec:
    of = column["type"]
    if isinstance(of, str):
        ty = ScalarType(of, nullable=column["nullable"] and not key)
    else:
        digits = of["decimal"]
        ty = ScalarType("decimal", digits["digits"], digits["scale"], column["nullable"] and not key)
    if key:
        return FieldSpec(name, ty, key=True)
    return FieldSpec(name, ty, default=None if ty.nullable else _DEFAULTS[ty.kind])


def _writer(name: str, ref: ir.StreamRef, schema: RecordSchema) -> ir.TransactionDef:
    """The transaction that writes the table."""
    role: ir.RoleDef = {
        "name": _ROW,
        "table": name,
        "key": [_field(key) for key in schema.keys],
        "over": None,
        "access": "create",
    }
    columns = [spec.name for spec in schema.fields if not spec.key]
    body = [_stmt({"set": {"role": _ROW, "column": column, "value": _field(column)}}) for column in columns]
    if not columns:
        missing = _expr({"unary": {"op": "not", "value": _expr({"exists": _ROW})}})
        then = [_stmt({"insert": {"role": _ROW, "values": []}})]
        body = [_stmt({"if": {"condition": missing, "then": then, "otherwise": []}})]
    return {
        "name": name,
        "inputs": [ref],
        "over": None,
        "join": None,
        "nested": False,
        "roles": [role],
        "body": body,
    }


# The place of a statement that nobody wrote: it is in no file.


def _expr(node: ir.ExprNode) -> ir.Expr:
    return cast(ir.Expr, {"node": node})


def _stmt(node: ir.StmtNode) -> ir.Stmt:
    return cast(ir.Stmt, {"node": node})


def _field(name: str) -> ir.Expr:
    return _expr({"event": name})
