//! Who gets which task, step by step on one thread.
#![cfg(not(feature = "loom"))]

use std::sync::Arc;
use tidemill_stages::tasks::{HandOver, NoTask, Numbered, Task, Tasks, WantsHelp};

struct Epoch(u64);

impl Numbered for Epoch {
    fn number(&self) -> u64 {
        self.0
    }
}

/// An epoch in access that always wants help.
struct Offer;

impl WantsHelp for Offer {
    fn wants_help(&self) -> bool {
        true
    }
}

type Pipeline = Tasks<Epoch, Offer>;

/// Returns the task that a worker gets, in words, and the epoch.
fn ask(tasks: &Pipeline, worker: usize) -> (&'static str, Option<HandOver>, Option<Epoch>) {
    match tasks.next(worker, false, || 0) {
        Ok(Task::Prepare(epoch)) => ("prepare", None, Some(epoch)),
        Ok(Task::Access(epoch, reason)) => ("access", reason, Some(epoch)),
        Ok(Task::Finish(epoch)) => ("finish", None, Some(epoch)),
        Ok(Task::Help(_)) => ("help", None, None),
        Err(NoTask::Yet) => ("nothing", None, None),
        Err(NoTask::Ever) => ("leave", None, None),
    }
}

/// Returns a pipeline into which this many epochs were put, of which worker 0 has prepared and accessed the first.
fn after_one(workers: usize, seats: usize, epochs: u64) -> Pipeline {
    let tasks = Tasks::new(1, workers, seats);
    (1..=epochs).for_each(|number| tasks.put(Epoch(number)));
    let (what, _, epoch) = ask(&tasks, 0);
    assert_eq!(what, "prepare");
    tasks.prepared(0, epoch.expect("an epoch"));
    let (what, reason, epoch) = ask(&tasks, 0);
    assert_eq!((what, reason), ("access", Some(HandOver::First)));
    tasks.accessed(0, epoch.expect("an epoch"));
    tasks
}

#[test]
fn access_stays_with_a_worker_that_is_free() {
    let tasks = after_one(3, 3, 3);
    for number in 2..=3 {
        let (what, _, epoch) = ask(&tasks, 1);
        assert_eq!(what, "prepare");
        tasks.prepared(1, epoch.expect("an epoch"));
        // The next access is not for worker 1, who finds something else.
        assert_eq!(ask(&tasks, 1).0, "finish");
        let (what, reason, epoch) = ask(&tasks, 0);
        assert_eq!((what, reason), ("access", None));
        let epoch = epoch.expect("an epoch");
        assert_eq!(epoch.0, number);
        tasks.accessed(0, epoch);
    }
}

#[test]
fn access_goes_over_when_its_worker_is_busy() {
    let tasks = after_one(2, 2, 2);
    let (what, _, second) = ask(&tasks, 1);
    assert_eq!(what, "prepare");
    // One seat is left, and no worker is parked: the accessor takes it.
    assert_eq!(ask(&tasks, 0).0, "finish");
    tasks.prepared(1, second.expect("an epoch"));
    let (what, reason, _) = ask(&tasks, 1);
    assert_eq!((what, reason), ("access", Some(HandOver::Busy)));
}

#[test]
fn no_more_workers_have_tasks_than_have_seats() {
    let tasks = after_one(8, 3, 8);
    // One seat is the accessor's, who is free.
    let taken: Vec<&str> = (1..8).map(|worker| ask(&tasks, worker).0).collect();
    assert_eq!(taken, ["prepare", "finish", "nothing", "nothing", "nothing", "nothing", "nothing"]);
    assert_eq!(ask(&tasks, 0).0, "prepare");
    assert_eq!(ask(&tasks, 4).0, "nothing");
}

#[test]
fn no_more_workers_help_than_are_wanted() {
    let tasks = after_one(8, 8, 2);
    let (_, _, second) = ask(&tasks, 0);
    tasks.prepared(0, second.expect("an epoch"));
    assert_eq!(ask(&tasks, 0).0, "access");
    tasks.share(Arc::new(Offer), 2);
    let taken: Vec<&str> = (1..5).map(|worker| ask(&tasks, worker).0).collect();
    assert_eq!(taken, ["help", "help", "finish", "nothing"]);
    tasks.helped();
    assert_eq!(ask(&tasks, 4).0, "help");
    tasks.helped();
    tasks.helped();
    tasks.withdraw();
    assert_eq!(ask(&tasks, 5).0, "nothing");
}

#[test]
fn all_leave_after_the_last_epoch() {
    let tasks = after_one(3, 2, 1);
    tasks.close();
    assert_eq!(ask(&tasks, 2).0, "finish");
    assert_eq!([0, 1, 2].map(|worker| ask(&tasks, worker).0), ["leave"; 3]);
}

/// In short epochs a worker that has a task does the next, and another is called when two wait.
#[test]
fn short_epochs_stay_with_a_worker_that_has_a_task() {
    for seats in [2, 3] {
        let tasks = after_one(3, seats, 1);
        (0..40).for_each(|_| _ = tasks.finished(1_000));
        assert_eq!(ask(&tasks, 0).0, "finish");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| match tasks.next(1, true, || 0) {
                Ok(Task::Prepare(epoch)) => epoch.0,
                _ => panic!("it is called to prepare"),
            });
            let waits = || tasks.parked_count() == 1;
            while !waits() {
                std::thread::yield_now();
            }
            tasks.put(Epoch(2));
            assert!(waits(), "worker 0 comes back");
            let (what, _, epoch) = ask(&tasks, 0);
            assert_eq!(what, "prepare");
            assert!(waits(), "there is nothing more");
            tasks.prepared(0, epoch.expect("an epoch"));
            let (what, _, epoch) = ask(&tasks, 0);
            assert_eq!(what, "access");
            tasks.put(Epoch(3));
            assert!(waits(), "one may wait");
            tasks.put(Epoch(4));
            assert_eq!(other.join().expect("it does not panic"), 3);
            tasks.accessed(0, epoch.expect("an epoch"));
        });
    }
}

/// As long as epochs are not short, a worker is called for each that waits.
#[test]
fn long_epochs_call_another_worker() {
    let tasks = after_one(3, 3, 1);
    (0..40).for_each(|_| _ = tasks.finished(1_000_000));
    assert_eq!(ask(&tasks, 0).0, "finish");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| matches!(tasks.next(1, true, || 0), Ok(Task::Prepare(_))));
        while tasks.parked_count() == 0 {
            std::thread::yield_now();
        }
        tasks.put(Epoch(2));
        assert!(other.join().expect("it does not panic"), "worker 1 is called");
    });
}
