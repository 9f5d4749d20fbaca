//! The store of rows alone: runs, merges and the manifest that names them, with a power cut at every call.

use crate::search::Search;
use std::collections::BTreeMap;
use std::io::ErrorKind::{Other, StorageFull, TimedOut};
use std::path::Path;
use std::sync::Arc;
use tidemill_durability::store::due;
use tidemill_durability::{Bug, Checkpoint, Identity, OpenState, Planted, StateDirectory, StateError, TableState};
use tidemill_histories::Random;
use tidemill_sim::{Fault, SimStorage};
use tidemill_state::{EXISTS, Image, RowShape};

const ROUNDS: u64 = 14;
const KEYS: usize = 60;
/// Calls at which a bug in the store shows at the latest.
const BUG_CALLS_MAX: usize = 250;

type Rows = BTreeMap<u64, u64>;

fn shape() -> Arc<RowShape> {
    Arc::new(RowShape { words: 3, key: vec![1], texts: Vec::new() })
}

/// Returns the values and deletions that checkpoint number `round` has.
fn changes(round: u64) -> BTreeMap<u64, Option<u64>> {
    let mut random = Random::new(round);
    // The first runs are large, later ones small, so that old runs stay while new ones are merged.
    let count = if round <= 2 { KEYS } else { 1 + random.below(5) };
    let change = |_| (random.below(KEYS) as u64, random.chance(60).then_some(round));
    (0..count).map(change).collect()
}

fn rows_after(rounds: u64) -> Rows {
    let mut rows = Rows::new();
    for (key, value) in (1..=rounds).flat_map(changes) {
        match value {
            Some(value) => _ = rows.insert(key, value),
            None => _ = rows.remove(&key),
        }
    }
    rows
}

fn open(storage: &SimStorage, planted: Planted) -> Result<StateDirectory, StateError> {
    let program = Identity {
        version: 1,
        application: "a".into(),
        tables: vec![tidemill_plan::Table {
            name: "t".into(),
            columns: Vec::new(),
            key: Vec::new(),
            indexes: vec![],
            groups: None,
            was: None,
            expire: None,
            is_hidden: false,
            owner: None,
        }],
        sources: Vec::new(),
        code: 0,
        operators: None,
        retired: Vec::new(),
    };
    let storage = Arc::new(storage.clone());
    let mut directory = StateDirectory::open(OpenState {
        recorded: None,
        storage,
        path: Path::new("state"),
        holder: "a test",
        id: 7,
        program,
    })?;
    directory.plant(planted);
    Ok(directory)
}

fn read(directory: &StateDirectory) -> Result<Rows, StateError> {
    let Some(checkpoint) = directory.checkpoint() else { return Ok(Rows::new()) };
    let runs = directory.runs(&checkpoint.tables[0].runs, &shape(), "t")?;
    let mut rows = Rows::new();
    for part in runs.parts() {
        let image = runs.read(&part)?.existing();
        rows.extend((0..image.len()).map(|row| (image.row(row)[1], image.row(row)[2])));
    }
    Ok(rows)
}

/// Goes on with checkpoints until all are there; `done` is told of each that is the newest.
fn work(directory: &mut StateDirectory, done: &mut u64) -> Result<(), StateError> {
    let mut checkpoint = directory
        .checkpoint()
        .cloned()
        .unwrap_or(Checkpoint { tables: vec![TableState::default()], ..Checkpoint::default() });
    for round in checkpoint.epoch + 1..=ROUNDS {
        let mut image = Image::new(&shape());
        for (key, value) in changes(round) {
            image.push([if value.is_some() { EXISTS } else { 0 }, key, value.unwrap_or(0)], |_| &[]);
        }
        let filter = (!checkpoint.tables[0].runs.is_empty()).then_some(image.len());
        let mut writer = directory.write_run(&shape(), filter)?;
        writer.push(&image.newest())?;
        checkpoint.tables[0].runs.push(writer.finish()?.run().clone());
        checkpoint.epoch = round;
        match directory.is_new() {
            true => drop(directory.begin(checkpoint.clone())?),
            false => directory.switch(checkpoint.clone())?,
        }
        *done = round;
        let runs = &mut checkpoint.tables[0].runs;
        if let Some(first) = due(runs) {
            let old = directory.runs(&runs.split_off(first), &shape(), "t")?;
            let into = directory.write_run(&shape(), (first > 0).then_some(old.rows() as usize))?;
            runs.push(old.merge(into, first == 0)?.finish()?.run().clone());
            directory.switch(checkpoint.clone())?;
        }
    }
    Ok(())
}

