//! Windows over streams against what they mean: every event in every window that holds it, nothing shared and nothing
//! kept between windows (`docs/formalism.md`, "Results that complete with an instant").

pub mod calendar;
mod rows;

use crate::support::Subject;
use std::collections::BTreeMap;
use tidemill_histories::{History, Random, random_periods};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{PlanBuilder, event, named, record};
use tidemill_plan::{
    Expr, ExprNode, OverDef, Plan, Program, Stmt, StmtNode, TableId, TopDef, TransactionDef, WindowFunction, WindowsDef,
};
use tidemill_reference::Reference;
use tidemill_runtime::{Engine, EpochSize, Options};
use tidemill_txn::{Cut, Surveyor};

/// An event: its time, a group that may be none, a value that may be none, and a number.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: i64,
    group: Option<i64>,
    value: Option<i64>,
    number: i64,
}

/// A window that closed: its boundary, start and end, and its events.
type Closed = (i64, i64, i64, Option<i64>, Vec<Seen>);

/// A group and its events.
type Group = (Option<i64>, Vec<Seen>);

const GAP: i64 = 3;

/// Returns the windows of a kind, in the order in which they close.
fn closed(windows: &WindowsDef, by: bool, events: &[Seen]) -> Vec<Closed> {
    // The groups of each window in the order of their first event there, by window.
    let mut of: BTreeMap<(i64, i64), Vec<Group>> = BTreeMap::new();
    let mut add = |window: (i64, i64), group: Option<i64>, seen: Seen| {
        let groups = of.entry(window).or_default();
        match groups.iter_mut().find(|(other, _)| *other == group) {
            Some((_, events)) => events.push(seen),
            None => groups.push((group, vec![seen])),
        }
    };
    let group_of = |seen: &Seen| seen.group.filter(|_| by);
    let (length, every, origin) = match windows {
        WindowsDef::Tumbling { length: Value::Int(length), origin } => (*length, *length, *origin),
        WindowsDef::Sliding { length: Value::Int(length), every: Value::Int(every), origin } => {
            (*length, *every, *origin)
        }
        WindowsDef::Calendar(periods) => {
            events.iter().for_each(|seen| add(calendar::period(periods, seen.at), group_of(seen), *seen));
            return in_order(of);
        }
        WindowsDef::Session { gap: Value::Int(gap) } => return sessions(*gap, by, events),
        WindowsDef::Counting { count } => return counted(*count, by, events),
        other => unreachable!("{other:?}"),
    };
    for seen in events {
        // Every start at a distance of `every` whose window holds the event.
        let last = (seen.at - origin).div_euclid(every) * every + origin;
        for back in 0..length / every {
            let start = last - back * every;
            assert!((start..start + length).contains(&seen.at), "the window holds the event");
            add((start + length, start), group_of(seen), *seen);
        }
    }
    in_order(of)
}

fn in_order(of: BTreeMap<(i64, i64), Vec<Group>>) -> Vec<Closed> {
    of.into_iter()
        .flat_map(|((end, start), groups)| {
            groups.into_iter().map(move |(group, events)| (end, start, end, group, events))
        })
        .collect()
}

/// Returns the type of the event time.
fn time_of(windows: &WindowsDef) -> Type {
    if matches!(windows, WindowsDef::Calendar(_)) { Type::Time } else { Type::Int }
}

fn sessions(gap: i64, by: bool, events: &[Seen]) -> Vec<Closed> {
    let mut open: Vec<Group> = Vec::new();
    let mut closed: Vec<(i64, i64, Closed)> = Vec::new();
    let close = |(group, events): Group| {
        let (start, end) = (events[0].at, events.last().expect("a session has events").at + gap);
        (end, events[0].number, (end, start, end, group, events))
    };
    for seen in events {
        let group = seen.group.filter(|_| by);
        if let Some(known) = open.iter().position(|(other, _)| *other == group) {
            if seen.at - open[known].1.last().expect("a session has events").at < gap {
                open[known].1.push(*seen);
                continue;
            }
            closed.push(close(open.remove(known)));
        }
        open.push((group, vec![*seen]));
    }
    closed.extend(open.into_iter().map(close));
    // Sessions that end together are in the order in which they began.
    closed.sort_by_key(|(end, first, _)| (*end, *first));
    closed.into_iter().map(|(.., closed)| closed).collect()
}

