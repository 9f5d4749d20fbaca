//! Records that a Python iterator gives one by one, such as a generator's.
//!
//! A record is in the engine as soon as it was given, also while the iterator waits for the next one. For this a thread
//! of its own pulls the records into a buffer, and the source takes all that have come since it last looked: those of a
//! slow iterator one by one, those of a fast one in large batches.
//!
//! The buffer's lock is never held while waiting for the interpreter, and may be taken with the interpreter held.

use crate::recall::Recall;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tidemill_connect::System;
use tidemill_runtime::Environment;

/// Most records in the buffer. The iterator waits while it is full.
const RECORDS_MAX: usize = 8192;

#[derive(Default)]
struct Buffer {
    records: Vec<Py<PyAny>>,
    /// A flag: whether the input has ended; set by the pulling thread, which then leaves.
    ended: bool,
    /// The exception of the iterator; raised after all records before it.
    raised: Option<PyErr>,
    /// A flag: whether the source was dropped, so that no records will be taken.
    abandoned: bool,
}

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// Notified by either side when it has changed the buffer.
    changed: Condvar,
}

impl Shared {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `condition` holds.
    fn wait_while(&self, condition: impl Fn(&Buffer) -> bool) -> MutexGuard<'_, Buffer> {
        self.changed.wait_while(self.buffer(), |buffer| condition(buffer)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room; false if no records will be taken.
    fn has_room(&self) -> bool {
        !self.wait_while(|buffer| buffer.records.len() == RECORDS_MAX && !buffer.abandoned).abandoned
    }

    /// Adds a record; whether there is room for another.
    fn push(&self, record: Py<PyAny>) -> bool {
        let mut buffer = self.buffer();
        debug_assert!(!buffer.ended && buffer.records.len() < RECORDS_MAX);
        buffer.records.push(record);
        self.changed.notify_all();
        buffer.records.len() < RECORDS_MAX && !buffer.abandoned
    }

    fn end(&self, raised: Option<PyErr>) {
        let mut buffer = self.buffer();
        buffer.ended = true;
        buffer.raised = raised;
        self.changed.notify_all();
    }
}

/// The records of an iterator, as they come.
pub struct Records {
    shared: Arc<Shared>,
}

impl Records {
    /// Begins to pull.
    pub fn start(iterator: Py<PyIterator>, recall: Recall) -> Records {
        let shared = Arc::new(Shared::default());
        let pulling = shared.clone();
        System::new().spawn("records", Box::new(move || pull(&pulling, &iterator, &recall)));
        Records { shared }
    }

    /// Waits for records or the end. Not to be called with the interpreter held.
    pub fn wait(&self) {
        drop(self.shared.wait_while(|buffer| buffer.records.is_empty() && !buffer.ended));
    }

    /// Returns all records that have come; None at the end. Raises what the iterator raised once all records before it
    /// are taken.
    pub fn take(&self) -> PyResult<Option<Vec<Py<PyAny>>>> {
        let mut buffer = self.shared.buffer();
        let records = std::mem::take(&mut buffer.records);
        self.shared.changed.notify_all();
        match (records.is_empty(), buffer.raised.take_if(|_| records.is_empty())) {
            (true, Some(raised)) => Err(raised),
            (true, None) => Ok(None),
            (false, _) => Ok(Some(records)),
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.shared.buffer().abandoned = true;
        self.shared.changed.notify_all();
    }
}

/// Pulls records until the iterator ends, the run is over, or the source is dropped.
fn pull(shared: &Shared, iterator: &Py<PyIterator>, recall: &Recall) {
    let mut raised = None;
    while shared.has_room() {
        let Some(_inside) = recall.enter() else { break };
        if let Filled::Ended(error) = Python::attach(|py| fill(py, shared, iterator)) {
            raised = error;
            break;
        }
    }
    shared.end(raised);
}

enum Filled {
    /// The buffer is full, or abandoned.
    Full,
    /// There are no more records, for this reason if any.
    Ended(Option<PyErr>),
}

fn fill(py: Python<'_>, shared: &Shared, iterator: &Py<PyIterator>) -> Filled {
    let mut iterator = iterator.bind(py).clone();
    loop {
        match iterator.next() {
            Some(Ok(record)) => {
                if !shared.push(record.unbind()) {
                    return Filled::Full;
                }
            }
            Some(Err(error)) => return Filled::Ended(Some(error)),
            None => return Filled::Ended(None),
        }
    }
}
