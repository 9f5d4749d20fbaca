//! Predictions of the time that a policy or a scheme takes for an epoch on any number of workers, from what it took on
//! one.

use super::executor::{Costs, critical_path, makespan};
use super::schemes::{self, Turns};
use tidemill_runtime::{EpochShape, Scheme, Summary};
use tidemill_schedule::{Explore, Granularity, Method, Policy, Rows, Search};
use tidemill_txn::{Flow, Graph, Precedence, Scratch, UseBuffer, Verdicts, Versions};

/// Cache lines that a unit finds at another worker, at the least: its counter and a row.
const LINES: f64 = 2.0;
/// A part's verdict operation, of its transaction.
const VERDICT: f64 = 0.1;

/// The time to build a graph with one worker, nanoseconds of an epoch.
struct Construct {
    /// Listing and partitioning accesses, and laying out versions: prepare does it where there are several workers.
    listed: f64,
    /// The work of one worker while the others wait: under a scheme, all that is not listed.
    alone: f64,
    /// The work that all workers share: linking.
    linked: f64,
    /// Finding strata by one worker alone, as it is done by up to two. With counters it takes twice as much work, which all
    /// share.
    strata: f64,
}

impl Construct {
    /// Divides what was measured in proportion to the constants of the decision's model.
    fn of(method: Method, measured: f64) -> Construct {
        const LOCATE: f64 = 14.0;
        const LINK: f64 = 12.0;
        const LAY_OUT: f64 = 14.0;
        const STRATA: f64 = 25.0;
        let listed = LOCATE + if method.on_versions() { LAY_OUT } else { 0.0 };
        let (alone, linked, strata) = match method {
            Method::Scheme(_) => (LINK, 0.0, 0.0),
            Method::Policy(Policy { explore: Explore::Unstructured, .. }) => (0.0, LINK, 0.0),
            Method::Policy(_) => (0.0, LINK, STRATA),
        };
        let scale = measured / (listed + alone + linked + strata);
        Construct { listed: listed * scale, alone: alone * scale, linked: linked * scale, strata: strata * scale }
    }

    /// Returns the part of it that is in access, on this number of workers.
    fn in_access(&self, workers: usize) -> f64 {
        let listed = if workers > 1 { 0.0 } else { self.listed };
        let strata = self.strata * (2.0 / workers as f64).min(1.0);
        listed + self.alone + self.linked / workers as f64 + strata
    }
}

/// The way in which an epoch is executed.
enum Way {
    Policy(Policy),
    /// The transactions run in turns, or without turns.
    Turns(Turns),
    /// The transactions run in rounds, over these chains.
    Rounds(Vec<Vec<u32>>),
}

/// An epoch, and what its parts take.
pub struct Predicted {
    /// The events of an epoch.
    events: f64,
    way: Way,
    on_versions: bool,
    graph: Graph,
    flow: Flow,
    /// The owner that runs each transaction, if rows are owned and transactions are units.
    owners: Option<Vec<u32>>,
    /// The work of each unit; nanoseconds, as all that follows.
    weight: Vec<f64>,
    costs: Costs,
    construct: Construct,
    /// The work after all units: on versions, copying them into rows, which all share.
    other: f64,
    /// Running again what aborts affected, with one worker. All share it.
    redo: f64,
    /// The other stages.
    stages: f64,
    /// The least that all of this could be: transactions as they are serially.
    transactions: Vec<f64>,
}

