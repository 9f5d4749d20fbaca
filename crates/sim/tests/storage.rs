//! Simulated storage: the bytes that it keeps and those that it loses.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use tidemill_durability::{Locked, Open, Storage, read_all, replace};
use tidemill_sim::{Fault, Operation, SECTOR_BYTES, SimStorage};

const SEEDS: u64 = 300;

fn path() -> &'static Path {
    Path::new("a")
}

/// Returns the contents that a file may be left with, over many seeds.
fn left_by(write: impl Fn(&SimStorage) -> io::Result<()>) -> BTreeSet<Option<Vec<u8>>> {
    let left = |seed| {
        let storage = SimStorage::new(seed);
        let result = write(&storage);
        assert!(result.is_ok() || storage.is_off(), "{result:?}");
        storage.cut_power();
        storage.files().remove(path())
    };
    (0..SEEDS).map(left).collect()
}

fn some(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

#[test]
fn what_is_synced_stays() {
    let left = left_by(|storage| {
        let file = storage.open(path(), Open::CreateNew)?;
        file.append(b"kept")?;
        file.sync()?;
        storage.sync_directory(Path::new("."))
    });
    assert_eq!(left, BTreeSet::from([some(b"kept")]));
}

#[test]
fn what_is_not_synced_is_lost_torn_or_kept_sector_by_sector() {
    let left = left_by(|storage| {
        let file = storage.open(path(), Open::CreateNew)?;
        file.append(b"old")?;
        file.sync()?;
        storage.sync_directory(Path::new("."))?;
        file.append(&[b'x'; 2 * SECTOR_BYTES])
    });
    let whole: Vec<u8> = [b"old".as_slice(), &[b'x'; 2 * SECTOR_BYTES]].concat();
    assert!(left.contains(&some(b"old")) && left.contains(&some(&whole)));
    let sectors = |bytes: &Vec<u8>| bytes.chunks(SECTOR_BYTES).map(|s| s.last() == Some(&b'x')).collect::<Vec<_>>();
    let torn: BTreeSet<Vec<bool>> = left.iter().flatten().filter(|b| b.len() == whole.len()).map(sectors).collect();
    assert!(torn.contains(&vec![false, true, true]) && torn.contains(&vec![true, false, true]), "{torn:?}");
    assert!(left.iter().flatten().all(|bytes| bytes.starts_with(b"old")));
}

#[test]
fn a_cut_that_is_not_synced_may_come_back() {
    let left = left_by(|storage| {
        let file = storage.open(path(), Open::CreateNew)?;
        file.append(b"one, two")?;
        file.sync()?;
        storage.sync_directory(Path::new("."))?;
        file.truncate(3)?;
        file.append(b"!")
    });
    let expected = [b"one, two".as_slice(), b"one", b"one!"];
    assert!(expected.iter().all(|bytes| left.contains(&some(bytes))), "{left:?}");
}

#[test]
fn names_are_kept_or_lost_one_by_one() {
    let created = left_by(|storage| {
        let file = storage.open(path(), Open::CreateNew)?;
        file.append(b"new")?;
        file.sync()
    });
    assert_eq!(created, BTreeSet::from([None, some(b"new")]));
    let renamed = left_by(|storage| {
        for (name, bytes) in [("a", b"old"), ("b", b"new")] {
            let file = storage.open(Path::new(name), Open::CreateNew)?;
            file.append(bytes)?;
            file.sync()?;
        }
        storage.sync_directory(Path::new("."))?;
        storage.rename(Path::new("b"), path())
    });
    assert_eq!(renamed, BTreeSet::from([some(b"old"), some(b"new")]));
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    let storage = SimStorage::new(1);
    let file = storage.open(path(), Open::CreateNew).unwrap();
    let lock = storage.lock(Path::new("lock"), "me").unwrap();
    file.append(b"kept").unwrap();
    storage.kill();
    assert!(file.append(b"by a ghost").is_err());
    assert!(matches!(storage.lock(Path::new("lock"), "another").unwrap(), Locked::Mine(_)));
    drop(lock);
    assert_eq!(read_all(&storage, path()).unwrap(), b"kept");
}

#[test]
fn a_lock_is_one_holders() {
    let storage = SimStorage::new(1);
    let first = storage.lock(path(), "the first").unwrap();
    assert!(matches!(storage.lock(path(), "").unwrap(), Locked::By(holder) if holder == "the first"));
    drop(first);
    assert!(matches!(storage.lock(path(), "").unwrap(), Locked::Mine(_)));
}

#[test]
fn calls_fail_as_they_are_told() {
    let kind = ErrorKind::TimedOut;
    for (fault, expected) in
        [(Fault::Refused(kind), b"".as_slice()), (Fault::Half(kind), b"by"), (Fault::Applied(kind), b"byte")]
    {
        let storage = SimStorage::new(1);
        let file = storage.open(path(), Open::CreateNew).unwrap();
        storage.fail(1, fault);
        assert_eq!(file.append(b"byte").unwrap_err().kind(), kind);
        assert_eq!(read_all(&storage, path()).unwrap(), expected);
        file.append(b"s").unwrap();
    }
    let storage = SimStorage::new(1);
    replace(&storage, path(), b"0000").unwrap();
    storage.fail(storage.call_count() + 2, Fault::Flipped);
    let flipped = read_all(&storage, path()).unwrap();
    let bits = |bytes: &[u8]| bytes.iter().map(|b| (b ^ b'0').count_ones()).sum::<u32>();
    assert_eq!((bits(&flipped), bits(&read_all(&storage, path()).unwrap())), (1, 0));
    storage.flip(path(), 2, 0);
    assert_eq!(read_all(&storage, path()).unwrap(), b"0010");
}

#[test]
fn a_failed_sync_is_not_made_good_by_another() {
    for seed in 0..SEEDS {
        let storage = SimStorage::new(seed);
        let file = storage.open(path(), Open::CreateNew).unwrap();
        storage.sync_directory(Path::new(".")).unwrap();
        file.append(b"lost").unwrap();
        storage.fail(3, Fault::Dropped(ErrorKind::Other));
        assert!(file.sync().is_err());
        assert_eq!(read_all(&storage, path()).unwrap(), b"lost", "it is still seen");
        file.sync().unwrap();
        storage.cut_power();
        assert_eq!(read_all(&storage, path()).unwrap(), b"");
    }
}

#[test]
fn a_disk_fills_up_and_empties() {
    let storage = SimStorage::new(1);
    storage.set_capacity(Some(6));
    let file = storage.open(path(), Open::CreateNew).unwrap();
    file.append(b"1234").unwrap();
    assert_eq!(file.append(b"5678").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.length().unwrap(), 6, "as much as fits");
    file.truncate(0).unwrap();
    file.append(b"123456").unwrap();
    storage.remove(path()).unwrap();
    storage.open(path(), Open::CreateNew).unwrap().append(b"123456").unwrap();
}

#[test]
fn a_seed_means_one_thing() {
    let run = || {
        let storage = SimStorage::new(7);
        for name in ["a", "b", "c", "d", "e", "f"] {
            let file = storage.open(Path::new(name), Open::CreateNew).unwrap();
            file.append(&[7; 3 * SECTOR_BYTES]).unwrap();
        }
        storage.cut_power();
        storage.files()
    };
    assert_eq!(run(), run());
}

/// The power is cut before or after each call of `replace`: what is there is the old or the new, and the
/// new once the call has returned. Counts the cases where it is neither.
fn replace_under_cuts(lie: Option<&str>) -> usize {
    let mut wrong = 0;
    for seed in 0..40 {
        for at in 0.. {
            let storage = SimStorage::new(seed * 1000 + at as u64);
            lie.into_iter().for_each(|end| storage.lie_about(end));
            let old = storage.open(path(), Open::CreateNew).unwrap();
            old.append(b"old").unwrap();
            old.sync().unwrap();
            storage.sync_directory(Path::new(".")).unwrap();
            let start = storage.call_count();
            let fault = if seed % 2 == 0 { Fault::CutBefore } else { Fault::CutAfter };
            storage.fail(start + at, fault);
            let new = [b'n'; 3 * SECTOR_BYTES];
            let returned = replace(&storage, path(), &new).is_ok();
            storage.cut_power();
            let left = storage.files().remove(path());
            let is_new = left.as_deref() == Some(new.as_slice());
            if !is_new && (returned || left.as_deref() != Some(b"old".as_slice())) {
                wrong += 1;
            }
            if returned {
                break;
            }
        }
    }
    wrong
}

#[test]
fn a_replaced_file_is_old_or_new() {
    assert_eq!(replace_under_cuts(None), 0);
}

#[test]
fn a_sync_left_out_is_noticed() {
    assert!(replace_under_cuts(Some("a.new")) > 0, "contents");
    assert!(replace_under_cuts(Some(".")) > 0, "names");
}

#[test]
fn calls_are_kept() {
    let storage = SimStorage::new(1);
    replace(&storage, path(), b"x").unwrap();
    let operations: Vec<Operation> = storage.calls().iter().map(|call| call.operation).collect();
    let expected = [
        Operation::Open,
        Operation::Truncate,
        Operation::Append,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncDirectory,
    ];
    assert_eq!(operations, expected);
    assert_eq!(storage.calls()[4].path, path());
}
