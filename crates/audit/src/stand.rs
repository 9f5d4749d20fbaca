//! A state as it stands: its tables, and the events of its streams, after the last epoch that was known to be durable.
//!
//! The rows are those of the newest checkpoint, brought on by the reference interpreter through the epochs that are logged
//! after it. So a run may go on with the state meanwhile, and no lock is taken.

use crate::error::AuditError;
use crate::walk::{OpenSource, Walk, recorded_program, table_schema};
use arrow_array::RecordBatch;
use std::ops::ControlFlow;
use tidemill_durability::StateDirectory;
use tidemill_model::Schema;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::{Program, StreamId};
use tidemill_reference::Reference;
use tidemill_runtime::state_rows;

/// A state as it stands.
pub struct Standing {
    /// The application.
    pub application: String,
    /// The last epoch that was known to be durable.
    pub epoch: u64,
    /// The declared tables, with their rows in the order of their keys.
    pub tables: Vec<StandingTable>,
}

/// A table of a state as it stands.
pub struct StandingTable {
    /// Its name.
    pub name: String,
    /// The schema of its rows.
    pub schema: Schema,
    /// The rows.
    pub rows: RecordBatch,
}

/// Returns the tables of a state. `open` opens the sources whose records are not in the log.
pub fn stand(directory: &StateDirectory, open: OpenSource<'_>) -> Result<Standing, AuditError> {
    let program = recorded_program(directory)?;
    let checkpoint = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    if !directory.has_logged()? {
        let mut reference = Reference::new(&program);
        for (id, batch) in state_rows(directory, &program)?.iter_enumerated() {
            reference.preload(id, rows(batch, &table_schema(&program.tables[id])));
        }
        return Ok(Standing::of(&program, &reference, checkpoint));
    }
    let mut walk = Walk::begin(directory, None, &program, open)?;
    while walk.next_epoch(&mut |_| {})?.is_some() {
        take_all(&mut walk);
        program.streams.keys().for_each(|stream| drop(walk.reference.take_output(stream)));
    }
    Ok(Standing::of(&program, &walk.reference, walk.epoch))
}

impl Standing {
    fn of(program: &Program, reference: &Reference<'_>, epoch: u64) -> Standing {
        let declared = program.tables.iter_enumerated().filter(|(_, table)| !table.is_hidden);
        let tables = declared.map(|(id, table)| {
            let schema = table_schema(table);
            let rows = batch_of(&schema, &reference.table(id));
            StandingTable { name: table.name.clone(), schema, rows }
        });
        Standing { application: program.name.clone(), epoch, tables: tables.collect() }
    }
}

/// The part of a stream that a state's log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tailed {
    /// The epoch of the newest checkpoint: events of it and of earlier epochs are not in the log.
    pub from: u64,
    /// The last epoch that was known to be durable.
    pub through: u64,
}

/// Gives the events of a stream that are in the log, epoch by epoch, after an epoch. `each` has the number of an epoch, the
/// schema and the events.
pub fn tail(
    directory: &StateDirectory,
    stream: &str,
    after: u64,
    open: OpenSource<'_>,
    each: &mut dyn FnMut(u64, &Schema, RecordBatch) -> ControlFlow<()>,
) -> Result<Tailed, AuditError> {
    let program = recorded_program(directory)?;
    let wanted = named(&program, stream)?;
    let from = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    let mut tailed = Tailed { from, through: from };
    let mut walk = Walk::begin(directory, None, &program, open)?;
    let schema = &program.streams[wanted].schema;
    while walk.next_epoch(&mut |_| {})?.is_some() {
        take_all(&mut walk);
        tailed.through = walk.epoch;
        for id in program.streams.keys() {
            let events = walk.reference.take_output(id);
            if id == wanted
                && walk.epoch > after
                && !events.is_empty()
                && each(walk.epoch, schema, batch_of(schema, &events)).is_break()
            {
                return Ok(tailed);
            }
        }
    }
    Ok(tailed)
}

fn named(program: &Program, stream: &str) -> Result<StreamId, AuditError> {
    let found = program.streams.iter_enumerated().find(|(_, known)| known.name == stream).map(|(id, _)| id);
    found.ok_or_else(|| {
        let names: Vec<&str> =
            tidemill_plan::shown_streams(program).map(|id| program.streams[id].name.as_str()).collect();
        AuditError::Unknown(format!("there is no stream '{stream}'; streams: {}", names.join(", ")))
    })
}

fn take_all(walk: &mut Walk<'_>) {
    while let Some(event) = walk.next_event() {
        walk.reference.process(event);
    }
}
