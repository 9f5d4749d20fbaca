//! Events that are too far ahead of the clock: bad records, which show no time.
//!
//! The clock decides of each event if it is one of these, once, when the gate takes it (`plan`, `Ahead`). That is an input, like
//! a punctuation, and the log has it with the records (`entry.rs`): which of them, by the events before, and up to which time
//! events were taken. So a replay, an audit and a reader of the history agree, whatever their clocks show.

use crate::intake::{LoggedInput, Taken, split};
use arrow_array::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;
use std::ops::Range;
use tidemill_io::{BadRecord, SourceBatch};
use tidemill_model::arrow::rows;
use tidemill_model::civil::{is_civil, time_text};
use tidemill_model::{FieldType, ListItem, Schema, Type, Value, format_decimal};
use tidemill_plan::Stream;

/// The most bytes of an event's text that are kept.
const RECORD_BYTES_MAX: usize = 1024;

/// Consecutive events that were too far ahead of the clock when they were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFar {
    /// The events before them since the last cut.
    pub before: u64,
    /// The number of events.
    pub count: u64,
    /// The last time that was not too far ahead, microseconds since 1970.
    pub until: i64,
}

impl TooFar {
    fn range(&self) -> Range<u64> {
        self.before..self.before + self.count
    }

    /// Returns whether these ranges are in order, do not overlap, and lie within `events` events.
    pub fn are_among(too_far: &[TooFar], events: u64) -> bool {
        let is_apart = too_far.windows(2).all(|pair| pair[0].range().end <= pair[1].before);
        is_apart && too_far.last().is_none_or(|last| last.range().end <= events)
    }

    /// Returns whether some of these are within a range of events.
    pub fn any_within(too_far: &[TooFar], events: Range<u64>) -> bool {
        too_far.iter().any(|run| run.before < events.end && events.start < run.range().end)
    }

    /// Returns the first of these events from a place on, and the last time that was not too far ahead.
    fn next(too_far: &[TooFar], from: u64) -> Option<(u64, i64)> {
        let run = too_far.iter().find(|run| run.count > 0 && from < run.range().end)?;
        Some((run.before.max(from), run.until))
    }
}

/// An event that was too far ahead, and is a bad record.
#[derive(Debug)]
pub struct FarEvent {
    /// The event alone.
    pub event: RecordBatch,
    /// The record.
    pub bad: BadRecord,
}

impl FarEvent {
    /// Returns the bad record alone.
    pub fn into_batch(self) -> SourceBatch {
        SourceBatch { events: self.event.slice(0, 0), bad: vec![self.bad] }
    }
}

/// The form of events that can be too far ahead: they bring a `Time`.
#[derive(Clone, Debug)]
pub struct TimedEvents {
    schema: Schema,
    field: usize,
}

impl TimedEvents {
    /// Returns the times of a source's events, if they have any.
    pub fn of(stream: &Stream) -> Option<TimedEvents> {
        let field = stream.own_time()?;
        let is_time = stream.schema.fields[field].scalar_type()?.ty == Type::Time;
        is_time.then(|| TimedEvents { schema: stream.schema.clone(), field })
    }

    /// Returns an event that is alone in its batch, as a bad record.
    fn bad(&self, event: &RecordBatch, until: i64) -> BadRecord {
        let values = rows(event, &self.schema).pop().expect("an event");
        let time = values[self.field].word().expect("an event time is never null");
        let reason = format!(
            "{} is too far ahead of the clock: when it came, times up to {} were taken",
            time_text(time),
            time_text(until)
        );
        let mut record = self.text(&values);
        record.truncate(record.floor_char_boundary(RECORD_BYTES_MAX));
        let column = Some(self.schema.fields[self.field].name.clone());
        BadRecord { column, reason, record: Some(record), ..BadRecord::default() }
    }

    /// Returns an event as JSON.
    fn text(&self, values: &[Value]) -> String {
        let mut text = String::new();
        let fields = self.schema.fields.iter().zip(values).map(|(field, value)| (&*field.name, value, &field.ty));
        object(&mut text, fields, |text, value, ty| match (ty, value) {
            (FieldType::Scalar(scalar), value) => plain(text, scalar.ty, value),
            (FieldType::List(items), Value::List(elements)) => list(text, items, elements),
            (FieldType::List(_), _) => text.push_str("null"),
        });
        text
    }
}

