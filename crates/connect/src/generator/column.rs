//! One generated column: its spec checked against the column's type, and its values.

use super::random::Stream;
use super::spec::{ColumnSpec, Literal};
use crate::columns::{Cells, Column, FieldColumn};
use crate::scalar::{parse, print};
use std::ops::Range;
use tidemill_model::{ColumnType, Field, Type, Value};
use tidemill_random::Zipf;

/// A column's values as a function of the event's ordinal.
pub(super) struct Generated {
    draw: Draw,
    /// The probability of a null.
    nulls: f64,
    /// The texts before and after a number in a text.
    around: (String, String),
    values: Stream,
    null_values: Stream,
}

/// Words are what [`Type::is_word`] means, and for text the number in it.
enum Draw {
    Sequence { start: i64, step: i64, room: u64 },
    FloatSequence { start: f64, step: f64 },
    Uniform { low: i64, last: u64 },
    FloatUniform { low: f64, width: f64 },
    Zipf(Zipf),
    Choice { values: Vec<Value>, cumulative: Vec<f64> },
    Constant(Value),
}

impl Generated {
    /// Makes a generator of a field's values; the error says why values of the field cannot be made so.
    pub fn new(spec: &ColumnSpec, field: &Field, seed: u64) -> Result<Generated, String> {
        let Some(ty) = field.scalar_type() else {
            return Err(format!("a generator makes no lists, and it is a {}", field.ty));
        };
        let (spec, nulls) = match spec {
            ColumnSpec::Nullable { probability, values } => (values.as_ref(), *probability),
            spec => (spec, 0.0),
        };
        if !(0.0..=1.0).contains(&nulls) {
            return Err(format!("the probability of a null is from 0 to 1, not {nulls}"));
        }
        if nulls > 0.0 && !ty.nullable {
            return Err(format!("{ty} has no None, so it cannot be null at times"));
        }
        let stream = Stream::new(seed).named(&field.name);
        let (values, null_values) = (stream.split(0), stream.split(1));
        Ok(Generated { draw: draw(spec, ty)?, nulls, around: around(spec, ty.ty)?, values, null_values })
    }

    /// Returns the number of events that there are values for.
    pub fn room(&self) -> u64 {
        match self.draw {
            Draw::Sequence { room, .. } => room,
            _ => u64::MAX,
        }
    }

    /// Appends the values of some events.
    pub fn append(&self, column: &mut FieldColumn, events: Range<u64>) {
        let FieldColumn::Scalar(column) = column else { unreachable!("lists are refused when it is opened") };
        for event in events {
            if self.nulls > 0.0 && self.null_values.unit(event) < self.nulls {
                column.push_null();
            } else {
                self.push(column, event);
            }
        }
    }

    #[inline]
    fn push(&self, column: &mut Column, event: u64) {
        match &self.draw {
            // Within `room` nothing overflows but intermediate results, which wrap back.
            Draw::Sequence { start, step, .. } => {
                self.push_word(column, start.wrapping_add(step.wrapping_mul(event as i64)));
            }
            Draw::FloatSequence { start, step } => push_value(column, &Value::Float(start + step * event as f64)),
            Draw::Uniform { low, last } => {
                self.push_word(column, low.wrapping_add(self.values.up_to(event, *last) as i64));
            }
            Draw::FloatUniform { low, width } => {
                push_value(column, &Value::Float(low + width * self.values.unit(event)));
            }
            Draw::Zipf(zipf) => self.push_word(column, zipf.rank(self.values.units(event)) as i64),
            Draw::Choice { values, cumulative } => {
                let total = cumulative.last().copied().unwrap_or(0.0);
                let at = self.values.unit(event) * total;
                let index = cumulative.partition_point(|sum| *sum <= at);
                push_value(column, &values[index.min(values.len() - 1)]);
            }
            Draw::Constant(value) => push_value(column, value),
        }
    }

