//! The reach of a join, and the names of its parts.

use super::super::cells::Kind;
use super::super::fault::{Checked, Fault};
use super::super::writing::column;
use crate::{Bound, ColumnDef, JoinBound, Reach, WindowDef};
use tidemill_model::civil::span_text;
use tidemill_model::{Type, Value};

/// The role of a key's row.
pub(super) const ROWS: &str = "rows";
/// The role of the row of a key whose events wait.
pub(super) const WAITS: &str = "waits";
/// The role of the row that counts.
pub(super) const ORDER: &str = "order";
/// The column of the records that wait.
pub(super) const WAITING: &str = "waiting";
/// The field of the time of the position.
pub(super) const AT: &str = "at";
/// The field of the side: one of these.
pub(super) const SIDE: &str = "side";
pub(super) const LEFT: i64 = 0;
pub(super) const RIGHT: i64 = 1;
pub(super) const UNMATCHED: i64 = 2;
/// The name of the emission.
pub(super) const PAIRS: &str = "pairs";

/// Longer than any span of event times that makes sense, so that sums of it and of times fit.
const LENGTH_MAX: i64 = 1 << 60;

impl Reach {
    pub(super) fn of(bound: &JoinBound, time: Type) -> Checked<Reach> {
        match bound {
            JoinBound::Over(windows) => match Kind::of(windows, Some(time))? {
                Kind::Tumbling { length, origin } if length < LENGTH_MAX => Ok(Reach::Over { length, origin }),
                Kind::Tumbling { .. } => Err(too_long()),
                _ => Err(Fault::new("a join is over tumbling windows")
                    .hint("write over=tm.tumbling(...), or within= for events that are less than so far apart")),
            },
            JoinBound::Within(value) => match (value, time) {
                (Value::Duration(length @ 1..), Type::Time) | (Value::Int(length @ 1..), Type::Int) => {
                    if *length < LENGTH_MAX { Ok(Reach::Within(*length)) } else { Err(too_long()) }
                }
                (Value::Duration(1..) | Value::Int(1..), _) => {
                    let value = crate::print::literal(value);
                    let (has, unit) = if time == Type::Int { ("an int", "an int") } else { ("a Time", "a duration") };
                    Err(Fault::new(format!("the event time is {has}, but the join is within {value}"))
                        .hint(format!("give {unit}")))
                }
                _ => Err(Fault::new(format!("the join is within {}", crate::print::literal(value)))
                    .hint("give a duration greater than zero, or an int where the event time is one")),
            },
        }
    }

    /// Returns the number that is added to times to find slices.
    pub(super) fn shift(self) -> i64 {
        match self {
            Reach::Within(_) => 0,
            Reach::Over { origin, .. } => -origin,
        }
    }

    /// Returns the bound at which events that wait are due.
    pub(super) fn bound(self) -> Bound {
        match self {
            Reach::Within(length) => Bound::Again(length),
            Reach::Over { length, origin } => Bound::Grid { every: length, origin },
        }
    }

    /// Returns the bound at which rows are freed.
    pub(super) fn grid(self) -> Bound {
        match self {
            Reach::Within(length) => Bound::Grid { every: length, origin: 0 },
            Reach::Over { length, origin } => Bound::Grid { every: length, origin },
        }
    }

    /// Returns the name of the column that says when a row is due. A state does not fit a program with another bound.
    pub(super) fn due_column(self) -> String {
        match self {
            Reach::Within(length) => format!("due_within_{length}"),
            Reach::Over { length, origin } => format!("due_over_{length}_{origin}"),
        }
    }

    /// Returns the words for it in messages.
    pub(super) fn text(self, time: Type) -> String {
        let span = |units: i64| if time == Type::Time { span_text(units) } else { units.to_string() };
        match self {
            Reach::Within(length) => format!("within {}", span(length)),
            Reach::Over { length, origin: 0 } => format!("over tumbling windows of {}", span(length)),
            Reach::Over { length, origin } => {
                format!("over tumbling windows of {} from {} on", span(length), span(origin))
            }
        }
    }

    /// Returns a column of records.
    pub(super) fn records(self, name: &str, time: Type) -> ColumnDef {
        let span = |units| if time == Type::Int { Value::Int(units) } else { Value::Duration(units) };
        let window = match self {
            Reach::Within(length) => WindowDef::Records { span: span(length), slide: None },
            Reach::Over { length, .. } => WindowDef::Records { span: span(length), slide: Some(span(length)) },
        };
        ColumnDef { window: Some(window), ..column(name, Type::Bytes, false, None) }
    }
}

fn too_long() -> Fault {
    Fault::new("the join reaches too far").hint("give a shorter time: what is kept of each event, is kept for so long")
}
