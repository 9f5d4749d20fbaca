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

use crate::encoding::{BatchCodec, Malformed, Reader, bytes, number, read_batch};
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

/// A source whose calls have keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembering {
    /// Its number.
    pub source: usize,
    /// Its name.
    pub name: String,
    /// Its calls are of the transaction on this input.
    pub input: InputId,
    /// For how long answers are kept, microseconds.
    pub time: i64,
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
            let shows = program.streams[transaction.aborted].schema.clone();
            Some(Remembering { source, name: program.streams[stream].name.clone(), input, time, returns, shows })
        };
        wiring.sources.iter().enumerate().filter_map(of).collect()
    }
}

/// Answered calls of one source.
#[derive(Debug)]
pub struct Page {
    /// The number of the source.
    pub source: usize,
    /// The calls.
    pub keys: Vec<CallKey>,
    /// By call, its epoch.
    pub epochs: Vec<u64>,
    /// By call, the answer; none if the program has another form of it now.
    pub answers: Option<Arc<Answers>>,
}

impl Page {
    /// The answers of some rows of an epoch's calls.
    pub fn new(source: usize, epoch: u64, rows: Vec<(usize, CallKey)>, answers: &Answers) -> Page {
        let (mut committed, mut aborted) = (Vec::new(), Vec::new());
        let place = |rows: &mut Vec<u32>, row: u32| {
            rows.push(row);
            rows.len() as u32 - 1
        };
        let outcome = |&(row, _): &(usize, CallKey)| match answers.outcomes[row] {
            Outcome::Committed(at) => Outcome::Committed(place(&mut committed, at)),
            Outcome::Aborted(at) => Outcome::Aborted(place(&mut aborted, at)),
            other => other,
        };
        let outcomes: Vec<Outcome> = rows.iter().map(outcome).collect();
        let some = |batch: &Option<RecordBatch>, rows: Vec<u32>| {
            let batch = batch.as_ref().filter(|_| !rows.is_empty())?;
            Some(take_record_batch(batch, &UInt32Array::from(rows)).expect("rows of the batch"))
        };
        let (committed, aborted) = (some(&answers.committed, committed), some(&answers.aborted, aborted));
        let answers = Some(Arc::new(Answers { input: answers.input, outcomes, committed, aborted }));
        let keys: Vec<CallKey> = rows.into_iter().map(|(_, key)| key).collect();
        Page { source, epochs: vec![epoch; keys.len()], keys, answers }
    }

    /// When the last of its calls was called, microseconds since 1970.
    pub fn called(&self) -> i64 {
        self.keys.iter().map(|key| key.called).max().unwrap_or(i64::MIN)
    }

    fn last_epoch(&self) -> u64 {
        self.epochs.last().copied().unwrap_or(0)
    }
}

/// The pages that are kept, in the order of epochs.
#[derive(Debug, Default)]
pub struct Pages(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    pages: VecDeque<Arc<Page>>,
    /// The greatest time at which one called, microseconds since 1970.
    now: i64,
}

impl Pages {
    /// Adds a page.
    pub fn add(&self, page: Arc<Page>) {
        let mut kept = self.0.lock();
        kept.now = kept.now.max(page.called());
        kept.pages.push_back(page);
    }

    /// All of them, in the order of epochs.
    pub fn all(&self) -> Vec<Arc<Page>> {
        self.0.lock().pages.iter().cloned().collect()
    }

    /// Notes that one called at this time; the pages that are not needed any more.
    pub fn expire(&self, now: i64, remembering: &[Remembering]) -> Vec<Arc<Page>> {
        let mut kept = self.0.lock();
        kept.now = kept.now.max(now);
        let now = kept.now;
        let is_over = |page: &Arc<Page>| expires(page, remembering).is_none_or(|expires| expires <= now);
        // Each look costs the first page only, so a page may wait for one before it that is kept for longer.
        let mut expired = Vec::new();
        while kept.pages.front().is_some_and(is_over) {
            expired.extend(kept.pages.pop_front());
        }
        expired
    }
}

/// When a page is not needed any more.
fn expires(page: &Page, remembering: &[Remembering]) -> Option<i64> {
    let of = remembering.iter().find(|of| of.source == page.source)?;
    Some(page.called().saturating_add(of.time))
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
    let (pages, now): (Vec<Arc<Page>>, i64) = {
        let kept = pages.0.lock();
        (kept.pages.iter().filter(|page| page.last_epoch() <= epoch).cloned().collect(), kept.now)
    };
    let mut blocks = before.map_or_else(Vec::new, |before| before.answers.clone());
    blocks.retain(|block| block.expires > now);
    let is_rewritten = blocks.len() >= BLOCKS_MAX && pages.iter().all(|page| page.answers.is_some());
    if is_rewritten {
        blocks.clear();
    }
    let since = before.map(|before| before.epoch).filter(|_| !is_rewritten);
    let is_new = |page: &Arc<Page>| since.is_none_or(|since| page.last_epoch() > since);
    let new: Vec<Arc<Page>> = pages.into_iter().filter(is_new).collect();
    let Some(expires) = new.iter().filter_map(|page| expires(page, &remembering)).max() else { return Ok(blocks) };
    let mut text = Vec::new();
    write_pages(&new, &remembering, &mut text);
    let mut file = begin()?;
    let rows = new.iter().map(|page| page.keys.len() as u64).sum();
    let block = file.write(&text, rows)?;
    file.finish()?;
    blocks.push(AnswerBlock { expires, block });
    Ok(blocks)
}

