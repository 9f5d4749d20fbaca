//! What can end a transaction with an abort.

use crate::program::{Expr, Node, OutputField, Stmt};
use crate::{Cast, FloatOp};

impl Stmt {
    /// Whether it, or a statement within, can end the transaction with an abort.
    pub fn may_abort(&self) -> bool {
        match self {
            // The row may be missing, or the key null.
            Stmt::Set { .. } | Stmt::Insert { .. } | Stmt::Delete { .. } => true,
            Stmt::Require { .. } | Stmt::Abort { .. } => true,
            _ => self.evaluation_may_fail() || self.blocks().into_iter().flatten().any(Stmt::may_abort),
        }
    }

    /// Whether evaluating its own expressions can fail.
    pub fn evaluation_may_fail(&self) -> bool {
        self.expressions().into_iter().any(Expr::may_fail)
    }
}

impl OutputField {
    /// Whether evaluating it can fail.
    pub fn may_fail(&self) -> bool {
        matches!(self, OutputField::Value(expr) if expr.may_fail())
    }
}

impl Expr {
    /// Whether evaluating it can fail.
    pub fn may_fail(&self) -> bool {
        let here = match &self.node {
            // The row may be missing.
            Node::Cell { .. } => true,
            Node::Unwrap { .. } | Node::Word { .. } | Node::WordNeg { .. } | Node::WordAbs { .. } => true,
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
            _ => false,
        };
        here || self.children().into_iter().any(Expr::may_fail)
    }
}
