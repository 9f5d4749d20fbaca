//! Nested transactions: which there may be, and what is said of them.

use tidemill_model::{Type, Value};
use tidemill_plan::build::{Block, PlanBuilder, TransactionBuilder, aborted, cell, committed, emitted, event, named};
use tidemill_plan::{Nesting, StreamRef, TransactionId, WindowsDef, analyze, explain, warnings};

fn base() -> PlanBuilder {
    let table = |t: tidemill_plan::build::TableBuilder| t.key("id", Type::Int).column_or("n", Type::Int, Value::Int(0));
    PlanBuilder::new("p").table("t", table).source("s", |s| s.field("id", Type::Int)).transaction(
        "first",
        [named("s")],
        |t| {
            t.create("r", "t", [event("id")]).body(|b| {
                count(b);
                b.emit("more", [("id", event("id"))]);
            })
        },
    )
}

fn count(b: &mut Block) {
    b.require(cell("r", "n").lt(10), "ten");
    b.set("r", "n", cell("r", "n") + 1);
}

/// Returns a transaction that is nested and counts.
fn step(plan: PlanBuilder, name: &str, inputs: impl IntoIterator<Item = StreamRef>) -> PlanBuilder {
    plan.transaction(name, inputs, |t: TransactionBuilder| t.create("r", "t", [event("id")]).body(count).nested())
}

#[track_caller]
fn refuse(plan: PlanBuilder, expected: &[&str]) {
    let errors = analyze(&plan.build()).expect_err("the plan was accepted");
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn the_root_has_the_reasons_of_all() {
    let plan = step(base(), "second", [committed("first"), emitted("first", "more")]);
    let plan = step(plan.filter("few", committed("second"), event("id").gt(3)), "third", [named("few")]);
    let program =
        analyze(&plan.sink("gone", aborted("first")).sink("none", aborted("third")).build()).expect("a good plan");
    let [first, second, third] = [0, 1, 2].map(|id| &program.transactions[TransactionId::from(id)]);
    assert!(first.is_root() && second.is_nested() && third.is_nested());
    assert_eq!(second.nesting, Nesting::In(TransactionId::from(0)));
    let ten = first.reason_of(TransactionId::from(2), 0);
    assert_eq!((first.reasons[0].as_str(), first.reasons[ten as usize].as_str()), ("ten", "third: ten"));
    let text = explain(&program);
    for said in [
        "one event at a time, as one with second, third: all commit or none does",
        "one event at a time, nested in first, which aborts if it does",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let empty = "stream 'third.aborted' stays empty: if third aborts, 'first.aborted' has the event";
    assert!(warnings(&program).contains(&empty.to_owned()), "{:?}", warnings(&program));
    let unused = "stream 'second.aborted' has no sink and nothing reads it";
    assert!(!warnings(&program).contains(&unused.to_owned()));
}

#[test]
fn what_is_nested_takes_what_one_transaction_gives() {
    refuse(
        step(base(), "second", [named("s")]),
        &["transaction 'second': it is nested, and no transaction returns or emits 's'; take .committed or \
           .emitted(...) of a transaction, or leave out nested=True"],
    );
    let plan = base().transaction("again", [aborted("first")], |t| t.body(|b| b.give([("id", event("id"))])).nested());
    refuse(
        plan,
        &["transaction 'again': it is nested, and takes 'first.aborted': with an abort of 'first' all of them end; \
           leave out nested=True, or take what the transaction returns or emits"],
    );
    let plan = base().transaction("other", [named("s")], |t| t.body(|_| {}));
    refuse(
        step(plan, "second", [committed("first"), committed("other")]),
        &["transaction 'second': it is nested, and takes 'first.committed' of 'first' and 'other.committed' of \
           'other'; a transaction is nested in one; make two of it"],
    );
}

#[test]
fn a_window_is_not_nested_but_its_results_have_roots() {
    let count = WindowsDef::Counting { count: 3 };
    let plan = base().window("w", committed("first"), [("id", event("id"))], count, |b| b.give([("id", event("id"))]));
    let mut nested = plan.clone().build();
    nested.transactions[1].nested = true;
    let errors = analyze(&nested).expect_err("a window is nested");
    assert_eq!(errors[0].to_string(), "window 'w': a window is not nested; nest the transaction on its results");
    let program = analyze(&step(plan, "second", [committed("w")]).build()).expect("a good plan");
    assert!(program.transactions.iter().any(|t| t.name == "w" && t.is_root()));
}
