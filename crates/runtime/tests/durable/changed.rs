//! Changes of a program over a state in which everything is open. Each field of each declaration of an operator, a table, a source or a stream is
//! changed, one at a time and in pairs. Either the state is refused, and not a byte of it has changed; or what the program gives from
//! then on is what it gives where it has run from the beginning.
//!
//! The changes are made by a walk through the plan as data, so a new field of a declaration is changed, too.

use super::{Again, Records};
use crate::support::{Kept, with_all_sinks};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tidemill_connect::System;
use tidemill_durability::{Bug, Fit, Identity, OpenState, Planted, Recorded, StateDirectory};
use tidemill_histories::Random;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, cell, event, late, named};
use tidemill_plan::{
    BatchSizeDef, Expire, Expr, ExprNode, JoinBound, JoinDef, JoinHow, OriginDef, OverDef, Plan, Program, StreamDef,
    TopDef, TransactionDef, WindowDef, WindowFunction, WindowsDef, analyze,
};
use tidemill_runtime::{Durability, DurabilityOptions, Engine, Options, Request, RunError, Sink, Source, state_rows};
use tidemill_sim::SimStorage;

type Row = Vec<Value>;

/// The number of changes that are tried however slow the machine is.
const TRIED_MIN: usize = 100;

fn asked(function: WindowFunction, field: &str) -> Expr {
    ExprNode::Aggregate { function, value: Some(Box::new(event(field))), by: None, argument: None }.into()
}

fn count() -> Expr {
    ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None }.into()
}

/// Returns a plan with the source of all events, and two streams of them.
fn plan(name: &str) -> PlanBuilder {
    PlanBuilder::new(name)
        .source("events", |s| {
            s.event_time("at", Type::Int).field("k", Type::Int).field("x", Type::Int).field("y", Type::Int).lateness(2)
        })
        .filter("large", named("events"), event("x").gt(1))
        .map(
            "moved",
            named("events"),
            [("at", event("at")), ("k", event("k")), ("x", event("x") + 1), ("y", event("y"))],
        )
}

fn length(units: i64) -> Value {
    Value::Int(units)
}

fn closes(b: &mut Block) {
    b.give([
        ("e", event("end")),
        ("n", count()),
        ("sum", asked(WindowFunction::Sum, "x")),
        ("least", asked(WindowFunction::Min, "y")),
        ("first", asked(WindowFunction::First, "x")),
    ]);
}

fn over(windows: WindowsDef, with: impl FnOnce(&mut OverDef)) -> Plan {
    let mut plan = plan("over").window("win", named("large"), [("k", event("k"))], windows, closes).build();
    with(plan.transactions[0].over.as_mut().expect("it is a window"));
    plan
}

fn join(bound: JoinBound, how: JoinHow) -> Plan {
    let mut plan = plan("join").transaction("pairs", [named("moved"), named("large")], |t| {
        t.body(|b| b.give([("x", event("p.x")), ("y", event("a.y"))]))
    });
    plan = plan.retire("earlier");
    let mut plan = plan.build();
    let on = vec![(event("k"), event("k"))];
    plan.transactions[0].join = Some(JoinDef { left: "p".into(), right: Some("a".into()), on, bound, how });
    plan
}

/// Returns a table whose rows have windowed columns and wake.
fn rows_of_users() -> Plan {
    let keep = WindowDef::Span { span: length(20), slide: Some(length(5)), distinct: false };
    plan("rows")
        .table("sums", |t| {
            t.key("k", Type::Int).column_or("sum", Type::Int, Value::Int(0)).window("recent", Type::Int, keep).window(
                "last",
                Type::Int,
                WindowDef::Last(3),
            )
        })
        .transaction("add", [named("large")], |t| {
            t.create("row", "sums", [event("k")]).body(|b| {
                b.set("row", "sum", cell("row", "sum") + event("x"));
                b.add("row", "recent", event("y"));
                b.add("row", "last", event("x"));
                b.wake("row", Some(event("at") + 30));
                b.give([("k", event("k")), ("sum", cell("row", "sum"))]);
            })
        })
        .build()
}

/// A table whose rows expire.
fn rows_that_expire(expire: Expire) -> Plan {
    plan("expiring")
        .table("last", |t| {
            let t = t.key("k", Type::Int).column_or("x", Type::Int, Value::Int(0));
            t.column("y", ColumnType::optional(Type::Int)).expire(expire)
        })
        .transaction("add", [named("large")], |t| {
            t.create("row", "last", [event("k")]).body(|b| {
                b.set("row", "x", cell("row", "x") + event("x"));
                b.set("row", "y", event("at") + event("y") + 12);
                b.give([("k", event("k")), ("x", cell("row", "x"))]);
            })
        })
        .build()
}

