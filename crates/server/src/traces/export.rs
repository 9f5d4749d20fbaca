//! The thread that sends spans: OTLP over HTTP, in protobuf. A request has the spans of many calls; one is under way at a time.

use super::otlp::{self, Kind, Span, Value};
use super::{Called, Counts, Said};
use crate::shares::Protocol;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use ring::rand::{SecureRandom, SystemRandom};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The most calls of a request.
const TOGETHER: usize = 512;
/// The longest that a call waits for others of its request.
const DELAY: Duration = Duration::from_secs(1);
/// The longest that a collector may take for a request.
const TAKES_MAX: Duration = Duration::from_secs(10);
/// The longest that the end waits for a collector.
const STOPS_MAX: Duration = Duration::from_secs(2);
/// The most bytes of a response that are read.
const RESPONSE_BYTES_MAX: usize = 1 << 16;
/// The path that is meant where the URL has none.
const PATH: &str = "/v1/traces";
const PORT: u16 = 80;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    /// The host and the port, as the URL has them.
    authority: String,
    path: String,
}

impl Address {
    /// Reads a URL, or says what is wrong with it.
    pub fn of(url: &str) -> Result<Address, &'static str> {
        let uri: Uri = url.parse().map_err(|_| "it cannot be read")?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("no TLS is spoken to a collector, so it stands on this machine or in this network");
            }
            _ => return Err("it does not begin with http://"),
        }
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("nobody is named to a collector");
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let path = match uri.path_and_query().map(|path| path.as_str()) {
            None | Some("" | "/") => PATH.to_owned(),
            Some(path) => path.to_owned(),
        };
        Ok(Address { host, port: authority.port_u16().unwrap_or(PORT), authority: authority.to_string(), path })
    }
}

/// Sends the spans of calls.
pub struct Exporter {
    address: Address,
    /// The attributes of this process.
    resource: Vec<(&'static str, Value)>,
    called: mpsc::Receiver<Called>,
    /// The calls of the next request.
    batch: Vec<Called>,
    counts: Arc<Counts>,
    random: SystemRandom,
}

impl Exporter {
    pub fn new(address: Address, application: &str, called: mpsc::Receiver<Called>, counts: Arc<Counts>) -> Exporter {
        let text = |text: &str| Value::Text(text.into());
        let resource = vec![
            ("service.name", text(application)),
            ("telemetry.sdk.name", text("tidemill")),
            ("telemetry.sdk.language", text("rust")),
            ("telemetry.sdk.version", text(VERSION)),
        ];
        Exporter { address, resource, called, batch: Vec::new(), counts, random: SystemRandom::new() }
    }

    /// Starts the thread, which ends soon after it is told to stop.
    pub fn start(mut self, mut stops: watch::Receiver<bool>) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("traces".into());
        thread.spawn(move || {
            runtime.block_on(async {
                let mut told = stops.clone();
                let over = pin!(async {
                    let _ = told.wait_for(|stops| *stops).await;
                    sleep(STOPS_MAX).await;
                });
                first(pin!(self.run(&mut stops)), over).await;
            });
            self.called.close();
            let queued = std::iter::from_fn(|| self.called.try_recv().ok());
            let left: u64 = self.batch.drain(..).chain(queued).map(|called| called.spans()).sum();
            self.counts.not_taken.fetch_add(left, Ordering::Relaxed);
        })
    }

    /// Sends what comes, until it is told to stop, and then what is there.
    async fn run(&mut self, stops: &mut watch::Receiver<bool>) {
        loop {
            let stopped = pin!(async {
                let _ = stops.wait_for(|stops| *stops).await;
            });
            let is_told = first(pin!(self.gather()), stopped).await.is_none();
            if is_told || self.batch.is_empty() {
                break;
            }
            self.send().await;
        }
        // Calls that come from now on are lost, and counted by those who would send them.
        self.called.close();
        loop {
            let room = TOGETHER.saturating_sub(self.batch.len());
            if room > 0 {
                self.called.recv_many(&mut self.batch, room).await;
            }
            if self.batch.is_empty() {
                return;
            }
            self.send().await;
        }
    }

    /// Takes the calls of the next request, none if no more will come; those that it has taken stay where it is given up.
    async fn gather(&mut self) {
        if self.called.recv_many(&mut self.batch, TOGETHER).await == 0 {
            return;
        }
        let more = async {
            while self.batch.len() < TOGETHER {
                let room = TOGETHER - self.batch.len();
                if self.called.recv_many(&mut self.batch, room).await == 0 {
                    return;
                }
            }
        };
        let _ = timeout(DELAY, more).await;
    }

