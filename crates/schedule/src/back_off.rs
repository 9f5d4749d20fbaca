//! Looking for a condition before parking: seldom, and not for long.
//!
//! A look may take a cache line from the worker that is about to write it. So a worker pauses twice as long after each
//! look, up to a bound, and after a bounded time stops looking: then it parks ([`crate::pool`]).

use crate::sync::spin_loop;

/// The longest pause between two looks.
const PAUSE_MAX: u32 = 64;

/// Looks until the condition holds, for this number of spins in all; returns whether it does.
pub(crate) fn look(spins: u32, condition: impl Fn() -> bool) -> bool {
    let (mut spent, mut pause) = (0, 1);
    while spent < spins {
        if condition() {
            return true;
        }
        let now = pause.min(spins - spent);
        (0..now).for_each(|_| spin_loop());
        spent += now;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    false
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_worker_looks_seldom_and_gives_up() {
        let looks = Cell::new(0);
        let count_to = |last: u32| {
            looks.set(0);
            look(200, || {
                looks.set(looks.get() + 1);
                looks.get() == last
            })
        };
        assert!(!count_to(u32::MAX));
        assert!((2..=12).contains(&looks.get()), "{} looks", looks.get());
        assert!(count_to(3));
        assert_eq!(looks.get(), 3);
        assert!(!look(0, || true) && look(1, || true));
    }
}
