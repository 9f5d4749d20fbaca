//! Calls: events that somebody waits for, and the outcomes of their transactions.
//!
//! A call is an event of a source that is sent to and has no event time, so nothing makes it wait. The *procedure* is the
//! one transaction that takes the events of that source, or what filters and maps make of them. Who calls is no part of the event, nor of the log:
//!
//! 1. [`Session::call`](crate::Session::call) sends the events with a [`Caller`].
//! 2. The gate notes it beside the events that it holds ([`CallsAtGate::take`]). When it cuts an epoch it notes which rows
//!    of the epoch have which caller ([`CallsAtGate::cut`]), and that the epoch answers this input (`Wanted::answers`).
//! 3. Finish gives the outcomes of the input's events (`stages`, `finish/answers.rs`).
//! 4. The committer hands them over once the epoch is durable, or, to a caller that wants them [`When::Executed`], as soon as
//!    it is finished ([`Answering::answer`]): then the worker that finishes it does, unless calls of an epoch before wait.
//!    The caller takes them on that thread ([`TakeOutcomes`]).
//!
//! # Invariant
//!
//! A caller gets the outcome of each of its events once, in their order, or none if the run ends before (one whose call waited for
//! the tick of a clock in vain learns that it was not made). The events are
//! in the log before that, unless it was wanted earlier, so a replay gives the same outcomes; it has no callers, and answers nobody. A call that is made
//! again with the same key gets the outcome of the first one ([`retries`](crate::session::retries)).

use arrow_array::RecordBatch;
use crossbeam_channel::Sender;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;
use tidemill_durability::CallKey;
use tidemill_io::SourceBatch;
use tidemill_plan::TransactionId;
use tidemill_stages::epoch::{Epoch, StageTimes};
use tidemill_stages::finish::answers::{Answers, NotMade, Outcome};
use tidemill_stages::wiring::InputId;

/// A transaction that can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The source that its calls are events of.
    pub source: usize,
    /// The transaction.
    pub transaction: TransactionId,
    /// The transaction on that source.
    pub(crate) input: InputId,
}

/// The moment when a caller wants the outcome of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Once no crash can take it back: its epoch is in the log, and the log on disk as [`Sync`](crate::Sync) says.
    #[default]
    Durable,
    /// The outcome as soon as it has run. A crash soon after may take it back, with all that came after it.
    Executed,
}

/// Takes the outcomes of calls, on a thread of the run: it is quick, and never waits. It is dropped when all outcomes
/// are given, or when the run is over and no more will be.
pub trait TakeOutcomes: Send + Sync {
    /// Takes outcomes. Those of other calls may come on another thread meanwhile.
    fn take(&self, answered: Answered);
}

impl TakeOutcomes for Sender<Answered> {
    fn take(&self, answered: Answered) {
        // Nobody may wait for it any more.
        let _ = self.send(answered);
    }
}

/// The receiver of the outcomes of events that were sent together.
#[derive(Clone)]
pub struct ReplyTo {
    /// Takes the outcomes.
    pub to: Arc<dyn TakeOutcomes>,
    /// The moment when they are wanted.
    pub when: When,
}

/// The caller that waits for the outcomes of events that were sent together.
#[derive(Clone)]
pub struct Caller {
    pub(crate) reply: ReplyTo,
    /// The number of earlier events of the caller.
    pub first: usize,
    pub(crate) input: InputId,
}

impl Caller {
    /// Answers one call: the outcome is in this row.
    pub(crate) fn answer(&self, epoch: u64, way: Option<Way>, answers: Arc<Answers>, rows: Range<usize>) {
        assert!(rows.end <= answers.outcomes.len(), "each call has an outcome");
        self.reply.to.take(Answered { first: self.first, epoch, way, answers, rows });
    }

    /// Says that one call was not made, or a push.
    pub(crate) fn refuse(&self, why: NotMade) {
        let outcomes = vec![Outcome::Refused(why)];
        let answers = Answers { input: self.input, outcomes, committed: None, aborted: None, untaken: Vec::new() };
        self.answer(0, None, Arc::new(answers), 0..1);
    }
}

/// The line of the calls that a process makes itself, one after the other.
pub const OWN_LINE: u64 = u64::MAX;

