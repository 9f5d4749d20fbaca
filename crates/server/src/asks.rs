//! Reads of tables, and events that are pushed: one thread asks the session for all that is to be read and has come in the
//! meantime, and one sends all that was pushed.
//!
//! Tables that are read together are answered with one epoch, which contains each call and each push that was answered before. While
//! the log has no room, what is pushed waits, and reads are answered with the last durable epoch.

use crate::shares::{Client, Share, Shares};
use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tidemill_model::Value;
use tidemill_plan::TableId;
use tidemill_runtime::{
    Answered, LateTable, NotMade, Outcome, ReadsAt, ReplyTo, RequestKey, Session, SessionError, TakeOutcomes, When,
    Wish,
};
use tokio::sync::oneshot;

/// The time after which a push that waits for the engine checks whether the server is about to end.
const LOOKS: Duration = Duration::from_millis(100);

/// Rows of a table after an epoch.
pub struct TableAt {
    /// The epoch.
    pub epoch: u64,
    /// All rows, sorted by key, or the one that was asked for, if it is there.
    pub rows: RecordBatch,
}

/// Tables as they were after one epoch, which several reads share. A table is copied when it is first read; until then epochs
/// save the rows that they are about to change.
pub struct Snapshot {
    /// The epoch.
    pub epoch: u64,
    complete: Option<i64>,
    tables: BTreeMap<TableId, LateTable>,
}

impl Snapshot {
    fn of(at: ReadsAt, tables: &[TableId]) -> Snapshot {
        let ReadsAt { epoch, complete, tables: late } = at;
        Snapshot { epoch, complete, tables: tables.iter().copied().zip(late).collect() }
    }

    /// Returns a table of the snapshot.
    pub fn table(&self, table: TableId) -> Option<&LateTable> {
        self.tables.get(&table)
    }

    /// Returns some tables of the snapshot, in the form in which a session gives them.
    pub fn reads(&self, tables: &[TableId]) -> ReadsAt {
        let tables = tables.iter().map(|table| self.tables[table].clone()).collect();
        ReadsAt { epoch: self.epoch, complete: self.complete, tables }
    }
}

/// Rows that were asked for together with a snapshot, if there are any.
pub type WithSnapshot = (Option<RecordBatch>, Snapshot);

/// Something to ask the session for, and who waits for it. An error says in words why it cannot be done.
enum Ask {
    Read(Wish, oneshot::Sender<Result<TableAt, String>>, Share),
    Snapshot(Option<Wish>, Vec<TableId>, oneshot::Sender<Result<WithSnapshot, String>>, Share),
    /// No more: the thread ends.
    End,
}

/// The reason why events are not pushed, in words.
#[derive(Clone, Debug)]
pub enum NotPushed {
    /// An event of the push is too far ahead of the clock. None was sent.
    TooFar(String),
    /// Their key is not taken.
    Key(NotMade),
    /// The run takes no events, as it has ended or failed.
    Failed(String),
}

impl From<SessionError> for NotPushed {
    fn from(error: SessionError) -> NotPushed {
        match error {
            SessionError::TooFar { .. } => NotPushed::TooFar(error.to_string()),
            _ => NotPushed::Failed(error.to_string()),
        }
    }
}

/// The channel to one who pushes: the epoch after which the events are there.
type ToPusher = oneshot::Sender<Result<u64, NotPushed>>;

/// Events to be sent to a source, and who waits for that.
struct Push {
    source: usize,
    events: RecordBatch,
    key: Option<RequestKey>,
    to: ToPusher,
    share: Share,
}

/// One who waits for the outcome of a push with a key.
struct Waiting(Mutex<Option<(ToPusher, Share)>>);

impl TakeOutcomes for Waiting {
    fn take(&self, answered: Answered) {
        let Some((to, _share)) = self.0.lock().take() else { return };
        // The request may have gone.
        let _ = to.send(match answered.outcomes()[0] {
            Outcome::Refused(why) => Err(NotPushed::Key(why)),
            _ => Ok(answered.epoch),
        });
    }
}

/// Asks a session.
pub struct Asks {
    asks: Sender<Ask>,
    /// None once nothing more is pushed.
    pushes: Mutex<Option<Sender<Push>>>,
    /// A flag: whether nothing more is pushed: then nobody waits for room.
    ends: Arc<AtomicBool>,
    places: Shares,
}

