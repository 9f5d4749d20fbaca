//! Synopses of values, on their bytes. What the bytes mean is said in `tidemill_plan`'s `window`.
//!
//! Nothing here trusts the bytes: what is cut short is taken to end there.

use crate::records::Found;
use crate::window::{Item, word, write_item};
use std::collections::BTreeMap;
use tidemill_model::Type;
use tidemill_plan::{Ask, Synopsis};

/// By number, as compiled code names them.
pub const ASKS: [Ask; 2] = [Ask::Value, Ask::Times];

/// Writes a synopsis with one more value; whether it is another one then. If not, nothing is written.
pub fn add(of: Synopsis, known: &[u8], item: Item<'_>, out: &mut Vec<u8>) -> bool {
    match of {
        Synopsis::Counts => add_to_counts(known, item, out),
    }
    true
}

/// What the synopses of several slices, the oldest first, say together.
pub fn read<'a>(value: Type, parts: &[&'a [u8]], ask: Ask, argument: u64) -> Found<'a> {
    match ask {
        Ask::Value => match ranked(value, parts, argument as i64) {
            None => Found::Null,
            Some((bytes, _)) if value.is_bytes() => Found::Text(bytes),
            Some((bytes, _)) => Found::Word(word(bytes) as u64),
        },
        Ask::Times => Found::Word(ranked(value, parts, argument as i64).map_or(0, |(_, times)| times as u64)),
    }
}

/// Of counts: where each entry begins, how often the value was added, and its bytes.
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

/// The value of a rank, and how often it was added.
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
