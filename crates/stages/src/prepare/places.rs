//! The places of an epoch's events ([`tidemill_plan::Node::Place`]), for the code that asks for them.

use crate::epoch::Epoch;
use crate::machine::Machine;

/// Numbers the events of all sources in their order, beginning after those that had passed before: late ones that are inputs
/// among the others.
pub fn place(machine: &Machine, epoch: &mut Epoch) {
    let wiring = &machine.wiring;
    if !wiring.asks_for_places.contains(&true) {
        return;
    }
    let input = &mut epoch.input;
    let mut passed = machine.passed_before() + input.passed;
    for &(stream, count) in &input.merge {
        let stream = stream as usize;
        if !wiring.has_places(&machine.program, stream) {
            continue;
        }
        let before = passed;
        passed += u64::from(count);
        if wiring.asks_for_places[stream] {
            input.sources[stream].places.extend(before + 1..passed + 1);
        }
    }
}
