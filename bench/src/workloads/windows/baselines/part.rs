//! The aggregate of a group, by one worker and by several at once.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A part of an aggregate. Adding and merging in any order give the same.
pub trait Part: Copy + Default + Send {
    /// The value that an event adds.
    type Value: Copy + Send;
    /// The aggregate, for several workers that add at once.
    type Shared: Default + Send + Sync;

    /// Adds an event.
    fn add(&mut self, value: Self::Value);
    /// Adds what another worker has.
    fn merge(&mut self, other: Self);
    /// Adds an event while others do.
    fn add_shared(shared: &Self::Shared, value: Self::Value);
    /// Takes the aggregate, once no worker adds, and leaves an empty one.
    fn take(shared: &Self::Shared) -> Self;
}

/// The number of events.
#[derive(Clone, Copy, Default)]
pub struct Count(pub i64);

impl Part for Count {
    type Value = ();
    type Shared = AtomicI64;

    #[inline(always)]
    fn add(&mut self, (): ()) {
        self.0 += 1;
    }

    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }

    #[inline(always)]
    fn add_shared(shared: &AtomicI64, (): ()) {
        shared.fetch_add(1, Ordering::Relaxed);
    }

    fn take(shared: &AtomicI64) -> Self {
        Count(shared.swap(0, Ordering::Relaxed))
    }
}

/// The number of events and the sum of their values, of which every order of additions must be exact.
#[derive(Clone, Copy, Default)]
pub struct Mean {
    pub count: i64,
    pub sum: f64,
}

impl Mean {
    /// Returns the mean, as its bits.
    pub fn bits(self) -> i64 {
        (self.sum / self.count as f64).to_bits() as i64
    }
}

impl Part for Mean {
    type Value = f64;
    type Shared = (AtomicI64, AtomicU64);

    #[inline(always)]
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    #[inline(always)]
    fn add_shared((count, sum): &Self::Shared, value: f64) {
        count.fetch_add(1, Ordering::Relaxed);
        let mut seen = sum.load(Ordering::Relaxed);
        loop {
            let more = (f64::from_bits(seen) + value).to_bits();
            match sum.compare_exchange_weak(seen, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    fn take((count, sum): &Self::Shared) -> Self {
        let sum = f64::from_bits(sum.swap(0, Ordering::Relaxed));
        Mean { count: count.swap(0, Ordering::Relaxed), sum }
    }
}

/// The mean of ints from 0 on whose sum stays below 2³²: in one word, the count above the sum, so that one addition
/// does both.
#[derive(Clone, Copy, Default)]
pub struct SmallMean(u64);

impl SmallMean {
    /// Returns the mean, as its bits.
    pub fn bits(self) -> i64 {
        let (count, sum) = (self.0 >> 32, self.0 as u32);
        (f64::from(sum) / count as f64).to_bits() as i64
    }

    fn of(value: i64) -> u64 {
        (1 << 32) | value as u64
    }
}

impl Part for SmallMean {
    type Value = i64;
    type Shared = AtomicU64;

    #[inline(always)]
    fn add(&mut self, value: i64) {
        self.0 += SmallMean::of(value);
    }

    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }

    #[inline(always)]
    fn add_shared(shared: &AtomicU64, value: i64) {
        shared.fetch_add(SmallMean::of(value), Ordering::Relaxed);
    }

    fn take(shared: &AtomicU64) -> Self {
        SmallMean(shared.swap(0, Ordering::Relaxed))
    }
}

/// The greatest of values below 2³¹, and the first event that has it: in one word, the value above what the number of
/// the event lacks to the greatest number.
#[derive(Clone, Copy, Default)]
pub struct Best(u64);

impl Best {
    /// Returns the event.
    pub fn event(self) -> usize {
        (u32::MAX - self.0 as u32) as usize
    }

    fn of((value, event): (i64, usize)) -> u64 {
        ((value as u64) << 32) | u64::from(u32::MAX - event as u32)
    }
}

impl Part for Best {
    type Value = (i64, usize);
    type Shared = AtomicU64;

    #[inline(always)]
    fn add(&mut self, value: (i64, usize)) {
        self.0 = self.0.max(Best::of(value));
    }

    fn merge(&mut self, other: Self) {
        self.0 = self.0.max(other.0);
    }

    #[inline(always)]
    fn add_shared(shared: &AtomicU64, value: (i64, usize)) {
        let best = Best::of(value);
        // Mostly it is less than what is there, and the line stays with all workers.
        if best > shared.load(Ordering::Relaxed) {
            shared.fetch_max(best, Ordering::Relaxed);
        }
    }

    fn take(shared: &AtomicU64) -> Self {
        Best(shared.swap(0, Ordering::Relaxed))
    }
}
