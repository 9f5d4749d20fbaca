//! Transactions: their rows, and their results.

use super::declared::{Does, Event, Feed, MODULUS, Run};
use super::law::{Law, Row, at};
use tidemill_model::Value;
use tidemill_plan::Aggregate;

impl Law<'_> {
    /// Runs a transaction on its row. Gives what it emits and what it returns; none if it aborts, which changes nothing.
    pub(super) fn transact(&mut self, number: usize, event: &Event) -> Option<Vec<(Feed, Event)>> {
        let node = &self.declared.nodes[number];
        let given = Feed::Given(number);
        match node.does {
            Does::Run(run) => {
                let times = run.passes_time && node.inputs.iter().all(|&input| self.declared.has_time(input));
                self.run_on_row(number, run, event, times)
            }
            Does::Wakened { table, again, passes_time } => {
                let key = event.key.expect("a row has a key");
                let now = self.now;
                let row = self.mix(table, key, &[17]);
                if let (Some(after), 0) = (again, row.acc % 3) {
                    row.wake = Some((now + after).max(now + 1));
                }
                let made = Event::made(event.key, Some(row.acc % 11 - 5), row.acc);
                Some(vec![(given, if passes_time { at(made, now) } else { made })])
            }
            Does::Ticked { table } => Some(vec![(given, numbered(self.mix(table, 1, &[1]).acc))]),
            Does::Batched { table } => {
                let numbers: Vec<i64> = event.more.iter().filter_map(Value::word).collect();
                let acc = self.mix(table, 0, &numbers).acc;
                // The number of the batch goes along.
                let more = vec![Value::Int(event.number)];
                Some(vec![(given, Event { more, ..numbered(acc) })])
            }
            _ => unreachable!("it is an operator"),
        }
    }

    /// Mixes numbers into a row.
    fn mix(&mut self, table: usize, key: i64, numbers: &[i64]) -> &mut Row {
        let row = self.tables[table].entry(key).or_default();
        row.acc = numbers.iter().fold(row.acc, |acc, number| mixed(acc, *number));
        row
    }

    fn run_on_row(&mut self, number: usize, run: Run, event: &Event, times: bool) -> Option<Vec<(Feed, Event)>> {
        if run.needs_key && event.key.is_none() {
            return None;
        }
        let key = event.key.unwrap_or(0);
        let mut row = self.tables[run.table].get(&key).cloned().unwrap_or_default();
        row.acc = mixed(row.acc, event.number);
        let mut n = row.acc;
        if let Some((aggregate, slices)) = run.reads {
            let read = self.read(&mut row, run.table, event.value, (aggregate, slices));
            n = (n + read * 7).rem_euclid(MODULUS);
            self.count("windowed column");
        }
        if run.aborts && row.acc % 5 == 0 {
            return None;
        }
        if let Some(after) = run.wakes {
            let asked = event.at.expect("it has a time") + after;
            match row.acc % 3 {
                0 => row.wake = Some(asked.max(self.now + 1)),
                1 => row.wake = None,
                _ => {}
            }
        }
        let made = |key, value, number| Event { at: event.at.filter(|_| times), ..Event::made(key, value, number) };
        let mut given = Vec::new();
        if run.emits && row.acc % 2 == 0 {
            given.push((Feed::Emitted(number), made(event.key, event.value, row.acc)));
            given.push((Feed::Emitted(number), made(event.value, event.key, row.acc + 1)));
        }
        given.push((Feed::Given(number), made(event.key, event.value, n)));
        if run.deletes && row.acc % 7 == 0 {
            self.count("row that is deleted");
            self.tables[run.table].remove(&key);
        } else {
            self.tables[run.table].insert(key, row);
        }
        Some(given)
    }

    /// Adds a value to a windowed column, and reads the column.
    fn read(&self, row: &mut Row, table: usize, value: Option<i64>, (aggregate, slices): (Aggregate, i64)) -> i64 {
        let column = self.declared.tables[table].column.expect("it is added to");
        let slice = self.now.div_euclid(column.slide);
        row.added.extend(value.map(|value| (slice, value)));
        let inside = |(of, _): &&(i64, i64)| slice - slices < *of && *of <= slice;
        let mut values: Vec<i64> = row.added.iter().filter(inside).map(|(_, value)| *value).collect();
        match aggregate {
            Aggregate::Count => values.len() as i64,
            Aggregate::Sum => values.iter().sum(),
            Aggregate::Min => values.iter().min().copied().unwrap_or(0),
            Aggregate::Max => values.iter().max().copied().unwrap_or(0),
            Aggregate::Distinct => {
                values.sort_unstable();
                values.dedup();
                values.len() as i64
            }
            other => unreachable!("{other:?} is not read"),
        }
    }
}

fn mixed(acc: i64, number: i64) -> i64 {
    (acc * 31 + number).rem_euclid(MODULUS)
}

/// Returns the record that is given for a number alone.
fn numbered(acc: i64) -> Event {
    Event::made(Some(acc % 4), Some(acc % 11 - 5), acc)
}

/// Returns the rows of a table, but for windowed columns.
pub fn rows(law: &Law<'_>, table: usize) -> Vec<Vec<Value>> {
    law.tables[table].iter().map(|(&key, row)| vec![Value::Int(key), Value::Int(row.acc)]).collect()
}
