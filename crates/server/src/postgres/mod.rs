//! The protocol of PostgreSQL, version 3: calls and reads for its clients, of every language.
//!
//! A procedure is called as a function, and tables are read by key or whole; there is no SQL beyond that yet. What
//! comes in is read by `frontend`, understood by `understand` (text to a [`statement::Statement`]), and done by a
//! `connection` and its messages (`execute`). What goes out is written by `backend`, in the order that `queue` keeps. One thread
//! serves all connections, beside that of HTTP, and never waits for the engine.
//!
//! # Invariant
//!
//! That of the server: a call is answered once its epoch is durable, with its own outcome, and what is refused never
//! enters the history. And: no message is read beyond its end, nothing in SQL is left out that is not understood, and
//! nobody is told that something was undone that has committed.

mod arrays;
mod authenticate;
mod backend;
mod block;
mod catalog;
mod catalogs;
mod connection;
mod engine;
mod error;
mod execute;
mod expressions;
mod facts;
mod frontend;
mod given;
mod listening;
mod memory;
mod names;
mod portal;
mod queue;
mod reply;
mod settings;
mod snapshot;
mod statement;
mod types;
mod understand;
mod wire;
mod words;

use crate::listen::{Accepted, Listen};
use crate::socket::Socket;
use error::{PgError, code};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::watch;
pub use wire::{Wire, WireLimits};

/// The port if none is given, beside which a server of PostgreSQL has its own.
pub const PORT: u16 = 5433;

/// A server before it begins.
pub struct Listening {
    pub listener: std::net::TcpListener,
    pub wire: Arc<Wire>,
    pub closes: watch::Receiver<bool>,
}

impl Listening {
    /// Starts the thread.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let Listening { listener, wire, closes } = self;
        let listen = Listen {
            thread: thread::Builder::new().name("postgres".into()).stack_size(words::STACK_BYTES),
            listener,
            connections: Arc::default(),
            places: wire.places.clone(),
            drain_max: wire.limits.drain_max,
            closes: closes.clone(),
        };
        listen.start(move |accepted| accept(accepted, &wire, &closes))
    }
}

/// Says that there are too many connections.
fn full(wire: &Wire) -> PgError {
    let message = format!("{} connections are open", wire.limits.connections_max);
    PgError::fatal(code::TOO_MANY_CONNECTIONS, message).again()
}

/// Serves a connection, or refuses it if there are too many.
fn accept(accepted: Accepted, wire: &Arc<Wire>, closes: &watch::Receiver<bool>) {
    let (wire, closes) = (wire.clone(), closes.clone());
    let Accepted { stream, who, place, open } = accepted;
    tokio::spawn(async move {
        match place {
            Some(place) => connection::serve(Socket::Plain(stream), wire, (place, who), closes).await,
            None => connection::refuse(Socket::Plain(stream), &wire, &full(&wire)).await,
        }
        drop(open);
    });
}
