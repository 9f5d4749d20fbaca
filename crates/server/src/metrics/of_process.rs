//! The counts of the process: its memory, its files, its time. What the system does not say is left out.

use super::{Count, Metric, MetricKind, gauge, one};
use std::fs;

/// Returns the counts now.
pub fn counted() -> Vec<Metric> {
    let mut all = vec![gauge(
        "tidemill_build_info",
        "Always 1; the labels say what was built.",
        vec![(
            vec![
                ("version", env!("CARGO_PKG_VERSION").into()),
                ("target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)),
                ("profile", if cfg!(debug_assertions) { "debug".into() } else { "release".into() }),
            ],
            1,
        )],
    )];
    if let Some(bytes) = resident() {
        all.push(gauge("process_resident_memory_bytes", "Memory that the process has.", one(bytes)));
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // One is that of the folder.
        let open = (files.count() as u64).saturating_sub(1);
        all.push(gauge("process_open_fds", "Files that the process has open.", one(open)));
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(limit) = limit {
        all.push(gauge("process_max_fds", "Files that the process may have open.", one(limit)));
    }
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
    all.push(Metric {
        name: "process_cpu_seconds_total",
        kind: MetricKind::Counter,
        help: "Time of processors that the process has used.",
        counts: one(Count::Part(seconds)),
    });
    all
}

/// Returns the memory of the process, in bytes.
fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
