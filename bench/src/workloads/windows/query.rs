//! A workload of windows: what is varied, what a run needs, and how plans with windows are written.

use crate::workloads::columns::ints;
use crate::workloads::input::Output;
use arrow_array::RecordBatch;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::build::{event, record};
use tidemill_plan::{Expr, ExprNode, OverDef, Plan, Stmt, StmtNode, StreamRef, TransactionDef};
use tidemill_plan::{WindowFunction, WindowsDef};
use tidemill_random::{below, mix, unit};

/// The parameters that are varied.
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
    /// The share of events that are late, by up to a second.
    pub late: f64,
}

/// The most that events are late, milliseconds.
const LATE_MAX: u64 = 1_000;

impl Shape {
    /// Returns the event time of an event, milliseconds; it falls only where an event is late.
    pub(super) fn at(&self, number: usize) -> i64 {
        let time = (number as u64 * 1_000 / self.rate) as i64;
        let bits = mix(number as u64);
        if unit(bits) >= self.late {
            return time;
        }
        (time - 1 - below(mix(bits), LATE_MAX) as i64).max(0)
    }

    pub(super) fn length_ms(&self) -> i64 {
        self.length * 1_000
    }

    /// Returns the most groups of a tumbling window, given the number of events of which one counts.
    pub(super) fn groups_max(&self, of_events: u64) -> usize {
        // Late events come before the window of those around them.
        let seconds = self.length as u64 + LATE_MAX.div_ceil(1_000);
        self.groups.min((self.rate * seconds).min(self.events as u64) / of_events + 1) as usize
    }
}

/// A hand-written loop: what it puts out for these events.
pub type Plain = Box<dyn Fn(&RecordBatch) -> Output>;

/// The input of a run, made outside of any measurement.
pub struct Query {
    /// The application, with one sink.
    pub plan: Plan,
    /// The rows of tables before the first event.
    pub tables: Vec<(&'static str, RecordBatch)>,
    /// The events.
    pub events: RecordBatch,
    /// The columns that the query needs.
    pub needed: &'static [usize],
    /// The loop with a hash map.
    pub by_map: Plain,
    /// The loop with an array by key, where keys allow it.
    pub by_array: Option<Plain>,
}

/// Returns a window over a stream whose function returns these fields.
pub(super) fn window<const FIELDS: usize>(
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
        over: Some(OverDef { by, windows, early: None, every: None, top: None, first: None, own: vec![] }),
        join: None,
        nested: false,
        derives: false,
        roles: Vec::new(),
        body: vec![Stmt { node: returned, span: None }],
    }
}

pub(super) fn tumbling(shape: &Shape) -> WindowsDef {
    WindowsDef::Tumbling { length: Value::Int(shape.length_ms()), origin: 0 }
}

/// `w.count()`
pub(super) fn count() -> Expr {
    ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None }.into()
}

/// `w.value.function()`
pub(super) fn of(function: WindowFunction, value: &str) -> Expr {
    ExprNode::Aggregate { function, value: Some(Box::new(event(value))), by: None, argument: None }.into()
}

/// `w.argmax("by").value`
pub(super) fn argmax(by: &str, value: &str) -> Expr {
    let (value, by) = (Some(Box::new(event(value))), Some(Box::new(event(by))));
    ExprNode::Aggregate { function: WindowFunction::ArgMax, value, by, argument: None }.into()
}

/// Returns the end of the window that holds an instant, where windows begin at multiples of `every` and are as long.
pub(super) fn end_of(at: i64, every: i64) -> i64 {
    (at.div_euclid(every) + 1) * every
}

/// Returns the rows of a table with these columns of ints.
pub(super) fn int_table<const COLUMNS: usize>(columns: [(&str, Vec<i64>); COLUMNS]) -> RecordBatch {
    let schema = Schema::scalars(columns.iter().map(|(name, _)| (*name, Type::Int.into())));
    let arrays = columns.into_iter().map(|(_, values)| ints(values)).collect();
    RecordBatch::try_new(arrow_schema(&schema), arrays).expect("columns of one length")
}
