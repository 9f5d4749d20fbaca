//! A transaction taken apart into operations: for schedules that run the updates of one transaction
//! apart from each other and from its verdict (MorphStream §4.2.1, §4.3; DESIGN §4).
//!
//! **What.** An [`Operation`] is a group of roles whose updates decide about each other, with the
//! part of the body that performs them, as a transaction of its own: no requirement is checked, nothing
//! is emitted. The *judge* is the part that decides whether the transaction commits, and what it
//! returns. Parts are slices of the body: a statement is kept if it is wanted, or if a statement that is
//! kept depends on it.
//!
//! **Law.** Given for each role the row that the serial order gives it, and no two roles in one row:
//! 1. if the transaction commits, no part aborts, the operations leave in the rows of their roles what the
//!    transaction leaves there, and the judge returns what it returns;
//! 2. if it aborts, some part does. Which reason it gives is not known then: where several parts fail, only the
//!    body knows which comes first.
//!
//! So a part's failure says *that*, and the whole function, run on the same rows, says *why*.
//!
//! **Given up.** A transaction whose parts would be one, that emits by name, that sets text, or that
//! has a dependent key is not taken apart; nor is one whose roles meet in a row, which only the event decides.

use crate::dependencies::writes;
use crate::program::{Expr, Node, Stmt};
use crate::{Program, Role, RoleId, Transaction, TransactionId};
use std::collections::BTreeSet;

/// A transaction in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Operations {
    /// By first role; together they have each role that is written.
    pub operations: Vec<Operation>,
    /// Decides, and returns; reads and writes the rows as they are before the transaction.
    pub judge: Transaction,
}

/// Updates that decide about each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The roles whose rows it reads or writes, ascending. A role that is only read may be in several.
    pub roles: Vec<RoleId>,
    /// Performs them.
    pub update: Transaction,
}

impl Operations {
    /// Takes a transaction apart; none where it stays whole.
    pub fn of(program: &Program, id: TransactionId) -> Option<Operations> {
        let transaction = &program.transactions[id];
        let is_dependent = transaction.roles.iter().any(Role::is_dependent);
        if !transaction.emits.is_empty() || transaction.sets_text(program) || is_dependent {
            return None;
        }
        let groups = groups(transaction);
        let whole = |group: &BTreeSet<RoleId>| group.len() == transaction.roles.len();
        if groups.is_empty() || groups.iter().any(whole) {
            return None;
        }
        let operations = groups
            .into_iter()
            .map(|group| Operation { update: update(transaction, &group), roles: group.into_iter().collect() });
        Some(Operations { operations: operations.collect(), judge: judge(transaction) })
    }
}

/// The roles whose updates decide about each other, by closure: a role that is read is in the groups that
/// read it, and groups that share a written role are one.
fn groups(transaction: &Transaction) -> Vec<BTreeSet<RoleId>> {
    let cuts = cut_uses(transaction);
    let mut groups: Vec<BTreeSet<RoleId>> = Vec::new();
    for write in writes(transaction) {
        let mut group: BTreeSet<RoleId> = write.uses.iter().map(|(role, _)| *role).collect();
        group.insert(write.role);
        group.extend(&cuts);
        groups.push(group);
    }
    let written = |group: &BTreeSet<RoleId>, other: &BTreeSet<RoleId>| {
        group.intersection(other).any(|&role| transaction.roles[role].written)
    };
    let mut joined: Vec<BTreeSet<RoleId>> = Vec::new();
    for mut group in groups {
        while let Some(at) = joined.iter().position(|other| written(&group, other)) {
            group.extend(joined.swap_remove(at));
        }
        joined.push(group);
    }
    joined.sort();
    joined
}

