//! Windows as lists of entries, decoded and encoded at every step. What they mean, and the bytes, are said in
//! `tidemill_plan`'s `window`. Sums of floats are in `exact`.

use crate::exact::{Exact, quotient};
use crate::moments::{self, Moments};
use std::cmp::Ordering;
use tidemill_model::{Type, Value};
use tidemill_plan::{Aggregate, BANDS, HOME_BAND, Keep, Window};

/// An entry: the values added in one slice (`Slices`), or one value (`Distinct`, and `Last`, where all slices are 0).
#[derive(Clone)]
enum Entry {
    Slice { slice: i64, count: i64, sum: Sum, least: Value, greatest: Value },
    Single { slice: i64, value: Value },
}

#[derive(Clone)]
enum Sum {
    Words(i128),
    Floats(Exact),
}

impl Sum {
    fn plus(&self, other: &Sum) -> Sum {
        match (self, other) {
            (Sum::Words(a), Sum::Words(b)) => Sum::Words(a.wrapping_add(*b)),
            (Sum::Floats(a), Sum::Floats(b)) => Sum::Floats(a.plus(b)),
            _ => panic!("sums of one window are of one kind"),
        }
    }
}

impl Entry {
    fn slice(&self) -> i64 {
        match self {
            Entry::Slice { slice, .. } | Entry::Single { slice, .. } => *slice,
        }
    }
}

/// Returns the bytes of a window with one more value.
pub fn add(window: &Window, bytes: &[u8], time: i64, value: Value) -> Vec<u8> {
    match (window.keep, &value) {
        (Keep::Records(slices), Value::Bytes(record)) => return crate::records::add(slices, bytes, time, record),
        (Keep::Latest(slices), Value::Bytes(record)) => return crate::records::replace(slices, bytes, time, record),
        _ => {}
    }
    if let Keep::Moments(slices) = window.keep {
        return moments::add(slices, bytes, time, &value);
    }
    if let Keep::Synopsis(of, slices) = window.keep {
        return crate::synopsis::add(window, (of, slices), bytes, time, &value);
    }
    let mut entries = decode(window, bytes);
    let now = now(window, &entries, time);
    match window.keep {
        Keep::Records(_) | Keep::Latest(_) | Keep::Moments(_) | Keep::Synopsis(..) => unreachable!("done above"),
        Keep::Slices(slices) => {
            entries.retain(|entry| is_within(entry, now, slices.count));
            let new = alone(now, value);
            let last = entries.pop_if(|last| last.slice() == now);
            entries.push(match last {
                Some(last) => merged(&last, &new),
                None => new,
            });
        }
        Keep::Distinct(slices) => {
            entries.retain(|entry| is_within(entry, now, slices.count));
            let known = entries.iter().any(|entry| entry.slice() == now && single(entry) == &value);
            if !known {
                // The newest slice in runs, those before it in order; of words alone.
                let newest = entries.iter().filter(|entry| entry.slice() == now).count();
                let last = entries.last().map(Entry::slice);
                entries.retain(|entry| single(entry) != &value);
                let sorted = match last {
                    _ if window.value.is_bytes() => 0,
                    Some(last) if last < now => entries.iter().filter(|entry| entry.slice() == last).count(),
                    _ => (1 << newest.trailing_ones()) - 1,
                };
                let end = entries.len();
                if last == Some(now) || window.value.is_bytes() {
                    entries.push(Entry::Single { slice: now, value });
                    entries[end - sorted..].sort_by_key(|entry| single(entry).word());
                } else {
                    entries[end - sorted..].sort_by_key(|entry| single(entry).word());
                    entries.push(Entry::Single { slice: now, value });
                }
            }
        }
        Keep::Last(count) => {
            entries.push(Entry::Single { slice: 0, value });
            if entries.len() as i64 > count {
                entries.remove(0);
            }
        }
    }
    encode(window, &entries)
}

