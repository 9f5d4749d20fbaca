//! The output of `explain` and `warnings`.

use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{
    PlanBuilder, cell, committed, element, emitted, event, literal, local, named, record, window,
};
use tidemill_plan::{
    Aggregate, Ahead, Expr, ExprNode, OverDef, Program, Stmt, StmtNode, TransactionDef, WindowDef, WindowFunction,
    WindowPart, WindowsDef, analyze, explain, warnings,
};

/// Returns a shop: orders with lines take stock and pay, big ones are looked at again.
fn shop() -> Program {
    let plan = PlanBuilder::new("shop")
        .table("stock", |t| t.key("item", Type::Str).column_or("count", Type::Int, Value::Int(0)))
        .table("accounts", |t| {
            t.key("id", Type::Str)
                .column_or("balance", Type::Int, Value::Int(0))
                .column("note", ColumnType::optional(Type::Str))
        })
        .source("orders", |s| {
            s.field("who", Type::Str)
                .field("total", Type::Int)
                .nested("lines", [("item", Type::Str.into()), ("count", Type::Int.into())])
        })
        .filter("paid", named("orders"), (event("total") + 1).gt(1))
        .transaction("order", [named("paid")], |t| {
            t.row("stock", "stock", [element("lines", "item")])
                .over("lines")
                .row("buyer", "accounts", [event("who")])
                .create("shop", "accounts", [literal("shop")])
                .read("bank", "accounts", [literal("bank")])
                .body(|b| {
                    b.assign("fee", cell("bank", "balance") % 10);
                    b.require(cell("buyer", "balance").ge(event("total") + local("fee")), "too poor");
                    b.for_each("line", "lines", |b| {
                        b.set("stock", "count", cell("stock", "count") - element("line", "count"));
                    });
                    b.set("buyer", "balance", cell("buyer", "balance") - event("total"));
                    b.when(cell("buyer", "balance").gt(0), |b| {
                        b.set("shop", "balance", cell("shop", "balance") + event("total") - local("fee"));
                    });
                    b.when(event("total").gt(1000), |b| b.emit("big", [("who", event("who"))]));
                })
        })
        .transaction("look", [emitted("order", "big")], |t| {
            t.row("buyer", "accounts", [event("who")]).body(|b| b.set("buyer", "note", "big"))
        })
        .sink("done", committed("look"))
        .build();
    analyze(&plan).expect("a good plan")
}

#[test]
fn the_account_of_a_shop() {
    let expected = r#"application shop

tables
  stock: key item: str, count: int = 0
  accounts: key id: str, balance: int = 0, note: str | None = None

flow
  source orders {who: str, total: int, lines: list[{item: str, count: int}]}, in order of arrival
    -> filter paid
  filter paid of orders: ev.total + 1 > 1
    -> transaction order
  order.committed {who: str, total: int, lines: list[{item: str, count: int}]}
  order.aborted {who: str, total: int, lines: list[{item: str, count: int}], reason: str, stock.item: str | None, stock.count: int | None, buyer.id: str | None, buyer.balance: int | None, shop.id: str | None, shop.balance: int | None, bank.id: str | None, bank.balance: int | None}
  order.emitted.big {who: str}
    -> transaction look
  look.committed {who: str}
    -> sink done
  look.aborted {who: str, reason: str, buyer.id: str | None, buyer.note: str | None}

transaction order
  runs on
    paid
  rows
    stock = stock[ev.lines[].item], read and write, a missing row aborts
    buyer = accounts[ev.who], read and write, a missing row aborts
    shop = accounts["shop"], read and write, a missing row is created with the defaults
    bank = accounts["bank"], read only, a missing row aborts
  reads
    stock.count
    buyer.balance
    shop.balance
    bank.balance
  writes
    stock.count
    buyer.balance
    shop.balance
  requires
    buyer.balance >= ev.total + fee, else "too poor"
  aborts with
    no row in accounts for bank
    no row in accounts for buyer
    integer overflow in ev.total + fee
    too poor
    no row in stock for stock
    integer overflow in stock.count - line.count
    integer overflow in buyer.balance - ev.total
    integer overflow in shop.balance + ev.total
    integer overflow in shop.balance + ev.total - fee
  dependencies
    temporal: each row of stock sees its events in order
    temporal: each row of accounts sees its events in order
    parametric: shop.balance needs buyer.balance, bank.balance
    logical: all or nothing of stock.count, buyer.balance, shop.balance
  aliasing
    two elements of stock may be one row of stock
    buyer and shop may be one row of accounts
    buyer and bank may be one row of accounts
  execution
    one event at a time, as its events reach look

transaction look
  runs on
    order.emitted.big
  rows
    buyer = accounts[ev.who], read and write, a missing row aborts
  writes
    buyer.note
  aborts with
    no row in accounts for buyer
  dependencies
    temporal: each row of accounts sees its events in order
  execution
    one event at a time, as events of order reach it

warning: stream 'paid.failed' has no sink and nothing reads it

warning: stream 'order.aborted' has no sink and nothing reads it

warning: stream 'look.aborted' has no sink and nothing reads it
"#;
    assert_eq!(explain(&shop()), expected);
}

