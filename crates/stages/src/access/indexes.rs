//! Keeps the indexes of columns ([`Machine::column_indexes`]): tells them which rows a transaction may write, before it runs,
//! and again after a nest was undone.
//!
//! Only programs that follow their events one by one search rows, and then one worker runs all transactions of an epoch.

use crate::epoch::Epoch;
use crate::machine::{Machine, Scratch};
use crate::prepare::changes::{Transactions, each_written};
use crate::wiring::InputEvent;
use parking_lot::Mutex;
use tidemill_plan::{Program, TableId};
use tidemill_state::{ColumnIndex, RowAddress};
use typed_index_collections::TiVec;

/// Returns the indexes of a program's tables.
pub fn of(program: &Program) -> TiVec<TableId, Mutex<Vec<ColumnIndex>>> {
    let of_table = |indexes: &Vec<Vec<usize>>| Mutex::new(indexes.iter().cloned().map(ColumnIndex::new).collect());
    program.tables.iter().map(|table| of_table(&table.indexes)).collect()
}

/// Drops what indexes hold, since tables were filled without them.
pub fn forget(machine: &Machine) {
    machine.column_indexes.iter().for_each(|indexes| indexes.lock().iter_mut().for_each(ColumnIndex::forget));
}

/// Notes the rows that the transaction on an event may write, which is about to run.
pub(super) fn note(machine: &Machine, epoch: &Epoch, at: InputEvent, scratch: &mut Scratch) {
    if machine.program.tables.iter().all(|table| table.indexes.is_empty()) {
        return;
    }
    each_written(machine, epoch, Transactions::One(at), |table, rows| {
        touch(machine, table, rows);
        scratch.noted.extend(rows.iter().map(|&row| (table, row)));
    });
}

/// Notes the rows of a nest again, which were put back.
pub(super) fn note_again(machine: &Machine, scratch: &Scratch) {
    scratch.noted.iter().for_each(|&(table, row)| touch(machine, table, &[row]));
}

fn touch(machine: &Machine, table: TableId, rows: &[RowAddress]) {
    for index in machine.column_indexes[table].lock().iter_mut() {
        #[allow(unsafe_code)]
        // SAFETY: the rows of a role are slots of its table, which is the one of the index.
        unsafe {
            index.touch(rows);
        }
    }
}
