//! Late and bad records of sources that are read in splits: they wait until no record can come that stands before them.
//! Those of other sources are in order as they come.

use crate::{Record, Reference};
use std::collections::BTreeMap;
use tidemill_model::Value;
use tidemill_plan::{Origin, StreamId};

/// The place of a record: its time, its source and split, and its number among all that were put aside.
type Stands = (i64, (usize, usize), u64);

/// The records that wait, by where they stand.
#[derive(Default)]
pub(crate) struct Waiting {
    records: BTreeMap<Stands, (StreamId, Record)>,
    count: u64,
}

impl Reference<'_> {
    /// Says that a source may have several splits: this is the first one.
    pub fn split(&mut self, source: usize) {
        self.sources[source].is_split = true;
    }

    /// Says whether nothing of a split comes any more, and whether further splits of its source may join.
    pub fn set_end(&mut self, split: usize, ended: bool, is_open: bool) {
        (self.sources[split].ended, self.sources[split].is_open) = (ended, is_open);
    }

    /// Has late and bad records of a split wait that another execution left, with the times at which they stand.
    pub fn stand_aside(&mut self, split: usize, late: Vec<(i64, Vec<Value>)>, bad: Vec<(i64, Vec<Value>)>) {
        let (to_late, to_bad) = self.streams_aside(split);
        if !self.sources[split].is_split {
            self.outputs[to_late].extend(late.into_iter().map(|(_, record)| record));
            self.outputs[to_bad].extend(bad.into_iter().map(|(_, record)| record));
            return;
        }
        late.into_iter().for_each(|(time, record)| self.wait(split, time, to_late, record));
        bad.into_iter().for_each(|(time, record)| self.wait(split, time, to_bad, record));
    }

    /// Takes a record of a split that could not be decoded, as it is on its `bad` stream.
    pub fn reject(&mut self, split: usize, record: Vec<Value>) {
        let (_, bad) = self.streams_aside(split);
        self.put_aside(split, bad, record);
    }

    /// Counts a record of a split that is no event, like an event.
    pub fn pass_over(&mut self, split: usize) {
        self.sources[split].offset += 1;
    }

    /// Takes a record that stands where its split has come to.
    pub(crate) fn put_aside(&mut self, split: usize, stream: StreamId, record: Record) {
        let of = &self.sources[split];
        if !of.is_split {
            self.outputs[stream].push(record);
            return;
        }
        let Origin::Source { lateness, .. } = self.program.streams[of.stream].origin else {
            unreachable!("chosen as a source")
        };
        let time = of.stands(lateness);
        self.wait(split, time, stream, record);
    }

    fn wait(&mut self, split: usize, time: i64, stream: StreamId, record: Record) {
        let position = (time, self.sources[split].place, self.aside.count);
        self.aside.count += 1;
        self.aside.records.insert(position, (stream, record));
    }

    fn streams_aside(&self, split: usize) -> (StreamId, StreamId) {
        let Origin::Source { late, bad, .. } = self.program.streams[self.sources[split].stream].origin else {
            unreachable!("chosen as a source")
        };
        (late, bad)
    }

    /// Puts what no record can come before any more on its stream.
    pub fn release_aside(&mut self) {
        while let Some((&(time, place, _), _)) = self.aside.records.first_key_value() {
            if !self.may_pass(time, place) {
                break;
            }
            let (_, (stream, record)) = self.aside.records.pop_first().expect("just looked at");
            self.outputs[stream].push(record);
        }
    }

    fn may_pass(&self, time: i64, place: (usize, usize)) -> bool {
        let lateness = |stream: StreamId| match self.program.streams[stream].origin {
            Origin::Source { lateness, .. } => lateness,
            _ => unreachable!("chosen as a source"),
        };
        let time = i128::from(time);
        let timed = || self.sources.iter().filter(|of| self.program.streams[of.stream].event_time.is_some());
        let open: Vec<_> = timed().filter(|of| !of.ended).map(|of| (of.mark(lateness(of.stream)), of.place)).collect();
        let is_next = open.iter().all(|&(mark, other)| mark > time || (mark == time && other >= place));
        let horizon = timed().map(|of| of.time_max.unwrap_or(i64::MIN).max(of.punctuated)).max().unwrap_or(i64::MIN);
        let mark = open.iter().map(|(mark, _)| *mark).fold(i128::from(horizon), i128::min);
        is_next && (time <= mark || (open.is_empty() && timed().all(|of| !of.is_open)))
    }
}
