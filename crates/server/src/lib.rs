//! Calls, reads and pushes over HTTP, and calls and reads over the protocol of PostgreSQL, for a running [`Session`].
//!
//! One thread serves all connections of HTTP (`http`, on `tokio`) and one those of PostgreSQL (`postgres`); they never wait
//! for the engine. Others stand between them and the session: one sends calls and one takes their replies (`calls`), one
//! asks for tables and one sends what is pushed (`asks`), and one follows each stream that has readers (`follow`). SQL is
//! answered in processes of their own (`queries`). Rows are written as bytes on
//! further threads (`pieces`). The `console` is a page for browsers, and what it asks for. Nothing below this crate knows
//! of `async`.
//!
//! # Invariant
//!
//! A call is answered once its epoch is durable, and with its own outcome; one that is refused never enters the history.
//! Whatever a client does or leaves undone, the engine waits for no client: what is on its way is bounded by [`Limits`],
//! and beyond them a request is refused at once.

mod access;
mod answer;
mod asks;
mod caller;
mod calling;
mod calls;
mod certificates;
mod connections;
mod console;
mod file_version;
mod follow;
mod held;
mod http;
mod identity;
mod index;
mod limits;
mod listen;
mod metrics;
mod openapi;
mod patient;
mod percent;
mod pieces;
mod postgres;
mod queries;
mod querying;
mod rows;
mod savepoints;
mod served;
mod shared;
mod shares;
mod slots;
mod socket;
mod tls;
mod traces;
mod turns;
mod unique;
mod users;

use asks::Asks;
pub use asks::Snapshot;
use calls::Calls;
use connections::Connections;
use console::refused::Tails;
use follow::Hubs;
use held::Held;
use http::Listening;
pub use limits::Limits;
pub use metrics::{Count, Labels, Metric, MetricKind, Metrics, MetricsError, MetricsServer, PlainMetric};
use parking_lot::Mutex;
pub use postgres::PORT as POSTGRES_PORT;
use postgres::Wire;
use queries::{Asking, Processes, Queries, QueryLimits};
pub use queries::{
    IsWanted, Launch, ProcessEngine, ProcessFailure, ProcessQuery, QueryForm, Sealed, SharedTable, answer_queries, seal,
};
use savepoints::Savepoints;
use shared::Shared;
use shares::Shares;
use slots::Slots;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tidemill_connect::raise_open_files;
use tidemill_durability::Planted;
use tidemill_runtime::Session;
use tls::Tls;
pub use tls::{ClientCertificates, TlsError, TlsFiles, WithoutCertificate};
use tokio::sync::watch;
use traces::Traces;
pub use traces::{TraceError, TraceOptions};
pub use users::{JwtError, JwtOptions, Rights, User, Users, UsersError};
use users::{Tokens, UsersFile};

/// The longest that the beginning waits for a run to be ready.
const READY_MAX: Duration = Duration::from_secs(1);
/// The port if none is given.
pub const PORT: u16 = 8740;

/// The addresses, users, encryption and limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// An address of this machine, or `localhost`.
    pub host: String,
    /// 0: any that is free.
    pub port: u16,
    /// The port of the protocol of PostgreSQL, if it is spoken; 0: any that is free.
    pub postgres_port: Option<u16>,
    /// The file of users; with it each client must say who it is.
    pub users: Option<PathBuf>,
    /// The JWTs that name users, if they are taken.
    pub jwt: Option<JwtOptions>,
    /// The certificate and key of the server; with them all connections are encrypted, and others are refused.
    pub tls: Option<TlsFiles>,
    /// A flag: whether it may listen at an address that other machines reach although it has no users or no
    /// certificate.
    pub insecure: bool,
    /// The collector to which traces of calls are sent, if they are.
    pub traces: Option<TraceOptions>,
    /// Limits.
    pub limits: Limits,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        let postgres_port = Some(POSTGRES_PORT);
        ServeOptions {
            host: "127.0.0.1".into(),
            port: PORT,
            postgres_port,
            users: None,
            jwt: None,
            tls: None,
            insecure: false,
            traces: None,
            limits: Limits::default(),
        }
    }
}