fn counted(count: i64, by: bool, events: &[Seen]) -> Vec<Closed> {
    let mut open: BTreeMap<Option<i64>, Vec<Seen>> = BTreeMap::new();
    let mut closed = Vec::new();
    for seen in events {
        let group = seen.group.filter(|_| by);
        let events = open.entry(group).or_default();
        events.push(*seen);
        if events.len() as i64 == count {
            let events = open.remove(&group).expect("just looked at");
            closed.push((seen.at, events[0].at, seen.at, group, events));
        }
    }
    // The others close at the end of time.
    let mut rest: Vec<_> = open.into_iter().collect();
    rest.sort_by_key(|(_, events)| events[0].number);
    let last = |events: &[Seen]| events.last().expect("a window has events").at;
    closed.extend(rest.into_iter().map(|(group, events)| (i64::MAX, events[0].at, last(&events), group, events)));
    closed
}

fn aggregate(function: WindowFunction, value: Option<&str>, by: Option<&str>) -> Expr {
    let field = |name: &str| Box::new(event(name));
    ExprNode::Aggregate { function, value: value.map(field), by: by.map(field), argument: None }.into()
}

/// Returns the plan: the window `w`, and a transaction that adds each close up in a table and gives it on. Without
/// `distinct` values events of windows of time are folded.
fn program(windows: &WindowsDef, by: bool, distinct: bool) -> Plan {
    use WindowFunction as F;
    let sliding = matches!(windows, WindowsDef::Sliding { .. });
    let mut fields = vec![("start", event("start")), ("end", event("end"))];
    if by {
        fields.push(("group", event("group")));
    }
    let whole = [(F::Count, None), (F::Count, Some("value")), (F::Sum, Some("value")), (F::Mean, Some("value"))];
    let third = if distinct { F::Distinct } else { F::Variance };
    let ordered = [(F::Min, Some("value")), (F::Max, Some("value")), (third, Some("value"))];
    let names = [
        "count",
        "count_value",
        "sum",
        "mean",
        "min",
        "max",
        "distinct_or_variance",
        "any",
        "all",
        "first",
        "last",
        "least",
        "greatest",
        "value_of_greatest",
    ];
    let mut all: Vec<Expr> = whole.iter().chain(&ordered).map(|(f, value)| aggregate(*f, *value, None)).collect();
    let is_early = || event("number").lt(20);
    for (function, value) in [(F::Any, is_early()), (F::All, !is_early())] {
        all.push(ExprNode::Aggregate { function, value: Some(Box::new(value)), by: None, argument: None }.into());
    }
    if !sliding {
        all.extend([F::First, F::Last].map(|f| aggregate(f, Some("number"), None)));
        all.extend([F::ArgMin, F::ArgMax].map(|f| aggregate(f, Some("number"), Some("value"))));
        all.push(aggregate(F::ArgMax, Some("value"), Some("value")));
    }
    fields.extend(names.into_iter().zip(all));
    let of = Vec::from_iter(by.then(|| ("group".to_owned(), event("group"))));
    let body = vec![Stmt { node: StmtNode::Return { record: Some(record(fields)) }, span: None }];
    let over = Some(OverDef {
        by: of,
        windows: windows.clone(),
        early: None,
        every: None,
        top: None,
        first: None,
        own: vec![],
    });
    let window = TransactionDef {
        name: "w".into(),
        inputs: vec![named("events")],
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    };
    let optional = ColumnType::optional(Type::Int);
    let mut plan = PlanBuilder::new("windows")
        .source("events", |s| {
            let s = s.event_time("at", time_of(windows)).field("group", optional).field("value", optional);
            s.field("number", Type::Int)
        })
        .table("sums", |t| t.key("one", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .build();
    plan.transactions.push(window);
    let after = PlanBuilder::new("after")
        .transaction("after", [tidemill_plan::build::committed("w")], |t| {
            t.create("sum", "sums", [0.into()]).body(|b| {
                b.set("sum", "n", tidemill_plan::build::cell("sum", "n") + event("count"));
                b.give([("n", tidemill_plan::build::cell("sum", "n")), ("end", event("end"))]);
            })
        })
        .build();
    plan.transactions.extend(after.transactions);
    plan
}

/// Returns the result of a close, by definition.
fn given(closed: &Closed, by: bool, windows: &WindowsDef, is_distinct: bool) -> Vec<Value> {
    let (_, start, end, group, events) = closed;
    let option = |value: Option<i64>| value.map_or(Value::Null, Value::Int);
    let values: Vec<i64> = events.iter().filter_map(|seen| seen.value).collect();
    let mut distinct = values.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let sum: i64 = values.iter().sum();
    let mean = if values.is_empty() { Value::Null } else { Value::Float(sum as f64 / values.len() as f64) };
    let mut row = [start, end].map(|time| Value::from_word(time_of(windows), *time)).to_vec();
    if by {
        row.push(option(*group));
    }
    row.extend([Value::Int(events.len() as i64), Value::Int(values.len() as i64), Value::Int(sum), mean]);
    row.extend([option(values.iter().min().copied()), option(values.iter().max().copied())]);
    row.push(if is_distinct { Value::Int(distinct.len() as i64) } else { variance(&values) });
    let is_early = |seen: &Seen| seen.number < 20;
    row.extend([events.iter().any(is_early), !events.iter().any(is_early)].map(Value::Bool));
    if !matches!(windows, WindowsDef::Sliding { .. }) {
        let some: Vec<&Seen> = events.iter().filter(|seen| seen.value.is_some()).collect();
        // The first of equals.
        let least = some.iter().min_by_key(|seen| (seen.value, seen.number));
        let greatest = some.iter().max_by_key(|seen| (seen.value, -seen.number));
        row.extend([Value::Int(events[0].number), Value::Int(events.last().expect("it has events").number)]);
        row.extend([option(least.map(|seen| seen.number)), option(greatest.map(|seen| seen.number))]);
        row.push(option(greatest.and_then(|seen| seen.value)));
    }
    row
}

/// Returns the variance of a sample. Sums of so few small numbers are exact.
fn variance(values: &[i64]) -> Value {
    let count = values.len() as i64;
    if count < 2 {
        return Value::Null;
    }
    let (sum, squares) = (values.iter().sum::<i64>(), values.iter().map(|value| value * value).sum::<i64>());
    Value::Float((count * squares - sum * sum) as f64 / (count * (count - 1)) as f64)
}

fn random_windows(random: &mut Random) -> WindowsDef {
    let length = *random.pick(&[1, 2, 5, 8, 30]);
    let every = *random.pick(&[1, 2, 5]);
    let origin = *random.pick(&[0, 1, -4, 100]);
    match random.below(5) {
        0 => WindowsDef::Tumbling { length: Value::Int(length), origin },
        4 => WindowsDef::Calendar(random_periods(random)),
        1 => WindowsDef::Sliding {
            length: Value::Int(every * random.between(2, 5) as i64),
            every: Value::Int(every),
            origin,
        },
        2 => WindowsDef::Session { gap: Value::Int(GAP) },
        _ => WindowsDef::Counting { count: random.between(1, 4) as i64 },
    }
}

#[test]
fn windows_are_what_they_mean() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let windows = random_windows(&mut random);
        let by = random.chance(75);
        let groups = random.between(1, 6) as i64;
        let mut at = *random.pick(&[0, -50, 1_000_000]);
        let events: Vec<Seen> = (0..random.between(0, 60) as i64)
            .map(|number| {
                at += *random.pick(&[0, 0, 1, 1, 2, 3, 4, 40]);
                let group = Some(random.int(0, groups)).filter(|group| *group > 0);
                Seen { at, group, value: Some(random.int(-5, 5)).filter(|value| *value != 4), number }
            })
            .collect();
        let option = |value: Option<i64>| value.map_or(Value::Null, Value::Int);
        let time = |at: i64| Value::from_word(time_of(&windows), at);
        let rows = events.iter().map(|e| vec![time(e.at), option(e.group), option(e.value), Value::Int(e.number)]);
        let distinct = random.chance(50);
        let plan = program(&windows, by, distinct);
        let history = History { plan, preload: vec![], sources: vec![rows.collect()] };
        let expected: Vec<Vec<Value>> =
            closed(&windows, by, &events).iter().map(|closed| given(closed, by, &windows, distinct)).collect();
        let subject = Subject::new(history);
        let sink = subject.program.sinks.iter().position(|s| subject.program.streams[s.stream].name == "w.closed");
        let sink = sink.expect("every stream has a sink");
        assert_eq!(subject.expected.outputs[sink], expected, "seed {seed}, {windows:?}, by group: {by}, {events:?}");
        let folds = subject.program.transactions.keys().any(|id| subject.program.fold(id).is_some());
        let is_by_count = matches!(windows, WindowsDef::Counting { .. });
        assert_eq!(folds, !distinct && !is_by_count, "seed {seed}, {windows:?}");
        let mut engine = Engine::new(subject.program.clone()).expect("it compiles");
        for (workers, size) in [(1, EpochSize::Auto), (3, EpochSize::Events(1 + random.below(9)))] {
            engine = engine.with_empty_tables();
            let options = Options { workers, epoch: size, ..Options::default() };
            let outcome = subject.run(&engine, options, 1 + random.below(20));
            assert!(outcome.outputs[sink] == expected, "seed {seed}, {windows:?}: {:?}", outcome.outputs[sink]);
            if let Some(difference) = subject.difference(&outcome) {
                panic!("seed {seed}, {windows:?}: {difference}");
            }
        }
    }
}

