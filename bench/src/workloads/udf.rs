//! User functions: arithmetic in plans, and the same in loops.

use std::time::Instant;
use tidemill_plan::build::{Block, if_else, local};
use tidemill_plan::{Expr, Function};

/// Returns the rounds that take this number of microseconds.
pub fn rounds(micros: f64, round_ns: f64) -> i64 {
    (micros * 1e3 / round_ns).round() as i64
}

/// Does the arithmetic of a user function. The result is 0, which no compiler can know.
#[inline(always)]
pub fn toil(start: i64, rounds: i64) -> i64 {
    if rounds == 0 {
        return 0;
    }
    let end = (0..rounds).fold(start as f64, |x, _| x * 0.5 + 1.0);
    i64::from(end < -1e300)
}

/// Adds the user function to a value in a plan: statements, then the sum. `name` is its own in the transaction.
pub fn with_udf(b: &mut Block, name: &str, start: Expr, rounds: i64, value: Expr) -> Expr {
    if rounds == 0 {
        return value;
    }
    b.assign(name, start.call(Function::Float, []));
    b.for_range(format!("{name}_round").as_str(), 0, rounds, |b| b.assign(name, local(name) * 0.5 + 1.0));
    value + if_else(local(name).lt(-1e300), 1, 0)
}

/// Returns the time that a round of [`toil`] takes here and now, in nanoseconds: the best of a few.
pub fn ns_per_round() -> f64 {
    const ROUNDS: i64 = 1_000_000;
    let once = |_| {
        let start = Instant::now();
        std::hint::black_box(toil(std::hint::black_box(7), std::hint::black_box(ROUNDS)));
        start.elapsed().as_nanos() as f64 / ROUNDS as f64
    };
    (0..20).map(once).fold(f64::INFINITY, f64::min)
}
