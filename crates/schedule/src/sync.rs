//! The one way in for synchronization types: std's, or the model checker's.

#[cfg(feature = "loom")]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(not(feature = "loom"))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread::yield_now,
};

/// Looks at a condition before a worker parks. The model checker would only try each of them in turn.
pub(crate) const SPINS_MAX: u32 = if cfg!(feature = "loom") { 1 } else { 200 };

/// How many times longer than that a worker waits before it takes a share that nobody came for.
pub(crate) const PATIENCE: u32 = if cfg!(feature = "loom") { 1 } else { 100 };

/// Units that a worker claims at once.
pub(crate) const BLOCK_MAX: u32 = if cfg!(feature = "loom") { 1 } else { 64 };
