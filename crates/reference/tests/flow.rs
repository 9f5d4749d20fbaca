//! Events in their order, through filters, maps and cascades.

mod common;

use common::*;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{AccessDef, Ahead, BinaryOp, CallerFields, CompareOp, OriginDef, Program, StreamDef, StreamRef};
use tidemill_reference::Reference;

/// `n = n * 10 + a`, so that the row tells the order of its events.
fn trace(name: &str, inputs: Vec<StreamRef>) -> tidemill_plan::TransactionDef {
    let value = binary(BinaryOp::Add, binary(BinaryOp::Mul, cell("x", "n"), int(10)), ev("a"));
    transaction(name, inputs, vec![role("x", int(0), AccessDef::Create)], vec![set("x", "n", value)])
}

fn timed(name: &str, lateness: i64) -> StreamDef {
    let schema = Schema::scalars([("at", Type::Int.into()), ("a", Type::Int.into())]);
    StreamDef {
        name: name.into(),
        origin: OriginDef::Source {
            schema,
            event_time: Some("at".into()),
            lateness,
            anchored: false,
            remembers: None,
            keys_max: None,
            ahead: Ahead::ByInput,
            caller: CallerFields::default(),
        },
    }
}

fn two_timed() -> Program {
    program(vec![timed("l", 10), timed("r", 0)], vec![trace("t", vec![named("r"), named("l")])])
}

#[test]
fn events_run_by_time_then_source_then_offset() {
    let program = two_timed();
    let mut reference = Reference::new(&program);
    reference.run(&[vec![ints([5, 1]), ints([2, 2]), ints([5, 3])], vec![ints([2, 4]), ints([5, 6])]]);
    assert_eq!(cells(&reference), ["0 524136"]);
    assert_eq!(output(&program, &reference, "l"), ["2 2", "5 1", "5 3"]);
}

#[test]
fn late_events_are_set_aside_and_times_carry_on() {
    let program = two_timed();
    let mut reference = Reference::new(&program);
    reference.run(&[vec![ints([20, 1]), ints([10, 2]), ints([9, 3])], vec![]]);
    reference.run(&[vec![ints([9, 4]), ints([i64::MIN, 5]), ints([12, 6])], vec![ints([0, 7])]]);
    assert_eq!(output(&program, &reference, "l.late"), ["9 3", "9 4", format!("{} 5", i64::MIN).as_str()]);
    assert_eq!(cells(&reference), ["0 52176"]);
}

#[test]
fn without_event_time_sources_take_turns() {
    let program = {
        let schema = || Schema::scalars([("a", Type::Int.into())]);
        let sources = vec![source("l", schema()), source("r", schema())];
        program(sources, vec![trace("t", vec![named("l"), named("r")])])
    };
    let history = [vec![ints([1]), ints([2]), ints([3])], vec![ints([4])]];
    let mut whole = Reference::new(&program);
    whole.run(&history);
    assert_eq!(cells(&whole), ["0 51423"]);
    let mut parts = Reference::new(&program);
    parts.run(&[history[0][..1].to_vec(), history[1].clone()]);
    parts.run(&[history[0][1..].to_vec(), vec![]]);
    assert_eq!(cells(&parts), cells(&whole));
}

#[test]
fn a_failure_is_told_once_and_stops_the_event() {
    let division = binary(BinaryOp::FloorDiv, int(6), ev("a"));
    let condition = compare(CompareOp::Gt, division.clone(), int(1));
    let filter = OriginDef::Filter { input: named("events"), predicate: condition };
    let map = OriginDef::Map { input: named("big"), record: record(&[("a", division)]) };
    let streams = vec![
        events(),
        StreamDef { name: "big".into(), origin: filter },
        StreamDef { name: "share".into(), origin: map },
    ];
    let program = program(
        streams,
        vec![trace("t", vec![named("share")]), transaction("u", vec![named("share")], vec![], vec![])],
    );
    let mut reference = Reference::new(&program);
    reference.run(&[vec![ints([0, 1]), ints([1, 1]), ints([6, 1]), ints([2, 1])]]);
    assert_eq!(output(&program, &reference, "big"), ["1 1", "2 1"]);
    assert_eq!(output(&program, &reference, "share"), ["6", "3"]);
    assert_eq!(output(&program, &reference, "big.failed"), ["0 1 \"division by zero in 6 // ev.a\""]);
    assert_eq!(output(&program, &reference, "u.committed"), ["6", "3"]);
    assert_eq!(cells(&reference), ["0 563"]);
}

#[test]
fn a_cascade_is_whole_before_the_next_event() {
    let first = vec![
        emit("e", &[("a", int(1))]),
        when(compare(CompareOp::Eq, ev("a"), int(0)), vec![give_back(&[("a", int(9))])]),
        emit("e", &[("a", int(2))]),
        give_back(&[("a", int(3))]),
    ];
    let emitted = StreamRef::Emitted { transaction: "first".into(), name: "e".into() };
    let program = program(
        vec![events()],
        vec![
            transaction("first", vec![named("events")], vec![], first),
            trace("t", vec![emitted, StreamRef::Committed("first".into())]),
            trace("u", vec![StreamRef::Committed("t".into())]),
        ],
    );
    let mut reference = Reference::new(&program);
    reference.preload(0.into(), [ints([0, 0])]);
    reference.run(&[vec![ints([7, 0]), ints([0, 0])]]);
    assert_eq!(cells(&reference), ["0 1122331199"]);
    assert_eq!(output(&program, &reference, "first.committed"), ["3", "9"]);
    assert_eq!(output(&program, &reference, "first.emitted.e"), ["1", "2", "1"]);
}

#[test]
fn outputs_are_in_the_order_of_emission() {
    // `u` runs on the event before it runs on what `t` emitted for the event.
    let roles = || vec![role("x", int(0), AccessDef::Create)];
    let body = || vec![increase("x", "n", int(1)), give_back(&[("a", cell("x", "n"))])];
    let mut schema = events();
    if let OriginDef::Source { schema, .. } = &mut schema.origin {
        schema.fields.truncate(1);
    }
    let program = program(
        vec![schema],
        vec![
            transaction("t", vec![named("events")], roles(), body()),
            transaction("u", vec![named("events"), StreamRef::Committed("t".into())], roles(), body()),
            trace("v", vec![StreamRef::Committed("u".into())]),
        ],
    );
    let mut reference = Reference::new(&program);
    reference.run(&[vec![vec![Value::Int(0)]]]);
    assert_eq!(output(&program, &reference, "u.committed"), ["7", "8"]);
    // But its second emission is processed first, as its cause comes before the first.
    assert_eq!(output(&program, &reference, "v.committed"), ["8", "7"]);
}
