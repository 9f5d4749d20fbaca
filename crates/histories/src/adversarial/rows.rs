//! Rows that are missing, come, go, or are met under several names.

use super::transfers::long;
use super::values::{ints, str};
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, ListItem, Schema, Type, Value};
use tidemill_plan::{AccessDef, BinaryOp, ColumnDef, CompareOp, Expr, ExprNode, Stmt, StmtNode, TableDef};

fn is(field: &str, value: i64) -> Expr {
    compare(CompareOp::Eq, event(field), int(value))
}

fn numbers(name: &str) -> TableDef {
    table(name, vec![key("id", Type::Str), column("n", Type::Int, Value::Int(0))])
}

/// Elements of one list meet in one row, and in the row of a role outside the list.
pub fn repeated_keys() -> History {
    let item = ListItem::Struct(vec![("key".into(), Type::Str.into()), ("by".into(), Type::Int.into())]);
    let mut schema = Schema::scalars([("limit", Type::Int.into()), ("total", ColumnType::required(Type::Str))]);
    schema.fields.push(list("items", item));
    let roles = vec![
        role_over("r", "numbers", vec![element("items", "key")], "items", AccessDef::Create),
        role("sum", "numbers", vec![event("total")], AccessDef::Create),
    ];
    let body = vec![
        for_each(
            "x",
            "items",
            vec![
                increase("r", "n", element("x", "by")),
                increase("sum", "n", cell("r", "n")),
                require(compare(CompareOp::Le, cell("r", "n"), event("limit")), "over the limit"),
                emit("steps", vec![("key", element("x", "key")), ("n", cell("r", "n"))]),
            ],
        ),
        give_back(vec![("sum", cell("sum", "n")), ("count", expr(ExprNode::Length("items".into())))]),
    ];
    let work = transaction("work", vec![named("orders")], roles, body);
    let plan = plan("repeated_keys", vec![numbers("numbers")], vec![source("orders", schema)], vec![work]);
    let lists = [&[][..], &["a", "a", "a"], &["a", "b", "a"], &["c", "b", "b", "c"], &["sum", "a", "sum"]];
    let order = |i: i64| {
        let item = |(j, k): (usize, &&str)| vec![str(*k), Value::Int((i + j as i64) % 5 - 1)];
        let items = lists[i as usize % lists.len()].iter().enumerate().map(item).collect();
        vec![Value::Int(if i % 7 == 3 { 2 } else { 500 }), str(["sum", "a"][i as usize % 2]), Value::List(items)]
    };
    History { plan, preload: vec![], sources: vec![(0..60).map(order).collect()] }
}

/// Lists with none, some, and more elements than a transaction may have parts, all with one hot row and some without a
/// key; an element now and then aborts its transaction, and so does a rate that is missing, be the list empty or not.
/// A row that was changed tells in which order.
pub fn lists_of_all_lengths() -> History {
    let nullable = ColumnType::optional(Type::Int);
    let mut schema = Schema::scalars(["by", "rate", "most"].map(|name| (name, Type::Int.into())));
    let columns = [("id", nullable), ("value", Type::Int.into())];
    schema.fields.push(list("items", ListItem::Struct(columns.map(|(name, ty)| (name.into(), ty)).into())));
    let table = table("numbers", vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0))]);
    let rates = TableDef { name: "rates".into(), ..table.clone() };
    let roles = vec![
        role_over("r", "numbers", vec![element("items", "id")], "items", AccessDef::Create),
        role("rate", "rates", vec![event("rate")], AccessDef::Read),
        role("count", "numbers", vec![int(-1)], AccessDef::Create),
    ];
    let changed = add(binary(BinaryOp::Mod, binary(BinaryOp::Mul, cell("r", "n"), int(31)), int(10_007)), local("v"));
    let there = not(is_null(element("x", "id")));
    let change = vec![
        require(compare(CompareOp::Le, element("x", "value"), event("most")), "too much"),
        assign("v", add(element("x", "value"), local("f"))),
        set("r", "n", changed),
    ];
    let body = vec![
        assign("f", cell("rate", "n")),
        increase("count", "n", int(1)),
        for_each("x", "items", vec![when(there, change, vec![])]),
        give_back(vec![("by", event("by")), ("count", expr(ExprNode::Length("items".into())))]),
    ];
    let work = transaction("work", vec![named("orders")], roles, body);
    let plan = plan("lists_of_all_lengths", vec![table, rates], vec![source("orders", schema)], vec![work]);
    let lengths = [3, 0, 1, 100, 29, 30, 2, 31, 32, 61];
    let order = |i: i64| {
        let item = |j: i64| {
            // The hot row stands at another place each time, and there are as many rows as in the longest list.
            let id = (i * 7 + j * 3) % 101;
            let key = if (i + j) % 41 == 17 { Value::Null } else { Value::Int(if j == i % 5 { 0 } else { 1 + id }) };
            vec![key, Value::Int(j % 9)]
        };
        let items = (0..lengths[i as usize % lengths.len()]).map(item).collect();
        vec![Value::Int(i), Value::Int(i % 7), Value::Int(if i % 11 == 5 { 7 } else { 8 }), Value::List(items)]
    };
    let preload = vec![(1.into(), (0..6).map(|id| ints(&[id, id * 11])).collect())];
    History { plan, preload, sources: vec![(0..120).map(order).collect()] }
}

