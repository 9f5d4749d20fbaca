//! The order said in another way, without marks that move and without a gate: what became of a whole history, one
//! instant after the other. For small times, and without long gaps.

use std::collections::{BTreeMap, BTreeSet};
use tidemill_model::{KeyPart, Place, SerialPosition};
use tidemill_reference::order::{Clock, Effect, Every, SplitId, SplitInput, Step, What};

/// The history of a run that came to the end of time, as its log has it.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub least: i64,
    pub everies: Vec<Every>,
    /// The clock of each split, the mark with which it began, and its inputs, by split.
    pub splits: BTreeMap<SplitId, (Clock, i64, Vec<SplitInput>)>,
    pub sent: BTreeSet<SerialPosition>,
}

type Row = (u32, Vec<KeyPart>);

struct Instants<'a> {
    sent: &'a BTreeSet<SerialPosition>,
    react: &'a mut dyn FnMut(&Step) -> Vec<Effect>,
    wakes: BTreeMap<Row, i64>,
    /// Operator, name, instant, in the order of the first announcement.
    results: Vec<(u32, String, Option<i64>)>,
    steps: Vec<Step>,
}

/// Everything in its order.
pub fn by_instants(history: &History, react: &mut dyn FnMut(&Step) -> Vec<Effect>) -> Vec<Step> {
    let mut shown = BTreeSet::new();
    let mut records = Vec::new();
    for (&split, (clock, begin, inputs)) in &history.splits {
        records.extend(records_of(split, *clock, *begin, inputs, &mut shown));
    }
    records.sort_by(|l, r| l.position.cmp(&r.position));
    let mut run =
        Instants { sent: &history.sent, react, wakes: BTreeMap::new(), results: Vec::new(), steps: Vec::new() };
    if history.least == i64::MIN {
        run.sent_at(&SerialPosition::begin(i64::MIN));
    }
    // Records that came before all times, also of a split that joined after such a one had passed.
    records.iter().filter(|r| r.position.time < -1000).for_each(|record| run.step(record.clone()));
    let (first, horizon) = (shown.first().copied(), shown.last().copied());
    // Events that were sent before all others can complete at any time; tests have small times.
    for time in -1000..1000 {
        run.sent_at(&SerialPosition::begin(time));
        if first.is_some_and(|first| first < time) && horizon.is_some_and(|horizon| time <= horizon) {
            run.ticks(time, &history.everies);
        }
        if horizon.is_some_and(|horizon| time <= horizon) {
            run.wakes(time);
        }
        records.iter().filter(|r| r.position.time == time).for_each(|record| run.step(record.clone()));
        run.complete(time);
    }
    run.steps
}

/// Returns the records of a split, by the definition of its mark.
fn records_of(split: SplitId, clock: Clock, begin: i64, inputs: &[SplitInput], shown: &mut BTreeSet<i64>) -> Vec<Step> {
    let mut records: Vec<Step> = Vec::new();
    // Every bound that an input sets to what comes after it, and the times of events.
    let (mut bounds, mut times) = (vec![begin], Vec::new());
    let mut behind = if let Clock::EventTime { lateness } = clock { lateness } else { -1 };
    for &input in inputs {
        let mark = *bounds.iter().max().expect("the first");
        let aside = times.iter().copied().max().unwrap_or(mark).max(mark);
        let (time, what) = match input {
            SplitInput::Lateness(lateness) => {
                behind = if clock == Clock::Counter { -1 } else { lateness };
                continue;
            }
            SplitInput::Punctuation(time) => {
                if time > mark {
                    shown.insert(time);
                }
                bounds.push(time);
                continue;
            }
            SplitInput::End => break,
            SplitInput::Bad => (aside, What::Bad),
            SplitInput::Event(Some(time)) if time < mark => (aside, What::Late),
            SplitInput::Event(time) => {
                let time = time.unwrap_or(mark);
                bounds.push(time - behind);
                times.push(time);
                (time, What::Event)
            }
        };
        if what == What::Event {
            shown.insert(time);
        }
        let position = SerialPosition::record(time, split.0, split.1, records.len() as u64);
        records.push(Step { position, what });
    }
    records
}

impl Instants<'_> {
    fn ticks(&mut self, time: i64, everies: &[Every]) {
        for (index, every) in (0..).zip(everies) {
            if (time - every.origin).rem_euclid(every.period) == 0 {
                self.step(Step { position: SerialPosition::new(time, Place::Tick { every: index }), what: What::Tick });
            }
        }
    }

    fn wakes(&mut self, time: i64) {
        let due: Vec<Row> = self.wakes.iter().filter(|(_, at)| **at <= time).map(|(row, _)| row.clone()).collect();
        for row in due {
            // Another wake of the instant may have cancelled it or put it off.
            if self.wakes.get(&row).is_some_and(|at| *at <= time) {
                self.wakes.remove(&row);
                let place = Place::Wake { table: row.0, key: row.1 };
                self.step(Step { position: SerialPosition::new(time, place), what: What::Wake });
            }
        }
    }

    fn complete(&mut self, time: i64) {
        let mut before = (0, 0);
        let is_due = |result: &&(u32, String, Option<i64>)| result.2 == Some(time);
        while let Some((operator, name, _)) = self.results.iter().filter(is_due).min_by_key(|r| r.0).cloned() {
            let ordinal = if before.0 == operator { before.1 } else { 0 };
            before = (operator, ordinal + 1);
            self.results.retain(|(o, n, _)| (*o, n) != (operator, &name));
            let position = SerialPosition::new(time, Place::Result { operator, ordinal });
            self.step(Step { position, what: What::Result(name) });
        }
    }

    fn sent_at(&mut self, anchor: &SerialPosition) {
        let sent: Vec<SerialPosition> = self.sent.iter().filter(|sent| sent.anchor() == *anchor).cloned().collect();
        for position in sent {
            self.step(Step { position, what: What::Sent });
        }
    }

    fn step(&mut self, step: Step) {
        for effect in (self.react)(&step) {
            match effect {
                Effect::Wake { table, key, at: Some(at) } => {
                    self.wakes.insert((table, key), at.max(step.position.time + 1));
                }
                Effect::Wake { table, key, at: None } => drop(self.wakes.remove(&(table, key))),
                Effect::Complete { operator, name, at } => {
                    match self.results.iter_mut().find(|(o, n, _)| (*o, n) == (operator, &name)) {
                        Some(result) => result.2 = at,
                        None => self.results.push((operator, name, at)),
                    }
                }
            }
        }
        let position = step.position.clone();
        self.steps.push(step);
        if position.sent.is_none() {
            self.sent_at(&position);
        }
    }
}
