//! The serial interpreter of a [`Program`]: the oracle every execution is held to.
//!
//! It processes one event after the other in position order, each with its whole cascade, on plain
//! ordered maps. It is small and slow on purpose, and shares no code with the engine beyond the
//! program: a mistake that both make in the same way would go unnoticed.
//!
//! Where the program's comments leave a choice, this crate takes the simplest:
//!
//! - An event is *on* a stream (and on the streams derived from it) from the moment at which its
//!   transaction commits or aborts. So a stream's output is in the order of emission, and what is
//!   derived from it in the same order.
//! - A key is null as a whole as soon as one of its columns is: no key column of it is readable, and
//!   an abort shows none of them.
//! - Deleting a missing row aborts also where writes would create it.
//! - Late events are on their `late` stream in the order of their positions, and on no other but what is made of that.
//!   Greatest time minus lateness is taken without overflow.
//! - Floats come out as the processor gives them. Which NaN an operation gives is not defined, so
//!   comparisons with the reference have to take all NaNs for one.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arithmetic;
mod aside;
mod batches;
mod dates;
mod due;
mod exact;
mod expression;
mod flow;
mod limits;
mod moments;
pub mod order;
mod periods;
mod records;
mod selection;
mod synopsis;
mod table;
mod texts;
mod trace;
mod transaction;
mod window;

use std::collections::BTreeMap;
use table::Table;
use tidemill_model::{Position, Type, Value, least_time};
use tidemill_plan::{Origin, Program, StreamId, TableId, TransactionId, with_deep_stack};
pub use trace::{Step, TransactionTrace};
use typed_index_collections::{TiSlice, TiVec, ti_vec};
pub use window::text as window_text;

/// The values of an event or row, in the order of its schema or columns.
type Record = Vec<Value>;

/// The outcomes of the events that one transaction ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// The number that committed.
    pub committed: u64,
    /// The numbers that aborted, by index into [`tidemill_plan::Transaction::reasons`].
    pub aborted: Vec<u64>,
}

/// The state of an application and all that it has emitted.
pub struct Reference<'p> {
    program: &'p Program,
    tables: TiVec<TableId, Table>,
    /// The events of each stream, by stream.
    outputs: TiVec<StreamId, Vec<Record>>,
    /// The number of events of all sources that were processed: of the punctual ones and, where late ones are inputs, these.
    passed: u64,
    /// The place of the event of a source that is processed.
    place: Option<i64>,
    /// The counts of each transaction, by transaction.
    counts: TiVec<TransactionId, TransactionCounts>,
    /// The state of each split, by split: the first of each source, then those that joined.
    sources: Vec<Source>,
    /// Late and bad records of sources in splits that wait for their order.
    aside: aside::Waiting,
    /// The greatest time of an event that was processed.
    last_time: Option<i64>,
    /// The time of the greatest position that has run: that of what is sent.
    anchor: Option<i64>,
    /// The streams of batches.
    batches: Vec<batches::Batching>,
    /// A flag: whether rows of tables are due at times.
    has_due: bool,
    /// The traces of the event at hand, if they are to be noted.
    traces: Option<Vec<TransactionTrace>>,
}

/// An event that is held.
struct Held {
    record: Record,
    /// A flag: whether it is late, and stands at another time than it holds.
    is_late: bool,
}

/// The state of a source, or of one of its splits: how far it was read.
struct Source {
    /// The number of the source, and the number of the split in the source.
    place: (usize, usize),
    stream: StreamId,
    offset: u64,
    /// The next counter, without event time.
    counter: i64,
    /// Its events are sent, and have anchored positions: none has a counter.
    is_sent: bool,
    /// The greatest time of an event that was not late.
    time_max: Option<i64>,
    /// Nothing with a time below comes any more.
    punctuated: i64,
    /// The mark with which it began.
    begin: i64,
    /// A flag: whether it is a split of a source that may have several.
    is_split: bool,
    /// A flag: whether nothing comes any more; and below, whether further splits of its source may join.
    ended: bool,
    is_open: bool,
    /// Admitted and not let through, by time and offset.
    held: BTreeMap<(i64, u64), Held>,
    /// Its late events, where they are inputs: their stream, and the type of times.
    late: Option<(StreamId, Type)>,
    /// Events with smaller offsets were held when it began to stand somewhere: their offsets are not known.
    known_from: u64,
}

