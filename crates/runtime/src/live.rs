//! The present state of a run, for those who watch it: the last epochs, recent latencies, the flow along the edges of
//! the program's graph.
//!
//! The committer notes a few numbers per epoch. Texts are made when somebody asks.

use crate::report::seconds;
use crate::summary::LatencySummary;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use tidemill_model::Value;
use tidemill_plan::{Program, TableId, TransactionId};
use tidemill_schedule::Choice;
use tidemill_stages::access::hot::Touched;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::tasks::UnderWay;
use tidemill_stages::wiring::{InputId, Wiring};
use tidemill_txn::{Cut, Survey};
use typed_index_collections::{TiVec, ti_vec};

/// The number of epochs that are remembered.
const EPOCHS: usize = 100;
/// The accesses of a sample.
const TOUCHED_MAX: usize = 2048;
/// The hot rows that are told.
const HOT_MAX: usize = 10;
/// Recent latencies are those of this time and of as much before, nanoseconds.
const RECENT: u64 = 5_000_000_000;

/// The present state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Live {
    /// The last epochs that were finished, oldest first.
    pub epochs: Vec<LiveEpoch>,
    /// The latencies of the last five to ten seconds in which there were results.
    pub latency: LatencySummary,
    /// The number of events so far, by transaction and by its input.
    pub inputs: Vec<Vec<u64>>,
    /// The number of events so far, by sink.
    pub sinks: Vec<u64>,
    /// The contention among the transactions of recent epochs. None where each event is followed through: then all is one
    /// path.
    pub contention: Option<Contention>,
    /// The rows that are touched most, by a sample of the accesses of recent epochs that were looked at; most first.
    #[serde(skip)]
    pub hot: Vec<HotRow>,
    /// The rows along the critical paths of these epochs, with their shares of the steps; most first.
    #[serde(skip)]
    pub critical: Vec<HotRow>,
    /// The epochs between the gate and the committer.
    pub under_way: UnderWay,
}

/// A finished epoch. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveEpoch {
    /// Its number.
    pub epoch: u64,
    /// Events of sources.
    pub events: u64,
    /// Transactions.
    pub transactions: u64,
    /// The transactions that aborted.
    pub aborted: u64,
    /// The policy; where groups were scheduled separately, of the one with most transactions.
    pub policy: String,
    /// The most workers that took part in access.
    pub workers: u32,
    /// The reason for the policy.
    pub why: String,
    /// Groups that were scheduled separately.
    pub groups: usize,
    /// The time from the arrival of its oldest event until the gate had room for it, seconds.
    pub waited: f64,
    /// The time in prepare, seconds.
    pub prepare: f64,
    /// The wall time of access, seconds.
    pub access: f64,
    /// The time in finish, seconds.
    pub finish: f64,
    /// The time from the arrival of its oldest event until it was finished, seconds.
    pub took: f64,
}

/// A row that many transactions touch.
#[derive(Clone, Debug, PartialEq)]
pub struct HotRow {
    /// Its table.
    pub table: TableId,
    /// Its key.
    pub key: Vec<Value>,
    /// Its share of all accesses, or of all steps.
    pub share: f64,
}

/// The share of the work that has to be done in sequence, by a sample of an epoch's transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Contention {
    /// Transactions of the sample.
    pub transactions: u32,
    /// The accesses of these transactions to rows.
    pub operations: u32,
    /// The number of different rows that these transactions touch.
    pub rows: u32,
    /// The number of accesses to the row with most accesses.
    pub longest: u32,
    /// The share of the work on the critical path, where each row sees its transactions one after the other.
    pub critical: f64,
    /// The share on the critical path if reads of a row run beside each other.
    pub critical_of_writes: f64,
    /// The share on the critical path if transactions are taken apart into operations.
    pub critical_of_parts: f64,
}

/// The note of an epoch.
struct Noted {
    epoch: LiveEpoch,
    choice: Option<Choice>,
}

/// The measurements from which [`Live`] is made.
pub struct Notes {
    epochs: VecDeque<Noted>,
    /// Latencies of now, and of the time before.
    latency: [Histogram<u64>; 2],
    /// The time at which the first of the two histograms began.
    turned: u64,
    inputs: TiVec<InputId, u64>,
    sinks: Vec<u64>,
    survey: Option<Survey>,
    touched: VecDeque<Touched>,
    critical: VecDeque<Touched>,
}

impl Notes {
    /// Makes empty notes.
    pub fn new(program: &Program, wiring: &Wiring, latency: &Histogram<u64>) -> Notes {
        Notes {
            epochs: VecDeque::with_capacity(EPOCHS),
            latency: [latency.clone(), latency.clone()],
            turned: 0,
            inputs: ti_vec![0; wiring.inputs.len()],
            sinks: vec![0; program.sinks.len()],
            survey: None,
            touched: VecDeque::new(),
            critical: VecDeque::new(),
        }
    }

