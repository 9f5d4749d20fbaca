//! The dependencies within a transaction (MorphStream §2), read off its body.
//!
//! A write *uses* a cell if the cell is in its value or in a condition that decides whether it
//! happens, directly or through locals. Locals are taken as a whole, whatever the order of
//! statements: that may claim a use too many, never one too few.
//!
//! What a *requirement* reads decides about every write of the transaction, since all or none of them hold. These cells
//! are a set of their own ([`Transaction::required_roles`]) and in no write's `uses`: a write need not wait for a
//! requirement where its transaction is undone on an abort, so they do not join what may run apart.

use crate::program::{Expr, Node, Stmt};
use crate::{Program, RoleId, TableId, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// A cell by its column, or the existence of a row.
pub(crate) type CellUse = (RoleId, Option<usize>);

/// A write to a role: its column, or none for an insert or delete of the row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    pub role: RoleId,
    pub kind: WriteKind,
    /// The cells whose values decide about the write.
    pub uses: BTreeSet<CellUse>,
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteKind {
    /// Sets a column.
    Set(usize),
    /// Inserts the row.
    Insert,
    /// Deletes the row.
    Delete,
}

/// Returns all writes of a transaction, in order, each kind once.
pub(crate) fn writes(transaction: &Transaction) -> Vec<Write> {
    Walk::over(transaction).writes
}

/// Returns the roles that decide whether a statement is cut short by a `return`, `break` or `continue` before it.
pub(crate) fn cut_uses(transaction: &Transaction) -> BTreeSet<RoleId> {
    // As if each were a write to a role that does not exist.
    const CUT: RoleId = RoleId::MAX;
    fn mark(block: &[Stmt]) -> Vec<Stmt> {
        let marked = |stmt: &Stmt| match stmt {
            Stmt::Return { .. } | Stmt::Break | Stmt::Continue => Stmt::Delete { role: CUT, element: None },
            Stmt::If { condition, then, otherwise } => {
                Stmt::If { condition: condition.clone(), then: mark(then), otherwise: mark(otherwise) }
            }
            Stmt::ForEach { loop_id, body } => Stmt::ForEach { loop_id: *loop_id, body: mark(body) },
            Stmt::ForRange { local, start, stop, step, body } => {
                let (start, stop) = (start.clone(), stop.clone());
                Stmt::ForRange { local: *local, start, stop, step: *step, body: mark(body) }
            }
            other => other.clone(),
        };
        block.iter().map(marked).collect()
    }
    let marked = Transaction { body: mark(&transaction.body), ..transaction.clone() };
    let cuts = writes(&marked).into_iter().filter(|write| write.role == CUT);
    cuts.flat_map(|write| write.uses).map(|(role, _)| role).collect()
}

struct Walk {
    /// The cells that each local may have been made from, by local.
    locals: Vec<BTreeSet<CellUse>>,
    writes: Vec<Write>,
    /// The cells that requirements read, and those that decide whether one is reached.
    required: BTreeSet<CellUse>,
}

impl Walk {
    fn over(transaction: &Transaction) -> Walk {
        let locals = vec![BTreeSet::new(); transaction.locals.len()];
        let mut walk = Walk { locals, writes: Vec::new(), required: BTreeSet::new() };
        loop {
            let before = walk.locals.clone();
            walk.writes.clear();
            walk.block(&transaction.body, &BTreeSet::new());
            if walk.locals == before {
                return walk;
            }
        }
    }

    /// Notes the uses of a block. `deciding` are the cells in the conditions around the block.
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
                Stmt::Require { .. } | Stmt::Abort { .. } => self.required.extend(&uses),
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
    /// Returns the roles whose rows its requirements read, in the requirement itself or in a condition around it. Each
    /// of its writes to another row depends on them parametrically (MorphStream Definition 5). What a row's absence or
    /// a failure of arithmetic decides is not among them.
    pub fn required_roles(&self) -> BTreeSet<RoleId> {
        Walk::over(self).required.into_iter().map(|(role, _)| role).collect()
    }

    /// Returns the roles that are written, each with the roles whose rows are in the values of its writes, in
    /// conditions around them, or in conditions to leave the transaction or a loop before them. What requirements read
    /// is not among them.
    pub fn uses_of_writes(&self) -> BTreeMap<RoleId, BTreeSet<RoleId>> {
        let cuts = cut_uses(self);
        let mut uses: BTreeMap<RoleId, BTreeSet<RoleId>> = BTreeMap::new();
        for write in Walk::over(self).writes {
            let own = write.uses.into_iter().map(|(role, _)| role);
            uses.entry(write.role).or_default().extend(own.chain(cuts.iter().copied()));
        }
        uses
    }

    /// Returns the reason why it cannot be run again within an epoch, if it cannot: what it did then could not be taken
    /// back.
    pub fn is_final(&self, program: &Program) -> Option<&'static str> {
        match self.sets_text(program) {
            _ if !self.emits.is_empty() => Some("emits events by name"),
            true => Some("sets texts or windows"),
            false => None,
        }
    }

    /// Returns whether it puts a text, or what a window keeps, into any cell of a row.
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

/// The way in which two roles on one table can meet in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// The keys are the same expressions.
    Always,
    /// Nothing rules it out.
    Possible,
}

