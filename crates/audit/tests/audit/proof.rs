//! The chain of proof of a state: what an anchor shows, and that no byte of an entry can be changed behind one.

use crate::bank::{Fault, How, Transfers, logged, open, program, read_again, run_as};
use std::path::{Path, PathBuf};
use tidemill_audit::{Proven, prove, show, verify, verify_from_anchor};
use tidemill_durability::{Bug, Head, Manifest, Planted, Proof, StateDirectory, overwrite, read_all};
use tidemill_runtime::{DurabilityOptions, Proving};
use tidemill_sim::SimStorage;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Enough for several epochs, of which one is late.
const TRANSFERS: Transfers<'_> = &[
    (1, "ada", "bob", 70),
    (2, "ada", "bob", 70),
    (20, "bob", "ada", 13),
    (3, "bob", "ada", 1),
    (21, "ada", "bob", 5),
    (30, "ada", "bob", 1),
    (31, "bob", "ada", 2),
    (40, "ada", "bob", 3),
    (50, "bob", "ada", 4),
];
const MORE: Transfers<'_> = &[(60, "ada", "bob", 1), (61, "bob", "ada", 2), (70, "ada", "bob", 3)];

/// Returns a state whose log the savepoint "start" keeps.
fn machine() -> SimStorage {
    let machine = SimStorage::new(1);
    run(&machine, TRANSFERS, Proving::On);
    machine
}

/// Runs transfers, after which there may be more.
fn run(machine: &SimStorage, transfers: Transfers<'_>, proof: Proving) {
    let options = DurabilityOptions { proof, ..DurabilityOptions::default() };
    run_as(machine, transfers, How { options, ..How::default() }).expect("it ends");
}

fn start(directory: &StateDirectory) -> StateDirectory {
    directory.open_savepoint(&directory.savepoint("start").expect("it was made")).expect("it is whole")
}

fn from_start(machine: &SimStorage, anchor: Option<Head>) -> Result<Proven, String> {
    let directory = open(machine);
    let proven = prove(&directory, Some(&start(&directory)), anchor).map_err(|error| error.to_string())?;
    Ok(proven.expect("a chain is kept"))
}

fn from_newest(machine: &SimStorage, anchor: Option<Head>) -> Result<Proven, String> {
    let proven = prove(&open(machine), None, anchor).map_err(|error| error.to_string())?;
    Ok(proven.expect("a chain is kept"))
}

/// Returns the heads of all epochs.
fn heads(machine: &SimStorage) -> Vec<Head> {
    let directory = open(machine);
    let mut log = directory.log_behind(0).expect("it is kept");
    log.prove(start(&directory).chain());
    let mut heads = vec![log.proof().expect("a chain").head()];
    while log.next_epoch().expect("it reads").is_some() {
        heads.push(log.proof().expect("a chain").head());
    }
    heads
}

fn other(head: Head) -> Head {
    let mut bytes = *head.hash.bytes();
    bytes[31] ^= 1;
    Head { hash: tidemill_durability::Hash256::from_bytes(bytes), ..head }
}

#[test]
fn every_head_is_an_anchor() {
    let machine = machine();
    let heads = heads(&machine);
    let last = *heads.last().expect("there are epochs");
    assert!(heads.len() > 2, "{heads:?}");
    for (epoch, &head) in heads.iter().enumerate() {
        assert_eq!(head.epoch, epoch as u64);
        let proven = from_start(&machine, Some(head)).expect("it is of the chain");
        assert_eq!((proven.begins, proven.from, proven.entries), (0, 0, heads.len() as u64 - 1));
        assert_eq!((proven.head, proven.anchor.expect("one was given").before), (last, None));
        let found = from_start(&machine, Some(other(head))).expect_err("it is of another chain");
        assert!(found.contains("is not the one that was written then"), "{found}");
    }
    // From the newest checkpoint on there is no entry: an earlier anchor begins the chain.
    let newest = from_newest(&machine, Some(last)).expect("it is the checkpoint's");
    assert_eq!((newest.from, newest.entries, newest.head), (last.epoch, 0, last));
    for &head in &heads[..heads.len() - 1] {
        let proven = from_newest(&machine, Some(head)).expect("the checkpoint follows it");
        assert_eq!((proven.from, proven.anchor.expect("one was given").before), (head.epoch, Some(last.epoch)));
        let found = from_newest(&machine, Some(other(head))).expect_err("the checkpoint does not follow it");
        assert!(found.contains("it is not a checkpoint of these entries"), "{found}");
    }
    let late = Head { epoch: last.epoch + 1, ..last };
    let found = from_newest(&machine, Some(late)).expect_err("there is no such epoch");
    assert!(found.contains("are missing"), "{found}");
}

