//! A running application, for Python: the verbs of [`tidemill_runtime::Session`].
//!
//! Every wait lets the interpreter go, and looks for signals from time to time, so that Ctrl-C interrupts it.

use crate::arrow::batches_of;
use crate::edges::{Collection, Raised};
use crate::frame::Frame;
use crate::recall::Recall;
use crate::run::{Given, Outcome, Signals, error_of, options_of, outcome, raise, warn};
use crate::values::{ToPython, dict_of, row_of};
use arrow_array::RecordBatch;
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidemill_cli::{JobError, say_waits, table_schema};
use tidemill_connect::{SetTime, canonical};
use tidemill_model::arrow::rows;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::{Column, Table, TableId};
use tidemill_runtime::{
    Answered, Control, Followed, Following, LateTable, NoPlace, NotMade, Position, Procedure, ReadsAt, Reply,
    RequestKey, SessionError, Slow, When, Wish,
};

const OVER: &str = "the session is over; app.start() begins another one";

/// The interval at which one who waits looks for signals.
pub(crate) const SIGNALS: Duration = Duration::from_millis(100);

/// A running application.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Session {
    pub(crate) session: Arc<tidemill_runtime::Session>,
    raised: Raised,
    recall: Recall,
    /// The time of day, if it is set by hand.
    time: Option<Arc<SetTime>>,
    collections: Mutex<BTreeMap<String, Collection>>,
    /// The result of the run, once it was waited for.
    result: Mutex<Option<Result<tidemill_runtime::Summary, String>>>,
    /// Notified when there is a result.
    ended: Condvar,
}

/// A reader of a stream.
#[pyclass(frozen, module = "tidemill._native")]
pub struct Follower {
    following: Following,
    schema: Schema,
}

/// An item of a follower: events with their epoch, its punctuation and the place after them; none, and how many were
/// missed; or nothing at the end.
type Item = Option<(u64, Option<i64>, String, Option<Frame>)>;