/// Makes all checkpoints, with a fault at a call and then to the end. Returns what is wrong.
fn trial(call: usize, fault: Fault, planted: Planted) -> Result<bool, String> {
    let storage = SimStorage::new(call as u64);
    storage.fail(call, fault);
    let mut done = 0;
    let ended = open(&storage, planted).and_then(|mut directory| work(&mut directory, &mut done));
    let came = ended.is_err();
    storage.cut_power();
    storage.heal();
    let mut directory = open(&storage, planted).map_err(|error| format!("{error}"))?;
    let epoch = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    if epoch < done {
        return Err(format!("checkpoint {done} was the newest, and is not there"));
    }
    let rows = read(&directory).map_err(|error| format!("{error}"))?;
    if rows != rows_after(epoch) {
        return Err(format!("the rows of checkpoint {epoch} are others"));
    }
    work(&mut directory, &mut done).map_err(|error| format!("{error}"))?;
    let rows = read(&directory).map_err(|error| format!("{error}"))?;
    if rows != rows_after(ROUNDS) {
        return Err("the rows in the end are others".into());
    }
    let live = directory.checkpoint().map_or(0, |checkpoint| checkpoint.files().len());
    let files = storage.files().keys().filter(|path| path.extension().is_some_and(|e| e == "rows")).count();
    if files != live {
        return Err(format!("{files} files are there, {live} are named"));
    }
    Ok(came)
}

const FAULTS: [Fault; 6] = [
    Fault::CutBefore,
    Fault::CutAfter,
    Fault::Refused(Other),
    Fault::Applied(TimedOut),
    Fault::Half(StorageFull),
    Fault::Dropped(Other),
];

/// Fewer calls than this come before a work's end, whatever fails.
const CALLS_MAX: usize = 10_000;

#[test]
fn a_fault_at_every_call() {
    let mut crashes = 0;
    for fault in FAULTS {
        // Until there is no call left that it could come to.
        let came = |call: &usize| {
            trial(*call, fault, Planted::default()).unwrap_or_else(|wrong| panic!("{fault:?} at call {call}: {wrong}"))
        };
        crashes += (0..CALLS_MAX).take_while(came).count();
    }
    println!("{crashes} faults");
    assert!(crashes > 6 * 200, "each kind comes to each call");
}

#[test]
fn bugs_planted_in_the_store_are_found() {
    const WRONG_ROWS: &[&str] = &["the rows"];
    const REFUSED: &[&str] = &["is damaged", "cannot be"];
    let bugs: [(Bug, &[&str]); 5] = [
        (Bug::CheckpointInPlace, REFUSED),
        (Bug::CheckpointUnsynced, REFUSED),
        (Bug::CheckpointRemovesFirst, REFUSED),
        (Bug::MergeDropsDeletions, WRONG_ROWS),
        (Bug::MergeTurnsOrder, WRONG_ROWS),
    ];
    for (bug, shows) in bugs {
        let mut search = Search::new(bug, shows);
        let mut finds = |call: usize, fault: Fault| {
            let run = |planted| trial(call, fault, planted).map(drop);
            search.finds((call, fault), run(Planted::new(bug)), || run(Planted::default()))
        };
        let found = (0..BUG_CALLS_MAX).any(|call| FAULTS.iter().any(|&fault| finds(call, fault)));
        assert!(found, "{}", search.missed());
    }
}
