//! The engine's results against the reference interpreter's.

use crate::chain::{Proven, prove};
use crate::error::AuditError;
use crate::show::row_text;
use crate::walk::{OpenSource, Walk, recorded_program, source_streams, table_schema};
use arrow_array::RecordBatch;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use tidemill_durability::{Head, StateDirectory, StateError};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{StreamDigest, TableDigest, Value};
use tidemill_plan::{Program, StreamId, TableId};
use tidemill_reference::{Step, TransactionTrace};
use tidemill_runtime::{EpochDigest, RunError, committed_streams, state_rows};
use typed_index_collections::TiVec;

const NOTHING_LOGGED: &str =
    "no transaction was verified: a run that ends takes a checkpoint of everything and drops the log before it";
const NOTHING_YET: &str = "no transaction was verified: none is known to be durable after the newest checkpoint";

/// The facts that were compared and found equal.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verified {
    /// The application.
    pub application: String,
    /// The epoch after which the verification began.
    pub from: u64,
    /// The last epoch that was run again.
    pub through: u64,
    /// Events that were run again.
    pub events: u64,
    /// Epochs whose digest was compared.
    pub compared: u64,
    /// A flag: whether the tables of the newest checkpoint were compared row by row, and not only taken as the start.
    pub tables_compared: bool,
    /// The digest of each table at the end, by table.
    pub tables: BTreeMap<String, TableDigest>,
    /// The digest of all that went to each sink since the state began, by sink.
    pub outputs: BTreeMap<String, StreamDigest>,
    /// The chain of proof, if the state has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proven>,
    /// The process that went on with the state meanwhile: then `through` is the last epoch that was known to be durable
    /// at the moment that was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use_by: Option<String>,
    /// The comparisons that could not be made, and why.
    pub notes: Vec<String>,
}

impl Verified {
    /// Returns whether nothing was run again and no tables were compared. The last note says why.
    pub fn is_empty(&self) -> bool {
        self.through == self.from && !self.tables_compared
    }
}

/// Runs a state's log again from its newest checkpoint, or from a savepoint, and compares the results with the
/// engine's. `open` opens the sources whose records are not in the log.
pub fn verify(
    directory: &StateDirectory,
    savepoint: Option<&str>,
    open: OpenSource<'_>,
) -> Result<Verified, AuditError> {
    verify_from_anchor(directory, savepoint, None, open)
}

/// Does what [`verify`] does, and before that compares the heads of the chain of proof with an anchor: one of them that was
/// noted elsewhere.
pub fn verify_from_anchor(
    directory: &StateDirectory,
    savepoint: Option<&str>,
    anchor: Option<Head>,
    open: OpenSource<'_>,
) -> Result<Verified, AuditError> {
    let from = match savepoint {
        Some(name) => {
            let savepoint = directory.savepoint(name)?;
            if !directory.has_log_after(&savepoint) {
                let text = format!(
                    "the log after savepoint '{name}' is gone: the state was put back to another savepoint since"
                );
                return Err(AuditError::State(StateError::Refused(text)));
            }
            Some(directory.open_savepoint(&savepoint)?)
        }
        None => None,
    };
    let proof = prove(directory, from.as_ref(), anchor)?;
    let program = recorded_program(from.as_ref().unwrap_or(directory))?;
    let verified =
        Verification::begin(directory, from.as_ref(), &program, open)?.run().map_err(|error| match error {
            AuditError::Run(changed @ RunError::Changed { .. }) => AuditError::Differs(changed.to_string()),
            other => other,
        })?;
    Ok(Verified { proof, ..verified })
}

struct Verification<'a> {
    directory: &'a StateDirectory,
    from: Option<&'a StateDirectory>,
    program: &'a Program,
    walk: Walk<'a>,
    open: OpenSource<'a>,
    /// The epoch after which the program was changed: the walk ends there.
    changed: Option<u64>,
    /// The reference's digests of epochs whose logged digest was not read yet.
    ours: BTreeMap<u64, EpochDigest>,
    /// The numbers of commits and aborts so far, by transaction.
    counts: Vec<(u64, u64)>,
    /// The difference that the tables of the newest checkpoint have. It is reported only after the digests of earlier
    /// epochs were compared, since the first difference says most.
    tables: Option<AuditError>,
    verified: Verified,
}

