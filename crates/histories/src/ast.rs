//! Short names for building plans.

use tidemill_model::{Field, FieldType, ListItem, Schema, Type, Value};
use tidemill_plan::build::PlanBuilder;
use tidemill_plan::{
    AccessDef, Ahead, BinaryOp, CallerFields, ColumnDef, CompareOp, ConditionDef, Direction, Expr, ExprNode, Function,
    OrderDef, OriginDef, Plan, Record, RoleDef, SelectionDef, Stmt, StmtNode, StreamDef, StreamRef, TableDef, TestDef,
    TransactionDef, UnaryOp, WindowDef,
};

/// Returns a decimal of as many digits as there are.
pub fn decimal(scale: u8) -> Type {
    Type::Decimal { digits: 18, scale }
}

pub fn expr(node: ExprNode) -> Expr {
    Expr { node, span: None }
}

pub fn stmt(node: StmtNode) -> Stmt {
    Stmt { node, span: None }
}

pub fn literal(value: Value) -> Expr {
    expr(ExprNode::Literal(value))
}

pub fn int(value: i64) -> Expr {
    literal(Value::Int(value))
}

pub fn text(value: &str) -> Expr {
    literal(Value::Str(value.into()))
}

pub fn local(name: &str) -> Expr {
    expr(ExprNode::Local(name.into()))
}

pub fn event(name: &str) -> Expr {
    expr(ExprNode::Event(name.into()))
}

pub fn element(variable: &str, field: &str) -> Expr {
    expr(ExprNode::Element { variable: variable.into(), field: field.into() })
}

pub fn cell(role: &str, column: &str) -> Expr {
    expr(ExprNode::Cell { role: role.into(), column: column.into() })
}

pub fn exists(role: &str) -> Expr {
    expr(ExprNode::Exists(role.into()))
}

/// Makes `len(role)`, of a role that is all rows of its table.
pub fn row_count(role: &str) -> Expr {
    expr(ExprNode::Rows(role.into()))
}

pub fn for_rows(role: &str, body: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::ForRows { variable: "row".into(), role: role.into(), body })
}

/// Returns a role that is all rows of a table.
pub fn all_rows(name: &str, table: &str) -> RoleDef {
    role(name, table, vec![], AccessDef::All)
}

pub fn unary(op: UnaryOp, value: Expr) -> Expr {
    expr(ExprNode::Unary { op, value: Box::new(value) })
}

pub fn not(value: Expr) -> Expr {
    unary(UnaryOp::Not, value)
}

pub fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    expr(ExprNode::Binary { op, left: Box::new(left), right: Box::new(right) })
}

pub fn add(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Add, left, right)
}

pub fn sub(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Sub, left, right)
}

pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    expr(ExprNode::Compare { op, left: Box::new(left), right: Box::new(right) })
}

pub fn if_else(condition: Expr, then: Expr, otherwise: Expr) -> Expr {
    expr(ExprNode::IfElse { condition: Box::new(condition), then: Box::new(then), otherwise: Box::new(otherwise) })
}

pub fn is_null(value: Expr) -> Expr {
    expr(ExprNode::IsNull(Box::new(value)))
}

pub fn call(function: Function, arguments: impl Into<Vec<Expr>>) -> Expr {
    expr(ExprNode::Call { function, arguments: arguments.into() })
}

pub fn assign(name: &str, value: Expr) -> Stmt {
    stmt(StmtNode::Assign { name: name.into(), value })
}

pub fn set(role: &str, column: &str, value: Expr) -> Stmt {
    stmt(StmtNode::Set { role: role.into(), column: column.into(), value })
}

/// Makes `role.column += value`.
pub fn increase(role: &str, column: &str, value: Expr) -> Stmt {
    set(role, column, add(cell(role, column), value))
}

pub fn when(condition: Expr, then: Vec<Stmt>, otherwise: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::If { condition, then, otherwise })
}

pub fn for_each(variable: &str, list: &str, body: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::ForEach { variable: variable.into(), list: list.into(), body })
}

pub fn for_range(variable: &str, start: Expr, stop: Expr, step: i64, body: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::ForRange { variable: variable.into(), start, stop, step, body })
}

pub fn require(condition: Expr, reason: &str) -> Stmt {
    stmt(StmtNode::Require { condition, reason: reason.into() })
}

pub fn abort(reason: &str) -> Stmt {
    stmt(StmtNode::Abort { reason: reason.into() })
}

