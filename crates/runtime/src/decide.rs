//! The deciders: what the next epoch is, by input and load ([`live`]), or as the log of an earlier run has it ([`log`]).
//!
//! # Law
//!
//! A decider says which events pass and what is due; [`Entrance::apply`] makes that the epoch. What follows depends on the decision
//! alone, so the same decisions give the same results, whoever makes them.

mod dividing;
mod ending;
pub mod live;
pub mod log;

pub use crate::decide::dividing::Rule as Divides;
use crate::entrance::Entrance;
use tidemill_recovery::RunError;
use tidemill_stages::due::DueCut;
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::Passed;

/// Decides what the next epoch is.
pub trait Decide {
    /// Goes on with the decision on the next epoch, and gives the gate the input for it. Called again until there is one.
    fn decide(&mut self, at: &mut Entrance) -> Result<Decision, RunError>;

    /// Gives an epoch what is due at a boundary, from a stream on: that of the first stream that has something. Called once all
    /// epochs before were accessed. None if nothing is due.
    fn take_due(&mut self, at: &mut Entrance, from: DueCut, epoch: &mut Epoch) -> Result<Option<Decided>, RunError>;

    /// Accounts for a decision that was applied to this epoch. `may_keep`: whether a checkpoint may be due with it.
    fn account(&mut self, at: &mut Entrance, decided: Decided, epoch: &mut Epoch, may_keep: bool);

    /// Returns the error if a decision takes more events than there are.
    fn too_few_events(&self, epoch: u64) -> RunError;
}

/// The state of a decision.
#[derive(Debug)]
pub enum Decision {
    /// Input was taken; there may be more.
    Took,
    /// There is nothing to take before this time of the clock, or until the gate's bell rings.
    Waits(u64),
    /// The next epoch is this.
    Epoch(Decided),
    /// The next epoch has what is due at a boundary, from a stream on, once all epochs before were accessed.
    Due(DueCut),
    /// There is no further epoch.
    Over,
}

/// A decision: one epoch, given what the gate has.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Its number.
    pub epoch: u64,
    /// The part of what the gate holds that it takes, and what is due.
    pub passed: Passed,
}
