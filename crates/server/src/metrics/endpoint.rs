//! A server of `GET /metrics` alone, for a run without a server of its own.

use super::text_of_run;
use crate::access::{self, Place};
use crate::answer;
use crate::listen::accept_all;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidemill_runtime::Watched;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The most connections at a time. Others are closed.
const CONNECTIONS_MAX: usize = 16;
/// The time for which a connection may last.
const CONNECTION_MAX: Duration = Duration::from_secs(30);

/// The reason why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// Others could reach the address.
    #[error(
        "{0} is reachable from other machines, and anybody there could read the counts of the run; give an address such as \
         127.0.0.1:9464, or allow it with --insecure"
    )]
    Insecure(SocketAddr),
    /// The address cannot be opened.
    #[error("metrics cannot be served on {address}: {source}; give another --metrics")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

/// Serves the counts of a run until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    closing: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Begins to serve the counts of a run, which may not have begun yet. `is_insecure`: whether an address is allowed that
    /// other machines reach.
    pub fn start(address: SocketAddr, watched: Watched, is_insecure: bool) -> Result<MetricsServer, MetricsError> {
        if !address.ip().is_loopback() && !is_insecure {
            return Err(MetricsError::Insecure(address));
        }
        let failed = |source| MetricsError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let open = listener.local_addr().map_err(failed)?;
        let (closing, closes) = watch::channel(false);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        let only_loopback = address.ip().is_loopback();
        let serve = move || runtime.block_on(serve(listener, watched, only_loopback, closes));
        let thread = thread::Builder::new().name("metrics".into()).spawn(serve).map_err(failed)?;
        Ok(MetricsServer { address: open, closing, thread: Some(thread) })
    }

    /// Returns the URL of the metrics.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        // A thread that panicked has said so.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

async fn serve(
    listener: tokio::net::TcpListener,
    watched: Watched,
    only_loopback: bool,
    closes: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accept = move |stream: TcpStream, _: SocketAddr| {
        // One who finds no place may ask again.
        let Ok(place) = places.clone().try_acquire_owned() else { return };
        let watched = watched.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answered(&watched, only_loopback, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(CONNECTION_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // An error of a connection concerns its client alone, so it is dropped.
            let _ = timeout(CONNECTION_MAX, served).await;
            drop(place);
        });
    };
    accept_all(listener, closes, accept).await;
}

fn answered(watched: &Watched, only_loopback: bool, request: &Request<Incoming>) -> answer::Answer {
    let place = Place { only_loopback, is_encrypted: false };
    let said = access::Request { method: request.method(), uri: request.uri(), headers: request.headers() };
    let mut answer = match (access::refusal(said, place), request.method(), request.uri().path()) {
        (Some((status, why)), ..) => answer::error(status, &why),
        (None, &Method::GET, "/metrics") => answer::whole(StatusCode::OK, answer::OPEN_METRICS, text_of_run(watched)),
        (None, _, "/metrics") => answer::method("GET"),
        _ => answer::error(StatusCode::NOT_FOUND, "there is GET /metrics"),
    };
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
