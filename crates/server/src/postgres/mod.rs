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

mod backend;
mod block;
mod catalog;
mod connection;
mod engine;
mod error;
mod execute;
mod expressions;
mod frontend;
mod given;
mod names;
mod portal;
mod queue;
mod reply;
mod settings;
mod statement;
mod types;
mod understand;
mod wire;

use error::{PgError, code};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
pub use wire::{Wire, WireLimits};

/// The port if none is given, beside which a server of PostgreSQL has its own.
pub const PORT: u16 = 5433;

/// The pause after a connection could not be accepted, for lack of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A statement is read and freed by recursion, as deep as its text allows.
const STACK_BYTES: usize = 16 << 20;

/// A server before it begins.
pub struct Listening {
    pub listener: std::net::TcpListener,
    pub wire: Arc<Wire>,
    pub closes: watch::Receiver<bool>,
}

impl Listening {
    /// Starts the thread.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(self.listener)?
        };
        let (wire, closes) = (self.wire, self.closes);
        let run = move || runtime.block_on(serve(listener, wire, closes));
        thread::Builder::new().name("postgres".into()).stack_size(STACK_BYTES).spawn(run)
    }
}

/// Accepts connections until the server closes; then waits for those that are open.
async fn serve(listener: TcpListener, wire: Arc<Wire>, closes: watch::Receiver<bool>) {
    let mut closed = closes.clone();
    loop {
        let accepted = {
            let (mut closed, mut accept) = (pin!(closed.wait_for(|closed| *closed)), pin!(listener.accept()));
            poll_fn(|cx| match closed.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => accept.as_mut().poll(cx).map(Some),
            })
            .await
        };
        match accepted {
            None => break,
            Some(Ok((stream, _))) => accept(stream, &wire, &closes),
            Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let all_closed = async {
        while wire.connections.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = timeout(wire.limits.drain_max, all_closed).await;
}

/// Serves a connection, or refuses it if there are too many.
fn accept(stream: TcpStream, wire: &Arc<Wire>, closes: &watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let (wire, closes) = (wire.clone(), closes.clone());
    if wire.connections.load(Ordering::Acquire) >= wire.limits.connections_max {
        let message = format!("{} connections are open; try again", wire.limits.connections_max);
        let error = PgError::fatal(code::TOO_MANY_CONNECTIONS, message);
        tokio::spawn(async move { connection::refuse(&stream, &wire, &error).await });
        return;
    }
    wire.connections.fetch_add(1, Ordering::AcqRel);
    tokio::spawn(async move {
        let open = Open(wire.clone());
        connection::serve(stream, wire, closes).await;
        drop(open);
    });
}

/// Counts a connection.
struct Open(Arc<Wire>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
