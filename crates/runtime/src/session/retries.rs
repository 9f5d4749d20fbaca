//! Calls with a key, which may be made again: a call whose key is known is not made a second time, but answered as the first
//! one was.
//!
//! The history has a call with a key once, so no result depends on how often it was made, and a replay needs no retries.
//! What is kept is the keys of the calls under way, here and in the log ([`CallKey`]), and the answers of those that are
//! done, as [`Pages`] (`recovery`, `answered.rs`), for as long as their source says.
//!
//! 1. The gate takes a call ([`AtGate::take`](super::at_gate::AtGate::take)). If its key is new, the event goes the way of
//!    all events, and the key beside it ([`KeysAtGate::take`]). If the call is under way, the caller waits with the others
//!    that made it. If it was answered, the caller gets that answer.
//! 2. When an epoch is cut, the gate says which of its events have keys ([`KeysAtGate::cut`]); in a replay, too.
//! 3. The committer keeps their answers when the epoch is finished ([`Retries::finish`]), before it tells the checkpointer
//!    that a snapshot of the epoch has begun; and gives them to callers once it is durable ([`Retries::release`]).
//!
//! # Invariant
//!
//! Each key that the history has, and whose time is not over, is known from when the gate has its event.

use crate::session::calls::{Caller, place_of};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use tidemill_durability::{Bug, CallKey, Planted};
use tidemill_recovery::{Page, Remembered, Remembering};
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::answers::{Answers, KeyRefused};
use tidemill_stages::gate::Gate;
use tidemill_stages::machine::Machine;

/// The number of keys that are kept at most, of all sources.
const KEYS_MAX: usize = 1 << 20;
/// The bytes that answers take in memory at most, about; beyond it no call with a new key is made.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The part of the least time for which answers are kept after which it is looked which of them are over.
const SWEEPS: i64 = 16;
/// The shortest time between two such looks, microseconds.
const SWEEP_MIN: i64 = 100_000;

/// The keys of a program's calls, and the answers that are kept.
pub struct Retries {
    remembering: Vec<Remembering>,
    remembered: Arc<Remembered>,
    state: Mutex<State>,
    planted: Planted,
}

#[derive(Default)]
struct State {
    known: HashMap<(usize, Box<str>), Known>,
    /// The calls of epochs that are cut and not finished, in order.
    cut: VecDeque<CutCalls>,
    /// The answers of epochs that are finished and not durable, in order.
    finished: VecDeque<Arc<Page>>,
    /// The bytes of answers, as of the last look which of them are over and with what came since.
    bytes: usize,
    /// The clock at that look.
    swept: Option<i64>,
}

/// What is known of a key.
enum Known {
    /// Its call is under way. It had these arguments; the callers made it again.
    UnderWay(u64, Vec<Caller>),
    /// The call of this number on the page is answered.
    Answered(Arc<Page>, usize),
}

/// Calls with a key of one source in an epoch.
struct CutCalls {
    epoch: u64,
    source: usize,
    /// By row of the source's events in the epoch.
    rows: Vec<(usize, CallKey)>,
}

impl Retries {
    /// Those of a program, with the answers of the checkpoint that its run goes on from.
    pub fn new(machine: &Machine, remembered: Arc<Remembered>, planted: Planted) -> Retries {
        let mut state = State::default();
        for page in remembered.answers.all() {
            state.answered(&page);
        }
        Retries { remembering: Remembering::of(machine), remembered, state: Mutex::new(state), planted }
    }

    fn of(&self, source: usize) -> Option<&Remembering> {
        self.remembering.iter().find(|of| of.source == source)
    }

    /// A call comes. Whether it is to be made; otherwise its caller is answered, now or with those who wait for it.
    fn take(&self, source: usize, key: &CallKey, caller: &Caller) -> bool {
        let state = &mut *self.state.lock();
        self.sweep(state, key.called);
        let Some(of) = self.of(source) else { return true };
        let is_full = state.known.len() >= KEYS_MAX || state.bytes >= ANSWER_BYTES_MAX;
        match state.known.entry((source, key.key.as_str().into())) {
            // Its time is over, and nobody has looked since.
            Entry::Occupied(mut known) if is_over(known.get(), of, key.called) => {
                known.insert(Known::UnderWay(key.arguments, Vec::new()));
                return true;
            }
            Entry::Occupied(mut known) => match known.get_mut() {
                Known::UnderWay(arguments, _) if self.differ(*arguments, key.arguments) => {
                    caller.refuse(KeyRefused::OtherArguments);
                }
                Known::UnderWay(_, waiting) => waiting.push(caller.clone()),
                Known::Answered(page, at) if self.differ(page.keys[*at].arguments, key.arguments) => {
                    caller.refuse(KeyRefused::OtherArguments);
                }
                Known::Answered(page, at) => again(page, *at, caller),
            },
            Entry::Vacant(_) if is_full => caller.refuse(KeyRefused::TooMany),
            Entry::Vacant(new) => {
                new.insert(Known::UnderWay(key.arguments, Vec::new()));
                return true;
            }
        }
        false
    }

    /// Whether a call has other arguments than the first one with its key.
    fn differ(&self, first: u64, now: u64) -> bool {
        first != now && !self.planted.is(Bug::AnswersOtherArguments)
    }