impl<'a> Verification<'a> {
    fn begin(
        directory: &'a StateDirectory,
        from: Option<&'a StateDirectory>,
        program: &'a Program,
        open: OpenSource<'a>,
    ) -> Result<Verification<'a>, AuditError> {
        let walk = Walk::begin(directory, from, program, open)?;
        let start = from.unwrap_or(directory).checkpoint().cloned().unwrap_or_default();
        let changes = directory.manifest().map(|manifest| manifest.changes.as_slice()).unwrap_or_default();
        let own = from.and_then(StateDirectory::manifest).map_or(changes.len(), |manifest| manifest.changes.len());
        let changed = changes.get(own).copied();
        let outputs = program
            .sinks
            .iter()
            .map(|sink| (sink.name.clone(), start.outputs.get(&sink.name).copied().unwrap_or_default()));
        let verified = Verified {
            application: program.name.clone(),
            from: start.epoch,
            through: start.epoch,
            outputs: outputs.collect(),
            in_use_by: directory.writer().map(str::to_owned),
            ..Verified::default()
        };
        let counts = vec![(0, 0); program.transactions.len()];
        Ok(Verification {
            directory,
            from,
            program,
            walk,
            open,
            changed,
            ours: BTreeMap::new(),
            counts,
            tables: None,
            verified,
        })
    }

    fn run(mut self) -> Result<Verified, AuditError> {
        let newest = self.directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
        if self.from.is_some() && newest == self.walk.epoch && self.changed.is_none() {
            self.compare_tables()?;
        }
        while self.changed != Some(self.walk.epoch) {
            let Some(epoch) = self.walk.next_epoch(&mut |_| {})? else { break };
            let mut events = 0;
            while let Some(event) = self.walk.next_event() {
                self.walk.reference.process(event);
                events += 1;
            }
            self.verified.events += events;
            self.verified.through = epoch.number;
            let digest = self.digest();
            for (sink, digest) in self.program.sinks.iter().zip(&digest.sinks) {
                let total = self.verified.outputs.entry(sink.name.clone()).or_default();
                *total = total.then(*digest);
            }
            self.ours.insert(epoch.number, digest);
            self.compare(epoch.digests)?;
            if epoch.number == newest && self.changed != Some(newest) {
                self.tables = self.compare_tables().err();
            }
        }
        let noted = self.walk.noted()?;
        self.compare(noted)?;
        match self.tables.take() {
            Some(wrong) => Err(wrong),
            None => self.end(),
        }
    }

    /// Returns the reference interpreter's digest of the current epoch.
    fn digest(&mut self) -> EpochDigest {
        let outputs = self.program.streams.iter_enumerated();
        let outputs: TiVec<StreamId, RecordBatch> =
            outputs.map(|(s, stream)| batch_of(&stream.schema, &self.walk.reference.take_output(s))).collect();
        let committed = |stream: StreamId| Some(&outputs[stream]).filter(|batch| batch.num_rows() > 0).cloned();
        let counts = self.walk.reference.counts().iter();
        let counts: Vec<(u64, u64)> = counts.map(|count| (count.committed, count.aborted.iter().sum())).collect();
        let before = std::mem::replace(&mut self.counts, counts);
        let transactions = self.counts.iter().zip(before).map(|(now, was)| (now.0 - was.0, now.1 - was.1));
        EpochDigest {
            sinks: self.program.sinks.iter().map(|sink| StreamDigest::of(&outputs[sink.stream])).collect(),
            transactions: transactions.collect(),
            committed: committed_streams(self.program).map(committed).collect(),
        }
    }

    fn compare(&mut self, theirs: Vec<(u64, EpochDigest)>) -> Result<(), AuditError> {
        for (epoch, theirs) in theirs {
            let Some(ours) = self.ours.remove(&epoch) else { continue };
            self.verified.compared += 1;
            let newest = self.directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
            if let Some(wrong) = self.tables.take_if(|_| epoch > newest) {
                return Err(wrong);
            }
            if let Some(difference) = theirs.difference(&ours, self.program, ["the engine", "the reference"]) {
                return Err(AuditError::Differs(format!("epoch {epoch} differs: {difference}")));
            }
        }
        Ok(())
    }

    /// Compares the tables of the newest checkpoint. The walk is at its epoch.
    fn compare_tables(&mut self) -> Result<(), AuditError> {
        let engine = state_rows(self.directory, self.program)?;
        for (t, table) in self.program.tables.iter_enumerated() {
            let schema = table_schema(table);
            let (theirs, ours) = (rows(&engine[t], &schema), self.walk.reference.table(t));
            if TableDigest::of(&batch_of(&schema, &theirs)) != TableDigest::of(&batch_of(&schema, &ours)) {
                return Err(AuditError::Differs(self.row_difference(t, &theirs, &ours)?));
            }
        }
        let recorded = self.directory.checkpoint().map(|checkpoint| &checkpoint.outputs);
        for (sink, ours) in &self.verified.outputs {
            if let Some(theirs) = recorded.and_then(|outputs| outputs.get(sink)).filter(|theirs| *theirs != ours) {
                return Err(AuditError::Differs(format!(
                    "sink {sink} differs by epoch {}: {} events with the digest {:016x} by the engine, {} with {:016x} \
                     by the reference",
                    self.walk.epoch, theirs.events, theirs.hash, ours.events, ours.hash
                )));
            }
        }
        self.verified.tables_compared = true;
        Ok(())
    }

    /// Returns the first row that differs, with the transaction that wrote it last.
    fn row_difference(&self, table: TableId, theirs: &[Vec<Value>], ours: &[Vec<Value>]) -> Result<String, AuditError> {
        let definition = &self.program.tables[table];
        let key = |row: &[Value]| definition.key.iter().map(|&c| row[c].clone()).collect::<Vec<_>>();
        let text = |key: &[Value]| key.iter().map(|value| format!("{value}")).collect::<Vec<_>>();
        let by_key = |rows: &[Vec<Value>]| -> BTreeMap<Vec<String>, Vec<Value>> {
            rows.iter().map(|row| (text(&key(row)), row.clone())).collect()
        };
        let (theirs, ours) = (by_key(theirs), by_key(ours));
        let keys = theirs.keys().chain(ours.keys());
        // Compared as text, since a NaN does not equal itself.
        let text_of = |row: Option<&Vec<Value>>| row.map(|row| row_text(definition, row));
        let differs = keys
            .filter(|key| text_of(theirs.get(*key)) != text_of(ours.get(*key)))
            .min()
            .expect("the digests differ")
            .clone();
        let show = |row: Option<&Vec<Value>>| {
            row.map_or("is missing".into(), |row| format!("is {}", row_text(definition, row)))
        };
        let mut text = format!(
            "table {} differs by epoch {}: the row {} {} in the checkpoint, and {} by the reference",
            definition.name,
            self.walk.epoch,
            differs.join(", "),
            show(theirs.get(&differs)),
            show(ours.get(&differs)),
        );
        match self.last_write(table, &differs)? {
            Some((position, epoch, transaction)) => {
                let _ = write!(text, "; it was last written by {transaction} on {position}, in epoch {epoch}");
            }
            None => {
                let _ = write!(text, "; no transaction has written it since epoch {}", self.verified.from);
            }
        }
        Ok(text)
    }

    /// Returns the event, epoch and transaction that wrote a row last: found by another walk from the start.
    fn last_write(&self, table: TableId, key: &[String]) -> Result<Option<(String, u64, String)>, AuditError> {
        let mut walk = Walk::begin(self.directory, self.from, self.program, self.open)?;
        let definition = &self.program.tables[table];
        let sources = source_streams(self.program).count();
        let mut last = None;
        while walk.epoch < self.walk.epoch && walk.next_epoch(&mut |_| {})?.is_some() {
            while let Some(event) = walk.next_event() {
                let source = event.position.source as usize;
                let of = match source < sources {
                    true => walk.origin(source, event.split),
                    false => self.program.streams[event.root].name.clone(),
                };
                let position = format!("{of}:{}", event.position.offset);
                let traces = walk.reference.process_traced(event);
                let holds = |trace: &&TransactionTrace| trace.aborted.is_none() && trace.undone_with.is_none();
                for trace in traces.iter().filter(holds) {
                    let transaction = &self.program.transactions[trace.transaction];
                    let writes = trace.steps.iter().any(|step| {
                        let (role, wrote): (_, Vec<Value>) = match step {
                            Step::Wrote { role, key, .. } | Step::Deleted { role, key } => (*role, key.clone()),
                            Step::Inserted { role, row } => {
                                (*role, definition.key.iter().filter_map(|&c| row.get(c).cloned()).collect())
                            }
                            _ => return false,
                        };
                        transaction.roles[role].table == table
                            && wrote.iter().map(|value| format!("{value}")).eq(key.iter().cloned())
                    });
                    if writes {
                        last = Some((position.clone(), walk.epoch, transaction.name.clone()));
                    }
                }
            }
        }
        Ok(last)
    }

    fn end(mut self) -> Result<Verified, AuditError> {
        for (t, table) in self.program.tables.iter_enumerated() {
            let digest = TableDigest::of(&batch_of(&table_schema(table), &self.walk.reference.table(t)));
            self.verified.tables.insert(table.name.clone(), digest);
        }
        if let Some(writer) = &self.verified.in_use_by {
            let through = self.verified.through;
            self.verified.notes.push(format!(
                "the state is in use by {writer}: epoch {through} is the last one that was known to be durable"
            ));
        }
        if !self.ours.is_empty() {
            let (epochs, is_in_use) = (self.ours.len(), self.verified.in_use_by.is_some());
            let why = if is_in_use { "it comes later" } else { "a crash came before it" };
            self.verified.notes.push(format!("{epochs} epochs have no digest in the log: {why}"));
        }
        if self.changed == Some(self.walk.epoch) {
            self.verified.notes.push(format!(
                "the program was changed after epoch {}: verify what follows from a later savepoint",
                self.walk.epoch
            ));
        } else if self.verified.is_empty() {
            let nothing = if self.verified.in_use_by.is_some() { NOTHING_YET } else { NOTHING_LOGGED };
            let held = self.directory.savepoints()?.into_iter();
            let held = held.filter(|savepoint| self.directory.has_log_after(savepoint)).map(|savepoint| savepoint.name);
            let held: Vec<String> = held.collect();
            self.verified.notes.push(match held.as_slice() {
                [] => {
                    format!("{nothing}; begin the next run with a savepoint, which keeps it, and verify from there")
                }
                names => format!("{nothing}; verify from a savepoint, which keeps it: {}", names.join(", ")),
            });
        }
        Ok(self.verified)
    }
}