/// The roles that decide whether a statement is cut short by a `return`, `break` or `continue` before it.
fn cut_uses(transaction: &Transaction) -> BTreeSet<RoleId> {
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

/// The updates of a group of roles.
fn update(transaction: &Transaction, group: &BTreeSet<RoleId>) -> Transaction {
    let wanted = |stmt: &Stmt| match stmt {
        Stmt::Set { role, .. } | Stmt::Insert { role, .. } | Stmt::Delete { role, .. } => group.contains(role),
        Stmt::Return { .. } | Stmt::Break | Stmt::Continue => true,
        _ => false,
    };
    let body = Slice::of(transaction, wanted).block(&transaction.body, &wanted, false);
    Transaction { body, ..transaction.clone() }
}

/// What decides about the transaction, and what it returns.
fn judge(transaction: &Transaction) -> Transaction {
    let mut needed = BTreeSet::new();
    loop {
        let wanted = |stmt: &Stmt| match stmt {
            Stmt::Set { role, .. } | Stmt::Insert { role, .. } | Stmt::Delete { role, .. } => needed.contains(role),
            Stmt::Require { .. } | Stmt::Abort { .. } | Stmt::Return { .. } | Stmt::Break | Stmt::Continue => true,
            other => other.evaluation_may_fail(),
        };
        let body = Slice::of(transaction, wanted).block(&transaction.body, &wanted, true);
        let before = needed.len();
        body.iter().for_each(|stmt| {
            stmt.each(&mut |inner| {
                inner.expressions().into_iter().for_each(|expr| needed.extend(roles_read(expr)));
            })
        });
        if needed.len() == before {
            return Transaction { body, ..transaction.clone() };
        }
    }
}

/// The roles whose rows an expression reads.
fn roles_read(expr: &Expr) -> BTreeSet<RoleId> {
    let mut roles = BTreeSet::new();
    expr.each(&mut |inner| {
        if let Node::Cell { role, .. } | Node::Exists { role, .. } = inner.node {
            roles.insert(role);
        }
    });
    roles
}

/// Which locals a part needs.
struct Slice {
    locals: BTreeSet<usize>,
}

impl Slice {
    /// The closure over what the wanted statements need.
    fn of(transaction: &Transaction, wanted: impl Fn(&Stmt) -> bool) -> Slice {
        let mut slice = Slice { locals: BTreeSet::new() };
        loop {
            let before = slice.locals.len();
            let kept = slice.block(&transaction.body, &wanted, true);
            kept.iter().for_each(|stmt| {
                stmt.each(&mut |inner| {
                    inner.expressions().into_iter().for_each(|expr| {
                        expr.each(&mut |e| {
                            if let Node::Local(local) = e.node {
                                slice.locals.insert(local);
                            }
                        })
                    });
                })
            });
            if slice.locals.len() == before {
                return slice;
            }
        }
    }

    /// What is kept of a block. `records`: with what is returned.
    fn block(&self, block: &[Stmt], wanted: &impl Fn(&Stmt) -> bool, records: bool) -> Vec<Stmt> {
        block.iter().filter_map(|stmt| self.statement(stmt, wanted, records)).collect()
    }

    fn statement(&self, stmt: &Stmt, wanted: &impl Fn(&Stmt) -> bool, records: bool) -> Option<Stmt> {
        let inner = |block: &[Stmt]| self.block(block, wanted, records);
        let (kept, empty) = match stmt {
            Stmt::If { condition, then, otherwise } => {
                let (then, otherwise) = (inner(then), inner(otherwise));
                let empty = then.is_empty() && otherwise.is_empty();
                (Stmt::If { condition: condition.clone(), then, otherwise }, empty)
            }
            Stmt::ForEach { loop_id, body } => {
                let body = inner(body);
                let empty = body.is_empty();
                (Stmt::ForEach { loop_id: *loop_id, body }, empty)
            }
            Stmt::ForRange { local, start, stop, step, body } => {
                let body = inner(body);
                // The counter may be read behind the loop.
                let empty = body.is_empty() && !self.locals.contains(local);
                let (start, stop) = (start.clone(), stop.clone());
                (Stmt::ForRange { local: *local, start, stop, step: *step, body }, empty)
            }
            Stmt::Return { .. } if !records => (Stmt::Return { fields: None }, true),
            Stmt::Assign { local, .. } => (stmt.clone(), !self.locals.contains(local)),
            other => (other.clone(), true),
        };
        (!empty || wanted(stmt)).then_some(kept)
    }
}
