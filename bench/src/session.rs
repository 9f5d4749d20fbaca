//! A workload at one point of its knobs, run in several ways and held against the loop; and the lines of CSV that
//! come of it.

use crate::memory;
use crate::processors::{pin, steadily};
use crate::rounds::Spread;
use crate::run::{self, Arrival, Ran};
use crate::workloads::{Input, Knobs, Output, OutputDigest, Workload, int_rows, state_digest};
use arrow_array::RecordBatch;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;
use tidemill_connect::System;
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, Environment, EpochShape, EpochSize, Options, PolicySummary, Scheduling, Summary};

/// The results that must be equal: outputs by sink, and the tables.
#[derive(Clone, PartialEq)]
pub struct Seen {
    /// A digest of each output, by sink.
    pub outputs: Vec<OutputDigest>,
    /// A digest of the tables.
    pub tables: u64,
}

/// The way in which the engine runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// Policy, scheme, or who decides.
    pub scheduling: Scheduling,
    /// Workers.
    pub workers: usize,
}

impl Way {
    /// Returns whether results must be the loop's.
    fn keeps_order(self) -> bool {
        !matches!(self.scheduling, Scheduling::Baseline(scheme) if !scheme.keeps_order())
    }
}

/// Parses a number of workers on the command line.
pub fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("'{text}' is no number of workers: say how many, 1 or more")),
    }
}

/// The figures of a run.
#[derive(Clone)]
pub struct Measured {
    /// The engine's summary.
    pub summary: Summary,
    /// The most that the process held beyond what it held before, bytes: tables, epochs in flight, and all results, which
    /// are kept to be compared.
    pub memory: u64,
}

/// Returns the name that the command line has for a scheduling.
pub fn scheduling_name(scheduling: Scheduling) -> String {
    match scheduling {
        Scheduling::Auto => "auto".into(),
        Scheduling::MorphStream => "morphstream".into(),
        Scheduling::Fixed(policy) => policy.to_string(),
        Scheduling::FixedOn(fixed) => fixed.to_string(),
        Scheduling::ByGroup(policies) => policies.to_string(),
        Scheduling::Baseline(scheme) => scheme.to_string(),
    }
}

/// A workload with its input and an engine.
pub struct Session {
    workload: Workload,
    knobs: Knobs,
    input: Input,
    engine: Option<Engine>,
    expected: Option<Seen>,
}

impl Session {
    /// Makes the input and compiles.
    pub fn new(workload: Workload, knobs: Knobs) -> Session {
        let input = workload.input(&knobs);
        let engine = Engine::new(analyze(&input.plan).expect("a valid plan")).expect("a plan that compiles");
        Session { workload, knobs, input, engine: Some(engine), expected: None }
    }

    /// Runs the loop, on one processor: seconds.
    pub fn run_loop(&mut self) -> f64 {
        let (seconds, seen) = steadily(|| run_plain(&self.input));
        self.expected = Some(seen);
        seconds
    }

    /// Returns the operations of the first epoch.
    pub fn shape(&mut self) -> EpochShape {
        let engine = self.engine.take().expect("between runs there is an engine").with_empty_tables();
        for (table, rows) in self.input.tables.iter().enumerate() {
            engine.preload(table.into(), rows).expect("distinct keys");
        }
        let shape = engine.shape(&self.input.events.slice(0, self.knobs.epoch.min(self.knobs.events)));
        self.engine = Some(engine);
        shape
    }

    /// Runs the engine for nothing: what runs first after the loop finds memory that the system has to give anew, and takes
    /// up to three times as long to prepare.
    pub fn warm_up(&mut self, way: Way) {
        self.run_recorded(way);
    }

    /// Runs the engine in epochs of the knobs' size, each arriving when there is room for it (a closed loop).
    pub fn run(&mut self, way: Way) -> Measured {
        steadily(|| self.run_recorded(way).0)
    }

    /// Runs once, for a record of each epoch.
    pub fn run_recorded(&mut self, way: Way) -> (Measured, Vec<RecordBatch>) {
        let Way { scheduling, workers } = way;
        let options = Options { workers, scheduling, epoch: EpochSize::Events(self.knobs.epoch), ..Options::default() };
        self.run_with(way, options, Arrival::WhenThereIsRoom { size: self.knobs.epoch })
    }

    /// Runs the engine, after the loop. Panics if its results are not the loop's and should be.
    pub fn run_with(&mut self, way: Way, options: Options, arrival: Arrival) -> (Measured, Vec<RecordBatch>) {
        let engine = self.engine.take().expect("between runs there is an engine");
        let expected = self.expected.as_ref().expect("the loop was run");
        // So that the tables of the run before are not in what was held before this one.
        let engine = engine.with_empty_tables();
        let before = memory::resident();
        memory::reset_peak();
        let (engine, ran, seen) = run_engine(engine, &self.input, options, arrival, expected);
        let memory = memory::peak().saturating_sub(before);
        let is_right = seen == *expected || !way.keeps_order();
        let (name, knobs) = (self.workload.name(), self.knobs);
        assert!(is_right, "{name} under {way:?} differs from the loop at {knobs:?}");
        self.engine = Some(engine);
        (Measured { summary: ran.summary, memory }, ran.records)
    }
}

