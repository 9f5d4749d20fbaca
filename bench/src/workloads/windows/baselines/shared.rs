//! Late global merge: one table of groups for all workers, with open addressing. A worker takes a place by
//! compare-and-swap of its key, and adds by atomic instructions. The places are as many as the window's groups need, since
//! the table cannot grow while others use it.

use super::fused::Buffer;
use super::part::Part;
use super::{NOBODY, home, places_for};
use std::sync::atomic::{AtomicI64, Ordering};

struct Place<S> {
    key: AtomicI64,
    part: S,
}

/// The table.
pub struct Table<P: Part>(Vec<Place<P::Shared>>);

impl<P: Part> Table<P> {
    #[inline(always)]
    fn group(&self, key: i64) -> &P::Shared {
        let mask = self.0.len() - 1;
        let first = home(key, self.0.len());
        for step in 0..self.0.len() {
            let place = &self.0[(first + step) & mask];
            let mut there = place.key.load(Ordering::Relaxed);
            if there == NOBODY {
                let taken = place.key.compare_exchange(NOBODY, key, Ordering::Relaxed, Ordering::Relaxed);
                there = taken.map_or_else(|other| other, |_| key);
            }
            if there == key {
                return &place.part;
            }
        }
        panic!("a window has more groups than the {} places of its table", self.0.len());
    }
}

impl<P: Part> Buffer<P> for Table<P> {
    type Writer<'a>
        = &'a Self
    where
        P: 'a;

    fn new(_workers: usize, groups_max: usize) -> Self {
        let place = || Place { key: NOBODY.into(), part: P::Shared::default() };
        Table(std::iter::repeat_with(place).take(places_for(groups_max)).collect())
    }

    fn writer(&self, _worker: usize) -> &Self {
        self
    }

    #[inline(always)]
    fn add(writer: &mut &Self, key: i64, value: P::Value) {
        P::add_shared(writer.group(key), value);
    }

    fn drain(&self, mut row: impl FnMut(i64, P)) {
        for place in &self.0 {
            let key = place.key.load(Ordering::Relaxed);
            if key != NOBODY {
                place.key.store(NOBODY, Ordering::Relaxed);
                row(key, P::take(&place.part));
            }
        }
    }
}
