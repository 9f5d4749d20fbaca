//! The children of the program's expressions and statements.
//!
//! Each walk exists for reading and for changing. One text makes both, so that they cannot come apart.

use crate::program::{Expr, Node, OutputField, Stmt, Transaction};

/// The walks over shared references, or with `mut` over mutable ones.
macro_rules! walks {
    ($children:ident, $expressions:ident, $blocks:ident, $value:ident, $iter:ident $(, $mutable:tt)?) => {
        impl Expr {
            /// The operands, in the order of evaluation.
            pub fn $children(&$($mutable)? self) -> Vec<&$($mutable)? Expr> {
                match &$($mutable)? self.node {
                    Node::Const(_)
                    | Node::Field(_)
                    | Node::Element { .. }
                    | Node::Local(_)
                    | Node::Cell { .. }
                    | Node::Exists { .. }
                    | Node::Rows { .. }
                    | Node::Place
                    | Node::Length(_) => vec![],
                    Node::Unwrap { value, .. }
                    | Node::WordNeg { value, .. }
                    | Node::WordAbs { value, .. }
                    | Node::Cast { value, .. }
                    | Node::Text { value, .. }
                    | Node::Counted { value, .. }
                    | Node::Period { time: value, .. }
                    | Node::DatePart { time: value, .. }
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
                    Node::SynopsisRead { cell, time, argument, .. } => vec![cell, time, argument],
                    Node::WindowNext { cell, time, after, .. } => vec![cell, time, after],
                    Node::WindowField { cell, at, .. } => vec![cell, at],
                    Node::Pack(values) | Node::Math { arguments: values, .. } | Node::TextCall { arguments: values, .. } => values.$iter().collect(),
                }
            }
        }

        impl Stmt {
            /// The expressions of the statement itself, without those of its blocks.
            pub fn $expressions(&$($mutable)? self) -> Vec<&$($mutable)? Expr> {
                match self {
                    Stmt::Assign { value, .. } | Stmt::Set { value, .. } => vec![value],
                    Stmt::If { condition, .. } | Stmt::Require { condition, .. } => vec![condition],
                    Stmt::ForRange { start, stop, .. } => vec![start, stop],
                    Stmt::Insert { values, .. } => values.$iter().map(|(_, value)| value).collect(),
                    Stmt::Emit { fields, .. } | Stmt::Return { fields: Some(fields) } => {
                        fields.$iter().filter_map($value).collect()
                    }
                    Stmt::ForEach { .. }
                    | Stmt::Break
                    | Stmt::Continue
                    | Stmt::Abort { .. }
                    | Stmt::Count { .. }
                    | Stmt::Delete { .. }
                    | Stmt::Return { fields: None } => vec![],
                }
            }

            /// The blocks of the statement.
            pub fn $blocks(&$($mutable)? self) -> Vec<&$($mutable)? Vec<Stmt>> {
                match self {
                    Stmt::If { then, otherwise, .. } => vec![then, otherwise],
                    Stmt::ForEach { body, .. } | Stmt::ForRange { body, .. } => vec![body],
                    _ => vec![],
                }
            }
        }

        /// The expression of a field; none of a list that is passed on.
        fn $value(field: &$($mutable)? OutputField) -> Option<&$($mutable)? Expr> {
            match field {
                OutputField::Value(value) => Some(value),
                OutputField::List(_) => None,
            }
        }
    };
}

walks!(children, expressions, blocks, value, iter);
walks!(children_mut, expressions_mut, blocks_mut, value_mut, iter_mut, mut);

impl Expr {
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

    /// Returns whether the expression reads rows of roles.
    pub fn reads_rows(&self) -> bool {
        let mut reads = false;
        self.each(&mut |inner| {
            reads |= matches!(inner.node, Node::Cell { .. } | Node::Exists { .. } | Node::Rows { .. });
        });
        reads
    }
}

impl Transaction {
    /// Returns whether its body asks for the place of its event.
    pub fn asks_for_place(&self) -> bool {
        let mut asks = false;
        let mut look = |expr: &Expr| asks |= expr.node == Node::Place;
        for statement in &self.body {
            statement.each(&mut |inner| inner.expressions().into_iter().for_each(|expr| expr.each(&mut look)));
        }
        asks
    }
}

impl Stmt {
    /// Calls `visit` for this and every statement within, in order.
    pub fn each<'a>(&'a self, visit: &mut impl FnMut(&'a Stmt)) {
        visit(self);
        for statement in self.blocks().into_iter().flatten() {
            statement.each(visit);
        }
    }
}
