//! A table shared between threads, under the model checker: all interleavings up to a bound on preemptions.
//!
//! Atomic words and locks are the checker's. Rows are plain memory; the checker is told of each access to a row's key
//! and to its other cells, and fails if two accesses, one of them a write, are not ordered.
#![cfg(feature = "loom")]

use loom::thread;
use std::sync::Arc;
use tidemill_model::{ColumnType, Type};
use tidemill_plan::{Column, Table as Definition};
use tidemill_state::{
    EXISTS, EvictedError, EvictedRows, Eviction, Found, Generation, Image, KeyColumn, Keys, NOWHERE, PinnedRows,
    ReadSnapshot, RowAddress, Table, Wrongly, hash_of_words, reads_key, reads_row, virtual_node_of, writes_row,
};

/// Bytes of stack. Large, because a table is made on it.
const STACK: usize = 1 << 20;

/// Checks all executions with at most this many preemptions.
fn check(preemptions: usize, body: fn()) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(move || spawn(body).join().expect("no panic"));
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK / 8).spawn(body).expect("a thread of the model")
}

fn numbers() -> Arc<Table> {
    let ty = ColumnType::required(Type::Int);
    let column = |name: &str| Column::new(name, ty);
    let columns = vec![column("key"), column("value")];
    Arc::new(Table::new(&Definition {
        name: "numbers".into(),
        columns,
        key: vec![0],
        indexes: vec![],
        groups: None,
        was: None,
        expire: None,
        is_hidden: false,
        owner: None,
    }))
}

fn resolve(table: &Table, keys: &[u64]) -> Vec<RowAddress> {
    let mut slots = vec![0; keys.len()];
    table.resolve(&Keys { columns: &[KeyColumn::Words(keys)], nulls: None, len: keys.len() }, &mut slots);
    slots
}

/// Reads the key of a row, as each thread that has its address may at any time.
fn key_of(row: RowAddress) -> u64 {
    reads_key(row);
    // SAFETY: a slot of a table of `numbers`.
    unsafe { (row as *const u64).add(1).read() }
}

/// Writes a row as access does.
fn write(row: RowAddress, value: u64) {
    writes_row(row);
    // SAFETY: a slot of a table of `numbers`; the checker fails if another thread uses it.
    unsafe {
        (row as *mut u64).write(EXISTS);
        (row as *mut u64).add(2).write(value);
    }
}

/// Keys of one virtual node, all too large for the array part.
fn keys_of(node: usize) -> impl Iterator<Item = u64> {
    (1 << 40..).filter(move |&key| node_of(key) == node)
}

fn node_of(key: u64) -> usize {
    virtual_node_of(hash_of_words([key].into_iter()))
}

/// Two threads that make the slots of the same keys, in different orders of shards, get the same slots.
#[test]
fn a_key_has_one_slot() {
    check(2, || {
        let table = numbers();
        let key = |node| keys_of(node).next().expect("a key");
        let keys = [key(0), key(200)];
        let other = table.clone();
        let helper = spawn(move || {
            let slots = resolve(&other, &keys);
            (slots.iter().map(|&row| key_of(row)).collect::<Vec<_>>(), slots)
        });
        let slots = resolve(&table, &keys);
        let read: Vec<u64> = slots.iter().map(|&row| key_of(row)).collect();
        let (others_read, others) = helper.join().expect("no panic");
        assert_eq!((&slots, &read[..], &others_read[..]), (&others, &keys[..], &keys[..]));
        assert_eq!(table.stats().slots, 2);
    });
}

/// If a key is found in the array part, without a lock, its key cell is written.
#[test]
fn a_slot_in_the_array_is_published_with_its_key() {
    check(2, || {
        let table = numbers();
        // The array then covers the keys below 8.
        resolve(&table, &[0, 1, 2, 3, 4, 5]);
        let other = table.clone();
        let find = |table: &Table| {
            let row = resolve(table, &[6])[0];
            assert_eq!(key_of(row), 6);
            row
        };
        let helper = spawn(move || find(&other));
        assert_eq!(find(&table), helper.join().expect("no panic"));
    });
}

/// The array grows while another thread looks for a key that moves into it.
#[test]
fn a_key_is_found_while_it_moves_into_the_array() {
    check(2, || {
        let table = numbers();
        let row = resolve(&table, &[1, 6])[1];
        let other = table.clone();
        let helper = spawn(move || resolve(&other, &[2, 3, 4]));
        assert_eq!(resolve(&table, &[6]), [row]);
        let rows = helper.join().expect("no panic");
        assert_eq!(rows.into_iter().map(key_of).collect::<Vec<_>>(), [2, 3, 4]);
    });
}