/// Calls of a source that are sent together.
pub struct SentCalls {
    /// The source.
    pub source: usize,
    /// The calls.
    pub calls: SourceBatch,
    /// The time when they came, by the clock of the run.
    pub arrived: u64,
    /// Who waits for the outcomes.
    pub caller: Caller,
    /// The keys of the calls, by call; empty if none has one.
    pub keys: Vec<Option<CallKey>>,
    /// The lines of the calls, by call: calls of a line run in the order in which they are sent, and 0 is that of one which stands alone. Empty:
    /// all are of [`OWN_LINE`].
    pub lines: Vec<u64>,
    /// A flag: whether they are no calls, but events that are pushed with one key, which is there first.
    pub are_pushed: bool,
}

impl SentCalls {
    /// The line of a call.
    pub fn line(&self, call: usize) -> u64 {
        self.lines.get(call).copied().unwrap_or(OWN_LINE)
    }

    /// The key of a call.
    pub fn key(&self, call: usize) -> Option<&CallKey> {
        self.keys.get(call)?.as_ref()
    }

    /// Says of each that it was not made.
    pub fn refuse(&self, why: NotMade) {
        let answers = if self.are_pushed { 1 } else { self.calls.events.num_rows() };
        for call in 0..answers {
            Caller { first: self.caller.first + call, ..self.caller.clone() }.refuse(why);
        }
    }

    /// Some of them.
    pub fn some(&self, calls: Range<usize>) -> SentCalls {
        fn part<T: Clone>(all: &[T], calls: &Range<usize>) -> Vec<T> {
            all.get(calls.clone()).unwrap_or_default().to_vec()
        }
        assert!(!self.are_pushed || calls == (0..self.calls.events.num_rows()), "a push is taken whole");
        let (keys, lines) = match self.are_pushed {
            true => (self.keys.clone(), self.lines.clone()),
            false => (part(&self.keys, &calls), part(&self.lines, &calls)),
        };
        SentCalls {
            source: self.source,
            calls: SourceBatch { events: self.calls.events.slice(calls.start, calls.len()), bad: Vec::new() },
            arrived: self.arrived,
            caller: Caller { first: self.caller.first + calls.start, ..self.caller.clone() },
            keys,
            lines,
            are_pushed: self.are_pushed,
        }
    }
}

/// A key of a call, which may be made again with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The user who calls: another user's equal key is another key. Empty where nobody is asked for a name.
    pub user: String,
    /// The key.
    pub key: String,
    /// The time at which it is called, microseconds since 1970.
    pub called: i64,
}

impl RequestKey {
    /// Makes the key of a call that a user makes at this time.
    pub fn new(user: &str, key: &str, now: SystemTime) -> RequestKey {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        RequestKey { user: user.into(), key: key.into(), called: since.as_micros() as i64 }
    }

    /// Returns the user's name and the key, which no other user's key equals: a name has one line.
    pub(crate) fn whole(&self) -> String {
        format!("{}\n{}", self.user, self.key)
    }
}

/// Outcomes of consecutive calls that were sent together and ran in one epoch.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The index of the first of these calls among those that were sent together.
    pub first: usize,
    /// The epoch, which is durable unless the outcome was wanted before; of a call that was made again, that of the first; 0 if none has it.
    pub epoch: u64,
    /// The way of its epoch; none of a call that was made again, or not made.
    pub way: Option<Way>,
    answers: Arc<Answers>,
    rows: Range<usize>,
}

/// The moments of an epoch's way, by the clock of the run ([`Session::now`](crate::Session::now)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The moment when a worker took it from the gate.
    pub began: u64,
    /// The moment when its transactions had run, and their outcomes were there.
    pub ended: u64,
    /// The moment when the committer saw it durable; none without a state, and where the outcome does not wait for that.
    pub durable: Option<u64>,
}

impl Way {
    pub(crate) fn of(times: &StageTimes) -> Way {
        Way { began: times.began, ended: times.ended, durable: None }
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It committed: a batch of one row, the record that the transaction returned; none if it returned none.
    Committed(Option<RecordBatch>),
    /// It aborted: a batch of one event of the transaction's aborted stream, with the reason and the values seen.
    Aborted(RecordBatch),
    /// It reached no transaction, for this reason: a filter left it out, or a filter or map failed. It changed nothing.
    Untaken(String),
    /// It was not made, for this reason: a call with the same key stands in its way, or the run ends.
    Refused(NotMade),
}

impl Answered {
    /// Returns the number of calls.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there is none; that never is.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the outcomes, in the order of the calls. A row in them is one of [`Answered::committed`] or
    /// [`Answered::aborted`].
    pub fn outcomes(&self) -> &[Outcome] {
        &self.answers.outcomes[self.rows.clone()]
    }

