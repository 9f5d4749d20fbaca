//! Calls, reads and pushes over HTTP, and calls and reads over the protocol of PostgreSQL, for a running [`Session`].
//!
//! One thread serves all connections of HTTP (`http`, on `tokio`) and one those of PostgreSQL (`postgres`); they never wait
//! for the engine. Others stand between them and the session: one sends calls and one takes their replies (`calls`), one
//! asks for tables and sends what is pushed (`asks`), and one follows each stream that has readers (`follow`). SQL is
//! answered by an engine that the server is given (`queries`), on a thread for each query. Rows are written as bytes on
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
mod calling;
mod calls;
mod console;
mod file_version;
mod follow;
mod http;
mod identity;
mod index;
mod limits;
mod listen;
mod metrics;
mod pieces;
mod postgres;
mod queries;
mod rows;
mod shared;
mod slots;
mod socket;
mod tls;
mod users;

use asks::Asks;
pub use asks::Snapshot;
use calls::Calls;
use console::refused::Tails;
use follow::Hubs;
use http::Listening;
pub use limits::Limits;
pub use metrics::{Labels, Metric, MetricKind, Metrics};
use parking_lot::Mutex;
pub use postgres::PORT as POSTGRES_PORT;
use postgres::Wire;
use queries::Asking;
pub use queries::{Queried, Queries, Query, QueryError, QueryForm, QueryLimits, Waits};
use shared::Shared;
use slots::Slots;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tidemill_runtime::Session;
use tls::Tls;
pub use tls::{TlsError, TlsFiles};
use tokio::sync::watch;
use users::UsersFile;
pub use users::{Rights, User, Users, UsersError};

/// The port if none is given.
pub const PORT: u16 = 8740;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// An address of this machine, or `localhost`.
    pub host: String,
    /// 0: any that is free.
    pub port: u16,
    /// That of the protocol of PostgreSQL, if it is spoken; 0: any that is free.
    pub postgres_port: Option<u16>,
    /// A file of users: then everybody is asked who he is.
    pub users: Option<PathBuf>,
    /// The certificate of the server: then all that is sent is encrypted, and who does not encrypt is refused.
    pub tls: Option<TlsFiles>,
    /// Whether an address is allowed that other machines reach, without users or without a certificate.
    pub insecure: bool,
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
            tls: None,
            insecure: false,
            limits: Limits::default(),
        }
    }
}

/// Why nothing can be served.
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
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(TlsError),
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
    closing: watch::Sender<bool>,
    threads: Mutex<Threads>,
}

/// Those of connections, and those that answer what these wait for.
#[derive(Default)]
struct Threads {
    connections: Vec<JoinHandle<()>>,
    asking: Option<JoinHandle<()>>,
}

/// Opens a port.
fn bind(address: SocketAddr, option: &'static str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let opened = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    opened().map_err(|source| ServeError::Bind { address, option, source })
}

impl Server {
    /// Begins to serve a session.
    pub fn start(session: Arc<Session>, options: ServeOptions) -> Result<Server, ServeError> {
        Server::start_with(session, options, None)
    }

    /// The same, with an engine that answers queries.
    pub fn start_with(
        session: Arc<Session>,
        options: ServeOptions,
        engine: Option<Arc<dyn Queries>>,
    ) -> Result<Server, ServeError> {
        let ServeOptions { host, port, postgres_port, users, tls, insecure, limits } = options;
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
        let tls = tls.map(Tls::open).transpose().map_err(ServeError::Tls)?.map(Arc::new);
        let users = users.map(|path| UsersFile::open(&path)).transpose().map_err(ServeError::Users)?.map(Arc::new);
        let (listener, address) = bind(SocketAddr::new(ip, port), "--port")?;
        let postgres = postgres_port.map(|port| bind(SocketAddr::new(ip, port), "--postgres-port")).transpose()?;
        let calls = Arc::new(Calls::new(session.clone(), limits.calls_max));
        let (asks, asking) = Asks::start(session.clone(), limits.asks_max).map_err(ServeError::Begin)?;
        let of_query = QueryLimits {
            time_max: limits.query_time_max,
            rows_max: limits.query_rows_max,
            memory_max: limits.query_memory_max / limits.queries_max.max(1),
        };
        let queries = Arc::new(Asking::new(engine, limits.queries_max, limits.queries_waiting_max, of_query));
        let hubs = Arc::new(Hubs::new(session.clone(), limits.readers_max));
        let shared = Arc::new(Shared {
            queries,
            hubs,
            tails: Tails::new(session.clone()),
            recalls: Slots::new(1),
            session,
            calls,
            asks,
            limits,
            only_loopback: ip.is_loopback(),
            users,
            tls,
            stopping: AtomicBool::new(false),
            connections: Default::default(),
            postgres_connections: Default::default(),
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
        let threads = Mutex::new(Threads { connections, asking: Some(asking) });
        Ok(Server { address, postgres_address, shared, wire, closing, threads })
    }

    /// Where it is served.
    pub fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// What it counts.
    pub fn metrics(&self) -> Metrics {
        Metrics(self.shared.clone())
    }

    /// The address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients of PostgreSQL connect to, if they are served. They may name any database; this one names the
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
        asking.into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain();
    }
}
