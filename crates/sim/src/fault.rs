//! Faults of storage calls, and the record of the calls made.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and has no effect.
    Refused(ErrorKind),
    /// The call fails after it took effect: a time-out whose answer was lost.
    Applied(ErrorKind),
    /// An append or another write writes half of its bytes and fails; any other call is refused.
    Half(ErrorKind),
    /// A sync fails, and the bytes that it should have made durable never become durable, though reads still see
    /// them: as on Linux when dirty pages cannot be written. Any other call is refused.
    Dropped(ErrorKind),
    /// One bit of the bytes that a read returns is flipped. Any other call is as usual.
    Flipped,
    /// The calling thread panics, as it would on a bug.
    Panics,
    /// The power is cut before the call.
    CutBefore,
    /// The power is cut after the call took effect, before it returns.
    CutAfter,
}

impl Fault {
    /// Returns whether the call takes effect.
    pub(crate) fn is_done(self) -> bool {
        matches!(self, Fault::Applied(_) | Fault::CutAfter | Fault::Flipped)
    }

    /// Returns the result of the call.
    pub(crate) fn outcome(self) -> io::Result<()> {
        match self {
            Fault::Refused(kind) | Fault::Applied(kind) | Fault::Half(kind) | Fault::Dropped(kind) => {
                Err(io::Error::new(kind, format!("simulated: {kind}")))
            }
            Fault::Flipped => Ok(()),
            Fault::Panics => panic!("simulated: a bug"),
            Fault::CutBefore | Fault::CutAfter => Err(power_is_off()),
        }
    }
}

pub(crate) fn power_is_off() -> io::Error {
    io::Error::other("simulated: the power is off")
}

/// A kind of call.
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
    WriteAt,
    Fill,
    ReadAt,
    Length,
    Truncate,
    Sync,
}

impl Operation {
    /// Returns whether it writes bytes into a file.
    pub(crate) fn gives_bytes(self) -> bool {
        matches!(self, Operation::Append | Operation::WriteAt | Operation::Fill)
    }

    /// Returns whether it changes the disk, so that a power cut before it differs from one after it.
    pub fn writes(self) -> bool {
        !matches!(self, Operation::Look | Operation::List | Operation::ReadAt | Operation::Length)
    }
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its kind.
    pub operation: Operation,
    /// Its file; of a rename or a link, the new name.
    pub path: PathBuf,
}

impl Call {
    /// Returns the faults that matter for it, whatever it returns.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = vec![Fault::Refused(ErrorKind::PermissionDenied)];
        if self.operation.writes() {
            faults.extend([Fault::CutBefore, Fault::CutAfter, Fault::Applied(ErrorKind::TimedOut)]);
        }
        match self.operation {
            _ if self.operation.gives_bytes() => faults.push(Fault::Half(ErrorKind::StorageFull)),
            Operation::Sync => faults.push(Fault::Dropped(ErrorKind::Other)),
            _ => {}
        }
        faults
    }
}
