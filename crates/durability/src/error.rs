//! Errors of a state directory.

use crate::storage::is_shortage;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a state directory cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The operating system refused a call.
    #[error("{} cannot be {action}: {error}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The attempted action: "written", "read", …
        action: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Data that was durable is missing or changed.
    #[error("{} is damaged at byte {offset}: {what}; {affected}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The fault found there.
        what: String,
        /// The data that is lost because of the damage.
        affected: String,
    },
    /// The state is intact, but not for this program, or not for this version of it.
    #[error("{0}")]
    Refused(String),
    /// The state's directory, or its lock, is not the one that this process has locked.
    #[error(
        "the state {} is not held any more: {what} was removed or replaced, so that another process may go on with the \
         state; nothing more is written, and what was released is durable",
        state.display()
    )]
    LetGo {
        /// The state's directory.
        state: PathBuf,
        /// The file or directory.
        what: String,
    },
    /// A sync failed, or a write that may have been applied in part: nothing may be written any more.
    #[error("{} cannot be trusted any more: {reason}; start again, and what is durable will be read back", file.display())]
    Lost {
        /// The file.
        file: PathBuf,
        /// The call that failed.
        reason: String,
    },
}

impl StateError {
    /// Returns whether there was no room, or no descriptor, for a write: none of it counts, and it can be tried again.
    pub fn is_no_room(&self) -> bool {
        matches!(self, StateError::Io { action: "written", error, .. } if is_shortage(error))
    }

    /// Maps the error of a call on a file that must exist. If it is missing, `affected` names the data that is lost.
    pub fn needed(file: &Path, action: &'static str, affected: String) -> impl FnOnce(io::Error) -> StateError {
        let file = file.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::NotFound => StateError::Damaged { file, offset: 0, what: "it is missing".into(), affected },
            _ => StateError::Io { file, action, error },
        }
    }

    /// Maps the error of a call that the system refused.
    pub fn io(file: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StateError {
        let file = file.to_owned();
        move |error| StateError::Io { file, action, error }
    }
}
