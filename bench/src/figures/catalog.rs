//! Which figures there are: points, and the ways to run them.
//!
//! Sizes are the papers' but for two things. Epochs of MorphStream's 10,240 events of 10 µs would take a run of
//! seconds each, and this machine has two processors, not 24: they are ten times smaller unless they are what is
//! varied. And where a figure of the papers is about the cost of scheduling, C is also 0.2 µs: beside operations that
//! cost this engine a tenth of a microsecond that is what 10 µs was beside theirs.

use super::sweeps;
use crate::session::Way;
use crate::workloads::windows::{Shape, WindowWorkload};
use crate::workloads::{Knobs, Workload, rounds};
use tidemill_runtime::{Policy, Scheduling, Scheme};

/// The content of a figure's file.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A line per point and way.
    Throughput,
    /// A line per point and way, with runs long enough for a decision to settle; and the standing of the decision
    /// against the fixed policies.
    Decision {
        /// Epochs of a run at the least.
        epochs: usize,
    },
    /// A line per epoch and way.
    OverTime,
    /// The memory that the process holds as it goes on.
    Memory,
    /// Predictions for more processors, beside what was measured with these numbers of workers.
    Scaling(Vec<usize>),
    /// Windows over streams: a line per point and way, of which there are those of `windows`.
    Windows {
        /// The points: a workload and its shape.
        points: Vec<(&'static WindowWorkload, Shape)>,
        /// Numbers of workers.
        workers: Vec<usize>,
    },
}

/// A figure.
pub struct Figure {
    /// Its file's name.
    pub id: &'static str,
    /// The title in the papers' words, shortened.
    pub title: &'static str,
    /// The content of its file.
    pub kind: Kind,
    /// The points: a workload and its knobs.
    pub points: Vec<(Workload, Knobs)>,
    /// The ways in which each point is run.
    pub ways: Vec<Way>,
}

impl Figure {
    /// Returns the number of runs in this number of rounds.
    pub fn runs(&self, rounds: usize) -> usize {
        let of_point = match &self.kind {
            Kind::Windows { points, workers } => return points.len() * workers.len() * rounds,
            Kind::Throughput | Kind::Decision { .. } => rounds * self.ways.len(),
            Kind::Scaling(measured) => (1 + measured.len()) * rounds * self.ways.len(),
            Kind::OverTime | Kind::Memory => self.ways.len(),
        };
        self.points.len() * of_point
    }
}

/// Parses ways, by the names of the command line.
fn ways(names: &str, workers: &[usize]) -> Vec<Way> {
    let way = |name: &str| {
        let scheme = name.parse::<Scheme>().ok().map(Scheduling::Baseline);
        scheme.unwrap_or_else(|| name.parse().unwrap_or_else(|e| panic!("{e}")))
    };
    let all = names.split(' ').map(way);
    all.flat_map(|scheduling| workers.iter().map(move |&workers| Way { scheduling, workers })).collect()
}

fn all_policies(workers: usize) -> Vec<Way> {
    let fixed = Policy::all().into_iter().map(Scheduling::Fixed);
    fixed.chain([Scheduling::Auto]).map(|scheduling| Way { scheduling, workers }).collect()
}

/// Returns the points that one knob makes of others.
fn vary<T: Copy>(from: &[Knobs], values: &[T], set: impl Fn(&mut Knobs, T)) -> Vec<Knobs> {
    let with = |knobs: &Knobs, value| {
        let mut knobs = *knobs;
        set(&mut knobs, value);
        knobs
    };
    from.iter().flat_map(|knobs| values.iter().map(|&value| with(knobs, value))).collect()
}

fn of(workload: Workload, points: Vec<Knobs>) -> Vec<(Workload, Knobs)> {
    points.into_iter().map(|knobs| (workload, knobs)).collect()
}

const SCHEMES: &str = "auto epoch tstream pat:16 lal lwm no-lock";

/// Returns all figures with these numbers of workers, of which most have the last; a round of a user function takes so
/// long.
pub fn all(round_ns: f64, workers: &[usize]) -> Vec<Figure> {
    let most = *workers.last().expect("a number of workers");
    let mut all = morphstream(round_ns, most);
    all.extend(tstream(round_ns, workers));
    all.extend(tstream_2019(round_ns, workers));
    all.push(grid(round_ns, most));
    all.push(scaling(round_ns, workers));
    all.extend(sweeps::all(workers));
    all
}

