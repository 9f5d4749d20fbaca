//! Sessions: a running application to talk to.
//!
//! A session's run has the threads of every other run. Beside its sources, events are *sent* to it: [`Session::send`].
//! Their epochs are cut, logged and released as those of sources. What a session asks ([`Session::flush`],
//! [`Session::tables`], [`Session::savepoint`]) is answered with a released epoch, which is whole: it contains everything
//! that was sent before.
//!
//! Events that are sent to a source without event time have anchored positions: no other source makes them wait
//! (`docs/formalism.md`). Events with an event time take their places by it, as those of every source.

mod as_it_stands;
pub(crate) mod at_gate;
mod calling;
pub(crate) mod calls;
pub(crate) mod error;
pub(crate) mod follow;
pub(crate) mod link;
pub(crate) mod retries;
pub(crate) mod waiting;

pub use calling::Calling;

use crate::ahead::{RunTime, first_too_far};
use crate::engine::{Engine, Request};
use crate::live::{Live, hottest};
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::run::Run;
use crate::session::error::SessionError;
use crate::session::follow::{Follower, Slow};
use crate::session::link::{Answer, Link, Message, NotFollowed, Question, Sending, now, with_time};
use crate::summary::Summary;
use crate::watched::Watched;
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tidemill_durability::{Bug, Course, Place, Planted, Position, Savepoint, StateError};
use tidemill_io::SourceBatch;
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use tidemill_model::civil::time_text;
use tidemill_plan::{CallerAt, Stream, StreamId, TableId};
use tidemill_recovery::{Control, RunError, SavepointRequest, Savepoints};
use tidemill_stages::access::read::{TableRead, Wish};
use tidemill_stages::actor::Bell;
use tidemill_stages::environment::{Environment, Joined};

/// The interval at which one who waits for the end of a run looks around.
const TICK: Duration = Duration::from_millis(50);
/// The maximum number of events of a message.
pub const MESSAGE_EVENTS_MAX: usize = 8192;

/// The result of [`Session::flush`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// The epoch: it and all before it are released.
    pub epoch: u64,
    /// Its punctuation: every event with a time below was released, and none comes any more. None before each source
    /// has shown a time, and in programs without event times.
    pub complete: Option<i64>,
    /// The number of events that are held back, by source: by lateness, or by another source.
    pub held: Vec<u64>,
}

/// A savepoint that a session has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavepointMade {
    /// Its name.
    pub name: String,
    /// The released epoch that it is of. It contains everything that was sent before.
    pub epoch: u64,
    /// The epoch's punctuation: every event with a time below has passed.
    pub complete: Option<i64>,
}

/// A consistent copy of tables. Any number of them may be held.
#[derive(Clone, Debug)]
pub struct TablesAt {
    /// The released epoch that they are copies after.
    pub epoch: u64,
    /// Its punctuation: every event with a time below has passed.
    pub complete: Option<i64>,
    /// The tables in the order in which they were asked for: rows sorted by key.
    pub tables: Vec<RecordBatch>,
}

/// Tables as they were after an epoch, of which nothing is copied yet.
pub struct ReadsAt {
    /// The released epoch.
    pub epoch: u64,
    /// Its punctuation: every event with a time below has passed.
    pub complete: Option<i64>,
    /// The tables in the order in which they were asked for.
    pub tables: Vec<LateTable>,
}

/// A table as it was after an epoch. Its rows are copied when they are asked for. Until then, epochs save the rows that
/// they are about to change: do not hold it for long.
#[derive(Clone)]
pub struct LateTable {
    name: String,
    read: Arc<TableRead>,
}

impl LateTable {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rows, sorted by key. They are copied and sorted on the caller's thread, while epochs run.
    pub fn rows(&self) -> Result<RecordBatch, SessionError> {
        self.read.rows().map_err(|reason| self.failed(reason))
    }

    /// Returns the rows in no order, likewise.
    pub fn batches(&self) -> Result<Vec<RecordBatch>, SessionError> {
        self.read.batches().map_err(|reason| self.failed(reason))
    }

    fn failed(&self, reason: String) -> SessionError {
        SessionError::Table { table: self.name.clone(), reason }
    }
}

