//! The functions that compiled code calls: text, conversions, and the rarer paths.
//!
//! Texts arrive as address and length; a text result is left in the context's scratch words. A helper
//! that can fail returns 0 for failure. All are `extern "C"` and must not unwind.

use crate::abi::{ColumnView, UndoEntry};
use crate::context::AccessContext;
use crate::groups::Groups;
use crate::math;
use crate::records::{self, Found, Given};
use crate::synopsis::{ASKS, Argument};
use crate::texts;
use crate::window::{self, Answer, Item};
use std::borrow::Cow;
use tidemill_model::{Type, format_decimal};
use tidemill_plan::{DatePart, Periods, Window, Zone};
use tidemill_state::blob::Edit;

/// # Safety
/// The bytes are readable (`len` of them) while the result lives.
unsafe fn bytes<'a>(start: *const u8, len: u64) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(start, len as usize) }
}

/// # Safety
/// As [`bytes`], and they are UTF-8: compiled code passes only values of type `Str` here, whose
/// bytes came from Arrow `Utf8` columns, literals, or other texts.
unsafe fn text<'a>(start: *const u8, len: u64) -> &'a str {
    // SAFETY: by the caller.
    unsafe { std::str::from_utf8_unchecked(bytes(start, len)) }
}

/// Returns a value to add to a window.
///
/// # Safety
/// Of a window of texts, `value` and `len` are as of [`bytes`].
unsafe fn item<'a>(spec: &Window, value: u64, len: u64) -> Item<'a> {
    match spec.value {
        Type::Float => Item::Float(f64::from_bits(value)),
        // SAFETY: by the caller.
        Type::Str | Type::Bytes => Item::Text(unsafe { bytes(value as *const u8, len) }),
        _ => Item::Word(value as i64),
    }
}

fn leave(context: &mut AccessContext, parts: &[&[u8]]) {
    let (start, len) = context.arena().keep(parts);
    context.scratch = [start as u64, len as u64];
}

/// Leaves a part of a text that lives on: 0 if there is none.
fn leave_part(context: &mut AccessContext, part: Option<&str>) -> i64 {
    if let Some(part) = part {
        context.scratch = [part.as_ptr() as u64, part.len() as u64];
    }
    i64::from(part.is_some())
}

/// Leaves a text that was made: 0 if it could not be.
fn leave_made(context: &mut AccessContext, made: Option<String>) -> i64 {
    if let Some(made) = &made {
        leave(context, &[made.as_bytes()]);
    }
    i64::from(made.is_some())
}

/// Leaves a value in the scratch words: 1 if it is null.
fn leave_found(context: &mut AccessContext, found: Found<'_>) -> i64 {
    match found {
        Found::Null => context.scratch = [std::ptr::NonNull::<u8>::dangling().as_ptr() as u64, 0],
        Found::Word(word) => context.scratch = [word, 0],
        Found::Text(text) => leave(context, &[text]),
    }
    i64::from(matches!(found, Found::Null))
}

macro_rules! helpers {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block)*) => {
        $($(#[$doc])*
        /// # Safety
        /// Called by compiled code alone, with its own context and texts that live during the call.
        pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: compiled code keeps the promise above.
            #[allow(clippy::undocumented_unsafe_blocks, unused_unsafe)]
            unsafe { $body }
        })*
    };
}

