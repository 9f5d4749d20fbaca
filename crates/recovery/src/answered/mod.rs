//! The answers of calls with a key: what a call that is made again is answered with.
//!
//! A call with a key is in the history once. Its key is in the log beside its event ([`CallKey`]), and its answer follows
//! from a replay as every result does. A checkpoint has the answers whose epochs it replaces: those since the one before, as
//! a *run* of rows by key for each source ([`KeyRuns`]), and the runs before, until the time is over for which answers are kept.
//! So answers that a run has need not be in memory ([`look_up`]).
//!
//! # Invariant
//!
//! [`Pages`] has, while a checkpoint of an epoch is written, the answers of all epochs up to it that no run has: the
//! committer adds them in the order of epochs, before it reports that the epoch's snapshot has begun. Each answer is in pages
//! or in the runs that are shown ([`Pages::runs`]): an answer leaves the pages only after its run is there.

mod blocks;
mod look_up;
mod runs;
mod values;

pub use look_up::{KeyReader, LookUp, LookedUp};
pub use runs::{KeyMerge, KeyRuns, user_of};

pub(crate) use blocks::read_block;

use crate::begin_run::BeginRun;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_durability::store::OpenRun;
use tidemill_durability::{AnswerBlock, Bug, CallKey, KeyRun, Planted, StateDirectory, StateError};
use tidemill_model::Schema;
use tidemill_plan::{KEYS_MAX, StreamId};
use tidemill_stages::finish::answers::{Answers, Outcome};
use tidemill_stages::machine::Machine;
use tidemill_stages::wiring::InputId;
use xxhash_rust::xxh3::xxh3_64;

/// The bytes of answers that are in memory and in no run, at most, about.
pub const ANSWER_BYTES_MAX: usize = 1 << 30;
/// The part of these limits from which on a checkpoint is due.
const PART_DUE: usize = 2;

/// A source whose calls or pushes have keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembering {
    /// Its number.
    pub source: usize,
    /// Its calls are of the transaction on this input. None: its events are pushed, and a key is that of all events of a push.
    pub input: Option<InputId>,
    /// For how long answers are kept, microseconds.
    pub time: i64,
    /// The number of keys that are kept at most.
    pub keys_max: u64,
    /// Its name.
    pub name: String,
    form: Arc<Form>,
}

/// The form of answers.
#[derive(Debug, PartialEq)]
struct Form {
    /// The schema of what the transaction returns, if it does.
    returns: Option<Schema>,
    /// The schema of what its aborts show, if it is of calls.
    shows: Option<Schema>,
    /// Digests of both.
    digests: [u64; 2],
}

impl Form {
    fn new(returns: Option<Schema>, shows: Option<Schema>) -> Form {
        let digest = |schema: Option<&Schema>| xxh3_64(&serde_json::to_vec(&schema).expect("a schema is plain data"));
        let digests = [digest(returns.as_ref()), digest(shows.as_ref())];
        Form { returns, shows, digests }
    }

    /// Compares two forms; returns for commits and for aborts whether they are the same.
    fn is_as(&self, other: &Form) -> [bool; 2] {
        [0, 1].map(|kind| self.digests[kind] == other.digests[kind])
    }
}

impl Remembering {
    /// Those of a program: of calls where the events of a source bring no time and one transaction takes them.
    pub fn of(machine: &Machine) -> Vec<Remembering> {
        let (program, wiring) = (&machine.program, &machine.wiring);
        let of = |(source, &id): (usize, &StreamId)| {
            let stream = &program.streams[id];
            let (time, keys_max, name) = (stream.remembers()?, stream.keys_max(), stream.name.clone());
            let input = wiring.procedure(program, id).filter(|_| stream.own_time().is_none());
            let transaction = input.map(|input| &program.transactions[wiring.inputs[input].transaction]);
            let schema = |stream: StreamId| program.streams[stream].schema.clone();
            let committed = transaction.map(|of| &of.committed).filter(|committed| !committed.passes_event);
            let returns = committed.map(|committed| schema(committed.stream));
            let form = Arc::new(Form::new(returns, transaction.map(|of| schema(of.aborted))));
            Some(Remembering { source, name, input, time, keys_max, form })
        };
        wiring.sources.iter().enumerate().filter_map(of).collect()
    }

    /// Returns whether a call's time is over.
    pub fn is_over(&self, key: &CallKey, now: i64) -> bool {
        key.called.saturating_add(self.time) <= now
    }
}

/// Answered calls of one source.
#[derive(Debug)]
pub struct Page {
    /// The number of the source.
    pub source: usize,
    /// The calls.
    pub keys: Vec<CallKey>,
    /// The epochs of the calls, by call. They never fall.
    pub epochs: Vec<u64>,
    /// The answers, by call.
    pub answers: Arc<Answers>,
    form: Arc<Form>,
    /// Flags: whether the program gives commits, and aborts, in this form now.
    is_of_now: [bool; 2],
}

