//! Plans and data to hold executions against the reference with: random ones that are a function of
//! a seed, and hand-written ones that look for trouble.
//!
//! Plans are made as front ends make them, so that analysis takes part, and are always valid. Data
//! is made for the analyzed program. Nothing here says what comes out: that is the reference's part.

mod adversarial;
mod apart;
mod ast;
mod bodies;
mod calls;
mod conversions;
mod data;
mod expressions;
mod groups;
mod join;
mod over;
mod plans;
mod random;
mod selections;
mod wakes;
mod windows;

pub use adversarial::adversarial;
pub use apart::random_apart_plan;
pub use calls::{CALL, is_of_calls};
pub use conversions::conversion_plans;
pub use data::{DataShape, Keys, Order, Preload, Records, random_data};
pub use groups::random_group_plan;
pub use over::random_periods;
pub use plans::{PlanSize, random_call_plan, random_plan};
pub use random::Random;

use tidemill_model::Value;
use tidemill_plan::{Limits, Plan, TableId, analyze};

/// A plan and everything that happens to it.
#[derive(Clone, Debug)]
pub struct History {
    /// The application.
    pub plan: Plan,
    /// Rows that are there before the first event, in column order.
    pub preload: Vec<(TableId, Vec<Vec<Value>>)>,
    /// The records of each source, in offset order.
    pub sources: Vec<Vec<Vec<Value>>>,
}

/// Returns a random plan of any kind: what a seed means to the differential test.
pub fn mixed_plan(seed: u64) -> Plan {
    let plan = match seed % 4 {
        0 => random_plan(seed, PlanSize::Large),
        1 if (seed / 4).is_multiple_of(2) => random_apart_plan(seed),
        1 => random_group_plan(seed),
        _ => random_plan(seed, PlanSize::Small),
    };
    Plan { limits: random_limits(seed), ..plan }
}

/// Returns a random plan whose programs are called.
pub fn mixed_call_plan(seed: u64) -> Plan {
    let size = [PlanSize::Large, PlanSize::Small, PlanSize::Medium][seed as usize % 3];
    Plan { limits: random_limits(seed), ..random_call_plan(seed, size) }
}

/// Returns limits so low, in every third plan, that its transactions meet them. They come of numbers of their own, so
/// that the rest of a plan is the same with and without.
fn random_limits(seed: u64) -> Limits {
    let mut random = Random::new(seed ^ 0x1131);
    match random.chance(33) {
        true => Limits { steps: random.between(1, 12) as i64, memory: random.between(8, 600) as i64 },
        false => Limits::default(),
    }
}

/// Returns a random plan with random data.
pub fn random_history(seed: u64, size: PlanSize) -> History {
    let plan = Plan { limits: random_limits(seed), ..random_plan(seed, size) };
    let program = analyze(&plan).expect("random plans are valid");
    let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
    History { plan, preload, sources }
}

/// Returns whether two values are the same to the bit, but for the payload of NaN: which NaN an operation gives is up
/// to the processor and the compiler, and no expression can tell.
pub fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(l), Value::Float(r)) => l.to_bits() == r.to_bits() || (l.is_nan() && r.is_nan()),
        (Value::List(l), Value::List(r)) => same_rows(l, r),
        (l, r) => l == r,
    }
}

/// Returns whether two lists of rows or events are equal, value by value ([`same_value`]).
pub fn same_rows(left: &[Vec<Value>], right: &[Vec<Value>]) -> bool {
    let same_row =
        |(l, r): (&Vec<Value>, &Vec<Value>)| l.len() == r.len() && l.iter().zip(r).all(|(l, r)| same_value(l, r));
    left.len() == right.len() && left.iter().zip(right).all(same_row)
}
