//! A connector as others write one ([`integers`]), beside the standard ones. A durable run over it is killed and goes on.

#[path = "../../../io/tests/io/integers.rs"]
mod integers;

use integers::{Between, Integers};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidemill_connect::{SinkDurability, System, WriteJsonl, open_state, source_options, standard_connectors};
use tidemill_durability::Recorded;
use tidemill_io::{SinkConnection, SourceConnection, Spec};
use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, named};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Durability, DurabilityOptions, Engine, EpochSize, Options, Request};

fn plan() -> Plan {
    PlanBuilder::new("integers")
        .source("numbers", |s| s.field("number", Type::Int))
        .sink("out", named("numbers"))
        .build()
}

/// Runs over integers, with a state and an output in a folder.
fn run(folder: &Path, spec: &Spec) {
    let mut connectors = standard_connectors();
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
            vec![connection.open(&schema, &source_options()).unwrap()],
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