impl Source {
    /// Returns the time below which nothing of it comes, as a number without overflow.
    fn mark(&self, lateness: i64) -> i128 {
        let promised = i128::from(self.punctuated.max(self.begin));
        // It is a time, where a lateness is below zero too.
        let of_last = |last: i64| (i128::from(last) - i128::from(lateness)).min(i128::from(i64::MAX));
        self.time_max.map(of_last).map_or(promised, |mark| mark.max(promised))
    }

    /// Returns the time at which a late or bad record stands that comes now.
    fn stands(&self, lateness: i64) -> i64 {
        let mark = i64::try_from(self.mark(lateness)).expect("a mark is a time");
        self.time_max.map_or(mark, |last| last.max(mark))
    }

    /// Returns an event that stands at a time, on the root that it comes on: a late one has this time as a further
    /// field.
    fn event(&self, time: i64, Held { mut record, is_late }: Held) -> (StreamId, Record) {
        let Some((late, ty)) = self.late.filter(|_| is_late) else { return (self.stream, record) };
        record.push(Value::from_word(ty, time));
        (late, record)
    }

    fn new(place: (usize, usize), stream: StreamId) -> Source {
        Source {
            place,
            stream,
            offset: 0,
            counter: 0,
            is_sent: false,
            time_max: None,
            punctuated: i64::MIN,
            begin: i64::MIN,
            is_split: false,
            ended: false,
            is_open: false,
            held: BTreeMap::new(),
            late: None,
            known_from: 0,
        }
    }
}

/// Returns the root of a source's late events, where they are inputs, and the type of times.
fn late_of(program: &Program, source: StreamId) -> Option<(StreamId, Type)> {
    let (id, stream) = program.streams.iter_enumerated().find(|(_, s)| s.origin == Origin::LateRoot(source))?;
    Some((id, stream.schema.fields.last()?.scalar_type()?.ty))
}

/// An event that is next in the order.
#[derive(Clone, Debug, PartialEq)]
pub struct NextEvent {
    /// Its stream.
    pub root: StreamId,
    /// Its place. What is due has the time before its boundary, and no source.
    pub position: Position,
    /// The split of its source.
    pub split: usize,
    /// A flag: whether the offset is that in the source, not only one in the right order.
    pub is_known: bool,
    /// Its values.
    pub event: Vec<Value>,
}

impl<'p> Reference<'p> {
    /// Makes an application before its first event, with empty tables.
    pub fn new(program: &'p Program) -> Self {
        let is_source = |s: &StreamId| matches!(program.streams[*s].origin, Origin::Source { .. });
        let counts = |reasons: &Vec<String>| TransactionCounts { committed: 0, aborted: vec![0; reasons.len()] };
        Reference {
            program,
            tables: program.tables.iter().map(Table::new).collect(),
            outputs: ti_vec![Vec::new(); program.streams.len()],
            passed: 0,
            place: None,
            counts: program.transactions.iter().map(|t| counts(&t.reasons)).collect(),
            sources: program
                .streams
                .keys()
                .filter(is_source)
                .enumerate()
                .map(|(number, stream)| Source { late: late_of(program, stream), ..Source::new((number, 0), stream) })
                .collect(),
            aside: aside::Waiting::default(),
            last_time: None,
            anchor: None,
            batches: batches::all(program),
            has_due: !program.dues().is_empty(),
            traces: None,
        }
    }

    /// Adds a further split of a source, with a mark; none if it is there from the start. It has the next number among
    /// all splits.
    pub fn join(&mut self, source: usize, mark: Option<i64>) {
        let number = self.sources.iter().filter(|of| of.place.0 == source).count();
        let mut split = Source::new((source, number), self.sources[source].stream);
        split.begin = mark.unwrap_or(i64::MIN);
        split.is_split = true;
        split.late = self.sources[source].late;
        self.sources.push(split);
    }

    /// Puts rows (values in column order) into a table, before the first event.
    pub fn preload(&mut self, table: TableId, rows: impl IntoIterator<Item = Vec<Value>>) {
        for row in rows {
            self.tables[table].put(row);
        }
    }

    /// Runs a history: for each source the good records in offset order. Further calls continue where
    /// the last one stopped, as if all their events had come later.
    pub fn run(&mut self, sources: &[Vec<Vec<Value>>]) {
        let mut events = Vec::new();
        for (source, records) in sources.iter().enumerate() {
            for record in records {
                if let Some((position, is_late)) = self.admit(source, record) {
                    events.push((position, Held { record: record.clone(), is_late }));
                }
            }
        }
        events.sort_by_key(|(position, _)| *position);
        with_deep_stack(|| {
            for (position, event) in events {
                if self.has_due {
                    self.run_due(position.time);
                }
                let (root, event) = self.sources[position.source as usize].event(position.time, event);
                self.process_with_batches(root, event);
            }
        });
    }

