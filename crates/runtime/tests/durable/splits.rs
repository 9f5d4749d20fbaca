//! Sources in splits over one state: their splits grow from run to run, new ones join, runs crash between. What is late and
//! what passes in which order is as the definition has it, given the marks with which the splits began, which the state has.

use super::{Again, Records, Trial, options};
use crate::support::Subject;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidemill_histories::{History, Random};
use tidemill_io::{BadRecord, IoFailure, Next, Resumed, Source, Splits};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Place, Schema, Type, Value};
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, SourceBuilder, cell, event, literal, named};
use tidemill_reference::order::{Clock, Order, SplitInput, What};
use tidemill_runtime::{Control, DurabilityOptions, Engine};
use tidemill_sim::SimStorage;

/// Runs over one state whose input grows.
const PIECES: usize = 4;
const SPLITS_MAX: usize = 6;

/// Two sources whose transactions do not commute.
fn plan(lateness: i64) -> Plan {
    let source = |s: SourceBuilder| s.event_time("at", Type::Int).field("n", Type::Int).lateness(lateness);
    let mut plan = PlanBuilder::new("splits")
        .table("rows", |t| t.key("key", Type::Int).column_or("value", Type::Int, Value::Int(0)))
        .source("adds", source)
        .source("multiplies", source);
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

/// A split: its records, and how many there are of them in each piece; none before it is there.
#[derive(Clone)]
struct Part {
    records: Vec<Vec<Value>>,
    ends: Vec<Option<usize>>,
}

impl Part {
    fn random(random: &mut Random, number: i64) -> Part {
        let (mut now, count) = (random.below(20) as i64, 5 + random.below(30) as i64);
        let record = |n| {
            now += random.below(5) as i64;
            vec![Value::Int(now - random.below(8) as i64), Value::Int(number * 1_000 + n)]
        };
        let records: Vec<Vec<Value>> = (0..count).map(record).collect();
        let first = if number == 0 || random.chance(50) { 0 } else { random.below(PIECES) };
        let mut end = 0;
        let at = |piece: usize| {
            end = if piece == PIECES - 1 { records.len() } else { end + random.below(records.len() - end + 1) };
            (piece >= first).then_some(end)
        };
        let ends = (0..PIECES).map(at).collect();
        Part { records, ends }
    }
}

/// The splits of a source in one life.
struct InSplits {
    schema: Schema,
    /// The events of each split, by name.
    parts: BTreeMap<String, Vec<Vec<Value>>>,
    again: Again,
    size: usize,
}

impl Splits for InSplits {
    fn new_splits(&mut self, known: &[String]) -> Result<Vec<String>, IoFailure> {
        Ok(self.parts.keys().filter(|name| !known.contains(name)).cloned().collect())
    }

    fn open(&mut self, name: &str) -> Result<Box<dyn Source>, IoFailure> {
        let batch = batch_of(&self.schema, &self.parts[name]);
        let (ids, again) =
            (self.parts[name].iter().map(|record| record[1].word().expect("an int")).collect(), self.again);
        Ok(Box::new(WithBad { records: Records { batch, next: 0, size: self.size, again, stop: None }, ids }))
    }
}

/// Records of which some have a bad one before them.
struct WithBad {
    records: Records,
    ids: Vec<i64>,
}

/// Returns whether a record has a bad one before it.
fn is_after_bad(id: i64) -> bool {
    id % 7 == 3
}

impl Source for WithBad {
    fn next(&mut self, wait_max: Duration) -> Result<Next, IoFailure> {
        let from = self.records.next;
        let Next::Batch(mut batch) = self.records.next(wait_max)? else { return Ok(Next::End) };
        for (after, &id) in (0..).zip(&self.ids[from..self.records.next]) {
            if is_after_bad(id) {
                batch.bad.push(BadRecord { line: Some(id as u64), after, ..BadRecord::default() });
            }
        }
        Ok(Next::Batch(batch))
    }

    fn token(&self) -> Option<String> {
        self.records.token()
    }

    fn replays(&self) -> bool {
        self.records.replays()
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        self.records.resume(token)
    }
}

impl Source for InSplits {
    fn splits(&mut self) -> Option<&mut dyn Splits> {
        Some(self)
    }

    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        panic!("its splits are read")
    }

    fn replays(&self) -> bool {
        self.again == Again::Replays
    }
}

