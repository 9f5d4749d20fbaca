//! Snapshots of rows that change while the snapshot is taken.

use std::collections::BTreeMap;
use tidemill_model::{ColumnType, Type};
use tidemill_plan::{Column, Table as Definition};
use tidemill_state::{EXISTS, Generation, Image, KeyColumn, Keys, RowAddress, Table};

fn numbers() -> Table {
    let ty = ColumnType::required(Type::Int);
    let column = |name: &str| Column { name: name.into(), ty, default: None, window: None, was: None };
    Table::new(&Definition {
        name: "numbers".into(),
        columns: vec![column("key"), column("value")],
        key: vec![0],
        groups: None,
        is_hidden: false,
    })
}

fn slots(table: &Table, keys: &[u64]) -> Vec<RowAddress> {
    let mut slots = vec![0; keys.len()];
    table.resolve(&Keys { columns: &[KeyColumn::Words(keys)], nulls: None, len: keys.len() }, &mut slots);
    slots
}

/// Applies an epoch to rows: a value to write, or none to delete.
fn access(table: &Table, generation: Generation, changes: &[(u64, Option<u64>)]) {
    let keys: Vec<u64> = changes.iter().map(|(key, _)| *key).collect();
    let slots = slots(table, &keys);
    // SAFETY: slots of the table, and the tests have one thread.
    unsafe {
        table.mark(&slots, generation);
        table.save(&slots);
        for (&row, (_, value)) in slots.iter().zip(changes) {
            let row = row as *mut u64;
            row.write(if value.is_some() { EXISTS } else { 0 });
            row.add(2).write(value.unwrap_or(0));
        }
    }
}

fn capture(table: &Table, nodes: std::ops::Range<usize>, into: &mut BTreeMap<u64, Option<u64>>) {
    for node in nodes {
        // SAFETY: `access` saves rows before it writes them.
        let image: Image = unsafe { table.capture(node) };
        for row in 0..image.len() {
            let value = image.exists(row).then(|| image.row(row)[2]);
            assert_eq!(into.insert(image.row(row)[1], value), None, "a key comes once");
        }
    }
}

#[test]
fn rows_that_change_meanwhile_are_as_they_were() {
    let table = numbers();
    let mut captured = BTreeMap::new();
    let first: Vec<(u64, Option<u64>)> = (0..10_000).map(|key| (key, Some(key))).collect();
    access(&table, Generation::Even, &first);
    // SAFETY: nothing runs.
    unsafe { table.begin_snapshot(Generation::Even, false) };
    for (step, nodes) in [0..64, 64..200, 200..256].into_iter().enumerate() {
        let step = step as u64;
        let changes: Vec<_> = (0..20_000).step_by(3 + step as usize).map(|key| (key, Some(key + step + 1))).collect();
        access(&table, Generation::Odd, &changes);
        access(&table, Generation::Odd, &[(9_999 - step, None)]);
        capture(&table, nodes, &mut captured);
    }
    table.end_snapshot();
    assert_eq!(captured, first.into_iter().collect());
    // The next one has the changes since, and no others.
    let mut changed: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for step in 0..3u64 {
        changed.extend((0..20_000).step_by(3 + step as usize).map(|key| (key, Some(key + step + 1))));
        changed.insert(9_999 - step, None);
    }
    // SAFETY: as above.
    unsafe { table.begin_snapshot(Generation::Odd, false) };
    let mut captured = BTreeMap::new();
    capture(&table, 0..256, &mut captured);
    table.end_snapshot();
    assert_eq!(captured, changed);
}

#[test]
fn swept_rows_are_deletions_until_the_next_snapshot() {
    let table = numbers();
    access(&table, Generation::Even, &(0..1_000).map(|key| (key, Some(1))).collect::<Vec<_>>());
    access(&table, Generation::Even, &(0..500).map(|key| (key, None)).collect::<Vec<_>>());
    // SAFETY: nothing holds a row.
    unsafe { table.sweep() };
    access(&table, Generation::Even, &[(7, Some(2))]);
    let mut captured = BTreeMap::new();
    // SAFETY: nothing runs.
    unsafe { table.begin_snapshot(Generation::Even, false) };
    // SAFETY: as above; it does nothing while a snapshot is in progress.
    unsafe { table.sweep() };
    capture(&table, 0..256, &mut captured);
    table.end_snapshot();
    let value = |key: u64| if key == 7 { Some(2) } else { (key >= 500).then_some(1) };
    assert_eq!(captured, (0..1_000).map(|key| (key, value(key))).collect());
    // SAFETY: as above. Freed slots are not changes.
    unsafe { table.begin_snapshot(Generation::Odd, false) };
    let mut captured = BTreeMap::new();
    capture(&table, 0..256, &mut captured);
    table.end_snapshot();
    assert_eq!(captured, BTreeMap::new());
}

#[test]
fn a_whole_snapshot_has_every_row_and_no_deletion() {
    let table = numbers();
    access(&table, Generation::Even, &(0..1_000).map(|key| (key, (key % 2 == 0).then_some(key))).collect::<Vec<_>>());
    // SAFETY: nothing runs.
    unsafe { table.begin_snapshot(Generation::Odd, true) };
    access(&table, Generation::Even, &[(0, None), (1, Some(1)), (5_000, Some(1))]);
    let mut captured = BTreeMap::new();
    capture(&table, 0..256, &mut captured);
    table.end_snapshot();
    assert_eq!(captured, (0..1_000).step_by(2).map(|key| (key, Some(key))).collect());
}
