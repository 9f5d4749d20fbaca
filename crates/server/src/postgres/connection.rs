//! A connection: messages in, and what answers them out.
//!
//! # Order
//!
//! Messages are handled one after the other. Outside of a block a call does not make the next message wait: its reply
//! has its place in the [`Queue`], so the calls of a pipeline are under way together, and run in their order.
//! Everything else waits until the calls before it are answered. In a block each call waits for the one before, so that
//! nothing of the block runs after its first error.
//!
//! # Writing
//!
//! Nothing is written while whole messages wait to be handled, but where much has come together. So the replies to one
//! `Sync` leave in one write.

use super::authenticate::authenticate;
use super::backend::{self, Status};
use super::block::Block;
use super::error::{PgError, PgResult, Severity, code};
use super::frontend::{self, First, Message, Target};
use super::memory::Memory;
use super::queue::Queue;
use super::settings::Settings;
use super::statement::Prepared;
use super::wire::Wire;
use crate::connections::Place;
use crate::follow::{Heard, Listener};
use crate::shares::{Client, Who};
use crate::socket::Socket;
use crate::turns::Turn;
use crate::users::{Evidence, RIGHTS_MAX, Right, Rights};
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, pending, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// The most calls of a connection that are under way: then it is not read on.
const CALLS_MAX: usize = 1_000;
/// About the most bytes that wait for calls of a connection.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// The bytes that are written before there is more.
pub const WRITE_BYTES: usize = 1 << 16;
/// The time that a client has to read why it is refused or disconnected.
const REFUSED_MAX: Duration = Duration::from_secs(1);
/// The time that a client has to read that its connection is closed in favour of another client.
const MAKES_WAY: Duration = Duration::from_millis(100);
/// The time that an idle client is given, when the server ends, to send another query or say goodbye.
const GOODBYE: Duration = Duration::from_millis(200);
/// The bytes that are read at once.
const READ_BYTES: usize = 1 << 14;

pub const CLOSING: &str = "the server is about to end; connect again when it is back";

/// The reason why a message is not handled to its end.
#[derive(Debug)]
pub enum Stop {
    Error(PgError),
    /// The client has gone, or takes nothing.
    Gone,
    /// The client has said goodbye.
    Terminated,
    /// Another client gets its place.
    MakesWay,
}

impl From<PgError> for Stop {
    fn from(error: PgError) -> Stop {
        Stop::Error(error)
    }
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Gone
    }
}

/// An event that ends a connection's wait.
enum Event {
    Input,
    /// Nothing more comes in.
    End,
    Outcome,
    Cancel,
    /// A call has had the time that its client gives it.
    Late,
    Closing,
    /// The snapshot that the block's reads share has not been read for too long.
    GivesUp,
    /// Another client gets its place.
    MakesWay,
    /// Events of what is listened to.
    Heard(String, Heard),
}

/// A connection, once it is known to whom.
pub struct Connection {
    stream: Socket,
    pub wire: Arc<Wire>,
    closes: watch::Receiver<bool>,
    /// Bytes that have come in and are not handled yet.
    input: Vec<u8>,
    /// Deadline for the rest of a partly received message.
    whole_by: Option<Instant>,
    pub queue: Queue,
    pub statements: HashMap<String, Arc<Prepared>>,
    pub portals: HashMap<String, super::portal::Portal>,
    /// The memory that statements and portals take.
    pub memory: Memory,
    pub settings: Settings,
    /// Subscriptions by `LISTEN`, by the name of the channel.
    pub listeners: BTreeMap<String, Listener>,
    pub block: Block,
    pub turn: Turn,
    place: Place,
    pub process: i32,
    pub user: String,
    /// The rights of the user, as they were at `rights_at`.
    pub rights: Rights,
    rights_at: Instant,
    /// The reason why the client is taken for this user.
    evidence: Evidence,
    pub database: String,
    /// The bell that a cancel request rings.
    bell: Arc<Notify>,
    /// Deadline for the statement that is handled, by the client's `statement_timeout`.
    pub until: Option<Instant>,
    /// A flag: whether messages are skipped up to the end of the unit, after an error.
    skips: bool,
    /// Deadline for the client's next request, once the server is about to end.
    goodbye: Option<Instant>,
}

/// An identified client.
struct Known {
    first: Introduction,
    user: String,
    rights: Rights,
    evidence: Evidence,
}

