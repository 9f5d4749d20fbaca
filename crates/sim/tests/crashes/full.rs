//! A disk that fills up while a run goes on: no epoch is released, what was released can be read, and the run goes on by
//! itself when there is room, or ends without loss if it is asked to.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, Whole, new_machine, process, process_under};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_connect::Patience;
use tidemill_durability::{Planted, Storage, read_all};
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::analyze;
use tidemill_runtime::{Control, Engine, EpochSize};
use tidemill_sim::SimStorage;

/// The time for which nothing comes when a disk is full, and for which it is then watched.
const FULL: Duration = Duration::from_millis(400);
/// Log and sinks try again ten times a second, with a few calls each.
const CALLS_OF_WAITING: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives a disk room in the end, so that who waits for it ends, too.
struct Room<'a>(&'a SimStorage);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.set_capacity(None);
    }
}

#[test]
fn a_run_waits_for_room_and_goes_on() {
    let (mut waited, mut watched, mut stopped, mut read) = (0, 0, 0, 0);
    for seed in 1..=30 {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
        let engine = Engine::new(program).expect("random plans compile");
        let expected = Expected::new(Subject::new(History { plan, preload, sources }));
        let random = Setting::random(3, Planted::default());
        let patience = Some(Patience::default());
        let setting = Setting { epoch: EpochSize::Events(2), records: false, patience: patience.clone(), ..random };
        let control = Arc::new(Control::default());
        let machine = new_machine(seed);
        let storage: Arc<dyn Storage> = Arc::new(machine.clone());
        let used = |machine: &SimStorage| machine.files().values().map(|bytes| bytes.len() as u64).sum::<u64>();
        // Enough for what a state begins with, and some epochs.
        let room = used(&machine) + 2_500 + 500 * (seed % 8);
        machine.set_capacity(Some(room));
        let done = AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let ended = process_under(&expected.subject.history, &engine, &storage, &setting, &control);
                done.store(true, Ordering::Release);
                ended
            });
            let room_at_last = Room(&machine);
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
                read += expected.released(&machine).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
                let waits = || control.waits() || patience.as_ref().is_some_and(Patience::waits);
                let released = || control.epochs.load(Ordering::Acquire);
                let (waited_before, released_before) = (waits(), released());
                std::thread::sleep(FULL);
                if waited_before && waits() {
                    watched += 1;
                    assert_eq!(released(), released_before, "seed {seed}: none is released");
                }
                if seed % 2 == 0 {
                    stopped += 1;
                    control.stop();
                    patience.iter().for_each(Patience::end);
                    while !done.load(Ordering::Acquire) {
                        assert!(begun.elapsed() < PATIENCE, "seed {seed}: it ends");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
            drop(room_at_last);
            run.join().expect("no panic")
        });
        let engine = match ended {
            Ok(summary) if !summary.stopped => engine,
            ended => {
                if let Err(error) = ended {
                    // Without room for what a state begins with, a run is refused; a sink that waited and is to end fails.
                    assert!(error.to_string().ends_with("no storage space"), "seed {seed}: {error}");
                }
                // With room, the same state is taken up.
                let engine = engine.with_empty_tables();
                let setting = Setting { patience: Some(Patience::default()), ..setting };
                let again = process(&expected.subject.history, &engine, &storage, &setting);
                again.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                engine
            }
        };
        assert_eq!(expected.wrong_outputs(|path| read_all(&machine, path), Whole::There), None, "seed {seed}");
        assert_eq!(expected.wrong_tables(&engine), None, "seed {seed}");
    }
    println!("{waited} runs waited for room, {stopped} of them were ended meanwhile, {read} released bytes were read");
    assert!(waited > stopped && watched > 0 && stopped > 0 && read > 0, "{watched} were watched");
}
