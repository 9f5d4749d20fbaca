//! The thread of all connections: requests in, responses out.

use crate::access::{self, refusal};
use crate::answer::{self, Answer, Said};
use crate::asks::NotPushed;
use crate::caller::SentEvents;
use crate::connections::Place as Connected;
use crate::follow::NotRead;
use crate::identity::Identity;
use crate::listen::{Accepted, Listen};
use crate::patient::Patient;
use crate::percent::decoded;
use crate::pieces::NoBody;
use crate::served::Served;
use crate::shared::Shared;
use crate::shares::{Client, Who};
use crate::socket::Socket;
use crate::tls::Tls;
use crate::{calling, console, index, metrics, openapi, pieces, querying, rows};
use arrow_array::RecordBatch;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
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
use tidemill_durability::Planted;
use tidemill_io::BadRecord;
use tidemill_model::Schema;
use tidemill_plan::Table;
use tidemill_runtime::{Place, Position, SessionError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Said where the run ended before a reply.
pub const OVER: &str = "the run is over: whether this was done is known to the next run";
/// The time for which a connection that does not encrypt is read, so that the client sees the refusal.
const HEARD_MAX: Duration = Duration::from_secs(1);
/// The type of the first record of TLS.
const HANDSHAKE: u8 = 22;
/// Said to one who asks while the server ends.
pub const CLOSING: &str = "the server is about to end; ask again when it is back";
/// The time in which an idle open connection may send another request when the server ends, to be told so.
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
            connections: Arc::default(),
            places: shared.places.clone(),
            drain_max: shared.limits.drain_max,
            closes: closes.clone(),
        };
        listen.start(move |accepted| accept(accepted, &shared, &closes))
    }
}

/// Serves a connection, or refuses it if there are too many.
fn accept(accepted: Accepted, shared: &Arc<Shared>, closes: &watch::Receiver<bool>) {
    let Accepted { stream, who, place, open } = accepted;
    let Some(place) = place else {
        if shared.tls.is_some() {
            return;
        }
        let _ = stream.try_write(&full(shared).last());
        return;
    };
    let (shared, closes) = (shared.clone(), closes.clone());
    tokio::spawn(async move {
        let place = Arc::new(place);
        let greeted = timeout(shared.limits.silence_max, greet(stream, shared.tls.as_deref()));
        if let Some(Ok(Ok(socket))) = place.or_makes_way(greeted).await {
            let asker = Asker { place: place.clone(), who };
            // One that makes way is closed at once: nothing is under way on it, or something that takes too long.
            place.or_makes_way(connection(socket, &shared, asker, closes)).await;
        }
        drop(open);
    });
}

/// Says that there are too many connections.
fn full(shared: &Shared) -> Said {
    Said::later(&format!("{} connections are open; try again", shared.places.limit()))
}

/// A connection that requests come from.
#[derive(Clone)]
struct Asker {
    place: Arc<Connected>,
    /// The client by its address, as long as it has not said who it is.
    who: Who,
}

