//! The meaning of specs, and the errors of those that have none.

use crate::support::*;
use tidemill_connect::standard_connectors;
use tidemill_io::{Connector, KindTaken, Spec, SpecError};

fn spec(text: &str) -> Spec {
    serde_json::from_str(text).unwrap()
}

fn no_source(text: &str) -> String {
    standard_connectors().source(&spec(text)).err().unwrap().to_string()
}

fn no_sink(text: &str) -> String {
    standard_connectors().sink(&spec(text)).err().unwrap().to_string()
}

#[test]
fn an_unknown_kind_is_named_with_those_that_there_are() {
    let said = "there is no connector 'kafka'; there are clock, csv, generator, ipc, jsonl, null, parquet";
    assert_eq!(no_source(r#"{"kind":"kafka"}"#), said);
    assert_eq!(no_sink(r#"{"kind":"kafka"}"#), said);
    assert_eq!(no_source(r#"{"kind":"null"}"#), "null cannot be a source");
    assert_eq!(no_sink(r#"{"kind":"generator","columns":[]}"#), "generator cannot be a sink");
}

#[test]
fn a_wrong_option_is_named() {
    for (options, said) in [
        (r#""paths":["a"],"separator":";""#, "csv, option 'separator': unknown field `separator`, expected one of"),
        (r#""paths":["a"],"delimiter":5"#, "csv, option 'delimiter': invalid type: integer `5`, expected a character"),
        (r#""paths":"a""#, "csv, option 'paths': invalid type: string \"a\", expected a sequence"),
        (r#""paths":["a"],"end":"soon""#, "csv, option 'end': unknown variant `soon`"),
        (r#""null":"-""#, "csv: missing field `paths`"),
    ] {
        let message = no_source(&format!(r#"{{"kind":"csv",{options}}}"#));
        assert!(message.starts_with(said), "{message}");
    }
    let message = no_sink(r#"{"kind":"parquet","path":"a","compression":"zip"}"#);
    assert!(message.starts_with("parquet, option 'compression': unknown variant `zip`"), "{message}");
}

/// The text of a spec in a state does not change, so that states of earlier versions mean the same.
#[test]
fn a_connection_writes_the_spec_that_made_it() {
    let all = standard_connectors();
    for text in [
        r#"{"compression":"gzip","delimiter":";","kind":"csv","null":"-","paths":["a","b"]}"#,
        r#"{"compression":null,"end":"follow","kind":"jsonl","paths":["-"]}"#,
        r#"{"end":"last","kind":"parquet","paths":["a"]}"#,
        r#"{"kind":"ipc","paths":["a"]}"#,
        r#"{"columns":[["a",{"kind":"constant","value":1}]],"events":5,"kind":"generator","rate":null,"seed":7}"#,
    ] {
        let written = all.source(&spec(text)).unwrap().spec();
        assert_eq!(serde_json::to_value(&written).unwrap().to_string(), text);
    }
    for text in [
        r#"{"compression":null,"delimiter":",","kind":"csv","null":"","path":"a"}"#,
        r#"{"compression":"zstd","kind":"jsonl","path":"-"}"#,
        r#"{"compression":"lz4","kind":"parquet","path":"a"}"#,
        r#"{"compression":"none","kind":"ipc","path":"a"}"#,
        r#"{"kind":"null"}"#,
    ] {
        let written = all.sink(&spec(text)).unwrap().spec();
        assert_eq!(serde_json::to_value(&written).unwrap().to_string(), text);
    }
}

#[test]
fn connections_are_shown_to_people() {
    let all = standard_connectors();
    let source = |text| all.source(&spec(text)).unwrap().shown();
    assert_eq!(source(r#"{"kind":"csv","paths":["a.csv","-"]}"#), "csv a.csv, standard input");
    assert_eq!(source(r#"{"kind":"generator","columns":[],"events":5}"#), "generator of 5 events");
    assert_eq!(all.sink(&spec(r#"{"kind":"ipc","path":"-"}"#)).unwrap().shown(), "ipc standard output");
    assert_eq!(all.sink(&spec(r#"{"kind":"null"}"#)).unwrap().shown(), "nowhere");
}

#[test]
fn kinds_of_others_stand_beside_the_standard_ones() {
    let mut all = standard_connectors();
    assert_eq!(all.register(Named("csv")), Err(KindTaken("csv".into())));
    assert_eq!(all.register(Named("own")), Ok(()));
    assert!(all.source(&csv("a.csv")).is_ok());
    assert_eq!(all.source(&spec(r#"{"kind":"own"}"#)).err(), Some(SpecError::NoSource("own".into())));
}

struct Named(&'static str);

impl Connector for Named {
    fn kind(&self) -> &str {
        self.0
    }
}
