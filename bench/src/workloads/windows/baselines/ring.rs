//! Alternating buffers of windows (thesis, §3.3.3.1), each of which all workers write to.
//!
//! Who waits for whom:
//!
//! 1. A worker leaves each window in order, those without events of its own as well, and enters a later one.
//! 2. The last worker to leave a window drains its buffer, while the others go on in the buffers after it.
//! 3. Then the buffer is for the window that is `BUFFERS` later. A worker that is there already waits for it.
//!
//! What was written before a worker leaves is seen by the last one, since leaving counts down with acquire and release; that
//! the buffer is empty is seen by those that enter, since `window` is stored with release and loaded with acquire.

use crossbeam_utils::Backoff;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One that is written to, one that is drained, one for workers that are ahead.
const BUFFERS: usize = 3;

struct Slot<B> {
    /// The window that may be entered; written by the worker that drained the one before.
    window: AtomicUsize,
    /// Workers that have not left it.
    inside: AtomicUsize,
    buffer: B,
}

pub struct Ring<B> {
    slots: Vec<Slot<B>>,
    workers: usize,
}

impl<B> Ring<B> {
    pub fn new(workers: usize, windows: usize, buffer: impl Fn() -> B) -> Self {
        let slot = |window: usize| Slot { window: window.into(), inside: workers.into(), buffer: buffer() };
        Ring { slots: (0..BUFFERS.min(windows)).map(slot).collect(), workers }
    }

    fn slot(&self, window: usize) -> &Slot<B> {
        &self.slots[window % self.slots.len()]
    }

    /// Returns the buffer of a window that this worker has not left.
    pub fn enter(&self, window: usize) -> &B {
        let slot = self.slot(window);
        let backoff = Backoff::new();
        while slot.window.load(Ordering::Acquire) != window {
            backoff.snooze();
        }
        &slot.buffer
    }

    /// Leaves windows in order; each that nobody else is in any more is drained.
    pub fn leave(&self, windows: std::ops::Range<usize>, mut drain: impl FnMut(usize, &B)) {
        for window in windows {
            let buffer = self.enter(window);
            let slot = self.slot(window);
            if slot.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
                drain(window, buffer);
                slot.inside.store(self.workers, Ordering::Relaxed);
                slot.window.store(window + self.slots.len(), Ordering::Release);
            }
        }
    }
}
