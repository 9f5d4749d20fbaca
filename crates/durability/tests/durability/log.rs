//! The log with torn, flipped and truncated bytes, and with a failure of every call.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_durability::{Log, LogReader, LoggedEpoch, Open, StateError, Storage, Written};
use tidemill_sim::{Fault, Operation, SimStorage};

const ID: u64 = 0x1234_5678;

fn directory() -> PathBuf {
    PathBuf::from("log")
}

fn machine(seed: u64) -> SimStorage {
    let storage = SimStorage::new(seed);
    storage.create_directory(&directory()).expect("an empty disk takes a directory");
    storage
}

/// Returns the logged content of an epoch. Its lengths are not multiples of anything, and sometimes exceed a sector.
fn payload(epoch: u64) -> Vec<u8> {
    (0..epoch * 37 % 211 + if epoch.is_multiple_of(5) { 700 } else { 0 }).map(|i| (i * epoch) as u8).collect()
}

fn create(storage: &SimStorage) -> Result<Log, StateError> {
    Log::create(Arc::new(storage.clone()), directory(), ID, 0)
}

/// Reads the epochs after `after`, and makes the log ready to go on.
fn open(storage: &SimStorage, after: u64) -> Result<(Vec<u64>, Log), StateError> {
    let mut reader = LogReader::open(Arc::new(storage.clone()), directory(), ID, after)?;
    let mut epochs = Vec::new();
    while let Some(LoggedEpoch { epoch, payload: read }) = reader.next_epoch()? {
        assert_eq!(read, payload(epoch), "epoch {epoch} reads as something else");
        epochs.push(epoch);
    }
    Ok((epochs, reader.into_log()?))
}

fn append(log: &mut Log, epochs: std::ops::RangeInclusive<u64>) -> Result<(), StateError> {
    for epoch in epochs {
        log.push(epoch, &payload(epoch));
    }
    assert!(matches!(log.write()?, Written::All));
    log.sync()
}

/// Returns a log of twelve epochs in several segments, all marked durable, and its files.
fn small_log() -> SimStorage {
    let storage = machine(1);
    let mut log = create(&storage).expect("a disk without faults");
    log.set_segment_bytes(800);
    for epoch in 1..=12 {
        append(&mut log, epoch..=epoch).expect("a disk without faults");
        log.roll().expect("a disk without faults");
    }
    log.mark();
    log.write().expect("a disk without faults");
    log.sync().expect("a disk without faults");
    storage
}

fn segments(storage: &SimStorage) -> Vec<(PathBuf, Vec<u8>)> {
    storage.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "log")).collect()
}

#[test]
fn what_was_logged_is_read_back() {
    let storage = small_log();
    assert!(segments(&storage).len() >= 3, "several segments");
    let (epochs, mut log) = open(&storage, 0).expect("it is whole");
    assert_eq!(epochs, (1..=12).collect::<Vec<_>>());
    append(&mut log, 13..=15).expect("a disk without faults");
    drop(log);
    let (epochs, _) = open(&storage, 10).expect("it is whole");
    assert_eq!(epochs, [11, 12, 13, 14, 15], "what a checkpoint holds is passed over");
}

#[test]
fn a_flipped_bit_changes_nothing_or_is_named() {
    let storage = small_log();
    let mut refused = 0;
    for (path, bytes) in segments(&storage) {
        for byte in 0..bytes.len() {
            storage.flip(&path, byte, (byte % 8) as u8);
            let storage_now = storage.clone();
            // Only reads: a log that continues would change the files.
            let mut reader = LogReader::open(Arc::new(storage_now), directory(), ID, 0);
            let mut epochs = Vec::new();
            let end = loop {
                match reader.as_mut().map(LogReader::next_epoch) {
                    Ok(Ok(Some(read))) => {
                        assert_eq!(read.payload, payload(read.epoch), "{path:?} byte {byte}");
                        epochs.push(read.epoch);
                    }
                    Ok(Ok(None)) => break Ok(()),
                    Ok(Err(error)) => break Err(error.to_string()),
                    Err(error) => break Err(error.to_string()),
                }
            };
            match end {
                Ok(()) => assert_eq!(epochs, (1..=12).collect::<Vec<_>>(), "{path:?} byte {byte} is read past"),
                Err(message) => {
                    refused += 1;
                    assert!(message.contains(".log is damaged at byte "), "{message}");
                }
            }
            storage.flip(&path, byte, (byte % 8) as u8);
        }
    }
    assert!(refused > 1000, "nearly every byte matters, {refused} were missed");
}

