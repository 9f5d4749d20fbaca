//! One history for each rule about records, sent events, joining, pausing and ending.

use crate::{IN_ORDER, events, order, pass, pass_with, window};
use tidemill_reference::order::{Clock, Effect, Every, Order, SplitInput, Step, What};

const A: (u32, u32) = (0, 0);
const B: (u32, u32) = (1, 0);
const LATE_BY_10: Clock = Clock::EventTime { lateness: 10 };
const NO_TIME: SplitInput = SplitInput::Event(None);

/// Windows of 60 over all events.
fn windows(step: &Step) -> Vec<Effect> {
    match step.what {
        What::Event | What::Sent => vec![window(60, step.position.time)],
        _ => vec![],
    }
}

#[test]
fn a_request_between_two_records_of_one_time_stands_between_them() {
    let mut order = order(&[(A, IN_ORDER)]);
    events(&mut order, A, &[10]);
    assert_eq!(pass(&mut order), ["10/record/0.0.0"]);
    assert_eq!(order.send().to_string(), "10/record/0.0.0+0");
    events(&mut order, A, &[10, 11]);
    assert_eq!(order.send().to_string(), "10/record/0.0.0+1", "nothing more has passed");
    let rest = ["10/record/0.0.0+0", "10/record/0.0.0+1", "10/record/0.0.1", "11/record/0.0.2"];
    assert_eq!(pass(&mut order), rest);
}

#[test]
fn a_request_before_everything_stands_at_the_beginning() {
    let mut order = order(&[(A, IN_ORDER)]);
    events(&mut order, A, &[i64::MIN]);
    let first = order.send();
    assert_eq!(first.time, i64::MIN);
    assert_eq!(pass(&mut order), [format!("{first}"), format!("{}/record/0.0.0", i64::MIN)]);
}

#[test]
fn a_request_never_stands_inside_phase_2() {
    let mut order = order(&[(A, IN_ORDER)]);
    let mut groups = |step: &Step| match step.what {
        What::Event => vec![
            Effect::Complete { operator: 0, name: "a".into(), at: Some(59) },
            Effect::Complete { operator: 0, name: "b".into(), at: Some(59) },
            Effect::Complete { operator: 1, name: "c".into(), at: Some(59) },
        ],
        _ => vec![],
    };
    events(&mut order, A, &[5, 60]);
    let steps = order.pass(2, &mut groups);
    assert_eq!(steps.iter().map(crate::text).collect::<Vec<_>>(), ["5/record/0.0.0", "59/result/0.0 a"]);
    assert_eq!(order.send().to_string(), "60/begin+0", "its time is 60: it is in the next window");
    let rest = ["59/result/0.1 b", "59/result/1.0 c", "60/begin+0", "60/record/0.0.1"];
    assert_eq!(pass(&mut order), rest);
}

#[test]
fn a_mark_leaves_its_own_time_open() {
    // With "at most" in place of "less than", the window would close before the second event of 59.
    let mut order = order(&[(A, IN_ORDER)]);
    events(&mut order, A, &[59]);
    assert_eq!(pass_with(&mut order, &mut windows), ["59/record/0.0.0"]);
    events(&mut order, A, &[59]);
    assert_eq!(pass_with(&mut order, &mut windows), ["59/record/0.0.1"]);
    order.take(A, SplitInput::Punctuation(60));
    assert_eq!(pass_with(&mut order, &mut windows), ["59/result/0.0 [0, 60)"]);
}

#[test]
fn an_event_at_the_mark_is_punctual_and_one_below_is_late() {
    let mut order = order(&[(A, LATE_BY_10)]);
    events(&mut order, A, &[30, 20, 19, 41, 31, 30]);
    order.end();
    let expected = [
        "20/record/0.0.1",
        "30/record/0.0.0",
        "30/record/0.0.2 late",
        "31/record/0.0.4",
        "41/record/0.0.3",
        "41/record/0.0.5 late",
    ];
    assert_eq!(pass(&mut order), expected);
}

#[test]
fn late_is_measured_with_the_lateness_then_in_force() {
    let mut order = order(&[(A, LATE_BY_10)]);
    events(&mut order, A, &[100]);
    order.take(A, SplitInput::Lateness(0));
    events(&mut order, A, &[95, 96, 95]);
    order.take(A, SplitInput::Lateness(1000));
    events(&mut order, A, &[95, 96]);
    order.end();
    // Mark 90, then 95 and 96; it does not fall.
    let expected = [
        "95/record/0.0.1",
        "96/record/0.0.2",
        "96/record/0.0.5",
        "100/record/0.0.0",
        "100/record/0.0.3 late",
        "100/record/0.0.4 late",
    ];
    assert_eq!(pass(&mut order), expected);
}

