//! State directories on the machine as it is.

use crate::Disk;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemill_durability::{Identity, OpenState, StateDirectory, StateError};
use tidemill_plan::Program;

/// Opens or makes a program's state directory.
pub fn open_state(path: &Path, program: &Program) -> Result<StateDirectory, StateError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => String::new(),
        host => format!(" on {host}"),
    };
    let process = std::process::id();
    let started = crate::time_text(i64::try_from(since.as_micros()).unwrap_or(0));
    StateDirectory::open(OpenState {
        storage: Arc::new(Disk),
        path,
        holder: &format!("process {process}{host}, since {started}"),
        // Two states that begin in one nanosecond are of two processes.
        id: xxhash_rust::xxh3::xxh3_64(format!("{} {process}{host}", since.as_nanos()).as_bytes()),
        program: Identity::of(program),
    })
}
