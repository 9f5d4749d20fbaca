//! State directories on the machine as it is.

use crate::{Disk, Patience, Patient};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemill_durability::{Identity, OpenState, Recorded, StateDirectory, StateError};
use tidemill_plan::Program;

/// Opens or makes a program's state directory.
pub fn open_state(path: &Path, program: &Program, recorded: Option<Recorded>) -> Result<StateDirectory, StateError> {
    open_patient_state(path, program, recorded, &Patience::later())
}

/// Opens or makes a program's state directory, as [`open_state`] does. As long as there is patience, what is done with
/// the state waits for file descriptors.
pub fn open_patient_state(
    path: &Path,
    program: &Program,
    recorded: Option<Recorded>,
    patience: &Patience,
) -> Result<StateDirectory, StateError> {
    let (holder, since) = holder();
    StateDirectory::open(OpenState {
        storage: Arc::new(Patient::for_descriptors(Arc::new(Disk), patience.clone())),
        path,
        holder: &holder,
        id: number(&holder, since),
        program: Identity::of(program),
        recorded,
    })
}

/// Opens the state directory that is there, whatever its program.
pub fn open_state_as_it_is(path: &Path) -> Result<StateDirectory, StateError> {
    StateDirectory::open_as_it_is(Arc::new(Disk), path, &holder().0)
}

/// Returns a view of the state directory that is there, whatever its program, while a run may go on with it.
pub fn view_state(path: &Path) -> Result<StateDirectory, StateError> {
    StateDirectory::view(Arc::new(Disk), path)
}

/// Returns a number that no other run has.
pub(crate) fn unique() -> u64 {
    let (holder, since) = holder();
    number(&holder, since)
}

/// Hashes a process and a time in nanoseconds. (Two that begin in one nanosecond are of two processes.)
fn number(holder: &str, since: u128) -> u64 {
    xxhash_rust::xxh3::xxh3_64(format!("{since} {holder}").as_bytes())
}

/// Returns a text by which others know this process if they find a state locked; and the time in nanoseconds.
fn holder() -> (String, u128) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => String::new(),
        host => format!(" on {host}"),
    };
    let process = std::process::id();
    let started = crate::time_text(i64::try_from(since.as_micros()).unwrap_or(0));
    (format!("process {process}{host}, since {started}"), since.as_nanos())
}
