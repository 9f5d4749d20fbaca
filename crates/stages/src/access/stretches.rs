//! Stretches of an epoch: what is due between the events of sources divides it.
//!
//! **What.** An epoch whose punctuation says up to which time what is due runs within it
//! ([`crate::epoch::EpochInput::due_through`]) runs each boundary at its place: before the first event of its time or a later
//! one, and at the end of the epoch those up to that time. The events between two boundaries are a *stretch*.
//!
//! **Invariant.** No row is due before the next boundary that [`Boundaries`] gives, once the rows are noted that ran since the
//! last look. When such an epoch is over, no row is due at its punctuation or before.
//!
//! **How.** A stretch ends at the least time due in the rows, or that its own events can make due, as between epochs. The rows
//! that it may have changed are noted at its end, so the next look finds them. All rows of a stream and a boundary are taken
//! before the first of them runs. They are events in the log of their stream, like those that a transaction emitted.
//!
//! If the program does not cascade, a stretch runs in blocks, and what follows from events comes in waves
//! (`access/waves.rs`): what follows in a wave shares no table with what is due, so it makes nothing due.
//!
//! **Given up.** Such epochs run on one worker. One in which nothing can be due runs under any policy.

use crate::access::cascade::{Cascade, Given};
use crate::access::serial::BLOCK;
use crate::access::touched;
use crate::due::{DueCut, DueRows, due_of, due_rows};
use crate::epoch::{Epoch, JointRun};
use crate::machine::Machine;
use crate::prepare::changes::{self, Transactions};
use crate::progress::{Boundaries, Times};
use crate::wiring::{InputId, Joint, JointId, joints_in};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_buffer::ScalarBuffer;
use std::ops::Range;
use tidemill_compile::abi::InputView;
use tidemill_plan::StreamId;
use tidemill_state::EvictedError;
use tidemill_state::memory::prefetch;
use typed_index_collections::TiVec;

/// The stretches of an epoch in access. Its boundaries are in the worker's scratch.
pub struct Stretches {
    /// The time up to which what is due runs; none where it has epochs of its own.
    through: Option<i64>,
    /// The number of events of each input whose rows were noted, by input.
    noted: TiVec<InputId, usize>,
}

impl Stretches {
    /// Begins before the first event of an epoch.
    pub fn of(machine: &Machine, epoch: &Epoch) -> Stretches {
        Stretches { through: epoch.input.due_through, noted: machine.wiring.inputs.iter().map(|_| 0).collect() }
    }

    /// Notes the rows that may have changed since this was done last.
    pub fn note(&mut self, machine: &Machine, epoch: &Epoch) {
        for (id, input) in epoch.work.inputs.iter_enumerated() {
            let events = self.noted[id]..input.ran();
            if !events.is_empty() {
                touched::note_these(machine, epoch, id, events.clone());
                self.noted[id] = events.end;
            }
        }
    }
}

/// Returns whether an epoch is divided: something is due within it, or can be made due by its events. Looks at the rows.
pub fn is_divided(machine: &Machine, boundaries: &mut Boundaries, epoch: &Epoch) -> Result<bool, EvictedError> {
    if !machine.wiring.has_stretches {
        return Ok(false);
    }
    let Some(through) = epoch.input.due_through else { return Ok(epoch.input.due.is_some()) };
    boundaries.forget();
    for due in 0..boundaries.len() {
        look(machine, boundaries, due, None)?;
    }
    let times = Times { first: epoch.input.least_time, ..Times::default() };
    Ok(boundaries.next(times).is_some_and(|boundary| boundary <= through))
}

/// Looks at the rows of a stream: takes those that are due at a boundary, if one is given.
fn look(
    machine: &Machine,
    boundaries: &mut Boundaries,
    due: usize,
    boundary: Option<i64>,
) -> Result<Option<RecordBatch>, EvictedError> {
    let DueRows { events, next } = due_rows(machine, due, boundary)?;
    let at = DueCut { due, boundary: boundary.unwrap_or(i64::MIN) };
    boundaries.looked_at(at, events.is_some(), next);
    Ok(events)
}