/// Returns the pairs of roles (or of two elements of one role) of which one writes and that may meet.
pub(crate) fn meetings(program: &Program, transaction: &Transaction) -> Vec<(RoleId, RoleId, Meeting)> {
    let roles = &transaction.roles;
    let mut meetings = Vec::new();
    for (i, a) in roles.iter().enumerate() {
        if (a.over.is_some() || a.each.is_some()) && a.written {
            meetings.push((i, i, Meeting::Possible));
        }
        for (j, b) in roles.iter().enumerate().skip(i + 1) {
            // Roles that are all rows meet whatever is written; that goes without saying.
            let is_scan = a.is_chosen() || b.is_chosen();
            if a.table != b.table || is_scan || !(a.written || b.written) || differ(&a.key, &b.key) {
                continue;
            }
            let same = a.is_one_row() && b.is_one_row() && a.key == b.key;
            meetings.push((i, j, if same { Meeting::Always } else { Meeting::Possible }));
        }
    }
    debug_assert!(meetings.iter().all(|(i, ..)| usize::from(roles[*i].table) < program.tables.len()));
    meetings
}

/// Returns whether some part of two keys is a different constant in each.
fn differ(a: &[Expr], b: &[Expr]) -> bool {
    a.iter().zip(b).any(|(a, b)| match (&a.node, &b.node) {
        (Node::Const(a), Node::Const(b)) => a != b,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use crate::analyze;
    use crate::build::{Block, PlanBuilder, cell, event, local, named};
    use tidemill_model::{Type, Value};

    /// Returns those of three rows of one table, `a`, `b` and `c`, that are required; and for each that is written the
    /// rows that its writes use.
    fn required(body: impl FnOnce(&mut Block)) -> (Vec<usize>, Vec<(usize, Vec<usize>)>) {
        let plan = PlanBuilder::new("required")
            .table("accounts", |t| t.key("id", Type::Int).column_or("balance", Type::Int, Value::Int(0)))
            .source("events", |s| s.field("a", Type::Int).field("b", Type::Int).field("c", Type::Int))
            .transaction("move", [named("events")], |t| {
                let t = t.row("a", "accounts", [event("a")]).row("b", "accounts", [event("b")]);
                t.row("c", "accounts", [event("c")]).body(body)
            })
            .build();
        let program = analyze(&plan).expect("a valid plan");
        let transaction = &program.transactions[crate::TransactionId::from(0)];
        let uses = transaction.uses_of_writes().into_iter().map(|(role, uses)| (role, uses.into_iter().collect()));
        (transaction.required_roles().into_iter().collect(), uses.collect())
    }

    #[test]
    fn what_requirements_read_is_in_no_write() {
        let found = required(|b| {
            b.assign("left", cell("a", "balance") - 1);
            b.require(local("left").ge(0), "poor");
            b.set("a", "balance", local("left"));
            b.set("b", "balance", cell("b", "balance") + 1);
        });
        assert_eq!(found, (vec![0], vec![(0, vec![0]), (1, vec![1])]));
    }

    /// A row that is written twice uses what either write does.
    #[test]
    fn uses_are_of_all_writes_to_a_row() {
        let found = required(|b| {
            b.set("a", "balance", cell("b", "balance"));
            b.when(cell("c", "balance").lt(0), |b| b.set("a", "balance", 0));
        });
        assert_eq!(found, (vec![], vec![(0, vec![1, 2])]));
    }

    #[test]
    fn a_condition_around_a_requirement_counts() {
        let found = required(|b| {
            let poor = cell("c", "balance").lt(0);
            b.when(poor, |b| b.require(cell("a", "balance").ge(0), "poor"));
            b.set("b", "balance", event("a"));
        });
        assert_eq!(found, (vec![0, 2], vec![(1, vec![])]));
    }
}
