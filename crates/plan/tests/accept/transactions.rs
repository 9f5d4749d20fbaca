//! Roles, locals, statements and outputs of transactions.

use super::{decimal, fields, program, stream, transaction};
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, cell, element, event, exists, literal, local, named, none};
use tidemill_plan::typed::{Node, Stmt};
use tidemill_plan::{Cast, Count, Missing, Seen, Transaction};

/// Returns a transaction on [`fields`] with the table `rows` (all columns have defaults) and a body.
fn body(fill: impl FnOnce(&mut Block)) -> Transaction {
    let plan = fields()
        .table("rows", |t| {
            t.key("id", Type::Str)
                .column_or("n", Type::Int, Value::Int(0))
                .column_or("x", Type::Float, Value::Int(0))
                .column_or("price", decimal(10, 2), Value::Int(0))
                .column("maybe", ColumnType::optional(Type::Int))
        })
        .transaction("t", [named("all")], |t| {
            t.row("a", "rows", [event("text")])
                .create("b", "rows", [event("maybe_text")])
                .read_or_default("c", "rows", [literal("total")])
                .row("stock", "rows", [element("lines", "item")])
                .over("lines")
                .body(fill)
        });
    transaction(&program(plan), "t").clone()
}

fn local_types(transaction: &Transaction) -> Vec<(&str, String)> {
    transaction.locals.iter().map(|l| (l.name.as_str(), l.ty.to_string())).collect()
}

#[test]
fn roles_say_what_the_body_does_with_them() {
    let t = body(|b| {
        b.set("a", "n", cell("b", "n") + cell("c", "n"));
        b.set("b", "price", cell("a", "price"));
        b.for_each("line", "lines", |b| b.set("stock", "n", element("line", "count")));
    });
    let [a, b, c, stock] = &t.roles[..] else { panic!("four roles") };
    assert_eq!((a.missing, a.create, a.written), (Missing::Abort, false, true));
    assert_eq!((b.missing, b.create, b.written), (Missing::Default, true, true));
    assert_eq!((c.missing, c.create, c.written), (Missing::Default, false, false));
    assert_eq!((&a.reads[..], &a.writes[..]), (&[3][..], &[1][..]));
    assert_eq!((&b.reads[..], &b.writes[..]), (&[1][..], &[3][..]));
    assert_eq!(b.key[0].ty, ColumnType::optional(Type::Str));
    assert_eq!(stock.over, Some(19));
    assert_eq!(stock.key[0].node, Node::Element { loop_id: 0, column: 0 });
    let seen: Vec<(usize, usize)> = t.seen.iter().map(|&Seen { role, column }| (role, column)).collect();
    assert_eq!(seen, [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)]);
    assert_eq!(
        t.reasons,
        ["integer overflow in b.n + c.n", "no row in rows for a", "key of b is None", "no row in rows for stock",]
    );
}

#[test]
fn inserts_give_every_column_a_value() {
    let t = body(|b| {
        b.when(!exists("a"), |b| b.insert("a", [("maybe", event("maybe_n")), ("x", event("n"))]));
        b.when(exists("b"), |b| b.delete("b"));
    });
    let Stmt::If { then, .. } = &t.body[0] else { panic!("an if") };
    let Stmt::Insert { values, .. } = &then[0] else { panic!("an insert") };
    assert_eq!(values.iter().map(|(c, _)| *c).collect::<Vec<_>>(), [4, 2, 1, 3]);
    assert!(matches!(values[1].1.node, Node::Cast { cast: Cast::IntToFloat, .. }));
    assert_eq!(values[3].1.node, Node::Const(Value::Decimal(0)));
    assert_eq!(t.reasons, ["row exists in rows for a", "key of b is None", "no row in rows for b"]);
}

#[test]
fn assigned_values_are_fitted_to_their_column() {
    let t = body(|b| {
        b.set("a", "price", cell("a", "price") + event("price"));
        b.set("a", "price", 5);
        b.set("a", "n", event("maybe_n"));
        b.set("a", "maybe", none());
        b.set("a", "maybe", event("n"));
    });
    let value = |i: usize| match &t.body[i] {
        Stmt::Set { value, .. } => value,
        other => panic!("{other:?}"),
    };
    assert!(matches!(value(0).node, Node::Cast { cast: Cast::FitDigits { digits: 10 }, .. }));
    assert_eq!(value(1).node, Node::Const(Value::Decimal(500)));
    assert!(matches!(value(2).node, Node::Unwrap { .. }));
    assert_eq!((value(3).ty, &value(3).node), (ColumnType::optional(Type::Int), &Node::Const(Value::Null)));
    assert_eq!(t.reasons[..2], ["no row in rows for a", "decimal overflow in a.price + ev.price"]);
}

#[test]
fn locals_join_all_their_assignments() {
    let t = body(|b| {
        b.assign("half", literal(0) / 2);
        b.assign("total", 0);
        b.assign("mean", local("total") / 2);
        b.for_each("line", "lines", |b| {
            b.assign("total", local("total") + event("price") * element("line", "count"));
            b.assign("last", element("line", "item"));
        });
        b.assign("best", none());
        b.for_range("i", 0, event("n"), |b| b.assign("best", local("i")));
        b.assign("copy", local("best"));
        b.set("a", "maybe", local("copy"));
    });
    assert_eq!(
        local_types(&t),
        [
            ("half", "float".into()),
            ("total", "Decimal(18, 2)".into()),
            ("mean", "Decimal(18, 6)".into()),
            ("last", "str".into()),
            ("best", "int | None".into()),
            ("i", "int".into()),
            ("copy", "int | None".into()),
        ]
    );
}

