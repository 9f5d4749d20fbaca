//! Calls on their way: from requests to batches for the engine, and from outcomes to replies.
//!
//! 1. A request's object is decoded into the next batch of its procedure ([`Calls::call`]); a wrong one is refused here.
//! 2. All batches are sent by a task on the thread of the connections, once the other tasks that are ready have run
//!    ([`Sending`]), or by the task that makes a call where there are [`TOGETHER`] already. While there is no room they
//!    grow: so the more calls there are, the less each costs.
//! 3. The outcomes are taken on the thread of the run that has them ([`Sent`]). It writes the replies of HTTP as JSON and
//!    wakes the requests that wait.
//!
//! So between connections and the run there is no thread, unless there is no room. A request that has gone meanwhile
//! changes nothing for the others; its call runs, and keeps its place until it is answered.
//!
//! # Order
//!
//! Batches are sent in the order of their numbers. A client that makes calls without waiting for replies says in which
//! batch its last call is ([`Turn`]); its next one goes into that batch or a later one. So its calls run in the order in
//! which they were made, also if they are of several procedures.

use crate::slots::{Slot, Slots};
use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, StringArray};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidemill_connect::{JsonRecords, JsonRows, json_string};
use tidemill_model::Schema;
use tidemill_runtime::{
    Answered, BadRecord, KeyRefused, MESSAGE_EVENTS_MAX, Outcome, Procedure, ReplyTo, RequestKey, Session,
    SessionError, TakeOutcomes, When,
};
use tokio::sync::oneshot;

/// So many calls of a batch are sent at once: the engine runs them while more are made.
const TOGETHER: usize = 256;

/// A reply to a call.
#[derive(Debug)]
pub struct Reply {
    /// The outcome, without its rows.
    pub kind: ReplyKind,
    /// A JSON object.
    pub body: Vec<u8>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    Committed,
    Aborted,
    /// It was not made.
    Refused(KeyRefused),
}

/// Why a call is not made.
#[derive(Debug)]
pub enum Refused {
    /// There is no such procedure, or it cannot be called: why.
    Unknown(String),
    /// Too many are under way.
    Busy,
    /// It is wrong.
    Bad(BadRecord),
    /// Its key is: why.
    Key(String),
}

/// Makes calls.
pub struct Calls {
    session: Arc<Session>,
    procedures: Vec<Named>,
    next: Mutex<Next>,
    slots: Slots,
    /// Calls so far that were made, and that were refused because too many were under way.
    pub made: AtomicU64,
    /// See there.
    pub refused: AtomicU64,
}

/// A procedure.
struct Named {
    name: String,
    procedure: Procedure,
    text: Arc<ReplyText>,
}

/// What a client asks of a call.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// With it the call may be made again.
    pub key: Option<RequestKey>,
    /// When the reply is wanted.
    pub when: When,
}

/// The number of the batch that has the last call of a client; nothing may overtake that call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn(u64);

/// The batches that are not sent yet.
#[derive(Default)]
struct Next {
    /// In the order of their numbers.
    batches: VecDeque<NextBatch>,
    /// The number of batches so far.
    count: u64,
    /// By procedure: decoders that are free.
    free: Vec<Vec<JsonRecords>>,
    /// What there was no room for; it is sent before them.
    unsent: Option<Unsent>,
    task: Task,
}

/// The task that sends what is there ([`Sending`]).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Task {
    #[default]
    None,
    /// It will run.
    Ready,
    /// It waits for room, for something that comes before all that is here.
    Waits,
}

/// Calls of one procedure that will be sent together.
struct NextBatch {
    number: u64,
    procedure: usize,
    when: When,
    records: JsonRecords,
    /// By call; empty as long as none has one.
    keys: Vec<Option<RequestKey>>,
    waiting: Vec<Waiting>,
}

/// A request that waits for its reply.
struct Waiting {
    to: To,
    slot: Slot,
}

/// How a request wants its reply.
enum To {
    Text(oneshot::Sender<Reply>),
    Columns(oneshot::Sender<Made>),
}

/// The outcome of a call, in columns.
#[derive(Debug)]
pub struct Made {
    answered: Answered,
    at: usize,
}