#[test]
fn a_log_cut_off_at_any_byte_has_the_epochs_before() {
    let storage = machine(2);
    let mut log = create(&storage).expect("a disk without faults");
    let mut ends = vec![64];
    for epoch in 1..=4 {
        append(&mut log, epoch..=epoch).expect("a disk without faults");
        ends.push(64 + log.position() as usize);
    }
    let (path, bytes) = segments(&storage).pop().expect("a segment");
    drop(log);
    for length in 0..=bytes.len() {
        let copy = machine(3);
        let file = copy.open(&path, Open::CreateNew).expect("an empty disk");
        file.append(&bytes[..length]).expect("an empty disk");
        let whole = ends.iter().skip(1).filter(|&&end| end <= length).count() as u64;
        match open(&copy, 0) {
            Ok((epochs, mut log)) => {
                assert_eq!(epochs, (1..=whole).collect::<Vec<_>>(), "cut at {length}");
                append(&mut log, whole + 1..=5).expect("it goes on");
                drop(log);
                assert_eq!(open(&copy, 0).expect("it is whole").0, [1, 2, 3, 4, 5]);
            }
            Err(StateError::Damaged { .. }) => assert!(length < 64, "cut at {length}"),
            Err(error) => panic!("cut at {length}: {error}"),
        }
    }
}

#[test]
fn a_segment_before_the_last_that_is_cut_off_anywhere_is_damaged() {
    let storage = small_log();
    let (path, bytes) = segments(&storage).swap_remove(1);
    for length in 0..bytes.len() {
        let file = storage.open(&path, Open::Append).expect("it is there");
        file.truncate(length as u64).expect("it can be cut");
        let error = open(&storage, 0).err().expect("epochs are missing").to_string();
        assert!(error.contains("00000002.log is damaged at byte "), "{error}");
        file.truncate(0).and_then(|()| file.append(&bytes)).expect("it can be written");
    }
}

#[test]
fn garbage_and_zeros_behind_the_end_are_cut() {
    for tail in [vec![0; 4096], vec![0xff; 100], b"TMR1TMR1TMR1TMR1TMR1TMR1TMR1TMR1".repeat(9)] {
        let storage = small_log();
        let (path, _) = segments(&storage).pop().expect("a segment");
        let file = storage.open(&path, Open::Append).expect("it is there");
        file.append(&tail).expect("there is room");
        assert_eq!(open(&storage, 0).expect("a torn tail").0, (1..=12).collect::<Vec<_>>());
    }
}

#[test]
fn syncs_of_small_records_seldom_find_another_length() {
    let storage = machine(4);
    let mut log = create(&storage).expect("a disk without faults");
    let mut lengths = std::collections::BTreeSet::new();
    for epoch in 1..=2_000 {
        append(&mut log, epoch..=epoch).expect("a disk without faults");
        lengths.extend(segments(&storage).pop().map(|(_, bytes)| bytes.len()));
    }
    // Doubled up to 256 KiB, and then by as much.
    let bytes = log.position() as usize;
    assert!(lengths.len() <= 16, "{lengths:?} for {bytes} bytes");
    let length = *lengths.last().expect("there is a file");
    assert!(length <= 2 * (bytes + 64) && length - bytes <= 300_000, "{length} for {bytes} bytes");
    // A large write grows the file as it is.
    log.push(2_001, &[7; 100_000]);
    assert!(matches!(log.write().expect("there is room"), Written::All));
    log.push(2_002, &[7; 400_000]);
    assert!(matches!(log.write().expect("there is room"), Written::All));
    log.sync().expect("a disk without faults");
    let end = 64 + log.position() as usize;
    assert_eq!(segments(&storage).pop().map(|(_, bytes)| bytes.len()), Some(end));
}

#[test]
fn a_missing_segment_is_named() {
    for number in 1..=2 {
        let storage = small_log();
        let path = directory().join(format!("{number:08}.log"));
        storage.remove(&path).expect("it is there");
        let error = open(&storage, 0).err().expect("epochs are missing").to_string();
        assert!(error.contains("damaged") && error.contains("epochs"), "{error}");
    }
}

