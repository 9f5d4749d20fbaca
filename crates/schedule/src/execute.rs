//! What is run.

use std::ops::Range;

/// How many transactions ahead of execution a serial run asks for prefetches.
const PREFETCH_DISTANCE: u32 = 16;

/// The transactions of an epoch, as something that can be run.
///
/// **Law.** Running transaction *t* reads and writes only the rows that it was said to access, and
/// what it does is a function of them and of its event. Then any order that keeps the order of
/// transactions sharing a row gives the state of the serial order (DESIGN §1).
pub trait Execute: Sync {
    /// Runs one transaction whole: verdict, then all updates or none.
    ///
    /// Called once per transaction of an epoch, by the worker given, when every earlier transaction
    /// that shares a row with it has run and can be seen; no transaction that shares a row with it runs
    /// meanwhile. A panic stops the epoch on all workers.
    fn execute(&self, worker: usize, transaction: u32);

    /// A hint that the worker will soon run this transaction. May be called any number of times, also
    /// never, and while earlier transactions write the rows: it must not read them, only bring them near.
    #[inline]
    fn prefetch(&self, _transaction: u32) {}
}

/// Granularity `Epoch`: runs the transactions one after the other in position order, asking for the
/// rows of those to come.
#[inline]
pub fn run_serially<E: Execute + ?Sized>(worker: usize, transactions: Range<u32>, execute: &E) {
    for transaction in transactions.clone().take(PREFETCH_DISTANCE as usize) {
        execute.prefetch(transaction);
    }
    let end = transactions.end;
    for transaction in transactions {
        let ahead = transaction.saturating_add(PREFETCH_DISTANCE);
        if ahead < end {
            execute.prefetch(ahead);
        }
        execute.execute(worker, transaction);
    }
}
