//! Random wakes and expiries of rows.

use crate::ast::*;
use crate::bodies::{Task, transaction_for};
use crate::random::Random;
use tidemill_model::{Field, Schema, Type, Value};
use tidemill_plan::{
    AccessDef, ColumnDef, Expire, Expr, ExprNode, Plan, Stmt, StmtNode, StreamRef, TableDef, TransactionDef, analyze,
};

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
        let name = format!("woken_{}", table.name);
        let task = task_on(name, StreamRef::Woken(table.name.clone()), &schema, &plan.tables, risk);
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

/// Returns the task of a transaction that runs on rows of a table, whose time is their last field.
fn task_on<'a>(name: String, input: StreamRef, schema: &'a Schema, tables: &'a [TableDef], risk: usize) -> Task<'a> {
    Task {
        name,
        inputs: vec![input],
        schema,
        time: Some(schema.fields.len() - 1),
        tables,
        statements: 3,
        fans_out: false,
        risk,
        scans: false,
    }
}

/// Has rows of tables expire, and a transaction run on those of some that have. Of numbers of its own, so that the rest of a plan
/// is the same with and without.
pub fn random_expiry(seed: u64, plan: &mut Plan, time: Type, risk: usize) {
    let mut random = Random::new(seed ^ 0xe4_91);
    for index in 0..plan.tables.len() {
        if !random.chance(12) {
            continue;
        }
        let length = *random.pick(&[1, 2, 5, 5, 20, 20, 200]);
        let length = if time == Type::Int { Value::Int(length) } else { Value::Duration(length) };
        let can_be = |column: &&ColumnDef| column.window.is_none() && column.ty.ty == time;
        let columns: Vec<String> = plan.tables[index].columns.iter().filter(can_be).map(|c| c.name.clone()).collect();
        let column = random.pick_any(&columns).cloned();
        plan.tables[index].expire = Some(match column.filter(|_| random.chance(60)) {
            Some(column) => Expire::At(column),
            None => Expire::After(length),
        });
        // A transaction may not know the time.
        if analyze(plan).is_err() {
            plan.tables[index].expire = None;
            continue;
        }
        if random.chance(30) {
            let table = &plan.tables[index];
            let columns = table.columns.iter().filter(|column| column.window.is_none());
            let mut schema = Schema { fields: columns.map(|column| Field::scalar(&column.name, column.ty)).collect() };
            schema.fields.push(Field::scalar("gone_at", time.into()));
            let name = format!("expired_{}", table.name);
            let task = task_on(name, StreamRef::Expired(table.name.clone()), &schema, &plan.tables, risk);
            plan.transactions.push(transaction_for(&mut random, &task));
            if analyze(plan).is_err() {
                plan.transactions.pop();
            }
        }
    }
}

/// Returns a wake of a row that the transaction may write.
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
