//! The processors that a benchmark runs on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Puts the process, and the threads that it starts, on one processor or on all.
pub fn pin(one: bool) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if let Some(&first) = cores.first() {
        if one {
            core_affinity::set_for_current(first);
        } else {
            unpin();
        }
    }
}

#[cfg(target_os = "linux")]
fn unpin() {
    // SAFETY: a zeroed set is a valid set of no processors, then filled.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(not(target_os = "linux"))]
fn unpin() {}

/// Nanoseconds that a cache line takes from the first processor to the second; not a number where there is
/// no second.
pub fn hand_over_ns() -> f64 {
    const TURNS: u32 = 100_000;
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let [first, second, ..] = cores[..] else { return f64::NAN };
    let turn = AtomicU32::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (begin, core) in [(0, first), (1, second)] {
            let turn = &turn;
            scope.spawn(move || {
                core_affinity::set_for_current(core);
                for next in (begin..TURNS).step_by(2) {
                    while turn.load(Ordering::Acquire) != next {
                        std::hint::spin_loop();
                    }
                    turn.store(next + 1, Ordering::Release);
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / TURNS as f64
}
