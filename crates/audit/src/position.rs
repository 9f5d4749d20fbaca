//! Positions of events as people name them.

use std::fmt;
use std::str::FromStr;
use tidemill_connect::parse_time;

/// An event of a source: `SOURCE:N` is its offset (from 0; records that could not be decoded are not counted),
/// `SOURCE@TIME` its event time. Of a source with several splits, `SOURCE/SPLIT:N` is the offset in one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPosition {
    /// The source's name.
    pub source: String,
    /// The split, if one is named: the name, or the end of it after a slash.
    pub split: Option<String>,
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
        let timed = text.rsplit_once('@').map(|(of, time)| (of, time.parse().ok().or_else(|| parse_time(time))));
        let (of, at) = match timed {
            Some((of, Some(time))) => (of, At::Time(time)),
            // A split may be named with any sign.
            Some(_) | None => {
                let (of, offset) = text.rsplit_once(':').ok_or_else(wrong)?;
                (of, At::Offset(offset.parse().map_err(|_| wrong())?))
            }
        };
        let (source, split) = of.split_once('/').map_or((of, None), |(source, split)| (source, Some(split)));
        if source.is_empty() || split.is_some_and(str::is_empty) || (split.is_none() && of.contains('@')) {
            return Err(wrong());
        }
        Ok(EventPosition { source: source.into(), split: split.map(str::to_owned), at })
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        self.split.iter().try_for_each(|split| write!(f, "/{split}"))?;
        match self.at {
            At::Offset(offset) => write!(f, ":{offset}"),
            At::Time(time) => write!(f, "@{time}"),
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
        assert_eq!(of("transfers@2024-05-01T09:00:00Z"), Ok(("transfers".into(), time.clone())));
        let split = |text: &str| text.parse::<EventPosition>().map(|p| (p.source, p.split, p.at));
        for (text, name, at) in [
            ("transfers/a.csv:17", "a.csv", At::Offset(17)),
            ("transfers//data/a.csv:17", "/data/a.csv", At::Offset(17)),
            ("transfers/a@b:c.csv:17", "a@b:c.csv", At::Offset(17)),
            ("transfers/a@b.csv@2024-05-01T09:00:00Z", "a@b.csv", time.clone()),
        ] {
            assert_eq!(split(text), Ok(("transfers".into(), Some(name.into()), at)));
        }
        for wrong in ["transfers", "transfers:", ":3", "transfers:-1", "transfers@noon", "@5", "transfers/:3", "/a:3"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
