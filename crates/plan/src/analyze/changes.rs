//! Streams of what changes in tables, as emissions and transactions.
//!
//! If the changes of the table `seats` are wanted ([`crate::TableDef::changes`]), then
//!
//! - each transaction that writes rows of `seats` emits, as `seats.changes`, each row that it has written: at its end, or in a
//!   loop over the rows at the end of the round; and each row that it deletes, as it deletes it;
//! - the transaction `seats.changes` takes all of these emissions, touches nothing, and passes them on as the stream
//!   `seats.changes`.
//!
//! So an abort takes back what was emitted, as it does all else, and changes come in the order of the law.

use super::fault::{Checked, Fault, check_identifier};
use super::writing::{assign, stmt, when};
use crate::build::{cell, exists, literal, local};
use crate::visit::each_statement;
use crate::{Expr, Plan, PlanError, Record, RoleDef, Stmt, StmtNode, StreamRef, TableDef, TableId, TransactionDef};
use std::borrow::Cow;
use tidemill_model::{ColumnType, Field, Schema, Type, Value};

/// The end of the names of emissions, transactions and streams of changes.
const CHANGES: &str = ".changes";

/// The field that says whether the row is gone.
const DELETED: &str = "deleted";

/// Returns the name of what belongs to the changes of a table.
pub(super) fn name(table: &str) -> String {
    format!("{table}{CHANGES}")
}

/// Returns whether an emission has a name that only those have that are made here.
pub(super) fn is_reserved(name: &str) -> bool {
    name.ends_with(CHANGES)
}

/// Returns the plan with the emissions and transactions that the wanted changes stand for, and the tables of these transactions,
/// which come last.
pub(super) fn expand<'a>(plan: &'a Plan, errors: &mut Vec<PlanError>) -> (Cow<'a, Plan>, Vec<TableId>) {
    plan.transactions.iter().for_each(|transaction| check_names(transaction, errors));
    let wanted: Vec<(usize, &TableDef)> = plan.tables.iter().enumerate().filter(|(_, table)| table.changes).collect();
    if wanted.is_empty() {
        return (Cow::Borrowed(plan), Vec::new());
    }
    let mut of = Vec::new();
    let mut expanded = plan.clone();
    for transaction in &mut expanded.transactions {
        *transaction = emitting(transaction, &wanted);
    }
    for (id, table) in wanted {
        match united(table, &expanded.transactions) {
            Ok(Some(transaction)) => {
                expanded.transactions.push(transaction);
                of.push(TableId::from(id));
            }
            Ok(None) => {}
            Err(fault) => errors.push(fault.of("table", &table.name)),
        }
    }
    (Cow::Owned(expanded), of)
}

/// Refuses emissions with the names of those that are made here.
fn check_names(def: &TransactionDef, errors: &mut Vec<PlanError>) {
    each_statement(&def.body, &mut |statement| {
        if let StmtNode::Emit { name, .. } = &statement.node
            && is_reserved(name)
            && let Err(fault) = check_identifier("emission", name)
        {
            errors.push(fault.of("transaction", &def.name));
        }
    });
}

/// Returns the transaction that passes the changes of a table on; none if no transaction writes it.
fn united(table: &TableDef, transactions: &[TransactionDef]) -> Checked<Option<TransactionDef>> {
    if table.columns.iter().any(|column| column.name == DELETED) {
        return Err(Fault::new(format!("its changes are wanted, and it has a column '{DELETED}', as they have"))
            .hint("give the column another name"));
    }
    let emission = name(&table.name);
    let emits = |transaction: &&TransactionDef| {
        let mut emits = false;
        each_statement(&transaction.body, &mut |statement| {
            emits |= matches!(&statement.node, StmtNode::Emit { name, .. } if *name == emission);
        });
        emits
    };
    let of = |transaction: &TransactionDef| StreamRef::Emitted {
        transaction: transaction.name.clone(),
        name: emission.clone(),
    };
    let inputs: Vec<StreamRef> = transactions.iter().filter(emits).map(of).collect();
    let (roles, body) = (Vec::new(), Vec::new());
    let united =
        TransactionDef { name: emission, inputs, over: None, join: None, nested: false, derives: false, roles, body };
    Ok((!united.inputs.is_empty()).then_some(united))
}