/// The reason why nothing can be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The host is no address.
    #[error("'{0}' is not an address to serve on; give one such as 127.0.0.1, or localhost")]
    Host(String),
    /// Others could reach the address.
    #[error(
        "{0} is reachable from other machines, and anybody there could call: the server does not ask who they are; give a file \
         of users with --users, or allow it with --insecure"
    )]
    Insecure(IpAddr),
    /// Others could hear what is sent.
    #[error(
        "{0} is reachable from other machines, and what is sent is not encrypted; give a certificate with --tls-cert and \
         --tls-key, or allow it with --insecure"
    )]
    Unencrypted(IpAddr),
    /// The users cannot be read.
    #[error(transparent)]
    Users(UsersError),
    /// The keys of JWTs cannot be used.
    #[error(transparent)]
    Jwt(JwtError),
    /// Certificates and JWTs would name users, and there are none.
    #[error(
        "certificates of clients and JWTs name users of a file, which says what these may do; give it with --users"
    )]
    NoUsers,
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(TlsError),
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(TraceError),
    /// The port cannot be opened.
    #[error("cannot serve on {address}: {source}; give another {option}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The option that says the port.
        option: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The system gives no threads or events.
    #[error("cannot begin to serve: {0}")]
    Begin(#[source] io::Error),
}

/// A server. It ends when it is drained or dropped.
pub struct Server {
    address: SocketAddr,
    postgres_address: Option<SocketAddr>,
    shared: Arc<Shared>,
    wire: Option<Arc<Wire>>,
    /// A message for the server's operator, such as that fewer connections are possible than were asked for.
    notice: Option<String>,
    closing: watch::Sender<bool>,
    threads: Mutex<Threads>,
}

/// The threads of connections, and the threads that answer what these wait for.
#[derive(Default)]
struct Threads {
    connections: Vec<JoinHandle<()>>,
    asking: Vec<JoinHandle<()>>,
}

/// Opens a port.
/// The connections that wait to be accepted, if the system allows as many.
const WAITING_MAX: i32 = 4_096;

fn bind(address: SocketAddr, option: &'static str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let opened = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // One that ended just now does not keep the next one from its port.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(WAITING_MAX)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    opened().map_err(|source| ServeError::Bind { address, option, source })
}

/// Lowers the number of connections to what the process may open, and says so.
fn within_descriptors(limits: Limits, protocols: u64) -> (Limits, Option<String>) {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections_max = limits.connections_of(descriptors, protocols);
    let asked = limits.connections_max;
    let notice = (connections_max < asked).then(|| {
        format!(
            "the process may open {descriptors} files, so there are at most {connections_max} connections of each protocol \
             and not {asked}; 'ulimit -n' allows more"
        )
    });
    (Limits { connections_max, ..limits }, notice)
}

impl Server {
    /// Begins to serve a session.
    pub fn start(session: Arc<Session>, options: ServeOptions) -> Result<Server, ServeError> {
        Server::start_with(session, options, None)
    }

