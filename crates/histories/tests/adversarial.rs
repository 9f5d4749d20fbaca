//! The hand-written histories are valid, and do what they are made for.

mod common;

use common::Seen;
use tidemill_histories::{History, adversarial};
use tidemill_plan::{Program, analyze};

fn run(history: &History) -> (Program, Seen) {
    let program = analyze(&history.plan).unwrap_or_else(|errors| panic!("{}: {errors:#?}", history.plan.name));
    let seen = Seen::of(&program, history);
    (program, seen)
}

fn named(name: &str) -> (Program, Seen) {
    let (_, history) = adversarial().into_iter().find(|(n, _)| *n == name).expect("there is such a history");
    run(&history)
}

/// Commits and aborts of all transactions.
fn totals(seen: &Seen) -> (u64, u64) {
    let aborted = seen.counts.iter().flat_map(|c| &c.aborted).sum();
    (seen.counts.iter().map(|c| c.committed).sum(), aborted)
}

/// Returns the number of events that came out of a stream.
fn count(program: &Program, seen: &Seen, stream: &str) -> usize {
    let id = program.streams.position(|s| s.name == stream).expect("there is such a stream");
    seen.outputs[id].len()
}

#[test]
fn all_are_valid_and_put_something_out() {
    for (name, history) in adversarial() {
        let (program, seen) = run(&history);
        let (committed, aborted) = totals(&seen);
        println!("{name}: {committed} committed, {aborted} aborted");
        let derived = program.streams.len() > history.sources.len() * 3;
        assert!(derived && seen.outputs.iter().any(|o| !o.is_empty()), "{name} does nothing");
        assert!(seen.same(&run(&history).1), "{name} is no function of its history");
    }
}

#[test]
fn transfers_follow_each_other() {
    let (_, chain) = named("a chain of transfers");
    assert_eq!(totals(&chain), (120, 60), "the coin goes there and back, and is nowhere else");
    let (_, aborting) = named("every transaction aborts");
    assert_eq!(totals(&aborting).0, 0);
    let (_, flipped) = named("aborts flip later verdicts");
    let (committed, aborted) = totals(&flipped);
    assert!(committed > 5 && aborted > 40, "{committed} committed, {aborted} aborted");
}

#[test]
fn rows_come_and_go() {
    for name in ["a row comes and goes", "missing rows"] {
        let (program, seen) = named(name);
        for (reason, count) in program.transactions.raw[0].reasons.iter().zip(&seen.counts.raw[0].aborted) {
            assert!(*count > 0 || reason.contains("overflow"), "{name}: never aborts with '{reason}'");
        }
    }
}

#[test]
fn late_events_are_put_aside() {
    let (program, seen) = named("late events");
    // After 100 anything below 90 is late, after 110 anything below 100; MIN always.
    assert_eq!(count(&program, &seen, "left.late"), 3);
    // After MAX only MAX - 10 is in time.
    assert_eq!(count(&program, &seen, "right.late"), 3);
}

#[test]
fn a_crossed_emission_keeps_the_order_of_emission() {
    let (program, seen) = named("an earlier event of a cascade emits later");
    let stream = program.streams.position(|s| s.name == "both.emitted.out").expect("it emits");
    let firsts: Vec<_> = seen.outputs[stream].iter().take(2).map(|e| e[1].to_string()).collect();
    // First on the event itself (0 + 0 after `before`), then on the 100 that `before` emitted.
    assert_eq!(firsts, ["0", "100"]);
}

/// Transactions that come up to a limit and not beyond.
const WITHIN: [(&str, &str); 5] = [
    ("too many steps", "work2"),
    ("too many steps", "work4"),
    ("too many steps", "work6"),
    ("too much memory", "work3"),
    ("too much to read", "work2"),
];

#[test]
fn limits_are_met_from_both_sides() {
    for (name, expected) in [
        ("too many steps", "too many steps"),
        ("too many steps, taken apart", "too many steps"),
        ("too many steps, counted at once", "too many steps"),
        ("too much memory", "too much memory"),
        ("too much to read", "too many steps"),
    ] {
        let (program, seen) = named(name);
        for (transaction, counts) in program.transactions.iter().zip(&seen.counts) {
            let reasons = transaction.reasons.iter().zip(&counts.aborted);
            let beyond: u64 = reasons.filter(|(reason, _)| *reason == expected).map(|(_, count)| count).sum();
            println!("{name}, {}: {} committed, {:?}", transaction.name, counts.committed, counts.aborted);
            assert!(counts.committed > 0, "{name}: {} never commits", transaction.name);
            let is_within = WITHIN.contains(&(name, transaction.name.as_str()));
            assert_eq!(beyond == 0, is_within, "{name}: {} aborts {beyond} times", transaction.name);
        }
    }
    let (program, seen) = named("too much in filters and maps");
    for (stream, fails) in [("small", false), ("large", true), ("larger", true), ("same", true), ("some", true)] {
        assert_eq!(count(&program, &seen, &format!("{stream}.failed")) > 0, fails, "{stream}");
        assert!(count(&program, &seen, stream) > 0, "{stream}");
    }
}