impl Asks {
    /// Starts the two threads that ask a session; returns the way to reach them, and the threads.
    pub fn start(session: Arc<Session>, places: Shares) -> io::Result<(Arc<Asks>, [JoinHandle<()>; 2])> {
        let ((asks, asked), (pushes, pushed)) = (unbounded(), unbounded());
        let ends = Arc::new(AtomicBool::new(false));
        let begin = |name: &str, run: Box<dyn FnOnce() + Send>| thread::Builder::new().name(name.into()).spawn(run);
        let pusher = Pusher { session: session.clone(), ends: ends.clone() };
        let threads = [
            begin("asks", Box::new(move || run(&session, &asked)))?,
            begin("pushes", Box::new(move || pusher.run(&pushed)))?,
        ];
        let pushes = Mutex::new(Some(pushes));
        Ok((Arc::new(Asks { asks, pushes, ends, places }), threads))
    }

    /// Returns the rows of a table after the next epoch; none if too much is asked at once.
    pub fn table(&self, client: &Client, table: TableId) -> Option<oneshot::Receiver<Result<TableAt, String>>> {
        self.read(client, Wish::whole(table))
    }

    /// Returns the row of a key after the next epoch, if there is one; the table is not copied. None as above.
    pub fn row(
        &self,
        client: &Client,
        table: TableId,
        key: Vec<Value>,
    ) -> Option<oneshot::Receiver<Result<TableAt, String>>> {
        self.read(client, Wish { table, keys: Some(vec![key]) })
    }

    /// Returns the tables after the next epoch, of which nothing is copied yet, and rows of the same epoch. None as
    /// above.
    pub fn snapshot(
        &self,
        client: &Client,
        rows: Option<Wish>,
        tables: Vec<TableId>,
    ) -> Option<oneshot::Receiver<Result<WithSnapshot, String>>> {
        let (to, answer) = oneshot::channel();
        let _ = self.asks.send(Ask::Snapshot(rows, tables, to, self.places.take(client)?));
        Some(answer)
    }

    fn read(&self, client: &Client, wish: Wish) -> Option<oneshot::Receiver<Result<TableAt, String>>> {
        let (to, answer) = oneshot::channel();
        let ask = Ask::Read(wish, to, self.places.take(client)?);
        // Without the thread the channel is closed without an answer.
        let _ = self.asks.send(ask);
        Some(answer)
    }

    /// Sends events to a source; the answer is the epoch by whose release they are in the history. With a key that is known they are
    /// not sent again. None as above.
    pub fn push(
        &self,
        client: &Client,
        source: usize,
        events: RecordBatch,
        key: Option<RequestKey>,
    ) -> Option<oneshot::Receiver<Result<u64, NotPushed>>> {
        let (to, answer) = oneshot::channel();
        // No event is there once, too.
        let key = key.filter(|_| events.num_rows() > 0);
        let push = Push { source, events, key, to, share: self.places.take(client)? };
        if let Some(pushes) = &*self.pushes.lock() {
            let _ = pushes.send(push);
        }
        Some(answer)
    }

    /// Ends the threads, once nothing is under way that can be done.
    pub fn stop(&self) {
        let _ = self.asks.send(Ask::End);
        *self.pushes.lock() = None;
        self.ends.store(true, Ordering::Release);
    }
}

/// Sends what is pushed.
struct Pusher {
    session: Arc<Session>,
    ends: Arc<AtomicBool>,
}

impl Pusher {
    fn run(&self, pushed: &Receiver<Push>) {
        while let Ok(first) = pushed.recv() {
            let (mut sent, mut has_keys) = (Vec::new(), false);
            for Push { source, events, key, to, share } in std::iter::once(first).chain(pushed.try_iter()) {
                if let Some(key) = key {
                    self.push(source, &events, &key, (to, share));
                    has_keys = true;
                    continue;
                }
                match self.send(source, events) {
                    Ok(()) => sent.push((to, share)),
                    Err(error) => _ = to.send(Err(error)),
                }
            }
            if !sent.is_empty() || has_keys {
                let epoch = self.flush();
                sent.into_iter().for_each(|(to, _share)| _ = to.send(epoch.clone()));
            }
        }
    }

