//! Windows with a result for each row of a table, against what they mean (`docs/formalism.md`, "Results that complete with an
//! instant").

use super::aggregate;
use crate::support::Subject;
use std::collections::{BTreeMap, BTreeSet};
use tidemill_histories::{History, Random};
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{PlanBuilder, committed, event, exists, named, record};
use tidemill_plan::{Expr, OverDef, Plan, Stmt, StmtNode, TableId, TransactionDef, WindowFunction, WindowsDef};
use tidemill_runtime::{Engine, EpochSize, Options};

/// An event: its time, a group that may be none, a value that may be none, a number, and what it does to an item.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: i64,
    group: Option<i64>,
    value: Option<i64>,
    number: i64,
    item: i64,
    put: i64,
}

/// Keys of items are below this.
const ITEMS: i64 = 6;
/// The most results of empty windows that follow from one event.
const MOST: i64 = 10_000;

/// A group and its events.
type Group = (Option<i64>, Vec<Seen>);

/// Length, slide and origin.
type Kind = (i64, i64, i64);

fn modulo(value: Expr, of: i64) -> Expr {
    value.clone() - value.floor_div(of) * of
}

/// Returns the window `w`, a transaction of events that inserts and deletes items, and one of results that does.
fn program((length, every, origin): Kind) -> Plan {
    use WindowFunction as F;
    let optional = ColumnType::optional(Type::Int);
    let mut plan = PlanBuilder::new("rows")
        .source("events", |s| {
            s.event_time("at", Type::Int)
                .field("group", optional)
                .field("value", optional)
                .field("number", Type::Int)
                .field("item", Type::Int)
                .field("put", Type::Int)
        })
        .table("items", |t| t.key("id", Type::Int))
        .transaction("change", [named("events")], |t| {
            t.create("item", "items", [event("item")]).body(|b| {
                b.when(event("put").eq(1).and(!exists("item")), |b| b.insert::<i64>("item", []));
                b.when(event("put").eq(2).and(exists("item")), |b| b.delete("item"));
            })
        })
        .build();
    let asked = [
        ("count", F::Count, None, None),
        ("sum", F::Sum, Some("value"), None),
        ("mean", F::Mean, Some("number"), None),
        ("min", F::Min, Some("number"), None),
        ("max", F::Max, Some("value"), None),
        ("distinct", F::Distinct, Some("number"), None),
        ("first", F::First, Some("number"), None),
        ("last", F::Last, Some("value"), None),
        ("best", F::ArgMax, Some("number"), Some("item")),
        ("variance", F::Variance, Some("number"), None),
    ];
    let mut fields = vec![("start", event("start")), ("end", event("end")), ("group", event("group"))];
    fields.extend(asked.map(|(name, function, value, by)| (name, aggregate(function, value, by))));
    let count = aggregate(F::Count, None, None);
    fields.push(("slot", modulo(event("end") + count, ITEMS)));
    let (length, every) = (Value::Int(length), Value::Int(every));
    let windows = match length == every {
        true => WindowsDef::Tumbling { length, origin },
        false => WindowsDef::Sliding { length, every, origin },
    };
    let by = vec![("group".to_owned(), event("group"))];
    let over = OverDef { by, windows, early: None, every: Some("items".into()), top: None, first: None, own: vec![] };
    plan.transactions.push(TransactionDef {
        name: "w".into(),
        inputs: vec![named("events")],
        over: Some(over),
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![Stmt { node: StmtNode::Return { record: Some(record(fields)) }, span: None }],
    });
    let after = PlanBuilder::new("after")
        .transaction("after", [committed("w")], |t| {
            t.create("item", "items", [event("slot")]).body(|b| {
                b.when_else(exists("item"), |b| b.delete("item"), |b| b.insert::<i64>("item", []));
            })
        })
        .build();
    plan.transactions.extend(after.transactions);
    plan
}