    fn push_word(&self, column: &mut Column, word: i64) {
        match &mut column.cells {
            Cells::Int(values) | Cells::Time(values) => values.push(word),
            Cells::Decimal { values, .. } => values.push(word.into()),
            Cells::Str(runs) => {
                runs.bytes.extend_from_slice(self.around.0.as_bytes());
                print::int(&mut runs.bytes, word);
                runs.bytes.extend_from_slice(self.around.1.as_bytes());
                runs.commit();
            }
            Cells::Bool(_) | Cells::Float(_) | Cells::Bytes(_) => unreachable!("the spec was checked"),
        }
        column.commit_value();
    }
}

fn push_value(column: &mut Column, value: &Value) {
    match (&mut column.cells, value) {
        (_, Value::Null) => return column.push_null(),
        (Cells::Bool(values), Value::Bool(value)) => values.push(*value),
        (Cells::Int(values), Value::Int(value)) | (Cells::Time(values), Value::Time(value)) => values.push(*value),
        (Cells::Float(values), Value::Float(value)) => values.push(*value),
        (Cells::Decimal { values, .. }, Value::Decimal(value)) => values.push((*value).into()),
        (Cells::Str(runs), Value::Str(value)) => runs.push(value.as_bytes()),
        (Cells::Bytes(runs), Value::Bytes(value)) => runs.push(value),
        (_, value) => unreachable!("{value} was checked against {}", column.ty),
    }
    column.commit_value();
}

fn draw(spec: &ColumnSpec, ty: ColumnType) -> Result<Draw, String> {
    let cannot = |what: &str| Err(format!("{what} makes no {}", ty.ty));
    match spec {
        ColumnSpec::Sequence { start, step, .. } => match ty.ty {
            Type::Float => Ok(Draw::FloatSequence { start: float(start)?, step: float(step)? }),
            Type::Bool | Type::Bytes => cannot("a sequence"),
            of => {
                let start = word(start, of)?;
                let step = word(step, if of == Type::Time { Type::Int } else { of })?;
                Ok(Draw::Sequence { start, step, room: room(start, step, of) })
            }
        },
        ColumnSpec::Uniform { low, high, .. } => match ty.ty {
            Type::Float => {
                let (low, high) = (float(low)?, float(high)?);
                let width = high - low;
                let ok = low.is_finite() && width.is_finite() && width >= 0.0;
                ok.then_some(Draw::FloatUniform { low, width }).ok_or_else(|| empty(low, high))
            }
            Type::Bool | Type::Bytes => cannot("a uniform distribution"),
            of => {
                let (low, high) = (word(low, of)?, word(high, of)?);
                let last = high.wrapping_sub(low) as u64;
                (low <= high).then_some(Draw::Uniform { low, last }).ok_or_else(|| empty(low, high))
            }
        },
        ColumnSpec::Zipf { count, theta, .. } => match ty.ty {
            Type::Int | Type::Str if (1..=i64::MAX as u64).contains(count) && theta.is_finite() && *theta >= 0.0 => {
                Ok(Draw::Zipf(Zipf::new(*count, *theta)))
            }
            Type::Int | Type::Str => Err(format!("a Zipf distribution of {count} values with theta {theta} is none")),
            _ => cannot("a Zipf distribution"),
        },
        ColumnSpec::Choice { values, weights } => choice(values, weights.as_deref(), ty),
        ColumnSpec::Constant { value } => Ok(Draw::Constant(literal(value, ty)?)),
        ColumnSpec::Nullable { .. } => Err("it is nullable twice over".into()),
    }
}

fn empty(low: impl std::fmt::Display, high: impl std::fmt::Display) -> String {
    format!("there is nothing from {low} to {high}")
}

fn choice(values: &[Literal], weights: Option<&[f64]>, ty: ColumnType) -> Result<Draw, String> {
    let values = values.iter().map(|value| literal(value, ty)).collect::<Result<Vec<_>, _>>()?;
    let even = vec![1.0; values.len()];
    let weights = weights.unwrap_or(&even);
    if values.is_empty() || weights.len() != values.len() {
        return Err(format!("a choice needs as many weights as values; it has {} and {}", weights.len(), values.len()));
    }
    let mut total = 0.0;
    let mut cumulative = Vec::with_capacity(weights.len());
    for weight in weights {
        if *weight < 0.0 {
            return Err(format!("a weight is not negative, as {weight} is"));
        }
        total += weight;
        cumulative.push(total);
    }
    if !(total.is_finite() && total > 0.0) {
        return Err(format!("the weights of a choice add up to {total}"));
    }
    Ok(Draw::Choice { values, cumulative })
}

