//! Migration: turns a state of an earlier version of a program into a state of a later version.
//! [`tidemill_durability::Fit`] defines which differences are allowed; this module does the conversion.
//!
//! The rows pass through memory once, and the result is a checkpoint of the same epoch. The switch of the manifest is
//! the single step that makes the state belong to the new program.
//!
//! A column that has a function is converted before its rows are put into their table ([`converted`]). A value that the
//! function refuses ends the migration before anything is written.

use crate::checkpoint::{AtRest, SourceAt, restore_sources, save};
use crate::control::RunError;
use crate::convert::{Converts, converted, refused, widen};
use crate::history::state_rows;
use crate::lateness::MarkOf;
use crate::operators::{begins_anew, begun_anew, is_changed_batch, refuse_open, refuse_open_of};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use std::sync::Arc;
use tidemill_durability::{
    Checkpoint, Identity, StateDirectory, StateError, changed_operators, conversion_of, table_fits, table_taken_over,
    taken_over,
};
use tidemill_model::arrow::{array_of, arrow_field, arrow_schema};
use tidemill_model::{Field, FieldType, Schema, Type, Value};
use tidemill_plan::{Column, Origin, Program, Stream, Table as Definition};
use tidemill_stages::gate::Standing;
use tidemill_stages::machine::Machine;
use tidemill_state::{Generation, Table};

/// Writes a checkpoint of the state for the program of `machine`, which the state was opened for. New tables contain
/// their initial rows on entry, and the others are empty.
pub fn migrate(
    directory: &mut StateDirectory,
    old: &Program,
    machine: &Machine,
    converts: Converts,
) -> Result<(), RunError> {
    let (new, tables) = (&machine.program, &machine.tables);
    let epoch = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    if directory.has_logged()? {
        let path = directory.path().display();
        return Err(RunError::State(StateError::Refused(format!("epochs are logged behind the checkpoint of {path}"))));
    }
    refuse_open(directory)?;
    if directory.chain().is_some() {
        directory.hash_runs();
    }
    let mut standing = restore_sources(directory, old)?;
    for (definition, rows) in old.tables.iter().zip(state_rows(directory, old)?) {
        let takes = |table: &&Table| taken(&old.tables.raw, &new.tables.raw, table) == Some(definition);
        let Some(table) = tables.iter().find(takes) else { continue }; // It is dropped.
        let rows = match begins_anew(directory, &definition.name) {
            false => rows,
            true => match begun_anew(&rows, definition, (old, new), &standing) {
                Some(rows) => rows,
                None => continue,
            },
        };
        take_over(rows, definition, table, converts)?;
    }
    let streams = |program: &Program| -> Vec<Stream> {
        program.streams.iter().filter(|s| matches!(s.origin, Origin::Source { .. })).cloned().collect()
    };
    let (before, after) = (streams(old), streams(new));
    standing.resize_with(before.len().max(standing.len()), SourceAt::default);
    for at in &mut standing {
        at.standing.batches.retain(|batch| !is_changed_batch(directory, new, &batch.stream));
    }
    let passed = last_of_retired(&standing, &before, &after);
    let passed_before = directory.checkpoint().map_or(0, |checkpoint| checkpoint.passed_before);
    machine.stand_after(passed_before + passed_of_retired(&standing, &before, &after));
    let mut sources: Vec<SourceAt> = Vec::new();
    // Further splits stay with their sources, in the order in which they joined.
    let joined = standing.split_off(before.len()).into_iter().filter_map(|at| {
        let old = &before[at.split.as_ref()?.source];
        Some((at, old, after.iter().position(|new| new.name == old.name)?))
    });
    let first = after.iter().enumerate().map(|(number, stream)| {
        let old = before.iter().position(|old| old.name == stream.name);
        let at = old.map(|old| (std::mem::take(&mut standing[old]), &before[old], number));
        at.unwrap_or_else(|| (SourceAt::default(), stream, number))
    });
    let all: Vec<(SourceAt, &Stream, usize)> = first.collect::<Vec<_>>().into_iter().chain(joined).collect();
    for (at, old, number) in all {
        let stream = &after[number];
        let mut at = keep_mark(at, old, stream);
        at.split.iter_mut().for_each(|split| split.source = number);
        let defaults = vec![None; stream.schema.fields.len()];
        let Standing { held, aside, batches, .. } = &mut at.standing;
        let late = aside.late.iter_mut().map(|(late, _)| late);
        for held in held.iter_mut().chain(late).chain(batches.iter_mut().flat_map(|batch| &mut batch.events)) {
            let from = stream.schema.fields.iter().map(|field| held.schema().index_of(&field.name).ok());
            *held = convert(held, &stream.schema, &from.collect::<Vec<_>>(), &defaults)
                .map_err(|why| refused("source", &stream.name, &why))?;
        }
        sources.push(at);
    }
    // Time does not go back where the source is retired of which the last event has passed.
    let timed = after.iter().position(|stream| stream.own_time().is_some());
    if let (Some(at), Some(passed)) = (timed.and_then(|timed| sources.get_mut(timed)), passed) {
        at.standing.last_time = at.standing.last_time.max(Some(passed));
    }
    let outputs = directory.checkpoint().map(|checkpoint| checkpoint.outputs.clone()).unwrap_or_default();
    let proof = directory.checkpoint().and_then(|checkpoint| checkpoint.proof);
    let state = AtRest { epoch, sources, outputs, generation: Generation::default(), whole: true, live: None, proof };
    let checkpoint = save(directory, machine, state, None)?;
    Ok(directory.adopt(checkpoint)?)
}

