//! Beyond this machine: what policies would reach on more processors than there are here.
//!
//! **How.** The graphs are real: epochs of the workload, as the engine lists their operations. Costs are measured, with
//! one worker on one processor: per kind of transaction what it takes, per unit what finding it and telling others
//! takes, per operation what building the graph takes, per event the other stages; and how long a cache line takes from
//! one processor to the other. Then the executor is simulated ([`executor`]) on 1 to 64 workers, and the stages around
//! it by the rule that the decision goes by: serially one worker accesses while the others do the rest, in parallel all
//! do one after the other.
//!
//! **Checked.** With one and two workers the same is run, and the error stated. Costs come from runs with one worker, so
//! what one worker does is reproduced more than it is predicted; two workers are a prediction.
//!
//! **Left out.** Shared caches and memory bandwidth, sockets, and the threads at both ends of the pipeline (the gate, the
//! sinks), which are none of the workers: above some ten workers the predictions are bounds on what scheduling allows,
//! not promises.

mod executor;

use crate::processors::hand_over_ns;
use crate::session::{Session, Way};
use crate::workloads::{Knobs, Workload};
use executor::{Costs, critical_path, makespan};
use std::io::Write;
use tidemill_runtime::{EpochShape, Scheduling, Summary};
use tidemill_schedule::{Explore, Granularity, Policy, Rows, Search};
use tidemill_txn::{Flow, Graph, Precedence, Scratch, UseBuffer, Versions};

/// Workers that are simulated.
pub const WORKERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// And run.
const MEASURED: [usize; 2] = [1, 2];
/// Of what a graph costs to build with one worker, the share that one worker does also where there are more: locating
/// and partitioning, of these and linking (the constants of the decision's model); on versions also laying them out;
/// structured also finding strata.
const fn serial_share(on_versions: bool, structured: bool) -> f64 {
    const LOCATE: f64 = 14.0;
    const LINK: f64 = 12.0;
    const LAY_OUT: f64 = 14.0;
    const STRATA: f64 = 25.0;
    let alone = LOCATE + if on_versions { LAY_OUT } else { 0.0 } + if structured { STRATA } else { 0.0 };
    alone / (alone + LINK)
}
/// Cache lines that a unit finds at another worker, at the least: its counter and a row.
const LINES: f64 = 2.0;
/// A part's verdict operation, of its transaction.
const VERDICT: f64 = 0.1;

/// The policies that are simulated.
pub const POLICIES: [&str; 8] = [
    "epoch",
    "transaction",
    "transaction,bfs",
    "transaction,dfs",
    "transaction,versions",
    "transaction,versions,bfs",
    "operation,eager",
    "operation,lazy",
];

/// A line per policy and number of workers: events per second as predicted, as measured where there are as many
/// processors, and at the most, by the critical path and the work.
pub fn simulate(workload: Workload, knobs: Knobs, micros: f64, runs: usize, out: &mut dyn Write) {
    let mut session = Session::new(workload, knobs);
    session.run_loop();
    let shape = session.shape();
    let events = knobs.epoch.min(knobs.events) as f64;
    let transfer = LINES * hand_over_ns().max(0.0);
    for name in POLICIES {
        let policy: Policy = name.parse().expect("a policy");
        let mut run = |workers| {
            let way = Way { scheduling: Scheduling::Fixed(policy), workers };
            let mut all: Vec<Summary> = (0..runs).map(|_| session.run(way).summary).collect();
            all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            all.swap_remove(all.len() / 2)
        };
        let measured = MEASURED.map(&mut run);
        let model = Predicted::of(&shape, events, policy, &measured[0], transfer);
        for workers in WORKERS {
            let predicted = model.events_per_second(workers);
            let here = MEASURED.iter().position(|&w| w == workers);
            let here = here.map_or(String::new(), |at| format!("{:.0}", measured[at].events_per_second));
            let (name_of, bound) = (workload.name(), model.bound(workers));
            let Knobs { theta, abort, epoch, .. } = knobs;
            writeln!(
                out,
                "{name_of},{micros},{theta},{abort},{epoch},\"{name}\",{workers},{predicted:.0},{here},{bound:.0}"
            )
            .expect("a file that takes it");
        }
    }
}

/// The columns of these lines.
pub const HEADER: &str =
    "workload,micros,theta,abort,epoch,scheduling,workers,predicted_per_second,measured_per_second,bound_per_second";

/// What a policy takes for an epoch, from what it took with one worker.
struct Predicted {
    /// Of an epoch.
    events: f64,
    policy: Policy,
    graph: Graph,
    flow: Flow,
    /// Per transaction, the chain whose owner runs it, where chains are owned and transactions are units.
    owners: Option<Vec<u32>>,
    /// Per unit, what it does; nanoseconds, as all that follows.
    weight: Vec<f64>,
    costs: Costs,
    /// Building the graph with one worker, and what comes after all units.
    construct: f64,
    other: f64,
    /// Running again what aborts affected; one worker does it.
    redo: f64,
    /// The other stages.
    stages: f64,
    /// The least that all of this could be: transactions as they are serially.
    transactions: Vec<f64>,
}

