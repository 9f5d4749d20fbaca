//! One history for each rule about ticks, wakes and results that complete with an instant.

use crate::{IN_ORDER, complete, events, pass, pass_with, wake, window};
use tidemill_model::{KeyPart, Place};
use tidemill_reference::order::{Clock, Effect, Every, LeftOut, Order, SplitInput, Step, TIMERS_MAX, What};

const A: (u32, u32) = (0, 0);
const B: (u32, u32) = (1, 0);
const MINUTE: i64 = 60;
/// Times of 2026, and of 2099, in seconds.
const NOW: i64 = 1_795_444_200;
const IN_2099: i64 = 4_070_908_800;

fn order(everies: &[(i64, i64)]) -> Order {
    let everies = everies.iter().map(|&(origin, period)| Every { origin, period }).collect();
    let mut order = Order::new(i64::MIN, everies);
    order.join(A, IN_ORDER);
    order
}

fn is_wake(step: &Step) -> bool {
    step.what == What::Wake
}

#[test]
fn an_instant_has_timers_then_records_then_results() {
    let mut order = order(&[(0, 30), (0, 20)]);
    events(&mut order, A, &[10, 60, 61]);
    let mut react = |step: &Step| match (&step.what, step.position.time) {
        (What::Event, 10) => vec![wake(2, 60), wake(1, 60), complete(1, "x", 60), complete(0, "y", 60)],
        (What::Event, 60) => vec![complete(1, "w", 60), complete(0, "z", 60)],
        // Operator 1 takes what operator 0 puts out.
        (What::Result(name), 60) if name == "y" => vec![complete(1, "stacked", 60)],
        _ => vec![],
    };
    let expected = [
        "10/record/0.0.0",
        "20/tick/1",
        "30/tick/0",
        "40/tick/1",
        "60/tick/0",
        "60/tick/1",
        "60/wake/0(1)",
        "60/wake/0(2)",
        "60/record/0.0.1",
        "60/result/0.0 y",
        "60/result/0.1 z",
        "60/result/1.0 x",
        "60/result/1.1 w",
        "60/result/1.2 stacked",
        "61/record/0.0.2",
    ];
    assert_eq!(pass_with(&mut order, &mut react), expected);
}

#[test]
fn a_timer_may_pass_at_its_own_mark() {
    let mut order = order(&[(0, 60)]);
    order.join(B, IN_ORDER);
    events(&mut order, A, &[1, 70]);
    events(&mut order, B, &[1, 60]);
    let seen = pass(&mut order);
    assert_eq!(seen[2..], ["60/tick/0", "60/record/1.0.1"]);
}

#[test]
fn ticks_begin_after_the_first_shown_time_and_end_with_the_horizon() {
    let mut order = order(&[(0, 10)]);
    events(&mut order, A, &[30, 45]);
    order.take(A, SplitInput::Punctuation(60));
    order.end();
    let expected = ["30/record/0.0.0", "40/tick/0", "45/record/0.0.1", "50/tick/0", "60/tick/0"];
    assert_eq!(pass(&mut order), expected);
}

#[test]
fn an_event_in_2099_makes_no_more_ticks_than_the_bound() {
    let mut order = order(&[(0, MINUTE), (0, 365 * 24 * 60 * MINUTE)]);
    events(&mut order, A, &[NOW, IN_2099, IN_2099 + MINUTE]);
    let seen = pass(&mut order);
    assert_eq!(seen.iter().filter(|step| step.contains("/tick/0")).count() as i64, TIMERS_MAX + 1);
    assert_eq!(seen.iter().filter(|step| step.contains("/tick/1")).count(), 73, "of years, none is left out");
    assert_eq!(seen[1], format!("{}/tick/0", NOW + MINUTE), "the first of the gap run");
    let all = IN_2099 / MINUTE - NOW / MINUTE;
    let left_out = LeftOut { every: 0, before: IN_2099, count: (all - TIMERS_MAX) as u64 };
    assert_eq!(order.left_out(), [left_out], "the rest is counted and named");
}

