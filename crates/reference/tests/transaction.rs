//! One transaction: all or nothing, statement by statement, on rows that are there or not.

mod common;

use common::*;
use tidemill_model::{FieldType, ListItem, Type, Value};
use tidemill_plan::{AccessDef, CompareOp, OriginDef, RoleDef};
use tidemill_reference::Reference;

#[test]
fn an_abort_undoes_all_and_shows_what_was_before() {
    let roles = vec![role("x", ev("a"), AccessDef::Create), role("y", ev("b"), AccessDef::Row)];
    let body = vec![
        increase("x", "n", int(10)),
        emit("seen", &[("n", cell("x", "n"))]),
        increase("y", "n", cell("x", "n")),
        require(compare(CompareOp::Lt, cell("y", "n"), int(50)), "too much"),
    ];
    let program = program(vec![events()], vec![transaction("t", vec![named("events")], roles, body)]);
    let mut reference = Reference::new(&program);
    reference.preload(0.into(), [ints([2, 30])]);
    // Fits; is too much; makes row 1 and takes it back, as 3 is missing; has no key for y.
    let null = vec![Value::Int(2), Value::Null];
    reference.run(&[vec![ints([1, 2]), ints([1, 2]), ints([4, 3]), null]]);
    assert_eq!(cells(&reference), ["1 15", "2 45"]);
    assert_eq!(output(&program, &reference, "t.emitted.seen"), ["15"]);
    assert_eq!(output(&program, &reference, "t.committed"), ["1 2"]);
    assert_eq!(
        output(&program, &reference, "t.aborted"),
        [
            "1 2 \"too much\" 1 15 2 45",
            "4 3 \"no row in cells for y\" 4 None 3 None",
            "2 None \"key of y is None\" 2 45 None None"
        ]
    );
    assert_eq!((reference.counts().raw[0].committed, reference.counts().raw[0].aborted.iter().sum::<u64>()), (1, 3));
}

#[test]
fn two_roles_meet_in_one_row() {
    let roles = vec![role("x", ev("a"), AccessDef::Create), role("y", ev("b"), AccessDef::Create)];
    let body = vec![
        increase("x", "n", int(1)),
        increase("y", "n", int(10)),
        give_back(&[("x", cell("x", "n")), ("y", cell("y", "n"))]),
    ];
    let program = program(vec![events()], vec![transaction("t", vec![named("events")], roles, body)]);
    let mut reference = Reference::new(&program);
    reference.run(&[vec![ints([1, 1]), ints([1, 2])]]);
    assert_eq!(output(&program, &reference, "t.committed"), ["16 16", "17 15"]);
}

#[test]
fn a_row_comes_and_goes_within_one_transaction() {
    let roles = vec![role("x", ev("a"), AccessDef::Row), role("y", ev("a"), AccessDef::Create)];
    let body = vec![
        insert("x"),
        set("y", "n", int(1)),
        delete("x"),
        emit("there", &[("x", exists("y"))]),
        set("y", "n", int(2)),
        insert("x"),
    ];
    let program = program(vec![events()], vec![transaction("t", vec![named("events")], roles, body)]);
    let mut reference = Reference::new(&program);
    reference.run(&[vec![ints([1, 0])]]);
    assert_eq!(cells(&reference), [""; 0]);
    assert_eq!(output(&program, &reference, "t.aborted"), ["1 0 \"row exists in cells for x\" 1 1 None"]);
}

#[test]
fn a_missing_row_reads_as_defaults_and_is_not_made_by_it() {
    let roles = vec![role("d", ev("b"), AccessDef::ReadDefault), role("c", ev("b"), AccessDef::Create)];
    let body = vec![
        emit("seen", &[("n", cell("d", "n")), ("there", exists("d"))]),
        emit("key", &[("id", cell("c", "id"))]),
        delete("c"),
    ];
    let program = program(vec![events()], vec![transaction("t", vec![named("events")], roles, body)]);
    let mut reference = Reference::new(&program);
    reference.preload(0.into(), [ints([9, 0])]);
    reference.run(&[vec![ints([1, 2]), vec![Value::Int(1), Value::Null], ints([1, 9])]]);
    assert_eq!(cells(&reference), [""; 0]);
    assert_eq!(output(&program, &reference, "t.emitted.seen"), ["0 True"]);
    let aborted = output(&program, &reference, "t.aborted");
    assert!(aborted[0].contains("no row in cells for c"), "{aborted:?}");
    assert!(aborted[1].contains("key of c is None"), "{aborted:?}");
}