impl Predicted {
    /// `one`: a run with one worker. `line_ns`: how long a cache line takes from one processor to another.
    pub fn of(shape: &EpochShape, events: f64, method: Method, one: &Summary, line_ns: f64) -> Predicted {
        let per_epoch = |seconds: f64| seconds * 1e9 * events / one.events.max(1) as f64;
        let on_versions = method.on_versions();
        let (takes_apart, verdicts) = match method {
            Method::Policy(policy) => (policy.takes_apart(), policy.verdicts()),
            Method::Scheme(scheme) => (scheme.speculates(), Verdicts::After),
        };
        let (mut graph, mut flow) = (Graph::new(), Flow::new());
        let uses = if takes_apart { shape.uses.clone() } else { whole(&shape.uses) };
        graph.build_and_follow(shape.accesses.accesses(), &uses, verdicts, &mut Scratch::default(), &mut flow);
        let means: Vec<f64> = one.transactions.iter().map(|t| t.mean_ns.unwrap_or(1.0).max(1.0)).collect();
        let times = one.access_seconds;
        // Each transaction takes the mean time of its kind, scaled so that all take the measured time.
        let raw: Vec<f64> = shape.transactions.iter().map(|&t| means[usize::from(t)]).collect();
        let fit = per_epoch(times.useful) / raw.iter().sum::<f64>().max(1.0);
        let transactions: Vec<f64> = raw.into_iter().map(|ns| ns * fit).collect();
        let weight: Vec<f64> = match on_versions {
            false => transactions.clone(),
            true => {
                (0..flow.units()).map(|unit| share(&flow, unit) * transactions[flow.unit(unit).0 as usize]).collect()
            }
        };
        let fit = transactions.iter().sum::<f64>() / weight.iter().sum::<f64>().max(1.0);
        let weight: Vec<f64> = weight.into_iter().map(|ns| ns * fit).collect();
        let units = weight.len().max(1) as f64;
        // Under a scheme, locks are inserted in turn.
        let (explore, insert) = match method {
            Method::Scheme(_) => (times.explore, per_epoch(times.lock) / transactions.len().max(1) as f64),
            Method::Policy(_) => (times.explore + times.lock, 0.0),
        };
        let transfer = LINES * line_ns;
        let costs =
            Costs { unit: per_epoch(explore) / units, transfer, barrier: 2.0 * transfer, line: line_ns, insert };
        let way = match method {
            Method::Scheme(scheme) => way_of(scheme, shape, &graph, &flow, &uses),
            Method::Policy(policy) => Way::Policy(policy),
        };
        let is_owned = matches!(
            way,
            Way::Policy(Policy {
                granularity: Granularity::Transaction(Rows::InPlace),
                explore: Explore::Structured(Search::Dfs),
                ..
            })
        );
        let owners = is_owned.then(|| owners(shape));
        let stages = &one.stage_seconds;
        Predicted {
            events,
            way,
            on_versions,
            graph,
            flow,
            owners,
            weight,
            costs,
            construct: Construct::of(method, per_epoch(times.construct)),
            other: per_epoch(times.other + times.sync),
            redo: per_epoch(times.abort),
            stages: per_epoch(stages.prepare + stages.finish),
            transactions,
        }
    }

    /// Returns the time that each of its transactions takes, nanoseconds.
    pub fn transactions(&self) -> &[f64] {
        &self.transactions
    }

    /// Returns its events.
    pub fn events(&self) -> f64 {
        self.events
    }

    /// Returns the time of the other stages of an epoch in a pipeline of this number of workers, nanoseconds of one
    /// worker.
    pub fn stages(&self, workers: usize) -> f64 {
        let lists = workers > 1 && !self.is_serial();
        self.stages + if lists { self.construct.listed } else { 0.0 }
    }

    /// Returns the time of the access stage of an epoch, nanoseconds.
    pub fn access(&self, workers: usize) -> f64 {
        if self.is_serial() {
            return self.transactions.iter().sum::<f64>() + self.construct.in_access(1) + self.other;
        }
        let explored = match &self.way {
            Way::Policy(policy) => {
                let explored = match self.on_versions {
                    true => self.explored(&self.versions(), policy.explore, workers),
                    false => self.explored(&self.graph, policy.explore, workers),
                };
                explored + self.redo / workers as f64
            }
            Way::Turns(turns) => schemes::in_turns(turns, &self.weight, self.costs, workers),
            Way::Rounds(chains) => {
                let pass = schemes::in_rounds(&self.versions(), chains, &self.weight, self.costs, workers);
                pass * (1.0 + self.redo / self.transactions.iter().sum::<f64>().max(1.0))
            }
        };
        let sharing = if self.on_versions { workers } else { 1 };
        self.construct.in_access(workers) + explored + self.other / sharing as f64
    }

