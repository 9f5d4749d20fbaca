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
use tidemill_durability::CallKey;
use tidemill_recovery::{Page, Pages, Remembering};
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::answers::{Answers, KeyRefused};
use tidemill_stages::gate::Gate;
use tidemill_stages::machine::Machine;

/// The number of keys that are kept at most, of all sources.
pub const KEYS_MAX: usize = 1 << 20;

/// The keys of a program's calls, and the answers that are kept.
pub struct Retries {
    remembering: Vec<Remembering>,
    pages: Arc<Pages>,
    state: Mutex<State>,
    /// A bug that a test plants: answers are given before they are durable.
    is_early: bool,
}

#[derive(Default)]
struct State {
    known: HashMap<(usize, Box<str>), Known>,
    /// The calls of epochs that are cut and not finished, in order.
    cut: VecDeque<CutCalls>,
    /// The answers of epochs that are finished and not durable, in order.
    finished: VecDeque<Arc<Page>>,
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
    /// Those of a program; `pages` are of the checkpoint that its run goes on from.
    pub fn new(machine: &Machine, pages: Arc<Pages>, is_early: bool) -> Retries {
        let mut state = State::default();
        for page in pages.all() {
            state.answered(&page);
        }
        Retries { remembering: Remembering::of(machine), pages, state: Mutex::new(state), is_early }
    }

    fn of(&self, source: usize) -> Option<&Remembering> {
        self.remembering.iter().find(|of| of.source == source)
    }

    /// A call comes. Whether it is to be made; otherwise its caller is answered, now or with those who wait for it.
    fn take(&self, source: usize, key: &CallKey, caller: &Caller) -> bool {
        let state = &mut *self.state.lock();
        for page in self.pages.expire(key.called, &self.remembering) {
            state.forget(&page);
        }
        let count = state.known.len();
        match state.known.entry((source, key.key.as_str().into())) {
            Entry::Occupied(mut known) => match known.get_mut() {
                Known::UnderWay(arguments, _) if *arguments != key.arguments => {
                    caller.refuse(KeyRefused::OtherArguments);
                }
                Known::UnderWay(_, waiting) => waiting.push(caller.clone()),
                Known::Answered(page, at) => again(page, *at, key.arguments, caller),
            },
            Entry::Vacant(_) if count >= KEYS_MAX => caller.refuse(KeyRefused::TooMany),
            Entry::Vacant(new) => {
                new.insert(Known::UnderWay(key.arguments, Vec::new()));
                return true;
            }
        }
        false
    }

    /// A call is under way that an earlier run took.
    fn knows(&self, source: usize, key: &CallKey) {
        let known = Known::UnderWay(key.arguments, Vec::new());
        self.state.lock().known.insert((source, key.key.as_str().into()), known);
    }

    /// Keeps the answers of an epoch that is finished. Called in the order of epochs.
    pub fn finish(&self, epoch: u64, answers: &[Answers]) {
        if self.remembering.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        while let Some(CutCalls { source, rows, .. }) = state.cut.pop_front_if(|cut| cut.epoch <= epoch) {
            let of = self.of(source).expect("its calls have keys");
            let answers =
                answers.iter().find(|answers| answers.input == of.input).expect("the epoch was asked for them");
            let page = Arc::new(Page::new(source, epoch, rows, answers));
            self.pages.add(page.clone());
            match self.is_early {
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
                waiting.iter().for_each(|caller| again(page, at, key.arguments, caller));
            }
        }
    }

    /// The time of a page is over.
    fn forget(&mut self, page: &Arc<Page>) {
        for key in &page.keys {
            if let Entry::Occupied(known) = self.known.entry((page.source, key.key.as_str().into()))
                && matches!(known.get(), Known::Answered(of, _) if Arc::ptr_eq(of, page))
            {
                known.remove();
            }
        }
    }
}

/// Answers a call as one before it with the same key.
fn again(page: &Page, at: usize, arguments: u64, caller: &Caller) {
    match &page.answers {
        _ if page.keys[at].arguments != arguments => caller.refuse(KeyRefused::OtherArguments),
        None => caller.refuse(KeyRefused::OtherVersion),
        Some(answers) => caller.answer(page.epochs[at], answers.clone(), at..at + 1),
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
