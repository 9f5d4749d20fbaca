//! Random plans are valid, run, commit often enough, and reach what they are meant to reach.

mod common;

use common::Seen;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use tidemill_histories::{PlanSize, is_of_calls, random_apart_plan, random_call_plan, random_history};
use tidemill_model::Value;
use tidemill_plan::typed::{Expr, Node};
use tidemill_plan::{
    BatchSize, Bound, Operations, Origin, OutputField, Program, RoleId, Stream, StreamId, TransactionId, Waves, analyze,
};

const SEEDS: u64 = 1_000;

fn size(seed: u64) -> PlanSize {
    [PlanSize::Small, PlanSize::Medium, PlanSize::Large][seed as usize % 3]
}

#[test]
fn a_seed_means_one_history() {
    for seed in 0..30 {
        let (one, other) = (random_history(seed, size(seed)), random_history(seed, size(seed)));
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }
}

#[test]
fn every_plan_is_valid_and_all_is_reached() {
    let mut found = BTreeMap::new();
    let mut aborts = BTreeMap::new();
    let (mut committed, mut aborted, mut busy, mut timed) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let history = random_history(seed, size(seed));
        let program = analyze(&history.plan).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}"));
        let seen = Seen::of(&program, &history);
        kinds(&serde_json::to_value(&program).expect("programs can be written"), "", &mut found);
        streams(&program, &seen, &mut found);
        let mut commits = false;
        for (transaction, counts) in program.transactions.iter().zip(&seen.counts) {
            committed += counts.committed;
            commits |= counts.committed > 0;
            for (reason, count) in transaction.reasons.iter().zip(&counts.aborted) {
                aborted += count;
                *aborts.entry(abort_kind(reason)).or_insert(0) += count;
            }
        }
        busy += u64::from(commits);
        timed += u64::from(program.streams.iter().any(|stream| matches!(stream.origin, Origin::Due(_))));
    }
    let share = committed * 100 / (committed + aborted);
    println!("{committed} committed, {aborted} aborted, {busy} of {SEEDS} plans commit, in {timed} something is due");
    println!("{aborts:#?}\n{found:#?}");
    assert!(timed * 3 > SEEDS, "windows, joins or timers are in {timed} of {SEEDS} plans");
    assert!((50..90).contains(&share), "{share} % of the transactions commit");
    assert!(busy * 100 > SEEDS * 70, "{busy} of {SEEDS} plans commit anything");
    assert_eq!(aborts.get("cannot fail").copied().unwrap_or(0), 0, "what analysis takes to be safe failed");
    for kind in ABORTS {
        assert!(aborts.get(kind).is_some_and(|n| *n >= 20), "aborts of the kind '{kind}' are rare: {aborts:#?}");
    }
    for kind in KINDS {
        assert!(found.get(*kind).is_some_and(|n| *n >= 5), "'{kind}' is rare: {found:#?}");
    }
    for kind in MERGES.iter().chain(NESTED) {
        assert!(found.contains_key(*kind), "'{kind}' does not occur: {found:#?}");
    }
}

/// The reasons for which transactions must abort now and then.
const ABORTS: [&str; 13] = [
    "None",
    "conversion failed",
    "decimal overflow",
    "division by zero",
    "integer overflow",
    "key",
    "nested",
    "no row",
    "row exists",
    "not enough",
    "refused",
    "too many steps",
    "too much memory",
];

/// Returns the first words of a reason, which say its kind.
fn abort_kind(reason: &str) -> String {
    // A root names the transaction that aborted.
    let nested = reason.split_once(": ").filter(|(of, _)| of.starts_with('t') && of[1..].parse::<u32>().is_ok());
    if nested.is_some() {
        return "nested".into();
    }
    let kind = reason.split(" in ").next().unwrap_or_default();
    kind.split(" of ").next().unwrap_or_default().to_owned()
}

