"""The plan as JSON: the types of its nodes, in the shapes that ``crates/plan/src/plan.rs`` reads and documents.

A variant of an enum is a dict of one key, or a text where it has no content. mypy checks each node that the package
makes against these types, so that a missing, wrong or surplus key is found before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

PLAN_VERSION = 2
"""The format that the native module reads."""

# A place in a source file: lines from 1, columns from 0, in characters.
Span = TypedDict("Span", {"line": int, "column": int, "end_line": int, "end_column": int})

# Values. Decimals are in units of their last digit, times and durations in microseconds.

BoolValue = TypedDict("BoolValue", {"bool": bool})
IntValue = TypedDict("IntValue", {"int": int})
FloatValue = TypedDict("FloatValue", {"float": float})
StrValue = TypedDict("StrValue", {"str": str})
BytesValue = TypedDict("BytesValue", {"bytes": list[int]})
DecimalValue = TypedDict("DecimalValue", {"decimal": int})
TimeValue = TypedDict("TimeValue", {"time": int})
DurationValue = TypedDict("DurationValue", {"duration": int})
_Number = IntValue | FloatValue | DecimalValue
Value = Literal["null"] | BoolValue | _Number | StrValue | BytesValue | TimeValue | DurationValue

# Types and schemas.

DecimalDigits = TypedDict("DecimalDigits", {"digits": int, "scale": int})
DecimalType = TypedDict("DecimalType", {"decimal": DecimalDigits})
Type = str | DecimalType
ColumnType = TypedDict("ColumnType", {"type": Type, "nullable": bool})
ScalarType = TypedDict("ScalarType", {"scalar": ColumnType})
StructItem = TypedDict("StructItem", {"struct": list[tuple[str, ColumnType]]})
ListField = TypedDict("ListField", {"list": ScalarType | StructItem})
Field = TypedDict("Field", {"name": str, "type": ScalarType | ListField})
Schema = list[Field]

# Expressions.

Expr = TypedDict("Expr", {"node": "ExprNode", "span": Span})
SpanPart = TypedDict("SpanPart", {"span": Value})
LastPart = TypedDict("LastPart", {"last": int})
WindowPart = SpanPart | LastPart
Element = TypedDict("Element", {"variable": str, "field": str})
Cell = TypedDict("Cell", {"role": str, "column": str})
Window = TypedDict("Window", {"role": str, "column": str, "part": WindowPart | None, "aggregate": str})
Aggregate = TypedDict("Aggregate", {"function": str, "value": Expr | None, "by": Expr | None, "argument": Expr | None})
Unary = TypedDict("Unary", {"op": Literal["neg", "not"], "value": Expr})
Operands = TypedDict("Operands", {"op": str, "left": Expr, "right": Expr})
IfElse = TypedDict("IfElse", {"condition": Expr, "then": Expr, "otherwise": Expr})
In = TypedDict("In", {"value": Expr, "options": Sequence[Expr]})
Call = TypedDict("Call", {"function": str, "arguments": Sequence[Expr]})

LiteralNode = TypedDict("LiteralNode", {"literal": Value})
LocalNode = TypedDict("LocalNode", {"local": str})
EventNode = TypedDict("EventNode", {"event": str})
ElementNode = TypedDict("ElementNode", {"element": Element})
CellNode = TypedDict("CellNode", {"cell": Cell})
WindowNode = TypedDict("WindowNode", {"window": Window})
AggregateNode = TypedDict("AggregateNode", {"aggregate": Aggregate})
ExistsNode = TypedDict("ExistsNode", {"exists": str})
UnaryNode = TypedDict("UnaryNode", {"unary": Unary})
BinaryNode = TypedDict("BinaryNode", {"binary": Operands})
CompareNode = TypedDict("CompareNode", {"compare": Operands})
AllNode = TypedDict("AllNode", {"all": Sequence[Expr]})
AnyNode = TypedDict("AnyNode", {"any": Sequence[Expr]})
IfElseNode = TypedDict("IfElseNode", {"if_else": IfElse})
IsNullNode = TypedDict("IsNullNode", {"is_null": Expr})
InNode = TypedDict("InNode", {"in": In})
CallNode = TypedDict("CallNode", {"call": Call})
DatePart = TypedDict("DatePart", {"part": str, "zone": "Zone", "time": Expr})
DatePartNode = TypedDict("DatePartNode", {"date_part": DatePart})
PeriodEdge = TypedDict("PeriodEdge", {"edge": Literal["start", "end"], "periods": "Periods", "time": Expr})
PeriodNode = TypedDict("PeriodNode", {"period": PeriodEdge})
Fitted = TypedDict("Fitted", {"value": Expr, "ty": ColumnType, "target": str})
FittedNode = TypedDict("FittedNode", {"fitted": Fitted})
LengthNode = TypedDict("LengthNode", {"length": str})
RowsNode = TypedDict("RowsNode", {"rows": str})
_Name = LocalNode | EventNode | ElementNode | CellNode | WindowNode | AggregateNode | ExistsNode | LengthNode | RowsNode
_Operator = UnaryNode | BinaryNode | CompareNode | AllNode | AnyNode | IfElseNode | IsNullNode | InNode | CallNode
_Of = DatePartNode | PeriodNode | FittedNode
ExprNode = LiteralNode | _Name | _Operator | _Of

Record = TypedDict("Record", {"fields": Sequence[tuple[str, Expr]], "schema": Schema | None, "event_time": str | None})

# Statements.

Stmt = TypedDict("Stmt", {"node": "StmtNode", "span": Span})
Body = Sequence[Stmt]
Assign = TypedDict("Assign", {"name": str, "value": Expr})
ToCell = TypedDict("ToCell", {"role": str, "column": str, "value": Expr})
If = TypedDict("If", {"condition": Expr, "then": Body, "otherwise": Body})
ForEach = TypedDict("ForEach", {"variable": str, "list": str, "body": Body})
ForRows = TypedDict("ForRows", {"variable": str, "role": str, "body": Body})
ForRange = TypedDict("ForRange", {"variable": str, "start": Expr, "stop": Expr, "step": int, "body": Body})
Require = TypedDict("Require", {"condition": Expr, "reason": str})
Abort = TypedDict("Abort", {"reason": str})
Insert = TypedDict("Insert", {"role": str, "values": Sequence[tuple[str, Expr]]})
Delete = TypedDict("Delete", {"role": str})
Wake = TypedDict("Wake", {"role": str, "at": Expr | None})
Emit = TypedDict("Emit", {"name": str, "record": Record})
Return = TypedDict("Return", {"record": Record | None})

AssignNode = TypedDict("AssignNode", {"assign": Assign})
SetNode = TypedDict("SetNode", {"set": ToCell})
AddNode = TypedDict("AddNode", {"add": ToCell})
IfNode = TypedDict("IfNode", {"if": If})
ForEachNode = TypedDict("ForEachNode", {"for_each": ForEach})
ForRowsNode = TypedDict("ForRowsNode", {"for_rows": ForRows})
ForRangeNode = TypedDict("ForRangeNode", {"for_range": ForRange})
RequireNode = TypedDict("RequireNode", {"require": Require})
AbortNode = TypedDict("AbortNode", {"abort": Abort})
InsertNode = TypedDict("InsertNode", {"insert": Insert})
DeleteNode = TypedDict("DeleteNode", {"delete": Delete})
WakeNode = TypedDict("WakeNode", {"wake": Wake})
EmitNode = TypedDict("EmitNode", {"emit": Emit})
ReturnNode = TypedDict("ReturnNode", {"return": Return})
_Store = AssignNode | SetNode | AddNode | InsertNode | DeleteNode | WakeNode
_Flow = IfNode | ForEachNode | ForRowsNode | ForRangeNode | RequireNode | AbortNode | EmitNode | ReturnNode
StmtNode = _Store | _Flow | Literal["break", "continue"]

# Tables.

SpanWindow = TypedDict("SpanWindow", {"span": Value, "slide": Value | None, "distinct": bool})
SpanWindowDef = TypedDict("SpanWindowDef", {"span": SpanWindow})
LastWindowDef = TypedDict("LastWindowDef", {"last": int})
WindowDef = SpanWindowDef | LastWindowDef
ConvertDef = TypedDict("ConvertDef", {"from": ColumnType, "body": list[Stmt], "value": Expr})
PlainColumn = TypedDict(
    "PlainColumn",
    {
        "name": str,
        "type": Type,
        "nullable": bool,
        "key": bool,
        "default": Value | None,
        "was": str | None,
        "convert": ConvertDef | None,
    },
)
WindowColumn = TypedDict(
    "WindowColumn",
    {"name": str, "type": Type, "nullable": bool, "key": bool, "window": WindowDef, "was": str | None},
)
ColumnDef = PlainColumn | WindowColumn
KeyGroupsDef = TypedDict("KeyGroupsDef", {"column": str, "count": int})
ExpireAfter = TypedDict("ExpireAfter", {"after": Value})
ExpireAt = TypedDict("ExpireAt", {"at": str})
TableDef = TypedDict(
    "TableDef",
    {
        "name": str,
        "columns": list[ColumnDef],
        "indexes": list[list[str]],
        "changes": bool,
        "groups": KeyGroupsDef | None,
        "was": str | None,
        "expire": ExpireAfter | ExpireAt | None,
    },
)

# Streams, transactions, sinks.

NamedRef = TypedDict("NamedRef", {"named": str})
CommittedRef = TypedDict("CommittedRef", {"committed": str})
AbortedRef = TypedDict("AbortedRef", {"aborted": str})
Emitted = TypedDict("Emitted", {"transaction": str, "name": str})
EmittedRef = TypedDict("EmittedRef", {"emitted": Emitted})
LateRef = TypedDict("LateRef", {"late": str})
BadRef = TypedDict("BadRef", {"bad": str})
FailedRef = TypedDict("FailedRef", {"failed": str})
WokenRef = TypedDict("WokenRef", {"woken": str})
ChangesRef = TypedDict("ChangesRef", {"changes": str})
ExpiredRef = TypedDict("ExpiredRef", {"expired": str})
_OfTable = WokenRef | ChangesRef | ExpiredRef
StreamRef = NamedRef | CommittedRef | AbortedRef | EmittedRef | LateRef | BadRef | FailedRef | _OfTable

# Calls that may have keys are remembered for so many microseconds, and so many at a time.
Remembers = TypedDict("Remembers", {"remembers": int, "keys_max": int}, total=False)


# Events may be so many microseconds ahead of the clock.
AheadMost = TypedDict("AheadMost", {"most": int})
Ahead = Literal["unbounded"] | AheadMost
MayBeAhead = TypedDict("MayBeAhead", {"ahead": Ahead}, total=False)


# The fields of calls that say who makes them.
CallerFields = TypedDict("CallerFields", {"user": str, "protocol": str}, total=False)
HasCaller = TypedDict("HasCaller", {"caller": CallerFields}, total=False)


class Source(Remembers, MayBeAhead, HasCaller):
    """A source."""

    schema: Schema
    event_time: str | None
    lateness: int
    anchored: bool


Filter = TypedDict("Filter", {"input": StreamRef, "predicate": Expr})
Map = TypedDict("Map", {"input": StreamRef, "record": Record})
Every = TypedDict("Every", {"period": Value, "origin": int})
BatchTime = TypedDict("BatchTime", {"length": Value, "origin": int})
BatchCountDef = TypedDict("BatchCountDef", {"count": int})
BatchTimeDef = TypedDict("BatchTimeDef", {"time": BatchTime})
BatchSize = BatchCountDef | BatchTimeDef
Batch = TypedDict("Batch", {"input": StreamRef, "size": BatchSize})
SourceOrigin = TypedDict("SourceOrigin", {"source": Source})
FilterOrigin = TypedDict("FilterOrigin", {"filter": Filter})
MapOrigin = TypedDict("MapOrigin", {"map": Map})
EveryOrigin = TypedDict("EveryOrigin", {"every": Every})
BatchOrigin = TypedDict("BatchOrigin", {"batch": Batch})
Origin = SourceOrigin | EveryOrigin | BatchOrigin | FilterOrigin | MapOrigin
StreamDef = TypedDict("StreamDef", {"name": str, "origin": Origin})

# Windows over streams.

Tumbling = TypedDict("Tumbling", {"length": Value, "origin": int})
Sliding = TypedDict("Sliding", {"length": Value, "every": Value, "origin": int})
Zone = TypedDict("Zone", {"name": str, "offset": int, "changes": list[tuple[int, int]]})
LocalSpan = TypedDict("LocalSpan", {"length": int, "origin": int})
SpanUnit = TypedDict("SpanUnit", {"span": LocalSpan})
MonthsUnit = TypedDict("MonthsUnit", {"months": int})
Unit = SpanUnit | MonthsUnit
Periods = TypedDict("Periods", {"unit": Unit, "zone": Zone})
Session = TypedDict("Session", {"gap": Value})
Counting = TypedDict("Counting", {"count": int})
TumblingDef = TypedDict("TumblingDef", {"tumbling": Tumbling})
SlidingDef = TypedDict("SlidingDef", {"sliding": Sliding})
CalendarDef = TypedDict("CalendarDef", {"calendar": Periods})
SessionDef = TypedDict("SessionDef", {"session": Session})
CountingDef = TypedDict("CountingDef", {"counting": Counting})
WindowsDef = TumblingDef | SlidingDef | CalendarDef | SessionDef | CountingDef
TopDef = TypedDict("TopDef", {"count": int, "by": Expr, "ties": bool})
OverDef = TypedDict(
    "OverDef",
    {
        "by": list[tuple[str, Expr]],
        "windows": WindowsDef,
        "early": Value | None,
        "every": str | None,
        "top": TopDef | None,
        "first": Value | None,
        "own": list["OwnDef"],
    },
)
OwnDef = TypedDict("OwnDef", {"name": str, "state": list["ColumnDef"], "add": "Body", "merge": "Body | None"})

# Joins.

WithinBound = TypedDict("WithinBound", {"within": Value})
OverBound = TypedDict("OverBound", {"over": WindowsDef})
JoinBound = WithinBound | OverBound
JoinDef = TypedDict(
    "JoinDef", {"left": str, "right": str | None, "on": list[tuple[Expr, Expr]], "bound": JoinBound, "how": str}
)

SameTest = TypedDict("SameTest", {"same": Expr})
Bounds = TypedDict("Bounds", {"low": Expr | None, "high": Expr | None})
BetweenTest = TypedDict("BetweenTest", {"between": Bounds})
ConditionDef = TypedDict("ConditionDef", {"column": str, "test": SameTest | BetweenTest})
OrderDef = TypedDict("OrderDef", {"column": str, "direction": Literal["Ascending", "Descending"], "count": int})
SelectionDef = TypedDict("SelectionDef", {"conditions": list[ConditionDef], "order": OrderDef | None})


class Rows(TypedDict, total=False):
    """The rows of a role that is not one row: which rows it is, or the role with a row for each of its rows."""

    selection: SelectionDef
    each: str


class RoleDef(Rows):
    """A role."""

    name: str
    table: str
    key: list[Expr]
    over: str | None
    access: str


# A filter or map that reads rows is a transaction that nobody calls.
Derives = TypedDict("Derives", {"derives": bool}, total=False)


class TransactionDef(Derives):
    """A transaction."""

    name: str
    inputs: list[StreamRef]
    over: OverDef | None
    join: JoinDef | None
    nested: bool
    roles: list[RoleDef]
    body: Body


SinkDef = TypedDict("SinkDef", {"name": str, "stream": StreamRef})

# The whole.

Definition = TableDef | StreamDef | TransactionDef | SinkDef
Plan = TypedDict(
    "Plan",
    {
        "version": int,
        "name": str,
        "schema_version": int,
        "tables": list[TableDef],
        "streams": list[StreamDef],
        "transactions": list[TransactionDef],
        "sinks": list[SinkDef],
        "retired": list[str],
    },
)
# A fault that the analysis finds: the ``PlanError`` of ``crates/plan``.
Fault = TypedDict("Fault", {"place": str, "message": str, "hint": str, "span": Span | None})


def expr(node: ExprNode, span: Span) -> Expr:
    """An expression with its place."""
    return {"node": node, "span": span}


def stmt(node: StmtNode, span: Span) -> Stmt:
    """A statement with its place."""
    return {"node": node, "span": span}


def literal(value: Value, span: Span) -> Expr:
    """A constant."""
    return expr({"literal": value}, span)


def call(function: str, arguments: list[Expr], span: Span) -> Expr:
    """A built-in function."""
    return expr({"call": {"function": function, "arguments": arguments}}, span)


def unary(op: Literal["neg", "not"], value: Expr, span: Span) -> Expr:
    """``-x`` or ``not x``."""
    return expr({"unary": {"op": op, "value": value}}, span)


def binary(op: str, left: Expr, right: Expr, span: Span) -> Expr:
    """Arithmetic."""
    return expr({"binary": {"op": op, "left": left, "right": right}}, span)


def insert(role: str, values: list[tuple[str, Expr]], span: Span) -> Stmt:
    """Makes a role's row exist."""
    return stmt({"insert": {"role": role, "values": values}}, span)


