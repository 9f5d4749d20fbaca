//! SQL over the tables, by an engine that the server is given.

use crate::asks::Snapshot;
use crate::slots::{Slot, Slots};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

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
    /// How many bytes of memory it may have, beside the tables that it reads.
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
///
/// A query takes one of the places, then waits until it may run; both end when the engine is done with it.
pub struct Asking {
    engine: Option<Arc<dyn Queries>>,
    /// Those that run and those that wait.
    places: Slots,
    /// Those that run.
    running: Arc<Semaphore>,
    limits: QueryLimits,
}

/// What cannot even be asked.
pub enum NotAsked {
    /// Too many queries run and wait, or it has waited for as long as a query may run.
    Busy,
    /// It was asked, without success.
    Failed(QueryError),
}

impl Asking {
    /// Asks an engine, if there is one, `at_once` queries at once, while at most `waiting` others wait.
    pub fn new(engine: Option<Arc<dyn Queries>>, at_once: usize, waiting: usize, limits: QueryLimits) -> Asking {
        // Where none may run, none waits.
        let places = if at_once == 0 { 0 } else { at_once.saturating_add(waiting) };
        let running = Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)));
        Asking { engine, places: Slots::new(places), running, limits }
    }

    /// Whether there is an engine.
    pub fn has_engine(&self) -> bool {
        self.engine.is_some()
    }

    /// The number of queries that run or wait.
    pub fn under_way(&self) -> usize {
        self.places.taken()
    }

    /// Asks it on a thread of its own, once there is room.
    pub async fn ask(&self, query: Query, at: Option<Arc<Snapshot>>) -> Result<Queried, NotAsked> {
        let Some(engine) = self.engine.clone() else {
            return Err(NotAsked::Failed(QueryError::NoEngine("this server has no SQL".into())));
        };
        let place: Slot = self.places.take().ok_or(NotAsked::Busy)?;
        let limits = self.limits;
        let room = timeout(limits.time_max, self.running.clone().acquire_owned()).await;
        let room = room.map_err(|_| NotAsked::Busy)?.expect("it is never closed");
        let waiter = Waiter(Waits(Arc::new(AtomicBool::new(true))));
        let waits = waiter.0.clone();
        let asked = spawn_blocking(move || {
            let answer = engine.query(&query, at.as_deref(), limits, &waits);
            drop((room, place));
            answer
        });
        match asked.await {
            Ok(answer) => answer.map_err(NotAsked::Failed),
            Err(_) => Err(NotAsked::Failed(QueryError::Over("the query's thread has failed".into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::Schema;
    use crossbeam_channel::{Receiver, bounded};
    use std::sync::atomic::AtomicUsize;

    /// Answers a query for each message, and counts those that run.
    struct Slow {
        go_on: Receiver<()>,
        running: AtomicUsize,
    }

    impl Queries for Slow {
        fn query(&self, _: &Query, _: Option<&Snapshot>, _: QueryLimits, _: &Waits) -> Result<Queried, QueryError> {
            assert!(self.running.fetch_add(1, Ordering::AcqRel) < 2, "more than two at once");
            let _ = self.go_on.recv();
            self.running.fetch_sub(1, Ordering::AcqRel);
            Ok(Queried { epoch: 1, schema: Arc::new(Schema::empty()), batches: Vec::new() })
        }
    }

    fn query() -> Query {
        Query { sql: String::new(), parameters: None, form: QueryForm::Own, tables: Vec::new(), setup: None }
    }

    fn asking(time_max: Duration, waiting: usize) -> (Arc<Asking>, crossbeam_channel::Sender<()>) {
        let (more, go_on) = bounded(100);
        let engine = Arc::new(Slow { go_on, running: AtomicUsize::new(0) });
        let limits = QueryLimits { time_max, rows_max: 1, memory_max: 1 };
        (Arc::new(Asking::new(Some(engine), 2, waiting, limits)), more)
    }

    #[test]
    fn a_few_queries_wait_and_more_are_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (asking, more) = asking(Duration::from_secs(60), 3);
            let asked: Vec<_> = (0..5)
                .map(|_| {
                    let asking = asking.clone();
                    tokio::spawn(async move { asking.ask(query(), None).await.is_ok() })
                })
                .collect();
            while asking.under_way() < 5 {
                tokio::task::yield_now().await;
            }
            assert!(matches!(asking.ask(query(), None).await, Err(NotAsked::Busy)));
            (0..5).for_each(|_| more.send(()).expect("somebody takes it"));
            for one in asked {
                assert!(one.await.expect("it has ended"));
            }
            assert_eq!(asking.under_way(), 0);
        });
    }

    #[test]
    fn a_query_waits_no_longer_than_it_may_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (asking, more) = asking(Duration::from_millis(50), 3);
            let running: Vec<_> = (0..2)
                .map(|_| {
                    let asking = asking.clone();
                    tokio::spawn(async move { asking.ask(query(), None).await.is_ok() })
                })
                .collect();
            while asking.under_way() < 2 {
                tokio::task::yield_now().await;
            }
            assert!(matches!(asking.ask(query(), None).await, Err(NotAsked::Busy)));
            assert_eq!(asking.under_way(), 2);
            (0..2).for_each(|_| more.send(()).expect("somebody takes it"));
            for one in running {
                assert!(one.await.expect("it has ended"));
            }
        });
    }
}
