//! A replay of one transaction, step by step, from the log. It takes a while, so that it runs on a thread of its own.
//! To read it takes a while, and has a thread of its own.

use crate::answer::{self, Answer};
use crate::savepoints::{BUSY, NO_STATE, beside};
use crate::shared::Shared;
use hyper::StatusCode;
use std::time::{Duration, Instant};
use tidemill_audit::{EventPosition, recorded_source, show};
use tidemill_connect::view_state;

const TEXT: &str = "text/plain; charset=utf-8";
/// The longest time to wait until the log says what is durable.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Responds with the steps of the transactions of the event at a position, as text.
pub async fn transaction(shared: &Shared, position: &str) -> Answer {
    let position: EventPosition = match position.parse() {
        Ok(position) => position,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    let Some(state) = shared.session.state() else { return answer::error(StatusCode::CONFLICT, NO_STATE) };
    let Some(slot) = shared.recalls.take() else { return answer::later(BUSY) };
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
