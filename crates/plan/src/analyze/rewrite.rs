//! Expressions and bodies with parts of them replaced.

use crate::{Expr, ExprNode, Record, Stmt, StmtNode};

/// A function that replaces an expression, if it returns one.
pub(super) type Replace<'a> = &'a mut dyn FnMut(&Expr) -> Option<ExprNode>;

/// Returns the statements, with each outermost expression that is replaced.
pub(super) fn block(statements: &[Stmt], replace: Replace<'_>) -> Vec<Stmt> {
    statements.iter().map(|s| Stmt { node: statement(&s.node, replace), span: s.span }).collect()
}

fn statement(node: &StmtNode, replace: Replace<'_>) -> StmtNode {
    use StmtNode::*;
    match node.clone() {
        Assign { name, value } => Assign { name, value: expression(&value, replace) },
        Set { role, column, value } => Set { role, column, value: expression(&value, replace) },
        Add { role, column, value } => Add { role, column, value: expression(&value, replace) },
        If { condition, then, otherwise } => If {
            condition: expression(&condition, replace),
            then: block(&then, replace),
            otherwise: block(&otherwise, replace),
        },
        ForEach { variable, list, body } => ForEach { variable, list, body: block(&body, replace) },
        ForRows { variable, role, body } => ForRows { variable, role, body: block(&body, replace) },
        ForRange { variable, start, stop, step, body } => {
            let (start, stop) = (expression(&start, replace), expression(&stop, replace));
            ForRange { variable, start, stop, step, body: block(&body, replace) }
        }
        Require { condition, reason } => Require { condition: expression(&condition, replace), reason },
        Insert { role, values } => Insert { role, values: named(values, replace) },
        Wake { role, at } => Wake { role, at: at.map(|at| expression(&at, replace)) },
        Emit { name, record: given } => Emit { name, record: record(given, replace) },
        Return { record: given } => Return { record: given.map(|given| record(given, replace)) },
        other @ (Break | Continue | Abort { .. } | Delete { .. }) => other,
    }
}

fn record(given: Record, replace: Replace<'_>) -> Record {
    Record { fields: named(given.fields, replace), ..given }
}

fn named(values: Vec<(String, Expr)>, replace: Replace<'_>) -> Vec<(String, Expr)> {
    values.into_iter().map(|(name, value)| (name, expression(&value, replace))).collect()
}

/// Returns the expression, with each outermost part that is replaced.
pub(super) fn expression(expr: &Expr, replace: Replace<'_>) -> Expr {
    if let Some(node) = replace(expr) {
        return Expr { node, span: expr.span };
    }
    let mut expr = expr.clone();
    for operand in operands(&mut expr.node) {
        *operand = expression(operand, replace);
    }
    expr
}

/// Returns the expression without its places in the source text, to be compared.
pub(super) fn placeless(expr: &Expr) -> Expr {
    let mut expr = Expr { span: None, ..expr.clone() };
    for operand in operands(&mut expr.node) {
        *operand = placeless(operand);
    }
    expr
}

fn operands(node: &mut ExprNode) -> Vec<&mut Expr> {
    match node {
        ExprNode::Literal(_)
        | ExprNode::Local(_)
        | ExprNode::Event(_)
        | ExprNode::Element { .. }
        | ExprNode::Cell { .. }
        | ExprNode::Window { .. }
        | ExprNode::Exists(_)
        | ExprNode::Rows(_)
        | ExprNode::Place
        | ExprNode::Length(_) => vec![],
        ExprNode::Unary { value, .. }
        | ExprNode::Fitted { value, .. }
        | ExprNode::Period { time: value, .. }
        | ExprNode::DatePart { time: value, .. } => {
            vec![value]
        }
        ExprNode::IsNull(value) | ExprNode::OrZero(value) => vec![value],
        ExprNode::Binary { left, right, .. } | ExprNode::Compare { left, right, .. } => vec![left, right],
        ExprNode::All(parts) | ExprNode::Any(parts) | ExprNode::Pack(parts) => parts.iter_mut().collect(),
        ExprNode::NextRecord { after: value, .. } | ExprNode::RecordField { at: value, .. } => vec![value],
        ExprNode::IfElse { condition, then, otherwise } => vec![condition, then, otherwise],
        ExprNode::Aggregate { value, by, argument, .. } => {
            by.iter_mut().chain(value).chain(argument).map(|operand| &mut **operand).collect()
        }
        ExprNode::Synopsis { argument, .. } => vec![argument],
        ExprNode::In { value, options } => std::iter::once(&mut **value).chain(options).collect(),
        ExprNode::Call { arguments, .. } => arguments.iter_mut().collect(),
    }
}
