//! Decoding of the messages that clients send.
//!
//! # Invariant
//!
//! Nothing is read beyond the end of a message, whatever its lengths say, and a message with bytes left over is
//! refused. Text is UTF-8, or is refused.

use super::error::{PgError, PgResult, code};

/// The largest first message, as in PostgreSQL.
const STARTUP_BYTES_MAX: usize = 10_000;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// The first message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum First {
    /// The question whether the server speaks TLS: a handshake or another first message follows.
    Tls,
    /// The question whether the server speaks GSS encryption: another first message follows.
    Gss,
    /// A request to cancel what another connection does.
    Cancel { process: i32, secret: Vec<u8> },
    /// The minor version of protocol 3, and parameters by name.
    Startup { minor: u16, parameters: Vec<(String, String)> },
}

/// The kind of object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Statement,
    Portal,
}

/// Text or binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Binary,
}

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    Query(String),
    Parse {
        name: String,
        query: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target, String),
    Execute {
        portal: String,
        rows_max: usize,
    },
    Close(Target, String),
    Flush,
    Sync,
    Terminate,
    /// A message of the copy protocol. No copy is ever under way, so it is skipped, as PostgreSQL does.
    Copy,
}

/// Values for a statement.
#[derive(Debug, PartialEq, Eq)]
pub struct Bind {
    pub portal: String,
    pub statement: String,
    pub forms: Vec<Form>,
    pub values: Vec<Option<Vec<u8>>>,
    pub results: Vec<Form>,
}

impl Bind {
    /// Returns the form of a parameter; none if the number of forms is wrong.
    pub fn form(&self, parameter: usize) -> Option<Form> {
        form_of(&self.forms, parameter)
    }
}

/// Returns the form of a value, of which all are text if there is no form, and all are alike if there is one.
pub fn form_of(forms: &[Form], place: usize) -> Option<Form> {
    match forms {
        [] => Some(Form::Text),
        [form] => Some(*form),
        forms => forms.get(place).copied(),
    }
}

/// Returns the bytes of a message, and how many there are with its head. None while it is not whole.
pub fn first_message(input: &[u8]) -> PgResult<Option<(First, usize)>> {
    let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(PgError::fatal(code::PROTOCOL_VIOLATION, format!("a first message of {length} bytes is none")));
    }
    let Some(body) = input.get(4..length) else { return Ok(None) };
    let mut body = Body(body);
    let first = match body.u32()? {
        SSL_REQUEST => First::Tls,
        GSS_REQUEST => First::Gss,
        CANCEL_REQUEST => First::Cancel { process: body.u32()? as i32, secret: body.rest().to_vec() },
        version if version >> 16 == 3 => startup(&mut body, (version & 0xffff) as u16)?,
        version => {
            let (major, minor) = (version >> 16, version & 0xffff);
            let message = format!("protocol {major}.{minor} is not spoken here; speak 3.0");
            return Err(PgError::fatal(code::NOT_SUPPORTED, message));
        }
    };
    body.end()?;
    Ok(Some((first, length)))
}

fn startup(body: &mut Body<'_>, minor: u16) -> PgResult<First> {
    let mut parameters = Vec::new();
    loop {
        let name = body.text()?;
        if name.is_empty() {
            return Ok(First::Startup { minor, parameters });
        }
        parameters.push((name, body.text()?));
    }
}

/// Returns the length of the message that begins here, with its head, if that much is known.
pub fn length(input: &[u8], bytes_max: usize) -> PgResult<Option<usize>> {
    let Some(&[tag, a, b, c, d]) = input.first_chunk::<5>() else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !is_tag(tag) {
        return Err(violation(format!("there is no message of type {tag}")));
    }
    if length < 4 {
        return Err(violation(format!("a message of length {length} is none")));
    }
    if length > bytes_max {
        let message = format!("the message has {length} bytes, and {bytes_max} are allowed; send less at once");
        return Err(PgError::fatal(code::TOO_LARGE, message));
    }
    Ok(Some(length + 1))
}

fn is_tag(tag: u8) -> bool {
    b"QPBDECHSXdcf".contains(&tag)
}

/// Returns a whole message.
pub fn message(bytes: &[u8]) -> PgResult<Message> {
    let mut body = Body(&bytes[5..]);
    let message = match bytes[0] {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            let (name, query, count) = (body.text()?, body.text()?, body.u16()?);
            Message::Parse { name, query, types: (0..count).map(|_| body.u32()).collect::<PgResult<_>>()? }
        }
        b'B' => Message::Bind(bind(&mut body)?),
        b'D' => Message::Describe(body.target()?, body.text()?),
        b'E' => Message::Execute { portal: body.text()?, rows_max: (body.u32()? as i32).max(0) as usize },
        b'C' => Message::Close(body.target()?, body.text()?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        _ => {
            body.rest();
            Message::Copy
        }
    };
    body.end()?;
    Ok(message)
}

