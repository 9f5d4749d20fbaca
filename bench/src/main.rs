//! `cargo run --release -p tidemill-bench -- ledger`: Streaming Ledger against the hand-written loop;
//! `-- files`: the same from file to file; `-- memory`: what a run holds; `-- durable`: runs with a state; `-- grid`: the workloads of
//! the papers over their knobs, the policies and the workers, as CSV; `-- figures`: the papers' figures; `-- windows`: windows over
//! streams; `-- sessions`: what is sent and read while a run goes on.
//!
//! Each round measures the loop, then the engine with each number of workers; with one worker the whole process is on
//! one processor. Medians and their ratios are printed, and the states after all rounds are compared. Beside them
//! stands how long a cache line takes from one processor to the other: on rented machines it can be five times longer
//! an hour later, and two workers live by it.

mod durable;
mod figures;
mod files;
mod grid;
mod median;
mod memory;
mod processors;
mod rounds;
mod run;
mod session;
mod sessions;
mod simulation;
mod standing;
mod windows;
mod workloads;
mod zipf;

use clap::Parser;
use median::median;
use processors::{hand_over_ns, pin};
use std::process::ExitCode;
use std::time::Instant;
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, Options, Scheduling};
use workloads::ledger::{self, KeySpread, Loop, Shape};

/// The allocator of the Python module, too: batches come and go with every epoch.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks of Tidemill, each beside the plain loop.
#[derive(Parser)]
#[command(after_help = "Example:\n  tidemill-bench ledger --rows 10000,1000000 --theta 0.2 --runs 5")]
enum Command {
    /// Streaming Ledger, Arrow to Arrow.
    Ledger(Ledger),
    /// Streaming Ledger from file to file, in several formats.
    Files(Files),
    /// The workloads of the papers over knobs, policies and workers, as CSV on standard output.
    Grid(Box<grid::Grid>),
    /// The figures of the papers, as CSV; and the grid of all policies.
    Figures(figures::Figures),
    /// The memory that a whole run holds, against what it may.
    Memory(Memory),
    /// Runs with a state: log, checkpoints, recovery.
    Durable(durable::DurableBench),
    /// Sessions: latency, the rate of what is sent, and reads of a table beside it.
    Sessions(sessions::Sessions),
    /// Windows over streams.
    Windows(windows::Windows),
}

#[derive(Parser)]
struct Memory {
    /// Rows in both tables together.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,30000000")]
    rows: Vec<u64>,
    /// Events.
    #[arg(long, default_value_t = 4_000_000)]
    events: usize,
    /// The numbers that accounts and assets have.
    #[arg(long, value_enum, default_value_t)]
    keys: KeySpread,
}

#[derive(Parser)]
struct Files {
    /// Events.
    #[arg(long, default_value_t = 2_000_000)]
    events: usize,
    /// Rows in both tables together.
    #[arg(long, default_value_t = 10_000)]
    rows: u64,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The folder for the files, which are removed.
    #[arg(long, default_value = "target/bench-files")]
    folder: std::path::PathBuf,
}

#[derive(Parser)]
struct Ledger {
    /// Rows in both tables together.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,30000000")]
    rows: Vec<u64>,
    /// Zipf skews.
    #[arg(long, value_delimiter = ',', default_value = "0.2,0.99")]
    theta: Vec<f64>,
    /// Events of a round.
    #[arg(long, default_value_t = 4_000_000)]
    events: usize,
    /// Share of transfers that must abort.
    #[arg(long, default_value_t = 0.01)]
    doomed: f64,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Events of an epoch at the most.
    #[arg(long, default_value_t = Options::default().epoch_events_max)]
    epoch: usize,
    /// Rounds of arithmetic of each update's user function, a few nanoseconds each.
    #[arg(long, default_value_t = 0)]
    work: i64,
    /// The numbers that accounts and assets have.
    #[arg(long, value_enum, default_value_t)]
    keys: KeySpread,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = session::workers)]
    workers: Vec<usize>,
    /// The scheduling of access by several workers: auto, or a policy such as epoch, transaction or operation,dfs,lazy.
    #[arg(long, default_value = "auto")]
    scheduling: Scheduling,
    /// Show the seconds of each stage.
    #[arg(long)]
    stages: bool,
}

fn main() -> ExitCode {
    match Command::parse() {
        Command::Ledger(ledger) => ledger_report(&ledger),
        Command::Memory(memory) => memory::measure(&memory.rows, memory.keys, memory.events),
        Command::Files(files) => files::measure(files.events, files.rows, files.runs, &files.folder),
        Command::Grid(grid) => grid.report(),
        Command::Figures(figures) if !figures.report() => return ExitCode::from(figures::UNFINISHED),
        Command::Figures(_) => {}
        Command::Durable(durable) => durable.report(),
        Command::Sessions(sessions) => sessions.report(),
        Command::Windows(windows) => windows.report(),
    }
    ExitCode::SUCCESS
}

