//! One transaction in words.

use super::expression::Names;
use crate::analyze::no_row;
use crate::dependencies::{CellUse, Meeting, Write as RowWrite, WriteKind, meetings, writes};
use crate::program::{Expr, Stmt};
use crate::{
    CANNOT_FAIL, Condition, Direction, Missing, Nesting, Operation, Operations, Order, Origin, Program, Role,
    Selection, Table, TableId, Test, Transaction, TransactionId, Waves,
};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Appends the description of a transaction: inputs, roles, body, reasons to abort.
pub(super) fn transaction(text: &mut String, program: &Program, id: TransactionId) {
    let transaction = &program.transactions[id];
    let names = Names::body(program, transaction);
    let inputs = transaction.inputs.iter().map(|&i| program.streams[i].name.clone()).collect();
    let writes = writes(transaction);
    let _ = writeln!(text, "transaction {}", transaction.name);
    section(text, "runs on", inputs);
    let shown = transaction.roles.iter().filter(|role| role.wakes.is_none());
    section(text, "rows", shown.map(|role| row(program, transaction, role)).collect());
    section(text, "reads", reads(&names, transaction));
    section(text, "writes", writes.iter().map(|w| written(&names, transaction, w)).collect());
    section(text, "requires", requirements(&names, transaction));
    let hidden = transaction.roles.iter().filter(|role| role.wakes.is_some());
    let hidden: Vec<String> = hidden.map(|role| no_row(&program.tables[role.table].name, &role.name)).collect();
    let shown = transaction.reasons.iter().filter(|reason| !reason.ends_with(CANNOT_FAIL) && !hidden.contains(reason));
    section(text, "aborts with", shown.cloned().collect());
    section(text, "dependencies", dependencies(program, &names, transaction, &writes));
    section(text, "aliasing", aliasing(program, transaction));
    section(text, "operations", operations(program, id));
    section(text, "execution", vec![execution(program, id)]);
}

fn section(text: &mut String, title: &str, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {title}");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
}

fn row(program: &Program, transaction: &Transaction, role: &Role) -> String {
    let mode = if role.written { "read and write" } else { "read only" };
    if role.is_chosen() {
        return format!("{} = {}, {mode}", role.name, selected(program, transaction, role));
    }
    let names = match role.is_dependent() {
        true => Names::body(program, transaction),
        false => Names::key(&transaction.schema, role.over),
    };
    let key: Vec<String> = role.key.iter().map(|k| names.expression(k)).collect();
    let table = &program.tables[role.table].name;
    let missing = match (role.missing, role.create) {
        (Missing::Abort, _) => "a missing row aborts",
        (Missing::Default, true) => "a missing row is created with the defaults",
        (Missing::Default, false) => "a missing row reads as the defaults",
    };
    let found = if role.is_dependent() { ", found when that is read" } else { "" };
    let each = role.each.map(|rows| format!(" for each of {}", transaction.roles[rows].name)).unwrap_or_default();
    format!("{} = {table}[{}]{each}{found}, {mode}, {missing}", role.name, key.join(", "))
}

/// Returns the rows of a role that is not one row.
fn selected(program: &Program, transaction: &Transaction, role: &Role) -> String {
    let Table { name, columns, indexes, .. } = &program.tables[role.table];
    let names = Names::body(program, transaction);
    let condition = |Condition { column, test }: &Condition| {
        let column = &columns[*column].name;
        match test {
            Test::Same(value) => format!("{column} is {}", names.expression(value)),
            Test::Between { low, high } => {
                let bound = |(word, bound): (&str, &Option<Expr>)| {
                    bound.as_ref().map(|bound| format!("{word} {}", names.expression(bound)))
                };
                let bounds: Vec<String> =
                    [("at least", low), ("at most", high)].into_iter().filter_map(bound).collect();
                let within = if bounds.is_empty() { "not None".into() } else { bounds.join(" and ") };
                format!("{column} is {within}")
            }
        }
    };
    let Selection { conditions, order } = &role.selection;
    let conditions: Vec<String> = conditions.iter().map(condition).collect();
    let mut text = match conditions.is_empty() {
        true => format!("all rows of {name}"),
        false => format!("rows of {name} whose {}", conditions.join(" and whose ")),
    };
    if let Some(Order { column, direction, count }) = order {
        let which = if *direction == Direction::Ascending { "least" } else { "greatest" };
        let count = if *count == 1 { "one".into() } else { count.to_string() };
        let _ = write!(text, ", the {count} of the {which} {}", columns[*column].name);
    }
    let fits = indexes.iter().filter_map(|index| Some((role.selection.fit(index)?, index)));
    match fits.max_by_key(|(fit, _)| fit.rank()) {
        Some((_, index)) => {
            let _ = write!(text, ", found by the index of {}", program.tables[role.table].named(index));
        }
        None if !role.selection.is_all() => text.push_str(", found by a search of all rows"),
        None => {}
    }
    text
}

