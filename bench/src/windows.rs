//! Windows over streams, each beside the loops that one would write by hand.
//!
//! Each round runs the loops, then the baselines and the engine with each number of workers; medians are printed. What the
//! engine puts out must have the digest of what the loops put out, order included, or the report ends; what the baselines
//! put out must have the digest of the same rows in any order.

use crate::memory;
use crate::processors::{pin, steadily};
use crate::run::{self, Arrival};
use crate::session;
use crate::workloads::OutputDigest;
use crate::workloads::windows::{Baseline, Plain, Query, Shape, WINDOW_WORKLOADS, WindowWorkload, punctual, read};
use arrow_array::RecordBatch;
use clap::Parser;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidemill_connect::open_state;
use tidemill_plan::analyze;
use tidemill_runtime::{
    Durability, DurabilityOptions, Engine, EpochSize, LatencySummary, Options, Scheduling, Summary,
};

/// Windows over streams against loops: million events/s, the ratio to the faster loop, memory.
///
/// "columns" reads the columns that the query needs. "map" and "array" are the loops, by how they find a group. "up", "late"
/// and "global" are baselines on as many workers as the engine: upfront partitioning, late local merge, one shared table. "tables"
/// and "slots" are what the tables of windows hold after all windows have closed, without what lies outside of rows; "peak"
/// is what the process held at the most, results included.
#[derive(Parser)]
#[command(
    after_help = "Example:\n  tidemill-bench windows --workloads ysb,q11 --groups 1000,1000000 --theta 0,1 --runs 3"
)]
pub struct Windows {
    /// ysb, nyt, q5 and so on; by default all.
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    workloads: Vec<&'static WindowWorkload>,
    /// Events of a round.
    #[arg(long, default_value_t = 4_000_000)]
    events: usize,
    /// Groups; by default those of the workload's definition.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    groups: Vec<u64>,
    /// Zipf skews of the groups, for the workloads that do not have a skew of their own.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = skew)]
    theta: Vec<f64>,
    /// Lengths of windows, or gaps of sessions, in seconds; by default those of the workload's definition.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(i64).range(1..=86_400))]
    length: Vec<i64>,
    /// Events in a second of event time; by default those of the workload's definition.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Shares of events that are late by up to a second. The source drops them; a loop first makes a copy without them.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = share)]
    late: Vec<f64>,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = session::workers)]
    workers: Vec<usize>,
    /// Baselines, for the workloads that are aggregations in tumbling windows.
    #[arg(long, value_delimiter = ',', default_value = "up,late,global")]
    baselines: Vec<Baseline>,
    /// Rounds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Events of an epoch; by default the engine decides.
    #[arg(long)]
    epoch: Option<usize>,
    /// The scheduling of access by two workers and more: auto, or a policy such as epoch, transaction or
    /// operation,dfs,lazy.
    #[arg(long, default_value = "auto")]
    scheduling: Scheduling,
    /// A folder for states, which are removed: measure the engine with a state, too. Its source can be read again, so the log
    /// does not have the events; the seconds include all from opening the state to the last checkpoint.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Shares of the engine's rate: run it again with events that arrive so fast, and show latencies from when an event was
    /// due until its results were released.
    #[arg(long, value_delimiter = ',', value_parser = share, conflicts_with = "csv")]
    open_loop: Vec<f64>,
    /// Show the seconds of each stage.
    #[arg(long)]
    stages: bool,
    /// Write lines of CSV, one for each way to run a point.
    #[arg(long, conflicts_with = "stages")]
    csv: bool,
    /// A folder for the events, the tables before them and the results of each workload, as Arrow IPC files.
    #[arg(long)]
    save: Option<PathBuf>,
}

/// Returns a workload by its name.
pub fn workload(text: &str) -> Result<&'static WindowWorkload, String> {
    let found = WINDOW_WORKLOADS.iter().find(|workload| workload.name == text);
    let names = || WINDOW_WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("there is no workload '{text}'; there are {}", names()))
}

