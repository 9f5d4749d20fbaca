//! Random plans of transactions that can be taken apart: several roles, most updates from the role's own
//! cells, requirements anywhere. What random plans of all kinds seldom are, and what speculation needs.

mod lines;

use crate::ast::*;
use crate::random::Random;
use tidemill_model::{ColumnType, ListItem, Schema, Type, Value};
use tidemill_plan::{AccessDef, BinaryOp, CompareOp, Expr, Plan, RoleDef, Stmt, StmtNode, TransactionDef};

const TABLES: [&str; 2] = ["left", "right"];
const KEYS: [&str; 3] = ["x", "y", "z"];
const COLUMNS: [&str; 2] = ["a", "b"];

/// Returns a plan that is a function of the seed, and valid.
pub fn random_apart_plan(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0xa9a7);
    // A text beside the numbers: no transaction that inserts is then taken apart.
    let has_note = random.chance(30);
    let mut tables: Vec<_> = TABLES
        .map(|name| {
            let number = |name: &str| column(name, Type::Int, Value::Int(0));
            let mut columns = vec![key("id", Type::Int), number("a"), number("b")];
            columns.extend(has_note.then(|| column("note", Type::Str, Value::Str("same".into()))));
            table(name, columns)
        })
        .into();
    tables.push(lines::parts_table());
    let mut fields = vec![("amount", Type::Int.into()), ("kind", Type::Int.into())];
    fields.extend(KEYS.map(|name| (name, ColumnType { ty: Type::Int, nullable: random.chance(10) })));
    let mut schema = Schema::scalars(fields);
    schema.fields.push(list("keys", ListItem::Scalar(Type::Int.into())));
    schema.fields.push(lines::field());
    let transactions = (0..random.between(1, 2)).map(|n| random_transaction(&mut random, n)).collect();
    plan(&format!("apart{seed}"), tables, vec![source("events", schema)], transactions)
}

fn random_transaction(random: &mut Random, number: usize) -> TransactionDef {
    let mut roles: Vec<RoleDef> = Vec::new();
    let has_list = random.chance(20);
    let has_lines = random.chance(35);
    // Keys that depend on values, which speculation and all else that knows its rows beforehand must leave alone.
    let depends = random.chance(25);
    for r in 0..random.between(2, 4) {
        let access = *random.pick(&[AccessDef::Row, AccessDef::Row, AccessDef::ReadDefault, AccessDef::Read]);
        let depends = r > 0 && depends && random.chance(60);
        let key = vec![match depends {
            true => cell(&format!("r{}", random.below(r)), random.pick::<&str>(&COLUMNS)),
            false => event(KEYS[r % KEYS.len()]),
        }];
        roles.push(role(&format!("r{r}"), random.pick::<&str>(&TABLES), key, access));
    }
    if has_list {
        // Elements of a list seldom differ, so their table is rarely another role's.
        roles.push(role_over("each", "right", vec![element("keys", "")], "keys", AccessDef::Row));
    }
    let scalars = roles.len() - usize::from(has_list);
    if has_lines {
        roles.extend(lines::roles(random, &TABLES));
    }
    let lines = roles[scalars + usize::from(has_list)..].to_vec();
    let mut body = Body { random, roles: &roles[..scalars], locals: 0 };
    let mut statements = Vec::new();
    for _ in 0..body.random.between(2, 7) {
        statements.extend(body.statement(2));
    }
    if has_list {
        let looped = vec![increase("each", "a", event("amount")), require(at_least("each", "b", -5), "each is low")];
        statements.push(for_each("k", "keys", looped));
    }
    if has_lines {
        let at = random.below(statements.len() + 1);
        let looped = lines::statements(random, &lines, &roles[..scalars]);
        statements.splice(at..at, looped);
    }
    if random.chance(60) {
        let seen = format!("r{}", random.below(scalars));
        let returned = match random.chance(40) {
            true => {
                statements.insert(random.below(statements.len() + 1), assign("seen", cell(&seen, "a")));
                local("seen")
            }
            false => cell(&seen, "a"),
        };
        statements.push(give_back(vec![("amount", event("amount")), ("a", returned)]));
    }
    if random.chance(50) {
        roles.rotate_right(lines.len());
    }
    transaction(&format!("work{number}"), vec![named("events")], roles, statements)
}