/// The events of an epoch with many groups are not folded, so that windows hold events of both kinds of epochs. They
/// close in the order of their first events, whichever these are.
#[test]
fn windows_hold_folded_events_and_others() {
    let length = || Value::Int(5_000);
    for (windows, events) in [
        (WindowsDef::Tumbling { length: length(), origin: 0 }, 15_000),
        (WindowsDef::Sliding { length: length(), every: Value::Int(1_250), origin: 0 }, 9_000),
        // From the end of the first session on one ends with each event.
        (WindowsDef::Session { gap: length() }, 5_200),
    ] {
        let mut random = Random::new(1);
        let rows = Vec::from_iter((0..events).map(|number: i64| {
            // Each thousand events begin some groups of a window.
            let (thousand, groups) = (number / 1_000, if number / 1_000 % 3 == 0 { 900 } else { 50 });
            let group = 1_000 * thousand + random.int(0, groups);
            [number, group, random.int(-5, 5), number].map(Value::Int).to_vec()
        }));
        let plan = program(&windows, true, false);
        let subject = Subject::new(History { plan, preload: vec![], sources: vec![rows] });
        let mut never_folds = subject.program.clone();
        never_folds.transactions.iter_mut().for_each(|transaction| transaction.fold = None);
        let run = |program: &Program, workers, size| {
            let engine = Engine::new(program.clone()).expect("it compiles");
            let options = Options { workers, epoch: EpochSize::Events(size), ..Options::default() };
            let outcome = subject.run(&engine, options, 1_000);
            if let Some(difference) = subject.difference(&outcome) {
                panic!("{windows:?}, {workers} workers, {size} events: {difference}");
            }
            outcome.scheduled
        };
        let all = run(&never_folds, 1, 1_100);
        for (workers, size) in [(1, 1_000), (1, 1_100), (2, 1_000), (3, 1_100)] {
            let folded = all - run(&subject.program, workers, size);
            let some = (1..events as u64).contains(&folded);
            assert!(some, "{windows:?}: {folded} events are folded, {workers} workers, {size} events");
        }
    }
}

