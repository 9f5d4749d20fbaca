//! The state that actors and workers share, under the model checker: all interleavings of small runs, up to a number of
//! preemptions. A wake-up that is lost shows as a deadlock.
#![cfg(feature = "loom")]

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;
use tidemill_stages::actor::{Bell, Inbox, Outbox, Took, mailbox};
use tidemill_stages::tasks::{NoTask, Numbered, Task, Tasks, WantsHelp};

/// Checks all executions with at most this many preemptions.
fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(body);
}

struct Epoch(u64);

impl Numbered for Epoch {
    fn number(&self) -> u64 {
        self.0
    }
}

/// An epoch in access that helpers may join until it is done.
#[derive(Default)]
struct Offer {
    done: AtomicBool,
    helped: AtomicU64,
}

impl WantsHelp for Offer {
    fn wants_help(&self) -> bool {
        !self.done.load(Ordering::Acquire) && self.helped.load(Ordering::Relaxed) == 0
    }
}

#[derive(Default)]
struct Seen {
    accessed: AtomicU64,
    finished: AtomicU64,
    gate: Bell,
}

/// Works until there is nothing more, as a worker of a run does; offers each epoch in access to the others if `shares`.
fn work(tasks: &Tasks<Epoch, Offer>, seen: &Seen, worker: usize, shares: bool) {
    loop {
        match tasks.next(worker, true, || 0) {
            Ok(Task::Prepare(epoch)) => tasks.prepared(worker, epoch),
            Ok(Task::Access(epoch, _)) => {
                if shares {
                    let offer = Arc::new(Offer::default());
                    tasks.share(offer.clone(), 1);
                    offer.done.store(true, Ordering::Release);
                    tasks.withdraw();
                    assert!(Arc::into_inner(offer).is_some(), "no helper holds what was withdrawn");
                }
                assert_eq!(seen.accessed.fetch_add(1, Ordering::Relaxed) + 1, epoch.0, "in the order of numbers");
                if tasks.accessed(worker, epoch) {
                    seen.gate.ring();
                }
            }
            Ok(Task::Help(offer)) => {
                offer.helped.fetch_add(1, Ordering::Relaxed);
                drop(offer);
                tasks.helped();
            }
            Ok(Task::Finish(_)) => _ = seen.finished.fetch_add(1, Ordering::Relaxed),
            Err(NoTask::Ever) => return,
            Err(NoTask::Yet) => unreachable!("a worker that waits is told at the end"),
        }
    }
}

fn run(epochs: u64, shares: bool) {
    run_on(2, 2, epochs, shares);
}

/// Runs epochs on some workers, of which `seats` have tasks at a time.
fn run_on(count: usize, seats: usize, epochs: u64, shares: bool) {
    run_tasks(Tasks::new(1, count, seats), count, epochs, shares);
}

/// Runs the tasks with epochs that are short.
fn run_short(count: usize, seats: usize, epochs: u64, shares: bool) {
    let tasks = Tasks::new(1, count, seats);
    tasks.finished(0);
    run_tasks(tasks, count, epochs, shares);
}

fn run_tasks(tasks: Tasks<Epoch, Offer>, count: usize, epochs: u64, shares: bool) {
    let (tasks, seen) = (Arc::new(tasks), Arc::new(Seen::default()));
    let spawn = |worker| {
        let (tasks, seen) = (tasks.clone(), seen.clone());
        thread::spawn(move || work(&tasks, &seen, worker, shares))
    };
    let workers: Vec<_> = (0..count).map(spawn).collect();
    (1..=epochs).for_each(|number| tasks.put(Epoch(number)));
    tasks.close();
    workers.into_iter().for_each(|worker| worker.join().expect("no worker panics"));
    assert_eq!(seen.finished.load(Ordering::Relaxed), epochs, "each epoch is finished");
}

#[test]
fn each_epoch_passes_all_stages_in_order() {
    check(3, || run(3, false));
}

#[test]
fn workers_that_help_miss_nothing() {
    check(3, || run(2, true));
}