    /// Returns the records that the epoch's calls of this procedure returned, of other callers, too.
    pub fn committed(&self) -> Option<&RecordBatch> {
        self.answers.committed.as_ref()
    }

    /// Returns the values that the aborts of the epoch's calls of this procedure show, of other callers, too.
    pub fn aborted(&self) -> Option<&RecordBatch> {
        self.answers.aborted.as_ref()
    }

    /// Returns the reason of a call that reached no transaction.
    pub fn untaken(&self, reason: u32) -> &str {
        &self.answers.untaken[reason as usize]
    }

    /// Returns the outcomes as values of their own, in the order of the calls.
    pub fn replies(&self) -> impl Iterator<Item = Reply> {
        let row = |batch: Option<&RecordBatch>, row: u32| batch.expect("it has the row").slice(row as usize, 1);
        self.outcomes().iter().map(move |&outcome| match outcome {
            Outcome::Committed(at) => Reply::Committed(Some(row(self.committed(), at))),
            Outcome::Silent => Reply::Committed(None),
            Outcome::Aborted(at) => Reply::Aborted(row(self.aborted(), at)),
            Outcome::Untaken(reason) => Reply::Untaken(self.untaken(reason).to_owned()),
            Outcome::Refused(why) => Reply::Refused(why),
        })
    }
}

/// Consecutive events of a source that the gate holds, and who waits for them.
struct Held {
    count: usize,
    /// None for events that are no calls.
    caller: Option<Caller>,
}

/// The calls whose events the gate holds.
#[derive(Default)]
pub struct CallsAtGate {
    /// The held calls of each source, in order, by source. Events after these, if there are more, are no calls.
    held: BTreeMap<usize, HeldCalls>,
}

/// The calls among the held events of a source.
#[derive(Default)]
struct HeldCalls {
    queue: VecDeque<Held>,
    /// The number of events in the queue.
    count: usize,
}

impl CallsAtGate {
    /// Notes the caller of events that the gate is about to hold after `held` others of the same source.
    pub fn take(&mut self, source: usize, held: usize, count: usize, caller: Caller) {
        let HeldCalls { queue, count: known } = self.held.entry(source).or_default();
        assert!(*known <= held, "calls that have left the gate were forgotten");
        if *known < held {
            queue.push_back(Held { count: held - *known, caller: None });
        }
        queue.push_back(Held { count, caller: Some(caller) });
        *known = held + count;
    }

    /// Asks an epoch that was just cut for the outcomes of the calls in it.
    pub fn cut(&mut self, epoch: &mut Epoch) -> Vec<Answering> {
        let mut answering = Vec::new();
        for (&source, HeldCalls { queue, count: known }) in &mut self.held {
            let rows = epoch.input.sources[source].events.as_ref().map_or(0, RecordBatch::num_rows);
            let mut at = 0;
            while at < rows
                && let Some(held) = queue.front_mut()
            {
                let count = held.count.min(rows - at);
                if let Some(caller) = &mut held.caller {
                    let answers = place_of(&mut epoch.input.wanted.answers, caller.input);
                    let rows = at..at + count;
                    answering.push(Answering { epoch: epoch.number, answers, rows, caller: caller.clone() });
                    caller.first += count;
                }
                held.count -= count;
                *known -= count;
                if held.count == 0 {
                    queue.pop_front();
                }
                at += count;
            }
        }
        answering
    }
}

/// Returns the place of an input in a list, to which it is added if it is not there.
pub fn place_of(inputs: &mut Vec<InputId>, input: InputId) -> usize {
    inputs.iter().position(|&other| other == input).unwrap_or_else(|| {
        inputs.push(input);
        inputs.len() - 1
    })
}

/// Calls whose epoch is cut.
#[derive(Clone)]
pub struct Answering {
    epoch: u64,
    /// The place of their outcomes among those that the epoch was asked for.
    answers: usize,
    rows: Range<usize>,
    caller: Caller,
}

impl Answering {
    /// Returns the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the moment when they are wanted.
    pub fn when(&self) -> When {
        self.caller.reply.when
    }

    /// Hands the outcomes over, given all that the epoch was asked for, and its way.
    pub fn answer(self, answers: &[Arc<Answers>], way: Way) {
        let Answering { epoch, answers: place, rows, caller } = self;
        let answers = answers[place].clone();
        assert_eq!(answers.input, caller.input, "a caller gets the outcomes of its procedure");
        caller.answer(epoch, Some(way), answers, rows);
    }
}
