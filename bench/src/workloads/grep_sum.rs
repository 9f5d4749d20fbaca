//! Grep and Sum (TStream 2020, §VI-A): half of the events read a list of records and give their sum, the
//! others write such a list. As in MorphStream an operation has r rows: a write puts a function of all of
//! them into the first, a read adds one to the sum.
//!
//! A doomed write would make a record negative. Where not all transactions have all rows (`multiple`), the others
//! are transactions of their own, with one operation on one row.
//!
//! Mixed (TStream 2019, §6.3), each event does both: its first operations write, the others read, and it gives their sum.

use super::columns::{Draw, column, event_batch, ints, table_rows, zero};
use super::input::{Input, Knobs, Map, Output, Plain};
use super::udf::{toil, with_udf};
use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use std::ops::Range;
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_plan::build::{
    Block, PlanBuilder, TransactionBuilder, aborted, cell, committed, event, literal, local, named,
};
use tidemill_plan::{Expr, Plan};

/// Records stay below.
const VALUE_MAX: i64 = 1_000_003;
/// Less than any record can make up for.
const TOO_LITTLE: i64 = -1_000_000_000;

fn role(number: usize) -> String {
    format!("k{number}")
}

/// Returns a function of the rows of operation `o`.
fn function(b: &mut Block, o: usize, knobs: &Knobs) -> Expr {
    let first = o * knobs.accesses;
    let cells = (first..first + knobs.accesses).map(|k| cell(role(k), "value"));
    let sum = cells.reduce(|sum, cell| sum + cell).expect("r is at least 1");
    with_udf(b, &format!("f{o}"), cell(role(first), "value"), knobs.work, sum)
}

/// The first `writes` operations write.
fn roles(t: TransactionBuilder, knobs: &Knobs, writes: usize) -> TransactionBuilder {
    (0..knobs.length * knobs.accesses).fold(t, |t, k| match k < writes * knobs.accesses && k % knobs.accesses == 0 {
        true => t.row(&role(k), "records", [event(role(k))]),
        false => t.read(&role(k), "records", [event(role(k))]),
    })
}

/// Returns the sum of what operations read.
fn sum_of(b: &mut Block, operations: Range<usize>, knobs: &Knobs) -> Expr {
    let values = operations.map(|o| function(b, o, knobs));
    values.reduce(|sum, value| sum + value).unwrap_or_else(|| literal(0))
}

/// Requires that the first row stays positive, and sets those of these operations.
fn write_all(b: &mut Block, operations: Range<usize>, knobs: &Knobs) {
    if !operations.is_empty() {
        b.require((cell(role(0), "value") + event("value")).ge(0), "negative value");
    }
    for o in operations {
        let value = (function(b, o, knobs) + event("value")) % VALUE_MAX;
        b.set(&role(o * knobs.accesses), "value", value);
    }
}

fn sum(t: TransactionBuilder, knobs: &Knobs) -> TransactionBuilder {
    roles(t, knobs, 0).body(|b| {
        let sum = sum_of(b, 0..knobs.length, knobs);
        b.give([("at", event("at")), ("sum", sum)]);
    })
}

fn write(t: TransactionBuilder, knobs: &Knobs) -> TransactionBuilder {
    roles(t, knobs, knobs.length).body(|b| {
        write_all(b, 0..knobs.length, knobs);
        b.give([("at", event("at")), ("written", literal(knobs.length as i64))]);
    })
}

/// Returns the operations of a mixed event that write.
fn mixed_writes(knobs: &Knobs) -> usize {
    knobs.length - (knobs.reads * knobs.length as f64).round() as usize
}

fn mix(t: TransactionBuilder, knobs: &Knobs) -> TransactionBuilder {
    let writes = mixed_writes(knobs);
    roles(t, knobs, writes).body(|b| {
        let sum = sum_of(b, writes..knobs.length, knobs);
        b.assign("sum", sum);
        write_all(b, 0..writes, knobs);
        b.give([("at", event("at")), ("sum", local("sum"))]);
    })
}

