//! The other side: a process that answers queries for a server.
//!
//! Its standard input is the connection to the server, its standard output the file of tables, which it can only read. A
//! thread of its own hears the server, so that the process ends with it, whatever a query does.
//!
//! # Invariant
//!
//! Before the first query the process gives up what it does not need ([`Sealed`]): it can open no file and no connection,
//! start no process, and take no more memory than it may have.

use super::mapped::{batches_of, stream};
use super::message::{Asked, Described, Failure, FromProcess, Incoming, ToProcess, send};
use super::seal::{self, Sealed};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use crossbeam_channel::{Receiver, unbounded};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The bytes of an answer that are sent together.
const PART_BYTES: usize = 1 << 20;

/// A query that a process is to answer.
pub use super::message::{Asked as ProcessQuery, Failure as ProcessFailure};

/// Answers queries in a process of its own.
pub trait Engine {
    /// Returns the rows of a query. `tables` are those that it may read, by name; `is_wanted` says whether to go on.
    fn answer(
        &mut self,
        query: &Asked,
        tables: Vec<(String, SharedTable)>,
        is_wanted: IsWanted,
    ) -> Result<Box<dyn RecordBatchReader + Send>, Failure>;

    /// Makes ready what the next query may need, once a query is answered.
    fn prepare(&mut self, last: &Asked);
}

/// Says whether the answer of a query is still wanted.
#[derive(Clone)]
pub struct IsWanted(Arc<AtomicBool>);

impl IsWanted {
    /// Returns true if somebody still waits for the answer.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A table that the server has: it is asked for when it is first read.
#[derive(Clone)]
pub struct SharedTable {
    schema: SchemaRef,
    place: usize,
    server: Arc<Server>,
    read: Arc<Mutex<Option<Vec<RecordBatch>>>>,
}

impl SharedTable {
    /// Returns its columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns its rows.
    pub fn reader(&self) -> impl RecordBatchReader + Send + 'static {
        Reading { table: self.clone(), rest: None }
    }

    fn batches(&self) -> Result<Vec<RecordBatch>, ArrowError> {
        let mut read = self.read.lock();
        if let Some(batches) = &*read {
            return Ok(batches.clone());
        }
        let batches = self.server.table(self.place).map_err(ArrowError::ComputeError)?;
        *read = Some(batches.clone());
        Ok(batches)
    }
}

/// The rows of a table that are not read yet.
struct Reading {
    table: SharedTable,
    /// None before the first.
    rest: Option<std::vec::IntoIter<RecordBatch>>,
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_none() {
            match self.table.batches() {
                Ok(batches) => self.rest = Some(batches.into_iter()),
                Err(error) => {
                    self.rest = Some(Vec::new().into_iter());
                    return Some(Err(error));
                }
            }
        }
        self.rest.as_mut()?.next().map(Ok)
    }
}

impl RecordBatchReader for Reading {
    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }
}

/// The answers of the server to requests for tables: the place in the shared file, or why they cannot be read.
type Given = Receiver<Result<(u64, usize), String>>;

/// The connection of the process to the server.
struct Server {
    to: Mutex<UnixStream>,
    /// The file of tables.
    file: File,
    given: Given,
    /// Held by who asks for a table.
    asks: Mutex<()>,
}

impl Server {
    fn say(&self, what: &FromProcess, bytes: &[u8]) -> io::Result<()> {
        send(&mut *self.to.lock(), what, bytes)
    }

    /// Asks for a table.
    fn table(&self, place: usize) -> Result<Vec<RecordBatch>, String> {
        let _one = self.asks.lock();
        self.say(&FromProcess::Wants(place), &[]).map_err(|error| error.to_string())?;
        let (offset, length) = self.given.recv().map_err(|error| error.to_string())??;
        batches_of(&self.file, offset, length).map_err(|error| error.to_string())
    }
}

/// The messages that a process receives.
struct Heard {
    tables: Receiver<Vec<(String, SchemaRef)>>,
    queries: Receiver<(Asked, IsWanted)>,
}

