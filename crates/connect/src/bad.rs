//! Bad records: the fault, and the record's text as far as it is shown.

use std::fmt::Display;
use tidemill_io::BadRecord;

/// Most bytes of a bad record's text that are kept.
pub const RECORD_TEXT_BYTES_MAX: usize = 1024;

/// Most characters of a value that a reason quotes.
const QUOTED_CHARS_MAX: usize = 40;

/// The reason why a record cannot be decoded. The caller adds its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub column: Option<String>,
    pub reason: String,
}

impl Fault {
    /// Returns the fault of a record that is wrong as a whole.
    pub fn whole(reason: impl Into<String>) -> Fault {
        Fault { column: None, reason: reason.into() }
    }

    /// Returns the fault of the value of one column.
    pub fn at(column: impl Into<String>, reason: impl Into<String>) -> Fault {
        Fault { column: Some(column.into()), reason: reason.into() }
    }

    /// Returns the bad record for this fault, after this number of events of its batch.
    pub fn into_bad(self, origin: &str, line: u64, record: String, after: usize) -> BadRecord {
        let Fault { column, reason } = self;
        let (origin, line, record) = (Some(origin.to_owned()), Some(line), Some(record));
        BadRecord { origin, line, column, reason, record, after: after as u64 }
    }
}

/// Returns the first [`RECORD_TEXT_BYTES_MAX`] bytes of a record as text, cut between two characters; what is no UTF-8
/// is shown as U+FFFD.
pub fn excerpt(record: &[u8]) -> String {
    // Three bytes more than are kept, so that a character that straddles the cut is seen whole.
    let window = &record[..record.len().min(RECORD_TEXT_BYTES_MAX + 3)];
    let mut text = String::from_utf8_lossy(window).into_owned();
    text.truncate(text.floor_char_boundary(RECORD_TEXT_BYTES_MAX));
    text
}

/// Returns a value in quotes for a message, shortened where it is long.
pub(crate) fn quoted(value: &str) -> String {
    match value.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((cut, _)) => format!("'{}…'", &value[..cut]),
        None => format!("'{value}'"),
    }
}

/// Returns names in quotes, for messages.
pub(crate) fn listed(names: impl IntoIterator<Item = impl Display>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_cut_between_characters() {
        assert_eq!(excerpt(b"a\xffb"), "a\u{fffd}b");
        let long = "é".repeat(RECORD_TEXT_BYTES_MAX);
        assert_eq!(excerpt(long.as_bytes()), long[..RECORD_TEXT_BYTES_MAX]);
        let odd = format!("x{long}");
        assert_eq!(excerpt(odd.as_bytes()), odd[..RECORD_TEXT_BYTES_MAX - 1]);
        assert!(excerpt(&[0xff; 5000]).len() <= RECORD_TEXT_BYTES_MAX);
    }
}
