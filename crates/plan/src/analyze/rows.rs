//! A result of windows for each row of a table, whether or not events are in them.
//!
//! With `every=items` a window `heat` has, beside its other parts ([`super::over`]),
//!
//! | what | of |
//! |---|---|
//! | table `heat.grid` | one row: the next boundary, and the first one at which rows without events have a result |
//! | stream `heat.rows` | the boundaries, each followed by the rows of `items` ([`Bound::Rows`]) |
//! | transaction `heat.fill` | `heat.rows`: opens a window for each row that has none |
//!
//! The stream is directly before `heat.due` among what is due at a boundary. So what closes there is fixed before the first
//! close runs, and windows without events close like others. They are numbered after those with events.

use super::cells::Kind;
use super::fault::{Checked, Fault};
use super::over::{Lowering, Numbering, Part};
use super::parts::boundaries;
use super::writing::{ORDER, WINDOW, column, set, stmt, when};
use crate::build::{cell, event, exists, if_else};
use crate::{
    AccessDef, Bound, ColumnDef, DueField, Expr, ExprNode, Function, OverDef, RoleDef, Stmt, StmtNode, StreamRef,
    Table, TableId, TablePart, TransactionDef,
};
use tidemill_model::{ColumnType, Field, Schema, Type, Value};
use typed_index_collections::TiSlice;

/// The role of the row that holds the next boundary.
const GRID: &str = "grid";

/// The additional parts of windows that have rows without events.
pub(super) struct Rows {
    /// The columns of the table of the next boundary.
    pub grid: Vec<ColumnDef>,
    pub schema: Schema,
    pub fields: Vec<DueField>,
    pub bound: Bound,
    pub fill: TransactionDef,
}

/// The table of which each row has a result.
pub(super) struct Of {
    table: TableId,
    /// Its key columns.
    key: Vec<usize>,
}

impl Of {
    /// Returns the number of that table.
    pub fn table(&self) -> TableId {
        self.table
    }
}

/// Checks a table of which each row is to have a result in windows of these groups.
pub(super) fn of(
    over: &OverDef,
    parts: &[Part],
    kind: Kind<'_>,
    tables: &TiSlice<TableId, Table>,
) -> Checked<Option<Of>> {
    let Some(name) = &over.every else { return Ok(None) };
    if over.top.is_some() || over.first.is_some() {
        return Err(Fault::new("tops and first events are of events, and of no rows").hint("leave every= out"));
    }
    let shown = || tables.iter().filter(|table| !table.is_hidden).map(|table| table.name.as_str());
    let table = tables.iter().position(|table| !table.is_hidden && table.name == *name);
    let table = TableId::from(table.ok_or_else(|| Fault::unknown("table", name, shown()))?);
    let made_of_events = match kind {
        Kind::Tumbling { .. } | Kind::Sliding { .. } => None,
        Kind::Calendar(_) => {
            return Err(Fault::new(format!("windows of a calendar have no results for each row of '{name}'"))
                .hint("take windows of a length that is always the same"));
        }
        Kind::Session { .. } => Some("sessions"),
        Kind::Counting { .. } => Some("windows by count"),
    };
    if let Some(windows) = made_of_events {
        return Err(Fault::new(format!("{windows} have no results for each row of '{name}': none is without events"))
            .hint("take tumbling or sliding windows"));
    }
    let of = &tables[table];
    let names: Vec<&str> = of.key.iter().map(|&key| of.columns[key].name.as_str()).collect();
    if names.len() != parts.len() {
        let (has, hint) = match parts.len() {
            0 => ("there are no groups".to_owned(), "group by it"),
            1 => ("the group has one part".to_owned(), "give the group a part for each column of the key"),
            more => (format!("the group has {more} parts"), "give the group a part for each column of the key"),
        };
        return Err(Fault::new(format!("{has}, but the key of '{name}' is {}", names.join(", "))).hint(hint));
    }
    for (part, &key) in parts.iter().zip(&of.key) {
        let column = &of.columns[key];
        if part.name != column.name && names.contains(&part.name.as_str()) {
            return Err(Fault::new(format!(
                "'{}' of the group stands for the key column '{}' of '{name}'",
                part.name, column.name
            ))
            .hint(format!("write the parts in the order of the key: {}", names.join(", "))));
        }
        if part.ty.ty != column.ty.ty {
            return Err(Fault::new(format!(
                "'{}' of the group is {}, but the key column '{}' of '{name}' is {}",
                part.name, part.ty.ty, column.name, column.ty.ty
            ))
            .hint("group by values of the key's type"));
        }
    }
    Ok(Some(Of { table, key: of.key.clone() }))
}

