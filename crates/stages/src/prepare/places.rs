//! The places of an epoch's events ([`tidemill_plan::Node::Place`]), for the code that asks for them.

use crate::epoch::Epoch;
use crate::machine::Machine;

/// Numbers the events of each source, beginning after those that had passed before: late ones that are inputs among the others.
pub fn place(machine: &Machine, epoch: &mut Epoch) {
    let wiring = &machine.wiring;
    if !wiring.asks_for_places.contains(&true) {
        return;
    }
    let late = wiring.late_sources(&machine.program);
    let source_of = |stream: usize| match late.iter().find(|(_, number)| *number == stream) {
        Some((source, _)) => Some(*source),
        None => (stream < wiring.sources.len()).then_some(stream),
    };
    let input = &mut epoch.input;
    let mut passed = input.passed.clone();
    // An epoch that no gate has cut begins with the first event of all.
    passed.resize(wiring.sources.len(), 0);
    for &(stream, count) in &input.merge {
        let Some(source) = source_of(stream as usize) else { continue };
        let before = passed[source];
        passed[source] += u64::from(count);
        if wiring.asks_for_places[stream as usize] {
            input.sources[stream as usize].places.extend(before + 1..passed[source] + 1);
        }
    }
}
