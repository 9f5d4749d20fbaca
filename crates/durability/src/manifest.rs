//! The manifest: the program and identity of the state, and the place of its newest checkpoint. It is one small file,
//! replaced atomically; this replacement is the switch from one checkpoint to the next.

use crate::error::StateError;
use crate::nodes::NodeRange;
use crate::place::Place;
use crate::planted::{Bug, Planted, overwrite};
use crate::proof::{Hash256, Hasher, Proof, Restored};
use crate::storage::{Storage, read_all, replace};
use crate::store::StoredRun;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tidemill_model::{Schema, StreamDigest, Type};
use tidemill_plan::{Definition, Keep, Origin, Plan, Program, Table, TablePart, Window, analyze};
use xxhash_rust::xxh3::xxh3_64;

/// The version of the state directory's format.
pub const FORMAT: u32 = 14;

/// The oldest version that can be read; versions after [`FORMAT`] are refused. Version 6 adds ranges of virtual
/// nodes; without them it is the same as version 5. Version 7 has exact sums and means in windowed columns
/// ([`EXACT_WINDOWS`]). Version 8 has the answers of calls with a key; version 9
/// indexes of several columns; version 10 distinct words in order ([`DISTINCT_IN_ORDER`]); version 11 runs of keys;
/// version 12 the chain of proof; version 13 windows that are ordered by the places of their events, and version 14 joins
/// ([`PLACES`]).
const FORMAT_READ_MIN: u32 = 5;

/// The version since which windowed columns of floats have exact sums, and means of floats and ints are rounded once.
/// Before, the bytes of the columns were others, and so may be what a replay of the log gives.
const EXACT_WINDOWS: u32 = 7;

/// The version since which distinct words of a windowed column are in the order in which they are searched.
const DISTINCT_IN_ORDER: u32 = 10;

/// The version since which groups of windows, and keys whose events wait in joins, are in the order of the places of their first
/// events among those of all sources. In version 13 those of windows were so among those of their source. Before, and of joins
/// in version 13, a row of a hidden table numbered them, from 1.
const PLACES: u32 = 14;

/// Greater than each such number: as many events have not passed. Places that come to a state of an earlier version are greater,
/// so that numbers and places stand in one order.
const NUMBERS_MAX: u64 = 1 << 48;

const NAME: &str = "manifest";
const HEAD: &str = "tidemill state ";

/// The content of the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format version of the writer.
    pub format: u32,
    /// Distinguishes this state from every other; its log and checkpoints carry it.
    pub id: u64,
    /// Number of times that the state was restored to a savepoint. Outputs of another course are not continued.
    #[serde(default)]
    pub course: u64,
    /// The number of its log. Each course begins a new log.
    #[serde(default)]
    pub log: u64,
    /// The identity of the program that the state belongs to.
    pub program: Identity,
    /// The program that the state belongs to, if it is known.
    #[serde(default)]
    pub recorded: Option<Recorded>,
    /// A flag: whether results may have been released before they were durable, since the last run that ended well.
    #[serde(default)]
    pub weak: bool,
    /// The epoch after which each sink's output begins, by sink, if that is not the state's beginning.
    #[serde(default)]
    pub begins: BTreeMap<String, u64>,
    /// The epochs after which the program was changed.
    #[serde(default)]
    pub changes: Vec<u64>,
    /// The returns to savepoints since a chain of proof is kept, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<Restored>,
    /// The newest checkpoint, with the places of its rows.
    pub checkpoint: Checkpoint,
}

/// A program with its connections, as data: it runs without its source text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The program.
    pub plan: Plan,
    /// The spec that each source is opened with, by source, if it has one.
    #[serde(default)]
    pub sources: BTreeMap<String, serde_json::Value>,
    /// The spec that each sink is opened with, by sink, if it has one.
    #[serde(default)]
    pub sinks: BTreeMap<String, serde_json::Value>,
}

/// The parts of a program that its state depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name.
    pub application: String,
    /// The version of its schema.
    pub version: u64,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its sources.
    pub sources: Vec<SourceIdentity>,
    /// A hash of the whole program, including its transactions.
    pub code: u64,
    /// The definitions of its operators; none if they are not known.
    #[serde(default)]
    pub operators: Option<Vec<Definition>>,
    /// Sources of earlier versions that it does not want any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
}

/// The parts of a source that the state depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceIdentity {
    /// Its name.
    pub name: String,
    /// The schema of its events.
    pub schema: Schema,
    /// The field that holds event time.
    pub event_time: Option<usize>,
    /// The lateness up to which an event is punctual, in units of event time.
    pub lateness: i64,
    /// A flag: whether that field gets the time of the position.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anchored: bool,
}

