//! What can go wrong with a call, and what is remembered of those made.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing was done.
    Refused(ErrorKind),
    /// It fails, and was done all the same: a time-out whose answer was lost.
    Applied(ErrorKind),
    /// An append fails in the middle; any other call as if refused.
    Half(ErrorKind),
    /// A sync fails so, and what it should have made durable never will be, though it is still read: as
    /// Linux does when pages cannot be written. Any other call as if refused.
    Dropped(ErrorKind),
    /// One bit of what a read gives is wrong. Any other call is as ever.
    Flipped,
    /// Whoever calls panics: a bug.
    Panics,
    /// The power goes before the call.
    CutBefore,
    /// The power goes when the call is done, before it returns.
    CutBehind,
}

impl Fault {
    /// Whether the call is done.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Fault::Applied(_) | Fault::CutBehind | Fault::Flipped)
    }

    /// What the caller is told in the end.
    pub(crate) fn outcome(self) -> io::Result<()> {
        match self {
            Fault::Refused(kind) | Fault::Applied(kind) | Fault::Half(kind) | Fault::Dropped(kind) => {
                Err(io::Error::new(kind, format!("simulated: {kind}")))
            }
            Fault::Flipped => Ok(()),
            Fault::Panics => panic!("simulated: a bug"),
            Fault::CutBefore | Fault::CutBehind => Err(power_is_off()),
        }
    }
}

pub(crate) fn power_is_off() -> io::Error {
    io::Error::other("simulated: the power is off")
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the methods of the trait")]
pub enum Operation {
    Open,
    Rename,
    Link,
    Remove,
    Look,
    List,
    CreateDirectory,
    SyncDirectory,
    Lock,
    Append,
    ReadAt,
    Length,
    Truncate,
    Sync,
}

impl Operation {
    /// Whether it changes anything, so that a power cut before it differs from one before the next.
    pub fn writes(self) -> bool {
        !matches!(self, Operation::Look | Operation::List | Operation::ReadAt | Operation::Length)
    }
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was asked for.
    pub operation: Operation,
    /// The file it was about; of a renaming or a second name, the new one.
    pub path: PathBuf,
}

impl Call {
    /// What can go wrong with it so that the outcome may differ, whatever it gives.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = vec![Fault::Refused(ErrorKind::PermissionDenied)];
        if self.operation.writes() {
            faults.extend([Fault::CutBefore, Fault::CutBehind, Fault::Applied(ErrorKind::TimedOut)]);
        }
        match self.operation {
            Operation::Append => faults.push(Fault::Half(ErrorKind::StorageFull)),
            Operation::Sync => faults.push(Fault::Dropped(ErrorKind::Other)),
            _ => {}
        }
        faults
    }
}
