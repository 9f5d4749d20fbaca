//! A program in words: the flow, and what each transaction touches, needs and waits for.

mod expression;
mod flow;
mod graph;
mod joins;
mod transaction;
mod windows;

use crate::{
    CANNOT_FAIL, Expire, GroupOf, Groups, Nesting, Origin, Program, StreamId, TransactionId, TransactionPart, Waves,
    with_deep_stack,
};
pub use graph::{Carried, FlowEdge, FlowGraph, FlowNode, NodeKind, shown_streams};
use std::fmt::Write;
use tidemill_model::Value;
use tidemill_model::civil::span_text;

/// Returns a readable account of the whole program.
pub fn explain(program: &Program) -> String {
    explain_called(program, &[])
}

/// Explains a program of which some transactions are called: nobody has to read their streams.
pub fn explain_called(program: &Program, called: &[TransactionId]) -> String {
    with_deep_stack(|| account(program, called))
}

fn account(program: &Program, called: &[TransactionId]) -> String {
    let mut text = format!("application {}\n", program.name);
    if program.tables.iter().any(|table| !table.is_hidden) {
        text.push_str("\ntables\n");
    }
    for table in program.tables.iter().filter(|table| !table.is_hidden) {
        let columns: Vec<String> = table.columns.iter().enumerate().map(|(i, c)| column(table, i, c)).collect();
        let _ = writeln!(text, "  {}: {}", table.name, columns.join(", "));
        let _ = match &table.expire {
            Some(Expire::After(length)) => writeln!(text, "    rows expire {} after their last write", after(length)),
            Some(Expire::At(column)) => writeln!(text, "    rows expire by {column}"),
            None => Ok(()),
        };
        for index in &table.indexes {
            let _ = writeln!(text, "    index of {}", table.named(index));
        }
    }
    // Transactions that run one event at a time are not scheduled.
    if Waves::of(program).is_some() {
        groups(&mut text, program);
        speculation(&mut text, program);
    }
    windows::windows(&mut text, program);
    joins::joins(&mut text, program);
    text.push_str("\nflow\n");
    for id in shown_streams(program) {
        flow::stream(&mut text, program, id);
    }
    for (id, _) in program.transactions.iter_enumerated().filter(|(_, transaction)| !transaction.is_hidden()) {
        text.push('\n');
        transaction::transaction(&mut text, program, id);
    }
    for warning in warnings_called(program, called) {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

/// Groups of transactions, where there are several.
fn groups(text: &mut String, program: &Program) {
    let groups = Groups::of(program);
    if groups.names.len() < 2 {
        return;
    }
    text.push_str("\ngroups of transactions that share no row, each scheduled by itself\n");
    for (group, name) in groups.names.iter().enumerate() {
        let is_in = |t: &TransactionId| match groups.of[*t] {
            GroupOf::All(all) => all == group,
            GroupOf::ByKey { first, count } => (first..first + count).contains(&group),
        };
        let transactions = program.transactions.keys().filter(is_in);
        let names: Vec<&str> = transactions.map(|t| program.transactions[t].name.as_str()).collect();
        let _ = writeln!(text, "  {name}: {}", names.join(", "));
    }
}

/// Explains why no policy runs transactions again, where none does.
fn speculation(text: &mut String, program: &Program) {
    let shown = |t: &&crate::Transaction| !t.is_hidden();
    let is_final = |t: &crate::Transaction| t.is_final(program).map(|why| format!("{} {why}", t.name));
    let reasons: Vec<String> = program.transactions.iter().filter(shown).filter_map(is_final).collect();
    if !reasons.is_empty() {
        let _ = write!(text, "\nupdates wait for verdicts under every policy: ");
        let _ = writeln!(text, "{}, which could not be taken back", reasons.join(", "));
    }
}

fn after(length: &Value) -> String {
    match length {
        Value::Duration(length) => span_text(*length),
        other => crate::print::literal(other),
    }
}

fn column(table: &crate::Table, index: usize, column: &crate::Column) -> String {
    if let Some(window) = &column.window {
        return format!("{}: {window}", column.name);
    }
    let key = if table.key.contains(&index) { "key " } else { "" };
    let default = match &column.default {
        Some(value) => format!(" = {}", expression::value(value, column.ty.ty)),
        None => String::new(),
    };
    format!("{key}{}: {}{default}", column.name, column.ty)
}

/// Returns warnings of what is allowed but probably not meant: streams that carry events nowhere.
///
/// Late and bad events are always counted, so nothing is said of them; nor of the events that pass
/// through a transaction that returns nothing.
pub fn warnings(program: &Program) -> Vec<String> {
    warnings_called(program, &[])
}

/// Returns the warnings of a program of which some transactions are called: the caller has the outcome, so nobody has
/// to read their streams.
pub fn warnings_called(program: &Program, called: &[TransactionId]) -> Vec<String> {
    let is_reply = |id: StreamId| match program.streams[id].origin {
        Origin::Committed(of) | Origin::Aborted(of) => called.contains(&of),
        _ => false,
    };
    let unused = program.streams.keys().filter(|&id| !used(program, id) && carries(program, id) && !is_reply(id));
    let unused = unused.filter(|&id| program.is_shown(id));
    let unused = unused.map(|id| format!("stream '{}' has no sink and nothing reads it", program.streams[id].name));
    unused.chain(empty(program)).collect()
}

/// Returns warnings of streams that are used though no event can be there: aborts of transactions that abort as a part
/// of another.
fn empty(program: &Program) -> Vec<String> {
    let of_nested = |t: &crate::Transaction| match t.nesting {
        Nesting::In(root) if used(program, t.aborted) => {
            let (name, root) = (&program.streams[t.aborted].name, &program.transactions[root].name);
            Some(format!("stream '{name}' stays empty: if {} aborts, '{root}.aborted' has the event", t.name))
        }
        _ => None,
    };
    program.transactions.iter().filter_map(of_nested).collect()
}

/// Returns the name of the stream of a source's late events, if nothing reads it.
pub fn unread_late(program: &Program, source: StreamId) -> Option<&str> {
    let (id, late) = program.streams.iter_enumerated().find(|(id, _)| program.late_of(*id) == Some(source))?;
    (!used(program, id)).then_some(late.name.as_str())
}

fn used(program: &Program, id: StreamId) -> bool {
    program.sinks.iter().any(|s| s.stream == id) || !flow::readers(program, id).is_empty()
}

fn carries(program: &Program, id: StreamId) -> bool {
    let can_fail = |reasons: &[String]| reasons.iter().any(|r| !r.ends_with(CANNOT_FAIL));
    match program.streams[id].origin {
        Origin::Late(_) | Origin::Bad(_) => false,
        // A clock is there so that time passes.
        Origin::Source { lateness, .. } if lateness < 0 => false,
        Origin::Map { .. } if program.late_of(id).is_some() => false,
        // Rows may expire so that they are gone.
        Origin::Committed(of) if program.transactions[of].part() == Some(TransactionPart::Expire) => false,
        Origin::Committed(transaction) => !program.transactions[transaction].committed.passes_event,
        Origin::Aborted(transaction) if program.transactions[transaction].is_nested() => false,
        Origin::Aborted(transaction) => can_fail(&program.transactions[transaction].reasons),
        Origin::Failed(stream) => match &program.streams[stream].origin {
            Origin::Filter { reasons, .. } | Origin::Map { reasons, .. } => can_fail(reasons),
            _ => false,
        },
        _ => true,
    }
}

/// Returns an expression of a transaction's body, as its user might have written it.
pub fn expression_text(program: &Program, transaction: &crate::Transaction, expr: &crate::program::Expr) -> String {
    expression::Names::body(program, transaction).expression(expr)
}
