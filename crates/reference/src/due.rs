//! What is due at times: rows of hidden tables ([`tidemill_plan::Due`]), found by looking at all rows.

use crate::{NextEvent, Record, Reference};
use tidemill_model::{Position, Type, Value};
use tidemill_plan::{Due, DueField, Origin, Program, StreamId};

/// The streams of what is due, in the order of the transactions that run on them.
pub fn due_streams(program: &Program) -> Vec<StreamId> {
    let is_due = |s: &StreamId| matches!(program.streams[*s].origin, Origin::Due(_));
    let mut dues: Vec<StreamId> = program.streams.keys().filter(is_due).collect();
    dues.sort_by_key(|&s| program.streams[s].deliveries.first().map(|delivery| delivery.transaction));
    dues
}

impl Reference<'_> {
    /// The events of a stream of what is due at a boundary, in order.
    pub fn due(&self, stream: StreamId, boundary: i64) -> Vec<NextEvent> {
        let due = self.due_of(stream);
        let mut rows = self.table(due.table);
        rows.retain(|row| row[due.due] == Value::Int(boundary));
        rows.sort_by_key(|row| row[due.first].word());
        let event = |(offset, row): (usize, Record)| NextEvent {
            root: stream,
            position: Position { time: boundary.saturating_sub(1), source: u32::MAX, offset: offset as u64 },
            is_known: false,
            event: due.fields.iter().map(|field| value(due, field, &row, boundary)).collect(),
        };
        rows.into_iter().enumerate().map(event).collect()
    }

    /// Runs everything that is due at boundaries up to a time, each boundary before the next.
    pub fn run_due(&mut self, through: i64) {
        let streams = due_streams(self.program);
        let first = |of: &Self, stream: &StreamId| {
            let due = of.due_of(*stream);
            of.table(due.table).iter().filter_map(|row| row[due.due].word()).min()
        };
        while let Some(boundary) = streams.iter().filter_map(|s| first(self, s)).min().filter(|&b| b <= through) {
            for &stream in &streams {
                for event in self.due(stream, boundary) {
                    self.process(event);
                }
            }
        }
    }

    /// The end of time: everything that is due runs.
    pub fn end(&mut self) {
        self.run_due(i64::MAX);
    }

    fn due_of(&self, stream: StreamId) -> &Due {
        match &self.program.streams[stream].origin {
            Origin::Due(due) => due,
            _ => unreachable!("a stream of what is due"),
        }
    }
}

fn value(due: &Due, field: &DueField, row: &Record, boundary: i64) -> Value {
    let time = |units: i64| if due.time == Type::Int { Value::Int(units) } else { Value::Time(units) };
    match *field {
        DueField::Part { none: Some(none), .. } if row[none] == Value::Bool(true) => Value::Null,
        DueField::Part { column, .. } => row[column].clone(),
        DueField::Start { length } => time(boundary.saturating_sub(length)),
        DueField::End => time(boundary),
    }
}
