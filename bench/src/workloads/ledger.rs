//! Streaming Ledger (TStream 2020, §VI-A): half deposits, half transfers over accounts and assets, a
//! share of the transfers doomed. Once as a plan, once as the loop that one would write by hand.
//!
//! In phases (MorphStream §6.2.2), a quarter of the events each: deposits to scattered accounts; the skew
//! grows; so does the share of transfers; so does the share of those that abort.

use super::columns::{Draw, column, table_rows};
use super::input::{Input, Knobs, Map, Output, Plain};
use super::udf::{toil, with_udf};
use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, aborted, cell, committed, event, named};
use tidemill_plan::{Expr, Plan};

/// The shape of a ledger's events.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rows in both tables together.
    pub rows: u64,
    /// Skew.
    pub theta: f64,
    /// Events.
    pub events: usize,
    /// Share of transfers that ask for more than anybody has.
    pub doomed: f64,
    /// Rounds of arithmetic of each update's user function.
    pub work: i64,
    /// The numbers that accounts and assets have.
    pub keys: KeySpread,
}

/// The numbers that keys have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeySpread {
    /// The numbers from 0 on, as the papers have them.
    #[default]
    Sequence,
    /// Anywhere among the 64-bit numbers.
    Scattered,
}

impl KeySpread {
    /// Returns the key of a number from 0 on.
    pub fn key(self, number: u64) -> i64 {
        match self {
            KeySpread::Sequence => number as i64,
            // Odd, so no two numbers share a key.
            KeySpread::Scattered => number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64,
        }
    }
}

const BALANCE: i64 = 1_000_000_000;
/// An amount that no balance can reach.
const TOO_MUCH: i64 = 1 << 60;

/// Returns the schema of the events.
pub fn event_schema() -> Schema {
    let int = ColumnType::required(Type::Int);
    Schema::scalars([
        ("at", int),
        ("is_transfer", ColumnType::required(Type::Bool)),
        ("account", int),
        ("asset", int),
        ("to_account", int),
        ("to_asset", int),
        ("amount", int),
        ("quantity", int),
    ])
}

/// Sets a cell, with what the user function adds, which is nothing.
fn update(b: &mut Block, role: &'static str, column: &'static str, value: Expr, work: i64) {
    let value = with_udf(b, &format!("{role}_function"), cell(role, column), work, value);
    b.set(role, column, value);
}

/// Returns the application.
pub fn plan(work: i64) -> Plan {
    let table = |key: &'static str, column: &'static str| {
        move |t: tidemill_plan::build::TableBuilder| t.key(key, Type::Int).column_or(column, Type::Int, Value::Int(0))
    };
    PlanBuilder::new("streaming ledger")
        .table("accounts", table("id", "balance"))
        .table("assets", table("id", "quantity"))
        .source("events", |s| {
            let s = s.event_time("at", Type::Int).field("is_transfer", Type::Bool);
            ["account", "asset", "to_account", "to_asset", "amount", "quantity"]
                .into_iter()
                .fold(s, |s, name| s.field(name, Type::Int))
        })
        .filter("deposits", named("events"), !event("is_transfer"))
        .filter("transfers", named("events"), event("is_transfer"))
        .transaction("deposit", [named("deposits")], |t| {
            t.row("account", "accounts", [event("account")]).row("asset", "assets", [event("asset")]).body(|b| {
                update(b, "account", "balance", cell("account", "balance") + event("amount"), work);
                update(b, "asset", "quantity", cell("asset", "quantity") + event("quantity"), work);
                b.give([("at", event("at")), ("account", event("account")), ("balance", cell("account", "balance"))]);
            })
        })
        .transaction("transfer", [named("transfers")], |t| {
            t.row("account", "accounts", [event("account")])
                .row("asset", "assets", [event("asset")])
                .row("to_account", "accounts", [event("to_account")])
                .row("to_asset", "assets", [event("to_asset")])
                .body(|b| {
                    b.require(cell("account", "balance").ge(event("amount")), "insufficient balance");
                    b.require(cell("asset", "quantity").ge(event("quantity")), "insufficient assets");
                    update(b, "account", "balance", cell("account", "balance") - event("amount"), work);
                    update(b, "to_account", "balance", cell("to_account", "balance") + event("amount"), work);
                    update(b, "asset", "quantity", cell("asset", "quantity") - event("quantity"), work);
                    update(b, "to_asset", "quantity", cell("to_asset", "quantity") + event("quantity"), work);
                    b.give([("at", event("at")), ("account", event("account")), ("left", cell("account", "balance"))]);
                })
        })
        .sink("deposited", committed("deposit"))
        .sink("transferred", committed("transfer"))
        .sink("rejected", aborted("transfer"))
        .build()
}

