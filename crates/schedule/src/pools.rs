//! A pool for the workers of each socket (TStream 2020, §IV-E: shared-per-socket, with stealing).
//!
//! A worker puts spare units into the pool of its own socket, so that rows and counters stay in caches nearby. It puts
//! them into another socket's pool only while workers there sleep and none here does. A worker that has run out takes
//! from its own pool first, then from the others. On a machine with one socket all of this is one [`Pool`].
//!
//! **No unit is lost.** A worker checks every pool before it waits or leaves. A unit in a pool was put there by a worker
//! that goes on and, unless another one takes the unit, sees it later as its own write. So it is enough that a worker
//! waits at its own pool; a condition that comes to hold wakes the sleepers of all pools.

use crate::pool::Pool;
use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(crate) struct Pools {
    pools: Vec<CachePadded<Pool>>,
    /// Workers of each.
    members: Vec<usize>,
    /// Worker → its pool.
    of: Vec<usize>,
}

impl Pools {
    /// For workers on these sockets. A worker beyond them counts as on the first one's.
    pub fn new(sockets: &[usize]) -> Self {
        assert!(!sockets.is_empty(), "no worker would have a pool");
        let mut known: Vec<usize> = Vec::new();
        let mut place = |socket: &usize| {
            known.iter().position(|other| other == socket).unwrap_or_else(|| {
                known.push(*socket);
                known.len() - 1
            })
        };
        let of: Vec<usize> = sockets.iter().map(&mut place).collect();
        let mut members = vec![0; known.len()];
        of.iter().for_each(|&pool| members[pool] += 1);
        Pools { pools: known.iter().map(|_| CachePadded::new(Pool::new())).collect(), members, of }
    }

    fn place(&self, worker: usize) -> usize {
        self.of.get(worker).copied().unwrap_or(0)
    }

    fn own(&self, worker: usize) -> &Pool {
        &self.pools[self.place(worker)]
    }

    /// The pool of another socket, dry and with workers that sleep.
    fn starving(&self) -> Option<&Pool> {
        self.pools.iter().map(|pool| &**pool).find(|pool| pool.is_dry() && pool.has_sleepers())
    }

    /// Before an epoch, while no worker takes part.
    pub fn reset(&self) {
        self.pools.iter().for_each(|pool| pool.reset());
    }

    /// Whether all pools are empty. A hint.
    #[inline]
    pub fn is_dry(&self) -> bool {
        self.pools.iter().all(|pool| pool.is_dry())
    }

    /// Whether a worker should give away some of its units. A hint.
    #[inline]
    pub fn is_wanting(&self, worker: usize) -> bool {
        self.own(worker).is_dry() || self.pools.len() > 1 && self.starving().is_some()
    }

    /// Moves the older half of a worker's stack to a pool.
    pub fn put(&self, worker: usize, stack: &mut Vec<u32>) {
        let own = self.own(worker);
        let other = if self.pools.len() > 1 && !own.has_sleepers() { self.starving() } else { None };
        other.unwrap_or(own).put(stack);
    }

    /// Moves a worker's share of its pool to its stack, or of another's if its own is dry. `workers`: how many take part.
    pub fn take(&self, worker: usize, stack: &mut Vec<u32>, workers: usize) {
        let (first, count) = (self.place(worker), self.pools.len());
        for place in (0..count).map(|k| (first + k) % count) {
            self.pools[place].take(stack, self.members[place].clamp(1, workers));
            if !stack.is_empty() {
                return;
            }
        }
    }

    /// Returns when there is something in the worker's pool, or the condition holds ([`Pool::wait`]).
    pub fn wait(&self, worker: usize, condition: impl Fn() -> bool) {
        self.own(worker).wait(condition);
    }

    /// Returns when the condition holds ([`Pool::wait_for`]).
    pub fn wait_for(&self, worker: usize, condition: impl Fn() -> bool) {
        self.own(worker).wait_for(condition);
    }

    /// Wakes all that wait for a condition that was made to hold.
    pub fn wake_all(&self) {
        self.pools.iter().for_each(|pool| pool.wake_all());
    }
}
