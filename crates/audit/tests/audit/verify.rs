use crate::bank::{Fault, TRANSFERS, logged, open, run};
use std::path::Path;
use tidemill_audit::{Verified, verify};
use tidemill_durability::{Manifest, Planted, overwrite, read_all};
use tidemill_sim::SimStorage;

fn from_start(machine: &SimStorage) -> Result<Verified, String> {
    verify(&open(machine), Some("start"), &logged).map_err(|error| error.to_string())
}

#[test]
fn a_run_is_verified_from_its_beginning() {
    let machine = SimStorage::new(1);
    run(&machine, Fault::None, TRANSFERS).expect("it ends");
    let verified = from_start(&machine).expect("nothing differs");
    assert_eq!((verified.from, verified.events, verified.tables_compared), (0, 4, true));
    assert_eq!(verified.compared, verified.through);
    assert_eq!(verified.notes, Vec::<String>::new());
    assert_eq!(verified.outputs["late"].events, 1);
    // From the newest checkpoint there is nothing to run again, which is said.
    let newest = verify(&open(&machine), None, &logged).expect("nothing differs");
    assert_eq!((newest.from, newest.events), (verified.through, 0));
    assert!(newest.notes[0].contains("verify from a savepoint, which keeps it: start"), "{:?}", newest.notes);
    assert_eq!((newest.tables, newest.outputs), (verified.tables, verified.outputs));
}

#[test]
fn a_row_that_was_written_wrong_is_named_with_its_last_transaction() {
    let machine = SimStorage::new(1);
    run(&machine, Fault::Steals, TRANSFERS).expect("it ends");
    let found = from_start(&machine).expect_err("one is missing");
    for part in ["the row \"ada\" is id = \"ada\", balance = 37 in the checkpoint", "balance = 38 by the reference"] {
        assert!(found.contains(part), "{found}");
    }
    assert!(found.contains("last written by transfer on transfers:"), "{found}");
}

#[test]
fn an_epoch_with_other_results_is_named() {
    let machine = SimStorage::new(1);
    run(&machine, Fault::Refuses, TRANSFERS).expect("it ends");
    let found = from_start(&machine).expect_err("it refuses too much");
    assert!(
        found.starts_with("epoch 1 differs: transaction transfer: 0 committed and 2 aborted in the engine"),
        "{found}"
    );
    assert!(found.contains("sink done (transfer.committed)"), "{found}");
}

/// Rewrites the manifest, with its own check made anew.
fn forge(machine: &SimStorage, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(machine, Path::new("state")).expect("it reads").expect("it is there");
    change(&mut manifest);
    manifest.write(machine, Path::new("state"), Planted::default()).expect("no fault");
}

#[test]
fn rows_that_were_changed_in_a_checkpoint_are_found_whichever_hashes_were_made_anew() {
    let (right, wrong) = (SimStorage::new(1), SimStorage::new(1));
    run(&right, Fault::None, TRANSFERS).expect("it ends");
    run(&wrong, Fault::Steals, TRANSFERS).expect("it ends");
    // The rows of another state of the same name: all its blocks have right checks.
    let checkpoint = open(&wrong).checkpoint().expect("one was taken").clone();
    for number in checkpoint.files() {
        let path = format!("state/checkpoint/{number:08}.rows");
        let bytes = read_all(&wrong, Path::new(&path)).expect("it is there");
        overwrite(&right, Path::new(&path), &bytes).expect("no fault");
    }
    forge(&right, |manifest| {
        manifest.checkpoint.tables = checkpoint.tables;
        let root = manifest.checkpoint.root();
        manifest.checkpoint.proof.as_mut().expect("a chain").root = root;
    });
    let found = from_start(&right).expect_err("the rows are others");
    assert!(found.contains("the row \"ada\" is id = \"ada\", balance = 37 in the checkpoint"), "{found}");
}

#[test]
fn a_forged_output_digest_is_found() {
    let machine = SimStorage::new(1);
    run(&machine, Fault::None, TRANSFERS).expect("it ends");
    forge(&machine, |manifest| manifest.checkpoint.outputs.get_mut("done").expect("a sink").hash ^= 1);
    let found = from_start(&machine).expect_err("it is another");
    assert!(found.contains("sink done differs by epoch"), "{found}");
}
