//! What a transaction did, step by step, for people.

use tidemill_model::Value;
use tidemill_plan::typed::Expr;
use tidemill_plan::{ReasonId, RoleId, StreamId, TransactionId};

/// One transaction on one event.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionTrace {
    /// Which.
    pub transaction: TransactionId,
    /// The event that it ran on.
    pub event: Vec<Value>,
    /// What it did, in order; on an abort up to that.
    pub steps: Vec<Step>,
    /// Why it aborted, if it did.
    pub aborted: Option<ReasonId>,
    /// The root that it is nested in, if it had committed and another of that nest aborted.
    pub undone_with: Option<TransactionId>,
}

/// Something that a transaction did.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read a cell; no key where a column of it is null, no value where that was a reason to abort.
    Read {
        /// Of the row in this role.
        role: RoleId,
        /// Its key.
        key: Option<Vec<Value>>,
        /// Whether there is such a row.
        exists: bool,
        /// The column.
        column: usize,
        /// What was read.
        value: Option<Value>,
    },
    /// Asked whether a row exists.
    Looked {
        /// That in this role.
        role: RoleId,
        /// Its key.
        key: Option<Vec<Value>>,
        /// The answer.
        exists: bool,
    },
    /// Required something.
    Required {
        /// What.
        condition: Expr,
        /// Why it would abort.
        reason: ReasonId,
        /// Whether it held; none where it could not be evaluated.
        held: Option<bool>,
    },
    /// Set a cell.
    Wrote {
        /// Of the row in this role.
        role: RoleId,
        /// Its key.
        key: Vec<Value>,
        /// The column.
        column: usize,
        /// To this.
        value: Value,
    },
    /// Made a row.
    Inserted {
        /// In this role.
        role: RoleId,
        /// Its values in column order.
        row: Vec<Value>,
    },
    /// Removed a row.
    Deleted {
        /// In this role.
        role: RoleId,
        /// Its key.
        key: Vec<Value>,
    },
    /// Emitted an event.
    Emitted {
        /// On this stream.
        stream: StreamId,
        /// Its values.
        event: Vec<Value>,
    },
}
