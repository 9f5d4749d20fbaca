//! A transaction taken apart into operations: for schedules that run the updates of one transaction
//! apart from each other and from its verdict (MorphStream §4.2.1, §4.3).
//!
//! **What.** An [`Operation`] is a group of roles whose updates decide about each other, with the
//! part of the body that performs them, as a transaction of its own: no requirement is checked, nothing
//! is emitted. The [`VerdictOperation`] is the part that decides whether the transaction commits, and what it
//! returns; it runs after the operations and reads what they left, so that it need not compute it again.
//! Parts are slices of the body: a statement is kept if it is wanted, or if a statement that is kept depends
//! on it.
//!
//! An operation whose every update concerns the rows of one element of a list, and nothing that an earlier element
//! left, is performed for any part of the elements apart from the others ([`Operation::list`]): an update of twenty
//! rows is twenty operations, as in TStream (2020, §IV-B).
//!
//! **Law.** Given for each role the row that the serial order gives it, and no two roles in one row:
//! 1. if the transaction commits, no part aborts, the operations leave in the rows of their roles what the
//!    transaction leaves there, and the verdict operation returns what it returns;
//! 2. if it aborts, some part does. Which reason it gives is not known then: where several parts fail, only the
//!    body knows which comes first.
//!
//! So a part's failure says *that*, and the whole function, run on the same rows, says *why*.
//!
//! The same holds where an operation is performed for some elements at a time; it fails where it fails for one of them.
//!
//! **Given up.** A transaction of which one operation that is not by element has every role, that emits by name, that
//! sets text, or that has a dependent key is not taken apart; nor is one whose roles meet in a row, which only the
//! event decides.

mod elements;

use crate::dependencies::{cut_uses, writes};
use crate::program::{Expr, Node, Stmt};
use crate::{LoopId, Program, Role, RoleId, Transaction, TransactionId};
use std::collections::BTreeSet;

/// A transaction in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Operations {
    /// The operations, by first role; together they have each role that is written.
    pub operations: Vec<Operation>,
    /// Decides, and returns.
    pub verdict: VerdictOperation,
}

/// The part of a transaction that decides whether it commits, and what it returns.
#[derive(Clone, Debug, PartialEq)]
pub struct VerdictOperation {
    /// The slice. Behind the transaction's own roles, whose rows it finds as they are before the transaction
    /// (and updates, where `written` says so), it has a role for each of `outcomes`.
    pub body: Transaction,
    /// Roles of the transaction whose rows it reads as the operations leave them.
    pub outcomes: Vec<RoleId>,
}

/// Updates that decide about each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The roles whose rows it reads or writes, ascending. A role that is only read may be in several.
    pub roles: Vec<RoleId>,
    /// The transaction that performs the updates.
    pub update: Transaction,
    /// The list field of whose elements each can be performed by itself, where there is one.
    pub list: Option<usize>,
}

impl Operations {
    /// Takes a transaction apart; none where it stays whole.
    pub fn of(program: &Program, id: TransactionId) -> Option<Operations> {
        let transaction = &program.transactions[id];
        let is_late = transaction.roles.iter().any(Role::is_found_late);
        if transaction.is_final(program).is_some() || is_late {
            return None;
        }
        let groups = groups(transaction);
        let mut performed = BTreeSet::new();
        let operations: Vec<Operation> = groups
            .into_iter()
            .map(|group| {
                let update = update(transaction, &group, &mut performed);
                let list = elements::list_of(&update, &group);
                Operation { update, list, roles: group.into_iter().collect() }
            })
            .collect();
        let whole =
            |operation: &Operation| operation.roles.len() == transaction.roles.len() && operation.list.is_none();
        if operations.is_empty() || operations.iter().any(whole) {
            return None;
        }
        let verdict = verdict_operation(transaction, &performed);
        // The limits are those of all parts together, so one of them must count everything.
        if verdict.body.counted_points() < transaction.counted_points() {
            return None;
        }
        Some(Operations { operations, verdict })
    }
}

/// Returns the roles whose updates decide about each other, by closure: a role that is read is in the groups that read
/// it, and groups that share a written role are one.
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

