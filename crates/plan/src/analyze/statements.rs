//! Typing of a transaction's statements.

use super::changes;
use super::coerce::constant;
use super::fault::{Checked, Fault, check_identifier, check_unique};
use super::records::Outputs;
use super::scope::{ActiveLoop, Scope};
use super::setting::{is_due, setting};
use crate::program::{Expr as Typed, Node, Stmt as TypedStmt};
use crate::visit::reachable;
use crate::{Expr, ExprNode, Function, LocalId, LoopId, ReasonId, Record, RoleId, Stmt, StmtNode};
use tidemill_model::{ColumnType, Type, Value};

/// Returns the name of the local with the number of the row at hand, of a role that is all rows of its table. No local
/// of a body has such a name.
pub(super) fn row_number(role: &str) -> String {
    format!("{role}.number")
}

/// The state of a pass over the statements of a body.
pub(super) struct Body<'b, 'a> {
    pub scope: &'b mut Scope<'a>,
    pub outputs: &'b mut Outputs,
    /// The list field of each loop so far.
    pub loops: Vec<usize>,
    /// Loops around the statement at hand, of both kinds.
    depth: usize,
}

impl<'b, 'a> Body<'b, 'a> {
    /// Makes a pass that starts at the top.
    pub fn new(scope: &'b mut Scope<'a>, outputs: &'b mut Outputs) -> Self {
        scope.restart();
        Body { scope, outputs, loops: Vec::new(), depth: 0 }
    }

    /// Returns the statements of a block that can be reached.
    pub fn block(&mut self, block: &[Stmt]) -> Checked<Vec<TypedStmt>> {
        reachable(block).iter().map(|s| self.statement(s).map_err(|fault| fault.at(s.span))).collect()
    }

    fn statement(&mut self, statement: &Stmt) -> Checked<TypedStmt> {
        Ok(match &statement.node {
            StmtNode::Assign { name, value } => self.assign(name, value)?,
            StmtNode::Set { role, column, value } => self.set(role, column, value)?,
            StmtNode::Add { role, column, value } => self.add(role, column, value)?,
            StmtNode::If { condition, then, otherwise } => TypedStmt::If {
                condition: self.scope.condition(condition)?,
                then: self.block(then)?,
                otherwise: self.block(otherwise)?,
            },
            StmtNode::ForEach { variable, list, body } => self.for_each(variable, list, body)?,
            StmtNode::ForRange { variable, start, stop, step, body } => {
                self.for_range(variable, [start, stop], *step, body)?
            }
            StmtNode::ForRows { variable, role, body } => {
                check_identifier("loop variable", variable)?;
                self.for_rows(role, body)?
            }
            StmtNode::Break | StmtNode::Continue if self.depth == 0 => {
                return Err(Fault::new("break or continue outside a loop"));
            }
            StmtNode::Break => TypedStmt::Break,
            StmtNode::Continue => TypedStmt::Continue,
            StmtNode::Require { condition, reason } => {
                TypedStmt::Require { condition: self.scope.condition(condition)?, reason: self.reason(reason)? }
            }
            StmtNode::Abort { reason } => TypedStmt::Abort { reason: self.reason(reason)? },
            StmtNode::Insert { role, values } => self.insert(role, values)?,
            StmtNode::Delete { role } => self.delete(role)?,
            StmtNode::Wake { role, at } => self.wake(role, at.as_ref())?,
            StmtNode::Emit { name, record } => self.emit(name, record)?,
            StmtNode::Return { record: None } => TypedStmt::Return { fields: None },
            StmtNode::Return { record: Some(record) } => {
                TypedStmt::Return { fields: Some(self.outputs.record(self.scope, None, record)?) }
            }
        })
    }

    fn reason(&mut self, text: &str) -> Checked<ReasonId> {
        if text.trim().is_empty() {
            return Err(Fault::new("the reason is empty").hint("say why, as in \"insufficient funds\""));
        }
        Ok(self.scope.reasons.id(text))
    }

    fn local(&self, name: &str) -> (LocalId, ColumnType) {
        let locals = &self.scope.locals;
        let id = locals.iter().position(|l| l.name == name).expect("locals were collected from this body");
        (id, locals[id].ty.unwrap_or(ColumnType::optional(Type::Null)))
    }

