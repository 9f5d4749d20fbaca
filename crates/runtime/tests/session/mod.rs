//! Sessions: what is sent gives the same as what is read; copies of tables are those of one epoch; followers get all
//! events, in order.

mod full;
mod mixed;
mod pushes;
mod readers;
mod savepoints;

use crate::support::{Kept, Sockets, Subject, table_schema};
use crate::{configuration, number, watchdog};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tidemill_connect::System;
use tidemill_histories::{DataShape, History, Random, mixed_plan, random_data, same_rows};
use tidemill_io::Sink;
use tidemill_model::Value;
use tidemill_model::arrow::{batch_of, rows};
use tidemill_plan::{Origin, Program, StreamId};
use tidemill_reference::Reference;
use tidemill_runtime::{
    Durability, Engine, Followed, Following, Logging, Options, Request, SentSource, Session, SessionError, Slow,
    Summary,
};

/// The number of data sets for each plan.
const DATA_PER_PLAN: u64 = 4;

fn source_streams(program: &Program) -> Vec<StreamId> {
    let is_source = |id: &StreamId| matches!(program.streams[*id].origin, Origin::Source { .. });
    program.streams.keys().filter(is_source).collect()
}

fn start(subject: &Subject, options: Options) -> (Session, Vec<Kept>) {
    start_on(subject, options, None)
}

fn start_on(subject: &Subject, options: Options, durability: Option<Durability>) -> (Session, Vec<Kept>) {
    let engine = Engine::for_session(subject.program.clone(), Logging::default()).expect("it compiles");
    if durability.as_ref().is_none_or(|durability| durability.directory.is_new()) {
        subject.preload(&engine);
    }
    let kept: Vec<Kept> = subject.program.sinks.iter().map(|_| Kept::default()).collect();
    let request = Request {
        options,
        durability,
        ..Request::new(
            source_streams(&subject.program).iter().map(|_| Box::new(SentSource) as Box<_>).collect(),
            kept.iter().map(|kept| Box::new(kept.clone()) as Box<dyn Sink>).collect(),
            Arc::new(Sockets { system: System::new(), count: 1, processors: 2, haste: 1 }),
        )
    };
    (Session::start(engine, request, &mut || {}, Box::new(|| {})).expect("it starts"), kept)
}

/// Reads a follower to its end.
fn read(program: &Program, following: &Following) -> Vec<Vec<Value>> {
    let schema = &program.streams[following.stream()].schema;
    let (mut all, mut last) = (Vec::new(), 0);
    loop {
        match following.next(None) {
            Followed::Events(released) => {
                assert!(released.epoch >= last, "epochs are released in order");
                last = released.epoch;
                all.extend(rows(&released.batch, schema));
            }
            Followed::Over => return all,
            other => panic!("a follower that is waited for gets {other:?}"),
        }
    }
}

fn close(session: &Session) -> Summary {
    session.close(&mut || {}).expect("closed once").expect("a run in memory")
}

/// Subjects that each test has, however slow the machine is.
const SUBJECTS_MIN: usize = 20;

/// Calls `each` with random subjects, whose sources have event times or not.
fn each_random(has_times: bool, mut each: impl FnMut(Subject, Options, &mut Random, &str)) {
    let plans = (number("TIDEMILL_HISTORIES", 2_000) / 100).clamp(10, 300);
    let first = number("TIDEMILL_SEED", 1);
    let (mut subjects, start) = (0, Instant::now());
    for seed in first..first + plans {
        if subjects >= SUBJECTS_MIN && !crate::has_time_for_part(start) {
            break;
        }
        let plan = mixed_plan(seed);
        let program = tidemill_plan::analyze(&plan).expect("random plans are valid");
        let times = source_streams(&program).iter().all(|&id| program.streams[id].event_time.is_some());
        if times != has_times {
            continue;
        }
        for data_seed in seed * 1_000..seed * 1_000 + DATA_PER_PLAN {
            let (preload, sources) = random_data(&program, data_seed, DataShape::random(data_seed));
            let subject = Subject::new(History { plan: plan.clone(), preload, sources });
            let mut random = Random::new(data_seed);
            let (options, _) = configuration(&mut random);
            let what = format!("seed {seed}, data {data_seed}, {options:?}");
            watchdog().begins(what.clone());
            each(subject, options, &mut random, &what);
            watchdog().ends();
            subjects += 1;
        }
    }
    assert!(subjects > 0, "some plans are of that kind");
}

#[test]
fn events_with_times_are_sent_by_several_threads() {
    each_random(true, |subject, options, random, what| {
        let (session, kept) = start(&subject, options);
        let program = &subject.program;
        let followed: Vec<Following> = program
            .sinks
            .iter()
            .map(|sink| session.follow(sink.stream, Slow::Waits, 1 + random.below(50)).expect("it runs"))
            .collect();
        let sizes: Vec<usize> = program.streams.iter().map(|_| 1 + random.below(40)).collect();
        let (session, sizes) = (&session, &sizes);
        let streamed: Vec<Vec<Vec<Value>>> = thread::scope(|scope| {
            let readers: Vec<_> =
                followed.iter().map(|following| scope.spawn(move || read(program, following))).collect();
            let senders = source_streams(program).into_iter().zip(&subject.history.sources).enumerate();
            let senders: Vec<_> = senders
                .map(|(source, (stream, records))| {
                    scope.spawn(move || {
                        for some in records.chunks(sizes[source]) {
                            let batch = batch_of(&program.streams[stream].schema, some);
                            assert_eq!(session.send(source, &batch, None).expect("there is time"), some.len());
                        }
                        session.end_source(source, None).expect("it runs");
                    })
                })
                .collect();
            senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
            session.flush(None).expect("it runs");
            session.stop_sending();
            readers.into_iter().map(|reader| reader.join().expect("no panic")).collect()
        });
        let summary = close(session);
        if let Some(difference) = subject.difference(&Subject::outcome(session.engine(), &kept, &summary)) {
            panic!("{what}:\n{difference}");
        }
        for (sink, (streamed, expected)) in program.sinks.iter().zip(streamed.iter().zip(&subject.expected.outputs)) {
            assert!(same_rows(streamed, expected), "{what}: the followers of {} differ", sink.name);
        }
    });
}