/// Returns the application.
pub fn plan(knobs: &Knobs) -> Plan {
    let one = Knobs { length: 1, accesses: 1, ..*knobs };
    let is_single = || event("is_single");
    let plan = PlanBuilder::new("grep and sum")
        .table("records", |t| t.key("id", Type::Int).column_or("value", Type::Int, zero()))
        .source("events", |s| {
            let s = s.event_time("at", Type::Int).field("is_read", Type::Bool).field("is_single", Type::Bool);
            let s = s.field("value", Type::Int);
            (0..knobs.length * knobs.accesses).fold(s, |s, k| s.field(role(k), Type::Int))
        });
    if knobs.mixed {
        let plan = plan.transaction("mix", [named("events")], |t| mix(t, knobs));
        return plan.sink("mixed", committed("mix")).sink("rejected", aborted("mix")).build();
    }
    plan.filter("reads", named("events"), event("is_read").and(!is_single()))
        .filter("writes", named("events"), (!event("is_read")).and(!is_single()))
        .filter("single_reads", named("events"), event("is_read").and(is_single()))
        .filter("single_writes", named("events"), (!event("is_read")).and(is_single()))
        .transaction("sum", [named("reads")], |t| sum(t, knobs))
        .transaction("write", [named("writes")], |t| write(t, knobs))
        .transaction("read_one", [named("single_reads")], |t| sum(t, &one))
        .transaction("write_one", [named("single_writes")], |t| write(t, &one))
        .sink("values", committed("read_one"))
        .sink("written_one", committed("write_one"))
        .sink("rejected_one", aborted("write_one"))
        .sink("sums", committed("sum"))
        .sink("written", committed("write"))
        .sink("rejected", aborted("write"))
        .build()
}

/// Plan, tables, events.
pub fn input(knobs: &Knobs) -> Input {
    let plan = plan(knobs);
    let mut random = Random::new(42);
    let zipf = Zipf::new(knobs.rows, knobs.theta);
    let draw = Draw::new(&zipf, knobs);
    let count = knobs.length * knobs.accesses;
    let mut columns = vec![Vec::with_capacity(knobs.events); count + 2];
    let (mut reads, mut singles) = (Vec::with_capacity(knobs.events), Vec::with_capacity(knobs.events));
    let mut keys = Vec::new();
    for at in 0..knobs.events {
        let is_read = !knobs.mixed && random.unit() < knobs.reads;
        let doomed = !is_read && random.unit() < knobs.abort;
        reads.push(is_read);
        singles.push(random.unit() >= knobs.multiple);
        columns[0].push(at as i64);
        columns[1].push(if doomed { TOO_LITTLE } else { random.below(1000) as i64 });
        draw.keys(&mut random, count, &mut keys);
        if knobs.acyclic {
            keys.chunks_mut(knobs.accesses).for_each(|keys| keys.sort_unstable_by_key(|key| -key));
        }
        keys.iter().zip(&mut columns[2..]).for_each(|(&key, column)| column.push(key));
    }
    let mut columns = columns.into_iter().map(ints).collect::<Vec<_>>();
    columns.insert(1, Arc::new(BooleanArray::from(reads)));
    columns.insert(2, Arc::new(BooleanArray::from(singles)));
    let (events, tables) = (event_batch(&plan, columns), vec![table_rows(&plan, 0, knobs.rows, &[1])]);
    let knobs = *knobs;
    Input { plan, tables, events, plain: Box::new(move || Box::new(Loop::new(&knobs))) }
}

struct Loop {
    records: Map<i64, i64>,
    knobs: Knobs,
}

/// The results of one kind of transaction.
#[derive(Default)]
struct Results {
    sums: [Vec<i64>; 2],
    written: [Vec<i64>; 2],
    rejected: [Vec<i64>; 2],
}

impl Loop {
    fn new(knobs: &Knobs) -> Self {
        Loop { records: (0..knobs.rows as i64).map(|key| (key, 1)).collect(), knobs: *knobs }
    }

    #[inline(always)]
    fn function(&self, keys: &[&[i64]], rows: Range<usize>, i: usize) -> Option<i64> {
        let start = *self.records.get(&keys[rows.start][i])?;
        let mut sum = start;
        for column in &keys[rows.start + 1..rows.end] {
            sum = sum.checked_add(*self.records.get(&column[i])?)?;
        }
        sum.checked_add(toil(start, self.knobs.work))
    }