/// Returns all results by definition, and the items at the end.
fn results((length, every, origin): Kind, before: &[i64], events: &[Seen]) -> (Vec<Vec<Value>>, BTreeSet<i64>) {
    let mut items: BTreeSet<i64> = before.iter().copied().collect();
    let mut found = Vec::new();
    let (Some(least), Some(horizon)) = (events.first().map(|e| e.at), events.last().map(|e| e.at)) else {
        return (found, items);
    };
    // The groups of each window in the order of their first event in it, by the window's end.
    let mut windows: BTreeMap<i64, Vec<Group>> = BTreeMap::new();
    let on_grid = |time: i64| (time - origin).div_euclid(every) * every + origin;
    let mut close = |end: i64, last: i64, groups: Vec<Group>, items: &mut BTreeSet<i64>| {
        let start = end - length;
        let mut all = groups;
        // Results of rows without events are only in the first windows that close between two events.
        let place = (end - on_grid(last)) / every;
        if start > least && start <= horizon && place <= MOST {
            let has = |id: i64| all.iter().any(|(group, _)| *group == Some(id));
            let rest: Vec<i64> = items.iter().copied().filter(|&id| !has(id)).collect();
            all.extend(rest.into_iter().map(|id| (Some(id), Vec::new())));
        }
        for (group, events) in &all {
            found.push(result(start, end, *group, events));
            let item = (end + events.len() as i64).rem_euclid(ITEMS);
            if !items.remove(&item) {
                items.insert(item);
            }
        }
    };
    let mut last = least;
    let mut next = on_grid(least) + every;
    for seen in events {
        while next <= seen.at {
            close(next, last, windows.remove(&next).unwrap_or_default(), &mut items);
            next += every;
        }
        for back in 0..length / every {
            let end = on_grid(seen.at) - back * every + length;
            let groups = windows.entry(end).or_default();
            match groups.iter_mut().find(|(group, _)| *group == seen.group) {
                Some((_, events)) => events.push(*seen),
                None => groups.push((seen.group, vec![*seen])),
            }
        }
        match seen.put {
            1 => drop(items.insert(seen.item)),
            2 => drop(items.remove(&seen.item)),
            _ => {}
        }
        last = seen.at;
    }
    while next <= horizon + length {
        close(next, last, windows.remove(&next).unwrap_or_default(), &mut items);
        next += every;
    }
    assert!(windows.is_empty(), "each window has closed");
    (found, items)
}

fn result(start: i64, end: i64, group: Option<i64>, events: &[Seen]) -> Vec<Value> {
    let option = |value: Option<i64>| value.map_or(Value::Null, Value::Int);
    let numbers: Vec<i64> = events.iter().map(|seen| seen.number).collect();
    let values: Vec<i64> = events.iter().filter_map(|seen| seen.value).collect();
    let best = events.iter().max_by_key(|seen| (seen.item, -seen.number)).map(|seen| seen.number);
    let count = events.len() as f64;
    let mean = (!events.is_empty()).then(|| numbers.iter().sum::<i64>() as f64 / count);
    let variance = mean.filter(|_| events.len() > 1).map(|mean| {
        let squares = numbers.iter().map(|&number| (number as f64 - mean).powi(2)).sum::<f64>();
        // Rounded to what the comparison keeps.
        squares / (count - 1.0)
    });
    let float = |value: Option<f64>| value.map_or(Value::Null, Value::Float);
    vec![
        Value::Int(start),
        Value::Int(end),
        option(group),
        Value::Int(events.len() as i64),
        Value::Int(values.iter().sum()),
        float(mean),
        option(numbers.iter().min().copied()),
        option(values.iter().max().copied()),
        Value::Int(events.len() as i64),
        option(numbers.first().copied()),
        option(events.last().and_then(|seen| seen.value)),
        option(best),
        float(variance),
        Value::Int((end + events.len() as i64).rem_euclid(ITEMS)),
    ]
}

