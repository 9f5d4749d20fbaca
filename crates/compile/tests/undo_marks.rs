//! Undo marks against copies of the tables: transactions run, a mark is taken, more run, and all since the mark are undone.
//! Every word and every text is then as it was, whatever the programs do: numbers, nulls, floats, texts, windows, rows
//! that are inserted and deleted, aborts in between, and events emitted.
//!
//! The rows are plain memory of the test, laid out as the engine's.

mod support;

use support::{Bank, Events, application};
use tidemill_compile::{AccessContext, Code, Undo};
use tidemill_histories::Random;
use tidemill_plan::analyze;
use typed_index_collections::ti_vec;

const PROGRAMS: u64 = 150;
const EVENTS: usize = 60;

fn compiled(seed: u64, undo: Undo) -> (tidemill_plan::Program, Code) {
    let program = analyze(&application(&mut Random::new(seed))).unwrap_or_else(|errors| panic!("{seed}: {errors:#?}"));
    let wanted = ti_vec![true; program.streams.len()];
    let code = Code::compile_for(&program, &wanted, undo).expect("it compiles");
    (program, code)
}

/// Returns the rows of the tables, and how many events of each number are emitted.
fn seen(bank: &Bank, context: &AccessContext, code: &Code) -> (Vec<support::Row>, Vec<usize>) {
    let emitted = (0..code.emission_types.len()).map(|number| context.emissions(number).owners().len());
    (bank.rows(), emitted.collect())
}

#[test]
fn everything_after_a_mark_is_undone() {
    let (mut changed, mut aborts, mut commits, mut emitted) = (0, 0, 0, 0);
    for seed in 0..PROGRAMS {
        let (program, code) = compiled(seed, Undo::ToMarks);
        let mut random = Random::new(seed ^ 0xfeed);
        let events = Events::random(&mut random, EVENTS);
        let mut bank = Bank::new(&program);
        let mut context = support::context(&code, true);
        let mut at = 0;
        while at < EVENTS {
            // Marks nest: an inner one is undone, or not, and then the outer one.
            let before = seen(&bank, &context, &code);
            let outer = context.mark();
            at += bank.run(&code, &mut context, &events, at, 1 + random.below(6));
            let between = seen(&bank, &context, &code);
            let inner = context.mark();
            at += bank.run(&code, &mut context, &events, at, random.below(8));
            changed += usize::from(seen(&bank, &context, &code).0 != between.0);
            emitted += usize::from(seen(&bank, &context, &code).1 != between.1);
            if random.chance(60) {
                // SAFETY: the rows are where they were, and the test's own.
                unsafe { context.undo_to(&inner) };
                assert_eq!(seen(&bank, &context, &code), between, "seed {seed}, before event {at}");
                bank.run(&code, &mut context, &events, 0, random.below(3));
            }
            if random.chance(60) {
                // SAFETY: as above.
                unsafe { context.undo_to(&outer) };
                assert_eq!(seen(&bank, &context, &code), before, "seed {seed}, before event {at}");
            }
            if random.chance(50) {
                context.keep();
            }
        }
        context.keep();
        context.drain_order().for_each(drop);
        drop(context.take());
        aborts += bank.aborts;
        commits += bank.commits;
    }
    println!("{commits} commits, {aborts} aborts, {changed} stretches changed rows, {emitted} emitted");
    assert!(changed > 500 && emitted > 200 && aborts > 500 && commits > 2_000);
}

/// Code whose writes can be undone does what other code does.
#[test]
fn marks_change_no_result() {
    for seed in 0..PROGRAMS {
        let events = Events::random(&mut Random::new(seed ^ 0xfeed), EVENTS);
        let outcomes = [Undo::ToBeginning, Undo::ToMarks].map(|undo| {
            let (program, code) = compiled(seed, undo);
            let mut bank = Bank::new(&program);
            let mut context = support::context(&code, true);
            bank.run(&code, &mut context, &events, 0, EVENTS);
            context.keep();
            let order: Vec<(u32, u32)> = context.drain_order().collect();
            (seen(&bank, &context, &code), order, bank.commits, bank.aborts)
        });
        let [plain, marked] = outcomes;
        assert_eq!(plain, marked, "seed {seed}");
    }
}

/// The undo log grows: there are more writes than it has room for at first, over many transactions.
#[test]
fn the_log_grows_under_marks() {
    let (program, code) = compiled(3, Undo::ToMarks);
    let events = Events::random(&mut Random::new(3), EVENTS);
    let mut bank = Bank::new(&program);
    let mut context = support::context(&code, false);
    let before = bank.rows();
    let mark = context.mark();
    for _ in 0..300 {
        bank.run(&code, &mut context, &events, 0, EVENTS);
    }
    assert_ne!(bank.rows(), before);
    // SAFETY: the rows are where they were, and the test's own.
    unsafe { context.undo_to(&mark) };
    assert_eq!(bank.rows(), before);
}