#[test]
fn a_split_raised_for_idleness_delivers_late() {
    let mut order = order(&[(A, IN_ORDER), (B, IN_ORDER)]);
    events(&mut order, A, &[1, 99, 100]);
    events(&mut order, B, &[3]);
    assert_eq!(pass(&mut order), ["1/record/0.0.0", "3/record/1.0.0"]);
    let raised = order.mark_without(&[B]).expect("A is not silent");
    order.take(B, SplitInput::Punctuation(raised));
    assert_eq!(pass(&mut order), ["99/record/0.0.1", "100/record/0.0.2"]);
    events(&mut order, B, &[50, 100]);
    events(&mut order, A, &[101]);
    assert_eq!(pass(&mut order), ["100/record/1.0.1 late", "100/record/1.0.2"]);
    assert_eq!(order.mark_without(&[A, B]), None, "where all are silent, nothing is raised");
}

#[test]
fn late_and_bad_records_stand_where_their_split_has_come_to() {
    let mut order = order(&[(A, LATE_BY_10), (B, IN_ORDER)]);
    order.take(A, SplitInput::Bad);
    events(&mut order, A, &[50]);
    order.take(A, SplitInput::Bad);
    events(&mut order, A, &[7]);
    order.take(A, SplitInput::Punctuation(60));
    order.take(A, SplitInput::Bad);
    events(&mut order, B, &[45, 50, 60]);
    let expected = [
        format!("{}/record/0.0.0 bad", i64::MIN),
        "45/record/1.0.0".into(),
        "50/record/0.0.1".into(),
        "50/record/0.0.2 bad".into(),
        "50/record/0.0.3 late".into(),
        "50/record/1.0.1".into(),
        "60/record/0.0.4 bad".into(),
    ];
    assert_eq!(pass(&mut order), expected, "offsets count all records, and A may still deliver a 60");
}

#[test]
fn counters_take_turns_and_a_bad_record_stands_at_the_next() {
    let mut order = order(&[(A, Clock::Counter), (B, Clock::Counter)]);
    (0..3).for_each(|_| order.take(B, NO_TIME));
    assert!(pass(&mut order).is_empty());
    order.take(A, NO_TIME);
    assert_eq!(pass(&mut order), ["0/record/0.0.0", "0/record/1.0.0"]);
    // At the counter 0, which A has shown, it would overtake B's.
    order.take(A, SplitInput::Bad);
    order.take(A, NO_TIME);
    order.take(A, SplitInput::End);
    let rest = ["1/record/0.0.1 bad", "1/record/0.0.2", "1/record/1.0.1", "2/record/1.0.2"];
    assert_eq!(pass(&mut order), rest);
}

#[test]
fn splits_of_a_source_are_merged_side_by_side() {
    let (first, second) = ((0, 0), (0, 1));
    let mut order = order(&[(first, IN_ORDER), (second, LATE_BY_10), (B, IN_ORDER)]);
    events(&mut order, first, &[1, 5, 9]);
    events(&mut order, B, &[5, 30]);
    assert!(pass(&mut order).is_empty(), "a silent split holds the others back");
    events(&mut order, second, &[5, 3, 19]);
    let expected =
        ["1/record/0.0.0", "3/record/0.1.1", "5/record/0.0.1", "5/record/0.1.0", "5/record/1.0.0", "9/record/0.0.2"];
    assert_eq!(pass(&mut order), expected, "each has its own lateness, mark and offsets");
}

#[test]
fn a_file_that_joins_later_begins_after_what_has_passed() {
    let (source_0, source_1, source_2) = ((0, 0), (1, 0), (2, 0));
    let mut order = order(&[(source_0, IN_ORDER), (source_1, IN_ORDER), (source_2, IN_ORDER)]);
    events(&mut order, source_0, &[20]);
    events(&mut order, source_1, &[20]);
    events(&mut order, source_2, &[10]);
    assert_eq!(pass(&mut order), ["10/record/2.0.0"]);
    assert_eq!(order.mark(), 10);
    // A new split of source 1 would stand before what has passed, one of source 2 or 3 after it.
    assert_eq!(order.join((1, 1), IN_ORDER), 11);
    assert_eq!(order.join((2, 1), IN_ORDER), 10);
    assert_eq!(order.join((3, 0), IN_ORDER), 10);
    events(&mut order, (1, 1), &[10, 11]);
    events(&mut order, (2, 1), &[10, 30]);
    events(&mut order, (3, 0), &[9, 30]);
    events(&mut order, source_2, &[30]);
    let expected = ["10/record/2.1.0", "10/record/3.0.0 late", "11/record/1.1.0 late", "11/record/1.1.1"];
    assert_eq!(pass(&mut order), expected);
}

