//! The statements and expressions that can end a transaction with an abort.

use crate::program::{Expr, Node, Stmt};
use crate::{Aggregate, Cast, Edge, FloatOp, MathOp, RoleId, TextCall};
use tidemill_model::{Type, Value};

impl Stmt {
    /// Returns whether it, or a statement within, can end the transaction with an abort, if the rows of these roles
    /// exist (of roles without a list, and as long as nothing deletes one).
    pub fn may_abort(&self, exists: &dyn Fn(RoleId) -> bool) -> bool {
        match self {
            // The row may be missing, or the key null.
            Stmt::Set { role, element, value, .. } => {
                !(element.is_none() && exists(*role)) || value.may_fail_where(exists)
            }
            Stmt::Insert { .. } | Stmt::Delete { .. } => true,
            Stmt::Require { .. } | Stmt::Abort { .. } | Stmt::Count { .. } => true,
            _ => {
                self.expressions().into_iter().any(|expr| expr.may_fail_where(exists))
                    || self.blocks().into_iter().flatten().any(|stmt| stmt.may_abort(exists))
            }
        }
    }

    /// Returns whether evaluating its own expressions can fail.
    pub fn evaluation_may_fail(&self) -> bool {
        self.expressions().into_iter().any(Expr::may_fail)
    }

    /// Returns whether it, or a statement within, deletes a row.
    pub fn deletes(&self) -> bool {
        let mut deletes = false;
        self.each(&mut |stmt| deletes |= matches!(stmt, Stmt::Delete { .. }));
        deletes
    }
}

impl Expr {
    /// Returns whether evaluating it can fail.
    pub fn may_fail(&self) -> bool {
        self.may_fail_where(&|_| false)
    }

    /// Returns whether evaluating it can fail if the rows of these roles exist.
    pub fn may_fail_where(&self, exists: &dyn Fn(RoleId) -> bool) -> bool {
        self.may_fail_with(exists, &mut Vec::new())
    }

    /// Returns whether evaluating it can fail if these rows exist and these expressions are not null.
    fn may_fail_with<'e>(&'e self, exists: &dyn Fn(RoleId) -> bool, present: &mut Vec<&'e Expr>) -> bool {
        let here = match &self.node {
            // The row may be missing.
            Node::Cell { role, element, .. } => !(element.is_none() && exists(*role)),
            Node::Unwrap { value, .. } => !present.contains(&&**value),
            Node::IfElse { condition, then, otherwise } if let Node::IsNull(tested) = &condition.node => {
                if [condition, then].into_iter().any(|part| part.may_fail_with(exists, present)) {
                    return true;
                }
                present.push(tested);
                let fails = otherwise.may_fail_with(exists, present);
                present.pop();
                return fails;
            }
            Node::Word { .. } | Node::WordNeg { .. } | Node::WordAbs { .. } => true,
            Node::Counted { .. } => true,
            Node::Period { edge, .. } => *edge == Edge::End,
            Node::Float { op, .. } => {
                !matches!(op, FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Min | FloatOp::Max)
            }
            Node::Math { op, .. } => !matches!(op, MathOp::Atan2 | MathOp::Hypot),
            Node::TextCall { op, arguments, .. } => op.may_fail(arguments),
            Node::Cast { cast, .. } => matches!(
                cast,
                Cast::FitDigits { .. }
                    | Cast::FloatCeil
                    | Cast::FloatFloor
                    | Cast::FloatRound
                    | Cast::FloatToInt
                    | Cast::ScaleUp { .. }
                    | Cast::StrToFloat
                    | Cast::StrToInt
            ),
            Node::WindowRead { window, aggregate, .. } => *aggregate == Aggregate::Sum && window.value != Type::Float,
            _ => false,
        };
        here || self.children().into_iter().any(|child| child.may_fail_with(exists, present))
    }
}

/// Most characters that a text may be filled up to and counts as short.
const SHORT_MAX: i64 = 1000;

impl TextCall {
    /// Returns whether the call can fail with these arguments, apart from failures of the arguments themselves.
    pub(crate) fn may_fail(self, arguments: &[Expr]) -> bool {
        match self {
            TextCall::Find | TextCall::Slice | TextCall::Parts | TextCall::SpacedParts => false,
            TextCall::At | TextCall::Part | TextCall::SpacedPart | TextCall::Separator => true,
            TextCall::Replace | TextCall::Zfill => self.may_grow(arguments),
        }
    }

    /// Returns whether the result can be much longer than the text that it is made of.
    pub(crate) fn may_grow(self, arguments: &[Expr]) -> bool {
        match (self, arguments) {
            (TextCall::Replace, [_, old, new, _]) => match (&old.node, &new.node) {
                (Node::Const(Value::Str(old)), Node::Const(Value::Str(new))) => old.is_empty() || old.len() < new.len(),
                _ => true,
            },
            (TextCall::Zfill, [_, width]) => {
                !matches!(width.node, Node::Const(Value::Int(width)) if width <= SHORT_MAX)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_model::ColumnType;

    fn field(number: usize) -> Expr {
        Expr { ty: ColumnType::optional(Type::Int), node: Node::Field(number) }
    }

    fn unwrapped(value: Expr) -> Expr {
        Expr { ty: Type::Int.into(), node: Node::Unwrap { value: Box::new(value), reason: 0 } }
    }

    fn zero() -> Expr {
        Expr { ty: Type::Int.into(), node: Node::Const(Value::Int(0)) }
    }

    /// Returns `then if value is None else otherwise`.
    fn if_null(value: Expr, then: Expr, otherwise: Expr) -> Expr {
        let condition = Box::new(Expr { ty: Type::Bool.into(), node: Node::IsNull(Box::new(value)) });
        let (then, otherwise) = (Box::new(then), Box::new(otherwise));
        Expr { ty: Type::Int.into(), node: Node::IfElse { condition, then, otherwise } }
    }

    #[test]
    fn a_value_that_was_looked_at_is_there() {
        assert!(unwrapped(field(0)).may_fail());
        assert!(!if_null(field(0), zero(), unwrapped(field(0))).may_fail(), "it is not null there");
        assert!(if_null(field(0), zero(), unwrapped(field(1))).may_fail(), "another one may be");
        assert!(if_null(field(0), unwrapped(field(0)), zero()).may_fail(), "it is null there");
        let both = if_null(field(1), zero(), if_null(field(0), unwrapped(field(1)), unwrapped(field(0))));
        assert!(!both.may_fail(), "both were looked at");
        assert!(if_null(field(0), if_null(field(1), zero(), unwrapped(field(0))), zero()).may_fail());
    }
}
