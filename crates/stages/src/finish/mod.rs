//! The stage after access: turns the results of transactions into batches for sinks. It needs no other epoch, so it
//! overlaps with the access of later epochs.

pub mod answers;
pub mod gather_columns;
pub mod outputs;

use crate::digest::{EpochDigest, committed_streams};
use crate::epoch::Epoch;
use crate::finish::answers::answers;
use crate::finish::outputs::OutputBuilder;
use crate::given::{captured_fields, pick};
use crate::machine::{Logging, Machine, Scratch};
use crate::prepare::pipeline_of;
use crate::stream_state::root_view;
use crate::wiring::outlet_of;
use std::sync::Arc;
use tidemill_compile::abi::Verdict;
use tidemill_model::StreamDigest;
use tidemill_plan::{Origin, StreamId};
use typed_index_collections::TiVec;

/// Builds the outputs and counts of an epoch whose transactions have run.
pub fn finish(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch) {
    count(machine, epoch);
    for stream in machine.program.streams.keys() {
        // Access has already followed the streams that lead on to transactions.
        if epoch.work.logs[stream].is_some() && machine.wiring.deliveries[stream].is_empty() {
            log_and_run(machine, scratch, epoch, stream);
        }
    }
    let produced = scratch.context.take();
    epoch.work.produced.push(produced);
    for (s, stream) in machine.program.streams.iter_enumerated() {
        if matches!(stream.origin, Origin::Filter { .. } | Origin::Map { .. }) {
            let node = crate::finish::outputs::node_of(machine, s);
            epoch.finished.failed[s] = epoch.work.pipelines[stream.root].nodes[node].failure_len as u64;
        }
    }
    for (sink, definition) in machine.program.sinks.iter().enumerate() {
        let batches = OutputBuilder { machine, epoch }.batches(definition.stream);
        epoch.finished.outputs[sink] = batches;
    }
    let batches = |&stream: &StreamId| {
        let sink = machine.program.sinks.iter().position(|sink| sink.stream == stream);
        let of_sink = sink.map(|sink| epoch.finished.outputs[sink].clone());
        (stream, of_sink.unwrap_or_else(|| OutputBuilder { machine, epoch }.batches(stream)))
    };
    epoch.finished.followed = epoch.input.wanted.follows.iter().map(batches).collect();
    epoch.finished.answers =
        epoch.input.wanted.answers.iter().map(|&input| Arc::new(answers(machine, epoch, input))).collect();
    if epoch.input.is_digested {
        epoch.finished.digest = Some(digest_of(machine, epoch));
    }
}

/// Returns a digest of a finished epoch.
fn digest_of(machine: &Machine, epoch: &Epoch) -> EpochDigest {
    let sink = |batches: &Vec<_>| batches.iter().map(StreamDigest::of).fold(StreamDigest::default(), |a, b| a.then(b));
    let verdicts = |counts: &Vec<u64>| (counts[0], counts[1..].iter().sum());
    EpochDigest {
        sinks: epoch.finished.outputs.iter().map(sink).collect(),
        transactions: epoch.finished.counts.iter().map(verdicts).collect(),
        committed: match machine.logging {
            Logging::Border => TiVec::new(),
            Logging::Full => {
                let batch = |stream| OutputBuilder { machine, epoch }.batches(stream).pop();
                committed_streams(&machine.program).map(batch).collect()
            }
        },
    }
}

/// Counts verdicts.
fn count(machine: &Machine, epoch: &mut Epoch) {
    for (wiring, input) in machine.wiring.inputs.iter().zip(&epoch.work.inputs) {
        let counts = &mut epoch.finished.counts[wiring.transaction];
        if let Some(folded) = input.folded.as_ref().filter(|folded| folded.events > 0) {
            counts[0] += folded.events as u64 - folded.aborts.iter().sum::<u64>();
            counts[1..].iter_mut().zip(&folded.aborts).for_each(|(count, aborts)| *count += aborts);
        }
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
    let mut log = epoch.work.logs[stream].take().expect("just looked at");
    for event in &picked {
        let plan = outlet.plan(machine.input(event.at.input).code);
        log.push(&captured_fields(plan), event.columns(machine, epoch, outlet), event.place as usize, event.at);
    }
    let schema = &machine.program.streams[stream].schema;
    let views = log.column_views(schema, &epoch.work.lists);
    scratch.identity.ensure(log.len);
    let view = root_view(&views, &scratch.identity);
    let code = pipeline_of(machine, stream);
    let elements = epoch.work.lists.count(schema, &log.columns, 0..log.len);
    epoch.work.pipelines[stream].run(code, &mut scratch.context, &view, None, log.len, elements);
    epoch.work.logs[stream] = Some(log);
}
