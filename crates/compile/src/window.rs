//! Windows, on their bytes. What the bytes mean is said in `tidemill_plan`'s `window`.
//!
//! Nothing here trusts the bytes: what is cut short is taken to end there. An add is an [`Edit`]: it drops old entries at the
//! front, and either takes one out and appends one, or writes the last ones anew; so most are done where the bytes are.

mod distinct;

use crate::records::Found;
use crate::synopsis::{self, Argument};
use std::cmp::Ordering;
use std::ops::Range;
use tidemill_exact::{BANDS, HOME, Int192, Moments, Of, Population, Sum, quotient};
use tidemill_model::Type;
use tidemill_plan::{Aggregate, Ask, Keep, Slices, Window};
use tidemill_state::blob::Edit;

/// A value to add.
#[derive(Clone, Copy)]
pub enum Item<'a> {
    Word(i64),
    Float(f64),
    Text(&'a [u8]),
}

/// The answer of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Word(i64),
    Float(f64),
    Null,
    Overflow,
}

/// The aggregates, by the numbers that compiled code has for them.
pub const AGGREGATES: [Aggregate; 10] = [
    Aggregate::Count,
    Aggregate::Sum,
    Aggregate::Mean,
    Aggregate::Min,
    Aggregate::Max,
    Aggregate::Distinct,
    Aggregate::Variance,
    Aggregate::Stddev,
    Aggregate::Pvariance,
    Aggregate::Pstddev,
];

const _: () = assert!(BANDS == tidemill_plan::BANDS && HOME == tidemill_plan::HOME_BAND, "bands of the format");

/// Bytes of an entry of a slice of floats.
pub const FLOAT_SLICE_BYTES: usize = 56;

/// A number, and what numbers sum up in: words in 128 bits, floats without error.
trait Number: Copy {
    type Sum: Default;
    /// Bytes of an entry of a slice.
    const SLICE_BYTES: usize;
    const ZERO: Self;

    /// Returns whether a new value takes the place of the least (or greatest) so far.
    fn replaces(self, old: Self, wanted: Ordering) -> bool;
    fn add_to(self, sum: &mut Self::Sum);
    /// Returns whether what it adds to the sum of a slice is all in the slice's last entry.
    fn is_in_last_entry(self) -> bool;
    /// Adds the sum in an entry of a slice, whose bytes follow, that says `tag` in place of a count or as one.
    fn add_entry(sum: &mut Self::Sum, tag: i64, bytes: &[u8]);
    /// Writes the entries of a slice that come before the last.
    fn write_entries(sum: &Self::Sum, slice: i64, out: &mut Vec<u8>);
    /// Writes the sum in a slice's last entry.
    fn write_sum(sum: &Self::Sum, out: &mut Vec<u8>);
    /// Puts the sum into a slice's last entry.
    fn put_sum(sum: &Self::Sum, out: &mut [u8]);
    fn read(bytes: &[u8]) -> Self;
    /// Returns its bytes; all NaNs have those of one NaN.
    fn bytes(self) -> [u8; 8];
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }
}

impl Number for i64 {
    type Sum = i128;
    const SLICE_BYTES: usize = 48;
    const ZERO: Self = 0;

    fn replaces(self, old: Self, wanted: Ordering) -> bool {
        self.cmp(&old) == wanted
    }
    fn add_to(self, sum: &mut i128) {
        *sum = sum.wrapping_add(self.into());
    }
    fn is_in_last_entry(self) -> bool {
        true
    }
    fn add_entry(sum: &mut i128, _: i64, bytes: &[u8]) {
        *sum = sum.wrapping_add(bytes.first_chunk().map_or(0, |chunk| i128::from_le_bytes(*chunk)));
    }
    fn write_entries(_: &i128, _: i64, _: &mut Vec<u8>) {}
    fn write_sum(sum: &i128, out: &mut Vec<u8>) {
        out.extend_from_slice(&sum.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        word(bytes)
    }
    fn put_sum(sum: &i128, out: &mut [u8]) {
        put(out, 0, &sum.to_le_bytes());
    }
    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
}

impl Number for f64 {
    type Sum = Sum;
    const SLICE_BYTES: usize = FLOAT_SLICE_BYTES;
    const ZERO: Self = 0.0;