fn reads(names: &Names<'_>, transaction: &Transaction) -> Vec<String> {
    let roles = transaction.roles.iter().enumerate();
    let shown = roles.filter(|(_, role)| role.wakes.is_none());
    shown.flat_map(|(id, role)| role.reads.iter().map(move |&column| names.cell(id, column))).collect()
}

fn written(names: &Names<'_>, transaction: &Transaction, write: &RowWrite) -> String {
    let role = &transaction.roles[write.role];
    if let Some(woken) = role.wakes {
        let what = if write.kind == WriteKind::Delete { "no wake" } else { "wake" };
        return format!("{} ({what})", transaction.roles[woken].name);
    }
    let role = &role.name;
    match write.kind {
        WriteKind::Set(column) => names.cell(write.role, column),
        WriteKind::Insert => format!("{role} (insert)"),
        WriteKind::Delete => format!("{role} (delete)"),
    }
}

fn requirements(names: &Names<'_>, transaction: &Transaction) -> Vec<String> {
    let mut lines = Vec::new();
    for statement in &transaction.body {
        statement.each(&mut |inner| {
            if let Stmt::Require { condition, reason } = inner {
                let reason = &transaction.reasons[*reason as usize];
                lines.push(format!("{}, else {reason:?}", names.expression(condition)));
            }
        });
    }
    lines
}

fn dependencies(program: &Program, names: &Names<'_>, transaction: &Transaction, writes: &[RowWrite]) -> Vec<String> {
    let mut lines = Vec::new();
    let tables: BTreeSet<TableId> = writes.iter().map(|w| transaction.roles[w.role].table).collect();
    for table in tables.into_iter().map(|table| &program.tables[table]).filter(|table| !table.is_hidden) {
        let table = &table.name;
        lines.push(format!("temporal: each row of {table} sees its events in order"));
    }
    for write in writes {
        let others = |used: &&CellUse| used.0 != write.role;
        let needs: Vec<String> = write.uses.iter().filter(others).map(|u| cell_use(names, transaction, *u)).collect();
        if !needs.is_empty() {
            lines.push(format!("parametric: {} needs {}", written(names, transaction, write), needs.join(", ")));
        }
    }
    if !writes.is_empty() && (writes.len() > 1 || !requirements(names, transaction).is_empty()) {
        let all: Vec<String> = writes.iter().map(|w| written(names, transaction, w)).collect();
        lines.push(format!("logical: all or nothing of {}", all.join(", ")));
    }
    lines
}

fn cell_use(names: &Names<'_>, transaction: &Transaction, (role, column): CellUse) -> String {
    match column {
        Some(column) => names.cell(role, column),
        None => match transaction.roles[role].wakes {
            Some(woken) => format!("{} (wake)", transaction.roles[woken].name),
            None if transaction.roles[role].is_chosen() => format!("len({})", transaction.roles[role].name),
            None => format!("{}.exists", transaction.roles[role].name),
        },
    }
}

fn aliasing(program: &Program, transaction: &Transaction) -> Vec<String> {
    let name = |role: usize| &transaction.roles[role].name;
    let shown = |&(a, _, _): &(usize, usize, Meeting)| transaction.roles[a].wakes.is_none();
    let line = |(a, b, meeting): (usize, usize, Meeting)| {
        let table = &program.tables[transaction.roles[a].table].name;
        match meeting {
            _ if a == b => format!("two elements of {} may be one row of {table}", name(a)),
            Meeting::Always => format!("{} and {} are one row of {table}", name(a), name(b)),
            Meeting::Possible => format!("{} and {} may be one row of {table}", name(a), name(b)),
        }
    };
    meetings(program, transaction).into_iter().filter(shown).map(line).collect()
}

