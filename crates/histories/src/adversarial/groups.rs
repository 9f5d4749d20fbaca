//! Transactions of groups that share no row, and some that only say so.

use super::values::ints;
use crate::History;
use crate::ast::*;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{AccessDef, CompareOp, Expr, KeyGroupsDef};

/// Transfers in zones, most of them in one account of the first, where many abort; beside them a counter that all
/// events meet in. With `strays`, money also goes from zone to zone, against what the table declares.
fn zones(name: &str, strays: bool) -> History {
    let number = || Type::Int.into();
    let schema = ["from", "to", "src", "dst", "amount"].map(|name| (name, number()));
    let schema = Schema::scalars(schema);
    let mut accounts = table(
        "accounts",
        vec![key("zone", Type::Int), key("id", Type::Int), column("balance", Type::Int, Value::Int(3))],
    );
    accounts.groups = Some(KeyGroupsDef { column: "zone".into(), count: 2 });
    let counters = table("counters", vec![key("id", Type::Int), column("seen", Type::Int, Value::Int(0))]);
    let at = |zone: &str, id: &str| -> Vec<Expr> { vec![event(zone), event(id)] };
    let roles = vec![
        role("src", "accounts", at("from", "src"), AccessDef::Create),
        role("dst", "accounts", at(if strays { "to" } else { "from" }, "dst"), AccessDef::Create),
    ];
    let body = vec![
        require(compare(CompareOp::Ge, cell("src", "balance"), event("amount")), "insufficient funds"),
        set("src", "balance", sub(cell("src", "balance"), event("amount"))),
        increase("dst", "balance", event("amount")),
        give_back(vec![("left", cell("src", "balance")), ("there", cell("dst", "balance"))]),
    ];
    let transfer = transaction("transfer", vec![named("events")], roles, body);
    let count = transaction(
        "count",
        vec![named("events")],
        vec![role("counter", "counters", vec![int(0)], AccessDef::Create)],
        vec![increase("counter", "seen", event("amount")), give_back(vec![("seen", cell("counter", "seen"))])],
    );
    let plan = plan(name, vec![accounts, counters], vec![source("events", schema)], vec![transfer, count]);
    let events = (0..240).map(|i: i64| {
        let zone = i % 3 % 2;
        let src = if zone == 0 { 0 } else { i % 17 };
        ints(&[zone, i % 2, src, i * 7 % 5, i * 11 % 5 - 1])
    });
    History { plan, preload: vec![], sources: vec![events.collect()] }
}

/// Each transaction in the zone that it names.
pub fn in_zones() -> History {
    zones("in_zones", false)
}

/// Some across two.
pub fn across_zones() -> History {
    zones("across_zones", true)
}