impl Made {
    /// The outcome, with its row in what [`Made::answered`] has.
    pub fn outcome(&self) -> Outcome {
        self.answered.outcomes()[self.at]
    }

    /// This call and those that were answered with it.
    pub fn answered(&self) -> &Answered {
        &self.answered
    }
}

impl Calls {
    /// Of a session; so many under way at a time.
    pub fn new(session: Arc<Session>, calls_max: usize) -> Calls {
        let named = |procedure: Procedure| {
            let transaction = &session.engine().program().transactions[procedure.transaction];
            Named { name: transaction.name.clone(), procedure, text: Arc::new(ReplyText::of(&session, procedure)) }
        };
        let procedures: Vec<Named> = session.procedures().map(named).collect();
        let free = procedures.iter().map(|_| Vec::new()).collect();
        Calls {
            procedures,
            next: Mutex::new(Next { free, ..Next::default() }),
            session,
            slots: Slots::new(calls_max),
            made: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The names of the procedures, with the schemas of their calls.
    pub fn procedures(&self) -> impl Iterator<Item = (&str, Schema)> {
        self.procedures.iter().map(|named| (&*named.name, self.session.source_schema(named.procedure.source)))
    }

    /// Whether calls of a procedure, by its place in [`Calls::procedures`], may have keys.
    pub fn remembers(&self, procedure: usize) -> bool {
        self.session.remembers(self.procedures[procedure].procedure.source)
    }

    /// The number of calls under way.
    pub fn in_flight(&self) -> usize {
        self.slots.taken()
    }

    /// Calls a procedure. The call runs after the one of this turn. The receiver gets the reply; it is closed without one if
    /// the run ends before. Panics outside of a runtime of `tokio`.
    pub fn call(
        self: &Arc<Self>,
        name: &str,
        object: &[u8],
        wanted: Wanted,
        turn: &mut Turn,
    ) -> Result<oneshot::Receiver<Reply>, Refused> {
        let Some(procedure) = self.procedures.iter().position(|named| named.name == name) else {
            let why = self.session.procedure(name).map_or_else(|error| error.to_string(), |_| "it is hidden".into());
            return Err(Refused::Unknown(why));
        };
        let (to, reply) = oneshot::channel();
        self.make(procedure, object, wanted, turn, To::Text(to))?;
        Ok(reply)
    }

    /// The same for a procedure by its place in [`Calls::procedures`], with the outcome in columns.
    pub fn call_after(
        self: &Arc<Self>,
        procedure: usize,
        object: &[u8],
        wanted: Wanted,
        turn: &mut Turn,
    ) -> Result<oneshot::Receiver<Made>, Refused> {
        let (to, made) = oneshot::channel();
        self.make(procedure, object, wanted, turn, To::Columns(to))?;
        Ok(made)
    }

    fn make(
        self: &Arc<Self>,
        procedure: usize,
        object: &[u8],
        Wanted { key, when }: Wanted,
        turn: &mut Turn,
        to: To,
    ) -> Result<(), Refused> {
        if let Some(key) = &key {
            let source = self.procedures[procedure].procedure.source;
            self.session.check_key(source, key).map_err(|error| Refused::Key(error.to_string()))?;
        }
        let Some(slot) = self.slots.take() else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Busy);
        };
        let mut next = self.next.lock();
        let schema = || self.session.source_schema(self.procedures[procedure].procedure.source);
        let batch = next.batch(procedure, when, *turn, schema);
        batch.records.push(object).map_err(Refused::Bad)?;
        if key.is_some() {
            batch.keys.resize(batch.waiting.len(), None);
            batch.keys.push(key);
        }
        batch.waiting.push(Waiting { to, slot });
        *turn = Turn(batch.number);
        let are_many = batch.waiting.len() >= TOGETHER;
        let may_send = next.task != Task::Waits && next.unsent.is_none();
        let is_all = are_many && may_send && self.send(&mut next);
        if !is_all && next.task == Task::None {
            next.task = Task::Ready;
            tokio::spawn(Sending(Some(self.clone())).run());
        }
        drop(next);
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The values that the rows of an abort had, as a JSON object.
    pub fn seen(&self, procedure: usize, aborted: &RecordBatch, row: usize) -> String {
        self.procedures[procedure].text.seen_of(aborted, row)
    }

    /// The reason of an abort.
    pub fn reason<'a>(&self, procedure: usize, aborted: &'a RecordBatch, row: usize) -> &'a str {
        aborted.column(self.procedures[procedure].text.reason).as_string::<i32>().value(row)
    }
}

