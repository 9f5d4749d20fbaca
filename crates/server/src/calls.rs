//! Calls on their way: from requests to batches for the engine, and from outcomes to replies.
//!
//! 1. A request's object is decoded into the next batch of its procedure ([`Calls::call`]); a wrong one is refused here.
//! 2. All batches are sent by a task on the thread of the connections, once the other tasks that are ready have run
//!    ([`Sending`]), or by the task that makes a call where there are [`TOGETHER`] already. While there is no room they
//!    grow: so the more calls there are, the less each costs.
//! 3. The outcomes are taken on the thread of the run that has them ([`Sent`]). It writes the replies of HTTP as JSON and
//!    wakes the requests that wait.
//!
//! So between connections and the run there is no thread, unless there is no room, or calls wait for their turn
//! (`turns`): then a thread puts them into the next batches as others are answered ([`Calls::take_turns`]). A request that
//! has gone meanwhile changes nothing for the others; its call runs, and keeps its place until it is answered.
//!
//! # Order
//!
//! Batches are sent in the order of their numbers. A client that makes calls without waiting for replies says in which
//! batch its last call is ([`Turn`]); its next one goes into that batch or a later one. So its calls run in the order in
//! which they were made, also if they are of several procedures.
//!
//! Locks are taken in this order: the batches that are not sent, then the turns.

use crate::caller::SentEvents;
use crate::shares::{Client, Share, Shares, Who};
use crate::traces::{Parent, Trace, Traces};
use crate::turns::{Queued, Turn, Turns};
use arrow_array::cast::AsArray;
use arrow_array::{RecordBatch, StringArray};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tidemill_connect::{JsonRecords, JsonRows, json_string};
use tidemill_io::BadRecord;
use tidemill_model::Schema;
use tidemill_runtime::{
    Answered, MESSAGE_EVENTS_MAX, NotMade, Outcome, Procedure, ReplyTo, RequestKey, Session, SessionError, Spread,
    SpreadAt, TakeOutcomes, When,
};
use tokio::sync::oneshot;

/// The number of calls of a batch that are sent at once: the engine runs them while more are made.
const TOGETHER: usize = 256;

/// The longest time between two looks at whose turn it is, and the time after which the thread ends if no calls wait.
const TICK: Duration = Duration::from_millis(20);
const STAYS: Duration = Duration::from_secs(1);

/// A reply to a call.
#[derive(Debug)]
pub struct Reply {
    /// The outcome, without its rows.
    pub kind: ReplyKind,
    /// A JSON object.
    pub body: Vec<u8>,
    /// The trace of the call, if it has one; it ends with the reply.
    pub _trace: Option<Box<Trace>>,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    Committed,
    Aborted,
    /// The call was not made.
    Refused(NotMade),
}

/// The reason why a call is not made.
#[derive(Debug)]
pub enum Refused {
    /// There is no such procedure, or it cannot be called: why.
    Unknown(String),
    /// Too many are under way.
    Busy,
    /// The arguments of the call are wrong.
    Bad(BadRecord),
    /// Its key is: why.
    Key(String),
    /// Nobody knows who makes it, and its event wants to: why.
    Nobody(String),
}

/// Makes calls.
pub struct Calls {
    session: Arc<Session>,
    procedures: Vec<Named>,
    next: Mutex<Next>,
    turns: Arc<Waiters>,
    places: Shares,
    traces: Option<Arc<Traces>>,
    /// Calls so far that were made, and that were refused because too many were under way.
    pub made: AtomicU64,
    /// Calls so far that were refused because too many were under way.
    pub refused: AtomicU64,
}

/// The time for which calls of a procedure took.
type Taken = Arc<Spread>;

/// A procedure.
struct Named {
    name: String,
    procedure: Procedure,
    sent: SentEvents,
    text: Arc<ReplyText>,
    taken: Taken,
}

/// The wishes of a client for a call.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The request key, with which the call may be repeated.
    pub key: Option<RequestKey>,
    /// The moment at which the reply is sent: after the call, or once it is durable.
    pub when: When,
    /// The span in which the client makes it, if it says so.
    pub parent: Option<Parent>,
}

/// The calls that wait for their turn.
struct Waiters {
    turns: Mutex<Turns<Waits>>,
    /// Rung when some are answered, and when one begins to wait.
    bell: Condvar,
}

/// A call that waits for its turn.
struct Waits {
    turn: Turn,
    procedure: usize,
    when: When,
    /// A JSON object, which was looked at.
    object: Vec<u8>,
    key: Option<RequestKey>,
    waiting: Waiting,
}

