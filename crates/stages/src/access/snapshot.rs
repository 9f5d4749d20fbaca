//! Snapshots of the tables at the end of an epoch, for checkpoints.

use crate::machine::Machine;
use tidemill_state::Generation;

/// A snapshot that is to begin when an epoch has been accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotDue {
    /// The mark of rows that changed since the last snapshot.
    pub generation: Generation,
    /// Whether it takes all rows, marked or not.
    pub whole: bool,
}

/// Begins a snapshot of each table. To be called while no snapshot is open and no transaction runs: between the access
/// of an epoch and that of the next. Later epochs save the rows that they are about to change
/// ([`changes`](crate::prepare::changes)).
pub fn begin_snapshots(machine: &Machine, due: SnapshotDue) {
    for table in &machine.tables {
        assert!(!table.is_in_snapshot(), "one snapshot at a time");
        // Cold rows are as the newest checkpoint has them, whatever became of others.
        let is_cold = table.has_cold_rows();
        if due.whole && is_cold {
            table.mark_all(due.generation);
        }
        #[allow(unsafe_code)]
        // SAFETY: by the caller. There is one checkpoint at a time, and it ends its snapshots.
        unsafe {
            table.begin_snapshot(due.generation, due.whole && !is_cold);
        }
    }
}
