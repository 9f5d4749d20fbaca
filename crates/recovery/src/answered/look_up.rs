//! Looks keys up in runs, away from the gate: an actor, so that a call with a key that may be there is the only one that waits.

use super::{KeyRuns, Page, Remembering};
use crate::control::{Failure, RunError};
use std::sync::Arc;
use tidemill_durability::StateError;
use tidemill_stages::actor::{Actor, Inbox, Outbox, Progress, Took};

/// The keys that are looked up at once, at most.
const TOGETHER: usize = 256;

/// A key to look up.
pub struct LookUp {
    /// A number by which the answer is known.
    pub number: u64,
    /// The place of the source in [`Remembering::of`].
    pub place: usize,
    /// The whole key.
    pub key: String,
    /// The runs that may have it.
    pub runs: Arc<KeyRuns>,
}

/// The call with a key, as the runs have it.
pub struct LookedUp {
    /// The number of the [`LookUp`].
    pub number: u64,
    /// See [`KeyRuns::additions`]: what was added later was not looked at.
    pub additions: u64,
    /// The call that has it, which may be over: a page of one; none if there is none.
    pub page: Option<Arc<Page>>,
}

/// Looks keys up.
pub struct KeyReader {
    remembering: Vec<Remembering>,
    asked: Inbox<LookUp>,
    found: Outbox<LookedUp>,
    failure: Arc<Failure>,
}

impl KeyReader {
    /// Looks up the keys that it is asked for.
    pub fn new(
        remembering: Vec<Remembering>,
        asked: Inbox<LookUp>,
        found: Outbox<LookedUp>,
        failure: Arc<Failure>,
    ) -> KeyReader {
        KeyReader { remembering, asked, found, failure }
    }

    fn look_up(&self, asked: &[LookUp]) -> Result<(), StateError> {
        let is_alike = |one: &LookUp, next: &LookUp| one.place == next.place && Arc::ptr_eq(&one.runs, &next.runs);
        for alike in asked.chunk_by(is_alike) {
            let LookUp { place, runs, .. } = &alike[0];
            let keys: Vec<&str> = alike.iter().map(|asked| asked.key.as_str()).collect();
            let pages = runs.find(*place, &self.remembering[*place], &keys)?;
            for (LookUp { number, .. }, page) in alike.iter().zip(pages) {
                // Nobody waits for it where the run has failed.
                let _ = self.found.send(LookedUp { number: *number, additions: runs.additions, page });
            }
        }
        Ok(())
    }
}

impl Actor for KeyReader {
    fn step(&mut self) -> Progress {
        let mut asked = Vec::new();
        while asked.len() < TOGETHER {
            match self.asked.take() {
                Took::Message(look_up) => asked.push(look_up),
                Took::Closed if asked.is_empty() => return Progress::Over,
                Took::Closed | Took::Nothing => break,
            }
        }
        if self.failure.is_set() {
            return Progress::Over;
        }
        if asked.is_empty() {
            return Progress::Waits(None);
        }
        if let Err(error) = self.look_up(&asked) {
            self.failure.set(RunError::State(error));
            return Progress::Over;
        }
        Progress::Worked
    }
}