/// A running application.
pub struct Session {
    engine: Arc<Engine>,
    link: Arc<Link>,
    control: Arc<Control>,
    environment: Arc<dyn Environment>,
    /// The stream of each source, and whether it is sent to, by source.
    sources: Vec<(StreamId, bool)>,
    run: OfRun,
    watched: Watched,
    thread: Mutex<Option<Thread>>,
}

/// The parts of its run that a session needs.
pub(crate) struct OfRun {
    /// The bell of the releaser.
    pub releaser: Arc<Bell>,
    /// The history that it goes on with.
    pub course: Course,
    /// The counts so far.
    pub report: Arc<Mutex<Report>>,
    /// Its workers' tasks.
    pub pipeline: Arc<Pipeline>,
    /// The time at which it began (time of the clock).
    pub started: u64,
    /// The time of day.
    pub time: Arc<RunTime>,
    /// The savepoints of its state, if it has one.
    pub savepoints: Option<Savepoints>,
    /// The bug that is planted, if any.
    pub planted: Planted,
}

/// The thread that watches the run, and its result.
struct Thread {
    handle: Box<dyn Joined>,
    result: Receiver<Result<Summary, RunError>>,
}

impl Session {
    /// Starts a session as [`Session::start_keeping`] does, which keeps no events.
    pub fn start(
        engine: impl Into<Arc<Engine>>,
        request: Request,
        tick: &mut dyn FnMut(),
        watch: Box<dyn FnMut() + Send>,
    ) -> Result<Session, RunError> {
        Session::start_keeping(engine, request, &[], tick, watch)
    }

    /// Starts an application. The request's sources that are a [`SentSource`](crate::SentSource) are sent to. The engine
    /// must be made by [`Engine::for_session`], so that every stream can be followed. `tick` is called from time to time
    /// while a state is loaded, and `watch` while the application runs, on a thread of its own. `keep`: streams with the
    /// number of their last events that are kept, so that they can be followed from an earlier place.
    pub fn start_keeping(
        engine: impl Into<Arc<Engine>>,
        request: Request,
        keep: &[(StreamId, usize)],
        tick: &mut dyn FnMut(),
        mut watch: Box<dyn FnMut() + Send>,
    ) -> Result<Session, RunError> {
        let (engine, link) = (engine.into(), Arc::new(Link::default()));
        let streams = engine.machine.wiring.sources.iter();
        let sources = streams.zip(&request.sources).map(|(&stream, source)| (stream, source.is_sent())).collect();
        let (control, environment) = (request.control.clone(), request.environment.clone());
        let watched = request.watched.clone();
        let run = Run::begin(&engine, request, Some(link.clone()), tick)?;
        link.keep(run.keep(keep));
        let of_run = run.for_session();
        let (closes, (done, result)) = (CloseOnDrop(link.clone()), bounded(1));
        let body = move || {
            let summary = run.on_threads(&mut watch);
            // The last look: at what happened since the one before.
            watch();
            drop(closes);
            let _ = done.send(summary);
        };
        let thread = Thread { handle: environment.spawn("session", Box::new(body)), result };
        let thread = Mutex::new(Some(thread));
        Ok(Session { engine, link, control, environment, sources, run: of_run, watched, thread })
    }

    /// Returns the application.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the directory of its state, if it has one and goes on.
    pub fn state(&self) -> Option<PathBuf> {
        self.run.savepoints.as_ref()?.path()
    }

