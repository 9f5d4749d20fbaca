//! The rows that the operators of a state have open. An operator with another definition in the program begins anew, so
//! it goes on only from a state in which it has nothing open: its rows mean what its definition says.

use crate::checkpoint::SourceAt;
use crate::load::checkpoint_rows;
use arrow_array::RecordBatch;
use std::path::Path;
use tidemill_durability::{Bug, ChangedOperator, Fit, Migration, StateDirectory, StateError};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Schema, Value};
use tidemill_plan::{
    Definition, DefinitionKind, NO_TICK, Operator, OperatorKind, Origin, Program, StreamId, StreamPart,
    Table as TableDefinition, TablePart,
};
use tidemill_stages::gate::Gate;
use tidemill_state::Table;

/// Returns the number of rows that an operator has open in the newest checkpoint of a state; of atomic batches, how
/// many events.
pub fn open_rows(directory: &StateDirectory, operator: &Definition) -> Result<u64, StateError> {
    let Some(manifest) = directory.manifest() else { return Ok(0) };
    let checkpoint = &manifest.checkpoint;
    if operator.kind == DefinitionKind::Batch {
        let begun = checkpoint.sources.iter().flat_map(|source| &source.batches);
        let events = begun.filter(|batch| batch.stream == operator.name).flat_map(|batch| &batch.events);
        return Ok(events.map(|block| block.rows).sum());
    }
    let mut count = 0;
    for (definition, state) in manifest.program.tables.iter().zip(&checkpoint.tables) {
        if operator.has_open(&definition.name) {
            // Runs also have rows that were deleted since.
            let table = Table::new(definition);
            for batch in checkpoint_rows(directory, &table, state)? {
                count += batch?.num_rows() as u64;
            }
        }
    }
    Ok(count)
}

/// Refuses to go on from a state in which something is open of operators that are others in the program. Reads only.
pub fn refuse_open(directory: &StateDirectory) -> Result<(), StateError> {
    let Fit::Migrates(Migration { changed, .. }) = directory.fit() else { return Ok(()) };
    if directory.planted().is(Bug::OpenTakenOver) {
        return Ok(());
    }
    refuse_open_of(directory, changed)
}

/// Refuses a state in which something is open of one of these operators.
pub fn refuse_open_of(directory: &StateDirectory, changed: &[ChangedOperator]) -> Result<(), StateError> {
    let (mut lines, mut names) = (Vec::new(), Vec::new());
    for changed in changed {
        let open = open_rows(directory, &changed.operator)?;
        if open > 0 {
            lines.push(format!("{}, {}:", changed.operator.shown(), open_text(&changed.operator, open)));
            lines.extend(changed.changes.iter().map(|change| format!("  {change}")));
            names.push(changed.operator.name.as_str());
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    Err(StateError::Refused(format!(
        "the state {} has rows open that mean nothing to the program:\n  {}\n{}",
        directory.path().display(),
        lines.join("\n  "),
        ways(directory.path(), &names)
    )))
}

/// Returns a text that says what can be done about open rows of operators.
fn ways(path: &Path, names: &[&str]) -> String {
    format!(
        "give {} another name in the program; or close what is open first, by the program as it was: 'tidemill run FILE \
         --state {} --end {}'",
        if names.len() == 1 { "it" } else { "them" },
        path.display(),
        names.join(",")
    )
}

/// Returns the number of rows that an operator has open, in words.
pub fn open_text(operator: &Definition, open: u64) -> String {
    let (one, more) = if operator.kind == DefinitionKind::Batch { ("event", "events") } else { ("row", "rows") };
    match open {
        0 => "nothing is open".into(),
        1 => format!("1 {one} is open"),
        _ => format!("{open} {more} are open"),
    }
}

/// Returns the rows with which a table of an operator that begins anew begins, given those that the state has of it: none,
/// but ticks go on after the last that came, and after the time below which all has passed.
pub(crate) fn begun_anew(
    had: &RecordBatch,
    table: &TableDefinition,
    (old, new): (&Program, &Program),
    standing: &[SourceAt],
) -> Option<RecordBatch> {
    let owner = table.owner.filter(|owner| owner.part == TablePart::Next)?;
    let ticks = &new.operators[owner.operator];
    let every = |operator: &Operator| match operator.kind {
        OperatorKind::Ticks { every, .. } if operator.name == ticks.name => Some(every),
        _ => None,
    };
    let every = old.operators.iter().find_map(every)?;
    let bound = new.streams[new.stream_of(owner.operator, StreamPart::Ticks)?].origin.bound()?;
    let schema = Schema::scalars(table.columns.iter().map(|c| (c.name.as_str(), c.ty)));
    let mut begun = rows(had, &schema);
    let complete = complete(old, standing);
    for row in &mut begun {
        let next = row[DUE].word().filter(|next| *next != NO_TICK);
        let last = next.map(|next| next.saturating_sub(every).max(complete.unwrap_or(i64::MIN)));
        let next = last.and_then(|last| bound.after(last));
        assert!(last.zip(next).is_none_or(|(last, next)| last < next), "ticks go on");
        row[DUE] = Value::Int(next.unwrap_or(NO_TICK));
    }
    Some(batch_of(&schema, &begun))
}

/// Returns the time below which every event of a state has passed.
fn complete(program: &Program, standing: &[SourceAt]) -> Option<i64> {
    let is_source = |stream: &StreamId| matches!(program.streams[*stream].origin, Origin::Source { .. });
    let sources: Vec<StreamId> = program.streams.keys().filter(is_source).collect();
    let mut gate = Gate::new(program, &sources);
    assert!(standing.len() >= sources.len(), "each source stands somewhere");
    for (number, at) in standing.iter().enumerate() {
        if let Some(split) = at.split.as_ref().filter(|_| number >= sources.len()) {
            gate.join(split.source, at.standing.begin);
        }
        gate.stand(number, at.standing.clone(), 0);
    }
    gate.complete()
}

/// The column of the next tick.
const DUE: usize = 1;

/// Returns whether a table is of an operator that is another in the program.
pub(crate) fn begins_anew(directory: &StateDirectory, table: &str) -> bool {
    match directory.fit() {
        Fit::Migrates(migration) => migration.begins_anew(table) && !directory.planted().is(Bug::OpenTakenOver),
        _ => false,
    }
}

/// Returns whether a stream of atomic batches is another in the program.
pub(crate) fn is_changed_batch(directory: &StateDirectory, program: &Program, stream: &str) -> bool {
    if directory.planted().is(Bug::OpenTakenOver) {
        return false;
    }
    let is_there = program.streams.iter().any(|of| of.name == stream && matches!(of.origin, Origin::Batch(_)));
    !is_there
        || match directory.fit() {
            Fit::Migrates(migration) => migration.changed.iter().any(|changed| changed.operator.name == stream),
            _ => false,
        }
}
