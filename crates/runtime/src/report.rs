//! The counters of a run in progress.

use crate::live::{Live, Notes};
use crate::summary::{
    FailedSummary, LatencySummary, LeftOutSummary, PolicySummary, SourceSummary, StageSummary, Summary,
    TransactionSummary, WorkerSummary,
};
use hdrhistogram::Histogram;
use tidemill_plan::{Groups, Program, TransactionId};
use tidemill_schedule::Breakdown;
use tidemill_stages::access::grouping::Scheduled;
use tidemill_stages::access::hot::Touched;
use tidemill_stages::epoch::{Epoch, Sampled};
use tidemill_stages::gate::SourcePosition;
use tidemill_stages::tasks::UnderWay;
use tidemill_stages::wiring::Wiring;
use typed_index_collections::{TiVec, ti_vec};

/// The longest latency that is distinguished, nanoseconds: an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The counts of a run so far.
pub struct Report {
    events: u64,
    epochs: u64,
    policies: Vec<PolicySummary>,
    /// The names of the groups.
    groups: Vec<String>,
    late: Vec<u64>,
    bad: Vec<u64>,
    /// The sources whose late events are inputs, and the numbers of these among the streams that an epoch is given.
    lates: Vec<(usize, usize)>,
    counts: Vec<Vec<u64>>,
    failed: Vec<u64>,
    /// The number of times that were left out, by stream.
    left_out: Vec<u64>,
    /// The sampled times, by transaction.
    sampled: TiVec<TransactionId, Sampled>,
    latency: Histogram<u64>,
    stages: StageSummary,
    access: Breakdown,
    notes: Notes,
}

impl Report {
    /// Makes a report whose counts are all zero.
    pub fn new(program: &Program, groups: &Groups, wiring: &Wiring) -> Self {
        let sources = program.sources().count();
        let latency = Histogram::new_with_max(LATENCY_MAX, 3).expect("bounds that a histogram takes");
        Report {
            events: 0,
            epochs: 0,
            policies: Vec::new(),
            groups: groups.names.clone(),
            late: vec![0; sources],
            bad: vec![0; sources],
            lates: wiring.late_sources(program),
            counts: program.transactions.iter().map(|t| vec![0; t.reasons.len() + 1]).collect(),
            failed: vec![0; program.streams.len()],
            left_out: vec![0; program.streams.len()],
            sampled: ti_vec![Sampled::default(); program.transactions.len()],
            notes: Notes::new(program, wiring, &latency),
            latency,
            stages: StageSummary::default(),
            access: Breakdown::default(),
        }
    }

    /// Adds a finished epoch.
    pub fn add(&mut self, epoch: &Epoch, wiring: &Wiring, now: u64) {
        self.notes.add(epoch, now);
        self.events += epoch.input.events as u64;
        self.epochs += 1;
        epoch.accessed.scheduled.iter().for_each(|scheduled| self.add_policy(epoch, scheduled));
        // Only sources have late and bad records; due rows are never either.
        for (s, source) in epoch.input.sources.iter().take(self.late.len()).enumerate() {
            self.late[s] += source.late.iter().map(|b| b.num_rows() as u64).sum::<u64>();
            self.bad[s] += source.bad.len() as u64;
        }
        for &(s, number) in &self.lates {
            self.late[s] += epoch.input.sources[number].events.as_ref().map_or(0, |b| b.num_rows() as u64);
        }
        epoch.input.left_out.iter().for_each(|&(stream, times)| self.left_out[usize::from(stream)] += times);
        let sum = |all: &mut Vec<u64>, some: &Vec<u64>| all.iter_mut().zip(some).for_each(|(a, b)| *a += b);
        self.counts.iter_mut().zip(&epoch.finished.counts).for_each(|(all, some)| sum(all, some));
        sum(&mut self.failed, &epoch.finished.failed.raw);
        for (wired, sampled) in wiring.inputs.iter().zip(&epoch.accessed.sampled) {
            let all = &mut self.sampled[wired.transaction];
            all.time += sampled.time;
            all.transactions += sampled.transactions;
        }
        self.access.add(&epoch.accessed.breakdown);
        self.stages.prepare += seconds(epoch.times.prepare);
        self.stages.access += seconds(epoch.times.access);
        self.stages.decide += seconds(epoch.times.decide);
        self.stages.finish += seconds(epoch.times.finish);
    }

    /// Adds time spent in sinks, nanoseconds.
    pub fn sinks(&mut self, time: u64) {
        self.stages.sinks += seconds(time);
    }

    /// Adds events whose results were released, by their arrival times.
    pub fn released(&mut self, arrivals: &[(u64, u64)], now: u64) {
        for &(arrived, events) in arrivals {
            let latency = now.saturating_sub(arrived);
            self.latency.saturating_record_n(latency, events);
            self.notes.released(latency, events, now);
        }
    }

