//! An epoch: all data about a run of events between two punctuations, from the gate to the sinks. Buffers are reused: a
//! finished epoch is cleared and filled again, so that a steady flow allocates little.

use crate::access::grouping::{Grouping, Scheduled, within};
use crate::access::hot::Touched;
use crate::access::read::{TableRead, Wish};
use crate::access::snapshot::SnapshotDue;
use crate::digest::EpochDigest;
use crate::due::DueCut;
use crate::finish::answers::Answers;
use crate::incoming::IncomingLists;
use crate::input::Input;
use crate::stream_state::{EventLog, PipelineState};
use crate::tasks::{HandOver, Numbered};
use crate::wiring::{InputEvent, InputId, InputWiring, Joint, JointId, Wiring};
use arrow_array::RecordBatch;
use std::ops::Range;
use std::sync::Arc;
use tidemill_compile::{Code, Produced};
use tidemill_io::BadRecord;
use tidemill_plan::{Program, StreamId, TransactionId};
use tidemill_schedule::Breakdown;
use tidemill_state::{EvictedError, Generation};
use tidemill_txn::Survey;
use typed_index_collections::{TiSlice, TiVec, ti_vec};

/// A run of consecutive events of a joint; each event stands for the transactions of all the joint's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JointRun {
    /// The joint.
    pub joint: JointId,
    /// The number of consecutive events, in order.
    pub count: u32,
}

/// A source's contribution to an epoch.
#[derive(Default)]
pub struct SourceSlice {
    /// Its events in position order.
    pub events: Option<RecordBatch>,
    /// Its late events, in order of arrival, unless they are inputs.
    pub late: Vec<RecordBatch>,
    /// Its undecodable records.
    pub bad: Vec<BadRecord>,
    /// The places of its events, if code asks for them: [`prepare`](crate::prepare) puts them here.
    pub places: Vec<u64>,
}

/// Sampled execution time, and the number of transactions that ran in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled {
    /// Nanoseconds.
    pub time: u64,
    /// Transactions; a part of one counts as a fraction, one over the number of the transaction's units.
    pub transactions: f64,
}

/// The marking of the rows that an epoch of a durable run may write.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// The mark; each interval between checkpoints has its own.
    pub generation: Generation,
    /// The bug that a test has planted, if any.
    pub flaw: Option<Flaw>,
}

/// A bug that a test plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Epochs of even number mark nothing.
    OmitsMarks,
    /// No row is saved.
    OmitsSaves,
    /// Epochs of even number do not merge the last group of an input.
    OmitsGroup,
    /// Epochs of even number merge the groups of an input twice.
    MergesTwice,
}

/// Time that an epoch spent in its stages, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// The time at which prepare began, by the clock of the run.
    pub began: u64,
    /// The time at which finish ended, by the same clock.
    pub ended: u64,
    /// Stateless work before access.
    pub prepare: u64,
    /// Access: the transactions.
    pub access: u64,
    /// The part of access that surveys the epoch and chooses its policy.
    pub decide: u64,
    /// Stateless work after access.
    pub finish: u64,
}

/// The wishes of a session for an epoch, beyond the outputs for sinks.
#[derive(Clone, Default)]
pub struct Wanted {
    /// The streams that are followed.
    pub follows: Arc<[StreamId]>,
    /// The tables to read after its access; a table may be there several times.
    pub tables: Vec<Wish>,
    /// The inputs whose events have callers that wait for their outcomes; each once.
    pub answers: Vec<InputId>,
    /// A flag: whether a sample of the rows that it touches is wanted.
    pub touched: bool,
}

