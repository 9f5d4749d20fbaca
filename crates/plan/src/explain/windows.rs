//! Windows over streams, and ticks: what each keeps and when it closes.

use super::column;
use crate::analyze::REFUSED;
use crate::analyze::within;
use crate::print::literal;
use crate::{Bound, Due, DueField, Origin, Periods, Program, StreamId, TableId, Transaction, TransactionId, Unit};
use std::fmt::Write;
use tidemill_model::{Type, Value};

impl Transaction {
    /// Returns whether it is a part of a window over a stream, of a stream of ticks, or of rows that wake, and gives
    /// nothing that users see. Names of users have no dots.
    pub fn is_hidden(&self) -> bool {
        self.name.contains('.') && !self.name.ends_with(".early")
    }
}

impl Program {
    /// Returns whether a transaction passes on the first events of a stream. It has no stream of aborts.
    pub fn gives_first(&self, transaction: TransactionId) -> bool {
        let of = &self.transactions[transaction];
        self.streams[of.committed.stream].name == of.name && !of.name.contains('.')
    }
}

/// Returns whether a stream is a part of a window over a stream, or of how late events come in, and no result of its
/// own.
pub(super) fn is_hidden(program: &Program, id: StreamId) -> bool {
    match program.streams[id].origin {
        // The changes of a table are what a hidden transaction passes on, and so are the rows that have expired.
        Origin::Committed(of) => {
            let of = &program.transactions[of];
            of.is_hidden() && of.name != program.streams[id].name
        }
        Origin::Aborted(of) => {
            let is_hidden = program.transactions[of].is_hidden() && !program.streams[id].name.ends_with(REFUSED);
            is_hidden || program.gives_first(of)
        }
        // A transaction emits a second time for a window.
        Origin::Emitted(of, output) => program.transactions[of].emits[output].name.contains('.'),
        Origin::Due(ref due) if due.is_wakes() => due.is_expiry(program),
        Origin::LateRoot(_) => true,
        Origin::Map { .. } if program.late_of(id).is_some() => false,
        Origin::Failed(of) if program.late_of(of).is_some() => true,
        Origin::Due(_) | Origin::Filter { .. } | Origin::Map { .. } => program.streams[id].name.contains('.'),
        Origin::Failed(of) => is_hidden(program, of),
        _ => false,
    }
}

/// Appends the description of all windows over streams.
pub(super) fn windows(text: &mut String, program: &Program) {
    let mut title = "\nwindows over streams\n";
    for stream in &program.streams {
        let Origin::Due(due) = &stream.origin else { continue };
        let Some(name) = stream.name.strip_suffix(".due") else { continue };
        text.push_str(std::mem::take(&mut title));
        let adds = program.transactions.iter_enumerated().find(|(_, t)| t.name == format!("{name}.add"));
        let input = adds.map_or("", |(_, add)| program.streams[add.inputs[0]].name.as_str());
        let parts = stream.schema.fields.iter().filter(|field| !matches!(field.name.as_str(), "start" | "end" | "one"));
        let by: Vec<&str> = parts.map(|field| field.name.as_str()).collect();
        let by = if by.is_empty() { String::new() } else { format!(", by {}", by.join(", ")) };
        if let Some(within) = first_within(program, due) {
            let first = program.transactions.iter().find(|t| t.name == name);
            let input = first.map_or_else(
                || stream.name.clone(),
                |first| match &first.inputs[..] {
                    [input] => program.streams[*input].name.clone(),
                    inputs => {
                        let source = &program.streams[program.streams[inputs[0]].root].name;
                        format!("{source} and {source}.late")
                    }
                },
            );
            let span = literal(&units(due, within));
            let _ = writeln!(text, "  {name}: the first events within {span} of {input}");
            let _ = writeln!(
                text,
                "    keeps a row for each group that has repeats, and at most an eighth of the time longer"
            );
            continue;
        }
        let is_top =
            program.transactions.iter().any(|t| t.name == name && t.emits.iter().any(|emit| emit.name == "top"));
        let kind = if is_top { "the top of each instant".to_owned() } else { kind(due) };
        let _ = writeln!(text, "  {name}: {kind} of {input}{by}");
        let table = &program.tables[due.table];
        let kept = table.columns.iter().enumerate().filter(|(i, _)| !table.key.contains(i) && *i != due.due);
        let kept: Vec<String> = kept.map(|(i, of)| column(table, i, of)).collect();
        let _ = writeln!(text, "    keeps a row for each group with an open window: {}", kept.join(", "));
        if adds.is_some_and(|(add, _)| program.fold(add).is_some()) {
            let _ = writeln!(
                text,
                "    each worker folds the events of an epoch by groups, if these have several, and merges them into the rows"
            );
        }
        if due.bound == Bound::Never {
            let _ = writeln!(text, "    closes with an event: events are followed one by one");
        } else {
            let _ = writeln!(text, "    closes between epochs: an epoch ends where a window may");
        }
        if let Some(of) = rows(program, name) {
            let of = &program.tables[of].name;
            let _ = writeln!(text, "    gives a result for each row of {of}, with events or without");
        }
        if let Some(every) = early(program, name) {
            let span = literal(&units(due, every));
            let _ = writeln!(text, "    gives early results each {span}: an epoch ends there, too");
        }
    }
}

/// Returns the time within which events are repeats, if that is what a table of windows is for.
fn first_within(program: &Program, due: &Due) -> Option<i64> {
    program.tables[due.table].columns.iter().find_map(|column| within(&column.name))
}

fn units(due: &Due, units: i64) -> Value {
    if due.time == Type::Int { Value::Int(units) } else { Value::Duration(units) }
}

/// Returns the distance of a window's early results.
fn early(program: &Program, window: &str) -> Option<i64> {
    program.streams.iter().find_map(|stream| match &stream.origin {
        Origin::Due(Due { bound: Bound::Grid { every, .. }, .. })
            if stream.name.strip_suffix(".partial") == Some(window) =>
        {
            Some(*every)
        }
        _ => None,
    })
}

/// Returns the table of which each row has a result in a window.
pub(super) fn rows(program: &Program, window: &str) -> Option<TableId> {
    program.streams.iter().find_map(|stream| match &stream.origin {
        Origin::Due(Due { bound: Bound::Rows { of, .. }, .. }) if stream.name.strip_suffix(".rows") == Some(window) => {
            Some(*of)
        }
        _ => None,
    })
}

fn kind(due: &Due) -> String {
    let span = |length: i64| literal(&units(due, length));
    let length = due.fields.iter().find_map(|field| match field {
        DueField::Start { length } => Some(*length),
        _ => None,
    });
    match (&due.bound, length) {
        (&Bound::Grid { every, .. }, Some(length)) if length > every => {
            format!("sliding windows of {}, one each {},", span(length), span(every))
        }
        (&(Bound::Grid { every, .. } | Bound::Ticks { every, .. }), _) => {
            format!("tumbling windows of {}", span(every))
        }
        (Bound::Periods(Periods { unit, zone }), _) => match *unit {
            Unit::Span { length, .. } => format!("tumbling windows of {} in {}", span(length), zone.name),
            Unit::Months(count) => format!("tumbling windows of months({count}) in {}", zone.name),
        },
        (&Bound::After(gap), _) => format!("sessions with gaps of {}", span(gap)),
        (Bound::Never, _) => "windows by count".into(),
        (Bound::Wakes { .. } | Bound::Again(_) | Bound::Rows { .. }, _) => {
            unreachable!("what wakes or waits is no window")
        }
    }
}
