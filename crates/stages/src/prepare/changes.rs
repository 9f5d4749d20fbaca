//! The rows that an epoch may change: in a durable run they are marked for the next checkpoint, and in every run their
//! old values are saved for the snapshots that are open, of a checkpoint or of readers. Copies of tables that are about to
//! change are not given to readers any more.
//!
//! The rows of an epoch are known before its access, so this is a pass over their addresses. If the program follows
//! events one by one, and in the waves after the first, the rows are known only when the transaction is about to run.

use crate::epoch::{Changes, Epoch, Flaw};
use crate::listed::listed;
use crate::machine::Machine;
use crate::wiring::{InputEvent, InputId};
use std::ops::Range;
use tidemill_plan::TableId;
use tidemill_state::{Generation, RowAddress, Table};

/// Transactions of an epoch.
#[derive(Clone, Copy, Debug)]
pub enum Transactions {
    /// All transactions of an input.
    Of(InputId),
    /// The transaction on one event of an input.
    One(InputEvent),
    /// The transactions on consecutive events of an input: from the first up to the last, which is not among them.
    These(InputId, usize, usize),
}

fn marks(changes: Changes, epoch: &Epoch) -> bool {
    !(changes.flaw == Some(Flaw::OmitsMarks) && epoch.number.is_multiple_of(2))
}

/// Marks the rows that a prepared epoch may write. May run concurrently with the access of earlier epochs.
pub fn mark(machine: &Machine, epoch: &Epoch) {
    let Some(changes) = epoch.input.changes.filter(|&changes| marks(changes, epoch)) else { return };
    if !machine.wiring.cascades {
        each_input(epoch, |of| note(machine, epoch, of, Some(changes.generation), false));
    }
}

/// Saves the rows that an epoch is about to write, if a snapshot is open, and forgets copies of their tables. Call it immediately before the epoch's access:
/// a snapshot begins only after the access of an epoch, so none begins until this one's is over.
pub fn save(machine: &Machine, epoch: &mut Epoch) {
    let omits = epoch.input.changes.is_some_and(|changes| changes.flaw == Some(Flaw::OmitsSaves));
    let is_open = |table: &Table| table.is_in_snapshot() || table.is_read();
    epoch.accessed.saves = !omits && (machine.kept.is_some() || machine.tables.iter().any(is_open));
    if epoch.accessed.saves && !machine.wiring.cascades {
        each_input(epoch, |of| note(machine, epoch, of, None, true));
    }
}

/// Marks and saves, for transactions that are about to run and whose rows were not known when their epoch was prepared.
pub fn mark_and_save(machine: &Machine, epoch: &Epoch, of: Transactions) {
    let mark = epoch.input.changes.filter(|&changes| marks(changes, epoch)).map(|changes| changes.generation);
    if mark.is_some() || epoch.accessed.saves {
        note(machine, epoch, of, mark, epoch.accessed.saves);
    }
}

fn each_input(epoch: &Epoch, each: impl FnMut(Transactions)) {
    epoch.work.inputs.keys().map(Transactions::Of).for_each(each);
}

/// Marks or saves, or both, the rows that transactions write.
fn note(machine: &Machine, epoch: &Epoch, of: Transactions, mark: Option<Generation>, saves: bool) {
    each_written(machine, epoch, of, |id, rows| {
        if saves && rows.iter().any(|&row| row != 0) {
            machine.kept.forget(id);
        }
        let table = &machine.tables[id];
        #[allow(unsafe_code)]
        // SAFETY: the rows of a role are slots of its table, and no transaction that touches them runs.
        unsafe {
            if let Some(generation) = mark {
                table.mark(rows, generation);
            }
            if saves {
                table.save(rows);
            }
        }
    });
}

/// Calls `each` with the rows of the roles that transactions write, and with their table.
pub fn each_written(machine: &Machine, epoch: &Epoch, of: Transactions, mut each: impl FnMut(TableId, &[RowAddress])) {
    let (Transactions::Of(id) | Transactions::One(InputEvent { input: id, .. }) | Transactions::These(id, ..)) = of;
    let input = &epoch.work.inputs[id];
    if input.len == 0 && input.folded() == 0 {
        // The rows are those of an earlier epoch, whose slots may have been reused.
        return;
    }
    for (r, role) in machine.input(id).roles().iter().enumerate().filter(|(_, role)| role.written) {
        if let (Transactions::One(at), Some(_)) = (of, role.scan) {
            #[allow(unsafe_code)]
            // SAFETY: its rows were listed when the transaction was about to run, and none has run since.
            each(role.table, unsafe { listed(input.rows[r][at.event as usize]) });
            continue;
        }
        let range: Range<usize> = match (of, role.over) {
            (Transactions::Of(_), _) => 0..input.rows[r].len(),
            (Transactions::One(at), None) => at.event as usize..at.event as usize + 1,
            (Transactions::One(at), Some(_)) => {
                let starts = &input.starts[r][at.event as usize..];
                starts[0] as usize..starts[1] as usize
            }
            (Transactions::These(_, first, end), None) => first..end,
            (Transactions::These(_, first, end), Some(_)) => {
                let starts = &input.starts[r];
                starts[first] as usize..starts[end] as usize
            }
        };
        each(role.table, &input.rows[r][range]);
    }
}
