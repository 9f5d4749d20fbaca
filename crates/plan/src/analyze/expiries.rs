//! The times at which rows expire: the streams of those that are due, and the statements that set the column ([`super::expire`]).

use super::expire::{GONE_AT, gone};
use super::fault::{Checked, Fault};
use super::parts::Lowered;
use super::setting::time;
use super::streams::{NewStream, Streams, Unresolved};
use super::wakes::Now;
use super::writing::{set, when};
use crate::build::{cell, exists, if_else, none};
use crate::{
    AccessDef, Bound, Due, DueField, Expire, Expr, ExprNode, Operator, OperatorKind, Origin, Plan, RoleDef, Stmt,
    StmtNode, StreamId, StreamPart, StreamRef, Table, TableDef, TableId, Transaction, TransactionDef, TransactionId,
};
use std::borrow::Cow;
use tidemill_model::{Field, Schema, Value};
use typed_index_collections::TiSlice;

/// The tables whose rows expire.
pub(super) struct Expiries<'a> {
    of: Vec<Expiry<'a>>,
}

struct Expiry<'a> {
    operator: Lowered<'a>,
    table: &'a TableDef,
    expire: &'a Expire,
    stream: StreamId,
    /// No row is due earlier than so long after the position that writes it; at least 1.
    after: Option<i64>,
}

impl<'a> Expiries<'a> {
    /// Enters the streams of rows whose time has come.
    pub fn enter(plan: &'a Plan, streams: &mut Streams<'_>, tables: &TiSlice<TableId, Table>) -> Expiries<'a> {
        let mut of = Vec::new();
        for (table, def) in tables.keys().zip(&plan.tables) {
            let Some(expire) = &def.expire else { continue };
            let columns = &tables[table].columns;
            let due = columns.iter().position(|column| column.name == GONE_AT).expect("it was declared");
            let time = columns[due].ty.ty;
            let keys = &tables[table].key;
            let fields = keys.iter().map(|&key| Field::scalar(&columns[key].name, columns[key].ty));
            let mut schema = Schema { fields: fields.collect() };
            schema.fields.push(Field::scalar(GONE_AT, time.into()));
            let mut fields: Vec<_> = keys.iter().map(|&column| DueField::Part { column, none: None }).collect();
            fields.push(DueField::End);
            let event_time = Some(keys.len());
            let due = Due { table, due, first: due, fields, bound: Bound::Wakes { after: 1 }, time };
            let lowered = streams.lower(&def.name);
            streams.operators.push(Operator {
                name: def.name.clone(),
                kind: OperatorKind::Expiry(table),
                inputs: Vec::new(),
                time: Some(time),
                definition: None,
            });
            let (name, origin, owner) = (gone(&def.name), Origin::Due(due), lowered.owner(StreamPart::Gone));
            let new = NewStream { name: name.clone(), schema, event_time, origin, root: None, owner };
            let stream = streams.add(StreamRef::Named(name), new);
            of.push(Expiry { operator: lowered, table: def, expire, stream, after: None });
        }
        Expiries { of }
    }

    /// Returns the operators, in the order of their tables.
    pub fn operators(&self) -> impl Iterator<Item = Lowered<'a>> {
        self.of.iter().map(|expiry| expiry.operator)
    }

    /// Returns the transaction with the statements that set when the rows that it writes are gone.
    pub fn lower<'d>(
        &mut self,
        def: Cow<'d, TransactionDef>,
        streams: &Streams<'_>,
        transactions: &TiSlice<TransactionId, Option<Transaction>>,
    ) -> Result<Cow<'d, TransactionDef>, Unresolved> {
        let expires = |role: &RoleDef| self.of.iter().any(|one| one.table.name == role.table);
        if !def.roles.iter().any(expires) {
            return Ok(def);
        }
        let now = Now::of(&def, streams, transactions);
        let has_time = time(streams.plan()).is_some();
        let mut lowering = Lowering { expiries: self, def: &def, now: now.as_ref(), has_time };
        let body = lowering.block(&def.body, Vec::new())?;
        Ok(Cow::Owned(TransactionDef { body, ..def.into_owned() }))
    }

    /// Has the streams know how early rows are due.
    pub fn settle(self, streams: &mut Streams<'_>) {
        for Expiry { stream, after, .. } in self.of {
            if let Origin::Due(due) = &mut streams.list[stream].origin {
                due.bound = Bound::Wakes { after: after.unwrap_or(1) };
            }
        }
    }
}

struct Lowering<'l, 'a> {
    expiries: &'l mut Expiries<'a>,
    def: &'l TransactionDef,
    now: Option<&'l Now>,
    /// A flag: whether there are event times at all.
    has_time: bool,
}

impl Lowering<'_, '_> {
    /// Lowers the statements of a block. `noted`: roles whose row has the time that each write of the transaction gives it.
    fn block(&mut self, body: &[Stmt], mut noted: Vec<String>) -> Checked<Vec<Stmt>> {
        let mut lowered = Vec::new();
        for statement in body {
            self.statement(statement, &mut noted, &mut lowered).map_err(|fault| fault.at(statement.span))?;
            let mut deletes = matches!(statement.node, StmtNode::Delete { .. });
            for block in statement.blocks() {
                crate::visit::each_statement(block, &mut |inner| {
                    deletes |= matches!(inner.node, StmtNode::Delete { .. });
                });
            }
            // Another role may be the same row, which is made anew then.
            if deletes {
                noted.clear();
            }
        }
        Ok(lowered)
    }

