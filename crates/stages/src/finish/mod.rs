//! The stage after access: turns the results of transactions into batches for sinks. It needs no other epoch, so it
//! overlaps with the access of later epochs.

pub mod gather_columns;
pub mod outputs;

use crate::access::cascade::captured_fields;
use crate::digest::{EpochDigest, committed_streams};
use crate::epoch::{Epoch, Run};
use crate::finish::outputs::{OutputBuilder, Picked};
use crate::machine::{Logging, Machine, Scratch};
use crate::prepare::pipeline_of;
use crate::stream_state::root_view;
use crate::wiring::{InputEvent, InputId, Outlet, outlet_of};
use tidemill_compile::abi::Verdict;
use tidemill_model::StreamDigest;
use tidemill_plan::{Origin, StreamId, TransactionId};

/// Builds the outputs and counts of an epoch whose transactions have run.
pub fn finish(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch) {
    count(machine, epoch);
    for stream in 0..machine.program.streams.len() {
        // Access has already followed the streams that lead on to transactions.
        if epoch.logs[stream].is_some() && machine.wiring.deliveries[stream].is_empty() {
            log_and_run(machine, scratch, epoch, stream);
        }
    }
    let gathered = scratch.context.take();
    epoch.gathered.push(gathered);
    for (s, stream) in machine.program.streams.iter().enumerate() {
        if matches!(stream.origin, Origin::Filter { .. } | Origin::Map { .. }) {
            let node = crate::finish::outputs::node_of(machine, s);
            epoch.failed[s] = epoch.pipelines[stream.root].nodes[node].failure_len as u64;
        }
    }
    for (sink, definition) in machine.program.sinks.iter().enumerate() {
        let batches = OutputBuilder { machine, epoch }.batches(definition.stream);
        epoch.outputs[sink] = batches;
    }
    if epoch.digest.is_some() {
        epoch.digest = Some(digest_of(machine, epoch));
    }
}

/// A digest of a finished epoch.
fn digest_of(machine: &Machine, epoch: &Epoch) -> EpochDigest {
    let sink = |batches: &Vec<_>| batches.iter().map(StreamDigest::of).fold(StreamDigest::default(), |a, b| a.then(b));
    let verdicts = |counts: &Vec<u64>| (counts[0], counts[1..].iter().sum());
    EpochDigest {
        sinks: epoch.outputs.iter().map(sink).collect(),
        transactions: epoch.counts.iter().map(verdicts).collect(),
        committed: match machine.logging {
            Logging::Border => Vec::new(),
            Logging::Full => {
                let batch = |stream| OutputBuilder { machine, epoch }.batches(stream).pop();
                committed_streams(&machine.program).map(batch).collect()
            }
        },
    }
}

/// Counts verdicts.
fn count(machine: &Machine, epoch: &mut Epoch) {
    for (wiring, input) in machine.wiring.inputs.iter().zip(&epoch.inputs) {
        let counts = &mut epoch.counts[wiring.transaction];
        let verdicts = &input.verdicts[..input.len];
        // Nearly all transactions commit; they are counted without a branch.
        let committed = verdicts.iter().filter(|&&verdict| verdict == Verdict::COMMITTED).count();
        counts[0] += committed as u64;
        if committed < verdicts.len() {
            for &verdict in verdicts.iter().filter(|&&verdict| verdict != Verdict::COMMITTED) {
                counts[verdict.reason().map_or(0, |reason| 1 + reason as usize)] += 1;
            }
        }
    }
}

/// Logs the events of a stream that only filters and maps read, and runs its pipeline.
pub fn log_and_run(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch, stream: StreamId) {
    let (transaction, outlet) = outlet_of(&machine.program, stream).expect("logged streams are fed by transactions");
    let picked = pick(machine, epoch, transaction, outlet);
    let mut log = epoch.logs[stream].take().expect("just looked at");
    for event in &picked {
        let code = machine.input(event.at.input).code;
        let input = &epoch.inputs[event.at.input];
        let (plan, columns) = match outlet {
            Outlet::Committed => (&code.committed, &input.captures[..]),
            Outlet::Aborted => (&code.aborted, &input.seen[..]),
            Outlet::Emitted(e) => {
                let number = code.emit_base + e;
                (&code.emits[e], epoch.gathered[event.context as usize].emissions[number].columns())
            }
        };
        log.push(&captured_fields(plan), columns, event.place as usize, event.at);
    }
    let views = log.column_views(&machine.program.streams[stream].schema);
    scratch.identity.ensure(log.len);
    let view = root_view(&views, &scratch.identity);
    let code = pipeline_of(machine, stream);
    epoch.pipelines[stream].run(code, &mut scratch.context, &view, None, log.len, 0);
    epoch.logs[stream] = Some(log);
}

/// The events of a transaction's outlet, in order.
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
    for &Run { joint, count } in &epoch.order {
        let inputs = &machine.wiring.joints[joint].inputs;
        if let Some(q) = ids.iter().position(|id| inputs.contains(id)) {
            ran[q] += count;
            while queues[q].peek().is_some_and(|p| p.at.event < ran[q]) {
                all.extend(queues[q].next());
            }
        }
    }
    debug_assert!(queues.iter_mut().all(|q| q.peek().is_none()), "an event never ran");
    all
}

fn pick_input(machine: &Machine, epoch: &Epoch, id: InputId, outlet: Outlet) -> Vec<Picked> {
    let input = &epoch.inputs[id];
    let of = |event: u32| Picked { at: InputEvent { input: id, event }, context: 0, place: event };
    let verdicts = (0u32..).zip(&input.verdicts[..input.len]);
    match outlet {
        Outlet::Committed => verdicts.filter(|(_, verdict)| verdict.passes_record()).map(|(i, _)| of(i)).collect(),
        Outlet::Aborted => verdicts.filter(|(_, verdict)| !verdict.is_committed()).map(|(i, _)| of(i)).collect(),
        Outlet::Emitted(e) => {
            let number = machine.input(id).code.emit_base + e;
            let mut picked = Vec::new();
            for (g, gathered) in epoch.gathered.iter().enumerate() {
                let Some(emissions) = gathered.emissions.get(number) else { continue };
                let place = |(place, &owner): (usize, &u32)| Picked {
                    at: InputEvent { input: id, event: owner },
                    context: g as u32,
                    place: place as u32,
                };
                picked.extend(emissions.owners().iter().enumerate().map(place));
            }
            // One worker's emissions are in order; those of several workers are sorted here.
            picked.sort_by_key(|p| p.at.event);
            picked
        }
    }
}
