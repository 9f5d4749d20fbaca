//! The cost of logging every transaction and not only what crosses the border (S-Store, Meehan et al. 2015, §3.2.5 and
//! Fig. 8): chains of transactions, each on a table of its own and on what the one before gave.
//!
//! Strong recovery logs each transaction with its input, and replays each by itself, with triggers off. Here it is a
//! program in which no transaction follows another: its source has, for each event of the chain, one run of each of the
//! transactions. So it is kinder than S-Store's: what the runs are made from is there already.

use super::recovery::{Recovered, killed, live, recover};
use super::{DurableBench, EVENTS, open, run_timed, run_with, source};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use clap::ValueEnum;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidemill_io::{IoFailure, Next, Source, SourceBatch};
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, cell, committed, event, literal, named};
use tidemill_plan::{Plan, StreamRef, analyze};
use tidemill_runtime::{Control, DurabilityOptions, Engine, EpochSize, Logging, Options};

/// Transactions of the chains that are measured.
const LENGTHS: [usize; 4] = [1, 2, 4, 8];
/// Rows of each table.
const ROWS: i64 = 10_000;
/// Events that a run has released when it is killed.
const RELEASED: u64 = 4_000_000;
/// The time for which transactions run one by one, each durable before the next.
const ONE_BY_ONE: Duration = Duration::from_secs(2);

/// The part of a chain that is logged, and replayed.
#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// The events that cross the border; the chain is replayed from it.
    Border,
    /// The events that cross the border, and what each transaction gave, with which the replay is compared.
    Full,
    /// Each transaction with its input; each is replayed by itself.
    Strong,
}

impl Way {
    fn name(self) -> String {
        self.to_possible_value().expect("none is hidden").get_name().into()
    }

    fn engine(self, length: usize) -> Engine {
        let (plan, logging) = match self {
            Way::Border => (chain(length), Logging::Border),
            Way::Full => (chain(length), Logging::Full),
            Way::Strong => (apart(length), Logging::Border),
        };
        let program = analyze(&plan).expect("a right plan");
        Engine::with_logging(program, logging).expect("a plan that compiles")
    }

    /// Returns the number of events of its source that are one event of the chain.
    fn runs(self, length: usize) -> usize {
        match self {
            Way::Border | Way::Full => 1,
            Way::Strong => length,
        }
    }
}

fn with_source() -> PlanBuilder {
    PlanBuilder::new("chain").source("events", |s| {
        s.event_time("at", Type::Int).field("step", Type::Int).field("id", Type::Int).field("amount", Type::Int)
    })
}

fn with_step(plan: PlanBuilder, step: usize, input: StreamRef) -> PlanBuilder {
    let table = format!("table{step}");
    plan.table(&table, |t| t.key("id", Type::Int).column_or("sum", Type::Int, Value::Int(0))).transaction(
        format!("step{step}"),
        [input],
        |t| {
            t.create("row", &table, [event("id")]).body(|b| {
                b.set("row", "sum", cell("row", "sum") + event("amount"));
                b.give([("at", event("at")), ("id", event("id")), ("amount", event("amount"))]);
            })
        },
    )
}

/// Each transaction runs on what the one before gave.
fn chain(length: usize) -> Plan {
    let step = |plan, step: usize| {
        let input = if step == 0 { named("events") } else { committed(format!("step{}", step - 1)) };
        with_step(plan, step, input)
    };
    (0..length).fold(with_source(), step).sink("done", committed(format!("step{}", length - 1))).build()
}

/// Each transaction runs on the events that name it.
fn apart(length: usize) -> Plan {
    let step = |plan: PlanBuilder, step: usize| {
        let runs = format!("runs{step}");
        let plan = plan.filter(&runs, named("events"), event("step").eq(literal(Value::Int(step as i64))));
        with_step(plan, step, named(runs))
    };
    (0..length).fold(with_source(), step).sink("done", committed(format!("step{}", length - 1))).build()
}