/// Returns the name of each split and the mark with which it began, by source, then by the split's number.
fn began(trial: &Trial<'_>) -> Vec<Vec<(String, Option<i64>)>> {
    let directory = trial.open().expect("no fault");
    let checkpoint = directory.checkpoint().expect("a state that has ended");
    let mut began = vec![Vec::new(); 2];
    for at in &checkpoint.sources {
        let split = at.split.as_ref().expect("all sources have splits");
        assert_eq!(split.split as usize, began[split.source].len(), "splits are numbered as they join");
        began[split.source].push((split.name.clone(), at.begin));
    }
    began
}

/// The records of a source, in order.
#[derive(Clone, Default)]
struct Parted {
    punctual: Vec<Vec<Value>>,
    late: Vec<Vec<Value>>,
    /// The records that have a bad one before them.
    bad: Vec<i64>,
}

/// Returns the punctual and the late records of each source, by definition.
fn parted(sources: &[BTreeMap<String, Part>], began: &[Vec<(String, Option<i64>)>], lateness: i64) -> Vec<Parted> {
    let mut order = Order::new(i64::MIN, Vec::new());
    for (s, splits) in began.iter().enumerate() {
        for (number, (_, mark)) in splits.iter().enumerate() {
            let id = (s as u32, number as u32);
            order.join_at(id, Clock::EventTime { lateness }, mark.unwrap_or(i64::MIN));
        }
    }
    for (s, splits) in began.iter().enumerate() {
        for (number, (name, _)) in splits.iter().enumerate() {
            for record in inputs(&sources[s][name]) {
                let input = record.map_or(SplitInput::Bad, |record| SplitInput::Event(record[0].word()));
                order.take((s as u32, number as u32), input);
            }
        }
    }
    order.end();
    let mut parted = vec![Parted::default(); began.len()];
    for step in order.pass(usize::MAX, &mut |_| Vec::new()) {
        let Place::Record { source, split, offset } = step.position.place else { panic!("there are records only") };
        let (name, _) = &began[source as usize][split as usize];
        let mut inputs = inputs(&sources[source as usize][name]).skip(offset as usize);
        let record = inputs.next().expect("what passes was taken").cloned();
        let parted = &mut parted[source as usize];
        match (step.what, record) {
            (What::Event, Some(record)) => parted.punctual.push(record),
            (What::Late, Some(record)) => parted.late.push(record),
            (What::Bad, None) => {
                let before = inputs.next().flatten().expect("a record is after a bad one");
                parted.bad.push(before[1].word().expect("an int"));
            }
            (what, _) => panic!("{what:?} is not what the record is"),
        }
    }
    parted
}

/// Returns the records of a split; none for a bad one.
fn inputs(part: &Part) -> impl Iterator<Item = Option<&Vec<Value>>> {
    part.records.iter().flat_map(|record| {
        let bad = record[1].word().is_some_and(is_after_bad).then_some(None);
        bad.into_iter().chain([Some(record)])
    })
}

/// Returns the splits of both sources: the first of each is there from the start.
fn splits(random: &mut Random) -> Vec<BTreeMap<String, Part>> {
    let of = |_| {
        let count = 1 + random.below(SPLITS_MAX);
        // Names are in no order of time, and new ones come before old ones.
        let name = |number: usize| format!("part{}", (number * 5 + 3) % 11);
        (0..count).map(|number| (name(number), Part::random(random, number as i64))).collect()
    };
    (0..2).map(of).collect()
}