/// A plan for each operator, and some of users' rows.
fn plans() -> Vec<(&'static str, Plan)> {
    let tumbling = || WindowsDef::Tumbling { length: length(40), origin: 3 };
    let sliding = WindowsDef::Sliding { length: length(40), every: length(10), origin: 0 };
    let top = TopDef { count: 1, by: event("x"), ties: false };
    let ticks = plan("ticks").every("beat", length(10), 2).filter("odd", named("beat"), event("at").gt(20)).build();
    let sizes = [BatchSizeDef::Count(50), BatchSizeDef::Time { length: length(60), origin: 5 }];
    let [by_count, by_time] = sizes.map(|size| plan("batches").batch("some", named("events"), size).build());
    vec![
        ("tumbling", over(tumbling(), |_| {})),
        ("early", over(tumbling(), |over| over.early = Some(length(10)))),
        ("sliding", over(sliding, |_| {})),
        ("session", over(WindowsDef::Session { gap: length(15) }, |_| {})),
        ("counting", over(WindowsDef::Counting { count: 9 }, |_| {})),
        ("top", over(tumbling(), |over| over.top = Some(top))),
        ("first", over(tumbling(), |over| over.first = Some(length(50)))),
        ("within", join(JoinBound::Within(length(30)), JoinHow::Left)),
        ("joined over", join(JoinBound::Over(tumbling()), JoinHow::Inner)),
        ("ticks", ticks),
        ("by count", by_count),
        ("by time", by_time),
        ("late", plan("late").map("again", late("events"), [("x", event("x"))]).build()),
        ("rows", rows_of_users()),
        ("expires after", rows_that_expire(Expire::After(length(9)))),
        ("expires by", rows_that_expire(Expire::At("y".into()))),
    ]
}

/// Returns leaves that may stand in place of a leaf.
fn others(leaf: &Json) -> Vec<Json> {
    const NAMES: [&str; 5] = ["x", "y", "k", "large", "moved"];
    const WORDS: [&str; 9] = ["inner", "left", "outer", "sum", "min", "max", "count", "gt", "ge"];
    match leaf {
        Json::Number(number) => {
            let number = number.as_i64().unwrap_or(0);
            [number + 1, number * 2, number / 2].into_iter().filter(|other| *other != number).map(Json::from).collect()
        }
        Json::Bool(is) => vec![Json::Bool(!is)],
        Json::String(text) => {
            let same: &[&str] = if NAMES.contains(&text.as_str()) { &NAMES } else { &WORDS };
            let others = same.iter().filter(|other| **other != text && same.contains(&text.as_str()));
            others.map(|other| Json::from(*other)).collect()
        }
        _ => Vec::new(),
    }
}

/// Calls `give` with each variant of a part of a plan, in which one field is another or an element is gone.
fn each_variant(part: &Json, give: &mut dyn FnMut(Json)) {
    match part {
        Json::Object(members) => {
            for (name, value) in members {
                each_variant(value, &mut |other| {
                    let mut members = members.clone();
                    members.insert(name.clone(), other);
                    give(Json::Object(members));
                });
            }
        }
        Json::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                each_variant(element, &mut |other| {
                    let mut elements = elements.clone();
                    elements[at] = other;
                    give(Json::Array(elements));
                });
                let mut fewer = elements.clone();
                fewer.remove(at);
                give(Json::Array(fewer));
            }
        }
        leaf => others(leaf).into_iter().for_each(give),
    }
}

/// Returns the plans that differ from one in a field, and are valid. What transactions of users do is theirs to change.
fn variants(plan: &Plan) -> Vec<Plan> {
    let mut found = Vec::new();
    let whole = serde_json::to_value(plan).expect("a plan is plain data");
    each_variant(&whole, &mut |variant| {
        let Ok(other) = serde_json::from_value::<Plan>(variant) else { return };
        let is_of_user = |t: &TransactionDef| t.over.is_none() && t.join.is_none();
        let users = |plan: &Plan| plan.transactions.iter().filter(|t| is_of_user(t)).cloned().collect::<Vec<_>>();
        let is_named = other.name == plan.name && other.version == plan.version && other.limits == plan.limits;
        if is_named && users(&other) == users(plan) && analyze(&with_all_sinks(&other)).is_ok() {
            found.push(other);
        }
    });
    found
}

