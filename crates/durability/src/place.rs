//! Places in the events of a stream, as they are released.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A place in a stream: after a number of the events that an epoch gave on it, or after all of them. A replay gives the
/// same events at the same places. As text `7.12`, or `7` after a whole epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The epoch.
    pub epoch: u64,
    /// The number of its events; `u64::MAX` for all of them.
    pub events: u64,
}

impl Place {
    /// After everything that an epoch gave.
    pub fn after(epoch: u64) -> Place {
        Place { epoch, events: u64::MAX }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.events {
            u64::MAX => write!(f, "{}", self.epoch),
            events => write!(f, "{}.{events}", self.epoch),
        }
    }
}

/// A text that is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no place in a stream: it has the form '7.12', an epoch and a number of its events, or '7'")]
pub struct NoPlace(String);

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Place, NoPlace> {
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map_err(|_| NoPlace(text.into())),
            false => Err(NoPlace(text.into())),
        };
        match text.split_once('.') {
            None => number(text).map(Place::after),
            Some((epoch, events)) => Ok(Place { epoch: number(epoch)?, events: number(events)? }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_texts() {
        for place in [Place { epoch: 7, events: 12 }, Place { epoch: 0, events: 0 }, Place::after(3)] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", "x", "7.", ".1", "7.1.2", "-1", "+7", "7.+1", "99999999999999999999"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        assert!(Place { epoch: 7, events: 12 } < Place::after(7) && Place::after(7) < Place { epoch: 8, events: 1 });
    }
}
