//! Rows that are due: rows of tables whose time has come, as events of a root ([`tidemill_plan::Due`]).

use crate::machine::Machine;
use crate::progress::{Boundaries, Rule};
use crate::wiring::Wiring;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use parking_lot::Mutex;
use std::sync::Arc;
use tidemill_model::Type;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::{Bound, Due, DueField, NO_TICK, Origin, Program, StreamId, TableId};
use tidemill_state::{Earliest, EvictedError, RowsAt, Table};
use typed_index_collections::TiVec;

/// A cut of what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueCut {
    /// Index into [`crate::wiring::Wiring::dues`].
    pub due: usize,
    /// The boundary.
    pub boundary: i64,
}

/// Rows of a table that are due.
pub struct DueRows {
    /// The rows that are due at a boundary, in order, as events; none if there are none.
    pub events: Option<RecordBatch>,
    /// The least boundary of the other rows.
    pub next: Option<i64>,
}

/// Returns the declaration of a stream of rows that are due; none of batches, which the gate has.
pub fn due_of(program: &Program, stream: StreamId) -> Option<&Due> {
    match &program.streams[stream].origin {
        Origin::Due(due) => Some(due),
        _ => None,
    }
}

/// Returns the boundaries of a program, before the first look at its rows.
pub fn boundaries(program: &Program, wiring: &Wiring) -> Boundaries {
    Boundaries::new(wiring.dues.iter().map(|&stream| rule_of(program, stream)))
}

/// Returns the rule by which what is of a stream is due.
fn rule_of(program: &Program, stream: StreamId) -> Rule {
    let due = due_of(program, stream).cloned();
    let bound = program.streams[stream].origin.bound().expect("something is due");
    let by_events = due.as_ref().is_none_or(|due| program.is_touched_by_events(due.table));
    Rule { due, bound, by_events }
}

/// Makes the index that finds the due rows of each stream, if these are of a table.
pub fn indexes(program: &Program, wiring: &Wiring, tables: &TiVec<TableId, Table>) -> Vec<Option<Mutex<Earliest>>> {
    let index = |&stream: &StreamId| {
        let due = due_of(program, stream)?;
        assert!(
            due.fields.iter().all(|field| !is_text_outside_of_key(program, due, field)),
            "such texts are not copied"
        );
        Some(Mutex::new(Earliest::new(&tables[due.table], due.due)))
    };
    wiring.dues.iter().map(index).collect()
}

/// Returns whether a field of a due event is a text of the table that is no part of its key. With each row of another
/// table it is never one of the table's own.
fn is_text_outside_of_key(program: &Program, due: &Due, field: &DueField) -> bool {
    let DueField::Part { column, .. } = *field else { return false };
    let table = &program.tables[due.table];
    let is_of_rows = matches!(due.bound, Bound::Rows { .. });
    !is_of_rows && !table.key.contains(&column) && table.columns[column].ty.ty.is_bytes()
}

/// Returns the rows of a stream that are due at a boundary, given by its index into [`Wiring::dues`]; without a
/// boundary, only the least one is found. No transaction may run meanwhile; where rows may be evicted, no epoch may be
/// prepared either.
pub fn due_rows(machine: &Machine, due: usize, boundary: Option<i64>) -> Result<DueRows, EvictedError> {
    let stream = machine.wiring.dues[due];
    let of = due_of(&machine.program, stream).expect("rows of a table");
    let table = &machine.tables[of.table];
    if let Bound::Ticks { every, .. } = of.bound {
        return Ok(tick(machine, stream, boundary, every, table.image_batch(&table.copy_all()?)));
    }
    if let Bound::Rows { every, of: rows, .. } = of.bound {
        return rows_of(machine, stream, (boundary, every), &machine.tables[rows]);
    }
    let RowsAt { rows, next } =
        machine.due_rows[due].as_ref().expect("rows of a table").lock().take(table, boundary)?;
    if rows.is_empty() {
        return Ok(DueRows { events: None, next });
    }
    let (rows, due) = (table.image_batch(&rows), of);
    let key = machine.program.tables[due.table].key.iter().copied();
    let order = if due.is_by_key() { order_by(&rows, key) } else { order_by_first(&rows, due.first, key) };
    let boundary = boundary.expect("rows are due at a boundary");
    let column = |field: &DueField| part(due, field, &rows, &order, boundary);
    let schema = arrow_schema(&machine.program.streams[stream].schema);
    let columns = due.fields.iter().map(column).collect();
    let events = RecordBatch::try_new(schema, columns).expect("the fields have the types of the schema");
    Ok(DueRows { events: Some(events), next })
}