impl Lowering<'_> {
    /// Returns the parts that open windows for rows without events.
    pub(super) fn rows(&self, of: &Of) -> Rows {
        let (length, every, origin) = match self.kind {
            Kind::Tumbling { length, origin } => (length, length, origin),
            Kind::Sliding { length, every, origin } => (length, every, origin),
            Kind::Calendar(_) | Kind::Session { .. } | Kind::Counting { .. } => {
                unreachable!("none of these is without events")
            }
        };
        let time = self.clock.ty.unwrap_or(Type::Int);
        let parts = self.parts.iter().map(|part| Field::scalar(&part.name, ColumnType::optional(part.ty.ty)));
        let schema = Schema { fields: parts.chain([Field::scalar("end", time.into())]).collect() };
        let part = |&column: &usize| DueField::Part { column, none: None };
        let int = |name: &str| column(name, Type::Int, false, Some(Value::Int(0)));
        let one_row =
            |name, table: TablePart| RoleDef::row(name, table.named(self.name), vec![0.into()], AccessDef::Create);
        let mut roles = vec![self.role_of_row()];
        if self.numbering == Numbering::Counted {
            roles.push(one_row(ORDER, TablePart::Order));
        }
        roles.push(one_row(GRID, TablePart::Grid));
        let fill = TransactionDef {
            name: format!("{}.fill", self.name),
            inputs: vec![StreamRef::Named(boundaries(self.name))],
            over: None,
            join: None,
            nested: false,
            derives: false,
            roles,
            body: self.fill(length, every, origin),
        };
        Rows {
            grid: vec![column("one", Type::Int, true, None), int("next"), int(&from_column(length, every, origin))],
            schema,
            fields: of.key.iter().map(part).chain([DueField::End]).collect(),
            bound: Bound::Rows { every, origin, length, of: of.table },
            fill,
        }
    }

    /// Returns a group's row, by the key of a row of the table. The boundary itself has no key.
    fn role_of_row(&self) -> RoleDef {
        let mut key: Vec<Expr> = Vec::new();
        for part in &self.parts {
            if part.ty.nullable {
                key.push(event(&part.name).is_null());
            }
            key.push(ExprNode::OrZero(Box::new(event(&part.name))).into());
        }
        RoleDef::row(WINDOW, TablePart::Windows.named(self.name), key, AccessDef::Create)
    }

    fn fill(&self, length: i64, every: i64, origin: i64) -> Vec<Stmt> {
        let end = || match self.clock.ty {
            Some(Type::Time) => event("end").call(Function::TotalMicroseconds, []),
            _ => event("end"),
        };
        // None is after the last time.
        let after = |span: i64| if_else(end().gt(i64::MAX - span), i64::MAX, end() + span);
        let from = &from_column(length, every, origin);
        let boundary = vec![when(!exists(GRID), vec![set(GRID, from, after(length))]), set(GRID, "next", after(every))];
        let mut open = match self.numbering {
            Numbering::Counted => vec![set(ORDER, "n", cell(ORDER, "n") + 1), set(WINDOW, "first", cell(ORDER, "n"))],
            // After each event; rows that are equal in it are in the order of their keys.
            Numbering::Places | Numbering::None => vec![set(WINDOW, "first", i64::MAX)],
        };
        open.push(set(WINDOW, &self.kind.due_column(), end()));
        open.extend(self.never_early());
        let is_empty = !exists(WINDOW);
        let row = when(end().ge(cell(GRID, from.as_str())).and(is_empty), open);
        let is_boundary = event(&self.parts[0].name).is_null();
        vec![
            stmt(StmtNode::If { condition: is_boundary, then: boundary, otherwise: vec![row] }),
            stmt(StmtNode::Return { record: None }),
        ]
    }
}

/// Returns the column with the first boundary at which rows without events have a result. A state does not fit a
/// program with windows of another kind.
fn from_column(length: i64, every: i64, origin: i64) -> String {
    format!("from_{length}_{every}_{origin}")
}