#[test]
fn an_anchor_before_a_log_that_is_gone_shows_nothing() {
    let machine = machine();
    let heads = heads(&machine);
    open(&machine).remove_savepoint("start").expect("it is there");
    run(&machine, MORE, Proving::On);
    let found = from_newest(&machine, Some(heads[1])).expect_err("the log is gone");
    assert!(found.contains("the log between them is gone"), "{found}");
}

#[test]
fn a_chain_goes_on_from_one_run_to_the_next() {
    let machine = machine();
    let before = heads(&machine);
    run(&machine, MORE, Proving::On);
    let after = heads(&machine);
    assert!(after.len() > before.len() && after.starts_with(&before), "{before:?}, then {after:?}");
    let verified = verify_from_anchor(&open(&machine), Some("start"), Some(before[1]), &logged).expect("no difference");
    assert_eq!(verified.proof.expect("a chain").head, *after.last().expect("there are epochs"));
    let found = verify_from_anchor(&open(&machine), Some("start"), Some(other(before[1])), &logged);
    assert!(found.is_err(), "verify compares the anchor");
    let text = show(&open(&machine), &"transfers:0".parse().expect("a position"), &logged).expect("it is there");
    assert!(after[1..].iter().any(|head| text.contains(&head.to_string())), "{text}");
}

/// Rewrites the manifest, with its own check made anew.
fn forge(machine: &SimStorage, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(machine, Path::new("state")).expect("it reads").expect("it is there");
    change(&mut manifest);
    manifest.write(machine, Path::new("state"), Planted::default()).expect("no fault");
}

#[test]
fn the_chain_of_a_state_without_one_begins_when_it_is_opened() {
    let machine = machine();
    let end = open(&machine).checkpoint().expect("it has one").epoch;
    forge(&machine, |manifest| manifest.checkpoint.proof = None);
    assert_eq!(prove(&open(&machine), None, None).expect("it reads"), None);
    let anchor: Head = format!("{}@{end}", "0".repeat(64)).parse().expect("a head");
    let found = prove(&open(&machine), None, Some(anchor)).expect_err("there is no chain").to_string();
    assert!(found.contains("has no chain of proof"), "{found}");
    run(&machine, MORE, Proving::On);
    let proven = from_newest(&machine, None).expect("it has a chain now");
    assert_eq!(proven.begins, end);
    let found = from_newest(&machine, Some(Head { epoch: end - 1, ..anchor })).expect_err("it is before the chain");
    assert!(found.contains(&format!("the chain of proof begins after epoch {end}")), "{found}");
}

#[test]
fn a_run_without_proof_ends_the_chain() {
    let machine = machine();
    let last = heads(&machine).pop().expect("there are epochs");
    run(&machine, MORE, Proving::Off);
    assert_eq!(prove(&open(&machine), None, None).expect("it reads"), None);
    let end = open(&machine).checkpoint().expect("it has one").epoch;
    assert!(end > last.epoch);
    run(&machine, &[(80, "ada", "bob", 1), (90, "ada", "bob", 1)], Proving::On);
    let proven = from_newest(&machine, None).expect("a chain begins");
    assert_eq!(proven.begins, end);
    // The log from the savepoint on has the end of the one chain and the beginning of the other.
    assert_eq!(from_start(&machine, None).expect("it is no difference").head, proven.head);
    for head in [last, proven.head] {
        from_start(&machine, Some(head)).expect("it is of one of them");
        from_start(&machine, Some(other(head))).expect_err("it is of none");
    }
    let begun = SimStorage::new(2);
    run(&begun, TRANSFERS, Proving::Off);
    assert_eq!(prove(&open(&begun), None, None).expect("it reads"), None);
}

