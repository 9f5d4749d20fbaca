//! Random rows and events for a program.

use crate::random::Random;
use tidemill_model::{ColumnType, FieldType, ListItem, Type, Value};
use tidemill_plan::{Column, Origin, Program, Stream, Table, TableId};

/// Rows that are there before the first event.
pub type Preload = Vec<(TableId, Vec<Vec<Value>>)>;

/// The records of each source, in offset order.
pub type Records = Vec<Vec<Vec<Value>>>;

/// Most rows that a table starts with.
const ROWS_MAX: usize = 300;

/// The number of different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A few keys, each of them hot.
    Few,
    /// A number so large that rows are rarely met again.
    Many,
}

/// The order of the times of a source's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Never backwards; often the same again.
    Sorted,
    /// Backwards by no more than the lateness.
    Tolerated,
    /// Backwards by more than that too.
    Wild,
}

/// The properties of random data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataShape {
    /// Most events of a source; one in eight sources is empty.
    pub events_max: usize,
    /// The number of different keys.
    pub keys: Keys,
    /// The share of values at the ends of their type, in percent: extreme numbers, long and strange texts.
    pub extremes: usize,
    /// The share of nulls where they may be, in percent.
    pub nulls: usize,
    /// The order of times.
    pub order: Order,
}

impl DataShape {
    /// Returns a shape that is a function of the seed.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5a5a);
        DataShape {
            events_max: *random.pick(&[3, 20, 60, 200]),
            keys: *random.pick(&[Keys::Few, Keys::Few, Keys::Many]),
            extremes: *random.pick(&[0, 1, 3, 10]),
            nulls: *random.pick(&[0, 5, 15, 50]),
            order: *random.pick(&[Order::Sorted, Order::Tolerated, Order::Wild]),
        }
    }
}

/// Returns the rows to start with and records for each source, as a function of program, seed and shape.
pub fn random_data(program: &Program, seed: u64, shape: DataShape) -> (Preload, Records) {
    let is_timer = |s: &Stream| matches!(&s.origin, Origin::Due(due) if due.begins_instant() || due.is_rows());
    let has_timers = program.streams.iter().any(is_timer);
    let of_rows = |s: &Stream| matches!(&s.origin, Origin::Due(due) if due.is_rows());
    let has_rows = program.streams.iter().any(of_rows);
    let mut values = Values { random: Random::new(seed ^ 0xda7a), shape, has_timers, has_rows };
    let tables = program.tables.iter_enumerated();
    let preload = tables.map(|(id, table)| (id, values.rows(table))).collect();
    let sources = program.streams.iter().filter(|s| matches!(s.origin, Origin::Source { .. }));
    let records = sources.map(|source| values.records(source)).collect();
    (preload, records)
}

struct Values {
    random: Random,
    shape: DataShape,
    /// Ten thousand ticks come before an event that is far ahead, and any number of wakes.
    has_timers: bool,
    /// Each row of a table has a result in each window.
    has_rows: bool,
}

const PLAIN: [&str; 10] = ["a", "b", "A", "", "ab", "7", "42", " a", "B", "c"];

const STRANGE: [&str; 9] =
    ["ß", "İstanbul", "Ὀδυσσεύς", "日本", "e\u{301}", "\u{a0}x\u{2003}", "🦀", "-9223372036854775808", "nan"];

impl Values {
    /// Returns most of the rows that keys like those of the events would find.
    fn rows(&mut self, table: &Table) -> Vec<Vec<Value>> {
        let mut rows: Vec<Vec<Value>> = Vec::new();
        let wanted = match self.shape.keys {
            _ if table.is_hidden => 0,
            _ if self.random.chance(8) => 0,
            _ if self.random.chance(10) => 5,
            _ if self.has_rows => 12,
            Keys::Few => ROWS_MAX,
            Keys::Many => ROWS_MAX,
        };
        for _ in 0..wanted {
            let cell = |c: &Column| match c.window {
                Some(_) => Value::Bytes(Vec::new()),
                // Nothing has written the rows that there are at first.
                None if table.expire.is_some() && c.name == "gone_at" => Value::Null,
                None => self.value(c.ty),
            };
            let row: Vec<Value> = table.columns.iter().map(cell).collect();
            let known = |other: &Vec<Value>| table.key.iter().all(|&k| other[k] == row[k]);
            if !rows.iter().any(known) {
                rows.push(row);
            }
        }
        rows
    }

    fn records(&mut self, source: &Stream) -> Vec<Vec<Value>> {
        let Origin::Source { lateness, .. } = source.origin else { unreachable!("chosen as a source") };
        let count = if self.random.chance(12) { 0 } else { self.random.between(1, self.shape.events_max) };
        let mut now = *self.random.pick(&[0, 1_000, 1_700_000_000_000_000]);
        if self.has_timers {
            now = now.min(if self.has_rows { 40 } else { 1_000 });
        }
        let mut records = Vec::new();
        for _ in 0..count {
            let mut record: Vec<Value> = source.schema.fields.iter().map(|f| self.field(&f.ty)).collect();
            if let Some(field) = source.event_time {
                now += *self.random.pick(&[0, 0, 1, 2, 7]);
                let ty = source.schema.fields[field].scalar_type().expect("event time is a scalar").ty;
                record[field] = Value::from_word(ty, self.time(now, lateness));
            }
            records.push(record);
        }
        records
    }

