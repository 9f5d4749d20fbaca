//! Calls with a key, which may be made again: a call whose key is known is not made a second time, but answered as the first
//! one was.
//!
//! The history has a call with a key once, so no result depends on how often it was made, and a replay needs no retries.
//! What is kept is the keys of the calls under way, here and in the log ([`CallKey`]), and the answers of those that are
//! done, as [`Page`]s and in the runs of checkpoints (`recovery`, `answered/mod.rs`), for as long as their source says.
//!
//! 1. The gate takes a call ([`AtGate::take`](super::at_gate::AtGate::take)). If its key is new, the event goes the way of
//!    all events, and the key beside it ([`KeysAtGate::take`]). If the call is under way, the caller waits with the others
//!    that made it. If it was answered, the caller gets that answer. If its key is not in memory and runs may have it, the
//!    call waits until it is looked up ([`waiting`](super::waiting)), and is then taken again.
//! 2. When an epoch is cut, the gate says which of its events have keys ([`KeysAtGate::cut`]); in a replay, too.
//! 3. The committer keeps their answers when the epoch is finished ([`Retries::finish`]), before it tells the checkpointer
//!    that a snapshot of the epoch has begun; and gives them to callers once it is durable ([`Retries::release`]).
//! 4. What runs have leaves the memory, the oldest first, where more keys are there than are to be ([`Retries::look`]).
//!
//! # Invariant
//!
//! Each key that the history has, and whose time is not over, is known from when the gate has its event: it is in memory, or in
//! a run that the gate sees. A key that was not found in runs is not new if keys were added to them since.

use crate::session::calls::{Caller, place_of};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tidemill_durability::{Bug, CallKey, Planted};
use tidemill_plan::KEYS_MAX;
use tidemill_recovery::{ANSWER_BYTES_MAX, Control, KeyRuns, LookUp, LookedUp, Page, Remembered, Remembering, user_of};
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::answers::{Answers, NotMade};
use tidemill_stages::gate::Gate;
use tidemill_stages::machine::Machine;

/// The part of the least time for which answers are kept after which it is looked which of them are over.
const SWEEPS: i64 = 16;
/// The shortest time between two such looks, microseconds.
const SWEEP_MIN: i64 = 100_000;

/// The keys of a program's calls, and the answers that are kept.
pub struct Retries {
    remembering: Vec<Remembering>,
    remembered: Arc<Remembered>,
    state: Mutex<State>,
    /// The latest time of a call with a key, microseconds since 1970.
    pub last_key: Arc<AtomicI64>,
    control: Arc<Control>,
    planted: Planted,
}

/// The keys of a source that no run has.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    under_way: usize,
    answered: usize,
}

#[derive(Default)]
struct State {
    known: HashMap<(usize, Box<str>), Known>,
    /// The number of keys that are known, by user.
    of_users: HashMap<Box<str>, usize>,
    /// The number of keys of each source that are kept, by source.
    counts: BTreeMap<usize, Count>,
    /// The calls of epochs that are cut and not finished, in order.
    cut: VecDeque<CutCalls>,
    /// The answers of epochs that are finished and not durable, in order.
    finished: VecDeque<Arc<Page>>,
    /// The answers that are known, in order.
    answered: VecDeque<Arc<Page>>,
    /// The bytes of these.
    bytes: usize,
    /// The runs as they were seen last, and by user the keys in them.
    runs: Arc<KeyRuns>,
    in_runs: HashMap<Box<str>, usize>,
    /// The clock at the last look which answers are over.
    swept: Option<i64>,
}

/// The state of a key.
enum Known {
    /// Its call is under way. It had these arguments; the callers made it again.
    UnderWay(u64, Vec<Caller>),
    /// The call of this number on the page is answered.
    Answered(Arc<Page>, usize),
}

/// The decision on a call that comes.
pub enum Taken {
    /// It is to be made.
    New,
    /// It was answered, or is with those who wait for it.
    Known,
    /// It is taken again when its key is looked up.
    Waits(LookUp),
}

