//! The caller's side of calls: which transactions can be called, calling them, waiting for the outcomes.

use super::{MESSAGE_EVENTS_MAX, Session};
use crate::session::calls::{Answered, Caller, Procedure, ReplyTo, RequestKey, SentCalls, When};
use crate::session::error::SessionError;
use crate::session::link::Message;
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, unbounded};
use std::sync::Arc;
use std::time::Instant;
use tidemill_durability::CallKey;
use tidemill_model::{StreamDigest, named_digest};
use tidemill_plan::{StreamId, TransactionId};
use tidemill_recovery::Remembering;
use tidemill_stages::wiring::InputId;

/// The number of bytes that a key has at most.
pub const KEY_BYTES_MAX: usize = 512;

/// Calls that were sent together, and will be answered.
pub struct Calling {
    answered: Receiver<Answered>,
    left: usize,
}

impl Calling {
    /// Returns the number of calls that are not answered yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Waits for the next outcomes; none if all calls are answered. After [`SessionError::Timeout`] it may be asked again.
    /// [`SessionError::Over`] if the run ends before: whether the calls ran is then known to the next run only.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Answered>, SessionError> {
        if self.left == 0 {
            return Ok(None);
        }
        let answered = match deadline {
            None => self.answered.recv().map_err(|_| SessionError::Over),
            Some(deadline) => self.answered.recv_deadline(deadline).map_err(|error| match error.is_timeout() {
                true => SessionError::Timeout,
                false => SessionError::Over,
            }),
        }?;
        self.left -= answered.len();
        Ok(Some(answered))
    }
}

impl Session {
    /// Calls a procedure: once for each row of the batch, which has the canonical Arrow form of its source's schema. Waits
    /// while the engine is full, as [`Session::send`] does, and not for the outcomes.
    pub fn call(
        &self,
        procedure: &Procedure,
        calls: &RecordBatch,
        deadline: Option<Instant>,
    ) -> Result<Calling, SessionError> {
        self.call_with(procedure, calls, &[], When::Durable, deadline)
    }

    /// Makes calls, each with its key, if it has one; and says when the outcomes are wanted. A call whose key is known,
    /// as that of a call with the same arguments, is not made again: its outcome is that of the first. Such outcomes
    /// may come before those of others.
    pub fn call_with(
        &self,
        procedure: &Procedure,
        calls: &RecordBatch,
        keys: &[Option<RequestKey>],
        when: When,
        deadline: Option<Instant>,
    ) -> Result<Calling, SessionError> {
        let (to, answered) = unbounded();
        let left = self.call_for(procedure, calls, keys, &[], &ReplyTo { to: Arc::new(to), when }, deadline)?;
        Ok(Calling { answered, left })
    }

    /// Calls a procedure with outcomes that go elsewhere. `lines`: by call, the number of its line, where calls run in the order in which they are
    /// sent; 0 for a call that stands alone. Empty: they are of the line of those that [`Session::call`] makes. Returns the number of calls that were sent: all, or fewer where the deadline
    /// passed between two messages of [`MESSAGE_EVENTS_MAX`](super::MESSAGE_EVENTS_MAX). Those that get no outcome before
    /// the run is over get none.
    pub fn call_for(
        &self,
        procedure: &Procedure,
        calls: &RecordBatch,
        keys: &[Option<RequestKey>],
        lines: &[u64],
        reply: &ReplyTo,
        deadline: Option<Instant>,
    ) -> Result<usize, SessionError> {
        let &Procedure { source, input, .. } = procedure;
        let keys = if keys.iter().any(Option::is_some) { keys } else { &[] };
        if !keys.is_empty() {
            if keys.len() != calls.num_rows() {
                return Err(SessionError::KeyCount { keys: keys.len(), calls: calls.num_rows() });
            }
            keys.iter().flatten().try_for_each(|key| self.check_key(source, key))?;
        }
        let caller = self.caller(source);
        let key_of = |(row, key): (usize, &Option<RequestKey>)| {
            let key = key.as_ref()?;
            // The caller is none of the arguments: the key has the user, and a call may be made again by another protocol.
            let is_argument =
                |at: &usize| Some(*at) != caller.protocol && (key.user.is_empty() || Some(*at) != caller.user);
            let columns: Vec<usize> = (0..calls.num_columns()).filter(is_argument).collect();
            let arguments = calls.project(&columns).expect("they are columns of it");
            let arguments = named_digest(&arguments.slice(row, 1));
            Some(CallKey { event: 0, key: key.whole(), arguments, called: key.called })
        };
        let keys: Vec<Option<CallKey>> = keys.iter().enumerate().map(key_of).collect();
        assert!(lines.is_empty() || lines.len() == calls.num_rows(), "each call has a line");
        self.send_as(source, calls, MESSAGE_EVENTS_MAX, deadline, |first, calls, arrived| {
            let sent = first..first + calls.events.num_rows();
            let keys = keys.get(sent.clone()).unwrap_or_default().to_vec();
            let lines = lines.get(sent).unwrap_or_default().to_vec();
            let caller = Caller { reply: reply.clone(), first, input };
            Message::Calls(SentCalls { source, calls, arrived, caller, keys, lines, are_pushed: false })
        })
    }