/// Returns the number of elements of a sequence that fit the type.
fn room(start: i64, step: i64, ty: Type) -> u64 {
    let (least, greatest) = match ty {
        Type::Decimal { digits, .. } => (1 - 10i128.pow(digits.into()), 10i128.pow(digits.into()) - 1),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    let (start, step) = (i128::from(start), i128::from(step));
    let steps = match step {
        0 => return u64::MAX,
        1.. => (greatest - start) / step,
        _ => (start - least) / -step,
    };
    u64::try_from(steps + 1).unwrap_or(u64::MAX)
}

/// Returns the texts before and after the number in a text.
fn around(spec: &ColumnSpec, ty: Type) -> Result<(String, String), String> {
    let (ColumnSpec::Sequence { format, .. } | ColumnSpec::Uniform { format, .. } | ColumnSpec::Zipf { format, .. }) =
        spec
    else {
        return Ok(Default::default());
    };
    let Some(format) = format else { return Ok(Default::default()) };
    if ty != Type::Str {
        return Err(format!("a format is for str, not for {ty}"));
    }
    let Some((before, after)) = format.split_once("{}") else {
        return Err(format!("the format '{format}' has no {{}} for the number"));
    };
    Ok((before.to_owned(), after.to_owned()))
}

fn literal(literal: &Literal, ty: ColumnType) -> Result<Value, String> {
    Ok(match (ty.ty, literal) {
        (_, Literal::Null) if ty.nullable => Value::Null,
        (Type::Bool, Literal::Bool(value)) => Value::Bool(*value),
        (Type::Str, Literal::Text(text)) => Value::Str(text.clone()),
        (Type::Bytes, Literal::Text(text)) => {
            let mut bytes = Vec::new();
            parse::base64(text, &mut bytes)?;
            Value::Bytes(bytes)
        }
        (Type::Float, literal) => Value::Float(float(literal)?),
        (Type::Int | Type::Decimal { .. } | Type::Time, literal) => Value::from_word(ty.ty, word(literal, ty.ty)?),
        (_, literal) => return Err(mismatch(literal, ty.ty)),
    })
}

fn mismatch(literal: &Literal, ty: Type) -> String {
    match literal {
        Literal::Bool(value) => format!("{value} is no {ty}"),
        Literal::Int(value) => format!("{value} is no {ty}"),
        Literal::Float(value) => format!("{value} is no {ty}"),
        Literal::Text(text) => format!("'{text}' is no {ty}"),
        Literal::Null => format!("{ty} has no None"),
    }
}

fn float(literal: &Literal) -> Result<f64, String> {
    match literal {
        Literal::Int(value) => Ok(*value as f64),
        Literal::Float(value) => Ok(*value),
        Literal::Text(text) => parse::float(text),
        literal => Err(mismatch(literal, Type::Float)),
    }
}

/// Returns the word of a literal; for text the number in it.
fn word(literal: &Literal, ty: Type) -> Result<i64, String> {
    let text = match literal {
        Literal::Int(value) => value.to_string(),
        // A float stands for the shortest text, which is what was written.
        Literal::Float(value) if value.is_finite() => match ty {
            Type::Decimal { .. } => zmij::Buffer::new().format_finite(*value).to_owned(),
            _ => format!("{value}"),
        },
        Literal::Text(text) => text.clone(),
        literal => return Err(mismatch(literal, ty)),
    };
    match ty {
        Type::Decimal { digits, scale } => parse::decimal(&text, digits, scale),
        Type::Time => parse::time(&text),
        _ => parse::int(&text),
    }
}
