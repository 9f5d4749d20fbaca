//! Calls that are given up: a session ends, or a run, and the clock stays mute for longer than calls wait for its tick. None of them
//! runs before the tick: those that come are not made, those that the gate holds stay for the next run.

use crate::bank::{logged, open};
use crate::first_calls::{
    HOLD, How, PATIENCE, TOGETHER, World, goes_on, holds, killed_after_calls, left_after, log_of,
};
use crate::trials;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_audit::verify;
use tidemill_durability::{Bug, Planted};
use tidemill_runtime::{Calling, EpochSize, NotMade, Reply, RequestKey, Session, SessionError, Summary, When};

/// A number of calls, each in a message of its own, of which those that wait leave some in the mailbox.
const CALLS: i64 = 100;
/// The messages that wait and those in the mailbox.
const ROOM: i64 = 128;
/// The clock's first answer comes late, and while calls wait for it.
const LATE: Duration = Duration::from_millis(300);
/// The time of the clock when a world goes on.
const AGAIN: i64 = 10 + 10 * HOLD;

/// Returns a world that was left at time 10, with a hold of number 0, and goes on long after it has expired.
fn left(world: World) -> World {
    let session = world.start(How::default()).expect("it starts");
    // The first tick may come after the first call.
    while world.call(&session, "put", 0, PATIENCE).expect("it is answered") < Some(10) {}
    close(&session);
    world.now.store(AGAIN, Ordering::Release);
    world
}

fn close(session: &Session) -> Summary {
    session.close(&mut || {}).expect("it is closed once").expect("nothing fails")
}

/// Calls a procedure with a key that follows from the hold.
fn call(world: &World, session: &Session, name: &str, id: i64) -> Result<Calling, SessionError> {
    let procedure = session.procedure(name).expect("it can be called");
    let key = RequestKey { user: String::new(), key: format!("{name} {id}"), called: 0 };
    session.call_with(&procedure, &world.calls(&procedure, [id]), &[Some(key)], When::Durable, None)
}

fn reply(calling: &mut Calling) -> Result<Reply, SessionError> {
    let answered = calling.next(Some(Instant::now() + PATIENCE))?.ok_or(SessionError::Over)?;
    Ok(answered.replies().next().expect("one call"))
}

/// Puts holds in a session that is closed at once; returns the answers.
fn puts_and_closes(world: &World, how: How) -> Vec<Reply> {
    let session = world.start(how).expect("it starts again");
    let calls: Vec<Calling> = (1..=CALLS).map(|id| call(world, &session, "put", id).expect("it is sent")).collect();
    if how.is_mute {
        _ = world.close_mute(&session)
    } else {
        _ = close(&session)
    }
    calls.into_iter().map(|mut calling| reply(&mut calling).expect("it is answered")).collect()
}

/// Checks that a state is what its log says.
fn is_as_logged(world: &World) {
    let verified = verify(&open(&world.machine), Some("start"), &logged).expect("it is as the log has it");
    assert!(verified.tables_compared, "{:?}", verified.notes);
}

fn is_made(reply: &Reply) -> bool {
    matches!(reply, Reply::Committed(_))
}

#[test]
fn calls_of_a_session_that_ends_wait_for_the_tick() {
    let world = left(World::new(1, false));
    assert!(puts_and_closes(&world, How { delay: LATE, ..How::default() }).iter().all(is_made));
    let session = world.start(How::default()).expect("it starts again");
    let expected: Vec<[i64; 3]> = (1..=CALLS).map(|id| [id, AGAIN + HOLD, 1]).collect();
    assert_eq!(holds(&session), expected, "they ran at the time of the tick");
    close(&session);
    is_as_logged(&world);
}

/// The clock is mute: none of the calls is made, and each is with its key in the next run, once.
#[test]
fn calls_that_wait_in_vain_are_not_made() {
    let world = left(World::new(1, false));
    for reply in puts_and_closes(&world, How { is_mute: true, ..How::default() }) {
        assert_eq!(reply, Reply::Refused(NotMade::BeforeTick));
    }
    let session = world.start(How { delay: LATE, ..How::default() }).expect("it starts again");
    for _ in 0..2 {
        let again: Vec<Calling> =
            (1..=CALLS).map(|id| call(&world, &session, "put", id).expect("it is sent")).collect();
        assert!(again.into_iter().all(|mut calling| is_made(&reply(&mut calling).expect("it is answered"))));
    }
    let expected: Vec<[i64; 3]> = (1..=CALLS).map(|id| [id, AGAIN + HOLD, 1]).collect();
    assert_eq!(holds(&session), expected);
    close(&session);
    is_as_logged(&world);
}

