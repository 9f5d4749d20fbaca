//! No-Lock and NOCC: transactions in any order.
//!
//! NOCC takes all its locks before it runs, since the rows are known; where one is held it releases all and starts over.
//! So there is nothing to roll back, which costs the papers' version time.

use super::Baseline;
use super::locks::{lock_of, requests_of};
use crate::execute::Execute;
use crate::sync::{BLOCK_MAX, spin_loop, yield_now};
use crate::worker::Worker;
use tidemill_txn::{Accesses, UseBuffer};

/// Attempts after which a worker gives its processor away.
const ATTEMPTS: u32 = 16;

impl Baseline {
    /// Calls `run` on every transaction, in blocks.
    fn each<E: Execute + ?Sized>(&self, execute: &E, mut run: impl FnMut(u32)) {
        loop {
            let block = self.claim(BLOCK_MAX);
            if block.is_empty() {
                return;
            }
            block.clone().for_each(|transaction| execute.prefetch(transaction));
            block.clone().for_each(&mut run);
            self.finish(block.len() as u32);
        }
    }

    pub(super) fn run_without_locks<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) {
        self.each(execute, |transaction| self.run_timed(worker, execute, transaction));
    }

    pub(super) fn run_in_any_order<E: Execute + ?Sized>(
        &self,
        worker: &mut Worker,
        accesses: Accesses<'_>,
        uses: &UseBuffer,
        execute: &E,
    ) {
        let mut requests = Vec::new();
        self.each(execute, |transaction| {
            requests_of(transaction, accesses, uses, |_, row| lock_of(row, self.flags.len()), &mut requests);
            let mut attempts = 0;
            loop {
                let taken = requests.iter().take_while(|r| self.flags[r.lock as usize].try_take(r.exclusive)).count();
                let has_all = taken == requests.len();
                if has_all {
                    self.run_timed(worker, execute, transaction);
                }
                requests[..taken].iter().for_each(|r| self.flags[r.lock as usize].release(r.exclusive));
                if has_all {
                    return;
                }
                self.stop_if_poisoned();
                attempts += 1;
                if attempts % ATTEMPTS == 0 { yield_now() } else { spin_loop() }
            }
        });
    }
}
