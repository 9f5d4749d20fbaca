//! Windows over streams: what each keeps and when it closes.

use super::column;
use crate::print::literal;
use crate::{
    Operator, OperatorId, OperatorKind, Origin, Periods, Program, StreamPart, TablePart, TransactionPart, Unit, Windows,
};
use std::fmt::Write;
use tidemill_model::{Type, Value};

/// Appends the description of all windows over streams.
pub(super) fn windows(text: &mut String, program: &Program) {
    let mut title = "\nwindows over streams\n";
    for (id, operator) in program.operators.iter_enumerated() {
        let (OperatorKind::Window { .. } | OperatorKind::Top { .. } | OperatorKind::First { .. }) = operator.kind
        else {
            continue;
        };
        text.push_str(std::mem::take(&mut title));
        match &operator.kind {
            OperatorKind::First { within, .. } => first(text, program, operator, *within),
            _ => window(text, program, id, operator),
        }
    }
}

/// Appends the description of first events.
fn first(text: &mut String, program: &Program, operator: &Operator, within: i64) {
    let (name, span) = (&operator.name, literal(&units(operator, within)));
    let _ = writeln!(text, "  {name}: the first events within {span} of {}", inputs(program, operator));
    let _ = writeln!(text, "    keeps a row for each group that has repeats, and at most an eighth of the time longer");
}

/// Appends the description of a window or a top.
fn window(text: &mut String, program: &Program, id: OperatorId, operator: &Operator) {
    let (by, kind) = match &operator.kind {
        OperatorKind::Window { windows, by, .. } => (by, kind(operator, windows)),
        OperatorKind::Top { by, .. } => (by, "the top of each instant".to_owned()),
        _ => unreachable!("it is a window or a top"),
    };
    let by = if by.is_empty() { String::new() } else { format!(", by {}", by.join(", ")) };
    let _ = writeln!(text, "  {}: {kind} of {}{by}", operator.name, inputs(program, operator));
    if let Some(table) = program.table_of(id, TablePart::Windows) {
        let due = program.stream_of(id, StreamPart::Due).and_then(|due| match &program.streams[due].origin {
            Origin::Due(due) => Some(due.due),
            _ => None,
        });
        let table = &program.tables[table];
        let kept = table.columns.iter().enumerate().filter(|(i, _)| !table.key.contains(i) && Some(*i) != due);
        let kept: Vec<String> = kept.map(|(i, of)| column(table, i, of)).collect();
        let _ = writeln!(text, "    keeps a row for each group with an open window: {}", kept.join(", "));
    }
    if program.transaction_of(id, TransactionPart::Add).is_some_and(|add| program.fold(add).is_some()) {
        let _ = writeln!(
            text,
            "    each worker folds the events of an epoch by groups, if these have several, and merges them into the rows"
        );
    }
    let OperatorKind::Window { windows, early, rows, .. } = &operator.kind else {
        let _ = writeln!(text, "    closes between epochs: an epoch ends where a window may");
        return;
    };
    let _ = match windows {
        Windows::Counting { .. } => writeln!(text, "    closes with an event: events are followed one by one"),
        _ => writeln!(text, "    closes between epochs: an epoch ends where a window may"),
    };
    if let Some(of) = rows {
        let of = &program.tables[*of].name;
        let _ = writeln!(text, "    gives a result for each row of {of}, with events or without");
    }
    if let Some(every) = early {
        let span = literal(&units(operator, *every));
        let _ = writeln!(text, "    gives early results each {span}: an epoch ends there, too");
    }
}

/// Returns the names of the streams that an operator takes.
fn inputs(program: &Program, operator: &Operator) -> String {
    let names: Vec<&str> = operator.inputs.iter().map(|&input| program.streams[input].name.as_str()).collect();
    names.join(" and ")
}

fn units(operator: &Operator, units: i64) -> Value {
    if operator.time == Some(Type::Time) { Value::Duration(units) } else { Value::Int(units) }
}

fn kind(operator: &Operator, windows: &Windows) -> String {
    let span = |length: i64| literal(&units(operator, length));
    match windows {
        Windows::Sliding { length, every, .. } => {
            format!("sliding windows of {}, one each {},", span(*length), span(*every))
        }
        Windows::Tumbling { length, .. } => format!("tumbling windows of {}", span(*length)),
        Windows::Calendar(Periods { unit, zone }) => match *unit {
            Unit::Span { length, .. } => format!("tumbling windows of {} in {}", span(length), zone.name),
            Unit::Months(count) => format!("tumbling windows of months({count}) in {}", zone.name),
        },
        Windows::Session { gap } => format!("sessions with gaps of {}", span(*gap)),
        Windows::Counting { .. } => "windows by count".into(),
    }
}