/// Runs over one state, and compares with the definition; how many splits joined late.
fn lives(engine: &mut Option<Engine>, lateness: i64, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let sources = splits(&mut random);
    let whole = sources.iter().map(|parts| parts.values().flat_map(|part| part.records.clone()).collect()).collect();
    let subject = Subject::new(History { plan: plan(lateness), preload: Vec::new(), sources: whole });
    let machine = SimStorage::new(seed);
    let mut trial = Trial::new(&subject, machine.clone(), &mut random);
    let again = [Again::Token, Again::Replays, Again::Anew][random.below(3)];
    trial.again = vec![again; 2];
    let schema = &subject.program.sources().next().expect("there are two").schema;
    for piece in 0..PIECES {
        let is_final = piece + 1 == PIECES;
        for life in 0..10 {
            let own = engine.take().expect("it comes back").with_empty_tables();
            let (options, size) = options(&subject.program, &mut random);
            let fails = life < 3 && random.chance(50);
            if fails {
                trial.fail(&mut random);
            }
            let source = |parts: &BTreeMap<String, Part>| {
                let there =
                    |(name, part): (&String, &Part)| Some((name.clone(), part.records[..part.ends[piece]?].to_vec()));
                let parts = parts.iter().filter_map(there).collect();
                Box::new(InSplits { schema: schema.clone(), parts, again, size }) as Box<dyn Source>
            };
            let checkpoint_events = if random.chance(50) { 1 + random.below(20) as u64 } else { u64::MAX };
            let durability = DurabilityOptions { checkpoint_events, is_final, ..DurabilityOptions::default() };
            let given = sources.iter().map(source).collect();
            let result = trial.live_on(&own, options, given, Arc::new(Control::default()), durability);
            machine.heal();
            *engine = Some(own);
            let is_done = match result {
                Ok(summary) => !summary.stopped,
                Err(error) => {
                    assert!(fails, "seed {seed}, piece {piece}, {again:?}: {error}");
                    false
                }
            };
            if is_done && is_final {
                break;
            }
            if machine.is_off() || random.chance(50) {
                machine.cut_power()
            } else {
                machine.kill()
            }
            if is_done {
                break;
            }
        }
    }
    let began = began(&trial);
    let parted = parted(&sources, &began, lateness);
    let punctual = parted.iter().map(|parted| parted.punctual.clone()).collect();
    // The punctual events are ordered by their times, by definition: none of these is late.
    let expected = Subject::new(History { plan: plan(0), preload: Vec::new(), sources: punctual });
    let outcome = trial.outcome(engine.as_ref().expect("it came back"));
    assert_eq!(outcome.tables, expected.expected.tables, "seed {seed}, {began:?}");
    for (sink, stream) in subject.program.sinks.iter().enumerate().map(|(s, sink)| (s, sink.stream)) {
        let name = &subject.program.streams[stream].name;
        let output = &outcome.outputs[sink];
        match name.as_str() {
            "adds.late" => assert_eq!(*output, parted[0].late, "seed {seed}, {name}, {began:?}"),
            "multiplies.late" => assert_eq!(*output, parted[1].late, "seed {seed}, {name}, {began:?}"),
            "adds.bad" | "multiplies.bad" => {
                let lines: Vec<i64> = output.iter().filter_map(|row| row[1].word()).collect();
                assert_eq!(lines, parted[usize::from(name != "adds.bad")].bad, "seed {seed}, {name}, {began:?}");
            }
            _ => assert_eq!(*output, expected.expected.outputs[sink], "seed {seed}, {name}, {began:?}"),
        }
    }
    began.iter().flatten().filter(|(_, mark)| mark.is_some()).count()
}

#[test]
fn splits_grow_and_join_as_defined() {
    let trials = (crate::number("TIDEMILL_CRASHES", 600) / 10).max(20);
    let first = crate::number("TIDEMILL_SEED", 1);
    let mut joined = 0;
    for lateness in [0, 4, 15] {
        let program = tidemill_plan::analyze(&crate::support::with_all_sinks(&plan(lateness))).expect("it is valid");
        let mut engine = Some(Engine::new(program).expect("it compiles"));
        for seed in (first..first + trials)
            .filter(|seed| seed % 3 == [0, 4, 15].iter().position(|l| *l == lateness).unwrap_or(0) as u64)
        {
            joined += lives(&mut engine, lateness, seed);
        }
    }
    assert!(joined > 0 || trials == 1, "splits join late");
}