#[test]
fn a_split_that_joins_counts_from_where_the_others_are() {
    let mut order = order(&[(A, Clock::Counter)]);
    (0..2).for_each(|_| order.take(A, NO_TIME));
    assert_eq!(pass(&mut order).len(), 2);
    assert_eq!(order.join(B, Clock::Counter), 1, "(1, source 1) is after (1, source 0)");
    order.take(A, NO_TIME);
    order.take(B, NO_TIME);
    assert_eq!(pass(&mut order), ["1/record/1.0.0", "2/record/0.0.2"]);
}

#[test]
fn a_bad_record_beyond_the_horizon_waits_for_the_timers_before_it() {
    let mut order = Order::new(i64::MIN, vec![Every { origin: 0, period: 11 }]);
    order.join(A, IN_ORDER);
    order.join(B, IN_ORDER);
    events(&mut order, B, &[10]);
    [A, B].iter().for_each(|&split| order.take(split, SplitInput::End));
    assert_eq!(pass(&mut order), ["10/record/1.0.0"]);
    assert_eq!(order.join((0, 1), IN_ORDER), 11);
    order.take((0, 1), SplitInput::Bad);
    assert!(pass(&mut order).is_empty(), "whether 11 has a tick is not known yet");
    events(&mut order, (0, 1), &[11]);
    assert_eq!(pass(&mut order), ["11/tick/0", "11/record/0.1.0 bad", "11/record/0.1.1"]);
}

#[test]
fn records_that_are_all_bad_pass_without_a_time() {
    for clock in [IN_ORDER, Clock::Counter] {
        let mut order = order(&[(A, clock), (B, clock)]);
        [A, B, B].iter().for_each(|&split| order.take(split, SplitInput::Bad));
        assert_eq!(pass(&mut order).len(), 1, "A may deliver an event of the least time");
        order.take(A, SplitInput::End);
        assert_eq!(pass(&mut order).len(), 2);
    }
}

#[test]
fn a_pause_ends_nothing() {
    let mut order = order(&[(A, LATE_BY_10), (B, IN_ORDER)]);
    events(&mut order, A, &[10, 70]);
    events(&mut order, B, &[30]);
    // The first run ends here: what lateness and the other source hold back stays, windows stay open.
    assert_eq!(pass_with(&mut order, &mut windows), ["10/record/0.0.0", "30/record/1.0.0"]);
    events(&mut order, A, &[61, 72]);
    events(&mut order, B, &[61, 80]);
    let next = ["59/result/0.0 [0, 60)", "61/record/0.0.2", "61/record/1.0.1"];
    assert_eq!(pass_with(&mut order, &mut windows), next);
    order.end();
    let last = ["70/record/0.0.1", "72/record/0.0.3", "80/record/1.0.2", "119/result/0.0 [60, 120)"];
    assert_eq!(pass_with(&mut order, &mut windows), last, "the end of time closes what is open");
}

#[test]
fn the_end_of_all_splits_does_not_take_time_on() {
    let mut order = order(&[(A, IN_ORDER)]);
    events(&mut order, A, &[10]);
    order.take(A, SplitInput::End);
    assert_eq!(pass_with(&mut order, &mut windows), ["10/record/0.0.0"]);
    // With an endless mark the window would close, the request open the next, and so on.
    assert_eq!(order.send().to_string(), "10/record/0.0.0+0");
    assert_eq!(pass_with(&mut order, &mut windows), ["10/record/0.0.0+0"]);
    order.end();
    assert_eq!(pass_with(&mut order, &mut windows), ["59/result/0.0 [0, 60)"]);
}

#[test]
#[should_panic(expected = "a split that has ended takes nothing")]
fn growth_after_the_end_is_refused() {
    let mut order = order(&[(A, IN_ORDER)]);
    order.take(A, SplitInput::End);
    events(&mut order, A, &[10]);
}

#[test]
fn what_was_logged_needs_no_moment() {
    let mut live = order(&[(A, IN_ORDER)]);
    events(&mut live, A, &[10, 11]);
    let mut seen = pass(&mut live);
    let position = live.send();
    events(&mut live, A, &[11, 12]);
    seen.extend(pass(&mut live));
    let mut replay = order(&[(A, IN_ORDER)]);
    replay.send_at(position);
    assert!(pass(&mut replay).is_empty(), "its anchor has not passed");
    events(&mut replay, A, &[10, 11, 11, 12]);
    assert_eq!(pass(&mut replay), seen);
}
