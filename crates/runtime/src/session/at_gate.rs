//! The gate's side of a session: takes what is sent, and asks the epochs what the session asks.

use crate::idle::{Idle, punctuate};
use crate::inputs::Inputs;
use crate::session::calls::{Caller, CallsAtGate};
use crate::session::link::{Due, Link, Message, Question};
use crate::session::retries::KeysAtGate;
use std::sync::Arc;
use tidemill_durability::CallKey;
use tidemill_recovery::{LogFeed, SavepointRequest};
use tidemill_stages::actor::{Inbox, Took};
use tidemill_stages::epoch::Epoch;
use tidemill_stages::gate::Gate;
use tidemill_stages::io::SourceBatch;

/// The number of events with an event time that the gate takes ahead of a source that holds them back.
const HELD_MAX: usize = 1 << 20;

/// A session, as the gate of its run sees it.
pub struct AtGate {
    link: Arc<Link>,
    /// None after the last message.
    messages: Option<Inbox<Message>>,
    /// The sources that are sent to.
    sources: Vec<usize>,
    /// Questions that no epoch answers yet.
    asked: Vec<Question>,
    /// Calls that no epoch has yet.
    calls: CallsAtGate,
    /// Savepoints that wait for the checkpoint under way. Nothing waits for them.
    later: Vec<Question>,
}

/// How a session stands when an epoch is gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// Whether the run has one.
    pub is_there: bool,
    /// Whether more may be sent.
    pub is_open: bool,
    /// Whether an epoch has to be cut now, to answer a question.
    pub asks: bool,
}

impl AtGate {
    /// A session that sends to these sources.
    pub fn new(link: Arc<Link>, messages: Inbox<Message>, sources: Vec<usize>) -> AtGate {
        let (asked, later) = (Vec::new(), Vec::new());
        AtGate { link, messages: Some(messages), sources, asked, later, calls: CallsAtGate::default() }
    }

    /// How it stands.
    pub fn state(&self) -> SessionState {
        let is_open = self.messages.is_some() || !self.later.is_empty();
        SessionState { is_there: true, is_open, asks: !self.asked.is_empty() }
    }

    /// Whether there are messages that the gate has not taken.
    pub fn has_messages(&self) -> bool {
        self.messages.as_ref().is_some_and(|messages| !messages.is_empty())
    }

    /// Nothing keeps a checkpoint from being taken: savepoints wait no longer.
    pub fn may_keep(&mut self) {
        self.asked.append(&mut self.later);
    }

    /// Takes messages: until a question, or until there are enough events for an epoch. An error is the number of a
    /// source that is sent to after it has ended for good.
    pub fn take(
        &mut self,
        gate: &mut Gate,
        inputs: &Inputs,
        idle: &mut Idle,
        mut feed: Option<&mut LogFeed>,
        keys: &mut KeysAtGate,
        events_max: usize,
    ) -> Result<(), usize> {
        while self.asked.is_empty() && gate.sent_ready() < events_max && self.has_room(gate) {
            match self.messages.as_ref().map(Inbox::take) {
                Some(Took::Message(Message::Records(source, ..) | Message::Calls(source, ..)))
                    if gate.has_ended(source) =>
                {
                    return Err(source);
                }
                Some(Took::Message(Message::Records(source, records, arrived))) => {
                    idle.heard(source, arrived);
                    if let Some(feed) = &mut feed {
                        feed.take(source, &records, None);
                    }
                    gate.ingest(source, records, arrived);
                }
                Some(Took::Message(Message::Calls(source, records, arrived, caller, of))) => {
                    let mut to = CallsTo { source, arrived, gate, feed: feed.as_deref_mut(), calls: &mut self.calls };
                    if of.is_empty() {
                        to.take(records, caller);
                    } else {
                        to.take_new(&records, &caller, &of, keys);
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

    /// Whether the gate may hold more events. If a source that is sent to holds the others back, only what it is sent
    /// lets them go on.
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

    /// The epoch answers all questions; the savepoints that they want.
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
        let untaken = |message| match message {
            Message::Records(source, records, _) | Message::Calls(source, records, ..) => {
                Some((source, records.events.num_rows() as u64))
            }
            _ => None,
        };
        self.asked.clear();
        self.calls = CallsAtGate::default();
        self.later.clear();
        messages.into_iter().filter_map(untaken).collect()
    }
}

/// Where the calls of a message go.
struct CallsTo<'a> {
    source: usize,
    arrived: u64,
    gate: &'a mut Gate,
    feed: Option<&'a mut LogFeed>,
    calls: &'a mut CallsAtGate,
}

impl CallsTo<'_> {
    /// Takes calls that are to be made.
    fn take(&mut self, calls: SourceBatch, caller: Caller) {
        if let Some(feed) = &mut self.feed {
            feed.take(self.source, &calls, None);
        }
        self.calls.take(self.source, self.gate.held_of(self.source), calls.events.num_rows(), caller);
        self.gate.ingest(self.source, calls, self.arrived);
    }

    /// Takes those of the calls whose keys are new, and those without a key.
    fn take_new(&mut self, calls: &SourceBatch, caller: &Caller, of: &[Option<CallKey>], keys: &mut KeysAtGate) {
        let caller_of = |row: usize| Caller { first: caller.first + row, ..caller.clone() };
        let is_new = |(row, key): (usize, &Option<CallKey>)| {
            key.as_ref().is_none_or(|key| keys.take(self.source, key, &caller_of(row)))
        };
        let is_new: Vec<bool> = of.iter().enumerate().map(is_new).collect();
        let mut first = 0;
        for run in is_new.chunk_by(|a, b| a == b) {
            if run[0] {
                self.take_keys(&of[first..first + run.len()], keys);
                let new = SourceBatch { events: calls.events.slice(first, run.len()), bad: Vec::new() };
                self.take(new, caller_of(first));
            }
            first += run.len();
        }
    }

    /// Takes the keys of the calls that are taken next.
    fn take_keys(&mut self, of: &[Option<CallKey>], keys: &mut KeysAtGate) {
        for (event, key) in (self.gate.has_of(self.source)..).zip(of) {
            let Some(key) = key else { continue };
            let key = CallKey { event, ..key.clone() };
            if let Some(feed) = &mut self.feed {
                feed.take_key(self.source, key.clone());
            }
            keys.hold(self.source, key);
        }
    }
}