/// The part of an epoch that the gate fills: its events and their order.
#[derive(Default)]
pub struct EpochInput {
    /// A flag: whether an earlier run has logged the epoch.
    pub replayed: bool,
    /// Events of all sources.
    pub events: usize,
    /// The time of the clock at which the gate had room for it.
    pub opened: u64,
    /// Arrival times of the events (time of the clock), and the number of events that arrived at each.
    pub arrivals: Vec<(u64, u64)>,
    /// The slice of each stream whose events an epoch is given, by number: the sources, then the streams of due rows,
    /// then late events that are inputs.
    pub sources: Vec<SourceSlice>,
    /// The sources' events in position order: runs of a source and a number of events.
    pub merge: Vec<(u32, u32)>,
    /// The number of events of all sources that had passed before those of `merge`.
    pub passed: u64,
    /// The time of the first of the sources' events, if it has any and they have times.
    pub least_time: Option<i64>,
    /// The number of times for which events are left out, as there were too many, of streams of ticks and of windows of
    /// rows.
    pub left_out: Vec<(StreamId, u64)>,
    /// If it has what is due at a time, and no events of sources: which.
    pub due: Option<DueCut>,
    /// If what is due runs within it: all that is due at this time or earlier, between the events of sources at its place.
    pub due_through: Option<i64>,
    /// Its punctuation: every event with a time below has passed in it or before it, and none comes any more. None
    /// before each source has shown a time, and in programs without event times.
    pub complete: Option<i64>,
    /// The wishes of a session.
    pub wanted: Wanted,
    /// The marking of the rows that it changes, in a durable run.
    pub changes: Option<Changes>,
    /// If a checkpoint is due with it: the snapshot that begins after its access.
    pub snapshot_due: Option<SnapshotDue>,
    /// A flag: whether its results are to be digested.
    pub is_digested: bool,
}

impl EpochInput {
    /// Takes what is due, if anything is; `number` is that of the stream among those whose events an epoch is given.
    pub fn given_due(&mut self, number: usize, events: Option<RecordBatch>) {
        assert!(self.merge.is_empty(), "what is due has an epoch of its own");
        self.merge.extend(events.iter().map(|events| (number as u32, events.num_rows() as u32)));
        self.sources[number].events = events;
    }

    fn clear(&mut self) {
        for source in &mut self.sources {
            *source = SourceSlice { places: emptied(&mut source.places), ..SourceSlice::default() };
        }
        *self = EpochInput {
            arrivals: emptied(&mut self.arrivals),
            sources: std::mem::take(&mut self.sources),
            merge: emptied(&mut self.merge),
            ..EpochInput::default()
        };
    }
}

/// The buffers that an epoch's stages fill and read one after the other.
pub struct Work {
    /// The pipeline outputs of each root, by stream.
    pub pipelines: TiVec<StreamId, PipelineState>,
    /// The events of each stream that transactions feed and code reads, by stream.
    pub logs: TiVec<StreamId, Option<EventLog>>,
    /// The events of each input with their rows and verdicts, by input.
    pub inputs: TiVec<InputId, Input>,
    /// The lists that came in with the events.
    pub lists: IncomingLists,
    /// The events that were due within the epoch, by stream and boundary; logs may point to their texts.
    pub due: Vec<RecordBatch>,
    /// The transactions in position order. If the program cascades, access writes it.
    pub order: Vec<JointRun>,
    /// Texts and emissions from the workers' contexts; kept as long as captured columns may point into them.
    pub produced: Vec<Produced>,
}

impl Work {
    fn clear(&mut self) {
        let Work { pipelines, logs, inputs, lists, due, order, produced } = self;
        lists.clear();
        pipelines.iter_mut().for_each(PipelineState::clear);
        logs.iter_mut().flatten().for_each(EventLog::clear);
        inputs.iter_mut().for_each(Input::clear);
        due.clear();
        order.clear();
        produced.clear();
    }
}

/// The result of an epoch's access: how it was scheduled, and the measured times.
#[derive(Default)]
pub struct Accessed {
    /// The groups of its transactions, if there are several and they are scheduled separately.
    pub grouping: Grouping,
    /// The schedules of its transactions, with the reasons: one for all, or one for each group.
    pub scheduled: Vec<Scheduled>,
    /// The worker that accessed it, alone or with helpers.
    pub accessor: usize,
    /// The reason why another worker accessed it than the one that accessed the epoch before.
    pub handed_over: Option<HandOver>,
    /// A flag: whether the snapshot that was due has begun.
    pub has_snapshot: bool,
    /// The breakdown of the workers' time in access.
    pub breakdown: Breakdown,
    /// The part of prepare that listed its accesses, if access used that, nanoseconds. It is in the breakdown, too.
    pub listed: u64,
    /// Wall time of access without the sampling prefix, nanoseconds.
    pub access_after_sampling: u64,
    /// The measured cost of the transactions on each input, by input.
    pub sampled: TiVec<InputId, Sampled>,
    /// The survey of similar epochs that its policy was chosen by; else, if one looks on, of its own transactions.
    pub survey: Option<Survey>,
    /// A flag: whether its events are followed one by one, each with all that it causes.
    pub one_by_one: bool,
    /// The number of boundaries within it.
    pub boundaries: u64,
    /// The reason why rows that are due within it could not be read. Then its results are not those of its events.
    pub unread: Option<EvictedError>,
    /// A flag: whether its rows are saved before they are written, for snapshots that were open when its access began.
    pub saves: bool,
    /// The tables that a session wanted, as they are after this epoch.
    pub tables: Vec<Arc<TableRead>>,
    /// The sample of the rows that it touched, if it was wanted.
    pub touched: Vec<Touched>,
    /// The sample of the rows along its critical path, if it was wanted.
    pub critical: Vec<Touched>,
}

