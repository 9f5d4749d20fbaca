//! What compiled code calls: text, conversions, and the rarer paths.
//!
//! Texts arrive as address and length; a text result is left in the context's scratch words. A helper
//! that can fail returns 0 for failure. All are `extern "C"` and must not unwind.

use crate::abi::{ColumnView, UndoEntry};
use crate::context::AccessContext;
use crate::groups::Groups;
use crate::records::{self, Found, Given};
use crate::synopsis::{ASKS, Argument};
use crate::window::{self, Answer, Item};
use tidemill_model::{Type, format_decimal};
use tidemill_plan::{Periods, Window};
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

/// A value to add to a window.
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
    /// left + right
    fn concat(context: *mut AccessContext, l: *const u8, ll: u64, r: *const u8, rl: u64) {
        leave(&mut *context, &[bytes(l, ll), bytes(r, rl)])
    }
    /// `str::to_lowercase`
    fn lower(context: *mut AccessContext, s: *const u8, len: u64) {
        leave(&mut *context, &[text(s, len).to_lowercase().as_bytes()])
    }
    /// `str::to_uppercase`
    fn upper(context: *mut AccessContext, s: *const u8, len: u64) {
        leave(&mut *context, &[text(s, len).to_uppercase().as_bytes()])
    }
    /// `str::trim`: a part of the same text.
    fn strip(context: *mut AccessContext, s: *const u8, len: u64) {
        let trimmed = text(s, len).trim();
        (*context).scratch = [trimmed.as_ptr() as u64, trimmed.len() as u64];
    }
    /// Characters of a text.
    fn characters(s: *const u8, len: u64) -> i64 {
        text(s, len).chars().count() as i64
    }
    /// 1 if equal.
    fn text_equal(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        (bytes(l, ll) == bytes(r, rl)) as i64
    }
    /// −1, 0, 1
    fn text_compare(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        bytes(l, ll).cmp(bytes(r, rl)) as i64
    }
    /// 1 if it does.
    fn starts_with(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        bytes(l, ll).starts_with(bytes(r, rl)) as i64
    }
    /// 1 if it does.
    fn ends_with(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        bytes(l, ll).ends_with(bytes(r, rl)) as i64
    }
    /// 1 if it does.
    fn contains(l: *const u8, ll: u64, r: *const u8, rl: u64) -> i64 {
        memchr::memmem::find(bytes(l, ll), bytes(r, rl)).is_some() as i64
    }
    /// Parses an int.
    fn text_to_int(context: *mut AccessContext, s: *const u8, len: u64) -> i64 {
        match parse_int(bytes(s, len)) {
            Some(value) => { (*context).scratch[0] = value as u64; 1 }
            None => 0,
        }
    }
    /// Parses a float.
    fn text_to_float(context: *mut AccessContext, s: *const u8, len: u64) -> i64 {
        match std::str::from_utf8(bytes(s, len)).ok().and_then(|s| s.parse::<f64>().ok()) {
            Some(value) => { (*context).scratch[0] = value.to_bits(); 1 }
            None => 0,
        }
    }
    /// Digits of an int.
    fn int_to_text(context: *mut AccessContext, value: i64) {
        leave(&mut *context, &[value.to_string().as_bytes()])
    }
    /// Text of a decimal.
    fn decimal_to_text(context: *mut AccessContext, value: i64, scale: u64) {
        leave(&mut *context, &[format_decimal(value, scale as u8).as_bytes()])
    }
    /// left × 10^shift / right, half to even; right is not 0.
    fn decimal_divide(context: *mut AccessContext, l: i64, r: i64, shift: u64) -> i64 {
        match i64::try_from(divide_half_even(l as i128 * 10i128.pow(shift as u32), r as i128)) {
            Ok(value) => { (*context).scratch[0] = value as u64; 1 }
            Err(_) => 0,
        }
    }
    /// The start of the period that holds a time.
    fn period_start(periods: *const Periods, time: i64) -> i64 {
        (*periods).start(time)
    }
    /// The end of the period that holds a time; 0 if there is none.
    fn period_end(context: *mut AccessContext, periods: *const Periods, time: i64) -> i64 {
        match (*periods).end(time) {
            Some(end) => { (*context).scratch[0] = end as u64; 1 }
            None => 0,
        }
    }
    /// value / 10^by, half to even.
    fn scale_round(value: i64, by: u64) -> i64 {
        divide_half_even(value as i128, 10i128.pow(by as u32)) as i64
    }
    /// `//` of floats; right is not 0.
    fn float_floor_divide(l: f64, r: f64) -> f64 {
        float_divmod(l, r).0
    }
    /// `%` of floats; right is not 0.
    fn float_modulo(l: f64, r: f64) -> f64 {
        float_divmod(l, r).1
    }
    /// Sets a text cell.
    fn set_text(context: *mut AccessContext, table: u64, cell: u64, s: *const u8, len: u64) {
        (*context).set_text(table as u32, cell, &[bytes(s, len)])
    }
    /// A window with one more value, as bytes.
    fn window_add(
        context: *mut AccessContext, spec: *const Window, w: *const u8, wl: u64, time: i64, value: u64, len: u64
    ) {
        let spec = &*spec;
        let (window, mut tail) = (bytes(w, wl), (*context).take_buffer());
        let edit = window::add(spec, window, time, item(spec, value, len), &mut tail);
        leave(&mut *context, &edit.pieces(window, &tail));
        (*context).return_buffer(tail);
    }
    /// The row of the group whose key was left there.
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
    /// An aggregate of a window, in the scratch word: 0 if it does not fit, 1 if it is there, 2 if it is none.
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
    /// What a synopsis says, in the scratch words: 1 if it is null.
    fn synopsis_read(
        context: *mut AccessContext, spec: *const Window, w: *const u8, wl: u64, time: i64, within: i64, ask: u64, value: u64, len: u64
    ) -> i64 {
        let text = if len == 0 { &[] } else { bytes(value as *const u8, len) };
        let argument = Argument { word: value, text };
        let said = window::ask(&*spec, bytes(w, wl), time, within, ASKS[ask as usize], argument);
        leave_found(&mut *context, said)
    }
    /// Where the next record of a window begins.
    fn window_next(spec: *const Window, w: *const u8, wl: u64, time: i64, within: i64, after: i64) -> i64 {
        window::next(&*spec, bytes(w, wl), time, within, after)
    }
    /// A value of a record, in the scratch words: 1 if it is null.
    fn window_field(context: *mut AccessContext, w: *const u8, wl: u64, at: i64, of: u64, field: u64, kind: i64) -> i64 {
        let record = window::record(bytes(w, wl), at);
        leave_found(&mut *context, records::field(record, of as usize, field as usize, kind))
    }
    /// Values as a record.
    fn pack(context: *mut AccessContext, given: *const Given, count: u64) {
        let mut record = (*context).take_buffer();
        records::pack(std::slice::from_raw_parts(given, count as usize), &mut record);
        leave(&mut *context, &[&record]);
        (*context).return_buffer(record);
    }
    /// The bytes of the texts of a column, in Arrow form, from `first` to before `end`.
    fn text_column_bytes(column: *const ColumnView, first: u64, end: u64) -> i64 {
        (*column).text_bytes(first..end)
    }
    /// Drops texts that were made for an event that failed.
    fn release_texts(context: *mut AccessContext, kept: u64) {
        (*context).arena().release(kept)
    }
    /// Room for one more emission.
    fn emit(context: *mut AccessContext, number: u64, owner: u64) -> u64 {
        (*context).emit(number as usize, owner as u32)
    }
    /// The running transaction commits.
    fn commit(context: *mut AccessContext) {
        (*context).commit()
    }
    /// The running transaction commits, and can still be undone.
    fn commit_undoable(context: *mut AccessContext, top: *mut UndoEntry) {
        (*context).commit_undoable(top)
    }
    /// The running transaction aborts.
    fn roll_back(context: *mut AccessContext, top: *mut UndoEntry) {
        (*context).roll_back(top)
    }
    /// More room in the undo log.
    fn grow_undo(context: *mut AccessContext, top: *mut UndoEntry) -> *mut UndoEntry {
        (*context).grow_undo(top)
    }
}

fn parse_int(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Quotient rounded half to even.
pub(crate) fn divide_half_even(left: i128, right: i128) -> i128 {
    let (quotient, remainder) = (left.div_euclid(right), left.rem_euclid(right));
    // `remainder` is in 0..|right|, so `left / right` lies `remainder / |right|` above the quotient
    // when right > 0, and below it when right < 0.
    let twice = remainder * 2;
    let magnitude = right.abs();
    let away = twice > magnitude || (twice == magnitude && quotient % 2 != 0);
    quotient + if away { right.signum() } else { 0 }
}

/// CPython's `float_divmod`.
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

    /// What Python's `divmod` gives, signs of zeros included.
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