fn program(plan: &Plan) -> Program {
    analyze(&with_all_sinks(plan)).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// Returns events at growing times, some of them late.
fn records(random: &mut Random, from: i64, count: usize) -> Vec<Row> {
    let mut now = from;
    let record = |_| {
        now += random.below(3) as i64;
        let at = now - random.below(4) as i64;
        [at, random.below(3) as i64, random.below(6) as i64, random.below(9) as i64 - 4].map(Value::Int).to_vec()
    };
    (0..count).map(record).collect()
}

/// The events that a life gives, by stream.
type Given = BTreeMap<String, Vec<Row>>;

fn open(machine: &SimStorage, plan: &Plan, program: &Program) -> Result<StateDirectory, RunError> {
    let recorded = Recorded { plan: with_all_sinks(plan), sources: BTreeMap::new(), sinks: BTreeMap::new() };
    Ok(StateDirectory::open(OpenState {
        storage: Arc::new(machine.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(program),
        recorded: Some(recorded),
    })?)
}

/// Runs a program over further events of the source of a state, which is brought to the program first.
fn live(machine: &SimStorage, plan: &Plan, events: &[Row], planted: Planted, ends: bool) -> Result<Given, RunError> {
    let program = program(plan);
    let mut engine = Engine::new(program.clone()).expect("it compiles");
    let mut directory = open(machine, plan, &program)?;
    directory.plant(planted);
    if let Fit::Migrates(_) = directory.fit() {
        let recorded = directory.manifest().and_then(|manifest| manifest.recorded.clone()).expect("it is recorded");
        engine.migrate(&mut directory, &analyze(&recorded.plan).expect("it was valid"))?;
        engine = engine.with_empty_tables();
    }
    let sources = program.sources().map(|stream| {
        let given = if stream.name == "events" { events } else { &[] };
        let brought = stream.schema.fields.len();
        let given: Vec<Row> = given.iter().map(|row| row[..brought.min(row.len())].to_vec()).collect();
        Box::new(Records::new(batch_of(&stream.schema, &given), 7, Again::Given)) as Box<dyn Source>
    });
    let sources = sources.collect();
    let kept: Vec<Kept> = program.sinks.iter().map(|_| Kept::default()).collect();
    let sinks = kept.iter().map(|kept| Box::new(kept.clone()) as Box<dyn Sink>).collect();
    let options = DurabilityOptions { is_final: ends, ..DurabilityOptions::default() };
    let request = Request {
        options: Options { workers: 1, ..Options::default() },
        durability: Some(Durability { directory, options }),
        ..Request::new(sources, sinks, Arc::new(System::new()))
    };
    engine.run(request, &mut || {})?;
    let of = |(kept, sink): (&Kept, &tidemill_plan::Sink)| {
        let stream = &program.streams[sink.stream];
        let rows = kept.0.lock().iter().flat_map(|batch| rows(batch, &stream.schema)).collect();
        (stream.name.clone(), rows)
    };
    Ok(kept.iter().zip(&program.sinks).map(of).collect())
}

/// Returns the files of a state, but for the one that says who holds it.
fn files(machine: &SimStorage) -> BTreeMap<PathBuf, Vec<u8>> {
    machine.files().into_iter().filter(|(path, _)| !path.ends_with("lock")).collect()
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    /// The program goes on, as if it had been this one from the beginning.
    Exact,
    /// A table of users, what comes to it, or what sources give, is another: a run from the beginning has other rows. Nothing is
    /// compared.
    Others,
}

/// Tries a change of a program over a state of it. Returns its outcome, or what is wrong.
fn change(
    before: &SimStorage,
    was: &Plan,
    is: &Plan,
    pieces: [&[Row]; 2],
    planted: Planted,
) -> Result<Outcome, String> {
    let machine = before.copy();
    let given = match live(&machine, is, pieces[1], planted, true) {
        Ok(given) => given,
        Err(RunError::State(_)) => {
            return if files(&machine) == files(before) { Ok(Outcome::Refused) } else { Err("files differ".into()) };
        }
        Err(error) => return Err(error.to_string()),
    };
    let may_differ = !is.tables.is_empty() && was.streams != is.streams;
    if was.tables != is.tables || sources(was) != sources(is) || may_differ {
        return Ok(Outcome::Others);
    }
    let whole = SimStorage::new(2);
    let is_one = Plan { schema_version: 1, ..is.clone() };
    live(&whole, &is_one, pieces[0], Planted::default(), false)
        .map_err(|error| format!("from the beginning: {error}"))?;
    let expected = live(&whole, &is_one, pieces[1], Planted::default(), true);
    let expected = expected.map_err(|error| format!("from the beginning: {error}"))?;
    if given == expected { Ok(Outcome::Exact) } else { Err(format!("gives {given:?}\nfor {expected:?}")) }
}

fn sources(plan: &Plan) -> Vec<&StreamDef> {
    plan.streams.iter().filter(|stream| matches!(stream.origin, OriginDef::Source { .. })).collect()
}

/// Returns the group expressions of each window.
fn groups(plan: &Plan) -> Vec<&Vec<(String, Expr)>> {
    plan.transactions.iter().filter_map(|transaction| Some(&transaction.over.as_ref()?.by)).collect()
}

/// Returns the state of a plan in which everything is open.
fn begun(name: &str, plan: &Plan, events: &[Row]) -> SimStorage {
    let machine = SimStorage::new(1);
    live(&machine, plan, events, Planted::default(), false).expect("no fault");
    let program = program(plan);
    let directory = open(&machine, plan, &program).expect("it fits");
    let open =
        program.tables.iter().zip(state_rows(&directory, &program).expect("it reads")).filter(|(table, batch)| {
            let holds = [".windows", ".rows", ".wakes"].iter().any(|part| table.name.ends_with(part));
            (holds || table.expire.is_some()) && batch.num_rows() > 0
        });
    assert!(
        open.count() > 0 || ["top", "ticks", "by count", "by time", "late"].contains(&name),
        "{name}: nothing is open"
    );
    drop(directory);
    machine
}

/// A plan with a state of it in which everything is open.
struct Begun {
    name: &'static str,
    plan: Plan,
    before: SimStorage,
    /// The input before that state, and the input after it.
    pieces: [Vec<Row>; 2],
}

impl Begun {
    fn of((name, plan): (&'static str, Plan), random: &mut Random) -> Begun {
        let events = records(random, 0, 40);
        let last = events.iter().filter_map(|row| row[0].word()).max().unwrap_or(0);
        let rest = records(random, last, 40);
        Begun { name, before: begun(name, &plan, &events), plan, pieces: [events, rest] }
    }

    /// Returns changes of the plan, each alone and some in pairs.
    fn changes(&self, pairs: usize, random: &mut Random) -> Vec<Plan> {
        let mut changed = variants(&self.plan);
        assert!(changed.len() > 3, "{} has {} changes", self.name, changed.len());
        for _ in 0..pairs {
            let first = &changed[random.below(changed.len())];
            let second = variants(first);
            changed.extend(random.pick_any(&second).cloned());
        }
        changed
    }
}

/// Tries changes of all plans, in any order, as long as there is time; by plan the outcomes, and what was found wrong.
fn search(
    planted: Planted,
    pairs: usize,
    plans: Vec<(&'static str, Plan)>,
) -> (BTreeMap<&'static str, Vec<Outcome>>, Vec<String>) {
    let (mut outcomes, mut wrong) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
    let mut random = Random::new(crate::number("TIDEMILL_SEED", 1));
    let begun: Vec<Begun> = plans.into_iter().map(|plan| Begun::of(plan, &mut random)).collect();
    let mut changes: Vec<(&Begun, Plan)> = Vec::new();
    for one in &begun {
        changes.extend(one.changes(pairs, &mut random).into_iter().map(|plan| (one, plan)));
    }
    random.shuffle(&mut changes);
    let begin = Instant::now();
    for (tried, (Begun { name, plan, before, pieces: [events, rest] }, mut is)) in changes.into_iter().enumerate() {
        if tried >= TRIED_MIN && !crate::has_time_for_part(begin) {
            break;
        }
        is.schema_version = 1 + random.below(2) as u64;
        // Rows of other groups have other keys, which no table takes.
        if planted != Planted::default() && groups(plan) != groups(&is) {
            continue;
        }
        match change(before, plan, &is, [events, rest], planted) {
            Ok(outcome) => outcomes.entry(*name).or_default().push(outcome),
            Err(why) => wrong.push(format!("{name}: {why}\n{}", serde_json::to_string(&is).expect("plain data"))),
        }
    }
    (outcomes, wrong)
}

#[test]
fn a_changed_program_goes_on_exactly_or_not_at_all() {
    let (outcomes, wrong) = search(Planted::default(), 8, plans());
    let counts: BTreeMap<_, _> = outcomes.iter().map(|(name, outcomes)| (name, outcomes.len())).collect();
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} changes, the first of them: {}", wrong.len(), wrong[0]);
    let all: Vec<Outcome> = outcomes.values().flatten().copied().collect();
    assert!(all.contains(&Outcome::Refused) && all.contains(&Outcome::Exact), "{outcomes:?}");
}

/// The search finds results that no run from the beginning has, without the look at what is open.
#[test]
fn planted_what_is_open_is_taken_over_as_it_is() {
    // With other changes a run does not even end.
    let plans = plans().into_iter().filter(|(name, _)| ["tumbling", "session"].contains(name)).collect();
    let (_, wrong) = search(Planted::new(Bug::OpenTakenOver), 0, plans);
    assert!(!wrong.is_empty(), "the bug is found");
}
