//! Snapshots of the tables at the end of an epoch, for checkpoints.

use crate::machine::Machine;
use tidemill_state::Generation;

/// A snapshot that begins after an epoch has been accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotDue {
    /// The mark of rows that have changed since the last snapshot.
    pub generation: Generation,
    /// A flag: whether it contains all rows, marked or not.
    pub whole: bool,
}

/// Begins a snapshot of each table. Call it while no snapshot is open and no transaction runs: between the access of an
/// epoch and that of the next. Later epochs save the rows that they are about to change
/// ([`changes`](crate::prepare::changes)).
pub fn begin_snapshots(machine: &Machine, due: SnapshotDue) {
    for table in &machine.tables {
        assert!(!table.is_in_snapshot(), "one snapshot at a time");
        // Evicted rows are in the newest checkpoint as they are now, whatever has changed in the others.
        let is_evicted = table.has_evicted_rows();
        if due.whole && is_evicted {
            table.mark_all(due.generation);
        }
        #[allow(unsafe_code)]
        // SAFETY: by the caller's contract. One checkpoint runs at a time, and it ends its snapshots.
        unsafe {
            table.begin_snapshot(due.generation, due.whole && !is_evicted);
        }
    }
}
