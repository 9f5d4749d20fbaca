//! Savepoints of the state that is served, made while the run goes on. They take a while, and have a thread of their own.

use crate::answer::{self, Answer};
use crate::slots::{Slot, Slots};
use hyper::StatusCode;
use serde_json::json;
use std::sync::Arc;
use tidemill_runtime::{SavepointMade, Session, SessionError};
use tokio::task::spawn_blocking;

pub const NO_STATE: &str = "the run has no state, so nothing is kept; serve it with --state DIR";
pub const BUSY: &str = "a savepoint is being made or the log is being read; try again";

/// Reasons for which no savepoint was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSavepoint {
    /// The run has no state.
    NoState,
    /// No savepoint can have this name, or one has it: why.
    Name(String),
    /// Another one is being made, or the log is being read.
    Busy,
    /// There is no room, or the run is over: why.
    Failed(String),
}

impl From<SessionError> for NoSavepoint {
    fn from(error: SessionError) -> NoSavepoint {
        match error {
            SessionError::NoState => NoSavepoint::NoState,
            other => NoSavepoint::Failed(other.to_string()),
        }
    }
}

/// Makes savepoints.
#[derive(Clone)]
pub struct Savepoints {
    session: Arc<Session>,
    /// Place of the one who makes a savepoint or reads the log.
    slots: Slots,
}

impl Savepoints {
    /// Makes the savepoints of a session: they hold its state.
    pub fn new(session: Arc<Session>, slots: Slots) -> Savepoints {
        Savepoints { session, slots }
    }

    /// Makes one of a released epoch that contains each call and push that was answered before. Without a name, that says the
    /// epoch.
    pub async fn make(&self, name: Option<String>) -> Result<SavepointMade, NoSavepoint> {
        let slot = self.slots.take().ok_or(NoSavepoint::Busy)?;
        let session = self.session.clone();
        let make = move || {
            let asked = session.ask_savepoint(name.as_deref(), None).map_err(|error| match error {
                SessionError::Savepoint(why) => NoSavepoint::Name(why.to_string()),
                other => other.into(),
            });
            asked?.made(None).map_err(NoSavepoint::from)
        };
        beside(slot, make).await.unwrap_or_else(|| Err(NoSavepoint::Failed("no savepoint was made".into())))
    }

    /// Makes one; returns the response to the one who wants it.
    pub async fn respond(&self, name: Option<&str>) -> Answer {
        let why = match self.make(name.map(str::to_owned)).await {
            Ok(made) => {
                let text = json!({"savepoint": made.name, "epoch": made.epoch}).to_string() + "\n";
                return answer::whole(StatusCode::OK, answer::JSON, text);
            }
            Err(why) => why,
        };
        match why {
            NoSavepoint::NoState => answer::error(StatusCode::CONFLICT, NO_STATE),
            NoSavepoint::Name(why) => answer::error(StatusCode::CONFLICT, &why),
            NoSavepoint::Busy => answer::later(BUSY),
            NoSavepoint::Failed(why) => answer::error(StatusCode::SERVICE_UNAVAILABLE, &why),
        }
    }
}

/// Does something on a thread of its own; none if that ends without a result.
pub async fn beside<T: Send + 'static>(slot: Slot, does: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let run = move || {
        let result = does();
        drop(slot);
        result
    };
    spawn_blocking(run).await.ok()
}
