//! The thread of a protocol: it accepts connections until the server closes, and waits for those that are open.

use std::future::{Future, poll_fn};
use std::io;
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

/// A protocol's listener, before it begins.
pub struct Listen {
    /// The thread.
    pub thread: thread::Builder,
    pub listener: std::net::TcpListener,
    /// The open connections.
    pub connections: Arc<AtomicUsize>,
    pub connections_max: usize,
    /// How long the end waits for connections.
    pub drain_max: Duration,
    pub closes: watch::Receiver<bool>,
}

/// Counts a connection until it is dropped.
pub struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Listen {
    /// Starts the thread. `accept` gets each connection; without a count if there are too many.
    pub fn start(self, accept: impl Fn(TcpStream, Option<Open>) + Send + 'static) -> io::Result<JoinHandle<()>> {
        let Listen { thread, listener, connections, connections_max, drain_max, closes } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let counted = connections.clone();
        let accept = move |stream: TcpStream| {
            let _ = stream.set_nodelay(true);
            let is_full = counted.load(Ordering::Acquire) >= connections_max;
            let open = (!is_full).then(|| {
                counted.fetch_add(1, Ordering::AcqRel);
                Open(counted.clone())
            });
            accept(stream, open);
        };
        let run = async move {
            accept_all(listener, closes, accept).await;
            let _ = timeout(drain_max, all_closed(&connections)).await;
        };
        thread.spawn(move || runtime.block_on(run))
    }
}

/// Accepts connections until the server closes.
async fn accept_all(listener: TcpListener, mut closed: watch::Receiver<bool>, accept: impl Fn(TcpStream)) {
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
            Some(Ok((stream, _))) => accept(stream),
            Some(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn all_closed(connections: &AtomicUsize) {
    while connections.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
