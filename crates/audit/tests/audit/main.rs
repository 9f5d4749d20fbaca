//! States verified and transactions shown: of a right engine, of engines with planted faults, and of states that were
//! changed from outside.

mod ahead;
mod bank;
mod calls;
mod early;
mod first_calls;
mod follow;
mod given_up;
mod proof;
mod retries;
#[path = "../../../sim/tests/search/mod.rs"]
mod search;
mod session;
mod show;
mod verify;

/// Runs trials by seed, at least `least`, and on until one returns that all is seen which is to come about: the calls at which
/// crashes fall follow from threads. Panics after twenty times as many.
fn trials(least: u64, mut sees_all: impl FnMut(u64) -> bool) {
    let mut is_all = false;
    for seed in 0.. {
        if seed >= least && is_all {
            return;
        }
        assert!(seed < 20 * least, "{seed} trials do not show all that is to come about");
        is_all = sees_all(seed);
    }
}
