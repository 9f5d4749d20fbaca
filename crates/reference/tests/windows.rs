//! Windows by hand: what is in them at each edge, and the bytes.

use tidemill_model::{Type, Value};
use tidemill_plan::build::{PlanBuilder, committed, event, named, window};
use tidemill_plan::{Aggregate, WindowDef, WindowPart, analyze};
use tidemill_reference::Reference;

/// Returns the answers of one window after each event (time, value), as text.
fn answers(value: Type, kept: WindowDef, part: Option<WindowPart>, events: &[(i64, Value)]) -> Vec<String> {
    run(value, kept, part, events).0
}

/// Returns the answers of one window after each event, with the bytes at the end.
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
    assert_eq!(said, ["1 0.0 0.0 -0.0 -0.0", "2 0.0 0.0 -0.0 0.0", "3 NaN NaN NaN NaN", "4 NaN NaN NaN NaN"]);
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

fn floats(values: &[f64]) -> Vec<(i64, Value)> {
    values.iter().map(|value| (0, Value::Float(*value))).collect()
}

/// Sum and mean of values in one slice, and of as many last values, which are the same.
fn sum_and_mean(values: &[f64]) -> (f64, f64) {
    let said = [span(1, None, false), WindowDef::Last(100)].map(|kept| {
        let said = answers(Type::Float, kept, None, &floats(values)).pop().expect("an answer");
        let numbers: Vec<f64> = said.split(' ').map(|number| number.parse().expect("a number")).collect();
        assert_eq!(numbers[0], values.len() as f64);
        (numbers[1], numbers[2])
    });
    assert_eq!(format!("{:?}", said[0]), format!("{:?}", said[1]));
    said[0]
}

#[test]
fn sums_of_floats_are_exact_and_rounded_once() {
    assert_eq!(sum_and_mean(&[0.1; 10]), (1.0, 0.1));
    assert_eq!(sum_and_mean(&[1e16, 1.0, -1e16]).0, 1.0);
    assert_eq!(sum_and_mean(&[1e300, 1e-300, -1e300]).0, 1e-300);
    assert_eq!(sum_and_mean(&[1e308, 1e308, -1e308]).0, 1e308);
    assert_eq!(sum_and_mean(&[1e308, 1e308, 1e308]), (f64::INFINITY, 1e308));
    assert_eq!(sum_and_mean(&[5e-324, 5e-324]), (1e-323, 5e-324));
    // Halves to even, and just more than a half.
    assert_eq!(sum_and_mean(&[9007199254740992.0, 1.0]).0, 9007199254740992.0);
    assert_eq!(sum_and_mean(&[9007199254740994.0, 1.0]).0, 9007199254740996.0);
    assert_eq!(sum_and_mean(&[9007199254740992.0, 1.0, 5e-324]).0, 9007199254740994.0);
    assert_eq!(sum_and_mean(&[f64::INFINITY, f64::MAX, f64::MAX]), (f64::INFINITY, f64::INFINITY));
    assert!(sum_and_mean(&[f64::INFINITY, 1.0, f64::NEG_INFINITY]).0.is_nan());
    // The sums are the values themselves, and the first is +0.
    assert_eq!(format!("{:?}", sum_and_mean(&[1e-320, -1e-320])), "(0.0, 0.0)");
}

#[test]
fn the_order_of_floats_cannot_be_seen() {
    let mut values = [1e300, 0.1, -0.0, 5e-324, 0.0, 1e16, -1e300, f64::INFINITY];
    let expected = run(Type::Float, span(1, None, false), None, &floats(&values));
    for _ in 0..values.len() {
        values.rotate_left(3);
        values.swap(1, 4);
        let said = run(Type::Float, span(1, None, false), None, &floats(&values));
        assert_eq!((said.0.last(), said.1), (expected.0.last(), expected.1.clone()), "{values:?}");
    }
}

#[test]
fn bytes_of_slices_of_floats() {
    let (_, bytes) = run(Type::Float, span(1, None, false), None, &floats(&[1.0, 1e-12, -1e300, f64::NAN, 1e300]));
    let words: Vec<i64> = bytes.chunks(8).map(|word| i64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let nan = 0x7ff8_0000_0000_0000;
    // 1e-12 is 4951760157141521 * 2^-92, in units of 2^-179 of the band; 1e300 is there no more. A NaN was counted.
    let tiny = [0, 4951760157141521 << 23, 4951760157141521 >> 41];
    assert_eq!(words[..7], [0, -11, tiny[0], tiny[1], tiny[2], 0, 0]);
    assert_eq!(words[7..14], [0, -23, 1, 0, 0, 0, 0]);
    assert_eq!(words[14..], [0, 5, 0, 1 << 16, 0, nan, nan]);
}

#[test]
fn means_of_ints_are_rounded_once() {
    // The sum is 2^54 + 1, which is no float; a third of 2^54 would be rounded to 6004799503160661.
    let said = answers(Type::Int, span(1, None, false), None, &ints(&[(0, (1 << 54) - 1), (0, 1), (0, 1)]));
    assert_eq!(said[2].split(' ').nth(2), Some("6004799503160662.0"));
    let third = ints(&[(0, 9007199254740993), (0, 9007199254740993), (0, 9007199254740993)]);
    let said = answers(Type::Int, span(1, None, false), None, &third);
    assert_eq!(said[2].split(' ').nth(2), Some("9007199254740992.0"));
}
