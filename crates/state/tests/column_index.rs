//! The rows that a selection chooses, with an index and without, against a look at all of them.

use std::collections::BTreeMap;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::typed::{Expr, Node};
use tidemill_plan::{Column, Condition, Direction, Order, Selection, Table as Definition, Test};
use tidemill_random::Random;
use tidemill_state::{CellValue, ColumnIndex, EXISTS, KeyColumn, Keys, RowAddress, Table};

/// The condition of a search, and its words; none is no value.
type Sought = (bool, [Option<i64>; 2]);

/// A table of an int key and an int that may be null, an index over it, and the values as they are.
struct Subject {
    table: Table,
    indexes: Vec<ColumnIndex>,
    values: BTreeMap<u64, Option<i64>>,
}

impl Subject {
    fn new() -> Subject {
        let value = Column::new("value", ColumnType::optional(Type::Int));
        let table = Table::new(&Definition {
            name: "numbers".into(),
            columns: vec![Column::new("key", ColumnType::required(Type::Int)), value],
            key: vec![0],
            indexes: vec![vec![1]],
            groups: None,
            was: None,
            expire: None,
            is_hidden: false,
            owner: None,
        });
        Subject { table, indexes: vec![ColumnIndex::new(vec![1])], values: BTreeMap::new() }
    }

    /// Touches rows, then sets their values; none deletes the row.
    fn set(&mut self, changes: &[(u64, Option<Option<i64>>)]) {
        let keys: Vec<u64> = changes.iter().map(|(key, _)| *key).collect();
        let mut rows: Vec<RowAddress> = vec![0; keys.len()];
        self.table.resolve(&Keys { columns: &[KeyColumn::Words(&keys)], nulls: None, len: keys.len() }, &mut rows);
        // SAFETY: slots of the table, and none.
        unsafe { self.indexes[0].touch(&[rows.as_slice(), &[0]].concat()) };
        let (header, null) = self.table.layout().null_bit(1);
        assert_eq!(header, 0, "a row of two columns has one word of bits");
        for (&row, &(key, value)) in rows.iter().zip(changes) {
            match value {
                Some(value) => _ = self.values.insert(key, value),
                None => _ = self.values.remove(&key),
            }
            let row = row as *mut u64;
            let bits = match value {
                None => 0,
                Some(None) => EXISTS | null,
                Some(Some(_)) => EXISTS,
            };
            // SAFETY: slots of the table, and the tests have one thread.
            unsafe {
                row.write(bits);
                row.add(2).write(value.flatten().unwrap_or(0) as u64);
            }
        }
    }

    fn find(&mut self, (is_same, words): Sought, order: Option<Order>, indexed: bool) -> Vec<u64> {
        let value = |word: Option<i64>| word.map_or(CellValue::None, CellValue::Word);
        let any = || Expr { ty: ColumnType::optional(Type::Int), node: Node::Const(Value::Null) };
        let (test, values) = match is_same {
            true => (Test::Same(any()), vec![value(words[0])]),
            false => (Test::Between { low: Some(any()), high: Some(any()) }, words.map(value).to_vec()),
        };
        let selection = Selection { conditions: vec![Condition { column: 1, test }], order };
        let indexes = if indexed { &mut self.indexes[..] } else { &mut [] };
        let mut rows = Vec::new();
        // SAFETY: one thread, and an index of this table.
        unsafe { self.table.select(&selection, &values, indexes, &mut rows) };
        // SAFETY: the rows are slots of the table.
        rows.into_iter().map(|row| unsafe { (row as *const u64).add(1).read() }).collect()
    }

    fn expected(&self, (is_same, [first, last]): Sought, order: Option<Order>) -> Vec<u64> {
        let holds = |value: &Option<i64>| match is_same {
            true => *value == first,
            false => value.is_some_and(|v| first.is_none_or(|low| low <= v) && last.is_none_or(|high| v <= high)),
        };
        let mut found: Vec<(u64, Option<i64>)> =
            self.values.iter().filter(|(_, value)| holds(value)).map(|(&key, &value)| (key, value)).collect();
        if let Some(Order { direction, count, .. }) = order {
            let sign = if direction == Direction::Ascending { 1 } else { -1 };
            found.sort_by_key(|(_, value)| (value.is_none(), value.map(|value| sign * value)));
            found.truncate(count as usize);
        }
        found.into_iter().map(|(key, _)| key).collect()
    }
}

#[test]
fn an_index_finds_what_a_look_at_all_rows_finds() {
    let mut found = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut subject = Subject::new();
        let keys = [3, 40, 5_000][random.below(3) as usize];
        let most = [3, 60, 4_000][random.below(3) as usize];
        for _ in 0..40 {
            let word = |random: &mut Random| (random.below(6) > 0).then(|| random.below(9) as i64 - 2);
            let mut change = || (random.below(keys), (random.below(5) > 0).then(|| word(&mut random)));
            let changes: Vec<_> = (0..most / 2).map(|_| change()).collect();
            subject.set(&changes);
            if random.below(10) == 0 {
                // SAFETY: the test keeps no address of a missing row after it, but those in the index, which may.
                unsafe { subject.table.sweep() };
            }
            for _ in 0..random.below(3) {
                let sought = (random.below(2) == 0, [word(&mut random), word(&mut random)]);
                let direction = if random.below(2) == 0 { Direction::Ascending } else { Direction::Descending };
                let order = (random.below(2) == 0).then_some(Order { column: 1, direction, count: 3 });
                let expected = subject.expected(sought, order);
                found += expected.len();
                assert_eq!(subject.find(sought, order, true), expected, "seed {seed}: {sought:?}, {order:?}");
                assert_eq!(subject.find(sought, order, false), expected, "seed {seed}: {sought:?}, {order:?}");
            }
        }
    }
    assert!(found > 10_000, "{found}");
}

/// A search costs what it finds and what was touched, after the first.
#[test]
fn a_search_looks_at_what_it_finds() {
    let mut subject = Subject::new();
    let rows: Vec<_> = (0..5_000).map(|key| (key, Some(Some((key % 1_000) as i64)))).collect();
    subject.set(&rows);
    assert_eq!(subject.find((true, [Some(7), None]), None, true).len(), 5);
    let first = subject.indexes[0].looked_at();
    subject.set(&[(3, Some(Some(7))), (7, None)]);
    assert_eq!(subject.find((true, [Some(7), None]), None, true), [3, 1_007, 2_007, 3_007, 4_007]);
    assert_eq!(subject.indexes[0].looked_at() - first, 2 + 5);
}
