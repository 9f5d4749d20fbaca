//! A bit flipped in each byte of a small state directory, and each of its files removed: either the results are the same,
//! or the directory is refused with a reason.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, Whole, new_machine, process};
use std::path::Path;
use std::sync::Arc;
use tidemill_durability::{Log, Open, Planted, StateDirectory, StateError, Storage, read_all};
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, EpochSize, RunError};
use tidemill_sim::{Fault, SimStorage};

/// Bytes that a small state has at the most.
const STATE_BYTES_MAX: usize = 12_000;

/// The record of what the sinks have released.
const SINKS: &str = "state/sinks";

fn run(expected: &Expected, engine: &Engine, storage: &SimStorage, setting: &Setting) -> Result<(), RunError> {
    let storage: Arc<dyn Storage> = Arc::new(storage.clone());
    process(&expected.subject.history, engine, &storage, setting).map(drop)
}

/// Returns a state with a log that was not replayed yet, and what is to become of it.
fn small_state() -> (Expected, Engine, Setting, SimStorage) {
    for seed in 1.. {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
        let events: usize = sources.iter().map(Vec::len).sum();
        if events < 20 || preload.is_empty() {
            continue;
        }
        let engine = Engine::new(program).expect("random plans compile");
        let expected = Expected::new(Subject::new(History { plan, preload, sources }));
        let setting = Setting {
            epoch: EpochSize::Events(4),
            workers: 1,
            records: false,
            memory: None,
            ..Setting::random(seed, Planted::default())
        };
        // The process is killed in the middle.
        let whole = new_machine(seed);
        run(&expected, &engine, &whole, &setting).expect("no fault");
        let engine = engine.with_empty_tables();
        let storage = new_machine(seed);
        storage.fail(whole.call_count() * 2 / 3, Fault::CutBefore);
        let ended = run(&expected, &engine, &storage, &setting);
        storage.kill();
        storage.heal();
        let files = storage.files();
        let state = || files.iter().filter(|(path, _)| path.starts_with("state"));
        let small = state().map(|(_, bytes)| bytes.len()).sum::<usize>() <= STATE_BYTES_MAX;
        let logged = state().any(|(path, bytes)| is_log(path) && bytes.len() > 500);
        if ended.is_err() && small && logged {
            return (expected, engine.with_empty_tables(), setting, storage);
        }
    }
    unreachable!("some seed gives a small state")
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "log")
}

fn wrong(expected: &Expected, engine: &Engine, storage: &SimStorage) -> Option<String> {
    let wrong = expected.wrong_outputs(|path| read_all(storage, path), Whole::There);
    wrong.or_else(|| expected.wrong_tables(engine))
}

#[test]
fn a_flipped_bit_in_each_byte() {
    let (expected, mut engine, setting, storage) = small_state();
    let (mut same, mut refused) = (0, 0);
    for (path, bytes) in storage.files().into_iter().filter(|(path, _)| path.starts_with("state")) {
        for byte in 0..bytes.len() {
            let damaged = storage.copy();
            damaged.flip(&path, byte, (byte % 8) as u8);
            engine = engine.with_empty_tables();
            let at = || format!("{} byte {byte}", path.display());
            match run(&expected, &engine, &damaged, &setting) {
                Ok(()) => {
                    assert_eq!(wrong(&expected, &engine, &damaged), None, "{}", at());
                    same += 1;
                }
                Err(RunError::State(_)) => refused += 1,
                Err(RunError::Sink { .. }) if path == Path::new(SINKS) => refused += 1,
                Err(error) => panic!("{}: {error}", at()),
            }
        }
    }
    println!("{} bytes: {refused} were refused, {same} made no difference", same + refused);
    assert!(refused > same, "most bytes matter");
}

