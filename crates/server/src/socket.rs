//! The bytes of a connection, encrypted or not.

use crate::certificates::{Certified, EndPoint};
use crate::tls::Certificate;
use std::io;
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The bytes of a connection.
pub enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>, Option<EndPoint>),
    /// A handshake has failed.
    Closed,
}

impl Socket {
    /// Goes on encrypted: the client begins the handshake.
    pub async fn encrypt(&mut self, with: Certificate) -> io::Result<()> {
        match replace(self, Socket::Closed) {
            Socket::Plain(stream) => {
                *self = Socket::Tls(Box::new(with.acceptor.accept(stream).await?), with.end_point);
                Ok(())
            }
            Socket::Tls(..) | Socket::Closed => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self, Socket::Tls(..))
    }

    /// Returns the certificate that the client has shown, if it has.
    pub fn certified(&self) -> Option<Certified> {
        let Socket::Tls(stream, _) = self else { return None };
        let shown = stream.get_ref().1.peer_certificates()?;
        shown.first().map(|certificate| Certified::of(certificate))
    }

    /// Returns the hash of the server's certificate, which a client can bind its password to.
    pub fn end_point(&self) -> Option<&EndPoint> {
        match self {
            Socket::Tls(_, end_point) => end_point.as_ref(),
            Socket::Plain(_) | Socket::Closed => None,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Socket::Tls(stream, _) => Pin::new(stream).poll_read(cx, into),
            Socket::Closed => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(stream, _) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Closed => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream, _) => Pin::new(stream).poll_flush(cx),
            Socket::Closed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Socket::Closed => Poll::Ready(Ok(())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Socket::Tls(stream, _) => Pin::new(stream).poll_write_vectored(cx, parts),
            Socket::Closed => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream, _) => stream.is_write_vectored(),
            Socket::Closed => false,
        }
    }
}
