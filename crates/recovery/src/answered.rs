//! The answers of calls with a key: what a call that is made again is answered with.
//!
//! A call with a key is in the history once. Its key is in the log beside its event ([`CallKey`]), and its answer follows
//! from a replay as every result does. A checkpoint has the answers whose epochs it replaces: those since the one before, as
//! a block of their own, and the blocks before, until the time is over for which answers are kept.
//!
//! # Invariant
//!
//! When a checkpoint of an epoch is written, [`Pages`] has the answers of all epochs up to it that no block has: the
//! committer adds them in the order of epochs, before it reports that the epoch's snapshot has begun.

use crate::encoding::{BatchCodec, Malformed, Reader, bytes, number, read_batch, read_key, write_key};
use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_durability::{AnswerBlock, BlockWriter, Bug, CallKey, Checkpoint, StateDirectory, StateError};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::StreamId;
use tidemill_stages::finish::answers::{Answers, Outcome};
use tidemill_stages::machine::Machine;
use tidemill_stages::wiring::InputId;

/// The number of blocks from which on a checkpoint writes all answers as one.
const BLOCKS_MAX: usize = 16;
/// The bytes of answers from which on further ones are written as another batch.
const GROUP_BYTES: usize = 64 << 20;

/// A source whose calls have keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembering {
    /// Its number.
    pub source: usize,
    /// Its calls are of the transaction on this input.
    pub input: InputId,
    /// For how long answers are kept, microseconds.
    pub time: i64,
    name: String,
    form: Form,
}

/// The form of answers.
#[derive(Clone, Debug, PartialEq)]
struct Form {
    /// What the transaction returns, if it does.
    returns: Option<Schema>,
    /// What its aborts show.
    shows: Schema,
}

impl Remembering {
    /// Those of a program, whose calls are of one transaction.
    pub fn of(machine: &Machine) -> Vec<Remembering> {
        let (program, wiring) = (&machine.program, &machine.wiring);
        let of = |(source, &stream): (usize, &StreamId)| {
            let time = program.streams[stream].remembers()?;
            let input = wiring.procedure(program, stream)?;
            let transaction = &program.transactions[wiring.inputs[input].transaction];
            let committed = &transaction.committed;
            let returns = (!committed.passes_event).then(|| program.streams[committed.stream].schema.clone());
            let form = Form { returns, shows: program.streams[transaction.aborted].schema.clone() };
            Some(Remembering { source, name: program.streams[stream].name.clone(), input, time, form })
        };
        wiring.sources.iter().enumerate().filter_map(of).collect()
    }

    /// Whether a call's time is over.
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
    /// By call, its epoch. They never fall.
    pub epochs: Vec<u64>,
    /// By call, the answer.
    pub answers: Arc<Answers>,
    form: Form,
    /// Whether the program gives commits and aborts in this form now.
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

    /// Whether the program still gives the answer of a call in the form that it has.
    pub fn is_of_now(&self, at: usize) -> bool {
        match self.answers.outcomes[at] {
            Outcome::Committed(_) => self.is_of_now[0],
            Outcome::Aborted(_) => self.is_of_now[1],
            Outcome::Silent | Outcome::Refused(_) => true,
        }
    }

    /// The bytes of memory that its answers take, about.
    pub fn bytes(&self) -> usize {
        let of = |batch: &Option<RecordBatch>| batch.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        of(&self.answers.committed) + of(&self.answers.aborted)
    }

    fn last_epoch(&self) -> u64 {
        self.epochs.last().copied().unwrap_or(0)
    }
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
    Answers { input: answers.input, outcomes, committed, aborted }
}

/// The pages that are kept, in the order of epochs.
#[derive(Debug, Default)]
pub struct Pages(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    pages: VecDeque<Arc<Page>>,
    /// The clock of the last call, microseconds since 1970.
    now: Option<i64>,
    /// Whether all that the checkpoint's blocks have is in pages, or its time is over.
    is_whole: bool,
}

impl Pages {
    /// Adds a page.
    pub fn add(&self, page: Arc<Page>) {
        self.0.lock().pages.push_back(page);
    }

    /// All of them, in the order of epochs.
    pub fn all(&self) -> Vec<Arc<Page>> {
        self.0.lock().pages.iter().cloned().collect()
    }

