//! A query and its answer.

use crate::asks::Snapshot;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Answers queries over the tables of a session after one released epoch, which contains each call that was answered
/// before; or as a snapshot has them.
pub trait Queries: Send + Sync {
    /// Returns the rows of one query. Called on a thread that may wait. Once nobody waits for them any more, it is to
    /// end soon.
    fn query(
        &self,
        query: &Query,
        at: Option<&Arc<Snapshot>>,
        limits: QueryLimits,
        waits: &Waits,
    ) -> Result<Queried, QueryError>;

    /// Ends the processes or threads that answer, once the queries that run are answered.
    fn stop(&self) {}

    /// Returns the number of processes that queries have ended.
    fn processes_ended(&self) -> u64 {
        0
    }
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its text.
    pub sql: String,
    /// The values of its parameters: a JSON array or object. Those that JSON has no form for are objects with one member:
    /// `numeric` (its text), `float` (likewise), `micros` (since 1970) or `bytes` (numbers).
    pub parameters: Option<String>,
    /// The form of the answer.
    pub form: QueryForm,
    /// The names of the tables that the query may read. Others are not there.
    pub tables: Vec<String>,
    /// Statements that make other tables and functions that it needs. They are the same for many queries.
    pub setup: Option<Arc<str>>,
}

/// The form of a query's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryForm {
    /// The rows, with the types that the engine gives them.
    Own,
    /// The rows, with columns of Tidemill's types.
    Plain,
    /// The rows as in `Plain`, but lists of numbers and of text stay lists.
    Lists,
    /// No rows, but the columns that the third form has.
    Columns,
}

/// The most that a query may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// The longest time that the query may run.
    pub time_max: Duration,
    /// The most rows that the query may return.
    pub rows_max: usize,
    /// The bytes of memory that it may take at most, beside the tables that it reads.
    pub memory_max: usize,
}

/// The rows of a query.
pub struct Queried {
    /// The epoch after which the tables were read.
    pub epoch: u64,
    /// The columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

/// The reason why a query was not answered, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// The query is wrong, or would take too much time or memory.
    Refused(String),
    /// The server has no engine for queries.
    NoEngine(String),
    /// The run is over, or cannot be read.
    Over(String),
}

/// A flag: whether somebody waits for the answer of a query.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<AtomicBool>);

impl Waits {
    /// Returns the flag of a query for which a client waits.
    pub fn new() -> Waits {
        Waits(Arc::new(AtomicBool::new(true)))
    }

    /// Says that nobody waits any more.
    pub fn give_up(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Returns whether somebody does.
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
