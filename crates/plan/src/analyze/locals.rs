//! Local variables: that each is set before it is read, and the type of each.
//!
//! As in Python a transaction is one namespace, and a loop's body may run not at all. The type of a
//! local is the join of the types of everything assigned to it. These types depend on each other, so
//! they are computed in rounds: each round types all assignments under the types of the round before,
//! from scratch, so that a type once guessed from half the assignments leaves no trace.

use super::fault::{Checked, Fault};
use super::scope::{ActiveLoop, LocalDraft, Scope};
use super::types::join;
use crate::visit::{each_statement, reachable};
use crate::{Expr, ExprNode, Stmt, StmtNode};
use std::collections::BTreeSet;
use tidemill_model::{ColumnType, FieldType, Type};

/// Enough rounds for scales of decimals to grow to their limit through a few locals.
const ROUNDS_PER_LOCAL: usize = 24;

/// Returns the locals of a body in the order of their first assignment, untyped.
pub(super) fn collect(body: &[Stmt]) -> Vec<LocalDraft> {
    let mut locals: Vec<LocalDraft> = Vec::new();
    each_statement(body, &mut |statement| {
        if let StmtNode::Assign { name, .. } | StmtNode::ForRange { variable: name, .. } = &statement.node
            && !locals.iter().any(|l| l.name == *name)
        {
            locals.push(LocalDraft { name: name.clone(), ty: None });
        }
    });
    locals
}

/// Refuses names that mean two things, and locals that may be read before they are set.
pub(super) fn check(body: &[Stmt], scope: &Scope<'_>) -> Checked<()> {
    let role = |name: &str| scope.roles.iter().any(|r| r.name == name);
    let local = |name: &str| scope.locals.iter().any(|l| l.name == name);
    let clash = |name: &str, a, b| Fault::new(format!("'{name}' is the name of {a} and of {b}")).hint("rename one");
    if let Some(both) = scope.locals.iter().find(|l| role(&l.name)) {
        return Err(clash(&both.name, "a role", "a local"));
    }
    let mut fault = None;
    each_statement(body, &mut |statement| {
        let (StmtNode::ForEach { variable, .. } | StmtNode::ForRows { variable, .. }) = &statement.node else { return };
        if role(variable) {
            fault = fault.take().or(Some(clash(variable, "a role", "a loop variable").at(statement.span)));
        } else if local(variable) {
            fault = fault.take().or(Some(clash(variable, "a local", "a loop variable").at(statement.span)));
        }
    });
    match fault {
        Some(fault) => Err(fault),
        None => Assignment { locals: &scope.locals }.block(body, BTreeSet::new()).map(|_| ()),
    }
}

/// The definite-assignment check. A set holds the names that are set on every path to a point.
struct Assignment<'a> {
    locals: &'a [LocalDraft],
}

type Set<'a> = BTreeSet<&'a str>;

impl<'a> Assignment<'a> {
    /// Returns the names that are set after the block, or none where control never gets there.
    fn block(&self, block: &'a [Stmt], mut set: Set<'a>) -> Checked<Option<Set<'a>>> {
        for statement in reachable(block) {
            for expr in statement.expressions() {
                self.reads(expr, &set)?;
            }
            match &statement.node {
                StmtNode::Assign { name, .. } => {
                    set.insert(name);
                }
                StmtNode::If { then, otherwise, .. } => {
                    let (a, b) = (self.block(then, set.clone())?, self.block(otherwise, set)?);
                    set = match (a, b) {
                        (Some(a), Some(b)) => a.intersection(&b).copied().collect(),
                        (Some(one), None) | (None, Some(one)) => one,
                        (None, None) => return Ok(None),
                    };
                }
                StmtNode::ForEach { variable, body, .. } | StmtNode::ForRange { variable, body, .. } => {
                    let mut inside = set.clone();
                    inside.insert(variable);
                    self.block(body, inside)?;
                }
                StmtNode::ForRows { body, .. } => {
                    self.block(body, set.clone())?;
                }
                StmtNode::Return { .. } | StmtNode::Abort { .. } | StmtNode::Break | StmtNode::Continue => {
                    return Ok(None);
                }
                _ => {}
            }
        }
        Ok(Some(set))
    }

    fn reads(&self, expr: &Expr, set: &Set<'_>) -> Checked<()> {
        if let ExprNode::Local(name) = &expr.node
            && !set.contains(name.as_str())
        {
            return Err(match self.locals.iter().any(|l| l.name == *name) {
                true => Fault::new(format!("local '{name}' may be read before it is set")),
                false => Fault::unknown("name", name, self.locals.iter().map(|l| l.name.as_str())),
            }
            .at(expr.span));
        }
        expr.children().into_iter().try_for_each(|child| self.reads(child, set))
    }
}

/// Finds the types of the scope's locals. Faults of expressions are left to the
/// typing of the body, which follows.
pub(super) fn infer(body: &[Stmt], scope: &mut Scope<'_>) -> Checked<()> {
    for _ in 0..=ROUNDS_PER_LOCAL * (scope.locals.len() + 1) {
        let mut next: Vec<Option<ColumnType>> = vec![None; scope.locals.len()];
        round(body, scope, &mut next);
        if scope.locals.iter().zip(&next).all(|(local, ty)| local.ty == *ty) {
            return Ok(());
        }
        for (local, ty) in scope.locals.iter_mut().zip(next) {
            local.ty = ty;
        }
    }
    Err(Fault::new("the types of the locals do not settle")
        .hint("round what a loop assigns to a decimal, as in x = round(x * y, 2)"))
}

fn round(block: &[Stmt], scope: &mut Scope<'_>, next: &mut [Option<ColumnType>]) {
    for statement in reachable(block) {
        match &statement.node {
            StmtNode::Assign { name, value } => {
                if let Ok(value) = scope.expression(value) {
                    assign(scope, next, name, value.ty);
                }
            }
            StmtNode::ForRange { variable, body, .. } => {
                assign(scope, next, variable, Type::Int.into());
                round(body, scope, next);
            }
            StmtNode::ForEach { variable, list, body } => {
                let list = scope.event.index_of(list);
                let list = list.filter(|&i| matches!(scope.event.fields[i].ty, FieldType::List(_)));
                let Some(field) = list else { continue };
                scope.loops.push(ActiveLoop { variable: variable.clone(), field, id: 0 });
                round(body, scope, next);
                scope.loops.pop();
            }
            StmtNode::ForRows { role, body, .. } => {
                let Some(role) = scope.roles.iter().position(|r| r.name == *role) else { continue };
                scope.scanned.push(role);
                round(body, scope, next);
                scope.scanned.pop();
            }
            _ => statement.blocks().into_iter().for_each(|inner| round(inner, scope, next)),
        }
    }
}

fn assign(scope: &Scope<'_>, next: &mut [Option<ColumnType>], name: &str, ty: ColumnType) {
    let Some(local) = scope.locals.iter().position(|l| l.name == name) else { return };
    // Types that do not join keep the first; typing the body refuses the other assignment.
    next[local] = Some(next[local].map_or(ty, |before| join(before, ty).unwrap_or(before)));
}
