//! Replies that do not wait for the disk.

use crate::calls::{NAMES, Said, plan, released, said};
use crate::session::start;
use std::path::Path;
use std::time::{Duration, Instant};
use tidemill_durability::Storage;
use tidemill_model::Value;
use tidemill_model::arrow::batch_of;
use tidemill_plan::analyze;
use tidemill_runtime::{SessionError, When};
use tidemill_sim::SimStorage;

/// While the disk of the state does not answer, calls that ask for it are replied to, and no other. A crash then takes both back.
#[test]
fn an_executed_call_is_replied_to_before_the_disk_has_it() {
    for (seed, crashes) in [(1, false), (2, true)] {
        let plan = plan(None);
        let program = analyze(&plan).expect("a right plan");
        let machine = SimStorage::new(seed);
        machine.create_directory(Path::new("out")).expect("no fault");
        let session = start(&machine, &plan, &program, seed).expect("it starts");
        let add = session.procedure(NAMES[0]).expect("it can be called");
        let schema = &program.streams[program.transactions.raw[0].inputs[0]].schema;
        let call = |id: i64, n: i64, when: When| {
            let batch = batch_of(schema, &[[id, 1, n].map(Value::Int).to_vec()]);
            session.call_with(&add, &batch, &[], when, None).expect("there is room")
        };
        let replied = |id: i64, answered: tidemill_runtime::Answered| {
            let reply = answered.replies().next().expect("one call");
            said(&program, 0, &reply, id)
        };
        let mut first = call(0, 1, When::Durable);
        assert_eq!(replied(0, first.next(None).expect("it is durable").expect("an outcome")), Said::Value(1));
        let held = machine.hold_syncs(Path::new("state"));
        let mut early = call(1, 1, When::Executed);
        assert_eq!(replied(1, early.next(None).expect("it has run").expect("an outcome")), Said::Value(2));
        let mut late = call(2, 1, When::Durable);
        let mut soon = call(3, 2, When::Executed);
        assert_eq!(replied(3, soon.next(None).expect("it has run").expect("an outcome")), Said::Aborted(Some(3)));
        let waits = late.next(Some(Instant::now() + Duration::from_millis(50)));
        assert!(matches!(waits, Err(SessionError::Timeout)), "it is not durable");
        if crashes {
            machine.kill_power();
        }
        drop(held);
        if crashes {
            session.close(&mut || {}).expect("it is closed once").expect_err("the power is off");
            machine.cut_power();
            let session = start(&machine, &plan, &program, seed).expect("it starts again");
            session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
            let committed = released(&machine, 0, false);
            assert_eq!(committed.get(&0), Some(&Said::Value(1)), "what was durable is there");
            continue;
        }
        assert_eq!(replied(2, late.next(None).expect("it is durable").expect("an outcome")), Said::Value(3));
        session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
        let committed = released(&machine, 0, false);
        assert_eq!(
            committed.into_iter().collect::<Vec<_>>(),
            [(0, Said::Value(1)), (1, Said::Value(2)), (2, Said::Value(3))]
        );
    }
}

/// While the disk of the outputs does not answer, calls are replied to.
#[test]
fn a_sink_does_not_stand_between_a_call_and_its_reply() {
    let plan = plan(None);
    let program = analyze(&plan).expect("a right plan");
    let machine = SimStorage::new(1);
    machine.create_directory(Path::new("out")).expect("no fault");
    let session = start(&machine, &plan, &program, 0).expect("it starts");
    let add = session.procedure(NAMES[0]).expect("it can be called");
    let schema = &program.streams[program.transactions.raw[0].inputs[0]].schema;
    let held = machine.hold_syncs(Path::new("out"));
    for id in 0..20 {
        let batch = batch_of(schema, &[[id, id, 1].map(Value::Int).to_vec()]);
        let mut calling = session.call(&add, &batch, None).expect("there is room");
        let answered = calling.next(Some(Instant::now() + Duration::from_secs(60))).expect("it is durable");
        let reply = answered.expect("an outcome").replies().next().expect("one call");
        assert_eq!(said(&program, 0, &reply, id), Said::Value(1));
    }
    let is_out = |path: &std::path::PathBuf| path.starts_with("out") && path.ends_with("add");
    assert!(!machine.files().keys().any(is_out), "nothing is released yet");
    drop(held);
    session.close(&mut || {}).expect("it is closed once").expect("nothing fails");
    assert_eq!(released(&machine, 0, false).len(), 20);
}
