//! Locks of states and outputs whose files are removed or replaced while they are held: the next one is refused, and the
//! holder writes nothing more. A holder that does not compare what it has locked goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_connect::{Disk, SinkDurability, WriteJsonl, WriteParquet};
use tidemill_durability::{
    Bug, Checkpoint, Identity, Log, OpenState, Planted, StateDirectory, StateError, Storage, read_all,
};
use tidemill_io::{IoFailure, Sink, SinkConnection};
use tidemill_model::arrow::batch_of;
use tidemill_model::{ColumnType, Schema, Type, Value};
use tidemill_sim::SimStorage;

const STATE: &str = "state";
const NEXT: &str = "the next process";

fn open_state(storage: &Arc<dyn Storage>, path: &Path, holder: &str) -> Result<StateDirectory, StateError> {
    let program = Identity {
        application: "a test".into(),
        version: 1,
        tables: vec![],
        sources: vec![],
        code: 7,
        operators: None,
        retired: vec![],
    };
    let storage = storage.clone();
    StateDirectory::open(OpenState { storage, path, holder, id: 77, program, recorded: None })
}

/// Returns a state that is held, with its log.
fn held(storage: &Arc<dyn Storage>, path: &Path, planted: Planted) -> (StateDirectory, Log) {
    let mut directory = open_state(storage, path, "the holder").expect("nobody has it");
    directory.plant(planted);
    let log = directory.begin(Checkpoint::default()).expect("there is room");
    (directory, log)
}

fn log_one(log: &mut Log) -> Result<(), StateError> {
    log.push(log.epoch() + 1, b"an epoch");
    log.write().and_then(|_| log.sync())
}

/// Returns the errors of the holder of a state where it goes on: to its log, to its checkpoints, to its manifest.
fn going_on(directory: &mut StateDirectory, log: &mut Log) -> [Result<(), StateError>; 3] {
    let begun = directory.write_blocks().map(drop);
    [log_one(log), begun, directory.switch(Checkpoint { epoch: 1, ..Checkpoint::default() })]
}

fn is_let_go(done: &Result<(), StateError>) -> bool {
    matches!(done, Err(StateError::LetGo { .. }))
}

/// Returns whether the holder of a state writes nothing more once the file of its lock is another.
fn notices_another_lock(planted: Planted) -> bool {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
    let (mut directory, mut log) = held(&storage, Path::new(STATE), planted);
    log_one(&mut log).expect("it is held");
    let lock = Path::new(STATE).join("lock");
    storage.remove(&lock).expect("it is there");
    let Err(error) = open_state(&storage, Path::new(STATE), NEXT) else { panic!("the directory is locked") };
    assert!(error.to_string().contains("is in use by"), "{error}");
    let (before, done) = (read_all(&*storage, &log.path()).expect("no fault"), going_on(&mut directory, &mut log));
    let is_noticed = done.iter().all(is_let_go);
    assert_eq!(is_noticed, read_all(&*storage, &log.path()).expect("no fault") == before, "nothing more is written");
    assert!(is_noticed || done.iter().all(Result::is_ok), "all or nothing");
    is_noticed
}

#[test]
fn the_holder_of_a_state_notices_that_its_lock_is_another() {
    assert!(notices_another_lock(Planted::default()));
    assert!(!notices_another_lock(Planted::new(Bug::LockNotCompared)), "the bug is planted");
}

#[test]
fn the_holder_of_a_state_notices_that_its_directory_is_another() {
    let folder = tempfile::tempdir().expect("there is room");
    let storage: Arc<dyn Storage> = Arc::new(Disk);
    let (path, moved) = (folder.path().join(STATE), folder.path().join("moved"));
    let (mut directory, mut log) = held(&storage, &path, Planted::default());
    log_one(&mut log).expect("it is held");
    std::fs::rename(&path, &moved).expect("it is there");
    let next = open_state(&storage, &path, NEXT).expect("a new state has the name");
    assert!(open_state(&storage, &moved, NEXT).is_err(), "the lock goes with the directory");
    assert!(going_on(&mut directory, &mut log).iter().all(is_let_go));
    drop((directory, log));
    open_state(&storage, &moved, NEXT).expect("its holder is gone");
    assert!(next.is_new(), "nothing was written into the new state");
}

#[test]
fn a_lock_that_was_removed_is_seen_by_those_who_look() {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(4));
    let (directory, log) = held(&storage, Path::new(STATE), Planted::default());
    storage.remove(&Path::new(STATE).join("lock")).expect("it is there");
    let view = StateDirectory::view(storage.clone(), Path::new(STATE)).expect("it can be read");
    assert_eq!(view.writer(), Some("another process"));
    drop((directory, log));
    assert_eq!(StateDirectory::view(storage, Path::new(STATE)).expect("it can be read").writer(), None);
}

fn schema() -> Schema {
    Schema::scalars([("a", ColumnType::required(Type::Int))])
}

fn write(sink: &mut dyn Sink, value: i64) -> Result<(), IoFailure> {
    sink.write(&batch_of(&schema(), &[vec![Value::Int(value)]]))
}

