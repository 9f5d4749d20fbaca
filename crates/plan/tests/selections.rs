//! Roles that are chosen rows of a table: what is refused, and what `explain` says of them.

use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, TransactionBuilder, cell, event, exists, literal, named};
use tidemill_plan::{
    ConditionDef, Direction, Expr, OrderDef, SelectionDef, StmtNode, TestDef, WindowDef, analyze, explain,
};

fn same(column: &str, value: impl Into<Expr>) -> ConditionDef {
    ConditionDef { column: column.into(), test: TestDef::Same(value.into()) }
}

fn between(column: &str, low: Option<Expr>, high: Option<Expr>) -> ConditionDef {
    ConditionDef { column: column.into(), test: TestDef::Between { low, high } }
}

fn first(column: &str, count: u64) -> SelectionDef {
    let direction = Direction::Descending;
    SelectionDef { conditions: vec![], order: Some(OrderDef { column: column.into(), direction, count }) }
}

fn by(condition: ConditionDef) -> SelectionDef {
    SelectionDef { conditions: vec![condition], order: None }
}

/// Offers with an index by item, and a transaction with the row of an offer and those that are chosen.
fn plan(selection: SelectionDef) -> PlanBuilder {
    PlanBuilder::new("p")
        .table("offers", |t| {
            let recent = WindowDef::Last(3);
            let t = t.key("id", Type::Int).column("item", ColumnType::optional(Type::Str));
            let t = t.column_or("price", Type::Decimal { digits: 9, scale: 2 }, Value::Int(0));
            t.column_or("speed", Type::Float, Value::Float(0.0)).window("recent", Type::Int, recent).index(["item"])
        })
        .source("s", |s| {
            let s = s.field("id", Type::Int).field("item", Type::Str).field("x", Type::Float);
            s.field("most", Type::Decimal { digits: 12, scale: 1 })
                .field("exact", Type::Decimal { digits: 12, scale: 3 })
        })
        .transaction("t", [named("s")], |t| {
            t.row("own", "offers", [event("id")]).selected("some", "offers", selection).body(|_| {})
        })
}

#[track_caller]
fn refused(selection: SelectionDef, expected: &str) {
    let errors = analyze(&plan(selection).build()).expect_err("it has no meaning");
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [format!("transaction 't': {expected}")]);
}

#[test]
fn what_has_no_meaning() {
    refused(
        by(same("speed", event("x"))),
        "rows of 'offers' are looked for by 'speed', which is a float; \
         floats are rarely equal: give bounds, between(\"speed\", low, high)",
    );
    refused(
        by(same("recent", event("id"))),
        "rows of 'offers' are chosen by 'recent', which is a window; choose by a column that has a value",
    );
    refused(by(same("itme", event("item"))), "no column in table 'offers' called 'itme'; did you mean 'item'?");
    refused(by(same("item", event("id"))), "column 'item' of 'offers' is str but ev.id is int; write str(ev.id)");
    refused(
        by(between("price", Some(event("exact")), None)),
        "column 'price' of 'offers' is Decimal(18, 2) but ev.exact is Decimal(12, 3); write round(ev.exact, 2)",
    );
    refused(by(same("id", cell("own", "item"))), "column 'id' of 'offers' is int, but own.item is str");
    refused(
        by(same("id", event("id") + 1)),
        "what rows of 'some' are chosen by could fail: integer overflow in ev.id + 1; \
         compute it in a map, and run the transaction on the mapped stream",
    );
    refused(first("price", 0), "role 'some' is the first 0 rows; give at least 1");
    refused(
        first("recent", 1),
        "rows of 'offers' are chosen by 'recent', which is a window; choose by a column that has a value",
    );
}

#[test]
fn indexes_of_columns_that_can_have_none() {
    for (column, message) in [
        ("speed", "'speed' has an index, and is a float; index a column of ints, decimals, times or texts"),
        ("recent", "'recent' has an index, and is a window"),
        ("prise", "no column 'prise'; did you mean 'price'?"),
        ("price", "column of an index 'price' is declared twice"),
    ] {
        let mut plan = plan(SelectionDef::default()).build();
        plan.tables[0].indexes.push(vec!["price".into(), column.into()]);
        let errors = analyze(&plan).expect_err("it can have no index");
        assert!(errors.iter().any(|error| error.to_string() == format!("table 'offers': {message}")), "{errors:?}");
    }
}