    fn replaces(self, old: Self, wanted: Ordering) -> bool {
        !old.is_nan() && (self.is_nan() || self.total_cmp(&old) == wanted)
    }
    fn add_to(self, sum: &mut Sum) {
        sum.add(self);
    }
    fn is_in_last_entry(self) -> bool {
        Sum::is_home(self)
    }
    fn add_entry(sum: &mut Sum, tag: i64, bytes: &[u8]) {
        let band = if tag > 0 { Some(HOME) } else { usize::try_from(-1 - tag).ok().filter(|&band| band < BANDS) };
        if let (Some(band), Some(units)) = (band, bytes.first_chunk()) {
            sum.add_to_band(band, Int192::from_le_bytes(*units));
        }
    }
    fn write_entries(sum: &Sum, slice: i64, out: &mut Vec<u8>) {
        for (band, units) in sum.outside_home() {
            out.extend_from_slice(&slice.to_le_bytes());
            out.extend_from_slice(&(-1 - band as i64).to_le_bytes());
            out.extend_from_slice(&units.to_le_bytes());
            out.extend_from_slice(&[0; 16]);
        }
    }
    fn write_sum(sum: &Sum, out: &mut Vec<u8>) {
        out.extend_from_slice(&sum.home().to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        f64::from_bits(word(bytes) as u64)
    }
    fn put_sum(sum: &Sum, out: &mut [u8]) {
        put(out, 0, &sum.home().to_le_bytes());
    }
    fn bytes(self) -> [u8; 8] {
        let one_nan = if self.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { self };
        one_nan.to_le_bytes()
    }
}

/// A summary of values: of a slice, or of many.
struct Summary<N: Number> {
    count: i64,
    sum: N::Sum,
    /// The least value; any number if there are no values, as `greatest`.
    least: N,
    greatest: N,
}

impl<N: Number> Summary<N> {
    fn of_none() -> Self {
        Summary { count: 0, sum: N::Sum::default(), least: N::ZERO, greatest: N::ZERO }
    }

    fn add(&mut self, value: N) {
        value.add_to(&mut self.sum);
        self.include(1, value, value);
    }

    /// Adds what is in an entry of a slice, whose bytes follow after the slice's number.
    fn add_entry(&mut self, bytes: &[u8]) {
        let at = |start: usize| bytes.get(start..).unwrap_or_default();
        let tag = word(bytes);
        N::add_entry(&mut self.sum, tag, at(8));
        if tag > 0 {
            self.include(tag, N::read(at(N::SLICE_BYTES - 24)), N::read(at(N::SLICE_BYTES - 16)));
        }
    }

    /// Counts values of which these are the least and the greatest.
    fn include(&mut self, count: i64, least: N, greatest: N) {
        if self.count == 0 || least.replaces(self.least, Ordering::Less) {
            self.least = least;
        }
        if self.count == 0 || greatest.replaces(self.greatest, Ordering::Greater) {
            self.greatest = greatest;
        }
        self.count = self.count.wrapping_add(count);
    }

    /// Puts it into the last entry of a slice, whose bytes follow after the slice's number.
    fn put_entry(self, bytes: &mut [u8]) {
        let (numbers, ends) = bytes.split_at_mut(N::SLICE_BYTES - 24);
        put(numbers, 0, &self.count.to_le_bytes());
        N::put_sum(&self.sum, &mut numbers[8..]);
        put(ends, 0, &self.least.bytes());
        put(ends, 8, &self.greatest.bytes());
    }