    fn statement(&mut self, statement: &Stmt, noted: &mut Vec<String>, lowered: &mut Vec<Stmt>) -> Checked<()> {
        let with = |node| Stmt { node, span: statement.span };
        match &statement.node {
            StmtNode::If { condition, then, otherwise } => {
                let (then, otherwise) = (self.block(then, noted.clone())?, self.block(otherwise, noted.clone())?);
                lowered.push(with(StmtNode::If { condition: condition.clone(), then, otherwise }));
            }
            StmtNode::ForEach { variable, list, body } => {
                let body = self.block(body, Vec::new())?;
                lowered.push(with(StmtNode::ForEach { variable: variable.clone(), list: list.clone(), body }));
            }
            StmtNode::ForRows { variable, role, body } => {
                let body = self.block(body, Vec::new())?;
                lowered.push(with(StmtNode::ForRows { variable: variable.clone(), role: role.clone(), body }));
            }
            StmtNode::ForRange { variable, start, stop, step, body } => {
                let body = self.block(body, Vec::new())?;
                let (variable, start, stop) = (variable.clone(), start.clone(), stop.clone());
                lowered.push(with(StmtNode::ForRange { variable, start, stop, step: *step, body }));
            }
            StmtNode::Wake { role, at } => {
                // A statement that makes the row writes it.
                let is_made = at.is_some() && self.access(role) == Some(AccessDef::Create);
                let insert = with(StmtNode::Insert { role: role.clone(), values: Vec::new() });
                let sets = if is_made { self.sets(role, &insert.node, &mut Vec::new())? } else { Vec::new() };
                if !sets.is_empty() {
                    lowered.push(with(when(!exists(role), [vec![insert], sets].concat()).node));
                }
                lowered.push(statement.clone());
            }
            node => {
                lowered.push(statement.clone());
                let role = match node {
                    StmtNode::Set { role, .. } | StmtNode::Add { role, .. } | StmtNode::Insert { role, .. } => role,
                    _ => return Ok(()),
                };
                let sets = self.sets(role, node, noted)?;
                lowered.extend(sets.into_iter().map(|set| with(set.node)));
            }
        }
        Ok(())
    }

    fn access(&self, role: &str) -> Option<AccessDef> {
        self.def.roles.iter().find(|of| of.name == role).map(|of| of.access)
    }

    /// Returns the statements that set the time after a write of a role.
    fn sets(&mut self, role: &str, write: &StmtNode, noted: &mut Vec<String>) -> Checked<Vec<Stmt>> {
        let Some(of) = self.def.roles.iter().find(|of| of.name == role) else { return Ok(Vec::new()) };
        let Some(one) = self.expiries.of.iter_mut().find(|one| one.table.name == of.table) else {
            return Ok(Vec::new());
        };
        let (table, has_time) = (&of.table, self.has_time);
        let no_time = || match has_time {
            true => {
                Fault::new(format!("rows of '{table}' expire, but its events do not hold the time of their position"))
                    .hint("pass the event time on as it is, in one field of all inputs")
            }
            false => Fault::new(format!("rows of '{table}' expire, but no source has an event time"))
                .hint("declare the event time of every source, or let a clock bring it: app.clock(\"1s\")"),
        };
        let now = self.now.ok_or_else(no_time)?;
        let mut note = |after: i64| {
            let after = after.max(1);
            one.after = Some(one.after.map_or(after, |least| least.min(after)));
        };
        let column = match one.expire {
            Expire::After(Value::Int(length) | Value::Duration(length)) => {
                note(*length);
                if noted.iter().any(|other| other == role) {
                    return Ok(Vec::new());
                }
                noted.push(role.to_owned());
                return Ok(vec![set(role, GONE_AT, now.later(*length))]);
            }
            Expire::After(_) => unreachable!("it was checked"),
            Expire::At(column) => column,
        };
        let def = one.table.columns.iter().find(|def| def.name == *column).expect("it was checked");
        let given = match write {
            StmtNode::Set { column: of, value, .. } if of == column => Some(value),
            StmtNode::Insert { values, .. } => values.iter().find(|(of, _)| of == column).map(|(_, value)| value),
            _ => None,
        };
        // A write that makes the row gives the column its default.
        let has_default = def.key || !matches!(def.default, None | Some(Value::Null));
        let is_made = matches!(write, StmtNode::Insert { .. }) || of.access == AccessDef::Create;
        if given.is_none() && !(is_made && has_default) {
            return Ok(Vec::new());
        }
        let until = given.and_then(|value| now.until(value));
        note(until.unwrap_or(1));
        let is_none = given.is_some_and(|value| matches!(value.node, ExprNode::Literal(Value::Null)));
        let own = || cell(role, column);
        let at: Expr = match until {
            _ if is_none => none(),
            Some(1..) => own(),
            _ => now.wakes(&own()),
        };
        let at = if def.ty.nullable && !is_none { if_else(own().is_null(), none(), at) } else { at };
        Ok(vec![set(role, GONE_AT, at)])
    }
}
