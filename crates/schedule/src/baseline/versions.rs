//! LWM: each write of a row leaves a version, and each row has a *low-water mark*: its last committed write.
//!
//! A transaction (1) waits for its turn, as under LAL, and passes it on; it inserts nothing, since the version of each
//! access is known. (2) For each of its accesses it waits until the row's mark has reached the write before the access.
//! For a write, the mark is then at exactly that write; for a read it may be at a later one, whose version the read does
//! not use. (3) It runs, and advances the marks of the rows that it writes.

use super::Baseline;
use crate::execute::Execute;
use crate::sync::{AtomicU32, Ordering};
use crate::worker::Worker;
use tidemill_txn::Accesses;

impl Baseline {
    pub(super) fn prepare_marks(&mut self, accesses: Accesses<'_>) {
        self.turns.begin(1);
        self.marks.clear();
        self.marks.resize_with(accesses.rows().len(), || AtomicU32::new(0));
    }

    /// Returns the mark of an operation's row: 1 + the slot of the last committed write, 0 before any.
    fn mark(&self, operation: u32) -> &AtomicU32 {
        &self.marks[self.chain[operation as usize] as usize]
    }

    pub(super) fn run_on_versions<E: Execute + ?Sized>(&self, worker: &mut Worker, execute: &E) {
        loop {
            let Some(transaction) = self.claim(1).next() else { return };
            execute.prefetch(transaction);
            let turn = self.turns.counter(0);
            self.wait_as(worker, execute, || turn.load(Ordering::Acquire) == transaction);
            debug_assert_eq!(turn.load(Ordering::Relaxed), transaction, "another worker passed the turn on");
            turn.store(transaction + 1, Ordering::Release);
            for operation in self.graph.operations(transaction) {
                if let Some(source) = self.flow.source(operation) {
                    self.wait_as(worker, execute, || self.mark(operation).load(Ordering::Acquire) > source);
                }
            }
            self.run_timed(worker, execute, transaction);
            for operation in self.graph.operations(transaction).filter(|&o| self.flow.use_of(o).writes()) {
                self.mark(operation).store(operation + 1, Ordering::Release);
            }
            self.finish(1);
        }
    }
}
