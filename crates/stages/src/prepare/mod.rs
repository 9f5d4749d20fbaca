//! The stage before access: filters, maps and keys of all events of an epoch, and the rows that its transactions will
//! touch. It needs no other epoch, so it overlaps with the access of earlier epochs.

pub mod changes;
pub mod fold;
pub mod keys;
mod places;

use crate::epoch::{Epoch, JointRun};
use crate::input::Input;
use crate::machine::{Logging, Machine, Scratch};
use crate::prepare::keys::{Fields, KeyScratch, resolve_roles};
use crate::stream_state::{NodeOutput, root_view};
use crate::views::batch_views;
use crate::wiring::{Joint, JointId, joints_in};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::ops::Range;
use tidemill_compile::abi::ColumnView;
use tidemill_compile::{FieldSource, NativeColumn, PipelineCode, StreamLayout};
use tidemill_model::FieldType;
use tidemill_plan::StreamId;
use typed_index_collections::{TiSlice, TiVec};

/// Prepares a gathered epoch.
pub fn prepare(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch) {
    places::place(machine, epoch);
    for source in 0..machine.wiring.given.len() {
        if machine.wiring.is_logged_root(machine.wiring.given[source]) {
            // Its events are logged when they are followed.
            continue;
        }
        if let Some(batch) = epoch.input.sources[source].events.clone() {
            prepare_source(machine, scratch, epoch, source, &batch);
        }
    }
    if !machine.wiring.cascades {
        order(machine, epoch);
    }
    changes::mark(machine, epoch);
    let produced = scratch.context.take();
    epoch.work.produced.push(produced);
}

fn prepare_source(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch, source: usize, batch: &RecordBatch) {
    let root = machine.wiring.given[source];
    let schema = &machine.program.streams[root].schema;
    let code = pipeline_of(machine, root);
    let events = batch.num_rows();
    scratch.identity.ensure(events);
    batch_views(batch, schema, &mut scratch.views);
    note_lists(machine, epoch, source, batch, &scratch.views);
    let mut pipeline = std::mem::take(&mut epoch.work.pipelines[root]);
    let view = root_view(&scratch.views, &scratch.identity);
    let elements = if code.run.is_some() { element_count(batch, schema) } else { 0 };
    pipeline.run(code, &mut scratch.context, &view, None, events, elements);
    epoch.work.pipelines[root] = pipeline;
    let views = std::mem::take(&mut scratch.views);
    let places = std::mem::take(&mut epoch.input.sources[source].places);
    assert!(places.is_empty() || places.len() == events, "each event has a place, or none has");
    let arrived = Arrived { arrays: Some(batch.columns()), natives: None, views: &views, places: &places, events };
    // The full log names each event that commits. What was folded cannot be divided into stretches.
    let may_fold = machine.logging == Logging::Border && epoch.input.due_through.is_none();
    for &id in &machine.wiring.deliveries[root] {
        if let Some(code) = machine.input(id).code.fold.filter(|_| may_fold) {
            fold::fold(machine, scratch, epoch, id, code, &arrived);
        }
    }
    deliver(machine, &mut scratch.keys, epoch, root, &arrived);
    // Inputs have its address, which stays.
    epoch.input.sources[source].places = places;
    scratch.views = views;
}

/// Notes where the lists of a stream's events are, for transactions that they are passed on to.
fn note_lists(machine: &Machine, epoch: &mut Epoch, source: usize, batch: &RecordBatch, views: &[ColumnView]) {
    let root = machine.wiring.given[source];
    for (number, &(_, field)) in machine.wiring.lists.iter().enumerate().filter(|(_, (given, _))| *given == source) {
        let FieldSource::List { offsets, .. } = root_layout(machine, root).fields[field] else {
            unreachable!("it is a list that comes in")
        };
        let FieldType::List(item) = &machine.program.streams[root].schema.fields[field].ty else {
            unreachable!("it is a list")
        };
        let views = &views[offsets..=offsets + item.columns().len()];
        epoch.work.lists.set(number, batch.column(field), views);
    }
}

/// Returns the layout of a root.
fn root_layout(machine: &Machine, root: StreamId) -> &StreamLayout {
    &pipeline_of(machine, root).plan.nodes[0].layout
}

/// The events of a root.
pub struct Arrived<'a> {
    /// The columns of a source.
    pub arrays: Option<&'a [ArrayRef]>,
    /// The columns of a stream that transactions feed.
    pub natives: Option<&'a [NativeColumn]>,
    /// The columns, in the form in which compiled code reads them.
    pub views: &'a [ColumnView],
    /// Their places, if code asks for them.
    pub places: &'a [u64],
    /// The number of events.
    pub events: usize,
}

