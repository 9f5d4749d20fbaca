//! Windows of records, decoded at every step. What they mean, and the bytes, are said in `tidemill_plan`'s `window`.

use tidemill_model::{Type, Value};
use tidemill_plan::{Slices, Window, record_nulls};

/// Returns the bytes of a window with one more record.
pub fn add(slices: Slices, bytes: &[u8], time: i64, record: &[u8]) -> Vec<u8> {
    let now = time.div_euclid(slices.slide);
    let mut kept = Vec::new();
    for (slice, record) in entries(bytes).map(|(_, slice, record)| (slice, record)).chain([(now, record)]) {
        if is_within(slice, now, slices.count) {
            kept.extend(slice.to_le_bytes());
            kept.extend((record.len() as i64).to_le_bytes());
            kept.extend(record);
        }
    }
    kept
}

/// Returns the bytes of a window with the last record of each slice, and one more record.
pub fn replace(slices: Slices, bytes: &[u8], time: i64, record: &[u8]) -> Vec<u8> {
    let now = time.div_euclid(slices.slide);
    let last = entries(bytes).last().filter(|(_, slice, _)| *slice == now);
    add(slices, &bytes[..last.map_or(bytes.len(), |(at, ..)| at)], time, record)
}

/// Returns the place where the next record of the last `within` slices begins; −1 if there is none.
pub fn next(window: &Window, bytes: &[u8], time: i64, within: i64, after: i64) -> i64 {
    let slices = window.slices().expect("a window of records");
    let now = time.div_euclid(slices.slide);
    let is_next = |(at, slice, _): &(usize, i64, &[u8])| *at as i64 > after && is_within(*slice, now, within);
    entries(bytes).find(is_next).map_or(-1, |(at, ..)| at as i64)
}

/// Returns a value of the record in the entry that begins at `at`.
pub fn field(bytes: &[u8], at: i64, of: usize, field: usize, ty: Type) -> Value {
    let (_, _, record) = entries(bytes).find(|(start, ..)| *start as i64 == at).expect("a record begins there");
    let word = |start: usize| i64::from_le_bytes(record[start..start + 8].try_into().expect("8 bytes"));
    if word(8 * (field / 64)) as u64 & (1 << (field % 64)) != 0 {
        return Value::Null;
    }
    let word = word(record_nulls(of) + 8 * field);
    let text = || {
        let (start, len) = (word as u64 as u32 as usize, (word as u64 >> 32) as usize);
        record[start..start + len].to_vec()
    };
    match ty {
        Type::Str => Value::Str(String::from_utf8(text()).expect("a text")),
        Type::Bytes => Value::Bytes(text()),
        Type::Bool => Value::Bool(word != 0),
        Type::Float => Value::Float(f64::from_bits(word as u64)),
        ty => Value::from_word(ty, word),
    }
}

/// Packs values as a record.
pub fn pack(values: &[Value]) -> Vec<u8> {
    let mut nulls = vec![0u64; values.len().div_ceil(64)];
    let (mut words, mut texts) = (Vec::new(), Vec::<u8>::new());
    let before = record_nulls(values.len()) + 8 * values.len();
    for (index, value) in values.iter().enumerate() {
        let mut text = |bytes: &[u8]| {
            let start = before + texts.len();
            texts.extend(bytes);
            start as u64 | (bytes.len() as u64) << 32
        };
        words.push(match value {
            Value::Null => {
                nulls[index / 64] |= 1 << (index % 64);
                0
            }
            Value::Str(value) => text(value.as_bytes()),
            Value::Bytes(value) => text(value),
            Value::Bool(value) => u64::from(*value),
            Value::Float(value) if value.is_nan() => 0x7ff8_0000_0000_0000,
            Value::Float(value) => value.to_bits(),
            word => word.word().expect("a word") as u64,
        });
    }
    let mut bytes: Vec<u8> = nulls.iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(texts);
    bytes
}

fn is_within(slice: i64, now: i64, slices: i64) -> bool {
    i128::from(slice) > i128::from(now) - i128::from(slices)
}

/// Returns the place where each entry begins, its slice, and its record.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (usize, i64, &[u8])> {
    let mut at = 0;
    let word = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    std::iter::from_fn(move || {
        let start = at;
        if start == bytes.len() {
            return None;
        }
        let len = word(start + 8) as usize;
        at = start + 16 + len;
        Some((start, word(start), &bytes[start + 16..at]))
    })
}
