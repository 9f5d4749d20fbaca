//! Rows that ask to be woken, as tables and transactions.
//!
//! If a transaction wakes rows of the table `seats`, there are
//!
//! | what | of |
//! |---|---|
//! | table `seats.wakes` | the rows that wait, by the key of `seats`: when each is due |
//! | stream `seats.woken` | the rows that wake: their keys, and the time ([`crate::Due`]) |
//! | transaction `seats.woken` | `seats.woken`: takes the row out of `seats.wakes`, before all others |
//!
//! Each role whose row is woken, or deleted, comes with a role of `seats.wakes` that has the same key. So an abort undoes a
//! wake as it undoes all else.

use super::fault::{Checked, Fault};
use super::position::{self, PositionTime};
use super::reasons::no_row;
use super::setting::{self, time};
use super::streams::{NewStream, Streams, Unresolved};
use super::tables::enter_hidden;
use super::writing::{column, stmt, when};
use crate::build::{event, exists};
use crate::{
    AccessDef, BinaryOp, Bound, Due, DueField, Expr, ExprNode, Function, Operator, OperatorKind, Origin, Plan,
    PlanError, Role, RoleDef, Stmt, StmtNode, StreamId, StreamPart, StreamRef, Table, TableDef, TableId, TablePart,
    Transaction, TransactionDef, TransactionId, TransactionPart,
};
use std::borrow::Cow;
use tidemill_model::{Field, Schema, Type, Value};
use typed_index_collections::{TiSlice, TiVec};

/// The end of the names of hidden roles, each of the row that says when another role's row wakes.
const WAITS: &str = "__wakes";

/// The tables whose rows are woken.
pub(super) struct Wakes {
    of: Vec<Waking>,
    /// Tables of which it was said already that their rows cannot be woken.
    refused: Vec<String>,
}

struct Waking {
    table: String,
    stream: StreamId,
    /// The least distance of a wake from the position that asks for it, in the unit of the time; at least 1.
    after: Option<i64>,
}

impl Wakes {
    /// Enters the tables and streams, and gives the transactions, which come before all others.
    pub fn enter(
        plan: &Plan,
        streams: &mut Streams<'_>,
        all: &mut TiVec<TableId, Table>,
        errors: &mut Vec<PlanError>,
    ) -> (Wakes, Vec<Transaction>) {
        let (mut of, mut refused, mut typed) = (Vec::new(), Vec::new(), Vec::new());
        for (number, def) in waking(plan).into_iter().enumerate() {
            match enter(def, time(plan), number.into(), streams, all) {
                Ok((stream, transaction)) => {
                    of.push(Waking { table: def.name.clone(), stream, after: None });
                    typed.push(transaction);
                }
                Err(why) => {
                    refused.push(def.name.clone());
                    if let Unresolved::Wrong(fault) = why {
                        errors.push(fault.of("table", &def.name));
                    }
                }
            }
        }
        (Wakes { of, refused }, typed)
    }