/// Delivers the events of a root, whose pipeline has run, to all its inputs that have not folded them: records which
/// events each input takes, and the rows that their transactions will touch.
pub fn deliver(machine: &Machine, keys: &mut KeyScratch, epoch: &mut Epoch, root: StreamId, arrived: &Arrived<'_>) {
    let schema = &machine.program.streams[root].schema;
    let code = pipeline_of(machine, root);
    let mut pipeline = std::mem::take(&mut epoch.work.pipelines[root]);
    for &id in &machine.wiring.deliveries[root] {
        if epoch.work.inputs[id].folded() > 0 {
            continue;
        }
        let wiring = &machine.wiring.inputs[id];
        let input = &mut epoch.work.inputs[id];
        let node = pipeline.nodes.get_mut(wiring.node);
        // Without derived streams, or if the input is the root itself, every event is delivered.
        input.len = node.as_ref().map_or(arrived.events, |n| n.len);
        input.index = match &node {
            Some(n) if wiring.node > 0 => {
                let mut index = input.index.take().unwrap_or_default();
                index.clear();
                index.extend_from_slice(&n.index[..n.len]);
                Some(index)
            }
            _ => None,
        };
        let (computed, computed_views) = computed_of(node);
        let fields = Fields {
            arrays: arrived.arrays,
            natives: arrived.natives,
            root_schema: schema,
            root_layout: &code.plan.nodes[0].layout,
            node: &code.plan.nodes[wiring.node],
            computed,
            passed: &epoch.work.lists,
        };
        let events = 0..input.len;
        resolve_roles(&machine.program, wiring, &machine.tables, &fields, input, events.clone(), keys);
        input.ensure_results(events.end);
        input.point(arrived.views, arrived.places, &computed_views);
    }
    epoch.work.pipelines[root] = pipeline;
}

/// Returns a node's computed columns and their views.
pub fn computed_of(node: Option<&mut NodeOutput>) -> (&[NativeColumn], Vec<ColumnView>) {
    match node {
        None => (&[], Vec::new()),
        Some(node) => {
            let views = node.column_views();
            (&node.columns, views)
        }
    }
}

/// Returns the number of elements in all lists of a batch: the space for computed element keys.
fn element_count(batch: &RecordBatch, schema: &tidemill_model::Schema) -> usize {
    let lists = schema.fields.iter().zip(batch.columns()).filter(|(f, _)| matches!(f.ty, FieldType::List(_)));
    lists
        .map(|(_, array)| array.as_list::<i32>())
        .map(|l| {
            let offsets = l.value_offsets();
            (offsets[l.len()] - offsets[0]) as usize
        })
        .sum()
}

/// Orders the transactions of all inputs by position.
fn order(machine: &Machine, epoch: &mut Epoch) {
    let mut order = std::mem::take(&mut epoch.work.order);
    let mut rows = vec![0u32; epoch.input.sources.len()];
    let mut next: TiVec<JointId, usize> = machine.wiring.joints.iter().map(|_| 0).collect();
    for &(source, count) in &epoch.input.merge {
        rows[source as usize] += count;
        let joints = machine.wiring.joints_of[machine.wiring.given[source as usize]].clone();
        let events = Events { epoch, joints: &machine.wiring.joints };
        if epoch.input.merge.len() == 1 && events.divided(joints.clone(), count as usize, &mut order) {
            break;
        }
        events.merge(joints, rows[source as usize], &mut next, &mut order);
    }
    epoch.work.order = order;
}

/// The events of joints; those of a joint are the events of any of its inputs.
struct Events<'a> {
    epoch: &'a Epoch,
    joints: &'a TiSlice<JointId, Joint>,
}