/// The parts that must occur in programs: statements, nodes, their operations, what roles do; and streams that
/// something came out of.
#[rustfmt::skip]
const KINDS: &[&str] = &[
    "wakes within epochs, with waves", "wakes within epochs, without waves",
    "Assign", "Set", "If", "ForEach", "ForRange", "Break", "Continue", "Require", "Abort", "Insert", "Delete", "Emit",
    "Return", "Count Steps", "Count Memory", "Count Text", "Count List", "Counted Read", "Counted Made",
    "Const", "Field", "Element", "Local", "Cell", "Exists", "Rows", "Length", "Unwrap", "IsNull", "WordNeg", "WordAbs",
    "FloatNeg", "FloatAbs", "And", "Or", "Not", "IfElse", "Concat", "Len", "List",
    "Word Add", "Word Sub", "Word Mul", "Word FloorDiv", "Word Mod", "Word DecimalDiv", "Word Min", "Word Max",
    "Float Add", "Float Sub", "Float Mul", "Float Div", "Float FloorDiv", "Float Mod", "Float Min", "Float Max",
    "Compare eq", "Compare ne", "Compare lt", "Compare le", "Compare gt", "Compare ge", "Equal",
    "Math Sqrt", "Math Fmod", "Math Exp", "Math Log", "Math Log2", "Math Log10", "Math Pow", "Math Sin", "Math Cos", "Math Tan", "Math Atan2",
    "Math Hypot", "Cast FloatFloor", "Cast FloatCeil", "Cast ScaleFloor", "Cast ScaleCeil",
    "TextCall Find", "TextCall Replace", "TextCall Slice", "TextCall At", "TextCall Zfill", "TextCall Part", "TextCall Parts",
    "TextCall SpacedPart", "TextCall SpacedParts", "TextCall Separator",
    "DatePart year", "DatePart month", "DatePart day", "DatePart hour", "DatePart minute", "DatePart second", "DatePart microsecond",
    "DatePart weekday", "DatePart iso_weekday", "DatePart iso_year", "DatePart iso_week",
    "Cast Relabel", "Cast BoolToInt", "Cast IntToFloat", "Cast WordToFloat", "Cast FloatToInt", "Cast FloatRound",
    "Cast ScaleUp", "Cast ScaleRound", "Cast ScaleTruncate", "Cast FitDigits", "Cast StrToInt", "Cast StrToFloat",
    "Cast IntToStr", "Cast BoolToStr", "Cast DecimalToStr",
    "Text Lower", "Text Upper", "Text Strip", "TextTest StartsWith", "TextTest EndsWith", "TextTest Contains",
    "WindowAdd", "WindowRead", "Slices", "Distinct", "Last", "WindowRead count", "WindowRead sum", "WindowRead mean",
    "WindowRead min", "WindowRead max", "WindowRead distinct", "Records", "Latest", "WindowNext", "WindowField", "Pack", "Period", "Synopsis", "SynopsisRead value", "SynopsisRead times",
    "SynopsisRead distinct", "SynopsisRead quantile", "SynopsisRead frequency",
    "missing Abort", "missing Default", "a row for each row", "one that is written", "one for each of those", "Same", "Between", "Ascending", "Descending",
    "out Source", "out Filter", "out Map", "out Committed", "out Aborted", "out Emitted", "out Late", "out LateRoot", "out Batch", "out batches by time", "out Failed",
    "out closes", "out closes of a calendar", "out early results", "out tops", "out changes", "out expired", "out gone", "out first events", "out refused", "out ticks", "out wakes", "out pairs", "out unmatched", "out freed", "out rows",
    "cascade 1", "cascade 2", "late in a transaction", "late in a window", "late in a join", "several inputs", "several deliveries", "Root", "In",
    "a passed list in a transaction", "a passed list in a filter or map",
];

/// The merges of folded events that must occur. Few programs let them be; `runtime/tests/over` has windows of which
/// most are, with `any` and `all`.
const MERGES: &[&str] =
    &["merged Sum", "merged Least", "merged Greatest", "merged Last", "merged Best", "merged Window"];

/// Parts of nests that must occur, which few plans have.
const NESTED: &[&str] = &["a passed list in a nested step"];

/// Counts the variants of a program's enums. These are written as a name with a capital, alone or
/// with what is in it; an operation goes by the name of its node too.
fn kinds(json: &Json, before: &str, found: &mut BTreeMap<String, usize>) {
    let mut note = |name: &str| *found.entry(format!("{before}{name}")).or_insert(0) += 1;
    match json {
        Json::String(name) => note(name),
        Json::Array(parts) => parts.iter().for_each(|part| kinds(part, "", found)),
        Json::Object(parts) => {
            for (name, part) in parts {
                let is_variant = name.starts_with(char::is_uppercase);
                if is_variant {
                    found.entry(format!("{before}{name}")).and_modify(|n| *n += 1).or_insert(1);
                }
                match part {
                    Json::Object(inner) if is_variant => operation(name, inner, found),
                    _ if name == "missing" => kinds(part, "missing ", found),
                    _ => {}
                }
                kinds(part, "", found);
            }
        }
        _ => {}
    }
}

fn operation(node: &str, inner: &serde_json::Map<String, Json>, found: &mut BTreeMap<String, usize>) {
    for name in ["op", "cast", "aggregate", "measure", "count", "ask", "part"] {
        if let Some(part) = inner.get(name) {
            kinds(part, &format!("{node} "), found);
        }
    }
}

