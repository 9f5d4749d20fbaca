//! The processes that answer the queries of a server.
//!
//! A thread for each process starts it, gives it one query after the other, and starts another one where it has ended. One
//! process is kept for queries that read no tables, which are about the catalogs: they wait for no others.
//!
//! # Invariant
//!
//! Whatever a query does, it can end its own process alone. A query is answered by the process that began it, or not at all.

use super::message::{Asked, Failure};
use super::process::{Answer, Broken, Launch, Outcome, Process, Table};
use super::query::{Queried, Queries, Query, QueryError, QueryLimits, Waits};
use super::tables::Tables;
use crate::asks::Snapshot;
use crate::index;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use tidemill_plan::TableId;
use tidemill_runtime::{LateTable, Session, SessionError, Wish};

/// The least time between two attempts to start a process.
const PAUSE: Duration = Duration::from_secs(1);
/// The bytes of address space that a process may take beside its tables and the memory that the engine counts: stacks of
/// threads, plans, and what is sent.
const SPARE_BYTES: usize = 256 << 20;

/// The processes.
pub struct Processes {
    /// The queue of jobs; none once the processes are stopped.
    jobs: Mutex<Option<Jobs>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

/// The queues in which queries wait for a process.
#[derive(Clone)]
struct Jobs {
    tables: Sender<Job>,
    catalogs: Sender<Job>,
}

/// The state that all threads of the pool share.
struct Shared {
    session: Arc<Session>,
    launch: Launch,
    tables: Vec<Table>,
    ids: Vec<TableId>,
    file: Tables,
    /// Processes that have ended although they were not told to.
    ended: AtomicU64,
}

/// A query that waits.
struct Job {
    query: Query,
    at: Option<Arc<Snapshot>>,
    limits: QueryLimits,
    waits: Waits,
    answer: Sender<Result<Queried, QueryError>>,
}

/// The process of a thread.
struct Worker {
    /// The process, or the reason why there is none.
    process: Result<Process, String>,
    /// The time of the last start, or attempt to start it.
    tried: Instant,
}

impl Worker {
    /// Returns whether there is a process that is to end.
    fn is_broken(&self) -> bool {
        self.process.as_ref().is_ok_and(|process| process.is_broken)
    }
}

impl Processes {
    /// Starts so many processes, which answer queries of a session's tables. The tables may take so many bytes, and each query
    /// what it may have beside them.
    pub fn start(
        session: Arc<Session>,
        mut launch: Launch,
        count: usize,
        tables_max: usize,
        limits: QueryLimits,
    ) -> io::Result<Processes> {
        let memory_max = tables_max.saturating_add(limits.memory_max).saturating_add(SPARE_BYTES);
        launch.arguments.push(memory_max.to_string().into());
        let program = session.engine().program();
        let declared: Vec<_> = index::tables(program).collect();
        let table = |table: &&tidemill_plan::Table| {
            let schema = Schema::scalars(table.columns.iter().map(|column| (column.name.as_str(), column.ty)));
            Table { name: table.name.clone(), schema: arrow_schema(&schema) }
        };
        let id = |table: &&tidemill_plan::Table| session.table(&table.name).expect("it is there");
        let (tables, ids) = (declared.iter().map(table).collect(), declared.iter().map(id).collect());
        let file = Tables::new(tables_max)?;
        let shared = Arc::new(Shared { launch, tables, ids, file, ended: AtomicU64::new(0), session });
        let ((of_tables, of_catalogs), mut threads) = ((unbounded(), unbounded()), Vec::new());
        for number in 0..count {
            // The last one is for catalogs, where it is not the only one.
            let jobs = if number > 0 && number + 1 == count { of_catalogs.1.clone() } else { of_tables.1.clone() };
            let shared = shared.clone();
            let run = move || shared.serve(&jobs);
            threads.push(thread::Builder::new().name(format!("query-{number}")).spawn(run)?);
        }
        let catalogs = if count > 1 { of_catalogs.0 } else { of_tables.0.clone() };
        let jobs = Mutex::new(Some(Jobs { tables: of_tables.0, catalogs }));
        Ok(Processes { jobs, threads: Mutex::new(threads), shared })
    }
}

impl Queries for Processes {
    fn query(
        &self,
        query: &Query,
        at: Option<&Arc<Snapshot>>,
        limits: QueryLimits,
        waits: &Waits,
    ) -> Result<Queried, QueryError> {
        let over = || QueryError::Over("the server is about to end".into());
        let Some(jobs) = self.jobs.lock().clone() else { return Err(over()) };
        let (answer, answered) = bounded(1);
        let job = Job { query: query.clone(), at: at.cloned(), limits, waits: waits.clone(), answer };
        let to = if query.tables.is_empty() { jobs.catalogs } else { jobs.tables };
        to.send(job).map_err(|_| over())?;
        answered.recv().map_err(|_| over())?
    }

