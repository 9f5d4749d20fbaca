//! Pools of ready units, and who takes from which (TStream 2020, §IV-E).
//!
//! Workers are divided by socket, or each is on its own; every part has a pool. A worker puts spare units into the pool of
//! its own part, so that rows and counters stay in caches nearby. It puts them into another pool only while workers there
//! sleep and none here does. Where units belong to a part ([`Sharing`]), they are given to its pool. A worker that has run
//! out takes from its own pool first, then from the others; where it steals at last, only when it has waited in vain.
//!
//! **No unit is lost.** A worker checks every pool before it waits without end or leaves. A unit in a pool was put there by
//! a worker that goes on and, unless another one takes the unit, sees it later as its own write. So it is enough that a
//! worker waits at its own pool; a condition that comes to hold wakes the sleepers of all pools.

use crate::policy::{Sharing, Stealing};
use crate::pool::Pool;
use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(crate) struct Pools {
    by_socket: Division,
    by_worker: Division,
    /// The sharing of the present epoch.
    sharing: Sharing,
}

/// The workers in parts.
#[derive(Debug)]
struct Division {
    pools: Vec<CachePadded<Pool>>,
    /// Workers of each part.
    members: Vec<usize>,
    /// The socket of each part.
    sockets: Vec<usize>,
    /// Worker → its part.
    of: Vec<usize>,
}

impl Division {
    /// Workers of the same number are in one part. `sockets`: of each worker.
    fn by(numbers: &[usize], sockets: &[usize]) -> Self {
        let mut known: Vec<usize> = Vec::new();
        let mut place = |number: &usize| {
            known.iter().position(|other| other == number).unwrap_or_else(|| {
                known.push(*number);
                known.len() - 1
            })
        };
        let of: Vec<usize> = numbers.iter().map(&mut place).collect();
        let mut members = vec![0; known.len()];
        of.iter().for_each(|&part| members[part] += 1);
        let first = |part| of.iter().position(|&other| other == part).expect("a part has a worker");
        let sockets = (0..known.len()).map(|part| sockets[first(part)]).collect();
        Division { pools: known.iter().map(|_| CachePadded::new(Pool::new())).collect(), members, sockets, of }
    }

    fn place(&self, worker: usize) -> usize {
        self.of.get(worker).copied().unwrap_or(0)
    }

    fn own(&self, worker: usize) -> &Pool {
        &self.pools[self.place(worker)]
    }

    /// Returns a pool that is dry and has workers that sleep.
    fn starving(&self) -> Option<&Pool> {
        self.pools.iter().map(|pool| &**pool).find(|pool| pool.is_dry() && pool.has_sleepers())
    }
}

impl Pools {
    /// Makes pools for workers on these sockets. A worker beyond them counts as on the first one's.
    pub fn new(sockets: &[usize]) -> Self {
        assert!(!sockets.is_empty(), "no worker would have a pool");
        let workers: Vec<usize> = (0..sockets.len()).collect();
        let [by_socket, by_worker] = [sockets, &workers].map(|numbers| Division::by(numbers, sockets));
        Pools { by_socket, by_worker, sharing: Sharing::default() }
    }

    /// Empties the pools before an epoch, while no worker takes part.
    pub fn reset(&mut self) {
        let divisions = [&self.by_socket, &self.by_worker];
        divisions.iter().flat_map(|division| &division.pools).for_each(|pool| pool.reset());
        self.sharing = Sharing::default();
    }

    /// Says what the epoch that begins shares.
    pub fn share(&mut self, sharing: Sharing) {
        self.sharing = sharing;
    }

    fn division(&self) -> &Division {
        match self.sharing {
            Sharing::Everything | Sharing::Socket(_) => &self.by_socket,
            Sharing::Nothing(_) => &self.by_worker,
        }
    }

    /// Returns whether units may go from one part to another before a worker has waited in vain.
    fn may_pass(&self) -> bool {
        self.division().pools.len() > 1 && self.sharing.stealing() == Stealing::AtOnce
    }

    /// Returns the sockets of the parts that units may belong to.
    pub fn sockets(&self) -> &[usize] {
        &self.division().sockets
    }

    /// Returns the sockets of the first `count` workers.
    pub fn sockets_of_workers(&self, count: u32) -> &[usize] {
        &self.by_worker.sockets[..count as usize]
    }

    /// Returns the part that a worker is in.
    pub fn part_of(&self, worker: usize) -> u32 {
        self.division().place(worker) as u32
    }

    /// Returns whether all pools are empty. A hint.
    #[inline]
    pub fn is_dry(&self) -> bool {
        self.division().pools.iter().all(|pool| pool.is_dry())
    }

    /// Returns whether a worker should give away some of its units. A hint.
    #[inline]
    pub fn is_wanting(&self, worker: usize) -> bool {
        let division = self.division();
        let has_company = self.may_pass() || division.members[division.place(worker)] > 1;
        has_company && division.own(worker).is_dry() || self.may_pass() && division.starving().is_some()
    }

    /// Moves the older half of a worker's stack to a pool.
    pub fn put(&self, worker: usize, stack: &mut Vec<u32>) {
        let own = self.division().own(worker);
        let other = if self.may_pass() && !own.has_sleepers() { self.division().starving() } else { None };
        other.unwrap_or(own).put(stack);
    }

    /// Puts a unit into the pool of the part that it belongs to.
    pub fn give(&self, part: u32, unit: u32) {
        self.division().pools[part as usize].give(unit);
    }

    /// Moves a worker's share of its pool to its stack; or of another's, if its own is dry and it steals. `workers`: how
    /// many take part.
    pub fn take(&self, worker: usize, stack: &mut Vec<u32>, workers: usize, is_impatient: bool) {
        let division = self.division();
        let steals = is_impatient || self.sharing.stealing() == Stealing::AtOnce;
        let (first, count) = (division.place(worker), division.pools.len());
        for place in (0..if steals { count } else { 1 }).map(|k| (first + k) % count) {
            division.pools[place].take(stack, division.members[place].clamp(1, workers));
            if !stack.is_empty() {
                return;
            }
        }
    }

    /// Returns whether a worker waits for a limited time before it takes from the pools of others.
    pub fn is_patient(&self) -> bool {
        self.sharing.stealing() == Stealing::AtLast
    }

    /// Returns whether a worker's own pool is empty. A hint.
    pub fn is_own_dry(&self, worker: usize) -> bool {
        self.division().own(worker).is_dry()
    }

    /// Returns when there is something in the worker's pool, or the condition holds ([`Pool::wait`]).
    pub fn wait(&self, worker: usize, condition: impl Fn() -> bool) {
        self.division().own(worker).wait(condition);
    }

    /// Returns when the condition holds ([`Pool::wait_for`]).
    pub fn wait_for(&self, worker: usize, condition: impl Fn() -> bool) {
        self.division().own(worker).wait_for(condition);
    }

    /// Wakes all that wait for a condition that was made to hold.
    pub fn wake_all(&self) {
        self.division().pools.iter().for_each(|pool| pool.wake_all());
    }
}
