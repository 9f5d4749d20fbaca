//! The log: a record per epoch, in segment files, chained and checked.
//!
//! A log is one sequence of bytes, the records one behind the other, cut into segments. A record's
//! *position* is its place in that sequence; it never changes, whatever file the record lies in.
//! `docs/recovery.md` has the format byte by byte and every crash case.
//!
//! # Invariants
//!
//! 1. A segment gets its name when its header and what it begins with are durable.
//! 2. A segment's records go up to where the next segment begins; what lies behind that is void.
//! 3. A record's check covers its position, its log and all its bytes; it names the check of the record
//!    before and a position up to which all was durable when it was written.
//! 4. Appends happen at one place only: the end of the last segment.
//!
//! So what does not read as a record is a torn tail if nothing says that it was ever durable, and is cut;
//! else it is damage, and refused.

mod read;
mod record;
mod segment;
mod write;

pub use read::{LogReader, LoggedEpoch};
pub use write::{Log, Written};
