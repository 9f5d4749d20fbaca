//! Statements and columns of what windows and joins are taken apart into.

use crate::{ColumnDef, Expr, Stmt, StmtNode};
use tidemill_model::{ColumnType, Value};

/// The role of the row that counts.
pub(super) const ORDER: &str = "order";
/// The local that says whether the window begins with the event.
pub(super) const FRESH: &str = "fresh";
/// The role of a group's row.
pub(super) const WINDOW: &str = "window";

pub(super) fn column(name: &str, ty: impl Into<ColumnType>, key: bool, default: Option<Value>) -> ColumnDef {
    ColumnDef { key, default, ..ColumnDef::new(name, ty) }
}

pub(super) fn stmt(node: StmtNode) -> Stmt {
    Stmt { node, span: None }
}

pub(super) fn set(role: &str, column: &str, value: impl Into<Expr>) -> Stmt {
    stmt(StmtNode::Set { role: role.into(), column: column.into(), value: value.into() })
}

pub(super) fn when(condition: Expr, then: Vec<Stmt>) -> Stmt {
    stmt(StmtNode::If { condition, then, otherwise: Vec::new() })
}

pub(super) fn add(role: &str, column: &str, value: Expr) -> Stmt {
    stmt(StmtNode::Add { role: role.into(), column: column.into(), value })
}

pub(super) fn assign(name: &str, value: Expr) -> Stmt {
    stmt(StmtNode::Assign { name: name.into(), value })
}
