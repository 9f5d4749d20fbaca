//! Responses.

use crate::follow::Events;
use crate::shares::RETRY_SECONDS;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use std::convert::Infallible;
use tidemill_connect::json_string;
use tidemill_io::BadRecord;
use tidemill_runtime::Position;

/// The number of the epoch that rows were read after.
pub const EPOCH: HeaderName = HeaderName::from_static("tidemill-epoch");
/// The number of rows that the whole table had.
pub const ROWS: HeaderName = HeaderName::from_static("tidemill-rows");
/// The types of the columns of a query, as a JSON object in ASCII.
pub const TYPES: HeaderName = HeaderName::from_static("tidemill-types");

pub const JSON: &str = "application/json";
pub const JSON_LINES: &str = "application/x-ndjson";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The body of a response, whole or in parts.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A response, whole or a stream.
pub type Answer = Response<Body>;

/// Returns a whole response.
pub fn whole(status: StatusCode, content: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

/// Returns the value of the header [`EPOCH`].
pub fn epoch(after: Position) -> HeaderValue {
    HeaderValue::from_str(&after.to_string()).expect("digits and signs")
}

/// Returns the rows at a position, which is that after an epoch.
pub fn rows(after: Position, content: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(EPOCH, epoch(after));
    response
}

/// Returns one row at a position, which is that after an epoch.
pub fn row(after: Position, body: Vec<u8>) -> Answer {
    rows(after, JSON, Full::new(body.into()).boxed_unsync())
}

/// Returns a response that comes in parts.
pub fn stream(content: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Makes a response of server-sent events.
pub fn events(events: Events) -> Answer {
    stream("text/event-stream", events.boxed_unsync())
}

/// A JSON object with its status.
#[derive(Debug)]
pub struct Said {
    status: StatusCode,
    body: Vec<u8>,
    /// A flag: whether nothing was done, so that the request may be repeated.
    again: bool,
}

impl Said {
    /// Makes a JSON response of a status and its whole body.
    pub fn new(status: StatusCode, body: Vec<u8>) -> Said {
        Said { status, body, again: false }
    }

    /// Makes `{"error": ...}`.
    pub fn error(status: StatusCode, text: &str) -> Said {
        Said::new(status, error_text(text, None, None))
    }

    /// Makes `{"idempotency_key": false, "error": ...}`: the key of a call cannot be taken, and the call was not made.
    pub fn key_error(status: StatusCode, text: &str) -> Said {
        let mut body = b"{\"idempotency_key\":false,\"error\":".to_vec();
        json_string(&mut body, text);
        body.extend_from_slice(b"}\n");
        Said::new(status, body)
    }

    /// Makes a 503 ("service unavailable"): the client may repeat the request soon.
    pub fn later(text: &str) -> Said {
        Said::error(StatusCode::SERVICE_UNAVAILABLE, text).again()
    }

    /// Makes a 400 for a text that is no JSON object, a 422 for an object that is wrong in a field.
    pub fn bad(bad: &BadRecord) -> Said {
        let status = if bad.column.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        let field = bad.column.clone().map(|field| ("field", field));
        Said::new(status, error_text(&bad.reason, field, bad.line))
    }

    /// Adds that nothing was done, and the seconds after which to try again (`"retry_after"`).
    pub fn again(mut self) -> Said {
        assert!(self.body.ends_with(b"}\n"), "it is an object");
        self.body.truncate(self.body.len() - 2);
        self.body.extend_from_slice(format!(",\"retry_after\":{RETRY_SECONDS}}}\n").as_bytes());
        Said { again: true, ..self }
    }

    /// Returns the object as an HTTP response.
    pub fn answer(self) -> Answer {
        let mut response = whole(self.status, JSON, self.body);
        if self.again {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS.into());
        }
        response
    }

    /// Returns the object as the bytes of an HTTP/1.1 response after which the connection ends.
    pub fn last(&self) -> Vec<u8> {
        let Said { status, body, again } = self;
        let again = if *again { format!("Retry-After: {RETRY_SECONDS}\r\n") } else { String::new() };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\n{again}");
        let rest = b"X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
        [head.as_bytes(), rest, body].concat()
    }

    /// Appends it as one line of many: `{"status": 200, "reply": {...}}`.
    pub fn line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"status\":");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b",\"reply\":");
        out.extend_from_slice(self.body.trim_ascii_end());
        out.extend_from_slice(b"}\n");
    }
}

/// Makes a response with `{"error": ...}`.
pub fn error(status: StatusCode, text: &str) -> Answer {
    Said::error(status, text).answer()
}

/// Makes a 200: the server can do its work; `time` is the reason why its time does not go on, if it does not, and `head` the
/// head of the chain of proof after the last epoch that is durable, if there is one.
pub fn healthy(time: Option<String>, head: Option<String>) -> Answer {
    let mut body = b"{\"status\":\"ok\"".to_vec();
    if let Some(time) = time {
        body.extend_from_slice(b",\"time\":");
        json_string(&mut body, &time);
    }
    if let Some(head) = head {
        body.extend_from_slice(b",\"head\":");
        json_string(&mut body, &head);
    }
    body.extend_from_slice(b"}\n");
    whole(StatusCode::OK, JSON, body)
}

/// Makes a 503 ("service unavailable"): the client may repeat the request soon.
pub fn later(text: &str) -> Answer {
    Said::later(text).answer()
}

/// Makes a 410 ("gone"), with the first position after which events may be read, if there is one.
pub fn gone(text: &str, kept: Option<Position>) -> Answer {
    whole(StatusCode::GONE, JSON, error_text(text, kept.map(|kept| ("kept", kept.to_string())), None))
}

/// Makes a 405 ("method not allowed").
pub fn method(allowed: &'static str) -> Answer {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this is asked for with {allowed}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Returns the response of [`Said::bad`].
pub fn bad(bad: &BadRecord) -> Answer {
    Said::bad(bad).answer()
}

/// Returns `{"error": ...}`, with another member and a line if it is about them.
fn error_text(text: &str, member: Option<(&str, String)>, line: Option<u64>) -> Vec<u8> {
    let mut body = b"{\"error\":".to_vec();
    json_string(&mut body, text);
    if let Some((name, value)) = member {
        body.extend_from_slice(format!(",\"{name}\":").as_bytes());
        json_string(&mut body, &value);
    }
    if let Some(line) = line {
        body.extend_from_slice(format!(",\"line\":{line}").as_bytes());
    }
    body.extend_from_slice(b"}\n");
    body
}
