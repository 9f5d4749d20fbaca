//! What in a transaction depends on what (MorphStream §2), read off its body.
//!
//! A write *uses* a cell if the cell is in its value or in a condition that decides whether it
//! happens, directly or through locals. Locals are taken as a whole, whatever the order of
//! statements: that may claim a use too many, never one too few.

use crate::program::{Expr, Node, Stmt};
use crate::{Program, RoleId, TableId, Transaction};
use std::collections::BTreeSet;

/// A cell by its column, or the existence of a row.
pub(crate) type CellUse = (RoleId, Option<usize>);

/// A write to a role: its column, or none for an insert or delete of the row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    pub role: RoleId,
    pub kind: WriteKind,
    /// The cells that decide about it.
    pub uses: BTreeSet<CellUse>,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteKind {
    /// Sets a column.
    Set(usize),
    /// Inserts the row.
    Insert,
    /// Deletes the row.
    Delete,
}

/// All writes of a transaction, in order, each kind once.
pub(crate) fn writes(transaction: &Transaction) -> Vec<Write> {
    let mut walk = Walk { locals: vec![BTreeSet::new(); transaction.locals.len()], writes: Vec::new() };
    loop {
        let before = walk.locals.clone();
        walk.writes.clear();
        walk.block(&transaction.body, &BTreeSet::new());
        if walk.locals == before {
            return walk.writes;
        }
    }
}

struct Walk {
    /// What each local may have been made from.
    locals: Vec<BTreeSet<CellUse>>,
    writes: Vec<Write>,
}

impl Walk {
    /// `deciding` are the cells in the conditions around the block.
    fn block(&mut self, block: &[Stmt], deciding: &BTreeSet<CellUse>) {
        for statement in block {
            let mut uses = deciding.clone();
            for expr in statement.expressions() {
                self.uses(expr, &mut uses);
            }
            match statement {
                Stmt::Assign { local, .. } => self.locals[*local].extend(&uses),
                Stmt::ForRange { local, .. } => self.locals[*local].extend(&uses),
                Stmt::Set { role, column, .. } => self.write(*role, WriteKind::Set(*column), &uses),
                Stmt::Insert { role, .. } => self.write(*role, WriteKind::Insert, &uses),
                Stmt::Delete { role, .. } => self.write(*role, WriteKind::Delete, &uses),
                _ => {}
            }
            for inner in statement.blocks() {
                self.block(inner, &uses);
            }
        }
    }

    fn write(&mut self, role: RoleId, kind: WriteKind, uses: &BTreeSet<CellUse>) {
        match self.writes.iter_mut().find(|w| w.role == role && w.kind == kind) {
            Some(write) => write.uses.extend(uses),
            None => self.writes.push(Write { role, kind, uses: uses.clone() }),
        }
    }

    fn uses(&self, expr: &Expr, uses: &mut BTreeSet<CellUse>) {
        expr.each(&mut |inner| match inner.node {
            Node::Cell { role, column, .. } => {
                uses.insert((role, Some(column)));
            }
            Node::Exists { role, .. } | Node::Rows { role } => {
                uses.insert((role, None));
            }
            Node::Local(local) => uses.extend(&self.locals[local]),
            _ => {}
        });
    }
}

impl Transaction {
    /// Why it cannot be run again within an epoch, if it cannot: what it did then could not be taken back.
    pub fn is_final(&self, program: &Program) -> Option<&'static str> {
        match self.sets_text(program) {
            _ if !self.emits.is_empty() => Some("emits events by name"),
            true => Some("sets texts or windows"),
            false => None,
        }
    }

    /// Whether it puts a text, or what a window keeps, into any cell of a row.
    pub fn sets_text(&self, program: &Program) -> bool {
        let is_text = |table: TableId, column: usize| program.tables[table].columns[column].ty.ty.is_bytes();
        let mut inserts = false;
        self.body.iter().for_each(|stmt| stmt.each(&mut |inner| inserts |= matches!(inner, Stmt::Insert { .. })));
        self.roles.iter().any(|role| {
            let any_text = (0..program.tables[role.table].columns.len()).any(|c| is_text(role.table, c));
            role.writes.iter().any(|&c| is_text(role.table, c))
                || (role.written && (role.create || inserts) && any_text)
        })
    }
}

/// How two roles on one table can meet in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Their keys are the same expressions.
    Always,
    /// Nothing rules it out.
    Possible,
}

/// The pairs of roles (or of two elements of one role) of which one writes and that may meet.
pub(crate) fn meetings(program: &Program, transaction: &Transaction) -> Vec<(RoleId, RoleId, Meeting)> {
    let roles = &transaction.roles;
    let mut meetings = Vec::new();
    for (i, a) in roles.iter().enumerate() {
        if a.over.is_some() && a.written {
            meetings.push((i, i, Meeting::Possible));
        }
        for (j, b) in roles.iter().enumerate().skip(i + 1) {
            // Roles that are all rows meet whatever is written; that goes without saying.
            let is_scan = a.scan.is_some() || b.scan.is_some();
            if a.table != b.table || is_scan || !(a.written || b.written) || differ(&a.key, &b.key) {
                continue;
            }
            let same = a.over.is_none() && b.over.is_none() && a.key == b.key;
            meetings.push((i, j, if same { Meeting::Always } else { Meeting::Possible }));
        }
    }
    debug_assert!(meetings.iter().all(|(i, ..)| usize::from(roles[*i].table) < program.tables.len()));
    meetings
}

/// Whether some part of two keys is a different constant in each.
fn differ(a: &[Expr], b: &[Expr]) -> bool {
    a.iter().zip(b).any(|(a, b)| match (&a.node, &b.node) {
        (Node::Const(a), Node::Const(b)) => a != b,
        _ => false,
    })
}
