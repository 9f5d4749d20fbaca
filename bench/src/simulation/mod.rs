//! Beyond this machine: what policies, the decision among them and the schemes of earlier systems would reach on more
//! processors than there are here.
//!
//! **How.** The graphs are real: epochs of the workload, as the engine lists their operations. Costs are measured, with
//! one worker on one processor: per kind of transaction what it takes, per unit what finding it and telling others
//! takes, per operation what building the graph takes, per event the other stages; and how long a cache line takes from
//! one processor to the other. Then execution is simulated on 1 to 64 workers ([`executor`], [`schemes`]), and the stages
//! around it by the rule that the decision goes by: serially one worker accesses while the others do the rest, in parallel
//! all do one after the other. `auto` is the decision itself, which is told what epochs take in the simulation
//! ([`decided`]).
//!
//! **Checked.** With numbers of workers that this machine can run the same is run again, and the error stated. Costs come
//! from other runs with one worker, so the error for one worker is that of what is assumed to be the same in all runs; more
//! are a prediction.
//!
//! **Left out.** Shared caches and memory bandwidth, sockets, and the threads at both ends of the pipeline (the gate, the
//! sinks), which are none of the workers: above some ten workers the predictions are bounds on what scheduling allows,
//! not promises.

mod decided;
mod executor;
mod predicted;
mod schemes;

use crate::processors::hand_over_ns;
use crate::session::{Session, Way, scheduling_name};
use crate::workloads::{Knobs, Workload};
use decided::Decided;
use predicted::Predicted;
use std::io::Write;
use tidemill_runtime::{Scheduling, Scheme, Summary};
use tidemill_schedule::Method;

/// Workers that are simulated.
const WORKERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The policies that are simulated.
const POLICIES: [&str; 8] = [
    "epoch",
    "transaction",
    "transaction,bfs",
    "transaction,dfs",
    "transaction,versions",
    "transaction,versions,bfs",
    "operation,eager",
    "operation,lazy",
];
/// The schemes that are.
const SCHEMES: [Scheme; 5] =
    [Scheme::TStream, Scheme::Partitioned(16), Scheme::Lock, Scheme::MultiVersion, Scheme::NoLock];

/// Returns all that is simulated: policies, schemes, and the decision. MorphStream's decision is only run.
pub fn schedulings() -> Vec<Scheduling> {
    let policies = POLICIES.map(|name| name.parse().expect("a policy"));
    let decided = [Scheduling::Auto, Scheduling::MorphStream];
    policies.into_iter().chain(SCHEMES.map(Scheduling::Baseline)).chain(decided).collect()
}

/// Returns the numbers of workers of which there are lines, given those that are run.
pub fn numbers(measured: &[usize]) -> Vec<usize> {
    let mut all = [&WORKERS[..], measured].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// The columns of the lines that [`simulate`] writes.
pub const HEADER: &str = "workload,micros,theta,abort,epoch,scheduling,workers,predicted_per_second,measured_per_second,p99_ms,bound_per_second";

/// A line per scheduling and number of workers: events per second as predicted; as `measured` with these numbers, and
/// the latency; and events per second at the most, by the critical path and the work.
pub fn simulate(
    workload: Workload,
    knobs: Knobs,
    micros: f64,
    (runs, measured): (usize, &[usize]),
    out: &mut dyn Write,
) {
    let mut session = Session::new(workload, knobs);
    session.run_loop();
    let shape = session.shape();
    let events = knobs.epoch.min(knobs.events) as f64;
    let line_ns = hand_over_ns().max(0.0);
    let mut policies = Vec::new();
    for scheduling in schedulings() {
        let mut run = |workers| median_of(&mut session, Way { scheduling, workers }, runs);
        let fit = run(1);
        let here: Vec<(usize, Summary)> = measured.iter().map(|&workers| (workers, run(workers))).collect();
        let method = match scheduling {
            Scheduling::Fixed(policy) => Some(Method::Policy(policy)),
            Scheduling::Baseline(scheme) => Some(Method::Scheme(scheme)),
            _ => None,
        };
        let model = method.map(|method| Predicted::of(&shape, events, method, &fit, line_ns));
        let name = scheduling_name(scheduling);
        for workers in numbers(measured) {
            let predicted = match &model {
                Some(model) => Some((model.events_per_second(workers), model.bound(workers))),
                None if scheduling == Scheduling::Auto => {
                    Some(Decided::new(&policies, &shape).events_per_second(workers))
                }
                None => None,
            };
            let (per_second, bound) =
                predicted.map_or(Default::default(), |(a, b)| (format!("{a:.0}"), format!("{b:.0}")));
            let run = here.iter().find(|(number, _)| *number == workers).map(|(_, run)| run);
            let (rate, p99) = run.map_or(Default::default(), |run| {
                (format!("{:.0}", run.events_per_second), format!("{:.3}", run.latency.p99_ms))
            });
            let (Knobs { theta, abort, epoch, .. }, of) = (knobs, workload.name());
            writeln!(
                out,
                "{of},{micros},{theta},{abort},{epoch},\"{name}\",{workers},{per_second},{rate},{p99},{bound}"
            )
            .expect("a file that takes it");
        }
        if let (Scheduling::Fixed(policy), Some(model)) = (scheduling, model) {
            policies.push((policy, model));
        }
    }
}

fn median_of(session: &mut Session, way: Way, runs: usize) -> Summary {
    let mut all: Vec<Summary> = (0..runs).map(|_| session.run(way).summary).collect();
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    all.swap_remove(all.len() / 2)
}