    /// Returns the run, as those see it who watch it.
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }

    /// Progress counters of the run.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Returns the number of a source that is sent to.
    pub fn source(&self, name: &str) -> Result<usize, SessionError> {
        let streams = &self.engine.program().streams;
        let is_named = |(stream, is_sent): &(StreamId, bool)| *is_sent && streams[*stream].name == name;
        self.sources.iter().position(is_named).ok_or_else(|| SessionError::NotSent(name.into()))
    }

    /// Returns the schema of a source's events as they are sent.
    pub fn source_schema(&self, source: usize) -> Schema {
        self.engine.program().streams[self.sources[source].0].brought()
    }

    /// Returns the fields of a source's events, as they are sent, that say who makes a call. Who fills them in is trusted.
    pub fn caller(&self, source: usize) -> CallerAt {
        self.engine.program().streams[self.sources[source].0].caller()
    }

    /// Returns the names of the sources, in order.
    pub fn source_names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(stream, _)| self.engine.program().streams[*stream].name.as_str())
    }

    /// Returns the number of a stream that can be followed.
    pub fn stream(&self, name: &str) -> Result<StreamId, SessionError> {
        let streams = &self.engine.program().streams;
        let found = streams.iter_enumerated().find(|(_, stream)| stream.name == name);
        found.map(|(id, _)| id).ok_or_else(|| SessionError::NoStream(name.into()))
    }

    /// Sends events to a source: a batch in the canonical Arrow form of its schema, in the order of its rows. Waits
    /// while the engine is full, at most until the deadline; what was sent until then stays sent. Returns the number of
    /// events sent. Sends none where one is too far ahead of the clock.
    pub fn send(&self, source: usize, events: &RecordBatch, deadline: Option<Instant>) -> Result<usize, SessionError> {
        self.send_as(source, events, MESSAGE_EVENTS_MAX, deadline, |_, records, now| {
            Message::Records(source, records, now)
        })
    }

    /// Sends events as messages: `message` makes the message of `together` of them at most, given the number of those before.
    fn send_as(
        &self,
        source: usize,
        events: &RecordBatch,
        together: usize,
        deadline: Option<Instant>,
        message: impl Fn(usize, SourceBatch, u64) -> Message,
    ) -> Result<usize, SessionError> {
        let stream = self.sent_stream(source)?;
        let schema = arrow_schema(&stream.brought());
        if events.schema().fields() != schema.fields() {
            let difference = format!("{:?} instead of {:?}", events.schema().fields(), schema.fields());
            return Err(SessionError::Schema { source_name: stream.name.clone(), difference });
        }
        if let Some((time, until)) = first_too_far(stream, events, &self.run.time) {
            let source_name = stream.name.clone();
            return Err(SessionError::TooFar { source_name, time: time_text(time), until: time_text(until) });
        }
        let events = &with_time(stream, events);
        let mut sent = 0;
        while sent < events.num_rows() {
            let count = (events.num_rows() - sent).min(together);
            let records = SourceBatch { events: events.slice(sent, count), bad: Vec::new() };
            let message = message(sent, records, self.environment.now());
            match self.link.send(message, deadline) {
                Sending::Sent => sent += count,
                Sending::Full if sent > 0 => return Ok(sent),
                Sending::Full => return Err(SessionError::Timeout),
                Sending::Ended => return Err(SessionError::Ended(stream.name.clone())),
                Sending::Over => return Err(SessionError::Over),
            }
        }
        Ok(sent)
    }

    /// Returns the stream of a source that is sent to.
    fn sent_stream(&self, source: usize) -> Result<&Stream, SessionError> {
        let &(stream, is_sent) = self.sources.get(source).ok_or_else(|| SessionError::NotSent(source.to_string()))?;
        let stream = &self.engine.program().streams[stream];
        if is_sent { Ok(stream) } else { Err(SessionError::NotSent(stream.name.clone())) }
    }

    /// Promises that no event of a source with a time below will be sent any more: what was held back for it may pass.
    /// Events that break the promise are late. `time`: in the unit of the source's event time.
    pub fn punctuate(&self, source: usize, time: i64, deadline: Option<Instant>) -> Result<(), SessionError> {
        self.check_timed(source)?;
        self.message(Message::Punctuation(source, time), deadline)
    }

    /// Says that a source is silent for now: until its next event it holds no other source back. What it sends after
    /// that may be late, as the others have gone on. If all sources are silent, nothing moves.
    pub fn idle(&self, source: usize, deadline: Option<Instant>) -> Result<(), SessionError> {
        self.check_timed(source)?;
        self.message(Message::Idle(source), deadline)
    }

    fn check_timed(&self, source: usize) -> Result<(), SessionError> {
        let stream = self.sent_stream(source)?;
        stream.own_time().map(|_| ()).ok_or_else(|| SessionError::NoTime(stream.name.clone()))
    }

    /// Stops sending to a source: it holds no other source back. In a run with a state that is a pause, unless the run
    /// is the last: what waits for the source stays in the state.
    pub fn end_source(&self, source: usize, deadline: Option<Instant>) -> Result<(), SessionError> {
        self.sent_stream(source)?;
        self.message(Message::End(source), deadline)
    }

    /// Says that the session is about to end, while it may still be sent to: from now on calls that wait for the tick of a clock
    /// do so for five seconds at most.
    pub fn announce_end(&self) {
        self.link.announce_end();
    }

    /// Stops sending to all sources. The run ends when all sources that are read have ended.
    pub fn stop_sending(&self) {
        self.link.end();
    }

    /// Waits until everything that was sent before is processed and released, as far as it may pass.
    pub fn flush(&self, deadline: Option<Instant>) -> Result<Flushed, SessionError> {
        self.ask(Vec::new(), deadline)?.flushed(deadline)
    }

    /// Returns tables as they are after one released epoch, which contains everything that was sent before.
    pub fn tables(&self, tables: &[TableId], deadline: Option<Instant>) -> Result<TablesAt, SessionError> {
        self.read(tables.iter().map(|&table| Wish::whole(table)).collect(), deadline)
    }

    /// Reads tables, also single rows, which costs no copy of their tables: for each wish the rows that there are,
    /// sorted by key. Panics if a key has not the types of its table's key, or has floats.
    pub fn read(&self, wishes: Vec<Wish>, deadline: Option<Instant>) -> Result<TablesAt, SessionError> {
        self.ask_to_read(wishes, deadline)?.tables(deadline)
    }

    /// Makes a savepoint of the run's state, of a released epoch that contains everything that was sent before. The run
    /// goes on meanwhile. Without a name it is `epoch-` and the epoch's number.
    pub fn savepoint(&self, name: Option<&str>, deadline: Option<Instant>) -> Result<SavepointMade, SessionError> {
        self.ask_savepoint(name, deadline)?.made(deadline)
    }

    /// Asks for a savepoint. Waits for room, and not until it is made.
    pub fn ask_savepoint(&self, name: Option<&str>, deadline: Option<Instant>) -> Result<AskedSavepoint, SessionError> {
        let savepoints = self.run.savepoints.as_ref().ok_or(SessionError::NoState)?;
        name.map_or(Ok(()), |name| savepoints.no_savepoint(name))?;
        let ((answer, answered), (told, made)) = (bounded(1), bounded(1));
        let answer_savepoint = move |done| _ = told.send(done);
        let savepoint = SavepointRequest { name: name.map(str::to_owned), answer: Box::new(answer_savepoint) };
        let question = Question { tables: Vec::new(), savepoint: Some(savepoint), answer };
        self.message(Message::Ask(question), deadline)?;
        let asked = Asked { engine: self.engine.clone(), tables: Vec::new(), answered };
        Ok(AskedSavepoint { asked, released: Mutex::new(None), made })
    }

    /// Returns the time of a call with a key, by the machine's clock: it goes on with what passes, however that clock is set,
    /// and a time that leads by more than a minute is believed when it was shown for a minute. On a machine without one it is 1970.
    pub fn time_of_key(&self) -> SystemTime {
        self.run.time.of_key()
    }

    /// Returns the time by the clock of the run, nanoseconds since some instant: a [`Way`](crate::Way) is told in it.
    pub fn now(&self) -> u64 {
        self.environment.now()
    }

    /// Returns the counts so far: those of released epochs.
    pub fn summary(&self) -> Summary {
        let mut positions = self.link.positions();
        positions.resize_with(self.sources.len(), Default::default);
        let elapsed = self.environment.now() - self.run.started;
        self.run.report.lock().summary(self.engine.program(), &positions, false, elapsed)
    }

    /// Returns the present state of the run, of released epochs. The rows that are touched are sampled in the next few.
    pub fn live(&self) -> Live {
        self.link.look();
        let under_way = self.run.pipeline.tasks().under_way();
        let report = self.run.report.lock();
        let live = report.live(self.engine.program(), &self.engine.machine.wiring, under_way);
        let touched = report.touched();
        drop(report);
        let [hot, critical] = touched.map(|sample| hottest(&sample));
        Live { hot, critical, ..live }
    }

    /// Follows a stream from now on: gets its events as they are released. `events_max`: the number of events that it
    /// may be behind.
    pub fn follow(&self, stream: StreamId, slow: Slow, events_max: usize) -> Result<Following, SessionError> {
        self.follow_after(stream, None, slow, events_max)
    }

    /// Follows a stream from a position on, if there is one: gets each event after it once, as long as these are kept.
    /// A position of another history is refused.
    pub fn follow_after(
        &self,
        stream: StreamId,
        after: Option<Position>,
        slow: Slow,
        events_max: usize,
    ) -> Result<Following, SessionError> {
        let repeats = |place: &Place| self.run.planted.is(Bug::FollowerRepeats) && *place != Place::after(place.epoch);
        let ignores = self.run.planted.is(Bug::FollowerIgnoresCourse);
        if let Some(after) = after.filter(|after| !ignores && !after.is_of(self.run.course)) {
            return Err(self.of_other_course(stream, after));
        }
        let from = after.map(|Position { place, .. }| match repeats(&place) {
            true => Place { events: 0, ..place },
            false => place,
        });
        let follower = Arc::new(Follower::new(stream, slow, events_max, from, self.run.releaser.clone()));
        let name = || self.engine.program().streams[stream].name.clone();
        match (self.link.follow(&follower), after) {
            (Ok(()), _) => Ok(Following {
                course: self.run.course,
                follower,
                link: self.link.clone(),
                releaser: self.run.releaser.clone(),
            }),
            (Err(NotFollowed::Gone(kept)), Some(after)) => {
                Err(SessionError::Gone { stream: name(), after, kept: self.position(kept) })
            }
            (Err(NotFollowed::NotKept), _) => Err(SessionError::NotKept(name())),
            (Err(NotFollowed::Over | NotFollowed::Gone(_)), _) => Err(SessionError::Over),
        }
    }

    /// Refuses to follow a stream from a position of another history.
    fn of_other_course(&self, stream: StreamId, after: Position) -> SessionError {
        let name = self.engine.program().streams[stream].name.clone();
        match self.link.kept_after(stream) {
            Some(kept) => SessionError::OtherCourse { stream: name, after, kept: self.position(kept) },
            None => SessionError::NotKept(name),
        }
    }

    /// Returns a place of the run as a position, which names its history.
    pub fn position(&self, place: Place) -> Position {
        Position { place, course: Some(self.run.course) }
    }

    /// Returns the number of a table.
    pub fn table(&self, name: &str) -> Result<TableId, SessionError> {
        let tables = &self.engine.program().tables;
        let found = tables.iter_enumerated().find(|(_, table)| table.name == name);
        found.map(|(id, _)| id).ok_or_else(|| SessionError::NoTable(name.into()))
    }

    /// Asks the run to end after the current epoch. Returns at once.
    pub fn stop(&self) {
        self.control.stop();
        // It may wait for a follower, and then nothing else would wake it.
        self.run.releaser.ring();
        self.link.end();
    }

    /// Returns whether the run has ended.
    pub fn is_over(&self) -> bool {
        self.link.is_over()
    }

    /// Returns whether an epoch may be released: everything is open and replayed, and the run goes on.
    pub fn is_ready(&self) -> bool {
        self.control.is_ready() && !self.is_over()
    }

    /// Sends nothing more, and waits until the run has ended: everything that was sent is processed, and all sources
    /// that are read have ended. Gives the summary once; later calls give none. `tick` is called from time to time.
    pub fn close(&self, tick: &mut dyn FnMut()) -> Option<Result<Summary, RunError>> {
        // A sender may wait for room, which a run that is stopped makes.
        while !self.link.end_until(now() + TICK) {
            tick();
        }
        let Thread { handle, result } = self.thread.lock().take()?;
        let summary = loop {
            match result.recv_timeout(TICK) {
                Ok(summary) => break Some(summary),
                Err(RecvTimeoutError::Timeout) => tick(),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let joined = handle.join().map_err(RunError::Panic);
        Some(joined.and_then(|()| summary.expect("the thread has ended well")))
    }

    /// Asks for an epoch that contains everything that was sent before, and for copies of tables after it. Waits for
    /// room, and not for the answer.
    pub fn ask(&self, tables: Vec<TableId>, deadline: Option<Instant>) -> Result<Asked, SessionError> {
        self.ask_to_read(tables.into_iter().map(Wish::whole).collect(), deadline)
    }

    /// Asks to read as [`Session::read`] does, without waiting for the answer.
    pub fn ask_to_read(&self, wishes: Vec<Wish>, deadline: Option<Instant>) -> Result<Asked, SessionError> {
        let (answer, answered) = bounded(1);
        let tables = wishes.iter().map(|wish| wish.table).collect();
        let asked = Asked { engine: self.engine.clone(), tables, answered };
        self.message(Message::Ask(Question { tables: wishes, savepoint: None, answer }), deadline)?;
        Ok(asked)
    }

    fn message(&self, message: Message, deadline: Option<Instant>) -> Result<(), SessionError> {
        match self.link.send(message, deadline) {
            Sending::Sent => Ok(()),
            Sending::Full => Err(SessionError::Timeout),
            Sending::Ended | Sending::Over => Err(SessionError::Over),
        }
    }
}

/// A question that will be answered.
pub struct Asked {
    engine: Arc<Engine>,
    tables: Vec<TableId>,
    answered: Receiver<Answer>,
}

impl Asked {
    /// Waits for the answer. After [`SessionError::Timeout`] it may be waited for again.
    pub fn flushed(&self, deadline: Option<Instant>) -> Result<Flushed, SessionError> {
        let Answer { epoch, complete, held, .. } = self.answer(deadline)?;
        Ok(Flushed { epoch, complete, held })
    }

    /// Waits for the answer, and returns the tables that were asked for.
    pub fn tables(&self, deadline: Option<Instant>) -> Result<TablesAt, SessionError> {
        let ReadsAt { epoch, complete, tables } = self.reads(deadline)?;
        let tables = tables.iter().map(LateTable::rows).collect::<Result<_, _>>()?;
        Ok(TablesAt { epoch, complete, tables })
    }

    /// Waits for the answer, and returns the tables without copies.
    pub fn reads(&self, deadline: Option<Instant>) -> Result<ReadsAt, SessionError> {
        let Answer { epoch, complete, tables, .. } = self.answer(deadline)?;
        let name = |id: TableId| self.engine.program().tables[id].name.clone();
        let late = |(read, &id): (Arc<TableRead>, &TableId)| LateTable { name: name(id), read };
        Ok(ReadsAt { epoch, complete, tables: tables.into_iter().zip(&self.tables).map(late).collect() })
    }

    fn answer(&self, deadline: Option<Instant>) -> Result<Answer, SessionError> {
        received(&self.answered, deadline)
    }
}

/// A savepoint that will be made.
pub struct AskedSavepoint {
    asked: Asked,
    /// Its epoch, once it is released.
    released: Mutex<Option<Flushed>>,
    made: Receiver<Result<Savepoint, StateError>>,
}

impl AskedSavepoint {
    /// Waits until it is made. After [`SessionError::Timeout`] it may be waited for again.
    pub fn made(&self, deadline: Option<Instant>) -> Result<SavepointMade, SessionError> {
        let mut released = self.released.lock();
        let flushed = match &*released {
            Some(flushed) => flushed,
            None => released.insert(self.asked.flushed(deadline)?),
        };
        let savepoint = received(&self.made, deadline)??;
        let epoch = savepoint.manifest.checkpoint.epoch;
        assert_eq!(epoch, flushed.epoch, "a savepoint is of the epoch that answers the question");
        Ok(SavepointMade { name: savepoint.name, epoch, complete: flushed.complete })
    }
}

/// Returns the next message of a channel until the deadline.
fn received<T>(channel: &Receiver<T>, deadline: Option<Instant>) -> Result<T, SessionError> {
    match deadline {
        None => channel.recv().map_err(|_| SessionError::Over),
        Some(deadline) => channel.recv_deadline(deadline).map_err(|error| match error.is_timeout() {
            true => SessionError::Timeout,
            false => SessionError::Over,
        }),
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A follower that leaves when it is dropped.
pub struct Following {
    follower: Arc<Follower>,
    link: Arc<Link>,
    course: Course,
    releaser: Arc<Bell>,
}

impl Following {
    /// Returns a place of the stream as a position, which names its history.
    pub fn position(&self, place: Place) -> Position {
        Position { place, course: Some(self.course) }
    }
}

impl std::ops::Deref for Following {
    type Target = Follower;

    fn deref(&self) -> &Follower {
        &self.follower
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.link.unfollow(&self.follower);
        // The run may have waited for it.
        self.releaser.ring();
    }
}

/// Ends the waiting of all who wait for a run that is over.
struct CloseOnDrop(Arc<Link>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