    /// Notes a finished epoch.
    pub fn add(&mut self, epoch: &Epoch, now: u64) {
        for (events, input) in self.inputs.iter_mut().zip(&epoch.work.inputs) {
            *events += (input.len + input.folded()) as u64;
        }
        for (events, batches) in self.sinks.iter_mut().zip(&epoch.finished.outputs) {
            *events += batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        }
        self.survey = epoch.accessed.survey.or(self.survey);
        for (all, new) in [(&mut self.touched, &epoch.accessed.touched), (&mut self.critical, &epoch.accessed.critical)]
        {
            all.extend(new.iter().cloned());
            let too_many = all.len().saturating_sub(TOUCHED_MAX);
            all.drain(..too_many);
        }
        if self.epochs.len() == EPOCHS {
            self.epochs.pop_front();
        }
        self.epochs.push_back(Noted::of(epoch, now));
    }

    /// Notes the latency of events.
    pub fn released(&mut self, latency: u64, events: u64, now: u64) {
        if now.saturating_sub(self.turned) > RECENT {
            self.latency.swap(0, 1);
            self.latency[0].reset();
            self.turned = now;
        }
        self.latency[0].saturating_record_n(latency, events);
    }

    /// Returns the state that the notes show.
    pub fn live(&self, program: &Program, wiring: &Wiring, under_way: UnderWay) -> Live {
        let mut inputs: TiVec<TransactionId, Vec<u64>> =
            program.transactions.iter().map(|transaction| vec![0; transaction.inputs.len()]).collect();
        for (wired, events) in wiring.inputs.iter().zip(&self.inputs) {
            inputs[wired.transaction][wired.input] = *events;
        }
        let mut latency = self.latency[0].clone();
        latency.add(&self.latency[1]).expect("both have the same bounds");
        Live {
            epochs: self.epochs.iter().map(Noted::told).collect(),
            latency: LatencySummary::of(&latency),
            inputs: inputs.raw,
            sinks: self.sinks.clone(),
            contention: self.survey.as_ref().map(Contention::of),
            hot: Vec::new(),
            critical: Vec::new(),
            under_way,
        }
    }

    /// Returns the samples of the rows that were touched, and of those along critical paths.
    pub fn touched(&self) -> [Vec<Touched>; 2] {
        [&self.touched, &self.critical].map(|all| all.iter().cloned().collect())
    }
}

/// Returns the rows that were touched more than once in a sample, most first.
pub fn hottest(sample: &[Touched]) -> Vec<HotRow> {
    let mut counts: BTreeMap<String, (&Touched, usize)> = BTreeMap::new();
    for touched in sample {
        counts.entry(format!("{touched:?}")).or_insert((touched, 0)).1 += 1;
    }
    let mut counts: Vec<(&Touched, usize)> = counts.into_values().filter(|(_, count)| *count > 1).collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.truncate(HOT_MAX);
    let share = |count| count as f64 / sample.len() as f64;
    let row =
        |(touched, count): (&Touched, usize)| HotRow { table: touched.0, key: touched.1.clone(), share: share(count) };
    counts.into_iter().map(row).collect()
}

impl Noted {
    fn of(epoch: &Epoch, now: u64) -> Noted {
        let most = epoch.accessed.scheduled.iter().max_by_key(|scheduled| scheduled.transactions);
        let opened = epoch.input.opened;
        let arrived = epoch.input.arrivals.iter().map(|(arrived, _)| *arrived).min().unwrap_or(opened);
        let epoch = LiveEpoch {
            epoch: epoch.number,
            events: epoch.input.events as u64,
            transactions: epoch.transactions() as u64,
            aborted: epoch.aborted(),
            groups: epoch.accessed.scheduled.len(),
            waited: seconds(opened.saturating_sub(arrived)),
            prepare: seconds(epoch.times.prepare),
            access: seconds(epoch.times.access),
            finish: seconds(epoch.times.finish),
            took: seconds(now.saturating_sub(arrived)),
            ..LiveEpoch::default()
        };
        Noted { epoch, choice: most.map(|scheduled| scheduled.choice) }
    }

    fn told(&self) -> LiveEpoch {
        let text = |of: fn(&Choice) -> String| self.choice.as_ref().map(of).unwrap_or_default();
        LiveEpoch {
            policy: text(|choice| choice.method.to_string()),
            workers: self.choice.map_or(0, |choice| choice.workers),
            why: text(|choice| choice.reason.to_string()),
            ..self.epoch.clone()
        }
    }
}

impl Contention {
    fn of(survey: &Survey) -> Contention {
        Contention {
            transactions: survey.transactions,
            operations: survey.chains.operations,
            rows: survey.chains.chains(),
            longest: survey.chains.longest,
            critical: survey.paths(Cut::InPlace).critical,
            critical_of_writes: survey.paths(Cut::Whole).critical,
            critical_of_parts: survey.paths(Cut::Parts).critical,
        }
    }
}
