//! The stage before access: filters, maps and keys of all events of an epoch, and the rows that its
//! transactions will touch. Needs no other epoch, so it overlaps with the access of those before.

pub mod changes;
pub mod keys;

use crate::epoch::{Epoch, Run};
use crate::input::Input;
use crate::machine::{Machine, Scratch};
use crate::prepare::keys::{Fields, KeyScratch, resolve_roles};
use crate::stream_state::{NodeOutput, root_view};
use crate::views::batch_views;
use crate::wiring::{Joint, JointId};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::ops::Range;
use tidemill_compile::abi::ColumnView;
use tidemill_compile::{NativeColumn, PipelineCode};
use tidemill_model::FieldType;
use tidemill_plan::StreamId;

/// Prepares a gathered epoch.
pub fn prepare(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch) {
    for source in 0..machine.wiring.sources.len() {
        if let Some(batch) = epoch.sources[source].events.clone() {
            prepare_source(machine, scratch, epoch, source, &batch);
        }
    }
    if !machine.wiring.cascades {
        order(machine, epoch);
    }
    changes::mark(machine, epoch);
    let gathered = scratch.context.take();
    epoch.gathered.push(gathered);
}

fn prepare_source(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch, source: usize, batch: &RecordBatch) {
    let root = machine.wiring.sources[source];
    let schema = &machine.program.streams[root].schema;
    let code = pipeline_of(machine, root);
    let events = batch.num_rows();
    scratch.identity.ensure(events);
    batch_views(batch, schema, &mut scratch.views);
    let mut pipeline = std::mem::take(&mut epoch.pipelines[root]);
    let view = root_view(&scratch.views, &scratch.identity);
    let elements = if code.run.is_some() { element_count(batch, schema) } else { 0 };
    pipeline.run(code, &mut scratch.context, &view, None, events, elements);
    epoch.pipelines[root] = pipeline;
    let arrived = Arrived { arrays: Some(batch.columns()), natives: None, views: &scratch.views, events };
    deliver(machine, &mut scratch.keys, epoch, root, &arrived);
}

/// The events of a root as they are there.
pub struct Arrived<'a> {
    /// Of a source.
    pub arrays: Option<&'a [ArrayRef]>,
    /// Of a stream that transactions fill.
    pub natives: Option<&'a [NativeColumn]>,
    /// Their columns, as code reads them.
    pub views: &'a [ColumnView],
    /// How many.
    pub events: usize,
}

/// Delivers the events of a root, whose pipeline has run, to all inputs behind it: which they are, and the rows that
/// their transactions will touch.
pub fn deliver(machine: &Machine, keys: &mut KeyScratch, epoch: &mut Epoch, root: StreamId, arrived: &Arrived<'_>) {
    let schema = &machine.program.streams[root].schema;
    let code = pipeline_of(machine, root);
    let mut pipeline = std::mem::take(&mut epoch.pipelines[root]);
    for &id in &machine.wiring.deliveries[root] {
        let wiring = &machine.wiring.inputs[id];
        let input = &mut epoch.inputs[id];
        let node = pipeline.nodes.get_mut(wiring.node);
        // Without derived streams or where the input is the root itself every event is delivered.
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
        };
        let range = (0, input.len);
        resolve_roles(&machine.program, wiring, &machine.tables, &fields, input, range, keys);
        input.ensure_results(range.1);
        input.point(arrived.views, &computed_views);
    }
    epoch.pipelines[root] = pipeline;
}

/// A node's computed columns, with their views.
pub fn computed_of(node: Option<&mut NodeOutput>) -> (&[NativeColumn], Vec<ColumnView>) {
    match node {
        None => (&[], Vec::new()),
        Some(node) => {
            let views = node.column_views();
            (&node.columns, views)
        }
    }
}

/// Elements of all lists of a batch: room for computed element keys.
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

/// The transactions of all inputs in position order.
fn order(machine: &Machine, epoch: &mut Epoch) {
    let mut order = std::mem::take(&mut epoch.order);
    let mut rows = vec![0u32; epoch.sources.len()];
    let mut next = vec![0usize; machine.wiring.joints.len()];
    for &(source, count) in &epoch.merge {
        rows[source as usize] += count;
        let joints = machine.wiring.joints_of[machine.wiring.sources[source as usize]].clone();
        let events = Events { epoch, joints: &machine.wiring.joints };
        if epoch.merge.len() == 1 && events.divided(joints.clone(), count as usize, &mut order) {
            break;
        }
        events.merge(joints, rows[source as usize], &mut next, &mut order);
    }
    epoch.order = order;
}

