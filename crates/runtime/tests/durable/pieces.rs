//! Restarts leave no trace in the results: histories whose input grows from run to run over one state, with and without
//! crashes and stops between, come to the outputs and tables of the oracle's single run.

use super::{Again, Records, Stop, Trial, options};
use crate::support::Subject;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_histories::{DataShape, History, Random, mixed_plan, random_data};
use tidemill_io::{IoFailure, Next, Source, SourceBatch};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Schema, Type, Value};
use tidemill_plan::analyze;
use tidemill_plan::build::PlanBuilder;
use tidemill_runtime::{DurabilityOptions, Engine, Options, Summary};
use tidemill_sim::SimStorage;

const DATA_PER_PLAN: u64 = 10;

/// The lives that come to the end of their input and hold events back, and those that crash or are stopped.
#[derive(Default)]
struct Seen {
    held: AtomicU64,
    broken: AtomicU64,
}

/// Returns the numbers of records of each source at the end of each piece; those of the last are all.
fn cuts(subject: &Subject, random: &mut Random) -> Vec<Vec<usize>> {
    let pieces = 2 + random.below(4);
    let of = |records: &Vec<Vec<_>>| {
        let mut cuts: Vec<usize> = (1..pieces).map(|_| random.below(records.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(records.len());
        cuts
    };
    let by_source: Vec<Vec<usize>> = subject.history.sources.iter().map(of).collect();
    (0..pieces).map(|piece| by_source.iter().map(|cuts| cuts[piece]).collect()).collect()
}

/// Returns how much of each source's input the state has as taken by lives that came to their end, by source.
fn taken_before(trial: &Trial<'_>) -> Vec<usize> {
    let directory = trial.open().expect("no fault");
    let sources = directory.checkpoint().map(|checkpoint| checkpoint.sources.as_slice()).unwrap_or_default();
    (0..trial.piece.len()).map(|source| sources.get(source).map_or(0, |at| at.events_before as usize)).collect()
}

/// Takes from the piece the records of those sources of which the state has it that a life came to the end of them. It
/// may have come there, and fail then; and a source that can be read again may be left before its end.
fn pass_ends(trial: &mut Trial<'_>) {
    let taken = taken_before(trial);
    for ((before, end), taken) in trial.piece.iter_mut().zip(taken) {
        if taken == *end {
            *before = *end;
        }
    }
}

/// The process is gone, and sometimes the power.
fn cut(trial: &Trial<'_>, random: &mut Random) {
    if trial.machine.is_off() || random.chance(50) { trial.machine.cut_power() } else { trial.machine.kill() }
}

/// Runs one piece of the input, in lives until one comes to its end. The last piece ends time.
fn piece(trial: &mut Trial<'_>, mut engine: Engine, random: &mut Random, is_last: bool, seen: &Seen) -> Engine {
    let records = trial.piece.iter().map(|(_, end)| end).sum::<usize>();
    for life in 0..10 {
        engine = engine.with_empty_tables();
        let (options, batch_size) = options(engine.program(), random);
        let fails = life < 2 && random.chance(40);
        if fails {
            trial.fail(random);
        }
        let stops = life < 2 && !fails && random.chance(25);
        let stop = stops.then(|| Stop { after: random.below(records.max(1)), behind: random.chance(50) });
        let checkpoint_events = if random.chance(50) { random.below(30) as u64 } else { u64::MAX };
        let durability = DurabilityOptions { checkpoint_events, is_final: is_last, ..DurabilityOptions::default() };
        let result = trial.live(&engine, options, batch_size, stop, durability);
        trial.machine.heal();
        match result {
            Ok(summary) if !summary.stopped => {
                let held = summary.sources.iter().any(|source| source.held > 0);
                assert!(!(held && is_last), "seed {}: the end of time releases all", trial.seed);
                seen.held.fetch_add(u64::from(held), Ordering::Relaxed);
                if !is_last {
                    cut(trial, random);
                    for (source, taken) in taken_before(trial).into_iter().enumerate() {
                        let is_noted = trial.again[source] != Again::Given || taken == trial.piece[source].1;
                        assert!(is_noted, "seed {}: the state has the end of given data", trial.seed);
                    }
                }
                return engine;
            }
            Err(error) if life >= 2 => panic!("seed {}, {:?}: {error}", trial.seed, trial.again),
            _ => _ = seen.broken.fetch_add(1, Ordering::Relaxed),
        }
        cut(trial, random);
        pass_ends(trial);
    }
    panic!("seed {}: it does not come to an end", trial.seed);
}

/// Runs a history in pieces; compares with the oracle's single run.
fn in_pieces(subject: &Subject, mut engine: Engine, seed: u64, seen: &Seen) -> Engine {
    let mut random = Random::new(seed);
    let mut trial = Trial::new(subject, SimStorage::new(seed), &mut random);
    for again in &mut trial.again {
        if random.chance(25) {
            *again = Again::Given;
        }
    }
    let cuts = cuts(subject, &mut random);
    let mut before = vec![0; subject.history.sources.len()];
    for (number, ends) in cuts.iter().enumerate() {
        trial.piece = before.iter().copied().zip(ends.iter().copied()).collect();
        engine = piece(&mut trial, engine, &mut random, number + 1 == cuts.len(), seen);
        before.clone_from(ends);
    }
    if let Some(difference) = subject.difference(&trial.outcome(&engine)) {
        panic!("seed {seed}, {:?}, cut at {cuts:?}: {difference}", trial.again);
    }
    engine
}

fn pieces_of_plan(seed: u64, seen: &Seen) {
    let plan = mixed_plan(seed);
    let program = analyze(&crate::support::with_all_sinks(&plan)).expect("random plans are valid");
    let mut engine = Engine::new(program.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for data_seed in seed * 1_000..seed * 1_000 + DATA_PER_PLAN {
        let (preload, sources) = random_data(&program, data_seed, DataShape::random(data_seed));
        let subject = Subject::new(History { plan: plan.clone(), preload, sources });
        engine = in_pieces(&subject, engine, data_seed, seen);
    }
}

#[test]
fn where_runs_were_cut_cannot_be_seen() {
    /// With fewer histories it may be that none holds events back.
    const LEAST: u64 = 200;
    let total = (crate::number("TIDEMILL_HISTORIES", 2_000) / 100).max(LEAST);
    let first = crate::number("TIDEMILL_SEED", 1);
    let plans = total.div_ceil(DATA_PER_PLAN);
    let (seen, start) = (Seen::default(), Instant::now());
    let done = AtomicU64::new(0);
    let pieces = |seed| {
        pieces_of_plan(seed, &seen);
        done.fetch_add(DATA_PER_PLAN, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for t in 0..2 {
            let seeds = (first + t..first + plans).step_by(2);
            let goes_on = move |&seed: &u64| (seed - first) * DATA_PER_PLAN < LEAST || crate::has_time_for_part(start);
            scope.spawn(move || seeds.take_while(goes_on).for_each(pieces));
        }
    });
    let total = done.into_inner();
    let (held, broken) = (seen.held.into_inner(), seen.broken.into_inner());
    println!("{total} histories in pieces: {held} pieces held events back, {broken} lives were broken");
    assert!(held > total / 10 && broken > total / 10, "{held} pieces held events back, {broken} lives were broken");
}

/// A source with as many records as it is asked for.
struct Endless {
    schema: Schema,
    given: Arc<AtomicU64>,
    again: Again,
    /// The number of its records.
    end: u64,
}

impl Source for Endless {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let events = batch_of(&self.schema, &[vec![Value::Int(number as i64), Value::Int(1)]]);
        Ok((number < self.end).then(|| SourceBatch { events, bad: Vec::new() }).into())
    }

    fn token(&self) -> Option<String> {
        Some(String::new())
    }

    fn replays(&self) -> bool {
        self.again == Again::Replays
    }
}

/// Two sources that take turns: the first has three records.
fn turns(again: Again, end: u64) -> (Summary, u64) {
    let plan = PlanBuilder::new("turns")
        .source("few", |s| s.field("id", Type::Int).field("amount", Type::Int))
        .source("many", |s| s.field("id", Type::Int).field("amount", Type::Int))
        .build();
    let records = (0..3).map(|i| vec![Value::Int(i), Value::Int(1)]).collect();
    let subject = Subject::new(History { plan, preload: Vec::new(), sources: vec![records, Vec::new()] });
    let trial = Trial::new(&subject, SimStorage::new(1), &mut Random::new(1));
    let schema = subject.program.streams.raw[0].schema.clone();
    let few = Records {
        batch: batch_of(&schema, &subject.history.sources[0]),
        next: 0,
        size: 2,
        again: Again::Replays,
        stop: None,
    };
    let given = Arc::new(AtomicU64::new(0));
    let many = Endless { schema, given: given.clone(), again, end };
    let engine = Engine::new(subject.program.clone()).expect("it compiles");
    let sources: Vec<Box<dyn Source>> = vec![Box::new(few), Box::new(many)];
    let summary = trial.live_on(&engine, Options::default(), sources, Arc::default(), DurabilityOptions::default());
    (summary.expect("a run"), given.load(Ordering::Relaxed))
}

/// Nothing more may pass once the first has paused. What can be read again is left where it is, however long it is; what
/// cannot is read to its end and kept.
#[test]
fn a_paused_source_holds_the_others_back() {
    let (summary, given) = turns(Again::Replays, u64::MAX);
    assert!(given < 100, "{given} records were read");
    assert_eq!(summary.sources[1].events, 3);
    let (summary, _) = turns(Again::Given, 50);
    let many = &summary.sources[1];
    assert_eq!((many.events, many.held, many.held_by.as_deref(), many.held_until), (3, 47, Some("few"), None));
    assert!(summary.sources.iter().all(|source| source.paused), "{summary:?}");
}

/// A run that only takes records and lets none pass cuts one epoch, its last. No checkpoint is due with it: the one at the
/// end says that the data that was given came to its end.
#[test]
fn the_last_checkpoint_says_that_given_data_has_ended() {
    let plan = PlanBuilder::new("held")
        .source("held", |s| s.event_time("at", Type::Int).field("n", Type::Int).lateness(100))
        .build();
    let records = (0..30).map(|i| vec![Value::Int(i), Value::Int(i)]).collect();
    let subject = Subject::new(History { plan, preload: Vec::new(), sources: vec![records] });
    for checkpoint_events in [0, u64::MAX] {
        let mut trial = Trial::new(&subject, SimStorage::new(1), &mut Random::new(1));
        trial.again = vec![Again::Given];
        for (number, piece) in [(0, 10), (10, 20), (20, 30)].into_iter().enumerate() {
            trial.piece = vec![piece];
            let engine = Engine::new(subject.program.clone()).expect("it compiles");
            let is_final = number == 2;
            let durability = DurabilityOptions { checkpoint_events, is_final, ..DurabilityOptions::default() };
            let summary = trial.live(&engine, Options::default(), 4, None, durability).expect("a run");
            let source = &summary.sources[0];
            assert_eq!((source.again, source.held), (0, if is_final { 0 } else { piece.1 as u64 }));
            assert_eq!(taken_before(&trial), [piece.1]);
        }
    }
}
