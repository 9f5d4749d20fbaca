//! Text formats: one record after the other, found and decoded as the bytes come in.
//!
//! A [`TextSource`] drives a [`Format`]: it reads, lets the format find the end of each record, and
//! has it decoded into [`Rows`]. A bad record becomes a [`BadRecord`]; reading continues after it.
//!
//! **Where a record that has no end ends.** One that is longer than [`RECORD_BYTES_MAX`], or that the
//! end of the file cuts off inside quotes, is bad as far as its first line goes, and reading goes on
//! at the next line: a quote left open costs one line and not the rest of the file. The outcome
//! depends on the bytes alone, not on how they arrive. A record that is given up does not make the
//! ones after it dearer: a format goes on where the one before it stopped ([`Format::skip`]).
//!
//! **Live inputs** (pipes, terminals) are handed over as soon as a read brought a whole record; files
//! fill their batches.

pub(crate) mod csv;
mod csv_write;
pub(crate) mod json;
pub(crate) mod jsonl;
mod jsonl_write;
mod reading;
mod sink;
mod source;

pub(crate) use csv_write::CsvRows;
pub(crate) use jsonl_write::JsonlRows;
pub use reading::RECORD_BYTES_MAX;
pub(crate) use sink::TextSink;
pub(crate) use source::{Input, TextSource, reads};

use crate::bad::Fault;
use crate::columns::Rows;
use tidemill_io::IoFailure;

/// The end of the record at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// It is whole, `length` bytes long without its line end; the next one starts at `next`, `lines`
    /// further down.
    Whole { length: usize, next: usize, lines: u64 },
    /// Its end is not among these bytes.
    Partial,
}

/// A text format: how records end and what they say.
pub(crate) trait Format: Send {
    /// Begins a new file. Says whether it has to begin with a header.
    fn begin(&mut self) -> Header;

    /// Takes the header record of a file.
    fn header(&mut self, record: &str) -> Result<(), IoFailure>;

    /// Finds the end of the record at the start of `bytes`. After `Partial` it is called again with
    /// the same bytes followed by more, and need not look at the first ones again; after `Whole` or
    /// [`Format::restart`] with another record's. At the end of the file (`last`) the bytes are a
    /// whole record, unless the grammar says that something is missing.
    fn frame(&mut self, bytes: &[u8], last: bool) -> Frame;

    /// The next call of [`Format::frame`] is about another record, of other bytes.
    fn restart(&mut self);

    /// The record of which [`Format::frame`] spoke last is given up, or skipped further. The next call is about the
    /// bytes that begin `bytes` after its start, which are the ones that were there before.
    fn skip(&mut self, bytes: usize);

    /// Returns whether a blank line is a record, and not skipped. The header was taken.
    fn takes_blank(&self) -> bool {
        false
    }

    /// Decodes one record (of which [`Format::frame`] spoke last) and appends it to `rows`, at most
    /// one. On a fault `rows` may hold some of its values.
    fn decode(&mut self, record: &str, rows: &mut Rows) -> Result<(), Fault>;

    /// Returns the column in which a record that is no UTF-8 is at fault, where it can be told. The record is given
    /// with U+FFFD in the place of what is wrong.
    fn column_of_invalid(&self, record: &str) -> Option<String>;

    /// Returns the reason why a record that the end of the file cuts off is none.
    fn unfinished(&self) -> &'static str;
}

/// The header of a file, if it begins with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The first record is expected to be the header.
    Expected,
    /// The file has no header, or the header was read.
    None,
}
