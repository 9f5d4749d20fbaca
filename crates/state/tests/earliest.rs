//! The rows with the least value of a column, against a look at all of them.

use std::collections::BTreeMap;
use tidemill_model::{ColumnType, Type};
use tidemill_plan::{Column, Table as Definition};
use tidemill_random::Random;
use tidemill_state::{EXISTS, Earliest, KeyColumn, Keys, RowAddress, Table};

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

/// A table, the index over its values, and the values as they are.
struct Subject {
    table: Table,
    earliest: Earliest,
    values: BTreeMap<u64, i64>,
}

impl Subject {
    fn new() -> Subject {
        let table = numbers();
        let earliest = Earliest::new(&table, 1);
        Subject { table, earliest, values: BTreeMap::new() }
    }

    /// Sets values; none deletes the row.
    fn set(&mut self, changes: &[(u64, Option<i64>)]) {
        let keys: Vec<u64> = changes.iter().map(|(key, _)| *key).collect();
        let mut rows: Vec<RowAddress> = vec![0; keys.len()];
        self.table.resolve(&Keys { columns: &[KeyColumn::Words(&keys)], nulls: None, len: keys.len() }, &mut rows);
        for (&row, &(key, value)) in rows.iter().zip(changes) {
            match value {
                Some(value) => _ = self.values.insert(key, value),
                None => _ = self.values.remove(&key),
            }
            let row = row as *mut u64;
            // SAFETY: slots of the table, and the tests have one thread.
            unsafe {
                row.write(if value.is_some() { EXISTS } else { 0 });
                row.add(2).write(value.unwrap_or(0) as u64);
            }
        }
        rows.push(0);
        // SAFETY: slots of the table, and none.
        unsafe { self.earliest.touch(&rows) };
    }

    fn sweep(&self) {
        // SAFETY: the tests keep no address of a missing row after it, but those in the index, which may.
        unsafe { self.table.sweep() }
    }

    fn least(&self) -> Option<i64> {
        self.values.values().copied().min()
    }

    /// Takes the rows with a value and returns their keys; checks what is said of the others.
    fn take(&mut self, at: Option<i64>) -> Vec<u64> {
        let found = self.earliest.take(&self.table, at).expect("all in memory");
        let mut keys: Vec<u64> = (0..found.rows.len()).map(|row| found.rows.row(row)[1]).collect();
        keys.sort_unstable();
        let have = |(key, value): (&u64, &i64)| (at == Some(*value)).then_some(*key);
        assert_eq!(keys, self.values.iter().filter_map(have).collect::<Vec<_>>(), "at {at:?}");
        assert_eq!(found.next, self.values.values().copied().filter(|&value| at != Some(value)).min(), "after {at:?}");
        keys
    }
}

#[test]
fn it_finds_what_a_look_at_all_rows_finds() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut subject = Subject::new();
        let keys = [3, 40, 5_000][random.below(3) as usize];
        let most = [3, 60, 4_000][random.below(3) as usize];
        let mut now = 0;
        for _ in 0..60 {
            let changes: Vec<_> = (0..random.below(most))
                .map(|_| (random.below(keys), (random.below(5) > 0).then(|| now + 1 + random.below(30) as i64)))
                .collect();
            subject.set(&changes);
            if random.below(10) == 0 {
                subject.sweep();
            }
            if random.below(5) == 0 {
                subject.take(None);
            }
            while let Some(at) = subject.least().filter(|&least| least <= now + 4) {
                let due = subject.take(Some(at));
                // Some of what is taken comes again.
                let mut again = |&key: &u64| (key, (random.below(3) == 0).then(|| at + 1 + random.below(9) as i64));
                let again: Vec<_> = due.iter().map(&mut again).collect();
                subject.set(&again);
            }
            // A look for what is not there.
            now += 4;
            subject.take(Some(now));
        }
    }
}

/// Returns the cost of each of a thousand looks that take one row and put another in.
fn cost(rows: u64) -> u64 {
    let mut subject = Subject::new();
    subject.set(&Vec::from_iter((0..rows).map(|key| (key, Some(1 + key as i64)))));
    subject.take(None);
    let before = subject.earliest.looked_at();
    for at in 1..=1_000 {
        let due = subject.take(Some(at));
        assert_eq!(due.len(), 1);
        subject.set(&[(due[0], None), (rows + at as u64, Some(rows as i64 + at))]);
    }
    subject.earliest.looked_at() - before
}

#[test]
fn a_look_does_not_cost_more_where_there_are_more_rows() {
    let (few, many) = (cost(2_000), cost(100_000));
    assert!(few <= 6_000, "{few} entries and rows were looked at for 1,000");
    assert!(many <= few, "{many} were looked at among many rows, {few} among few");
}

/// The heap is made anew when most of its entries are old: here each look finds all values changed.
#[test]
fn old_entries_do_not_pile_up() {
    let mut subject = Subject::new();
    let all = |value: i64| Vec::from_iter((0..100).map(|key| (key, Some(value + key as i64))));
    subject.set(&all(1_000_000));
    subject.take(None);
    let before = subject.earliest.looked_at();
    for look in 1..1_000 {
        subject.set(&all(1_000_000 + 100 * look));
        subject.take(Some(look));
    }
    // Each touch is looked at once, each old entry at most once, and of 20 looks one is at all rows.
    assert!(subject.earliest.looked_at() - before <= 250 * 1_000, "{}", subject.earliest.looked_at());
}

#[test]
fn a_row_whose_value_is_null_is_not_found() {
    let mut subject = Subject::new();
    // With a look at all slots, and with a heap.
    for round in 0..2 {
        subject.set(&[(1, Some(5)), (2, Some(7)), (3, Some(9))]);
        let key = [1];
        let mut row: [RowAddress; 1] = [0];
        subject.table.resolve(&Keys { columns: &[KeyColumn::Words(&key)], nulls: None, len: 1 }, &mut row);
        // SAFETY: a slot of the table; the test has one thread.
        unsafe {
            let (offset, bit) = subject.table.layout().null_bit(1);
            let word = (row[0] as *mut u64).add(offset / 8);
            word.write(word.read() | bit);
            subject.earliest.touch(&row);
        }
        subject.values.remove(&1);
        assert_eq!(subject.least(), Some(7));
        assert!(subject.take(Some(5)).is_empty(), "round {round}");
        assert_eq!(subject.take(Some(7)), [2], "round {round}");
        subject.set(&[(2, None)]);
        subject.take(None);
    }
}
