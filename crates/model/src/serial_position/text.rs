//! Positions as text: `TIME/PLACE`, with `+N` for what is sent.
//!
//! The places are `begin`, `tick/EVERY`, `wake/TABLE(KEY,...)`, `record/SOURCE.SPLIT.OFFSET` and
//! `result/OPERATOR.ORDINAL`. In a key, words are numbers, texts stand in quotes (`\` before a quote and before
//! itself), bytes are `x` with two digits each. Each position has one text: nothing else is read.

use super::{KeyPart, Place, SerialPosition};
use std::fmt::{self, Display, Formatter, Write as _};
use std::str::FromStr;

/// A text that is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a position, such as 60/record/0.1.17, 60/tick/0 or 60/begin+7")]
pub struct ParsePositionError(String);

impl Display for SerialPosition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.time, self.place)?;
        match self.sent {
            Some(ordinal) => write!(f, "+{ordinal}"),
            None => Ok(()),
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Place::Begin => write!(f, "begin"),
            Place::Tick { every } => write!(f, "tick/{every}"),
            Place::Record { source, split, offset } => write!(f, "record/{source}.{split}.{offset}"),
            Place::Result { operator, ordinal } => write!(f, "result/{operator}.{ordinal}"),
            Place::Wake { table, key } => {
                write!(f, "wake/{table}(")?;
                for (index, part) in key.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{part}")?;
                }
                f.write_char(')')
            }
        }
    }
}

impl Display for KeyPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            KeyPart::Word(word) => write!(f, "{word}"),
            KeyPart::Text(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            KeyPart::Bytes(bytes) => {
                f.write_char('x')?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl FromStr for SerialPosition {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, ParsePositionError> {
        let mut rest = Rest(text);
        // Numbers are also read with a plus or with leading zeros, so the text is compared with the one that there is.
        let position = rest.position().filter(|position| rest.0.is_empty() && position.to_string() == text);
        position.ok_or_else(|| ParsePositionError(text.to_owned()))
    }
}

/// The text that is not read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn position(&mut self) -> Option<SerialPosition> {
        let time = self.number()?;
        self.skip("/")?;
        let place = self.place()?;
        let sent = match self.skip("+") {
            Some(()) => Some(self.number()?),
            None => None,
        };
        Some(SerialPosition { time, place, sent })
    }

    fn place(&mut self) -> Option<Place> {
        if self.skip("begin").is_some() {
            return Some(Place::Begin);
        }
        if self.skip("tick/").is_some() {
            return Some(Place::Tick { every: self.number()? });
        }
        if self.skip("wake/").is_some() {
            return Some(Place::Wake { table: self.number()?, key: self.key()? });
        }
        if self.skip("record/").is_some() {
            let (source, (), split, ()) = (self.number()?, self.skip(".")?, self.number()?, self.skip(".")?);
            return Some(Place::Record { source, split, offset: self.number()? });
        }
        self.skip("result/")?;
        let (operator, ()) = (self.number()?, self.skip(".")?);
        Some(Place::Result { operator, ordinal: self.number()? })
    }

    fn key(&mut self) -> Option<Vec<KeyPart>> {
        self.skip("(")?;
        let mut key = Vec::new();
        while self.skip(")").is_none() {
            if !key.is_empty() {
                self.skip(",")?;
            }
            key.push(self.part()?);
        }
        Some(key)
    }

    fn part(&mut self) -> Option<KeyPart> {
        if self.skip("\"").is_some() {
            let mut text = String::new();
            loop {
                match self.next()? {
                    '"' => return Some(KeyPart::Text(text)),
                    '\\' => text.push(self.next()?),
                    other => text.push(other),
                }
            }
        }
        if self.skip("x").is_none() {
            return self.number().map(KeyPart::Word);
        }
        let digits = self.take_while(|c| c.is_ascii_hexdigit());
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>().map(KeyPart::Bytes)
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        let sign = if self.0.starts_with('-') { 1 } else { 0 };
        let digits = self.0[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.0.split_at(sign + digits);
        self.0 = rest;
        number.parse().ok()
    }

    fn take_while(&mut self, mut take: impl FnMut(char) -> bool) -> String {
        let end = self.0.find(|c| !take(c)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken.to_owned()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.0.chars();
        let next = chars.next();
        self.0 = chars.as_str();
        next
    }

    fn skip(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }
}