/// Everybody has somebody above, found through the row of whoever asks, and so on to the top; who is above
/// whom changes all the time, and some have nobody. The key of a note is a text in the row of the second.
pub fn dependent_keys() -> History {
    let above = ColumnDef { default: Some(Value::Null), ..ColumnDef::new("above", ColumnType::optional(Type::Int)) };
    let people = vec![
        key("id", Type::Int),
        above,
        column("note", Type::Str, str("none")),
        column("asked", Type::Int, Value::Int(0)),
    ];
    let schema = Schema::scalars([
        ("who", Type::Int.into()),
        ("next", ColumnType::optional(Type::Int)),
        ("note", Type::Str.into()),
        ("kind", Type::Int.into()),
    ]);
    let roles = vec![
        role("one", "people", vec![event("who")], AccessDef::Create),
        role("two", "people", vec![cell("one", "above")], AccessDef::Row),
        role("three", "people", vec![cell("two", "above")], AccessDef::ReadDefault),
        role("seen", "numbers", vec![cell("two", "note")], AccessDef::Create),
    ];
    let kind = |value| is("kind", value);
    let body = vec![
        // Keys were read before this: whoever is above now is not meant.
        set("one", "above", event("next")),
        when(kind(0), vec![increase("two", "asked", int(1)), set("two", "note", event("note"))], vec![]),
        when(kind(1), vec![increase("seen", "n", cell("three", "asked"))], vec![]),
        when(kind(2), vec![delete("two")], vec![]),
        require(compare(CompareOp::Lt, cell("three", "asked"), int(4)), "asked too often"),
        give_back(vec![("asked", cell("three", "asked")), ("there", exists("two"))]),
    ];
    let ask = transaction("ask", vec![named("questions")], roles, body);
    let tables = vec![table("people", people), numbers("numbers")];
    let plan = plan("dependent_keys", tables, vec![source("questions", schema)], vec![ask]);
    let question = |i: i64| {
        let next = if i % 5 == 4 { Value::Null } else { Value::Int((i * i + 1) % 6) };
        vec![
            Value::Int(i * 7 % 6),
            next,
            str(["x", "long enough to be somewhere else"][i as usize % 2]),
            Value::Int(i % 4),
        ]
    };
    History { plan, preload: vec![], sources: vec![(0..150).map(question).collect()] }
}

/// A loop in a loop over the same list; roles mean the row of the inner element, and an abort shows
/// the element at hand.
pub fn nested_loops() -> History {
    let mut schema = Schema::scalars([("limit", Type::Int.into())]);
    schema.fields.push(list("keys", ListItem::Scalar(Type::Str.into())));
    let roles = vec![role_over("r", "numbers", vec![element("keys", "")], "keys", AccessDef::Create)];
    let inner = vec![
        when(compare(CompareOp::Eq, element("x", ""), element("y", "")), vec![stmt(StmtNode::Continue)], vec![]),
        increase("r", "n", int(1)),
        require(compare(CompareOp::Lt, cell("r", "n"), event("limit")), "over the limit"),
    ];
    let body = vec![
        for_each("x", "keys", vec![increase("r", "n", int(10)), for_each("y", "keys", inner)]),
        require(compare(CompareOp::Ne, event("limit"), int(777)), "outside the loops"),
    ];
    let work = transaction("work", vec![named("pairs")], roles, body);
    let plan = plan("nested_loops", vec![numbers("numbers")], vec![source("pairs", schema)], vec![work]);
    let event =
        |limit: i64, keys: &[&str]| vec![Value::Int(limit), Value::List(keys.iter().map(|k| vec![str(*k)]).collect())];
    let events = vec![
        event(1000, &["a", "b", "c"]),
        event(1000, &["a", "a"]),
        event(24, &["c", "b", "a"]),
        event(777, &["a", "b"]),
        event(0, &[]),
        event(36, &["b", "c", "b", "a"]),
        event(0, &["z", "y"]),
    ];
    History { plan, preload: vec![], sources: vec![events] }
}

