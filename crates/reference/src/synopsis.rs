//! Synopses of values, decoded and encoded at every step. What they mean, and the bytes, are said in `tidemill_plan`'s
//! `window`.

use std::collections::BTreeMap;
use tidemill_model::{Type, Value};
use tidemill_plan::{Ask, COUNTER_ROWS, COUNTERS, REGISTERS, Slices, Synopsis, Window};

/// The slice of a synopsis, and its bytes.
type Known = (i64, Vec<u8>);

/// Returns the bytes of a window with one more value.
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
        Synopsis::Registers => {
            let mut registers = if last.is_empty() { vec![0; REGISTERS] } else { last };
            let bits = format!("{:064b}", hash(value));
            let register = usize::from_str_radix(&bits[..12], 2).expect("binary digits");
            let zeros = bits[12..].chars().take_while(|&bit| bit == '0').count();
            registers[register] = registers[register].max(zeros as u8 + 1);
            registers
        }
        Synopsis::Buckets => pairs(&merged(&[&last, &pairs(&BTreeMap::from([(bucket(window.value, value), 1)]))])),
        Synopsis::Counters => {
            let mut counters = if last.is_empty() { vec![0; 8 * COUNTER_ROWS * COUNTERS] } else { last };
            for place in counters_of(value) {
                let count = counter(&counters, place) + 1;
                counters[8 * place..8 * place + 8].copy_from_slice(&count.to_le_bytes());
            }
            counters
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

/// Returns the common answer of the synopses of the last `within` slices.
pub fn read(window: &Window, bytes: &[u8], time: i64, within: i64, ask: Ask, argument: &Value) -> Value {
    let slices = window.slices();
    let entries = decode(slices, bytes);
    let now = now(slices, &entries, time);
    let recent = entries.iter().filter(|(slice, _)| slices.is_none() || is_within(*slice, now, within));
    let recent: Vec<&[u8]> = recent.map(|(_, known)| known.as_slice()).collect();
    match ask {
        Ask::Distinct => Value::Int(distinct(&recent)),
        Ask::Quantile => {
            let Value::Float(part) = argument else { panic!("{argument} is no part") };
            quantile(&merged(&recent), *part).map_or(Value::Null, Value::Float)
        }
        Ask::Frequency => {
            let of = |place| recent.iter().map(|known| counter(known, place)).sum();
            Value::Int(counters_of(argument).into_iter().map(of).min().expect("there are rows"))
        }
        Ask::Value | Ask::Times => {
            let mut whole = Counts::default();
            for known in recent {
                Counts::decode(window.value, known).0.into_iter().for_each(|(value, times)| whole.add(value, times));
            }
            let found = whole.of_rank(argument.word().expect("a rank"));
            match ask {
                Ask::Value => found.map_or(Value::Null, |(value, _)| value),
                _ => Value::Int(found.map_or(0, |(_, times)| times)),
            }
        }
    }
}

/// Returns a text for users that says what a window keeps.
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

/// Returns the slices, the oldest first; without slices, one of number 0.
fn decode(slices: Option<Slices>, mut bytes: &[u8]) -> Vec<Known> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let slice = if slices.is_some() { take_word(&mut bytes) } else { 0 };
        let len = take_word(&mut bytes);
        entries.push((slice, take(&mut bytes, len)));
    }
    entries
}

fn hash(value: &Value) -> u64 {
    let bytes = match value {
        Value::Str(text) => text.as_bytes().to_vec(),
        Value::Bytes(bytes) => bytes.clone(),
        word => word.word().expect("a word").to_le_bytes().to_vec(),
    };
    let mut hash: u64 = 14_695_981_039_346_656_037;
    for byte in bytes {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(1_099_511_628_211);
    }
    mix(hash)
}