/// Counts the streams that something came out of, by origin, and what is joined or forked.
fn streams(program: &Program, seen: &Seen, found: &mut BTreeMap<String, usize>) {
    let mut note = |name: String| *found.entry(name).or_insert(0) += 1;
    if program.has_stretches() && program.dues().iter().any(|&stream| !seen.outputs[stream].is_empty()) {
        note(format!("wakes within epochs, {} waves", if Waves::of(program).is_some() { "with" } else { "without" }));
    }
    for (stream, output) in program.streams.iter().zip(&seen.outputs) {
        if stream.deliveries.len() > 1 {
            note("several deliveries".into());
        }
        if !output.is_empty() {
            for kind in ["pairs", "refused"] {
                if stream.name.ends_with(&format!(".{kind}")) {
                    note(format!("out {kind}"));
                }
            }
            match stream.origin {
                Origin::Committed(of) if program.gives_first(of) => note("out first events".into()),
                Origin::Committed(_) if stream.name.ends_with(".early") => note("out early results".into()),
                Origin::Emitted(of, _) if program.transactions[of].name == stream.name => note("out tops".into()),
                Origin::Committed(_) if stream.name.ends_with(".expired") => note("out expired".into()),
                Origin::Committed(of) if program.transactions[of].name == stream.name && stream.name.contains('.') => {
                    note("out changes".into());
                }
                _ => {}
            }
            let origin = format!("{:?}", stream.origin);
            let end = origin.find(|c: char| !c.is_alphabetic()).unwrap_or(origin.len());
            note(format!("out {}", &origin[..end]));
            if matches!(&stream.origin, Origin::Batch(batch) if matches!(batch.size, BatchSize::Time { .. })) {
                note("out batches by time".into());
            }
            if let Origin::Due(due) = &stream.origin {
                let kind = match due.bound {
                    Bound::Wakes { .. } if due.is_expiry(program) => "gone",
                    Bound::Wakes { .. } => "wakes",
                    Bound::Ticks { .. } => "ticks",
                    Bound::Rows { .. } if output.iter().any(|event| event[0] != Value::Null) => "rows",
                    Bound::Rows { .. } => "boundaries of rows",
                    Bound::Periods(_) => "closes of a calendar",
                    _ if stream.name.ends_with(".unmatched") => "unmatched",
                    _ if stream.name.ends_with(".freed") => "freed",
                    _ => "closes",
                };
                note(format!("out {kind}"));
            }
        }
    }
    passed_lists(program, seen, &mut note);
    for ((id, transaction), counts) in program.transactions.iter_enumerated().zip(&seen.counts) {
        for merge in program.fold(id).filter(|_| counts.committed > 0).iter().flat_map(|fold| &fold.columns) {
            let name = format!("{merge:?}");
            note(format!("merged {}", name.split([' ', '(']).next().unwrap_or_default()));
        }
        if transaction.inputs.len() > 1 {
            note("several inputs".into());
        }
        for role in transaction.roles.iter().filter(|role| role.each.is_some() && counts.committed > 0) {
            let mut through = false;
            let is_for_each = |role: RoleId| transaction.roles[role].each.is_some();
            let mut look = |inner: &Expr| {
                through |= matches!(inner.node, Node::Cell { role, .. } if is_for_each(role));
            };
            role.key.iter().for_each(|part| part.each(&mut look));
            note("a row for each row".into());
            let kinds = [("one that is written", role.written), ("one for each of those", through)];
            kinds.into_iter().filter(|(_, is)| *is).for_each(|(kind, _)| note(kind.into()));
        }
        let of_late = |&input: &StreamId| {
            let root = program.streams[input].root;
            matches!(program.streams[root].origin, Origin::LateRoot(_)) && !seen.outputs[input].is_empty()
        };
        for &input in transaction.inputs.iter().filter(|&input| counts.committed > 0 && of_late(input)) {
            let side = program.streams[input].name.rsplit_once('.').map(|(_, side)| side);
            note(match (side, transaction.is_hidden()) {
                (Some("left" | "right"), _) => "late in a join".into(),
                (_, true) => "late in a window".into(),
                _ => "late in a transaction".into(),
            });
        }
        if counts.committed > 0 {
            note(format!("cascade {}", depth(program, transaction.inputs[0])));
        }
    }
}