#[test]
fn what_a_long_gap_ran_stays_right_when_another_split_fills_it() {
    let fill = [NOW + 6_000 * MINUTE, NOW + 12_000 * MINUTE, IN_2099];
    let run = |cut: bool| {
        let mut order = order(&[(0, MINUTE)]);
        order.join(B, IN_ORDER);
        let mut seen = Vec::new();
        events(&mut order, B, &[NOW, IN_2099]);
        for time in [NOW, fill[0], fill[1], fill[2]] {
            events(&mut order, A, &[time]);
            if cut {
                seen.extend(pass(&mut order));
            }
        }
        order.end();
        seen.extend(pass(&mut order));
        (seen, order.left_out())
    };
    assert_eq!(run(true), run(false));
    let all = IN_2099 / MINUTE - fill[1] / MINUTE;
    let (seen, left_out) = run(true);
    assert_eq!(left_out, [LeftOut { every: 0, before: IN_2099, count: (all - TIMERS_MAX) as u64 }]);
    assert_eq!(seen.iter().filter(|step| step.contains("tick")).count() as i64, 12_000 + TIMERS_MAX);
}

#[test]
fn a_wake_that_sets_the_next_ends_at_the_greatest_punctual_time() {
    let mut order = order(&[]);
    order.join(B, IN_ORDER);
    events(&mut order, A, &[0]);
    events(&mut order, B, &[0, 250]);
    order.take(B, SplitInput::Bad);
    events(&mut order, B, &[3]);
    order.end();
    let mut react = |step: &Step| match step.what {
        What::Event | What::Wake => vec![wake(0, step.position.time + MINUTE)],
        _ => vec![],
    };
    let seen = pass_with(&mut order, &mut react);
    assert_eq!(seen.iter().filter(|step| step.contains("wake")).count(), 4, "{seen:?}");
    assert_eq!(seen[seen.len() - 4], "240/wake/0(0)");
}

#[test]
fn the_end_of_time_closes_windows_and_wakes_nobody() {
    let mut order = order(&[(0, 5)]);
    events(&mut order, A, &[10]);
    let mut react = |step: &Step| match step.what {
        What::Event => vec![wake(0, 12), window(60, 10)],
        What::Result(_) => vec![wake(1, 60)],
        _ => vec![],
    };
    order.end();
    assert_eq!(pass_with(&mut order, &mut react), ["10/record/0.0.0", "59/result/0.0 [0, 60)"]);
}

#[test]
fn a_wake_waits_where_its_row_was_woken_too_often_in_a_gap() {
    let mut order = order(&[]);
    events(&mut order, A, &[NOW, IN_2099, IN_2099 + 1]);
    let mut react = |step: &Step| match step.what {
        What::Event if step.position.time == NOW => vec![wake(0, NOW), wake(1, IN_2099 - 1)],
        What::Wake if step.position.to_string().ends_with("(0)") => vec![wake(0, step.position.time + MINUTE)],
        _ => vec![],
    };
    let steps = order.pass(usize::MAX, &mut react);
    let woken: Vec<String> = steps.iter().filter(|step| is_wake(step)).map(crate::text).collect();
    assert_eq!(woken.len() as i64, TIMERS_MAX + 2);
    assert_eq!(woken[woken.len() - 2], format!("{}/wake/0(1)", IN_2099 - 1), "another row's is not held up");
    assert_eq!(woken[woken.len() - 1], format!("{}/wake/0(0)", IN_2099 + 1), "it waits until after the gap");
}

#[test]
fn the_wakes_of_different_rows_are_not_counted_together() {
    let mut order = order(&[]);
    events(&mut order, A, &[0, 100]);
    let mut react = |step: &Step| match (&step.what, step.position.time) {
        (What::Event, 0) => (0..200).map(|row| wake(row, 1)).collect(),
        (What::Wake, time) => {
            let Place::Wake { key, .. } = step.position.place.clone() else { unreachable!("a wake's place") };
            vec![Effect::Wake { table: 0, key, at: Some(time + 1) }]
        }
        _ => vec![],
    };
    let steps = order.pass(usize::MAX, &mut react);
    assert_eq!(steps.iter().filter(|step| is_wake(step)).count(), 200 * 100);
}

