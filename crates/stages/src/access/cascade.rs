//! Cascades: follows each event through everything that it causes before the next event starts. Access is serial, one
//! transaction at a time: the keys of a cascaded transaction are known only after the transaction before it has run,
//! and dependent keys and the rows of scans only when their transaction is about to run. Transactions that commit or abort as one are in `nest`.

use crate::access::serial::run_one;
use crate::access::stretches::{self, Stretches};
use crate::access::{indexes, touched};
use crate::epoch::{Epoch, Work};
use crate::given::captured_fields;
use crate::input::Input;
use crate::listed::list;
use crate::machine::{InputContext, Machine, Scratch};
use crate::prepare::changes::{self, Transactions};
use crate::prepare::keys::{Fields, captured_value, resolve_captured, resolve_roles};
use crate::prepare::{computed_of, pipeline_of};
use crate::stream_state::{EventLog, root_view};
use crate::wiring::{InputEvent, InputId, InputWiring, Outlet};
use std::ops::Range;
use tidemill_compile::abi::{InputView, Verdict};
use tidemill_compile::{KeyCode, NativeColumn, OutputPlan};
use tidemill_plan::{Role, RoleId, StreamId};
use tidemill_state::{CellValue, RowAddress, Table};
use typed_index_collections::{TiSlice, TiVec};

/// An event that a transaction emitted: the stream, and its index in the stream's log.
pub(super) type Emitted = (StreamId, usize);

/// An event that is to be followed.
pub(super) enum Given {
    /// Its stream, and its index in the stream's log.
    Emitted(StreamId, usize),
    /// The transactions that it has arrived at.
    Arrived(Vec<InputEvent>),
}

/// Runs a prepared epoch, one event after the other.
pub fn run(machine: &Machine, scratch: &mut Scratch, epoch: &mut Epoch) {
    let stretches = machine.wiring.has_stretches.then(|| Stretches::of(machine, epoch));
    // The order of a program that does not cascade was made without what is due.
    let order = std::mem::take(&mut epoch.work.order);
    let mut cascade = Cascade { machine, scratch, epoch, stretches };
    match machine.wiring.cascades || cascade.epoch.input.due.is_some() {
        true => cascade.run_events(),
        false => cascade.run_stretches(&order),
    }
    cascade.stretches.iter_mut().for_each(|stretches| stretches.note(machine, cascade.epoch));
}

pub(super) struct Cascade<'a> {
    pub machine: &'a Machine,
    pub scratch: &'a mut Scratch,
    pub epoch: &'a mut Epoch,
    /// The stretches of the epoch, if what is due can run within epochs.
    pub stretches: Option<Stretches>,
}

