//! The end of operators: what they have open closes, although more events may come. Another program goes on after it, in which they are
//! others. No source is read for that, and the events that are held stay held.
//!
//! Everything that was due at times that have been shown runs first, as it would in any run. Then what is open closes as at the end of time: at its own
//! boundaries, one after the other, and what closes at one boundary in the order of its places.

use super::{Gatherer, Phase};
use tidemill_recovery::RunError;
use tidemill_stages::actor::Progress;
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;

impl Gatherer {
    /// Returns whether the run ends operators.
    pub(super) fn ends(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| !durable.side.ends.is_empty())
    }

    /// Closes what is open next of the operators that end; leaves after the last.
    pub(super) fn close_open(&mut self, epoch: Box<Epoch>) -> Result<Progress, RunError> {
        let complete = self.gate.complete();
        let shown = self.agenda.boundaries.next(self.gate.times()).filter(|&boundary| complete >= Some(boundary));
        let ends = self.durable.as_ref().map(|durable| durable.side.ends.clone()).unwrap_or_default();
        let mut boundary = shown.filter(|_| !self.on.control.stops());
        if boundary.is_none() && !self.on.control.stops() {
            self.agenda.only(&self.on.machine, &ends);
            boundary = self.agenda.last_boundary(&self.on.machine, &mut self.gate);
        }
        match boundary {
            Some(boundary) => self.go_on(Phase::Due(epoch, DueCut { due: 0, boundary })),
            None => {
                self.slots.keep(epoch);
                Ok(self.leave())
            }
        }
    }
}
