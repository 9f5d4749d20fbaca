//! Windows, on their bytes. What the bytes mean is said in `tidemill_plan`'s `window`.
//!
//! Nothing here trusts the bytes: what is cut short is taken to end there. An add is an [`Edit`]: it drops old entries at the
//! front and perhaps one in between, and appends one; so most are done where the bytes are.

use std::cmp::Ordering;
use std::ops::Range;
use tidemill_model::Type;
use tidemill_plan::{Aggregate, Keep, SLICE_BYTES, Window};
use tidemill_state::blob::Edit;

/// A value to add.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    Word(i64),
    Float(f64),
    Text(&'a [u8]),
}

/// What an aggregate comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Word(i64),
    Float(f64),
    Null,
    Overflow,
}

/// By number, as compiled code names them.
pub const AGGREGATES: [Aggregate; 6] =
    [Aggregate::Count, Aggregate::Sum, Aggregate::Mean, Aggregate::Min, Aggregate::Max, Aggregate::Distinct];

/// A summary of values: of one, of a slice, of many.
#[derive(Clone, Copy)]
struct Summary<N> {
    count: i64,
    sum: N,
    least: N,
    greatest: N,
}

/// Words sum up in 128 bits; floats as they come.
trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    /// Whether a new value takes the place of the least (or greatest) so far.
    fn replaces(self, old: Self, wanted: Ordering) -> bool;
    fn read_sum(bytes: &[u8]) -> Self;
    fn write_sum(self, out: &mut Vec<u8>);
    fn read(bytes: &[u8]) -> Self;
    fn write(self, out: &mut Vec<u8>);
}

impl Number for i128 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn replaces(self, old: Self, wanted: Ordering) -> bool {
        self.cmp(&old) == wanted
    }
    fn read_sum(bytes: &[u8]) -> Self {
        bytes.first_chunk().map_or(0, |chunk| i128::from_le_bytes(*chunk))
    }
    fn write_sum(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        word(bytes).into()
    }
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self as i64).to_le_bytes());
    }
}

impl Number for f64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn replaces(self, old: Self, wanted: Ordering) -> bool {
        !old.is_nan() && (self.is_nan() || self.partial_cmp(&old) == Some(wanted))
    }
    fn read_sum(bytes: &[u8]) -> Self {
        Self::read(bytes)
    }
    fn write_sum(self, out: &mut Vec<u8>) {
        self.write(out);
        out.extend_from_slice(&[0; 8]);
    }
    fn read(bytes: &[u8]) -> Self {
        f64::from_bits(word(bytes) as u64)
    }
    fn write(self, out: &mut Vec<u8>) {
        let one_nan = if self.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { self };
        out.extend_from_slice(&one_nan.to_le_bytes());
    }
}

impl<N: Number> Summary<N> {
    fn of(value: N) -> Self {
        Summary { count: 1, sum: value, least: value, greatest: value }
    }

    /// With the values of a later one.
    fn and(self, later: Self) -> Self {
        let least = if later.least.replaces(self.least, Ordering::Less) { later.least } else { self.least };
        let greatest =
            if later.greatest.replaces(self.greatest, Ordering::Greater) { later.greatest } else { self.greatest };
        Summary { count: self.count + later.count, sum: self.sum.plus(later.sum), least, greatest }
    }

    /// Of the bytes of a slice after its number.
    fn read(bytes: &[u8]) -> Self {
        let at = |start: usize| bytes.get(start..).unwrap_or_default();
        Summary { count: word(bytes), sum: N::read_sum(at(8)), least: N::read(at(24)), greatest: N::read(at(32)) }
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        self.sum.write_sum(out);
        self.least.write(out);
        self.greatest.write(out);
    }
}

fn word(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(0, |chunk| i64::from_le_bytes(*chunk))
}

/// The entries of a window, oldest first: the slice (0 where there is none), the bytes of the value or summary
/// (of a text without its length), and where in the window the entry begins.
struct Entries<'a> {
    window: &'a Window,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (i64, &'a [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let mut rest = self.bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let mut slice = 0;
        if self.window.slices().is_some() {
            slice = word(rest);
            rest = rest.get(8..)?;
        }
        let len = match self.window.keep {
            Keep::Slices(_) => SLICE_BYTES - 8,
            _ if self.window.value.is_bytes() => {
                let len = usize::try_from(word(rest)).ok()?;
                rest = rest.get(8..)?;
                len
            }
            _ => 8,
        };
        let value = rest.get(..len)?;
        self.at = self.bytes.len() - rest.len() + len;
        Some((slice, value, start))
    }
}

fn entries<'a>(window: &'a Window, bytes: &'a [u8]) -> Entries<'a> {
    Entries { window, bytes, at: 0 }
}