/// Returns the parts that it can be taken apart into, where it can.
fn operations(program: &Program, id: TransactionId) -> Vec<String> {
    let transaction = &program.transactions[id];
    let Some(parts) = Operations::of(program, id) else { return Vec::new() };
    let line = |operation: &Operation| {
        let role = |&r: &usize| {
            let role = &transaction.roles[r];
            if role.written { role.name.clone() } else { format!("{} (read only)", role.name) }
        };
        let roles: Vec<String> = operation.roles.iter().map(role).collect();
        let list = operation.list.map(|list| &transaction.schema.fields[list].name);
        let apart = list.map_or_else(String::new, |list| format!(", each element of {list} by itself"));
        format!("update of {}{apart}", roles.join(", "))
    };
    parts.operations.iter().map(line).chain(["verdict".into()]).collect()
}

/// Returns a sentence that says whether the transaction has to run event by event, and why.
fn execution(program: &Program, id: TransactionId) -> String {
    let transaction = &program.transactions[id];
    match &transaction.nesting {
        Nesting::Alone => {}
        Nesting::In(root) => {
            let root = &program.transactions[*root].name;
            return format!("one event at a time, nested in {root}, which aborts if it does");
        }
        Nesting::Root(nested) => {
            let names: Vec<&str> = nested.iter().map(|n| program.transactions[n.transaction].name.as_str()).collect();
            return format!("one event at a time, as one with {}: all commit or none does", names.join(", "));
        }
    }
    let reached = |from: &Transaction| -> Vec<String> {
        let emits = from.emits.iter().map(|e| e.stream);
        let outputs = emits.chain([from.committed.stream, from.aborted]);
        let deliveries = outputs.flat_map(|o| &program.streams[o].deliveries);
        let names: BTreeSet<&str> = deliveries.map(|d| program.transactions[d.transaction].name.as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    };
    if let Some(role) = transaction.roles.iter().find(|role| role.is_dependent()) {
        return format!("one event at a time, as the key of {} is read from a row", role.name);
    }
    if let Some(role) = transaction.roles.iter().find(|role| role.scan.is_some()) {
        let table = &program.tables[role.table];
        let columns: BTreeSet<&str> = role.selection.columns().map(|c| table.columns[c].name.as_str()).collect();
        let searched: Vec<&str> = columns.into_iter().collect();
        return match role.selection.is_all() {
            true => format!("one event at a time, as {} is all rows of {}", role.name, table.name),
            false => {
                format!("one event at a time, as {} searches {} of {}", role.name, searched.join(", "), table.name)
            }
        };
    }
    let cause = program.transactions.iter().find(|t| reached(t).contains(&transaction.name));
    if Waves::of(program).is_some() {
        let stretches = match program.has_stretches() {
            true => format!("; in order, on one worker, where {} within the epoch", due_within(program)),
            false => String::new(),
        };
        return match cause {
            None => format!("whole epochs at a time{stretches}"),
            Some(cause) => format!("whole epochs at a time, after {}{stretches}", cause.name),
        };
    }
    if transaction.cascades {
        return format!("one event at a time, as its events reach {}", reached(transaction).join(", "));
    }
    match cause {
        Some(cause) => format!("one event at a time, as events of {} reach it", cause.name),
        None => "one event at a time, as other transactions of the program run so".into(),
    }
}

/// Returns what can be due within an epoch.
fn due_within(program: &Program) -> &'static str {
    let dues = || {
        program.streams.iter().filter_map(|stream| match &stream.origin {
            Origin::Due(due) => Some(due),
            _ => None,
        })
    };
    let wakes = dues().any(|due| due.is_wakes() && !due.is_expiry(program));
    let expires = dues().any(|due| due.is_expiry(program));
    let ends = dues().any(|due| !due.is_wakes());
    match (wakes, expires, ends) {
        (true, true, true) => "rows wake or expire, or sessions end,",
        (true, false, true) => "rows wake or sessions end",
        (false, true, true) => "rows expire or sessions end",
        (false, false, true) => "sessions end",
        (true, true, false) => "rows wake or expire",
        (false, true, false) => "rows expire",
        _ => "rows wake",
    }
}
