//! Room for the next epoch: an empty epoch, slots of rows, memory, and the log.

use super::{Gatherer, Phase};
use tidemill_recovery::{Room, RunError};
use tidemill_stages::actor::{Inbox, Progress, Took};
use tidemill_stages::epoch::Epoch;
use tidemill_state::Table;

/// The interval at which the gate checks whether the merges that it waits for are done, nanoseconds.
const MERGE_POLL: u64 = 1_000_000;

/// The empty epochs.
pub(super) struct Slots {
    pub(super) free: Inbox<Box<Epoch>>,
    /// Epochs that have returned and are not in use.
    #[allow(clippy::vec_box, reason = "boxed as they travel")]
    pub(super) stash: Vec<Box<Epoch>>,
    pub(super) count: usize,
}

impl Gatherer {
    /// Makes room for the next epoch: frees slots of rows that do not exist and, with a memory limit, memory.
    pub(super) fn make_room(&mut self) -> Result<Progress, RunError> {
        if self.at.on.machine.tables.iter().any(Table::wants_sweep) {
            match self.slots.all() {
                Took::Message(()) => self.sweep(),
                Took::Nothing => return self.wait(Phase::Room, None),
                Took::Closed => return self.go_on(Phase::Last),
            }
        }
        if let Some(progress) = self.relieve()? {
            return Ok(progress);
        }
        if !self.log_has_room() {
            return self.wait(Phase::Room, None);
        }
        match self.slots.take() {
            Took::Message(mut epoch) => {
                epoch.input.opened = self.at.on.environment.now();
                self.go_on(Phase::Gather(epoch))
            }
            Took::Nothing => self.wait(Phase::Room, None),
            Took::Closed => self.go_on(Phase::Last),
        }
    }

    pub(super) fn log_has_room(&self) -> bool {
        self.at.durable.as_ref().is_none_or(|durable| durable.side.feed.has_room())
    }

    /// Frees slots of rows that do not exist, once there are enough of them to be worth a sweep.
    fn sweep(&mut self) {
        assert_eq!(self.slots.stash.len(), self.slots.count, "nothing is in flight");
        for table in self.at.on.machine.tables.iter().filter(|table| table.wants_sweep()) {
            #[allow(unsafe_code)]
            // SAFETY: all epochs are here, cleared: no thread holds a row's address or text.
            unsafe {
                table.sweep();
            }
        }
    }

    /// Makes room for the rows of the next epoch, with a memory limit; none if there is room.
    fn relieve(&mut self) -> Result<Option<Progress>, RunError> {
        let events_max = self.at.events_max_of_run();
        let Some(durable) = &mut self.at.durable else { return Ok(None) };
        let Some(memory) = &mut durable.side.memory else { return Ok(None) };
        if durable.merges {
            durable.merges = memory.waits_for_merges();
            if durable.merges && !self.at.on.control.stops() {
                let until = self.at.on.environment.now() + MERGE_POLL;
                return self.wait(Phase::Room, Some(until)).map(Some);
            }
            durable.merges = false;
        } else if durable.short.is_none()
            && let Room::Short { too_much } = memory.room(events_max, self.slots.count)
        {
            durable.short = Some(too_much);
        }
        let Some(too_much) = durable.short else { return Ok(None) };
        match self.slots.all() {
            Took::Message(()) => {}
            Took::Nothing => return self.wait(Phase::Room, None).map(Some),
            Took::Closed => return self.go_on(Phase::Last).map(Some),
        }
        assert_eq!(self.slots.stash.len(), self.slots.count, "nothing is in flight while rows are evicted");
        memory.evict(too_much, events_max)?;
        (durable.short, durable.merges) = (None, true);
        self.go_on(Phase::Room).map(Some)
    }
}

impl Slots {
    /// Takes an empty epoch.
    pub(super) fn take(&mut self) -> Took<Box<Epoch>> {
        self.stash.pop().map_or_else(|| self.free.take(), Took::Message)
    }

    /// Puts an epoch into the stash.
    pub(super) fn keep(&mut self, epoch: Box<Epoch>) {
        assert!(self.stash.len() < self.count, "an epoch returns once");
        assert_eq!(epoch.input.events, 0, "an epoch returns empty");
        self.stash.push(epoch);
    }

    /// Collects all epochs in the stash; once they are there, nothing is in flight.
    pub(super) fn all(&mut self) -> Took<()> {
        while self.stash.len() < self.count {
            match self.free.take() {
                Took::Message(epoch) => self.keep(epoch),
                Took::Nothing => return Took::Nothing,
                Took::Closed => return Took::Closed,
            }
        }
        Took::Message(())
    }
}