/// A file that somebody has removed is named, with what is lost; or nothing is: the lock is made again, a segment of the log may be
/// void by a checkpoint, and out of the last one no sink may have released anything, or else the epochs are named that are
/// missing. What is only being made is not in use yet.
#[test]
fn each_file_removed() {
    let (expected, mut engine, setting, storage) = small_state();
    let directory = StateDirectory::open_as_it_is(Arc::new(storage.clone()), Path::new("state"), "a test");
    directory.and_then(|directory| directory.create_savepoint("kept")).expect("no fault");
    let is_made = |path: &Path| path.extension().is_none_or(|extension| extension != "new");
    let in_use = |path: &Path| path.starts_with("state") && !path.starts_with("state/savepoint") && is_made(path);
    let mut refused = 0;
    for path in storage.files().into_keys().filter(|path| in_use(path)) {
        let damaged = storage.copy();
        damaged.remove(&path).expect("it is there");
        engine = engine.with_empty_tables();
        match run(&expected, &engine, &damaged, &setting) {
            Ok(()) => {
                assert!(is_log(&path) || path == Path::new("state/lock"), "{}", path.display());
                assert_eq!(wrong(&expected, &engine, &damaged), None, "{}", path.display());
            }
            Err(RunError::State(StateError::Damaged { file, .. })) => {
                // If several of the log's first segments are missing, the first that is there is named.
                assert!(
                    file == path || is_log(&path) && (is_log(&file) || file.ends_with("log")),
                    "{}",
                    file.display()
                );
                refused += usize::from(!is_log(&path));
            }
            Err(RunError::State(StateError::Refused(why))) if path == Path::new(SINKS) => {
                assert!(why.contains("is not there any more, and cannot be made again"), "{why}");
                refused += 1;
            }
            Err(RunError::State(StateError::Refused(why))) => {
                // Without the last segment the log ends earlier, and before what a sink has released.
                assert!(
                    is_log(&path) && why.contains("epochs that were durable are missing"),
                    "{}: {why}",
                    path.display()
                );
            }
            Err(RunError::Sink { failure, .. }) if path == Path::new(SINKS) => {
                assert!(failure.message.contains("state/sinks is not there, or"), "{}", failure.message);
                refused += 1;
            }
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    let needed = storage.files().into_keys().filter(|path| in_use(path) && !is_log(path)).count() - 1;
    assert_eq!(refused, needed, "all but the lock and the log");
}

/// The last segment of a log loses its records, in a program without sinks, so that nothing else tells which epochs there were: a
/// log that ends before its checkpoint is refused, and the run does not panic.
#[test]
fn a_log_that_ends_before_its_checkpoint_is_refused() {
    const SEED: u64 = 1;
    let plan = Plan { sinks: Vec::new(), ..random_plan(SEED, PlanSize::Small) };
    let program = analyze(&plan).expect("random plans are valid");
    let (preload, sources) = random_data(&program, SEED, DataShape::random(SEED));
    let history = History { plan, preload, sources };
    let setting = Setting {
        epoch: EpochSize::Events(4),
        workers: 1,
        records: false,
        memory: None,
        ..Setting::random(SEED, Planted::default())
    };
    let mut engine = Some(Engine::new(program).expect("random plans compile"));
    let mut run = |storage: &SimStorage| {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let ran = engine.take().expect("put back below");
        let ended = process(&history, &ran, &storage, &setting);
        engine = Some(ran.with_empty_tables());
        ended.map(drop)
    };
    let whole = new_machine(SEED);
    run(&whole).expect("no fault");
    let mut refused = 0;
    for call in 0..whole.call_count() {
        let storage = new_machine(SEED);
        storage.fail(call, Fault::CutBefore);
        let _ = run(&storage);
        storage.kill();
        storage.heal();
        let Some(path) = storage.files().into_keys().rfind(|path| is_log(path)) else { continue };
        let file = storage.open(&path, Open::AppendOrCreate).expect("no fault");
        file.truncate(Log::EMPTY_BYTES).expect("no fault");
        match run(&storage) {
            Ok(()) => {}
            Err(RunError::State(error)) => refused += usize::from(error.to_string().contains("of the checkpoint")),
            Err(error) => panic!("call {call}: {error}"),
        }
    }
    assert!(refused > 0, "a log ends before its checkpoint");
}
