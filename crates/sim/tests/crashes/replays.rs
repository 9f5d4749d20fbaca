//! A trial that steps the engine does the same each time, event for event; so a race that a seed finds, it finds again.

use crate::trials::{At, Trials, Wrongs};
use tidemill_durability::{Bug, Planted};

const TIMES: usize = 10;

/// Returns the result of a trial, and its steps.
fn run(trials: &mut Trials, at: At, wrongs: Wrongs) -> (Result<(u64, u64), String>, Vec<u64>) {
    let outcome = trials.run(at, wrongs).map(|outcome| (outcome.crashes, outcome.stops));
    (outcome, trials.steps())
}

#[test]
fn a_seed_replays_event_for_event() {
    let mut kept = Trials::default();
    let (mut crashes, mut steps) = (0, std::collections::BTreeSet::new());
    // Six trials of each plan, of all its data, so that all kinds of settings are among them.
    for at in (1..=10).flat_map(|plan| At::of_plan(plan).step_by(17)) {
        let first = run(&mut kept, at, Wrongs::default());
        for time in 1..TIMES {
            // Half of them with all that the trials before have left, half anew.
            let again = match time % 2 {
                0 => run(&mut kept, at, Wrongs::default()),
                _ => run(&mut Trials::default(), at, Wrongs::default()),
            };
            assert_eq!(again, first, "{at:?}, time {time}");
        }
        let (outcome, hashes) = first;
        crashes += outcome.unwrap_or_else(|wrong| panic!("{at:?}: {wrong}")).0;
        steps.extend(hashes);
    }
    println!("{} processes, {crashes} crashes, each {TIMES} times the same", steps.len());
    assert!(crashes > 20, "{crashes} crashes");
}

/// Epochs are released before their sync has returned: what a power cut then loses was seen. It takes the committer to
/// come before the logger, and the power to be cut between the two.
#[test]
fn a_race_is_found_by_the_same_seed_each_time() {
    let raced = Wrongs { planted: Planted::new(Bug::ReleasesUnsynced), ..Wrongs::default() };
    let mut trials = Trials::default();
    let shows = |found: &Result<(u64, u64), String>| {
        found.as_ref().is_err_and(|wrong| wrong.contains("epochs that were durable are missing"))
    };
    let at =
        (1..50).flat_map(At::of_plan).find(|at| shows(&run(&mut trials, *at, raced).0)).expect("some seed finds it");
    assert!(run(&mut trials, at, Wrongs::default()).0.is_ok(), "{at:?} passes without the bug");
    let first = run(&mut Trials::default(), at, raced);
    for time in 0..TIMES {
        assert_eq!(run(&mut Trials::default(), at, raced), first, "{at:?}, time {time}");
    }
    assert!(shows(&first.0), "{first:?}");
}
