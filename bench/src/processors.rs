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

/// The greatest share of the processors' time that the host may take from a run for it to be believed at once.
const STEADY: f64 = 0.02;
/// The most times that a run is made.
const TRIES: usize = 4;

/// Runs until the host has taken next to nothing of the processors meanwhile, or a few times: what came of the run that
/// it took least of. On a machine of its own, or where the system does not say, that is the first.
pub fn steadily<T>(mut run: impl FnMut() -> T) -> T {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut measured = || {
        let (start, before) = (Instant::now(), stolen());
        let result = run();
        ((stolen() - before) / (start.elapsed().as_secs_f64() * processors), result)
    };
    let mut best = measured();
    for _ in 1..TRIES {
        if best.0 <= STEADY {
            break;
        }
        let again = measured();
        best = if again.0 < best.0 { again } else { best };
    }
    best.1
}

/// Seconds in which the host ran something else on processors that this machine wanted, of all together, since it began.
#[cfg(target_os = "linux")]
fn stolen() -> f64 {
    // cpu, user, nice, system, idle, iowait, irq, softirq, steal: in ticks.
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.lines().next().and_then(|line| line.split_whitespace().nth(8)?.parse::<f64>().ok());
    // SAFETY: asks for a constant of the system.
    ticks.unwrap_or(0.0) / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

#[cfg(not(target_os = "linux"))]
fn stolen() -> f64 {
    0.0
}

/// Returns the nanoseconds that a cache line takes from the first processor to the second; not a number where there is
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