#[test]
fn every_byte_of_a_run_is_covered_by_the_root() {
    let machine = machine();
    run(&machine, MORE, Proving::On);
    let root = from_newest(&machine, None).expect("it has a chain").root.expect("all runs are hashed");
    let files: Vec<(PathBuf, Vec<u8>)> =
        machine.files().into_iter().filter(|(path, _)| path.starts_with("state/checkpoint")).collect();
    let named = open(&machine).checkpoint().expect("it has one").runs().map(|run| run.index.file).collect::<Vec<_>>();
    let is_run = |path: &Path| named.iter().any(|file| path.ends_with(format!("{file:08}.rows")));
    let mut tried = 0;
    for (path, bytes) in files.iter().filter(|(path, _)| is_run(path)) {
        for byte in 0..bytes.len() {
            machine.flip(path, byte, (byte % 8) as u8);
            let found = from_newest(&machine, None).expect_err("a byte is another");
            assert!(found.contains(".rows is damaged") && found.contains("SHA-256"), "{found}");
            machine.flip(path, byte, (byte % 8) as u8);
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried} bytes");
    // Who makes the hash of a run anew is found by the root.
    forge(&machine, |manifest| {
        let hash = manifest.checkpoint.tables[0].runs[0].hash.as_mut().expect("it is hashed");
        *hash = tidemill_durability::Hash256::of(&[b"other"]);
    });
    let found = from_newest(&machine, None).expect_err("the root is another");
    assert!(found.contains("its root is not that of its runs"), "{found}");
    assert_eq!(root.len(), 64);
}

#[test]
fn runs_from_before_hashes_are_counted_and_have_no_root() {
    let machine = machine();
    forge(&machine, |manifest| {
        manifest.checkpoint.tables[0].runs.iter_mut().for_each(|run| run.hash = None);
        manifest.checkpoint.proof.as_mut().expect("a chain").root = None;
    });
    let proven = from_newest(&machine, None).expect("nothing contradicts");
    assert_eq!((proven.root, proven.runs.1), (None, 0));
    assert!(proven.runs.0 > 0, "there are runs");
}

#[test]
fn a_return_to_a_savepoint_is_an_entry() {
    let machine = machine();
    let before = heads(&machine);
    open(&machine).restore_savepoint("start").expect("it is there");
    run(&machine, MORE, Proving::On);
    let after = heads(&machine);
    assert!(after.iter().all(|head| !before.contains(head)), "{before:?}, then {after:?}");
    let proven = from_start(&machine, before.last().copied()).expect("the return follows it");
    let anchor = proven.anchor.expect("one was given");
    assert_eq!(
        (anchor.restored, anchor.head, proven.head),
        (Some(0), before[before.len() - 1], after[after.len() - 1])
    );
    from_start(&machine, Some(before[0])).expect("the return is to this head");
    from_start(&machine, Some(before[1])).expect_err("this entry is forgotten");
    for &head in &after {
        from_start(&machine, Some(head)).expect("it is of the new course");
    }
    let manifest = Manifest::read(&machine, Path::new("state")).expect("it reads").expect("it is there");
    let entry = manifest.restored[0];
    assert_eq!(
        (entry.course, entry.epoch, entry.savepoint, entry.before()),
        (1, 0, before[0].hash, before[before.len() - 1])
    );
    forge(&machine, |manifest| manifest.restored[0].before = before[0].hash);
    let found = from_start(&machine, None).expect_err("the entry is another");
    assert!(found.contains("follows from the return to the savepoint of that epoch"), "{found}");
}

/// The transfers, of which one is another.
fn changed() -> Vec<(i64, &'static str, &'static str, i64)> {
    let mut changed = TRANSFERS.to_vec();
    changed[1].3 += 1;
    changed
}

const OTHER: &str = "it gives other records than it gave for epoch";

#[test]
fn what_a_source_gives_again_is_compared_by_its_hash() {
    let machine = SimStorage::new(1);
    run_as(&machine, TRANSFERS, How { again: Some(2), ..How::default() }).expect("it ends");
    let verified = |transfers: Transfers<'_>, size: usize| {
        let of = program(Fault::None);
        let again = |_: &StateDirectory, _: &tidemill_plan::Stream| Ok(Some(read_again(&of, transfers, size)));
        verify(&open(&machine), Some("start"), &again).map_err(|error| error.to_string())
    };
    for size in 1..=6 {
        verified(TRANSFERS, size).unwrap_or_else(|error| panic!("in batches of {size}: {error}"));
        let found = verified(&changed(), size).expect_err("a transfer is another");
        assert!(found.contains(OTHER), "{found}");
    }
}

/// Returns a state whose log has epochs after its checkpoint, as a crash leaves it.
fn crashed() -> SimStorage {
    let whole = SimStorage::new(1);
    run_as(&whole, TRANSFERS, How { again: Some(2), ..How::default() }).expect("it ends");
    (1..whole.call_count())
        .rev()
        .find_map(|call| {
            let machine = SimStorage::new(1);
            machine.fail(call, tidemill_sim::Fault::CutAfter);
            let ended = run_as(&machine, TRANSFERS, How { again: Some(2), ..How::default() });
            machine.heal();
            machine.cut_power();
            let is_left = ended.is_err() && open(&machine).has_logged().expect("it reads");
            is_left.then_some(machine)
        })
        .expect("between its first epoch and its end a run leaves a log")
}

#[test]
fn a_replay_compares_what_a_source_gives_again() {
    let replay = |transfers: Transfers<'_>, planted| {
        let how = How { again: Some(3), planted, ..How::default() };
        run_as(&crashed(), transfers, how).map_err(|error| error.to_string())
    };
    replay(TRANSFERS, Planted::default()).expect("nothing has changed");
    let found = replay(&changed(), Planted::default()).expect_err("a transfer is another");
    assert!(found.contains("source 'transfers'") && found.contains(OTHER), "{found}");
    let missed = replay(&changed(), Planted::new(Bug::SourceHashNotCompared));
    assert!(!missed.is_err_and(|error| error.contains(OTHER)), "the planted bug compares nothing");
}