pub fn insert(role: &str, values: Vec<(&str, Expr)>) -> Stmt {
    let values = values.into_iter().map(|(c, v)| (c.to_owned(), v)).collect();
    stmt(StmtNode::Insert { role: role.into(), values })
}

pub fn add_to(role: &str, column: &str, value: Expr) -> Stmt {
    stmt(StmtNode::Add { role: role.into(), column: column.into(), value })
}

pub fn delete(role: &str) -> Stmt {
    stmt(StmtNode::Delete { role: role.into() })
}

/// Returns a record whose schema is inferred.
pub fn record(fields: Vec<(&str, Expr)>) -> Record {
    let fields = fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
    Record { fields, schema: None, event_time: None }
}

pub fn emit(name: &str, fields: Vec<(&str, Expr)>) -> Stmt {
    stmt(StmtNode::Emit { name: name.into(), record: record(fields) })
}

pub fn give_back(fields: Vec<(&str, Expr)>) -> Stmt {
    stmt(StmtNode::Return { record: Some(record(fields)) })
}

pub fn key(name: &str, ty: Type) -> ColumnDef {
    ColumnDef { key: true, ..ColumnDef::new(name, ty) }
}

pub fn column(name: &str, ty: Type, default: Value) -> ColumnDef {
    ColumnDef { default: Some(default), ..ColumnDef::new(name, ty) }
}

pub fn windowed(name: &str, value: Type, window: WindowDef) -> ColumnDef {
    ColumnDef { window: Some(window), ..ColumnDef::new(name, value) }
}

pub fn table(name: &str, columns: Vec<ColumnDef>) -> TableDef {
    TableDef::new(name, columns)
}

pub fn role(name: &str, table: &str, key: Vec<Expr>, access: AccessDef) -> RoleDef {
    RoleDef::row(name, table, key, access)
}

pub fn role_over(name: &str, table: &str, key: Vec<Expr>, list: &str, access: AccessDef) -> RoleDef {
    RoleDef { over: Some(list.into()), ..role(name, table, key, access) }
}

pub fn list(name: &str, item: ListItem) -> Field {
    Field { name: name.into(), ty: FieldType::List(item) }
}

pub fn named(name: &str) -> StreamRef {
    StreamRef::Named(name.into())
}

pub fn committed(transaction: &str) -> StreamRef {
    StreamRef::Committed(transaction.into())
}

pub fn aborted(transaction: &str) -> StreamRef {
    StreamRef::Aborted(transaction.into())
}

pub fn emitted(transaction: &str, name: &str) -> StreamRef {
    StreamRef::Emitted { transaction: transaction.into(), name: name.into() }
}

/// Returns a source without event time.
pub fn source(name: &str, schema: Schema) -> StreamDef {
    StreamDef {
        name: name.into(),
        origin: OriginDef::Source {
            schema,
            event_time: None,
            lateness: 0,
            anchored: false,
            remembers: None,
            keys_max: None,
            ahead: Ahead::ByInput,
            caller: CallerFields::default(),
        },
    }
}

pub fn transaction(name: &str, inputs: Vec<StreamRef>, roles: Vec<RoleDef>, body: Vec<Stmt>) -> TransactionDef {
    TransactionDef { name: name.into(), inputs, over: None, join: None, nested: false, derives: false, roles, body }
}

pub fn plan(name: &str, tables: Vec<TableDef>, streams: Vec<StreamDef>, transactions: Vec<TransactionDef>) -> Plan {
    Plan { tables, streams, transactions, ..PlanBuilder::new(name).build() }
}

/// Returns a role that is the rows of a table that pass the conditions, in this order.
pub fn rows_of(name: &str, table: &str, conditions: Vec<ConditionDef>, order: Option<OrderDef>) -> RoleDef {
    RoleDef { selection: SelectionDef { conditions, order }, ..all_rows(name, table) }
}

pub fn same(column: &str, value: Expr) -> ConditionDef {
    ConditionDef { column: column.into(), test: TestDef::Same(value) }
}

pub fn between(column: &str, low: Option<Expr>, high: Option<Expr>) -> ConditionDef {
    ConditionDef { column: column.into(), test: TestDef::Between { low, high } }
}

pub fn first(column: &str, direction: Direction, count: u64) -> Option<OrderDef> {
    Some(OrderDef { column: column.into(), direction, count })
}