/// Returns the table of a state whose rows a table of the program takes over, if there is one.
fn taken<'a>(state: &'a [Definition], program: &[Definition], table: &Table) -> Option<&'a Definition> {
    table_taken_over(state, program, table.definition())
}

/// Returns the time of the last event that has passed of the sources that the program does not have.
fn last_of_retired(standing: &[SourceAt], before: &[Stream], after: &[Stream]) -> Option<i64> {
    let of = |(stream, at): (&Stream, &Standing)| at.last_time.filter(|_| stream.own_time().is_some());
    retired(standing, before, after).filter_map(of).max()
}

/// Returns the number of events that have passed of these sources.
fn passed_of_retired(standing: &[SourceAt], before: &[Stream], after: &[Stream]) -> u64 {
    retired(standing, before, after).map(|(_, at)| at.passed).sum()
}

/// Returns the splits of the sources that the program does not have.
fn retired<'a>(
    standing: &'a [SourceAt],
    before: &'a [Stream],
    after: &'a [Stream],
) -> impl Iterator<Item = (&'a Stream, &'a Standing)> {
    let of = |(number, at): (usize, &'a SourceAt)| {
        (&before[at.split.as_ref().map_or(number, |split| split.source)], &at.standing)
    };
    let is_retired = |(stream, _): &(&Stream, &Standing)| !after.iter().any(|new| new.name == stream.name);
    standing.iter().enumerate().map(of).filter(is_retired)
}

/// Returns a source with the mark that it has, whatever its lateness is now.
fn keep_mark(mut at: SourceAt, old: &Stream, new: &Stream) -> SourceAt {
    if let (Origin::Source { lateness: was, .. }, Origin::Source { lateness: is, .. }, Some(_)) =
        (&old.origin, &new.origin, old.event_time)
    {
        let standing = &mut at.standing;
        let mark = MarkOf { greatest: standing.greatest, punctuated: standing.punctuated }.under(*was, *is);
        (standing.greatest, standing.punctuated) = (mark.greatest, mark.punctuated);
    }
    at
}

/// Loads the rows of a state into the tables of the same names, or of those that they have now.
pub fn seed(
    from: &StateDirectory,
    of: &Program,
    machine: &Machine,
    converts: Converts,
) -> Result<Vec<(String, usize)>, RunError> {
    let (tables, program) = (&machine.tables, &machine.program);
    let changed = from.manifest().map(|manifest| changed_operators(&manifest.program, &Identity::of(program)));
    let changed = changed.unwrap_or_default();
    refuse_open_of(from, &changed)?;
    // Groups of its open windows, and events that wait in its joins, are before those that come.
    let places = |at: &Checkpoint| at.passed_before + at.sources.iter().map(|source| source.passed).sum::<u64>();
    machine.stand_after(from.checkpoint().map_or(0, places));
    let mut seeded = Vec::new();
    for (definition, rows) in of.tables.iter().zip(state_rows(from, of)?) {
        let takes = |table: &&Table| taken(&of.tables.raw, &program.tables.raw, table) == Some(definition);
        let Some(table) = tables.iter().find(takes) else { continue };
        if changed.iter().any(|changed| changed.operator.owns(&definition.name)) {
            continue;
        }
        let name = &table.definition().name;
        table_fits(definition, table.definition()).map_err(|why| {
            RunError::State(StateError::Refused(format!("{} cannot be seeded from: {why}", from.path().display())))
        })?;
        seeded.push((name.clone(), rows.num_rows()));
        take_over(rows, definition, table, converts)?;
    }
    Ok(seeded)
}

