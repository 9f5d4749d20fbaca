//! Responses.

use crate::follow::Events;
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

/// Server-sent events.
pub fn events(events: Events) -> Answer {
    let mut response = Response::new(events.boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `{"error": ...}`.
pub fn error(status: StatusCode, text: &str) -> Answer {
    whole(status, JSON, error_text(text, None, None))
}

/// `{"idempotency_key": false, "error": ...}`: the key of a call cannot be taken, and the call was not made.
pub fn key_error(status: StatusCode, text: &str) -> Answer {
    let mut body = b"{\"idempotency_key\":false,\"error\":".to_vec();
    json_string(&mut body, text);
    body.extend_from_slice(b"}\n");
    whole(status, JSON, body)
}

/// 503: it may be asked again soon.
pub fn later(text: &str) -> Answer {
    retried(error(StatusCode::SERVICE_UNAVAILABLE, text))
}

/// The response with the word that nothing was done, and that it may be asked again.
pub fn retried(mut response: Answer) -> Answer {
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
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

/// 400 for what is no JSON object, 422 for one that is wrong in a field.
pub fn bad(bad: &BadRecord) -> Answer {
    let status = if bad.column.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
    whole(status, JSON, error_text(&bad.reason, bad.column.clone().map(|field| ("field", field)), bad.line))
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