#[test]
fn a_local_is_set_if_every_path_sets_it() {
    let t = body(|b| {
        b.when_else(event("flag"), |b| b.assign("x", 1), |b| b.abort("no flag"));
        b.for_range("i", 0, local("x"), |b| {
            b.when(local("i").gt(3), |b| b.leave());
            b.assign("y", local("i"));
            b.set("a", "n", local("y"));
        });
        b.when_else(event("flag"), |b| b.assign("y", 1), |b| b.assign("y", 2));
        b.set("a", "n", local("y"));
    });
    assert_eq!(t.locals.len(), 3);
}

#[test]
fn what_cannot_be_reached_is_dropped() {
    let t = body(|b| {
        b.when_else(event("flag"), |b| b.abort("one"), |b| b.end());
        b.set("c", "n", event("nothing"));
    });
    assert_eq!(t.body.len(), 1);
    assert_eq!(t.reasons, ["one"]);
}

#[test]
fn loops_have_an_id_each_and_choose_the_row() {
    let t = body(|b| {
        b.for_each("tag", "tags", |b| b.require(element("tag", "").ne(""), "empty tag"));
        b.for_each("outer", "lines", |b| {
            b.for_each("inner", "lines", |b| b.set("stock", "n", element("outer", "count")));
        });
    });
    assert_eq!(t.loops, [18, 19, 19]);
    let Stmt::ForEach { body, .. } = &t.body[1] else { panic!("a loop") };
    let Stmt::ForEach { body, loop_id: 2 } = &body[0] else { panic!("a loop in it") };
    // A round of a loop in another is counted, and so is a write in it.
    assert!(body[..2].iter().all(|stmt| matches!(stmt, Stmt::Count { count: Count::Steps(1), .. })));
    let Stmt::Set { element, value, .. } = &body[2] else { panic!("a set") };
    assert_eq!(*element, Some(2));
    assert_eq!(value.node, Node::Element { loop_id: 1, column: 1 });
}

/// The rounds of a range with constant bounds count before it, if a round counts nothing and none leaves the loop.
#[test]
fn rounds_are_counted_at_once() {
    let counts = |rounds: i64, leaves: bool| {
        let t = body(|b| {
            b.for_each("tag", "tags", |b| {
                b.for_range("i", 0, rounds, |b| {
                    b.assign("x", local("i"));
                    if leaves {
                        b.when(event("flag"), |b| b.leave());
                    }
                });
            });
        });
        let Stmt::ForEach { body, .. } = &t.body[0] else { panic!("a loop") };
        let steps = |block: &[Stmt]| match block[0] {
            Stmt::Count { count: Count::Steps(steps), .. } => Some(steps),
            _ => None,
        };
        let Stmt::ForRange { body: inner, .. } = body.last().expect("a loop") else { panic!("a loop in it") };
        (steps(body), steps(inner))
    };
    assert_eq!(counts(100, false), (None, None));
    assert_eq!(counts(101, false), (Some(101), None));
    assert_eq!(counts(101, true), (None, Some(1)));
    assert_eq!(counts(1 << 50, false), (None, Some(1)));
}

#[test]
fn records_of_one_output_share_a_schema() {
    let plan = fields().transaction("t", [named("all")], |t| {
        t.body(|b| {
            b.emit("log", [("value", event("n")), ("note", none())]);
            b.emit("log", [("value", event("x")), ("note", event("text"))]);
            b.when(event("flag"), |b| b.give([("n", event("n")), ("price", literal(1))]));
            b.give([("n", event("maybe_n")), ("price", event("price"))]);
        })
    });
    let program = program(plan);
    assert_eq!(stream(&program, "t.emitted.log").schema.to_string(), "value: float, note: str | None");
    let committed = "n: int | None, price: Decimal(18, 2)";
    assert_eq!(stream(&program, "t.committed").schema.to_string(), committed);
    assert!(!transaction(&program, "t").committed.passes_event);
}

#[test]
fn keys_that_cannot_fail_are_allowed() {
    let plan = PlanBuilder::new("keys")
        .table("buckets", |t| {
            t.key("bucket", Type::Int).key("name", Type::Str).column_or("n", Type::Int, Value::Int(0))
        })
        .source("s", |s| s.field("n", Type::Int).field("name", Type::Str))
        .transaction("t", [named("s")], |t| {
            let name = event("name").call(tidemill_plan::Function::Lower, []) + "!";
            t.create("b", "buckets", [event("n") % 10, name]).body(|b| b.set("b", "n", cell("b", "n") + 1))
        });
    let program = program(plan);
    assert_eq!(transaction(&program, "t").roles[0].key.len(), 2);
    assert_eq!(transaction(&program, "t").reasons, ["integer overflow in b.n + 1"]);
}