#[test]
fn a_wake_is_replaced_cancelled_and_never_in_its_own_instant() {
    let mut order = order(&[]);
    events(&mut order, A, &[10, 11, 12, 40]);
    let cancel = |key| Effect::Wake { table: 0, key: vec![KeyPart::Word(key)], at: None };
    let mut react = |step: &Step| match (&step.what, step.position.time) {
        (What::Event, 10) => vec![wake(0, 30), wake(1, 20), wake(2, 5)],
        (What::Event, 11) => vec![wake(0, 11)],
        (What::Event, 12) => vec![cancel(1)],
        _ => vec![],
    };
    let expected =
        ["10/record/0.0.0", "11/wake/0(2)", "11/record/0.0.1", "12/wake/0(0)", "12/record/0.0.2", "40/record/0.0.3"];
    assert_eq!(pass_with(&mut order, &mut react), expected);
}

#[test]
fn the_first_shown_time_has_no_ticks() {
    // A request before everything has set a wake at 7. The first event to arrive says 10, the second 7; with a tick at
    // the least shown time there would be one of 7 after the wake of 7.
    let mut order = Order::new(i64::MIN, vec![Every { origin: 0, period: 7 }]);
    order.join(A, Clock::EventTime { lateness: 3 });
    order.send();
    let mut react = |step: &Step| match step.what {
        What::Sent => vec![wake(0, 7)],
        _ => vec![],
    };
    assert_eq!(pass_with(&mut order, &mut react), [format!("{}/begin+0", i64::MIN)]);
    events(&mut order, A, &[10]);
    assert_eq!(pass_with(&mut order, &mut react), ["7/wake/0(0)"]);
    events(&mut order, A, &[7, 17]);
    assert_eq!(pass_with(&mut order, &mut react), ["7/record/0.0.1", "10/record/0.0.0", "14/tick/0"]);
}

#[test]
fn groups_of_a_window_close_in_the_order_of_their_first_event_in_it() {
    let mut order = order(&[]);
    events(&mut order, A, &[1, 12, 13, 30]);
    // Sliding windows of 20 each 10: group b has an event in the slice of 0, group a first in that of 10.
    let mut react = |step: &Step| match step.position.time {
        1 => vec![complete(0, "[0, 20) b", 19)],
        12 => vec![complete(0, "[0, 20) a", 19), complete(0, "[10, 30) a", 29)],
        13 => vec![complete(0, "[0, 20) b", 19), complete(0, "[10, 30) b", 29)],
        _ => vec![],
    };
    let seen = pass_with(&mut order, &mut react);
    let closes: Vec<&String> = seen.iter().filter(|step| step.contains("result")).collect();
    let expected = ["19/result/0.0 [0, 20) b", "19/result/0.1 [0, 20) a", "29/result/0.0 [10, 30) a"];
    assert_eq!(closes[..3], expected);
    assert_eq!(closes[3], "29/result/0.1 [10, 30) b");
}

#[test]
fn a_session_closes_its_gap_after_its_last_event() {
    let mut order = order(&[]);
    events(&mut order, A, &[0, 9, 18, 28, 50]);
    let mut session = 0;
    let mut last = i64::MIN;
    let mut react = |step: &Step| {
        if step.what != What::Event {
            return vec![];
        }
        // An event at the last one's time and the gap begins another.
        session += i64::from(step.position.time >= last.saturating_add(10));
        last = step.position.time;
        vec![complete(0, &session.to_string(), last + 9)]
    };
    let expected = [
        "0/record/0.0.0",
        "9/record/0.0.1",
        "18/record/0.0.2",
        "27/result/0.0 1",
        "28/record/0.0.3",
        "37/result/0.0 2",
        "50/record/0.0.4",
    ];
    assert_eq!(pass_with(&mut order, &mut react), expected);
}

#[test]
#[should_panic(expected = "an operator's order of an instant is fixed before it runs")]
fn an_operator_takes_nothing_of_its_own() {
    let mut order = order(&[]);
    events(&mut order, A, &[0, 60]);
    let mut react = |_: &Step| vec![complete(0, "x", 59)];
    pass_with(&mut order, &mut react);
}
