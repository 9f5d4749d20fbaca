//! Money moves between accounts, in the orders that hurt.

use super::values::{ints, str};
use crate::History;
use crate::ast::*;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{AccessDef, BinaryOp, CompareOp, Plan, Stmt, TableDef};

fn accounts() -> TableDef {
    table("accounts", vec![key("id", Type::Int), column("balance", Type::Int, Value::Int(0))])
}

fn enough(role: &str) -> Stmt {
    require(compare(CompareOp::Ge, cell(role, "balance"), event("amount")), "insufficient funds")
}

/// Transfers from `src` to `dst` with a body over these roles.
fn transfers(name: &str, body: Vec<Stmt>) -> Plan {
    let int = || Type::Int.into();
    let schema = Schema::scalars([("src", int()), ("dst", int()), ("amount", int())]);
    let roles = vec![
        role("src", "accounts", vec![event("src")], AccessDef::Row),
        role("dst", "accounts", vec![event("dst")], AccessDef::Row),
    ];
    let streams = vec![source("transfers", schema)];
    plan(name, vec![accounts()], streams, vec![transaction("transfer", vec![named("transfers")], roles, body)])
}

fn checked_transfer() -> Vec<Stmt> {
    vec![
        enough("src"),
        set("src", "balance", sub(cell("src", "balance"), event("amount"))),
        increase("dst", "balance", event("amount")),
        give_back(vec![("src", cell("src", "id")), ("left", cell("src", "balance")), ("dst", cell("dst", "balance"))]),
    ]
}

fn balances(balances: impl IntoIterator<Item = i64>) -> Vec<Vec<Value>> {
    balances.into_iter().enumerate().map(|(id, balance)| ints(&[id as i64, balance])).collect()
}

/// All events meet in one row, and some of them abort there.
pub fn one_hot_key() -> History {
    let schema = Schema::scalars([("amount", Type::Int.into())]);
    let columns = vec![
        key("name", Type::Str),
        column("total", Type::Int, Value::Int(0)),
        column("count", Type::Int, Value::Int(0)),
    ];
    let body = vec![
        increase("r", "count", int(1)),
        increase("r", "total", event("amount")),
        require(compare(CompareOp::Ge, cell("r", "total"), int(0)), "below zero"),
        give_back(vec![("total", cell("r", "total")), ("count", cell("r", "count"))]),
    ];
    let roles = vec![role("r", "counters", vec![text("the only one")], AccessDef::Create)];
    let add = transaction("add", vec![named("amounts")], roles, body);
    let plan = plan("one_hot_key", vec![table("counters", columns)], vec![source("amounts", schema)], vec![add]);
    let events = (0..200).map(|i| ints(&[i * 7 % 23 - 10])).collect();
    History { plan, preload: vec![], sources: vec![events] }
}

/// One coin goes through all accounts and back: each transfer needs the one before.
pub fn chain() -> History {
    const LAST: i64 = 60;
    let there = (0..LAST).map(|i| ints(&[i, i + 1, 100]));
    let back = (0..LAST).rev().map(|i| ints(&[i + 1, i, 100]));
    // The coin is not where these look for it.
    let astray = (0..LAST).map(|i| ints(&[LAST - i, i, 1]));
    let preload = balances((0..=LAST).map(|i| if i == 0 { 100 } else { 0 }));
    let events = there.chain(back).chain(astray).collect();
    History { plan: transfers("chain", checked_transfer()), preload: vec![(0.into(), preload)], sources: vec![events] }
}

/// Each writes both rows, and then aborts.
pub fn all_abort() -> History {
    let mut body = checked_transfer();
    body.insert(3, abort("never"));
    let events = (0..100).map(|i| ints(&[i % 5, (i + 1) % 5, i % 3])).collect();
    let preload = balances([50; 5]);
    History { plan: transfers("all_abort", body), preload: vec![(0.into(), preload)], sources: vec![events] }
}

/// The verdict comes after the writes. Whoever takes over what an aborted transfer wrote comes to
/// another verdict, and so does each one after it.
pub fn flipped_verdicts() -> History {
    let body = vec![
        increase("dst", "balance", event("amount")),
        set("src", "balance", sub(cell("src", "balance"), event("amount"))),
        require(compare(CompareOp::Ge, cell("src", "balance"), int(0)), "insufficient funds"),
    ];
    // Account 0 has too little for the first; only with its money could the next one be done, …
    let stuck = (0..40).map(|i| ints(&[i % 8, (i + 1) % 8, 20]));
    // … until some money comes in and goes round, now and then held up by one that asks for too much.
    let relief = [ints(&[8, 3, 20])].into_iter();
    let again = (0..80).map(|i| ints(&[(i + 3) % 8, (i + 4) % 8, if i % 9 == 4 { 31 } else { 20 }]));
    let events = stuck.chain(relief).chain(again).collect();
    let preload = balances([10, 0, 0, 0, 0, 0, 0, 0, 100]);
    History { plan: transfers("flipped_verdicts", body), preload: vec![(0.into(), preload)], sources: vec![events] }
}

/// Two transactions in turn, each writing its own table from what the other one wrote.
pub fn mutual_reads() -> History {
    let cells = |name| table(name, vec![key("id", Type::Int), column("v", Type::Int, Value::Int(1))]);
    let schema = || Schema::scalars([("own", Type::Int.into()), ("other", Type::Int.into())]);
    let modulo = |value| binary(BinaryOp::Mod, value, int(1009));
    let work = |name: &str, own: &str, other: &str, input: &str| {
        let roles = vec![
            role("mine", own, vec![event("own")], AccessDef::Create),
            role("theirs", other, vec![event("other")], AccessDef::ReadDefault),
        ];
        let sum = add(binary(BinaryOp::Mul, cell("theirs", "v"), int(3)), cell("mine", "v"));
        let odd = compare(CompareOp::Ne, binary(BinaryOp::Mod, cell("mine", "v"), int(5)), int(0));
        let body = vec![
            set("mine", "v", modulo(sum)),
            require(odd, "a multiple of five"),
            give_back(vec![("theirs", cell("theirs", "v")), ("mine", cell("mine", "v"))]),
        ];
        transaction(name, vec![named(input)], roles, body)
    };
    let plan = plan(
        "mutual_reads",
        vec![cells("left"), cells("right")],
        vec![source("lefts", schema()), source("rights", schema())],
        vec![work("to_left", "left", "right", "lefts"), work("to_right", "right", "left", "rights")],
    );
    let events = |step: i64| (0..80).map(|i| ints(&[i * step % 4, (i + step) % 3])).collect();
    History { plan, preload: vec![], sources: vec![events(1), events(2)] }
}

/// Returns a text that no short form of a string holds.
pub fn long(text_of: char) -> Value {
    str(text_of.to_string().repeat(150))
}
