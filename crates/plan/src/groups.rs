//! Which transactions can never meet in a row, whatever their events: *groups*, so that each may be scheduled by
//! itself (MorphStream 2023, §6.2.3).
//!
//! **Disjoint tables.** Tables are tied together by the transactions that have roles in both; what is tied together,
//! directly or through others, is one group, and no transaction reaches beyond it.
//!
//! **Declared key groups.** A table may declare that its rows are grouped by a key column of whole numbers, into so
//! many groups: the value modulo their number. If every table of a group of tables does, alike, and every transaction
//! there gives that column the same expression of its event in all of its roles, then all rows that one transaction
//! touches have one value there, and transactions whose values fall into different groups share no row.
//!
//! **Law.** Two transactions of different groups share no row. It follows from the plan alone: a declaration that the
//! transactions do not keep to changes nothing.

use crate::program::{Expr, Node, Program, Role, Table, TableId, TransactionId};
use typed_index_collections::{TiVec, ti_vec};

/// Groups at the most; what is beyond is one group.
pub const GROUPS_MAX: usize = 8;

/// The origin of a transaction's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupOf {
    /// All have the same.
    All(usize),
    /// `first` plus the value of a key column modulo `count`; for one that touches no row, `first`.
    ByKey {
        /// The first of its groups.
        first: usize,
        /// Groups.
        count: usize,
    },
}

/// The groups of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The names of the groups, for users.
    pub names: Vec<String>,
    /// The origin of each transaction's group, by transaction.
    pub of: TiVec<TransactionId, GroupOf>,
}

impl Groups {
    /// Finds the groups of a program's keys.
    pub fn of(program: &Program) -> Groups {
        let tied = tied(program);
        let mut groups = Groups { names: Vec::new(), of: ti_vec![GroupOf::All(0); program.transactions.len()] };
        let mut roots: Vec<TableId> = Vec::new();
        for transaction in &program.transactions {
            let root = transaction.roles.first().map(|role| tied[role.table]);
            roots.extend(root.filter(|root| !roots.contains(root)));
        }
        for root in roots {
            let tables: Vec<TableId> = program.tables.keys().filter(|&table| tied[table] == root).collect();
            let is_in =
                |t: &TransactionId| program.transactions[*t].roles.first().is_some_and(|r| tied[r.table] == root);
            let transactions: Vec<TransactionId> = program.transactions.keys().filter(is_in).collect();
            let names: Vec<&str> = tables.iter().map(|&table| program.tables[table].name.as_str()).collect();
            let (name, first) = (names.join(", "), groups.names.len());
            let of = match key_groups(program, &tables, &transactions) {
                Some((column, count)) => {
                    groups.names.extend((0..count).map(|group| format!("{name}: {column} {group} of {count}")));
                    GroupOf::ByKey { first, count }
                }
                None => {
                    groups.names.push(name);
                    GroupOf::All(first)
                }
            };
            transactions.into_iter().for_each(|transaction| groups.of[transaction] = of);
        }
        if groups.names.is_empty() || groups.names.len() > GROUPS_MAX {
            return Groups { names: vec!["all".into()], of: ti_vec![GroupOf::All(0); program.transactions.len()] };
        }
        groups
    }
}

/// Returns the first of the tables that each table is tied to, by table.
fn tied(program: &Program) -> TiVec<TableId, TableId> {
    let mut tied: TiVec<TableId, TableId> = program.tables.keys().collect();
    for transaction in &program.transactions {
        let roots: Vec<TableId> = transaction.roles.iter().map(|role| tied[role.table]).collect();
        let Some(&least) = roots.iter().min() else { continue };
        tied.iter_mut().filter(|root| roots.contains(root)).for_each(|root| *root = least);
    }
    tied
}

/// Returns the column and number of the key groups that these tables declare and these transactions keep to.
fn key_groups<'a>(
    program: &'a Program,
    tables: &[TableId],
    transactions: &[TransactionId],
) -> Option<(&'a str, usize)> {
    let declared = |table: &'a Table| {
        table.groups.as_ref().map(|groups| (table.columns[groups.column].name.as_str(), groups.count))
    };
    let first = declared(&program.tables[tables[0]])?;
    let alike = tables.iter().all(|&table| declared(&program.tables[table]) == Some(first));
    (alike && transactions.iter().all(|&t| keeps_to(program, &program.transactions[t].roles))).then_some(first)
}

