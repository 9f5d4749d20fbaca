//! The lateness of sources changes from run to run over one state. What is late and what passes in which order is as
//! the definition has it (`tidemill_reference::order`), where a mark neither falls nor rises by such a change.

use super::{Again, Trial, options};
use crate::support::Subject;
use tidemill_durability::Fit;
use tidemill_histories::{History, Random};
use tidemill_model::{Place, Type, Value};
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, SourceBuilder, cell, event, literal, named};
use tidemill_reference::order::{Clock, Order, SplitInput, What};
use tidemill_runtime::{DurabilityOptions, Engine};
use tidemill_sim::SimStorage;

const TRIALS: u64 = 60;
/// Runs over one state, each with a lateness of its own for each source.
const PIECES: usize = 4;

/// Two sources whose transactions do not commute.
fn plan(lateness: [i64; 2]) -> Plan {
    let source =
        |lateness| move |s: SourceBuilder| s.event_time("at", Type::Int).field("n", Type::Int).lateness(lateness);
    let mut plan = PlanBuilder::new("order")
        .table("rows", |t| t.key("key", Type::Int).column_or("value", Type::Int, Value::Int(0)))
        .source("adds", source(lateness[0]))
        .source("multiplies", source(lateness[1]));
    for (name, source, factor) in [("add", "adds", 1), ("multiply", "multiplies", 31)] {
        plan = plan.transaction(name, [named(source)], |t| {
            t.create("row", "rows", [event("n") % literal(3)]).body(|b| {
                b.set("row", "value", (cell("row", "value") * literal(factor) + event("n")) % literal(1_000_003));
                b.give([("value", cell("row", "value"))]);
            })
        });
    }
    plan.build()
}

/// Times that grow about as fast as the greatest lateness is large, forwards and backwards.
fn records(random: &mut Random) -> Vec<Vec<Value>> {
    let (mut now, count) = (0, 30 + random.below(50) as i64);
    let record = |number| {
        now += random.below(5) as i64;
        let at = now - random.below(20) as i64;
        vec![Value::Int(at), Value::Int(number)]
    };
    (0..count).map(record).collect()
}

/// The punctual events of each source in order, and its late ones, by source.
type Parted = Vec<(Vec<Vec<Value>>, Vec<Vec<Value>>)>;

/// Returns the punctual and the late events of each source, by definition.
fn parted(sources: &[Vec<Vec<Value>>], pieces: &[([usize; 2], [i64; 2])]) -> Parted {
    let mut order = Order::new(i64::MIN, Vec::new());
    for source in 0..2 {
        order.join((source, 0), Clock::EventTime { lateness: 0 });
    }
    let mut begins = [0; 2];
    for (ends, lateness) in pieces {
        for source in 0..2 {
            order.take((source as u32, 0), SplitInput::Lateness(lateness[source]));
            for record in &sources[source][begins[source]..ends[source]] {
                order.take((source as u32, 0), SplitInput::Event(record[0].word()));
            }
        }
        begins = *ends;
    }
    order.end();
    let mut parted = vec![(Vec::new(), Vec::new()); 2];
    for step in order.pass(usize::MAX, &mut |_| Vec::new()) {
        let Place::Record { source, offset, .. } = step.position.place else { panic!("there are records only") };
        let record = sources[source as usize][offset as usize].clone();
        let (punctual, late) = &mut parted[source as usize];
        match step.what {
            What::Event => punctual.push(record),
            _ => late.push(record),
        }
    }
    parted
}

/// Runs over one state; whether events were late under one lateness that would not have been under another.
fn lives(engines: &mut dyn FnMut([i64; 2]) -> Engine, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let sources = vec![records(&mut random), records(&mut random)];
    let mut pieces = Vec::new();
    let mut ends = [0; 2];
    for piece in 1..=PIECES {
        for (end, records) in ends.iter_mut().zip(&sources) {
            *end = if piece == PIECES { records.len() } else { *end + random.below(records.len() - *end + 1) };
        }
        pieces.push((ends, [(); 2].map(|()| [0, 3, 8, 15][random.below(4)])));
    }
    let parted = parted(&sources, &pieces);
    // The punctual events are ordered by their times, by definition: none of these is late.
    let punctual = parted.iter().map(|(punctual, _)| punctual.clone()).collect();
    let expected = Subject::new(History { plan: plan([0, 0]), preload: Vec::new(), sources: punctual });
    let subject = |lateness| {
        let history = History { plan: plan(lateness), preload: Vec::new(), sources: sources.clone() };
        Subject::new(history)
    };
    let machine = SimStorage::new(seed);
    let (mut released, mut begins) = (None, [0; 2]);
    for (number, (ends, lateness)) in pieces.iter().enumerate() {
        let subject = subject(*lateness);
        let engine = engines(*lateness).with_empty_tables();
        let mut trial = Trial::new(&subject, machine.clone(), &mut random);
        trial.again = vec![Again::Given; 2];
        trial.piece = begins.iter().copied().zip(*ends).collect();
        trial.released = released.take().unwrap_or(trial.released);
        let is_same = number == 0 || pieces[number - 1].1 == *lateness;
        let fit = trial.open().expect("it fits").fit().clone();
        assert_eq!(fit == Fit::Same, is_same, "seed {seed}: {fit:?}");
        let is_final = number + 1 == PIECES;
        let durability = DurabilityOptions { is_final, ..DurabilityOptions::default() };
        let (options, batch_size) = options(&subject.program, &mut random);
        trial.live(&engine, options, batch_size, None, durability).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        if is_final {
            let outcome = trial.outcome(&engine);
            let wanted = &expected.expected;
            assert_eq!(outcome.tables, wanted.tables, "seed {seed}, {pieces:?}");
            for (sink, stream) in subject.program.sinks.iter().enumerate().map(|(s, sink)| (s, sink.stream)) {
                let name = &subject.program.streams[stream].name;
                let expected = match name.as_str() {
                    "adds.late" => &parted[0].1,
                    "multiplies.late" => &parted[1].1,
                    _ => &wanted.outputs[sink],
                };
                assert_eq!(&outcome.outputs[sink], expected, "seed {seed}, {name}, {pieces:?}");
            }
        }
        machine.kill();
        (released, begins) = (Some(trial.released), *ends);
    }
    parted.iter().map(|(_, late)| late.len()).sum()
}

#[test]
fn lateness_changes_freely_and_marks_stay() {
    let mut late = 0;
    let mut engine = |lateness| {
        let program = tidemill_plan::analyze(&crate::support::with_all_sinks(&plan(lateness))).expect("it is valid");
        Engine::new(program).expect("it compiles")
    };
    for seed in 0..TRIALS {
        late += lives(&mut engine, seed);
    }
    assert!(late > TRIALS as usize, "{late} late events");
}