helpers! {
    /// Leaves the texts `left + right` in the scratch words.
    fn concat(context: *mut AccessContext, l: *const u8, ll: u64, r: *const u8, rl: u64) {
        leave(&mut *context, &[bytes(l, ll), bytes(r, rl)])
    }
    /// Leaves the text in lower case, as by `str::to_lowercase`, in the scratch words.
    fn lower(context: *mut AccessContext, s: *const u8, len: u64) {
        leave(&mut *context, &[text(s, len).to_lowercase().as_bytes()])
    }
    /// Leaves the text in upper case, as by `str::to_uppercase`, in the scratch words.
    fn upper(context: *mut AccessContext, s: *const u8, len: u64) {
        leave(&mut *context, &[text(s, len).to_uppercase().as_bytes()])
    }
    /// Leaves the text without white space at its ends, as by Python's `str.strip`, in the scratch words: a part of the
    /// same text.
    fn strip(context: *mut AccessContext, s: *const u8, len: u64) {
        let trimmed = text(s, len).trim_matches(texts::is_space);
        (*context).scratch = [trimmed.as_ptr() as u64, trimmed.len() as u64];
    }
    /// Characters of a text.
    fn characters(s: *const u8, len: u64) -> i64 {
        text(s, len).chars().count() as i64
    }
    /// Returns 1 if two texts are equal, else 0.
    fn text_equal(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        (bytes(l, ll) == bytes(r, rl)) as i64
    }
    /// Compares two texts: −1, 0 or 1.
    fn text_compare(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        bytes(l, ll).cmp(bytes(r, rl)) as i64
    }
    /// Returns 1 if the left text starts with the right one, else 0.
    fn starts_with(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        bytes(l, ll).starts_with(bytes(r, rl)) as i64
    }
    /// Returns 1 if the left text ends with the right one, else 0.
    fn ends_with(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        bytes(l, ll).ends_with(bytes(r, rl)) as i64
    }
    /// Returns 1 if the left text contains the right one, else 0.
    fn contains(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        memchr::memmem::find(bytes(l, ll), bytes(r, rl)).is_some() as i64
    }
    /// Returns the place of a part in a text, in characters; −1 if it is not there.
    fn find(s: *const u8, len: u64, p: *const u8, pl: u64, start: i64, end: i64) -> i64 {
        texts::find(text(s, len), text(p, pl), start, end)
    }
    /// The number of parts between separators.
    fn parts(s: *const u8, len: u64, p: *const u8, pl: u64, most: i64) -> i64 {
        texts::parts(text(s, len), text(p, pl), most).count() as i64
    }
    /// The number of parts between white space.
    fn spaced_parts(s: *const u8, len: u64, most: i64) -> i64 {
        texts::spaced_parts(text(s, len), most).count() as i64
    }
    /// A part of the same text.
    fn slice(context: *mut AccessContext, s: *const u8, len: u64, start: i64, stop: i64) -> i64 {
        leave_part(&mut *context, Some(texts::slice(text(s, len), start, stop)))
    }
    /// A character.
    fn at(context: *mut AccessContext, s: *const u8, len: u64, place: i64) -> i64 {
        leave_part(&mut *context, texts::at(text(s, len), place))
    }
    /// A part between separators.
    fn part(context: *mut AccessContext, s: *const u8, len: u64, p: *const u8, pl: u64, most: i64, place: i64) -> i64 {
        let parts = || texts::parts(text(s, len), text(p, pl), most);
        leave_part(&mut *context, texts::part_at(parts, place))
    }
    /// A part between white space.
    fn spaced_part(context: *mut AccessContext, s: *const u8, len: u64, most: i64, place: i64) -> i64 {
        leave_part(&mut *context, texts::part_at(|| texts::spaced_parts(text(s, len), most), place))
    }
    /// The text with a part replaced.
    fn replace(
        context: *mut AccessContext, s: *const u8, len: u64, o: *const u8, ol: u64, n: *const u8, nl: u64, count: i64
    ) -> i64 {
        leave_made(&mut *context, texts::replace(text(s, len), text(o, ol), text(n, nl), count))
    }
    /// The text with zeros.
    fn zfill(context: *mut AccessContext, s: *const u8, len: u64, width: i64) -> i64 {
        leave_made(&mut *context, texts::zfill(text(s, len), width))
    }
    /// Parses an int.
    fn text_to_int(context: *mut AccessContext, s: *const u8, len: u64) -> i64 {
        match parse_int(text(s, len)) {
            Some(value) => { (*context).scratch[0] = value as u64; 1 }
            None => 0,
        }
    }
    /// Parses a float.
    fn text_to_float(context: *mut AccessContext, s: *const u8, len: u64) -> i64 {
        match number_text(text(s, len)).and_then(|s| s.parse::<f64>().ok()) {
            Some(value) => { (*context).scratch[0] = value.to_bits(); 1 }
            None => 0,
        }
    }
    /// A function of one or two floats.
    fn math(context: *mut AccessContext, op: u64, l: f64, r: f64) -> i64 {
        match math::value(math::MATH[op as usize], l, r) {
            Some(value) => { (*context).scratch[0] = value.to_bits(); 1 }
            None => 0,
        }
    }
    /// Digits of an int.
    fn int_to_text(context: *mut AccessContext, value: i64) {
        leave(&mut *context, &[value.to_string().as_bytes()])
    }
    /// Leaves the text of a decimal in the scratch words.
    fn decimal_to_text(context: *mut AccessContext, value: i64, scale: u64) {
        leave(&mut *context, &[format_decimal(value, scale as u8).as_bytes()])
    }
    /// Returns left × 10^shift / right, rounded half to even; right is not 0.
    fn decimal_divide(context: *mut AccessContext, l: i64, r: i64, shift: u64) -> i64 {
        match i64::try_from(divide_half_even(l as i128 * 10i128.pow(shift as u32), r as i128)) {
            Ok(value) => { (*context).scratch[0] = value as u64; 1 }
            Err(_) => 0,
        }
    }
    /// Returns the start of the period that holds a time.
    fn period_start(periods: *const Periods, time: i64) -> i64 {
        (*periods).start(time)
    }
    /// Returns the end of the period that holds a time; 0 if there is none.
    fn period_end(context: *mut AccessContext, periods: *const Periods, time: i64) -> i64 {
        match (*periods).end(time) {
            Some(end) => { (*context).scratch[0] = end as u64; 1 }
            None => 0,
        }
    }
    /// A part of a date in a zone.
    fn date_part(zone: *const Zone, part: u64, time: i64) -> i64 {
        (*zone).part(DatePart::ALL[part as usize], time)
    }
    /// Returns value / 10^by, rounded half to even.
    fn scale_round(value: i64, by: u64) -> i64 {
        divide_half_even(value as i128, 10i128.pow(by as u32)) as i64
    }
    /// Returns the quotient of Python's `//` for floats; right is not 0.
    fn float_floor_divide(l: f64, r: f64) -> f64 {
        float_divmod(l, r).0
    }
    /// Returns the remainder of Python's `%` for floats; right is not 0.
    fn float_modulo(l: f64, r: f64) -> f64 {
        float_divmod(l, r).1
    }
    /// Sets a text cell.
    fn set_text(context: *mut AccessContext, table: u64, cell: u64, s: *const u8, len: u64) {
        (*context).set_text(table as u32, cell, &[bytes(s, len)])
    }
    /// Leaves a window with one more value in the scratch words, as bytes.
    fn window_add(
        context: *mut AccessContext, spec: *const Window, w: *const u8, wl: u64, time: i64, value: u64, len: u64
    ) {
        let spec = &*spec;
        let (window, mut tail) = (bytes(w, wl), (*context).take_buffer());
        let edit = window::add(spec, window, time, item(spec, value, len), &mut tail);
        leave(&mut *context, &edit.pieces(window, &tail));
        (*context).return_buffer(tail);
    }
    /// Returns the row of the group whose key was left there.
    fn find_group(groups: *mut Groups) -> u64 {
        (*groups).find()
    }
    /// Adds a value to the window of a partial row: to the newest entry or, where the value is not of its slice, to the whole.
    fn window_add_apart(
        context: *mut AccessContext, spec: *const Window, table: u64, cell: u64, newest: *mut u8, time: i64, value: u64
    ) {
        let spec = &*spec;
        let slices = spec.slices().expect("only windows of slices have an entry apart");
        let entry = std::slice::from_raw_parts_mut(newest, spec.slice_bytes());
        let item = item(spec, value, 0);
        let is_first = window::word(&entry[8..]) == 0 && (cell as *const u64).read() == 0;
        if !(is_first && window::begin_apart(slices, entry, time, item)) {
            (*context).edit_text(table as u32, cell, true, |bytes, tail| {
                tail.extend_from_slice(&window::add_apart(spec, bytes, entry, time, item));
                Edit { start: bytes.len(), gap: bytes.len()..bytes.len() }
            });
            (*context).commit();
        }
        let limit = newest.add(spec.slice_bytes()).cast::<u64>();
        limit.write(limit.read().max(window::limit(slices, time)));
    }
    /// Adds a float to the newest entry of the window of a partial row: 1 if it is all there.
    fn window_add_float(newest: *mut u8, value: u64) -> i64 {
        let entry = std::slice::from_raw_parts_mut(newest, window::FLOAT_SLICE_BYTES);
        window::add_float(entry, f64::from_bits(value)) as i64
    }
    /// Adds a value to the window in a cell; `last`: nothing after it can abort.
    fn window_add_to(
        context: *mut AccessContext, spec: *const Window, table: u64, cell: u64, time: i64, value: u64, len: u64, last: u64
    ) {
        let spec = &*spec;
        let item = item(spec, value, len);
        if (*context).text_here(cell, last != 0).is_some_and(|window| window::add_here(spec, window, time, item)) {
            return;
        }
        (*context).edit_text(table as u32, cell, last != 0, |window, tail| window::add(spec, window, time, item, tail));
    }
    /// Puts an aggregate of a window in the scratch word: returns 0 if it does not fit, 1 if it is there, 2 if it is
    /// none.
    fn window_read(
        context: *mut AccessContext, spec: *const Window, w: *const u8, wl: u64, time: i64, within: i64, aggregate: u64
    ) -> i64 {
        let (word, found) = match window::read(&*spec, bytes(w, wl), time, within, window::AGGREGATES[aggregate as usize]) {
            Answer::Word(word) => (word as u64, 1),
            Answer::Float(float) => (float.to_bits(), 1),
            Answer::Null => (0, 2),
            Answer::Overflow => (0, 0),
        };
        (*context).scratch[0] = word;
        found
    }
    /// Leaves the answer of a synopsis in the scratch words; returns 1 if it is null.
    fn synopsis_read(
        context: *mut AccessContext, spec: *const Window, w: *const u8, wl: u64, time: i64, within: i64, ask: u64, value: u64, len: u64
    ) -> i64 {
        let text = if len == 0 { &[] } else { bytes(value as *const u8, len) };
        let argument = Argument { word: value, text };
        let said = window::ask(&*spec, bytes(w, wl), time, within, ASKS[ask as usize], argument);
        leave_found(&mut *context, said)
    }
    /// Returns the place of the next record of a window.
    fn window_next(spec: *const Window, w: *const u8, wl: u64, time: i64, within: i64, after: i64) -> i64 {
        window::next(&*spec, bytes(w, wl), time, within, after)
    }
    /// Puts a value of a record in the scratch words: returns 1 if it is null.
    fn window_field(context: *mut AccessContext, w: *const u8, wl: u64, at: i64, of: u64, field: u64, kind: i64) -> i64 {
        let record = window::record(bytes(w, wl), at);
        leave_found(&mut *context, records::field(record, of as usize, field as usize, kind))
    }
    /// Leaves values as a record in the scratch words.
    fn pack(context: *mut AccessContext, given: *const Given, count: u64) {
        let mut record = (*context).take_buffer();
        records::pack(std::slice::from_raw_parts(given, count as usize), &mut record);
        leave(&mut *context, &[&record]);
        (*context).return_buffer(record);
    }
    /// Returns the bytes of the texts of a column, in Arrow form, from `first` to before `end`.
    fn text_column_bytes(column: *const ColumnView, first: u64, end: u64) -> i64 {
        (*column).text_bytes(first..end)
    }
    /// Drops texts that were made for an event that failed.
    fn release_texts(context: *mut AccessContext, kept: u64) {
        (*context).arena().release(kept)
    }
    /// Makes room for one more emission.
    fn emit(context: *mut AccessContext, number: u64, owner: u64) -> u64 {
        (*context).emit(number as usize, owner as u32)
    }
    /// Commits the running transaction.
    fn commit(context: *mut AccessContext) {
        (*context).commit()
    }
    /// Commits the running transaction, which can still be undone.
    fn commit_undoable(context: *mut AccessContext, top: *mut UndoEntry) {
        (*context).commit_undoable(top)
    }
    /// Aborts the running transaction.
    fn roll_back(context: *mut AccessContext, top: *mut UndoEntry) {
        (*context).roll_back(top)
    }
    /// Makes more room in the undo log.
    fn grow_undo(context: *mut AccessContext, top: *mut UndoEntry) -> *mut UndoEntry {
        (*context).grow_undo(top)
    }
}

