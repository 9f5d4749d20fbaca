//! The steps of a transaction, for users.

use tidemill_model::Value;
use tidemill_plan::typed::Expr;
use tidemill_plan::{ReasonId, RoleId, StreamId, TransactionId};

/// The run of a transaction on an event.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionTrace {
    /// The transaction.
    pub transaction: TransactionId,
    /// The event that it ran on.
    pub event: Vec<Value>,
    /// Its steps, in order; on an abort up to that.
    pub steps: Vec<Step>,
    /// The reason why it aborted, if it did.
    pub aborted: Option<ReasonId>,
    /// The root that it is nested in, if it had committed and another of that nest aborted.
    pub undone_with: Option<TransactionId>,
}

/// Something that a transaction did.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read a cell; no key where a column of it is null, no value where that was a reason to abort.
    Read {
        /// The role of the row.
        role: RoleId,
        /// Its key.
        key: Option<Vec<Value>>,
        /// A flag: whether there is such a row.
        exists: bool,
        /// The column.
        column: usize,
        /// The value that was read.
        value: Option<Value>,
    },
    /// Asked whether a row exists.
    Looked {
        /// The role of the row.
        role: RoleId,
        /// Its key.
        key: Option<Vec<Value>>,
        /// The answer.
        exists: bool,
    },
    /// Required something.
    Required {
        /// The condition.
        condition: Expr,
        /// The reason for which it would abort.
        reason: ReasonId,
        /// The result of the condition; none if it could not be evaluated.
        held: Option<bool>,
    },
    /// Set a cell.
    Wrote {
        /// The role of the row.
        role: RoleId,
        /// Its key.
        key: Vec<Value>,
        /// The column.
        column: usize,
        /// The value that the cell was set to.
        value: Value,
    },
    /// Made a row.
    Inserted {
        /// The role of the row.
        role: RoleId,
        /// Its values in column order.
        row: Vec<Value>,
    },
    /// Removed a row.
    Deleted {
        /// The role of the row.
        role: RoleId,
        /// Its key.
        key: Vec<Value>,
    },
    /// Emitted an event.
    Emitted {
        /// The stream of the event.
        stream: StreamId,
        /// Its values.
        event: Vec<Value>,
    },
}
