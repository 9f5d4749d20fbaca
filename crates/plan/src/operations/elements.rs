//! The operations that can be performed for each element of a list by itself.
//!
//! **Law.** Rows of the roles over the list are reached inside loops over it only, each in the round of its own element.
//! So a round depends on another one through locals alone, and through leaving the loop. Where no local carries
//! anything out of a round, and nothing leaves the loop, rounds of different elements can change places, and any part
//! of them can be left to somebody else.

use crate::program::{Expr, LocalId, Node, Stmt};
use crate::{Role, RoleId, Transaction};
use std::collections::BTreeSet;

/// Returns the list that the written ones of these roles are over, if `update`, which performs them, can be performed
/// for some of its elements at a time.
pub fn list_of(update: &Transaction, roles: &BTreeSet<RoleId>) -> Option<usize> {
    let list = roles.iter().map(|&role| &update.roles[role]).find(|role| role.written)?.over?;
    let fits = |role: &Role| role.over == Some(list) || role.over.is_none() && !role.written;
    let is_over = roles.iter().all(|&role| fits(&update.roles[role]));
    let mut rounds = Rounds { loops: &update.loops, list, locals: BTreeSet::new() };
    let mut bodies = Vec::new();
    let is_plain = is_over && rounds.collect(&update.body, &mut bodies);
    let is_alone = is_plain
        && !rounds.is_read_outside(&update.body)
        && bodies.iter().all(|body| rounds.sets_what_it_reads(body, &mut BTreeSet::new()));
    is_alone.then_some(list)
}

/// The rounds of the loops over a list.
struct Rounds<'a> {
    /// The list of each loop, by loop.
    loops: &'a [usize],
    list: usize,
    /// The locals that are set inside the loops.
    locals: BTreeSet<LocalId>,
}

impl Rounds<'_> {
    /// Takes the bodies of the loops. Whether all loops are over the list, none in another, and nothing breaks off a
    /// round. (A `break` out of a range inside of one would do no harm; it is taken for one.)
    fn collect<'b>(&mut self, block: &'b [Stmt], bodies: &mut Vec<&'b [Stmt]>) -> bool {
        block.iter().all(|stmt| match stmt {
            Stmt::ForEach { loop_id, body } => {
                let mut is_plain = self.loops[*loop_id] == self.list;
                for stmt in body {
                    stmt.each(&mut |inner| match inner {
                        Stmt::Assign { local, .. } | Stmt::ForRange { local, .. } => _ = self.locals.insert(*local),
                        Stmt::ForEach { .. } | Stmt::Break | Stmt::Return { .. } => is_plain = false,
                        _ => {}
                    });
                }
                bodies.push(body);
                is_plain
            }
            other => other.blocks().into_iter().all(|inner| self.collect(inner, bodies)),
        })
    }

    /// Returns whether anything outside of the loops reads what is set inside.
    fn is_read_outside(&self, block: &[Stmt]) -> bool {
        block.iter().any(|stmt| {
            let is_outside = !matches!(stmt, Stmt::ForEach { .. });
            is_outside
                && (self.reads_before(stmt, &BTreeSet::new())
                    || stmt.blocks().into_iter().any(|inner| self.is_read_outside(inner)))
        })
    }

    /// Returns whether a round sets each of its locals before it reads it, given those that are set already, to which
    /// it adds.
    fn sets_what_it_reads(&self, block: &[Stmt], set: &mut BTreeSet<LocalId>) -> bool {
        block.iter().all(|stmt| {
            if self.reads_before(stmt, set) {
                return false;
            }
            match stmt {
                Stmt::Assign { local, .. } => _ = set.insert(*local),
                Stmt::If { then, otherwise, .. } => {
                    let [mut yes, mut no] = [set.clone(), set.clone()];
                    if !self.sets_what_it_reads(then, &mut yes) || !self.sets_what_it_reads(otherwise, &mut no) {
                        return false;
                    }
                    *set = &yes & &no;
                }
                Stmt::ForRange { local, body, .. } => {
                    // There may be no round of it.
                    let mut inside = set.clone();
                    inside.insert(*local);
                    return self.sets_what_it_reads(body, &mut inside);
                }
                _ => {}
            }
            true
        })
    }

    /// Returns whether a statement, without its blocks, reads a local of the rounds that is not set.
    fn reads_before(&self, stmt: &Stmt, set: &BTreeSet<LocalId>) -> bool {
        let unset = |local: &LocalId| self.locals.contains(local) && !set.contains(local);
        let reads = |expr: &Expr| {
            let mut reads = false;
            expr.each(&mut |inner| reads |= matches!(&inner.node, Node::Local(local) if unset(local)));
            reads
        };
        stmt.expressions().into_iter().any(reads)
    }
}