/// Calls with a key of one source in an epoch.
struct CutCalls {
    epoch: u64,
    source: usize,
    /// The keys of calls, by row of the source's events in the epoch.
    rows: Vec<(usize, CallKey)>,
}

impl Retries {
    /// Begins with the answers of the checkpoint that a program's run goes on from.
    pub fn new(machine: &Machine, remembered: Arc<Remembered>, control: Arc<Control>, planted: Planted) -> Retries {
        let last_key = Arc::new(AtomicI64::new(i64::MIN));
        let (remembering, state) = (Remembering::of(machine), Mutex::default());
        let retries = Retries { remembering, remembered, state, last_key, control, planted };
        let answers = &retries.remembered.answers;
        let last = answers.all().iter().flat_map(|page| &page.keys).map(|key| key.called).max();
        let last = last.max(answers.runs().last());
        last.iter().for_each(|&last| _ = retries.last_key.fetch_max(last, Ordering::Relaxed));
        {
            let state = &mut *retries.state.lock();
            answers.all().iter().for_each(|page| state.answered(page));
            retries.look(state);
        }
        retries
    }

    /// The sources whose calls have keys.
    pub fn remembering(&self) -> &[Remembering] {
        &self.remembering
    }

    fn place(&self, source: usize) -> Option<(usize, &Remembering)> {
        self.remembering.iter().enumerate().find(|(_, of)| of.source == source)
    }

    fn of(&self, source: usize) -> Option<&Remembering> {
        self.place(source).map(|(_, of)| of)
    }

    /// A call comes, or comes again after its key was looked up. `may_look`: whether more may be looked up.
    fn take(
        &self,
        source: usize,
        key: &CallKey,
        caller: &Caller,
        looked_up: Option<&LookedUp>,
        may_look: bool,
    ) -> Taken {
        self.last_key.fetch_max(key.called, Ordering::Relaxed);
        let state = &mut *self.state.lock();
        self.look(state);
        self.sweep(state, key.called);
        let Some((place, of)) = self.place(source) else { return Taken::New };
        let has_no_room = |state: &State| state.has_no_room(place, of, user_of(&key.key), key.called);
        if let Some(known) = state.known.get_mut(&(source, key.key.as_str().into())) {
            if !is_over(known, of, key.called) {
                self.is_known(known, key, caller);
                return Taken::Known;
            }
        } else if let Some(LookedUp { page: Some(page), .. }) = looked_up
            && !of.is_over(&page.keys[0], key.called)
        {
            self.is_known(&mut Known::Answered(page.clone(), 0), key, caller);
            return Taken::Known;
        } else if !state.are_runs_of(looked_up) && self.runs_may_have(state, place, key) {
            if !may_look {
                return self.refuse(caller, NotMade::Busy);
            }
            return Taken::Waits(LookUp { number: 0, place, key: key.key.clone(), runs: state.runs.clone() });
        } else if has_no_room(state) {
            return self.refuse(caller, NotMade::TooMany);
        }
        // It is new, or its time is over. Of a call the epoch has the caller.
        let waiting = if of.input.is_none() { vec![caller.clone()] } else { Vec::new() };
        state.insert(source, &key.key, Known::UnderWay(key.arguments, waiting));
        self.control.vitals.keys.in_memory.store(state.known.len() as u64, Ordering::Relaxed);
        Taken::New
    }

    /// Returns what is to be looked up of a call that cannot be taken yet.
    fn looks(&self, source: usize, key: &CallKey) -> Option<LookUp> {
        let state = &mut *self.state.lock();
        self.look(state);
        let (place, _) = self.place(source)?;
        let is_known = state.known.contains_key(&(source, key.key.as_str().into()));
        let looks = !is_known && self.runs_may_have(state, place, key);
        looks.then(|| LookUp { number: 0, place, key: key.key.clone(), runs: state.runs.clone() })
    }