    /// Writes the first row of each operation.
    #[inline(always)]
    fn set(&mut self, keys: &[&[i64]], accesses: usize, i: usize, values: &[i64]) {
        for (o, &value) in values.iter().enumerate() {
            *self.records.get_mut(&keys[o * accesses][i]).expect("just read") = value;
        }
    }

    fn run_mixed(&mut self, at: &[i64], keys: &[&[i64]], value: &[i64]) -> Vec<Output> {
        let Knobs { length, accesses, .. } = self.knobs;
        let writes = mixed_writes(&self.knobs);
        let rows = |o: usize| o * accesses..(o + 1) * accesses;
        let (mut mixed, mut rejected) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        let mut values = Vec::with_capacity(length);
        for i in 0..at.len() {
            let Some(&first) = self.records.get(&keys[0][i]) else { continue };
            if writes > 0 && first + value[i] < 0 {
                rejected[0].push(at[i]);
                rejected[1].push(first);
                continue;
            }
            values.clear();
            values.extend((0..writes).filter_map(|o| Some(written(self.function(keys, rows(o), i)?, value[i]))));
            let sum = (writes..length).try_fold(0i64, |sum, o| sum.checked_add(self.function(keys, rows(o), i)?));
            let Some(sum) = sum else { continue };
            self.set(keys, accesses, i, &values);
            mixed[0].push(at[i]);
            mixed[1].push(sum);
        }
        let named = |names: [&'static str; 2], columns: [Vec<i64>; 2]| names.into_iter().zip(columns).collect();
        vec![named(["at", "sum"], mixed), named(["at", "k0.value"], rejected)]
    }
}

/// Returns the value that an operation writes.
fn written(value: i64, more: i64) -> i64 {
    (value + more).rem_euclid(VALUE_MAX)
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let is = |column: usize| events.column(column).as_boolean();
        let (at, is_read, is_single, value) = (column(events, 0), is(1), is(2), column(events, 3));
        let keys: Vec<&[i64]> = (4..events.num_columns()).map(|c| column(events, c)).collect();
        let (mut all, mut one) = (Results::with_capacity(events.num_rows()), Results::default());
        let mut values = Vec::with_capacity(self.knobs.length);
        if self.knobs.mixed {
            return self.run_mixed(at, &keys, value);
        }
        for i in 0..events.num_rows() {
            let (length, accesses, results) = match is_single.value(i) {
                true => (1, 1, &mut one),
                false => (self.knobs.length, self.knobs.accesses, &mut all),
            };
            let functions = (0..length).map(|o| o * accesses..(o + 1) * accesses);
            if is_read.value(i) {
                let sum = functions.map(|rows| self.function(&keys, rows, i)).reduce(|a, b| a?.checked_add(b?));
                let Some(Some(sum)) = sum else { continue };
                results.sums[0].push(at[i]);
                results.sums[1].push(sum);
                continue;
            }
            let Some(&first) = self.records.get(&keys[0][i]) else { continue };
            if first + value[i] < 0 {
                results.rejected[0].push(at[i]);
                results.rejected[1].push(first);
                continue;
            }
            values.clear();
            values.extend(functions.filter_map(|rows| Some(written(self.function(&keys, rows, i)?, value[i]))));
            self.set(&keys, accesses, i, &values);
            results.written[0].push(at[i]);
            results.written[1].push(length as i64);
        }
        [one, all].into_iter().flat_map(Results::outputs).collect()
    }

    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        vec![self.records.iter().map(|(&key, &value)| vec![key, value]).collect()]
    }
}

impl Results {
    /// Makes room for a half of this number of events that read, and one that writes.
    fn with_capacity(events: usize) -> Self {
        let half = || Vec::with_capacity(events / 2 + events / 16);
        Results { sums: [half(), half()], written: [half(), half()], rejected: Default::default() }
    }

    fn outputs(self) -> [Output; 3] {
        let named = |names: [&'static str; 2], columns: [Vec<i64>; 2]| names.into_iter().zip(columns).collect();
        [
            named(["at", "sum"], self.sums),
            named(["at", "written"], self.written),
            named(["at", "k0.value"], self.rejected),
        ]
    }
}
