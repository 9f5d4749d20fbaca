//! A worker that leaves shared work by a panic tells the others, so that none of them waits for it.

/// Work that several workers share.
pub trait Shared {
    /// Takes note that a worker leaves by a panic. Called while it unwinds: must not panic.
    fn abandon(&self);
}

impl<S: Shared> Shared for &S {
    fn abandon(&self) {
        (**self).abandon();
    }
}

/// A worker's presence in shared work. Dropped during a panic, it abandons the work.
#[derive(Debug)]
pub struct Presence<S: Shared>(pub S);

impl<S: Shared> Drop for Presence<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Work(Cell<bool>);

    impl Shared for Work {
        fn abandon(&self) {
            self.0.set(true);
        }
    }

    #[test]
    fn only_a_panic_abandons_the_work() {
        let work = Work(Cell::new(false));
        drop(Presence(&work));
        assert!(!work.0.get());
        let panics = AssertUnwindSafe(|| {
            let _presence = Presence(&work);
            panic!("planted");
        });
        assert!(catch_unwind(panics).is_err());
        assert!(work.0.get());
    }
}