fn ledger_report(ledger: &Ledger) {
    let numbers: Vec<String> = ledger.workers.iter().map(|workers| format!("{workers:>8}")).collect();
    let (numbers, width) = (numbers.join(" "), 9 * ledger.workers.len() - 1);
    println!(
        "{:>10} {:>5} | {:>8} {:>width$} | {:>width$} | {:>22} | {:>9} |",
        "", "", "M/s", "by workers", "to loop", "bytes a row", "hand-over"
    );
    println!(
        "{:>10} {:>5} | {:>8} {numbers} | {numbers} | {:>10} {:>11} | {:>9} | state",
        "rows", "theta", "loop", "tables", "live", "ns"
    );
    for &rows in &ledger.rows {
        for &theta in &ledger.theta {
            let Ledger { events, doomed, work, keys, .. } = *ledger;
            measure(ledger, Shape { rows, theta, events, doomed, work, keys });
        }
    }
}

fn measure(ledger: &Ledger, shape: Shape) {
    let events = ledger::events(shape, 42);
    let program = analyze(&ledger::plan(shape.work)).expect("a valid plan");
    let engine = Engine::new(program).expect("a plan that compiles");
    let mut live = 0;
    for table in engine.program().tables.keys() {
        let definition = &engine.program().tables[table];
        let schema = tidemill_model::Schema::scalars(definition.columns.iter().map(|c| (c.name.as_str(), c.ty)));
        live += schema.fields.len() * 8;
        for batch in ledger::initial_rows(shape.rows, shape.keys, &schema) {
            engine.preload(table, &batch).expect("distinct keys");
        }
    }
    let mut plain = Loop::new(shape.rows, shape.work, shape.keys);
    let options = |workers| Options {
        workers,
        scheduling: if workers == 1 { Scheduling::Auto } else { ledger.scheduling },
        epoch_events_max: ledger.epoch,
        ..Options::default()
    };
    let mut loops = Vec::new();
    let mut seconds = vec![Vec::new(); ledger.workers.len()];
    let mut hand_over = Vec::new();
    for _ in 0..ledger.runs {
        pin(true);
        let start = Instant::now();
        let output = plain.run(&events);
        loops.push(start.elapsed().as_secs_f64());
        let rows_out = (output.deposited[0].len() + output.transferred[0].len() + output.rejected[0].len()) as u64;
        for (&workers, seconds) in ledger.workers.iter().zip(&mut seconds) {
            pin(workers == 1);
            let (summary, rows) = run::run(&engine, &events, options(workers));
            assert_eq!(rows, rows_out, "the engine gave out another number of rows than the loop");
            seconds.push(summary.seconds);
            if ledger.stages {
                println!("{workers} workers: {:?} {:?} {:?}", summary.stage_seconds, summary.latency, summary.policies);
            }
        }
        hand_over.push(hand_over_ns());
        // The engine ran more often in this round; the loop catches up, not measured.
        (1..ledger.workers.len()).for_each(|_| drop(plain.run(&events)));
    }
    pin(false);
    let table = |table: usize| engine.table(table.into()).expect("in memory");
    let same = plain.digest() == ledger::tables_digest(&table(0), &table(1));
    assert!(same, "the engine's state differs from the loop's");
    let rate = |s: &[f64]| shape.events as f64 / median(s) / 1e6;
    let (of_loop, rates) = (rate(&loops), seconds.iter().map(|seconds| rate(seconds)).collect::<Vec<_>>());
    let columns = |each: &dyn Fn(f64) -> String| rates.iter().map(|&rate| each(rate)).collect::<Vec<_>>().join(" ");
    let stats: usize =
        engine.program().tables.keys().map(|t| engine.table_stats(t)).map(|s| s.row_bytes + s.index_bytes).sum();
    println!(
        "{:>10} {:>5} | {of_loop:>8.1} {} | {} | {:>10.1} {:>11} | {:>9.0} | equal",
        shape.rows,
        shape.theta,
        columns(&|rate| format!("{rate:>8.1}")),
        columns(&|rate| format!("{:>8.2}", rate / of_loop)),
        stats as f64 / shape.rows as f64,
        live / 2,
        median(&hand_over),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_agrees_with_the_loop() {
        for (rows, work) in [(100, 0), (5_000, 3)] {
            let ledger = Ledger::parse_from(["ledger", "--runs", "2", "--epoch", "512"]);
            measure(&ledger, Shape { rows, theta: 0.99, events: 20_000, doomed: 0.1, work, keys: ledger.keys });
        }
    }

    #[test]
    fn a_run_is_weighed() {
        memory::measure(&[100, 5_000], KeySpread::Scattered, 100_000);
    }

    #[test]
    fn durable_runs_are_measured() {
        let folder = std::env::temp_dir().join(format!("tidemill-bench-durable-{}", std::process::id()));
        let small = ["durable", "--parts", "log,checkpoint,store", "--rows", "1000", "--checkpoint-rows", "5000"];
        let small = small.into_iter().chain(["--events", "60000", "--runs", "1", "--folder"]);
        durable::DurableBench::parse_from(small.chain([folder.to_str().expect("UTF-8")])).report();
    }

    #[test]
    fn every_pair_of_formats_runs() {
        let folder = std::env::temp_dir().join(format!("tidemill-bench-{}", std::process::id()));
        files::measure(5_000, 100, 1, &folder);
    }
}
