//! The link between a session and its run: what is sent on the way to the gate, what is asked on the way back.
//!
//! # Invariant
//!
//! All messages go through one mailbox, so the gate takes them in the order in which they were sent. A question is
//! answered with an epoch that contains everything that was sent before it and may pass; the answer is given when that
//! epoch is released, in the order of epochs.

use crate::session::calls::{Answering, SentCalls, Way, When};
use crate::session::follow::Follower;
use arrow_array::types::Int64Type;
use arrow_array::{Array, PrimitiveArray, RecordBatch, make_array};
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tidemill_durability::Place;
use tidemill_io::{IoFailure, Next, Source, SourceBatch};
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Stream, StreamId};
use tidemill_recovery::{Kept, Released, SavepointRequest};
use tidemill_stages::access::read::{TableRead, Wish};
use tidemill_stages::actor::{Bell, Inbox, Outbox, mailbox};
use tidemill_stages::finish::answers::Answers;
use tidemill_stages::gate::SourcePosition;

/// The number of messages that a session may be ahead of the gate.
const MESSAGES_AHEAD: usize = 64;

/// The number of epochs of which a sample is taken after somebody looked.
const SAMPLES: u32 = 64;

/// A source that nothing is read from: a session sends its events.
pub struct SentSource;

impl Source for SentSource {
    fn next(&mut self, _wait: Duration) -> Result<Next, IoFailure> {
        Ok(Next::End)
    }

    fn is_sent(&self) -> bool {
        true
    }
}

/// Returns events as they are sent, with a place for the time that the gate gives them.
pub fn with_time(stream: &Stream, events: &RecordBatch) -> RecordBatch {
    let Some(field) = stream.filled_time() else { return events.clone() };
    let schema = arrow_schema(&stream.schema);
    let mut columns = events.columns().to_vec();
    let times = PrimitiveArray::<Int64Type>::from_value(0, events.num_rows());
    let times = times.into_data().into_builder().data_type(schema.field(field).data_type().clone());
    columns.insert(field, make_array(times.build().expect("a time is a word")));
    RecordBatch::try_new(schema, columns).expect("the columns are of the schema")
}

/// A message to the gate.
pub enum Message {
    /// Records of a source, and their arrival time.
    Records(usize, SourceBatch, u64),
    /// Records of a source, each of which is a call.
    Calls(SentCalls),
    /// No event of a source with a time below comes any more.
    Punctuation(usize, i64),
    /// A source is silent, and holds no other source back until its next event.
    Idle(usize),
    /// Nothing more is sent to a source.
    End(usize),
    /// A question.
    Ask(Question),
}

impl Message {
    /// Returns the source that a message is about, unless it has calls.
    pub fn source(&self) -> Option<usize> {
        match self {
            Message::Records(source, ..)
            | Message::Punctuation(source, _)
            | Message::Idle(source)
            | Message::End(source) => Some(*source),
            Message::Calls(sent) => sent.are_pushed.then_some(sent.source),
            Message::Ask(_) => None,
        }
    }
}

/// A question about the run after everything that was sent before.
pub struct Question {
    /// The tables to read.
    pub tables: Vec<Wish>,
    /// The savepoint to keep, of a run with a state.
    pub savepoint: Option<SavepointRequest>,
    /// Dropped without an answer if the run ends before.
    pub answer: Sender<Answer>,
}

/// The answer to a question.
pub struct Answer {
    /// The released epoch that it is about.
    pub epoch: u64,
    /// The epoch's punctuation.
    pub complete: Option<i64>,
    /// The number of events that are held back at that point, by lateness or by another source, by source.
    pub held: Vec<u64>,
    /// The tables after that epoch, as they were asked for.
    pub tables: Vec<Arc<TableRead>>,
}

/// A question whose epoch is cut.
pub struct Due {
    /// The epoch.
    pub epoch: u64,
    /// The question.
    pub question: Question,
    /// The number of events held back after the cut, by source.
    pub held: Vec<u64>,
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// The message was sent, and the gate will take it.
    Sent,
    /// The message was not sent: there was no room in time.
    Full,
    /// The message was not sent: the end of the source was sent before.
    Ended,
    /// The run is over, or about to end.
    Over,
}