/// Returns the updates of a group of roles. Adds to `performed` the numbers of the statements that they take.
fn update(transaction: &Transaction, group: &BTreeSet<RoleId>, performed: &mut BTreeSet<usize>) -> Transaction {
    let wanted = |_: usize, stmt: &Stmt| match stmt {
        Stmt::Set { role, .. } | Stmt::Insert { role, .. } | Stmt::Delete { role, .. } => group.contains(role),
        Stmt::Return { .. } | Stmt::Break | Stmt::Continue => true,
        _ => false,
    };
    let body = Slice::of(&transaction.body, wanted, false).block(&transaction.body, 0, &wanted, false, performed);
    Transaction { body, ..transaction.clone() }
}

/// Returns the part that decides about the transaction, and what it returns.
///
/// What operations perform is left to them; where one of them fails, the transaction aborts whatever the verdict
/// operation says. Only updates of roles that are read between two of them are performed again, on a row of its own.
fn verdict_operation(transaction: &Transaction, performed: &BTreeSet<usize>) -> VerdictOperation {
    let count = transaction.roles.len();
    let mut placed = transaction.body.clone();
    Moments { transaction }.block(&mut placed, &BTreeSet::new(), &BTreeSet::new());
    let mut again = BTreeSet::new();
    loop {
        let wanted = |number: usize, stmt: &Stmt| match stmt {
            Stmt::Set { role, .. } | Stmt::Insert { role, .. } | Stmt::Delete { role, .. } => again.contains(role),
            Stmt::Require { .. } | Stmt::Abort { .. } | Stmt::Return { .. } | Stmt::Break | Stmt::Continue => true,
            Stmt::Count { .. } => true,
            other => other.evaluation_may_fail() && !performed.contains(&number),
        };
        let mut body = Slice::of(&placed, wanted, true).block(&placed, 0, &wanted, true, &mut BTreeSet::new());
        let between = roles_read(&body).into_iter().filter(|&role| role >= 2 * count).map(|role| role - 2 * count);
        let before = again.len();
        let between: Vec<RoleId> = between.collect();
        again.extend(between);
        if again.len() > before {
            continue;
        }
        let is_outcome = |role: &RoleId| (count..2 * count).contains(role) && !again.contains(&(role - count));
        let outcomes: Vec<RoleId> = roles_read(&body).into_iter().filter(is_outcome).map(|role| role - count).collect();
        each_role_read(&mut body, &mut |role| {
            let at = outcomes.iter().position(|&outcome| outcome + count == *role);
            *role = at.map_or(*role % count, |at| count + at);
        });
        let own = transaction.roles.iter().enumerate();
        let mut roles: Vec<Role> =
            own.map(|(r, role)| Role { written: role.written && again.contains(&r), ..role.clone() }).collect();
        roles.extend(outcomes.iter().map(|&role| Role { written: false, ..transaction.roles[role].clone() }));
        return VerdictOperation { body: Transaction { body, roles, ..transaction.clone() }, outcomes };
    }
}

/// At which moment an expression reads a row. Of `n` roles, role `r` stands for the row before all updates of it,
/// `n + r` for the row after all, `2n + r` for that between some and others.
struct Moments<'a> {
    transaction: &'a Transaction,
}

impl Moments<'_> {
    /// Places the reads of a block. `before` and `after`: the roles that may be updated before and after it.
    fn block(&self, block: &mut [Stmt], before: &BTreeSet<RoleId>, after: &BTreeSet<RoleId>) {
        let mut before = before.clone();
        for i in 0..block.len() {
            let (at, rest) = block[i..].split_first_mut().expect("there is a statement");
            // A statement that ends the transaction is the last.
            let ends = matches!(at, Stmt::Return { .. });
            let after = if ends { BTreeSet::new() } else { &updated(rest) | after };
            let inside = updated(std::slice::from_ref(at));
            let rounds = match at {
                Stmt::ForEach { .. } | Stmt::ForRange { .. } => &inside - &self.once_per_round(at),
                _ => BTreeSet::new(),
            };
            at.expressions_mut().into_iter().for_each(|expr| self.place(expr, &before, &(&after | &inside)));
            let (start, end) = (&before | &rounds, &after | &rounds);
            at.blocks_mut().into_iter().for_each(|inner| self.block(inner, &start, &end));
            before.extend(inside);
        }
    }

    /// Returns the roles of which each round of a loop updates and reads another row.
    fn once_per_round(&self, stmt: &Stmt) -> BTreeSet<RoleId> {
        let Stmt::ForEach { loop_id: this, body } = stmt else { return BTreeSet::new() };
        let list = self.transaction.loops[*this];
        let mut others = BTreeSet::new();
        let mut mention = |role: RoleId, element: Option<LoopId>| {
            if element != Some(*this) {
                others.insert(role);
            }
        };
        body.iter().for_each(|stmt| {
            stmt.each(&mut |inner| {
                match inner {
                    Stmt::Set { role, element, .. }
                    | Stmt::Insert { role, element, .. }
                    | Stmt::Delete { role, element } => mention(*role, *element),
                    _ => {}
                }
                inner.expressions().into_iter().for_each(|expr| {
                    expr.each(&mut |e| {
                        if let Node::Cell { role, element, .. } | Node::Exists { role, element } = e.node {
                            mention(role, element);
                        }
                    })
                });
            })
        });
        let roles = self.transaction.roles.iter().enumerate();
        roles.filter(|(r, role)| role.over == Some(list) && !others.contains(r)).map(|(r, _)| r).collect()
    }

    fn place(&self, expr: &mut Expr, before: &BTreeSet<RoleId>, after: &BTreeSet<RoleId>) {
        let count = self.transaction.roles.len();
        expr.each_mut(&mut |inner| {
            if let Node::Cell { role, .. } | Node::Exists { role, .. } = &mut inner.node
                && before.contains(role)
            {
                *role += if after.contains(role) { 2 * count } else { count };
            }
        });
    }
}

