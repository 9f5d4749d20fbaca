//! Encoding of the messages that the server sends.

use super::error::{PgError, Severity};
use super::frontend::Form;
use super::types::PgType;

/// The state of a connection's block of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    InBlock,
    Failed,
}

/// A column of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub name: String,
    pub ty: PgType,
}

/// Appends a message.
pub fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    // A zero byte would end it.
    out.extend(text.bytes().filter(|&byte| byte != 0));
    out.push(0);
}

pub fn authenticated(out: &mut Vec<u8>) {
    message(out, b'R', |out| out.extend_from_slice(&[0; 4]));
}

/// Asks for a password as it is, which is a token here.
pub fn ask_token(out: &mut Vec<u8>) {
    message(out, b'R', |out| out.extend_from_slice(&3u32.to_be_bytes()));
}

/// Asks for the first message of SCRAM-SHA-256, by one of these mechanisms.
pub fn ask_scram(out: &mut Vec<u8>, mechanisms: &[&str]) {
    message(out, b'R', |out| {
        out.extend_from_slice(&10u32.to_be_bytes());
        mechanisms.iter().for_each(|mechanism| text(out, mechanism));
        out.push(0);
    });
}

/// Writes a message of the SCRAM exchange. After the last one the exchange is over; after any other the client answers.
pub fn scram(out: &mut Vec<u8>, said: &str, is_last: bool) {
    message(out, b'R', |out| {
        out.extend_from_slice(&if is_last { 12u32 } else { 11 }.to_be_bytes());
        out.extend_from_slice(said.as_bytes());
    });
}

/// Appends the newest minor version that is spoken, and the options of the protocol that are not known.
pub fn negotiate(out: &mut Vec<u8>, unknown: &[&str]) {
    message(out, b'v', |out| {
        out.extend_from_slice(&0u32.to_be_bytes());
        out.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
        unknown.iter().for_each(|option| text(out, option));
    });
}

pub fn parameter(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        text(out, name);
        text(out, value);
    });
}

pub fn key(out: &mut Vec<u8>, process: i32, secret: u32) {
    message(out, b'K', |out| {
        out.extend_from_slice(&process.to_be_bytes());
        out.extend_from_slice(&secret.to_be_bytes());
    });
}

pub fn ready(out: &mut Vec<u8>, status: Status) {
    let status = match status {
        Status::Idle => b'I',
        Status::InBlock => b'T',
        Status::Failed => b'E',
    };
    message(out, b'Z', |out| out.push(status));
}

pub fn parse_complete(out: &mut Vec<u8>) {
    message(out, b'1', |_| {});
}

pub fn bind_complete(out: &mut Vec<u8>) {
    message(out, b'2', |_| {});
}

pub fn close_complete(out: &mut Vec<u8>) {
    message(out, b'3', |_| {});
}

pub fn no_data(out: &mut Vec<u8>) {
    message(out, b'n', |_| {});
}

pub fn empty_query(out: &mut Vec<u8>) {
    message(out, b'I', |_| {});
}

pub fn suspended(out: &mut Vec<u8>) {
    message(out, b's', |_| {});
}

/// Appends a notification: an event of a stream that is listened to.
pub fn notification(out: &mut Vec<u8>, channel: &str, payload: &[u8]) {
    message(out, b'A', |out| {
        // No process of another has sent it.
        out.extend_from_slice(&0i32.to_be_bytes());
        text(out, channel);
        out.extend_from_slice(payload);
        out.push(0);
    });
}

pub fn complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |out| text(out, tag));
}

pub fn parameters(out: &mut Vec<u8>, types: &[u32]) {
    message(out, b't', |out| {
        out.extend_from_slice(&(types.len() as u16).to_be_bytes());
        types.iter().for_each(|ty| out.extend_from_slice(&ty.to_be_bytes()));
    });
}

/// Appends the description of a result's columns, with the format of each.
pub fn columns<'a>(out: &mut Vec<u8>, columns: &'a [Described], form: impl Fn(usize) -> Form) {
    let one = |out: &mut Vec<u8>, (place, column): (usize, &'a Described)| {
        text(out, &column.name);
        // The column belongs to no table: table number 0, column number 0.
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&column.ty.oid().to_be_bytes());
        out.extend_from_slice(&column.ty.size().to_be_bytes());
        out.extend_from_slice(&column.ty.modifier().to_be_bytes());
        out.extend_from_slice(&u16::from(form(place) == Form::Binary).to_be_bytes());
    };
    message(out, b'T', |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        columns.iter().enumerate().for_each(|column| one(out, column));
    });
}

/// Appends a row: `value` appends the bytes of a column and says whether there is a value.
pub fn row(out: &mut Vec<u8>, count: usize, mut value: impl FnMut(&mut Vec<u8>, usize) -> bool) {
    message(out, b'D', |out| {
        out.extend_from_slice(&(count as u16).to_be_bytes());
        for column in 0..count {
            let start = out.len();
            out.extend_from_slice(&(-1i32).to_be_bytes());
            if value(out, column) {
                let length = (out.len() - start - 4) as u32;
                out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
    });
}

pub fn error(out: &mut Vec<u8>, error: &PgError) {
    let severity = match error.severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let fields = [
        (b'S', Some(severity)),
        (b'V', Some(severity)),
        (b'C', Some(error.code)),
        (b'M', Some(&*error.message)),
        (b'D', error.detail.as_deref()),
        (b'H', error.hint.as_deref()),
        (b'c', error.column.as_deref()),
    ];
    message(out, b'E', |out| answer_fields(out, &fields));
}

/// Writes a warning: the statement has succeeded, and the client shows or logs the message.
pub fn warning(out: &mut Vec<u8>, code: &str, said: &str) {
    let fields = [(b'S', Some("WARNING")), (b'V', Some("WARNING")), (b'C', Some(code)), (b'M', Some(said))];
    message(out, b'N', |out| answer_fields(out, &fields));
}

fn answer_fields(out: &mut Vec<u8>, fields: &[(u8, Option<&str>)]) {
    for (field, value) in fields {
        if let Some(value) = value {
            out.push(*field);
            text(out, value);
        }
    }
    out.push(0);
}
