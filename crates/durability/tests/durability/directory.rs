//! A directory without a manifest: an unfinished beginning is undone, and a state that lost it is named.

use std::path::Path;
use std::sync::Arc;
use tidemill_durability::{Checkpoint, Identity, Log, OpenState, StateDirectory, StateError, Storage};
use tidemill_sim::SimStorage;

fn open(storage: &SimStorage) -> Result<StateDirectory, StateError> {
    let program = Identity { application: "a test".into(), version: 1, tables: vec![], sources: vec![], code: 7 };
    StateDirectory::open(OpenState {
        storage: Arc::new(storage.clone()),
        path: Path::new("state"),
        holder: "a test",
        id: 77,
        program,
        recorded: None,
    })
}

/// Begins a state, logs so much, and removes the manifest.
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