    fn runs_may_have(&self, state: &State, place: usize, key: &CallKey) -> bool {
        state.runs.may_have(place, &key.key, key.called, self.planted.is(Bug::FilterForgetsRun))
    }

    fn refuse(&self, caller: &Caller, why: NotMade) -> Taken {
        self.control.vitals.keys.refused.fetch_add(1, Ordering::Relaxed);
        caller.refuse(why);
        Taken::Known
    }

    /// A call comes whose key is known.
    fn is_known(&self, known: &mut Known, key: &CallKey, caller: &Caller) {
        match known {
            Known::UnderWay(arguments, _) if self.differ(*arguments, key.arguments) => {
                caller.refuse(NotMade::OtherArguments);
            }
            Known::UnderWay(_, waiting) => waiting.push(caller.clone()),
            Known::Answered(page, at) if self.differ(page.keys[*at].arguments, key.arguments) => {
                caller.refuse(NotMade::OtherArguments);
            }
            Known::Answered(page, at) => again(page, *at, caller),
        }
    }

    /// Returns whether a call has other arguments than the first one with its key.
    fn differ(&self, first: u64, now: u64) -> bool {
        first != now && !self.planted.is(Bug::AnswersOtherArguments)
    }

    /// Looks at the runs, and forgets what they have where too much is in memory.
    fn look(&self, state: &mut State) {
        let runs = self.remembered.answers.runs();
        if !Arc::ptr_eq(&runs, &state.runs) {
            state.in_runs = runs.users().into_iter().map(|(user, keys)| (user.into(), keys as usize)).collect();
            state.runs = runs;
            state.count(|_, _| false);
            self.show(state, state.swept.unwrap_or(i64::MIN));
        }
        state.forget(self.remembered.answers.keys_max);
        let vitals = &self.control.vitals.keys;
        vitals.in_memory.store(state.known.len() as u64, Ordering::Relaxed);
    }

    /// Forgets the answers whose time is over, now and then: by the clock as it is now, which may have been put back.
    fn sweep(&self, state: &mut State, now: i64) {
        let least = self.remembering.iter().map(|of| of.time).min().unwrap_or(i64::MAX);
        let every = (least / SWEEPS).max(SWEEP_MIN);
        if state.swept.is_some_and(|swept| now.abs_diff(swept) < every as u64) {
            return;
        }
        state.swept = Some(now);
        self.remembered.answers.sweep(now, &self.remembering);
        let State { known, of_users, .. } = state;
        known.retain(|(source, key), known| {
            let stays = self.of(*source).is_some_and(|of| !is_over(known, of, now));
            if !stays {
                counts_no_more(of_users, key);
            }
            stays
        });
        state.count(|source, key| self.of(source).is_none_or(|of| of.is_over(key, now)));
        self.show(state, now);
    }

    /// Shows those who watch what runs have.
    fn show(&self, state: &State, now: i64) {
        let (vitals, runs) = (&self.control.vitals.keys, &state.runs);
        let on_disk: u64 = (0..self.remembering.len()).map(|place| runs.keys_of(place, now)).sum();
        vitals.on_disk.store(on_disk, Ordering::Relaxed);
        vitals.disk_bytes.store(runs.bytes_on_disk(), Ordering::Relaxed);
        vitals.filter_bytes.store(runs.bytes_in_memory() as u64, Ordering::Relaxed);
    }

