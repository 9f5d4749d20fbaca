//! The order of positions (`docs/formalism.md`): the histories that show why each rule is as it is, random ones, and
//! today's programs.

#[path = "../common/mod.rs"]
mod common;
mod instants;
mod random;
mod rules;
mod timers;
mod today;

use tidemill_model::KeyPart;
use tidemill_reference::order::{Clock, Effect, Order, SplitId, SplitInput, Step, What};

/// Sources with event time and no lateness.
const IN_ORDER: Clock = Clock::EventTime { lateness: 0 };

fn order(splits: &[(SplitId, Clock)]) -> Order {
    let counts = splits.iter().any(|(_, clock)| *clock == Clock::Counter);
    let mut order = Order::new(if counts { 0 } else { i64::MIN }, vec![]);
    for &(split, clock) in splits {
        order.join(split, clock);
    }
    order
}

fn events(order: &mut Order, split: SplitId, times: &[i64]) {
    times.iter().for_each(|&time| order.take(split, SplitInput::Event(Some(time))));
}

/// Lets pass all that may, and prints it.
fn pass(order: &mut Order) -> Vec<String> {
    pass_with(order, &mut |_| vec![])
}

fn pass_with(order: &mut Order, react: &mut dyn FnMut(&Step) -> Vec<Effect>) -> Vec<String> {
    order.pass(usize::MAX, react).iter().map(text).collect()
}

/// Returns a position, and behind it what a record or result is.
fn text(step: &Step) -> String {
    let of = match &step.what {
        What::Late => " late",
        What::Bad => " bad",
        What::Result(name) => &format!(" {name}"),
        What::Event | What::Sent | What::Tick | What::Wake => "",
    };
    format!("{}{of}", step.position)
}

/// Sets a wake of a row of table 0.
fn wake(key: i64, at: i64) -> Effect {
    Effect::Wake { table: 0, key: vec![KeyPart::Word(key)], at: Some(at) }
}

/// Announces a result.
fn complete(operator: u32, name: &str, at: i64) -> Effect {
    Effect::Complete { operator, name: name.into(), at: Some(at) }
}

/// Returns the close of the tumbling window of a length at a time, by operator 0.
fn window(length: i64, time: i64) -> Effect {
    let begin = time.div_euclid(length) * length;
    complete(0, &format!("[{begin}, {})", begin + length), begin + length - 1)
}
