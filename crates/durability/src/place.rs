//! Places in the events of a stream, as they are released, and positions: places of a history.
//!
//! A place counts epochs, and another history counts the same numbers for other epochs: another state, or this one before it
//! was put back to a savepoint. So what is given to those who go on later is a position.

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
    /// Returns the place after everything that an epoch gave.
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

/// A history of epochs: that of a state since it was made, or since it was put back to a savepoint; or that of a run without
/// a state. As text 16 hexadecimal digits, and after a dash how often the state was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// The number of the state, or of the run.
    pub id: u64,
    /// The number of times that the state was put back.
    pub number: u64,
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{:016x}", self.id),
            number => write!(f, "{:016x}-{number}", self.id),
        }
    }
}

impl Course {
    fn parse(text: &str) -> Option<Course> {
        let (id, number) = text.split_once('-').map_or((text, None), |(id, number)| (id, Some(number)));
        let id = (id.len() == 16).then(|| u64::from_str_radix(id, 16).ok())??;
        let course = Course { id, number: number.map_or(Some(0), |number| number.parse().ok())? };
        // One history has one text.
        (course.to_string() == text).then_some(course)
    }
}

/// A place in a history. As text `7.12@00c0ffee00c0ffee`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The place.
    pub place: Place,
    /// Its history. None: of any, which only a place before everything is.
    pub course: Option<Course>,
}

impl Position {
    /// Returns whether it is a place of this history.
    pub fn is_of(&self, course: Course) -> bool {
        match self.course {
            Some(own) => own == course,
            // Nothing comes before the first epoch of any history.
            None => self.place.epoch == 0,
        }
    }
}

impl From<Place> for Position {
    fn from(place: Place) -> Position {
        Position { place, course: None }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.course {
            None => self.place.fmt(f),
            Some(course) => write!(f, "{}@{course}", self.place),
        }
    }
}

impl FromStr for Position {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Position, NoPlace> {
        let Some((place, course)) = text.split_once('@') else { return text.parse().map(Place::into) };
        let none = || NoPlace(text.into());
        Ok(Position {
            place: place.parse().map_err(|_| none())?,
            course: Some(Course::parse(course).ok_or_else(none)?),
        })
    }
}

/// A text that is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no place in a stream: it has the form '7.12@00c0ffee00c0ffee', an epoch, a number of its events, and the \
     history that it is of, or '7@00c0ffee00c0ffee'"
)]
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
    fn positions_are_texts_of_one_history() {
        let [first, back, other] = [(7, 0), (7, 2), (u64::MAX, 0)].map(|(id, number)| Course { id, number });
        for course in [first, back, other] {
            for place in [Place { epoch: 7, events: 12 }, Place::after(3)] {
                let position = Position { place, course: Some(course) };
                assert_eq!(position.to_string().parse(), Ok(position));
                let of = [first, back, other].map(|other| position.is_of(other));
                assert_eq!(of, [first, back, other].map(|other| other == course));
            }
        }
        let plain: Position = "7.12".parse().unwrap();
        assert!(![first, back, other].iter().any(|&course| plain.is_of(course)));
        assert!("0.0".parse::<Position>().unwrap().is_of(back));
        for text in [
            "7@",
            "@0000000000000007",
            "7@7",
            "7@000000000000000g",
            "7@+000000000000007",
            "7@00000000000000AB",
            "7@0000000000000007-",
            "7@0000000000000007-0",
            "7@0000000000000007-01",
            "7@0000000000000007@1",
        ] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

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
