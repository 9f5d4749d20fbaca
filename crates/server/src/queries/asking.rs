//! The engine, and the places of those who ask it.

use super::query::{Queried, Queries, Query, QueryError, QueryLimits, Waits};
use super::running::Running;
use crate::asks::Snapshot;
use crate::shares::{Client, Shares};
use std::sync::Arc;
use tidemill_durability::Planted;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Counts a client as waiting, until it is dropped.
struct Waiter(Waits);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Said where there is no engine.
const NO_ENGINE: &str = "SQL needs DuckDB, which is not installed; pip install 'tidemill[sql]'";

/// The engine, and the places of those who ask it: of queries over tables, and of those over the catalogs alone.
pub struct Asking {
    engine: Option<Arc<dyn Queries>>,
    tables: Room,
    catalogs: Room,
    limits: QueryLimits,
}

/// Places for queries.
///
/// A query takes one of the places, of which each who asks has a part, then waits for its turn to run; both end when the
/// engine is done with it.
#[derive(Clone)]
struct Room {
    /// The places of the queries that run and of those that wait.
    places: Shares,
    running: Running,
}

impl Room {
    fn new(at_once: usize, waiting: usize) -> Room {
        // Without a process that may run queries, none may wait.
        let places = if at_once == 0 { 0 } else { at_once.saturating_add(waiting) };
        Room { places: Shares::places(places, Planted::default()), running: Running::new(at_once) }
    }
}

/// The reason why a query was not asked, or not answered.
pub enum NotAsked {
    /// Too many queries run and wait, or it has waited for as long as a query may run.
    Busy,
    /// The query was asked, and failed.
    Failed(QueryError),
}

impl Asking {
    /// Asks an engine, if there is one, `at_once` queries at once, while at most `waiting` others wait. Where it is more than
    /// one, one of them is of those that read no tables.
    pub fn new(engine: Option<Arc<dyn Queries>>, at_once: usize, waiting: usize, limits: QueryLimits) -> Asking {
        let tables = Room::new(if at_once > 1 { at_once - 1 } else { at_once }, waiting);
        let catalogs = if at_once > 1 { Room::new(1, waiting) } else { tables.clone() };
        Asking { engine, tables, catalogs, limits }
    }

    /// Ends the engine.
    pub fn stop(&self) {
        self.engine.iter().for_each(|engine| engine.stop());
    }

    /// Returns the number of processes that queries have ended.
    pub fn processes_ended(&self) -> u64 {
        self.engine.as_ref().map_or(0, |engine| engine.processes_ended())
    }

    /// Returns whether there is a query engine.
    pub fn has_engine(&self) -> bool {
        self.engine.is_some()
    }

    /// Returns the number of queries that run or wait.
    pub fn under_way(&self) -> usize {
        let shared = self.tables.running.is_same(&self.catalogs.running);
        self.tables.places.taken() + if shared { 0 } else { self.catalogs.places.taken() }
    }

    /// Asks it on a thread of its own, once there is room.
    pub async fn ask(&self, client: &Client, query: Query, at: Option<Arc<Snapshot>>) -> Result<Queried, NotAsked> {
        let Some(engine) = self.engine.clone() else {
            return Err(NotAsked::Failed(QueryError::NoEngine(NO_ENGINE.into())));
        };
        let room = if query.tables.is_empty() { &self.catalogs } else { &self.tables };
        let place = room.places.take(client).ok_or(NotAsked::Busy)?;
        let limits = self.limits;
        let run = timeout(limits.time_max, room.running.take(&client.who)).await.map_err(|_| NotAsked::Busy)?;
        let waiter = Waiter(Waits::new());
        let waits = waiter.0.clone();
        let asked = spawn_blocking(move || {
            let answer = engine.query(&query, at.as_ref(), limits, &waits);
            drop((run, place));
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
    use super::super::query::QueryForm;
    use super::*;
    use crate::shares::Who;
    use arrow_schema::Schema;
    use crossbeam_channel::{Receiver, bounded};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Answers a query for each message, and counts those that run.
    struct Slow {
        go_on: Receiver<()>,
        running: AtomicUsize,
    }

    impl Queries for Slow {
        fn query(
            &self,
            _: &Query,
            _: Option<&Arc<Snapshot>>,
            _: QueryLimits,
            _: &Waits,
        ) -> Result<Queried, QueryError> {
            assert!(self.running.fetch_add(1, Ordering::AcqRel) < 2, "more than two at once");
            let _ = self.go_on.recv();
            self.running.fetch_sub(1, Ordering::AcqRel);
            Ok(Queried { epoch: 1, schema: Arc::new(Schema::empty()), batches: Vec::new() })
        }
    }

    fn client(name: &str) -> Client {
        Client::http(Who::User(name.into()))
    }

    fn query() -> Query {
        Query { sql: String::new(), parameters: None, form: QueryForm::Own, tables: vec!["a".into()], setup: None }
    }

    fn asking(time_max: Duration, waiting: usize) -> (Arc<Asking>, crossbeam_channel::Sender<()>) {
        let (more, go_on) = bounded(100);
        let engine = Arc::new(Slow { go_on, running: AtomicUsize::new(0) });
        let limits = QueryLimits { time_max, rows_max: 1, memory_max: 1 };
        // One of the three is for queries without tables.
        (Arc::new(Asking::new(Some(engine), 3, waiting, limits)), more)
    }

    #[test]
    fn a_few_queries_wait_and_more_are_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let (asking, more) = asking(Duration::from_secs(60), 3);
            let asked: Vec<_> = (0..5)
                .map(|_| {
                    let asking = asking.clone();
                    tokio::spawn(async move { asking.ask(&client("ada"), query(), None).await.is_ok() })
                })
                .collect();
            while asking.under_way() < 5 {
                tokio::task::yield_now().await;
            }
            assert!(matches!(asking.ask(&client("ada"), query(), None).await, Err(NotAsked::Busy)));
            // Another one has its part of the places.
            let other = asking.clone();
            let bob = tokio::spawn(async move { other.ask(&client("bob"), query(), None).await.is_ok() });
            while asking.under_way() < 6 {
                tokio::task::yield_now().await;
            }
            (0..6).for_each(|_| more.send(()).expect("somebody takes it"));
            for one in asked.into_iter().chain([bob]) {
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
                    tokio::spawn(async move { asking.ask(&client("ada"), query(), None).await.is_ok() })
                })
                .collect();
            while asking.under_way() < 2 {
                tokio::task::yield_now().await;
            }
            assert!(matches!(asking.ask(&client("ada"), query(), None).await, Err(NotAsked::Busy)));
            assert_eq!(asking.under_way(), 2);
            (0..2).for_each(|_| more.send(()).expect("somebody takes it"));
            for one in running {
                assert!(one.await.expect("it has ended"));
            }
        });
    }
}
