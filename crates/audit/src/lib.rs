//! A state looked at from outside the engine: its epochs run again, one event after the other, by the
//! reference interpreter, from a checkpoint or savepoint on.
//!
//! [`verify`] holds what the engine did against that; [`show`] says what one transaction did. Both read the
//! program from the state itself, and share no code with the engine beyond the program, the formats and the
//! digests.

mod error;
mod position;
mod show;
mod verify;
mod walk;

pub use error::AuditError;
pub use position::{At, EventPosition};
pub use show::show;
pub use verify::{Verified, verify};
pub use walk::{OpenSource, recorded_program, recorded_source};