fn parse_int(text: &str) -> Option<i64> {
    number_text(text)?.parse().ok()
}

/// Returns the text of a number without what Python allows in it: white space around it, and single underscores between
/// digits.
fn number_text(text: &str) -> Option<Cow<'_, str>> {
    let text = text.trim();
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let stands_well = |at: usize| bytes[at] != b'_' || (at > 0 && is_digit(at - 1) && is_digit(at + 1));
    (0..bytes.len()).all(stands_well).then(|| Cow::Owned(text.replace('_', "")))
}

/// Returns the quotient rounded half to even.
pub(crate) fn divide_half_even(left: i128, right: i128) -> i128 {
    let (quotient, remainder) = (left.div_euclid(right), left.rem_euclid(right));
    // `remainder` is in 0..|right|, so `left / right` lies `remainder / |right|` above the quotient
    // when right > 0, and below it when right < 0.
    let twice = remainder * 2;
    let magnitude = right.abs();
    let away = twice > magnitude || (twice == magnitude && quotient % 2 != 0);
    quotient + if away { right.signum() } else { 0 }
}

/// Returns quotient and remainder as CPython's `float_divmod` computes them.
fn float_divmod(l: f64, r: f64) -> (f64, f64) {
    let mut modulo = l % r;
    let mut quotient = (l - modulo) / r;
    if modulo != 0.0 {
        if (r < 0.0) != (modulo < 0.0) {
            modulo += r;
            quotient -= 1.0;
        }
    } else {
        modulo = 0f64.copysign(r);
    }
    if quotient != 0.0 {
        let floor = quotient.floor();
        quotient = if quotient - floor > 0.5 { floor + 1.0 } else { floor };
    } else {
        quotient = 0f64.copysign(l / r);
    }
    (quotient, modulo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_is_the_nearest_integer_or_the_even_one_of_two() {
        for left in -60..=60_i128 {
            for right in (-12..=12).filter(|right| *right != 0) {
                let quotient = divide_half_even(left, right);
                let off = 2 * (left - quotient * right).abs();
                assert!(off <= i128::abs(right), "{left} / {right} is not {quotient}");
                assert!(off < i128::abs(right) || quotient % 2 == 0, "{left} / {right} is halfway, and {quotient} odd");
            }
        }
    }

    /// Divisions give what Python's `divmod` gives, signs of zeros included.
    #[test]
    fn floats_are_divided_as_python_divides_them() {
        const CASES: [((f64, f64), (f64, f64)); 14] = [
            ((7.0, 3.0), (2.0, 1.0)),
            ((-7.0, 3.0), (-3.0, 2.0)),
            ((7.0, -3.0), (-3.0, -2.0)),
            ((-7.0, -3.0), (2.0, -1.0)),
            ((1.0, 0.1), (9.0, 0.09999999999999995)),
            ((0.0, -3.0), (-0.0, -0.0)),
            ((-0.0, 3.0), (-0.0, 0.0)),
            ((-1e-20, 3.0), (-1.0, 3.0)),
            ((1e300, 1e-10), (f64::INFINITY, 5.476641984772742e-11)),
            ((6.0, 3.0), (2.0, 0.0)),
            ((-6.0, 3.0), (-2.0, 0.0)),
            ((5.5, -0.25), (-22.0, -0.0)),
            ((9007199254740994.0, 3.0), (3002399751580330.0, 1.0)),
            ((0.3, 0.1), (2.0, 0.09999999999999998)),
        ];
        for ((left, right), (quotient, modulo)) in CASES {
            let found = float_divmod(left, right);
            assert_eq!(
                (found.0.to_bits(), found.1.to_bits()),
                (quotient.to_bits(), modulo.to_bits()),
                "{left} {right}"
            );
        }
    }
}