    /// Returns the transaction with the roles and statements that wakes stand for.
    pub fn lower<'a>(
        &mut self,
        def: &'a TransactionDef,
        streams: &Streams<'_>,
        transactions: &TiSlice<TransactionId, Option<Transaction>>,
    ) -> Result<Cow<'a, TransactionDef>, Unresolved> {
        if let Some(role) = def.roles.iter().find(|role| role.name.ends_with(WAITS)) {
            let of = Fault::new(format!("the role '{}' has a name of hidden roles", role.name));
            return Err(of.hint(format!("end it otherwise than in '{WAITS}'")).into());
        }
        if woken_by(def).iter().any(|table| self.refused.iter().any(|refused| refused == table)) {
            return Err(Unresolved::Broken);
        }
        let is_waking = |role: &&RoleDef| self.of.iter().any(|waking| waking.table == role.table);
        let mut touched = Vec::new();
        each(&def.body, &mut |node| {
            if let StmtNode::Wake { role, .. } | StmtNode::Delete { role } = node {
                touched.push(role.clone());
            }
        });
        let roles: Vec<RoleDef> =
            def.roles.iter().filter(is_waking).filter(|role| touched.contains(&role.name)).cloned().collect();
        if roles.is_empty() {
            return Ok(Cow::Borrowed(def));
        }
        if let Some(role) = roles.iter().find(|role| role.access == AccessDef::All) {
            let RoleDef { name, table, .. } = role;
            let what = format!("rows of '{table}' ask to be woken, so those of '{name}' are neither woken nor deleted");
            return Err(Fault::new(what)
                .hint(format!("name the row by its key, in a role of its own: {table}.row(…)"))
                .into());
        }
        let now = Now::of(def, streams, transactions);
        if let Some(now) = &now {
            self.note(def, now);
        }
        let body = block(&def.body, &roles, now.as_ref())?;
        let hidden = roles.iter().map(|role| RoleDef {
            name: waits(&role.name),
            table: TablePart::Wakes.named(&role.table),
            access: AccessDef::Create,
            ..role.clone()
        });
        let roles = def.roles.iter().cloned().chain(hidden).collect();
        Ok(Cow::Owned(TransactionDef { roles, body, ..def.clone() }))
    }

    /// Notes how early a transaction wakes rows.
    fn note(&mut self, def: &TransactionDef, now: &Now) {
        each(&def.body, &mut |node| {
            let StmtNode::Wake { role, at: Some(at) } = node else { return };
            let Some(role) = def.roles.iter().find(|of| of.name == *role) else { return };
            let Some(waking) = self.of.iter_mut().find(|waking| waking.table == role.table) else { return };
            let after = now.until(at).unwrap_or(1).max(1);
            waking.after = Some(waking.after.map_or(after, |least| least.min(after)));
        });
    }

    /// Has the streams know how early rows are due.
    pub fn settle(self, streams: &mut Streams<'_>) {
        for Waking { stream, after, .. } in self.of {
            if let Origin::Due(due) = &mut streams.list[stream].origin {
                due.bound = Bound::Wakes { after: after.unwrap_or(1) };
            }
        }
    }
}

/// The time of the positions of what a transaction runs on.
pub(super) struct Now {
    /// The field of its events that holds it.
    field: String,
    /// The number that is added to that.
    shift: i64,
    /// `Time` or `Int`.
    ty: Type,
}

impl Now {
    /// None if the events of the inputs do not all hold it in one field.
    pub fn of(
        def: &TransactionDef,
        streams: &Streams<'_>,
        transactions: &TiSlice<TransactionId, Option<Transaction>>,
    ) -> Option<Now> {
        let mut times = def.inputs.iter().map(|input| {
            let stream = streams.input(input).ok()?;
            let PositionTime { field, shift } = position::time(&streams.list, transactions, stream)?;
            let of = &streams.list[stream].schema.fields[field];
            Some((of.name.clone(), shift, of.scalar_type()?.ty))
        });
        let first = times.next()??;
        let is_common = times.all(|other| other.as_ref() == Some(&first));
        let (field, shift, ty) = first;
        is_common.then_some(Now { field, shift, ty })
    }

    /// Returns the distance of a later time, if that is the field and a constant.
    pub fn until(&self, at: &Expr) -> Option<i64> {
        let is_field = |expr: &Expr| matches!(&expr.node, ExprNode::Event(name) if *name == self.field);
        let constant = |expr: &Expr| match expr.node {
            ExprNode::Literal(Value::Int(by) | Value::Duration(by)) => Some(by),
            _ => None,
        };
        let by = match &at.node {
            _ if is_field(at) => 0,
            ExprNode::Binary { op: BinaryOp::Add, left, right } if is_field(left) => constant(right)?,
            ExprNode::Binary { op: BinaryOp::Add, left, right } if is_field(right) => constant(left)?,
            _ => return None,
        };
        by.checked_sub(self.shift)
    }

