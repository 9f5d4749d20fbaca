//! The workloads of the papers, one file each: a plan, its input, and the loop that one would write by
//! hand (TStream 2020 §VI-A; MorphStream 2023 §6.1, Table 5).
//!
//! Where MorphStream delays a user function by the clock, ours computes: a chain of additions and
//! multiplications of floats, which takes the same time in compiled plans and in the loops, and which
//! nothing may leave out as its result is used. ([`udf`] in plans, [`toil`] in loops.)

pub mod bidding;
pub mod grep_sum;
pub mod ledger;
pub mod toll;
pub mod toll_groups;
pub mod toll_windows;

use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use foldhash::fast::FixedState;
use std::sync::Arc;
use std::time::Instant;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Schema, Value};
use tidemill_plan::build::{Block, if_else, local};
use tidemill_plan::{Expr, Function, OriginDef, Plan};

/// A fast map, for the loops.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Grep and Sum.
    GrepSum,
    /// Streaming Ledger.
    Ledger,
    /// Streaming Ledger in four phases (MorphStream §6.2.2).
    LedgerPhases,
    /// Online Bidding.
    Bidding,
    /// Toll Processing.
    Toll,
    /// Toll Processing in two groups of roads (MorphStream §6.2.3).
    TollGroups,
    /// Toll Processing over windows.
    TollWindows,
}

/// All of them, by the names that the command line knows.
pub const WORKLOADS: [(&str, Workload); 7] = [
    ("gs", Workload::GrepSum),
    ("sl", Workload::Ledger),
    ("sl-phases", Workload::LedgerPhases),
    ("ob", Workload::Bidding),
    ("tp", Workload::Toll),
    ("tp-groups", Workload::TollGroups),
    ("tp-windows", Workload::TollWindows),
];

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
    /// C: rounds of arithmetic of each user function, see [`ns_per_round`].
    pub work: i64,
    /// r: rows that an operation reads, where the workload has a choice.
    pub accesses: usize,
    /// T: events of an epoch.
    pub epoch: usize,
    /// The share of events that only read (gs).
    pub reads: f64,
    /// The share of transactions with all l · r rows; the others have one (gs).
    pub multiple: f64,
    /// Whether what is written is always the last of an operation's rows by key, so that chains never wait for each
    /// other in a cycle (gs).
    pub acyclic: bool,
    /// Events in all.
    pub events: usize,
}

impl Workload {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        WORKLOADS.iter().find(|(_, workload)| *workload == self).expect("all are named").0
    }

    /// The defaults of Table 5, with tables ten times as large as in TStream's paper, as in MorphStream's;
    /// `work` is for a C of 10 µs where a round takes `round_ns`. Online Bidding is not in Table 5: the length
    /// is TStream's, the rest as for the others.
    pub fn defaults(self, round_ns: f64) -> Knobs {
        let work = rounds(10.0, round_ns);
        let knobs = Knobs {
            rows: 100_000,
            theta: 0.2,
            abort: 0.01,
            length: 1,
            work,
            accesses: 1,
            epoch: 10_240,
            reads: 0.5,
            multiple: 1.0,
            acyclic: false,
            events: 0,
        };
        match self {
            Workload::GrepSum => Knobs { accesses: 2, ..knobs },
            Workload::Ledger | Workload::LedgerPhases => knobs,
            Workload::Bidding => Knobs { length: 20, ..knobs },
            Workload::Toll | Workload::TollGroups | Workload::TollWindows => {
                Knobs { rows: 1_000, epoch: 40_960, ..knobs }
            }
        }
    }

    /// User functions that an event runs, on average.
    pub fn functions(self, knobs: &Knobs) -> f64 {
        match self {
            Workload::GrepSum => 1.0 + knobs.multiple * (knobs.length as f64 - 1.0),
            Workload::Ledger | Workload::LedgerPhases => 3.0,
            Workload::Bidding => (6.0 + 2.0 * knobs.length as f64) / 8.0,
            Workload::Toll | Workload::TollGroups | Workload::TollWindows => 2.0,
        }
    }

    /// With as many events as take the loop about so long, at about 100 ns each and the user functions; at least
    /// two epochs.
    pub fn sized(self, knobs: Knobs, seconds: f64, round_ns: f64) -> Knobs {
        let event_ns = 100.0 + self.functions(&knobs) * knobs.work as f64 * round_ns;
        Knobs { events: ((seconds * 1e9 / event_ns) as usize).clamp(2 * knobs.epoch, 2_000_000), ..knobs }
    }

    /// Plan, tables, events.
    pub fn input(self, knobs: &Knobs) -> Input {
        match self {
            Workload::GrepSum => grep_sum::input(knobs),
            Workload::Ledger => ledger::input(knobs, false),
            Workload::LedgerPhases => ledger::input(knobs, true),
            Workload::Bidding => bidding::input(knobs),
            Workload::Toll => toll::input(knobs),
            Workload::TollGroups => toll_groups::input(knobs),
            Workload::TollWindows => toll_windows::input(knobs),
        }
    }
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

