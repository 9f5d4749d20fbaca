//! Epochs that are in the log before they are accessed, and reads of what is executed and durable meanwhile.
//!
//! While the disk is about to be full, the gate holds an epoch that it has cut until the entry is in the log's file
//! (`tidemill_recovery`, `log_room.rs`). Then nothing has run that the log does not have.
//!
//! A read asks the gate for an epoch, which is answered when it is released. While the log or a sink waits, none is. One
//! who asks for the state *as it stands* is answered here, without an epoch: once everything that was passed to the workers
//! is accessed and durable, tables are read as they are between two epochs. That contains each call that was answered,
//! as these are durable.

use super::Gatherer;
use tidemill_stages::access::read::begin_reads;
use tidemill_stages::epoch::Epoch;

impl Gatherer {
    /// Passes an epoch that was cut to the workers; or holds it, if there may be no room for it in the log.
    pub(super) fn put_logged(&mut self, epoch: Box<Epoch>) {
        assert!(self.held.is_none(), "one epoch is held at most, the last");
        let now = self.at.on.environment.now();
        let mut durable = self.at.durable.as_mut().filter(|_| !epoch.input.replayed);
        if durable.as_mut().is_some_and(|durable| durable.side.feed.is_short_of_room(now)) {
            self.held = Some(epoch);
        } else {
            self.pass(epoch);
        }
    }

    fn pass(&mut self, epoch: Box<Epoch>) {
        self.passed = (epoch.number, epoch.input.complete);
        self.at.pipeline.tasks().put(epoch);
    }

    /// Passes the held epoch to the workers, if it is in the log; whether none is held any more. The logger rings when it
    /// is.
    pub(super) fn put_held(&mut self) -> bool {
        let is_logged = |epoch: &mut Box<Epoch>| {
            self.at.durable.as_ref().is_none_or(|durable| durable.side.feed.has_written(epoch.number))
        };
        if let Some(epoch) = self.held.take_if(is_logged) {
            self.pass(epoch);
        }
        self.held.is_none()
    }

    /// Answers those who ask for the state as it stands, if what was executed is durable. They ring again if not.
    pub(super) fn answer_as_it_stands(&mut self) {
        let (Some(session), None) = (&self.at.session, &self.log) else { return };
        if !session.asks_as_it_stands() {
            return;
        }
        let (epoch, complete) = self.passed;
        let is_durable = self.at.durable.as_ref().is_none_or(|durable| durable.side.feed.is_durable(epoch));
        if is_durable && self.at.pipeline.tasks().awaits(epoch + 1) {
            session.answer_as_it_stands(epoch, complete, |wishes| begin_reads(&self.at.on.machine, wishes));
        }
    }
}