/// Calls that go to the engine together.
struct Unsent {
    session: Arc<Session>,
    procedure: Procedure,
    events: RecordBatch,
    keys: Vec<Option<RequestKey>>,
    reply: ReplyTo,
}

impl Unsent {
    /// Sends them, if there is room before the time, or waits for it. False if there is none.
    fn send(&self, until: Option<Instant>) -> bool {
        match self.session.call_for(&self.procedure, &self.events, &self.keys, &self.reply, until) {
            Ok(sent) => {
                assert_eq!(sent, self.events.num_rows(), "a batch is one message");
                true
            }
            Err(SessionError::Timeout) => false,
            // The run is over: the requests learn it by the closing of their channels.
            Err(_) => true,
        }
    }
}

impl Calls {
    /// Sends what is there, in the order of the batches, as long as there is room. Whether that is all.
    fn send(&self, next: &mut Next) -> bool {
        let now = Some(Instant::now());
        loop {
            let first = match next.unsent.take() {
                None => self.first(next),
                unsent => unsent,
            };
            match first {
                None => return true,
                Some(unsent) if unsent.send(now) => {}
                unsent => {
                    next.unsent = unsent;
                    return false;
                }
            }
        }
    }

    /// The first of the batches.
    fn first(&self, next: &mut Next) -> Option<Unsent> {
        loop {
            let NextBatch { procedure, when, mut records, mut keys, waiting, .. } = next.batches.pop_front()?;
            let (events, count) = (records.finish(), waiting.len());
            assert_eq!(count, events.num_rows(), "each call has a request that waits");
            next.free[procedure].push(records);
            if count == 0 {
                continue;
            }
            if !keys.is_empty() {
                keys.resize(count, None);
            }
            let Named { procedure, text, .. } = &self.procedures[procedure];
            let waiting = Mutex::new(waiting.into_iter().map(Some).collect());
            let reply = ReplyTo { to: Arc::new(Sent { text: text.clone(), waiting }), when };
            return Some(Unsent { session: self.session.clone(), procedure: *procedure, events, keys, reply });
        }
    }
}

/// The task that sends what is there. There is one at a time. If it is dropped amid, the next call starts another.
struct Sending(Option<Arc<Calls>>);

impl Sending {
    async fn run(mut self) {
        while let Some(unsent) = self.send() {
            // Another thread waits for room, in its turn among all who send.
            let _ = tokio::task::spawn_blocking(move || unsent.send(None)).await;
            self.0.iter().for_each(|calls| calls.next.lock().task = Task::Ready);
        }
    }

    /// Sends as much as there is room for; what is to be sent before the rest. After the last there is no task any more.
    fn send(&mut self) -> Option<Unsent> {
        let calls = self.0.take()?;
        let mut next = calls.next.lock();
        if calls.send(&mut next) {
            next.task = Task::None;
            return None;
        }
        next.task = Task::Waits;
        let unsent = next.unsent.take();
        drop(next);
        self.0 = Some(calls);
        unsent
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(calls) = &self.0 {
            calls.next.lock().task = Task::None;
        }
    }
}

/// The requests that wait for calls that were sent together. They learn that the run is over when this is dropped.
struct Sent {
    text: Arc<ReplyText>,
    /// By call; none once it is answered.
    waiting: Mutex<Vec<Option<Waiting>>>,
}

impl TakeOutcomes for Sent {
    fn take(&self, answered: Answered) {
        let calls = answered.first..answered.first + answered.len();
        let waiting: Vec<Waiting> = self.waiting.lock()[calls].iter_mut().filter_map(Option::take).collect();
        assert_eq!(waiting.len(), answered.len(), "a call is answered once");
        let is_text = |waiting: &Waiting| matches!(waiting.to, To::Text(_));
        let mut replies = waiting.iter().any(is_text).then(|| self.text.replies(&answered).into_iter());
        for (at, Waiting { to, slot }) in waiting.into_iter().enumerate() {
            // One who has the reply may call again.
            drop(slot);
            let reply = replies.as_mut().and_then(Iterator::next);
            // The request may have gone.
            match to {
                To::Text(to) => _ = to.send(reply.expect("each call has a reply")),
                To::Columns(to) => _ = to.send(Made { answered: answered.clone(), at }),
            }
        }
    }
}

