//! Places of events stand in one order through all that happens to a state: sources of which events have passed are retired, and
//! another state takes rows over. The keys whose events wait in a join, and the groups of a window, are in that order.

use super::{Again, Records};
use crate::support::{Kept, with_all_sinks};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidemill_connect::System;
use tidemill_durability::{Fit, Identity, OpenState, Recorded, StateDirectory};
use tidemill_io::{Sink, Source};
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, SourceBuilder, event, named, record};
use tidemill_plan::{JoinBound, JoinDef, JoinHow, Plan, Program, Stmt, StmtNode, TransactionDef, WindowsDef, analyze};
use tidemill_runtime::{Durability, DurabilityOptions, Engine, Options, Request};
use tidemill_sim::SimStorage;

/// The times and keys of the events of each source, by name.
type Events<'a> = [(&'a str, &'a [(i64, i64)])];

const BEFORE: &Events<'static> = &[
    ("others", &[(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0), (60, 0)]),
    ("people", &[(50, 9), (51, 8), (52, 7), (60, 50)]),
    ("auctions", &[(50, 109), (55, 108), (60, 101)]),
];
const AFTER: &Events<'static> =
    &[("people", &[(70, 3), (71, 2), (72, 1), (80, 60)]), ("auctions", &[(70, 103), (72, 102), (80, 8)])];

/// Returns a plan with a window and an outer join, and perhaps with a source that feeds nothing of them.
fn plan(with_others: bool) -> Plan {
    let source = |s: SourceBuilder| s.event_time("at", Type::Int).field("key", Type::Int);
    let over = WindowsDef::Tumbling { length: Value::Int(1_000), origin: 0 };
    let mut plan = match with_others {
        true => PlanBuilder::new("places").source("others", source),
        false => PlanBuilder::new("places").retire("others"),
    };
    plan = plan.source("people", source).source("auctions", source);
    let mut plan = plan
        .window("w", named("people"), [("key", event("key"))], over.clone(), |b| b.give([("key", event("key"))]))
        .build();
    let returned = record([("left", event("p.key")), ("right", event("a.key"))]);
    let on = vec![(event("key"), event("key"))];
    plan.transactions.push(TransactionDef {
        name: "j".into(),
        inputs: vec![named("people"), named("auctions")],
        over: None,
        join: Some(JoinDef {
            left: "p".into(),
            right: Some("a".into()),
            on,
            bound: JoinBound::Over(over),
            how: JoinHow::Outer,
        }),
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![Stmt { node: StmtNode::Return { record: Some(returned) }, span: None }],
    });
    plan.schema_version = if with_others { 1 } else { 2 };
    with_all_sinks(&plan)
}

fn open(machine: &SimStorage, plan: &Plan, program: &Program) -> StateDirectory {
    let recorded = Recorded { plan: plan.clone(), sources: BTreeMap::new(), sinks: BTreeMap::new() };
    let how = OpenState {
        storage: Arc::new(machine.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(program),
        recorded: Some(recorded),
    };
    StateDirectory::open(how).expect("no fault")
}

/// Runs a program over further events; `from`: the state whose rows it begins with. Returns the keys of the groups that closed, and
/// of what has no partner, left ones as they are, right ones below zero.
fn live(machine: &SimStorage, plan: &Plan, events: &Events<'_>, from: Option<&SimStorage>) -> [Vec<i64>; 2] {
    let program = analyze(plan).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut engine = Engine::new(program.clone()).expect("it compiles");
    if let Some(from) = from {
        let seeded = engine.seed(&open(from, plan, &program), &program).expect("its tables fit");
        assert!(!seeded.is_empty(), "rows are taken over");
    }
    let mut directory = open(machine, plan, &program);
    if let Fit::Migrates(_) = directory.fit() {
        let recorded = directory.manifest().and_then(|manifest| manifest.recorded.clone()).expect("it is recorded");
        engine.migrate(&mut directory, &analyze(&recorded.plan).expect("it was valid")).expect("it migrates");
        engine = engine.with_empty_tables();
    }
    let sources = program.sources().map(|stream| -> Box<dyn Source> {
        let of_source = events.iter().find(|(name, _)| *name == stream.name).map_or(&[][..], |(_, events)| *events);
        let records: Vec<Vec<Value>> = of_source.iter().map(|&(at, key)| [at, key].map(Value::Int).to_vec()).collect();
        Box::new(Records::new(batch_of(&stream.schema, &records), 3, Again::Given))
    });
    let sources = sources.collect();
    let kept: Vec<Kept> = program.sinks.iter().map(|_| Kept::default()).collect();
    let sinks = kept.iter().map(|kept| Box::new(kept.clone()) as Box<dyn Sink>).collect();
    let options = DurabilityOptions { is_final: events == AFTER, ..DurabilityOptions::default() };
    let request = Request {
        options: Options { workers: 2, ..Options::default() },
        durability: Some(Durability { directory, options }),
        ..Request::new(sources, sinks, Arc::new(System::new()))
    };
    engine.run(request, &mut || {}).expect("no fault");
    let given = |name: &str, of: fn(&[Value]) -> Option<i64>| -> Vec<i64> {
        let is_of = |sink: &tidemill_plan::Sink| program.streams[sink.stream].name == name;
        let sink = program.sinks.iter().position(is_of).expect("every stream has a sink");
        let schema = &program.streams[program.sinks[sink].stream].schema;
        let batches = kept[sink].0.lock();
        batches.iter().flat_map(|batch| rows(batch, schema)).filter_map(|row| of(&row)).collect()
    };
    let alone = |row: &[Value]| match row {
        [Value::Int(left), Value::Null] => Some(*left),
        [Value::Null, Value::Int(right)] => Some(-right),
        _ => None,
    };
    let group = |row: &[Value]| row[0].word();
    [given("w.closed", group), given("j.joined", alone)]
}

/// The groups in the order of their first events, and the keys without a partner likewise.
const IN_ORDER: [&[i64]; 2] = [&[9, 8, 7, 50, 3, 2, 1, 60], &[9, -109, 7, -108, 50, -101, 3, -103, 2, 1, -102, 60]];

/// A source that is retired takes its events out of the counts of sources, not out of the order.
#[test]
fn places_go_on_after_those_of_a_source_that_is_retired() {
    let machine = SimStorage::new(1);
    let [closed, alone] = live(&machine, &plan(true), BEFORE, None);
    assert!(closed.is_empty() && alone.is_empty(), "all is open");
    let given = live(&machine, &plan(false), AFTER, None);
    assert_eq!(given.each_ref().map(Vec::as_slice), IN_ORDER);
}

/// Rows that are taken over stand before all that comes to the state that takes them.
#[test]
fn places_go_on_after_those_of_rows_that_are_taken_over() {
    let (before, machine) = (SimStorage::new(1), SimStorage::new(2));
    live(&before, &plan(true), BEFORE, None);
    let given = live(&machine, &plan(true), AFTER, Some(&before));
    // Events that the gate holds have no rows.
    let has_rows = |key: &&i64| ![50, -101].contains(*key);
    assert_eq!(given, IN_ORDER.map(|keys| keys.iter().filter(has_rows).copied().collect::<Vec<_>>()));
}
