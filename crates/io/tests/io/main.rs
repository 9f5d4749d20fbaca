//! The contract of connectors, held by one that has nothing but this crate and the values of events.

mod integers;

use arrow_array::Int64Array;
use integers::{Between, Integers};
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{
    Clock, Connector, InputEnd, IoFailure, KindTaken, Registry, Resumed, Source, SourceConnection, SourceOptions, Spec,
    SpecError, Unit,
};
use tidemill_model::{Schema, Type};

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn time(&self) -> i64 {
        0
    }

    fn sleep(&self, _: Duration) {}
}

/// A connector with neither sources nor sinks.
struct Idle;

impl Connector for Idle {
    fn kind(&self) -> &str {
        "idle"
    }
}

fn connectors() -> Registry {
    let mut connectors = Registry::new();
    connectors.register(Integers).unwrap();
    connectors.register(Idle).unwrap();
    connectors
}

fn spec(text: &str) -> Spec {
    serde_json::from_str(text).unwrap()
}

fn no_source(text: &str) -> String {
    connectors().source(&spec(text)).err().unwrap().to_string()
}

fn numbers(fields: &[&str]) -> Schema {
    Schema::scalars(fields.iter().map(|name| (*name, Type::Int.into())))
}

/// Opens the integers from 7 to below 14, three in a batch.
fn open(schema: &Schema) -> Result<Box<dyn Source>, IoFailure> {
    let options = SourceOptions { batch_rows: 3, ..SourceOptions::new(Arc::new(Still)) };
    connectors().source(&spec(r#"{"kind":"integers","from":7,"to":14}"#)).unwrap().open(schema, &options)
}

fn next(source: &mut dyn Source) -> Option<Vec<i64>> {
    let batch = source.next(Duration::ZERO).unwrap().batch()?;
    let column = batch.events.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
    Some(column.values().to_vec())
}

#[test]
fn a_source_is_made_of_a_spec_and_goes_on_from_a_token() {
    let mut source = open(&numbers(&["number"])).unwrap();
    assert_eq!(next(&mut *source), Some(vec![7, 8, 9]));
    let token = source.token().unwrap();
    let rest = [Some(vec![10, 11, 12]), Some(vec![13]), None, None];
    assert_eq!([(); 4].map(|()| next(&mut *source)), rest);
    let mut again = open(&numbers(&["number"])).unwrap();
    assert_eq!(again.resume(Some(&token)).unwrap(), Resumed::Behind);
    assert_eq!([(); 4].map(|()| next(&mut *again)), rest);
    let failure = open(&numbers(&["a", "b"])).err().unwrap();
    assert!(failure.schema && failure.message.starts_with("integers have one column"), "{failure}");
}

#[test]
fn a_connection_says_what_is_known_before_it_opens() {
    let between = Between { from: 7, to: 14, dies_at: None };
    assert_eq!(connectors().source(&between.spec()).unwrap().spec(), between.spec());
    assert!(between.is_recorded() && between.paths().is_empty());
    assert_eq!(
        (between.end(), between.unit(), between.shown()),
        (InputEnd::Pause, Unit::Events, "integers".to_owned())
    );
}

#[test]
fn a_spec_without_a_meaning_says_why() {
    assert_eq!(no_source(r#"{"kind":"kafka"}"#), "there is no connector 'kafka'; there are idle, integers");
    assert_eq!(no_source(r#"{"kind":"idle"}"#), "idle cannot be a source");
    let none = connectors().sink(&spec(r#"{"kind":"integers","from":7,"to":14}"#)).err();
    assert_eq!(none, Some(SpecError::NoSink("integers".into())));
    let said = "integers, option 'to': invalid type: string \"b\", expected i64";
    assert_eq!(no_source(r#"{"kind":"integers","from":7,"to":"b"}"#), said);
    assert_eq!(no_source(r#"{"kind":"integers","from":7}"#), "integers: missing field `to`");
}

#[test]
fn a_kind_is_registered_once() {
    let mut all = connectors();
    assert_eq!(all.register(Idle), Err(KindTaken("idle".into())));
    assert_eq!(all.register(Integers).unwrap_err().to_string(), "there is a connector 'integers' already");
    assert_eq!(all.kinds().collect::<Vec<_>>(), ["idle", "integers"]);
}