/// Returns the role that a statement writes the row of, if it writes one.
fn written(node: &StmtNode) -> Option<&str> {
    match node {
        StmtNode::Set { role, .. }
        | StmtNode::Add { role, .. }
        | StmtNode::Insert { role, .. }
        | StmtNode::Delete { role }
        | StmtNode::Wake { role, .. } => Some(role),
        _ => None,
    }
}

/// Returns a transaction that emits what it changes in these tables.
fn emitting(def: &TransactionDef, tables: &[(usize, &TableDef)]) -> TransactionDef {
    if def.over.is_some() || def.join.is_some() {
        return def.clone();
    }
    let mut names = Vec::new();
    each_statement(&def.body, &mut |statement| names.extend(written(&statement.node)));
    let roles = def.roles.iter().filter(|role| names.contains(&role.name.as_str()));
    let table_of = |role: &RoleDef| tables.iter().map(|(_, table)| *table).find(|table| table.name == role.table);
    let watched: Vec<Watched<'_>> = roles.filter_map(|role| Some(Watched::new(role, table_of(role)?))).collect();
    if watched.is_empty() {
        return def.clone();
    }
    let of_body = watched.iter().filter(|one| one.role.is_one_row());
    let frame = Frame { is_loop: false, roles: of_body.collect() };
    let mut lowering = Lowering { watched: &watched, frames: vec![frame] };
    let mut body: Vec<Stmt> = watched.iter().map(|one| one.note(false)).collect();
    body.extend(lowering.block(&def.body));
    body.extend(lowering.frames[0].emits());
    TransactionDef { body, ..def.clone() }
}

/// A role whose row's changes are emitted. A local says whether it was written since that was looked at last.
struct Watched<'a> {
    role: &'a RoleDef,
    table: &'a TableDef,
    local: String,
}

impl<'a> Watched<'a> {
    fn new(role: &'a RoleDef, table: &'a TableDef) -> Watched<'a> {
        Watched { role, table, local: format!("__changed_{}", role.name) }
    }

    /// Notes whether the row was written.
    fn note(&self, is_written: bool) -> Stmt {
        assign(&self.local, literal(Value::Bool(is_written)))
    }

    /// Emits the row, or that it is gone.
    fn emit(&self, deleted: bool) -> Stmt {
        let columns = self.table.columns.iter().filter(|column| column.window.is_none());
        let mut schema = Schema::default();
        let mut fields = Vec::new();
        for column in columns {
            let ty = if column.key { column.ty } else { ColumnType::optional(column.ty.ty) };
            schema.fields.push(Field::scalar(&column.name, ty));
            let value = match deleted && !column.key {
                true => literal(Value::Null),
                false => cell(&self.role.name, &column.name),
            };
            fields.push((column.name.clone(), value));
        }
        schema.fields.push(Field::scalar(DELETED, ColumnType::required(Type::Bool)));
        fields.push((DELETED.into(), literal(Value::Bool(deleted))));
        let record = Record { fields, schema: Some(schema), event_time: None };
        stmt(StmtNode::Emit { name: name(&self.table.name), record })
    }

    /// Emits the row if it was written and is there.
    fn emit_written(&self) -> [Stmt; 2] {
        let is_there: Expr = local(&self.local).and(exists(&self.role.name));
        [when(is_there, vec![self.emit(false)]), self.note(false)]
    }
}

/// A body or a loop, and the roles whose row is another one after it.
struct Frame<'a> {
    is_loop: bool,
    roles: Vec<&'a Watched<'a>>,
}

impl Frame<'_> {
    fn emits(&self) -> Vec<Stmt> {
        self.roles.iter().flat_map(|role| role.emit_written()).collect()
    }
}

struct Lowering<'a> {
    watched: &'a [Watched<'a>],
    /// The frames around a statement, innermost last.
    frames: Vec<Frame<'a>>,
}

