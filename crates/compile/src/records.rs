//! Records of windows, on their bytes. What the bytes mean is said in `tidemill_plan`'s `window`.
//!
//! Nothing here trusts the bytes: a value that they do not hold is 0 or an empty text.

use tidemill_plan::record_nulls;

/// The type as which a value of a record is read.
pub const WORD: i64 = 0;
pub const STR: i64 = 1;
pub const BYTES: i64 = 2;

/// The marks in place of the length of a text: for a word, and for a float.
pub const NO_TEXT: i64 = -1;
pub const NO_TEXT_BUT_FLOAT: i64 = -2;

/// A value for a record, as compiled code writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Given {
    /// The word, or the address of a text.
    pub word: u64,
    /// The length of a text, else [`NO_TEXT`] or [`NO_TEXT_BUT_FLOAT`].
    pub len: i64,
    /// 1 if it is null.
    pub null: u64,
}

/// A value that was read.
pub enum Found<'a> {
    Null,
    Word(u64),
    Text(&'a [u8]),
}

/// Writes a record of the values to `out`, which is empty.
///
/// # Safety
/// Texts that are not null are readable.
pub unsafe fn pack(values: &[Given], out: &mut Vec<u8>) {
    let before = record_nulls(values.len()) + 8 * values.len();
    out.resize(before, 0);
    for (index, value) in values.iter().enumerate() {
        let put = |out: &mut Vec<u8>, at: usize, word: u64| out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        if value.null != 0 {
            out[index / 8] |= 1 << (index % 8);
            continue;
        }
        let word = match usize::try_from(value.len) {
            Ok(0) => out.len() as u64,
            Ok(len) => {
                let start = out.len() as u64;
                // SAFETY: by the caller.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(value.word as *const u8, len) });
                start | (len as u64) << 32
            }
            Err(_) if value.len == NO_TEXT_BUT_FLOAT && f64::from_bits(value.word).is_nan() => 0x7ff8_0000_0000_0000,
            Err(_) => value.word,
        };
        put(out, record_nulls(values.len()) + 8 * index, word);
    }
}

/// Returns a value of a record with `of` fields.
pub fn field(record: &[u8], of: usize, field: usize, kind: i64) -> Found<'_> {
    let is_null = record.get(field / 8).is_some_and(|nulls| nulls & 1 << (field % 8) != 0);
    if is_null {
        return Found::Null;
    }
    let at = record_nulls(of) + 8 * field;
    let word = record.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk));
    if kind == WORD {
        return Found::Word(word);
    }
    let (start, len) = (word as u32 as usize, (word >> 32) as usize);
    let text = record.get(start..).and_then(|text| text.get(..len)).unwrap_or_default();
    // Compiled code takes the bytes of a `Str` for UTF-8.
    Found::Text(if kind == STR && std::str::from_utf8(text).is_err() { &[] } else { text })
}