/// Runs events through the reference and the engine, and compares both with the definition.
fn check(kind: Kind, before: &[i64], events: &[Seen], random: &mut Random, what: &str) {
    let option = |value: Option<i64>| value.map_or(Value::Null, Value::Int);
    let row = |e: &Seen| {
        let (item, put) = (Value::Int(e.item), Value::Int(e.put));
        vec![Value::Int(e.at), option(e.group), option(e.value), Value::Int(e.number), item, put]
    };
    let preload = vec![(TableId::from(0), before.iter().map(|&id| vec![Value::Int(id)]).collect())];
    let history = History { plan: program(kind), preload, sources: vec![events.iter().map(row).collect()] };
    let (expected, items) = results(kind, before, events);
    let subject = Subject::new(history);
    let sink = subject.program.sinks.iter().position(|s| subject.program.streams[s.stream].name == "w.closed");
    let sink = sink.expect("every stream has a sink");
    let equal = |found: &[Vec<Value>], by: &str| {
        let near = |a: &Value, b: &Value| match (a, b) {
            // The definition rounds a variance twice.
            (Value::Float(a), Value::Float(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
            (a, b) => a == b,
        };
        let alike = |a: &[Value], b: &[Value]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b));
        let at = found.iter().zip(&expected).position(|(a, b)| !alike(a, b)).unwrap_or(found.len().min(expected.len()));
        assert!(
            at == found.len() && at == expected.len(),
            "{what}, {kind:?}, {before:?}, {by}: result {at} of {} and {} is {:?} and not {:?}",
            found.len(),
            expected.len(),
            found.get(at),
            expected.get(at)
        );
    };
    equal(&subject.expected.outputs[sink], "reference");
    let kept: Vec<Vec<Value>> = items.iter().map(|&id| vec![Value::Int(id)]).collect();
    assert_eq!(subject.expected.tables[0], kept, "{what}, {kind:?}");
    let mut engine = Engine::new(subject.program.clone()).expect("it compiles");
    for (workers, size) in [(1, EpochSize::Auto), (3, EpochSize::Events(1 + random.below(9)))] {
        engine = engine.with_empty_tables();
        let options = Options { workers, epoch: size, ..Options::default() };
        let outcome = subject.run(&engine, options, 1 + random.below(20));
        equal(&outcome.outputs[sink], "engine");
        if let Some(difference) = subject.difference(&outcome) {
            panic!("{what}, {kind:?}: {difference}");
        }
    }
}

fn random_kind(random: &mut Random) -> Kind {
    let every = *random.pick(&[1, 2, 5, 30]);
    let length = every * *random.pick(&[1, 1, 2, 3, 5]);
    let origin = *random.pick(&[0, 1, -4, 100]);
    (length, every, origin)
}

#[test]
fn each_row_of_a_table_has_a_result_in_each_window() {
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let kind = random_kind(&mut random);
        let before: Vec<i64> = (0..ITEMS).filter(|_| random.chance(40)).collect();
        let mut at = *random.pick(&[0, -50, 1_000_000]);
        let events: Vec<Seen> = (0..random.between(0, 40) as i64)
            .map(|number| {
                at += *random.pick(&[0, 0, 1, 1, 2, 3, 4, 40]);
                Seen {
                    at,
                    group: Some(random.int(0, ITEMS + 2)).filter(|group| *group > 0),
                    value: Some(random.int(-5, 5)).filter(|value| *value != 4),
                    number,
                    item: random.int(0, ITEMS - 1),
                    put: random.int(0, 2),
                }
            })
            .collect();
        check(kind, &before, &events, &mut random, &format!("seed {seed}, {events:?}"));
    }
}

/// Windows that close after an event may be so many that not all have results of rows without events.
#[test]
fn long_gaps_leave_rows_without_events_out() {
    let event = |at: i64, number: i64| Seen { at, group: Some(1), value: None, number, item: 0, put: 0 };
    for (kind, gap) in [((1, 1, 0), MOST + 2), ((2, 1, 0), MOST + 3), ((21_000, 2, 1), 5)] {
        let events = [event(3, 0), event(4, 1), event(4 + gap, 2), event(4 + gap + 20, 3)];
        check(kind, &[2, 5], &events, &mut Random::new(1), "a gap");
    }
}