/// MorphStream (2023), §6. Figure 13a is drawn from what Figure 11 measures.
fn morphstream(round_ns: f64, workers: usize) -> Vec<Figure> {
    use Workload::{GrepSum, Ledger, LedgerPhases};
    let ways = |names: &str| ways(names, &[workers]);
    let cost = |micros: f64| rounds(micros, round_ns);
    let small = |workload: Workload| {
        let defaults = workload.defaults(round_ns);
        Knobs { epoch: defaults.epoch / 10, ..defaults }
    };
    let figure = |id, title, points, names| Figure { id, title, kind: Kind::Throughput, points, ways: ways(names) };
    let both = |k: &[Knobs]| vary(k, &[cost(0.2), cost(10.0)], |k, v| k.work = v);
    let ledger = both(&[small(Ledger)]);
    // MorphStream's thresholds are counts of dependencies in batches of the paper's size.
    let phases = LedgerPhases.defaults(round_ns);
    let by_cost = vary(&[small(LedgerPhases)], &[0.1, 0.2, 0.5, 1.0, 10.0], |k, v| k.work = cost(v));
    let gs = Knobs { work: cost(0.2), ..small(GrepSum) };
    let epochs = [1_280, 2_560, 5_120, 10_240, 20_480, 40_960, 81_920];
    let explore = "transaction,versions transaction,versions,bfs transaction,versions,dfs transaction transaction,bfs transaction,dfs";
    let granularity = "chain operation transaction";
    let abort = "transaction,versions operation operation,eager operation,lazy tstream auto";
    let uniform = Knobs { theta: 0.0, abort: 0.0, ..gs };
    let skewed =
        vary(&[Knobs { abort: 0.0, epoch: 10_240, ..gs }], &[0.0, 0.2, 0.4, 0.6, 0.8, 0.99], |k, v| k.theta = v);
    let cycles = vary(&[Knobs { abort: 0.0, ..gs }], &[false, true], |k, v| k.acyclic = v);
    let rows = vary(&cycles, &[2, 5, 10], |k, v| k.accesses = v);
    let single = vary(&[Knobs { accesses: 1, abort: 0.0, ..gs }], &epochs, |k, v| k.epoch = v);
    let shares = vary(&[Knobs { accesses: 4, abort: 0.0, ..gs }], &[0.0, 0.25, 0.5, 0.75, 1.0], |k, v| k.multiple = v);
    // With one operation a transaction has no parts, and nothing to speculate on.
    let apart = Knobs { length: 4, accesses: 1, ..gs };
    let costs = vary(&[Knobs { abort: 0.6, ..apart }], &[0.0, 0.5, 1.0, 5.0, 10.0, 20.0], |k, v| k.work = cost(v));
    let aborts = vary(&both(&[apart]), &[0.0, 0.1, 0.3, 0.5, 0.7, 0.9], |k, v| k.abort = v);
    let grouped = Knobs { theta: 0.9, epoch: 1_024, ..Workload::TollGroups.defaults(round_ns) };
    let grouped =
        vary(&vary(&[grouped], &[cost(0.2), cost(10.0)], |k, v| k.work = v), &[0.1, 0.5, 0.9], |k, v| k.abort = v);
    let dynamic = ways(
        "auto morphstream tstream pat:16 lal epoch transaction transaction,versions transaction,versions,bfs \
         chain,dfs,eager chain,lazy operation,eager operation,lazy",
    );
    let over_time = ways(
        "auto morphstream tstream pat:16 epoch transaction transaction,versions transaction,versions,bfs operation,lazy",
    );
    vec![
        figure("ms10", "Streaming Ledger, this engine and earlier schemes", of(Ledger, ledger), SCHEMES),
        Figure {
            id: "ms11",
            title: "dynamic workload: the whole run, and where time goes (13a)",
            kind: Kind::Decision { epochs: 64 },
            points: vec![(LedgerPhases, phases)],
            ways: dynamic,
        },
        Figure {
            kind: Kind::Decision { epochs: 64 },
            ..figure(
                "ms11-costs",
                "dynamic workload, over the cost of functions",
                of(LedgerPhases, by_cost),
                "auto epoch transaction transaction,bfs transaction,dfs",
            )
        },
        Figure {
            id: "ms11-time",
            title: "dynamic workload, epoch by epoch",
            kind: Kind::OverTime,
            points: vec![(LedgerPhases, phases)],
            ways: over_time,
        },
        Figure {
            kind: Kind::Decision { epochs: 30 },
            ..figure(
                "ms12",
                "two groups: a policy each, or one for both",
                of(Workload::TollGroups, grouped),
                "auto chain,lazy+chain,dfs,eager chain,lazy chain,dfs,eager transaction epoch+transaction tstream pat:16",
            )
        },
        Figure {
            id: "ms13b",
            title: "memory as a run goes on (13b, 14)",
            kind: Kind::Memory,
            points: vec![(Ledger, small(Ledger))],
            ways: ways("epoch transaction transaction,versions operation,lazy tstream pat:16"),
        },
        figure(
            "ms15a",
            "exploration, over the punctuation interval",
            of(GrepSum, vary(&[uniform], &epochs, |k, v| k.epoch = v)),
            explore,
        ),
        figure("ms15b", "exploration, over skew", of(GrepSum, skewed), explore),
        figure("ms16a", "granularity, with and without cycles, over r", of(GrepSum, rows), granularity),
        figure("ms16b", "granularity, over the punctuation interval", of(GrepSum, single), granularity),
        figure("ms16c", "granularity, over the share of several accesses", of(GrepSum, shares), granularity),
        figure("ms17a", "aborts, over the cost of functions", of(GrepSum, costs), abort),
        figure("ms17b", "aborts, over their share", of(GrepSum, aborts), abort),
    ]
}