/// Returns events of a shape, as one batch.
pub fn events(shape: Shape, seed: u64) -> RecordBatch {
    let zipf = Zipf::new(shape.rows / 2, shape.theta);
    let constant = |_| Phase { transfers: 0.5, doomed: shape.doomed, draw: Draw::anywhere(&zipf) };
    generate(shape.events, seed, shape.keys, constant)
}

/// The distribution that events are drawn from in a phase.
struct Phase<'a> {
    transfers: f64,
    doomed: f64,
    draw: Draw<'a>,
}

/// Returns the skew and the shares of transfers and of doomed ones among them, at this share of the way through the
/// four phases.
fn phases(progress: f64) -> (f64, f64, f64) {
    let grown = |phase: f64| (progress * 4.0 - phase).clamp(0.0, 1.0);
    (0.9 * grown(1.0), grown(2.0), 0.9 * grown(3.0))
}

fn phased_events(rows: u64, count: usize, seed: u64) -> RecordBatch {
    const STEPS: usize = 64;
    let at = |step: usize| phases(step as f64 / STEPS as f64);
    let zipfs: Vec<Zipf> = (0..STEPS).map(|step| Zipf::new(rows / 2, at(step).0)).collect();
    generate(count, seed, KeySpread::Sequence, |event| {
        let step = event * STEPS / count;
        let (_, transfers, doomed) = at(step);
        Phase { transfers, doomed, draw: Draw::anywhere(&zipfs[step]) }
    })
}

fn generate<'a>(events: usize, seed: u64, keys: KeySpread, phase: impl Fn(usize) -> Phase<'a>) -> RecordBatch {
    let mut random = Random::new(seed);
    let mut columns: Vec<Vec<i64>> = (0..7).map(|_| Vec::with_capacity(events)).collect();
    let (mut transfers, mut drawn) = (Vec::with_capacity(events), Vec::new());
    for at in 0..events {
        let Phase { transfers: share, doomed, draw } = phase(at);
        let transfer = random.unit() < share;
        let doomed = transfer && random.unit() < doomed;
        transfers.push(transfer);
        columns[0].push(at as i64);
        draw.repeated(&mut random, 4, &mut drawn);
        drawn.iter().zip(&mut columns[1..5]).for_each(|(&key, column)| column.push(keys.key(key as u64)));
        columns[5].push(if doomed { TOO_MUCH } else { 1 + random.below(100) as i64 });
        columns[6].push(1 + random.below(100) as i64);
    }
    let mut arrays: Vec<ArrayRef> = columns.into_iter().map(|c| Arc::new(Int64Array::from(c)) as ArrayRef).collect();
    arrays.insert(1, Arc::new(BooleanArray::from(transfers)));
    RecordBatch::try_new(arrow_schema(&event_schema()), arrays).expect("columns of the schema")
}

/// Returns the rows of one table before the first event, in batches.
pub fn initial_rows(rows: u64, spread: KeySpread, schema: &Schema) -> impl Iterator<Item = RecordBatch> {
    const BATCH: u64 = 1 << 16;
    let (keys, schema) = (rows / 2, arrow_schema(schema));
    (0..keys.div_ceil(BATCH)).map(move |b| {
        let ids = Int64Array::from_iter_values((b * BATCH..((b + 1) * BATCH).min(keys)).map(|k| spread.key(k)));
        let values = Int64Array::from(vec![BALANCE; ids.len()]);
        RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(values)]).expect("two columns")
    })
}