/// The events of joints, which are those of any of their inputs.
struct Events<'a> {
    epoch: &'a Epoch,
    joints: &'a [Joint],
}

impl<'a> Events<'a> {
    fn of(&self, joint: JointId) -> &'a Input {
        &self.epoch.inputs[self.joints[joint].inputs.start]
    }

    /// Where the joints divide the rows of an epoch's only source among them, as filters by kind do: writes
    /// down whose each row is, and reads the runs off. Does nothing and returns false where they do not.
    ///
    /// The kinds of events are often random, so that a merge would mispredict a branch for each run; this
    /// depends on them only where a run ends.
    fn divided(&self, joints: Range<JointId>, rows: usize, order: &mut Vec<Run>) -> bool {
        const NOBODY: u8 = u8::MAX;
        let events: usize = joints.clone().map(|joint| self.of(joint).len).sum();
        if events != rows || rows == 0 || joints.len() >= NOBODY as usize {
            return false;
        }
        // Whole words of 64 rows, and the row after.
        let mut owners = vec![NOBODY; rows.next_multiple_of(64) + 1];
        let mut free = true;
        for joint in joints.clone() {
            let input = self.of(joint);
            let Some(index) = &input.index else { return joints.len() == 1 && whole(joint, rows, order) };
            for &row in &index[..input.len] {
                free &= owners[row as usize] == NOBODY;
                owners[row as usize] = (joint - joints.start) as u8;
            }
        }
        if !free {
            return false;
        }
        // As many events as rows and no row twice: each row has an owner, and the run of the last ends
        // before the end mark.
        let mut start = 0;
        for (word, (here, next)) in owners.chunks_exact(64).zip(owners[1..].chunks_exact(64)).enumerate() {
            let eights = here.as_chunks().0.iter().zip(next.as_chunks().0).enumerate();
            let mut ends = eights.fold(0, |ends, (i, (a, b))| ends | (differing(*a, *b) as u64) << (8 * i));
            while ends != 0 {
                let end = word * 64 + ends.trailing_zeros() as usize + 1;
                let joint = (joints.start + usize::from(owners[end - 1])) as u32;
                order.push(Run { joint, count: (end - start) as u32 });
                start = end;
                ends &= ends - 1;
            }
        }
        true
    }

    /// Merges the events of joints that stem from rows of one source before `end`: by row, and by joint where several
    /// take the same row.
    fn merge(&self, joints: Range<JointId>, end: u32, next: &mut [usize], order: &mut Vec<Run>) {
        let head = |joint: JointId, next: &[usize]| {
            let input = self.of(joint);
            match &input.index {
                Some(index) => index.get(next[joint]).copied().filter(|&row| row < end),
                None => (next[joint] < input.len.min(end as usize)).then_some(next[joint] as u32),
            }
        };
        loop {
            // The first two in order: who goes on, and up to where.
            let mut first: Option<(u32, JointId)> = None;
            let mut bound = (end, 0);
            for joint in joints.clone() {
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
                // Its rows are its events.
                None => next[joint] = (bound.0 as usize + (joint < bound.1) as usize).min(input.len),
            }
            Epoch::ran(order, joint, (next[joint] - start) as u32);
        }
    }
}

/// A bit for each byte in which they differ.
#[inline(always)]
fn differing(a: [u8; 8], b: [u8; 8]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differences = u64::from_le_bytes(a) ^ u64::from_le_bytes(b);
    // The top bit of each byte that is not 0, moved to its lowest; then all of them side by side.
    let bits = ((((differences & LOW) + LOW) | differences) & !LOW) >> 7;
    (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// All rows are one joint's.
fn whole(joint: JointId, rows: usize, order: &mut Vec<Run>) -> bool {
    order.push(Run { joint: joint as u32, count: rows as u32 });
    true
}

/// The pipeline code of a stream that is a root.
pub fn pipeline_of(machine: &Machine, root: usize) -> &PipelineCode {
    machine.code.pipelines[root].as_ref().expect("only roots are asked for")
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn a_bit_for_each_byte_that_differs() {
        let mut bytes = [0u8; 16];
        for round in 0..100_000u32 {
            // Few values, so that bytes are often the same, the least and the greatest bit among them.
            bytes[round as usize % 16] = [0, 1, 0x80, 0xff][(round.wrapping_mul(0x9e37_79b9) >> 30) as usize];
            let (a, b) = (&bytes[..8], &bytes[8..]);
            let slow = (0..8).fold(0, |bits, i| bits | ((a[i] != b[i]) as u8) << i);
            assert_eq!(differing(a.try_into().unwrap(), b.try_into().unwrap()), slow, "{a:?} {b:?}");
        }
    }
}
