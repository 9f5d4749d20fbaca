//! Windows by hand: what is in them at each edge, and the bytes.

use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, committed, event, named, window};
use tidemill_plan::{Aggregate, WindowDef, WindowPart, analyze};
use tidemill_reference::Reference;

/// What one window says after each event (time, value), as text.
fn answers(value: Type, kept: WindowDef, part: Option<WindowPart>, events: &[(i64, Value)]) -> Vec<String> {
    run(value, kept, part, events).0
}

/// The same, with the bytes at the end.
fn run(value: Type, kept: WindowDef, part: Option<WindowPart>, events: &[(i64, Value)]) -> (Vec<String>, Vec<u8>) {
    use Aggregate::*;
    let distinct = matches!(kept, WindowDef::Span { distinct: true, .. }) || value.is_bytes();
    let asked: Vec<Aggregate> = if distinct { vec![Distinct] } else { vec![Count, Sum, Mean, Min, Max] };
    let plan = PlanBuilder::new("windows")
        .table("t", |t| t.key("id", Type::Int).window("w", value, kept))
        .source("s", |s| s.event_time("at", Type::Int).field("v", value).lateness(1_000))
        .transaction("tx", [named("s")], |t| {
            t.create("r", "t", [1.into()]).body(|b| {
                b.add("r", "w", event("v"));
                let ask = |(n, a): (usize, &Aggregate)| (format!("a{n}"), window("r", "w", part.clone(), *a));
                b.give(tidemill_plan::build::record(asked.iter().enumerate().map(ask)));
            })
        })
        .sink("out", committed("tx"))
        .build();
    let program = analyze(&plan).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut reference = Reference::new(&program);
    reference.run(&[events.iter().map(|(at, value)| vec![Value::Int(*at), value.clone()]).collect()]);
    let line = |row: &Vec<Value>| row.iter().map(Value::to_string).collect::<Vec<_>>().join(" ");
    let said = reference.output(program.sinks[0].stream).iter().map(line).collect();
    let Value::Bytes(bytes) = &reference.table(0.into())[0][1] else { panic!("a window is bytes") };
    (said, bytes.clone())
}

fn span(span: i64, slide: Option<i64>, distinct: bool) -> WindowDef {
    WindowDef::Span { span: Value::Int(span), slide: slide.map(Value::Int), distinct }
}

fn ints(events: &[(i64, i64)]) -> Vec<(i64, Value)> {
    events.iter().map(|(at, v)| (*at, Value::Int(*v))).collect()
}

#[test]
fn without_a_slide_the_edge_is_open_below() {
    let events = ints(&[(0, 1), (9, 2), (10, 4), (19, 8), (20, 16)]);
    let said = answers(Type::Int, span(10, None, false), None, &events);
    // At 10 what was added at 0 is gone; at 19 what was added at 9; at 20 what was added at 10.
    assert_eq!(said, ["1 1 1.0 1 1", "2 3 1.5 1 2", "2 6 3.0 2 4", "2 12 6.0 4 8", "2 24 12.0 8 16"]);
}

#[test]
fn with_a_slide_whole_slices_leave() {
    let events = ints(&[(-1, 1), (0, 2), (9, 4), (10, 8), (19, 16), (20, 32), (45, 64)]);
    let said = answers(Type::Int, span(20, Some(10), false), None, &events);
    let sums: Vec<&str> = said.iter().map(|line| line.split(' ').nth(1).expect("a sum")).collect();
    assert_eq!(sums, ["1", "3", "7", "14", "30", "56", "64"]);
    let part = Some(WindowPart::Span(Value::Int(10)));
    let said = answers(Type::Int, span(20, Some(10), false), part, &events);
    let sums: Vec<&str> = said.iter().map(|line| line.split(' ').nth(1).expect("a sum")).collect();
    assert_eq!(sums, ["1", "2", "6", "8", "24", "32", "64"]);
}

#[test]
fn late_events_are_added_at_their_time() {
    // Within the lateness they come in the order of time, whatever the order of arrival.
    let events = ints(&[(20, 4), (5, 1), (12, 2)]);
    assert_eq!(
        answers(Type::Int, span(10, None, false), None, &events),
        answers(Type::Int, span(10, None, false), None, &ints(&[(5, 1), (12, 2), (20, 4)]))
    );
}

#[test]
fn distinct_values_leave_with_their_last_slice() {
    let events = ints(&[(0, 7), (1, 7), (5, 8), (10, 7), (15, 9), (29, 9), (30, 9)]);
    assert_eq!(answers(Type::Int, span(20, Some(10), true), None, &events), ["1", "1", "2", "2", "3", "2", "1"]);
    let (_, bytes) = run(Type::Int, span(20, Some(10), true), None, &ints(&[(0, 7), (5, 8), (10, 7)]));
    let words: Vec<i64> = bytes.chunks(8).map(|word| i64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    assert_eq!(words, [0, 8, 1, 7]);
}

#[test]
fn the_last_values_and_texts() {
    let events = ints(&[(0, 1), (0, 2), (1, 4), (1_000_000, 8)]);
    let last = |part| answers(Type::Int, WindowDef::Last(3), part, &events).pop().expect("an answer");
    assert_eq!(last(None), "3 14 4.666666666666667 2 8");
    assert_eq!(last(Some(WindowPart::Last(2))), "2 12 6.0 4 8");
    let texts = ["a", "b", "a", "a"].map(|text| (0, Value::Str(text.into())));
    let (said, bytes) = run(Type::Str, WindowDef::Last(2), None, &texts);
    assert_eq!(said, ["1", "2", "2", "1"]);
    assert_eq!(bytes, [[1, 0, 0, 0, 0, 0, 0, 0, b'a'], [1, 0, 0, 0, 0, 0, 0, 0, b'a']].concat());
}

#[test]
fn decimals_and_floats() {
    let money = Type::Decimal { digits: 10, scale: 2 };
    let cents: Vec<(i64, Value)> = [1, 2, 0, -5, -5].map(|v| (0, Value::Decimal(v))).into();
    // Half to even: 1.5 is 2, -0.5 is 0, -1.4 is -1.
    let said = answers(money, span(1, None, false), None, &cents);
    assert_eq!(said, ["1 1 1 1 1", "2 3 2 1 2", "3 3 1 0 2", "4 -2 0 -5 2", "5 -7 -1 -5 2"]);
    let floats: Vec<(i64, Value)> = [-0.0, 0.0, f64::NAN, 1.0].map(|v| (0, Value::Float(v))).into();
    let said = answers(Type::Float, span(1, None, false), None, &floats);
    assert_eq!(said, ["1 -0.0 -0.0 -0.0 -0.0", "2 0.0 0.0 -0.0 -0.0", "3 NaN NaN NaN NaN", "4 NaN NaN NaN NaN"]);
}

#[test]
fn sums_are_exact_until_they_are_asked_for() {
    let events = ints(&[(0, i64::MAX), (0, 1), (0, -2)]);
    let said = answers(Type::Int, span(1, None, false), None, &events);
    // The second aborts, and with it what it added.
    assert_eq!(
        said,
        [
            "1 9223372036854775807 9.223372036854776e18 9223372036854775807 9223372036854775807",
            "2 9223372036854775805 4.611686018427388e18 -2 9223372036854775807"
        ]
    );
}
