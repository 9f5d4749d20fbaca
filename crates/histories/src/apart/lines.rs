//! Loops over a list of rows, some of which can be performed for each element by itself and some of which only look so.

use crate::ast::*;
use crate::random::Random;
use tidemill_model::{ListItem, Type, Value};
use tidemill_plan::{AccessDef, BinaryOp, CompareOp, Expr, RoleDef, Stmt, StmtNode, TableDef};

const LIST: &str = "lines";

/// Returns the list: with a key of two parts, elements mostly differ.
pub fn field() -> tidemill_model::Field {
    list(LIST, ListItem::Struct(["id", "part"].map(|name| (name.to_string(), Type::Int.into())).into()))
}

/// Returns the table of its rows.
pub fn parts_table() -> TableDef {
    let number = |name: &str| column(name, Type::Int, Value::Int(0));
    table("parts", vec![key("id", Type::Int), key("part", Type::Int), number("a"), number("b")])
}

/// Returns a row for each element, or two. `others`: tables with a key of one part.
pub fn roles(random: &mut Random, others: &[&str]) -> Vec<RoleDef> {
    let access = *random.pick(&[AccessDef::Create, AccessDef::Create, AccessDef::Create, AccessDef::Row]);
    let ids = vec![element(LIST, "id"), element(LIST, "part")];
    let mut roles = vec![role_over("line", "parts", ids, LIST, access)];
    if random.chance(30) {
        let access = *random.pick(&[AccessDef::ReadDefault, AccessDef::Read, AccessDef::Row]);
        roles.push(role_over("beside", random.pick::<&str>(others), vec![element(LIST, "id")], LIST, access));
    }
    roles
}

/// Returns statements with one loop over the list, or with two.
pub fn statements(random: &mut Random, roles: &[RoleDef], scalars: &[RoleDef]) -> Vec<Stmt> {
    // Statements outside of the loop may fail even if the list is empty.
    let role = random.pick(scalars).name.clone();
    let factor = match random.below(6) {
        0 => binary(BinaryOp::FloorDiv, event("amount"), event("kind")),
        1 => cell(&role, "a"),
        _ => binary(BinaryOp::Mod, event("kind"), int(3)),
    };
    let mut all = vec![assign("sum", event("amount")), assign("factor", factor)];
    for _ in 0..if random.chance(30) { 2 } else { 1 } {
        let mut looped = Loop { random, roles, scalars, has_value: false };
        let mut body = Vec::new();
        for _ in 0..looped.random.between(1, 4) {
            looped.statement(2, &mut body);
        }
        if looped.random.chance(8) {
            let leave = if looped.random.chance(50) { StmtNode::Break } else { StmtNode::Return { record: None } };
            body.push(when(looped.condition(), vec![stmt(leave)], vec![]));
        }
        let whole = for_each("l", LIST, body);
        all.push(match random.below(12) {
            0 => when(compare(CompareOp::Gt, event("kind"), int(0)), vec![whole], vec![]),
            1 => for_range("round", int(0), int(2), 1, vec![whole]),
            _ => whole,
        });
        if random.chance(20) {
            all.push(assign("factor", binary(BinaryOp::Mod, local("sum"), int(3))));
        }
    }
    all
}

struct Loop<'a> {
    random: &'a mut Random,
    roles: &'a [RoleDef],
    scalars: &'a [RoleDef],
    /// A flag: whether the local `value` is set in this round for sure.
    has_value: bool,
}

impl Loop<'_> {
    fn column(&mut self) -> &'static str {
        self.random.pick::<&str>(&["a", "b"])
    }

    fn condition(&mut self) -> Expr {
        let (column, least) = (self.column(), self.random.int(-2, 6));
        match self.random.below(3) {
            0 => compare(CompareOp::Gt, element("l", "part"), int(2)),
            _ => compare(CompareOp::Ge, cell("line", column), int(least)),
        }
    }

    fn value(&mut self) -> Expr {
        let (column, other) = (self.column(), self.column());
        match self.random.below(12) {
            0 => element("l", "part"),
            1 => binary(BinaryOp::FloorDiv, cell("line", column), event("kind")),
            2 => binary(BinaryOp::Mul, cell("line", column), local("factor")),
            3 if self.has_value => add(local("value"), int(1)),
            4 if self.roles.len() > 1 => add(cell("beside", column), cell("line", other)),
            5 => {
                let role = self.random.pick(self.scalars).name.clone();
                add(cell(&role, column), cell("line", other))
            }
            6 => local("sum"),
            _ => add(cell("line", column), element("l", "part")),
        }
    }

    fn statement(&mut self, depth: usize, all: &mut Vec<Stmt>) {
        let column = self.column();
        match self.random.below(16) {
            0 => {
                all.push(assign("value", self.value()));
                self.has_value = true;
            }
            // A sum that goes from round to round.
            1 => all.push(assign("sum", add(local("sum"), cell("line", column)))),
            2 => all.push(require(compare(CompareOp::Ge, cell("line", column), int(-9)), "a line is low")),
            3 | 4 if depth > 0 => {
                let condition = self.condition();
                let had = self.has_value;
                let [mut then, mut otherwise] = [Vec::new(), Vec::new()];
                self.statement(depth - 1, &mut then);
                self.has_value = had;
                self.statement(depth - 1, &mut otherwise);
                self.has_value = had;
                if self.random.chance(25) {
                    then.push(stmt(StmtNode::Continue));
                }
                all.push(when(condition, then, otherwise));
            }
            5 if depth > 0 => {
                let had = self.has_value;
                let mut inner = Vec::new();
                self.statement(depth - 1, &mut inner);
                self.has_value = had;
                let stop = binary(BinaryOp::Mod, event("kind"), int(3));
                all.push(for_range("again", int(0), stop, 1, inner));
            }
            6 if self.roles.len() > 1 && self.roles[1].access == AccessDef::Row => {
                all.push(increase("beside", column, element("l", "part")));
            }
            7 if self.random.chance(30) => all.push(delete("line")),
            _ => all.push(set("line", column, self.value())),
        }
    }
}
