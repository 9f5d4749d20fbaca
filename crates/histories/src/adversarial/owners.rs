//! Rows that belong to chosen rows: the account of the owner of each order, and the one above that account.

use super::values::str;
use crate::History;
use crate::ast::*;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_plan::{
    AccessDef, BinaryOp, ColumnDef, CompareOp, Direction, Expr, ExprNode, RoleDef, Stmt, StmtNode, TableDef,
    TransactionDef,
};

fn tables() -> Vec<TableDef> {
    let optional =
        |name: &str| ColumnDef { ty: ColumnType::optional(Type::Str), ..column(name, Type::Str, Value::Null) };
    let orders = vec![
        key("id", Type::Int),
        optional("owner"),
        column("price", Type::Int, Value::Int(0)),
        column("amount", Type::Int, Value::Int(0)),
    ];
    let accounts = vec![
        key("id", Type::Str),
        optional("above"),
        column("balance", Type::Int, Value::Int(0)),
        column("note", Type::Str, str("")),
    ];
    let orders = TableDef { indexes: vec![vec!["price".into()]], ..table("orders", orders) };
    let accounts = TableDef { changes: true, indexes: vec![vec!["above".into()]], ..table("accounts", accounts) };
    vec![orders, accounts]
}

fn for_each_of(rows: &str, name: &str, key: Expr, access: AccessDef) -> RoleDef {
    RoleDef { each: Some(rows.into()), ..role(name, "accounts", vec![key], access) }
}

fn roles() -> Vec<RoleDef> {
    let open = vec![between("amount", Some(int(1)), None)];
    let number = call(tidemill_plan::Function::Str, [row_count("asks")]);
    vec![
        role("own", "orders", vec![event("id")], AccessDef::Create),
        rows_of("asks", "orders", open, first("price", Direction::Ascending, 4)),
        for_each_of("asks", "seller", cell("asks", "owner"), AccessDef::Create),
        // The owner is taken as it was before: a key made of both, which two asks seldom share.
        for_each_of("asks", "pair", add(cell("seller", "id"), event("owner")), AccessDef::Row),
        for_each_of("asks", "above", cell("seller", "above"), AccessDef::ReadDefault),
        role("by_count", "accounts", vec![number], AccessDef::Create),
        rows_of("below", "accounts", vec![same("above", event("owner"))], None),
        // Often one of `below` itself, or one of the sellers.
        for_each_of("below", "leader", cell("below", "above"), AccessDef::Row),
        role("buyer", "accounts", vec![event("owner")], AccessDef::Create),
    ]
}

fn is(what: &str) -> Expr {
    compare(CompareOp::Eq, event("what"), text(what))
}

/// Returns the statements for the owner of each ask.
fn sell() -> Vec<Stmt> {
    let part = call(tidemill_plan::Function::Min, [cell("asks", "amount"), local("left")]);
    let gone = compare(CompareOp::Le, cell("asks", "amount"), int(0));
    let new = stmt(StmtNode::Insert { role: "pair".into(), values: vec![("note".into(), cell("seller", "note"))] });
    vec![
        when(compare(CompareOp::Le, local("left"), int(0)), vec![stmt(StmtNode::Break)], vec![]),
        assign("part", part),
        assign("left", binary(BinaryOp::Sub, local("left"), local("part"))),
        increase("asks", "amount", binary(BinaryOp::Sub, int(0), local("part"))),
        increase("seller", "balance", binary(BinaryOp::Mul, local("part"), cell("asks", "price"))),
        set("seller", "note", add(cell("seller", "note"), event("owner"))),
        require(compare(CompareOp::Le, cell("seller", "balance"), event("most")), "too rich"),
        when(not(exists("pair")), vec![new], vec![increase("pair", "balance", int(1))]),
        emit(
            "sold",
            vec![
                ("seller", cell("seller", "id")),
                ("balance", cell("seller", "balance")),
                ("above", cell("above", "balance")),
            ],
        ),
        when(gone, vec![delete("asks")], vec![]),
        when(expr(ExprNode::All(vec![is("close"), exists("seller")])), vec![delete("seller")], vec![]),
    ]
}

