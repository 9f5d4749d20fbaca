//! The sums of one transaction, filter or map, against the limits of the program.

use std::cell::Cell;
use tidemill_model::Value;
use tidemill_plan::{Count, Limits, Measure, ReasonId, STEP_BYTES};

/// The sums so far. Evaluation only reads its surroundings, so they are cells.
pub struct Sums {
    limits: Limits,
    steps: Cell<i64>,
    memory: Cell<i64>,
}

impl Sums {
    pub fn new(limits: Limits) -> Self {
        Sums { limits, steps: Cell::new(0), memory: Cell::new(0) }
    }

    /// Returns the bytes of a text that is read or made.
    pub fn text(&self, measure: Measure, value: &Value, reason: ReasonId) -> Result<(), ReasonId> {
        let len = bytes(value);
        match measure {
            Measure::Read => add(&self.steps, len / STEP_BYTES, self.limits.steps, reason),
            Measure::Made => add(&self.memory, len, self.limits.memory, reason),
        }
    }

    /// Adds the count of a statement on this event.
    pub fn count(&self, count: Count, event: &[Value], reason: ReasonId) -> Result<(), ReasonId> {
        match count {
            Count::Steps(steps) => add(&self.steps, steps, self.limits.steps, reason),
            Count::Memory(amount) => add(&self.memory, amount, self.limits.memory, reason),
            Count::Text(field) => add(&self.memory, bytes(&event[field]), self.limits.memory, reason),
            Count::List(field) => {
                let Value::List(elements) = &event[field] else { panic!("{} where a list belongs", event[field]) };
                let amount = elements.iter().flatten().map(|value| 16 + bytes(value)).sum();
                add(&self.memory, amount, self.limits.memory, reason)
            }
        }
    }
}

fn add(sum: &Cell<i64>, amount: i64, limit: i64, reason: ReasonId) -> Result<(), ReasonId> {
    sum.set(sum.get() + amount);
    if sum.get() > limit { Err(reason) } else { Ok(()) }
}

/// Returns the bytes of a text; of anything else none.
fn bytes(value: &Value) -> i64 {
    match value {
        Value::Str(text) => text.len() as i64,
        Value::Bytes(bytes) => bytes.len() as i64,
        _ => 0,
    }
}