/// Returns the roles that statements may update.
fn updated(block: &[Stmt]) -> BTreeSet<RoleId> {
    let mut roles = BTreeSet::new();
    block.iter().for_each(|stmt| {
        stmt.each(&mut |inner| {
            if let Stmt::Set { role, .. } | Stmt::Insert { role, .. } | Stmt::Delete { role, .. } = inner {
                roles.insert(*role);
            }
        })
    });
    roles
}

/// Calls `change` with the role of each read.
fn each_role_read(block: &mut [Stmt], change: &mut impl FnMut(&mut RoleId)) {
    for stmt in block {
        for expr in stmt.expressions_mut() {
            expr.each_mut(&mut |inner| {
                if let Node::Cell { role, .. } | Node::Exists { role, .. } = &mut inner.node {
                    change(role);
                }
            });
        }
        stmt.blocks_mut().into_iter().for_each(|inner| each_role_read(inner, change));
    }
}

/// Returns the roles whose rows statements read.
fn roles_read(block: &[Stmt]) -> BTreeSet<RoleId> {
    let mut roles = BTreeSet::new();
    each_role_read(&mut block.to_vec(), &mut |role| _ = roles.insert(*role));
    roles
}

/// The locals that a part needs. Statements are numbered in order, each before those of its blocks.
struct Slice {
    locals: BTreeSet<usize>,
}