/// Hears who a client is; none if there is nothing to serve. An error is the last that it hears.
async fn introduced(stream: &mut Socket, wire: &Wire, input: &mut Vec<u8>) -> Result<Option<Known>, Stop> {
    let patience = wire.limits.silence_max;
    let gone = |_| Stop::Gone;
    // The client has canceled another, or says nothing.
    let Some(first) = timeout(patience, start(stream, wire, input)).await.map_err(gone)?? else { return Ok(None) };
    let user = first.value("user").unwrap_or("nobody").to_owned();
    let (rights, evidence) = match &wire.users {
        None => (Rights::all(), Evidence::Secret(None)),
        Some(users) => {
            let known = timeout(patience, authenticate(stream, input, wire, users, &user)).await.map_err(gone)??;
            (known.0.rights, known.1)
        }
    };
    Ok(Some(Known { first, user, rights, evidence }))
}

/// Serves a client from the first message to the end.
pub async fn serve(mut stream: Socket, wire: Arc<Wire>, (place, address): (Place, Who), closes: watch::Receiver<bool>) {
    let patience = wire.limits.silence_max;
    let mut input = Vec::new();
    let introduced = place.or_makes_way(introduced(&mut stream, &wire, &mut input)).await;
    let Known { first, user, rights, evidence } = match introduced {
        Some(Ok(Some(known))) => known,
        Some(Err(Stop::Error(error))) => return say_last(&mut stream, &error, patience).await,
        // The client has gone, or another has its place.
        _ => return,
    };
    let who = if wire.users.is_some() { Who::User(user.as_str().into()) } else { address };
    if !place.belongs_to(&who) {
        return say_last(&mut stream, &super::full(&wire), patience).await;
    }
    let client = Client::postgres(who);
    let bell = Arc::new(Notify::new());
    let (process, secret) = wire.enter(bell.clone());
    let database = first.value("database").unwrap_or(&user).to_owned();
    let mut connection = Connection {
        stream,
        closes,
        input,
        whole_by: None,
        queue: Queue::default(),
        statements: HashMap::new(),
        portals: HashMap::new(),
        memory: Memory::new(&wire.prepared, &client, wire.limits.prepared_bytes_max),
        settings: Settings::of(user.clone(), &first.parameters),
        listeners: BTreeMap::new(),
        block: Block::default(),
        turn: Turn::first(client),
        place,
        process,
        user,
        rights,
        rights_at: Instant::now(),
        evidence,
        database,
        bell,
        until: None,
        skips: false,
        goodbye: None,
        wire: wire.clone(),
    };
    connection.greet(&first, secret);
    match connection.run().await {
        Err(Stop::MakesWay) => connection.make_way().await,
        Err(Stop::Error(error)) => {
            backend::error(&mut connection.queue.output, &error);
            let _ = connection.write().await;
            connection.linger().await;
        }
        _ => {}
    }
    wire.leave(process);
}

/// The first message of a client.
struct Introduction {
    minor: u16,
    parameters: Vec<(String, String)>,
}