/// Loops that are left by a break, a return and an abort, and rounds that are cut short; nested, so
/// that it matters which loop is meant.
pub fn loop_ends() -> History {
    let fields = ["rounds", "skip", "stop", "leave", "fail"];
    let schema = Schema::scalars(fields.map(|name| (name, Type::Int.into())));
    let ends =
        |i: &str, way: StmtNode, field| when(compare(CompareOp::Eq, local(i), event(field)), vec![stmt(way)], vec![]);
    let trace = |i: &str| {
        let digits = binary(BinaryOp::Mul, cell("r", "n"), int(3));
        set("r", "n", binary(BinaryOp::Mod, add(digits, local(i)), int(1_000_003)))
    };
    let inner = vec![
        ends("j", StmtNode::Continue, "skip"),
        trace("j"),
        ends("j", StmtNode::Break, "stop"),
        emit("rounds", vec![("i", local("i")), ("j", local("j"))]),
    ];
    let outer = vec![
        trace("i"),
        ends("i", StmtNode::Return { record: Some(record(vec![("left", local("i"))])) }, "leave"),
        for_range("j", local("i"), int(-1), -1, inner),
        ends("i", StmtNode::Continue, "skip"),
        ends("i", StmtNode::Abort { reason: "failed".into() }, "fail"),
        trace("i"),
        ends("i", StmtNode::Break, "stop"),
    ];
    let body = vec![
        for_range("i", int(0), event("rounds"), 1, outer),
        increase("r", "n", int(1)),
        give_back(vec![("left", int(-1))]),
    ];
    let roles = vec![role("r", "numbers", vec![text("trace")], AccessDef::Create)];
    let work = transaction("work", vec![named("tours")], roles, body);
    let plan = plan("loop_ends", vec![numbers("numbers")], vec![source("tours", schema)], vec![work]);
    let events = (0..60).map(|i| ints(&[i % 7, i % 4, (i + 2) % 6, i * 5 % 11, i * 3 % 13])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// Inserts and deletes of one row, in one transaction and in several, under two names.
pub fn comes_and_goes() -> History {
    let schema = Schema::scalars([("kind", Type::Int.into()), ("id", Type::Str.into())]);
    let roles = vec![
        role("r", "rows", vec![event("id")], AccessDef::Row),
        role("s", "rows", vec![event("id")], AccessDef::Create),
    ];
    let columns = vec![
        key("id", Type::Str),
        column("n", Type::Int, Value::Int(7)),
        ColumnDef::new("note", ColumnType::optional(Type::Str)),
    ];
    let given = |n: i64| insert("r", vec![("note", text("given")), ("n", int(n))]);
    let kinds: Vec<Vec<Stmt>> = vec![
        vec![given(1)],
        vec![delete("s")],
        vec![given(2), delete("s"), insert("s", vec![])],
        vec![delete("r"), increase("s", "n", int(100))],
        vec![delete("r"), increase("r", "n", int(100))],
        vec![increase("s", "n", int(1)), delete("r"), given(3), increase("s", "n", int(1))],
        vec![given(4), abort("after an insert")],
        vec![delete("s"), abort("after a delete")],
        vec![insert("s", vec![("note", event("id"))]), delete("r"), delete("s")],
    ];
    let count = kinds.len() as i64;
    let mut body: Vec<Stmt> =
        kinds.into_iter().enumerate().map(|(kind, block)| when(is("kind", kind as i64), block, vec![])).collect();
    body.push(give_back(vec![("there", exists("r")), ("same", exists("s"))]));
    let work = transaction("work", vec![named("changes")], roles, body);
    let plan = plan("comes_and_goes", vec![table("rows", columns)], vec![source("changes", schema)], vec![work]);
    // Every kind after every other.
    let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    let events = pairs
        .flat_map(|(a, b)| [(a, str("x")), (b, str("x")), (b, long('y'))])
        .map(|(kind, id)| vec![Value::Int(kind), id])
        .collect();
    History { plan, preload: vec![(0.into(), vec![vec![str("x"), Value::Int(0), Value::Null]])], sources: vec![events] }
}

/// Each access of each kind of role, on rows that are missing and keys that are null.
pub fn missing() -> History {
    let schema = Schema::scalars([
        ("kind", ColumnType::required(Type::Int)),
        ("id", ColumnType::optional(Type::Str)),
        ("part", ColumnType::optional(Type::Int)),
    ]);
    let columns = vec![
        key("id", Type::Str),
        key("part", Type::Int),
        column("n", Type::Int, Value::Int(5)),
        column("t", Type::Str, str("none")),
    ];
    let keys = || vec![event("id"), event("part")];
    let names = [
        ("row", AccessDef::Row),
        ("create", AccessDef::Create),
        ("read", AccessDef::Read),
        ("default", AccessDef::ReadDefault),
    ];
    let roles = names.iter().map(|(name, access)| role(name, "pairs", keys(), *access)).collect();
    let mut blocks: Vec<Vec<Stmt>> = Vec::new();
    for (name, access) in names {
        let out = |column| vec![emit("seen", vec![("n", cell(name, column)), ("there", exists(name))])];
        blocks.push(out("n"));
        blocks.push(out("part"));
        if matches!(access, AccessDef::Row | AccessDef::Create) {
            blocks.push(vec![set(name, "n", int(6))]);
            blocks.push(vec![insert(name, vec![("t", text("put"))])]);
            blocks.push(vec![delete(name)]);
        }
    }
    let count = blocks.len() as i64;
    let body =
        blocks.into_iter().enumerate().map(|(kind, block)| when(is("kind", kind as i64), block, vec![])).collect();
    let work = transaction("work", vec![named("visits")], roles, body);
    let plan = plan("missing", vec![table("pairs", columns)], vec![source("visits", schema)], vec![work]);
    let ids = [str("a"), Value::Null, str(""), long('k')];
    let parts = [Value::Int(1), Value::Null];
    let mut events = Vec::new();
    for kind in (0..count).chain((0..count).rev()) {
        for id in &ids {
            events.extend(parts.iter().map(|part| vec![Value::Int(kind), id.clone(), part.clone()]));
        }
    }
    let preload = vec![(0.into(), vec![vec![str(""), Value::Int(1), Value::Int(0), long('v')]])];
    History { plan, preload, sources: vec![events] }
}

/// Two roles that are one row for some events and two for others.
pub fn aliases() -> History {
    let schema = Schema::scalars([("a", Type::Int.into()), ("b", Type::Int.into())]);
    let pair = vec![key("id", Type::Int), column("n", Type::Int, Value::Int(1)), column("m", Type::Int, Value::Int(0))];
    let roles = vec![
        role("x", "pairs", vec![event("a")], AccessDef::Create),
        role("y", "pairs", vec![event("b")], AccessDef::Create),
        role("z", "pairs", vec![event("a")], AccessDef::ReadDefault),
    ];
    let body = vec![
        assign("before", cell("y", "n")),
        set("x", "n", add(cell("y", "n"), int(1))),
        set("y", "m", add(cell("x", "n"), cell("z", "n"))),
        set("y", "n", add(cell("x", "m"), local("before"))),
        require(compare(CompareOp::Lt, cell("z", "n"), int(1000)), "too much"),
        set("x", "m", sub(cell("z", "m"), cell("y", "m"))),
        give_back(vec![("x", cell("x", "n")), ("y", cell("y", "n")), ("z", cell("z", "m"))]),
    ];
    let work = transaction("work", vec![named("meetings")], roles, body);
    let plan = plan("aliases", vec![table("pairs", pair)], vec![source("meetings", schema)], vec![work]);
    let events = (0..120).map(|i| ints(&[i % 4, i * i % 5 % 4])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// Locals that say whether a row is there, and rows and locals that change before they are asked.
pub fn said_by_locals() -> History {
    let schema = Schema::scalars([("kind", Type::Int.into()), ("id", Type::Int.into()), ("by", Type::Int.into())]);
    let numbers = |name: &str| table(name, vec![key("id", Type::Int), column("n", Type::Int, Value::Int(3))]);
    let names = ["gone", "changed", "kept"];
    let roles = names.iter().map(|name| role(name, name, vec![event("id")], AccessDef::Create)).collect();
    let count = |role: &str, by: Expr| increase(role, "n", by);
    let counted = |role: &str, said: &str| when(local(said), vec![count(role, int(10))], vec![count(role, int(1))]);
    let body = vec![
        assign("gone_said", exists("gone")),
        when(is("kind", 0), vec![delete("gone")], vec![]),
        counted("gone", "gone_said"),
        assign("changed_said", exists("changed")),
        when(is("kind", 1), vec![assign("changed_said", not(exists("changed")))], vec![]),
        counted("changed", "changed_said"),
        assign("kept_said", not(exists("kept"))),
        when(local("kept_said"), vec![count("kept", int(100))], vec![]),
        // It fails where the sum does not fit, and undoes all of the above.
        count("kept", event("by")),
        give_back(names.iter().map(|name| (*name, cell(name, "n"))).collect()),
    ];
    let work = transaction("work", vec![named("changes")], roles, body);
    let tables = names.iter().map(|name| numbers(name)).collect();
    let plan = plan("said_by_locals", tables, vec![source("changes", schema)], vec![work]);
    let by = |i: i64| if i % 5 < 3 { i } else { i64::MAX - 120 };
    let events = (0..300).map(|i| ints(&[i * i % 7, i % 11, by(i)])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}