    fn assign(&mut self, name: &str, value: &Expr) -> Checked<TypedStmt> {
        check_identifier("local", name)?;
        let typed = self.scope.expression(value)?;
        let (local, ty) = self.local(name);
        if ty.ty == Type::Null {
            return Err(Fault::new(format!("local '{name}' is never anything but None")));
        }
        let value = self.scope.store(typed, ty, value, &format!("local '{name}'"))?;
        Ok(TypedStmt::Assign { local, value })
    }

    /// Returns a role that is about to be written.
    fn written(&mut self, name: &str) -> Checked<(RoleId, Option<LoopId>)> {
        let (role, element) = self.scope.role(name)?;
        if !self.scope.roles[role].writable() {
            let table = &self.scope.table(role).name;
            return Err(
                Fault::new(format!("role '{name}' is only read")).hint(format!("declare it with {table}.row(…)"))
            );
        }
        self.scope.usage[role].written = true;
        Ok((role, element))
    }

    fn set(&mut self, name: &str, column_name: &str, value: &Expr) -> Checked<TypedStmt> {
        let (role, element) = self.written(name)?;
        let column = self.scope.column(role, column_name)?;
        if self.scope.table(role).key.contains(&column) {
            return Err(Fault::new(format!("{name}.{column_name} is part of the key and cannot be set"))
                .hint("delete the row and insert one with the other key"));
        }
        let value = self.cell_value(role, column, value)?;
        Ok(self.setting(role, element, column, value))
    }

    fn setting(&mut self, role: RoleId, element: Option<LoopId>, column: usize, value: Typed) -> TypedStmt {
        self.scope.usage[role].writes.insert(column);
        self.scope.no_key(role);
        if !self.scope.roles[role].create() {
            self.scope.no_row(role);
        }
        TypedStmt::Set { role, element, column, value }
    }

    fn add(&mut self, name: &str, column_name: &str, value: &Expr) -> Checked<TypedStmt> {
        let (role, element) = self.written(name)?;
        let column = self.scope.column(role, column_name)?;
        let value = self.scope.window_with(role, element, column, value)?;
        Ok(self.setting(role, element, column, value))
    }

    /// Returns a value for a column of a role's row.
    fn cell_value(&mut self, role: RoleId, column: usize, value: &Expr) -> Checked<Typed> {
        let typed = self.scope.expression(value)?;
        let column = &self.scope.table(role).columns[column];
        let target = format!("{}.{}", self.scope.roles[role].name, column.name);
        // Windows of records may be set: all records are dropped at once.
        if column.window.is_some_and(|window| !window.is_of_records()) {
            return Err(Fault::new(format!("{target} is a window and cannot be set"))
                .hint(format!("add a value: {target}.add(value)")));
        }
        self.scope.store(typed, column.ty, value, &target)
    }

    fn insert(&mut self, name: &str, values: &[(String, Expr)]) -> Checked<TypedStmt> {
        let (role, element) = self.written(name)?;
        if self.scope.roles[role].is_scan() {
            let table = &self.scope.table(role).name;
            return Err(Fault::new(format!("the rows of '{name}' are there already"))
                .hint(format!("name a new row by its key, in a role of its own: {table}.row(…)")));
        }
        check_unique("column", values.iter().map(|(n, _)| n.as_str()))?;
        let table = self.scope.table(role);
        let mut given = Vec::new();
        for (column_name, value) in values {
            let column = self.scope.column(role, column_name)?;
            if table.key.contains(&column) {
                return Err(Fault::new(format!("{name}.{column_name} is part of the key, which the role gives"))
                    .hint(format!("leave out {column_name}")));
            }
            given.push((column, self.cell_value(role, column, value)?));
        }
        for (index, column) in table.columns.iter().enumerate() {
            if table.key.contains(&index) || given.iter().any(|(c, _)| *c == index) {
                continue;
            }
            let Some(default) = &column.default else {
                return Err(Fault::new(format!("column '{}' has no default and must be given", column.name)));
            };
            let ty = ColumnType { ty: column.ty.ty, nullable: default.is_null() };
            given.push((index, constant(ty, default.clone())));
        }
        self.scope.no_key(role);
        self.scope.row_exists(role);
        Ok(TypedStmt::Insert { role, element, values: given })
    }

