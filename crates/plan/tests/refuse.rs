//! Bad plans: the exact text of what is wrong, and its place.

use tidemill_model::{ColumnType, Field, Schema, Type, Value};
use tidemill_plan::Function::{self, *};
use tidemill_plan::build::{
    Block, PlanBuilder, TableBuilder, aborted, bad, cell, committed, decimal, element, emitted, event, exists, expired,
    failed, if_else, late, length, literal, local, max, named, none, record, window, woken,
};
use tidemill_plan::{
    Aggregate, Ahead, ConvertDef, DatePart, Expire, Expr, ExprNode, JoinBound, JoinDef, JoinHow, Limits, OverDef,
    Periods, Span, Stmt, StmtNode, StreamRef, TopDef, TransactionDef, Unit, WindowDef, WindowFunction, WindowPart,
    WindowsDef, Zone, analyze,
};

fn errors(plan: PlanBuilder) -> Vec<String> {
    match analyze(&plan.build()) {
        Ok(_) => panic!("the plan was accepted"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn refuse(plan: PlanBuilder, expected: &[&str]) {
    assert_eq!(errors(plan), expected);
}

fn dec(digits: u8, scale: u8) -> Type {
    Type::Decimal { digits, scale }
}

/// Returns a sound plan to spoil: a source `s`, tables `t` (with defaults) and `bare` (without).
fn base() -> PlanBuilder {
    PlanBuilder::new("p")
        .table("t", |t| {
            t.key("id", Type::Str)
                .column_or("n", Type::Int, Value::Int(0))
                .column_or("price", dec(10, 2), Value::Int(0))
                .column("note", ColumnType::optional(Type::Str))
        })
        .table("bare", |t| t.key("a", Type::Int).key("b", Type::Int).column("n", Type::Int))
        .source("s", |s| {
            s.field("n", Type::Int)
                .field("x", Type::Float)
                .field("flag", Type::Bool)
                .field("text", Type::Str)
                .field("maybe", ColumnType::optional(Type::Int))
                .field("price", dec(10, 2))
                .field("at", Type::Time)
                .list("tags", Type::Str)
                .nested("lines", [("item", Type::Str.into()), ("count", Type::Int.into())])
        })
}

#[test]
fn columns_that_had_other_names() {
    let table = |was: [&str; 2]| {
        PlanBuilder::new("p")
            .table("t", |t| t.key("id", Type::Int).was(was[0]).column("n", Type::Int).was(was[1]))
            .source("s", |s| s.field("n", Type::Int))
    };
    refuse(
        table(["key", "n"]),
        &["table 't': column 'n' was 'n' already; say the name that it had before, or leave it out"],
    );
    refuse(table(["x", "x"]), &["table 't': earlier column 'x' is declared twice"]);
    let program = analyze(&table(["key", "number"]).build()).expect("it is sound");
    let was = program.tables.raw[0].columns.iter().map(|column| column.was.as_deref());
    assert_eq!(was.collect::<Vec<_>>(), [Some("key"), Some("number")]);
}

#[test]
fn columns_that_are_converted() {
    let value = || event(ConvertDef::VALUE);
    let plan = |convert: &dyn Fn(TableBuilder) -> TableBuilder| {
        PlanBuilder::new("p").table("t", |t| convert(t.key("id", Type::Int))).source("s", |s| s.field("n", Type::Int))
    };
    let column = |ty: Type, from: Type, body: Vec<Stmt>, given: Expr| {
        plan(&move |t| t.column("c", ty).was("b").convert(from, body.clone(), given.clone()))
    };
    refuse(
        plan(&|t| t.key("k", Type::Int).was("n").convert(Type::Str, vec![], 1)),
        &["conversion 't.k': 'k' is part of the key, which no function converts; keys keep their types: keep a table \
           with the other key beside this one"],
    );
    refuse(
        plan(&|t| t.window("w", Type::Int, WindowDef::Last(3)).convert(Type::Str, vec![], 1)),
        &["conversion 't.w': 'w' is a windowed column, which no function converts; give the new window a name of its \
           own: it begins empty"],
    );
    refuse(
        plan(&|t| t.column("c", Type::Int).convert(Type::Int, vec![], value() + 1)),
        &["conversion 't.c': 'c' is int before and after: nothing says whether it was converted; rename it, and say \
           what it was"],
    );
    let returns = StmtNode::Return { record: None };
    refuse(
        column(Type::Int, Type::Str, vec![Stmt { node: returns, span: None }], 1.into()),
        &["conversion 't.c': a conversion returns at its end; what it gives is one value"],
    );
    let emits = StmtNode::Emit { name: "x".into(), record: record([("n", value())]) };
    refuse(
        column(Type::Int, Type::Str, vec![Stmt { node: emits, span: None }], 1.into()),
        &["conversion 't.c': a conversion emits nothing; what it gives is one value"],
    );
    // It sees the value, and neither rows nor their number.
    for (unseen, why) in [
        (event("row"), "no event field 'row'; known: value"),
        (cell("t", "id"), "role 't'"),
        (value() + 1, "str + int has no meaning, in ev.value + 1"),
    ] {
        let found = errors(column(Type::Int, Type::Str, vec![], unseen));
        assert!(found.len() == 1 && found[0].starts_with("conversion 't.c': "), "{found:?}");
        assert!(found[0].contains(why), "{found:?} for {why}");
    }
    let found = errors(column(Type::Int, Type::Float, vec![], value()));
    assert!(found[0].contains("float") && found[0].contains("int"), "{found:?}");
    let program = analyze(&column(Type::Float, Type::Int, vec![], value()).build()).expect("it is sound");
    let conversion = program.tables.raw[0].columns[1].convert.as_ref().expect("it was declared");
    assert_eq!(conversion.from, Type::Int.into());
    assert_eq!(conversion.program.sinks.len(), 2);
}

/// Refuses a map to `value = expr`, at a place.
#[track_caller]
fn refuse_expr(expr: impl Into<Expr>, expected: &str) {
    let span = Span { line: 3, column: 7, end_line: 3, end_column: 9 };
    let plan = base().map("m", named("s"), [("value", expr.into().at(span))]);
    let (fact, hint) = expected.split_once("; ").map_or((expected, String::new()), |(f, h)| (f, format!("; {h}")));
    refuse(plan, &[&format!("stream 'm': {fact} (line 3, column 8){hint}")]);
}

/// Refuses a body with roles `r` (row), `c` (create), `q` (read) and `l` (over lines).
#[track_caller]
fn refuse_body(fill: impl FnOnce(&mut Block), expected: &str) {
    let plan = base().transaction("tx", [named("s")], |t| {
        t.row("r", "t", [event("text")])
            .create("c", "t", [event("text")])
            .read("q", "t", [event("text")])
            .row("l", "t", [element("lines", "item")])
            .over("lines")
            .row("b", "bare", [literal(1), literal(2)])
            .body(fill)
    });
    refuse(plan, &[&format!("transaction 'tx': {expected}")]);
}

fn call(function: Function, argument: Expr) -> Expr {
    argument.call(function, [])
}

#[test]
fn plans_of_the_future() {
    let mut plan = base().build();
    plan.version = 9;
    let errors = analyze(&plan).expect_err("a plan of the future");
    assert_eq!(errors[0].to_string(), "plan 'p': its version is 9, this is version 2; run it with a newer tidemill");
}

#[test]
fn limits_that_limit_nothing_or_everything() {
    for (steps, memory, refused) in [
        (0, 1, "0 steps"),
        (1, -1, "-1 bytes of memory"),
        (i64::MAX, 1, "9223372036854775807 steps"),
        (1, (1 << 60) + 1, "1152921504606846977 bytes of memory"),
    ] {
        let mut plan = base().build();
        plan.limits = Limits { steps, memory };
        let errors = analyze(&plan).expect_err("a limit out of bounds");
        assert_eq!(errors[0].to_string(), format!("plan 'p': its limit is {refused}; give 1 to 1152921504606846976"));
        plan.limits = Limits { steps: 1, memory: 1 << 60 };
        assert!(analyze(&plan).is_ok());
    }
}

#[test]
fn names_that_occur_twice() {
    let plan = base()
        .table("t", |t| t.key("id", Type::Int))
        .source("s", |s| s.field("n", Type::Int))
        .transaction("x", [named("s")], |t| t)
        .transaction("x", [named("s")], |t| t)
        .sink("out", named("s"))
        .sink("out", named("s"));
    refuse(
        plan,
        &[
            "table 't': another has this name; rename one table",
            "stream 's': another has this name; rename one stream",
            "transaction 'x': another has this name; rename one transaction",
            "sink 'out': another has this name; rename one sink",
        ],
    );
}

#[test]
fn tables() {
    let table = |fill: fn(tidemill_plan::build::TableBuilder) -> tidemill_plan::build::TableBuilder| {
        errors(PlanBuilder::new("p").table("t", fill)).remove(0)
    };
    let digits = "a decimal has 1 to 18 digits, of which at most all after the point";
    for (found, expected) in [
        (table(|t| t.column("n", Type::Int)), "no column is the key; mark at least one column as key".to_owned()),
        (table(|t| t.key("n", Type::Int).column("n", Type::Int)), "column 'n' is declared twice".into()),
        (table(|t| t.key("n", ColumnType::optional(Type::Int))), "key column 'n' may be None".into()),
        (table(|t| t.key("n", Type::Float)), "key column 'n' is a float; use an int, a Decimal or a str".into()),
        (
            table(|t| t.key("a-b", Type::Int)),
            "'a-b' is no name for a column; use letters, digits and '_', a letter first".into(),
        ),
        (table(|t| t.key("n", dec(19, 2))), format!("'n' is Decimal(19, 2); {digits}")),
        (table(|t| t.key("n", dec(2, 3))), format!("'n' is Decimal(2, 3); {digits}")),
        (
            table(|t| t.key("n", Type::Duration)),
            "'n' is a Duration, which cannot be stored; store an int of microseconds, or a float of seconds".into(),
        ),
        (table(|t| t.key("n", Type::Null)), "'n' has no type but None".into()),
        (
            table(|t| t.key("n", Type::Int).column_or("x", Type::Int, Value::Str("a".into()))),
            "column 'x' is int but its default is \"a\"; give a default of the column's type".into(),
        ),
        (
            table(|t| t.key("n", Type::Int).column_or("x", dec(3, 2), Value::Int(10))),
            "column 'x' is Decimal(3, 2) but its default is 10; give a default of the column's type".into(),
        ),
        (
            table(|t| t.key("n", Type::Int).column("exists", Type::Int)),
            "a column cannot be called 'exists'; `role.exists` asks whether the row exists".into(),
        ),
    ] {
        assert_eq!(found, format!("table 't': {expected}"));
    }
}

#[test]
fn sources() {
    let new = || PlanBuilder::new("p");
    refuse(new().source("s", |s| s), &["stream 's': an event needs at least one field"]);
    refuse(
        new().source("s", |s| s.field("a", Type::Int).field("a", Type::Int)),
        &["stream 's': field 'a' is declared twice"],
    );
    refuse(
        new().source("s", |s| s.event_time("at", Type::Str)),
        &["stream 's': event time 'at' is str; an event time is a Time or an int, and never None"],
    );
    refuse(
        new().source("s", |s| s.event_time("at", ColumnType::optional(Type::Time))),
        &["stream 's': event time 'at' is Time | None; an event time is a Time or an int, and never None"],
    );
    refuse(
        new().source("s", |s| s.event_time("at", Type::Time).lateness(i64::MIN)),
        &["stream 's': its lateness is -9223372036854775808; give a greater one"],
    );
    let ahead = |most: i64| Ahead::Most(most * 3_600_000_000);
    refuse(
        new().source("s", |s| s.event_time("at", Type::Time).ahead(ahead(-2))),
        &["stream 's': its bound ahead of the clock is -2h; give one from 0"],
    );
    let hint = "leave ahead out: only an event time that is a Time is compared with the clock";
    refuse(
        new().source("s", |s| s.event_time("n", Type::Int).ahead(ahead(1))),
        &[&format!("stream 's': its events may be 1h ahead of the clock, but their event time is an int; {hint}")],
    );
    for source in [
        new().source("s", |s| s.field("n", Type::Int).ahead(ahead(24))),
        new()
            .source("timed", |s| s.event_time("at", Type::Time))
            .source("s", |s| s.event_time("at", Type::Time).anchored().ahead(ahead(24))),
    ] {
        let message =
            format!("stream 's': its events may be 1d ahead of the clock, but they bring no event time; {hint}");
        refuse(source, &[&message]);
    }
    refuse(
        new().source("s", |s| s.event_time("at", Type::Time)).source("z", |s| s.event_time("n", Type::Int)),
        &["stream 'z': it has an event time that is an int, but source 's' has an event time; \
         declare all event times in one unit"],
    );
}

#[test]
fn references() {
    refuse(base().sink("out", named("t")), &["sink 'out': no stream 't'; known: s"]);
    refuse(base().sink("out", committed("nobody")), &["sink 'out': no transaction 'nobody'"]);
    refuse(
        base().filter("f", named("s"), event("flag")).sink("out", late("f")),
        &["sink 'out': stream 'f' is no source and has no late events"],
    );
    refuse(
        base().sink("out", failed("s")),
        &["sink 'out': stream 's' is a source, where nothing is computed that could fail"],
    );
    let emits = |t: tidemill_plan::build::TransactionBuilder| t.body(|b| b.emit("alerts", [("n", event("n"))]));
    refuse(
        base().transaction("tx", [named("s")], emits).sink("out", emitted("tx", "alarms")),
        &["sink 'out': no emission of transaction 'tx' called 'alarms'; did you mean 'alerts'?"],
    );
    refuse(
        base().filter("f", bad("s"), literal(true)),
        &["stream 'f': stream 's.bad' can only feed a sink; these events have left the order of the others"],
    );
    refuse(
        base().transaction("tx", [late("s")], |t| t),
        &["transaction 'tx': the events of 's' bring no event time, so none is late; take 's' itself"],
    );
    refuse(
        base().filter("f", named("g"), event("flag")).filter("g", named("s"), event("flag")),
        &["stream 'f': its input 'g' is not declared before it"],
    );
    refuse(
        base().transaction("tx", [named("s"), named("s")], |t| t),
        &["transaction 'tx': it takes 's' as input twice"],
    );
    refuse(
        base().transaction("tx", [], |t| t),
        &["transaction 'tx': it has no input; name a stream whose events it runs on"],
    );
    refuse(
        base().map("m", named("s"), [("a", event("n"))]).map("k", named("s"), [("b", event("n"))]).transaction(
            "tx",
            [named("m"), named("k")],
            |t| t,
        ),
        &["transaction 'tx': its inputs differ: 'm' is {a: int}, 'k' is {b: int}; map them to one event class"],
    );
}

#[test]
fn cycles() {
    let plan = base()
        .filter("again", committed("one"), event("flag"))
        .transaction("one", [aborted("two")], |t| t)
        .transaction("two", [named("again")], |t| t)
        .sink("out", committed("two"));
    refuse(
        plan,
        &["transaction 'one': it feeds itself: two -> one -> again -> two; \
                    an event must come to an end; do the repetition inside one transaction"],
    );
}

#[test]
fn a_mistake_is_told_once() {
    let plan = base()
        .filter("f", named("s"), event("nn"))
        .filter("g", named("f"), event("flag"))
        .transaction("tx", [named("g")], |t| t)
        .transaction("ty", [named("s")], |t| t.body(|b| b.require(event("n"), "no")))
        .sink("out", committed("tx"));
    refuse(
        plan,
        &[
            "stream 'f': no event field 'nn'; did you mean 'n'?",
            "transaction 'ty': ev.n is int, not a condition; write `ev.n != 0`",
        ],
    );
}

#[test]
fn arithmetic() {
    refuse_expr(
        event("price") + event("x"),
        "Decimal(10, 2) + float has no meaning, in ev.price + ev.x; write float(ev.price)",
    );
    refuse_expr(event("text") + event("n"), "str + int has no meaning, in ev.text + ev.n; write str(ev.n)");
    refuse_expr(event("flag") + 1, "bool + int has no meaning, in ev.flag + 1; write int(ev.flag)");
    refuse_expr(event("at") + 1, "Time + int has no meaning, in ev.at + 1; write seconds(1) or the unit that is meant");
    refuse_expr(event("at") + event("at"), "Time + Time has no meaning, in ev.at + ev.at");
    refuse_expr(-event("text"), "str has no negative, in -ev.text");
    refuse_expr(none() + 1, "None is no operand");
    refuse_expr(
        decimal("0.0000000001") * decimal("0.0000000001"),
        "Decimal(\"0.0000000001\") * Decimal(\"0.0000000001\") would have 20 digits after the point; \
         round an operand first, as in round(x, 2)",
    );
    refuse_expr(
        max([event("n"), event("text")]),
        "max(ev.n, ev.text) compares int, str; \
                 min and max take numbers of one kind, times or durations",
    );
    refuse_expr(max([event("n")]), "max(ev.n) needs two arguments or more");
    refuse_expr(Expr::from(Value::Decimal(5)), "a decimal literal has no scale; write Decimal('1.50')");
}

#[test]
fn conditions_and_comparisons() {
    refuse_expr(!event("n"), "ev.n is int, not a condition; write `ev.n != 0`");
    refuse_expr(!event("maybe"), "ev.maybe is int | None, not a condition; write `ev.maybe is not None`");
    refuse_expr(event("flag").and(event("text")), "ev.text is str, not a condition; write `len(ev.text) > 0`");
    refuse_expr(event("n").lt(event("text")), "int and str cannot be compared, in ev.n < ev.text");
    refuse_expr(
        event("x").eq(event("price")),
        "float and Decimal(10, 2) cannot be compared, in ev.x == ev.price; write float(ev.price)",
    );
    refuse_expr(event("n").lt(none()), "None has no order, in ev.n < None");
    refuse_expr(if_else(event("flag"), event("n"), event("text")), "ev.n is int but ev.text is str");
    refuse_expr(event("n").is_in(Vec::<Expr>::new()), "ev.n in () has nothing to be equal to");
}

#[test]
fn functions() {
    refuse_expr(
        event("x").call(Round, [literal(2)]),
        "ev.x is float, which has no decimal digits to round to; \
                 use a Decimal, or round(x) for a whole number",
    );
    refuse_expr(event("price").call(Round, [event("n")]), "ev.n is no number of digits; write a number from 0 to 18");
    refuse_expr(
        call(Str, event("x")),
        "str(ev.x) cannot take float; a float has no one text; keep it a float, or use a Decimal",
    );
    refuse_expr(call(Int, event("at")), "int(ev.at) cannot take Time; write ev.at.total_microseconds()");
    refuse_expr(call(Float, event("flag")), "float(ev.flag) cannot take bool; write float(int(ev.flag))");
    refuse_expr(call(Seconds, event("x")), "seconds(ev.x) cannot take float; give a whole number of a smaller unit");
    refuse_expr(decimal("1.2.3"), "\"1.2.3\" is no decimal of at most 18 digits");
    refuse_expr(call(Len, event("n")), "ev.n is int, which has no length");
    refuse_expr(call(Sqrt, event("price")), "sqrt(ev.price) cannot take Decimal(10, 2); write float(ev.price)");
    refuse_expr(call(Sin, event("flag")), "sin(ev.flag) cannot take bool; write int(ev.flag)");
    refuse_expr(call(Floor, event("text")), "floor(ev.text) cannot take str");
    refuse_expr(event("x").call(Fmod, []), "fmod(ev.x) has 1 arguments, not 2 arguments");
    refuse_expr(event("n").call(At, [literal(0)]), "ev.n[0] cannot take int");
    refuse_expr(event("text").call(Slice, [literal("a"), literal(i64::MAX)]), "ev.text[\"a\":] cannot take str");
    refuse_expr(
        event("text").call(SplitCount, [literal(""), literal(-1)]),
        "the separator is empty, in len(ev.text.split(\"\")); give a text that parts others",
    );
    let zone = Zone { name: "Some/Where".into(), offset: 0, changes: vec![(5, 0), (5, 1)] };
    let part = DatePart::Hour;
    let asked = |time| Expr::from(ExprNode::DatePart { part, zone: zone.clone(), time: Box::new(time) });
    refuse_expr(
        asked(event("at")),
        "the changes of the zone 'Some/Where' are not in order; give each after the one before it, and a clock within a week of \
         UTC",
    );
    let part = ExprNode::DatePart {
        part: DatePart::IsoWeek,
        zone: Zone { changes: vec![], ..zone },
        time: Box::new(event("n")),
    };
    refuse_expr(part, "ev.n.tz(\"Some/Where\").isocalendar().week is asked of int; only a Time has a date");
    refuse_expr(event("text").call(Lower, [literal(1)]), "ev.text.lower(1) has 2 arguments, not 1 argument");
    refuse_expr(
        event("text").call(Contains, [event("n")]),
        "ev.n in ev.text is a question about str and int; both must be str, or both bytes",
    );
    refuse_expr(event("tags").eq("a"), "ev.tags is a list; write `for item in ev.tags`");
    refuse_expr(length("n"), "ev.n is int, which has no length");
}

#[test]
fn what_an_expression_can_see() {
    refuse_expr(cell("r", "n"), "a filter or map sees only the event");
    refuse_expr(local("y"), "no name 'y'; a filter or map sees only the event");
    refuse_expr(event("number"), "no event field 'number'; known: n, x, flag, text, maybe, price, at, tags, lines");
    refuse_expr(element("line", "item"), "'line' is not the variable of a loop around this");
    let key = |key: Expr| base().transaction("tx", [named("s")], |t| t.row("r", "t", [key]));
    refuse(
        key(cell("q", "n")),
        &[
            "transaction 'tx': no role 'q' before this one; a key is made from the event, or read from the row of a role that comes before",
        ],
    );
    refuse(key(event("n")), &["transaction 'tx': key column 'id' is str but ev.n is int; write str(ev.n)"]);
    refuse(
        key(if_else(call(Int, event("text")).gt(0), event("text"), literal(""))),
        &["transaction 'tx': the key of role 'r' could fail: conversion failed in int(ev.text); \
         compute the key in a map, and run the transaction on the mapped stream"],
    );
    refuse(key(none()), &["transaction 'tx': the key of role 'r' is always None"]);
    refuse(
        base().transaction("tx", [named("s")], |t| t.row("b", "bare", [event("n")])),
        &["transaction 'tx': role 'b' gives 1 key value, but the key of table 'bare' is a, b"],
    );
    refuse(
        base().transaction("tx", [named("s")], |t| t.create("b", "bare", [event("n"), event("n")])),
        &["transaction 'tx': role 'b' reads a missing row as the defaults, but column 'n' of table 'bare' has none; \
         give 'n' a default, or leave out create=True"],
    );
    refuse(
        base().transaction("tx", [named("s")], |t| t.row("r", "tt", [event("text")])),
        &["transaction 'tx': no table 'tt'; did you mean 't'?"],
    );
    refuse(
        base().transaction("tx", [named("s")], |t| t.row("r", "t", [event("text")]).over("text")),
        &["transaction 'tx': ev.text is str, not a list"],
    );
}

#[test]
fn writes() {
    refuse_body(|b| b.set("q", "n", 1), "role 'q' is only read; declare it with t.row(…)");
    refuse_body(
        |b| b.set("r", "id", "a"),
        "r.id is part of the key and cannot be set; delete the row and insert one with the other key",
    );
    refuse_body(|b| b.set("r", "m", 1), "no column in table 't' called 'm'; known: id, n, price, note");
    refuse_body(|b| b.set("rr", "n", 1), "no role 'rr'; did you mean 'r'?");
    refuse_body(|b| b.set("r", "n", event("x")), "r.n is int but ev.x is float; write int(ev.x) or round(ev.x)");
    refuse_body(|b| b.set("r", "n", none()), "r.n is int and cannot be None");
    refuse_body(
        |b| b.set("r", "price", event("price") * decimal("1.5")),
        "r.price is Decimal(10, 2) but ev.price * Decimal(\"1.5\") is Decimal(18, 3); \
         write round(ev.price * Decimal(\"1.5\"), 2)",
    );
    refuse_body(|b| b.set("r", "price", 100_000_000), "100000000 does not fit r.price, which is Decimal(10, 2)");
    refuse_body(
        |b| b.set("l", "n", 1),
        "role 'l' is a row for each element of ev.lines; use it inside `for item in ev.lines`",
    );
    refuse_body(
        |b| b.require(exists("l"), "no"),
        "role 'l' is a row for each element of ev.lines; use it inside `for item in ev.lines`",
    );
    refuse_body(|b| b.insert("b", [("m", 1)]), "no column in table 'bare' called 'm'; known: a, b, n");
    refuse_body(|b| b.insert("b", Vec::<(&str, Expr)>::new()), "column 'n' has no default and must be given");
    refuse_body(|b| b.insert("b", [("a", 1)]), "b.a is part of the key, which the role gives; leave out a");
    refuse_body(|b| b.delete("q"), "role 'q' is only read; declare it with t.row(…)");
}

#[test]
fn locals_and_loops() {
    let unset = "local 'y' may be read before it is set";
    refuse_body(
        |b| {
            b.when(event("flag"), |b| b.assign("y", 1));
            b.set("r", "n", local("y"));
        },
        unset,
    );
    refuse_body(
        |b| {
            b.for_each("line", "lines", |b| b.assign("y", 1));
            b.set("r", "n", local("y"));
        },
        unset,
    );
    refuse_body(|b| b.assign("y", local("y") + 1), unset);
    refuse_body(|b| b.assign("y", local("z")), "no name 'z'; known: y");
    refuse_body(
        |b| {
            b.assign("y", 1);
            b.assign("y", "a");
        },
        "local 'y' is int but \"a\" is str",
    );
    refuse_body(
        |b| {
            b.assign("y", event("price"));
            b.for_range("i", 0, 3, |b| b.assign("y", local("y") * event("price")));
        },
        "the types of the locals do not settle; round what a loop assigns to a decimal, as in x = round(x * y, 2)",
    );
    refuse_body(|b| b.assign("y", none()), "local 'y' is never anything but None");
    refuse_body(|b| b.assign("r", 1), "'r' is the name of a role and of a local; rename one");
    refuse_body(|b| b.for_each("r", "lines", |_| {}), "'r' is the name of a role and of a loop variable; rename one");
    refuse_body(
        |b| b.for_each("v", "lines", |b| b.for_each("v", "tags", |_| {})),
        "'v' is the variable of a loop around this one already",
    );
    refuse_body(|b| b.for_each("v", "text", |_| {}), "ev.text is str, not a list");
    refuse_body(
        |b| b.for_each("v", "lines", |b| b.assign("y", local("v"))),
        "'v' is an element with fields; write v.item",
    );
    refuse_body(
        |b| b.for_each("v", "lines", |b| b.assign("y", element("v", "cont"))),
        "no field of 'v' called 'cont'; did you mean 'count'?",
    );
    refuse_body(|b| b.for_range("i", 0, event("x"), |_| {}), "a range goes over ints, but ev.x is float");
    refuse_body(
        |b| {
            b.assign("i", none());
            b.for_range("i", 0, 3, |_| {});
        },
        "'i' counts a range but is int | None elsewhere; use another name for one of them",
    );
    refuse_body(|b| b.leave(), "break or continue outside a loop");
    refuse_body(
        |b| {
            let (start, stop) = (literal(0), literal(3));
            b.push(StmtNode::ForRange { variable: "i".into(), start, stop, step: 0, body: vec![] });
        },
        "the step of a range is zero",
    );
    refuse_body(|b| b.abort(" "), "the reason is empty; say why, as in \"insufficient funds\"");
}

#[test]
fn records() {
    refuse_body(
        |b| {
            b.when(event("flag"), |b| b.give([("a", event("n"))]));
            b.give([("b", event("n"))]);
        },
        "the records returned have different fields: a and b; give all of them the same fields in the same order",
    );
    refuse_body(
        |b| {
            b.emit("log", [("a", event("n"))]);
            b.emit("log", [("a", event("text"))]);
        },
        "field 'a' is int in one record and str in another",
    );
    refuse_body(
        |b| b.give([("a", none())]),
        "field 'a' is never anything but None; declare an event class that says its type",
    );
    refuse_body(
        |b| b.give([("a", event("at") - event("at"))]),
        "field 'a' is a Duration, which cannot be put out; write .total_seconds() or .total_microseconds()",
    );
    refuse_body(|b| b.give([("a", event("n")), ("a", event("n"))]), "field 'a' is declared twice");
    refuse_body(
        |b| b.give([("a.b", event("n"))]),
        "'a.b' is no name for a field; use letters, digits and '_', a letter first",
    );
    let declared = || Schema::scalars([("a", Type::Int.into()), ("b", Type::Int.into())]);
    refuse_body(|b| b.give(record([("a", event("n"))]).declared(declared())), "field 'b' is missing, which is int");
    refuse_body(
        |b| b.give(record([("a", event("n")), ("b", event("n")), ("c", event("n"))]).declared(declared())),
        "no field 'c'; known: a, b",
    );
    refuse_body(
        |b| b.give(record([("a", event("n")), ("b", event("x"))]).declared(declared())),
        "field 'b' is int but ev.x is float; write int(ev.x) or round(ev.x)",
    );
    refuse_body(
        |b| {
            b.when(event("flag"), |b| b.give(record([("a", event("n")), ("b", event("n"))]).declared(declared())));
            b.give([("a", event("n")), ("b", event("n"))]);
        },
        "the records returned are of different event classes; use one event class for all of them",
    );
    refuse_body(
        |b| b.give(record([("a", event("x"))]).timed("a")),
        "event time 'a' is float; an event time is a Time or an int, and never None",
    );
    let list = Schema { fields: vec![Field { name: "a".into(), ty: base_list() }] };
    refuse_body(
        |b| b.give(record([("a", event("n"))]).declared(list.clone())),
        "field 'a' is list[int] but ev.n is no list; a list field of the event can be passed on whole, as `ev.name`",
    );
    refuse_body(
        |b| b.give(record([("a", event("tags"))]).declared(list.clone())),
        "field 'a' is list[int] but ev.tags is list[str]",
    );
}

fn base_list() -> tidemill_model::FieldType {
    tidemill_model::FieldType::List(tidemill_model::ListItem::Scalar(Type::Int.into()))
}

#[test]
fn places_are_those_of_the_narrowest_part() {
    let span = |line| Span { line, column: 4, end_line: line, end_column: 9 };
    let plan = base().transaction("tx", [named("s")], |t| {
        t.row("r", "t", [event("text")]).body(|b| {
            b.when(event("flag"), |b| {
                b.set("r", "n", event("n") + event("nn").at(span(7)));
                b.at(span(6));
            });
            b.at(span(5));
        })
    });
    refuse(plan, &["transaction 'tx': no event field 'nn' (line 7, column 5); did you mean 'n'?"]);
    let plan = base().transaction("tx", [named("s")], |t| {
        t.body(|b| {
            b.push(StmtNode::Delete { role: "r".into() });
            b.at(span(6));
        })
    });
    refuse(plan, &["transaction 'tx': no role 'r' (line 6, column 5)"]);
    let lone = ExprNode::Local("y".into());
    let plan = base().transaction("tx", [named("s")], |t| t.body(|b| b.assign("x", Expr::from(lone).at(span(2)))));
    refuse(plan, &["transaction 'tx': no name 'y' (line 2, column 5); known: x"]);
}

/// Returns a plan with windows to misuse: over time in durations, in ints, of distinct values, of the last three.
fn windows(fill: impl FnOnce(&mut Block)) -> PlanBuilder {
    let span = |span: Value, slide: Option<Value>, distinct| WindowDef::Span { span, slide, distinct };
    PlanBuilder::new("p")
        .table("t", |t| {
            t.key("id", Type::Int)
                .window("speed", Type::Float, span(Value::Duration(60), Some(Value::Duration(20)), false))
                .window("cars", Type::Int, span(Value::Duration(60), None, true))
                .window("ticks", Type::Int, span(Value::Int(60), None, false))
                .window("last", Type::Float, WindowDef::Last(3))
                .window("names", Type::Str, WindowDef::Last(3))
                .window("spread", Type::Int, WindowDef::Moments { span: Value::Duration(60), slide: None })
                .column_or("n", Type::Int, Value::Int(0))
        })
        .source("s", |s| s.field("id", Type::Int).field("x", Type::Float).event_time("at", Type::Time))
        .transaction("tx", [named("s")], |t| t.row("r", "t", [event("id")]).body(fill))
}

#[track_caller]
fn refuse_window(fill: impl FnOnce(&mut Block), expected: &str) {
    refuse(windows(fill), &[&format!("transaction 'tx': {expected}")]);
}

#[test]
fn windows_that_are_asked_wrongly() {
    use Aggregate::*;
    let ask = |column: &str, part: Option<WindowPart>, aggregate| window("r", column, part, aggregate);
    let span = |length| Some(WindowPart::Span(Value::Duration(length)));
    refuse_window(
        |b| b.assign("x", cell("r", "speed")),
        "r.speed is a window, not a value; ask for an aggregate, as in r.speed.count()",
    );
    refuse_window(
        |b| b.set("r", "speed", event("x")),
        "r.speed is a window and cannot be set; add a value: r.speed.add(value)",
    );
    refuse_window(
        |b| b.add("r", "n", 1),
        "r.n is int, not a window; declare the column as a window to keep values of the recent past",
    );
    refuse_window(
        |b| b.add("r", "cars", event("x")),
        "a value of r.cars is int but ev.x is float; write int(ev.x) or round(ev.x)",
    );
    refuse_window(
        |b| b.add("r", "ticks", 1),
        "the event time is a Time, but r.ticks is a window of another unit; give its span and slide as durations",
    );
    refuse_window(
        |b| b.assign("x", ask("speed", None, Distinct)),
        "r.speed has no distinct(); declare the window with distinct=True",
    );
    refuse_window(
        |b| b.assign("x", ask("cars", None, Count)),
        "r.cars has no count(); it keeps each value once: ask for distinct(), or declare a second window",
    );
    refuse_window(|b| b.assign("x", ask("names", None, Sum)), "r.names has no sum(); only numbers have one");
    refuse_window(|b| b.assign("x", ask("names", None, Stddev)), "r.names has no stddev(); only numbers have one");
    refuse_window(
        |b| b.assign("x", ask("speed", None, Variance)),
        "r.speed has no variance(); it keeps no squares: keep the last values, or take windows over a stream",
    );
    for other in [Count, Distinct] {
        refuse_window(
            |b| b.assign("x", ask("spread", None, other)),
            &format!("r.spread has no {other}(); it keeps what variances need: declare a second window"),
        );
    }
    refuse_window(|b| b.assign("x", ask("names", None, Min)), "r.names has no min(); only numbers and times have one");
    refuse_window(
        |b| b.assign("x", ask("last", None, Distinct)),
        "r.last has no distinct(); floats that are nearly equal are different; use a Decimal or an int",
    );
    for length in [30, 80, 0] {
        let text = match length {
            0 => "r.speed has a span of microseconds(0); a span is a duration greater than zero, or an int where the event time is one".into(),
            _ => format!("r.speed cannot be asked for microseconds({length}); its slides are microseconds(20), its span is microseconds(60): ask for whole slides within it"),
        };
        refuse_window(|b| b.assign("x", ask("speed", span(length), Mean)), &text);
    }
    refuse_window(
        |b| b.assign("x", ask("last", span(20), Mean)),
        "r.last keeps the last values, not a span of time; write r.last.last(count), or keep a span",
    );
    refuse_window(
        |b| b.assign("x", ask("last", Some(WindowPart::Last(4)), Mean)),
        "r.last keeps the last 3 values, not 4; ask for fewer, or keep more",
    );
    refuse_window(
        |b| b.assign("x", ask("speed", Some(WindowPart::Last(4)), Mean)),
        "r.speed keeps a span of time, not the last values; write r.speed.window(span), or keep the last values",
    );
    refuse_window(
        |b| b.insert("r", [("speed", 1)]),
        "r.speed is a window and cannot be set; add a value: r.speed.add(value)",
    );
}

#[test]
fn windows_without_a_time() {
    let plan = PlanBuilder::new("p")
        .table("t", |t| {
            let span = WindowDef::Span { span: Value::Int(60), slide: None, distinct: false };
            t.key("id", Type::Int).window("ticks", Type::Int, span)
        })
        .source("s", |s| s.field("id", Type::Int))
        .transaction("tx", [named("s")], |t| t.row("r", "t", [event("id")]).body(|b| b.add("r", "ticks", 1)));
    let message = "transaction 'tx': r.ticks is a window over time, but the event has none; declare the event time, or \
                   keep the last so many values";
    refuse(plan, &[message]);
}

#[test]
fn windows_that_cannot_be() {
    let declare =
        |ty: ColumnType, window| PlanBuilder::new("p").table("t", |t| t.key("id", Type::Int).window("w", ty, window));
    let span = |span: i64, slide: Option<i64>, distinct| WindowDef::Span {
        span: Value::Duration(span),
        slide: slide.map(Value::Duration),
        distinct,
    };
    for (ty, window, expected) in [
        (
            Type::Float.into(),
            span(60, Some(25), false),
            "the window 'w' of microseconds(60) is no whole number of slides of microseconds(25); give a slide that divides it",
        ),
        (
            Type::Float.into(),
            span(0, None, false),
            "the window 'w' has a span of microseconds(0); a span is a duration greater than zero, or an int where the event time is one",
        ),
        (
            Type::Float.into(),
            span(60, None, true),
            "the window 'w' keeps float; floats that are nearly equal are different; use a Decimal or an int",
        ),
        (
            Type::Str.into(),
            span(60, None, false),
            "the window 'w' keeps str; of texts the distinct ones can be kept: distinct=True",
        ),
        (Type::Bool.into(), WindowDef::Last(3), "the window 'w' keeps bool; keep an int, as in int(x)"),
        (Type::Int.into(), WindowDef::Last(0), "'w' keeps the last 0 values; keep 1 to 65536"),
        (
            ColumnType::optional(Type::Int),
            WindowDef::Last(2),
            "the values of the window 'w' may be None; add a value only where there is one",
        ),
    ] {
        refuse(declare(ty, window), &[&format!("table 't': {expected}")]);
    }
}

/// Returns a window over `s`, whose function returns one field.
fn windowed(by: &[&str], windows: WindowsDef, input: StreamRef, returned: Expr) -> Vec<String> {
    let plan = PlanBuilder::new("p").source("s", |s| {
        s.event_time("at", Type::Int).field("n", Type::Int).field("x", Type::Float).field("flag", Type::Bool)
    });
    let mut plan = plan.map("later", named("s"), record([("at", event("at") + 1)])).build();
    let by = by.iter().map(|name| ((*name).to_owned(), event(*name))).collect();
    let body = vec![Stmt { node: StmtNode::Return { record: Some(record([("a", returned)])) }, span: None }];
    let over = Some(OverDef { by, windows, early: None, every: None, top: None, first: None, own: vec![] });
    let window = TransactionDef {
        name: "w".into(),
        inputs: vec![input],
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    };
    plan.transactions.push(window);
    match analyze(&plan) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn asked(function: WindowFunction, value: &str) -> Expr {
    ExprNode::Aggregate { function, value: Some(Box::new(event(value))), by: None, argument: None }.into()
}

#[test]
fn first_events() {
    let refused = |top: Option<TopDef>, sink: StreamRef| {
        let plan = PlanBuilder::new("p").source("s", |s| s.event_time("at", Type::Int)).sink("out", sink);
        let mut plan = plan.build();
        let windows = WindowsDef::Counting { count: 1 };
        let over = Some(OverDef {
            by: vec![],
            windows,
            early: None,
            every: None,
            top,
            first: Some(Value::Int(5)),
            own: vec![],
        });
        let (name, inputs) = ("once".into(), vec![named("s")]);
        let once = TransactionDef {
            name,
            inputs,
            over,
            join: None,
            nested: false,
            derives: false,
            roles: vec![],
            body: vec![],
        };
        plan.transactions.push(once);
        analyze(&plan).err().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(refused(None, committed("once")), Vec::<String>::new());
    let top = Some(TopDef { count: 1, by: event("at"), ties: false });
    assert_eq!(refused(top, named("s")), ["window 'once': it is a top and first events; make two of it"]);
    let aborts = "sink 'out': 'once' gives the first events of a stream, and has no stream of aborts";
    assert_eq!(refused(None, aborted("once")), [aborts]);
}

#[test]
fn windows_over_streams() {
    use WindowFunction as F;
    let ten = || WindowsDef::Tumbling { length: Value::Int(10), origin: 0 };
    let sliding =
        |length, every| WindowsDef::Sliding { length: Value::Int(length), every: Value::Int(every), origin: 0 };
    let sum = || asked(F::Sum, "n");
    let calendar = WindowsDef::Calendar(of_zone(Unit::Months(1), &[]));
    // Each is right but for one thing.
    assert_eq!(windowed(&["n"], ten(), named("s"), sum()), Vec::<String>::new());
    for function in [F::Max, F::First, F::Last] {
        assert_eq!(windowed(&[], sliding(10, 5), named("later"), asked(function, "at")), Vec::<String>::new());
    }
    let cases = [
        (
            windowed(&["x"], ten(), named("s"), sum()),
            "window 'w': the group 'x' is a float; use an int, a Decimal or a str",
        ),
        (
            windowed(&[], sliding(10, 3), named("s"), sum()),
            "window 'w': windows of 10 are no whole number of slides of 3; give a slide that divides the length",
        ),
        (
            windowed(&[], WindowsDef::Session { gap: Value::Duration(10) }, named("s"), sum()),
            "window 'w': the event time is an int, but the gap of the windows is microseconds(10); give an int",
        ),
        (
            windowed(&[], calendar, named("s"), sum()),
            "window 'w': the windows are of a calendar, but the event time is an int; give a length that is an int",
        ),
        (
            windowed(&[], WindowsDef::Counting { count: 0 }, named("s"), sum()),
            "window 'w': the windows are of 0 events; give 1 to 65536",
        ),
        (
            windowed(&[], ten(), named("s"), asked(F::Pvariance, "flag")),
            "window 'w': w.ev.flag.pvariance() is asked of bool; only numbers have it",
        ),
        (
            windowed(&[], ten(), named("s"), asked(F::Sum, "flag")),
            "window 'w': w.ev.flag.sum() is asked of bool; only numbers have it",
        ),
        (
            windowed(&["n"], ten(), named("s"), event("x")),
            "window 'w': w.x is one value of many: a window holds events; ask for an aggregate, as in w.x.max(), or group by it",
        ),
        (
            windowed(&[], ten(), StreamRef::Committed("w".into()), sum()),
            "transaction 'w': it feeds itself: w -> w; an event must come to an end; do the repetition inside one transaction",
        ),
    ];
    for (errors, expected) in cases {
        assert_eq!(errors, [expected]);
    }
}

fn of_zone(unit: Unit, changes: &[(i64, i64)]) -> Periods {
    Periods { unit, zone: Zone { name: "Some/Where".into(), offset: 0, changes: changes.to_vec() } }
}

#[test]
fn periods_that_are_none() {
    let refused = |unit: Unit, changes: &[(i64, i64)]| {
        let plan = PlanBuilder::new("p").source("s", |s| s.event_time("at", Type::Time));
        let mut plan = plan.build();
        let windows = WindowsDef::Calendar(of_zone(unit, changes));
        let over = Some(OverDef { by: vec![], windows, early: None, every: None, top: None, first: None, own: vec![] });
        let (name, inputs) = ("w".into(), vec![named("s")]);
        plan.transactions.push(TransactionDef {
            name,
            inputs,
            over,
            join: None,
            nested: false,
            derives: false,
            roles: vec![],
            body: vec![],
        });
        analyze(&plan).err().unwrap_or_default().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ten = |origin| Unit::Span { length: 10, origin };
    assert_eq!(refused(ten(9), &[(1, 7), (2, 8)]), Vec::<String>::new());
    let unit = |unit: Unit| {
        format!(
            "window 'w': {unit:?} is no unit of a calendar; give a length with an origin from 0 to below it, or 1 to 12000 months"
        )
    };
    for none in [Unit::Span { length: 0, origin: 0 }, ten(10), ten(-1), Unit::Months(0), Unit::Months(12_001)] {
        assert_eq!(refused(none, &[]), [unit(none)]);
    }
    let order = "window 'w': the changes of the zone 'Some/Where' are not in order; give each after the one before it, and a clock within a week of UTC";
    for changes in [[(1, 7), (1, 8)], [(2, 7), (1, 8)], [(1, -8), (2, 3)], [(1, 7), (2, i64::MAX)]] {
        assert_eq!(refused(ten(0), &changes), [order], "{changes:?}");
    }
}

#[test]
fn rows_that_cannot_expire() {
    let timed = |expire: Expire| {
        PlanBuilder::new("p").source("s", |s| s.event_time("at", Type::Int).field("id", Type::Str)).table("t", |t| {
            t.key("id", Type::Str)
                .column_or("n", Type::Int, Value::Int(0))
                .column("at", ColumnType::optional(Type::Time))
                .expire(expire)
        })
    };
    let after = |length| timed(Expire::After(length));
    refuse(after(Value::Int(0)), &["table 't': its rows expire after 0; give a time greater than zero"]);
    refuse(
        after(Value::Duration(900_000_000)),
        &["table 't': its rows expire after 15m, and event times are int; give a number"],
    );
    refuse(after(Value::Bool(true)), &["table 't': its rows expire after True; give a duration, such as \"15m\""]);
    refuse(timed(Expire::At("m".into())), &["table 't': no column 'm'; known: id, n, at"]);
    refuse(
        timed(Expire::At("id".into())),
        &["table 't': its rows expire by 'id', which is str; use a column of event times"],
    );
    refuse(
        timed(Expire::At("at".into())),
        &["table 't': its rows expire by 'at', which is Time, and event times are int; use a column of event times"],
    );
    refuse(
        PlanBuilder::new("p").table("t", |t| t.key("gone_at", Type::Int).expire(Expire::After(Value::Int(1)))),
        &[
            "table 't': its rows expire, and it has a column 'gone_at', as that of their time is called; give the column \
           another name",
        ],
    );
    let untimed = PlanBuilder::new("p")
        .source("s", |s| s.field("id", Type::Str))
        .table("t", |t| {
            t.key("id", Type::Str).column_or("n", Type::Int, Value::Int(0)).expire(Expire::After(Value::Int(1)))
        })
        .transaction("tx", [named("s")], |t| t.create("row", "t", [event("id")]).body(|b| b.set("row", "n", 1)));
    refuse(
        untimed,
        &["transaction 'tx': rows of 't' expire, but no source has an event time; declare the event time of every \
           source, or let a clock bring it: app.clock(\"1s\")"],
    );
    let moved = after(Value::Int(1)).map("m", named("s"), [("id", event("id")), ("at", event("at") + 1)]).transaction(
        "tx",
        [named("m")],
        |t| t.create("row", "t", [event("id")]).body(|b| b.set("row", "n", 1)),
    );
    refuse(
        moved,
        &[
            "transaction 'tx': rows of 't' expire, but its events do not hold the time of their position; pass the event \
           time on as it is, in one field of all inputs",
        ],
    );
    refuse(
        base().filter("w", expired("t"), literal(Value::Bool(true))),
        &["stream 'w': the rows of 't' do not expire; declare the table with expire=, such as expire=\"15m\""],
    );
    refuse(
        base().transaction("t.expired", [named("s")], |t| t),
        &[
            "transaction 't.expired': 't.expired' is no name for a transaction; use letters, digits and '_', a letter first",
        ],
    );
}

#[test]
fn rows_that_cannot_be_woken() {
    /// Returns events with the time `at`, rows of `t`, and a transaction that wakes one.
    fn plan(has_time: bool, key: &str, wake: impl FnOnce(&mut Block)) -> PlanBuilder {
        PlanBuilder::new("p")
            .source("s", |s| {
                let s = if has_time { s.event_time("at", Type::Time) } else { s.field("at", Type::Time) };
                s.field("id", Type::Int).field("maybe", ColumnType::optional(Type::Time))
            })
            .table("t", |t| t.key(key, Type::Int).column_or("n", Type::Int, Value::Int(0)))
            .transaction("tx", [named("s")], |t| {
                t.row("r", "t", [event("id")]).read("q", "t", [event("id")]).body(wake)
            })
    }
    let at = |at: Expr| move |b: &mut Block| b.wake("r", Some(at));
    assert!(analyze(&plan(true, "id", at(event("at"))).build()).is_ok());
    refuse(
        plan(true, "id", |b| b.wake("q", None)),
        &["transaction 'tx': role 'q' is only read; declare it with t.row(…)"],
    );
    refuse(plan(true, "id", |b| b.wake("x", None)), &["transaction 'tx': no role 'x'; known: r, q"]);
    refuse(
        plan(true, "id", at(event("id"))),
        &["transaction 'tx': the time at which a row is woken is int; wake it at an event time, which is Time here"],
    );
    refuse(
        plan(true, "id", at(event("maybe"))),
        &[
            "transaction 'tx': the time at which a row is woken can be None; ask `if … is None` first; `wake(None)` cancels \
         a wake",
        ],
    );
    refuse(
        plan(false, "id", at(event("at"))),
        &["table 't': its rows are woken, but no source has an event time; declare the event time of every source"],
    );
    refuse(
        plan(true, "at", at(event("at"))),
        &[
            "table 't': its rows are woken, and a column of its key is called 'at', as the time of a wake; give the column \
         another name",
        ],
    );
    let none = plan(true, "id", |b| b.set("r", "n", 1));
    refuse(
        none.filter("w", woken("t"), literal(Value::Bool(true))),
        &["stream 'w': no row of 't' is ever woken; declare a transaction with role.wake(at) before"],
    );
    // The events of the transaction do not hold the time of their position.
    let mapped = PlanBuilder::new("p")
        .source("s", |s| s.event_time("at", Type::Time).field("id", Type::Int))
        .table("t", |t| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .map("m", named("s"), record([("id", event("id")), ("later", event("at") + Expr::from(Value::Duration(5)))]))
        .transaction("tx", [named("m")], |t| {
            t.row("r", "t", [event("id")]).body(|b| b.wake("r", Some(event("later"))))
        });
    refuse(
        mapped,
        &[
            "transaction 'tx': it wakes rows, but its events do not hold the time of their position; pass the event time on \
         as it is, in one field of all inputs",
        ],
    );
    let taken = plan(true, "id", |b| b.set("r", "n", 1)).transaction("other", [named("s")], |t| {
        t.row("r__wakes", "t", [event("id")]).body(|b| b.set("r__wakes", "n", 1))
    });
    refuse(
        taken,
        &["transaction 'other': the role 'r__wakes' has a name of hidden roles; end it otherwise than in '__wakes'"],
    );
}

/// Returns a join of `s` and `t`, whose function returns one field.
fn joined(on: [&str; 2], bound: JoinBound, how: JoinHow, returned: &str) -> Vec<String> {
    let source = |s: tidemill_plan::build::SourceBuilder| {
        let optional = ColumnType::optional(Type::Int);
        let more = s.event_time("at", Type::Int).field("n", Type::Int).field("maybe", optional);
        more.field("x", Type::Float).field("name", Type::Str).field("exists", Type::Bool).list("list", Type::Int)
    };
    let mut plan = PlanBuilder::new("p").source("s", source).source("t", source).build();
    let returned = record([("a", event(returned))]);
    let body = vec![Stmt { node: StmtNode::Return { record: Some(returned) }, span: None }];
    let right = (how != JoinHow::Anti).then(|| "a".to_owned());
    let join = Some(JoinDef { left: "p".into(), right, on: vec![(event(on[0]), event(on[1]))], bound, how });
    let inputs = vec![named("s"), named("t")];
    plan.transactions.push(TransactionDef {
        name: "j".into(),
        inputs,
        over: None,
        join,
        nested: false,
        derives: false,
        roles: vec![],
        body,
    });
    match analyze(&plan) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn joins_of_streams() {
    let ten = || JoinBound::Within(Value::Int(10));
    let over = JoinBound::Over;
    let inner = JoinHow::Inner;
    // Each is right but for one thing.
    for how in [JoinHow::Inner, JoinHow::Left, JoinHow::Outer, JoinHow::Anti] {
        assert_eq!(joined(["n", "maybe"], ten(), how, "p.n"), Vec::<String>::new());
    }
    let cases = [
        (
            joined(["x", "x"], ten(), inner, "p.n"),
            "the key ev.x of the left side is a float; floats that are nearly equal are different; use an int, a Decimal or a str",
        ),
        (
            joined(["n", "name"], ten(), inner, "p.n"),
            "the key is ev.n on the left, which is int, and ev.name on the right, which is str; give both one type, in a map of one of the streams",
        ),
        (joined(["n", "nn"], ten(), inner, "p.n"), "no event field 'nn'; did you mean 'n'?"),
        (joined(["n", "n"], ten(), inner, "p.nn"), "no field of 'p' called 'nn'; did you mean 'n'?"),
        (joined(["n", "n"], ten(), inner, "b.n"), "'b' is no side of the join"),
        (
            joined(["n", "n"], ten(), inner, "a.list"),
            "a.list is a list, which a join does not keep; open it in a transaction before, and join what that emits",
        ),
        (
            joined(["n", "n"], ten(), JoinHow::Left, "a.exists"),
            "'a.exists' has two meanings: its events have a field 'exists'; rename the field in a map",
        ),
        (
            joined(["n", "n"], JoinBound::Within(Value::Duration(10)), inner, "p.n"),
            "the event time is an int, but the join is within microseconds(10); give an int",
        ),
        (
            joined(["n", "n"], JoinBound::Within(Value::Int(0)), inner, "p.n"),
            "the join is within 0; give a duration greater than zero, or an int where the event time is one",
        ),
        (
            joined(["n", "n"], JoinBound::Within(Value::Int(1 << 61)), inner, "p.n"),
            "the join reaches too far; give a shorter time: what is kept of each event, is kept for so long",
        ),
        (
            joined(["n", "n"], over(WindowsDef::Session { gap: Value::Int(10) }), inner, "p.n"),
            "a join is over tumbling windows; write over=tm.tumbling(...), or within= for events that are less than so far apart",
        ),
    ];
    for (errors, expected) in cases {
        assert_eq!(errors, [format!("join 'j': {expected}")]);
    }
}