impl Identity {
    /// Returns the identity of a program.
    pub fn of(program: &Program) -> Identity {
        let source = |stream: &tidemill_plan::Stream| match stream.origin {
            Origin::Source { lateness, anchored, .. } => Some(SourceIdentity {
                name: stream.name.clone(),
                schema: stream.schema.clone(),
                event_time: stream.event_time,
                lateness,
                anchored,
            }),
            _ => None,
        };
        // The folding of transactions and the owners of parts are left out, as they follow from the rest.
        let mut written = program.clone();
        for transaction in &mut written.transactions {
            (transaction.fold, transaction.owner) = (None, None);
            transaction.roles.iter_mut().for_each(|role| role.wakes = None);
        }
        written.tables.iter_mut().for_each(|table| table.owner = None);
        written.streams.iter_mut().for_each(|stream| stream.owner = None);
        written.operators.clear();
        written.retired.clear();
        let text = serde_json::to_vec(&written).expect("a program is plain data");
        Identity {
            application: program.name.clone(),
            version: program.schema_version,
            tables: written.tables.raw,
            sources: program.streams.iter().filter_map(source).collect(),
            code: xxh3_64(&text),
            operators: Some(program.definitions().cloned().collect()),
            retired: program.retired.clone(),
        }
    }
}

/// A state at the end of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The epoch; 0 before the first.
    pub epoch: u64,
    /// The state of each source, by source number; then of the further splits of sources, in the order in which they
    /// joined.
    pub sources: Vec<SourceState>,
    /// The state of each table, by table.
    pub tables: Vec<TableState>,
    /// The digest of all output of each sink since the state began, by sink.
    pub outputs: BTreeMap<String, StreamDigest>,
    /// The answers of calls with a key that are kept, oldest first, in the form of versions before 11.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswerBlock>,
    /// The answers of calls with a key that are kept, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyRun>,
    /// The last events of the streams that are kept for those who follow them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptState>,
    /// The head of the chain of proof; none if no chain is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The virtual nodes whose rows the checkpoint has. A run can only continue from all of them.
    #[serde(default, skip_serializing_if = "NodeRange::is_whole")]
    pub nodes: NodeRange,
    /// The number of places before those of the first event of the sources: of events whose sources the program does not have any
    /// more, and of those of a state whose rows were taken over.
    #[serde(default)]
    pub passed_before: u64,
}

/// Answers of calls with a key of one source, as rows by key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyRun {
    /// The name of the source.
    pub source: String,
    /// From then on none of them is needed, microseconds since 1970.
    pub expires: i64,
    /// The time of the latest call.
    pub last: i64,
    /// The number of keys of each user, by user, of those who have most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<String, u64>,
    /// The run that has them.
    pub run: StoredRun,
}

/// Answers of calls with a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnswerBlock {
    /// The time from which none of these answers is needed, in microseconds since 1970.
    pub expires: i64,
    /// The block that holds the answers.
    pub block: Block,
    /// The sources whose answers runs of keys have since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<String>,
}

/// The last events of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptState {
    /// Its name.
    pub stream: String,
    /// The form of its events.
    pub schema: Schema,
    /// Everything after this place is kept.
    pub lost: Place,
    /// The events, oldest first; the first block may also have some that are not kept any more.
    pub blocks: Vec<KeptBlock>,
}

/// Events of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptBlock {
    /// The place after the last of these events.
    pub last: Place,
    /// The block that holds the events.
    pub block: Block,
}

/// The key of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallKey {
    /// The number of its event among those of its source, from 0. Of a push: that of the last event of the source that passes with it,
    /// or [`CallKey::AT_ONCE`].
    pub event: u64,
    /// The key itself, with who calls.
    pub key: String,
    /// A digest of the arguments.
    pub arguments: u64,
    /// The time at which it was called, microseconds since 1970.
    pub called: i64,
}

impl CallKey {
    /// Stands for the event of a push of which nothing may pass.
    pub const AT_ONCE: u64 = u64::MAX;

    /// Returns whether its event has passed, where so many events of the source have.
    pub fn has_passed(&self, passed: u64) -> bool {
        self.event < passed || self.event == CallKey::AT_ONCE
    }
}

/// A split of a source that has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitState {
    /// The number of its source.
    pub source: usize,
    /// Its number there.
    pub split: u32,
    /// The name by which its source knows it.
    pub name: String,
}

