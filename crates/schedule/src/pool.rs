//! Ready units that workers have to spare, and the place where workers wait.
//!
//! **What.** A stack under a lock, with a condition variable. Each worker keeps ready units on a stack of its own, where
//! they cost nothing, and puts some of them here when the pool is dry and another worker could take them. A worker that
//! has run out takes from here. So the lock is touched when work changes hands, not when it is done (after Acar,
//! Charguéraud and Rainey, "Scheduling parallel programs by work stealing with private deques", PPoPP 2013, with the
//! pool in place of requests between workers: a thief need not wait for the end of a victim's long transaction).
//!
//! **No wake-up is lost.** A worker parks in these steps:
//! 1. lock; 2. count itself as sleeping; 3. fence; 4. check the pool and its condition; 5. if it may not go on, wait,
//!    which unlocks.
//!
//! A worker that fills the pool does so under the lock, and looks for sleepers under the lock. The two critical
//! sections are ordered: either step 4 sees the pool filled, or the filler sees the sleeper.
//!
//! A worker that makes a condition hold: a. makes it hold; b. fence; c. reads the number of sleepers, and is done if
//! it is 0; d. locks and wakes them. One of the two fences is the first. If it is the waker's, step 4 sees the
//! condition. If it is the sleeper's, step c sees the sleeper (Dekker), and step d happens while it waits. So a waker
//! takes no lock while no worker sleeps, which is the case after nearly every unit.
//!
//! Only the hint about the pool's size is read without the lock. A wrong hint costs a spin or delays sharing, but no
//! wake-up: before parking, the worker checks the pool itself.

use crate::back_off::look;
use crate::sync::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering, SPINS_MAX, fence};
use std::sync::PoisonError;

#[derive(Debug)]
pub(crate) struct Pool {
    ready: Mutex<Vec<u32>>,
    wake: Condvar,
    /// Workers that wait or are about to: written under the lock, read by all.
    sleepers: AtomicU32,
    /// A flag: whether `ready` is empty; written under the lock, read by all as a hint.
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

    /// Empties the pool before an epoch, while no worker takes part.
    pub(crate) fn reset(&self) {
        self.lock().clear();
        self.sleepers.store(0, Ordering::Relaxed);
        self.dry.store(true, Ordering::Relaxed);
    }

    /// Returns whether the pool is empty. A hint.
    #[inline]
    pub(crate) fn is_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    /// Returns whether a worker waits here. A hint.
    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) > 0
    }

    /// Moves the older half of a worker's stack here.
    pub(crate) fn put(&self, stack: &mut Vec<u32>) {
        assert!(!stack.is_empty(), "a worker without units has none to spare");
        let mut ready = self.lock();
        let spare = stack.len().div_ceil(2);
        ready.extend(stack.drain(..spare));
        self.dry.store(false, Ordering::Relaxed);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            // A worker that leaves something when it takes its share wakes the next.
            self.wake.notify_one();
        }
    }

    /// Puts a unit here.
    pub(crate) fn give(&self, unit: u32) {
        let mut ready = self.lock();
        ready.push(unit);
        self.dry.store(false, Ordering::Relaxed);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
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

    /// Returns when the pool is filled (perhaps already emptied by another worker), or the condition holds. The worker
    /// that makes the condition hold calls [`Pool::wake_all`] afterwards.
    pub(crate) fn wait(&self, condition: impl Fn() -> bool) {
        if !look(SPINS_MAX, || !self.is_dry() || condition()) {
            self.park(|ready| !ready.is_empty() || condition());
        }
    }

    /// Returns when the condition holds, filled pool or not: its hint may be seen before earlier effects are.
    pub(crate) fn wait_for(&self, condition: impl Fn() -> bool) {
        if !look(SPINS_MAX, &condition) {
            self.park(|_| condition());
        }
    }

    fn park(&self, condition: impl Fn(&[u32]) -> bool) {
        let mut ready = self.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !condition(&ready) {
            ready = self.wake.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
        let sleepers = self.sleepers.fetch_sub(1, Ordering::Relaxed);
        assert!(sleepers > 0, "a worker wakes that was not counted as sleeping");
    }

    /// Wakes all that wait for a condition that was made to hold.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let _ready = self.lock();
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing under the lock can panic, except for allocation, which aborts.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
