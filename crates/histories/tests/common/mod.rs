//! Running a history on the reference, and everything that can be seen of it afterwards.

#![allow(dead_code, reason = "no test uses all of it")]

use tidemill_histories::{History, same_rows};
use tidemill_model::Value;
use tidemill_plan::{Program, StreamId, TransactionId};
use tidemill_reference::{Reference, TransactionCounts};
use typed_index_collections::TiVec;

/// The result of a run.
pub struct Seen {
    pub outputs: TiVec<StreamId, Vec<Vec<Value>>>,
    pub tables: Vec<Vec<Vec<Value>>>,
    pub counts: TiVec<TransactionId, TransactionCounts>,
}

impl Seen {
    /// Runs the data of a history through a program.
    pub fn of(program: &Program, history: &History) -> Self {
        let mut reference = Reference::new(program);
        for (table, rows) in &history.preload {
            reference.preload(*table, rows.iter().cloned());
        }
        reference.run(&history.sources);
        Seen {
            outputs: program.streams.keys().map(|s| reference.output(s).to_vec()).collect(),
            tables: program.tables.keys().map(|t| reference.table(t)).collect(),
            counts: reference.counts().to_vec(),
        }
    }

    /// Returns whether outputs and tables are the same to the bit.
    pub fn same(&self, other: &Seen) -> bool {
        let all = |l: &[Vec<Vec<Value>>], r: &[Vec<Vec<Value>>]| l.iter().zip(r).all(|(l, r)| same_rows(l, r));
        all(&self.outputs.raw, &other.outputs.raw) && all(&self.tables, &other.tables)
    }
}