/// Where entries are of one length: that.
fn stride(window: &Window) -> Option<usize> {
    match window.keep {
        Keep::Slices(_) => Some(SLICE_BYTES),
        _ if window.value.is_bytes() => None,
        Keep::Distinct(_) => Some(16),
        Keep::Last(_) => Some(8),
    }
}

/// The slice of now: that of the time, or that of the newest entry where it is later.
fn now(window: &Window, bytes: &[u8], time: i64) -> i64 {
    let Some(slices) = window.slices() else { return 0 };
    let newest = match stride(window) {
        Some(stride) => bytes.len().checked_sub(stride).map(|at| word(&bytes[at..])),
        None => entries(window, bytes).last().map(|(slice, ..)| slice),
    };
    let slice = time.div_euclid(slices.slide);
    newest.map_or(slice, |newest| newest.max(slice))
}

/// Where the entries of the last `within` slices begin.
fn recent(window: &Window, bytes: &[u8], now: i64, within: i64) -> usize {
    // Below the least number there is no slice.
    let Some(gone) = now.checked_sub(within) else { return 0 };
    if let Some(stride) = stride(window) {
        // Of an empty window it does not matter.
        if word(bytes) > gone {
            return 0;
        }
        let (mut low, mut high) = (0, bytes.len() / stride);
        while low < high {
            let middle = (low + high) / 2;
            if word(&bytes[middle * stride..]) <= gone { low = middle + 1 } else { high = middle }
        }
        return low * stride;
    }
    entries(window, bytes).find(|(slice, ..)| *slice > gone).map_or(bytes.len(), |(.., start)| start)
}

/// What one more value does to the bytes of a window; what comes is written to `tail`, which is empty.
pub fn add(window: &Window, bytes: &[u8], time: i64, item: Item<'_>, tail: &mut Vec<u8>) -> Edit {
    let now = now(window, bytes, time);
    match window.keep {
        Keep::Slices(slices) => {
            let start = recent(window, bytes, now, slices.count);
            let gap = match item {
                Item::Float(value) => add_to_slice(&bytes[start..], now, value, tail),
                Item::Word(value) => add_to_slice(&bytes[start..], now, i128::from(value), tail),
                Item::Text(_) => unreachable!("analysis refuses slices of texts"),
            };
            Edit { start, gap: bytes.len() - gap..bytes.len() }
        }
        Keep::Distinct(slices) => {
            let start = recent(window, bytes, now, slices.count);
            let Some((slice, gap)) = find(window, &bytes[start..], item) else {
                tail.extend_from_slice(&now.to_le_bytes());
                write_item(item, tail);
                return Edit { start, gap: bytes.len()..bytes.len() };
            };
            let gap = start + gap.start..start + gap.end;
            if slice == now {
                return Edit { start, gap: gap.end..gap.end };
            }
            tail.extend_from_slice(&now.to_le_bytes());
            write_item(item, tail);
            Edit { start, gap }
        }
        Keep::Last(count) => {
            let len = entries_len(window, bytes);
            let surplus = usize::try_from(len as i64 + 1 - count).unwrap_or(0);
            write_item(item, tail);
            Edit { start: nth(window, bytes, surplus), gap: bytes.len()..bytes.len() }
        }
    }
}

/// Writes the slice of now with one more value; how many bytes it takes the place of.
fn add_to_slice<N: Number>(kept: &[u8], now: i64, value: N, out: &mut Vec<u8>) -> usize {
    let last = kept.len().checked_sub(SLICE_BYTES).filter(|&at| word(&kept[at..]) == now);
    let summary = match last {
        Some(at) => Summary::read(&kept[at + 8..]).and(Summary::of(value)),
        None => Summary::of(value),
    };
    out.extend_from_slice(&now.to_le_bytes());
    summary.write(out);
    last.map_or(0, |at| kept.len() - at)
}

/// The slice of a value among distinct ones, and where its entry is.
fn find(window: &Window, kept: &[u8], item: Item<'_>) -> Option<(i64, Range<usize>)> {
    /// Entries that are looked at together.
    const ENTRIES: usize = 4;
    /// Of an entry of a word; of a text, slice and length.
    const BYTES: usize = 16;
    match item {
        Item::Text(text) => {
            let (slice, value, at) = entries(window, kept).find(|(_, value, _)| *value == text)?;
            Some((slice, at..at + BYTES + value.len()))
        }
        Item::Word(wanted) => {
            let is_wanted = |entry: &[u8]| word(&entry[8..]) == wanted;
            let has_wanted =
                |entries: &[u8]| entries.chunks_exact(BYTES).fold(false, |found, entry| found | is_wanted(entry));
            let block = kept.chunks_exact(ENTRIES * BYTES).position(has_wanted);
            let before = BYTES * ENTRIES * block.unwrap_or(kept.len() / (BYTES * ENTRIES));
            let entry = kept[before..].chunks_exact(BYTES).position(is_wanted)?;
            let at = before + BYTES * entry;
            Some((word(&kept[at..]), at..at + BYTES))
        }
        Item::Float(_) => unreachable!("analysis refuses distinct floats"),
    }
}

