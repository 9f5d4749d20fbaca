//! The log: a record per epoch, in segment files, chained and checked.
//!
//! A log is one sequence of bytes, the records one after the other, cut into segments. A record's *position* is its
//! offset in that sequence; it never changes, whichever file has the record. `docs/recovery.md` has the format byte
//! by byte and every crash case.
//!
//! # Invariants
//!
//! 1. A segment gets its name when its header and its first content are durable.
//! 2. A segment's records end where the next segment begins; any bytes after that are void.
//! 3. A record's check covers its position, its log and all its bytes. A record holds the check of the record before,
//!    and a position: everything before it was durable when the record was written.
//! 4. Appends happen at one place only: the end of the last segment.
//!
//! So bytes that do not read as a record are a torn tail if no record says that they were durable. A torn tail is
//! cut; otherwise the bytes are damaged, and the log is refused.

mod read;
mod record;
mod segment;
mod write;

pub use read::{LogReader, LoggedEpoch};
pub use write::{Log, Written};