impl Lowering<'_> {
    fn block(&mut self, body: &[Stmt]) -> Vec<Stmt> {
        body.iter().flat_map(|statement| self.statement(statement)).collect()
    }

    fn statement(&mut self, statement: &Stmt) -> Vec<Stmt> {
        let with = |node| Stmt { node, span: statement.span };
        let mut lowered = Vec::new();
        match &statement.node {
            StmtNode::If { condition, then, otherwise } => {
                let (then, otherwise) = (self.block(then), self.block(otherwise));
                lowered.push(with(StmtNode::If { condition: condition.clone(), then, otherwise }));
            }
            StmtNode::ForEach { variable, list, body } => {
                let body = self.round(&mut lowered, body, |role| role.over.as_ref() == Some(list));
                let (variable, list) = (variable.clone(), list.clone());
                lowered.push(with(StmtNode::ForEach { variable, list, body }));
            }
            StmtNode::ForRows { variable, role, body } => {
                let body = self.round(&mut lowered, body, |of| of.name == *role || of.each.as_ref() == Some(role));
                lowered.push(with(StmtNode::ForRows { variable: variable.clone(), role: role.clone(), body }));
            }
            StmtNode::ForRange { variable, start, stop, step, body } => {
                let body = self.round(&mut lowered, body, |_| false);
                let (variable, start, stop, step) = (variable.clone(), start.clone(), stop.clone(), *step);
                lowered.push(with(StmtNode::ForRange { variable, start, stop, step, body }));
            }
            StmtNode::Break | StmtNode::Continue => {
                // A break outside of a loop is refused later.
                if let Some(frame) = self.frames.last().filter(|frame| frame.is_loop) {
                    lowered.extend(frame.emits());
                }
                lowered.push(statement.clone());
            }
            StmtNode::Return { .. } => {
                lowered.extend(self.frames.iter().rev().flat_map(Frame::emits));
                lowered.push(statement.clone());
            }
            node => {
                let role = written(node).and_then(|name| self.watched.iter().find(|one| one.role.name == name));
                let is_delete = matches!(node, StmtNode::Delete { .. });
                lowered.extend(role.filter(|_| is_delete).map(|role| role.emit(true)));
                lowered.push(statement.clone());
                lowered.extend(role.map(|role| role.note(!is_delete)));
            }
        }
        lowered
    }

    /// Returns the body of a loop in whose rounds these roles have rows of their own. What a loop around it has written
    /// of them comes `before` it.
    fn round(&mut self, before: &mut Vec<Stmt>, body: &[Stmt], is_of: impl Fn(&RoleDef) -> bool) -> Vec<Stmt> {
        let roles: Vec<_> = self.watched.iter().filter(|one| is_of(one.role)).collect();
        let is_within = |one: &&Watched<'_>| self.frames.iter().any(|f| f.roles.iter().any(|r| std::ptr::eq(*r, *one)));
        before.extend(roles.iter().copied().filter(is_within).flat_map(Watched::emit_written));
        self.frames.push(Frame { is_loop: true, roles });
        let mut round = self.block(body);
        let frame = self.frames.pop().expect("it was pushed");
        round.extend(frame.emits());
        round
    }
}

#[cfg(test)]
mod tests {
    use crate::analyze;
    use crate::build::{Block, PlanBuilder, cell, emitted, event, literal, named};
    use tidemill_model::{Type, Value};

    fn refused(body: impl FnOnce(&mut Block)) -> Vec<String> {
        let plan = PlanBuilder::new("stock")
            .table("stock", |t| t.key("id", Type::Int).column_or("left", Type::Int, Value::Int(0)).changes())
            .source("orders", |s| s.field("id", Type::Int))
            .transaction("order", [named("orders")], |t| t.create("row", "stock", [event("id")]).body(body))
            .sink("out", emitted("order", "stock.changes"))
            .build();
        analyze(&plan).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn no_other_emission_has_the_name_of_changes() {
        assert!(refused(|b| b.set("row", "left", cell("row", "left") + 1)).is_empty());
        let both = refused(|b| b.emit("stock.changes", [("id", literal(1))]));
        assert!(both.iter().any(|error| error.contains("'stock.changes'")), "{both:?}");
    }
}
