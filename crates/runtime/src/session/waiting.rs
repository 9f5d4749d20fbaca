//! Calls that wait at the gate: until their key is looked up in the runs of checkpoints, or behind such a call.
//!
//! A call whose key is not in memory, and which no filter excludes, waits alone: the gate goes on with all others, but for those
//! of the same *line* (a connection, a request), which run in the order in which they were sent. So does what asks for all that was
//! sent before, or says that nothing more is sent; and behind a push all that is sent to its source.
//!
//! 1. The gate asks for the key ([`WaitingCalls::wait`]), and keeps the call.
//! 2. [`KeyReader`](tidemill_recovery::KeyReader) looks it up on its own thread, and the answer rings the gate's bell.
//! 3. The gate takes the call again, with what was found ([`WaitingCalls::next`]). If keys have been added to the runs meanwhile,
//!    it is looked up again: a call with that key may have been made, answered and forgotten while this one waited.
//!
//! # Invariant
//!
//! Calls of a line leave in the order in which they came, and none of them is taken while another waits.

use crate::session::calls::SentCalls;
use crate::session::link::Message;
use std::collections::{HashMap, HashSet, VecDeque};
use tidemill_recovery::{LookUp, LookedUp};
use tidemill_stages::actor::{Inbox, Outbox, Took};

/// The number of keys that are looked up at a time; further calls are refused.
const LOOK_UPS_MAX: usize = 1 << 14;

/// The way to who looks keys up, and back.
pub struct LookUps {
    /// The way there.
    pub ask: Outbox<LookUp>,
    /// The way back.
    pub found: Inbox<LookedUp>,
}

/// The calls that wait, in the order in which they came.
#[derive(Default)]
pub struct WaitingCalls {
    look_ups: Option<LookUps>,
    calls: VecDeque<WaitingCall>,
    /// The number of calls that wait, by line.
    lines: HashMap<u64, usize>,
    /// The number of keys that are looked up.
    looked_up: usize,
    /// The number of the next call.
    next: u64,
    /// Messages that wait until all calls before this number are taken.
    messages: VecDeque<(u64, Message)>,
    /// The number of pushes and messages that wait, by source.
    of_sources: HashMap<usize, usize>,
}

/// A call that waits.
struct WaitingCall {
    number: u64,
    /// A batch of one, or a push.
    call: SentCalls,
    state: State,
}

enum State {
    /// It waits for those before it in its line.
    Behind,
    /// Its key is looked up.
    Asked,
    /// Its key was looked up.
    Found(LookedUp),
}

impl WaitingCalls {
    /// Makes the list, with no calls yet.
    pub fn new(look_ups: Option<LookUps>) -> WaitingCalls {
        WaitingCalls { look_ups, ..WaitingCalls::default() }
    }

    /// Returns whether there are none, nor messages behind them.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.messages.is_empty()
    }

    /// Returns the number of calls and messages that wait.
    pub fn len(&self) -> usize {
        self.calls.len() + self.messages.len()
    }

    /// Returns whether a push into a source waits, or a message about it: what is sent to it later waits, too.
    pub fn holds(&self, source: usize) -> bool {
        self.of_sources.contains_key(&source)
    }

    fn comes(&mut self, source: Option<usize>) {
        if let Some(source) = source {
            *self.of_sources.entry(source).or_default() += 1;
        }
    }

    fn leaves(&mut self, source: Option<usize>) {
        let Some(source) = source else { return };
        let left = self.of_sources.get_mut(&source).expect("it was counted");
        *left -= 1;
        if *left == 0 {
            self.of_sources.remove(&source);
        }
    }

    /// Returns whether calls of a line wait.
    pub fn has_line(&self, line: u64) -> bool {
        line != 0 && !self.lines.is_empty() && self.lines.contains_key(&line)
    }

    /// Returns whether further keys may be looked up.
    pub fn may_look(&self) -> bool {
        self.looked_up < LOOK_UPS_MAX
    }

    /// Has a call wait: until its key is looked up, or only behind others.
    pub fn wait(&mut self, call: SentCalls, look_up: Option<LookUp>) {
        let number = self.next;
        self.next += 1;
        *self.lines.entry(call.line(0)).or_default() += 1;
        let state = self.ask(number, look_up);
        self.comes(call.are_pushed.then_some(call.source));
        self.calls.push_back(WaitingCall { number, call, state });
    }

    fn ask(&mut self, number: u64, look_up: Option<LookUp>) -> State {
        let Some(look_up) = look_up else { return State::Behind };
        let look_ups = self.look_ups.as_ref().expect("only a checkpoint has runs of keys");
        // If the reader has gone, the run has failed.
        let _ = look_ups.ask.send(LookUp { number, ..look_up });
        self.looked_up += 1;
        State::Asked
    }

    /// Has a message wait for all calls that wait now; returns it if there are none.
    pub fn wait_behind(&mut self, message: Message) -> Option<Message> {
        if self.is_empty() {
            return Some(message);
        }
        self.comes(message.source());
        self.messages.push_back((self.next, message));
        None
    }

    /// Returns a message that waits no more.
    pub fn next_message(&mut self) -> Option<Message> {
        let first = self.calls.front().map_or(u64::MAX, |call| call.number);
        let (_, message) = self.messages.pop_front_if(|(until, _)| *until <= first)?;
        self.leaves(message.source());
        Some(message)
    }

    /// Takes what was looked up meanwhile; returns whether calls may go on.
    pub fn look(&mut self) -> bool {
        let mut has_found = false;
        while let Some(look_ups) = &self.look_ups
            && let Took::Message(found) = look_ups.found.take()
        {
            self.looked_up -= 1;
            let at = self.calls.binary_search_by_key(&found.number, |call| call.number);
            self.calls[at.expect("it waits for this")].state = State::Found(found);
            has_found = true;
        }
        has_found
    }

    /// Takes the calls that wait for nothing more, in their order. `take` says what is to be looked up, again or for the first
    /// time, of a call that cannot be taken yet.
    pub fn go_on(&mut self, mut take: impl FnMut(&SentCalls, Option<&LookedUp>, bool) -> Option<LookUp>) {
        let mut waiting = HashSet::new();
        for mut call in std::mem::take(&mut self.calls) {
            let line = call.call.line(0);
            let has_to_wait = matches!(call.state, State::Asked) || line != 0 && waiting.contains(&line);
            if !has_to_wait {
                let found = match &call.state {
                    State::Found(found) => Some(found),
                    State::Behind | State::Asked => None,
                };
                match take(&call.call, found, self.may_look()) {
                    None => {
                        let left = self.lines.get_mut(&line).expect("it was counted");
                        *left -= 1;
                        if *left == 0 {
                            self.lines.remove(&line);
                        }
                        self.leaves(call.call.are_pushed.then_some(call.call.source));
                        continue;
                    }
                    look_up => call.state = self.ask(call.number, look_up),
                }
            }
            waiting.insert(line);
            self.calls.push_back(call);
        }
    }

    /// Takes nothing more; returns the messages that were not taken.
    pub fn close(&mut self) -> impl Iterator<Item = Message> + use<> {
        let WaitingCalls { calls, messages, .. } = std::mem::take(self);
        let calls = calls.into_iter().map(|waiting| Message::Calls(waiting.call));
        calls.chain(messages.into_iter().map(|(_, message)| message))
    }
}
