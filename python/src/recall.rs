//! Calling Python sources back when a run is over.
//!
//! After a run that failed or was stopped, a source's thread may be anywhere in the user's iterator. A thread that is in
//! Python when the interpreter ends crashes the process, and one that loops would loop for ever. So after each run:
//!
//! 1. the run is marked as over: no source enters Python any more;
//! 2. threads inside have [`GRACE`] to leave by themselves;
//! 3. the others get a `GeneratorExit`, which Python raises in a generator that is closed, at their next
//!    step in Python, and [`GRACE`] once again.
//!
//! A thread that waits in a system call stays there; the `GeneratorExit` is raised when it returns.

use pyo3::exceptions::PyGeneratorExit;
use pyo3::ffi::{PyThread_get_thread_ident, PyThreadState_SetAsyncExc};
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const GRACE: Duration = Duration::from_millis(200);

/// Python's number of a thread.
type ThreadId = std::ffi::c_long;

#[derive(Default)]
struct State {
    over: bool,
    /// Threads that are, or may be, in Python on behalf of a source. Each adds and removes itself.
    inside: Vec<ThreadId>,
}

/// Shared by the Python sources of a run and the thread that ends it.
#[derive(Clone, Default)]
pub struct Recall(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a thread has left.
    out: Condvar,
}

impl Recall {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers this thread as inside Python; None if the run is over.
    pub fn enter(&self) -> Option<Inside<'_>> {
        // SAFETY: it asks the system for the thread's number and nothing else.
        let thread = unsafe { PyThread_get_thread_ident() } as ThreadId;
        let mut state = self.state();
        if state.over {
            return None;
        }
        state.inside.push(thread);
        Some(Inside { recall: self, thread })
    }

    /// Ends the run: gets threads out of Python, as described above.
    pub fn end(&self, py: Python<'_>) {
        self.state().over = true;
        if !self.empties(py) {
            for &thread in &self.state().inside {
                // SAFETY: the interpreter is held. The thread is inside for as long as the state is locked,
                // so the number is not that of another one; an unknown number is passed over.
                unsafe { PyThreadState_SetAsyncExc(thread, py.get_type::<PyGeneratorExit>().as_ptr()) };
            }
            self.empties(py);
        }
    }

    /// Waits for all to leave; whether they did in time.
    fn empties(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let waited = self.0.out.wait_timeout_while(self.state(), GRACE, |state| !state.inside.is_empty());
            waited.unwrap_or_else(PoisonError::into_inner).0.inside.is_empty()
        })
    }
}

/// A thread's stay in Python.
pub struct Inside<'a> {
    recall: &'a Recall,
    thread: ThreadId,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.recall.state();
        if let Some(at) = state.inside.iter().position(|&thread| thread == self.thread) {
            state.inside.swap_remove(at);
        }
        self.recall.0.out.notify_all();
    }
}
