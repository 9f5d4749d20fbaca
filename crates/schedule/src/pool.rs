//! Ready transactions that a worker has to spare, and where workers wait.
//!
//! **What.** A stack under a lock, with a condition variable. Workers keep what becomes ready on stacks
//! of their own, where it costs nothing, and put some of it here when the pool has run dry and somebody
//! else is there to take it; a worker that has run out takes from here. So the lock is touched when work
//! changes hands, not when it is done (after Acar, Charguéraud and Rainey, "Scheduling parallel programs
//! by work stealing with private deques", PPoPP 2013, with the pool in place of requests between
//! workers, so that a thief need not wait until the owner of the work looks up from a long transaction).
//!
//! **No wake-up is lost.** A worker parks in these steps:
//! 1. lock; 2. look at the pool and at its condition; 3. if neither lets it go on, count itself as
//!    sleeping and wait, which unlocks.
//!
//! And who lets others go on: a. makes it so (the condition: before locking; the pool: under the lock);
//! b. locks and looks at the number of sleepers; c. wakes them.
//!
//! The two critical sections are ordered. If the waker's comes first, step 2 sees what it did. If the
//! sleeper's comes first, step b sees it asleep. Only the hint of the pool's size is read without the
//! lock, and being wrong about it costs a spin or a later sharing, not a wake-up: before parking, the
//! pool itself is looked at.

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, SPINS_MAX, spin_loop};
use std::sync::PoisonError;

#[derive(Debug, Default)]
struct Inside {
    ready: Vec<u32>,
    sleepers: usize,
}

#[derive(Debug)]
pub(crate) struct Pool {
    inside: Mutex<Inside>,
    wake: Condvar,
    /// Whether `ready` is empty: written under the lock, read by anyone as a hint.
    dry: AtomicBool,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Pool { inside: Mutex::new(Inside::default()), wake: Condvar::new(), dry: AtomicBool::new(true) }
    }

    /// Before an epoch, without workers.
    pub(crate) fn reset(&self) {
        let mut inside = self.lock();
        inside.ready.clear();
        inside.sleepers = 0;
        self.dry.store(true, Ordering::Relaxed);
    }

    /// A hint.
    #[inline]
    pub(crate) fn is_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    /// Moves the older half of a worker's stack here.
    pub(crate) fn put(&self, stack: &mut Vec<u32>) {
        let mut inside = self.lock();
        let spare = stack.len().div_ceil(2);
        inside.ready.extend(stack.drain(..spare));
        self.dry.store(false, Ordering::Relaxed);
        if inside.sleepers > 0 {
            // Who wakes and leaves something wakes the next.
            self.wake.notify_one();
        }
    }

    /// Moves a worker's share of the pool to its stack.
    pub(crate) fn take(&self, stack: &mut Vec<u32>, workers: usize) {
        if self.is_dry() {
            return;
        }
        let mut inside = self.lock();
        let kept = inside.ready.len() - inside.ready.len().div_ceil(workers);
        stack.extend(inside.ready.drain(kept..));
        self.dry.store(kept == 0, Ordering::Relaxed);
        if kept > 0 && inside.sleepers > 0 {
            self.wake.notify_one();
        }
    }

    /// Returns when there is something in the pool (perhaps already taken by another), or the condition
    /// holds. The condition is one that its maker follows by [`Pool::wake_all`].
    pub(crate) fn wait(&self, condition: impl Fn() -> bool) {
        for _ in 0..SPINS_MAX {
            if !self.is_dry() || condition() {
                return;
            }
            spin_loop();
        }
        let mut inside = self.lock();
        while inside.ready.is_empty() && !condition() {
            inside.sleepers += 1;
            inside = self.wake.wait(inside).unwrap_or_else(PoisonError::into_inner);
            inside.sleepers -= 1;
        }
    }

    /// Returns when the condition holds, whatever is in the pool: its hint may be seen before what was
    /// done before it.
    pub(crate) fn wait_for(&self, condition: impl Fn() -> bool) {
        for _ in 0..SPINS_MAX {
            if condition() {
                return;
            }
            spin_loop();
        }
        let mut inside = self.lock();
        while !condition() {
            inside.sleepers += 1;
            inside = self.wake.wait(inside).unwrap_or_else(PoisonError::into_inner);
            inside.sleepers -= 1;
        }
    }

    /// A condition has come to hold.
    pub(crate) fn wake_all(&self) {
        if self.lock().sleepers > 0 {
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Nothing that can panic happens under the lock but allocation, which aborts.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