    /// Enters a call that is under way and that an earlier run took.
    fn knows(&self, source: usize, key: &CallKey) {
        self.last_key.fetch_max(key.called, Ordering::Relaxed);
        if self.of(source).is_some() {
            let known = Known::UnderWay(key.arguments, Vec::new());
            self.state.lock().insert(source, &key.key, known);
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
            let of_input = |input| answers.iter().find(|answers| answers.input == input);
            let page = Arc::new(match of.input {
                Some(input) => Page::new(of, epoch, rows, of_input(input).expect("the epoch was asked for them")),
                None => Page::pushed(of, epoch, rows.into_iter().map(|(_, key)| key).collect()),
            });
            self.remembered.answers.add(page.clone());
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
    /// Knows a key; gives what was known of it before.
    fn insert(&mut self, source: usize, key: &str, known: Known) -> Option<Known> {
        let is_under_way = |known: &Known| matches!(known, Known::UnderWay(..));
        let count = self.counts.entry(source).or_default();
        count.under_way += usize::from(is_under_way(&known));
        let before = self.known.insert((source, key.into()), known);
        count.under_way -= usize::from(before.as_ref().is_some_and(is_under_way));
        if before.is_none() {
            self.counts(key);
        }
        before
    }

    /// Returns whether all keys that runs have now were there when something was looked up.
    fn are_runs_of(&self, looked_up: Option<&LookedUp>) -> bool {
        looked_up.is_some_and(|looked_up| looked_up.additions == self.runs.additions)
    }

    /// Counts a key that is known from now on.
    fn counts(&mut self, key: &str) {
        match self.of_users.get_mut(user_of(key)) {
            Some(count) => *count += 1,
            None => _ = self.of_users.insert(user_of(key).into(), 1),
        }
    }

    /// Returns whether no more keys of a user are taken.
    fn has_no_room(&self, place: usize, of: &Remembering, user: &str, now: i64) -> bool {
        let in_memory = |count: &Count| count.under_way + count.answered;
        let of_source = self.counts.get(&of.source).map_or(0, in_memory);
        let kept = Kept {
            keys: of_source as u64 + self.runs.keys_of(place, now),
            keys_max: of.keys_max,
            in_no_run: self.counts.values().map(in_memory).sum(),
            bytes: self.bytes,
        };
        let of_user = |users: &HashMap<Box<str>, usize>| users.get(user).copied().unwrap_or(0);
        let own = of_user(&self.of_users) + of_user(&self.in_runs);
        let all = self.known.len() + self.in_runs.values().sum::<usize>();
        let others = self.in_runs.keys().filter(|user| !self.of_users.contains_key(*user)).count();
        let users = self.of_users.len() + others + usize::from(own == 0);
        kept.is_full(own, all, users)
    }

    /// Answers the calls of a page, and so those who wait for them.
    fn answered(&mut self, page: &Arc<Page>) {
        for (at, key) in page.keys.iter().enumerate() {
            let now = Known::Answered(page.clone(), at);
            if let Some(Known::UnderWay(_, waiting)) = self.insert(page.source, &key.key, now) {
                waiting.iter().for_each(|caller| again(page, at, caller));
            }
        }
        if page.last_epoch() > self.runs.through {
            self.counts.entry(page.source).or_default().answered += page.keys.len();
        }
        self.bytes += page.bytes();
        self.answered.push_back(page.clone());
    }

    /// Counts the answers that no run has, without those that are over; pages all of which are over go.
    fn count(&mut self, is_over: impl Fn(usize, &CallKey) -> bool) {
        self.counts.values_mut().for_each(|count| count.answered = 0);
        let State { answered, counts, runs, bytes, .. } = self;
        answered.retain(|page| {
            let left = page.keys.iter().filter(|key| !is_over(page.source, key)).count();
            if page.last_epoch() > runs.through {
                counts.entry(page.source).or_default().answered += left;
            }
            if left == 0 {
                *bytes -= page.bytes();
            }
            left > 0
        });
    }

    /// Forgets the oldest answers that runs have, as long as there are more keys, or more bytes, than are to be in memory.
    fn forget(&mut self, keys_max: usize) {
        let has_too_many = |state: &State| state.known.len() > keys_max || state.bytes > ANSWER_BYTES_MAX;
        while has_too_many(self)
            && let through = self.runs.through
            && let Some(page) = self.answered.pop_front_if(|page| page.last_epoch() <= through)
        {
            self.bytes -= page.bytes();
            for key in &page.keys {
                // A later call may have the key since the time of this one is over.
                if let Entry::Occupied(known) = self.known.entry((page.source, key.key.as_str().into()))
                    && matches!(known.get(), Known::Answered(of, _) if Arc::ptr_eq(of, &page))
                {
                    known.remove();
                    counts_no_more(&mut self.of_users, &key.key);
                }
            }
        }
    }
}

/// Takes a key out of the count, as it is known no more.
fn counts_no_more(of_users: &mut HashMap<Box<str>, usize>, key: &str) {
    let user = user_of(key);
    let count = of_users.get_mut(user).expect("it has counted");
    *count -= 1;
    if *count == 0 {
        of_users.remove(user);
    }
}

/// The amounts that are kept.
struct Kept {
    /// The keys of a source, and how many it may have.
    keys: u64,
    keys_max: u64,
    /// The keys of all sources that no run has.
    in_no_run: usize,
    /// Bytes of answers in memory.
    bytes: usize,
}

impl Kept {
    /// Returns whether a user gets no further key that has some of `all`, beside other users. One that has less than its part
    /// gets more also beyond the limits, up to twice these: else one could lock all others out.
    fn is_full(&self, own: usize, all: usize, users: usize) -> bool {
        let Kept { keys, keys_max, in_no_run, bytes } = *self;
        let is_within = |times: usize| {
            let in_memory = in_no_run < times * KEYS_MAX as usize && bytes < times * ANSWER_BYTES_MAX;
            keys < times as u64 * keys_max && in_memory
        };
        let has_less = own < all / users.max(1);
        !(is_within(1) || has_less && is_within(2))
    }
}

/// Returns whether the time of an answered call is over.
fn is_over(known: &Known, of: &Remembering, now: i64) -> bool {
    matches!(known, Known::Answered(page, at) if of.is_over(&page.keys[*at], now))
}

/// Answers a call as one before it with the same key and arguments.
fn again(page: &Page, at: usize, caller: &Caller) {
    match page.is_of_now(at) {
        false => caller.refuse(NotMade::OtherVersion),
        true => caller.answer(page.epochs[at], None, page.answers.clone(), at..at + 1),
    }
}

/// The key of a push. It is answered with the epoch that has the last of the events which may pass when it is taken.
struct Pushed {
    key: CallKey,
    /// A flag: whether no epoch was cut since it came, so that the number of that event is not known.
    is_new: bool,
}

/// The keys of the calls whose events the gate holds.
pub struct KeysAtGate {
    /// The keys of each source's held calls in the order of their events, by source.
    held: BTreeMap<usize, VecDeque<CallKey>>,
    /// The keys of pushes, by source, in the order in which their last events pass.
    pushed: BTreeMap<usize, VecDeque<Pushed>>,
    retries: Arc<Retries>,
}

impl KeysAtGate {
    /// Makes an empty set of keys.
    pub fn new(retries: Arc<Retries>) -> KeysAtGate {
        KeysAtGate { held: BTreeMap::new(), pushed: BTreeMap::new(), retries }
    }

    /// A call comes, or comes again after its key was looked up. `may_look`: whether more may be looked up.
    pub fn take(
        &self,
        source: usize,
        key: &CallKey,
        caller: &Caller,
        looked_up: Option<&LookedUp>,
        may_look: bool,
    ) -> Taken {
        if let Some(looked_up) = looked_up {
            let vitals = &self.retries.control.vitals.keys;
            vitals.looked_up.fetch_add(1, Ordering::Relaxed);
            vitals.found_nothing.fetch_add(u64::from(looked_up.page.is_none()), Ordering::Relaxed);
        }
        self.retries.take(source, key, caller, looked_up, may_look)
    }

    /// Returns what is to be looked up of a call that cannot be taken yet.
    pub fn looks(&self, source: usize, key: &CallKey) -> Option<LookUp> {
        self.retries.looks(source, key)
    }

    /// The gate is about to hold the event of a call, or the events of a push: which of these pass is known at the next cut.
    pub fn hold(&mut self, source: usize, key: CallKey) {
        self.hold_as(source, key, true);
    }

    fn hold_as(&mut self, source: usize, key: CallKey, is_new: bool) {
        match self.is_of_pushes(source) {
            true => self.pushed.entry(source).or_default().push_back(Pushed { key, is_new }),
            false => self.held.entry(source).or_default().push_back(key),
        }
    }

    fn is_of_pushes(&self, source: usize) -> bool {
        self.retries.of(source).is_some_and(|of| of.input.is_none())
    }

    /// The gate is about to hold the events of calls that an earlier run took.
    pub fn restore(&mut self, source: usize, keys: &[CallKey]) {
        for key in keys {
            self.retries.knows(source, key);
            self.hold_as(source, key.clone(), false);
        }
    }

    /// Asks an epoch that was just cut for the answers of the calls in it that have keys. It answers the pushes of which nothing may
    /// pass any more.
    pub fn cut(&mut self, epoch: &mut Epoch, gate: &Gate) {
        for (&source, pushed) in &mut self.pushed {
            let through = gate.passes_through(source).unwrap_or(CallKey::AT_ONCE);
            for Pushed { key, is_new } in pushed.iter_mut().filter(|pushed| pushed.is_new) {
                (key.event, *is_new) = (through, false);
            }
            let mut rows = Vec::new();
            while let Some(Pushed { key, .. }) = pushed.pop_front_if(|of| of.key.has_passed(gate.has_passed(source))) {
                rows.push((rows.len(), key));
            }
            if !rows.is_empty() {
                self.retries.state.lock().cut.push_back(CutCalls { epoch: epoch.number, source, rows });
            }
        }
        for (&source, held) in &mut self.held {
            let Some(events) = &epoch.input.sources[source].events else { continue };
            let passed = gate.has_passed(source);
            let first = passed - events.num_rows() as u64;
            let mut rows = Vec::new();
            while let Some(key) = held.pop_front_if(|key| key.event < passed) {
                assert!(key.event >= first, "the key of a call passes with its event");
                rows.push(((key.event - first) as usize, key));
            }
            let input = self.retries.of(source).and_then(|of| of.input);
            if let Some(input) = input.filter(|_| !rows.is_empty()) {
                place_of(&mut epoch.input.wanted.answers, input);
                self.retries.state.lock().cut.push_back(CutCalls { epoch: epoch.number, source, rows });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_does_not_take_all_keys() {
        let is_full = |keys: u64, own, users| {
            Kept { keys, keys_max: 1000, in_no_run: 0, bytes: 0 }.is_full(own, keys as usize, users)
        };
        assert!(!is_full(999, 999, 1));
        assert!(is_full(1000, 1000, 1));
        assert!(is_full(1000, 990, 2));
        assert!(!is_full(1000, 0, 2) && !is_full(1010, 10, 2));
        assert!(is_full(2000, 0, 3));
    }

    #[test]
    fn what_no_run_has_is_limited_too() {
        let is_full =
            |in_no_run, bytes, own| Kept { keys: 0, keys_max: u64::MAX / 2, in_no_run, bytes }.is_full(own, 1_000, 2);
        assert!(!is_full(0, ANSWER_BYTES_MAX - 1, 990) && !is_full(KEYS_MAX as usize - 1, 0, 990));
        assert!(!is_full(0, ANSWER_BYTES_MAX, 10) && is_full(0, ANSWER_BYTES_MAX, 990));
        assert!(is_full(0, 2 * ANSWER_BYTES_MAX, 0) && is_full(KEYS_MAX as usize, 0, 990));
    }

    #[test]
    fn keys_count_for_their_users() {
        let mut state = State::default();
        for (source, key) in [(0, "ada\nx"), (1, "ada\nx"), (0, "\ny"), (0, "ada\nx"), (0, "ada\nbob\nx")] {
            state.insert(source, key, Known::UnderWay(0, Vec::new()));
        }
        assert_eq!((state.of_users["ada"], state.of_users[""], state.of_users.len()), (3, 1, 2));
        counts_no_more(&mut state.of_users, "\ny");
        assert_eq!(state.of_users.len(), 1);
    }
}
