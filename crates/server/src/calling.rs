//! Calls over HTTP: one a request, and many on one connection.
//!
//! `POST /calls` is one request with many calls, a line each: `{"call":"deposit","fields":{...}}`, perhaps with
//! `"idempotency_key"` and `"durable":false`. The client may go on to send lines as long as it likes. The response has a line
//! for each, `{"status":200,"reply":{...}}`, in the order of the calls, as soon as it is there: the status and the body that
//! a request of its own would have. The calls of one such request run in their order.

use crate::answer::{self, Answer, Said};
use crate::calls::{Refused, Reply, ReplyKind, Wanted};
use crate::http::{CLOSING, OVER, body};
use crate::identity::Identity;
use crate::shared::Shared;
use crate::shares::Client;
use crate::traces::Parent;
use crate::turns::Turn;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tidemill_runtime::{NotMade, RequestKey, When};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The header with the key of a call, which may be made again with it.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The most calls of one request that wait for their replies; the others are not read meanwhile.
const AHEAD: usize = 1000;
/// Bytes of replies that are sent together, about.
const TOGETHER: usize = 1 << 16;
/// The interval at which a request that sends nothing is checked for its end.
const TICK: Duration = Duration::from_millis(200);

/// Makes the one call of a request.
pub async fn one(
    shared: &Shared,
    name: &str,
    identity: &Identity,
    client: Client,
    request: Request<Incoming>,
) -> Answer {
    if shared.stopping.load(Ordering::Acquire) {
        return answer::later(CLOSING);
    }
    let key = match key(shared, identity, &request) {
        Ok(key) => key,
        Err(refused) => return refused.answer(),
    };
    let when = match when(request.uri().query()) {
        Ok(when) => when,
        Err(why) => return Said::error(StatusCode::BAD_REQUEST, &why).answer(),
    };
    let parent = parent(shared, request.headers());
    let object = match body(shared, request).await {
        Ok(object) => object,
        Err(refused) => return refused,
    };
    match make(shared, name, &object, Wanted { key, when, parent }, &Turn::single(client)) {
        Ok(reply) => said(reply.await).answer(),
        Err(said) => said.answer(),
    }
}

/// Returns the key of a request, if it has one.
pub fn key(shared: &Shared, identity: &Identity, request: &Request<Incoming>) -> Result<Option<RequestKey>, Said> {
    let wrong = |why: &str| Err(Said::key_error(StatusCode::BAD_REQUEST, why));
    if request.headers().get_all(IDEMPOTENCY_KEY).iter().nth(1).is_some() {
        return wrong("there are several Idempotency-Keys");
    }
    match request.headers().get(IDEMPOTENCY_KEY).map(|value| value.to_str()).transpose() {
        Ok(key) => Ok(key.map(|key| RequestKey::new(identity.name(), key, shared.session.time_of_key()))),
        Err(_) => wrong("the Idempotency-Key is not of visible ASCII"),
    }
}

/// Returns the span in which a client makes a request, where calls are traced.
fn parent(shared: &Shared, headers: &HeaderMap) -> Option<Parent> {
    shared.calls.traces().and_then(|_| Parent::of_headers(headers))
}

/// Returns the words for a call that is not made.
pub fn refused(why: NotMade) -> Said {
    match why {
        NotMade::TooMany | NotMade::Busy => Said::key_error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()).again(),
        NotMade::OtherArguments | NotMade::OtherVersion => {
            Said::key_error(StatusCode::UNPROCESSABLE_ENTITY, &why.to_string())
        }
        NotMade::BeforeTick => Said::later(&why.to_string()),
    }
}

/// Reads from the query of a request whether its reply waits until the call is durable.
fn when(query: Option<&str>) -> Result<When, String> {
    let mut is_durable = true;
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        is_durable = match pair {
            "durable=true" => true,
            "durable=false" => false,
            _ => return Err(format!("there is no parameter '{pair}'; there are durable=true and durable=false")),
        };
    }
    Ok(when_of(is_durable))
}

fn when_of(is_durable: bool) -> When {
    if is_durable { When::Durable } else { When::Executed }
}

/// Makes a call that runs after the one of this turn; gives where its reply comes, or what there is to say at once.
fn make(
    shared: &Shared,
    name: &str,
    object: &[u8],
    wanted: Wanted,
    turn: &Turn,
) -> Result<oneshot::Receiver<Reply>, Said> {
    shared.calls.call(name, object, wanted, turn).map_err(|refused| match refused {
        Refused::Unknown(why) => Said::error(StatusCode::NOT_FOUND, &why),
        Refused::Busy => Said::later(&format!("{} calls wait for their replies; try again", shared.limits.calls_max)),
        Refused::Key(why) => Said::key_error(StatusCode::BAD_REQUEST, &why),
        Refused::Bad(bad) => Said::bad(&bad),
        Refused::Nobody(why) => Said::error(StatusCode::FORBIDDEN, &why),
    })
}

/// Returns the response to a call that was made.
fn said(reply: Result<Reply, RecvError>) -> Said {
    match reply {
        Ok(Reply { kind: ReplyKind::Committed, body, .. }) => Said::new(StatusCode::OK, body),
        Ok(Reply { kind: ReplyKind::Aborted, body, .. }) => Said::new(StatusCode::CONFLICT, body),
        Ok(Reply { kind: ReplyKind::Refused(why), .. }) => refused(why),
        Err(_) => Said::error(StatusCode::SERVICE_UNAVAILABLE, OVER),
    }
}