/// Appends epochs in groups with rolls, marks and truncations; counts the acknowledged and the pushed ones.
fn script(storage: &SimStorage, acknowledged: &mut u64, pushed: &mut u64) -> Result<(), StateError> {
    let (_, mut log) = open(storage, *acknowledged / 2)?;
    log.set_segment_bytes(900);
    let last = *pushed + 14;
    while log.epoch() < last {
        let next = log.epoch() + 1;
        let group = next..=next + next % 3;
        *pushed = (*pushed).max(*group.end());
        append(&mut log, group.clone())?;
        *acknowledged = *group.end();
        if next.is_multiple_of(4) {
            log.mark();
        }
        log.roll()?;
        if next.is_multiple_of(5) {
            log.truncate(*acknowledged / 2, usize::MAX)?;
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_acknowledged() {
    let calls = {
        let storage = machine(0);
        create(&storage).expect("a disk without faults");
        let before = storage.call_count();
        script(&storage, &mut 0, &mut 0).expect("a disk without faults");
        before..storage.call_count()
    };
    assert!(calls.len() > 40, "{} calls", calls.len());
    for seed in 0..20 {
        for call in calls.clone() {
            for fault in
                [Fault::CutBefore, Fault::CutAfter, Fault::Half(ErrorKind::Other), Fault::Dropped(ErrorKind::Other)]
            {
                let storage = machine(seed);
                create(&storage).expect("a disk without faults");
                storage.fail(call, fault);
                let (mut acknowledged, mut pushed) = (0, 0);
                let what = format!("seed {seed}, {fault:?} at call {call}");
                let first = script(&storage, &mut acknowledged, &mut pushed);
                storage.heal();
                if storage.is_off() || seed % 2 == 0 {
                    storage.cut_power()
                } else {
                    storage.kill()
                }
                let (held, log) = open(&storage, acknowledged / 2).unwrap_or_else(|error| panic!("{what}: {error}"));
                let last = held.last().copied().unwrap_or(log.epoch());
                assert!(last >= acknowledged && last <= pushed, "{what}: {last} of {acknowledged}..={pushed}");
                assert!(first.is_err() || last == acknowledged, "{what}");
                // A record that was read back once stays.
                drop(log);
                storage.cut_power();
                acknowledged = last;
                script(&storage, &mut acknowledged, &mut pushed).unwrap_or_else(|error| panic!("{what}: {error}"));
                storage.cut_power();
                let (_, log) = open(&storage, acknowledged / 2).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(log.epoch(), acknowledged, "{what}");
            }
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_more_is_written_and_the_tail_is_written_anew() {
    let storage = machine(5);
    let mut log = create(&storage).expect("a disk without faults");
    append(&mut log, 1..=2).expect("a disk without faults");
    log.push(3, &payload(3));
    log.write().expect("there is room");
    storage.fail(storage.call_count(), Fault::Dropped(ErrorKind::Other));
    assert!(matches!(log.sync(), Err(StateError::Lost { .. })));
    storage.heal();
    assert!(matches!(log.sync(), Err(StateError::Lost { .. })), "a later sync is not believed");
    log.push(4, &payload(4));
    assert!(matches!(log.write(), Err(StateError::Lost { .. })));
    storage.kill();
    // The record is still read, from the cache, and is not on the disk until it is written again.
    let (epochs, _log) = open(&storage, 0).expect("it is whole");
    assert_eq!(epochs, [1, 2, 3]);
    storage.cut_power();
    assert_eq!(open(&storage, 0).expect("it is whole").0, [1, 2, 3]);
}

#[test]
fn a_full_disk_is_waited_for() {
    let storage = machine(6);
    let mut log = create(&storage).expect("a disk without faults");
    append(&mut log, 1..=4).expect("a disk without faults");
    let bytes: usize = storage.files().values().map(Vec::len).sum();
    storage.set_capacity(Some(bytes as u64 + 100));
    log.push(5, &payload(5));
    assert!(matches!(log.write().expect("it is no failure"), Written::Full(_)));
    log.push(6, &payload(6));
    assert!(matches!(log.write().expect("it is no failure"), Written::Full(_)));
    storage.set_capacity(None);
    assert!(matches!(log.write().expect("there is room"), Written::All));
    log.sync().expect("a disk without faults");
    drop(log);
    storage.cut_power();
    assert_eq!(open(&storage, 0).expect("it is whole").0, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn truncation_removes_what_a_checkpoint_holds() {
    let storage = small_log();
    let (_, mut log) = open(&storage, 0).expect("it is whole");
    log.truncate(9, usize::MAX).expect("a disk without faults");
    drop(log);
    assert_eq!(open(&storage, 9).expect("it is whole").0, [10, 11, 12]);
    let error = open(&storage, 0).err().expect("they were removed").to_string();
    assert!(error.contains("epochs 1 to "), "{error}");
}

#[test]
fn only_known_calls_are_made() {
    let storage = small_log();
    let odd = storage.calls().into_iter().find(|call| call.operation == Operation::Look);
    assert!(odd.is_none(), "{odd:?}");
    assert!(storage.files().keys().all(|path| path.starts_with(Path::new("log"))));
}
