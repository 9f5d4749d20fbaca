//! SQL over the tables, by an engine that the server is given.

use crate::asks::Snapshot;
use crate::slots::{Slot, Slots};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Answers queries over the tables of a session after one released epoch, which contains each call that was answered
/// before; or as a snapshot has them.
pub trait Queries: Send + Sync {
    /// The rows of one query. Called on a thread that may wait. Once nobody waits for them any more, it is to end soon.
    fn query(
        &self,
        query: &Query,
        at: Option<&Snapshot>,
        limits: QueryLimits,
        waits: &Waits,
    ) -> Result<Queried, QueryError>;
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its text.
    pub sql: String,
    /// The values of its parameters: a JSON array or object. Those that JSON has no form for are objects with one member:
    /// `numeric` (its text), `float` (likewise), `micros` (since 1970) or `bytes` (numbers).
    pub parameters: Option<String>,
    /// What is wanted of it.
    pub form: QueryForm,
    /// The names of the tables that it may read. Others are not there.
    pub tables: Vec<String>,
    /// Statements that make other tables and functions that it needs. They are the same for many queries.
    pub setup: Option<Arc<str>>,
}

/// What is wanted of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryForm {
    /// The rows, with the types that the engine gives them.
    Own,
    /// The rows, with columns of Tidemill's types.
    Plain,
    /// The same, where lists of numbers and of text stay lists.
    Lists,
    /// No rows, but the columns that the third form has.
    Columns,
}

/// What a query may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// How long it may run.
    pub time_max: Duration,
    /// How many rows it may give.
    pub rows_max: usize,
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

/// Why a query was not answered, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// It is wrong, or would take too much.
    Refused(String),
    /// There is no engine for it here.
    NoEngine(String),
    /// The run is over, or cannot be read.
    Over(String),
}

/// Whether somebody waits for the answer of a query.
#[derive(Clone, Debug)]
pub struct Waits(Arc<AtomicBool>);

impl Waits {
    /// Whether somebody does.
    pub fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Waits until it is dropped.
struct Waiter(Waits);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// The engine, and the places of those who ask it.
pub struct Asking {
    engine: Option<Arc<dyn Queries>>,
    slots: Slots,
    limits: QueryLimits,
}

/// What cannot even be asked.
pub enum NotAsked {
    /// Too many queries are under way.
    Busy,
    /// It was asked, without success.
    Failed(QueryError),
}

impl Asking {
    /// Asks an engine, if there is one, a number of queries at once.
    pub fn new(engine: Option<Arc<dyn Queries>>, at_once: usize, limits: QueryLimits) -> Asking {
        Asking { engine, slots: Slots::new(at_once), limits }
    }

    /// Whether there is an engine.
    pub fn has_engine(&self) -> bool {
        self.engine.is_some()
    }

    /// The number of queries that are under way.
    pub fn under_way(&self) -> usize {
        self.slots.taken()
    }

    /// Asks it on a thread of its own.
    pub async fn ask(&self, query: Query, at: Option<Arc<Snapshot>>) -> Result<Queried, NotAsked> {
        let Some(engine) = self.engine.clone() else {
            return Err(NotAsked::Failed(QueryError::NoEngine("this server has no SQL".into())));
        };
        let slot: Slot = self.slots.take().ok_or(NotAsked::Busy)?;
        let limits = self.limits;
        let waiter = Waiter(Waits(Arc::new(AtomicBool::new(true))));
        let waits = waiter.0.clone();
        let asked = spawn_blocking(move || {
            let answer = engine.query(&query, at.as_deref(), limits, &waits);
            drop(slot);
            answer
        });
        match asked.await {
            Ok(answer) => answer.map_err(NotAsked::Failed),
            Err(_) => Err(NotAsked::Failed(QueryError::Over("the query's thread has failed".into()))),
        }
    }
}
