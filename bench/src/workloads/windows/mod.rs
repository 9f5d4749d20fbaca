//! Windows over streams: Yahoo's benchmark, taxi rides, and queries of NEXMark, each with the loops that one would write
//! by hand over the same columns.
//!
//! Event times are milliseconds as ints, and do not fall. A loop keeps what is open and puts out what closes; it holds
//! groups by a hash map, and, where keys are small numbers, by an array as well. The faster of the two is the loop that
//! the engine is measured against.

mod bids;
mod groups;
mod highest;
mod hot_items;
mod rides;
mod sessions;
mod views;

use super::input::Output;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use tidemill_model::Value;
use tidemill_plan::build::{event, record};
use tidemill_plan::{Expr, ExprNode, OverDef, Plan, Stmt, StmtNode, StreamRef, TransactionDef};
use tidemill_plan::{WindowFunction, WindowsDef};

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Events in all.
    pub events: usize,
    /// Groups that an event may be of.
    pub groups: u64,
    /// θ: Zipf skew of the groups, 0 or more.
    pub theta: f64,
    /// Events in a second of event time.
    pub rate: u64,
    /// The length of windows, or the gap of sessions, in seconds.
    pub length: i64,
}

impl Shape {
    /// The event time of an event, milliseconds.
    fn at(&self, number: usize) -> i64 {
        (number as u64 * 1_000 / self.rate) as i64
    }

    fn length_ms(&self) -> i64 {
        self.length * 1_000
    }
}

/// A hand-written loop: what it puts out for these events.
pub type Plain = Box<dyn Fn(&RecordBatch) -> Output>;

/// What a run needs, made outside of any measurement.
pub struct Query {
    /// The application, with one sink.
    pub plan: Plan,
    /// The events.
    pub events: RecordBatch,
    /// The columns that the query needs.
    pub needed: &'static [usize],
    /// The loop with a hash map.
    pub by_map: Plain,
    /// The same with an array by key, where keys allow it.
    pub by_array: Option<Plain>,
}

/// A named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowWorkload {
    /// Yahoo's benchmark without its join: views by campaign, tumbling.
    Views,
    /// Taxi rides by region, tumbling (thesis, ch. 3).
    Rides,
    /// NEXMark q5, the counts: bids by auction, sliding by a fifth of the length.
    HotItems,
    /// NEXMark q7: the highest bid, tumbling.
    Highest,
    /// NEXMark q11: bids in sessions of bidders.
    Sessions,
}

/// All of them, by the names that the command line knows.
pub const WINDOW_WORKLOADS: [(&str, WindowWorkload); 5] = [
    ("ysb", WindowWorkload::Views),
    ("nyt", WindowWorkload::Rides),
    ("q5", WindowWorkload::HotItems),
    ("q7", WindowWorkload::Highest),
    ("q11", WindowWorkload::Sessions),
];

impl WindowWorkload {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        WINDOW_WORKLOADS.iter().find(|(_, workload)| *workload == self).expect("all are named").0
    }

    /// Groups and length (seconds) of the definition.
    pub fn defaults(self) -> (u64, i64) {
        match self {
            WindowWorkload::Views => (10_000, 10),
            WindowWorkload::Rides => (1_000, 2),
            WindowWorkload::HotItems => (10_000, 10),
            WindowWorkload::Highest => (10_000, 10),
            WindowWorkload::Sessions => (1_000, 10),
        }
    }

    /// Plan, events and loops.
    pub fn query(self, shape: &Shape) -> Query {
        match self {
            WindowWorkload::Views => views::query(shape),
            WindowWorkload::Rides => rides::query(shape),
            WindowWorkload::HotItems => hot_items::query(shape),
            WindowWorkload::Highest => highest::query(shape),
            WindowWorkload::Sessions => sessions::query(shape),
        }
    }
}

/// Reads columns: no program that needs them can be faster.
pub fn read(events: &RecordBatch, columns: &[usize]) -> u64 {
    let sum = |&number: &usize| {
        let column = events.column(number);
        match column.data_type() {
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                values.iter().fold(0, |sum: u64, value| sum.wrapping_add(value.to_bits()))
            }
            _ => {
                let values = column.as_primitive::<Int64Type>().values();
                values.iter().fold(0, |sum: u64, &value| sum.wrapping_add(value as u64))
            }
        }
    };
    columns.iter().map(sum).fold(0, u64::wrapping_add)
}

/// A window over a stream whose function returns these fields.
fn window<const FIELDS: usize>(
    name: &str,
    input: StreamRef,
    by: &[&str],
    windows: WindowsDef,
    fields: [(&'static str, Expr); FIELDS],
) -> TransactionDef {
    let by = by.iter().map(|name| ((*name).to_owned(), event(*name))).collect();
    let returned = StmtNode::Return { record: Some(record(fields)) };
    TransactionDef {
        name: name.into(),
        inputs: vec![input],
        over: Some(OverDef { by, windows }),
        roles: Vec::new(),
        body: vec![Stmt { node: returned, span: None }],
    }
}

fn tumbling(shape: &Shape) -> WindowsDef {
    WindowsDef::Tumbling { length: Value::Int(shape.length_ms()), origin: 0 }
}

/// `w.count()`
fn count() -> Expr {
    ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None }.into()
}

/// `w.value.function()`
fn of(function: WindowFunction, value: &str) -> Expr {
    ExprNode::Aggregate { function, value: Some(Box::new(event(value))), by: None }.into()
}

/// `w.argmax("by").value`
fn argmax(by: &str, value: &str) -> Expr {
    let (value, by) = (Some(Box::new(event(value))), Some(Box::new(event(by))));
    ExprNode::Aggregate { function: WindowFunction::ArgMax, value, by }.into()
}

/// The end of the window that holds an instant, where windows begin at multiples of `every` and are as long.
fn end_of(at: i64, every: i64) -> i64 {
    (at.div_euclid(every) + 1) * every
}