/// Returns the times of the events that an epoch is given, by stream, if what is due runs between them.
pub fn times(machine: &Machine, epoch: &Epoch) -> Vec<Option<ScalarBuffer<i64>>> {
    let of = |(number, &stream): (usize, &StreamId)| {
        epoch.input.due_through?;
        let stream = &machine.program.streams[stream];
        let events = epoch.input.sources[number].events.as_ref()?;
        let column = events.column(stream.own_time()?);
        Some(match column.as_primitive_opt::<Int64Type>() {
            Some(units) => units.values().clone(),
            None => column.as_primitive::<TimestampMicrosecondType>().values().clone(),
        })
    };
    machine.wiring.given.iter().enumerate().map(of).collect()
}

impl Cascade<'_> {
    /// Runs an epoch of a program that does not cascade, but for its waves: stretch by stretch.
    pub fn run_stretches(&mut self, order: &[JointRun]) {
        let wiring = &self.machine.wiring;
        let times = times(self.machine, self.epoch);
        let source_of = |joint: &Joint| {
            let root = wiring.inputs[joint.inputs.start].root;
            wiring.given.iter().position(|&given| given == root)
        };
        let sources: TiVec<JointId, _> = wiring.joints.iter().map(source_of).collect();
        let makes: TiVec<JointId, bool> = wiring.joints.iter().map(|joint| makes_due(self.machine, joint)).collect();
        let mut next: TiVec<JointId, usize> = wiring.joints.iter().map(|_| 0).collect();
        let mut views = Vec::new();
        for &JointRun { joint, count } in order {
            let first_input = wiring.joints[joint].inputs.start;
            let times = sources[joint].and_then(|source| times[source].as_ref()).expect("a source with times");
            let time = |cascade: &Self, event| times[cascade.epoch.work.inputs[first_input].row(event)];
            let (mut event, end) = (next[joint], next[joint] + count as usize);
            next[joint] = end;
            while event < end {
                let boundary = self.begin_event(time(self, event), makes[joint]);
                let passes = |event: usize| boundary.is_none_or(|boundary| time(self, event) < boundary);
                // They come in the order of their times.
                let until = if passes(end - 1) { end } else { partition(event..end, passes) };
                assert!(until > event, "what is due before an event has run");
                self.run_blocks(joint, event..until, &mut views);
                event = until;
            }
        }
        self.run_due_through(i64::MAX);
    }

    /// Runs what is due before an event of a time, which runs next; `makes`: whether it can make rows due. Returns the next
    /// boundary then.
    pub fn begin_event(&mut self, time: i64, makes: bool) -> Option<i64> {
        self.run_due_through(time);
        self.stretches.as_ref()?.through?;
        self.scratch.boundaries.passes(Some(time).filter(|_| makes));
        self.scratch.boundaries.next(Times::default())
    }

    /// Runs events of a joint, whose rows are marked.
    fn run_blocks(&mut self, joint: JointId, events: Range<usize>, views: &mut Vec<InputView>) {
        let Cascade { machine, scratch, epoch, .. } = self;
        let wiring = &machine.wiring.joints[joint];
        views.clear();
        scratch.identity.ensure(events.end);
        views.extend(wiring.inputs().map(|id| epoch.work.inputs[id].view(&scratch.identity)));
        scratch.context.write_in_place(true);
        for first in events.clone().step_by(BLOCK) {
            let count = BLOCK.min(events.end - first);
            for id in wiring.inputs() {
                ask(machine, epoch, id, first + BLOCK..first + BLOCK + count);
            }
            #[allow(unsafe_code)]
            // SAFETY: the views are of prepared inputs, whose index, rows and result columns cover these events; this worker
            // alone runs transactions now.
            unsafe {
                (wiring.run)(&mut *scratch.context, views.as_ptr(), first as u64, count as u64);
            }
        }
        drop(scratch.context.drain_order());
        for id in wiring.inputs() {
            epoch.work.inputs[id].run_together(events.clone());
        }
        Epoch::ran(&mut epoch.work.order, joint, events.len() as u32);
    }

    /// Runs what is due at a time or before, and within the epoch, each boundary before the next. If rows cannot be read, nothing
    /// is due any more, and the epoch says why.
    pub fn run_due_through(&mut self, time: i64) {
        if let Err(error) = self.try_run_due_through(time) {
            self.epoch.accessed.unread = Some(error);
            self.stretches.iter_mut().for_each(|stretches| stretches.through = None);
        }
    }

    fn try_run_due_through(&mut self, time: i64) -> Result<(), EvictedError> {
        let Some(through) = self.stretches.as_ref().and_then(|stretches| stretches.through) else { return Ok(()) };
        let through = through.min(time);
        while let Some(boundary) = self.scratch.boundaries.next(Times::default()).filter(|&next| next <= through) {
            self.run_boundary(boundary)?;
        }
        Ok(())
    }

    /// Runs what is due at a boundary: one stream after the other, since the results of one may make rows of the next.
    fn run_boundary(&mut self, boundary: i64) -> Result<(), EvictedError> {
        self.epoch.accessed.boundaries += 1;
        for due in 0..self.scratch.boundaries.len() {
            let at = DueCut { due, boundary };
            if !self.scratch.boundaries.may_be_due(at, Times::default()) {
                continue;
            }
            self.stretches.iter_mut().for_each(|stretches| stretches.note(self.machine, self.epoch));
            if let Some(events) = look(self.machine, &mut self.scratch.boundaries, due, Some(boundary))? {
                self.scratch.boundaries.passes_due(at);
                self.give_due(self.machine.wiring.dues[due], events);
            }
        }
        Ok(())
    }

    /// Runs what is due of a stream, in order.
    pub fn give_due(&mut self, stream: StreamId, events: RecordBatch) {
        let log = self.epoch.work.logs[stream].as_mut().expect("a stream of what is due within epochs has a log");
        let places = log.push_batch(&events);
        // The log points to its texts.
        self.epoch.work.due.push(events);
        let wiring = &self.machine.wiring;
        let joints = wiring.joints_of[stream].clone();
        if wiring.cascades || joints_in(&joints).len() != 1 {
            places.for_each(|place| self.follow(Given::Emitted(stream, place)));
            return;
        }
        let Some((_, arrived)) = self.arrive_all(stream, places).into_iter().next() else { return };
        for id in wiring.joints[joints.start].inputs() {
            let these = Transactions::These(id, arrived.start, arrived.end);
            changes::mark_and_save(self.machine, self.epoch, these);
        }
        self.run_blocks(joints.start, arrived, &mut Vec::new());
    }
}

/// Returns whether events of a joint may change rows that are due at a time.
fn makes_due(machine: &Machine, joint: &Joint) -> bool {
    let is_due = |table| {
        machine.wiring.dues.iter().any(|&due| due_of(&machine.program, due).is_some_and(|due| due.table == table))
    };
    joint.inputs().any(|id| machine.input(id).roles().iter().any(|role| role.written && is_due(role.table)))
}

/// Returns the first of some events that does not pass, where those that do come first.
fn partition(events: Range<usize>, passes: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = events;
    while start < end {
        let middle = start + (end - start) / 2;
        if passes(middle) { start = middle + 1 } else { end = middle }
    }
    start
}

/// Prefetches the rows of events of an input.
fn ask(machine: &Machine, epoch: &Epoch, id: InputId, events: Range<usize>) {
    let input = &epoch.work.inputs[id];
    let events = events.start.min(input.len)..events.end.min(input.len);
    for (r, role) in machine.input(id).roles().iter().enumerate() {
        if role.over.is_none() && machine.tables[role.table].is_far() {
            input.rows[r][events.clone()].iter().for_each(|&row| prefetch(row as *const u8));
        }
    }
}
