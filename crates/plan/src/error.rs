//! The errors of a plan, for users.

use crate::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An error in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanError {
    /// The transaction, stream, table or sink at fault, such as `transaction 'transfer'`.
    pub place: String,
    /// A lowercase fact with the names that matter.
    pub message: String,
    /// The hint: what to write instead; may be empty.
    pub hint: String,
    /// The place in the source text.
    pub span: Option<Span>,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        if let Some(span) = self.span {
            write!(f, " (line {}, column {})", span.line, span.column + 1)?;
        }
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}
