//! The thread of a protocol: it accepts connections until the server closes, and waits for those that are open.

use crate::connections::{self, Connections, Place};
use crate::patient;
use crate::shares::Who;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// The pause after a connection could not be accepted, for lack of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The time that the end waits for work that requests have begun on other threads.
const LEFT_MAX: Duration = Duration::from_secs(1);
/// The connections beyond those that have a place, which are told why they are refused.
pub const REFUSED_MAX: usize = 32;

/// A protocol's listener, before it begins.
pub struct Listen {
    /// The thread.
    pub thread: thread::Builder,
    pub listener: std::net::TcpListener,
    /// The open connections, also those that are about to close.
    pub connections: Arc<AtomicUsize>,
    pub places: Arc<Connections>,
    /// The longest time that the end waits for connections to close.
    pub drain_max: Duration,
    pub closes: watch::Receiver<bool>,
}

/// A connection that was accepted.
pub struct Accepted {
    pub stream: TcpStream,
    /// The client by its address, as long as it has not said who it is.
    pub who: Who,
    /// The connection's place among the open ones; none if there are too many.
    pub place: Option<Place>,
    /// Counts the connection as open.
    pub open: Open,
}

/// Counts a connection until it is dropped.
pub struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(counted: &Arc<AtomicUsize>) -> Open {
        counted.fetch_add(1, Ordering::AcqRel);
        Open(counted.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Listen {
    /// Starts the thread. `accept` gets each connection.
    pub fn start(self, accept: impl Fn(Accepted) + Send + 'static) -> io::Result<JoinHandle<()>> {
        let Listen { thread, listener, connections, places, drain_max, closes } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let counted = connections.clone();
        let accept = move |stream: TcpStream, from: SocketAddr| {
            let most = places.limit() + connections::GUESTS_MAX + REFUSED_MAX;
            if counted.load(Ordering::Acquire) >= most {
                // So many are heard out or about to close that this one cannot even be refused in words.
                return;
            }
            let _ = stream.set_nodelay(true);
            patient::hold_little(&stream);
            let who = Who::at(from.ip());
            accept(Accepted { place: places.enter(who.clone()), open: Open::new(&counted), stream, who });
        };
        let run = async move {
            accept_all(listener, closes, accept).await;
            let _ = timeout(drain_max, all_closed(&connections)).await;
        };
        thread.spawn(move || {
            runtime.block_on(run);
            // Work that a request has begun on another thread may wait for the engine, which may wait for room on the
            // disk.
            runtime.shutdown_timeout(LEFT_MAX);
        })
    }
}

/// Accepts connections until the server closes.
pub async fn accept_all(
    listener: TcpListener,
    mut closed: watch::Receiver<bool>,
    accept: impl Fn(TcpStream, SocketAddr),
) {
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
            None => return,
            Some(Ok((stream, from))) => {
                accept(stream, from);
                // Those that have just been told to make way go first: while they are open, they count.
                tokio::task::yield_now().await;
            }
            Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn all_closed(connections: &AtomicUsize) {
    while connections.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