    /// Sends events with a key; waits for room. The epoch that a question makes takes them, if they are new.
    fn push(
        &self,
        source: usize,
        events: &RecordBatch,
        key: &RequestKey,
        waits: (oneshot::Sender<Result<u64, NotPushed>>, Share),
    ) {
        let waiting = Arc::new(Waiting(Mutex::new(Some(waits))));
        let reply = ReplyTo { to: waiting.clone(), when: When::Durable };
        if let Err(error) = self.patiently(|until| self.session.push(source, events, key, &reply, Some(until)))
            && let Some((to, _share)) = waiting.0.lock().take()
        {
            let _ = to.send(Err(error));
        }
    }

    /// Sends events; waits for room.
    fn send(&self, source: usize, mut events: RecordBatch) -> Result<(), NotPushed> {
        loop {
            let sent = self.patiently(|until| self.session.send(source, &events, Some(until)))?;
            if sent >= events.num_rows() {
                return Ok(());
            }
            events = events.slice(sent, events.num_rows() - sent);
        }
    }

    /// Returns the epoch that contains everything that was sent.
    fn flush(&self) -> Result<u64, NotPushed> {
        let asked = self.patiently(|until| self.session.ask(Vec::new(), Some(until)))?;
        self.patiently(|until| asked.flushed(Some(until))).map(|flushed| flushed.epoch)
    }

    /// Tries until it is done; unless the server ends, and the run waits for what may never come.
    fn patiently<T>(&self, mut attempt: impl FnMut(Instant) -> Result<T, SessionError>) -> Result<T, NotPushed> {
        loop {
            let waits = || self.ends.load(Ordering::Acquire).then(|| self.session.ailment()).flatten();
            match attempt(Instant::now() + LOOKS) {
                Err(SessionError::Timeout) => match waits() {
                    None => {}
                    Some(why) => {
                        let why = format!("{why}; whether this was done is known to the next run");
                        return Err(NotPushed::Failed(why));
                    }
                },
                done => return done.map_err(NotPushed::from),
            }
        }
    }
}

fn run(session: &Session, asked: &Receiver<Ask>) {
    while let Ok(first) = asked.recv() {
        if answer(session, std::iter::once(first).chain(asked.try_iter())) {
            return;
        }
    }
}

/// Answers with one epoch. Whether it is the end.
fn answer(session: &Session, asks: impl Iterator<Item = Ask>) -> bool {
    let mut is_end = false;
    let (mut reads, mut wishes) = (Vec::new(), Vec::<Wish>::new());
    let mut snapshots = Vec::new();
    for ask in asks {
        match ask {
            Ask::End => is_end = true,
            Ask::Snapshot(rows, tables, to, share) => snapshots.push((rows, tables, to, share)),
            Ask::Read(wish, to, share) => {
                // Those who read a whole table share it.
                let shared = wishes.iter().position(|other| wish.keys.is_none() && *other == wish);
                reads.push((shared.unwrap_or(wishes.len()), to, share));
                if shared.is_none() {
                    wishes.push(wish);
                }
            }
        }
    }
    for (rows, tables, to, _share) in snapshots {
        let _ = to.send(snapshot(session, rows, &tables).map_err(|error| error.to_string()));
    }
    if reads.is_empty() {
        return is_end;
    }
    let rows = |at: ReadsAt| Ok((at.epoch, at.tables.iter().map(LateTable::rows).collect::<Result<Vec<_>, _>>()?));
    match session.reads_latest(&wishes, None).and_then(rows) {
        Ok((epoch, tables)) => {
            for (place, to, _share) in reads {
                let _ = to.send(Ok(TableAt { epoch, rows: tables[place].clone() }));
            }
        }
        Err(error) => reads.into_iter().for_each(|(_, to, _share)| _ = to.send(Err(error.to_string()))),
    }
    is_end
}

fn snapshot(session: &Session, rows: Option<Wish>, tables: &[TableId]) -> Result<WithSnapshot, SessionError> {
    let mut wishes: Vec<Wish> = tables.iter().copied().map(Wish::whole).collect();
    let wants_rows = rows.is_some();
    wishes.extend(rows);
    let mut at = session.reads_latest(&wishes, None)?;
    let rows = if wants_rows { at.tables.pop() } else { None };
    Ok((rows.map(|rows| rows.rows()).transpose()?, Snapshot::of(at, tables)))
}
