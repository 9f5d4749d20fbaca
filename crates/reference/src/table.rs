//! A table: the rows that exist, by key.

use crate::Record;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use tidemill_model::Value;
use tidemill_plan as plan;

/// The values of the key columns, none of them null.
#[derive(Clone, Debug)]
pub struct Key(pub Vec<Value>);

/// The rows of a table that exist, whole, in column order.
#[derive(Clone)]
pub struct Table {
    key: Vec<usize>,
    rows: BTreeMap<Key, Record>,
}

impl Table {
    pub fn new(table: &plan::Table) -> Self {
        Table { key: table.key.clone(), rows: BTreeMap::new() }
    }

    /// Puts a row under its own key, in place of what was there.
    pub fn put(&mut self, row: Record) {
        let key = Key(self.key.iter().map(|&c| row[c].clone()).collect());
        self.rows.insert(key, row);
    }

    pub fn get(&self, key: &Key) -> Option<&Record> {
        self.rows.get(key)
    }

    pub fn remove(&mut self, key: &Key) {
        self.rows.remove(key);
    }

    /// Returns the keys of all rows, in order.
    pub fn keys(&self) -> Vec<Key> {
        self.rows.keys().cloned().collect()
    }

    pub fn rows(&self) -> Vec<Record> {
        self.rows.values().cloned().collect()
    }
}

/// Returns a row under `key` with defaults in all other columns.
pub fn default_row(table: &plan::Table, key: &Key) -> Record {
    let mut row: Record = table.columns.iter().map(|column| column.default.clone().unwrap_or(Value::Null)).collect();
    for (&column, value) in table.key.iter().zip(&key.0) {
        row[column] = value.clone();
    }
    row
}

/// Compares two key values of one type: false < true, words by number, text and bytes by bytes.
fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Str(l), Value::Str(r)) => l.as_bytes().cmp(r.as_bytes()),
        (Value::Bytes(l), Value::Bytes(r)) => l.cmp(r),
        (l, r) => match (l.word(), r.word()) {
            (Some(l), Some(r)) => l.cmp(&r),
            _ => panic!("{left} and {right} do not belong into one key column"),
        },
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        assert_eq!(self.0.len(), other.0.len(), "keys of one table have the same columns");
        let columns = self.0.iter().zip(&other.0);
        columns.map(|(l, r)| compare(l, r)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}