fn bind(body: &mut Body<'_>) -> PgResult<Bind> {
    let (portal, statement, forms, count) = (body.text()?, body.text()?, body.forms()?, body.u16()?);
    let mut values = Vec::with_capacity(usize::from(count).min(body.0.len() / 4));
    for _ in 0..count {
        values.push(match body.u32()? as i32 {
            -1 => None,
            length => Some(body.bytes(usize::try_from(length).map_err(|_| short())?)?.to_vec()),
        });
    }
    Ok(Bind { portal, statement, forms, values, results: body.forms()? })
}

fn violation(message: impl Into<String>) -> PgError {
    PgError::fatal(code::PROTOCOL_VIOLATION, message)
}

fn short() -> PgError {
    violation("a message ends before what it announces")
}

/// The rest of a message.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn bytes(&mut self, count: usize) -> PgResult<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u16(&mut self) -> PgResult<u16> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> PgResult<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads text up to a zero byte.
    fn text(&mut self) -> PgResult<String> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or_else(short)?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        let wrong = |_| violation("the text of a message is not UTF-8");
        std::str::from_utf8(text).map(str::to_owned).map_err(wrong)
    }

    fn target(&mut self) -> PgResult<Target> {
        match self.bytes(1)?[0] {
            b'S' => Ok(Target::Statement),
            b'P' => Ok(Target::Portal),
            other => Err(violation(format!("{other} stands for neither a statement nor a portal"))),
        }
    }

    fn forms(&mut self) -> PgResult<Vec<Form>> {
        let count = self.u16()?;
        let form = |_| match self.u16()? {
            0 => Ok(Form::Text),
            1 => Ok(Form::Binary),
            other => Err(violation(format!("{other} is neither the text nor the binary format"))),
        };
        (0..count).map(form).collect()
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn end(&self) -> PgResult<()> {
        if self.0.is_empty() { Ok(()) } else { Err(violation("a message is longer than what it announces")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    const BIND: &[u8] = b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x01\0\x01";

    #[test]
    fn messages_are_read_whole() {
        assert_eq!(length(b"Q\0\0", 100), Ok(None));
        assert_eq!(length(b"Q\0\0\0\x08abc\0more", 100), Ok(Some(9)));
        assert_eq!(message(b"Q\0\0\0\x08abc\0"), Ok(Message::Query("abc".into())));
        let bind = Bind {
            portal: String::new(),
            statement: "s".into(),
            forms: vec![Form::Binary],
            values: vec![Some(b"ab".to_vec()), None],
            results: vec![Form::Binary],
        };
        assert_eq!(message(&framed(b'B', BIND)), Ok(Message::Bind(bind)));
        let startup = b"\0\0\0\x12\0\x03\0\0user\0ada\0\0...";
        let parameters = vec![("user".into(), "ada".into())];
        assert_eq!(first_message(startup), Ok(Some((First::Startup { minor: 0, parameters }, 18))));
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        for end in 0..BIND.len() {
            assert!(message(&framed(b'B', &BIND[..end])).is_err(), "{end}");
        }
        let longer = [BIND, b"x"].concat();
        for body in
            [&longer[..], b"\0\0\0\0\xff\xff", b"\0\0\0\0\0\x01\x7f\xff\xff\xff", b"\0\0\0\0\0\x01\xff\xff\xff\xf0"]
        {
            assert!(message(&framed(b'B', body)).is_err(), "{body:?}");
        }
        for (tag, body) in
            [(b'Q', &b"abc"[..]), (b'Q', b"\xff\0"), (b'D', b"X\0"), (b'E', b"\0"), (b'P', b"\0\0\0\x01")]
        {
            assert!(message(&framed(tag, body)).is_err());
        }
        for bytes in [&b"Q\xff\xff\xff\xff"[..], b"Q\0\0\0\x03", b"?\0\0\0\x04", b"GET / HTTP/1.1\r\n"] {
            assert!(length(bytes, 1 << 20).is_err());
        }
        for bytes in
            [&b"GET / HTTP/1.1\r\n"[..], b"\0\0\0\x07\0\x03\0", b"\0\0\0\x08\0\x02\0\0", b"\0\0\0\x0a\0\x03\0\0ab"]
        {
            assert!(first_message(bytes).is_err());
        }
    }

    #[test]
    fn random_bytes_are_read_or_refused() {
        let mut seed = 7u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut body: Vec<u8> = BIND.iter().chain(BIND).take(random() % 40).copied().collect();
            for _ in 0..random() % 4 {
                let place = random() % body.len().max(1);
                if let Some(byte) = body.get_mut(place) {
                    *byte = random() as u8;
                }
            }
            let tag = b"QPBDECHSXdcf"[random() % 12];
            let _ = message(&framed(tag, &body));
            let _ = (first_message(&body), length(&body, 1000));
        }
    }
}