impl Page {
    /// The answers of some rows of an epoch's calls.
    pub fn new(of: &Remembering, epoch: u64, rows: Vec<(usize, CallKey)>, answers: &Answers) -> Page {
        let epochs = vec![epoch; rows.len()];
        let (rows, keys): (Vec<usize>, Vec<CallKey>) = rows.into_iter().unzip();
        let answers = Arc::new(some(answers, &rows));
        Page { source: of.source, epochs, keys, answers, form: of.form.clone(), is_of_now: [true; 2] }
    }

    /// Pushes that an epoch takes.
    pub fn pushed(of: &Remembering, epoch: u64, keys: Vec<CallKey>) -> Page {
        assert!(of.input.is_none(), "a push has no outcome of its own");
        let answers = Arc::new(no_answers(of, vec![Outcome::Silent; keys.len()]));
        let epochs = vec![epoch; keys.len()];
        Page { source: of.source, keys, epochs, answers, form: of.form.clone(), is_of_now: [true; 2] }
    }

    /// Returns whether the program still gives the answer of a call in the form that it has.
    pub fn is_of_now(&self, at: usize) -> bool {
        match self.answers.outcomes[at] {
            Outcome::Committed(_) => self.is_of_now[0],
            Outcome::Aborted(_) => self.is_of_now[1],
            Outcome::Silent | Outcome::Untaken(_) | Outcome::Refused(_) => true,
        }
    }

    /// The bytes of memory that its answers take, about.
    pub fn bytes(&self) -> usize {
        let of = |batch: &Option<RecordBatch>| batch.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        of(&self.answers.committed) + of(&self.answers.aborted)
    }

    /// The last epoch of its calls.
    pub fn last_epoch(&self) -> u64 {
        self.epochs.last().copied().unwrap_or(0)
    }
}

/// Outcomes without records. Nobody looks at the input of pushes.
fn no_answers(of: &Remembering, outcomes: Vec<Outcome>) -> Answers {
    let input = of.input.unwrap_or(InputId::from(0));
    Answers { input, outcomes, committed: None, aborted: None, untaken: Vec::new() }
}

/// The answers of some rows alone.
fn some(answers: &Answers, rows: &[usize]) -> Answers {
    let (mut committed, mut aborted) = (Vec::new(), Vec::new());
    let place = |rows: &mut Vec<u32>, row: u32| {
        rows.push(row);
        rows.len() as u32 - 1
    };
    let outcome = |&row: &usize| match answers.outcomes[row] {
        Outcome::Committed(at) => Outcome::Committed(place(&mut committed, at)),
        Outcome::Aborted(at) => Outcome::Aborted(place(&mut aborted, at)),
        other => other,
    };
    let outcomes: Vec<Outcome> = rows.iter().map(outcome).collect();
    let taken = |batch: &Option<RecordBatch>, rows: Vec<u32>| {
        let batch = batch.as_ref().filter(|_| !rows.is_empty())?;
        Some(take_record_batch(batch, &UInt32Array::from(rows)).expect("rows of the batch"))
    };
    let (committed, aborted) = (taken(&answers.committed, committed), taken(&answers.aborted, aborted));
    Answers { input: answers.input, outcomes, committed, aborted, untaken: answers.untaken.clone() }
}

/// The answers that are kept.
#[derive(Debug)]
pub struct Pages {
    kept: Mutex<Kept>,
    /// The number of keys that are kept in memory, about.
    pub keys_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    /// The pages that no run has, in the order of epochs.
    pages: VecDeque<Arc<Page>>,
    /// The keys of these, and the bytes of their answers.
    keys: usize,
    bytes: usize,
    /// The clock of the last call, microseconds since 1970.
    now: Option<i64>,
    runs: Arc<KeyRuns>,
    /// The runs of sources that keep no answers now; a later version of the program may.
    others: Vec<KeyRun>,
    /// Blocks of versions before 11 that have answers of such sources.
    blocks: Vec<AnswerBlock>,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages { kept: Mutex::default(), keys_max: KEYS_MAX as usize }
    }
}

impl Kept {
    fn add(&mut self, page: Arc<Page>) {
        self.keys += page.keys.len();
        self.bytes += page.bytes();
        self.pages.push_back(page);
    }

    /// Only pages that are wanted stay.
    fn retain(&mut self, is_wanted: impl Fn(&Page) -> bool) {
        self.pages.retain(|page| is_wanted(page));
        self.keys = self.pages.iter().map(|page| page.keys.len()).sum();
        self.bytes = self.pages.iter().map(|page| page.bytes()).sum();
    }
}

