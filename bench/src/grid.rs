//! The workloads of the papers over their knobs, policies and workers; one line of CSV per run.
//!
//! Every point is a workload with its knobs, measured in rounds ([`crate::rounds`]): each policy with each number of
//! workers as often as the others, all from the same tables as they are before the first event. What is printed are the
//! medians of the rounds, with the shortest and the longest run beside them; and on standard error how `auto` stands
//! against the fixed policies, and with most workers against each pair of a policy and a number of workers. Every run's
//! outputs and tables must have the digest of the loop's, but for those under schemes that do not keep the order.

use crate::figures::over_time;
use crate::processors::steadily;
use crate::rounds::{Extent, Spread, middle};
use crate::run::Arrival;
use crate::session::{self, HEADER, Line, Measured, Way, scheduling_name};
use crate::standing::{Standing, Standings};
use crate::workloads::{Knobs, WORKLOADS, Workload, ns_per_round, rounds};
use clap::{Parser, ValueEnum};
use std::io;
use tidemill_runtime::{EpochSize, Options, Policy, Scheduling, Scheme, SchemeError};

/// Events and epochs of a run whose number of events is not given.
const EVENTS_MAX: usize = 8_000_000;
const EPOCHS_MIN: usize = 2;

/// The options of a grid.
#[derive(Parser)]
pub struct Grid {
    /// The points, unless knobs are given.
    #[arg(long, value_enum, default_value_t = Preset::Small)]
    preset: Preset,
    /// gs, sl, sl-phases, ob, tp, tp-groups, tp-windows; by default all.
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    workloads: Vec<Workload>,
    /// The scheduling of access: auto, or policies such as epoch or transaction,bfs,lazy; separated by spaces or
    /// semicolons. By default all of them.
    #[arg(long, value_parser = schedulings)]
    policies: Option<Schedulings>,
    /// Schemes of systems before, separated by commas: no-lock, lal, lwm, pat:16, tstream, nocc; or all.
    #[arg(long, value_parser = schemes)]
    schemes: Option<Schedulings>,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = session::workers)]
    workers: Vec<usize>,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Events of a run; by default as many as take every run at least `--seconds`.
    #[arg(long)]
    events: Option<usize>,
    /// The least time that the shortest run takes, where the number of events is not given.
    #[arg(long, default_value_t = 0.25)]
    seconds: f64,
    /// Also runs each at these shares of the rate that it reached, events arriving at that rate (open loop), in
    /// epochs of the engine's own size.
    #[arg(long, value_delimiter = ',')]
    open_loop: Vec<f64>,
    /// A line per epoch instead, with what was decided for it and why.
    #[arg(long)]
    epochs: bool,
    /// For the open loop: the latency that the engine is asked for, milliseconds.
    #[arg(long, default_value_t = 10.0)]
    latency: f64,
    #[command(flatten)]
    knobs: KnobLists,
}

/// A value or several for each knob; every combination is a point.
#[derive(Parser)]
struct KnobLists {
    /// Keys of each table.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<u64>,
    /// θ: skew of the keys.
    #[arg(long, value_delimiter = ',')]
    theta: Vec<f64>,
    /// a: share of transactions that abort.
    #[arg(long, value_delimiter = ',')]
    abort: Vec<f64>,
    /// l: operations of a transaction (gs, ob).
    #[arg(long, value_delimiter = ',')]
    length: Vec<usize>,
    /// C: microseconds of each user function.
    #[arg(long, value_delimiter = ',')]
    micros: Vec<f64>,
    /// r: rows that an operation reads (gs).
    #[arg(long, value_delimiter = ',')]
    accesses: Vec<usize>,
    /// T: events of an epoch.
    #[arg(long, value_delimiter = ',')]
    epoch: Vec<usize>,
    /// The share of events that read (gs).
    #[arg(long, value_delimiter = ',')]
    reads: Vec<f64>,
    /// The share of transactions on several of the 16 partitions of pat:16 (gs, sl, ob).
    #[arg(long, value_delimiter = ',')]
    across: Vec<f64>,
    /// The partitions of such a transaction; the others are on one. With 0 rows are anywhere.
    #[arg(long, value_delimiter = ',')]
    partitions: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// Each workload at its defaults but with a tenth of an epoch and of the rows, with C = 0 and 10 µs.
    Small,
    /// Each workload with one knob after the other varied over the range of Table 5.
    Full,
}

