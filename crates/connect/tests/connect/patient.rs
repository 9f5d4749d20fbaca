//! Storage whose calls wait for descriptors or room.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::tempdir;
use tidemill_connect::{Disk, Patience, Patient};
use tidemill_durability::{Entry, File, Locked, Open, Storage, read_all, replace};

const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Files of the system, as long as the calls that need a descriptor are given one.
#[derive(Clone, Default)]
struct Scarce {
    /// The error of those calls; 0: they succeed.
    refuses: Arc<AtomicI32>,
    refused: Arc<AtomicUsize>,
}

impl Scarce {
    fn check(&self) -> io::Result<()> {
        match self.refuses.load(Ordering::Relaxed) {
            0 => Ok(()),
            error => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }
}

impl Storage for Scarce {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        self.check().and_then(|()| Disk.open(path, how))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        Disk.resolve(path)
    }

    fn look(&self, path: &Path) -> io::Result<Entry> {
        Disk.look(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.check().and_then(|()| Disk.list(directory))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| Disk.create_directory(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.check().and_then(|()| Disk.sync_directory(path))
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Locked> {
        self.check().and_then(|()| Disk.lock(path, holder))
    }

    fn lock_entry(&self, path: &Path) -> io::Result<Locked> {
        self.check().and_then(|()| Disk.lock_entry(path))
    }
}

type Make = fn(Arc<dyn Storage>, Patience) -> Patient;

#[test]
fn calls_wait_for_a_descriptor() {
    for make in [Patient::new as Make, Patient::for_descriptors] {
        let directory = tempdir().unwrap();
        let path = directory.path().join("a");
        let (scarce, patience) = (Scarce::default(), Patience::default());
        let patient = make(Arc::new(scarce.clone()), patience.clone());
        scarce.refuses.store(EMFILE, Ordering::Relaxed);
        thread::scope(|scope| {
            let written = scope.spawn(|| {
                patient.create_directory(directory.path())?;
                let locked = patient.lock_entry(directory.path())?;
                replace(&patient, &path, b"content")?;
                patient.list(directory.path()).map(|names| (names, matches!(locked, Locked::Mine(_))))
            });
            while scarce.refused.load(Ordering::Relaxed) < 2 || !patience.waits_for_descriptors() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!patience.waits(), "there is room");
            scarce.refuses.store(0, Ordering::Relaxed);
            assert_eq!(written.join().unwrap().unwrap(), (vec!["a".to_owned()], true));
        });
        assert!(!patience.waits_for_descriptors());
        assert_eq!(read_all(&Disk, &path).unwrap(), b"content");
    }
}

#[test]
fn a_state_does_not_wait_for_room_here() {
    let (scarce, patience) = (Scarce::default(), Patience::default());
    let patient = Patient::for_descriptors(Arc::new(scarce.clone()), patience);
    scarce.refuses.store(ENOSPC, Ordering::Relaxed);
    let error = patient.open(Path::new("a"), Open::Read).err().unwrap();
    assert_eq!((error.kind(), scarce.refused.load(Ordering::Relaxed)), (io::ErrorKind::StorageFull, 1));
}

#[test]
fn patience_begins_and_ends() {
    let (scarce, patience) = (Scarce::default(), Patience::later());
    let patient = Patient::new(Arc::new(scarce.clone()), patience.clone());
    let opened = || patient.open(Path::new("a"), Open::Read).err().unwrap().raw_os_error();
    scarce.refuses.store(EMFILE, Ordering::Relaxed);
    assert_eq!(opened(), Some(EMFILE), "it has not begun");
    patience.begin();
    thread::scope(|scope| {
        let waiting = scope.spawn(opened);
        while !patience.waits_for_descriptors() {
            thread::sleep(Duration::from_millis(1));
        }
        patience.end();
        assert_eq!(waiting.join().unwrap(), Some(EMFILE), "it is over");
    });
}

#[test]
fn there_is_room_on_the_disk() {
    let directory = tempdir().unwrap();
    assert!(Disk.free(directory.path()).unwrap().unwrap() > 0);
    assert!(Disk.free(&directory.path().join("no such directory")).is_err());
}