fn write_item(item: Item<'_>, out: &mut Vec<u8>) {
    match item {
        Item::Word(value) => out.extend_from_slice(&value.to_le_bytes()),
        Item::Float(value) => value.write(out),
        Item::Text(text) => {
            out.extend_from_slice(&(text.len() as i64).to_le_bytes());
            out.extend_from_slice(text);
        }
    }
}

fn entries_len(window: &Window, bytes: &[u8]) -> usize {
    stride(window).map_or_else(|| entries(window, bytes).count(), |stride| bytes.len() / stride)
}

/// Where an entry begins, counted from the oldest; one past the last at most.
fn nth(window: &Window, bytes: &[u8], entry: usize) -> usize {
    match stride(window) {
        Some(stride) => (entry * stride).min(bytes.len()),
        None => entries(window, bytes).nth(entry).map_or(bytes.len(), |(.., start)| start),
    }
}

/// An aggregate over the last `within` slices or values.
pub fn read(window: &Window, bytes: &[u8], time: i64, within: i64, aggregate: Aggregate) -> Answer {
    let start = match window.keep {
        Keep::Last(_) => {
            let surplus = entries_len(window, bytes) as i64 - within;
            nth(window, bytes, usize::try_from(surplus).unwrap_or(0))
        }
        _ => recent(window, bytes, now(window, bytes, time), within),
    };
    let part = &bytes[start..];
    match (aggregate, window.keep) {
        (Aggregate::Distinct, Keep::Distinct(_)) => Answer::Word(entries_len(window, part) as i64),
        (Aggregate::Distinct, _) => {
            let mut values: Vec<&[u8]> = entries(window, part).map(|(_, value, _)| value).collect();
            values.sort_unstable();
            values.dedup();
            Answer::Word(values.len() as i64)
        }
        (Aggregate::Count, Keep::Last(_)) => Answer::Word(entries_len(window, part) as i64),
        (Aggregate::Count, Keep::Slices(_)) => {
            Answer::Word(part.chunks_exact(SLICE_BYTES).map(|slice| word(&slice[8..])).sum())
        }
        _ if window.value == Type::Float => answer(summary::<f64>(window, part), aggregate, |aggregate, whole| {
            Answer::Float(match aggregate {
                Aggregate::Sum => whole.sum,
                Aggregate::Min => whole.least,
                Aggregate::Max => whole.greatest,
                _ => whole.sum / whole.count as f64,
            })
        }),
        _ => answer(summary::<i128>(window, part), aggregate, |aggregate, whole| match aggregate {
            Aggregate::Sum => i64::try_from(whole.sum).map_or(Answer::Overflow, Answer::Word),
            Aggregate::Min => Answer::Word(whole.least as i64),
            Aggregate::Max => Answer::Word(whole.greatest as i64),
            _ if window.value == Type::Int => Answer::Float(whole.sum as f64 / whole.count as f64),
            _ => Answer::Word(crate::helpers::divide_half_even(whole.sum, whole.count.into()) as i64),
        }),
    }
}

/// Of all entries; none where there are none.
fn summary<N: Number>(window: &Window, part: &[u8]) -> Option<Summary<N>> {
    let of = |value: &[u8]| match window.keep {
        Keep::Slices(_) => Summary::read(value),
        _ => Summary::of(N::read(value)),
    };
    match stride(window) {
        Some(stride) => {
            let value = if window.slices().is_some() { 8 } else { 0 };
            part.chunks_exact(stride).map(|entry| of(&entry[value..])).reduce(Summary::and)
        }
        None => entries(window, part).map(|(_, value, _)| of(value)).reduce(Summary::and),
    }
}

fn answer<N: Number>(
    whole: Option<Summary<N>>,
    aggregate: Aggregate,
    of: impl FnOnce(Aggregate, Summary<N>) -> Answer,
) -> Answer {
    match (whole, aggregate) {
        (whole, Aggregate::Count) => Answer::Word(whole.map_or(0, |whole| whole.count)),
        (Some(whole), aggregate) => of(aggregate, whole),
        // The word of a float's 0 is 0 too.
        (None, Aggregate::Sum) => Answer::Word(0),
        (None, _) => Answer::Null,
    }
}