/// Commits an epoch.
fn commit(sink: &mut dyn Sink, epoch: u64) -> Result<(), IoFailure> {
    write(sink, epoch as i64)?;
    sink.prepare(epoch)?;
    sink.commit(epoch)
}

/// Returns a sink of a run with a state, on the files of the system.
fn open_durable(sink: &dyn SinkConnection, owner: &str, planted: Planted) -> Result<Box<dyn Sink>, IoFailure> {
    let spec = sink.spec();
    let folder = Path::new(spec.options["path"].as_str().expect("a file")).parent().expect("a folder");
    let durable = SinkDurability::at(Arc::new(Disk), owner, planted, &folder.join("sinks"));
    let mut sink = sink.open(&schema(), Some(&durable))?;
    sink.recover()?;
    Ok(sink)
}

/// Returns the sinks of an output.
fn sinks(path: &Path) -> [Box<dyn SinkConnection>; 2] {
    let path = path.display().to_string();
    [
        Box::new(WriteJsonl { path: path.clone(), compression: None }),
        Box::new(WriteParquet { path, compression: Default::default() }),
    ]
}

/// An output that is held, and the file of its lock.
struct Subject {
    sink: Box<dyn SinkConnection>,
    lock: PathBuf,
    folder: tempfile::TempDir,
}

fn subjects() -> [Subject; 2] {
    [0, 1].map(|kind| {
        let folder = tempfile::tempdir().expect("there is room");
        let [text, columns] = sinks(&folder.path().join("out"));
        let sink = if kind == 0 { text } else { columns };
        Subject { sink, lock: folder.path().join(".out.tidemill-lock"), folder }
    })
}

impl Subject {
    /// Neither a run with a state nor one without may begin to write it.
    fn check_refused(&self, what: &str) {
        let with_state = open_durable(&*self.sink, "another state", Planted::default()).map(drop);
        let without = self.sink.open(&schema(), None).map(drop);
        for failure in [with_state, without].map(|opened| opened.expect_err(what)) {
            assert!(failure.message.contains("another sink is writing it"), "{what}: {}", failure.message);
        }
    }

    fn is_there(&self) -> bool {
        self.folder.path().join("out").exists()
    }
}

/// Returns whether the sink of a run with a state writes nothing more once the file of its lock is another.
fn sink_notices(subject: &Subject, planted: Planted) -> bool {
    let mut sink = open_durable(&*subject.sink, "a state", planted).expect("nobody has it");
    commit(&mut *sink, 1).expect("it is held");
    subject.check_refused("a run with a state has it");
    std::fs::remove_file(&subject.lock).expect("it is there");
    subject.check_refused("the part is locked");
    let failed = commit(&mut *sink, 2).err();
    assert!(failed.iter().all(|failure| failure.message.contains("was removed or replaced")), "{failed:?}");
    failed.is_some()
}

#[test]
fn a_sink_notices_that_its_lock_is_another() {
    for subject in subjects() {
        assert!(sink_notices(&subject, Planted::default()));
        assert!(!subject.is_there(), "it was not finished");
        assert!(!sink_notices(&subject, Planted::new(Bug::LockNotCompared)), "the bug is planted");
    }
}

#[test]
fn an_output_that_is_finished_and_may_go_on_is_held() {
    for subject in subjects() {
        let mut sink = open_durable(&*subject.sink, "a state", Planted::default()).expect("nobody has it");
        commit(&mut *sink, 1).expect("it is held");
        sink.finish().expect("it is held");
        let mut sink = open_durable(&*subject.sink, "a state", Planted::default()).expect("nobody has it");
        std::fs::remove_file(&subject.lock).expect("it is there");
        subject.check_refused("the output itself, or its part, is locked");
        assert!(commit(&mut *sink, 2).is_err());
    }
}

#[test]
fn a_run_without_a_state_holds_its_output() {
    for subject in subjects() {
        let mut sink = subject.sink.open(&schema(), None).expect("nobody has it");
        write(&mut *sink, 1).expect("it is held");
        subject.check_refused("a run without a state has it");
        std::fs::remove_file(&subject.lock).expect("it is there");
        subject.check_refused("what it writes is locked");
        let failure = sink.finish().expect_err("its lock is another");
        assert!(failure.message.contains("was removed or replaced"), "{}", failure.message);
        assert!(!subject.is_there());

        let mut sink = subject.sink.open(&schema(), None).expect("nobody has it any more");
        write(&mut *sink, 1).expect("it is held");
        sink.finish().expect("it is held");
        assert!(subject.is_there());
    }
}

#[test]
fn runs_without_a_state_leave_no_lock() {
    for subject in subjects() {
        let sink = subject.sink.open(&schema(), None).expect("nobody has it");
        assert!(subject.lock.exists());
        sink.finish().expect("it is held");
        assert!(!subject.lock.exists(), "it was its own");
        drop(open_durable(&*subject.sink, "a state", Planted::default()).expect("nobody has it"));
        subject.sink.open(&schema(), None).expect("nobody has it").finish().expect("it is held");
        assert!(subject.lock.exists(), "it was there");
    }
}