/// The outcome of a call: its epoch, the record that it returned, and the reason and the values seen if it aborted.
type CallOutcome<'py> = (u64, Option<Bound<'py, PyDict>>, Option<(String, Bound<'py, PyDict>)>);

/// Returns the batches of an Arrow object or a [`Frame`], in canonical form.
fn given(py: Python<'_>, item: &Bound<'_, PyAny>, schema: &Schema) -> PyResult<Vec<RecordBatch>> {
    let batches = match item.cast::<Frame>() {
        Ok(frame) => vec![frame.get().whole(py)?],
        Err(_) => {
            let batches = batches_of(item)?;
            py.detach(|| batches.collect::<Result<Vec<_>, _>>())
                .map_err(|error| PyValueError::new_err(format!("the Arrow data failed: {error}")))?
        }
    };
    let canonical = |batch: RecordBatch| {
        py.detach(|| canonical(&batch, schema)).map_err(|failure| error_of(py, "SchemaError", (failure.message,)))
    };
    batches.into_iter().map(canonical).collect()
}

/// Returns the tables that users declared.
pub(crate) fn declared_tables(session: &tidemill_runtime::Session) -> Vec<TableId> {
    let tables = session.engine().program().tables.iter_enumerated();
    tables.filter(|(_, table)| !table.is_hidden).map(|(id, _)| id).collect()
}

/// Tables that were asked for, by name.
pub(crate) fn frames(session: &tidemill_runtime::Session, ids: &[TableId], reads: ReadsAt) -> BTreeMap<String, Frame> {
    let program = session.engine().program();
    let frame = |(&id, late): (&TableId, LateTable)| {
        (program.tables[id].name.clone(), Frame::late(table_schema(&program.tables[id]), late))
    };
    ids.iter().zip(reads.tables).map(frame).collect()
}

/// Starts a `tidemill._engine.Job` as a session.
#[pyfunction]
pub fn start(job: &Bound<'_, PyAny>) -> PyResult<Session> {
    let py = job.py();
    let options = options_of(job.getattr("options")?.extract()?)
        .map_err(|error| error_of(py, "RunError", (format!("{}: {}", error.option, error.message),)))?;
    let keep: BTreeMap<String, usize> = job.getattr("keep")?.extract()?;
    let Given { job, collections, raised, recall } = Given::read(job)?;
    let time = job.time.clone();
    let mut signals = Signals::default();
    let mut warned = Vec::new();
    let session = py.detach(|| {
        let mut ready = job.open_for_session(&options, &mut |_| signals.interrupted())?;
        warned.clone_from(&ready.notes.warned);
        keep.iter().try_for_each(|(stream, events)| ready.keep(stream, *events))?;
        ready.start(Arc::new(Control::default()), &mut || {})
    });
    let session = match (session, signals.0) {
        (Err(JobError::Interrupted), Some(signal)) => return Err(signal),
        (Err(error), _) => return Err(raise(py, &error, &raised)),
        (Ok(session), _) => Arc::new(session),
    };
    warn(py, &warned)?;
    Ok(Session {
        session,
        raised,
        recall,
        time,
        collections: Mutex::new(collections),
        result: Mutex::new(None),
        ended: Condvar::new(),
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(clippy::disallowed_methods, reason = "Python's callers wait by no other clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the end of a wait of at most this many seconds.
fn deadline_of(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let wait = Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err("a timeout is a number of seconds from 0"))?;
    Ok(now().checked_add(wait))
}

/// Tries until the deadline, and looks for signals between the tries.
fn patiently<T>(
    py: Python<'_>,
    deadline: Option<Instant>,
    mut attempt: impl FnMut(Instant) -> Result<T, SessionError> + Send,
) -> PyResult<Result<T, SessionError>>
where
    T: Send,
{
    loop {
        let soon = now() + SIGNALS;
        let until = deadline.map_or(soon, |deadline| deadline.min(soon));
        match py.detach(|| attempt(until)) {
            Err(SessionError::Timeout) if deadline.is_none_or(|deadline| now() < deadline) => py.check_signals()?,
            done => return Ok(done),
        }
    }
}

impl Session {
    /// Returns the exception for something that a session cannot do.
    fn refused(&self, py: Python<'_>, error: SessionError) -> PyErr {
        match error {
            SessionError::Timeout => PyTimeoutError::new_err("the engine was not ready within the given time"),
            // A run that was asked to stop may take its time; one that was not has failed.
            SessionError::Over if self.session.is_over() || !self.session.control().stops() => {
                match self.ended(py, &mut Signals::default(), false) {
                    Err(failed) => failed,
                    Ok(_) => error_of(py, "RunError", (OVER,)),
                }
            }
            SessionError::Over => error_of(py, "RunError", (OVER,)),
            SessionError::NotKept(_) => {
                let hint = "keep some when it starts: app.start(keep={stream: 100_000})";
                error_of(py, "PlanError", (error.to_string(), hint))
            }
            SessionError::NoKeys(_) | SessionError::Key { .. } | SessionError::KeyCount { .. } => {
                error_of(py, "IdempotencyError", (error.to_string(),))
            }
            SessionError::TooFar { .. } => {
                let hint = "raise the bound with app.source(..., ahead=\"7d\"), or give ahead=None for none";
                error_of(py, "SchemaError", (error.to_string(), hint))
            }
            SessionError::Gone { stream, after, kept } | SessionError::OtherCourse { stream, after, kept } => {
                error_of(py, "GoneError", (stream, after.to_string(), kept.to_string()))
            }
            other => error_of(py, "RunError", (other.to_string(),)),
        }
    }

    /// Waits for the end of the run; its summary, or the exception of its failure. One who `gives_up` does not wait for room on
    /// the disk or for descriptors, but stops the run.
    fn ended(&self, py: Python<'_>, signals: &mut Signals, gives_up: bool) -> PyResult<tidemill_runtime::Summary> {
        let session = &self.session;
        let closed = py.detach(|| {
            session.close(&mut || {
                if signals.interrupted() || gives_up && session.control().waits() {
                    session.stop();
                }
            })
        });
        if let Some(closed) = closed {
            self.recall.end(py);
            let result = match closed {
                Ok(mut summary) => {
                    say_waits(&mut summary, session.engine().program());
                    Ok(summary)
                }
                Err(error) => {
                    *locked(&self.result) = Some(Err(error.to_string()));
                    self.ended.notify_all();
                    return Err(raise(py, &JobError::Run(error), &self.raised));
                }
            };
            *locked(&self.result) = Some(result);
            self.ended.notify_all();
        }
        // Another thread may wait for the end.
        let result = py.detach(|| {
            let waited = self.ended.wait_while(locked(&self.result), |result| result.is_none());
            waited.unwrap_or_else(PoisonError::into_inner).clone().expect("waited for")
        });
        result.map_err(|error| error_of(py, "RunError", (error,)))
    }

    /// Returns a transaction that can be called.
    fn procedure(&self, py: Python<'_>, name: &str) -> PyResult<Procedure> {
        self.session.procedure(name).map_err(|error| error_of(py, "PlanError", (error.to_string(),)))
    }

    /// Reads outcomes as Python's objects.
    fn read<'py>(
        &self,
        py: Python<'py>,
        procedure: &Procedure,
        answered: &Answered,
        outcomes: &mut Vec<CallOutcome<'py>>,
    ) -> PyResult<()> {
        let program = self.session.engine().program();
        let transaction = &program.transactions[procedure.transaction];
        let convert = ToPython::new(py)?;
        for reply in answered.replies() {
            outcomes.push(match reply {
                Reply::Committed(None) => (answered.epoch, None, None),
                Reply::Committed(Some(batch)) => {
                    let schema = &program.streams[transaction.committed.stream].schema;
                    let row = rows(&batch, schema).pop().expect("a row");
                    (answered.epoch, Some(dict_of(&convert, schema, &row)?), None)
                }
                Reply::Aborted(batch) => {
                    let schema = &program.streams[transaction.aborted].schema;
                    let row = rows(&batch, schema).pop().expect("a row");
                    // The event, the reason, what was seen.
                    let first = row.len() - transaction.seen.len();
                    let seen = Schema { fields: schema.fields[first..].to_vec() };
                    let Value::Str(reason) = &row[first - 1] else { unreachable!("a reason is text") };
                    (answered.epoch, None, Some((reason.clone(), dict_of(&convert, &seen, &row[first..])?)))
                }
                Reply::Untaken(reason) => (answered.epoch, None, Some((reason, PyDict::new(py)))),
                Reply::Refused(why @ NotMade::BeforeTick) => return Err(error_of(py, "RunError", (why.to_string(),))),
                Reply::Refused(why) => {
                    return Err(error_of(py, "IdempotencyError", (why.to_string(),)));
                }
            });
        }
        Ok(())
    }

    fn deny<T>(&self, py: Python<'_>, done: Result<T, SessionError>) -> PyResult<T> {
        done.map_err(|error| self.refused(py, error))
    }
}

/// Returns the values of a key, or a `PlanError`.
fn key_of(py: Python<'_>, table: &Table, given: &[Bound<'_, PyAny>]) -> PyResult<Vec<Value>> {
    let columns: Vec<&Column> = table.key.iter().map(|&column| &table.columns[column]).collect();
    let refused =
        |message: String, hint: String| error_of(py, "PlanError", (message, hint, format!("table '{}'", table.name)));
    if given.len() != columns.len() {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let message = format!("the key has {} columns, not {}", columns.len(), given.len());
        return Err(refused(message, format!("give one value for each of: {}", names.join(", "))));
    }
    if let Some(float) = columns.iter().find(|column| column.ty.ty == Type::Float) {
        let message = format!("key column '{}' is a float, which cannot be asked for", float.name);
        return Err(refused(message, "read the whole table".into()));
    }
    let schema = Schema::scalars(columns.iter().map(|column| (column.name.as_str(), column.ty.ty.into())));
    row_of(py, &schema, given)?
        .map_err(|(place, reason)| refused(format!("key column '{}': {reason}", columns[place].name), String::new()))
}

#[pymethods]
impl Session {
    /// Sends an Arrow object or a [`Frame`] to a source: the number of events sent in time, and whether these are all.
    fn send(
        &self,
        py: Python<'_>,
        source: &str,
        item: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<(usize, bool)> {
        let number = self.deny(py, self.session.source(source))?;
        let deadline = deadline_of(timeout)?;
        let schema = self.session.source_schema(number);
        let mut sent = 0;
        for batch in given(py, item, &schema)? {
            let mut at = 0;
            while at < batch.num_rows() {
                let rest = batch.slice(at, batch.num_rows() - at);
                match patiently(py, deadline, |until| self.session.send(number, &rest, Some(until)))? {
                    Ok(count) => at += count,
                    // The caller says how many there are.
                    Err(SessionError::Timeout) => return Ok((sent + at, false)),
                    refused => _ = self.deny(py, refused)?,
                }
                py.check_signals()?;
            }
            sent += at;
        }
        Ok((sent, true))
    }

    /// Returns the source that the calls of a transaction are events of.
    fn source_of(&self, py: Python<'_>, procedure: &str) -> PyResult<String> {
        let procedure = self.procedure(py, procedure)?;
        let name = self.session.source_names().nth(procedure.source).expect("a source of the session");
        Ok(name.to_owned())
    }

    /// Calls a transaction once for each row of an Arrow object or a [`Frame`], as many as one message has. With a key, of
    /// one row. If it is `early`, the outcomes are given as soon as the calls have run.
    fn call<'py>(
        &self,
        py: Python<'py>,
        procedure: &str,
        item: &Bound<'py, PyAny>,
        key: Option<&str>,
        early: bool,
        timeout: Option<f64>,
    ) -> PyResult<Vec<CallOutcome<'py>>> {
        let procedure = self.procedure(py, procedure)?;
        let deadline = deadline_of(timeout)?;
        let schema = self.session.source_schema(procedure.source);
        let mut outcomes = Vec::new();
        for batch in given(py, item, &schema)? {
            let keys: Vec<_> =
                key.iter().map(|key| Some(RequestKey::new("", key, self.session.time_of_key()))).collect();
            let when = if early { When::Executed } else { When::Durable };
            let called =
                patiently(py, deadline, |until| self.session.call_with(&procedure, &batch, &keys, when, Some(until)))?;
            let mut calling = self.deny(py, called)?;
            loop {
                let next = patiently(py, deadline, |until| calling.next(Some(until)))?;
                let Some(answered) = self.deny(py, next)? else { break };
                self.read(py, &procedure, &answered, &mut outcomes)?;
            }
        }
        Ok(outcomes)
    }

    /// Declares that no event of a source with a time below comes any more.
    fn punctuate(&self, py: Python<'_>, source: &str, time: i64) -> PyResult<()> {
        let number = self.deny(py, self.session.source(source))?;
        self.deny(py, patiently(py, None, |until| self.session.punctuate(number, time, Some(until)))?)
    }

    /// The time of day goes on to this one. Nothing happens where it is not set by hand.
    fn pass_until(&self, time: i64) {
        self.time.iter().for_each(|set| set.pass_until(time));
    }

    /// Declares that a source is silent until its next event.
    fn idle(&self, py: Python<'_>, source: &str) -> PyResult<()> {
        let number = self.deny(py, self.session.source(source))?;
        self.deny(py, patiently(py, None, |until| self.session.idle(number, Some(until)))?)
    }

    /// Nothing more is sent to a source.
    fn end(&self, py: Python<'_>, source: &str) -> PyResult<()> {
        let number = self.deny(py, self.session.source(source))?;
        self.deny(py, patiently(py, None, |until| self.session.end_source(number, Some(until)))?)
    }

    /// Waits until everything that was sent is released: the epoch, and by source the events that are held back.
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(u64, Option<i64>, BTreeMap<String, u64>)> {
        let deadline = deadline_of(timeout)?;
        let asked = self.deny(py, patiently(py, deadline, |until| self.session.ask(Vec::new(), Some(until)))?)?;
        let flushed = self.deny(py, patiently(py, deadline, |until| asked.flushed(Some(until)))?)?;
        let held = self.session.source_names().zip(flushed.held).filter(|(_, held)| *held > 0);
        Ok((flushed.epoch, flushed.complete, held.map(|(name, held)| (name.to_owned(), held)).collect()))
    }

    /// Copies of tables after one released epoch, and its number.
    fn tables(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        timeout: Option<f64>,
    ) -> PyResult<(u64, Option<i64>, Vec<Frame>)> {
        let deadline = deadline_of(timeout)?;
        let ids = names.iter().map(|name| self.session.table(name)).collect::<Result<Vec<_>, _>>();
        let ids = self.deny(py, ids)?;
        let asked = self.deny(py, patiently(py, deadline, |until| self.session.ask(ids.clone(), Some(until)))?)?;
        let copied = self.deny(py, patiently(py, deadline, |until| asked.tables(Some(until)))?)?;
        let program = self.session.engine().program();
        let frame = |(id, batch)| Frame::new(table_schema(&program.tables[id]), vec![batch], Vec::new());
        Ok((copied.epoch, copied.complete, ids.into_iter().zip(copied.tables).map(frame).collect()))
    }

    /// Returns all tables after one released epoch by name, to be copied when they are read; and its number and
    /// punctuation.
    fn reads(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(u64, Option<i64>, BTreeMap<String, Frame>)> {
        let deadline = deadline_of(timeout)?;
        let wanted = declared_tables(&self.session);
        let asked = self.deny(py, patiently(py, deadline, |until| self.session.ask(wanted.clone(), Some(until)))?)?;
        let reads = self.deny(py, patiently(py, deadline, |until| asked.reads(Some(until)))?)?;
        Ok((reads.epoch, reads.complete, frames(&self.session, &wanted, reads)))
    }

    /// Returns the row of a key as a dict, if there is one.
    fn row<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        key: Vec<Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let deadline = deadline_of(timeout)?;
        let id = self.deny(py, self.session.table(name))?;
        let table = &self.session.engine().program().tables[id];
        let key = key_of(py, table, &key)?;
        let wishes = vec![Wish { table: id, keys: Some(vec![key]) }];
        let asked =
            self.deny(py, patiently(py, deadline, |until| self.session.ask_to_read(wishes.clone(), Some(until)))?)?;
        let copied = self.deny(py, patiently(py, deadline, |until| asked.tables(Some(until)))?)?;
        let schema = table_schema(table);
        let found = rows(&copied.tables[0], &schema);
        let convert = ToPython::new(py)?;
        found.first().map(|row| dict_of(&convert, &schema, row)).transpose()
    }

    /// Makes a savepoint: its name, its epoch and the epoch's punctuation.
    fn savepoint(
        &self,
        py: Python<'_>,
        name: Option<String>,
        timeout: Option<f64>,
    ) -> PyResult<(String, u64, Option<i64>)> {
        let (deadline, name) = (deadline_of(timeout)?, name.as_deref());
        let asked = self.deny(py, patiently(py, deadline, |until| self.session.ask_savepoint(name, Some(until)))?)?;
        let made = self.deny(py, patiently(py, deadline, |until| asked.made(Some(until)))?)?;
        Ok((made.name, made.epoch, made.complete))
    }

    /// Follows a stream, from a place on if one is given; `waits`: the run waits for the follower where it is slow.
    fn follow(
        &self,
        py: Python<'_>,
        stream: &str,
        after: Option<&str>,
        waits: bool,
        events_max: usize,
    ) -> PyResult<Follower> {
        let id = self.deny(py, self.session.stream(stream))?;
        let after: Option<Position> =
            after.map(str::parse).transpose().map_err(|error: NoPlace| PyValueError::new_err(error.to_string()))?;
        let slow = if waits { Slow::Waits } else { Slow::Misses };
        let following = self.deny(py, self.session.follow_after(id, after, slow, events_max))?;
        Ok(Follower { following, schema: self.session.engine().program().streams[id].schema.clone() })
    }

    /// Returns the summary so far, as JSON.
    fn summary(&self) -> PyResult<String> {
        let result = locked(&self.result);
        let summary = match &*result {
            Some(Ok(summary)) => summary.clone(),
            _ => self.session.summary(),
        };
        serde_json::to_string(&summary).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Asks the run to end after the current epoch.
    fn stop(&self, py: Python<'_>) {
        // A sender may wait for a sink that needs the interpreter.
        py.detach(|| self.session.stop());
    }

    /// Returns whether the run is over.
    #[getter]
    fn over(&self) -> bool {
        self.session.is_over()
    }

    /// Sends nothing more, and waits for the end of the run; without room on the disk, or descriptors, unless it `gives_up`.
    fn close(&self, py: Python<'_>, gives_up: bool) -> PyResult<Outcome> {
        let mut signals = Signals::default();
        let ended = self.ended(py, &mut signals, gives_up);
        if let Some(signal) = signals.0 {
            return Err(signal);
        }
        let collections = std::mem::take(&mut *locked(&self.collections));
        outcome(py, self.session.engine().clone(), &ended?, collections)
    }
}

#[pymethods]
impl Follower {
    /// Returns the position after everything that was read.
    fn place(&self) -> Option<String> {
        self.following.place().map(|place| self.following.position(place).to_string())
    }

    /// Returns the next events with their epoch, or how many were missed here and no events, or none at the end. Raises
    /// `TimeoutError`.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Item> {
        let deadline = deadline_of(timeout)?;
        let next = patiently(py, deadline, |until| match self.following.next(Some(until)) {
            Followed::Nothing => Err(SessionError::Timeout),
            followed => Ok(followed),
        })?;
        match next {
            Ok(Followed::Events(released)) => {
                let place = self.following.position(released.place()).to_string();
                let frame = Frame::new(self.schema.clone(), vec![released.batch], Vec::new());
                Ok(Some((released.epoch, released.complete, place, Some(frame))))
            }
            Ok(Followed::Missed(events)) => Ok(Some((events, None, String::new(), None))),
            Ok(Followed::Over | Followed::Nothing) => Ok(None),
            Err(_) => Err(PyTimeoutError::new_err("nothing was released within the given time")),
        }
    }
}
