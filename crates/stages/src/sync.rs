//! The locks of what actors and workers share: `parking_lot`'s, or the model checker's.

#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(feature = "loom")]
pub(crate) use model::{Condvar, Mutex};

/// The model checker's locks, with the interface of `parking_lot`.
#[cfg(feature = "loom")]
mod model {
    use loom::sync;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    const POISONED: &str = "no thread of the model panics";

    #[derive(Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    /// None only while its condition variable waits.
    pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(POISONED)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("the guard holds the lock")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("the guard holds the lock")
        }
    }

    #[derive(Default)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Condvar(sync::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.0 = guard.0.take().map(|held| self.0.wait(held).expect(POISONED));
        }

        /// Waits without a limit, as the model has no time. Returns whether the time has passed.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) -> bool {
            self.wait(guard);
            false
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
