//! The serial interpreter of a [`Program`]: the oracle every execution is held to.
//!
//! It processes one event after the other in position order, each with its whole cascade, on plain
//! ordered maps. It is small and slow on purpose, and shares no code with the engine beyond the
//! program: whatever both get wrong in the same way, nobody would notice.
//!
//! Where the program's comments leave a choice, this crate takes the simplest:
//!
//! - An event is *on* a stream (and on the streams derived from it) from the moment at which its
//!   transaction commits or aborts. So a stream's output is in the order of emission, and what is
//!   derived from it in the same order.
//! - A key is null as a whole as soon as one of its columns is: no key column of it is readable, and
//!   an abort shows none of them.
//! - Deleting a missing row aborts also where writes would create it.
//! - Late events are on their `late` stream in offset order, and on no other. Greatest time minus
//!   lateness is taken without overflow.
//! - Floats come out as the processor gives them. Which NaN an operation gives is not defined, so
//!   comparisons with the reference have to take all NaNs for one.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arithmetic;
mod expression;
mod flow;
mod table;
mod transaction;

use table::Table;
use tidemill_model::{Position, Value};
use tidemill_plan::{Origin, Program, StreamId, TableId};

/// The values of an event or row, in the order of its schema or columns.
type Record = Vec<Value>;

/// What became of the events that one transaction ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// How many committed.
    pub committed: u64,
    /// How many aborted, by index into [`tidemill_plan::Transaction::reasons`].
    pub aborted: Vec<u64>,
}

/// The state of an application and all that it has emitted.
pub struct Reference<'p> {
    program: &'p Program,
    tables: Vec<Table>,
    /// By stream.
    outputs: Vec<Vec<Record>>,
    /// By transaction.
    counts: Vec<TransactionCounts>,
    /// By source.
    sources: Vec<Source>,
}

/// How far a source has come.
struct Source {
    stream: StreamId,
    offset: u64,
    time_max: i64,
}

impl<'p> Reference<'p> {
    /// An application before its first event, with empty tables.
    pub fn new(program: &'p Program) -> Self {
        let is_source = |s: &StreamId| matches!(program.streams[*s].origin, Origin::Source { .. });
        let counts = |reasons: &Vec<String>| TransactionCounts { committed: 0, aborted: vec![0; reasons.len()] };
        Reference {
            program,
            tables: program.tables.iter().map(Table::new).collect(),
            outputs: vec![Vec::new(); program.streams.len()],
            counts: program.transactions.iter().map(|t| counts(&t.reasons)).collect(),
            sources: (0..program.streams.len())
                .filter(is_source)
                .map(|stream| Source { stream, offset: 0, time_max: i64::MIN })
                .collect(),
        }
    }

    /// Puts rows (values in column order) into a table, before the first event.
    pub fn preload(&mut self, table: TableId, rows: impl IntoIterator<Item = Vec<Value>>) {
        for row in rows {
            self.tables[table].put(row);
        }
    }

    /// Runs a history: for each source the good records in offset order. Further calls continue where
    /// the last one stopped, as if all their events had come later.
    pub fn run(&mut self, sources: &[Vec<Vec<Value>>]) {
        let mut events = Vec::new();
        for (source, records) in sources.iter().enumerate() {
            for record in records {
                if let Some(position) = self.admit(source, record) {
                    events.push((position, record.clone()));
                }
            }
        }
        events.sort_by_key(|(position, _)| *position);
        for (position, event) in events {
            let stream = self.sources[position.source as usize].stream;
            self.process_root(stream, event);
        }
    }

    /// The position of a source's next record, or none where it is late.
    fn admit(&mut self, source: usize, record: &Record) -> Option<Position> {
        let state = &mut self.sources[source];
        let stream = &self.program.streams[state.stream];
        let Origin::Source { source, lateness, late, .. } = stream.origin else { unreachable!("chosen as a source") };
        let offset = state.offset;
        state.offset += 1;
        let Some(field) = stream.event_time else {
            return Some(Position { time: offset as i64, source, offset });
        };
        let time = record[field].word().expect("event time is a time or an int, never null");
        if i128::from(time) < i128::from(state.time_max) - i128::from(lateness) {
            self.outputs[late].push(record.clone());
            return None;
        }
        state.time_max = state.time_max.max(time);
        Some(Position { time, source, offset })
    }

    /// Everything that was emitted on a stream so far, in order.
    pub fn output(&self, stream: StreamId) -> &[Vec<Value>] {
        &self.outputs[stream]
    }

    /// The rows of a table in the order of their keys, values in column order.
    pub fn table(&self, table: TableId) -> Vec<Vec<Value>> {
        self.tables[table].rows()
    }

    /// By transaction, how many events committed and aborted.
    pub fn counts(&self) -> &[TransactionCounts] {
        &self.counts
    }
}