/// Runs the loop once, on one processor. Returns the seconds, and what it left.
pub fn run_plain(input: &Input) -> (f64, Seen) {
    let mut plain = (input.plain)();
    pin(true);
    let start = Instant::now();
    let outputs: Vec<Output> = plain.run(&input.events);
    let seconds = start.elapsed().as_secs_f64();
    pin(false);
    let outputs = outputs.iter().map(OutputDigest::of).collect();
    (seconds, Seen { outputs, tables: state_digest(plain.tables().into_iter()) })
}

/// Runs the engine once, from the tables before the first event.
pub fn run_engine(
    engine: Engine,
    input: &Input,
    options: Options,
    arrival: Arrival,
    expected: &Seen,
) -> (Engine, Ran, Seen) {
    let environment: Arc<dyn Environment> = Arc::new(System::new());
    let engine = engine.on_sockets_of(&environment, &options);
    for (table, rows) in input.tables.iter().enumerate() {
        engine.preload(table.into(), rows).expect("distinct keys");
    }
    pin(options.workers == 1);
    let ran = run::run_and_keep(&engine, &input.events, arrival, options);
    pin(false);
    let outputs = expected.outputs.iter().zip(&ran.outputs).map(|(loops, batches)| loops.of_batches(batches)).collect();
    let rows = |table| int_rows(&engine.table(table).expect("in memory") as &RecordBatch);
    let seen = Seen { outputs, tables: state_digest(engine.program().tables.keys().map(rows)) };
    (engine, ran, seen)
}

/// The columns of [`Line`].
pub const HEADER: &str = "workload,rows,theta,abort,length,micros,accesses,epoch,reads,multiple,across,partitions,mixed,acyclic,events,\
    scheduling,workers,load,events_per_second,ratio_to_loop,seconds_min,seconds_max,p50_ms,p95_ms,p99_ms,\
    p999_ms,prepare_s,access_s,finish_s,sinks_s,useful_s,sync_s,lock_s,construct_s,explore_s,abort_s,other_s,decide_s,runs,policies,mib";

/// A line of CSV: a run, or the middle one of several.
pub struct Line<'a> {
    /// The workload.
    pub workload: Workload,
    /// The knobs of the point.
    pub knobs: Knobs,
    /// The time that a round of a user function takes, nanoseconds.
    pub round_ns: f64,
    /// The policy's name.
    pub scheduling: &'a str,
    /// Workers.
    pub workers: usize,
    /// The share of the rate that it reached in a closed loop, where the loop was open.
    pub load: Option<f64>,
    /// The seconds of the runs.
    pub seconds: Spread,
    /// The median of the loop's seconds.
    pub loop_seconds: f64,
    /// The number of runs that it is the median of.
    pub runs: usize,
    /// The figures of the median run; none for the loop.
    pub measured: Option<&'a Measured>,
}

impl Line<'_> {
    /// Writes it.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Knobs { rows, theta, abort, length, work, accesses, epoch, reads, multiple, .. } = self.knobs;
        let Knobs { across, partitions, mixed, acyclic, events, .. } = self.knobs;
        let (name, micros) = (self.workload.name(), work as f64 * self.round_ns / 1e3);
        write!(
            out,
            "{name},{rows},{theta},{abort},{length},{micros:.2},{accesses},{epoch},{reads},{multiple},{across},{partitions},"
        )?;
        let load = self.load.map_or(String::new(), |load| format!("{load}"));
        write!(
            out,
            "{},{},{events},\"{}\",{},{load},",
            u8::from(mixed),
            u8::from(acyclic),
            self.scheduling,
            self.workers
        )?;
        let Spread { least, median, greatest } = self.seconds;
        write!(out, "{:.0},{:.3},{least:.4},{greatest:.4}", events as f64 / median, self.loop_seconds / median)?;
        let Some(Measured { summary, memory }) = self.measured else {
            return writeln!(out, "{}{},,", ",".repeat(17), self.runs);
        };
        let Summary { latency: l, stage_seconds: s, access_seconds: a, policies, .. } = summary;
        write!(out, ",{:.3},{:.3},{:.3},{:.3}", l.p50_ms, l.p95_ms, l.p99_ms, l.p999_ms)?;
        write!(out, ",{:.4},{:.4},{:.4},{:.4}", s.prepare, s.access, s.finish, s.sinks)?;
        for seconds in [a.useful, a.sync, a.lock, a.construct, a.explore, a.abort, a.other, s.decide] {
            write!(out, ",{seconds:.5}")?;
        }
        let policy_of = |of: &PolicySummary| match of.workers {
            0 | 1 => format!("{} {}", of.epochs, of.policy),
            workers => format!("{} {}@{workers}", of.epochs, of.policy),
        };
        let policies: Vec<String> = policies.iter().map(policy_of).collect();
        writeln!(out, ",{},\"{}\",{:.1}", self.runs, policies.join("; "), *memory as f64 / f64::from(1 << 20))
    }
}
