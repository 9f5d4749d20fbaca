//! First events of a source with those that are late, against their definition.

use std::collections::BTreeMap;
use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, committed, event, named, record};
use tidemill_plan::{
    Expr, ExprNode, OverDef, Plan, SinkDef, Stmt, StmtNode, StreamRef, TransactionDef, WindowFunction, WindowsDef,
    analyze,
};
use tidemill_random::Random;
use tidemill_reference::Reference;

const LATENESS: i64 = 5;

/// An event: its time, its id and its number.
type Click = (i64, i64, i64);

fn over(windows: WindowsDef, first: Option<i64>, by: &str) -> Option<OverDef> {
    Some(OverDef {
        by: vec![(by.into(), event(by))],
        windows,
        early: None,
        every: None,
        top: None,
        first: first.map(Value::Int),
        own: vec![],
    })
}

fn operator(name: &str, inputs: Vec<StreamRef>, over: Option<OverDef>, body: Vec<Stmt>) -> TransactionDef {
    TransactionDef { name: name.into(), inputs, over, join: None, nested: false, derives: false, roles: vec![], body }
}

/// Returns the first events within a time, and a window that counts them.
fn plan(within: i64, late: bool) -> Plan {
    let mut plan = PlanBuilder::new("first")
        .source("s", |s| {
            s.event_time("at", Type::Int).field("id", Type::Int).field("number", Type::Int).lateness(LATENESS)
        })
        .build();
    let mut inputs = vec![named("s")];
    inputs.extend(late.then(|| StreamRef::Late("s".into())));
    let any = WindowsDef::Counting { count: 1 };
    plan.transactions.push(operator("once", inputs, over(any, Some(within), "id"), vec![]));
    let count = ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None };
    let record = record([("end", event("end")), ("n", Expr { node: count, span: None })]);
    let give = Stmt { node: StmtNode::Return { record: Some(record) }, span: None };
    let tumbling = WindowsDef::Tumbling { length: Value::Int(10), origin: 0 };
    let once = committed("once");
    plan.transactions.push(operator("counted", vec![once.clone()], over(tumbling, None, "id"), vec![give]));
    plan.sinks.push(SinkDef { name: "out".into(), stream: once });
    plan
}

/// Random events, some of them later than may be.
fn clicks(seed: u64) -> Vec<Click> {
    let mut random = Random::new(seed);
    let mut clock = -20;
    let click = |number| {
        clock += [0, 1, 1, 2, 7][random.below(5) as usize];
        let delay = [0, 0, random.below(LATENESS as u64 + 1), random.below(20)][random.below(4) as usize];
        (clock - delay as i64, random.below(4) as i64, number)
    };
    (0..80).map(click).collect()
}

/// Returns the events with the times of their positions, in their order, and whether they are late.
fn positioned(clicks: &[Click]) -> Vec<(i64, Click, bool)> {
    let mut greatest = None;
    let mut all = Vec::new();
    for &click in clicks {
        let is_late = greatest.is_some_and(|greatest| click.0 < greatest - LATENESS);
        let position = if is_late { greatest.expect("it is late") } else { click.0 };
        greatest = greatest.max(Some(position));
        all.push((position, click, is_late));
    }
    all.sort_by_key(|&(position, ..)| position);
    all
}

/// Returns the first clicks by definition: those with no equal that was passed on less than `within` before.
fn firsts(clicks: &[Click], within: i64, late: bool) -> Vec<(i64, Click)> {
    let mut passed = BTreeMap::new();
    let mut found = Vec::new();
    for (position, click, is_late) in positioned(clicks) {
        if is_late && !late || passed.get(&click.1).is_some_and(|&before| position - before < within) {
            continue;
        }
        passed.insert(click.1, position);
        found.push((position, click));
    }
    found
}

#[test]
fn first_events_are_those_of_the_definition() {
    let mut from_late = 0;
    for seed in 0..300 {
        let (within, late) = ([1, 3, 8, 9, 40, 1_000][seed as usize % 6], seed % 4 > 0);
        let program = analyze(&plan(within, late)).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}"));
        let clicks = clicks(seed);
        let mut reference = Reference::new(&program);
        let row = |&(at, id, number): &Click| [at, id, number].map(Value::Int).to_vec();
        reference.run(&[clicks.iter().map(row).collect()]);
        let expected = firsts(&clicks, within, late);
        let events: Vec<Vec<Value>> = expected.iter().map(|(_, click)| row(click)).collect();
        assert_eq!(reference.output(program.sinks[0].stream), events, "seed {seed}");
        from_late += expected.iter().filter(|(position, click)| *position > click.0).count();

        // A window over them goes by the times of their positions.
        let mut counts: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        for (position, (_, id, _)) in &expected {
            let groups = counts.entry(position.div_euclid(10) * 10 + 10).or_default();
            match groups.iter_mut().find(|(group, _)| group == id) {
                Some((_, count)) => *count += 1,
                None => groups.push((*id, 1)),
            }
        }
        // Those that what comes has closed.
        let greatest = clicks.iter().map(|click| click.0).max().expect("there are some");
        let counted =
            counts.range(..=greatest).flat_map(|(end, groups)| groups.iter().map(|(_, count)| [*end, *count]));
        let counted: Vec<Vec<Value>> = counted.map(|row| row.map(Value::Int).to_vec()).collect();
        let windows = program.streams.iter_enumerated().find(|(_, stream)| stream.name == "counted.closed");
        assert_eq!(reference.output(windows.expect("it is there").0), counted, "seed {seed}");
    }
    assert!(from_late > 300, "{from_late} late events are first ones");
}

#[test]
fn late_events_count_beside_those_of_their_own_source_alone() {
    let mut other = plan(5, true);
    other.transactions[0].inputs[1] = StreamRef::Late("t".into());
    other.streams.push(tidemill_plan::StreamDef { name: "t".into(), ..other.streams[0].clone() });
    let mut window = plan(5, true);
    window.transactions[0].over.as_mut().expect("it has one").first = None;
    for wrong in [other, window] {
        let errors = analyze(&wrong).expect_err("it is refused");
        assert!(format!("{errors:?}").contains("it is over 2 streams"), "{errors:?}");
    }
}