    /// Returns the time at which a row wakes that asks for a time: not before the next instant.
    pub fn wakes(&self, at: &Expr) -> Expr {
        if self.until(at).is_some_and(|after| after > 0) {
            return at.clone();
        }
        Expr { span: at.span, ..at.clone().call(Function::Max, [self.later(1)]) }
    }

    /// Returns the time so long after it.
    pub fn later(&self, length: i64) -> Expr {
        // Beyond the last of all times the sum aborts the transaction in any case.
        let by = length.saturating_add(self.shift);
        let by = if self.ty == Type::Int { Value::Int(by) } else { Value::Duration(by) };
        if by.word() == Some(0) { event(&self.field) } else { event(&self.field) + Expr::from(by) }
    }
}

/// Returns the tables of which a transaction wakes rows, in the order of their declaration.
fn waking(plan: &Plan) -> Vec<&TableDef> {
    let names: Vec<&str> = plan.transactions.iter().flat_map(woken_by).collect();
    plan.tables.iter().filter(|table| names.contains(&table.name.as_str())).collect()
}

/// Returns the tables of which one transaction wakes rows.
fn woken_by(def: &TransactionDef) -> Vec<&str> {
    let mut names = Vec::new();
    each(&def.body, &mut |node| {
        if let StmtNode::Wake { role, .. } = node {
            names.extend(def.roles.iter().find(|of| of.name == *role).map(|of| of.table.as_str()));
        }
    });
    names
}

fn enter(
    def: &TableDef,
    time: Option<Type>,
    id: TransactionId,
    streams: &mut Streams<'_>,
    all: &mut TiVec<TableId, Table>,
) -> Result<(StreamId, Transaction), Unresolved> {
    let Some(time) = time else {
        return Err(Fault::new("its rows are woken, but no source has an event time")
            .hint("declare the event time of every source")
            .into());
    };
    let keys: Vec<_> = def.columns.iter().filter(|column| column.key).collect();
    if keys.iter().any(|key| key.name == "at") {
        return Err(Fault::new("its rows are woken, and a column of its key is called 'at', as the time of a wake")
            .hint("give the column another name")
            .into());
    }
    let mut columns: Vec<_> = keys.iter().map(|key| column(&format!("by_{}", key.name), key.ty, true, None)).collect();
    columns.push(column(setting::column(time), Type::Int, false, Some(Value::Int(0))));
    let lowered = streams.lower(&def.name);
    let of = all.position(|table| table.name == def.name).expect("it was entered");
    let table = enter_hidden(columns, lowered, TablePart::Wakes, all)?;
    streams.operators.push(Operator {
        name: def.name.clone(),
        kind: OperatorKind::Wakes(of),
        inputs: Vec::new(),
        time: Some(time),
        definition: None,
    });

    let mut schema = Schema { fields: keys.iter().map(|key| Field::scalar(&key.name, key.ty)).collect() };
    schema.fields.push(Field::scalar("at", time.into()));
    let mut fields: Vec<_> = (0..keys.len()).map(|column| DueField::Part { column, none: None }).collect();
    fields.push(DueField::End);
    let at = keys.len();
    let due = Due { table, due: at, first: at, fields, bound: Bound::Wakes { after: 1 }, time };
    let name = format!("{}.woken", def.name);
    let (origin, owner) = (Origin::Due(due), lowered.owner(StreamPart::Woken));
    let new = NewStream { name: name.clone(), schema, event_time: Some(at), origin, root: None, owner };
    let stream = streams.add(StreamRef::Woken(def.name.clone()), new);

    let key = keys.iter().map(|key| event(&key.name)).collect();
    let role = RoleDef::row("row", TablePart::Wakes.named(&def.name), key, AccessDef::Row);
    let def = TransactionDef {
        name,
        inputs: vec![StreamRef::Woken(lowered.name.to_owned())],
        over: None,
        join: None,
        nested: false,
        derives: false,
        roles: vec![role],
        body: vec![stmt(StmtNode::Delete { role: "row".into() })],
    };
    let wake = super::transaction(&def, id, streams, all, None)?;
    Ok((stream, streams.own(wake, lowered, TransactionPart::Wake)))
}