    fn delete(&mut self, name: &str) -> Checked<TypedStmt> {
        let (role, element) = self.written(name)?;
        self.scope.no_key(role);
        self.scope.no_row(role);
        Ok(TypedStmt::Delete { role, element })
    }

    /// Types a wake. `name` is the role of the row that says when to wake ([`super::wakes`]), or one that cannot be
    /// written.
    fn wake(&mut self, name: &str, at: Option<&Expr>) -> Checked<TypedStmt> {
        let (role, _) = self.written(name)?;
        let column = self.scope.table(role).columns.iter().map(|column| column.name.clone()).find(|c| is_due(c));
        let (Some(column), Some(at)) = (column, at) else { unreachable!("a row that is written can be woken") };
        // `at` may be the later of what is asked for and the next instant.
        let asked = match &at.node {
            ExprNode::Call { function: Function::Max, arguments } => &arguments[0],
            _ => at,
        };
        let ty = self.scope.expression(asked)?.ty;
        let units = setting(at, ty, &column)?;
        self.set(name, &column, &units)
    }

    fn for_each(&mut self, variable: &str, list: &str, body: &[Stmt]) -> Checked<TypedStmt> {
        check_identifier("loop variable", variable)?;
        let (field, _) = self.scope.open_list(list)?;
        if self.scope.loops.iter().any(|l| l.variable == variable) {
            return Err(Fault::new(format!("'{variable}' is the variable of a loop around this one already")));
        }
        let loop_id = self.loops.len();
        self.loops.push(field);
        self.scope.loops.push(ActiveLoop { variable: variable.into(), field, id: loop_id });
        self.depth += 1;
        let body = self.block(body)?;
        self.depth -= 1;
        self.scope.loops.pop();
        Ok(TypedStmt::ForEach { loop_id, body })
    }

    fn for_range(&mut self, variable: &str, bounds: [&Expr; 2], step: i64, body: &[Stmt]) -> Checked<TypedStmt> {
        check_identifier("loop variable", variable)?;
        if step == 0 {
            return Err(Fault::new("the step of a range is zero"));
        }
        let [start, stop] = bounds;
        let (start, stop) = (self.bound(start)?, self.bound(stop)?);
        let (local, ty) = self.local(variable);
        if ty != Type::Int.into() {
            return Err(Fault::new(format!("'{variable}' counts a range but is {ty} elsewhere"))
                .hint("use another name for one of them"));
        }
        self.depth += 1;
        let body = self.block(body)?;
        self.depth -= 1;
        Ok(TypedStmt::ForRange { local, start, stop, step, body })
    }

    /// Returns a loop over the numbers of the rows, which passes over those that are gone.
    fn for_rows(&mut self, name: &str, body: &[Stmt]) -> Checked<TypedStmt> {
        let role = self.scope.scan(name)?;
        if self.scope.scanned.contains(&role) {
            return Err(Fault::new(format!("a loop around this one goes over the rows of '{name}' already"))
                .hint("declare another role for the inner loop"));
        }
        let (local, _) = self.local(&row_number(name));
        self.scope.scanned.push(role);
        self.depth += 1;
        let then = self.block(body)?;
        self.depth -= 1;
        self.scope.scanned.pop();
        let condition = Typed { ty: Type::Bool.into(), node: Node::Exists { role, element: None } };
        let body = vec![TypedStmt::If { condition, then, otherwise: Vec::new() }];
        let start = Typed { ty: Type::Int.into(), node: Node::Const(Value::Int(0)) };
        let stop = Typed { ty: Type::Int.into(), node: Node::Rows { role } };
        Ok(TypedStmt::ForRange { local, start, stop, step: 1, body })
    }

    fn bound(&mut self, bound: &Expr) -> Checked<Typed> {
        let value = self.scope.operand(bound)?;
        match value.ty.ty {
            Type::Int => Ok(value),
            other => Err(Fault::new(format!("a range goes over ints, but {bound} is {other}")).at(bound.span)),
        }
    }

    fn emit(&mut self, name: &str, record: &Record) -> Checked<TypedStmt> {
        if !changes::is_reserved(name) {
            check_identifier("emission", name)?;
        }
        let fields = self.outputs.record(self.scope, Some(name), record)?;
        Ok(TypedStmt::Emit { output: self.outputs.emit_index(name), fields })
    }
}