/// The state of a source, or of one of its splits, at the end of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// The split, for a source that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitState>,
    /// The mark with which it began, if it joined after a time was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<i64>,
    /// The token from which the source continues after the events taken from it.
    pub token: Option<String>,
    /// The number of events that were taken from the source.
    pub events: u64,
    /// The number of undecodable records that were taken from the source.
    pub bad: u64,
    /// The events that were taken by runs which came to the end of their input, and by none after them.
    #[serde(default)]
    pub events_before: u64,
    /// The undecodable records that were taken by such runs only.
    #[serde(default)]
    pub bad_before: u64,
    /// A flag: whether the source had ended.
    pub ended: bool,
    /// A flag: whether further splits of its source may join.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// A flag: whether its events were sent, and have anchored positions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// The places of the events that the gate held back among all such events that were sent: the number of those before, and their own.
    /// Empty if none of another source are held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<(u64, u64)>,
    /// The greatest event time seen.
    pub greatest: Option<i64>,
    /// The greatest punctuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub punctuated: Option<i64>,
    /// The number of events that the gate let through.
    pub passed: u64,
    /// The event time of the last event that the gate let through.
    pub last_time: Option<i64>,
    /// The events that the gate held back, in order.
    pub held: Vec<Block>,
    /// The keys of those of the held events that are calls with a key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<CallKey>,
    /// The late events that waited for their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<Block>,
    /// The times at which the late events stand, and the bad records that waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Block>,
    /// The number of events held back before each late event, if late events are inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_after: Option<Block>,
    /// The batches that are begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<BatchState>,
}

/// A batch of a source's events that is begun and not complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchState {
    /// The stream of batches.
    pub stream: String,
    /// The batches of the stream that are complete.
    pub complete: u64,
    /// Its events so far.
    pub events: Vec<Block>,
}

impl SourceState {
    /// Returns the blocks of the source that lie in files.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let begun = self.batches.iter().flat_map(|batch| &batch.events);
        self.held.iter().chain(&self.late).chain(&self.aside).chain(&self.late_after).chain(begun)
    }
}

/// The places of a table's rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableState {
    /// Oldest first.
    pub runs: Vec<StoredRun>,
}

impl Checkpoint {
    /// Returns the part of it that has the rows of these nodes, in the same files; none if it has no rows of them.
    pub fn within(&self, nodes: NodeRange) -> Option<Checkpoint> {
        let nodes = self.nodes.and(nodes)?;
        let run = |run: &StoredRun| Some(StoredRun { nodes: run.nodes.and(nodes)?, ..run.clone() });
        let table = |table: &TableState| TableState { runs: table.runs.iter().filter_map(run).collect() };
        Some(Checkpoint { nodes, tables: self.tables.iter().map(table).collect(), ..self.clone() })
    }

    /// Returns its runs: of the tables, then of keys.
    pub fn runs(&self) -> impl Iterator<Item = &StoredRun> {
        let keys = self.keys.iter().map(|keys| &keys.run);
        self.tables.iter().flat_map(|table| &table.runs).chain(keys)
    }

    /// Returns the hash of its runs' hashes; none if a run was not hashed. Each table, and the keys, begin with the number of
    /// their runs.
    pub fn root(&self) -> Option<Hash256> {
        let mut hasher = Hasher::default();
        let tables = self.tables.iter().map(|table| table.runs.len()).chain([self.keys.len()]);
        tables.for_each(|runs| hasher.add(&(runs as u64).to_le_bytes()));
        for run in self.runs() {
            hasher.add(run.hash.as_ref()?.bytes());
        }
        Some(hasher.end())
    }

    /// Puts the root into its proof, if it has one.
    pub(crate) fn with_root(mut self) -> Checkpoint {
        let root = self.root();
        self.proof.iter_mut().for_each(|proof| proof.root = root);
        self
    }

    /// Returns the numbers of the files that the checkpoint needs.
    pub fn files(&self) -> BTreeSet<u64> {
        let keys = self.keys.iter().map(|keys| &keys.run);
        let runs = self.tables.iter().flat_map(|table| &table.runs).chain(keys).map(|run| run.index.file);
        let answers = self.answers.iter().map(|answers| &answers.block);
        let kept = self.kept.iter().flat_map(|kept| &kept.blocks).map(|kept| &kept.block);
        let blocks = self.sources.iter().flat_map(SourceState::blocks).chain(answers).chain(kept);
        runs.chain(blocks.map(|block| block.file)).collect()
    }
}

/// Bytes in a checkpoint file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The number of the file.
    pub file: u64,
    /// The offset in the file.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
    /// The check of the bytes, which also covers file and offset.
    pub check: u64,
    /// The number of rows.
    pub rows: u64,
}

