//! The meaning of programs, from their declarations alone: the law of `docs/formalism.md` over the list of positions, without
//! the tables and transactions that operators become. The reference, which runs these, and the engine are held against it.
//!
//! [`declared`] has the programs, [`plan`] writes them as front ends do, [`law`] runs them step by step with [`operators`] by
//! definition. One difference is known, and in none of the programs tried: an operator that takes a second emission of its
//! input's events (`docs/formalism.md`, "The one law") runs before their other deliveries. [`Mistake`]s in the law show that random
//! programs and data tell right from wrong.

mod aggregates;
mod declared;
mod law;
mod operators;
mod plan;
mod random;
mod transactions;

use crate::support::{Batches, Kept, Sockets};
use declared::{Declared, Event};
use law::{Law, Mistake, Tally};
use plan::{plan, shown};
use random::{random_program, random_records};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_histories::{Random, same_rows};
use tidemill_io::{IoFailure, Next, Sink, Source, Splits};
use tidemill_model::arrow::rows;
use tidemill_model::{Schema, Value};
use tidemill_plan::{Origin, Program, TableId, analyze};
use tidemill_reference::Reference;
use tidemill_runtime::{Engine, EpochSize, Options, Request};

/// Programs that are tried; each with as many data.
const PROGRAMS: u64 = 120;
const DATA: u64 = 3;
/// Programs and data that mistakes are looked for in.
const MISTAKEN: u64 = 600;
/// The least number of results of each kind among those compared.
const LEAST: u64 = 40;

/// The kinds of results that are compared, in the words of [`Tally`].
const KINDS: [&str; 41] = [
    "tumbling",
    "tumbling of emissions",
    "tumbling of late",
    "tumbling, early",
    "sliding",
    "sliding of emissions",
    "sliding of late",
    "sliding, early",
    "calendar",
    "calendar of emissions",
    "calendar of late",
    "session",
    "session of emissions",
    "session of late",
    "counting",
    "counting of emissions",
    "counting of late",
    "counting, not full",
    "window without events",
    "top",
    "top of emissions",
    "top of late",
    "first",
    "first of emissions",
    "first of late",
    "join within",
    "join within of emissions",
    "join within, unmatched",
    "join over windows",
    "join over windows of emissions",
    "join over windows, unmatched",
    "record of several splits",
    "late input",
    "nested",
    "nest that aborts",
    "transaction",
    "windowed column",
    "row that is deleted",
    "woken",
    "tick",
    "batch",
];

/// An outcome: rows by sink, and rows by table.
#[derive(Default, PartialEq)]
struct Outcome {
    outputs: Vec<Vec<Vec<Value>>>,
    tables: Vec<Vec<Vec<Value>>>,
}

impl Outcome {
    fn of_law(law: &Law<'_>, declared: &Declared) -> Outcome {
        let row = |event: &Event| event.row(declared.time);
        let output = |feed| law.outputs.get(&feed).map(|events| events.iter().map(row).collect()).unwrap_or_default();
        Outcome {
            outputs: shown(declared).into_iter().map(output).collect(),
            tables: (0..declared.tables.len()).map(|table| transactions::rows(law, table)).collect(),
        }
    }

    /// Panics where another outcome is not this one.
    fn check(&self, other: &Outcome, declared: &Declared, what: &str) {
        let streams = shown(declared).into_iter().map(|feed| format!("{feed:?}"));
        let tables = (0..self.tables.len()).map(|table| format!("table {table}"));
        let pairs = self.outputs.iter().zip(&other.outputs).chain(self.tables.iter().zip(&other.tables));
        for (name, (expected, is)) in streams.chain(tables).zip(pairs) {
            if !same_rows(expected, is) {
                let at = expected.iter().zip(is).position(|(a, b)| !same_rows(from_ref(a), from_ref(b)));
                let at = at.unwrap_or(expected.len().min(is.len()));
                let (by_law, of) = (expected.get(at), is.get(at));
                let all = self.outputs.iter().zip(&other.outputs).zip(shown(declared));
                for ((expected, is), feed) in all.filter(|((expected, is), _)| !same_rows(expected, is)) {
                    eprintln!("{feed:?} is\n{is:?}, by the law\n{expected:?}");
                }
                eprintln!("of {declared:?}");
                panic!("{what}: row {at} of {name} is {of:?}, by the law {by_law:?}");
            }
        }
    }
}

/// Returns the number, key and mixed number of each row.
fn known_columns(rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    rows.into_iter().map(|row| row[..2].to_vec()).collect()
}

/// Returns the outcome of the interpreter of programs as they run.
fn of_reference(program: &Program, declared: &Declared, records: &[Vec<Vec<Event>>]) -> Outcome {
    let mut reference = Reference::new(program);
    let mut numbers: Vec<Vec<usize>> = (0..records.len()).map(|source| vec![source]).collect();
    let mut next = records.len();
    for (source, splits) in records.iter().enumerate().filter(|(_, splits)| splits.len() > 1) {
        reference.split(source);
        for _ in 1..splits.len() {
            reference.join(source, None);
            numbers[source].push(next);
            next += 1;
        }
    }
    for (splits, numbers) in records.iter().zip(&numbers) {
        for (records, &number) in splits.iter().zip(numbers) {
            records.iter().for_each(|record| {
                reference.take(number, record.row(declared.time));
            });
        }
    }
    let mut passing: Vec<u64> = (0..next).map(|split| reference.held(split)).collect();
    while let Some(event) = reference.next_event(&mut passing) {
        reference.run_due(event.position.time);
        reference.process(event);
    }
    reference.end();
    Outcome {
        outputs: program.sinks.iter().map(|sink| reference.output(sink.stream).to_vec()).collect(),
        tables: (0..declared.tables.len()).map(|t| known_columns(reference.table(TableId::from(t)))).collect(),
    }
}