#[derive(Clone, Debug)]
struct Schedulings(Vec<Scheduling>);

fn workload(text: &str) -> Result<Workload, String> {
    let found = WORKLOADS.iter().find(|(name, _)| *name == text);
    found.map(|(_, workload)| *workload).ok_or_else(|| format!("there is no workload '{text}'"))
}

fn schedulings(text: &str) -> Result<Schedulings, String> {
    let words = text.split([' ', ';']).filter(|word| !word.is_empty());
    words.map(|word| word.parse::<Scheduling>().map_err(|e| e.to_string())).collect::<Result<_, _>>().map(Schedulings)
}

fn schemes(text: &str) -> Result<Schedulings, String> {
    let schemes: Result<Vec<Scheme>, SchemeError> = match text {
        "all" => Ok(Scheme::ALL.into()),
        _ => text.split(',').map(str::parse).collect(),
    };
    schemes.map(|s| Schedulings(s.into_iter().map(Scheduling::Baseline).collect())).map_err(|e| e.to_string())
}

/// The other knobs as they are.
fn varied<T: Copy>(knobs: &[Knobs], values: &[T], set: impl Fn(&mut Knobs, T)) -> Vec<Knobs> {
    let with = |knobs: &Knobs, value| {
        let mut knobs = *knobs;
        set(&mut knobs, value);
        knobs
    };
    match values {
        [] => knobs.to_vec(),
        _ => knobs.iter().flat_map(|knobs| values.iter().map(|&value| with(knobs, value))).collect(),
    }
}

impl KnobLists {
    fn is_empty(&self) -> bool {
        let KnobLists { rows, theta, abort, length, micros, accesses, epoch, reads, across, partitions } = self;
        rows.is_empty()
            && theta.is_empty()
            && abort.is_empty()
            && length.is_empty()
            && micros.is_empty()
            && accesses.is_empty()
            && epoch.is_empty()
            && reads.is_empty()
            && across.is_empty()
            && partitions.is_empty()
    }

    fn points(&self, defaults: Knobs, round_ns: f64) -> Vec<Knobs> {
        let points = varied(&[defaults], &self.rows, |k, v| k.rows = v);
        let points = varied(&points, &self.theta, |k, v| k.theta = v);
        let points = varied(&points, &self.abort, |k, v| k.abort = v);
        let points = varied(&points, &self.length, |k, v| k.length = v);
        let points = varied(&points, &self.micros, |k, v| k.work = rounds(v, round_ns));
        let points = varied(&points, &self.accesses, |k, v| k.accesses = v);
        let points = varied(&points, &self.epoch, |k, v| k.epoch = v);
        let points = varied(&points, &self.reads, |k, v| k.reads = v);
        let points = varied(&points, &self.across, |k, v| k.across = v);
        varied(&points, &self.partitions, |k, v| k.partitions = v)
    }
}

impl Preset {
    fn points(self, workload: Workload, defaults: Knobs, round_ns: f64) -> Vec<Knobs> {
        if self == Preset::Small {
            let small = Knobs { rows: defaults.rows / 10, epoch: defaults.epoch / 10, ..defaults };
            return varied(&[small], &[0.0, 10.0], |k, v| k.work = rounds(v, round_ns));
        }
        let one = [defaults];
        let mut points = varied(&one, &[0.0, 1.0, 10.0, 100.0], |k, v| k.work = rounds(v, round_ns));
        points.extend(varied(&one, &[5_120, 10_240, 20_480, 40_960, 81_920], |k, v| k.epoch = v));
        if workload != Workload::LedgerPhases {
            points.extend(varied(&one, &[0.0, 0.2, 0.4, 0.6, 0.8, 0.99], |k, v| k.theta = v));
            points.extend(varied(&one, &[0.0, 0.01, 0.1, 0.3, 0.6, 0.9], |k, v| k.abort = v));
        }
        if matches!(workload, Workload::GrepSum | Workload::Bidding) {
            points.extend(varied(&one, &[1, 2, 5, 10], |k, v| k.length = v));
        }
        if workload == Workload::GrepSum {
            points.extend(varied(&one, &[1, 2, 5, 10], |k, v| k.accesses = v));
        }
        let mut distinct: Vec<Knobs> = Vec::new();
        points.into_iter().for_each(|point| {
            if !distinct.contains(&point) {
                distinct.push(point)
            }
        });
        distinct
    }
}