/// Returns an aggregate; none where a sum does not fit 64 bits.
pub fn read(window: &Window, bytes: &[u8], time: i64, within: i64, aggregate: Aggregate) -> Option<Value> {
    if let Keep::Moments(slices) = window.keep {
        return Some(spread(&moments::within(slices, bytes, time, within), window, aggregate));
    }
    let mut entries = decode(window, bytes);
    let now = now(window, &entries, time);
    match window.keep {
        Keep::Records(_) | Keep::Latest(_) => unreachable!("analysis refuses aggregates of records"),
        Keep::Moments(_) => unreachable!("answered above"),
        Keep::Synopsis(..) => unreachable!("analysis refuses aggregates of synopses"),
        Keep::Slices(_) | Keep::Distinct(_) => entries.retain(|entry| is_within(entry, now, within)),
        Keep::Last(_) => {
            let surplus = (entries.len() as i64 - within).max(0);
            entries.drain(..surplus as usize);
        }
    }
    if aggregate == Aggregate::Distinct {
        let mut values: Vec<&Value> = Vec::new();
        for value in entries.iter().map(single) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        return Some(Value::Int(values.len() as i64));
    }
    if window.value.is_bytes() {
        assert_eq!(aggregate, Aggregate::Count, "analysis refuses all else of texts");
        return Some(Value::Int(entries.len() as i64));
    }
    if aggregate.is_spread() {
        let values = entries.iter().map(|entry| Moments::of(single(entry)));
        return Some(spread(&values.fold(Moments::default(), |a, b| a.plus(&b)), window, aggregate));
    }
    let whole = entries.iter().map(as_slice).reduce(|a, b| merged(&a, &b));
    let Some(Entry::Slice { count, sum, least, greatest, .. }) = whole else {
        return Some(match (aggregate, window.value) {
            (Aggregate::Count, _) => Value::Int(0),
            (Aggregate::Sum, Type::Float) => Value::Float(0.0),
            (Aggregate::Sum, ty) => Value::from_word(ty, 0),
            _ => Value::Null,
        });
    };
    Some(match (aggregate, sum) {
        (Aggregate::Count, _) => Value::Int(count),
        (Aggregate::Sum, Sum::Floats(sum)) => Value::Float(sum.total()),
        (Aggregate::Sum, Sum::Words(sum)) => Value::from_word(window.value, i64::try_from(sum).ok()?),
        (Aggregate::Mean, Sum::Floats(sum)) => Value::Float(sum.mean(count)),
        (Aggregate::Mean, Sum::Words(sum)) if window.value == Type::Int => Value::Float(quotient(sum, count)),
        (Aggregate::Mean, Sum::Words(sum)) => Value::Decimal(half_even(sum, count.into())),
        (Aggregate::Min, _) => least,
        (Aggregate::Max, _) => greatest,
        (_, _) => unreachable!("answered above"),
    })
}

fn spread(moments: &Moments, window: &Window, aggregate: Aggregate) -> Value {
    moments.read(aggregate, window.value).map_or(Value::Null, Value::Float)
}

/// Most values of a window that are shown one by one.
const SHOWN_MAX: usize = 8;

