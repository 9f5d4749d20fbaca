//! Types, conversions and reasons of expressions.

use super::{check, decimal, typed};
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::Function::*;
use tidemill_plan::build::{self, all, duration, element, event, if_else, literal, max, min, none};
use tidemill_plan::typed::Node;
use tidemill_plan::{Cast, CompareOp, Expr, WordOp};

fn call(function: tidemill_plan::Function, argument: Expr) -> Expr {
    argument.call(function, [])
}

#[test]
fn ints_and_floats() {
    check(event("n") + event("m"), Type::Int, &["integer overflow in ev.n + ev.m"]);
    check(event("n") / event("m"), Type::Float, &["division by zero in ev.n / ev.m"]);
    check(event("n") / 2, Type::Float, &[]);
    check(event("n").floor_div(10), Type::Int, &[]);
    check(event("n").floor_div(-1), Type::Int, &["integer overflow in ev.n // -1"]);
    check(event("n") % event("m"), Type::Int, &["division by zero in ev.n % ev.m"]);
    check(event("n") + event("x"), Type::Float, &[]);
    check(event("x").floor_div(event("n")), Type::Float, &["division by zero in ev.x // ev.n"]);
    check(-event("n"), Type::Int, &["integer overflow in -ev.n"]);
    check(-event("x"), Type::Float, &[]);
    check(min([event("n"), event("x"), literal(1)]), Type::Float, &[]);
    check(
        event("n") * (event("m") + 1),
        Type::Int,
        &["integer overflow in ev.m + 1", "integer overflow in ev.n * (ev.m + 1)"],
    );
}

#[test]
fn constants_are_folded_where_python_writes_an_operator() {
    assert_eq!(typed(-literal(5)).0.node, Node::Const(Value::Int(-5)));
    assert_eq!(typed(-build::decimal("1.50")).0.node, Node::Const(Value::Decimal(-150)));
}

#[test]
fn decimals_align_their_scales() {
    let overflow = |text: &str| format!("decimal overflow in {text}");
    let sum = "ev.price + ev.rate";
    check(event("price") + event("rate"), decimal(18, 5), &[&overflow(sum)]);
    let (value, _) = typed(event("price") + event("rate"));
    let Node::Cast { cast: Cast::FitDigits { digits: 18 }, value, .. } = value.node else {
        panic!("a stored sum fits")
    };
    let Node::Word { op: WordOp::Add, left, right, .. } = value.node else { panic!("an addition") };
    assert!(matches!(left.node, Node::Cast { cast: Cast::ScaleUp { by: 3 }, .. }));
    assert_eq!(right.ty.ty, decimal(18, 5));
    check(event("price") * event("n"), decimal(18, 2), &[&overflow("ev.price * ev.n")]);
    check(event("price") * event("rate"), decimal(18, 7), &[&overflow("ev.price * ev.rate")]);
    check(event("price").floor_div(build::decimal("0.05")), Type::Int, &[]);
    check(
        event("price") % event("n"),
        decimal(18, 2),
        &[&overflow("ev.price % ev.n"), "division by zero in ev.price % ev.n"],
    );
    check(event("price"), decimal(10, 2), &[]);
}

#[test]
fn quotients_have_six_digits_or_more() {
    let shift = |expr: Expr| {
        let (value, _) = typed(expr);
        let Node::Cast { cast: Cast::FitDigits { .. }, value, .. } = value.node else {
            panic!("a stored quotient fits")
        };
        let scale = value.ty.ty;
        let Node::Word { op: WordOp::DecimalDiv { shift, .. }, left, .. } = value.node else { panic!("a quotient") };
        let scaled = match left.node {
            Node::Cast { cast: Cast::ScaleUp { by }, .. } => by,
            Node::Cast { cast: Cast::Relabel, .. } | Node::Field(_) => 0,
            other => panic!("{other:?}"),
        };
        (scale, shift, scaled)
    };
    assert_eq!(shift(event("price") / event("n")), (decimal(18, 6), 4, 0));
    assert_eq!(shift(event("price") / event("rate")), (decimal(18, 6), 9, 0));
    let fine = build::decimal("0.0000000000000001");
    assert_eq!(shift(event("n") / fine), (decimal(18, 16), 18, 14));
}

