//! What can end a transaction with an abort.

use crate::program::{Expr, Node, Stmt};
use crate::{Aggregate, Cast, Edge, FloatOp, RoleId};
use tidemill_model::Type;

impl Stmt {
    /// Whether it, or a statement within, can end the transaction with an abort, where the rows of these roles
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

    /// Whether evaluating its own expressions can fail.
    pub fn evaluation_may_fail(&self) -> bool {
        self.expressions().into_iter().any(Expr::may_fail)
    }

    /// Whether it, or a statement within, deletes a row.
    pub fn deletes(&self) -> bool {
        let mut deletes = false;
        self.each(&mut |stmt| deletes |= matches!(stmt, Stmt::Delete { .. }));
        deletes
    }
}

impl Expr {
    /// Whether evaluating it can fail.
    pub fn may_fail(&self) -> bool {
        self.may_fail_where(&|_| false)
    }

    /// Whether evaluating it can fail where the rows of these roles exist.
    pub fn may_fail_where(&self, exists: &dyn Fn(RoleId) -> bool) -> bool {
        let here = match &self.node {
            // The row may be missing.
            Node::Cell { role, element, .. } => !(element.is_none() && exists(*role)),
            Node::Unwrap { .. } | Node::Word { .. } | Node::WordNeg { .. } | Node::WordAbs { .. } => true,
            Node::Counted { .. } => true,
            Node::Period { edge, .. } => *edge == Edge::End,
            Node::Float { op, .. } => {
                !matches!(op, FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Min | FloatOp::Max)
            }
            Node::Cast { cast, .. } => matches!(
                cast,
                Cast::FitDigits { .. }
                    | Cast::FloatRound
                    | Cast::FloatToInt
                    | Cast::ScaleUp { .. }
                    | Cast::StrToFloat
                    | Cast::StrToInt
            ),
            Node::WindowRead { window, aggregate, .. } => *aggregate == Aggregate::Sum && window.value != Type::Float,
            _ => false,
        };
        here || self.children().into_iter().any(|child| child.may_fail_where(exists))
    }
}