/// An epoch writes one row and inserts another while a snapshot from before it is taken: each row is copied once, in
/// its earlier version, and no copy is made while the row is written.
#[test]
fn a_snapshot_has_rows_as_they_were() {
    check(2, || {
        let table = numbers();
        let keys: Vec<u64> = keys_of(7).take(2).collect();
        let new = keys_of(7).nth(2).expect("a third key");
        let rows = resolve(&table, &keys);
        rows.iter().for_each(|&row| write(row, 1));
        // SAFETY: slots of this table; nothing runs.
        unsafe {
            table.mark(&rows, Generation::Even);
            table.begin_snapshot(Generation::Even, false);
        }
        let other = table.clone();
        let epoch = spawn(move || {
            let row = resolve(&other, &[new])[0];
            // SAFETY: slots of this table, which this thread alone writes.
            unsafe {
                other.mark(&[rows[0], row], Generation::Odd);
                other.save(&[rows[0], row]);
            }
            write(rows[0], 2);
            write(row, 2);
            rows
        });
        // SAFETY: the epoch saves rows before it writes them.
        let image = unsafe { table.capture(7) };
        let rows = epoch.join().expect("no panic");
        table.end_snapshot();
        let mut copied: Vec<(u64, u64)> = (0..image.len()).map(|row| (image.row(row)[1], image.row(row)[2])).collect();
        copied.sort_unstable();
        assert_eq!(copied, [(keys[0], 1), (keys[1], 1)]);
        reads_row(rows[0]);
        // The next snapshot has the epoch's writes.
        // SAFETY: nothing runs.
        let image = unsafe {
            table.begin_snapshot(Generation::Odd, false);
            table.capture(7)
        };
        assert_eq!((0..image.len()).map(|row| image.row(row)[2]).collect::<Vec<_>>(), [2, 2]);
    });
}

/// An epoch writes one row and inserts another while two readers that began before it copy the table, on two threads:
/// each has the rows of before, and no row is copied while it is written.
#[test]
fn readers_have_rows_as_they_were() {
    check(2, || {
        let table = numbers();
        let keys: Vec<u64> = keys_of(7).take(2).collect();
        let new = keys_of(7).nth(2).expect("a third key");
        let rows = resolve(&table, &keys);
        rows.iter().for_each(|&row| write(row, 1));
        // SAFETY: nothing runs, and the epoch saves rows before it writes them.
        let snapshots = [(); 2].map(|()| unsafe { table.begin_read() });
        let other = table.clone();
        let epoch = spawn(move || {
            let row = resolve(&other, &[new])[0];
            // SAFETY: slots of this table, which this thread alone writes.
            unsafe { other.save(&[rows[0], row]) };
            write(rows[0], 2);
            write(row, 2);
        });
        let read = |table: &Table, snapshot: &Arc<ReadSnapshot>| {
            let mut image = Image::new(table.shape());
            table.read_nodes(snapshot, 7..8, &mut |rows| image.append(rows)).expect("no row is evicted");
            table.end_read(snapshot);
            let mut copied: Vec<_> = (0..image.len()).map(|row| (image.row(row)[1], image.row(row)[2])).collect();
            copied.sort_unstable();
            copied
        };
        let [first, second] = snapshots;
        let other = table.clone();
        let reader = spawn(move || read(&other, &first));
        let expected = [(keys[0], 1), (keys[1], 1)];
        assert_eq!(read(&table, &second), expected);
        assert_eq!(reader.join().expect("no panic"), expected);
        epoch.join().expect("no panic");
        assert!(!table.is_read());
    });
}

/// All marks of rows that share a word are kept.
#[test]
fn marks_in_one_word_are_kept() {
    check(3, || {
        let table = numbers();
        let keys: Vec<u64> = keys_of(7).take(3).collect();
        let rows = resolve(&table, &keys);
        let mark = |row: RowAddress| {
            let table = table.clone();
            // SAFETY: a slot of this table.
            spawn(move || unsafe { table.mark(&[row], Generation::Even) })
        };
        let helpers = [mark(rows[0]), mark(rows[1])];
        // SAFETY: as above.
        unsafe { table.mark(&[rows[2]], Generation::Even) };
        helpers.into_iter().for_each(|helper| helper.join().expect("no panic"));
        // SAFETY: nothing runs.
        let image = unsafe {
            table.begin_snapshot(Generation::Even, false);
            table.capture(7)
        };
        assert_eq!(image.len(), 3);
    });
}

/// A medium without rows.
struct Nowhere;

impl EvictedRows for Nowhere {
    fn get(&self, keys: &Image) -> Found {
        Found { rows: Image::new(keys.shape()), places: vec![NOWHERE; keys.len()] }
    }

    fn pin(&self) -> Arc<dyn PinnedRows> {
        Arc::new(Nowhere)
    }
}

impl PinnedRows for Nowhere {
    fn each(&self, _each: &mut dyn FnMut(Image)) -> Result<(), EvictedError> {
        Ok(())
    }

    fn get(&self, keys: &Image) -> Result<Found, EvictedError> {
        Ok(EvictedRows::get(self, keys))
    }
}

/// Rows that two threads looked up at once are not evicted first.
#[test]
fn rows_that_were_used_are_not_evicted_first() {
    check(3, || {
        let table = numbers();
        // SAFETY: nothing runs.
        unsafe { table.evict_all(Arc::new(Nowhere)) };
        let keys: Vec<u64> = keys_of(7).take(3).collect();
        let rows = resolve(&table, &keys);
        rows.iter().for_each(|&row| write(row, 1));
        let (other, key) = (table.clone(), keys[0]);
        let helper = spawn(move || resolve(&other, &[key]));
        resolve(&table, &[keys[1]]);
        assert_eq!(helper.join().expect("no panic")[0], rows[0]);
        let eviction = Eviction { share: 0.3, keeps_all: true, wrongly: Wrongly::Nothing };
        let mut gone = Vec::new();
        // SAFETY: nothing runs.
        unsafe { table.choose(7..8, eviction, &mut |rows| gone.extend((0..rows.len()).map(|row| rows.row(row)[1]))) };
        assert_eq!(gone, [keys[2]]);
    });
}
