//! Rows that wake within an epoch, between the events of sources.
//!
//! **What.** Where nothing else is due ([`tidemill_plan::Program::wakes_within`]), an epoch that follows its events one by
//! one runs each wake at its place: before the first event of its time or a later one, and at the end of the epoch those up
//! to its punctuation ([`crate::epoch::EpochInput::wakes`]).
//!
//! **Invariant.** Between two transactions, `next` is the least time at which a row is due, unless rows were touched since.
//! When an epoch with wakes is over, no row is due at its punctuation or before.
//!
//! **How.** The rows that a transaction may have changed are noted at once, not at the end of the epoch, so a wake that is
//! set within the epoch is found, too. A transaction that can set none so early sets none in these terms: its rows are noted at
//! the end. All rows of a table and a time are taken before the first of them runs. A row that
//! wakes is an event in the log of its stream, like one that a transaction emitted.
//!
//! Where the program does not cascade, events that set no wake run in blocks up to the next wake, and what follows from events
//! comes in waves (`access/waves.rs`): what follows in a wave shares no table with what wakes, so it sets no wake.
//!
//! **Given up.** Such epochs run on one worker. One in which no row can wake runs under any policy.

use crate::access::cascade::{Cascade, Given};
use crate::access::serial::BLOCK;
use crate::access::touched;
use crate::due::due_of;
use crate::epoch::{Epoch, JointRun};
use crate::machine::Machine;
use crate::prepare::changes::{Transactions, each_written};
use crate::wiring::{InputEvent, InputId, Joint, JointId};
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_buffer::ScalarBuffer;
use parking_lot::Mutex;
use std::ops::Range;
use tidemill_compile::NativeColumn;
use tidemill_compile::abi::InputView;
use tidemill_model::Type;
use tidemill_plan::{Bound, Due, StreamId};
use tidemill_state::memory::prefetch;
use tidemill_state::{CellValue, Earliest, EvictedError, RowAddress};
use typed_index_collections::TiVec;

/// The rows that wake within an epoch.
pub struct Wakes {
    /// Rows wake up to this time; none where they have epochs of their own.
    through: Option<i64>,
    /// The least time at which a row is due, as far as it is known.
    next: Option<i64>,
    /// A flag: whether rows were touched since `next` was found.
    is_stale: bool,
    /// A flag for each input: whether its transactions may have a row wake within the epoch.
    sets: TiVec<InputId, bool>,
    /// The rows that wake together.
    rows: Vec<RowAddress>,
}

impl Wakes {
    /// Finds the rows that wake in an epoch that is about to run.
    pub fn of(machine: &Machine, epoch: &Epoch) -> Wakes {
        let range = epoch.input.least_time.zip(epoch.input.wakes);
        let is_within = |due: &Due| range.is_none_or(|(first, through)| is_made(due, first, through));
        let sets = |id: InputId| {
            // Rows that wake may be earlier than all events.
            let is_of_source = machine.wiring.sources.contains(&machine.wiring.inputs[id].root);
            let is_set =
                |table| dues(machine).any(|(_, _, due)| due.table == table && (!is_of_source || is_within(due)));
            machine.input(id).roles().iter().any(|role| role.written && is_set(role.table))
        };
        let sets = machine.wiring.inputs.keys().map(sets).collect();
        Wakes { through: epoch.input.wakes, next: None, is_stale: true, sets, rows: Vec::new() }
    }

    /// Notes the rows of which no change mattered within the epoch, which is over.
    pub fn note_others(self, machine: &Machine, epoch: &Epoch) {
        touched::note_of(machine, epoch, self.sets.iter_enumerated().filter(|(_, sets)| !**sets).map(|(id, _)| id));
    }

    /// Notes the rows that a transaction may have changed, which has just run.
    pub fn note(&mut self, machine: &Machine, epoch: &Epoch, at: InputEvent) {
        if !self.sets[at.input] {
            return;
        }
        self.is_stale = true;
        each_written(machine, epoch, Transactions::One(at), |table, rows| {
            for (index, _, _) in dues(machine).filter(|(_, _, due)| due.table == table) {
                #[allow(unsafe_code)]
                // SAFETY: the rows of a role are slots of its table, which is the one of the stream.
                unsafe {
                    index.lock().touch(rows);
                }
            }
        });
    }

