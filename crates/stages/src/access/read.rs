//! Tables as they were after an epoch, which readers copy while later epochs run.

use crate::machine::Machine;
use arrow_array::RecordBatch;
use std::sync::{Arc, OnceLock};
use tidemill_plan::TableId;
use tidemill_state::ReadSnapshot;

/// A table as it was after an epoch. Several readers may have it; the first one that asks for the rows copies them on
/// its own thread. As long as it is held and not copied, epochs copy the rows that they are about to change.
pub struct TableRead {
    machine: Arc<Machine>,
    table: TableId,
    snapshot: Arc<ReadSnapshot>,
    rows: OnceLock<Result<RecordBatch, String>>,
}

impl TableRead {
    /// The rows, sorted by key. An error says why evicted rows cannot be read.
    pub fn rows(&self) -> Result<RecordBatch, String> {
        let copy = || {
            let table = &self.machine.tables[self.table];
            let copied = table.read(&self.snapshot);
            table.end_read(&self.snapshot);
            copied.map(|rows| table.sorted_batch(&rows)).map_err(|error| error.to_string())
        };
        self.rows.get_or_init(copy).clone()
    }
}

impl Drop for TableRead {
    fn drop(&mut self) {
        if self.rows.get().is_none() {
            self.machine.tables[self.table].end_read(&self.snapshot);
        }
    }
}

/// Begins to read tables as they are now. Call it while no transaction runs: between the access of an epoch and that of
/// the next. Later epochs save the rows that they are about to change ([`changes`](crate::prepare::changes)). A table
/// that is wanted several times is read once.
pub fn begin_reads(machine: &Arc<Machine>, wanted: &[TableId]) -> Vec<Arc<TableRead>> {
    let mut reads: Vec<Arc<TableRead>> = Vec::with_capacity(wanted.len());
    for &table in wanted {
        let shared = reads.iter().find(|read| read.table == table).cloned();
        reads.push(shared.unwrap_or_else(|| {
            #[allow(unsafe_code)]
            // SAFETY: by the caller's contract.
            let snapshot = unsafe { machine.tables[table].begin_read() };
            Arc::new(TableRead { machine: machine.clone(), table, snapshot, rows: OnceLock::new() })
        }));
    }
    reads
}