#[test]
fn an_abort_shows_the_element_of_the_innermost_loop() {
    let mut stream = events();
    let OriginDef::Source { schema, .. } = &mut stream.origin else { unreachable!() };
    schema.fields[1] =
        tidemill_model::Field { name: "keys".into(), ty: FieldType::List(ListItem::Scalar(Type::Int.into())) };
    let access = AccessDef::Create;
    let role = RoleDef { over: Some("keys".into()), ..role("x", item("keys"), access) };
    let body = vec![
        for_each(
            "k",
            "keys",
            vec![increase("x", "n", int(1)), require(compare(CompareOp::Ne, cell("x", "n"), ev("a")), "met")],
        ),
        require(compare(CompareOp::Ne, ev("a"), int(0)), "zero"),
    ];
    let program = program(vec![stream], vec![transaction("t", vec![named("events")], vec![role], body)]);
    let mut reference = Reference::new(&program);
    let event = |a, keys: &[i64]| vec![Value::Int(a), Value::List(keys.iter().map(|k| ints([*k])).collect())];
    reference.run(&[vec![event(1, &[1, 2, 1]), event(8, &[2, 1, 1]), event(0, &[1]), event(9, &[])]]);
    assert_eq!(cells(&reference), ["1 7", "2 6"]);
    let aborted = output(&program, &reference, "t.aborted");
    assert!(aborted[0].ends_with("\"met\" 1 7"), "{aborted:?}");
    assert!(aborted[1].ends_with("\"zero\" None None"), "{aborted:?}");
    assert_eq!((aborted.len(), reference.counts().raw[0].committed), (2, 2));
}

#[test]
fn an_abort_goes_back_over_several_writes_and_two_loops() {
    let mut stream = events();
    let OriginDef::Source { schema, .. } = &mut stream.origin else { unreachable!() };
    let list = FieldType::List(ListItem::Scalar(Type::Int.into()));
    schema.fields[1] = tidemill_model::Field { name: "keys".into(), ty: list };
    let role = RoleDef { over: Some("keys".into()), ..role("x", item("keys"), AccessDef::Create) };
    let inner = for_each(
        "l",
        "keys",
        vec![increase("x", "n", int(10)), require(compare(CompareOp::Le, cell("x", "n"), ev("a")), "inner")],
    );
    let after = require(compare(CompareOp::Ne, cell("x", "n"), ev("a")), "outer");
    let body = vec![for_each("k", "keys", vec![increase("x", "n", int(1)), inner, after])];
    let program = program(vec![stream], vec![transaction("t", vec![named("events")], vec![role], body)]);
    let mut reference = Reference::new(&program);
    reference.preload(0.into(), [ints([1, 0]), ints([2, 0])]);
    let event = |a| vec![Value::Int(a), Value::List(vec![ints([1]), ints([2])])];
    // Row 1 gets 11 and then row 2 10 + 1; row 2 is too much in the second inner loop, after row 1.
    reference.run(&[vec![event(10), event(11), event(20), event(100)]]);
    let aborted = output(&program, &reference, "t.aborted");
    let ends: Vec<_> = aborted.iter().map(|line| line.split('"').skip(1).collect::<String>()).collect();
    assert_eq!(ends, ["inner 1 0", "outer 1 0", "inner 1 0"]);
    assert_eq!(cells(&reference), ["1 21", "2 21"]);
    reference.run(&[vec![event(31)]]);
    assert!(output(&program, &reference, "t.aborted")[3].ends_with("\"inner\" 1 21"));
    assert_eq!(cells(&reference), ["1 21", "2 21"]);
}

#[test]
fn an_abort_shows_the_inner_of_two_elements() {
    let mut stream = events();
    let OriginDef::Source { schema, .. } = &mut stream.origin else { unreachable!() };
    let list = FieldType::List(ListItem::Scalar(Type::Int.into()));
    schema.fields[1] = tidemill_model::Field { name: "keys".into(), ty: list };
    let role = RoleDef { over: Some("keys".into()), ..role("x", item("keys"), AccessDef::Create) };
    let inner = for_each("l", "keys", vec![require(compare(CompareOp::Ne, cell("x", "n"), ev("a")), "met")]);
    let body = vec![for_each("k", "keys", vec![inner])];
    let program = program(vec![stream], vec![transaction("t", vec![named("events")], vec![role], body)]);
    let mut reference = Reference::new(&program);
    reference.preload(0.into(), [ints([2, 7])]);
    reference.run(&[vec![vec![Value::Int(7), Value::List(vec![ints([1]), ints([2])])]]]);
    assert!(output(&program, &reference, "t.aborted")[0].ends_with("\"met\" 2 7"));
}
