//! The parts of a workload: its knobs, its input, the loop beside it.

use arrow_array::RecordBatch;
use foldhash::fast::FixedState;
use tidemill_plan::Plan;

/// A fast map, for the loops.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// The characteristics that MorphStream's Table 5 varies, and the sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Keys of each table that events choose from.
    pub rows: u64,
    /// θ: Zipf skew of the keys, in [0, 1).
    pub theta: f64,
    /// a: share of transactions that must abort, of those that can.
    pub abort: f64,
    /// l: operations of a transaction, where the workload has a choice.
    pub length: usize,
    /// C: rounds of arithmetic of each user function, see [`ns_per_round`](super::ns_per_round).
    pub work: i64,
    /// r: rows that an operation reads, where the workload has a choice.
    pub accesses: usize,
    /// T: events of an epoch.
    pub epoch: usize,
    /// The share of events that only read (gs).
    pub reads: f64,
    /// A flag: whether each event reads with the share `reads` of its operations and writes with the others; if not, it
    /// only reads or only writes (gs).
    pub mixed: bool,
    /// The share of transactions with all l · r rows; the others have one (gs).
    pub multiple: f64,
    /// The share of transactions on several of PAT's partitions; the others are on one (gs, sl, ob).
    pub across: f64,
    /// The number of partitions that they are on. With 0 partitions are not looked at: rows are anywhere.
    pub partitions: usize,
    /// A flag: whether an operation always writes the last of its rows by key, so that chains never wait for each other
    /// in a cycle (gs).
    pub acyclic: bool,
    /// Events in all.
    pub events: usize,
}

/// Everything that a run needs, made outside of any measurement.
pub struct Input {
    /// The application.
    pub plan: Plan,
    /// The rows of each table before the first event.
    pub tables: Vec<RecordBatch>,
    /// The events.
    pub events: RecordBatch,
    /// The loop with its tables as they are before the first event.
    pub plain: Box<dyn Fn() -> Box<dyn Plain>>,
}

/// Some columns of an output, by name; floats as their bits.
pub type Output = Vec<(&'static str, Vec<i64>)>;

/// The hand-written loop.
pub trait Plain {
    /// Runs all events; what it gives out, by sink.
    fn run(&mut self, events: &RecordBatch) -> Vec<Output>;
    /// Returns the tables: for each, its rows.
    fn tables(&self) -> Vec<Vec<Vec<i64>>>;
}