/// The splits of a source, which are there from the start.
struct InSplits {
    schema: Schema,
    records: Vec<Vec<Vec<Value>>>,
    size: usize,
}

impl Splits for InSplits {
    fn new_splits(&mut self, known: &[String]) -> Result<Vec<String>, IoFailure> {
        let names = (0..self.records.len()).map(|split| split.to_string());
        Ok(names.filter(|name| !known.contains(name)).collect())
    }

    fn open(&mut self, name: &str) -> Result<Box<dyn Source>, IoFailure> {
        let split: usize = name.parse().expect("names are numbers");
        Ok(Box::new(Batches::new(&self.schema, &self.records[split], self.size)))
    }
}

impl Source for InSplits {
    fn splits(&mut self) -> Option<&mut dyn Splits> {
        Some(self)
    }

    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        panic!("its splits are read")
    }
}

/// Returns the outcome of the engine.
fn of_engine(
    engine: &Engine,
    declared: &Declared,
    records: &[Vec<Vec<Event>>],
    options: Options,
    size: usize,
) -> Outcome {
    let program = engine.program();
    let sources = program.streams.iter().filter(|stream| matches!(stream.origin, Origin::Source { .. }));
    let open = |(of, splits): (&tidemill_plan::Stream, &Vec<Vec<Event>>)| {
        let row = |event: &Event| event.row(declared.time);
        let records: Vec<Vec<Vec<Value>>> = splits.iter().map(|split| split.iter().map(row).collect()).collect();
        match &records[..] {
            [one] => Box::new(Batches::new(&of.schema, one, size)) as Box<dyn Source>,
            _ => Box::new(InSplits { schema: of.schema.clone(), records, size }),
        }
    };
    let kept: Vec<Kept> = program.sinks.iter().map(|_| Kept::default()).collect();
    let sinks = kept.iter().map(|kept| Box::new(kept.clone()) as Box<dyn Sink>).collect();
    let request = Request::new(sources.zip(records).map(open).collect(), sinks, Arc::new(Sockets::by(size)));
    engine.run(Request { options, ..request }, &mut || {}).expect("a run in memory");
    let output = |(kept, sink): (&Kept, &tidemill_plan::Sink)| {
        let schema = &program.streams[sink.stream].schema;
        kept.0.lock().iter().flat_map(|batch| rows(batch, schema)).collect()
    };
    let table = |table: usize| {
        let id = TableId::from(table);
        let schema = crate::support::table_schema(&program.tables[id]);
        known_columns(rows(&engine.table(id).expect("in memory"), &schema))
    };
    Outcome {
        outputs: kept.iter().zip(&program.sinks).map(output).collect(),
        tables: (0..declared.tables.len()).map(table).collect(),
    }
}

/// Holds a program against the law.
fn check(seed: u64, tally: &mut Tally) {
    let declared = random_program(seed);
    let program = analyze(&plan(&declared)).unwrap_or_else(|errors| panic!("seed {seed}: {errors:?}"));
    let mut engine = Engine::new(program.clone()).expect("it compiles");
    for data in 0..DATA {
        let mut random = Random::new(seed * 1_000 + data);
        let records = random_records(&mut random, &declared);
        let law = Law::run(&declared, &records, None);
        law.tally.iter().for_each(|(what, count)| *tally.entry(what.clone()).or_default() += count);
        let expected = Outcome::of_law(&law, &declared);
        let what = format!("seed {seed}, data {data}");
        expected.check(&of_reference(&program, &declared, &records), &declared, &format!("{what}, reference"));
        for (workers, events) in [(1, 1), (1, 7), (1, 16_384), (2, 1), (2, 7), (2, 16_384)] {
            engine = engine.with_empty_tables();
            let options = Options { workers, epoch: EpochSize::Events(events), ..Options::default() };
            let is = of_engine(&engine, &declared, &records, options, 1 + random.below(20));
            expected.check(&is, &declared, &format!("{what}, {workers} workers, epochs of {events} events"));
        }
    }
}

/// Checks that the reference and the engine do what is declared.
#[test]
fn programs_are_what_they_mean() {
    let first = crate::number("TIDEMILL_SEED", 1);
    let (mut tally, start) = (Tally::new(), Instant::now());
    for seed in first..first + crate::number("TIDEMILL_PROGRAMS", PROGRAMS) {
        check(seed, &mut tally);
    }
    println!("{PROGRAMS} programs in {:?}: {tally:?}", start.elapsed());
    for kind in KINDS {
        let count = tally.get(kind).copied().unwrap_or_default();
        assert!(count >= LEAST, "{kind}: {count} results");
    }
}

/// Whatever the law had wrong would be seen.
#[test]
fn mistakes_in_the_meaning_are_seen() {
    let mut seen = vec![0; Mistake::ALL.len()];
    for seed in 1..=MISTAKEN {
        let declared = random_program(seed);
        let records = random_records(&mut Random::new(seed * 1_000), &declared);
        let right = Outcome::of_law(&Law::run(&declared, &records, None), &declared);
        for (mistake, count) in Mistake::ALL.into_iter().zip(&mut seen) {
            let wrong = Outcome::of_law(&Law::run(&declared, &records, Some(mistake)), &declared);
            *count += u64::from(wrong != right);
        }
    }
    println!("{:?}", Mistake::ALL.iter().zip(&seen).collect::<Vec<_>>());
    for (mistake, count) in Mistake::ALL.into_iter().zip(seen) {
        assert!(count >= 2, "{mistake:?} shows in {count} of {MISTAKEN} programs");
    }
}
