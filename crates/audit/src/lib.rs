//! Audits of a state: the reference interpreter runs its logged epochs again, one event after the other, from a
//! checkpoint or a savepoint on.
//!
//! [`verify`] compares the engine's results with the interpreter's; [`show`] says what one transaction did; [`prove`] hashes
//! the entries of the log again. The first two read the program from the state itself, and go by [`Walk`]. They share no code
//! with the engine beyond the program, the formats and the digests.

mod chain;
mod error;
mod position;
mod show;
mod stand;
mod verify;
mod walk;

pub use chain::{Anchored, Proven, head_of, prove};
pub use error::AuditError;
pub use position::{At, EventPosition};
pub use show::show;
pub use stand::{Standing, StandingTable, Tailed, stand, tail};
pub use verify::{Verified, verify, verify_from_anchor};
pub use walk::{OpenSource, Untaken, Walk, WhyUntaken, recorded_program, recorded_source};
