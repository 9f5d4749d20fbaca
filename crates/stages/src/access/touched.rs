//! Tells what finds due rows which rows an epoch may have changed ([`Machine::due_rows`]).

use crate::due::due_of;
use crate::epoch::Epoch;
use crate::machine::Machine;
use crate::prepare::changes::{Transactions, each_written};

/// Notes the rows that an epoch may have changed, once it was accessed.
pub fn note(machine: &Machine, epoch: &Epoch) {
    if machine.due_rows.is_empty() {
        return;
    }
    let tables = Vec::from_iter(machine.wiring.dues.iter().map(|&stream| due_of(&machine.program, stream).table));
    for input in epoch.work.inputs.keys() {
        each_written(machine, epoch, Transactions::Of(input), |table, rows| {
            for (due, _) in tables.iter().enumerate().filter(|(_, of)| **of == table) {
                #[allow(unsafe_code)]
                // SAFETY: the rows of a role are slots of its table, which is the one of the stream.
                unsafe {
                    machine.due_rows[due].lock().touch(rows);
                }
            }
        });
    }
}
