//! The thread of all connections: requests in, responses out.

use crate::access::refusal;
use crate::answer::{self, Answer, Said};
use crate::follow::NotRead;
use crate::identity::Identity;
use crate::listen::{Listen, Open};
use crate::queries::{NotAsked, Query, QueryError, QueryForm};
use crate::shared::Shared;
use crate::socket::Socket;
use crate::tls::Tls;
use crate::{calling, console, index, metrics, pieces, rows};
use arrow_array::RecordBatch;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidemill_connect::{JsonRecords, arrow_events};
use tidemill_model::Schema;
use tidemill_plan::Table;
use tidemill_runtime::{BadRecord, Place, SessionError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Said where the run ended before a reply.
pub const OVER: &str = "the run is over: whether this was done is known to the next run";
/// How long one who does not encrypt is heard out.
const HEARD_MAX: Duration = Duration::from_secs(1);
/// The type of the first record of TLS.
const HANDSHAKE: u8 = 22;
/// Said to one who asks while the server ends.
pub const CLOSING: &str = "the server is about to end; ask again when it is back";
/// How long an open connection on which nothing is asked may still ask at the end, and be told.
const GOODBYE: Duration = Duration::from_millis(200);
/// A server before it begins.
pub struct Listening {
    pub listener: std::net::TcpListener,
    pub shared: Arc<Shared>,
    pub closes: watch::Receiver<bool>,
}

impl Listening {
    /// Starts the thread.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let Listening { listener, shared, closes } = self;
        let listen = Listen {
            thread: thread::Builder::new().name("http".into()),
            listener,
            connections: shared.connections.clone(),
            connections_max: shared.limits.connections_max,
            drain_max: shared.limits.drain_max,
            closes: closes.clone(),
        };
        listen.start(move |stream, open| accept(stream, open, &shared, &closes))
    }
}

/// Serves a connection, or refuses it if there are too many.
fn accept(stream: TcpStream, open: Option<Open>, shared: &Arc<Shared>, closes: &watch::Receiver<bool>) {
    let Some(open) = open else {
        if shared.tls.is_some() {
            return;
        }
        let full = Said::later(&format!("{} connections are open; try again", shared.limits.connections_max));
        let _ = stream.try_write(&full.last());
        return;
    };
    let (shared, closes) = (shared.clone(), closes.clone());
    tokio::spawn(async move {
        let greeted = timeout(shared.limits.silence_max, greet(stream, shared.tls.as_deref())).await;
        if let Ok(Ok(socket)) = greeted {
            connection(socket, &shared, closes).await;
        }
        drop(open);
    });
}

