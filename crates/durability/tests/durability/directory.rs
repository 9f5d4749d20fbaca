//! A directory without a manifest: an unfinished beginning is undone, and a state that lost it is named.

use std::path::Path;
use std::sync::Arc;
use tidemill_durability::{Checkpoint, Identity, Log, Open, OpenState, StateDirectory, StateError, Storage};
use tidemill_sim::SimStorage;

fn open(storage: &SimStorage) -> Result<StateDirectory, StateError> {
    let program = Identity {
        application: "a test".into(),
        version: 1,
        tables: vec![],
        sources: vec![],
        code: 7,
        operators: None,
        retired: vec![],
    };
    StateDirectory::open(OpenState {
        storage: Arc::new(storage.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 77,
        program,
        recorded: None,
    })
}

/// Begins a state, logs this much, and removes the manifest.
fn without_manifest(log: impl FnOnce(&mut Log)) -> SimStorage {
    let storage = SimStorage::new(1);
    let mut directory = open(&storage).expect("an empty disk");
    log(&mut directory.begin(Checkpoint::default()).expect("an empty disk"));
    drop(directory);
    storage.remove(Path::new("state/manifest")).expect("it is there");
    storage
}

fn push(log: &mut Log) {
    log.push(1, b"an epoch");
    log.write().expect("no fault");
}

fn check_lost(storage: &SimStorage) {
    let Err(StateError::Damaged { file, what, .. }) = open(storage) else { panic!("it opens") };
    assert_eq!((file.as_path(), what.as_str()), (Path::new("state/manifest"), "it is missing"));
}

#[test]
fn an_unfinished_beginning_is_undone() {
    let storage = without_manifest(|_| {});
    let mut directory = open(&storage).expect("a beginning");
    assert!(directory.is_new());
    assert!(storage.files().iter().all(|(path, _)| path.ends_with("lock")), "all of it is removed");
    directory.begin(Checkpoint::default()).expect("it begins again");
}

#[test]
fn a_log_with_an_epoch_is_no_beginning() {
    check_lost(&without_manifest(push));
}

#[test]
fn a_log_with_two_segments_is_no_beginning() {
    let storage = without_manifest(|log| {
        push(log);
        log.sync().expect("no fault");
        log.roll_now().expect("no fault");
    });
    assert!(storage.files().len() > 2, "two segments, and the lock");
    check_lost(&storage);
}

/// Makes a state with the savepoints "first" and "second".
fn with_savepoints() -> SimStorage {
    let storage = SimStorage::new(1);
    let mut directory = open(&storage).expect("an empty disk");
    directory.begin(Checkpoint::default()).expect("an empty disk");
    for name in ["first", "second"] {
        directory.create_savepoint(name).expect("there is room");
    }
    storage
}

fn names(directory: &StateDirectory) -> Vec<String> {
    directory.savepoints().expect("no fault").into_iter().map(|savepoint| savepoint.name).collect()
}

/// Returns the names of what cannot be read among the savepoints, and whether it is damaged.
fn remains(directory: &StateDirectory) -> Vec<(String, bool)> {
    let remains = directory.remains().expect("no fault").into_iter();
    remains.map(|remains| (remains.name, remains.damage.is_some())).collect()
}

#[test]
fn a_damaged_savepoint_does_not_refuse_its_state() {
    let manifest = Path::new("state/savepoint/first/manifest");
    let length = with_savepoints().files()[manifest].len();
    for byte in 0..length {
        let storage = with_savepoints();
        storage.flip(manifest, byte, (byte % 8) as u8);
        let mut directory = open(&storage).expect("the state is whole");
        assert_eq!(names(&directory), ["second"]);
        assert_eq!(remains(&directory), [("first".to_owned(), true)]);
        let error = directory.savepoint("first").expect_err("it is damaged").to_string();
        assert!(error.contains("savepoint/first/manifest is damaged"), "{error}");
        assert!(directory.restore_savepoint("first").is_err() && directory.create_savepoint("first").is_err());
        directory.remove_savepoint("first").expect("it is there");
        assert_eq!((names(&directory), remains(&directory)), (vec!["second".to_owned()], vec![]));
        assert!(storage.files().keys().all(|path| !path.starts_with("state/savepoint/first")), "all of it is gone");
        directory.create_savepoint("first").expect("the name is free");
    }
}

#[test]
fn what_a_crash_left_of_a_savepoint_is_named_and_removed() {
    let storage = with_savepoints();
    let left = Path::new("state/savepoint/third/checkpoint");
    storage.create_directory(left).expect("no fault");
    storage.open(&left.join("00000007.rows"), Open::CreateNew).expect("no fault").append(b"rows").expect("no fault");
    storage.open(Path::new("state/savepoint/a file"), Open::CreateNew).expect("no fault");
    let directory = open(&storage).expect("the state is whole");
    assert_eq!(names(&directory), ["first", "second"]);
    assert_eq!(remains(&directory), [("a file".to_owned(), false), ("third".to_owned(), false)]);
    for name in ["a file", "third"] {
        directory.remove_savepoint(name).expect("it is there");
    }
    assert!(remains(&directory).is_empty());
    let error = directory.remove_savepoint("third").expect_err("it is gone").to_string();
    assert!(error.contains("has no savepoint 'third'; there are first, second"), "{error}");
}

#[test]
fn no_file_gets_a_number_that_an_unreadable_savepoint_has() {
    let storage = with_savepoints();
    let left = Path::new("state/savepoint/third/checkpoint");
    storage.create_directory(left).expect("no fault");
    storage.open(&left.join("00000041.rows"), Open::CreateNew).expect("no fault");
    let mut directory = open(&storage).expect("the state is whole");
    directory.write_blocks().expect("no fault");
    let is_next = |path: &std::path::PathBuf| path.ends_with("checkpoint/00000042.rows");
    assert!(storage.files().keys().any(is_next), "{:?}", storage.files().keys());
}
