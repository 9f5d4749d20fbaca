//! The encoding of single records, for the answers that a run of keys has row by row: each value begins with its kind, so a record
//! is read without its schema. (A batch of Arrow of one row takes some hundred bytes.)

use crate::encoding::{Malformed, Reader, bytes, number};
use tidemill_model::Value;

/// Appends a record.
pub fn write_record(record: &[Value], into: &mut Vec<u8>) {
    number(into, record.len() as u64);
    record.iter().for_each(|value| write_value(value, into));
}

/// Reads a record.
pub fn read_record(reader: &mut Reader<'_>) -> Result<Vec<Value>, Malformed> {
    let count = reader.number()?;
    (0..count).map(|_| read_value(reader)).collect()
}

fn write_value(value: &Value, into: &mut Vec<u8>) {
    let word = |kind: u8, word: i64, into: &mut Vec<u8>| {
        into.push(kind);
        // Small numbers of both signs take few bytes.
        number(into, ((word << 1) ^ (word >> 63)) as u64);
    };
    match value {
        Value::Null => into.push(0),
        Value::Bool(false) => into.push(1),
        Value::Bool(true) => into.push(2),
        Value::Int(value) => word(3, *value, into),
        Value::Float(value) => {
            into.push(4);
            into.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Value::Decimal(value) => word(5, *value, into),
        Value::Time(value) => word(6, *value, into),
        Value::Duration(value) => word(7, *value, into),
        Value::Str(text) => {
            into.push(8);
            bytes(into, text.as_bytes());
        }
        Value::Bytes(value) => {
            into.push(9);
            bytes(into, value);
        }
        Value::List(elements) => {
            into.push(10);
            number(into, elements.len() as u64);
            elements.iter().for_each(|element| write_record(element, into));
        }
    }
}

fn read_value(reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let word = |reader: &mut Reader<'_>| reader.number().map(|n| (n >> 1) as i64 ^ -((n & 1) as i64));
    Ok(match reader.byte()? {
        0 => Value::Null,
        1 => Value::Bool(false),
        2 => Value::Bool(true),
        3 => Value::Int(word(reader)?),
        4 => Value::Float(f64::from_bits(reader.word()?)),
        5 => Value::Decimal(word(reader)?),
        6 => Value::Time(word(reader)?),
        7 => Value::Duration(word(reader)?),
        8 => Value::Str(reader.text()?),
        9 => Value::Bytes(reader.bytes()?.to_vec()),
        10 => {
            let count = reader.number()?;
            Value::List((0..count).map(|_| read_record(reader)).collect::<Result<_, Malformed>>()?)
        }
        _ => return Err(Malformed("a value has an unknown kind".into())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let single = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            prop_oneof![Just(i64::MIN), Just(i64::MAX), -70..70i64].prop_map(Value::Int),
            any::<f64>().prop_filter("a number equals itself", |f| !f.is_nan()).prop_map(Value::Float),
            any::<i64>().prop_map(Value::Decimal),
            any::<i64>().prop_map(Value::Time),
            any::<i64>().prop_map(Value::Duration),
            any::<String>().prop_map(Value::Str),
            any::<Vec<u8>>().prop_map(Value::Bytes),
        ];
        let list = prop::collection::vec(prop::collection::vec(single.clone(), 1..3), 0..4).prop_map(Value::List);
        prop_oneof![8 => single, 1 => list]
    }

    proptest! {
        #[test]
        fn records_come_back(record in prop::collection::vec(value(), 0..8)) {
            let mut text = Vec::new();
            write_record(&record, &mut text);
            let mut reader = Reader(&text);
            prop_assert_eq!(read_record(&mut reader).expect("just written"), record);
            prop_assert!(reader.0.is_empty());
        }

        #[test]
        fn other_bytes_are_refused_or_read(text in prop::collection::vec(any::<u8>(), 0..100)) {
            // Only checks that decoding terminates without a panic.
            let _ = read_record(&mut Reader(&text));
        }
    }

    #[test]
    fn floats_keep_their_bits() {
        for bits in [f64::NAN.to_bits(), (-0.0f64).to_bits(), 0xfff8_0000_0000_0001] {
            let mut text = Vec::new();
            write_record(&[Value::Float(f64::from_bits(bits))], &mut text);
            let read = read_record(&mut Reader(&text)).expect("just written");
            assert!(matches!(read[..], [Value::Float(value)] if value.to_bits() == bits));
        }
    }
}
