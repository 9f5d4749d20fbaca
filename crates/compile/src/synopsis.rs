//! Synopses of values, on their bytes. What the bytes mean is said in `tidemill_plan`'s `window`.
//!
//! Nothing here trusts the bytes: what is cut short is taken to end there.

use crate::records::Found;
use crate::window::{Item, word, write_item};
use std::collections::BTreeMap;
use tidemill_model::Type;
use tidemill_plan::{Ask, COUNTER_ROWS, COUNTERS, REGISTERS, Synopsis};

/// The questions, by the numbers that compiled code has for them.
pub const ASKS: [Ask; 5] = [Ask::Value, Ask::Times, Ask::Distinct, Ask::Quantile, Ask::Frequency];

/// The argument of a question: a word, or the bytes of a text.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    pub word: u64,
    pub text: &'a [u8],
}

/// Writes a synopsis with one more value; whether it is another one then. If not, nothing is written.
pub fn add(of: Synopsis, value: Type, known: &[u8], item: Item<'_>, out: &mut Vec<u8>) -> bool {
    match of {
        Synopsis::Counts => add_to_counts(known, item, out),
        Synopsis::Registers => return add_to_registers(known, hash(item), out),
        Synopsis::Buckets => add_to_buckets(known, bucket(float(value, item)), out),
        Synopsis::Counters => add_to_counters(known, hash(item), out),
    }
    true
}

/// Returns the common answer of the synopses of several slices, the oldest first.
pub fn read<'a>(value: Type, parts: &[&'a [u8]], ask: Ask, argument: Argument<'_>) -> Found<'a> {
    match ask {
        Ask::Value => match ranked(value, parts, argument.word as i64) {
            None => Found::Null,
            Some((bytes, _)) if value.is_bytes() => Found::Text(bytes),
            Some((bytes, _)) => Found::Word(word(bytes) as u64),
        },
        Ask::Distinct => Found::Word(distinct(parts)),
        Ask::Quantile => {
            quantile(parts, f64::from_bits(argument.word)).map_or(Found::Null, |x| Found::Word(x.to_bits()))
        }
        Ask::Frequency => {
            let item = if value.is_bytes() { Item::Text(argument.text) } else { Item::Word(argument.word as i64) };
            Found::Word(frequency(parts, hash(item)) as u64)
        }
        Ask::Times => Found::Word(ranked(value, parts, argument.word as i64).map_or(0, |(_, times)| times as u64)),
    }
}

/// Returns the place of each entry of counts, how often its value was added, and its bytes.
fn counts(is_text: bool, part: &[u8]) -> impl Iterator<Item = (usize, i64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let entry = part.get(start..).filter(|rest| !rest.is_empty())?;
        let rest = entry.get(8..)?;
        let (before, len) = if is_text { (16, usize::try_from(word(rest)).ok()?) } else { (8, 8) };
        let value = entry.get(before..)?.get(..len)?;
        at = start + before + len;
        Some((start, word(entry), value))
    })
}

fn add_to_counts(known: &[u8], item: Item<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(known);
    let found = match item {
        Item::Text(text) => counts(true, known).find(|(.., value)| *value == text),
        Item::Word(wanted) => counts(false, known).find(|(.., value)| word(value) == wanted),
        Item::Float(_) => unreachable!("analysis refuses counts of floats"),
    };
    match found {
        Some((at, times, _)) => {
            out[start + at..start + at + 8].copy_from_slice(&times.wrapping_add(1).to_le_bytes());
        }
        None => {
            out.extend_from_slice(&1_i64.to_le_bytes());
            write_item(item, out);
        }
    }
}

/// Returns the value of a rank, and how often it was added.
fn ranked<'a>(value: Type, parts: &[&'a [u8]], rank: i64) -> Option<(&'a [u8], i64)> {
    let mut found: Vec<(&[u8], i64)> = Vec::new();
    let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
    for part in parts {
        for (_, times, value) in counts(value.is_bytes(), part) {
            let place = *places.entry(value).or_insert(found.len());
            match found.get_mut(place) {
                Some((_, sum)) => *sum = sum.wrapping_add(times),
                None => found.push((value, times)),
            }
        }
    }
    // Stable: of those as frequent, the one that was added first is before.
    found.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    found.get(usize::try_from(rank).ok()?).copied()
}

fn hash(item: Item<'_>) -> u64 {
    let fnv = |bytes: &[u8]| {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    mix(match item {
        Item::Text(text) => fnv(text),
        Item::Word(value) => fnv(&value.to_le_bytes()),
        Item::Float(_) => unreachable!("analysis refuses hashes of floats"),
    })
}

fn mix(mut x: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        x = (x ^ x >> 33).wrapping_mul(factor);
    }
    x ^ x >> 33
}

/// Bits of a hash that do not say which register.
const REST: u32 = u64::BITS - REGISTERS.ilog2();

