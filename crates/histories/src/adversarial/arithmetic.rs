//! Every operation on the values where it may go wrong, each in a map of its own: what fails shows
//! on the map's `failed` stream and leaves the others alone.

use super::values::str;
use crate::History;
use crate::ast::*;
use crate::expressions::{FUNCTIONS, FUNCTIONS_OF_TWO};
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{BinaryOp, CompareOp, DatePart, Expr, ExprNode, Function, OriginDef, StreamDef, UnaryOp, Zone};

const OPERATORS: [BinaryOp; 6] =
    [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::FloorDiv, BinaryOp::Mod];

const COMPARISONS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

/// Returns a history with a map for each expression over the events of one source.
fn maps(name: &str, schema: Schema, expressions: Vec<Expr>, events: Vec<Vec<Value>>) -> History {
    let mut streams = vec![source("values", schema)];
    for (number, expression) in expressions.into_iter().enumerate() {
        let record = record(vec![("result", expression)]);
        let origin = OriginDef::Map { input: named("values"), record };
        streams.push(StreamDef { name: format!("map{number}"), origin });
    }
    History { plan: plan(name, vec![], streams, vec![]), preload: vec![], sources: vec![events] }
}

/// Returns all pairs of values, each a list of fields.
fn pairs(values: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let pair = |l: &Vec<Value>, r: &Vec<Value>| l.iter().chain(r).cloned().collect();
    values.iter().flat_map(|l| values.iter().map(move |r| pair(l, r))).collect()
}

const WORDS: [i64; 13] = [
    0,
    1,
    -1,
    2,
    -7,
    10,
    1 << 31,
    (1 << 53) + 1,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
    i64::MIN + 1,
    4_611_686_018_427_387_905,
];