/// Returns the name of the hidden role of the row that says when a role's row wakes.
fn waits(role: &str) -> String {
    format!("{role}{WAITS}")
}

/// Has the hidden roles of a transaction know the roles that they belong to.
pub(super) fn pair(roles: &mut [Role]) {
    let of: Vec<_> = roles.iter().map(|role| roles.iter().position(|other| waits(&other.name) == role.name)).collect();
    roles.iter_mut().zip(of).for_each(|(role, of)| role.wakes = of);
}

fn block(body: &[Stmt], roles: &[RoleDef], now: Option<&Now>) -> Checked<Vec<Stmt>> {
    let mut lowered = Vec::new();
    for statement in body {
        lowered.extend(self::lowered(statement, roles, now).map_err(|fault| fault.at(statement.span))?);
    }
    Ok(lowered)
}

fn lowered(statement: &Stmt, roles: &[RoleDef], now: Option<&Now>) -> Checked<Vec<Stmt>> {
    let with = |node| Stmt { node, span: statement.span };
    let role_of = |name: &String| roles.iter().find(|role| role.name == *name);
    let cancel = |role: &str| with(when(exists(waits(role)), vec![with(StmtNode::Delete { role: waits(role) })]).node);
    let block = |body: &[Stmt]| block(body, roles, now);
    Ok(match &statement.node {
        StmtNode::Wake { role: name, at } => {
            let Some(role) = role_of(name).filter(|role| matches!(role.access, AccessDef::Row | AccessDef::Create))
            else {
                return Ok(vec![statement.clone()]);
            };
            let creates = role.access == AccessDef::Create;
            let mut statements = Vec::new();
            if !creates {
                let reason = no_row(&role.table, name);
                statements.push(with(StmtNode::Require { condition: exists(name), reason }));
            } else if at.is_some() {
                let insert = with(StmtNode::Insert { role: name.clone(), values: Vec::new() });
                statements.push(with(when(!exists(name), vec![insert]).node));
            }
            statements.push(match at {
                Some(at) => {
                    let now = now.ok_or_else(no_time)?;
                    with(StmtNode::Wake { role: waits(name), at: Some(now.wakes(at)) })
                }
                None => cancel(name),
            });
            statements
        }
        StmtNode::Delete { role } if role_of(role).is_some() => vec![statement.clone(), cancel(role)],
        StmtNode::If { condition, then, otherwise } => {
            vec![with(StmtNode::If { condition: condition.clone(), then: block(then)?, otherwise: block(otherwise)? })]
        }
        StmtNode::ForEach { variable, list, body } => {
            vec![with(StmtNode::ForEach { variable: variable.clone(), list: list.clone(), body: block(body)? })]
        }
        StmtNode::ForRows { variable, role, body } => {
            let (variable, role) = (variable.clone(), role.clone());
            vec![with(StmtNode::ForRows { variable, role, body: block(body)? })]
        }
        StmtNode::ForRange { variable, start, stop, step, body } => vec![with(StmtNode::ForRange {
            variable: variable.clone(),
            start: start.clone(),
            stop: stop.clone(),
            step: *step,
            body: block(body)?,
        })],
        _ => vec![statement.clone()],
    })
}

fn no_time() -> Fault {
    Fault::new("it wakes rows, but its events do not hold the time of their position")
        .hint("pass the event time on as it is, in one field of all inputs")
}

fn each(body: &[Stmt], visit: &mut dyn FnMut(&StmtNode)) {
    for statement in body {
        visit(&statement.node);
        statement.blocks().into_iter().for_each(|block| each(block, visit));
    }
}
