//! What was taken of each source: since the last cut, for the log, and in all, for checkpoints.

use super::entry::{EpochEntry, Ingested, SourceEntry};
use crate::epoch::Epoch;
use crate::gate::Gate;
use crate::io::SourceBatch;
use arrow_array::RecordBatch;

/// Records taken of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Events.
    pub events: u64,
    /// Undecodable records.
    pub bad: u64,
}

impl Taken {
    /// Of a batch.
    pub fn of(batch: &SourceBatch) -> Taken {
        Taken { events: batch.events.num_rows() as u64, bad: batch.bad.len() as u64 }
    }

    /// Adds some.
    pub fn add(&mut self, more: Taken) {
        self.events += more.events;
        self.bad += more.bad;
    }
}

/// What was taken of one source.
#[derive(Default)]
struct OfSource {
    /// Whether its records are not logged.
    replays: bool,
    in_all: Taken,
    token: Option<String>,
    since_cut: Taken,
    values: Vec<SourceBatch>,
}

/// What was taken of all sources.
pub struct Intake {
    sources: Vec<OfSource>,
}

impl Intake {
    /// Of sources of which so much was taken before, up to some token; and whether they replay.
    pub fn new(before: impl IntoIterator<Item = (Taken, Option<String>, bool)>) -> Intake {
        let of = |(in_all, token, replays)| OfSource { in_all, token, replays, ..OfSource::default() };
        Intake { sources: before.into_iter().map(of).collect() }
    }

    /// A batch was ingested, behind which the source stands at `token`.
    pub fn take(&mut self, source: usize, batch: &SourceBatch, token: Option<String>) {
        let of = &mut self.sources[source];
        of.since_cut.add(Taken::of(batch));
        of.in_all.add(Taken::of(batch));
        of.token = token;
        if !of.replays {
            let events: RecordBatch = batch.events.clone();
            of.values.push(SourceBatch { events, bad: batch.bad.clone() });
        }
    }

    /// Whether anything was taken since the last epoch was cut.
    pub fn has_uncut(&self) -> bool {
        self.sources.iter().any(|of| of.since_cut != Taken::default())
    }

    /// An epoch was cut: what is to be logged of it.
    pub fn cut(&mut self, epoch: &Epoch, gate: &Gate) -> EpochEntry {
        let entry = |(s, of): (usize, &mut OfSource)| {
            let passed = epoch.sources[s].events.as_ref().map_or(0, |events| events.num_rows() as u64);
            let taken = std::mem::take(&mut of.since_cut);
            let ingested = match std::mem::take(&mut of.values) {
                batches if !batches.is_empty() => Ingested::Values(batches),
                _ => Ingested::Again,
            };
            // Without new records it stands where the entry before says.
            let token = of.token.clone().filter(|_| taken != Taken::default());
            SourceEntry { passed, ended: gate.has_ended(s), taken, token, ingested }
        };
        let sources = self.sources.iter_mut().enumerate().map(entry).collect();
        EpochEntry { epoch: epoch.number, sources, digests: Vec::new() }
    }

    /// An epoch was replayed.
    pub fn replayed(&mut self, entry: &EpochEntry) {
        for (of, entry) in self.sources.iter_mut().zip(&entry.sources) {
            of.in_all.add(entry.taken);
            if entry.taken != Taken::default() {
                of.token.clone_from(&entry.token);
            }
        }
    }

    /// What was taken of a source in all, and where it stands.
    pub fn of(&self, source: usize) -> (Taken, Option<String>) {
        (self.sources[source].in_all, self.sources[source].token.clone())
    }
}