#[test]
fn times_and_durations() {
    check(
        event("at") + call(Seconds, event("n")),
        Type::Time,
        &["integer overflow in seconds(ev.n)", "integer overflow in ev.at + seconds(ev.n)"],
    );
    let day = "integer overflow in ev.at - ev.at";
    check(call(TotalSeconds, event("at") - event("at")), Type::Float, &[day]);
    check((event("at") - event("at")) / duration(5), Type::Float, &[day]);
    check((event("at") - event("at")).floor_div(duration(5)), Type::Int, &[day]);
    check(call(TotalMicroseconds, event("at")), Type::Int, &[]);
    check((event("at") - event("at")).lt(call(Days, literal(1))), Type::Bool, &[day]);
}

#[test]
fn none_is_checked_where_a_value_is_needed() {
    check(event("maybe_n") + 1, Type::Int, &["None in ev.maybe_n", "integer overflow in ev.maybe_n + 1"]);
    check(event("maybe_n").lt(1), Type::Bool, &["None in ev.maybe_n"]);
    check(event("maybe_n").eq(1), Type::Bool, &[]);
    check(event("maybe_flag").and(event("flag")), Type::Bool, &["None in ev.maybe_flag"]);
    check(event("maybe_n"), ColumnType::optional(Type::Int), &[]);
    assert!(matches!(typed(event("maybe_n").eq(none())).0.node, Node::IsNull(_)));
    assert!(matches!(typed(event("maybe_n").ne(none())).0.node, Node::Not(_)));
    assert!(matches!(typed(event("maybe_n").ne(1)).0.node, Node::Equal { negated: true, .. }));
    assert!(matches!(typed(event("n").ne(1)).0.node, Node::Compare { op: CompareOp::Ne, .. }));
    assert_eq!(typed(event("n").is_null()).0.node, Node::Const(Value::Bool(false)));
    // A value that is never None is still evaluated, because it may fail.
    check((event("n") / event("m")).is_null(), Type::Bool, &["division by zero in ev.n / ev.m"]);
}

#[test]
fn comparisons_and_branches_meet_in_one_type() {
    check(event("n").eq(event("x")), Type::Bool, &[]);
    check(event("price").ge(event("rate")), Type::Bool, &[]);
    check(event("price").ge(event("n")), Type::Bool, &["decimal overflow in ev.price >= ev.n"]);
    check(if_else(event("flag"), event("n"), event("x")), Type::Float, &[]);
    check(if_else(event("flag"), event("maybe_n"), event("x")), ColumnType::optional(Type::Float), &[]);
    check(if_else(event("flag"), event("text"), none()), ColumnType::optional(Type::Str), &[]);
    check(if_else(event("flag"), event("price"), event("rate")), decimal(18, 5), &[]);
    check(event("text").is_in(["a", "b"]), Type::Bool, &[]);
    check(max([event("price"), literal(0)]), decimal(18, 2), &[]);
}

#[test]
fn functions() {
    check(call(Abs, event("price")), decimal(10, 2), &[]);
    check(call(Abs, event("n")), Type::Int, &["integer overflow in abs(ev.n)"]);
    check(call(Round, event("x")), Type::Int, &["conversion failed in round(ev.x)"]);
    check(call(Round, event("price")), Type::Int, &[]);
    check(event("price").call(Round, [literal(1)]), decimal(18, 1), &["decimal overflow in round(ev.price, 1)"]);
    check(call(Int, event("text")), Type::Int, &["conversion failed in int(ev.text)"]);
    check(call(Int, event("price")), Type::Int, &[]);
    check(call(Float, event("price")), Type::Float, &[]);
    check(call(Str, event("price")), Type::Str, &[]);
    check(call(Len, event("raw")), Type::Int, &[]);
    check(call(Len, event("tags")), Type::Int, &[]);
    check(build::length("lines"), Type::Int, &[]);
    check(call(Upper, event("text")) + "!", Type::Str, &[]);
    check(event("text").call(Contains, [literal("a")]), Type::Bool, &[]);
    check(build::decimal("12.340"), decimal(18, 3), &[]);
    check(event("n").call(Decimal, [literal(2)]), decimal(18, 2), &["decimal overflow in Decimal(ev.n, 2)"]);
}

