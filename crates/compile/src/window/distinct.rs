//! Distinct words: entries of a slice and a value, ordered so that a value is found without a look at all of them.
//!
//! What the bytes mean is said in `tidemill_plan`'s `window`. The runs of the newest slice are as those of the logarithmic
//! method (J. L. Bentley, J. B. Saxe, "Decomposable searching problems I: static-to-dynamic transformation", 1980): a new
//! value is sorted together with the runs of 1, 2, 4 and so on entries at the end. So an entry is moved once for each size of
//! runs at the most.

use super::word;
use std::ops::Range;

/// Bytes of an entry.
const BYTES: usize = 16;
/// The number of entries up to which all are looked through: no search is faster.
const FEW: usize = 32;

fn slice_of(kept: &[u8], entry: usize) -> i64 {
    word(&kept[entry * BYTES..])
}

fn value_of(kept: &[u8], entry: usize) -> i64 {
    word(&kept[entry * BYTES + 8..])
}

/// Writes the entries that follow from one more value; which bytes they take the place of.
pub fn add(kept: &[u8], now: i64, value: i64, out: &mut Vec<u8>) -> Range<usize> {
    let len = kept.len() / BYTES;
    let known = find(kept, value);
    if known.is_some_and(|entry| slice_of(kept, entry) == now) {
        return kept.len()..kept.len();
    }
    // Those that are sorted anew, and whether the new value is among them.
    let newest = if len == 0 { 0..0 } else { begin_of(kept, len)..len };
    let is_newest = len > 0 && slice_of(kept, len - 1) == now;
    let sorted = match is_newest {
        true => len + 1 - (1 << newest.len().trailing_ones())..len,
        // One run already.
        false if newest.len().is_power_of_two() => len..len,
        false => newest,
    };
    if sorted.is_empty() {
        write(now, value, out);
        return known.map_or(len * BYTES..kept.len(), |known| known * BYTES..(known + 1) * BYTES);
    }
    let first = known.map_or(sorted.start, |known| known.min(sorted.start));
    let stays = |entry: &usize| Some(*entry) != known;
    let before = (first..sorted.start).filter(stays);
    before.for_each(|entry| out.extend_from_slice(&kept[entry * BYTES..(entry + 1) * BYTES]));
    let slice = slice_of(kept, sorted.start);
    let mut values: Vec<i64> = sorted.filter(stays).map(|entry| value_of(kept, entry)).collect();
    if is_newest {
        values.push(value);
    }
    // It finds the runs that it is made of.
    values.sort();
    values.into_iter().for_each(|value| write(slice, value, out));
    if !is_newest {
        write(now, value, out);
    }
    first * BYTES..kept.len()
}

fn write(slice: i64, value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&slice.to_le_bytes());
    out.extend_from_slice(&value.to_le_bytes());
}

/// Returns the place where the slice of the last of `len` entries begins.
fn begin_of(kept: &[u8], len: usize) -> usize {
    let slice = slice_of(kept, len - 1);
    first_that(0..len - 1, |entry| slice_of(kept, entry) >= slice)
}

/// Returns the first entry of which something is so, as it is of all that follow; the end if of none.
fn first_that(entries: Range<usize>, is_so: impl Fn(usize) -> bool) -> usize {
    let Range { start: mut low, end: mut high } = entries;
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Returns the entry of a value.
fn find(kept: &[u8], value: i64) -> Option<usize> {
    let len = kept.len() / BYTES;
    let mut end = len;
    while end > FEW {
        let begin = begin_of(kept, end);
        // The runs of the newest slice have the sizes of the bits of their number, the greatest first.
        let mut run = begin;
        while run < end {
            let size = if end == len { 1 << (end - run).ilog2() } else { end - run };
            let place = first_that(run..run + size, |entry| value_of(kept, entry) >= value);
            if place < run + size && value_of(kept, place) == value {
                return Some(place);
            }
            run += size;
        }
        end = begin;
    }
    look_for(&kept[..end * BYTES], value)
}

/// Finds a value among few, in any order.
fn look_for(kept: &[u8], value: i64) -> Option<usize> {
    /// Entries that are looked at together.
    const ENTRIES: usize = 4;
    let is_wanted = |entry: &[u8]| word(&entry[8..]) == value;
    let has_wanted = |entries: &[u8]| entries.chunks_exact(BYTES).fold(false, |found, entry| found | is_wanted(entry));
    let block = kept.chunks_exact(ENTRIES * BYTES).position(has_wanted);
    let before = ENTRIES * block.unwrap_or(kept.len() / (BYTES * ENTRIES));
    let entry = kept[before * BYTES..].chunks_exact(BYTES).position(is_wanted)?;
    Some(before + entry)
}