impl<'a> Events<'a> {
    fn of(&self, joint: JointId) -> &'a Input {
        &self.epoch.work.inputs[self.joints[joint].inputs.start]
    }

    /// Handles the case where the joints partition the rows of an epoch's only source, as filters by kind do: records
    /// the joint of each row, and derives the runs from that. Otherwise it does nothing and returns false.
    ///
    /// The kinds of events are often random, so a merge would mispredict a branch for each run; here only the ends of
    /// runs cause branches.
    fn divided(&self, joints: Range<JointId>, rows: usize, order: &mut Vec<JointRun>) -> bool {
        const NOBODY: u8 = u8::MAX;
        let count = joints_in(&joints).len();
        let events: usize = joints_in(&joints).map(|joint| self.of(joint).len).sum();
        if events != rows || rows == 0 || count >= NOBODY as usize {
            return false;
        }
        // Whole words of 64 rows, and one more row.
        let mut owners = vec![NOBODY; rows.next_multiple_of(64) + 1];
        let mut free = true;
        for (number, joint) in joints_in(&joints).enumerate() {
            let input = self.of(joint);
            let Some(index) = &input.index else { return count == 1 && whole(joint, rows, order) };
            for &row in &index[..input.len] {
                free &= owners[row as usize] == NOBODY;
                owners[row as usize] = number as u8;
            }
        }
        if !free {
            return false;
        }
        // There are as many events as rows, and no row occurs twice: so each row has an owner, and the last run ends
        // before the end mark.
        let mut start = 0;
        for (word, (here, next)) in owners.chunks_exact(64).zip(owners[1..].chunks_exact(64)).enumerate() {
            let eights = here.as_chunks().0.iter().zip(next.as_chunks().0).enumerate();
            let mut ends = eights.fold(0, |ends, (i, (a, b))| ends | (differing(*a, *b) as u64) << (8 * i));
            while ends != 0 {
                let end = word * 64 + ends.trailing_zeros() as usize + 1;
                let joint = JointId::from(usize::from(joints.start) + usize::from(owners[end - 1]));
                order.push(JointRun { joint, count: (end - start) as u32 });
                start = end;
                ends &= ends - 1;
            }
        }
        true
    }

    /// Merges the events of joints that stem from rows of one source before `end`: by row, and by joint if several take
    /// the same row.
    fn merge(&self, joints: Range<JointId>, end: u32, next: &mut TiSlice<JointId, usize>, order: &mut Vec<JointRun>) {
        let head = |joint: JointId, next: &TiSlice<JointId, usize>| {
            let input = self.of(joint);
            match &input.index {
                Some(index) => index.get(next[joint]).copied().filter(|&row| row < end),
                None => (next[joint] < input.len.min(end as usize)).then_some(next[joint] as u32),
            }
        };
        loop {
            // The first two heads in order: which joint goes next, and up to which row.
            let mut first: Option<(u32, JointId)> = None;
            let mut bound = (end, JointId::from(0));
            for joint in joints_in(&joints) {
                if let Some(row) = head(joint, next) {
                    match first {
                        Some(leader) if leader <= (row, joint) => bound = bound.min((row, joint)),
                        Some(leader) => (bound, first) = (leader, Some((row, joint))),
                        None => first = Some((row, joint)),
                    }
                }
            }
            let Some((_, joint)) = first else { return };
            let (input, start) = (self.of(joint), next[joint]);
            match &input.index {
                Some(index) => {
                    let ahead = &index[start..input.len];
                    next[joint] += ahead.iter().take_while(|&&row| (row, joint) < bound).count();
                }
                // Without an index, its rows are its events.
                None => next[joint] = (bound.0 as usize + (joint < bound.1) as usize).min(input.len),
            }
            Epoch::ran(order, joint, (next[joint] - start) as u32);
        }
    }
}

/// Returns a bit for each byte, set where the two differ.
#[inline(always)]
fn differing(a: [u8; 8], b: [u8; 8]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differences = u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
    // Moves the top bit of each nonzero byte to its lowest bit; then packs these bits side by side.
    let bits = ((((differences & LOW) + LOW) | differences) & !LOW) >> 7;
    (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Gives all rows to one joint.
fn whole(joint: JointId, rows: usize, order: &mut Vec<JointRun>) -> bool {
    order.push(JointRun { joint, count: rows as u32 });
    true
}

/// Returns the pipeline code of a stream that is a root.
pub fn pipeline_of(machine: &Machine, root: StreamId) -> &PipelineCode {
    machine.code.pipelines[root].as_ref().expect("only roots are asked for")
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn a_bit_for_each_byte_that_differs() {
        let mut bytes = [0u8; 16];
        for round in 0..100_000u32 {
            // Few distinct values, so that bytes are often equal; they include the lowest and the highest bit.
            bytes[round as usize % 16] = [0, 1, 0x80, 0xff][(round.wrapping_mul(0x9e37_79b9) >> 30) as usize];
            let (a, b) = (&bytes[..8], &bytes[8..]);
            let slow = (0..8).fold(0, |bits, i| bits | ((a[i] != b[i]) as u8) << i);
            assert_eq!(differing(a.try_into().unwrap(), b.try_into().unwrap()), slow, "{a:?} {b:?}");
        }
    }
}
