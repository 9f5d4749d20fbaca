//! A sync that fails and a disk that is full, at each call of a run: the run ends with the reason, and the next run has
//! lost nothing.

use crate::child::history;
use crate::support::Subject;
use crate::trial::{Expected, Setting, Whole, new_machine, process};
use std::io::ErrorKind::{Other, StorageFull};
use std::sync::Arc;
use tidemill_durability::{Storage, read_all};
use tidemill_runtime::{Engine, RunError};
use tidemill_sim::{Call, Fault, Operation};

/// Events that make for some thousand calls.
const EVENTS_MIN: usize = 60;

/// Returns whether a run may go on after a fault: the state waits for room, and without a note, for which outputs are looked at and
/// opened once more, everything is right.
fn may_go_on(call: &Call, fault: Fault) -> bool {
    let waits =
        matches!(fault, Fault::Refused(StorageFull) | Fault::Half(StorageFull)) && call.path.starts_with("state");
    let looks = matches!(call.operation, Operation::Look | Operation::Open) && call.path.starts_with("out");
    waits || looks || call.path.to_string_lossy().ends_with(".tidemill-note")
}

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
        for fault in [Fault::Dropped(Other), Fault::Refused(StorageFull), Fault::Half(StorageFull)] {
            let machine = new_machine(at as u64);
            let storage: Arc<dyn Storage> = Arc::new(machine.clone());
            let begin = machine.call_count();
            if calls > 0 {
                machine.fail(begin + at, fault);
            }
            engine = engine.with_empty_tables();
            let ended = process(&expected.subject.history, &engine, &storage, &setting);
            // The number of calls follows from threads: another run may have made more.
            let made = machine.calls().get(begin + at).filter(|_| calls > 0).cloned();
            faults += usize::from(made.is_some());
            match ended {
                Ok(_) => {
                    let noticed = made.filter(|call| !may_go_on(call, fault));
                    assert_eq!(noticed, None, "call {at}, {fault:?}: nothing is said");
                }
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
                .unwrap_or_else(|error| panic!("after call {at}, {fault:?}: {error}"));
            assert_eq!(expected.wrong_outputs(read, Whole::There), None, "after call {at}, {fault:?}");
            assert_eq!(expected.wrong_tables(&engine), None, "after call {at}, {fault:?}");
        }
        at += calls.div_ceil(super::number("TIDEMILL_FAULTS", 100) as usize).max(1);
    }
    println!("{faults} faults at {calls} calls, {failed} ended their run");
}

/// The beginnings of the paths that are synced: each kind without room.
const SYNCED: [&str; 3] = ["state/log", "state/manifest", "state/checkpoint"];
const SWEEPS_MAX: usize = 20;

/// A sync that finds no room is a failed sync: what it was to make durable may be gone, whatever a later one says. With
/// next to no memory, so that checkpoints make durable what was spilled before.
#[test]
fn a_sync_without_room_ends_the_run() {
    let (program, history, setting) = history(EVENTS_MIN / 4);
    let setting = Setting { memory: Some(1), ..setting };
    let expected = Expected::new(Subject::new(history));
    let mut engine = Engine::new(program).expect("random plans compile");
    let is_sync = |call: &Call| {
        // A segment of the log that has no name yet is made anew.
        let has_no_name = call.path.starts_with("state/log") && call.path.extension().is_some_and(|end| end == "new");
        matches!(call.operation, Operation::Sync | Operation::SyncDirectory) && !has_no_name
    };
    // The first run has no fault, and counts.
    let (mut at, mut calls, mut sweeps, mut syncs) = (0, 0, 0, [0; SYNCED.len()]);
    // Epochs that meet in the log share a sync, so how many there are of a kind follows from threads.
    while at <= calls || sweeps < SWEEPS_MAX && syncs.contains(&0) {
        if at > calls {
            sweeps += 1;
            at = sweeps;
        }
        let machine = new_machine(at as u64);
        let storage: Arc<dyn Storage> = Arc::new(machine.clone());
        let begin = machine.call_count();
        if calls > 0 {
            machine.fail(begin + at, Fault::Dropped(StorageFull));
        }
        engine = engine.with_empty_tables();
        let ended = process(&expected.subject.history, &engine, &storage, &setting);
        calls = calls.max(machine.call_count() - begin);
        machine.heal();
        if let Some(call) = machine.calls().get(begin + at).filter(|call| at > 0 && is_sync(call)) {
            let path = call.path.to_string_lossy();
            syncs.iter_mut().zip(SYNCED).for_each(|(syncs, of)| *syncs += usize::from(path.starts_with(of)));
            assert!(ended.is_err(), "call {at}, {call:?}");
            machine.cut_power();
            engine = engine.with_empty_tables();
            process(&expected.subject.history, &engine, &storage, &setting)
                .unwrap_or_else(|error| panic!("after call {at}, {call:?}: {error}"));
            let read = |path: &std::path::Path| read_all(&machine, path);
            assert_eq!(expected.wrong_outputs(read, Whole::There), None, "after call {at}, {call:?}");
            assert_eq!(expected.wrong_tables(&engine), None, "after call {at}, {call:?}");
        }
        at += calls.div_ceil(4 * super::number("TIDEMILL_FAULTS", 100) as usize).max(1);
    }
    println!("syncs without room of {SYNCED:?}: {syncs:?}");
    assert!(!syncs.contains(&0), "{SYNCED:?}: {syncs:?}");
}
