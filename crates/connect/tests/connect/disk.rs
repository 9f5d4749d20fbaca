//! The files of the operating system behind the storage trait.

use std::io::ErrorKind;
use tempfile::tempdir;
use tidemill_connect::Disk;
use tidemill_durability::{Kind, Locked, Open, Storage, read_all, replace};

#[test]
fn files_are_appended_to_read_and_cut() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("a");
    assert_eq!(Disk.open(&path, Open::Append).map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    let file = Disk.open(&path, Open::CreateNew).unwrap();
    assert_eq!(Disk.open(&path, Open::CreateNew).map(drop).unwrap_err().kind(), ErrorKind::AlreadyExists);
    file.append(b"one, ").unwrap();
    file.append(b"two").unwrap();
    let mut part = [0; 6];
    assert_eq!(file.read_at(5, &mut part).unwrap(), 3);
    assert_eq!(&part[..3], b"two");
    file.truncate(4).unwrap();
    file.append(b"!").unwrap();
    file.sync().unwrap();
    assert_eq!(file.length().unwrap(), 5);
    assert_eq!(read_all(&Disk, &path).unwrap(), b"one,!");
}

#[test]
fn names_are_made_renamed_listed_and_removed() {
    let directory = tempdir().unwrap();
    let deep = directory.path().join("x/y/z");
    Disk.create_directory(&deep).unwrap();
    Disk.create_directory(&deep).unwrap();
    replace(&Disk, &deep.join("b"), b"1").unwrap();
    replace(&Disk, &deep.join("b"), b"2").unwrap();
    Disk.open(&deep.join("a"), Open::AppendOrCreate).unwrap();
    assert_eq!(Disk.list(&deep).unwrap(), ["a", "b"]);
    Disk.rename(&deep.join("b"), &deep.join("a")).unwrap();
    Disk.sync_directory(&deep).unwrap();
    assert_eq!(read_all(&Disk, &deep.join("a")).unwrap(), b"2");
    assert_eq!(Disk.look(&deep).unwrap().kind, Kind::Directory);
    assert_eq!(Disk.look(&deep.join("a")).unwrap().length, 1);
    assert_eq!(Disk.look(&deep.join("b")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(Disk.remove(&deep).is_err(), "it is not empty");
    Disk.remove(&deep.join("a")).unwrap();
    Disk.remove(&deep).unwrap();
    assert_eq!(Disk.look(&deep).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_lock_is_one_holders() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("lock");
    let first = Disk.lock(&path, "the first").unwrap();
    assert!(matches!(Disk.lock(&path, "the second").unwrap(), Locked::By(holder) if holder == "the first"));
    drop(first);
    assert!(matches!(Disk.lock(&path, "").unwrap(), Locked::Mine(_)));
    assert_eq!(read_all(&Disk, &path).unwrap(), b"the first");
}

#[test]
fn a_lock_is_of_what_has_the_name() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("lock");
    let Locked::Mine(first) = Disk.lock(&path, "").unwrap() else { panic!("nobody has it") };
    assert!(first.is_in_place().unwrap());
    Disk.remove(&path).unwrap();
    assert!(!first.is_in_place().unwrap(), "it is gone");
    let Locked::Mine(second) = Disk.lock(&path, "").unwrap() else { panic!("another file has no lock") };
    assert!(second.is_in_place().unwrap() && !first.is_in_place().unwrap(), "another file has the name");
}

#[test]
fn a_directory_and_what_is_in_it_have_locks_of_their_own() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("a");
    Disk.create_directory(&path).unwrap();
    let Locked::Mine(first) = Disk.lock_entry(&path).unwrap() else { panic!("nobody has it") };
    assert!(matches!(Disk.lock_entry(&path).unwrap(), Locked::By(_)));
    assert!(matches!(Disk.lock(&path.join("lock"), "").unwrap(), Locked::Mine(_)));
    let other = directory.path().join("b");
    Disk.rename(&path, &other).unwrap();
    assert!(!first.is_in_place().unwrap());
    assert!(matches!(Disk.lock_entry(&other).unwrap(), Locked::By(_)), "the lock goes with it");
    drop(first);
    assert!(matches!(Disk.lock_entry(&other).unwrap(), Locked::Mine(_)));
}
