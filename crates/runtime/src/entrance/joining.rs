//! Splits that join: those that are there when the input goes on, and those that readers find while it does.

use super::Entrance;
use crate::cutter::source_failed;
use crate::splits::{Known, join};
use tidemill_io::{IoFailure, Source};
use tidemill_recovery::{JoinedSplit, RunError, Taken};

const NEEDS_TIME: &str = "splits are read side by side in the order of event time, and its events have none: declare an \
     event time, or read its files as one stream";

impl Entrance {
    /// Begins the splits of sources that are there now and were not known before, and has the sources watched for more.
    pub fn begin_splits(&mut self) -> Result<(), RunError> {
        for source in 0..self.inputs.sources() {
            if !self.inputs.has_splits(source) {
                continue;
            }
            let failed = |failure| source_failed(&self.on, source, failure);
            if !self.gate.has_time(source) {
                return Err(failed(IoFailure::new(NEEDS_TIME)));
            }
            let new = self.inputs.new_splits(source).map_err(failed)?;
            let is_over = self.gate.is_over(source) && !self.inputs.names(source).is_empty();
            if let Some(name) = new.first().filter(|_| is_over) {
                return Err(failed(IoFailure::new(format!(
                    "it has ended for good, by --final or as the last of its input, and {name} is new: put the state back \
                     to a savepoint from before its end"
                ))));
            }
            for name in new {
                self.join(source, name, None)?;
            }
            self.inputs.watch(source);
            self.gate.expect(source, !is_over && self.inputs.is_open(source));
        }
        Ok(())
    }

    /// Lets a split join that was found now; `opened`, unless it is still to be opened.
    pub fn join(&mut self, source: usize, name: String, opened: Option<Box<dyn Source>>) -> Result<(), RunError> {
        let number = self.inputs.names(source).len() as u32;
        let mark = if number == 0 { None } else { self.gate.mark_to_join(source) };
        let known = Known { source, split: number, name: name.clone(), mark };
        let now = self.on.environment.now();
        let joined = join(known, &mut self.gate, &mut self.inputs, &mut self.idle, now);
        let opened = joined.and_then(|split| match opened {
            Some(opened) => {
                self.inputs.give(split, opened);
                Ok(split)
            }
            None => self.inputs.open(split).map(|()| split),
        });
        let split = opened.map_err(|failure| source_failed(&self.on, source, failure))?;
        if let Some(durable) = &mut self.durable {
            let replays = self.inputs.replays(split);
            durable.side.feed.join(JoinedSplit { source, split: number, mark, name }, replays);
        }
        self.inputs.start(split, Taken::default());
        Ok(())
    }

    /// Takes the splits that readers have found.
    pub fn join_found(&mut self) -> Result<(), RunError> {
        while let Some((source, found)) = self.inputs.found() {
            let (name, opened) = found.map_err(|failure| source_failed(&self.on, source, failure))?;
            self.join(source, name, Some(opened))?;
        }
        Ok(())
    }
}
