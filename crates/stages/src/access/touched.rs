//! Tells what finds due rows which rows an epoch may have changed ([`Machine::due_rows`]).

use crate::due::due_of;
use crate::epoch::Epoch;
use crate::machine::Machine;
use crate::prepare::changes::{Transactions, each_written};

/// Notes the rows that an epoch may have changed, once it was accessed.
pub fn note<'a>(machine: &'a Machine, epoch: &Epoch) {
    let indexes = machine.wiring.dues.iter().zip(&machine.due_rows);
    let of_table =
        |(&stream, index): (_, &'a Option<_>)| Some((due_of(&machine.program, stream)?.table, index.as_ref()?));
    let indexes = Vec::from_iter(indexes.filter_map(of_table));
    if indexes.is_empty() {
        return;
    }
    for input in epoch.work.inputs.keys() {
        each_written(machine, epoch, Transactions::Of(input), |table, rows| {
            for (_, index) in indexes.iter().filter(|(of, _)| *of == table) {
                #[allow(unsafe_code)]
                // SAFETY: the rows of a role are slots of its table, which is the one of the stream.
                unsafe {
                    index.lock().touch(rows);
                }
            }
        });
    }
}