/// Some columns of an output, by name.
pub type Output = Vec<(&'static str, Vec<i64>)>;

/// The hand-written loop.
pub trait Plain {
    /// Runs all events; what it gives out, by sink.
    fn run(&mut self, events: &RecordBatch) -> Vec<Output>;
    /// The tables: for each, its rows.
    fn tables(&self) -> Vec<Vec<Vec<i64>>>;
}

/// So many rounds take so many microseconds.
pub fn rounds(micros: f64, round_ns: f64) -> i64 {
    (micros * 1e3 / round_ns).round() as i64
}

/// The arithmetic of a user function: 0, though no compiler can know.
#[inline(always)]
pub fn toil(start: i64, rounds: i64) -> i64 {
    if rounds == 0 {
        return 0;
    }
    let end = (0..rounds).fold(start as f64, |x, _| x * 0.5 + 1.0);
    i64::from(end < -1e300)
}

/// The same in a plan, added to a value: statements, then the sum. `name` is its own in the transaction.
pub fn with_udf(b: &mut Block, name: &str, start: Expr, rounds: i64, value: Expr) -> Expr {
    if rounds == 0 {
        return value;
    }
    b.assign(name, start.call(Function::Float, []));
    b.for_range(format!("{name}_round").as_str(), 0, rounds, |b| b.assign(name, local(name) * 0.5 + 1.0));
    value + if_else(local(name).lt(-1e300), 1, 0)
}

/// How long a round of [`toil`] takes here and now, in nanoseconds: the best of a few.
pub fn ns_per_round() -> f64 {
    const ROUNDS: i64 = 1_000_000;
    let once = |_| {
        let start = Instant::now();
        std::hint::black_box(toil(std::hint::black_box(7), std::hint::black_box(ROUNDS)));
        start.elapsed().as_nanos() as f64 / ROUNDS as f64
    };
    (0..20).map(once).fold(f64::INFINITY, f64::min)
}

/// Distinct keys for one transaction.
pub fn distinct(zipf: &Zipf, random: &mut Random, count: usize, keys: &mut Vec<i64>) {
    keys.clear();
    while keys.len() < count {
        let key = zipf.key(random) as i64;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
}

/// The schema of a plan's source.
pub fn event_schema(plan: &Plan) -> Schema {
    let source = plan.streams.iter().find_map(|stream| match &stream.origin {
        OriginDef::Source { schema, .. } => Some(schema.clone()),
        _ => None,
    });
    source.expect("a plan with a source")
}

/// Events of a plan from their columns.
pub fn event_batch(plan: &Plan, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(arrow_schema(&event_schema(plan)), columns).expect("columns of the schema")
}

/// A column of ints.
pub fn ints(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// A column of lists of structs of ints, as the schema's field of that number says.
pub fn lists(schema: &Schema, field: usize, ends: &[usize], columns: Vec<Vec<i64>>) -> ArrayRef {
    let schema = arrow_schema(schema);
    let DataType::List(item) = schema.field(field).data_type() else { panic!("a list") };
    let DataType::Struct(fields) = item.data_type() else { panic!("a list of structs") };
    let values = StructArray::new(fields.clone(), columns.into_iter().map(ints).collect(), None);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let offsets = OffsetBuffer::from_lengths(starts.zip(ends).map(|(start, end)| end - start));
    Arc::new(ListArray::new(item.clone(), offsets, Arc::new(values), None))
}

/// A table of a plan: a row per key 0 to `rows` − 1, the other columns all the same, windows left out.
pub fn table_rows(plan: &Plan, table: usize, rows: u64, values: &[i64]) -> RecordBatch {
    let columns = &plan.tables[table].columns;
    let plain = columns.iter().filter(|column| column.window.is_none());
    let schema = Schema::scalars(plain.map(|column| (column.name.as_str(), column.ty)));
    let mut arrays = vec![ints((0..rows as i64).collect())];
    arrays.extend(values.iter().map(|&value| ints(vec![value; rows as usize])));
    RecordBatch::try_new(arrow_schema(&schema), arrays).expect("columns of the table")
}

/// An int column of a batch.
pub fn column(batch: &RecordBatch, number: usize) -> &[i64] {
    batch.column(number).as_primitive::<Int64Type>().values()
}

/// A digest of tables that does not depend on the order of their rows.
pub fn state_digest(tables: impl Iterator<Item = Vec<Vec<i64>>>) -> u64 {
    tables.fold(0, |digest: u64, rows| {
        let row = |row: &Vec<i64>| row.iter().fold(0, |hash, &value| mix(hash, value));
        let sum = rows.iter().map(row).fold(rows.len() as u64, u64::wrapping_add);
        mix(digest, sum as i64)
    })
}

/// A digest of outputs that depends on their order and not on how they were cut into batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputDigest(Vec<(&'static str, usize, u64)>);

impl OutputDigest {
    /// Of what the loop gave out.
    pub fn of(output: &Output) -> Self {
        let column = |(name, values): &(&'static str, Vec<i64>)| {
            (*name, values.len(), values.iter().fold(0, |hash, &value| mix(hash, value)))
        };
        OutputDigest(output.iter().map(column).collect())
    }

    /// Of the same columns of batches.
    pub fn of_batches(&self, batches: &[RecordBatch]) -> Self {
        let digest = |(name, ..): &(&'static str, usize, u64)| {
            let columns = batches.iter().map(|batch| batch.column_by_name(name).expect("a column of the output"));
            let mut len = 0;
            let mut hash = 0;
            for column in columns {
                len += column.len();
                let values = column.as_primitive::<Int64Type>().values();
                hash = values.iter().fold(hash, |hash, &value| mix(hash, value));
            }
            (*name, len, hash)
        };
        OutputDigest(self.0.iter().map(digest).collect())
    }
}

fn mix(hash: u64, value: i64) -> u64 {
    (hash.rotate_left(5) ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A batch of ints as rows of values, windows left out.
pub fn int_rows(batch: &RecordBatch) -> Vec<Vec<i64>> {
    let is_int = |c: &usize| *batch.column(*c).data_type() == DataType::Int64;
    let columns: Vec<&[i64]> = (0..batch.num_columns()).filter(is_int).map(|c| column(batch, c)).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

/// An int default of a column.
pub fn zero() -> Value {
    Value::Int(0)
}
