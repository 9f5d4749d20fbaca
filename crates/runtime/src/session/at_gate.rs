//! The gate's side of a session: takes what is sent, and asks the epochs what the session asks.

use crate::idle::punctuate;
use crate::inputs::Inputs;
use crate::session::calls::{Caller, CallsAtGate, OWN_LINE, SentCalls};
use crate::session::link::{Due, Link, Message, Question};
use crate::session::retries::{KeysAtGate, Taken};
use crate::session::waiting::{LookUps, WaitingCalls};
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_durability::CallKey;
use tidemill_recovery::{LogFeed, LookUp, LookedUp, SavepointRequest};
use tidemill_stages::access::read::{TableRead, Wish};
use tidemill_stages::actor::{Inbox, Took};
use tidemill_stages::epoch::Epoch;
use tidemill_stages::finish::answers::NotMade;
use tidemill_stages::gate::Gate;
use tidemill_stages::progress::Silence;

/// The number of events with an event time that the gate takes ahead of a source that holds them back.
const HELD_MAX: usize = 1 << 20;

/// The number of messages that wait for the first calls; more wait at the sender.
const WAITING_MAX: usize = 64;

/// The number of calls that wait for keys, and of messages behind them; more wait at the sender.
const LOOKING_MAX: usize = 1 << 16;

/// A session, as the gate of its run sees it.
pub struct AtGate {
    link: Arc<Link>,
    /// None after the last message.
    messages: Option<Inbox<Message>>,
    /// Messages that wait, in order, as calls may not be taken yet.
    waiting: VecDeque<Message>,
    calls_wait: bool,
    /// A flag: whether calls are not taken any more: they have waited in vain, and the session ends.
    gives_up: bool,
    /// The events of calls that were not taken, by source.
    given_up: Vec<(usize, u64)>,
    /// Calls whose keys are looked up, and what is behind these.
    looking: WaitingCalls,
    /// The sources that are sent to.
    sources: Vec<usize>,
    /// Questions that no epoch answers yet.
    asked: Vec<Question>,
    /// Calls that no epoch has yet.
    calls: CallsAtGate,
    /// Savepoints that wait for the checkpoint under way. Nothing waits for them.
    later: Vec<Question>,
}

/// The state of a session when an epoch is gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// A flag: whether the run has a session.
    pub is_there: bool,
    /// A flag: whether more may be sent.
    pub is_open: bool,
    /// A flag: whether an epoch has to be cut now, to answer a question.
    pub asks: bool,
}

impl AtGate {
    /// A session that sends to these sources; and who looks keys up, in a run with a state.
    pub fn new(link: Arc<Link>, messages: Inbox<Message>, sources: Vec<usize>, look_ups: Option<LookUps>) -> AtGate {
        let (asked, later) = (Vec::new(), Vec::new());
        let (waiting, calls) = (VecDeque::new(), CallsAtGate::default());
        let (messages, looking) = (Some(messages), WaitingCalls::new(look_ups));
        let (calls_wait, gives_up, given_up) = (false, false, Vec::new());
        AtGate { link, messages, waiting, calls_wait, gives_up, given_up, looking, sources, asked, later, calls }
    }

    /// Returns the state of the session.
    pub fn state(&self) -> SessionState {
        let is_open = self.messages.is_some() || !self.later.is_empty();
        SessionState { is_there: true, is_open, asks: !self.asked.is_empty() }
    }

