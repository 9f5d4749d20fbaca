//! Std's synchronization types, which count how often their memory is written: that is, how often a worker takes a cache
//! line that others read or write. A lock is written when it is taken and when it is released.

use std::fmt::Debug;
use std::sync::atomic::{Ordering, Ordering::Relaxed};
use std::sync::{LockResult, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

static WRITES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Returns the number of writes of this process's workers to what they share: counters, claims, states and locks.
pub fn shared_writes() -> u64 {
    WRITES.load(Relaxed)
}

fn wrote(times: u64) {
    WRITES.fetch_add(times, Relaxed);
}

macro_rules! atomic {
    ($name:ident, $value:ty, $($update:ident),*) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(std::sync::atomic::$name);

        // Each type has all of them; some are used of none.
        #[allow(dead_code)]
        impl $name {
            pub const fn new(value: $value) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn store(&self, value: $value, order: Ordering) {
                wrote(1);
                self.0.store(value, order);
            }

            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                order: Ordering,
                otherwise: Ordering,
            ) -> Result<$value, $value> {
                wrote(1);
                self.0.compare_exchange(from, to, order, otherwise)
            }

            pub fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                order: Ordering,
                otherwise: Ordering,
            ) -> Result<$value, $value> {
                wrote(1);
                self.0.compare_exchange_weak(from, to, order, otherwise)
            }

            $(pub fn $update(&self, value: $value, order: Ordering) -> $value {
                wrote(1);
                self.0.$update(value, order)
            })*
        }
    };
}

atomic!(AtomicBool, bool, swap, fetch_or, fetch_and);
atomic!(AtomicU8, u8, swap, fetch_add, fetch_sub, fetch_or);
atomic!(AtomicU32, u32, swap, fetch_add, fetch_sub, fetch_or, fetch_max);
atomic!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_or);

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T: Debug> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        wrote(2);
        self.0.lock()
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

impl<T: Debug> RwLock<T> {
    pub fn new(value: T) -> Self {
        RwLock(std::sync::RwLock::new(value))
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        wrote(2);
        self.0.read()
    }

    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        wrote(2);
        self.0.write()
    }
}