/// Returns a text for users that says what a window keeps. `show` is the text of one of its values.
pub fn text(window: &Window, bytes: &[u8], show: &dyn Fn(&Value) -> String) -> String {
    if let Keep::Moments(slices) = window.keep {
        let moments = moments::within(slices, bytes, i64::MIN, slices.count);
        let deviation = spread(&moments, window, Aggregate::Pstddev);
        return format!("moments of values (population deviation {deviation:?})");
    }
    if let Keep::Synopsis(..) = window.keep {
        return crate::synopsis::text(window, bytes);
    }
    let entries = decode(window, bytes);
    if window.is_of_records() {
        return format!("{} record{}", entries.len(), if entries.len() == 1 { "" } else { "s" });
    }
    let Some(first) = entries.first() else { return "an empty window".into() };
    let values = |count: i64| format!("a window of {count} value{}", if count == 1 { "" } else { "s" });
    if let Entry::Single { .. } = first {
        let shown: Vec<String> = entries.iter().rev().take(SHOWN_MAX).map(|entry| show(single(entry))).collect();
        let more = if entries.len() > SHOWN_MAX { ", …" } else { "" };
        let is_by_value = matches!(window.keep, Keep::Distinct(_)) && !window.value.is_bytes();
        let order = if is_by_value { "of the newest slice first" } else { "newest first" };
        return format!("{} ({order}: {}{more})", values(entries.len() as i64), shown.join(", "));
    }
    let whole = entries.into_iter().reduce(|a, b| merged(&a, &b));
    let Some(Entry::Slice { count, sum, least, greatest, .. }) = whole else { unreachable!("slices alone") };
    let sum = match sum {
        Sum::Floats(sum) => show(&Value::Float(sum.total())),
        Sum::Words(sum) => i64::try_from(sum)
            .map_or_else(|_| "beyond 64 bits".into(), |sum| show(&Value::from_word(window.value, sum))),
    };
    format!("{} (sum {sum}, least {}, greatest {})", values(count), show(&least), show(&greatest))
}

/// Returns the slice of now: the time's, or the newest entry's where that is later.
fn now(window: &Window, entries: &[Entry], time: i64) -> i64 {
    let Some(slices) = window.slices() else { return 0 };
    let slice = time.div_euclid(slices.slide);
    entries.iter().map(Entry::slice).fold(slice, i64::max)
}

fn is_within(entry: &Entry, now: i64, slices: i64) -> bool {
    let slice = i128::from(entry.slice());
    slice > i128::from(now) - i128::from(slices) && slice <= i128::from(now)
}

fn single(entry: &Entry) -> &Value {
    match entry {
        Entry::Single { value, .. } => value,
        Entry::Slice { .. } => panic!("a slice where a value belongs"),
    }
}

fn as_slice(entry: &Entry) -> Entry {
    match entry {
        Entry::Single { slice, value } => alone(*slice, value.clone()),
        slice => slice.clone(),
    }
}

/// Makes a slice with one value in it.
fn alone(slice: i64, value: Value) -> Entry {
    let (value, sum) = match value {
        Value::Float(x) => {
            let x = plain(x);
            (Value::Float(x), Sum::Floats(Exact::of(x)))
        }
        other => {
            let sum = Sum::Words(other.word().expect("a word or a float").into());
            (other, sum)
        }
    };
    Entry::Slice { slice, count: 1, sum, least: value.clone(), greatest: value }
}

/// Merges two slices into one, the older first.
fn merged(older: &Entry, newer: &Entry) -> Entry {
    let (
        Entry::Slice { count: a, sum: s, least: l, greatest: g, .. },
        Entry::Slice { slice, count, sum, least, greatest },
    ) = (older, newer)
    else {
        panic!("only slices are merged")
    };
    Entry::Slice {
        slice: *slice,
        count: a + count,
        sum: s.plus(sum),
        least: if replaces(l, least, Ordering::Less) { least.clone() } else { l.clone() },
        greatest: if replaces(g, greatest, Ordering::Greater) { greatest.clone() } else { g.clone() },
    }
}

/// Returns whether the least or greatest so far is replaced by a new one: if that is less or greater, −0 being less
/// than +0, or the first NaN.
fn replaces(old: &Value, new: &Value, wanted: Ordering) -> bool {
    match (old, new) {
        (Value::Float(old), Value::Float(new)) => {
            let order =
                || new.partial_cmp(old).map(|order| order.then(old.is_sign_negative().cmp(&new.is_sign_negative())));
            !old.is_nan() && (new.is_nan() || order() == Some(wanted))
        }
        (old, new) => new.word().cmp(&old.word()) == wanted,
    }
}

/// Returns the one NaN, or the number.
fn plain(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { x }
}