/// Reads the answers of the newest checkpoint.
pub fn read_answers(directory: &StateDirectory, machine: &Machine) -> Result<Pages, StateError> {
    let pages = Pages::default();
    let Some(checkpoint) = directory.checkpoint() else { return Ok(pages) };
    if directory.planted().is(Bug::CheckpointForgetsAnswers) {
        return Ok(pages);
    }
    let remembering = Remembering::of(machine);
    let blocks = directory.blocks();
    for AnswerBlock { block, .. } in &checkpoint.answers {
        let text = blocks.read(block, "answers of calls")?;
        let read = read_pages(&mut Reader(&text), &remembering).map_err(|Malformed(reason)| {
            StateError::Refused(format!("a checkpoint's answers of calls do not read: {reason}"))
        })?;
        read.into_iter().for_each(|page| pages.add(Arc::new(page)));
    }
    Ok(pages)
}

/// ```text
/// pages   = n, n × (source's name, calls: n, n × call, batch of commits, batch of aborts)
/// call    = epoch, key, arguments:8, called:8, outcome:1 (0 silent, 1 committed, 2 aborted)
/// batch   = 0, or 1, schema, batch
/// ```
fn write_pages(pages: &[Arc<Page>], remembering: &[Remembering], into: &mut Vec<u8>) {
    let groups = |of: &Remembering| -> Vec<&Page> {
        pages.iter().filter(|page| page.source == of.source && page.answers.is_some()).map(|page| &**page).collect()
    };
    let groups: Vec<(&Remembering, Vec<&Page>)> = remembering.iter().map(|of| (of, groups(of))).collect();
    number(into, groups.len() as u64);
    for (of, pages) in groups {
        bytes(into, of.name.as_bytes());
        number(into, pages.iter().map(|page| page.keys.len() as u64).sum());
        for page in &pages {
            let outcomes = &answers_of(page).outcomes;
            for ((key, epoch), outcome) in page.keys.iter().zip(&page.epochs).zip(outcomes) {
                number(into, *epoch);
                bytes(into, key.key.as_bytes());
                into.extend_from_slice(&key.arguments.to_le_bytes());
                into.extend_from_slice(&key.called.to_le_bytes());
                into.push(match outcome {
                    Outcome::Silent | Outcome::Refused(_) => 0,
                    Outcome::Committed(_) => 1,
                    Outcome::Aborted(_) => 2,
                });
            }
        }
        let committed = pages.iter().filter_map(|page| answers_of(page).committed.as_ref()).collect();
        write_batches(of.returns.as_ref(), committed, into);
        let aborted = pages.iter().filter_map(|page| answers_of(page).aborted.as_ref()).collect();
        write_batches(Some(&of.shows), aborted, into);
    }
}

fn answers_of(page: &Page) -> &Answers {
    page.answers.as_ref().expect("it was looked at")
}

fn write_batches(schema: Option<&Schema>, batches: Vec<&RecordBatch>, into: &mut Vec<u8>) {
    let Some(schema) = schema.filter(|_| !batches.is_empty()) else { return into.push(0) };
    into.push(1);
    bytes(into, &serde_json::to_vec(schema).expect("a schema is plain data"));
    let joined = concat_batches(&arrow_schema(schema), batches).expect("they have the schema of the stream");
    BatchCodec::default().write(&joined, into);
}

fn read_pages(reader: &mut Reader<'_>, remembering: &[Remembering]) -> Result<Vec<Page>, Malformed> {
    let mut pages = Vec::new();
    for _ in 0..reader.number()? {
        let name = reader.text()?;
        let (mut keys, mut epochs, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut committed, mut aborted) = (0, 0);
        for _ in 0..reader.number()? {
            epochs.push(reader.number()?);
            let key = reader.text()?;
            let (arguments, called) = (reader.word()?, reader.word()? as i64);
            keys.push(CallKey { event: 0, key, arguments, called });
            let next = |count: &mut u32| {
                *count += 1;
                *count - 1
            };
            outcomes.push(match reader.byte()? {
                0 => Outcome::Silent,
                1 => Outcome::Committed(next(&mut committed)),
                2 => Outcome::Aborted(next(&mut aborted)),
                _ => return Err(Malformed("a call has an unknown outcome".into())),
            });
        }
        let (returned, shown) = (read_batches(reader)?, read_batches(reader)?);
        let rows = |batch: &Option<(Schema, RecordBatch)>| batch.as_ref().map_or(0, |(_, batch)| batch.num_rows());
        if (rows(&returned), rows(&shown)) != (committed as usize, aborted as usize) {
            return Err(Malformed("answers are missing".into()));
        }
        // Of a source that is not there any more.
        let Some(of) = remembering.iter().find(|of| of.name == name) else { continue };
        let is_of = |read: &Option<(Schema, RecordBatch)>, schema: Option<&Schema>| {
            read.as_ref().is_none_or(|(was, _)| Some(was) == schema)
        };
        let is_same = is_of(&returned, of.returns.as_ref()) && is_of(&shown, Some(&of.shows));
        let batch = |read: Option<(Schema, RecordBatch)>| read.map(|(_, batch)| batch);
        let (committed, aborted) = (batch(returned), batch(shown));
        let answers = is_same.then(|| Arc::new(Answers { input: of.input, outcomes, committed, aborted }));
        pages.push(Page { source: of.source, keys, epochs, answers });
    }
    Ok(pages)
}

fn read_batches(reader: &mut Reader<'_>) -> Result<Option<(Schema, RecordBatch)>, Malformed> {
    if reader.byte()? == 0 {
        return Ok(None);
    }
    let schema: Schema = serde_json::from_str(&reader.text()?).map_err(|error| Malformed(error.to_string()))?;
    let batch = read_batch(reader, &arrow_schema(&schema))?;
    Ok(Some((schema, batch)))
}