    fn stop(&self) {
        // Threads end once nothing waits any more.
        drop(self.jobs.lock().take());
        self.threads.lock().drain(..).for_each(|thread| _ = thread.join());
    }

    fn processes_ended(&self) -> u64 {
        self.shared.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Answers queries by a process, until there are no more.
    fn serve(&self, jobs: &Receiver<Job>) {
        let mut worker = Worker { process: self.started(), tried: Instant::now() };
        while let Ok(job) = jobs.recv() {
            if !job.waits.is_wanted() {
                continue;
            }
            let mut answer = self.answer_by(&mut worker, &job);
            if matches!(answer, Err(QueryError::Over(_))) && worker.is_broken() {
                // It may be what queries before have left of the process: a new one says whether it is this query.
                self.renew(&mut worker);
                answer = self.answer_by(&mut worker, &job);
                if let (Err(QueryError::Over(why)), true) = (&answer, worker.is_broken()) {
                    answer = Err(QueryError::Refused(format!("the query cannot be answered: {why}")));
                }
            }
            // Nobody may wait any more.
            let _ = job.answer.send(answer);
            if worker.is_broken() {
                self.renew(&mut worker);
            }
        }
    }

    /// Answers a query, by another process where there is none.
    fn answer_by(&self, worker: &mut Worker, job: &Job) -> Result<Queried, QueryError> {
        if worker.process.as_mut().is_ok_and(|there| !there.is_alive()) {
            self.renew(worker);
        }
        if worker.process.is_err() {
            // One that cannot be started is not tried for each query.
            let next = worker.tried + PAUSE;
            thread::sleep(next.saturating_duration_since(Instant::now()).min(PAUSE));
            (worker.process, worker.tried) = (self.started(), Instant::now());
        }
        match &mut worker.process {
            Err(why) => Err(QueryError::NoEngine(why.clone())),
            Ok(there) => self.answer(there, job),
        }
    }

    /// Puts another process in the place of one that has ended, or is to end.
    fn renew(&self, worker: &mut Worker) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        // The other one is gone before this one begins.
        worker.process = Err(String::new());
        (worker.process, worker.tried) = (self.started(), Instant::now());
    }

    fn started(&self) -> Result<Process, String> {
        Process::start(&self.launch, &self.tables, &self.file)
            .map_err(|error| format!("no process for queries can be started: {error}"))
    }

    fn answer(&self, process: &mut Process, job: &Job) -> Result<Queried, QueryError> {
        let Job { query, at, limits, waits, .. } = job;
        let named = |table: &Table| query.tables.contains(&table.name);
        let places: Vec<usize> = (0..self.tables.len()).filter(|&place| named(&self.tables[place])).collect();
        let ids: Vec<TableId> = places.iter().map(|&place| self.ids[place]).collect();
        let wishes: Vec<Wish> = ids.iter().copied().map(Wish::whole).collect();
        let ask = || self.session.reads_latest(&wishes, None);
        let reads = match at {
            Some(snapshot) => snapshot.reads(&ids),
            None => ask().map_err(|error: SessionError| QueryError::Over(error.to_string()))?,
        };
        let late: Vec<LateTable> = reads.tables;
        let asked = Asked::of(query, places, reads.epoch, *limits);
        match process.ask(&asked, &late, &self.tables, &self.file, waits) {
            Outcome::Answered(Answer { schema, batches }) => Ok(Queried { epoch: reads.epoch, schema, batches }),
            Outcome::Failed(Failure::Refused(why)) => Err(QueryError::Refused(why)),
            Outcome::Failed(Failure::NoEngine(why)) => Err(QueryError::NoEngine(why)),
            Outcome::Failed(Failure::Over(why)) => Err(QueryError::Over(why)),
            Outcome::Broken(broken) => Err(QueryError::Refused(self.why(process, broken, *limits))),
        }
    }

    /// Ends a process, and says what its query did.
    fn why(&self, process: &mut Process, broken: Broken, limits: QueryLimits) -> String {
        process.is_broken = true;
        match broken {
            Broken::Late => format!("the query took more than {} seconds", limits.time_max.as_secs_f64()),
            Broken::Unwanted => "nobody waits for the query any more".to_owned(),
            Broken::TooLarge => {
                format!(
                    "the query takes more memory than it may have, {} bytes; ask for less at once",
                    limits.memory_max
                )
            }
            Broken::Gone => format!(
                "the query has ended the process that answered it ({}): it is nested too deeply, or takes more memory than \
                 it may have; ask for less at once",
                process.ended()
            ),
        }
    }
}