/// Plan, tables, events.
pub fn input(knobs: &Knobs, phased: bool) -> Input {
    let Knobs { rows, theta, abort, work, events, .. } = *knobs;
    // The knob is of each table.
    let rows = rows * 2;
    let plan = plan(work);
    let tables = (0..2).map(|table| table_rows(&plan, table, rows / 2, &[BALANCE])).collect();
    let events = match phased {
        true => phased_events(rows, events, 42),
        false => {
            let zipf = Zipf::new(rows / 2, theta);
            let constant = |_| Phase { transfers: 0.5, doomed: abort, draw: Draw::new(&zipf, knobs) };
            generate(events, 42, KeySpread::Sequence, constant)
        }
    };
    Input { plan, tables, events, plain: Box::new(move || Box::new(Loop::new(rows, work, KeySpread::Sequence))) }
}

impl Plain for Loop {
    fn run(&mut self, events: &RecordBatch) -> Vec<Output> {
        let LoopOutput { deposited, transferred, rejected } = Loop::run(self, events);
        let names: [&[&str]; 3] = [
            &["at", "account", "balance"],
            &["at", "account", "left"],
            &["at", "account", "amount", "quantity", "account.balance", "asset.quantity"],
        ];
        let named = |names: &[&'static str], columns: Vec<Vec<i64>>| names.iter().copied().zip(columns).collect();
        vec![named(names[0], deposited.into()), named(names[1], transferred.into()), named(names[2], rejected.into())]
    }

    fn tables(&self) -> Vec<Vec<Vec<i64>>> {
        let rows = |map: &Map<i64, i64>| map.iter().map(|(&key, &value)| vec![key, value]).collect();
        vec![rows(&self.accounts), rows(&self.assets)]
    }
}

/// The hand-written loop: two maps, one pass over the columns, the same results.
pub struct Loop {
    accounts: Map<i64, i64>,
    assets: Map<i64, i64>,
    work: i64,
}

/// The output of the loop: the batches of deposited, transferred and rejected.
pub struct LoopOutput {
    /// at, account, balance
    pub deposited: [Vec<i64>; 3],
    /// at, account, left
    pub transferred: [Vec<i64>; 3],
    /// at, account, amount, quantity, and balance and quantity seen
    pub rejected: [Vec<i64>; 6],
}

impl Loop {
    /// Makes a loop with the rows that the tables have before the first event.
    pub fn new(rows: u64, work: i64, keys: KeySpread) -> Self {
        let map = || (0..rows / 2).map(|k| (keys.key(k), BALANCE)).collect();
        Loop { accounts: map(), assets: map(), work }
    }

    /// Runs a batch of events.
    pub fn run(&mut self, events: &RecordBatch) -> LoopOutput {
        let int = |c: usize| column(events, c);
        let is_transfer = events.column(1).as_boolean();
        let [at, account, asset, to_account, to_asset, amount, quantity] = [0, 2, 3, 4, 5, 6, 7].map(int);
        let room = || Vec::with_capacity(events.num_rows() / 2 + events.num_rows() / 16);
        let mut deposited: [Vec<i64>; 3] = std::array::from_fn(|_| room());
        let mut transferred: [Vec<i64>; 3] = std::array::from_fn(|_| room());
        let mut rejected: [Vec<i64>; 6] = std::array::from_fn(|_| Vec::new());
        for i in 0..events.num_rows() {
            let (account, asset, amount, quantity) = (account[i], asset[i], amount[i], quantity[i]);
            if !is_transfer.value(i) {
                let (Some(balance), Some(held)) = (self.accounts.get_mut(&account), self.assets.get_mut(&asset)) else {
                    continue;
                };
                let (by, by_held) = (amount + toil(*balance, self.work), quantity + toil(*held, self.work));
                let (Some(more), Some(more_held)) = (balance.checked_add(by), held.checked_add(by_held)) else {
                    continue;
                };
                (*balance, *held) = (more, more_held);
                deposited[0].push(at[i]);
                deposited[1].push(account);
                deposited[2].push(more);
                continue;
            }
            match self.transfer((account, asset), (to_account[i], to_asset[i]), amount, quantity) {
                Ok(left) => {
                    transferred[0].push(at[i]);
                    transferred[1].push(account);
                    transferred[2].push(left);
                }
                Err((balance, held)) => {
                    let row = [at[i], account, amount, quantity, balance, held];
                    rejected.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
                }
            }
        }
        LoopOutput { deposited, transferred, rejected }
    }

