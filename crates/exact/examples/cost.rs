//! The cost of an exact sum beside a naive one: nanoseconds an addition, with one sum and with many.

use std::hint::black_box;
use std::time::Instant;
use tidemill_exact::Sum;
use tidemill_random::Random;

const VALUES: usize = 1 << 16;
const ROUNDS: usize = 200;
const TIMES: usize = 7;

fn main() {
    let mut random = Random::new(1);
    let values: Vec<f64> = (0..VALUES).map(|_| random.unit() * 1e4 - 1e3).collect();
    println!("groups  naive  exact  (ns an addition, best of {TIMES})");
    for groups in [1, 1_000, 10_000] {
        let events: Vec<(u32, f64)> = values.iter().map(|&value| (random.below(groups) as u32, value)).collect();
        let groups = groups as usize;
        let naive = best(|| {
            let mut sums = vec![(0_i64, 0.0); groups];
            (0..ROUNDS).for_each(|_| {
                events.iter().for_each(|&(group, value)| {
                    let sum = &mut sums[group as usize];
                    sum.0 += 1;
                    sum.1 += value;
                });
                black_box(&mut sums);
            });
        });
        let exact = best(|| {
            let mut sums = vec![(0_i64, Sum::ZERO); groups];
            (0..ROUNDS).for_each(|_| {
                events.iter().for_each(|&(group, value)| {
                    let sum = &mut sums[group as usize];
                    sum.0 += 1;
                    sum.1.add(value);
                });
                black_box(&mut sums);
            });
        });
        println!("{groups:>6}  {naive:>5.2}  {exact:>5.2}");
    }
}

fn best(work: impl Fn()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..TIMES).map(time).fold(f64::INFINITY, f64::min) * 1e9 / (VALUES * ROUNDS) as f64
}