/// Puts rows of a state into a table.
fn take_over(rows: RecordBatch, definition: &Definition, table: &Table, converts: Converts) -> Result<(), RunError> {
    let columns = &table.definition().columns;
    let defaults: Vec<_> = columns.iter().map(|column| column.default.clone()).collect();
    let from = taken_over(definition, table.definition());
    let mut rows = rows;
    for (column, from) in columns.iter().zip(&from) {
        let Some((from, before)) = from.map(|from| (from, &definition.columns[from])) else { continue };
        let Some(conversion) = conversion_of(before, column) else { continue };
        let values = converted(&rows, definition, from, conversion, converts)?;
        rows = replaced(&rows, from, column, values);
    }
    let rows = convert(&rows, &table.schema(), &from, &defaults);
    let rows = rows.map_err(|why| refused("table", &definition.name, &why))?;
    table.preload(&rows).map_err(|error| refused("table", &definition.name, &error.to_string()))
}

/// Converts rows to another schema. `from`: by field, the column that it takes over, which is widened, or none: then it
/// gets its default in every row.
fn convert(
    batch: &RecordBatch,
    schema: &Schema,
    from: &[Option<usize>],
    defaults: &[Option<Value>],
) -> Result<RecordBatch, String> {
    assert_eq!(defaults.len(), schema.fields.len(), "each field has a default or none");
    assert_eq!(from.len(), schema.fields.len(), "each field takes over a column or none");
    let mut columns = Vec::new();
    for ((field, from), default) in schema.fields.iter().zip(from).zip(defaults) {
        let column = match (*from, &field.ty) {
            (Some(index), _) => widen(batch.column(index), field)?,
            (None, FieldType::Scalar(ty)) => constant(ty.ty, default.as_ref(), batch.num_rows()),
            (None, FieldType::List(_)) => return Err(format!("the list {} is new", field.name)),
        };
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(arrow_schema(schema), columns, &options).map_err(|error| error.to_string())
}

/// Returns the rows with other values in a column, of another column's type.
fn replaced(rows: &RecordBatch, at: usize, column: &Column, values: ArrayRef) -> RecordBatch {
    let mut fields: Vec<_> = rows.schema().fields().to_vec();
    let name = fields[at].name().clone();
    fields[at] = Arc::new(arrow_field(&Field::scalar(name, column.ty)));
    let mut columns = rows.columns().to_vec();
    columns[at] = values;
    let schema = Arc::new(arrow_schema::Schema::new(fields));
    RecordBatch::try_new(schema, columns).expect("there is a value of the column's type for each row")
}

fn constant(ty: Type, value: Option<&Value>, rows: usize) -> ArrayRef {
    array_of(ty, &vec![value.cloned().unwrap_or(Value::Null); rows])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_model::ColumnType;
    use tidemill_model::arrow::{batch_of, rows};

    #[test]
    fn columns_are_widened_and_added() {
        let decimal = |digits, scale| ColumnType::required(Type::Decimal { digits, scale });
        let old = Schema::scalars([
            ("id", ColumnType::required(Type::Int)),
            ("price", decimal(5, 2)),
            ("count", ColumnType::required(Type::Int)),
        ]);
        let new = Schema::scalars([
            ("id", ColumnType::required(Type::Int)),
            ("count", ColumnType::optional(Type::Float)),
            ("note", ColumnType::optional(Type::Str)),
            ("price", decimal(9, 4)),
            ("limit", ColumnType::required(Type::Int)),
        ]);
        let batch = batch_of(&old, &[vec![Value::Int(1), Value::Decimal(1250), Value::Int(7)]]);
        let defaults = [None, None, None, None, Some(Value::Int(3))];
        let from = [Some(0), Some(2), None, Some(1), None];
        let converted = convert(&batch, &new, &from, &defaults).expect("it widens");
        let expected = vec![Value::Int(1), Value::Float(7.0), Value::Null, Value::Decimal(125_000), Value::Int(3)];
        assert_eq!(rows(&converted, &new), vec![expected]);
        let large = batch_of(&old, &[vec![Value::Int(1), Value::Decimal(0), Value::Int((1 << 53) + 1)]]);
        assert!(convert(&large, &new, &from, &defaults).unwrap_err().contains("9007199254740993 in count"));
    }
}
