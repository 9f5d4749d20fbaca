//! The children of the program's expressions and statements.

use crate::program::{Expr, Node, OutputField, Stmt};

impl Expr {
    /// The operands, in the order of evaluation.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.node {
            Node::Const(_)
            | Node::Field(_)
            | Node::Element { .. }
            | Node::Local(_)
            | Node::Cell { .. }
            | Node::Exists { .. }
            | Node::Length(_) => vec![],
            Node::Unwrap { value, .. }
            | Node::WordNeg { value, .. }
            | Node::WordAbs { value, .. }
            | Node::Cast { value, .. }
            | Node::Text { value, .. } => vec![value],
            Node::IsNull(value)
            | Node::FloatNeg(value)
            | Node::FloatAbs(value)
            | Node::Not(value)
            | Node::Len(value) => {
                vec![value]
            }
            Node::Word { left, right, .. }
            | Node::Float { left, right, .. }
            | Node::Compare { left, right, .. }
            | Node::Equal { left, right, .. }
            | Node::TextTest { left, right, .. } => vec![left, right],
            Node::And(left, right) | Node::Or(left, right) | Node::Concat(left, right) => vec![left, right],
            Node::IfElse { condition, then, otherwise } => vec![condition, then, otherwise],
            Node::WindowAdd { cell, time, value, .. } => vec![cell, time, value],
            Node::WindowRead { cell, time, .. } => vec![cell, time],
        }
    }

    /// The operands, to be changed.
    fn children_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.node {
            Node::Const(_)
            | Node::Field(_)
            | Node::Element { .. }
            | Node::Local(_)
            | Node::Cell { .. }
            | Node::Exists { .. }
            | Node::Length(_) => vec![],
            Node::Unwrap { value, .. }
            | Node::WordNeg { value, .. }
            | Node::WordAbs { value, .. }
            | Node::Cast { value, .. }
            | Node::Text { value, .. }
            | Node::IsNull(value)
            | Node::FloatNeg(value)
            | Node::FloatAbs(value)
            | Node::Not(value)
            | Node::Len(value) => vec![value],
            Node::Word { left, right, .. }
            | Node::Float { left, right, .. }
            | Node::Compare { left, right, .. }
            | Node::Equal { left, right, .. }
            | Node::TextTest { left, right, .. }
            | Node::And(left, right)
            | Node::Or(left, right)
            | Node::Concat(left, right) => vec![left, right],
            Node::IfElse { condition, then, otherwise } => vec![condition, then, otherwise],
            Node::WindowAdd { cell, time, value, .. } => vec![cell, time, value],
            Node::WindowRead { cell, time, .. } => vec![cell, time],
        }
    }

    /// Calls `change` for this and every expression within.
    pub(crate) fn each_mut(&mut self, change: &mut impl FnMut(&mut Expr)) {
        change(self);
        self.children_mut().into_iter().for_each(|child| child.each_mut(change));
    }

    /// Calls `visit` for this and every expression within, operands first.
    pub fn each<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        for child in self.children() {
            child.each(visit);
        }
        visit(self);
    }
}

impl Stmt {
    /// The expressions of the statement itself, without those of its blocks.
    pub fn expressions(&self) -> Vec<&Expr> {
        match self {
            Stmt::Assign { value, .. } | Stmt::Set { value, .. } => vec![value],
            Stmt::If { condition, .. } | Stmt::Require { condition, .. } => vec![condition],
            Stmt::ForRange { start, stop, .. } => vec![start, stop],
            Stmt::Insert { values, .. } => values.iter().map(|(_, value)| value).collect(),
            Stmt::Emit { fields, .. } | Stmt::Return { fields: Some(fields) } => values(fields),
            Stmt::ForEach { .. }
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Abort { .. }
            | Stmt::Delete { .. }
            | Stmt::Return { fields: None } => vec![],
        }
    }

    /// The expressions of the statement itself, to be changed.
    pub(crate) fn expressions_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Stmt::Assign { value, .. } | Stmt::Set { value, .. } => vec![value],
            Stmt::If { condition, .. } | Stmt::Require { condition, .. } => vec![condition],
            Stmt::ForRange { start, stop, .. } => vec![start, stop],
            Stmt::Insert { values, .. } => values.iter_mut().map(|(_, value)| value).collect(),
            Stmt::Emit { fields, .. } | Stmt::Return { fields: Some(fields) } => {
                fn value(field: &mut OutputField) -> Option<&mut Expr> {
                    match field {
                        OutputField::Value(value) => Some(value),
                        OutputField::List(_) => None,
                    }
                }
                fields.iter_mut().filter_map(value).collect()
            }
            _ => vec![],
        }
    }

    /// The blocks of the statement, to be changed.
    pub(crate) fn blocks_mut(&mut self) -> Vec<&mut Vec<Stmt>> {
        match self {
            Stmt::If { then, otherwise, .. } => vec![then, otherwise],
            Stmt::ForEach { body, .. } | Stmt::ForRange { body, .. } => vec![body],
            _ => vec![],
        }
    }

    /// The blocks of the statement.
    pub fn blocks(&self) -> Vec<&[Stmt]> {
        match self {
            Stmt::If { then, otherwise, .. } => vec![then, otherwise],
            Stmt::ForEach { body, .. } | Stmt::ForRange { body, .. } => vec![body],
            _ => vec![],
        }
    }

    /// Calls `visit` for this and every statement within, in order.
    pub fn each<'a>(&'a self, visit: &mut impl FnMut(&'a Stmt)) {
        visit(self);
        for statement in self.blocks().into_iter().flatten() {
            statement.each(visit);
        }
    }
}

/// The expressions of a record, without the lists that it passes on.
fn values(fields: &[OutputField]) -> Vec<&Expr> {
    fields
        .iter()
        .filter_map(|field| match field {
            OutputField::Value(value) => Some(value),
            OutputField::List(_) => None,
        })
        .collect()
}