impl Next {
    /// The batch for a call that runs after the one of this turn.
    fn batch(&mut self, procedure: usize, when: When, turn: Turn, schema: impl FnOnce() -> Schema) -> &mut NextBatch {
        let has_room = |batch: &NextBatch| batch.waiting.len() < MESSAGE_EVENTS_MAX;
        let is_of = |batch: &NextBatch| (batch.procedure, batch.when) == (procedure, when) && has_room(batch);
        let is_it = |batch: &NextBatch| is_of(batch) && batch.number >= turn.0;
        let place = self.batches.iter().rposition(is_it).unwrap_or_else(|| {
            self.count += 1;
            let records = self.free[procedure].pop().unwrap_or_else(|| JsonRecords::new(&schema()));
            self.batches.push_back(NextBatch {
                number: self.count,
                procedure,
                when,
                records,
                keys: Vec::new(),
                waiting: Vec::new(),
            });
            self.batches.len() - 1
        });
        &mut self.batches[place]
    }
}

/// How the replies of a procedure are written.
struct ReplyText {
    committed: JsonRows,
    /// The index of the reason among the columns of an abort; those that were seen follow.
    reason: usize,
    seen: JsonRows,
}

impl ReplyText {
    fn of(session: &Session, procedure: Procedure) -> ReplyText {
        let program = session.engine().program();
        let transaction = &program.transactions[procedure.transaction];
        let aborted = &program.streams[transaction.aborted].schema.fields;
        let reason = aborted.len() - transaction.seen.len() - 1;
        let seen = Schema { fields: aborted[reason + 1..].to_vec() };
        let committed = JsonRows::new(&program.streams[transaction.committed.stream].schema);
        ReplyText { committed, reason, seen: JsonRows::new(&seen) }
    }

    /// What an abort shows of rows.
    fn seen_of(&self, aborted: &RecordBatch, row: usize) -> String {
        let columns: Vec<usize> = (self.reason + 1..aborted.num_columns()).collect();
        let seen = aborted.project(&columns).expect("they are columns of it");
        let mut text = Vec::new();
        self.seen.of(&seen).write(&mut text, row);
        String::from_utf8(text).expect("JSON is text")
    }

    /// The replies, in the order of the calls.
    fn replies(&self, answered: &Answered) -> Vec<Reply> {
        let committed = answered.committed().map(|batch| self.committed.of(batch));
        let aborted = answered.aborted();
        let columns: Vec<usize> =
            aborted.map_or(self.reason..self.reason, |b| self.reason + 1..b.num_columns()).collect();
        let seen = aborted.map(|batch| batch.project(&columns).expect("they are columns of it"));
        let seen = seen.as_ref().map(|batch| self.seen.of(batch));
        let reasons: Option<&StringArray> = aborted.map(|batch| batch.column(self.reason).as_string());
        let reply = |&outcome: &Outcome| {
            let mut body = Vec::with_capacity(128);
            let kind = match outcome {
                Outcome::Committed(row) => {
                    body.extend_from_slice(b"{\"committed\":");
                    committed.as_ref().expect("it has the row").write(&mut body, row as usize);
                    ReplyKind::Committed
                }
                Outcome::Silent => {
                    body.extend_from_slice(b"{\"committed\":null");
                    ReplyKind::Committed
                }
                Outcome::Aborted(row) => {
                    body.extend_from_slice(b"{\"aborted\":");
                    json_string(&mut body, reasons.expect("it has the row").value(row as usize));
                    body.extend_from_slice(b",\"seen\":");
                    seen.as_ref().expect("it has the row").write(&mut body, row as usize);
                    ReplyKind::Aborted
                }
                Outcome::Refused(why) => return Reply { kind: ReplyKind::Refused(why), body },
            };
            body.extend_from_slice(format!(",\"epoch\":{}}}\n", answered.epoch).as_bytes());
            Reply { kind, body }
        };
        answered.outcomes().iter().map(reply).collect()
    }
}
