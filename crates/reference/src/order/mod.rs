//! The order in which everything is processed, by definition: `docs/formalism.md`, from "Sources and splits" to
//! "Joining, pausing, ending", and "What may pass, and epochs".
//!
//! [`Order`] takes inputs in the order of a log and lets through what may pass. It knows no events, rows or windows: a
//! caller says what each thing that is processed causes ([`Effect`]). It looks at everything anew for each step, and
//! keeps all that it was ever told.
//!
//! # Invariant
//!
//! What passes has a greater position than all before it. This is asserted, so a rule that lets something pass too early
//! fails wherever what it overtook comes.

mod results;
mod split;
mod timers;

use results::Results;
pub use split::{Clock, SplitInput};
use split::{Kind, Split};
use std::collections::{BTreeMap, BTreeSet};
use tidemill_model::{KeyPart, Place, SerialPosition};
pub use timers::{Every, LeftOut, TIMERS_MAX};
use timers::{Timers, Wake};

/// A split: its source, and its number there.
pub type SplitId = (u32, u32);

/// Something that is processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its position.
    pub position: SerialPosition,
    /// Its kind.
    pub what: What,
}

/// The kind of a step at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A punctual event of a split.
    Event,
    /// A late event of a split.
    Late,
    /// A record of a split that could not be decoded.
    Bad,
    /// An event that was sent without a time.
    Sent,
    /// A tick.
    Tick,
    /// A wake of a row.
    Wake,
    /// A result of an operator, by the name that it was announced under.
    Result(String),
}

/// An effect of a step, beside its cascade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sets the wake of a row, or cancels it.
    Wake {
        /// The row's table.
        table: u32,
        /// The row's key.
        key: Vec<KeyPart>,
        /// The time of the wake; none cancels it.
        at: Option<i64>,
    },
    /// Announces a result that completes with an instant. Under the same name it moves, or is taken back; it keeps its
    /// place among the others.
    Complete {
        /// The operator.
        operator: u32,
        /// The window and group, the row, ...
        name: String,
        /// The instant.
        at: Option<i64>,
    },
}

/// Inputs so far, and what has passed.
#[derive(Clone, Debug)]
pub struct Order {
    least: i64,
    splits: BTreeMap<SplitId, Split>,
    /// Records and sent events that did not pass yet.
    held: BTreeMap<SerialPosition, What>,
    timers: Timers,
    results: Results,
    /// The times of punctual events, and those of punctuations that raised a mark.
    shown: BTreeSet<i64>,
    /// The last that has passed.
    passed: Option<SerialPosition>,
    /// The number of events sent so far.
    sent: u64,
    ended: bool,
}

impl Order {
    /// Makes an order before the first input. `least` is the least time of all: that of the type, or 0 for counters.
    pub fn new(least: i64, everies: Vec<Every>) -> Self {
        Order {
            least,
            splits: BTreeMap::new(),
            held: BTreeMap::new(),
            timers: Timers::new(everies),
            results: Results::default(),
            shown: BTreeSet::new(),
            passed: None,
            sent: 0,
            ended: false,
        }
    }

    /// Begins a split: with the program's mark, or where something has passed that is after the split's first record of
    /// that time, with the next time. Returns its mark, which a log has.
    pub fn join(&mut self, split: SplitId, clock: Clock) -> i64 {
        let first = |time| SerialPosition::record(time, split.0, split.1, 0);
        let after = match &self.passed {
            None => self.least,
            Some(passed) if *passed < first(passed.time) => passed.time,
            Some(passed) => passed.time.checked_add(1).expect("only the end of time reaches the last results"),
        };
        // So the program's mark never falls.
        let mark = after.max(self.mark());
        self.join_at(split, clock, mark);
        mark
    }

    /// Adds a split that begins with the mark that a log has.
    pub fn join_at(&mut self, split: SplitId, clock: Clock, mark: i64) {
        assert!(!self.ended, "nothing comes after the end of time");
        let of_source = self.splits.range((split.0, 0)..=(split.0, u32::MAX));
        assert!(of_source.last().is_none_or(|(last, _)| *last < split), "new splits have greater numbers");
        self.splits.insert(split, Split::new(clock, mark));
    }

    /// Takes the next input of a split.
    pub fn take(&mut self, id: SplitId, input: SplitInput) {
        let split = self.splits.get_mut(&id).expect("a split joins first");
        let (mark, offset) = (split.mark(), split.offset());
        if let Some((time, kind)) = split.take(input) {
            let what = match kind {
                Kind::Punctual => What::Event,
                Kind::Late => What::Late,
                Kind::Bad => What::Bad,
            };
            assert!(time >= mark, "a mark is kept");
            self.held.insert(SerialPosition::record(time, id.0, id.1, offset), what);
            if kind == Kind::Punctual {
                self.shown.insert(time);
            }
        } else if let SplitInput::Punctuation(time) = input
            && time > mark
        {
            self.shown.insert(time);
        }
    }