/// Events of different groups touch no row in common, also where they are not folded, and where rows of a table without events have
/// results: only those of one group follow each other. Without groups all do.
#[test]
fn groups_of_windows_share_no_row() {
    const GROUPS: i64 = 10_000;
    let length = || Value::Int(5 * GROUPS);
    let tumbling = || WindowsDef::Tumbling { length: length(), origin: 0 };
    let sliding = || WindowsDef::Sliding { length: length(), every: Value::Int(GROUPS), origin: 0 };
    for (windows, every) in [
        (tumbling(), None),
        (sliding(), None),
        (WindowsDef::Session { gap: length() }, None),
        (tumbling(), Some("sums")),
        (sliding(), Some("sums")),
    ] {
        let critical = |by: bool, groups: i64| {
            let mut plan = program(&windows, by, true);
            plan.transactions[0].over.as_mut().expect("it is a window").every = every.map(str::to_owned);
            let program = tidemill_plan::analyze(&plan).expect("a valid plan");
            let schema = &program.sources().next().expect("a source").schema;
            let event = |number: i64| [number, 7 * number % groups, number % 5, number].map(Value::Int).to_vec();
            let shape = {
                let events = batch_of(schema, &Vec::from_iter((0..2 * GROUPS).map(event)));
                Engine::new(program.clone()).expect("it compiles").shape(&events)
            };
            let survey = Surveyor::default().survey(&shape.accesses, &shape.uses, &shape.parameters, 2, |_| 1.0);
            assert_eq!(i64::from(survey.transactions), 2 * GROUPS);
            survey.paths(Cut::InPlace).critical
        };
        let by_group = critical(true, GROUPS);
        assert!(by_group < 0.05, "{windows:?}: {by_group}");
        // A row of a table has a group.
        let of_all = if every.is_none() { critical(false, GROUPS) } else { critical(true, 1) };
        assert!(of_all > 0.95, "{windows:?}: {of_all}");
    }
}