    /// Returns the position of a split's next record, and whether it is late; none where it is and late events are no
    /// inputs.
    fn admit(&mut self, split: usize, record: &Record) -> Option<(Position, bool)> {
        let state = &mut self.sources[split];
        let stream = &self.program.streams[state.stream];
        let Origin::Source { source, lateness, late, .. } = stream.origin else { unreachable!("chosen as a source") };
        let offset = state.offset;
        state.offset += 1;
        let Some(field) = stream.own_time() else {
            let time = state.counter;
            state.counter += i64::from(!state.is_sent);
            return Some((Position { time, source, offset }, false));
        };
        let time = record[field].word().expect("event time is a time or an int, never null");
        if i128::from(time) < state.mark(lateness) && state.late.is_some() {
            return Some((Position { time: state.stands(lateness), source, offset }, true));
        }
        if i128::from(time) < state.mark(lateness) {
            self.put_aside(split, late, record.clone());
            return None;
        }
        state.time_max = state.time_max.max(Some(time));
        Some((Position { time, source, offset }, false))
    }

    /// Has a source stand where another execution left it: how many records were taken of it, the greatest time
    /// that it had shown (without event times, its last counter), and the events held back, in order.
    pub fn stand(&mut self, source: usize, taken: u64, greatest: Option<i64>, held: Vec<Vec<Value>>) {
        let field = self.program.streams[self.sources[source].stream].own_time();
        let state = &mut self.sources[source];
        (state.offset, state.known_from) = (taken, taken);
        state.time_max = greatest.filter(|_| field.is_some());
        state.counter = greatest.filter(|_| field.is_none()).map_or(0, |last| last + 1);
        let first = taken - held.len() as u64;
        let mut counter = state.counter - if state.is_sent { 0 } else { held.len() as i64 };
        for (offset, event) in (first..).zip(held) {
            let time = field.map_or(Some(counter), |field| event[field].word());
            counter += i64::from(!state.is_sent);
            let time = time.expect("event time is never null");
            state.held.insert((time, offset), Held { record: event, is_late: false });
        }
        if field.is_none() {
            state.known_from = 0;
        }
    }

    /// Has it stand where this number of events of sources were processed.
    pub fn stand_after(&mut self, passed: u64) {
        self.passed = passed;
    }

    /// Has late events that are inputs stand among the events held back, where another execution left them. Each with where
    /// it stands, and how many of the others are before it.
    pub fn stand_late(&mut self, source: usize, late: Vec<(i64, u64, Vec<Value>)>) {
        let state = &mut self.sources[source];
        let all = (state.held.len() + late.len()) as u64;
        let others = std::mem::take(&mut state.held);
        let others = (0u64..).zip(others).map(|(n, ((time, _), held))| ((n, 1), time, held));
        let late = late.into_iter().map(|(time, after, record)| ((after, 0), time, Held { record, is_late: true }));
        let mut in_order: Vec<_> = others.chain(late).collect();
        in_order.sort_by_key(|(place, ..)| *place);
        for (offset, (_, time, held)) in (state.offset - all..).zip(in_order) {
            state.held.insert((time, offset), held);
        }
    }

    /// Takes a punctuation of a source: no event with a time below comes any more.
    pub fn punctuate(&mut self, source: usize, time: i64) {
        let state = &mut self.sources[source];
        state.punctuated = state.punctuated.max(time);
    }

    /// Says whether the events of a source without event times are sent from now on, and have anchored positions. Those
    /// that are held change with it.
    pub fn send(&mut self, source: usize, is_sent: bool) {
        let has_time = |of: &Source| self.program.streams[of.stream].own_time().is_some();
        if has_time(&self.sources[source]) || self.sources[source].is_sent == is_sent {
            return;
        }
        // A source that is read from now on joins after what was let through.
        let counted = self.sources.iter().filter(|of| !has_time(of) && !of.is_sent);
        let joins = counted.map(|of| of.counter - of.held.len() as i64).max().unwrap_or(0);
        let state = &mut self.sources[source];
        state.is_sent = is_sent;
        if !is_sent {
            state.counter = state.counter.max(joins);
        }
        for ((_, offset), event) in std::mem::take(&mut state.held) {
            state.held.insert((state.counter, offset), event);
            state.counter += i64::from(!is_sent);
        }
    }

