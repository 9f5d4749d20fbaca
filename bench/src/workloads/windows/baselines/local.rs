//! A table of groups for one worker, and late local merge: such a table for each worker.

use super::fused::Buffer;
use super::part::Part;
use super::{NOBODY, groups_max, home};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PLACES_MIN: usize = 1 << 10;

/// Groups in a hash table with open addressing.
pub struct Table<P> {
    places: Vec<(i64, P)>,
    /// The places that are taken, in the order of the groups' first events.
    taken: Vec<u32>,
}

impl<P: Part> Table<P> {
    pub fn new() -> Self {
        Table { places: vec![(NOBODY, P::default()); PLACES_MIN], taken: Vec::new() }
    }

    /// Returns the aggregate of a group; an empty one if the group is new.
    #[inline(always)]
    pub fn group(&mut self, key: i64) -> &mut P {
        let mut place = self.place(key);
        if self.places[place].0 != key {
            if self.taken.len() >= groups_max(self.places.len()) {
                self.grow();
                place = self.place(key);
            }
            self.places[place].0 = key;
            self.taken.push(place as u32);
        }
        &mut self.places[place].1
    }

    /// Returns the place where a group is, or would be put.
    #[inline(always)]
    fn place(&self, key: i64) -> usize {
        let mask = self.places.len() - 1;
        let mut place = home(key, self.places.len());
        while self.places[place].0 != key && self.places[place].0 != NOBODY {
            place = (place + 1) & mask;
        }
        place
    }

    #[cold]
    fn grow(&mut self) {
        let places = vec![(NOBODY, P::default()); self.places.len() * 2];
        let before = std::mem::replace(&mut self.places, places);
        for taken in 0..self.taken.len() {
            let group = before[self.taken[taken] as usize];
            let place = self.place(group.0);
            self.places[place] = group;
            self.taken[taken] = place as u32;
        }
    }

    /// Takes out all groups.
    pub fn drain(&mut self, mut row: impl FnMut(i64, P)) {
        for place in self.taken.drain(..) {
            let (key, part) = std::mem::replace(&mut self.places[place as usize], (NOBODY, P::default()));
            row(key, part);
        }
    }
}

/// A table for each worker, which has it locked while it is in the window.
pub struct Tables<P>(Vec<Mutex<Table<P>>>);

impl<P: Part> Tables<P> {
    fn table(&self, worker: usize) -> MutexGuard<'_, Table<P>> {
        self.0[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Part> Buffer<P> for Tables<P> {
    type Writer<'a>
        = MutexGuard<'a, Table<P>>
    where
        P: 'a;

    fn new(workers: usize, _groups_max: usize) -> Self {
        Tables((0..workers).map(|_| Mutex::new(Table::new())).collect())
    }

    fn writer(&self, worker: usize) -> Self::Writer<'_> {
        self.table(worker)
    }

    #[inline(always)]
    fn add(writer: &mut Self::Writer<'_>, key: i64, value: P::Value) {
        writer.group(key).add(value);
    }

    fn drain(&self, row: impl FnMut(i64, P)) {
        let mut all = self.table(0);
        for worker in 1..self.0.len() {
            self.table(worker).drain(|key, part| all.group(key).merge(part));
        }
        all.drain(row);
    }
}
