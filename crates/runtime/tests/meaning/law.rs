//! The one law of `docs/formalism.md`, step by step: whatever has a position runs in the order of positions, each with its
//! whole cascade before the next. Operators keep every event that they were given, and nothing else.

use super::declared::{BatchOf, Declared, Derives, Does, Event, Feed, Node, Run, Size};
use super::operators::State;
use std::collections::{BTreeMap, VecDeque};
use tidemill_model::Value;

/// A way in which the law can be wrong: each is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A window closes at its end, not one unit before.
    ClosesAtEnd,
    /// Groups close in the order of their keys.
    GroupsByKey,
    /// A session takes an event that comes as long after the last as its gap.
    GapIsWithin,
    /// A pair may be as far apart as the join is within.
    WithinIsReached,
    /// A late event stands at its own time.
    LateAtOwnTime,
    /// An event is followed only after all others of its cascade that were emitted before.
    BreadthFirst,
    /// Rows wake when all else of their instant is over.
    WakesLast,
    /// There is an early result where the window closes.
    EarlyAtClose,
    /// The last of equals is in a top first.
    LastOfEquals,
    /// A repeat makes what follows repeats, too.
    RepeatsRepeat,
    /// Windows without events close before the others.
    EmptyFirst,
    /// The offset decides before the split, at one time.
    OffsetBeforeSplit,
    /// An unmatched event comes out one unit late.
    UnmatchedLate,
    /// Groups close in the order of their first event ever.
    GroupsByFirstEver,
    /// Emissions of a transaction stand although its nest aborted.
    NestsLeak,
    /// Ticks run after the wakes of their instant.
    WakesBeforeTicks,
}

impl Mistake {
    pub const ALL: [Mistake; 16] = [
        Mistake::ClosesAtEnd,
        Mistake::GroupsByKey,
        Mistake::GapIsWithin,
        Mistake::WithinIsReached,
        Mistake::LateAtOwnTime,
        Mistake::BreadthFirst,
        Mistake::WakesLast,
        Mistake::EarlyAtClose,
        Mistake::LastOfEquals,
        Mistake::RepeatsRepeat,
        Mistake::EmptyFirst,
        Mistake::OffsetBeforeSplit,
        Mistake::UnmatchedLate,
        Mistake::GroupsByFirstEver,
        Mistake::NestsLeak,
        Mistake::WakesBeforeTicks,
    ];
}

/// The number of results by kind.
pub type Tally = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub acc: i64,
    /// The time at which the row wakes.
    pub wake: Option<i64>,
    /// Slices and values of its windowed column.
    pub added: Vec<(i64, i64)>,
}

/// A record at its position.
struct Record {
    time: i64,
    /// The numbers of source, split and offset, or of what a record that is not read has in their place.
    place: (usize, usize, usize),
    feed: Feed,
    event: Event,
}

/// A step that is next in the order.
enum Step {
    Record,
    Tick,
    Wake(usize, i64),
    Results(usize),
    Batch(usize),
}

pub struct Law<'a> {
    pub(super) declared: &'a Declared,
    pub(super) mistake: Option<Mistake>,
    /// The time of the position at hand.
    pub(super) now: i64,
    /// The least and the greatest shown time.
    pub(super) shown: Option<(i64, i64)>,
    pub tables: Vec<BTreeMap<i64, Row>>,
    pub(super) states: Vec<State>,
    /// The number of complete batches and the events of the next, by stream of batches.
    batches: Vec<(i64, Vec<Event>)>,
    next_tick: Option<i64>,
    pub outputs: BTreeMap<Feed, Vec<Event>>,
    pub tally: Tally,
}