    /// Takes a source's next record; it is held back until it is let through. False where it is late, and late events are no
    /// inputs.
    pub fn take(&mut self, source: usize, record: Vec<Value>) -> bool {
        let position = self.admit(source, &record);
        if let Some((Position { time, offset, .. }, is_late)) = position {
            self.sources[source].held.insert((time, offset), Held { record, is_late });
        }
        position.is_some()
    }

    /// Returns the first event in position order among the next `passing` of each source that is not sent, which then
    /// has one less. None where all are 0; panics where more are let through than are held.
    pub fn next_event(&mut self, passing: &mut [u64]) -> Option<NextEvent> {
        let first = |s: &usize| *self.sources[*s].held.keys().next().expect("what is let through is held");
        let open = (0..passing.len()).filter(|&s| passing[s] > 0 && !self.sources[s].is_sent);
        let source = open.min_by_key(|s| (first(s).0, self.sources[*s].place))?;
        passing[source] -= 1;
        Some(self.next_of(source))
    }

    /// Returns the time of the event that [`Reference::next_event`] gives.
    pub fn next_time(&self, passing: &[u64]) -> Option<i64> {
        let first = |s: usize| Some(self.sources[s].held.keys().next()?.0);
        let open = (0..passing.len()).filter(|&s| passing[s] > 0 && !self.sources[s].is_sent);
        open.filter_map(first).min()
    }

    /// Returns the next held event of a source; panics if there is none.
    pub fn next_of(&mut self, source: usize) -> NextEvent {
        let state = &mut self.sources[source];
        let ((time, offset), event) = state.held.pop_first().expect("just looked at");
        let is_known = offset >= state.known_from;
        let (root, event) = state.event(time, event);
        let (source, split) = state.place;
        NextEvent { root, position: Position { time, source: source as u32, offset }, split, is_known, event }
    }

    /// Has what is sent from now on stand at this time, if it stood where another execution left it.
    pub fn anchor(&mut self, time: Option<i64>) {
        self.anchor = self.anchor.max(time);
    }

    /// Returns the time at which what is sent stands now; none as long as no time was shown.
    pub fn anchored(&self) -> Option<i64> {
        self.anchor
    }

    /// Gives an event that is run next the time of its position, where it has a field for that.
    pub fn fill(&self, next: &mut NextEvent) {
        let stream = &self.program.streams[next.root];
        if let Some(field) = stream.filled_time() {
            let ty = stream.schema.fields[field].scalar_type().expect("a time is a scalar").ty;
            next.event[field] = Value::from_word(ty, self.anchor.unwrap_or_else(|| least_time(ty)));
        }
    }

    /// Runs an event that was let through, with its whole cascade.
    pub fn process(&mut self, mut next: NextEvent) {
        self.fill(&mut next);
        let stream = &self.program.streams[next.root];
        match (&stream.origin, stream.filled_time()) {
            (_, Some(_)) => {}
            // Behind a result that completes with an instant, the next one begins.
            (Origin::Batch(_), None) => self.anchor(next.position.time.checked_add(1)),
            (Origin::Due(due), None) if !due.begins_instant() => self.anchor(next.position.time.checked_add(1)),
            (Origin::Due(_), None) => self.anchor(Some(next.position.time)),
            (_, None) if stream.own_time().is_some() => self.anchor(Some(next.position.time)),
            (_, None) => {}
        }
        self.process_with_batches(next.root, next.event);
    }

    /// Processes an event, noting everything that its transactions do.
    pub fn process_traced(&mut self, next: NextEvent) -> Vec<TransactionTrace> {
        self.traces = Some(Vec::new());
        self.process(next);
        self.traces.take().unwrap_or_default()
    }

    /// Returns the number of events of a source that are held back.
    pub fn held(&self, source: usize) -> u64 {
        self.sources[source].held.len() as u64
    }

    /// Returns the number of records of a source that were taken.
    pub fn taken(&self, source: usize) -> u64 {
        self.sources[source].offset
    }

    /// Takes away everything that was emitted on a stream so far, in order.
    pub fn take_output(&mut self, stream: StreamId) -> Vec<Vec<Value>> {
        std::mem::take(&mut self.outputs[stream])
    }

    /// Returns everything that was emitted on a stream so far, in order.
    pub fn output(&self, stream: StreamId) -> &[Vec<Value>] {
        &self.outputs[stream]
    }

    /// Returns the rows of a table in the order of their keys, values in column order.
    pub fn table(&self, table: TableId) -> Vec<Vec<Value>> {
        self.tables[table].rows()
    }

    /// Returns the numbers of events that committed and aborted, by transaction.
    pub fn counts(&self) -> &TiSlice<TransactionId, TransactionCounts> {
        &self.counts
    }
}