/// The gate waits for the access of epochs, and is told by the worker that accessed the last of them.
#[test]
fn the_gate_is_told_that_epochs_were_accessed() {
    check(3, || {
        let (tasks, seen) = (Arc::new(Tasks::new(1, 1, 1)), Arc::new(Seen::default()));
        let (of_worker, seen_by_worker) = (tasks.clone(), seen.clone());
        let worker = thread::spawn(move || work(&of_worker, &seen_by_worker, 0, false));
        tasks.put(Epoch(1));
        tasks.put(Epoch(2));
        while !tasks.awaits(3) {
            seen.gate.wait(None);
        }
        assert_eq!(seen.accessed.load(Ordering::Relaxed), 2, "what was accessed is seen");
        tasks.close();
        worker.join().expect("no worker panics");
    });
}

#[test]
fn short_epochs_wait_for_the_worker_that_has_a_task() {
    check(3, || run_short(2, 2, 3, false));
    check(2, || run_short(2, 1, 2, false));
    check(2, || run_short(2, 2, 2, true));
    check(1, || run_short(3, 3, 2, false));
}

/// Workers that find no seat are parked, and are woken for a task or at the end.
#[test]
fn workers_without_a_seat_are_woken_at_the_end() {
    check(2, || run_on(2, 1, 2, false));
    check(2, || run_on(2, 1, 2, true));
}

#[test]
fn three_workers_on_two_seats() {
    check(1, || run_on(3, 2, 2, true));
}

#[test]
fn a_stop_reaches_workers_that_wait() {
    check(3, || {
        let (tasks, seen) = (Arc::new(Tasks::new(1, 1, 1)), Arc::new(Seen::default()));
        let (theirs, counts) = (tasks.clone(), seen.clone());
        let worker = thread::spawn(move || work(&theirs, &counts, 0, false));
        tasks.put(Epoch(1));
        tasks.stop();
        worker.join().expect("the worker does not panic");
        assert!(seen.finished.load(Ordering::Relaxed) <= 1);
    });
}

/// Sends numbers, and waits for its bell where there is no room; returns how many were taken from it.
fn send(outbox: &Outbox<u64>, bell: &Bell, count: u64) -> u64 {
    for number in 0..count {
        while outbox.is_full() {
            bell.wait(None);
        }
        if !outbox.send(number) {
            return number;
        }
    }
    count
}

/// Returns a thread that sends this many numbers through a mailbox with room for one; the receiving end and its bell.
fn sender_of(count: u64) -> (Inbox<u64>, Arc<Bell>, thread::JoinHandle<u64>) {
    let [receiver, sender] = [(); 2].map(|()| Arc::new(Bell::default()));
    let (outbox, inbox) = mailbox(Some(1), &receiver, Some(&sender));
    let sending = thread::spawn(move || send(&outbox, &sender, count));
    (inbox, receiver, sending)
}

/// Takes messages, and waits where there are none, until the senders are gone.
fn receive(inbox: &Inbox<u64>, bell: &Bell) -> Vec<u64> {
    let mut taken = Vec::new();
    loop {
        match inbox.take() {
            Took::Message(number) => taken.push(number),
            Took::Nothing => _ = bell.wait(None),
            Took::Closed => return taken,
        }
    }
}

#[test]
fn messages_and_the_going_of_the_sender_are_heard() {
    check(3, || {
        let (inbox, receiver, sending) = sender_of(2);
        assert_eq!(receive(&inbox, &receiver), [0, 1]);
        assert_eq!(sending.join().expect("the sender does not panic"), 2);
    });
}

/// A waiter that waits for two rings where one may be all that comes.
#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_found() {
    check(2, || {
        let (bell, is_set) = (Arc::new(Bell::default()), Arc::new(AtomicBool::new(false)));
        let (theirs, flag) = (bell.clone(), is_set.clone());
        let ringing = thread::spawn(move || {
            flag.store(true, Ordering::Release);
            theirs.ring();
        });
        while !is_set.load(Ordering::Acquire) {
            bell.wait(None);
            bell.wait(None);
        }
        ringing.join().expect("the ringer does not panic");
    });
}

#[test]
fn the_going_of_the_receiver_is_heard() {
    check(3, || {
        let (inbox, _receiver, sending) = sender_of(3);
        let first = inbox.take();
        drop(inbox);
        let sent = sending.join().expect("the sender does not panic");
        assert!(sent <= 2, "{sent} sent: one message lay in the queue, and one was taken at most: {first:?}");
    });
}
