//! Synopses of values, decoded and encoded at every step. What they mean, and the bytes, are said in `tidemill_plan`'s
//! `window`.

use tidemill_model::{Type, Value};
use tidemill_plan::{Ask, Slices, Synopsis, Window};

/// What is known of the values of one slice.
type Known = (i64, Vec<u8>);

/// The bytes of a window with one more value.
pub fn add(
    window: &Window,
    (of, slices): (Synopsis, Option<Slices>),
    bytes: &[u8],
    time: i64,
    value: &Value,
) -> Vec<u8> {
    let mut entries = decode(slices, bytes);
    let now = now(slices, &entries, time);
    if let Some(slices) = slices {
        entries.retain(|(slice, _)| is_within(*slice, now, slices.count));
    }
    let last = entries.pop_if(|(slice, _)| *slice == now).map(|(_, known)| known).unwrap_or_default();
    let known = match of {
        Synopsis::Counts => {
            let mut counts = Counts::decode(window.value, &last);
            counts.add(value.clone(), 1);
            counts.encode()
        }
    };
    entries.push((now, known));
    let mut bytes = Vec::new();
    for (slice, known) in entries {
        if slices.is_some() {
            bytes.extend(slice.to_le_bytes());
        }
        bytes.extend((known.len() as i64).to_le_bytes());
        bytes.extend(known);
    }
    bytes
}

/// What the synopses of the last `within` slices say together.
pub fn read(window: &Window, bytes: &[u8], time: i64, within: i64, ask: Ask, argument: &Value) -> Value {
    let slices = window.slices();
    let entries = decode(slices, bytes);
    let now = now(slices, &entries, time);
    let recent = entries.iter().filter(|(slice, _)| slices.is_none() || is_within(*slice, now, within));
    let recent: Vec<&[u8]> = recent.map(|(_, known)| known.as_slice()).collect();
    match ask {
        Ask::Value | Ask::Times => {
            let mut whole = Counts::default();
            for known in recent {
                Counts::decode(window.value, known).0.into_iter().for_each(|(value, times)| whole.add(value, times));
            }
            let found = whole.of_rank(argument.word().expect("a rank"));
            match ask {
                Ask::Value => found.map_or(Value::Null, |(value, _)| value),
                Ask::Times => Value::Int(found.map_or(0, |(_, times)| times)),
            }
        }
    }
}

/// What a window knows, for people.
pub fn text(window: &Window, bytes: &[u8]) -> String {
    let slices = decode(window.slices(), bytes).len();
    format!("{window}, of {slices} slice{}", if slices == 1 { "" } else { "s" })
}

/// Values and how often each is there, in the order in which they came.
#[derive(Default)]
struct Counts(Vec<(Value, i64)>);

impl Counts {
    fn add(&mut self, value: Value, times: i64) {
        match self.0.iter_mut().find(|(known, _)| *known == value) {
            Some((_, known)) => *known += times,
            None => self.0.push((value, times)),
        }
    }

    /// Takes out the most frequent value, the first of these, as often as the rank says, and then once more.
    fn of_rank(mut self, rank: i64) -> Option<(Value, i64)> {
        let mut found = None;
        for _ in 0..=rank {
            let most = self.0.iter().map(|(_, times)| *times).max()?;
            let first = self.0.iter().position(|(_, times)| *times == most)?;
            found = Some(self.0.remove(first));
        }
        found
    }

    fn decode(ty: Type, mut bytes: &[u8]) -> Counts {
        let mut counts = Vec::new();
        while !bytes.is_empty() {
            let times = take_word(&mut bytes);
            let value = take_word(&mut bytes);
            counts.push((
                match ty {
                    Type::Str => Value::Str(String::from_utf8(take(&mut bytes, value)).expect("a text")),
                    Type::Bytes => Value::Bytes(take(&mut bytes, value)),
                    ty => Value::from_word(ty, value),
                },
                times,
            ));
        }
        Counts(counts)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (value, times) in &self.0 {
            bytes.extend(times.to_le_bytes());
            let mut text = |text: &[u8]| {
                bytes.extend((text.len() as i64).to_le_bytes());
                bytes.extend(text);
            };
            match value {
                Value::Str(value) => text(value.as_bytes()),
                Value::Bytes(value) => text(value),
                word => bytes.extend(word.word().expect("a word").to_le_bytes()),
            }
        }
        bytes
    }
}

fn take(bytes: &mut &[u8], count: i64) -> Vec<u8> {
    let (taken, rest) = bytes.split_at(count as usize);
    *bytes = rest;
    taken.to_vec()
}

fn take_word(bytes: &mut &[u8]) -> i64 {
    i64::from_le_bytes(take(bytes, 8).try_into().expect("8 bytes"))
}

fn now(slices: Option<Slices>, entries: &[Known], time: i64) -> i64 {
    let Some(slices) = slices else { return 0 };
    let slice = time.div_euclid(slices.slide);
    entries.last().map_or(slice, |(newest, _)| slice.max(*newest))
}

fn is_within(slice: i64, now: i64, count: i64) -> bool {
    i128::from(slice) > i128::from(now) - i128::from(count)
}

/// The slices, the oldest first; without slices, one of number 0.
fn decode(slices: Option<Slices>, mut bytes: &[u8]) -> Vec<Known> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let slice = if slices.is_some() { take_word(&mut bytes) } else { 0 };
        let len = take_word(&mut bytes);
        entries.push((slice, take(&mut bytes, len)));
    }
    entries
}