impl Cascade<'_> {
    /// Runs the epoch's events, one after the other.
    fn run_events(&mut self) {
        let machine = self.machine;
        let times = stretches::times(machine, self.epoch);
        let mut rows = vec![0usize; machine.wiring.given.len()];
        let mut next: TiVec<InputId, u32> = machine.wiring.inputs.iter().map(|_| 0).collect();
        for m in 0..self.epoch.input.merge.len() {
            let (source, count) = self.epoch.input.merge[m];
            let root = machine.wiring.given[source as usize];
            if machine.wiring.is_logged_root(root) {
                let events = self.epoch.input.sources[source as usize].events.clone();
                events.into_iter().for_each(|events| self.give_due(root, events));
                continue;
            }
            for _ in 0..count {
                let row = rows[source as usize];
                rows[source as usize] += 1;
                if let Some(times) = &times[source as usize] {
                    self.begin_event(times[row], true);
                }
                let mut emitted = Vec::new();
                for &id in &machine.wiring.deliveries[root] {
                    let input = &self.epoch.work.inputs[id];
                    let event = next[id];
                    if (event as usize) < input.len && input.row(event as usize) == row {
                        next[id] += 1;
                        self.execute(InputEvent { input: id, event }, &mut emitted);
                    }
                }
                emitted.into_iter().for_each(|event| self.follow(event));
            }
        }
        self.run_due_through(i64::MAX);
    }

    /// Processes an emitted event: runs every transaction that it reaches, then follows the events that they emitted.
    pub(super) fn follow(&mut self, given: Given) {
        let mut emitted = Vec::new();
        match given {
            Given::Emitted(stream, place) => {
                for at in self.arrive(stream, place) {
                    self.execute(at, &mut emitted);
                }
            }
            Given::Arrived(arrived) => {
                for at in arrived {
                    self.point(at.input);
                    self.execute(at, &mut emitted);
                }
            }
        }
        emitted.into_iter().for_each(|event| self.follow(event));
    }

    /// Runs a transaction, with those that are nested in it; appends the events that are to be followed.
    fn execute(&mut self, at: InputEvent, emitted: &mut Vec<Given>) {
        self.scratch.noted.clear();
        if self.machine.input(at.input).transaction.is_root() {
            self.nest(at, emitted);
        } else {
            let own = self.run_alone(at);
            emitted.extend(own.into_iter().map(|(stream, place)| Given::Emitted(stream, place)));
        }
    }

    /// Runs the filters and maps on an emitted event; gives the transactions that it arrives at.
    pub fn arrive(&mut self, stream: StreamId, place: usize) -> Vec<InputEvent> {
        let arrived = self.arrive_all(stream, place..place + 1).into_iter();
        arrived.map(|(input, events)| InputEvent { input, event: events.start as u32 }).collect()
    }

    /// Runs the filters and maps on events of a log; gives the transactions that they arrive at: of each input the events that are
    /// new.
    pub fn arrive_all(&mut self, stream: StreamId, places: Range<usize>) -> Vec<(InputId, Range<usize>)> {
        let code = pipeline_of(self.machine, stream);
        let schema = &self.machine.program.streams[stream].schema;
        let mut log = self.epoch.work.logs[stream].take().expect("a stream that is followed has a log");
        let views = log.column_views(schema, &self.epoch.work.lists);
        self.scratch.identity.ensure(log.len);
        let mut pipeline = std::mem::take(&mut self.epoch.work.pipelines[stream]);
        let view = root_view(&views, &self.scratch.identity);
        let elements = self.epoch.work.lists.count(schema, &log.columns, places.clone());
        let selection = &self.scratch.identity.entries()[places.clone()];
        pipeline.run(code, &mut self.scratch.context, &view, Some(selection), places.len(), elements);
        let mut arrived = Vec::new();
        for &id in &self.machine.wiring.deliveries[stream] {
            let wiring = &self.machine.wiring.inputs[id];
            let input = &mut self.epoch.work.inputs[id];
            let node = pipeline.nodes.get_mut(wiring.node);
            let index = input.index.get_or_insert_default();
            match &node {
                Some(n) => index.extend_from_slice(&n.index[input.len..n.len]),
                None => index.extend(places.clone().map(|place| place as u32)),
            }
            let events = input.len..index.len();
            if events.is_empty() {
                continue;
            }
            input.len = events.end;
            let (computed, computed_views) = computed_of(node);
            let fields = Fields {
                arrays: None,
                natives: Some(&log.columns),
                root_schema: schema,
                root_layout: &code.plan.nodes[0].layout,
                node: &code.plan.nodes[wiring.node],
                computed,
                passed: &self.epoch.work.lists,
            };
            let machine = self.machine;
            let keys = &mut self.scratch.keys;
            resolve_roles(&machine.program, wiring, &machine.tables, &fields, input, events.clone(), keys);
            input.ensure_results(events.end);
            input.point(&views, &[], &computed_views);
            arrived.push((id, events));
        }
        self.epoch.work.pipelines[stream] = pipeline;
        self.epoch.work.logs[stream] = Some(log);
        arrived
    }

    /// Tells an input where the columns of its root are now: they have moved if events were emitted since it arrived.
    fn point(&mut self, id: InputId) {
        let &InputWiring { root, node, .. } = &self.machine.wiring.inputs[id];
        let Work { logs, pipelines, inputs, lists, .. } = &mut self.epoch.work;
        let log = logs[root].as_mut().expect("a stream that is followed has a log");
        let views = log.column_views(&self.machine.program.streams[root].schema, lists);
        let (_, computed) = computed_of(pipelines[root].nodes.get_mut(node));
        inputs[id].point(&views, &[], &computed);
    }

    /// Runs one transaction; gives the events that it emitted to streams that lead on to transactions.
    pub fn run_alone(&mut self, at: InputEvent) -> Vec<Emitted> {
        let mut emitted = Vec::new();
        let Cascade { machine, scratch, epoch, .. } = self;
        scratch.identity.ensure(at.event as usize + 1);
        find_late(machine, epoch, at, scratch);
        indexes::note(machine, epoch, at, scratch);
        changes::mark_and_save(machine, epoch, Transactions::One(at));
        run_one(machine, epoch, at, &mut scratch.context, &scratch.identity);
        touched::note_listed(machine, epoch, at);
        forget_scans(machine, epoch, at);
        epoch.work.inputs[at.input].runs(at.event);
        let joint = machine.wiring.joint_of(at.input);
        // One event of a joint stands for all of its transactions.
        if machine.wiring.joints[joint].inputs.start == at.input {
            Epoch::ran(&mut epoch.work.order, joint, 1);
        }
        let InputContext { transaction, code, .. } = machine.input(at.input);
        let leads_on = |stream: StreamId| !machine.wiring.deliveries[stream].is_empty();
        let order: Vec<(u32, u32)> = scratch.context.drain_order().collect();
        if !machine.wiring.cascades {
            // The transactions that the emitted events reach run in later waves, after all events of the epoch.
            return emitted;
        }
        for (number, place) in order {
            let emit = number as usize - code.emit_base;
            let stream = transaction.emits[emit].stream;
            if leads_on(stream) {
                let columns = scratch.context.emissions(number as usize).columns();
                let place = log_one(&mut epoch.work.logs, stream, &code.emits[emit], columns, place, at);
                emitted.push((stream, place));
            }
        }
        self.give_outcome(at, &mut emitted);
        emitted
    }

    /// Logs what is on `committed` or `aborted` of a transaction that has run, if that leads on.
    pub fn give_outcome(&mut self, at: InputEvent, emitted: &mut Vec<Emitted>) {
        let InputContext { transaction, code, .. } = self.machine.input(at.input);
        let Work { logs, inputs, .. } = &mut self.epoch.work;
        let (outlet, stream) = match inputs[at.input].verdicts[at.event as usize] {
            Verdict::COMMITTED => (Outlet::Committed, transaction.committed.stream),
            Verdict::COMMITTED_SILENTLY => return,
            _ => (Outlet::Aborted, transaction.aborted),
        };
        if !self.machine.wiring.deliveries[stream].is_empty() {
            let place = log_one(logs, stream, outlet.plan(code), inputs[at.input].given(outlet), at.event, at);
            emitted.push((stream, place));
        }
    }
}