fn at_least(role: &str, column: &str, least: i64) -> Expr {
    compare(CompareOp::Ge, cell(role, column), int(least))
}

struct Body<'a> {
    random: &'a mut Random,
    roles: &'a [RoleDef],
    locals: usize,
}

impl Body<'_> {
    fn any_role(&mut self) -> String {
        self.random.pick(self.roles).name.clone()
    }

    fn writable(&mut self) -> Option<String> {
        let writable: Vec<&RoleDef> = self.roles.iter().filter(|r| r.access == AccessDef::Row).collect();
        self.random.pick_any(&writable).map(|role| role.name.clone())
    }

    fn column(&mut self) -> &'static str {
        self.random.pick::<&str>(&COLUMNS)
    }

    /// Returns a number from the event and, mostly, from no other role than this one.
    fn value(&mut self, role: &str) -> Expr {
        let column = self.column();
        let own = cell(role, column);
        match self.random.below(10) {
            0 => event("amount"),
            1 => binary(BinaryOp::Mod, add(own, event("amount")), int(7)),
            2 => binary(BinaryOp::Mul, own, event("kind")),
            3 => {
                let (other, column) = (self.any_role(), self.column());
                add(own, cell(&other, column))
            }
            4 => binary(BinaryOp::FloorDiv, own, event("kind")),
            5 | 6 => sub(own, event("amount")),
            _ => add(own, event("amount")),
        }
    }

    /// Returns a condition over the event or one role.
    fn condition(&mut self, role: &str) -> Expr {
        let column = self.column();
        match self.random.below(5) {
            0 => compare(CompareOp::Gt, event("amount"), int(2)),
            1 => compare(CompareOp::Eq, event("kind"), int(1)),
            2 => exists(role),
            _ => at_least(role, column, self.random.int(-3, 3)),
        }
    }

    fn statement(&mut self, depth: usize) -> Vec<Stmt> {
        let role = self.any_role();
        let choice = self.random.below(if depth == 0 { 6 } else { 12 });
        match choice {
            0 => {
                let column = self.column();
                let least = self.random.int(-6, 1);
                return vec![require(at_least(&role, column, least), "too low")];
            }
            6 | 7 => {
                let condition = self.condition(&role);
                let (then, otherwise) = (self.statement(depth - 1), self.statement(depth - 1));
                return vec![when(condition, then, otherwise)];
            }
            8 => {
                let condition = self.condition(&role);
                let end = match self.random.below(3) {
                    0 => abort("unwanted"),
                    1 => stmt(StmtNode::Return { record: None }),
                    _ => require(compare(CompareOp::Ne, event("kind"), int(2)), "kind two"),
                };
                return vec![when(condition, vec![end], vec![])];
            }
            9 => {
                let name = format!("i{}", self.locals);
                self.locals += 1;
                let mut inner = self.statement(depth - 1);
                if self.random.chance(30) {
                    let condition = self.condition(&role);
                    inner.insert(0, when(condition, vec![stmt(StmtNode::Break)], vec![]));
                }
                return vec![for_range(&name, int(0), binary(BinaryOp::Mod, event("kind"), int(4)), 1, inner)];
            }
            10 => {
                let name = format!("v{}", self.locals);
                self.locals += 1;
                let value = self.value(&role);
                let mut all = vec![assign(&name, value)];
                if let Some(to) = self.writable() {
                    let to = if self.random.chance(70) && self.is_writable(&role) { role } else { to };
                    let column = self.column();
                    all.push(set(&to, column, add(local(&name), int(1))));
                }
                return all;
            }
            _ => {}
        }
        let Some(role) = self.writable() else { return vec![require(exists(&role), "not there")] };
        match self.random.below(20) {
            0 => vec![delete(&role)],
            1 => vec![delete(&role), insert(&role, vec![("a", event("amount"))])],
            _ => {
                let (column, value) = (self.column(), self.value(&role));
                vec![set(&role, column, value)]
            }
        }
    }

    fn is_writable(&self, role: &str) -> bool {
        self.roles.iter().any(|r| r.name == role && r.access == AccessDef::Row)
    }
}
