//! The hashes of the keys of located rows, by which PAT divides rows into partitions (TStream 2020, §VI-E).

use crate::access::serial::Located;
use crate::epoch::Epoch;
use crate::machine::Machine;

/// Fills `hashes` with those of the keys of all located rows, by slot.
pub fn fill(machine: &Machine, epoch: &Epoch, located: &Located, hashes: &mut Vec<u64>) {
    hashes.clear();
    for at in located.at() {
        for (r, role) in machine.input(at.input).roles().iter().enumerate() {
            let table = &machine.tables[role.table];
            let rows = epoch.work.inputs[at.input].rows_of(r, at.event as usize, role.over.is_some());
            hashes.extend(rows.iter().filter(|&&row| row != 0).map(|&row| {
                #[allow(unsafe_code)]
                // SAFETY: prepare found this row of the table for this epoch.
                unsafe {
                    table.key_hash(row)
                }
            }));
        }
    }
    assert_eq!(hashes.len(), located.accesses().rows().len(), "each slot has a row with a key");
}