impl Predicted {
    fn of(shape: &EpochShape, events: f64, policy: Policy, one: &Summary, transfer: f64) -> Predicted {
        let per_epoch = |seconds: f64| seconds * 1e9 * events / one.events.max(1) as f64;
        let (mut graph, mut flow) = (Graph::new(), Flow::new());
        let uses = if policy.takes_apart() { shape.uses.clone() } else { whole(&shape.uses) };
        let (accesses, verdicts) = (shape.accesses.accesses(), policy.verdicts());
        graph.build_and_follow(accesses, &uses, verdicts, &mut Scratch::default(), &mut flow);
        let means: Vec<f64> = one.transactions.iter().map(|t| t.mean_ns.unwrap_or(1.0).max(1.0)).collect();
        let times = one.access_seconds;
        // By kind as they were timed; in all as long as they took.
        let raw: Vec<f64> = shape.transactions.iter().map(|&t| means[usize::from(t)]).collect();
        let fit = per_epoch(times.useful) / raw.iter().sum::<f64>().max(1.0);
        let transactions: Vec<f64> = raw.into_iter().map(|ns| ns * fit).collect();
        let weight: Vec<f64> = match policy.on_versions() {
            false => transactions.clone(),
            true => {
                (0..flow.units()).map(|unit| share(&flow, unit) * transactions[flow.unit(unit).0 as usize]).collect()
            }
        };
        let fit = transactions.iter().sum::<f64>() / weight.iter().sum::<f64>().max(1.0);
        let weight: Vec<f64> = weight.into_iter().map(|ns| ns * fit).collect();
        let units = weight.len().max(1) as f64;
        let depth_first = policy.explore == Explore::Structured(Search::Dfs);
        let is_owned = policy.granularity == Granularity::Transaction(Rows::InPlace) && depth_first;
        let owners = is_owned.then(|| first_chains(&graph));
        let costs = Costs { unit: per_epoch(times.explore + times.lock) / units, transfer, barrier: 2.0 * transfer };
        let stages = &one.stage_seconds;
        Predicted {
            events,
            policy,
            graph,
            flow,
            owners,
            weight,
            costs,
            construct: per_epoch(times.construct),
            other: per_epoch(times.other + times.sync),
            redo: per_epoch(times.abort),
            stages: per_epoch(stages.prepare + stages.finish),
            transactions,
        }
    }

    /// The access stage of an epoch.
    fn access(&self, workers: usize) -> f64 {
        let Policy { granularity, explore, .. } = self.policy;
        if granularity == Granularity::Epoch {
            return self.transactions.iter().sum::<f64>() + self.construct + self.other;
        }
        let on_versions = self.policy.on_versions();
        let explored = match on_versions {
            true => self.explored(&self.versions(), workers),
            false => self.explored(&self.graph, workers),
        };
        let alone = serial_share(on_versions, explore != Explore::Unstructured);
        let construct = self.construct * (alone + (1.0 - alone) / workers as f64);
        construct + explored + self.redo + self.other
    }

    fn explored(&self, precedence: &impl Precedence, workers: usize) -> f64 {
        makespan(precedence, &self.weight, self.costs, self.policy.explore, self.owners.as_deref(), workers)
    }

    fn versions(&self) -> Versions<'_> {
        Versions { graph: &self.graph, flow: &self.flow }
    }

    fn events_per_second(&self, workers: usize) -> f64 {
        let (access, count) = (self.access(workers), workers as f64);
        let epoch = match self.policy.granularity {
            Granularity::Epoch if workers > 1 => access.max(self.stages / (count - 1.0)),
            _ => access + self.stages / count,
        };
        self.events / epoch * 1e9
    }

    /// No schedule of these transactions, whole on rows or in these parts, could be faster.
    fn bound(&self, workers: usize) -> f64 {
        let path = match self.policy.on_versions() {
            true => critical_path(&self.versions(), &self.weight),
            false => critical_path(&self.graph, &self.transactions),
        };
        let work = (self.transactions.iter().sum::<f64>() + self.stages) / workers as f64;
        self.events / path.max(work) * 1e9
    }
}

/// The same uses of transactions that stay whole.
fn whole(uses: &UseBuffer) -> UseBuffer {
    let writes = uses.uses.iter().map(|used| tidemill_txn::Use::new(0, used.writes()));
    UseBuffer { uses: writes.collect(), parts: vec![0; uses.parts.len()] }
}

/// Per transaction, the chain that its first operation is of; its own number, where it has none.
fn first_chains(graph: &Graph) -> Vec<u32> {
    let mut chains = Vec::new();
    graph.chains(&mut chains);
    let first = |transaction| graph.operations(transaction).next();
    (0..graph.transactions()).map(|t| first(t).map_or(t, |operation| chains[operation as usize])).collect()
}

/// What a unit is of its transaction's work.
fn share(flow: &Flow, unit: u32) -> f64 {
    let transaction = flow.unit(unit).0;
    let (units, last) = (flow.units_of(transaction).len() as f64, flow.units_of(transaction).end - 1);
    let has_verdict_unit = flow.is_verdict_unit(last);
    match (has_verdict_unit, flow.is_verdict_unit(unit)) {
        (true, true) => VERDICT,
        (true, false) => 1.0 / (units - 1.0),
        (false, _) => 1.0 / units,
    }
}
