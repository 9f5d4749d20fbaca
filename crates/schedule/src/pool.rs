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
//! 1. lock; 2. count itself as sleeping; 3. fence; 4. look at the pool and at its condition; 5. if neither lets it
//!    go on, wait, which unlocks.
//!
//! Who puts something into the pool does so, and looks for sleepers, under the lock: the two critical sections are
//! ordered, and either step 4 sees the pool filled or the other sees the sleeper.
//!
//! Who makes a condition hold: a. makes it so; b. fence; c. looks at the number of sleepers, and is done where there
//! is none; d. locks and wakes them. Of the two fences one comes first in their order. If the waker's, step 4 sees
//! the condition; if the sleeper's, step c sees the sleeper (Dekker), and step d comes when it waits. So a waker
//! takes no lock while nobody sleeps, which is after nearly every unit.
//!
//! Only the hint of the pool's size is read without the lock, and being wrong about it costs a spin or a later
//! sharing, not a wake-up: before parking, the pool itself is looked at.

use crate::sync::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering, SPINS_MAX, fence, spin_loop};
use std::sync::PoisonError;

#[derive(Debug)]
pub(crate) struct Pool {
    ready: Mutex<Vec<u32>>,
    wake: Condvar,
    /// Workers that wait or are about to: written under the lock, read by anyone.
    sleepers: AtomicU32,
    /// Whether `ready` is empty: written under the lock, read by anyone as a hint.
    dry: AtomicBool,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Pool {
            ready: Mutex::new(Vec::new()),
            wake: Condvar::new(),
            sleepers: AtomicU32::new(0),
            dry: AtomicBool::new(true),
        }
    }

    /// Before an epoch, without workers.
    pub(crate) fn reset(&self) {
        self.lock().clear();
        self.sleepers.store(0, Ordering::Relaxed);
        self.dry.store(true, Ordering::Relaxed);
    }

    /// A hint.
    #[inline]
    pub(crate) fn is_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    /// Whether anybody waits here. A hint.
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Moves the older half of a worker's stack here.
    pub(crate) fn put(&self, stack: &mut Vec<u32>) {
        let mut ready = self.lock();
        let spare = stack.len().div_ceil(2);
        ready.extend(stack.drain(..spare));
        self.dry.store(false, Ordering::Relaxed);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // Who wakes and leaves something wakes the next.
            self.wake.notify_one();
        }
    }

    /// Moves a worker's share of the pool to its stack.
    pub(crate) fn take(&self, stack: &mut Vec<u32>, workers: usize) {
        if self.is_dry() {
            return;
        }
        let mut ready = self.lock();
        let kept = ready.len() - ready.len().div_ceil(workers);
        stack.extend(ready.drain(kept..));
        self.dry.store(kept == 0, Ordering::Relaxed);
        if kept > 0 && self.sleepers.load(Ordering::Relaxed) > 0 {
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
        self.park(|ready| !ready.is_empty() || condition());
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
        self.park(|_| condition());
    }

    fn park(&self, condition: impl Fn(&[u32]) -> bool) {
        let mut ready = self.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !condition(&ready) {
            ready = self.wake.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// A condition has come to hold.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let _ready = self.lock();
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing that can panic happens under the lock but allocation, which aborts.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