/// A close makes a window of another, long after the last event.
#[test]
fn windows_over_windows_close_at_the_end_of_time() {
    let inner = WindowsDef::Tumbling { length: Value::Int(100), origin: 0 };
    let mut plan = program(&inner, false, true);
    let windows = WindowsDef::Tumbling { length: Value::Int(4), origin: 0 };
    let sum = aggregate(WindowFunction::Sum, Some("count"), None);
    let returned = record([("end", event("end")), ("n", sum)]);
    let body = vec![Stmt { node: StmtNode::Return { record: Some(returned) }, span: None }];
    let over = Some(OverDef { by: vec![], windows, early: None, every: None, top: None, first: None, own: vec![] });
    let inputs = vec![tidemill_plan::build::committed("w")];
    plan.transactions.push(TransactionDef {
        name: "outer".into(),
        inputs,
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    });
    let event = |at: i64| vec![Value::Int(at), Value::Null, Value::Null, Value::Int(0)];
    for times in [vec![3], vec![3, 4, 12, 13], vec![99, 100]] {
        let sources = vec![times.iter().map(|&at| event(at)).collect()];
        let subject = Subject::new(History { plan: plan.clone(), preload: vec![], sources });
        let sink = subject.program.sinks.iter().position(|s| subject.program.streams[s.stream].name == "outer.closed");
        let engine = Engine::new(subject.program.clone()).expect("it compiles");
        let outcome = subject.run(&engine, Options { workers: 2, ..Options::default() }, 1);
        let inside = |end: i64| times.iter().filter(|&&at| (end - 100..end).contains(&at)).count() as i64;
        // A close stands at its end less one.
        let sum = |end: i64| (end - 4..end).map(|at| if at % 100 == 99 { inside(at + 1) } else { 0 }).sum::<i64>();
        let ends = (0..60).map(|window| 4 * window + 4).filter(|&end| sum(end) > 0);
        let expected: Vec<Vec<Value>> = ends.map(|end| vec![Value::Int(end), Value::Int(sum(end))]).collect();
        assert_eq!(outcome.outputs[sink.expect("every stream has a sink")], expected, "{times:?}");
        assert_eq!(subject.difference(&outcome), None);
    }
}