/// Returns the order of rows by a column of numbers, and where these are equal by further columns.
fn order_by_first(rows: &RecordBatch, first: usize, others: impl Iterator<Item = usize>) -> UInt32Array {
    let numbers = rows.column(first).as_primitive::<Int64Type>().values();
    let mut order = Vec::from_iter(0..numbers.len() as u32);
    order.sort_unstable_by_key(|&row| numbers[row as usize]);
    if order.is_sorted_by(|&a, &b| numbers[a as usize] < numbers[b as usize]) {
        return UInt32Array::from(order);
    }
    order_by(rows, std::iter::once(first).chain(others))
}

/// Returns the order of rows by columns.
fn order_by(rows: &RecordBatch, keys: impl Iterator<Item = usize>) -> UInt32Array {
    let column = |key: usize| SortColumn { values: rows.column(key).clone(), options: None };
    lexsort_to_indices(&Vec::from_iter(keys.map(column)), None).expect("keys can be compared")
}

/// Returns a boundary, and then each row of a table in the order of their keys. What is due holds the next boundary.
fn rows_of(
    machine: &Machine,
    stream: StreamId,
    (boundary, every): (Option<i64>, i64),
    table: &Table,
) -> Result<DueRows, EvictedError> {
    let due = due_of(&machine.program, stream).expect("rows of a table");
    let grid = &machine.tables[due.table];
    let known = grid.image_batch(&grid.copy_all()?);
    let next = known.column(due.due).as_primitive::<Int64Type>().values().first().copied();
    let Some(boundary) = boundary.filter(|&boundary| next.is_none_or(|next| next <= boundary)) else {
        return Ok(DueRows { events: None, next });
    };
    let Bound::Rows { of, .. } = due.bound else { unreachable!("the caller has looked") };
    let rows = table.image_batch(&table.copy_all()?);
    let in_order = order_by(&rows, machine.program.tables[of].key.iter().copied());
    // No row has the key of the boundary itself.
    let order: UInt32Array = std::iter::once(None).chain(in_order.values().iter().copied().map(Some)).collect();
    let column = |field: &DueField| part(due, field, &rows, &order, boundary);
    let schema = arrow_schema(&machine.program.streams[stream].schema);
    let columns = due.fields.iter().map(column).collect();
    let events = RecordBatch::try_new(schema, columns).expect("the fields have the types of the schema");
    Ok(DueRows { events: Some(events), next: Some(boundary.saturating_add(every)) })
}

/// Returns the tick of a boundary. The row holds the next, or that there is none; if it is before, those between are
/// left out.
fn tick(machine: &Machine, stream: StreamId, boundary: Option<i64>, every: i64, rows: RecordBatch) -> DueRows {
    let due = due_of(&machine.program, stream).expect("ticks");
    let next = rows.column(due.due).as_primitive::<Int64Type>().values().first().copied();
    let is_due = |boundary: &i64| next.is_none_or(|next| next <= *boundary && next != NO_TICK);
    let Some(boundary) = boundary.filter(is_due) else {
        return DueRows { events: None, next };
    };
    let schema = arrow_schema(&machine.program.streams[stream].schema);
    let events = RecordBatch::try_new(schema, vec![times(due, boundary, 1)]).expect("a tick is a time");
    DueRows { events: Some(events), next: Some(boundary.checked_add(every).unwrap_or(NO_TICK)) }
}

fn times(due: &Due, time: i64, count: usize) -> ArrayRef {
    times_of(due, Int64Array::from_value(time, count))
}

fn times_of(due: &Due, units: Int64Array) -> ArrayRef {
    match due.time {
        Type::Int => Arc::new(units),
        _ => Arc::new(units.reinterpret_cast::<TimestampMicrosecondType>().with_timezone("UTC")),
    }
}

fn part(due: &Due, field: &DueField, rows: &RecordBatch, order: &UInt32Array, boundary: i64) -> ArrayRef {
    let taken = |column: usize| take(rows.column(column), order, None).expect("rows of the table");
    match *field {
        DueField::Part { column, none: None } => taken(column),
        DueField::Part { column, none: Some(none) } => {
            let none: BooleanArray = taken(none).as_boolean().clone();
            nullif(&taken(column), &none).expect("a column and a mask of one length")
        }
        DueField::Time { column, less } => {
            let units = taken(column);
            let earlier = units.as_primitive::<Int64Type>().unary(|units: i64| units.saturating_sub(less));
            times_of(due, earlier)
        }
        DueField::Start { length } => times(due, boundary.saturating_sub(length), order.len()),
        DueField::End => times(due, boundary, order.len()),
    }
}