#[test]
fn what_is_sent_without_times_runs_in_the_order_of_sending() {
    each_random(false, |subject, options, random, what| {
        let (session, kept) = start(&subject, options);
        let program = &subject.program;
        let streams = source_streams(program);
        let mut reference = Reference::new(program);
        subject.history.preload.iter().for_each(|(table, rows)| reference.preload(*table, rows.clone()));
        (0..streams.len()).for_each(|source| reference.send(source, true));
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
            if random.chance(10) {
                let tables: Vec<_> = program.tables.keys().collect();
                let copied = session.tables(&tables, None).expect("it runs").tables;
                for (batch, (table, definition)) in copied.iter().zip(program.tables.iter_enumerated()) {
                    let ours = rows(batch, &table_schema(definition));
                    assert!(same_rows(&ours, &reference.table(table)), "{what}: a copy of {}", definition.name);
                }
            }
        }
        let flushed = session.flush(None).expect("it runs");
        assert!(flushed.held.iter().all(|held| *held == 0), "{what}: nothing is held");
        let summary = close(&session);
        reference.end();
        let outcome = Subject::outcome(session.engine(), &kept, &summary);
        for (sink, ours) in program.sinks.iter().zip(&outcome.outputs) {
            assert!(same_rows(ours, reference.output(sink.stream)), "{what}: sink {} differs", sink.name);
        }
        for (ours, table) in outcome.tables.iter().zip(program.tables.keys()) {
            assert!(same_rows(ours, &reference.table(table)), "{what}: a table differs");
        }
    });
}

#[test]
fn punctuations_let_events_pass_and_make_others_late() {
    each_random(true, |subject, options, random, what| {
        let (session, kept) = start(&subject, options);
        let program = &subject.program;
        let streams = source_streams(program);
        let mut reference = Reference::new(program);
        subject.history.preload.iter().for_each(|(table, rows)| reference.preload(*table, rows.clone()));
        let mut left: Vec<&[Vec<Value>]> = subject.history.sources.iter().map(Vec::as_slice).collect();
        while left.iter().any(|records| !records.is_empty()) {
            let source = random.below(left.len());
            let (some, rest) = left[source].split_at(left[source].len().min(1 + random.below(7)));
            left[source] = rest;
            let stream = &program.streams[streams[source]];
            session.send(source, &batch_of(&stream.schema, some), None).expect("it runs");
            some.iter().for_each(|record| _ = reference.take(source, record.clone()));
            let field = stream.event_time.expect("its events have times");
            if let Some(time) = some.last().and_then(|last| last[field].word()).filter(|_| random.chance(50)) {
                let time = time.saturating_add(random.below(8) as i64 - 3);
                session.punctuate(source, time, None).expect("it has times");
                reference.punctuate(source, time);
            }
            if random.chance(10) {
                session.flush(None).expect("it runs");
            }
        }
        let summary = close(&session);
        let mut passing: Vec<u64> = (0..streams.len()).map(|source| reference.held(source)).collect();
        while let Some(next) = reference.next_event(&mut passing) {
            reference.run_due(next.position.time);
            reference.process(next);
        }
        reference.end();
        let outcome = Subject::outcome(session.engine(), &kept, &summary);
        for (sink, ours) in program.sinks.iter().zip(&outcome.outputs) {
            assert!(same_rows(ours, reference.output(sink.stream)), "{what}: sink {} differs", sink.name);
        }
        for (ours, table) in outcome.tables.iter().zip(program.tables.keys()) {
            assert!(same_rows(ours, &reference.table(table)), "{what}: a table differs");
        }
    });
}

/// Returns a session of a history's program, and the first source with its events.
fn a_session() -> (Subject, Session) {
    let (_, history) = tidemill_histories::adversarial().into_iter().next().expect("a history");
    let subject = Subject::new(history);
    let (session, _) = start(&subject, Options::default());
    (subject, session)
}

#[test]
fn what_cannot_be_done_is_said_at_once() {
    let (subject, session) = a_session();
    let stream = source_streams(&subject.program)[0];
    assert!(matches!(session.source("nobody"), Err(SessionError::NotSent(_))));
    assert!(matches!(session.stream("nothing"), Err(SessionError::NoStream(_))));
    assert!(matches!(session.table("nothing"), Err(SessionError::NoTable(_))));
    let wrong = batch_of(&tidemill_model::Schema::scalars([]), &[]);
    assert!(matches!(session.send(0, &wrong, None), Err(SessionError::Schema { .. })));
    let following = session.follow(stream, Slow::Misses, 10).expect("it runs");
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(matches!(following.next(Some(soon)), Followed::Nothing));
    session.stop();
    close(&session);
    assert!(matches!(following.next(None), Followed::Over));
    assert!(matches!(session.flush(None), Err(SessionError::Over)));
    assert!(session.follow(stream, Slow::Misses, 10).is_err());
    assert!(session.is_over() && session.close(&mut || {}).is_none());
}
