//! Savepoints of a state while a run goes on with it: a checkpoint that somebody has asked to keep.
//!
//! 1. The gate takes the request, and cuts an epoch with which a checkpoint is due, as soon as no other one is under way.
//! 2. The checkpointer takes that checkpoint beside the epochs that follow, as every other ([`crate::checkpointer`]).
//! 3. When the manifest names it, and before runs are merged or the log is cut, it is kept under its name. The log then
//!    keeps what follows, also when later checkpoints come.
//!
//! A checkpoint becomes the newest only after its epoch was released, so a savepoint is of a released epoch. What fails
//! in step 3 leaves a directory without a manifest, which is no savepoint, and the run goes on.

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tidemill_durability::{Savepoint, StateDirectory, StateError};

/// Takes the savepoint that was asked for, or why there is none. Dropped if the run ends before.
pub type SavepointAnswer = Box<dyn FnOnce(Result<Savepoint, StateError>) + Send>;

/// A savepoint that somebody has asked a run for.
pub struct SavepointRequest {
    /// Its name; without one it is named after its epoch.
    pub name: Option<String>,
    /// Called once it is durable.
    pub answer: SavepointAnswer,
}

impl SavepointRequest {
    /// Keeps the newest checkpoint, and says so.
    pub(crate) fn keep(self, directory: &StateDirectory) {
        let epoch = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        let name = self.name.unwrap_or_else(|| format!("epoch-{epoch}"));
        (self.answer)(directory.create_savepoint(&name));
    }

    /// Says that the disk is full.
    pub(crate) fn has_no_room(self) {
        let name = self.name.map_or_else(|| "a savepoint".into(), |name| format!("savepoint '{name}'"));
        let text = format!("{name} was not made: there is no room on the disk; make room and ask again");
        (self.answer)(Err(StateError::Refused(text)));
    }
}

/// The savepoints of a state, as long as a run goes on with it.
#[derive(Clone)]
pub struct Savepoints(Weak<Mutex<StateDirectory>>);

impl Savepoints {
    pub(crate) fn of(directory: &Arc<Mutex<StateDirectory>>) -> Savepoints {
        Savepoints(Arc::downgrade(directory))
    }

    /// Returns the directory of the state, as long as the run goes on.
    pub fn path(&self) -> Option<PathBuf> {
        self.0.upgrade().map(|directory| directory.lock().path().to_owned())
    }

    /// Refuses a name under which no savepoint can be made.
    pub fn no_savepoint(&self, name: &str) -> Result<(), StateError> {
        self.0.upgrade().map_or(Ok(()), |directory| directory.lock().no_savepoint(name))
    }
}
