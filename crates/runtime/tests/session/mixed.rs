//! Events without event time that are sent beside events with one: each stands after everything that has passed.

use crate::session::{close, start};
use crate::support::{Batches, Kept, Subject};
use std::sync::Arc;
use std::time::Duration;
use tidemill_connect::System;
use tidemill_histories::History;
use tidemill_io::{Sink, Source};
use tidemill_model::arrow::batch_of;
use tidemill_model::{Type, Value};
use tidemill_plan::Plan;
use tidemill_plan::build::{PlanBuilder, TransactionBuilder, cell, event, named};
use tidemill_runtime::{Engine, EpochSize, Followed, Options, Request, RunError, SentSource, Session, Slow};

/// Both sources write the last number that came to a row, and give the one before.
fn plan() -> Plan {
    let replace = |t: TransactionBuilder| {
        t.create("row", "rows", [0.into()]).body(|b| {
            b.assign("before", cell("row", "n"));
            b.set("row", "n", event("n"));
            b.give([("n", event("n")), ("before", tidemill_plan::build::local("before"))]);
        })
    };
    PlanBuilder::new("mixed")
        .table("rows", |t| t.key("key", Type::Int).column_or("n", Type::Int, Value::Int(0)))
        .source("timed", |s| s.event_time("at", Type::Int).field("n", Type::Int).lateness(2))
        .source("asked", |s| s.field("n", Type::Int))
        .transaction("of_timed", [named("timed")], replace)
        .transaction("of_asked", [named("asked")], replace)
        .build()
}

fn subject() -> Subject {
    Subject::new(History { plan: plan(), preload: vec![], sources: vec![vec![], vec![]] })
}

fn send(session: &Session, subject: &Subject, source: usize, values: &[i64]) {
    let schema = &subject.program.sources().nth(source).expect("a source").schema;
    let row = values.iter().map(|&value| Value::Int(value)).collect();
    session.send(source, &batch_of(schema, &[row]), None).expect("it runs");
}

/// Returns the outputs of a stream: a number, and the one before.
fn given(subject: &Subject, kept: &[Kept], stream: &str) -> Vec<(i64, i64)> {
    let named = |sink: &tidemill_plan::Sink| subject.program.streams[sink.stream].name == stream;
    let sink = subject.program.sinks.iter().position(named).expect("every stream has a sink");
    let schema = &subject.program.streams[subject.program.sinks[sink].stream].schema;
    let rows =
        kept[sink].0.lock().iter().flat_map(|batch| tidemill_model::arrow::rows(batch, schema)).collect::<Vec<_>>();
    rows.iter().map(|row| (row[0].word().expect("an int"), row[1].word().expect("an int"))).collect()
}

#[test]
fn what_is_sent_without_a_time_waits_for_none() {
    for workers in [1, 3] {
        let subject = subject();
        let (session, kept) = start(&subject, Options { workers, ..Options::default() });
        // No time was shown yet.
        send(&session, &subject, 1, &[1]);
        session.flush(None).expect("it runs");
        // Time 5 is held back by the lateness: time 3 may come. What is sent does not wait for it.
        send(&session, &subject, 0, &[5, 50]);
        send(&session, &subject, 1, &[2]);
        let flushed = session.flush(None).expect("it runs");
        assert_eq!(flushed.held, [1, 0]);
        send(&session, &subject, 0, &[3, 30]);
        send(&session, &subject, 0, &[7, 70]);
        session.flush(None).expect("it runs");
        send(&session, &subject, 1, &[3]);
        // The end of the session releases 7, too.
        session.flush(None).expect("it runs");
        close(&session);
        assert_eq!(given(&subject, &kept, "of_asked.committed"), [(1, 0), (2, 1), (3, 50)], "{workers} workers");
        assert_eq!(given(&subject, &kept, "of_timed.committed"), [(30, 2), (50, 30), (70, 3)], "{workers} workers");
    }
}