    fn time(&mut self, now: i64, lateness: i64) -> i64 {
        let back = match self.shape.order {
            Order::Sorted => 0,
            Order::Tolerated => self.random.int(0, lateness.max(0)),
            Order::Wild if self.random.chance(70) => self.random.int(0, lateness.max(0)),
            // Very rarely so far ahead that all that comes later is late.
            Order::Wild if !self.has_timers && self.random.chance(1) => return i64::MAX,
            Order::Wild if !self.has_timers && self.random.chance(3) => return i64::MIN,
            Order::Wild => self.random.int(0, 3 * lateness.max(0) + 5),
        };
        now - back
    }

    fn field(&mut self, ty: &FieldType) -> Value {
        match ty {
            FieldType::Scalar(ty) => self.value(*ty),
            FieldType::List(item) => {
                let most = match self.random.below(100) {
                    0 => 40,
                    1..6 => 12,
                    _ => 4,
                };
                let count = self.random.between(0, most);
                Value::List((0..count).map(|_| self.element(item)).collect())
            }
        }
    }

    fn element(&mut self, item: &ListItem) -> Vec<Value> {
        item.columns().into_iter().map(|(_, ty)| self.value(ty)).collect()
    }

    fn value(&mut self, ty: ColumnType) -> Value {
        if ty.nullable && self.random.chance(self.shape.nulls) {
            return Value::Null;
        }
        if self.random.chance(self.shape.extremes) {
            return self.extreme(ty.ty);
        }
        let few = self.shape.keys == Keys::Few;
        match ty.ty {
            Type::Bool => Value::Bool(self.random.chance(50)),
            Type::Int => Value::Int(if few { self.random.int(0, 4) } else { self.random.int(-10, 60) }),
            Type::Float => Value::Float(float(self.random.bits() as usize)),
            Type::Decimal { .. } => Value::Decimal(self.random.int(0, if few { 3 } else { 60 })),
            Type::Time => Value::Time(self.random.int(0, if few { 3 } else { 60 })),
            Type::Str => Value::Str(self.text(few)),
            Type::Bytes => Value::Bytes(self.text(few).into_bytes()),
            Type::Duration | Type::Null => unreachable!("no column type"),
        }
    }

    fn text(&mut self, few: bool) -> String {
        let text = *self.random.pick(if few { &PLAIN[..4] } else { &PLAIN[..] });
        if few { text.to_owned() } else { format!("{text}{}", self.random.below(6)) }
    }

    /// Returns a value at the end of its type, or a strange one.
    fn extreme(&mut self, ty: Type) -> Value {
        let random = &mut self.random;
        let word = *random.pick(&[i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1, 1 << 53, -1, 1 << 32]);
        match ty {
            Type::Bool => Value::Bool(true),
            Type::Int => Value::Int(word),
            Type::Time => Value::Time(word),
            Type::Decimal { digits, .. } => {
                let most = 10i64.pow(digits.into()) - 1;
                Value::Decimal(*random.pick(&[most, -most, -1, most / 2]))
            }
            Type::Float => Value::Float(*random.pick(&[
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                -0.0,
                f64::MAX,
                5e-324,
                9.223372036854776e18,
                -9.223372036854776e18,
                0.49999999999999994,
            ])),
            Type::Str => Value::Str(strange_text(random)),
            Type::Bytes => Value::Bytes(match random.below(3) {
                0 => vec![0xff; random.between(1, 3)],
                1 => vec![0; random.between(100, 300)],
                _ => strange_text(random).into_bytes(),
            }),
            Type::Duration | Type::Null => unreachable!("no column type"),
        }
    }
}

/// Returns a number by random bits; one of five is such that its sums depend on where they are rounded.
fn float(bits: usize) -> f64 {
    const NEAR: [f64; 8] = [0.0, 0.1, 0.7, 1.0, -2.5, 1.5, -3.9, 1e6];
    const WIDE: [f64; 10] = [1e16, -1e16, 1e300, -1e300, 1e308, -1e308, 1e-12, -1e-12, 5e-324, -0.0];
    match bits / NEAR.len() % 5 {
        0 => WIDE[bits / (5 * NEAR.len()) % WIDE.len()],
        _ => NEAR[bits % NEAR.len()],
    }
}

fn strange_text(random: &mut Random) -> String {
    match random.below(4) {
        0 => PLAIN[random.below(2)].repeat(random.between(101, 300)),
        1 => STRANGE.concat().repeat(2),
        _ => random.pick(&STRANGE).to_string(),
    }
}