impl Accessed {
    fn clear(&mut self) {
        self.sampled.iter_mut().for_each(|sampled| *sampled = Sampled::default());
        *self = Accessed {
            grouping: std::mem::take(&mut self.grouping),
            scheduled: emptied(&mut self.scheduled),
            sampled: std::mem::take(&mut self.sampled),
            ..Accessed::default()
        };
    }
}

/// The results of an epoch.
#[derive(Default)]
pub struct Finished {
    /// The events for each sink, by sink.
    pub outputs: Vec<Vec<RecordBatch>>,
    /// The events of the streams that a session follows.
    pub followed: Vec<(StreamId, Vec<RecordBatch>)>,
    /// The outcomes of events that callers wait for, as the session wanted them.
    pub answers: Vec<Arc<Answers>>,
    /// The number of commits, then the numbers of aborts by reason, for each transaction.
    pub counts: TiVec<TransactionId, Vec<u64>>,
    /// The number of events that failed in the filter or map of each stream, by stream.
    pub failed: TiVec<StreamId, u64>,
    /// If it was to be digested: the digest of its results.
    pub digest: Option<EpochDigest>,
    /// Idle time of the workers before it was finished and after the previous epoch was.
    pub idle: u64,
}

impl Finished {
    fn clear(&mut self) {
        self.outputs.iter_mut().for_each(Vec::clear);
        self.counts.iter_mut().for_each(|counts| counts.fill(0));
        self.failed.fill(0);
        *self = Finished {
            outputs: std::mem::take(&mut self.outputs),
            counts: std::mem::take(&mut self.counts),
            failed: std::mem::take(&mut self.failed),
            ..Finished::default()
        };
    }
}

/// Returns the buffer, without what it held.
fn emptied<T>(buffer: &mut Vec<T>) -> Vec<T> {
    let mut buffer = std::mem::take(buffer);
    buffer.clear();
    buffer
}

/// An epoch: what each stage adds to it.
pub struct Epoch {
    /// Counted from 1, or from the last number of an earlier run of the same state; without gaps.
    pub number: u64,
    /// The events that the gate puts into it, and their order.
    pub input: EpochInput,
    /// The buffers of its stages.
    pub work: Work,
    /// The result of its access.
    pub accessed: Accessed,
    /// Its results.
    pub finished: Finished,
    /// The time spent in each stage.
    pub times: StageTimes,
}

impl Numbered for Box<Epoch> {
    fn number(&self) -> u64 {
        self.number
    }
}

impl Epoch {
    /// Makes an empty epoch; its buffers have no capacity yet.
    pub fn new(program: &Program, code: &Code, wiring: &Wiring) -> Self {
        let streams = &program.streams;
        let input = |wired: &InputWiring| {
            let roles = program.transactions[wired.transaction].roles.len();
            Input::new(&code.transactions[wired.transaction][wired.input], roles)
        };
        let log = |s: StreamId| {
            let fed = crate::wiring::outlet_of(program, s).is_some() && wiring.feeds_code[s];
            (fed || wiring.is_logged_root(s)).then(|| EventLog::new(&streams[s].schema))
        };
        let sources = wiring.given.iter().map(|_| SourceSlice::default()).collect();
        let sampled = wiring.inputs.iter().map(|_| Sampled::default()).collect();
        Epoch {
            number: 0,
            input: EpochInput { sources, ..EpochInput::default() },
            work: Work {
                pipelines: code.pipelines.iter().map(|p| PipelineState::new(p.as_ref())).collect(),
                logs: streams.keys().map(log).collect(),
                inputs: wiring.inputs.iter().map(input).collect(),
                lists: IncomingLists::new(wiring.lists.len()),
                due: Vec::new(),
                order: Vec::new(),
                produced: Vec::new(),
            },
            accessed: Accessed { sampled, ..Accessed::default() },
            finished: Finished {
                outputs: program.sinks.iter().map(|_| Vec::new()).collect(),
                counts: program.transactions.iter().map(|t| vec![0; t.reasons.len() + 1]).collect(),
                failed: ti_vec![0; streams.len()],
                ..Finished::default()
            },
            times: StageTimes::default(),
        }
    }

