//! Positions of events as people name them.

use std::fmt;
use std::str::FromStr;
use tidemill_connect::parse_time;

/// An event of a source: `SOURCE:N` is its offset (from 0; records that could not be decoded are not counted),
/// `SOURCE@TIME` its event time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPosition {
    /// The source's name.
    pub source: String,
    /// The position in it.
    pub at: At,
}

/// A position in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The event's ordinal in its source, from 0.
    Offset(u64),
    /// Its event time: an int, or microseconds since 1970.
    Time(i64),
}

impl FromStr for EventPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a position; give SOURCE:N, such as transfers:17, or SOURCE@TIME");
        // A time has colons of its own.
        if let Some((source, time)) = text.split_once('@').filter(|(source, _)| !source.is_empty()) {
            let time = time.parse().ok().or_else(|| parse_time(time)).ok_or_else(wrong)?;
            return Ok(EventPosition { source: source.into(), at: At::Time(time) });
        }
        let (source, offset) = text.rsplit_once(':').filter(|(source, _)| !source.is_empty()).ok_or_else(wrong)?;
        let offset = offset.parse().map_err(|_| wrong())?;
        Ok(EventPosition { source: source.into(), at: At::Offset(offset) })
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Offset(offset) => write!(f, "{}:{offset}", self.source),
            At::Time(time) => write!(f, "{}@{time}", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_parse() {
        let of = |text: &str| text.parse::<EventPosition>().map(|p| (p.source, p.at));
        assert_eq!(of("transfers:17"), Ok(("transfers".into(), At::Offset(17))));
        assert_eq!(of("transfers@1500"), Ok(("transfers".into(), At::Time(1500))));
        let time = At::Time(1_714_554_000_000_000);
        assert_eq!(of("transfers@2024-05-01T09:00:00Z"), Ok(("transfers".into(), time)));
        for wrong in ["transfers", "transfers:", ":3", "transfers:-1", "transfers@noon", "@5"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