    /// Transfers. Returns what is left, or the balance and quantity that were too small.
    #[inline(always)]
    fn transfer(&mut self, from: (i64, i64), to: (i64, i64), amount: i64, quantity: i64) -> Result<i64, (i64, i64)> {
        if from.0 == to.0 || from.1 == to.1 {
            return self.transfer_within(from, to, amount, quantity);
        }
        let [Some(balance), Some(to_balance)] = self.accounts.get_disjoint_mut([&from.0, &to.0]) else {
            return Err((0, 0));
        };
        let [Some(held), Some(to_held)] = self.assets.get_disjoint_mut([&from.1, &to.1]) else {
            return Err((0, 0));
        };
        if *balance < amount || *held < quantity {
            return Err((*balance, *held));
        }
        let work = self.work;
        let (by, by_held) = (amount + toil(*to_balance, work), quantity + toil(*to_held, work));
        let (Some(more), Some(more_held)) = (to_balance.checked_add(by), to_held.checked_add(by_held)) else {
            return Err((*balance, *held));
        };
        *balance -= amount + toil(*balance, work);
        *held -= quantity + toil(*held, work);
        (*to_balance, *to_held) = (more, more_held);
        Ok(*balance)
    }

    /// The rare case that a transfer stays in one account or asset.
    #[cold]
    fn transfer_within(
        &mut self,
        from: (i64, i64),
        to: (i64, i64),
        amount: i64,
        quantity: i64,
    ) -> Result<i64, (i64, i64)> {
        let (balance, held) = (self.accounts[&from.0], self.assets[&from.1]);
        if balance < amount || held < quantity {
            return Err((balance, held));
        }
        let zero: i64 = [balance, held, balance, held].into_iter().map(|start| toil(start, self.work)).sum();
        *self.accounts.get_mut(&from.0).expect("just read") -= amount + zero;
        *self.assets.get_mut(&from.1).expect("just read") -= quantity;
        *self.accounts.entry(to.0).or_insert(0) += amount;
        *self.assets.entry(to.1).or_insert(0) += quantity;
        Ok(self.accounts[&from.0])
    }

    /// Returns a digest of the state that does not depend on order.
    pub fn digest(&self) -> u64 {
        let sum = |map: &Map<i64, i64>| map.iter().fold(0u64, |sum, (&k, &v)| sum.wrapping_add(row_digest(k, v)));
        sum(&self.accounts).wrapping_mul(31).wrapping_add(sum(&self.assets))
    }
}

/// Returns the digest of one row; a state's is the sum over its rows.
pub fn row_digest(key: i64, value: i64) -> u64 {
    let mut random = Random::new((key as u64).wrapping_mul(0x9e37_79b9).wrapping_add(value as u64));
    random.bits()
}

/// Returns the digest of two tables as batches of key and value.
pub fn tables_digest(accounts: &RecordBatch, assets: &RecordBatch) -> u64 {
    let sum = |batch: &RecordBatch| {
        let (keys, values) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int64Type>());
        keys.values().iter().zip(values.values()).fold(0u64, |sum, (&k, &v)| sum.wrapping_add(row_digest(k, v)))
    };
    sum(accounts).wrapping_mul(31).wrapping_add(sum(assets))
}