/// Finds the rows of a transaction that are found late, in the order of roles: reads what they are found by, then looks up
/// dependent keys and lists the rows of roles that are not one row.
fn find_late(machine: &Machine, epoch: &mut Epoch, at: InputEvent, scratch: &mut Scratch) {
    let InputContext { transaction, code, .. } = machine.input(at.input);
    let (input, i) = (&mut epoch.work.inputs[at.input], at.event as usize);
    for (r, role) in transaction.roles.iter().enumerate() {
        if role.scan.is_none() && code.keys[r].is_none() {
            continue;
        }
        scratch.scans.resize_with(scratch.scans.len().max(r + 1), Vec::new);
        let key = code.keys[r].as_ref();
        input.rows[r][i] = match (key, role.each) {
            (Some(key), Some(rows)) => list_for_each(machine, &transaction.roles, key, input, (r, i), rows, scratch),
            (Some(key), None) if role.scan.is_none() => {
                find_row(&machine.tables[role.table], key, input, (r, i), scratch)
            }
            _ => {
                let is_read = key.is_none_or(|key| capture(key, input, (r, i), scratch));
                let values = is_read.then_some((&input.keys[r], i));
                list_rows(machine, role, values, &mut scratch.scans[r])
            }
        };
    }
}

/// Looks up the row of a dependent key; 0 where there is none to read it from.
fn find_row(
    table: &Table,
    key: &KeyCode,
    input: &mut Input,
    (role, i): (usize, usize),
    scratch: &mut Scratch,
) -> RowAddress {
    match capture(key, input, (role, i), scratch) {
        true => resolve_captured(table, &input.keys[role], i),
        false => 0,
    }
}