/// Returns the end of MurmurHash3.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Returns the number of distinct values that Algorithm 6 of Ertl, 2017, estimates, with p = 12 and q = 52.
fn distinct(parts: &[&[u8]]) -> i64 {
    let (m, q) = (REGISTERS, 52);
    let registers: Vec<u8> = (0..m).map(|at| parts.iter().map(|part| part[at]).max().unwrap_or(0)).collect();
    let count = |value: usize| registers.iter().filter(|&&register| usize::from(register) == value).count() as f64;
    let m = m as f64;
    let mut z = m * tau(1.0 - count(q + 1) / m);
    for k in (1..=q).rev() {
        z = 0.5 * (z + count(k));
    }
    z += m * sigma(count(0) / m);
    (0.5 / std::f64::consts::LN_2 * m * m / z + 0.5).floor() as i64
}

fn sigma(x: f64) -> f64 {
    let (mut x, mut y, mut z, mut before) = (x, 1.0, x, f64::NAN);
    while x < 1.0 && z != before {
        before = z;
        x = x * x;
        z += x * y;
        y *= 2.0;
    }
    if x == 1.0 { f64::INFINITY } else { z }
}

fn tau(x: f64) -> f64 {
    let (mut x, mut y, mut z, mut before) = (x, 1.0, 1.0 - x, f64::NAN);
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    while z != before {
        before = z;
        x = x.sqrt();
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
    }
    z / 3.0
}

/// Numbers of buckets and how many values are in them.
type Buckets = BTreeMap<i64, i64>;

/// Returns the number of a value's bucket: there are 64 buckets for each power of two.
fn bucket(ty: Type, value: &Value) -> i64 {
    let x = match (value, ty) {
        (Value::Float(x), _) => *x,
        (word, Type::Decimal { scale, .. }) => word.word().expect("a word") as f64 / 10_f64.powi(scale.into()),
        (word, _) => word.word().expect("a word") as f64,
    };
    let bits = x.abs().to_bits();
    let (exponent, fraction) = ((bits >> 52) as i64, bits % (1 << 52));
    let number = 64 * exponent + (fraction >> 46) as i64;
    match x {
        _ if x.is_nan() => i64::MAX,
        _ if exponent == 0 => 0,
        _ if x < 0.0 => -number,
        _ => number,
    }
}

fn merged(parts: &[&[u8]]) -> Buckets {
    let mut buckets = Buckets::new();
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let bucket = take_word(&mut rest);
            *buckets.entry(bucket).or_default() += take_word(&mut rest);
        }
    }
    buckets
}

fn pairs(buckets: &Buckets) -> Vec<u8> {
    buckets.iter().flat_map(|(bucket, count)| [bucket.to_le_bytes(), count.to_le_bytes()].concat()).collect()
}

fn quantile(buckets: &Buckets, part: f64) -> Option<f64> {
    let each = buckets.iter().flat_map(|(bucket, count)| std::iter::repeat_n(*bucket, *count as usize));
    let values: Vec<i64> = each.collect();
    let last = *values.last()?;
    if last == i64::MAX {
        return Some(f64::NAN);
    }
    let bucket = values[(part * (values.len() - 1) as f64).floor() as usize];
    let (exponent, place) = (bucket.abs() / 64, bucket.abs() % 64);
    let size = match exponent {
        0 => 0.0,
        2047 => f64::INFINITY,
        _ => (1.0 + (place as f64 + 0.5) / 64.0) * f64::from_bits((exponent as u64) << 52),
    };
    Some(if bucket < 0 { -size } else { size })
}

/// Returns the counter of a value in each row.
fn counters_of(value: &Value) -> Vec<usize> {
    let of_row = |row: usize| {
        let hash = hash(value).wrapping_add((row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        row * COUNTERS + (mix(hash) % COUNTERS as u64) as usize
    };
    (0..COUNTER_ROWS).map(of_row).collect()
}

fn counter(counters: &[u8], place: usize) -> i64 {
    take_word(&mut &counters[8 * place..])
}