/// The state that a session and its run share.
#[derive(Default)]
pub struct Link {
    /// The channel to the gate, until the session or the run ends. Held by a sender that waits for room, so that others
    /// wait for their turn.
    gate: Mutex<Option<ToGate>>,
    /// A flag: whether the session is about to end. Written by who ends it, also while others still send; read by the gate.
    ends: AtomicBool,
    /// Rung when the gate takes a message.
    room: Arc<Bell>,
    /// The questions whose epochs are cut and not yet released, in order.
    due: Mutex<VecDeque<Due>>,
    /// The calls whose epochs are cut and not yet durable, in order.
    calls: Mutex<VecDeque<Answering>>,
    /// The calls whose outcomes are wanted earlier, until their epochs are finished.
    early_calls: Mutex<VecDeque<Answering>>,
    followers: Mutex<Followers>,
    /// The number of further epochs of which a sample of the rows that they touch is wanted. Written by those who look,
    /// and by the gate.
    samples: AtomicU32,
    /// The position of each source after the last epoch that was cut, by source.
    positions: Mutex<Vec<SourcePosition>>,
    /// The questions of those who ask for the state as it stands.
    as_it_stands: Mutex<Vec<AsItStands>>,
    /// The gate's bell.
    bell: OnceLock<Arc<Bell>>,
}

/// A question about the state as it stands: after the last epoch that is executed and durable. No epoch is cut for it, so
/// it is answered also while no epoch can be logged or released.
pub struct AsItStands {
    /// The tables to read.
    pub tables: Vec<Wish>,
    /// Dropped without an answer if the run ends before.
    pub answer: Sender<Answer>,
    /// Gone when nobody waits for the answer any more.
    pub wanted: Weak<()>,
}

/// The way to the gate.
struct ToGate {
    outbox: Outbox<Message>,
    /// The sources whose end was sent.
    ended: BTreeSet<usize>,
}

#[derive(Default)]
struct Followers {
    all: Vec<Arc<Follower>>,
    kept: Vec<Kept>,
    /// The streams of the followers, each once, and those that are kept.
    streams: Arc<[StreamId]>,
    is_over: bool,
}

impl Link {
    /// Connects the session with the gate of its run, whose bell this is.
    pub fn connect(&self, gate: &Arc<Bell>) -> Inbox<Message> {
        let (outbox, inbox) = mailbox(Some(MESSAGES_AHEAD), gate, Some(&self.room));
        let before = self.gate.lock().replace(ToGate { outbox, ended: BTreeSet::new() });
        assert!(before.is_none(), "a session has one run");
        self.bell.get_or_init(|| gate.clone());
        inbox
    }