/// Lists the rows of a role that is for each row of another. To read its key, the row that it is for is put first among
/// those of the other role, and of the roles that are for each of these.
fn list_for_each(
    machine: &Machine,
    roles: &[Role],
    key: &KeyCode,
    input: &mut Input,
    (role, i): (usize, usize),
    rows: RoleId,
    scratch: &mut Scratch,
) -> RowAddress {
    let read: Vec<RoleId> = (rows..role).filter(|&of| of == rows || roles[of].each == Some(rows)).collect();
    let mut found = std::mem::take(&mut scratch.scans[role]);
    let address = list(&mut found, |found| {
        for number in 1..scratch.scans[rows].len() {
            read.iter().for_each(|&of| scratch.scans[of].swap(1, number));
            found.push(find_row(&machine.tables[roles[role].table], key, input, (role, i), scratch));
            read.iter().for_each(|&of| scratch.scans[of].swap(1, number));
        }
    });
    scratch.scans[role] = found;
    address
}

/// Captures what the rows of a role are found by; false where there is no row to read it from.
fn capture(key: &KeyCode, input: &mut Input, (role, i): (usize, usize), scratch: &mut Scratch) -> bool {
    let captures: Vec<_> = input.keys[role].iter_mut().map(NativeColumn::view).collect();
    let mut verdict = Verdict::COMMITTED;
    let verdicts = std::ptr::from_mut(&mut verdict).wrapping_sub(i);
    let view = InputView { captures: captures.as_ptr(), verdicts, ..input.view(&scratch.identity) };
    #[allow(unsafe_code)]
    // SAFETY: as for the transaction itself (`run_one`). The code reads the rows of earlier roles, and writes a key
    // and a verdict to the event's places in their columns; all of them exist.
    unsafe {
        (key.run)(&mut *scratch.context, &view, i as u64, 1);
    }
    verdict.is_committed()
}

/// Lists the rows of a role that is not one row, by the values that its selection was captured with; none of them without
/// these. Gives the address of the list ([`InputView::rows`]), which is good until the next transaction.
fn list_rows(
    machine: &Machine,
    role: &Role,
    values: Option<(&Vec<NativeColumn>, usize)>,
    rows: &mut Vec<RowAddress>,
) -> RowAddress {
    list(rows, |rows| {
        let Some((columns, i)) = values else { return };
        let values: Vec<CellValue<'_>> = columns.iter().map(|column| captured_value(column, i)).collect();
        let indexes = &mut machine.column_indexes[role.table].lock();
        #[allow(unsafe_code)]
        // SAFETY: a program that scans follows its events one by one, on this worker; no transaction runs now. It is
        // refused where rows may be evicted.
        unsafe {
            machine.tables[role.table].select(&role.selection, &values, indexes, rows);
        }
    })
}

/// Takes the addresses of the lists away, which the next transaction makes anew.
fn forget_scans(machine: &Machine, epoch: &mut Epoch, at: InputEvent) {
    let roles = machine.input(at.input).roles();
    for (r, _) in roles.iter().enumerate().filter(|(_, role)| role.scan.is_some()) {
        epoch.work.inputs[at.input].rows[r][at.event as usize] = 0;
    }
}

/// Appends an event to the log of a stream that leads on; returns its place in the log.
fn log_one(
    logs: &mut TiSlice<StreamId, Option<EventLog>>,
    stream: StreamId,
    plan: &OutputPlan,
    columns: &[NativeColumn],
    at: u32,
    owner: InputEvent,
) -> usize {
    let log = logs[stream].as_mut().expect("a stream that leads on has a log");
    log.push(&captured_fields(plan), columns, at as usize, owner);
    log.len - 1
}
