//! The children of the plan's expressions and statements, and which statements can be reached.

use crate::{Expr, ExprNode, Stmt, StmtNode};

impl Expr {
    /// Returns the operands, in the order of evaluation.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.node {
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
            ExprNode::All(parts) | ExprNode::Any(parts) | ExprNode::Pack(parts) => parts.iter().collect(),
            ExprNode::NextRecord { after: value, .. } | ExprNode::RecordField { at: value, .. } => vec![value],
            ExprNode::IfElse { condition, then, otherwise } => vec![condition, then, otherwise],
            ExprNode::Aggregate { value, by, argument, .. } => {
                by.iter().chain(value).chain(argument).map(|operand| &**operand).collect()
            }
            ExprNode::Synopsis { argument, .. } => vec![argument],
            ExprNode::In { value, options } => std::iter::once(&**value).chain(options).collect(),
            ExprNode::Call { arguments, .. } => arguments.iter().collect(),
        }
    }
}

impl Stmt {
    /// Returns the expressions of the statement itself, without those of its blocks.
    pub fn expressions(&self) -> Vec<&Expr> {
        match &self.node {
            StmtNode::Assign { value, .. } | StmtNode::Set { value, .. } | StmtNode::Add { value, .. } => vec![value],
            StmtNode::If { condition, .. } | StmtNode::Require { condition, .. } => vec![condition],
            StmtNode::ForRange { start, stop, .. } => vec![start, stop],
            StmtNode::Wake { at, .. } => at.iter().collect(),
            StmtNode::Insert { values, .. } => values.iter().map(|(_, v)| v).collect(),
            StmtNode::Emit { record, .. } | StmtNode::Return { record: Some(record) } => {
                record.fields.iter().map(|(_, v)| v).collect()
            }
            StmtNode::ForEach { .. }
            | StmtNode::ForRows { .. }
            | StmtNode::Break
            | StmtNode::Continue
            | StmtNode::Abort { .. }
            | StmtNode::Delete { .. }
            | StmtNode::Return { record: None } => vec![],
        }
    }

    /// Returns the blocks of the statement.
    pub fn blocks(&self) -> Vec<&[Stmt]> {
        match &self.node {
            StmtNode::If { then, otherwise, .. } => vec![then, otherwise],
            StmtNode::ForEach { body, .. } | StmtNode::ForRange { body, .. } | StmtNode::ForRows { body, .. } => {
                vec![body]
            }
            _ => vec![],
        }
    }

    /// Returns whether control never reaches the next statement.
    fn ends_block(&self) -> bool {
        match &self.node {
            StmtNode::Return { .. } | StmtNode::Abort { .. } | StmtNode::Break | StmtNode::Continue => true,
            StmtNode::If { then, otherwise, .. } => {
                let ends = |block: &[Stmt]| block.iter().any(Stmt::ends_block);
                ends(then) && ends(otherwise)
            }
            _ => false,
        }
    }
}

/// Returns the statements of a block that can be reached: up to the first that control does not pass.
pub(crate) fn reachable(block: &[Stmt]) -> &[Stmt] {
    let end = block.iter().position(Stmt::ends_block).map_or(block.len(), |i| i + 1);
    &block[..end]
}

/// Calls `visit` for every reachable statement of a block and of the blocks within, in order.
pub(crate) fn each_statement<'a>(block: &'a [Stmt], visit: &mut impl FnMut(&'a Stmt)) {
    for statement in reachable(block) {
        visit(statement);
        for inner in statement.blocks() {
            each_statement(inner, visit);
        }
    }
}