#[test]
fn calls_that_come_after_the_others_were_given_up_are_found() {
    let world = left(World::new(1, false));
    let planted = Planted::new(Bug::GivenUpCallPasses);
    let replies = puts_and_closes(&world, How { is_mute: true, planted, ..How::default() });
    assert!(replies.iter().any(is_made), "the bug shows");
    let session = world.start(How::default()).expect("it starts again");
    assert!(holds(&session).iter().any(|[_, until, _]| *until == 10 + HOLD), "some ran before the tick");
    close(&session);
}

/// Some who call wait for room, so the session cannot be closed before these have been given up.
#[test]
fn a_session_with_a_full_mailbox_ends() {
    let world = left(World::new(1, false));
    let session = world.start(How { is_mute: true, ..How::default() }).expect("it starts again");
    let (mut not_made, mut not_sent) = (0, 0);
    let sent = AtomicI64::new(0);
    let send = |id| {
        let calling = call(&world, &session, "put", id);
        sent.store(id, Ordering::Release);
        calling
    };
    thread::scope(|scope| {
        let calls = scope.spawn(|| (1..=2 * ROOM).map(send).collect::<Vec<_>>());
        while sent.load(Ordering::Acquire) < ROOM {
            thread::sleep(Duration::from_millis(1));
        }
        world.close_mute(&session);
        for calling in calls.join().expect("no panic") {
            match calling.and_then(|mut calling| reply(&mut calling)) {
                Ok(Reply::Refused(NotMade::BeforeTick)) => not_made += 1,
                Err(SessionError::Over) => not_sent += 1,
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(not_made >= ROOM, "{not_made} were not made, {not_sent} were not sent");
    let session = world.start(How::default()).expect("it starts again");
    assert!(holds(&session).is_empty(), "none ran");
    close(&session);
    is_as_logged(&world);
}

/// A question is answered though calls before it are given up.
#[test]
fn what_is_no_call_is_not_given_up() {
    let world = left(World::new(1, false));
    let session = world.start(How { is_mute: true, ..How::default() }).expect("it starts again");
    let mut put = call(&world, &session, "put", 1).expect("it is sent");
    let asked = session.ask(Vec::new(), None).expect("it is asked");
    world.close_mute(&session);
    let answer = reply(&mut put).expect("it is answered");
    let flushed = asked.flushed(Some(Instant::now() + PATIENCE));
    assert_eq!(answer, Reply::Refused(NotMade::BeforeTick));
    assert!(flushed.is_ok(), "{:?}", flushed.err());
}

/// Returns a disk after a crash that left calls in the log which no epoch has, and what a run with a clock makes of it: the number of
/// calls that ran before its tick, by epochs of the log, and the number of those that were held.
fn held() -> (impl Fn() -> World, [u64; 2]) {
    let (crashed, before) = killed_after_calls();
    let (log, records) = log_of(&crashed);
    let cut = (1..20).map(|part| (records - part * 40) as u64).find_map(|bytes| {
        let ([early, late], replayed) = goes_on(&left_after(&crashed, &log, bytes), Planted::default());
        assert_eq!(early, replayed.saturating_sub(before), "after {bytes} bytes of the log a call ran before the tick");
        (late > 0).then_some((bytes, [early, late]))
    });
    let (bytes, ran) = cut.expect("some lengths leave calls that no epoch has");
    (move || left_after(&crashed, &log, bytes), ran)
}

/// Returns the calls that ran, and had not, in runs with a clock that is mute, and then one with a clock that is not.
fn ran_after(world: &World, mute_runs: usize, mut mute: impl FnMut(How)) -> [u64; 2] {
    for _ in 0..mute_runs {
        mute(How { is_mute: true, epoch: EpochSize::Events(2), ..How::default() });
    }
    let (ran, _) = goes_on(world, Planted::default());
    is_as_logged(world);
    ran
}

/// The gate holds calls of an earlier run: sessions that end before the tick keep them, with those that come not made.
#[test]
fn calls_that_the_gate_holds_stay_for_the_next_run() {
    let (world, [early, late]) = held();
    let world = world();
    let ran = ran_after(&world, 2, |how| {
        let session = world.start(how).expect("it starts again");
        let mut put = call(&world, &session, "put", TOGETHER + 1).expect("it is sent");
        let remarks = world.close_mute(&session);
        assert_eq!(reply(&mut put).expect("it is answered"), Reply::Refused(NotMade::BeforeTick));
        assert!(
            remarks.iter().any(|remark| remark.contains(&format!("logged {late} calls or events, which stay"))),
            "{remarks:?}"
        );
    });
    assert_eq!(ran, [early, late]);
}

/// The clock ticks while the session that ends waits: then they run, at that time.
#[test]
fn calls_that_the_gate_holds_run_with_the_tick_of_a_session_that_ends() {
    let (world, [early, late]) = held();
    let world = world();
    close(&world.start(How { delay: LATE, ..How::default() }).expect("it starts again"));
    let session = world.start(How::default()).expect("it starts again");
    let ran = holds(&session);
    close(&session);
    let after = ran.iter().filter(|[_, until, _]| *until == AGAIN + HOLD).count() as u64;
    assert_eq!([ran.len() as u64 - after, after], [early, late]);
    is_as_logged(&world);
}

#[test]
fn calls_that_the_gate_holds_and_lets_pass_at_the_end_are_found() {
    let (world, [early, _]) = held();
    let world = world();
    let planted = Planted::new(Bug::GivenUpCallPasses);
    world.close_mute(&world.start(How { is_mute: true, planted, ..How::default() }).expect("it starts again"));
    let ([found, _], _) = goes_on(&world, Planted::default());
    assert!(found > early, "the bug shows");
}

/// A run without a session ends, too.
#[test]
fn a_run_without_a_session_keeps_what_the_gate_holds() {
    let (world, ran) = held();
    let world = world();
    let runs = |how| {
        let (engine, request) = world.run(how).expect("it begins");
        let (control, mut remarks) = (request.control.clone(), Vec::new());
        thread::scope(|scope| {
            let ended = scope.spawn(|| engine.run(request, &mut || {}).expect("nothing fails"));
            let mut look = world.speaks_once_given_up(&control, &mut remarks);
            while !ended.is_finished() {
                look();
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(!remarks.is_empty(), "it is said");
    };
    assert_eq!(ran_after(&world, 1, runs), ran);
}

/// A run whose end is for good has no next one: it waits for the tick.
#[test]
fn the_last_run_waits_for_the_tick_while_calls_are_held() {
    let (world, [early, late]) = held();
    let world = world();
    let remarks =
        world.close_mute(&world.start(How { is_mute: true, is_final: true, ..How::default() }).expect("it starts"));
    assert!(remarks.iter().any(|remark| remark.contains("the run waits for it")), "{remarks:?}");
    let session = world.start(How { is_final: true, ..How::default() }).expect("it starts again");
    let ran = holds(&session);
    close(&session);
    let after = ran.iter().filter(|[_, until, _]| *until == AGAIN + HOLD).count() as u64;
    assert_eq!([ran.len() as u64 - after, after], [early, late]);
}

/// Takes holds that are not there yet and then puts them, round after round, in a run that is stopped, so that the gate holds some of
/// these calls: an epoch has two messages, and the gate takes two more after the last. Goes on; returns whether a hold was taken, which a call
/// has put that came later.
fn is_taken_after_a_stop(seed: u64, planted: Planted) -> bool {
    let world = left(World::new(seed, false));
    let how = How { epoch: EpochSize::Events(4), planted, ..How::default() };
    let session = world.start(how).expect("it starts again");
    let sent = AtomicI64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let procedures = ["take", "put"].map(|name| session.procedure(name).expect("it can be called"));
            for round in 1.. {
                sent.store(round, Ordering::Release);
                for procedure in &procedures {
                    let calls = world.calls(procedure, 2 * round..2 * round + 2);
                    if session.call(procedure, &calls, None).is_err() {
                        return;
                    }
                }
            }
        });
        while sent.load(Ordering::Acquire) < 40 {
            thread::sleep(Duration::from_millis(1));
        }
        session.stop();
    });
    close(&session);
    let session = world.start(How { delay: LATE / 10, ..How::default() }).expect("it starts again");
    let taken = holds(&session).iter().any(|[.., state]| *state == 2);
    close(&session);
    is_as_logged(&world);
    taken
}

/// Calls of several procedures that the gate holds keep their order in a checkpoint.
#[test]
fn calls_that_the_gate_holds_keep_their_order() {
    let mut found = false;
    trials(2, |seed| {
        assert!(!is_taken_after_a_stop(seed, Planted::default()), "seed {seed}");
        found |= is_taken_after_a_stop(seed, Planted::new(Bug::CheckpointForgetsOrder));
        found
    });
}