fn skew(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(theta) if theta.is_finite() && theta >= 0.0 => Ok(theta),
        _ => Err(format!("the skew '{text}' is no number from 0 on")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("the share '{text}' is not between 0 and 1")),
    }
}

/// Measures a point in this number of rounds and writes lines of CSV; all else as the command line has it by default.
pub fn write_point(workload: &WindowWorkload, shape: &Shape, workers: &[usize], runs: usize, out: &mut dyn Write) {
    let options = Windows { workers: workers.to_vec(), runs: runs as u64, ..Windows::parse_from(["windows"]) };
    options.bench(workload, shape).write_csv(workload, shape, out);
}

/// A query, and what came of its rounds. Rates are of seconds by round.
struct Bench<'a> {
    options: &'a Windows,
    query: Query,
    engine: Option<Engine>,
    expected: OutputDigest,
    /// The digest of the same rows in any order.
    expected_rows: OutputDigest,
    by_map: Vec<f64>,
    by_array: Vec<f64>,
    /// The runs with each number of workers.
    runs: Vec<Runs>,
}

#[derive(Default)]
struct Runs {
    /// The seconds of reading the columns.
    columns: Vec<f64>,
    /// The seconds of the baselines, in the order of the options; empty where the workload has none.
    baselines: Vec<Vec<f64>>,
    /// The seconds of the engine.
    seconds: Vec<f64>,
    /// The seconds of the engine with a state, its last checkpoint included; empty where it is not asked for.
    durable: Vec<f64>,
    /// The latencies of each round, by share of the engine's rate.
    latencies: Vec<Vec<LatencySummary>>,
    results: usize,
    tables: Tables,
    /// The most that a run held beyond what was held before: tables, epochs in flight, all results.
    peak: u64,
}

/// The tables of windows after a run, which keep their memory when rows are deleted.
#[derive(Clone, Copy, Default)]
struct Tables {
    bytes: usize,
    /// Taken although all windows have closed.
    slots: usize,
}

impl Windows {
    /// Runs all and prints.
    pub fn report(&self) {
        print!("{}", if self.csv { report::CSV_HEADER } else { report::HEADER });
        let all: Vec<&WindowWorkload> = WINDOW_WORKLOADS.iter().collect();
        for workload in if self.workloads.is_empty() { &all } else { &self.workloads } {
            self.points(workload).iter().for_each(|shape| self.measure(workload, shape));
        }
    }

    fn points(&self, workload: &WindowWorkload) -> Vec<Shape> {
        let groups = if self.groups.is_empty() { vec![workload.groups] } else { self.groups.clone() };
        let lengths =
            if self.length.is_empty() || workload.length == 0 { vec![workload.length] } else { self.length.clone() };
        let skews = if workload.skews { &self.theta[..] } else { &[0.0] };
        let (events, rate) = (self.events, self.rate.unwrap_or(workload.rate));
        let mut points = Vec::new();
        for groups in groups {
            for &theta in skews {
                for &length in &lengths {
                    points.extend(self.late.iter().map(|&late| Shape { events, groups, theta, rate, length, late }));
                }
            }
        }
        points
    }

    fn measure(&self, workload: &WindowWorkload, shape: &Shape) {
        let bench = self.bench(workload, shape);
        if self.csv {
            bench.write_csv(workload, shape, &mut std::io::stdout());
        } else {
            bench.print(workload, shape);
        }
    }

    /// Measures all rounds of a point.
    fn bench(&self, workload: &WindowWorkload, shape: &Shape) -> Bench<'_> {
        let query = punctual_query(workload, shape);
        let mut bench = Bench::new(self, query);
        if let Some(folder) = &self.save {
            bench.save(&folder.join(workload.name), workload, shape);
        }
        (0..self.runs).for_each(|_| bench.round(workload, shape));
        bench
    }
}