/// Returns whether all rows of a transaction have one value in the column of groups.
fn keeps_to(program: &Program, roles: &[Role]) -> bool {
    let of = |role: &Role| -> Option<Expr> {
        let table = &program.tables[role.table];
        let column = table.groups.as_ref()?.column;
        let place = table.key.iter().position(|&key| key == column)?;
        role.key.get(place).cloned()
    };
    let expressions: Option<Vec<Expr>> = roles.iter().map(of).collect();
    expressions.is_some_and(|all| all.iter().all(|one| *one == all[0] && is_of_event(one)))
}

/// Returns whether an expression has one value for an event: it reads neither rows nor elements of lists.
fn is_of_event(expression: &Expr) -> bool {
    let is_varying = matches!(
        expression.node,
        Node::Element { .. }
            | Node::Cell { .. }
            | Node::Exists { .. }
            | Node::Rows { .. }
            | Node::WindowRead { .. }
            | Node::SynopsisRead { .. }
            | Node::WindowNext { .. }
            | Node::WindowField { .. }
            | Node::Local(_)
    );
    !is_varying && expression.children().into_iter().all(is_of_event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::build::{PlanBuilder, TransactionBuilder, cell, element, event, named};
    use tidemill_model::{Type, Value};

    fn groups(zones: &[usize], roles: impl Fn(TransactionBuilder) -> TransactionBuilder) -> Groups {
        let mut plan = PlanBuilder::new("p");
        for (number, &zones) in zones.iter().enumerate() {
            plan = plan.table(format!("t{number}"), |t| {
                let t = t.key("zone", Type::Int).key("id", Type::Int).column_or("n", Type::Int, Value::Int(0));
                if zones > 0 { t.key_groups("zone", zones) } else { t }
            });
        }
        let plan = plan
            .source("s", |s| s.field("zone", Type::Int).field("other", Type::Int).list("ids", Type::Int))
            .transaction("first", [named("s")], |t| {
                t.row("r", "t0", [event("zone"), event("other")]).body(|b| b.set("r", "n", cell("r", "n") + 1))
            })
            .transaction("second", [named("s")], |t| roles(t).body(|_| {}))
            .build();
        Groups::of(&analyze(&plan).expect("a valid plan"))
    }

    fn of(groups: &Groups) -> &[GroupOf] {
        &groups.of.raw
    }

    #[test]
    fn disjoint_tables_are_groups_and_tied_ones_are_not() {
        let apart = groups(&[0, 0], |t| t.row("r", "t1", [event("zone"), event("other")]));
        assert_eq!(of(&apart), [GroupOf::All(0), GroupOf::All(1)]);
        assert_eq!(apart.names, ["t0", "t1"]);
        let tied = groups(&[0, 0], |t| {
            t.row("r", "t1", [event("zone"), event("other")]).read("q", "t0", [event("zone"), event("other")])
        });
        assert_eq!(of(&tied), [GroupOf::All(0); 2]);
    }

    #[test]
    fn declared_groups_hold_where_all_roles_give_one_expression() {
        let zone = || event("zone");
        let kept = groups(&[2, 2], |t| {
            t.row("r", "t0", [zone(), event("other")]).row("e", "t1", [zone(), element("ids", "")]).over("ids")
        });
        assert_eq!(of(&kept), [GroupOf::ByKey { first: 0, count: 2 }; 2]);
        assert_eq!(kept.names, ["t0, t1: zone 0 of 2", "t0, t1: zone 1 of 2"]);
        let apart = groups(&[2, 3], |t| t.row("r", "t1", [zone(), event("other")]));
        assert_eq!(of(&apart), [GroupOf::ByKey { first: 0, count: 2 }, GroupOf::ByKey { first: 2, count: 3 }]);
    }

    #[test]
    fn declared_groups_that_are_not_kept_to_are_one() {
        let one = |groups: Groups| assert_eq!(of(&groups), [GroupOf::All(0); 2]);
        let zone = || event("zone");
        // Another expression, a zone of an element, one from a row, tables that disagree.
        one(groups(&[2], |t| t.row("r", "t0", [zone(), zone()]).row("q", "t0", [event("other"), zone()])));
        one(groups(&[2], |t| t.row("e", "t0", [element("ids", ""), zone()]).over("ids")));
        one(groups(&[2], |t| t.read_or_default("r", "t0", [zone(), zone()]).row("q", "t0", [cell("r", "n"), zone()])));
        one(groups(&[2, 3], |t| t.row("r", "t0", [zone(), zone()]).row("q", "t1", [zone(), zone()])));
        one(groups(&[2, 0], |t| t.row("r", "t0", [zone(), zone()]).row("q", "t1", [zone(), zone()])));
    }
}
