//! Merges what was folded while an epoch was prepared ([`fold`](crate::prepare::fold)) into the tables.

use crate::epoch::{Epoch, Flaw};
use crate::machine::{Machine, Scratch};

/// Merges the groups of all inputs, in their order. The rows were saved where that is wanted.
pub fn merge(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch) {
    let flaw = epoch.input.changes.and_then(|changes| changes.flaw).filter(|_| epoch.number.is_multiple_of(2));
    for (id, input) in epoch.work.inputs.iter_mut_enumerated() {
        let Some(folded) = input.folded.as_mut().filter(|folded| folded.events > 0) else { continue };
        let of = machine.input(id);
        let fold = of.transaction.fold.as_ref().expect("only such a transaction is folded");
        let table = usize::from(of.roles()[0].table) as u32;
        #[allow(unsafe_code)]
        // SAFETY: prepare found these rows; nothing else touches the tables in the epochs of these events, epochs are
        // accessed one by one, and this worker accesses this one.
        unsafe {
            let groups = input.rows[0].len() - usize::from(flaw == Some(Flaw::OmitsGroup));
            for _ in 0..1 + u32::from(flaw == Some(Flaw::MergesTwice)) {
                folded.groups.merge(&mut scratch.context, fold, table, &input.rows[0][..groups]);
            }
        }
    }
}
