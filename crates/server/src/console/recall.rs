//! What was done: one transaction step by step, and savepoints. Both take a while, and have a thread of their own.

use crate::answer::{self, Answer};
use crate::shared::Shared;
use crate::slots::Slot;
use hyper::StatusCode;
use serde_json::json;
use std::time::{Duration, Instant};
use tidemill_audit::{EventPosition, recorded_source, show};
use tidemill_connect::view_state;
use tidemill_runtime::SessionError;
use tokio::task::spawn_blocking;

const TEXT: &str = "text/plain; charset=utf-8";
/// For so long it waits until the log says what is durable.
const FLUSH_MAX: Duration = Duration::from_secs(2);
const NO_STATE: &str = "the run has no state, so nothing is kept; serve it with --state DIR";

/// Makes a savepoint, whose name says its epoch.
pub async fn savepoint(shared: &Shared) -> Answer {
    let Some(slot) = shared.recalls.take() else { return busy() };
    let session = shared.session.clone();
    let made = beside(slot, move || session.savepoint(None, None));
    match made.await {
        Some(Ok(made)) => {
            let text = json!({"savepoint": made.name, "epoch": made.epoch}).to_string();
            answer::whole(StatusCode::OK, answer::JSON, text)
        }
        Some(Err(SessionError::NoState)) => answer::error(StatusCode::CONFLICT, NO_STATE),
        Some(Err(error)) => answer::error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        None => answer::error(StatusCode::SERVICE_UNAVAILABLE, "no savepoint was made"),
    }
}

/// What the transactions of the event at a position did, as text.
pub async fn transaction(shared: &Shared, position: &str) -> Answer {
    let position: EventPosition = match position.parse() {
        Ok(position) => position,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    let Some(state) = shared.session.state() else { return answer::error(StatusCode::CONFLICT, NO_STATE) };
    let Some(slot) = shared.recalls.take() else { return busy() };
    let session = shared.session.clone();
    let shown = beside(slot, move || {
        // The log says of an epoch that it was durable when it has a later one.
        let _ = session.flush(Some(Instant::now() + FLUSH_MAX));
        let directory = view_state(&state).map_err(|error| error.to_string())?;
        show(&directory, &position, &recorded_source).map_err(|error| error.to_string())
    });
    match shown.await {
        Some(Ok(text)) => answer::whole(StatusCode::OK, TEXT, text),
        Some(Err(why)) => answer::error(StatusCode::NOT_FOUND, &why),
        None => answer::error(StatusCode::SERVICE_UNAVAILABLE, "the log could not be read"),
    }
}

fn busy() -> Answer {
    answer::later("a savepoint is being made or the log is being read; try again")
}

/// Does something on a thread of its own; none if that ends without a result.
async fn beside<T: Send + 'static>(slot: Slot, does: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let run = move || {
        let result = does();
        drop(slot);
        result
    };
    spawn_blocking(run).await.ok()
}