/// TStream (2020), §VI. Figures 9 and 13 are drawn from what Figure 8 measures.
fn tstream(round_ns: f64, workers: &[usize]) -> Vec<Figure> {
    use Workload::{Bidding, GrepSum, Ledger, Toll};
    let with_all = |names: &str| ways(names, workers);
    let ways = |names: &str| ways(names, &workers[workers.len() - 1..]);
    let defaults = |workload: Workload| {
        let knobs = Knobs { rows: 10_000, theta: 0.6, abort: 0.0, work: 0, epoch: 500, ..workload.defaults(round_ns) };
        match workload {
            GrepSum => Knobs { length: 10, accesses: 1, ..knobs },
            Toll => Knobs { rows: 100, theta: 0.2, ..knobs },
            _ => knobs,
        }
    };
    let apps = || [GrepSum, Ledger, Bidding, Toll].map(|app| (app, defaults(app)));
    let figure = |id, title, points, ways| Figure { id, title, kind: Kind::Throughput, points, ways };
    let gs = defaults(GrepSum);
    let shares = vary(&[Knobs { partitions: 6, ..gs }], &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], |k, v| k.across = v);
    let lengths = vary(&[Knobs { across: 0.5, ..gs }], &[1, 2, 4, 6, 8, 10], |k, v| k.partitions = v);
    let reads = vary(&[Knobs { theta: 0.0, ..gs }], &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], |k, v| k.reads = v);
    let skews = vary(&[Knobs { reads: 0.0, ..gs }], &[0.0, 0.2, 0.4, 0.6, 0.8, 0.99], |k, v| k.theta = v);
    let intervals = apps().into_iter().flat_map(|(app, knobs)| {
        of(app, vary(&[knobs], &[25, 50, 100, 250, 500, 750, 1_000, 4_000], |k, v| k.epoch = v))
    });
    let costly = apps()
        .into_iter()
        .flat_map(|(app, knobs)| of(app, vary(&[knobs], &[0.0, 1.0], |k, v| k.work = rounds(v, round_ns))));
    let with_time = apps().map(|(app, knobs)| (app, Knobs { work: rounds(1.0, round_ns), ..knobs }));
    let schemes = || ways("auto tstream pat:16 lal lwm no-lock");
    vec![
        figure(
            "ts8",
            "four applications under all schemes (also 9 and 13)",
            costly.collect(),
            with_all("auto transaction tstream pat:16 lal lwm no-lock nocc"),
        ),
        figure("ts10a", "the share of transactions on several partitions", of(GrepSum, shares), schemes()),
        figure("ts10b", "the partitions of transactions on several", of(GrepSum, lengths), schemes()),
        figure("ts11a", "the share of reads", of(GrepSum, reads), schemes()),
        figure("ts11b", "skew, writes only", of(GrepSum, skews), schemes()),
        figure("ts12", "the punctuation interval", intervals.collect(), ways("auto transaction tstream")),
        figure(
            "ts14",
            "sharing work: everything, nothing, with and without stealing; strata",
            with_time.into(),
            ways(
                "transaction transaction,shared-nothing transaction,shared-nothing,patient transaction,dfs transaction,bfs",
            ),
        ),
    ]
}