/// A top of windows that close has windows of one instant. Events end no epoch for them: only closes make their rows.
#[test]
fn epochs_do_not_end_for_what_follows_from_closes_alone() {
    let mut plan = program(&WindowsDef::Tumbling { length: Value::Int(100), origin: 0 }, true, true);
    let over = OverDef {
        by: vec![],
        windows: WindowsDef::Counting { count: 1 },
        early: None,
        every: None,
        top: Some(TopDef { count: 2, by: event("count"), ties: true }),
        first: None,
        own: vec![],
    };
    plan.transactions.push(TransactionDef {
        name: "hot".into(),
        inputs: vec![tidemill_plan::build::committed("w")],
        over: Some(over),
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![],
    });
    let event = |at: i64| [at, at * at % 7, at % 5, at].map(Value::Int).to_vec();
    let sources = vec![(0..2_000).map(event).collect()];
    let subject = Subject::new(History { plan, preload: vec![], sources });
    let top = subject.program.sinks.iter().position(|s| subject.program.streams[s.stream].name == "hot");
    assert!(subject.expected.outputs[top.expect("every stream has a sink")].len() >= 40, "each window has a top");
    let epochs = |_| {
        let engine = Engine::new(subject.program.clone()).expect("it compiles");
        let outcome = subject.run(&engine, Options::default(), 500);
        assert_eq!(subject.difference(&outcome), None);
        outcome.epochs
    };
    // Each window takes epochs for its events, its closes and the top. A run ends some epochs early where its source is
    // slow.
    let least = (0..5).map(epochs).min().expect("there were runs");
    assert!(least <= 20 * 4 + 10, "{least} epochs");
}

/// An event at the last instant of all is in a window by count, whatever else is due there.
#[test]
fn windows_by_count_close_behind_all_times() {
    let session = WindowsDef::Session { gap: Value::Int(10) };
    let mut plan = program(&session, false, true);
    let returned = record([("n", aggregate(WindowFunction::Count, None, None))]);
    let body = vec![Stmt { node: StmtNode::Return { record: Some(returned) }, span: None }];
    let windows = WindowsDef::Counting { count: 3 };
    let inputs = plan.transactions[0].inputs.clone();
    let over = Some(OverDef { by: vec![], windows, early: None, every: None, top: None, first: None, own: vec![] });
    plan.transactions.push(TransactionDef {
        name: "counted".into(),
        inputs,
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    });
    let event = |at: i64| vec![Value::Int(at), Value::Null, Value::Null, Value::Int(0)];
    let end = i64::MAX;
    for (times, sizes) in
        [(vec![3, 4], vec![2]), (vec![end - 10, end], vec![2]), (vec![3, 40, end - 10, end, end], vec![3, 2])]
    {
        let sources = vec![times.iter().map(|&at| event(at)).collect()];
        let subject = Subject::new(History { plan: plan.clone(), preload: vec![], sources });
        let is_counted = |s: &tidemill_plan::Sink| subject.program.streams[s.stream].name == "counted.closed";
        let sink = subject.program.sinks.iter().position(is_counted).expect("every stream has a sink");
        let engine = Engine::new(subject.program.clone()).expect("it compiles");
        let outcome = subject.run(&engine, Options { workers: 2, ..Options::default() }, 1);
        let expected: Vec<_> = sizes.iter().map(|&n| vec![Value::Int(n)]).collect();
        assert_eq!(outcome.outputs[sink], expected, "{times:?}");
        assert_eq!(subject.difference(&outcome), None);
    }
}