    /// Takes an event that is sent without a time, after what has passed so far. Returns its position, which a log has.
    pub fn send(&mut self) -> SerialPosition {
        let anchor = match &self.passed {
            None => SerialPosition::begin(self.least),
            Some(SerialPosition { time, place: Place::Result { .. }, .. }) => {
                SerialPosition::begin(time.checked_add(1).expect("only the end of time reaches the last results"))
            }
            Some(passed) => passed.anchor(),
        };
        let position = anchor.then_sent(self.sent);
        self.send_at(position.clone());
        position
    }

    /// Takes an event that is sent without a time, at the position that a log has.
    pub fn send_at(&mut self, position: SerialPosition) {
        assert!(!self.ended, "nothing comes after the end of time");
        let ordinal = position.sent.expect("what is sent is anchored");
        self.sent = self.sent.max(ordinal + 1);
        assert!(self.held.insert(position, What::Sent).is_none(), "ordinals are given once");
    }

    /// Ends time: all splits end, and nothing more is sent.
    pub fn end(&mut self) {
        self.splits.values_mut().for_each(Split::end);
        self.ended = true;
    }

    /// Lets the inputs pass that may, at most `most` of them, and returns them; `react` says which effects each has.
    pub fn pass(&mut self, most: usize, react: &mut dyn FnMut(&Step) -> Vec<Effect>) -> Vec<Step> {
        let mut steps = Vec::new();
        while steps.len() < most {
            let Some(step) = self.next().filter(|step| self.may_pass(&step.position)) else { break };
            assert!(self.passed.as_ref().is_none_or(|passed| *passed < step.position), "{} overtakes", step.position);
            self.remove(&step);
            self.passed = Some(step.position.clone());
            for effect in react(&step) {
                self.effect(&step.position, effect);
            }
            steps.push(step);
        }
        assert!(!self.ended || steps.len() == most || self.held.is_empty(), "at the end of time everything passes");
        steps
    }

    /// Returns the next step in the order, as far as it is known.
    fn next(&self) -> Option<Step> {
        let held = self.held.first_key_value().map(|(position, what)| (position.clone(), what.clone()));
        let tick = self.timers.next_tick(&self.shown, self.passed.as_ref()).map(|tick| (tick, What::Tick));
        let wake = self.timers.next_wake(&self.shown).map(|wake| (wake, What::Wake));
        let result = self.results.next().map(|(position, name)| (position, What::Result(name)));
        let first = [held, tick, wake, result].into_iter().flatten().min_by(|l, r| l.0.cmp(&r.0))?;
        Some(Step { position: first.0, what: first.1 })
    }

    /// Returns whether no smaller position can come.
    fn may_pass(&self, position: &SerialPosition) -> bool {
        let time = position.time;
        let begins = position.place == Place::Begin;
        if position.sent.is_some() && !begins {
            return self.passed.as_ref().is_some_and(|passed| passed.anchor() == position.anchor());
        }
        match position.place {
            Place::Begin | Place::Tick { .. } | Place::Wake { .. } => time <= self.mark(),
            Place::Result { .. } => time < self.mark() || self.ended,
            Place::Record { source, split, .. } => {
                let mut open = self.splits.iter().filter(|(_, s)| !s.has_ended());
                let none_before = open.all(|(id, s)| s.mark() > time || (s.mark() == time && *id >= (source, split)));
                none_before && (time <= self.mark() || self.ended)
            }
        }
    }

    /// Returns the program's mark.
    pub fn mark(&self) -> i64 {
        let horizon = self.shown.last().copied().unwrap_or(self.least);
        let open = self.splits.values().filter(|split| !split.has_ended());
        open.map(Split::mark).fold(horizon, i64::min)
    }

    /// Returns the mark of a split.
    pub fn mark_of(&self, split: SplitId) -> i64 {
        self.splits[&split].mark()
    }

    /// Returns the mark to which a silent split may be raised: the least mark of the splits that are neither silent nor
    /// ended.
    pub fn mark_without(&self, silent: &[SplitId]) -> Option<i64> {
        let others = self.splits.iter().filter(|(id, split)| !split.has_ended() && !silent.contains(id));
        others.map(|(_, split)| split.mark()).min()
    }

    /// Returns the ticks up to the program's mark that long gaps left out.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.timers.left_out(&self.shown, self.mark())
    }

    fn remove(&mut self, step: &Step) {
        match &step.what {
            What::Event | What::Late | What::Bad | What::Sent => drop(self.held.remove(&step.position)),
            // Ticks are those after the last that has passed.
            What::Tick => {}
            What::Wake => self.timers.run_wake(&self.shown, &step.position),
            What::Result(name) => self.results.remove(&step.position, name),
        }
    }

    fn effect(&mut self, now: &SerialPosition, effect: Effect) {
        match effect {
            Effect::Wake { table, key, at } => {
                let wake = at.zip(now.time.checked_add(1)).map(|(at, least)| Wake { at: at.max(least) });
                self.timers.set_wake(table, key, wake);
            }
            Effect::Complete { operator, name, at } => {
                if let Some(at) = at {
                    let position = SerialPosition::new(at, Place::Result { operator, ordinal: 0 });
                    let at_once =
                        matches!(now.place, Place::Result { operator: o, .. } if (now.time, o) == (at, operator));
                    assert!(position > *now && !at_once, "an operator's order of an instant is fixed before it runs");
                }
                self.results.announce(operator, name, at);
            }
        }
    }
}