    /// Forgets the answers whose time is over, now and then: by the clock as it is now, which may have been put back.
    fn sweep(&self, state: &mut State, now: i64) {
        let least = self.remembering.iter().map(|of| of.time).min().unwrap_or(i64::MAX);
        let every = (least / SWEEPS).max(SWEEP_MIN);
        if state.swept.is_some_and(|swept| now.abs_diff(swept) < every as u64) {
            return;
        }
        state.swept = Some(now);
        state.bytes = self.remembered.answers.sweep(now, &self.remembering);
        state.known.retain(|(source, _), known| self.of(*source).is_some_and(|of| !is_over(known, of, now)));
    }

    /// A call is under way that an earlier run took.
    fn knows(&self, source: usize, key: &CallKey) {
        if self.of(source).is_some() {
            let known = Known::UnderWay(key.arguments, Vec::new());
            self.state.lock().known.insert((source, key.key.as_str().into()), known);
        }
    }

    /// Keeps the answers of an epoch that is finished. Called in the order of epochs.
    pub fn finish(&self, epoch: u64, answers: &[Arc<Answers>]) {
        if self.remembering.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        while let Some(CutCalls { source, rows, .. }) = state.cut.pop_front_if(|cut| cut.epoch <= epoch) {
            let of = self.of(source).expect("its calls have keys");
            let answers =
                answers.iter().find(|answers| answers.input == of.input).expect("the epoch was asked for them");
            let page = Arc::new(Page::new(of, epoch, rows, answers));
            self.remembered.answers.add(page.clone());
            state.bytes += page.bytes();
            // In a replay nobody calls.
            if let Some(key) = page.keys.last() {
                self.sweep(state, key.called);
            }
            match self.planted.is(Bug::AnswersAgainUnsynced) {
                true => state.answered(&page),
                false => state.finished.push_back(page),
            }
        }
    }

    /// Answers the callers that wait for the calls of an epoch that is durable, and of those before it.
    pub fn release(&self, epoch: u64) {
        if self.remembering.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        let is_durable = |page: &mut Arc<Page>| page.epochs.last().is_none_or(|&last| last <= epoch);
        while let Some(page) = state.finished.pop_front_if(is_durable) {
            state.answered(&page);
        }
    }
}

impl State {
    /// The calls of a page are answered: so are those who wait for them.
    fn answered(&mut self, page: &Arc<Page>) {
        for (at, key) in page.keys.iter().enumerate() {
            let now = Known::Answered(page.clone(), at);
            if let Some(Known::UnderWay(_, waiting)) = self.known.insert((page.source, key.key.as_str().into()), now) {
                waiting.iter().for_each(|caller| again(page, at, caller));
            }
        }
    }
}

/// Whether the time of an answered call is over.
fn is_over(known: &Known, of: &Remembering, now: i64) -> bool {
    matches!(known, Known::Answered(page, at) if of.is_over(&page.keys[*at], now))
}

/// Answers a call as one before it with the same key and arguments.
fn again(page: &Page, at: usize, caller: &Caller) {
    match page.is_of_now(at) {
        false => caller.refuse(KeyRefused::OtherVersion),
        true => caller.answer(page.epochs[at], page.answers.clone(), at..at + 1),
    }
}

/// The keys of the calls whose events the gate holds.
pub struct KeysAtGate {
    /// By source, in the order of their events.
    held: BTreeMap<usize, VecDeque<CallKey>>,
    retries: Arc<Retries>,
}

impl KeysAtGate {
    /// None yet.
    pub fn new(retries: Arc<Retries>) -> KeysAtGate {
        KeysAtGate { held: BTreeMap::new(), retries }
    }

    /// Whether a call is to be made. If not, its caller is answered.
    pub fn take(&mut self, source: usize, key: &CallKey, caller: &Caller) -> bool {
        self.retries.take(source, key, caller)
    }

    /// The gate is about to hold the event of a call, whose number the key has.
    pub fn hold(&mut self, source: usize, key: CallKey) {
        self.held.entry(source).or_default().push_back(key);
    }

    /// The gate holds, or is about to hold, the events of calls that an earlier run took.
    pub fn restore(&mut self, source: usize, keys: &[CallKey]) {
        for key in keys {
            self.retries.knows(source, key);
            self.hold(source, key.clone());
        }
    }

    /// Asks an epoch that was just cut for the answers of the calls in it that have keys.
    pub fn cut(&mut self, epoch: &mut Epoch, gate: &Gate) {
        for (&source, held) in &mut self.held {
            let Some(events) = &epoch.input.sources[source].events else { continue };
            let passed = gate.has_passed(source);
            let first = passed - events.num_rows() as u64;
            let mut rows = Vec::new();
            while let Some(key) = held.pop_front_if(|key| key.event < passed) {
                assert!(key.event >= first, "the key of a call passes with its event");
                rows.push(((key.event - first) as usize, key));
            }
            if let Some(of) = self.retries.of(source).filter(|_| !rows.is_empty()) {
                place_of(&mut epoch.input.wanted.answers, of.input);
                self.retries.state.lock().cut.push_back(CutCalls { epoch: epoch.number, source, rows });
            }
        }
    }
}