/// Notes what opens lists that transactions passed on, where some of these had elements.
fn passed_lists(program: &Program, seen: &Seen, note: &mut impl FnMut(String)) {
    let has_elements = |value: &Value| matches!(value, Value::List(elements) if !elements.is_empty());
    let is_passed = |&stream: &StreamId| {
        let is_of_source = program.streams[program.streams[stream].root].origin.is_of_source();
        !is_of_source && seen.outputs[stream].iter().flatten().any(has_elements)
    };
    for (transaction, counts) in program.transactions.iter().zip(&seen.counts) {
        let opens = !transaction.is_hidden() && !transaction.loops.is_empty() && counts.committed > 0;
        if opens && transaction.inputs.iter().any(is_passed) {
            note(format!("a passed list in a {}", if transaction.is_nested() { "nested step" } else { "transaction" }));
        }
    }
    for stream in &program.streams {
        let (input, exprs): (_, Vec<&Expr>) = match &stream.origin {
            Origin::Filter { input, predicate, .. } => (input, vec![predicate]),
            Origin::Map { input, fields, .. } => {
                let values = fields.iter().filter_map(|field| match field {
                    OutputField::Value(value) => Some(value),
                    OutputField::List(_) => None,
                });
                (input, values.collect())
            }
            _ => continue,
        };
        let mut opens = false;
        exprs.iter().for_each(|expr| expr.each(&mut |inner| opens |= matches!(inner.node, Node::Length(_))));
        if opens && is_passed(input) {
            note("a passed list in a filter or map".into());
        }
    }
}

/// Returns the number of transactions that lead to a stream.
fn depth(program: &Program, stream: StreamId) -> usize {
    match program.streams[program.streams[stream].root].origin {
        Origin::Committed(t) | Origin::Aborted(t) | Origin::Emitted(t, _) => {
            1 + depth(program, program.transactions[t].inputs[0])
        }
        _ => 0,
    }
}

/// Speculation takes lists apart element by element, in plans that are made for it.
#[test]
fn lists_are_taken_apart_and_left_whole() {
    let (mut apart, mut whole) = (0, 0);
    for seed in 0..SEEDS {
        let plan = random_apart_plan(seed);
        let program = analyze(&plan).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}"));
        for (id, transaction) in program.transactions.iter_enumerated() {
            let over_lines = transaction.roles.iter().any(|role| role.name == "line" && role.written);
            let by_element = |parts: Operations| parts.operations.iter().any(|operation| operation.list.is_some());
            match Operations::of(&program, id).is_some_and(by_element) {
                true => apart += 1,
                false => whole += u64::from(over_lines),
            }
        }
    }
    println!("{apart} by element, {whole} not");
    assert!(apart >= SEEDS / 10 && whole >= SEEDS / 20, "{apart} by element, {whole} not");
}

/// The properties that must occur in plans that are called.
const OF_CALLS: [&str; 9] = [
    "has the time of its position",
    "keeps answers",
    "has one transaction",
    "has several transactions",
    "is in batches",
    "begins a nest",
    "goes on to others",
    "beside events with times",
    "in a window or a join",
];

#[test]
fn plans_that_are_called_are_valid_and_all_is_reached() {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let plan = random_call_plan(seed, size(seed));
        let program = analyze(&plan).unwrap_or_else(|errors| panic!("seed {seed}: {errors:#?}"));
        let calls = || program.streams.iter_enumerated().filter(|(_, stream)| is_of_calls(stream));
        assert!(calls().next().is_some(), "seed {seed}: nothing is called");
        for (id, stream) in calls() {
            let takes = |delivery: &&tidemill_plan::Delivery| !program.transactions[delivery.transaction].is_hidden();
            let procedures: Vec<_> = stream.deliveries.iter().filter(takes).map(|of| of.transaction).collect();
            let is_batch = |other: &Stream| matches!(&other.origin, Origin::Batch(batch) if batch.source == id);
            let follows = |t: TransactionId| {
                program.streams[program.transactions[t].committed.stream].deliveries.iter().filter(takes).count() > 0
            };
            let is_there = [
                stream.is_anchored(),
                stream.remembers().is_some(),
                procedures.len() == 1,
                procedures.len() > 1,
                program.streams.iter().any(is_batch),
                procedures.iter().any(|&t| program.transactions[t].is_root()),
                procedures.iter().any(|&t| follows(t)),
                program.sources().any(|other| other.own_time().is_some()),
                stream.deliveries.len() > procedures.len(),
            ];
            for (what, _) in OF_CALLS.into_iter().zip(is_there).filter(|(_, is_there)| *is_there) {
                *found.entry(what).or_default() += 1;
            }
        }
    }
    println!("{found:#?}");
    for what in OF_CALLS {
        assert!(found.get(what).is_some_and(|n| *n >= 10), "'{what}' is rare: {found:#?}");
    }
}
