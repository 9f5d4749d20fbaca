//! Random wakes of rows.

use crate::ast::*;
use crate::bodies::{Task, transaction_for};
use crate::random::Random;
use tidemill_model::{Field, Schema, Type, Value};
use tidemill_plan::{AccessDef, Expr, ExprNode, Plan, Stmt, StmtNode, StreamRef, TransactionDef, analyze};

/// Has transactions wake rows, and a transaction run on those that wake; it may wake them again.
pub fn random_wakes(random: &mut Random, plan: &mut Plan, time: Type, risk: usize) {
    for index in 0..plan.transactions.len() {
        if plan.transactions[index].over.is_none() && plan.transactions[index].join.is_none() && random.chance(50) {
            let mut with = plan.transactions[index].clone();
            if let Some(statement) = wake(random, &with, time) {
                let at = random.below(with.body.len() + 1);
                with.body.insert(at, statement);
                let before = std::mem::replace(&mut plan.transactions[index], with);
                if analyze(plan).is_err() {
                    plan.transactions[index] = before;
                }
            }
        }
    }
    for table in 0..plan.tables.len() {
        let table = &plan.tables[table];
        let keys = table.columns.iter().filter(|column| column.key);
        let mut schema = Schema { fields: keys.map(|key| Field::scalar(&key.name, key.ty)).collect() };
        schema.fields.push(Field::scalar("at", time.into()));
        let task = Task {
            name: format!("woken_{}", table.name),
            inputs: vec![StreamRef::Woken(table.name.clone())],
            schema: &schema,
            lists_open: false,
            time: Some(schema.fields.len() - 1),
            tables: &plan.tables,
            statements: 3,
            fans_out: false,
            risk,
            scans: false,
        };
        let mut transaction = transaction_for(random, &task);
        if let Some(again) = wake(random, &transaction, time).filter(|_| random.chance(40)) {
            transaction.body.insert(0, again);
        }
        plan.transactions.push(transaction);
        // Rows of few tables are ever woken.
        if analyze(plan).is_err() {
            plan.transactions.pop();
        }
    }
}

/// A wake of a row that the transaction may write.
fn wake(random: &mut Random, of: &TransactionDef, time: Type) -> Option<Stmt> {
    let can_write = |access| matches!(access, AccessDef::Row | AccessDef::Create);
    let roles = of.roles.iter().filter(|role| can_write(role.access) && role.over.is_none());
    let roles: Vec<_> = roles.map(|role| (role.name.clone(), role.each.clone())).collect();
    let (role, each) = random.pick_any(&roles)?.clone();
    let after = *random.pick(&[-5, 0, 1, 1, 2, 2, 5, 20]);
    let after = if time == Type::Int { Value::Int(after) } else { Value::Duration(after) };
    let at = event("at") + Expr::from(after);
    let at = match random.below(10) {
        0 => None,
        // Not seen to be a constant after the event.
        1 | 2 => Some(expr(ExprNode::IfElse {
            condition: Box::new(exists(&role)),
            then: Box::new(at.clone()),
            otherwise: Box::new(event("at")),
        })),
        _ => Some(at),
    };
    let wake = stmt(StmtNode::Wake { role: role.clone(), at });
    let wake = if random.chance(70) { when(exists(&role), vec![wake], vec![]) } else { wake };
    Some(match each {
        Some(rows) => for_rows(&rows, vec![wake]),
        None => wake,
    })
}