    /// Returns whether there are messages that the gate has not taken.
    pub fn has_messages(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| !messages.is_empty()) || !self.looking.is_empty()
    }

    /// Says whether calls wait, and with them what is sent after them without a time of its own.
    pub fn calls_wait(&mut self, wait: bool) {
        self.calls_wait = wait;
    }

    /// Returns whether the session is about to end.
    pub fn ends(&self) -> bool {
        self.link.ends()
    }

    /// Takes no calls any more, those that wait or that come, nor what is sent without a time of its own: who made a
    /// call is told that it was not made. Questions are answered. `all`: also those that come. Returns the number of events that waited.
    pub fn give_up(&mut self, gate: &Gate, all: bool) -> u64 {
        self.gives_up = all;
        let before = self.given_up.len();
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().filter_map(|message| self.unless_given_up(message, gate)).collect();
        self.given_up[before..].iter().map(|(_, events)| events).sum()
    }

    /// Returns a message, unless it is one that is not taken any more.
    fn unless_given_up(&mut self, message: Message, gate: &Gate) -> Option<Message> {
        let given_up = match &message {
            Message::Calls(sent) if !sent.are_pushed || !gate.has_time(sent.source) => {
                sent.refuse(NotMade::BeforeTick);
                (sent.source, sent.calls.events.num_rows())
            }
            Message::Records(source, records, _) if !gate.has_time(*source) => (*source, records.events.num_rows()),
            _ => return Some(message),
        };
        self.given_up.push((given_up.0, given_up.1 as u64));
        None
    }

    /// Returns the next message that may be taken now.
    fn next(&mut self, gate: &Gate) -> Option<Took<Message>> {
        while !self.calls_wait
            && let Some(message) = self.waiting.pop_front()
        {
            if let Some(message) = self.unless_behind(message, gate) {
                return Some(Took::Message(message));
            }
        }
        if let Some(message) = self.looking.next_message() {
            return Some(Took::Message(message));
        }
        let given_up_max = self.given_up.len() + WAITING_MAX;
        while self.waiting.len() < WAITING_MAX && self.given_up.len() < given_up_max {
            match self.messages.as_ref()?.take() {
                Took::Message(message) if self.gives_up => {
                    let message = self.unless_given_up(message, gate);
                    if let Some(message) = message.and_then(|message| self.unless_behind(message, gate)) {
                        return Some(Took::Message(message));
                    }
                }
                Took::Message(message) if self.calls_wait && self.waits(&message, gate) => {
                    self.waiting.push_back(message);
                }
                Took::Message(message) => {
                    if let Some(message) = self.unless_behind(message, gate) {
                        return Some(Took::Message(message));
                    }
                }
                // Messages that wait come first.
                Took::Closed if !self.waiting.is_empty() || !self.looking.is_empty() => return Some(Took::Nothing),
                took => return Some(took),
            }
        }
        Some(Took::Nothing)
    }

    /// Returns a message, unless it has to wait behind calls and pushes whose keys are looked up.
    fn unless_behind(&mut self, message: Message, gate: &Gate) -> Option<Message> {
        let waits = match &message {
            Message::Ask(_) | Message::End(_) => true,
            // Without a time of its own it follows what the same process has called before.
            Message::Records(source, ..) if !gate.has_time(*source) && self.looking.has_line(OWN_LINE) => true,
            Message::Records(source, ..) | Message::Punctuation(source, _) | Message::Idle(source) => {
                self.looking.holds(*source)
            }
            Message::Calls(sent) => sent.are_pushed && self.looking.holds(sent.source),
        };
        if waits { self.looking.wait_behind(message) } else { Some(message) }
    }

    /// Returns whether a message waits for the first calls, or is one.
    fn waits(&self, message: &Message, gate: &Gate) -> bool {
        match message {
            Message::Calls(sent) => !sent.are_pushed || !gate.has_time(sent.source),
            Message::Records(source, ..) | Message::End(source) => !gate.has_time(*source),
            Message::Punctuation(..) | Message::Idle(_) => false,
            Message::Ask(_) => !self.waiting.is_empty() || gate.holds_sent(),
        }
    }

    /// Returns whether somebody asks for the state as it stands.
    pub fn asks_as_it_stands(&self) -> bool {
        self.link.asks_as_it_stands()
    }

    /// Answers those who do: after this epoch, which is executed and durable, while none runs.
    pub fn answer_as_it_stands(
        &self,
        epoch: u64,
        complete: Option<i64>,
        read: impl FnMut(&[Wish]) -> Vec<Arc<TableRead>>,
    ) {
        self.link.answer_as_it_stands(epoch, complete, read);
    }

    /// Lets savepoints be made: nothing keeps a checkpoint from being taken any more.
    pub fn may_keep(&mut self) {
        self.asked.append(&mut self.later);
    }

    /// Takes messages: until a question, or until there are enough events for an epoch. An error is the number of a
    /// source that is sent to after it has ended for good.
    pub fn take(
        &mut self,
        gate: &mut Gate,
        inputs: &Inputs,
        idle: &mut Silence,
        mut feed: Option<&mut LogFeed>,
        keys: &mut KeysAtGate,
        events_max: usize,
    ) -> Result<(), usize> {
        if self.looking.look() {
            self.go_on(gate, feed.as_deref_mut(), idle, keys);
        }
        while self.asked.is_empty()
            && gate.sent_ready() < events_max
            && self.has_room(gate)
            && self.looking.len() < LOOKING_MAX
        {
            match self.next(gate) {
                Some(Took::Message(Message::Records(source, ..) | Message::Calls(SentCalls { source, .. })))
                    if gate.has_ended(source) =>
                {
                    return Err(source);
                }
                Some(Took::Message(Message::Records(source, records, arrived))) => {
                    idle.heard(source, arrived);
                    if let Some(feed) = &mut feed {
                        feed.take(source, &records, None, None);
                    }
                    gate.ingest(source, records, arrived);
                }
                Some(Took::Message(Message::Calls(sent))) => {
                    let mut to = CallsTo { gate, feed: feed.as_deref_mut(), idle, calls: &mut self.calls };
                    if sent.keys.is_empty() && self.looking.is_empty() {
                        to.take(sent);
                    } else {
                        to.take_new(&sent, &mut self.looking, keys);
                    }
                }
                Some(Took::Message(Message::Punctuation(source, time))) => {
                    punctuate(gate, feed.as_deref_mut(), source, time);
                }
                Some(Took::Message(Message::Idle(source))) => idle.declare(source),
                Some(Took::Message(Message::End(source))) => inputs.end(source, gate),
                Some(Took::Message(Message::Ask(question))) => self.asked.push(question),
                Some(Took::Closed) => {
                    self.sources.iter().for_each(|&source| inputs.end(source, gate));
                    self.messages = None;
                }
                Some(Took::Nothing) | None => break,
            }
        }
        Ok(())
    }

    /// Takes the calls whose keys were looked up, and those behind them.
    fn go_on(&mut self, gate: &mut Gate, feed: Option<&mut LogFeed>, idle: &mut Silence, keys: &mut KeysAtGate) {
        let mut to = CallsTo { gate, feed, idle, calls: &mut self.calls };
        self.looking.go_on(|sent, looked_up, may_look| to.take_one(sent, looked_up, may_look, keys));
    }

    /// Returns whether the gate may hold more events. If a source that is sent to holds the others back, only what it
    /// is sent lets them go on.
    fn has_room(&self, gate: &Gate) -> bool {
        let held: usize = self.sources.iter().map(|&source| gate.held_of(source)).sum();
        held < HELD_MAX || gate.slowest().is_some_and(|slowest| self.sources.contains(&slowest))
    }

    /// Notes what the session wants of an epoch that was cut as an earlier run did.
    pub fn replays(&self, epoch: &mut Epoch) {
        epoch.input.wanted.follows = self.link.kept();
    }

    /// Notes what the session wants of an epoch that was just cut; the savepoints to keep of it. `more_is_due`: something
    /// is due that may run now. `may_keep`: a checkpoint may be due with the epoch.
    pub fn cut(&mut self, epoch: &mut Epoch, gate: &Gate, more_is_due: bool, may_keep: bool) -> Vec<SavepointRequest> {
        epoch.input.wanted.follows = self.link.streams();
        epoch.input.wanted.touched = self.link.is_looked_at();
        let answering = self.calls.cut(epoch);
        self.link.calls(answering);
        let positions = gate.positions();
        let passes = more_is_due || self.sources.iter().any(|&source| gate.may_pass(source));
        let mut savepoints = Vec::new();
        if !self.asked.is_empty() && !passes {
            if !may_keep {
                self.later.extend(self.asked.extract_if(.., |question| question.savepoint.is_some()));
            }
            savepoints = self.answer_with(epoch, positions.iter().map(|position| position.held).collect());
        }
        self.link.stand(positions);
        savepoints
    }

    /// Answers all questions with the epoch; returns the savepoints that they want.
    fn answer_with(&mut self, epoch: &mut Epoch, held: Vec<u64>) -> Vec<SavepointRequest> {
        let mut savepoints = Vec::new();
        for mut question in self.asked.drain(..) {
            epoch.input.wanted.tables.extend(question.tables.iter().cloned());
            savepoints.extend(question.savepoint.take());
            self.link.due(Due { epoch: epoch.number, question, held: held.clone() });
        }
        savepoints
    }

    /// Takes nothing more; by source, the events that were sent and never taken.
    pub fn close(&mut self) -> Vec<(usize, u64)> {
        let messages = self.messages.take().map(Inbox::close).unwrap_or_default();
        for message in self.waiting.iter().filter(|_| self.calls_wait) {
            if let Message::Calls(sent) = message {
                sent.refuse(NotMade::BeforeTick);
            }
        }
        let messages = self.looking.close().chain(std::mem::take(&mut self.waiting)).chain(messages);
        let untaken = |message| match message {
            Message::Records(source, records, _) | Message::Calls(SentCalls { source, calls: records, .. }) => {
                Some((source, records.events.num_rows() as u64))
            }
            _ => None,
        };
        self.asked.clear();
        self.calls = CallsAtGate::default();
        self.later.clear();
        std::mem::take(&mut self.given_up).into_iter().chain(messages.filter_map(untaken)).collect()
    }
}