/// Returns a quotient rounded half to even; the divisor is positive.
fn half_even(left: i128, right: i128) -> i64 {
    let (below, rest) = (left.div_euclid(right), left.rem_euclid(right));
    let up = match (2 * rest).cmp(&right) {
        Ordering::Less => false,
        Ordering::Equal => below % 2 != 0,
        Ordering::Greater => true,
    };
    i64::try_from(below + i128::from(up)).expect("a mean is not beyond its values")
}

fn decode(window: &Window, bytes: &[u8]) -> Vec<Entry> {
    let mut rest = bytes;
    let mut entries = Vec::new();
    // Sums of the entries of other bands, for the slice that follows them.
    let mut exact = Exact::default();
    while !rest.is_empty() {
        let slice = if window.slices().is_some() { take_word(&mut rest) } else { 0 };
        entries.push(match window.keep {
            Keep::Slices(_) => {
                let count = take_word(&mut rest);
                let sum = match window.value {
                    Type::Float if count < 0 => {
                        exact.set_band(-1 - count, take(&mut rest, 24));
                        take(&mut rest, 16);
                        continue;
                    }
                    Type::Float => {
                        exact.set_band(HOME_BAND as i64, take(&mut rest, 24));
                        Sum::Floats(std::mem::take(&mut exact))
                    }
                    _ => Sum::Words(i128::from_le_bytes(take(&mut rest, 16).try_into().expect("16 bytes"))),
                };
                let [least, greatest] = [(); 2].map(|_| take_value(window.value, &mut rest));
                Entry::Slice { slice, count, sum, least, greatest }
            }
            _ => Entry::Single { slice, value: take_value(window.value, &mut rest) },
        });
    }
    entries
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn take_word(bytes: &mut &[u8]) -> i64 {
    i64::from_le_bytes(take(bytes, 8).try_into().expect("8 bytes"))
}

fn take_value(ty: Type, bytes: &mut &[u8]) -> Value {
    let word = take_word(bytes);
    match ty {
        Type::Float => Value::Float(f64::from_bits(word as u64)),
        Type::Str => Value::Str(String::from_utf8(take(bytes, word as usize).to_vec()).expect("a text")),
        Type::Bytes => Value::Bytes(take(bytes, word as usize).to_vec()),
        ty => Value::from_word(ty, word),
    }
}

fn encode(window: &Window, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let slice = entry.slice().to_le_bytes();
        match entry {
            Entry::Single { value, .. } => {
                if window.slices().is_some() {
                    bytes.extend(slice);
                }
                put_value(&mut bytes, value);
            }
            Entry::Slice { count, sum, least, greatest, .. } => {
                if let Sum::Floats(sum) = sum {
                    put_other_bands(&mut bytes, slice, sum);
                }
                bytes.extend(slice);
                bytes.extend(count.to_le_bytes());
                match sum {
                    Sum::Words(sum) => bytes.extend(sum.to_le_bytes()),
                    Sum::Floats(sum) => bytes.extend(sum.band(HOME_BAND as i64)),
                }
                put_value(&mut bytes, least);
                put_value(&mut bytes, greatest);
            }
        }
    }
    bytes
}

fn put_other_bands(bytes: &mut Vec<u8>, slice: [u8; 8], sum: &Exact) {
    for band in (0..BANDS as i64).filter(|&band| band != HOME_BAND as i64) {
        let units = sum.band(band);
        if units != [0; 24] {
            bytes.extend(slice);
            bytes.extend((-1 - band).to_le_bytes());
            bytes.extend(units);
            bytes.extend([0; 16]);
        }
    }
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Float(x) => bytes.extend(plain(*x).to_le_bytes()),
        Value::Str(text) => put_bytes(bytes, text.as_bytes()),
        Value::Bytes(more) => put_bytes(bytes, more),
        word => bytes.extend(word.word().expect("a word").to_le_bytes()),
    }
}

fn put_bytes(bytes: &mut Vec<u8>, more: &[u8]) {
    bytes.extend((more.len() as i64).to_le_bytes());
    bytes.extend(more);
}