fn body(end: Vec<Stmt>) -> Vec<Stmt> {
    let lead = vec![
        increase("leader", "balance", int(1)),
        set("below", "note", add(cell("leader", "note"), text("!"))),
        when(is("leave"), vec![set("below", "above", literal(Value::Null))], vec![]),
    ];
    let mut body = vec![
        assign("left", event("amount")),
        when(
            is("ask"),
            vec![
                set("own", "owner", event("owner")),
                set("own", "price", event("price")),
                set("own", "amount", event("amount")),
            ],
            vec![for_rows("asks", sell())],
        ),
        for_rows("below", lead),
        increase("by_count", "balance", int(1)),
        set("buyer", "above", event("above")),
        increase("buyer", "balance", binary(BinaryOp::Sub, int(0), local("left"))),
        assign("sum", int(0)),
        // Keys are as they were: the asks that are gone are passed over.
        for_rows("asks", vec![assign("sum", add(local("sum"), cell("above", "balance")))]),
        require(not(is("refuse")), "refused"),
    ];
    body.extend(end);
    body
}

fn schema() -> Schema {
    let optional = ColumnType::optional(Type::Str);
    let [text, int] = [Type::Str, Type::Int].map(ColumnType::required);
    let (amounts, texts) = (["price", "amount", "most"], ["owner", "what"]);
    let fields = amounts.map(|name| (name, int)).into_iter().chain(texts.map(|name| (name, text)));
    Schema::scalars([("id", int), ("above", optional)].into_iter().chain(fields))
}

fn data() -> Vec<Vec<Value>> {
    let names = ["ada", "bob", "eve", "ÿ", ""];
    let whats = ["ask", "ask", "buy", "ask", "buy", "leave", "ask", "close", "buy", "refuse"];
    let order = |i: i64| {
        let above = if i % 4 == 1 { Value::Null } else { str(names[(i * 3 % 5) as usize]) };
        let most = if i % 9 == 5 { 20 } else { 1_000_000 };
        vec![
            Value::Int(i * 7 % 17),
            above,
            Value::Int(i * 11 % 6),
            Value::Int(i * 5 % 8),
            Value::Int(most),
            str(names[(i * 2 % 7 % 5) as usize]),
            str(whats[(i * 3 % 31) as usize % whats.len()]),
        ]
    };
    (0..90).map(order).collect()
}

/// Orders without an owner, of one owner, of owners who are above each other; owners who come, go, and are met as the
/// buyer, too. The transaction aborts in the loop and behind it.
pub fn of_orders() -> History {
    let end = vec![give_back(vec![("left", local("left")), ("sum", local("sum"))])];
    let work = transaction("work", vec![named("orders")], roles(), body(end));
    let preload = vec![(0.into(), vec![vec![Value::Int(-1), Value::Null, Value::Int(9), Value::Int(1)]])];
    let streams = vec![source("orders", schema())];
    History { plan: plan("of_orders", tables(), streams, vec![work]), preload, sources: vec![data()] }
}

/// The history in a nest, whose root and inner transaction both sell, and either may abort.
pub fn nested() -> History {
    let pass = || {
        let names = ["id", "above", "price", "amount", "most", "owner", "what"];
        give_back(names.map(|name| (name, event(name))).to_vec())
    };
    let root = transaction("root", vec![named("orders")], roles(), body(vec![pass()]));
    let fits = require(compare(CompareOp::Lt, local("sum"), int(60)), "too much above");
    let inner = transaction("inner", vec![committed("root")], roles(), body(vec![fits]));
    let inner = TransactionDef { nested: true, ..inner };
    let streams = vec![source("orders", schema())];
    History {
        plan: plan("owners_nested", tables(), streams, vec![root, inner]),
        preload: vec![],
        sources: vec![data()],
    }
}