#[test]
fn warnings_name_streams_that_carry_something_nowhere() {
    let plan = PlanBuilder::new("p")
        .table("t", |t| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .source("unread", |s| s.field("id", Type::Int))
        .source("s", |s| s.field("id", Type::Int))
        .filter("safe", named("s"), event("id").gt(0))
        .map("lost", named("safe"), [("half", event("id") / event("id"))])
        .transaction("quiet", [named("safe")], |t| t.create("r", "t", [event("id")]).body(|b| b.set("r", "n", 1)))
        .transaction("talks", [named("safe")], |t| {
            t.create("r", "t", [event("id")]).body(|b| b.give([("id", event("id"))]))
        })
        .build();
    let unused = ["unread", "lost", "lost.failed", "talks.committed"];
    let expected = unused.map(|name| format!("stream '{name}' has no sink and nothing reads it"));
    assert_eq!(warnings(&analyze(&plan).expect("a good plan")), expected);
}

/// A transfer comes apart into what it does to either account; what a requirement alone reads is the
/// verdict's.
#[test]
fn a_transaction_in_parts() {
    let plan = PlanBuilder::new("bank")
        .table("accounts", |t| t.key("id", Type::Str).column_or("balance", Type::Int, Value::Int(0)))
        .source("transfers", |s| s.field("src", Type::Str).field("dst", Type::Str).field("amount", Type::Int))
        .transaction("transfer", [named("transfers")], |t| {
            t.row("src", "accounts", [event("src")])
                .row("dst", "accounts", [event("dst")])
                .read("limit", "accounts", [literal("limit")])
                .body(|b| {
                    b.require(cell("limit", "balance").ge(event("amount")), "too much");
                    b.set("src", "balance", cell("src", "balance") - event("amount"));
                    b.set("dst", "balance", cell("dst", "balance") + event("amount"));
                })
        })
        .build();
    let text = explain(&analyze(&plan).expect("a good plan"));
    let expected = "  operations\n    update of src\n    update of dst\n    verdict\n  execution\n";
    assert!(text.contains(expected), "{text}");
}

/// Statements for each element of a list are an operation of their own; not if a round needs the one before it.
#[test]
fn a_transaction_by_element() {
    let said = |running: bool| {
        let plan = PlanBuilder::new("shop")
            .table("stock", |t| t.key("item", Type::Str).column_or("count", Type::Int, Value::Int(0)))
            .table("accounts", |t| t.key("id", Type::Str).column_or("balance", Type::Int, Value::Int(0)))
            .source("orders", |s| {
                s.field("who", Type::Str).nested("lines", [("item", Type::Str.into()), ("count", Type::Int.into())])
            })
            .transaction("order", [named("orders")], |t| {
                t.row("stock", "stock", [element("lines", "item")])
                    .over("lines")
                    .row("buyer", "accounts", [event("who")])
                    .body(|b| {
                        b.assign("sum", literal(0));
                        b.for_each("line", "lines", |b| {
                            if running {
                                b.assign("sum", local("sum") + element("line", "count"));
                            }
                            b.set("stock", "count", cell("stock", "count") - element("line", "count") - local("sum"));
                        });
                        b.set("buyer", "balance", cell("buyer", "balance") - 1);
                    })
            })
            .build();
        explain(&analyze(&plan).expect("a good plan"))
    };
    for (running, expected) in [
        (false, "    update of stock, each element of lines by itself\n    update of buyer\n"),
        (true, "    update of stock\n    update of buyer\n"),
    ] {
        let text = said(running);
        assert!(text.contains(expected), "{text}");
    }
}

/// One dependent key has the whole program run one event at a time; then there are no groups.
#[test]
fn one_event_at_a_time() {
    let said = |dependent: bool| {
        let plan = PlanBuilder::new("shop")
            .table("people", |t| t.key("id", Type::Int).column("boss", ColumnType::optional(Type::Int)))
            .table("visits", |t| t.key("id", Type::Int).column_or("count", Type::Int, Value::Int(0)))
            .source("orders", |s| s.field("who", Type::Int))
            .transaction("order", [named("orders")], |t| {
                let t = t.row("worker", "people", [event("who")]);
                let key = if dependent { cell("worker", "boss") } else { event("who") };
                t.row("boss", "people", [key]).body(|b| b.set("boss", "boss", event("who")))
            })
            .transaction("visit", [named("orders")], |t| {
                t.row("v", "visits", [event("who")]).body(|b| b.set("v", "count", cell("v", "count") + 1))
            })
            .build();
        explain(&analyze(&plan).expect("a good plan"))
    };
    let text = said(true);
    assert!(text.contains("one event at a time, as the key of boss is read from a row"), "{text}");
    assert!(text.contains("one event at a time, as other transactions of the program run so"), "{text}");
    assert!(!text.contains("groups of transactions"), "{text}");
    let text = said(false);
    assert!(text.contains("groups of transactions") && !text.contains("one event at a time"), "{text}");
}

#[test]
fn windows_are_explained() {
    let minute = |count: i64| Value::Duration(count * 60_000_000);
    let plan = PlanBuilder::new("tolls")
        .table("segments", |t| {
            t.key("id", Type::Int)
                .window(
                    "speed",
                    Type::Float,
                    WindowDef::Span { span: minute(5), slide: Some(minute(1)), distinct: false },
                )
                .window("cars", Type::Int, WindowDef::Span { span: minute(5), slide: None, distinct: true })
                .window("last", Type::Int, WindowDef::Last(3))
        })
        .source("reports", |s| s.field("id", Type::Int).field("speed", Type::Float).event_time("at", Type::Time))
        .transaction("toll", [named("reports")], |t| {
            t.create("r", "segments", [event("id")]).body(|b| {
                b.add("r", "speed", event("speed"));
                let part = Some(WindowPart::Span(minute(1)));
                b.require(window("r", "speed", part, Aggregate::Count).gt(1), "few");
                b.require(window("r", "last", None, Aggregate::Sum).gt(1), "little");
            })
        })
        .build();
    let text = explain(&analyze(&plan).expect("a good plan"));
    for line in [
        "  segments: key id: int, speed: window of float over minutes(5) in slides of minutes(1), \
         cars: window of distinct int over minutes(5), last: window of the last 3 int",
        "updates wait for verdicts under every policy: toll sets texts or windows, which could not be taken back",
        "    r.speed",
        "    r.speed.window(minutes(1)).count() > 1, else \"few\"",
        "    r.last.sum() > 1, else \"little\"",
        "    integer overflow in r.last.sum()",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

/// Returns a window over the stream of reports, by lane, that counts and has the greatest speed.
fn over(name: &str, windows: WindowsDef, early: Option<Value>) -> TransactionDef {
    let aggregate = |function, value: Option<&str>| -> Expr {
        let value = value.map(|field| Box::new(event(field)));
        ExprNode::Aggregate { function, value, by: None, argument: None }.into()
    };
    let of =
        vec![("n", aggregate(WindowFunction::Count, None)), ("most", aggregate(WindowFunction::Max, Some("speed")))];
    TransactionDef {
        name: name.into(),
        inputs: vec![named("reports")],
        over: Some(OverDef {
            by: vec![("lane".into(), event("lane"))],
            windows,
            early,
            every: None,
            top: None,
            first: None,
            own: vec![],
        }),
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![Stmt { node: StmtNode::Return { record: Some(record(of)) }, span: None }],
    }
}

#[test]
fn windows_over_streams_are_explained() {
    let minutes = |count: i64| Value::Duration(count * 60_000_000);
    let said = |windows: Vec<TransactionDef>| {
        let mut plan = PlanBuilder::new("speeds")
            .source("reports", |s| s.field("lane", Type::Int).field("speed", Type::Int).event_time("at", Type::Time))
            .build();
        plan.transactions = windows;
        explain(&analyze(&plan).expect("a good plan"))
    };
    let text = said(vec![
        over("each", WindowsDef::Tumbling { length: minutes(5), origin: 0 }, Some(minutes(1))),
        over("last", WindowsDef::Sliding { length: minutes(5), every: minutes(1), origin: 0 }, None),
        over("trip", WindowsDef::Session { gap: minutes(2) }, None),
    ]);
    for line in [
        "  each: tumbling windows of minutes(5) of reports, by lane",
        "    each worker folds the events of an epoch by groups, if these have several, and merges them into the rows",
        "    closes between epochs: an epoch ends where a window may",
        "    gives early results each minutes(1): an epoch ends there, too",
        "  last: sliding windows of minutes(5), one each minutes(1), of reports, by lane",
        "  trip: sessions with gaps of minutes(2) of reports, by lane",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(text.matches("    keeps a row for each group with an open window: ").count(), 3, "{text}");
    assert!(!text.contains("one event at a time"), "{text}");
    let text = said(vec![over("dozen", WindowsDef::Counting { count: 12 }, None)]);
    for line in [
        "  dozen: windows by count of reports, by lane",
        "    closes with an event: events are followed one by one",
        "    one event at a time, as events of dozen.add reach it",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn how_far_ahead_of_the_clock_events_may_be_is_said_where_it_is_declared() {
    let said = |ahead: Option<Ahead>| {
        let plan = PlanBuilder::new("clocks").source("s", |s| {
            let s = s.event_time("at", Type::Time).lateness(2_000_000);
            ahead.into_iter().fold(s, |s, ahead| s.ahead(ahead))
        });
        explain(&analyze(&plan.sink("out", named("s")).build()).expect("a right plan"))
    };
    let time = "by event time at, at most 2 s late";
    for (ahead, text) in [
        (None, format!("{time}\n")),
        (Some(Ahead::ByInput), format!("{time}\n")),
        (Some(Ahead::Unbounded), format!("{time}, however far ahead of the clock\n")),
        (Some(Ahead::Most(90_000_000)), format!("{time}, at most 90 s ahead of the clock\n")),
    ] {
        assert!(said(ahead).contains(&text), "{}", said(ahead));
    }
}

#[test]
fn plans_from_before_bounds_ahead_of_the_clock_are_read_and_written_alike() {
    let plan =
        |ahead: Ahead| PlanBuilder::new("clocks").source("s", |s| s.event_time("at", Type::Time).ahead(ahead)).build();
    let written = |ahead| serde_json::to_string(&plan(ahead)).expect("data");
    assert!(!written(Ahead::ByInput).contains("ahead"));
    for ahead in [Ahead::ByInput, Ahead::Unbounded, Ahead::Most(7)] {
        assert_eq!(serde_json::from_str::<tidemill_plan::Plan>(&written(ahead)).expect("as written"), plan(ahead));
    }
    let bound = |ahead, is_of_others| {
        let program = analyze(&plan(ahead)).expect("a right plan");
        program.sources().next().expect("a source").ahead(is_of_others)
    };
    assert_eq!([false, true].map(|of_others| bound(Ahead::ByInput, of_others)), [None, Some(86_400_000_000)]);
    assert_eq!([false, true].map(|of_others| bound(Ahead::Unbounded, of_others)), [None, None]);
    assert_eq!([false, true].map(|of_others| bound(Ahead::Most(7), of_others)), [Some(7), Some(7)]);
    let of_ints = PlanBuilder::new("ints").source("s", |s| s.event_time("n", Type::Int)).build();
    let of_ints = analyze(&of_ints).expect("a right plan");
    assert_eq!(of_ints.sources().next().expect("a source").ahead(true), None, "an int is no time of a clock");
}