    /// Returns the number of its transactions. (For a program that cascades, after they have run.)
    pub fn transactions(&self) -> usize {
        self.work.inputs.iter().map(|input| input.len).sum()
    }

    /// Returns whether events were delivered to transactions, and all of them are folded.
    pub fn is_folded(&self) -> bool {
        self.transactions() == 0 && self.work.inputs.iter().any(|input| input.folded() > 0)
    }

    /// Returns the number of rows that its transactions access.
    pub fn operations(&self) -> usize {
        self.operations_of(|_| true)
    }

    /// Returns the number of rows that the transactions on some inputs access.
    pub fn operations_of(&self, inputs: impl Fn(InputId) -> bool) -> usize {
        // An input without events still holds the rows of an earlier epoch.
        let some = self.work.inputs.iter_enumerated().filter(|(id, input)| input.len > 0 && inputs(*id));
        some.flat_map(|(_, input)| &input.rows).map(Vec::len).sum()
    }

    /// Calls `each` with each transaction in a range of the order, as long as it returns true.
    pub fn each_in(
        &self,
        joints: &TiSlice<JointId, Joint>,
        range: &Range<usize>,
        mut each: impl FnMut(InputEvent) -> bool,
    ) {
        let mut next: TiVec<JointId, u32> = joints.iter().map(|_| 0).collect();
        let mut at = 0;
        for run in &self.work.order {
            if at >= range.end {
                return;
            }
            let joint = &joints[run.joint];
            let (width, first) = (joint.width(), usize::from(joint.inputs.start));
            let transactions = run.count as usize * width;
            let (skipped, wanted) = within(range, at, transactions);
            let (mut event, mut number) = (next[run.joint], 0);
            if skipped > 0 {
                (event, number) = (event + (skipped / width) as u32, skipped % width);
            }
            for _ in 0..wanted {
                if !each(InputEvent { input: InputId::from(first + number), event }) {
                    return;
                }
                number += 1;
                if number == width {
                    (event, number) = (event + 1, 0);
                }
            }
            next[run.joint] += run.count;
            at += transactions;
        }
    }

    /// Returns the number of its transactions that aborted, which is counted when the epoch is finished.
    pub fn aborted(&self) -> u64 {
        self.finished.counts.iter().flat_map(|counts| &counts[1..]).sum()
    }

    /// Returns the number of transactions on some inputs, of one group or of all, and the number that aborted.
    pub fn outcomes_of(&self, group: Option<usize>, inputs: impl Fn(InputId) -> bool) -> (u32, u32) {
        let (mut transactions, mut aborted) = (0, 0);
        for (id, input) in self.work.inputs.iter_enumerated().filter(|(id, _)| inputs(*id)) {
            let verdicts = &input.verdicts[..input.len];
            let Some(group) = group else {
                transactions += input.len as u32;
                aborted += verdicts.iter().map(|verdict| u32::from(!verdict.is_committed())).sum::<u32>();
                continue;
            };
            let of = |event| self.accessed.grouping.of(InputEvent { input: id, event });
            for (_, verdict) in (0..).zip(verdicts).filter(|(event, _)| of(*event) == group) {
                transactions += 1;
                aborted += u32::from(!verdict.is_committed());
            }
        }
        assert!(aborted <= transactions, "a transaction aborts once");
        (transactions, aborted)
    }

    /// Empties the epoch.
    pub fn clear(&mut self) {
        self.input.clear();
        self.work.clear();
        self.accessed.clear();
        self.finished.clear();
        self.times = StageTimes::default();
    }

    /// Appends a run to the order; merges it with the last one if both are of the same joint.
    #[inline(always)]
    pub fn ran(order: &mut Vec<JointRun>, joint: JointId, count: u32) {
        match order.last_mut() {
            Some(last) if last.joint == joint => last.count += count,
            _ => order.push(JointRun { joint, count }),
        }
    }
}