    /// Sends the spans of the calls that were taken, and counts them.
    async fn send(&mut self) {
        let spans: Vec<Span> = self.batch.drain(..).flat_map(|called| spans(&called, &self.random)).collect();
        // Counted if this is given up amid, too.
        let mut sending = Sending { counts: self.counts.clone(), spans: spans.len() as u64, taken: 0 };
        let body = otlp::request(&self.resource, VERSION, &spans);
        if let Ok(Some(rejected)) = timeout(TAKES_MAX, post(&self.address, body)).await {
            sending.taken = sending.spans.saturating_sub(rejected);
        }
    }
}

/// Returns the spans of a call: its own, and those of its way, one after the other.
fn spans(called: &Called, random: &SystemRandom) -> Vec<Span> {
    let span_of = |name: &str, kind: Kind, from: Instant, until: Instant| Span {
        trace: called.trace,
        id: called.span,
        state: called.parent.as_ref().map_or_else(String::new, |parent| parent.state.clone()),
        parent: Some(called.span),
        name: name.into(),
        kind,
        from: called.time(from),
        until: called.time(until),
        attributes: Vec::new(),
        error: None,
    };
    let whole = Span {
        parent: called.parent.as_ref().map(|parent| parent.span),
        attributes: attributes(called),
        error: error(called),
        ..span_of(&format!("call {}", called.procedure), Kind::Server, called.since, called.ended.0)
    };
    let parts = called.parts().into_iter().map(|(name, from, until)| {
        let mut id = [0; 8];
        random.fill(&mut id).expect("it gave some for the call");
        Span { id, ..span_of(name, Kind::Internal, from, until) }
    });
    std::iter::once(whole).chain(parts).collect()
}

fn attributes(called: &Called) -> Vec<(&'static str, Value)> {
    let protocol = match called.by {
        Protocol::Http => "http",
        Protocol::Postgres => "postgresql",
    };
    let mut attributes = vec![
        ("tidemill.procedure", Value::Text(called.procedure.clone())),
        ("network.protocol.name", Value::Text(protocol.into())),
    ];
    if let Some(answer) = &called.answer {
        attributes.push(("tidemill.outcome", Value::Text(answer.outcome.word().into())));
        if answer.outcome != Said::Refused {
            attributes.push(("tidemill.epoch", Value::Int(answer.epoch)));
        }
    }
    attributes
}

/// Returns the error of a call that was not made, or whose outcome is not known. An abort is an outcome, and no error.
fn error(called: &Called) -> Option<&'static str> {
    match called.answer.as_ref().map(|answer| answer.outcome) {
        None => Some("it got no outcome"),
        Some(Said::Refused) => Some("it was not made"),
        Some(Said::Committed | Said::Aborted) => None,
    }
}

/// Spans that are sent. Those that are not taken are counted as lost when it is dropped.
struct Sending {
    counts: Arc<Counts>,
    spans: u64,
    taken: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.counts.sent.fetch_add(self.taken, Ordering::Relaxed);
        self.counts.not_taken.fetch_add(self.spans - self.taken, Ordering::Relaxed);
    }
}

/// Returns what the first of two gives; none if the second is over before.
async fn first<T>(
    mut one: Pin<&mut impl Future<Output = T>>,
    mut other: Pin<&mut impl Future<Output = ()>>,
) -> Option<T> {
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(given) => Poll::Ready(Some(given)),
        Poll::Pending => other.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Posts a request. The number of its spans that the collector has rejected; none if it has taken nothing.
async fn post(address: &Address, body: Vec<u8>) -> Option<u64> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.ok()?;
    let (mut to, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    // It is ended with this.
    let mut connected = JoinSet::new();
    connected.spawn(connection);
    let request = Request::post(&address.path)
        .header(HOST, &address.authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(USER_AGENT, format!("tidemill/{VERSION}"))
        .body(Full::new(Bytes::from(body)))
        .ok()?;
    let response = to.send_request(request).await.ok()?;
    let is_taken = response.status().is_success();
    let said = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
    is_taken.then(|| said.map_or(0, |said| otlp::rejected(&said.to_bytes())))
}
