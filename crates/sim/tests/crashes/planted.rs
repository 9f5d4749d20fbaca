//! Bugs on purpose, in the engine's durable runs: random crashes find each of them, by what it must break.

use crate::search::Search;
use crate::trials::{At, Trials, Wrongs};
use std::sync::mpsc;
use std::time::Duration;
use tidemill_durability::{Bug, Planted};

/// The number of plans before a bug is given up on.
const PLANS_FOR_A_BUG: u64 = 120;
/// A trial that takes longer hangs.
const HANGS_SECONDS: u64 = 240;

/// Returns the plan with which the search begins. Few plans show some of the bugs: theirs begins shortly before one.
fn first_plan(bug: Bug) -> u64 {
    match bug {
        Bug::MergeForgetsGroup | Bug::MergeRepeats => 37,
        Bug::CheckpointRemovesFirst => 149,
        Bug::SnapshotSavesNothing => 60,
        Bug::SnapshotForgetsFailed => 235,
        _ => 1,
    }
}

/// Looks for a trial that shows a bug; why it was not found.
fn look_for(what: String, first: u64, wrongs: Wrongs, shows: &[&str]) -> Result<(), String> {
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut trials = Trials::default();
        for at in (first..first + PLANS_FOR_A_BUG).flat_map(At::of_plan) {
            if said.send((at, trials.run(at, wrongs).map(drop))).is_err() {
                return;
            }
        }
    });
    let mut search = Search::new(what, shows);
    let mut without = Trials::default();
    loop {
        let (at, with) = match heard.recv_timeout(Duration::from_secs(HANGS_SECONDS)) {
            Ok(ran) => ran,
            Err(mpsc::RecvTimeoutError::Timeout) => return Err(format!("a trial hangs\n{}", search.missed())),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(search.missed()),
        };
        if search.finds(at, with, || without.run(at, Wrongs::default()).map(drop)) {
            return Ok(());
        }
    }
}

/// Rows or outputs are not those of the reference, at the end of a run or where an epoch is run again.
const DIFFERS: &[&str] = &["differs", "the first to differ", "comes to other results now"];
const MANIFEST: &[&str] = &["manifest is damaged"];
const ROWS: &[&str] = &[".rows is damaged"];
const LOG: &[&str] = &["the segments before it are missing", "the log has no segments"];
const DURABLE: &[&str] = &["epochs that were durable are missing"];
const CHAIN: &[&str] = &["is not a checkpoint of these entries", "is not the one that was written then"];

#[test]
fn planted_bugs_are_found() {
    let bugs: [(Bug, &[&str]); 19] = [
        (Bug::CheckpointInPlace, MANIFEST),
        (Bug::CheckpointUnsynced, ROWS),
        (Bug::CheckpointForgetsHeld, DIFFERS),
        (Bug::CheckpointForgetsTimes, DIFFERS),
        (Bug::CheckpointRemovesFirst, ROWS),
        (Bug::SnapshotSavesNothing, DIFFERS),
        (Bug::SnapshotForgetsChanges, DIFFERS),
        (Bug::SnapshotMixesGenerations, DIFFERS),
        (Bug::SnapshotForgetsFailed, DIFFERS),
        (Bug::TruncatesFirst, LOG),
        (Bug::EvictedIsAbsent, DIFFERS),
        (Bug::EvictsDirty, DIFFERS),
        (Bug::EvictsCopied, DIFFERS),
        (Bug::CheckpointForgetsSpills, DIFFERS),
        (Bug::SpillsUnsynced, ROWS),
        (Bug::CheckpointHidesSpills, DIFFERS),
        (Bug::ReleasesUnsynced, DURABLE),
        (Bug::ReplayCutsAnew, DIFFERS),
        (Bug::ReplayReleasesAgain, &["the first to differ"]),
    ];
    all_are_found(&bugs);
}

#[test]
fn a_chain_that_begins_anew_is_found() {
    all_are_found(&[(Bug::ChainBeginsAnew, CHAIN)]);
}

#[test]
fn planted_bugs_of_merges_are_found() {
    all_are_found(&[(Bug::MergeForgetsGroup, DIFFERS), (Bug::MergeRepeats, DIFFERS)]);
}

fn all_are_found(bugs: &[(Bug, &[&str])]) {
    let look = |&(bug, shows): &(Bug, &[&str])| {
        look_for(format!("{bug:?}"), first_plan(bug), Wrongs { planted: Planted::new(bug), lies: &[] }, shows)
    };
    let missed: Vec<String> = bugs.iter().filter_map(|bug| look(bug).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn syncs_that_are_left_out_are_found() {
    let lies: [(&'static [&'static str], &[&str]); 7] = [
        (&[".new"], MANIFEST),
        (&[".rows"], ROWS),
        (&["state"], &["manifest is damaged", "the segments before it are missing"]),
        (&["log"], LOG),
        (&["checkpoint"], ROWS),
        // Released output is gone, or is only there in part.
        (&["out"], &["entity not found", "is gone"]),
        (&["tidemill-part"], &["the first to differ", "were released", "are not those that were"]),
    ];
    let look = |(lies, shows): (&'static [&'static str], _)| {
        look_for(format!("{lies:?}"), 1, Wrongs { planted: Planted::default(), lies }, shows)
    };
    let missed: Vec<String> = lies.into_iter().filter_map(|lie| look(lie).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Runs trials until a bug breaks one; its first failure must be this assertion, before any result differs or anything is
/// lost. The same trials pass without the bug.
fn is_asserted(bug: Bug, says: &str) {
    let wrongs = Wrongs { planted: Planted::new(bug), lies: &[] };
    let (mut with, mut without) = (Trials::default(), Trials::default());
    for at in (1..=PLANS_FOR_A_BUG).flat_map(At::of_plan) {
        without.run(at, Wrongs::default()).unwrap_or_else(|wrong| panic!("{at} fails without {bug:?}, too: {wrong}"));
        if let Err(wrong) = with.run(at, wrongs) {
            assert!(wrong.contains("panic: ") && wrong.contains(says), "{at} fails otherwise: {wrong}");
            println!("{bug:?}: {at}: {wrong}");
            return;
        }
    }
    panic!("{bug:?} was not found");
}

#[test]
fn an_epoch_that_is_released_before_it_is_synced_is_asserted() {
    is_asserted(Bug::ReleasesWritten, "an epoch is durable before it is released");
}

#[test]
fn a_head_that_is_shown_before_its_entry_is_synced_is_asserted() {
    is_asserted(Bug::ShowsHeadEarly, "only heads of durable entries are shown");
}

#[test]
fn an_entry_that_is_applied_twice_is_asserted() {
    is_asserted(Bug::EntryAppliedTwice, "each epoch is applied once, in the order of numbers");
}

#[test]
fn an_epoch_that_is_replayed_twice_is_asserted() {
    is_asserted(Bug::ReplayRepeats, "no epoch that the checkpoint holds is replayed");
}

#[test]
fn a_source_that_goes_on_too_early_is_asserted() {
    is_asserted(Bug::ReplayForgetsTaken, "a source goes on after the events that the gate has of it");
}