/// TStream (2019), §6.3, where the other paper has nothing like it. Figure 11 is drawn from what Figure 10 measures.
fn tstream_2019(round_ns: f64, workers: &[usize]) -> Vec<Figure> {
    let with_all = |names: &str| ways(names, workers);
    let ways = |names: &str| ways(names, &workers[workers.len() - 1..]);
    let figure = |id, title, points, ways| Figure {
        id,
        title,
        kind: Kind::Throughput,
        points: of(Workload::GrepSum, points),
        ways,
    };
    let gs = Workload::GrepSum.defaults(round_ns);
    let gs = Knobs { abort: 0.0, work: 0, epoch: 500, length: 10, accesses: 1, ..gs };
    let kinds = [(1.0, 0.0), (0.0, 0.6), (0.0, 0.8)];
    let kinds = vary(&[gs], &kinds, |k, (reads, theta)| (k.reads, k.theta) = (reads, theta));
    let mixed = Knobs { theta: 0.6, mixed: true, ..gs };
    let shares = vary(&[mixed], &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0], |k, v| k.reads = v);
    let schemes = "auto tstream lal lwm nocc";
    let at = |workload: Workload| Knobs { theta: 0.6, abort: 0.0, epoch: 500, ..workload.defaults(round_ns) };
    let costs = [0.0, 1.0].map(|micros| rounds(micros, round_ns));
    let factors = [Workload::GrepSum, Workload::Ledger, Workload::Bidding].into_iter().flat_map(|workload| {
        let knobs = if workload == Workload::GrepSum { gs } else { at(workload) };
        of(workload, vary(&[Knobs { theta: 0.6, ..knobs }], &costs, |k, v| k.work = v))
    });
    let factors = factors.collect();
    vec![
        figure("ts19-10", "reads alone, writes alone (also 11)", kinds, with_all(schemes)),
        figure("ts19-12", "reads and writes in one transaction", shares, ways(schemes)),
        figure("ts19-13", "a small state", vec![Knobs { rows: 10_000, ..mixed }], with_all(schemes)),
        Figure {
            id: "ts19-18",
            title: "factors: synchronous, postponed, and with dynamic scheduling",
            kind: Kind::Throughput,
            points: factors,
            ways: ways("lal tstream:2 tstream"),
        },
    ]
}

/// Predicts runs on more processors than there are.
fn scaling(round_ns: f64, workers: &[usize]) -> Figure {
    use Workload::{Bidding, GrepSum, Ledger, Toll};
    let points = [GrepSum, Ledger, Bidding, Toll].into_iter().flat_map(|workload| {
        let knobs = Knobs { epoch: 4_096, ..workload.defaults(round_ns) };
        let skews = vary(&[knobs], &[0.2, 0.99], |k, v| k.theta = v);
        of(workload, vary(&skews, &[1.0, 10.0], |k, v| k.work = rounds(v, round_ns)))
    });
    let ways = crate::simulation::schedulings().into_iter().map(|scheduling| Way { scheduling, workers: 1 }).collect();
    let title = "policies and schemes on 1 to 64 processors, measured and simulated (MorphStream 18b)";
    Figure { id: "scaling", title, kind: Kind::Scaling(workers.to_vec()), points: points.collect(), ways }
}

/// The decision against every fixed policy, over all knobs.
fn grid(round_ns: f64, workers: usize) -> Figure {
    use Workload::{Bidding, GrepSum, Ledger, Toll};
    let cost = |micros: f64| rounds(micros, round_ns);
    let mut points = Vec::new();
    for workload in [GrepSum, Ledger, Bidding, Toll] {
        let defaults = workload.defaults(round_ns);
        let base = Knobs { rows: defaults.rows / 10, epoch: 512, ..defaults };
        let cheap = [Knobs { work: cost(1.0), ..base }];
        let mut knobs = vary(&[base], &[0.0, 0.2, 1.0, 10.0, 50.0], |k, v| k.work = cost(v));
        knobs.extend(vary(&[base], &[0.0, 0.6, 0.9, 0.99], |k, v| k.theta = v));
        knobs.extend(vary(&cheap, &[0.0, 0.1, 0.5, 0.9], |k, v| k.abort = v));
        knobs.extend(vary(&cheap, &[128, 2_048], |k, v| k.epoch = v));
        if matches!(workload, GrepSum | Bidding) {
            knobs.extend(vary(&cheap, &[3, 10], |k, v| k.length = v));
        }
        if workload == GrepSum {
            knobs.extend(vary(&cheap, &[1, 5, 10], |k, v| k.accesses = v));
            knobs.extend(vary(&cheap, &[0.0, 0.9], |k, v| k.reads = v));
        }
        points.extend(of(workload, knobs));
    }
    let mut distinct: Vec<(Workload, Knobs)> = Vec::new();
    points.into_iter().for_each(|point| {
        if !distinct.contains(&point) {
            distinct.push(point)
        }
    });
    let kind = Kind::Decision { epochs: 30 };
    Figure {
        id: "grid",
        title: "the decision and every fixed policy",
        kind,
        points: distinct,
        ways: all_policies(workers),
    }
}