/// Answers the queries of the server that has started this process, until it ends. `engine` is made first, with the tables
/// that there are.
pub fn answer_queries<E: Engine>(sealed: &Sealed, engine: impl FnOnce() -> Result<E, String>) -> io::Result<()> {
    seal::die_with_parent()?;
    let channel = UnixStream::from(taken(io::stdin())?);
    let (heard, given) = hear(channel.try_clone()?);
    let (to, file) = (Mutex::new(channel), File::from(taken(io::stdout())?));
    let server = Arc::new(Server { to, file, given, asks: Mutex::new(()) });
    let Ok(tables) = heard.tables.recv() else { return Ok(()) };
    let begun = engine().and_then(|engine| match seal::seal(sealed) {
        Ok(space) => Ok((engine, space)),
        Err(error) => Err(format!("a process for queries cannot be closed off: {error}")),
    });
    let (mut engine, space) = match begun {
        Ok(begun) => begun,
        Err(why) => {
            let failure = Failure::NoEngine(why);
            return server.say(&FromProcess::Failed { failure, worn: true }, &[]);
        }
    };
    server.say(&FromProcess::Ready, &[])?;
    for (query, is_wanted) in heard.queries {
        let shared = |&place: &usize| {
            let (name, schema) = tables[place].clone();
            (name, SharedTable { schema, place, server: server.clone(), read: Arc::default() })
        };
        seal::begin_query(&query)?;
        let tables = query.tables.iter().map(shared).collect();
        let answered = engine.answer(&query, tables, is_wanted).and_then(|rows| give(&server, rows));
        let worn = space.is_worn();
        match answered {
            Ok(()) => server.say(&FromProcess::Done { worn }, &[])?,
            Err(failure) => server.say(&FromProcess::Failed { failure, worn }, &[])?,
        }
        if !worn {
            engine.prepare(&query);
        }
    }
    Ok(())
}

/// Returns a descriptor of its own for one of the standard ones, which stays as it is.
fn taken(of: impl std::os::fd::AsFd) -> io::Result<OwnedFd> {
    of.as_fd().try_clone_to_owned()
}

/// Starts the thread that hears the server. The process ends with the server.
fn hear(mut channel: UnixStream) -> (Heard, Given) {
    let ((told, tables), (asked, queries), (give, given)) = (unbounded(), unbounded(), unbounded());
    let run = move || {
        let mut incoming = Incoming::default();
        let mut last: Option<IsWanted> = None;
        while let Ok(Some((said, bytes))) = incoming.next(&mut channel) {
            let is_gone = match said {
                ToProcess::Tables(described) => told.send(columns_of(described, &bytes)).is_err(),
                ToProcess::Query(query) => {
                    let is_wanted = IsWanted(Arc::new(AtomicBool::new(true)));
                    last = Some(is_wanted.clone());
                    asked.send((query, is_wanted)).is_err()
                }
                ToProcess::Table { offset, length, .. } => give.send(Ok((offset, length))).is_err(),
                ToProcess::NoTable { why, .. } => give.send(Err(why)).is_err(),
                ToProcess::Cancel => {
                    last.iter().for_each(|query| query.0.store(false, Ordering::Release));
                    false
                }
            };
            if is_gone {
                break;
            }
        }
        // Nobody is left to answer to; a query may never end.
        std::process::exit(0);
    };
    thread::Builder::new().name("hears".into()).spawn(run).expect("a process has a second thread");
    (Heard { tables, queries }, given)
}

fn columns_of(described: Vec<Described>, mut bytes: &[u8]) -> Vec<(String, SchemaRef)> {
    let one = |Described { name, bytes: length }| {
        let (own, rest) = bytes.split_at(length);
        bytes = rest;
        let (schema, _) = stream(Buffer::from(own)).expect("a stream of no rows");
        (name, schema)
    };
    described.into_iter().map(one).collect()
}

/// Sends the rows of an answer.
fn give(server: &Server, rows: Box<dyn RecordBatchReader + Send>) -> Result<(), Failure> {
    let refused = |error: ArrowError| Failure::Refused(error.to_string());
    let to = BufWriter::with_capacity(PART_BYTES, Parts(server));
    let mut writer = StreamWriter::try_new(to, &rows.schema()).map_err(refused)?;
    for batch in rows {
        writer.write(&batch.map_err(refused)?).map_err(refused)?;
    }
    writer.finish().map_err(refused)?;
    writer.into_inner().map_err(refused)?.flush().map_err(|error| Failure::Over(error.to_string()))
}

/// Sends what is written as parts of an answer.
struct Parts<'a>(&'a Server);

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PART_BYTES);
        self.0.say(&FromProcess::Part, &bytes[..count])?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