/// The parts of the gate that calls go to.
struct CallsTo<'a> {
    gate: &'a mut Gate,
    feed: Option<&'a mut LogFeed>,
    idle: &'a mut Silence,
    calls: &'a mut CallsAtGate,
}

impl CallsTo<'_> {
    /// Takes calls that are to be made, and whose keys were taken.
    fn take(&mut self, SentCalls { source, calls, arrived, caller, are_pushed, .. }: SentCalls) {
        if let Some(feed) = &mut self.feed {
            feed.take(source, &calls, None, None);
        }
        if are_pushed {
            self.idle.heard(source, arrived);
        } else {
            self.calls.take(source, self.gate.held_of(source), calls.events.num_rows(), caller);
        }
        self.gate.ingest(source, calls, arrived);
    }

    /// Takes those of the calls whose keys are new, and those without a key. Others wait, or are known.
    fn take_new(&mut self, sent: &SentCalls, looking: &mut WaitingCalls, keys: &mut KeysAtGate) {
        if sent.are_pushed {
            if let Some(look_up) = self.take_one(sent, None, looking.may_look(), keys) {
                looking.wait(sent.some(0..sent.calls.events.num_rows()), Some(look_up));
            }
            return;
        }
        let caller_of = |call: usize| Caller { first: sent.caller.first + call, ..sent.caller.clone() };
        let mut is_new = |call: usize| {
            let key = sent.key(call);
            if looking.has_line(sent.line(call)) {
                let look_up = key.filter(|_| looking.may_look()).and_then(|key| keys.looks(sent.source, key));
                looking.wait(sent.some(call..call + 1), look_up);
                return false;
            }
            let Some(key) = key else { return true };
            match keys.take(sent.source, key, &caller_of(call), None, looking.may_look()) {
                Taken::New => true,
                Taken::Known => false,
                Taken::Waits(look_up) => {
                    looking.wait(sent.some(call..call + 1), Some(look_up));
                    false
                }
            }
        };
        let is_new: Vec<bool> = (0..sent.calls.events.num_rows()).map(&mut is_new).collect();
        let mut first = 0;
        for run in is_new.chunk_by(|a, b| a == b) {
            if run[0] {
                self.take_with_keys(sent.some(first..first + run.len()), keys);
            }
            first += run.len();
        }
    }

    /// Takes a call that has waited, or a push, if it is to be made; what is to be looked up before.
    fn take_one(
        &mut self,
        sent: &SentCalls,
        looked_up: Option<&LookedUp>,
        may_look: bool,
        keys: &mut KeysAtGate,
    ) -> Option<LookUp> {
        let key = sent.key(0);
        match key.map_or(Taken::New, |key| keys.take(sent.source, key, &sent.caller, looked_up, may_look)) {
            Taken::New => self.take_with_keys(sent.some(0..sent.calls.events.num_rows()), keys),
            Taken::Known => {}
            Taken::Waits(look_up) => return Some(look_up),
        }
        None
    }

    /// Takes calls that are to be made, with their keys.
    fn take_with_keys(&mut self, sent: SentCalls, keys: &mut KeysAtGate) {
        for (event, key) in (self.gate.has_of(sent.source)..).zip(&sent.keys) {
            let Some(key) = key else { continue };
            let key = CallKey { event, ..key.clone() };
            if let Some(feed) = &mut self.feed {
                feed.take_key(sent.source, key.clone(), sent.are_pushed);
            }
            keys.hold(sent.source, key);
        }
        self.take(sent);
    }
}
