//! Generators: what they make, that it depends on nothing else, and their pace.

use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_connect::SystemClock;
use tidemill_io::{Clock, SourceOptions, Spec};
use tidemill_model::{ColumnType, Schema, Type, Value};

const MONEY: Type = Type::Decimal { digits: 6, scale: 2 };

fn generator(events: &str, seed: u64, columns: &str) -> Spec {
    let text = format!(r#"{{"kind":"generator",{events}"seed":{seed},"columns":[{columns}]}}"#);
    serde_json::from_str(&text).unwrap()
}

const COLUMNS: &str = r#"
    ["id", {"kind":"sequence","start":10,"step":-3}],
    ["at", {"kind":"sequence","start":"2013-01-01T00:00:00Z","step":1000}],
    ["key", {"kind":"zipf","count":100,"theta":0.99,"format":"acct-{}"}],
    ["amount", {"kind":"uniform","low":0.01,"high":"99.99"}],
    ["share", {"kind":"nullable","probability":0.25,"values":{"kind":"uniform","low":-1,"high":1}}],
    ["side", {"kind":"choice","values":["buy","sell",null],"weights":[3,1,0.5]}],
    ["flag", {"kind":"constant","value":true}],
    ["price", {"kind":"choice","values":[1,2.5,"3.25"]}],
    ["text", {"kind":"sequence","start":0,"step":1}]
"#;

fn schema() -> Schema {
    Schema::scalars([
        ("at", ColumnType::required(Type::Time)),
        ("id", ColumnType::required(Type::Int)),
        ("key", ColumnType::required(Type::Str)),
        ("amount", ColumnType::required(MONEY)),
        ("share", ColumnType::optional(Type::Float)),
        ("side", ColumnType::optional(Type::Str)),
        ("flag", ColumnType::required(Type::Bool)),
        ("price", ColumnType::required(MONEY)),
        ("text", ColumnType::required(Type::Str)),
    ])
}

#[test]
fn values_follow_their_specs() {
    let taken = take(&generator("\"events\":4000,", 1, COLUMNS), &schema());
    assert_eq!(taken.rows.len(), 4000);
    let column = |index: usize| taken.rows.iter().map(move |row| &row[index]);
    let start = 1_356_998_400_000_000;
    for (i, row) in taken.rows.iter().enumerate() {
        let i = i as i64;
        assert_eq!(row[..2], [Value::Time(start + 1000 * i), int(10 - 3 * i)]);
        assert!(matches!(row[3], Value::Decimal(1..=9999)));
        assert_eq!((&row[6], &row[8]), (&Value::Bool(true), &text(&i.to_string())));
    }
    let count = |index: usize, value: &Value| column(index).filter(|found| *found == value).count();
    assert!((500..1000).contains(&count(2, &text("acct-0"))), "{}", count(2, &text("acct-0")));
    assert!((900..1100).contains(&count(4, &Value::Null)));
    // Which values are null does not depend on what they would have been.
    for low in [-1.0, -0.75, 0.75] {
        let within = |value: &&Value| matches!(value, Value::Float(f) if (low..low + 0.25).contains(f));
        assert!((300..450).contains(&column(4).filter(within).count()));
    }
    assert!((2500..2850).contains(&count(5, &text("buy"))));
    assert!(count(5, &Value::Null) > 300);
    assert!((1200..1470).contains(&count(7, &Value::Decimal(325))));
}

#[test]
fn the_seed_decides_and_the_batch_size_does_not() {
    let all = |seed, batch_rows| {
        let spec = generator("\"events\":1000,", seed, COLUMNS);
        drain(open_source(&spec, &schema(), &options(batch_rows)).unwrap().as_mut(), &schema()).rows
    };
    assert_eq!(all(5, 1000), all(5, 7));
    assert_ne!(all(5, 1000), all(6, 1000));
}

/// A column's values do not depend on those beside it.
#[test]
fn columns_are_independent() {
    let narrow = Schema { fields: schema().fields.into_iter().filter(|field| field.name == "amount").collect() };
    let amount = r#"["amount", {"kind":"uniform","low":0.01,"high":"99.99"}]"#;
    let alone = take(&generator("\"events\":50,", 9, amount), &narrow).firsts();
    let beside: Vec<Value> =
        take(&generator("\"events\":50,", 9, COLUMNS), &schema()).rows.iter().map(|row| row[3].clone()).collect();
    assert_eq!(alone, beside);
}

#[test]
fn specs_that_cannot_be_met_are_refused() {
    let cases = [
        (r#"["b", {"kind":"constant","value":1}]"#, "generator column 'b': the schema has no such column"),
        ("", "generator column 'a': it is in the schema, but nothing says how to make it"),
        (r#"["a", {"kind":"constant","value":"x"}]"#, "expected an integer, found 'x'"),
        (r#"["a", {"kind":"constant","value":1.5}]"#, "expected an integer, found '1.5'"),
        (r#"["a", {"kind":"constant","value":null}]"#, "int has no None"),
        (r#"["a", {"kind":"uniform","low":2,"high":1}]"#, "there is nothing from 2 to 1"),
        (r#"["a", {"kind":"zipf","count":0,"theta":1}]"#, "a Zipf distribution of 0 values with theta 1 is none"),
        (r#"["a", {"kind":"choice","values":[]}]"#, "a choice needs as many weights as values; it has 0 and 0"),
        (r#"["a", {"kind":"choice","values":[1],"weights":[0]}]"#, "the weights of a choice add up to 0"),
        (r#"["a", {"kind":"sequence","start":0,"step":1,"format":"x{}"}]"#, "a format is for str, not for int"),
        (r#"["a", {"kind":"nullable","probability":0.5,"values":{"kind":"constant","value":1}}]"#, "int has no None"),
        (r#"["a", {"kind":"constant","value":1}],["a", {"kind":"constant","value":1}]"#, "it is given twice"),
    ];
    for (columns, reason) in cases {
        let failure = refusal(&generator("", 0, columns), &ints(&["a"]));
        assert!(failure.schema && failure.message.contains(reason), "{failure}");
    }
    let rate = refusal(&generator("\"rate\":0,", 0, r#"["a", {"kind":"constant","value":1}]"#), &ints(&["a"]));
    assert!(rate.message.contains("rate"));
}

#[test]
fn sequences_do_not_leave_their_types() {
    let cents = Schema::scalars([("a", ColumnType::required(Type::Decimal { digits: 2, scale: 0 }))]);
    let columns = r#"["a", {"kind":"sequence","start":90,"step":3}]"#;
    let taken = take(&generator("", 0, columns), &cents);
    assert_eq!(taken.firsts(), [90, 93, 96, 99].map(Value::Decimal));
    assert!(taken.failure.unwrap().contains("after 4 events"));
    assert!(refusal(&generator("\"events\":5,", 0, columns), &cents).message.contains("after 4 events"));
    assert_eq!(take(&generator("\"events\":4,", 0, columns), &cents).rows.len(), 4);
    let whole = r#"["a", {"kind":"sequence","start":-9223372036854775808,"step":9223372036854775807}]"#;
    let taken = take(&generator("", 0, whole), &ints(&["a"]));
    assert_eq!(taken.firsts(), [i64::MIN, -1, i64::MAX - 1].map(int));
    let wide = r#"["a", {"kind":"uniform","low":-9223372036854775808,"high":9223372036854775807}]"#;
    assert_eq!(take(&generator("\"events\":9,", 0, wide), &ints(&["a"])).rows.len(), 9);
}

/// Goes on by itself by one microsecond whenever it is asked, and by all that is slept.
#[derive(Default)]
struct TestClock {
    micros: AtomicU64,
    slept: AtomicU64,
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros.fetch_add(1, Ordering::Relaxed))
    }

    fn time(&self) -> i64 {
        self.now().as_micros() as i64
    }

    fn sleep(&self, duration: Duration) {
        let micros = duration.as_micros() as u64;
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.slept.fetch_add(micros, Ordering::Relaxed);
    }
}

#[test]
fn events_come_when_they_are_due() {
    let clock = Arc::new(TestClock::default());
    let spec = generator("\"events\":100,\"rate\":50,", 0, r#"["a", {"kind":"sequence","start":0,"step":1}]"#);
    let options = SourceOptions { batch_rows: 10, clock: clock.clone() };
    let mut source = open_source(&spec, &ints(&["a"]), &options).unwrap();
    assert_eq!(source.next(Duration::MAX).unwrap().batch().unwrap().events.num_rows(), 1);
    // Whoever comes late finds all that was due meanwhile, a batch at a time.
    clock.micros.fetch_add(500_000, Ordering::Relaxed);
    assert_eq!(source.next(Duration::MAX).unwrap().batch().unwrap().events.num_rows(), 10);
    let rows = drain(source.as_mut(), &ints(&["a"])).rows;
    assert_eq!(rows.len(), 89);
    assert_eq!(source.progress().done, 100);
    assert_eq!(source.progress().total, Some(100));
    let took = clock.micros.load(Ordering::Relaxed);
    assert!((1_980_000..1_990_000).contains(&took), "{took}");
    assert!(clock.slept.load(Ordering::Relaxed) > 1_400_000);
}

#[test]
fn the_machines_clock_paces_too() {
    let clock = SystemClock::new();
    let before = clock.now();
    clock.sleep(Duration::from_millis(2));
    assert!(clock.now() >= before + Duration::from_millis(2));
}