/// Makes a connection encrypted, if it is to be.
async fn greet(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Socket> {
    let Some(tls) = tls else { return Ok(Socket::Plain(stream)) };
    let mut first = [0];
    stream.peek(&mut first).await?;
    let mut socket = Socket::Plain(stream);
    if first[0] != HANDSHAKE {
        const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\
              Content-Length: 42\r\n\r\nthis server speaks TLS: ask with https://\n";
        socket.write_all(PLAIN).await?;
        socket.shutdown().await?;
        // Closed with bytes that nobody has read, the connection would lose what was written.
        let _ = timeout(HEARD_MAX, tokio::io::copy(&mut socket, &mut tokio::io::sink())).await;
        return Err(io::ErrorKind::InvalidData.into());
    }
    socket.encrypt(tls.certificate()).await?;
    Ok(socket)
}

async fn connection(socket: Socket, shared: &Arc<Shared>, asker: Asker, mut closes: watch::Receiver<bool>) {
    let certified = socket.certified();
    let service = service_fn(|mut request: Request<Incoming>| {
        let (shared, asker) = (shared.clone(), asker.clone());
        certified.clone().map(|certified| request.extensions_mut().insert(certified));
        async move {
            let serving = Served::begin(asker.place.clone());
            let mut response = respond(&shared, &asker, request).await;
            if shared.stopping.load(Ordering::Acquire) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            Ok::<_, Infallible>(response.map(|body| serving.until_taken(body)))
        }
    });
    let socket = Patient::new(socket, shared.limits.silence_max, Planted::default());
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
    // An error of a connection concerns its client alone, so it is dropped.
    let _ = poll_fn(|cx| {
        if !is_closing && closes.as_mut().poll(cx).is_ready() {
            is_closing = true;
            served.as_mut().graceful_shutdown();
        }
        served.as_mut().poll(cx)
    })
    .await;
}

/// The paths that need no user: whether the server lives, and whether it can do its work.
const OF_HEALTH: [&str; 3] = ["health", "healthz", "readyz"];

/// Returns the response to a request.
async fn respond(shared: &Arc<Shared>, asker: &Asker, request: Request<Incoming>) -> Answer {
    let place = access::Place { only_loopback: shared.only_loopback, is_encrypted: shared.tls.is_some() };
    let said = access::Request { method: request.method(), uri: request.uri(), headers: request.headers() };
    if let Some((status, why)) = refusal(said, place) {
        return answer::error(status, &why);
    }
    let Some(path) = parts(request.uri().path()) else {
        return answer::error(StatusCode::BAD_REQUEST, "the path is not percent-encoded UTF-8");
    };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    if let [name] = path[..]
        && OF_HEALTH.contains(&name)
    {
        return if request.method() == Method::GET { health(shared, name) } else { answer::method("GET") };
    }
    let identity = match Identity::of(shared, request.headers(), request.extensions()) {
        Ok(identity) => identity,
        Err(refused) => return *refused,
    };
    let who = identity.who(&asker.who);
    if !asker.place.belongs_to(&who) {
        let mut response = full(shared).answer();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    if let Some(refused) = identity.refusal(request.method(), &path) {
        return refused;
    }
    answered(shared, &path, identity, Client::http(who), request).await
}

/// Returns the response to a request of one who may make it.
async fn answered(
    shared: &Arc<Shared>,
    path: &[&str],
    identity: Identity,
    client: Client,
    request: Request<Incoming>,
) -> Answer {
    let is = |method: Method| request.method() == method;
    match *path {
        ["call", name] if is(Method::POST) => calling::one(shared, name, &identity, client, request).await,
        ["calls"] if is(Method::POST) => calling::many(shared, client, request),
        ["stream" | "streams", name] if is(Method::POST) => push(shared, name, &identity, &client, request).await,
        ["console", ref rest @ ..] => console::respond(shared, rest, request.method(), request.uri()).await,
        ["savepoints"] if is(Method::POST) => shared.savepoints.respond(None).await,
        ["savepoints", name] if is(Method::POST) => shared.savepoints.respond(Some(name)).await,
        ["query"] if is(Method::POST) => querying::query(shared, &identity, &client, request).await,
        ["call", _] | ["calls"] | ["stream", _] | ["query"] | ["savepoints"] | ["savepoints", _] => {
            answer::method("POST")
        }
        _ if !is(Method::GET) => answer::method("GET"),
        [] if console::is_wanted(request.headers()) => console::page(),
        [] => answer::whole(StatusCode::OK, answer::JSON, index::text(&shared.session, &shared.calls)),
        ["openapi.json"] => answer::whole(StatusCode::OK, answer::JSON, openapi::text(&shared.session, &shared.calls)),
        ["metrics"] => answer::whole(StatusCode::OK, answer::OPEN_METRICS, metrics::text(shared)),
        ["tables", name, ref key @ ..] => table(shared, name, key, &client, &request).await,
        ["streams", name] => stream(shared, name, identity, &client, &request),
        _ => answer::error(StatusCode::NOT_FOUND, "there is no such path; GET / says what there is"),
    }
}

/// Returns the parts of a path; none if it is not rightly encoded. An empty part of a key is a value, others are
/// nothing.
fn parts(path: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = path.split('/').skip(1).map(decoded).collect::<Option<_>>()?;
    let is_key = |place: usize, parts: &[String]| place > 1 && parts[0] == "tables";
    let kept: Vec<bool> = (0..parts.len()).map(|at| !parts[at].is_empty() || is_key(at, &parts)).collect();
    let mut kept = kept.into_iter();
    parts.retain(|_| kept.next().expect("one for each"));
    Some(parts)
}

/// Answers whether the server lives, or can do its work.
fn health(shared: &Shared, name: &str) -> Answer {
    let no = |why: &str| answer::error(StatusCode::SERVICE_UNAVAILABLE, why);
    let is_stopping = shared.stopping.load(Ordering::Acquire);
    match name {
        _ if shared.session.is_over() => no("the run is over"),
        "healthz" => answer::whole(StatusCode::OK, answer::JSON, "{\"status\":\"alive\"}\n"),
        _ if is_stopping => no(CLOSING),
        _ if !shared.session.is_ready() => {
            no("the run has not begun yet: its state, sinks and sources are being opened")
        }
        _ => match shared.session.ailment() {
            Some(ailment) => no(&ailment),
            None => match shared.session.held_time() {
                Some(held) if held.calls_wait.is_some() => no(&held.to_string()),
                held => {
                    let head = shared.session.head().map(|head| head.to_string());
                    answer::healthy(held.map(|held| held.to_string()), head)
                }
            },
        },
    }
}

/// Returns the body of a request, if it is not too large and comes in time.
pub async fn body(shared: &Shared, request: Request<Incoming>) -> Result<Bytes, Answer> {
    let body_max = shared.limits.body_bytes_max;
    let too_large = || {
        let why = format!("the body is larger than {body_max} bytes; send less at once");
        answer::error(StatusCode::PAYLOAD_TOO_LARGE, &why)
    };
    // One that waits for a word before it sends the body (`Expect: 100-continue`) hears this one, and sends nothing.
    if request.body().size_hint().lower() > body_max as u64 {
        return Err(too_large());
    }
    let collected = timeout(shared.limits.silence_max, Limited::new(request.into_body(), body_max).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(answer::error(StatusCode::BAD_REQUEST, "the body ends early")),
        Err(_) => Err(answer::error(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

async fn push(shared: &Shared, name: &str, identity: &Identity, client: &Client, request: Request<Incoming>) -> Answer {
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
    let key = match calling::key(shared, identity, &request) {
        Ok(key) => key,
        Err(refused) => return refused.answer(),
    };
    if let Some(Err(error)) = key.as_ref().map(|key| shared.session.check_push_key(source, key)) {
        return Said::key_error(StatusCode::BAD_REQUEST, &error.to_string()).answer();
    }
    let is_arrow = has_content(&request, answer::ARROW);
    let body = match body(shared, request).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let sent = SentEvents::of(&shared.session, source);
    if let Some(why) = sent.refusal(client) {
        return answer::error(StatusCode::FORBIDDEN, &why);
    }
    let schema = sent.given();
    let read =
        spawn_blocking(move || if is_arrow { arrow_events(&body, &schema) } else { json_events(&body, &schema) });
    let events = match read.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
        Ok(events) => events,
        Err(bad) => return answer::bad(&bad),
    };
    let count = events.num_rows();
    let events = sent.whole(events, std::iter::repeat_n(client, count));
    let Some(pushed) = shared.asks.push(client, source, events, key) else { return busy(shared) };
    match pushed.await {
        Ok(Ok(epoch)) => {
            let text = format!("{{\"events\":{count},\"epoch\":{epoch}}}\n");
            answer::whole(StatusCode::OK, answer::JSON, text)
        }
        Ok(Err(NotPushed::Key(why))) => calling::refused(why).answer(),
        Ok(Err(NotPushed::TooFar(why))) => answer::error(StatusCode::BAD_REQUEST, &why),
        Ok(Err(NotPushed::Failed(why))) => answer::error(StatusCode::SERVICE_UNAVAILABLE, &why),
        Err(_) => answer::error(StatusCode::SERVICE_UNAVAILABLE, OVER),
    }
}

/// Returns events as JSON lines; or what is wrong with one.
fn json_events(lines: &[u8], schema: &Schema) -> Result<RecordBatch, BadRecord> {
    let mut records = JsonRecords::new(schema);
    for (number, line) in (1..).zip(lines.split(|&byte| byte == b'\n')) {
        if !line.trim_ascii().is_empty() {
            records.push(line).map_err(|bad| BadRecord { line: Some(number), ..bad })?;
        }
    }
    Ok(records.finish())
}

/// Returns whether the request says that its body has this content type.
pub fn has_content(request: &Request<Incoming>, wanted: &str) -> bool {
    let content = request.headers().get(CONTENT_TYPE).and_then(|content| content.to_str().ok());
    content.is_some_and(|content| content.split(';').next().map(str::trim) == Some(wanted))
}

fn busy(shared: &Shared) -> Answer {
    answer::later(&format!("{} reads and pushes wait for their answers; try again", shared.limits.asks_max))
}

async fn table(shared: &Shared, name: &str, key: &[&str], client: &Client, request: &Request<Incoming>) -> Answer {
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
        Some(key) => shared.asks.row(client, id, key.clone()),
        None => shared.asks.table(client, id),
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
            Some(row) => answer::row(after(shared, at.epoch), row),
            None => no_row(table, after(shared, at.epoch)),
        },
        None => {
            let (epoch, table, is_arrow) = (at.epoch, table.clone(), accepts_arrow(request));
            let content = if is_arrow { answer::ARROW } else { answer::JSON_LINES };
            let begin = move || Ok::<_, Infallible>(if is_arrow { rows::arrow(at) } else { rows::lines(&table, at) });
            match pieces::body((&shared.held, client), begin).await {
                Ok(body) => answer::rows(after(shared, epoch), content, body),
                Err(NoBody::Busy) => return held(shared),
                Err(NoBody::Failed(never)) => match never {},
            }
        }
    };
    response.headers_mut().insert(answer::ROWS, count.into());
    response
}

/// Says that responses hold too much already.
pub fn held(shared: &Shared) -> Answer {
    let most = shared.limits.responses_bytes_max;
    answer::later(&format!("responses hold {most} bytes of tables that their clients have not taken; try again"))
}

/// Returns the position after an epoch.
pub fn after(shared: &Shared, epoch: u64) -> Position {
    shared.session.position(Place::after(epoch))
}

fn no_row(table: &Table, after: Position) -> Answer {
    let mut response = answer::error(StatusCode::NOT_FOUND, &format!("table '{}' has no row of this key", table.name));
    response.headers_mut().insert(answer::EPOCH, answer::epoch(after));
    response
}

pub fn accepts_arrow(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accepted
        .is_some_and(|accept| accept.split(',').any(|one| one.split(';').next().map(str::trim) == Some(answer::ARROW)))
}

fn stream(shared: &Shared, name: &str, identity: Identity, client: &Client, request: &Request<Incoming>) -> Answer {
    let program = shared.session.engine().program();
    let known = index::streams(program).any(|stream| stream.name == name);
    let Some(id) = shared.session.stream(name).ok().filter(|_| known) else {
        let known: Vec<&str> = index::streams(program).map(|stream| &*stream.name).collect();
        let why = format!("there is no stream '{name}'; streams: {}", known.join(", "));
        return answer::error(StatusCode::NOT_FOUND, &why);
    };
    let last = request.headers().get("last-event-id").map(|id| id.to_str().unwrap_or("?").parse::<Position>());
    let after = match last.transpose() {
        Ok(after) => after,
        Err(error) => return answer::error(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let reads_on = identity.reads_on(shared, name);
    match shared.hubs.read(client, id, after, reads_on) {
        Ok(events) => answer::events(events),
        Err(NotRead::Busy) => {
            answer::later(&format!("{} readers of streams are there; try again", shared.limits.readers_max))
        }
        Err(NotRead::Refused(SessionError::Over)) => {
            answer::error(StatusCode::SERVICE_UNAVAILABLE, &SessionError::Over.to_string())
        }
        Err(NotRead::Refused(error)) => {
            let kept = match &error {
                SessionError::Gone { kept, .. } | SessionError::OtherCourse { kept, .. } => Some(*kept),
                _ => None,
            };
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
        assert_eq!(text("//call//deposit/").as_deref(), Some("call|deposit"));
        assert_eq!(text("/tables/accounts").as_deref(), Some("tables|accounts"));
        assert_eq!(text("/tables/accounts/").as_deref(), Some("tables|accounts|"));
        assert_eq!(text("/tables/entries//7").as_deref(), Some("tables|entries||7"));
        assert_eq!(text("/tables/entries/%2e%2e/.").as_deref(), Some("tables|entries|..|."));
        assert_eq!((text("/%zz"), text("/%f"), text("/%ff")), (None, None, None));
    }
}