    /// Returns the least time at which a row is due, if it is not after `time` and the epoch's own.
    fn due_by(&mut self, machine: &Machine, time: i64) -> Result<Option<i64>, EvictedError> {
        let Some(through) = self.through.map(|through| through.min(time)) else { return Ok(None) };
        if self.is_stale {
            (self.next, self.is_stale) = (least_due(machine)?, false);
        }
        Ok(self.next.filter(|&next| next <= through))
    }
}

/// Returns the streams of what is due: what finds the rows, the stream, its declaration.
fn dues(machine: &Machine) -> impl Iterator<Item = (&Mutex<Earliest>, StreamId, &Due)> {
    machine.wiring.dues.iter().zip(&machine.due_rows).filter_map(|(&stream, index)| {
        let due = due_of(&machine.program, stream)?;
        Some((index.as_ref()?, stream, due))
    })
}

/// Returns the least time at which a row is due. Fails if evicted rows cannot be read: there are some in the replay of
/// a log that was written without a memory limit, with one.
fn least_due(machine: &Machine) -> Result<Option<i64>, EvictedError> {
    let mut least = None;
    for (index, _, due) in dues(machine) {
        let none = |_| unreachable!("no row has no time");
        let next = index.lock().take_each(&machine.tables[due.table], None, none)?;
        least = [least, next].into_iter().flatten().min();
    }
    Ok(least)
}

/// Returns whether an event from a time on can have a row due at another time or before.
fn is_made(due: &Due, first: i64, through: i64) -> bool {
    matches!(due.bound, Bound::Wakes { .. }) && due.bound.after(first).is_some_and(|made| made <= through)
}

/// Returns whether rows wake in an epoch, or can.
pub fn run_within(machine: &Machine, epoch: &Epoch) -> Result<bool, EvictedError> {
    if !machine.wiring.wakes_within {
        return Ok(false);
    }
    let Some(through) = epoch.input.wakes else { return Ok(epoch.input.due.is_some()) };
    let first = epoch.input.least_time;
    let can_be = |due: &Due| first.is_some_and(|first| is_made(due, first, through));
    Ok(dues(machine).any(|(_, _, due)| can_be(due)) || least_due(machine)?.is_some_and(|next| next <= through))
}