impl Slice {
    /// Returns the closure over what the wanted statements need. `records`: with what is returned.
    fn of(body: &[Stmt], wanted: impl Fn(usize, &Stmt) -> bool, records: bool) -> Slice {
        let mut slice = Slice { locals: BTreeSet::new() };
        loop {
            let before = slice.locals.len();
            let kept = slice.block(body, 0, &wanted, records, &mut BTreeSet::new());
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

    /// Returns the part of a block that is kept, whose statements are numbered from `first`; the numbers go to `kept`.
    /// `records`: with what is returned.
    fn block(
        &self,
        block: &[Stmt],
        first: usize,
        wanted: &impl Fn(usize, &Stmt) -> bool,
        records: bool,
        kept: &mut BTreeSet<usize>,
    ) -> Vec<Stmt> {
        let mut number = first;
        let mut statements = Vec::new();
        for stmt in block {
            statements.push((number, self.statement(stmt, number, wanted, records, kept)));
            number += size(stmt);
        }
        // Counting that stands beside a kept statement is kept, too: no part may run without end.
        if statements.iter().any(|(_, statement)| statement.is_some()) {
            for ((_, statement), stmt) in statements.iter_mut().zip(block) {
                if matches!(stmt, Stmt::Count { .. }) {
                    statement.get_or_insert_with(|| stmt.clone());
                }
            }
        }
        let keep = |(number, statement): (usize, Option<Stmt>)| {
            statement.inspect(|_| {
                kept.insert(number);
            })
        };
        statements.into_iter().filter_map(keep).collect()
    }

    fn statement(
        &self,
        stmt: &Stmt,
        number: usize,
        wanted: &impl Fn(usize, &Stmt) -> bool,
        records: bool,
        kept: &mut BTreeSet<usize>,
    ) -> Option<Stmt> {
        let mut inner = |block: &[Stmt], first: usize| self.block(block, first, wanted, records, kept);
        let (part, empty) = match stmt {
            Stmt::If { condition, then, otherwise } => {
                let second = number + 1 + then.iter().map(size).sum::<usize>();
                let (then, otherwise) = (inner(then, number + 1), inner(otherwise, second));
                let empty = then.is_empty() && otherwise.is_empty();
                (Stmt::If { condition: condition.clone(), then, otherwise }, empty)
            }
            Stmt::ForEach { loop_id, body } => {
                let body = inner(body, number + 1);
                let empty = body.is_empty();
                (Stmt::ForEach { loop_id: *loop_id, body }, empty)
            }
            Stmt::ForRange { local, start, stop, step, body } => {
                let mut rounds = inner(body, number + 1);
                // The counter may be read after the loop. Then its rounds count, whatever else they do.
                let is_read = self.locals.contains(local);
                if rounds.is_empty() && is_read {
                    rounds.extend(body.iter().filter(|stmt| matches!(stmt, Stmt::Count { .. })).cloned());
                }
                let empty = rounds.is_empty() && !is_read;
                let (start, stop) = (start.clone(), stop.clone());
                (Stmt::ForRange { local: *local, start, stop, step: *step, body: rounds }, empty)
            }
            Stmt::Return { .. } if !records => (Stmt::Return { fields: None }, true),
            Stmt::Assign { local, .. } => (stmt.clone(), !self.locals.contains(local)),
            other => (other.clone(), true),
        };
        (!empty || wanted(number, stmt)).then_some(part)
    }
}

/// Returns the number of statements, with those of blocks.
fn size(stmt: &Stmt) -> usize {
    let mut size = 0;
    stmt.each(&mut |_| size += 1);
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::build::{Block, PlanBuilder, cell, element, event, local, named};
    use tidemill_model::{Type, Value};

    /// Two rows of one table, `from` and `to`, and what is done with them.
    fn parts(body: impl FnOnce(&mut Block)) -> Operations {
        let plan = PlanBuilder::new("parts")
            .table("accounts", |t| t.key("id", Type::Int).column_or("balance", Type::Int, Value::Int(0)))
            .source("events", |s| s.field("from", Type::Int).field("to", Type::Int).field("amount", Type::Int))
            .transaction("move", [named("events")], |t| {
                t.row("from", "accounts", [event("from")]).row("to", "accounts", [event("to")]).body(body)
            })
            .build();
        Operations::of(&analyze(&plan).expect("a valid plan"), 0.into()).expect("it can be taken apart")
    }

    fn updates(body: &[Stmt]) -> usize {
        let mut count = 0;
        body.iter().for_each(|stmt| stmt.each(&mut |inner| count += usize::from(matches!(inner, Stmt::Set { .. }))));
        count
    }

    #[test]
    fn the_verdict_reads_what_operations_leave() {
        let Operations { operations, verdict } = parts(|b| {
            b.require(cell("from", "balance").ge(event("amount")), "too little");
            // Expensive, and it can fail: in the operation only.
            b.assign("fee", cell("from", "balance") * 3);
            b.set("from", "balance", cell("from", "balance") - event("amount") - local("fee"));
            b.set("to", "balance", cell("to", "balance") + event("amount"));
            b.give([("left", cell("from", "balance"))]);
        });
        assert_eq!(operations.len(), 2);
        assert_eq!(verdict.outcomes, [0]);
        assert_eq!(verdict.body.body.len(), 2, "{:?}", verdict.body.body);
        assert!(verdict.body.roles.iter().all(|role| !role.written));
        let reads: Vec<BTreeSet<RoleId>> =
            verdict.body.body.iter().map(|stmt| roles_read(std::slice::from_ref(stmt))).collect();
        assert_eq!(reads, [BTreeSet::from([0]), BTreeSet::from([2])]);
    }

    /// An update of `to` has no row of `from`, which only what is returned reads.
    #[test]
    fn what_is_returned_is_no_part_of_an_update() {
        let Operations { operations, verdict } = parts(|b| {
            b.assign("seen", cell("from", "balance"));
            b.set("to", "balance", cell("to", "balance") + event("amount"));
            b.give([("seen", local("seen"))]);
        });
        let roles = |body: &[Stmt]| roles_read(body).into_iter().collect::<Vec<_>>();
        assert_eq!(operations.iter().map(|o| roles(&o.update.body)).collect::<Vec<_>>(), [[1]]);
        assert_eq!(roles(&verdict.body.body), [0]);
    }

    #[test]
    fn what_is_read_between_two_updates_is_computed_again() {
        let Operations { verdict, .. } = parts(|b| {
            b.set("from", "balance", cell("from", "balance") - event("amount"));
            b.require(cell("from", "balance").ge(0), "too little");
            b.set("from", "balance", cell("from", "balance") - 1);
            b.set("to", "balance", cell("to", "balance") + event("amount"));
            b.give([("left", cell("from", "balance")), ("got", cell("to", "balance"))]);
        });
        assert_eq!(verdict.outcomes, [1]);
        assert_eq!(updates(&verdict.body.body), 2);
        assert_eq!(verdict.body.roles.iter().map(|role| role.written).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn in_a_loop_what_comes_behind_may_come_before() {
        let Operations { verdict, .. } = parts(|b| {
            b.for_range("round", 0, event("amount"), |b| {
                b.require(cell("from", "balance").ge(0), "too little");
                b.set("from", "balance", cell("from", "balance") - 1);
            });
            b.set("to", "balance", cell("to", "balance") + event("amount"));
        });
        assert_eq!(verdict.outcomes, [] as [RoleId; 0]);
        assert_eq!(updates(&verdict.body.body), 1);
    }

    /// Returns a list of rows, and what is done with them.
    fn over_lines(body: impl FnOnce(&mut Block)) -> Option<Operations> {
        let plan = PlanBuilder::new("lines")
            .table("items", |t| t.key("id", Type::Int).column_or("price", Type::Int, Value::Int(0)))
            .source("events", |s| {
                s.field("amount", Type::Int).nested("lines", [("item", Type::Int.into()), ("value", Type::Int.into())])
            })
            .transaction("alter", [named("events")], |t| {
                t.row("item", "items", [element("lines", "item")]).over("lines").body(body)
            })
            .build();
        Operations::of(&analyze(&plan).expect("a valid plan"), 0.into())
    }

    #[test]
    fn rounds_that_share_nothing_are_operations() {
        let parts = over_lines(|b| {
            b.assign("factor", event("amount") * 2);
            b.for_each("line", "lines", |b| {
                b.assign("price", cell("item", "price") + element("line", "value"));
                b.for_range("again", 0, 3, |b| {
                    b.assign("price", local("price") * local("factor"));
                });
                b.set("item", "price", local("price"));
            });
            b.give([("amount", event("amount"))]);
        });
        let parts = parts.expect("it can be taken apart");
        assert_eq!(parts.operations.iter().map(|o| o.list).collect::<Vec<_>>(), [Some(1)]);
    }

    #[test]
    fn rounds_that_share_a_local_are_one() {
        // A running sum: each round needs the one before.
        let sum = over_lines(|b| {
            b.assign("sum", event("amount"));
            b.for_each("line", "lines", |b| {
                b.assign("sum", local("sum") + cell("item", "price"));
                b.set("item", "price", local("sum"));
            });
        });
        assert_eq!(sum, None);
        // Later statements read the last one that was set.
        let last = over_lines(|b| {
            b.assign("last", event("amount"));
            b.for_each("line", "lines", |b| {
                b.when(cell("item", "price").gt(0), |b| {
                    b.assign("last", cell("item", "price"));
                });
                b.set("item", "price", local("last"));
            });
        });
        assert_eq!(last, None);
        // A second loop reads what the last round of the first left.
        let behind = over_lines(|b| {
            b.assign("last", event("amount"));
            b.for_each("line", "lines", |b| {
                b.assign("last", cell("item", "price"));
            });
            b.for_each("line", "lines", |b| {
                b.set("item", "price", local("last"));
            });
        });
        assert_eq!(behind, None);
        // A local that no round sets carries something out of a loop, too.
        let between = over_lines(|b| {
            b.assign("last", event("amount"));
            b.for_each("line", "lines", |b| {
                b.assign("last", cell("item", "price"));
            });
            b.assign("more", local("last") + 1);
            b.for_each("line", "lines", |b| {
                b.set("item", "price", local("more"));
            });
        });
        assert_eq!(between, None);
    }

    #[test]
    fn a_loop_that_is_left_is_one() {
        let left = over_lines(|b| {
            b.for_each("line", "lines", |b| {
                b.when(cell("item", "price").gt(event("amount")), |b| {
                    b.leave();
                });
                b.set("item", "price", element("line", "value"));
            });
        });
        assert_eq!(left, None);
    }
}
