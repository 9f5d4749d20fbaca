//! Windows whose edges are met exactly, leapt over, and met again by what comes late.

use crate::History;
use crate::ast::*;
use crate::windows::aggregates;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{AccessDef, Ahead, CallerFields, ColumnDef, Expr, OriginDef, Stmt, StreamDef, WindowDef};

fn span(length: i64) -> Value {
    Value::Duration(length)
}

fn columns() -> Vec<ColumnDef> {
    let sliced = |span_of, slide| WindowDef::Span { span: span(span_of), slide: Some(span(slide)), distinct: false };
    let distinct = |span_of, slide| WindowDef::Span { span: span(span_of), slide: Some(span(slide)), distinct: true };
    let exact = WindowDef::Span { span: span(10), slide: None, distinct: false };
    vec![
        key("id", Type::Int),
        windowed("exact", Type::Int, exact),
        windowed("sliced", Type::Float, sliced(30, 10)),
        windowed("money", decimal(2), sliced(20, 5)),
        windowed("seen", Type::Int, distinct(30, 10)),
        windowed("names", Type::Str, distinct(20, 10)),
        windowed("last", Type::Float, WindowDef::Last(3)),
        windowed("words", Type::Bytes, WindowDef::Last(2)),
    ]
}

/// Returns the aggregates of every window, as fields of a record.
fn answers(columns: &[ColumnDef]) -> Vec<(String, Expr)> {
    let windows = columns.iter().filter(|column| column.window.is_some());
    let all = windows.flat_map(|column| aggregates("r", column));
    all.enumerate().map(|(number, asked)| (format!("a{number}"), asked.expr)).collect()
}

fn source_of(lateness: i64) -> StreamDef {
    let time = ("at", Type::Time.into());
    let schema = Schema::scalars([
        time,
        ("id", Type::Int.into()),
        ("n", Type::Int.into()),
        ("x", Type::Float.into()),
        ("money", decimal(2).into()),
        ("name", Type::Str.into()),
        ("raw", Type::Bytes.into()),
        ("fails", Type::Int.into()),
    ]);
    let origin = OriginDef::Source {
        schema,
        event_time: Some("at".into()),
        lateness,
        anchored: false,
        remembers: None,
        keys_max: None,
        ahead: Ahead::ByInput,
        caller: CallerFields::default(),
    };
    StreamDef { name: "events".into(), origin }
}

fn record_of(at: i64, number: i64) -> Vec<Value> {
    let floats = [0.1, 0.2, -0.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, -2.5];
    let big = if number % 11 == 7 { i64::MAX } else { number % 5 - 2 };
    let name = ["a", "b", "", "ß", "a much longer name than the others"][number as usize % 5];
    vec![
        Value::Time(at),
        Value::Int(number % 2),
        Value::Int(big),
        Value::Float(floats[(number % 8) as usize]),
        Value::Decimal(number * 7 % 23 - 11),
        Value::Str(name.into()),
        Value::Bytes(name.as_bytes().to_vec()),
        Value::Int(i64::from(number % 6 == 5)),
    ]
}

/// Returns times around every edge: just before it, on it, after it; again at once, a window later, many windows later,
/// and at the ends of what a time can be.
fn times() -> Vec<i64> {
    let mut times = vec![i64::MIN, i64::MIN + 1, -31, -30, -21, -20, -11, -10, -9, -1, 0, 0, 1, 4, 5, 9, 10, 10, 11];
    times.extend([19, 20, 29, 30, 39, 40, 41, 49, 50, 59, 60, 69, 70, 100, 129, 130, 131, 1_000, 1_009, 1_010, 1_029]);
    times.extend([1_030, 1_039, 1_040, 100_000, i64::MAX - 30, i64::MAX - 10, i64::MAX - 1, i64::MAX, i64::MAX]);
    times
}

fn adds() -> Vec<Stmt> {
    vec![
        add_to("r", "exact", event("n")),
        add_to("r", "sliced", event("x")),
        add_to("r", "money", event("money")),
        add_to("r", "seen", event("n")),
        add_to("r", "names", event("name")),
        add_to("r", "last", event("x")),
        add_to("r", "words", event("raw")),
    ]
}

fn history(name: &str, lateness: i64, body: Vec<Stmt>, times: Vec<i64>) -> History {
    let roles = vec![
        role("r", "windows", vec![event("id")], AccessDef::Create),
        role("other", "windows", vec![int(0)], AccessDef::Create),
    ];
    let work = transaction("work", vec![named("events")], roles, body);
    let plan = plan(name, vec![table("windows", columns())], vec![source_of(lateness)], vec![work]);
    let records = times.iter().zip(0..).map(|(&at, number)| record_of(at, number)).collect();
    History { plan, preload: vec![], sources: vec![records] }
}

fn give_back_all() -> Stmt {
    let answers = answers(&columns());
    give_back(answers.iter().map(|(name, answer)| (name.as_str(), answer.clone())).collect())
}