/// Returns the times of the events that an epoch is given, by stream, if rows wake between them.
pub fn times(machine: &Machine, epoch: &Epoch) -> Vec<Option<ScalarBuffer<i64>>> {
    let of = |(number, &stream): (usize, &StreamId)| {
        epoch.input.wakes?;
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
    /// Runs an epoch of a program that does not cascade, but for its waves: the events in their order, and what wakes between
    /// them.
    pub fn run_between_wakes(&mut self, order: &[JointRun]) {
        let machine = self.machine;
        let wiring = &machine.wiring;
        let wakes = self.wakes.as_ref().expect("rows wake within the epoch");
        let sets: TiVec<JointId, bool> =
            wiring.joints.iter().map(|joint| joint.inputs().any(|id| wakes.sets[id])).collect();
        let times = times(machine, self.epoch);
        let source_of = |joint: &Joint| {
            let root = wiring.inputs[joint.inputs.start].root;
            wiring.given.iter().position(|&given| given == root)
        };
        let sources: TiVec<JointId, _> = wiring.joints.iter().map(source_of).collect();
        let mut next: TiVec<JointId, usize> = wiring.joints.iter().map(|_| 0).collect();
        let mut views = Vec::new();
        for &JointRun { joint, count } in order {
            let Joint { inputs, .. } = &wiring.joints[joint];
            let times = sources[joint].and_then(|source| times[source].as_ref()).expect("a source with times");
            let (mut event, end) = (next[joint], next[joint] + count as usize);
            next[joint] = end;
            while event < end {
                let time = |cascade: &Self, event| times[cascade.epoch.work.inputs[inputs.start].row(event)];
                self.wake_through(time(self, event));
                if sets[joint] {
                    for id in wiring.joints[joint].inputs() {
                        self.run_alone(InputEvent { input: id, event: event as u32 });
                    }
                    event += 1;
                    continue;
                }
                let woken = self.wakes.as_ref().and_then(|wakes| wakes.next);
                let passes = |event: usize| woken.is_none_or(|woken| time(self, event) < woken);
                let until = if passes(end - 1) {
                    end
                } else {
                    (event..end).position(|e| !passes(e)).map_or(end, |n| event + n)
                };
                assert!(until > event, "what is due before an event has run");
                self.run_blocks(joint, event..until, &mut views);
                event = until;
            }
        }
        self.wake_through(i64::MAX);
    }

    /// Runs events that set no wake.
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

    /// Runs the rows that are due at a time or before, and within the epoch, each time before the next. If they cannot be read,
    /// none runs any more, and the epoch says why.
    pub fn wake_through(&mut self, time: i64) {
        if let Err(error) = self.try_wake_through(time) {
            self.epoch.accessed.unread = Some(error);
            self.wakes.iter_mut().for_each(|wakes| (wakes.through, wakes.next) = (None, None));
        }
    }

    fn try_wake_through(&mut self, time: i64) -> Result<(), EvictedError> {
        let machine = self.machine;
        let Some(wakes) = &mut self.wakes else { return Ok(()) };
        let mut next = wakes.due_by(machine, time)?;
        while let Some(at) = next {
            for (index, stream, due) in dues(machine) {
                self.wake(index, stream, due, at)?;
            }
            let wakes = self.wakes.as_mut().expect("looked at above");
            // The least due time is unknown after due rows were taken.
            wakes.is_stale = true;
            next = wakes.due_by(machine, time)?;
        }
        Ok(())
    }

    /// Runs the rows of a stream that are due at a time.
    fn wake(&mut self, index: &Mutex<Earliest>, stream: StreamId, due: &Due, at: i64) -> Result<(), EvictedError> {
        let table = &self.machine.tables[due.table];
        let mut rows = self.wakes.as_mut().map(|wakes| std::mem::take(&mut wakes.rows)).unwrap_or_default();
        index.lock().take_each(table, Some(at), |row| rows.push(row))?;
        let parts = table.definition().key.len();
        #[allow(unsafe_code)]
        // SAFETY: the rows are slots of the table, and none is freed while an epoch runs.
        let part = |row: RowAddress, part: usize| unsafe { table.key_part(row, part) };
        rows.sort_unstable_by(|&a, &b| {
            let parts = (0..parts).map(|p| part(a, p).partial_cmp(&part(b, p)).expect("keys can be compared"));
            parts.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        let log = self.epoch.work.logs[stream].as_mut().expect("a stream of rows that wake has a log");
        let first = log.len;
        for &row in &rows {
            let place = log.push_empty();
            let (time, key) = log.columns.split_last_mut().expect("an event has its time");
            time.set_word(place, at as u64);
            for (p, column) in key.iter_mut().enumerate() {
                match part(row, p) {
                    CellValue::Text(text) => column.set_text(place, text),
                    CellValue::Word(word) => column.set_word(place, word as u64),
                    CellValue::Float(_) | CellValue::None => unreachable!("a part of a key is a word or a text"),
                }
            }
        }
        let places = first..first + rows.len();
        rows.clear();
        self.wakes.iter_mut().for_each(|wakes| wakes.rows = std::mem::take(&mut rows));
        places.for_each(|place| self.follow(Given::Emitted(stream, place)));
        Ok(())
    }

    /// Runs the rows of an epoch of their own, which the gate has found.
    pub fn wake_given(&mut self, number: usize, stream: StreamId) {
        let Some(events) = self.epoch.input.sources[number].events.clone() else { return };
        let log = self.epoch.work.logs[stream].as_mut().expect("a stream of rows that wake has a log");
        let first = log.len;
        for row in 0..events.num_rows() {
            let place = log.push_empty();
            let columns = log.columns.iter_mut().zip(events.columns());
            columns.for_each(|(column, from)| copy(column, place, from, row));
        }
        (first..first + events.num_rows()).for_each(|place| self.follow(Given::Emitted(stream, place)));
    }
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

/// Copies a part of a key, or the time.
fn copy(column: &mut NativeColumn, place: usize, from: &ArrayRef, row: usize) {
    match column.ty().ty {
        // The batch stays until the epoch is over.
        Type::Str => column.set_text(place, from.as_string::<i32>().value(row).as_bytes()),
        Type::Bytes => column.set_text(place, from.as_binary::<i32>().value(row)),
        Type::Bool => column.set_word(place, u64::from(from.as_boolean().value(row))),
        Type::Int => column.set_word(place, from.as_primitive::<Int64Type>().value(row) as u64),
        Type::Time => column.set_word(place, from.as_primitive::<TimestampMicrosecondType>().value(row) as u64),
        Type::Decimal { .. } => column.set_word(place, from.as_primitive::<Decimal128Type>().value(row) as u64),
        Type::Float | Type::Duration | Type::Null => unreachable!("no part of a key is {}", column.ty().ty),
    }
}
