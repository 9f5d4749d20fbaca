//! Tells what finds due rows which rows an epoch may have changed ([`Machine::due_rows`]).

use crate::due::due_of;
use crate::epoch::Epoch;
use crate::machine::Machine;
use crate::prepare::changes::{Transactions, each_written};
use crate::wiring::{InputEvent, InputId};
use std::ops::Range;

/// Notes the rows that an epoch may have changed, once it was accessed.
pub fn note(machine: &Machine, epoch: &Epoch) {
    note_written(machine, epoch, epoch.work.inputs.keys().map(Transactions::Of));
}

/// Notes the rows that the transactions on some events of an input may have changed, which have just run.
pub fn note_these(machine: &Machine, epoch: &Epoch, id: InputId, events: Range<usize>) {
    note_written(machine, epoch, [Transactions::These(id, events.start, events.end)]);
}

/// Notes the rows that the transaction on an event may have changed, which has just run, if it has lists of rows: these are
/// forgotten before the epoch is over.
pub fn note_listed(machine: &Machine, epoch: &Epoch, at: InputEvent) {
    if machine.input(at.input).roles().iter().any(|role| role.scan.is_some() && role.written) {
        note_written(machine, epoch, [Transactions::One(at)]);
    }
}

fn note_written<'a>(machine: &'a Machine, epoch: &Epoch, all: impl IntoIterator<Item = Transactions>) {
    let indexes = machine.wiring.dues.iter().zip(&machine.due_rows);
    let of_table =
        |(&stream, index): (_, &'a Option<_>)| Some((due_of(&machine.program, stream)?.table, index.as_ref()?));
    let indexes = Vec::from_iter(indexes.filter_map(of_table));
    if indexes.is_empty() {
        return;
    }
    for of in all {
        each_written(machine, epoch, of, |table, rows| {
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
