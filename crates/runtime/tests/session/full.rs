//! A disk that fills up under a session: reads are answered with the last durable state, however long the log waits.

use super::readers::durable_on;
use super::savepoints::{other_table, random_order, same_tables, send_some};
use super::{each_random, start_on};
use crate::support::Subject;
use arrow_array::RecordBatch;
use std::thread;
use std::time::{Duration, Instant};
use tidemill_histories::Random;
use tidemill_plan::TableId;
use tidemill_runtime::{Options, Session, Wish};
use tidemill_sim::SimStorage;

const SOON: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives a disk room in the end, so that who waits for it ends, too.
struct Room<'a>(&'a SimStorage);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.set_capacity(None);
    }
}

fn used(machine: &SimStorage) -> u64 {
    machine.files().values().map(|bytes| bytes.len() as u64).sum()
}

fn ids(subject: &Subject) -> Vec<TableId> {
    subject.program.tables.keys().collect()
}

/// Whole tables, and their epoch.
fn read(session: &Session, subject: &Subject, what: &str) -> (u64, Vec<RecordBatch>) {
    let wishes: Vec<Wish> = ids(subject).into_iter().map(Wish::whole).collect();
    let reads =
        session.reads_latest(&wishes, Some(Instant::now() + PATIENCE)).unwrap_or_else(|e| panic!("{what}: {e}"));
    (reads.epoch, reads.tables.iter().map(|table| table.rows().expect("no fault")).collect())
}

/// Returns the rows with which a run begins that is given what is durable on a machine now.
fn durable_tables(machine: &SimStorage, subject: &Subject, random: &mut Random) -> Vec<RecordBatch> {
    let machine = machine.copy();
    let (session, _) = start_on(subject, Options::default(), Some(durable_on(&machine, subject, random)));
    let tables = session.tables(&ids(subject), None).expect("it runs").tables;
    session.stop();
    let _ = session.close(&mut || {});
    tables
}

/// Returns the number of events after which the tables are these, of those from a number on.
fn events_in(subject: &Subject, tables: &[RecordBatch], order: &[usize], from: usize) -> Option<usize> {
    (from..=order.len()).find(|&count| other_table(subject, tables, &order[..count]).is_none())
}

/// Returns whether the run has come to wait for room in the log before all was sent.
fn comes_to_wait(session: &Session, is_all: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if session.control().shortage().is_some_and(|shortage| shortage.contains("the log waits")) {
            return true;
        }
        if is_all() {
            return false;
        }
        thread::sleep(SOON);
    }
    panic!("it neither waits nor goes on");
}

#[test]
fn reads_see_the_last_durable_epoch_while_the_log_waits_for_room() {
    let (mut waited, mut named, mut all) = (0, 0, 0);
    each_random(false, |subject, options, random, what| {
        all += 1;
        let machine = SimStorage::new(random.below(1 << 30) as u64);
        let (session, _) = start_on(&subject, options, Some(durable_on(&machine, &subject, random)));
        assert_eq!(session.ailment(), None);
        machine.set_capacity(Some(used(&machine) + random.below(4_000) as u64));
        let order = random_order(&subject, random);
        let mut sizes = random.clone();
        thread::scope(|scope| {
            let room = Room(&machine);
            let sender = scope.spawn(|| {
                send_some(&session, &subject, &order, 0, &mut sizes).expect("it runs");
                session.flush(None).expect("it runs")
            });
            if comes_to_wait(&session, || sender.is_finished()) {
                waited += 1;
                let (epoch, tables) = read(&session, &subject, what);
                // The epoch that waits may be in the log as a whole.
                let first = events_in(&subject, &tables, &order, 0).expect("what is read is of some events");
                let durable = durable_tables(&machine, &subject, random);
                assert!(events_in(&subject, &durable, &order, first).is_some(), "{what}: epoch {epoch} is not durable");
                // A checkpoint that is made meanwhile may give room, and the log goes on.
                let (again, rows) = read(&session, &subject, what);
                assert!(again > epoch || rows == tables, "{what}: nothing goes on");
                let is_named = session.ailment().is_some_and(|ailment| ailment.contains("the disk is full"));
                assert!(is_named || session.control().shortage().is_none(), "{what}");
                named += usize::from(is_named);
            }
            drop(room);
            let flushed = sender.join().expect("it does not panic");
            let (epoch, tables) = read(&session, &subject, what);
            assert!(epoch >= flushed.epoch, "{what}: a read has what an answered question was about");
            same_tables(&subject, &tables, &order, what);
        });
        super::close(&session);
    });
    println!("{waited} of {all} sessions waited for room");
    assert!(waited > 0 && named > 0);
}

#[test]
fn a_session_that_waits_for_room_ends_when_it_is_stopped() {
    let mut waited = 0;
    each_random(false, |subject, options, random, what| {
        let machine = SimStorage::new(random.below(1 << 30) as u64);
        let (session, _) = start_on(&subject, options, Some(durable_on(&machine, &subject, random)));
        machine.set_capacity(Some(used(&machine) + random.below(2_000) as u64));
        let order = random_order(&subject, random);
        let mut sizes = random.clone();
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let sent = send_some(&session, &subject, &order, 0, &mut sizes);
                sent.and_then(|()| session.flush(None))
            });
            if comes_to_wait(&session, || sender.is_finished()) {
                let before = read(&session, &subject, what).1;
                // One who closes it gives up, as one who waits for room may send for ever.
                let ended = session.close(&mut || session.stop()).expect("it is closed once");
                let sent = sender.join().expect("it does not panic");
                // A checkpoint that was made meanwhile may have given room.
                if let Err(error) = ended {
                    waited += 1;
                    assert!(error.to_string().contains("cannot be written"), "{what}: {error}");
                    assert!(sent.is_err(), "{what}: it was not released");
                }
                machine.set_capacity(None);
                // The epoch that waited may be there as a whole: nobody was told that it is not.
                let after = durable_tables(&machine, &subject, random);
                let first = events_in(&subject, &before, &order, 0).expect("what was read is of some events");
                let last = events_in(&subject, &after, &order, first);
                assert!(last.is_some(), "{what}: what was read is lost");
            } else {
                sender.join().expect("it does not panic").expect("it was released");
                super::close(&session);
            }
        });
    });
    assert!(waited > 0);
}
