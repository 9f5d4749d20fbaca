//! Streaming Ledger (TStream 2020, §VI-A): half deposits, half transfers over accounts and assets, a
//! share of the transfers doomed. Once as a plan, once as the loop that one would write by hand.

use crate::zipf::{Random, Zipf};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::Plan;
use tidemill_plan::build::{Block, PlanBuilder, aborted, cell, committed, event, local, named};

/// What a ledger's events are like.
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
    /// Rounds of arithmetic that each transaction does beside.
    pub work: i64,
}

const BALANCE: i64 = 1_000_000_000;
/// More than any balance can reach.
const TOO_MUCH: i64 = 1 << 60;

/// The schema of the events.
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

/// A transaction's arithmetic, as the plan says it too.
#[inline(always)]
fn toil(start: i64, rounds: i64) -> i64 {
    (0..rounds).fold(start, |x, i| (x * 31 + i) % 1_000_003)
}

fn toil_statements(b: &mut Block, rounds: i64) {
    if rounds > 0 {
        b.assign("x", event("amount") % 1_000_003);
        b.for_range("i", 0, rounds, |b| b.assign("x", (local("x") * 31 + local("i")) % 1_000_003));
        b.require(local("x").ge(0), "never");
    }
}

/// The application.
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
                toil_statements(b, work);
                b.set("account", "balance", cell("account", "balance") + event("amount"));
                b.set("asset", "quantity", cell("asset", "quantity") + event("quantity"));
                b.give([("at", event("at")), ("account", event("account")), ("balance", cell("account", "balance"))]);
            })
        })
        .transaction("transfer", [named("transfers")], |t| {
            t.row("account", "accounts", [event("account")])
                .row("asset", "assets", [event("asset")])
                .row("to_account", "accounts", [event("to_account")])
                .row("to_asset", "assets", [event("to_asset")])
                .body(|b| {
                    toil_statements(b, work);
                    b.require(cell("account", "balance").ge(event("amount")), "insufficient balance");
                    b.require(cell("asset", "quantity").ge(event("quantity")), "insufficient assets");
                    b.set("account", "balance", cell("account", "balance") - event("amount"));
                    b.set("to_account", "balance", cell("to_account", "balance") + event("amount"));
                    b.set("asset", "quantity", cell("asset", "quantity") - event("quantity"));
                    b.set("to_asset", "quantity", cell("to_asset", "quantity") + event("quantity"));
                    b.give([("at", event("at")), ("account", event("account")), ("left", cell("account", "balance"))]);
                })
        })
        .sink("deposited", committed("deposit"))
        .sink("transferred", committed("transfer"))
        .sink("rejected", aborted("transfer"))
        .build()
}

/// Events of a shape, as one batch.
pub fn events(shape: Shape, seed: u64) -> RecordBatch {
    let keys = shape.rows / 2;
    let zipf = Zipf::new(keys, shape.theta);
    let mut random = Random::new(seed);
    let mut columns: Vec<Vec<i64>> = (0..7).map(|_| Vec::with_capacity(shape.events)).collect();
    let mut transfers = Vec::with_capacity(shape.events);
    for at in 0..shape.events {
        let transfer = random.bits() & 1 == 1;
        let doomed = transfer && random.unit() < shape.doomed;
        transfers.push(transfer);
        columns[0].push(at as i64);
        (1..5).for_each(|c| columns[c].push(zipf.key(&mut random) as i64));
        columns[5].push(if doomed { TOO_MUCH } else { 1 + random.below(100) as i64 });
        columns[6].push(1 + random.below(100) as i64);
    }
    let mut arrays: Vec<ArrayRef> = columns.into_iter().map(|c| Arc::new(Int64Array::from(c)) as ArrayRef).collect();
    arrays.insert(1, Arc::new(BooleanArray::from(transfers)));
    RecordBatch::try_new(arrow_schema(&event_schema()), arrays).expect("columns of the schema")
}

/// The rows of one table before the first event, in batches.
pub fn initial_rows(rows: u64, schema: &Schema) -> impl Iterator<Item = RecordBatch> {
    const BATCH: u64 = 1 << 16;
    let (keys, schema) = (rows / 2, arrow_schema(schema));
    (0..keys.div_ceil(BATCH)).map(move |b| {
        let ids = Int64Array::from_iter_values((b * BATCH..((b + 1) * BATCH).min(keys)).map(|k| k as i64));
        let values = Int64Array::from(vec![BALANCE; ids.len()]);
        RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(values)]).expect("two columns")
    })
}