    /// Sends a message; waits for room until the deadline, if there is one.
    pub fn send(&self, message: Message, deadline: Option<Instant>) -> Sending {
        let Some(mut gate) = (match deadline {
            None => Some(self.gate.lock()),
            Some(deadline) => self.gate.try_lock_until(deadline),
        }) else {
            return Sending::Full;
        };
        let Some(ToGate { outbox, ended }) = &mut *gate else { return Sending::Over };
        if let Message::Records(source, ..) | Message::Calls(SentCalls { source, .. }) = message
            && ended.contains(&source)
        {
            return Sending::Ended;
        }
        while outbox.is_full() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            if left == Some(Duration::ZERO) {
                return Sending::Full;
            }
            self.room.wait(left);
        }
        if let Message::End(source) = message {
            ended.insert(source);
        }
        if outbox.send(message) { Sending::Sent } else { Sending::Over }
    }

    /// Says that the session is about to end, while it may still be sent to.
    pub fn announce_end(&self) {
        self.ends.store(true, Ordering::Release);
        self.remind();
    }

    /// Returns whether the session is about to end.
    pub fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    /// Ends sending: the gate sees the end after everything that was sent before.
    pub fn end(&self) {
        self.announce_end();
        *self.gate.lock() = None;
    }

    /// Ends the sending, unless a sender waits for room until the deadline. Returns whether it is done.
    pub fn end_until(&self, deadline: Instant) -> bool {
        self.announce_end();
        self.gate.try_lock_until(deadline).map(|mut gate| *gate = None).is_some()
    }

    /// Asks for the state as it stands.
    pub fn ask_as_it_stands(&self, question: AsItStands) {
        let mut questions = self.as_it_stands.lock();
        questions.retain(|other| other.wanted.strong_count() > 0);
        questions.push(question);
        drop(questions);
        self.remind();
    }

    /// Has the gate look again at who asks for the state as it stands.
    pub fn remind(&self) {
        self.bell.get().iter().for_each(|bell| bell.ring());
    }

    /// Returns whether somebody asks for the state as it stands.
    pub fn asks_as_it_stands(&self) -> bool {
        !self.as_it_stands.lock().is_empty()
    }

    /// Answers those who do.
    pub fn answer_as_it_stands(
        &self,
        epoch: u64,
        complete: Option<i64>,
        mut read: impl FnMut(&[Wish]) -> Vec<Arc<TableRead>>,
    ) {
        let questions = std::mem::take(&mut *self.as_it_stands.lock());
        for AsItStands { tables, answer, .. } in questions.into_iter().filter(|one| one.wanted.strong_count() > 0) {
            // It may have gone just now.
            let _ = answer.send(Answer { epoch, complete, held: Vec::new(), tables: read(&tables) });
        }
    }

    /// Goes on to keep the last events of streams. Called before the run begins.
    pub fn keep(&self, kept: Vec<Kept>) {
        let mut followers = self.followers.lock();
        followers.kept = kept;
        followers.name_streams();
    }

    /// Returns the streams that are kept.
    pub fn kept(&self) -> Arc<[StreamId]> {
        self.followers.lock().kept.iter().map(|kept| kept.stream).collect()
    }

    /// Returns the place after which all events of a stream are kept, if any are.
    pub fn kept_after(&self, stream: StreamId) -> Option<Place> {
        self.followers.lock().kept.iter().find(|kept| kept.stream == stream).map(Kept::lost)
    }

    /// Adds a follower: it gets the events of epochs that are cut from now on or, if it goes on after a place, those that
    /// are kept and then all that follow.
    pub fn follow(&self, follower: &Arc<Follower>) -> Result<(), NotFollowed> {
        let mut followers = self.followers.lock();
        if followers.is_over {
            return Err(NotFollowed::Over);
        }
        if let Some(after) = follower.after() {
            let kept = followers.kept.iter().find(|kept| kept.stream == follower.stream());
            let kept = kept.ok_or(NotFollowed::NotKept)?;
            if after < kept.lost() {
                return Err(NotFollowed::Gone(kept.lost()));
            }
            kept.released().for_each(|released| follower.give(released.clone()));
        }
        followers.all.push(follower.clone());
        followers.name_streams();
        Ok(())
    }

    /// Removes a follower.
    pub fn unfollow(&self, follower: &Arc<Follower>) {
        let mut followers = self.followers.lock();
        followers.all.retain(|other| !Arc::ptr_eq(other, follower));
        followers.name_streams();
    }

    /// Returns the streams that are followed now.
    pub fn streams(&self) -> Arc<[StreamId]> {
        self.followers.lock().streams.clone()
    }

    /// Returns whether the run is over.
    pub fn is_over(&self) -> bool {
        self.followers.lock().is_over
    }

    /// Returns whether there are events for a follower that the run waits for and that has no room for more.
    pub fn has_no_room(&self, followed: &[(StreamId, Vec<RecordBatch>)]) -> bool {
        let has_events = |of: StreamId| {
            followed.iter().any(|(stream, batches)| *stream == of && batches.iter().any(|batch| batch.num_rows() > 0))
        };
        self.followers.lock().all.iter().any(|follower| follower.holds_back() && has_events(follower.stream()))
    }

    /// Returns the position of each source after the last epoch that was cut, by source; empty before the first.
    pub fn positions(&self) -> Vec<SourcePosition> {
        self.positions.lock().clone()
    }

    /// Asks for a sample of the rows that an epoch touches, of the next few epochs.
    pub fn look(&self) {
        self.samples.store(SAMPLES, Ordering::Relaxed);
    }

    /// Returns whether a sample is wanted of the next epoch.
    pub fn is_looked_at(&self) -> bool {
        let left = self.samples.load(Ordering::Relaxed);
        self.samples.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    /// Notes the positions of the sources after an epoch was cut.
    pub fn stand(&self, positions: Vec<SourcePosition>) {
        *self.positions.lock() = positions;
    }

    /// Notes a question whose epoch is cut.
    pub fn due(&self, due: Due) {
        let mut all = self.due.lock();
        assert!(all.back().is_none_or(|last| last.epoch <= due.epoch), "questions are in the order of epochs");
        all.push_back(due);
    }

    /// Notes the calls of an epoch that is cut.
    pub fn calls(&self, calls: Vec<Answering>) {
        let (mut durable, mut early) = (self.calls.lock(), self.early_calls.lock());
        for answering in calls {
            let all = if answering.when() == When::Executed { &mut early } else { &mut durable };
            assert!(
                all.back().is_none_or(|last| last.epoch() <= answering.epoch()),
                "calls are in the order of epochs"
            );
            all.push_back(answering);
        }
    }

    /// Gives the outcomes of an epoch that is durable, or only finished, to the callers that want them then.
    pub fn answer(&self, epoch: u64, answers: &[Arc<Answers>], way: Way, when: When) {
        let calls = match when {
            When::Durable => &self.calls,
            When::Executed => &self.early_calls,
        };
        give(calls, epoch, answers, way);
        let first = calls.lock().front().map(Answering::epoch);
        assert!(first.is_none_or(|first| first > epoch), "each epoch with calls is answered");
    }

    /// Gives the outcomes of an epoch that is finished to the callers that want them then, if all before have theirs.
    /// Called by the worker that has finished it; what it leaves is given by [`Link::answer`].
    pub fn answer_early(&self, epoch: u64, answers: &[Arc<Answers>], way: Way) {
        give(&self.early_calls, epoch, answers, way);
    }

    /// Returns whether somebody waits for the release of an epoch: who has asked about one up to it, or follows a stream.
    pub fn awaits(&self, epoch: u64) -> bool {
        let is_asked = self.due.lock().front().is_some_and(|first| first.epoch <= epoch);
        is_asked || !self.followers.lock().all.is_empty()
    }

    /// Gives the results of a released epoch to those who wait for them.
    pub fn release(
        &self,
        epoch: u64,
        complete: Option<i64>,
        followed: Vec<(StreamId, Vec<RecordBatch>)>,
        mut tables: Vec<Arc<TableRead>>,
    ) {
        self.followers.lock().release(epoch, complete, followed, false);
        let mut due = self.due.lock();
        while let Some(Due { question, held, .. }) = due.pop_front_if(|first| first.epoch <= epoch) {
            let rest = tables.split_off(question.tables.len().min(tables.len()));
            let answer = Answer { epoch, complete, held, tables: std::mem::replace(&mut tables, rest) };
            // Nobody may wait for it any more.
            let _ = question.answer.send(answer);
        }
    }

    /// Gives again what an earlier run released: to those who go on from a place, and to keep it.
    pub fn release_again(&self, epoch: u64, complete: Option<i64>, followed: Vec<(StreamId, Vec<RecordBatch>)>) {
        self.followers.lock().release(epoch, complete, followed, true);
    }

    /// Called after the run: nobody waits for it any more.
    pub fn close(&self) {
        self.end();
        self.due.lock().clear();
        self.calls.lock().clear();
        self.early_calls.lock().clear();
        self.as_it_stands.lock().clear();
        let mut followers = self.followers.lock();
        followers.is_over = true;
        followers.all.drain(..).for_each(|follower| follower.end());
    }
}