impl Pages {
    /// Reads those of the newest checkpoint. So many keys are kept in memory.
    pub fn read(directory: &StateDirectory, machine: &Machine, keys_max: usize) -> Result<Pages, StateError> {
        let remembering = Remembering::of(machine);
        let mut kept = Kept::default();
        let mut keys: &[KeyRun] = &[];
        if let Some(checkpoint) = directory.checkpoint()
            && !directory.planted().is(Bug::CheckpointForgetsAnswers)
        {
            for answers in &checkpoint.answers {
                let (pages, left) = read_block(directory, &remembering, answers)?;
                pages.into_iter().for_each(|page| kept.add(Arc::new(page)));
                kept.blocks.extend(left);
            }
            let is_kept = |run: &&KeyRun| remembering.iter().any(|of| of.name == run.source);
            kept.others = checkpoint.keys.iter().filter(|run| !is_kept(run)).cloned().collect();
            keys = &checkpoint.keys;
        }
        kept.runs = Arc::new(KeyRuns::open(directory, &remembering, keys)?);
        Ok(Pages { kept: Mutex::new(kept), keys_max })
    }

    /// Adds a page.
    pub fn add(&self, page: Arc<Page>) {
        self.kept.lock().add(page);
    }

    /// All pages that no run has, in the order of epochs.
    pub fn all(&self) -> Vec<Arc<Page>> {
        self.kept.lock().pages.iter().cloned().collect()
    }

    /// The runs, as they are now.
    pub fn runs(&self) -> Arc<KeyRuns> {
        self.kept.lock().runs.clone()
    }

    /// The clock shows this now: pages all of whose calls are over go.
    pub fn sweep(&self, now: i64, remembering: &[Remembering]) {
        let mut kept = self.kept.lock();
        kept.now = Some(now);
        kept.retain(|page| expires(page, remembering).is_some_and(|expires| expires > now));
    }

    /// Returns whether so much is in memory alone that a checkpoint is due.
    pub fn are_many(&self) -> bool {
        let kept = self.kept.lock();
        kept.keys >= (self.keys_max / PART_DUE).max(1) || kept.bytes >= ANSWER_BYTES_MAX / PART_DUE
    }

    /// Writes the answers of epochs up to this one that no run has, durably, as runs. What a checkpoint of the epoch names.
    pub fn write(
        &self,
        machine: &Machine,
        epoch: u64,
        planted: Planted,
        begin: &mut BeginRun<'_>,
    ) -> Result<(Vec<AnswerBlock>, Vec<KeyRun>), StateError> {
        let remembering = Remembering::of(machine);
        let (pages, now): (Vec<Arc<Page>>, i64) = {
            let kept = self.kept.lock();
            let of_epoch = kept.pages.iter().filter(|page| page.last_epoch() <= epoch).cloned();
            (of_epoch.collect(), kept.now.unwrap_or(i64::MIN))
        };
        let mut written: Vec<(usize, KeyRun, OpenRun)> = Vec::new();
        for (place, of) in remembering.iter().enumerate() {
            let (mut run, image) = runs::rows_of(of, &pages, now);
            if image.is_empty() {
                continue;
            }
            let mut writer = begin(image.shape(), Some(runs::filter_rows(image.len())))?;
            writer.push(&image)?;
            let open = writer.finish()?;
            run.run = open.run().clone();
            if planted.is(Bug::KeyRunsExpireEarly) {
                run.expires = run.last;
            }
            written.push((place, run, open));
        }
        let kept = &mut *self.kept.lock();
        if !pages.is_empty() || kept.runs.has_expired(now) {
            kept.runs = Arc::new(kept.runs.after(now, epoch, written));
            kept.retain(|page| page.last_epoch() > epoch);
        }
        kept.others.retain(|run| run.expires > now);
        kept.blocks.retain(|block| block.expires > now);
        Ok((kept.blocks.clone(), kept.named()))
    }

    /// Begins a merge, if one is due.
    pub fn begin_merge(&self, machine: &Machine, begin: &mut BeginRun<'_>) -> Result<Option<KeyMerge>, StateError> {
        let runs = self.runs();
        runs.begin_merge(&Remembering::of(machine), begin)
    }

    /// Puts a merged run in the place of those that it is made of. What a checkpoint names then.
    pub fn end_merge(&self, merge: KeyMerge) -> Result<Vec<KeyRun>, StateError> {
        let (place, range, run) = merge.finish()?;
        let kept = &mut *self.kept.lock();
        kept.runs = Arc::new(kept.runs.merged(place, range, run));
        Ok(kept.named())
    }
}

impl Kept {
    fn named(&self) -> Vec<KeyRun> {
        self.others.iter().chain(self.runs.named()).cloned().collect()
    }
}

/// Returns the time from which a page is not needed any more; none if its source keeps no answers.
fn expires(page: &Page, remembering: &[Remembering]) -> Option<i64> {
    let of = remembering.iter().find(|of| of.source == page.source)?;
    Some(page.keys.iter().map(|key| key.called).max()?.saturating_add(of.time))
}
