//! The groups of the window that is open, in the order of their first event, for the loops.

use crate::workloads::input::Map;

/// The index of groups by key.
pub trait Index: Default {
    /// Returns its place; `next` if it has none yet.
    fn place(&mut self, key: i64, next: u32) -> u32;
    /// Forgets all keys, which these are.
    fn clear(&mut self, keys: impl Iterator<Item = i64>);
}

/// An index of any keys.
#[derive(Default)]
pub struct ByMap(Map<i64, u32>);

impl Index for ByMap {
    #[inline(always)]
    fn place(&mut self, key: i64, next: u32) -> u32 {
        *self.0.entry(key).or_insert(next)
    }

    fn clear(&mut self, _keys: impl Iterator<Item = i64>) {
        self.0.clear();
    }
}

/// An index of keys that are small and not negative.
#[derive(Default)]
pub struct ByArray(Vec<u32>);

const NOWHERE: u32 = u32::MAX;

impl Index for ByArray {
    #[inline(always)]
    fn place(&mut self, key: i64, next: u32) -> u32 {
        let key = key as usize;
        if key >= self.0.len() {
            self.0.resize((key + 1).next_power_of_two(), NOWHERE);
        }
        let place = &mut self.0[key];
        if *place == NOWHERE {
            *place = next;
        }
        *place
    }

    fn clear(&mut self, keys: impl Iterator<Item = i64>) {
        keys.for_each(|key| self.0[key as usize] = NOWHERE);
    }
}

/// Groups, each with what is aggregated of it.
#[derive(Default)]
pub struct Groups<I, P> {
    index: I,
    groups: Vec<(i64, P)>,
}

impl<I: Index, P: Default> Groups<I, P> {
    /// Returns the aggregate of a key; an empty one if the key is new.
    #[inline(always)]
    pub fn group(&mut self, key: i64) -> &mut P {
        let place = self.index.place(key, self.groups.len() as u32) as usize;
        if place == self.groups.len() {
            self.groups.push((key, P::default()));
        }
        &mut self.groups[place].1
    }

    /// Returns the groups in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &(i64, P)> {
        self.groups.iter()
    }

    /// Forgets all groups.
    pub fn clear(&mut self) {
        self.index.clear(self.groups.iter().map(|group| group.0));
        self.groups.clear();
    }
}