impl Introduction {
    fn value(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(other, value)| other == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads the first messages; none if there is nothing to serve.
async fn start(stream: &mut Socket, wire: &Wire, input: &mut Vec<u8>) -> Result<Option<Introduction>, Stop> {
    // A client may ask for each kind of encryption once.
    for _ in 0..3 {
        let first = loop {
            if let Some((first, length)) = frontend::first_message(input)? {
                input.drain(..length);
                break first;
            }
            if read(stream, input).await? == 0 {
                return Ok(None);
            }
        };
        match first {
            First::Tls | First::Gss if !input.is_empty() => {
                let message = "bytes follow a question for encryption that is not answered yet";
                return Err(PgError::fatal(code::PROTOCOL_VIOLATION, message).into());
            }
            First::Tls | First::Gss if stream.is_encrypted() => break,
            First::Tls => match &wire.tls {
                Some(tls) => {
                    stream.write_all(b"S").await?;
                    stream.encrypt(tls.certificate()).await?;
                }
                None => stream.write_all(b"N").await?,
            },
            First::Gss => stream.write_all(b"N").await?,
            First::Cancel { process, secret } => {
                wire.cancel(process, &secret);
                return Ok(None);
            }
            First::Startup { .. } if wire.tls.is_some() && !stream.is_encrypted() => {
                let message = "this server speaks TLS only; connect with sslmode=require";
                return Err(PgError::fatal(code::NOT_ALLOWED, message).into());
            }
            First::Startup { minor, parameters } => {
                if parameters.iter().any(|(name, _)| name == "replication") {
                    return Err(PgError { severity: Severity::Fatal, ..PgError::not_supported("replication") }.into());
                }
                return Ok(Some(Introduction { minor, parameters }));
            }
        }
    }
    Err(PgError::fatal(code::PROTOCOL_VIOLATION, "this question for encryption was answered before").into())
}

/// Reads what is there, when something is: the number of bytes, 0 at the end.
pub async fn read(stream: &mut Socket, input: &mut Vec<u8>) -> io::Result<usize> {
    poll_fn(|cx| poll_read(stream, cx, input)).await
}

fn poll_read(stream: &mut Socket, cx: &mut Context<'_>, input: &mut Vec<u8>) -> Poll<io::Result<usize>> {
    let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
    let mut bytes = ReadBuf::uninit(&mut bytes);
    Pin::new(stream).poll_read(cx, &mut bytes).map_ok(|()| {
        input.extend_from_slice(bytes.filled());
        bytes.filled().len()
    })
}

/// Writes all bytes, unless the client takes none for this time.
pub async fn write_all(stream: &mut Socket, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let late = |_| io::ErrorKind::TimedOut;
    while !bytes.is_empty() {
        let count = timeout(patience, stream.write(bytes)).await.map_err(late)??;
        bytes = &bytes[count..];
    }
    timeout(patience, stream.flush()).await.map_err(late)?
}

/// Waits until a time; for ever if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Hears who a client is, and tells it why it is not served.
pub async fn refuse(mut stream: Socket, wire: &Wire, error: &PgError) {
    if let Ok(Ok(Some(_))) = timeout(REFUSED_MAX, start(&mut stream, wire, &mut Vec::new())).await {
        say_last(&mut stream, error, REFUSED_MAX).await;
    }
}

/// Tells a client why it is not served.
async fn say_last(stream: &mut Socket, error: &PgError, patience: Duration) {
    let mut bytes = Vec::new();
    backend::error(&mut bytes, error);
    let _ = write_all(stream, &bytes, patience).await;
}

impl Connection {
    fn greet(&mut self, first: &Introduction, secret: u32) {
        let out = &mut self.queue.output;
        let unknown: Vec<&str> =
            first.parameters.iter().map(|(name, _)| &**name).filter(|n| n.starts_with("_pq_.")).collect();
        if first.minor > 0 || !unknown.is_empty() {
            backend::negotiate(out, &unknown);
        }
        backend::authenticated(out);
        self.settings.reported().for_each(|(name, value)| backend::parameter(out, name, &value));
        backend::key(out, self.process, secret);
        self.queue.ready(Status::Idle);
    }

    /// Handles messages until the end.
    async fn run(&mut self) -> Result<(), Stop> {
        loop {
            self.check_user()?;
            let was_stopped = match self.handle_all().await {
                Ok(()) => !self.has_room(),
                Err(Stop::Error(error)) => {
                    // Requests before the one with the error are answered first.
                    self.settle().await?;
                    return Err(error.into());
                }
                Err(Stop::Terminated) => return self.finish().await,
                Err(other) => return Err(other),
            };
            self.queue.settle(&self.wire);
            self.skips |= self.queue.take_skips();
            if self.queue.is_due || self.queue.output.len() > WRITE_BYTES {
                self.write().await?;
            }
            if self.queue.is_over {
                return Ok(());
            }
            let is_closing = self.wire.stopping.load(Ordering::Acquire);
            if is_closing && self.queue.is_settled() {
                // One who asks something more hears of it as the answer, the others after a while.
                let until = *self.goodbye.get_or_insert_with(|| Instant::now() + GOODBYE);
                let Ok(count) = timeout_at(until, read(&mut self.stream, &mut self.input)).await else {
                    return Err(PgError::fatal(code::CLOSING, CLOSING).into());
                };
                if count? == 0 {
                    return Ok(());
                }
                continue;
            }
            if was_stopped && self.has_room() {
                // Messages are left that have come.
                continue;
            }
            self.rests();
            let event = self.wait(self.has_room() && !is_closing).await?;
            self.place.is_busy();
            match event {
                Event::MakesWay => return Err(Stop::MakesWay),
                Event::End => return self.finish().await,
                Event::Input | Event::Outcome | Event::Closing => {}
                Event::Cancel => self.queue.cancel(),
                Event::Late => self.queue.cancel_late(Instant::now()),
                Event::GivesUp => self.block.give_up(),
                Event::Heard(channel, heard) => self.heard(&channel, &heard)?,
            }
        }
    }

    /// Marks the connection as silent if it waits for the next message, so that another client may get its place; not
    /// in a block, nor while it listens.
    fn rests(&self) {
        let is_idle = self.queue.is_settled() && self.block.status() == Status::Idle && self.listeners.is_empty();
        if is_idle {
            self.place.is_silent();
        }
    }

    /// Tells the client that another one gets its place.
    async fn make_way(&mut self) {
        let error = PgError::fatal(code::IDLE, "all connections are taken, and this one is needed for another client");
        say_last(&mut self.stream, &error, MAKES_WAY).await;
    }

    /// Checks that the user still exists, and takes its rights of now: the file of users may change while a client is
    /// connected.
    fn check_user(&mut self) -> PgResult<()> {
        let Some(file) = self.wire.users.as_ref().filter(|_| self.rights_at.elapsed() >= RIGHTS_MAX) else {
            return Ok(());
        };
        self.rights_at = Instant::now();
        let rights = file.rights_of(&self.user, &self.evidence, &self.rights);
        self.rights = rights.map_err(|why| PgError::fatal(code::NOT_ALLOWED, why))?;
        Ok(())
    }

    /// Checks that the user has a right.
    pub fn may(&self, right: Right, name: &str) -> PgResult<()> {
        match self.rights.refusal(&self.user, right, name) {
            None => Ok(()),
            Some(why) => Err(PgError::new(code::NO_RIGHT, why).hint("'tidemill user add' says what a user may do")),
        }
    }

    /// Returns whether more requests may be read: the limits of queued calls and bytes are not reached.
    fn has_room(&self) -> bool {
        self.queue.calls() < CALLS_MAX && self.queue.bytes() < QUEUED_BYTES_MAX
    }

    /// Handles the messages that are there, as long as there is room.
    async fn handle_all(&mut self) -> Result<(), Stop> {
        let mut at = 0;
        let handled = loop {
            if !self.has_room() {
                break Ok(());
            }
            let rest = &self.input[at..];
            let length = match frontend::length(rest, self.wire.limits.message_bytes_max) {
                Ok(length) => length.filter(|&length| length <= rest.len()),
                Err(error) => break Err(error.into()),
            };
            let Some(length) = length else { break Ok(()) };
            let message = frontend::message(&rest[..length]);
            at += length;
            let handled = match message {
                Ok(message) => self.handle(message).await,
                Err(error) => Err(error.into()),
            };
            if handled.is_err() {
                break handled;
            }
        };
        self.input.drain(..at);
        // A message that is there in part has its time.
        let patience = self.wire.limits.silence_max;
        let is_partial = !self.input.is_empty() && self.has_room();
        self.whole_by = is_partial.then(|| match at {
            0 => self.whole_by.unwrap_or_else(|| Instant::now() + patience),
            _ => Instant::now() + patience,
        });
        handled
    }

    /// Handles a message. An error that comes out ends the connection.
    async fn handle(&mut self, message: Message) -> Result<(), Stop> {
        if self.queue.take_skips() {
            self.skips = true;
        }
        match message {
            Message::Terminate => return Err(Stop::Terminated),
            Message::Sync => {
                self.skips = false;
                self.end_unit();
            }
            _ if self.skips => {}
            Message::Query(text) => {
                let done = self.simple(&text).await;
                self.failed(done)?;
                self.end_unit();
            }
            Message::Flush => self.queue.flush(),
            Message::Copy => {}
            message => {
                let done = self.extended(message).await;
                self.skips = self.failed(done)?;
            }
        }
        Ok(())
    }

    /// Tells the client of an error, if it is one after which the connection goes on; whether there was one.
    fn failed(&mut self, done: Result<(), Stop>) -> Result<bool, Stop> {
        match done {
            Ok(()) => Ok(false),
            Err(Stop::Error(error)) if error.severity == Severity::Error => {
                backend::error(self.queue.out(), &error);
                // Its client may wait for it and send nothing before.
                self.queue.flush();
                self.block.fail();
                Ok(true)
            }
            Err(other) => Err(other),
        }
    }

    /// Makes the client wait for the end of the messages that it has sent together.
    fn end_unit(&mut self) {
        let status = self.block.status();
        if status == Status::Idle {
            self.portals.clear();
            self.memory.forget_all(Target::Portal);
        }
        self.queue.ready(status);
    }

    /// Waits until no call is under way.
    pub async fn settle(&mut self) -> Result<(), Stop> {
        loop {
            self.queue.settle(&self.wire);
            if self.queue.is_settled() {
                return Ok(());
            }
            if self.queue.is_due || self.queue.output.len() > WRITE_BYTES {
                self.write().await?;
            }
            match self.wait(false).await? {
                Event::Cancel => self.queue.cancel(),
                Event::Late => self.queue.cancel_late(Instant::now()),
                Event::MakesWay => return Err(Stop::MakesWay),
                _ => {}
            }
        }
    }

    /// Answers what was asked, where nothing follows: the client may have sent all of it at once, its goodbye included.
    async fn finish(&mut self) -> Result<(), Stop> {
        self.settle().await?;
        Ok(self.write().await?)
    }

    /// Begins to count the time of a statement.
    pub fn begin_statement(&mut self) {
        self.until = self.settings.statement_time_max().map(|time| Instant::now() + time);
    }

    /// Waits for something that another thread gives, no longer than the statement may take. None if that thread ends
    /// before.
    pub async fn answer<T>(&mut self, answer: impl Future<Output = T>) -> PgResult<T> {
        let bell = self.bell.clone();
        let (mut rung, mut answer) = (pin!(bell.notified()), pin!(answer));
        let mut late = pin!(at(self.until));
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(Ok(answer));
            }
            if late.as_mut().poll(cx).is_ready() {
                let message = "canceling statement due to statement timeout";
                return Poll::Ready(Err(PgError::new(code::CANCELED, message)));
            }
            let canceled = || Err(PgError::new(code::CANCELED, "canceled, as the client has asked"));
            rung.as_mut().poll(cx).map(|()| canceled())
        })
        .await
    }

    async fn wait(&mut self, takes_input: bool) -> Result<Event, Stop> {
        let (bell, mut closes) = (self.bell.clone(), self.closes.clone());
        let mut makes_way = pin!(self.place.makes_way());
        let (stream, input) = (&mut self.stream, &mut self.input);
        let (queue, listeners) = (&mut self.queue, &mut self.listeners);
        let is_closing = self.wire.stopping.load(Ordering::Acquire);
        let whole_by = self.whole_by.filter(|_| takes_input && queue.is_settled());
        let (mut rung, mut closed) = (pin!(bell.notified()), pin!(closes.wait_for(|closed| *closed)));
        let (mut gives_up, mut late) = (pin!(at(self.block.gives_up())), pin!(at(queue.until())));
        let event = poll_fn(|cx| {
            if queue.poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::Outcome));
            }
            if rung.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::Cancel));
            }
            if late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::Late));
            }
            if takes_input && let Poll::Ready(read) = poll_read(stream, cx, input) {
                return Poll::Ready(read.map(|count| if count == 0 { Event::End } else { Event::Input }));
            }
            if takes_input && queue.is_settled() {
                for (channel, listener) in listeners.iter_mut() {
                    if let Poll::Ready(heard) = listener.poll(cx) {
                        return Poll::Ready(Ok(Event::Heard(channel.clone(), heard)));
                    }
                }
            }
            if makes_way.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::MakesWay));
            }
            if gives_up.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::GivesUp));
            }
            if !is_closing && closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(Event::Closing));
            }
            Poll::Pending
        });
        match whole_by {
            None => Ok(event.await?),
            Some(by) => timeout_at(by, event).await.map(|event| Ok(event?)).unwrap_or_else(|_| {
                let message = "a message did not come to its end in time";
                Err(PgError::fatal(code::PROTOCOL_VIOLATION, message).into())
            }),
        }
    }

    /// Says that nothing follows, and hears the client out for a while: the last error would be lost, if the connection
    /// were closed with bytes that nobody has read.
    async fn linger(&mut self) {
        let (stream, input) = (&mut self.stream, &mut self.input);
        let heard = async {
            stream.shutdown().await?;
            loop {
                input.clear();
                if read(stream, input).await? == 0 {
                    return io::Result::Ok(());
                }
            }
        };
        let _ = timeout(REFUSED_MAX, heard).await;
    }

    /// Writes what can be sent.
    pub async fn write(&mut self) -> io::Result<()> {
        self.queue.is_due = false;
        let bytes = std::mem::take(&mut self.queue.output);
        write_all(&mut self.stream, &bytes, self.wire.limits.silence_max).await?;
        if bytes.capacity() <= 2 * WRITE_BYTES {
            self.queue.output = bytes;
            self.queue.output.clear();
        }
        Ok(())
    }
}