    /// The clock shows this now: pages all of whose calls are over go. The bytes of answers that are left.
    pub fn sweep(&self, now: i64, remembering: &[Remembering]) -> usize {
        let mut kept = self.0.lock();
        kept.now = Some(now);
        kept.pages.retain(|page| expires(page, remembering).is_some_and(|expires| expires > now));
        kept.pages.iter().map(|page| page.bytes()).sum()
    }
}

/// When a page is not needed any more; none if its source keeps no answers.
fn expires(page: &Page, remembering: &[Remembering]) -> Option<i64> {
    let of = remembering.iter().find(|of| of.source == page.source)?;
    Some(page.keys.iter().map(|key| key.called).max()?.saturating_add(of.time))
}

/// The blocks of answers of a checkpoint of an epoch, which follows `before`.
pub fn write_answers(
    machine: &Machine,
    before: Option<&Checkpoint>,
    pages: &Pages,
    epoch: u64,
    begin: &mut dyn FnMut() -> Result<BlockWriter, StateError>,
) -> Result<Vec<AnswerBlock>, StateError> {
    let remembering = Remembering::of(machine);
    let (pages, now, is_whole): (Vec<Arc<Page>>, i64, bool) = {
        let kept = pages.0.lock();
        let of_epoch = kept.pages.iter().filter(|page| page.last_epoch() <= epoch).cloned();
        (of_epoch.collect(), kept.now.unwrap_or(i64::MIN), kept.is_whole)
    };
    let mut blocks = before.map_or_else(Vec::new, |before| before.answers.clone());
    blocks.retain(|block| block.expires > now);
    let is_rewritten = is_whole && blocks.len() >= BLOCKS_MAX;
    if is_rewritten {
        blocks.clear();
    }
    let since = before.map(|before| before.epoch).filter(|_| !is_rewritten);
    let is_new = |page: &&Arc<Page>| since.is_none_or(|since| page.last_epoch() > since);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for page in pages.iter().filter(is_new) {
        let Some(of) = remembering.iter().find(|of| of.source == page.source) else { continue };
        let rows: Vec<usize> = (0..page.keys.len()).filter(|&at| !of.is_over(&page.keys[at], now)).collect();
        if rows.is_empty() {
            continue;
        }
        let is_its =
            |group: &&mut Group<'_>| group.name == of.name && *group.form == page.form && group.bytes < GROUP_BYTES;
        let group = match groups.iter_mut().find(is_its) {
            Some(group) => group,
            None => {
                groups.push(Group { name: &of.name, form: &page.form, parts: Vec::new(), bytes: 0, expires: i64::MIN });
                groups.last_mut().expect("just pushed")
            }
        };
        let last = rows.iter().map(|&at| page.keys[at].called).max().unwrap_or(i64::MIN);
        group.expires = group.expires.max(last.saturating_add(of.time));
        group.bytes += page.bytes();
        let answers = some(&page.answers, &rows);
        group.parts.push(Part { page, rows, answers });
    }
    let Some(expires) = groups.iter().map(|group| group.expires).max() else { return Ok(blocks) };
    let mut text = Vec::new();
    number(&mut text, groups.len() as u64);
    groups.iter().for_each(|group| group.write(&mut text));
    let rows = groups.iter().flat_map(|group| &group.parts).map(|part| part.rows.len() as u64).sum();
    let mut file = begin()?;
    let block = file.write(&text, rows)?;
    file.finish()?;
    blocks.push(AnswerBlock { expires, block });
    Ok(blocks)
}

/// Reads the answers of the newest checkpoint.
pub fn read_answers(directory: &StateDirectory, machine: &Machine) -> Result<Pages, StateError> {
    let mut kept = Kept { is_whole: true, ..Kept::default() };
    let Some(checkpoint) = directory.checkpoint() else { return Ok(Pages(Mutex::new(kept))) };
    if directory.planted().is(Bug::CheckpointForgetsAnswers) {
        return Ok(Pages::default());
    }
    let remembering = Remembering::of(machine);
    let blocks = directory.blocks();
    for AnswerBlock { block, .. } in &checkpoint.answers {
        let text = blocks.read(block, "answers of calls")?;
        read_pages(&mut Reader(&text), &remembering, &mut kept).map_err(|Malformed(reason)| {
            StateError::Refused(format!("a checkpoint's answers of calls do not read: {reason}"))
        })?;
    }
    Ok(Pages(Mutex::new(kept)))
}

/// Answers of one source and form, which are written together.
struct Group<'a> {
    name: &'a str,
    form: &'a Form,
    parts: Vec<Part<'a>>,
    bytes: usize,
    expires: i64,
}