impl<'a> Bench<'a> {
    fn new(options: &'a Windows, query: Query) -> Self {
        let engine = Engine::new(analyze(&query.plan).expect("a valid plan")).expect("a plan that compiles");
        let output = (query.by_map)(&query.events);
        let (expected, expected_rows) = (OutputDigest::of(&output), OutputDigest::of_rows(&[output]));
        let runs = options.workers.iter().map(|_| Runs::default()).collect();
        let (by_map, by_array) = Default::default();
        Bench { options, query, engine: Some(engine), expected, expected_rows, by_map, by_array, runs }
    }

    fn round(&mut self, workload: &WindowWorkload, shape: &Shape) {
        let events = &self.query.events;
        let loops = |plain: &Plain| {
            let (seconds, output) = steadily(|| timed(true, || plain(events)));
            let is_same = OutputDigest::of(&output) == self.expected;
            assert!(is_same, "the loops of {} differ at {shape:?}", workload.name);
            seconds
        };
        self.by_map.push(loops(&self.query.by_map));
        self.by_array.extend(self.query.by_array.as_ref().map(loops));
        for way in 0..self.runs.len() {
            self.run_columns(way);
            self.run_baselines(way, workload, shape);
            self.run(way, workload, shape);
        }
    }

    fn run_columns(&mut self, way: usize) {
        let (Query { events, needed, .. }, workers) = (&self.query, self.options.workers[way]);
        let (seconds, _) = steadily(|| timed(workers == 1, || read_by(workers, events, needed)));
        self.runs[way].columns.push(seconds);
    }

    fn run_baselines(&mut self, way: usize, workload: &WindowWorkload, shape: &Shape) {
        let Some(parallel) = workload.parallel else { return };
        let (events, workers) = (&self.query.events, self.options.workers[way]);
        self.runs[way].baselines.resize_with(self.options.baselines.len(), Vec::new);
        for (&baseline, seconds) in self.options.baselines.iter().zip(&mut self.runs[way].baselines) {
            let run = || match shape.late {
                0.0 => parallel(shape, events, baseline, workers),
                _ => parallel(shape, &punctual(events), baseline, workers),
            };
            let (took, outputs) = steadily(|| timed(workers == 1, run));
            let is_same = OutputDigest::of_rows(&outputs) == self.expected_rows;
            assert!(is_same, "{baseline:?} of {} on {workers} workers differs at {shape:?}", workload.name);
            seconds.push(took);
        }
    }

    /// Runs the engine once, and checks that it gives what the loop gives.
    fn run_engine(
        &mut self,
        workers: usize,
        workload: &WindowWorkload,
        shape: &Shape,
        arrival: Arrival,
        state: Option<&Path>,
    ) -> (Summary, Vec<RecordBatch>, Tables, u64) {
        let engine = self.engine.take().expect("between runs there is an engine").with_empty_tables();
        preload(&engine, &self.query);
        let before = memory::resident();
        memory::reset_peak();
        let durability = state.map(|folder| durability(&engine, folder));
        pin(workers == 1);
        let (events, options) = (&self.query.events, self.options.engine(workers));
        let mut ran = run::run_with_state(&engine, events, arrival, options, durability);
        pin(false);
        let peak = memory::peak().saturating_sub(before);
        let is_same = self.expected.of_batches(&ran.outputs[0]) == self.expected;
        assert!(is_same, "{} on {workers} workers differs from the loop at {shape:?}", workload.name);
        let stats = engine.program().tables.keys().map(|table| engine.table_stats(table));
        let tables = stats.fold(Tables::default(), |all, table| Tables {
            bytes: all.bytes + table.row_bytes + table.index_bytes,
            slots: all.slots + table.slots,
        });
        self.engine = Some(engine);
        (ran.summary, ran.outputs.swap_remove(0), tables, peak)
    }