impl<'a> Law<'a> {
    /// Runs a whole history: the records of each source and split.
    pub fn run(declared: &'a Declared, records: &[Vec<Vec<Event>>], mistake: Option<Mistake>) -> Law<'a> {
        let (records, shown) = positions(records, declared, mistake);
        let mut law = Law {
            declared,
            mistake,
            now: i64::MIN,
            shown,
            tables: vec![BTreeMap::new(); declared.tables.len()],
            states: declared.nodes.iter().map(|_| State::default()).collect(),
            batches: vec![(0, Vec::new()); declared.batches.len()],
            next_tick: declared
                .ticks
                .zip(shown)
                .map(|((period, origin), (least, _))| (least - origin).div_euclid(period) * period + origin + period),
            outputs: BTreeMap::new(),
            tally: Tally::new(),
        };
        law.open_rows();
        law.run_all(records);
        law.close_counts();
        law
    }

    fn run_all(&mut self, mut records: VecDeque<Record>) {
        while let Some((time, step)) = self.next(records.front()) {
            assert!(time >= self.now, "positions grow");
            self.now = time;
            match step {
                Step::Record => {
                    let Record { feed, event, .. } = records.pop_front().expect("it is next");
                    let what = if matches!(feed, Feed::Late(_)) { "late input" } else { "record" };
                    self.count(what);
                    let (Feed::Source(source) | Feed::Late(source)) = feed else { unreachable!("it is of a source") };
                    if self.declared.sources[source].splits > 1 {
                        self.count("record of several splits");
                    }
                    self.process_new(feed, event.clone());
                    self.fill_batches(feed, &event);
                }
                Step::Tick => {
                    let (period, _) = self.declared.ticks.expect("there are ticks");
                    self.next_tick = Some(time + period);
                    self.process_new(Feed::Ticks, at(Event::made(None, None, 0), time));
                }
                Step::Wake(table, key) => {
                    self.tables[table].get_mut(&key).expect("it waits").wake = None;
                    self.process_new(Feed::Woken(table), at(Event::made(Some(key), None, 0), time));
                }
                Step::Results(node) => {
                    self.states[node].due.remove(&time);
                    for (feed, event) in self.results(node) {
                        self.process_new(feed, event);
                    }
                }
                Step::Batch(batch) => self.process_batch(batch),
            }
        }
    }

    /// Returns the least position that is left: time, phase, and the place there.
    fn next(&self, record: Option<&Record>) -> Option<(i64, Step)> {
        let horizon = self.shown.map(|(_, horizon)| horizon);
        let mut all = Vec::new();
        all.extend(record.map(|record| ((record.time, 1, 0, 0, 0), Step::Record)));
        let beyond = |time: &i64| horizon.is_none_or(|horizon| *time > horizon);
        let ticks = if self.mistake == Some(Mistake::WakesBeforeTicks) { 2 } else { 0 };
        all.extend(self.next_tick.filter(|time| !beyond(time)).map(|time| ((time, 0, ticks, 0, 0), Step::Tick)));
        let phase = if self.mistake == Some(Mistake::WakesLast) { 3 } else { 0 };
        for (table, rows) in self.tables.iter().enumerate() {
            let wakes = rows.iter().filter_map(|(&key, row)| Some((row.wake?, key)));
            let wakes = wakes.filter(|(time, _)| !beyond(time));
            all.extend(wakes.map(|(time, key)| ((time, phase, 1, table, key), Step::Wake(table, key))));
        }
        for (node, state) in self.states.iter().enumerate() {
            all.extend(state.due.first().map(|&time| ((time, 2, 0, node, 0), Step::Results(node))));
        }
        for batch in 0..self.batches.len() {
            let node = self.declared.nodes.iter().position(|node| node.inputs == [Feed::Batch(batch)]);
            let end = self.batch_end(batch).zip(node);
            all.extend(end.map(|(end, node)| ((end - 1, 2, 0, node, 0), Step::Batch(batch))));
        }
        all.into_iter().min_by_key(|(position, _)| *position).map(|((time, ..), step)| (time, step))
    }

    /// Returns the end of a batch that has events.
    fn batch_end(&self, batch: usize) -> Option<i64> {
        let (_, events) = &self.batches[batch];
        let first = events.first()?.at?;
        let (_, horizon) = self.shown?;
        Some(match self.declared.batches[batch].size {
            Size::Count(_) => horizon + 1,
            Size::Time { length, origin } => (first - origin).div_euclid(length) * length + origin + length,
        })
    }

    fn fill_batches(&mut self, feed: Feed, event: &Event) {
        for (batch, &BatchOf { source, size }) in self.declared.batches.iter().enumerate() {
            if feed == Feed::Source(source) {
                let (_, events) = &mut self.batches[batch];
                events.push(event.clone());
                if matches!(size, Size::Count(count) if events.len() as u64 == count) {
                    self.process_batch(batch);
                }
            }
        }
    }

    fn process_batch(&mut self, batch: usize) {
        let (complete, events) = &mut self.batches[batch];
        *complete += 1;
        // Its events are what the transaction is given, in its further fields.
        let numbers = std::mem::take(events).into_iter().map(|event| Value::Int(event.number)).collect();
        let event = Event { more: numbers, ..Event::made(None, None, *complete) };
        self.process_new(Feed::Batch(batch), event);
    }

    pub(super) fn count(&mut self, what: &str) {
        *self.tally.entry(what.to_owned()).or_default() += 1;
    }

    /// Puts an event on its stream and those that derive from it.
    pub(super) fn emit(&mut self, root: Feed, event: &Event) {
        self.outputs.entry(root).or_default().push(event.clone());
        for derived in 0..self.declared.derived.len() {
            if let Some(event) = self.arrives(root, Feed::Derived(derived), event) {
                self.outputs.entry(Feed::Derived(derived)).or_default().push(event);
            }
        }
    }

    /// Returns an event of a root as it is on a stream, if it comes there.
    fn arrives(&self, root: Feed, feed: Feed, event: &Event) -> Option<Event> {
        let Feed::Derived(derived) = feed else { return (feed == root).then(|| event.clone()) };
        let of = self.declared.derived[derived];
        let event = self.arrives(root, of.input, event)?;
        match of.does {
            Derives::Filter => Some(event).filter(|event| event.number.rem_euclid(3) != 0),
            Derives::Map { passes_time } => {
                let made = Event::made(event.value, event.key, event.number * 2 + 1);
                Some(Event { at: event.at.filter(|_| passes_time), ..made })
            }
        }
    }

    /// Emits an event that nothing in the cascade at hand has caused, and processes it.
    pub(super) fn process_new(&mut self, root: Feed, event: Event) {
        self.emit(root, &event);
        let mut waiting = VecDeque::from([(root, event)]);
        while let Some((root, event)) = waiting.pop_front() {
            let emitted = self.deliver(root, &event);
            match self.mistake {
                Some(Mistake::BreadthFirst) => waiting.extend(emitted),
                _ => emitted.into_iter().rev().for_each(|event| waiting.push_front(event)),
            }
        }
    }

    /// Runs the deliveries of an event. Gives what they emitted, in order.
    fn deliver(&mut self, root: Feed, event: &Event) -> Vec<(Feed, Event)> {
        if let Feed::Completed(node) = root {
            self.emit(Feed::Given(node), event);
            return vec![(Feed::Given(node), event.clone())];
        }
        let declared = self.declared;
        let mut emitted = Vec::new();
        for (number, node) in declared.nodes.iter().enumerate() {
            for (side, &input) in node.inputs.iter().enumerate() {
                let Some(event) = self.arrives(root, input, event) else { continue };
                match node.does {
                    Does::Run(Run { is_nested: true, .. }) => {}
                    Does::Run(_) | Does::Wakened { .. } | Does::Ticked { .. } | Does::Batched { .. } => {
                        emitted.extend(self.nest(number, &event));
                    }
                    _ => {
                        let given = self.take(number, side, event, declared.root(input));
                        given.iter().for_each(|(feed, event)| self.emit(*feed, event));
                        emitted.extend(given);
                    }
                }
            }
        }
        emitted
    }

    /// Runs a transaction with all that is nested in it. Gives what is to be followed.
    fn nest(&mut self, number: usize, event: &Event) -> Vec<(Feed, Event)> {
        let has_nested = |node: &Node| matches!(node.does, Does::Run(Run { is_nested: true, .. }));
        if !self.declared.nodes.iter().any(has_nested) {
            return self.run_one(number, event).unwrap_or_default();
        }
        let before = (self.tables.clone(), self.outputs.clone());
        let Some(emitted) = self.run_one(number, event) else { return Vec::new() };
        let mut given = Vec::new();
        if self.follow_nested(emitted, &mut given) {
            return given;
        }
        self.count("nest that aborts");
        if self.mistake != Some(Mistake::NestsLeak) {
            self.outputs = before.1;
        }
        self.tables = before.0;
        Vec::new()
    }

    /// Follows the events of a nest as far as it goes; false if a transaction of it aborts.
    fn follow_nested(&mut self, events: Vec<(Feed, Event)>, given: &mut Vec<(Feed, Event)>) -> bool {
        let declared = self.declared;
        for (root, event) in events {
            let mut emitted = Vec::new();
            for (number, Node { inputs, does }) in declared.nodes.iter().enumerate() {
                if !matches!(does, Does::Run(Run { is_nested: true, .. })) {
                    continue;
                }
                for &input in inputs {
                    let Some(event) = self.arrives(root, input, &event) else { continue };
                    let Some(more) = self.run_one(number, &event) else { return false };
                    self.count("nested");
                    emitted.extend(more);
                }
            }
            given.push((root, event));
            if !self.follow_nested(emitted, given) {
                return false;
            }
        }
        true
    }

    /// Runs one transaction; none if it aborts.
    fn run_one(&mut self, number: usize, event: &Event) -> Option<Vec<(Feed, Event)>> {
        let given = self.transact(number, event)?;
        self.count(self.declared.kind(number));
        given.iter().for_each(|(feed, event)| self.emit(*feed, event));
        Some(given)
    }
}

/// Returns an event with the field `at`.
pub fn at(event: Event, time: i64) -> Event {
    Event { at: Some(time), ..event }
}

/// Returns all records that are inputs in the order of their positions, and the least and the greatest shown time.
fn positions(
    records: &[Vec<Vec<Event>>],
    declared: &Declared,
    mistake: Option<Mistake>,
) -> (VecDeque<Record>, Option<(i64, i64)>) {
    let mut all = Vec::new();
    let mut shown: Option<(i64, i64)> = None;
    for (source, splits) in records.iter().enumerate() {
        let lateness = declared.sources[source].lateness;
        for (split, records) in splits.iter().enumerate() {
            let mut greatest: Option<i64> = None;
            for (offset, event) in records.iter().enumerate() {
                let own = event.at.expect("events of sources have a time");
                let late = greatest.filter(|greatest| own < greatest - lateness);
                let time = late.filter(|_| mistake != Some(Mistake::LateAtOwnTime)).unwrap_or(own);
                let place = match mistake {
                    Some(Mistake::OffsetBeforeSplit) => (source, offset, split),
                    _ => (source, split, offset),
                };
                let feed = if late.is_some() { Feed::Late(source) } else { Feed::Source(source) };
                all.push(Record { time, place, feed, event: event.clone() });
                if late.is_none() {
                    greatest = greatest.max(Some(own));
                    shown = Some(shown.map_or((own, own), |(least, most)| (least.min(own), most.max(own))));
                }
            }
        }
    }
    all.sort_by_key(|record| (record.time, record.place));
    (all.into(), shown)
}