/// Returns events of the source; each event of the chain has `runs` of them.
fn batch(runs: usize) -> RecordBatch {
    let events = EVENTS / runs * runs;
    let numbers =
        |of: &dyn Fn(i64) -> i64| Arc::new(Int64Array::from_iter_values((0..events as i64).map(of))) as ArrayRef;
    let runs = runs as i64;
    let columns = [
        ("at", numbers(&|i| i)),
        ("step", numbers(&|i| i % runs)),
        ("id", numbers(&|i| (i / runs).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64).rem_euclid(ROWS))),
        ("amount", numbers(&|i| i / runs % 100)),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let program = analyze(&chain(1)).expect("a right plan");
    batch
        .with_schema(tidemill_model::arrow::arrow_schema(&program.streams.raw[0].schema))
        .expect("the source's columns")
}

/// A run of one until it is killed: `LENGTH border`, `LENGTH full` or `LENGTH strong`.
pub fn live_chain(chain: &str, state: &Path) {
    let (length, way) = chain.split_once(' ').expect("a length and a way of logging");
    let (length, way): (usize, Way) =
        (length.parse().expect("a number"), Way::from_str(way, false).expect("a way of logging"));
    live(&way.engine(length), &batch(way.runs(length)), state);
}

/// Prints the rates of all chains.
pub fn measure(bench: &DurableBench) {
    println!("chains of transactions: million events/s without a state, with what is logged, and recovered");
    for length in LENGTHS {
        let events = (bench.events / length).min(RELEASED as usize);
        let (_, seconds) = run_timed(&Way::Border.engine(length), source(&batch(1), events), None, &Arc::default());
        print!("  {length}: {:.2}", events as f64 / seconds / 1e6);
        Way::value_variants().iter().for_each(|&way| recovered(bench, length, way, events as u64));
        println!();
    }
    println!("the same one by one, each transaction that is logged durable before the next: events/s");
    for length in LENGTHS {
        let rates = [Way::Border, Way::Strong].map(|way| one_by_one(bench, length, way));
        println!("  {length}: border {:.0}, strong {:.0}", rates[0], rates[1]);
    }
}

/// Prints the rates of a run that is killed, and of the one that goes on.
fn recovered(bench: &DurableBench, length: usize, way: Way, events: u64) {
    let state = bench.fresh("logging");
    let (runs, name) = (way.runs(length), way.name());
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["durable", "--chain", &format!("{length} {name}"), "--live"]).arg(&state);
    let (released, seconds) = killed(&mut command, |_, released| released >= events * runs as u64);
    let bytes: u64 = std::fs::read_dir(state.join("log"))
        .expect("a log")
        .map(|file| file.and_then(|file| file.metadata()).map_or(0, |file| file.len()))
        .sum();
    let Recovered { loaded, whole, events } = recover(&way.engine(length), &batch(runs), &state);
    let of_chain = |events: u64| events as f64 / runs as f64;
    print!(
        "; {name} {:.2} live, {:.1} bytes an event, {:.2} recovered in {whole:.2} s",
        of_chain(released) / seconds / 1e6,
        bytes as f64 / of_chain(events),
        of_chain(events) / (whole - loaded) / 1e6,
    );
}

/// Returns events of the chain in a second, if there is no group commit.
fn one_by_one(bench: &DurableBench, length: usize, way: Way) -> f64 {
    let engine = way.engine(length);
    let options = DurabilityOptions { commit_age_max: Duration::ZERO, ..DurabilityOptions::default() };
    let durability = open(&engine, &bench.fresh("logging"), options);
    let control: Arc<Control> = Arc::default();
    let runs = way.runs(length);
    let single = Single { batch: batch(runs), given: 0, began: None, control: control.clone() };
    let options = Options { epoch: EpochSize::Events(1), ..Options::default() };
    let (summary, seconds) = run_with(&engine, Box::new(single), Some(durability), &control, options);
    summary.events as f64 / runs as f64 / seconds
}

/// Gives an event when the results of the one before are durable, for as long as [`ONE_BY_ONE`].
struct Single {
    batch: RecordBatch,
    given: u64,
    began: Option<Instant>,
    control: Arc<Control>,
}

impl Source for Single {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        let start = Instant::now();
        while self.control.events.load(Ordering::Relaxed) < self.given {
            if start.elapsed() > wait_max {
                return Ok(Next::Nothing);
            }
            std::thread::yield_now();
        }
        if self.began.get_or_insert(start).elapsed() > ONE_BY_ONE || self.given as usize == self.batch.num_rows() {
            return Ok(Next::End);
        }
        let events = self.batch.slice(self.given as usize, 1);
        self.given += 1;
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }
}