/// Both values of these fields, and one as a number of the other kinds.
const FLOATS: [f64; 13] =
    [0.0, -0.0, 1.0, -7.0, 0.1, 2.5, 3.5, -2.5, 1e308, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

const DECIMAL_MAX: i64 = 999_999_999_999_999_999;

const DECIMALS: [i64; 13] =
    [0, 1, -1, 50, 150, 250, -150, 101, 7, DECIMAL_MAX, -DECIMAL_MAX, DECIMAL_MAX / 2, 1_000_000_000_000];

/// Returns a row of each kind of number.
fn rows() -> Vec<Vec<Value>> {
    let columns = WORDS.iter().zip(FLOATS).zip(DECIMALS);
    columns.map(|((&word, float), d)| vec![Value::Int(word), Value::Float(float), Value::Decimal(d)]).collect()
}

fn row_schema() -> Schema {
    let kinds = [Type::Int, Type::Float, decimal(2)];
    let names = [["i", "f", "d"], ["j", "g", "e"]];
    Schema::scalars(names.iter().flat_map(|names| names.iter().copied().zip(kinds.iter().map(|t| (*t).into()))))
}

/// Operators, comparisons and extremes on all pairs of numbers.
pub fn numbers() -> History {
    let mut expressions = Vec::new();
    let operands = [("i", "j"), ("f", "g"), ("d", "e"), ("i", "e"), ("d", "j"), ("i", "g"), ("f", "j")];
    for (left, right) in operands {
        let both = || [event(left), event(right)];
        expressions.extend(OPERATORS.map(|op| binary(op, event(left), event(right))));
        expressions.extend(COMPARISONS.map(|op| compare(op, event(left), event(right))));
        expressions.extend([Function::Min, Function::Max].map(|function| call(function, both())));
    }
    // Scales that differ, and a quotient whose exponent is large.
    let small = || call(Function::Decimal, [text("0.000000003")]);
    expressions.extend([BinaryOp::Add, BinaryOp::Div, BinaryOp::Mul].map(|op| binary(op, event("d"), small())));
    expressions.push(binary(BinaryOp::Div, small(), event("d")));
    for unit in [Function::Microseconds, Function::Milliseconds, Function::Seconds, Function::Hours, Function::Days] {
        expressions.push(call(Function::TotalSeconds, [call(unit, [event("i")])]));
    }
    maps("numbers", row_schema(), expressions, pairs(&rows()))
}

/// Conversions and functions of one number, on the border of what they can take.
pub fn conversions() -> History {
    let mut expressions = Vec::new();
    for field in ["i", "f", "d"] {
        let functions = [
            Function::Abs,
            Function::Round,
            Function::Int,
            Function::Float,
            Function::Floor,
            Function::Ceil,
            Function::Trunc,
        ];
        expressions.extend(functions.map(|function| call(function, [event(field)])));
        expressions.push(unary(UnaryOp::Neg, event(field)));
    }
    for field in ["i", "d"] {
        expressions.push(call(Function::Str, [event(field)]));
    }
    expressions.extend([0, 2, 9, 18].map(|scale| call(Function::Decimal, [event("i"), int(scale)])));
    expressions.extend([0, 1, 2, 9, 18].map(|scale| call(Function::Round, [event("d"), int(scale)])));
    let mut events = pairs(&rows());
    let borders = [
        9.223372036854775e18,
        9.223372036854776e18,
        -9.223372036854776e18,
        -9.223372036854778e18,
        0.49999999999999994,
        0.5,
        1.5,
        -0.5,
        4503599627370497.5,
    ];
    for border in borders {
        let mut event = events[0].clone();
        event[1] = Value::Float(border);
        events.push(event);
    }
    maps("conversions", row_schema(), expressions, events)
}

/// Functions of floats on all pairs of numbers.
pub fn functions() -> History {
    let mut expressions: Vec<Expr> = vec![];
    for field in ["i", "f"] {
        expressions.extend(FUNCTIONS.map(|function| call(function, [event(field)])));
    }
    for (left, right) in [("f", "g"), ("i", "g"), ("f", "j")] {
        expressions.extend(FUNCTIONS_OF_TWO.map(|function| call(function, [event(left), event(right)])));
    }
    let more =
        [-1.0, 0.5, 2.0, 3.0, 1e-300, 709.782712893384, 709.7827128933841, -745.2, 1e22, 2.2250738585072014e-308];
    let numbers: Vec<Vec<Value>> = FLOATS
        .into_iter()
        .chain(more)
        .zip(WORDS.into_iter().cycle())
        .map(|(float, word)| vec![Value::Int(word), Value::Float(float), Value::Decimal(0)])
        .collect();
    maps("functions", row_schema(), expressions, pairs(&numbers))
}

/// Parts of dates in zones, at both ends of time, of years and of days, and where a clock changes.
pub fn dates() -> History {
    const DAY: i64 = 86_400_000_000;
    let zone =
        |offset: i64, changes: &[(i64, i64)]| Zone { name: "Some/Where".into(), offset, changes: changes.to_vec() };
    let hour = DAY / 24;
    let zones =
        [zone(0, &[]), zone(hour, &[(50 * hour, 2 * hour), (90 * hour, hour)]), zone(-7 * DAY, &[(0, 7 * DAY)])];
    let mut expressions = vec![];
    for zone in zones {
        for part in DatePart::ALL {
            let time = Box::new(event("at"));
            expressions.push(expr(ExprNode::DatePart { part, zone: zone.clone(), time }));
        }
    }
    let starts =
        [-719_528, -719_162, -141_428, -1, 0, 1, 58, 59, 364, 365, 10_956, 11_016, 11_017, 19_722, 19_782, 2_932_896];
    let instants = starts.iter().flat_map(|day| [day * DAY - 1, day * DAY, day * DAY + DAY / 2 + 1]);
    let changes = [50, 90].into_iter().flat_map(|at| [at * hour - 1, at * hour]);
    let weeks = (10_950..11_000).map(|day| day * DAY);
    let all = instants.chain(changes).chain(weeks).chain([i64::MIN, i64::MAX]);
    maps(
        "dates",
        Schema::scalars([("at", Type::Time.into())]),
        expressions,
        all.map(|at| vec![Value::Time(at)]).collect(),
    )
}

/// Text functions on all pairs of strange texts.
pub fn texts() -> History {
    let schema = Schema::scalars([("a", Type::Str.into()), ("b", Type::Str.into())]);
    let both = || [event("a"), event("b")];
    let one = [
        Function::Lower,
        Function::Upper,
        Function::Strip,
        Function::Len,
        Function::Int,
        Function::Float,
        Function::Str,
    ];
    let mut expressions: Vec<Expr> = one.map(|function| call(function, [event("a")])).into();
    expressions.extend([Function::StartsWith, Function::EndsWith, Function::Contains].map(|f| call(f, both())));
    expressions.extend(COMPARISONS.map(|op| compare(op, event("a"), event("b"))));
    expressions.push(add(event("a"), event("b")));
    // White space parts a text where the separator is None.
    let maybe = || {
        let condition = Box::new(compare(CompareOp::Eq, event("b"), text("")));
        let (then, otherwise) = (Box::new(literal(Value::Null)), Box::new(event("b")));
        Expr::from(ExprNode::IfElse { condition, then, otherwise })
    };
    let ends = [(0, i64::MAX), (1, 3), (-3, -1), (2, 1), (i64::MIN, i64::MAX), (100, i64::MIN)];
    for (start, end) in ends {
        let places = || [int(start), int(end)];
        expressions.push(call(Function::Find, [both().as_slice(), &places()].concat()));
        expressions.push(call(Function::Slice, [&[event("a")], places().as_slice()].concat()));
    }
    for place in [0, 2, -1, -4, i64::MIN, i64::MAX] {
        expressions.push(call(Function::At, [event("a"), int(place)]));
        expressions.push(call(Function::SplitPart, [event("a"), event("b"), int(-1), int(place)]));
        expressions.push(call(Function::SplitPart, [event("a"), literal(Value::Null), int(1), int(place)]));
        expressions.push(call(Function::SplitPart, [event("a"), maybe(), int(-1), int(place)]));
    }
    for most in [-1, 0, 1, 2, i64::MAX, i64::MIN] {
        let replaced = || [event("a"), event("b"), text("é-"), int(most)];
        expressions.push(call(Function::Replace, replaced()));
        expressions.push(call(Function::Replace, [event("a"), text(""), event("b"), int(most)]));
        expressions.push(call(Function::SplitCount, [event("a"), event("b"), int(most)]));
        expressions.push(call(Function::SplitCount, [event("a"), literal(Value::Null), int(most)]));
        expressions.push(call(Function::SplitCount, [event("a"), maybe(), int(most)]));
        expressions.push(call(Function::SplitPart, [event("a"), literal(Value::Null), int(most), int(0)]));
    }
    expressions.extend([0, 5, i64::MIN, i64::MAX].map(|width| call(Function::Zfill, [event("a"), int(width)])));
    let long = "lang ".repeat(40);
    let texts = [
        "",
        " ",
        "a",
        "A",
        "ab",
        "ba",
        "ß",
        "SS",
        "ΑΣ",
        "İ",
        "ǆ",
        "e\u{301}",
        "é",
        "日本語",
        "🦀",
        "\u{a0}x\u{3000}",
        "0",
        "-0",
        "+5",
        "00012",
        " 7",
        "7 ",
        "1_000",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "--1",
        "-",
        "٣",
        "1e3",
        ".5",
        "5.",
        "inf",
        "-Infinity",
        "NaN",
        "0x10",
        "1e999",
        "1,5",
        "nul\0byte",
        " a  b\u{85}c\u{1f}d ",
        "aaa",
        "-é",
        &long,
    ];
    let texts: Vec<Vec<Value>> = texts.iter().map(|t| vec![str(*t)]).collect();
    maps("texts", schema, expressions, pairs(&texts))
}
