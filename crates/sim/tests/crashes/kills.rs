//! A process that ends at its k-th call that writes, for each k, or is killed at random moments.
//!
//! What a process has written outlives it: what is lost with the power is tried on simulated storage, and by
//! [`power`](crate::power). Each process has one, two or three workers, also where it goes on with what another has left.

use crate::child::{End, Script, quick_directory};
use crate::trial::Whole;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tidemill_histories::Random;

/// Calls of the script at which it is ended.
const KILLS: u64 = 200;
/// Events of the script.
const EVENTS_MIN: usize = 100;
/// The calls of them that each run makes, whichever epochs meet in the log and share theirs: to make the state, and to write the
/// outputs.
const KILLED: u64 = 20;
const WORKERS_MAX: usize = 3;
const SIGKILL: i32 = 9;

#[test]
fn a_kill_at_each_call() {
    use std::os::unix::process::ExitStatusExt;
    let mut script = Script::new(EVENTS_MIN);
    let (mut kills, mut again) = (0, 0);
    for at in 0..KILLS {
        let directory = quick_directory();
        // One in two is ended again, while it recovers.
        let again_at = (at % 2 == 1).then_some(End::At(at * 7 % 40));
        let ends = [Some(End::At(at)), again_at, Some(End::Never)];
        for (life, end) in ends.into_iter().flatten().enumerate() {
            script.workers = 1 + (at as usize + life) % WORKERS_MAX;
            let (status, text) = script.run(directory.path(), end, "");
            assert!(!status.success() || life > 0 || at >= KILLED, "call {at} is not made");
            match (end, status.success(), status.signal()) {
                (End::At(_), false, Some(_)) => {
                    kills += u64::from(life == 0);
                    again += u64::from(life > 0);
                }
                (End::Never, true, _) => {}
                (End::At(_), true, _) => {}
                _ => panic!("call {at}, life {life}: {status}\n{text}"),
            }
        }
        let wrong = script.wrong_outputs(directory.path(), Whole::There);
        assert_eq!(wrong, None, "call {at}");
    }
    println!("{kills} processes ended at one of their first {KILLS} calls that write, {again} again while recovering");
}

/// The time that a whole run takes is where the kills fall, so that they come at any stage of it: while
/// it opens and recovers, while it runs, and while it finishes.
#[test]
fn kills_at_random_moments() {
    use std::os::unix::process::ExitStatusExt;
    let mut script = Script::new(EVENTS_MIN);
    let mut random = Random::new(super::number("TIDEMILL_SEED", 1));
    let wanted = super::number("TIDEMILL_KILLS", 50);
    let (mut kills, mut in_recovery, mut whole) = (0, 0, 0);
    let mut span = Duration::from_millis(500);
    while kills < wanted {
        let directory = quick_directory();
        for life in 0.. {
            script.workers = 1 + random.below(WORKERS_MAX);
            let begin = Instant::now();
            let mut child = script
                .command(directory.path(), End::Never, "")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it runs");
            std::thread::sleep(span.mul_f64(random.below(1000) as f64 / 1000.0));
            let _ = child.kill();
            let status = child.wait().expect("it ends");
            if status.success() {
                span = begin.elapsed().max(Duration::from_millis(20));
                whole += 1;
                break;
            }
            assert_eq!(status.signal(), Some(SIGKILL), "life {life}: {status}");
            kills += 1;
            in_recovery += u64::from(life > 0);
        }
        let wrong = script.wrong_outputs(directory.path(), Whole::There);
        assert_eq!(wrong, None, "after {kills} kills");
    }
    assert!(in_recovery > 0 || kills < 10, "none of {kills} kills was of a process that had to recover");
    println!("{kills} kills at random moments, {in_recovery} of a process that had to recover, {whole} whole runs");
}
