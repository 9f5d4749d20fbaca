//! Tables that are read while epochs run: each reader has the state after its epoch, however late it reads, beside other
//! readers, checkpoints and evictions.

use super::{each_random, source_streams, start_on};
use crate::support::{Subject, table_schema};
use arrow_array::{Array, RecordBatch};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tidemill_durability::{Identity, OpenState, StateDirectory};
use tidemill_histories::{Random, same_rows};
use tidemill_model::Value;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::TableId;
use tidemill_reference::Reference;
use tidemill_runtime::{Asked, Durability, DurabilityOptions, Options};
use tidemill_sim::SimStorage;

/// The wishes of a read, and the rows of each table at that place.
type Read = (Asked, Vec<Vec<Vec<Value>>>);

fn check(subject: &Subject, (asked, expected): &Read, what: &str) {
    let read = asked.tables(None).expect("it runs").tables;
    assert_eq!(read.len(), expected.len());
    for ((batch, expected), table) in read.iter().zip(expected).zip(&subject.program.tables) {
        let ours = rows(batch, &table_schema(table));
        assert!(same_rows(&ours, expected), "{what}: what was read of {} differs", table.name);
    }
}

/// Returns a state with frequent checkpoints, and in half of the cases memory for next to no rows.
fn durable(subject: &Subject, options: &mut Options, random: &mut Random) -> Durability {
    let machine = SimStorage::new(random.below(1 << 30) as u64);
    options.memory = random.chance(50).then_some(1).filter(|_| subject.program.scan().is_none());
    durable_on(&machine, subject, random)
}

/// Returns a state on a machine, with frequent checkpoints.
pub fn durable_on(machine: &SimStorage, subject: &Subject, random: &mut Random) -> Durability {
    let how = OpenState {
        storage: Arc::new(machine.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program: Identity::of(&subject.program),
        recorded: None,
    };
    let directory = StateDirectory::open(how).expect("a state of the program");
    let checkpoint_events = 1 + random.below(20) as u64;
    Durability { directory, options: DurabilityOptions { checkpoint_events, ..DurabilityOptions::default() } }
}

fn readers_have_their_epochs(is_durable: bool) {
    each_random(false, |subject, mut options, random, what| {
        let durability = is_durable.then(|| durable(&subject, &mut options, random));
        let (session, _) = start_on(&subject, options, durability);
        let program = &subject.program;
        let streams = source_streams(program);
        let mut reference = Reference::new(program);
        subject.history.preload.iter().for_each(|(table, rows)| reference.preload(*table, rows.clone()));
        (0..streams.len()).for_each(|source| reference.send(source, true));
        let tables: Vec<TableId> = program.tables.keys().collect();
        let (to_reader, given) = channel::<Read>();
        thread::scope(|scope| {
            let subject = &subject;
            let read_all = move |given: Receiver<Read>| given.iter().for_each(|read| check(subject, &read, what));
            scope.spawn(move || read_all(given));
            let mut held: VecDeque<Read> = VecDeque::new();
            let mut left: Vec<&[Vec<Value>]> = subject.history.sources.iter().map(Vec::as_slice).collect();
            while left.iter().any(|records| !records.is_empty()) {
                let source = random.below(left.len());
                let (some, rest) = left[source].split_at(left[source].len().min(1 + random.below(7)));
                left[source] = rest;
                session.send(source, &batch_of(&program.streams[streams[source]].schema, some), None).expect("it runs");
                for record in some {
                    assert!(reference.take(source, record.clone()), "{what}: nothing is late");
                    let next = reference.next_of(source);
                    reference.process(next);
                }
                for _ in 0..random.below(3) {
                    let asked = session.ask(tables.clone(), None).expect("it runs");
                    let read = (asked, tables.iter().map(|&table| reference.table(table)).collect());
                    match random.below(3) {
                        0 => to_reader.send(read).expect("it reads"),
                        // Some give up.
                        1 if random.chance(20) => {}
                        _ => held.push_back(read),
                    }
                }
                if held.len() > 3 {
                    check(subject, &held.pop_front().expect("four"), what);
                }
            }
            drop(to_reader);
            held.iter().for_each(|read| check(subject, read, what));
        });
        super::close(&session);
    });
}

#[test]
fn readers_have_their_epochs_in_memory() {
    readers_have_their_epochs(false);
}

#[test]
fn readers_have_their_epochs_beside_checkpoints_and_evictions() {
    readers_have_their_epochs(true);
}

#[test]
fn a_table_that_did_not_change_is_copied_once() {
    let (subject, session) = super::a_session();
    let (stream, source) = (source_streams(&subject.program)[0], 0);
    let tables: Vec<TableId> = subject.program.tables.keys().collect();
    let read = || session.tables(&tables, None).expect("it runs").tables;
    let same = |a: &RecordBatch, b: &RecordBatch| {
        a.columns().iter().zip(b.columns()).all(|(a, b)| a.to_data().ptr_eq(&b.to_data()))
    };
    let schema = &subject.program.streams[stream].schema;
    let records = &subject.history.sources[source];
    session.send(source, &batch_of(schema, &records[..1]), None).expect("it runs");
    let (first, second) = (read(), read());
    assert!(first.iter().zip(&second).all(|(a, b)| same(a, b)), "nothing was sent between");
    session.send(source, &batch_of(schema, &records[1..]), None).expect("it runs");
    let third = read();
    let changed: Vec<bool> = first.iter().zip(&third).map(|(a, b)| a != b).collect();
    assert!(changed.contains(&true), "the history changes a table");
    for ((a, b), changed) in first.iter().zip(&third).zip(changed) {
        assert!(!changed || !same(a, b));
    }
    super::close(&session);
}
