//! Calls, reads and pushes over HTTP, for a running [`Session`].
//!
//! One thread serves all connections (`http`, on `tokio`); it never waits for the engine. Others stand between it and
//! the session: one sends calls and one takes their replies (`calls`), one asks for tables and sends what is pushed
//! (`asks`), and one follows each stream that has readers (`follow`). SQL is answered by an engine that the server is
//! given (`queries`), on a thread for each query. The `console` is a page for browsers, and what it asks for. Nothing below this crate knows of `async`.
//!
//! # Invariant
//!
//! A call is answered once its epoch is durable, and with its own outcome; one that is refused never enters the history.
//! Whatever a client does or leaves undone, the engine waits for no client: what is on its way is bounded by [`Limits`],
//! and beyond them a request is refused at once.

mod access;
mod answer;
mod asks;
mod calls;
mod console;
mod follow;
mod http;
mod index;
mod limits;
mod metrics;
mod queries;
mod rows;
mod shared;
mod slots;

use asks::Asks;
use calls::Calls;
use console::refused::Tails;
use follow::Hubs;
use http::Listening;
pub use limits::Limits;
use parking_lot::Mutex;
use queries::Asking;
pub use queries::{Queried, Queries, Query, QueryError, QueryLimits};
use shared::Shared;
use slots::Slots;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use tidemill_runtime::Session;
use tokio::sync::watch;

/// The port if none is given.
pub const PORT: u16 = 8740;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// An address of this machine, or `localhost`.
    pub host: String,
    /// 0: any that is free.
    pub port: u16,
    /// Whether an address is allowed that other machines reach. Nobody is asked who he is.
    pub insecure: bool,
    /// Limits.
    pub limits: Limits,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions { host: "127.0.0.1".into(), port: PORT, insecure: false, limits: Limits::default() }
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
        "{0} is reachable from other machines, and anybody there could call: the server does not ask who they are; serve on \
         127.0.0.1 behind a proxy that does, or allow it with --insecure"
    )]
    Insecure(IpAddr),
    /// The port cannot be opened.
    #[error("cannot serve on {address}: {source}; give another --port")]
    Bind {
        /// The address.
        address: SocketAddr,
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
    shared: Arc<Shared>,
    closing: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
        let ServeOptions { host, port, insecure, limits } = options;
        let ip = match host.as_str() {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => host.trim_matches(['[', ']']).parse().map_err(|_| ServeError::Host(host.into()))?,
        };
        if !ip.is_loopback() && !insecure {
            return Err(ServeError::Insecure(ip));
        }
        let address = SocketAddr::new(ip, port);
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let (calls, mut threads) = Calls::start(session.clone(), limits.calls_max).map_err(ServeError::Begin)?;
        let (asks, asking) = Asks::start(session.clone(), limits.asks_max).map_err(ServeError::Begin)?;
        threads.push(asking);
        let of_query = QueryLimits { time_max: limits.query_time_max, rows_max: limits.query_rows_max };
        let shared = Arc::new(Shared {
            queries: Asking::new(engine, limits.queries_max, of_query),
            hubs: Hubs::new(session.clone(), limits.readers_max),
            tails: Tails::new(session.clone()),
            recalls: Slots::new(1),
            session,
            calls,
            asks,
            limits,
            only_loopback: ip.is_loopback(),
            stopping: AtomicBool::new(false),
            connections: Default::default(),
        });
        let (closing, closes) = watch::channel(false);
        let listening = Listening { listener, shared: shared.clone(), closes };
        threads.push(listening.start().map_err(ServeError::Begin)?);
        Ok(Server { address, shared, closing, threads: Mutex::new(threads) })
    }

    /// The address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, answers those that are under way, and ends: at the latest after
    /// [`Limits::drain_max`]. The session goes on.
    pub fn drain(&self) {
        self.shared.stop();
        self.closing.send_replace(true);
        let threads: Vec<JoinHandle<()>> = std::mem::take(&mut *self.threads.lock());
        // Connections end first: what they wait for is answered by the other threads.
        for thread in threads.into_iter().rev() {
            // A thread that panicked has said so.
            let _ = thread.join();
            self.shared.calls.stop();
            self.shared.asks.stop();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain();
    }
}