    fn add_policy(&mut self, epoch: &Epoch, scheduled: &Scheduled) {
        let policy = scheduled.choice.method.to_string();
        let group = scheduled.group.filter(|_| self.groups.len() > 1).map(|group| &self.groups[group]);
        let workers = scheduled.choice.workers.into();
        let is_known =
            |known: &PolicySummary| (&known.policy, known.workers, known.group.as_ref()) == (&policy, workers, group);
        let known = self.policies.iter().position(is_known);
        let at = known.unwrap_or_else(|| {
            self.policies.push(PolicySummary { policy, workers, group: group.cloned(), ..Default::default() });
            self.policies.len() - 1
        });
        let summary = &mut self.policies[at];
        summary.epochs += 1;
        summary.redone += u64::from(scheduled.redone);
        summary.why = scheduled.choice.reason.to_string();
        let (transactions, access) = match scheduled.group {
            // Includes the sampling prefix.
            None => (epoch.transactions() as u64, epoch.times.access),
            Some(_) => (scheduled.transactions.into(), scheduled.access),
        };
        summary.transactions += transactions;
        summary.access_seconds += seconds(access);
    }

    /// Returns the summary of the run, after `elapsed` nanoseconds.
    pub fn summary(&self, program: &Program, positions: &[SourcePosition], stopped: bool, elapsed: u64) -> Summary {
        let seconds = elapsed as f64 / 1e9;
        Summary {
            application: program.name.clone(),
            events: self.events,
            sources: self.sources(program, positions),
            transactions: self.transactions(program),
            failed: self.failed(program),
            left_out: self.left_out(program),
            epochs: self.epochs,
            policies: self.policies.clone(),
            seconds,
            events_per_second: if elapsed == 0 { 0.0 } else { self.events as f64 / seconds },
            latency: LatencySummary::of(&self.latency),
            stage_seconds: self.stages,
            access_seconds: self.access_seconds(),
            stopped,
            durability: None,
        }
    }

    /// Returns the present state of the run.
    pub fn live(&self, program: &Program, wiring: &Wiring, under_way: UnderWay) -> Live {
        self.notes.live(program, wiring, under_way)
    }

    /// Returns the samples of the rows that were touched, and of those along critical paths.
    pub fn touched(&self) -> [Vec<Touched>; 2] {
        self.notes.touched()
    }

    fn access_seconds(&self) -> WorkerSummary {
        let Breakdown { useful, sync, lock, construct, explore, abort, other } = self.access;
        let [useful, sync, lock, construct] = [useful, sync, lock, construct].map(seconds);
        let [explore, abort, other] = [explore, abort, other].map(seconds);
        WorkerSummary { useful, sync, lock, construct, explore, abort, other }
    }

    /// Returns the counts of the sources.
    pub fn sources(&self, program: &Program, positions: &[SourcePosition]) -> Vec<SourceSummary> {
        let streams = program.sources();
        let names: Vec<&str> = program.sources().map(|stream| stream.name.as_str()).collect();
        let of = |(s, stream): (usize, &tidemill_plan::Stream)| {
            let mut summary =
                SourceSummary { name: stream.name.clone(), late: self.late[s], bad: self.bad[s], ..Default::default() };
            summary.stand(positions[s], &names);
            summary
        };
        streams.enumerate().map(of).collect()
    }

    fn transactions(&self, program: &Program) -> Vec<TransactionSummary> {
        let of = |((transaction, counts), sampled): ((&tidemill_plan::Transaction, &Vec<u64>), &Sampled)| {
            let mut reasons: Vec<(String, u64)> = transaction
                .reasons
                .iter()
                .zip(&counts[1..])
                .filter(|(_, count)| **count > 0)
                .map(|(reason, count)| (reason.clone(), *count))
                .collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            TransactionSummary {
                name: transaction.name.clone(),
                committed: counts[0],
                mean_ns: (sampled.transactions > 0.0).then(|| sampled.time as f64 / sampled.transactions),
                aborted: counts[1..].iter().sum(),
                reasons,
            }
        };
        program.transactions.iter().zip(&self.counts).zip(&self.sampled).map(of).collect()
    }

    fn failed(&self, program: &Program) -> Vec<FailedSummary> {
        let named = program.streams.iter().zip(&self.failed).filter(|(_, count)| **count > 0);
        named.map(|(stream, count)| FailedSummary { stream: stream.name.clone(), events: *count }).collect()
    }

    fn left_out(&self, program: &Program) -> Vec<LeftOutSummary> {
        let named = program.streams.iter().zip(&self.left_out).filter(|(_, times)| **times > 0);
        named.map(|(stream, times)| LeftOutSummary { stream: stream.name.clone(), times: *times }).collect()
    }
}

impl LatencySummary {
    /// Summarizes latencies in nanoseconds.
    pub(crate) fn of(latencies: &Histogram<u64>) -> LatencySummary {
        let ms = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e6;
        LatencySummary {
            p50_ms: ms(0.5),
            p95_ms: ms(0.95),
            p99_ms: ms(0.99),
            p999_ms: ms(0.999),
            max_ms: latencies.max() as f64 / 1e6,
        }
    }
}
