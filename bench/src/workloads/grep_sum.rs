//! Grep and Sum (TStream 2020, §VI-A): half of the events read a list of records and give their sum, the
//! others write such a list. As in MorphStream an operation has r rows: a write puts a function of all of
//! them into the first, a read adds one to the sum.
//!
//! A doomed write would make a record negative.

use super::{Input, Knobs, Map, Output, Plain, column, distinct, event_batch, ints, table_rows, toil, with_udf, zero};
use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_plan::build::{Block, PlanBuilder, TransactionBuilder, aborted, cell, committed, event, literal, named};
use tidemill_plan::{Expr, Plan};

/// Records stay below.
const VALUE_MAX: i64 = 1_000_003;
/// Less than any record can make up for.
const TOO_LITTLE: i64 = -1_000_000_000;

fn role(number: usize) -> String {
    format!("k{number}")
}

/// A function of the rows of operation `o`.
fn function(b: &mut Block, o: usize, knobs: &Knobs) -> Expr {
    let first = o * knobs.accesses;
    let cells = (first..first + knobs.accesses).map(|k| cell(role(k), "value"));
    let sum = cells.reduce(|sum, cell| sum + cell).expect("r is at least 1");
    with_udf(b, &format!("f{o}"), cell(role(first), "value"), knobs.work, sum)
}

/// The application.
pub fn plan(knobs: &Knobs) -> Plan {
    let (length, accesses) = (knobs.length, knobs.accesses);
    let keys = length * accesses;
    let roles = |t: TransactionBuilder, writes: bool| {
        (0..keys).fold(t, |t, k| match writes && k % accesses == 0 {
            true => t.row(&role(k), "records", [event(role(k))]),
            false => t.read(&role(k), "records", [event(role(k))]),
        })
    };
    PlanBuilder::new("grep and sum")
        .table("records", |t| t.key("id", Type::Int).column_or("value", Type::Int, zero()))
        .source("events", |s| {
            let s = s.event_time("at", Type::Int).field("is_read", Type::Bool).field("value", Type::Int);
            (0..keys).fold(s, |s, k| s.field(role(k), Type::Int))
        })
        .filter("reads", named("events"), event("is_read"))
        .filter("writes", named("events"), !event("is_read"))
        .transaction("sum", [named("reads")], |t| {
            roles(t, false).body(|b| {
                let sum = (0..length).map(|o| function(b, o, knobs)).reduce(|sum, value| sum + value);
                b.give([("at", event("at")), ("sum", sum.expect("l is at least 1"))]);
            })
        })
        .transaction("write", [named("writes")], |t| {
            roles(t, true).body(|b| {
                b.require((cell(role(0), "value") + event("value")).ge(0), "negative value");
                for o in 0..length {
                    let value = (function(b, o, knobs) + event("value")) % VALUE_MAX;
                    b.set(&role(o * accesses), "value", value);
                }
                b.give([("at", event("at")), ("written", literal(length as i64))]);
            })
        })
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
    let count = knobs.length * knobs.accesses;
    let mut columns = vec![Vec::with_capacity(knobs.events); count + 2];
    let mut reads = Vec::with_capacity(knobs.events);
    let mut keys = Vec::new();
    for at in 0..knobs.events {
        let is_read = random.bits() & 1 == 1;
        let doomed = !is_read && random.unit() < knobs.abort;
        reads.push(is_read);
        columns[0].push(at as i64);
        columns[1].push(if doomed { TOO_LITTLE } else { random.below(1000) as i64 });
        distinct(&zipf, &mut random, count, &mut keys);
        keys.iter().zip(&mut columns[2..]).for_each(|(&key, column)| column.push(key));
    }
    let mut columns = columns.into_iter().map(ints).collect::<Vec<_>>();
    columns.insert(1, Arc::new(BooleanArray::from(reads)));
    let (events, tables) = (event_batch(&plan, columns), vec![table_rows(&plan, 0, knobs.rows, &[1])]);
    let knobs = *knobs;
    Input { plan, tables, events, plain: Box::new(move || Box::new(Loop::new(&knobs))) }
}

struct Loop {
    records: Map<i64, i64>,
    knobs: Knobs,
}

impl Loop {
    fn new(knobs: &Knobs) -> Self {
        Loop { records: (0..knobs.rows as i64).map(|key| (key, 1)).collect(), knobs: *knobs }
    }

    #[inline(always)]
    fn function(&self, keys: &[&[i64]], o: usize, i: usize) -> Option<i64> {
        let first = o * self.knobs.accesses;
        let start = *self.records.get(&keys[first][i])?;
        let mut sum = start;
        for column in &keys[first + 1..first + self.knobs.accesses] {
            sum = sum.checked_add(*self.records.get(&column[i])?)?;
        }
        sum.checked_add(toil(start, self.knobs.work))
    }
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let (at, is_read, value) = (column(events, 0), events.column(1).as_boolean(), column(events, 2));
        let keys: Vec<&[i64]> = (3..events.num_columns()).map(|c| column(events, c)).collect();
        let half = || Vec::with_capacity(events.num_rows() / 2 + events.num_rows() / 16);
        let (mut sums, mut written) = ([half(), half()], [half(), half()]);
        let mut rejected = [Vec::new(), Vec::new()];
        let mut values = Vec::with_capacity(self.knobs.length);
        for i in 0..events.num_rows() {
            let functions = 0..self.knobs.length;
            if is_read.value(i) {
                let sum = functions.map(|o| self.function(&keys, o, i)).reduce(|a, b| a?.checked_add(b?));
                let Some(Some(sum)) = sum else { continue };
                sums[0].push(at[i]);
                sums[1].push(sum);
                continue;
            }
            let Some(&first) = self.records.get(&keys[0][i]) else { continue };
            if first + value[i] < 0 {
                rejected[0].push(at[i]);
                rejected[1].push(first);
                continue;
            }
            values.clear();
            values
                .extend(functions.filter_map(|o| Some((self.function(&keys, o, i)? + value[i]).rem_euclid(VALUE_MAX))));
            for (o, &value) in values.iter().enumerate() {
                *self.records.get_mut(&keys[o * self.knobs.accesses][i]).expect("just read") = value;
            }
            written[0].push(at[i]);
            written[1].push(self.knobs.length as i64);
        }
        let [at, sum] = sums;
        let [written_at, count] = written;
        let [rejected_at, seen] = rejected;
        vec![
            vec![("at", at), ("sum", sum)],
            vec![("at", written_at), ("written", count)],
            vec![("at", rejected_at), ("k0.value", seen)],
        ]
    }

    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        vec![self.records.iter().map(|(&key, &value)| vec![key, value]).collect()]
    }
}