/// A segment's file, and its records: where each begins, and its size.
struct Segment {
    path: PathBuf,
    bytes: Vec<u8>,
    records: Vec<(usize, usize)>,
}

const SEGMENT_HEADER: usize = 64;
const RECORD_HEADER: usize = 48;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn segments(machine: &SimStorage) -> Vec<Segment> {
    let files = machine.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "log"));
    let segment = |(path, bytes): (PathBuf, Vec<u8>)| {
        let (mut records, mut at) = (Vec::new(), SEGMENT_HEADER);
        // Zeros may follow the records.
        while bytes[at..].iter().any(|&byte| byte != 0) {
            let size = (RECORD_HEADER + word(&bytes, at + 16) as usize).next_multiple_of(8);
            records.push((at, size));
            at += size;
        }
        Segment { path, bytes, records }
    };
    files.map(segment).collect()
}

/// Makes the 64-bit checks of all records and segments anew, as one would who forges them.
fn make_checks_anew(segments: &mut [Segment]) {
    let mut chain = None;
    for Segment { bytes, records, .. } in segments {
        let (id, base) = (word(bytes, 8), word(bytes, 24));
        if let Some(chain) = chain {
            put(bytes, 32, chain);
        }
        let check = xxh3_64(&bytes[..56]);
        put(bytes, 56, check);
        for &(at, size) in &*records {
            if let Some(chain) = chain {
                put(bytes, at + 32, chain);
            }
            let position = base + (at - SEGMENT_HEADER) as u64;
            let seed = id ^ position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let check = xxh3_64_with_seed(&bytes[at + 8..at + size], seed);
            put(bytes, at, check);
            chain = Some(check);
        }
    }
}

/// Returns the head that the forged entries lead to, if they read.
fn forged_proof(machine: &SimStorage) -> Option<Proof> {
    let directory = open(machine);
    let mut log = directory.log_behind(0).ok()?;
    log.prove(start(&directory).chain());
    while log.next_epoch().ok()?.is_some() {}
    log.proof().map(|chain| chain.proof())
}

#[test]
fn every_byte_of_an_entry_is_covered_whichever_checks_are_made_anew() {
    let machine = machine();
    let anchor = heads(&machine).pop().expect("there are epochs");
    let (mut tried, mut forged) = (0, 0);
    let whole = segments(&machine);
    for (s, segment) in whole.iter().enumerate() {
        for &(at, size) in segment.records.iter().filter(|(at, _)| segment.bytes[at + 12] == 1) {
            // The check comes first. The word at 40 says how far the log was durable then, which is no part of the entry.
            for byte in (at + 8..at + size).filter(|byte| !(at + 40..at + 48).contains(byte)) {
                let mut changed = segments(&machine);
                changed[s].bytes[byte] ^= 1 << (byte % 8);
                make_checks_anew(&mut changed);
                for Segment { path, bytes, .. } in &changed {
                    overwrite(&machine, path, bytes).expect("no fault");
                }
                // Who can write the log can write the manifest.
                let proof = forged_proof(&machine);
                if let Some(proof) = proof {
                    forge(&machine, |manifest| {
                        let root = manifest.checkpoint.root();
                        manifest.checkpoint.proof = Some(Proof { root, ..proof });
                    });
                    from_start(&machine, None).expect("without an anchor nothing is wrong");
                    forged += 1;
                }
                let found = from_start(&machine, Some(anchor));
                // The link to the record before is made anew, so a byte of it is as it was.
                let is_link = (at + 32..at + 40).contains(&byte) && (s, at) != (0, SEGMENT_HEADER);
                assert_eq!(found.is_err(), !is_link, "byte {} of {:?}: {found:?}", byte, segment.path);
                tried += 1;
                for Segment { path, bytes, .. } in &whole {
                    overwrite(&machine, path, bytes).expect("no fault");
                }
                forge(&machine, |manifest| {
                    let (begins, root) =
                        (manifest.checkpoint.proof.expect("a chain").begins, manifest.checkpoint.root());
                    manifest.checkpoint.proof = Some(Proof { begins, head: anchor.hash, root });
                });
            }
        }
    }
    assert!(tried > 100 && forged > 50, "{forged} of {tried} changes could be forged but for the anchor");
    from_start(&machine, Some(anchor)).expect("all is as it was");
    verify(&open(&machine), Some("start"), &logged).expect("all is as it was");
    assert_eq!(read_all(&machine, &whole[0].path).expect("it reads"), whole[0].bytes);
}
