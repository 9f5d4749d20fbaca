//! A disk that fills up while a run goes on: no epoch is released, what was committed can be read, and the run
//! goes on by itself when there is room.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, Whole, new_machine, process};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_connect::Patience;
use tidemill_durability::{Planted, Storage, read_all};
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, EpochSize};
use tidemill_sim::SimStorage;

/// How long a full disk stays full.
const FULL: Duration = Duration::from_millis(400);
/// Log and sinks try again ten times a second, with a few calls each.
const CALLS_OF_WAITING: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_run_waits_for_room_and_goes_on() {
    let mut waited = 0;
    for seed in 1..=12 {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
        let engine = Engine::new(program).expect("random plans compile");
        let expected = Expected::new(Subject::new(History { plan, preload, sources }));
        let random = Setting::random(3, Planted::default());
        let patience = Some(Patience::default());
        let setting = Setting { epoch: EpochSize::Events(2), records: false, patience, ..random };
        let machine = new_machine(seed);
        let storage: Arc<dyn Storage> = Arc::new(machine.clone());
        let used = |machine: &SimStorage| machine.files().values().map(|bytes| bytes.len() as u64).sum::<u64>();
        let room = used(&machine) + 3_000;
        machine.set_capacity(Some(room));
        let done = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let ended = process(&expected.subject.history, &engine, &storage, &setting);
                done.store(true, Ordering::Release);
                ended
            });
            let begun = Instant::now();
            // It is full when nothing more comes.
            let (mut last, mut since) = (0, Instant::now());
            while !done.load(Ordering::Acquire) && since.elapsed() < FULL {
                assert!(begun.elapsed() < PATIENCE, "seed {seed}: the disk fills up");
                std::thread::sleep(Duration::from_millis(5));
                let now = machine.call_count() as u64;
                if now > last + CALLS_OF_WAITING {
                    (last, since) = (now, Instant::now());
                }
            }
            if !done.load(Ordering::Acquire) {
                waited += 1;
                assert!(used(&machine) <= room, "seed {seed}: the disk holds no more than it can");
                let wrong = expected.wrong_outputs(|path| read_all(&machine, path), Whole::IfThere);
                assert_eq!(wrong, None, "seed {seed}: what is there is whole, and can be read");
            }
            machine.set_capacity(None);
            run.join().expect("no panic")
        });
        let engine = match ended {
            Ok(_) => engine,
            // Without room for what a state begins with, a run is refused; with it, the same state is taken up.
            Err(error) => {
                assert!(error.to_string().ends_with("no storage space"), "seed {seed}: {error}");
                let engine = engine.with_empty_tables();
                let again = process(&expected.subject.history, &engine, &storage, &setting);
                again.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                engine
            }
        };
        assert_eq!(expected.wrong_outputs(|path| read_all(&machine, path), Whole::There), None, "seed {seed}");
        assert_eq!(expected.wrong_tables(&engine), None, "seed {seed}");
    }
    assert!(waited > 0, "some fill the disk");
}
