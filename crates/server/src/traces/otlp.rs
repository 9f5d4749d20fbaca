//! Messages of OTLP in protobuf, as far as they are sent: `opentelemetry/proto/trace/v1/trace.proto` and those that it uses. Fields
//! that are never set are left out.

/// The ways in which the value of a field is written.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of what the process does.
    Internal = 1,
    /// The answer to a client.
    Server = 2,
}

/// A span.
pub struct Span {
    pub trace: [u8; 16],
    pub id: [u8; 8],
    pub state: String,
    pub parent: Option<[u8; 8]>,
    pub name: String,
    pub kind: Kind,
    /// The beginning and the end, nanoseconds since 1970.
    pub from: u64,
    pub until: u64,
    pub attributes: Vec<(&'static str, Value)>,
    /// The reason why it is an error, if it is one.
    pub error: Option<&'static str>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Int(u64),
}

/// Returns a request with spans of one process (`ExportTraceServiceRequest`).
pub fn request(resource: &[(&'static str, Value)], version: &str, spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |message| message.attributes(1, resource));
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"tidemill");
                scope.bytes(2, version.as_bytes());
            });
            spans.iter().for_each(|span| of_scope.message(2, |message| message.span(span)));
        });
    });
    request.0
}

/// Returns the number of spans that a response says were rejected (`ExportTraceServiceResponse`, `partial_success`).
pub fn rejected(response: &[u8]) -> u64 {
    let Some(Given::Bytes(partial)) = field(response, 1) else { return 0 };
    let Some(Given::Number(rejected)) = field(partial, 1) else { return 0 };
    rejected
}

/// A message that is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attributes(&mut self, field: u64, attributes: &[(&'static str, Value)]) {
        for (key, value) in attributes {
            self.message(field, |pair| {
                pair.bytes(1, key.as_bytes());
                pair.message(2, |any| match value {
                    Value::Text(text) => any.bytes(1, text.as_bytes()),
                    Value::Int(int) => any.int(3, *int),
                });
            });
        }
    }

    fn span(&mut self, span: &Span) {
        self.bytes(1, &span.trace);
        self.bytes(2, &span.id);
        self.bytes(3, span.state.as_bytes());
        span.parent.iter().for_each(|parent| self.bytes(4, parent));
        self.bytes(5, span.name.as_bytes());
        self.int(6, span.kind as u64);
        self.fixed64(7, span.from);
        self.fixed64(8, span.until);
        self.attributes(9, &span.attributes);
        if let Some(why) = span.error {
            const ERROR: u64 = 2;
            self.message(15, |status| {
                status.bytes(2, why.as_bytes());
                status.int(3, ERROR);
            });
        }
    }
}

/// A value that is read.
enum Given<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the last value of a field; none where the message has none, or is broken.
fn field(mut message: &[u8], wanted: u64) -> Option<Given<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            VARINT => Given::Number(varint(&mut message)?),
            BYTES => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Given::Bytes(message.split_off(..length)?)
            }
            FIXED64 => Given::Bytes(message.split_off(..8)?),
            _ => return None,
        };
        if tag >> 3 == wanted {
            found = Some(value);
        }
    }
    found
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_rejects_is_read() {
        let said = |count: u64| {
            let mut response = Message::default();
            response.message(1, |partial| {
                partial.int(1, count);
                partial.bytes(2, b"too old");
            });
            response.0
        };
        for count in [0, 1, 127, 128, 300, u64::MAX] {
            assert_eq!(rejected(&said(count)), count);
        }
        assert_eq!(rejected(&[]), 0);
        // A response that is cut or wrong says nothing, and is no panic.
        let whole = said(300);
        (0..whole.len()).for_each(|end| assert_eq!(rejected(&whole[..end]), 0));
        for byte in 0..whole.len() {
            for wrong in 0..=255 {
                let mut changed = whole.clone();
                changed[byte] = wrong;
                let _ = rejected(&changed);
            }
        }
    }
}