    fn write(self, slice: i64, out: &mut Vec<u8>) {
        N::write_entries(&self.sum, slice, out);
        out.extend_from_slice(&slice.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        N::write_sum(&self.sum, out);
        self.least.write(out);
        self.greatest.write(out);
    }
}

pub fn word(bytes: &[u8]) -> i64 {
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
            Keep::Slices(_) => self.window.slice_bytes() - 8,
            _ if self.window.has_lengths() => {
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

/// Returns the length of entries, if all have one length.
fn stride(window: &Window) -> Option<usize> {
    match window.keep {
        Keep::Slices(_) => Some(window.slice_bytes()),
        _ if window.has_lengths() => None,
        Keep::Distinct(_) => Some(16),
        Keep::Records(_) | Keep::Latest(_) | Keep::Moments(_) | Keep::Synopsis(..) => None,
        Keep::Last(_) => Some(8),
    }
}

/// Returns the slice of now: that of the time, or that of the newest entry where it is later.
fn now(window: &Window, bytes: &[u8], time: i64) -> i64 {
    let Some(slices) = window.slices() else { return 0 };
    if window.is_of_records() {
        return time.div_euclid(slices.slide);
    }
    let newest = match stride(window) {
        Some(stride) => bytes.len().checked_sub(stride).map(|at| word(&bytes[at..])),
        None => entries(window, bytes).last().map(|(slice, ..)| slice),
    };
    let slice = time.div_euclid(slices.slide);
    newest.map_or(slice, |newest| newest.max(slice))
}

/// Returns the place where the entries of the last `within` slices begin.
fn recent(window: &Window, bytes: &[u8], now: i64, within: i64) -> usize {
    // Below the least number there is no slice.
    let Some(gone) = now.checked_sub(within) else { return 0 };
    if let Some(stride) = stride(window) {
        // The result does not matter for an empty window.
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

/// Returns the edit by which one more value is added to the bytes of a window; the new bytes are written to `tail`,
/// which is empty.
pub fn add(window: &Window, bytes: &[u8], time: i64, item: Item<'_>, tail: &mut Vec<u8>) -> Edit {
    let now = now(window, bytes, time);
    match window.keep {
        Keep::Slices(slices) => {
            let start = recent(window, bytes, now, slices.count);
            let gap = match item {
                Item::Float(value) => add_to_slice(&bytes[start..], now, value, tail),
                Item::Word(value) => add_to_slice(&bytes[start..], now, value, tail),
                Item::Text(_) => unreachable!("analysis refuses slices of texts"),
            };
            Edit { start, gap: bytes.len() - gap..bytes.len() }
        }
        Keep::Distinct(slices) => {
            let start = recent(window, bytes, now, slices.count);
            let gap = match item {
                Item::Word(value) => distinct::add(&bytes[start..], now, value, tail),
                Item::Text(text) => add_distinct_text(window, &bytes[start..], now, text, tail),
                Item::Float(_) => unreachable!("analysis refuses distinct floats"),
            };
            Edit { start, gap: start + gap.start..start + gap.end }
        }
        Keep::Records(slices) => {
            tail.extend_from_slice(&now.to_le_bytes());
            write_item(item, tail);
            Edit { start: recent(window, bytes, now, slices.count), gap: bytes.len()..bytes.len() }
        }
        Keep::Latest(slices) => {
            let start = recent(window, bytes, now, slices.count);
            let last = entries(window, &bytes[start..]).last().filter(|(slice, ..)| *slice == now);
            tail.extend_from_slice(&now.to_le_bytes());
            write_item(item, tail);
            Edit { start, gap: last.map_or(bytes.len(), |(.., at)| start + at)..bytes.len() }
        }
        Keep::Moments(slices) => {
            let start = recent(window, bytes, now, slices.count);
            let last = entries(window, &bytes[start..]).last().filter(|(slice, ..)| *slice == now);
            let mut moments = last.and_then(|(_, known, _)| Moments::read(known)).unwrap_or_default();
            add_to_moments(&mut moments, item);
            write_moments(now, &moments, tail);
            Edit { start, gap: last.map_or(bytes.len(), |(.., at)| start + at)..bytes.len() }
        }
        Keep::Synopsis(of, slices) => {
            let start = slices.map_or(0, |slices| recent(window, bytes, now, slices.count));
            let last = entries(window, &bytes[start..]).last().filter(|(slice, ..)| *slice == now);
            if slices.is_some() {
                tail.extend_from_slice(&now.to_le_bytes());
            }
            let length = tail.len();
            tail.extend_from_slice(&[0; 8]);
            if !synopsis::add(of, window.value, last.map_or(&[], |(_, known, _)| known), item, tail) {
                tail.clear();
                return Edit { start, gap: bytes.len()..bytes.len() };
            }
            let written = (tail.len() - length - 8) as i64;
            tail[length..length + 8].copy_from_slice(&written.to_le_bytes());
            Edit { start, gap: last.map_or(bytes.len(), |(.., at)| start + at)..bytes.len() }
        }
        Keep::Last(count) => {
            let len = entries_len(window, bytes);
            let surplus = usize::try_from(len as i64 + 1 - count).unwrap_or(0);
            write_item(item, tail);
            Edit { start: nth(window, bytes, surplus), gap: bytes.len()..bytes.len() }
        }
    }
}

fn add_to_moments(moments: &mut Moments, item: Item<'_>) {
    match item {
        Item::Float(value) => moments.add(value),
        Item::Word(value) => moments.add_word(value),
        Item::Text(_) => unreachable!("analysis refuses moments of texts"),
    }
}

/// Adds as [`add`], where that changes no more than the last entry; says whether it does.
pub fn add_here(window: &Window, bytes: &mut [u8], time: i64, item: Item<'_>) -> bool {
    let (Keep::Slices(slices), Some(at)) = (window.keep, bytes.len().checked_sub(window.slice_bytes())) else {
        return false;
    };
    let last = &mut bytes[at..];
    // An earlier time counts for the newest slice.
    if time.div_euclid(slices.slide) > word(last) {
        return false;
    }
    match item {
        Item::Float(value) => add_to_entry(&mut last[8..], value),
        Item::Word(value) => add_to_entry(&mut last[8..], value),
        Item::Text(_) => unreachable!("analysis refuses slices of texts"),
    }
}

/// Returns the end of the slice of a time, as a number that orders as times do and is 0 for no slice: a time with its
/// sign turned.
pub fn limit(slices: Slices, time: i64) -> u64 {
    let end = (i128::from(time.div_euclid(slices.slide)) + 1) * i128::from(slices.slide);
    turned(i64::try_from(end).unwrap_or(i64::MAX))
}

fn turned(time: i64) -> u64 {
    time as u64 ^ 1 << 63
}

/// Puts the first value into the newest entry of a window of slices, which has none. Whether it is all there.
pub fn begin_apart(slices: Slices, newest: &mut [u8], time: i64, item: Item<'_>) -> bool {
    put(newest, 0, &time.div_euclid(slices.slide).to_le_bytes());
    match item {
        Item::Float(value) => add_to_entry(&mut newest[8..], value),
        Item::Word(value) => add_to_entry(&mut newest[8..], value),
        Item::Text(_) => unreachable!("analysis refuses slices of texts"),
    }
}

/// Adds as [`add`], to a window whose newest entry is apart from the others, `bytes`. Gives the others.
pub fn add_apart(window: &Window, bytes: &[u8], newest: &mut [u8], time: i64, item: Item<'_>) -> Vec<u8> {
    let whole = if word(&newest[8..]) == 0 { bytes.to_vec() } else { [bytes, newest].concat() };
    let mut tail = Vec::new();
    let edit = add(window, &whole, time, item, &mut tail);
    let mut whole = edit.pieces(&whole, &tail).concat();
    newest.copy_from_slice(&whole.split_off(whole.len() - newest.len()));
    whole
}

/// Adds a float to the newest entry of a window of slices, of whose slice its time is. Whether it is all there.
pub fn add_float(newest: &mut [u8], value: f64) -> bool {
    add_to_entry(&mut newest[8..], value)
}

/// Adds to the last entry of a slice, whose bytes follow after the slice's number, if it is all there.
fn add_to_entry<N: Number>(bytes: &mut [u8], value: N) -> bool {
    if !value.is_in_last_entry() {
        return false;
    }
    let mut summary = Summary::of_none();
    summary.add_entry(bytes);
    summary.add(value);
    summary.put_entry(bytes);
    true
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Returns the edit by which the values of another window, none of which is in an earlier slice, are added to the bytes
/// of a window: as if they were added one by one.
pub fn merge(window: &Window, bytes: &[u8], other: &[u8], tail: &mut Vec<u8>) -> Edit {
    let none = Edit { start: 0, gap: bytes.len()..bytes.len() };
    let (Some(slices), false) = (window.slices(), other.is_empty()) else { return none };
    let slice = word(other);
    let newest = entries(window, other).last().map_or(slice, |(newest, ..)| newest);
    let start = recent(window, bytes, now(window, bytes, newest.wrapping_mul(slices.slide)), slices.count);
    let kept = &bytes[start..];
    let later = entries(window, other).find(|(of, ..)| *of != slice);
    let (other, later) = other.split_at(later.map_or(other.len(), |(.., at)| at));
    let gap = match (window.keep, window.value) {
        (Keep::Slices(_), Type::Float) => merge_slice::<f64>(kept, slice, other, tail),
        (Keep::Slices(_), _) => merge_slice::<i64>(kept, slice, other, tail),
        _ => {
            let last = entries(window, kept).last().filter(|(of, ..)| *of == slice);
            let known = |entry: Option<(i64, &[u8], usize)>| entry.and_then(|(_, known, _)| Moments::read(known));
            let mut moments = known(last).unwrap_or_default();
            moments.merge(&known(entries(window, other).next()).unwrap_or_default());
            write_moments(slice, &moments, tail);
            kept.len() - last.map_or(kept.len(), |(.., at)| at)
        }
    };
    tail.extend_from_slice(later);
    Edit { start, gap: bytes.len() - gap..bytes.len() }
}

/// Merges one entry as [`merge`], where that changes no more than the last entry; says whether it does.
pub fn merge_here(window: &Window, bytes: &mut [u8], entry: &[u8]) -> bool {
    let Some(at) = bytes.len().checked_sub(window.slice_bytes()) else { return false };
    let last = &mut bytes[at..];
    let is_here = word(last) == word(entry);
    if is_here {
        match window.value {
            Type::Float => unite_entries::<f64>(&mut last[8..], &entry[8..]),
            _ => unite_entries::<i64>(&mut last[8..], &entry[8..]),
        }
    }
    is_here
}

fn unite_entries<N: Number>(bytes: &mut [u8], other: &[u8]) {
    let mut summary = Summary::<N>::of_none();
    summary.add_entry(bytes);
    summary.add_entry(other);
    summary.put_entry(bytes);
}

/// Writes a slice with the values of another one's entries; how many bytes at the end it takes the place of.
fn merge_slice<N: Number>(kept: &[u8], slice: i64, other: &[u8], out: &mut Vec<u8>) -> usize {
    let mut summary = Summary::<N>::of_none();
    let of_slice = |entry: &&[u8]| word(entry) == slice;
    let own = kept.rchunks_exact(N::SLICE_BYTES).take_while(of_slice);
    let gap = own.map(|entry| summary.add_entry(&entry[8..])).count() * N::SLICE_BYTES;
    other.chunks_exact(N::SLICE_BYTES).for_each(|entry| summary.add_entry(&entry[8..]));
    summary.write(slice, out);
    gap
}

fn write_moments(slice: i64, moments: &Moments, out: &mut Vec<u8>) {
    out.extend_from_slice(&slice.to_le_bytes());
    let mut written = Vec::new();
    moments.write(&mut written);
    write_item(Item::Text(&written), out);
}

/// Writes the slice of now with one more value; how many bytes at the end it takes the place of.
fn add_to_slice<N: Number>(kept: &[u8], now: i64, value: N, out: &mut Vec<u8>) -> usize {
    let mut summary = Summary::of_none();
    let mut start = kept.len();
    while let Some(at) = start.checked_sub(N::SLICE_BYTES).filter(|&at| word(&kept[at..]) == now) {
        summary.add_entry(&kept[at + 8..start]);
        start = at;
        if value.is_in_last_entry() {
            break;
        }
    }
    summary.add(value);
    summary.write(now, out);
    kept.len() - start
}

/// Writes the entry of a text, unless it was added in the slice of now; what it takes the place of.
fn add_distinct_text(window: &Window, kept: &[u8], now: i64, text: &[u8], out: &mut Vec<u8>) -> Range<usize> {
    let known = entries(window, kept).find(|(_, value, _)| *value == text);
    let gap = known.map_or(kept.len()..kept.len(), |(_, value, at)| at..at + 16 + value.len());
    if known.is_some_and(|(slice, ..)| slice == now) {
        return kept.len()..kept.len();
    }
    out.extend_from_slice(&now.to_le_bytes());
    write_item(Item::Text(text), out);
    gap
}

pub fn write_item(item: Item<'_>, out: &mut Vec<u8>) {
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

/// Returns the place where an entry begins, counted from the oldest; one past the last at most.
fn nth(window: &Window, bytes: &[u8], entry: usize) -> usize {
    match stride(window) {
        Some(stride) => (entry * stride).min(bytes.len()),
        None => entries(window, bytes).nth(entry).map_or(bytes.len(), |(.., start)| start),
    }
}

/// Returns the place where the next record of the last `within` slices begins after the entry at `after`, or the first
/// if that is negative; −1 if there is none.
pub fn next(window: &Window, bytes: &[u8], time: i64, within: i64, after: i64) -> i64 {
    let mut rest = entries(window, bytes);
    if let Ok(after) = usize::try_from(after) {
        rest.at = after.min(bytes.len());
        rest.next();
    }
    // Below the least number there is no slice.
    let gone = now(window, bytes, time).checked_sub(within);
    let mut found = rest.filter(|(slice, ..)| gone.is_none_or(|gone| *slice > gone));
    found.next().map_or(-1, |(.., start)| start as i64)
}

/// Returns the record in the entry at `at`.
pub fn record(bytes: &[u8], at: i64) -> &[u8] {
    let entry = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let (len, record) = (entry.get(8..).unwrap_or_default(), entry.get(16..).unwrap_or_default());
    usize::try_from(word(len)).ok().and_then(|len| record.get(..len)).unwrap_or_default()
}

/// Returns an aggregate over the last `within` slices or values.
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
        _ if aggregate.is_spread() => spread(window, part, aggregate),
        (Aggregate::Distinct, Keep::Distinct(_)) => Answer::Word(entries_len(window, part) as i64),
        (Aggregate::Distinct, _) => {
            let mut values: Vec<&[u8]> = entries(window, part).map(|(_, value, _)| value).collect();
            values.sort_unstable();
            values.dedup();
            Answer::Word(values.len() as i64)
        }
        (Aggregate::Count, Keep::Last(_)) => Answer::Word(entries_len(window, part) as i64),
        (Aggregate::Count, Keep::Slices(_)) => {
            let counts = part.chunks_exact(window.slice_bytes()).map(|entry| word(&entry[8..]).max(0));
            Answer::Word(counts.fold(0, i64::wrapping_add))
        }
        _ if window.value == Type::Float => answer(summary::<f64>(window, part), aggregate, |aggregate, whole| {
            Answer::Float(match aggregate {
                Aggregate::Sum => whole.sum.total(),
                Aggregate::Min => whole.least,
                Aggregate::Max => whole.greatest,
                _ => whole.sum.mean(whole.count as u64),
            })
        }),
        _ => answer(summary::<i64>(window, part), aggregate, |aggregate, whole| match aggregate {
            Aggregate::Sum => i64::try_from(whole.sum).map_or(Answer::Overflow, Answer::Word),
            Aggregate::Min => Answer::Word(whole.least),
            Aggregate::Max => Answer::Word(whole.greatest),
            _ if window.value == Type::Int => Answer::Float(quotient(whole.sum, whole.count as u64)),
            _ => Answer::Word(crate::helpers::divide_half_even(whole.sum, whole.count.into()) as i64),
        }),
    }
}

/// Returns the answer of the synopses of the last `within` slices, or of the one of all values.
pub fn ask<'a>(
    window: &'a Window,
    bytes: &'a [u8],
    time: i64,
    within: i64,
    ask: Ask,
    argument: Argument<'_>,
) -> Found<'a> {
    let start = window.slices().map_or(0, |_| recent(window, bytes, now(window, bytes, time), within));
    let parts: Vec<&[u8]> = entries(window, &bytes[start..]).map(|(_, known, _)| known).collect();
    synopsis::read(window.value, &parts, ask, argument)
}

/// Returns a variance or standard deviation.
fn spread(window: &Window, part: &[u8], aggregate: Aggregate) -> Answer {
    let mut whole = Moments::default();
    match window.keep {
        Keep::Moments(_) => {
            let slices = entries(window, part).filter_map(|(_, known, _)| Moments::read(known));
            slices.for_each(|moments| whole.merge(&moments));
        }
        _ => part.chunks_exact(8).for_each(|value| match window.value {
            Type::Float => whole.add(f64::read(value)),
            _ => whole.add_word(word(value)),
        }),
    }
    let of = match window.value {
        Type::Float => Of::Floats,
        Type::Decimal { scale, .. } => Of::Words { scale },
        _ => Of::Words { scale: 0 },
    };
    let found = match aggregate {
        Aggregate::Variance => whole.variance(of, Population::Sample),
        Aggregate::Pvariance => whole.variance(of, Population::Whole),
        Aggregate::Stddev => whole.deviation(of, Population::Sample),
        _ => whole.deviation(of, Population::Whole),
    };
    found.map_or(Answer::Null, Answer::Float)
}

/// Summarizes all values; none if there are none.
fn summary<N: Number>(window: &Window, part: &[u8]) -> Option<Summary<N>> {
    let mut whole = Summary::of_none();
    match window.keep {
        Keep::Slices(_) => part.chunks_exact(N::SLICE_BYTES).for_each(|entry| whole.add_entry(&entry[8..])),
        Keep::Last(_) => part.chunks_exact(8).for_each(|value| whole.add(N::read(value))),
        Keep::Distinct(_) => unreachable!("analysis refuses all else of distinct values"),
        Keep::Records(_) | Keep::Latest(_) => unreachable!("analysis refuses aggregates of records"),
        Keep::Moments(_) => unreachable!("analysis refuses all else of moments"),
        Keep::Synopsis(..) => unreachable!("analysis refuses aggregates of synopses"),
    }
    (whole.count > 0).then_some(whole)
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

#[cfg(test)]
mod tests;