fn list(text: &mut String, items: &ListItem, elements: &[Vec<Value>]) {
    text.push('[');
    for (number, element) in elements.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        match items {
            ListItem::Scalar(scalar) => plain(text, scalar.ty, &element[0]),
            ListItem::Struct(columns) => {
                let fields = columns.iter().zip(element).map(|((name, ty), value)| (&**name, value, &ty.ty));
                object(text, fields, |text, value, ty| plain(text, *ty, value));
            }
        }
    }
    text.push(']');
}

fn object<'a, T: 'a>(
    text: &mut String,
    fields: impl Iterator<Item = (&'a str, &'a Value, &'a T)>,
    mut write: impl FnMut(&mut String, &Value, &T),
) {
    let mut separator = '{';
    for (name, value, ty) in fields {
        text.push(separator);
        separator = ',';
        quoted(text, name);
        text.push(':');
        write(text, value, ty);
    }
    text.push_str(if separator == '{' { "{}" } else { "}" });
}

fn plain(text: &mut String, ty: Type, value: &Value) {
    let _ = match (value, ty) {
        (Value::Bool(value), _) => write!(text, "{value}"),
        (Value::Decimal(unscaled), Type::Decimal { scale, .. }) => {
            write!(text, "{}", format_decimal(*unscaled, scale))
        }
        (Value::Time(time), _) if is_civil(*time) => write!(text, "\"{}\"", time_text(*time)),
        (Value::Int(word) | Value::Decimal(word) | Value::Time(word) | Value::Duration(word), _) => {
            write!(text, "{word}")
        }
        (Value::Float(float), _) if float.is_finite() => write!(text, "{float:?}"),
        (Value::Float(float), _) if float.is_nan() => write!(text, "\"NaN\""),
        (Value::Float(float), _) => write!(text, "\"{}Infinity\"", if *float < 0.0 { "-" } else { "" }),
        (Value::Bytes(bytes), _) => write!(text, "\"{}\"", STANDARD.encode(bytes)),
        (Value::Str(value), _) => {
            quoted(text, value);
            Ok(())
        }
        (Value::Null | Value::List(_), _) => write!(text, "null"),
    };
}

fn quoted(text: &mut String, value: &str) {
    text.push_str(&serde_json::to_string(value).expect("a text is JSON"));
}

/// Divides records at those of their events that were too far ahead of the clock.
pub(crate) fn set_aside(
    batch: SourceBatch,
    before: u64,
    too_far: &[TooFar],
    timed: &TimedEvents,
    into: &mut Vec<LoggedInput>,
) {
    let (mut rest, mut at) = (Some(batch), before);
    while let Some(batch) = rest.take() {
        let end = at + batch.events.num_rows() as u64;
        let Some((event, until)) = TooFar::next(too_far, at).filter(|(event, _)| *event < end) else {
            into.push(LoggedInput::Records(batch));
            return;
        };
        let bad = batch.bad.iter().take_while(|bad| bad.after <= event - at).count() as u64;
        let (first, later) = split(batch, Taken { events: event - at, bad });
        let mut later = later.expect("the event is not before itself");
        if Taken::of(&first) != Taken::default() {
            into.push(LoggedInput::Records(first));
        }
        let alone = later.events.slice(0, 1);
        into.push(LoggedInput::TooFar(FarEvent { bad: timed.bad(&alone, until), event: alone }));
        later.events = later.events.slice(1, later.events.num_rows() - 1);
        later.bad.iter_mut().for_each(|bad| bad.after = bad.after.saturating_sub(1));
        at = event + 1;
        rest = Some(later).filter(|later| Taken::of(later) != Taken::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_model::Field;
    use tidemill_model::arrow::batch_of;

    fn timed() -> TimedEvents {
        let schema = Schema::scalars([("at", Type::Time.into()), ("n", Type::Int.into())]);
        TimedEvents { schema, field: 0 }
    }

    fn batch(events: Range<i64>, bad: &[u64]) -> SourceBatch {
        let rows: Vec<Vec<Value>> = events.map(|n| vec![Value::Time(n), Value::Int(n)]).collect();
        let bad =
            bad.iter().enumerate().map(|(n, &after)| BadRecord { line: Some(n as u64), after, ..BadRecord::default() });
        SourceBatch { events: batch_of(&timed().schema, &rows), bad: bad.collect() }
    }

    /// Returns the records in order: `n`, `bad LINE` and `far UNTIL`.
    fn texts(inputs: Vec<LoggedInput>) -> Vec<String> {
        let mut texts = Vec::new();
        for input in inputs {
            let batch = match input {
                LoggedInput::Records(batch) => batch,
                LoggedInput::TooFar(far) => {
                    assert_eq!(far.event.num_rows(), 1);
                    let batch = far.into_batch();
                    assert_eq!((batch.events.num_rows(), batch.bad.len()), (0, 1));
                    texts.push(format!("far {}", batch.bad[0].record.as_ref().expect("its text")));
                    continue;
                }
                LoggedInput::Punctuation(_) => unreachable!("there are none"),
            };
            let mut bad = batch.bad.iter().peekable();
            for (after, row) in (0..).zip(rows(&batch.events, &timed().schema)) {
                while let Some(bad) = bad.next_if(|bad| bad.after <= after) {
                    texts.push(format!("bad {:?}", bad.line));
                }
                texts.push(row[1].to_string());
            }
            texts.extend(bad.map(|bad| format!("bad {:?}", bad.line)));
        }
        texts
    }

    #[test]
    fn records_keep_their_order_around_those_too_far_ahead() {
        let runs = |chosen: u32| -> Vec<TooFar> {
            let events = (0u64..6).filter(|event| chosen & (1 << event) != 0);
            events.map(|event| TooFar { before: 100 + event, count: 1, until: 7 }).collect()
        };
        for bad in [&[][..], &[0], &[6], &[0, 0, 1, 3, 3, 6], &[2, 2, 5]] {
            let mut whole = Vec::new();
            set_aside(batch(0..6, bad), 100, &[], &timed(), &mut whole);
            let whole = texts(whole);
            for chosen in 0..64 {
                let mut divided = Vec::new();
                set_aside(batch(0..6, bad), 100, &runs(chosen), &timed(), &mut divided);
                let expected = whole.iter().map(|text| match text.parse::<i64>() {
                    Ok(n) if chosen & (1 << n) != 0 => {
                        format!("far {{\"at\":\"1970-01-01T00:00:00.00000{n}Z\",\"n\":{n}}}")
                    }
                    _ => text.clone(),
                });
                assert_eq!(texts(divided), expected.collect::<Vec<String>>(), "{chosen:b} {bad:?}");
            }
        }
    }

    #[test]
    fn runs_of_several_are_as_single_ones() {
        let far = |runs: &[(u64, u64)]| {
            let runs: Vec<TooFar> = runs.iter().map(|&(before, count)| TooFar { before, count, until: 7 }).collect();
            let mut inputs = Vec::new();
            set_aside(batch(0..6, &[1, 2, 3, 4]), 0, &runs, &timed(), &mut inputs);
            texts(inputs)
        };
        assert_eq!(far(&[(1, 3), (4, 1)]), far(&[(1, 1), (2, 1), (3, 1), (4, 1)]));
        assert_eq!(far(&[(0, 6)]).len(), 10);
    }

    #[test]
    fn a_bad_record_says_what_is_wrong_and_shows_the_event() {
        let scalar = |name: &str, ty: Type| Field::scalar(name, ty.into());
        let items = ListItem::Struct(vec![("x".into(), Type::Float.into())]);
        let schema = Schema {
            fields: vec![
                scalar("who", Type::Str),
                scalar("at", Type::Time),
                scalar("paid", Type::Decimal { digits: 9, scale: 2 }),
                scalar("raw", Type::Bytes),
                Field { name: "lines".into(), ty: FieldType::List(items) },
            ],
        };
        let timed = TimedEvents { schema, field: 1 };
        let event = vec![
            Value::Str("\"é\n".into()),
            Value::Time(i64::MAX),
            Value::Decimal(-5),
            Value::Bytes(vec![0, 255]),
            Value::List(vec![vec![Value::Float(1.0)], vec![Value::Float(f64::NEG_INFINITY)]]),
        ];
        let bad = timed.bad(&batch_of(&timed.schema, &[event]), 0);
        let text = r#"{"who":"\"é\n","at":9223372036854775807,"paid":-0.05,"raw":"AP8=","lines":[{"x":1.0},{"x":"-Infinity"}]}"#;
        assert_eq!(bad.record.as_deref(), Some(text));
        assert_eq!(bad.column.as_deref(), Some("at"));
        let reason = "9223372036854775807 is too far ahead of the clock: when it came, times up to \
                      1970-01-01T00:00:00.000000Z were taken";
        assert_eq!(bad.reason, reason);
    }
}