/// Every edge in order, everything asked before and after each add; a sum that does not fit aborts after all of it.
pub fn edges() -> History {
    let mut body = vec![emit("before", {
        let asked = columns();
        let asked: Vec<_> = aggregates("r", &asked[4]).into_iter().chain(aggregates("r", &asked[1])).take(6).collect();
        ["s", "t", "u", "v", "w", "x"].into_iter().zip(asked).map(|(name, asked)| (name, asked.expr)).collect()
    })];
    body.extend(adds());
    body.push(give_back_all());
    history("window_edges", 0, body, times())
}

/// Windows with nothing after the adds that could abort, so that they work in place; other windows are asked then.
pub fn in_place() -> History {
    let mut body = vec![when(compare(tidemill_plan::CompareOp::Eq, event("fails"), int(1)), vec![abort("no")], vec![])];
    // A first use may find the role's key wrong, and abort.
    body.push(add_to("other", "names", event("name")));
    body.extend(adds());
    body.push(add_to("other", "seen", event("n")));
    let mut times = times();
    times.extend((0..40).map(|_| i64::MAX));
    history("windows_in_place", 0, body, times)
}

/// Times that go back within the lateness, over slice edges and back.
pub fn late() -> History {
    let mut body = adds();
    body.push(add_to("other", "names", event("name")));
    body.push(require(compare(tidemill_plan::CompareOp::Eq, event("fails"), int(0)), "in the end"));
    let answers = answers(&columns()[1..=4]);
    let names = aggregates("other", &columns()[5])[0].expr.clone();
    let mut record: Vec<_> = answers.iter().map(|(name, answer)| (name.as_str(), answer.clone())).collect();
    record.push(("names", names));
    body.push(give_back(record));
    let times = (0..120).map(|i| i * 3 + [0, -12, 4, -25, 9, 0, -1][i as usize % 7]).collect();
    history("windows_late", 15, body, times)
}

/// Values whose sums only come out right if nothing is rounded on the way: that cancel, that lie at the edges of what
/// the engine sums up together (2^-28 and 2^71, and every 2^99 from there), that overflow half-way, zeros, subnormals.
fn floats() -> Vec<f64> {
    let power = |exponent: i32| 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
    let mut floats = vec![1e300, 0.1, -1e300, 5e-324, 1e16, 1.0, -1e16, 1e308, 1e308, -1e308, 0.1, 0.2, -0.3, -0.0];
    floats.extend([f64::MAX, f64::MAX, -f64::MAX, -f64::MAX, 1e-12, 2.5, -1e-12, -5e-324, 9007199254740992.0, 1.0]);
    for edge in [-28, 71, 170, -127, -1022] {
        let below = f64::from_bits(power(edge).to_bits() - 1);
        floats.extend([power(edge), below, -power(edge), 60.0, -below, 0.0]);
    }
    floats.extend([f64::NAN, 1e-300, f64::INFINITY, 2.0, f64::NEG_INFINITY, 4.0, 1e22, 3.0, -1e22, f64::MAX, f64::MAX]);
    floats
}

/// Sums of floats, in slices of all lengths and of the last values, in place and with aborts.
pub fn of_floats() -> History {
    let exact = WindowDef::Span { span: span(2), slide: None, distinct: false };
    let sliced = |slices: i64| WindowDef::Span { span: span(slices * 8), slide: Some(span(8)), distinct: false };
    let columns = vec![
        key("id", Type::Int),
        windowed("exact", Type::Float, exact),
        windowed("one", Type::Float, sliced(1)),
        windowed("several", Type::Float, sliced(3)),
        windowed("last", Type::Float, WindowDef::Last(4)),
    ];
    let asked = answers(&columns);
    let mut body = vec![when(compare(tidemill_plan::CompareOp::Eq, event("fails"), int(1)), vec![abort("no")], vec![])];
    body.extend(["exact", "one", "several", "last"].map(|column| add_to("r", column, event("x"))));
    body.push(give_back(asked.iter().map(|(name, answer)| (name.as_str(), answer.clone())).collect()));
    let roles = vec![role("r", "windows", vec![event("id")], AccessDef::Create)];
    let work = transaction("work", vec![named("events")], roles, body);
    let plan = plan("window_floats", vec![table("windows", columns)], vec![source_of(0)], vec![work]);
    let floats = floats();
    let record = |number: usize| {
        let mut record = record_of(number as i64 * 2 / 3, number as i64);
        // Each time around the values meet others: one in the middle is left out.
        let len = floats.len() - 1;
        let left_out = number / len * 7 % len;
        record[1] = Value::Int(i64::from(number % 9 == 8));
        record[3] = Value::Float(floats[number % len + usize::from(number % len >= left_out)]);
        record[7] = Value::Int(i64::from(number % 13 == 12));
        record
    };
    History { plan, preload: vec![], sources: vec![(0..2 * floats.len()).map(record).collect()] }
}