type Map = HashMap<i64, i64, FixedState>;

/// The hand-written loop: two maps, one pass over the columns, the same results.
pub struct Loop {
    accounts: Map,
    assets: Map,
    work: i64,
}

/// What the loop gives out: the batches of deposited, transferred and rejected.
pub struct LoopOutput {
    /// at, account, balance
    pub deposited: [Int64Array; 3],
    /// at, account, left
    pub transferred: [Int64Array; 3],
    /// at, account, amount, quantity, and balance and quantity seen
    pub rejected: [Int64Array; 6],
}

impl Loop {
    /// With the rows that the tables have before the first event.
    pub fn new(rows: u64, work: i64) -> Self {
        let map = || (0..rows as i64 / 2).map(|k| (k, BALANCE)).collect();
        Loop { accounts: map(), assets: map(), work }
    }

    /// Runs a batch of events.
    pub fn run(&mut self, events: &RecordBatch) -> LoopOutput {
        let int = |c: usize| events.column(c).as_primitive::<Int64Type>().values();
        let is_transfer = events.column(1).as_boolean();
        let [at, account, asset, to_account, to_asset, amount, quantity] = [0, 2, 3, 4, 5, 6, 7].map(int);
        let room = || Vec::with_capacity(events.num_rows() / 2 + events.num_rows() / 16);
        let mut deposited: [Vec<i64>; 3] = std::array::from_fn(|_| room());
        let mut transferred: [Vec<i64>; 3] = std::array::from_fn(|_| room());
        let mut rejected: [Vec<i64>; 6] = std::array::from_fn(|_| Vec::new());
        for i in 0..events.num_rows() {
            let (account, asset, amount, quantity) = (account[i], asset[i], amount[i], quantity[i]);
            if std::hint::black_box(toil(amount % 1_000_003, self.work)) < 0 {
                continue;
            }
            if !is_transfer.value(i) {
                let (Some(balance), Some(held)) = (self.accounts.get_mut(&account), self.assets.get_mut(&asset)) else {
                    continue;
                };
                let (Some(more), Some(more_held)) = (balance.checked_add(amount), held.checked_add(quantity)) else {
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
        LoopOutput {
            deposited: deposited.map(Int64Array::from),
            transferred: transferred.map(Int64Array::from),
            rejected: rejected.map(Int64Array::from),
        }
    }

    /// What is left, or the balance and quantity that were too small.
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
        let (Some(more), Some(more_held)) = (to_balance.checked_add(amount), to_held.checked_add(quantity)) else {
            return Err((*balance, *held));
        };
        *balance -= amount;
        *held -= quantity;
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
        *self.accounts.get_mut(&from.0).expect("just read") -= amount;
        *self.assets.get_mut(&from.1).expect("just read") -= quantity;
        *self.accounts.entry(to.0).or_insert(0) += amount;
        *self.assets.entry(to.1).or_insert(0) += quantity;
        Ok(self.accounts[&from.0])
    }

    /// A digest of the state that does not depend on order.
    pub fn digest(&self) -> u64 {
        let sum = |map: &Map| map.iter().fold(0u64, |sum, (&k, &v)| sum.wrapping_add(row_digest(k, v)));
        sum(&self.accounts).wrapping_mul(31).wrapping_add(sum(&self.assets))
    }
}

/// The digest of one row; a state's is the sum over its rows.
pub fn row_digest(key: i64, value: i64) -> u64 {
    let mut random = Random::new((key as u64).wrapping_mul(0x9e37_79b9).wrapping_add(value as u64));
    random.bits()
}

/// The digest of two tables as batches of key and value.
pub fn tables_digest(accounts: &RecordBatch, assets: &RecordBatch) -> u64 {
    let sum = |batch: &RecordBatch| {
        let (keys, values) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_primitive::<Int64Type>());
        keys.values().iter().zip(values.values()).fold(0u64, |sum, (&k, &v)| sum.wrapping_add(row_digest(k, v)))
    };
    sum(accounts).wrapping_mul(31).wrapping_add(sum(assets))
}