/// Makes a connection encrypted, if it is to be.
async fn greet(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Socket> {
    let Some(tls) = tls else { return Ok(Socket::Plain(stream)) };
    let mut first = [0];
    stream.peek(&mut first).await?;
    let mut socket = Socket::Plain(stream);
    if first[0] != HANDSHAKE {
        const PLAIN: &[u8] =
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 42\r\n\r\nthis server speaks TLS: ask with https://\n";
        socket.write_all(PLAIN).await?;
        socket.shutdown().await?;
        // Closed with bytes that nobody has read, the connection would lose what was written.
        let _ = timeout(HEARD_MAX, tokio::io::copy(&mut socket, &mut tokio::io::sink())).await;
        return Err(io::ErrorKind::InvalidData.into());
    }
    socket.encrypt(&tls.acceptor()).await?;
    Ok(socket)
}

async fn connection(socket: Socket, shared: &Arc<Shared>, mut closes: watch::Receiver<bool>) {
    let service = service_fn(|request| {
        let shared = shared.clone();
        async move {
            let mut response = respond(&shared, request).await;
            if shared.stopping.load(Ordering::Acquire) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.limits.silence_max)
        .serve_connection(TokioIo::new(socket), service);
    // Closed at once, it would cut off a request that is on its way: one that comes now is told that the server ends.
    let closes = async move {
        let _ = closes.wait_for(|closed| *closed).await;
        sleep(GOODBYE).await;
    };
    let (mut served, mut closes) = (pin!(served), pin!(closes));
    let mut is_closing = false;
    // What goes wrong on a connection is its client's business.
    let _ = poll_fn(|cx| {
        if !is_closing && closes.as_mut().poll(cx).is_ready() {
            is_closing = true;
            served.as_mut().graceful_shutdown();
        }
        served.as_mut().poll(cx)
    })
    .await;
}

/// The response to a request.
async fn respond(shared: &Arc<Shared>, request: Request<Incoming>) -> Answer {
    if let Some(why) = refusal(request.headers(), shared.only_loopback) {
        return answer::error(StatusCode::FORBIDDEN, &why);
    }
    let Some(path) = parts(request.uri().path()) else {
        return answer::error(StatusCode::BAD_REQUEST, "the path is not percent-encoded UTF-8");
    };
    let is = |method: Method| request.method() == method;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    // Whether it is there may be asked by everybody.
    let identity = if path == ["health"] { None } else { Some(Identity::of(shared, request.headers())) };
    let identity = match identity.transpose() {
        Ok(identity) => identity,
        Err(refused) => return *refused,
    };
    if let Some(refused) = identity.as_ref().and_then(|identity| identity.refusal(request.method(), &path)) {
        return refused;
    }
    match path[..] {
        ["call", name] if is(Method::POST) => {
            calling::one(shared, name, identity.as_ref().map_or("", Identity::name), request).await
        }
        ["calls"] if is(Method::POST) => calling::many(shared, request),
        ["stream" | "streams", name] if is(Method::POST) => push(shared, name, request).await,
        ["console", ref rest @ ..] => console::respond(shared, rest, request.method(), request.uri()).await,
        ["query"] if is(Method::POST) => query(shared, &identity.expect("it is asked for"), request).await,
        ["call", _] | ["calls"] | ["stream", _] | ["query"] => answer::method("POST"),
        _ if !is(Method::GET) => answer::method("GET"),
        [] if console::is_wanted(request.headers()) => console::page(),
        [] => answer::whole(StatusCode::OK, answer::JSON, index::text(&shared.session, &shared.calls)),
        ["health"] => health(shared),
        ["metrics"] => answer::whole(StatusCode::OK, answer::PROMETHEUS, metrics::text(shared)),
        ["tables", name, ref key @ ..] => table(shared, name, key, &request).await,
        ["streams", name] => stream(shared, name, identity, &request),
        _ => answer::error(StatusCode::NOT_FOUND, "there is no such path; GET / says what there is"),
    }
}

/// The parts of a path; none if it is not rightly encoded.
fn parts(path: &str) -> Option<Vec<String>> {
    path.split('/').skip(1).filter(|part| !part.is_empty()).map(decoded).collect()
}

fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

fn health(shared: &Shared) -> Answer {
    match (shared.session.is_over(), shared.stopping.load(Ordering::Acquire)) {
        (true, _) => answer::error(StatusCode::SERVICE_UNAVAILABLE, "the run is over"),
        (false, true) => answer::error(StatusCode::SERVICE_UNAVAILABLE, CLOSING),
        (false, false) => answer::whole(StatusCode::OK, answer::JSON, "{\"status\":\"ok\"}\n"),
    }
}

/// The body of a request, if it is not too large and comes in time.
pub async fn body(shared: &Shared, request: Request<Incoming>) -> Result<Bytes, Answer> {
    let body_max = shared.limits.body_bytes_max;
    let collected = timeout(shared.limits.silence_max, Limited::new(request.into_body(), body_max).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("the body is larger than {body_max} bytes; send less at once");
            Err(answer::error(StatusCode::PAYLOAD_TOO_LARGE, &why))
        }
        Ok(Err(_)) => Err(answer::error(StatusCode::BAD_REQUEST, "the body ends early")),
        Err(_) => Err(answer::error(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

async fn push(shared: &Shared, name: &str, request: Request<Incoming>) -> Answer {
    if shared.stopping.load(Ordering::Acquire) {
        return answer::later(CLOSING);
    }
    let source = match shared.session.source(name) {
        Ok(source) => source,
        Err(error) => {
            let known: Vec<&str> = index::pushed(&shared.session).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return answer::error(StatusCode::NOT_FOUND, &format!("{error}; sources: {known}"));
        }
    };
    let is_arrow = has_content(&request, answer::ARROW);
    let body = match body(shared, request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let schema = shared.session.source_schema(source);
    let read =
        spawn_blocking(move || if is_arrow { arrow_events(&body, &schema) } else { json_events(&body, &schema) });
    let events = match read.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
        Ok(events) => events,
        Err(bad) => return answer::bad(&bad),
    };
    let count = events.num_rows();
    let Some(pushed) = shared.asks.push(source, events) else { return busy(shared) };
    match pushed.await {
        Ok(Ok(epoch)) => {
            let text = format!("{{\"events\":{count},\"epoch\":{epoch}}}\n");
            answer::whole(StatusCode::OK, answer::JSON, text)
        }
        Ok(Err(why)) => answer::error(StatusCode::SERVICE_UNAVAILABLE, &why),
        Err(_) => answer::error(StatusCode::SERVICE_UNAVAILABLE, OVER),
    }
}

/// Events as JSON lines; or what is wrong with one.
fn json_events(lines: &[u8], schema: &Schema) -> Result<RecordBatch, BadRecord> {
    let mut records = JsonRecords::new(schema);
    for (number, line) in (1..).zip(lines.split(|&byte| byte == b'\n')) {
        if !line.trim_ascii().is_empty() {
            records.push(line).map_err(|bad| BadRecord { line: Some(number), ..bad })?;
        }
    }
    Ok(records.finish())
}

/// What a query's body may be, as JSON.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    sql: String,
    parameters: Option<serde_json::Value>,
}

async fn query(shared: &Shared, identity: &Identity, request: Request<Incoming>) -> Answer {
    if shared.stopping.load(Ordering::Acquire) {
        return answer::later(CLOSING);
    }
    let (is_arrow, is_json) = (accepts_arrow(&request), has_content(&request, answer::JSON));
    let text = match body(shared, request).await {
        Ok(text) => text,
        Err(refused) => return refused,
    };
    let asked = if is_json {
        serde_json::from_slice(&text)
            .map_err(|error| format!("{error}; give {{\"sql\": \"...\", \"parameters\": [...]}}"))
    } else {
        let text = String::from_utf8(text.into()).map_err(|_| "the query is not UTF-8".to_owned());
        text.map(|sql| Asked { sql, parameters: None })
    };
    let Asked { sql, parameters } = match asked {
        Ok(asked) => asked,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    let parameters = parameters.map(|parameters| parameters.to_string());
    let program = shared.session.engine().program();
    let tables = identity.readable(index::tables(program).map(|table| table.name.clone()));
    match shared
        .queries
        .ask(
            Query {
                sql,
                parameters,
                form: if is_arrow { QueryForm::Own } else { QueryForm::Plain },
                tables,
                setup: None,
            },
            None,
        )
        .await
    {
        Ok(queried) => {
            let (epoch, content) = (queried.epoch, if is_arrow { answer::ARROW } else { answer::JSON_LINES });
            let begin = move || if is_arrow { Ok(rows::arrow_of(queried)) } else { rows::lines_of(queried) };
            match pieces::body(begin).await {
                Ok(body) => answer::rows(epoch, content, body),
                Err(why) => answer::error(StatusCode::BAD_REQUEST, &why),
            }
        }
        Err(NotAsked::Busy) => {
            let (running, waiting) = (shared.limits.queries_max, shared.limits.queries_waiting_max);
            answer::later(&format!("{running} queries may run at once while {waiting} others wait; try again"))
        }
        Err(NotAsked::Failed(error)) => {
            let (status, why) = match error {
                QueryError::Refused(why) => (StatusCode::BAD_REQUEST, why),
                QueryError::NoEngine(why) => (StatusCode::NOT_IMPLEMENTED, why),
                QueryError::Over(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
            };
            answer::error(status, &why)
        }
    }
}

/// Whether the body is said to be of a type.
fn has_content(request: &Request<Incoming>, wanted: &str) -> bool {
    let content = request.headers().get(CONTENT_TYPE).and_then(|content| content.to_str().ok());
    content.is_some_and(|content| content.split(';').next().map(str::trim) == Some(wanted))
}

fn busy(shared: &Shared) -> Answer {
    answer::later(&format!("{} reads and pushes wait for their answers; try again", shared.limits.asks_max))
}

async fn table(shared: &Shared, name: &str, key: &[&str], request: &Request<Incoming>) -> Answer {
    let program = shared.session.engine().program();
    let Some(table) = index::tables(program).find(|table| table.name == name) else {
        let known: Vec<&str> = index::tables(program).map(|table| &*table.name).collect();
        let why = format!("there is no table '{name}'; tables: {}", known.join(", "));
        return answer::error(StatusCode::NOT_FOUND, &why);
    };
    let wanted = match key {
        [] => None,
        parts => {
            let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            match rows::key(table, &parts) {
                Ok(key) => Some(key),
                Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
            }
        }
    };
    let part = match (console::number(request.uri(), "offset"), console::number(request.uri(), "limit")) {
        (Ok(offset), Ok(limit)) => (offset, limit),
        (Err(why), _) | (_, Err(why)) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    let id = shared.session.table(name).expect("it is there");
    let asked = match &wanted {
        Some(key) => shared.asks.row(id, key.clone()),
        None => shared.asks.table(id),
    };
    let Some(asked) = asked else { return busy(shared) };
    let at = match asked.await {
        Ok(Ok(at)) => at,
        Ok(Err(why)) => return answer::error(StatusCode::SERVICE_UNAVAILABLE, &why),
        Err(_) => return answer::error(StatusCode::SERVICE_UNAVAILABLE, OVER),
    };
    let count = at.rows.num_rows();
    let at = if wanted.is_none() { rows::part(at, part) } else { at };
    let (given, most) = (at.rows.num_rows(), shared.limits.table_rows_max);
    if given > most {
        let why = format!("{given} rows were asked for, and {most} are given at once; ask with ?offset= and ?limit=");
        return answer::error(StatusCode::BAD_REQUEST, &why);
    }
    let mut response = match wanted {
        Some(key) => match rows::row(table, &at, &key) {
            Some(row) => answer::row(at.epoch, row),
            None => no_row(table, at.epoch),
        },
        None => {
            let (epoch, table, is_arrow) = (at.epoch, table.clone(), accepts_arrow(request));
            let content = if is_arrow { answer::ARROW } else { answer::JSON_LINES };
            let begin = move || Ok::<_, Infallible>(if is_arrow { rows::arrow(at) } else { rows::lines(&table, at) });
            let Ok(body) = pieces::body(begin).await;
            answer::rows(epoch, content, body)
        }
    };
    response.headers_mut().insert(answer::ROWS, count.into());
    response
}

fn no_row(table: &Table, epoch: u64) -> Answer {
    let mut response = answer::error(StatusCode::NOT_FOUND, &format!("table '{}' has no row of this key", table.name));
    response.headers_mut().insert(answer::EPOCH, epoch.into());
    response
}

fn accepts_arrow(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted
        .is_some_and(|accept| accept.split(',').any(|one| one.split(';').next().map(str::trim) == Some(answer::ARROW)))
}

fn stream(shared: &Shared, name: &str, identity: Option<Identity>, request: &Request<Incoming>) -> Answer {
    let program = shared.session.engine().program();
    let known = index::streams(program).any(|stream| stream.name == name);
    let Some(id) = shared.session.stream(name).ok().filter(|_| known) else {
        let known: Vec<&str> = index::streams(program).map(|stream| &*stream.name).collect();
        let why = format!("there is no stream '{name}'; streams: {}", known.join(", "));
        return answer::error(StatusCode::NOT_FOUND, &why);
    };
    let last = request.headers().get("last-event-id").map(|id| id.to_str().unwrap_or("?").parse::<Place>());
    let after = match last.transpose() {
        Ok(after) => after,
        Err(error) => return answer::error(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let reads_on = identity.and_then(|identity| identity.reads_on(shared, name));
    match shared.hubs.read(id, after, reads_on) {
        Ok(events) => answer::events(events),
        Err(NotRead::Busy) => {
            answer::later(&format!("{} readers of streams are there; try again", shared.limits.readers_max))
        }
        Err(NotRead::Refused(SessionError::Over)) => {
            answer::error(StatusCode::SERVICE_UNAVAILABLE, &SessionError::Over.to_string())
        }
        Err(NotRead::Refused(error)) => {
            let kept = if let SessionError::Gone { kept, .. } = &error { Some(*kept) } else { None };
            answer::gone(&format!("{error}; read it from now on, without Last-Event-ID"), kept)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        let text = |path| parts(path).map(|parts| parts.join("|"));
        assert_eq!(text("/tables/acc%20ounts/a%2Fb").as_deref(), Some("tables|acc ounts|a/b"));
        assert_eq!(text("/").as_deref(), Some(""));
        assert_eq!((text("/%zz"), text("/%f"), text("/%ff")), (None, None, None));
    }
}