#[test]
fn what_explain_says() {
    let said = |selection| explain(&analyze(&plan(selection).build()).expect("a valid plan"));
    let indexed = said(SelectionDef {
        conditions: vec![between("price", None, Some(event("most"))), same("item", cell("own", "item"))],
        ..first("price", 1)
    });
    let what = "rows of offers whose price is at most ev.most and whose item is own.item, the one of the greatest price, \
                found by the index of item, read only";
    assert!(indexed.contains(what), "{indexed}");
    assert!(indexed.contains("one event at a time, as some searches item, price of offers"), "{indexed}");
    let bounds = between("speed", Some(literal(1.5)), Some(event("x")));
    let searched = said(by(bounds));
    let what = "rows of offers whose speed is at least 1.5 and at most ev.x, found by a search of all rows, read only";
    assert!(searched.contains(what), "{searched}");
    assert!(said(SelectionDef::default()).contains("some = all rows of offers, read only"));
}

/// Returns the plan above with a transaction `u` that has chosen rows, another role, and further ones.
fn belonging(more: impl FnOnce(TransactionBuilder) -> TransactionBuilder) -> PlanBuilder {
    plan(SelectionDef::default()).transaction("u", [named("s")], |t| {
        let t = t.row("own", "offers", [event("id")]).all("some", "offers").all("more", "offers");
        more(t)
    })
}

#[track_caller]
fn refuses(more: impl FnOnce(TransactionBuilder) -> TransactionBuilder, expected: &str) {
    let errors = analyze(&belonging(more).build()).expect_err("it has no meaning");
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [format!("transaction 'u': {expected}")]);
}

#[test]
fn rows_that_belong_to_no_row() {
    let outside = "role 'next' is a row for each of 'some'; use it inside `for row in some`";
    let next = |t: TransactionBuilder| t.create("next", "offers", [cell("some", "id") + 1]).each("some");
    let in_loop_of = |rows: &str, body: fn(&mut Block)| {
        let rows = rows.to_owned();
        move |t: TransactionBuilder| t.body(|b| b.for_rows("row", &rows, body))
    };
    refuses(|t| next(t).body(|b| b.assign("x", exists("next"))), outside);
    refuses(|t| next(t).body(|b| b.delete("next")), outside);
    refuses(|t| in_loop_of("more", |b| b.set("next", "speed", 1.0))(next(t)), outside);
    assert!(analyze(&belonging(|t| in_loop_of("some", |b| b.set("next", "speed", 1.0))(next(t))).build()).is_ok());
    // Neither a role of one row nor the rows of two others.
    refuses(
        |t| t.row("next", "offers", [cell("some", "id")]),
        "role 'some' is rows of offers, not one; loop over them: `for row in some`",
    );
    refuses(
        |t| t.row("next", "offers", [cell("some", "id") + cell("more", "id")]).each("some"),
        "role 'more' is rows of offers, not one; loop over them: `for row in more`",
    );
    refuses(|t| t.row("last", "offers", [cell("next", "id")]).each("next"), "no role 'next'; known: own, some, more");
    refuses(
        |t| t.row("next", "offers", [cell("own", "id")]).each("own"),
        "role 'own' is one row, not rows of its table; declare it with offers.all()",
    );
    refuses(
        |t| t.row("next", "offers", [event("id")]).each("some"),
        "role 'next' is a row for each of 'some', but its key reads none",
    );
    refuses(|t| t.all("next", "offers").each("some"), "role 'next' is rows of 'offers', and has no key");
    refuses(|t| next(t).row("last", "offers", [cell("next", "id")]), outside);
    refuses(|t| next(t).selected("last", "offers", by(same("id", cell("next", "id")))), outside);
}

#[test]
fn what_explain_says_of_rows_that_belong_to_others() {
    let text = explain(
        &analyze(
            &belonging(|t| {
                let t = t.create("next", "offers", [cell("some", "id") + 1]).each("some");
                t.read("after", "offers", [cell("next", "id")]).each("some").body(|b| {
                    b.for_rows("row", "some", |b| {
                        b.push(StmtNode::Set { role: "next".into(), column: "speed".into(), value: literal(1.0) });
                    });
                })
            })
            .build(),
        )
        .expect("a valid plan"),
    );
    let next = "next = offers[some.id + 1] for each of some, found when that is read, read and write";
    for said in [next, "after = offers[next.id] for each of some", "two elements of next may be one row of offers"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(text.contains("one event at a time, as the key of next is read from a row"), "{text}");
}