impl Queued for Waits {
    fn turn(&self) -> &Turn {
        &self.turn
    }

    fn procedure(&self) -> usize {
        self.procedure
    }
}

/// The batches that are not sent yet.
#[derive(Default)]
struct Next {
    /// The batches, in the order of their numbers.
    batches: VecDeque<NextBatch>,
    /// The number of batches so far.
    count: u64,
    /// Unused decoders, by procedure, for the next batches.
    free: Vec<Vec<JsonRecords>>,
    /// The part of a batch that the engine had no room for; it goes before the batches.
    unsent: Option<Unsent>,
    task: Task,
    /// A flag: whether there is a thread that takes turns.
    has_thread: bool,
}

/// The task that sends what is there ([`Sending`]).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Task {
    #[default]
    None,
    /// The task is scheduled, and will run.
    Ready,
    /// The task waits for room in the engine, for a call that comes before all calls that are here.
    Waits,
}

/// Calls of one procedure that will be sent together.
struct NextBatch {
    number: u64,
    procedure: usize,
    when: When,
    records: JsonRecords,
    /// The request keys of the calls, by call; empty as long as no call has one.
    keys: Vec<Option<RequestKey>>,
    /// The lines of the calls, by call.
    lines: Vec<u64>,
    waiting: Vec<Waiting>,
}

/// A request that waits for its reply.
struct Waiting {
    to: To,
    client: Client,
    place: Share,
    /// The time at which the request came.
    since: Instant,
    trace: Option<Box<Trace>>,
}

/// The form in which a request wants its reply, with the channel for it.
enum To {
    Text(oneshot::Sender<Reply>),
    Columns(oneshot::Sender<Made>),
}

/// The outcome of a call, in columns.
#[derive(Debug)]
pub struct Made {
    answered: Answered,
    at: usize,
    /// The trace of the call, if it has one; it ends with the reply.
    _trace: Option<Box<Trace>>,
}

impl Made {
    /// Returns the outcome, with its row in what [`Made::answered`] has.
    pub fn outcome(&self) -> Outcome {
        self.answered.outcomes()[self.at]
    }

    /// Returns the outcomes of this call and of those that were answered with it.
    pub fn answered(&self) -> &Answered {
        &self.answered
    }
}

