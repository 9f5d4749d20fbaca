//! Lists that transactions pass on, and that later transactions open.

use super::values::str;
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, ListItem, Schema, Type, Value};
use tidemill_plan::{AccessDef, BinaryOp, CompareOp, Expr, ExprNode, OriginDef, StreamDef, TableDef, TransactionDef};

/// The way in which the transactions are to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Each on tables of its own, so that they follow as waves.
    Apart,
    /// All on one table, so that each event is followed by itself.
    Together,
    /// All on one table, the second one in the first.
    Nested,
}

fn names(name: &str) -> TableDef {
    table(name, vec![key("id", Type::Str), column("n", Type::Int, Value::Int(0))])
}

fn numbers(name: &str) -> TableDef {
    table(name, vec![key("id", Type::Int), column("n", Type::Int, Value::Int(0))])
}

fn length(list: &str) -> Expr {
    expr(ExprNode::Length(list.into()))
}

fn modulo(value: Expr, by: i64) -> Expr {
    binary(BinaryOp::Mod, value, int(by))
}

/// Events of two sources go through a transaction, which passes on their lists, returned, emitted and aborted. What opens them goes over
/// one in a loop, with rows by its elements and by what is computed of them, and passes both on again, more than once.
pub fn opened(run: Run) -> History {
    let mut schema = Schema::scalars([("id", Type::Int.into()), ("key", Type::Str.into())]);
    let item = [("key", ColumnType::optional(Type::Str)), ("by", Type::Int.into())];
    schema.fields.push(list("items", ListItem::Struct(item.map(|(name, ty)| (name.into(), ty)).into())));
    schema.fields.push(list("tags", ListItem::Scalar(Type::Str.into())));
    let whole = || ["id", "key", "items", "tags"].map(|name| (name, event(name))).to_vec();
    let of = |step: &str| if run == Run::Apart { format!("names_{step}") } else { "names_take".to_owned() };
    let take = transaction(
        "take",
        vec![named("orders"), named("returns")],
        vec![role("one", &of("take"), vec![event("key")], AccessDef::Create)],
        vec![
            increase("one", "n", int(1)),
            require(compare(CompareOp::Ne, modulo(event("id"), 7), int(3)), "not this one"),
            when(compare(CompareOp::Eq, modulo(event("id"), 2), int(0)), vec![emit("even", whole())], vec![]),
            give_back(whole()),
        ],
    );
    let open = TransactionDef {
        nested: run == Run::Nested,
        ..transaction(
            "open",
            vec![committed("take")],
            vec![
                role_over("r", &of("open"), vec![element("items", "key")], "items", AccessDef::Create),
                role_over("c", "numbers", vec![modulo(element("items", "by"), 5)], "items", AccessDef::Create),
                role("own", &of("open"), vec![event("key")], AccessDef::Create),
            ],
            vec![
                for_each(
                    "x",
                    "items",
                    vec![
                        increase("c", "n", element("x", "by")),
                        require(compare(CompareOp::Lt, element("x", "by"), int(8)), "too much"),
                        when(
                            not(is_null(element("x", "key"))),
                            vec![
                                increase("r", "n", add(element("x", "by"), length("tags"))),
                                emit("each", vec![("id", cell("r", "n")), ("tags", event("tags"))]),
                            ],
                            vec![],
                        ),
                    ],
                ),
                increase("own", "n", int(1)),
                give_back(vec![("n", cell("own", "n")), ("items", event("items")), ("of", length("items"))]),
            ],
        )
    };
    let again = transaction(
        "again",
        vec![emitted("open", "each")],
        vec![role_over("t", &of("again"), vec![element("tags", "")], "tags", AccessDef::Create)],
        vec![
            for_each(
                "tag",
                "tags",
                vec![increase("t", "n", event("id")), emit("seen", vec![("tag", element("tag", ""))])],
            ),
            give_back(vec![("tags", event("tags")), ("n", length("tags"))]),
        ],
    );
    let refused = transaction(
        "refused",
        vec![aborted("take")],
        vec![role_over("r", &of("refused"), vec![element("items", "key")], "items", AccessDef::Create)],
        vec![
            for_each(
                "x",
                "items",
                vec![when(not(is_null(element("x", "key"))), vec![increase("r", "n", int(1))], vec![])],
            ),
            give_back(vec![("reason", event("reason")), ("n", length("items"))]),
        ],
    );
    let mapped = transaction(
        "mapped",
        vec![named("renamed")],
        vec![role_over("r", &of("mapped"), vec![element("parts", "key")], "parts", AccessDef::Create)],
        vec![
            for_each(
                "x",
                "parts",
                vec![when(not(is_null(element("x", "key"))), vec![increase("r", "n", event("of"))], vec![])],
            ),
            give_back(vec![("parts", event("parts")), ("of", event("of"))]),
        ],
    );
    let long = StreamDef {
        name: "long".into(),
        origin: OriginDef::Filter {
            input: emitted("take", "even"),
            predicate: compare(CompareOp::Gt, length("items"), int(1)),
        },
    };
    let renamed = StreamDef {
        name: "renamed".into(),
        origin: OriginDef::Map {
            input: named("long"),
            record: record(vec![("of", add(length("tags"), event("id"))), ("parts", event("items"))]),
        },
    };
    let mut tables: Vec<TableDef> =
        ["take", "open", "again", "refused", "mapped"].into_iter().map(|step| names(&of(step))).collect();
    tables.dedup_by_key(|table| table.name.clone());
    tables.push(numbers("numbers"));
    let streams = vec![source("orders", schema.clone()), source("returns", schema), long, renamed];
    let plan = plan("passed_lists", tables, streams, vec![take, open, again, refused, mapped]);
    let lengths = [3, 0, 1, 17, 2, 5];
    let order = |shift: i64| {
        move |i: i64| {
            let names = ["a", "b", "a long name that is somewhere else", "c", "take"];
            let name = |n: i64| str(names[(n % 5) as usize]);
            let item = |j: i64| {
                let key = if (i + j) % 11 == 4 { Value::Null } else { name(i * 3 + j + shift) };
                vec![key, Value::Int((i + j + shift) % 9 - i64::from(i % 4 != 1))]
            };
            let items = (0..lengths[((i + shift) % 6) as usize]).map(item).collect();
            let tags = (0..i % 4).map(|j| vec![name(i + 2 * j)]).collect();
            vec![Value::Int(i), name(i + shift), Value::List(items), Value::List(tags)]
        }
    };
    History { plan, preload: vec![], sources: vec![(0..90).map(order(0)).collect(), (0..70).map(order(2)).collect()] }
}