    fn run(&mut self, way: usize, workload: &WindowWorkload, shape: &Shape) {
        let workers = self.options.workers[way];
        let (summary, results, tables, peak) = steadily(|| {
            let arrival = Arrival::WhenThereIsRoom { size: shape.events };
            let (summary, results, tables, peak) = self.run_engine(workers, workload, shape, arrival, None);
            (summary, results.iter().map(RecordBatch::num_rows).sum(), tables, peak)
        });
        if self.options.stages {
            let Summary { stage_seconds, access_seconds, latency, policies, epochs, .. } = &summary;
            println!(
                "{workers} workers, {epochs} epochs: {stage_seconds:?} {access_seconds:?} {latency:?} {policies:?}"
            );
        }
        let runs = &mut self.runs[way];
        runs.seconds.push(summary.seconds);
        (runs.results, runs.tables, runs.peak) = (results, tables, peak.max(runs.peak));
        self.run_durable(way, workload, shape);
        let per_second = shape.events as f64 / summary.seconds;
        for share in 0..self.options.open_loop.len() {
            let arrival = Arrival::PerSecond(per_second * self.options.open_loop[share]);
            let (Summary { latency, .. }, ..) = self.run_engine(workers, workload, shape, arrival, None);
            let latencies = &mut self.runs[way].latencies;
            latencies.resize_with(self.options.open_loop.len(), Vec::new);
            latencies[share].push(latency);
        }
    }

    fn run_durable(&mut self, way: usize, workload: &WindowWorkload, shape: &Shape) {
        let (Some(folder), workers) = (&self.options.state, self.options.workers[way]) else { return };
        let folder = folder.join(workload.name);
        let arrival = Arrival::WhenThereIsRoom { size: shape.events };
        let (summary, ..) = steadily(|| self.run_engine(workers, workload, shape, arrival, Some(&folder)));
        std::fs::remove_dir_all(&folder).expect("our own folder");
        self.runs[way].durable.push(summary.seconds);
    }
}

/// Returns a new state in a folder, which is removed before if it is there.
fn durability(engine: &Engine, folder: &Path) -> Durability {
    let _ = std::fs::remove_dir_all(folder);
    let options = DurabilityOptions { is_final: true, ..DurabilityOptions::default() };
    Durability { directory: open_state(folder, engine.program(), None).expect("a state"), options }
}

/// Returns a query whose loops leave out what is late, where something is.
fn punctual_query(workload: &WindowWorkload, shape: &Shape) -> Query {
    let query = (workload.query)(shape);
    if shape.late == 0.0 {
        return query;
    }
    let without_late = |plain: Plain| -> Plain { Box::new(move |events| plain(&punctual(events))) };
    Query { by_map: without_late(query.by_map), by_array: query.by_array.map(without_late), ..query }
}

/// Reads columns, each worker its part of the rows.
fn read_by(workers: usize, events: &RecordBatch, columns: &[usize]) -> u64 {
    let (rows, of_worker) = (events.num_rows(), events.num_rows().div_ceil(workers));
    let part = |worker: usize| {
        let start = (worker * of_worker).min(rows);
        events.slice(start, of_worker.min(rows - start))
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|worker| scope.spawn(move || read(&part(worker), columns))).collect();
        let sums = others.into_iter().map(|thread| thread.join().expect("a reader that ends"));
        sums.fold(read(&part(0), columns), u64::wrapping_add)
    })
}

/// Puts in the rows that tables have before the first event.
fn preload(engine: &Engine, query: &Query) {
    for (name, rows) in &query.tables {
        let tables = &engine.program().tables;
        let table = tables.keys().find(|&table| tables[table].name == *name).expect("a table of the plan");
        engine.preload(table, rows).expect("distinct keys");
    }
}

impl Windows {
    fn engine(&self, workers: usize) -> Options {
        let scheduling = if workers == 1 { Scheduling::Auto } else { self.scheduling };
        let epoch = self.epoch.map_or(EpochSize::Auto, EpochSize::Events);
        Options { workers, scheduling, epoch, ..Options::default() }
    }
}

/// Measures a run on one processor or on all. Returns the seconds, and the result.
fn timed<T>(on_one: bool, run: impl FnOnce() -> T) -> (f64, T) {
    pin(on_one);
    let start = Instant::now();
    let result = std::hint::black_box(run());
    let seconds = start.elapsed().as_secs_f64();
    pin(false);
    (seconds, result)
}

pub use report::CSV_HEADER;

mod report;
mod save;
#[cfg(test)]
mod tests;
