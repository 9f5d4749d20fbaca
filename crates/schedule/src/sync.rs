//! The synchronization types of this crate: std's, the model checker's, or std's with a count of what is written.

#[cfg(all(feature = "counted", not(feature = "loom")))]
pub(crate) use crate::counted::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, RwLock};
#[cfg(feature = "loom")]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(not(any(feature = "loom", feature = "counted")))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(all(feature = "counted", not(feature = "loom")))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Condvar, MutexGuard, RwLockReadGuard,
        atomic::{Ordering, fence},
    },
    thread::yield_now,
};

/// The spins for which a worker watches a condition before it parks. Under the model checker a look would let other
/// threads go on first, and hide what happens to a worker that is parked early.
pub(crate) const SPINS_MAX: u32 = if cfg!(feature = "loom") { 0 } else { 200 };

/// The factor by which a worker waits longer before it takes a share that no worker has claimed.
pub(crate) const PATIENCE: u32 = if cfg!(feature = "loom") { 1 } else { 100 };

/// Units that a worker claims at once.
pub(crate) const BLOCK_MAX: u32 = if cfg!(feature = "loom") { 1 } else { 64 };

/// Transactions that a repair must concern for sleeping workers to be woken for it, and units that a worker must have for
/// it to share them while strata are found: of fewer, one worker is done before another one has come.
pub(crate) const SHARED_MIN: u32 = if cfg!(feature = "loom") { 2 } else { 32 };
