//! Responses.

use crate::follow::Events;
use crate::slots::RETRY_SECONDS;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use std::convert::Infallible;
use tidemill_connect::json_string;
use tidemill_runtime::{BadRecord, Place};

/// The number of the epoch that rows were read after.
pub const EPOCH: HeaderName = HeaderName::from_static("tidemill-epoch");
/// The number of rows that the whole table had.
pub const ROWS: HeaderName = HeaderName::from_static("tidemill-rows");

pub const JSON: &str = "application/json";
pub const JSON_LINES: &str = "application/x-ndjson";
pub const ARROW: &str = "application/vnd.apache.arrow.stream";
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a response says, whole or in parts.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A response, whole or a stream.
pub type Answer = Response<Body>;

/// A whole response.
pub fn whole(status: StatusCode, content: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

/// Rows after an epoch.
pub fn rows(epoch: u64, content: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(EPOCH, epoch.into());
    response
}

/// One row after an epoch.
pub fn row(epoch: u64, body: Vec<u8>) -> Answer {
    rows(epoch, JSON, Full::new(body.into()).boxed_unsync())
}

/// A response that comes in parts.
pub fn stream(content: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Server-sent events.
pub fn events(events: Events) -> Answer {
    stream("text/event-stream", events.boxed_unsync())
}

/// A JSON object with its status.
#[derive(Debug)]
pub struct Said {
    status: StatusCode,
    body: Vec<u8>,
    /// Whether nothing was done, and it may be asked again.
    again: bool,
}

impl Said {
    /// A whole one.
    pub fn new(status: StatusCode, body: Vec<u8>) -> Said {
        Said { status, body, again: false }
    }

    /// `{"error": ...}`.
    pub fn error(status: StatusCode, text: &str) -> Said {
        Said::new(status, error_text(text, None, None))
    }

    /// `{"idempotency_key": false, "error": ...}`: the key of a call cannot be taken, and the call was not made.
    pub fn key_error(status: StatusCode, text: &str) -> Said {
        let mut body = b"{\"idempotency_key\":false,\"error\":".to_vec();
        json_string(&mut body, text);
        body.extend_from_slice(b"}\n");
        Said::new(status, body)
    }

    /// 503: it may be asked again soon.
    pub fn later(text: &str) -> Said {
        Said::error(StatusCode::SERVICE_UNAVAILABLE, text).again()
    }

    /// 400 for what is no JSON object, 422 for one that is wrong in a field.
    pub fn bad(bad: &BadRecord) -> Said {
        let status = if bad.column.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        let field = bad.column.clone().map(|field| ("field", field));
        Said::new(status, error_text(&bad.reason, field, bad.line))
    }

    /// The same, with the word that nothing was done, and when it may be asked again (`"retry_after"`).
    pub fn again(mut self) -> Said {
        assert!(self.body.ends_with(b"}\n"), "it is an object");
        self.body.truncate(self.body.len() - 2);
        self.body.extend_from_slice(format!(",\"retry_after\":{RETRY_SECONDS}}}\n").as_bytes());
        Said { again: true, ..self }
    }

    /// As a response.
    pub fn answer(self) -> Answer {
        let mut response = whole(self.status, JSON, self.body);
        if self.again {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS.into());
        }
        response
    }

    /// As the bytes of a response after which the connection ends.
    pub fn last(&self) -> Vec<u8> {
        let Said { status, body, again } = self;
        let again = if *again { format!("Retry-After: {RETRY_SECONDS}\r\n") } else { String::new() };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\n{again}");
        [head.as_bytes(), b"Connection: close\r\n\r\n", body].concat()
    }

    /// As a line of many: `{"status": 200, "reply": {...}}`.
    pub fn line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"status\":");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b",\"reply\":");
        out.extend_from_slice(self.body.trim_ascii_end());
        out.extend_from_slice(b"}\n");
    }
}

/// `{"error": ...}`.
pub fn error(status: StatusCode, text: &str) -> Answer {
    Said::error(status, text).answer()
}

/// 503: it may be asked again soon.
pub fn later(text: &str) -> Answer {
    Said::later(text).answer()
}

/// 410, with the first place that may be read after, if there is one.
pub fn gone(text: &str, kept: Option<Place>) -> Answer {
    whole(StatusCode::GONE, JSON, error_text(text, kept.map(|kept| ("kept", kept.to_string())), None))
}

/// 405.
pub fn method(allowed: &'static str) -> Answer {
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this is asked for with {allowed}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// What [`Said::bad`] says.
pub fn bad(bad: &BadRecord) -> Answer {
    Said::bad(bad).answer()
}

/// `{"error": ...}`, with another member and a line if it is about them.
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