/// Gives the outcomes of an epoch to its callers, if they are first. A caller is first until it has its outcomes, so no
/// other thread gives it later ones meanwhile; and the gate does not wait for one who takes them.
fn give(calls: &Mutex<VecDeque<Answering>>, epoch: u64, answers: &[Arc<Answers>], way: Way) {
    let first = || calls.lock().front().filter(|first| first.epoch() == epoch).cloned();
    while let Some(answering) = first() {
        answering.answer(answers, way);
        calls.lock().pop_front();
    }
}

/// The reason why a stream cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFollowed {
    /// The run is over.
    Over,
    /// No events of the stream are kept.
    NotKept,
    /// Events after the place are not kept any more: only those after this one.
    Gone(Place),
}

impl Followers {
    /// Gives the events of a released epoch. `again`: an earlier run has released them before.
    fn release(&mut self, epoch: u64, complete: Option<i64>, followed: Vec<(StreamId, Vec<RecordBatch>)>, again: bool) {
        let wants = |follower: &&Arc<Follower>| !again || follower.after().is_some();
        for (stream, batches) in followed {
            for released in Released::of(epoch, complete, batches) {
                for follower in self.all.iter().filter(wants).filter(|follower| follower.stream() == stream) {
                    follower.give(released.clone());
                }
                if let Some(kept) = self.kept.iter_mut().find(|kept| kept.stream == stream) {
                    kept.give(released);
                }
            }
        }
        self.all.iter().filter(wants).for_each(|follower| follower.through(epoch));
    }

    fn name_streams(&mut self) {
        let followed = self.all.iter().map(|follower| follower.stream());
        let mut streams: Vec<StreamId> = followed.chain(self.kept.iter().map(|kept| kept.stream)).collect();
        streams.sort_unstable();
        streams.dedup();
        self.streams = streams.into();
    }
}

/// Returns the time, for those who wait for a run from outside.
#[allow(clippy::disallowed_methods, reason = "a session's caller has no other clock")]
pub fn now() -> Instant {
    Instant::now()
}
