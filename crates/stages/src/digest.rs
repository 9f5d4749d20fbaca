//! A digest of an epoch's results, for comparison with a replay, another run or the reference interpreter.

use arrow_array::RecordBatch;
use std::fmt::Write;
use tidemill_model::StreamDigest;
use tidemill_plan::{Origin, Program, Stream, StreamId, TransactionId};
use typed_index_collections::TiVec;

/// The digest of an epoch's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpochDigest {
    /// The digest of each sink's events, by sink.
    pub sinks: Vec<StreamDigest>,
    /// The numbers of commits and of aborts, by transaction.
    pub transactions: TiVec<TransactionId, (u64, u64)>,
    /// The events of the `committed` stream of each transaction, if logging is full; otherwise empty.
    pub committed: TiVec<TransactionId, Option<RecordBatch>>,
}

impl EpochDigest {
    /// Returns a readable description of how another digest differs; none if they are equal.
    pub fn difference(&self, other: &EpochDigest, program: &Program, names: [&str; 2]) -> Option<String> {
        let mut text = String::new();
        for ((t, one), two) in self.transactions.iter_enumerated().zip(&other.transactions) {
            if one != two {
                let name = &program.transactions[t].name;
                let _ = write!(
                    text,
                    "; transaction {name}: {} committed and {} aborted in {}, {} and {} in {}",
                    one.0, one.1, names[0], two.0, two.1, names[1]
                );
            }
        }
        for (s, (one, two)) in self.sinks.iter().zip(&other.sinks).enumerate().filter(|(_, (one, two))| one != two) {
            let (name, stream) = (&program.sinks[s].name, &program.streams[program.sinks[s].stream].name);
            let _ = match one.events == two.events {
                true => write!(text, "; sink {name} ({stream}): other values in its {} events", one.events),
                false => write!(
                    text,
                    "; sink {name} ({stream}): {} events in {}, {} in {}",
                    one.events, names[0], two.events, names[1]
                ),
            };
        }
        // Either digest may have been logged without these events.
        for ((t, one), two) in
            self.committed.iter_enumerated().zip(&other.committed).filter(|((_, one), two)| one != two)
        {
            let name = &program.transactions[t].name;
            let rows =
                |batch: &Option<RecordBatch>, at| batch.as_ref().filter(|b| at < b.num_rows()).map(|b| b.slice(at, 1));
            let first = 1 + (0..).find(|&at| rows(one, at) != rows(two, at)).expect("they differ");
            let _ = write!(text, "; transaction {name}: another event is number {first} of those that committed");
        }
        if self.sinks.len() != other.sinks.len() || self.transactions.len() != other.transactions.len() {
            text.push_str("; they are of different programs");
        }
        (!text.is_empty()).then(|| text.split_off(2))
    }
}

/// Returns the streams of committed transactions' outputs, by transaction.
pub fn committed_streams(program: &Program) -> impl Iterator<Item = StreamId> {
    let of = |t| move |stream: &Stream| stream.origin == Origin::Committed(t);
    program.transactions.keys().map(move |t| program.streams.position(of(t)).expect("each has one"))
}