/// Some of the answers of a page.
struct Part<'a> {
    page: &'a Page,
    rows: Vec<usize>,
    answers: Answers,
}

impl Group<'_> {
    /// ```text
    /// pages   = n, n × (source's name, calls: n, n × call, batch of commits, batch of aborts)
    /// call    = epoch, key, arguments:8, called:8, outcome:1 (0 silent, 1 committed, 2 aborted)
    /// batch   = 0, or 1; schema, or nothing where none commits with a record; batch, if it is there
    /// ```
    fn write(&self, into: &mut Vec<u8>) {
        bytes(into, self.name.as_bytes());
        number(into, self.parts.iter().map(|part| part.rows.len() as u64).sum());
        for Part { page, rows, answers } in &self.parts {
            for (&at, outcome) in rows.iter().zip(&answers.outcomes) {
                write_key(page.epochs[at], &page.keys[at], into);
                into.push(match outcome {
                    Outcome::Silent | Outcome::Refused(_) => 0,
                    Outcome::Committed(_) => 1,
                    Outcome::Aborted(_) => 2,
                });
            }
        }
        let batches = |of: fn(&Answers) -> &Option<RecordBatch>| -> Vec<&RecordBatch> {
            self.parts.iter().filter_map(|part| of(&part.answers).as_ref()).collect()
        };
        write_batches(self.form.returns.as_ref(), &batches(|answers| &answers.committed), into);
        write_batches(Some(&self.form.shows), &batches(|answers| &answers.aborted), into);
    }
}

fn write_batches(schema: Option<&Schema>, batches: &[&RecordBatch], into: &mut Vec<u8>) {
    let schema_text = schema.map_or(Vec::new(), |schema| serde_json::to_vec(schema).expect("a schema is plain data"));
    bytes(into, &schema_text);
    let Some(schema) = schema.filter(|_| !batches.is_empty()) else { return into.push(0) };
    into.push(1);
    let joined = concat_batches(&arrow_schema(schema), batches.iter().copied());
    BatchCodec::default().write(&joined.expect("they have the schema, and not too many bytes"), into);
}

fn read_pages(reader: &mut Reader<'_>, remembering: &[Remembering], kept: &mut Kept) -> Result<(), Malformed> {
    for _ in 0..reader.number()? {
        let name = reader.text()?;
        let (mut keys, mut epochs, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut commits, mut aborts) = (0, 0);
        for _ in 0..reader.number()? {
            let key = read_key(reader)?;
            epochs.push(key.event);
            keys.push(key);
            let next = |count: &mut u32| {
                *count += 1;
                *count - 1
            };
            outcomes.push(match reader.byte()? {
                0 => Outcome::Silent,
                1 => Outcome::Committed(next(&mut commits)),
                2 => Outcome::Aborted(next(&mut aborts)),
                _ => return Err(Malformed("a call has an unknown outcome".into())),
            });
        }
        let (returns, committed) = read_batches(reader)?;
        let (shows, aborted) = read_batches(reader)?;
        let rows = |batch: &Option<RecordBatch>| batch.as_ref().map_or(0, RecordBatch::num_rows);
        if (rows(&committed), rows(&aborted)) != (commits as usize, aborts as usize) {
            return Err(Malformed("answers are missing".into()));
        }
        let form = Form { returns, shows: shows.ok_or_else(|| Malformed("aborts have no form".into()))? };
        let Some(of) = remembering.iter().find(|of| of.name == name) else {
            // Of a source that keeps none now; a later version of the program may.
            kept.is_whole = false;
            continue;
        };
        let is_of_now = [form.returns == of.form.returns, form.shows == of.form.shows];
        let answers = Arc::new(Answers { input: of.input, outcomes, committed, aborted });
        kept.pages.push_back(Arc::new(Page { source: of.source, keys, epochs, answers, form, is_of_now }));
    }
    Ok(())
}

fn read_batches(reader: &mut Reader<'_>) -> Result<(Option<Schema>, Option<RecordBatch>), Malformed> {
    let text = reader.text()?;
    let schema: Option<Schema> = match text.is_empty() {
        true => None,
        false => Some(serde_json::from_str(&text).map_err(|error| Malformed(error.to_string()))?),
    };
    let batch = match (reader.byte()?, &schema) {
        (0, _) => None,
        (_, Some(schema)) => Some(read_batch(reader, &arrow_schema(schema))?),
        (_, None) => return Err(Malformed("answers have no form".into())),
    };
    Ok((schema, batch))
}
