//! Snapshots of rows that change while the snapshot is taken.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tidemill_model::{ColumnType, Type};
use tidemill_plan::{Column, Table as Definition};
use tidemill_state::{EXISTS, Generation, Image, KeyColumn, Keys, ReadSnapshot, RowAddress, Table};

fn numbers() -> Table {
    let ty = ColumnType::required(Type::Int);
    let column = |name: &str| Column::new(name, ty);
    Table::new(&Definition {
        name: "numbers".into(),
        columns: vec![column("key"), column("value")],
        key: vec![0],
        indexes: vec![],
        groups: None,
        was: None,
        expire: None,
        is_hidden: false,
        owner: None,
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

/// Returns the rows of a read snapshot.
fn read(table: &Table, snapshot: &Arc<ReadSnapshot>) -> BTreeMap<u64, u64> {
    let mut image = Image::new(table.shape());
    table.read(snapshot, &mut |rows| image.append(rows)).expect("no row is evicted");
    table.end_read(snapshot);
    let rows: BTreeMap<u64, u64> = (0..image.len()).map(|row| (image.row(row)[1], image.row(row)[2])).collect();
    assert_eq!(rows.len(), image.len(), "a key comes once");
    rows
}

/// Begins a read snapshot, between two epochs.
fn begin(table: &Table) -> Arc<ReadSnapshot> {
    // SAFETY: nothing runs, and `access` saves rows before it writes them.
    unsafe { table.begin_read() }
}

#[test]
fn a_large_table_is_read_in_pieces() {
    let table = numbers();
    let keys = 50_000;
    let at_first: Vec<_> = (0..keys).map(|key| (key, Some(1))).collect();
    access(&table, Generation::Even, &at_first);
    let snapshot = begin(&table);
    access(&table, Generation::Even, &(0..keys).step_by(7).map(|key| (key, Some(2))).collect::<Vec<_>>());
    let mut pieces = Vec::new();
    table.read(&snapshot, &mut |rows| pieces.push(table.image_batch(rows))).expect("no row is evicted");
    table.end_read(&snapshot);
    assert!(pieces.len() > 2, "{} pieces", pieces.len());
    let sorted = table.sorted(&pieces);
    let [found, values] = [0, 1].map(|column| sorted.column(column).as_primitive::<Int64Type>().values().to_vec());
    assert_eq!(found, (0..keys as i64).collect::<Vec<_>>());
    assert_eq!(values, vec![1; keys as usize]);
}

#[test]
fn several_readers_have_their_epochs_beside_a_checkpoint() {
    let table = numbers();
    let mut model = BTreeMap::new();
    let mut open = VecDeque::new();
    let (mut generation, mut checkpoint) = (Generation::Even, None);
    for epoch in 0..60u64 {
        // More and more keys, so that blocks come while snapshots are open; some go and come again.
        let key = |i: u64| (i * 7_919 + epoch * 31) % (1_000 + 5_000 * epoch);
        let changes: BTreeMap<u64, Option<u64>> =
            (0..1_500).map(|i| (key(i), (i % 5 > 0).then_some(epoch * 10_000 + i))).collect();
        access(&table, generation, &changes.iter().map(|(&key, &value)| (key, value)).collect::<Vec<_>>());
        for (key, value) in changes {
            match value {
                Some(value) => _ = model.insert(key, value),
                None => _ = model.remove(&key),
            }
        }
        if epoch % 7 == 0 {
            // SAFETY: as in `begin`.
            unsafe { table.begin_snapshot(generation, true) };
            generation = generation.next();
            checkpoint = Some(model.clone());
        }
        if epoch % 3 > 0 {
            open.push_back((begin(&table), model.clone()));
        }
        if open.len() > 4 {
            let (snapshot, expected) = open.pop_front().expect("five");
            assert_eq!(read(&table, &snapshot), expected);
        }
        if epoch % 7 == 4 {
            let mut captured = BTreeMap::new();
            capture(&table, 0..256, &mut captured);
            table.end_snapshot();
            let captured: BTreeMap<u64, u64> = captured.into_iter().map(|(k, v)| (k, v.expect("whole"))).collect();
            assert_eq!(Some(captured), checkpoint.take());
        }
        // SAFETY: nothing holds a row. It does nothing while a checkpoint's snapshot is open.
        unsafe { table.sweep() };
    }
    for (snapshot, expected) in open {
        assert_eq!(read(&table, &snapshot), expected);
    }
    assert!(!table.is_read());
}

#[test]
fn a_reader_that_gives_up_is_forgotten() {
    let table = numbers();
    access(&table, Generation::Even, &(0..70_000).map(|key| (key, Some(key))).collect::<Vec<_>>());
    let snapshot = begin(&table);
    access(&table, Generation::Even, &(0..70_000).map(|key| (key, None)).collect::<Vec<_>>());
    let later = begin(&table);
    assert!(table.is_read() && table.wants_sweep());
    table.end_read(&snapshot);
    // SAFETY: nothing holds a row.
    unsafe { table.sweep() };
    assert_eq!(table.stats().slots, 0);
    access(&table, Generation::Even, &[(70_001, Some(1))]);
    assert_eq!(read(&table, &later), BTreeMap::new());
    assert!(!table.is_read());
}
