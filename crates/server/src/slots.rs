//! Places for what may be on its way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limited number of places, and the count of those that are taken.
#[derive(Clone, Debug)]
pub struct Slots {
    taken: Arc<AtomicUsize>,
    count: usize,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Makes `count` places.
    pub fn new(count: usize) -> Slots {
        Slots { taken: Arc::default(), count }
    }

    /// Takes a place; none if all are taken.
    pub fn take(&self) -> Option<Slot> {
        let more = |taken: usize| Some(taken + 1).filter(|&more| more <= self.count);
        let taken = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Slot(self.taken.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let slots = Slots::new(2);
        let (one, _two) = (slots.take(), slots.take());
        assert!(slots.take().is_none());
        drop(one);
        let _three = slots.take().expect("one is free");
        assert!(slots.take().is_none());
    }
}
