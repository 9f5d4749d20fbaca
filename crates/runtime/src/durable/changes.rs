//! What epochs tell a checkpoint of the rows that they change. The rows of an epoch are known before it is
//! accessed, so this is a pass over their addresses; where an event leads to further ones or a key depends on
//! a value, they are known when the transaction's turn has come.

use crate::epoch::Epoch;
use crate::input::Input;
use crate::worker::Machine;
use std::ops::Range;
use tidemill_durability::{Bug, Planted};
use tidemill_state::{Generation, RowAddress, Table};

/// How an epoch of a durable run marks the rows that it may write.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// As those of which checkpoint.
    pub generation: Generation,
    /// The bug that is planted, if any.
    pub planted: Planted,
}

/// Marks the rows that a prepared epoch may write. Beside the access of epochs before it.
pub fn mark(machine: &Machine, epoch: &Epoch) {
    let Some(changes) = epoch.changes else { return };
    if machine.wiring.cascades || changes.forgets(epoch.number) {
        return;
    }
    (0..epoch.inputs.len()).for_each(|id| mark_input(machine, epoch, id, changes));
}

fn mark_input(machine: &Machine, epoch: &Epoch, id: usize, changes: Changes) {
    each_written(machine, &epoch.inputs[id], id, None, |table, rows| {
        #[allow(unsafe_code)]
        // SAFETY: the rows of a role are slots of its table.
        unsafe {
            table.mark(rows, changes.generation)
        }
    });
}

/// Has a checkpoint that is under way keep the rows that an epoch is about to write as they are. Right before
/// its access.
pub fn save(machine: &Machine, epoch: &Epoch) {
    let Some(changes) = epoch.changes else { return };
    let under_way = machine.tables.iter().any(Table::is_in_snapshot);
    if !under_way || machine.wiring.cascades || changes.planted.is(Bug::SnapshotSavesNothing) {
        return;
    }
    (0..epoch.inputs.len()).for_each(|id| save_input(machine, epoch, id));
}

fn save_input(machine: &Machine, epoch: &Epoch, id: usize) {
    each_written(machine, &epoch.inputs[id], id, None, |table, rows| {
        #[allow(unsafe_code)]
        // SAFETY: slots of the role's table; no transaction runs.
        unsafe {
            table.save(rows)
        }
    });
}

/// Both, for all transactions of an input that are about to run, behind others of their epoch.
pub fn mark_and_save_all(machine: &Machine, epoch: &Epoch, id: usize) {
    let Some(changes) = epoch.changes else { return };
    if !changes.forgets(epoch.number) {
        mark_input(machine, epoch, id, changes);
    }
    if machine.tables.iter().any(Table::is_in_snapshot) && !changes.planted.is(Bug::SnapshotSavesNothing) {
        save_input(machine, epoch, id);
    }
}

/// Both, for one transaction that is about to run alone.
pub fn mark_and_save(machine: &Machine, epoch: &Epoch, id: usize, event: usize) {
    let Some(changes) = epoch.changes else { return };
    each_written(machine, &epoch.inputs[id], id, Some(event), |table, rows| {
        #[allow(unsafe_code)]
        // SAFETY: as above.
        unsafe {
            if !changes.forgets(epoch.number) {
                table.mark(rows, changes.generation);
            }
            if !changes.planted.is(Bug::SnapshotSavesNothing) {
                table.save(rows);
            }
        }
    });
}

impl Changes {
    fn forgets(self, epoch: u64) -> bool {
        self.planted.is(Bug::SnapshotForgetsChanges) && epoch.is_multiple_of(2)
    }
}

/// The rows of an input's roles that are written: of all its events, or of one.
fn each_written(
    machine: &Machine,
    input: &Input,
    id: usize,
    event: Option<usize>,
    mut each: impl FnMut(&Table, &[RowAddress]),
) {
    if input.len == 0 {
        // Its rows are those of an epoch before, whose slots may be others' by now.
        return;
    }
    let roles = &machine.program.transactions[machine.wiring.inputs[id].transaction].roles;
    for (r, role) in roles.iter().enumerate().filter(|(_, role)| role.written) {
        let range: Range<usize> = match (event, role.over) {
            (None, _) => 0..input.rows[r].len(),
            (Some(event), None) => event..event + 1,
            (Some(event), Some(_)) => input.starts[r][event] as usize..input.starts[r][event + 1] as usize,
        };
        each(&machine.tables[role.table], &input.rows[r][range]);
    }
}
