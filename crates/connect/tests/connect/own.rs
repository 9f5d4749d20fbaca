//! A connector as others write one: integers that can be read again from any of them. A durable run over it is killed
//! and goes on.

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, abort};
use std::sync::Arc;
use std::time::Duration;
use tidemill_connect::{
    Connector, Registry, SinkConnection, SinkDurability, SourceConnection, SourceOptions, Spec, SpecError, System,
    WriteJsonl, open_state,
};
use tidemill_durability::Recorded;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::{Schema, Type};
use tidemill_plan::build::{PlanBuilder, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{
    Durability, DurabilityOptions, Engine, EpochSize, IoFailure, Next, Options, Request, Resumed, Source, SourceBatch,
};

/// Makes sources of integers.
struct Integers;

impl Connector for Integers {
    fn kind(&self) -> &str {
        "integers"
    }

    fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        Ok(Box::new(spec.read::<Between>()?))
    }
}

/// The integers from `from` to below `to`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Between {
    from: i64,
    to: i64,
    /// The process dies when it is asked for this one: a test of crashes.
    #[serde(default)]
    dies_at: Option<i64>,
}

impl SourceConnection for Between {
    fn spec(&self) -> Spec {
        Spec::of("integers", self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        if schema.fields.len() != 1 {
            return Err(IoFailure::schema(format!("integers have one column, and the schema is {schema}")));
        }
        let rows_max = (options.batch_rows as i64).min(100);
        Ok(Box::new(Reading { between: self.clone(), next: self.from, rows_max, schema: schema.clone() }))
    }
}

/// Integers that are being read.
struct Reading {
    between: Between,
    next: i64,
    rows_max: i64,
    schema: Schema,
}

impl Source for Reading {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let end = (self.next + self.rows_max).min(self.between.to);
        if end == self.next {
            return Ok(Next::End);
        }
        if self.between.dies_at.is_some_and(|at| at < end) {
            abort();
        }
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(self.next..end));
        self.next = end;
        let events = RecordBatch::try_new(arrow_schema(&self.schema), vec![column]).expect("one column of integers");
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }

    fn token(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    fn replays(&self) -> bool {
        true
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        let token = token.expect("a source is given its own tokens");
        self.next = token.parse().map_err(|error| IoFailure::new(format!("'{token}' is no integer: {error}")))?;
        Ok(Resumed::Behind)
    }
}

fn plan() -> Plan {
    PlanBuilder::new("integers")
        .source("numbers", |s| s.field("number", Type::Int))
        .sink("out", named("numbers"))
        .build()
}

/// Runs over integers, with a state and an output in a folder.
fn run(folder: &Path, spec: &Spec) {
    let mut connectors = Registry::standard();
    connectors.register(Integers).unwrap();
    let connection = connectors.source(spec).unwrap();
    let program = analyze(&plan()).unwrap();
    let json = serde_json::to_value(connection.spec()).unwrap();
    let recorded =
        Recorded { plan: plan(), sources: BTreeMap::from([("numbers".into(), json)]), sinks: BTreeMap::new() };
    let directory = open_state(&folder.join("state"), &program, Some(recorded)).unwrap();
    let storage = directory.storage().clone();
    let durable = SinkDurability::of(&directory, storage);
    let schema = program.streams.raw[0].schema.clone();
    let file = WriteJsonl { path: folder.join("out.jsonl").to_str().unwrap().into(), compression: None };
    let request = Request {
        options: Options { workers: 1, epoch: EpochSize::Events(30), ..Options::default() },
        durability: Some(Durability { directory, options: DurabilityOptions::default() }),
        ..Request::new(
            vec![connection.open(&schema, &SourceOptions::default()).unwrap()],
            vec![file.open(&schema, Some(&durable)).unwrap()],
            Arc::new(System::new()),
        )
    };
    Engine::new(program).unwrap().run(request, &mut || {}).unwrap();
}

/// Run by the next test in a process of its own, which dies.
#[test]
#[ignore = "aborts"]
fn a_run_that_dies() {
    let folder = std::env::var("TIDEMILL_FOLDER").unwrap();
    let dies_at = std::env::var("TIDEMILL_DIES_AT").unwrap().parse().unwrap();
    run(Path::new(&folder), &Between { from: 7, to: 5007, dies_at: Some(dies_at) }.spec());
}

#[test]
fn a_connector_of_others_goes_on_after_crashes() {
    let folder = tempfile::tempdir().unwrap();
    for dies_at in [2000, 4000] {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--ignored", "--exact", "own::a_run_that_dies"]);
        test.env("TIDEMILL_FOLDER", folder.path()).env("TIDEMILL_DIES_AT", dies_at.to_string());
        assert_eq!(test.output().unwrap().status.signal(), Some(libc::SIGABRT));
    }
    let spec = serde_json::from_str(r#"{"kind": "integers", "from": 7, "to": 5007}"#).unwrap();
    run(folder.path(), &spec);
    let out = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let wanted: String = (7..5007).map(|number| format!("{{\"number\":{number}}}\n")).collect();
    assert!(out == wanted, "{} lines", out.lines().count());
}