/// The standing of `auto` over all points.
#[derive(Default)]
struct Stands {
    /// The standing with each number of workers, beside the fixed policies with the same number.
    by_workers: Standings,
    /// The standing with most workers, beside every pair of a fixed policy and a number of workers.
    pairs: Standings,
}

impl Grid {
    /// Runs all and prints.
    pub fn report(&self) {
        let round_ns = ns_per_round();
        eprintln!("a round of a user function takes {round_ns:.2} ns");
        println!("{}", if self.epochs { over_time::EPOCHS } else { HEADER });
        let all = WORKLOADS.map(|(_, workload)| workload);
        let workloads = if self.workloads.is_empty() { &all[..] } else { &self.workloads };
        let mut stands = Stands::default();
        for &workload in workloads {
            let defaults = workload.defaults(round_ns);
            let points = match self.knobs.is_empty() {
                true => self.preset.points(workload, defaults, round_ns),
                false => self.knobs.points(defaults, round_ns),
            };
            for knobs in points {
                let sized = workload.sized(knobs, self.seconds, EPOCHS_MIN, EVENTS_MAX, round_ns);
                let knobs = Knobs { events: self.events.unwrap_or(sized.events), ..knobs };
                self.point(workload, knobs, round_ns, &mut stands);
            }
        }
        let Stands { by_workers, pairs } = &stands;
        eprintln!("{by_workers}");
        if !pairs.is_empty() {
            eprintln!("beside pairs of policy and workers: {pairs}");
        }
    }

    fn point(&self, workload: Workload, knobs: Knobs, round_ns: f64, stands: &mut Stands) {
        let mut policies = match &self.policies {
            Some(Schedulings(policies)) => policies.clone(),
            None => Policy::all().into_iter().map(Scheduling::Fixed).chain([Scheduling::Auto]).collect(),
        };
        policies.extend(self.schemes.iter().flat_map(|Schedulings(schemes)| schemes));
        let way = |scheduling| self.workers.iter().map(move |&workers| Way { scheduling, workers });
        let ways: Vec<Way> = policies.iter().flat_map(|&policy| way(policy)).collect();
        if self.epochs {
            let options = |way| self.open_options(way);
            let open: (&[f64], &dyn Fn(Way) -> Options) = (&self.open_loop, &options);
            return over_time::epochs(workload, knobs, &ways, open, &mut io::stdout().lock());
        }
        let events_max = self.events.unwrap_or(EVENTS_MAX);
        let extent = Extent { rounds: self.runs, seconds_min: self.seconds, events_max };
        let mut point = extent.measure(workload, knobs, &ways);
        for &workers in self.workers.iter().filter(|&&workers| workers > 1) {
            if let Some(standing) = Standing::of(&point, workers) {
                eprintln!("{}, {workers} workers: {standing}", workload.name());
                stands.by_workers.add(standing);
            }
        }
        if let Some(standing) = Standing::of_pairs(&point).filter(|_| self.workers.len() > 1) {
            eprintln!("{}, policy and workers: {standing}", workload.name());
            stands.pairs.add(standing);
        }
        let (knobs, loops) = (point.knobs, Spread::of(&point.loops));
        let loop_seconds = loops.median;
        let print = |way: (&str, usize, Option<f64>), seconds: Spread, measured: Option<&Measured>| {
            let (scheduling, workers, load) = way;
            let runs = if load.is_some() { 1 } else { self.runs };
            let line =
                Line { workload, knobs, round_ns, scheduling, workers, load, seconds, loop_seconds, runs, measured };
            line.write(&mut io::stdout().lock()).expect("standard output takes it");
        };
        print(("loop", 1, None), loops, None);
        for (way, mut runs) in point.runs {
            let (middle, seconds) = middle(&mut runs);
            let name = scheduling_name(way.scheduling);
            print((&name, way.workers, None), seconds, Some(middle));
            for &load in &self.open_loop {
                let arrival = Arrival::PerSecond(load * middle.summary.events_per_second);
                let (open, _) = steadily(|| point.session.run_with(way, self.open_options(way), arrival));
                print((&name, way.workers, Some(load)), Spread::of(&[open.summary.seconds]), Some(&open));
            }
        }
    }

    fn open_options(&self, Way { scheduling, workers }: Way) -> Options {
        let latency = (self.latency * 1e6) as u64;
        Options { workers, scheduling, epoch: EpochSize::Auto, latency, ..Options::default() }
    }
}

#[cfg(test)]
mod tests;