def for_each(variable: str, list_name: str, body: list[Stmt], span: Span) -> Stmt:
    """A loop over a list field."""
    return stmt({"for_each": {"variable": variable, "list": list_name, "body": body}}, span)


def for_rows(variable: str, role: str, body: list[Stmt], span: Span) -> Stmt:
    """A loop over rows of a table."""
    return stmt({"for_rows": {"variable": variable, "role": role, "body": body}}, span)


def roles_read(node: object) -> Iterator[str]:
    """The roles that an expression, or a part of one, reads the rows of."""
    if isinstance(node, Mapping):
        for kind in ("cell", "window"):
            if isinstance(node.get(kind), Mapping):
                yield node[kind]["role"]
        if isinstance(node.get("exists"), str):
            yield node["exists"]
        node = list(node.values())
    if isinstance(node, list | tuple):
        for part in node:
            yield from roles_read(part)


def constant(value: Expr, kind: Literal["int", "str", "duration"]) -> Any:
    """The content of a constant of a kind; None of any other expression."""
    content = cast(Mapping[str, Any], value["node"]).get("literal")
    return content.get(kind) if isinstance(content, Mapping) else None


def fitted(value: Expr, kind: str, target: str) -> Expr:
    """A value that must have a type, and not be None; ``target`` names it in messages."""
    ty: ColumnType = {"type": kind, "nullable": False}
    return expr({"fitted": {"value": value, "ty": ty, "target": target}}, value["span"])


def kind_of(value: Expr) -> str | None:
    """The type of a constant other than None; None of other expressions."""
    node = cast(Mapping[str, Any], value["node"])
    if "call" in node:
        return "Decimal" if node["call"]["function"] == "decimal" else None
    kind: str | None = next(iter(node["literal"]), None) if isinstance(node.get("literal"), Mapping) else None
    return kind.capitalize() if kind in ("time", "duration") else kind


def name_of(value: Expr, kind: Literal["local", "event"]) -> str | None:
    """The name where an expression is a local, or a field of the event; None of any other."""
    name = cast(Mapping[str, Any], value["node"]).get(kind)
    return name if isinstance(name, str) else None


def emitted_names(body: Body) -> list[str]:
    """The names in a body's ``emit`` statements, in order."""
    names: dict[str, None] = {}
    for statement in body:
        if isinstance(statement["node"], str):
            continue
        ((kind, content),) = cast(Mapping[str, Any], statement["node"]).items()
        if kind == "emit":
            names[content["name"]] = None
        inner = [*content.get("body", []), *content.get("then", []), *content.get("otherwise", [])]
        names.update(dict.fromkeys(emitted_names(inner)))
    return list(names)