/// Sessions that are open at once cost nothing when others close.
#[test]
fn a_close_does_not_look_at_what_stays_open() {
    let looked_at = |open: i64| {
        let plan = program(&WindowsDef::Session { gap: Value::Int(open) }, true, true);
        // Each group has one event, and from `open` on one session closes with each.
        let event = |at: i64| vec![Value::Int(at), Value::Int(at), Value::Null, Value::Int(at)];
        let history = History { plan, preload: vec![], sources: vec![(0..open + 400).map(event).collect()] };
        let program = tidemill_plan::analyze(&history.plan).expect("a valid plan");
        let engine = Engine::new(program.clone()).expect("it compiles");
        let subject = Subject { program, history, expected: Default::default() };
        let outcome = subject.run(&engine, Options { workers: 2, ..Options::default() }, 64);
        assert_eq!(outcome.counts[1].0, open as u64 + 400, "every session has closed");
        engine.looked_at() as i64
    };
    for open in [200, 4_000] {
        let events = open + 400;
        let looked_at = looked_at(open);
        assert!(looked_at <= 8 * events, "{looked_at} rows and entries were looked at for {events} sessions");
    }
}

/// Rows of windows are kept only while their windows are open: a long run in which each event is of a group of its own
/// takes no more slots than are swept at once.
#[test]
fn closed_windows_are_freed() {
    const EVENTS: i64 = 300_000;
    let int = |units: i64| Value::Int(units);
    let event = |number: i64| vec![int(number / 1_000), int(number), int(1), int(number)];
    for windows in [
        WindowsDef::Tumbling { length: int(2), origin: 0 },
        WindowsDef::Sliding { length: int(4), every: int(2), origin: 0 },
        WindowsDef::Session { gap: int(2) },
    ] {
        let plan = program(&windows, true, true);
        let program = tidemill_plan::analyze(&plan).expect("a valid plan");
        let history = History { plan, preload: vec![], sources: vec![(0..EVENTS).map(event).collect()] };
        let engine = Engine::new(program.clone()).expect("it compiles");
        let table = program.tables.keys().find(|&id| program.tables[id].name == "w.windows").expect("it has windows");
        let subject = Subject { program, history, expected: Default::default() };
        subject.run(&engine, Options { workers: 2, ..Options::default() }, 1_000);
        let left = engine.table(table).expect("rows in memory").num_rows();
        let slots = engine.table_stats(table).slots;
        assert!(left == 0 && slots < EVENTS as usize / 2, "{windows:?}: {left} rows, {slots} slots");
    }
}

/// Rows for first events are freed soon after their repeats end, and all of them at the end of time.
#[test]
fn first_events_are_forgotten() {
    let within = 80;
    let mut plan = program(&WindowsDef::Session { gap: Value::Int(1) }, false, true);
    let inputs = vec![named("events")];
    let windows = WindowsDef::Counting { count: 1 };
    let by = vec![("number".to_owned(), event("number"))];
    let over = Some(OverDef {
        by,
        windows,
        early: None,
        every: None,
        top: None,
        first: Some(Value::Int(within)),
        own: vec![],
    });
    plan.transactions = vec![TransactionDef {
        name: "once".into(),
        inputs,
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![],
    }];
    let click = |at: i64| vec![Value::Int(at), Value::Null, Value::Null, Value::Int(at)];
    let subject = Subject::new(History { plan, preload: vec![], sources: vec![(0..1_000).map(click).collect()] });
    let table = subject.program.tables.iter().position(|table| table.name == "once.windows").expect("it is kept there");
    let mut reference = Reference::new(&subject.program);
    for at in 0..1_000 {
        reference.run(&[vec![click(at)]]);
        let kept = reference.table(TableId::from(table)).len() as i64;
        assert!(kept <= within + within / 8, "{kept} rows at {at}");
    }
    assert_eq!(subject.expected.tables[table], Vec::<Vec<Value>>::new());
}
