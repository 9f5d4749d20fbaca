//! What can be wrong with a state directory.

use std::io;
use std::path::{Path, PathBuf};

/// Why a state directory cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The machine refused.
    #[error("{} cannot be {action}: {error}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// What was to be done with it: "written", "read", …
        action: &'static str,
        /// What the machine said.
        error: io::Error,
    },
    /// What was durable is not there any more as it was.
    #[error("{} is damaged at byte {offset}: {what}; {affected}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// What cannot be known because of it.
        affected: String,
    },
    /// It is whole, but not for this program, or not for this version of it.
    #[error("{0}")]
    Refused(String),
    /// A sync failed, or a write that may stand there in part: nothing may be written any more.
    #[error("{} cannot be trusted any more: {reason}; start again, and what is durable will be read back", file.display())]
    Lost {
        /// The file.
        file: PathBuf,
        /// What failed.
        reason: String,
    },
}

impl StateError {
    /// Whether there was no room for what was to be written: nothing of it counts, and it can be tried again.
    pub fn is_no_room(&self) -> bool {
        matches!(self, StateError::Io { action: "written", error, .. } if error.kind() == io::ErrorKind::StorageFull)
    }

    /// For a call about something that must be there: where it is not, `affected` says what cannot be known.
    pub fn needed(file: &Path, action: &'static str, affected: String) -> impl FnOnce(io::Error) -> StateError {
        let file = file.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::NotFound => StateError::Damaged { file, offset: 0, what: "it is missing".into(), affected },
            _ => StateError::Io { file, action, error },
        }
    }

    /// For a call that the machine refused.
    pub fn io(file: &Path, action: &'static str) -> impl FnOnce(io::Error) -> StateError {
        let file = file.to_owned();
        move |error| StateError::Io { file, action, error }
    }
}