/// The last epochs of a run wait for a follower one after the other.
#[test]
fn a_follower_that_is_waited_for_gets_the_last_epochs() {
    let subject = subject();
    let (session, _) = start(&subject, Options { workers: 1, epoch: EpochSize::Events(1), ..Options::default() });
    let stream = session.stream("of_asked.committed").expect("a stream");
    let following = session.follow(stream, Slow::Waits, 1).expect("it runs");
    for n in 0..3 {
        send(&session, &subject, 1, &[n]);
    }
    session.stop_sending();
    // The gate and the workers come to their end, and the committer waits.
    std::thread::sleep(Duration::from_millis(100));
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut events = 0;
            while let Followed::Events(released) = following.next(None) {
                events += released.batch.num_rows();
                std::thread::sleep(Duration::from_millis(2));
            }
            events
        });
        close(&session);
        reader.join().expect("no panic")
    });
    assert_eq!(read, 3);
}

fn request(subject: &Subject, asked: Box<dyn Source>) -> Request {
    let schema = &subject.program.sources().next().expect("a source").schema;
    let timed = [[1, 10], [4, 40]].map(|row| row.map(Value::Int).to_vec());
    Request::new(
        vec![Box::new(Batches::new(schema, &timed, 1)), asked],
        subject.program.sinks.iter().map(|_| Box::new(Kept::default()) as Box<dyn Sink>).collect(),
        Arc::new(System::new()),
    )
}

#[test]
fn events_without_a_time_are_not_read_beside_events_with_one() {
    let subject = subject();
    let engine = Engine::new(subject.program.clone()).expect("it compiles");
    let schema = &subject.program.sources().nth(1).expect("two sources").schema;
    let read = Box::new(Batches::new(schema, &[vec![Value::Int(1)]], 1));
    match engine.run(request(&subject, read), &mut || {}) {
        Err(RunError::Source { name, failure }) => {
            assert_eq!(name, "asked");
            let text = "its events have no event time, but those of source 'timed' have one: they can be sent, and not be read";
            assert_eq!(failure.to_string(), text);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_that_nobody_sends_to_ends() {
    let subject = subject();
    let engine = Engine::new(subject.program.clone()).expect("it compiles");
    let summary = engine.run(request(&subject, Box::new(SentSource)), &mut || {}).expect("a run in memory");
    assert_eq!(summary.events, 2);
}

/// Events that are sent without a time get that of their position: after what has passed, and after what was due.
#[test]
fn what_is_sent_gets_the_time_of_its_position() {
    for workers in [1, 3] {
        let give = |t: TransactionBuilder| {
            t.create("row", "rows", [0.into()]).body(|b| b.give([("n", event("n")), ("at", event("at"))]))
        };
        let plan = PlanBuilder::new("times")
            .table("rows", |t| t.key("key", Type::Int).column_or("n", Type::Int, Value::Int(0)))
            .source("timed", |s| s.event_time("at", Type::Int).field("n", Type::Int).lateness(2))
            .source("asked", |s| s.field("n", Type::Int).event_time("at", Type::Int).anchored())
            .every("ticks", Value::Int(10), 0)
            .transaction("of_timed", [named("timed")], give)
            .transaction("of_asked", [named("asked")], give)
            .transaction("of_ticks", [named("ticks")], |t| {
                t.create("row", "rows", [0.into()]).body(|b| b.give([("n", 0.into()), ("at", event("at"))]))
            })
            .build();
        let subject = Subject::new(History { plan, preload: vec![], sources: vec![vec![], vec![]] });
        let (session, kept) = start(&subject, Options { workers, ..Options::default() });
        let ask = |n: i64| {
            let schema = &subject.program.sources().nth(1).expect("a source").brought();
            session.send(1, &batch_of(schema, &[vec![Value::Int(n)]]), None).expect("it runs");
            session.flush(None).expect("it runs").held
        };
        // No time was shown yet: it waits for one.
        assert_eq!(ask(1), [0, 1]);
        send(&session, &subject, 0, &[5, 50]);
        assert_eq!(session.flush(None).expect("it runs").held, [1, 1]);
        send(&session, &subject, 0, &[7, 70]);
        assert_eq!(session.flush(None).expect("it runs").held, [1, 0]);
        assert_eq!(ask(2), [1, 0]);
        // The tick of 10 runs, though no event of that time has passed.
        send(&session, &subject, 0, &[12, 120]);
        session.flush(None).expect("it runs");
        assert_eq!(ask(3), [1, 0]);
        close(&session);
        assert_eq!(given(&subject, &kept, "of_asked.committed"), [(1, 5), (2, 5), (3, 10)], "{workers} workers");
        assert_eq!(given(&subject, &kept, "of_ticks.committed"), [(0, 10)], "{workers} workers");
    }
}