impl Manifest {
    /// Reads the manifest of a directory; none if there is none.
    pub fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<Manifest>, StateError> {
        let path = directory.join(NAME);
        let bytes = match read_all(storage, &path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StateError::io(&path, "read")(error)),
        };
        let damaged = |offset: usize, what: &str| StateError::Damaged {
            file: path.clone(),
            offset: offset as u64,
            what: what.into(),
            affected: "it is not known where the state lies".into(),
        };
        let split = bytes.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged(0, "it has no first line"))?;
        let (head, text) = (&bytes[..split], &bytes[split + 1..]);
        let check = str::from_utf8(head).ok().and_then(|head| head.strip_prefix(HEAD));
        let check = check.ok_or_else(|| damaged(0, "it does not begin as a manifest"))?;
        if check != format!("{:016x}", xxh3_64(text)) {
            return Err(damaged(split + 1, "it does not have the check that it was written with"));
        }
        // The version first: the rest of a manifest of another version may have any form.
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|_| damaged(split + 1, "it is no JSON"))?;
        let format = &value["format"];
        if !format.as_u64().is_some_and(|format| (FORMAT_READ_MIN.into()..=FORMAT.into()).contains(&format)) {
            return Err(StateError::Refused(format!(
                "{} has version {format} of the format; this version of tidemill reads versions {FORMAT_READ_MIN} to {FORMAT}",
                directory.display()
            )));
        }
        let read: Result<Manifest, _> = serde_json::from_value(value);
        let mut manifest = read.map_err(|error| damaged(split + 1, &error.to_string()))?;
        manifest.define_operators();
        if manifest.format < PLACES {
            manifest.checkpoint.passed_before = NUMBERS_MAX;
            manifest.drop_numbers();
        }
        if let Some((table, column, why)) = manifest.other_window() {
            return Err(StateError::Refused(format!(
                "{} has version {format} of the format and the windowed column {table}.{column}, {why}; begin a new state, or go on \
                 with the version of tidemill that wrote it",
                directory.display(),
                format = manifest.format,
            )));
        }
        // It is written again in the format of this version.
        Ok(Some(Manifest { format: FORMAT, ..manifest }))
    }

    /// Adds the definitions of operators to the manifest of an earlier version, which lacks them, where the program is recorded.
    fn define_operators(&mut self) {
        if let (None, Some(recorded)) = (&self.program.operators, &self.recorded) {
            self.program.operators =
                analyze(&recorded.plan).ok().map(|program| program.definitions().cloned().collect());
        }
    }

    /// Drops the tables of an earlier version that numbered groups of windows, or events that wait in joins, and that the program,
    /// where it is recorded, does not have any more. The state is then the same as one that this version has written.
    fn drop_numbers(&mut self) {
        let Some(recorded) = &self.recorded else { return };
        let Ok(program) = analyze(&recorded.plan) else { return };
        let is = Identity::of(&program);
        let has = |table: &Table| is.tables.iter().any(|other| other.name == table.name);
        let numbers = |table: &Table| table.written_owner().is_some_and(|(_, part)| part == TablePart::Order);
        let stays: Vec<bool> = self.program.tables.iter().map(|table| has(table) || !numbers(table)).collect();
        let (mut of_program, mut of_checkpoint) = (stays.iter(), stays.iter());
        let mut tables = self.program.tables.clone();
        tables.retain(|_| of_program.next() == Some(&true));
        if tables != is.tables || tables.len() == stays.len() {
            return;
        }
        let was = self.checkpoint.root();
        self.checkpoint.tables.retain(|_| of_checkpoint.next() != Some(&false));
        if self.checkpoint.proof.is_some_and(|proof| proof.root.is_some() && proof.root == was) {
            self.checkpoint = std::mem::take(&mut self.checkpoint).with_root();
        }
        self.program = Identity { tables, code: is.code, ..self.program.clone() };
    }

    /// Returns a table and a windowed column of it that this version would continue otherwise than the writer, and how.
    fn other_window(&self) -> Option<(&str, &str, String)> {
        let other = |window: &Window| match (window.keep, window.value) {
            (Keep::Distinct(_), value) => (value.is_word() && self.format < DISTINCT_IN_ORDER)
                .then(|| format!("whose different values are in another order from version {DISTINCT_IN_ORDER} on")),
            (_, Type::Float | Type::Int) => (self.format < EXACT_WINDOWS)
                .then(|| format!("whose sums and means are rounded otherwise from version {EXACT_WINDOWS} on")),
            _ => None,
        };
        let columns =
            self.program.tables.iter().flat_map(|table| table.columns.iter().map(move |column| (table, column)));
        let mut found = columns.filter_map(|(table, column)| {
            let why = column.window.as_ref().and_then(other)?;
            Some((table.name.as_str(), column.name.as_str(), why))
        });
        found.next()
    }

    /// Replaces the manifest of a directory.
    pub fn write(&self, storage: &dyn Storage, directory: &Path, planted: Planted) -> Result<(), StateError> {
        let path = directory.join(NAME);
        let text = serde_json::to_string(self).expect("a manifest is plain data");
        let whole = format!("{HEAD}{:016x}\n{text}", xxh3_64(text.as_bytes()));
        let put = if planted.is(Bug::CheckpointInPlace) { overwrite } else { replace };
        put(storage, &path, whole.as_bytes()).map_err(StateError::io(&path, "written"))
    }
}
