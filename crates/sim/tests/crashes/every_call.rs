//! A sync that fails and a disk that is full, at each call of a run: the run ends with the reason, and the next one has
//! lost nothing.

use crate::child::history;
use crate::support::Subject;
use crate::trial::{Expected, Whole, new_machine, process};
use std::io::ErrorKind::StorageFull;
use std::sync::Arc;
use tidemill_durability::{Storage, read_all};
use tidemill_runtime::{Engine, RunError};
use tidemill_sim::Fault;

/// Events that make for some thousand calls.
const EVENTS_MIN: usize = 60;

#[test]
fn faults_at_every_call() {
    let (program, history, setting) = history(EVENTS_MIN);
    let expected = Expected::new(Subject::new(history));
    let mut engine = Engine::new(program).expect("random plans compile");
    let mut calls = 0;
    // The first run has no fault, and counts.
    let mut at = 0;
    let (mut faults, mut failed) = (0, 0);
    while at <= calls {
        for fault in [Fault::Dropped, Fault::Refused(StorageFull), Fault::Half(StorageFull)] {
            let machine = new_machine(at as u64);
            let storage: Arc<dyn Storage> = Arc::new(machine.clone());
            let begin = machine.call_count();
            if calls > 0 {
                machine.fail(begin + at, fault);
                faults += 1;
            }
            engine = engine.with_empty_tables();
            match process(&expected.subject.history, &engine, &storage, &setting) {
                Ok(_) => {}
                Err(RunError::Panic(message)) => panic!("call {at}, {fault:?}: {message}"),
                Err(_) => failed += 1,
            }
            calls = calls.max(machine.call_count() - begin);
            machine.heal();
            let read = |path: &std::path::Path| read_all(&machine, path);
            assert_eq!(expected.wrong_outputs(read, Whole::IfThere), None, "call {at}, {fault:?}");
            // The machine stops, or the process only.
            match at % 2 {
                0 => machine.cut_power(),
                _ => machine.kill(),
            }
            engine = engine.with_empty_tables();
            process(&expected.subject.history, &engine, &storage, &setting)
                .unwrap_or_else(|error| panic!("behind call {at}, {fault:?}: {error}"));
            assert_eq!(expected.wrong_outputs(read, Whole::There), None, "behind call {at}, {fault:?}");
            assert_eq!(expected.wrong_tables(&engine), None, "behind call {at}, {fault:?}");
        }
        at += calls.div_ceil(super::number("TIDEMILL_FAULTS", 100) as usize).max(1);
    }
    assert!(failed * 2 > faults, "{failed} of {faults} were noticed");
    println!("{faults} faults at {calls} calls, {failed} ended their run");
}