    fn explored(&self, precedence: &impl Precedence, explore: Explore, workers: usize) -> f64 {
        makespan(precedence, &self.weight, self.costs, explore, self.owners.as_deref(), workers)
    }

    fn versions(&self) -> Versions<'_> {
        Versions { graph: &self.graph, flow: &self.flow }
    }

    fn is_serial(&self) -> bool {
        matches!(self.way, Way::Policy(Policy { granularity: Granularity::Epoch, .. }))
    }

    /// Returns the time that an epoch takes in a pipeline of this many workers, of which `in_access` share its access,
    /// if that takes `access`; nanoseconds.
    pub fn pipeline(&self, access: f64, in_access: usize, workers: usize) -> f64 {
        let (count, stages) = (workers as f64, self.stages(workers));
        match self.is_serial() && workers > 1 {
            true => access.max(stages / (count - 1.0)),
            false => access.max((in_access as f64 * access + stages) / count),
        }
    }

    /// Returns the events per second with all workers.
    pub fn events_per_second(&self, workers: usize) -> f64 {
        self.events / self.pipeline(self.access(workers), workers, workers) * 1e9
    }

    /// No schedule of these transactions, whole on rows or in these parts, could be faster.
    pub fn bound(&self, workers: usize) -> f64 {
        let path = match (&self.way, self.on_versions) {
            (Way::Turns(turns), _) => turns.critical_path(&self.weight),
            (_, true) => critical_path(&self.versions(), &self.weight),
            (_, false) => critical_path(&self.graph, &self.transactions),
        };
        let work = (self.transactions.iter().sum::<f64>() + self.stages(workers)) / workers as f64;
        self.events / path.max(work) * 1e9
    }
}

fn way_of(scheme: Scheme, shape: &EpochShape, graph: &Graph, flow: &Flow, uses: &UseBuffer) -> Way {
    let accesses = shape.accesses.accesses();
    match scheme {
        Scheme::NoLock | Scheme::NoOrder => Way::Turns(Turns::none(accesses.transactions())),
        Scheme::Lock => Way::Turns(Turns::locks(accesses, uses, &vec![0; accesses.rows().len()])),
        Scheme::Partitioned(partitions) => {
            let of = shape.key_hashes.iter().map(|hash| (hash % u64::from(partitions)) as u32);
            Way::Turns(Turns::locks(accesses, uses, &of.collect::<Vec<_>>()))
        }
        Scheme::MultiVersion => Way::Turns(Turns::versions(accesses, graph, flow)),
        Scheme::TStream | Scheme::TStreamDealt(_) => Way::Rounds(schemes::chains(graph, flow)),
    }
}

/// Returns the uses for transactions that stay whole.
fn whole(uses: &UseBuffer) -> UseBuffer {
    let writes = uses.uses.iter().map(|used| tidemill_txn::Use::new(0, used.writes()));
    UseBuffer { uses: writes.collect(), parts: vec![0; uses.parts.len()] }
}

/// Returns a hash of the row of each transaction's first operation; its own number, if it has none.
fn owners(shape: &EpochShape) -> Vec<u32> {
    let starts = shape.accesses.accesses().op_start();
    let first = |t: usize| (starts[t] < starts[t + 1]).then(|| shape.key_hashes[starts[t] as usize] as u32);
    (0..shape.transactions.len()).map(|t| first(t).unwrap_or(t as u32)).collect()
}

/// Returns the share of a unit in its transaction's work.
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