    /// Starts a server as [`Server::start`] does, with processes that answer queries if there is a program for them.
    pub fn start_with(
        session: Arc<Session>,
        options: ServeOptions,
        launch: Option<Launch>,
    ) -> Result<Server, ServeError> {
        let ServeOptions { host, port, postgres_port, users, jwt, tls, insecure, traces, limits } = options;
        let ip = match host.as_str() {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => host.trim_matches(['[', ']']).parse().map_err(|_| ServeError::Host(host.into()))?,
        };
        if !ip.is_loopback() && !insecure && users.is_none() {
            return Err(ServeError::Insecure(ip));
        }
        if !ip.is_loopback() && !insecure && tls.is_none() {
            return Err(ServeError::Unencrypted(ip));
        }
        let names_users = jwt.is_some() || tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        if names_users && users.is_none() {
            return Err(ServeError::NoUsers);
        }
        // If the limit of open files cannot be raised, it stays as it was.
        let _ = raise_open_files();
        let tls = tls.map(Tls::open).transpose().map_err(ServeError::Tls)?.map(Arc::new);
        let tokens = jwt.map(Tokens::open).transpose().map_err(ServeError::Jwt)?;
        let users =
            users.map(|path| UsersFile::open(&path, tokens)).transpose().map_err(ServeError::Users)?.map(Arc::new);
        let (listener, address) = bind(SocketAddr::new(ip, port), "--port")?;
        let postgres = postgres_port.map(|port| bind(SocketAddr::new(ip, port), "--postgres-port")).transpose()?;
        let (limits, notice) = within_descriptors(limits, if postgres.is_some() { 2 } else { 1 });
        let places = |limit| Shares::places(limit, Planted::default());
        let application = &session.engine().program().name;
        let traces =
            traces.map(|traces| Traces::start(&traces, application)).transpose().map_err(ServeError::Traces)?;
        let calls = Arc::new(Calls::new(session.clone(), places(limits.calls_max), traces));
        let (asks, asking) = Asks::start(session.clone(), places(limits.asks_max)).map_err(ServeError::Begin)?;
        let of_query = QueryLimits {
            time_max: limits.query_time_max,
            rows_max: limits.query_rows_max,
            memory_max: limits.memory_of_query(),
        };
        let of_tables = limits.memory_of_tables();
        let start = |launch| Processes::start(session.clone(), launch, limits.queries_max, of_tables, of_query);
        let processes = launch.map(start).transpose().map_err(ServeError::Begin)?;
        let engine = processes.map(|processes| Arc::new(processes) as Arc<dyn Queries>);
        let queries = Arc::new(Asking::new(engine, limits.queries_max, limits.queries_waiting_max, of_query));
        let hubs = Arc::new(Hubs::new(session.clone(), places(limits.readers_max)));
        let connected = || Connections::new(limits.connections_max, users.is_some(), limits.silence_max);
        let (http, wired) = (connected(), connected());
        let recalls = Slots::new(1);
        let shared = Arc::new(Shared {
            savepoints: Savepoints::new(session.clone(), recalls.clone()),
            queries,
            hubs,
            tails: Tails::new(session.clone()),
            recalls,
            session,
            calls,
            asks,
            limits,
            only_loopback: ip.is_loopback(),
            users,
            tls,
            stopping: AtomicBool::new(false),
            places: http,
            postgres_places: wired,
            held: Arc::new(Held::new(Shares::bytes(limits.responses_bytes_max, Planted::default()))),
        });
        let (closing, closes) = watch::channel(false);
        let listening = Listening { listener, shared: shared.clone(), closes: closes.clone() };
        let mut connections = vec![listening.start().map_err(ServeError::Begin)?];
        let postgres_address = postgres.as_ref().map(|(_, address)| *address);
        let mut wire = None;
        if let Some((listener, _)) = postgres {
            let shared = Arc::new(Wire::of(&shared));
            let listening = postgres::Listening { listener, wire: shared.clone(), closes };
            connections.push(listening.start().map_err(ServeError::Begin)?);
            wire = Some(shared);
        }
        let threads = Mutex::new(Threads { connections, asking: asking.into() });
        let server = Server { address, postgres_address, shared, wire, notice, closing, threads };
        server.wait_until_ready();
        Ok(server)
    }

    /// Waits until the run is ready, but not for long: who asks at once is answered by most runs, and one that has much to
    /// replay says meanwhile that it is not ready.
    fn wait_until_ready(&self) {
        let until = Instant::now() + READY_MAX;
        while !self.shared.session.is_ready() && !self.shared.session.is_over() && Instant::now() < until {
            thread::sleep(READY_MAX / 1_000);
        }
    }

    /// Returns a message for the server's operator, if there is one: that it has fewer connections than were asked for.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns a handle to the server's metrics.
    pub fn metrics(&self) -> Metrics {
        Metrics(self.shared.clone())
    }

    /// Returns the address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients of PostgreSQL, if they are served. They may name any database; this one names the
    /// application.
    pub fn postgres_url(&self, application: &str) -> Option<String> {
        let encrypted = if self.shared.tls.is_some() { "?sslmode=require" } else { "" };
        self.postgres_address.map(|address| format!("postgresql://{address}/{application}{encrypted}"))
    }

    /// Takes no more requests, answers those that are under way, and ends: at the latest after
    /// [`Limits::drain_max`]. The session goes on.
    pub fn drain(&self) {
        self.shared.stop();
        if let Some(wire) = &self.wire {
            wire.stopping.store(true, Ordering::Release);
        }
        self.closing.send_replace(true);
        let Threads { connections, asking } = std::mem::take(&mut *self.threads.lock());
        // Connections end first: what they wait for is answered by the other threads. A thread that panicked has said so.
        connections.into_iter().for_each(|thread| _ = thread.join());
        self.shared.asks.stop();
        self.shared.queries.stop();
        asking.into_iter().for_each(|thread| _ = thread.join());
        self.shared.calls.traces().into_iter().for_each(|traces| traces.stop());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain();
    }
}