    /// Sends events to a source, all together, with a key: if it is known, as that of the same events, they are not taken again.
    /// The outcome is one of [`Outcome::Silent`](crate::Outcome), with the epoch that has the last of them that could pass when they were taken, or [`Reply::Refused`](crate::Reply). None
    /// is given before the run is over where nothing makes an epoch of what was sent, as a question does ([`Session::ask`]).
    /// [`SessionError::Timeout`]: there was no room, and nothing was sent.
    pub fn push(
        &self,
        source: usize,
        events: &RecordBatch,
        key: &RequestKey,
        reply: &ReplyTo,
        deadline: Option<Instant>,
    ) -> Result<(), SessionError> {
        assert!(events.num_rows() > 0, "a push has events");
        self.check_push_key(source, key)?;
        let arguments = StreamDigest::of(events).hash;
        let key = CallKey { event: 0, key: key.whole(), arguments, called: key.called };
        let sent = self.send_as(source, events, usize::MAX, deadline, |first, calls, arrived| {
            let caller = Caller { reply: reply.clone(), first, input: InputId::from(0) };
            let (keys, lines) = (vec![Some(key.clone())], vec![0]);
            Message::Calls(SentCalls { source, calls, arrived, caller, keys, lines, are_pushed: true })
        })?;
        assert_eq!(sent, events.num_rows(), "they are one message");
        Ok(())
    }

    /// Checks that what is pushed to a source may have this key.
    pub fn check_push_key(&self, source: usize, key: &RequestKey) -> Result<(), SessionError> {
        let name = || self.sent_stream(source).map(|stream| stream.name.clone());
        let remembering = Remembering::of(&self.engine.machine);
        match remembering.iter().find(|of| of.source == source) {
            None => Err(SessionError::NoPushKeys(name()?)),
            Some(of) if of.input.is_some() => Err(SessionError::KeysOfCalls(name()?)),
            Some(_) => self.check_key(source, key),
        }
    }

    /// Returns whether what is pushed to a source may have keys.
    pub fn remembers_pushes(&self, source: usize) -> bool {
        Remembering::of(&self.engine.machine).iter().any(|of| of.source == source && of.input.is_none())
    }

    /// Returns whether calls of a source may have keys.
    pub fn remembers(&self, source: usize) -> bool {
        self.sent_stream(source).is_ok_and(|stream| stream.remembers().is_some())
    }

    /// Checks that a call of a source may have this key.
    pub fn check_key(&self, source: usize, key: &RequestKey) -> Result<(), SessionError> {
        if !self.remembers(source) {
            return Err(SessionError::NoKeys(self.sent_stream(source)?.name.clone()));
        }
        match key.key.len() {
            1..=KEY_BYTES_MAX => Ok(()),
            bytes => Err(SessionError::Key { bytes, most: KEY_BYTES_MAX }),
        }
    }

    /// Returns the transaction of this name, to be called.
    pub fn procedure(&self, name: &str) -> Result<Procedure, SessionError> {
        let program = self.engine.program();
        let Some(transaction) = program.transactions.iter().position(|t| t.name == name) else {
            return Err(SessionError::NoProcedure { name: name.into(), known: self.known_procedures() });
        };
        self.callable(transaction.into()).map_err(|reason| SessionError::NotCallable { name: name.into(), reason })
    }

    /// Returns the transactions that can be called, in the order of the program.
    pub fn procedures(&self) -> impl Iterator<Item = Procedure> {
        self.engine.program().transactions.keys().filter_map(|id| self.callable(id).ok())
    }

    fn known_procedures(&self) -> String {
        let program = self.engine.program();
        let names: Vec<&str> = self.procedures().map(|p| program.transactions[p.transaction].name.as_str()).collect();
        match names.is_empty() {
            true => "there is none: no transaction takes the events of app.requests(...)".into(),
            false => format!("procedures: {}", names.join(", ")),
        }
    }

    /// Returns a transaction, to be called; or why it cannot be.
    fn callable(&self, transaction: TransactionId) -> Result<Procedure, String> {
        let program = self.engine.program();
        let wiring = &self.engine.machine.wiring;
        if program.transactions[transaction].is_hidden() {
            return Err("it belongs to a window, a join or a table's changes, and answers nobody".into());
        }
        if program.transactions[transaction].derives {
            return Err("it is a filter or map that reads rows; call the transaction on what it gives".into());
        }
        let first = |mut root: StreamId| {
            while let Some(derived) = wiring.derived_by(program, root) {
                root = wiring.inputs[derived].root;
            }
            root
        };
        let inputs = program.transactions[transaction].inputs.iter();
        let roots: Vec<StreamId> = inputs.map(|&input| first(program.streams[input].root)).collect();
        let is_request = |(_, (stream, is_sent)): &(usize, &(StreamId, bool))| {
            *is_sent && program.streams[*stream].own_time().is_none() && roots.contains(stream)
        };
        let mut requests = self.sources.iter().enumerate().filter(is_request);
        let Some((source, &(stream, _))) = requests.next() else {
            return Err("none of its streams is a source of calls; declare one with app.requests(...)".into());
        };
        let name = |stream: StreamId| &program.streams[stream].name;
        if let Some((_, &(other, _))) = requests.next() {
            let (one, other) = (name(stream), name(other));
            return Err(format!("it takes calls from '{one}' and from '{other}'; give it one of them"));
        }
        let of = |input: InputId| &program.transactions[wiring.inputs[input].transaction];
        match wiring.called(program, stream)[..] {
            [input] => Ok(Procedure { source, transaction, input }),
            ref inputs => {
                let names: Vec<&str> = inputs.iter().map(|&input| &*of(input).name).collect();
                let names = names.join(", ");
                Err(format!("'{}' reaches several transactions: {names}; a call has one outcome", name(stream)))
            }
        }
    }
}