fn add_to_registers(known: &[u8], hash: u64, out: &mut Vec<u8>) -> bool {
    let register = (hash >> REST) as usize;
    let value = ((hash << REGISTERS.ilog2()).leading_zeros().min(REST) + 1) as u8;
    if known.get(register).is_some_and(|known| *known >= value) {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(known);
    out.resize(start + REGISTERS, 0);
    out[start + register] = value;
    true
}

/// Returns Ertl's estimate of the number of distinct values, from the number of registers of each value.
fn distinct(parts: &[&[u8]]) -> u64 {
    let mut of_value = [0_u32; REST as usize + 2];
    for register in 0..REGISTERS {
        let greatest = parts.iter().filter_map(|part| part.get(register)).max();
        of_value[usize::from(*greatest.unwrap_or(&0)).min(REST as usize + 1)] += 1;
    }
    let all = REGISTERS as f64;
    let mut z = all * tau(1.0 - f64::from(of_value[REST as usize + 1]) / all);
    for value in (1..=REST as usize).rev() {
        z = 0.5 * (z + f64::from(of_value[value]));
    }
    z += all * sigma(f64::from(of_value[0]) / all);
    (0.5 / std::f64::consts::LN_2 * all * all / z + 0.5).floor() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

fn float(ty: Type, item: Item<'_>) -> f64 {
    match (item, ty) {
        (Item::Float(value), _) => value,
        (Item::Word(value), Type::Decimal { scale, .. }) => value as f64 / 10_i64.pow(scale.into()) as f64,
        (Item::Word(value), _) => value as f64,
        (Item::Text(_), _) => unreachable!("analysis refuses quantiles of texts"),
    }
}

/// Bits of a float that do not say which bucket.
const IN_BUCKET: u32 = 46;
const OF_NAN: i64 = i64::MAX;

fn bucket(x: f64) -> i64 {
    if x.is_nan() {
        return OF_NAN;
    }
    if x.abs() < f64::MIN_POSITIVE {
        return 0;
    }
    let number = (x.abs().to_bits() >> IN_BUCKET) as i64;
    if x < 0.0 { -number } else { number }
}

/// Returns the number that the values of a bucket stand for.
fn middle(bucket: i64) -> f64 {
    let number = bucket.unsigned_abs();
    let size = match f64::from_bits(number << IN_BUCKET) {
        low if low.is_finite() && number > 0 => f64::from_bits(number << IN_BUCKET | 1 << (IN_BUCKET - 1)),
        other => other,
    };
    if bucket < 0 { -size } else { size }
}

fn add_to_buckets(known: &[u8], bucket: i64, out: &mut Vec<u8>) {
    let entries = known.len() / 16;
    let (mut low, mut high) = (0, entries);
    while low < high {
        let at = (low + high) / 2;
        if word(&known[16 * at..]) < bucket { low = at + 1 } else { high = at }
    }
    let (before, mut after) = known.split_at(16 * low);
    let mut count = 1_i64;
    if low < entries && word(after) == bucket {
        count = word(&after[8..]).wrapping_add(1);
        after = &after[16..];
    }
    out.extend_from_slice(before);
    out.extend_from_slice(&bucket.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(after);
}

fn quantile(parts: &[&[u8]], part: f64) -> Option<f64> {
    let mut buckets: BTreeMap<i64, i64> = BTreeMap::new();
    for entry in parts.iter().flat_map(|part| part.chunks_exact(16)) {
        let sum = buckets.entry(word(entry)).or_insert(0);
        *sum = sum.wrapping_add(word(&entry[8..]));
    }
    if buckets.contains_key(&OF_NAN) {
        return Some(f64::NAN);
    }
    let all = buckets.values().fold(0_i64, |sum, count| sum.wrapping_add(*count));
    let rank = (part * (all - 1) as f64).floor() as i64;
    let mut below = 0_i64;
    let found = buckets.iter().find(|(_, count)| {
        below = below.wrapping_add(**count);
        below > rank
    });
    found.or(buckets.last_key_value()).map(|(bucket, _)| middle(*bucket))
}

/// Returns the places of the counters of a hash.
fn counters(hash: u64) -> impl Iterator<Item = usize> {
    (0..COUNTER_ROWS).map(move |row| {
        let of_row = mix(hash.wrapping_add((row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        8 * (row * COUNTERS + of_row as usize % COUNTERS)
    })
}

fn add_to_counters(known: &[u8], hash: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(known);
    out.resize(start + 8 * COUNTER_ROWS * COUNTERS, 0);
    for at in counters(hash) {
        let counter = &mut out[start + at..start + at + 8];
        let count = word(counter).wrapping_add(1);
        counter.copy_from_slice(&count.to_le_bytes());
    }
}

fn frequency(parts: &[&[u8]], hash: u64) -> i64 {
    let sum = |at: usize| {
        parts.iter().filter_map(|part| part.get(at..)).fold(0_i64, |sum, counter| sum.wrapping_add(word(counter)))
    };
    counters(hash).map(sum).min().unwrap_or(0)
}