/// Makes the many calls of a request.
pub fn many(shared: &Arc<Shared>, client: Client, request: Request<Incoming>) -> Answer {
    if shared.stopping.load(Ordering::Acquire) {
        return answer::later(CLOSING);
    }
    let (head, body) = request.into_parts();
    let (to, made) = mpsc::channel(AHEAD);
    let caller = Caller { shared: shared.clone(), head, turn: Turn::first(client), to };
    tokio::spawn(caller.run(body));
    answer::stream(answer::JSON_LINES, Replies { made, first: None }.boxed_unsync())
}

/// A line of a request.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    call: Cow<'a, str>,
    #[serde(borrow)]
    fields: &'a RawValue,
    #[serde(borrow)]
    idempotency_key: Option<Cow<'a, str>>,
    durable: Option<bool>,
    #[serde(borrow)]
    traceparent: Option<Cow<'a, str>>,
}

/// The fate of a line of a request: a call whose reply is awaited, or a response without a call.
enum Made {
    Waits(oneshot::Receiver<Reply>),
    Said(Said),
}

/// Makes the calls of a request.
struct Caller {
    shared: Arc<Shared>,
    head: Parts,
    turn: Turn,
    to: mpsc::Sender<Made>,
}

impl Caller {
    async fn run(mut self, mut body: Incoming) {
        let mut rest = Vec::new();
        let mut heard = Instant::now();
        loop {
            let frame = match timeout(TICK, body.frame()).await {
                Ok(frame) => frame,
                Err(_) if self.is_over(heard) => return,
                Err(_) => continue,
            };
            heard = Instant::now();
            let is_end = match frame {
                // Trailers are ignored.
                Some(Ok(frame)) => {
                    frame.into_data().into_iter().for_each(|data| rest.extend_from_slice(&data));
                    false
                }
                // It went away, and so does its reader.
                Some(Err(_)) => return,
                None => true,
            };
            let end = if is_end { rest.len() } else { rest.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1) };
            if !self.lines(&rest[..end]).await {
                return;
            }
            rest.drain(..end);
            let bytes_max = self.shared.limits.body_bytes_max;
            if rest.len() > bytes_max {
                let why = format!("a line is longer than {bytes_max} bytes");
                let _ = self.to.send(Made::Said(Said::error(StatusCode::PAYLOAD_TOO_LARGE, &why))).await;
                return;
            }
            if is_end {
                return;
            }
        }
    }

    /// Returns whether a request that sends nothing more is to be ended: the client has gone, the server ends, or it
    /// was silent for too long after its replies.
    fn is_over(&self, heard: Instant) -> bool {
        let is_answered = self.to.capacity() == AHEAD;
        self.to.is_closed()
            || self.shared.stopping.load(Ordering::Acquire)
            || (is_answered && heard.elapsed() > self.shared.limits.silence_max)
    }

    /// Makes the calls of whole lines; false if there is no more to be made.
    async fn lines(&mut self, lines: &[u8]) -> bool {
        if lines.is_empty() {
            return true;
        }
        // Who it is may have changed since.
        let identity = Identity::of(&self.shared, &self.head.headers, &self.head.extensions);
        let client = &self.turn.client.who;
        let same = identity.ok().filter(|identity| identity.who(client) == *client);
        for line in lines.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
            let made = match &same {
                Some(identity) => self.line(identity, line),
                None => Made::Said(Said::error(StatusCode::UNAUTHORIZED, "no user has this token any more")),
            };
            if self.to.send(made).await.is_err() || same.is_none() {
                return false;
            }
        }
        true
    }

    fn line(&mut self, identity: &Identity, line: &[u8]) -> Made {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Made::Said(Said::later(CLOSING));
        }
        let Line { call, fields, idempotency_key, durable, traceparent } = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => {
                let why = format!("{error}; give {{\"call\": \"...\", \"fields\": {{...}}}}");
                return Made::Said(Said::error(StatusCode::BAD_REQUEST, &why));
            }
        };
        if let Some(why) = identity.why_not(&Method::POST, &["call", &call]) {
            return Made::Said(Said::error(StatusCode::FORBIDDEN, &why));
        }
        let key = idempotency_key.map(|key| RequestKey::new(identity.name(), &key, self.shared.session.time_of_key()));
        let when = when_of(durable.unwrap_or(true));
        // A call without a span of its own is in that of the request.
        let own = self.shared.calls.traces().and_then(|_| Parent::read(&traceparent?));
        let wanted = Wanted { key, when, parent: own.or_else(|| parent(&self.shared, &self.head.headers)) };
        let made = make(&self.shared, &call, fields.get().as_bytes(), wanted, &self.turn);
        made.map_or_else(Made::Said, Made::Waits)
    }
}

/// The body of the response to many calls.
struct Replies {
    made: mpsc::Receiver<Made>,
    /// The call that was made first among those that are not answered.
    first: Option<oneshot::Receiver<Reply>>,
}

impl Replies {
    /// Returns the response to the next call; none after the last one.
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Said>> {
        loop {
            if let Some(reply) = &mut self.first {
                let reply = ready!(Pin::new(reply).poll(cx));
                self.first = None;
                return Poll::Ready(Some(said(reply)));
            }
            match ready!(self.made.poll_recv(cx)) {
                Some(Made::Waits(reply)) => self.first = Some(reply),
                Some(Made::Said(said)) => return Poll::Ready(Some(said)),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Body for Replies {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut text = Vec::new();
        while text.len() < TOGETHER {
            match self.next(cx) {
                Poll::Ready(Some(said)) => said.line(&mut text),
                Poll::Ready(None) if text.is_empty() => return Poll::Ready(None),
                Poll::Pending if text.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}