impl Calls {
    /// Makes the calls of a session; `places` limits those that are under way at a time.
    pub fn new(session: Arc<Session>, places: Shares, traces: Option<Arc<Traces>>) -> Calls {
        let named = |procedure: Procedure| {
            let transaction = &session.engine().program().transactions[procedure.transaction];
            Named {
                name: transaction.name.clone(),
                procedure,
                sent: SentEvents::of(&session, procedure.source),
                text: Arc::new(ReplyText::of(&session, procedure)),
                taken: Taken::default(),
            }
        };
        let procedures: Vec<Named> = session.procedures().map(named).collect();
        let free = procedures.iter().map(|_| Vec::new()).collect();
        let turns = Mutex::new(Turns::new(procedures.len()));
        Calls {
            procedures,
            turns: Arc::new(Waiters { turns, bell: Condvar::new() }),
            next: Mutex::new(Next { free, ..Next::default() }),
            session,
            places,
            traces,
            made: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The names of the procedures, with the fields that clients give.
    pub fn procedures(&self) -> impl Iterator<Item = (&str, Schema)> {
        self.procedures.iter().map(|named| (&*named.name, named.sent.given()))
    }

    /// Returns the time for which calls took, from the request to the reply, by procedure.
    pub fn taken(&self) -> impl Iterator<Item = (&str, SpreadAt)> {
        self.procedures.iter().map(|named| (&*named.name, named.taken.read()))
    }

    /// Returns whether calls of a procedure, by its place in [`Calls::procedures`], may have request keys.
    pub fn remembers(&self, procedure: usize) -> bool {
        self.session.remembers(self.procedures[procedure].procedure.source)
    }

    /// Returns the time at which a call with a key is made now.
    pub fn time_of_key(&self) -> SystemTime {
        self.session.time_of_key()
    }

    /// Returns the traces, if calls are traced.
    pub fn traces(&self) -> Option<&Arc<Traces>> {
        self.traces.as_ref()
    }

    /// Returns the number of calls under way.
    pub fn in_flight(&self) -> usize {
        self.places.taken()
    }

    /// Calls a procedure. The call runs after the last one of this turn. The receiver gets the reply; it is closed without one if
    /// the run ends before. Panics outside of a runtime of `tokio`.
    pub fn call(
        self: &Arc<Self>,
        name: &str,
        object: &[u8],
        wanted: Wanted,
        turn: &Turn,
    ) -> Result<oneshot::Receiver<Reply>, Refused> {
        let Some(procedure) = self.procedures.iter().position(|named| named.name == name) else {
            let why = self.session.procedure(name).map_or_else(|error| error.to_string(), |_| "it is hidden".into());
            return Err(Refused::Unknown(why));
        };
        let (to, reply) = oneshot::channel();
        self.make(procedure, object, wanted, turn, To::Text(to))?;
        Ok(reply)
    }

    /// Calls a procedure by its place in [`Calls::procedures`], as [`Calls::call`] does, with the outcome in columns.
    pub fn call_after(
        self: &Arc<Self>,
        procedure: usize,
        object: &[u8],
        wanted: Wanted,
        turn: &Turn,
    ) -> Result<oneshot::Receiver<Made>, Refused> {
        let (to, made) = oneshot::channel();
        self.make(procedure, object, wanted, turn, To::Columns(to))?;
        Ok(made)
    }

    fn make(
        self: &Arc<Self>,
        procedure: usize,
        object: &[u8],
        Wanted { key, when, parent }: Wanted,
        turn: &Turn,
        to: To,
    ) -> Result<(), Refused> {
        if let Some(key) = &key {
            let source = self.procedures[procedure].procedure.source;
            self.session.check_key(source, key).map_err(|error| Refused::Key(error.to_string()))?;
        }
        if let Some(why) = self.procedures[procedure].sent.refusal(&turn.client) {
            return Err(Refused::Nobody(why));
        }
        let Some(place) = self.places.take(&turn.client) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Busy);
        };
        let now = Instant::now();
        let name = &self.procedures[procedure].name;
        let trace = self.traces.as_ref().and_then(|traces| traces.begin(name, turn.client.by, parent, now));
        let waiting = Waiting { to, client: turn.client.clone(), place, since: now, trace };
        let mut next = self.next.lock();
        if self.turns.turns.lock().may_go(turn, procedure, now) {
            let added = self.add(&mut next, turn, (procedure, when), object, (key, waiting));
            let together = added.map_err(|bad| {
                self.turns.turns.lock().gone(&turn.client.who, procedure);
                Refused::Bad(bad)
            })?;
            self.begin_to_send(&mut next, together);
        } else {
            self.check(&mut next, procedure, object).map_err(Refused::Bad)?;
            let (turn, object) = (turn.clone(), object.to_owned());
            self.turns.turns.lock().wait(Waits { turn, procedure, when, object, key, waiting }, now);
            self.begin_to_take_turns(&mut next);
        }
        drop(next);
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Puts a call into a batch, and returns the number of calls there; or says what is wrong with it.
    fn add(
        &self,
        next: &mut Next,
        turn: &Turn,
        (procedure, when): (usize, When),
        object: &[u8],
        (key, waiting): (Option<RequestKey>, Waiting),
    ) -> Result<usize, BadRecord> {
        let schema = || self.procedures[procedure].sent.given();
        let batch = next.batch(procedure, when, turn, schema);
        batch.records.push(object)?;
        if key.is_some() {
            batch.keys.resize(batch.waiting.len(), None);
            batch.keys.push(key);
        }
        batch.lines.push(turn.line());
        batch.waiting.push(waiting);
        turn.is_in(batch.number);
        Ok(batch.waiting.len())
    }

    /// Looks whether a call is right that waits for its turn.
    fn check(&self, next: &mut Next, procedure: usize, object: &[u8]) -> Result<(), BadRecord> {
        let schema = || self.procedures[procedure].sent.given();
        let mut records = next.free[procedure].pop().unwrap_or_else(|| JsonRecords::new(&schema()));
        let checked = records.push(object);
        records.finish();
        next.free[procedure].push(records);
        checked
    }

    /// Sends what is there once the other tasks that are ready have run, or at once if it is much.
    fn begin_to_send(self: &Arc<Self>, next: &mut Next, together: usize) {
        let are_many = together >= TOGETHER;
        let may_send = next.task != Task::Waits && next.unsent.is_none();
        let is_all = are_many && may_send && self.send(next);
        if !is_all && next.task == Task::None {
            next.task = Task::Ready;
            tokio::spawn(Sending(Some(self.clone())).run());
        }
    }

    /// Starts the thread that takes turns, unless there is one.
    fn begin_to_take_turns(self: &Arc<Self>, next: &mut Next) {
        if !next.has_thread {
            let calls = self.clone();
            let thread = thread::Builder::new().name("turns".into()).spawn(move || calls.take_turns());
            // Without a thread they wait until the next call tries again.
            next.has_thread = thread.is_ok();
        }
        self.turns.bell.notify_one();
    }

    /// Returns the values that the rows of an abort had, as a JSON object.
    pub fn seen(&self, procedure: usize, aborted: &RecordBatch, row: usize) -> String {
        self.procedures[procedure].text.seen_of(aborted, row)
    }

    /// Returns the reason of an abort.
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
    lines: Vec<u64>,
    reply: ReplyTo,
}

impl Unsent {
    /// Sends them, if there is room before the time, or waits for it. False if there is none.
    fn send(&self, until: Option<Instant>) -> bool {
        let Unsent { session, procedure, events, keys, lines, reply } = self;
        match session.call_for(procedure, events, keys, lines, reply, until) {
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

    /// Returns the first of the batches.
    fn first(&self, next: &mut Next) -> Option<Unsent> {
        loop {
            let NextBatch { procedure: place, when, mut records, mut keys, lines, waiting, .. } =
                next.batches.pop_front()?;
            let (events, count) = (records.finish(), waiting.len());
            assert_eq!(count, events.num_rows(), "each call has a request that waits");
            next.free[place].push(records);
            if count == 0 {
                continue;
            }
            if !keys.is_empty() {
                keys.resize(count, None);
            }
            let Named { procedure, sent, text, taken, .. } = &self.procedures[place];
            let events = sent.whole(events, waiting.iter().map(|waiting| &waiting.client));
            let waiting = Mutex::new(waiting.into_iter().map(Some).collect());
            let (text, turns, taken, at) = (text.clone(), self.turns.clone(), taken.clone(), Instant::now());
            let (session, procedure) = (self.session.clone(), *procedure);
            let sent = Sent { session: session.clone(), text, procedure: place, turns, taken, sent: at, waiting };
            let reply = ReplyTo { to: Arc::new(sent), when };
            return Some(Unsent { session, procedure, events, keys, lines, reply });
        }
    }
}

impl Calls {
    /// Puts calls whose turn it is into the next batches, and sends these, as long as any wait.
    fn take_turns(&self) {
        let mut waited = Instant::now();
        loop {
            let mut next = self.next.lock();
            let mut turns = self.turns.turns.lock();
            let now = Instant::now();
            if turns.waiting() > 0 {
                waited = now;
            } else if now.saturating_duration_since(waited) > STAYS {
                next.has_thread = false;
                return;
            }
            let calls = turns.next(now);
            // The task that was to send them may have ended with its connections.
            let are_left = next.task == Task::None && !next.batches.is_empty();
            if calls.is_empty() && !are_left {
                drop(next);
                self.turns.bell.wait_for(&mut turns, TICK);
                continue;
            }
            drop(turns);
            for Waits { turn, procedure, when, object, key, waiting } in calls {
                let added = self.add(&mut next, &turn, (procedure, when), &object, (key, waiting));
                added.expect("it was looked at");
            }
            if next.task == Task::None {
                self.send_all(next);
            }
        }
    }

    /// Sends all that is there, on a thread that may wait.
    fn send_all(&self, mut next: MutexGuard<'_, Next>) {
        while !self.send(&mut next) {
            let unsent = next.unsent.take().expect("there was no room for it");
            next.task = Task::Waits;
            MutexGuard::unlocked(&mut next, || unsent.send(None));
            next.task = Task::None;
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
    session: Arc<Session>,
    text: Arc<ReplyText>,
    /// The place of their procedure.
    procedure: usize,
    turns: Arc<Waiters>,
    taken: Taken,
    /// The time at which the calls were sent.
    sent: Instant,
    /// The receivers of the replies, by call; none once a call is answered.
    waiting: Mutex<Vec<Option<Waiting>>>,
}

impl TakeOutcomes for Sent {
    fn take(&self, answered: Answered) {
        let calls = answered.first..answered.first + answered.len();
        let waiting: Vec<Waiting> = self.waiting.lock()[calls].iter_mut().filter_map(Option::take).collect();
        assert_eq!(waiting.len(), answered.len(), "a call is answered once");
        self.turns.answered(self.procedure, &waiting, self.sent);
        let is_text = |waiting: &Waiting| matches!(waiting.to, To::Text(_));
        let mut replies = waiting.iter().any(is_text).then(|| self.text.replies(&answered).into_iter());
        let now = Instant::now();
        for (at, Waiting { to, place, since, mut trace, .. }) in waiting.into_iter().enumerate() {
            if let Some(trace) = &mut trace {
                let now = (Instant::now(), self.session.now());
                trace.answered(answered.epoch, answered.outcomes()[at], answered.way, now);
            }
            self.taken.add(now.saturating_duration_since(since).as_nanos() as u64, 1);
            // One who has the reply may call again.
            drop(place);
            let reply = replies.as_mut().and_then(Iterator::next);
            // The request may have gone.
            match to {
                To::Text(to) => _ = to.send(Reply { _trace: trace, ..reply.expect("each call has a reply") }),
                To::Columns(to) => _ = to.send(Made { answered: answered.clone(), at, _trace: trace }),
            }
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let unanswered = std::mem::take(self.waiting.get_mut());
        let mut turns = self.turns.turns.lock();
        unanswered.iter().flatten().for_each(|waiting| turns.gone(&waiting.client.who, self.procedure));
        self.turns.bell.notify_one();
    }
}

impl Waiters {
    /// Calls of a procedure were answered that were sent at this time.
    fn answered(&self, procedure: usize, calls: &[Waiting], sent: Instant) {
        let mut by: Vec<(Who, usize)> = Vec::new();
        for waiting in calls {
            match by.last_mut().filter(|(who, _)| *who == waiting.client.who) {
                Some((_, count)) => *count += 1,
                None => by.push((waiting.client.who.clone(), 1)),
            }
        }
        // Calls of several clients come in any order, but most often they are of a few.
        by.sort();
        by.dedup_by(|(who, count), (before, counted)| {
            let is_same = who == before;
            *counted += if is_same { *count } else { 0 };
            is_same
        });
        let mut turns = self.turns.lock();
        turns.answered(procedure, &by, sent, Instant::now());
        if turns.waiting() > 0 {
            self.bell.notify_one();
        }
    }
}

impl Next {
    /// Returns the batch for a call that runs after the last one of this turn.
    fn batch(&mut self, procedure: usize, when: When, turn: &Turn, schema: impl FnOnce() -> Schema) -> &mut NextBatch {
        let has_room = |batch: &NextBatch| batch.waiting.len() < MESSAGE_EVENTS_MAX;
        let is_of = |batch: &NextBatch| (batch.procedure, batch.when) == (procedure, when) && has_room(batch);
        let last = turn.batch();
        let is_it = |batch: &NextBatch| is_of(batch) && batch.number >= last;
        let place = self.batches.iter().rposition(is_it).unwrap_or_else(|| {
            self.count += 1;
            let records = self.free[procedure].pop().unwrap_or_else(|| JsonRecords::new(&schema()));
            self.batches.push_back(NextBatch {
                number: self.count,
                procedure,
                when,
                records,
                keys: Vec::new(),
                lines: Vec::new(),
                waiting: Vec::new(),
            });
            self.batches.len() - 1
        });
        &mut self.batches[place]
    }
}

/// The form of the replies of a procedure, as JSON.
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

    /// Returns the values that an abort shows of the rows that its transaction saw, as a JSON object.
    fn seen_of(&self, aborted: &RecordBatch, row: usize) -> String {
        let columns: Vec<usize> = (self.reason + 1..aborted.num_columns()).collect();
        let seen = aborted.project(&columns).expect("they are columns of it");
        let mut text = Vec::new();
        self.seen.of(&seen).write(&mut text, row);
        String::from_utf8(text).expect("JSON is text")
    }

    /// Returns the replies, in the order of the calls.
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
                Outcome::Untaken(reason) => {
                    body.extend_from_slice(b"{\"aborted\":");
                    json_string(&mut body, answered.untaken(reason));
                    body.extend_from_slice(b",\"seen\":{}");
                    ReplyKind::Aborted
                }
                Outcome::Refused(why) => return Reply { kind: ReplyKind::Refused(why), body, _trace: None },
            };
            body.extend_from_slice(format!(",\"epoch\":{}}}\n", answered.epoch).as_bytes());
            Reply { kind, body, _trace: None }
        };
        answered.outcomes().iter().map(reply).collect()
    }
}
