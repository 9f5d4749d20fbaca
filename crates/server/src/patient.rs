//! Writes that wait for a client, but not for ever.
//!
//! A connection whose client takes no byte for a while fails. One that takes a few now and then goes on, however slow it
//! is: the time begins anew with each byte that can be written. So that a few bytes are noticed, the system holds little
//! that is not on its way yet ([`hold_little`]): with its usual buffer of megabytes a slow client would look like one that
//! takes nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tidemill_durability::{Bug, Planted};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// The bytes that the system takes of a connection before they can be sent.
const UNSENT_BYTES: u32 = 1 << 17;

/// Makes the system take no more bytes of a connection than can be sent soon.
pub fn hold_little(stream: &TcpStream) {
    // Without it, only very slow clients are taken for ones that take nothing.
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, UNSENT_BYTES);
}

/// A connection whose client has to take something now and then.
pub struct Patient<S> {
    inner: S,
    patience: Duration,
    late: Pin<Box<Sleep>>,
    /// A flag: whether bytes wait for the client, and `late` says until when.
    waits: bool,
    planted: Planted,
}

impl<S> Patient<S> {
    /// Waits for its client for this time.
    pub fn new(inner: S, patience: Duration, planted: Planted) -> Patient<S> {
        Patient { inner, patience, late: Box::pin(sleep(patience)), waits: false, planted }
    }

    /// Passes on what could be written, or fails if nothing could for too long.
    fn timed<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits &= self.planted.is(Bug::TimeoutEndsSlowClient);
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.late.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.late.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.timed(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        match flushed {
            // Nothing was to be flushed, perhaps: that says nothing about the client.
            Poll::Ready(Ok(())) => flushed,
            flushed => self.timed(cx, flushed),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.timed(cx, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, parts);
        self.timed(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const PATIENCE: Duration = Duration::from_millis(400);

    /// Writes to a client that takes a few bytes every few milliseconds, for longer than it is waited for; or nothing. Time
    /// goes on when nothing else does.
    fn written(takes: bool, planted: Planted) -> io::Result<()> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let (own, mut client) = duplex(64);
            let mut own = Patient::new(own, PATIENCE, planted);
            let reading = tokio::spawn(async move {
                let mut bytes = [0; 64];
                while takes && client.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                    sleep(PATIENCE / 20).await;
                }
                // Dropped, it would be gone, and not one that takes nothing.
                sleep(3 * PATIENCE).await;
                drop(client);
            });
            let written = own.write_all(&[7; 64 * 40]).await;
            reading.abort();
            written
        })
    }

    #[test]
    fn one_who_takes_little_is_served_and_one_who_takes_nothing_is_not() {
        written(true, Planted::default()).expect("it takes all");
        let error = written(false, Planted::default()).expect_err("it takes nothing");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_time_out_that_ends_a_slow_client_is_found() {
        let error = written(true, Planted::new(Bug::TimeoutEndsSlowClient)).expect_err("it is ended");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
