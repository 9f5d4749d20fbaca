//! The results of transactions: the events of their outlets, and the columns that hold their values.

use crate::epoch::{Epoch, JointRun};
use crate::machine::Machine;
use crate::wiring::{InputEvent, InputId, Outlet};
use tidemill_compile::{NativeColumn, OutputColumn, OutputPlan};
use tidemill_plan::TransactionId;

/// An event of an outlet.
#[derive(Clone, Copy, Debug)]
pub struct Picked {
    /// The event that the transaction ran on.
    pub at: InputEvent,
    /// The epoch's context whose code emitted the event, for emissions.
    pub context: u32,
    /// Its index in the captured columns.
    pub place: u32,
}

impl Picked {
    /// Returns the captured columns that hold its values, at its place.
    pub fn columns<'a>(&self, machine: &Machine, epoch: &'a Epoch, outlet: Outlet) -> &'a [NativeColumn] {
        match outlet {
            Outlet::Committed | Outlet::Aborted => epoch.work.inputs[self.at.input].given(outlet),
            Outlet::Emitted(e) => {
                let number = machine.input(self.at.input).code.emit_base + e;
                epoch.work.produced[self.context as usize].emissions[number].columns()
            }
        }
    }
}

/// Returns the events of a transaction's outlet, in order.
pub fn pick(machine: &Machine, epoch: &Epoch, transaction: TransactionId, outlet: Outlet) -> Vec<Picked> {
    let of_transaction = |id: &InputId| machine.wiring.inputs[*id].transaction == transaction;
    let ids: Vec<InputId> = machine.wiring.inputs.keys().filter(of_transaction).collect();
    let by_input: Vec<Vec<Picked>> = ids.iter().map(|&id| pick_input(machine, epoch, id, outlet)).collect();
    let filled = by_input.iter().filter(|picked| !picked.is_empty()).count();
    if filled <= 1 {
        return by_input.into_iter().find(|picked| !picked.is_empty()).unwrap_or_default();
    }
    // Several inputs: take from each the events that ran, in the order in which they ran.
    let mut all = Vec::new();
    let mut queues: Vec<_> = by_input.into_iter().map(|p| p.into_iter().peekable()).collect();
    let mut ran = vec![0u32; ids.len()];
    for &JointRun { joint, count } in &epoch.work.order {
        let inputs = &machine.wiring.joints[joint].inputs;
        if let Some(q) = ids.iter().position(|id| inputs.contains(id)) {
            ran[q] += count;
            let rank = |p: &Picked| epoch.work.inputs[p.at.input].rank(p.at.event);
            while queues[q].peek().is_some_and(|p| rank(p) < ran[q]) {
                all.extend(queues[q].next());
            }
        }
    }
    debug_assert!(queues.iter_mut().all(|q| q.peek().is_none()), "an event never ran");
    all
}

fn pick_input(machine: &Machine, epoch: &Epoch, id: InputId, outlet: Outlet) -> Vec<Picked> {
    let input = &epoch.work.inputs[id];
    let of = |event: u32| Picked { at: InputEvent { input: id, event }, context: 0, place: event };
    let verdicts = (0u32..).zip(&input.verdicts[..input.len]);
    let in_order = |mut picked: Vec<Picked>| {
        if !input.ran_in_order() {
            picked.sort_by_key(|p| input.rank(p.at.event));
        }
        picked
    };
    match outlet {
        Outlet::Committed => {
            in_order(verdicts.filter(|(_, verdict)| verdict.passes_record()).map(|(i, _)| of(i)).collect())
        }
        Outlet::Aborted => {
            in_order(verdicts.filter(|(_, verdict)| !verdict.is_committed()).map(|(i, _)| of(i)).collect())
        }
        Outlet::Emitted(e) => {
            let number = machine.input(id).code.emit_base + e;
            let mut picked = Vec::new();
            for (g, produced) in epoch.work.produced.iter().enumerate() {
                let Some(emissions) = produced.emissions.get(number) else { continue };
                let place = |(place, &owner): (usize, &u32)| Picked {
                    at: InputEvent { input: id, event: owner },
                    context: g as u32,
                    place: place as u32,
                };
                picked.extend(emissions.owners().iter().enumerate().map(place));
            }
            // One worker's emissions are in order; those of several workers are sorted here.
            picked.sort_by_key(|p| input.rank(p.at.event));
            picked
        }
    }
}

/// Returns the captured column that holds each field of an output; none for a field that is not captured.
pub fn captured_fields(plan: &OutputPlan) -> Vec<Option<usize>> {
    let captured = |column: &OutputColumn| match column {
        OutputColumn::Captured(c) | OutputColumn::Passed(c) => Some(*c),
        _ => None,
    };
    plan.columns.iter().map(captured).collect()
}