#[test]
fn texts_of_expressions_have_the_parentheses_they_need() {
    let (a, b, c) = (|| event("a"), || event("b"), || event("c"));
    for (expr, text) in [
        (a() - (b() - c()), "ev.a - (ev.b - ev.c)"),
        ((a() - b()) - c(), "ev.a - ev.b - ev.c"),
        ((a() + b()) * c(), "(ev.a + ev.b) * ev.c"),
        (-(a() + b()), "-(ev.a + ev.b)"),
        (!(a().or(b())), "not (ev.a or ev.b)"),
        (all([a().or(b()), c()]), "(ev.a or ev.b) and ev.c"),
        (a().lt(b()).eq(c()), "(ev.a < ev.b) == ev.c"),
        (if_else(a(), b(), c()) + 1, "(ev.b if ev.a else ev.c) + 1"),
        (call(Strip, a() + "x"), "(ev.a + \"x\").strip()"),
        (a().call(Contains, [b()]), "ev.b in ev.a"),
        (a().is_in([1, 2]).and(!b().is_null()), "ev.a in (1, 2) and not ev.b is None"),
        (element("line", "item"), "line.item"),
    ] {
        assert_eq!(expr.to_string(), text);
    }
}

#[test]
fn functions_of_math() {
    check(call(Sqrt, event("x")), Type::Float, &["math error in sqrt(ev.x)"]);
    check(event("n").call(Pow, [event("x")]), Type::Float, &["math error in pow(ev.n, ev.x)"]);
    check(event("x").call(Atan2, [literal(1)]), Type::Float, &[]);
    check(event("x").call(Hypot, [event("x")]), Type::Float, &[]);
    check(call(Floor, event("x")), Type::Int, &["conversion failed in floor(ev.x)"]);
    check(call(Ceil, event("price")), Type::Int, &[]);
    check(call(Trunc, event("n")), Type::Int, &[]);
}

#[test]
fn functions_of_texts() {
    let text = || event("text");
    let all = || literal(i64::MAX);
    check(text().call(Find, [text(), literal(0), all()]), Type::Int, &[]);
    check(text().call(Slice, [literal(-3), all()]), Type::Str, &[]);
    check(text().call(At, [event("n")]), Type::Str, &["index out of range in ev.text[ev.n]"]);
    check(text().call(Zfill, [literal(1000)]), Type::Str, &[]);
    check(text().call(Zfill, [literal(1001)]), Type::Str, &["too much memory"]);
    check(text().call(Replace, [literal("ab"), literal("c"), literal(-1)]), Type::Str, &[]);
    check(text().call(Replace, [literal(""), literal("c"), literal(-1)]), Type::Str, &["too much memory"]);
    check(text().call(Replace, [literal("a"), text(), literal(2)]), Type::Str, &["too much memory"]);
    check(text().call(SplitCount, [none(), literal(-1)]), Type::Int, &[]);
    // White space parts it where the separator is None.
    check(
        text().call(SplitCount, [event("maybe_text"), literal(-1)]),
        Type::Int,
        &["empty separator in len(ev.text.split(ev.maybe_text))"],
    );
    check(
        text().call(SplitPart, [text(), literal(2), literal(-1)]),
        Type::Str,
        &["empty separator in ev.text.split(ev.text, 2)[-1]", "index out of range in ev.text.split(ev.text, 2)[-1]"],
    );
}
