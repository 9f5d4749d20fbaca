//! Bugs on purpose, in calls and in what clients see of them: random histories find each of them, by what it must break.

use super::{Called, Setting};
use crate::search::Search;
use crate::support::with_all_sinks;
use crate::{configuration, watchdog};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidemill_durability::{Bug, Planted};
use tidemill_histories::{DataShape, History, Random, mixed_call_plan, random_data};
use tidemill_plan::{Plan, analyze};
use tidemill_sim::panic_message;

/// The number of plans before a bug is given up on.
const PLANS_FOR_A_BUG: u64 = 200;
const HISTORIES_PER_PLAN: u64 = 12;

/// Returns the plan with which the search begins. Few plans show some of the bugs: theirs begins shortly before one.
fn first_plan(wrong: Wrong) -> u64 {
    match wrong {
        Wrong::Planted(Bug::CheckpointForgetsKeys) => 10,
        Wrong::Planted(Bug::AnswersAgainUnsynced) => 39,
        _ => 1,
    }
}

/// Tables, outputs or replies are not those of the oracle, at the end or where an epoch is run again.
const DIFFERS: &[&str] =
    &["table ", "stream ", "and this became of it", "comes to other results now", "a snapshot of table"];
/// A call was answered that is not there, or is answered in two ways.
const TOO_EARLY: &[&str] = &["the history lacks call", "and then with", "was made with other arguments"];
/// A call is there twice, or is answered in two ways.
const TWICE: &[&str] = &["twice", "and then with", "was made with other arguments", "which nobody made"];

/// The bug.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Planted(Bug),
    /// The engine runs nested transactions alone: what a nest has done is not undone when one of its steps aborts.
    NestsStay,
}

/// A plan, with and without what is wrong.
struct Pair {
    plan: Plan,
    wrong: Wrong,
    with: Called,
    without: Called,
}

impl Pair {
    fn new(seed: u64, wrong: Wrong) -> Pair {
        let plan = mixed_call_plan(seed);
        let with = match wrong {
            Wrong::Planted(_) => Called::new(&plan),
            Wrong::NestsStay => {
                let mut alone = with_all_sinks(&plan);
                alone.transactions.iter_mut().for_each(|transaction| transaction.nested = false);
                let alone = analyze(&alone).expect("its transactions stand alone, too");
                Called::by_engine_of(Called::new(&plan).program, alone)
            }
        };
        Pair { without: Called::new(&plan), with, plan, wrong }
    }

    /// Runs a history; a panic is one of the things that can be wrong.
    fn run(&mut self, history: &History, setting: Setting, is_wrong: bool) -> Result<(), String> {
        let called = if is_wrong { &mut self.with } else { &mut self.without };
        let planted = match self.wrong {
            Wrong::Planted(bug) if is_wrong => Planted::new(bug),
            _ => Planted::default(),
        };
        let run = AssertUnwindSafe(|| called.run(history, Setting { planted, ..setting }).map(drop));
        catch_unwind(run).unwrap_or_else(|panic| Err(format!("panic: {}", panic_message(&*panic))))
    }
}

/// Looks for a history that shows what is wrong; why none was found.
fn look_for(wrong: Wrong, shows: &[&str]) -> Result<(), String> {
    let mut search = Search::new(wrong, shows);
    let first = first_plan(wrong);
    for seed in (first..=PLANS_FOR_A_BUG).chain(1..first) {
        let mut pair = Pair::new(seed, wrong);
        for data_seed in seed * 1_000..seed * 1_000 + HISTORIES_PER_PLAN {
            let (preload, sources) = random_data(pair.with.program(), data_seed, DataShape::random(data_seed));
            let history = History { plan: pair.plan.clone(), preload, sources };
            let mut random = Random::new(data_seed);
            let (options, batch_size) = configuration(&mut random);
            let lives = 1 + random.below(3);
            let setting = Setting { seed: data_seed, options, batch_size, lives, planted: Planted::default() };
            watchdog().begins(format!("{wrong:?}, plan seed {seed}, {setting:?}"));
            let with = pair.run(&history, setting, true);
            let is_right = with.is_ok();
            let is_found = search.finds((seed, data_seed), with, || pair.run(&history, setting, false));
            watchdog().ends();
            if is_found {
                return Ok(());
            }
            if !is_right {
                // The engine may have gone with the run.
                pair = Pair::new(seed, wrong);
            }
        }
    }
    Err(search.missed())
}

#[test]
fn planted_bugs_of_calls_are_found() {
    let bugs: [(Wrong, &[&str]); 10] = [
        (Wrong::Planted(Bug::AnswersUnsynced), TOO_EARLY),
        (Wrong::Planted(Bug::AnswersOtherArguments), &["was made with other arguments"]),
        (Wrong::Planted(Bug::AnswersAgainUnsynced), TOO_EARLY),
        (Wrong::Planted(Bug::ReplayForgetsKeys), TWICE),
        (Wrong::Planted(Bug::CheckpointForgetsKeys), TWICE),
        (Wrong::Planted(Bug::CheckpointForgetsAnswers), TWICE),
        (Wrong::Planted(Bug::CheckpointForgetsBatches), DIFFERS),
        (Wrong::Planted(Bug::LogForgetsOrder), DIFFERS),
        (Wrong::Planted(Bug::SnapshotSavesNothing), &["a snapshot of table"]),
        (Wrong::NestsStay, DIFFERS),
    ];
    let missed: Vec<String> = bugs.into_iter().filter_map(|(wrong, shows)| look_for(wrong, shows).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
